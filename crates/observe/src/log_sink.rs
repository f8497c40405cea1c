//! The output of logs: a buffer in memory, and a separate thread that writes it.
//!
//! A thread that logs only appends to the buffer, under a lock that is held for the copy; reactors do that for many lines at
//! once ([`blocks`]). The only system call is to wake the writer if the buffer was empty. The writer takes the whole buffer at [`Options::batch`] bytes, or
//! [`Options::max_delay`] after the first line, and writes it outside of the lock.
//!
//! A request never waits for a disk. If a log cannot be written (disk full, pipe that nobody reads), up to
//! [`Options::limit`] bytes are kept and writing is retried. Lines beyond that are lost, counted, and reported in the
//! error log: once per interval while it lasts, and when it is over. Only whole lines are lost, and lines of
//! different threads never mix.
//!
//! Each log has its own writer, so that one that is blocked does not delay the others.

pub mod blocks;

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_sys::poll;

use crate::metrics::{Metric, Page};

/// The output of a log. All threads of a process share it. Dropping it writes the rest, for at most a second.
pub struct Sink {
    /// `None`: the log is off.
    shared: Option<Arc<Shared>>,
}

/// Where a log is written.
#[derive(Debug)]
pub enum Target {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// An open file, pipe or socket; a file must be open for appending.
    Fd(OwnedFd),
}

/// Limits of a [`Sink`].
#[derive(Debug, Clone)]
pub struct Options {
    /// This many bytes are written at once, without further delay.
    pub batch: usize,
    /// How long a line may wait to be written together with others.
    pub max_delay: Duration,
    /// How many bytes are kept while they cannot be written; further lines are lost.
    pub limit: usize,
    /// Pause before a failed write is retried.
    pub retry: Duration,
    /// Interval of the reports while lines are being lost.
    pub tell_every: Duration,
    /// Called with the log's name and the trouble, by the thread that noticed it; must not block.
    pub report: fn(&str, &Trouble),
}

/// Trouble with writing a log.
#[derive(Debug)]
pub enum Trouble {
    /// Writing fails and is retried. With the total number of lost lines.
    Failing(io::Error, u64),
    /// Lines arrive faster than they can be written. With the total number of lost lines.
    Losing(u64),
    /// Writing works again. With the total number of lost lines.
    Recovered(u64),
}

/// The name of a process's error log in reports.
pub const ERROR_LOG: &str = "error log";

/// The state of a log of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Its name in reports.
    pub name: String,
    /// Lines lost since the start.
    pub lost: u64,
    /// How long ago the last one was lost.
    pub lost_ago: Option<Duration>,
    /// Why the log cannot be written now; `None`: no error is known.
    pub failing: Option<String>,
    /// Bytes that wait to be written.
    pub waiting: usize,
}

impl Health {
    /// For the admin interface.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "lost": self.lost,
            "lost_ago": self.lost_ago.map(|time| time.as_secs_f64()),
            "failing": self.failing,
            "waiting": self.waiting,
        })
    }

    /// Adds its metrics.
    pub fn put_metrics(&self, page: &mut Page) {
        page.put(Metric::LogLinesLost, &[&self.name], self.lost as f64);
    }
}

/// The state of all logs of this process that have a [`Sink`], in the order of their start.
pub fn health() -> Vec<Health> {
    let mut all = SINKS.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|sink| sink.strong_count() > 0);
    let sinks: Vec<Arc<Shared>> = all.iter().filter_map(Weak::upgrade).collect();
    drop(all);
    sinks.iter().map(|shared| shared.health()).collect()
}

impl Sink {
    /// Starts the writer. `name` is the log's name in reports.
    ///
    /// # Errors
    /// If no thread or no descriptor is left.
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
                told: Reported::default(),
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

    /// A log that is not written.
    pub const fn off() -> Self {
        Self { shared: None }
    }

    /// Whether the log is off. Then lines need not be made.
    pub fn is_off(&self) -> bool {
        self.shared.is_none()
    }

    /// Appends a line with its own newline, or a part of a line that other parts follow. Never waits for the output.
    pub fn push(&self, line: &[u8]) {
        self.push_with(line.len(), |buffer| buffer.extend_from_slice(line));
    }

