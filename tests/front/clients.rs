//! Who the client is behind a proxy, and what each client may do.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use weir_test::front::WebServer;
use weir_test::weir::request;
use weir_test::{Client, Response, Setup, Weir, wait_until};

/// A route that answers with what weir knows of the client.
const TELL: &str = "[[site.main.route]]\npath = \"/who\"\nreply = { body = \"${remote_addr} ${peer_addr} \
                    ${scheme} ${host} ${server_port}\" }\n";

fn trusting(trusted: &str) -> Setup {
    Setup::new()
        .server(&format!("trusted = [{trusted}]"))
        .more(TELL)
}

/// What weir says of the client of a request with these fields.
fn told(weir: &Weir, fields: &[(&str, &str)]) -> String {
    weir.request("GET", "/who", fields, b"").expect(200).text()
}

/// A client at an address of this machine.
fn client_at(weir: &Weir, address: [u8; 4]) -> Client {
    Client::connect_from(IpAddr::from(address), weir.address())
}

fn get(client: &mut Client, path: &str, fields: &[(&str, &str)]) -> Response {
    let mut fields = fields.to_vec();
    fields.push(("Connection", "keep-alive"));
    let fields = &fields;
    client.send(request("GET", path, fields, b"")).response()
}

#[test]
fn trusted_proxies_say_who_the_client_is_and_others_do_not() {
    let weir = trusting("\"127.0.0.1\", \"10.0.0.0/8\"").start();
    let port = weir.address().port();
    let usual = format!("127.0.0.1 127.0.0.1 http localhost {port}");
    assert_eq!(told(&weir, &[]), usual);
    for (fields, expected) in [
        (
            &[("X-Forwarded-For", "192.0.2.1")][..],
            format!("192.0.2.1 127.0.0.1 http localhost {port}"),
        ),
        (
            &[
                ("X-Forwarded-For", "6.6.6.6, 192.0.2.1, 10.0.0.7"),
                ("X-Forwarded-Proto", "https"),
            ],
            "192.0.2.1 127.0.0.1 https localhost 443".into(),
        ),
        (
            &[
                ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Host", "Shop.example:8443"),
            ],
            "127.0.0.1 127.0.0.1 https shop.example 8443".into(),
        ),
        (
            &[(
                "Forwarded",
                "for=\"[2001:db8::1]:5\";proto=https;host=shop.example",
            )],
            "2001:db8::1 127.0.0.1 https shop.example 443".into(),
        ),
        // A proxy that sets one of these headers passes on the other one, which the client may have sent.
        (
            &[
                ("X-Forwarded-For", "192.0.2.1"),
                ("Forwarded", "for=6.6.6.6;proto=https"),
            ],
            format!("192.0.2.1 127.0.0.1 http localhost {port}"),
        ),
        (&[("X-Forwarded-For", "nonsense")], usual.clone()),
    ] {
        assert_eq!(told(&weir, fields), expected, "{fields:?}");
        let mut other = client_at(&weir, [127, 0, 0, 2]);
        let said = get(&mut other, "/who", fields).expect(200).text();
        assert_eq!(
            said,
            format!("127.0.0.2 127.0.0.2 http localhost {port}"),
            "{fields:?}"
        );
    }
    // The next request of the connection has its own client.
    let mut client = weir.client();
    for address in ["192.0.2.1", "192.0.2.2"] {
        let said = get(&mut client, "/who", &[("X-Forwarded-For", address)]).text();
        assert!(said.starts_with(address), "{said}");
    }
    assert_eq!(get(&mut client, "/who", &[]).text(), usual);
    let line = weir.logged("/who");
    assert!(
        line["peer_addr"]
            .as_str()
            .is_some_and(|peer| peer.starts_with("127.")),
        "{line}"
    );
}

