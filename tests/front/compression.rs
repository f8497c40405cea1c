//! Compressed answers: which, for whom, what their heads say, and that nothing is lost.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use weir_test::fcgi::Request;
use weir_test::front::WebServer;
use weir_test::weir::{program, write};
use weir_test::{Gate, LIMIT, Responder, Response, Setup, Weir, wait_until};

/// A page that becomes much smaller.
pub(crate) fn page(length: usize) -> Vec<u8> {
    let text = (0..).flat_map(|n: u32| format!("<li class=\"entry\">item {n}</li>\n").into_bytes());
    text.take(length).collect()
}

/// Bytes that are the same for the same seed: text, noise, or zeros.
fn body(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    match seed % 4 {
        0 => page(length),
        1 => std::iter::repeat_with(|| next() as u8)
            .take(length)
            .collect(),
        2 => vec![0; length],
        _ => std::iter::repeat_with(|| b"abcdefgh \n<>/="[(next() % 14) as usize])
            .take(length)
            .collect(),
    }
}

const SCRIPT: &str = "/run.php";

/// A site that compresses, with a script that answers each request so.
pub(crate) fn scripted(
    lines: &str,
    handler: impl Fn(&Request, &mut weir_test::fcgi::Answer) + Send + Sync + 'static,
) -> (Weir, Responder) {
    let setup = Setup::new()
        .file("run.php", "")
        .listen("http2 = \"clear\"")
        .site(&format!("compress = true\n{lines}"));
    let responder = Responder::unix(setup.folder(), handler);
    let pool = responder.pool(4);
    (setup.pool(&pool).start(), responder)
}

/// As [`scripted`], with one answer for all, which comes in one piece.
fn answering(head: &str, body: &[u8]) -> (Weir, Responder) {
    let content = [head.as_bytes(), b"\r\n\r\n", body].concat();
    scripted("", move |_, answer| answer.at_once(&content))
}

#[track_caller]
pub(crate) fn ask(weir: &Weir, path: &str, headers: &[(&str, &str)]) -> Response {
    let response = weir.request("GET", path, headers, b"");
    assert!(response.whole, "{:?}", response.headers);
    response
}

fn coding(response: &Response) -> Option<&str> {
    response.header("content-encoding")
}

/// What curl makes of an answer in this coding.
#[track_caller]
fn decoded(weir: &Weir, path: &str, coding: &str) -> Vec<u8> {
    let output = Command::new("curl")
        .args(["-sS", "--fail", "--compressed", "--max-time"])
        .arg(LIMIT.as_secs().to_string())
        .args(["-H", &format!("Accept-Encoding: {coding}")])
        .arg(format!("http://{}{path}", weir.address()))
        .output()
        .expect("curl");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{path} {coding}: {said}");
    output.stdout
}

#[test]
fn the_client_decides_how_a_script_s_answer_is_compressed() {
    let head = "Content-Type: text/html\r\nETag: \"abc\"\r\nAccept-Ranges: bytes";
    let (weir, _responder) = answering(head, &page(5000));
    for (accept, expected) in [
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, deflate, br", Some("br")),
        ("gzip, deflate", Some("gzip")),
        ("gzip;q=1.0, br;q=0.5, zstd;q=0.2", Some("gzip")),
        ("br;q=0.9, *;q=0.1", Some("br")),
        ("zstd;q=0, *", Some("br")),
        ("*", Some("zstd")),
        ("gzip;q=0", None),
        ("identity, gzip;q=0.5", None),
        ("deflate", None),
        ("", None),
    ] {
        let response = ask(&weir, SCRIPT, &[("Accept-Encoding", accept)]);
        assert_eq!(coding(&response), expected, "{accept}");
        assert_eq!(response.header("vary"), Some("Accept-Encoding"));
        let length = response.header("content-length").map(str::to_owned);
        match expected {
            Some(coding) => {
                let tag = format!("W/\"abc-weir-{coding}\"");
                assert_eq!(response.header("etag"), Some(&*tag));
                assert_eq!(response.header("accept-ranges"), None);
                assert_eq!(length, Some(response.body.len().to_string()));
                assert!(response.body.len() < 1500, "{}", response.body.len());
            }
            None => {
                assert_eq!(response.header("etag"), Some("\"abc\""));
                assert_eq!(response.header("accept-ranges"), Some("bytes"));
                assert_eq!(response.body, page(5000));
            }
        }
    }
    let head = weir.request("HEAD", SCRIPT, &[("Accept-Encoding", "br")], b"");
    assert_eq!(coding(&head), Some("br"));
    assert_eq!(head.header("etag"), Some("W/\"abc-weir-br\""));
    assert_eq!(head.header("content-length"), None);
}

