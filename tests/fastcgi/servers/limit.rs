//! The limit for servers whose number of workers is not configured.

use std::time::Duration;

use super::{Load, fpms, plain, pool, pool_status, site};
use weir_test::{Responder, wait_until};

#[test]
fn three_children_are_not_given_what_only_waits() {
    let setup = site();
    let fpms = fpms(&setup, &[3]);
    let weir = setup.pool(&pool(&plain(&fpms), "")).start();
    let limit = || {
        pool_status(&weir)["workers"]["limit"]
            .as_u64()
            .expect("a limit")
    };
    assert_eq!(limit(), 10);
    let load = Load::start(&weir, 30, "/sleep.php?ms=10");
    let mut highest = 0;
    wait_until("the limit was found out", || {
        highest = highest.max(limit());
        pool_status(&weir)["requests"]["finished"].as_u64() > Some(600)
    });
    wait_until("it is small", || limit() <= 9);
    let seen = load.end();
    assert!(seen.iter().all(|(status, _)| *status == 200));
    assert!(highest <= 30, "{highest}");
}

#[test]
fn a_server_that_can_is_given_more() {
    let setup = site();
    let server = Responder::tcp(|_, answer| {
        std::thread::sleep(Duration::from_millis(50));
        answer.page("ok");
    });
    let pool = pool(&[format!("\"{}\"", server.server())], "");
    let weir = setup.pool(&pool).start();
    let load = Load::start(&weir, 60, "/who.php");
    wait_until("the limit has grown", || {
        pool_status(&weir)["workers"]["limit"].as_u64() > Some(20)
    });
    wait_until("they run", || server.most_running() > 15);
    assert!(load.end().iter().all(|(status, _)| *status == 200));
}

#[test]
fn limits_said_for_each_server_are_kept() {
    let setup = site();
    let fpms = fpms(&setup, &[4, 4]);
    let lines = "limit_start = 2\nlimit_max = 3";
    let weir = setup.pool(&pool(&plain(&fpms), lines)).start();
    assert_eq!(pool_status(&weir)["workers"]["limit"], 4);
    let load = Load::start(&weir, 12, "/sleep.php?ms=10");
    wait_until("it has served", || {
        pool_status(&weir)["requests"]["finished"].as_u64() > Some(300)
    });
    let limit = pool_status(&weir)["workers"]["limit"].as_u64();
    assert!(limit <= Some(6) && limit >= Some(2), "{limit:?}");
    assert!(load.end().iter().all(|(status, _)| *status == 200));
}
