//! The data about servers in the admin interface.

use serde_json::{Value, json};
use weir_observe::log_text;

use crate::dispatch::{PoolHandle, ServerStatus, UnknownName};

/// A pool's servers; empty if weir runs the workers itself.
pub(super) fn servers(pool: &PoolHandle) -> Vec<Value> {
    pool.servers().iter().map(server).collect()
}

/// Server names that cannot be looked up.
pub(super) fn unknown_names(pool: &PoolHandle) -> Vec<Value> {
    let name = |name: UnknownName| {
        json!({
            "host": name.host,
            "failure": name.failure,
            "seconds": name.since.elapsed().unwrap_or_default().as_secs_f64(),
        })
    };
    pool.unknown_names().into_iter().map(name).collect()
}

fn server(server: &ServerStatus) -> Value {
    let check = server.last_check.as_ref().map(|check| {
        let mut time = Vec::new();
        log_text::put_time_utc(check.at, &mut time);
        json!({
            "time": String::from_utf8_lossy(&time),
            "good": check.good,
            "what": check.what,
            "took": check.took.as_secs_f64(),
        })
    });
    json!({
        "name": server.name,
        "state": server.state_name(),
        "backup": server.backup,
        "weight": server.weight,
        "busy": server.busy,
        // Maximum number of requests at once.
        "limit": server.limit,
        "kept": server.kept,
        "requests": server.requests,
        "failures": server.failures,
        "downs": server.downs,
        // How long its requests take without load, if that was measured.
        "unloaded": server.unloaded.map(|time| time.as_secs_f64()),
        // For how many seconds the server has had requests without answering any.
        "silent": server.silent.map(|time| time.as_secs_f64()),
        "last_check": check,
    })
}
