//! An origin that behaves as a test wants, correctly or not: a function of the test controls each connection. It reads
//! requests and sends any bytes. The origin records the exact bytes of the requests.
//!
//! ```ignore
//! // Half an answer, and the end.
//! let origin = Oddity::tls(&identity, &["http/1.1"], |talk| {
//!     talk.request();
//!     talk.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf ");
//! });
//! ```

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned, version};

use crate::authority::Identity;
use crate::{LIMIT, free_address};

/// The origin listens until it is dropped. Then it ends every connection.
pub struct Oddity {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// A connection, for the function that runs it. It is closed normally when the function returns.
pub struct Talk {
    /// The connection's number, from 1.
    pub number: usize,
    wire: Wire,
    buffer: Vec<u8>,
    /// How the connection ends when its script has returned.
    end: End,
    shared: Arc<Shared>,
}

enum End {
    /// Sends TLS's close_notify, then closes TCP, and reads all that still arrives.
    InOrder,
    /// Closes the socket and does nothing else.
    Closed,
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    connections: AtomicUsize,
    handshakes: AtomicUsize,
    resumed: AtomicUsize,
    names: Mutex<Vec<String>>,
    requests: Mutex<Vec<Vec<u8>>>,
    /// The connections that are open now, by number.
    sockets: Mutex<BTreeMap<usize, TcpStream>>,
}

impl Oddity {
    /// Without TLS. Also for connections that send something else where TLS is expected.
    pub fn plain(script: impl Fn(&mut Talk) + Send + Sync + 'static) -> Oddity {
        Oddity::start(any_port(), None, script)
    }

    /// Over TLS 1.2 and 1.3 with these protocols (ALPN). The script begins after the handshake.
    pub fn tls(
        identity: &Identity,
        protocols: &[&str],
        script: impl Fn(&mut Talk) + Send + Sync + 'static,
    ) -> Oddity {
        Oddity::start(any_port(), Some(tls(identity, protocols)), script)
    }

    /// On an address that the test chooses.
    pub fn start(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&mut Talk) + Send + Sync + 'static,
    ) -> Oddity {
        let listener = TcpListener::bind(address).expect("bind");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let server = shared.clone();
        let script = Arc::new(script);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if server.stopping.load(Ordering::SeqCst) {
                    return;
                }
                let (shared, script, tls) = (server.clone(), script.clone(), tls.clone());
                std::thread::spawn(move || lead(stream, shared, tls, &*script));
            }
        });
        Oddity { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections others made to it.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many connections have not ended.
    pub fn open(&self) -> usize {
        self.shared.sockets.lock().expect("no holder panics").len()
    }

    /// How many TLS handshakes were completed.
    pub fn handshakes(&self) -> usize {
        self.shared.handshakes.load(Ordering::SeqCst)
    }

    /// How many of these handshakes resumed an earlier session.
    pub fn resumed(&self) -> usize {
        self.shared.resumed.load(Ordering::SeqCst)
    }

    /// The names in the handshakes (SNI), in order. A name is empty if the handshake had none.
    pub fn names(&self) -> Vec<String> {
        self.shared.names.lock().expect("no holder panics").clone()
    }

    /// What [`Talk::request`] has read, in order, as exact bytes.
    pub fn requests(&self) -> Vec<Vec<u8>> {
        self.shared
            .requests
            .lock()
            .expect("no holder panics")
            .clone()
    }

    /// As [`Oddity::requests`], as text.
    pub fn asked(&self) -> Vec<String> {
        let requests = self.requests();
        requests
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect()
    }
}

impl Drop for Oddity {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let sockets = self.shared.sockets.lock().expect("no holder panics");
        for socket in sockets.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        if std::thread::panicking() {
            for request in self.asked() {
                let start: String = request.chars().take(1000).collect();
                eprintln!("--- the origin was asked\n{start}");
            }
        }
    }
}

impl Talk {
    /// Reads one request, with its body if it has `Content-Length` or is chunked. Returns none if the connection was
    /// closed before its end.
    pub fn request(&mut self) -> Option<String> {
        let request = self.request_bytes()?;
        Some(String::from_utf8_lossy(&request).into_owned())
    }

    /// As [`Talk::request`], as exact bytes.
    pub fn request_bytes(&mut self) -> Option<Vec<u8>> {
        let head = loop {
            match self.buffer.windows(4).position(|end| end == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => self.more()?,
            }
        };
        let text = String::from_utf8_lossy(&self.buffer[..head]).to_ascii_lowercase();
        let field = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let end = if field("transfer-encoding").is_some() {
            loop {
                let rest = &self.buffer[head..];
                let last = rest.starts_with(b"0\r\n\r\n").then_some(0);
                let at = last.or_else(|| {
                    let found = rest.windows(7).position(|end| end == b"\r\n0\r\n\r\n");
                    found.map(|at| at + 2)
                });
                match at {
                    Some(at) => break head + at + 5,
                    None => self.more()?,
                }
            }
        } else {
            let length =
                field("content-length").map_or(0, |value| value.parse().expect("a length"));
            while self.buffer.len() < head + length {
                self.more()?;
            }
            head + length
        };
        let request: Vec<u8> = self.buffer.drain(..end).collect();
        let mut requests = self.shared.requests.lock().expect("no holder panics");
        requests.push(request.clone());
        drop(requests);
        Some(request)
    }

