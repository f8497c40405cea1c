//! Whatever the text: no panic, and every diagnostic can be shown.

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
        "inf",
        "",
    ]);
    let pair = (key, value).prop_map(|(key, value)| format!("{key} = {value}"));
    prop_oneof![1 => header, 3 => pair]
}

fn environment() -> Environment {
    Environment {
        folder: "/etc/weir".into(),
        cores: 2,
        memory: 8 << 30,
        open_files: 1 << 20,
    }
}

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
[log]
format = "${remote_addr} ${status}"
"#;
