//! What a request may change in its process, one thing after another: what the next client's request finds of it. The table
//! is the one of docs/booted.md ("What is new in each request, and what stays"), in more detail.

use weir_test::{Weir, wait_until};

use super::{booted, site, text};

/// What the next request finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The same as before: nothing of the request that has changed it.
    New,
    /// What the request has left, as docs/booted.md says.
    Stays,
}
use Next::{New, Stays};

/// A name; what changes it; an expression that shows it; what the next request finds.
const PROBES: &[(&str, &str, &str, Next)] = &[
    // ---- the request ----
    ("superglobals", "$_GET['x'] = $_POST['x'] = $_COOKIE['x'] = $_REQUEST['x'] = $_FILES['x'] = $_SERVER['x'] = 'secret';",
        "secrets([$_GET, $_POST, $_COOKIE, $_REQUEST, $_FILES, $_SERVER])", New),
    ("argv", "", "secrets([$GLOBALS['argv'] ?? 0, $_SERVER['argv'] ?? 0])", New),
    ("variables of the request", "", "[getenv('HTTP_X_SECRET'), secrets(getenv()), $_SERVER['PHP_AUTH_USER'] ?? 0, $_SERVER['PHP_AUTH_PW'] ?? 0,
        $_SERVER['HTTP_COOKIE'] ?? 0, $_SERVER['CONTENT_TYPE'] ?? 0, $_SERVER['REMOTE_USER'] ?? 0]", New),
    ("headers of the request", "", "secrets([getallheaders(), apache_request_headers(), frankenphp_request_headers()])", New),
    ("filter_input", "", "[filter_input(INPUT_GET, 'a'), filter_input(INPUT_POST, 'b'), filter_input(INPUT_COOKIE, 'c'),
        filter_input(INPUT_SERVER, 'HTTP_X_SECRET'), secrets(filter_input_array(INPUT_SERVER))]", New),
    ("the body", "$GLOBALS['kept'] = fopen('php://input', 'r');", "[file_get_contents('php://input'), isset($GLOBALS['kept']) && is_resource($GLOBALS['kept'])]", New),
    ("the time", "$_SERVER['REQUEST_TIME'] = 1;", "abs($_SERVER['REQUEST_TIME'] - time()) < 5", New),
    ("an upload", "$GLOBALS['upload'] = $_FILES['f']['tmp_name'];",
        "isset($GLOBALS['upload']) && (is_uploaded_file($GLOBALS['upload']) || file_exists($GLOBALS['upload'])
            || move_uploaded_file($GLOBALS['upload'], '/tmp/x'))", New),
    // ---- the answer ----
    ("headers", "header('X-Secret: 1'); setcookie('secret', '1'); http_response_code(418); header_register_callback(fn () => header('X-Late: secret'));",
        "[headers_list(), http_response_code(), headers_sent()]", New),
    ("a header callback that has not run", "header('X: 1'); ob_end_flush(); flush(); header_register_callback(fn () => header('X-Late: secret'));",
        "headers_list()", New),
    ("output buffers", "ob_start(fn ($x) => \"secret$x\"); ob_start(); ob_implicit_flush(); output_add_rewrite_var('secret', '1'); echo '<a href=\"x\">';",
        "[ob_get_level(), ob_list_handlers(), ob_get_status(true)]", New),
    ("functions for the end", "register_shutdown_function(function () { $GLOBALS['ends'] = ($GLOBALS['ends'] ?? 0) + 1; });", "($GLOBALS['ends'] ?? 0) > 1", New),
    ("connection", "ignore_user_abort(false);", "[connection_status(), connection_aborted(), ignore_user_abort()]", New),
    ("limits", "ini_set('memory_limit', '77M'); set_time_limit(77);", "[ini_get('memory_limit'), ini_get('max_execution_time')]", New),
    // ---- sessions ----
    ("a session", "session_save_path($GLOBALS['spool']); session_start(); $_SESSION['secret'] = 1;",
        "[isset($_SESSION), session_id(), session_status(), session_encode()]", New),
    ("a session's id", "session_id('secretsecret');", "session_id()", New),
    ("a session that was aborted", "session_save_path($GLOBALS['spool']); session_start(); $_SESSION['secret'] = 1; session_abort();",
        "[isset($_SESSION), session_id(), session_status()]", New),
    ("a session that was destroyed", "session_save_path($GLOBALS['spool']); session_start(); session_destroy();", "[isset($_SESSION), session_id()]", New),
    ("the session's settings", "session_set_cookie_params(77); session_cache_limiter('public'); session_cache_expire(77); session_name('OTHER');",
        "[session_get_cookie_params(), session_cache_limiter(), session_cache_expire(), session_name()]", Stays),
    ("the session's path", "session_save_path('/other');", "session_save_path()", Stays),
    ("the session's handler", "session_set_save_handler(new SessionHandler(), false);", "session_module_name()", Stays),
    // ---- results of the last call ----
    ("the last error", "@trigger_error('secret');", "error_get_last()", New),
    ("strtok", "strtok('secret secret', ' ');", "strtok(' ')", New),
    ("errors of XML", "libxml_use_internal_errors(true); simplexml_load_string('<a><secret></a>');",
        "[array_map(fn ($e) => $e->message, libxml_get_errors()), libxml_get_last_error()]", New),
    ("errors of JSON", "json_decode('{');", "json_last_error_msg()", New),
    ("errors of patterns", "@preg_match('/./u', \"\\xff\");", "preg_last_error_msg()", New),
    ("errors of dates", "date_create('secret');", "date_get_last_errors()", Stays),
    ("errors of intl", "intl_get_error_code(); numfmt_create('de', 99999);", "[intl_get_error_code(), intl_get_error_message()]", New),
    ("a search of mb_ereg", "mb_ereg_search_init('secret', 'e'); mb_ereg_search();", "(function () { try { return mb_ereg_search_getregs(); } catch (Error $e) { return $e->getMessage(); } })()", New),
    ("errors of MariaDB", "mysqli_report(0); @mysqli_connect('127.0.0.1:1', 'secret');", "mysqli_connect_error()", Stays),
    // ---- the process ----
    ("the folder", "chdir('/');", "getcwd()", New),
    ("the environment", "putenv('SECRET=1');", "getenv('SECRET')", Stays),
    ("umask", "umask(077);", "umask()", Stays),
    ("the locale", "setlocale(LC_ALL, 'C.UTF-8');", "setlocale(LC_ALL, 0)", Stays),
    ("the time zone", "date_default_timezone_set('Asia/Tokyo');", "date_default_timezone_get()", Stays),
    ("random numbers", "mt_srand(7);", "mt_rand() === (function () { mt_srand(7); return mt_rand(); })()", New),
    ("the language", "mb_internal_encoding('ISO-8859-1'); mb_language('Japanese'); mb_substitute_character(77); Locale::setDefault('ja');",
        "[mb_internal_encoding(), mb_language(), mb_substitute_character(), Locale::getDefault()]", Stays),
    // ---- PHP ----
    ("settings", "ini_set('precision', 7); error_reporting(7); set_include_path('/'); gc_disable();",
        "[ini_get('precision'), error_reporting(), get_include_path(), gc_enabled()]", Stays),
    ("handlers", "set_error_handler(fn () => true); set_exception_handler(fn () => true);",
        "[set_error_handler(null) !== null, restore_error_handler(), set_exception_handler(null) !== null, restore_exception_handler()]", Stays),
    ("definitions", "define('SECRET', 1); spl_autoload_register(fn () => null); $GLOBALS['secret'] = 1;",
        "[defined('SECRET'), count(spl_autoload_functions()), isset($GLOBALS['secret'])]", Stays),
    ("streams", "stream_context_set_default(['http' => ['header' => 'X: secret']]); stream_wrapper_unregister('glob');
        stream_filter_register('secret', php_user_filter::class);",
        "[stream_context_get_options(stream_context_get_default()), in_array('glob', stream_get_wrappers()), in_array('secret', stream_get_filters())]", Stays),
    ("assertions", "@assert_options(ASSERT_CALLBACK, 'strlen');", "@assert_options(ASSERT_CALLBACK)", Stays),
    ("entities of XML", "libxml_set_external_entity_loader(fn () => null);", "(function () { $d = new DOMDocument();
        return @$d->loadXML('<!DOCTYPE a SYSTEM \"file:///dev/null\"><a/>', LIBXML_DTDLOAD); })()", New),
];

