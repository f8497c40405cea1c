//! `[pool.NAME.queue]` → [`Queue`].

use crate::{
    entries::Entries,
    model::{Queue, Reserve, Runtime, SerializeBy, Servers},
    sink::Sink,
};

pub(crate) fn queue(entries: &Entries, runtime: &Runtime, sink: &mut Sink) -> Queue {
    let written = entries
        .is_written("maxconn")
        .then(|| entries.count("maxconn"));
    let own = match runtime {
        Runtime::Php(php) => Some(&php.workers),
        Runtime::Command(command) => Some(&command.workers),
        Runtime::Servers(_) => None,
    };
    let maxconn = match (written, own) {
        (Some(maxconn), Some(own)) => {
            let workers = own.max_children;
            if maxconn > workers && entries.entry("maxconn").is_some() {
                let message = format!(
                    "more than the {workers} workers of `max_children`, so it has no effect"
                );
                sink.warning(
                    entries.span("maxconn"),
                    message,
                    "raise max_children, or remove maxconn",
                );
            }
            maxconn
        }
        (Some(maxconn), None) => maxconn,
        (None, Some(own)) => own.max_children,
        (None, None) => match runtime {
            Runtime::Servers(servers) => at_most(servers),
            _ => 1,
        },
    };
    let (minconn, fullconn) = dynamic_limit(entries, maxconn, sink);
    Queue {
        maxconn,
        minconn,
        fullconn,
        reserve: reserves(entries, maxconn, sink),
        serialize_by: serialize_by(entries, runtime, sink),
        ..entries.fields(None)
    }
}

fn serialize_by(entries: &Entries, runtime: &Runtime, sink: &mut Sink) -> SerializeBy {
    let by = entries.get("serialize_by");
    if by == SerializeBy::Auto && !matches!(runtime, Runtime::Php(_)) {
        sink.error(
            entries.span("serialize_by"),
            NO_REPORT,
            "write \"cookie:NAME\" with the name of the session's cookie",
        );
    }
    by
}

/// Why `serialize_by = "auto"` does nothing for a pool.
pub(crate) const NO_REPORT: &str = "`serialize_by = \"auto\"` needs `runtime = \"php\"`: only weir's own PHP reports how scripts use their session";

/// minconn and fullconn. Both are 0 if the limit is fixed.
fn dynamic_limit(entries: &Entries, maxconn: usize, sink: &mut Sink) -> (usize, usize) {
    let written = |key| entries.is_written(key).then(|| entries.count(key));
    let (minconn, fullconn) = (written("minconn"), written("fullconn"));
    match (minconn, fullconn) {
        (None, None) => return (0, 0),
        (None, Some(_)) => {
            let message = "`fullconn` needs `minconn`, where the limit starts";
            let hint = "add minconn = 1, or remove fullconn";
            sink.error(entries.span("fullconn"), message, hint);
        }
        (Some(_), None) => {
            let message = "`minconn` needs `fullconn`, the load at which the limit reaches maxconn";
            let hint = "add fullconn = N (running and waiting requests), or remove minconn";
            sink.error(entries.span("minconn"), message, hint);
        }
        (Some(minconn), Some(fullconn)) => {
            if minconn > maxconn {
                let message = format!("more than maxconn, which is {maxconn}");
                let hint = "the limit grows from minconn to maxconn";
                sink.error(entries.span("minconn"), message, hint);
            }
            if fullconn <= maxconn {
                let message = format!(
                    "not above maxconn ({maxconn}), so the limit grows before any request waits"
                );
                let hint = "fullconn includes waiting requests: several times maxconn is usual";
                sink.warning(entries.span("fullconn"), message, hint);
            }
        }
    }
    (minconn.unwrap_or(1), fullconn.unwrap_or(1))
}

fn reserves(entries: &Entries, maxconn: usize, sink: &mut Sink) -> Vec<Reserve> {
    let Some(entry) = entries.entry("reserve") else {
        return Vec::new();
    };
    let list: Vec<Reserve> = entries.get("reserve");
    for (index, (reserve, span)) in list.iter().zip(&entry.parts).enumerate() {
        let same = |other: &Reserve| other.priority == reserve.priority;
        if list[..index].iter().any(same) {
            let message = "this priority already has a reserve";
            sink.error(span.clone(), message, "write one table for each priority");
        }
    }
    if list.len() > MOST_RESERVES {
        let message = format!("more than {MOST_RESERVES} reserves");
        sink.error(
            entry.span.clone(),
            message,
            "write one for each class that must not wait for others",
        );
    }
    let kept: usize = list.iter().map(|reserve| reserve.workers).sum();
    if kept >= maxconn && !list.is_empty() {
        let message = format!(
            "{kept} of {maxconn} workers are reserved, so no worker is left for other requests"
        );
        let hint = format!("raise maxconn to {} or more, or reserve fewer", kept + 1);
        sink.error(entry.span.clone(), message, hint);
    }
    list
}

/// Maximum number of reserves of a pool.
const MOST_RESERVES: usize = 8;

/// Maximum number of requests at all servers together, if weir detects the limit of each server.
fn at_most(servers: &Servers) -> usize {
    let each = servers.adaptive.map_or(1, |adaptive| adaptive.max);
    (each * servers.list.len()).clamp(1, MOST_AT_SERVERS)
}

/// Upper bound for the requests that a pool has at its servers, even if the servers' limits are higher.
const MOST_AT_SERVERS: usize = 65_536;
