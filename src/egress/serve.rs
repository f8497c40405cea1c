//! A caller's connection.
