//! Cached, shared and compressed answers of the real binary between real clients and origins.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use weir_test::oddity::{Oddity, Talk};
use weir_test::origin::LARGE;
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::weir::request;
use weir_test::{Gate, Response, Setup, wait_for, wait_until};

use crate::with_origin;

/// An origin without TLS. A function makes its answers (head lines and body) from path and request. It counts the
/// requests.
struct Maker {
    oddity: Oddity,
}

impl Maker {
    fn start(make: impl Fn(&str, &str) -> (String, Vec<u8>) + Send + Sync + 'static) -> Maker {
        Maker {
            oddity: Oddity::plain(move |talk| {
                while let Some(asked) = talk.request() {
                    let path = asked.split(' ').nth(1).unwrap_or_default();
                    let (head, body) = make(path, &asked);
                    if !send(talk, &asked, &head, &body) {
                        return;
                    }
                }
            }),
        }
    }

    /// How often a path was asked for.
    fn count(&self, path: &str) -> usize {
        let line = format!(" {path} HTTP/1.1");
        let asked = self.oddity.asked();
        asked
            .iter()
            .filter(|text| text.lines().next().unwrap_or_default().ends_with(&line))
            .count()
    }
}

/// `head` begins with the status, and its lines end with LF. The length is added if there is a body.
fn send(talk: &mut Talk, asked: &str, head: &str, body: &[u8]) -> bool {
    let mut bytes = format!("HTTP/1.1 {}\r\n", head.trim_end().replace('\n', "\r\n")).into_bytes();
    if !head.starts_with("304") {
        bytes.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
    }
    bytes.extend(b"\r\n");
    if !asked.starts_with("HEAD") {
        bytes.extend(body);
    }
    talk.send(bytes)
}

/// A weir that caches answers from `api.test`, with these additional lines. Also returns the name with its port.
fn keeping(origin: &Maker, lines: &str) -> (Sidecar, String) {
    let address = origin.oddity.address();
    let outward = Outward::new()
        .plain_name("api.test", address)
        .usual("cache = true")
        .usual(lines);
    (outward.start(), format!("/api.test:{}", address.port()))
}

/// A GET over a connection that is kept.
fn ask(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let kept = [headers, &[("Connection", "keep-alive")]].concat();
    request("GET", path, &kept, b"")
}

/// What the cache did, as the answer says.
#[track_caller]
fn cache_status(response: &Response) -> &str {
    let said = response.header("cache-status");
    said.unwrap_or_else(|| panic!("no Cache-Status: {response:?}"))
}

/// Waits until the log line of the call says what the cache did.
#[track_caller]
fn expect_logged(sidecar: &Sidecar, path: &str, how: &str) {
    let words = [
        "\"log\":\"egress\"",
        &format!("\"path\":\"{path}\""),
        &format!("\"cache\":\"{how}\""),
    ];
    sidecar.weir.wait_for_line("log/access.log", &words);
}

#[test]
fn what_is_kept_is_not_asked_for_again() {
    let (setup, outward, origin) = with_origin();
    let sidecar = outward.usual("cache = true").start_in(setup);
    let kept = format!("/api.test:{}/kept", origin.address().port());
    let first = sidecar.get(&kept).expect(200);
    assert_eq!(
        cache_status(&first),
        "weir; fwd=uri-miss; fwd-status=200; stored"
    );
    // The caller may get its answer before the answer is in the cache.
    let second = wait_for("a hit", || {
        let response = sidecar.get(&kept).expect(200);
        cache_status(&response)
            .starts_with("weir; hit")
            .then_some(response)
    });
    assert_eq!(second.text(), first.text());
    assert!(second.header("age").is_some());
    assert_eq!(second.header("etag"), Some("\"one\""));
    assert_eq!(second.header("x-origin"), first.header("x-origin"));
    assert_eq!(origin.calls().len(), 1);
    expect_logged(&sidecar, "/kept", "miss");
    expect_logged(&sidecar, "/kept", "hit");

    let head = sidecar.call("HEAD", &kept, &[], b"").expect(200);
    assert_eq!(
        head.header("content-length"),
        Some(&*first.body.len().to_string())
    );
    assert!(cache_status(&head).starts_with("weir; hit"));
    let had = sidecar.call("GET", &kept, &[("If-None-Match", "\"one\"")], b"");
    assert_eq!((had.status, had.body.len()), (304, 0));
    assert_eq!(origin.calls().len(), 1);
    // An answer that says nothing about its age is requested from the origin each time.
    let echo = format!("/api.test:{}/echo", origin.address().port());
    for _ in 0..2 {
        sidecar.get(&echo).expect(200);
    }
    origin.wait_for_calls(3);
}

