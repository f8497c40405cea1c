//! Where log lines go: a buffer in memory, and a thread of its own that writes it out.
//!
//! Whoever logs only appends to the buffer under a lock that is held for the copy: no system call, but for waking
//! the writer when the buffer was empty. The writer takes the whole buffer at [`Options::batch`] bytes or
//! [`Options::max_delay`] after the first line, and writes it outside of the lock.
//!
//! What never happens: a request waits for a disk. A log that cannot be written (disk full, pipe that nobody reads)
//! keeps up to [`Options::limit`] bytes and tries again; lines beyond that are lost, counted, and told in the error
//! log, once an interval while it lasts and when it is over. Lines are lost whole; no line is torn or interleaved
//! with another, whichever thread it came from.
//!
//! Each log has its own writer, so that one that is stuck does not hold up the others.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use weir_sys::poll;

/// A log's way out. Shared by all threads of a process; dropping it writes what is left, for a second at most.
pub struct Sink {
    /// None: the log is off.
    shared: Option<Arc<Shared>>,
}

/// Where a log goes.
#[derive(Debug)]
pub enum Target {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// An open file, pipe or socket; files are expected to be open for appending.
    Fd(OwnedFd),
}

/// Limits of a [`Sink`].
#[derive(Debug, Clone)]
pub struct Options {
    /// So many bytes are written as soon as they are there.
    pub batch: usize,
    /// A line waits at most so long for others to be written with.
    pub max_delay: Duration,
    /// Bytes kept while they cannot be written; lines beyond are lost.
    pub limit: usize,
    /// How often to try again to write what failed.
    pub retry: Duration,
    /// How often to tell of lines being lost while it lasts.
    pub tell_every: Duration,
    /// Who is told that lines are lost: log's name and what happened. Called by the thread that noticed it; must not
    /// block.
    pub report: fn(&str, &Trouble),
}

/// What happens to a log that cannot be written.
#[derive(Debug)]
pub enum Trouble {
    /// Writing fails; it is tried again. With the lines lost in all so far.
    Failing(io::Error, u64),
    /// Lines come faster than they can be written. With the lines lost in all so far.
    Losing(u64),
    /// Writing works again. With the lines lost in all so far.
    Recovered(u64),
}

/// How a log of this process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// What reports call it.
    pub name: String,
    /// Lines lost since the start.
    pub lost: u64,
    /// When the last of them was lost, as long ago.
    pub lost_ago: Option<Duration>,
    /// Why it cannot be written now; none: it can, as far as is known.
    pub failing: Option<String>,
    /// Bytes that wait to be written.
    pub waiting: usize,
}

/// How all logs of this process do that are written by a [`Sink`], in the order of their start.
pub fn health() -> Vec<Health> {
    let mut all = SINKS.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|sink| sink.strong_count() > 0);
    let sinks: Vec<Arc<Shared>> = all.iter().filter_map(Weak::upgrade).collect();
    drop(all);
    sinks.iter().map(|shared| shared.health()).collect()
}

