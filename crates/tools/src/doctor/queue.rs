//! Queue sizes: compares how many requests can be served in the allowed waiting time with how many may wait.

use std::time::Duration;

use serde_json::Value;
use weir_config::{Address, Pool, Runtime};

use super::{Notes, case::Case, timeouts::seconds};

/// Every pool.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    for pool in &case.config.pools {
        maxconn(pool, notes);
        let told = case.live().and_then(|live| live.pool(&pool.name));
        match told.and_then(Rate::of) {
            Some(rate) => length(pool, &rate, notes),
            None => unmeasured(case, pool, notes),
        }
    }
    backlog(case, notes);
}

/// Figures of a running pool.
struct Rate {
    /// Finished requests.
    finished: u64,
    /// Refused because the queue was full, and because waiting took too long.
    full: u64,
    late: u64,
    /// Longest wait, seconds.
    longest: f64,
    /// The highest number of waiting requests.
    most_waiting: u64,
}

impl Rate {
    /// `None`: too few requests for a conclusion.
    fn of(pool: &Value) -> Option<Self> {
        let requests = &pool["requests"];
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let rate = Self {
            finished: count(&requests["finished"]),
            full: count(&requests["refused_queue_full"]),
            late: count(&requests["refused_queue_timeout"]),
            longest: pool["queue"]["longest_wait"].as_f64().unwrap_or(0.0),
            most_waiting: count(&pool["queue"]["most_waiting"]),
        };
        (rate.finished >= ENOUGH).then_some(rate)
    }

    /// How many requests per second the pool finishes while its queue is not empty, by the longest queue and the
    /// longest wait. `None`: no wait was long enough to tell.
    fn a_second(&self) -> Option<f64> {
        let told = self.longest >= 0.1 && self.most_waiting >= 10;
        told.then(|| self.most_waiting as f64 / self.longest)
    }
}

fn maxconn(pool: &Pool, notes: &mut Notes) {
    let Some(workers) = pool.workers() else {
        return;
    };
    let (maxconn, children) = (pool.queue.maxconn, workers.max_children);
    let label = format!("[pool.{}.queue] maxconn = {maxconn}", pool.name);
    if maxconn < children {
        notes.note(
            format!("{label}, and max_children = {children}"),
            format!(
                "at most {} workers are ever busy; the others only use memory",
                maxconn
            ),
            format!("max_children = {maxconn}, or remove maxconn"),
        );
    } else if maxconn > children {
        notes.note(
            format!("{label} is more than max_children = {children}"),
            "a worker runs one request at a time, so more requests wait anyway",
            "remove maxconn",
        );
    }
}

/// Compares the queue's length with the measurements.
fn length(pool: &Pool, rate: &Rate, notes: &mut Notes) {
    let (name, queue) = (&pool.name, &pool.queue);
    let before = notes.findings.len();
    if rate.full > 0 {
        notes.note(
            format!("[pool.{name}] {} requests were refused because the queue was full", rate.full),
            format!("max_queue = {} requests were already waiting", queue.max_queue),
            "add workers or make scripts faster; or raise max_queue if requests that wait longer are still served in time",
        );
    }
    if rate.late > 0 {
        notes.note(
            format!(
                "[pool.{name}] {} requests waited {} and then got no worker",
                rate.late,
                seconds(queue.timeout)
            ),
            "the pool was overloaded for longer than a request may wait",
            "add workers, or make scripts faster",
        );
    }
    if let Some(a_second) = rate.a_second() {
        let servable = a_second * queue.timeout.as_secs_f64();
        if (queue.max_queue as f64) > servable * 2.0 {
            let wanted = (servable.ceil() as usize).max(1);
            notes.note(
                format!(
                    "[pool.{name}.queue] max_queue = {}, but only about {servable:.0} can be served within timeout = {}",
                    queue.max_queue,
                    seconds(queue.timeout)
                ),
                format!(
                    "measured: at most {} waited, for at most {:.1} s; requests behind them wait without being served",
                    rate.most_waiting, rate.longest
                ),
                format!("max_queue = {wanted}"),
            );
        }
    }
    if notes.findings.len() == before {
        notes.ok(format!(
            "[pool.{name}] {} requests were finished, and none was refused because of the queue",
            rate.finished
        ));
    }
}

