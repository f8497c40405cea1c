//! THE ADMIN INTERFACE: shows what weir does and accepts actions, over HTTP on a unix socket and, if configured, on
//! TCP.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | a page that shows the status, for a browser |
//! | `GET /status` | pools, workers, queues, listeners as they are now (JSON) |
//! | `GET /metrics` | the metrics of docs/metrics.md, for Prometheus |
//! | `GET /cache` | what the cache of pages holds (JSON) |
//! | `GET /cache/why?url=URL` | what the cache has for a URL, and why (JSON) |
//! | `POST /cache/purge?tag=TAG` | makes stored answers outdated; also `url=`, `prefix=`, `site=`, `all=yes`, and `hard=yes` |
//! | `GET /healthz` | 200 while the gateway lives |
//! | `GET /readyz` | 200 while it accepts requests and can answer them, otherwise 503 and why |
//! | `POST /reload` | reads the configuration again; 409 and the problem if nothing was changed |
//! | `POST /pool/NAME/restart` | restarts that pool beside its old workers |
//! | `POST /pool/NAME/set?max_children=N&maxconn=N` | other limits, until the next reload |
//! | `POST /drain`, `POST /drain?off` | turns draining for load balancers on or off: not ready, and connections are not kept |
//! | `POST /stop`, `POST /stop?now` | weir stops, gracefully or at once |
//!
//! [`server`] runs in the gateway and works under full load too: no request to it waits for a worker. [`access`]
//! decides who may do what: over the unix socket everything, and only its owner may connect there. [`client`] is the
//! basis of `weir status` and similar commands, and [`text`] is what they print.
#![forbid(unsafe_code)]

mod access;
mod advice;
pub mod client;
mod page;
mod route;
pub mod server;
mod text;

pub use text::{
    cache as cache_text, cache_why as cache_why_text, of_pool, status as status_text,
    status_on_screen,
};

/// The manager of the weir with this admin socket: it listens there, even if no gateway answers. `None`: no process
/// listens, or it is not weir.
pub fn manager_of(socket: &std::path::Path) -> Option<u32> {
    let pid = weir_sys::listener::owner(socket)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    (name.starts_with("weir") || name.starts_with("php-fpm")).then_some(pid)
}