impl Sink {
    /// Starts the writer. `name` is what reports call this log.
    ///
    /// # Errors
    /// No thread or no descriptor is left.
    pub fn start(name: &str, target: Target, options: Options) -> io::Result<Self> {
        let file = match target {
            Target::Off => return Ok(Self::off()),
            Target::Stdout => io::stdout().as_fd().try_clone_to_owned()?,
            Target::Stderr => io::stderr().as_fd().try_clone_to_owned()?,
            Target::Fd(fd) => fd,
        };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            options,
            state: Mutex::new(State {
                buffer: Vec::new(),
                in_flight: 0,
                accepted: 0,
                done: 0,
                lost: 0,
                lost_at: None,
                failing: None,
                told: Told::default(),
                writer: Writer::Busy,
                replacement: None,
                flushes: 0,
                closing: None,
                closed: false,
            }),
            wake: Condvar::new(),
            progress: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        thread::Builder::new()
            .name(format!("weir {name}"))
            .stack_size(STACK)
            .spawn(move || write_all(&theirs, Outlet::new(file)))?;
        let mut all = SINKS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|sink| sink.strong_count() > 0);
        all.push(Arc::downgrade(&shared));
        drop(all);
        Ok(Self {
            shared: Some(shared),
        })
    }

    /// A log that is not kept.
    pub const fn off() -> Self {
        Self { shared: None }
    }

    /// Whether lines go nowhere, so that they need not be made.
    pub fn is_off(&self) -> bool {
        self.shared.is_none()
    }

    /// Appends a line, which brings its own newline, or a piece of one that others follow. Never blocks on what is written.
    pub fn push(&self, line: &[u8]) {
        self.push_with(line.len(), |buffer| buffer.extend_from_slice(line));
    }

    /// As [`Self::push`], with the line made under the lock: what is taken from a clock there is in the order of the
    /// lines. `size` is about how long it will be.
    pub fn push_with(&self, size: usize, put: impl FnOnce(&mut Vec<u8>)) {
        let Some(shared) = &self.shared else { return };
        let mut state = shared.lock();
        if state.closed || state.buffer.len() + state.in_flight + size > shared.options.limit {
            state.lost += 1;
            state.lost_at = Some(Instant::now());
            let trouble = Trouble::Losing(state.lost);
            let tell = shared.may_tell(&mut state);
            drop(state);
            if tell {
                (shared.options.report)(&shared.name, &trouble);
            }
            return;
        }
        let before = state.buffer.len();
        put(&mut state.buffer);
        let after = state.buffer.len();
        state.accepted += (after - before) as u64;
        let notify = match state.writer {
            Writer::Idle => true,
            Writer::Gathering => after >= shared.options.batch,
            Writer::Busy => false,
        };
        if notify {
            state.writer = Writer::Busy;
            drop(state);
            shared.wake.notify_one();
        }
    }

    /// Goes on in another file, as after the old one was moved away. A line of which the old file got only a part
    /// (because its disk is full) is written again whole. Nothing is lost.
    pub fn reopen(&self, fd: OwnedFd) {
        let Some(shared) = &self.shared else { return };
        let next = Some(Outlet::new(fd));
        let unused = std::mem::replace(&mut shared.lock().replacement, next);
        drop(unused);
        shared.wake.notify_all();
    }

    /// Ends the writer, which has `limit` for what is left; does not wait for that. What comes later is lost.
    pub fn close(&self, limit: Duration) {
        let Some(shared) = &self.shared else { return };
        shared
            .lock()
            .closing
            .get_or_insert_with(|| Instant::now() + limit);
        shared.wake.notify_all();
    }

    /// Waits until everything pushed so far is written, at most for `limit`. Whether it is.
    pub fn flush(&self, limit: Duration) -> bool {
        let Some(shared) = &self.shared else {
            return true;
        };
        let mut state = shared.lock();
        let all = state.accepted;
        state.flushes += 1;
        shared.wake.notify_all();
        shared.wait_until(state, Instant::now() + limit, |state| state.done >= all)
    }

    /// Writes what is there, for at most `limit`, and ends the writer; what comes later is lost. Whether all was
    /// written.
    pub fn shutdown(&self, limit: Duration) -> bool {
        let Some(shared) = &self.shared else {
            return true;
        };
        let until = Instant::now() + limit;
        let mut state = shared.lock();
        let lost = state.lost;
        if state.closing.is_none() {
            state.closing = Some(until);
        }
        shared.wake.notify_all();
        // A little longer, so that the writer can count what it gave up.
        shared.wait_until(state, until + LONGEST_PAUSE, |state| state.closed)
            && shared.lock().lost == lost
    }

    /// Lines lost since the start.
    #[cfg(test)]
    pub fn lost(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.lock().lost)
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            let closing = shared.lock().closing.is_some();
            if !closing {
                self.shutdown(DROP_LIMIT);
            }
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch: 64 << 10,
            max_delay: Duration::from_millis(50),
            limit: 8 << 20,
            retry: Duration::from_secs(1),
            tell_every: Duration::from_secs(30),
            report: report_in_error_log,
        }
    }
}

/// The report of all logs but the error log itself.
fn report_in_error_log(name: &str, trouble: &Trouble) {
    match trouble {
        Trouble::Failing(error, lost) => {
            log::error!(lines_lost = lost; "{name} cannot be written: {error}")
        }
        Trouble::Losing(lost) => {
            log::error!(lines_lost = lost; "{name} loses lines: more than can be written")
        }
        Trouble::Recovered(lost) => log::info!(lines_lost = lost; "{name} is written again"),
    }
}

struct Shared {
    name: String,
    options: Options,
    state: Mutex<State>,
    /// For the writer: there is something to do.
    wake: Condvar,
    /// From the writer: something was done.
    progress: Condvar,
}

