//! Servers that fail, and which requests are repeated.

use std::{
    io::{Read, Write},
    net::Shutdown,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use weir_test::{free_address, wait_until};

use super::{Server, start};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn connections_are_used_again_until_the_server_closes_them() {
    let server = Server::start(|request, stream| {
        stream.write_all(OK).is_ok() && !request.line.contains("/last")
    });
    let weir = start(&[&server], "");
    for path in ["/a", "/b", "/last", "/c", "/d"] {
        assert_eq!(weir.get(path).expect(200).text(), "ok");
    }
    let used: Vec<usize> = server.received().iter().map(|got| got.connection).collect();
    assert_eq!(used, [1, 1, 1, 2, 2]);
    drop(weir);
    let weir = start(&[&server], "keep_conn = false");
    for _ in 0..2 {
        weir.get("/e").expect(200);
    }
    let used: Vec<usize> = server.received().iter().map(|got| got.connection).collect();
    assert_eq!(used[5..], [3, 4]);
}

/// A connection that the server closes while it is idle is not held until somebody needs it.
#[test]
fn an_idle_connection_that_the_server_closes_is_closed() {
    let closed = Arc::new(AtomicBool::new(false));
    let note = closed.clone();
    let server = Server::start(move |_, stream| {
        stream.write_all(OK).expect("an answer");
        stream.shutdown(Shutdown::Write).expect("an end");
        let mut byte = [0];
        // weir closes its side, too.
        let ended = matches!(stream.read(&mut byte), Ok(0));
        note.store(ended, Ordering::SeqCst);
        false
    });
    let weir = start(&[&server], "");
    weir.get("/").expect(200);
    wait_until("weir closes it", || closed.load(Ordering::SeqCst));
    drop(weir);
}

/// A server that closes its connection before it answers: a request that may be repeated goes to the next server, any
/// other one is an error.
#[test]
fn only_what_may_be_repeated_is_repeated() {
    let bad = Server::start(|_, _| false);
    let good = Server::start(|_, stream| stream.write_all(OK).is_ok());
    let weir = start(&[&bad, &good], "balance = \"first\"\nmax_fails = 0");
    assert_eq!(weir.get("/").expect(200).text(), "ok");
    assert_eq!((bad.received().len(), good.received().len()), (1, 1));
    weir.request("POST", "/", &[], b"x")
        .expect(502)
        .expect_reason("worker_died");
    assert_eq!((bad.received().len(), good.received().len()), (2, 1));
}

/// A kept connection that the server closes while a request is sent: it is repeated over a new one.
#[test]
fn a_kept_connection_that_is_dead_costs_no_answer() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let server = Server::start(
        move |_, stream| match count.fetch_add(1, Ordering::SeqCst) {
            1 => false,
            _ => stream.write_all(OK).is_ok(),
        },
    );
    let weir = start(&[&server], "");
    for _ in 0..2 {
        weir.get("/").expect(200);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[test]
fn answers_that_are_not_http_are_errors() {
    for (answer, words) in [
        ("hello\n", "not valid HTTP"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
            "not valid HTTP",
        ),
        ("HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n", "not valid HTTP"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            "switches protocols",
        ),
    ] {
        let server = Server::start(move |_, stream| {
            let _ = stream.write_all(answer.as_bytes());
            false
        });
        let weir = start(&[&server], "retries = 0");
        weir.get("/").expect(502).expect_reason("bad_response");
        weir.wait_for_error(&[words]);
    }
}

#[test]
fn a_head_that_is_too_long_is_an_error() {
    let server = Server::start(|_, stream| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n",
            "x".repeat(9000)
        );
        stream.write_all(head.as_bytes()).is_ok()
    });
    let weir = start(&[&server], "max_response_head = \"8K\"");
    weir.get("/").expect(502).expect_reason("bad_response");
}

/// An answer that ends too early never looks complete.
#[test]
fn a_truncated_answer_does_not_look_complete() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ] {
        let server = Server::start(move |_, stream| {
            let _ = stream.write_all(answer.as_bytes());
            false
        });
        let weir = start(&[&server], "");
        let mut client = weir.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = client.response_if_any("GET");
        assert!(answer.is_none_or(|answer| !answer.whole || answer.status == 502));
        client.expect_closed();
    }
    // Without a stream the client can still get an error.
    let server = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        false
    });
    let weir = start(&[&server], "retries = 0");
    let mut client = weir.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.response_if_any("GET");
    assert!(answer.is_none_or(|answer| !answer.whole || answer.status == 502));
}

