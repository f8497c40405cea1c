//! Attacks on HTTP/3 while others use weir: `tests/tls/aioquic/attacks.py` has what they send. With `WEIR_CONFORMANCE` in the
//! environment (`make conformance`) each lasts ten seconds and the times of others are compared.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_test::authority::Authority;
use weir_test::http2::{TlsClient, TlsStream};
use weir_test::process::{resident, wait};
use weir_test::{LIMIT, Waits, Weir, scaled, wait_until};

use crate::http3_checks::{aioquic, site};

/// How long each attack lasts.
fn lasts() -> Duration {
    Duration::from_millis(scaled(500, 10_000))
}

/// A running attack.
struct Attack {
    name: String,
    child: Child,
    from: BufReader<std::process::ChildStdout>,
}

impl Attack {
    /// Begins one. `aim`: where its datagrams go, if not to weir.
    fn start(name: &str, weir: &Weir, authority: &Authority, aim: Option<SocketAddr>) -> Attack {
        let mut command = aioquic("attacks.py", weir, authority);
        command.args([name, &lasts().as_secs_f64().to_string()]);
        command.args(aim.map(|aim| aim.to_string()));
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python; setup/python.sh target installs it");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut attack = Attack {
            name: name.to_owned(),
            child,
            from,
        };
        let mut line = String::new();
        attack.from.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n", "{name}");
        attack
    }

    /// Waits for its end, and returns what it did.
    fn end(mut self) -> Value {
        let mut said = String::new();
        self.from.read_to_string(&mut said).expect("its last line");
        let status = wait(&mut self.child, LIMIT);
        assert!(
            status.is_some_and(|status| status.success()),
            "{}",
            self.name
        );
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{}: {error}: {said}", self.name))
    }

    fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_some()
    }
}

/// Takes what is sent to it, and answers nothing: an attack on it takes as much of the machine's time from others as the
/// attacker itself needs.
fn sink() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address");
    thread::spawn(move || {
        let mut bytes = vec![0; 2048];
        while socket.recv(&mut bytes).is_ok() {}
    });
    address
}

/// Sends a request on a connection of HTTP/1 over TLS, and reads the answer.
fn ask(client: &mut TlsStream) {
    let request = b"GET /text.txt HTTP/1.1\r\nHost: main.test\r\n\r\n";
    client.write_all(request).expect("a request");
    let mut answer = Vec::new();
    let mut bytes = [0; 4096];
    while !answer.ends_with(b"a text\n") {
        let count = client.read(&mut bytes).expect("an answer");
        assert!(count > 0, "weir has closed it");
        answer.extend_from_slice(&bytes[..count]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "));
}

/// Requests of another client during an attack: the time that 99 of 100 needed at most, and what the attack did.
fn others(client: &mut TlsStream, mut attack: Attack) -> (Duration, Value) {
    let mut times = Vec::new();
    while !attack.is_over() || times.len() < 20 {
        let since = Instant::now();
        ask(client);
        times.push(since.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
    times.sort();
    (times[times.len() * 99 / 100], attack.end())
}

/// Ends a thread that looks at this, even if the test fails meanwhile.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The most memory that weir's gateway has while `run` runs, beyond what it had before.
fn growth<T>(weir: &Weir, run: impl FnOnce() -> T) -> (u64, T) {
    let pid = weir.gateway().pid;
    let before = resident(pid);
    let highest = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                highest.fetch_max(resident(pid), Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let _end = Over(&is_over);
        run()
    });
    (highest.load(Relaxed).saturating_sub(before), result)
}

/// Expects that an attack slows others to twice the time at most, and takes little memory.
fn expect_harmless(name: &str, weir: &Weir, authority: &Authority, sink: SocketAddr) {
    let socket = TcpStream::connect(weir.address()).expect("a connection");
    let mut client = TlsClient::new(authority, false).http1(socket, "main.test");
    (0..20).for_each(|_| ask(&mut client));
    let (more, did) = growth(weir, || {
        let mut did = Value::Null;
        let waits = Waits::measure(sink, |sink| {
            let attack = Attack::start(name, weir, authority, sink);
            let (time, what) = others(&mut client, attack);
            did = what;
            time
        });
        eprintln!("{name}: {waits:?}; {did}");
        assert!(waits.are_harmless(), "{name}");
        did
    });
    eprintln!("{name}: {more} bytes more");
    assert!(more <= 32 << 20, "{name}: {more} bytes more");
    let count = |key: &str| did[key].as_u64().expect("a number");
    assert!(count("sent") > 0, "{name}: {did}");
    // RFC 9000 §8.1: while a handshake is not finished, an address gets at most three times the bytes that it has sent.
    if name == "handshakes" {
        assert!(count("received") > 0, "{name}: {did}");
        assert!(count("received") <= 3 * count("sent"), "{name}: {did}");
    }
}

#[test]
fn attacks_slow_nobody_take_little_memory_and_run_no_script() {
    let (responder, weir, authority, _) = site(2, "");
    let names = aioquic("attacks.py", &weir, &authority)
        .args(["names", "0"])
        .output()
        .expect("Python; setup/python.sh target installs it");
    let names = String::from_utf8(names.stdout).expect("names");
    assert!(names.split_whitespace().count() > 15, "{names}");
    let sink = sink();
    for name in names.split_whitespace() {
        expect_harmless(name, &weir, &authority, sink);
    }
    assert_eq!(responder.uris(), [""; 0]);
    // weir serves other clients as before.
    let output = aioquic("checks.py", &weir, &authority)
        .arg("alive")
        .output();
    let output = output.expect("Python; setup/python.sh target installs it");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

/// Two thousand requests on twenty connections that do not go on.
#[test]
fn requests_that_stand_still_take_little_memory_and_slow_nobody() {
    let (responder, weir, authority, _) = site(
        2,
        "header_timeout = \"2s\"\nbody_timeout = \"2s\"\nsend_timeout = \"2s\"",
    );
    let sink = sink();
    let sockets = || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", weir.gateway().pid));
        open.expect("fd").count()
    };
    let before = sockets();
    for name in ["slow_heads", "slow_bodies", "windows_of_nothing"] {
        expect_harmless(name, &weir, &authority, sink);
        wait_until("nothing is left of it", || sockets() <= before + 8);
    }
    assert_eq!(responder.uris(), [""; 0]);
}
