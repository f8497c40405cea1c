//! Servers that are configured by name.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::{pool, pool_status, site, states, tally};
use weir_test::dns::{Dns, Says};
use weir_test::process::signal;
use weir_test::weir::program;
use weir_test::{Gate, Responder, Weir, free_address, wait_until};

/// Responders on the same port of this many addresses. Each responds with its number.
fn same_port(count: usize) -> (u16, Vec<IpAddr>, Vec<Responder>) {
    let (first, others) = loop {
        let first = free_address();
        let others: Vec<SocketAddr> = (1..count)
            .map(|_| SocketAddr::new(free_address().ip(), first.port()))
            .collect();
        if others
            .iter()
            .all(|address| TcpListener::bind(address).is_ok())
        {
            break (first, others);
        }
    };
    let addresses: Vec<SocketAddr> = std::iter::once(first).chain(others).collect();
    let responders = addresses.iter().enumerate().map(|(number, address)| {
        Responder::tcp_at(*address, move |_, answer| answer.page(number.to_string()))
    });
    let responders = responders.collect();
    let ips = addresses.iter().map(SocketAddr::ip).collect();
    (first.port(), ips, responders)
}

fn start(dns: &Dns, port: u16, lines: &str) -> Weir {
    let setup = site().server(&format!("resolver = [\"{}\"]", dns.address()));
    let servers = [format!("\"php.test:{port}\"")];
    setup.pool(&pool(&servers, lines)).start()
}

#[test]
fn every_address_of_a_name_is_a_server_and_changes_move_the_load() {
    let (port, ips, _responders) = same_port(3);
    let dns = Dns::start();
    dns.says("php.test", Says::Addresses(ips[..2].to_vec(), 1));
    let weir = start(&dns, port, "queue.maxconn = 4");
    let seen = tally(&weir, "/who.php", 10);
    assert_eq!((seen["0"], seen["1"]), (5, 5));
    let shown = pool_status(&weir)["servers"][0]["name"].clone();
    assert_eq!(shown, format!("php.test:{port} ({})", ips[0]));

    dns.says("php.test", Says::Addresses(ips[1..].to_vec(), 1));
    weir.wait_for_error(&["is new in DNS", &ips[2].to_string()]);
    weir.wait_for_error(&["is no longer in DNS", &ips[0].to_string()]);
    let seen = tally(&weir, "/who.php", 10);
    assert_eq!((seen["1"], seen["2"]), (5, 5));
    assert_eq!(states(&weir), ["up", "up"]);
}

#[test]
fn what_runs_at_an_address_that_is_gone_runs_to_its_end() {
    let (gate, at) = (Gate::default(), free_address());
    let (shut, other) = (
        gate.clone(),
        SocketAddr::new(free_address().ip(), at.port()),
    );
    let old = Responder::tcp_at(at, move |_, answer| {
        shut.pass();
        answer.page("old");
    });
    let _new = Responder::tcp_at(other, |_, answer| answer.page("new"));
    let dns = Dns::start();
    dns.says("php.test", Says::Addresses(vec![at.ip()], 1));
    let weir = start(&dns, at.port(), "keep_conn = true\nqueue.maxconn = 2");
    let mut client = weir.client();
    client.send("GET /who.php HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it runs", || old.running() == 1);
    dns.says("php.test", Says::Addresses(vec![other.ip()], 1));
    weir.wait_for_error(&["is no longer in DNS"]);
    assert_eq!(tally(&weir, "/who.php", 4)["new"], 4);
    assert!(states(&weir).contains(&"leaving".to_owned()));
    gate.open();
    assert_eq!(client.response().expect(200).text(), "old");
    wait_until("it has left", || states(&weir) == ["up"]);
    wait_until("its connection is closed", || old.connections_now() == 0);
}

#[test]
fn failures_of_dns_keep_the_servers() {
    let (port, ips, _responders) = same_port(2);
    let dns = Dns::start();
    dns.says("php.test", Says::Addresses(ips.clone(), 1));
    let weir = start(&dns, port, "resolve_max = \"1s\"\nqueue.maxconn = 4");
    assert_eq!(tally(&weir, "/who.php", 4).len(), 2);
    for failure in [Says::Failure, Says::NoSuchName, Says::Garbage] {
        let asked = dns.asked();
        dns.says("php.test", failure);
        wait_until("it was asked again", || dns.asked() > asked + 3);
        assert_eq!(tally(&weir, "/who.php", 4).len(), 2);
    }
    weir.wait_for_error(&["DNS lookup of php.test failed", "its 2 servers are kept"]);
    dns.says("php.test", Says::Addresses(ips[..1].to_vec(), 1));
    weir.wait_for_error(&["DNS lookup of php.test works again"]);
    assert_eq!(tally(&weir, "/who.php", 4)["0"], 4);
}

