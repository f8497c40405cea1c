//! What the rooms of the gateway's process know of each other: gateway, egress and the operator's window do not depend on
//! each other, but on the traits and types here. `main` connects them.
#![forbid(unsafe_code)]

pub mod own_call;
pub mod sidecar;
pub mod window;
