//! Each code of `access.format`, for requests of all kinds, in both programs.

use std::{
    fs,
    io::Write,
    os::unix::{fs::PermissionsExt, net::UnixStream},
};

use crate::{
    pages::request,
    support::{Place, encode, wait_until},
    transcript::{Subject, assert_same, replace},
};

const SCRIPTS: &[(&str, &str)] = &[
    ("a.php", "<?php header('X-A: yes'); echo 'text';"),
    (
        "body.php",
        "<?php http_response_code(201); echo strlen(file_get_contents('php://input'));",
    ),
    ("unread.php", "<?php echo 'does not read its input';"),
    ("fatal.php", "<?php no_such_function();"),
    (
        "moved.php",
        "<?php header('Location: /elsewhere'); exit(3);",
    ),
    (
        "gone.php",
        "<?php header('X-A: 1'); http_response_code(410); flush(); header('X-B: 2'); http_response_code(500);",
    ),
    (
        "finishes.php",
        "<?php echo 'a'; fastcgi_finish_request(); http_response_code(500); usleep(100000);",
    ),
    (
        "shuts.php",
        "<?php register_shutdown_function(function () { http_response_code(503); header('X-A: late'); });",
    ),
    ("dies.php", "<?php posix_kill(getmypid(), 11); sleep(9);"),
    ("empty.php", ""),
    ("b.txt", "is no script"),
    ("dir.php/x.php", "<?php echo 'below a folder';"),
    ("closed.php", "<?php"),
    (
        "waits.php",
        "<?php touch(__DIR__ . '/tmp/begun'); ignore_user_abort(false); header('X-A: left');
         while (!file_exists(__DIR__ . '/tmp/go')) { usleep(5000); clearstatcache(); }
         for ($i = 0; $i < 1000; $i++) { echo str_repeat('x', 8192); flush(); }",
    ),
];

const FORMAT: &str = "%R|%u|%m|%r%Q%q|%s|%f|%l|%n|%{SCRIPT_FILENAME}e|%{PATH_INFO}e|%{NONE}e|%{X-A}o|%{X-B}o|%{Content-type}o|%%";

/// The method, what is asked for, further parameters, and the body.
type Asked = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
);

const REQUESTS: &[Asked] = &[
    ("GET", "/a.php", &[], ""),
    ("GET", "/a.php?x=1&y=%20<>", &[], ""),
    ("HEAD", "/a.php", &[], ""),
    ("PURGE", "/a.php", &[], ""),
    (
        "POST",
        "/body.php",
        &[("CONTENT_LENGTH", "5"), ("CONTENT_TYPE", "text/plain")],
        "12345",
    ),
    ("POST", "/unread.php", &[("CONTENT_LENGTH", "5")], "12345"),
    ("POST", "/missing.php", &[("CONTENT_LENGTH", "5")], "12345"),
    ("GET", "/fatal.php", &[], ""),
    ("GET", "/moved.php", &[], ""),
    ("GET", "/gone.php", &[], ""),
    ("GET", "/finishes.php", &[], ""),
    ("GET", "/shuts.php", &[], ""),
    ("GET", "/empty.php", &[], ""),
    ("GET", "/missing.php", &[], ""),
    ("HEAD", "/missing.php", &[], ""),
    ("GET", "/missing.php?a=b", &[], ""),
    ("GET", "/b.txt", &[], ""),
    ("GET", "/closed.php", &[], ""),
    ("GET", "/dir.php", &[], ""),
    ("GET", "/dir.php/x.php", &[], ""),
    // The name of the script ends before the end of the path.
    ("GET", "/a.php/more/path?q", &[], ""),
    ("GET", "/b.txt/more", &[], ""),
    ("GET", "/missing.php/more", &[], ""),
    ("GET", "/", &[], ""),
    ("GET", "/ping", &[], ""),
    ("HEAD", "/ping", &[], ""),
    ("GET", "/status?json", &[], ""),
    ("HEAD", "/status", &[], ""),
    ("POST", "/status", &[("CONTENT_LENGTH", "2")], "ab"),
    (
        "GET",
        "/a.php",
        &[("HTTP_AUTHORIZATION", "Basic dXNlcjpzZWNyZXQ=")],
        "",
    ),
    ("GET", "/a.php", &[("REMOTE_USER", "somebody")], ""),
    (
        "GET",
        "/missing.php",
        &[("HTTP_AUTHORIZATION", "Basic dXNlcjpzZWNyZXQ=")],
        "",
    ),
    (
        "GET",
        "/a.php",
        &[("HTTP_AUTHORIZATION", "Bearer token"), ("PATH_INFO", "/p")],
        "",
    ),
    // Apache's proxy names the script like this.
    (
        "GET",
        "/a.php",
        &[(
            "SCRIPT_FILENAME",
            "proxy:fcgi://127.0.0.1:9000@/a.php/info?x",
        )],
        "",
    ),
];

