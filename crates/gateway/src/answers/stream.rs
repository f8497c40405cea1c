//! A response that is passed on as it arrives: event streams, and responses with `X-Accel-Buffering: no`.
//!
//! The worker's output is read when the client has room. The worker is held as long as the response lasts. A client
//! that leaves ends the script, even with another `on_client_left`, because otherwise nothing would end the script.

use std::task::{Context, Poll};

use weir_http::{Part, Stream, Truncated};
use weir_observe::error_log::tell;

use crate::scripts::run::{Owner, Progress, Run};

/// The rest of a worker's response.
#[derive(Debug)]
pub(crate) struct WorkerStream {
    run: Run,
    owner: Owner,
    /// Bytes that arrived and were not passed on yet.
    pending: Vec<u8>,
    ended: bool,
}

impl WorkerStream {
    /// The response of `run`, starting with `first`.
    pub(crate) fn new(mut run: Run, first: Vec<u8>) -> WorkerStream {
        run.streams();
        WorkerStream {
            owner: run.owner(),
            run,
            pending: first,
            ended: false,
        }
    }
}

impl Stream for WorkerStream {
    /// The bytes that have come.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        loop {
            if !self.pending.is_empty() {
                let bytes = std::mem::take(&mut self.pending);
                return Poll::Ready(Some(Ok(Part::Bytes(bytes.into()))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match std::task::ready!(self.run.poll(cx, &mut self.pending)) {
                Ok(Progress::More) => {}
                Ok(Progress::End) => self.ended = true,
                Err(failure) => {
                    tell!(error, self.owner.about(), "a stream was cut: {failure}");
                    self.ended = true;
                    return Poll::Ready(Some(Err(Truncated)));
                }
            }
        }
    }
}
