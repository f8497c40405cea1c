//! Watches idle connections: one that the origin closes is closed here at once, and replaced if it
//! is needed.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Wake, Waker},
};

use tokio::runtime::Handle;

use super::{Connections, RequestBody};

/// Is woken by any idle connection, and checks all of them. Several wakes at once cause one check.
pub(super) struct Watch<B: RequestBody> {
    home: Weak<Connections<B>>,
    /// A look is due.
    is_due: AtomicBool,
    /// A connection was woken and not checked yet.
    news: Arc<AtomicBool>,
}

impl<B: RequestBody> Watch<B> {
    pub(super) fn waker(home: Weak<Connections<B>>, news: Arc<AtomicBool>) -> Waker {
        let is_due = AtomicBool::new(false);
        Waker::from(Arc::new(Watch { home, is_due, news }))
    }

    fn look(&self) {
        // A later wake causes another check.
        self.is_due.store(false, SeqCst);
        if let Some(home) = self.home.upgrade() {
            home.one_ended();
        }
    }
}

impl<B: RequestBody> Wake for Watch<B> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.news.store(true, SeqCst);
        if self.is_due.swap(true, SeqCst) {
            return;
        }
        // The lock of the connections may be held here, so the check is a separate task.
        match Handle::try_current() {
            Ok(runtime) => {
                let watch = self.clone();
                runtime.spawn(async move { watch.look() });
            }
            // Connections::tend looks once a second.
            Err(_) => self.is_due.store(false, SeqCst),
        }
    }
}
