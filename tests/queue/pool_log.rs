//! A pool's own log (`access_log`, `access_format`), compared with that of a real PHP-FPM.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use regex::Regex;
use rustix::process::Signal;

use weir_test::fcgi::Responder;
use weir_test::front::{Front, Params};
use weir_test::php::{Fpm, identity};
use weir_test::{Setup, free_address, wait_for, wait_until};

/// All codes whose values do not depend on time and chance.
const FORMAT: &str =
    r#"%R - %u [%{%Y}t %{%Y}T] "%m %r%Q%q" %s %f %l %n %{X-Who}o %{HTTP_HOST}e %{NONE}e %%"#;

#[test]
fn the_lines_are_php_fpms() {
    let setup = Setup::new().file(
        "show.php",
        "<?php header('X-Who: me'); http_response_code((int) ($_GET['status'] ?? 200)); echo 1;",
    );
    let fpm_folder = setup.folder().join("fpm");
    fs::create_dir(&fpm_folder).expect("mkdir");
    let fpm_log = fpm_folder.join("access.log");
    let lines = format!(
        "access.log = {}\naccess.format = \"{}\"\npm.status_path = /status\nping.path = /ping\n\
         access.suppress_path[] = /ping\n",
        fpm_log.display(),
        FORMAT.replace('"', "\\\"")
    );
    let fpm = Fpm::unix_with(&fpm_folder, 1, &lines);
    let socket = setup.folder().join("front.sock");
    let log = setup.folder().join("log/pool.log");
    let pool = format!(
        "runtime = \"php\"\npm = \"static\"\nmax_children = 1\nstatus_path = \"/status\"\nping_path = \"/ping\"\n\
         access_log = \"{}\"\naccess_format = '{FORMAT}'\naccess_suppress_path = [\"/ping\"]\n{}",
        log.display(),
        identity()
    );
    let more = format!(
        "[listen.front]\nprotocol = \"fastcgi\"\naddress = \"unix:{}\"\nmode = \"0666\"\npool = \"app\"\n",
        socket.display()
    );
    let weir = setup.pool(&pool).more(&more).start();
    wait_until("the socket is there", || {
        UnixStream::connect(&socket).is_ok()
    });
    let root = weir.root();
    let requests = [
        Params::get(&root, "/show.php"),
        Params::get(&root, "/show.php?a=1&b=%20"),
        Params::get(&root, "/show.php?status=418"),
        Params::get(&root, "/show.php")
            .with("HTTP_AUTHORIZATION", "Basic YWxhZGRpbjpvcGVuc2VzYW1l"),
        Params::get(&root, "/show.php").with("HTTP_AUTHORIZATION", "Bearer x"),
        Params::post(&root, "/show.php?x", 4),
        Params::get(&root, "/show.php").with("PATH_INFO", "/with/path-info"),
        Params::get(&root, "/status?json"),
        Params::get(&root, "/ping"),
        Params::get(&root, "/ping?query"),
        Params::get(&root, "/show.php").with("REQUEST_METHOD", "HEAD"),
    ];
    for params in &requests {
        let body: &[u8] = if params.has("CONTENT_LENGTH") {
            b"body"
        } else {
            b""
        };
        Front::unix(Path::new(fpm.socket()))
            .ask(params, body)
            .text();
        Front::unix(&socket).ask(params, body).text();
    }
    let lines_of = |path: &Path| {
        wait_for("all lines are written", || {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            // The log omits the ping without a query.
            (lines.len() == requests.len() - 1).then_some(lines)
        })
    };
    let (of_fpm, of_weir) = (lines_of(&fpm_log), lines_of(&log));
    assert_eq!(of_weir, of_fpm);
    drop(weir);
}

#[test]
fn what_a_request_cost_is_in_the_line() {
    let setup = Setup::new().file(
        "work.php",
        "<?php $until = microtime(true) + 0.05; while (microtime(true) < $until) { $a[] = str_repeat('x', 1000); }",
    );
    let log = setup.folder().join("log/pool.log");
    let pool = format!(
        "runtime = \"php\"\npm = \"static\"\nmax_children = 1\naccess_log = \"{}\"\n\
         access_format = '%p %P %d %{{milli}}d %{{micro}}d %C %M %{{kilo}}M %{{mega}}M %t'\n{}",
        log.display(),
        identity()
    );
    let weir = setup.pool(&pool).start();
    weir.get("/work.php").expect(200);
    let line = weir.wait_for_line("log/pool.log", &["/"]);
    let pattern = Regex::new(
        r"^(\d+) (\d+) (\d+\.\d{3}) (\d+\.\d{3}) (\d+) (\d+\.\d\d) (\d+) (\d+) (\d+) \d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}$",
    )
    .expect("a pattern");
    let parts = pattern.captures(&line).unwrap_or_else(|| panic!("{line}"));
    let number = |at: usize| parts[at].parse::<f64>().expect("a number");
    assert!(
        weir.processes()
            .iter()
            .any(|process| f64::from(process.pid) == number(1)),
        "{line}"
    );
    assert_eq!(number(2), f64::from(weir.pid()), "{line}");
    assert!(
        number(3) >= 0.05 && number(4) >= 50.0 && number(5) >= 50_000.0,
        "{line}"
    );
    assert!(number(6) > 0.0, "{line}");
    assert!(number(7) >= 1_000_000.0, "{line}");
    assert_eq!(number(8), (number(7) / 1024.0).floor(), "{line}");
    assert_eq!(number(9), (number(7) / 1_048_576.0).floor(), "{line}");
}

#[test]
fn a_log_is_reopened_and_a_client_cannot_forge_a_line() {
    let setup = Setup::new();
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("served"));
    let log = setup.folder().join("log/pool.log");
    let address = free_address();
    let pool = format!(
        "{}access_log = \"{}\"\naccess_format = '\"%r%Q%q\" %{{HTTP_X}}e %{{microseconds}}d'\n",
        responder.pool(1),
        log.display()
    );
    let more = format!(
        "[listen.front]\nprotocol = \"fastcgi\"\naddress = \"{address}\"\npool = \"app\"\n"
    );
    let weir = setup
        .file("a.php", "")
        .file("b.php", "")
        .pool(&pool)
        .more(&more)
        .start();
    weir.request("GET", "/a.php?q", &[("X", "a\" b")], b"")
        .expect(200);
    let line = weir.wait_for_line("log/pool.log", &["/a.php"]);
    assert!(line.starts_with(r#""/a.php?q" a\x22 b "#), "{line}");
    let hostile = Params::get(&weir.root(), "/b.php").with("HTTP_X", "1\n\"/forged\" - 2\u{1b}[2J");
    Front::tcp(address).ask(&hostile, b"").text();
    let line = weir.wait_for_line("log/pool.log", &["/b.php"]);
    assert!(
        line.contains(r#"1\x0A\x22/forged\x22 - 2\x1B[2J"#),
        "{line}"
    );

    let moved = weir.folder().join("log/moved.log");
    fs::rename(&log, &moved).expect("rename");
    weir.signal(Signal::USR1);
    wait_until("the log is there again", || log.exists());
    wait_until("lines go to the new file", || {
        weir.get("/a.php?again").expect(200);
        weir.read("log/pool.log").contains("?again")
    });
}