#[test]
fn only_the_chosen_field_is_believed_and_passed_on() {
    let fields = [
        ("X-Forwarded-For", "192.0.2.1"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=192.0.2.2"),
    ];
    for (option, address, scheme) in [
        ("x-forwarded", "192.0.2.1", "https"),
        ("forwarded", "192.0.2.2", "http"),
    ] {
        let weir = trusting("\"127.0.0.1\"")
            .server(&format!("forwarded_by = \"{option}\""))
            .start();
        let said = told(&weir, &fields);
        assert!(
            said.starts_with(&format!("{address} 127.0.0.1 {scheme} ")),
            "{option}: {said}"
        );
    }
}

#[test]
fn scripts_and_logs_see_the_client_and_no_field_of_a_stranger() {
    for (server, has_fields) in [("", false), ("untrusted_forwarded = \"pass\"", true)] {
        let setup = trusting("\"127.0.0.1\"").server(server).file("run.php", "");
        let responder = weir_test::Responder::unix(setup.folder(), |request, answer| {
            let params = [
                "REMOTE_ADDR",
                "HTTPS",
                "REQUEST_SCHEME",
                "SERVER_PORT",
                "SERVER_NAME",
                "HTTP_HOST",
                "HTTP_X_FORWARDED_FOR",
                "HTTP_X_FORWARDED_PROTO",
                "HTTP_X_FORWARDED_HOST",
                "HTTP_FORWARDED",
            ];
            let values: Vec<&str> = params.iter().map(|name| request.param(name)).collect();
            answer.page(values.join("|"));
        });
        let pool = responder.pool(2);
        let weir = setup.pool(&pool).start();
        let fields = [
            ("X-Forwarded-For", "192.0.2.1"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "shop.example"),
            ("Forwarded", "for=6.6.6.6"),
        ];
        let said = weir
            .request("GET", "/run.php?trusted", &fields, b"")
            .expect(200)
            .text();
        assert_eq!(
            said,
            "192.0.2.1|on|https|443|shop.example|shop.example|192.0.2.1|https|shop.example|"
        );
        let line = weir.logged("/run.php?trusted");
        assert_eq!(
            (&line["remote_addr"], &line["peer_addr"]),
            (&"192.0.2.1".into(), &"127.0.0.1".into())
        );
        let mut stranger = client_at(&weir, [127, 0, 0, 2]);
        let said = get(&mut stranger, "/run.php", &fields).expect(200).text();
        let passed = match has_fields {
            true => "192.0.2.1|https|shop.example|for=6.6.6.6",
            false => "|||",
        };
        let port = weir.address().port();
        assert_eq!(
            said,
            format!("127.0.0.2||http|{port}|localhost|localhost|{passed}")
        );
    }
}

#[test]
fn a_proxy_on_a_unix_socket_is_trusted_only_if_that_is_said() {
    for (trusted, client) in [
        ("\"unix:\"", "192.0.2.1 unix:"),
        ("\"127.0.0.1\"", "unix: unix:"),
    ] {
        let setup = trusting(trusted);
        let socket = setup.folder().join("web.sock");
        let listen = format!(
            "[listen.socket]\naddress = \"unix:{}\"\nmode = \"0666\"\n",
            socket.display()
        );
        let weir = setup.more(&listen).start();
        let mut stream = UnixStream::connect(&socket).expect("connect");
        let fields = [("X-Forwarded-For", "192.0.2.1"), ("Connection", "close")];
        stream
            .write_all(&request("GET", "/who", &fields, b""))
            .expect("write");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("an answer");
        assert!(
            said.contains(&format!("\r\n\r\n{client} http localhost")),
            "{said}"
        );
        drop(weir);
    }
}

/// The same values to weir and to nginx, which reads them from the right too (`real_ip_recursive on`).
#[test]
fn generated_values_mean_the_same_client_as_in_nginx() {
    let weir = trusting("\"127.0.0.1\", \"10.0.0.0/8\", \"fd00::/8\"").start();
    let nginx = WebServer::nginx(
        weir.folder(),
        "set_real_ip_from 127.0.0.1; set_real_ip_from 10.0.0.0/8; set_real_ip_from fd00::/8;\n\
         real_ip_header X-Forwarded-For; real_ip_recursive on; location / { return 200 $remote_addr; }",
        "",
    );
    let address = prop_oneof![
        4 => any::<[u8; 3]>().prop_map(|[a, b, c]| format!("10.{a}.{b}.{c}")),
        2 => any::<[u8; 4]>().prop_map(|octets| IpAddr::from(octets).to_string()),
        1 => any::<u16>().prop_map(|part| format!("fd00::{part:x}")),
        1 => any::<u16>().prop_map(|part| format!("2001:db8::{part:x}")),
        1 => (any::<[u8; 4]>(), 1_u16..).prop_map(|(octets, port)| format!("{}:{port}", IpAddr::from(octets))),
        1 => (any::<u16>(), 1_u16..).prop_map(|(part, port)| format!("[fd00::{part:x}]:{port}")),
        1 => "(unknown|_hidden|1\\.2\\.3|1\\.2\\.3\\.4\\.5|::g|10\\.0\\.0\\.1:0|10\\.0\\.0\\.1:x|[a-z]{1,4})",
    ];
    // nginx does not see a comma before the first value, and it wants one port number after brackets.
    let separator = prop_oneof![Just(", "), Just(","), Just(" , "), Just(",,"), Just(" ")];
    let value = (
        address.clone(),
        prop::collection::vec((separator, address), 0..5),
    )
        .prop_map(|(first, more)| {
            more.iter()
                .fold(first, |all, (separator, next)| all + separator + next)
        });
    let values = prop::collection::vec(value, 1..4);
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(Default::default()),
    );
    let mut one = Client::connect(nginx.address());
    let mut other = weir.client();
    for _ in 0..500 {
        let values = values.new_tree(&mut runner).expect("values").current();
        let fields: Vec<(&str, &str)> = values
            .iter()
            .map(|value| ("X-Forwarded-For", &value[..]))
            .collect();
        let expected = get(&mut one, "/who", &fields).expect(200).text();
        let said = get(&mut other, "/who", &fields).expect(200).text();
        let said = said.split(' ').next().unwrap_or_default();
        let canonical = |text: &str| text.parse::<IpAddr>().map(|address| address.to_canonical());
        assert_eq!(
            canonical(said),
            canonical(&expected),
            "{values:?}: {said}, nginx {expected}"
        );
    }
}