#[test]
fn what_may_not_be_compressed_is_sent_as_it_is() {
    let (weir, _responder) = scripted("", |request, answer| {
        let query = request.param("QUERY_STRING");
        let (head, length) = query.split_once('!').expect("a length");
        let head = head.replace('+', " ").replace('&', "\r\n");
        let page = page(length.parse().expect("a length"));
        answer.at_once([head.as_bytes(), b"\r\n\r\n", &page].concat());
    });
    let accept = ("Accept-Encoding", "gzip, br, zstd");
    // Head of the script's answer, its length, and whether it varies, so that another client would get it compressed.
    for (head, length, varies) in [
        ("Content-Type:text/html", 1023, false),
        ("Content-Type:image/png", 5000, false),
        ("Content-Type:application/octet-stream", 5000, false),
        ("X-No-Type:1", 5000, false),
        (
            "Content-Type:text/html&Cache-Control:private,No-Transform",
            5000,
            false,
        ),
        ("Content-Type:text/html&Content-Encoding:x-own", 5000, false),
        (
            "Content-Type:text/html&Content-Encoding:identity",
            5000,
            false,
        ),
        (
            "Content-Type:text/html&Content-Digest:sha-256=:AA==:",
            5000,
            false,
        ),
        (
            "Status:206+Part&Content-Type:text/html&Content-Range:bytes+0-4999/9000",
            5000,
            false,
        ),
        ("Status:206+Part&Content-Type:text/html", 5000, false),
    ] {
        let response = ask(&weir, &format!("{SCRIPT}?{head}!{length}"), &[accept]);
        assert_eq!(response.body, page(length), "{head}");
        assert_eq!(response.header("vary").is_some(), varies, "{head}");
    }
    let html = format!("{SCRIPT}?Content-Type:text/html!5000");
    for headers in [
        &[("Cache-Control", "no-transform")][..],
        &[("Sec-Fetch-Site", "cross-site"), ("Cookie", "session=1")],
        &[
            ("Sec-Fetch-Site", "cross-site"),
            ("Authorization", "Basic YTpi"),
        ],
        &[
            ("sec-fetch-site", "Cross-Site"),
            ("authorization", "digest username=\"a\""),
        ],
        &[
            ("Sec-Fetch-Site", "cross-site"),
            ("Authorization", "Negotiate YII="),
        ],
        &[
            ("Sec-Fetch-Site", "cross-site"),
            ("Authorization", "NTLM TlRMTVNTUAAB"),
        ],
    ] {
        let headers = [headers, &[accept]].concat();
        let response = ask(&weir, &html, &headers);
        assert_eq!(response.body, page(5000), "{headers:?}");
        assert_eq!(response.header("vary"), Some("Accept-Encoding"));
    }
    for headers in [
        &[("Sec-Fetch-Site", "cross-site")][..],
        &[("Sec-Fetch-Site", "same-origin"), ("Cookie", "session=1")],
        &[("Cookie", "session=1")],
        &[
            ("Sec-Fetch-Site", "same-origin"),
            ("Authorization", "Basic YTpi"),
        ],
        // Scripts send these files if the site allows it.
        &[
            ("Sec-Fetch-Site", "cross-site"),
            ("Authorization", "Bearer Basic"),
        ],
    ] {
        let response = ask(&weir, &html, &[headers, &[accept]].concat());
        assert_eq!(coding(&response), Some("zstd"), "{headers:?}");
    }
    // Other statuses have bodies too.
    for status in [201, 403, 404, 500, 503] {
        let path = format!("{SCRIPT}?Status:{status}+S&Content-Type:text/html!5000");
        let response = ask(&weir, &path, &[accept]);
        assert_eq!((response.status, coding(&response)), (status, Some("zstd")));
    }
    // A client of HTTP/1.0 often only passes on what another one accepts.
    let mut old = weir.client();
    old.send(format!(
        "GET {html} HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n"
    ));
    let response = old.response().expect(200);
    assert_eq!((coding(&response), &response.body), (None, &page(5000)));
}

