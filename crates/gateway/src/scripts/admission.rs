//! A request asks its pool for a worker, waits for it, or learns why it gets none.

use std::{
    path::Path,
    task::{Context, Poll},
    time::Duration,
};

use http::StatusCode;
use weir_pool::{RequestId, ShedReason, Stats};

use super::worker::choice;
use crate::{
    answers::refusal::Refusal,
    clock::{self, NEVER},
    connections::client::{Client, Conn},
    dispatch::{Admitted, Ask, Learner, Lease, NoTurn, PoolHandle, QueuePlace, Turn},
    exchange::BoxFuture,
    record::Record,
    route::Script,
    scripts::{
        policy,
        self_calls::{PendingLookup, Requester},
    },
    trace,
};

/// The answer to a request for a script that nobody runs.
#[cold]
pub(crate) fn no_pool(record: &Record) -> Refusal {
    let script = record.script.as_deref().map(Script::filename);
    let script = script.unwrap_or(Path::new(""));
    Refusal::client(
        StatusCode::FORBIDDEN,
        "forbidden",
        format!("{}: the site has no pool", script.display()),
    )
}

/// Refuses requests for scripts that crash their workers again and again.
pub(crate) fn refuse_what_crashes(
    record: &Record,
    pool: &'static PoolHandle,
) -> Result<(), Refusal> {
    let script = record
        .script
        .as_ref()
        .map_or(&b""[..], |script| &script.filename);
    let uri = record.uri();
    pool.may_run(script, uri).map_err(|crashing| {
        let message = match pool.say_refusal() {
            None => String::new(),
            Some(_) => format!(
                "{} has crashed {} workers: refused, tried again in {} s (crash_limit, crash_pause)",
                crashing.path, crashing.crashes, crashing.seconds
            ),
        };
        Refusal::upstream(
            StatusCode::SERVICE_UNAVAILABLE,
            "crashing",
            "destination_unavailable",
            message,
        )
        .retry_after(crashing.seconds.max(1))
    })
}

pub(crate) fn trace_queue(record: &Record, pool: &PoolHandle) {
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

/// Asks the pool for a worker.
pub(crate) fn admit(record: &mut Record, client: &Client, pool: &'static PoolHandle) -> Admitted {
    let ask = Ask {
        id: RequestId(record.id),
        home: client.conn.home,
        deadline: record.policy.deadline,
        priority: record.policy.priority,
        client: record.policy.client,
        session: policy::session(record, pool),
        choice: choice(record, pool),
    };
    let mut wait = record.wait;
    let admitted = pool.admit(&ask, &mut wait);
    record.wait = wait;
    admitted
}

/// The turn of a request among those with its key, and what its end will show about its script.
pub(crate) type SessionTurn = (Option<Turn>, Option<Learner>);

/// A request in its pool's queue.
pub(crate) struct Queued {
    place: QueuePlace,
    /// Set if the client may be a worker: a call of a worker's own script needs a worker while another worker waits for
    /// it.
    caller: Option<PendingLookup>,
    turn: Option<Turn>,
    learner: Option<Learner>,
}

impl Queued {
    pub(crate) fn new(
        record: &Record,
        client: &Client,
        place: QueuePlace,
        (turn, learner): SessionTurn,
    ) -> Queued {
        let has_workers = record.pool.is_some_and(PoolHandle::has_workers);
        let looks = has_workers && record.params.is_none();
        let caller = looks.then(|| candidate(record, &client.conn));
        Queued {
            place,
            caller: caller.flatten(),
            turn,
            learner,
        }
    }

    /// Ready when it gets a worker, or is refused.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        record: &mut Record,
    ) -> Poll<Result<Lease, ShedReason>> {
        let lease = self.place.poll(cx, &mut record.wait, self.caller.as_ref());
        lease.map_ok(|mut lease| {
            (lease.turn, lease.learner) = (self.turn.take(), self.learner);
            lease
        })
    }
}

/// A request that waits until no other one with its key runs (`serialize_by`).
pub(crate) struct Serialized {
    pool: &'static PoolHandle,
    turn: BoxFuture<Result<Turn, NoTurn>>,
    caller: Option<PendingLookup>,
    learner: Option<Learner>,
    /// Since when it waits ([`clock::now`]).
    since: u64,
}

impl Serialized {
    /// `learner`: weir has found out by itself that the script holds the lock of its session. Then a call of a worker takes
    /// no turn: its caller may have closed the session by now, and waits.
    pub(crate) fn new(
        record: &Record,
        client: &Client,
        pool: &'static PoolHandle,
        (key, learner): (u64, Option<Learner>),
    ) -> Serialized {
        let looks = learner.is_some() && record.params.is_none();
        Serialized {
            pool,
            turn: Box::pin(pool.turn(key, record.policy.deadline)),
            caller: looks.then(|| candidate(record, &client.conn)).flatten(),
            learner,
            since: clock::now(),
        }
    }

    /// Ready when it has its turn, or needs none.
    ///
    /// # Errors
    ///
    /// The answer if it waits too long.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        record: &mut Record,
    ) -> Poll<Result<SessionTurn, Refusal>> {
        let taken = match self.turn.as_mut().poll(cx) {
            Poll::Ready(turn) => turn.map(Some),
            Poll::Pending if self.caller.as_ref().and_then(PendingLookup::call).is_some() => {
                Ok(None)
            }
            Poll::Pending => return Poll::Pending,
        };
        let waited = clock::now().saturating_sub(self.since);
        record.rare_mut().earlier.waited += waited;
        Poll::Ready(match taken {
            Ok(turn) => Ok((turn, self.learner)),
            Err(why) => Err(no_turn(self.pool, &why, waited)),
        })
    }
}

/// The request begins to wait, and may be a call of a worker. `None`: it is none.
fn candidate(record: &Record, conn: &Conn) -> Option<PendingLookup> {
    if !conn.source.may_be_worker(record.named) {
        return None;
    }
    let asker = Requester {
        source: conn.source.clone(),
        named: record.named,
    };
    let waker = conn.waker()?;
    Some(record.gateway.may_call(asker, record.id, waker))
}

#[cold]
fn no_turn(pool: &PoolHandle, why: &NoTurn, waited: u64) -> Refusal {
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
}

/// The answer to a request that gets no worker.
#[cold]
pub(crate) fn no_worker(record: &Record, pool: &'static PoolHandle, reason: ShedReason) -> Refusal {
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
        StatusCode::SERVICE_UNAVAILABLE,
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
