//! Times: measured from the moment when a request should have been sent, the times of a log, and what does not count.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use weir_test::front::WebServer;
use weir_test::{Setup, wait_until, weir};

use super::server::{Server, answer};
use super::{number, report};

/// The number of good responses that took longer than this many seconds, from the histogram.
fn slower(report: &Value, seconds: f64) -> u64 {
    let bars = report["histogram"].as_array().expect("bars");
    let slow = bars
        .iter()
        .filter(|bar| bar["from"].as_f64() >= Some(seconds));
    slow.map(|bar| number(&bar["count"])).sum()
}

/// A server that stops for `stall` once, from its hundredth request on, for all connections at the same time.
fn stalling(stall: Duration) -> Server {
    let door = Arc::new(RwLock::new(0_u32));
    let count = Arc::new(Mutex::new(0_u32));
    Server::start(move |talk| {
        while talk.request().is_some() {
            let number = {
                let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
                *count += 1;
                *count
            };
            if number == 100 {
                let _shut = door.write().unwrap_or_else(PoisonError::into_inner);
                std::thread::sleep(stall);
            }
            drop(door.read().unwrap_or_else(PoisonError::into_inner));
            if !talk.say(answer("200 OK", "", "")) {
                break;
            }
        }
    })
}

#[test]
fn a_server_that_stands_still_is_seen_by_all_who_would_have_come() {
    let server = stalling(Duration::from_secs(1));
    let open = report(&[&server.url("/"), "-r", "200", "-t", "2s", "--no-probe"]);
    assert_eq!(number(&open["transactions"]), 400, "{open:#}");
    // The requests of one second came meanwhile. Half of them had to wait for more than half a second.
    assert!(slower(&open, 0.5) >= 95, "{open:#}");
    assert!(
        open["response_time"]["max"].as_f64() >= Some(0.95),
        "{open:#}"
    );
    assert!(
        open["response_time"]["p90"].as_f64() >= Some(0.5),
        "{open:#}"
    );
    // The same with only two connections: requests that wait in `weir bench` count like those that wait at the server.
    let server = stalling(Duration::from_secs(1));
    let narrow = report(&[
        &server.url("/"),
        "-r",
        "200",
        "-t",
        "2s",
        "--max-connections",
        "2",
        "--no-probe",
    ]);
    assert_eq!(number(&narrow["transactions"]), 400, "{narrow:#}");
    assert!(slower(&narrow, 0.5) >= 95, "{narrow:#}");
    // A user that waits sends no requests meanwhile, so a closed loop does not measure that time.
    let server = stalling(Duration::from_secs(1));
    let closed = report(&[&server.url("/"), "-c", "1", "-n", "400", "--no-probe"]);
    assert!(
        closed["response_time"]["max"].as_f64() >= Some(0.95),
        "{closed:#}"
    );
    let slow = closed["response_time"]["p99"].as_f64();
    assert!(slow < closed["response_time"]["max"].as_f64(), "{closed:#}");
}

#[test]
fn warming_up_does_not_count() {
    // The server is slow for the first quarter of a second.
    let began = Instant::now();
    let server = Server::start(move |talk| {
        while talk.request().is_some() {
            if began.elapsed() < Duration::from_millis(250) {
                std::thread::sleep(Duration::from_millis(250));
            }
            if !talk.say(answer("200 OK", "", "")) {
                break;
            }
        }
    });
    let words = [
        "-r",
        "100",
        "-t",
        "1s",
        "--warm-up",
        "1s",
        "--no-probe",
        "--timeout",
        "60s",
    ];
    let url = server.url("/");
    let all: Vec<&str> = [url.as_str()].into_iter().chain(words).collect();
    let report = report(&all);
    assert_eq!(number(&report["transactions"]), 100, "{report:#}");
    assert_eq!(number(&report["generator"]["warm_up_requests"]), 100);
    assert_eq!(server.requests().len(), 200);
    assert_eq!(report["elapsed"], 1.0);
    assert!(report["response_time"]["count"] == 100);
}

