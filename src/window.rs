//! What the operator's window shows and does: the words between the gateway, which knows, and `admin`, which tells.
//!
//! The two rooms do not import one another; `main` hands the one to the other.

use std::{future::Future, io, pin::Pin, sync::Arc};

use crate::control::{Action, WindowSockets};

/// Something that takes its time.
pub type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A running weir, as an operator sees it.
pub trait Window: Send + Sync {
    /// Has what is measured now and then measured again, for what is asked next. Does not take long.
    fn refresh(&self) -> Task<()>;

    /// Pools, workers, queues and listeners as they are now (`GET /status`).
    fn status(&self) -> serde_json::Value;

    /// The metrics of [`crate::metrics`] as text (`GET /metrics`).
    fn metrics(&self) -> Vec<u8>;

    /// Whether it takes requests and has workers for them (`GET /readyz`).
    ///
    /// # Errors
    /// Why not, in one line.
    fn ready(&self) -> Result<(), String>;

    /// Has the manager do something, and waits until it is done.
    ///
    /// # Errors
    /// Why it was not done.
    fn act(&self, action: Action) -> Task<Result<String, String>>;

    /// Waits until this gateway's time is over: whoever asks then asks the next one.
    fn closing(&self) -> Task<()>;
}

/// Answers on the listening sockets until [`Window::closing`]; runs on one reactor.
pub type Serve = fn(WindowSockets, Arc<dyn Window>) -> Task<io::Result<()>>;
