//! Attacks on HTTP/2: each ends its connection with GOAWAY and one line in the log, and others do not notice it.

use std::time::{Duration, Instant};

use weir_test::http2::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, Http2,
    INITIAL_WINDOW, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, usual,
};
use weir_test::process::resident;
use weir_test::{LIMIT, Responder, Setup, Weir, wait_until};

fn site() -> (Responder, Weir) {
    let setup = Setup::new()
        .file("text.txt", "a text\n")
        .file("large.bin", vec![b'x'; 1_000_000])
        .file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(request.stdin.len().to_string());
    });
    let pool = responder.pool(2);
    let weir = setup.pool(&pool).listen("http2 = \"clear\"").start();
    (responder, weir)
}

fn head(stream: u32, method: &str, path: &str, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags, stream, &block(&usual(method, path)))
}

const WHOLE: u8 = END_HEADERS | END_STREAM;

/// How many lines of the log name this limit.
fn lines(weir: &Weir, limit: &str) -> usize {
    let said = weir.stderr();
    let of_limit =
        |line: &&str| line.contains("closed an HTTP/2 connection") && line.contains(limit);
    said.lines().filter(of_limit).count()
}

/// Sends `begin`, and then what `attack` makes of numbers from 0 on, until weir ends the connection. Expects that it
/// does so because of this limit.
#[track_caller]
fn expect_end(weir: &Weir, limit: &str, begin: &[u8], attack: impl Fn(u32) -> Vec<u8>) {
    let before = lines(weir, limit);
    let mut client = Http2::connect(weir.address(), &[]);
    client.raw(begin);
    let began = Instant::now();
    let mut sent = 0;
    let mut code = None;
    while code.is_none() {
        let bytes: Vec<u8> = (sent..sent + 50).flat_map(&attack).collect();
        sent += 50;
        if !client.try_raw(&bytes) {
            code = client.went_away();
            break;
        }
        while let Some(found) = client.next_within(Duration::from_millis(1)) {
            code = code.or(found.error());
        }
        assert!(sent < 100_000 && began.elapsed() < LIMIT, "{limit}: no end");
    }
    assert_eq!(code, Some(ENHANCE_YOUR_CALM), "{limit} after {sent}");
    wait_until("the line of the log", || lines(weir, limit) == before + 1);
}

#[test]
fn floods_of_resets_end_their_connection_and_run_no_script() {
    let (responder, weir) = site();
    let cancel = |stream| frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
    expect_end(&weir, "", &[], |number| {
        let stream = 1 + 2 * number;
        [head(stream, "GET", "/run.php", WHOLE), cancel(stream)].concat()
    });
    assert_eq!(responder.uris().len(), 0);
    // Ways to make weir reset its streams ("MadeYouReset"): a window that overflows, more of a body than announced,
    // a stream that depends on itself.
    type Cause = fn(u32) -> Vec<u8>;
    let causes: [Cause; 3] = [
        |stream| frame(WINDOW_UPDATE, 0, stream, &(u32::MAX >> 1).to_be_bytes()),
        |stream| frame(DATA, 0, stream, &[b'a'; 100]),
        |stream| {
            frame(
                PRIORITY,
                0,
                stream,
                &[&stream.to_be_bytes()[..], &[0]].concat(),
            )
        },
    ];
    for cause in causes {
        expect_end(&weir, "", &[], |number| {
            let stream = 1 + 2 * number;
            let fields = [&usual("POST", "/run.php")[..], &[("content-length", "5")]].concat();
            let head = frame(HEADERS, END_HEADERS, stream, &block(&fields));
            [head, cause(stream)].concat()
        });
    }
    assert_eq!(responder.uris().len(), 0);
    assert_eq!(weir.get("/run.php").expect(200).text(), "0");
}

#[test]
fn floods_of_frames_that_cost_nothing_end_their_connection() {
    let (_responder, weir) = site();
    expect_end(&weir, "http2_max_pings", &[], |_| {
        frame(PING, 0, 0, b"12345678")
    });
    expect_end(&weir, "http2_max_settings", &[], |_| {
        frame(SETTINGS, 0, 0, &[])
    });
    let upload = head(1, "POST", "/run.php", END_HEADERS);
    let small = |data: &'static [u8]| move |_: u32| frame(DATA, 0, 1, data);
    expect_end(&weir, "", &upload, small(b""));
    expect_end(&weir, "http2_max_small_frames", &upload, small(b"a"));
    expect_end(&weir, "http2_max_small_frames", &[], |number| {
        frame(PRIORITY, 0, 1 + 2 * number, &[0; 5])
    });
    expect_end(&weir, "http2_max_small_frames", &[], |_| {
        frame(77, 0, 0, b"")
    });
    expect_end(&weir, "http2_max_small_frames", &[], |_| {
        frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())
    });
    // Parts of a head that never ends.
    let begin = frame(HEADERS, END_STREAM, 1, &block(&usual("GET", "/text.txt")));
    expect_end(&weir, "", &begin, |_| frame(CONTINUATION, 0, 1, &[]));
    assert_eq!(weir.get("/text.txt").expect(200).text(), "a text\n");
}

#[test]
fn attacks_slow_nobody_and_take_little_memory() {
    let (_responder, weir) = site();
    let memory = || resident(weir.gateway().pid);
    let mut others = weir.client();
    let mut ask = || {
        others.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        others.response().expect(200);
    };
    (0..20).for_each(|_| ask());
    let before = memory();
    // Windows of zero, with all streams that may be open.
    let mut stalled: Vec<Http2> = (0..20)
        .map(|_| {
            let mut client = Http2::connect(weir.address(), &[(INITIAL_WINDOW, 0)]);
            for stream in 0..100 {
                client.get(1 + 2 * stream, "/large.bin", &[]);
            }
            client
        })
        .collect();
    for client in &mut stalled {
        for _ in 0..100 {
            client.expect(HEADERS);
        }
    }
    (0..20).for_each(|_| ask());
    let used = memory().saturating_sub(before);
    assert!(used <= 64 << 20, "2,000 streams use {used} bytes");
    drop(stalled);
    (0..20).for_each(|_| ask());
}
