//! The application's outgoing calls: weir between real clients and origins.

mod clients;
mod credentials;
mod origins;
