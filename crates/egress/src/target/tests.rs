use proptest::prelude::*;

use super::{super::checks, *};

fn read_with(method: &str, written: &str, hosts: &[&str]) -> Result<Target, Fault> {
    let rules = checks::rules(
        r#"
        allow = ["api.example.com", "http://legacy.internal:8080", "http://plain.example", "http://both.example:81", "both.example:82",
                 "any.example:*", "http://[fd00::7]:8080"]
        upgrade = ["api.example.com", "odd.example:8080"]
        "#,
    );
    let mut headers = ParsedFields::default();
    for host in hosts {
        headers.push(b"Host", host.as_bytes());
    }
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let uri = Uri::try_from(written).unwrap_or_else(|error| panic!("{written}: {error}"));
    target(&method, &uri, &headers, &rules)
}

/// Origin and path, as one URL.
fn read(written: &str) -> String {
    let target = read_with("GET", written, &[])
        .unwrap_or_else(|fault| panic!("{written}: {}", fault.message));
    format!("{}{}", target.origin, target.path)
}

fn refusal(method: &str, written: &str, hosts: &[&str]) -> String {
    let fault = read_with(method, written, hosts).expect_err(written);
    assert_eq!(fault.kind, Kind::BadRequest, "{written}");
    fault.message
}

#[test]
fn a_path_names_its_host_and_the_rest_is_untouched() {
    for (written, url) in [
        (
            "/api.example.com/v1/x?y=z",
            "https://api.example.com/v1/x?y=z",
        ),
        ("/api.example.com", "https://api.example.com/"),
        ("/api.example.com/", "https://api.example.com/"),
        ("/api.example.com?a=/b", "https://api.example.com/?a=/b"),
        ("/API.Example.COM./a", "https://api.example.com/a"),
        ("/api.example.com:443/", "https://api.example.com/"),
        ("/api.example.com:8443/", "https://api.example.com:8443/"),
        (
            "/a.example//b/../%2e%2E/c;d=e/%C3%A4?f=%0D%0A%00&g=\\",
            "https://a.example//b/../%2e%2E/c;d=e/%C3%A4?f=%0D%0A%00&g=\\",
        ),
        (
            "/a.example/http://b.example/",
            "https://a.example/http://b.example/",
        ),
        ("/a.example/%250d%25", "https://a.example/%250d%25"),
        ("/a.example/%", "https://a.example/%"),
        ("/a.example/b?c#d", "https://a.example/b?c"),
        ("/under_score.example/", "https://under_score.example/"),
        ("/xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("/-odd-.example/", "https://-odd-.example/"),
        ("/1.example/", "https://1.example/"),
        ("/0x7f.example/", "https://0x7f.example/"),
        ("/a.0xg/", "https://a.0xg/"),
        ("/192.0.2.1/", "https://192.0.2.1/"),
        ("/192.0.2.1.:8443/", "https://192.0.2.1:8443/"),
        ("/[2001:DB8:0::1]/", "https://[2001:db8::1]/"),
        ("/[2001:db8::1]:8443/", "https://[2001:db8::1]:8443/"),
        ("/[::ffff:127.0.0.1]/", "https://127.0.0.1/"),
        ("/[::ffff:7f00:1]:81/", "https://127.0.0.1:81/"),
        ("/[::127.0.0.1]/", "https://[::7f00:1]/"),
    ] {
        assert_eq!(read(written), url, "{written}");
        assert_eq!(
            read_with("GET", written, &[]).expect("read").form,
            Form::Path
        );
    }
}

#[test]
fn the_first_rule_that_names_a_host_says_how_it_is_called() {
    for (written, url) in [
        ("/plain.example/", "http://plain.example/"),
        ("/plain.example:80/", "http://plain.example/"),
        ("/plain.example:443/", "https://plain.example/"),
        // The rule is for another port.
        ("/legacy.internal/", "https://legacy.internal/"),
        ("/legacy.internal:8080/", "http://legacy.internal:8080/"),
        ("/both.example:81/", "http://both.example:81/"),
        ("/both.example:82/", "https://both.example:82/"),
        ("/any.example:1234/", "https://any.example:1234/"),
        ("/[fd00:0::7]:8080/", "http://[fd00::7]:8080/"),
        ("/nobody.example:80/", "https://nobody.example:80/"),
    ] {
        assert_eq!(read(written), url, "{written}");
    }
}

#[test]
fn as_a_proxy_is_asked() {
    for (written, url) in [
        ("http://a.example/b?c", "http://a.example/b?c"),
        ("HTTP://A.example", "http://a.example/"),
        ("http://a.example?b", "http://a.example/?b"),
        ("https://a.example/", "https://a.example/"),
        ("http://a.example:8080/", "http://a.example:8080/"),
        ("https://a.example:80/", "https://a.example:80/"),
        ("http://api.example.com/x", "https://api.example.com/x"),
        ("http://api.example.com:80/x", "https://api.example.com/x"),
        (
            "http://api.example.com:8080/x",
            "http://api.example.com:8080/x",
        ),
        ("http://odd.example:8080/x", "https://odd.example:8080/x"),
        ("http://odd.example/x", "http://odd.example/x"),
    ] {
        assert_eq!(read(written), url, "{written}");
        assert_eq!(
            read_with("GET", written, &[]).expect("read").form,
            Form::Proxy
        );
    }
    for host in ["a.example", "A.example.", "a.example:80"] {
        assert!(
            read_with("GET", "http://a.example/", &[host]).is_ok(),
            "{host}"
        );
    }
    // Before it is upgraded.
    assert!(read_with("GET", "http://api.example.com/", &["api.example.com:80"]).is_ok());
}

#[test]
fn a_tunnel_is_a_host_and_a_port() {
    let tunnel =
        read_with("CONNECT", "API.example.com:443", &["api.example.com"]).expect("a tunnel");
    assert_eq!(
        (tunnel.form, tunnel.origin.to_string().as_str()),
        (Form::Tunnel, "https://api.example.com")
    );
    let tunnel =
        read_with("CONNECT", "legacy.internal:8080", &["legacy.internal:8080"]).expect("a tunnel");
    assert_eq!(tunnel.origin.to_string(), "http://legacy.internal:8080");
    for (written, hosts) in [
        ("api.example.com", &[][..]),
        ("api.example.com:443", &["other.example:443"]),
        ("api.example.com:443", &["api.example.com:22"]),
        ("http://api.example.com/", &[]),
        ("/api.example.com/", &[]),
        ("[::1]", &[]),
        ("2130706433:443", &[]),
    ] {
        refusal("CONNECT", written, hosts);
    }
    assert!(refusal("GET", "api.example.com:443", &[]).contains("only CONNECT takes"));
}

#[test]
fn what_two_readers_could_read_differently_is_refused_with_its_cause() {
    for (written, cause) in [
        ("/", "has no host"),
        ("//api.example.com/", "has no host"),
        ("/?a", "has no host"),
        ("/:80/", "has no host"),
        ("*", "has no host"),
        ("/https://api.example.com/", "begins with a scheme"),
        ("/HTTP:/api.example.com/", "begins with a scheme"),
        ("/user@api.example.com/", "the host has a user"),
        ("/api.example.com:pass@127.0.0.1/", "the host has a user"),
        ("http://api.example.com@127.0.0.1/", "the host has a user"),
        ("http://a:b@api.example.com/", "the host has a user"),
        ("/api.example.com:/", "not a number from 1 to 65535"),
        ("/api.example.com:0/", "not a number from 1 to 65535"),
        ("/api.example.com:65536/", "not a number from 1 to 65535"),
        ("/api.example.com:080/", "not a number from 1 to 65535"),
        ("/api.example.com:+80/", "not a number from 1 to 65535"),
        ("/api.example.com:80a/", "not a number from 1 to 65535"),
        ("/api.example.com:80:80/", "more than one colon"),
        ("/::1/", "more than one colon"),
        ("/api%2eexample.com/", "percent-encoded"),
        ("/api.example.com%00.evil.example/", "percent-encoded"),
        ("/bücher.example/", "not ASCII"),
        ("/api.example.com\u{3002}evil.example/", "not ASCII"),
        ("/a\\@b.example/", "the host has a user"),
        ("/a\\b.example/", "which is not allowed in a host"),
        ("/a,b.example/", "which is not allowed in a host"),
        ("/a;b.example/", "which is not allowed in a host"),
        ("/a*b.example/", "which is not allowed in a host"),
        ("/../api.example.com/", "a misplaced dot"),
        ("/./", "a misplaced dot"),
        ("/a..example/", "a misplaced dot"),
        ("/.a.example/", "a misplaced dot"),
        ("/a.example../", "a misplaced dot"),
        ("/2130706433/", "four decimal numbers"),
        ("/0177.0.0.1/", "four decimal numbers"),
        ("/0x7f.1/", "four decimal numbers"),
        ("/0x7f000001/", "four decimal numbers"),
        ("/127.1/", "four decimal numbers"),
        ("/127.0.0.1.1/", "four decimal numbers"),
        ("/127.0.0.01/", "four decimal numbers"),
        ("/127.0.0.0X1/", "four decimal numbers"),
        ("/127.0.0.256/", "four decimal numbers"),
        ("/127.0.0.0x/", "four decimal numbers"),
        ("/a.example.1/", "four decimal numbers"),
        ("/a.example.08./", "four decimal numbers"),
        ("/[::1/", "has no ]"),
        ("/[::1]a/", "only a port may follow"),
        ("/[::1]:/", "not a number from 1 to 65535"),
        ("/[]/", "not an IPv6 address"),
        ("/[127.0.0.1]/", "not an IPv6 address"),
        ("/[v1.a]/", "not an IPv6 address"),
        ("/[fe80::1%25eth0]/", "with a zone"),
        ("/::1]/", "more than one colon"),
        ("/a]/", "which is not allowed in a host"),
        ("/api.example.com/a\\b", "backslash"),
        ("/api.example.com/a%0d%0aHost:b", "line break"),
        ("/api.example.com/a%0Ab?c", "line break"),
        ("/api.example.com/%00", "zero byte"),
        ("http://api.example.com/%0D", "line break"),
        ("ftp://api.example.com/", "neither http nor https"),
        ("httpx://api.example.com/", "neither http nor https"),
    ] {
        let message = refusal("GET", written, &[]);
        assert!(message.contains(cause), "{written}: {message}");
        assert!(
            !message.contains("pass") && !message.contains("a:b"),
            "{message}"
        );
    }
    let long = format!("/{}.example/", "a".repeat(64));
    assert!(refusal("GET", &long, &[]).contains("label of more than 63"));
    let long = format!("/{}example/", "a.".repeat(124));
    assert!(refusal("GET", &long, &[]).contains("longer than 253"));
    let longest = format!("/{}example/", "a.".repeat(123));
    assert_eq!(read(&longest).len(), "https:/".len() + longest.len());
    assert!(refusal("OPTIONS", "*", &[]).contains("has no host"));
}

#[test]
fn a_host_header_that_says_something_else_is_refused_as_a_proxy() {
    for hosts in [
        &["b.example"][..],
        &["a.example:81"],
        &["a.example", "a.example"],
        &[""],
        &["user@a.example"],
        &["a.example, b.example"],
        &["2130706433"],
    ] {
        refusal("GET", "http://a.example/", hosts);
    }
    // In path form it says where weir is.
    for host in ["127.0.0.1:8083", "localhost", "weir", ""] {
        assert!(read_with("GET", "/a.example/", &[host]).is_ok(), "{host}");
    }
    refusal("GET", "/a.example/", &["a", "b"]);
}

fn piece() -> impl Strategy<Value = String> {
    let known = proptest::sample::select(vec![
        "/",
        "//",
        "..",
        ".",
        ":",
        "@",
        "\\",
        "%2e",
        "%2f",
        "%5c",
        "%25",
        "%00",
        "%0d%0a",
        ";",
        "?",
        "#",
        "[",
        "]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "127.0.0.1",
        "0177.0.0.1",
        "0x7f.1",
        "2130706433",
        "127.1",
        "http://",
        "https://",
        "api.example.com",
        "only.example.com",
        "/v1/",
        "legacy.internal",
        ":8080",
        ":8081",
        ":8443",
        ":443",
        ":80",
        "a.partner.example",
        ".partner.example",
        "evil",
        "xn--",
        "ä",
        "0x",
        "user:pass@",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => "[ -~]{0,3}"]
}

fn whole() -> impl Strategy<Value = String> {
    let starts = vec![
        "/",
        "http://",
        "https://",
        "",
        "/api.example.com",
        "/only.example.com/v1/",
        "http://only.example.com/v1/",
        "https://only.example.com/v1/",
        "/a.partner.example:8443",
        "/127.0.0.1:8081",
    ];
    let pieces = proptest::collection::vec(piece(), 0..8);
    (proptest::sample::select(starts), pieces)
        .prop_map(|(start, pieces)| start.to_owned() + &pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_let_through_is_the_same_host_to_another_reader(
        method in "GET|POST|TRACE|CONNECT",
        written in whole(),
        host in proptest::option::of(prop_oneof![Just("api.example.com".to_owned()), piece()]),
    ) {
        checks::call(&method, &written, host.as_deref());
    }

    #[test]
    fn numbers_are_addresses_to_nobody_or_to_all(
        parts in proptest::collection::vec("0x[0-9a-fA-F]{0,4}|0[0-7]{1,4}|[0-9]{1,10}|[0-9]{1,3}|[a-f]", 1..6),
        dot in "\\.?",
    ) {
        checks::call("GET", &format!("/{}{dot}/", parts.join(".")), None);
    }
}
