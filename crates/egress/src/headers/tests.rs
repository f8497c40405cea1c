use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, VIA};
use proptest::prelude::*;

use weir_upstream::hop::trailers;

use super::{super::message, *};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Fields as a parser has read them.
fn read(lines: &[(&str, &str)]) -> weir_http1::ParsedFields {
    let mut fields = weir_http1::ParsedFields::default();
    for (name, value) in lines {
        fields.push(name.as_bytes(), value.as_bytes());
    }
    fields
}

fn map(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        headers.append(
            name,
            HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
        );
    }
    headers
}

/// Sorted.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let lines = headers.iter();
    let mut lines: Vec<String> = lines
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    lines.sort();
    lines
}

const AUTHORITY: &str = "api.example:8443";

fn plain() -> Outbound<'static> {
    Outbound {
        authority: AUTHORITY,
        set: &[],
        forwarded: Forwarded::Off,
        traceparent: false,
        caller: Some(std::net::Ipv4Addr::LOCALHOST.into()),
    }
}

fn out(lines: &[(&str, &str)], outbound: &Outbound<'_>) -> HeaderMap {
    message::map(to_origin(&read(lines), outbound).iter())
}

#[test]
fn what_the_caller_says_arrives_and_what_is_of_the_hop_does_not() {
    let headers = out(
        &[
            ("host", "127.0.0.1:8083"),
            ("connection", "close, X-Hop ,"),
            ("connection", "x-other"),
            ("x-hop", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Bearer s3cret"),
            ("proxy-authenticate", "Basic"),
            ("te", "gzip;q=0.5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("expect", "100-continue"),
            ("authorization", "Bearer of-the-caller"),
            ("cookie", "a=b"),
            ("accept", "a/b"),
            ("accept", "c/d"),
            ("x-forwarded-for", "192.0.2.1"),
            ("max-forwards", "3"),
            ("trailer", "x-sum"),
            ("x_under", "1"),
        ],
        &plain(),
    );
    assert_eq!(
        lines(&headers),
        [
            "accept: a/b",
            "accept: c/d",
            "authorization: Bearer of-the-caller",
            "cookie: a=b",
            "host: api.example:8443",
            "max-forwards: 3",
            "trailer: x-sum",
            "x-forwarded-for: 192.0.2.1",
            "x_under: 1",
        ]
    );
}

#[test]
fn connection_cannot_name_away_what_belongs_to_the_message() {
    let headers = out(
        &[
            (
                "connection",
                "host, content-length, via, authorization, traceparent, x-forwarded-for",
            ),
            ("host", "a.example"),
            ("content-length", "5"),
            ("via", "1.1 other"),
            ("authorization", "Basic Og=="),
        ],
        &Outbound {
            set: &[(
                http::header::AUTHORIZATION,
                HeaderValue::from_static("Bearer own"),
            )],
            forwarded: Forwarded::XForwardedFor,
            traceparent: true,
            ..plain()
        },
    );
    assert!(!headers.contains_key(CONTENT_LENGTH), "the carrier says it");
    assert_eq!(headers["authorization"], "Bearer own");
    assert_eq!(headers["x-forwarded-for"], "127.0.0.1");
    assert!(headers.contains_key(TRACEPARENT));
    assert_eq!(
        headers.get_all(VIA).iter().next().expect("via"),
        "1.1 other"
    );
}

#[test]
fn set_headers_take_the_place_of_the_callers_and_of_their_twins() {
    let set = [
        (
            HeaderName::from_static("x-api-key"),
            HeaderValue::from_static("own"),
        ),
        (
            HeaderName::from_static("x_odd"),
            HeaderValue::from_static("own"),
        ),
        (HOST, HeaderValue::from_static("elsewhere.example")),
    ];
    let headers = out(
        &[
            ("X-Api-Key", "1"),
            ("x-api-key", "2"),
            ("x_api_key", "3"),
            ("X_Api-Key", "4"),
            ("X.Api.Key", "4"),
            ("x-api.key", "4"),
            ("x!api~key", "4"),
            ("xapikey", "7"),
            ("x-odd", "5"),
            ("x-api-keys", "6"),
        ],
        &Outbound {
            set: &set,
            ..plain()
        },
    );
    assert_eq!(
        lines(&headers),
        [
            "host: api.example:8443",
            "x-api-key: own",
            "x-api-keys: 6",
            "x_odd: own",
            "xapikey: 7"
        ]
    );
}

#[test]
fn trailers_are_asked_for_where_the_caller_does() {
    let headers = out(
        &[("te", "deflate;q=0.5, Trailers;q=1"), ("connection", "te")],
        &plain(),
    );
    assert_eq!(headers[TE], "trailers");
    assert_eq!(headers[CONNECTION], "te");
    assert_eq!(headers[HOST], AUTHORITY);
}

#[test]
fn who_called_is_added_to_who_called_before() {
    let v6 = "2001:db8::1".parse().ok();
    let mapped = "::ffff:192.0.2.7".parse().ok();
    for (forwarded, caller, before, after) in [
        (
            Forwarded::XForwardedFor,
            v6,
            &[][..],
            "x-forwarded-for: 2001:db8::1",
        ),
        (
            Forwarded::XForwardedFor,
            mapped,
            &[
                ("x-forwarded-for", "a"),
                ("x-forwarded-for", "b"),
                ("x_forwarded_for", "c"),
            ],
            "x-forwarded-for: a, b, 192.0.2.7",
        ),
        (
            Forwarded::XForwardedFor,
            None,
            &[("x-forwarded-for", "")],
            "x-forwarded-for: unknown",
        ),
        (
            Forwarded::Rfc7239,
            v6,
            &[("forwarded", "for=a")],
            "forwarded: for=a, for=\"[2001:db8::1]\"",
        ),
        (Forwarded::Rfc7239, mapped, &[], "forwarded: for=192.0.2.7"),
        (Forwarded::Rfc7239, None, &[], "forwarded: for=unknown"),
    ] {
        let headers = out(
            before,
            &Outbound {
                forwarded,
                caller,
                ..plain()
            },
        );
        let mut expected = [after, "host: api.example:8443"];
        expected.sort_unstable();
        assert_eq!(lines(&headers), expected);
    }
}

#[test]
fn a_trace_goes_on_or_begins() {
    let asked = Outbound {
        traceparent: true,
        ..plain()
    };
    let given = [("traceparent", "00-odd"), ("tracestate", "a=b")];
    let headers = out(&given, &asked);
    assert_eq!(
        (&headers[TRACEPARENT], &headers[TRACESTATE]),
        (
            &HeaderValue::from_static("00-odd"),
            &HeaderValue::from_static("a=b")
        )
    );
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        let headers = out(&[("tracestate", "a=b")], &asked);
        assert!(!headers.contains_key(TRACESTATE));
        let parent = headers[TRACEPARENT].to_str().expect("ASCII").to_owned();
        let parts: Vec<&str> = parent.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [2, 32, 16, 2], "{parent}");
        let is_hex = |part: &&str| {
            part.bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        assert!(parts.iter().all(is_hex), "{parent}");
        assert!(parts[1].bytes().any(|b| b != b'0') && parts[2].bytes().any(|b| b != b'0'));
        assert!(seen.insert(parts[1].to_owned()) && seen.insert(parts[2].to_owned()));
    }
    assert!(!out(&[], &plain()).contains_key(TRACEPARENT));
}

#[test]
fn an_answer_loses_what_is_of_the_hop() {
    let given = read(&[
        ("connection", "keep-alive, x-hop"),
        ("keep-alive", "timeout=5"),
        ("x-hop", "1"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("upgrade", "h2,h2c"),
        ("alt-svc", "h3=\":443\""),
        ("proxy-authenticate", "Basic"),
        ("proxy-authentication-info", "x"),
        ("set-cookie", "a=b"),
        ("set-cookie", "c=d"),
        ("location", "http://169.254.169.254/"),
        ("proxy-status", "cdn; error=http_request_error"),
        ("trailer", "x-sum"),
    ]);
    let mut fields = to_caller(|| given.iter(), false);
    proxy_status(&mut fields, Kind::Terminated);
    assert_eq!(
        lines(&message::map(fields.iter())),
        [
            "location: http://169.254.169.254/",
            "proxy-status: cdn; error=http_request_error",
            "proxy-status: weir; error=connection_terminated; details=\"terminated\"",
            "set-cookie: a=b",
            "set-cookie: c=d",
            "trailer: x-sum",
        ]
    );
}

#[test]
fn a_length_that_nothing_overrides_stays() {
    let given = read(&[("content-length", "5"), ("connection", "content-length")]);
    let fields = to_caller(|| given.iter(), false);
    assert_eq!(fields.lines(), b"content-length: 5\r\n");
    let fields = to_caller(|| given.iter(), true);
    assert!(fields.lines().is_empty(), "the carrier says it");
}

#[test]
fn trailers_say_nothing_of_the_message() {
    let mut headers = map(&[
        ("grpc-status", "0"),
        ("content-length", "1"),
        ("connection", "x"),
        ("x", "1"),
        ("host", "b"),
    ]);
    trailers(&mut headers);
    assert_eq!(lines(&headers), ["grpc-status: 0"]);
}

fn header() -> impl Strategy<Value = (String, String)> {
    let names = "connection|te|transfer-encoding|upgrade|keep-alive|proxy-connection|x-[a-c]|x_[a-c]|host|via|cookie";
    (
        names,
        "[a-z, ;=-]{0,12}|x-[a-c]|trailers|close, x-[a-c]|host",
    )
}

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    http::header::PROXY_AUTHENTICATE,
    http::header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    http::header::TRANSFER_ENCODING,
    http::header::UPGRADE,
    HeaderName::from_static("http2-settings"),
];

proptest! {
    /// For all headers of callers: no field of the connection is passed on, no other field is lost, and each field that
    /// weir sets occurs once.
    #[test]
    fn only_what_is_of_the_hop_is_lost(written in proptest::collection::vec(header(), 0..12)) {
        let written: Vec<(&str, &str)> = written.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let before = map(&written);
        let set = [(HeaderName::from_static("x-a"), HeaderValue::from_static("own"))];
        let after = out(&written, &Outbound { set: &set, ..plain() });
        let named = |name: &HeaderName| {
            before.get_all(CONNECTION).iter().any(|value| lists_exactly(value, name.as_str()))
        };
        for name in HOP_BY_HOP {
            // Of these weir sends its own.
            let is_own = [TE, CONNECTION].contains(&name) && after.contains_key(TE);
            prop_assert!(is_own || !after.contains_key(&name), "{}", name);
        }
        for name in before.keys() {
            let is_own = *name == HOST || ["x-a", "x_a"].contains(&name.as_str());
            if is_own || HOP_BY_HOP.contains(name) || named(name) {
                continue;
            }
            prop_assert!(after.get_all(name).iter().eq(before.get_all(name)), "{}", name);
        }
        prop_assert_eq!(after.get_all("x-a").iter().collect::<Vec<_>>(), ["own"]);
        prop_assert_eq!(after.get_all(HOST).iter().collect::<Vec<_>>(), [AUTHORITY]);
        prop_assert!(!after.contains_key("x_a"));
    }
}

fn lists_exactly(value: &HeaderValue, name: &str) -> bool {
    let text = value.to_str().expect("ASCII");
    text.split(',')
        .any(|member| member.trim().eq_ignore_ascii_case(name))
}
