//! One connection and its requests: connects, sends, reads the whole answer, and reports how it ended.

use std::{
    borrow::Cow,
    cell::Cell,
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, header};
use http_body::Body;
use http_body_util::Full;
use tokio::net::{TcpSocket, UnixStream};
use weir_http1::{Error as Malformed, Limits, Name};
use weir_net::Socket;
use weir_upstream::h1::{self, Error};

use super::{
    record::{Failure, Outcome},
    target::Endpoint,
};

/// How to reach the server.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Where it listens.
    pub place: Endpoint,
    /// The address to connect from; `None`: the kernel chooses.
    pub source: Option<IpAddr>,
}

/// A connection to the server. It is closed when it is dropped, in any state.
#[derive(Debug)]
pub struct Connection(Box<h1::Connection<Socket>>);

/// The additional effort of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// New connections for it.
    pub connections: u64,
    /// How often it was sent again because the server had closed the kept connection.
    pub sent_again: u64,
}

/// Sends a request over the connection in `slot`, or over a new one, which is left there if it can be used again, and
/// reads the answer. After `limit` the connection is closed.
pub async fn exchange(
    dial: &Dial,
    slot: &mut Option<Connection>,
    request: &Request<Full<Bytes>>,
    limit: Instant,
) -> (Outcome, Cost) {
    let cost = Cell::new(Cost::default());
    let connecting = Cell::new(false);
    let limit = tokio::time::Instant::from_std(limit);
    let attempt = attempt(dial, slot, request, &cost, &connecting);
    let outcome = match tokio::time::timeout_at(limit, attempt).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(failure)) => {
            *slot = None;
            Outcome::Failed(failure)
        }
        Err(_) => {
            *slot = None;
            Outcome::Failed(match connecting.get() {
                true => Failure::ConnectTimeout,
                false => Failure::Timeout,
            })
        }
    };
    (outcome, cost.get())
}

async fn attempt(
    dial: &Dial,
    slot: &mut Option<Connection>,
    request: &Request<Full<Bytes>>,
    cost: &Cell<Cost>,
    connecting: &Cell<bool>,
) -> Result<Outcome, Failure> {
    // If the server has closed it meanwhile, this is no failure: it may do so at any time (RFC 9112 §9.5).
    if let Some(kept) = slot
        && kept.is_open().await
    {
        match kept.send(request).await {
            Ok(()) => return answer(slot).await,
            Err(error) => {
                let unseen = matches!(error, Error::Unsent(_));
                if !(unseen || is_end(&error) && request.method().is_idempotent()) {
                    return Err(failure(&error));
                }
                add(cost, |cost| cost.sent_again += 1);
            }
        }
    }
    // The old connection is closed first, in case there are few descriptors.
    drop(slot.take());
    connecting.set(true);
    let mut fresh = connect(dial).await?;
    connecting.set(false);
    add(cost, |cost| cost.connections += 1);
    let sent = fresh.send(request).await;
    *slot = Some(fresh);
    match sent {
        Ok(()) => answer(slot).await,
        Err(error) => Err(failure(&error)),
    }
}

fn add(cost: &Cell<Cost>, change: impl FnOnce(&mut Cost)) {
    let mut now = cost.get();
    change(&mut now);
    cost.set(now);
}

