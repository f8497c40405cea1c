//! The figures of a load, computed from the records. All printed values are computed here.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::bench::{
    engine::Run,
    plan::{Load, Plan},
    record::RetryAfter,
    work::Arrivals,
};

/// The figures. Times are in seconds, sizes in bytes.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The URL of the load.
    pub url: String,
    /// The kind of load, in words.
    pub load: String,
    /// `closed`, `open` or `replay`.
    pub mode: &'static str,
    /// Users of a closed loop.
    pub users: Option<u32>,
    /// The requested rate per second.
    pub rate_asked: Option<f64>,
    /// Timeout of an answer.
    pub timeout: f64,
    /// Good answers: whole, below 400, within the timeout.
    pub good: u64,
    /// 503 and 429.
    pub refused: u64,
    /// Everything else.
    pub failed: u64,
    /// Share of good answers, percent; `None`: nothing ended.
    pub availability: Option<f64>,
    /// How long requests were sent.
    pub elapsed: f64,
    /// How much longer the last requests took.
    pub tail: f64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Good answers a second while requests were sent.
    pub rate: f64,
    /// Body bytes a second while requests were sent.
    pub throughput: f64,
    /// Requests under way on average.
    pub concurrency: f64,
    /// Times of good answers.
    pub times: Times,
    /// Times of refusals.
    pub refusals: Times,
    /// Times of other failures.
    pub failures: Times,
    /// How late requests with a given time were sent.
    pub late: Option<Times>,
    /// Answers by status.
    pub statuses: Vec<(u16, u64)>,
    /// Refusals and failures: status (0: no answer), reason, count; the most frequent first.
    pub reasons: Vec<(u16, String, u64)>,
    /// Retry-After values of refusals.
    pub retry_after: RetryAfter,
    /// The distribution over clients, if there are any.
    pub fairness: Option<Fairness>,
    /// The distribution of good answers' times.
    pub histogram: Vec<Bar>,
    /// Seconds of each point.
    pub step: u64,
    /// The run over time.
    pub points: Vec<Moment>,
    /// Figures of the load generator.
    pub own: Own,
    /// Warnings for the reader, the most important first.
    pub warnings: Vec<String>,
    /// Notes from the start.
    pub notes: Vec<String>,
    /// It was ended early, with this many running requests.
    pub stopped: Option<u64>,
}

/// A distribution of times, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The shortest.
    pub shortest: f64,
    /// The longest.
    pub longest: f64,
    /// The times at [`PERCENTILES`].
    pub percentiles: [f64; 6],
}

/// The distribution over clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fairness {
    /// Clients.
    pub clients: usize,
    /// Good answers of the one with the fewest.
    pub least: u64,
    /// Good answers of the client in the middle.
    pub middle: u64,
    /// Good answers of the client with the most.
    pub most: u64,
    /// Clients that got none.
    pub starved: usize,
    /// The shortest of the clients' longest waits, s.
    pub best_wait: f64,
    /// The one in the middle.
    pub middle_wait: f64,
    /// The longest.
    pub worst_wait: f64,
}

/// Number of good answers with a time above `from` and up to `to`, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// Above it.
    pub from: f64,
    /// At most it.
    pub to: f64,
    /// How many.
    pub count: u64,
}

/// A point of the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Its beginning, s.
    pub at: f64,
    /// Its length, s: the last one ends with the run.
    pub span: f64,
    /// Requests sent, or due.
    pub sent: u64,
    /// Good answers.
    pub good: u64,
    /// Refusals.
    pub refused: u64,
    /// Other failures.
    pub failed: u64,
    /// Median time of good answers, s.
    pub p50: f64,
    /// A higher percentile of the same times.
    pub p99: f64,
    /// A higher percentile of the same times.
    pub longest: f64,
    /// The longest refusal, s.
    pub refused_longest: f64,
}

/// Figures of the load generator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Own {
    /// CPU time, s.
    pub cpu: f64,
    /// The same for each request, µs.
    pub cpu_per_request: f64,
    /// The highest share of time that a thread was busy, 0 to 1.
    pub busiest: f64,
    /// Threads.
    pub threads: usize,
    /// Connections that were made.
    pub connections: u64,
    /// Requests sent again because the server had closed the connection.
    pub sent_again: u64,
    /// Requests of warming up.
    pub warm_up: u64,
    /// Most connections at work at once; none: not limited.
    pub most_connections: Option<u64>,
}

