//! The application's outgoing calls: weir between real clients and origins.

mod dns;
mod origins;
mod tls;