/// Sends bytes to weir and returns what comes back until it closes.
fn exchange(address: SocketAddr, pieces: &[&[u8]]) -> String {
    let mut client = Client::connect(address);
    for piece in pieces {
        client.send(piece);
    }
    let (bytes, _) = client.rest();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([0x20 | command, family]);
    header.extend((rest.len() as u16).to_be_bytes());
    header.extend(rest);
    header
}

#[test]
fn a_proxy_header_says_whose_connection_it_is() {
    let weir = trusting("\"127.0.0.1\"")
        .listen("proxy_protocol = true")
        .start();
    let port = weir.address().port();
    let asked = request("GET", "/who", &[("Connection", "close")], b"");
    let inet = [192, 0, 2, 1, 198, 51, 100, 2, 0x12, 0x34, 1, 187];
    for (header, expected) in [
        (
            b"PROXY TCP4 192.0.2.1 198.51.100.2 4660 443\r\n".to_vec(),
            "192.0.2.1 127.0.0.1 http localhost 443".to_owned(),
        ),
        (
            b"PROXY TCP6 2001:db8::1 2001:db8::2 4660 8080\r\n".to_vec(),
            "2001:db8::1 127.0.0.1 http localhost 8080".into(),
        ),
        (
            b"PROXY UNKNOWN\r\n".to_vec(),
            format!("127.0.0.1 127.0.0.1 http localhost {port}"),
        ),
        (
            version_2(1, 0x11, &inet),
            "192.0.2.1 127.0.0.1 http localhost 443".into(),
        ),
        (
            version_2(1, 0x11, &[&inet[..], &[4; 900]].concat()),
            "192.0.2.1 127.0.0.1 http localhost 443".into(),
        ),
        (
            version_2(0, 0, b""),
            format!("127.0.0.1 127.0.0.1 http localhost {port}"),
        ),
        (
            version_2(1, 0x31, &[b'/'; 216]),
            "unix: 127.0.0.1 http localhost 80".into(),
        ),
    ] {
        let whole = [&header[..], &asked].concat();
        let said = exchange(weir.address(), &[&whole]);
        assert!(said.ends_with(&format!("\r\n\r\n{expected}")), "{said}");
        let (first, second) = whole.split_at(header.len() - 1);
        let said = exchange(weir.address(), &[first, second]);
        assert!(said.ends_with(&format!("\r\n\r\n{expected}")), "{said}");
    }
    for (bytes, message) in [
        (asked.clone(), "does not begin with a PROXY header"),
        (
            b"PROXY TCP4 1.2.3.4\r\n".to_vec(),
            "PROXY line (version 1) is wrong",
        ),
        (
            version_2(1, 0x11, b"short"),
            "PROXY header (version 2) is wrong",
        ),
        (
            version_2(1, 0x11, &[0; 5000]),
            "PROXY header (version 2) is too long",
        ),
    ] {
        assert_eq!(exchange(weir.address(), &[&bytes]), "");
        weir.wait_for_error(&[message, "[listen.web]"]);
    }
    // Anybody can cause such lines: the first ones of ten seconds are written.
    for _ in 0..100 {
        assert_eq!(exchange(weir.address(), &[&asked]), "");
    }
    let lines = weir.stderr().matches("PROXY header").count();
    assert!(lines < 50, "{lines} lines");
}

