//! THE OPERATOR'S WINDOW: what weir does now, and how it is told to do something else, over HTTP on a unix socket
//! and, if asked, on TCP.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | a page that shows the status, for a browser |
//! | `GET /status` | pools, workers, queues, listeners as they are now (JSON) |
//! | `GET /metrics` | the metrics of docs/metrics.md, for Prometheus |
//! | `GET /healthz` | 200 while the gateway lives |
//! | `GET /readyz` | 200 while it takes requests and can answer them, else 503 and why |
//! | `POST /reload` | the configuration is read again; 409 and what is wrong with it where nothing was changed |
//! | `POST /pool/NAME/restart` | that pool starts anew beside its old workers |
//! | `POST /pool/NAME/set?max_children=N&maxconn=N` | other limits, until the next reload |
//! | `POST /drain`, `POST /drain?off` | not ready, and connections are not kept; or as before |
//! | `POST /stop`, `POST /stop?now` | weir stops, gracefully or at once |
//!
//! [`server`] runs in the gateway, which is there at saturation too: no request waits for a worker. Who may
//! do what says [`access`]: over the unix socket everything, and its owner alone may connect there. [`client`] is what
//! `weir status` and the like are made of, and [`text`] what they print.

mod access;
mod advice;
pub mod client;
mod page;
mod route;
pub mod server;
mod text;

pub use text::{of_pool, status as status_text, status_on_screen};

/// The manager of the weir whose window is on this socket: it listens there, whether a gateway answers or not. None: nobody
/// does, or it is no weir.
pub fn manager_of(socket: &std::path::Path) -> Option<u32> {
    let pid = weir_sys::listener::owner(socket)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    (name.starts_with("weir") || name.starts_with("php-fpm")).then_some(pid)
}
