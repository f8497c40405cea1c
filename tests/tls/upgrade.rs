//! A new version of weir takes over under load: over TLS with HTTP/2 and resumed sessions, plain connections that are kept or
//! not, a unix socket, and a FastCGI front.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_test::front::{Front, Params};
use weir_test::http2::TlsClient;
use weir_test::versions::{NEXT, OWN, installed, replace};
use weir_test::{Client, Weir, free_address, scaled, wait_until};

use crate::Tls;
use crate::http2_reloads::{Seen, load_http1, load_http2};

/// Asks for the script again and again, each time over a new connection.
fn ask_anew(address: SocketAddr, seen: &Seen, answered: &AtomicU64) {
    while !seen.is_over.load(Relaxed) {
        let mut client = Client::connect(address);
        client.send("GET /pid.php HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n\r\n");
        assert!(client.response().expect(200).text().starts_with("pid="));
        answered.fetch_add(1, Relaxed);
    }
}

/// The same over one connection, until an answer says that it will be closed.
fn ask_on(address: SocketAddr, seen: &Seen, answered: &AtomicU64) {
    while !seen.is_over.load(Relaxed) {
        let mut client = Client::connect(address);
        while !seen.is_over.load(Relaxed) {
            client.send("GET /pid.php HTTP/1.1\r\nHost: main.test\r\n\r\n");
            let answer = client.response().expect(200);
            assert!(answer.text().starts_with("pid="));
            answered.fetch_add(1, Relaxed);
            if answer.header("connection") == Some("close") {
                break;
            }
        }
    }
}

/// Over a unix socket.
fn ask_unix(path: &Path, seen: &Seen, answered: &AtomicU64) {
    while !seen.is_over.load(Relaxed) {
        let mut stream = UnixStream::connect(path).expect("a connection");
        let request = b"GET /index.html HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("main\n"), "{answer}");
        answered.fetch_add(1, Relaxed);
    }
}

/// As a web server in front.
fn ask_front(path: &Path, params: &Params, seen: &Seen, answered: &AtomicU64) {
    while !seen.is_over.load(Relaxed) {
        let (head, body) = Front::unix(path).ask(params, b"").text();
        assert!(body.starts_with("pid="), "{head} {body}");
        answered.fetch_add(1, Relaxed);
    }
}

/// Ends the load, also when the test fails.
pub struct End<'a>(pub &'a Seen);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

/// Lets a weir of this version take over.
pub fn upgrade(weir: &Weir, version: &str) {
    replace(&weir.path("bin"), version);
    let output = weir.command(&["upgrade"]).output().expect("weir upgrade");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.starts_with(&format!("weir {version} serves (process ")),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn upgrades_under_load_fail_no_request_and_tickets_stay_good() {
    let upgrades = scaled(3, 50);
    let plain = free_address();
    let (weir, authority) = Tls::new()
        .with_php()
        .with(|setup| {
            let folder = setup.folder().display().to_string();
            let listeners = format!(
                "[listen.plain]\naddress = \"{plain}\"\n\
                 [listen.unix]\naddress = \"unix:{folder}/web.sock\"\nmode = \"0666\"\n\
                 [listen.front]\nprotocol = \"fastcgi\"\naddress = \"unix:{folder}/front.sock\"\nmode = \"0666\"\npool = \"app\""
            );
            let setup = setup.file("pid.php", "<?php echo 'pid=', getmypid();");
            installed(setup.admin().more(&listeners))
        })
        .start();
    let client = TlsClient::new(&authority, false);
    let seen = Seen::default();
    let counts: [AtomicU64; 4] = Default::default();
    let params = Params::get(&weir.root(), "/pid.php");
    let (unix, front) = (weir.path("web.sock"), weir.path("front.sock"));
    std::thread::scope(|scope| {
        let end = End(&seen);
        scope.spawn(|| load_http2(&weir, &client, &seen));
        scope.spawn(|| load_http1(&weir, &client, &seen, 50));
        scope.spawn(|| ask_anew(plain, &seen, &counts[0]));
        scope.spawn(|| ask_on(plain, &seen, &counts[1]));
        scope.spawn(|| ask_unix(&unix, &seen, &counts[2]));
        scope.spawn(|| ask_front(&front, &params, &seen, &counts[3]));
        let now = || {
            let all = std::iter::once(&seen.answered).chain(&counts);
            all.map(|count| count.load(Relaxed)).collect::<Vec<u64>>()
        };
        let more = |before: &[u64]| now().iter().zip(before).all(|(now, before)| now > before);
        for round in 0..upgrades {
            let version = [NEXT, OWN][round % 2];
            upgrade(&weir, version);
            assert_eq!(weir.status()["version"], version);
            let before = now();
            wait_until("more answers to each of them", || more(&before));
        }
        drop(end);
    });
    let [answered, failed, full, resumed] =
        [&seen.answered, &seen.failed, &seen.full, &seen.resumed].map(|count| count.load(Relaxed));
    assert_eq!(failed, 0, "of {answered}");
    // The first handshakes of the two are full.
    assert!(
        full <= 2 && resumed >= upgrades as u64,
        "{full} full, {resumed} resumed"
    );
}
