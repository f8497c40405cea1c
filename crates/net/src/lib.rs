//! Sockets, listening, and sending files: used by all protocols of the gateway.
#![forbid(unsafe_code)]

mod drain;
mod linger;
mod listening;
mod open_file;
pub mod quic;
mod send_file;
mod socket;
mod spare;
mod thread;
mod tls_socket;

pub use self::{
    drain::Drain,
    linger::{LAST_WRITE, close, linger},
    listening::{ACCEPT_PAUSE, Accepted, Acceptor, Listening, accepting},
    open_file::{CloseGuard, OpenFile, Opened},
    send_file::FilePart,
    socket::Socket,
    spare::Spare,
    thread::start_thread,
    tls_socket::{Failed, TlsSocket, say_end},
};
