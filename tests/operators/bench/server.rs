//! A web server that does what a test says, with a thread for each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use weir_test::{LIMIT, free_address};

/// The server. Everything that it has started ends with it.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepts: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    connections: AtomicUsize,
    /// Heads of requests, and when each had arrived.
    requests: Mutex<Vec<(Instant, String)>>,
    /// How many connections the client closed while the server waited for that.
    left: AtomicUsize,
    peers: Mutex<Vec<SocketAddr>>,
}

/// A connection, for the code that responds on it.
pub struct Talk {
    stream: TcpStream,
    shared: Arc<Shared>,
    held: Vec<u8>,
}

impl Server {
    /// Handles each connection with `serve`.
    pub fn start(serve: impl Fn(&mut Talk) + Send + Sync + 'static) -> Server {
        let address = free_address();
        let listener = TcpListener::bind(address).expect("bind");
        let shared = Arc::new(Shared::default());
        let serve = Arc::new(serve);
        let accepts = {
            let shared = shared.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    if shared.ends.load(SeqCst) {
                        return;
                    }
                    let Ok(stream) = stream else { continue };
                    shared.connections.fetch_add(1, SeqCst);
                    if let Ok(peer) = stream.peer_addr() {
                        lock(&shared.peers).push(peer);
                    }
                    let _ = stream.set_read_timeout(Some(LIMIT));
                    let _ = stream.set_nodelay(true);
                    let serve = serve.clone();
                    let mut talk = Talk {
                        stream,
                        shared: shared.clone(),
                        held: Vec::new(),
                    };
                    std::thread::spawn(move || serve(&mut talk));
                }
            })
        };
        Server {
            address,
            shared,
            accepts: Some(accepts),
        }
    }

    /// Answers each request with these bytes, on kept connections.
    pub fn always(answer: impl Into<Vec<u8>>) -> Server {
        let answer = answer.into();
        Server::start(move |talk| while talk.request().is_some() && talk.say(&answer) {})
    }

    /// Its URL with this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How many connections there were so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(SeqCst)
    }

    /// How many clients closed a connection while the server waited for that.
    pub fn left(&self) -> usize {
        self.shared.left.load(SeqCst)
    }

    /// The requests so far: their time and first line.
    pub fn requests(&self) -> Vec<(Instant, String)> {
        let all = lock(&self.shared.requests);
        let line = |head: &str| head.lines().next().unwrap_or_default().to_owned();
        all.iter().map(|(at, head)| (*at, line(head))).collect()
    }

    /// The heads of the requests so far.
    pub fn heads(&self) -> Vec<String> {
        let all = lock(&self.shared.requests);
        all.iter().map(|(_, head)| head.clone()).collect()
    }

    /// The addresses from which connections came.
    pub fn peers(&self) -> Vec<SocketAddr> {
        lock(&self.shared.peers).clone()
    }

    /// Stops listening. Connections stay open.
    pub fn shut(&mut self) {
        self.shared.ends.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(accepts) = self.accepts.take() {
            let _ = accepts.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut();
    }
}

impl Talk {
    /// Returns the head of the next request, after it has read and dropped the body. Returns none if the connection has
    /// ended.
    pub fn request(&mut self) -> Option<String> {
        let end = loop {
            if let Some(at) = find(&self.held, b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head: Vec<u8> = self.held.drain(..end).collect();
        let head = String::from_utf8_lossy(&head).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.parse::<usize>().ok())?
        });
        while self.held.len() < length.unwrap_or(0) {
            self.more()?;
        }
        self.held.drain(..length.unwrap_or(0));
        lock(&self.shared.requests).push((Instant::now(), head.clone()));
        Some(head)
    }

    /// Writes. Returns false if the client has left.
    pub fn say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Waits until the client closes the connection.
    pub fn wait_for_close(&mut self) {
        let mut space = [0; 4096];
        loop {
            match self.stream.read(&mut space) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(_) => return,
            }
        }
        self.shared.left.fetch_add(1, SeqCst);
    }

    fn more(&mut self) -> Option<()> {
        let mut space = [0; 4096];
        match self.stream.read(&mut space) {
            Ok(0) | Err(_) => None,
            Ok(count) => {
                self.held.extend(&space[..count]);
                Some(())
            }
        }
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A whole answer with this status and body.
pub fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}
