//! What all connections of a gateway share, and the choice that a handshake makes.
//!
//! A client names a host (SNI, RFC 6066 §3). The name leads to a site. The site may name a certificate and request one
//! of the client; otherwise the certificate is found by the name. rustls decides about client certificates in its
//! `ServerConfig`, so there is one `ServerConfig` for each kind of request.

use std::{
    cell::RefCell,
    fmt,
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use aws_lc_rs::digest::{Context, SHA256};
use rustls::{
    CipherSuite, RootCertStore, ServerConfig, SupportedProtocolVersion,
    crypto::CryptoProvider,
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
        danger::ClientCertVerifier,
    },
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};

use crate::{
    Challenges, Demand, Entry, Signers, Table, TicketKeys, challenges::PROOF, provider,
    tickets::Ticketer,
};

/// What all connections share.
pub struct Server {
    /// For sites that ask for no certificate.
    usual: Offers,
    /// For the others, by [`Choice::authority`].
    asking: Vec<Offers>,
    table: RwLock<Arc<Table>>,
    sites: Box<dyn Sites>,
    listeners: Vec<Listener>,
    /// The keys of tickets.
    pub tickets: Arc<TicketKeys>,
    /// The keeper.
    pub signers: Arc<Signers>,
    /// What proves to authorities that names lead here.
    pub challenges: Challenges,
    proving: Arc<ServerConfig>,
    /// Handshakes that wait for a certificate. `None`: none is got on demand.
    pub demand: Option<Demand>,
    /// Handshakes so far.
    pub counts: Counts,
}

/// The settings of a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Listener {
    /// The certificate for clients without a known name.
    pub default: Option<usize>,
    /// Clients may choose HTTP/2 by ALPN (RFC 7301).
    pub http2: bool,
}

/// The same settings: for clients that prefer AES, and for those that prefer ChaCha20; each by [`Carrying`].
type Offers = [[Arc<ServerConfig>; 3]; 2];

/// What a connection may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrying {
    /// HTTP/1.
    Http1,
    /// HTTP/2 or HTTP/1.
    Http2,
    /// HTTP/3, over QUIC.
    Http3,
}

/// What the sites say of a name.
pub trait Sites: Send + Sync {
    /// What the site says that has the name `host` on this listener. `None`: the client says no name.
    fn choice(&self, listener: u16, host: Option<&str>) -> Choice;
}

/// What a site says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Choice {
    /// Its certificate, an index into the configuration's. `None`: any that has the name.
    pub certificate: Option<usize>,
    /// How clients are asked for a certificate: an index into the authorities that [`Server::new`] got. `None`: they are
    /// not.
    pub authority: Option<usize>,
    /// If no certificate has the name, one is got for it.
    pub on_demand: bool,
}

/// A way of asking clients for a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuthority {
    /// The authorities (DER).
    pub certificates: Vec<Vec<u8>>,
    /// A client without one is served too.
    pub optional: bool,
}

/// Handshakes since the start.
#[derive(Debug, Default)]
pub struct Counts {
    pub full: AtomicU64,
    pub resumed: AtomicU64,
    pub failed: AtomicU64,
}

impl Counts {
    /// Full, resumed, failed.
    pub fn get(&self) -> [u64; 3] {
        [&self.full, &self.resumed, &self.failed].map(|count| count.load(Relaxed))
    }
}

/// Whether a handshake can continue.
pub(crate) enum Fit {
    Chosen(Chosen),
    /// It may wait: a certificate is got on demand.
    Later,
    /// No certificate fits.
    None,
}

/// The settings with which a handshake continues.
pub(crate) struct Chosen {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) certificate: Arc<CertifiedKey>,
    pub(crate) authority: Option<usize>,
}

impl ClientAuthority {
    /// Reads the text of a `client_ca` file.
    ///
    /// # Errors
    /// What is wrong with it, without the name of the file.
    pub fn read(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let certificates: Result<Vec<CertificateDer<'_>>, _> =
            CertificateDer::pem_slice_iter(text).collect();
        let certificates = certificates.map_err(|error| format!("it is not PEM text ({error})"))?;
        if certificates.is_empty() {
            return Err(
                "it has no certificate; it must have a line -----BEGIN CERTIFICATE-----".into(),
            );
        }
        for (index, one) in certificates.iter().enumerate() {
            let mut roots = RootCertStore::empty();
            roots.add(one.clone()).map_err(|error| {
                format!("its certificate number {} cannot be trusted ({error}); name those of authorities", index + 1)
            })?;
        }
        Ok(certificates.iter().map(|one| one.to_vec()).collect())
    }
}