/// Reads an answer to its end.
async fn answer(slot: &mut Option<Connection>) -> Result<Outcome, Failure> {
    let (mut status, mut reason, mut retry_after, mut bytes) = (0, None, None, 0);
    if let Some(Connection(client)) = slot {
        let head = client.head();
        status = head.status();
        if status / 100 != 2 {
            reason = proxy_status(head.fields());
            let value = head.fields().get(Name::RetryAfter);
            retry_after = value.and_then(|value| str::from_utf8(value).ok()?.trim().parse().ok());
        }
        while let Some(frame) = poll_fn(|cx| client.poll_frame(cx)).await {
            let frame = frame.map_err(|error| in_body(&error))?;
            bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        match client.is_reusable() {
            true => client.shrink(),
            false => *slot = None,
        }
    }
    Ok(Outcome::Answered {
        status,
        reason,
        bytes,
        retry_after,
    })
}

async fn connect(dial: &Dial) -> Result<Connection, Failure> {
    let socket = open(dial).await.map_err(|error| connect_failure(&error))?;
    Ok(Connection(Box::new(h1::Connection::new(socket, LIMITS))))
}

/// Only connects, as a request would.
///
/// # Errors
/// As connect(2); `TimedOut` after `limit`.
pub async fn knock(dial: &Dial, limit: Duration) -> io::Result<()> {
    match tokio::time::timeout(limit, open(dial)).await {
        Ok(opened) => opened.map(drop),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn open(dial: &Dial) -> io::Result<Socket> {
    match &dial.place {
        Endpoint::Tcp(address) => tcp(*address, dial.source).await.map(Socket::Tcp),
        Endpoint::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
    }
}

async fn tcp(address: SocketAddr, source: Option<IpAddr>) -> io::Result<tokio::net::TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    let stream = socket.connect(address).await?;
    // A request is a single write; Nagle's algorithm would only delay it.
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Connection {
    /// Sends a request, and waits for the head of its answer.
    async fn send(&mut self, request: &Request<Full<Bytes>>) -> Result<(), Error> {
        let uri = request.uri();
        let whole;
        let target = match (uri.authority(), uri.path_and_query()) {
            (None, Some(path)) => path.as_str(),
            _ => {
                whole = uri.to_string();
                &whole
            }
        };
        let length = request.body().size_hint().exact();
        let mut lines = Vec::new();
        for (name, value) in request.headers() {
            if *name != header::CONTENT_LENGTH && *name != header::TRANSFER_ENCODING {
                let parts = [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"];
                parts.iter().for_each(|part| lines.extend_from_slice(part));
            }
        }
        let says_length = request.headers().contains_key(header::CONTENT_LENGTH);
        let Connection(client) = self;
        client.begin(&h1::Request {
            method: request.method(),
            target: target.as_bytes(),
            lines: &lines,
            length,
            says_empty: says_length,
        })?;
        client.exchange(&mut Some(request.body().clone())).await
    }

    /// Whether the server has left the kept connection open and silent.
    async fn is_open(&mut self) -> bool {
        poll_fn(|cx| Poll::Ready(self.0.is_open(cx))).await
    }
}

fn connect_failure(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(EMFILE | ENFILE) => Failure::NoDescriptor,
        _ => match error.kind() {
            io::ErrorKind::ConnectionRefused => Failure::ConnectRefused,
            // connect(2): EAGAIN of a unix socket that does not block.
            io::ErrorKind::WouldBlock => Failure::AcceptQueueFull,
            io::ErrorKind::AddrNotAvailable => Failure::NoPort,
            io::ErrorKind::TimedOut => Failure::ConnectTimeout,
            _ => Failure::ConnectFailed,
        },
    }
}

/// The failure before the head of an answer.
fn failure(error: &Error) -> Failure {
    match error {
        Error::Answer(Malformed::Truncated) => Failure::Closed,
        Error::Answer(_) | Error::Endless | Error::Switched => Failure::BadResponse,
        Error::Read(error) | Error::Write(error) | Error::Unsent(error)
            if error.kind() == io::ErrorKind::ConnectionReset =>
        {
            Failure::Reset
        }
        _ => Failure::Closed,
    }
}

/// The failure after it.
fn in_body(error: &Error) -> Failure {
    match error {
        Error::Answer(Malformed::Truncated) => Failure::Truncated,
        Error::Answer(_) => Failure::BadResponse,
        _ => Failure::Truncated,
    }
}

/// Whether the connection ended before an answer.
fn is_end(error: &Error) -> bool {
    matches!(
        error,
        Error::Closed | Error::Write(_) | Error::Read(_) | Error::Answer(Malformed::Truncated)
    )
}

/// The details of the last member, otherwise its error (RFC 9209 §2): weir puts its reason there.
fn proxy_status(fields: &weir_http1::ParsedFields) -> Option<Cow<'static, str>> {
    let text = str::from_utf8(fields.all(Name::ProxyStatus).last()?).ok()?;
    let parameter = |name: &str| {
        let rest = text.rsplit_once(name)?.1;
        let word = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next(),
            None => rest.split([';', ',', ' ']).next(),
        };
        word.filter(|word| !word.is_empty())
    };
    let word = parameter("details=").or_else(|| parameter("error="))?;
    // The text comes from the server and is shown on terminals and pages.
    let plain = |c: &char| c.is_ascii_alphanumeric() || "_-. :".contains(*c);
    let word: String = word.chars().filter(plain).take(LONGEST_REASON).collect();
    (!word.is_empty()).then(|| known(word))
}

/// Avoids an allocation for weir's own words.
fn known(word: String) -> Cow<'static, str> {
    let words = [
        "queue_full",
        "queue_timeout",
        "no_worker",
        "worker_died",
        "bad_response",
        "terminated",
    ];
    match words.into_iter().find(|known| *known == word) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(word),
    }
}

