//! The real binary against real programs. There is one module for each subject. `support` has what they share.
//!
//! `cargo test --test integration http::` runs one subject. The programs come from Debian's packages:
//! `setup/install.sh test` installs what is missing. A test whose program is missing fails.

mod applications;
#[path = "../shared/as_root.rs"]
mod as_root;
mod bad_input;
mod bench;
mod bodies;
mod browser;
mod cli;
mod command;
mod connections;
mod crowd;
mod doctor;
mod egress;
mod fastcgi_failures;
mod fastcgi_front;
mod files;
mod hints;
mod http;
mod kernel_queue;
mod leaving;
mod log;
mod messages;
mod operators;
mod overload;
mod own_php;
mod paths;
mod php;
mod policy;
mod pool_log;
mod queue;
mod reactors;
mod recipes;
mod routing;
mod servers;
mod status_page;
mod support;
mod troubles;
mod waiting;
mod web_servers;
mod window;
mod wordpress;
mod workers;
