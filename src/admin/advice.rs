//! What an operator should know first: what is not well, why, and what helps.

use serde_json::Value;

/// Something that is not well.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// What, and why.
    pub(super) what: String,
    /// What helps.
    pub(super) help: String,
}

/// All of it, the worst first.
pub(super) fn troubles(status: &Value) -> Vec<Trouble> {
    let mut found = Vec::new();
    let pools = status["pools"].as_array();
    let pools = pools.map_or(&[][..], Vec::as_slice);
    for pool in pools.iter().filter(|pool| pool["state"] == "down") {
        found.push(trouble(
            format!("pool {}: no worker can be started", name(pool)),
            "the error log says why; meanwhile every request for it is refused",
        ));
    }
    found.extend(pools.iter().filter_map(waits));
    found.extend(of_calls(status));
    found.extend(of_the_kernel(status));
    found.extend(of_connections(status));
    found.extend(of_the_spool(status));
    found
}

/// The same for programs: `[{ what, help }]`.
pub(super) fn as_json(status: &Value) -> Value {
    let entry = |Trouble { what, help }| serde_json::json!({ "what": what, "help": help });
    troubles(status).into_iter().map(entry).collect()
}

/// A pool whose requests wait, or are refused.
fn waits(pool: &Value) -> Option<Trouble> {
    let (queue, workers) = (&pool["queue"], &pool["workers"]);
    let waiting = number(&queue["waiting"]);
    let refused = pool["rates"]["refused"].as_f64().unwrap_or(0.0);
    let overloaded = queue["overloaded"] == true;
    if (waiting == 0 && refused < 0.05 && !overloaded) || pool["state"] == "down" {
        return None;
    }
    let (busy, starting) = (number(&workers["busy"]), number(&workers["starting"]));
    let (limit, most) = (number(&workers["limit"]), number(&workers["max"]));
    let running_limit = number(&workers["running_limit"]);
    let (cause, help) = if workers["short_of_memory"] == true {
        (
            "memory is short, so that there are no more workers".to_owned(),
            "give the machine memory, or workers less: memory_limit, max_memory",
        )
    } else if starting > 0 && busy < running_limit {
        (
            format!("{starting} workers are starting"),
            "more at once: start_servers, min_spare_servers, max_spawn_rate",
        )
    } else if busy >= most && most > 0 {
        (
            format!("all {most} workers are busy"),
            "raise max_children if processor and memory allow it, or see the slow log for what takes so long",
        )
    } else if busy >= limit && limit > 0 {
        (
            format!("all {busy} workers are busy, and more did not finish more requests"),
            "the processor, or what scripts wait for, is the limit: faster scripts or a larger machine",
        )
    } else if busy >= running_limit && running_limit > 0 {
        (
            format!("{busy} requests run, and no more may at once"),
            "raise maxconn, or minconn, if workers can bear it",
        )
    } else if overloaded {
        (
            MORE_THAN_CAN.to_owned(),
            "more workers if processor and memory allow it, faster scripts, or more machines",
        )
    } else {
        (
            "the workers were busy a moment ago".to_owned(),
            "the log says for each request that was refused why",
        )
    };
    let mut what = format!("pool {}: ", name(pool));
    if waiting > 0 {
        let wait = super::text::span(&queue["expected_wait"]);
        what += &format!("{waiting} wait, a new client would for {wait}; ");
    }
    if refused >= 0.05 {
        what += &format!("{refused:.1} a second are refused; ");
    }
    if overloaded && cause != MORE_THAN_CAN {
        what += &format!("{MORE_THAN_CAN}; ");
    }
    Some(trouble(what + &cause, help))
}

const MORE_THAN_CAN: &str = "more comes than can be served";

/// Hosts that are not called for a while, because they failed too often.
fn of_calls(status: &Value) -> Vec<Trouble> {
    let hosts = status["egress"]["hosts"].as_array();
    let hosts = hosts.map_or(&[][..], Vec::as_slice);
    let open = hosts.iter().filter(|host| host["breaker"] == "open");
    open.map(|host| {
        let error = &host["last_error"];
        let cause = match error["reason"].as_str() {
            Some(reason) => format!(" ({reason}: {})", super::text::text(&error["message"])),
            None => String::new(),
        };
        trouble(
            format!(
                "calls to {}: it failed too often{cause}, so that they are refused for now",
                name(host)
            ),
            "it is tried again after fail_timeout; see that it answers, or raise max_fails",
        )
    })
    .collect()
}

