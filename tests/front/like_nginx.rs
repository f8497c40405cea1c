//! What weir refuses, beside nginx: whatever nginx refuses, and more. Each row is sent to both, and a plain request behind it: a
//! row that is taken has two answers, one that is refused has one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use weir_test::http2::Http2;
use weir_test::origin::Origin;
use weir_test::{LIMIT, Responder, Setup, Weir};

/// weir with a script, which also takes HTTP/2 without TLS, and nginx.
fn both() -> (Weir, Origin, Responder) {
    let setup = Setup::new()
        .file("text.txt", "a text")
        .file("body", "a text")
        .file("run.php", "")
        .site("index = []")
        .listen("http2 = \"clear\"\nmax_head = \"64K\"");
    let nginx = Origin::plain(setup.folder());
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(request.stdin.len().to_string());
    });
    let pool = responder.pool(2);
    (setup.pool(&pool).start(), nginx, responder)
}

/// The statuses of all answers to these bytes and to a last request behind them.
fn statuses(address: SocketAddr, bytes: &[u8]) -> Vec<u16> {
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(LIMIT)).expect("a limit");
    let last = b"GET /text.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    // Either may have closed it already.
    let _ = client.write_all(&[bytes, last].concat());
    let (mut answers, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = client.read(&mut piece) {
        answers.extend_from_slice(&piece[..count]);
    }
    let text = String::from_utf8_lossy(&answers).into_owned();
    let heads = text.split("HTTP/1.1 ").skip(1);
    let heads = heads.filter_map(|head| head.get(..3)?.parse().ok());
    heads.filter(|status| *status != 100).collect()
}

/// Sends a row to both. `path` stands in it as `@`: nginx's, and weir's. Says whether weir has refused it.
#[track_caller]
fn is_refused(weir: &Weir, nginx: &Origin, row: &[u8], paths: (&str, &str)) -> bool {
    let with = |path: &str| {
        let at = row.iter().position(|byte| *byte == b'@').expect("a place");
        [&row[..at], path.as_bytes(), &row[at + 1..]].concat()
    };
    let shown = String::from_utf8_lossy(row).into_owned();
    let by_weir = statuses(weir.address(), &with(paths.1));
    let by_nginx = statuses(nginx.address(), &with(paths.0));
    let is_refused = by_weir == [400];
    assert!(is_refused || by_weir.len() == 2, "{shown:?}: {by_weir:?}");
    assert!(
        is_refused || by_nginx != [400],
        "{shown:?}: {by_weir:?}, nginx {by_nginx:?}"
    );
    is_refused
}

/// Hosts, and whether they are some.
const HOSTS: [(&str, bool); 52] = [
    ("a", true),
    ("A.b-c.", true),
    ("a_b", true),
    ("a%41", true),
    ("a:", true),
    ("a:0", true),
    ("a:00080", true),
    ("a:65535", true),
    ("[::1]", true),
    ("[::1]:80", true),
    ("[2001:DB8::1:2]:", true),
    ("[::ffff:192.0.2.1]", true),
    ("192.0.2.1", true),
    ("", false),
    (".", false),
    ("..", false),
    ("a..b", false),
    ("a..", false),
    (":80", false),
    ("a%zz", false),
    ("a%", false),
    ("a%4", false),
    ("a%4g", false),
    ("a:65536", false),
    ("a:99999", false),
    ("a:4294967376", false),
    ("a:18446744073709551696", false),
    ("a:8x", false),
    ("a:-1", false),
    ("a:+1", false),
    ("a:80:80", false),
    ("::1", false),
    ("[", false),
    ("]", false),
    ("[]", false),
    ("[::1", false),
    ("[::1]x", false),
    ("[::1]:65536", false),
    ("[zz]", false),
    ("[::::]", false),
    ("[%]", false),
    ("[::g]", false),
    ("[1.2.3.4]", false),
    ("[v1.a]", false),
    ("[fe80::1%25eth0]", false),
    ("[::1]]", false),
    ("a/b", false),
    ("a?b", false),
    ("a\\b", false),
    ("u@a", false),
    ("a<b", false),
    ("a|b", false),
];