struct State {
    /// Whole lines that the writer has not taken yet.
    buffer: Vec<u8>,
    /// Bytes that the writer has taken and not written yet.
    in_flight: usize,
    /// Bytes ever put into the buffer.
    accepted: u64,
    /// Bytes of those that are written or given up.
    done: u64,
    /// Lines.
    lost: u64,
    /// When the last line was lost.
    lost_at: Option<Instant>,
    /// Why the last try to write failed; none: it did not.
    failing: Option<Failing>,
    told: Told,
    writer: Writer,
    replacement: Option<Outlet>,
    /// How often `flush` was called.
    flushes: u64,
    /// The writer is to end, at this time at the latest.
    closing: Option<Instant>,
    closed: bool,
}

/// Why a log cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failing {
    /// This went wrong (errno).
    Error(Option<i32>, ErrorKind),
    /// Nobody reads the pipe.
    Blocked,
}

/// What of the trouble with this log was reported.
#[derive(Default)]
struct Told {
    /// When trouble was told last.
    at: Option<Instant>,
    /// That it is over has not been told yet.
    open: bool,
    /// The lines that were reported as lost.
    lost: u64,
}

/// What the writer does, for those that may have to wake it.
#[derive(PartialEq)]
enum Writer {
    /// Waits for a first line.
    Idle,
    /// Waits for more lines.
    Gathering,
    /// Is at work, or has been woken.
    Busy,
}

