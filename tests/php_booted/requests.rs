//! Requests one after another in one process.

use super::{booted, post, text};

const ONE: &str = "max_children = 1\n";

#[test]
fn the_application_boots_once_and_answers_many_requests() {
    let weir = booted(ONE, "", "").start();
    let pid = text(&weir, "/pid");
    for _ in 0..5 {
        assert_eq!(text(&weir, "/pid"), pid);
    }
    assert_eq!(text(&weir, "/count"), "7");
}

#[test]
fn superglobals_and_the_body_are_those_of_the_request() {
    const CODE: &str = "'all' => function () {
        echo json_encode([$_GET, $_POST, $_COOKIE, array_keys($_FILES), $_REQUEST, file_get_contents('php://input')]); },";
    let weir = booted(ONE, "", CODE).start();
    let all = |query: &str| text(&weir, &format!("/all{query}"));
    assert_eq!(all("?a=1"), r#"[{"a":"1"},[],[],[],{"a":"1"},""]"#);
    let form = "application/x-www-form-urlencoded";
    assert_eq!(
        post(&weir, "/all?a=1", form, b"b=2").expect(200).text(),
        r#"[{"a":"1"},{"b":"2"},[],[],{"a":"1","b":"2"},"b=2"]"#
    );
    assert_eq!(
        post(&weir, "/all", "text/plain", b"text")
            .expect(200)
            .text(),
        r#"[[],[],[],[],[],"text"]"#
    );
    let cookie = weir.request("GET", "/all", &[("Cookie", "c=3")], b"");
    assert_eq!(cookie.expect(200).text(), r#"[[],[],{"c":"3"},[],[],""]"#);
    assert_eq!(all(""), "[[],[],[],[],[],\"\"]");
}

/// What a request of one client leaves, and what the next one of another client finds.
#[test]
fn a_request_finds_nothing_of_the_request_before() {
    const CODE: &str = "'leave' => function () {
            static $kept;
            session_save_path(__DIR__ . '/../spool');
            session_start();
            $_SESSION['secret'] = 1;
            header('X-Secret: 1');
            http_response_code(418);
            setcookie('secret', '1');
            ini_set('memory_limit', '77M');
            set_time_limit(7);
            ignore_user_abort(false);
            chdir('/');
            output_add_rewrite_var('secret', '1');
            @trigger_error('secret');
            $_GET['secret'] = $_SERVER['SECRET'] = $_REQUEST['secret'] = $_FILES['secret'] = 1;
            strtok('secret secret', ' ');
            $kept = fopen('php://input', 'r');
            ob_start(); ob_start();
            echo 'left';
        },
        'find' => function () {
            echo json_encode([
                // This comes first, because SID is deprecated since PHP 8.4.
                error_get_last(), isset($_SESSION), session_id(), defined('SID') ? SID : '', session_status(),
                headers_list(), http_response_code(), ini_get('memory_limit'), ini_get('max_execution_time'),
                ignore_user_abort(), getcwd() === __DIR__, ob_get_level(),
                array_filter(array_keys($_GET + $_SERVER + $_REQUEST + $_FILES + $_COOKIE), fn ($key) => stripos($key, 'secret') !== false),
                strtok(' '), file_get_contents('php://input'), $_SERVER['PHP_AUTH_USER'] ?? null,
                filter_input(INPUT_GET, 'a'),
            ]);
            echo '<a href=\"/x\">';
        },";
    let lines = "php_admin_value = { expose_php = \"0\", \"session.use_strict_mode\" = \"0\" }\n";
    let weir = booted(&format!("{ONE}{lines}"), "", CODE).start();
    let before = text(&weir, "/find");
    let headers = [
        ("Cookie", "PHPSESSID=secretsecretsecretsecret"),
        ("Authorization", "Basic c2VjcmV0OnNlY3JldA=="),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    for _ in 0..3 {
        let left = weir.request("POST", "/leave?a=secret", &headers, b"secret=1");
        assert_eq!(left.header("x-secret"), Some("1"));
        assert_eq!(left.expect(418).text(), "left");
        let found = weir.get("/find").expect(200);
        assert_eq!(found.header("set-cookie"), None);
        assert_eq!(found.text(), before);
    }
    assert!(before.ends_with("<a href=\"/x\">"), "{before}");
    assert!(!before.contains("secret"), "{before}");
}

#[test]
fn two_clients_that_take_turns_see_no_value_of_each_other() {
    const CODE: &str = "'who' => function () {
            session_save_path(__DIR__ . '/../spool');
            session_start();
            $_SESSION['who'] ??= $_GET['who'];
            header('X-Who: ' . $_GET['who']);
            echo implode(' ', [$_GET['who'], $_POST['who'], $_COOKIE['who'], $_REQUEST['who'], $_SESSION['who'],
                $_SERVER['HTTP_X_WHO'], $_SERVER['PHP_AUTH_USER'], getenv('HTTP_X_WHO'), getallheaders()['X-Who'],
                file_get_contents('php://input')]);
        },";
    let weir = booted(&format!("{ONE}worker_requests = 0\n"), "", CODE).start();
    let names = [("one", "b25lOng="), ("two", "dHdvOng=")];
    let mut clients = names.map(|(name, password)| {
        let headers = format!(
            "Host: a\r\nX-Who: {name}\r\nAuthorization: Basic {password}\r\nCookie: who={name}; PHPSESSID=session-of-{name}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 7"
        );
        let request = format!("POST /who?who={name} HTTP/1.1\r\n{headers}\r\n\r\nwho={name}");
        let answer = format!("{} who={name}", [name; 9].join(" "));
        (weir.client(), name, request, answer)
    });
    for turn in 0..10_000 {
        let (client, name, request, answer) = &mut clients[turn % 2];
        let found = client.send(request).response().expect(200);
        assert_eq!(found.header("x-who"), Some(*name), "turn {turn}");
        assert_eq!(found.text(), *answer, "turn {turn}");
    }
    assert_eq!(text(&weir, "/count"), "10001");
}

