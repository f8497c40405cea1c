//! Streams and files of the network: what every protocol of the gateway uses, and none of them knows.
#![forbid(unsafe_code)]

mod linger;
mod open_file;
mod send_file;
mod socket;

pub use self::{
    linger::{LINGER, linger},
    open_file::OpenFile,
    send_file::FilePart,
    socket::Socket,
};
