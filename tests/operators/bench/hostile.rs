//! Servers that close, cut off, send nonsense, stay silent or never end, and limits that are reached.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use rustix::process::Signal;

use weir_test::{process, wait_until, weir::program};

use super::server::{Server, answer};
use super::{bench, failures, finish, number, read, report, start, text};

/// Sends four requests of two users to a server that handles each with `serve`: all fail, for this reason.
#[track_caller]
fn expect_failures(reason: &str, serve: impl Fn(&mut super::server::Talk) + Send + Sync + 'static) {
    let server = Server::start(move |talk| {
        if talk.request().is_some() {
            serve(talk);
        }
    });
    let words = ["-c", "2", "-n", "4", "--timeout", "2s", "--no-probe"];
    let url = server.url("/");
    let all: Vec<&str> = [url.as_str()].into_iter().chain(words).collect();
    let report = report(&all);
    assert_eq!(failures(&report, reason), 4, "{report:#}");
    assert_eq!(number(&report["transactions"]), 0);
    assert_eq!(report["availability"], 0.0);
}

#[test]
fn an_answer_that_is_cut_off_is_no_answer() {
    expect_failures("truncated", |talk| {
        talk.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nten bytes.");
    });
    expect_failures("truncated", |talk| {
        talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    });
    expect_failures("closed", |talk| {
        talk.say("HTTP/1.1 200 OK\r\nContent-");
    });
    expect_failures("closed", |_| {});
}

#[test]
fn garbage_is_told_as_such() {
    expect_failures("bad_response", |talk| {
        talk.say("220 mail.example ESMTP\r\n");
        talk.wait_for_close();
    });
    expect_failures("bad_response", |talk| {
        talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
        talk.wait_for_close();
    });
    expect_failures("bad_response", |talk| {
        // A head that never ends.
        talk.say("HTTP/1.1 200 OK\r\n");
        while talk.say(format!("X-More: {}\r\n", "x".repeat(1000))) {}
    });
}

#[test]
fn who_gives_up_closes_the_connection() {
    let server = Server::start(|talk| {
        // A client that is late may give up before its request has arrived.
        talk.request();
        talk.wait_for_close();
    });
    // A client that is even later may give up before it has connected.
    let all_have_left = || server.left() == server.connections();
    let url = server.url("/");
    let words = ["-c", "2", "-n", "4", "--timeout", "200ms", "--no-probe"];
    let all: Vec<&str> = [url.as_str()].into_iter().chain(words).collect();
    let closed = report(&all);
    assert_eq!(failures(&closed, "timeout"), 4, "{closed:#}");
    let shortest = closed["failed_time"]["min"].as_f64().expect("a time");
    assert!(shortest >= 0.199, "{closed:#}");
    wait_until("all have left", || server.left() > 0 && all_have_left());
    // A response without an end also runs into the timeout.
    expect_failures("timeout", |talk| {
        talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while talk.say("1\r\nx\r\n") {
            std::thread::yield_now();
        }
    });
    let words = ["-r", "20", "-n", "4", "--timeout", "200ms", "--no-probe"];
    let all: Vec<&str> = [url.as_str()].into_iter().chain(words).collect();
    let open = report(&all);
    // In an open loop, a machine that stands still for as long as the timeout has no time left to send.
    let gave_up = failures(&open, "timeout") + failures(&open, "not_sent");
    assert_eq!(gave_up, 4, "{open:#}");
    wait_until("those too", all_have_left);
}

