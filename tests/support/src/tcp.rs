//! The kernel's view of TCP connections of this machine.

use std::fs;
use std::net::{SocketAddr, TcpStream};

/// The socket of this machine between two addresses: its state and its unread bytes (proc_pid_net(5)).
pub fn socket(local: SocketAddr, remote: SocketAddr) -> Option<(String, usize)> {
    let table = fs::read_to_string("/proc/net/tcp").expect("the sockets");
    let named = |address: SocketAddr| {
        let SocketAddr::V4(v4) = address else {
            panic!("{address} is no IPv4 address");
        };
        let ip = u32::from_ne_bytes(v4.ip().octets());
        format!("{ip:08X}:{:04X}", v4.port())
    };
    let (local, remote) = (named(local), named(remote));
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, own, other, state, queues, ..] = fields.as_slice() else {
            return None;
        };
        let (_, unread) = queues.split_once(':')?;
        let unread = usize::from_str_radix(unread, 16).expect("a number");
        (*own == local && *other == remote).then(|| ((*state).to_owned(), unread))
    })
}

/// Whether the other side's kernel has received all that was sent from this socket, and its end: the state FIN_WAIT2.
pub fn is_received(local: SocketAddr, remote: SocketAddr) -> bool {
    socket(local, remote).is_some_and(|(state, _)| state == "05")
}

/// Whether this socket has no unread bytes, or is gone.
pub fn is_read(local: SocketAddr, remote: SocketAddr) -> bool {
    socket(local, remote).is_none_or(|(_, unread)| unread == 0)
}

/// The addresses of a connection: its own, and the peer's.
pub fn ends(stream: &TcpStream) -> (SocketAddr, SocketAddr) {
    let local = stream.local_addr().expect("an address");
    (local, stream.peer_addr().expect("an address"))
}