#[test]
fn noise_that_does_not_become_smaller_keeps_its_length_and_tag() {
    let head = "Content-Type: text/plain\r\nETag: \"abc\"";
    for length in [5000, 20_000] {
        let (weir, _responder) = answering(head, &body(1, length));
        for accept in ["gzip", "br", "zstd"] {
            let response = ask(&weir, SCRIPT, &[("Accept-Encoding", accept)]);
            assert_eq!((coding(&response), response.body.len()), (None, length));
            assert_eq!(response.header("etag"), Some("\"abc\""));
            assert_eq!(response.header("vary"), Some("Accept-Encoding"));
        }
    }
}

#[test]
fn options_choose_types_sizes_and_requests_of_other_sites() {
    let lines = "compress_types = [\"image/*\", \"*+own\"]\ncompress_min_size = 100\ncompress_cross_site = true\n\
                 set_request_headers = { Accept-Encoding = \"\" }";
    let setup = Setup::new()
        .file("run.php", "")
        .file("plain/run.php", "")
        .site(&format!("compress = true\n{lines}"))
        .more("[[site.main.route]]\npath = \"/plain/*\"\ncompress = false");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        let kind = request.param("QUERY_STRING");
        assert_eq!(request.param("HTTP_ACCEPT_ENCODING"), "");
        answer.stdout(format!("Content-Type: {kind}\r\n\r\n"));
        answer.stdout(page(200));
        answer.end();
    });
    let pool = responder.pool(2);
    let weir = setup.pool(&pool).start();
    let headers = [
        ("Accept-Encoding", "gzip"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Cookie", "a=b"),
    ];
    for (path, expected) in [
        ("/run.php?image/png", Some("gzip")),
        ("/run.php?application/x+own", Some("gzip")),
        ("/run.php?text/html", None),
        ("/plain/run.php?image/png", None),
    ] {
        assert_eq!(coding(&ask(&weir, path, &headers)), expected, "{path}");
    }
}

/// In pieces of any size, with and without pauses, read ahead and passed on.
#[test]
fn every_body_comes_out_as_the_script_has_made_it() {
    let (weir, _responder) = scripted(
        "response_memory = \"16K\"\nmax_response_file = \"64M\"",
        |request, answer| {
            let query: Vec<&str> = request.param("QUERY_STRING").split('/').collect();
            let [seed, length, piece] =
                [0, 1, 2].map(|n| query[n].parse::<u64>().expect("a number"));
            let body = body(seed, length as usize);
            let mut head = "Content-Type: text/plain\r\n".to_owned();
            if seed % 3 == 1 {
                head += &format!("Content-Length: {length}\r\n");
            }
            if seed % 5 == 2 {
                head += "X-Accel-Buffering: no\r\n";
            }
            answer.stdout(format!("{head}\r\n"));
            for part in body.chunks(piece as usize) {
                answer.stdout(part);
                if seed % 2 == 0 && piece > 10_000 {
                    std::thread::yield_now();
                }
            }
            answer.end();
        },
    );
    let shapes = [
        (0, 1000),
        (1024, 1),
        (1025, 7),
        (5000, 5000),
        (8192, 100),
        (8193, 8193),
        (16_384, 3000),
        (50_000, 333),
        (65_535, 65_535),
        (131_073, 40_000),
        (262_144, 9000),
        (700_001, 65_000),
        (3_000_000, 64_000),
    ];
    let seeds = 0_u64..;
    for (seed, (length, piece)) in seeds.zip(shapes.into_iter().cycle()).take(39) {
        let accept = ["zstd", "br", "gzip"][(seed % 3) as usize];
        let path = format!("{SCRIPT}?{seed}/{length}/{piece}");
        let found = decoded(&weir, &path, accept);
        let expected = body(seed, length as usize);
        assert!(
            found == expected,
            "{path} {accept}: {} bytes of {length}",
            found.len()
        );
    }
}

