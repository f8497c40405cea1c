//! Answers: headers, bodies, errors and ends of scripts, as PHP-FPM gives them.

use super::{fpm::Both, support::*};

#[test]
fn headers_and_status() {
    for settings in [
        &[][..],
        &["cgi.rfc2616_headers=1"],
        &["cgi.nph=1"],
        &["expose_php=0", "default_mimetype=", "default_charset="],
        &["fastcgi.error_header=HTTP/1.1 550 Broken"],
        &["output_buffering=4096", "zlib.output_compression=1"],
        &["implicit_flush=1"],
    ] {
        let mut both = Both::start(settings);
        for script in [
            "",
            "no PHP at all",
            "<?php header('X-A: b'); header('X-A: c', false); header('x-d:e'); echo 1;",
            "<?php http_response_code(404); echo 1;",
            "<?php http_response_code(299); echo http_response_code();",
            "<?php http_response_code(599); echo 1;",
            "<?php header('HTTP/1.1 404 Gone fishing'); echo 1;",
            "<?php header('HTTP/1.1 404 '. str_repeat('x', 3000)); echo 1;",
            "<?php header('HTTP/1.0 200 Fine'); echo 1;",
            "<?php header('HTTP/2 204'); ",
            "<?php header('Status: 418 Teapot'); echo 1;",
            "<?php header('Status: 201'); header('Status: 202 x'); echo http_response_code();",
            "<?php http_response_code(500); header('Status: 203 x'); echo 1;",
            "<?php header('Location: /there'); echo 1;",
            "<?php header('Location: /there', true, 301); echo 1;",
            "<?php http_response_code(201); header('Location: /there'); echo 1;",
            "<?php http_response_code(304); header('Content-Type: a/b');",
            "<?php header('HTTP/1.1 304 Not Modified'); header('Content-Type: a/b');",
            "<?php header('Content-Type: text/plain'); echo 1;",
            "<?php header('Content-Type: text/plain; charset=x'); header('Content-Length: 1'); echo 1;",
            "<?php header_remove('X-Powered-By'); header('A: b'); header_remove(); echo 1;",
            "<?php header('A'); header(' B: c'); header(''); header(\"C: d\\r\\nE: f\"); header('G:'); echo 1;",
            "<?php setcookie('a', 'b c', 1000000000, '/', 'x', true, true); setrawcookie('d', 'e'); echo 1;",
            "<?php echo 1; flush(); header('Late: yes'); var_export(headers_sent($f, $l)); echo basename($f), $l;",
            "<?php header_register_callback(function () { header('From: callback'); }); echo 1;",
            "<?php header('WWW-Authenticate: Basic'); echo 1;",
            "<?php header('A: b'); var_export(headers_list()); var_export(function_exists('apache_response_headers'));",
            "<?php header('HTTP/1.1 500 x'); exit(3);",
            "<?php exit(255);",
            "<?php echo 1; exit(255);",
        ] {
            both.same_script(script);
            let head = Request::get(&both.site, "/script.php").with("REQUEST_METHOD", "HEAD");
            both.same(&head);
        }
    }
}