#[test]
fn a_server_that_is_silent_or_absent_is_an_error() {
    let silent = Server::start(|_, _| {
        std::thread::park();
        false
    });
    let weir = start(&[&silent], "read_timeout = \"100ms\"");
    weir.get("/").expect(504).expect_reason("terminated");
    drop(weir);
    let address = free_address();
    let setup = weir_test::Setup::new().admin();
    let lines = format!("runtime = \"servers\"\nprotocol = \"http\"\nservers = [\"{address}\"]");
    let weir = setup.pool(&lines).start();
    weir.get("/").expect(503).expect_reason("no_worker");
}

/// An early answer to a long upload is passed on, although the server reads no more.
#[test]
fn an_answer_before_the_end_of_an_upload_is_passed_on() {
    let server = Server::start(|_, stream| {
        stream
            .write_all(
                b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
            )
            .is_ok()
    });
    let weir = start(&[&server], "");
    let body = vec![b'x'; 1_000_000];
    assert_eq!(
        weir.request("POST", "/", &[], &body).expect(413).text(),
        "no"
    );
}

/// A client stays with its server by a cookie, while that is up.
#[test]
fn a_client_stays_with_its_server() {
    let up = Arc::new(AtomicBool::new(true));
    let server = |name: &'static str| {
        let up = up.clone();
        Server::start(move |_, stream| {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}");
            (name == "b" || up.load(Ordering::SeqCst))
                && stream.write_all(answer.as_bytes()).is_ok()
        })
    };
    let (a, b) = (server("a"), server("b"));
    let weir = start(
        &[&a, &b],
        "balance = \"roundrobin\"\nsticky = \"SERVER\"\nkeep_conn = false",
    );
    let first = weir.get("/").expect(200);
    let second = weir.get("/").expect(200);
    assert_ne!(first.text(), second.text());
    let (first, of_first) = (
        first.text(),
        first.header("set-cookie").expect("a cookie").to_owned(),
    );
    assert!(
        of_first.starts_with("SERVER=") && of_first.ends_with("; Path=/; HttpOnly; SameSite=Lax"),
        "{of_first}"
    );
    let cookie = of_first
        .split(';')
        .next()
        .expect("name and value")
        .to_owned();
    for _ in 0..6 {
        let again = weir
            .request("GET", "/", &[("Cookie", &cookie)], b"")
            .expect(200);
        assert_eq!(
            (again.text(), again.header("set-cookie")),
            (first.clone(), None)
        );
    }
    for wrong in ["SERVER=", "SERVER=zz", "SERVER=1", "SERVER=ffffffffffff"] {
        let answer = weir
            .request("GET", "/", &[("Cookie", wrong)], b"")
            .expect(200);
        assert!(answer.header("set-cookie").is_some());
    }
    // Its server fails: another one answers, and the client gets the number of that.
    if first == "a" {
        up.store(false, Ordering::SeqCst);
        let answer = weir
            .request("GET", "/", &[("Cookie", &cookie)], b"")
            .expect(200);
        assert_eq!(answer.text(), "b");
        assert!(
            answer
                .header("set-cookie")
                .is_some_and(|new| !new.starts_with(&cookie))
        );
    }
}

/// A server is down while its check gets another status than the expected ones.
#[test]
fn a_check_asks_over_http() {
    let ill = Arc::new(AtomicBool::new(false));
    let is_ill = ill.clone();
    let a = Server::start(move |request, stream| {
        let is_check = request.line == "GET /health HTTP/1.1";
        match is_check && is_ill.load(Ordering::SeqCst) {
            true => stream
                .write_all(b"HTTP/1.1 500 Ill\r\nContent-Length: 0\r\n\r\n")
                .is_ok(),
            false if is_check => stream.write_all(b"HTTP/1.1 204 Fine\r\n\r\n").is_ok(),
            false => stream.write_all(OK).is_ok(),
        }
    });
    let lines = "check = \"http\"\ncheck_path = \"/health\"\ncheck_status = \"204, 300-399\"\ncheck_interval = \"20ms\"\nhost = \"app.test\"";
    let weir = start(&[&a], lines);
    let state = || weir.status()["pools"][0]["servers"][0]["state"].clone();
    wait_until("it is up", || state() == "up");
    let check = a.received().remove(0);
    assert_eq!(check.all("host"), ["app.test"]);
    ill.store(true, Ordering::SeqCst);
    wait_until("it is down", || state() == "down");
    weir.wait_for_error(&["has failed its checks", "status 500"]);
    ill.store(false, Ordering::SeqCst);
    wait_until("it is up again", || state() == "up");
    // 200 is not among the statuses.
    assert_eq!(weir.get("/").expect(200).text(), "ok");
}
