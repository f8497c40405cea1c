//! One connection and its requests: connects, sends, reads the whole answer, and reports how it ended.

use std::{
    borrow::Cow,
    cell::Cell,
    io,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpSocket, UnixStream},
    task::AbortHandle,
};

use super::{
    record::{Failure, Outcome},
    target::Place,
};

/// How to reach the server.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Where it listens.
    pub place: Place,
    /// The address to connect from; `None`: the kernel chooses.
    pub source: Option<IpAddr>,
}

/// A connection to the server. It is closed when it is dropped, in any state.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
}

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
        && kept.sender.ready().await.is_ok()
    {
        match kept.sender.try_send_request(request.clone()).await {
            Ok(response) => return answer(response, slot).await,
            Err(error) => {
                let unseen = error.message().is_some();
                let error = error.into_error();
                let gone = error.is_canceled() || error.is_closed() || is_end(&error);
                if !(unseen || gone && request.method().is_idempotent()) {
                    return Err(failure(&error));
                }
                add(cost, |cost| cost.sent_again += 1);
            }
        }
    }
    // The old one is closed first, in case descriptors are few.
    drop(slot.take());
    connecting.set(true);
    let mut fresh = connect(dial).await?;
    connecting.set(false);
    add(cost, |cost| cost.connections += 1);
    let sent = fresh.sender.send_request(request.clone()).await;
    *slot = Some(fresh);
    match sent {
        Ok(response) => answer(response, slot).await,
        Err(error) => Err(failure(&error)),
    }
}

fn add(cost: &Cell<Cost>, change: impl FnOnce(&mut Cost)) {
    let mut now = cost.get();
    change(&mut now);
    cost.set(now);
}

/// Reads an answer to its end.
async fn answer(
    response: Response<Incoming>,
    slot: &mut Option<Connection>,
) -> Result<Outcome, Failure> {
    let status = response.status();
    if status.is_informational() {
        // A 101 that was not requested; hyper skips all other 1xx responses.
        return Err(Failure::BadResponse);
    }
    let reason = match status.is_success() {
        true => None,
        false => proxy_status(response.headers()),
    };
    let retry_after = match status.is_success() {
        true => None,
        false => response.headers().get(header::RETRY_AFTER),
    };
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let mut bytes = 0;
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| in_body(&error))?;
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
    if slot.as_ref().is_some_and(|used| used.sender.is_closed()) {
        *slot = None;
    }
    Ok(Outcome::Answered {
        status: status.as_u16(),
        reason,
        bytes,
        retry_after,
    })
}

async fn connect(dial: &Dial) -> Result<Connection, Failure> {
    let connected = match &dial.place {
        Place::Tcp(address) => match tcp(*address, dial.source).await {
            Ok(stream) => handshake(stream).await,
            Err(error) => return Err(connect_failure(&error)),
        },
        Place::Unix(path) => match UnixStream::connect(path).await {
            Ok(stream) => handshake(stream).await,
            Err(error) => return Err(connect_failure(&error)),
        },
    };
    connected.map_err(|error| failure(&error))
}

/// Only connects, as a request would.
///
/// # Errors
/// As connect(2); `TimedOut` after `limit`.
pub async fn knock(dial: &Dial, limit: Duration) -> io::Result<()> {
    let knock = async {
        match &dial.place {
            Place::Tcp(address) => tcp(*address, dial.source).await.map(drop),
            Place::Unix(path) => UnixStream::connect(path).await.map(drop),
        }
    };
    match tokio::time::timeout(limit, knock).await {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
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

async fn handshake<T>(stream: T) -> hyper::Result<Connection>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(BUFFER)
        .handshake(TokioIo::new(stream))
        .await?;
    // The requests on it report how it ended.
    let task = tokio::task::spawn_local(async move { drop(connection.await) });
    Ok(Connection {
        sender,
        task: task.abort_handle(),
    })
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
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
fn failure(error: &hyper::Error) -> Failure {
    if error.is_parse() {
        return Failure::BadResponse;
    }
    match cause(error).map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionReset) => Failure::Reset,
        Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => Failure::BadResponse,
        _ => Failure::Closed,
    }
}

/// The failure after it.
fn in_body(error: &hyper::Error) -> Failure {
    match cause(error).map(io::Error::kind) {
        Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => Failure::BadResponse,
        _ if error.is_parse() => Failure::BadResponse,
        _ => Failure::Truncated,
    }
}

/// Whether the connection ended before any part of an answer came.
fn is_end(error: &hyper::Error) -> bool {
    error.is_incomplete_message()
        || matches!(
            cause(error).map(io::Error::kind),
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
        )
}

fn cause(error: &hyper::Error) -> Option<&io::Error> {
    let mut next = std::error::Error::source(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        next = error.source();
    }
    None
}

/// The details of the last member, otherwise its error (RFC 9209 §2): weir puts its reason there.
fn proxy_status(headers: &HeaderMap) -> Option<Cow<'static, str>> {
    let value = headers.get_all("proxy-status").iter().next_back()?;
    let text = value.to_str().ok()?;
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

/// Buffer size of each connection, bytes: longer heads are refused.
const BUFFER: usize = 64 << 10;

/// Maximum length of a reason, characters.
const LONGEST_REASON: usize = 64;

/// The process has no descriptor left (errno(3)).
const EMFILE: i32 = 24;

/// The machine has none left.
const ENFILE: i32 = 23;

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_reason_is_short_and_plain_whatever_is_sent(value in "\\PC{0,300}", name in "(details|error)=\"?") {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_str(&format!("x; {name}{value}")) {
                headers.insert("proxy-status", value);
            }
            if let Some(reason) = proxy_status(&headers) {
                prop_assert!(reason.len() <= LONGEST_REASON && reason.is_ascii());
                let markup = reason.contains(['<', '"', '\u{1b}']);
                prop_assert!(!markup);
            }
        }
    }

    #[test]
    fn the_reason_is_the_last_proxys() {
        let reason = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("proxy-status", HeaderValue::from_str(value).unwrap());
            }
            proxy_status(&headers).map(Cow::into_owned)
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
