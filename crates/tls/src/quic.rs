//! TLS of QUIC (RFC 9001): the handshake has no records, and QUIC takes its keys.
//!
//! Certificates, settings of sites, tickets and the keeper are those of connections over TCP ([`Server`]). A handshake waits for
//! the whole first message of the client, because that decides all of them.
//!
//! [`Ids`] makes the IDs of connections, which name gateway and reactor.

mod ids;

use std::{
    any::Any,
    fmt,
    io::Cursor,
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use aws_lc_rs::aead;
use quinn_proto::{
    ConnectionId, Side, TransportError, TransportErrorCode,
    crypto::{self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, UnsupportedVersion},
    transport_parameters::TransportParameters,
};
use rustls::{
    CipherSuite, Error,
    quic::{DirectionalKeys, KeyChange, Secrets, ServerConnection, Suite, Version},
    server::Acceptor,
    sign::CertifiedKey,
};

pub use self::ids::{ID, Ids, Place, SECRET};
use crate::{
    Info, Server, provider,
    server::{Carrying, Chosen, with_certificate},
    session::MOST_BYTES,
};

/// The handshakes of a listener.
#[derive(Clone)]
pub struct Handshakes {
    server: Arc<Server>,
    listener: u16,
    /// The address that the client connects to.
    local: Option<IpAddr>,
    initial: Suite,
}

impl Handshakes {
    /// On `listener`.
    ///
    /// # Errors
    /// If the cryptography has not what QUIC begins with (RFC 9001 §5).
    pub fn new(server: Arc<Server>, listener: u16) -> Result<Handshakes, String> {
        let provider = provider();
        let mut suites = provider.cipher_suites.iter();
        let first = suites.find(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
        let initial = first.and_then(|suite| suite.tls13()?.quic_suite());
        Ok(Handshakes {
            server,
            listener,
            local: None,
            initial: initial.ok_or("QUIC needs TLS_AES_128_GCM_SHA256, which is not there")?,
        })
    }

    /// The same at this address.
    pub fn at(&self, local: Option<IpAddr>) -> Handshakes {
        Handshakes {
            local,
            ..self.clone()
        }
    }
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshakes")
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

impl crypto::ServerConfig for Handshakes {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        let version = known(version).ok_or(UnsupportedVersion)?;
        Ok(initial_keys(&self.initial, version, (id, Side::Server)))
    }

    fn retry_tag(&self, _: u32, original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        let mut text = Vec::with_capacity(packet.len() + original.len() + 1);
        text.push(original.len() as u8);
        text.extend_from_slice(original);
        text.extend_from_slice(packet);
        let mut tag = [0; 16];
        // Cannot fail: the key has the length of the algorithm.
        if let Ok(key) = aead::UnboundKey::new(&aead::AES_128_GCM, &RETRY_KEY) {
            let nonce = aead::Nonce::assume_unique_for_key(RETRY_NONCE);
            let key = aead::LessSafeKey::new(key);
            let sealed = key.seal_in_place_separate_tag(nonce, aead::Aad::from(text), &mut []);
            if let Ok(sealed) = sealed {
                tag.copy_from_slice(sealed.as_ref());
            }
        }
        tag
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        let mut text = Vec::new();
        params.write(&mut text);
        Box::new(Session {
            of: self,
            // `initial_keys` has refused other versions.
            version: known(version).unwrap_or(Version::V1),
            state: State::Hello {
                params: text,
                bytes: Vec::new(),
            },
            next: None,
            info: None,
        })
    }
}

/// The handshake of a connection, and its keys.
struct Session {
    of: Arc<Handshakes>,
    version: Version,
    state: State,
    next: Option<Secrets>,
    info: Option<Arc<Info>>,
}

enum State {
    /// The first message of the client is not complete yet.
    Hello {
        params: Vec<u8>,
        bytes: Vec<u8>,
    },
    Open {
        connection: Box<ServerConnection>,
        /// Until the handshake is over.
        certificate: Option<Arc<CertifiedKey>>,
        authority: Option<usize>,
    },
    /// It is over, and its tickets were taken: nothing more may come (RFC 9001 §6, RFC 8446 §4.6).
    Done,
    Failed,
}

impl Session {
    /// Takes bytes of the first message, and opens the connection if it is whole.
    fn hello(&mut self, more: &[u8]) -> Result<(), TransportError> {
        let State::Hello { params, bytes } = &mut self.state else {
            return Ok(());
        };
        bytes.extend_from_slice(more);
        if bytes.len() > MOST_BYTES {
            return Err(self.fail(ILLEGAL_PARAMETER, "the first message is too long"));
        }
        let [kind, a, b, c, ..] = bytes[..] else {
            return Ok(());
        };
        if kind != CLIENT_HELLO {
            return Err(self.fail(UNEXPECTED_MESSAGE, "the first message is no ClientHello"));
        }
        if bytes.len() < MESSAGE_HEAD + u32::from_be_bytes([0, a, b, c]) as usize {
            return Ok(());
        }
        let (params, bytes) = (std::mem::take(params), std::mem::take(bytes));
        let chosen = match choose(&self.of, &bytes) {
            Ok(chosen) => chosen,
            Err((alert, why)) => return Err(self.fail(alert, &why)),
        };
        let Chosen {
            config,
            certificate,
            authority,
        } = chosen;
        let connection = match ServerConnection::new(config, self.version, params) {
            Ok(connection) => connection,
            Err(error) => return Err(self.fail(INTERNAL_ERROR, &error.to_string())),
        };
        self.state = State::Open {
            connection: Box::new(connection),
            certificate: Some(certificate),
            authority,
        };
        self.open(&bytes)
    }

    /// Takes bytes of later messages.
    fn open(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let State::Open {
            connection,
            certificate,
            ..
        } = &mut self.state
        else {
            return Ok(());
        };
        let read = with_certificate(certificate, || connection.read_hs(bytes));
        match read {
            Ok(()) => Ok(()),
            Err(error) => {
                let alert = connection.alert().map_or(INTERNAL_ERROR, u8::from);
                Err(self.fail(alert, &error.to_string()))
            }
        }
    }

    fn fail(&mut self, alert: u8, why: &str) -> TransportError {
        if self.info.is_none() && !matches!(self.state, State::Failed) {
            self.of.server.counts.failed.fetch_add(1, Relaxed);
        }
        self.state = State::Failed;
        TransportError {
            code: TransportErrorCode::crypto(alert),
            frame: None,
            reason: why.to_owned(),
        }
    }
}

/// The settings for the handshake with this first message; or an alert, and why.
fn choose(of: &Handshakes, message: &[u8]) -> Result<Chosen, (u8, String)> {
    let mut acceptor = Acceptor::default();
    let wrong = |error: Error| (ILLEGAL_PARAMETER, error.to_string());
    for part in message.chunks(RECORD) {
        let mut record = vec![HANDSHAKE, 3, 1];
        record.extend_from_slice(&(part.len() as u16).to_be_bytes());
        record.extend_from_slice(part);
        // Reading from memory does not fail.
        let _ = acceptor.read_tls(&mut &record[..]);
    }
    let accepted = match acceptor.accept() {
        Ok(Some(accepted)) => accepted,
        Ok(None) => return Err((ILLEGAL_PARAMETER, "the first message is not whole".into())),
        Err((error, _)) => return Err(wrong(error)),
    };
    let hello = accepted.client_hello();
    let offers = hello.alpn();
    if !offers.is_some_and(|mut offered| offered.any(|name| name == crate::server::HTTP3)) {
        return Err((
            NO_APPLICATION_PROTOCOL,
            "the client does not offer HTTP/3".into(),
        ));
    }
    let unknown = || {
        let name = hello.server_name().map(str::to_owned);
        (
            UNRECOGNIZED_NAME,
            crate::Broken::UnknownName(name).to_string(),
        )
    };
    // quinn-proto continues only when the client sends something, so the handshake could not continue when the certificate is there.
    if of.server.waits(of.listener, &hello) {
        return Err(unknown());
    }
    let carrying = (of.listener, Carrying::Http3);
    let chosen = of.server.choose_for(carrying, of.local, &hello);
    chosen.ok_or_else(unknown)
}

impl crypto::Session for Session {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        initial_keys(&self.of.initial, self.version, (id, side))
    }

    /// An `Arc<Info>`, once the handshake is over.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let info = self.info.clone()?;
        Some(Box::new(info))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn crypto::PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        match &self.state {
            State::Open { connection, .. } => connection.is_handshaking(),
            State::Done => false,
            State::Hello { .. } | State::Failed => true,
        }
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        match self.state {
            State::Hello { .. } => self.hello(bytes)?,
            State::Open { .. } => self.open(bytes)?,
            State::Done => return Err(self.fail(UNEXPECTED_MESSAGE, "the handshake is over")),
            State::Failed => return Err(self.fail(INTERNAL_ERROR, "the handshake has failed")),
        }
        let State::Open {
            connection,
            certificate,
            authority,
        } = &mut self.state
        else {
            return Ok(false);
        };
        if self.info.is_some() || connection.is_handshaking() {
            return Ok(false);
        }
        let info = Info::of(connection, connection.server_name(), *authority);
        let counts = &self.of.server.counts;
        match info.resumed {
            true => &counts.resumed,
            false => &counts.full,
        }
        .fetch_add(1, Relaxed);
        *certificate = None;
        self.info = Some(Arc::new(info));
        Ok(true)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let State::Open { connection, .. } = &self.state else {
            return Ok(None);
        };
        match connection.quic_transport_parameters() {
            None => Ok(None),
            Some(bytes) => TransportParameters::read(Side::Server, &mut Cursor::new(bytes))
                .map(Some)
                .map_err(TransportError::from),
        }
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let State::Open {
            connection,
            certificate,
            ..
        } = &mut self.state
        else {
            return None;
        };
        let Some(change) = with_certificate(certificate, || connection.write_hs(out)) else {
            // Idle connections keep nothing of their handshakes.
            if out.is_empty() && self.info.is_some() {
                self.state = State::Done;
            }
            return None;
        };
        let keys = match change {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                self.next = Some(next);
                keys
            }
        };
        Some(pairs(keys))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn crypto::PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(KeyPair {
            local: Box::new(keys.local),
            remote: Box::new(keys.remote),
        })
    }

    /// Only clients get such packets.
    fn is_valid_retry(&self, _: &ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false
    }

    /// Nothing here asks for any.
    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.info.is_none() && !matches!(self.state, State::Failed) {
            self.of.server.counts.failed.fetch_add(1, Relaxed);
        }
    }
}

