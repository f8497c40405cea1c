//! The workers of `runtime = "command"`: any FastCGI program, one process for each worker.
//!
//! A worker has its own listening socket as descriptor 0, which has no name any more when the program starts: only
//! the manager can connect to it. The manager makes one connection and gives it to the gateway once the worker has
//! accepted it, which is how a FastCGI program says that it is there. When that connection is closed the gateway asks
//! for another; a gateway that takes the place of one that died gets a new one to each worker. These too are given
//! when they are accepted: a worker that is busy with a script whose gateway is gone looks free to nobody.
//!
//! A slot is a worker's place in its pool:
//!
//! ```text
//!                               ┌── accepts ──┐
//! due ── start ──► starting ────┴──► ready ───┴► reconnecting ──┐
//!  ▲                  │                │              │ for too long: killed
//!  └──── back-off ◄───┴────────────────┴──────────────┘ exits, or is killed
//! ```
//!
//! Only the pool's number of slots exists, so a gateway that has been taken over can ask for no more. When no slot of
//! a pool gets further than `starting` the gateway is told that the pool is down.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use weir_config::Config;
use weir_sys::{
    listener::Private,
    poll,
    process::{self, Exit, Spawn},
};

use super::{
    gateway::{back_off, describe_pause},
    output::Output,
    plan::Program,
};
use crate::{
    control::ToGateway,
    error_log::{About, tell},
    log_text,
};

/// The pools of one configuration that run programs.
#[derive(Debug)]
pub(super) struct Pools {
    list: Vec<Pool>,
    /// Workers are numbered on; no number is used twice.
    next_worker: u32,
    stopping: bool,
    /// What the gateway is to be told.
    news: Vec<ToGateway>,
}

#[derive(Debug)]
struct Pool {
    /// Index into `Config::pools`.
    id: u16,
    name: String,
    program: Program,
    slots: Vec<Slot>,
    /// A worker that has not accepted a further connection after so long is stuck.
    patience: Duration,
    /// The gateway was told that no worker can start.
    down: bool,
}

#[derive(Debug, Default)]
struct Slot {
    worker: Option<Worker>,
    /// When to start one; none while one runs, and when all stop.
    due: Option<Instant>,
    /// Short lives in a row.
    failures: u32,
}

#[derive(Debug)]
struct Worker {
    id: u32,
    pid: u32,
    socket: Private,
    /// The next connection for the gateway, until the worker accepts it.
    pending: Option<Pending>,
    /// It has accepted a connection before.
    proven: bool,
    since: Instant,
    /// It was told in the log that its start takes long.
    slow: bool,
    /// The gateway asked for its end.
    killed: bool,
    output: Option<Output>,
}

/// A connection that waits in the queue of a worker's socket.
#[derive(Debug)]
struct Pending {
    /// None: it could not be made, and is tried again at the next look.
    connection: Option<OwnedFd>,
    since: Instant,
    /// When to look whether it was accepted, and how long to wait then.
    look: Instant,
    pause: Duration,
}

impl Pools {
    /// All pools with a program, every worker due now.
    pub(super) fn new(now: Instant, config: &Config, programs: &[Option<Program>]) -> Self {
        let due = |_| Slot {
            due: Some(now),
            ..Slot::default()
        };
        let list = (0..)
            .zip(config.pools.iter().zip(programs))
            .filter_map(|(id, (pool, program))| {
                let program = program.clone()?;
                Some(Pool {
                    id,
                    name: pool.name.clone(),
                    patience: match pool.request_terminate_timeout {
                        Duration::ZERO => pool.read_timeout,
                        limit => limit,
                    },
                    slots: (0..program.workers).map(due).collect(),
                    program,
                    down: false,
                })
            })
            .collect();
        Self {
            list,
            next_worker: 1,
            stopping: false,
            news: Vec::new(),
        }
    }

    /// Starts what is due and looks who has accepted.
    pub(super) fn tick(&mut self, now: Instant) {
        for pool in &mut self.list {
            for index in 0..pool.slots.len() {
                let slot = &mut pool.slots[index];
                if slot.due.is_some_and(|due| due <= now) {
                    slot.due = None;
                    let id = self.next_worker;
                    self.next_worker = self.next_worker.wrapping_add(1);
                    match start(&pool.program, id, now) {
                        Ok(worker) => slot.worker = Some(worker),
                        Err(error) => pool.start_failed(index, &error, now, &mut self.news),
                    }
                }
                pool.look_at(index, now, &mut self.news);
            }
        }
    }

    /// What the gateway is to be told since this was last asked.
    pub(super) fn take_news(&mut self) -> Vec<ToGateway> {
        std::mem::take(&mut self.news)
    }

