//! A request that waits in its pool's queue for long: it is kept without hyper, which would hold three buffers.
//!
//! ```text
//! hyper reads the head ─► Service::call ─► Work ◄─polls─ hyper
//!                                           ▲
//!   hyper is put down: wait() ──────polls───┘        the client is watched, what it sends is kept
//!                        │
//!                        └─► the answer ─► hyper anew, over a head that says no more than hyper needs to write it
//! ```
//! The future of the request is in [`Work`]. hyper polls it there; the connection's task polls it once hyper is
//! dropped. A new hyper writes the answer. Its input is an artificial request of the same version, which keeps the
//! connection open or not as the client's request does. The artificial request is not counted: logs, limits and the
//! client see one request.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    Method, Request, Response, Version,
    header::{CONNECTION, TRANSFER_ENCODING},
};
use hyper::body::Incoming;
use tokio::io::AsyncWrite;

use super::super::{
    body::Outgoing,
    client_io::{ClientIo, Conn, Socket},
};
use crate::clock;

pub(super) type Answer = Response<Outgoing>;

/// The request that a connection is processing, for the task that polls it; at most one.
pub(super) struct Work<F>(Mutex<State<F>>);

struct State<F> {
    /// Its future, in a box that is reused for later requests. None before the first request: an idle connection has no room
    /// for one.
    at_work: Option<Pin<Box<Option<F>>>>,
    outline: Option<Outline>,
    /// The answer to the next head, which is an artificial one.
    answer: Option<Box<Answer>>,
}

/// The service that hyper calls for requests: `begin` makes a request's future.
pub(super) struct Service<'b, B, F> {
    pub(super) work: Arc<Work<F>>,
    pub(super) begin: &'b B,
}

/// What hyper polls: the current request, or the answer that is ready.
pub(super) struct Answering<F>(Arc<Work<F>>);

/// The parts of a request's head that decide how its answer is written (RFC 9112 §6, §9.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outline {
    is_head: bool,
    is_http_10: bool,
    keeps_alive: bool,
}

/// Continues the current request without hyper until its answer is ready. `ahead`: bytes that were read behind the
/// request. Returns the socket and what a new hyper reads first; `None` if the client left.
pub(super) async fn wait<F>(
    conn: &Arc<Conn>,
    socket: Socket,
    ahead: Bytes,
    work: &Work<F>,
) -> (Socket, Option<Bytes>)
where
    F: Future<Output = Result<Answer, Infallible>>,
{
    let mut io = ClientIo::new(socket, conn.clone(), ahead);
    conn.put_down_hyper(true);
    let stays = poll_fn(|cx| {
        clock::frozen(|| {
            // Flushes first, as hyper does: a request whose client has left is not started.
            if let Poll::Ready(Err(_)) = Pin::new(&mut io).poll_flush(cx) {
                return Poll::Ready(false);
            }
            let mut work = work.state();
            work.poll(cx).map(|answer| {
                work.answer = Some(Box::new(answer));
                true
            })
        })
    })
    .await;
    conn.put_down_hyper(false);
    let (socket, ahead) = io.into_parts();
    let outline = work.state().outline.filter(|_| stays);
    (socket, outline.map(|outline| outline.before(&ahead)))
}

impl<F> Work<F> {
    pub(super) fn new() -> Arc<Work<F>> {
        Arc::new(Work(Mutex::new(State {
            at_work: None,
            outline: None,
            answer: None,
        })))
    }

    /// Whether a different hyper than the one that read the request can write its answer.
    pub(super) fn can_wait(&self) -> bool {
        let state = self.state();
        state.at_work.as_ref().is_some_and(|work| work.is_some()) && state.outline.is_some()
    }

    /// Whether there is an answer whose artificial head hyper has not read yet.
    pub(super) fn has_answer(&self) -> bool {
        self.state().answer.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State<F>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Future<Output = Result<Answer, Infallible>>> State<F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        let Some(room) = &mut self.at_work else {
            return Poll::Pending;
        };
        let Some(at_work) = room.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        let Ok(answer) = ready!(at_work.poll(cx));
        room.set(None);
        Poll::Ready(answer)
    }
}

impl<B, F> hyper::service::Service<Request<Incoming>> for Service<'_, B, F>
where
    B: Fn(Request<Incoming>) -> F,
    F: Future<Output = Result<Answer, Infallible>>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Answering<F>;

    fn call(&self, request: Request<Incoming>) -> Answering<F> {
        let mut state = self.work.state();
        if state.answer.is_none() {
            state.outline = Outline::of(&request);
            let room = state.at_work.get_or_insert_with(|| Box::pin(None));
            room.set(Some((self.begin)(request)));
        }
        Answering(self.work.clone())
    }
}

