//! Problems of weir itself, of its logs, and of the kernel's queues.

use serde_json::Value;

use super::{Cost, Failure, Trouble, count, list, name, number, said, seconds, trouble, were};
use crate::text::{size, text};

/// Parts of weir that hang.
pub(super) fn silent(status: &Value) -> Vec<Trouble> {
    let silent = &status["silent"];
    let mut found = Vec::new();
    if let Some(time) = silent["manager"].as_f64() {
        let pid = text(&status["manager_pid"]);
        found.push(trouble(Cost::All,
            format!(
                "the manager (process {pid}) has not answered for {}: no workers are started or replaced, \
                 and reloads do not work",
                said(time)
            ),
            format!(
                "if `ps -o stat= -p {pid}` prints T, it was stopped: continue it with kill -CONT {pid}. Otherwise it \
                 waits for a disk or a pipe, for example that of the error log; if it does not continue, restart weir"
            ),
        ));
    }
    for reactor in list(&silent["reactors"]) {
        let pid = text(&status["gateway_pid"]);
        found.push(trouble(
            Cost::All,
            format!(
                "reactor {} of the gateway has been stuck for {}: its connections wait",
                text(&reactor["reactor"]),
                said(seconds(&reactor["seconds"]))
            ),
            format!(
                "the processors may be overloaded, or a disk does not answer. If it lasts, \
                 kill {pid}: the manager then starts a new gateway"
            ),
        ));
    }
    found
}

/// Answers with a status of 500 or above without a pool.
pub(super) fn failures(status: &Value) -> Vec<Trouble> {
    let told = Failure::all(status).filter(|failure| failure.is_now());
    told.map(|failure| {
        let reason = failure.reason().unwrap_or("no reason");
        trouble(
            Cost::Errors,
            format!(
                "{} answered in the last minute with {} {reason}; {}",
                were(failure.last_minute(), "request"),
                failure.status(),
                failure.last()
            ),
            help(reason),
        )
    })
    .collect()
}

/// The advice for an error that weir answers itself.
pub(super) fn help(reason: &str) -> &'static str {
    match reason {
        "spool_failed" => {
            "bodies cannot be written to temporary files: check that the disk of spool_dir has space and that \
             max_spool is large enough"
        }
        "out_of_descriptors" => {
            "raise the limit of open files (LimitNOFILE of the unit, ulimit -n), or lower max_connections"
        }
        "file_error" => "check that the file can be read and that its disk works",
        "bad_response" => {
            "the worker's answer was not valid: check the script's headers, and the worker's messages in the error log"
        }
        "terminated" => {
            "find what the script waits for (the slow log has its stack; request_slowlog_timeout). \
             read_timeout and request_terminate_timeout set how long it may take"
        }
        "worker_died" => {
            "the error log lists each crash. Endless recursion and faulty extensions crash PHP; SIGKILL \
             usually means that memory ran out"
        }
        "no_worker" => {
            "check that the server is running, its address, and the permissions of its socket"
        }
        "truncated" => {
            "the worker ended in the middle of its answer: see the error log for the reason"
        }
        _ => "see the error log: it has a line for each of them",
    }
}

/// Logs that cannot be written, or lose lines.
pub(super) fn logs(status: &Value) -> Vec<Trouble> {
    let told = list(&status["logs"]).iter().filter_map(|log| {
        let (name, lost) = (name(log), number(&log["lost"]));
        let lost_lately = log["lost_ago"].as_f64().is_some_and(|ago| ago < LATELY);
        let lines = match lost {
            0 => String::new(),
            lost => format!("; {} lost so far", were(lost, "line")),
        };
        match log["failing"].as_str() {
            Some(why) => Some(trouble(Cost::Nothing,
                format!("the {name} cannot be written: {}{lines}", text(&why.into())),
                "free some disk space, or check that the reader of the pipe works. Until then up to 8 MiB of lines are kept \
                 in memory; requests are still served",
            )),
            None if lost_lately => Some(trouble(Cost::Nothing,
                format!("the {name} cannot be written fast enough{lines}"),
                "write it to a faster disk, or log less: a higher level, or access = \"off\"",
            )),
            None => None,
        }
    });
    told.collect()
}

/// The server through which nodes share purges cannot be reached.
pub(super) fn bus(status: &Value) -> Vec<Trouble> {
    let bus = &status["cache"]["bus"];
    let Some(why) = bus["error"].as_str().filter(|_| bus["connected"] == false) else {
        return Vec::new();
    };
    vec![trouble(
        Cost::Nothing,
        format!(
            "the bus of the cache cannot be reached, so pages that other nodes have purged may still be sent: {}",
            text(&why.into())
        ),
        "check that the server of `bus` runs, and its address; a server with a password needs bus_password_file",
    )]
}

