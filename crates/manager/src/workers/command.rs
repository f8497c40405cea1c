//! Workers of `runtime = "command"`: any FastCGI program, one process per worker.
//!
//! A worker has its own listening socket as descriptor 0. The socket's path is removed before the program starts, so
//! only the manager can connect to it. The manager makes one connection and gives it to the gateway when the worker
//! has accepted it: that shows that the program has started. When the connection is closed, the gateway requests
//! another one. A gateway that replaces a dead one gets a new connection to each worker that it requests. All
//! connections are given only after they were accepted.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use weir_control::ToGateway;
use weir_observe::{error_log::tell, events::Ending};
use weir_sys::{listener::Private, poll, process};

use super::{Claim, Kind, Link, Pool, RETIRE_LIMIT, Started, Worker, about};
use crate::{generation::plan::Program, output::Outputs};

/// A worker's listening socket.
#[derive(Debug)]
pub(super) struct Socket {
    socket: Private,
    /// The next connection for the gateway, until the worker accepts it.
    pub(super) pending: Option<Pending>,
    /// Whether it has accepted a connection before.
    proven: bool,
    /// Whether it was logged that its start takes long.
    slow: bool,
}

/// A connection in the queue of a worker's socket.
#[derive(Debug)]
pub(super) struct Pending {
    /// `None`: it could not be made, and is tried again at the next check.
    connection: Option<OwnedFd>,
    since: Instant,
    /// When to check whether it was accepted, and the pause after that.
    look: Instant,
    pause: Duration,
}

/// Starts a worker.
pub(super) fn start(program: &Program, now: Instant) -> Result<Started, String> {
    start_program(program, now)
        .map_err(|error| format!("{} cannot be started: {error}", program.path.display()))
}

impl Socket {
    /// Makes the next connection, unless one is pending.
    pub(super) fn reconnect(&mut self, now: Instant) {
        if self.pending.is_none() {
            self.pending = Some(Pending {
                connection: None,
                since: now,
                look: now,
                pause: FIRST_RECONNECT_LOOK / 2,
            });
        }
    }

    /// When to check whether it has accepted.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.pending.as_ref().map(|pending| pending.look)
    }

    /// Closes the listening socket for all processes that have it. Returns whether the worker has ever accepted a
    /// connection.
    pub(super) fn close(&self, pid: u32) -> bool {
        if let Err(error) = self.socket.end() {
            log::error!("cannot close the socket of worker {pid}: {error}");
        }
        self.proven
    }

    /// Kills the process.
    pub(super) fn kill(&mut self, pool: &str, pid: u32) {
        self.pending = None;
        if let Err(error) = process::kill(pid) {
            tell!(error, about(pool, pid), "cannot kill the worker: {error}");
        }
    }

    /// Takes the pending connection if the worker has accepted it.
    fn accepted(&mut self, pool: &str, pid: u32) -> Option<OwnedFd> {
        let pending = self.pending.as_mut()?;
        if pending.connection.is_none() {
            match self.socket.connect() {
                Ok(connection) => pending.connection = Some(connection),
                // It closed its listening socket and is about to end: its exit will be reported.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    let about = about(pool, pid);
                    tell!(warning, about, "cannot connect to the worker: {error}");
                }
            }
            return None;
        }
        // A listening socket is readable while a connection waits in its queue.
        let waits = poll::readable(&[self.socket.listening.as_fd()], Some(Duration::ZERO));
        if !waits.is_ok_and(|waits| waits == [false]) {
            return None;
        }
        self.pending.take()?.connection
    }
}

impl Pool {
    /// Checks which workers have accepted their next connection, and gives those to the gateway.
    pub(super) fn look(&mut self, now: Instant, news: &mut Vec<ToGateway>) {
        for index in 0..self.workers.len() {
            self.look_at(index, now, news);
        }
    }

    fn look_at(&mut self, index: usize, now: Instant, news: &mut Vec<ToGateway>) {
        let worker = &mut self.workers[index];
        let Worker {
            number,
            link: Link::Command(link),
            pid: Some(pid),
            why: Ending::Unasked,
            ..
        } = worker
        else {
            return;
        };
        let (number, pid) = (*number, *pid);
        if link.next_look().is_none_or(|look| look > now) {
            return;
        }
        if let Some(connection) = link.accepted(&self.name, pid) {
            let used = std::mem::replace(&mut link.proven, true);
            worker.claim = Claim::Given;
            news.push(ToGateway::Worker {
                pool: self.id,
                worker: number,
                pid,
                start_number: worker.start_number,
                used,
                connection,
            });
            return self.is_up(pid);
        }
        let Some(pending) = &mut link.pending else {
            return;
        };
        pending.pause = (pending.pause * 2).min(MAX_LOOK);
        pending.look = now + pending.pause;
        let waited = now.saturating_duration_since(pending.since);
        if link.proven && waited >= self.patience {
            let seconds = waited.as_secs_f64();
            let about = about(&self.name, pid);
            tell!(
                error,
                about,
                "worker has accepted no connection for {seconds:.1} s: killed"
            );
            link.kill(&self.name, pid);
            worker.why = Ending::Requested;
            worker.until = Some(now + RETIRE_LIMIT);
        } else if !link.proven && !link.slow && waited > SLOW_START {
            link.slow = true;
            let Kind::Command(program) = &self.kind else {
                return;
            };
            tell!(
                warning,
                about(&self.name, pid),
                "the worker has accepted no connection for {} s; is {} a FastCGI program that listens on descriptor 0?",
                SLOW_START.as_secs(),
                program.path.display()
            );
        }
    }
}

fn start_program(program: &Program, now: Instant) -> Result<Started, String> {
    let text = |error: io::Error| error.to_string();
    let socket = private_socket().map_err(text)?;
    let (outputs, outs) = Outputs::pipes(program.identity.as_ref()).map_err(text)?;
    let stdin = socket.listening.try_clone().map_err(text)?;
    let spawn = program.spawn(stdin, outs);
    let pending = Pending {
        connection: Some(socket.connect().map_err(text)?),
        since: now,
        look: now + FIRST_LOOK,
        pause: FIRST_LOOK,
    };
    let pid = spawn.start().map_err(|error| error.to_string())?;
    Ok(Started {
        pid: Some(pid),
        outputs,
        link: Link::Command(Socket {
            socket,
            pending: Some(pending),
            proven: false,
            slow: false,
        }),
    })
}

/// Creates a socket in the first folder that permits it: the one that systemd made for weir, root's, the user's, or
/// the public one.
fn private_socket() -> io::Result<Private> {
    let of = |name| std::env::var_os(name).map(PathBuf::from);
    let folders = [
        of("RUNTIME_DIRECTORY"),
        Some("/run".into()),
        of("XDG_RUNTIME_DIR"),
        Some(std::env::temp_dir()),
    ];
    let mut last = io::ErrorKind::NotFound.into();
    for folder in folders.into_iter().flatten() {
        match Private::new(&folder, WORKER_BACKLOG) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// First pause before checking whether a new worker has accepted; it doubles up to [`MAX_LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// The same for further connections: a free worker accepts at once.
const FIRST_RECONNECT_LOOK: Duration = Duration::from_micros(100);

/// Maximum pause between two checks.
const MAX_LOOK: Duration = Duration::from_millis(50);

/// After this time it is logged that a worker has not accepted.
const SLOW_START: Duration = Duration::from_secs(10);

/// The accept queue of a worker's socket: one connection, and others while the first one is being closed.
const WORKER_BACKLOG: u32 = 8;
