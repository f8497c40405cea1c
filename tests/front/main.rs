//! The real binary as a web server: HTTP, connections, files and routes.

mod bad_input;
mod bandwidth;
mod bodies;
mod browser;
mod clients;
mod compression;
mod connections;
mod files;
mod hints;
mod http;
mod http2;
mod http2_attacks;
mod http2_limits;
mod http2_memory;
mod http2_shared;
mod idle;
mod like_nginx;
mod passwords;
mod paths;
mod reactors;
mod routing;
mod tags;
