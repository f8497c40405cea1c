//! The application's outgoing calls: weir between real clients and origins.

mod clients;
mod dns;
mod origins;
mod sockets;
mod tls;