#[test]
fn kept_connections_that_the_server_closes_are_no_failures() {
    // The server answers, and closes without having announced it.
    let server = Server::start(|talk| {
        if talk.request().is_some() {
            talk.say(answer("200 OK", "", "once"));
        }
    });
    let closing = report(&[&server.url("/"), "-c", "3", "-n", "60", "--no-probe"]);
    assert_eq!(number(&closing["transactions"]), 60, "{closing:#}");
    assert_eq!(number(&closing["generator"]["connections"]), 60);
    assert_eq!(server.connections(), 60);

    // The server closes when it has read the second request. `weir bench` sends a GET again, but not a POST, which may
    // have changed something.
    let server = || {
        Server::start(|talk| {
            if talk.request().is_some() {
                talk.say(answer("200 OK", "", "once"));
                talk.request();
            }
        })
    };
    let get = server();
    let gets = report(&[&get.url("/"), "-c", "1", "-n", "10", "--no-probe"]);
    assert_eq!(number(&gets["transactions"]), 10, "{gets:#}");
    assert_eq!(number(&gets["generator"]["sent_again"]), 9);
    let post = server();
    let posts = report(&[
        &post.url("/"),
        "-c",
        "1",
        "-n",
        "10",
        "--body",
        "a",
        "--no-probe",
    ]);
    assert_eq!(number(&posts["transactions"]), 5, "{posts:#}");
    assert_eq!(failures(&posts, "closed"), 5, "{posts:#}");
    assert_eq!(number(&posts["generator"]["sent_again"]), 0);
}

#[test]
fn answers_of_all_shapes_are_read_whole() {
    for (answer, bytes) in [
        ("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(), 2),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-After: z\r\n\r\n".to_owned(), 5),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), 0),
        (answer("200 OK", "", &"x".repeat(3_000_000)), 3_000_000),
    ] {
        let server = Server::always(answer);
        let report = report(&[&server.url("/"), "-c", "2", "-n", "6", "--no-probe"]);
        assert_eq!(number(&report["transactions"]), 6, "{report:#}");
        assert_eq!(number(&report["bytes"]), bytes * 6);
    }
    // The end of the connection marks the end of the answer.
    let server = Server::start(|talk| {
        if talk.request().is_some() {
            talk.say("HTTP/1.0 200 OK\r\n\r\nup to the end");
        }
    });
    let report = report(&[&server.url("/"), "-c", "2", "-n", "6", "--no-probe"]);
    assert_eq!(
        (number(&report["transactions"]), number(&report["bytes"])),
        (6, 78)
    );
}

#[test]
fn a_server_that_goes_away_meanwhile_does_not_end_the_load() {
    let answered = std::sync::Arc::new(AtomicUsize::new(0));
    let seen = answered.clone();
    let mut server = Server::start(move |talk| {
        if talk.request().is_some() && talk.say(answer("200 OK", "Connection: close\r\n", "")) {
            seen.fetch_add(1, SeqCst);
        }
    });
    let url = server.url("/");
    let child = start(&[&url, "-c", "20", "-n", "2000", "--json"]);
    wait_until("some were answered", || answered.load(SeqCst) > 50);
    server.shut();
    let report = read(&finish(child));
    let (good, failed) = (number(&report["transactions"]), number(&report["failed"]));
    assert_eq!(good + failed, 2000, "{report:#}");
    assert!(failures(&report, "connect_refused") > 0, "{report:#}");
}

