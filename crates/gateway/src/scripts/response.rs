//! A worker's answer whose head is there: what the client gets of it.

use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{Method, StatusCode};
use weir_config::Settings;
use weir_http::{Body, Part, Reply, Stream, Truncated};

use super::{odd, proxy::tunnel};
use crate::{
    answers::{
        cache::PageCopy,
        read_ahead::{ReadAhead, Room},
        stream::WorkerStream,
    },
    exchange::fastcgi_front,
    record::Record,
    scripts::{
        fastcgi::cgi::Head,
        run::{Failure, OnDrop, Progress, Run, StderrCopy},
    },
};

/// The answer of a worker.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) run: Run,
    pub(crate) head: Head,
    /// The part that has arrived: the head as the worker wrote it, and the beginning of the body.
    pub(crate) output: Vec<u8>,
    /// Where the body begins in `output`.
    pub(crate) body_at: usize,
    /// The worker's standard error, if a web server in front is to get it.
    pub(crate) stderr: Option<StderrCopy>,
    /// Gets the body as it comes, if the cache of pages stores it.
    pub(crate) copy: Option<Box<PageCopy>>,
}

impl Response {
    /// Reads what is available at once, up to about `response_memory`, unless the response is passed on as it comes (`None`).
    /// Without `settings` it is for a web server in front.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(crate) fn read_ahead(
        &mut self,
        cx: &mut Context<'_>,
        record: &Record,
        settings: Option<&Settings>,
    ) -> Result<Option<Progress>, Failure> {
        let is_wanted = settings.is_none_or(|settings| {
            settings.buffering
                && !self.head.answers_otherwise()
                && !is_bodyless(record, self.head.status)
        });
        if !is_wanted || self.head.streams() {
            return Ok(None);
        }
        let limit = settings.map_or(fastcgi_front::RESPONSE_MEMORY, |settings| {
            settings.response_memory
        });
        loop {
            match self.run.poll(cx, &mut self.output) {
                Poll::Ready(Ok(Progress::More)) if self.output.len() - self.body_at < limit => {}
                Poll::Pending => return Ok(Some(Progress::More)),
                Poll::Ready(read) => return read.map(Some),
            }
        }
    }

    /// The answer over HTTP, and the length of its body if only the head has it. `read`: what [`Self::read_ahead`] has
    /// found.
    pub(crate) fn reply(
        mut self,
        record: &Record,
        settings: &Settings,
        read: Option<Progress>,
    ) -> (Reply, Option<u64>) {
        let (status, length) = (self.head.status, self.head.content_length);
        let headers = std::mem::take(&mut self.head.headers);
        if status == StatusCode::SWITCHING_PROTOCOLS
            && let Some((server, ahead)) = self.run.take_tunnel()
        {
            let body = Body::Tunnel(tunnel::between(record.gateway, server, ahead));
            let reply = Reply {
                status,
                headers,
                body,
            };
            return (reply, None);
        }
        if read.is_none() && is_bodyless(record, status) {
            self.run.on_drop(OnDrop::Finish);
            let body = Body::Empty;
            return (
                Reply {
                    status,
                    headers,
                    body,
                },
                None,
            );
        }
        let mut body = self.body(
            record,
            read,
            (settings.response_memory, settings.max_response_file),
        );
        if let (Body::Bytes(bytes), Some(length)) = (&mut body, length)
            && bytes.len() as u64 != length
        {
            wrong_length(record, bytes.len(), length);
            match (bytes.len() as u64) < length {
                true => body = Body::Stream(Box::new(TooShort(Some(std::mem::take(bytes))))),
                false => bytes.truncate(length as usize),
            }
        }
        (
            Reply {
                status,
                headers,
                body,
            },
            length,
        )
    }

    /// The body: whole, read ahead, or passed on as it comes. `(memory, file)`: how much is read ahead, bytes.
    pub(crate) fn body(
        self,
        record: &Record,
        read: Option<Progress>,
        (memory, file): (usize, u64),
    ) -> Body {
        let Response {
            mut run,
            head,
            mut output,
            body_at,
            copy,
            ..
        } = self;
        if read == Some(Progress::End) {
            let mut bytes = Bytes::from(output);
            // In front of the body is the head. The memory of both is freed together.
            bytes.advance(body_at);
            return Body::Bytes(bytes);
        }
        output.drain(..body_at);
        match read {
            None => match head.is_event_stream.then(|| run.take_events()).flatten() {
                Some(events) => Body::Stream(Box::new(events)),
                None => Body::Stream(Box::new(WorkerStream::new(run, output))),
            },
            Some(_) => {
                let room = Room {
                    memory,
                    file,
                    space: &record.gateway.spool_space,
                };
                Body::Stream(Box::new(ReadAhead::start(run, output, room, copy)))
            }
        }
    }
}

/// Whether an answer with this status has no body.
fn is_bodyless(record: &Record, status: StatusCode) -> bool {
    record.head.method == Method::HEAD
        || matches!(
            status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::SWITCHING_PROTOCOLS
        )
}

/// The body has another length than the script has announced. A longer one is cut. A shorter one is sent, and then the
/// connection is cut, as nginx does it: the client knows that something is missing.
#[cold]
fn wrong_length(record: &Record, printed: usize, announced: u64) {
    if let Some(pool) = record.pool {
        let what =
            format!("the script announced Content-Length {announced} but printed {printed} bytes");
        odd(record, pool, &what);
    }
}

/// All that there is of a body that is shorter than announced.
#[derive(Debug)]
struct TooShort(Option<Bytes>);

impl Stream for TooShort {
    fn poll_part(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        let part = self.0.take().filter(|bytes| !bytes.is_empty());
        Poll::Ready(Some(part.map(Part::Bytes).ok_or(Truncated)))
    }
}
