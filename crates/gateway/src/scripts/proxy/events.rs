//! An event stream of a server: passed on as it comes, for as long as the client stays.
//!
//! Thousands of clients may each have one for hours. So it has left its pool, like a tunnel: it takes no place of it, and has no
//! time limit. When the client leaves, the server's connection is closed.

use std::task::{Context, Poll, ready};

use weir_http::{Part, Stream, Truncated};
use weir_observe::error_log::tell;
use weir_upstream::h1;

use super::failure;
use crate::scripts::run::{Owner, connection::WorkerConn};

/// The body of an event stream.
#[derive(Debug)]
pub(in crate::scripts) struct Events {
    conn: h1::Connection<WorkerConn>,
    owner: Owner,
}

impl Events {
    /// The rest of the answer on this connection.
    pub(super) fn of(conn: h1::Connection<WorkerConn>, owner: Owner) -> Events {
        super::tunnel::watch_peer(conn.stream());
        Events { conn, owner }
    }
}

impl Stream for Events {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        while let Some(frame) = ready!(self.conn.poll_frame(cx)) {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => return Poll::Ready(Some(Ok(Part::Bytes(data)))),
                Ok(Err(_trailers)) => {}
                Err(error) => {
                    let failure = failure(error);
                    tell!(error, self.owner.about(), "a stream was cut: {failure}");
                    return Poll::Ready(Some(Err(Truncated)));
                }
            }
        }
        Poll::Ready(None)
    }
}
