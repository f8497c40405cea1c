//! Connections of clients: accepted, counted, served, idle, closed; and the reactors that they live on.

pub(crate) mod accept;
pub(crate) mod client;
pub(crate) mod handover;
pub(crate) mod idle;
pub(crate) mod limits;
pub(crate) mod proxy_protocol;
pub(crate) mod quic;
pub(crate) mod reactors;
pub(crate) mod serve;
pub(crate) mod silent;
pub(crate) mod sweep;
pub(crate) mod tls_settings;
