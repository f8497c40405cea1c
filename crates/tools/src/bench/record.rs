//! Records the results of requests: counts, times, a point per second, a line per client.
//!
//! Each thread has a [`Recorder`]; at the end they are merged. Times are in microseconds.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;

use super::series::Series;

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A complete answer.
    Answered {
        /// Its status.
        status: u16,
        /// The reason in the answer: `Proxy-Status`, its details or otherwise its error (RFC 9209).
        reason: Option<Cow<'static, str>>,
        /// Bytes of its body.
        bytes: u64,
        /// The advised pause, s, if the answer has one (`Retry-After` as a number, RFC 9110 §10.2.3).
        retry_after: Option<u32>,
    },
    /// No complete answer.
    Failed(Failure),
}

/// Why there was no complete answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// Nobody listens there.
    ConnectRefused,
    /// The accept queue of a unix socket is full (TCP clients would wait instead).
    AcceptQueueFull,
    /// No connection within the timeout.
    ConnectTimeout,
    /// No connection for another reason.
    ConnectFailed,
    /// No complete answer within the timeout.
    Timeout,
    /// The connection was closed before the answer.
    Closed,
    /// The connection was reset before the answer.
    Reset,
    /// The answer was incomplete.
    Truncated,
    /// It is not a valid HTTP/1.1 answer.
    BadResponse,
    /// The load generator has no descriptor left.
    NoDescriptor,
    /// The load generator has no local port left.
    NoPort,
    /// All connections of the load generator were in use until the timeout.
    NotSent,
}

/// All results, or those of one thread.
#[derive(Debug)]
pub struct Recorder {
    /// Requests that began earlier do not count.
    from: Instant,
    /// How long requests are sent; `None`: not known yet.
    window: Option<Duration>,
    /// Times of answers below 400.
    pub good: Histogram<u64>,
    /// Times of refusals: 503 and 429.
    pub refused: Histogram<u64>,
    /// Times of all other failures.
    pub failed: Histogram<u64>,
    /// How late requests were sent, if they have given times.
    pub late: Histogram<u64>,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Failures by status (0: there was no answer) and reason.
    pub reasons: BTreeMap<(u16, Cow<'static, str>), u64>,
    /// Retry-After values of refusals.
    pub retry_after: RetryAfter,
    /// One point per second.
    pub series: Series,
    /// The results of each client, by number.
    pub clients: Vec<Client>,
    /// Sum for good answers, µs.
    pub good_time: u64,
    /// Sum for all answers and failures, µs.
    pub all_time: u64,
    /// Good answers that arrived while requests were being sent.
    pub good_in_window: u64,
    /// Bytes of answers' bodies.
    pub bytes: u64,
    /// The same for answers that arrived while requests were being sent.
    pub bytes_in_window: u64,
    /// New connections.
    pub connections: u64,
    /// Requests that were sent again, because the server had closed the kept connection.
    pub sent_again: u64,
    /// Requests that count, without the warm-up.
    pub ended: u64,
    /// Requests of the warm-up.
    pub warm_up: u64,
    /// When the last request ended, since the count began, µs.
    pub last: u64,
}

/// Retry-After values of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetryAfter {
    /// How many had a value.
    pub count: u64,
    /// The lowest value, s; 0 if there is none.
    pub soonest: u32,
    /// The latest, s.
    pub latest: u32,
}

/// The results of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Client {
    /// Good answers.
    pub served: u64,
    /// All other results.
    pub failed: u64,
    /// Its longest wait, µs, successful or not.
    pub longest: u64,
    /// When its present wait began; `None`: it is not waiting.
    pub waits_since: Option<Instant>,
}

impl Recorder {
    /// Counts requests that begin at `from` or later, for this many clients; `window`: how long requests are sent.
    pub fn new(from: Instant, window: Option<Duration>, clients: usize) -> Self {
        Self {
            from,
            window,
            good: times(),
            refused: times(),
            failed: times(),
            late: times(),
            statuses: BTreeMap::new(),
            reasons: BTreeMap::new(),
            retry_after: RetryAfter::default(),
            series: Series::default(),
            clients: vec![Client::default(); clients],
            good_time: 0,
            all_time: 0,
            good_in_window: 0,
            bytes: 0,
            bytes_in_window: 0,
            connections: 0,
            sent_again: 0,
            ended: 0,
            warm_up: 0,
            last: 0,
        }
    }

    /// A request was sent `late` after its time.
    pub fn sent(&mut self, due: Instant, late: Duration) {
        if due >= self.from {
            self.late.saturating_record(micros(late));
            self.series.at(self.since(due)).sent += 1;
        }
    }