#[test]
fn what_is_stale_is_asked_about() {
    let origin = Maker::start(|_, asked| {
        let tag = "ETag: \"1\"\nCache-Control: max-age=0";
        match asked.to_lowercase().contains("if-none-match: \"1\"\r\n") {
            true => (
                format!("304 Not Modified\n{tag}\nX-Seen: again"),
                Vec::new(),
            ),
            false => (format!("200 OK\n{tag}"), b"text".into()),
        }
    });
    let (sidecar, api) = keeping(&origin, "");
    let path = format!("{api}/x");
    assert_eq!(sidecar.get(&path).expect(200).text(), "text");
    let again = wait_for("a validation", || {
        let response = sidecar.get(&path).expect(200);
        response.header("x-seen").is_some().then_some(response)
    });
    assert_eq!(again.text(), "text");
    assert_eq!(
        cache_status(&again),
        "weir; fwd=stale; fwd-status=304; ttl=0"
    );
    expect_logged(&sidecar, "/x", "revalidated");
}

#[test]
fn stale_answers_stand_in_for_an_origin_that_is_gone() {
    let origin = Maker::start(|_, _| {
        (
            "200 OK\nETag: \"1\"\nCache-Control: max-age=0".into(),
            b"old".into(),
        )
    });
    let address = origin.oddity.address();
    let (sidecar, api) = keeping(&origin, "stale_if_error = \"10m\"\nretries = 0");
    let path = format!("{api}/x");
    sidecar.get(&path).expect(200);
    sidecar.get(&path).expect(200);
    drop(origin);
    // The listener's thread ends after the origin.
    wait_until("the origin is gone", || {
        std::net::TcpStream::connect(address).is_err()
    });
    let stale = sidecar.get(&path).expect(200);
    assert_eq!(stale.text(), "old");
    assert!(
        cache_status(&stale).ends_with("detail=stale_if_error"),
        "{stale:?}"
    );
    expect_logged(&sidecar, "/x", "stale");
    assert_eq!(sidecar.get(&format!("{api}/y")).status, 502);
    // An answer with an error counts too: 503.
    let _origin = Oddity::start(address, None, |talk| {
        while let Some(asked) = talk.request() {
            send(talk, &asked, "503 Service Unavailable", b"no");
        }
    });
    let stale = sidecar.get(&path).expect(200);
    assert_eq!(stale.text(), "old");
    assert!(cache_status(&stale).contains("fwd-status=503"), "{stale:?}");
    let other = sidecar.get(&format!("{api}/y"));
    assert_eq!((other.status, other.text()), (503, "no".into()));
}

