//! PHP itself, in the three ways weir uses it: PHP-FPM on a unix socket and on TCP, and php-cgi as a command.

use std::process::Command;

use serde_json::Value;

use weir_test::php::{Fpm, cgi_pool};
use weir_test::{Response, Setup, USER, Weir, is_root, wait_until};

const DUMP: &str = include_str!("fixtures/dump.php");

/// Runs a test with each kind of PHP.
fn with_each(prepare: impl Fn() -> Setup, test: impl Fn(&Weir)) {
    let setup = prepare();
    let fpm = Fpm::unix(setup.folder(), 2);
    let pool = fpm.pool(2);
    let mut weir = setup.pool(&pool).start();
    test(&weir);
    weir.stop();

    let setup = prepare();
    let fpm = Fpm::tcp(setup.folder(), 2);
    let pool = fpm.pool(2);
    let mut weir = setup.pool(&pool).start();
    test(&weir);
    weir.stop();

    let mut weir = prepare().pool(&cgi_pool(2)).start();
    test(&weir);
    weir.stop();
}

fn json(response: Response) -> Value {
    let response = response.expect(200);
    serde_json::from_slice(&response.body)
        .unwrap_or_else(|error| panic!("{error}: {}", response.text()))
}

#[test]
fn a_php_cgi_stays_past_its_five_hundred_requests() {
    // By default php-cgi exits after this many requests. A POST that reached it while it exits could not be retried.
    let setup = Setup::new().file("pid.php", "<?php echo getmypid();");
    let weir = setup.pool(&cgi_pool(1)).start();
    let mut client = weir.client();
    let mut pids: Vec<String> = (0..1_010)
        .map(|_| {
            client.send("POST /pid.php HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
            client.response().expect(200).text()
        })
        .collect();
    pids.dedup();
    assert_eq!(pids.len(), 1, "{pids:?}");
}

#[test]
fn a_script_is_told_everything_of_its_request() {
    with_each(
        || {
            Setup::new()
                .file("app/dump.php", DUMP)
                .site("params = { APP_ENV = \"production\", APP_HOST = \"${host}\" }")
        },
        |weir| {
            let root = weir.root().display().to_string();
            let mut client = weir.client();
            client.send(
                "GET /app/dump.php/some%20path/info?x=1&y=%20z HTTP/1.1\r\n\
                 Host: shop.example:8080\r\n\
                 Accept-Encoding: gzip\r\n\
                 X-Two: one\r\n\
                 X-Two: two\r\n\
                 Cookie: a=1\r\n\
                 Cookie: b=2\r\n\
                 Authorization: Basic dXNlcjpwYXNz\r\n\r\n",
            );
            let told = json(client.response());
            let server = &told["server"];
            let local = client.stream().local_addr().expect("an address");
            let expected = [
                ("CONTENT_LENGTH", ""),
                ("CONTENT_TYPE", ""),
                ("DOCUMENT_ROOT", root.as_str()),
                ("DOCUMENT_URI", "/app/dump.php/some path/info"),
                ("GATEWAY_INTERFACE", "CGI/1.1"),
                ("HTTPS", ""),
                ("PATH_INFO", "/some path/info"),
                ("PATH_TRANSLATED", &format!("{root}/some path/info")),
                ("QUERY_STRING", "x=1&y=%20z"),
                ("REDIRECT_STATUS", "200"),
                ("REMOTE_ADDR", &local.ip().to_string()),
                ("REMOTE_PORT", &local.port().to_string()),
                ("REQUEST_METHOD", "GET"),
                ("REQUEST_SCHEME", "http"),
                ("REQUEST_URI", "/app/dump.php/some%20path/info?x=1&y=%20z"),
                ("SCRIPT_FILENAME", &format!("{root}/app/dump.php")),
                ("SCRIPT_NAME", "/app/dump.php"),
                ("SERVER_ADDR", &weir.address().ip().to_string()),
                ("SERVER_NAME", "shop.example"),
                ("SERVER_PORT", &weir.address().port().to_string()),
                ("SERVER_PROTOCOL", "HTTP/1.1"),
                ("HTTP_HOST", "shop.example:8080"),
                ("HTTP_ACCEPT_ENCODING", "gzip"),
                ("HTTP_X_TWO", "one, two"),
                ("HTTP_COOKIE", "a=1; b=2"),
                ("HTTP_AUTHORIZATION", "Basic dXNlcjpwYXNz"),
                ("PHP_AUTH_USER", "user"),
                ("PHP_AUTH_PW", "pass"),
                ("PHP_SELF", "/app/dump.php/some path/info"),
                ("APP_ENV", "production"),
                ("APP_HOST", "shop.example"),
            ];
            for (name, value) in expected {
                assert_eq!(
                    server[name].as_str().unwrap_or_default(),
                    value,
                    "{name} of {server:#}"
                );
            }
            assert!(
                server["SERVER_SOFTWARE"]
                    .as_str()
                    .expect("a name")
                    .starts_with("weir/")
            );
            assert_eq!(told["get"]["y"], " z");
            assert_eq!(
                (&told["cookie"]["a"], &told["cookie"]["b"]),
                (&"1".into(), &"2".into())
            );
        },
    );
}

#[test]
fn a_script_is_not_told_what_would_deceive_it() {
    with_each(
        || Setup::new().file("dump.php", DUMP),
        |weir| {
            let headers = [
                // CVE-2016-5385: HTTP_PROXY is a variable that libraries obey.
                ("Proxy", "http://evil.example"),
                // X_Real_IP and X-Real-IP are the same variable.
                ("X_Real_IP", "10.0.0.1"),
                ("Content_Length", "5"),
                ("Keep-Alive", "timeout=5"),
                ("TE", "trailers"),
                ("Upgrade", "h2c"),
                ("Proxy-Connection", "keep-alive"),
                ("Connection", "close"),
                ("X-End", "2"),
            ];
            let told = json(weir.request("GET", "/dump.php", &headers, b""));
            let names: Vec<&String> = told["server"]
                .as_object()
                .expect("variables")
                .keys()
                .collect();
            for name in [
                "HTTP_PROXY",
                "HTTP_X_REAL_IP",
                "HTTP_KEEP_ALIVE",
                "HTTP_TE",
                "HTTP_UPGRADE",
                "HTTP_PROXY_CONNECTION",
                "HTTP_CONNECTION",
                "PATH_INFO",
            ] {
                assert!(
                    !names.iter().any(|told| *told == name),
                    "{name}: {}",
                    told["server"][name]
                );
            }
            assert_eq!(told["server"]["HTTP_X_END"], "2");
            assert_eq!(
                told["server"]["CONTENT_LENGTH"]
                    .as_str()
                    .unwrap_or_default(),
                ""
            );
        },
    );
}

/// Headers with which a client tries to imitate what the operator or a proxy in front has set: PHP turns `.` into `_`,
/// and cuts names at `[`.
const IMPOSTORS: [(&str, &str); 7] = [
    ("X.Real.IP", "6.6.6.6"),
    ("X-Real.IP", "6.6.6.6"),
    ("X_Real_IP", "6.6.6.6"),
    ("X_Real-IP", "6.6.6.6"),
    ("x.real.ip", "6.6.6.6"),
    ("X!Real!IP", "6.6.6.6"),
    ("X-Real-IP~", "6.6.6.6"),
];

#[test]
fn no_other_spelling_of_a_header_overrides_what_is_set() {
    let expect = |weir: &Weir, set: &str| {
        for impostor in IMPOSTORS {
            // Before and after the real header.
            for first in [true, false] {
                let mut headers = vec![("X-Real-IP", "10.0.0.1")];
                headers.insert(usize::from(!first), impostor);
                let told = json(weir.request("GET", "/dump.php", &headers, b""));
                assert_eq!(
                    told["server"]["HTTP_X_REAL_IP"], "10.0.0.1",
                    "{impostor:?} with {set:?}"
                );
                let mut values = told["server"].as_object().expect("variables").values();
                assert!(
                    !values.any(|value| value == "6.6.6.6"),
                    "{impostor:?} with {set:?}: {told:#}"
                );
            }
        }
    };
    for set in [
        "set_request_headers = { \"X-Real-IP\" = \"10.0.0.1\" }",
        "params = { HTTP_X_REAL_IP = \"10.0.0.1\" }",
        "underscores_in_headers = true",
        "underscores_in_headers = true\nparams = { HTTP_X_REAL_IP = \"10.0.0.1\" }",
    ] {
        let setup = Setup::new().file("dump.php", DUMP).site(set);
        expect(&setup.pool(&cgi_pool(1)).start(), set);
    }
    // As a proxy in front sets it.
    with_each(
        || Setup::new().file("dump.php", DUMP),
        |weir| expect(weir, ""),
    );
}

#[test]
fn a_client_sets_no_header_that_a_parameter_has_set() {
    with_each(
        || {
            Setup::new()
                .file("dump.php", DUMP)
                .site("params = { HTTP_X_REAL_IP = \"10.0.0.1\" }")
        },
        |weir| {
            for name in ["X-Real-IP", "X.Real.IP", "X_Real_IP"] {
                let told = json(weir.request("GET", "/dump.php", &[(name, "6.6.6.6")], b""));
                assert_eq!(told["server"]["HTTP_X_REAL_IP"], "10.0.0.1", "{name}");
            }
        },
    );
}

#[test]
fn underscores_in_headers_is_an_option() {
    let setup = || {
        Setup::new()
            .file("dump.php", DUMP)
            .log("format = \"json\"\nlevel = \"debug\"\n")
    };
    let headers = [("X_Mine", "1"), ("X.Mine", "2")];
    let weir = setup().pool(&cgi_pool(1)).start();
    let told = json(weir.request("GET", "/dump.php", &headers, b""));
    assert!(told["server"]["HTTP_X_MINE"].is_null());
    weir.wait_for_error(&["the header \"x_mine\" is not passed on"]);
    weir.wait_for_error(&["the header \"x.mine\" is not passed on"]);

    let setup = setup().site("underscores_in_headers = true");
    let weir = setup.pool(&cgi_pool(1)).start();
    let told = json(weir.request("GET", "/dump.php", &headers, b""));
    assert_eq!(told["server"]["HTTP_X_MINE"], "1");
}

#[test]
fn a_client_cannot_have_headers_removed_by_naming_them_in_connection() {
    with_each(
        || {
            Setup::new()
                .file("dump.php", DUMP)
                .server("untrusted_forwarded = \"pass\"")
                .site("set_request_headers = { \"X-Set\" = \"by weir\" }")
        },
        |weir| {
            let headers = [
                (
                    "Connection",
                    "close, X-Real-IP, X-Forwarded-For, X-Set, Host, Authorization",
                ),
                ("X-Real-IP", "10.0.0.1"),
                ("X-Forwarded-For", "10.0.0.2"),
                ("Authorization", "Basic dXNlcjpwYXNz"),
            ];
            let told = json(weir.request("GET", "/dump.php", &headers, b""));
            for (name, value) in [
                ("HTTP_X_REAL_IP", "10.0.0.1"),
                ("HTTP_X_FORWARDED_FOR", "10.0.0.2"),
                ("HTTP_X_SET", "by weir"),
                ("HTTP_HOST", "localhost"),
                ("HTTP_AUTHORIZATION", "Basic dXNlcjpwYXNz"),
            ] {
                assert_eq!(told["server"][name], value, "{name}");
            }
            assert!(told["server"]["HTTP_CONNECTION"].is_null());
        },
    );
}

#[test]
fn only_the_headers_that_are_said_are_passed() {
    let setup = Setup::new()
        .file("dump.php", DUMP)
        .site("pass_headers = [\"X-Yes\", \"Host\"]");
    let weir = setup.pool(&cgi_pool(1)).start();
    let headers = [
        ("X-Yes", "1"),
        ("X-No", "1"),
        ("Authorization", "Basic dXNlcjpwYXNz"),
    ];
    let told = json(weir.request("GET", "/dump.php", &headers, b""));
    assert_eq!(told["server"]["HTTP_X_YES"], "1");
    assert_eq!(told["server"]["HTTP_HOST"], "localhost");
    assert!(told["server"]["HTTP_X_NO"].is_null());
    assert!(told["server"]["HTTP_AUTHORIZATION"].is_null());
}

#[test]
fn forms_reach_a_script() {
    with_each(
        || Setup::new().file("dump.php", DUMP),
        |weir| {
            let body = "name=J%C3%BCrgen&empty=&list%5B%5D=1&list%5B%5D=2";
            let headers = [("Content-Type", "application/x-www-form-urlencoded")];
            let told = json(weir.request("POST", "/dump.php?q=1", &headers, body.as_bytes()));
            assert_eq!(told["post"]["name"], "Jürgen");
            assert_eq!(told["post"]["list"][1], "2");
            assert_eq!(told["get"]["q"], "1");
            assert_eq!(told["server"]["CONTENT_LENGTH"], body.len().to_string());
            // The same in chunks, which PHP alone would not understand.
            let mut client = weir.client();
            client.send(
                "POST /dump.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\n\r\n\
                 7\r\na=1&b=2\r\n4\r\n&c=3\r\n0\r\n\r\n",
            );
            let told = json(client.response());
            assert_eq!(told["post"]["c"], "3");
            assert_eq!(told["server"]["CONTENT_LENGTH"], "11");
        },
    );
}

#[test]
fn bodies_of_any_size_reach_a_script() {
    with_each(
        || {
            Setup::new()
                .file("dump.php", DUMP)
                .site("max_body = \"64M\"")
        },
        |weir| {
            let mut client = weir.client();
            for size in [
                0, 1, 65_527, 65_528, 65_535, 65_536, 65_537, 131_072, 1_000_000, 20_000_000,
            ] {
                let body: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
                client.send(format!(
                    "PUT /dump.php HTTP/1.1\r\nHost: a\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n"
                ));
                client.send(&body);
                let told = json(client.response());
                assert_eq!(told["length"], size);
                assert_eq!(
                    told["md5"].as_str().expect("a sum"),
                    md5(weir, &body),
                    "{size} bytes"
                );
            }
        },
    );
}

#[test]
fn files_are_uploaded_by_curl() {
    with_each(
        || {
            Setup::new()
                .file("dump.php", DUMP)
                .site("max_body = \"64M\"")
        },
        |weir| {
            let picture: Vec<u8> = (0..3_000_000u32)
                .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
                .collect();
            let file = weir.folder().join("picture.jpg");
            std::fs::write(&file, &picture).expect("write");
            let url = format!("http://{}/dump.php", weir.address());
            let field = format!("picture=@{}", file.display());
            // The body is sent with its length, and in chunks.
            for extra in ["Accept: */*", "Transfer-Encoding: chunked"] {
                let output = curl(&["-F", "title=A picture", "-F", &field, "-H", extra, &url]);
                let told: Value = serde_json::from_slice(&output).expect("JSON");
                assert_eq!(told["post"]["title"], "A picture");
                assert_eq!(told["files"]["picture"]["error"], 0, "{told:#}");
                assert_eq!(told["files"]["picture"]["size"], 3_000_000);
                assert_eq!(
                    told["files"]["picture"]["md5"].as_str().expect("a sum"),
                    md5(weir, &picture)
                );
            }
        },
    );
}

#[test]
fn a_large_answer_arrives_whole() {
    with_each(
        || {
            Setup::new().file(
                "large.php",
                "<?php header('Content-Type: text/plain'); for ($i = 0; $i < 20000; $i++) { echo str_repeat(chr(65 + $i % 26), 1000); }",
            )
        },
        |weir| {
            let response = weir.get("/large.php").expect(200);
            assert_eq!(response.body.len(), 20_000_000);
            for (at, part) in response.body.chunks(1000).enumerate() {
                assert!(part.iter().all(|byte| *byte == b'A' + (at % 26) as u8));
            }
        },
    );
}

#[test]
fn status_and_fields_are_the_scripts_own() {
    with_each(
        || {
            Setup::new()
                .file("gone.php", "<?php http_response_code(410); header('X-A: 1'); setcookie('a', '1'); setcookie('b', '2'); echo 'gone';")
                .file("moved.php", "<?php header('Location: https://elsewhere.example/x?y=z');")
                .file("moved301.php", "<?php header('Location: /x', true, 301);")
                .file("none.php", "<?php http_response_code(204);")
                .file("same.php", "<?php http_response_code(304); header('ETag: \"x\"');")
                .file("sized.php", "<?php header('Content-Length: 5'); echo 'sized';")
        },
        |weir| {
            let response = weir.get("/gone.php").expect(410);
            assert_eq!(
                (response.header("x-a"), response.text().as_str()),
                (Some("1"), "gone")
            );
            assert_eq!(response.all("set-cookie"), ["a=1", "b=2"]);
            assert_eq!(response.header("status"), None);
            let response = weir.get("/moved.php").expect(302);
            assert_eq!(
                response.header("location"),
                Some("https://elsewhere.example/x?y=z")
            );
            let response = weir.get("/moved301.php").expect(301);
            assert!(
                response
                    .header("location")
                    .expect("Location")
                    .ends_with("/x")
            );
            let mut client = weir.client();
            for (path, status) in [("/none.php", 204), ("/same.php", 304)] {
                client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                assert!(client.response().expect(status).body.is_empty());
            }
            client.send("GET /sized.php HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(
                client.response().expect(200).header("content-length"),
                Some("5")
            );
            client.send("HEAD /gone.php HTTP/1.1\r\nHost: a\r\n\r\n");
            client.response_to("HEAD").expect(410);
            client.send("GET /sized.php HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().expect(200).text(), "sized");
        },
    );
}

#[test]
fn what_php_says_on_stderr_stands_in_the_error_log() {
    with_each(
        || {
            Setup::new().file(
                "warn.php",
                "<?php error_log('a word from the script'); echo 'fine';",
            )
        },
        |weir| {
            assert_eq!(weir.get("/warn.php").expect(200).text(), "fine");
            weir.wait_for_error(&["app", "a word from the script"]);
        },
    );
}

#[test]
fn a_fatal_error_is_500_and_the_worker_stays() {
    with_each(
        || {
            Setup::new()
                .file(
                    "fatal.php",
                    "<?php ini_set('display_errors', '0'); missing_function();",
                )
                .file("fine.php", "fine")
        },
        |weir| {
            for _ in 0..3 {
                weir.get("/fatal.php").expect(500);
                assert_eq!(weir.get("/fine.php").expect(200).text(), "fine");
            }
            weir.wait_for_error(&["missing_function"]);
        },
    );
}

#[test]
fn a_script_that_is_not_there_is_404_and_its_path_is_logged() {
    with_each(
        || Setup::new().file("fine.php", "fine"),
        |weir| {
            for path in [
                "/missing.php",
                "/folder/missing.php/info",
                "/missing.php?x=fine.php",
            ] {
                let response = weir.get(path).expect(404);
                assert!(
                    !response.text().contains("weir-test"),
                    "{}",
                    response.text()
                );
            }
            weir.wait_for_error(&["root/missing.php"]);
            weir.wait_for_error(&["root/folder/missing.php"]);
        },
    );
}

#[test]
fn a_picture_with_a_scripts_name_behind_it_is_not_run() {
    // A known problem of cgi.fix_pathinfo: /upload.jpg/x.php runs upload.jpg.
    with_each(
        || {
            Setup::new()
                .file("upload.jpg", "<?php echo 'run';")
                .file("fine.php", "fine")
        },
        |weir| {
            for path in [
                "/upload.jpg/x.php",
                "/upload.jpg%00.php",
                "/upload.jpg/.php",
                "/upload.jpg/fine.php",
            ] {
                let response = weir.get(path);
                assert!(
                    (400..500).contains(&response.status),
                    "{path}: {response:?}"
                );
            }
            // weir does not send its source either: no picture begins like this.
            weir.get("/upload.jpg").expect(403);
        },
    );
}

#[test]
fn a_script_with_a_pictures_name_behind_it_runs_the_script() {
    // A php-cgi with cgi.fix_pathinfo=0 runs PATH_TRANSLATED: /fine.php/upload.jpg ran upload.jpg.
    let files = || {
        Setup::new()
            .file("upload.jpg", "<?php echo 'run';")
            .file("fine.php", "fine<?php echo $_SERVER['PATH_INFO'];")
    };
    let told = |weir: &Weir| {
        assert_eq!(
            weir.get("/fine.php/upload.jpg").expect(200).text(),
            "fine/upload.jpg"
        );
        assert_eq!(
            weir.get("/fine.php/nothing").expect(200).text(),
            "fine/nothing"
        );
    };
    with_each(files, told);
    told(&files().start_folder(&["--workers", "1"]));
}

#[test]
fn the_host_of_an_absolute_target_is_the_host() {
    // RFC 9112 §3.2.2: the target's own authority counts, not Host.
    let weir = Setup::new()
        .file("dump.php", DUMP)
        .pool(&cgi_pool(1))
        .start();
    let headers = [("Host", "evil.example")];
    let told = json(weir.request("GET", "http://shop.example:81/dump.php?x", &headers, b""));
    assert_eq!(told["server"]["HTTP_HOST"], "shop.example:81");
    assert_eq!(told["server"]["SERVER_NAME"], "shop.example");
    assert_eq!(told["server"]["SCRIPT_NAME"], "/dump.php");
}

#[test]
fn all_workers_are_used_and_no_more() {
    with_each(
        || Setup::new().file("slow.php", "<?php usleep(200000); echo getmypid();"),
        |weir| {
            let answers: Vec<String> = std::thread::scope(|scope| {
                let clients: Vec<_> = (0..8)
                    .map(|_| scope.spawn(|| weir.get("/slow.php").expect(200).text()))
                    .collect();
                clients
                    .into_iter()
                    .map(|client| client.join().expect("a client"))
                    .collect()
            });
            let mut pids = answers.clone();
            pids.sort();
            pids.dedup();
            assert_eq!(pids.len(), 2, "{answers:?}");
        },
    );
}

#[test]
fn a_folder_is_served_with_php_by_one_command() {
    let setup = Setup::new()
        .file("index.php", "<?php echo 'Hello from ', PHP_SAPI;")
        .file("dump.php", DUMP)
        .file("style.css", "body {}");
    let weir = setup.start_folder(&["--workers", "2"]);
    assert_eq!(weir.get("/").expect(200).text(), "Hello from fpm-fcgi");
    assert_eq!(weir.get("/style.css").expect(200).text(), "body {}");
    let told = json(weir.get("/dump.php/info"));
    assert_eq!(told["server"]["PATH_INFO"], "/info");
    assert_ne!(told["user"], 0, "PHP runs as root");
    wait_until("a master and two workers", || weir.workers().len() == 3);
    weir.wait_for_error(&[&weir.address().to_string()]);
}

#[test]
fn a_weir_toml_in_a_folder_is_neither_used_nor_published() {
    let setup = Setup::new()
        .file("weir.toml", "secret")
        .file("weir.toml~", "secret")
        .file(".env", "secret")
        .file("text.txt", "a text");
    let weir = setup.start_folder(&[]);
    for path in ["/weir.toml", "/weir.toml~", "/%77eir.toml", "/.env"] {
        weir.get(path).expect(404);
    }
    weir.get("/text.txt").expect(200);
    weir.wait_for_error(&["weir.toml is not used", "did you mean", "-c"]);
}

#[test]
fn a_folder_without_php_needs_none() {
    let weir = Setup::new().file("index.html", "plain").start_folder(&[]);
    assert_eq!(weir.get("/").expect(200).text(), "plain");
    assert!(weir.workers().is_empty(), "{:?}", weir.workers());
}

#[test]
fn workers_run_as_the_user_of_their_pool() {
    let weir = Setup::new()
        .file("dump.php", DUMP)
        .pool(&cgi_pool(1))
        .start();
    let told = json(weir.get("/dump.php"));
    let user = if is_root() {
        let output = Command::new("id").args(["-u", USER]).output().expect("id");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    } else {
        rustix::process::geteuid().as_raw().to_string()
    };
    assert_eq!(told["user"].to_string(), user);
}

#[test]
fn a_command_has_the_environment_of_its_pool_and_no_other() {
    let pool = format!("{}env = {{ APP_KEY = \"key\" }}\n", cgi_pool(1));
    let weir = Setup::new()
        .file("env.php", "<?php echo json_encode(getenv());")
        .pool(&pool)
        .start();
    let told = json(weir.get("/env.php"));
    assert_eq!(told["APP_KEY"], "key");
    // Variables of the tests' own environment that no worker needs.
    for name in ["CARGO", "CARGO_MANIFEST_DIR", "HOME", "NO_COLOR"] {
        assert!(told[name].is_null(), "{name}");
    }
}

#[test]
fn a_worker_has_no_descriptor_of_anybody_else() {
    let script = "<?php $out = []; foreach (glob('/proc/self/fd/*') as $fd) { $out[basename($fd)] = @readlink($fd); } echo json_encode($out, JSON_FORCE_OBJECT);";
    let weir = Setup::new()
        .file("fds.php", script)
        .pool(&cgi_pool(2))
        .start();
    let told = json(weir.get("/fds.php"));
    let told = told.as_object().expect("descriptors");
    // The listening socket and the connection, the pipe for its stderr, and the files it opened itself.
    for (fd, what) in told {
        let what = what.as_str().unwrap_or_default();
        let own = what.contains("fds.php") || what.contains("/.Zend") || what.contains("/proc/");
        let given = ["socket:", "pipe:", "/dev/null"]
            .iter()
            .any(|kind| what.starts_with(kind));
        assert!(own || given || what.is_empty(), "{fd}: {what} of {told:?}");
    }
    let sockets = told
        .values()
        .filter(|what| what.as_str().unwrap_or_default().starts_with("socket:"))
        .count();
    assert!(sockets <= 2, "{told:?}");
}

#[test]
fn requests_of_php_are_served_while_another_uploads_slowly() {
    let setup = Setup::new().file("dump.php", DUMP);
    let weir = setup.pool(&cgi_pool(1)).start();
    let mut slow = weir.client();
    slow.send("POST /dump.php HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    slow.send(vec![b'x'; 100_000]);
    for _ in 0..5 {
        json(weir.get("/dump.php"));
    }
    slow.send(vec![b'x'; 100_000]);
    assert_eq!(json(slow.response())["length"], 200_000);
}

#[test]
fn a_trace_says_each_step_of_a_request() {
    let setup = Setup::new().file("index.php", "<?php echo 'traced';");
    let weir = setup.start_folder(&["--workers", "1", "--trace"]);
    assert_eq!(weir.get("/?x=traced").expect(200).text(), "traced");
    weir.wait_for_error(&["/?x=traced"]);
    weir.wait_for_error(&["sent        "]);
}

#[test]
fn a_trace_says_that_a_client_has_left_the_queue() {
    let setup = Setup::new().file("slow.php", "<?php sleep(2); echo 'done';");
    let weir = setup.start_folder(&["--workers", "1", "--trace"]);
    let mut running = weir.client();
    running.send("GET /slow.php?running HTTP/1.1\r\nHost: a\r\n\r\n");
    weir.wait_for_error(&["dispatch"]);
    let mut waiting = weir.client();
    waiting.send("GET /slow.php?waiting HTTP/1.1\r\nHost: a\r\n\r\n");
    let line = weir.wait_for_error(&["head", "slow.php?waiting"]);
    drop(waiting);
    let number = line.split_whitespace().nth(1).expect("a number").to_owned();
    weir.wait_for_error(&[&number, "left        0 bytes"]);
    running.response().expect(200);
}

/// The checksum as md5sum prints it.
fn md5(weir: &Weir, bytes: &[u8]) -> String {
    let file = weir.folder().join("md5");
    std::fs::write(&file, bytes).expect("write");
    let output = Command::new("md5sum").arg(&file).output().expect("md5sum");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(' ').next().expect("a sum").to_owned()
}

/// What curl received. curl must have succeeded.
fn curl(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--fail-with-body",
            "--noproxy",
            "*",
            "--max-time",
            "30",
        ])
        .args(arguments)
        .output()
        .expect("curl");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}