/// How the request ends that has changed something.
const ENDS: &[(&str, &str)] = &[
    ("returns", ""),
    ("exits", "echo 'bye'; exit(3);"),
    ("throws", "throw new RuntimeException('on purpose');"),
    (
        "exits in a function for the end",
        "register_shutdown_function(function () { exit(4); });",
    ),
    (
        "throws in a function for the end",
        "register_shutdown_function(function () { throw new RuntimeException('on purpose'); });",
    ),
    (
        "throws in a destructor",
        "$GLOBALS['bomb'] = null; (function () { $bomb = new Bomb; })();",
    ),
    (
        "throws in an output function",
        "ob_start(function () { throw new RuntimeException('on purpose'); });",
    ),
    ("has finished early", "fastcgi_finish_request();"),
];

const LINES: &str = "max_children = 1\nworker_requests = 0\nphp_admin_value = { display_errors = \"0\", register_argc_argv = \"1\", \
    output_buffering = \"4096\", post_max_size = \"100K\", \"session.use_strict_mode\" = \"0\" }\n";

/// An application that does `change` or shows what is there, by number; `gap` does it between two requests.
fn application() -> Weir {
    let mut script = String::from(
        "<?php
        $GLOBALS['spool'] = dirname(__DIR__) . '/spool';
        class Bomb { function __destruct() { throw new RuntimeException('on purpose'); } }
        function secrets($array) { return substr_count(json_encode($array, JSON_PARTIAL_OUTPUT_ON_ERROR), 'secret'); }
        ignore_user_abort(true);
        $later = null;
        $actions = ['pid' => function () { echo getmypid(); },\n",
    );
    for (number, (_, change, look, _)) in PROBES.iter().enumerate() {
        script += &format!(
            "'look{number}' => function () {{ echo json_encode({look}, JSON_PARTIAL_OUTPUT_ON_ERROR); }},
            'gap{number}' => function () {{ $GLOBALS['later'] = function () {{ {change} }}; }},
            'gone{number}' => function () {{ left(); {change} }},\n"
        );
        for (way, (_, end)) in ENDS.iter().enumerate() {
            script += &format!("'change{number}-{way}' => function () {{ {change} {end} }},\n");
        }
    }
    script += "];
        function left() {
            touch($GLOBALS['spool'] . '/came');
            do { echo str_repeat('x', 10000); ob_flush(); flush(); usleep(1000); } while (!connection_aborted());
        }
        while (frankenphp_handle_request(function () use ($actions) {
            $actions[trim(strtok($_SERVER['REQUEST_URI'], '?'), '/')]();
        })) {
            if ($later) { [$now, $later] = [$later, null]; $now(); unset($now); }
        }";
    site(LINES, &script).start()
}

/// All that may identify a client.
const HEADERS: &[(&str, &str)] = &[
    ("Authorization", "Basic c2VjcmV0OnNlY3JldA=="),
    ("X-Secret", "secret"),
    ("Cookie", "c=secret; PHPSESSID=secretsecretsecretsecret"),
    ("Content-Type", "multipart/form-data; boundary=x"),
];

fn change(weir: &Weir, path: &str) {
    let body =
        b"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"secret\"\r\n\r\nsecret\r\n\
        --x\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\nsecret\r\n--x--\r\n";
    weir.request("POST", &format!("{path}?a=secret"), HEADERS, body);
}

/// Has each thing changed by `change`, and compares what a request found before with what one finds afterwards.
fn expect_next_request(weir: &Weir, how: &str, change: impl Fn(usize)) {
    // After the head of an answer PHP refuses some changes.
    let is_early = ENDS.iter().any(|(end, _)| *end == how);
    let mut wrong = Vec::new();
    let pid = text(weir, "/pid");
    for (number, (name, _, _, next)) in PROBES.iter().enumerate() {
        let look = format!("/look{number}");
        let before = text(weir, &look);
        change(number);
        let after = text(weir, &look);
        if (after == before) != (*next == New) && (is_early || *next == New) {
            wrong.push(format!("{name}: {next:?}: {before}, then {after}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "a request that {how}\n{}",
        wrong.join("\n")
    );
    assert_eq!(text(weir, "/pid"), pid, "a request that {how}");
}

#[test]
fn the_next_request_finds_what_stays_and_nothing_else() {
    for (way, (how, _)) in ENDS.iter().enumerate() {
        let weir = application();
        expect_next_request(&weir, how, |number| {
            change(&weir, &format!("/change{number}-{way}"));
        });
    }
}

#[test]
fn what_the_script_does_between_two_requests_is_not_of_the_next_one() {
    let weir = application();
    expect_next_request(&weir, "is over", |number| {
        change(&weir, &format!("/gap{number}"));
    });
}

#[test]
fn a_client_that_leaves_takes_all_with_it() {
    let weir = application();
    expect_next_request(&weir, "nobody waits for", |number| {
        let mut client = weir.client();
        let headers: String = HEADERS[..3]
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        client.send(format!(
            "GET /gone{number}?a=secret HTTP/1.1\r\nHost: a\r\n{headers}\r\n"
        ));
        wait_until("it runs", || weir.scratch("came").exists());
        std::fs::remove_file(weir.scratch("came")).unwrap();
    });
}

#[test]
fn a_request_that_is_too_large_leaves_nothing() {
    let weir = application();
    expect_next_request(&weir, "is too large", |number| {
        let path = format!("/change{number}-0?a=secret");
        weir.request("POST", &path, HEADERS, &[b'x'; 200_000]);
    });
}

/// PHP notes which compression a client accepts, once in each request.
#[test]
fn an_answer_is_compressed_only_for_a_client_that_accepts_it() {
    let code = "'gz' => function () { ob_start('ob_gzhandler'); echo str_repeat('text ', 100); },
        'all' => function () { echo str_repeat('text ', 100); },";
    for (setting, path) in [
        ("", "/gz"),
        (", \"zlib.output_compression\" = \"1\"", "/all"),
    ] {
        let lines =
            format!("max_children = 1\nphp_admin_value = {{ display_errors = \"0\"{setting} }}\n");
        let weir = booted(&lines, "", code).start();
        for accepted in ["gzip", "", "deflate", "gzip", ""] {
            let headers = [("Accept-Encoding", accepted)];
            let sent = match accepted {
                "" => weir.request("GET", path, &[], b""),
                _ => weir.request("GET", path, &headers, b""),
            };
            let coding = sent.header("content-encoding").unwrap_or_default();
            assert_eq!(coding, accepted, "{path}");
            assert_eq!(sent.status, 200);
        }
    }
}

#[test]
fn headers_that_are_not_sent_leave_no_memory() {
    let script = "<?php while (frankenphp_handle_request(function () {
            ob_start(); echo 'x'; ob_end_flush(); flush();
            $large = str_repeat('x', 10000);
            @header_register_callback(function () use ($large) { });
            gc_collect_cycles();
            echo ' ', memory_get_usage();
        })) {
            header('X-Large: ' . str_repeat('x', 10000));
            header('Content-Type: ' . str_repeat('x', 10000));
            header('HTTP/1.1 404 ' . str_repeat('x', 10000));
            $large = str_repeat('x', 10000);
            header_register_callback(function () use ($large) { });
            unset($large);
        }";
    let weir = site("max_children = 1\nworker_requests = 0\n", script).start();
    let used = || -> u64 {
        let answer = text(&weir, "/");
        answer.rsplit(' ').next().unwrap().parse().expect(&answer)
    };
    for _ in 0..10 {
        used();
    }
    let before = used();
    for _ in 0..50 {
        used();
    }
    let grown = used().saturating_sub(before);
    assert!(grown < 10_000, "{grown} bytes");
}
