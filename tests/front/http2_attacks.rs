//! Attacks on HTTP/2 while others use weir: what they send for as long as the attack lasts, over one connection after the other.
//! With `WEIR_CONFORMANCE` in the environment (`make conformance`) each lasts ten seconds and the times of others are compared.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use weir_test::http2::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, INITIAL_WINDOW, PING,
    PREFACE, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, settings, usual,
};
use weir_test::process::resident;
use weir_test::{Responder, Setup, Waits, Weir, scaled, wait_until};

/// What a client sends that means no good.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// What the log says of its end.
    pub(crate) limit: &'static str,
    /// What comes first on each connection.
    pub(crate) begin: Vec<u8>,
    /// What comes then, for the numbers from 0 on.
    pub(crate) next: fn(u32) -> Vec<u8>,
}

fn head(stream: u32, path: &str, flags: u8) -> Vec<u8> {
    frame(HEADERS, flags, stream, &block(&usual("GET", path)))
}

/// The head of an upload of five bytes, and what makes weir reset its stream.
fn upload_and(number: u32, cause: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let stream = 1 + 2 * number;
    let fields = [&usual("POST", "/run.php")[..], &[("content-length", "5")]].concat();
    let head = frame(HEADERS, END_HEADERS, stream, &block(&fields));
    [head, cause(stream)].concat()
}

/// Floods of which each connection ends by itself.
pub(crate) fn attacks() -> Vec<Attack> {
    let upload = frame(HEADERS, END_HEADERS, 1, &block(&usual("POST", "/run.php")));
    let endless = frame(HEADERS, END_STREAM, 1, &block(&usual("GET", "/text.txt")));
    let (small, resets) = ("http2_max_small_frames", "http2_max_resets");
    let attack = |name, limit, begin: &[u8], next| Attack {
        name,
        limit,
        begin: begin.to_vec(),
        next,
    };
    vec![
        attack("rapid reset", resets, &[], |number| {
            let stream = 1 + 2 * number;
            let reset = frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
            [head(stream, "/run.php", END_HEADERS | END_STREAM), reset].concat()
        }),
        // Ways to make weir reset its streams ("MadeYouReset").
        attack("windows that overflow", resets, &[], |number| {
            let most = (u32::MAX >> 1).to_be_bytes();
            upload_and(number, |stream| frame(WINDOW_UPDATE, 0, stream, &most))
        }),
        attack("bodies longer than they say", resets, &[], |number| {
            upload_and(number, |stream| frame(DATA, 0, stream, &[b'a'; 100]))
        }),
        attack("bodies shorter than they say", resets, &[], |number| {
            upload_and(number, |stream| frame(DATA, END_STREAM, stream, b"abc"))
        }),
        attack("streams that depend on themselves", resets, &[], |number| {
            upload_and(number, |stream| {
                let itself = [&stream.to_be_bytes()[..], &[0]].concat();
                frame(PRIORITY, 0, stream, &itself)
            })
        }),
        attack("pings", "http2_max_pings", &[], |_| {
            frame(PING, 0, 0, b"12345678")
        }),
        attack("settings", "http2_max_settings", &[], |_| {
            frame(SETTINGS, 0, 0, &settings(&[(INITIAL_WINDOW, 70_000)]))
        }),
        attack("empty data", small, &upload, |_| frame(DATA, 0, 1, b"")),
        attack("data of one byte", small, &upload, |_| {
            frame(DATA, 0, 1, b"a")
        }),
        attack("priorities", small, &[], |number| {
            frame(PRIORITY, 0, 1 + 2 * number, &[0; 5])
        }),
        attack("unknown frames", small, &[], |_| frame(77, 0, 0, b"")),
        attack("windows in small steps", small, &[], |_| {
            frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())
        }),
        attack("empty parts of a head", "max_head", &endless, |_| {
            frame(CONTINUATION, 0, 1, &[])
        }),
        attack(
            "parts of a head without an end",
            "max_head",
            &endless,
            |_| {
                let fields = block(&[("x-filler", &"x".repeat(1000))]);
                frame(CONTINUATION, 0, 1, &fields)
            },
        ),
    ]
}

/// How long each attack lasts.
fn lasts() -> Duration {
    Duration::from_millis(scaled(300, 10_000))
}