/// The reported percentiles, with their names.
pub const PERCENTILES: [(&str, f64); 6] = [
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
];

impl Summary {
    /// The times of each kind of result that occurred, with its name.
    pub fn columns(&self) -> Vec<(&'static str, &Times)> {
        [
            ("answered", &self.times),
            ("refused", &self.refusals),
            ("failed", &self.failures),
        ]
        .into_iter()
        .filter(|(_, times)| times.count > 0)
        .collect()
    }

    /// The figures of a run.
    pub fn of(plan: &Plan, run: &Run) -> Summary {
        let record = &run.record;
        let (good, refused, failed) =
            (record.good.len(), record.refused.len(), record.failed.len());
        let all = good + refused + failed;
        let elapsed = run.window.as_secs_f64().max(1e-6);
        let last = record.last as f64 / 1e6;
        let (mode, users, rate_asked) = match &plan.load {
            Load::Users(users) => ("closed", Some(*users), None),
            Load::Arrivals { arrivals, .. } => match arrivals {
                Arrivals::Even(rate) | Arrivals::Poisson(rate) => ("open", None, Some(*rate)),
                Arrivals::Log(_) => ("replay", None, None),
            },
        };
        let mut reasons: Vec<(u16, String, u64)> = record
            .reasons
            .iter()
            .map(|((status, reason), count)| (*status, reason.to_string(), *count))
            .collect();
        reasons.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
        let limited = matches!(plan.load, Load::Arrivals { .. });
        let mut summary = Summary {
            url: plan.shown.clone(),
            load: words(plan),
            mode,
            users,
            rate_asked,
            timeout: plan.timeout.as_secs_f64(),
            good,
            refused,
            failed,
            availability: (all > 0).then(|| good as f64 * 100.0 / all as f64),
            elapsed,
            tail: (last - elapsed).max(0.0),
            bytes: record.bytes,
            rate: record.good_in_window as f64 / elapsed,
            throughput: record.bytes_in_window as f64 / elapsed,
            concurrency: record.all_time as f64 / 1e6 / elapsed.max(last),
            times: Times::of(&record.good),
            refusals: Times::of(&record.refused),
            failures: Times::of(&record.failed),
            late: limited.then(|| Times::of(&record.late)),
            statuses: record.statuses.iter().map(|(a, b)| (*a, *b)).collect(),
            reasons,
            retry_after: record.retry_after,
            fairness: Fairness::of(run),
            histogram: bars(&record.good),
            step: record.series.step(),
            points: moments(run, elapsed.max(last)),
            own: Own {
                cpu: run.cpu.as_secs_f64(),
                cpu_per_request: run.cpu.as_secs_f64() * 1e6 / (all + record.warm_up).max(1) as f64,
                busiest: run.busiest,
                threads: run.threads,
                connections: record.connections,
                sent_again: record.sent_again,
                warm_up: record.warm_up,
                most_connections: limited.then_some(run.most_connections),
            },
            warnings: Vec::new(),
            notes: plan.notes.clone(),
            stopped: run.stopped.then_some(run.unfinished),
        };
        summary.warnings = summary.doubts(plan);
        summary
    }

    /// How many failed without an answer for this reason.
    pub fn failures_for(&self, word: &str) -> u64 {
        let same = |(status, reason, _): &&(u16, String, u64)| *status == 0 && reason == word;
        self.reasons
            .iter()
            .filter(same)
            .map(|(_, _, count)| count)
            .sum()
    }