#[test]
fn a_file_is_compressed_once_and_has_a_tag_of_its_own() {
    let setup = Setup::new()
        .file("a.css", page(30_000))
        .file("large.txt", page(200_000))
        .file("tiny.css", page(500))
        .file("a.png", page(30_000))
        .site("compress = true\ncache_control = \"max-age=60\"");
    let weir = setup.start();
    for (path, length) in [("/a.css", 30_000), ("/large.txt", 200_000)] {
        // Within two seconds the next change of the file might have the same time. So nothing is kept.
        let head = || weir.request("HEAD", path, &[("Accept-Encoding", "zstd")], b"");
        wait_until("the file is kept", || {
            head().header("content-length").is_some()
        });
        let plain = ask(&weir, path, &[]);
        assert_eq!((coding(&plain), &plain.body), (None, &page(length)));
        assert_eq!(plain.header("accept-ranges"), Some("bytes"));
        assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
        let tag = plain
            .header("etag")
            .expect("a tag")
            .trim_matches('"')
            .to_owned();
        for accept in ["zstd", "br", "gzip"] {
            let response = ask(&weir, path, &[("Accept-Encoding", accept)]);
            let own = format!("\"{tag}-{accept}\"");
            assert_eq!(coding(&response), Some(accept));
            assert_eq!(response.header("etag"), Some(own.as_str()));
            assert_eq!(response.header("accept-ranges"), None);
            assert_eq!(
                response.header("last-modified"),
                plain.header("last-modified")
            );
            assert_eq!(response.header("cache-control"), Some("max-age=60"));
            assert_eq!(decoded(&weir, path, accept), page(length));
            let mut head = weir.request("HEAD", path, &[("Accept-Encoding", accept)], b"");
            let mut get = response.headers.clone();
            for headers in [&mut head.headers, &mut get] {
                headers.retain(|(name, _)| name != "date");
            }
            assert_eq!(head.headers, get);
            // RFC 9110 §13.1: the client has the file as it is now.
            let with = |name: &'static str, value: &str, also: &[(&str, &str)]| {
                let headers = [&[("Accept-Encoding", accept), (name, value)][..], also].concat();
                ask(&weir, path, &headers)
            };
            for value in [own.clone(), format!("W/{own}"), format!("\"x\", {own}")] {
                let response = with("If-None-Match", &value, &[]).expect(304);
                assert_eq!(response.header("etag"), Some(own.as_str()), "{value}");
                assert_eq!(response.header("vary"), Some("Accept-Encoding"));
            }
            let identity = format!("\"{tag}\"");
            let response = with("If-None-Match", &identity, &[]).expect(304);
            assert_eq!(response.header("etag"), Some(identity.as_str()));
            with("If-None-Match", "\"x-zstd\"", &[]).expect(200);
            with("If-Match", &own, &[]).expect(200);
            with("If-Match", &format!("\"x-{accept}\""), &[]).expect(412);
            // Ranges refer to the original, and only clients that have the original get them.
            let part = with("Range", "bytes=5-9", &[]).expect(206);
            assert_eq!(
                (
                    part.body,
                    part.headers.iter().any(|(n, _)| n == "content-encoding")
                ),
                (page(10)[5..].to_vec(), false)
            );
            with("Range", "bytes=5-9", &[("If-Range", &identity)]).expect(206);
            let whole = with("Range", "bytes=5-9", &[("If-Range", &own)]).expect(200);
            assert_eq!(coding(&whole), Some(accept));
        }
        // A client that cannot read this coding has no such copy.
        let other = [
            ("Accept-Encoding", "gzip"),
            ("If-None-Match", &*format!("\"{tag}-br\"")),
        ];
        ask(&weir, path, &other).expect(200);
    }
    for (path, length) in [("/tiny.css", 500), ("/a.png", 30_000)] {
        let response = ask(&weir, path, &[("Accept-Encoding", "gzip")]);
        assert_eq!((coding(&response), &response.body), (None, &page(length)));
        assert_eq!(response.header("vary"), None);
    }
}

#[test]
fn a_changed_file_is_compressed_again() {
    let weir = Setup::new()
        .file("a.txt", page(20_000))
        .site("compress = true")
        .start();
    for round in 1_usize..4 {
        let content = page(20_000 + round);
        write(&weir.root().join("a.txt"), &content);
        for accept in ["zstd", "gzip"] {
            assert!(
                decoded(&weir, "/a.txt", accept) == content,
                "{round} {accept}"
            );
        }
    }
    write(&weir.root().join("a.txt.gz"), b"made by hand");
    let answer = || ask(&weir, "/a.txt", &[("Accept-Encoding", "gzip")]).body;
    wait_until("the file beside it is found", || {
        answer() == b"made by hand"
    });
}

