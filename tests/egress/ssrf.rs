//! An application calls URLs that an attacker gave it, to reach hosts that are not allowed. weir refuses each call, and
//! nothing connects to the target.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use weir_test::dns::Says;
use weir_test::oddity::{Oddity, Talk};
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::{Response, free_address, wait_until};

/// A target that must not be reached. It listens, so a call that is not refused does connect. It never responds.
struct Forbidden {
    listener: TcpListener,
    address: SocketAddr,
}

impl Forbidden {
    fn new() -> Forbidden {
        Forbidden::at(free_address())
    }

    fn at(address: SocketAddr) -> Forbidden {
        let listener = TcpListener::bind(address).expect("bind");
        listener.set_nonblocking(true).expect("non-blocking");
        Forbidden { listener, address }
    }

    fn ip(&self) -> Ipv4Addr {
        match self.address.ip() {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(ip) => panic!("{ip} is no IPv4 address"),
        }
    }

    fn port(&self) -> u16 {
        self.address.port()
    }

    /// Fails if there was a connection. A connection would be in the kernel's queue before its caller gets an answer.
    #[track_caller]
    fn is_untouched(&self) {
        match self.listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => panic!("somebody connected to {}: {other:?}", self.address),
        }
    }
}

/// An origin that may be called as `http://good.test:PORT`, and that records its requests.
fn good() -> Oddity {
    Oddity::plain(|talk: &mut Talk| talk.answer_all("good"))
}

/// A sidecar that may call only this origin.
fn sidecar(good: &Oddity) -> Sidecar {
    Outward::new()
        .plain_name("good.test", good.address())
        .start()
}

#[derive(Debug, Clone, Copy)]
enum Why {
    BadRequest,
    NotAllowed,
    ForbiddenAddress,
}

/// The status, and the text of `Proxy-Status`.
#[track_caller]
fn refused(response: &Response, why: Why) {
    let (status, said) = match why {
        Why::BadRequest => (
            400,
            "weir; error=http_request_error; details=\"bad_request\"",
        ),
        Why::NotAllowed => (
            403,
            "weir; error=http_request_denied; details=\"not_allowed\"",
        ),
        Why::ForbiddenAddress => (
            403,
            "weir; error=destination_ip_prohibited; details=\"forbidden_address\"",
        ),
    };
    assert_eq!(
        (response.status, response.header("proxy-status")),
        (status, Some(said)),
        "{response:?}"
    );
}

/// Calls in path form and in proxy form: weir refuses both, and nothing connects to the address.
#[track_caller]
fn both_are_refused(sidecar: &Sidecar, authority: &str, why: Why, forbidden: &Forbidden) {
    refused(&sidecar.get(&format!("/{authority}/secret")), why);
    refused(&sidecar.get(&format!("http://{authority}/secret")), why);
    forbidden.is_untouched();
}

#[test]
fn a_decimal_address_is_no_host() {
    let (good, forbidden) = (good(), Forbidden::new());
    let sidecar = sidecar(&good);
    let number = forbidden.ip().to_bits();
    both_are_refused(
        &sidecar,
        &format!("{number}:{}", forbidden.port()),
        Why::BadRequest,
        &forbidden,
    );
    sidecar
        .weir
        .wait_for_error(&["a number that some programs read as an IPv4 address"]);
}

#[test]
fn an_octal_address_is_no_host() {
    let (good, forbidden) = (good(), Forbidden::new());
    let sidecar = sidecar(&good);
    let [a, b, c, d] = forbidden.ip().octets();
    let port = forbidden.port();
    for host in [
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("0{a:o}.{b}.{c}.{d}"),
        format!("0{:o}", forbidden.ip().to_bits()),
    ] {
        both_are_refused(
            &sidecar,
            &format!("{host}:{port}"),
            Why::BadRequest,
            &forbidden,
        );
    }
}