    /// Reasons to doubt that these figures are the server's.
    fn doubts(&self, plan: &Plan) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.own.busiest >= BUSY {
            doubts.push(format!(
                "the load generator was at its limit: one of {} threads was busy {:.0} % of the time; the server may be able to do more (use --threads, or another machine)",
                self.own.threads,
                self.own.busiest * 100.0
            ));
        }
        let late = self.late.map_or(0.0, |late| late.percentiles[4]);
        if late >= LATE.as_secs_f64() {
            doubts.push(format!(
                "the load generator was too slow: 1 of 100 requests was sent {:.0} ms late or more; their times count from when they were due",
                late * 1000.0
            ));
        }
        if let (Load::Arrivals { connections, .. }, Some(most)) =
            (&plan.load, self.own.most_connections)
            && most >= u64::from(*connections)
        {
            doubts.push(format!(
                "all {connections} connections were busy (--max-connections), so requests waited in the load generator; {} were never sent",
                self.failures_for("not_sent")
            ));
        }
        for (word, what) in [
            ("no_descriptor", "no file descriptor was left (ulimit -n)"),
            (
                "no_port",
                "no local port was left (net.ipv4.ip_local_port_range; --source has more, and kept connections need fewer)",
            ),
        ] {
            let count = self.failures_for(word);
            if count > 0 {
                doubts.push(format!(
                    "{count} requests failed in the load generator, not at the server: {what}"
                ));
            }
        }
        doubts
    }
}

impl Times {
    fn of(histogram: &Histogram<u64>) -> Times {
        if histogram.is_empty() {
            return Times::default();
        }
        let seconds = |micros: u64| micros as f64 / 1e6;
        // Percentiles are rounded to three digits. No percentile may exceed the longest time.
        let longest = histogram.max();
        Times {
            count: histogram.len(),
            mean: histogram.mean() / 1e6,
            shortest: seconds(histogram.min()),
            longest: seconds(longest),
            percentiles: PERCENTILES
                .map(|(_, percent)| seconds(histogram.value_at_percentile(percent).min(longest))),
        }
    }
}

impl Fairness {
    fn of(run: &Run) -> Option<Fairness> {
        let clients = &run.record.clients;
        if clients.is_empty() {
            return None;
        }
        let mut served: Vec<u64> = clients.iter().map(|client| client.served).collect();
        let mut waits: Vec<u64> = clients.iter().map(|client| client.longest).collect();
        served.sort_unstable();
        waits.sort_unstable();
        let middle = clients.len() / 2;
        let seconds = |micros: u64| micros as f64 / 1e6;
        Some(Fairness {
            clients: clients.len(),
            least: served[0],
            middle: served[middle],
            most: served[served.len() - 1],
            starved: served.iter().filter(|count| **count == 0).count(),
            best_wait: seconds(waits[0]),
            middle_wait: seconds(waits[middle]),
            worst_wait: seconds(waits[waits.len() - 1]),
        })
    }
}

/// The load in words.
fn words(plan: &Plan) -> String {
    let kept = match plan.keepalive {
        true => "connections kept",
        false => "a connection per request",
    };
    let who = match &plan.load {
        Load::Users(1) => "1 user".to_owned(),
        Load::Users(users) => format!("{users} users"),
        Load::Arrivals { arrivals, .. } => match arrivals {
            Arrivals::Even(rate) => format!("{rate} requests a second"),
            Arrivals::Poisson(rate) => format!("{rate} requests a second at random times"),
            Arrivals::Log(log) => format!("{} requests of a log", log.len()),
        },
    };
    let time = plan.end.time.map(|time| time.saturating_sub(plan.warm_up));
    let until = match (plan.end.requests, time) {
        (Some(count), Some(time)) => format!(", {count} requests or {time:?}"),
        (Some(count), None) => format!(", {count} requests"),
        (None, Some(time)) => format!(" for {time:?}"),
        (None, None) => String::new(),
    };
    format!("{who}{until}, {kept}, timeout {:?}", plan.timeout)
}

