//! WebSockets through weir: what goes through, what does not, and what a reload does to them.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::process::Signal;
use weir_test::{
    LIMIT, Setup, Weir,
    process::{anonymous, expect_growth},
    scaled, wait_until,
};

use super::{Received, Server, pool, start};

const ASKED: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

const SWITCHES: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// "Service restart", as a server says it, and as a client would.
const TO_CLIENT: &[u8] = &[0x88, 2, 0x03, 0xf4];
const TO_SERVER: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xf4];

/// A text frame of a client.
fn masked(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend(text.as_bytes());
    frame
}

/// A server that switches, and then says what it gets. `heard`: all that it got after the request.
fn echo(heard: &Arc<Mutex<Vec<u8>>>) -> Server {
    let heard = heard.clone();
    Server::start(move |request: &Received, stream: &mut TcpStream| {
        if request.all("upgrade").is_empty() {
            return stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                .is_ok();
        }
        stream.write_all(SWITCHES).expect("an answer");
        let mut bytes = [0; 65536];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            heard.lock().expect("the bytes").extend(&bytes[..count]);
            if stream.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        false
    })
}

/// A client that has asked for a WebSocket, and the head of the answer.
fn upgraded(address: SocketAddr) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
    stream.write_all(ASKED.as_bytes()).expect("a request");
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    (stream, String::from_utf8(head).expect("text"))
}

fn expect_echo(stream: &mut TcpStream, frame: &[u8]) {
    stream.write_all(frame).expect("sent");
    let mut back = vec![0; frame.len()];
    stream.read_exact(&mut back).expect("an echo");
    assert_eq!(back, frame);
}

/// Reloads weir, for the time of this number.
fn reload(weir: &Weir, number: usize) {
    weir.signal(Signal::HUP);
    wait_until("it has reloaded", || {
        weir.stderr().matches("reloaded").count() >= number
    });
}

fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    rest
}

#[test]
fn bytes_go_both_ways_until_one_side_ends() {
    let heard = Arc::default();
    let server = echo(&heard);
    let weir = start(&[&server], "queue.maxconn = 1");
    let (mut client, head) = upgraded(weir.address());
    let lower = head.to_ascii_lowercase();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for field in [
        "connection: upgrade\r\n",
        "upgrade: websocket\r\n",
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n",
    ] {
        assert!(lower.contains(field), "{head}");
    }
    let got = server.last();
    assert_eq!(got.all("connection"), ["Upgrade"]);
    assert_eq!(got.all("upgrade"), ["websocket"]);
    assert_eq!(got.all("sec-websocket-key"), ["dGhlIHNhbXBsZSBub25jZQ=="]);
    expect_echo(&mut client, &masked("hello"));
    // It takes no place of the pool.
    assert_eq!(weir.get("/other").expect(200).text(), "ok");
    // More than any buffer on the way.
    let mut writer = client.try_clone().expect("a descriptor");
    let long: Vec<u8> = (0..8_000_000).map(|index| (index / 5) as u8).collect();
    let sent = long.clone();
    let sending = std::thread::spawn(move || writer.write_all(&sent).expect("sent"));
    let mut back = vec![0; long.len()];
    client.read_exact(&mut back).expect("an echo");
    sending.join().expect("all is sent");
    assert!(back == long);
    client.shutdown(std::net::Shutdown::Write).expect("an end");
    assert!(rest(&mut client).is_empty());
    assert_eq!(weir.logged("/chat")["status"], 101);
}

/// The first frame may come together with the head of the answer.
#[test]
fn what_the_server_says_at_once_arrives() {
    let server = Server::start(|_, stream| {
        stream
            .write_all(&[SWITCHES, b"\x81\x02hi"].concat())
            .expect("an answer");
        rest(stream);
        false
    });
    let weir = start(&[&server], "");
    let (mut client, _) = upgraded(weir.address());
    let mut frame = [0; 4];
    client.read_exact(&mut frame).expect("a frame");
    assert_eq!(&frame, b"\x81\x02hi");
}

