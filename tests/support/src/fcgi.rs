//! A FastCGI program inside the test that answers as the test wants: correctly, late, incorrectly, or never.
//!
//! It writes its records by hand (FastCGI 1.0 §3.3), so that it can write wrong ones, and so that it shares
//! nothing with the code it tests.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{Gate, LIMIT, free_address};

/// FCGI_BEGIN_REQUEST (FastCGI 1.0 §8, like all of these).
pub const BEGIN_REQUEST: u8 = 1;
/// FCGI_ABORT_REQUEST
pub const ABORT_REQUEST: u8 = 2;
/// FCGI_END_REQUEST
pub const END_REQUEST: u8 = 3;
/// FCGI_PARAMS
pub const PARAMS: u8 = 4;
/// FCGI_STDIN
pub const STDIN: u8 = 5;
/// FCGI_STDOUT
pub const STDOUT: u8 = 6;
/// FCGI_STDERR
pub const STDERR: u8 = 7;
/// FCGI_DATA
pub const DATA: u8 = 8;
/// FCGI_GET_VALUES
pub const GET_VALUES: u8 = 9;
/// FCGI_GET_VALUES_RESULT
pub const GET_VALUES_RESULT: u8 = 10;

/// A listening FastCGI program. A thread serves each connection. When it is dropped, it closes all connections.
pub struct Responder {
    place: Place,
    seen: Arc<Seen>,
}

/// A request as it arrived.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Its number on the connection.
    pub id: u16,
    /// Whether the connection is to be kept.
    pub keep: bool,
    /// The parameters, values as text.
    pub params: BTreeMap<String, String>,
    /// The body.
    pub stdin: Vec<u8>,
}

/// Where a handler writes its answer. What it writes after the other side has left is discarded.
pub struct Answer<'a> {
    stream: &'a mut Stream,
    /// The counter of running requests, or none once the end of the answer is on its way: a client that reads the end
    /// may send the next request before this thread runs again.
    running: Option<&'a AtomicUsize>,
    /// The counter of open connections, for the same reason, if this one is closed after the answer.
    connection: Option<&'a AtomicUsize>,
    id: u16,
    ended: bool,
    gone: bool,
    closing: bool,
}

#[derive(Default)]
struct Seen {
    stopping: AtomicBool,
    failed: AtomicBool,
    connections: AtomicUsize,
    connections_now: AtomicUsize,
    most_connections: AtomicUsize,
    running: AtomicUsize,
    most_running: AtomicUsize,
    uris: Mutex<Vec<String>>,
    streams: Mutex<Vec<Stream>>,
}

enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Responder {
    /// Listens on a unix socket in this folder.
    pub fn unix(
        folder: &Path,
        handler: impl Fn(&Request, &mut Answer) + Send + Sync + 'static,
    ) -> Responder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Responder::at(&folder.join(format!("responder-{number}.sock")), handler)
    }

    /// As [`Responder::unix`]. Each request waits at the gate before its handler runs.
    pub fn gated(
        folder: &Path,
        handler: impl Fn(&Request, &mut Answer) + Send + Sync + 'static,
    ) -> (Responder, Gate) {
        let gate = Gate::default();
        let shut = gate.clone();
        let responder = Responder::unix(folder, move |request, answer| {
            shut.pass();
            handler(request, answer);
        });
        (responder, gate)
    }

    /// So many servers on TCP. Each request waits at the gate, and then gets the number of its server, from 0.
    pub fn gated_servers(count: usize) -> (Vec<Responder>, Gate) {
        let gate = Gate::default();
        let serve = |number: usize| {
            let shut = gate.clone();
            Responder::tcp(move |_, answer| {
                shut.pass();
                answer.page(number.to_string());
            })
        };
        ((0..count).map(serve).collect(), gate)
    }

    /// A script that sends early hints, waits at the gate, and prints `the page`.
    pub fn hinting(folder: &Path) -> (Responder, Gate) {
        let gate = Gate::default();
        let shut = gate.clone();
        let responder = Responder::unix(folder, move |_, answer| {
            answer.stdout("Status: 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n");
            shut.pass();
            answer.page("the page");
        });
        (responder, gate)
    }

    /// Listens on this unix socket.
    pub fn at(
        path: &Path,
        handler: impl Fn(&Request, &mut Answer) + Send + Sync + 'static,
    ) -> Responder {
        let listener = UnixListener::bind(path).expect("bind");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).expect("chmod");
        let accept = move || listener.accept().map(|(stream, _)| Stream::Unix(stream));
        Responder::serve(Place::Unix(path.to_owned()), accept, handler)
    }

    /// Listens on TCP.
    pub fn tcp(handler: impl Fn(&Request, &mut Answer) + Send + Sync + 'static) -> Responder {
        Responder::tcp_at(free_address(), handler)
    }

    /// Listens on this address.
    pub fn tcp_at(
        address: SocketAddr,
        handler: impl Fn(&Request, &mut Answer) + Send + Sync + 'static,
    ) -> Responder {
        let listener = TcpListener::bind(address).expect("bind");
        let accept = move || listener.accept().map(|(stream, _)| Stream::Tcp(stream));
        Responder::serve(Place::Tcp(address), accept, handler)
    }

    fn serve(
        place: Place,
        accept: impl Fn() -> std::io::Result<Stream> + Send + 'static,
        handler: impl Fn(&Request, &mut Answer) + Send + Sync + 'static,
    ) -> Responder {
        let seen = Arc::new(Seen::default());
        let responder = Responder {
            place,
            seen: seen.clone(),
        };
        let handler = Arc::new(handler);
        std::thread::spawn(move || {
            while let Ok(mut stream) = accept() {
                if seen.stopping.load(Ordering::SeqCst) {
                    return;
                }
                seen.streams
                    .lock()
                    .expect("no holder panics")
                    .push(stream.again());
                let (seen, handler) = (seen.clone(), handler.clone());
                std::thread::spawn(move || {
                    let served =
                        AssertUnwindSafe(|| serve_connection(&mut stream, &seen, &*handler));
                    if catch_unwind(served).is_err() {
                        seen.failed.store(true, Ordering::SeqCst);
                    }
                    stream.close();
                });
            }
        });
        responder
    }

    /// The address, in the format of `servers`.
    pub fn server(&self) -> String {
        match &self.place {
            Place::Unix(path) => format!("unix:{}", path.display()),
            Place::Tcp(address) => address.to_string(),
        }
    }

    /// The configuration of a pool with this server and this `maxconn`.
    pub fn pool(&self, maxconn: usize) -> String {
        format!(
            "runtime = \"servers\"\nservers = [\"{}\"]\nqueue.maxconn = {maxconn}\n",
            self.server()
        )
    }

    /// REQUEST_URI of all complete requests, in order of arrival.
    pub fn uris(&self) -> Vec<String> {
        self.seen.uris.lock().expect("no holder panics").clone()
    }

    /// How many requests run now.
    pub fn running(&self) -> usize {
        self.seen.running.load(Ordering::SeqCst)
    }

    /// The largest number of requests that ran at once.
    pub fn most_running(&self) -> usize {
        self.seen.most_running.load(Ordering::SeqCst)
    }

    /// How many connections there were so far.
    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    pub fn connections_now(&self) -> usize {
        self.seen.connections_now.load(Ordering::SeqCst)
    }

    /// The largest number of connections that were open at once.
    pub fn most_connections(&self) -> usize {
        self.seen.most_connections.load(Ordering::SeqCst)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.seen.stopping.store(true, Ordering::SeqCst);
        for stream in self
            .seen
            .streams
            .lock()
            .expect("no holder panics")
            .drain(..)
        {
            stream.close();
        }
        // Wakes accept().
        match &self.place {
            Place::Unix(path) => drop(UnixStream::connect(path)),
            Place::Tcp(address) => drop(TcpStream::connect(address)),
        }
        let failed = self.seen.failed.load(Ordering::SeqCst);
        assert!(
            !failed || std::thread::panicking(),
            "a worker of this test failed: see above"
        );
    }
}

impl Request {
    /// A parameter, or an empty string.
    pub fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }
}

impl Answer<'_> {
    /// Sends a whole answer: 200, plain text.
    pub fn page(&mut self, body: impl AsRef<[u8]>) {
        self.stdout("Content-Type: text/plain\r\n\r\n");
        self.stdout(body);
        self.end();
    }

    /// Sends a short answer with its end in one piece.
    pub fn at_once(&mut self, content: impl AsRef<[u8]>) {
        let parts: [(u8, &[u8]); 3] = [
            (STDOUT, content.as_ref()),
            (STDOUT, b""),
            (END_REQUEST, &[0; 8]),
        ];
        let records = parts.map(|(kind, content)| record(kind, self.id, content));
        self.runs_no_more();
        self.raw(records.concat());
        self.ended = true;
    }

    /// Sends STDOUT records.
    pub fn stdout(&mut self, content: impl AsRef<[u8]>) {
        for part in content.as_ref().chunks(65_528) {
            self.record(STDOUT, part);
        }
    }

    /// Sends STDERR records.
    pub fn stderr(&mut self, content: impl AsRef<[u8]>) {
        for part in content.as_ref().chunks(65_528) {
            self.record(STDERR, part);
        }
    }

    /// Sends the end of STDOUT, and END_REQUEST.
    pub fn end(&mut self) {
        self.record(STDOUT, b"");
        self.runs_no_more();
        self.record(END_REQUEST, &[0; 8]);
        self.ended = true;
    }

    /// Sends a record of this request.
    pub fn record(&mut self, kind: u8, content: &[u8]) {
        self.raw(record(kind, self.id, content));
    }

    /// Sends any bytes.
    pub fn raw(&mut self, bytes: impl AsRef<[u8]>) {
        self.gone |= self.gone || self.stream.write_all(bytes.as_ref()).is_err();
    }

    /// Whether the other side has left, as far as writing to it has shown.
    pub fn gone(&self) -> bool {
        self.gone
    }

    /// Closes the connection after this answer, although the client wanted to keep it.
    pub fn hang_up(&mut self) {
        self.closing = true;
    }

    /// Waits until the other side closes or sends something. Returns true if it closed.
    pub fn wait_for_close(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }

    fn runs_no_more(&mut self) {
        for counter in [self.running.take(), self.connection.take()] {
            drop(Open(counter));
        }
    }
}

