//! HTTP independent of its protocol version: the interface between carriers and the gateway's exchange.
//!
//! ```text
//! socket ◄─► carrier: head ─► Request ─► the exchange, its steps ─► Answer: head, parts ─► carrier ─► socket
//!                     body ─► RequestState ─► RequestBody
//! ```
//! A carrier reads requests from its socket and writes answers to it: [`h1`] is that of HTTP/1, [`h2`] that of HTTP/2, [`h3`] that of
//! HTTP/3, [`fastcgi`] that of web servers in front. It gives each [`Request`] to the exchange ([`Front::begin`]), which does not depend on the
//! protocol. The exchange answers at once if it need not wait. For other requests the carrier gets steps, which it
//! runs, and which it drops when the client has left. The body of an [`Answer`] is made of memory, parts of files, or a
//! [`Stream`]. Until the answer is sent, both sides share the request's [`RequestState`]: the body as it arrives, interim
//! answers, and when the steps want to be polled. [`ConnState`] has the phase and the deadlines of the connection, which
//! may have many requests at once.
//!
//! All of this stays on one reactor, so it needs no locks and no atomic counters.
#![forbid(unsafe_code)]

mod body;
mod buffers;
mod closing;
pub mod compress;
mod conn;
mod date;
pub mod fastcgi;
mod fields;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod handshake;
mod head;
pub mod multiplex;
mod priority;
mod request;
mod turn;
pub mod watch;

use std::pin::Pin;

use http::StatusCode;

use weir_net::Socket;

use self::request::MAX_INTERIM;
pub use self::{
    body::{Body, BodyEnd, BodyParts, Part, Reply, Stream, Truncated, Tunnel, Tunnelled},
    buffers::reads,
    conn::{ConnState, Phase, REST_AFTER, Timeouts, spare_from},
    fields::Fields,
    head::{Head, Target},
    priority::Priority,
    request::{Interim, Request, RequestBody, RequestState},
};

/// What the exchange returns for a request at once.
pub enum Begun<R> {
    /// The answer.
    Answered(Answer<R>),
    /// The steps to it.
    Steps(Steps<R>),
}

/// The steps to an answer. Dropping them tells the gateway and its workers that the client has left.
pub type Steps<R> = Pin<Box<dyn Future<Output = Answer<R>>>>;

/// An answer for a carrier.
#[derive(Debug)]
pub struct Answer<R> {
    pub status: StatusCode,
    pub headers: Fields,
    pub body: Body,
    /// The length of the body, if the body itself does not know it. A body that ends earlier is truncated; bytes
    /// beyond it are dropped.
    pub length: Option<u64>,
    /// False: the connection ends after this answer.
    pub keep: bool,
    /// Is told how the sending of the answer ends.
    pub receipt: R,
}

impl<R> Answer<R> {
    /// Whether its status allows no body (RFC 9110 §6.4.1).
    fn is_bodyless(&self) -> bool {
        matches!(
            self.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        )
    }

    /// The length that its head announces, if it is known. `is_without`: the body is not sent.
    fn length(&self, is_without: bool) -> Option<u64> {
        match (is_without, &self.body) {
            // The length of the body that GET would get.
            (true, Body::Empty) => self.headers.length(),
            (_, body) => body.len().or(self.length),
        }
    }
}

/// Is told how the sending of an answer ends. If it is dropped before [`Receipt::sent`], the client did not get all
/// of it.
pub trait Receipt: Unpin {
    /// So many more bytes of the body are being sent.
    fn count(&mut self, bytes: u64);

    /// The script's standard error since the last call, for carriers that pass it on.
    fn stderr(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// The answer is cut before its end, and the connection is closed.
    fn truncated(&mut self);

    /// The kernel has the last byte.
    fn sent(self);
}

/// Nobody hears.
impl Receipt for () {
    fn count(&mut self, _: u64) {}

    fn truncated(&mut self) {}

    fn sent(self) {}
}

/// What a carrier needs of the gateway for one connection.
pub trait Front: Unpin {
    /// Is told how the sending of an answer ends.
    type Receipt: Receipt;

    /// Begins a request. The carrier has noted that ([`ConnState::begin_request`]).
    fn begin(&self, request: Request) -> Begun<Self::Receipt>;

    /// The connection's phase and deadlines.
    fn state(&self) -> &ConnState;

    /// The client that has sent the request, if a trusted proxy names it, as [`RequestState::client`]. For heads whose
    /// requests are not begun.
    fn client_of(&self, _head: &Head) -> u64 {
        0
    }

    /// Whether the gateway accepts nothing new and waits for its connections to end.
    fn is_draining(&self) -> bool {
        false
    }

    /// The reactor that should get this idle connection; `None`: it stays here.
    fn should_move(&self) -> Option<u16> {
        None
    }

    /// Gives the connection to the reactor `to` (it may be this one), which keeps it without a task until bytes
    /// arrive. No byte of the next request was read.
    fn move_away(&mut self, _to: u16, _socket: Socket) {}

    /// A head was refused before it became a request: with this status, one word for the logs, and the cause. Over HTTP the
    /// carrier has noted it as a request.
    fn refused(&self, _status: StatusCode, _reason: &'static str, _why: &str) {}

    /// A client with several requests at once exceeded a limit (the name of an option, or words), and the connection is closed.
    fn limit_exceeded(&self, _what: &str) {}
}

/// What a handshake needs of the gateway, on a connection that is a `C` afterwards.
pub trait Handshakes<C>: Front {
    /// The handshake is over: serves the connection from now on.
    fn shaken(&mut self, connection: C);

    /// The handshake has failed. `why`: empty if the client has left.
    fn failed(&self, why: &str);
}
