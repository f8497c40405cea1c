//! New connections: name, address, TCP, TLS.
