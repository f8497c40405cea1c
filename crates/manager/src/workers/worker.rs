//! One worker: its process, what the gateway knows about it, and how it is ended.
//!
//! A worker of a program is there when it has accepted a connection. A later connection, for example for the next gateway, also counts
//! only when the worker has accepted it: a worker that still runs the script of a dead gateway is not free. A worker that accepts nothing for
//! `request_terminate_timeout` (else `read_timeout`) is killed. A PHP worker is there when its master has forked it and, with `worker`,
//! when its application is booted.

use std::time::{Duration, Instant};

use weir_observe::{error_log::tell, events::Ending};
use weir_sys::process;

use super::{FORK_LIMIT, RETIRE_LIMIT, UNCLAIMED_LIMIT, about, command::Socket, php::Forked};
use crate::{
    children::watch::Source,
    output::Outputs,
    php::{MasterId, Masters},
};

/// Starts reading the output of a process. From now on its lines can be logged with its process id.
pub(super) fn watch_output(outputs: &Outputs, number: u32, masters: &Masters) {
    let added = (masters.watch).add_outputs(outputs, |stream| Source::WorkerOutput(number, stream));
    if let Err(error) = added {
        log::error!("what a worker prints cannot be read before it ends: {error}");
    }
}

#[derive(Debug)]
pub(super) struct Worker {
    /// Never used again, in any pool.
    pub(super) number: u32,
    /// The number of the pool's start that it belongs to.
    pub(super) start_number: u32,
    /// `None`: not forked yet.
    pub(super) pid: Option<u32>,
    pub(super) since: Instant,
    pub(super) claim: Claim,
    /// When it is killed; `None`: not planned.
    pub(super) until: Option<Instant>,
    pub(super) why: Ending,
    pub(super) outputs: Option<Outputs>,
    pub(super) link: Link,
}

/// The manager's connection to a worker.
#[derive(Debug)]
pub(super) enum Link {
    /// A program with a listening socket.
    Command(Socket),
    /// Forked by its pool's master.
    Php(Forked),
}

/// A worker that was just started.
pub(super) struct Started {
    /// `None`: its master has not forked it yet.
    pub(super) pid: Option<u32>,
    pub(super) outputs: Outputs,
    pub(super) link: Link,
}

/// What the gateway knows about a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// The gateway has requested the worker.
    Requested,
    /// The gateway has the worker.
    Given,
    /// Nothing: the gateway that had this worker has ended.
    None,
}

impl Worker {
    pub(super) fn is_command(&self) -> bool {
        matches!(self.link, Link::Command(_))
    }

    pub(super) fn master(&self) -> Option<MasterId> {
        match &self.link {
            Link::Php(link) => Some(link.master),
            Link::Command(_) => None,
        }
    }

    /// The zygote that it is, or was, forked from.
    pub(super) fn zygote(&self) -> Option<u32> {
        match &self.link {
            Link::Php(link) => link.zygote,
            Link::Command(_) => None,
        }
    }

    /// The time by which its master must have forked it; `None`: it has.
    pub(super) fn forked_by(&self) -> Option<Instant> {
        let forks = self.pid.is_none() && !self.is_command();
        forks.then(|| self.since + FORK_LIMIT)
    }

    /// The time by which it must have booted its application; `None`: it does not boot one, or is being ended.
    pub(super) fn booted_by(&self) -> Option<Instant> {
        match (&self.link, self.pid, self.until) {
            (
                Link::Php(Forked {
                    boots: Some(limit), ..
                }),
                Some(_),
                None,
            ) => Some(self.since + *limit),
            _ => None,
        }
    }

    /// Makes the next connection, unless one is pending.
    pub(super) fn reconnect(&mut self, now: Instant) {
        if let Link::Command(link) = &mut self.link
            && self.why == Ending::Unasked
        {
            link.reconnect(now);
        }
    }

    /// When to check whether it has accepted.
    pub(super) fn next_look(&self) -> Option<Instant> {
        match &self.link {
            Link::Command(link) if self.why == Ending::Unasked => link.next_look(),
            _ => None,
        }
    }

    /// The gateway that had it is gone.
    pub(super) fn forget(&mut self, now: Instant, patience: Duration) {
        self.claim = Claim::None;
        match &mut self.link {
            Link::Command(link) => {
                link.pending = None;
                self.until.get_or_insert(now + UNCLAIMED_LIMIT);
            }
            Link::Php(link) => {
                link.stream = None;
                self.why = Ending::Requested;
                self.until.get_or_insert(now + patience);
            }
        }
    }

    /// The worker should end by itself until `until`.
    pub(super) fn leave(&mut self, pool: &str, why: Ending, until: Instant) {
        if self.why == Ending::Unasked {
            self.why = why;
            self.until = Some(until);
            self.end(pool);
        }
    }

    /// Asks it to end. PHP workers end when the gateway closes their stream.
    pub(super) fn end(&mut self, pool: &str) {
        match &mut self.link {
            Link::Command(link) => {
                // Nobody will use this connection. A worker that accepted it now would wait for a request.
                link.pending = None;
                let Some(pid) = self.pid else { return };
                if let Err(error) = process::terminate(pid) {
                    tell!(error, about(pool, pid), "cannot stop the worker: {error}");
                }
                // Many programs miss a signal that arrives just before they wait for a connection.
                link.close(pid);
            }
            Link::Php(link) => link.stream = None,
        }
        if self.why == Ending::Unasked {
            self.why = Ending::Requested;
        }
    }

    /// Kills it. The gateway asks for this also when a connection has closed: if the worker has begun to end by itself,
    /// `why` is not the reason.
    pub(super) fn kill(&mut self, why: Ending, pool: &str, masters: &mut Masters) {
        if self.why == Ending::Unasked && !self.pid.is_some_and(process::is_ending) {
            self.why = why;
        }
        self.until
            .get_or_insert_with(|| Instant::now() + RETIRE_LIMIT);
        match (&mut self.link, self.pid) {
            (Link::Command(link), Some(pid)) => link.kill(pool, pid),
            (Link::Command(_), None) => {}
            (Link::Php(link), _) => masters.kill(link.master, self.number),
        }
    }
}
