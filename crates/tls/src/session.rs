//! The TLS of one connection: bytes of its socket in and out, plain bytes out and in. It reads and writes nothing itself.
//!
//! ```text
//!        first bytes            ClientHello whole           Finished
//!  New ──────────────► Hello ─────────────────────► Open ─────────────► Open, with Info
//!    └─ letters ─► Plain   └─ no certificate ─► Failed ◄─ any error ──┘
//!                          └─ one is got on demand ─► Waiting ─► Open or Failed
//! ```
//! If the keeper signs, the step to Open is done on another thread ([`crate::signing`]), and the session is Signing
//! meanwhile. A client that resumes with a ticket needs no signature, and waits for no thread.
//!
//! A connection that has sent nothing costs no buffer. One that is idle has what rustls needs to go on, and no more than
//! 4 KiB of buffer ([`Session::rest`]).

use std::{
    fmt,
    io::{self, IoSlice, Read, Write},
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Waker,
    time::Duration,
};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustls::{
    CipherSuite, CommonState, HandshakeKind, ProtocolVersion, ServerConfig, ServerConnection,
    server::{Accepted, AcceptedAlert},
    sign::CertifiedKey,
};

use crate::{
    Server,
    demand::Verdict,
    hello::{self, Hello},
    server::{Chosen, Fit, HTTP2, HTTP3, host_of, with_certificate},
    signing::{self, Step},
    x509::Parsed,
};

/// The TLS of a connection.
pub struct Session {
    server: Arc<Server>,
    state: State,
    listener: u16,
    /// The address that the client connected to.
    local: Option<IpAddr>,
    /// Received bytes that wait until there is room for their content.
    pending: Vec<u8>,
    /// Plain bytes that are encrypted and not yet sent whole ([`Session::write`]).
    unsent: usize,
    /// The client has said that it sends nothing more.
    has_ended: bool,
    /// The certificate, until the handshake is over.
    certificate: Option<Arc<CertifiedKey>>,
    authority: Option<usize>,
    /// Bytes that came before the handshake was over.
    handshake_bytes: usize,
    info: Option<Arc<Info>>,
}

#[allow(
    clippy::large_enum_variant,
    reason = "a session is in one box, and nearly always open"
)]
enum State {
    New,
    Hello(Hello),
    /// There is no certificate yet.
    Waiting(Box<Waiting>),
    /// The step that needs a signature is done on another thread.
    Signing(Step<Signed>),
    Open(ServerConnection),
    /// The client does not speak TLS: what is written is sent as it is.
    Plain,
    /// The handshake failed: these bytes are still to be sent.
    Failed(Vec<u8>),
}

/// The result of a step that needs a signature.
enum Signed {
    /// The one for a ClientHello.
    Accepted(Result<Box<ServerConnection>, (rustls::Error, AcceptedAlert)>),
    /// The one for a second ClientHello (RFC 8446 §4.1.4).
    Again(Box<ServerConnection>, Result<(), rustls::Error>),
}

impl Signed {
    /// The step for a ClientHello.
    fn accept(
        accepted: Accepted,
        config: Arc<ServerConfig>,
        certificate: &Option<Arc<CertifiedKey>>,
    ) -> Signed {
        let connection = with_certificate(certificate, || accepted.into_connection(config));
        Signed::Accepted(connection.map(Box::new))
    }
}

/// A handshake that waits for a certificate on demand.
struct Waiting {
    /// The whole ClientHello; taken when the handshake continues.
    accepted: Option<Accepted>,
    /// The name that it asks for.
    name: Box<str>,
    /// Its number there.
    number: u64,
    server: Arc<Server>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(demand) = &self.server.demand {
            demand.forget(&self.name, self.number);
        }
    }
}

/// What is known of a connection after its handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// As OpenSSL and Apache name it: `TLSv1.3`.
    pub protocol: &'static str,
    /// As OpenSSL names it.
    pub cipher: &'static str,
    /// The name that the client asked for, in lower case.
    pub server_name: Option<Box<str>>,
    /// The client speaks HTTP/2 (ALPN).
    pub http2: bool,
    /// It speaks HTTP/3, over QUIC.
    pub http3: bool,
    /// The client had a ticket.
    pub resumed: bool,
    /// How it was asked for a certificate ([`crate::Choice::authority`]).
    pub authority: Option<usize>,
    /// Its certificate, which was verified.
    pub client: Option<Box<ClientCertificate>>,
}

