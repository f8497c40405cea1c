//! HTTP/2 without TLS (`http2 = "clear"`): requests, answers and streams as clients use them.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use weir_test::http2::{
    CANCEL, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2, INITIAL_WINDOW, INTERNAL_ERROR,
    PREFACE, PRIORITY_UPDATE, PROTOCOL_ERROR, RST_STREAM, SETTINGS, block, frame, h2spec, settings,
    usual,
};
use weir_test::{Gate, Responder, Setup, Weir, wait_until};

const CLEAR: &str = "http2 = \"clear\"";

/// A site with a text, and a worker that prints what it got.
fn site() -> (Responder, Weir) {
    let setup = Setup::new()
        .file("text.txt", "a text\n")
        .file("large.bin", vec![b'x'; 3_000_000])
        .file("echo.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        let param = |name| request.param(name);
        answer.page(format!(
            "{} {} length={} body={} host={} cookie={}",
            param("REQUEST_METHOD"),
            param("SERVER_PROTOCOL"),
            param("CONTENT_LENGTH"),
            request.stdin.len(),
            param("HTTP_HOST"),
            param("HTTP_COOKIE"),
        ));
    });
    let pool = responder.pool(4);
    let weir = setup.pool(&pool).listen(CLEAR).start();
    (responder, weir)
}

fn curl(weir: &Weir, path: &str, arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "60"])
        .arg("--http2-prior-knowledge")
        .args(["--write-out", "|%{http_version} %{http_code}"])
        .args(arguments)
        .arg(format!("http://{}{path}", weir.address()))
        .output()
        .expect("curl");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn files_and_scripts_are_served() {
    let (_responder, weir) = site();
    assert_eq!(curl(&weir, "/text.txt", &[]), "a text\n|2 200");
    assert!(curl(&weir, "/none.txt", &[]).ends_with("|2 404"));
    let head = curl(&weir, "/text.txt", &["--head"]).to_ascii_lowercase();
    for field in ["content-length: 7\r\n", "date: ", "etag: ", "server: weir"] {
        assert!(head.contains(field), "{field} in {head}");
    }
    assert!(!head.contains("connection:"), "{head}");
    let range = curl(&weir, "/text.txt", &["--range", "2-5"]);
    assert_eq!(range, "text|2 206");
    let answer = curl(&weir, "/echo.php?a=b", &["-H", "Cookie: a=1"]);
    let host = weir.address();
    assert_eq!(
        answer,
        format!("GET HTTP/2.0 length= body=0 host={host} cookie=a=1|2 200")
    );
    assert_eq!(weir.logged("/echo.php?a=b")["protocol"], "HTTP/2.0");
    // HTTP/1 clients use the same listener.
    assert_eq!(weir.get("/text.txt").expect(200).text(), "a text\n");
    assert_eq!(weir.logged("/text.txt")["protocol"], "HTTP/2.0");
    let mut slow = weir.client();
    slow.send("P");
    slow.send("UT /echo.php HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na");
    assert!(
        slow.response()
            .expect(200)
            .text()
            .starts_with("PUT HTTP/1.1")
    );
}

#[test]
fn bodies_of_requests_reach_scripts_with_their_length() {
    let (_responder, weir) = site();
    let file = weir.folder().join("upload");
    std::fs::write(&file, vec![b'a'; 2_000_000]).expect("a file");
    let named = format!("@{}", file.display());
    let with_length = curl(&weir, "/echo.php", &["--data-binary", &named]);
    assert!(
        with_length.starts_with("POST HTTP/2.0 length=2000000 body=2000000 "),
        "{with_length}"
    );
    // curl sends no length if it reads a pipe.
    let script = format!(
        "cat {} | curl --silent --max-time 60 --http2-prior-knowledge -T - http://{}/echo.php",
        file.display(),
        weir.address()
    );
    let output = Command::new("sh").args(["-c", &script]).output();
    let output = output.expect("sh").stdout;
    let without = String::from_utf8_lossy(&output);
    assert!(
        without.starts_with("PUT HTTP/2.0 length=2000000 body=2000000 "),
        "{without}"
    );
}

