//! The data plane.

pub mod access_log;
pub mod template;
pub mod trace;