#[test]
fn files_that_are_not_kept_are_compressed_while_they_are_sent() {
    let content = page(9 << 20);
    let setup = Setup::new()
        .file("a.txt", &content)
        .file("b.txt", page(300_000));
    let weir = setup
        .server("compress_cache = \"100K\"")
        .site("compress = true")
        .start();
    for (path, content) in [("/a.txt", &content), ("/b.txt", &page(300_000))] {
        for accept in ["zstd", "br", "gzip"] {
            let response = ask(&weir, path, &[("Accept-Encoding", accept)]);
            assert_eq!(response.header("content-length"), None);
            let tag = response.header("etag").expect("a tag").to_owned();
            assert!(tag.ends_with(&format!("-{accept}\"")), "{tag}");
            assert!(response.body.len() < content.len() / 4);
            assert!(decoded(&weir, path, accept) == *content, "{path} {accept}");
            let again = [("Accept-Encoding", accept), ("If-None-Match", &tag)];
            ask(&weir, path, &again).expect(304);
        }
    }
}

#[test]
fn files_that_a_script_hands_out_and_error_pages_are_compressed_too() {
    let setup = Setup::new()
        .file("run.php", "")
        .file("errors/404.html", page(3000))
        .file("data/a.html", page(20_000));
    let folder = setup.root().join("data").display().to_string();
    let responder = Responder::unix(setup.folder(), move |request, answer| {
        let more = request.param("QUERY_STRING").replace("%20", " ");
        answer.stdout(format!("X-Sendfile: {folder}/a.html\r\n{more}\r\n\r\n"));
        answer.end();
    });
    let lines = format!(
        "compress = true\nsendfile_dirs = [\"{}\"]\nerror_pages = {{ 404 = \"errors/404.html\" }}",
        setup.root().join("data").display()
    );
    let pool = responder.pool(2);
    let weir = setup.site(&lines).pool(&pool).start();
    let accept = [("Accept-Encoding", "gzip")];
    let response = ask(&weir, "/run.php?X-A:1", &accept);
    assert_eq!(coding(&response), Some("gzip"));
    assert!(decoded(&weir, "/run.php?X-A:1", "br") == page(20_000));
    // The script's own headers about the bytes and their use come first.
    for said in [
        "Content-Encoding:x-own",
        "Cache-Control:no-transform",
        "Content-Type:image/png",
    ] {
        let response = ask(&weir, &format!("/run.php?{said}"), &accept);
        assert_eq!(response.body, page(20_000), "{said}");
    }
    let missing = ask(&weir, "/missing.html", &accept);
    assert_eq!((missing.status, coding(&missing)), (404, Some("gzip")));
    assert!(missing.body.len() < 1500);
}

/// Each event arrives although nothing follows it yet, over each wire.
#[test]
fn a_stream_s_events_arrive_at_once_in_each_coding() {
    let versions = ["--http1.1", "--http2-prior-knowledge"];
    let cases = ["gzip", "br", "zstd"].map(|accept| versions.map(|version| (accept, version)));
    for (accept, version) in cases.concat() {
        let gate = Gate::default();
        let shut = gate.clone();
        let (weir, responder) = scripted("", move |_, answer| {
            answer.stdout("Content-Type: text/event-stream\r\n\r\n");
            for number in 1..=3 {
                answer.stdout(format!("data: {number}\n\n"));
                shut.pass();
            }
            answer.end();
        });
        let mut curl = Command::new("curl")
            .args([
                "-sSN",
                "--compressed",
                version,
                "-H",
                &format!("Accept-Encoding: {accept}"),
            ])
            .arg(format!("http://{}{SCRIPT}", weir.address()))
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl");
        let mut events = curl.stdout.take().expect("a pipe");
        for number in 1..=3 {
            let mut event = [0; 9];
            events.read_exact(&mut event).expect("an event");
            assert_eq!(event, *format!("data: {number}\n\n").as_bytes(), "{accept}");
            gate.admit(1);
        }
        let mut rest = Vec::new();
        events.read_to_end(&mut rest).expect("the end");
        assert!(rest.is_empty() && curl.wait().expect("curl").success());
        wait_until("the worker is free", || responder.running() == 0);
    }
}

