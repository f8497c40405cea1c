//! A response that is passed on as it arrives: event streams, and responses with `X-Accel-Buffering: no`.
//!
//! The worker's output is read when the client has room. The worker is held as long as the response lasts. A client
//! that leaves ends the script, whatever `on_client_left` says, because otherwise nothing would end it.

use std::task::{Context, Poll};

use bytes::Bytes;

use super::{
    body::Truncated,
    fastcgi::{Owner, Progress, Run},
};
use crate::error_log::tell;

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

    /// The next bytes; `None` at the end of the response.
    pub(crate) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Truncated>>> {
        loop {
            if !self.pending.is_empty() {
                return Poll::Ready(Some(Ok(std::mem::take(&mut self.pending).into())));
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
