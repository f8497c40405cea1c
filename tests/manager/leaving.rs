//! `shutdown_delay`: a weir that was told to stop is left by load balancers before it refuses anything.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
};

use super::*;

fn site(delay: &str) -> Setup {
    let lines = format!("shutdown_delay = \"{delay}\"");
    site_without_pool().admin().server(&lines)
}

/// Whether its admin interface says that it is ready.
fn is_ready(weir: &Weir) -> bool {
    weir.admin_get("/readyz").0 == 200
}

#[test]
fn it_is_not_ready_and_answers_until_the_delay_is_over() {
    let mut weir = site("1h").start();
    let mut kept = weir.client();
    signal(weir.pid(), Signal::TERM);
    wait_until("it is not ready", || !is_ready(&weir));
    weir.wait_for_error(&["not ready from now on", "3600 s (shutdown_delay)"]);
    // A new connection, and one that was there before.
    weir.get("/a.txt").expect(200);
    kept.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = kept.response().expect(200);
    assert_eq!(answer.header("connection"), Some("close"));
    // Nothing new begins.
    let reload = weir.command(&["reload"]).output().expect("weir reload");
    assert!(!reload.status.success(), "{reload:?}");
    // Who cannot wait asks again.
    let stop = weir.command(&["stop"]).output().expect("weir stop");
    assert!(stop.status.success(), "{stop:?}");
    assert!(weir.wait_for_end().success());
}

#[test]
fn it_stops_by_itself_after_the_delay_and_at_once_after_a_second_signal() {
    let mut weir = site("300ms").start();
    signal(weir.pid(), Signal::TERM);
    assert!(weir.wait_for_end().success());
    let mut weir = site("1h").start();
    signal(weir.pid(), Signal::TERM);
    wait_until("it is not ready", || !is_ready(&weir));
    signal(weir.pid(), Signal::TERM);
    assert!(weir.wait_for_end().success());
}

/// What Kubernetes does with a Deployment: another one starts, then the first gets SIGTERM, and the balancer leaves it.
#[test]
fn a_rolling_replacement_loses_no_request() {
    const CLIENTS: usize = 3;
    let mut before = site("1h").start();
    // The test ends it in the usual way.
    let after = site("0s").start();
    let (first, second) = (before.address(), after.address());
    let [is_left, is_over] = [AtomicBool::new(false), AtomicBool::new(false)];
    let at_second = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut is_first_time = true;
                while !is_over.load(Relaxed) {
                    if !is_left.load(Relaxed) {
                        get(first, "/a.txt").expect(200);
                        continue;
                    }
                    get(second, "/a.txt").expect(200);
                    at_second.fetch_add(usize::from(is_first_time), Relaxed);
                    is_first_time = false;
                }
            });
        }
        signal(before.pid(), Signal::TERM);
        wait_until("the load balancer notices", || !is_ready(&before));
        is_left.store(true, Relaxed);
        wait_until("all are at the other one", || {
            at_second.load(Relaxed) == CLIENTS
        });
        // The delay is over.
        assert!(before.command(&["stop"]).status().expect("weir").success());
        assert!(before.wait_for_end().success());
        is_over.store(true, Relaxed);
    });
}
