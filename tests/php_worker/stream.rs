//! The stream: status, pieces of any size, and messages that are not allowed.

use super::support::*;

#[test]
fn the_status_is_asked_of_the_gateway() {
    let site = Scripts::new();
    site.script(
        "status.php",
        "<?php
        if (isset($_GET['finish'])) { echo 'early'; fastcgi_finish_request(); }
        $status = fpm_get_status();
        file_put_contents(__DIR__ . '/told', json_encode([$status, strlen(file_get_contents('php://input')), $_POST]));
        echo json_encode($status);",
    );
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    let json =
        "{\"pool\":\"test\",\"start-time\":1,\"procs\":[{\"pid\":7,\"last-request-cpu\":1.5}]}";
    let form = "application/x-www-form-urlencoded";
    for request in [
        Request::get(&site, "/status.php"),
        // The answer comes after the body.
        Request::post(&site, "/status.php", "text/plain", vec![b'x'; 300_000]),
        Request::post(&site, "/status.php", form, "a=b"),
        Request::get(&site, "/status.php?finish=1"),
    ] {
        worker.send(&request);
        let mut record = worker.next().unwrap();
        while record.kind != STATUS {
            record = worker.next().unwrap();
        }
        assert_eq!((record.id, record.content.len()), (0, 0));
        for part in json.as_bytes().chunks(50) {
            worker.write(&super::support::record(STATUS, 0, part));
        }
        worker.write(&super::support::record(STATUS, 0, b""));
        loop {
            let record = worker.next().unwrap();
            if record.kind == READY {
                break;
            }
        }
        let told: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(site.path("told")).unwrap()).unwrap();
        assert_eq!(
            told[0],
            serde_json::from_str::<serde_json::Value>(json).unwrap()
        );
        let length = if request.params.iter().any(|(_, value)| value == form) {
            3
        } else {
            request.body.len()
        };
        assert_eq!(told[1], length);
    }
    // A value that is not an array gives false, and a missing answer too.
    for answer in [&b"7"[..], b"{", b"null"] {
        worker.send(&Request::get(&site, "/status.php"));
        assert_eq!(worker.next().unwrap().kind, STATUS);
        worker.write(&record(STATUS, 0, answer));
        worker.write(&record(STATUS, 0, b""));
        assert_eq!(worker.answer().body(), "false");
    }
    worker.send(&Request::get(&site, "/status.php"));
    assert_eq!(worker.next().unwrap().kind, STATUS);
    worker.write(&record(ABORT_REQUEST, 1, b""));
    worker.write(&record(STATUS, 0, b"{}"));
    worker.write(&record(STATUS, 0, b""));
    worker.answer();
    worker.send(&Request::get(&site, "/status.php"));
    assert_eq!(worker.next().unwrap().kind, STATUS);
    worker.hang_up();
    assert_eq!(master.end_of(&worker), End::Code(0));
}

#[test]
fn a_request_may_come_in_pieces_of_any_size() {
    let site = Scripts::new();
    site.script(
        "a.php",
        "<?php echo md5(file_get_contents('php://input')), strlen($_SERVER['HTTP_X'] ?? '');",
    );
    let master = Master::start(&site.config());
    let mut worker = master.worker();
    let request = Request::post(&site, "/a.php", "text/plain", vec![b'x'; 3000])
        .with("HTTP_X", &"y".repeat(300));
    let expected = worker.ask(&request).body();
    let bytes = request.records();
    for size in [1, 2, 7, 8, 9, 100, 1000] {
        for piece in bytes.chunks(size) {
            worker.write(piece);
        }
        assert_eq!(worker.answer().body(), expected, "pieces of {size}");
    }
    // The records have padding, and parameters continue in the next record.
    let head = request.head();
    let (begin, rest) = head.split_at(16);
    let mut pairs = Vec::new();
    let mut rest = rest;
    while let Some((record, after)) = Record::split(rest) {
        pairs.extend(record.content);
        rest = after;
    }
    let padded = |kind: u8, content: &[u8], padding: u8| {
        let mut bytes = record(kind, 1, content);
        bytes[6] = padding;
        bytes.extend(vec![0xff; usize::from(padding)]);
        bytes
    };
    for (size, padding) in [(1, 255), (13, 3), (500, 0)] {
        let mut bytes = begin.to_vec();
        for piece in pairs.chunks(size) {
            bytes.extend(padded(4, piece, padding));
        }
        bytes.extend(padded(4, b"", padding));
        for piece in request.body.chunks(size.max(10)) {
            bytes.extend(padded(STDIN, piece, padding));
        }
        bytes.extend(padded(STDIN, b"", padding));
        for piece in bytes.chunks(30_000) {
            worker.write(piece);
        }
        assert_eq!(worker.answer().body(), expected, "pieces of {size}");
    }
    // A value that no record can hold. PHP-FPM closes the connection.
    let long = request.with("HTTP_X", &"z".repeat(200_000));
    assert!(worker.ask(&long).body().ends_with("200000"));
}