impl Shared {
    fn health(&self) -> Health {
        let state = self.lock();
        Health {
            name: self.name.clone(),
            lost: state.lost,
            lost_ago: state.lost_at.map(|at| at.elapsed()),
            failing: state.failing.map(|failing| match failing {
                Failing::Error(Some(errno), _) => io::Error::from_raw_os_error(errno).to_string(),
                Failing::Error(None, kind) => kind.to_string(),
                Failing::Blocked => "nobody reads the pipe that it is written to".to_owned(),
            }),
            waiting: state.buffer.len() + state.in_flight,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held can only come from the making of a line; all fields agree even then.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.wake
            .wait_timeout(state, time)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    fn wait_until(
        &self,
        mut state: MutexGuard<'_, State>,
        until: Instant,
        reached: impl Fn(&State) -> bool,
    ) -> bool {
        loop {
            if reached(&state) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self
                .progress
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Whether trouble may be told now, and notes that it is.
    fn may_tell(&self, state: &mut State) -> bool {
        let due = state
            .told
            .at
            .is_none_or(|at| at.elapsed() >= self.options.tell_every);
        if due {
            state.told = Told {
                at: Some(Instant::now()),
                open: true,
                lost: state.lost,
            };
        }
        due
    }

    /// In what time it is to be told that the trouble is over, if nothing happens until then; none: nothing is to be
    /// told. A log that is just not fast enough is in and out of trouble all the time: what was not told when it
    /// began is told at its end, at most once an interval.
    fn tell_recovery_in(&self, state: &State) -> Option<Duration> {
        let since = state.told.at?.elapsed();
        let pause = if state.told.open {
            self.options.retry
        } else if state.lost > state.told.lost {
            self.options.tell_every
        } else {
            return None;
        };
        Some(pause.saturating_sub(since))
    }
}

/// The writer: takes what is there and writes it, until the sink is closed.
fn write_all(shared: &Shared, mut outlet: Outlet) {
    let options = &shared.options;
    let mut batch = Vec::new();
    loop {
        let mut state = shared.lock();
        if let Some(next) = state.replacement.take() {
            // Closing a file may take as long as writing to it: never under the lock.
            drop(state);
            outlet = next;
            continue;
        }
        let tell_in = shared.tell_recovery_in(&state);
        if tell_in.is_some_and(|time| time.is_zero()) && state.buffer.len() <= options.limit / 2 {
            state.told = Told {
                at: Some(Instant::now()),
                open: false,
                lost: state.lost,
            };
            let trouble = Trouble::Recovered(state.lost);
            drop(state);
            (options.report)(&shared.name, &trouble);
            continue;
        }
        if state.buffer.is_empty() {
            if state.closing.is_some() {
                state.closed = true;
                shared.progress.notify_all();
                return;
            }
            state.writer = Writer::Idle;
            drop(match tell_in {
                Some(time) => shared.wait(state, time),
                None => shared
                    .wake
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            });
            continue;
        }
        let flushes = state.flushes;
        let until = Instant::now() + options.max_delay;
        while state.buffer.len() < options.batch
            && state.flushes == flushes
            && state.closing.is_none()
            && state.replacement.is_none()
        {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state.writer = Writer::Gathering;
            state = shared.wait(state, left);
        }
        state.writer = Writer::Busy;
        std::mem::swap(&mut state.buffer, &mut batch);
        state.in_flight = batch.len();
        drop(state);

        let unwritten = write_batch(shared, &mut outlet, &batch);

        let mut state = shared.lock();
        state.in_flight = 0;
        state.done += batch.len() as u64;
        let given_up = memchr::memchr_iter(b'\n', &batch[unwritten..]).count() as u64;
        if given_up > 0 {
            state.lost += given_up;
            state.lost_at = Some(Instant::now());
        } else {
            state.failing = None;
        }
        drop(state);
        shared.progress.notify_all();
        batch.clear();
        batch.shrink_to(options.batch * 2);
    }
}

/// Writes all of `batch`, however long it takes; returns where it gave up because the sink is closed.
fn write_batch(shared: &Shared, outlet: &mut Outlet, batch: &[u8]) -> usize {
    let options = &shared.options;
    let mut at = 0;
    let mut pause = FIRST_PAUSE;
    while at < batch.len() {
        let error = match outlet.write(&batch[at..]) {
            Ok(0) => ErrorKind::WriteZero.into(),
            Ok(written) => {
                at += written;
                pause = FIRST_PAUSE;
                continue;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        let blocked = error.kind() == ErrorKind::WouldBlock;
        let mut state = shared.lock();
        state.failing = Some(match blocked {
            true => Failing::Blocked,
            false => Failing::Error(error.raw_os_error(), error.kind()),
        });
        if !blocked && shared.may_tell(&mut state) {
            let trouble = Trouble::Failing(error, state.lost);
            drop(state);
            (options.report)(&shared.name, &trouble);
            state = shared.lock();
        }
        if let Some(until) = state.closing
            && (!blocked || Instant::now() >= until)
        {
            return line_start(batch, at);
        }
        if state.replacement.is_none() {
            let time = if blocked { pause } else { options.retry };
            pause = (pause * 2).min(LONGEST_PAUSE);
            state = shared.wait(state, time);
        }
        let next = state.replacement.take();
        drop(state);
        if let Some(next) = next {
            *outlet = next;
            at = line_start(batch, at);
        }
    }
    at
}

/// Where the line that byte `at` belongs to begins.
fn line_start(batch: &[u8], at: usize) -> usize {
    memchr::memrchr(b'\n', &batch[..at]).map_or(0, |newline| newline + 1)
}

/// An open descriptor to write to.
struct Outlet {
    file: File,
    pipe: bool,
    /// Writing to it waits for whoever reads it: a pipe, a socket or a terminal that others share and have made so.
    waits: bool,
}

impl Outlet {
    fn new(fd: OwnedFd) -> Self {
        let file = File::from(fd);
        let kind = file.metadata().map(|of| of.file_type());
        let pipe = kind.as_ref().is_ok_and(|kind| kind.is_fifo());
        let read_by_others = pipe || kind.is_ok_and(|kind| kind.is_socket()) || file.is_terminal();
        Self {
            waits: read_by_others && poll::waits(file.as_fd()).unwrap_or(true),
            file,
            pipe,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One that nobody reads would hold this thread: it could neither go on in another file nor end.
        if self.waits && !poll::writable(self.file.as_fd(), FIRST_PAUSE)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        if !(self.pipe || self.waits) || bytes.len() <= PIPE_BUF {
            return self.file.write(bytes);
        }
        // A pipe often has other writers (all processes of one container have the same stderr). Up to PIPE_BUF bytes
        // are written in one piece, so lines stay whole if no write ends in the middle of one.
        let lines =
            memchr::memrchr(b'\n', &bytes[..PIPE_BUF]).map_or(PIPE_BUF, |newline| newline + 1);
        self.file.write(&bytes[..lines])
    }
}

/// All sinks of this process.
static SINKS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// pipe(7): what is written to a pipe in one piece.
const PIPE_BUF: usize = 4096;

/// Waiting for a pipe that is not read: the first time, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How long dropping a sink waits for what is left to be written.
const DROP_LIMIT: Duration = Duration::from_secs(1);

/// Of the writer's thread, bytes.
const STACK: usize = 256 << 10;

#[cfg(test)]
#[path = "log_sink/tests.rs"]
mod tests;
