//! The counts of `weir bench` are those of the server's own log.

use std::collections::BTreeMap;
use std::path::Path;

use weir_test::front::WebServer;
use weir_test::{Setup, wait_until};

use super::server::{Server, answer};
use super::{bench, failures, number, report, text};

/// Complete lines of a log.
fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    whole.map(str::to_owned).collect()
}

/// Runs each kind of load against a server whose log is `log`. `url` has a page, `missing` has none.
#[track_caller]
fn compare(url: &str, missing: &str, log: &Path) {
    let mut before = lines(log).len() as u64;
    let mut check = |words: &[&str], good: bool| {
        let mut all = words.to_vec();
        all.push("--no-probe");
        let report = report(&all);
        let ended = number(&report["transactions"])
            + number(&report["refused"])
            + number(&report["failed"]);
        let expected = before + ended;
        wait_until(&format!("{ended} lines of {words:?}"), || {
            lines(log).len() as u64 >= expected
        });
        assert_eq!(lines(log).len() as u64, expected, "{words:?}: {report:#}");
        before = expected;
        match good {
            true => {
                assert_eq!(number(&report["transactions"]), ended, "{report:#}");
                assert_eq!(report["availability"], 100.0);
                assert_eq!(number(&report["statuses"]["200"]), ended);
                // Six bytes for each answer.
                assert_eq!(number(&report["bytes"]), ended * 6);
            }
            false => assert_eq!(number(&report["statuses"]["404"]), ended, "{report:#}"),
        }
        let points = report["series"].as_array().expect("a series");
        for (name, total) in [("good", "transactions"), ("failed", "failed")] {
            let sum: u64 = points.iter().map(|point| number(&point[name])).sum();
            assert_eq!(sum, number(&report[total]), "{name}: {report:#}");
        }
        let bars = report["histogram"].as_array().expect("bars");
        let sum: u64 = bars.iter().map(|bar| number(&bar["count"])).sum();
        assert_eq!(sum, number(&report["transactions"]));
        (ended, report)
    };
    let (ended, kept) = check(&[url, "-c", "20", "-n", "2000"], true);
    assert_eq!(ended, 2000);
    assert_eq!(number(&kept["clients"]["count"]), 20);
    let (_, threads) = check(&[url, "-c", "9", "-n", "500", "--threads", "4"], true);
    assert_eq!(number(&threads["generator"]["threads"]), 4);
    let (ended, closed) = check(&[url, "-c", "5", "-n", "300", "--no-keepalive"], true);
    assert_eq!(
        (ended, number(&closed["generator"]["connections"])),
        (300, 300)
    );
    let (ended, _) = check(&[url, "-c", "5", "-t", "1s"], true);
    assert!(ended > 5);
    let (ended, open) = check(&[url, "-r", "200", "-t", "1s", "--threads", "2"], true);
    assert_eq!((ended, &open["mode"]), (200, &"open".into()));
    let (ended, _) = check(
        &[
            url,
            "-r",
            "1000",
            "-n",
            "150",
            "--poisson",
            "--no-keepalive",
        ],
        true,
    );
    assert_eq!(ended, 150);
    let (ended, _) = check(&[missing, "-c", "3", "-n", "30"], false);
    assert_eq!(ended, 30);
}

#[test]
fn nginx_has_logged_the_same() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let folder = folder.path();
    let root = folder.join("root");
    std::fs::create_dir(&root).expect("mkdir");
    std::fs::write(root.join("page.html"), "a page").expect("write");
    weir_test::weir::mode(folder, 0o755);
    weir_test::weir::mode(&root, 0o755);
    let log = folder.join("access.log");
    let nginx = WebServer::nginx(
        folder,
        &format!("root {}; access_log {};", root.display(), log.display()),
        "keepalive_requests 70;",
    );
    let url = |path: &str| format!("http://{}{path}", nginx.address());
    compare(&url("/page.html"), &url("/none.html"), &log);
}

#[test]
fn weir_has_logged_the_same_over_tcp_and_unix() {
    let setup = Setup::new().file("page.html", "a page");
    let socket = setup.folder().join("web.sock");
    let socket = socket.display().to_string();
    let weir = setup
        .more(&format!(
            "[listen.local]\naddress = \"unix:{socket}\"\nmode = \"0666\"\n"
        ))
        .start();
    let log = weir.folder().join("log/access.log");
    let url = |path: &str| format!("http://{}{path}", weir.address());
    compare(&url("/page.html"), &url("/none.html"), &log);
    let local = format!("unix:{socket}:/page.html");
    compare(&local, &format!("unix:{socket}:/none"), &log);
    let named = report(&[
        "http://shop.example/page.html",
        "--unix",
        &socket,
        "-n",
        "10",
    ]);
    assert_eq!(number(&named["transactions"]), 10, "{named:#}");
    assert_eq!(weir.logged("/page.html")["status"], 200);
}