#[test]
fn a_hexadecimal_or_short_address_is_no_host() {
    let (good, forbidden) = (good(), Forbidden::new());
    let sidecar = sidecar(&good);
    let bits = forbidden.ip().to_bits();
    let [a, b, c, d] = forbidden.ip().octets();
    let port = forbidden.port();
    for host in [
        format!("0x{bits:x}"),
        format!("0X{bits:X}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("{a}.{b}.{}", bits & 0xffff),
        format!("{a}.{}", bits & 0xff_ffff),
        format!("{a}.{b}.{c}.0x{d:x}."),
    ] {
        both_are_refused(
            &sidecar,
            &format!("{host}:{port}"),
            Why::BadRequest,
            &forbidden,
        );
    }
}

#[test]
fn an_ipv4_address_that_is_written_as_ipv6_is_the_ipv4_address() {
    let (good, forbidden) = (good(), Forbidden::new());
    let name = Oddity::plain(|talk: &mut Talk| talk.answer_all("by address"));
    let allow = format!("\"http://{}\"", name.address());
    let outward = Outward::new()
        .plain_name("good.test", good.address())
        .allow(&allow);
    let sidecar = outward.start();
    let [a, b, c, d] = forbidden.ip().octets();
    let port = forbidden.port();
    for host in [
        format!("::ffff:{}", forbidden.ip()),
        format!("::ffff:{a:x}{b:02x}:{c:x}{d:02x}"),
    ] {
        both_are_refused(
            &sidecar,
            &format!("[{host}]:{port}"),
            Why::NotAllowed,
            &forbidden,
        );
    }
    both_are_refused(
        &sidecar,
        &format!("[::{}]:{port}", forbidden.ip()),
        Why::NotAllowed,
        &forbidden,
    );
    both_are_refused(
        &sidecar,
        &format!("[64:ff9b::{}]:{port}", forbidden.ip()),
        Why::NotAllowed,
        &forbidden,
    );
    // An allowed address is also allowed in this form.
    let mapped = match name.address().ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let path = format!("/[{mapped}]:{}/", name.address().port());
    assert_eq!(sidecar.get(&path).expect(200).text(), "by address");
}

#[test]
fn a_user_in_front_of_the_host_is_refused() {
    let (good, forbidden) = (good(), Forbidden::new());
    let sidecar = sidecar(&good);
    let to = forbidden.address;
    for authority in [
        format!("good.test@{to}"),
        format!("good.test:{}@{to}", good.address().port()),
        format!("{to}@good.test:{}", good.address().port()),
        format!("@{to}"),
        format!("user:s3cret@{to}"),
    ] {
        both_are_refused(&sidecar, &authority, Why::BadRequest, &forbidden);
    }
    // Some parsers end the host at a backslash, others at a hash.
    for path in [
        format!("/{to}\\@good.test/"),
        format!("/{to}%40good.test/"),
        format!("/{to}%2f@good.test/"),
    ] {
        refused(&sidecar.get(&path), Why::BadRequest);
    }
    // The log does not show the password.
    sidecar.weir.wait_for_error(&["the host has a user"]);
    assert!(!sidecar.weir.stderr().contains("s3cret"));
    assert_eq!(good.connections(), 0);
    forbidden.is_untouched();
}

#[test]
fn what_else_can_be_mistaken_for_a_host_is_refused() {
    let (good, forbidden) = (good(), Forbidden::new());
    let sidecar = sidecar(&good);
    let (to, port) = (forbidden.address, good.address().port());
    for path in [
        format!("//{to}/"),
        format!("/http://{to}/"),
        format!("/https:%2f%2f{to}/"),
        format!("/good.test:{port}:{}/", to.port()),
        "/good.test:0/".to_owned(),
        "/good.test:65616/".to_owned(),
        "/good%2etest/".to_owned(),
        "/good.test%00.evil.test/".to_owned(),
        "/good..test/".to_owned(),
        "/[::1%25lo]/".to_owned(),
        "/".to_owned(),
    ] {
        refused(&sidecar.get(&path), Why::BadRequest);
    }
    refused(&sidecar.call("OPTIONS", "*", &[], b""), Why::BadRequest);
    refused(
        &sidecar.get(&format!("ftp://good.test:{port}/")),
        Why::BadRequest,
    );
    assert_eq!(good.connections(), 0);
    forbidden.is_untouched();
}

#[test]
fn a_name_that_leads_to_a_private_address_is_not_called() {
    let forbidden = Forbidden::new();
    let port = forbidden.port();
    let outward = Outward::new()
        .allow(&format!("\"http://inside.test:{port}\""))
        .allow(&format!("\"mapped.test:{port}\""))
        .allow("{ host = \"http://other.test:*\", addresses = [\"10.0.0.0/8\"] }");
    let dns = outward.dns();
    let addresses = |ip: IpAddr| Says::Addresses(vec![ip], 60);
    dns.says("inside.test", addresses(forbidden.ip().into()));
    dns.says(
        "mapped.test",
        addresses(forbidden.ip().to_ipv6_mapped().into()),
    );
    dns.says("other.test", addresses(forbidden.ip().into()));
    let sidecar = outward.start();
    both_are_refused(
        &sidecar,
        &format!("inside.test:{port}"),
        Why::ForbiddenAddress,
        &forbidden,
    );
    both_are_refused(
        &sidecar,
        &format!("other.test:{port}"),
        Why::ForbiddenAddress,
        &forbidden,
    );
    refused(
        &sidecar.get(&format!("/mapped.test:{port}/")),
        Why::ForbiddenAddress,
    );
    // The same holds for a tunnel.
    for name in ["inside.test", "mapped.test", "other.test"] {
        let to = format!("{name}:{port}");
        refused(
            &sidecar.call("CONNECT", &to, &[("Host", &to)], b""),
            Why::ForbiddenAddress,
        );
    }
    forbidden.is_untouched();
    sidecar
        .weir
        .wait_for_error(&["inside.test", "a loopback address", "[egress] allow"]);
}

#[test]
fn cloud_metadata_is_not_called_by_address_or_by_name() {
    let good = good();
    let outward = Outward::new()
        .plain_name("good.test", good.address())
        .allow("\"http://metadata.test\"")
        .allow("\"http://metadata6.test\"");
    let says = |name: &str, ip: &str| {
        let ip = ip.parse().expect("an address");
        outward.dns().says(name, Says::Addresses(vec![ip], 60));
    };
    says("metadata.test", "169.254.169.254");
    says("metadata6.test", "fd00:ec2::254");
    let sidecar = outward.start();
    for path in [
        "/169.254.169.254/latest/meta-data/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
    ] {
        refused(&sidecar.get(path), Why::NotAllowed);
    }
    for path in [
        "/metadata.test/latest/",
        "http://metadata.test/latest/",
        "/metadata6.test/",
    ] {
        refused(&sidecar.get(path), Why::ForbiddenAddress);
    }
    sidecar
        .weir
        .wait_for_error(&["metadata.test", "cloud metadata"]);
}

/// Two addresses with a port that is free at both.
fn two_addresses() -> (SocketAddr, SocketAddr) {
    let mut pairs = std::iter::repeat_with(|| {
        let first = free_address();
        (first, SocketAddr::new(free_address().ip(), first.port()))
    });
    let is_free = |(_, second): &(_, SocketAddr)| TcpListener::bind(second).is_ok();
    pairs.find(is_free).expect("there are many")
}

#[test]
fn a_name_that_changes_its_address_after_it_was_judged_is_judged_again() {
    let (first, second) = two_addresses();
    // Each answer ends its connection, so that each call makes a new one.
    let origin = Oddity::start(first, None, |talk: &mut Talk| {
        talk.request();
        talk.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood");
    });
    let forbidden = Forbidden::at(second);
    let port = first.port();
    let outward = Outward::new()
        .allow(&format!(
            "{{ host = \"http://rebind.test:{port}\", addresses = [\"{}\"] }}",
            first.ip()
        ))
        .lines("resolve_min = \"1ms\"\nresolve_max = \"1s\"\nretries = 0");
    let says = |dns: &weir_test::dns::Dns, ips: &[IpAddr]| {
        dns.says("rebind.test", Says::Addresses(ips.to_vec(), 0));
    };
    says(outward.dns(), &[first.ip()]);
    let sidecar = outward.start();
    let path = format!("/rebind.test:{port}/");
    assert_eq!(sidecar.get(&path).expect(200).text(), "good");
    says(&sidecar.dns, &[second.ip()]);
    let mut last = None;
    wait_until("the new answer is known", || {
        let response = sidecar.get(&path);
        let is_new = response.status != 200;
        last = Some(response);
        is_new
    });
    refused(&last.expect("an answer"), Why::ForbiddenAddress);
    forbidden.is_untouched();
    // If there are two addresses, weir connects only to the allowed one.
    says(&sidecar.dns, &[second.ip(), first.ip()]);
    wait_until("the name leads to the origin, too", || {
        sidecar.get(&path).status == 200
    });
    for _ in 0..10 {
        assert_eq!(sidecar.get(&path).status, 200);
    }
    forbidden.is_untouched();
    assert!(origin.connections() > 10);
}

#[test]
fn a_redirect_to_a_private_address_is_passed_back_and_refused_when_followed() {
    let forbidden = Forbidden::new();
    let location = format!("http://{}/latest/", forbidden.address);
    let answer = format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
    let good = Oddity::plain(
        move |talk: &mut Talk| while talk.request().is_some() && talk.send(&answer) {},
    );
    let sidecar = sidecar(&good);
    let response = sidecar.get(&format!("/good.test:{}/", good.address().port()));
    assert_eq!(
        (response.status, response.header("location")),
        (302, Some(location.as_str()))
    );
    assert_eq!(response.header("proxy-status"), None);
    forbidden.is_untouched();
    refused(&sidecar.get(&location), Why::NotAllowed);
    refused(
        &sidecar.get(&location.replace("http:/", "")),
        Why::NotAllowed,
    );
    forbidden.is_untouched();
}

#[test]
fn a_line_break_in_the_path_reaches_nobody() {
    let good = good();
    let sidecar = sidecar(&good);
    let port = good.address().port();
    for path in [
        "a%0d%0aX-Injected:%20yes",
        "a%0D%0A%0D%0AGET%20/b%20HTTP/1.1",
        "a%0ab",
        "a%0db",
        "a%00b",
    ] {
        refused(
            &sidecar.get(&format!("/good.test:{port}/{path}")),
            Why::BadRequest,
        );
        refused(
            &sidecar.get(&format!("http://good.test:{port}/{path}")),
            Why::BadRequest,
        );
    }
    // Unencoded, these bytes end the line for hyper, or are not allowed in it.
    for bytes in ["a\rb", "a\0b", "a\x0bb"] {
        let mut client = sidecar.client();
        client.send(format!(
            "GET /good.test:{port}/{bytes} HTTP/1.1\r\nHost: weir\r\n\r\n"
        ));
        assert_eq!(client.response().status, 400, "{bytes:?}");
    }
    assert_eq!(good.connections(), 0);
    // In a query they are part of the text.
    let query = "?text=one%0D%0Atwo%00";
    sidecar
        .get(&format!("/good.test:{port}/a{query}"))
        .expect(200);
    assert!(good.asked()[0].starts_with(&format!("GET /a{query} HTTP/1.1\r\n")));
}

#[test]
fn as_a_proxy_another_host_than_the_targets_is_refused() {
    let (good, forbidden) = (good(), Forbidden::new());
    let sidecar = sidecar(&good);
    let own = format!("good.test:{}", good.address().port());
    let target = format!("http://{own}/");
    let other = forbidden.address.to_string();
    for host in [
        other.as_str(),
        "good.test",
        "evil.test",
        "",
        "user@good.test",
        &format!("{own}, {other}"),
    ] {
        refused(
            &sidecar.call("GET", &target, &[("Host", host)], b""),
            Why::BadRequest,
        );
    }
    for hosts in [
        [("Host", own.as_str()), ("Host", &other)],
        [("Host", &own), ("host", &own)],
    ] {
        refused(&sidecar.call("GET", &target, &hosts, b""), Why::BadRequest);
        refused(
            &sidecar.call("GET", &format!("/{own}/"), &hosts, b""),
            Why::BadRequest,
        );
    }
    refused(
        &sidecar.call("CONNECT", &own, &[("Host", &other)], b""),
        Why::BadRequest,
    );
    assert_eq!(good.connections(), 0);
    // In path form the header is for weir, and the origin gets its own.
    sidecar
        .call("GET", &format!("/{own}/"), &[("Host", &other)], b"")
        .expect(200);
    let asked = good.asked().remove(0).to_lowercase();
    assert!(asked.contains(&format!("\r\nhost: {own}\r\n")), "{asked}");
    assert!(!asked.contains(&other), "{asked}");
    forbidden.is_untouched();
}

#[test]
fn a_wildcard_is_no_more_than_what_is_below_its_name() {
    let (good, forbidden) = (good(), Forbidden::new());
    let to = good.address();
    let outward = Outward::new().allow(&format!(
        "{{ host = \"http://*.partner.test:{}\", addresses = [\"{}\"] }}",
        to.port(),
        to.ip()
    ));
    let dns = outward.dns();
    dns.says("a.partner.test", Says::Addresses(vec![to.ip()], 60));
    let others = [
        "evilpartner.test",
        "partner.test",
        "a.partner.test.evil.test",
        "partner.test.evil.test",
        "apartner.test",
    ];
    for name in others {
        dns.says(name, Says::Addresses(vec![forbidden.ip().into()], 60));
    }
    let sidecar = outward.start();
    for port in [to.port(), forbidden.port()] {
        for name in others {
            both_are_refused(
                &sidecar,
                &format!("{name}:{port}"),
                Why::NotAllowed,
                &forbidden,
            );
        }
    }
    both_are_refused(
        &sidecar,
        &format!("a.partner.test:{}", forbidden.port()),
        Why::NotAllowed,
        &forbidden,
    );
    both_are_refused(
        &sidecar,
        &format!(".partner.test:{}", to.port()),
        Why::BadRequest,
        &forbidden,
    );
    both_are_refused(
        &sidecar,
        &format!("*.partner.test:{}", to.port()),
        Why::BadRequest,
        &forbidden,
    );
    assert_eq!(good.connections(), 0);
    sidecar
        .get(&format!("/a.partner.test:{}/", to.port()))
        .expect(200);
    sidecar
        .get(&format!("/A.PARTNER.TEST.:{}/", to.port()))
        .expect(200);
}

#[test]
fn a_tunnel_leads_to_allowed_ports_of_allowed_hosts_only() {
    let (good, forbidden) = (good(), Forbidden::new());
    let to = good.address();
    let outward = Outward::new()
        .plain_name("good.test", to)
        .allow(&format!("{{ host = \"http://narrow.test:{}\", path = \"/v1/\", addresses = [\"127.0.0.0/8\"] }}", forbidden.port()))
        .allow(&format!("{{ host = \"http://read.test:{}\", methods = [\"GET\"], addresses = [\"127.0.0.0/8\"] }}", forbidden.port()));
    for name in ["narrow.test", "read.test", "evil.test"] {
        outward
            .dns()
            .says(name, Says::Addresses(vec![forbidden.ip().into()], 60));
    }
    let sidecar = outward.start();
    let connect = |to: &str| sidecar.call("CONNECT", to, &[("Host", to)], b"");
    for name in [
        "narrow.test",
        "read.test",
        "evil.test",
        "good.test",
        &forbidden.ip().to_string(),
    ] {
        refused(
            &connect(&format!("{name}:{}", forbidden.port())),
            Why::NotAllowed,
        );
    }
    refused(&connect("good.test:22"), Why::NotAllowed);
    refused(
        &connect(&format!(
            "{}:{}",
            forbidden.ip().to_bits(),
            forbidden.port()
        )),
        Why::BadRequest,
    );
    refused(
        &connect(&format!("[::ffff:{}]:{}", forbidden.ip(), forbidden.port())),
        Why::NotAllowed,
    );
    refused(&connect("good.test"), Why::BadRequest);
    forbidden.is_untouched();
    assert_eq!(good.connections(), 0);
    let mut client = sidecar.client();
    let own = format!("good.test:{}", to.port());
    client.send(format!("CONNECT {own} HTTP/1.1\r\nHost: {own}\r\n\r\n"));
    assert_eq!(client.head().expect("a tunnel").status, 200);
}

/// A weir with one rule, which allows the paths below `/v1/` at `narrow.test`.
fn narrow(to: SocketAddr) -> Sidecar {
    let outward = Outward::new().allow(&format!(
        "{{ host = \"http://narrow.test:{}\", path = \"/v1/\", addresses = [\"{}\"] }}",
        to.port(),
        to.ip()
    ));
    outward
        .dns()
        .says("narrow.test", Says::Addresses(vec![to.ip()], 60));
    outward.start()
}

#[test]
fn a_rule_with_a_path_cannot_be_left_by_dots() {
    let good = good();
    let to = good.address();
    let sidecar = narrow(to);
    for path in [
        "admin",
        "v1",
        "v12/",
        "v1/../admin",
        "v1/%2e%2e/admin",
        "v1/..%2fadmin",
        "v1/..%5cadmin",
        "v1/..;/admin",
        "v1/%252e%252e/admin",
        "v1//admin",
        "V1/",
        "v1%2f..%2fadmin",
        "v1/%c0%ae%c0%ae/admin",
        "v1/..%20/admin",
    ] {
        refused(
            &sidecar.get(&format!("/narrow.test:{}/{path}", to.port())),
            Why::NotAllowed,
        );
        refused(
            &sidecar.get(&format!("http://narrow.test:{}/{path}", to.port())),
            Why::NotAllowed,
        );
    }
    assert_eq!(good.connections(), 0);
    sidecar
        .get(&format!("/narrow.test:{}/v1/a%20b?../", to.port()))
        .expect(200);
    assert!(good.asked()[0].starts_with("GET /v1/a%20b?../ HTTP/1.1\r\n"));
}

/// Requests with two lengths or an odd one, with another request hidden behind them that no rule allows.
#[test]
fn a_request_that_is_hidden_in_a_body_reaches_no_origin() {
    let good = good();
    let to = good.address();
    let sidecar = narrow(to);
    let hidden = "GET /admin HTTP/1.1\r\nHost: narrow.test\r\n\r\n";
    let length = format!("Content-Length: {}\r\n", hidden.len() + 5);
    let headers = [
        // By the length, these bytes are the body. For hyper they are the end of a chunked body, and another request.
        format!("{length}Transfer-Encoding: chunked\r\n"),
        format!("Transfer-Encoding: chunked\r\n{length}"),
        format!(
            "{length}Transfer-Encoding: chunked\r\nConnection: Transfer-Encoding, Content-Length\r\n"
        ),
        format!("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n{length}"),
        format!("{length}Transfer-Encoding: xchunked\r\n"),
        format!("{length}Transfer-Encoding : chunked\r\n"),
        format!("{length}Transfer-Encoding: chunked, gzip\r\n"),
        format!("{length}Content-Length: 5\r\n"),
        "Content-Length: +5\r\n".to_owned(),
        "Content-Length: 5, 5\r\n".to_owned(),
        format!(
            "{length}Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n"
        ),
    ];
    for headers in &headers {
        let mut client = sidecar.client();
        let port = to.port();
        client.send(format!(
            "POST /narrow.test:{port}/v1/a HTTP/1.1\r\nHost: weir\r\n{headers}\r\n0\r\n\r\n{hidden}"
        ));
        let status = client.response().status;
        assert!(matches!(status, 200 | 400), "{status} {headers}");
        // Anything left on the origin's connection would be answered before this call.
        let after = sidecar.get(&format!("/narrow.test:{port}/v1/after"));
        assert_eq!(after.expect(200).text(), "good");
    }
    for asked in good.asked() {
        let (head, body) = asked.split_once("\r\n\r\n").expect("a head");
        let head = head.to_lowercase();
        if head.starts_with("get /v1/after http/1.1\r\n") {
            continue;
        }
        assert!(head.starts_with("post /v1/a http/1.1\r\n"), "{asked}");
        assert!(
            !head.contains("upgrade") && !head.contains("http2-settings"),
            "{asked}"
        );
        let has = |name: &str| head.contains(&format!("\r\n{name}:"));
        assert!(
            !(has("content-length") && has("transfer-encoding")),
            "{asked}"
        );
        // The hidden request arrives only inside a body of the declared length, so weir also read it as one body.
        let whole = format!("\r\ncontent-length: {}\r\n", body.len());
        assert!(
            !asked.contains("/admin") || format!("{head}\r\n").contains(&whole),
            "{asked}"
        );
    }
}

#[test]
fn a_call_that_comes_back_to_weir_ends() {
    let outward = Outward::new();
    let own = outward.address();
    let sidecar = outward.plain_name("self.test", own).start();
    let own = format!("self.test:{}", own.port());
    for target in [format!("/{own}/{own}/{own}/"), format!("/{own}/evil.test/")] {
        let response = sidecar.get(&target);
        let said = "weir; error=proxy_loop_detected; details=\"loop\"";
        assert_eq!(
            (response.status, response.header("proxy-status")),
            (508, Some(said))
        );
    }
}