/// Nobody but a WebSocket leaves HTTP: in HTTP/2 without TLS, requests could be hidden.
#[test]
fn other_upgrades_are_not_passed_on() {
    let heard = Arc::default();
    let server = echo(&heard);
    let weir = start(&[&server], "");
    let h2c = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
    ];
    weir.request("GET", "/", &h2c, b"").expect(200);
    let socket = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
    weir.request("POST", "/", &socket, b"x").expect(200);
    weir.request("GET", "/", &[("Upgrade", "websocket")], b"")
        .expect(200);
    for got in server.received() {
        assert!(
            got.all("upgrade").is_empty() && got.all("connection").is_empty(),
            "{got:?}"
        );
    }
}

/// A cache has nothing to do with them: each goes to the server, and none waits for another one.
#[test]
fn a_cache_lets_them_pass() {
    let heard = Arc::default();
    let server = echo(&heard);
    let setup = Setup::new().site("cache = \"headers\"");
    let weir = setup.pool(&pool(&[&server], "")).start();
    let mut all = [(); 3].map(|()| upgraded(weir.address()).0);
    for client in &mut all {
        expect_echo(client, &masked("hello"));
    }
}

/// A server that refuses gives an ordinary answer, and its connection is kept. That of the client ends: what follows might be no
/// HTTP.
#[test]
fn a_refused_upgrade_is_an_answer() {
    let server = Server::of("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    let weir = start(&[&server], "");
    for _ in 0..2 {
        let mut client = weir.client();
        client.send(ASKED);
        assert_eq!(client.response().expect(403).text(), "no");
        client.expect_closed();
    }
    assert!(server.received().iter().all(|got| got.connection == 1));
}

/// A reload leaves WebSockets alone until `shutdown_timeout`. Then both sides are told, if no frame is half sent.
#[test]
fn a_reload_keeps_them_until_the_time_is_over_and_then_both_sides_are_told() {
    let heard = Arc::default();
    let server = echo(&heard);
    let setup = Setup::new().admin().server("shutdown_timeout = \"2s\"");
    let weir = setup.pool(&pool(&[&server], "")).start();
    let (mut client, _) = upgraded(weir.address());
    let (mut halfway, _) = upgraded(weir.address());
    expect_echo(&mut client, &masked("before"));
    reload(&weir, 1);
    expect_echo(&mut client, &masked("after"));
    heard.lock().expect("the bytes").clear();
    // Half a frame in both directions.
    let frame = masked("half");
    expect_echo(&mut halfway, &frame[..7]);
    assert_eq!(rest(&mut client), TO_CLIENT);
    assert_eq!(rest(&mut halfway), b"");
    wait_until("the server is told", || {
        let heard = heard.lock().expect("the bytes");
        *heard == [&frame[..7], TO_SERVER].concat()
    });
    // New ones come to the new gateway.
    let (mut client, _) = upgraded(weir.address());
    expect_echo(&mut client, &masked("new"));
}

/// Many silent WebSockets cost little, and are still there after reloads.
#[test]
fn silent_ones_cost_little() {
    let heard = Arc::default();
    let server = echo(&heard);
    let setup = Setup::new().admin().server("shutdown_timeout = \"60s\"");
    let weir = setup.pool(&pool(&[&server], "")).start();
    let count = scaled(300, 5_000);
    let open = |weir: &Weir, count: u64| -> Vec<TcpStream> {
        (0..count)
            .map(|_| {
                let (mut client, _) = upgraded(weir.address());
                expect_echo(&mut client, &masked("hello"));
                client
            })
            .collect()
    };
    // What the first ones need, all need.
    let mut clients = open(&weir, 50);
    let pid = weir.gateway().pid;
    let before = anonymous(pid);
    clients.extend(open(&weir, count));
    expect_growth(pid, before, count, 8 << 10, "a silent WebSocket");
    let reloads = scaled(2, 20);
    (1..=reloads).for_each(|number| reload(&weir, number));
    for client in &mut clients {
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a time limit");
        expect_echo(client, &masked("still there"));
    }
}
