//! TLS to origins.
//!
//! A [`TlsContext`] has the trusted authorities and the client certificate of a connection. Origins with the same TLS
//! settings share one, and with it their resumable sessions. The requested name, which the certificate must have, is
//! the name from the caller, never one from DNS.

mod files;
mod unverified;

use std::{io, path::PathBuf, sync::Arc};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, AlertDescription, CertificateError, ClientConfig, HandshakeKind, RootCertStore,
        client::Resumption,
        crypto::{CryptoProvider, aws_lc_rs},
        pki_types::{CertificateDer, ServerName, UnixTime},
    },
};
use weir_config::{Egress, HostSettings, Scheme};
use weir_control::EgressFiles;

use super::{
    fault::{Fault, Kind},
    origin::Origin,
};

/// The contexts of all tables.
pub struct TlsContexts {
    made: Vec<(ContextSettings, Arc<TlsContext>)>,
}

/// The TLS settings for some origins.
pub struct TlsContext {
    connector: TlsConnector,
}

/// The settings by which contexts differ.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ContextSettings {
    ca_file: Option<PathBuf>,
    client_cert: Option<(PathBuf, PathBuf)>,
    verify: bool,
    http2: bool,
}

impl TlsContexts {
    /// Makes the contexts for the tables of the configuration.
    ///
    /// # Errors
    /// A certificate or key that cannot be used, with its place and the fix.
    pub fn new(egress: &Egress, files: &EgressFiles) -> Result<TlsContexts, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut system = RootCertStore::empty();
        let roots = files.roots.iter();
        system.add_parsable_certificates(roots.map(|root| CertificateDer::from(root.as_slice())));
        let mut contexts = TlsContexts { made: Vec::new() };
        let tables = egress.hosts.iter().map(|host| {
            let place = format!("[egress.host.{}]", host.name);
            (place, &host.settings)
        });
        let defaults = std::iter::once(("[egress]".to_owned(), &egress.defaults));
        for (place, settings) in defaults.chain(tables) {
            if !settings.verify {
                log::warn!(
                    "{place} verify = false: anybody on the network path to these hosts can read and change \
                     the calls; use ca_file to trust your own certificate authority"
                );
            }
            let wanted = ContextSettings::of(settings);
            if contexts.find(&wanted).is_none() {
                let config = config(&wanted, &provider, &system, files)
                    .map_err(|message| format!("{place} {message}"))?;
                let connector = TlsConnector::from(Arc::new(config));
                contexts
                    .made
                    .push((wanted, Arc::new(TlsContext { connector })));
            }
        }
        Ok(contexts)
    }

    /// The context for an origin with these settings; `None` for http.
    ///
    /// # Errors
    /// If the settings belong to no table.
    pub fn of(
        &self,
        origin: &Origin,
        settings: &HostSettings,
    ) -> Result<Option<Arc<TlsContext>>, String> {
        if origin.scheme == Scheme::Http {
            return Ok(None);
        }
        match self.find(&ContextSettings::of(settings)) {
            Some(context) => Ok(Some(context.clone())),
            None => Err("internal error: no certificates for its settings".into()),
        }
    }

    fn find(&self, wanted: &ContextSettings) -> Option<&Arc<TlsContext>> {
        let found = self.made.iter().find(|(made, _)| made == wanted);
        found.map(|(_, context)| context)
    }
}

impl ContextSettings {
    fn of(settings: &HostSettings) -> ContextSettings {
        ContextSettings {
            ca_file: settings.ca_file.clone(),
            client_cert: settings.client_cert.clone(),
            verify: settings.verify,
            http2: settings.http2,
        }
    }
}

/// A connection with TLS.
pub struct Secured {
    pub stream: TlsStream<TcpStream>,
    /// Both sides have negotiated HTTP/2.
    pub http2: bool,
    /// Whether the session was resumed.
    pub resumed: bool,
}