#[test]
fn a_logs_requests_come_as_far_apart_as_they_were() {
    let server = Server::always(answer("200 OK", "", ""));
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("access.log");
    let line = |ms: u32, uri: &str| {
        format!(
            "{{\"time_iso\":\"2026-11-20T18:14:0{}.{:03}+00:00\",\"method\":\"GET\",\"uri\":\"{uri}\",\"time_total\":0.0}}\n",
            ms / 1000,
            ms % 1000
        )
    };
    let text = [
        line(0, "/a"),
        line(4000, "/c"),
        line(2000, "/b"),
        "POST nonsense\n".into(),
    ]
    .concat();
    std::fs::write(&file, text).expect("write");
    let log = file.display().to_string();
    let report = report(&[
        &server.url("/"),
        "--replay",
        &log,
        "--speed",
        "4",
        "--no-probe",
    ]);
    assert_eq!(number(&report["transactions"]), 3, "{report:#}");
    assert_eq!(report["mode"], "replay");
    assert!(
        report["notes"].to_string().contains("1 lines"),
        "{report:#}"
    );
    let requests = server.requests();
    let order: Vec<&str> = requests.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(
        order,
        ["GET /a HTTP/1.1", "GET /b HTTP/1.1", "GET /c HTTP/1.1"]
    );
    // A request is never early. A busy machine may be late, also with the first one.
    let apart = requests[2].0 - requests[0].0;
    assert!(apart >= Duration::from_millis(500), "{apart:?}");
}

#[test]
fn weirs_own_logs_are_replayed_whole() {
    for format in ["json", "combined"] {
        let weir = Setup::new()
            .file("a.html", "a")
            .file("b.html", "b")
            .log(&format!("format = \"{format}\""))
            .start();
        let log = weir.folder().join("log/access.log");
        for path in ["/a.html", "/b.html?x=%22y%22", "/none", "/a.html"] {
            weir.get(path);
        }
        weir.request("POST", "/a.html", &[], b"x");
        wait_until("all are logged", || {
            weir.read("log/access.log").lines().count() == 5
        });
        let copy = weir.folder().join("copy.log");
        std::fs::copy(&log, &copy).expect("copy");
        let url = format!("http://{}/", weir.address());
        let copy = copy.display().to_string();
        let again = report(&[&url, "--replay", &copy, "--no-probe"]);
        assert_eq!(number(&again["transactions"]), 3, "{again:#}");
        assert_eq!(number(&again["statuses"]["404"]), 1, "{again:#}");
        assert!(
            again["notes"].to_string().contains("1 requests"),
            "{again:#}"
        );
        wait_until("and again", || {
            weir.read("log/access.log").lines().count() == 9
        });
        let lines = weir.read("log/access.log");
        assert_eq!(lines.matches("/b.html?x=%22y%22").count(), 2, "{lines}");
    }
}

#[test]
fn logs_of_nginx_and_apache_are_replayed_whole() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let folder = folder.path();
    let root = folder.join("root");
    std::fs::create_dir(&root).expect("mkdir");
    std::fs::write(root.join("a.html"), "a").expect("write");
    for path in [folder, &root] {
        weir::mode(path, 0o755);
    }
    let (root, place) = (root.display(), folder.display());
    let nginx = WebServer::nginx(
        folder,
        &format!("root {root}; access_log {place}/nginx.log;"),
        "",
    );
    let apache = WebServer::apache(
        folder,
        &format!(
            "DocumentRoot {root}\n<Directory {root}>\nRequire all granted\n</Directory>\n\
             LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\" combined\n\
             CustomLog {place}/apache.log combined"
        ),
    );
    for (server, name) in [(&nginx, "nginx.log"), (&apache, "apache.log")] {
        let log = folder.join(name);
        let url = |path: &str| format!("http://{}{path}", server.address());
        let lines = || {
            std::fs::read_to_string(&log)
                .unwrap_or_default()
                .matches('\n')
                .count()
        };
        report(&[&url("/a.html?b=%22c%22"), "-n", "30", "--no-probe"]);
        report(&[&url("/none"), "-n", "10", "--no-probe"]);
        wait_until("all are logged", || lines() == 40);
        let copy = folder.join("copy.log");
        std::fs::copy(&log, &copy).expect("copy");
        let copy = copy.display().to_string();
        let again = report(&[&url("/"), "--replay", &copy, "--speed", "10", "--no-probe"]);
        assert_eq!(number(&again["transactions"]), 30, "{name}: {again:#}");
        assert_eq!(number(&again["statuses"]["404"]), 10, "{name}: {again:#}");
        wait_until("and again", || lines() == 80);
        let text = std::fs::read_to_string(&log).expect("a log");
        assert_eq!(
            text.matches("/a.html?b=%22c%22").count(),
            60,
            "{name}: {text}"
        );
    }
}