#[test]
fn a_large_file_arrives_whole_beside_small_ones() {
    let (_responder, weir) = site();
    let mut client = Http2::connect(weir.address(), &[]);
    // The client allows nothing on the first stream beyond the usual window.
    client.get(1, "/large.bin", &[]).allow(0, 10_000_000);
    let mut got = 0;
    while got < 65_535 {
        let frame = client.expect(DATA);
        assert_eq!(frame.stream, 1);
        got += frame.payload.len();
    }
    for stream in [3, 5, 7] {
        client.get(stream, "/text.txt", &[]);
        let answer = client.answer(stream);
        assert_eq!((&answer.body[..], answer.reset), (&b"a text\n"[..], None));
    }
    client.allow(1, 3_000_000 - 65_535);
    let rest = client.answer(1);
    assert_eq!(rest.body.len() + got, 3_000_000);
    assert_eq!(rest.reset, None);
}

/// The disk is read in larger parts than frames, so that some frames are shorter than their stream may send.
#[test]
fn a_large_file_that_is_not_in_memory_arrives_whole() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
    let setup = Setup::new().file("large.bin", &content);
    let file = std::fs::File::open(setup.root().join("large.bin")).unwrap();
    file.sync_all().unwrap();
    // This has no effect on a file system in memory. There the next test finds the same defects.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let weir = setup.listen(CLEAR).start();
    let mut client = Http2::connect(weir.address(), &[]);
    client.get(1, "/large.bin", &[]);
    client.allow(0, 3_000_000).allow(1, 3_000_000);
    let answer = client.answer(1);
    assert_eq!(answer.reset, None);
    assert!(answer.body == content, "{} bytes", answer.body.len());
}

#[test]
fn a_file_that_becomes_shorter_ends_its_stream_alone() {
    let (_responder, weir) = site();
    let mut client = Http2::connect(weir.address(), &[]);
    client.get(1, "/large.bin", &[]);
    let mut got = 0;
    while got < 65_535 {
        got += client.expect(DATA).payload.len();
    }
    let path = weir.folder().join("root/large.bin");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(100_000).unwrap();
    client.allow(0, 3_000_000).allow(1, 3_000_000);
    let answer = client.answer(1);
    // Bytes that were not sent before the end was found are dropped with the stream.
    assert!(got + answer.body.len() <= 100_000, "{}", answer.body.len());
    assert_eq!(answer.reset, Some(INTERNAL_ERROR));
    client.get(3, "/text.txt", &[]);
    assert_eq!(client.answer(3).body, b"a text\n");
}

#[test]
fn cookies_are_joined_and_a_body_s_parts_and_trailers_are_read() {
    let (_responder, weir) = site();
    let mut client = Http2::connect(weir.address(), &[]);
    let fields = [
        &usual("POST", "/echo.php")[..],
        &[("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers")],
    ]
    .concat();
    client.head(1, &fields, false);
    client.frame(DATA, 0, 1, b"abc").frame(DATA, 0, 1, b"");
    client.frame(DATA, 0, 1, b"de");
    client.frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &block(&[("x-sum", "1")]),
    );
    let answer = client.answer(1);
    assert_eq!(
        String::from_utf8_lossy(&answer.body),
        "POST HTTP/2.0 length=5 body=5 host=a cookie=a=1; b=2"
    );
}