    /// The request of `client` that began (or should have) at `began` ended at `now`.
    pub fn ended(
        &mut self,
        client: Option<usize>,
        began: Instant,
        now: Instant,
        outcome: &Outcome,
    ) {
        if let Some(client) = client.and_then(|number| self.clients.get_mut(number)) {
            client.waits_since = None;
        }
        if began < self.from {
            self.warm_up += 1;
            return;
        }
        let time = micros(now.saturating_duration_since(began));
        let at = self.since(now);
        let in_window = self
            .window
            .is_none_or(|window| now.saturating_duration_since(self.from) <= window);
        self.ended += 1;
        self.all_time += time;
        self.last = self
            .last
            .max(micros(now.saturating_duration_since(self.from)));
        let verdict = self.count(outcome, time, in_window);
        self.series.at(at).add(verdict, time);
        if let Some(client) = client.and_then(|number| self.clients.get_mut(number)) {
            client.longest = client.longest.max(time);
            match verdict {
                Verdict::Good => client.served += 1,
                Verdict::Refused | Verdict::Failed => client.failed += 1,
            }
        }
    }

    fn count(&mut self, outcome: &Outcome, time: u64, in_window: bool) -> Verdict {
        if let Outcome::Answered { status, bytes, .. } = outcome {
            *self.statuses.entry(*status).or_default() += 1;
            self.bytes += bytes;
            if in_window {
                self.bytes_in_window += bytes;
            }
        }
        let verdict = outcome.verdict();
        match verdict {
            Verdict::Good => {
                self.good.saturating_record(time);
                self.good_time += time;
                self.good_in_window += u64::from(in_window);
                return verdict;
            }
            Verdict::Refused => {
                self.refused.saturating_record(time);
                if let Outcome::Answered {
                    retry_after: Some(seconds),
                    ..
                } = outcome
                {
                    self.retry_after.add(RetryAfter {
                        count: 1,
                        soonest: *seconds,
                        latest: *seconds,
                    });
                }
            }
            Verdict::Failed => self.failed.saturating_record(time),
        }
        let key = match outcome {
            Outcome::Answered { status, reason, .. } => {
                (*status, reason.clone().unwrap_or(Cow::Borrowed("")))
            }
            Outcome::Failed(failure) => (0, Cow::Borrowed(failure.word())),
        };
        // Limited, because the server decides about the texts.
        let is_new = self.reasons.len() >= MOST_REASONS && !self.reasons.contains_key(&key);
        let key = match is_new {
            true => (key.0, Cow::Borrowed("other")),
            false => key,
        };
        *self.reasons.entry(key).or_default() += 1;
        verdict
    }

    /// Ends the present waits, which may be the longest.
    pub fn give_up(&mut self, now: Instant) {
        for client in &mut self.clients {
            if let Some(since) = client.waits_since.take() {
                client.longest = client
                    .longest
                    .max(micros(now.saturating_duration_since(since)));
            }
        }
    }

    /// Adds the results of another thread. Its clients come after these.
    pub fn merge(&mut self, other: Recorder) {
        for (own, more) in [
            (&mut self.good, &other.good),
            (&mut self.refused, &other.refused),
            (&mut self.failed, &other.failed),
            (&mut self.late, &other.late),
        ] {
            // All have the same bounds, so every value fits.
            let _ = own.add(more);
        }
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (key, count) in other.reasons {
            *self.reasons.entry(key).or_default() += count;
        }
        self.retry_after.add(other.retry_after);
        self.series.merge(other.series);
        self.clients.extend(other.clients);
        self.good_time += other.good_time;
        self.all_time += other.all_time;
        self.good_in_window += other.good_in_window;
        self.bytes += other.bytes;
        self.bytes_in_window += other.bytes_in_window;
        self.connections += other.connections;
        self.sent_again += other.sent_again;
        self.ended += other.ended;
        self.warm_up += other.warm_up;
        self.last = self.last.max(other.last);
    }

    fn since(&self, time: Instant) -> Duration {
        time.saturating_duration_since(self.from)
    }
}

impl RetryAfter {
    fn add(&mut self, more: RetryAfter) {
        if more.count == 0 {
            return;
        }
        self.soonest = match self.count {
            0 => more.soonest,
            _ => self.soonest.min(more.soonest),
        };
        self.latest = self.latest.max(more.latest);
        self.count += more.count;
    }
}

/// What a result means for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A whole answer below 400, within the timeout.
    Good,
    /// 503 or 429: come again later.
    Refused,
    /// Everything else.
    Failed,
}