/// Bars whose bounds grow in steps: 1, 1.5, 2, 3, 5, 7, 10, … as far as there are values.
fn bars(histogram: &Histogram<u64>) -> Vec<Bar> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let mut edges = vec![0_u64];
    let mut power = 10_u64;
    'all: loop {
        for factor in [10, 15, 20, 30, 50, 70] {
            let edge = power * factor / 10;
            edges.push(edge);
            if edge >= histogram.max() {
                break 'all;
            }
        }
        power *= 10;
    }
    let mut counts = vec![0; edges.len() - 1];
    for step in histogram.iter_recorded() {
        // Recorded values have three digits; each step belongs to one bar only, so that the sum is right.
        let value = step.value_iterated_to().min(histogram.max());
        let above = edges[1..].partition_point(|edge| *edge < value);
        if let Some(count) = counts.get_mut(above) {
            *count += step.count_at_value();
        }
    }
    let bar = |(pair, count): (&[u64], &u64)| Bar {
        from: pair[0] as f64 / 1e6,
        to: pair[1] as f64 / 1e6,
        count: *count,
    };
    let bars: Vec<Bar> = edges.windows(2).zip(&counts).map(bar).collect();
    let first = bars.iter().position(|bar| bar.count > 0).unwrap_or(0);
    bars[first..].to_vec()
}

fn moments(run: &Run, end: f64) -> Vec<Moment> {
    let step = run.record.series.step() as f64;
    let points = run.record.series.points().iter().enumerate();
    let moment = |(number, point): (usize, &crate::bench::series::Point)| {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let at = number as f64 * step;
        let quantile = |q: f64| match point.times.is_empty() {
            true => 0.0,
            false => seconds(point.times.value_at_quantile(q).min(point.times.max())),
        };
        Moment {
            at,
            span: (end - at).clamp(0.001, step),
            sent: point.sent,
            good: point.good,
            refused: point.refused,
            failed: point.failed,
            p50: quantile(0.5),
            p99: quantile(0.99),
            longest: quantile(1.0),
            refused_longest: seconds(point.refused_longest),
        }
    };
    points.map(moment).collect()
}

/// A thread that is busy for this share of the time delays requests.
const BUSY: f64 = 0.9;

/// A request that is sent this late was not sent on time.
const LATE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_add_up_whatever_the_times() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 86_400_000_000, 3).unwrap();
        assert_eq!(bars(&histogram), []);
        for number in 0..100_000_u64 {
            histogram.saturating_record(number * number % 3_000_017);
        }
        let bars = bars(&histogram);
        assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), 100_000);
        assert!(bars.windows(2).all(|pair| pair[0].to == pair[1].from));
        assert!(bars.last().unwrap().to >= 3.0);
    }

    /// The doubts about an empty run with this change.
    fn doubts(change: impl FnOnce(&mut Run)) -> Vec<String> {
        use clap::Parser;
        #[derive(Debug, Parser)]
        struct Typed {
            #[command(flatten)]
            args: crate::bench::BenchArgs,
        }
        let words = ["bench", "http://127.0.0.1/", "-r", "10"];
        let plan = Plan::of(&Typed::try_parse_from(words).unwrap().args).unwrap();
        let mut run = Run {
            record: crate::bench::record::Recorder::new(std::time::Instant::now(), None, 0),
            window: Duration::from_secs(1),
            cpu: Duration::ZERO,
            busiest: 0.1,
            threads: 1,
            unfinished: 0,
            stopped: false,
            most_connections: 3,
        };
        change(&mut run);
        Summary::of(&plan, &run).warnings
    }

    #[test]
    fn the_generators_limit_is_not_taken_for_the_servers() {
        assert_eq!(doubts(|_| ()), Vec::<String>::new());
        let told = |change: fn(&mut Run), word: &str| {
            let doubts = doubts(change);
            assert!(doubts.len() == 1 && doubts[0].contains(word), "{doubts:?}");
        };
        told(|run| run.busiest = 0.95, "busy 95 %");
        told(|run| run.record.late.saturating_record(50_000), "too slow");
        told(|run| run.most_connections = 10_000, "--max-connections");
        let no_port = |run: &mut Run| {
            run.record.reasons.insert((0, "no_port".into()), 7);
        };
        told(no_port, "7 requests failed in the load generator");
    }

    #[test]
    fn no_percentile_is_longer_than_the_longest() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 86_400_000_000, 3).unwrap();
        histogram.saturating_record(1_234_567);
        let times = Times::of(&histogram);
        assert!(
            times
                .percentiles
                .iter()
                .all(|value| *value <= times.longest)
        );
        assert_eq!(
            Times::of(&Histogram::new_with_bounds(1, 10, 3).unwrap()).count,
            0
        );
    }
}
