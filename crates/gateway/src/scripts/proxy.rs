//! A request at a server that speaks HTTP/1.1: writes it, and reads the answer. The connection is
//! [`weir_upstream::h1`], as for the calls of scripts; this module adds the lease, the time limits, and what a server may
//! know of a request ([`head`]). After an upgrade to WebSocket the connection is a [`tunnel`].
//!
//! ```text
//!               poll_head                    poll
//!  start ─► request, head of the answer ─► body ─► End: the connection is kept, if both sides allow that
//!                │                           │
//!                ╰─────────── Failure ◄──────╯      the connection is closed
//! ```

pub(super) mod events;
pub(crate) mod head;
pub(super) mod tunnel;
mod websocket;

use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Method;
use http_body::Frame;
use weir_http::{Interim, RequestState};
use weir_http1::{Error as Malformed, Limits};
use weir_net::FilePart;
use weir_observe::pool_log::Cost;
use weir_pool::Finish;
use weir_upstream::h1;

use self::events::Events;
use super::{
    fastcgi::cgi::Head,
    run::{Failure, Owner, Progress, RequestSummary, Work, connection::WorkerConn, recycle},
    spool::Spooled,
};
use crate::{
    clock::{self, NEVER},
    dispatch::Lease,
};

/// A request that a server has.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) work: Work,
    conn: h1::Connection<WorkerConn>,
    /// What is left of the request's body.
    body: Option<SpooledBody>,
    /// How many requests the connection has carried.
    requests: u64,
    /// The request cannot be written.
    unwritable: Option<h1::Error>,
}

/// A request as the server gets it.
pub(super) struct Outgoing<'r> {
    pub(super) method: &'r Method,
    pub(super) target: &'r [u8],
    /// Its fields, without those about the body.
    pub(super) lines: Vec<u8>,
    /// `None`: it has no body, and says nothing of one.
    pub(super) body: Option<&'r Spooled>,
    /// The client wants to go on with WebSocket.
    pub(super) is_websocket: bool,
}

impl Conversation {
    /// Begins a request.
    pub(super) fn start(
        (lease, mut conn): (Lease, WorkerConn),
        client: &Rc<RequestState>,
        by: (u64, RequestSummary),
        request: Outgoing<'_>,
    ) -> Conversation {
        conn.begin_request();
        let requests = conn.requests;
        let head = u32::try_from(lease.pool.settings.max_response_head).unwrap_or(u32::MAX);
        let limits = Limits {
            head,
            ..Limits::default()
        };
        let mut conn = h1::Connection::new(conn, limits);
        let begun = conn.begin(&h1::Request {
            method: request.method,
            target: request.target,
            lines: &request.lines,
            length: Some(request.body.map_or(0, Spooled::len)),
            says_empty: request.body.is_some(),
        });
        if request.is_websocket {
            conn.expect_switch();
        }
        recycle(request.lines);
        Conversation {
            work: Work::new(lease, client, by),
            conn,
            body: request.body.map(SpooledBody::new),
            requests,
            unwritable: begun.err(),
        }
    }

