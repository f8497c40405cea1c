use super::*;
use serde_json::json;

#[test]
fn a_pool_is_shown_with_its_workers() {
    let shown = status(&json!({
        "version": "1.0", "state": "serving", "manager_pid": 7, "uptime": 86_400.0 * 3.0,
        "connections": { "now": 3, "max": 20_000, "limit_reached": 7, "closed_for_others": 5 },
        "reactors": {
            "running": 2, "most": 4, "elastic": true,
            "busy": [{ "reactor": 0, "share": 0.613 }, { "reactor": 1, "share": 0.588 }],
        },
        "listeners": [{ "name": "web", "address": "0.0.0.0:80", "protocol": "http", "serves": ["shop", "blog"] }],
        "pools": [{
            "name": "shop", "runtime": "php", "state": "up", "generation": 2, "pm": "dynamic",
            "workers": { "busy": 1, "idle": 2, "starting": 0, "max": 20, "limit": 6, "most_busy": 9 },
            "queue": { "waiting": 0, "max": 1000, "timeout": 10.0, "most_waiting": 4, "longest_wait": 0.25 },
            "requests": { "taken": 10, "finished": 9, "refused": 0, "lost": 3, "cancelled": 2, "slow": 1 },
            "servers": [
                { "name": "10.0.0.5:9000", "state": "up", "busy": 1, "limit": 10, "requests": 7, "failures": 0,
                  "downs": 2, "last_check": { "good": true, "what": "status 200" } },
                { "name": "10.0.0.6:9000", "state": "down", "last_check": { "good": false, "what": "status 500" } },
            ],
            "processes": [{ "pid": 9, "state": "Running", "requests": 3, "time": 0.0123, "method": "GET",
                            "uri": "/a\u{1b}[31m\u{202e}gpj.exe" }],
        }],
    }));
    assert!(shown.contains("up 3.0 d"), "{shown}");
    assert!(
        shown.contains("listens on 0.0.0.0:80 (web, http): shop, blog"),
        "{shown}"
    );
    assert!(shown.contains("1 busy, 2 idle"), "{shown}");
    assert!(shown.contains("at most 20, for now 6 (dynamic)"), "{shown}");
    assert!(shown.contains("3 lost (2 cancelled), 1 slow"), "{shown}");
    let one_line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        one_line.contains("max_connections was reached 7 times; 5 idle connections"),
        "{shown}"
    );
    assert!(
        shown.contains("reactors    2 of at most 4, the busiest 61 % of the time\n"),
        "{shown}"
    );
    assert!(one_line.contains("longest wait 250.0 ms"), "{shown}");
    for line in [
        "server 10.0.0.5:9000: up, 1 busy of at most 10; 7 requests, 0 failed, 2 times down server",
        "- times down; checked: status 500",
    ] {
        assert!(one_line.contains(line), "{line}: {shown}");
    }
    assert!(
        shown.lines().all(|line| line.chars().count() <= WIDTH),
        "{shown}"
    );
    // Text from a client must not change colours or move the cursor.
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    assert!(shown.contains("\\u{202e}gpj.exe"), "{shown}");
}

#[test]
fn many_pools_that_nobody_uses_are_one_line() {
    let pools = |count: usize| {
        let pool = |index: usize| {
            let used = usize::from(index == 5);
            json!({ "name": format!("p{index}"), "runtime": "php",
                    "state": if index == 7 { "down" } else { "up" },
                    "workers": { "busy": 0, "idle": used, "starting": 0 },
                    "queue": { "waiting": 0 } })
        };
        (0..count).map(pool).collect::<Vec<_>>()
    };
    let sites = |count: usize| {
        let site = |index| json!({ "name": format!("s{index}"), "requests": index / 999 });
        (0..count).map(site).collect::<Vec<_>>()
    };
    let names: Vec<_> = (0..1000).map(|index| format!("s{index}")).collect();
    let shown = status(&json!({
        "pools": pools(1000), "sites": sites(1000),
        "listeners": [{ "name": "web", "address": "0.0.0.0:80", "protocol": "http", "serves": names }],
    }));
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("998 pools without processes: p0, p1, p2, p3, p4, p6, p8,"),
        "{words}"
    );
    assert!(
        words.contains(", p21 and 978 more weir status --pool NAME shows one"),
        "{words}"
    );
    assert!(
        words.contains(" p95 p7 down ") && words.contains(" p5 fine "),
        "{words}"
    );
    assert!(
        words.contains(" s999 ") && words.contains("999 sites without requests"),
        "{words}"
    );
    assert!(words.contains(", s19 and 980 more"), "{words}");
    let few = status(&json!({ "pools": pools(5), "sites": sites(20) }));
    assert_eq!(few.matches("\npool p").count(), 5, "{few}");
    assert!(!few.contains("without"), "{few}");
}

