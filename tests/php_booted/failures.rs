//! What may go wrong beside requests: processes that die or fork, memory that is full, queues that are full.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use rustix::process::Signal;
use weir_test::{
    Setup, Weir,
    front::{Behind, Params},
    goes_on_as_root, process, wait_until,
};

use super::{booted, pool, site, text};

/// Has clients ask for `path` until `end` is true; each answer must have status 200.
fn under_load(weir: &Weir, clients: usize, path: &str, mut end: impl FnMut() -> bool) {
    let over = AtomicBool::new(false);
    let load = || {
        let mut count = 0;
        while !over.load(Relaxed) {
            weir.get(path).expect(200);
            count += 1;
        }
        count
    };
    thread::scope(|scope| {
        let _ends_with_us = Ends(&over);
        let loads: Vec<_> = (0..clients).map(|_| scope.spawn(load)).collect();
        wait_until("what is waited for under load", || {
            end() || loads.iter().any(thread::ScopedJoinHandle::is_finished)
        });
        over.store(true, Relaxed);
        let counts = loads.into_iter().map(|load| load.join().unwrap());
        assert!(counts.sum::<usize>() > 0);
    });
}

/// Ends the load, also if the test fails.
struct Ends<'t>(&'t AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// FFI, because PHP-FPM has no pcntl_fork().
const FORK: &str = "php_define = { \"ffi.enable\" = \"1\" }\n";

#[test]
fn what_is_said_after_the_answer_is_in_the_error_log() {
    let code = "
        'log' => function () { finish(); error_log('said late'); },
        'warning' => function () { finish(); echo $undefined; },
        'throws' => function () { finish(); throw new Exception('nobody catches'); },
        'shutdown' => function () { register_shutdown_function(fn() => error_log('in shutdown')); finish(); },
        'weir_log' => function () { finish(); weir_log('with context', 8, ['a' => 1]); },
        'fatal' => function () { finish(); eval('class A {} class A {}'); },";
    let boot = "function finish() { echo 'early'; frankenphp_finish_request(); }";
    let lines = "max_children = 1\nphp_admin_flag = { log_errors = true }\n";
    let weir = booted(lines, boot, code).start();
    for (path, words) in [
        ("/log", "said late"),
        ("/warning", "Undefined variable $undefined"),
        ("/throws", "Uncaught Exception: nobody catches"),
        ("/shutdown", "in shutdown"),
        ("/weir_log", "with context {"),
        ("/fatal", "PHP Fatal error:"),
    ] {
        assert_eq!(text(&weir, path), "early", "{path}");
        weir.wait_for_error(&[words, "pool=app", &format!("url={path}")]);
    }
    assert_eq!(text(&weir, "/log"), "early");
}

#[test]
fn a_process_that_the_application_forks_never_speaks_for_it() {
    const BOOT: &str = "$c = FFI::cdef('int fork(void); int waitpid(int, int *, int);');
        $wait = function ($pid) use ($c) {
            $status = $c->new('int');
            $c->waitpid($pid, FFI::addr($status), 0);
            return $status->cdata & 127 ? -($status->cdata & 127) : $status->cdata >> 8;
        };";
    const CODE: &str = "
        'exit' => function () use ($c, $wait) { if (!$pid = $c->fork()) { echo 'child'; exit(7); } echo $wait($pid); },
        'return' => function () use ($c, $wait) { if (!$pid = $c->fork()) { echo 'child'; return; } echo $wait($pid); },
        'throw' => function () use ($c, $wait) { if (!$pid = $c->fork()) { throw new Exception('in the child'); } echo $wait($pid); },
        'stay' => function () use ($c) { if (!$pid = $c->fork()) { sleep(60); exit; } echo $pid; },";
    let weir = booted(&format!("max_children = 1\n{FORK}"), BOOT, CODE).start();
    let pid = text(&weir, "/pid");
    for _ in 0..3 {
        assert_eq!(text(&weir, "/exit"), "7");
        // Its next frankenphp_handle_request() returns false, so its script ends.
        assert_eq!(text(&weir, "/return"), "0", "{}", weir.stderr());
        assert_eq!(text(&weir, "/throw"), "255");
    }
    // A process that continues to run does not keep the client waiting.
    let child = text(&weir, "/stay").parse().unwrap();
    assert_eq!(text(&weir, "/pid"), pid);
    process::signal(child, Signal::KILL);
}