    /// Appends the line that `put` makes, with its newline, after those that this thread has collected ([`blocks`]). `put`
    /// must not write to a log.
    pub fn put_line(&self, put: impl FnOnce(&mut Vec<u8>)) {
        if let Some(shared) = &self.shared {
            blocks::put(shared, put);
        }
    }

    /// As [`Self::push`], but makes the line under the lock: times that are read there have the order of the lines.
    /// `size` is the approximate length.
    pub(crate) fn push_with(&self, size: usize, put: impl FnOnce(&mut Vec<u8>)) {
        if let Some(shared) = &self.shared {
            shared.take(size, || 1, put);
        }
    }

    /// Continues in another file, as after the old one was moved away. If the old file got only a part of a line
    /// (because its disk is full), the whole line is written again. Nothing is lost.
    pub fn reopen(&self, fd: OwnedFd) {
        let Some(shared) = &self.shared else { return };
        let next = Some(Outlet::new(fd));
        let unused = std::mem::replace(&mut shared.lock().replacement, next);
        drop(unused);
        shared.wake.notify_all();
    }

    /// Ends the writer, which has `limit` for the rest; does not wait. Later lines are lost.
    pub fn close(&self, limit: Duration) {
        let Some(shared) = &self.shared else { return };
        shared
            .lock()
            .closing
            .get_or_insert_with(|| Instant::now() + limit);
        shared.wake.notify_all();
    }

    /// Waits, at most for `limit`, until everything pushed so far is written. Returns whether it is.
    pub fn flush(&self, limit: Duration) -> bool {
        let Some(shared) = &self.shared else {
            return true;
        };
        blocks::give();
        let mut state = shared.lock();
        let all = state.accepted;
        state.flushes += 1;
        shared.wake.notify_all();
        shared.wait_until(state, Instant::now() + limit, |state| state.done >= all)
    }

