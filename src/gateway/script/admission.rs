//! A request asks its pool for a worker, waits for it, and learns why it gets none.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use weir_pool::{ShedReason, Stats};

use super::super::{
    client_io::Conn,
    clock::{self, NEVER},
    dispatch::{Ask, Lease, PoolHandle},
    record::{self, Record},
    refusal::Refusal,
    trace,
};

/// The right to a worker of `pool`. While the request waits for long, its connection has nothing but it, and it keeps
/// its headers folded.
///
/// # Errors
///
/// The answer where it gets none.
pub(super) async fn admit(
    record: &mut Record,
    conn: &Conn,
    pool: &Arc<PoolHandle>,
) -> Result<Lease, Refusal> {
    trace::step!(
        record.id,
        record.traced_from,
        "queue",
        "pool={} {}{}",
        pool.settings.name,
        QueueText(&pool.stats()),
        WorthText(record)
    );
    let ask = Ask {
        id: weir_pool::RequestId(record.id),
        home: conn.home,
        deadline: record.worth.deadline,
        priority: record.worth.priority,
        client: record.worth.client,
    };
    let (mut waits, over_http) = (false, record.params.is_none());
    let acquired = {
        let mut acquiring = pin!(pool.acquire(&ask, &mut record.wait));
        poll_fn(|cx| {
            let acquired = acquiring.as_mut().poll(cx);
            if acquired.is_pending() && over_http {
                if !std::mem::replace(&mut waits, true) {
                    conn.enters_queue();
                }
                if conn.hyper_is_down() && record.folded.is_none() {
                    record.folded = Some(record::fold(&mut record.parts));
                }
            }
            acquired
        })
        .await
    };
    if waits {
        conn.leaves_queue();
        record.unfold();
    }
    acquired.map_err(|reason| {
        let message = match pool.say_refusal() {
            None => String::new(),
            Some(0) => why_shed(record, pool, reason),
            Some(more) => format!(
                "{}; {more} more were refused since the last line of this pool's refusals",
                why_shed(record, pool, reason)
            ),
        };
        Refusal::shed(reason, pool.retry_after(), message)
    })
}

/// What an operator has to know of a request that no worker took.
fn why_shed(record: &Record, pool: &PoolHandle, reason: ShedReason) -> String {
    let (wait, stats) = (record.wait.unwrap_or_default(), pool.stats());
    let why = match (reason, wait.foreseen) {
        (ShedReason::Hopeless, Some((place, expected))) => {
            let deadline = record.worth.deadline;
            let left = Duration::from_micros(deadline.saturating_sub(clock::now()));
            let limit = match deadline {
                NEVER => pool.settings.queue.timeout,
                _ => left.min(pool.settings.queue.timeout),
            };
            format!(
                "it would have waited for about {} s behind {place} others, but has {:.3} s; ",
                seconds(expected),
                limit.as_secs_f64()
            )
        }
        (ShedReason::Overload, Some((place, expected))) => format!(
            "the pool is overloaded, and {place} are before it already, which is about {} s; ",
            seconds(expected)
        ),
        (ShedReason::Deadline, _) => {
            "its own deadline is past, or too near for a script to keep it; ".into()
        }
        (ShedReason::PushedOut, _) => {
            "it made room for another client's request, which has fewer waiting or goes first; "
                .into()
        }
        _ => String::new(),
    };
    let service = match stats.service_estimate.0 {
        0 => String::new(),
        service => format!("; a script takes about {} s", seconds(service)),
    };
    format!(
        "{why}waited {:.3} s; {} waited when it came, {} wait now of {} at most; {} of {} workers at work, maxconn is {}{service}",
        Duration::from_micros(wait.waited.unwrap_or(0)).as_secs_f64(),
        wait.queue,
        stats.waiting,
        pool.settings.queue.max_queue,
        stats.busy,
        stats.workers,
        pool.settings.queue.maxconn
    )
}

/// Microseconds, as seconds with three places.
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

/// What is special about a request in the queue.
struct WorthText<'r>(&'r Record);

impl std::fmt::Display for WorthText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let worth = &self.0.worth;
        if worth.priority != 0 {
            write!(f, " priority={}", worth.priority)?;
        }
        if worth.deadline != NEVER {
            let left = Duration::from_micros(worth.deadline.saturating_sub(clock::now()));
            write!(f, " remaining={:.3}s", left.as_secs_f64())?;
        }
        Ok(())
    }
}
