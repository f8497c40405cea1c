//! One customer among many who does harm: what the scripts and processes of one pool do must not slow or stop other pools.

use std::{
    fs,
    time::{Duration, Instant},
};

use weir_test::{Weir, wait_until};

use super::{
    masters,
    on_demand::{ask, pools},
    setup,
};

/// The longest time in which another pool answers, although machines that run tests are busy.
const SOON: Duration = Duration::from_secs(15);

/// Another pool, which is cold, answers soon.
#[track_caller]
fn expect_answer(weir: &Weir, pool: &str) {
    let began = Instant::now();
    assert_eq!(ask(weir, pool), 200, "{}", weir.stderr());
    assert!(began.elapsed() < SOON, "after {:?}", began.elapsed());
}

/// Such as a preload script that waits for something, or a master that a process of its user has stopped.
#[test]
fn php_that_is_never_loaded_keeps_no_other_pool_from_its_start() {
    let first = setup("").server("php_starts = 1");
    let preload = first.root().join("preload.php");
    let gate = first.folder().join("spool/gate");
    fs::write(
        &preload,
        format!(
            "<?php while (!file_exists('{}')) {{ usleep(10000); clearstatcache(); }}",
            gate.display()
        ),
    )
    .unwrap();
    weir_test::weir::mode(&preload, 0o644);
    let hangs = format!(
        "pm = \"ondemand\"\nphp_define = {{ \"opcache.preload\" = \"{}\", \"opcache.preload_user\" = \"www-data\" }}\n",
        preload.display()
    );
    let weir = pools(
        first.pool(&format!(
            "runtime = \"php\"\n{}{hangs}",
            weir_test::php::identity()
        )),
        2,
        "pm = \"ondemand\"\n",
    )
    .start();
    std::thread::scope(|scope| {
        let hanging = scope.spawn(|| weir.get("/pid.php").status);
        wait_until("PHP begins to load", || masters(&weir).len() == 1);
        expect_answer(&weir, "p0");
        expect_answer(&weir, "p1");
        fs::write(&gate, "").unwrap();
        assert_eq!(hanging.join().unwrap(), 200);
    });
}
