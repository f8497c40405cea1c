//! TLS towards origins.
