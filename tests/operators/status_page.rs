//! The status page and ping page of PHP-FPM as weir answers them, compared with those of a real PHP-FPM.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use weir_test::fcgi::Responder;
use weir_test::front::{Answered, Front, Params, request};
use weir_test::php::{Fpm, identity};
use weir_test::{Gate, Setup, Weir, free_address, wait_until};

/// The lines of a listener for a web server in front.
fn front(address: SocketAddr, lines: &str) -> String {
    format!(
        "[listen.front]\nprotocol = \"fastcgi\"\naddress = \"{address}\"\npool = \"app\"\n{lines}\n"
    )
}

fn head_and_body(answered: &Answered) -> (String, String) {
    let (head, body) = answered.text();
    // php.ini decides whether PHP shows its version.
    let head: Vec<&str> = head
        .lines()
        .filter(|line| !line.starts_with("X-Powered-By"))
        .collect();
    (head.join("\n"), body)
}

/// A page without its values: this part must be the same.
fn shape(format: &str, page: &str) -> String {
    let replace = |text: &str, pattern: &str, with: &str| {
        let regex = Regex::new(pattern).expect("a pattern");
        regex.replace_all(text, with).into_owned()
    };
    match format {
        "json" => {
            let page = replace(page, r#":"(?:[^"\\]|\\.)*""#, ":\"\"");
            let page = replace(&page, r":\d+\.\d\d", ":0.00");
            replace(&page, r":\d+([,}])", ":0$1")
        }
        "xml" | "html" => {
            let page = replace(page, r"<td>[^<]*</td>", "<td></td>");
            replace(&page, r"<([a-z-]+)>[^<\n]+</[a-z-]+>", "<$1></$1>")
        }
        "openmetrics" => replace(page, r"(?m) \d+$", " 0"),
        _ => replace(page, r"(?m)^(.{22}).*$", "$1"),
    }
}

#[test]
fn the_pages_are_laid_out_as_php_fpms() {
    let setup = Setup::new().file("show.php", "<?php echo 1;");
    let fpm_folder = setup.folder().join("fpm");
    std::fs::create_dir(&fpm_folder).expect("mkdir");
    let lines = "pm.status_path = /status\nping.path = /ping\nping.response = \"the <answer>\"\n";
    let fpm = Fpm::unix_with(&fpm_folder, 2, lines);
    let address = free_address();
    let weir = setup
        .pool(&format!(
            "runtime = \"php\"\npm = \"static\"\nmax_children = 2\nstatus_path = \"/status\"\nping_path = \"/ping\"\n\
             ping_response = \"the <answer>\"\n{}",
            identity()
        ))
        .more(&front(address, ""))
        .start();
    wait_until("the listener is there", || {
        TcpStream::connect(address).is_ok()
    });
    let root = weir.root();
    let both = |target: &str, method: &str| {
        let params = Params::get(&root, target).with("REQUEST_METHOD", method);
        let of_fpm = Front::unix(Path::new(fpm.socket())).ask(&params, b"");
        let of_weir = Front::tcp(address).ask(&params, b"");
        (head_and_body(&of_fpm), head_and_body(&of_weir))
    };
    // The workers have served requests, so the figures exist.
    for _ in 0..4 {
        both("/show.php?a=1&b=2", "GET");
    }
    wait_until("weir's workers are there", || {
        weir.get("/status?json")
            .expect(200)
            .text()
            .contains("\"total processes\":2")
    });
    for format in ["", "json", "xml", "html", "openmetrics"] {
        for full in ["", "full"] {
            let target = format!("/status?{format}&{full}");
            let (of_fpm, of_weir) = both(&target, "GET");
            assert_eq!(of_weir.0, of_fpm.0, "{target}");
            assert_eq!(
                shape(format, &of_weir.1),
                shape(format, &of_fpm.1),
                "{target}"
            );
            if format == "json" {
                let types = |page: &str| {
                    let page: Value = serde_json::from_str(page).expect("JSON");
                    let process = &page["processes"][0];
                    (
                        page["start time"].is_u64(),
                        process["last request cpu"].is_f64(),
                    )
                };
                assert_eq!(types(&of_weir.1), types(&of_fpm.1));
            }
        }
    }
    let (of_fpm, of_weir) = both("/ping", "GET");
    assert_eq!(of_weir, of_fpm);
    assert_eq!(of_weir.1, "the <answer>");
    let (of_fpm, of_weir) = both("/ping", "HEAD");
    assert_eq!(of_weir, of_fpm);
    let (of_fpm, of_weir) = both("/status?json", "HEAD");
    assert_eq!((of_weir.1, of_fpm.1), (String::new(), String::new()));
    // A longer path that begins like this belongs to a script.
    let (of_fpm, of_weir) = both("/status/more", "GET");
    assert!(
        of_fpm.0.starts_with("Status: 404") && of_weir.0.starts_with("Status: 404"),
        "{of_weir:?}"
    );
}

/// A pool of one worker, which waits at the gate, with both pages.
fn gated(setup: Setup, lines: &str) -> (Weir, Responder, Gate, SocketAddr) {
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("served");
    });
    let pool = format!(
        "{}status_path = \"/status\"\nping_path = \"/ping\"\n{lines}",
        responder.pool(1)
    );
    let address = free_address();
    let weir = setup
        .file("run.php", "")
        .pool(&pool)
        .more(&front(address, ""))
        .start();
    wait_until("the listener is there", || {
        TcpStream::connect(address).is_ok()
    });
    (weir, responder, gate, address)
}

