//! Errors at odd moments: while a request ends, at the end of the boot, between two requests.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use rustix::process::Signal;
use weir_test::{Weir, process, wait_until};

use super::{booted, pool, site, text};

const ONE: &str = "max_children = 1\nphp_admin_value = { display_errors = \"0\" }\n";

/// Such a handler turns each warning into an exception, as those of frameworks do.
const THROWS: &str =
    "set_error_handler(function ($level, $text) { throw new ErrorException($text); });";

/// The limit cannot be what it was, because the application keeps more. PHP warns of that; the warning is the request's, although
/// its answer is complete.
#[test]
fn a_throwing_error_handler_does_not_meet_what_happens_behind_a_request() {
    const CODE: &str = "'keep' => function () { static $kept; ini_set('memory_limit', '90M'); $kept = str_repeat('x', 60 << 20); echo 'kept'; },";
    let lines = "max_children = 1\nphp_admin_value = { display_errors = \"0\" }\nphp_value = { memory_limit = \"30M\" }\n";
    let weir = booted(lines, THROWS, CODE).start();
    let pid = text(&weir, "/pid");
    assert_eq!(text(&weir, "/keep"), "kept");
    assert_eq!(text(&weir, "/pid"), pid, "{}", weir.stderr());
    weir.wait_for_error(&["Failed to set memory limit"]);
    assert!(!weir.stderr().contains("Uncaught"), "{}", weir.stderr());
}

#[test]
fn functions_for_the_end_run_also_after_a_destructor_that_throws() {
    const BOOT: &str =
        "class Bomb { function __destruct() { throw new RuntimeException('in a destructor'); } }
        function bomb($bomb) { throw new RuntimeException('first'); }";
    const CODE: &str = "'result' => function () { register_shutdown_function(function () { echo 'ended'; }); return new Bomb; },
        'argument' => function () { register_shutdown_function(function () { echo 'ended'; }); bomb(new Bomb); },";
    let lines = format!("{ONE}php_define = {{ \"zend.exception_ignore_args\" = \"0\" }}\n");
    // The function's result is an object, which is destroyed when the function has returned.
    let setup = booted(&lines, BOOT, CODE);
    let script = fs::read_to_string(setup.root().join("app.php")).unwrap();
    let script = script.replace(
        "isset($actions[$name]) ?",
        "return isset($actions[$name]) ?",
    );
    let weir = setup.file("app.php", &script).start();
    let pid = text(&weir, "/pid");
    for path in ["/result", "/argument"] {
        assert_eq!(weir.get(path).expect(500).text(), "ended", "{path}");
        assert_eq!(text(&weir, "/pid"), pid, "{}", weir.stderr());
    }
    weir.wait_for_error(&["Uncaught RuntimeException: in a destructor"]);
}

/// A session that is written between two requests is not the next client's.
#[test]
fn an_exception_between_two_requests_is_not_the_next_clients() {
    const SCRIPT: &str = "<?php
        class Handler extends SessionHandler { function write($id, $data): bool { throw new RuntimeException('not written'); } }
        session_set_save_handler(new Handler, false);
        session_save_path(dirname(__DIR__) . '/spool');
        ini_set('session.use_cookies', '0');
        while (frankenphp_handle_request(function () { echo getmypid(); })) {
            @session_start();
            $_SESSION['a'] = 1;
        }";
    let weir = site(
        &format!("{ONE}php_value = {{ \"session.cache_limiter\" = \"\" }}\n"),
        SCRIPT,
    )
    .start();
    let pid = text(&weir, "/");
    for _ in 0..3 {
        assert_eq!(text(&weir, "/"), pid, "{}", weir.stderr());
    }
    weir.wait_for_error(&["Uncaught RuntimeException: not written"]);
}

/// Not only the process that boots, but all that would be forked from it would end after each request.
#[test]
fn a_fatal_error_at_the_end_of_the_boot_is_a_boot_that_fails() {
    const SCRIPT: &str = "<?php
        file_put_contents(dirname(__DIR__) . '/spool/boots', '.', FILE_APPEND);
        ob_start(function ($text) { ini_set('memory_limit', '4M'); return str_repeat('x', 100 << 20); });
        echo 'output of the boot';
        while (frankenphp_handle_request(function () { echo getmypid(); })) {}";
    let weir = site(ONE, SCRIPT).admin().start();
    weir.wait_for_error(&["PHP Fatal error"]);
    weir.get("/").expect(503).expect_reason("no_worker");
    weir.wait_for_error(&["so the application is not booted"]);
}