/// Longer heads are refused.
const LIMITS: Limits = Limits {
    head: 64 << 10,
    fields: 100,
    chunk_extensions: 16 << 10,
};

/// Maximum length of a reason, characters.
const LONGEST_REASON: usize = 64;

/// The process has no descriptor left (errno(3)).
const EMFILE: i32 = 24;

/// The machine has none left.
const ENFILE: i32 = 23;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_reason_is_short_and_plain_whatever_is_sent(value in "\\PC{0,300}", name in "(details|error)=\"?") {
            let mut fields = weir_http1::ParsedFields::default();
            fields.push(b"proxy-status", format!("x; {name}{value}").as_bytes());
            if let Some(reason) = proxy_status(&fields) {
                prop_assert!(reason.len() <= LONGEST_REASON && reason.is_ascii());
                let markup = reason.contains(['<', '"', '\u{1b}']);
                prop_assert!(!markup);
            }
        }
    }

    #[test]
    fn the_reason_is_the_last_proxys() {
        let reason = |values: &[&str]| {
            let mut fields = weir_http1::ParsedFields::default();
            for value in values {
                fields.push(b"proxy-status", value.as_bytes());
            }
            proxy_status(&fields).map(Cow::into_owned)
        };
        assert_eq!(reason(&[]), None);
        assert_eq!(
            reason(&["weir; error=connection_limit_reached; details=\"queue_full\""]).as_deref(),
            Some("queue_full")
        );
        assert_eq!(
            reason(&["a; details=\"x\", weir; error=dns_error"]).as_deref(),
            Some("x")
        );
        assert_eq!(
            reason(&["a; error=dns_error, b"]).as_deref(),
            Some("dns_error")
        );
        assert_eq!(reason(&["nothing"]), None);
        assert_eq!(
            reason(&["a; details=\"<b>\u{9}x&y\""]).as_deref(),
            Some("bxy")
        );
        let long = format!("a; details=\"{}\"", "x".repeat(500));
        assert_eq!(reason(&[&long]).unwrap().len(), LONGEST_REASON);
    }

    #[test]
    fn failures_to_connect_are_told_apart() {
        let of = |number| connect_failure(&io::Error::from_raw_os_error(number));
        assert_eq!(of(EMFILE), Failure::NoDescriptor);
        assert_eq!(of(111), Failure::ConnectRefused);
        assert_eq!(of(99), Failure::NoPort);
        assert_eq!(of(113), Failure::ConnectFailed);
        assert_eq!(of(11), Failure::AcceptQueueFull);
    }
}
