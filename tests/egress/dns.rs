//! Names whose addresses change, name servers that fail, addresses that do not answer.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use weir_test::dns::Says;
use weir_test::oddity::{Oddity, Talk};
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::{free_address, wait_until};

/// Origins on the same port of this many addresses. Each responds with its number.
fn same_port(count: usize) -> (u16, Vec<IpAddr>, Vec<Oddity>) {
    let addresses = std::iter::repeat_with(|| {
        let first = free_address();
        let others = (1..count).map(|_| SocketAddr::new(free_address().ip(), first.port()));
        let all: Vec<SocketAddr> = std::iter::once(first).chain(others).collect();
        let free = all.iter().all(|at| TcpListener::bind(at).is_ok());
        free.then_some(all)
    });
    let addresses: Vec<SocketAddr> = addresses.flatten().next().expect("a port that is free");
    let origins = addresses.iter().enumerate().map(|(number, at)| {
        let answer = number.to_string();
        Oddity::start(*at, None, move |talk: &mut Talk| talk.answer_all(&answer))
    });
    let ips = addresses.iter().map(SocketAddr::ip).collect();
    (addresses[0].port(), ips, origins.collect())
}

fn outward(port: u16, ip: IpAddr) -> Outward {
    Outward::new().plain_name("api.test", SocketAddr::new(ip, port))
}

fn path(port: u16) -> String {
    format!("/api.test:{port}/")
}

/// Returns which origin answers a call.
fn who(sidecar: &Sidecar, port: u16) -> String {
    sidecar.get(&path(port)).expect(200).text()
}

#[test]
fn calls_go_where_a_name_leads_by_now_and_none_fails() {
    let (port, ips, origins) = same_port(2);
    let outward = outward(port, ips[0]);
    let says = |ip| Says::Addresses(vec![ip], 1);
    outward.dns().says("api.test", says(ips[0]));
    let sidecar = outward.start();
    assert_eq!(who(&sidecar, port), "0");
    sidecar.dns.says("api.test", says(ips[1]));
    wait_until("the new address is called", || who(&sidecar, port) == "1");
    for _ in 0..20 {
        assert_eq!(who(&sidecar, port), "1");
    }
    wait_until("connections to the former address are closed", || {
        origins[0].open() == 0
    });
    assert_eq!(origins[1].connections(), 1);
}

#[test]
fn an_origin_that_moves_and_ends_at_its_old_address_fails_no_call() {
    let (port, ips, mut origins) = same_port(2);
    let outward = outward(port, ips[0]).usual("keepalive = 0");
    let says = |ips: &[IpAddr]| Says::Addresses(ips.to_vec(), 1);
    outward.dns().says("api.test", says(&ips[..1]));
    let sidecar = outward.start();
    assert_eq!(who(&sidecar, port), "0");
    sidecar.dns.says("api.test", says(&ips));
    wait_until("both are known", || who(&sidecar, port) == "1");
    // The origin ends while it is called. weir sends the call again to the other address.
    let leaves = origins.remove(0);
    let ends = std::thread::spawn(move || drop(leaves));
    let (mut calls, mut at_new) = (0, 0);
    while at_new < 20 {
        calls += 1;
        assert!(calls < 100_000, "the new address is not called");
        match who(&sidecar, port).as_str() {
            "1" => at_new += 1,
            _ => at_new = 0,
        }
    }
    ends.join().expect("it ends");
}

#[test]
fn an_origin_that_is_gone_is_looked_for_before_its_names_time_is_over() {
    let (port, ips, mut origins) = same_port(2);
    let sidecar = outward(port, ips[0]).start();
    assert_eq!(who(&sidecar, port), "0");
    sidecar
        .dns
        .says("api.test", Says::Addresses(vec![ips[1]], 60));
    drop(origins.remove(0));
    // This does not happen at once: weir's first answer has to be a second old.
    wait_until("it is found", || sidecar.get(&path(port)).status == 200);
    assert_eq!(who(&sidecar, port), "1");
}

