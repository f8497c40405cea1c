//! Problems with the application's outgoing calls.

use serde_json::Value;

use super::{Cost, Trouble, count, list, name, number, said, seconds, trouble};
use crate::text::text;

/// Hosts whose breaker is open because calls failed too often, that cannot be reached, or that answer with errors.
pub(super) fn troubles(status: &Value) -> Vec<Trouble> {
    let hosts = list(&status["egress"]["hosts"]).iter();
    hosts
        .filter_map(|host| {
            refused(host)
                .or_else(|| failing(host))
                .or_else(|| errors(host))
        })
        .collect()
}

/// The breaker is open.
fn refused(host: &Value) -> Option<Trouble> {
    // A breaker stays open until somebody calls again, which may be never.
    let refuses = seconds(&host["breaker_pause"]) > 0.0 || is_recent(&host["last_error"]);
    if host["breaker"] != "open" || !refuses {
        return None;
    }
    let cause = match last_error(host) {
        Some(error) => format!(" ({error})"),
        None => String::new(),
    };
    Some(trouble(
        Cost::Errors,
        format!(
            "calls to {} are refused for now, because too many failed{cause}",
            name(host)
        ),
        "it is tried again after fail_timeout. Check that it answers, or raise max_fails",
    ))
}

/// Calls that fail without an answer.
fn failing(host: &Value) -> Option<Trouble> {
    let error = &host["last_error"];
    if !is_recent(error) {
        return None;
    }
    let (help, always) = match error["reason"].as_str()? {
        "dns_error" | "dns_timeout" => (
            "check the name, and that the DNS servers answer (resolver, /etc/resolv.conf)",
            true,
        ),
        "unreachable" | "refused" | "connect_timeout" => (
            "check that the host is up and that no firewall blocks the connection",
            true,
        ),
        "certificate_error" | "tls_error" => (
            "check the host's certificate, and ca_file or client_cert here",
            true,
        ),
        "first_byte_timeout" | "response_timeout" => (
            "the host is slow: ask its operator. A shorter first_byte_timeout gives the workers back earlier",
            false,
        ),
        _ => (
            "the host's answers cannot be used: ask its operator; the error log has each of them",
            false,
        ),
    };
    // A few of a thousand answers always come too late.
    let (calls, failed) = lately(host, "failed");
    if !always && !is_much(failed, calls) {
        return None;
    }
    let how_many = match failed {
        0 => "fail".to_owned(),
        failed => format!(
            "fail, {failed} of {} in the last minute",
            count(calls, "call")
        ),
    };
    Some(trouble(
        Cost::Errors,
        format!(
            "calls to {} {how_many} ({}), the last {} ago",
            name(host),
            last_error(host).unwrap_or_default(),
            said(seconds(&error["age"]))
        ),
        help,
    ))
}

/// The host answers, but with errors that the application cannot use.
fn errors(host: &Value) -> Option<Trouble> {
    let (calls, errors) = lately(host, "server_errors");
    if is_much(errors, calls) {
        let last = &host["last_server_error"];
        return Some(trouble(
            Cost::Errors,
            format!(
                "{} answered {errors} of {} in the last minute with errors of its own, the last {} ago with {}",
                name(host),
                count(calls, "call"),
                said(seconds(&last["age"])),
                text(&last["status"])
            ),
            "the fault is on the host's side, or in the application's requests: the access log has the status of each call. Answers with a \
             status do not open the circuit breaker",
        ));
    }
    let (calls, rejected) = lately(host, "rejected");
    // A few such answers are usual: an expired token is renewed.
    (rejected >= ENOUGH && rejected * 100 >= calls * 95).then(|| {
        trouble(
            Cost::Errors,
            format!(
                "{} rejected {rejected} of {} in the last minute (401, 403, 407 or 429)",
                name(host),
                count(calls, "call")
            ),
            "check the application's credentials there, and how many calls it may make",
        )
    })
}