/// The certificate of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// `CN=Anna,O=Example` (RFC 4514).
    pub subject: String,
    pub issuer: String,
    /// Hexadecimal digits.
    pub serial: String,
    /// SHA-1 of the certificate as hexadecimal digits, as nginx has it.
    pub fingerprint: String,
}

/// Why a connection must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// The client sent HTTP without TLS.
    PlainHttp,
    /// No certificate is for this name, and the listener has no default.
    UnknownName(Option<String>),
    /// Anything else.
    Tls(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::PlainHttp => f.write_str("the client sent HTTP without TLS"),
            Broken::UnknownName(None) => {
                f.write_str("the client names no host, and there is no `default_certificate`")
            }
            Broken::UnknownName(Some(name)) => write!(
                f,
                "no certificate is for {:?}, and there is no `default_certificate`",
                name.chars().take(100).collect::<String>()
            ),
            Broken::Tls(error) => f.write_str(error),
        }
    }
}

impl Session {
    /// For a connection on a listener. `local`: the address that the client connected to.
    pub fn new(server: Arc<Server>, listener: u16, local: Option<IpAddr>) -> Session {
        Session {
            server,
            state: State::New,
            listener,
            local,
            pending: Vec::new(),
            unsent: 0,
            has_ended: false,
            certificate: None,
            authority: None,
            handshake_bytes: 0,
            info: None,
        }
    }

