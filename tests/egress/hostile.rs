//! Origins and callers that send bytes without a result: weir ends them, and they do not disturb the calls of others.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::trouble::{refused, url};
use weir_test::oddity::Oddity;
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::wait_until;
use weir_test::weir::request;

/// What an origin sends first, and what it then repeats without end.
const ENDLESS: [(&str, &str, &str); 6] = [
    (
        "/zeros",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0",
    ),
    (
        "/spaces",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5",
        " ",
    ),
    (
        "/extension",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;",
        "x",
    ),
    (
        "/trailers",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        "X-More: and more\r\n",
    ),
    ("/headers", "HTTP/1.1 200 OK\r\n", "X-More: and more\r\n"),
    ("/interim", "", "HTTP/1.1 103 Early Hints\r\n\r\n"),
];

/// Bytes that the kernel's buffers may take from a hostile side before it notices that weir does not read.
const BUFFERED: usize = 32 << 20;

/// One thread handles the calls to both origins.
fn two(script: impl Fn(&mut weir_test::oddity::Talk) + Send + Sync + 'static) -> Two {
    let (hostile, good) = (
        Oddity::plain(script),
        Oddity::plain(|talk| talk.answer_all("good")),
    );
    let sidecar = Outward::new()
        .plain_name("api.test", hostile.address())
        .plain_name("good.test", good.address())
        .lines("threads = 1")
        .usual("max_fails = 0\nretries = 0")
        .start();
    Two {
        hostile,
        good,
        sidecar,
    }
}

struct Two {
    hostile: Oddity,
    good: Oddity,
    sidecar: Sidecar,
}

impl Two {
    fn good(&self) -> String {
        format!("/good.test:{}/", self.good.address().port())
    }
}

#[test]
fn an_origin_that_sends_nothing_but_framing_is_cut_off_and_freezes_no_other_call() {
    let sent: Arc<Mutex<Vec<(String, usize)>>> = Arc::default();
    let told = sent.clone();
    let two = two(move |talk| {
        if let Some(asked) = talk.request() {
            let path = asked.split(' ').nth(1).unwrap_or_default().to_owned();
            let (_, begin, endless) = *ENDLESS
                .iter()
                .find(|(own, _, _)| *own == path)
                .expect("one of them");
            talk.send(begin);
            let bytes = talk.endless(endless);
            told.lock().expect("no panic").push((path, bytes));
        }
    });
    for (path, begin, _) in ENDLESS {
        let mut caller = two.sidecar.client();
        caller.send(request(
            "GET",
            &url(&two.hostile, path),
            &[(
                "Host",
                &format!("api.test:{}", two.hostile.address().port()),
            )],
            b"",
        ));
        // Other calls continue meanwhile.
        for _ in 0..20 {
            assert_eq!(two.sidecar.get(&two.good()).expect(200).text(), "good");
        }
        let answer = caller.response_if_any("GET");
        if begin.contains("\r\n\r\n") {
            // The head may have arrived before the reset.
            let whole = answer.is_some_and(|answer| answer.status != 200 || answer.whole);
            assert!(!whole, "{path}");
        } else {
            let (error, reason) = match path {
                "/headers" => ("http_response_header_section_size", "head_too_large"),
                _ => ("http_protocol_error", "bad_response"),
            };
            refused(&answer.expect("an answer"), 502, error, reason);
        }
        wait_until("the origin is told", || {
            let sent = sent.lock().expect("no panic");
            sent.iter().any(|(own, _)| own == path)
        });
    }
    for (path, bytes) in sent.lock().expect("no panic").iter() {
        assert!(*bytes < BUFFERED, "{path}: {bytes} bytes were taken");
    }
}

#[test]
fn a_caller_that_sends_nothing_but_framing_is_cut_off_and_freezes_no_other_call() {
    let two = two(
        |talk| {
            while talk.request().is_some() && talk.answer("fine") {}
        },
    );
    for (begin, endless) in [
        ("", "0"),
        ("5", " "),
        ("5;", "x"),
        ("0\r\n", "X-More: more\r\n"),
    ] {
        let mut caller = two.sidecar.client();
        let port = two.hostile.address().port();
        caller.send(format!(
            "POST /api.test:{port}/ HTTP/1.1\r\nHost: weir\r\nTransfer-Encoding: chunked\r\n\r\n{begin}"
        ));
        let mut stream = caller.stream().try_clone().expect("a descriptor");
        let taken = Arc::new(AtomicUsize::new(0));
        let count = taken.clone();
        let sending = thread::spawn(move || {
            let piece = endless.repeat(8192 / endless.len());
            while stream.write_all(piece.as_bytes()).is_ok() {
                count.fetch_add(piece.len(), Ordering::SeqCst);
            }
        });
        for _ in 0..20 {
            assert_eq!(two.sidecar.get(&two.good()).expect(200).text(), "good");
        }
        sending.join().expect("it ends");
        let taken = taken.load(Ordering::SeqCst);
        assert!(taken < BUFFERED, "{endless:?}: {taken} bytes were taken");
    }
    assert!(
        two.hostile.asked().is_empty(),
        "nothing of it was passed on"
    );
}

/// The limit applies to bytes without a result, not to the bytes of a body, however small its pieces are.
#[test]
fn a_long_body_in_small_pieces_comes_whole_both_ways() {
    const PIECES: usize = 60_000;
    let two = two(|talk| {
        talk.request();
        let body = "1\r\nx\r\n".repeat(PIECES);
        talk.send("HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
        talk.send(format!("{body}0\r\n\r\n"));
    });
    let mut caller = two.sidecar.client().patient(Duration::from_secs(120));
    let port = two.hostile.address().port();
    let body = "1\r\nx\r\n".repeat(PIECES);
    caller.send(format!(
        "POST /api.test:{port}/ HTTP/1.1\r\nHost: weir\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n"
    ));
    let answer = caller.response().expect(200);
    assert!(answer.whole && answer.body == b"x".repeat(PIECES));
    let asked = two.hostile.requests();
    let sent: usize = asked[0].iter().filter(|byte| **byte == b'x').count();
    assert!(sent >= PIECES, "{sent}");
}
