//! The life of a process: boot, requests, end.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use weir_test::{Setup, goes_on_as_root, wait_until};

use super::{booted, pool, post, site, text};

const ONE: &str = "max_children = 1\n";

#[test]
fn the_boot_knows_the_variables_of_drivers_and_nothing_of_a_client() {
    const BOOT: &str = "$server = $_SERVER; $first = [$_GET, $_POST, $_COOKIE, $_FILES, getenv('FRANKENPHP_WORKER')];";
    const CODE: &str = "'boot' => function () use ($server, $first) { echo json_encode([$server, $first]); },
        'now' => function () { echo json_encode($_SERVER); },
        'functions' => function () {
            $names = ['handle_request', 'finish_request', 'request_headers', 'response_headers', 'log'];
            foreach ($names as $name) { if (!function_exists(\"frankenphp_$name\") || !function_exists(\"weir_$name\")) { echo $name; } }
            echo json_encode([PHP_SAPI, function_exists('headers_send'), function_exists('apache_response_headers'),
                FRANKENPHP_LOG_LEVEL_WARN]);
        },";
    let lines = format!("{ONE}worker_requests = 77\nenv = {{ LARAVEL_OCTANE = \"2\" }}\n");
    let setup = booted(&lines, BOOT, CODE);
    let root = setup.root();
    let weir = setup.start();
    let json = |path: &str| -> serde_json::Value {
        serde_json::from_str(&text(&weir, path)).expect("JSON")
    };
    let boot = json("/boot");
    let server = &boot[0];
    assert_eq!(boot[1], serde_json::json!([[], [], [], [], "1"]));
    assert_eq!(server["FRANKENPHP_WORKER"], "1");
    assert_eq!(server["QUERY_STRING"], "");
    assert_eq!(server["REQUEST_METHOD"], "GET");
    assert_eq!(server["APP_PUBLIC_PATH"], root.display().to_string());
    let base = root.parent().unwrap().display().to_string();
    assert_eq!(server["APP_BASE_PATH"], base);
    assert_eq!(server["LARAVEL_OCTANE"], "2");
    assert_eq!(server["MAX_REQUESTS"], "77");
    assert_eq!(server["FRANKENPHP_LOOP_MAX"], "77");
    for key in [
        "HTTPS",
        "PATH_INFO",
        "PHP_AUTH_USER",
        "HTTP_AUTHORIZATION",
        "REMOTE_ADDR",
        "HTTP_HOST",
    ] {
        assert!(server[key].is_null(), "{key}");
    }
    // Drivers of frameworks add the variables of the boot to each request. So the boot must have only variables that
    // each request has; one is an exception.
    let now = json("/now");
    for key in server.as_object().unwrap().keys() {
        assert_eq!(now[key].is_null(), key == "FRANKENPHP_WORKER", "{key}");
    }
    assert_eq!(text(&weir, "/functions"), "[\"fpm-fcgi\",true,true,4]");
}

/// Symfony's dump() in development: a collector keeps what was dumped, and shows it in its destructor if nobody has fetched it.
#[test]
fn what_objects_say_after_exit_without_an_answer_is_the_answer() {
    let boot = "class Collector {
            public $kept = [];
            function __destruct() { echo implode(' ', $this->kept); }
        }
        $collector = new Collector;
        ob_start();";
    let code = "'dump' => function () use ($collector) { $collector->kept[] = 'dumped'; exit; },
        'dd' => function () use ($collector) { header('HTTP/1.1 500 Internal Server Error'); $collector->kept[] = 'dumped'; exit(1); },
        'nested' => function () use ($collector) { ob_start(); ob_start(); $collector->kept[] = 'dumped'; exit(1); },
        'printed' => function () { header('HTTP/1.1 500 Internal Server Error'); ob_start(); echo 'printed'; exit(1); },
        'shutdown' => function () { register_shutdown_function(function () { echo 'at the end'; }); exit; },
        'redirect' => function () { header('Location: /x'); exit; },
        'none' => function () { http_response_code(204); exit; },
        'said' => function () use ($collector) { echo 'said'; exit; },";
    let weir = booted(ONE, boot, code).start();
    for (path, status, answer, stays) in [
        ("/dump", 200, "dumped", false),
        ("/dd", 500, "dumped", false),
        ("/nested", 200, "dumped", false),
        ("/printed", 500, "printed", true),
        ("/shutdown", 200, "at the end", true),
        ("/redirect", 302, "", true),
        ("/none", 204, "", true),
        ("/said", 200, "said", true),
    ] {
        for _ in 0..6 {
            let pid = text(&weir, "/pid");
            assert_eq!(weir.get(path).expect(status).text(), answer, "{path}");
            assert_eq!(text(&weir, "/pid") == pid, stays, "{path}");
        }
    }
}

/// As in FrankenPHP.
#[test]
fn what_drivers_expect_of_a_worker_is_there() {
    let boot = "$input = fopen('php://input', 'r');";
    let code = "'input' => function () use ($input) { echo var_export(stream_is_local($input), true), file_get_contents('php://input'); },
        'server' => function () { echo json_encode([$_SERVER['PATH_INFO'], $_SERVER['AUTH_TYPE'], $_SERVER['REMOTE_IDENT'], $_SERVER['REMOTE_USER'] ?? null,
            $_SERVER['REMOTE_HOST']]); },";
    let weir = booted(ONE, boot, code).start();
    for _ in 0..3 {
        let answer = post(&weir, "/input", "text/plain", b" body").expect(200);
        assert_eq!(answer.text(), "true body");
        // REMOTE_USER is not set from credentials that nobody has checked.
        let asked = [("Authorization", "Basic a2V2aW46cGFzc3dvcmQ=")];
        let answer = weir.request("GET", "/server", &asked, b"").expect(200);
        assert_eq!(answer.text(), r#"["","","",null,"127.0.0.1"]"#);
    }
}

#[test]
fn what_needs_a_request_fails_at_the_boot_and_does_not_wait() {
    let boot =
        "$finished = [frankenphp_finish_request(), fastcgi_finish_request(), fpm_get_status()];";
    let code = "'finished' => function () use ($finished) { echo json_encode($finished); },";
    let weir = booted(ONE, boot, code).start();
    assert_eq!(text(&weir, "/finished"), "[false,false,false]");
}

/// So that scripts that were written for FrankenPHP without a worker run unchanged.
#[test]
fn without_worker_scripts_have_the_functions_and_handle_no_requests() {
    let weir = weir_test::Setup::new()
        .file(
            "a.php",
            "<?php
            header('Link: </style.css>; rel=preload; as=style');
            echo headers_send(103);
            header_remove('Link');
            weir_log('a line', FRANKENPHP_LOG_LEVEL_WARN, ['key' => 'value']);
            echo json_encode([isset($_SERVER['FRANKENPHP_WORKER']), frankenphp_request_headers() === getallheaders(),
                array_keys(frankenphp_response_headers()) === array_keys(apache_response_headers()), frankenphp_request_parse_errors()]);
            try { frankenphp_handle_request(fn () => 1); } catch (RuntimeException $e) { echo $e->getMessage(); }
            echo json_encode(frankenphp_finish_request());",
        )
        .pool(&weir_test::php::own(1, ""))
        .start();
    let answer = weir.get("/a.php").expect(200);
    assert_eq!(answer.interim[0].status, 103);
    assert_eq!(answer.header("link"), None);
    assert_eq!(
        answer.text(),
        "1[false,true,true,[]]frankenphp_handle_request() called while not in worker mode: write this script as `worker` of [pool.app]"
    );
    weir.wait_for_error(&["a line", "key", "value"]);
}

#[test]
fn only_scripts_of_the_application_are_for_it() {
    let lines = format!("{ONE}limit_extensions = [\".php\"]\n");
    let weir = booted(&lines, "", "'index.php' => function () { echo 'index'; }, 'app.php/more' => function () { echo $_SERVER['PATH_INFO']; },")
        .file("index.php", "<?php echo 'not this';")
        .file("other.php", "<?php echo 'nor this';")
        .start();
    assert_eq!(text(&weir, "/index.php"), "index");
    assert_eq!(text(&weir, "/app.php/more"), "/more");
    assert_eq!(text(&weir, "/nothing.php"), "nothing named nothing.php");
    let answer = weir.get("/other.php").expect(404).text();
    assert_eq!(answer, "File not found.\n");
    weir.wait_for_error(&["/other.php is not run", "/app.php", "which stays booted"]);
    assert_eq!(text(&weir, "/count"), "4");
}

#[test]
fn settings_for_one_request_are_refused() {
    let setup = booted(ONE, "", "");
    let weir = setup
        .site("fallback = \"/app.php\"\nparams = { PHP_ADMIN_VALUE = \"memory_limit=1M\" }\n")
        .start();
    weir.get("/pid").expect(500);
    weir.wait_for_error(&[
        "PHP_ADMIN_VALUE cannot change",
        "php_admin_value of [pool.app]",
    ]);
}

#[test]
fn a_process_is_replaced_after_worker_requests() {
    let weir = booted(&format!("{ONE}worker_requests = 3\n"), "", "").start();
    let pids: Vec<String> = (0..12).map(|_| text(&weir, "/pid")).collect();
    for (index, pid) in pids.iter().enumerate() {
        assert_eq!(pid, &pids[index / 3 * 3], "{pids:?}");
    }
    assert_eq!(
        pids.iter().collect::<std::collections::BTreeSet<_>>().len(),
        4
    );
}

/// As the drivers of frameworks do it.
#[test]
fn a_script_that_ends_its_loop_by_itself_is_no_failure() {
    const SCRIPT: &str = "<?php $most = 3;
        while ($most-- && frankenphp_handle_request(function () { echo getmypid(); })) { }
        usleep(20000);";
    let weir = site(ONE, SCRIPT).admin().start();
    for _ in 0..10 {
        text(&weir, "/");
    }
    let pool = pool(&weir);
    assert_eq!(pool["workers"]["crashed"], 0, "{pool}");
    assert_eq!(pool["workers"]["could_not_start"], 0, "{pool}");
    assert_eq!(pool["requests"]["lost"], 0, "{pool}");
}

#[test]
fn a_script_without_a_loop_is_told_once() {
    const SCRIPT: &str = "<?php frankenphp_handle_request(function () { echo getmypid(); });";
    let weir = site(ONE, SCRIPT).start();
    for _ in 0..8 {
        text(&weir, "/");
    }
    let words = "processes have ended by themselves after their first request";
    weir.wait_for_error(&["warning", words, "app.php", "write a loop", "pool=app"]);
    for _ in 0..8 {
        text(&weir, "/");
    }
    assert_eq!(weir.stderr().matches(words).count(), 1, "{}", weir.stderr());
}

#[test]
fn the_client_has_its_answer_before_the_script_goes_on_and_the_process_is_not_free_before() {
    const SCRIPT: &str = "<?php $spool = dirname(__DIR__) . '/spool';
        while (frankenphp_handle_request(function () { echo getmypid(); })) {
            touch(\"$spool/after\");
            while (!file_exists(\"$spool/gate\")) { usleep(5000); clearstatcache(); }
        }";
    let weir = site("max_children = 2\n", SCRIPT).start();
    let first = text(&weir, "/");
    wait_until("the script goes on", || weir.scratch("after").exists());
    // The other process answers, and then none is free.
    assert_ne!(text(&weir, "/"), first);
    let mut third = weir.client();
    third.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        third.quiet_for(Duration::from_millis(300)),
        "the gap is waited for"
    );
    fs::write(weir.scratch("gate"), "").unwrap();
    third.response().expect(200);
}

#[test]
fn a_script_that_never_reaches_the_loop_is_said_and_tried_less_and_less_often() {
    const BAD: &str = "<?php file_put_contents(__DIR__ . '/../spool/starts', '.', FILE_APPEND); throw new Exception('no database');";
    let setup = site(ONE, BAD).admin();
    let weir = setup.clone().start();
    weir.wait_for_error(&["app.php ended without a call of frankenphp_handle_request()"]);
    weir.wait_for_error(&["no database"]);
    weir.wait_for_error(&[
        "the pool has no worker",
        "frankenphp_handle_request",
        "exit code",
    ]);
    let begun = Instant::now();
    weir.get("/").expect(503).expect_reason("no_worker");
    assert!(begun.elapsed() < Duration::from_secs(5));
    wait_until("it is tried again", || weir.written("starts").len() >= 3);
    let starts = weir.written("starts").len();
    assert!(starts < 20, "{starts} starts");
    weir_test::weir::write(
        &weir.root().join("app.php"),
        b"<?php while (frankenphp_handle_request(function () { echo 'mended'; })) {}",
    );
    assert_eq!(
        weir.get_until("/", |answer| answer.status == 200).text(),
        "mended"
    );
}

/// The line with the error is not among the last ones, because PHP writes a stack trace behind it.
#[test]
fn why_the_application_does_not_boot_is_in_the_log_and_in_weir_status() {
    let cases = [
        (
            "<?php function a($n) { $n ? a($n - 1) : throw new Exception('no database'); } a(9);",
            "): PHP Fatal error:  Uncaught Exception: no database in ",
        ),
        ("<?php $a = ;", "): PHP Parse error:  syntax error, "),
        (
            "<?php echo \"Hello\\n\";",
            ") and wrote: Hello; PHP has reported no error, so the loop is missing: while (frankenphp_handle_request($handler)) {}",
        ),
        (
            "<?php exit(1);",
            "; PHP has reported no error, so the loop is missing",
        ),
    ];
    for (script, why) in cases {
        // The second line in the log is the zygote's.
        let lines = format!("{ONE}worker_zygote = true\n");
        let setup = site(&lines, script).admin();
        let file = setup.write_toml().display().to_string();
        let weir = setup.start();
        let app = weir.root().join("app.php").display().to_string();
        weir.wait_for_error(&["the pool has no worker", &app, why]);
        weir.wait_for_error(&["it is tried again in", &app, why]);
        let down = pool(&weir)["down_because"].as_str().unwrap().to_owned();
        assert!(down.contains(&app) && down.contains(why), "{down}");
        let shown = weir.command(&["doctor", "-c", &file]).output().unwrap();
        assert_eq!(shown.status.code(), Some(1));
        let shown = String::from_utf8_lossy(&shown.stdout).replace("\n         ", " ");
        assert!(
            shown.contains("break  [pool.app] no worker can be started: the script"),
            "{shown}"
        );
    }
}

#[test]
fn a_script_that_its_user_cannot_read_is_told_by_weir_check_and_weir_doctor() {
    if !goes_on_as_root() {
        return;
    }
    let setup = site(ONE, "<?php");
    let file = setup.write_toml().display().to_string();
    let app = setup.root().join("app.php");
    fs::set_permissions(&app, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&app, Some(0), Some(0)).unwrap();
    let said = |command: &str| {
        let command = [command, "-c", &file];
        let output = Command::new(weir_test::weir::program())
            .args(command)
            .output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).replace("\n         ", " ");
        (output.status.code(), text)
    };
    let (code, text) = said("check");
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains(", cannot read ") && text.contains("hint: chmod o+rX "),
        "{text}"
    );
    let (code, text) = said("doctor");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("  break  [pool.app] worker = "), "{text}");
    assert!(text.contains("the application does not boot"), "{text}");
}

#[test]
fn a_boot_that_takes_too_long_is_ended() {
    const SLOW: &str = "<?php if (!file_exists(__DIR__ . '/../spool/quick')) { sleep(600); }
        while (frankenphp_handle_request(function () { echo 'there'; })) {}";
    let weir = site(&format!("{ONE}worker_boot_timeout = \"300ms\"\n"), SLOW).start();
    weir.wait_for_error(&[
        "has not called frankenphp_handle_request() within 0.3 s",
        "worker_boot_timeout",
    ]);
    fs::write(weir.scratch("quick"), "").unwrap();
    assert_eq!(
        weir.get_until("/", |answer| answer.status == 200).text(),
        "there"
    );
}

#[test]
fn a_reload_boots_the_application_anew_and_lets_the_old_one_finish() {
    let code =
        "'wait' => function () { $spool = dirname(__DIR__) . '/spool'; touch(\"$spool/came\");
        while (!file_exists(\"$spool/gate\")) { usleep(5000); clearstatcache(); } echo VERSION; },
        'version' => function () { echo VERSION; },";
    let setup = booted("max_children = 2\n", "define('VERSION', 'one');", code);
    let weir = setup.clone().start();
    let mut waiting = weir.client();
    waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it runs", || weir.scratch("came").exists());
    let script = weir.root().join("app.php");
    let text_of = fs::read_to_string(&script).unwrap();
    weir_test::weir::write(
        &script,
        format!(
            "{} error_log('cleaned up');",
            text_of.replace("'one'", "'two'")
        )
        .as_bytes(),
    );
    weir.signal(Signal::HUP);
    weir.log_line("reloaded: the new configuration serves");
    weir.get_until("/version", |answer| answer.text() == "two");
    fs::write(weir.scratch("gate"), "").unwrap();
    assert_eq!(waiting.response().expect(200).text(), "one");
}

#[test]
fn a_root_that_leads_elsewhere_boots_the_new_release() {
    let setup = booted("", "", "");
    let root = setup.path("current");
    boots_the_new_release(setup, &root);
}

/// The application beside the files that everybody may fetch.
#[test]
fn a_folder_of_the_application_that_leads_elsewhere_boots_the_new_release() {
    let setup = booted("", "", "");
    let root = setup.root();
    boots_the_new_release(setup, &root);
}

fn boots_the_new_release(setup: Setup, root: &Path) {
    let script = fs::read_to_string(setup.root().join("app.php")).unwrap();
    for release in ["one", "two"] {
        let code = script
            .replace("$count = 0;", &format!("$count = '{release}';"))
            .replace("$count++;", "");
        let file = setup.path(&format!("releases/{release}/app.php"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, code).unwrap();
    }
    let (current, next) = (setup.path("current"), setup.path("next"));
    symlink(setup.path("releases/one"), &current).unwrap();
    let weir = setup
        .site(&format!("root = \"{}\"\nfallback = \"/app.php\"", root.display()))
        .pool(&format!(
            "runtime = \"php\"\npm = \"static\"\nmax_children = 2\n{}worker = \"{}/app.php\"\nwatch_root = true\n",
            weir_test::php::identity(),
            current.display()
        ))
        .start();
    assert_eq!(text(&weir, "/count"), "one");
    symlink(weir.path("releases/two"), &next).unwrap();
    fs::rename(&next, &current).unwrap();
    weir.log_line("now leads to another folder");
    // No request is lost meanwhile.
    weir.get_until("/count", |answer| {
        assert_eq!(answer.status, 200);
        answer.text() == "two"
    });
}

#[test]
fn limits_of_requests_and_processes_hold() {
    let lines = format!(
        "{ONE}max_memory = \"150M\"\nrequest_terminate_timeout = \"4s\"\nrequest_slowlog_timeout = \"300ms\"\nphp_value = {{ memory_limit = \"1G\" }}\n"
    );
    let code = "'large' => function () { $x = str_repeat('x', 200 << 20); echo getmypid(); },
        'slow' => function () { slow_function(); },";
    let boot = "function slow_function() { sleep(60); }";
    let weir = booted(&lines, boot, code).start();
    let pid = text(&weir, "/pid");
    // This comes first: on a busy machine the other request may be slow, too, and then the log leaves out the second
    // stack.
    weir.get("/slow").expect(504);
    weir.wait_for_error(&["slow_function()", "app.php"]);
    let second = text(&weir, "/pid");
    assert_ne!(second, pid);
    assert_eq!(text(&weir, "/large"), second);
    assert_ne!(text(&weir, "/pid"), second);
}

/// As in FrankenPHP: other clients need the process.
#[test]
fn a_client_that_leaves_ends_the_process_only_if_the_pool_says_so() {
    let code = "'stream' => function () { touch(dirname(__DIR__) . '/spool/came');
        for ($n = 0; $n < 200 && !connection_aborted(); $n++) { echo str_repeat('x', 1000); flush(); usleep(5000); } },";
    for (lines, stays) in [
        ("", true),
        ("php_value = { ignore_user_abort = \"0\" }\n", false),
    ] {
        let weir = booted(&format!("{ONE}{lines}"), "", code)
            .site("fallback = \"/app.php\"\nbuffering = false")
            .start();
        let pid = text(&weir, "/pid");
        let mut client = weir.client();
        client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("it runs", || weir.scratch("came").exists());
        drop(client);
        assert_eq!(text(&weir, "/pid") == pid, stays, "{lines}");
    }
}

#[test]
fn a_process_that_is_killed_is_replaced() {
    let weir = booted(ONE, "", "").start();
    let weir_pid = text(&weir, "/pid");
    weir_test::process::signal(weir_pid.parse().unwrap(), Signal::KILL);
    let next = weir.get_until("/pid", |answer| answer.status == 200).text();
    assert_ne!(next, weir_pid);
}

#[test]
fn files_that_are_made_while_a_process_lives_are_kept_by_opcache() {
    let code = "'make' => function () {
            $file = dirname(__DIR__) . '/spool/made.php';
            file_put_contents($file, '<?php return ' . $_GET['n'] . ';');
            touch($file, time() - 1000 * (10 - $_GET['n']));
        },
        'use' => function () {
            $file = dirname(__DIR__) . '/spool/made.php';
            echo include $file, ' ', json_encode(opcache_is_script_cached(realpath($file)));
        },
        'new' => function () { touch(dirname(__DIR__) . '/spool/made.php'); },";
    let weir = booted(ONE, "", code).start();
    for n in 1..4 {
        text(&weir, &format!("/make?n={n}"));
        assert_eq!(text(&weir, "/use"), format!("{n} true"));
    }
    // A file that has just changed is protected, as in any process, but only for a while.
    text(&weir, "/new");
    assert_eq!(text(&weir, "/use"), "3 false");
    weir.get_until("/use", |answer| answer.text() == "3 true");
}

#[test]
fn opcache_that_must_clear_its_memory_restarts_the_pool_once_and_kills_nobody() {
    let code = "'reset' => function () { echo json_encode(opcache_reset()); },";
    let weir = booted("max_children = 3\n", "", code).admin().start();
    weir.log_line("PHP");
    let generation = pool(&weir)["generation"].as_u64().unwrap();
    // A pool that was restarted a moment ago is not restarted again.
    wait_until("the pool is restarted", || {
        weir.get("/reset").expect(200);
        pool(&weir)["generation"].as_u64().unwrap() > generation
    });
    weir.wait_for_error(&["OPcache must clear its memory", "opcache_memory"]);
    for _ in 0..30 {
        weir.get("/count").expect(200);
    }
    assert!(!weir.stderr().contains("signal 9"), "{}", weir.stderr());
    assert_eq!(pool(&weir)["workers"]["crashed"], 0);
}

#[test]
fn weir_status_shows_what_a_process_keeps_from_request_to_request() {
    let code = "'keep' => function () { static $kept = []; $kept[] = str_repeat('x', 1 << 20); },";
    let weir = booted(ONE, "", code).admin().start();
    for _ in 0..30 {
        text(&weir, "/keep");
    }
    // The figures of the last request arrive when the process is free again.
    let mut process = serde_json::Value::Null;
    wait_until("the last request has ended", || {
        process = pool(&weir)["processes"][0].clone();
        process["state"] == "Idle" && process["requests"] == 30
    });
    let (memory, early) = (process["memory"].as_u64(), process["early_memory"].as_u64());
    let grown = memory.unwrap() - early.unwrap();
    assert!((19 << 20..22 << 20).contains(&grown), "{process}");
    let shown = weir.command(&["status"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("at first"), "{shown}");
}