#[test]
fn a_client_that_a_proxy_names_is_the_same_after_the_connection_was_idle() {
    let weir = trusting("\"127.0.0.1\"")
        .listen("proxy_protocol = true")
        .start();
    let mut client = weir.client();
    client.send(b"PROXY TCP4 192.0.2.1 198.51.100.2 4660 443\r\n");
    for _ in 0..2 {
        let said = get(&mut client, "/who", &[]).expect(200).text();
        assert_eq!(said, "192.0.2.1 127.0.0.1 http localhost 443");
        // After this time the connection has no task any more, unless the machine is very slow.
        std::thread::sleep(Duration::from_millis(1500));
    }
}

#[test]
fn only_trusted_proxies_may_connect_and_the_header_has_a_deadline() {
    let weir = trusting("\"127.0.0.1\"")
        .listen("proxy_protocol = true\nheader_timeout = \"300ms\"")
        .start();
    let mut stranger = client_at(&weir, [127, 0, 0, 2]);
    stranger.try_send(b"PROXY TCP4 192.0.2.1 198.51.100.2 4660 443\r\n");
    stranger.expect_closed();
    weir.wait_for_error(&["127.0.0.2", "not in trusted"]);
    let mut slow = weir.client();
    slow.send(b"PROXY TCP4 ");
    slow.expect_closed();
    weir.wait_for_error(&["did not come within header_timeout"]);
}

#[test]
fn haproxy_sends_the_proxy_protocol_and_checks_with_it() {
    let weir = trusting("\"127.0.0.1\"")
        .listen("proxy_protocol = true")
        .start();
    for version in ["send-proxy", "send-proxy-v2", "send-proxy-v2-ssl-cn"] {
        let haproxy = WebServer::haproxy(
            weir.folder(),
            &format!(
                "defaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
                 listen weir\n  bind ADDRESS\n  option httpchk GET /who\n  server weir {} {version} check inter 100ms\n",
                weir.address()
            ),
        );
        let expected = format!(
            "127.0.0.3 127.0.0.1 http localhost {}",
            haproxy.address().port()
        );
        let said = || {
            let mut client = Client::connect_from(IpAddr::from([127, 0, 0, 3]), haproxy.address());
            get(&mut client, "/who", &[])
        };
        // HAProxy takes the server for up at first. After this time its checks have succeeded or failed.
        wait_until("HAProxy has checked weir", || haproxy_checks(&weir) > 3);
        assert_eq!(said().expect(200).text(), expected, "{version}");
        drop(haproxy);
        std::fs::write(weir.folder().join("log/access.log"), "").expect("an empty log");
    }
}

