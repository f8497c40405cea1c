//! An HTTP/1.1 client that sends exactly the bytes it is given and says exactly what came back.
//!
//! It does not use the server's own HTTP code on purpose: a test would not see a mistake that both make.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::LIMIT;

/// A connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// How long the client waits for the next bytes.
    patience: Duration,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Its reason phrase.
    pub phrase: String,
    /// The fields, names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The decoded body. If a chunked body was cut, the part that arrived.
    pub body: Vec<u8>,
    /// Whether the body is as complete as its framing announced.
    pub whole: bool,
    /// The interim answers before it (100, 103).
    pub interim: Vec<Head>,
}

/// The head of an answer.
#[derive(Debug, Clone)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// Its reason phrase.
    pub phrase: String,
    /// The fields, names in lower case, in order.
    pub headers: Vec<(String, String)>,
}

impl Client {
    /// Connects.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Client {
        Client::on(TcpStream::connect_timeout(&address, LIMIT).expect("connect"))
    }

    /// Connects from the given loopback address.
    pub fn connect_from(source: IpAddr, address: SocketAddr) -> Client {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
        // A program that another test starts must not have it: it would stay open there.
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::STREAM, flags, None).expect("socket");
        bind(&socket, &SocketAddr::new(source, 0)).expect("bind");
        connect(&socket, &address).expect("connect");
        Client::on(socket.into())
    }

    fn on(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(LIMIT)).expect("timeout");
        stream.set_write_timeout(Some(LIMIT)).expect("timeout");
        stream.set_nodelay(true).expect("nodelay");
        Client {
            stream,
            buffer: Vec::new(),
            patience: LIMIT,
        }
    }

    /// Sets how long the client waits for bytes, instead of [`LIMIT`].
    pub fn patient(mut self, patience: Duration) -> Client {
        self.stream
            .set_read_timeout(Some(patience))
            .expect("timeout");
        self.patience = patience;
        self
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.stream.write_all(bytes.as_ref()).expect("send");
        self
    }

    /// Sends bytes. Returns false if the other side does not take them any more.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// The socket, for operations that this client does not offer.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads the answer to a request whose method is not HEAD.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads the answer to a request of this method.
    #[track_caller]
    pub fn response_to(&mut self, method: &str) -> Response {
        self.response_if_any(method)
            .expect("an answer before the connection is closed")
    }

    /// Reads the answer. Returns none if the connection was closed before the first byte.
    #[track_caller]
    pub fn response_if_any(&mut self, method: &str) -> Option<Response> {
        let mut interim = Vec::new();
        let head = loop {
            let head = self.head()?;
            if head.status < 200 {
                interim.push(head);
            } else {
                break head;
            }
        };
        let mut response = Response {
            status: head.status,
            phrase: head.phrase,
            headers: head.headers,
            body: Vec::new(),
            whole: true,
            interim,
        };
        // RFC 9112 §6.3
        if method == "HEAD" || matches!(response.status, 204 | 304) {
            return Some(response);
        }
        if response
            .all("transfer-encoding")
            .last()
            .map(|v| v.to_lowercase())
            == Some("chunked".into())
        {
            assert!(
                response.header("content-length").is_none(),
                "both framings: {response:?}"
            );
            response.whole = self.chunked(&mut response.body);
        } else if let Some(length) = response.header("content-length") {
            let length: usize = length.parse().expect("a length");
            response.whole = self.fill(length);
            let end = length.min(self.buffer.len());
            response.body = self.buffer.drain(..end).collect();
        } else {
            response.whole = self.until_closed();
            response.body = std::mem::take(&mut self.buffer);
        }
        Some(response)
    }

    /// Reads one head, interim or not. Returns none if the connection was closed before the first byte.
    #[track_caller]
    pub fn head(&mut self) -> Option<Head> {
        let mut lines = Vec::new();
        loop {
            let line = match self.line() {
                Some(line) => line,
                None if lines.is_empty() && self.buffer.is_empty() => return None,
                None => panic!(
                    "closed within a head: {lines:?} {:?}",
                    String::from_utf8_lossy(&self.buffer)
                ),
            };
            if line.is_empty() {
                break;
            }
            lines.push(String::from_utf8_lossy(&line).into_owned());
        }
        let mut words = lines.first().expect("a status line").splitn(3, ' ');
        let version = words.next().expect("a version");
        assert!(version.starts_with("HTTP/1."), "no HTTP: {lines:?}");
        let status = words
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a status");
        let phrase = words.next().unwrap_or_default().to_owned();
        let headers = lines[1..]
            .iter()
            .map(|line| {
                let (name, value) = line
                    .split_once(':')
                    .unwrap_or_else(|| panic!("no field: {line:?}"));
                (name.to_ascii_lowercase(), value.trim().to_owned())
            })
            .collect();
        Some(Head {
            status,
            phrase,
            headers,
        })
    }

    /// Reads one line, without its CRLF. Returns none if the connection was closed before its end.
    pub fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.buffer.drain(..at + 2).take(at).collect();
                return Some(line);
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// Reads one chunk of a chunked body. Returns none at the last chunk, or if the connection was closed.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.line()?;
        let size = String::from_utf8_lossy(&line);
        let size = size.split(';').next().unwrap_or_default().trim();
        let size =
            usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("a chunk's size: {line:?}"));
        if size == 0 {
            while !self.line()?.is_empty() {}
            return None;
        }
        if !self.fill(size + 2) {
            return None;
        }
        let chunk = self.buffer.drain(..size).collect();
        assert_eq!(
            self.buffer.drain(..2).collect::<Vec<u8>>(),
            b"\r\n",
            "a chunk's end"
        );
        Some(chunk)
    }

    /// Waits for the other side to close. Fails if it sends anything first.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let more = self.more();
        assert!(
            !more && self.buffer.is_empty(),
            "{:?}",
            String::from_utf8_lossy(&self.buffer)
        );
    }

    /// Whether nothing arrives for this long, and the connection stays open.
    pub fn quiet_for(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("timeout");
        let mut byte = [0];
        let result = self.stream.peek(&mut byte);
        self.stream
            .set_read_timeout(Some(self.patience))
            .expect("timeout");
        matches!(result, Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    /// Whether nothing more arrives: the connection is closed, or silent for a while.
    pub fn is_done(&mut self) -> bool {
        self.buffer.is_empty() && (self.quiet_for(Duration::from_millis(50)) || !self.more())
    }

    /// Everything until the other side closes, and whether it closed normally (no reset).
    pub fn rest(mut self) -> (Vec<u8>, bool) {
        let whole = self.until_closed();
        (self.buffer, whole)
    }

    fn chunked(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let Some(line) = self.line() else {
                body.append(&mut self.buffer);
                return false;
            };
            let text = String::from_utf8_lossy(&line).into_owned();
            let size = text.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16)
                .unwrap_or_else(|_| panic!("a chunk's size: {text:?}"));
            if size == 0 {
                return loop {
                    match self.line() {
                        Some(line) if line.is_empty() => break true,
                        Some(_) => {}
                        None => break false,
                    }
                };
            }
            let whole = self.fill(size + 2);
            body.extend(self.buffer.drain(..size.min(self.buffer.len())));
            if !whole {
                return false;
            }
            self.buffer.drain(..2);
        }
    }

    /// Reads until this many bytes have arrived. Returns false if the connection was closed before.
    fn fill(&mut self, length: usize) -> bool {
        while self.buffer.len() < length {
            if !self.more() {
                return false;
            }
        }
        true
    }

    fn until_closed(&mut self) -> bool {
        let mut bytes = [0; 65536];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => panic!("nothing came for {:?}", self.patience),
                Err(_) => return false,
            }
        }
    }

    /// Reads the available bytes. Returns false if the connection is closed.
    fn more(&mut self) -> bool {
        let mut bytes = [0; 65536];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => {
                    self.buffer.extend_from_slice(&bytes[..count]);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => panic!(
                    "nothing came for {:?} after {:?}",
                    self.patience,
                    String::from_utf8_lossy(&self.buffer)
                ),
                Err(_) => return false,
            }
        }
    }
}

impl Response {
    /// The only field of this name (lower case). Fails if there are two.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} stands more than once: {all:?}");
        all.first().copied()
    }

    /// All fields of this name (lower case).
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(field, _)| field == name);
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Fails unless the answer is complete and has this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Response {
        assert_eq!(self.status, status, "{:?}\n{}", self.headers, self.text());
        assert!(self.whole, "cut: {:?}\n{}", self.headers, self.text());
        self
    }

    /// Fails unless `Proxy-Status` gives this reason, in the name of weir (RFC 9209).
    #[track_caller]
    pub fn expect_reason(self, reason: &str) -> Response {
        let said = self.header("proxy-status").unwrap_or_default().to_owned();
        assert!(said.starts_with("weir"), "Proxy-Status: {said:?}");
        assert!(
            said.contains(reason),
            "Proxy-Status: {said:?}, expected {reason}"
        );
        self
    }
}

/// One field of a form or a head, percent-encoded (RFC 3986 §2.1) except for letters, digits and `-._~`.
pub fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte as char)
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The body of an HTML form.
pub fn form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
        .collect();
    pairs.join("&")
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
