//! A client of HTTP/2 that sends frames as a test wants them, the wrong ones too.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    version,
};

use crate::LIMIT;
use crate::authority::Authority;

/// A connection of HTTP/2.
pub struct Http2 {
    wire: Wire,
    /// What came and belongs to the next frames.
    ahead: Vec<u8>,
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// A client of TLS that offers HTTP/2, or HTTP/1, and keeps tickets.
pub struct TlsClient {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

/// A connection of TLS.
pub type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its type: [`DATA`] and so on.
    pub kind: u8,
    /// Its flags: [`END_STREAM`] and so on.
    pub flags: u8,
    /// The number of its stream; 0: the connection.
    pub stream: u32,
    /// What follows the head.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The code of a GOAWAY that says that something was wrong.
    pub fn error(&self) -> Option<u32> {
        let code = self.payload.get(4..8).filter(|_| self.kind == GOAWAY)?;
        let code = u32::from_be_bytes(code.try_into().ok()?);
        (code != 0).then_some(code)
    }
}

/// What came on a stream until its end.
#[derive(Debug, Default)]
pub struct Answer {
    /// Of the heads, in order: the statuses that have a number in HPACK's table; 0 for all others.
    pub statuses: Vec<u16>,
    /// The bytes of DATA.
    pub body: Vec<u8>,
    /// The code of RST_STREAM.
    pub reset: Option<u32>,
}

impl TlsClient {
    /// Trusts `authority`. `only_tls12`: it does not offer TLS 1.3.
    pub fn new(authority: &Authority, only_tls12: bool) -> TlsClient {
        let versions = match only_tls12 {
            true => &[&version::TLS12][..],
            false => &[&version::TLS13][..],
        };
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(authority.file()).expect("a certificate");
        roots.add(certificate).expect("an authority");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let offering = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        TlsClient {
            http1: offering(b"http/1.1"),
            http2: offering(b"h2"),
        }
    }

    /// Shakes hands on `socket` for `host`, and speaks HTTP/1.
    #[track_caller]
    pub fn http1(&self, socket: TcpStream, host: &str) -> TlsStream {
        shake_hands(&self.http1, socket, host)
    }

    /// Whether the handshake was a short one.
    pub fn is_resumed(stream: &TlsStream) -> bool {
        stream.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Shakes hands on `socket` for `host`, and begins HTTP/2 with these SETTINGS.
    #[track_caller]
    pub fn http2(&self, socket: TcpStream, host: &str, settings: &[(u16, u32)]) -> Http2 {
        let stream = shake_hands(&self.http2, socket, host);
        Http2::begin(Wire::Tls(Box::new(stream)), settings)
    }
}

#[track_caller]
fn shake_hands(config: &Arc<ClientConfig>, mut socket: TcpStream, host: &str) -> TlsStream {
    let name = ServerName::try_from(host.to_owned()).expect("a name");
    socket.set_nodelay(true).expect("TCP_NODELAY");
    socket.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let mut session = ClientConnection::new(config.clone(), name).expect("a session");
    while session.is_handshaking() {
        session.complete_io(&mut socket).expect("a handshake");
    }
    let wanted = config.alpn_protocols.first().map(Vec::as_slice);
    assert_eq!(session.alpn_protocol(), wanted, "ALPN");
    StreamOwned::new(session, socket)
}

impl Http2 {
    /// Connects without TLS, and sends the preface and these SETTINGS.
    #[track_caller]
    pub fn connect(address: SocketAddr, settings: &[(u16, u32)]) -> Http2 {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        Http2::begin(Wire::Plain(stream), settings)
    }

    /// Connects without TLS, and sends nothing but these bytes.
    #[track_caller]
    pub fn connect_with(address: SocketAddr, begin: &[u8]) -> Http2 {
        let wire = Wire::Plain(TcpStream::connect(address).expect("a connection"));
        let ahead = Vec::new();
        let mut client = Http2 { wire, ahead };
        client.raw(begin);
        client
    }

    fn begin(wire: Wire, settings: &[(u16, u32)]) -> Http2 {
        let ahead = Vec::new();
        let mut client = Http2 { wire, ahead };
        client.raw(PREFACE).frame(SETTINGS, 0, 0, &list(settings));
        client
    }

    /// Whether the handshake of TLS was a short one.
    pub fn is_resumed(&self) -> bool {
        match &self.wire {
            Wire::Plain(_) => false,
            Wire::Tls(stream) => TlsClient::is_resumed(stream),
        }
    }

    /// Sends bytes.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Http2 {
        self.try_raw(bytes);
        self
    }