fn logged(weir: bool, pool: &str) -> String {
    let pool = format!(
        "pm.status_path = /status\nping.path = /ping\naccess.log = @/access.log\n{pool}\n\
         access.format = \"{FORMAT}\""
    );
    let place = Subject::place(weir, "", &pool, &[]);
    for folder in ["tmp", "dir.php"] {
        fs::create_dir(place.path(folder)).unwrap();
        fs::set_permissions(place.path(folder), fs::Permissions::from_mode(0o777)).unwrap();
    }
    for (name, text) in SCRIPTS {
        place.write(name, text);
    }
    fs::set_permissions(place.path("closed.php"), fs::Permissions::from_mode(0o000)).unwrap();
    let running = crate::support::Running::start(&Subject::program(weir, &place), &place, &[]);
    let subject = Subject::of(place, running);
    let place = &subject.place;
    for (method, uri, more, body) in REQUESTS {
        let folder = place.path("").to_str().unwrap().to_owned();
        let more: Vec<(&str, String)> = more
            .iter()
            .map(|(name, value)| (*name, value.replace("@/", &folder)))
            .collect();
        let more: Vec<(&str, &str)> = more.iter().map(|(n, v)| (*n, v.as_str())).collect();
        request(place, uri, method, &more, body);
    }
    // This one leaves no line.
    request(place, "/dies.php", "GET", &[], "");
    leave(place);
    request(place, "/a.php?end", "GET", &[], "");
    wait_until("all is logged", || {
        let log = place.read("access.log");
        log.contains("?end") && log.contains("/waits.php")
    });
    // The line of a client that has left may be the last.
    let log = place.read("access.log");
    let mut lines: Vec<&str> = log.lines().collect();
    let left = lines.iter().position(|line| line.contains("/waits.php"));
    let left = lines.remove(left.unwrap());
    lines.push(left);
    let folder = place.path("").to_str().unwrap().to_owned();
    let log = lines.join("\n") + "\n";
    String::from_utf8(replace(log.as_bytes(), folder.as_bytes(), b"@/")).unwrap()
}

/// A web server closes its connection because its client has left.
fn leave(place: &Place) {
    let script = place.path("waits.php");
    let params = [
        ("SCRIPT_FILENAME", script.to_str().unwrap()),
        ("SCRIPT_NAME", "/waits.php"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", "/waits.php"),
        ("QUERY_STRING", ""),
    ];
    let mut stream = UnixStream::connect(place.path("fpm.sock")).unwrap();
    stream.write_all(&encode(&params, "")).unwrap();
    wait_until("it runs", || place.path("tmp/begun").exists());
    drop(stream);
    fs::write(place.path("tmp/go"), "").unwrap();
}

#[test]
fn the_access_log_of_all_kinds_of_requests_is_php_fpm_s() {
    for pool in [
        "",
        "php_admin_value[cgi.fix_pathinfo] = 0",
        "security.limit_extensions =",
    ] {
        let [fpm, weir] = [false, true].map(|weir| logged(weir, pool));
        if fpm != weir {
            for (a, b) in fpm.lines().zip(weir.lines()).filter(|(a, b)| a != b) {
                eprintln!("{pool}\n  fpm  {a}\n  weir {b}");
            }
        }
        assert_same(weir.as_bytes(), fpm.as_bytes(), pool);
    }
}
