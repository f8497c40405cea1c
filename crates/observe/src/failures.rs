//! Recent errors for the admin interface: answers with a status of 500 or above, by pool and cause.
//!
//! Only failed requests are counted here, so the lock and the texts cost the others nothing. The number of causes is
//! limited: the reasons are weir's own words, and answers of scripts are counted by status.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use serde_json::{Value, json};

use crate::recent::Recent;

/// All causes of a gateway.
#[derive(Debug, Default)]
pub struct Failures(Mutex<HashMap<Cause, Counts>>);

/// Why requests fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cause {
    /// Index into the configuration's pools; `None` if the request needed no pool, or none was found.
    pub pool: Option<u16>,
    /// The status of the answer.
    pub status: u16,
    /// Why weir gave that answer: the reason in the access log. `None`: the answer is the script's.
    pub reason: Option<&'static str>,
}

#[derive(Debug)]
struct Counts {
    total: u64,
    recent: Recent,
    last: Last,
}

/// The request that failed last.
#[derive(Debug)]
struct Last {
    at: SystemTime,
    id: u64,
    method: String,
    /// Its path. The query is left out, because it may hold private data.
    path: String,
    /// The message in the error log; empty if there is none.
    message: String,
}

/// A request that failed.
#[derive(Debug, Clone, Copy)]
pub struct Failed<'r> {
    /// Its number in the logs.
    pub id: u64,
    pub method: &'r str,
    /// Path and query as the client sent them.
    pub uri: &'r [u8],
    /// The message in the error log. If it is empty, the message of an earlier request is kept.
    pub message: &'r str,
}

impl Failures {
    /// Counts a failed request.
    pub fn note(&self, cause: Cause, failed: &Failed<'_>) {
        let mut all = self.all();
        let counts = all.entry(cause).or_insert_with(|| Counts {
            total: 0,
            recent: Recent::default(),
            last: Last {
                at: SystemTime::UNIX_EPOCH,
                id: 0,
                method: String::new(),
                path: String::new(),
                message: String::new(),
            },
        });
        counts.total += 1;
        counts.recent.count();
        let last = &mut counts.last;
        let path = failed.uri.split(|byte| *byte == b'?').next();
        last.at = SystemTime::now();
        last.id = failed.id;
        put(&mut last.method, failed.method);
        put(
            &mut last.path,
            &String::from_utf8_lossy(shortened(path.unwrap_or_default())),
        );
        if !failed.message.is_empty() {
            put(&mut last.message, failed.message);
        }
    }

    /// The failures of the last minute in `pool`, or outside of all pools: the most frequent first.
    pub fn status(&self, pool: Option<u16>) -> Vec<Value> {
        let all = self.all();
        let mut found: Vec<(u64, u64, Value)> = (all.iter())
            .filter(|(cause, _)| cause.pool == pool)
            .filter_map(|(cause, counts)| {
                let lately = counts.recent.minute();
                (lately > 0).then(|| (lately, counts.total, counts.show(*cause)))
            })
            .collect();
        found.sort_by_key(|(lately, total, _)| std::cmp::Reverse((*lately, *total)));
        found.into_iter().map(|(_, _, shown)| shown).collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Cause, Counts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn show(&self, cause: Cause) -> Value {
        let Last {
            at,
            id,
            method,
            path,
            message,
        } = &self.last;
        json!({
            "status": cause.status,
            "reason": cause.reason,
            "total": self.total,
            "last_minute": self.recent.minute(),
            "last_ten_seconds": self.recent.ten_seconds(),
            "last": {
                "age": at.elapsed().unwrap_or_default().as_secs_f64(),
                "request": id,
                "method": method,
                "uri": path,
                "message": message,
            },
        })
    }
}

/// Replaces the text, and reuses its memory.
fn put(text: &mut String, new: &str) {
    text.clear();
    text.extend(new.chars().take(LONGEST));
}

fn shortened(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(LONGEST)]
}

/// Texts are cut to this many characters.
const LONGEST: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSE: Cause = Cause {
        pool: Some(0),
        status: 502,
        reason: Some("worker_died"),
    };

    fn note(failures: &Failures, cause: Cause, message: &str) {
        let failed = Failed {
            id: 7,
            method: "GET",
            uri: b"/a\xff.php?secret=1",
            message,
        };
        failures.note(cause, &failed);
    }

    #[test]
    fn the_most_frequent_cause_comes_first_and_no_query_is_kept() {
        let failures = Failures::default();
        let script = Cause {
            status: 500,
            reason: None,
            ..CAUSE
        };
        note(&failures, CAUSE, "ended by SIGSEGV");
        note(&failures, CAUSE, "");
        note(&failures, script, "");
        note(
            &failures,
            Cause {
                pool: None,
                ..CAUSE
            },
            "",
        );
        let shown = failures.status(Some(0));
        assert_eq!(shown.len(), 2, "{shown:?}");
        assert_eq!(shown[0]["last_minute"], 2);
        assert_eq!(shown[0]["last"]["message"], "ended by SIGSEGV");
        assert_eq!(shown[0]["last"]["uri"], "/a\u{fffd}.php");
        assert_eq!(shown[1]["reason"], Value::Null);
        assert_eq!(failures.status(None).len(), 1);
        assert!(failures.status(Some(1)).is_empty());
    }
}
