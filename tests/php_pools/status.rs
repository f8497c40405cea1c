//! The figures: `fpm_get_status()`, and what the status page takes.

use serde_json::Value;

use super::{Gated, count, fixed, pid, wait_for_workers};
use weir_test::{Weir, wait_until};

const STATUS: &str = "<?php
    if (isset($_GET['late'])) { echo 'early'; fastcgi_finish_request(); }
    for ($i = 0; $i < (int)($_GET['times'] ?? 1); $i++) $status = fpm_get_status();
    if (isset($_GET['late'])) file_put_contents($_GET['late'], json_encode($status));
    else { header('Content-Type: application/json'); echo json_encode($status); }
";

fn figures(weir: &Weir, query: &str) -> Value {
    let response = weir.request(
        "POST",
        &format!("/get.php?{query}"),
        &[("Authorization", "Basic YWxhZGRpbjpvcGVuc2VzYW1l")],
        b"a=1",
    );
    serde_json::from_slice(&response.expect(200).body).expect("JSON")
}

#[test]
fn a_script_gets_the_figures_of_its_pool() {
    let weir = fixed(4, "").file("get.php", STATUS).start();
    wait_for_workers(&weir, 4);
    pid(&weir);
    let gated = Gated::start(&weir, "two", 2);
    wait_until("both have one", || count(&weir, "came-two") == 2);
    let found = figures(&weir, "x=1&y=%22");
    assert_eq!(found["pool"], "app");
    assert_eq!(found["process-manager"], "static");
    assert_eq!(found["accepted-conn"], 4);
    assert_eq!(found["active-processes"], 3);
    assert_eq!(found["idle-processes"], 1);
    assert_eq!(found["total-processes"], 4);
    assert_eq!(found["max-active-processes"], 3);
    let procs = found["procs"].as_array().expect("workers");
    assert_eq!(procs.len(), 4);
    let asker = procs
        .iter()
        .find(|one| one["request-uri"] == "/get.php")
        .expect("the worker that asks");
    assert_eq!(asker["state"], "Running");
    assert_eq!(asker["query-string"], "x=1&y=%22");
    assert_eq!(asker["request-method"], "POST");
    assert_eq!(asker["request-length"], 3);
    assert_eq!(asker["user"], "aladdin");
    assert_eq!(
        asker["script"],
        weir.root().join("get.php").display().to_string()
    );
    let gates = procs
        .iter()
        .filter(|one| one["state"] == "Running" && one["request-uri"] == "/gate.php");
    assert_eq!(gates.count(), 2);
    assert_eq!(gated.open(), [200, 200]);
}

#[test]
fn figures_can_be_asked_for_often_and_after_the_answer() {
    let weir = fixed(1, "").file("get.php", STATUS).start();
    let before = pid(&weir);
    assert_eq!(figures(&weir, "times=500")["active-processes"], 1);
    let file = weir.scratch("late.json");
    let answer = weir.get(&format!("/get.php?late={}", file.display()));
    assert_eq!(answer.expect(200).text(), "early");
    let late: Value = serde_json::from_str(&super::written(&file)).expect("JSON");
    assert_eq!(late["procs"][0]["state"], "Finishing");
    assert_eq!(pid(&weir), before);
}

/// The value of a metric of the pool.
fn metric(weir: &Weir, name: &str) -> Option<f64> {
    let (_, text) = weir.admin_get("/metrics");
    let begin = format!("{name}{{pool=\"app\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&begin))?;
    Some(value.parse().expect("a number"))
}

#[test]
fn a_metric_tells_how_full_opcache_is() {
    // Each request brings a script of half a megabyte. It is old: OPcache does not take one that may still be written.
    let fill = "<?php $file = __DIR__ . '/../spool/' . (int)$_GET['n'] . '.php';
        file_put_contents($file, '<?php return [' . implode(',', range(1, 30000)) . '];');
        touch($file, 1000000000);
        include $file;";
    let weir = fixed(1, "opcache_memory = \"16M\"\n")
        .file("fill.php", fill)
        .admin()
        .start();
    weir.get("/fill.php?n=0").expect(200);
    wait_until("a worker has looked", || {
        pid(&weir);
        metric(&weir, "weir_pool_opcache_used_ratio").is_some_and(|used| used > 0.0 && used < 0.9)
    });
    let mut n = 0;
    wait_until("it is full", || {
        n += 1;
        weir.get(&format!("/fill.php?n={n}")).expect(200);
        metric(&weir, "weir_pool_opcache_used_ratio") > Some(0.95)
    });
}

#[test]
fn a_metric_tells_for_how_long_all_workers_are_busy_with_the_same_requests() {
    let weir = fixed(2, "").admin().start();
    wait_for_workers(&weir, 2);
    let stalled = || metric(&weir, "weir_pool_stalled_seconds").expect("a value");
    let first = Gated::start(&weir, "one", 1);
    wait_until("it runs", || count(&weir, "came-one") == 1);
    assert_eq!(stalled(), 0.0);
    let second = Gated::start(&weir, "two", 1);
    wait_until("both workers are stuck", || stalled() > 0.3);
    assert_eq!(first.open(), [200]);
    wait_until("one is free again", || stalled() == 0.0);
    assert_eq!(second.open(), [200]);
}