fn of_the_kernel(status: &Value) -> Vec<Trouble> {
    let listeners = status["listeners"].as_array();
    let listeners = listeners.map_or(&[][..], Vec::as_slice);
    let full = listeners.iter().filter(|listener| {
        let (length, limit) = (
            number(&listener["queue"]["length"]),
            number(&listener["queue"]["limit"]),
        );
        limit > 0 && length * 10 >= limit * 9
    });
    full.map(|listener| {
        trouble(
            format!(
                "listener {}: {} of {} connections wait in the kernel to be accepted",
                name(listener),
                number(&listener["queue"]["length"]),
                number(&listener["queue"]["limit"]),
            ),
            "weir does not come to accept them: max_connections, threads; a longer queue: backlog, net.core.somaxconn",
        )
    })
    .collect()
}

fn of_connections(status: &Value) -> Option<Trouble> {
    let (now, most) = (
        number(&status["connections"]["now"]),
        number(&status["connections"]["max"]),
    );
    (most > 0 && now * 20 >= most * 19).then(|| {
        trouble(
            format!("{now} of {most} connections are open; more wait in the kernel"),
            "raise max_connections, or lower idle_timeout",
        )
    })
}

fn of_the_spool(status: &Value) -> Option<Trouble> {
    let (now, most) = (
        number(&status["spool"]["bytes"]),
        number(&status["spool"]["max"]),
    );
    (most > 0 && now / 9 >= most / 10).then(|| {
        trouble(
            format!("temporary files of bodies take {now} of {most} bytes; past that, requests are refused"),
            "raise max_spool if the disk has room, or lower max_body",
        )
    })
}

fn trouble(what: String, help: &str) -> Trouble {
    Trouble {
        what,
        help: help.to_owned(),
    }
}

fn name(of: &Value) -> String {
    super::text::text(&of["name"])
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(busy: u64, waiting: u64) -> Value {
        json!({
            "name": "shop", "state": "up",
            "workers": { "busy": busy, "starting": 0, "limit": 6, "max": 20, "running_limit": 20 },
            "queue": { "waiting": waiting, "expected_wait": 1.5, "overloaded": false },
            "rates": { "refused": 0.0 },
        })
    }

    #[test]
    fn what_is_well_is_not_spoken_of() {
        assert_eq!(troubles(&json!({})), []);
        assert_eq!(troubles(&json!({ "pools": [pool(6, 0)] })), []);
    }

    #[test]
    fn each_cause_has_its_help() {
        let only = |pool: Value| {
            let mut found = troubles(&json!({ "pools": [pool] }));
            assert_eq!(found.len(), 1, "{found:?}");
            let Trouble { what, help } = found.remove(0);
            format!("{what} | {help}")
        };
        let said = only(pool(6, 12));
        assert!(
            said.contains("12 wait, a new client would for 1.5 s"),
            "{said}"
        );
        assert!(said.contains("more did not finish more"), "{said}");
        assert!(only(pool(20, 1)).contains("raise max_children"));
        let mut down = pool(0, 0);
        down["state"] = "down".into();
        assert!(only(down).contains("no worker can be started"));
        let mut short = pool(3, 1);
        short["workers"]["short_of_memory"] = true.into();
        assert!(only(short).contains("memory is short"));
        let mut bounded = pool(3, 1);
        bounded["workers"]["running_limit"] = 3.into();
        assert!(only(bounded).contains("raise maxconn"));
        let mut over = pool(0, 0);
        over["queue"]["overloaded"] = true.into();
        let said = only(over);
        assert_eq!(said.matches(MORE_THAN_CAN).count(), 1, "{said}");
    }

    #[test]
    fn the_kernel_connections_and_the_spool_are_looked_at() {
        let found = troubles(&json!({
            "connections": { "now": 96, "max": 100 },
            "spool": { "bytes": 95, "max": 100 },
            "listeners": [{ "name": "web", "queue": { "length": 128, "limit": 128 } }],
        }));
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn a_host_that_is_not_called_any_more_is_told_with_its_cause() {
        let host = |breaker: &str| {
            json!({
                "name": "api.example.com", "breaker": breaker,
                "last_error": { "reason": "refused", "message": "nobody listens on 192.0.2.7:443" },
            })
        };
        let hosts = [host("closed"), host("half_open"), host("open")];
        let found = troubles(&json!({ "egress": { "hosts": hosts } }));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0]
                .what
                .contains("api.example.com: it failed too often (refused: nobody")
        );
    }
}
