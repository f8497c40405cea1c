//! For every text: the parser does not panic, and every diagnostic can be shown.

use proptest::{collection::vec, prelude::*, sample::select};
use weir_config::{Environment, read, to_toml};

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_characters(text in "\\PC{0,200}") {
        look_at(&text);
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..200)) {
        look_at(&String::from_utf8_lossy(&bytes));
    }

    /// Lines that could stand in a weir.toml, in any order.
    #[test]
    fn any_lines(lines in vec(line(), 0..30)) {
        look_at(&lines.join("\n"));
    }

    /// Rules that could stand in `allow`, and texts that are almost such rules.
    #[test]
    fn any_rules(rules in vec(rule(), 0..6), slip in "\\PC{0,2}", at in any::<prop::sample::Index>()) {
        let mut rules: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
        for rule in &rules {
            look_at(&format!("{SITE}[egress]\nallow = [{rule}]\n"));
            look_at(&format!("{SITE}[egress]\nallow = [\"*.example\", {rule}]\nupgrade = [{rule}]\n"));
            look_at(&format!("{SITE}[egress.host.a]\nhosts = [\"*.example:*\", {rule}]\npreconnect = 1\n"));
        }
        look_at(&format!("{SITE}[egress]\nallow = [{}]\n", rules.join(", ")));
        if let Some(rule) = rules.first_mut() {
            let place = at.index(rule.len());
            if rule.is_char_boundary(place) {
                rule.insert_str(place, &slip);
            }
            look_at(&format!("{SITE}[egress]\nallow = [{rule}]\n"));
        }
    }

    /// A good file with one place changed.
    #[test]
    fn one_slip(at in any::<prop::sample::Index>(), with in "\\PC{0,3}", drop in 0usize..5) {
        let at = at.index(GOOD.len());
        let end = (at + drop).min(GOOD.len());
        if GOOD.is_char_boundary(at) && GOOD.is_char_boundary(end) {
            look_at(&format!("{}{with}{}", &GOOD[..at], &GOOD[end..]));
        }
    }
}

#[test]
fn the_good_file_is_good() {
    let checked = read("weir.toml", GOOD, &environment()).unwrap();
    assert!(checked.warnings.is_empty(), "{}", checked.warnings);
}

fn look_at(text: &str) {
    match read("weir.toml", text, &environment()) {
        Ok(checked) => {
            checked.warnings.render(true);
            let printed = to_toml(&checked.config);
            let again = read("printed", &printed, &environment());
            match again {
                Ok(again) => assert_eq!(again.config, checked.config, "{text}\n{printed}"),
                Err(wrong) => panic!("{text}\n{printed}\n{wrong}"),
            }
        }
        Err(diagnostics) => {
            assert!(diagnostics.has_errors());
            for diagnostic in diagnostics.iter() {
                assert!(diagnostic.span.start <= text.len(), "{diagnostic:?}");
                assert!(!diagnostic.message.contains('\n'), "{diagnostic:?}");
            }
            diagnostics.render(true);
        }
    }
}