#[test]
fn streams_beyond_the_memory_are_sent_as_they_are_and_leaving_gives_it_back() {
    let setup = Setup::new()
        .file("run.php", "")
        .server("compress_memory = \"3M\"")
        .site("compress = true");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.stdout("Content-Type: text/event-stream\r\n\r\ndata: 1\n\n");
        while !answer.gone() {
            answer.stdout("data: tick\n\n");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let pool = responder.pool(8);
    let weir = setup.pool(&pool).start();
    let begin = || {
        let mut client = weir.client();
        client.send("GET /run.php HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n");
        let head = client.head().expect("a head");
        let is_coded = head
            .headers
            .iter()
            .any(|(name, _)| name == "content-encoding");
        (client, is_coded)
    };
    // Three quarters of three megabytes have room for two answers with one megabyte each.
    let streams: Vec<_> = (0..4).map(|_| begin()).collect();
    let coded: Vec<_> = streams.iter().map(|(_, is_coded)| *is_coded).collect();
    assert_eq!(coded, [true, true, false, false]);
    drop(streams);
    wait_until("the memory is free", || begin().1);
}

#[test]
fn a_script_that_works_on_after_its_announced_length_does_not_keep_its_client_waiting() {
    let gate = Gate::default();
    let shut = gate.clone();
    let (weir, responder) = scripted("", move |_, answer| {
        let page = page(50_000);
        let length = page.len();
        answer.stdout(format!(
            "Content-Type: text/html\r\nContent-Length: {length}\r\n\r\n"
        ));
        answer.stdout(&page);
        shut.pass();
        answer.end();
    });
    for coding in ["gzip", "br", "zstd"] {
        let got = decoded(&weir, SCRIPT, coding);
        assert!(got == page(50_000), "{coding}");
    }
    assert_eq!(responder.uris().len(), 3);
    gate.open();
}

#[test]
fn what_compression_saves_is_in_the_log_the_status_and_the_metrics() {
    let setup = Setup::new()
        .admin()
        .file("run.php", "")
        .file("page.html", page(30_000))
        .file("noise.html", body(1, 5000))
        .site("compress = true");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.stdout("Content-Type: text/html\r\n");
        let text = page(20_000);
        if request.param("QUERY_STRING").starts_with("stream") {
            answer.stdout("X-Accel-Buffering: no\r\n\r\n");
            text.chunks(3000).for_each(|part| answer.stdout(part));
        } else {
            answer.stdout([b"\r\n", &text[..]].concat());
        }
        answer.end();
    });
    let weir = setup.pool(&responder.pool(4)).start();
    let mut sums = [("zstd", [0; 3]), ("br", [0; 3]), ("gzip", [0; 3])];
    for (name, sum) in &mut sums {
        for (path, length) in [
            ("/run.php?stream", 20_000),
            ("/run.php?whole", 20_000),
            ("/page.html?", 30_000),
        ] {
            let uri = format!("{path}{name}");
            let response = ask(&weir, &uri, &[("Accept-Encoding", name)]);
            assert_eq!(coding(&response), Some(*name), "{uri}");
            let sent = response.body.len() as u64;
            let line = weir.logged(&uri);
            assert_eq!(line["compression"], *name, "{line}");
            assert_eq!(line["bytes_uncompressed"], length, "{line}");
            assert_eq!(line["bytes_out"], sent, "{line}");
            for (sum, more) in sum.iter_mut().zip([1, length, sent]) {
                *sum += more;
            }
        }
    }
    // None of these was compressed.
    ask(&weir, "/page.html?plain", &[]);
    ask(&weir, "/noise.html", &[("Accept-Encoding", "gzip")]);
    weir.request("HEAD", "/page.html?head", &[("Accept-Encoding", "br")], b"");
    for uri in ["/page.html?plain", "/noise.html", "/page.html?head"] {
        let line = weir.logged(uri);
        assert_eq!(line["compression"], Value::Null, "{line}");
        assert_eq!(line["bytes_uncompressed"], Value::Null, "{line}");
    }
    let shown = Command::new(program())
        .arg("status")
        .arg(format!(
            "--admin=unix:{}",
            weir.path("admin.sock").display()
        ))
        .output()
        .expect("weir status");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("compressed  9 answers, "), "{shown}");
    let (_, metrics) = weir.admin_get("/metrics");
    let status = weir.status();
    let families = ["answers", "input_bytes", "output_bytes"];
    let keys = ["answers", "bytes_in", "bytes_out"];
    for (name, sum) in sums {
        for (index, value) in sum.into_iter().enumerate() {
            let family = families[index];
            let line = format!("weir_compression_{family}_total{{coding=\"{name}\"}} {value}\n");
            assert!(metrics.contains(&line), "{line} {metrics}");
            assert_eq!(status["compression"][name][keys[index]], value);
        }
    }
}

