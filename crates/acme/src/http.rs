//! The HTTP client for directories: one connection for each request, always with TLS.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{
    HeaderMap, Request, Response,
    header::{DATE, HOST},
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, version::TLS12, version::TLS13},
};

/// Calls directories.
#[derive(Clone)]
pub(crate) struct Client {
    connector: TlsConnector,
    heard: SharedNotes,
}

/// What an authority has said beside its answers.
pub(crate) type SharedNotes = Arc<Mutex<AuthorityNotes>>;

/// See [`SharedNotes`].
#[derive(Debug, Default)]
pub(crate) struct AuthorityNotes {
    /// The authority's domains for records of dns-persist-01, the preferred domain first.
    pub(crate) issuers: Vec<String>,
    /// When its last answer was made, by its clock (seconds since 1970).
    pub(crate) time: Option<i64>,
}

impl Client {
    /// A client that trusts these certificates (PEM), or what the machine trusts.
    pub(crate) fn new(ca: Option<&str>, heard: &SharedNotes) -> Result<Client, String> {
        let mut roots = RootCertStore::empty();
        match ca {
            Some(text) => {
                for one in CertificateDer::pem_slice_iter(text.as_bytes()) {
                    let one = one.map_err(|error| format!("ca_file is not PEM text: {error}"))?;
                    let added = roots.add(one);
                    added.map_err(|error| format!("ca_file cannot be trusted: {error}"))?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
            }
        }
        if roots.is_empty() {
            return Err("no certificates are trusted; install ca-certificates".into());
        }
        let config = ClientConfig::builder_with_provider(weir_tls::provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Client {
            connector: TlsConnector::from(Arc::new(config)),
            heard: heard.clone(),
        })
    }

    async fn call(self, request: Request<Bytes>) -> Result<BytesResponse, String> {
        let uri = request.uri().clone();
        if uri.scheme_str() != Some("https") {
            return Err(format!("{uri}: a directory must have an https URL"));
        }
        let host = uri.host().ok_or("a URL without a host")?;
        let plain = host.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let at = |error: String| format!("{host}:{port}: {error}");
        let stream = TcpStream::connect((plain.as_str(), port)).await;
        let stream = stream.map_err(|error| at(error.to_string()))?;
        let name = ServerName::try_from(plain).map_err(|error| at(error.to_string()))?;
        let stream = self.connector.connect(name, stream).await;
        let stream = stream.map_err(|error| at(error.to_string()))?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| at(error.to_string()))?;
        let connection = tokio::spawn(connection);
        let (mut parts, body) = request.into_parts();
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        if let Ok(value) = authority.parse() {
            parts.headers.insert(HOST, value);
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path
            .parse()
            .map_err(|_| at("a URL without a path".into()))?;
        let sent = sender.send_request(Request::from_parts(parts, Full::new(body)));
        let answer = sent.await.map_err(|error| at(error.to_string()))?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        let body = body.map_err(|error| at(error.to_string()))?.to_bytes();
        connection.abort();
        let mut said = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = issuers(&body) {
            said.issuers = found;
        }
        said.time = date(&parts.headers).or(said.time);
        drop(said);
        Ok(Response::from_parts(parts, Full::new(body)).into())
    }
}

impl Client {
    /// Asks for a URL, only to hear what time it is there.
    pub(crate) async fn ask_time(self, url: &str) -> Result<(), String> {
        let request = Request::get(url).body(Bytes::new());
        let call = self.call(request.map_err(|error| error.to_string())?);
        let answer = timeout(LIMIT, call).await;
        answer.map_err(|error| error.to_string())?.map(drop)
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap_or_default().to_bytes();
            let call = client.call(Request::from_parts(parts, body));
            match timeout(LIMIT, call).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(message)) => Err(Error::Other(message.into())),
                Err(_) => Err(Error::Other(
                    format!("the authority has not answered for {LIMIT:?}").into(),
                )),
            }
        })
    }
}

/// The time in the field Date (seconds since 1970).
fn date(headers: &HeaderMap) -> Option<i64> {
    let text = headers.get(DATE)?.to_str().ok()?;
    let since = httpdate::parse_http_date(text).ok()?;
    let since = since.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// The domains in an authorization with a challenge of dns-persist-01, which the library does not know.
fn issuers(body: &[u8]) -> Option<Vec<String>> {
    const KEY: &str = "issuer-domain-names";
    let has_key = body.windows(KEY.len()).any(|part| part == KEY.as_bytes());
    let authorization: Value = has_key.then(|| serde_json::from_slice(body).ok())??;
    let mut challenges = authorization["challenges"].as_array()?.iter();
    let names = challenges.find_map(|challenge| challenge[KEY].as_array())?;
    let names = names.iter().filter_map(Value::as_str);
    // The names become a part of a record, between other parts.
    let is_name = |name: &&str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        (1..=253).contains(&name.len()) && name.bytes().all(fits)
    };
    Some(names.filter(is_name).map(str::to_owned).collect())
}

/// How long a request may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Bytes of an answer, at most.
const MAX_ANSWER: usize = 1 << 20;