    /// Sends bytes. False: weir has closed the connection, or does not read.
    pub fn try_raw(&mut self, bytes: &[u8]) -> bool {
        let timeout = Some(LIMIT);
        self.stream().set_write_timeout(timeout).expect("a timeout");
        match &mut self.wire {
            Wire::Plain(stream) => stream.write_all(bytes).is_ok(),
            Wire::Tls(stream) => stream.write_all(bytes).is_ok(),
        }
    }

    /// Waits for bytes until there are so many. `limit`: for the first of them. False: they do not come.
    fn wait_for(&mut self, count: usize, limit: Duration) -> bool {
        while self.ahead.len() < count {
            let limit = match self.ahead.is_empty() {
                true => limit,
                false => LIMIT,
            };
            let timeout = Some(limit);
            self.stream().set_read_timeout(timeout).expect("a timeout");
            let mut bytes = [0; 8192];
            let read = match &mut self.wire {
                Wire::Plain(stream) => stream.read(&mut bytes),
                Wire::Tls(stream) => stream.read(&mut bytes),
            };
            match read {
                Ok(0) | Err(_) => return false,
                Ok(count) => self.ahead.extend_from_slice(&bytes[..count]),
            }
        }
        true
    }

    /// Sends a frame.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> &mut Http2 {
        self.raw(&frame(kind, flags, stream, payload))
    }

    /// Sends the head of a request, and its end if `is_last`.
    pub fn head(&mut self, stream: u32, fields: &[(&str, &str)], is_last: bool) -> &mut Http2 {
        let flags = END_HEADERS | if is_last { END_STREAM } else { 0 };
        self.frame(HEADERS, flags, stream, &block(fields))
    }

    /// Sends a GET, with fields besides the usual ones.
    pub fn get(&mut self, stream: u32, path: &str, more: &[(&str, &str)]) -> &mut Http2 {
        let fields = [&usual("GET", path)[..], more].concat();
        self.head(stream, &fields, true)
    }

    /// Allows more bytes on a stream; 0: on the connection.
    pub fn allow(&mut self, stream: u32, bytes: u32) -> &mut Http2 {
        self.frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
    }

    /// The next frame within `limit`; `None`: none came, or the connection is closed.
    pub fn next_within(&mut self, limit: Duration) -> Option<Frame> {
        if !self.wait_for(HEAD, limit) {
            return None;
        }
        let head: [u8; HEAD] = self.ahead[..HEAD].try_into().ok()?;
        let whole = HEAD + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        if !self.wait_for(whole, LIMIT) {
            return None;
        }
        let payload = self.ahead[HEAD..whole].to_vec();
        self.ahead.drain(..whole);
        let frame = Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        };
        match (frame.kind, frame.flags & ACK) {
            (SETTINGS, 0) => _ = self.frame(SETTINGS, ACK, 0, &[]),
            (PING, 0) => _ = self.frame(PING, ACK, 0, &frame.payload.clone()),
            _ => {}
        }
        Some(frame)
    }

    /// The next frame; `None`: the connection is closed. It acknowledges SETTINGS and PING.
    pub fn receive(&mut self) -> Option<Frame> {
        self.next_within(LIMIT)
    }

    /// The next frame of this kind. Others are skipped.
    #[track_caller]
    pub fn expect(&mut self, kind: u8) -> Frame {
        loop {
            match self.receive() {
                Some(frame) if frame.kind == kind => return frame,
                Some(_) => {}
                None => panic!("no frame of kind {kind}"),
            }
        }
    }

    /// The next frame of one of these kinds. Others are skipped.
    #[track_caller]
    pub fn expect_one_of(&mut self, kinds: &[u8]) -> Frame {
        loop {
            match self.receive() {
                Some(frame) if kinds.contains(&frame.kind) => return frame,
                Some(_) => {}
                None => panic!("no frame of the kinds {kinds:?}"),
            }
        }
    }

    /// The code of the GOAWAY that says what was wrong; `None`: the connection was closed without it.
    pub fn went_away(&mut self) -> Option<u32> {
        let until = Instant::now() + LIMIT;
        while let Some(frame) = self.receive() {
            if let Some(code) = frame.error() {
                return Some(code);
            }
            assert!(Instant::now() < until, "no GOAWAY");
        }
        None
    }

    /// What comes on a stream until its end. Other streams are skipped. Each byte that comes is allowed again.
    #[track_caller]
    pub fn answer(&mut self, stream: u32) -> Answer {
        self.read_answer(stream, true)
    }

    /// As [`Self::answer`], but nothing is allowed again.
    #[track_caller]
    pub fn answer_without_room(&mut self, stream: u32) -> Answer {
        self.read_answer(stream, false)
    }

    #[track_caller]
    fn read_answer(&mut self, stream: u32, allows: bool) -> Answer {
        let mut answer = Answer::default();
        loop {
            let frame = self
                .receive()
                .unwrap_or_else(|| panic!("the connection is closed: {answer:?}"));
            if allows && frame.kind == DATA && !frame.payload.is_empty() {
                self.allow(0, frame.payload.len() as u32);
            }
            if frame.stream != stream {
                continue;
            }
            match frame.kind {
                HEADERS => answer.statuses.push(status(&frame.payload)),
                DATA => {
                    answer.body.extend_from_slice(&frame.payload);
                    if allows && !frame.payload.is_empty() && frame.flags & END_STREAM == 0 {
                        self.allow(stream, frame.payload.len() as u32);
                    }
                }
                RST_STREAM => {
                    let code = frame.payload[..].try_into().expect("four bytes");
                    answer.reset = Some(u32::from_be_bytes(code));
                    return answer;
                }
                _ => {}
            }
            if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
                return answer;
            }
        }
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        match &self.wire {
            Wire::Plain(stream) => stream,
            Wire::Tls(stream) => &stream.sock,
        }
    }
}