/// Such a handler turns each warning into an exception. While PHP reads the input, nothing could catch it.
#[test]
fn a_throwing_error_handler_does_not_meet_errors_of_the_input() {
    const BOOT: &str =
        "set_error_handler(function ($level, $text) { throw new ErrorException($text); });";
    const CODE: &str =
        "'post' => function () { echo count($_POST), ' ', getmypid(); },
         'warn' => function () { try { echo $nothing; } catch (ErrorException $e) { echo 'caught'; } },";
    let lines =
        format!("{ONE}php_admin_value = {{ post_max_size = \"10K\", display_errors = \"0\" }}\n");
    let weir = booted(&lines, BOOT, CODE).start();
    let pid = text(&weir, "/pid");
    let form = "application/x-www-form-urlencoded";
    let many: Vec<String> = (0..1100).map(|number| format!("a{number}=1")).collect();
    let answer = post(&weir, "/post", form, many.join("&").as_bytes()).expect(200);
    assert_eq!(answer.text(), format!("1001 {pid}"));
    weir.wait_for_error(&["Input variables exceeded 1000"]);
    let answer = post(&weir, "/post", form, &[b'a'; 20_000]).expect(200);
    assert_eq!(answer.text(), format!("0 {pid}"));
    weir.wait_for_error(&["exceeds the limit of 10240 bytes"]);
    let broken = b"--x\r\nContent-Disposition: form-data; name=\"a\"; filename=\"b\"\r\n\r\ncut";
    let answer = post(&weir, "/post", "multipart/form-data; boundary=x", broken).expect(200);
    assert_eq!(answer.text(), format!("0 {pid}"));
    let answer = post(&weir, "/post", "multipart/form-data", broken).expect(200);
    assert_eq!(answer.text(), format!("0 {pid}"));
    assert_eq!(text(&weir, "/warn"), "caught");
}

