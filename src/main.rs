//! weir: the front door of FastCGI applications.
#![forbid(unsafe_code)]

mod gateway;

fn main() {}