fn initial_keys(suite: &Suite, version: Version, (id, side): (&ConnectionId, Side)) -> Keys {
    let side = match side {
        Side::Client => rustls::Side::Client,
        Side::Server => rustls::Side::Server,
    };
    pairs(suite.keys(id, side, version))
}

fn pairs(keys: rustls::quic::Keys) -> Keys {
    let of = |keys: DirectionalKeys| -> (Box<dyn HeaderKey>, Box<dyn crypto::PacketKey>) {
        (Box::new(keys.header), Box::new(keys.packet))
    };
    let (local, remote) = (of(keys.local), of(keys.remote));
    Keys {
        header: KeyPair {
            local: local.0,
            remote: remote.0,
        },
        packet: KeyPair {
            local: local.1,
            remote: remote.1,
        },
    }
}

/// QUIC version 1 (RFC 9000 §15); drafts are not used any more.
fn known(version: u32) -> Option<Version> {
    (version == 1).then_some(Version::V1)
}

/// Key and nonce of the tag of Retry packets (RFC 9001 §5.8).
const RETRY_KEY: [u8; 16] = [
    0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e,
];
const RETRY_NONCE: [u8; 12] = [
    0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb,
];

/// The kind of a handshake's record, and of a client's first message; bytes of a message's head, and of a record at most
/// (RFC 8446 §4, §5.1).
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const MESSAGE_HEAD: usize = 4;
const RECORD: usize = 16 * 1024;

/// Alerts (RFC 8446 §6).
const UNEXPECTED_MESSAGE: u8 = 10;
const ILLEGAL_PARAMETER: u8 = 47;
const INTERNAL_ERROR: u8 = 80;
const UNRECOGNIZED_NAME: u8 = 112;
const NO_APPLICATION_PROTOCOL: u8 = 120;