impl Outcome {
    /// The meaning of this result.
    pub fn verdict(&self) -> Verdict {
        match self {
            Outcome::Answered {
                status: 429 | 503, ..
            } => Verdict::Refused,
            Outcome::Answered { status, .. } if *status < 400 => Verdict::Good,
            _ => Verdict::Failed,
        }
    }
}

impl Failure {
    /// One word, for programs too.
    pub fn word(self) -> &'static str {
        match self {
            Failure::ConnectRefused => "connect_refused",
            Failure::AcceptQueueFull => "accept_queue_full",
            Failure::ConnectTimeout => "connect_timeout",
            Failure::ConnectFailed => "connect_failed",
            Failure::Timeout => "timeout",
            Failure::Closed => "closed",
            Failure::Reset => "reset",
            Failure::Truncated => "truncated",
            Failure::BadResponse => "bad_response",
            Failure::NoDescriptor => "no_descriptor",
            Failure::NoPort => "no_port",
            Failure::NotSent => "not_sent",
        }
    }
}

/// Whole microseconds.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Times of up to a day, to three digits.
fn times() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, 86_400_000_000, 3) {
        Ok(histogram) => histogram,
        // The bounds are valid.
        Err(error) => unreachable!("{error}"),
    }
}

/// Maximum number of different reasons.
const MOST_REASONS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16) -> Outcome {
        Outcome::Answered {
            status,
            reason: None,
            bytes: 10,
            retry_after: None,
        }
    }

    #[test]
    fn what_began_too_early_does_not_count() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut record = Recorder::new(start + second, Some(second * 2), 1);
        record.ended(Some(0), start, start + second * 2, &answer(200));
        record.ended(Some(0), start + second, start + second * 2, &answer(200));
        record.ended(None, start + second, start + second * 4, &answer(200));
        record.ended(None, start + second * 2, start + second * 3, &answer(503));
        assert_eq!((record.warm_up, record.ended), (1, 3));
        assert_eq!((record.good.len(), record.refused.len()), (2, 1));
        assert_eq!((record.good_in_window, record.bytes_in_window), (1, 20));
        assert_eq!(record.bytes, 30);
        assert_eq!(record.clients[0].served, 1);
        assert_eq!(record.clients[0].longest, 1_000_000);
        assert_eq!(record.last, 3_000_000);
    }

    #[test]
    fn reasons_are_counted_and_their_number_is_limited() {
        let start = Instant::now();
        let mut record = Recorder::new(start, None, 0);
        for number in 0..1000 {
            let outcome = Outcome::Answered {
                status: 500,
                reason: Some(format!("r{number}").into()),
                bytes: 0,
                retry_after: None,
            };
            record.ended(None, start, start, &outcome);
        }
        record.ended(None, start, start, &Outcome::Failed(Failure::Truncated));
        assert!(record.reasons.len() <= MOST_REASONS + 2);
        assert_eq!(record.reasons.values().sum::<u64>(), 1001);
        assert_eq!(record.reasons[&(500, "r1".into())], 1);
    }

    #[test]
    fn when_to_come_again_is_known_from_first_to_last() {
        let start = Instant::now();
        let refusal = |status, retry_after| Outcome::Answered {
            status,
            reason: None,
            bytes: 0,
            retry_after,
        };
        let mut record = Recorder::new(start, None, 0);
        let mut other = Recorder::new(start, None, 0);
        for (status, seconds) in [(503, Some(4)), (429, Some(2)), (503, None), (200, Some(9))] {
            record.ended(None, start, start, &refusal(status, seconds));
        }
        other.ended(None, start, start, &refusal(503, Some(7)));
        record.merge(other);
        let expected = RetryAfter {
            count: 3,
            soonest: 2,
            latest: 7,
        };
        assert_eq!(record.retry_after, expected);
    }

    #[test]
    fn merging_adds_and_keeps_clients_apart() {
        let start = Instant::now();
        let mut both = Recorder::new(start, None, 1);
        let mut other = Recorder::new(start, None, 2);
        both.ended(
            Some(0),
            start,
            start + Duration::from_millis(5),
            &answer(200),
        );
        other.ended(
            Some(1),
            start,
            start + Duration::from_millis(9),
            &answer(404),
        );
        other.clients[0].waits_since = Some(start);
        other.give_up(start + Duration::from_secs(1));
        both.merge(other);
        assert_eq!(both.ended, 2);
        assert_eq!(both.statuses.len(), 2);
        assert_eq!(both.clients.len(), 3);
        assert_eq!(both.clients[1].longest, 1_000_000);
        assert_eq!(
            (both.clients[2].failed, both.clients[2].longest),
            (1, 9_000)
        );
        assert_eq!(both.all_time, 14_000);
    }
}