/// After a fatal error PHP cannot go on, also if no request is answered.
#[test]
fn a_process_ends_after_a_fatal_error_between_two_requests() {
    const SCRIPT: &str = "<?php $how = '';
        while (frankenphp_handle_request(function () use (&$how) { $how = $_GET['how'] ?? ''; echo getmypid(); })) {
            if ($how === 'fatal') {
                ob_start(function ($text) { ini_set('memory_limit', '4M'); return str_repeat('x', 100 << 20); });
                echo 'output';
            }
        }";
    let weir = site(ONE, SCRIPT).start();
    let pid = text(&weir, "/");
    assert_eq!(text(&weir, "/?how=fatal"), pid);
    weir.wait_for_error(&["PHP Fatal error"]);
    assert_ne!(text(&weir, "/"), pid);
}

/// Hosters disable it, because it shows the names of files.
#[test]
fn a_full_opcache_is_seen_also_without_its_functions() {
    let code = "'reset' => function () { opcache_reset(); echo 'reset'; },";
    let lines =
        "max_children = 2\nphp_admin_value = { disable_functions = \"opcache_get_status\" }\n";
    let weir = booted(lines, "", code).admin().start();
    assert_eq!(text(&weir, "/reset"), "reset");
    let before = pool(&weir)["generation"].as_u64().unwrap();
    wait_until("the pool is restarted", || {
        text(&weir, "/pid");
        pool(&weir)["generation"].as_u64().unwrap() > before
    });
    weir.wait_for_error(&["OPcache must clear its memory"]);
}

/// An early hint is of use only before the answer.
#[test]
fn an_early_hint_leaves_at_once() {
    let code = "'hint' => function () {
            header('Link: </style.css>; rel=preload; as=style');
            headers_send(103);
            $gate = dirname(__DIR__) . '/spool/gate';
            while (!file_exists($gate)) { usleep(2000); clearstatcache(); }
            echo 'answer';
        },";
    let weir: Weir = booted("max_children = 1\n", "", code).start();
    let mut client = weir.client();
    client.send("GET /hint HTTP/1.1\r\nHost: a\r\n\r\n");
    let hint = client.head().expect("a head");
    assert_eq!(hint.status, 103);
    fs::write(weir.scratch("gate"), "").unwrap();
    assert_eq!(client.response().expect(200).text(), "answer");
}

/// What the script has said of the final status is not for the heads before, and is not lost by them.
#[test]
fn interim_heads_leave_the_final_head_as_it_is() {
    let code = "'said' => function () {
            eval($_GET['say']);
            header('X-Kept: yes');
            foreach (explode(',', $_GET['interim']) as $status) { headers_send((int) $status); }
            echo 'answer';
        },";
    let weir = booted("max_children = 1\n", "", code).start();
    for (say, status) in [
        ("", 200),
        ("header('HTTP/1.1 404 Gone fishing');", 404),
        ("header('HTTP/1.0 410 Gone');", 410),
        ("header('HTTP/1.1 201 Created', true, 201);", 201),
        ("header('Status: 403 No');", 403),
        ("http_response_code(503);", 503),
        ("header('Location: /x');", 302),
        // No answer ends with a status of this kind.
        ("http_response_code(103);", 200),
        ("header('HTTP/1.1 150 Odd');", 200),
    ] {
        for interim in ["103", "102", "103,103", "199", "100"] {
            let say: String = say.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let answer = weir.get(&format!("/said?say={say}&interim={interim}"));
            assert_eq!(answer.header("x-kept"), Some("yes"), "{say} {interim}");
            assert_eq!(answer.status, status, "{say} {interim}");
            assert_eq!(answer.text(), "answer", "{say} {interim}");
            let heads = answer.interim.iter().map(|head| head.status.to_string());
            let heads = heads.collect::<Vec<_>>().join(",");
            // weir itself says when the body is wanted.
            let expected = if interim == "100" { "" } else { interim };
            assert_eq!(heads, expected, "{say} {interim}");
        }
    }
}