impl TlsContext {
    /// Does the TLS handshake with an origin. It has no time limit.
    ///
    /// # Errors
    /// Those of [`fault`].
    pub async fn handshake(&self, origin: &Origin, stream: TcpStream) -> Result<Secured, Fault> {
        let name = ServerName::try_from(origin.host.clone()).map_err(|_| {
            let message = format!(
                "{origin}: {:?} is not a valid name for a certificate; call the host by a name of letters, digits and hyphens",
                origin.host
            );
            Fault::unsent(Kind::TlsError, message)
        })?;
        let stream = self.connector.connect(name, stream).await;
        let stream = stream.map_err(|error| {
            fault(origin, &error).unwrap_or_else(|| {
                let message = format!(
                    "{origin}: the connection was closed during the TLS handshake: {error}; if this \
                     port does not use TLS, allow it as http://"
                );
                Fault::unsent(Kind::Terminated, message)
            })
        })?;
        let session = stream.get_ref().1;
        let http2 = session.alpn_protocol() == Some(HTTP2);
        let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
        Ok(Secured {
            stream,
            http2,
            resumed,
        })
    }
}

/// The fault for an error of TLS, also for one that comes later: an origin reports a missing or refused client
/// certificate with the first bytes that weir reads (RFC 8446 §4.4.2.4).
pub fn fault(origin: &Origin, error: &(dyn std::error::Error + 'static)) -> Option<Fault> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(explain(origin, error));
        }
        // An I/O error does not return its inner error from `source`, but here.
        let inner = error.downcast_ref::<io::Error>();
        next = match inner.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    None
}

fn explain(origin: &Origin, error: &rustls::Error) -> Fault {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage, PeerIncompatible};
    let (kind, what, mend) = match error {
        InvalidCertificate(error) => {
            let (what, mend) = wrong(error);
            (
                Kind::CertificateError,
                format!("its certificate {what}"),
                mend,
            )
        }
        rustls::Error::NoCertificatesPresented => (
            Kind::CertificateError,
            "it sends no certificate".to_owned(),
            "its operator must fix this",
        ),
        AlertReceived(alert) if speaks_of_certificate(*alert) => (
            Kind::TlsError,
            format!("it does not accept weir's client certificate ({alert:?})"),
            "set client_cert and client_key in [egress.host.NAME], and check that the \
             certificate is valid",
        ),
        AlertReceived(AlertDescription::UnrecognisedName) => (
            Kind::TlsError,
            "it does not know that name".to_owned(),
            "use one of its names",
        ),
        AlertReceived(AlertDescription::NoApplicationProtocol) => (
            Kind::TlsError,
            "it supports neither HTTP/1.1 nor (with http2) HTTP/2".to_owned(),
            "check that this is the right port",
        ),
        AlertReceived(AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion)
        | PeerIncompatible(_) => (
            Kind::TlsError,
            format!("weir and this host have no TLS version or cipher in common ({error})"),
            "it must support TLS 1.2 or 1.3 with a current cipher",
        ),
        InvalidMessage(_) => (
            Kind::TlsError,
            format!("its answer is not TLS ({error})"),
            "if this port is plain HTTP, allow it as http://",
        ),
        _ => (
            Kind::TlsError,
            error.to_string(),
            "test the connection with openssl s_client -connect",
        ),
    };
    Fault::unsent(kind, format!("{origin}: {what}; {mend}"))
}

/// What is wrong with a certificate, and how to fix it. Names in it come from the origin.
fn wrong(error: &CertificateError) -> (String, &'static str) {
    match error {
        CertificateError::Expired => ("has expired".to_owned(), EXPIRED),
        CertificateError::ExpiredContext { not_after, .. } => {
            (format!("has expired on {}", date(*not_after)), EXPIRED)
        }
        CertificateError::NotValidYet => ("is not valid yet".to_owned(), CLOCK),
        CertificateError::NotValidYetContext { not_before, .. } => {
            (format!("is not valid before {}", date(*not_before)), CLOCK)
        }
        CertificateError::UnknownIssuer => (
            "is not signed by an authority that this machine trusts".to_owned(),
            "if it is your own authority, set ca_file in [egress.host.NAME] to its certificate; \
             if other clients have the same problem, the server does not send its intermediate certificates",
        ),
        CertificateError::BadSignature => (
            "has a wrong signature: it was not signed by the authority in it".to_owned(),
            "if the authority has a new key, set ca_file to its new certificate; otherwise this may be a forged server",
        ),
        CertificateError::NotValidForName => ("is for another name".to_owned(), OTHER_NAME),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let shown = presented.iter().take(MOST_NAMES);
            let shown: Vec<String> = shown.map(|name| printable(bare(name))).collect();
            let more = match presented.len().saturating_sub(MOST_NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let names = match shown.is_empty() {
                true => "no name".to_owned(),
                false => format!("{}{more}", shown.join(", ")),
            };
            (format!("is for {names}"), OTHER_NAME)
        }
        CertificateError::Revoked => (
            "was revoked".to_owned(),
            "its operator must get a new one; do not send secrets there before that",
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => (
            "is not valid for servers".to_owned(),
            "its operator must get another one",
        ),
        CertificateError::BadEncoding => (
            "cannot be read".to_owned(),
            "its operator must get another one",
        ),
        // webpki has no variant of its own for this in rustls's error.
        other if other.to_string().contains("CaUsedAsEndEntity") => (
            "is that of an authority (CA:TRUE), which a server cannot use".to_owned(),
            "openssl req -x509 makes such certificates unless it is told -addext basicConstraints=critical,CA:FALSE: make another one, \
             and set ca_file in [egress.host.NAME] to it",
        ),
        other => (
            format!("is not accepted ({})", printable(&other.to_string())),
            "its operator must get another one; for your own certificates, sign them with a \
             separate authority certificate, and set ca_file to that",
        ),
    }
}

/// Alerts of a server that wants a client certificate, or another one (RFC 8446 §6.2).
fn speaks_of_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}

