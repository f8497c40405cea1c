//! Credentials of callers, and credentials that weir sends to origins: tokens, keys and certificates.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use weir_test::authority::Authority;
use weir_test::dns::Says;
use weir_test::oddity::Oddity;
use weir_test::origin::Origin;
use weir_test::php::own;
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::weir::{mode, write};
use weir_test::{Setup, free_address, is_root, wait_until};

use crate::with_origin;

const TOKEN: &str = "a-token-of-the-test-0123456789";

#[test]
fn callers_over_tcp_say_the_token() {
    let (setup, outward, origin) = with_origin();
    let token = setup.folder().join("token");
    write(&token, format!("{TOKEN}\n").as_bytes());
    mode(&token, 0o600);
    let socket = setup.folder().join("egress.sock");
    let host = format!("api.test:{}", origin.address().port());
    let sidecar = outward
        .listen(&format!("unix:{}", socket.display()))
        .lines(&format!(
            "token_file = \"{}\"\nupgrade = [\"{host}\"]",
            token.display()
        ))
        .start_in(setup);
    let target = format!("/{host}/echo");
    let with = |value: &str| sidecar.call("GET", &target, &[("Proxy-Authorization", value)], b"");

    let refused = sidecar.get(&target).expect(407).expect_reason("no_token");
    let asked = refused.header("proxy-authenticate").expect("a challenge");
    assert!(asked.starts_with("Bearer"), "{asked}");
    with("Bearer something-else-0123456789").expect(407);
    let text = with(&format!("Bearer {TOKEN}")).expect(200).text();
    assert_eq!(Sidecar::value(&text, "proxy"), "", "it goes no further");

    // In the form that a URL has, and over the socket, whose permissions decide who may call.
    let address = sidecar.address;
    let proxy = format!("http://any:{TOKEN}@{address}");
    let curl = |words: &[&str]| {
        let mut command = Command::new("curl");
        let output = command
            .args(["-sS", "-f"])
            .args(words)
            .output()
            .expect("curl");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = curl(&["--proxy", &proxy, &format!("http://{host}/echo")]);
    assert_eq!(Sidecar::value(&text, "proxy"), "");
    let socket = socket.to_str().expect("a path");
    curl(&["--unix-socket", socket, &format!("http://weir{target}")]);
    assert_eq!(origin.connections(), 1);
    assert_eq!(origin.wait_for_calls(3).len(), 3);
    for file in ["log/access.log", "log/stderr"] {
        assert!(!sidecar.weir.read(file).contains(TOKEN), "{file}");
    }
}

#[test]
fn weir_says_the_key_that_the_application_does_not_know() {
    let setup = Setup::new();
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test", "DNS:open.test"]);
    let origin = Origin::tls(setup.folder(), &identity);
    let open = Origin::tls(setup.folder(), &identity);
    let key = setup.folder().join("api.key");
    write(&key, format!("{TOKEN}\n").as_bytes());
    mode(&key, 0o600);
    let ca = outward.authority.file();
    let table = format!(
        "[egress.host.api]\nhosts = [\"api.test:{}\"]\nca_file = \"{}\"\n\
         set_headers = {{ Authorization = \"Bearer ${{file:{}}}\", X-Test = \"set\" }}\n",
        origin.address().port(),
        ca.display(),
        key.display(),
    );
    let sidecar = outward
        .name("api.test", origin.address())
        .name("open.test", open.address())
        .tables(&table)
        .start_in(setup);
    let own = [("Authorization", "Bearer of-the-caller"), ("X-Test", "own")];
    let ask = |name: &str, origin: &Origin| {
        let target = format!("/{name}:{}/echo", origin.address().port());
        let text = sidecar.call("GET", &target, &own, b"").expect(200).text();
        ["authorization", "x-test"].map(|key| Sidecar::value(&text, key))
    };
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(ask("api.test", &origin), [&bearer, "set"]);
    assert_eq!(ask("open.test", &open), ["Bearer of-the-caller", "own"]);
    let toml = sidecar.weir.read("weir.toml");
    assert!(!toml.contains(TOKEN));
    for file in ["log/access.log", "log/stderr"] {
        assert!(!sidecar.weir.read(file).contains(TOKEN), "{file}");
    }
}

#[test]
fn weir_shows_its_certificate_to_who_asks_for_one() {
    let setup = Setup::new();
    let outward = Outward::new();
    let clients = Authority::new();
    let own = clients.client("shop.test");
    mode(&own.key, 0o600);
    let identity = outward.authority.server(&["DNS:bank.test"]);
    let more = format!(
        "ssl_verify_client on; ssl_client_certificate {};",
        clients.file().display()
    );
    let listen = Origin::listen_tls(&identity, true);
    let origin = Origin::start(setup.folder(), free_address(), &listen, &more);
    let sidecar = outward
        .name("bank.test", origin.address())
        .usual(&format!(
            "client_cert = \"{}\"\nclient_key = \"{}\"",
            own.cert.display(),
            own.key.display()
        ))
        .start_in(setup);
    let target = format!("/bank.test:{}/echo", origin.address().port());
    let text = sidecar.get(&target).expect(200).text();
    assert_eq!(Sidecar::value(&text, "client"), "CN=shop.test");
}

#[test]
fn a_tunnel_can_be_refused() {
    let (setup, outward, origin) = with_origin();
    let sidecar = outward.lines("connect = false").start_in(setup);
    let mut client = sidecar.client();
    let host = format!("api.test:{}", origin.address().port());
    client.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let refused = client.response().expect(403);
    refused.expect_reason("not_allowed");
    assert_eq!(origin.connections(), 0);
    sidecar.get(&format!("/{host}/echo")).expect(200);
}

/// A tunnel counts as a caller's connection as long as it lasts, and a reload does not end it.
#[test]
fn a_tunnel_counts_for_max_connections_and_outlives_a_reload() {
    let origin = Oddity::plain(|talk| talk.answer_all("through"));
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .lines("max_connections = 1")
        .start();
    let port = origin.address().port();
    let mut tunnel = sidecar.client();
    tunnel.send(format!(
        "CONNECT api.test:{port} HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n"
    ));
    assert_eq!(tunnel.head().expect("an answer").status, 200);
    let asked = "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n";
    tunnel.send(asked);
    assert_eq!(tunnel.response().expect(200).text(), "through");
    // There is no place for another connection.
    let mut other = sidecar.client();
    other.send(format!(
        "GET /api.test:{port}/ HTTP/1.1\r\nHost: weir\r\n\r\n"
    ));
    assert!(other.quiet_for(Duration::from_millis(300)));
    let before = sidecar.weir.gateway();
    sidecar.weir.signal(Signal::HUP);
    sidecar.weir.wait_for_error(&["reloaded"]);
    assert_eq!(other.response().expect(200).text(), "through");
    for _ in 0..3 {
        tunnel.send(asked);
        assert_eq!(tunnel.response().expect(200).text(), "through");
    }
    assert!(before.runs());
    drop(tunnel);
    wait_until("the old gateway is gone", || !before.runs());
}

/// Calls in the way that `how` says, and prints the result.
const CALL: &str = "<?php
$call = $_GET['how'] === 'unix'
    ? curl_init('http://weir/' . $_GET['target'])
    : curl_init(getenv('WEIR_EGRESS') . '/' . $_GET['target']);
if ($_GET['how'] === 'unix') curl_setopt($call, CURLOPT_UNIX_SOCKET_PATH, getenv('WEIR_EGRESS_SOCKET'));
curl_setopt($call, CURLOPT_RETURNTRANSFER, true);
$text = curl_exec($call);
echo curl_getinfo($call, CURLINFO_RESPONSE_CODE), ' ', $text;
";

/// A rule for the pool `app`, and a rule for all callers to another path of the same host. Only that pool gets the key.
#[test]
fn a_rule_for_a_pool_lets_its_workers_call_and_tells_the_key_for_them_alone() {
    let setup = Setup::new()
        .file("app/call.php", CALL)
        .file("blog/call.php", CALL);
    let origin = Oddity::plain(|talk| {
        while let Some(asked) = talk.request() {
            let has_key = asked.to_lowercase().contains("\r\nx-api-key: secret\r\n");
            talk.answer(if has_key { "with the key" } else { "without" });
        }
    });
    let socket = setup.folder().join("egress.sock");
    let dumpable = match is_root() {
        true => "",
        false => "process_dumpable = true\n",
    };
    let blog = format!(
        "[[site.main.route]]\npath = \"/blog/*\"\npool = \"blog\"\n[pool.blog]\n{}",
        own(2, dumpable)
    );
    let setup = setup.pool(&own(2, dumpable)).more(&blog);
    let port = origin.address().port();
    let host = format!("http://keyed.test:{port}");
    let outward = Outward::new()
        .listen(&format!("unix:{}", socket.display()))
        .allow(&format!(
            "{{ host = \"{host}\", path = \"/public/\", addresses = [\"127.0.0.0/8\"] }}"
        ))
        .allow(&format!(
            "{{ host = \"{host}\", pools = [\"app\"], addresses = [\"127.0.0.0/8\"] }}"
        ))
        .tables(&format!(
            "[egress.host.keyed]\nhosts = [\"{host}\"]\nset_headers = {{ X-Api-Key = \"secret\" }}\ncache = true"
        ));
    outward.dns().says(
        "keyed.test",
        Says::Addresses(vec![origin.address().ip()], 60),
    );
    let sidecar = outward.start_in(setup);
    let ask = |pool: &str, how: &str, path: &str| {
        let target = weir_test::http::encode(&format!("keyed.test:{port}{path}"));
        let script = format!("/{pool}/call.php?how={how}&target={target}");
        sidecar.weir.get(&script).expect(200).text()
    };
    for how in ["unix", "tcp"] {
        for _ in 0..3 {
            assert_eq!(ask("app", how, "/private"), "200 with the key", "{how}");
            assert_eq!(ask("app", how, "/public/x"), "200 with the key", "{how}");
            assert_eq!(ask("blog", how, "/public/x"), "200 without", "{how}");
            assert!(ask("blog", how, "/private").starts_with("403 "), "{how}");
        }
    }
    // A caller that is not a worker is treated like another pool.
    let path = |path: &str| format!("/keyed.test:{port}{path}");
    assert_eq!(
        sidecar.get(&path("/public/x")).expect(200).text(),
        "without"
    );
    let refused = sidecar.get(&path("/private")).expect(403);
    let said = refused.header("proxy-status").expect("Proxy-Status");
    assert!(said.contains("not_allowed"), "{said}");
    sidecar
        .weir
        .wait_for_error(&["only for calls of pools app", "pool blog calls"]);
}