#[test]
fn equal_calls_are_asked_once() {
    let gate = Gate::default();
    let wait = gate.clone();
    let origin = Maker::start(move |path, _| {
        wait.pass();
        (
            "200 OK\nCache-Control: max-age=60".into(),
            path.repeat(1000).into_bytes(),
        )
    });
    let (sidecar, api) = keeping(&origin, "");
    let path = format!("{api}/x");
    let mut clients: Vec<_> = (0..40).map(|_| sidecar.client()).collect();
    for client in &mut clients {
        client.send(request("GET", &path, &[], b""));
    }
    wait_until("the first is at the origin", || origin.count("/x") == 1);
    // Calls for other paths do not wait for it, and continue meanwhile.
    let other = sidecar
        .client()
        .send(request("GET", &format!("{api}/y"), &[], b""))
        .stream()
        .try_clone();
    wait_until("another is at the origin", || origin.count("/y") == 1);
    gate.open();
    for client in &mut clients {
        let response = client.response().expect(200);
        assert_eq!(response.body, "/x".repeat(1000).into_bytes());
    }
    drop(other);
    assert_eq!(origin.count("/x"), 1);
    expect_logged(&sidecar, "/x", "miss");
}

#[test]
fn an_answer_that_may_be_kept_and_ends_with_trailers_freezes_nothing() {
    let origin = Oddity::plain(|talk| {
        while talk.request().is_some() {
            talk.send(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                 4\r\ntext\r\n0\r\nX-Sum: 1\r\n\r\n",
            );
        }
    });
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .lines("threads = 1")
        .usual("cache = true")
        .start();
    let api = format!("/api.test:{}", origin.address().port());
    for path in ["/a", "/b", "/c"] {
        for kept in [false, true] {
            let mut caller = sidecar.client();
            caller.send(request(
                "GET",
                &format!("{api}{path}"),
                &[("TE", "trailers"), ("Connection", "TE")],
                b"",
            ));
            let answer = caller.response().expect(200);
            assert!(answer.whole && answer.text() == "text", "{answer:?}");
            assert_eq!(cache_status(&answer).contains("hit"), kept, "{answer:?}");
        }
    }
    assert_eq!(origin.asked().len(), 3);
}

#[test]
fn when_a_caller_leaves_another_one_asks() {
    let gate = Gate::default();
    let wait = gate.clone();
    let origin = Maker::start(move |_, _| {
        wait.pass();
        ("200 OK\nCache-Control: max-age=60".into(), b"text".into())
    });
    let (sidecar, api) = keeping(&origin, "");
    let path = format!("{api}/x");
    let mut first = sidecar.client();
    first.send(request("GET", &path, &[], b""));
    wait_until("it is at the origin", || origin.count("/x") == 1);
    let mut others: Vec<_> = (0..10).map(|_| sidecar.client()).collect();
    for client in &mut others {
        client.send(request("GET", &path, &[], b""));
    }
    // It does not matter whether they wait yet or come after it has left: one of them asks the origin.
    drop(first);
    wait_until("another asks", || origin.count("/x") == 2);
    gate.open();
    for client in &mut others {
        assert_eq!(client.response().expect(200).text(), "text");
    }
    assert_eq!(origin.count("/x"), 2);
}

