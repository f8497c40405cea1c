//! Advice for operators: what is wrong, why, and how to fix it.
//!
//! It is based on the present status and on the last seconds or minute: problems that are over are not shown.

mod calls;
mod certificates;
mod pool;
mod programs;
mod weir;
mod work;

use std::fmt::Write;

use serde_json::Value;

use super::text::{span, text};

/// A problem.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// What it costs visitors.
    pub(super) cost: Cost,
    /// The pool concerned; `None`: more than one pool, or weir itself.
    pub(super) pool: Option<String>,
    /// Requests for that pool in the last minute.
    visitors: u64,
    /// The problem and its cause.
    pub(super) what: String,
    /// How to fix it.
    pub(super) help: String,
}

/// What a problem costs visitors, the most expensive first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cost {
    /// Nothing is answered.
    All,
    /// The sites of a pool are down.
    Site,
    /// Some requests are refused, or answered with errors.
    Errors,
    /// Answers come late.
    Time,
    /// Nothing yet.
    Nothing,
}

impl Cost {
    /// One word for programs.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Cost::All => "all",
            Cost::Site => "site",
            Cost::Errors => "errors",
            Cost::Time => "time",
            Cost::Nothing => "nothing",
        }
    }

    /// How urgent it is.
    pub(super) fn level(self) -> Level {
        match self {
            Cost::All | Cost::Site => Level::Critical,
            Cost::Errors | Cost::Time => Level::Warning,
            Cost::Nothing => Level::Notice,
        }
    }
}

/// How urgent a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Critical,
    Warning,
    Notice,
}

impl Level {
    /// The word for people and programs.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Level::Critical => "critical",
            Level::Warning => "warning",
            Level::Notice => "notice",
        }
    }
}

/// All problems: those that cost visitors most come first, among equal ones those of the pool with the most requests.
pub(super) fn troubles(status: &Value) -> Vec<Trouble> {
    let mut found = weir::silent(status);
    found.extend(pools(list(&status["pools"])));
    found.extend(weir::failures(status));
    found.extend(weir::logs(status));
    found.extend(weir::bus(status));
    found.extend(certificates::troubles(status));
    found.extend(programs::troubles(status));
    found.extend(calls::troubles(status));
    found.extend(weir::kernel(status));
    found.extend(weir::connections(status));
    found.extend(weir::untrusted(status));
    found.extend(weir::spool(status));
    found.sort_by_key(|trouble| (trouble.cost, std::cmp::Reverse(trouble.visitors)));
    found
}

/// The problems of all pools. If no pool with visitors answers, nothing is answered.
fn pools(pools: &[Value]) -> Vec<Trouble> {
    let mut found: Vec<Trouble> = Vec::new();
    let (mut used, mut dead) = (0, 0);
    for one in pools {
        let troubles = pool::troubles(one);
        let is_dead = troubles.iter().any(|trouble| trouble.cost == Cost::Site);
        dead += usize::from(is_dead);
        used += usize::from(is_dead || number(&one["last_minute"]["finished"]) > 0);
        found.extend(troubles);
    }
    if dead == used {
        let downs = found
            .iter_mut()
            .filter(|trouble| trouble.cost == Cost::Site);
        downs.for_each(|trouble| trouble.cost = Cost::All);
    }
    found
}

/// The same for programs: `[{ level, cost, pool, what, help }]`.
pub(super) fn as_json(status: &Value) -> Value {
    let entry = |trouble: Trouble| {
        let Trouble {
            cost,
            pool,
            what,
            help,
            ..
        } = trouble;
        let (level, cost) = (cost.level().as_str(), cost.as_str());
        serde_json::json!({ "level": level, "cost": cost, "pool": pool, "what": what, "help": help })
    };
    troubles(status).into_iter().map(entry).collect()
}

/// Answers with a status of 500 or above for one cause, from `failures` of the status.
struct Failure<'s>(&'s Value);

impl<'s> Failure<'s> {
    fn all(of: &'s Value) -> impl Iterator<Item = Failure<'s>> {
        list(&of["failures"]).iter().map(Failure)
    }

    /// weir's word for the cause; `None`: a script's answer.
    fn reason(&self) -> Option<&'s str> {
        self.0["reason"].as_str()
    }

    fn status(&self) -> u64 {
        number(&self.0["status"])
    }

    fn last_minute(&self) -> u64 {
        number(&self.0["last_minute"])
    }

    /// Whether it still happens.
    fn is_now(&self) -> bool {
        number(&self.0["last_ten_seconds"]) > 0
    }

    /// `the last was GET /x (request 7): it was so and so`
    fn last(&self) -> String {
        let last = &self.0["last"];
        let mut said = format!(
            "the last was {} {} (request {})",
            text(&last["method"]),
            text(&last["uri"]),
            text(&last["request"])
        );
        if let Some(message) = last["message"]
            .as_str()
            .filter(|message| !message.is_empty())
        {
            let _ = write!(said, ": {}", text(&message.into()));
        }
        said
    }
}

fn trouble(cost: Cost, what: String, help: impl Into<String>) -> Trouble {
    Trouble {
        cost,
        pool: None,
        visitors: 0,
        what,
        help: help.into(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn name(of: &Value) -> String {
    text(&of["name"])
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// `1 worker`, `2 workers`
fn count(number: u64, of: &str) -> String {
    match number {
        1 => format!("1 {of}"),
        number => format!("{number} {of}s"),
    }
}

/// `1 request was`, `2 requests were`
fn were(number: u64, of: &str) -> String {
    let verb = if number == 1 { "was" } else { "were" };
    format!("{} {verb}", count(number, of))
}

fn said(seconds: f64) -> String {
    span(&seconds.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_well_is_not_spoken_of() {
        assert_eq!(troubles(&json!({})), []);
    }

    #[test]
    fn nothing_that_a_client_sent_reaches_a_terminal_as_it_is() {
        let status = json!({ "failures": [{
            "status": 503, "reason": "spool_failed", "last_minute": 1, "last_ten_seconds": 1,
            "last": { "method": "POST", "uri": "/\u{1b}[31m\u{202e}", "request": 1, "message": "full\u{7}" },
        }] });
        let found = troubles(&status);
        assert_eq!(found.len(), 1, "{found:?}");
        let what = &found[0].what;
        assert!(!what.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{what}");
    }
}
