//! The body of an answer with a `bandwidth`: the same parts, at most so many bytes a second.
//!
//! No worker waits for it: what a script answers is stored as for any slow client ([`super::read_ahead`]).

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};
use weir_http::{Body, Part, Stream, Truncated};

/// A body that is sent at a limited speed.
pub(crate) struct Paced {
    body: Body,
    /// Taken from the body, and not sent yet.
    next: Option<Part>,
    /// Bytes a second.
    speed: u64,
    /// So many bytes may be sent at once.
    step: u64,
    /// If all bytes so far had been sent at the exact speed, the last would have been sent at this time.
    due: Instant,
    waits: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    /// `speed`: bytes a second.
    pub(crate) fn body(body: Body, speed: u64) -> Body {
        Body::Stream(Box::new(Paced {
            body,
            next: None,
            speed: speed.max(1),
            step: (speed / STEPS).max(1),
            due: Instant::now(),
            waits: None,
        }))
    }

    /// The time that so many bytes take.
    fn time_of(&self, bytes: u64) -> Duration {
        let micros = u128::from(bytes) * 1_000_000 / u128::from(self.speed);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

impl Stream for Paced {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        if let Some(waits) = &mut self.waits {
            ready!(waits.as_mut().poll(cx));
            self.waits = None;
        }
        let part = match self.next.take() {
            Some(part) => part,
            None => match ready!(self.body.poll_part(cx)) {
                Some(Ok(part)) => part,
                other => return Poll::Ready(other),
            },
        };
        let now = Instant::now();
        // Time in which there was nothing to send is lost.
        self.due = self.due.max(now - self.time_of(self.step));
        if self.due > now {
            let mut waits = Box::pin(sleep_until(self.due));
            if waits.as_mut().poll(cx).is_pending() {
                self.waits = Some(waits);
                self.next = Some(part);
                return Poll::Pending;
            }
        }
        let (part, rest) = part.split(self.step);
        self.next = rest;
        self.due += self.time_of(part.len());
        Poll::Ready(Some(Ok(part)))
    }
}

impl fmt::Debug for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Paced({:?})", self.body)
    }
}

/// A body is sent in so many pieces a second.
const STEPS: u64 = 10;