#[test]
fn malformed_requests_are_refused_and_others_of_the_connection_served() {
    let (_responder, weir) = site();
    let mut client = Http2::connect(weir.address(), &[]);
    for (at, field) in [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("te", "gzip"),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = 1 + 2 * at as u32;
        client.get(stream, "/text.txt", &[field]);
        assert_eq!(
            client.answer(stream).reset,
            Some(PROTOCOL_ERROR),
            "{field:?}"
        );
    }
    // Two hosts, no host, and a body that is shorter than announced.
    client.get(101, "/text.txt", &[("host", "b")]);
    assert_eq!(client.answer(101).statuses, [400]);
    let hostless = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/text.txt"),
    ];
    client.head(103, &hostless, true);
    assert_eq!(client.answer(103).statuses, [400]);
    let fields = [&usual("POST", "/echo.php")[..], &[("content-length", "5")]].concat();
    client.head(105, &fields, false);
    client.frame(DATA, END_STREAM, 105, b"abc");
    assert_eq!(client.answer(105).reset, Some(PROTOCOL_ERROR));
    let long = "x".repeat(40_000);
    client.get(107, "/text.txt?head", &[("x-long", "y")]);
    assert_eq!(client.answer(107).statuses, [200]);
    let head = block(&[&usual("GET", "/text.txt")[..], &[("x-long", &long)]].concat());
    client.frame(HEADERS, END_STREAM, 109, &head[..16_384]);
    client.frame(9, 0, 109, &head[16_384..32_768]);
    client.frame(9, END_HEADERS, 109, &head[32_768..]);
    assert_eq!(client.answer(109).statuses, [0], "431");
    let target = format!("/text.txt?{}", &long[..33_000]);
    let head = block(&usual("GET", &target));
    client.frame(HEADERS, END_STREAM, 111, &head[..16_384]);
    client.frame(9, 0, 111, &head[16_384..32_768]);
    client.frame(9, END_HEADERS, 111, &head[32_768..]);
    assert_eq!(client.answer(111).statuses, [0], "414");
    weir.wait_for_line("log/access.log", &["target_too_long"]);
    client.get(113, "/text.txt", &[]);
    assert_eq!(client.answer(113).body, b"a text\n");
}

#[test]
fn early_hints_come_before_the_answer_and_100_when_the_body_is_read() {
    let setup = Setup::new().file("run.php", "");
    let (responder, gate) = Responder::hinting(setup.folder());
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).listen(CLEAR).start();
    let mut client = Http2::connect(weir.address(), &[]);
    let fields = [
        &usual("POST", "/run.php")[..],
        &[("expect", "100-continue"), ("content-length", "3")],
    ]
    .concat();
    client.head(1, &fields, false);
    let consent = client.expect(HEADERS);
    assert_eq!(consent.flags & END_STREAM, 0);
    client.frame(DATA, END_STREAM, 1, b"abc");
    let hints = client.expect(HEADERS);
    assert_eq!((hints.stream, hints.flags & END_STREAM), (1, 0));
    gate.open();
    let answer = client.answer(1);
    assert_eq!(
        (answer.statuses, &answer.body[..]),
        (vec![200], &b"the page"[..])
    );
}

#[test]
fn a_truncated_answer_does_not_look_whole() {
    let setup = Setup::new()
        .file("run.php", "")
        .file("text.txt", "a text\n");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        let length = match request.param("QUERY_STRING") {
            "length" => "Content-Length: 100\r\n",
            _ => "",
        };
        answer.stdout(format!(
            "X-Accel-Buffering: no\r\n{length}\r\nthe beginning"
        ));
        answer.hang_up();
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).listen(CLEAR).start();
    let mut client = Http2::connect(weir.address(), &[]);
    for (stream, path) in [(1, "/run.php"), (3, "/run.php?length")] {
        client.get(stream, path, &[]);
        assert_eq!(client.answer(stream).reset, Some(INTERNAL_ERROR), "{path}");
    }
    client.get(5, "/text.txt", &[]);
    assert_eq!(client.answer(5).body, b"a text\n");
}

/// A pool with one worker, whose scripts wait for a gate.
fn gated(site: &str, listen: &str) -> (Responder, Weir, Gate) {
    let setup = Setup::new()
        .file("run.php", "")
        .file("text.txt", "a text\n")
        .admin()
        .site(site)
        .listen(&format!("{CLEAR}\n{listen}"));
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("done");
    });
    let pool = responder.pool(1);
    (responder, setup.pool(&pool).start(), gate)
}

