//! A request asks its pool for a worker, waits for it, or learns why it gets none.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use weir_pool::{ShedReason, Stats};

use super::attempt::{Attempt, candidate};
use crate::{
    clock::{self, NEVER},
    conn::Client,
    dispatch::{NoTurn, PoolHandle, Turn},
    own_calls::Candidate,
    policy,
    record::Record,
    refusal::Refusal,
    trace,
};

/// Asks `pool` for a worker, as soon as it is the turn of the request (`serialize_by`).
///
/// # Errors
///
/// The answer if it does not get its turn.
pub(super) async fn admit(
    record: &mut Record,
    client: &Client,
    pool: &'static PoolHandle,
) -> Result<Attempt, Refusal> {
    // Also while it waits for its turn.
    client.watch_client();
    trace_queue(record, pool);
    let (key, learner) = policy::serial(record, pool);
    let turn = match key {
        0 => None,
        // Boxed: without `serialize_by` no waiting request should reserve this memory.
        key => Box::pin(take_turn(record, client, pool, key, learner.is_some())).await?,
    };
    Ok(Attempt::new(record, client, pool, (turn, learner)))
}

pub(super) fn trace_queue(record: &Record, pool: &PoolHandle) {
    trace::step!(
        record.id,
        record.head_whole,
        "queue",
        "pool={} {}{}",
        pool.settings.name,
        QueueText(&pool.stats()),
        WorthText(record)
    );
}

/// The answer to a request that gets no worker.
#[cold]
pub(super) fn refusal(record: &Record, pool: &'static PoolHandle, reason: ShedReason) -> Refusal {
    if record.wait.is_some_and(|wait| wait.stuck) {
        return refuse_own_call(pool);
    }
    let message = match pool.say_refusal() {
        None => String::new(),
        Some(0) => why_shed(record, pool, reason),
        Some(more) => format!(
            "{}; {more} more were refused since the last such message for this pool",
            why_shed(record, pool, reason)
        ),
    };
    Refusal::shed(reason, pool.retry_after(), message)
}

/// Waits until no other request with its key runs. `learned`: weir has found out by itself that the script holds the lock
/// of its session. Then a call of a worker takes no turn: its caller may have closed the session by now, and waits.
///
/// # Errors
///
/// The answer if it waits too long.
async fn take_turn(
    record: &mut Record,
    client: &Client,
    pool: &'static PoolHandle,
    key: u64,
    learned: bool,
) -> Result<Option<Turn>, Refusal> {
    let began = clock::now();
    let looks = learned && record.params.is_none();
    let caller = looks.then(|| candidate(record, &client.conn)).flatten();
    let deadline = record.policy.deadline;
    let taking = async {
        let mut turn = pin!(pool.turn(key, deadline));
        poll_fn(|cx| match turn.as_mut().poll(cx) {
            Poll::Ready(turn) => Poll::Ready(turn.map(Some)),
            Poll::Pending if caller.as_ref().and_then(Candidate::call).is_some() => {
                Poll::Ready(Ok(None))
            }
            Poll::Pending => Poll::Pending,
        })
        .await
    };
    let taken = taking.await;
    drop(caller);
    let waited = clock::now().saturating_sub(began);
    record.rare_mut().earlier.waited += waited;
    taken.map_err(|why| {
        let (reason, what) = match why {
            NoTurn::Full(count) => (
                ShedReason::QueueFull,
                format!("{count} requests with the same key are already waiting (serialize_queue)"),
            ),
            NoTurn::TimedOut | NoTurn::Late => (
                ShedReason::QueueTimeout,
                format!(
                    "waited {} s for another request with the same key (serialize_by)",
                    seconds(waited)
                ),
            ),
        };
        let message = match pool.say_refusal() {
            None => String::new(),
            Some(_) => what,
        };
        Refusal::shed(reason, pool.retry_after(), message)
    })
}

/// The answer to a call of a worker that no worker can ever serve.
fn refuse_own_call(pool: &PoolHandle) -> Refusal {
    let message = match pool.say_refusal() {
        None => String::new(),
        Some(_) => format!(
            "every worker of the pool is waiting for a call of its script to this site, and {} extra workers were \
             already started for such calls (self_call_workers): refused",
            pool.settings
                .workers()
                .map_or(0, |workers| workers.self_call_workers)
        ),
    };
    Refusal::upstream(
        http::StatusCode::SERVICE_UNAVAILABLE,
        "self_call",
        "destination_unavailable",
        message,
    )
    .retry_after(pool.retry_after())
}

/// The error log message for a request that got no worker.
fn why_shed(record: &Record, pool: &PoolHandle, reason: ShedReason) -> String {
    let (wait, stats) = (record.wait.unwrap_or_default(), pool.stats());
    let why = match (reason, wait.foreseen) {
        (ShedReason::Hopeless, Some((place, expected))) => {
            let deadline = record.policy.deadline;
            let left = Duration::from_micros(deadline.saturating_sub(clock::now()));
            let limit = match deadline {
                NEVER => pool.settings.queue.timeout,
                _ => left.min(pool.settings.queue.timeout),
            };
            format!(
                "it would have to wait about {} s behind {place} others, but has only {:.3} s; ",
                seconds(expected),
                limit.as_secs_f64()
            )
        }
        (ShedReason::Overload, Some((place, expected))) => format!(
            "the pool is overloaded, and {place} requests are ahead of it, about {} s; ",
            seconds(expected)
        ),
        (ShedReason::Deadline, _) => {
            "its own deadline is over, or leaves too little time for a script; ".into()
        }
        (ShedReason::PushedOut, _) => {
            "it was removed in favour of a request with priority, or of a client with fewer waiting requests; "
                .into()
        }
        _ => String::new(),
    };
    let service = match stats.service_estimate.0 {
        0 => String::new(),
        service => format!("; a script takes about {} s", seconds(service)),
    };
    format!(
        "{why}waited {:.3} s; {} were waiting when it arrived, {} of at most {} are waiting now; {} of {} workers are busy, maxconn is {}{service}",
        Duration::from_micros(wait.waited.unwrap_or(0)).as_secs_f64(),
        wait.queue,
        stats.waiting,
        pool.settings.queue.max_queue,
        stats.busy,
        stats.workers,
        pool.settings.queue.maxconn
    )
}

/// Microseconds as seconds with three decimals.
fn seconds(micros: u64) -> String {
    format!("{:.3}", Duration::from_micros(micros).as_secs_f64())
}

/// `waiting=3 expected=0.120s service=0.040s`
struct QueueText<'s>(&'s Stats);

impl std::fmt::Display for QueueText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stats = self.0;
        write!(f, "waiting={}", stats.waiting)?;
        if stats.expected_wait.0 > 0 {
            write!(f, " expected={}s", seconds(stats.expected_wait.0))?;
            write!(f, " service={}s", seconds(stats.service_estimate.0))?;
        }
        if stats.overloaded {
            f.write_str(" overloaded")?;
        }
        Ok(())
    }
}

/// The special properties of a request in the queue.
struct WorthText<'r>(&'r Record);

impl std::fmt::Display for WorthText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let policy = &self.0.policy;
        if policy.priority != 0 {
            write!(f, " priority={}", policy.priority)?;
        }
        if policy.deadline != NEVER {
            let left = Duration::from_micros(policy.deadline.saturating_sub(clock::now()));
            write!(f, " remaining={:.3}s", left.as_secs_f64())?;
        }
        Ok(())
    }
}