fn config(
    wanted: &ContextSettings,
    provider: &Arc<CryptoProvider>,
    system: &RootCertStore,
    files: &EgressFiles,
) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS is not available: {error}"))?;
    let builder = match wanted.verify {
        true => builder.with_root_certificates(trusted(wanted, system, files)?),
        false => {
            let anyone = unverified::Unverified::new(provider.clone());
            let builder = builder.dangerous();
            builder.with_custom_certificate_verifier(Arc::new(anyone))
        }
    };
    let mut config = match &wanted.client_cert {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain =
                files::certificates(files, cert).map_err(|what| format!("client_cert: {what}"))?;
            let key_shown = key.display();
            let key = files::key(files, key).map_err(|what| format!("client_key: {what}"))?;
            let built = builder.with_client_auth_cert(chain, key);
            built.map_err(|error| {
                format!(
                    "client_cert: {} and {key_shown} do not match or cannot be used: {error}; \
                     give a certificate and its own key",
                    cert.display()
                )
            })?
        }
    };
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    config.alpn_protocols = match wanted.http2 {
        true => vec![HTTP2.to_vec(), HTTP1.to_vec()],
        false => vec![HTTP1.to_vec()],
    };
    Ok(config)
}

/// The system's authorities and those of `ca_file`.
fn trusted(
    wanted: &ContextSettings,
    system: &RootCertStore,
    files: &EgressFiles,
) -> Result<RootCertStore, String> {
    let mut trusted = system.clone();
    if let Some(path) = &wanted.ca_file {
        let certificates =
            files::certificates(files, path).map_err(|what| format!("ca_file: {what}"))?;
        for certificate in certificates {
            trusted.add(certificate).map_err(|error| {
                format!(
                    "ca_file: {}: one of its certificates cannot be trusted: {error}; the file may only \
                     contain certificates of authorities",
                    path.display()
                )
            })?;
        }
    }
    Ok(trusted)
}

fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).ok();
    let stamp = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    stamp.map_or_else(|| "an invalid date".to_owned(), |stamp| stamp.to_string())
}

/// A name of a certificate without the type that rustls-webpki prints around it.
fn bare(name: &str) -> &str {
    let kinds = [("DnsName(\"", "\")"), ("IpAddress(", ")")];
    let inner = |(before, after)| name.strip_prefix(before)?.strip_suffix(after);
    kinds.into_iter().find_map(inner).unwrap_or(name)
}

/// Text from the origin, made safe for the log.
fn printable(text: &str) -> String {
    let text: String = text.chars().take(MOST_TEXT).collect();
    text.escape_debug().to_string()
}

const EXPIRED: &str =
    "its operator must renew it; if it should be valid, check this machine's clock";
const CLOCK: &str = "check this machine's clock";
const OTHER_NAME: &str = "call it by a name in its certificate";

/// ALPN names of protocols (RFC 7301, RFC 9113 §3.1).
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// For how many servers a context remembers sessions; for each up to 8 of TLS 1.3, some kilobytes in total.
const SESSIONS: usize = 256;

/// How many names of a certificate are shown.
const MOST_NAMES: usize = 5;

/// How many characters of the origin's text are shown.
const MOST_TEXT: usize = 100;

#[cfg(test)]
mod tests;