#[test]
fn a_reset_takes_a_request_out_of_the_queue_and_others_stay() {
    let (responder, weir, gate) = gated("", "");
    let mut client = Http2::connect(weir.address(), &[]);
    client.get(1, "/run.php?first", &[]);
    wait_until("the first runs", || weir.busy_and_waiting() == (1, 0));
    client.get(3, "/run.php?second", &[]);
    client.get(5, "/run.php?third", &[]);
    wait_until("two wait", || weir.busy_and_waiting() == (1, 2));
    client.frame(RST_STREAM, 0, 3, &CANCEL.to_be_bytes());
    wait_until("one waits", || weir.busy_and_waiting() == (1, 1));
    let line = weir.logged("/run.php?second");
    assert_eq!(line["reason"], "client_left");
    gate.open();
    assert_eq!(client.answer(1).body, b"done");
    assert_eq!(client.answer(5).body, b"done");
    assert_eq!(responder.uris(), ["/run.php?first", "/run.php?third"]);
    // The same is true for all requests of a closed connection, and for a request that is reset before it was begun.
    let (responder, weir, gate) = gated("", "");
    let mut client = Http2::connect(weir.address(), &[]);
    client.get(1, "/run.php?first", &[]);
    wait_until("the first runs", || weir.busy_and_waiting() == (1, 0));
    let head = block(&usual("GET", "/run.php?reset"));
    let both = [
        frame(HEADERS, END_HEADERS | END_STREAM, 3, &head),
        frame(RST_STREAM, 0, 3, &CANCEL.to_be_bytes()),
    ];
    client.raw(&both.concat()).get(5, "/run.php?waits", &[]);
    wait_until("one waits", || weir.busy_and_waiting() == (1, 1));
    drop(client);
    wait_until("none waits", || weir.busy_and_waiting() == (1, 0));
    gate.open();
    wait_until("none runs", || weir.busy_and_waiting() == (0, 0));
    assert_eq!(responder.uris(), ["/run.php?first"]);
}

#[test]
fn a_reset_leaves_the_queue_within_ten_milliseconds() {
    let setup = Setup::new().file("run.php", "").admin().listen(CLEAR);
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("done");
    });
    // One may wait.
    let pool = responder.pool(1)
        + "
queue.max_queue = 1
queue.client_share = 100";
    let weir = setup.pool(&pool).start();
    let mut client = Http2::connect(weir.address(), &[]);
    let mut other = Http2::connect(weir.address(), &[]);
    client.get(1, "/run.php?runs", &[]);
    wait_until("it runs", || weir.busy_and_waiting() == (1, 0));
    client.get(3, "/run.php?waits", &[]);
    wait_until("it waits", || weir.busy_and_waiting() == (1, 1));
    other.get(1, "/run.php?refused", &[]);
    assert_eq!(other.answer(1).statuses, [0], "503");
    let mut waits = (&mut client, 3);
    let mut next = (&mut other, 3);
    for _ in 0..5 {
        let (client, stream) = &mut waits;
        client.frame(RST_STREAM, 0, *stream, &CANCEL.to_be_bytes());
        // The time that is tested.
        std::thread::sleep(Duration::from_millis(10));
        // If the other request still waited, this one would be refused.
        next.0.get(next.1, "/run.php?takes-its-place", &[]);
        wait_until("it waits", || weir.busy_and_waiting() == (1, 1));
        *stream += 2;
        std::mem::swap(&mut waits, &mut next);
    }
    let (client, stream) = waits;
    gate.open();
    assert_eq!(client.answer(stream).body, b"done");
    let [runs, waited] = &responder.uris()[..] else {
        panic!("{:?}", responder.uris());
    };
    assert_eq!(
        (&runs[..], &waited[..]),
        ("/run.php?runs", "/run.php?takes-its-place")
    );
}

