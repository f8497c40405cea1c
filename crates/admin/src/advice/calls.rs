//! Problems with the application's outgoing calls.

use serde_json::Value;

use super::{Trouble, list, name, seconds, trouble};
use crate::text::text;

/// Hosts whose breaker is open because calls failed too often, and hosts that cannot be reached.
pub(super) fn troubles(status: &Value) -> Vec<Trouble> {
    let hosts = list(&status["egress"]["hosts"]).iter();
    hosts.filter_map(host).collect()
}

fn host(host: &Value) -> Option<Trouble> {
    let error = &host["last_error"];
    let reason = error["reason"].as_str();
    // A breaker stays open until somebody calls again, which may be never.
    let refuses = seconds(&host["breaker_pause"]) > 0.0;
    let is_over = !refuses && (error.is_object() && seconds(&error["age"]) > LATELY);
    if is_over {
        return None;
    }
    let message = text(&error["message"]);
    if host["breaker"] == "open" {
        let cause = match reason {
            Some(reason) => format!(" ({reason}: {message})"),
            None => String::new(),
        };
        return Some(trouble(
            format!(
                "calls to {} are refused for now, because too many failed{cause}",
                name(host)
            ),
            "it is tried again after fail_timeout. Check that it answers, or raise max_fails",
        ));
    }
    let help = match reason? {
        "dns_error" | "dns_timeout" => {
            "check the name, and that the DNS servers answer (resolver, /etc/resolv.conf)"
        }
        "unreachable" | "refused" | "connect_timeout" => {
            "check that the host is up and that no firewall blocks the connection"
        }
        "certificate_error" | "tls_error" => {
            "check the host's certificate, and ca_file or client_cert here"
        }
        _ => return None,
    };
    Some(trouble(
        format!(
            "calls to {} fail ({}: {message}), the last {} ago",
            name(host),
            text(&error["reason"]),
            super::said(seconds(&error["age"]))
        ),
        help,
    ))
}

/// Older failures are over, seconds.
const LATELY: f64 = 60.0;

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