#[test]
fn requests_that_are_none_end_the_worker() {
    let site = Scripts::new();
    site.script(
        "a.php",
        "<?php sleep(1); echo file_get_contents('php://input');",
    );
    let master = Master::start(&site.config());
    let begin = record(1, 1, &[0, 1, 1, 0, 0, 0, 0, 0]);
    let good = Request::get(&site, "/a.php").head();
    let many: Vec<u8> = (0..20_000_u32)
        .flat_map(|at| [&[5, 0][..], format!("{at:05}").as_bytes()].concat())
        .collect();
    let mut too_many = begin.clone();
    for part in many.chunks(60_000) {
        too_many.extend(record(4, 1, part));
    }
    too_many.extend(record(4, 1, b""));
    let mut too_large = begin.clone();
    for _ in 0..70 {
        too_large.extend(record(4, 1, &[0; 65_535]));
    }
    for (bytes, why) in [
        (b"GET / HTTP/1.0\r\n\r\n".to_vec(), "another version"),
        (
            record(1, 0, &[0, 1, 1, 0, 0, 0, 0, 0]),
            "a wrong BEGIN_REQUEST",
        ),
        (record(1, 1, &[0, 1, 1]), "a wrong BEGIN_REQUEST"),
        (record(1, 1, &[0, 9, 1, 0, 0, 0, 0, 0]), "an unknown role"),
        (
            [begin.clone(), begin.clone()].concat(),
            "a request inside another request",
        ),
        (record(4, 1, b""), "parameters without a request"),
        (
            [begin.clone(), record(4, 2, b"")].concat(),
            "parameters without a request",
        ),
        (
            [begin.clone(), record(STDIN, 1, b"")].concat(),
            "without its parameters",
        ),
        (
            [begin.clone(), record(4, 1, &[1]), record(4, 1, b"")].concat(),
            "invalid parameters",
        ),
        (
            [begin.clone(), record(4, 1, &[9, 9, 1]), record(4, 1, b"")].concat(),
            "invalid parameters",
        ),
        (
            [
                begin.clone(),
                record(4, 1, &[0xff, 0xff, 0xff, 0xff, 1, 1]),
                record(4, 1, b""),
            ]
            .concat(),
            "invalid parameters",
        ),
        (
            [
                begin.clone(),
                record(4, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
                record(4, 1, b""),
            ]
            .concat(),
            "invalid parameters",
        ),
        (too_many, "invalid parameters"),
        (too_large, "too many parameters"),
        (record(77, 0, b""), "an unknown type"),
        (
            [good.clone(), record(STDIN, 2, b"x")].concat(),
            "a body of another request",
        ),
        (
            [good.clone(), record(9, 0, b"")].concat(),
            "a missing request body",
        ),
    ] {
        let mut worker = master.worker();
        worker.write_some(&bytes);
        assert_eq!(master.end_of(&worker), End::Code(65), "{why}");
        master.said(why);
    }
    // A stream that ends early is not the worker's fault.
    for at in [1, 8, 15, 16, 17, 100] {
        let mut worker = master.worker();
        worker.write(&good[..at]);
        worker.hang_up();
        assert_eq!(master.end_of(&worker), End::Code(0), "{at}");
    }
}

/// Says that the script runs, and what it sees of the body.
const SEES: &str = "touch(__DIR__ . '/started');
    echo strlen(file_get_contents('php://input')), ' ', count($_POST), ' ', count($_FILES);";

/// Requests with a body that PHP reads before the script runs, and with one that scripts read; short ones and long ones.
fn with_bodies(site: &Scripts) -> Vec<(&'static str, Request)> {
    let post = |kind: &str, body: Vec<u8>| Request::post(site, "/a.php", kind, body);
    let parts = |size: usize| {
        let head = "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n";
        [head.as_bytes(), &vec![b'f'; size], b"\r\n--x--\r\n"].concat()
    };
    let (form, multipart) = (
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    );
    let bytes = || vec![b'x'; 300_000];
    vec![
        ("GET", Request::get(site, "/a.php")),
        ("form", post(form, b"a=b&c=d".to_vec())),
        ("long form", post(form, [b"a=b&c=", &bytes()[..]].concat())),
        ("file", post(multipart, parts(500))),
        ("long file", post(multipart, parts(200_000))),
        ("other POST", post("application/json", bytes())),
        (
            "PUT",
            post("text/plain", b"text".to_vec()).with("REQUEST_METHOD", "PUT"),
        ),
        (
            "long PUT",
            post("text/plain", bytes()).with("REQUEST_METHOD", "PUT"),
        ),
        (
            "PUT of a file",
            post(multipart, parts(100_000)).with("REQUEST_METHOD", "PUT"),
        ),
    ]
}

#[test]
fn a_script_does_not_start_unless_its_whole_request_has_come() {
    let site = Scripts::new();
    site.script("a.php", &format!("<?php {SEES}"));
    let loops = "while (frankenphp_handle_request(function () { SEES })) {}";
    site.script(
        "worker.php",
        &format!("<?php {}", loops.replace("SEES", SEES)),
    );
    let plain = site.config();
    let booted = plain
        .clone()
        .with("worker", site.path("worker.php").to_str().unwrap())
        .with("worker_script", "/a.php");
    for (mode, config) in [("plain", plain), ("booted", booted)] {
        let master = Master::start(&config);
        let mut asked = master.worker();
        for (about, request) in with_bodies(&site) {
            let about = format!("{mode}, {about}");
            let whole = request.records();
            let head = request.head().len();
            let body = whole.len() - head;
            let answer = asked.ask(&request).body();
            assert!(!answer.is_empty(), "{about}");
            std::fs::remove_file(site.path("started")).unwrap();
            let within_body = (body > 8).then_some([head + 3, head + 8, head + body / 2]);
            let ends = [
                head - 20,
                head - 8,
                head - 3,
                head,
                whole.len() - 8,
                whole.len() - 1,
            ];
            let places = ends.into_iter().chain(within_body.into_iter().flatten());
            let aborted = [head, whole.len() - 8].map(|at| (at, true));
            for (at, aborts) in places.map(|at| (at, false)).chain(aborted) {
                let mut worker = master.worker();
                worker.write(&whole[..at]);
                if aborts {
                    worker.write(&record(ABORT_REQUEST, 1, b""));
                    assert_eq!(worker.answer().body(), "", "{about}, {at}");
                    worker.hang_up();
                } else {
                    // The worker could still write an answer, but must not.
                    worker.end_writing();
                    assert_eq!(worker.next(), None, "{about}, {at}");
                }
                assert_eq!(master.end_of(&worker), End::Code(0), "{about}, {at}");
                assert!(!site.path("started").exists(), "{about}, {at}");
            }
            // The size of a piece makes no difference.
            asked.write(&whole[..whole.len() - 1]);
            asked.write(&whole[whole.len() - 1..]);
            assert_eq!(asked.answer().body(), answer, "{about}");
            std::fs::remove_file(site.path("started")).unwrap();
        }
    }
}

#[test]
fn random_bytes_never_crash_a_worker() {
    let site = Scripts::new();
    site.script(
        "a.php",
        "<?php echo strlen(file_get_contents('php://input'));",
    );
    let master = Master::start(&site.config());
    let whole = Request::post(&site, "/a.php", "text/plain", vec![b'x'; 500]).records();
    // A random number generator that always gives the same numbers (xorshift).
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as usize
    };
    for _ in 0..150 {
        let mut bytes = whole.clone();
        for _ in 0..=random(6) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, random(256) as u8),
            }
        }
        let mut worker = master.worker();
        worker.write_some(&bytes);
        worker.end_writing();
        let end = master.end_of(&worker);
        assert!(matches!(end, End::Code(0 | 65)), "{end:?}");
    }
}