    /// Takes `bytes` that came, and puts the plain bytes that are there into `out`. Returns how many; 0: nothing yet, or
    /// the end ([`Session::has_ended`]). Call it with no bytes to get what earlier ones had. With no space,
    /// it goes no further than the handshake.
    ///
    /// # Errors
    /// If the connection must end. The bytes of [`Session::send`] must be sent even then.
    pub fn receive(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<usize, Broken> {
        let joined;
        let mut rest = bytes;
        if !self.pending.is_empty() {
            let mut all = std::mem::take(&mut self.pending);
            all.extend_from_slice(bytes);
            joined = all;
            rest = &joined;
        }
        let mut filled = 0;
        loop {
            filled += self.plain(&mut out[filled..]);
            let is_full = match out.is_empty() {
                true => self.info.is_some(),
                false => filled == out.len(),
            };
            if is_full || rest.is_empty() || self.has_ended || self.is_paused() {
                break;
            }
            let before = rest.len();
            let was_new = matches!(self.state, State::New);
            let processed =
                self.process(&mut rest)
                    .and_then(|()| match rest.len() < before || was_new {
                        true => Ok(()),
                        // rustls stops reading if the bytes cannot be TLS.
                        false => Err(Broken::Tls(
                            "the client sent something that is not TLS".into(),
                        )),
                    });
            if let Err(broken) = processed {
                if !matches!(self.state, State::Plain | State::Failed(_)) {
                    self.fail(Vec::new());
                }
                return Err(broken);
            }
            self.limit_handshake(before - rest.len())?;
        }
        if !rest.is_empty() && !self.has_ended {
            self.pending = rest.to_vec();
        }
        if self.is_paused() && self.pending.len() > MOST_BYTES {
            self.fail(Vec::new());
            return Err(Broken::Tls(
                "the client sent more bytes than a TLS handshake may have".into(),
            ));
        }
        Ok(filled)
    }

    /// Counts bytes of the handshake: a message that does not end would hold memory until the deadline.
    fn limit_handshake(&mut self, bytes: usize) -> Result<(), Broken> {
        if self.info.is_some() {
            return Ok(());
        }
        self.handshake_bytes += bytes;
        let most = match self.authority {
            None => MOST_BYTES,
            Some(_) => MOST_WITH_CERTIFICATE,
        };
        if self.handshake_bytes <= most {
            return Ok(());
        }
        let alert = match self.state {
            State::Hello(_) => ILLEGAL_PARAMETER.to_vec(),
            // It would have to be encrypted.
            _ => Vec::new(),
        };
        self.fail(alert);
        Err(Broken::Tls(
            "the client sent more bytes than a TLS handshake may have".into(),
        ))
    }

    /// Plain bytes that rustls has.
    fn plain(&mut self, out: &mut [u8]) -> usize {
        let State::Open(connection) = &mut self.state else {
            return 0;
        };
        if out.is_empty() {
            return 0;
        }
        match connection.reader().read(out) {
            Ok(0) => {
                self.has_ended = true;
                0
            }
            Ok(count) => count,
            // No bytes are there. If the connection ended without TLS's own message, the socket tells.
            Err(_) => 0,
        }
    }

    /// Processes a part of the bytes.
    fn process(&mut self, bytes: &mut &[u8]) -> Result<(), Broken> {
        match &mut self.state {
            State::New => {
                // A method of HTTP begins with a letter; a record of TLS never does.
                if bytes.first().is_some_and(u8::is_ascii_uppercase) {
                    self.state = State::Plain;
                    return Err(Broken::PlainHttp);
                }
                self.state = State::Hello(Hello::new(self.server.signers.is_used()));
                Ok(())
            }
            State::Hello(hello) => {
                hello
                    .read(bytes)
                    .map_err(|error| Broken::Tls(error.to_string()))?;
                match hello.accept() {
                    Ok(None) => Ok(()),
                    Ok(Some(accepted)) => {
                        let bytes = hello.take_bytes();
                        self.accept(accepted, &bytes)
                    }
                    Err((error, alert)) => Err(self.fail_with(&error, alert)),
                }
            }
            State::Open(connection) => {
                connection
                    .read_tls(bytes)
                    .map_err(|error| Broken::Tls(error.to_string()))?;
                self.go_on()
            }
            State::Waiting(_) | State::Signing(_) => Ok(()),
            State::Plain | State::Failed(_) => Err(Broken::Tls("the handshake has failed".into())),
        }
    }

    /// The ClientHello is whole. `bytes`: its own, if they are kept.
    fn accept(&mut self, accepted: Accepted, bytes: &[u8]) -> Result<(), Broken> {
        let fit = {
            let hello = accepted.client_hello();
            let place = (self.listener, self.local);
            self.server.choose(place, &hello, true)
        };
        if matches!(fit, Fit::Later)
            && let Some(demand) = &self.server.demand
        {
            let hello = accepted.client_hello();
            let name = hello.server_name().map(host_of).unwrap_or_default();
            self.state = State::Waiting(Box::new(Waiting {
                name: name.into(),
                accepted: Some(accepted),
                number: demand.number(),
                server: self.server.clone(),
            }));
            return Ok(());
        }
        self.go_on_with(accepted, bytes, fit)
    }

    /// The ClientHello is whole, and it is known which certificate is for it.
    fn go_on_with(&mut self, accepted: Accepted, bytes: &[u8], fit: Fit) -> Result<(), Broken> {
        let Fit::Chosen(chosen) = fit else {
            let hello = accepted.client_hello();
            let name = hello.server_name().map(str::to_owned);
            self.fail(UNRECOGNIZED_NAME.to_vec());
            return Err(Broken::UnknownName(name));
        };
        let Chosen {
            config,
            certificate,
            authority,
        } = chosen;
        self.authority = authority;
        self.certificate = Some(certificate);
        let certificate = self.certificate.clone();
        let step = |accepted| Signed::accept(accepted, config.clone(), &certificate);
        let signers = &self.server.signers;
        if !signers.is_used() {
            let signed = step(accepted);
            return self.signed(signed);
        }
        let mut accepted = accepted;
        if hello::has_ticket(bytes) {
            let (signed, has_asked) = signing::without_signatures(|| step(accepted));
            if !has_asked {
                return self.signed(signed);
            }
            // Its ticket was not taken.
            accepted = hello::again(bytes)
                .ok_or_else(|| Broken::Tls("the first message cannot be read again".into()))?;
        }
        let step = move || Signed::accept(accepted, config, &certificate);
        self.state = State::Signing(signers.threads.run(step));
        Ok(())
    }

    /// Goes on after a step that needed a signature.
    fn signed(&mut self, signed: Signed) -> Result<(), Broken> {
        match signed {
            Signed::Accepted(Ok(connection)) => {
                self.state = State::Open(*connection);
                // The bytes after the ClientHello.
                self.go_on()
            }
            Signed::Accepted(Err((error, alert))) => Err(self.fail_with(&error, alert)),
            Signed::Again(connection, processed) => {
                self.state = State::Open(*connection);
                self.processed(processed)
            }
        }
    }

    /// Whether the handshake waits for something other than the client: [`resume`](Self::resume) looks for it.
    pub fn is_paused(&self) -> bool {
        matches!(self.state, State::Waiting(_) | State::Signing(_))
    }

    /// Goes on with a handshake that is paused, if it can. Returns false if it cannot: `waker` is woken when this may have changed.
    ///
    /// # Errors
    /// If the connection must end.
    pub fn resume(&mut self, waker: &Waker) -> Result<bool, Broken> {
        if matches!(self.state, State::Waiting(_)) && !self.look_for_certificate(waker)? {
            return Ok(false);
        }
        // With the certificate comes a signature, and another one with a second ClientHello: `waker` must know of each.
        while let State::Signing(step) = &self.state {
            match step.take(waker) {
                Some(signed) => self.signed(signed)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// How long the handshake may wait for a certificate; `None`: it does not wait for one.
    pub fn waits(&self) -> Option<Duration> {
        match self.state {
            State::Waiting(_) => self.server.demand.as_ref().map(|demand| demand.limit),
            _ => None,
        }
    }

    /// Gives up a handshake that waits for a certificate. What [`Session::send`] has is to be sent then.
    pub fn refuse(&mut self) {
        if matches!(self.state, State::Waiting(_)) {
            self.fail(UNRECOGNIZED_NAME.to_vec());
        }
    }

    /// Goes on with a handshake that waits for a certificate, if there is one now. Returns false if there is none: `waker` is
    /// woken when this may have changed.
    ///
    /// # Errors
    /// If there will be none.
    fn look_for_certificate(&mut self, waker: &Waker) -> Result<bool, Broken> {
        let State::Waiting(waiting) = &mut self.state else {
            return Ok(true);
        };
        let verdict = match &self.server.demand {
            Some(demand) => demand.ask(&waiting.name, waiting.number, waker),
            None => Verdict::Refused,
        };
        let Some(accepted) = waiting.accepted.take() else {
            return Ok(false);
        };
        let place = (self.listener, self.local);
        let waits = verdict == Verdict::Wait;
        let fit = self.server.choose(place, &accepted.client_hello(), waits);
        if matches!(fit, Fit::Later) {
            waiting.accepted = Some(accepted);
            return Ok(false);
        }
        self.go_on_with(accepted, &[], fit).map(|()| true)
    }

    /// Processes what rustls has read.
    fn go_on(&mut self) -> Result<(), Broken> {
        let State::Open(connection) = &mut self.state else {
            return Ok(());
        };
        let processed = match self.certificate {
            // Only handshakes need a certificate.
            None => connection.process_new_packets(),
            // The answer to a second ClientHello needs a signature.
            Some(_) if is_asked_again(connection) && self.server.signers.is_used() => {
                return self.go_on_elsewhere();
            }
            Some(_) => with_certificate(&self.certificate, || connection.process_new_packets()),
        };
        self.processed(processed.map(drop))
    }

    /// As [`go_on`](Self::go_on), on another thread.
    fn go_on_elsewhere(&mut self) -> Result<(), Broken> {
        let State::Open(connection) = std::mem::replace(&mut self.state, State::New) else {
            return Ok(());
        };
        let (mut connection, certificate) = (Box::new(connection), self.certificate.clone());
        let step = self.server.signers.threads.run(move || {
            let processed = with_certificate(&certificate, || connection.process_new_packets());
            Signed::Again(connection, processed.map(drop))
        });
        self.state = State::Signing(step);
        Ok(())
    }

    /// rustls has processed all its bytes.
    fn processed(&mut self, processed: Result<(), rustls::Error>) -> Result<(), Broken> {
        let State::Open(connection) = &mut self.state else {
            return Ok(());
        };
        if let Err(error) = processed {
            let mut alert = Vec::new();
            while connection.wants_write() && connection.write_tls(&mut alert).is_ok() {}
            self.fail(alert);
            return Err(Broken::Tls(error.to_string()));
        }
        if self.info.is_none() && !connection.is_handshaking() {
            let info = Info::of(connection, connection.server_name(), self.authority);
            let counts = &self.server.counts;
            let count = match info.resumed {
                true => &counts.resumed,
                false => &counts.full,
            };
            count.fetch_add(1, Relaxed);
            self.info = Some(Arc::new(info));
            self.certificate = None;
        }
        Ok(())
    }

    fn fail_with(&mut self, error: &rustls::Error, mut alert: AcceptedAlert) -> Broken {
        let mut bytes = Vec::new();
        // Writing to memory does not fail.
        let _ = alert.write_all(&mut bytes);
        self.fail(bytes);
        Broken::Tls(error.to_string())
    }

    /// The connection ends after these bytes.
    fn fail(&mut self, alert: Vec<u8>) {
        if self.info.is_none() {
            self.server.counts.failed.fetch_add(1, Relaxed);
        }
        self.state = State::Failed(alert);
    }

    /// What is known of the connection; `None` before the end of the handshake.
    pub fn info(&self) -> Option<&Arc<Info>> {
        self.info.as_ref()
    }

    /// Whether the client has said that it sends nothing more.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether bytes are sent and received as they are: the client does not speak TLS.
    pub fn is_plain(&self) -> bool {
        matches!(self.state, State::Plain)
    }

    /// Encrypts plain bytes. Returns how many it took: as many as fit into 64 KiB. They are to be sent next.
    ///
    /// # Errors
    /// `NotConnected`: the handshake is not over, or has failed.
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.state {
            State::Open(connection) if self.info.is_some() => {
                let count = connection.writer().write_vectored(slices)?;
                self.unsent += count;
                Ok(count)
            }
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// How many plain bytes were encrypted since this was asked last. Ask when [`Session::wants_to_send`] is false: they
    /// are then with the kernel.
    pub fn take_sent(&mut self) -> usize {
        std::mem::take(&mut self.unsent)
    }

    /// Whether plain bytes were encrypted that were not asked for with [`Session::take_sent`].
    pub fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Whether there are bytes for the client.
    pub fn wants_to_send(&self) -> bool {
        match &self.state {
            State::Open(connection) => connection.wants_write(),
            State::Failed(alert) => !alert.is_empty(),
            _ => false,
        }
    }

    /// Gives bytes for the client to `socket`, as many as one call takes.
    ///
    /// # Errors
    /// Those of `socket`.
    pub fn send(&mut self, socket: &mut dyn Write) -> io::Result<usize> {
        match &mut self.state {
            State::Open(connection) => connection.write_tls(socket),
            State::Failed(alert) => {
                let count = socket.write(alert)?;
                alert.drain(..count);
                Ok(count)
            }
            _ => Ok(0),
        }
    }

    /// Writes the alert that tells the client that nothing more comes (RFC 8446 §6.1). The caller must send it.
    pub fn end(&mut self) {
        if let State::Open(connection) = &mut self.state {
            connection.send_close_notify();
        }
    }

    /// Gives up the space of buffers: nothing comes for a while.
    pub fn shrink(&mut self) {
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
        if let State::Open(connection) = &mut self.state {
            // rustls cuts its buffer when it is about to read.
            let _ = connection.read_tls(&mut NothingYet);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if matches!(
            self.state,
            State::Hello(_) | State::Signing(_) | State::Open(_)
        ) {
            self.fail(Vec::new());
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

/// Whether the client was asked for another first message, and the handshake is not over.
fn is_asked_again(connection: &ServerConnection) -> bool {
    connection.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest)
}

/// A reader that has nothing.
struct NothingYet;

impl Read for NothingYet {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Info {
    /// `name`: what the client asked for.
    pub(crate) fn of(
        connection: &CommonState,
        name: Option<&str>,
        authority: Option<usize>,
    ) -> Info {
        let client = connection.peer_certificates().and_then(<[_]>::first);
        let suite = connection
            .negotiated_cipher_suite()
            .map(|suite| suite.suite());
        Info {
            protocol: match connection.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher: suite.map_or("", cipher),
            server_name: name.map(|name| host_of(name).into()),
            http2: connection.alpn_protocol() == Some(HTTP2),
            http3: connection.alpn_protocol() == Some(HTTP3),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            authority,
            client: client
                .and_then(|der| ClientCertificate::of(der))
                .map(Box::new),
        }
    }
}

impl ClientCertificate {
    fn of(der: &[u8]) -> Option<ClientCertificate> {
        let parsed = Parsed::read(der).ok()?;
        let fingerprint = digest(&SHA1_FOR_LEGACY_USE_ONLY, der);
        let digits = fingerprint
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"));
        Some(ClientCertificate {
            subject: parsed.subject(),
            issuer: parsed.issuer(),
            serial: parsed.serial_text(),
            fingerprint: digits.collect(),
        })
    }
}

/// OpenSSL's name of a cipher, which servers log.
fn cipher(suite: CipherSuite) -> &'static str {
    use CipherSuite as Suite;
    match suite {
        Suite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        Suite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        Suite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-ECDSA-CHACHA20-POLY1305",
        Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => "",
    }
}

/// The alert unrecognized_name, fatal, as a record (RFC 6066 §3, RFC 8446 §6.2).
const UNRECOGNIZED_NAME: &[u8] = &[21, 3, 3, 0, 2, 2, 112];
/// The alert illegal_parameter, fatal, as a record (RFC 8446 §6.2).
const ILLEGAL_PARAMETER: &[u8] = &[21, 3, 3, 0, 2, 2, 47];
/// What a client may send before its handshake is over, bytes: a first message of 16 KB, as BoringSSL allows, and the rest.
pub(crate) const MOST_BYTES: usize = 24 * 1024;
/// The same if it is asked for a certificate.
const MOST_WITH_CERTIFICATE: usize = 128 * 1024;
