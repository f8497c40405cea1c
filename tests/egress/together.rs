//! Many callers at once: how many connections weir makes for them, and when, and what a retry over another connection
//! sends.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use weir_test::h2::{H2, Turn};
use weir_test::oddity::Oddity;
use weir_test::sidecar::Outward;
use weir_test::weir::request;
use weir_test::{Client, LIMIT, free_address, wait_until};

/// Stands in front of origins: it holds connections until a given number is there. Then it passes each on, or only the
/// first ones.
struct Doorman {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    came: AtomicUsize,
    /// Connections that were not passed on and that their caller has closed.
    given_up: AtomicUsize,
}

impl Doorman {
    /// Passes the connections to these origins in turn. If `all` is set, the last origin gets all the remaining ones.
    fn start(least: usize, origins: &[SocketAddr], all: bool) -> Doorman {
        let address = free_address();
        let listener = TcpListener::bind(address).expect("bind");
        let shared = Arc::new(Shared::default());
        let (server, mut origins) = (shared.clone(), VecDeque::from(origins.to_vec()));
        thread::spawn(move || {
            let mut waiting = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if server.stopping.load(Ordering::SeqCst) {
                    return;
                }
                waiting.push(stream);
                if server.came.fetch_add(1, Ordering::SeqCst) + 1 < least {
                    continue;
                }
                for stream in waiting.drain(..) {
                    let next = match origins.len() {
                        0 => None,
                        1 if all => origins.front().copied(),
                        _ => origins.pop_front(),
                    };
                    match next {
                        Some(origin) => pass_on(stream, origin),
                        None => hold(stream, server.clone()),
                    }
                }
            }
        });
        Doorman { address, shared }
    }

    fn came(&self) -> usize {
        self.shared.came.load(Ordering::SeqCst)
    }

    fn given_up(&self) -> usize {
        self.shared.given_up.load(Ordering::SeqCst)
    }
}

