//! Asks the application whether a name may have a certificate.
//!
//! Only the status of its answer counts. weir does not read the rest.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, version::TLS12, version::TLS13},
};

/// The status of the answer at this URL.
///
/// # Errors
/// Why there is none.
pub(crate) async fn ask(url: &str, limit: Duration) -> Result<u16, String> {
    match timeout(limit, get(url)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!(
            "there was no answer within {limit:?} (ask_timeout)"
        )),
    }
}

async fn get(url: &str) -> Result<u16, String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let uri: Uri = url.parse().map_err(|error| told(&error))?;
    let authority = uri.authority().ok_or("the URL has no host")?.clone();
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let is_tls = uri.scheme_str() == Some("https");
    let port = authority
        .port_u16()
        .unwrap_or(if is_tls { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header(header::HOST, authority.as_str())
        .header(header::USER_AGENT, "weir")
        .header(header::CONNECTION, "close")
        .body(Empty::new())
        .map_err(|error| told(&error))?;
    let stream = TcpStream::connect((host.as_str(), port)).await;
    let stream = stream.map_err(|error| told(&error))?;
    if !is_tls {
        return status(stream, request).await;
    }
    let name = ServerName::try_from(host).map_err(|error| told(&error))?;
    let stream = connector()?.connect(name, stream).await;
    status(stream.map_err(|error| told(&error))?, request).await
}

/// Sends a request, and returns the status of the answer as soon as its head is there.
async fn status(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<u16, String> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    connection.abort();
    let answer = answer.map_err(|error| error.to_string())?;
    Ok(answer.status().as_u16())
}

/// Trusts what the machine trusts.
fn connector() -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    let config = ClientConfig::builder_with_provider(weir_tls::provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