#[test]
fn the_pages_are_there_when_no_worker_is() {
    let (weir, responder, gate, address) = gated(Setup::new(), "queue.max_queue = 1\n");
    let mut running = weir.client();
    running.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("one is at work", || responder.running() == 1);
    let mut waits = Front::tcp(address);
    waits.send(request(
        1,
        true,
        &Params::get(&weir.root(), "/run.php"),
        b"",
    ));
    let status = || -> Value {
        let page = weir.get("/status?json").expect(200);
        assert_eq!(page.header("content-type"), Some("application/json"));
        assert_eq!(
            page.header("cache-control"),
            Some("no-cache, no-store, must-revalidate, max-age=0")
        );
        assert_eq!(
            page.header("expires"),
            Some("Thu, 01 Jan 1970 00:00:00 GMT")
        );
        serde_json::from_slice(&page.body).expect("JSON")
    };
    wait_until("one waits", || status()["listen queue"] == 1);
    let page = status();
    assert_eq!(page["active processes"], 1);
    assert_eq!(page["listen queue len"], 1);
    assert_eq!(page["pool"], "app");
    weir.get("/run.php").expect(503);
    assert_eq!(weir.get("/ping").expect(200).text(), "pong");
    let (_, pong) = Front::tcp(address)
        .ask(&Params::get(&weir.root(), "/ping"), b"")
        .text();
    assert_eq!(pong, "pong");
    let head = weir.request("HEAD", "/status", &[], b"").expect(200);
    assert_eq!(
        head.header("content-type"),
        Some("text/plain;charset=UTF-8")
    );
    gate.open();
    running.response().expect(200);
    waits.answer(1).text();
}

#[test]
fn nobody_sees_the_pages_where_they_are_not_configured_or_a_route_says_no() {
    let setup = Setup::new().file("status", "a file");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("a script"));
    let weir = setup.pool(&responder.pool(1)).start();
    assert_eq!(weir.get("/status").expect(200).text(), "a file");
    weir.get("/ping").expect(404);
    drop(weir);

    let route = "[[site.main.route]]\npath = \"/status\"\ndeny = true\n\
                 [site.other]\nhosts = [\"other.example\"]\n";
    let (weir, _responder, _gate, _) = gated(Setup::new().more(route), "");
    weir.get("/status").expect(403);
    weir.get("/ping").expect(200);
    // A site that does not use the pool does not have its pages.
    weir.request("GET", "/ping", &[("Host", "other.example")], b"")
        .expect(404);
}

#[test]
fn a_listener_for_the_pages_alone_runs_no_script() {
    let setup = Setup::new();
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("a script"));
    let address = free_address();
    let pool = format!("{}status_path = \"/status\"\n", responder.pool(1));
    let weir = setup
        .pool(&pool)
        .more(&front(address, "status_only = true"))
        .start();
    wait_until("the listener is there", || {
        TcpStream::connect(address).is_ok()
    });
    let ask = |target: &str| {
        Front::tcp(address)
            .ask(&Params::get(&weir.root(), target), b"")
            .text()
    };
    assert!(ask("/status").1.starts_with("pool:                 app\n"));
    assert!(ask("/run.php").0.starts_with("Status: 404 Not Found"));
    assert_eq!(responder.uris(), [] as [&str; 0]);
}