#[test]
fn a_name_that_is_not_known_yet_stops_nobody() {
    let (port, ips, _responders) = same_port(1);
    let dns = Dns::start();
    let setup = site().server(&format!("resolver = [\"{}\"]", dns.address()));
    let setup = setup.pool(&pool(&[format!("\"php.test:{port}\"")], ""));
    let file = setup.write_toml();
    let check = Command::new(program())
        .args(["check", "-c"])
        .arg(&file)
        .output()
        .expect("weir check");
    assert!(check.status.success(), "{check:?}");
    let weir = setup.start();
    weir.wait_for_error(&[
        "warning",
        "DNS lookup of php.test failed",
        "the pool has no server until then",
    ]);
    weir.get("/who.php").expect(503).expect_reason("no_worker");
    dns.says("php.test", Says::Addresses(ips, 60));
    wait_until("it is there", || weir.get("/who.php").status == 200);
}

#[test]
fn a_request_waits_for_the_first_answer_of_dns() {
    let (port, ips, _responders) = same_port(1);
    let dns = Dns::start();
    dns.says("php.test", Says::Silence);
    let weir = start(&dns, port, "queue.maxconn = 2");
    let mut client = weir.client();
    client.send("GET /who.php HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.quiet_for(Duration::from_millis(300)));
    dns.says("php.test", Says::Addresses(ips, 60));
    client.response().expect(200);
}

#[test]
fn both_families_are_servers() {
    let v6 = TcpListener::bind("[::1]:0").and_then(|socket| socket.local_addr());
    let v6 = v6.expect("a port of ::1");
    let v4 = SocketAddr::new(free_address().ip(), v6.port());
    let _first = Responder::tcp_at(v4, |_, answer| answer.page("v4"));
    let _second = Responder::tcp_at(v6, |_, answer| answer.page("v6"));
    let dns = Dns::start();
    dns.says("php.test", Says::Addresses(vec![v4.ip(), v6.ip()], 60));
    let weir = start(&dns, v6.port(), "queue.maxconn = 2");
    let seen = tally(&weir, "/who.php", 6);
    assert_eq!((seen["v4"], seen["v6"]), (3, 3));
}

#[test]
fn addresses_outlive_reloads_and_gateways_while_dns_is_away() {
    let (port, ips, _responders) = same_port(2);
    let dns = Dns::start();
    dns.says("php.test", Says::Addresses(ips[..1].to_vec(), 1));
    let weir = start(&dns, port, "queue.maxconn = 4\nresolve_max = \"1s\"");
    assert_eq!(tally(&weir, "/who.php", 4)["0"], 4);
    dns.says("php.test", Says::Failure);
    weir.wait_for_error(&["DNS lookup of ", "its server is kept"]);
    let reloads = || weir.stderr().matches("reloaded: the new").count();
    for count in 1..3 {
        weir.signal(Signal::HUP);
        wait_until("it is reloaded", || reloads() == count);
        assert_eq!(tally(&weir, "/who.php", 4)["0"], 4);
    }
    // Earlier gateways may still exist for a moment.
    let is_gateway = |pid: u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name == "weir-gateway\n")
    };
    let gateways = || -> Vec<u32> {
        let all = weir.processes().into_iter().map(|process| process.pid);
        all.filter(|pid| is_gateway(*pid)).collect()
    };
    wait_until("there is one gateway", || gateways().len() == 1);
    signal(gateways()[0], Signal::KILL);
    weir.wait_for_error(&["accepts connections again"]);
    assert_eq!(tally(&weir, "/who.php", 4)["0"], 4);
    // weir uses the addresses again as soon as it can look up the name.
    dns.says("php.test", Says::Addresses(ips[1..].to_vec(), 1));
    weir.wait_for_error(&["is no longer in DNS", &ips[0].to_string()]);
    assert_eq!(tally(&weir, "/who.php", 4)["1"], 4);
}
