//! Responses that nobody waits for any more: what becomes of their scripts.

use std::time::Duration;

use super::{Live, OnDrop, Progress, Run};
use crate::{
    error_log::tell,
    gateway::{clock, scoreboard::Cost},
};

impl Run {
    /// Nobody wants the rest of the response: does with the script what was said. It may run until `deadline`
    /// ([`clock::now`]) all the same.
    pub(super) fn leave(&mut self, deadline: u64) {
        let Some(mut live) = self.live.take() else {
            return;
        };
        let is_php = live.lease.is_php();
        if self.on_drop == OnDrop::Cancel {
            if !live.lease.pool().has_workers() {
                return live.lease.release(None, Cost::default());
            }
            match live.lease.pool().may_cancel() {
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
            live.abandon_at = clock::deadline(live.watch.silence);
        }
        live.late_at = deadline;
        if live.lease.pool().has_workers() {
            // It may take its time: nobody waits for it, and others have limits of their own.
            live.watch.silence = Duration::ZERO;
            live.watch.moved();
        }
        let mut rest = Run {
            live: Some(live),
            first_byte: self.first_byte,
            on_drop: OnDrop::Kill,
        };
        rest.detach();
        // Outside of a runtime the gateway itself is going, and its workers with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
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
    /// Stops the script, of whose answer nobody knows what to do with.
    pub(super) fn cancel(self: Box<Self>) {
        tell!(
            debug,
            self.about(),
            "the script is cancelled, and its worker replaced: nobody waits for its answer"
        );
        self.lease.kill();
    }
}

/// How much output is thrown away before a script is taken for one that never ends, bytes.
const MAX_UNWANTED: u64 = 256 << 20;
