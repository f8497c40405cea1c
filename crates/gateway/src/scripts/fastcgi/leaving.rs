//! Responses that nobody waits for any more: what happens to their scripts.
//!
//! With `on_client_left = "finish"` a task of its own reads the rest of the answer and discards it. weir's own PHP is
//! told (ABORT_REQUEST) and behaves as PHP does when its client has left. The script of a stream must end: weir's PHP
//! has `read_timeout` for this; for other programs the connection is closed and the process replaced. With `cancel`, or
//! after the request's deadline, the worker is killed, and the pool knows that this was intended. With servers the
//! connection is closed.
//!
//! A client has left when its side of the connection is closed. It may have closed only its sending direction; weir cannot see
//! the difference.

use weir_observe::{
    clock::{self, NEVER},
    error_log::tell,
    pool_log::Cost,
};

use super::{Live, OnDrop, Progress, Run};

impl Run {
    /// The rest of the response is not needed: treats the script as `on_drop` says. Even so it may run until
    /// `deadline` ([`clock::now`]).
    pub(super) fn leave(&mut self, deadline: u64) {
        let Some(mut live) = self.live.take() else {
            return;
        };
        let is_php = live.lease.is_php();
        if self.on_drop == OnDrop::Cancel {
            if !live.lease.pool.has_workers() {
                return live.lease.release(None, Cost::default());
            }
            match live.lease.pool.may_cancel() {
                Ok(()) => return live.cancel(),
                Err(next) => live.cancel_at = next,
            }
        }
        let limit = match (self.on_drop, is_php) {
            (OnDrop::Kill, _) | (OnDrop::Abort, false) => return live.lease.kill(),
            (OnDrop::Finish | OnDrop::Cancel, false) => MAX_UNWANTED,
            (OnDrop::Finish | OnDrop::Abort | OnDrop::Cancel, true) => u64::MAX,
        };
        if is_php {
            live.request.abort();
        }
        if self.on_drop == OnDrop::Abort {
            live.abandon_at = clock::now().saturating_add(live.watch.silence);
        }
        live.late_at = deadline;
        if live.lease.pool.has_workers() {
            // The script may be silent: nobody waits for it, and other limits end it.
            live.watch.silence = NEVER;
            live.watch.moved();
        }
        let mut rest = Run {
            live: Some(live),
            first_byte: self.first_byte,
            on_drop: OnDrop::Kill,
        };
        rest.detach();
        // Without a runtime the gateway is ending, and its workers with it.
        if tokio::runtime::Handle::try_current().is_ok() {
            tokio::task::spawn_local(async move {
                let (mut unwanted, mut thrown) = (Vec::new(), 0);
                while let Ok(Progress::More) = rest.read(&mut unwanted).await
                    && thrown <= limit
                {
                    thrown += unwanted.len() as u64;
                    unwanted.clear();
                }
            });
        }
    }
}

impl Live {
    /// Stops a script whose answer cannot be used.
    pub(super) fn cancel(self: Box<Self>) {
        tell!(
            debug,
            self.about(),
            "the script is cancelled and its worker replaced, because the client has left"
        );
        self.lease.kill();
    }
}

/// How many bytes of output are discarded before a script counts as endless.
const MAX_UNWANTED: u64 = 256 << 20;
