//! weir: the front door of FastCGI applications.
#![forbid(unsafe_code)]
#![allow(dead_code)]

mod control;
mod error_log;
mod gateway;
mod log_sink;
mod log_text;

fn main() {}