#[test]
fn an_answer_that_is_cut_does_not_look_whole() {
    for accept in ["gzip", "br", "zstd"] {
        for (head, length) in [
            ("Content-Type: text/html\r\nX-Accel-Buffering: no", 300_000),
            ("Content-Type: text/html", 600_000),
            ("Content-Type: text/html\r\nContent-Length: 900000", 600_000),
        ] {
            let (weir, _responder) = scripted("", move |_, answer| {
                answer.stdout(format!("{head}\r\n\r\n"));
                answer.stdout(page(length));
                match head.contains("Content-Length") {
                    true => answer.end(),
                    // It ends without END_REQUEST.
                    false => answer.hang_up(),
                }
            });
            let response = weir.request("GET", SCRIPT, &[("Accept-Encoding", accept)], b"");
            assert_eq!(coding(&response), Some(accept), "{head}");
            assert!(!response.whole, "{head}");
        }
    }
}

/// With one coding, the same requests get the same answer from nginx.
#[test]
fn gzip_is_used_when_nginx_uses_it() {
    let setup = Setup::new()
        .file("a.txt", page(5000))
        .file("b.txt", page(1100))
        .file("c.txt", page(1000))
        .file("d.json", page(5000))
        .file("e.png", page(5000));
    let folder = setup.folder().join("beside");
    std::fs::create_dir(&folder).expect("a folder");
    let server = format!(
        "root {}; gzip on; gzip_vary on; gzip_min_length 1024; gzip_types text/plain application/json;",
        setup.root().display()
    );
    let types = "types { text/plain txt; application/json json; image/png png; }";
    let nginx = WebServer::nginx(&folder, &server, types);
    let weir = setup
        .site("compress = true\ncompress_types = [\"text/plain\", \"application/json\"]")
        .start();
    let mut compared = 0;
    for path in [
        "/a.txt",
        "/b.txt",
        "/c.txt",
        "/d.json",
        "/e.png",
        "/missing.txt",
    ] {
        for accept in [
            "",
            "gzip",
            "GZIP",
            "gzip, deflate",
            "deflate, gzip;q=1.0",
            "gzip;q=0",
            "gzip; q=0.0",
            "deflate",
            "gzip;q=0.5",
            "identity",
            "compress",
            "gzipx",
        ] {
            for method in ["GET", "HEAD"] {
                let headers = [("Accept-Encoding", accept)];
                let ours = weir.request(method, path, &headers, b"");
                let mut client = weir_test::Client::connect(nginx.address());
                client.send(weir_test::weir::request(method, path, &headers, b""));
                let theirs = client.response_to(method);
                let says = |response: &Response| {
                    let has_vary = response.header("vary").is_some();
                    (
                        response.status,
                        coding(response).map(str::to_owned),
                        has_vary,
                    )
                };
                assert_eq!(says(&ours), says(&theirs), "{method} {path} {accept:?}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 144);
}

/// A cache must not give a part of the original to a client that has a part of something else (RFC 9110 §15.3.7).
#[test]
fn parts_of_a_file_say_that_the_file_depends_on_what_the_client_accepts() {
    let weir = Setup::new()
        .file("page.html", page(30_000))
        .file("short.html", page(900))
        .site("compress = true\nindex = [\"page.html\"]")
        .start();
    for (path, vary) in [
        ("/page.html", Some("Accept-Encoding")),
        ("/short.html", None),
    ] {
        for range in ["bytes=0-99", "bytes=0-9,20-29"] {
            let fields = [("Accept-Encoding", "zstd"), ("Range", range)];
            let part = weir.request("GET", path, &fields, b"").expect(206);
            assert_eq!(coding(&part), None, "{path}");
            assert_eq!(part.header("vary"), vary, "{path} {range}");
        }
        // The tag of a compressed form is not that of the original, of which a part would be sent.
        let tag = ask(&weir, path, &[("Accept-Encoding", "zstd")]);
        let tag = tag.header("etag").expect("a tag").to_owned();
        let fields = [
            ("Accept-Encoding", "zstd"),
            ("Range", "bytes=0-99"),
            ("If-Range", &*tag),
        ];
        let status = weir.request("GET", path, &fields, b"").status;
        assert_eq!(status, if vary.is_some() { 200 } else { 206 }, "{path}");
    }
}