    /// Sends bytes. Returns false if the other side does not take them any more.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let stream = self.wire.stream();
        stream
            .write_all(bytes.as_ref())
            .and_then(|()| stream.flush())
            .is_ok()
    }

    /// Sends a whole answer: 200 with this text.
    pub fn answer(&mut self, text: &str) -> bool {
        let length = text.len();
        self.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}"
        ))
    }

    /// Answers every request like this, until the other side closes.
    pub fn answer_all(&mut self, text: &str) {
        while self.request().is_some() && self.answer(text) {}
    }

    /// Sends these bytes one by one, with a pause before each.
    pub fn drip(&mut self, bytes: impl AsRef<[u8]>, pause: Duration) {
        for byte in bytes.as_ref() {
            std::thread::sleep(pause);
            if !self.send([*byte]) {
                return;
            }
        }
    }

    /// Sends this again and again until the other side does not take it any more. Returns the number of bytes.
    pub fn endless(&mut self, piece: &str) -> usize {
        let piece = piece.repeat(8192 / piece.len() + 1);
        let mut sent = 0;
        while self.send(&piece) {
            sent += piece.len();
        }
        sent
    }

    /// Does nothing until the other side closes.
    pub fn hold(&mut self) {
        while self.more().is_some() {
            self.buffer.clear();
        }
    }

    /// Resets the connection (RST) when the script returns.
    pub fn reset(&mut self) {
        let socket = socket2::SockRef::from(self.wire.socket());
        socket.set_linger(Some(Duration::ZERO)).expect("SO_LINGER");
        self.end = End::Closed;
    }

    /// Closes TCP normally, at once and without TLS's close_notify.
    pub fn cut(&mut self) {
        let _ = self.wire.socket().shutdown(Shutdown::Write);
        self.end = End::Closed;
    }

    /// Reads what comes next. Returns none if the connection is closed, or if nothing came for [`LIMIT`].
    fn more(&mut self) -> Option<()> {
        let mut bytes = [0; 16384];
        match self.wire.stream().read(&mut bytes) {
            Ok(count) if count > 0 => {
                self.buffer.extend(&bytes[..count]);
                Some(())
            }
            _ => None,
        }
    }
}

/// Runs a connection: the handshake, the script, the end.
fn lead(
    socket: TcpStream,
    shared: Arc<Shared>,
    tls: Option<Arc<ServerConfig>>,
    script: &dyn Fn(&mut Talk),
) {
    let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
    let _leaving = Leaving {
        number,
        shared: &shared,
    };
    let copy = socket.try_clone().expect("a descriptor");
    shared
        .sockets
        .lock()
        .expect("no holder panics")
        .insert(number, copy);
    socket.set_nodelay(true).expect("nodelay");
    socket.set_read_timeout(Some(LIMIT)).expect("timeout");
    socket.set_write_timeout(Some(LIMIT)).expect("timeout");
    let wire = match tls {
        None => Wire::Plain(socket),
        Some(tls) => match greet(socket, tls, &shared) {
            Some(stream) => Wire::Tls(Box::new(stream)),
            None => return,
        },
    };
    let mut talk = Talk {
        number,
        wire,
        buffer: Vec::new(),
        end: End::InOrder,
        shared: shared.clone(),
    };
    script(&mut talk);
    if matches!(talk.end, End::InOrder) {
        if let Wire::Tls(stream) = &mut talk.wire {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let _ = talk.wire.socket().shutdown(Shutdown::Write);
        // Closing a socket with unread bytes would reset the connection.
        talk.hold();
    }
}

/// An address of the test's own, with a port that the kernel chooses when it is bound.
fn any_port() -> SocketAddr {
    SocketAddr::new(free_address().ip(), 0)
}

/// The TLS handshake. Returns none if it failed.
fn greet(
    mut socket: TcpStream,
    tls: Arc<ServerConfig>,
    shared: &Shared,
) -> Option<StreamOwned<ServerConnection, TcpStream>> {
    let mut connection = ServerConnection::new(tls).expect("a configuration that can be used");
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).ok()?;
    }
    shared.handshakes.fetch_add(1, Ordering::SeqCst);
    if connection.handshake_kind() == Some(HandshakeKind::Resumed) {
        shared.resumed.fetch_add(1, Ordering::SeqCst);
    }
    let name = connection.server_name().unwrap_or_default().to_owned();
    shared.names.lock().expect("no holder panics").push(name);
    Some(StreamOwned::new(connection, socket))
}

/// Removes the connection from the list when it has ended, in whatever way.
struct Leaving<'a> {
    number: usize,
    shared: &'a Shared,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.shared
            .sockets
            .lock()
            .expect("no holder panics")
            .remove(&self.number);
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

impl Wire {
    fn stream(&mut self) -> &mut dyn ReadWrite {
        match self {
            Wire::Plain(stream) => stream,
            Wire::Tls(stream) => &mut **stream,
        }
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Wire::Plain(stream) => stream,
            Wire::Tls(stream) => &stream.sock,
        }
    }
}

/// The configuration of a TLS server.
pub fn tls(identity: &Identity, protocols: &[&str]) -> Arc<ServerConfig> {
    let (certificates, key) = identity.load();
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .expect("a certificate and its key");
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    Arc::new(config)
}