#[test]
fn many_streams_wait_at_once_and_a_connection_is_one() {
    let (_responder, weir, gate) = gated("", "");
    let mut client = Http2::connect(weir.address(), &[]);
    for stream in 0..100 {
        client.get(1 + 2 * stream, "/run.php", &[]);
    }
    wait_until("99 wait", || weir.busy_and_waiting() == (1, 99));
    let connections = &weir.status()["connections"];
    assert_eq!(connections["now"], 1, "{connections}");
    gate.open();
    let mut done = 0;
    while done < 100 {
        let frame = client.receive().expect("a frame");
        done += u32::from(matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0);
    }
    wait_until("it is idle", || weir.status()["connections"]["idle"] == 1);
}

#[test]
fn a_drain_says_goaway_and_finishes_what_runs() {
    let (_responder, mut weir, gate) = gated("", "");
    let mut client = Http2::connect(weir.address(), &[]);
    let mut idle = Http2::connect(weir.address(), &[]);
    idle.get(1, "/text.txt", &[]);
    assert_eq!(idle.answer(1).body, b"a text\n");
    client.get(1, "/run.php", &[]);
    wait_until("it runs", || weir.busy_and_waiting() == (1, 0));
    weir.signal(Signal::QUIT);
    let last = |client: &mut Http2| {
        let frame = client.expect(GOAWAY);
        u32::from_be_bytes(frame.payload[..4].try_into().expect("four bytes"))
    };
    // First all frames that are on their way may arrive. Then weir names the last stream.
    assert_eq!(last(&mut client), u32::MAX >> 1);
    assert_eq!(last(&mut client), 1);
    assert_eq!(last(&mut idle), u32::MAX >> 1);
    gate.open();
    assert_eq!(client.answer(1).body, b"done");
    while client.receive().is_some() {}
    while idle.receive().is_some() {}
    assert!(weir.wait_for_end().success());
}

#[test]
fn the_limit_of_requests_says_goaway() {
    let (_responder, weir, gate) = gated("", "max_requests_per_connection = 2");
    gate.open();
    let mut client = Http2::connect(weir.address(), &[]);
    for stream in [1, 3] {
        client.get(stream, "/text.txt", &[]);
        assert_eq!(client.answer(stream).body, b"a text\n");
    }
    client.expect(GOAWAY);
    while client.receive().is_some() {}
}

#[test]
fn urgent_answers_are_sent_first_and_incremental_ones_in_turns() {
    let setup = Setup::new()
        .file("a.bin", vec![b'a'; 200_000])
        .file("text.txt", "a text\n");
    let weir = setup.listen(CLEAR).start();
    // Nothing may be sent until all requests are there.
    let order = |requests: &[(&str, Option<&str>)]| {
        let mut client = Http2::connect(weir.address(), &[(INITIAL_WINDOW, 0)]);
        client.allow(0, 10_000_000);
        for (at, (priority, update)) in requests.iter().enumerate() {
            let stream = 1 + 2 * at as u32;
            if let Some(update) = update {
                let payload = [&stream.to_be_bytes()[..], update.as_bytes()].concat();
                client.frame(PRIORITY_UPDATE, 0, 0, &payload);
            }
            client.get(stream, "/a.bin", &[("priority", priority)]);
            assert_eq!(client.expect(HEADERS).stream, stream);
        }
        client.frame(SETTINGS, 0, 0, &settings(&[(INITIAL_WINDOW, 1_000_000)]));
        let mut order = Vec::new();
        let mut open = requests.len();
        while open > 0 {
            let frame = client.expect(DATA);
            open -= usize::from(frame.flags & END_STREAM != 0);
            order.push(frame.stream);
        }
        order
    };
    let changes = |order: &[u32]| order.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let first_of = |order: &[u32]| {
        let mut seen = order.to_vec();
        seen.dedup();
        seen
    };
    assert_eq!(
        first_of(&order(&[("u=5", None), ("u=1", None), ("u=3", None)])),
        [3, 5, 1]
    );
    assert_eq!(
        first_of(&order(&[("u=3", None), ("u=3", None)])),
        [1, 3],
        "one after the other"
    );
    let in_turns = order(&[("u=3, i", None), ("u=3, i", None)]);
    assert!(changes(&in_turns) > 10, "{in_turns:?}");
    // A PRIORITY_UPDATE frame overrides the header.
    assert_eq!(
        first_of(&order(&[("u=1", Some("u=6")), ("u=4", None)])),
        [3, 1]
    );
}