impl Drop for Doorman {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn pass_on(near: TcpStream, origin: SocketAddr) {
    let far = TcpStream::connect(origin).expect("the origin");
    for (mut from, mut to) in [
        (
            near.try_clone().expect("a descriptor"),
            far.try_clone().expect("a descriptor"),
        ),
        (far, near),
    ] {
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

/// Reads, but sends nothing, until the other side closes.
fn hold(mut stream: TcpStream, shared: Arc<Shared>) {
    thread::spawn(move || {
        let mut sink = [0; 4096];
        while stream.read(&mut sink).is_ok_and(|count| count > 0) {}
        shared.given_up.fetch_add(1, Ordering::SeqCst);
    });
}

/// Makes this many calls at once, each over its own connection. Returns the answers.
fn call_at_once(weir: SocketAddr, target: &str, count: usize) -> Vec<String> {
    let clients = (0..count).map(|_| {
        let mut client = Client::connect(weir).patient(LIMIT);
        client.send(request("GET", target, &[], b""));
        client
    });
    let clients: Vec<Client> = clients.collect();
    let answers = clients.into_iter();
    answers
        .map(|mut client| client.response().expect(200).text())
        .collect()
}

/// A client without weir makes a connection at once. weir does so too for each caller: no handshake waits for another.
#[test]
fn callers_of_an_unknown_origin_over_http1_do_not_wait_for_the_first_ones_handshake() {
    const CALLERS: usize = 20;
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let origin = Oddity::tls(&identity, &["http/1.1"], |talk| talk.answer_all("fine"));
    // No handshake continues before all have connected.
    let doorman = Doorman::start(CALLERS, &[origin.address()], true);
    let sidecar = outward.name("api.test", doorman.address).start();
    let target = format!("/api.test:{}/", doorman.address.port());
    assert_eq!(
        call_at_once(sidecar.address, &target, CALLERS),
        ["fine"; CALLERS]
    );
    assert_eq!(doorman.came(), CALLERS);
}

/// weir gives up the connections it began for callers that can share one, as soon as it knows this.
#[test]
fn connections_beyond_the_one_that_all_can_share_are_given_up() {
    const CALLERS: usize = 20;
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let origin = H2::start(&identity, 100, |_| Turn::Answer(200, "fine".to_owned()));
    let doorman = Doorman::start(CALLERS, &[origin.address()], false);
    let sidecar = outward.name("api.test", doorman.address).start();
    let target = format!("/api.test:{}/", doorman.address.port());
    assert_eq!(
        call_at_once(sidecar.address, &target, CALLERS),
        ["fine"; CALLERS]
    );
    wait_until("the others are given up", || {
        doorman.given_up() == CALLERS - 1
    });
    assert_eq!((doorman.came(), origin.connections()), (CALLERS, 1));
}

/// weir remembers an origin's protocol even after it has forgotten the origin itself to make room for others.
#[test]
fn an_origin_that_is_known_to_speak_http2_gets_one_connection_for_many_callers() {
    const CALLERS: usize = 20;
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let origin = H2::start(&identity, 100, |_| Turn::Answer(200, "fine".to_owned()));
    let other = Oddity::plain(|talk| talk.answer_all("other"));
    let sidecar = outward
        .name("api.test", origin.address())
        .plain_name("other.test", other.address())
        .lines("max_hosts = 1")
        .start();
    let target = format!("/api.test:{}/", origin.address().port());
    sidecar.get(&target).expect(200);
    sidecar
        .get(&format!("/other.test:{}/", other.address().port()))
        .expect(200);
    assert_eq!(origin.connections(), 1);
    assert_eq!(
        call_at_once(sidecar.address, &target, CALLERS),
        ["fine"; CALLERS]
    );
    assert_eq!(origin.connections(), 2);
}

/// An origin refuses a call on one HTTP/2 connection. weir repeats it over HTTP/1.1, and translates everything that
/// HTTP/2 expresses differently.
#[test]
fn a_try_over_another_protocol_sends_the_request_as_its_caller_wrote_it() {
    let outward = Outward::new();
    let identity = outward.authority.server(&["DNS:api.test"]);
    let first = H2::start(&identity, 100, |_| Turn::Cut);
    let second = Oddity::tls(&identity, &["http/1.1"], |talk| talk.answer_all("fine"));
    let doorman = Doorman::start(1, &[first.address(), second.address()], true);
    let sidecar = outward
        .name("api.test", doorman.address)
        .usual("retries = 2")
        .start();
    let port = doorman.address.port();
    let answer = sidecar.call(
        "PUT",
        &format!("/api.test:{port}/a/b?c=d"),
        &[("TE", "trailers"), ("X-Own", "kept")],
        b"body",
    );
    assert_eq!(answer.expect(200).text(), "fine");
    let over_h2 = first.asked();
    assert_eq!(over_h2.len(), 1);
    assert_eq!(over_h2[0].request.uri().path(), "/a/b");
    let asked = second.asked().remove(0);
    let lower = asked.to_lowercase();
    assert!(asked.starts_with("PUT /a/b?c=d HTTP/1.1\r\n"), "{asked}");
    for field in [
        format!("host: api.test:{port}\r\n"),
        "te: trailers\r\n".to_owned(),
        "connection: te\r\n".to_owned(),
        "x-own: kept\r\n".to_owned(),
        "content-length: 4\r\n".to_owned(),
    ] {
        assert_eq!(lower.matches(&field).count(), 1, "{field} in {asked}");
    }
    assert!(asked.ends_with("\r\n\r\nbody"), "{asked}");
}

/// Answers from the cache are no load for the origin, so they must not allow more retries, which would double the load.
#[test]
fn answers_that_are_kept_earn_no_retries() {
    const FAILING: usize = 40;
    let origin = Oddity::plain(|talk| {
        while let Some(asked) = talk.request() {
            if !asked.starts_with("GET /kept") {
                return talk.reset();
            }
            talk.send(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=6000\r\nContent-Length: 4\r\n\r\nkept",
            );
        }
    });
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .usual("cache = true\nretries = 1\nretry_budget = 10\nmax_fails = 0")
        .start();
    let path = format!("/api.test:{}", origin.address().port());
    let mut client = sidecar.client();
    for _ in 0..600 {
        client.send(format!("GET {path}/kept HTTP/1.1\r\nHost: weir\r\n\r\n"));
        assert_eq!(client.response().expect(200).text(), "kept");
    }
    for _ in 0..FAILING {
        sidecar.get(&format!("{path}/fails")).expect(502);
    }
    let failed = origin.asked().len() - 1;
    // There are ten retries at first, and one more for ten calls or ten seconds. The cached answers would have added
    // 60.
    assert!((FAILING + 10..FAILING + 30).contains(&failed), "{failed}");
}
