use super::*;
use serde_json::json;

fn pool(busy: u64, waiting: u64) -> Value {
    json!({
        "name": "shop", "state": "up", "runtime": "php",
        "workers": { "busy": busy, "idle": 0, "starting": 0, "limit": 6, "max": 20, "running_limit": 20 },
        "queue": { "waiting": waiting, "oldest_wait": 0.25, "expected_wait": 1.5, "overloaded": false },
        "rates": { "refused": 0.0 },
        "last_minute": { "crashed": 0, "could_not_start": 0, "finished": 100 },
        "running": { "stalled": null, "scripts": [] },
        "request_terminate_timeout": 0.0,
    })
}

fn running(pool: &mut Value, seconds: f64, stalled: Option<f64>) {
    pool["running"] = json!({
        "stalled": stalled,
        "oldest": { "pid": 123, "time": seconds, "method": "GET", "uri": "/slow.php" },
        "scripts": [{ "script": "/srv/slow.php", "count": 18, "oldest": seconds }],
    });
}

/// The only trouble that there is.
#[track_caller]
fn only(pool: &Value) -> String {
    let mut found = troubles(pool);
    assert_eq!(found.len(), 1, "{found:?}");
    let Trouble {
        what, help, pool, ..
    } = found.remove(0);
    assert_eq!(pool.as_deref(), Some("shop"));
    assert!(what.starts_with("pool shop: "), "{what}");
    format!("{what} | {help}")
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_is_well_is_not_spoken_of() {
    assert_eq!(troubles(&pool(6, 0)), []);
}

#[test]
fn each_cause_has_its_help() {
    has(
        &only(&pool(6, 12)),
        &[
            "12 wait, the first for 250.0 ms so far; expected wait of a new request 1.5 s",
            "more workers did not finish more",
        ],
    );
    has(&only(&pool(20, 1)), &["1 waits", "raise max_children"]);
    let mut down = pool(0, 0);
    down["state"] = "down".into();
    down["down_because"] = "/usr/bin/app: No such file or directory".into();
    has(
        &only(&down),
        &["no worker can be started: /usr/bin/app: No such"],
    );
    let mut short = pool(3, 1);
    short["workers"]["short_of_memory"] = true.into();
    has(&only(&short), &["memory is short"]);
    let mut bounded = pool(3, 1);
    bounded["workers"]["running_limit"] = 3.into();
    has(&only(&bounded), &["raise maxconn"]);
    let mut over = pool(0, 0);
    over["queue"]["overloaded"] = true.into();
    assert_eq!(only(&over).matches(MORE_THAN_CAN).count(), 1);
}

#[test]
fn workers_that_are_stuck_are_told_with_their_script_and_the_limit_that_ends_them() {
    let mut stuck = pool(20, 3);
    running(&mut stuck, 45.0, Some(23.0));
    let said = only(&stuck);
    has(
        &said,
        &[
            "all 20 workers have been busy with the same requests for 23.0 s",
            "18 run /srv/slow.php; the oldest has run for 45.0 s (GET /slow.php, process 123)",
            "3 wait",
            "set request_terminate_timeout",
        ],
    );
    assert!(!said.contains("raise max_children"), "{said}");
    stuck["request_terminate_timeout"] = 60.0.into();
    has(
        &only(&stuck),
        &["request_terminate_timeout ends them after 60.0 s"],
    );
}

#[test]
fn long_scripts_in_a_busy_pool_are_no_reason_for_more_workers() {
    let mut slow = pool(20, 3);
    running(&mut slow, 12.0, Some(3.0));
    let said = only(&slow);
    has(
        &said,
        &[
            "all 20 workers are busy: 18 run /srv/slow.php",
            "request_terminate_timeout",
        ],
    );
    assert!(!said.contains("raise max_children"), "{said}");
}

#[test]
fn servers_that_stand_still_are_not_helped_by_more_children() {
    let mut servers = pool(5, 2);
    servers["runtime"] = "servers".into();
    running(&mut servers, 30.0, Some(30.0));
    let said = only(&servers);
    has(
        &said,
        &[
            "the servers have been busy with the same 5 requests for 30.0 s",
            "slow log",
            "More connections do not help",
        ],
    );
    assert!(!said.contains("max_children"), "{said}");

    running(&mut servers, 12.0, None);
    servers["queue"]["waiting"] = 0.into();
    servers["servers"] = json!([
        { "name": "10.0.0.5:9000", "busy": 3, "silent": 12.0 },
        { "name": "10.0.0.6:9000", "busy": 1, "silent": 12.0 },
        { "name": "10.0.0.7:9000", "busy": 3, "silent": 2.0 },
        { "name": "10.0.0.8:9000", "busy": 0, "silent": null },
    ]);
    has(
        &only(&servers),
        &["server 10.0.0.5:9000 has 3 requests and has not answered any for 12.0 s"],
    );
}

#[test]
fn crashes_are_told_and_no_wait_is_foreseen_that_is_shorter_than_what_was_waited() {
    let mut crashing = pool(0, 4);
    crashing["last_minute"]["crashed"] = 14.into();
    crashing["queue"]["oldest_wait"] = 9.8.into();
    crashing["queue"]["expected_wait"] = 0.000_403.into();
    crashing["failures"] = json!([{
        "status": 502, "reason": "worker_died", "last_minute": 14, "last_ten_seconds": 3,
        "last": { "method": "GET", "uri": "/r.php", "request": 9, "message": "its process was killed by SIGSEGV" },
    }]);
    let found = troubles(&crashing);
    assert_eq!(found.len(), 2, "{found:?}");
    has(
        &found[0].what,
        &[
            "14 workers crashed in the last minute; the last was GET /r.php (request 9): its process was killed by SIGSEGV",
        ],
    );
    has(
        &found[1].what,
        &["4 wait, the first for 9.8 s so far; workers crash"],
    );
    for trouble in &found {
        assert!(!trouble.what.contains("µs"), "{trouble:?}");
        assert!(!trouble.what.contains("busy"), "{trouble:?}");
    }
}

#[test]
fn scripts_that_are_refused_because_they_crash_are_named() {
    let mut crashing = pool(1, 0);
    crashing["crashing"] =
        json!([{ "path": "/r.php", "crashes": 5, "refused": 40, "tried_in": 7 }]);
    has(
        &only(&crashing),
        &[
            "/r.php crashes its workers (5 so far) and is refused (40 requests so far); it is tried again in 7 s",
        ],
    );
}

#[test]
fn why_requests_are_refused_is_told() {
    let mut refusing = pool(3, 0);
    refusing["rates"] = json!({
        "refused": 5.1, "refused_by": { "queue_full": 0.1, "hopeless": 5.0, "overload": 0.0 },
    });
    has(
        &only(&refusing),
        &["5.1 a second are refused (5.0 hopeless, 0.1 queue full); 3 of 20 workers are busy now"],
    );
}

#[test]
fn forks_that_fail_and_names_that_do_not_resolve_are_told() {
    let mut failing = pool(1, 0);
    failing["last_minute"]["could_not_start"] = 2.into();
    has(
        &only(&failing),
        &["2 workers could not be started", "TasksMax"],
    );
    let mut unknown = pool(1, 0);
    unknown["unknown_names"] = json!([{ "host": "php.internal", "failure": "this name does not exist", "seconds": 130.0 }]);
    has(
        &only(&unknown),
        &["the name php.internal has not resolved for 2 min: this name does not exist"],
    );
}

fn failing(reason: Option<&str>, status: u64, last_minute: u64, now: u64) -> Value {
    let mut failing = pool(1, 0);
    failing["failures"] = json!([{
        "status": status, "reason": reason, "last_minute": last_minute, "last_ten_seconds": now,
        "last": { "method": "GET", "uri": "/x.php", "request": 9, "message": "" },
    }]);
    failing
}

#[test]
fn errors_of_scripts_are_told_while_they_last_and_where_they_are_many() {
    let said = only(&failing(None, 500, 2, 1));
    has(
        &said,
        &[
            "scripts answered 2 of 100 requests in the last minute with 500; the last was GET /x.php (request 9)",
        ],
    );
    has(
        &only(&failing(None, 500, 98, 1)),
        &["only with errors in the last minute: 98 of 100 requests with 500"],
    );
    assert_eq!(troubles(&failing(None, 500, 2, 0)), []);
    let mut busy = failing(None, 500, 2, 1);
    busy["last_minute"]["finished"] = 1000.into();
    assert_eq!(troubles(&busy), []);
}

#[test]
fn answers_of_weirs_own_are_told_with_their_reason() {
    has(
        &only(&failing(Some("terminated"), 504, 1, 1)),
        &[
            "1 request was answered with 504 terminated in the last minute",
            "read_timeout",
        ],
    );
    has(
        &only(&failing(Some("truncated"), 200, 3, 1)),
        &["3 requests were cut in the middle of the answer"],
    );
    // The queue's own problem tells of these refusals.
    assert_eq!(troubles(&failing(Some("queue_full"), 503, 3, 1)), []);
}