impl<F: Future<Output = Result<Answer, Infallible>>> Future for Answering<F> {
    type Output = Result<Answer, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        match state.answer.take() {
            Some(answer) => Poll::Ready(Ok(*answer)),
            None => state.poll(cx).map(Ok),
        }
    }
}

impl Outline {
    /// `None` if the parts of the head that hyper passes on do not tell whether the connection is kept. (After a
    /// request with both Transfer-Encoding and Content-Length it is closed, RFC 9112 §6.1, and hyper removes the
    /// latter.)
    fn of<T: http_body::Body>(request: &Request<T>) -> Option<Outline> {
        let headers = request.headers();
        // A chunked body has no known length, so it does not count as ended.
        if !request.body().is_end_stream() && headers.contains_key(TRANSFER_ENCODING) {
            return None;
        }
        let is_http_10 = request.version() == Version::HTTP_10;
        let (mut closes, mut keeps) = (false, !is_http_10);
        for value in headers.get_all(CONNECTION) {
            for said in value.to_str().unwrap_or_default().split(',') {
                closes |= said.trim().eq_ignore_ascii_case("close");
                keeps |= said.trim().eq_ignore_ascii_case("keep-alive");
            }
        }
        Some(Outline {
            is_head: request.method() == Method::HEAD,
            is_http_10,
            keeps_alive: keeps && !closes,
        })
    }

    /// An artificial head with these properties, followed by the bytes that the client has sent (`ahead`).
    fn before(self, ahead: &[u8]) -> Bytes {
        let method: &[u8] = if self.is_head { b"HEAD" } else { b"GET" };
        let version: &[u8] = if self.is_http_10 { b"1.0" } else { b"1.1" };
        let keeps: &[u8] = if self.keeps_alive {
            b"keep-alive"
        } else {
            b"close"
        };
        let head = [
            method,
            b" / HTTP/",
            version,
            b"\r\nconnection: ",
            keeps,
            b"\r\n\r\n",
            ahead,
        ];
        head.concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(method: &str, version: Version, connection: &[&str]) -> Option<Outline> {
        let mut request = Request::builder().method(method).version(version);
        for value in connection {
            request = request.header(CONNECTION, *value);
        }
        let body = http_body_util::Empty::<Bytes>::new();
        Outline::of(&request.body(body).unwrap())
    }

    #[test]
    fn a_connection_that_has_asked_for_nothing_holds_no_room_for_a_request() {
        let work = Work::<std::future::Ready<Result<Answer, Infallible>>>::new();
        assert!(work.state().at_work.is_none() && !work.can_wait());
        work.state().at_work = Some(Box::pin(None));
        assert!(!work.can_wait(), "there is room, and no request");
    }

    #[test]
    fn a_connection_is_kept_as_its_request_says() {
        for (version, connection, keeps_alive) in [
            (Version::HTTP_11, &[][..], true),
            (Version::HTTP_11, &["close"], false),
            (Version::HTTP_11, &["upgrade, Close"], false),
            (Version::HTTP_11, &["close", "keep-alive"], false),
            (Version::HTTP_10, &[], false),
            (Version::HTTP_10, &["Keep-Alive"], true),
            (Version::HTTP_10, &["keep-alive", "close"], false),
        ] {
            let outline = outline("POST", version, connection).unwrap();
            assert_eq!(
                outline.keeps_alive, keeps_alive,
                "{version:?} {connection:?}"
            );
        }
    }

    #[test]
    fn the_made_up_head_says_the_same() {
        let of = |method, version, connection: &[&str]| {
            let outline = outline(method, version, connection).unwrap();
            String::from_utf8(outline.before(b"GET /next").to_vec()).unwrap()
        };
        assert_eq!(
            of("HEAD", Version::HTTP_10, &[]),
            "HEAD / HTTP/1.0\r\nconnection: close\r\n\r\nGET /next"
        );
        assert_eq!(
            of("PUT", Version::HTTP_11, &["te"]),
            "GET / HTTP/1.1\r\nconnection: keep-alive\r\n\r\nGET /next"
        );
    }

    #[test]
    fn who_sends_chunks_waits_in_hyper() {
        let request = Request::builder().header(TRANSFER_ENCODING, "chunked");
        let body = http_body_util::Full::new(Bytes::from_static(b"body"));
        assert_eq!(Outline::of(&request.body(body).unwrap()), None);
    }
}