#[test]
fn who_asks_and_how_decides_what_may_be_kept() {
    let count = AtomicU64::new(0);
    let origin = Maker::start(move |path, _| {
        let head = match path.split('/').next_back().unwrap_or_default() {
            "no-store" => "Cache-Control: no-store, max-age=60",
            "private" => "Cache-Control: private, max-age=60",
            "public" => "Cache-Control: public, max-age=60",
            "cookie" => "Cache-Control: max-age=60\nSet-Cookie: a=b",
            "vary" => "Cache-Control: max-age=60\nVary: X-Tenant",
            "any" => "Cache-Control: max-age=60\nVary: *",
            _ => "Cache-Control: max-age=60",
        };
        let number = count.fetch_add(1, Ordering::SeqCst);
        (format!("200 OK\n{head}"), number.to_string().into_bytes())
    });
    let (sidecar, api) = keeping(&origin, "set_headers = { X-Api-Key = \"of weir's own\" }");
    let get = |path: &str, headers: &[(&str, &str)]| {
        sidecar
            .call("GET", &format!("{api}{path}"), headers, b"")
            .expect(200)
            .text()
    };
    // The same answer comes as soon as it is cached. If it is never cached, each answer differs.
    let is_kept = |path: &str, headers: &[(&str, &str)]| {
        let first = get(path, headers);
        let next: BTreeSet<String> = (0..3).map(|_| get(path, headers)).collect();
        next.contains(&first) || next.len() < 3
    };
    let who = ("Authorization", "Bearer a");
    for (path, headers, kept) in [
        ("/1/plain", &[][..], true),
        ("/1/no-store", &[], false),
        ("/1/private", &[], false),
        ("/1/cookie", &[], false),
        ("/1/any", &[], false),
        ("/2/plain", &[who], false),
        ("/2/public", &[who], true),
        ("/3/plain", &[("Cookie", "a=b")], false),
        ("/4/plain", &[("Cache-Control", "no-store")], false),
        // A header that weir sets in every call does not identify the caller.
        ("/5/plain", &[("X-Api-Key", "the caller's")], true),
        ("/6/vary", &[("X-Tenant", "1")], true),
        ("/6/vary", &[("X-Tenant", "2")], true),
    ] {
        assert_eq!(is_kept(path, headers), kept, "{path} {headers:?}");
    }
    assert_ne!(
        get("/6/vary", &[("X-Tenant", "1")]),
        get("/6/vary", &[("X-Tenant", "2")])
    );
    // A caller that identifies itself does not get a response that was cached for anonymous callers.
    assert_ne!(get("/1/plain", &[]), get("/1/plain", &[who]));
    // A write invalidates the cached answer.
    let before = get("/1/plain", &[]);
    assert_eq!(get("/1/plain", &[]), before);
    sidecar
        .call("POST", &format!("{api}/1/plain"), &[], b"x")
        .expect(200);
    assert_ne!(get("/1/plain", &[]), before);
}

/// The value of a metric without labels.
fn metric(sidecar: &Sidecar, name: &str) -> u64 {
    let (_, text) = sidecar.weir.admin_get("/metrics");
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("{name} in {text}"))
        .parse()
        .expect("a number")
}

#[test]
fn memory_is_bounded() {
    let origin = Maker::start(|path, _| {
        let length = match path.starts_with("/long") {
            true => 200_000,
            false => 30_000,
        };
        (
            "200 OK\nCache-Control: max-age=600".into(),
            vec![b'x'; length],
        )
    });
    let setup = Setup::new();
    let address = origin.oddity.address();
    let sidecar = Outward::new()
        .plain_name("api.test", address)
        .lines("cache_size = \"1M\"\ncache_max_object = \"100K\"")
        .usual("cache = true")
        .start_in(setup.admin());
    let api = format!("/api.test:{}", address.port());
    let mut client = sidecar.client();
    for number in 0..100 {
        client.send(ask(&format!("{api}/{number}"), &[]));
        assert_eq!(client.response().expect(200).body.len(), 30_000);
        client.send(ask(&format!("{api}/long/{number}"), &[]));
        assert_eq!(client.response().expect(200).body.len(), 200_000);
        let bytes = metric(&sidecar, "weir_egress_cache_bytes");
        assert!(bytes <= 1 << 20, "{bytes}");
    }
    // The last answers are cached, the first are not any more, and the long ones never were.
    let answers = metric(&sidecar, "weir_egress_cache_answers");
    assert!((20..35).contains(&answers), "{answers}");
    for (path, count) in [("/99", 1), ("/0", 2), ("/long/99", 2)] {
        sidecar.get(&format!("{api}{path}")).expect(200);
        assert_eq!(origin.count(path), count, "{path}");
    }
}

#[test]
fn half_an_answer_is_cut_and_not_kept() {
    let origin = Oddity::plain(|talk| {
        talk.request();
        talk.send(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nhalf ",
        );
    });
    let address = origin.address();
    let sidecar = Outward::new()
        .plain_name("api.test", address)
        .usual("cache = true\ncompress = true\nretries = 0")
        .start();
    let path = format!("/api.test:{}/x", address.port());
    for _ in 0..2 {
        let half = sidecar.get(&path);
        assert!(!half.whole && half.body == b"half ", "{half:?}");
    }
    assert_eq!(origin.asked().len(), 2);
}

