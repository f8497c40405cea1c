//! Input that is wrong, hostile or too large. Each test's name says what it protects. After each test the next request
//! works. `workers` tests wrong workers, `http` tests slow and large requests.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use weir_test::weir::write;
use weir_test::{Client, LIMIT, Responder, Setup, Weir, small_disk, wait_until};

/// A root with a text and a script, secret files beside the root, and a worker that wrong requests must not reach.
fn guarded() -> (Weir, Responder) {
    guarded_with(|setup| setup)
}

fn guarded_with(more: impl Fn(Setup) -> Setup) -> (Weir, Responder) {
    let setup = Setup::new()
        .file("text.txt", "a text")
        .file("run.php", "")
        .file("folder/inner.txt", "inner");
    write(&setup.folder().join("secret.txt"), b"secret");
    write(&setup.folder().join("secret.php"), b"<?php secret");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(format!(
            "{}|{}",
            request.param("PATH_INFO"),
            String::from_utf8_lossy(&request.stdin)
        ))
    });
    let pool = responder.pool(2);
    (more(setup.pool(&pool)).start(), responder)
}

/// weir refuses these bytes, and takes no part of them for another request. No worker gets them, and the next request
/// works.
#[track_caller]
fn expect_refused(weir: &Weir, responder: &Responder, bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    let before = responder.uris().len();
    let mut client = weir.client();
    client.try_send(bytes);
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    if let Some(response) = client.response_if_any("GET") {
        let refused = matches!(response.status, 400 | 501 | 505);
        assert!(refused, "{} for {shown:?}", response.status);
    }
    assert!(client.is_done(), "a second answer to {shown:?}");
    assert_eq!(
        responder.uris().len(),
        before,
        "a worker was given {shown:?}"
    );
    expect_next(weir);
}

#[track_caller]
fn expect_next(weir: &Weir) {
    assert_eq!(weir.get("/text.txt").expect(200).text(), "a text");
    assert_eq!(weir.get("/run.php").expect(200).text(), "|");
}

/// Fails unless the answer for each path has one of these statuses.
#[track_caller]
fn expect_statuses(weir: &Weir, paths: &[&str], statuses: &[u16]) {
    for path in paths {
        let response = weir.get(path);
        assert!(statuses.contains(&response.status), "{path}: {response:?}");
    }
}

#[test]
fn heads_that_are_malformed() {
    let (weir, responder) = guarded();
    let heads: &[&[u8]] = &[
        b"GET\r\n\r\n",
        b"GET /text.txt\r\n\r\n",
        b"GET /text.txt HTTP/1.1 more\r\nHost: a\r\n\r\n",
        b"G\x00T /text.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /text.txt HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        b"GET /text.txt HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET /text.txt HTTP/1.1\r\n: a\r\n\r\n",
        b"GET /text.txt HTTP/1.1\r\nHost: a\r\nX: 1\x00\r\n\r\n",
        b"GET /text.txt HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n",
        b"GET /text.txt HTTP/1.1\r\nHost: a\r\nX\xc3\xa4: 1\r\n\r\n",
        b"GET /text.txt HTTP/9.9\r\nHost: a\r\n\r\n",
        b"GET /text.txt HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET /text.txt HTTPS/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client hello \r\n\r\n",
        b"\x00\x00\x00\x00\r\n\r\n",
        b"GET text.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET ftp://a/text.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /text.txt HTTP/1.1\nHost: a\n\n",
        b"GET /text.txt HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n",
        b"GET  /text.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    for head in heads {
        expect_refused(&weir, &responder, head);
    }
}

