//! weir's additions to FastCGI for its own PHP, and scripts that continue after their response.
//!
//! ```text
//! STDOUT … END_REQUEST READY           usually in one piece: the next request follows at once
//! STDOUT … END_REQUEST   …   READY     fastcgi_finish_request(): the client has its answer, the worker is not free
//! ```
//!
//! Both records are management records (request 0) with types that FastCGI 1.0 leaves free:
//!
//! | type | from | content |
//! |---|---|---|
//! | 64, READY | worker | processor time (µs), peak memory (bytes), peak resident set (bytes), processor time that is not the kernel's (µs), 64 bits each |
//! | | | the share of OPcache in use: 1 + thousandths; 0: the worker has not looked (64 bits) |
//! | | | if the request held the lock of its session: for how long, and how long it waited for it (µs, 64 bits each), and the name of the session's cookie |
//! | 65, STATUS | worker | nothing: `fpm_get_status()` asks |
//! | 66, NOTE | worker | what PHP-FPM's log of requests says, as name-value pairs, in as many records as it takes and an empty one |
//! | 67, LATE_STDERR | worker | a piece of what the script says to the log after its response |
//! | 65, STATUS | gateway | the pool's figures as JSON, in as many records as it takes and an empty one |

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use weir_fcgi::client::{self, Extension};
use weir_observe::{error_log::tell, pool_log::Cost};

use super::{super::run::Failure, AfterEnd, Conversation};
use crate::{clock::NEVER, dispatch::AskedBy};

impl Conversation {
    /// Handles a record of weir's own types.
    pub(super) fn take_extension(&mut self, record: &Extension) -> Result<(), Failure> {
        match (record.kind, self.after_end) {
            (READY, AfterEnd::Running) => match Figures::parse(record.content()) {
                Some(figures) => {
                    if let Some(used) = figures.opcache_used {
                        self.work.lease.looked_at_opcache(used);
                    }
                    if !figures.session.is_empty() {
                        self.work.lease.used_session(figures.session);
                    }
                    self.after_end = AfterEnd::Ready(figures.cost);
                }
                None => self.stray(&"a READY record with a wrong length"),
            },
            (STATUS, AfterEnd::Expected | AfterEnd::Running) => {
                if self.after_end == AfterEnd::Running {
                    self.work.lease.is_finishing();
                }
                let request = &mut self.request;
                if request.written == request.buffer.len() {
                    request.buffer.clear();
                    request.written = 0;
                }
                if request.buffer.len() > MAX_UNREAD {
                    let message = "it asks for the pool's status and does not read the answer";
                    return Err(Failure::Protocol(message.into()));
                }
                let status = self.work.lease.pool.status(AskedBy::Nobody).to_php();
                client::extension(&mut request.buffer, STATUS, &status);
            }
            (NOTE, AfterEnd::Expected | AfterEnd::Running)
                if self.work.lease.take_note(record.content()) => {}
            (LATE_STDERR, AfterEnd::Running) => self.take_stderr(record.content()),
            (kind, AfterEnd::Expected) => {
                return Err(Failure::Protocol(format!(
                    "a record of type {kind} within the response"
                )));
            }
            (kind, _) => self.stray(&format_args!("a record of type {kind}")),
        }
        Ok(())
    }

    /// The response is complete, and unexpected data followed: the worker is in a wrong state.
    pub(super) fn stray(&mut self, what: &dyn std::fmt::Display) {
        tell!(
            warning,
            self.work.about(),
            "the worker sent data after its response ({what}) and is replaced"
        );
        self.after_end = AfterEnd::Stray;
    }

    /// READY arrives with the response's last bytes, or just after them.
    pub(super) fn look_for_ready(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
        first_byte: &mut Option<u64>,
    ) {
        if self.after_end == AfterEnd::Running
            && let Poll::Ready(Err(_)) = self.poll_read(cx, output, first_byte)
        {
            self.after_end = AfterEnd::Gone;
        }
    }

    /// Keeps the worker in a separate task until it is free.
    pub(super) fn run_on(mut self: Box<Self>) {
        self.work.lease.is_finishing();
        let tracked = (self.work.lease.pool.settings).request_terminate_timeout_track_finished;
        if !tracked {
            self.work.terminate_at = NEVER;
        }
        self.slow_at = NEVER;
        self.work.late_at = NEVER;
        self.work.watch.detach();
        // A script that has answered may be silent for any time.
        self.work.watch.silence = NEVER;
        self.work.watch.moved();
        // Without a runtime the gateway is ending, and its workers with it.
        if tokio::runtime::Handle::try_current().is_err() {
            return self.work.lease.kill();
        }
        tokio::task::spawn_local(async move {
            let failure = poll_fn(|cx| self.poll_finishing(cx)).await;
            self.end_stderr();
            match (self.after_end, failure) {
                (AfterEnd::Ready(cost), None) => self.work.lease.release(Some(self.conn), cost),
                (_, Some(Failure::Closed { .. })) => self.work.lease.release(None, Cost::default()),
                (_, failure) => {
                    if let Some(Failure::Terminated) = failure {
                        self.work.lease.terminate(self.work.id);
                    }
                    self.work.lease.kill();
                }
            }
        });
    }

    /// Ready when the worker is free, or must be given up.
    fn poll_finishing(&mut self, cx: &mut Context<'_>) -> Poll<Option<Failure>> {
        let mut nothing = Vec::new();
        while self.after_end == AfterEnd::Running {
            if let Poll::Ready(Err(failure)) = self.poll_write(cx) {
                return Poll::Ready(Some(failure));
            }
            match self.poll_read(cx, &mut nothing, &mut None) {
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(failure)) => return Poll::Ready(Some(failure)),
                Poll::Pending => return self.poll_time(cx).map(Some),
            }
        }
        Poll::Ready(None)
    }
}

/// The content of a READY record.
struct Figures<'r> {
    cost: Cost,
    /// The share of OPcache in use, in thousandths. `None`: the worker has not looked.
    opcache_used: Option<u16>,
    /// What it says about the session; empty: nothing.
    session: &'r [u8],
}

impl Figures<'_> {
    fn parse(content: &[u8]) -> Option<Figures<'_>> {
        let (numbers, session) = content.split_first_chunk::<40>()?;
        let [cpu, memory, resident, user, opcache] = *numbers.as_chunks::<8>().0 else {
            return None;
        };
        let cost = Cost {
            cpu: u64::from_be_bytes(cpu),
            memory: u64::from_be_bytes(memory),
            resident: u64::from_be_bytes(resident),
            user: u64::from_be_bytes(user),
        };
        Some(Figures {
            cost,
            opcache_used: match u64::from_be_bytes(opcache) {
                0 => None,
                used => Some(used.min(1001) as u16 - 1),
            },
            session,
        })
    }
}

const READY: u8 = 64;
const STATUS: u8 = 65;
const NOTE: u8 = 66;
const LATE_STDERR: u8 = 67;

/// How many unread bytes may wait for a worker that asks for the status again.
const MAX_UNREAD: usize = 1 << 20;
