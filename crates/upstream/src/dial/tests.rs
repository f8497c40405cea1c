//! Connections to listeners of this machine: some answer, some refuse, some let everybody wait.

use super::*;
use crate::tests::Counted;
use std::{
    net::{Ipv4Addr, Ipv6Addr, TcpListener},
    time::Instant,
};
use weir_config::Scheme;
use weir_control::NameFiles;
use weir_net::Socket;

/// A listener whose queue is full: the kernel answers nobody who wants to connect.
struct Deaf {
    listener: TcpListener,
    _queued: Vec<std::net::TcpStream>,
}

impl Deaf {
    fn start(ip: IpAddr) -> Deaf {
        let family = match ip {
            IpAddr::V4(_) => socket2::Domain::IPV4,
            IpAddr::V6(_) => socket2::Domain::IPV6,
        };
        let socket = socket2::Socket::new(family, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(ip, 0).into()).unwrap();
        socket.listen(0).unwrap();
        let listener = TcpListener::from(socket);
        let at = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        // The kernel accepts one or two connections more than the backlog allows.
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&at, FULL) {
            queued.push(stream);
            assert!(queued.len() < 100, "its queue does not get full");
        }
        Deaf {
            listener,
            _queued: queued,
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }
}

/// A connection to a listener of the same machine that takes longer is not answered.
const FULL: Duration = Duration::from_millis(500);

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Nobody listens there, and nobody can while the socket is held.
fn refusing() -> (TcpListener, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(V4, 0).into()).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn dialer(hosts: &str) -> Dialer {
    let files = NameFiles {
        hosts: hosts.as_bytes().to_vec(),
        ..NameFiles::default()
    };
    let nobody = [SocketAddr::from(([127, 0, 0, 1], 9))];
    let resolver = Resolver::new(&nobody, &files).unwrap();
    Dialer::by(Names::new(resolver, 10, Arc::new(Counted::default())))
}

fn route(host: &str, port: u16, connect_timeout: u64) -> Route {
    let local = [("127.0.0.0", 8), ("::1", 128)].map(|(address, prefix)| Network {
        address: address.parse().unwrap(),
        prefix,
    });
    Route {
        origin: Arc::new(Origin {
            scheme: Scheme::Http,
            host: host.to_owned(),
            port,
        }),
        settings: Arc::new(HostSettings {
            connect_timeout: Duration::from_millis(connect_timeout),
            ..HostSettings::usual()
        }),
        networks: local.to_vec(),
        tls: None,
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test)
}

#[test]
fn a_name_is_connected_to_and_the_way_is_told() {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    run(async {
        let dialer = dialer("127.0.0.1 a.test\n");
        let route = route("a.test", address.port(), 20_000);
        let link = dialer.dial(&route, clock::NEVER).await.unwrap();
        assert_eq!(link.connection.address, address);
        assert_eq!(link.connection.protocol, Protocol::Http1);
        let times = link.connection.made.unwrap();
        assert!(times.connect > 0 && times.tls.is_none());
        let Socket::Tcp(socket) = link.stream.socket() else {
            panic!("it is TCP");
        };
        assert!(socket.nodelay().unwrap());
        assert!(dialer.still_leads(&route, V4));
        assert!(!dialer.still_leads(&route, "127.0.0.2".parse().unwrap()));
        let (_, tunnel) = dialer.dial_plain(&route, clock::NEVER).await.unwrap();
        assert_eq!(tunnel.protocol, Protocol::Tunnel);
        assert_eq!(tunnel.made.unwrap().dns, 0);
    });
}

#[test]
fn an_address_that_does_not_answer_holds_nobody_up_and_is_tried_last_then() {
    let (deaf, listener) = std::iter::repeat_with(|| {
        let deaf = Deaf::start(V6);
        // Somebody else may have that port.
        let listener = TcpListener::bind((V4, deaf.address().port())).ok()?;
        Some((deaf, listener))
    })
    .take(100)
    .flatten()
    .next()
    .expect("a port that is free in both families");
    let port = deaf.address().port();
    run(async {
        let dialer = dialer("127.0.0.1 a.test\n::1 a.test\n");
        let route = route("a.test", port, 20_000);
        let begun = Instant::now();
        let link = dialer.dial(&route, clock::NEVER).await.unwrap();
        assert_eq!(link.connection.address, listener.local_addr().unwrap());
        assert!(begun.elapsed() >= Duration::from_millis(250));
        for _ in 0..3 {
            let order = dialer.order(&[V4, V6], port, clock::now());
            assert_eq!(order[0].ip(), V4);
        }
    });
}

#[test]
fn one_that_refuses_is_followed_by_the_next_at_once() {
    let (_held, refusing) = refusing();
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    run(async {
        let mut race = Race::new(vec![refusing, address]);
        let (won, _) = race.run().await.unwrap();
        assert_eq!(won, address);
        assert_eq!(race.losers(), [refusing]);
    });
}

