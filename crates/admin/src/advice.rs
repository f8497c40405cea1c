//! Advice for operators: what is wrong, why, and how to fix it.
//!
//! It is based on the present status and on the last seconds or minute: problems that are over are not shown.

mod calls;
mod certificates;
mod pool;
mod weir;

use std::fmt::Write;

use serde_json::Value;

use super::text::{span, text};

/// A problem.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The pool concerned; `None`: more than one pool, or weir itself.
    pub(super) pool: Option<String>,
    /// The problem and its cause.
    pub(super) what: String,
    /// How to fix it.
    pub(super) help: String,
}

/// All problems, the worst first.
pub(super) fn troubles(status: &Value) -> Vec<Trouble> {
    let mut found = weir::silent(status);
    found.extend(list(&status["pools"]).iter().flat_map(pool::troubles));
    found.extend(weir::failures(status));
    found.extend(weir::logs(status));
    found.extend(certificates::troubles(status));
    found.extend(calls::troubles(status));
    found.extend(weir::kernel(status));
    found.extend(weir::connections(status));
    found.extend(weir::spool(status));
    found
}

/// The same for programs: `[{ pool, what, help }]`.
pub(super) fn as_json(status: &Value) -> Value {
    let entry = |Trouble { pool, what, help }| serde_json::json!({ "pool": pool, "what": what, "help": help });
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

fn trouble(what: String, help: impl Into<String>) -> Trouble {
    Trouble {
        pool: None,
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