/// A script can write to all pipes of its process: with FFI, or with libraries that open /proc/self/fd themselves, as libcurl does for
/// an upload to file:. What it writes costs its own pool's processes time, and not the manager, which is there for all pools.
#[test]
fn forged_reports_of_a_script_do_not_reach_the_manager() {
    let code = "'flood' => function () {
            $c = FFI::cdef('long write(int, const char *, long);');
            [$most, $until] = [0, 0];
            $reports = '';
            for ($number = 0; $number < 510; $number++) { $reports .= pack('LL', $number % 17, 1 + intdiv($number, 17) % 2); }
            foreach (scandir('/proc/self/fd') as $fd) {
                if ($fd < 3 || !str_starts_with((string) @readlink(\"/proc/self/fd/$fd\"), 'pipe:')) { continue; }
                for ($written = 0, $until = microtime(true) + 0.5; microtime(true) < $until;) {
                    $now = $c->write((int) $fd, $reports, strlen($reports));
                    $written += max($now, 0);
                }
                $most = max($most, $written);
            }
            echo $most;
        },";
    let lines = "max_children = 1\nphp_define = { \"ffi.enable\" = \"1\" }\n";
    let weir = booted(lines, "", code).start();
    let pid = text(&weir, "/pid");
    let before = process::cpu_time(weir.pid());
    let written: u64 = text(&weir, "/flood").parse().unwrap();
    let spent = process::cpu_time(weir.pid()).saturating_sub(before);
    assert!(written > 100_000, "{written} bytes");
    assert!(
        spent.as_millis() < 100,
        "{spent:?} of the manager for {written} bytes"
    );
    assert_eq!(text(&weir, "/pid"), pid);
}

/// Such a call would wait for a request within the call that is about to wait for one.
#[test]
fn handle_request_within_handle_request_throws() {
    const SCRIPT: &str = "<?php
        $nested = function () { try { frankenphp_handle_request(function () { echo 'nested'; }); }
            catch (RuntimeException $e) { error_log('at ' . $GLOBALS['where'] . ': ' . $e->getMessage()); } return ''; };
        class Cycle { public $self, $call; function __destruct() { ($this->call)(); } }
        $cycle = new Cycle; $cycle->self = $cycle; $cycle->call = $nested; unset($cycle);
        $where = 'the boot';
        ob_start(fn () => $nested());
        while (frankenphp_handle_request(function () { echo getmypid(); })) {
            $where = 'the end of a request';
            ob_start(fn () => $nested());
            echo 'x';
        }";
    let weir = site(ONE, SCRIPT).start();
    let pid = text(&weir, "/");
    for _ in 0..5 {
        assert_eq!(text(&weir, "/"), pid, "{}", weir.stderr());
    }
    weir.wait_for_error(&["at the boot: frankenphp_handle_request() was called"]);
    weir.wait_for_error(&["at the end of a request: frankenphp_handle_request() was called"]);
}

/// PHP's list of open files moves in memory when it grows.
#[test]
fn a_filter_on_the_kept_input_may_open_files_when_it_is_closed() {
    const BOOT: &str = "class Opens extends php_user_filter {
            function onClose(): void { for ($n = 0; $n < 3000; $n++) { $GLOBALS['kept'][] = fopen('php://memory', 'r'); } }
        }
        stream_filter_register('opens', 'Opens');";
    const CODE: &str = "'keep' => function () {
            for ($n = 0; $n < 5; $n++) { $input = fopen('php://input', 'r'); stream_filter_append($input, 'opens'); $GLOBALS['inputs'][] = $input; }
            echo 'kept';
        },
        'look' => function () { echo count(array_filter($GLOBALS['inputs'], 'is_resource')), ' ', count($GLOBALS['kept']); unset($GLOBALS['kept'], $GLOBALS['inputs']); },";
    let weir = booted(ONE, BOOT, CODE).start();
    let pid = text(&weir, "/pid");
    for _ in 0..5 {
        assert_eq!(text(&weir, "/keep"), "kept");
        assert_eq!(text(&weir, "/look"), "0 15000", "{}", weir.stderr());
    }
    assert_eq!(text(&weir, "/pid"), pid, "{}", weir.stderr());
}

/// OPcache looks at a file again after `opcache.revalidate_freq`. A process that boots keeps what it has got.
#[test]
fn a_reload_soon_after_the_boot_boots_the_new_code() {
    let setup = site(
        "max_children = 1\nphp_admin_value = { \"opcache.revalidate_freq\" = \"60\", \"opcache.file_update_protection\" = \"0\" }\n",
        "<?php require __DIR__ . '/version.php'; while (frankenphp_handle_request(function () { echo VERSION; })) {}",
    );
    let weir = setup
        .file("version.php", "<?php const VERSION = 'one';")
        .start();
    assert_eq!(text(&weir, "/"), "one");
    let file = weir.root().join("version.php");
    let later = SystemTime::now() + Duration::from_secs(5);
    weir_test::weir::write(&file, b"<?php const VERSION = 'two';");
    fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(later)
        .unwrap();
    weir.signal(Signal::HUP);
    weir.log_line("reloaded: the new configuration serves");
    weir.get_until("/", |answer| answer.text() == "two");
}