#[test]
fn calls_go_on_while_name_servers_fail() {
    let (port, ips, _origins) = same_port(1);
    let outward = outward(port, ips[0]).usual("keepalive = 0");
    outward
        .dns()
        .says("api.test", Says::Addresses(ips.clone(), 1));
    let sidecar = outward.start();
    assert_eq!(who(&sidecar, port), "0");
    sidecar.dns.says("api.test", Says::Failure);
    let asked = sidecar.dns.asked();
    wait_until("it was asked again", || {
        who(&sidecar, port);
        sidecar.dns.asked() > asked + 2
    });
    assert_eq!(who(&sidecar, port), "0");
    sidecar
        .weir
        .wait_for_error(&["DNS lookup of api.test failed", "last addresses"]);
    sidecar.dns.says("api.test", Says::Addresses(ips, 60));
    wait_until("it is said that it is over", || {
        who(&sidecar, port);
        sidecar
            .weir
            .stderr()
            .contains("DNS lookup of api.test works again")
            || sidecar
                .weir
                .read("error.log")
                .contains("DNS lookup of api.test works again")
    });
}

#[test]
fn a_name_that_is_none_and_servers_that_are_silent_are_told_apart() {
    let (port, ips, _origins) = same_port(1);
    let outward = outward(port, ips[0]).usual("connect_timeout = \"1s\"\nretries = 0");
    outward.dns().says("api.test", Says::NoSuchName);
    let sidecar = outward.start();
    let answer = sidecar.get(&path(port)).expect(502);
    answer.expect_reason("dns_error");
    sidecar
        .weir
        .wait_for_error(&["DNS lookup of api.test failed", "this name does not exist"]);
    sidecar.dns.says("api.test", Says::Silence);
    wait_until("it waits for an answer", || {
        let answer = sidecar.get(&path(port));
        answer.status == 504 && {
            answer.expect_reason("dns_timeout");
            true
        }
    });
    sidecar.dns.says("api.test", Says::Addresses(ips, 60));
    wait_until("it is called", || sidecar.get(&path(port)).status == 200);
}

#[test]
fn a_name_that_comes_to_lead_to_a_forbidden_address_is_not_followed() {
    let (port, ips, origins) = same_port(1);
    let trap = TcpListener::bind(("127.0.0.1", 0)).expect("bind");
    let outward = Outward::new();
    outward
        .dns()
        .says("api.test", Says::Addresses(vec![ips[0]], 1));
    let allow = format!(
        "{{ host = \"http://api.test:{port}\", addresses = [\"{}/32\"] }}",
        ips[0]
    );
    let sidecar = outward.allow(&allow).start();
    assert_eq!(who(&sidecar, port), "0");
    let forbidden = ["169.254.169.254", "127.0.0.1", "10.0.0.1"].map(|ip| ip.parse().expect("ip"));
    sidecar
        .dns
        .says("api.test", Says::Addresses(forbidden.to_vec(), 1));
    wait_until("it is refused", || {
        let answer = sidecar.get(&path(port));
        answer.status == 403 && {
            answer.expect_reason("destination_ip_prohibited");
            true
        }
    });
    sidecar
        .weir
        .wait_for_error(&["api.test is", "169.254.169.254", "addresses"]);
    wait_until("its connections are closed", || origins[0].open() == 0);
    trap.set_nonblocking(true).expect("a socket");
    assert!(trap.accept().is_err(), "somebody came");
}

#[test]
fn a_family_that_does_not_answer_delays_only_the_first_call() {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None).expect("IPv6");
    let at = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    socket.bind(&at.into()).expect("bind");
    // Its queue is full, so the kernel answers no further connections.
    socket.listen(0).expect("listen");
    let deaf = TcpListener::from(socket);
    let at = deaf.local_addr().expect("an address");
    let mut queued = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&at, Duration::from_millis(500)) {
        queued.push(stream);
        assert!(queued.len() < 100, "its queue does not get full");
    }
    let own = free_address();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n4";
    let origin = Oddity::start(SocketAddr::new(own.ip(), at.port()), None, move |talk| {
        talk.request();
        talk.send(answer);
    });
    let outward = Outward::new();
    outward
        .dns()
        .says("api.test", Says::Addresses(vec![at.ip(), own.ip()], 60));
    let allow = format!(
        "{{ host = \"http://api.test:{}\", addresses = [\"127.0.0.0/8\", \"::1/128\"] }}",
        at.port()
    );
    let sidecar = outward.allow(&allow).start();
    let took = || {
        let begun = Instant::now();
        assert_eq!(who(&sidecar, at.port()), "4");
        begun.elapsed()
    };
    assert!(took() >= Duration::from_millis(250));
    // The following calls know this already. One that is not held up by other work on this machine shows it.
    wait_until("a call is not delayed", || {
        took() < Duration::from_millis(250)
    });
    assert!(origin.connections() >= 2);
}