    /// Writes the rest, for at most `limit`, and ends the writer; later lines are lost. Returns whether everything
    /// was written.
    pub fn shutdown(&self, limit: Duration) -> bool {
        let Some(shared) = &self.shared else {
            return true;
        };
        blocks::give();
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

/// The report of all logs except the error log itself.
fn report_in_error_log(name: &str, trouble: &Trouble) {
    match trouble {
        Trouble::Failing(error, lost) => {
            log::error!(lines_lost = lost; "{name} cannot be written: {error}")
        }
        Trouble::Losing(lost) => {
            log::error!(lines_lost = lost; "{name} loses lines: it cannot be written fast enough")
        }
        Trouble::Recovered(lost) => log::info!(lines_lost = lost; "{name} is written again"),
    }
}

struct Shared {
    name: String,
    options: Options,
    state: Mutex<State>,
    /// Wakes the writer when there is work.
    wake: Condvar,
    /// Signalled by the writer after progress.
    progress: Condvar,
}

struct State {
    /// Whole lines that the writer has not taken yet.
    buffer: Vec<u8>,
    /// Bytes that the writer has taken but not written yet.
    in_flight: usize,
    /// Total bytes put into the buffer.
    accepted: u64,
    /// How many of those bytes were written or given up.
    done: u64,
    /// Lost lines.
    lost: u64,
    /// When the last line was lost.
    lost_at: Option<Instant>,
    /// Why the last write failed; `None`: it did not.
    failing: Option<Failing>,
    told: Reported,
    writer: Writer,
    replacement: Option<Outlet>,
    /// How often `flush` was called.
    flushes: u64,
    /// The writer must end by this time.
    closing: Option<Instant>,
    closed: bool,
}

/// Why a log cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failing {
    /// An error (errno).
    Error(Option<i32>, ErrorKind),
    /// Nobody reads the pipe.
    Blocked,
}

/// Which trouble of this log was reported.
#[derive(Default)]
struct Reported {
    /// When trouble was last reported.
    at: Option<Instant>,
    /// The end of the trouble was not reported yet.
    open: bool,
    /// How many lost lines were reported.
    lost: u64,
}

/// The state of the writer, for threads that may have to wake it.
#[derive(PartialEq)]
enum Writer {
    /// Waiting for a first line.
    Idle,
    /// Waiting for more lines.
    Gathering,
    /// Working, or already woken.
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
                Failing::Blocked => "no program reads the pipe that it is written to".to_owned(),
            }),
            waiting: state.buffer.len() + state.in_flight,
        }
    }

    /// Appends whole lines.
    fn take_lines(&self, lines: &[u8]) {
        let count = || memchr::memchr_iter(b'\n', lines).count() as u64;
        self.take(lines.len(), count, |buffer| buffer.extend_from_slice(lines));
    }

    /// Appends what `put` makes, of about `size` bytes. If there is no room for it, `lines` lines are lost.
    fn take(&self, size: usize, lines: impl FnOnce() -> u64, put: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        if state.closed || state.buffer.len() + state.in_flight + size > self.options.limit {
            state.lost += lines();
            state.lost_at = Some(Instant::now());
            let trouble = Trouble::Losing(state.lost);
            let tell = self.may_tell(&mut state);
            drop(state);
            if tell {
                (self.options.report)(&self.name, &trouble);
            }
            return;
        }
        let before = state.buffer.len();
        put(&mut state.buffer);
        let after = state.buffer.len();
        state.accepted += (after - before) as u64;
        let notify = match state.writer {
            Writer::Idle => true,
            Writer::Gathering => after >= self.options.batch,
            Writer::Busy => false,
        };
        if notify {
            state.writer = Writer::Busy;
            drop(state);
            self.wake.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Only the making of a line can panic under the lock; the fields are consistent even then.
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

    /// Whether trouble may be reported now; if so, notes that it is.
    fn may_tell(&self, state: &mut State) -> bool {
        let due = state
            .told
            .at
            .is_none_or(|at| at.elapsed() >= self.options.tell_every);
        if due {
            state.told = Reported {
                at: Some(Instant::now()),
                open: true,
                lost: state.lost,
            };
        }
        due
    }

    /// After what time the end of the trouble must be reported, if nothing else happens; `None`: nothing to report. A
    /// log that is slightly too slow enters and leaves trouble all the time: what was not reported at the beginning
    /// is reported at the end, at most once per interval.
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

/// The writer: takes the buffer and writes it, until the sink is closed.
fn write_all(shared: &Shared, mut outlet: Outlet) {
    let options = &shared.options;
    let mut batch = Vec::new();
    loop {
        let mut state = shared.lock();
        if let Some(next) = state.replacement.take() {
            // Closing a file may take as long as writing to it, so never under the lock.
            drop(state);
            outlet = next;
            continue;
        }
        let tell_in = shared.tell_recovery_in(&state);
        if tell_in.is_some_and(|time| time.is_zero()) && state.buffer.len() <= options.limit / 2 {
            state.told = Reported {
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

/// Writes all of `batch`, without a time limit; returns where it stopped because the sink was closed.
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

/// The beginning of the line that contains byte `at`.
fn line_start(batch: &[u8], at: usize) -> usize {
    memchr::memrchr(b'\n', &batch[..at]).map_or(0, |newline| newline + 1)
}

/// An open descriptor to write to.
struct Outlet {
    file: File,
    pipe: bool,
    /// Writing may block until somebody reads: a pipe, socket or terminal that is shared with others and in blocking
    /// mode.
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
        // If nobody reads, the write would block this thread: it could neither switch to another file nor end.
        if self.waits && !poll::writable(self.file.as_fd(), FIRST_PAUSE)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        if !(self.pipe || self.waits) || bytes.len() <= PIPE_BUF {
            return self.file.write(bytes);
        }
        // A pipe often has other writers (all processes of a container have the same stderr). Up to PIPE_BUF bytes
        // are written atomically, so lines stay whole if no write ends within one.
        let lines =
            memchr::memrchr(b'\n', &bytes[..PIPE_BUF]).map_or(PIPE_BUF, |newline| newline + 1);
        self.file.write(&bytes[..lines])
    }
}

/// All sinks of this process.
static SINKS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// pipe(7): size up to which writes to a pipe are atomic.
const PIPE_BUF: usize = 4096;

/// First and maximum pause for a pipe that is not read.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How long dropping a sink waits for the rest to be written.
const DROP_LIMIT: Duration = Duration::from_secs(1);

/// Stack of the writer's thread, bytes.
const STACK: usize = 256 << 10;

#[cfg(test)]
#[path = "log_sink/tests.rs"]
mod tests;