fn unmeasured(case: &Case<'_>, pool: &Pool, notes: &mut Notes) {
    let queue = &pool.queue;
    if matches!(&pool.runtime, Runtime::Servers(servers) if servers.adaptive.is_some()) {
        notes.ok(format!(
            "[pool.{}] weir finds by measuring how many requests its servers can take",
            pool.name
        ));
        return;
    }
    // Each request would have to finish within this time. The administrator must decide whether that is realistic.
    let each = queue.timeout.as_secs_f64() * queue.maxconn as f64 / queue.max_queue.max(1) as f64;
    if queue.max_queue > 0 {
        notes.ok(format!(
            "[pool.{}.queue] max_queue = {} with timeout = {} and maxconn = {}: all are served in time if a request \
             takes {} or less",
            pool.name,
            queue.max_queue,
            seconds(queue.timeout),
            queue.maxconn,
            seconds(Duration::from_secs_f64(each.min(1e6)))
        ));
    } else {
        notes.note(
            format!("[pool.{}.queue] max_queue = 0: no request waits", pool.name),
            "a request is refused at once when all workers are busy, even in a short burst",
            "max_queue = 1000",
        );
    }
    if case.live().is_none() {
        notes.unseen(
            format!(
                "[pool.{}] how many requests per second it finishes",
                pool.name
            ),
            "run `weir doctor` while weir is running under its usual load",
        );
    }
}

/// Connections in the kernel's queue are not visible, so all of them must be accepted soon.
fn backlog(case: &Case<'_>, notes: &mut Notes) {
    let most = case.config.server.max_connections;
    for listener in &case.config.listeners {
        if listener.backlog < SHORT && matches!(listener.address, Address::Tcp(_)) {
            notes.note(
                format!("[listen.{}] backlog = {}", listener.name, listener.backlog),
                "if more new connections than that arrive at one moment, the others wait for about a second",
                "backlog = 4096; a long queue does no harm, because weir accepts at once",
            );
        }
    }
    let waiting: usize = case
        .config
        .pools
        .iter()
        .map(|p| p.queue.max_queue + p.queue.maxconn)
        .sum();
    if waiting > most {
        notes.note(
            format!("[server] max_connections = {most}, but {waiting} requests may wait or run in all pools"),
            "more clients wait in the kernel's queue, without deadline and without priority",
            "raise max_connections (and the limit of open files), or lower max_queue",
        );
    } else {
        notes.ok(format!(
            "[server] max_connections = {most} is enough for all {waiting} requests that may wait or run"
        ));
    }
}

/// With fewer requests nothing is known about a pool.
const ENOUGH: u64 = 1_000;

/// A burst of new connections does not fit into a shorter queue.
const SHORT: u32 = 128;

#[cfg(test)]
mod tests {
    use super::super::tests::{said, with_config};
    use super::*;
    use serde_json::json;

    fn looked(pool: &str, told: Option<Value>) -> Vec<String> {
        let text = format!(
            "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\nruntime = \"command\"\n\
             command = [\"sh\"]\nmax_children = 4\n{pool}\n"
        );
        with_config(&text, |case| {
            let mut notes = Notes::default();
            let pool = &case.config.pools[0];
            maxconn(pool, &mut notes);
            match told.as_ref().and_then(Rate::of) {
                Some(rate) => length(pool, &rate, &mut notes),
                None => unmeasured(case, pool, &mut notes),
            }
            said(&notes)
        })
    }

    fn told(finished: u64, late: u64, most_waiting: u64, longest: f64) -> Option<Value> {
        Some(json!({
            "requests": { "finished": finished, "refused_queue_full": 0, "refused_queue_timeout": late },
            "queue": { "most_waiting": most_waiting, "longest_wait": longest },
        }))
    }

    #[test]
    fn what_was_measured_is_held_against_the_queue_s_length() {
        let found = looked("", told(5_000, 0, 0, 0.0));
        assert!(found[0].starts_with("ok: "), "{found:?}");
        // 100 requests waited for at most 10 s: about 10 per second, 100 in 10 s.
        let found = looked("", told(5_000, 3, 100, 10.0));
        assert!(
            found[0].contains("3 requests waited 10 s and then got no worker"),
            "{found:?}"
        );
        assert!(found[1].ends_with("max_queue = 100"), "{found:?}");
        assert_eq!(
            looked("queue.max_queue = 150", told(5_000, 0, 100, 10.0)).len(),
            1
        );
    }

    #[test]
    fn without_measurements_only_arithmetic_is_told() {
        let found = looked("", told(10, 0, 0, 0.0));
        assert!(
            found[0].starts_with("ok: ") && found[0].contains("40 ms or less"),
            "{found:?}"
        );
        assert!(looked("queue.max_queue = 0", None)[0].starts_with("note: "));
    }

    #[test]
    fn maxconn_is_the_number_of_workers_or_told() {
        assert!(looked("queue.maxconn = 2", None)[0].contains("max_children = 2"));
        assert!(looked("queue.maxconn = 9", None)[0].contains("remove maxconn"));
    }
}