#[test]
fn nobody_there_is_a_refusal_that_names_all() {
    let (_held, address) = refusing();
    run(async {
        let dialer = dialer("127.0.0.1 a.test\n");
        let route = route("a.test", address.port(), 20_000);
        let fault = dialer.dial(&route, clock::NEVER).await.unwrap_err();
        assert_eq!(fault.kind, Kind::Refused);
        let expected = format!(
            "cannot connect to http://a.test:{}: {address}: ",
            address.port()
        );
        assert!(fault.message.starts_with(&expected), "{}", fault.message);
        assert!(
            fault.message.contains("(os error 111)"),
            "{}",
            fault.message
        );
    });
}

#[test]
fn what_takes_too_long_is_the_origins_fault_or_that_of_the_calls_deadline() {
    let deaf = Deaf::start(V4);
    let port = deaf.address().port();
    run(async {
        let dialer = dialer("127.0.0.1 a.test\n");
        let late = dialer.dial(&route("a.test", port, 100), clock::NEVER).await;
        let late = late.unwrap_err();
        assert_eq!(late.kind, Kind::ConnectTimeout);
        assert!(late.message.contains("connect_timeout"), "{}", late.message);
        assert!(late.message.contains(&deaf.address().to_string()));
        // A caller's own deadline at the same moment gives the same error.
        let same = clock::deadline(Duration::from_millis(100));
        let same = dialer.dial(&route("a.test", port, 100), same).await;
        assert_eq!(same.unwrap_err().kind, Kind::ConnectTimeout);
        let soon = clock::deadline(Duration::from_millis(50));
        let fault = dialer.dial(&route("a.test", port, 20_000), soon).await;
        assert_eq!(fault.unwrap_err().kind, Kind::Deadline);
    });
}

#[test]
fn every_address_of_a_name_is_judged() {
    let listener = TcpListener::bind((V4, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    run(async {
        let dialer = dialer(
            "127.0.0.1 a.test b.test\n169.254.169.254 a.test m.test\n::ffff:10.0.0.1 m.test\n",
        );
        let link = dialer
            .dial(&route("a.test", port, 20_000), clock::NEVER)
            .await;
        assert_eq!(link.unwrap().connection.address.ip(), V4);
        for host in ["m.test", "10.0.0.1", "::ffff:169.254.169.254"] {
            let fault = dialer.dial(&route(host, port, 20_000), clock::NEVER).await;
            let fault = fault.unwrap_err();
            assert_eq!(fault.kind, Kind::ForbiddenAddress, "{}", fault.message);
        }
        let mut nothing = route("b.test", port, 20_000);
        nothing.networks.clear();
        let fault = dialer.dial_plain(&nothing, clock::NEVER).await.unwrap_err();
        assert!(
            fault.message.contains("127.0.0.1 (a loopback"),
            "{}",
            fault.message
        );
    });
}

#[test]
fn families_and_addresses_take_turns() {
    let dialer = dialer("");
    let ips = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1"].map(|ip| ip.parse().unwrap());
    let order = |now| {
        let order = dialer.order(&ips, 443, now);
        order.iter().map(|a| a.ip().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        order(1),
        ["2001:db8::1", "10.0.0.1", "10.0.0.2", "10.0.0.3"]
    );
    assert_eq!(
        order(1),
        ["2001:db8::1", "10.0.0.2", "10.0.0.3", "10.0.0.1"]
    );
    dialer.note_failure("[2001:db8::1]:443".parse().unwrap(), 1);
    assert_eq!(
        order(2),
        ["10.0.0.3", "10.0.0.1", "10.0.0.2", "2001:db8::1"]
    );
    assert_eq!(order(FAILED_FOR + 1)[0], "2001:db8::1");
    for index in 0..2 * MOST_FAILED {
        let ip = Ipv4Addr::from_bits(index as u32);
        dialer.note_failure((ip, 1).into(), 5);
    }
    assert!(dialer.failed().len() <= MOST_FAILED);
    let many: Vec<IpAddr> = (0..100).map(|n| Ipv4Addr::from_bits(n).into()).collect();
    assert_eq!(dialer.order(&many, 443, 1).len(), MOST_TRIED);
}

/// A listener on all addresses is met at those of this machine, and at no others.
#[test]
fn a_wildcard_listener_is_a_loop_for_this_machine_only() {
    let origin = Origin {
        scheme: Scheme::Http,
        host: "api.test".into(),
        port: 8083,
    };
    for own in ["0.0.0.0:8083", "[::]:8083"] {
        let mut dialer = dialer("");
        dialer.own = vec![own.parse().unwrap()];
        let is_loop = |ip: &str| dialer.check_loop(&origin, &[ip.parse().unwrap()]).is_err();
        assert!(is_loop("127.0.0.1") && is_loop("127.1.2.3") && is_loop("0.0.0.0"));
        // RFC 5737: an address for examples, which no machine has.
        assert!(!is_loop("192.0.2.7"), "{own}");
    }
}