    /// A process ended. `false`: it is none of these.
    pub(super) fn exited(&mut self, now: Instant, pid: u32, exit: Exit) -> bool {
        for pool in &mut self.list {
            for index in 0..pool.slots.len() {
                let slot = &mut pool.slots[index];
                if let Some(worker) = slot.worker.take_if(|worker| worker.pid == pid) {
                    pool.exited(index, worker, exit, now, self.stopping, &mut self.news);
                    return true;
                }
            }
        }
        false
    }

    /// Reads what the worker whose output is `which`, in the order of [`outputs`](Self::outputs), has written.
    pub(super) fn read_output(&mut self, which: usize) {
        let mut workers = self.list.iter_mut().flat_map(|pool| {
            let name = &pool.name;
            let workers = pool
                .slots
                .iter_mut()
                .filter_map(|slot| slot.worker.as_mut());
            workers
                .filter(|worker| worker.output.is_some())
                .map(move |worker| (name, worker))
        });
        let Some((pool, worker)) = workers.nth(which) else {
            return;
        };
        let pid = worker.pid;
        if let Some(output) = &mut worker.output
            && !output.read(|line| say_line(pool, pid, line))
        {
            worker.output = None;
        }
    }

    /// The outputs to wait for.
    pub(super) fn outputs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let workers = self.list.iter().flat_map(|pool| &pool.slots);
        workers.filter_map(|slot| Some(slot.worker.as_ref()?.output.as_ref()?.as_fd()))
    }

    /// A new connection for the gateway, once the worker accepts it. A worker that is not there is left alone: the
    /// gateway will hear of it.
    pub(super) fn connect(&mut self, now: Instant, pool: u16, worker: u32) {
        let Some((pool, index)) = self.find(pool, worker) else {
            return;
        };
        if let Some(worker) = &mut self.list[pool].slots[index].worker {
            worker.reconnect(now);
        }
    }

    /// New connections to all workers, for a new gateway.
    pub(super) fn connect_all(&mut self, now: Instant) {
        self.news.clear();
        for pool in &mut self.list {
            if pool.down {
                self.news.push(ToGateway::PoolDown {
                    pool: pool.id,
                    message: "no worker can start".into(),
                });
            }
            let workers = pool
                .slots
                .iter_mut()
                .filter_map(|slot| slot.worker.as_mut());
            workers.for_each(|worker| worker.reconnect(now));
        }
    }

    /// Kills a worker on the gateway's word; another takes its place when it is gone.
    pub(super) fn kill(&mut self, pool: u16, worker: u32) {
        let Some((pool, index)) = self.find(pool, worker) else {
            return;
        };
        let pool = &mut self.list[pool];
        if let Some(worker) = &mut pool.slots[index].worker {
            worker.kill(&pool.name);
        }
    }

    /// Asks all workers to end, and starts no others.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        self.end_all(process::terminate);
    }

    /// Ends all workers.
    pub(super) fn kill_all(&mut self) {
        self.stopping = true;
        self.end_all(process::kill);
    }

    /// No process is left.
    pub(super) fn are_gone(&self) -> bool {
        let mut slots = self.list.iter().flat_map(|pool| &pool.slots);
        slots.all(|slot| slot.worker.is_none())
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.stopping {
            return None;
        }
        let slots = self.list.iter().flat_map(|pool| &pool.slots);
        let next = |slot: &Slot| match &slot.worker {
            Some(worker) if worker.killed => None,
            Some(worker) => worker.pending.as_ref().map(|pending| pending.look),
            None => slot.due,
        };
        slots.filter_map(next).min()
    }

    fn end_all(&mut self, end: fn(u32) -> io::Result<()>) {
        for slot in self.list.iter_mut().flat_map(|pool| &mut pool.slots) {
            slot.due = None;
            let Some(worker) = &mut slot.worker else {
                continue;
            };
            // Nobody will use it, and a worker that takes it now would wait for a request.
            worker.pending = None;
            if let Err(error) = end(worker.pid) {
                log::error!("cannot end worker {}: {error}", worker.pid);
            }
            // A signal that comes just before a program waits for a connection is one that many programs miss.
            if let Err(error) = worker.socket.end() {
                log::error!("cannot close the socket of worker {}: {error}", worker.pid);
            }
        }
    }
}

impl Pools {
    /// Places of a pool and of a worker's slot in it.
    fn find(&self, pool: u16, worker: u32) -> Option<(usize, usize)> {
        let place = self.list.iter().position(|p| p.id == pool)?;
        let is_it = |slot: &Slot| slot.worker.as_ref().is_some_and(|w| w.id == worker);
        let slot = self.list[place].slots.iter().position(is_it)?;
        Some((place, slot))
    }
}

