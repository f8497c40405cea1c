//! Traits between the gateway, which has the data of the admin interface, and `admin`, which shows
//! it.
//!
//! Neither depends on the other; `main` connects them.

use std::{future::Future, io, pin::Pin, sync::Arc};

use weir_control::{Action, AdminSockets};

/// An asynchronous operation.
pub type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A running weir, as the admin interface shows it.
pub trait AdminData: Send + Sync {
    /// Requests a new measurement, if one is due. Returns soon.
    fn refresh(&self) -> Task<()>;

    /// Pools, workers, queues and listeners as they are now (`GET /status`). `pool`: only this one, without sites,
    /// listeners and calls; `None` if there is no such pool.
    fn status(&self, pool: Option<&str>) -> Option<serde_json::Value>;

    /// The metrics of [`weir_observe::metrics`] as text (`GET /metrics`). `pool`: only those of this one; `None` if there
    /// is no such pool.
    fn metrics(&self, pool: Option<&str>) -> Option<Vec<u8>>;

    /// The names of the pools.
    fn pools(&self) -> Vec<String>;

    /// Whether it accepts requests and has workers for them (`GET /readyz`).
    ///
    /// # Errors
    /// Why not, in one line.
    fn ready(&self) -> Result<(), String>;

    /// Asks the manager to do something, and waits until it is done.
    ///
    /// # Errors
    /// Why it was not done.
    fn act(&self, action: Action) -> Task<Result<String, String>>;

    /// What the cache of pages holds and has done (`GET /cache`).
    fn cache(&self) -> serde_json::Value;

    /// What the cache has for a URL, and why (`GET /cache/why?url=URL`).
    ///
    /// # Errors
    /// What is wrong with the query.
    fn cache_why(&self, query: &str) -> Result<serde_json::Value, String>;

    /// Purges answers from the cache (`POST /cache/purge?tag=TAG`, `url=`, `prefix=`, `site=`, `all=yes`; `hard=yes`).
    ///
    /// # Errors
    /// What is wrong with the query.
    fn cache_purge(&self, query: &str) -> Result<serde_json::Value, String>;

    /// Waits until this gateway stops serving the admin interface: later requests go to the next
    /// gateway.
    fn closing(&self) -> Task<()>;
}

/// Answers on the listening sockets until [`AdminData::closing`]; runs on one reactor.
pub type Serve = fn(AdminSockets, Arc<dyn AdminData>) -> Task<io::Result<()>>;
