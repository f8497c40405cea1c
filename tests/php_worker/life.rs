//! The life of a request: output in steps, clients that leave, scripts that go on, and no effects on later requests.

use super::{fpm::Both, support::*};

#[test]
fn a_finished_request_goes_on_without_its_client() {
    let mut both = Both::start(&[]);
    let trace = both.site.path("trace");
    let tell = |name: &str| {
        format!(
            "<?php function tell($what) {{ file_put_contents('{}', $what . \"\\n\", FILE_APPEND); }}
             register_shutdown_function(function () {{ tell('down ' . connection_status() . connection_aborted()); echo 'x'; }});
             {name}",
            trace.display()
        )
    };
    for script in [
        "echo 'a'; tell(var_export(fastcgi_finish_request(), true)); tell(var_export(fastcgi_finish_request(), true)); tell(connection_status());",
        "echo 'a'; fastcgi_finish_request(); echo 'b'; tell('after one echo'); echo 'c'; tell('after two');",
        "header('A: b'); fastcgi_finish_request(); header('C: d'); tell(var_export(headers_sent(), true)); tell(http_response_code());",
        "ob_start(); echo 'buffered'; fastcgi_finish_request(); tell(ob_get_level()); ob_start(); echo 'x'; tell(ob_get_clean());",
        "fastcgi_finish_request(); trigger_error('late'); nothing();",
        "fastcgi_finish_request(); exit('bye');",
        "session_start(); fastcgi_finish_request(); tell(session_status()); $_SESSION['x'] = 1;",
        "fastcgi_finish_request(); tell(strlen(file_get_contents('php://input')));",
    ] {
        both.site.script("script.php", &tell(script));
        let request = Request::post(&both.site, "/script.php", "text/plain", vec![b'x'; 100_000]);
        let told: Vec<String> = [0, 1]
            .map(|who| {
                let _ = std::fs::remove_file(&trace);
                if who == 0 {
                    both.fpm.ask(&request);
                    wait_until("PHP-FPM's script is done", || {
                        std::fs::read_to_string(&trace).is_ok_and(|told| told.contains("down"))
                    });
                } else {
                    both.worker.ask(&request);
                }
                std::fs::read_to_string(&trace).unwrap_or_default()
            })
            .to_vec();
        assert_eq!(told[0], told[1], "{script}");
    }
}

#[test]
fn what_is_written_after_the_request_is_finished_is_thrown_away() {
    let site = Scripts::new();
    site.script(
        "a.php",
        "<?php echo 'kept'; fastcgi_finish_request();
         for ($i = 0; $i < 1000; $i++) echo str_repeat('gone', 10000);
         flush(); error_log('gone too');
         file_put_contents('told', connection_status() . ' through');",
    );
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    for _ in 0..2 {
        let answer = worker.get(&site, "/a.php");
        assert_eq!(
            (answer.body().as_str(), answer.stderr.as_str()),
            ("kept", "")
        );
        assert_eq!(
            std::fs::read_to_string(site.path("told")).unwrap(),
            "0 through"
        );
    }
}

#[test]
fn a_worker_is_ready_only_when_the_finished_script_is_done() {
    let site = Scripts::new();
    site.script(
        "a.php",
        "<?php echo 'early'; fastcgi_finish_request(); while (!file_exists('go')) usleep(1000);",
    );
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    worker.send(&Request::get(&site, "/a.php"));
    assert_eq!(worker.next().unwrap().kind, STDOUT);
    assert_eq!(worker.next().unwrap().kind, END_REQUEST);
    // If the worker reported too early that it is ready, it would do so within this time.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(worker.is_silent());
    site.script("go", "");
    assert_eq!(worker.next().unwrap().kind, READY);
}

#[test]
fn a_small_response_is_one_write_and_a_large_one_few() {
    let site = Scripts::new();
    site.script("small.php", "<?php for ($i = 0; $i < 1000; $i++) echo 'x';");
    site.script(
        "large.php",
        "<?php for ($i = 0; $i < 1000; $i++) echo str_repeat('y', 300);",
    );
    site.script(
        "huge.php",
        "<?php echo 'start'; echo str_repeat('z', 5000000); echo 'end';",
    );
    site.script(
        "flushed.php",
        "<?php foreach ([1, 2, 3] as $i) { echo $i; flush(); }",
    );
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    let kinds = |worker: &mut Worker| {
        let mut kinds = Vec::new();
        while kinds.last() != Some(&READY) {
            kinds.push(worker.next().unwrap().kind);
        }
        kinds
    };
    worker.send(&Request::get(&site, "/small.php"));
    assert_eq!(kinds(&mut worker), [STDOUT, END_REQUEST, READY]);
    worker.send(&Request::get(&site, "/large.php"));
    let large = kinds(&mut worker);
    assert!(large.len() <= 8, "{large:?}");
    let answer = worker.get(&site, "/huge.php");
    let body = answer.body();
    assert!(body.len() == 5_000_008 && body.starts_with("startz") && body.ends_with("zend"));
    worker.send(&Request::get(&site, "/flushed.php"));
    assert_eq!(
        kinds(&mut worker),
        [STDOUT, STDOUT, STDOUT, END_REQUEST, READY]
    );
}

/// Waits and flushes until the client has left; then reports what happened.
const WAITING: &str = "<?php register_shutdown_function(function () {
        file_put_contents(__DIR__ . '/told', connection_status() . (int) connection_aborted() . ' down');
    });
    ignore_user_abort((bool) ($_GET['ignore'] ?? false));
    echo 'started'; flush();
    $end = microtime(true) + 50;
    while (!connection_aborted() && microtime(true) < $end) { echo '.'; flush(); usleep(1000); }
    error_log('never seen');
    file_put_contents('through', 'through');";