    /// Sends the request. Ready when the head of the answer is there.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        first_byte: &mut Option<u64>,
        interim: &mut dyn FnMut(Interim),
    ) -> Poll<Result<Head, Failure>> {
        if let Some(error) = self.unwritable.take() {
            return Poll::Ready(Err(failure(error)));
        }
        let unsent = self.unsent();
        let exchanged = self.conn.poll_exchange(cx, &mut self.body, &mut |early| {
            first_byte.get_or_insert_with(clock::now);
            interim(Interim {
                status: head::status(early),
                fields: Head::of_http(early).headers,
            });
        });
        if self.conn.has_received() {
            first_byte.get_or_insert_with(clock::now);
        }
        if self.unsent() != unsent || exchanged.is_ready() {
            self.work.watch.moved();
        }
        match exchanged {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(Head::of_http(self.conn.head()))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(failure(error))),
            Poll::Pending => self.poll_time(cx).map(Err),
        }
    }

    /// Appends what has come of the answer's body to `output`, and sends what is left of the request.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<Progress, Failure>> {
        if self.conn.is_sending() {
            let unsent = self.unsent();
            if let Poll::Ready(Err(error)) = self.conn.poll_send(cx, &mut self.body) {
                return Poll::Ready(Err(failure(error)));
            }
            if self.unsent() != unsent {
                self.work.watch.moved();
            }
        }
        let before = output.len();
        let read = self.poll_frames(cx, output);
        if output.len() > before {
            self.work.watch.moved();
        }
        match read {
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending if output.len() > before => Poll::Ready(Ok(Progress::More)),
            Poll::Pending => self.poll_time(cx).map(Err),
        }
    }

    fn poll_frames(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<Result<Progress, Failure>> {
        let most = output.len() + PIECE;
        while output.len() < most {
            let frame = match ready!(self.conn.poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Err(failure(error))),
                None => return Poll::Ready(Ok(Progress::End)),
            };
            match frame.into_data() {
                // Often the whole body, which then needs no copy.
                Ok(data) if output.capacity() == 0 => *output = data.into(),
                Ok(data) => output.extend_from_slice(&data),
                Err(_trailers) => {}
            }
            if self.conn.is_read() {
                return Poll::Ready(Ok(Progress::End));
            }
        }
        Poll::Ready(Ok(Progress::More))
    }

    /// Ready when the request's time is over.
    fn poll_time(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        let failure = ready!(self.work.poll_time(cx, NEVER));
        Poll::Ready(failure.unwrap_or(Failure::Late))
    }

    /// How much of the request's body the connection has not taken.
    fn unsent(&self) -> u64 {
        self.body.as_ref().map_or(0, SpooledBody::left)
    }

    /// Whether all of the answer has come.
    pub(super) fn is_answered(&self) -> bool {
        self.conn.is_read() && self.unwritable.is_none()
    }

    /// The answer is complete. Its connection is kept if it can be used again.
    pub(super) fn finish(mut self: Box<Self>) {
        self.work.lease.ended(Finish::Answered, None);
        let settings = &self.work.lease.pool.settings;
        let spent = settings.max_reqs > 0 && self.requests >= settings.max_reqs;
        let keeps = settings.keep_conn && !spent && self.conn.is_reusable();
        self.conn.shrink();
        let Conversation { work, conn, .. } = *self;
        let conn = keeps.then(|| conn.into_parts().0);
        work.lease.release(conn, Cost::default());
    }

    /// Whether the server has switched to the other protocol.
    pub(super) fn has_switched(&self) -> bool {
        self.conn.head().status() == 101
    }

    /// The connection, for the other protocol, and its first bytes. The request has ended: a tunnel takes no place of the pool.
    pub(super) fn into_tunnel(mut self: Box<Self>) -> (WorkerConn, Vec<u8>) {
        self.work.lease.ended(Finish::Answered, None);
        let Conversation { work, conn, .. } = *self;
        work.lease.release(None, Cost::default());
        let (conn, ahead) = conn.into_parts();
        (conn, ahead.into())
    }

    /// Whether some of the request is left to be sent.
    pub(super) fn is_sending(&self) -> bool {
        self.conn.is_sending()
    }

    /// The rest of the answer, an event stream. It has left the pool.
    pub(super) fn into_events(mut self: Box<Self>, owner: Owner) -> Events {
        self.work.watch.detach();
        self.work.lease.ended(Finish::Answered, None);
        let Conversation { work, conn, .. } = *self;
        work.lease.release(None, Cost::default());
        Events::of(conn, owner)
    }

    pub(super) fn give_up(mut self: Box<Self>, failure: &Failure, answered: bool) {
        let lease = &mut self.work.lease;
        match failure {
            // A server may close kept connections at any time.
            Failure::Closed { .. } if self.requests > 1 && !answered => {}
            Failure::Closed { .. } | Failure::Protocol(_) | Failure::NotHttp(_) => {
                lease.ended(Finish::Failed, Some(failure));
            }
            Failure::Silent { .. } => lease.ended(Finish::TimedOut, Some(failure)),
            Failure::Terminated => lease.terminate(self.work.id),
            Failure::Late | Failure::Cancelled | Failure::Spool(_) => {}
        }
        self.work.lease.release(None, Cost::default());
    }
}

/// What the error of a connection means for its request.
fn failure(error: h1::Error) -> Failure {
    let closed = |error, sent| Failure::Closed {
        process: None,
        error,
        sent,
        unread: false,
        unstarted: false,
    };
    match error {
        h1::Error::Unsent(error) => closed(Some(error), false),
        h1::Error::Write(error) | h1::Error::Read(error) => closed(Some(error), true),
        h1::Error::Closed | h1::Error::Answer(Malformed::Truncated) => closed(None, true),
        h1::Error::Body(cause) => Failure::Spool(match cause.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        }),
        error => Failure::NotHttp(error.to_string()),
    }
}

/// The body of a request, which is whole.
#[derive(Debug)]
struct SpooledBody {
    memory: Bytes,
    file: Option<FilePart>,
}

impl SpooledBody {
    fn new(body: &Spooled) -> SpooledBody {
        SpooledBody {
            memory: body.memory().clone(),
            file: body.file_part(),
        }
    }

    fn left(&self) -> u64 {
        self.memory.len() as u64 + self.file.as_ref().map_or(0, FilePart::len)
    }
}

impl http_body::Body for SpooledBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.memory.is_empty() {
            let memory = std::mem::take(&mut self.memory);
            return Poll::Ready(Some(Ok(Frame::data(memory))));
        }
        match &mut self.file {
            Some(file) if file.len() > 0 => {
                let piece = ready!(file.poll_read(cx, UPLOAD_PIECE));
                Poll::Ready(Some(piece.map(Frame::data)))
            }
            _ => Poll::Ready(None),
        }
    }
}

/// How much of an answer is read at once, bytes.
const PIECE: usize = 64 * 1024;

/// How much of a body in a file is read at once, bytes.
const UPLOAD_PIECE: usize = 128 * 1024;
