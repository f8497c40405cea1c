//! The application's outgoing calls: weir between real clients and origins.

mod cache;
mod clients;
mod dns;
mod origins;
mod see;
mod ssrf;
mod tls;
mod trouble;