/// Something that is counted as long as it is open.
struct Open<'a>(Option<&'a AtomicUsize>);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.0 {
            counter.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        self.runs_no_more();
    }
}

/// A record, padded to a multiple of eight as most programs do.
pub fn record(kind: u8, id: u16, content: &[u8]) -> Vec<u8> {
    let padding = (8 - content.len() % 8) % 8;
    let mut bytes = vec![1, kind];
    bytes.extend(id.to_be_bytes());
    bytes.extend((content.len() as u16).to_be_bytes());
    bytes.extend([padding as u8, 0]);
    bytes.extend(content);
    bytes.resize(bytes.len() + padding, 0);
    bytes
}

/// Serves one connection. A handler that returns without ending its answer counts as dead: the connection is closed.
fn serve_connection(
    stream: &mut Stream,
    seen: &Seen,
    handler: &(dyn Fn(&Request, &mut Answer) + Send + Sync),
) {
    seen.connections.fetch_add(1, Ordering::SeqCst);
    let now = seen.connections_now.fetch_add(1, Ordering::SeqCst) + 1;
    seen.most_connections.fetch_max(now, Ordering::SeqCst);
    stream.set_read_timeout(None);
    let mut open = Open(Some(&seen.connections_now));
    while let Some(request) = read_request(stream) {
        seen.uris
            .lock()
            .expect("no holder panics")
            .push(request.param("REQUEST_URI").to_owned());
        let running = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most_running.fetch_max(running, Ordering::SeqCst);
        stream.set_read_timeout(Some(LIMIT));
        let mut answer = Answer {
            stream,
            running: Some(&seen.running),
            connection: open.0.take_if(|_| !request.keep),
            id: request.id,
            ended: false,
            gone: false,
            closing: false,
        };
        handler(&request, &mut answer);
        let ended = answer.ended && !answer.gone && !answer.closing;
        drop(answer);
        stream.set_read_timeout(None);
        if !ended || !request.keep {
            break;
        }
    }
}

/// Reads a whole request. Returns none if the connection ends before.
fn read_request(stream: &mut Stream) -> Option<Request> {
    let mut request = Request::default();
    let mut params = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).ok()?;
        assert_eq!(header[0], 1, "FastCGI's version");
        let id = u16::from_be_bytes([header[2], header[3]]);
        let length = u16::from_be_bytes([header[4], header[5]]) as usize;
        assert!(
            length + header[6] as usize <= 65_535,
            "content and padding: {header:?}"
        );
        let mut content = vec![0; length + header[6] as usize];
        stream.read_exact(&mut content).ok()?;
        content.truncate(length);
        match header[1] {
            BEGIN_REQUEST => {
                request = Request {
                    id,
                    keep: content[2] & 1 == 1,
                    ..Request::default()
                };
                params.clear();
                assert_eq!(content[..2], [0, 1], "the responder's role");
                assert_ne!(id, 0, "the number of a request");
            }
            PARAMS if length > 0 => params.extend(content),
            PARAMS => request.params = pairs(&params),
            STDIN if length > 0 => request.stdin.extend(content),
            STDIN => return Some(request),
            ABORT_REQUEST => {}
            GET_VALUES => stream.write_all(&record(GET_VALUES_RESULT, 0, b"")).ok()?,
            other => panic!("record of type {other} from a client"),
        }
    }
}

/// Name-value pairs (FastCGI 1.0 §3.4).
fn pairs(mut bytes: &[u8]) -> BTreeMap<String, String> {
    fn length(bytes: &mut &[u8]) -> usize {
        let first = bytes[0];
        let size = if first >> 7 == 0 { 1 } else { 4 };
        let mut value = 0;
        for (at, byte) in bytes[..size].iter().enumerate() {
            let byte = if at == 0 { byte & 0x7f } else { *byte };
            value = value << 8 | usize::from(byte);
        }
        *bytes = &bytes[size..];
        value
    }
    let mut found = BTreeMap::new();
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes), length(&mut bytes));
        let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
        let before = found.insert(text(&bytes[..name]), text(&bytes[name..name + value]));
        assert!(
            before.is_none(),
            "a parameter twice: {}",
            text(&bytes[..name])
        );
        bytes = &bytes[name + value..];
    }
    found
}

impl Stream {
    fn set_read_timeout(&self, limit: Option<Duration>) {
        let _ = match self {
            Stream::Unix(stream) => stream.set_read_timeout(limit),
            Stream::Tcp(stream) => stream.set_read_timeout(limit),
        };
    }

    fn again(&self) -> Stream {
        match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone().expect("dup")),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone().expect("dup")),
        }
    }

    fn close(&self) {
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(bytes),
            Stream::Tcp(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