#[test]
fn the_probe_is_one_request_more_and_tells_its_status() {
    let server = Server::always(answer("404 Not Found", "", "no"));
    let output = bench(&[&server.url("/x"), "-n", "3", "-c", "1", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(server.requests().len(), 4);
    let said = text(&output.stderr);
    assert!(
        said.contains("GET /x is answered with 404 Not Found"),
        "{said}"
    );
    // A request that changes something is not sent more often than it was asked for.
    let server = Server::always(answer("200 OK", "", "yes"));
    report(&[&server.url("/x"), "-n", "3", "--body", "a=b"]);
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn refusals_and_failures_are_told_apart_by_status_and_reason() {
    let turn = std::sync::atomic::AtomicUsize::new(0);
    let refused = answer(
        "503 Service Unavailable",
        "Retry-After: 1\r\nProxy-Status: weir; error=connection_limit_reached; details=\"queue_full\"\r\n",
        "",
    );
    let server = Server::start(move |talk| {
        while talk.request().is_some() {
            let turn = turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            talk.say(match turn % 4 {
                0 => answer("200 OK", "", "good"),
                1 => refused.clone(),
                2 => answer("500 Internal Server Error", "", ""),
                _ => answer("302 Found", "Location: http://192.0.2.1/\r\n", ""),
            });
        }
    });
    let report = report(&[&server.url("/"), "-c", "1", "-n", "40", "--no-probe"]);
    assert_eq!(number(&report["transactions"]), 20, "{report:#}");
    assert_eq!(
        (number(&report["refused"]), number(&report["failed"])),
        (10, 10)
    );
    assert_eq!(report["availability"], 50.0);
    assert_eq!(failures(&report, "queue_full"), 10);
    assert_eq!(number(&report["refused_time"]["count"]), 10);
    assert_eq!(number(&report["response_time"]["count"]), 20);
    assert_eq!(
        report["retry_after"],
        serde_json::json!({ "count": 10, "min": 1, "max": 1 })
    );
    let text = text(&bench(&[&server.url("/"), "-c", "1", "-n", "40", "--no-probe"]).stdout);
    for word in [
        "503 queue_full",
        "10 of 10 refusals have Retry-After: 1 to 1 s",
        "Availability:",
        "50.00 %",
        "refused",
        "p99.9",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let code = bench(&[&server.url("/"), "-n", "40", "--fail-below", "99"])
        .status
        .code();
    assert_eq!(code, Some(1));
    let code = bench(&[&server.url("/"), "-n", "40", "--fail-below", "20"])
        .status
        .code();
    assert_eq!(code, Some(0));
}

#[test]
fn what_is_sent_is_what_was_asked_for() {
    let server = Server::always(answer("200 OK", "", ""));
    let folder = tempfile::TempDir::new().expect("a folder");
    let body = folder.path().join("body");
    std::fs::write(&body, "x=y").expect("write");
    report(&[
        &server.url("/p?q=r"),
        "-n",
        "1",
        "-m",
        "put",
        "--body",
        &format!("@{}", body.display()),
        "-H",
        "Content-Type: text/plain",
        "-H",
        "X-Who: me",
        "-H",
        "Host: shop.example",
    ]);
    let heads = server.heads();
    let head = heads[0].to_ascii_lowercase();
    assert!(head.starts_with("put /p?q=r http/1.1\r\n"), "{head}");
    for line in [
        "host: shop.example",
        "content-type: text/plain",
        "x-who: me",
        "content-length: 3",
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
    }

    let file = folder.path().join("urls");
    std::fs::write(
        &file,
        format!("/a\n# none\nHEAD /b\n{}\n", server.url("/c")),
    )
    .expect("write");
    let before = server.requests().len();
    let urls = file.display().to_string();
    report(&[
        &server.url("/"),
        "--urls",
        &urls,
        "-c",
        "1",
        "-n",
        "6",
        "--no-probe",
    ]);
    let sent: Vec<String> = server.requests()[before..]
        .iter()
        .map(|(_, line)| line.trim_end_matches(" HTTP/1.1").to_owned())
        .collect();
    assert_eq!(
        sent,
        ["GET /a", "HEAD /b", "GET /c", "GET /a", "HEAD /b", "GET /c"]
    );
    let before = server.requests().len();
    report(&[
        &server.url("/"),
        "--urls",
        &urls,
        "--random",
        "-c",
        "1",
        "-n",
        "300",
        "--no-probe",
    ]);
    let mut counts = BTreeMap::<String, usize>::new();
    for (_, line) in &server.requests()[before..] {
        *counts.entry(line.clone()).or_default() += 1;
    }
    assert!(
        counts.len() == 3 && counts.values().all(|count| *count > 50),
        "{counts:?}"
    );
}

#[test]
fn connections_may_come_from_several_addresses() {
    let server = Server::always(answer("200 OK", "", ""));
    let words = [
        "-c",
        "6",
        "-n",
        "60",
        "--source",
        "127.0.0.2",
        "--source",
        "127.0.0.3",
    ];
    let url = server.url("/");
    let all: Vec<&str> = [url.as_str(), "--no-probe"]
        .into_iter()
        .chain(words)
        .collect();
    report(&all);
    let peers: std::collections::BTreeSet<String> = server
        .peers()
        .iter()
        .map(|peer| peer.ip().to_string())
        .collect();
    assert_eq!(
        peers.into_iter().collect::<Vec<_>>(),
        ["127.0.0.2", "127.0.0.3"]
    );
}
