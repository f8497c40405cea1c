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
        if let Live::Http(conversation) = &live
            && conversation.is_answered()
        {
            return live.finish();
        }
        let pool = live.work().lease.pool;
        let is_php = live.work().lease.is_php();
        if self.on_drop == OnDrop::Cancel {
            live = match live {
                Live::FastCgi(mut conversation) if pool.has_workers() => match pool.may_cancel() {
                    Ok(()) => return conversation.cancel(),
                    Err(next) => {
                        conversation.cancel_at = next;
                        Live::FastCgi(conversation)
                    }
                },
                live => return live.into_lease().release(None, Cost::default()),
            };
        }
        let limit = match (self.on_drop, is_php) {
            (OnDrop::Kill, _) | (OnDrop::Abort, false) => return live.into_lease().kill(),
            (OnDrop::Finish | OnDrop::Cancel, false) => MAX_UNWANTED,
            (OnDrop::Finish | OnDrop::Abort | OnDrop::Cancel, true) => u64::MAX,
        };
        if let Live::FastCgi(conversation) = &mut live
            && is_php
        {
            conversation.request.abort();
            if self.on_drop == OnDrop::Abort {
                let silence = conversation.work.watch.silence;
                conversation.abandon_at = clock::now().saturating_add(silence);
            }
        }
        let work = live.work_mut();
        work.late_at = deadline;
        if pool.has_workers() {
            // The script may be silent: nobody waits for it, and other limits end it.
            work.watch.silence = NEVER;
            work.watch.moved();
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

/// How many bytes of output are discarded before a script counts as endless.
const MAX_UNWANTED: u64 = 256 << 20;
