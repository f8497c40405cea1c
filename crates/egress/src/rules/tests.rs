use http::Uri;

use super::{super::checks, *};
use crate::target::target;

fn judge_with(rules: &Rules, method: &str, written: &str) -> Result<(), String> {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let uri = Uri::try_from(written).expect("a target");
    let target = target(&method, &uri, &weir_http1::ParsedFields::default(), rules)
        .map_err(|fault| fault.message)?;
    rules
        .judge(&target, &method, &Who::default())
        .map_err(|fault| {
            assert_eq!(fault.kind, Kind::NotAllowed);
            fault.message
        })
}

const ALLOW: &str = r#"allow = [
    "api.example.com",
    "*.partner.example:8443",
    "http://legacy.internal:8080",
    "GET,HEAD read.example/v1/",
    "POST read.example/v2",
    "GET read.example/status",
    "CONNECT,GET tunnel.example",
    "CONNECT path.example/v1/",
    "TRACE trace.example",
    "any.example:*",
    { host = "http://intern.example", addresses = ["10.0.0.0/8"] },
    { host = "http://intern.example", path = "/a/", addresses = ["192.168.1.0/24"] },
    { host = "intern.example", addresses = ["172.16.0.0/12"] },
    "http://10.9.8.7:8080",
]"#;

#[test]
fn who_is_in_no_rule_may_not_be_called() {
    let nobody = checks::rules("allow = []");
    assert!(judge_with(&nobody, "GET", "/api.example.com/").is_err());
    let rules = checks::rules(ALLOW);
    for written in [
        "/api.example.com/",
        "/api.example.com/../%2e%2e//a;b/%2f",
        "https://api.example.com/",
        "/a.partner.example:8443/",
        "/a.b.partner.example:8443/",
        "/legacy.internal:8080/",
        "http://legacy.internal:8080/",
        "/read.example/v1/",
        "/read.example/v1/a",
        "/read.example/status",
        "/read.example/status/",
        "/any.example:1/",
        "/any.example/",
        "/10.9.8.7:8080/",
    ] {
        assert_eq!(judge_with(&rules, "GET", written), Ok(()), "{written}");
    }
    for written in [
        "/evil.example/",
        "/evilapi.example.com/",
        "/api.example.com.evil.example/",
        "/x.api.example.com/",
        "/api.example.com:8443/",
        "http://api.example.com/",
        "/partner.example:8443/",
        "/evilpartner.example:8443/",
        "/a.partner.example/",
        "/a.partner.example.evil.example:8443/",
        "/legacy.internal/",
        "https://legacy.internal:8080/",
        "/read.example/",
        "/read.example/v1",
        "/read.example/v12/",
        "/read.example/V1/",
        "/read.example/%761/",
        "/read.example/v1/../v3",
        "/read.example/v1/%2e%2e/v3",
        "/read.example/v1//a",
        "/read.example//v1/a",
        "/read.example/statuses",
        "/read.example/?/v1/",
        "http://any.example:80/",
        "/10.9.8.7/",
        "/10.9.8.6:8080/",
        "/[::10.9.8.7]:8080/",
    ] {
        assert!(judge_with(&rules, "GET", written).is_err(), "{written}");
    }
}

