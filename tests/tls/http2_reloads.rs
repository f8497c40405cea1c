//! Reloads while clients of HTTP/1 and HTTP/2 send requests without a pause: no request fails, and no client has to shake
//! hands in full again. With `WEIR_CONFORMANCE` in the environment (`make conformance`) there are 200.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::process::Signal;
use weir_test::http2::{DATA, END_STREAM, GOAWAY, HEADERS, REFUSED_STREAM, RST_STREAM, TlsClient};
use weir_test::{Weir, scaled, wait_until};

use crate::{Tls, http2::fields};

/// What all clients have seen.
#[derive(Default)]
pub struct Seen {
    pub answered: AtomicU64,
    pub failed: AtomicU64,
    pub full: AtomicU64,
    pub resumed: AtomicU64,
    pub is_over: AtomicBool,
}

impl Seen {
    fn handshake(&self, is_resumed: bool) {
        let kind = match is_resumed {
            true => &self.resumed,
            false => &self.full,
        };
        kind.fetch_add(1, Relaxed);
    }
}

/// Sends requests over one connection after the other, eight at once, until it is over. Those that weir has not begun are
/// sent again over the next connection, as RFC 9113 allows (§6.8, §8.7).
pub fn load_http2(weir: &Weir, client: &TlsClient, seen: &Seen) {
    while !seen.is_over.load(Relaxed) {
        let socket = TcpStream::connect(weir.address()).expect("a connection");
        let mut http2 = client.http2(socket, "main.test", &[]);
        seen.handshake(http2.is_resumed());
        http2.allow(0, 1 << 30);
        let mut open = BTreeSet::new();
        let mut next = 1;
        let mut is_leaving = false;
        loop {
            while !is_leaving && open.len() < 8 && !seen.is_over.load(Relaxed) {
                http2.head(next, &fields("main.test", "/"), true);
                open.insert(next);
                next += 2;
            }
            if open.is_empty() {
                break;
            }
            let Some(frame) = http2.receive() else {
                seen.failed.fetch_add(open.len() as u64, Relaxed);
                break;
            };
            let is_last = frame.flags & END_STREAM != 0;
            match frame.kind {
                HEADERS | DATA if is_last && open.remove(&frame.stream) => {
                    let is_right = frame.kind == DATA && frame.payload == b"main\n";
                    let count = match is_right {
                        true => &seen.answered,
                        false => &seen.failed,
                    };
                    count.fetch_add(1, Relaxed);
                }
                RST_STREAM if open.remove(&frame.stream) => {
                    let is_refused = frame.payload == REFUSED_STREAM.to_be_bytes();
                    seen.failed.fetch_add(u64::from(!is_refused), Relaxed);
                }
                GOAWAY => {
                    let last: [u8; 4] = frame.payload[..4].try_into().expect("four bytes");
                    open.retain(|stream| *stream <= u32::from_be_bytes(last));
                    seen.failed
                        .fetch_add(u64::from(frame.error().is_some()), Relaxed);
                    is_leaving = true;
                }
                _ => {}
            }
        }
    }
}

/// Sends requests over one connection after the other, until weir says that it is the last one or there were enough.
pub fn load_http1(weir: &Weir, client: &TlsClient, seen: &Seen, most: u32) {
    while !seen.is_over.load(Relaxed) {
        let socket = TcpStream::connect(weir.address()).expect("a connection");
        let mut stream = BufReader::new(client.http1(socket, "main.test"));
        seen.handshake(TlsClient::is_resumed(stream.get_ref()));
        for _ in 0..most {
            match ask(&mut stream) {
                Some(is_last) => {
                    seen.answered.fetch_add(1, Relaxed);
                    if is_last || seen.is_over.load(Relaxed) {
                        break;
                    }
                }
                None => {
                    seen.failed.fetch_add(1, Relaxed);
                    break;
                }
            }
        }
    }
}

/// Sends a request and reads its answer. Returns whether the connection takes no more; `None`: that was not the answer.
fn ask<S: Read + Write>(stream: &mut BufReader<S>) -> Option<bool> {
    let request = b"GET / HTTP/1.1\r\nHost: main.test\r\n\r\n";
    stream.get_mut().write_all(request).ok()?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut body = [0; 5];
    stream.read_exact(&mut body).ok()?;
    let is_right = head.starts_with("HTTP/1.1 200 ") && body == *b"main\n";
    is_right.then(|| {
        head.to_ascii_lowercase()
            .contains("\r\nconnection: close\r\n")
    })
}

#[test]
fn reloads_under_load_fail_no_request_and_tickets_stay_good() {
    let reloads = scaled(10, 200);
    let (weir, authority) = Tls::new().start();
    let client = TlsClient::new(&authority, false);
    let seen = Seen::default();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| load_http2(&weir, &client, &seen));
        }
        for most in [50, u32::MAX] {
            let (weir, client, seen) = (&weir, &client, &seen);
            scope.spawn(move || load_http1(weir, client, seen, most));
        }
        for _ in 0..reloads {
            let (gateway, answered) = (weir.gateway(), seen.answered.load(Relaxed));
            weir.signal(Signal::HUP);
            wait_until("another gateway", || !gateway.runs());
            wait_until("more answers", || {
                seen.answered.load(Relaxed) > answered + 100
            });
        }
        seen.is_over.store(true, Relaxed);
    });
    let [answered, failed, full, resumed] =
        [&seen.answered, &seen.failed, &seen.full, &seen.resumed].map(|count| count.load(Relaxed));
    assert_eq!(failed, 0, "of {answered}");
    // The first handshakes of the four may be full.
    assert!(
        full <= 4 && resumed >= reloads * 4,
        "{full} full, {resumed} resumed"
    );
}