#[test]
fn a_host_is_one_over_each_protocol_and_in_each_place() {
    let (weir, nginx, responder) = both();
    let paths = ("/body", "/run.php");
    for (host, is_host) in HOSTS {
        let rows = [
            format!("GET @ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            // The host does not count, but it is invalid all the same.
            format!("GET http://a@ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        ];
        for row in rows {
            let is_refused = is_refused(&weir, &nginx, row.as_bytes(), paths);
            assert_eq!(is_refused, !is_host, "{row:?}");
        }
        // In a target, what follows the name of a host may be its path.
        let target = format!("GET http://{host}@ HTTP/1.1\r\nHost: a\r\n\r\n");
        let is_longer = host.contains(['/', '?', '@']);
        if !is_longer {
            let is_refused = is_refused(&weir, &nginx, target.as_bytes(), paths);
            assert!(is_refused || is_host, "{target:?}");
        }
        let mut expected = responder.uris().len();
        let mut client = Http2::connect(weir.address(), &[]);
        for (stream, name) in [(1, ":authority"), (3, "host")] {
            let head = [
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/run.php"),
                (name, host),
            ];
            client.head(stream, &head, true);
            let answer = client.answer(stream);
            let is_taken = answer.statuses == [200];
            assert_eq!(is_taken, is_host, "{name} {host:?}: {answer:?}");
            expected += usize::from(is_host);
        }
        assert_eq!(responder.uris().len(), expected, "{host:?}");
    }
}

#[test]
fn chunks_have_a_length_and_extensions_and_nothing_else() {
    let (weir, nginx, responder) = both();
    for (line, is_taken) in [
        (&b"5"[..], true),
        (b"5 \t", true),
        (b"5;", true),
        (b"5;a=b;c", true),
        (b"5 ; a = b", true),
        (b"5;a=\"b \\\" ;c\"", true),
        (b"000000000000000000000005", true),
        (b"5 abc", false),
        (b"5 5", false),
        (b"5 ;a=b \0", false),
        (b"5;\0", false),
        (b"5;a\0b", false),
        (b"5;a\x0bb", false),
        (b"5;a=\x0c", false),
        (b"5;a=\"\x01\"", false),
        (b"5;a=\"b", false),
        (b"5;\x7f", false),
        (b"5;\xff", false),
        (b"5;a\rb", false),
        (b"5;a\nb", false),
        (b"5\x0b", false),
        (b"5\0", false),
        (b"5,5", false),
        (b"5.", false),
        (b"0x5", false),
        (b"+5", false),
        (b" 5", false),
        (b"", false),
        (b"10000000000000005", false),
    ] {
        let head = b"POST @ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        // As the line of a chunk; and with another length, as the line of the last chunk.
        let last = line
            .iter()
            .map(|byte| if *byte == b'5' { b'0' } else { *byte });
        let last: Vec<u8> = last.collect();
        let rows = [
            [&head[..], line, b"\r\nabcde\r\n0\r\n\r\n"].concat(),
            [&head[..], b"5\r\nabcde\r\n", &last, b"\r\n\r\n"].concat(),
        ];
        for row in rows {
            let shown = String::from_utf8_lossy(&row).into_owned();
            let is_refused = is_refused(&weir, &nginx, &row, ("/body", "/run.php"));
            // A length of many zeros is one of a last chunk, too.
            assert!(
                is_refused != is_taken || shown.contains("10000000000000000\r\n\r\n"),
                "{shown:?}"
            );
        }
    }
    assert!(responder.uris().iter().all(|uri| uri == "/run.php"));
}

#[test]
fn headers_that_mean_one_thing_come_once() {
    let (weir, nginx, responder) = both();
    let date = "Mon, 01 Jan 2024 00:00:00 GMT";
    for (name, first, second, is_taken) in [
        ("If-Modified-Since", date, date, false),
        ("If-Unmodified-Since", date, "x", false),
        ("If-Match", "\"a\"", "\"b\"", false),
        ("if-none-match", "\"a\"", "*", false),
        ("If-Range", "\"a\"", "\"a\"", false),
        ("Authorization", "Basic YTpi", "Basic YTpi", false),
        ("Expect", "100-continue", "100-continue", false),
        ("Content-Range", "bytes 0-0/1", "bytes 0-0/1", false),
        ("Content-Length", "0", "0", false),
        ("Host", "a", "a", false),
        ("Cookie", "a=1", "b=2", true),
        ("X-Forwarded-For", "192.0.2.1", "192.0.2.2", true),
        ("Accept", "a/b", "c/d", true),
    ] {
        let host = if name == "Host" { "" } else { "Host: a\r\n" };
        let row = format!("GET @ HTTP/1.1\r\n{host}{name}: {first}\r\n{name}: {second}\r\n\r\n");
        for path in ["/run.php", "/text.txt"] {
            let is_refused = is_refused(&weir, &nginx, row.as_bytes(), ("/body", path));
            assert_eq!(is_refused, !is_taken, "{row:?}");
        }
        if !host.is_empty() && name != "Content-Length" {
            let name = name.to_ascii_lowercase();
            let mut client = Http2::connect(weir.address(), &[]);
            client.get(1, "/text.txt", &[(&name, first), (&name, second)]);
            let statuses = client.answer(1).statuses;
            assert_eq!(statuses, [if is_taken { 200 } else { 400 }], "{name}");
        }
    }
    assert_eq!(responder.uris().len(), 3);
}

/// Bytes behind a request that offers another protocol may be of that one: they are no request.
#[test]
fn what_follows_an_offer_of_another_protocol_is_no_request() {
    let (weir, _nginx, responder) = both();
    let offer = |protocol: &str| {
        format!(
            "GET /text.txt HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
        )
    };
    let smuggled = "GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n";
    for protocol in ["websocket", "h2c", "TLS/1.0", "h2c, websocket"] {
        for behind in [smuggled, "\u{1}\u{85}", "\x16\x03\x01"] {
            let row = format!("{}{behind}", offer(protocol));
            assert_eq!(statuses(weir.address(), row.as_bytes()), [200], "{row:?}");
        }
    }
    // Later offers count, too. But a client that offers HTTP/2 each time, and waits for the answer, keeps its
    // connection.
    for (protocol, goes_on) in [("websocket", false), ("h2c", true)] {
        let mut client = weir.client();
        client.send(offer(protocol));
        let closes = client.response().expect(200).header("connection") == Some("close");
        assert_eq!(closes, !goes_on, "{protocol}");
        client.try_send(smuggled);
        let next = client.response_if_any("GET");
        assert_eq!(next.is_some(), goes_on, "{protocol}");
    }
    assert_eq!(responder.uris(), ["/run.php"]);
}

#[test]
fn what_nearly_begins_http2_gets_the_answer_of_nginx() {
    let (weir, nginx, _responder) = both();
    for (row, status) in [
        // h2spec sends this, and expects a server that speaks nothing but HTTP/2.
        (&b"INVALID CONNECTION PREFACE\r\n\r\n"[..], 400),
        (b"PRI * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"PRI / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ] {
        let shown = String::from_utf8_lossy(row);
        assert_eq!(statuses(nginx.address(), row), [status], "{shown:?}");
        assert_eq!(statuses(weir.address(), row), [status], "{shown:?}");
    }
}