#[test]
fn deadlines_close_what_does_not_go_on() {
    let (_responder, weir, gate) = gated(
        "",
        "idle_timeout = \"1s\"\nheader_timeout = \"2s\"\nsend_timeout = \"1s\"\nhttp2_ping = \"1s\"",
    );
    let mut idle = Http2::connect(weir.address(), &[]);
    idle.get(1, "/text.txt", &[]);
    assert_eq!(idle.answer(1).body, b"a text\n");
    assert_eq!(idle.expect(GOAWAY).payload[4..8], [0; 4]);
    while idle.receive().is_some() {}
    let mut begun = Http2::connect(weir.address(), &[]);
    begun.get(1, "/text.txt", &[]);
    assert_eq!(begun.answer(1).body, b"a text\n");
    begun.frame(
        HEADERS,
        END_STREAM,
        3,
        &block(&usual("GET", "/text.txt"))[..20],
    );
    assert_eq!(begun.went_away(), Some(11));
    weir.wait_for_error(&["header_timeout", "HTTP/2"]);
    let mut silent = weir.client();
    silent.send(&PREFACE[..17]);
    assert_eq!(silent.response().status, 408);
    let mut stuck = Http2::connect(weir.address(), &[(INITIAL_WINDOW, 3)]);
    stuck.get(1, "/text.txt", &[]);
    let cut = stuck.answer_without_room(1);
    assert_eq!((&cut.body[..], cut.reset), (&b"a t"[..], Some(CANCEL)));
    // A client that does not answer PING has left.
    let mut gone = Http2::connect(weir.address(), &[]);
    gone.get(1, "/run.php?gone", &[]);
    wait_until("it runs", || weir.busy_and_waiting() == (1, 0));
    let line = weir.logged("/run.php?gone");
    assert_eq!(line["reason"], "client_left");
    gate.open();
}

#[test]
fn an_upload_that_nobody_reads_is_refused_and_its_stream_reset() {
    let setup = Setup::new()
        .file("text.txt", "a text\n")
        .file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("done"));
    let pool = responder.pool(1);
    let weir = setup
        .pool(&pool)
        .site("max_body = \"1K\"")
        .listen(CLEAR)
        .start();
    let mut client = Http2::connect(weir.address(), &[]);
    let fields = [
        &usual("POST", "/run.php")[..],
        &[("content-length", "100000")],
    ]
    .concat();
    client.head(1, &fields, false);
    for _ in 0..3 {
        client.frame(DATA, 0, 1, &[b'a'; 16_000]);
    }
    let answer = client.answer(1);
    assert_eq!(answer.statuses, [0], "413");
    client.get(3, "/text.txt", &[]);
    assert_eq!(client.answer(3).body, b"a text\n");
}

#[test]
fn h2spec_finds_only_what_http1_answers() {
    let (_responder, weir) = site();
    let (passed, failed) = h2spec(weir.address(), &["--path", "/text.txt"]);
    // A client that does not begin with the preface of HTTP/2 gets HTTP/1 on this port.
    assert_eq!(failed, ["2: Sends invalid connection preface"]);
    assert!(passed >= 145, "{passed}");
}

/// Whether the programs of nghttp2 agree, which check what they receive.
#[test]
fn nghttp_and_h2load_are_content() {
    let (_responder, weir) = site();
    let url = |path: &str| format!("http://{}{path}", weir.address());
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = run(
        "nghttp",
        &["-nv", "-t", "60", &url("/large.bin"), &url("/echo.php")],
    );
    assert!(said.contains(":status: 200"), "{said}");
    assert!(!said.contains("error_code=PROTOCOL_ERROR"), "{said}");
    let said = run(
        "h2load",
        &["-n", "2000", "-c", "4", "-m", "32", &url("/text.txt")],
    );
    assert!(said.contains("2000 succeeded, 0 failed"), "{said}");
}
