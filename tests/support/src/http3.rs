//! A client of HTTP/3, with the `quinn` and `h3` crates.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::Code;
use h3_quinn::OpenStreams;
use http::{HeaderMap, Request};
use quinn::crypto::rustls::QuicClientConfig;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, version};

use crate::authority::{Authority, Identity};

/// A client that trusts an authority, and keeps tickets.
#[derive(Debug, Clone)]
pub struct Http3Client(quinn::ClientConfig);

/// A connection.
pub struct Http3 {
    runtime: Runtime,
    endpoint: quinn::Endpoint,
    /// QUIC itself.
    pub quic: quinn::Connection,
    sender: SendRequest<OpenStreams, Bytes>,
    driver: JoinHandle<String>,
}

/// A request whose answer comes.
pub struct Exchange {
    stream: RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>,
}

/// An answer.
#[derive(Debug, Default)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("UTF-8")
    }
}

impl Http3Client {
    /// Trusts `authority`.
    pub fn new(authority: &Authority) -> Http3Client {
        Http3Client::made(&authority.file(), None)
    }

    /// Trusts the authority whose certificate is in this file.
    pub fn trusting(authority: &Path) -> Http3Client {
        Http3Client::made(authority, None)
    }

    /// The same, which asks a silent server each second whether it is there.
    pub fn with_pings(mut self) -> Http3Client {
        let mut transport = transport();
        transport.keep_alive_interval(Some(Duration::from_secs(1)));
        self.0.transport_config(Arc::new(transport));
        self
    }

    fn made(authority: &Path, identity: Option<&Identity>) -> Http3Client {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(authority).expect("a certificate");
        roots.add(certificate).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&version::TLS13])
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match identity.map(Identity::load) {
            None => config.with_no_client_auth(),
            Some((chain, key)) => config.with_client_auth_cert(chain, key).expect("a pair"),
        };
        config.alpn_protocols = vec![b"h3".to_vec()];
        let config = QuicClientConfig::try_from(config).expect("a configuration");
        let mut config = quinn::ClientConfig::new(Arc::new(config));
        config.transport_config(Arc::new(transport()));
        Http3Client(config)
    }

    /// The same with a certificate of its own.
    pub fn with_identity(authority: &Authority, identity: &Identity) -> Http3Client {
        Http3Client::made(&authority.file(), Some(identity))
    }

    /// The first datagram of a new connection for `host`, as anybody can send it in anybody's name.
    pub fn first_datagram(&self, host: &str) -> Vec<u8> {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let server = UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
        let mut bytes = vec![0; 2048];
        runtime.block_on(async {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let endpoint = quinn::Endpoint::client(any).expect("a UDP socket");
            let address = server.local_addr().expect("an address");
            let _connecting = endpoint.connect_with(self.0.clone(), address, host);
            let count = server.recv(&mut bytes).expect("a datagram");
            bytes.truncate(count);
        });
        bytes
    }

    /// Connects to `address` for `host`.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect(&self, address: SocketAddr, host: &str) -> Result<Http3, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let connected = runtime.block_on(async {
            let any = SocketAddr::new(address.ip(), 0);
            let endpoint = quinn::Endpoint::client(any).expect("a UDP socket");
            let connecting = endpoint.connect_with(self.0.clone(), address, host);
            let quic = connecting.expect("an address").await;
            let quic = quic.map_err(|error| error.to_string())?;
            let of_h3 = h3_quinn::Connection::new(quic.clone());
            let made = h3::client::new(of_h3).await;
            let (mut driver, sender) = made.map_err(|error| error.to_string())?;
            let drive = async move {
                std::future::poll_fn(|cx| driver.poll_close(cx))
                    .await
                    .to_string()
            };
            Ok::<_, String>((endpoint, quic, sender, tokio::spawn(drive)))
        });
        let (endpoint, quic, sender, driver) = connected?;
        Ok(Http3 {
            runtime,
            endpoint,
            quic,
            sender,
            driver,
        })
    }
}

impl Http3 {
    /// The answer to a GET.
    #[track_caller]
    pub fn get(&mut self, host: &str, path: &str) -> Answer {
        let request = Request::get(format!("https://{host}{path}"));
        self.request(request.body(()).expect("a request"), &[])
            .expect("an answer")
    }