/// Sends an attack to `address` until it is over, over one connection after the other. Returns how many there were.
fn send(attack: &Attack, address: SocketAddr, is_over: &AtomicBool) -> u32 {
    let mut connections = 0;
    while !is_over.load(Relaxed) {
        let Ok(mut socket) = TcpStream::connect(address) else {
            continue;
        };
        connections += 1;
        let timeout = Some(Duration::from_secs(1));
        socket.set_write_timeout(timeout).expect("a timeout");
        socket.set_read_timeout(timeout).expect("a timeout");
        let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &attack.begin].concat();
        let mut sent = socket.write_all(&begin);
        for first in (0..5000).step_by(50) {
            if sent.is_err() || is_over.load(Relaxed) {
                break;
            }
            let bytes: Vec<u8> = (first..first + 50).flat_map(attack.next).collect();
            sent = socket.write_all(&bytes);
        }
        // Until weir closes the connection, or sends nothing more.
        let _ = std::io::copy(&mut socket, &mut std::io::sink());
    }
    connections
}

/// Takes what is sent to it, and answers nothing: an attack on it takes as much of the machine's time from others as
/// the attacker itself needs.
fn sink() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut bytes = vec![0; 16 << 10];
                let mut rest: usize = 100_000;
                while let Ok(count @ 1..) = socket.read(&mut bytes) {
                    rest = rest.saturating_sub(count);
                    if rest == 0 {
                        break;
                    }
                }
            });
        }
    });
    address
}

/// Requests of another client while `address` is attacked: the time that 99 of 100 needed at most.
fn others(weir: &Weir, attack: &Attack, address: SocketAddr) -> Duration {
    let is_over = AtomicBool::new(false);
    let mut times = Vec::new();
    thread::scope(|scope| {
        let attacker = scope.spawn(|| send(attack, address, &is_over));
        let mut client = weir.client();
        let until = Instant::now() + lasts();
        while Instant::now() < until || times.len() < 20 {
            let since = Instant::now();
            client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
            client.response().expect(200);
            times.push(since.elapsed());
            thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Relaxed);
        assert!(
            attacker.join().expect("the attacker") > 0,
            "{}",
            attack.name
        );
    });
    times.sort();
    times[times.len() * 99 / 100]
}

#[test]
fn attacks_slow_nobody_take_little_memory_and_run_no_script() {
    let setup = Setup::new()
        .file("text.txt", "a text\n")
        .file("large.bin", vec![b'x'; 1_000_000])
        .file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("done"));
    let pool = responder.pool(2);
    let weir = setup.pool(&pool).listen("http2 = \"clear\"").start();
    let memory = || resident(weir.gateway().pid);
    let sink = sink();
    for _ in 0..50 {
        weir.get("/text.txt").expect(200);
    }
    for attack in &attacks() {
        let before = memory();
        let highest = AtomicU64::new(0);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    highest.fetch_max(memory(), Relaxed);
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let waits = Waits::measure(sink, |sink| {
                others(&weir, attack, sink.unwrap_or(weir.address()))
            });
            is_over.store(true, Relaxed);
            eprintln!("{}: {waits:?}", attack.name);
            assert!(waits.are_harmless(), "{}", attack.name);
        });
        let more = highest.load(Relaxed).saturating_sub(before);
        assert!(more <= 32 << 20, "{}: {more} bytes more", attack.name);
    }
    assert_eq!(responder.uris().len(), 0);
    weir.get("/run.php").expect(200);
}

#[test]
fn windows_of_nothing_take_little_memory_and_slow_nobody() {
    let setup = Setup::new()
        .file("text.txt", "a text\n")
        .file("large.bin", vec![b'x'; 1_000_000]);
    let weir = setup.listen("http2 = \"clear\"").start();
    let memory = || resident(weir.gateway().pid);
    let mut others = weir.client();
    let mut ask = || {
        others.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        others.response().expect(200);
    };
    (0..20).for_each(|_| ask());
    let before = memory();
    let mut stalled: Vec<Http2> = (0..20)
        .map(|_| {
            let mut client = Http2::connect(weir.address(), &[(INITIAL_WINDOW, 0)]);
            for stream in 0..100 {
                client.get(1 + 2 * stream, "/large.bin", &[]);
            }
            client
        })
        .collect();
    for client in &mut stalled {
        for _ in 0..100 {
            client.expect(HEADERS);
        }
    }
    (0..20).for_each(|_| ask());
    let used = memory().saturating_sub(before);
    assert!(used <= 32 << 20, "2,000 streams use {used} bytes");
    drop(stalled);
    wait_until("their connections are closed", || {
        let sockets = std::fs::read_dir(format!("/proc/{}/fd", weir.gateway().pid));
        sockets.expect("fd").count() < 60
    });
    (0..20).for_each(|_| ask());
}