#[test]
fn an_abort_is_seen_at_the_next_flush() {
    let site = Scripts::new();
    site.script("waiting.php", WAITING);
    site.script("hello.php", "<?php echo 'hello';");
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    for (url, through) in [("/waiting.php", false), ("/waiting.php?ignore=1", true)] {
        let _ = std::fs::remove_file(site.path("through"));
        worker.send(&Request::get(&site, url));
        worker.next().unwrap();
        worker.write(&record(ABORT_REQUEST, 1, b""));
        worker.answer();
        assert_eq!(
            std::fs::read_to_string(site.path("told")).unwrap(),
            "11 down"
        );
        assert_eq!(site.path("through").exists(), through);
        assert_eq!(worker.get(&site, "/hello.php").body(), "hello");
    }
    // An abort that comes too late is ignored.
    worker.write(&record(ABORT_REQUEST, 1, b""));
    assert_eq!(worker.get(&site, "/hello.php").body(), "hello");
}

#[test]
fn an_abort_behind_a_body_that_was_not_read_is_seen() {
    let site = Scripts::new();
    site.script("waiting.php", WAITING);
    site.script("hello.php", "<?php echo 'hello';");
    let config = site.config().with("define", "enable_post_data_reading=0");
    let master = Master::start(&config);
    let mut worker = master.worker();
    let request = Request::post(&site, "/waiting.php", "text/plain", vec![b'x'; 10_000]);
    worker.send(&request);
    worker.next().unwrap();
    worker.write(&record(ABORT_REQUEST, 1, b""));
    worker.answer();
    assert_eq!(worker.get(&site, "/hello.php").body(), "hello");
}

#[test]
fn a_gateway_that_is_gone_aborts_the_script_and_ends_the_worker() {
    for ignore in ["", "?ignore=1"] {
        let site = Scripts::new();
        site.script("waiting.php", WAITING);
        let master = Master::start(&site.config());
        let mut worker = master.worker();
        worker.send(&Request::get(&site, &format!("/waiting.php{ignore}")));
        worker.next().unwrap();
        worker.hang_up();
        assert_eq!(master.end_of(&worker), End::Code(0));
        assert_eq!(
            std::fs::read_to_string(site.path("told")).unwrap(),
            "11 down"
        );
        assert_eq!(site.path("through").exists(), !ignore.is_empty());
    }
}

#[test]
fn nothing_of_a_request_is_left_to_the_next() {
    let site = Scripts::new();
    site.script(
        "leave.php",
        "<?php
        putenv('LEFT=yes'); $_ENV['LEFT'] = 'yes'; putenv('PROCESS_VALUE=changed'); putenv('PATH');
        mkdir('below'); chdir('below'); umask(0); setlocale(LC_ALL, 'C.UTF-8');
        ini_set('precision', '3'); set_include_path('/nowhere'); date_default_timezone_set('Asia/Tokyo');
        set_time_limit(5); ignore_user_abort(true); error_reporting(0); mb_internal_encoding_safe();
        function mb_internal_encoding_safe() {}
        set_error_handler(fn() => true); set_exception_handler(fn() => 0);
        spl_autoload_register(fn() => 0); stream_wrapper_register('left', 'stdClass');
        register_shutdown_function(fn() => 0); header('X-Left: yes'); http_response_code(201);
        define('LEFT', 1); class Left {} $GLOBALS['left'] = 1; assert_options(ASSERT_ACTIVE, 0);
        mt_srand(1); srand(1); if (function_exists('libxml_use_internal_errors')) libxml_use_internal_errors(true); gc_disable(); error_log('left');
        ob_start(fn($text) => $text . 'left'); echo 'ok';",
    );
    site.script(
        "look.php",
        "<?php
        var_export([
            getenv('LEFT'), getenv('PROCESS_VALUE'), getenv('PATH'), getcwd(), umask(), setlocale(LC_ALL, 0),
            ini_get_all(null, false), get_include_path(), date_default_timezone_get(), ignore_user_abort(),
            error_reporting(), spl_autoload_functions(), in_array('left', stream_get_wrappers()), headers_list(),
            http_response_code(), defined('LEFT'), class_exists('Left', false), isset($left), gc_enabled(),
            ob_get_level(), function_exists('libxml_use_internal_errors') && libxml_use_internal_errors(),
            set_error_handler(null), set_exception_handler(null), array_keys($GLOBALS), error_get_last(),
        ]);",
    );
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    let before = worker.get(&site, "/look.php");
    let leave = worker.get(&site, "/leave.php");
    assert_eq!(leave.body(), "okleft", "{}", leave.stderr);
    let after = worker.get(&site, "/look.php");
    assert_eq!(before.told(), after.told());
}

#[test]
fn sessions_are_kept_and_their_files_unlocked() {
    let site = Scripts::new();
    site.script(
        "count.php",
        "<?php session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo $_SESSION['n'];",
    );
    let config = site.config().with(
        "define",
        &format!("session.save_path={}", site.beside().display()),
    );
    let master = Master::start(&config);
    let (mut one, mut two) = (master.worker(), master.worker());
    let answer = one.get(&site, "/count.php");
    assert_eq!(answer.body(), "1");
    let cookie = answer.header("Set-Cookie");
    let cookie = cookie.split(';').next().unwrap();
    let again = Request::get(&site, "/count.php").with("HTTP_COOKIE", cookie);
    assert_eq!(two.ask(&again).body(), "2");
    assert_eq!(one.ask(&again).body(), "3");
}
