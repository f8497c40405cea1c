//! HTTP/3 where something runs out or dies: connections, time, disk, descriptors, buffers of the kernel, gateways and workers. And
//! certificates of clients.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::Request;
use rustix::process::Signal;
use serde_json::Value;
use weir_test::authority::Authority;
use weir_test::http3::{Answer, Http3, Http3Client};
use weir_test::process::signal;
use weir_test::{Client, Gate, Responder, Setup, Weir, small_disk, wait_until};

use crate::Tls;

fn with_http3() -> Tls {
    Tls::new().with(|setup| setup.listen("http3 = true").admin())
}

fn connect(weir: &Weir, client: &Http3Client) -> Http3 {
    client.connect(weir.address(), "main.test").unwrap()
}

fn serves(http3: &mut Http3) {
    assert_eq!(http3.get("main.test", "/").text(), "main\n");
}

fn metric(weir: &Weir, name: &str) -> f64 {
    let (_, text) = weir.admin_get("/metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.unwrap_or_else(|| panic!("no {name}: {text}"));
    value.trim().parse().expect("a number")
}

#[test]
fn more_connections_of_one_address_are_refused() {
    let (weir, authority) = with_http3()
        .with(|setup| setup.server("max_connections_per_address = 2"))
        .start();
    let client = Http3Client::new(&authority);
    let mut kept: Vec<Http3> = (0..2).map(|_| connect(&weir, &client)).collect();
    let error = client.connect(weir.address(), "main.test").err().unwrap();
    assert!(error.contains("refused to accept"), "{error}");
    let refused = "weir_connections_refused_total{listener=\"web\",reason=\"per_address\"}";
    assert_eq!(metric(&weir, refused), 1.0);
    kept.iter_mut().for_each(serves);
    // A place is free again after its connection has ended.
    kept.pop().expect("a connection").close();
    wait_until("a place is free again", || {
        client.connect(weir.address(), "main.test").is_ok()
    });
}

#[test]
fn datagrams_in_somebodys_name_take_no_places_of_his() {
    let lines = "max_connections_per_address = 3\nmax_connections = 40\nthreads = 1";
    let (weir, authority) = with_http3().with(|setup| setup.server(lines)).start();
    let client = Http3Client::new(&authority);
    let liar = UdpSocket::bind("127.0.0.1:0").unwrap();
    let lies = |count: usize| {
        for _ in 0..count {
            let first = client.first_datagram("main.test");
            liar.send_to(&first, weir.address()).unwrap();
        }
    };
    let now = || weir.status()["connections"]["now"].as_u64().unwrap();
    lies(10);
    wait_until("their handshakes have begun", || now() >= 10);
    let mut kept: Vec<Http3> = (0..3).map(|_| connect(&weir, &client)).collect();
    kept.iter_mut().for_each(serves);
    let error = client.connect(weir.address(), "main.test").err().unwrap();
    assert!(error.contains("refused to accept"), "{error}");
    // Nor do they take the last places: then new clients must first prove their address.
    lies(40);
    kept.pop().expect("a connection").close();
    wait_until("a place is free again", || {
        client.connect(weir.address(), "main.test").is_ok()
    });
    assert!(now() <= 36, "{}", now());
}

#[test]
fn idle_connections_make_room_for_new_ones() {
    let (weir, authority) = with_http3()
        .with(|setup| setup.server("max_connections = 3\nthreads = 1"))
        .start();
    let client = Http3Client::new(&authority);
    wait_until("there is no connection", || {
        weir.status()["connections"]["now"] == 0
    });
    let mut all: Vec<Http3> = (0..3).map(|_| connect(&weir, &client)).collect();
    all.iter_mut().for_each(serves);
    wait_until("all are idle", || weir.status()["connections"]["idle"] == 3);
    let mut new = connect(&weir, &client);
    serves(&mut new);
    wait_until("one was closed for it", || {
        all.iter().filter(|http3| http3.has_ended()).count() == 1
    });
    assert!(weir.status()["connections"]["now"].as_u64() <= Some(3));
}

#[test]
fn certificates_of_clients_are_checked_and_told_to_scripts() {
    let clients = Authority::new();
    let lines = format!("client_ca = \"{}\"", clients.file().display());
    let required = format!("{lines}\nclient_certificate = \"required\"");
    let (weir, authority) = with_http3()
        .with_php()
        .with(|setup| setup.site(&required))
        .start();
    let anna = clients.client("anna.test");
    let mut http3 = connect(&weir, &Http3Client::with_identity(&authority, &anna));
    let params = http3.get("main.test", "/params.php");
    let params: Value = serde_json::from_slice(&params.body).expect("JSON");
    assert_eq!(params["SSL_CLIENT_VERIFY"], "SUCCESS");
    assert_eq!(params["SSL_CLIENT_S_DN"], "CN=anna.test");
    assert_eq!(params["SERVER_PROTOCOL"], "HTTP/3.0");
    // No certificate, and a certificate of another authority. The client learns of the error after its own part of the
    // handshake.
    let strangers = Authority::new();
    let none = Http3Client::new(&authority);
    let wrong = Http3Client::with_identity(&authority, &strangers.client("anna.test"));
    // The alerts certificate_required and unknown_ca.
    for (client, alert) in [(none, "error 116"), (wrong, "error 48")] {
        // quinn forgets the alert if a reset arrives with it, for packets that quinn has sent meanwhile.
        wait_until("an alert that the client has seen", || {
            let error = match client.connect(weir.address(), "main.test") {
                Err(error) => error,
                Ok(http3) => http3.end(),
            };
            error.contains(alert)
        });
    }
}

/// A site whose script counts the bytes of the request.
fn counting(change: impl FnOnce(Setup) -> Setup) -> (Responder, Weir, Authority) {
    let mut responder = None;
    let (weir, authority) = with_http3()
        .with(|setup| {
            let of = Responder::unix(setup.folder(), |request, answer| {
                answer.page(request.stdin.len().to_string());
            });
            let setup = setup.file("run.php", "").pool(&of.pool(2));
            responder = Some(of);
            change(setup)
        })
        .start();
    (responder.expect("a responder"), weir, authority)
}

fn send(http3: &mut Http3, path: &str, body: &[u8]) -> Result<Answer, String> {
    let request = Request::post(format!("https://main.test{path}"));
    http3.request(request.body(()).unwrap(), &[body])
}

#[test]
fn a_full_disk_under_the_spool_is_told_and_others_are_served() {
    let (responder, weir, authority) = counting(|setup| {
        let under = small_disk(&setup.folder().join("spool").display().to_string());
        let under: Vec<&str> = under.iter().map(String::as_str).collect();
        setup.site("max_body = \"64M\"").under(&under)
    });
    let client = Http3Client::new(&authority);
    let mut http3 = connect(&weir, &client);
    let body = vec![b'x'; 500_000];
    let said = send(&mut http3, "/run.php", &body).unwrap();
    assert_eq!(said.text(), "500000");
    // The client may be told to stop before it has sent all.
    if let Ok(answer) = send(&mut http3, "/run.php?large", &vec![b'x'; 8 << 20]) {
        assert!(matches!(answer.status, 500 | 503 | 507), "{answer:?}");
    }
    wait_until("the cause is logged", || {
        let said = weir.stderr();
        said.contains("No space left") || said.contains("File too large")
    });
    let status = weir.logged("/run.php?large")["status"].as_u64();
    assert!(matches!(status, Some(500 | 503 | 507)), "{status:?}");
    // On the same connection, the space is free again.
    for _ in 0..3 {
        let said = send(&mut http3, "/run.php", &body).unwrap();
        assert_eq!(said.text(), "500000");
    }
    assert!(!responder.uris().iter().any(|uri| uri.contains("large")));
}

#[test]
fn requests_without_descriptors_are_refused_and_the_next_ones_served() {
    const MOST: usize = 120;
    let (_responder, weir, authority) = counting(|setup| {
        let lines = "threads = 1\nmax_connections = 500\nmax_connections_per_address = 0";
        let limit = format!("--nofile={MOST}:{MOST}");
        let setup = setup
            .file("first.txt", "first")
            .file("second.txt", "second");
        setup.server(lines).under(&["prlimit", &limit])
    });
    let client = Http3Client::new(&authority);
    let mut http3 = connect(&weir, &client);
    serves(&mut http3);
    // Connections over TCP take all descriptors.
    let taken: Vec<Client> = (0..2 * MOST).map(|_| weir.client()).collect();
    let gateway = weir.gateway();
    let all = format!("/proc/{}/fd", gateway.pid);
    wait_until("there are none", || {
        std::fs::read_dir(&all).is_ok_and(|all| all.count() >= MOST)
    });
    let refused = http3.get("main.test", "/first.txt");
    assert!(matches!(refused.status, 500 | 503), "{refused:?}");
    let script = send(&mut http3, "/run.php", b"abc").unwrap();
    assert!(matches!(script.status, 500 | 502 | 503), "{script:?}");
    weir.wait_for_error(&["Too many open files"]);
    // A connection of QUIC needs no descriptor.
    let mut later = connect(&weir, &client);
    drop(taken);
    // Connections that waited in the kernel's queue take descriptors once more, before they end.
    wait_until("files are served again", || {
        later.get("main.test", "/second.txt").status == 200
    });
    wait_until("also on the first connection", || {
        http3.get("main.test", "/first.txt").text() == "first"
    });
    wait_until("scripts run again", || {
        send(&mut later, "/run.php", b"abc").is_ok_and(|answer| answer.status == 200)
    });
    assert!(gateway.runs(), "the gateway died of it");
}

#[test]
fn datagrams_that_the_kernel_drops_are_counted() {
    let (weir, authority) = with_http3()
        .with(|setup| setup.server("threads = 1"))
        .start();
    let dropped = "weir_quic_dropped_datagrams_total{listener=\"web\",reason=\"buffer_full\"}";
    assert_eq!(metric(&weir, dropped), 0.0);
    let gateway = weir.gateway().pid;
    signal(gateway, Signal::STOP);
    let socket = UdpSocket::bind((weir.address().ip(), 0)).unwrap();
    for _ in 0..10_000 {
        socket.send_to(&[0x40; 1200], weir.address()).unwrap();
    }
    signal(gateway, Signal::CONT);
    wait_until("they are counted", || metric(&weir, dropped) >= 1000.0);
    let listener = &weir.status()["listeners"][0];
    assert!(
        listener["datagrams_dropped"].as_u64() >= Some(1000),
        "{listener}"
    );
    serves(&mut connect(&weir, &Http3Client::new(&authority)));
}

#[test]
fn a_gateway_that_is_killed_under_load_leaves_no_client_waiting() {
    const CLIENTS: usize = 4;
    let (weir, authority) = with_http3().start();
    // A client whose request has come and that waits for the answer learns of it when it sends something again, as in browsers: a PING.
    let client = Http3Client::new(&authority).with_pings();
    let answered: [AtomicU64; CLIENTS] = Default::default();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for answered in &answered {
            let (weir, client, is_over) = (&weir, &client, &is_over);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    // Meanwhile nobody reads the sockets, and the client tries again.
                    let Ok(mut http3) = client.connect(weir.address(), "main.test") else {
                        continue;
                    };
                    while !is_over.load(Relaxed) {
                        let request = Request::get("https://main.test/").body(()).unwrap();
                        match http3.request(request, &[]) {
                            Ok(answer) => assert_eq!(answer.text(), "main\n"),
                            Err(_) => break,
                        }
                        answered.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        let more = |what: &str| {
            let before = answered.each_ref().map(|count| count.load(Relaxed));
            wait_until(what, || {
                let now = answered.each_ref().map(|count| count.load(Relaxed));
                before
                    .iter()
                    .zip(now)
                    .all(|(before, now)| now > before + 10)
            });
        };
        let _end = OnDrop(|| is_over.store(true, Relaxed));
        for _ in 0..3 {
            more("all clients get answers");
            let gateway = weir.gateway();
            signal(gateway.pid, Signal::KILL);
            wait_until("another gateway", || weir.gateway().pid != gateway.pid);
        }
        more("all clients get answers after the last death");
    });
}

/// Does something when it is dropped, also if a test fails.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_worker_that_dies_costs_its_own_request_only() {
    let gate = Gate::default();
    let shut = gate.clone();
    let mut responder = None;
    let (weir, authority) = with_http3()
        .with(|setup| {
            let of = Responder::unix(setup.folder(), move |request, answer| {
                match request.param("QUERY_STRING") {
                    // The client got nothing, or the beginning of an answer.
                    "nothing" => answer.hang_up(),
                    "begun" => {
                        answer.stdout("Content-Type: text/plain\r\n\r\n");
                        answer.stdout(vec![b'x'; 300_000]);
                        answer.hang_up();
                    }
                    _ => {
                        shut.pass();
                        answer.page("done");
                    }
                }
            });
            let setup = setup.file("run.php", "").pool(&of.pool(4));
            responder = Some(of);
            setup
        })
        .start();
    let mut http3 = connect(&weir, &Http3Client::new(&authority));
    let mut begin = |what: &str| {
        let request = Request::post(format!("https://main.test/run.php?{what}"));
        http3.begin(request.body(()).unwrap()).unwrap()
    };
    let (waits, nothing, begun) = (begin("waits"), begin("nothing"), begin("begun"));
    assert_eq!(http3.end_request(nothing).unwrap().status, 502);
    // Answers that have begun are reset, so that they do not look complete.
    let error = http3.end_request(begun).unwrap_err();
    assert!(error.contains("H3_INTERNAL_ERROR"), "{error}");
    gate.open();
    assert_eq!(http3.end_request(waits).unwrap().text(), "done");
    serves(&mut http3);
}

#[test]
fn a_changed_file_is_seen_by_the_next_request() {
    let (weir, authority) = with_http3()
        .with(|setup| setup.server("threads = 1"))
        .start();
    let mut http3 = connect(&weir, &Http3Client::new(&authority));
    let file = weir.root().join("changes.txt");
    for number in 0..50 {
        let text = format!("version {number:04}");
        std::fs::write(file.with_extension("new"), &text).unwrap();
        std::fs::rename(file.with_extension("new"), &file).unwrap();
        for _ in 0..2 {
            assert_eq!(http3.get("main.test", "/changes.txt").text(), text);
        }
    }
}

/// Nothing of QUIC is sent to a site whose listener has no HTTP/3.
#[test]
fn a_listener_without_it_has_no_udp_socket() {
    let (weir, authority) = Tls::new().start();
    let socket = UdpSocket::bind((weir.address().ip(), 0)).unwrap();
    socket.connect(weir.address()).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    socket.send(&[0xc0; 1200]).unwrap();
    let error = socket.recv(&mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let got = crate::curl(&weir, &authority, "main.test", "/", &["-i"]);
    assert!(
        !got.text().to_lowercase().contains("alt-svc"),
        "{}",
        got.text()
    );
}