#[test]
fn a_process_that_forks_between_two_requests_goes_on() {
    const SCRIPT: &str = "<?php $c = FFI::cdef('int fork(void); int waitpid(int, int *, int);');
        $loops = 0;
        while (frankenphp_handle_request(function () use (&$loops) { echo getmypid(), ' ', $loops; })) {
            $loops++;
            if (!$pid = $c->fork()) { $loops = 1000; continue; }
            $c->waitpid($pid, null, 0);
        }";
    let weir = site(&format!("max_children = 1\n{FORK}"), SCRIPT).start();
    let first = text(&weir, "/");
    let pid = first.strip_suffix(" 0").expect(&first).to_owned();
    for loops in 1..10 {
        assert_eq!(text(&weir, "/"), format!("{pid} {loops}"));
    }
}

/// If nothing regularly happens behind an answer, its end is sent a little later, together with the news that the process is
/// free. A process that is killed in between has not finished its answer.
#[test]
fn an_answer_whose_process_dies_right_behind_it_is_whole_or_seen_to_be_cut() {
    const SCRIPT: &str = "<?php $how = '';
        while (frankenphp_handle_request(function () use (&$how) {
            $how = $_GET['how'] ?? '';
            echo str_repeat('x', (int) ($_GET['size'] ?? 10)), 'end';
        })) {
            if ($how === 'kill' && !file_exists($killed = dirname(__DIR__) . '/spool/killed')) { touch($killed); posix_kill(getmypid(), 9); }
            if ($how === 'exit') exit;
            if ($how === 'error') nothing();
        }";
    let weir = site("max_children = 1\n", SCRIPT).start();
    let short_gaps = || {
        for _ in 0..10 {
            weir.get_until("/", |answer| answer.status == 200);
        }
    };
    for how in ["exit", "error"] {
        for size in [10, 20_000, 200_000] {
            short_gaps();
            let answer = text(&weir, &format!("/?how={how}&size={size}"));
            assert_eq!(answer.len(), size + 3, "{how}");
        }
    }
    // The other thread of the process may have sent the end already.
    short_gaps();
    assert_eq!(text(&weir, "/?how=kill&size=10").len(), 13);
    wait_until("it is killed", || weir.scratch("killed").exists());
    fs::remove_file(weir.scratch("killed")).unwrap();
    short_gaps();
    let mut client = weir.client();
    client.send("GET /?how=kill&size=200000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let head = client.head().expect("a head");
    let has_length = head
        .headers
        .iter()
        .any(|(name, _)| name == "content-length");
    let (body, _) = client.rest();
    let is_whole = match has_length {
        _ if head.status != 200 => return assert_eq!(head.status, 502),
        true => body.len() == 200_003,
        false => body.ends_with(b"\r\n0\r\n\r\n"),
    };
    if !is_whole {
        weir.wait_for_error(&["a response was cut", "how=kill"]);
    }
}

/// Templates that change: each change takes more of OPcache's memory.
#[test]
fn opcache_that_runs_full_under_load_loses_no_request_and_renews_the_pool_seldom() {
    let code = "'change' => function () {
            static $n = 0;
            $file = dirname(__DIR__) . '/spool/' . getmypid() . '-' . ++$n % 20 . '.php';
            file_put_contents($file, '<?php return [' . implode(',', range($n, $n + 5000)) . '];');
            touch($file, time() - 1000000 + $n);
            if ((include $file)[0] !== $n) { http_response_code(500); }
        },";
    let lines = "max_children = 3\nopcache_memory = \"16M\"\n";
    let weir = booted(lines, "", code).admin().start();
    text(&weir, "/pid");
    let first = pool(&weir)["generation"].as_u64().unwrap();
    under_load(&weir, 4, "/change", || {
        pool(&weir)["generation"].as_u64().unwrap() > first
    });
    weir.wait_for_error(&["OPcache must clear its memory", "opcache_memory"]);
    assert!(!weir.stderr().contains("signal 9"), "{}", weir.stderr());
    assert_eq!(pool(&weir)["workers"]["crashed"], 0);
}