/// Requests of a health check, which come from HAProxy itself.
fn haproxy_checks(weir: &Weir) -> usize {
    let log = weir.read("log/access.log");
    log.lines()
        .filter(|line| line.contains("\"remote_addr\":\"127.0.0.1\""))
        .count()
}

#[test]
fn addresses_are_allowed_and_denied() {
    let weir = trusting("\"127.0.0.1\"")
        .file("index.html", "site")
        .file("admin/index.html", "admin")
        .file("admin/open/a.html", "open")
        .site("deny = [\"192.0.2.66\", \"2001:db8:6::/48\"]")
        .more(
            "[[site.main.route]]\npath = \"/admin/open/*\"\nallow = []\n\
             [[site.main.route]]\npath = \"/admin/*\"\nallow = [\"192.0.2.0/24\", \"fd00::/8\"]\n\
             [[site.main.route]]\npath = \"/old/*\"\nrewrite = \"/\"\nallow = [\"192.0.2.0/24\"]\n\
             [[site.main.route]]\npath = \"/nobody/*\"\ndeny = [\"all\"]\nreply = { body = \"?\" }\n",
        )
        .start();
    let status = |path: &str, client: &str| {
        let fields = [("X-Forwarded-For", client)];
        weir.request("GET", path, &fields, b"").status
    };
    for (path, client, expected) in [
        ("/", "192.0.2.1", 200),
        ("/", "192.0.2.66", 403),
        ("/", "::ffff:192.0.2.66", 403),
        ("/", "2001:db8:6:1::1", 403),
        ("/", "198.51.100.1", 200),
        ("/admin/", "198.51.100.1", 403),
        ("/admin/", "192.0.2.1", 200),
        ("/admin/", "::ffff:192.0.2.1", 200),
        ("/admin/", "fd00::1", 200),
        ("/admin/", "192.0.2.66", 403),
        ("/admin/open/a.html", "198.51.100.1", 200),
        ("/admin/open/a.html", "192.0.2.66", 403),
        ("/nobody/x", "192.0.2.1", 403),
        // Rules that a path passed before it was rewritten, or before its dots were removed, count too.
        ("/old/x", "192.0.2.1", 200),
        ("/old/x", "198.51.100.1", 403),
        ("/admin/../index.html", "198.51.100.1", 403),
        ("/admin/../index.html", "192.0.2.1", 200),
    ] {
        assert_eq!(status(path, client), expected, "{path} {client}");
    }
    let refused = weir.request("GET", "/admin/?log", &[], b"");
    assert_eq!(refused.status, 403);
    assert_eq!(weir.logged("/admin/?log")["reason"], "denied");
}

#[test]
fn a_rule_for_an_index_file_holds_for_its_folder() {
    let weir = trusting("\"127.0.0.1\"")
        .file("staff/index.html", "staff")
        .more("[[site.main.route]]\npath = \"/staff/index.html\"\nallow = [\"192.0.2.1\"]\n")
        .start();
    for path in ["/staff/", "/staff/index.html"] {
        assert_eq!(weir.get(path).status, 403, "{path}");
        let fields = [("X-Forwarded-For", "192.0.2.1")];
        assert_eq!(
            weir.request("GET", path, &fields, b"").status,
            200,
            "{path}"
        );
    }
}

