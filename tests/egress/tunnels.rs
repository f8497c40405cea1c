//! CONNECT: both sides get all that the other one has sent, however it ends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use weir_test::sidecar::{Outward, Sidecar};
use weir_test::tcp::{ends, is_read, is_received, socket};
use weir_test::{Client, LIMIT, free_address, wait_until};

/// A tunnel to an origin of the test: weir, the caller's end, and the origin's end.
fn tunnel() -> (Sidecar, Client, TcpStream) {
    let listener = TcpListener::bind(free_address()).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let sidecar = Outward::new().plain_name("api.test", address).start();
    let mut caller = sidecar.client().patient(LIMIT);
    let host = format!("api.test:{}", address.port());
    caller.send(format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let (origin, _) = listener.accept().expect("a connection");
    assert_eq!(caller.head().expect("a tunnel").status, 200);
    origin.set_read_timeout(Some(LIMIT)).expect("a timeout");
    (sidecar, caller, origin)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

#[test]
fn the_last_bytes_of_an_origin_arrive_though_the_caller_is_still_sending() {
    let (_sidecar, caller, mut origin) = tunnel();
    let answer = pattern(256 << 10);
    origin.write_all(&answer).expect("room for all of it");
    origin.shutdown(Shutdown::Write).expect("an end");
    let (local, remote) = ends(&origin);
    // Later bytes cannot undo this.
    wait_until("weir's kernel has the answer", || {
        is_received(local, remote)
    });
    drop(origin);
    // The origin is gone, so its kernel answers what the caller sends with a reset.
    let send = || {
        let mut stream = caller.stream();
        let _ = stream.write_all(&[b'x'; 1024]);
    };
    wait_until("the origin has refused it", || {
        send();
        socket(remote, local).is_none()
    });
    // weir cannot pass these on. The connection must last until the caller, which has read nothing yet, has the answer.
    let (local, remote) = ends(caller.stream());
    for _ in 0..4 {
        send();
        wait_until("weir has read it", || is_read(remote, local));
    }
    let (received, whole) = caller.rest();
    assert_eq!(received.len(), answer.len());
    assert!(received == answer && whole);
}

#[test]
fn the_last_bytes_of_a_caller_arrive_though_the_origin_is_still_sending() {
    let (_sidecar, caller, mut origin) = tunnel();
    let mut stream = caller.stream().try_clone().expect("a socket");
    let request = pattern(256 << 10);
    stream.write_all(&request).expect("room for all of it");
    stream.shutdown(Shutdown::Write).expect("an end");
    let (local, remote) = ends(&stream);
    wait_until("weir's kernel has the request", || {
        is_received(local, remote)
    });
    drop((stream, caller));
    wait_until("weir knows that the caller is gone", || {
        let _ = origin.write_all(&[b'x'; 1024]);
        socket(remote, local).is_none()
    });
    // weir discards bytes that nobody reads, and goes on with the request. The origin has read nothing of it yet.
    let (local, remote) = ends(&origin);
    for _ in 0..4 {
        let _ = origin.write_all(&[b'x'; 1024]);
        wait_until("weir has read it", || is_read(remote, local));
    }
    let mut received = Vec::new();
    origin.read_to_end(&mut received).expect("no reset");
    assert_eq!(received.len(), request.len());
    assert!(received == request);
}