/// The application has them, too, so that it can refuse the request.
#[test]
fn the_application_gets_the_errors_of_the_input_of_this_request() {
    const ERRORS: &str = "foreach (frankenphp_request_parse_errors() as $error) {
        echo $error['type'], ' ', json_encode(array_keys($error)), ' ', $error['message'], '; '; }
        echo weir_request_parse_errors() === frankenphp_request_parse_errors() ? 'same' : 'other';";
    const SETTINGS: &str = "php_admin_value = { post_max_size = \"10K\", display_errors = \"0\", max_input_vars = \"3\" }\n";
    let code = format!(
        "'errors' => function () {{ trigger_error('of the application', E_USER_NOTICE); {ERRORS} }},"
    );
    for (weir, path) in [
        (
            booted(&format!("{ONE}{SETTINGS}"), "", &code).start(),
            "/errors",
        ),
        (
            weir_test::Setup::new()
                .file("a.php", format!("<?php {ERRORS}"))
                .pool(&weir_test::php::own(1, SETTINGS))
                .start(),
            "/a.php",
        ),
    ] {
        let errors = |query: &str, body: &[u8]| {
            post(
                &weir,
                &format!("{path}?{query}"),
                "application/x-www-form-urlencoded",
                body,
            )
            .expect(200)
            .text()
        };
        let many = "a=1&b=2&c=3&d=4&e=5";
        // PHP writes before its message what it does: the call that waits, or the start of a request.
        let times = |said: &str, message: &str| said.matches(message).count();
        let warning = r#"2 ["type","message","file","line"]"#;
        for _ in 0..2 {
            assert_eq!(errors("", b"a=1"), "same");
            for (body, count) in [("a=1", 1), (many, 2)] {
                let said = errors(many, body.as_bytes());
                assert_eq!(times(&said, warning), count, "{said}");
                assert_eq!(times(&said, "Input variables exceeded 3."), count, "{said}");
            }
            let said = errors("", &[b'a'; 20_000]);
            assert_eq!(times(&said, warning), 1, "{said}");
            assert_eq!(
                times(&said, "exceeds the limit of 10240 bytes"),
                1,
                "{said}"
            );
        }
    }
}

#[test]
fn exit_and_uncaught_exceptions_end_the_request_and_not_the_process() {
    const CODE: &str = "'exit' => function () {
            register_shutdown_function(function () { echo ' and shut down'; });
            echo 'before';
            exit(' exit');
        },
        'die' => function () { ob_start(); echo 'before'; die(3); },
        'throw' => function () { throw new RuntimeException('thrown on purpose'); },
        'late' => function () { echo 'begun'; ob_flush(); flush(); throw new RuntimeException('thrown late'); },
        'shutdown' => function () {
            register_shutdown_function(function () { throw new RuntimeException('thrown at the end'); });
            echo 'fine';
        },
        'finally' => function () { try { throw new RuntimeException('x'); } finally { exit('finally'); } },";
    let weir = booted(
        &format!("{ONE}php_admin_value = {{ display_errors = \"0\" }}\n"),
        "",
        CODE,
    )
    .start();
    let pid = text(&weir, "/pid");
    for _ in 0..3 {
        assert_eq!(text(&weir, "/exit"), "before exit and shut down");
        assert_eq!(text(&weir, "/die"), "before");
        assert_eq!(weir.get("/throw").expect(500).text(), "");
        assert_eq!(text(&weir, "/late"), "begun");
        // Nothing had been sent yet, so PHP-FPM answers with this status, too.
        assert_eq!(weir.get("/shutdown").expect(500).text(), "fine");
        assert_eq!(text(&weir, "/finally"), "finally");
        assert_eq!(text(&weir, "/pid"), pid);
    }
    weir.wait_for_error(&["Uncaught RuntimeException: thrown on purpose"]);
    weir.wait_for_error(&["Uncaught RuntimeException: thrown late"]);
    weir.wait_for_error(&["Uncaught RuntimeException: thrown at the end"]);
}