/// Runs curl, which decodes the encoding that it asked for. Returns the headers and the body.
fn curl(sidecar: &Sidecar, url: &str, words: &[&str]) -> (String, Vec<u8>) {
    let headers = sidecar.file("headers");
    let output = Command::new("curl")
        .args(["-sS", "--noproxy", "*", "--max-time", "20", "-D"])
        .arg(&headers)
        .args(words)
        .arg(format!("http://{}{url}", sidecar.address))
        .output()
        .expect("curl; setup/install.sh test installs it");
    assert!(output.status.success(), "{output:?}");
    let headers = std::fs::read_to_string(headers).expect("headers");
    (headers.to_lowercase(), output.stdout)
}

#[test]
fn curl_gets_what_was_sent_compressed() {
    let (setup, outward, origin) = with_origin();
    let sidecar = outward
        .usual("compress = true\ncache = true")
        .start_in(setup);
    let api = format!("/api.test:{}", origin.address().port());
    let large = format!("{api}/large");
    for coding in ["gzip", "br", "zstd"] {
        let accept = format!("Accept-Encoding: {coding}");
        let (headers, body) = curl(&sidecar, &large, &["--compressed", "-H", &accept]);
        assert!(
            headers.contains(&format!("content-encoding: {coding}\r\n")),
            "{headers}"
        );
        assert!(headers.contains("vary: accept-encoding\r\n"), "{headers}");
        assert!(!headers.contains("content-length:"), "{headers}");
        assert!(headers.contains("etag: w/\""), "{headers}");
        assert!(body == vec![b'x'; LARGE], "{} bytes", body.len());
        let (_, raw) = curl(&sidecar, &large, &["-H", &accept]);
        assert!(raw.len() < LARGE / 100, "{coding}: {} bytes", raw.len());
    }
    // curl accepts every encoding that it knows: weir uses the one that costs least.
    let (headers, _) = curl(&sidecar, &large, &["--compressed"]);
    assert!(headers.contains("content-encoding: zstd\r\n"), "{headers}");
    // The answer is not compressed if the client asks for no encoding, or for a part.
    for words in [&[][..], &["-r", "0-99999", "-H", "Accept-Encoding: br"]] {
        let (headers, body) = curl(&sidecar, &large, words);
        assert!(!headers.contains("content-encoding"), "{headers}");
        assert!(body.iter().all(|&byte| byte == b'x') && body.len() >= 100_000);
    }
    // weir passes on byte for byte what the origin has compressed, and does not compress it again.
    let accept = ["-H", "Accept-Encoding: gzip, br, zstd"];
    let (headers, passed) = curl(&sidecar, &format!("{api}/gzip"), &accept);
    assert_eq!(headers.matches("content-encoding:").count(), 1, "{headers}");
    assert!(headers.contains("content-encoding: gzip\r\n"), "{headers}");
    let direct = Command::new("curl")
        .args(["-sS", "--noproxy", "*", "--max-time", "20", "-k"])
        .args(accept)
        .arg(format!("https://{}/gzip", origin.address()))
        .output()
        .expect("curl");
    assert!(
        direct.stdout == passed,
        "{} bytes, {}",
        passed.len(),
        direct.stdout.len()
    );
}

