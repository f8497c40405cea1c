//! `bandwidth`: the speed of each answer.

use std::time::{Duration, Instant};

use weir_test::http2::{DATA, END_STREAM, Http2};
use weir_test::weir::request;
use weir_test::{Responder, Setup, wait_until};

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// A setting of HTTP/2.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Bytes of a tenth of a second come at once. No answer is faster than that, however fast the client is.
#[track_caller]
fn expect_time(begun: Instant, bytes: u64, speed: u64) {
    let least = Duration::from_millis((bytes - speed / 10) * 1000 / speed);
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
}

#[test]
fn no_answer_is_faster_than_its_bandwidth() {
    let file = content(80_000);
    let setup = Setup::new().file("a.bin", &file).file("b.txt", "short");
    let long = file.clone();
    let responder = Responder::unix(setup.folder(), move |_, answer| answer.page(&long));
    let weir = setup
        .site("bandwidth = \"100K/s\"")
        .more("[[site.main.route]]\npath = \"/free.bin\"\nbandwidth = \"\"\n")
        .file("free.bin", &file)
        .file("run.php", "")
        .pool(&responder.pool(1))
        .start();
    let mut client = weir.client();
    for path in ["/a.bin", "/run.php"] {
        let begun = Instant::now();
        client.send(request("GET", path, &[("Connection", "keep-alive")], b""));
        let answer = client.response().expect(200);
        assert_eq!(answer.body, file, "{path}");
        expect_time(begun, 80_000, 100 << 10);
    }
    let answer = weir.request("GET", "/a.bin", &[("Range", "bytes=1000-50999")], b"");
    let answer = answer.expect(206);
    assert_eq!(answer.header("content-length"), Some("50000"));
    assert_eq!(answer.body, file[1000..51_000]);
    let answer = weir.request("HEAD", "/a.bin", &[], b"").expect(200);
    assert_eq!(answer.header("content-length"), Some("80000"));
    assert_eq!(weir.get("/b.txt").expect(200).text(), "short");
    assert_eq!(weir.get("/free.bin").expect(200).body, file);
}

/// At first what a tenth of a second may have, not what a second may have.
#[test]
fn an_answer_begins_as_evenly_as_it_goes_on() {
    let weir = Setup::new()
        .file("a.bin", content(100_000))
        .site("bandwidth = \"2000/s\"")
        .start();
    let mut client = weir.client();
    let begun = Instant::now();
    client.send(request("GET", "/a.bin", &[], b""));
    // The head, too.
    let mut taken = 0;
    while taken < 1800 {
        let mut bytes = [0; 4096];
        let read = std::io::Read::read(&mut client.stream(), &mut bytes).expect("bytes");
        assert!(read > 0);
        taken += read as u64;
        expect_time(begun, taken.saturating_sub(400).max(200), 2000);
    }
}

/// The answer is stored for its client, as for any slow client.
#[test]
fn a_worker_does_not_wait_until_an_answer_is_sent() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page(content(600_000)));
    let weir = setup
        .site("bandwidth = \"2K/s\"")
        .pool(&responder.pool(1))
        .start();
    let mut one = weir.client();
    one.send(request("GET", "/run.php?one", &[], b""));
    one.head().expect("a head");
    wait_until("the worker is free", || responder.running() == 0);
    let mut other = weir.client();
    other.send(request("GET", "/run.php?other", &[], b""));
    other.head().expect("a head");
    assert_eq!(responder.uris().len(), 2);
}

#[test]
fn a_slow_answer_is_no_client_that_reads_too_slowly() {
    let file = content(200);
    let weir = Setup::new()
        .file("a.bin", &file)
        .listen("send_timeout = \"1s\"\nidle_timeout = \"1s\"")
        .site("bandwidth = \"64/s\"")
        .start();
    let answer = weir.get("/a.bin").expect(200);
    assert_eq!(answer.body, file);
}

/// nginx's header: it replaces `bandwidth`, also for a file that the script hands out, and is not passed on.
#[test]
fn a_script_may_set_the_speed_of_its_answer() {
    let file = content(60_000);
    let setup = Setup::new().file("run.php", "");
    let folder = setup.folder().join("handed");
    std::fs::create_dir(&folder).expect("mkdir");
    std::fs::write(folder.join("a.bin"), &file).expect("a file");
    let long = file.clone();
    let responder = Responder::unix(setup.folder(), move |request, answer| {
        // The head, with + for spaces.
        let head = request.param("QUERY_STRING").replace('+', " ");
        let head = head.replace('&', "\r\n");
        answer.stdout(format!("Content-Type: text/plain\r\n{head}\r\n\r\n"));
        answer.stdout(&long);
        answer.end();
    });
    let weir = setup
        .site("bandwidth = \"64/s\"\naccel_redirect = { \"/handed/\" = \"handed\" }")
        .pool(&responder.pool(1))
        .start();
    for (head, speed) in [
        ("X-Accel-Limit-Rate:+100000", Some(100_000)),
        (
            "x-accel-limit-rate:+100000&X-Accel-Redirect:+/handed/a.bin",
            Some(100_000),
        ),
        ("X-Accel-Limit-Rate:+0", None),
        ("X-Accel-Limit-Rate:+off", None),
    ] {
        let begun = Instant::now();
        let answer = weir.get(&format!("/run.php?{head}")).expect(200);
        assert_eq!(answer.body, file, "{head}");
        assert_eq!(answer.header("x-accel-limit-rate"), None);
        if let Some(speed) = speed {
            expect_time(begun, 60_000, speed);
        }
    }
}

#[test]
fn answers_of_one_connection_are_each_sent_at_their_bandwidth() {
    let file = content(60_000);
    let weir = Setup::new()
        .file("a.bin", &file)
        .listen("http2 = \"clear\"")
        .site("bandwidth = \"100K/s\"")
        .start();
    let mut client = Http2::connect(weir.address(), &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    client.allow(0, 1 << 20);
    let begun = Instant::now();
    client.get(1, "/a.bin", &[]).get(3, "/a.bin", &[]);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut ends = 0;
    let mut other_at_first_end = None;
    while ends < 2 {
        let frame = client.expect(DATA);
        let (this, other) = match frame.stream {
            1 => (&mut first, &second),
            _ => (&mut second, &first),
        };
        this.extend_from_slice(&frame.payload);
        expect_time(begun, (this.len() as u64).max(10_240), 100 << 10);
        if frame.flags & END_STREAM != 0 {
            ends += 1;
            other_at_first_end.get_or_insert(other.len());
        }
    }
    assert!(first == file && second == file);
    // Neither answer waits for the end of the other.
    assert!(other_at_first_end > Some(0), "{other_at_first_end:?}");
}