#[test]
fn hosts_that_are_missing_double_or_wrong() {
    let (weir, responder) = guarded();
    // RFC 9112 §3.2
    expect_refused(&weir, &responder, "GET /text.txt HTTP/1.1\r\n\r\n");
    expect_refused(
        &weir,
        &responder,
        "GET /text.txt HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    );
    for host in ["a b", "a/b", "a@b", "a:port", "[::1", "a\\b"] {
        expect_refused(
            &weir,
            &responder,
            format!("GET /text.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        );
    }
}

#[test]
fn lengths_that_are_none() {
    let (weir, responder) = guarded();
    for length in [
        "abc",
        "-1",
        "+5",
        "5x",
        "0x5",
        "5 5",
        "99999999999999999999999999",
        "18446744073709551616",
    ] {
        let head =
            format!("POST /run.php HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nhello");
        expect_refused(&weir, &responder, head);
    }
    expect_refused(
        &weir,
        &responder,
        "POST /run.php HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    );
    expect_refused(
        &weir,
        &responder,
        "POST /run.php HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\nhello!",
    );
    // Two servers may disagree about which header counts, or whether the two are one list.
    expect_refused(
        &weir,
        &responder,
        "POST /run.php HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    );
}

#[test]
fn both_a_length_and_an_encoding_smuggle_nothing() {
    let (weir, responder) = guarded();
    // RFC 9112 §6.1: a server refuses the request, or uses the encoding and closes. The rest must never become a
    // request.
    for order in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 40\r\nTransfer-Encoding: chunked",
    ] {
        let mut client = weir.client();
        client.send(format!(
            "POST /run.php?outer HTTP/1.1\r\nHost: a\r\n{order}\r\n\r\n\
             0\r\n\r\n\
             GET /run.php?smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        let response = client.response();
        match response.status {
            400 => {}
            200 => assert_eq!(response.text(), "|"),
            other => panic!("{other}"),
        }
        client.expect_closed();
        expect_next(&weir);
    }
    assert!(
        !responder.uris().iter().any(|uri| uri.contains("smuggled")),
        "{:?}",
        responder.uris()
    );
}

#[test]
fn transfer_encodings_that_are_not_understood() {
    let (weir, responder) = guarded();
    for encoding in [
        "xchunked",
        "chunked, gzip",
        "gzip",
        "identity",
        "chunked;x",
        "\x0bchunked",
        "chunked, chunked",
        "gzip, chunked",
    ] {
        let head = format!(
            "POST /run.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {encoding}\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        );
        expect_refused(&weir, &responder, head);
    }
    expect_refused(
        &weir,
        &responder,
        "POST /run.php HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
}

#[test]
fn chunk_sizes_that_are_none() {
    let (weir, responder) = guarded();
    for body in [
        "zz\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloworld\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
    ] {
        let mut client = weir.client();
        client.send(format!(
            "POST /run.php?chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        if let Some(head) = client.head() {
            assert_eq!(head.status, 400, "{body:?}");
        }
        expect_next(&weir);
    }
    assert!(
        !responder.uris().iter().any(|uri| uri.contains("chunks")),
        "{:?}",
        responder.uris()
    );
}

#[test]
fn chunk_extensions_and_trailers_without_end() {
    let (weir, responder) = guarded();
    let head = "POST /run.php?chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (first, again) in [("5;", "extension=1;"), ("0\r\n", "X-Trailer: 1\r\n")] {
        let mut client = weir.client();
        client.send(head);
        client.send(first);
        let mut sent = 0;
        while sent < 64 << 20 && client.try_send(again.repeat(1000)) {
            sent += again.len() * 1000;
        }
        assert!(sent < 64 << 20, "{sent} bytes of {again:?} were taken");
        expect_next(&weir);
    }
    assert!(
        !responder.uris().iter().any(|uri| uri.contains("chunks")),
        "{:?}",
        responder.uris()
    );
}

#[test]
fn a_head_without_end_is_431_and_bounded() {
    let (weir, _responder) = guarded();
    for again in ["X-Endless: 1\r\n", "x"] {
        let mut client = weir.client();
        client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\nX-First: ");
        let mut sent = 0;
        while sent < 64 << 20 && client.try_send(again.repeat(1000)) {
            sent += again.len() * 1000;
        }
        assert!(sent < 64 << 20, "{sent} bytes of a head were taken");
        expect_next(&weir);
    }
}

#[test]
fn nothing_at_all() {
    let (weir, _responder) = guarded();
    for bytes in ["", "\r\n", "\r\n\r\n", "G", "GET / HTTP/1.1\r\nHost: a\r\n"] {
        let mut client = weir.client();
        client.send(bytes);
        drop(client);
        expect_next(&weir);
    }
}

#[test]
fn parent_folders_in_every_encoding() {
    let (weir, responder) = guarded();
    let ways = [
        "/../secret.txt",
        "/folder/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2E%2E/secret.txt",
        "/.%2e/secret.txt",
        "/%2e./secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "/%5c..%5csecret.txt",
        "/%252e%252e/secret.txt",
        "/%252e%252e%252fsecret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%c0%ae%c0%ae%c0%afsecret.txt",
        "/%e0%80%ae%e0%80%ae/secret.txt",
        "/%u002e%u002e/secret.txt",
        "/....//secret.txt",
        "//../secret.txt",
        "/./../secret.txt",
        "/folder/%2e%2e/%2e%2e/secret.txt",
        "/folder/..;/..;/secret.txt",
        "/../../../../../../../../../../etc/passwd",
        "/folder/../../../../../../../../../../etc/passwd",
        "/..%00/secret.txt",
        "/../secret.php",
        "/run.php/../../secret.php",
        "/folder/../..//secret.php",
        "/..",
        "/../",
        "/%2e%2e",
        "http://a/../secret.txt",
    ];
    for way in ways {
        let mut client = weir.client();
        client.send(format!(
            "GET {way} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        ));
        let response = client.response();
        let text = response.text();
        assert!(
            !text.contains("secret") && !text.contains("root:"),
            "{way}: {text}"
        );
        assert!(
            (400..500).contains(&response.status) || text.is_empty() || text == "a text",
            "{way}: {response:?}"
        );
    }
    assert!(
        responder.uris().iter().all(|uri| !uri.contains("secret")),
        "{:?}",
        responder.uris()
    );
    expect_next(&weir);
}

#[test]
fn nul_in_a_path() {
    let (weir, responder) = guarded();
    expect_statuses(
        &weir,
        &[
            "/text.txt%00",
            "/text.txt%00.php",
            "/run.php%00.txt",
            "/%00",
            "/run.php/%00",
            "/folder%00/inner.txt",
        ],
        &[400, 404],
    );
    assert!(responder.uris().is_empty(), "{:?}", responder.uris());
    expect_refused(
        &weir,
        &responder,
        b"GET /text.txt\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
}

#[test]
fn paths_that_are_not_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let (weir, _responder) = guarded();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    write(&weir.root().join(name), b"latin");
    // Names are bytes: weir serves the file or refuses it, but never serves another one.
    let response = weir.get("/caf%e9.txt");
    assert!(matches!(response.status, 200 | 400 | 404), "{response:?}");
    assert!(response.status != 200 || response.text() == "latin");
    expect_statuses(
        &weir,
        &["/%ff%fe", "/%c3%28", "/%80.php", "/%ed%a0%80"],
        &[400, 404],
    );
    // As path-info they are passed to the script.
    let response = weir.get("/run.php/%ff");
    assert!(matches!(response.status, 200 | 400), "{response:?}");
    // Bytes that are not percent-encoded.
    let mut client = weir.client();
    client.send(b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let response = client.response();
    assert!(matches!(response.status, 400 | 404), "{response:?}");
    expect_next(&weir);
}

#[test]
fn percent_signs_that_encode_nothing() {
    let (weir, _responder) = guarded();
    expect_statuses(
        &weir,
        &["/%", "/%2", "/%zz", "/text.txt%", "/%%35%63"],
        &[400, 404],
    );
    expect_next(&weir);
}

#[test]
fn scripts_that_are_not_there() {
    let (weir, responder) = guarded();
    expect_statuses(
        &weir,
        &[
            "/missing.php",
            "/folder/missing.php/x",
            "/folder/",
            "/text.txt/run.php",
            "/folder.php",
        ],
        &[403, 404],
    );
    assert!(responder.uris().is_empty(), "{:?}", responder.uris());
    // The log contains the path that weir tried.
    weir.wait_for_error(&["root/missing.php"]);
    expect_next(&weir);
}

#[test]
fn a_folder_that_is_named_like_a_script() {
    let (weir, responder) = guarded();
    write(&weir.root().join("folder.php/inner.txt"), b"inner");
    expect_statuses(&weir, &["/folder.php", "/folder.php/x"], &[301, 403, 404]);
    assert!(responder.uris().is_empty(), "{:?}", responder.uris());
    assert_eq!(
        weir.get("/folder.php/inner.txt").expect(200).text(),
        "inner"
    );
}

#[test]
fn links_that_lead_out_of_the_root() {
    let (weir, responder) = guarded();
    let root = weir.root();
    symlink("../secret.txt", root.join("relative.txt")).expect("symlink");
    symlink(weir.folder().join("secret.txt"), root.join("absolute.txt")).expect("symlink");
    symlink("..", root.join("up")).expect("symlink");
    symlink("/", root.join("top")).expect("symlink");
    symlink("../secret.php", root.join("script.php")).expect("symlink");
    symlink("loop", root.join("loop")).expect("symlink");
    symlink("nowhere", root.join("dangling")).expect("symlink");
    for path in [
        "/relative.txt",
        "/absolute.txt",
        "/up/secret.txt",
        "/up/secret.php",
        "/top/etc/passwd",
        "/script.php",
        "/loop",
        "/dangling",
        "/folder/../up/secret.txt",
    ] {
        let response = weir.get(path);
        assert!(matches!(response.status, 403 | 404), "{path}: {response:?}");
        assert!(!response.text().contains("root:"), "{path}");
    }
    assert!(responder.uris().is_empty(), "{:?}", responder.uris());
    expect_next(&weir);
}

#[test]
fn names_that_are_too_long() {
    let (weir, _responder) = guarded();
    for path in [
        format!("/{}", "x".repeat(300)),
        format!("/{}", "x/".repeat(2500)),
        format!("/{}.php", "x".repeat(300)),
    ] {
        let response = weir.get(&path);
        assert!(
            matches!(response.status, 400 | 403 | 404 | 414),
            "{}",
            response.status
        );
    }
    expect_next(&weir);
}

#[test]
fn fields_that_would_forge_lines_of_the_log() {
    let (weir, _responder) = guarded();
    let agent = "evil\" 200 0 \"-\" \\x0a{\"status\":200}\t\u{fc}";
    weir.request(
        "GET",
        "/text.txt?forged",
        &[("User-Agent", agent), ("Referer", "\"\\")],
        b"",
    )
    .expect(200);
    // Each line is one complete JSON object. `logged` fails if it is not.
    weir.logged("/text.txt?forged");
    weir.get("/text.txt?after").expect(200);
    weir.logged("/text.txt?after");
}

#[test]
fn a_redirect_cannot_be_given_another_head() {
    let setup =
        Setup::new().more("[[site.main.route]]\npath = \"/old/*\"\nredirect = \"/new${path}\"\n");
    let weir = setup.start();
    let response = weir.get("/old/x%0d%0aSet-Cookie:%20evil=1%0d%0a%0d%0abody");
    assert!(response.all("set-cookie").is_empty(), "{response:?}");
    assert!(
        response.status == 308 || response.status == 400,
        "{response:?}"
    );
}

#[test]
fn a_response_field_cannot_be_given_another_head() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.stdout(
            "Content-Type: text/plain\r\nX-A: 1\rSet-Cookie: evil=1\r\nX-B: a\x00b\r\n\r\nbody",
        );
        answer.end();
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let response = weir.get("/run.php");
    assert!(response.all("set-cookie").is_empty(), "{response:?}");
    assert!(
        !response
            .headers
            .iter()
            .any(|(_, value)| value.contains(['\r', '\0'])),
        "{response:?}"
    );
}

#[test]
fn a_full_disk_under_the_spool() {
    let setup = Setup::new().file("run.php", "").file("text.txt", "a text");
    let spool = setup.folder().join("spool").display().to_string();
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(format!(
            "{}|{}",
            request.param("PATH_INFO"),
            request.stdin.len()
        ))
    });
    let pool = responder.pool(2);
    let under = small_disk(&spool);
    let under: Vec<&str> = under.iter().map(String::as_str).collect();
    let weir = setup
        .site("max_body = \"64M\"")
        .pool(&pool)
        .under(&under)
        .start();
    let body = vec![b'x'; 500_000];
    assert_eq!(
        weir.request("POST", "/run.php", &[], &body)
            .expect(200)
            .text(),
        "|500000"
    );

    let large = vec![b'x'; 8 << 20];
    let mut client = weir.client();
    client.send(format!(
        "POST /run.php?large HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        large.len()
    ));
    client.try_send(&large);
    let status = client.response().status;
    assert!(matches!(status, 500 | 503 | 507), "{status}");
    wait_until("the cause is logged", || {
        let said = weir.stderr();
        said.contains("No space left") || said.contains("File too large")
    });
    assert!(!responder.uris().iter().any(|uri| uri.contains("large")));

    // weir frees the disk space of the aborted bodies, and the next request works.
    for _ in 0..3 {
        assert_eq!(
            weir.request("POST", "/run.php", &[], &body)
                .expect(200)
                .text(),
            "|500000"
        );
    }
    weir.get("/text.txt").expect(200);
}

#[test]
fn more_in_temporary_files_than_allowed() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(request.stdin.len().to_string())
    });
    let pool = responder.pool(2);
    let weir = setup
        .server("max_spool = \"1M\"")
        .site("max_body = \"64M\"")
        .pool(&pool)
        .start();
    let body = vec![b'x'; 700_000];
    weir.request("POST", "/run.php", &[], &body).expect(200);
    let mut client = weir.client();
    client.send("POST /run.php HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n");
    client.try_send(vec![b'x'; 8_000_000]);
    let status = client.response().status;
    assert!(matches!(status, 500 | 503 | 507), "{status}");
    for _ in 0..3 {
        weir.request("POST", "/run.php", &[], &body).expect(200);
    }
    assert_eq!(responder.uris().len(), 4);
}

#[test]
fn a_full_disk_under_the_access_log() {
    let setup = Setup::new().file("text.txt", "a text");
    let weir = setup
        .log("access = \"/dev/full\"\nformat = \"combined\"")
        .start();
    let mut client = weir.client();
    for _ in 0..500 {
        client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        client.response().expect(200);
    }
    // weir loses log lines, but no requests. It reports this, but not five hundred times.
    weir.wait_for_error(&["access log", "space"]);
    let said = weir.stderr().matches("access log cannot").count();
    assert!(said < 20, "{}", weir.stderr());
}

#[test]
fn descriptors_used_up() {
    let setup = Setup::new().file("text.txt", "a text");
    let weir = setup.under(&["prlimit", "--nofile=100:100"]).start();
    weir.get("/text.txt").expect(200);
    let idle: Vec<Client> = (0..200).map(|_| weir.client()).collect();
    // Connections without a request make room for a connection with a request.
    let mut client = weir.client();
    client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    let status = client.response().status;
    assert!(matches!(status, 200 | 500 | 503), "{status}");
    let gateway = weir.gateway();
    let before = cpu_ticks(gateway.pid);
    // The time over which the CPU time is counted.
    std::thread::sleep(Duration::from_millis(500));
    let spent = cpu_ticks(gateway.pid) - before;
    assert!(spent < 25, "{spent} ticks of 50 spent on trying to accept");
    drop(idle);
    // Connections that waited in the kernel's queue take descriptors once more, before they end.
    let serves = || {
        let mut client = weir.client();
        client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.head().is_some_and(|head| head.status == 200)
    };
    wait_until("it serves ten times", || (0..10).all(|_| serves()));
    assert!(gateway.runs(), "the gateway died of it");
}

#[test]
fn a_thousand_connections_that_say_nothing() {
    let setup = Setup::new().file("text.txt", "a text");
    let weir = setup.start();
    let idle: Vec<Client> = (0..1000).map(|_| weir.client()).collect();
    let began = Instant::now();
    weir.get("/text.txt").expect(200);
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
    drop(idle);
    weir.get("/text.txt").expect(200);
}

#[test]
fn bytes_at_random() {
    let (weir, _responder) = guarded();
    // A fixed seed, so that a failure can be repeated.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..200 {
        let length = next() % 600;
        let mut bytes: Vec<u8> = (0..length).map(|_| next() as u8).collect();
        if next() % 2 == 0 {
            let mut head = b"GET /text.txt HTTP/1.1\r\nHost: a\r\n".to_vec();
            head.append(&mut bytes);
            bytes = head;
        }
        bytes.extend(b"\r\n\r\n");
        let mut stream = std::net::TcpStream::connect(weir.address()).expect("connect");
        stream.set_read_timeout(Some(LIMIT)).expect("timeout");
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.is_empty() || said.starts_with(b"HTTP/1."), "{said:?}");
    }
    expect_next(&weir);
}

/// Processor time of a process, in hundredths of a second (proc(5): utime and stime).
fn cpu_ticks(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let rest = &text[text.rfind(')').expect("a name") + 2..];
    let fields: Vec<&str> = rest.split(' ').collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}