#[test]
fn a_client_that_sends_too_much_is_told_so() {
    let weir = trusting("\"127.0.0.1\"")
        .admin()
        .file("a.txt", "a")
        .site("rate = \"2/h burst 3\"")
        .more(
            "[[site.main.route]]\npath = \"/free/*\"\nrate = \"\"\nreply = { body = \"free\" }\n\
             [[site.main.route]]\npath = \"/own/*\"\nrate = \"1/h burst 1\"\nreply = { body = \"own\" }\n",
        )
        .start();
    let ask =
        |path: &str, client: &str| weir.request("GET", path, &[("X-Forwarded-For", client)], b"");
    let one = "192.0.2.1";
    for left in [3, 2, 1, 0] {
        let response = ask("/a.txt", one).expect(200);
        assert_eq!(
            response.header("ratelimit-policy"),
            Some("\"default\";q=4;w=7200")
        );
        let state = response.header("ratelimit").unwrap_or_default();
        assert!(
            state.starts_with(&format!("\"default\";r={left};t=")),
            "{state}"
        );
    }
    let refused = ask("/a.txt?refused", one).expect(429);
    let wait: u64 = refused
        .header("retry-after")
        .expect("Retry-After")
        .parse()
        .expect("seconds");
    assert!((1700..=1800).contains(&wait), "{wait}");
    assert_eq!(
        refused.header("ratelimit"),
        Some(&*format!("\"default\";r=0;t={wait}"))
    );
    assert_eq!(weir.logged("/a.txt?refused")["reason"], "rate_limited");
    // The same client in another spelling, and other clients.
    assert_eq!(ask("/a.txt", "::ffff:192.0.2.1").status, 429);
    assert_eq!(ask("/a.txt", "192.0.2.2").status, 200);
    for last in 0..4 {
        assert_eq!(ask("/a.txt", &format!("2001:db8::{last}")).status, 200);
    }
    assert_eq!(ask("/a.txt", "2001:db8::ffff").status, 429, "the same /64");
    assert_eq!(ask("/a.txt", "2001:db8:0:1::1").status, 200);
    // Routes.
    let free = ask("/free/a", one).expect(200);
    assert_eq!(free.header("ratelimit"), None);
    let own: Vec<u16> = (0..3).map(|_| ask("/own/a", one).status).collect();
    assert_eq!(own, [200, 200, 429]);
    let (_, text) = weir.admin_get("/metrics");
    assert!(
        text.contains("weir_site_rate_limited_total{site=\"main\"} 4"),
        "{text}"
    );
}

#[test]
fn rates_are_counted_by_what_fair_by_says_and_over_all_reactors() {
    let weir = Setup::new()
        .server("threads = 4")
        .file("a.txt", "a")
        .site("rate = \"1/h burst 9\"\nfair_by = \"cookie:user\"")
        .start();
    let ask = |user: &str| {
        let fields = [("Cookie", user), ("Connection", "close")];
        weir.request("GET", "/a.txt", &fields, b"").status
    };
    for user in ["user=1", "user=2", "other=3"] {
        let passed = (0..30).filter(|_| ask(user) == 200).count();
        assert_eq!(passed, 10, "{user}");
    }
}

/// The same bursts to nginx's limit_req. Its clock has milliseconds, so the rate is so low that none is added.
#[test]
fn as_many_requests_pass_as_in_nginx() {
    let weir = Setup::new()
        .file("a.txt", "a")
        .site("rate = \"1/m burst 20\"")
        .start();
    let nginx = WebServer::nginx(
        weir.folder(),
        &format!(
            "root {}; location / {{ limit_req zone=one burst=20 nodelay; limit_req_status 429; }}",
            weir.root().display()
        ),
        "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/m;",
    );
    let passed = |address| {
        let mut client = Client::connect(address);
        let statuses = (0..40).map(|_| get(&mut client, "/a.txt", &[]).status);
        statuses.filter(|status| *status == 200).count()
    };
    assert_eq!((passed(weir.address()), passed(nginx.address())), (21, 21));
}