#[test]
fn nobody_there_is_told_before_anything_is_sent() {
    let address = weir_test::free_address();
    for (words, says) in [
        (
            vec![format!("http://{address}/")],
            "nothing is listening there",
        ),
        (
            vec!["unix:/no/such.sock".to_owned()],
            "this socket does not exist",
        ),
        (
            vec!["http://no-such-host.invalid/".to_owned()],
            "no-such-host.invalid",
        ),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = bench(&words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{said}");
        assert!(said.contains(says) && output.stdout.is_empty(), "{said}");
    }
    for (says, answer) in [
        ("closes the connection", ""),
        ("is not HTTP", "SSH-2.0-x\r\n"),
        ("cut off", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"),
    ] {
        let server = Server::start(move |talk| {
            if talk.request().is_some() {
                talk.say(answer);
            }
        });
        let output = bench(&[&server.url("/")]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(69), "{said}");
        assert!(said.contains(says) && said.contains("--no-probe"), "{said}");
    }
    let silent = Server::start(|talk| talk.wait_for_close());
    let output = bench(&[&silent.url("/"), "--timeout", "300ms"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("within 300ms"), "{said}");
}

#[test]
fn an_interrupt_ends_with_the_report_so_far() {
    let server = Server::always(answer("200 OK", "", "x"));
    let child = start(&[&server.url("/"), "-c", "3", "-t", "600s", "--json"]);
    wait_until("some were answered", || server.requests().len() > 100);
    process::signal(child.id(), Signal::INT);
    let report = read(&finish(child));
    assert_eq!(report["stopped_early"], true);
    assert!(number(&report["transactions"]) > 90, "{report:#}");
    assert!(report["elapsed"].as_f64().expect("seconds") < 300.0);
    assert!(report["rate"].as_f64().expect("a rate") > 0.0);
    // This also holds while all of them wait.
    let server = Server::start(|talk| talk.wait_for_close());
    let child = start(&[
        &server.url("/"),
        "-c",
        "3",
        "-t",
        "600s",
        "--no-probe",
        "--json",
    ]);
    wait_until("they wait", || server.connections() == 3);
    process::signal(child.id(), Signal::TERM);
    let report = read(&finish(child));
    assert_eq!(number(&report["unfinished"]), 3, "{report:#}");
    assert!(report["availability"].is_null());
    assert!(report["clients"]["longest_wait_worst"].as_f64() > Some(0.0));
}

#[test]
fn before_the_load_an_interrupt_just_ends_it() {
    let silent = Server::start(|talk| talk.wait_for_close());
    let child = start(&[&silent.url("/"), "--timeout", "600s"]);
    // The probe sends its request on its second connection. The first only tests whether the server accepts.
    wait_until("it asks", || silent.connections() == 2);
    process::signal(child.id(), Signal::INT);
    let output = finish(child);
    assert_eq!(output.status.code(), None, "{}", text(&output.stderr));
    assert!(output.stdout.is_empty());
}

#[test]
fn who_looks_sees_how_far_it_is() {
    let server = Server::always(answer("200 OK", "", "x"));
    let line = format!("{} bench {} -c 2 -t 2500ms", program(), server.url("/"));
    let output = std::process::Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("script");
    let said = text(&output.stdout);
    assert!(
        said.contains(" a second, ") && said.contains(" under way"),
        "{said}"
    );
    assert!(said.contains("Availability:"), "{said}");
    // If the output is not a terminal, it would only disturb.
    let output = bench(&[&server.url("/"), "-c", "2", "-t", "1200ms"]);
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn descriptors_that_are_too_few_are_told_or_done_with() {
    let server = Server::always(answer("200 OK", "", "x"));
    let limited = |words: &[&str]| {
        let mut command = std::process::Command::new("prlimit");
        command.args(["--nofile=60:60", program(), "bench", &server.url("/")]);
        let output = command
            .args(words)
            .stdin(std::process::Stdio::null())
            .output();
        output.expect("prlimit")
    };
    let output = limited(&["-c", "100"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(
        said.contains("open files") && said.contains("ulimit -n"),
        "{said}"
    );
    let report = read(&limited(&["-r", "100", "-n", "20", "--json"]));
    assert_eq!(number(&report["transactions"]), 20, "{report:#}");
    assert!(
        report["notes"][0]
            .as_str()
            .is_some_and(|note| note.contains("open files")),
        "{report:#}"
    );
}

#[test]
fn requests_beyond_the_limit_of_connections_wait_here_and_that_is_told() {
    let server = Server::start(|talk| {
        while talk.request().is_some() {
            std::thread::sleep(Duration::from_millis(50));
            if !talk.say(answer("200 OK", "", "")) {
                break;
            }
        }
    });
    let url = server.url("/");
    let words = [
        "-r",
        "4000",
        "-n",
        "40",
        "--max-connections",
        "2",
        "--threads",
        "1",
        "--no-probe",
    ];
    let all: Vec<&str> = [url.as_str()].into_iter().chain(words).collect();
    let patient = report(&all);
    assert_eq!(number(&patient["transactions"]), 40, "{patient:#}");
    assert_eq!(server.connections(), 2);
    // 40 requests, two at a time, 50 ms each: the last has waited for almost a second.
    assert!(
        patient["response_time"]["max"].as_f64() > Some(0.8),
        "{patient:#}"
    );
    assert!(
        patient["warnings"]
            .to_string()
            .contains("--max-connections"),
        "{patient:#}"
    );
    let all: Vec<&str> = all.into_iter().chain(["--timeout", "300ms"]).collect();
    let hasty = report(&all);
    assert!(failures(&hasty, "not_sent") > 10, "{hasty:#}");
    let ended = number(&hasty["transactions"]) + number(&hasty["failed"]);
    assert_eq!(ended, 40);
}
