//! The application's outgoing calls: weir between real clients and origins.

mod cache;
mod clients;
mod origins;
mod ssrf;