#[test]
fn what_is_kept_is_compressed_for_each_caller() {
    let origin = Maker::start(|_, _| {
        let head = "200 OK\nContent-Type: application/json\nCache-Control: max-age=60\nETag: \"1\"";
        (head.into(), "{\"a\": 1}, ".repeat(1000).into_bytes())
    });
    let (sidecar, api) = keeping(&origin, "compress = true");
    let path = format!("{api}/x");
    let plain = sidecar.get(&path).expect(200);
    wait_until("it is kept", || {
        cache_status(&sidecar.get(&path)).starts_with("weir; hit")
    });
    let asked = origin.count("/x");
    for coding in ["gzip", "br", "zstd"] {
        let accept = format!("Accept-Encoding: {coding}");
        let (headers, body) = curl(&sidecar, &path, &["--compressed", "-H", &accept]);
        assert!(
            headers.contains(&format!("content-encoding: {coding}\r\n")),
            "{headers}"
        );
        assert!(headers.contains("cache-status: weir; hit"), "{headers}");
        assert_eq!(body, plain.body);
    }
    // The client knows the tag of the compressed answer.
    let had = sidecar.call("GET", &path, &[("If-None-Match", "W/\"1\"")], b"");
    assert_eq!(had.status, 304);
    assert_eq!(origin.count("/x"), asked);
}

#[test]
fn a_slow_stream_is_compressed_as_it_comes() {
    let gate = Gate::default();
    let wait = gate.clone();
    let origin = Oddity::plain(move |talk| {
        talk.request();
        talk.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        for _ in 0..3 {
            talk.send("6\r\npiece \r\n");
            wait.pass();
        }
        talk.send("0\r\n\r\n");
        talk.hold();
    });
    let address = origin.address();
    let sidecar = Outward::new()
        .plain_name("api.test", address)
        .usual("compress = true")
        .start();
    let path = format!("/api.test:{}/x", address.port());
    let mut client = sidecar.client();
    client.send(request("GET", &path, &[("Accept-Encoding", "gzip")], b""));
    let head = client.head().expect("a head");
    assert!(
        head.headers
            .contains(&("content-encoding".into(), "gzip".into())),
        "{head:?}"
    );
    let mut body = Vec::new();
    for _ in 0..3 {
        // The piece arrives although the origin sends nothing more before that.
        body.extend(client.chunk().expect("a piece"));
        gate.admit(1);
    }
    while let Some(chunk) = client.chunk() {
        body.extend(chunk);
    }
    let file = sidecar.file("body.gz");
    std::fs::write(&file, &body).expect("a file");
    let output = Command::new("gzip")
        .args(["-dc"])
        .arg(&file)
        .output()
        .expect("gzip");
    assert_eq!(output.stdout, b"piece piece piece ");
}

/// Many callers at once. Each asks for a few paths again and again, and each answer says which request it belongs to.
/// No caller gets another's answer, and weir asks the origin about as often as answers become stale.
#[test]
fn many_callers_get_what_they_asked_for() {
    let origin = Maker::start(|path, asked| {
        let tenant = asked
            .lines()
            .find_map(|line| line.strip_prefix("x-tenant: "));
        let head = "200 OK\nCache-Control: max-age=1\nVary: X-Tenant";
        let body = format!("{path} {}", tenant.unwrap_or_default()).repeat(200);
        (head.into(), body.into_bytes())
    });
    let (sidecar, api) = keeping(&origin, "");
    let wrong = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for caller in 0..8_usize {
            let (mut client, api, wrong) = (sidecar.client(), &api, wrong.clone());
            scope.spawn(move || {
                for number in 0..150 {
                    let path = format!("/{}", (number * 7 + caller) % 5);
                    let tenant = ((number + caller) % 3).to_string();
                    client.send(ask(&format!("{api}{path}"), &[("x-tenant", &tenant)]));
                    let response = client.response();
                    let expected = format!("{path} {tenant}").repeat(200);
                    if response.status != 200 || response.text() != expected {
                        wrong.lock().expect("no holder panics").push(response);
                    }
                }
            });
        }
    });
    let wrong = wrong.lock().expect("no holder panics");
    assert!(
        wrong.is_empty(),
        "{} answers, {:?}",
        wrong.len(),
        wrong.first()
    );
    assert!(
        origin.oddity.asked().len() < 600,
        "{}",
        origin.oddity.asked().len()
    );
}
