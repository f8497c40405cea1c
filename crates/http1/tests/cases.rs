//! Single messages, and whether they are accepted.

#[allow(dead_code, unreachable_pub, reason = "shared with other tests")]
mod checks;

use checks::{Message, requests, responses};
use weir_http1::{
    Error, Event, Expect, Limits, Method, Name, RequestHead, Target, Version, client, server,
};

/// The head of the one request in this text.
#[track_caller]
fn head(wire: impl AsRef<[u8]>) -> Result<RequestHead, Error> {
    let mut decoder = server::Decoder::new(Limits::default());
    let mut head = RequestHead::default();
    let mut input = wire.as_ref();
    match decoder.next(&mut input, &mut head)? {
        Some(Event::Head) => Ok(head),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(wire: impl AsRef<[u8]>) -> Error {
    let wire = wire.as_ref();
    let (whole, error) = requests(wire, &[], Limits::default());
    let text = String::from_utf8_lossy(wire).into_owned();
    assert!(whole.iter().all(|message| !message.is_whole), "{text:?}");
    for cuts in [&[1][..], &[2], &[3, 1], &[7]] {
        assert_eq!(
            requests(wire, cuts, Limits::default()).1,
            error,
            "{text:?} {cuts:?}"
        );
    }
    error.unwrap_or_else(|| panic!("{text:?} was taken"))
}

#[test]
fn first_lines_are_taken_apart() {
    let request = head("GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(request.method(), Method::Get);
    assert_eq!(request.target(), Target::Origin);
    assert_eq!(request.path_and_query(), b"/a?b=c");
    assert_eq!(request.target_authority(), None);
    assert_eq!(request.version(), Version::Http11);
    assert!(request.is_persistent() && !request.has_body());

    for (line, target, authority, path) in [
        (
            "GET http://h:1/p?q HTTP/1.1",
            Target::Absolute,
            Some("h:1"),
            "/p?q",
        ),
        ("GET HTTPS://h HTTP/1.0", Target::Absolute, Some("h"), ""),
        ("GET http://h?q HTTP/1.1", Target::Absolute, Some("h"), "?q"),
        (
            "CONNECT h:443 HTTP/1.1",
            Target::Authority,
            Some("h:443"),
            "",
        ),
        ("OPTIONS * HTTP/1.1", Target::Asterisk, None, "*"),
        ("OPTIONS /x HTTP/1.1", Target::Origin, None, "/x"),
        (
            "PURGE //x?\"<>\\^`{|}#f HTTP/1.1",
            Target::Origin,
            None,
            "//x?\"<>\\^`{|}#f",
        ),
        ("GET /\u{e9} HTTP/1.1", Target::Origin, None, "/\u{e9}"),
    ] {
        let request = head(format!("{line}\r\nHost: x\r\n\r\n")).unwrap();
        assert_eq!(request.target(), target, "{line}");
        assert_eq!(
            request.target_authority(),
            authority.map(str::as_bytes),
            "{line}"
        );
        assert_eq!(request.path_and_query(), path.as_bytes(), "{line}");
    }
    assert_eq!(
        head("get / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap().method(),
        Method::Other
    );
    assert_eq!(
        head("GET / HTTP/1.7\r\nHost: x\r\n\r\n").unwrap().version(),
        Version::Http11
    );
    // HTTP/1.0 needs no Host field.
    assert_eq!(
        head("GET / HTTP/1.0\r\n\r\n").unwrap().version(),
        Version::Http10
    );
}

#[test]
fn first_lines_that_are_none_are_refused() {
    for (line, error) in [
        ("GET /", Error::StartLine),
        ("GET  / HTTP/1.1", Error::Target),
        ("GET /  HTTP/1.1", Error::Target),
        ("GET / HTTP/1.1 ", Error::StartLine),
        ("GET /a b HTTP/1.1", Error::Target),
        ("GET /a\tb HTTP/1.1", Error::Target),
        ("GET /a\x01 HTTP/1.1", Error::Target),
        ("GET /a\0 HTTP/1.1", Error::Target),
        ("GET /a\x7f HTTP/1.1", Error::Target),
        ("GET / http/1.1", Error::StartLine),
        ("GET / HTTP/11", Error::StartLine),
        ("GET / HTTP/2.0", Error::Version),
        ("GET / HTTP/0.9", Error::Version),
        ("GET / HTTP/1.x", Error::StartLine),
        ("G@T / HTTP/1.1", Error::StartLine),
        ("GET a HTTP/1.1", Error::Target),
        ("GET * HTTP/1.1", Error::Target),
        ("GET h:80 HTTP/1.1", Error::Target),
        ("GET http:///a HTTP/1.1", Error::Target),
        ("GET ftp://h/a HTTP/1.1", Error::Target),
        ("CONNECT /a HTTP/1.1", Error::Target),
        (" GET / HTTP/1.1", Error::StartLine),
        ("\x16\x03\x01\x02", Error::Tls),
        ("PRI * HTTP/2.0", Error::Http2),
    ] {
        assert_eq!(
            refused(format!("{line}\r\nHost: x\r\n\r\n")),
            error,
            "{line:?}"
        );
    }
    // The error comes with the first line, before the head is complete.
    assert_eq!(refused("nonsense\r\n"), Error::StartLine);
    assert_eq!(refused("GET / HTTP/1.1\n"), Error::BareLf);
}

#[test]
fn fields_are_found_by_name() {
    let request = head(
        "GET / HTTP/1.1\r\nhOST:x\r\nX-Own: \t a b \t\r\nEmpty:\r\nCookie: a=1\r\nCookie: b=2\r\n\
         Connection: a, ,CLOSE\r\nX: \u{fc}\r\n\r\n",
    )
    .unwrap();
    let fields = request.fields();
    assert_eq!(fields.get(Name::Host), Some(&b"x"[..]));
    assert_eq!(
        fields.all(Name::Cookie).collect::<Vec<_>>(),
        [b"a=1", b"b=2"]
    );
    assert_eq!(fields.named(b"x-own").collect::<Vec<_>>(), [b"a b"]);
    assert_eq!(fields.named(b"EMPTY").collect::<Vec<_>>(), [b""]);
    assert_eq!(fields.get(Name::Accept), None);
    assert_eq!(
        fields.tokens(Name::Connection).collect::<Vec<_>>(),
        [&b"a"[..], b"CLOSE"]
    );
    assert_eq!((fields.len(), request.is_persistent()), (7, false));
    let many: String = (0..90)
        .map(|number| format!("X-{number}: {number}\r\n"))
        .collect();
    let request = head(format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n")).unwrap();
    assert_eq!(request.fields().len(), 91);
    assert_eq!(request.fields().named(b"x-89").collect::<Vec<_>>(), [b"89"]);
}

#[test]
fn fields_that_are_none_are_refused() {
    for (fields, error) in [
        ("X : 1", Error::FieldName),
        ("X\t: 1", Error::FieldName),
        ("X", Error::FieldName),
        (": 1", Error::FieldName),
        ("X Y: 1", Error::FieldName),
        ("X[a]: 1", Error::FieldName),
        ("X\u{e9}: 1", Error::FieldName),
        ("X: 1\r\n folded", Error::Folded),
        ("X: 1\r\n\tfolded", Error::Folded),
        ("X: a\0b", Error::FieldValue),
        ("X: a\x01b", Error::FieldValue),
        ("X: a\x7fb", Error::FieldValue),
        ("X: a\rb", Error::FieldValue),
        ("X: a\nY: b", Error::BareLf),
        ("X: a\n", Error::BareLf),
        ("Host: x", Error::HostRepeated),
    ] {
        let wire = format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
        assert_eq!(refused(wire), error, "{fields:?}");
    }
    assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), Error::HostMissing);
    assert_eq!(
        refused("GET / HTTP/1.1\r\nX: y\r\n\r\n"),
        Error::HostMissing
    );
    assert_eq!(refused("GET / HTTP/1.1\r\nHost: x\r\n\n"), Error::BareLf);
    assert_eq!(refused("GET / HTTP/1.1\r\nHost: x\n\r\n"), Error::BareLf);
}

#[test]
fn limits_are_kept_and_have_their_status() {
    let limits = Limits {
        head: 1000,
        fields: 10,
        chunk_extensions: 20,
    };
    let read = |wire: &str| {
        let (_, error) = requests(wire.as_bytes(), &[], limits);
        for cuts in [&[1][..], &[999], &[64, 1]] {
            assert_eq!(
                requests(wire.as_bytes(), cuts, limits).1,
                error,
                "{wire:.60?}"
            );
        }
        error.map(|error| (error, error.status()))
    };
    let long = "x".repeat(1000);
    let fits = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", &long[..1000 - 27]);
    assert_eq!((fits.len(), read(&fits)), (1000, None));
    assert_eq!(
        read(&format!("GET /{long}")),
        Some((Error::TargetTooLong, 414))
    );
    assert_eq!(
        read(&format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n")),
        Some((Error::TargetTooLong, 414))
    );
    assert_eq!(
        read(&format!("GET / HTTP/1.1\r\nHost: x\r\nX: {long}")),
        Some((Error::HeadTooLarge, 431))
    );
    let fields = |count| "X: y\r\n".repeat(count);
    assert_eq!(
        read(&format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", fields(9))),
        None
    );
    assert_eq!(
        read(&format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", fields(10))),
        Some((Error::TooManyFields, 431))
    );
    assert_eq!(read(&"\r\n".repeat(501)), Some((Error::HeadTooLarge, 431)));
    const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let extension = |count| format!("{CHUNKED}1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(count));
    assert_eq!(read(&extension(19)), None);
    assert_eq!(read(&extension(20)), Some((Error::ChunkExtensions, 400)));
    assert_eq!(
        read(&format!("{CHUNKED}{}", "0".repeat(37))),
        Some((Error::ChunkExtensions, 400))
    );
    // The limit applies to the body, not to one chunk.
    assert_eq!(
        read(&format!("{CHUNKED}{}", "1;\r\nx\r\n".repeat(21))),
        Some((Error::ChunkExtensions, 400))
    );
    assert_eq!(
        read(&format!("{CHUNKED}0\r\n{}\r\n", "X: y\r\n".repeat(200))),
        Some((Error::TrailersTooLarge, 431))
    );
    assert_eq!(
        read(&format!("{CHUNKED}0\r\n{}\r\n", fields(11))),
        Some((Error::TooManyFields, 431))
    );
}

#[test]
fn bodies_end_where_they_say() {
    let (messages, error) = requests(
        b"\r\n\r\nPOST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello\
          POST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n\
          00a ;x=\"y; \\\"z\" ; v = w\r\n0123456789\r\n1 \t\r\n\n\r\n0;\r\nX: y\r\nZ:\r\n\r\n\
          POST /3 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n\
          GET /4 HTTP/1.1\r\nHost: x\r\n\r\n",
        &[],
        Limits::default(),
    );
    assert_eq!(error, None);
    let bodies: Vec<_> = messages.iter().map(|message| &message.body[..]).collect();
    assert_eq!(bodies, [&b"hello"[..], b"0123456789\n", b"", b""]);
    assert!(messages.iter().all(|message| message.is_whole));
    assert_eq!(messages[1].trailers, [&b"X"[..], b"y", b"Z", b""]);
}

#[test]
fn bodies_that_could_be_read_in_two_ways_are_refused() {
    for (fields, error) in [
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            Error::LengthAndCoding,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            Error::LengthAndCoding,
        ),
        (
            "Content-Length: 5\r\nContent-Length: 5",
            Error::LengthRepeated,
        ),
        ("Content-Length: 5, 5", Error::Length),
        ("Content-Length: +5", Error::Length),
        ("Content-Length: -5", Error::Length),
        ("Content-Length: 0x5", Error::Length),
        ("Content-Length: 5 5", Error::Length),
        ("Content-Length:", Error::Length),
        (
            "Content-Length: 18446744073709551616",
            Error::LengthTooLarge,
        ),
        ("Transfer-Encoding: gzip, chunked", Error::CodingUnknown),
        ("Transfer-Encoding: identity", Error::CodingUnknown),
        ("Transfer-Encoding: xchunked", Error::CodingUnknown),
        ("Transfer-Encoding: chunked;a=b", Error::CodingUnknown),
        ("Transfer-Encoding: \x0bchunked", Error::FieldValue),
        ("Transfer-Encoding:", Error::CodingUnknown),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            Error::CodingRepeated,
        ),
    ] {
        let wire = format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
        assert_eq!(refused(wire), error, "{fields:?}");
    }
    assert_eq!(
        refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        Error::CodingInHttp10
    );
    for (body, error) in [
        ("\r\n", Error::ChunkLength),
        (";x\r\n", Error::ChunkLength),
        (" 5\r\n", Error::ChunkLength),
        ("g\r\n", Error::ChunkLength),
        ("-1\r\n", Error::ChunkLength),
        ("0x5\r\n", Error::ChunkLength),
        ("10000000000000000\r\n", Error::ChunkLength),
        ("5\n", Error::BareLf),
        ("5;a\n", Error::BareLf),
        ("5 \n", Error::BareLf),
        ("5;a=\"\n", Error::BareLf),
        ("5 abc\r\n", Error::ChunkExtension),
        ("5 5\r\n", Error::ChunkExtension),
        ("0 x\r\n\r\n", Error::ChunkExtension),
        ("5;\0\r\n", Error::ChunkExtension),
        ("5;a\x0bb\r\n", Error::ChunkExtension),
        ("5;a=\x0c\r\n", Error::ChunkExtension),
        ("5;\x7f\r\n", Error::ChunkExtension),
        ("5;a=b/c\r\n", Error::ChunkExtension),
        ("5;a=\"b\r\n", Error::ChunkExtension),
        ("5;a=\"\x01\"\r\n", Error::ChunkExtension),
        ("5;a=\"\\\r\n", Error::ChunkExtension),
        ("5\r\r\n", Error::BareCr),
        ("5\r\nhello!\r\n", Error::ChunkEnd),
        ("5\r\nhello\n", Error::BareLf),
        ("5\r\nhello\r\r\n", Error::BareCr),
        ("0\r\n\n", Error::BareLf),
        ("0\r\nX: y\n\r\n", Error::BareLf),
        ("0\r\nX: y\r\r\n\r\n", Error::FieldValue),
        ("0\r\nX : y\r\n\r\n", Error::FieldName),
        ("0\r\n folded\r\n\r\n", Error::Folded),
    ] {
        let wire =
            format!("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        assert_eq!(refused(wire), error, "{body:?}");
    }
}

#[test]
fn what_is_expected_of_the_connection_is_known() {
    let read = |version: &str, fields: &str| {
        head(format!(
            "POST / HTTP/{version}\r\nHost: x\r\n{fields}\r\n\r\n"
        ))
        .unwrap()
    };
    for (version, fields, is_persistent) in [
        ("1.1", "A: b", true),
        ("1.1", "Connection: close", false),
        ("1.1", "Connection: Upgrade, Close", false),
        ("1.1", "Connection: keep-alive", true),
        ("1.1", "Connection: keep-alive\r\nConnection: close", false),
        ("1.0", "A: b", false),
        ("1.0", "Connection: Keep-Alive", true),
        ("1.0", "Connection: keep-alive, close", false),
    ] {
        assert_eq!(
            read(version, fields).is_persistent(),
            is_persistent,
            "{version} {fields}"
        );
    }
    for (version, fields, expect) in [
        (
            "1.1",
            "Expect: 100-continue\r\nContent-Length: 5",
            Expect::Continue,
        ),
        (
            "1.1",
            "Expect: 100-Continue\r\nTransfer-Encoding: chunked",
            Expect::Continue,
        ),
        ("1.1", "Expect: 100-continue", Expect::Nothing),
        ("1.1", "Expect: more\r\nContent-Length: 5", Expect::Other),
        (
            "1.0",
            "Expect: 100-continue\r\nContent-Length: 5",
            Expect::Nothing,
        ),
    ] {
        assert_eq!(read(version, fields).expect(), expect, "{version} {fields}");
    }
    assert!(
        read(
            "1.1",
            "Connection: keep-alive, Upgrade\r\nUpgrade: websocket"
        )
        .is_upgrade()
    );
    assert!(!read("1.1", "Upgrade: websocket").is_upgrade());
    assert!(!read("1.0", "Connection: upgrade\r\nUpgrade: websocket").is_upgrade());
}

#[track_caller]
fn response(wire: &str, method: Method) -> (Vec<Message>, Option<Error>) {
    let whole = responses(wire.as_bytes(), &[], &[method], Limits::default());
    for cuts in [&[1][..], &[3, 1]] {
        let cut = responses(wire.as_bytes(), cuts, &[method], Limits::default());
        assert_eq!(cut, whole, "{wire:?}");
    }
    whole
}

#[test]
fn responses_end_where_they_say() {
    for (wire, method, body, is_persistent) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            Method::Get,
            "ok",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
            Method::Head,
            "",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\nto the end",
            Method::Get,
            "to the end",
            false,
        ),
        ("HTTP/1.1 200\r\n\r\n", Method::Get, "", false),
        (
            "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
            Method::Get,
            "",
            true,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", Method::Get, "", true),
        (
            "HTTP/1.1 304 \u{e9}\r\nContent-Length: 99\r\n\r\n",
            Method::Get,
            "",
            true,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
            Method::Get,
            "x",
            false,
        ),
        (
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
            Method::Get,
            "x",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            Method::Get,
            "x",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
            Method::Get,
            "x",
            false,
        ),
    ] {
        let (messages, error) = response(wire, method);
        assert_eq!(error, None, "{wire:?}");
        let message = &messages[0];
        assert!(message.is_whole, "{wire:?}");
        assert_eq!(message.body, body.as_bytes(), "{wire:?}");
        assert_eq!(message.is_persistent, is_persistent, "{wire:?}");
    }
    let (messages, error) = response(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nLink: </a>\r\n\r\nHTTP/1.1 201 C\r\nContent-Length: 0\r\n\r\n",
        Method::Post,
    );
    assert_eq!((messages.len(), error), (3, None));
    assert!(!messages[0].is_whole && messages[2].is_whole);
}

/// Only the client itself reads a response: what RFC 9112 §6.3 says is clear enough.
#[test]
fn responses_with_two_lengths_are_read_if_they_are_clear() {
    for (wire, body, is_persistent) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "x",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx",
            "x",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n",
            "xy",
            false,
        ),
    ] {
        let (messages, error) = response(wire, Method::Get);
        assert_eq!(error, None, "{wire:?}");
        assert!(messages[0].is_whole, "{wire:?}");
        assert_eq!(messages[0].body, body.as_bytes(), "{wire:?}");
        assert_eq!(messages[0].is_persistent, is_persistent, "{wire:?}");
    }
}

#[test]
fn responses_that_are_none_are_refused() {
    for (wire, error) in [
        ("HTTP/1.1 20 OK\r\n\r\n", Error::StartLine),
        ("HTTP/1.1 2000 OK\r\n\r\n", Error::StartLine),
        ("HTTP/1.1 099 OK\r\n\r\n", Error::StartLine),
        ("HTTP/1.1  200 OK\r\n\r\n", Error::StartLine),
        ("HTTP/2.0 200 OK\r\n\r\n", Error::Version),
        ("ICY 200 OK\r\n\r\n", Error::StartLine),
        ("HTTP/1.1 200 O\x01K\r\n\r\n", Error::StartLine),
        ("HTTP/1.1 200 OK\n\n", Error::BareLf),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
            Error::LengthRepeated,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nx",
            Error::Length,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nx",
            Error::Length,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: gzip\r\n\r\n",
            Error::CodingUnknown,
        ),
        ("SSH-2.0-OpenSSH_9.2p1\r\n", Error::StartLine),
        ("HTT", Error::Truncated),
        ("220 ready", Error::StartLine),
        ("HTTP/1.1 fine\r\nX: ", Error::StartLine),
        (
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            Error::CodingInHttp10,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            Error::Truncated,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            Error::Truncated,
        ),
        ("HTTP/1.1 200 OK\r\n", Error::Truncated),
        ("\x15\x03\x03\0\x02\x02\x0a", Error::StartLine),
    ] {
        assert_eq!(response(wire, Method::Get).1, Some(error), "{wire:?}");
    }
}

#[test]
fn what_follows_another_protocol_is_not_http() {
    for (method, wire) in [
        (
            Method::Get,
            &b"HTTP/1.1 101 Go\r\nUpgrade: x\r\n\r\nraw"[..],
        ),
        (Method::Connect, b"HTTP/1.1 200 OK\r\n\r\nraw"),
    ] {
        let mut decoder = client::Decoder::new(Limits::default());
        let mut head = weir_http1::ResponseHead::default();
        decoder.sent(method);
        let mut input = wire;
        assert_eq!(decoder.next(&mut input, &mut head), Ok(Some(Event::Head)));
        assert_eq!(decoder.next(&mut input, &mut head), Ok(Some(Event::End)));
        assert_eq!(decoder.next(&mut input, &mut head), Ok(None));
        assert_eq!(input, b"raw");
        assert!(!decoder.is_reusable(&head));
    }
}

#[test]
fn responses_say_how_they_end() {
    let written = |version: &str, method: &str, status, length, keep| {
        let request = head(format!(
            "{method} /x HTTP/{version}\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"
        ))
        .unwrap();
        let mut out = Vec::new();
        let mut body = server::response(&mut out, status)
            .finish(server::framing(&request, status, length, keep));
        let wants_data = body.wants_data();
        if wants_data {
            body.data(&mut out, b"ok").unwrap();
        }
        body.end(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        (
            text.split_once("\r\n").unwrap().1.to_owned(),
            body.is_persistent(),
        )
    };
    for (version, method, status, length, keep, text, is_persistent) in [
        (
            "1.1",
            "GET",
            200,
            Some(2),
            true,
            "Content-Length: 2\r\n\r\nok",
            true,
        ),
        (
            "1.1",
            "GET",
            200,
            Some(2),
            false,
            "Connection: close\r\nContent-Length: 2\r\n\r\nok",
            false,
        ),
        (
            "1.1",
            "GET",
            200,
            None,
            true,
            "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            true,
        ),
        (
            "1.0",
            "GET",
            200,
            None,
            true,
            "Connection: close\r\n\r\nok",
            false,
        ),
        (
            "1.0",
            "GET",
            200,
            Some(2),
            true,
            "Connection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
            true,
        ),
        (
            "1.1",
            "HEAD",
            200,
            Some(2),
            true,
            "Content-Length: 2\r\n\r\n",
            true,
        ),
        ("1.1", "HEAD", 200, None, true, "\r\n", true),
        ("1.1", "GET", 204, None, true, "\r\n", true),
        (
            "1.1",
            "GET",
            304,
            Some(7),
            true,
            "Content-Length: 7\r\n\r\n",
            true,
        ),
        ("1.1", "GET", 103, None, true, "\r\n", true),
        ("1.1", "GET", 101, None, true, "\r\n", false),
    ] {
        let got = written(version, method, status, length, keep);
        assert_eq!(
            got,
            (text.to_owned(), is_persistent),
            "{version} {method} {status}"
        );
    }
}

#[test]
fn a_body_of_another_length_is_told() {
    let request = head("GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut out = Vec::new();
    let mut body =
        server::response(&mut out, 200).finish(server::framing(&request, 200, Some(3), true));
    assert_eq!(
        body.data(&mut out, b"abcd"),
        Err(weir_http1::WrongLength::Long)
    );
    body.data(&mut out, b"ab").unwrap();
    assert_eq!(body.end(&mut out), Err(weir_http1::WrongLength::Short(1)));
}

#[test]
fn requests_are_written_as_they_are_read() {
    for (method, length, told) in [
        ("GET", Some(0), ""),
        ("POST", Some(0), "Content-Length: 0\r\n"),
        ("POST", Some(2), "Content-Length: 2\r\n"),
        ("GET", Some(2), "Content-Length: 2\r\n"),
        ("PUT", None, "Transfer-Encoding: chunked\r\n"),
    ] {
        let mut out = Vec::new();
        let mut head = client::request(&mut out, method, b"/x").unwrap();
        head.field("Host", b"h").unwrap();
        head.finish(client::framing(method, length));
        let text = format!("{method} /x HTTP/1.1\r\nHost: h\r\n{told}\r\n");
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
    for (method, target) in [
        ("GET", "/a b"),
        ("GET", ""),
        ("G T", "/"),
        ("GET", "/\r\nX: y"),
    ] {
        assert!(client::request(&mut Vec::new(), method, target.as_bytes()).is_err());
    }
}
