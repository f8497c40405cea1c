//! Servers that die, come back, refuse, and fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::{Load, fpm_again, fpms, plain, pool, pool_status, site, states, tally};
use weir_test::{Responder, Setup, wait_until};

#[test]
fn a_server_that_dies_under_load_loses_no_request_and_comes_back_slowly() {
    let setup = site();
    let mut fpms = fpms(&setup, &[4, 4, 4]);
    let lines = "slowstart = \"3s\"\nfail_timeout = \"1s\"\nqueue.maxconn = 12";
    let weir = setup.pool(&pool(&plain(&fpms), lines)).start();
    let load = Load::start(&weir, 12, "/sleep.php?ms=20");
    let requests = |server: usize| pool_status(&weir)["servers"][server]["requests"].as_u64();
    wait_until("all are at work", || {
        (0..3).all(|server| requests(server) > Some(5))
    });
    let second = fpms.remove(1);
    second.signal(rustix::process::Signal::KILL);
    drop(second);
    weir.wait_for_error(&["server unix:", "/b/fpm.sock is down"]);
    // The other servers do not get more load than they can take.
    assert_eq!(pool_status(&weir)["workers"]["limit"], 8);
    let second = fpm_again(&weir, 'b', 4);
    weir.wait_for_error(&["/b/fpm.sock is up again after", "starts slowly"]);
    wait_until("it is up", || states(&weir)[1] == "up");
    let before = requests(1);
    wait_until("it is used", || requests(1) > before.map(|count| count + 5));
    let seen = load.end();
    let failed: Vec<_> = seen.iter().filter(|(status, _)| *status != 200).collect();
    assert!(
        failed.is_empty(),
        "{} of {}: {failed:?}",
        failed.len(),
        seen.len()
    );
    drop(second);
}

#[test]
fn a_backup_serves_while_no_other_is_up() {
    let setup = site();
    let mut fpms = fpms(&setup, &[2, 2]);
    let mut servers = plain(&fpms);
    servers[1] = format!("{{ address = {}, backup = true }}", servers[1]);
    let lines = "fail_timeout = \"1s\"\nqueue.maxconn = 4";
    let weir = setup.pool(&pool(&servers, lines)).start();
    assert_eq!(tally(&weir, "/who.php", 6).len(), 1);
    drop(fpms.remove(0));
    let seen = tally(&weir, "/who.php", 6);
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(states(&weir)[1], "backup");
    let first = fpm_again(&weir, 'a', 2);
    wait_until("the first serves again", || {
        weir.get("/who.php").text() == "a"
    });
    assert_eq!(
        tally(&weir, "/who.php", 6).keys().collect::<Vec<_>>(),
        ["a"]
    );
    drop(first);
}

#[test]
fn all_are_tried_where_all_are_down() {
    let setup = site();
    let mut fpms = fpms(&setup, &[1, 1]);
    let weir = setup
        .pool(&pool(&plain(&fpms), "queue.maxconn = 2"))
        .start();
    weir.get("/who.php").expect(200);
    fpms.clear();
    weir.get("/who.php").expect(503).expect_reason("no_worker");
    weir.wait_for_error(&["no server is up"]);
    assert_eq!(states(&weir), ["down", "down"]);
    assert_eq!(pool_status(&weir)["state"], "down");
    let second = fpm_again(&weir, 'b', 1);
    wait_until("it is found", || weir.get("/who.php").status == 200);
    assert_eq!(states(&weir)[1], "up");
    assert_eq!(pool_status(&weir)["state"], "up");
    drop(second);
}

#[test]
fn kept_connections_follow_their_servers() {
    let setup = site();
    let mut fpms = fpms(&setup, &[2, 2]);
    let lines = "keep_conn = true\nfail_timeout = \"1s\"\nqueue.maxconn = 4";
    let weir = setup.pool(&pool(&plain(&fpms), lines)).start();
    let load = Load::start(&weir, 8, "/sleep.php?ms=5");
    let kept = |server: usize| pool_status(&weir)["servers"][server]["kept"].as_u64();
    let busy = |server: usize| pool_status(&weir)["servers"][server]["requests"].as_u64();
    wait_until("both are used", || busy(0) > Some(20) && busy(1) > Some(20));
    let seen = load.end();
    assert!(seen.iter().all(|(status, _)| *status == 200));
    // There are at most as many kept connections as children. All kinds of requests use them.
    wait_until("they are kept", || kept(0) > Some(0) && kept(1) > Some(0));
    assert!(kept(0) <= Some(2) && kept(1) <= Some(2));
    for _ in 0..6 {
        // All children are bound to kept connections, so a new connection replaces one of them.
        weir.request("POST", "/who.php", &[], b"a=1").expect(200);
    }
    let second = fpms.remove(1);
    drop(second);
    wait_until("it is down", || {
        weir.get("/who.php").expect(200);
        states(&weir)[1] == "down"
    });
    assert_eq!(kept(1), Some(0));
}

#[test]
fn one_child_serves_posts_beside_its_kept_connection() {
    let setup = site();
    let fpms = fpms(&setup, &[1]);
    let lines = "keep_conn = true\nqueue.maxconn = 1";
    let weir = setup.pool(&pool(&plain(&fpms), lines)).start();
    for _ in 0..10 {
        weir.get("/who.php").expect(200);
        weir.request("POST", "/who.php", &[], b"a=1").expect(200);
    }
}

#[test]
fn a_server_that_fails_its_requests_is_left_out() {
    let setup = Setup::new().file("run.php", "");
    let broken = Arc::new(AtomicBool::new(true));
    let switch = broken.clone();
    let bad = Responder::tcp(move |_, answer| match switch.load(Ordering::SeqCst) {
        true => answer.raw(b"HTTP/1.1 200 OK\r\n\r\n"),
        false => answer.page("mended"),
    });
    let good = Responder::tcp(|_, answer| answer.page("good"));
    let servers = [&bad, &good].map(|server| format!("\"{}\"", server.server()));
    let lines = "balance = \"roundrobin\"\nmax_fails = 3\nfail_timeout = \"2s\"\nretries = 0\nqueue.maxconn = 4";
    let weir = setup.admin().pool(&pool(&servers, lines)).start();
    let began = Instant::now();
    let mut failures = 0;
    while states(&weir)[0] == "up" {
        failures += usize::from(weir.get("/run.php").status != 200);
        assert!(began.elapsed() < weir_test::LIMIT);
    }
    assert_eq!(failures, 3);
    weir.wait_for_error(&[
        "has failed too many requests in a row",
        "does not speak FastCGI",
    ]);
    broken.store(false, Ordering::SeqCst);
    wait_until("it is up again", || {
        weir.get("/run.php");
        states(&weir)[0] == "up"
    });
    let seen = tally(&weir, "/run.php", 10);
    assert_eq!((seen["mended"], seen["good"]), (5, 5));
}
