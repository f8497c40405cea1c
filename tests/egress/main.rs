//! The application's outgoing calls: weir between real clients and origins.

mod cache;
mod clients;
mod credentials;
mod dns;
mod hostile;
mod limits;
mod messages;
mod origins;
mod own_socket;
mod see;
mod sockets;
mod ssrf;
mod tls;
mod together;
mod trouble;