impl Server {
    /// Without certificates and keys of tickets, which come later.
    ///
    /// # Errors
    /// If an authority cannot be used.
    pub fn new(
        only_tls13: bool,
        authorities: &[ClientAuthority],
        listeners: Vec<Listener>,
        sites: Box<dyn Sites>,
        signers: Arc<Signers>,
    ) -> Result<Server, String> {
        let tickets = Arc::new(TicketKeys::default());
        let config = |authority| offers(only_tls13, authority, &tickets);
        let asking: Result<Vec<_>, String> =
            authorities.iter().map(|one| config(Some(one))).collect();
        Ok(Server {
            usual: config(None)?,
            asking: asking?,
            table: RwLock::default(),
            sites,
            listeners,
            tickets,
            signers,
            challenges: Challenges::default(),
            proving: proving()?,
            demand: None,
            counts: Counts::default(),
        })
    }

    /// Puts certificates in force, and those with the indices `gone` out of it. Others stay.
    pub fn change(&self, entries: Vec<Entry>, gone: &[usize]) {
        let next = self.table().with(entries, gone);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        if let Some(demand) = &self.demand {
            demand.wake_all();
        }
    }

    /// The certificates that are in force.
    pub fn table(&self) -> Arc<Table> {
        self.table
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The settings for a handshake on `listener` at the address `local`. `waits`: it may wait for a certificate on demand.
    pub(crate) fn choose(
        &self,
        (listener, local): (u16, Option<IpAddr>),
        hello: &ClientHello<'_>,
        waits: bool,
    ) -> Fit {
        if waits && self.waits(listener, hello) {
            return Fit::Later;
        }
        match self.choose_now(listener, local, hello) {
            Some(chosen) => Fit::Chosen(chosen),
            None => Fit::None,
        }
    }

    /// Whether a handshake has to wait for a certificate on demand.
    pub(crate) fn waits(&self, listener: u16, hello: &ClientHello<'_>) -> bool {
        let name = hello.server_name().map(host_of);
        self.demand.is_some() && self.is_demanded(listener, name, hello)
    }

    /// Whether there is no certificate for the name of a handshake, and one may be got.
    fn is_demanded(&self, listener: u16, name: Option<&str>, hello: &ClientHello<'_>) -> bool {
        let Some(name) = name.filter(|_| !self.challenges.is_asked(hello)) else {
            return false;
        };
        let choice = self.sites.choice(listener, Some(name));
        choice.on_demand
            && choice.certificate.is_none()
            && self.table().find(name, hello.signature_schemes()).is_none()
    }

    fn choose_now(
        &self,
        listener: u16,
        local: Option<IpAddr>,
        hello: &ClientHello<'_>,
    ) -> Option<Chosen> {
        if self.challenges.is_asked(hello) {
            let name = hello.server_name().map(host_of);
            return Some(Chosen {
                config: self.proving.clone(),
                certificate: self.challenges.certificate(name?)?,
                authority: None,
            });
        }
        let carrying = match self.listeners.get(usize::from(listener))?.http2 {
            false => Carrying::Http1,
            true => Carrying::Http2,
        };
        self.choose_for((listener, carrying), local, hello)
    }

    /// As [`Self::choose`], of a connection that may carry this, without proofs for authorities.
    pub(crate) fn choose_for(
        &self,
        (listener, carrying): (u16, Carrying),
        local: Option<IpAddr>,
        hello: &ClientHello<'_>,
    ) -> Option<Chosen> {
        let name = hello.server_name().map(host_of);
        let schemes = hello.signature_schemes();
        let choice = self.sites.choice(listener, name);
        let table = self.table();
        let of_site = choice.certificate.and_then(|index| table.get(index));
        let by_name = || match name {
            Some(name) => table.find(name, schemes),
            // Names of addresses are not sent (RFC 6066 §3).
            None => table.find_address(local?, schemes),
        };
        let listener = self.listeners.get(usize::from(listener))?;
        let default = || table.get(listener.default?);
        let certificate = of_site.or_else(by_name).or_else(default)?;
        let offers = match choice.authority {
            Some(index) => self.asking.get(index)?,
            None => &self.usual,
        };
        Some(Chosen {
            config: offers[usize::from(prefers_chacha20(hello.cipher_suites()))][carrying as usize]
                .clone(),
            certificate,
            authority: choice.authority,
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

/// The host that a client asks for. Some write the dot at its end, which does not belong there (RFC 6066 §3).
pub(crate) fn host_of(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

thread_local! {
    /// The certificate of the handshake that goes on now, for [`OfHandshake`].
    static CHOSEN: RefCell<Option<Arc<CertifiedKey>>> = const { RefCell::new(None) };
}

/// Gives rustls the certificate that was chosen before: it depends on the listener and the site, which rustls does not
/// know.
#[derive(Debug)]
struct OfHandshake;

impl ResolvesServerCert for OfHandshake {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        CHOSEN.with_borrow(Clone::clone)
    }
}

/// Runs a part of a handshake that was to use `certificate`.
pub(crate) fn with_certificate<T>(
    certificate: &Option<Arc<CertifiedKey>>,
    run: impl FnOnce() -> T,
) -> T {
    CHOSEN.with_borrow_mut(|chosen| chosen.clone_from(certificate));
    let result = run();
    CHOSEN.with_borrow_mut(|chosen| *chosen = None);
    result
}

/// For authorities that try a name (RFC 8737).
fn proving() -> Result<Arc<ServerConfig>, String> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| format!("TLS is not available: {error}"))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(OfHandshake));
    config.alpn_protocols = vec![PROOF.to_vec()];
    Ok(Arc::new(config))
}

fn offers(
    only_tls13: bool,
    authority: Option<&ClientAuthority>,
    tickets: &Arc<TicketKeys>,
) -> Result<Offers, String> {
    let versions = match only_tls13 {
        true => &[&TLS13][..],
        false => &[&TLS13, &TLS12][..],
    };
    let of = |chacha20| offers_in_order(versions, (authority, chacha20), tickets);
    Ok([of(false)?, of(true)?])
}

fn offers_in_order(
    versions: &[&'static SupportedProtocolVersion],
    (authority, chacha20): (Option<&ClientAuthority>, bool),
    tickets: &Arc<TicketKeys>,
) -> Result<[Arc<ServerConfig>; 3], String> {
    let builder = ServerConfig::builder_with_provider(ordered(chacha20))
        .with_protocol_versions(versions)
        .map_err(|error| format!("TLS is not available: {error}"))?;
    let builder = match authority {
        None => builder.with_no_client_auth(),
        Some(authority) => builder.with_client_cert_verifier(verifier(authority)?),
    };
    let mut config = builder.with_cert_resolver(Arc::new(OfHandshake));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ignore_client_order = true;
    config.ticketer = Arc::new(Ticketer {
        keys: tickets.clone(),
        binding: binding(authority),
    });
    Ok([&PROTOCOLS[1..], &PROTOCOLS, &[HTTP3]].map(|protocols| {
        let mut config = config.clone();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }))
}

/// The cryptography with its ciphers in the order in which they are chosen: AES-128, AES-256, ChaCha20, as Mozilla's
/// configurations have them. With `chacha20` that comes first.
fn ordered(chacha20: bool) -> Arc<CryptoProvider> {
    let mut ordered = CryptoProvider::clone(&provider());
    ordered
        .cipher_suites
        .sort_by_key(|suite| match suite.suite() {
            suite if is_chacha20(suite) => {
                if chacha20 {
                    0
                } else {
                    3
                }
            }
            CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 1,
            _ => 2,
        });
    Arc::new(ordered)
}

/// Whether the first cipher that a client offers is ChaCha20: it has no instructions for AES, which would cost it more.
fn prefers_chacha20(offered: &[CipherSuite]) -> bool {
    let mut known = offered.iter().filter(|suite| suite.as_str().is_some());
    known.next().is_some_and(|first| is_chacha20(*first))
}

fn is_chacha20(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    )
}

fn verifier(authority: &ClientAuthority) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in &authority.certificates {
        let certificate = CertificateDer::from(certificate.clone());
        roots
            .add(certificate)
            .map_err(|error| format!("client_ca: {error}"))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let builder = match authority.optional {
        true => builder.allow_unauthenticated(),
        false => builder,
    };
    builder
        .build()
        .map_err(|error| format!("client_ca: {error}"))
}

/// What tickets are bound to: how their clients were verified.
fn binding(authority: Option<&ClientAuthority>) -> [u8; 32] {
    let mut digest = Context::new(&SHA256);
    if let Some(authority) = authority {
        digest.update(&[1, u8::from(authority.optional)]);
        for certificate in &authority.certificates {
            digest.update(&(certificate.len() as u64).to_be_bytes());
            digest.update(certificate);
        }
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.finish().as_ref());
    bytes
}

/// What connections speak, by ALPN (RFC 7301), the best first.
const PROTOCOLS: [&[u8]; 3] = [HTTP2, b"http/1.1", b"http/1.0"];

/// HTTP/2 over TLS (RFC 9113 §3.1). What RFC 9113 §9.2 forbids, rustls does not have: it has TLS 1.2 and 1.3 without
/// compression and renegotiation, and only ciphers with ephemeral keys that authenticate what they encrypt.
pub(crate) const HTTP2: &[u8] = b"h2";

/// HTTP/3 (RFC 9114 §3.1).
pub(crate) const HTTP3: &[u8] = b"h3";
