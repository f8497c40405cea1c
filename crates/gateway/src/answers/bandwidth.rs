//! The speed of an answer (`bandwidth`): passes the parts of its body on at a limited number of bytes a second, for any
//! carrier.
//!
//! No worker waits for this: the answer of a script is stored as for any slow client ([`super::read_ahead`]).
//! `send_timeout` does not count while a body waits for its time.
//!
//! This is like nginx's `limit_rate`, but smoother: the bytes of a tenth of a second are sent at once, also at the
//! beginning.

use std::{
    fmt,
    num::NonZeroU64,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};
use weir_http::{Body, Part, Reply, Stream, Truncated};

/// A body that is sent at a limited speed.
struct Paced {
    body: Body,
    /// Taken from the body, and not sent yet.
    next: Option<Part>,
    pace: Pace,
    /// Fires when the next part is due.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Decides when how many bytes may be sent.
struct Pace {
    /// Bytes a second.
    speed: u64,
    /// If all bytes so far had been sent at the exact speed, the last would have been sent at this time.
    due: Instant,
}

/// Limits the speed of an answer to `bandwidth` bytes a second, and keeps its length.
pub(crate) fn limit((reply, length): &mut (Reply, Option<u64>), bandwidth: Option<NonZeroU64>) {
    let Some(speed) = bandwidth.map(NonZeroU64::get) else {
        return;
    };
    match &reply.body {
        Body::Empty | Body::Tunnel(_) => return,
        Body::Bytes(bytes) if bytes.len() as u64 <= slice(speed) => return,
        body => *length = length.or(body.len()),
    }
    let body = std::mem::replace(&mut reply.body, Body::Empty);
    reply.body = Body::Stream(Box::new(Paced {
        body,
        next: None,
        pace: Pace {
            speed,
            due: Instant::now(),
        },
        timer: None,
    }));
}

impl Stream for Paced {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        if let Some(timer) = &mut self.timer {
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
        let part = match self.next.take() {
            Some(part) => part,
            None => match ready!(self.body.poll_part(cx)) {
                Some(Ok(part)) => part,
                end => return Poll::Ready(end),
            },
        };
        if part.len() == 0 {
            return Poll::Ready(Some(Ok(part)));
        }
        let bytes = loop {
            match self.pace.take(Instant::now(), part.len()) {
                Ok(bytes) => break bytes,
                Err(due) => {
                    let mut timer = Box::pin(sleep_until(due));
                    if timer.as_mut().poll(cx).is_pending() {
                        self.timer = Some(timer);
                        self.next = Some(part);
                        return Poll::Pending;
                    }
                }
            }
        };
        let (part, rest) = part.split(bytes);
        self.next = rest;
        Poll::Ready(Some(Ok(part)))
    }
}

impl Pace {
    /// How many of so many bytes may be sent `now`.
    ///
    /// # Errors
    /// None of them before this time.
    fn take(&mut self, now: Instant, bytes: u64) -> Result<u64, Instant> {
        let slice = slice(self.speed);
        // If there was nothing to send for a while, this time is lost, except for one slice.
        let earliest = now.checked_sub(time_of(slice, self.speed));
        self.due = earliest.map_or(self.due, |earliest| self.due.max(earliest));
        if self.due > now {
            return Err(self.due);
        }
        let bytes = bytes.min(slice);
        self.due += time_of(bytes, self.speed);
        Ok(bytes)
    }
}

impl fmt::Debug for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Paced({:?})", self.body)
    }
}

/// So many bytes go at once.
fn slice(speed: u64) -> u64 {
    (speed / SLICES).max(1)
}

/// The time that so many bytes take at this speed.
fn time_of(bytes: u64, speed: u64) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(speed);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// A body is sent in so many slices a second.
const SLICES: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// When which bytes of parts with these lengths are sent, by a clock that shows only the times that were waited for. In
    /// milliseconds.
    fn times(parts: &[u64], speed: u64, late: Duration) -> Vec<(u64, u64)> {
        let begin = Instant::now();
        let (mut now, mut pace) = (begin, Pace { speed, due: begin });
        let mut times = Vec::new();
        for part in parts {
            let mut left = *part;
            while left > 0 {
                match pace.take(now, left) {
                    Ok(bytes) => {
                        times.push(((now - begin).as_millis() as u64, bytes));
                        left -= bytes;
                    }
                    Err(due) => now = due + late,
                }
            }
        }
        times
    }

    #[test]
    fn bytes_go_in_even_slices() {
        let times = times(&[1000], 1000, Duration::ZERO);
        let expected: Vec<_> = (0..10).map(|slice| (slice * 100, 100)).collect();
        assert_eq!(times, expected);
    }

    #[test]
    fn timers_that_are_late_do_not_make_it_slower() {
        let times = times(&[10_000], 1000, Duration::from_millis(30));
        assert!(
            (9_800..=10_000).contains(&times[times.len() - 1].0),
            "{times:?}"
        );
    }

    #[test]
    fn short_parts_take_as_long_as_a_long_one() {
        let times = times(&[7; 300], 1000, Duration::ZERO);
        let last = times[times.len() - 1].0;
        assert!((1900..=2100).contains(&last), "{last}");
        for window in times.windows(100) {
            let bytes: u64 = window.iter().map(|(_, bytes)| bytes).sum();
            let time = window[99].0 - window[0].0;
            assert!(bytes <= time + 100 + 14, "{bytes} bytes in {time} ms");
        }
    }

    #[test]
    fn a_pause_of_the_source_is_not_made_up_for() {
        let begin = Instant::now();
        let mut pace = Pace {
            speed: 1000,
            due: begin,
        };
        let later = begin + Duration::from_secs(60);
        let mut sent = 0;
        while let Ok(bytes) = pace.take(later, 1000) {
            sent += bytes;
        }
        assert!((100..=200).contains(&sent), "{sent}");
    }

    #[test]
    fn the_slowest_and_the_fastest_speed_make_progress() {
        for speed in [1, 9, 64, u64::MAX] {
            let begin = Instant::now();
            let mut pace = Pace { speed, due: begin };
            assert!(
                pace.take(begin, u64::MAX).is_ok_and(|bytes| bytes > 0),
                "{speed}"
            );
        }
    }
}
