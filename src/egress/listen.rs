//! Listening sockets → callers' connections.