    /// The answer to a request whose body has these parts.
    ///
    /// # Errors
    /// Why there is none.
    pub fn request(&mut self, request: Request<()>, body: &[&[u8]]) -> Result<Answer, String> {
        let mut exchange = self.begin(request)?;
        for part in body {
            let part = Bytes::copy_from_slice(part);
            let sent = self.runtime.block_on(exchange.stream.send_data(part));
            sent.map_err(|error| error.to_string())?;
        }
        let ended = self.runtime.block_on(exchange.stream.finish());
        ended.map_err(|error| error.to_string())?;
        self.finish(exchange)
    }

    /// Sends the head of a request.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub fn begin(&mut self, request: Request<()>) -> Result<Exchange, String> {
        let sent = self.runtime.block_on(self.sender.send_request(request));
        let stream = sent.map_err(|error| error.to_string())?;
        Ok(Exchange { stream })
    }

    /// Ends a request without a body, and returns its answer.
    ///
    /// # Errors
    /// Why there is none.
    pub fn end_request(&mut self, mut exchange: Exchange) -> Result<Answer, String> {
        self.end_of(&mut exchange)?;
        self.finish(exchange)
    }

    /// Ends a request without a body.
    ///
    /// # Errors
    /// Why it cannot be ended.
    pub fn end_of(&mut self, exchange: &mut Exchange) -> Result<(), String> {
        let ended = self.runtime.block_on(exchange.stream.finish());
        ended.map_err(|error| error.to_string())
    }

    /// Sends a GET, and returns when the head of its answer has come.
    ///
    /// # Errors
    /// Why it does not come.
    pub fn begin_get(&mut self, host: &str, path: &str) -> Result<Exchange, String> {
        let request = Request::get(format!("https://{host}{path}"));
        let mut exchange = self.begin(request.body(()).expect("a request"))?;
        self.runtime.block_on(async {
            let ended = exchange.stream.finish().await;
            ended.map_err(|error| error.to_string())?;
            let head = exchange.stream.recv_response().await;
            head.map(drop).map_err(|error| error.to_string())
        })?;
        Ok(exchange)
    }

    /// Gives up a request: the client sends no more of it (RESET_STREAM), and wants no more of its answer (STOP_SENDING).
    pub fn abort(&mut self, mut exchange: Exchange) {
        exchange.stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        exchange.stream.stop_sending(Code::H3_REQUEST_CANCELLED);
    }

    /// The next part of a body; `None`: it is whole.
    ///
    /// # Errors
    /// Why it does not come.
    pub fn part(&mut self, exchange: &mut Exchange) -> Result<Option<Vec<u8>>, String> {
        let part = self.runtime.block_on(exchange.stream.recv_data());
        let part = part.map_err(|error| error.to_string())?;
        Ok(part.map(|mut part| part.copy_to_bytes(part.remaining()).to_vec()))
    }

    /// The answer to a request that was ended.
    ///
    /// # Errors
    /// Why there is none.
    pub fn finish(&mut self, mut exchange: Exchange) -> Result<Answer, String> {
        let head = self.runtime.block_on(exchange.stream.recv_response());
        let head = head.map_err(|error| error.to_string())?;
        let mut answer = Answer {
            status: head.status().as_u16(),
            headers: head.headers().clone(),
            body: Vec::new(),
        };
        while let Some(part) = self.part(&mut exchange)? {
            answer.body.extend_from_slice(&part);
        }
        Ok(answer)
    }

    /// Goes on from another port.
    pub fn change_port(&self) {
        let ip = self.endpoint.local_addr().expect("an address").ip();
        let socket = UdpSocket::bind((ip, 0)).expect("a UDP socket");
        let _entered = self.runtime.enter();
        self.endpoint.rebind(socket).expect("a watched socket");
    }

    /// Whether the connection has ended.
    pub fn has_ended(&self) -> bool {
        self.quic.close_reason().is_some()
    }

    /// Ends the connection, and returns when the server was told so.
    pub fn close(self) {
        self.quic.close(NO_ERROR.into(), b"");
        self.runtime.block_on(self.endpoint.wait_idle());
    }

    /// Why the connection has ended. Waits for that.
    pub fn end(self) -> String {
        let reason = self.runtime.block_on(self.quic.closed());
        let _ = self.runtime.block_on(self.driver);
        reason.to_string()
    }
}

fn transport() -> quinn::TransportConfig {
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(Some(IDLE.try_into().expect("a time")));
    transport
}

/// The code of a connection that is not needed any more (RFC 9114 §8.1).
const NO_ERROR: u32 = 0x100;

/// How long a connection of a test may be silent.
const IDLE: Duration = Duration::from_secs(60);