#[test]
fn bodies_of_requests() {
    const TELL: &str = r#"<?php
        $first = isset($_GET['first']) ? file_get_contents('php://input', false, null, 0, 5) : null;
        $body = file_get_contents('php://input');
        echo strlen($body), md5($body), var_export($first, true);
        var_export($_POST);
        foreach ($_FILES as &$file) {
            foreach ((array) $file['tmp_name'] as $tmp) if ($tmp) echo md5_file($tmp), is_uploaded_file($tmp) ? 'uploaded' : 'not';
            unset($file['tmp_name']);
        }
        var_export($_FILES);
        echo strlen(file_get_contents('php://input'));
    "#;
    for settings in [
        &[
            "upload_max_filesize=4M",
            "post_max_size=16M",
            "max_input_vars=50",
        ][..],
        &["enable_post_data_reading=0"],
        &[
            "post_max_size=1000",
            "upload_max_filesize=100",
            "max_file_uploads=2",
        ],
        &[
            "file_uploads=0",
            "max_input_nesting_level=2",
            "max_multipart_body_parts=3",
        ],
    ] {
        let mut both = Both::start(settings);
        both.site.script("tell.php", TELL);
        both.site.script("deaf.php", "<?php echo 1;");
        let form = "application/x-www-form-urlencoded";
        let post = |kind: &str, body: &[u8]| Request::post(&both.site, "/tell.php", kind, body);
        let many: Vec<String> = (0..100).map(|at| format!("a{at}={at}")).collect();
        let multipart = multipart(&[
            ("field", None, b"value"),
            ("list[]", None, b"one"),
            ("list[]", None, b"two"),
            ("file", Some("a b.txt"), b"small"),
            ("files[]", Some("../x.bin"), &[7; 70_000]),
            ("files[]", Some("y.bin"), &[8; 200]),
            ("none", Some(""), b""),
        ]);
        let kind = "multipart/form-data; boundary=LIMIT";
        let large = vec![b'x'; 3_000_000];
        let mut requests = vec![
            post(form, b"a=b&c[]=d&c[]=e&f[g][h]=i"),
            post(form, b""),
            post(form, many.join("&").as_bytes()),
            post("application/json", b"{\"a\": 1}"),
            post("", b"abc"),
            post("text/plain", &large),
            post(form, &[b"a=", &large[..]].concat()),
            post(kind, &multipart),
            post(kind, &multipart[..multipart.len() - 20]),
            post("multipart/form-data", &multipart),
            post("multipart/form-data; boundary=", &multipart),
            post(kind, b"--LIMIT\r\nnothing"),
            // Wrong or missing lengths.
            post("text/plain", b"longer than said").with("CONTENT_LENGTH", "4"),
            post("text/plain", b"no length").without("CONTENT_LENGTH"),
            post("text/plain", b"no length").with("CONTENT_LENGTH", ""),
            post("text/plain", b"abc").with("CONTENT_LENGTH", "abc"),
            post(form, b"a=b").with("REQUEST_METHOD", "PUT"),
            post(form, b"a=b").with("REQUEST_METHOD", "GET"),
            post(form, b"a=b").with("REQUEST_METHOD", "BREW"),
            post(form, b"a=b").with("QUERY_STRING", "first=1"),
            // A script that does not read the body, and no script at all.
            Request::post(&both.site, "/deaf.php", "text/plain", large.clone()),
            Request::post(&both.site, "/none.php", "text/plain", large.clone()),
        ];
        let file = both.site.beside().join("body");
        std::fs::write(&file, "a=of the file").unwrap();
        let of_file = Request::post(&both.site, "/tell.php", form, "a=of+the+stream")
            .with("REQUEST_BODY_FILE", file.to_str().unwrap())
            .with("CONTENT_LENGTH", "13");
        requests.push(of_file.clone());
        requests.push(of_file.with("REQUEST_BODY_FILE", "/none"));
        // PHP-FPM waits for the rest without a timeout.
        let shorter = [
            post("text/plain", b"abc").with("CONTENT_LENGTH", "-1"),
            post("text/plain", b"shorter").with("CONTENT_LENGTH", "100"),
            post(form, b"a=b").with("CONTENT_LENGTH", "100"),
            post(kind, &multipart).with("CONTENT_LENGTH", "900000"),
        ];
        for request in &requests {
            both.same(request);
        }
        for request in &shorter {
            both.worker.ask(request);
        }
    }
}