fn line() -> impl Strategy<Value = String> {
    let header = select(vec![
        "[server]",
        "[listen.web]",
        "[listen]",
        "[site.a]",
        "[site.b]",
        "[[site.a.route]]",
        "[site.a.route]",
        "[site]",
        "[pool.p]",
        "[pool.p.queue]",
        "[pool.q]",
        "[log]",
        "[egress]",
        "[egress.host.a]",
        "[egress.host.b]",
        "[egress.host]",
        "[x.y]",
        "[[server]]",
        "[pool.p.env]",
    ])
    .prop_map(str::to_owned);
    let key = select(vec![
        "address",
        "hosts",
        "listen",
        "root",
        "pool",
        "path",
        "methods",
        "redirect",
        "reply",
        "params",
        "runtime",
        "command",
        "servers",
        "maxconn",
        "timeout",
        "max_body",
        "error_pages",
        "pm",
        "pm.max_children",
        "queue",
        "script",
        "allow",
        "upgrade",
        "preconnect",
        "verify",
        "client_cert",
        "client_key",
        "token_file",
        "egress",
        "access",
        "format",
        "threads",
        "route",
        "mode",
        "set_headers",
        "index",
        "x",
        "a.b.c",
        "\"\"",
    ]);
    let value = select(vec![
        "1",
        "-1",
        "0x10",
        "1.5",
        "true",
        "\"\"",
        "\"a\"",
        "'/\\.'",
        "\"0.0.0.0:80\"",
        "[]",
        "[\"a\"]",
        "[1]",
        "{}",
        "{ a = \"b\" }",
        "{ 503 = \"x\" }",
        "\"p\"",
        "\"servers\"",
        "\"command\"",
        "\"${host}\"",
        "\"${hots}\"",
        "1979-05-27",
        "99999999999999999999",
        "\"10s\"",
        "\"64K\"",
        "[\"unix:/a\"]",
        "{ status = 200, body = \"ok\" }",
        "[\"a.example\", \"*.example:*\", \"http://127.0.0.1/v1\"]",
        "[\"GET a.example\", { host = \"b.example\", addresses = [\"10.0.0.0/8\"] }]",
        "{ X-A = \"a ${file:b} $${c}\", X-B = \"${env:A}\" }",
        "false",
        "inf",
        "",
    ]);
    let pair = (key, value).prop_map(|(key, value)| format!("{key} = {value}"));
    prop_oneof![1 => header, 3 => pair]
}

fn rule() -> impl Strategy<Value = String> {
    let methods = select(vec!["", "", "", "GET ", "GET,POST ", "get ", "* "]);
    let scheme = select(vec!["", "", "", "http://", "https://", "ftp://", "//"]);
    let host = select(vec![
        "a.example",
        "A.example.",
        "b.a.example",
        "*.example",
        "*.a.example",
        "*",
        "localhost",
        "127.0.0.1",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "fd00::7",
        "2130706433",
        "0x7f.1",
        "127.1",
        "user@a.example",
        "",
        "ä.example",
        "a..b",
        "-",
        "0.0.0.0",
    ]);
    let port = select(vec![
        "", "", "", ":443", ":80", ":8443", ":*", ":0", ":", ":99999",
    ]);
    let path = select(vec![
        "", "", "", "/", "/v1", "/v1/", "/v1/..", "/v1?x", "/v1#x", "//", "/%zz", "/%20", "/*",
    ]);
    (methods, scheme, host, port, path).prop_map(|(methods, scheme, host, port, path)| {
        format!("{methods}{scheme}{host}{port}{path}")
    })
}

fn environment() -> Environment {
    Environment {
        folder: "/etc/weir".into(),
        cores: 2,
        memory: 8 << 30,
        open_files: 1 << 20,
    }
}

const SITE: &str = "[listen.web]\naddress = \"127.0.0.1:80\"\n[site.a]\nroot = \"/srv\"\n";

const GOOD: &str = r#"
[server]
user = "weir"
[listen.web]
address = "0.0.0.0:80"
[site.shop]
hosts = ["shop.example", "*.shop.example"]
root = "/srv/shop/public"
fallback = "/index.php"
pool = "shop"
params = { APP_ENV = "production", HOST = "${host}" }
error_pages = { 503 = "errors/503.html" }
[[site.shop.route]]
path = "~^/v[0-9]+/"
methods = ["GET"]
redirect = "https://${host}${uri}"
[[site.shop.route]]
path = "/ping"
reply = { status = 200, body = "pong" }
[pool.shop]
runtime = "command"
command = ["php-cgi"]
max_children = 4
env = { LANG = "C.UTF-8" }
[pool.shop.queue]
timeout = "5s"
[egress]
listen = ["127.0.0.1:8083", "unix:/run/egress.sock"]
allow = ["api.example.com", "GET,POST *.partner.example:8443/v1/", { host = "http://a.internal", addresses = ["10.0.0.0/8"] }]
upgrade = ["api.example.com"]
[egress.host.a]
hosts = ["api.example.com"]
preconnect = 2
timeout = "5s"
set_headers = { Authorization = "Bearer ${file:token}", X-B = "${env:B}$${c}" }
[log]
format = "${remote_addr} ${status}"
"#;
