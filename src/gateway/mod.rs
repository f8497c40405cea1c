//! The data plane: what happens to a request between the client and a worker.
#![allow(dead_code)]

pub mod body;
pub mod files;
pub mod route;