pub(super) fn kernel(status: &Value) -> Vec<Trouble> {
    let full = list(&status["listeners"]).iter().filter(|listener| {
        let (length, limit) = (
            number(&listener["queue"]["length"]),
            number(&listener["queue"]["limit"]),
        );
        limit > 0 && length * 10 >= limit * 9
    });
    full.map(|listener| {
        trouble(Cost::Time,
            format!(
                "listener {}: {} of {} connections wait in the kernel to be accepted",
                name(listener),
                number(&listener["queue"]["length"]),
                number(&listener["queue"]["limit"]),
            ),
            "weir does not accept them fast enough: check max_connections and threads. backlog and net.core.somaxconn \
             make the queue longer",
        )
    })
    .collect()
}

/// A proxy that is not in `trusted`.
pub(super) fn untrusted(status: &Value) -> Option<Trouble> {
    let peer = &status["untrusted_proxy"];
    let address = peer["address"].as_str()?;
    let address = match address {
        "" => "unix:".to_owned(),
        address => text(&address.into()),
    };
    Some(trouble(
        Cost::Nothing,
        format!(
            "{address} names clients (X-Forwarded-For) in {} of its last {}, and is not in `trusted`: all its visitors are one client \
             for logs, limits, `allow` and the queue",
            number(&peer["with_client"]),
            count(number(&peer["requests"]), "request"),
        ),
        format!(
            "if it is your proxy, write trusted = [\"{address}\"] in [server]. Otherwise do nothing: weir does not believe it"
        ),
    ))
}

pub(super) fn connections(status: &Value) -> Option<Trouble> {
    let (now, most) = (
        number(&status["connections"]["now"]),
        number(&status["connections"]["max"]),
    );
    let idle = number(&status["connections"]["idle"]);
    (most > 0 && now * 20 >= most * 19).then(|| {
        trouble(Cost::Time,
            format!(
                "{now} of {most} connections are open, {idle} of them idle. New connections replace idle \
                 ones; when none is idle, they wait"
            ),
            "raise max_connections, or lower idle_timeout",
        )
    })
}

pub(super) fn spool(status: &Value) -> Option<Trouble> {
    let (now, most) = (&status["spool"]["bytes"], &status["spool"]["max"]);
    (number(most) > 0 && number(now) / 9 >= number(most) / 10).then(|| {
        trouble(
            Cost::Errors,
            format!(
                "temporary files of bodies use {} of {}; above that, requests are refused",
                size(now),
                size(most)
            ),
            "raise max_spool if the disk has room, or lower max_body",
        )
    })
}

/// Losses within this many seconds are reported.
const LATELY: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::super::troubles;
    use super::*;
    use serde_json::json;

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
    fn a_part_of_weir_that_hangs_comes_first() {
        let found = troubles(&json!({
            "manager_pid": 7, "gateway_pid": 8,
            "silent": { "manager": 12.0, "reactors": [{ "reactor": 1, "seconds": 3.0 }] },
            "connections": { "now": 96, "max": 100 },
        }));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0]
                .what
                .starts_with("the manager (process 7) has not answered for 12.0 s")
        );
        assert!(found[0].help.contains("kill -CONT 7"));
        assert!(
            found[1]
                .what
                .starts_with("reactor 1 of the gateway has been stuck")
        );
    }

    #[test]
    fn lost_lines_are_told_while_they_are_lost_and_a_minute_longer() {
        let log = |lost_ago: f64, failing: Value| {
            logs(&json!({ "logs": [{
                "name": "access log /a", "lost": 3, "lost_ago": lost_ago, "failing": failing,
            }] }))
        };
        let full = log(0.1, "No space left on device".into());
        assert_eq!(
            full[0].what,
            "the access log /a cannot be written: No space left on device; 3 lines were lost so far"
        );
        assert!(log(5.0, Value::Null)[0].what.contains("fast enough"));
        assert_eq!(log(61.0, Value::Null), []);
    }

    #[test]
    fn a_full_disk_is_told_with_the_request_that_met_it() {
        let found = failures(&json!({ "failures": [{
            "status": 503, "reason": "spool_failed", "last_minute": 2, "last_ten_seconds": 1,
            "last": { "method": "POST", "uri": "/up", "request": 4, "message": "No space left on device" },
        }] }));
        let (what, help) = (&found[0].what, &found[0].help);
        assert!(
            what.starts_with("2 requests were answered in the last minute with 503 spool_failed"),
            "{what}"
        );
        assert!(
            what.ends_with("POST /up (request 4): No space left on device"),
            "{what}"
        );
        assert!(help.contains("spool_dir"), "{help}");
    }
}
