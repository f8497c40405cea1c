//! The body of a request: stored before a worker is asked for, or discarded.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::Sleep;
use weir_http::RequestBody;
use weir_http1::Name;
use weir_observe::clock;

use super::failures::refuse_body;
use crate::{
    answers::refusal::Refusal,
    connections::client::Client,
    exchange::BoxFuture,
    record::Record,
    scripts::{
        spool::{self, BodyError, BodyLimits, Spooled},
        uploads,
    },
    trace,
};

/// A body that is being stored.
pub(crate) struct Upload {
    spooling: BoxFuture<Result<Spooled, BodyError>>,
    length: Option<u64>,
    most: u64,
    /// Operators see it. Not if it came with its head.
    shown: Option<uploads::Reading<'static>>,
}

impl Upload {
    pub(crate) fn new(
        record: &Record,
        client: &Client,
        limits: BodyLimits,
        body: RequestBody,
    ) -> Upload {
        let (length, client) = (body.length(), client.clone());
        let (deadline, space) = (record.policy.deadline, &record.gateway.spool_space);
        let spooling = async move { spool::spool(body, &client, limits, deadline, space).await };
        Upload {
            spooling: Box::pin(spooling),
            length,
            most: limits.max,
            shown: None,
        }
    }

    /// Ready when it is whole.
    ///
    /// # Errors
    ///
    /// The answer if the body is too large, too slow, or invalid.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        record: &mut Record,
        client: &Client,
    ) -> Poll<Result<Spooled, Refusal>> {
        let Poll::Ready(spooled) = self.spooling.as_mut().poll(cx) else {
            let uploads = &record.gateway.uploads;
            self.shown
                .get_or_insert_with(|| uploads.begin(record, self.length));
            return Poll::Pending;
        };
        Poll::Ready(match spooled {
            Ok(spooled) => {
                record.bytes_in = spooled.len();
                record.body_whole = Some(clock::precise());
                trace::step!(
                    record.id,
                    record.head_whole,
                    "spool",
                    "{} bytes",
                    spooled.len()
                );
                Ok(spooled)
            }
            Err(error) => {
                client.leave_body();
                Err(refuse_body(error, self.most))
            }
        })
    }
}

/// A body that nobody needs. It is read, so that the connection can have the next request.
pub(crate) struct Discard {
    /// `None`: the connection has to be closed, because there is too much of it, or the client waits to be asked for it.
    body: Option<RequestBody>,
    limit: Pin<Box<Sleep>>,
}

impl Discard {
    pub(crate) fn new(record: &Record, body: RequestBody) -> Discard {
        let awaits_consent = record.head.fields.has(Name::Expect);
        let too_long = body.length().is_some_and(|length| length > MAX_DISCARDED);
        Discard {
            body: Some(body).filter(|_| !awaits_consent && !too_long),
            limit: Box::pin(tokio::time::sleep(DISCARD_TIME)),
        }
    }

    /// Ready when it is gone. False: it does not arrive, or there is too much of it, so the connection must be closed.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        record: &mut Record,
        client: &Client,
    ) -> Poll<bool> {
        let is_gone = match self.poll_rest(record) {
            Poll::Ready(is_gone) => is_gone,
            Poll::Pending => {
                ready!(self.limit.as_mut().poll(cx));
                false
            }
        };
        if !is_gone {
            client.leave_body();
        }
        Poll::Ready(is_gone)
    }

    fn poll_rest(&mut self, record: &mut Record) -> Poll<bool> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(false);
        };
        while record.bytes_in <= MAX_DISCARDED {
            match ready!(body.poll_data()) {
                Ok(Some(data)) => record.bytes_in += data.len() as u64,
                Ok(None) => {
                    record.body_whole = Some(clock::precise());
                    return Poll::Ready(true);
                }
                Err(_) => break,
            }
        }
        Poll::Ready(false)
    }
}

/// How many bytes of a body are discarded to keep the connection open.
const MAX_DISCARDED: u64 = 64 * 1024;

/// How long weir waits for such a body. The answer waits meanwhile.
const DISCARD_TIME: Duration = Duration::from_millis(500);