impl Worker {
    /// Makes the next connection, unless one is on its way.
    fn reconnect(&mut self, now: Instant) {
        if self.pending.is_none() && !self.killed {
            self.pending = Some(Pending {
                connection: None,
                since: now,
                look: now,
                pause: FIRST_RECONNECT_LOOK / 2,
            });
        }
    }

    /// Takes the pending connection if the worker has accepted it.
    fn accepted(&mut self, pool: &str) -> Option<OwnedFd> {
        let pending = self.pending.as_mut()?;
        if pending.connection.is_none() {
            match self.socket.connect() {
                Ok(connection) => pending.connection = Some(connection),
                // It closed its listening socket and is about to end: its exit will be told.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    let about = about(pool, self.pid);
                    tell!(warning, about, "cannot connect to the worker: {error}");
                }
            }
            return None;
        }
        // A listening socket can be read from while a connection waits in its queue.
        let waits = poll::readable(&[self.socket.listening.as_fd()], Some(Duration::ZERO));
        if !waits.is_ok_and(|waits| waits == [false]) {
            return None;
        }
        self.pending.take()?.connection
    }

    /// Ends it at once; another takes its place when it is gone.
    fn kill(&mut self, pool: &str) {
        if self.killed {
            return;
        }
        self.killed = true;
        if let Err(error) = process::kill(self.pid) {
            tell!(
                error,
                about(pool, self.pid),
                "cannot kill the worker: {error}"
            );
        }
    }
}

impl Pool {
    /// Looks whether the worker of this slot has accepted its next connection, and then gives it to the gateway.
    fn look_at(&mut self, index: usize, now: Instant, news: &mut Vec<ToGateway>) {
        let Some(worker) = &mut self.slots[index].worker else {
            return;
        };
        let is_due = |pending: &Pending| pending.look <= now;
        if worker.killed || !worker.pending.as_ref().is_some_and(is_due) {
            return;
        }
        if let Some(connection) = worker.accepted(&self.name) {
            news.push(ToGateway::Worker {
                pool: self.id,
                worker: worker.id,
                pid: worker.pid,
                generation: 1,
                used: worker.proven,
                connection,
            });
            worker.proven = true;
            if self.down {
                self.down = false;
                tell!(
                    notice,
                    about(&self.name, worker.pid),
                    "a worker could start again"
                );
            }
            return;
        }
        let Some(pending) = &mut worker.pending else {
            return;
        };
        pending.pause = (pending.pause * 2).min(MAX_LOOK);
        pending.look = now + pending.pause;
        let waited = now - pending.since;
        if worker.proven && waited >= self.patience {
            tell!(
                error,
                &about(&self.name, worker.pid),
                "worker has taken no connection for {:.1} s: killed and replaced",
                waited.as_secs_f64()
            );
            worker.kill(&self.name);
        } else if !worker.proven && !worker.slow && waited > SLOW_START {
            worker.slow = true;
            tell!(
                warning,
                about(&self.name, worker.pid),
                "the worker has accepted no connection for {} s; does {} speak FastCGI on its descriptor 0?",
                SLOW_START.as_secs(),
                self.program.path.display()
            );
        }
    }

    fn start_failed(&mut self, index: usize, error: &str, now: Instant, news: &mut Vec<ToGateway>) {
        let slot = &mut self.slots[index];
        let pause = back_off(slot.failures, MAX_PAUSE);
        slot.failures += 1;
        slot.due = Some(now + pause);
        let cause = format!("{} cannot be started: {error}", self.program.path.display());
        let again = describe_pause(pause);
        tell!(error, about_pool(&self.name), "{cause}; again {again}");
        self.is_down(cause, news);
    }

