//! A drain: no new connections are accepted, and running requests are finished.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::sync::Notify;

/// Whether the drain has started. It cannot be undone.
#[derive(Debug, Default)]
pub struct Drain {
    started: AtomicBool,
    notify: Notify,
}

impl Drain {
    /// Starts it, and wakes all tasks that wait for it.
    pub fn start(&self) {
        self.started.store(true, Relaxed);
        self.notify.notify_waiters();
    }

    /// Whether it has started.
    #[inline]
    pub fn has_started(&self) -> bool {
        self.started.load(Relaxed)
    }

    /// Waits until it starts.
    pub async fn started(&self) {
        let mut notified = std::pin::pin!(self.notify.notified());
        notified.as_mut().enable();
        if !self.has_started() {
            notified.await;
        }
    }
}