/// `reason: message`
fn last_error(host: &Value) -> Option<String> {
    let error = &host["last_error"];
    let reason = error["reason"].as_str()?;
    Some(format!(
        "{}: {}",
        text(&reason.into()),
        text(&error["message"])
    ))
}

fn is_recent(error: &Value) -> bool {
    error.is_object() && seconds(&error["age"]) <= LATELY
}

/// Calls that ended in the last minute, and how many of them so.
fn lately(host: &Value, so: &str) -> (u64, u64) {
    let minute = &host["last_minute"];
    let these = number(&minute[so]);
    (number(&minute["calls"]).max(these), these)
}

/// Whether so many of all calls are worth telling.
fn is_much(these: u64, all: u64) -> bool {
    these > 0 && these * SHARE >= all
}

/// Older failures are over, seconds.
const LATELY: f64 = 60.0;

/// Errors are told if at least one in this many calls fails.
const SHARE: u64 = 100;

/// Minimum number of answers for the conclusion that a host rejects everything.
const ENOUGH: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(breaker: &str, reason: &str, age: f64) -> Vec<Trouble> {
        troubles(&json!({ "egress": { "hosts": [{
            "name": "api.example.com", "breaker": breaker,
            "last_error": { "reason": reason, "message": "nobody listens on 192.0.2.7:443", "age": age },
        }] } }))
    }

    #[test]
    fn a_host_that_is_not_called_any_more_is_told_with_its_cause() {
        let open = found("open", "first_byte_timeout", 3.0);
        assert_eq!(open.len(), 1, "{open:?}");
        assert!(
            open[0]
                .what
                .contains("api.example.com are refused for now, because too many failed (first_byte_timeout: nobody")
        );
        assert_eq!(found("closed", "first_byte_timeout", 3.0), []);
        assert_eq!(found("half_open", "first_byte_timeout", 3.0), []);
    }

    #[test]
    fn a_host_that_answers_with_errors_only_is_told_though_its_breaker_is_closed() {
        let found = |calls: u64, key: &str, these: u64| {
            troubles(&json!({ "egress": { "hosts": [{
                "name": "api.example.com", "breaker": "closed", "last_error": null,
                "last_minute": { "calls": calls, key: these },
                "last_server_error": { "status": 503, "age": 2.0 },
            }] } }))
        };
        for (calls, errors) in [(228, 228), (228, 3), (1, 1)] {
            let told = found(calls, "server_errors", errors);
            assert_eq!(told.len(), 1, "{errors} of {calls}");
            assert!(
                told[0].what.contains(&format!(
                    "api.example.com answered {errors} of {calls} call"
                )) && told[0].what.ends_with("the last 2.0 s ago with 503"),
                "{told:?}"
            );
        }
        assert_eq!(found(228, "server_errors", 2), []);
        assert_eq!(found(228, "server_errors", 0), []);
        let rejected = found(20, "rejected", 20);
        assert!(
            rejected[0].what.contains("rejected 20 of 20 calls"),
            "{rejected:?}"
        );
        assert_eq!(found(20, "rejected", 10), []);
    }

    #[test]
    fn timeouts_are_told_where_they_are_many() {
        let found = |failed: u64| {
            troubles(&json!({ "egress": { "hosts": [{
                "name": "api.example.com", "breaker": "closed",
                "last_error": { "reason": "first_byte_timeout", "message": "silent", "age": 3.0 },
                "last_minute": { "calls": 500, "failed": failed },
            }] } }))
        };
        assert!(
            found(5)[0]
                .what
                .contains("fail, 5 of 500 calls in the last minute (first_byte_timeout: silent)")
        );
        assert_eq!(found(4), []);
    }

    #[test]
    fn a_name_that_does_not_resolve_is_told_at_once() {
        let closed = found("closed", "dns_error", 3.0);
        assert!(closed[0].help.contains("DNS servers"), "{closed:?}");
    }

    #[test]
    fn what_failed_a_minute_ago_is_over() {
        assert_eq!(found("open", "refused", 61.0), []);
        assert_eq!(found("closed", "refused", 61.0), []);
    }
}