#[test]
fn after_a_fatal_error_the_client_has_its_answer_and_another_process_goes_on() {
    const BOOT: &str = "register_shutdown_function(function () { error_log('the shutdown function of the boot'); });";
    const CODE: &str =
        "'memory' => function () { ini_set('memory_limit', '8M'); str_repeat('x', 100 << 20); },
        'time' => function () { set_time_limit(1); while (true); },
        'begun' => function () { echo 'begun'; ob_flush(); flush(); require '/nonexistent/file'; },
        'compile' => function () { eval('class A {} class A {}'); },";
    let weir = booted(
        &format!("{ONE}php_admin_value = {{ display_errors = \"0\" }}\n"),
        BOOT,
        CODE,
    )
    .start();
    for (path, reason) in [
        ("/memory", "Allowed memory size"),
        ("/time", "Maximum execution time"),
        ("/compile", "declare class A"),
    ] {
        let pid = text(&weir, "/pid");
        assert_eq!(weir.get(path).expect(500).text(), "");
        weir.wait_for_error(&[reason]);
        assert_ne!(text(&weir, "/pid"), pid, "{path}");
    }
    assert_eq!(text(&weir, "/begun"), "begun");
    weir.wait_for_error(&["the shutdown function of the boot"]);
}

#[test]
fn shutdown_functions_of_the_boot_run_at_the_end_of_the_process() {
    const BOOT: &str = "register_shutdown_function(function () use (&$count) { error_log(\"boot: $count requests\"); });";
    let weir = booted(&format!("{ONE}worker_requests = 3\n"), BOOT, "").start();
    for _ in 0..3 {
        text(&weir, "/pid");
    }
    weir.wait_for_error(&["boot: 3 requests"]);
    assert!(!weir.stderr().contains("boot: 1 requests"));
}

#[test]
fn generators_and_fibers_may_live_from_one_request_to_another() {
    const BOOT: &str =
        "$generator = (function () { for ($n = 1; ; $n++) { $got = yield $n; echo $got; } })();
        $generator->current();
        $fiber = new Fiber(function () { while (true) { echo 'fiber '; Fiber::suspend(); } });";
    const CODE: &str = "'step' => function () use ($generator, $fiber) {
            $generator->send('sent ');
            $fiber->isStarted() ? $fiber->resume() : $fiber->start();
            echo $generator->current();
        },
        'inside' => function () { $fiber = new Fiber(function () { echo 'in'; exit('out'); }); $fiber->start(); },";
    let weir = booted(ONE, BOOT, CODE).start();
    for number in 2..6 {
        assert_eq!(text(&weir, "/step"), format!("sent fiber {number}"));
        assert_eq!(text(&weir, "/inside"), "inout");
    }
}

#[test]
fn uploads_leave_no_file_no_descriptor_and_no_memory() {
    const CODE: &str = "'upload' => function () {
            if ($_FILES['f']['size'] !== 5000 || !is_uploaded_file($_FILES['f']['tmp_name'])) { http_response_code(500); }
            fread(fopen('php://input', 'r'), 1);
        },
        'body' => function () { $f = fopen('php://input', 'r'); echo strlen(stream_get_contents($f)); },
        'has' => function () {
            gc_collect_cycles();
            echo json_encode([count(scandir(ini_get('upload_tmp_dir'))), count(scandir('/proc/self/fd')),
                count(get_resources()), memory_get_usage()]);
        },";
    let uploads = weir_test::scaled(300, 100_000);
    let lines = "worker_requests = 0\nphp_admin_value = { upload_tmp_dir = \"SPOOL\" }\n";
    let weir = booted(&format!("{ONE}{lines}"), "", CODE).start();
    let mut body =
        b"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"b\"\r\n\r\n".to_vec();
    body.extend([b'a'; 5000]);
    body.extend(b"\r\n--x--\r\n");
    let mut client = weir.client();
    let kind = [
        ("Content-Type", "multipart/form-data; boundary=x"),
        ("Connection", "keep-alive"),
    ];
    let upload = weir_test::weir::request("POST", "/upload", &kind, &body);
    let mut upload_many = |count: usize| {
        for _ in 0..count {
            client.send(&upload).response().expect(200);
        }
    };
    upload_many(50);
    for _ in 0..5 {
        post(&weir, "/body", "text/plain", &[b'a'; 100_000]).expect(200);
    }
    let before = text(&weir, "/has");
    upload_many(uploads);
    for _ in 0..20 {
        let answer = post(&weir, "/body", "text/plain", &[b'a'; 100_000]).expect(200);
        assert_eq!(answer.text(), "100000");
    }
    assert_eq!(text(&weir, "/has"), before);
}