#[test]
fn configurations_that_finish_are_shown_with_what_holds_them() {
    let shown = status(&json!({
        "oom_kills": 3,
        "reloads": { "waiting": true, "last": { "done": false, "ago": 2.0, "text": "weir.toml:1: no" } },
        "old_generations": [{
            "generation": 4, "finishing_for": 12.0, "ends_in": 18.0, "connections": 2, "requests": 1,
            "longest": { "time": 12.5, "request": "POST /up\u{202e} (pool shop)" },
        }, {
            "generation": 3, "finishing_for": 30.0, "ends_in": 0.0, "connections": 0, "requests": 0,
        }],
    }));
    let one_line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "has killed 3 processes of weir because memory ran out",
        "reload failed 2.0 s ago and changed nothing: weir.toml:1: no",
        "reload one is waiting until an older configuration has ended",
        "old configuration 4 has been finishing for 12.0 s, ends in at most 18.0 s: 2 connections, 1 requests at \
         workers; POST /up\\u{202e} (pool shop) has run for 12.5 s",
        "old configuration 3 has been finishing for 30.0 s, is being ended: 0 connections",
    ] {
        assert!(one_line.contains(part), "{part}: {shown}");
    }
    assert!(
        shown.lines().all(|line| line.chars().count() <= WIDTH),
        "{shown}"
    );
}

#[test]
fn what_is_missing_is_a_dash() {
    assert!(status(&json!({})).contains("weir -"));
}

#[test]
fn nothing_is_wider_than_a_terminal_and_the_longest_runs_first() {
    let process = |pid: u64, time: f64| {
        json!({ "pid": pid, "state": "Running", "requests": 1, "time": time, "method": "GET",
                "uri": "/a/very/long/path/that/goes/on/and/on/and/on/until/nobody/reads/it/any/more" })
    };
    let processes: Vec<Value> = (1..100).map(|pid| process(pid, pid as f64)).collect();
    let shown = status(&json!({
        "ready": false,
        "not_ready": "the queue of pool shop is 93 % full, and ready_saturation is 80",
        "pools": [{
            "name": "shop", "state": "up",
            "workers": { "busy": 20, "limit": 20, "max": 20, "running_limit": 20 },
            "queue": { "waiting": 900, "expected_wait": 2.5, "overloaded": true, "timeout": 5.0 },
            "rates": { "taken": 500.0, "finished": 100.0, "refused": 400.0 },
            "requests": { "refused_by": { "queue_full": 3, "overload": 10, "no_worker": 0 } },
            "processes": processes,
        }],
        "sites": [{ "name": "shop", "requests": 12, "statuses": { "5xx": 3 } }],
        "kernel": { "overflows": 3 },
    }));
    for line in shown.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    let told = shown.find("! pool shop: 900 wait").expect("the trouble");
    assert!(
        told < shown.find("\npool shop: ").expect("the pool"),
        "{shown}"
    );
    assert!(shown.contains("10 overload, 3 queue full"), "{shown}");
    let longest = shown.find("      99  Running").expect("the longest");
    assert!(
        longest < shown.find("      98  Running").expect("the next"),
        "{shown}"
    );
    assert!(shown.contains("and 75 more"), "{shown}");
}