/// Runs all cases of h2spec. Returns how many passed, and the titles of those that failed.
pub fn h2spec(address: SocketAddr, words: &[&str]) -> (u32, Vec<String>) {
    let output = Command::new(crate::built::tool("h2spec"))
        .args(["--strict", "--host", &address.ip().to_string()])
        .args(["--port", &address.port().to_string()])
        .args(["--timeout", &LIMIT.as_secs().to_string()])
        .args(words)
        .output()
        .expect("h2spec");
    let said = String::from_utf8_lossy(&output.stdout);
    let count = said.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once(" tests, ")?;
        rest.split_once(" passed")?.0.parse().ok()
    });
    // It lists them at the end, after their sections.
    let list = said.split_once("Failures:").map_or("", |(_, list)| list);
    let failed = list.lines().filter_map(|line| line.split_once("\u{d7} "));
    let failed = failed.map(|(_, title)| title.to_owned()).collect();
    (count.unwrap_or_else(|| panic!("{said}")), failed)
}

/// The pseudo-header fields of a request to the host `a`.
pub fn usual<'t>(method: &'t str, path: &'t str) -> [(&'t str, &'t str); 4] {
    [
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
    ]
}

/// A frame's bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A header block without compression (RFC 7541 §6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            let mut length = text.len();
            if length < 127 {
                block.push(length as u8);
            } else {
                block.push(127);
                length -= 127;
                while length >= 128 {
                    block.push(length as u8 | 128);
                    length >>= 7;
                }
                block.push(length as u8);
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn list(settings: &[(u16, u32)]) -> Vec<u8> {
    let each = settings.iter().map(|(id, value)| {
        let (id, value) = (id.to_be_bytes(), value.to_be_bytes());
        [&id[..], &value[..]].concat()
    });
    each.flatten().collect()
}

/// The payload of SETTINGS.
pub fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    list(settings)
}

/// The status at the beginning of a header block, if it is in HPACK's static table.
fn status(block: &[u8]) -> u16 {
    // An update of the table's size may come first.
    let first = block.iter().find(|byte| **byte & 0xe0 != 0x20);
    match first.copied().unwrap_or_default() {
        0x88 => 200,
        0x89 => 204,
        0x8a => 206,
        0x8b => 304,
        0x8c => 400,
        0x8d => 404,
        0x8e => 500,
        _ => 0,
    }
}

/// Bytes of the head of a frame.
const HEAD: usize = 9;

/// With which a connection begins.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A type of frames.
pub const DATA: u8 = 0;
/// A type of frames.
pub const HEADERS: u8 = 1;
/// A type of frames.
pub const PRIORITY: u8 = 2;
/// A type of frames.
pub const RST_STREAM: u8 = 3;
/// A type of frames.
pub const SETTINGS: u8 = 4;
/// A type of frames.
pub const PING: u8 = 6;
/// A type of frames.
pub const GOAWAY: u8 = 7;
/// A type of frames.
pub const WINDOW_UPDATE: u8 = 8;
/// A type of frames.
pub const CONTINUATION: u8 = 9;
/// A type of frames.
pub const PRIORITY_UPDATE: u8 = 16;

/// A flag.
pub const ACK: u8 = 1;
/// A flag.
pub const END_STREAM: u8 = 1;
/// A flag.
pub const END_HEADERS: u8 = 4;

/// SETTINGS_INITIAL_WINDOW_SIZE.
pub const INITIAL_WINDOW: u16 = 4;

/// A code of errors.
pub const PROTOCOL_ERROR: u32 = 1;
/// A code of errors.
pub const INTERNAL_ERROR: u32 = 2;
/// A code of errors.
pub const REFUSED_STREAM: u32 = 7;
/// A code of errors.
pub const CANCEL: u32 = 8;
/// A code of errors.
pub const ENHANCE_YOUR_CALM: u32 = 11;
