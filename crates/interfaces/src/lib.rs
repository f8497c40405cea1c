//! Traits and types that connect gateway, egress and the admin interface: they depend on these, and
//! not on each other. `main` connects them.
#![forbid(unsafe_code)]

pub mod admin;
pub mod egress;
pub mod secret;
pub mod self_call;