fn multipart(parts: &[(&str, Option<&str>, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, content) in parts {
        let file =
            file.map(|file| format!("; filename=\"{file}\"\r\nContent-Type: application/x-test"));
        let head = format!(
            "--LIMIT\r\nContent-Disposition: form-data; name=\"{name}\"{}\r\n\r\n",
            file.unwrap_or_default()
        );
        body.extend(head.as_bytes());
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--LIMIT--\r\n");
    body
}

#[test]
fn errors_and_ends_of_scripts() {
    for settings in [
        &[][..],
        &["display_errors=1"],
        &["log_errors=0", "display_errors=stderr"],
        &["fastcgi.logging=0"],
        &[
            "html_errors=1",
            "display_errors=1",
            "error_prepend_string=<b>",
            "output_buffering=100",
        ],
        &["log_errors_max_len=30"],
    ] {
        let mut both = Both::start(settings);
        both.site.script("broken.php", "<?php if (");
        both.site.script(
            "throws.php",
            "<?php throw new Exception('from another file');",
        );
        for script in [
            "<?php echo 1 +;",
            "<?php nothing();",
            "<?php echo 'before'; nothing();",
            "<?php echo 'before'; flush(); nothing();",
            "<?php throw new Exception(\"two\\nlines\");",
            "<?php trigger_error('a notice'); trigger_error('a warning', E_USER_WARNING); echo 1;",
            "<?php trigger_error('an error', E_USER_ERROR); echo 1;",
            "<?php error_log('said'); error_log(str_repeat('long ', 180)); error_log(''); error_log(\"two\\nlines\\n\"); echo 1;",
            "<?php error_log('to the SAPI', 4); syslog(LOG_INFO, 'x'); echo 1;",
            "<?php echo $undefined; echo 1 / 0;",
            "<?php ini_set('memory_limit', '4M'); str_repeat('x', 10000000);",
            "<?php ini_set('memory_limit', '4M'); $a = []; while (true) $a[] = str_repeat('x', 10000);",
            // Since 8.5 such a message contains the stack, and PHP-FPM cuts it.
            "<?php function f() { f(); } ini_set('fatal_error_backtraces', 0); ini_set('memory_limit', '8M'); f();",
            "<?php require 'none.php';",
            "<?php include 'none.php'; echo 1;",
            "<?php require 'broken.php';",
            "<?php try { require 'broken.php'; } catch (ParseError $e) { echo get_class($e); }",
            "<?php require __DIR__ . '/throws.php';",
            "<?php set_error_handler(fn($n, $m) => print(\"handled $m\")); echo $x; trigger_error('y', E_USER_ERROR);",
            "<?php set_exception_handler(fn($e) => print('caught ' . $e->getMessage())); throw new Exception('z');",
            "<?php register_shutdown_function(function () { echo 'down'; var_export(error_get_last()['message'] ?? null); }); nothing();",
            "<?php register_shutdown_function(function () { http_response_code(502); echo 'down'; exit(1); }); exit('bye');",
            "<?php register_shutdown_function(function () { register_shutdown_function(function () { echo 'twice'; }); }); exit;",
            "<?php class C { function __destruct() { echo 'destroyed', getcwd(); } } $c = new C; exit;",
            "<?php class C { function __destruct() { throw new Exception('late'); } } $c = new C;",
            "<?php class C { function __destruct() { exit; } } $c = new C; echo 1;",
            "<?php exit; ?>",
            "<?php exit('text');",
            "<?php exit(7);",
            "<?php ob_start(fn($b) => strtoupper($b)); echo 'shout'; exit;",
            "<?php function g($b) { return $b . getcwd(); } ob_start('g'); echo 'in ';",
            "<?php function g($b) { return $b . getcwd(); } ob_start('g'); ob_start(); echo 'in ';",
            "<?php ob_start(function ($b) { exit; }); echo 'x';",
            "<?php ob_start(function ($b) { throw new Exception('in handler'); }); echo 'x';",
            "<?php ob_start(); echo 'kept'; nothing();",
            "<?php ob_start(); echo 'gone'; ob_end_clean(); ob_start(); echo 'nested'; ob_start(); echo 'deep';",
            "<?php function g() { yield 1; exit('in generator'); } foreach (g() as $v) echo $v;",
            "<?php $f = new Fiber(function () { exit('in fiber'); }); $f->start(); echo 1;",
            "<?php array_map(function () { exit('in callback'); }, [1]);",
            "<?php eval('exit(\"in eval\");');",
            "<?php usort($GLOBALS['argv'], 'x');",
            "<?php set_time_limit(0); goto a; a: echo 1; __halt_compiler(); rubbish",
            "<?php die(new stdClass);",
            "<?php assert(false);",
            "<?php ini_set('display_errors', '0'); ini_set('log_errors', '1'); ini_set('error_log', '/dev/null'); nothing();",
            "<?php declare(ticks=1); register_tick_function(function () { echo '.'; }); $a = 1; $b = 2;",
            "#!/usr/bin/php\n<?php echo 'with a first line';",
            "\u{feff}<?php echo 'with a mark';",
        ] {
            both.same_script(script);
        }
    }
}

#[test]
fn a_message_of_thousands_of_bytes_is_whole_and_a_longer_one_is_cut() {
    let site = Scripts::new();
    site.script(
        "a.php",
        "<?php error_log(str_repeat('x', (int) $_GET['n']) . 'end');",
    );
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    let answer = worker.get(&site, "/a.php?n=7000");
    assert!(answer.stderr.ends_with("xend"), "{}", answer.stderr);
    let answer = worker.get(&site, "/a.php?n=70000");
    assert!(
        answer.stderr.ends_with("xxx...") && answer.stderr.len() == 8192,
        "{}",
        answer.stderr.len()
    );
}

#[test]
fn prepended_and_appended_files() {
    let site = Scripts::new();
    site.script(
        "before.php",
        "<?php echo 'before ', $_SERVER['SCRIPT_NAME'], getcwd();",
    );
    site.script(
        "after.php",
        "<?php echo 'after', implode(',', get_included_files());",
    );
    let config = site
        .config()
        .with(
            "define",
            &format!("auto_prepend_file={}/before.php", site.root()),
        )
        .with(
            "define",
            &format!("auto_append_file={}/after.php", site.root()),
        );
    let mut both = Both::start_with(site, &config);
    both.same_script("<?php echo 'between';");
    both.same_script("<?php exit('left early');");
    both.same_script("#!/usr/bin/php\n<?php echo 'between';");
    both.same(&Request::get(&both.site, "/none.php"));
}

#[test]
fn the_time_limit_ends_a_script() {
    let mut both = Both::start(&["max_execution_time=1"]);
    // Since 8.5 such a message contains the stack, which differs from time to time.
    let endless = "<?php ini_set('fatal_error_backtraces', 0); register_shutdown_function(fn() => print('down'));
         while (true) { $a = md5('x'); }";
    let answer = both.same_script(endless);
    assert_eq!(answer.status(), "500 Internal Server Error");
    let said = "Maximum execution time of 1 second exceeded";
    assert!(answer.stderr.contains(said), "{}", answer.stderr);
}

#[test]
fn the_time_limit_counts_the_cpu_of_one_request_only() {
    let site = Scripts::new();
    site.script(
        "sleeps.php",
        "<?php sleep(1); usleep(300000); echo 'through';",
    );
    // The time of one request does not count for the next, whether its timer was started or not.
    site.script(
        "busy.php",
        "<?php function used() {
             $u = getrusage();
             return $u['ru_utime.tv_sec'] * 1e6 + $u['ru_utime.tv_usec'] + $u['ru_stime.tv_sec'] * 1e6 + $u['ru_stime.tv_usec'];
         }
         $end = used() + (int) $_GET['us']; while (used() < $end) md5('x'); echo 'through';",
    );
    site.script("set.php", "<?php set_time_limit(1); while (true);");
    let master = Master::start(&site.config().with("define", "max_execution_time=1"));
    let mut worker = master.worker();
    assert_eq!(worker.get(&site, "/sleeps.php").body(), "through");
    for microseconds in [400_000, 400_000, 50_000, 50_000, 50_000, 400_000] {
        let url = format!("/busy.php?us={microseconds}");
        assert_eq!(worker.get(&site, &url).body(), "through");
    }
    let answer = worker.get(&site, "/set.php");
    assert_eq!(answer.status(), "500 Internal Server Error");
    assert!(
        answer.stderr.contains("Maximum execution time"),
        "{}",
        answer.stderr
    );
    assert_eq!(worker.get(&site, "/busy.php?us=400000").body(), "through");
}