#[test]
fn a_restart_of_the_pool_under_load_boots_anew_and_loses_no_request() {
    let weir = booted(
        "max_children = 3\n",
        "$count = random_int(1, PHP_INT_MAX);",
        "",
    )
    .admin()
    .start();
    let before = pool(&weir)["generation"].as_u64().unwrap();
    let (mut restarted, pid) = (false, text(&weir, "/pid").parse().ok());
    under_load(&weir, 4, "/count", || {
        if !restarted {
            let output = weir.command(&["pool", "app", "restart"]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            restarted = true;
        }
        let state = pool(&weir);
        let processes = state["processes"].as_array().unwrap();
        let is_old = |process: &serde_json::Value| process["pid"].as_u64() == pid;
        state["generation"].as_u64().unwrap() > before && !processes.iter().any(is_old)
    });
}

#[test]
fn requests_wait_in_the_queue_with_its_limits() {
    let code =
        "'hold' => function () { $spool = dirname(__DIR__) . '/spool'; touch(\"$spool/came\");
        while (!file_exists(\"$spool/gate\")) { usleep(5000); clearstatcache(); } echo 'held'; },";
    let weir = booted(
        "max_children = 1\nqueue.max_queue = 1\nqueue.timeout = \"400ms\"\n",
        "",
        code,
    )
    .admin()
    .start();
    let [mut holder, mut waiting] = [weir.client(), weir.client()];
    holder.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it runs", || weir.scratch("came").exists());
    waiting.send("GET /pid HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the other waits", || pool(&weir)["queue"]["waiting"] == 1);
    weir.get("/pid").expect(503).expect_reason("queue_full");
    waiting
        .response()
        .expect(503)
        .expect_reason("queue_timeout");
    fs::write(weir.scratch("gate"), "").unwrap();
    assert_eq!(holder.response().expect(200).text(), "held");
    text(&weir, "/pid");
}

/// A web server in front names the script itself; the application is not below its document root.
#[test]
fn a_web_server_in_front_reaches_the_application_by_its_script_and_by_index_php() {
    let setup = Setup::new();
    let script = setup.folder().join("application/app.php");
    fs::create_dir_all(script.parent().unwrap()).unwrap();
    weir_test::weir::write(
        &script,
        b"<?php while (frankenphp_handle_request(function () {
            echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['QUERY_STRING'], ' ', $_SERVER['SCRIPT_FILENAME']; })) {}",
    );
    let setup = setup
        .file("index.php", "<?php echo 'not this';")
        .file("other.php", "<?php echo 'nor this';");
    let lines = format!("worker = \"{}\"\n", script.display());
    let behind = Behind::start(setup, &weir_test::php::own(1, &lines), "");
    let named = |file: &str, name: &str| {
        Params::of(&[
            ("REQUEST_METHOD", "GET"),
            ("QUERY_STRING", "a=1"),
            ("DOCUMENT_ROOT", &behind.weir.root().display().to_string()),
            ("SCRIPT_NAME", name),
            ("SCRIPT_FILENAME", file),
        ])
    };
    let file = script.display().to_string();
    let index = behind.weir.root().join("index.php").display().to_string();
    let other = behind.weir.root().join("other.php").display().to_string();
    let mut front = behind.front();
    for (file, name) in [(&file, "/anything"), (&index, "/index.php")] {
        let (head, body) = front.ask(&named(file, name), b"").text();
        assert!(!head.contains("Status:"), "{head}");
        assert_eq!(body, format!("{name} a=1 {file}"));
        front = behind.front();
    }
    let (head, _) = front.ask(&named(&other, "/other.php"), b"").text();
    assert!(head.contains("Status: 404"), "{head}");
}

/// The application's folder is the processes' root, as in PHP-FPM: `worker` names the script as it is outside.
#[test]
fn an_application_may_boot_within_a_chroot() {
    if !goes_on_as_root() {
        return;
    }
    let setup = Setup::new();
    let root = setup.root();
    let setup = setup
        .file(
            "app.php",
            "<?php $files = scandir('/');
            while (frankenphp_handle_request(function () use ($files) { echo __FILE__, ' ', implode(',', $files); })) {}",
        )
        .site("fallback = \"/app.php\"");
    let lines = format!(
        "worker = \"{0}/app.php\"\nchroot = \"{0}\"\n",
        root.display()
    );
    let weir = setup.pool(&weir_test::php::own(1, &lines)).start();
    let answer = text(&weir, "/");
    assert!(answer.starts_with("/app.php ."), "{answer}");
    assert!(answer.contains("app.php"), "{answer}");
}