#[test]
fn an_address_has_many_forms_and_one_rule() {
    let rules = checks::rules(r#"allow = ["http://[::ffff:10.0.0.6]:80", "[FD00::7]"]"#);
    for written in ["/10.0.0.6/", "/[::ffff:a00:6]/", "/[fd00:0:0::7]/"] {
        assert_eq!(judge_with(&rules, "GET", written), Ok(()), "{written}");
    }
}

#[test]
fn methods_are_those_of_the_rule() {
    let rules = checks::rules(ALLOW);
    for (method, written, allowed) in [
        ("HEAD", "/read.example/v1/", true),
        ("POST", "/read.example/v1/", false),
        ("get", "/read.example/v1/", false),
        ("POST", "/read.example/v2", true),
        ("GET", "/read.example/v2", false),
        ("DELETE", "/api.example.com/", true),
        ("PURGE", "/api.example.com/", true),
        ("TRACE", "/api.example.com/", false),
        ("TRACE", "/trace.example/", true),
    ] {
        assert_eq!(
            judge_with(&rules, method, written).is_ok(),
            allowed,
            "{method} {written}"
        );
    }
}

#[test]
fn a_tunnel_needs_a_rule_that_cannot_be_gone_around() {
    let rules = checks::rules(ALLOW);
    for (written, allowed) in [
        ("api.example.com:443", true),
        ("api.example.com:22", false),
        ("a.partner.example:8443", true),
        ("legacy.internal:8080", true),
        ("read.example:443", false),
        ("tunnel.example:443", true),
        ("path.example:443", false),
        ("trace.example:443", false),
        ("any.example:22", true),
        ("evil.example:443", false),
        ("10.9.8.7:8080", true),
        ("[::ffff:10.9.8.7]:8080", true),
    ] {
        assert_eq!(
            judge_with(&rules, "CONNECT", written).is_ok(),
            allowed,
            "{written}"
        );
    }
    let off = checks::rules("allow = [\"api.example.com\"]\nconnect = false");
    let refused = judge_with(&off, "CONNECT", "api.example.com:443").expect_err("off");
    assert!(refused.contains("connect = true"), "{refused}");
}

#[test]
fn networks_are_those_of_all_rules_that_name_the_origin() {
    let rules = checks::rules(ALLOW);
    let networks = |scheme, host: &str, port| {
        let host = host.to_owned();
        let networks = rules.networks(&Origin { scheme, host, port }, true);
        networks
            .iter()
            .map(|network| format!("{}/{}", network.address, network.prefix))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        networks(Scheme::Http, "intern.example", 80),
        ["10.0.0.0/8", "192.168.1.0/24"]
    );
    assert_eq!(
        networks(Scheme::Https, "intern.example", 443),
        ["172.16.0.0/12"]
    );
    assert_eq!(networks(Scheme::Http, "intern.example", 81), [""; 0]);
    assert_eq!(networks(Scheme::Http, "10.9.8.7", 8080), ["10.9.8.7/32"]);
    assert_eq!(networks(Scheme::Https, "api.example.com", 443), [""; 0]);
}

#[test]
fn a_refusal_says_what_nearly_matched() {
    let rules = checks::rules(ALLOW);
    for (method, written, parts) in [
        (
            "GET",
            "/evil.example/",
            &["evil.example is not in [egress] allow; add \"evil.example\""][..],
        ),
        ("GET", "/evil.example:8443/", &["add \"evil.example:8443\""]),
        (
            "GET",
            "http://evil.example/",
            &["add \"http://evil.example\""],
        ),
        (
            "GET",
            "/api.example.com:8443/",
            &["has https://api.example.com, but not https://api.example.com:8443"],
        ),
        (
            "GET",
            "http://api.example.com/",
            &[
                "add \"api.example.com\" to upgrade in [egress]; weir then calls https://api.example.com",
            ],
        ),
        (
            "GET",
            "http://a.partner.example:8443/",
            &["add \"a.partner.example:8443\" to upgrade in [egress]; weir then calls"],
        ),
        (
            "GET",
            "http://evil.example:443/",
            &["add \"evil.example:443\" to upgrade in [egress], and \"evil.example\" to allow"],
        ),
        (
            "GET",
            "/v1",
            &["write /HOST/v1", "base_uri", "add \"v1\" to [egress] allow"],
        ),
        (
            "GET",
            "/a.partner.example/",
            &["has https://a.partner.example:8443, but not https://a.partner.example"],
        ),
        (
            "GET",
            "http://any.example/",
            &["add \"any.example\" to upgrade"],
        ),
        (
            "POST",
            "/read.example/v1/x",
            &["POST https://read.example", "only GET, HEAD is allowed"],
        ),
        (
            "GET",
            "/read.example/v3",
            &["GET https://read.example is allowed only below /v1/, /status"],
        ),
        ("GET", "/read.example/v1/../x", &["a segment of dots"]),
        ("TRACE", "/api.example.com/", &["headers that weir sets"]),
        (
            "CONNECT",
            "read.example:443",
            &["it needs a rule without a path"],
        ),
        (
            "CONNECT",
            "evil.example:443",
            &["evil.example is not in [egress] allow"],
        ),
        (
            "CONNECT",
            "api.example.com:22",
            &["has https://api.example.com, but not https://api.example.com:22"],
        ),
    ] {
        let refused = judge_with(&rules, method, written).expect_err(written);
        for part in parts {
            assert!(refused.contains(part), "{method} {written}: {refused}");
        }
        assert!(
            !refused.contains("/x"),
            "the path is for the call's line: {refused}"
        );
    }
}

#[test]
fn a_rule_for_some_pools_lets_no_other_and_nobody_unknown() {
    let rules = checks::rules(
        r#"allow = [
            "open.example",
            { host = "bank.example", pools = ["a", "b"] },
            { host = "mixed.example", path = "/public/" },
            { host = "mixed.example", pools = ["a"], addresses = ["10.0.0.0/8"] },
        ]"#,
    );
    let who = |pool: Option<&str>, of_user: &[&str]| Who {
        pool: pool.map(Into::into),
        of_user: of_user.iter().map(|name| (*name).into()).collect(),
    };
    let origin = |host: &str| Origin {
        scheme: Scheme::Https,
        host: host.to_owned(),
        port: 443,
    };
    let lets = |host: &str, path: &'static str, form: Form, who: &Who| {
        let target = Target {
            origin: origin(host),
            path: http::uri::PathAndQuery::from_static(path),
            form,
        };
        rules.judge(&target, &Method::GET, who).is_ok()
    };
    let (path, tunnel) = (Form::Path, Form::Tunnel);
    for (who, is_one) in [
        (who(Some("a"), &[]), true),
        (who(Some("b"), &["c"]), true),
        (who(Some("c"), &["a"]), false),
        (who(None, &["a", "b"]), true),
        // Pools of one user. The rule does not name one of them.
        (who(None, &["a", "c"]), false),
        (who(None, &[]), false),
    ] {
        assert!(lets("open.example", "/", path, &who));
        assert_eq!(lets("bank.example", "/", path, &who), is_one, "{who:?}");
        assert_eq!(lets("bank.example", "/", tunnel, &who), is_one, "{who:?}");
        assert!(lets("mixed.example", "/public/x", path, &who));
        assert!(rules.is_entitled(&origin("open.example"), &who));
        assert_eq!(rules.is_entitled(&origin("bank.example"), &who), is_one);
    }
    let (a, b) = (who(Some("a"), &[]), who(Some("b"), &[]));
    assert!(lets("mixed.example", "/", path, &a) && !lets("mixed.example", "/", path, &b));
    assert!(rules.is_entitled(&origin("mixed.example"), &a));
    assert!(!rules.is_entitled(&origin("mixed.example"), &b));
    assert_eq!(rules.networks(&origin("mixed.example"), true).len(), 1);
    assert!(rules.networks(&origin("mixed.example"), false).is_empty());
}
