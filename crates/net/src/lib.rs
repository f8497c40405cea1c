//! Streams and files of the network: what every protocol of the gateway uses, and none of them knows.
#![forbid(unsafe_code)]

mod drain;
mod linger;
mod listening;
mod open_file;
mod send_file;
mod socket;

pub use self::{
    drain::Drain,
    linger::{LINGER, linger},
    listening::{ACCEPT_PAUSE, Accepted, Acceptor, Listening},
    open_file::OpenFile,
    send_file::FilePart,
    socket::Socket,
};
