//! One customer among many who does harm: what the scripts and processes of one pool do must not slow or stop other pools.

use std::{
    fs,
    time::{Duration, Instant},
};

use weir_test::{Weir, goes_on_as_root, wait_until};

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

/// A user of its own, because the kernel counts all processes of a user.
#[test]
fn processes_that_a_script_starts_without_end_are_limited_and_keep_no_other_pool_waiting() {
    if !goes_on_as_root() {
        return;
    }
    let first = setup("").file(
        "many.php",
        "<?php $all = [];
        while (count($all) < 100 && $process = @proc_open(['sleep', '60'], [], $pipes)) { $all[] = $process; }
        file_put_contents($_GET['came'], count($all));
        while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
        foreach ($all as $process) { proc_terminate($process, 9); proc_close($process); }
        echo count($all);",
    );
    let weir = pools(
        first.pool("runtime = \"php\"\nuser = \"games\"\npm = \"ondemand\"\nmax_children = 2\nrlimit_processes = 20\n"),
        1,
        "pm = \"ondemand\"\n",
    )
    .start();
    let (came, gate) = (weir.scratch("came"), weir.scratch("gate"));
    let path = format!("/many.php?came={}&gate={}", came.display(), gate.display());
    std::thread::scope(|scope| {
        let many = scope.spawn(|| weir.get(&path).expect(200).text());
        wait_until("it has started what it can", || came.exists());
        expect_answer(&weir, "p0");
        // The pool has no process left for another worker, and says so.
        let other = scope.spawn(|| weir.get("/pid.php").status);
        weir.wait_for_error(&["pool=app", "Resource temporarily unavailable"]);
        fs::write(&gate, "").unwrap();
        let count: usize = many.join().unwrap().parse().unwrap();
        assert!((5..20).contains(&count), "{count}");
        assert_eq!(other.join().unwrap(), 200);
    });
}

/// Its master and the worker are all the processes that this user may have.
#[test]
fn a_worker_that_cannot_have_a_second_thread_answers_all_the_same() {
    if !goes_on_as_root() {
        return;
    }
    let one = "runtime = \"php\"\nuser = \"uucp\"\npm = \"static\"\nmax_children = 1\nrlimit_processes = 2\n";
    let weir = setup("").pool(one).start();
    let first = weir.get("/pid.php").expect(200).text();
    weir.wait_for_error(&["pool=app", "cannot start the control thread"]);
    let second = weir.request("POST", "/pid.php", &[], b"x").expect(200);
    assert_eq!(second.text(), first);
}

#[test]
fn responses_to_clients_that_do_not_read_leave_room_for_the_uploads_of_others() {
    let first = setup("pm = \"ondemand\"\n")
        .server("max_spool = \"64M\"")
        .file(
            "large.php",
            "<?php for ($n = 0; $n < 200; $n++) { echo str_repeat('x', 1 << 20); }",
        );
    let weir = pools(first, 1, "pm = \"ondemand\"\n").start();
    // The kernel's buffers take some 10 MB.
    let mut client = weir.client();
    client.send("GET /large.php HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.wait_for_error(&["max_spool"]);
    let upload = weir.request("POST", "/pid.php", &[("Host", "p0")], &[b'x'; 1_000_000]);
    assert_eq!(upload.status, 200, "{}", weir.stderr());
    drop(client);
}