    fn exited(
        &mut self,
        index: usize,
        worker: Worker,
        exit: Exit,
        now: Instant,
        stopping: bool,
        news: &mut Vec<ToGateway>,
    ) {
        let lived = now - worker.since;
        let accepted = worker.proven;
        // Processes that it has started may still wait there: for nothing, now.
        if let Err(error) = worker.socket.end() {
            log::error!("cannot close the socket of worker {}: {error}", worker.pid);
        }
        if let Some(output) = worker.output {
            output.finish(|line| say_line(&self.name, worker.pid, line));
        }
        if accepted {
            news.push(ToGateway::WorkerExited {
                pool: self.id,
                worker: worker.id,
                pid: worker.pid,
                exit,
            });
        }
        if stopping {
            return;
        }
        // One that ends by itself after its requests (PHP_FCGI_MAX_REQUESTS) and one that was killed on the gateway's
        // word did nothing wrong.
        let blameless = worker.killed || (accepted && exit == Exit::Code(0));
        let slot = &mut self.slots[index];
        if accepted && lived >= LONG_LIFE {
            slot.failures = 0;
        }
        let pause = match blameless {
            // A program that does nothing but end must not keep the machine busy.
            true if lived < SHORTEST_LIFE => SHORT_PAUSE,
            true => Duration::ZERO,
            false if slot.failures > 0 || !accepted => back_off(slot.failures, MAX_PAUSE),
            false => Duration::ZERO,
        };
        slot.failures = if blameless { 0 } else { slot.failures + 1 };
        slot.due = Some(now + pause);
        let about = about(&self.name, worker.pid);
        let (lived, again) = (lived.as_secs_f64(), describe_pause(pause));
        match blameless {
            true => tell!(
                notice,
                &about,
                "worker ended: {exit}, lived {lived:.1} s; restart {again}"
            ),
            false => tell!(
                error,
                &about,
                "worker died: {exit}, lived {lived:.1} s; restart {again}"
            ),
        }
        if !accepted {
            self.is_down(
                format!("its program ends before it accepts a connection: {exit}"),
                news,
            );
        }
    }

    /// Tells the gateway that the pool has no worker and gets none, if that is so.
    fn is_down(&mut self, cause: String, news: &mut Vec<ToGateway>) {
        let hopeless = |slot: &Slot| slot.worker.is_none() && slot.failures > 0;
        if self.down || !self.slots.iter().all(hopeless) {
            return;
        }
        self.down = true;
        tell!(
            error,
            about_pool(&self.name),
            "the pool has no worker: {cause}"
        );
        news.push(ToGateway::PoolDown {
            pool: self.id,
            message: cause,
        });
    }
}

fn start(program: &Program, id: u32, now: Instant) -> Result<Worker, String> {
    let text = |error: io::Error| error.to_string();
    let socket = private_socket().map_err(text)?;
    let (output, write) = Output::pipe().map_err(text)?;
    let spawn = Spawn {
        program: program.path.clone(),
        name: Some(program.name.clone()),
        arguments: program.arguments.clone(),
        environment: program.environment.clone(),
        identity: program.identity.clone(),
        folder: program.folder.clone(),
        open_files: Some(program.open_files),
        huge_pages: true,
        stdin: socket.listening.try_clone().map_err(text)?,
        stdout: write.try_clone().map_err(text)?,
        stderr: write,
    };
    let pending = Pending {
        connection: Some(socket.connect().map_err(text)?),
        since: now,
        look: now + FIRST_LOOK,
        pause: FIRST_LOOK,
    };
    let pid = spawn.start().map_err(|error| error.to_string())?;
    Ok(Worker {
        id,
        pid,
        socket,
        pending: Some(pending),
        proven: false,
        since: now,
        slow: false,
        killed: false,
        output: Some(output),
    })
}

/// A socket made in the first folder that lets us: the one that systemd made for us, root's, the user's, anybody's.
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

fn say_line(pool: &str, pid: u32, line: &[u8]) {
    tell!(
        warning,
        &about(pool, pid),
        "said: {}",
        String::from_utf8_lossy(line)
    );
}

fn about(pool: &str, pid: u32) -> About<'_> {
    About {
        pool: Some(pool),
        worker: Some(log_text::Worker::Pid(pid)),
        ..About::default()
    }
}

fn about_pool(pool: &str) -> About<'_> {
    About {
        pool: Some(pool),
        ..About::default()
    }
}

/// A worker that lived for so long after it was ready has its earlier failures forgiven.
const LONG_LIFE: Duration = Duration::from_secs(10);

/// A worker whose life is shorter is not replaced at once, however it ended.
const SHORTEST_LIFE: Duration = Duration::from_millis(50);

/// How long the place of a worker stays empty that ended before [`SHORTEST_LIFE`] through no fault of its own.
const SHORT_PAUSE: Duration = Duration::from_millis(20);

/// The longest pause between two starts.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// How soon after its start a worker is asked whether it has accepted; the pause doubles up to [`MAX_LOOK`].
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// The same for a further connection: a worker that is free accepts at once.
const FIRST_RECONNECT_LOOK: Duration = Duration::from_micros(100);

/// The longest pause between two looks.
const MAX_LOOK: Duration = Duration::from_millis(50);

/// A worker that has not accepted after so long is told of.
const SLOW_START: Duration = Duration::from_secs(10);

/// The accept queue of a worker's socket: one connection, and another while the first is being closed.
const WORKER_BACKLOG: u32 = 8;
