//! The gateway as the manager sees it: a process, a channel, and a queue of what it has not taken yet.
//!
//! A gateway that dies is started again: at once if it had lived for a while, shortly after if it had served, else after a
//! pause that doubles. One that takes no messages any more is killed, and so is one that gives no
//! sign of life: it is asked for one again and again (`ToGateway::Ping`), and tells for how long the thread has stood still
//! that has for longest.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use weir_sys::process::{self, Exit, Spawn};

use super::jail::ROLE;
use crate::control::{Channel, ToGateway, ToManager};

/// A gateway, running or to be started again.
#[derive(Debug, Default)]
pub(super) struct Gateway {
    running: Option<Running>,
    /// When to start it again.
    due: Option<Instant>,
    /// Deaths in a row before it served.
    failures: u32,
    /// The last one lived for a short time only.
    was_short: bool,
    /// The last sign of life of this one or its predecessor.
    alive: Option<Instant>,
    /// When it is asked for a sign next; none: it is not asked.
    ping: Option<Instant>,
    /// When [`tick`](Self::tick) looked last.
    looked: Option<Instant>,
    /// It is asked as often as this at least; none: nobody else wants to know.
    often: Option<Duration>,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    channel: Channel,
    queue: VecDeque<ToGateway>,
    since: Instant,
    /// It has said that it is ready.
    served: bool,
    /// When it closed its end of the channel: it is about to end, or has gone astray.
    closed: Option<Instant>,
}

impl Gateway {
    /// One that is not started yet. `watchdog`: how often somebody wants to hear that it is alive.
    pub(super) fn new(watchdog: Option<Duration>) -> Self {
        Self {
            often: watchdog.map(|period| period / 4),
            ..Self::default()
        }
    }

    /// Starts the process and gives it `messages`.
    pub(super) fn start(
        &mut self,
        now: Instant,
        messages: Vec<ToGateway>,
        priority: Option<i32>,
    ) -> Result<(), String> {
        let (channel, theirs) = Channel::pair().map_err(|error| error.to_string())?;
        let clone = |stream: BorrowedFd<'_>| {
            stream
                .try_clone_to_owned()
                .map_err(|error| error.to_string())
        };
        let spawn = Spawn {
            // The program that we are, also after the file was replaced by a newer one.
            program: "/proc/self/exe".into(),
            name: Some("weir: gateway".into()),
            arguments: vec![ROLE.into()],
            environment: environment(),
            identity: None,
            chroot: None,
            may_chroot: false,
            folder: None,
            open_files: None,
            core_size: None,
            priority: None,
            huge_pages: false,
            stdin: theirs.into(),
            stdout: clone(io::stdout().as_fd())?,
            stderr: clone(io::stderr().as_fd())?,
        };
        let pid = spawn.start().map_err(|error| error.to_string())?;
        put_first(pid, priority);
        self.due = None;
        self.running = Some(Running {
            pid,
            channel,
            queue: messages.into(),
            since: now,
            served: false,
            closed: None,
        });
        self.flush();
        Ok(())
    }

    /// Queues a message; without a gateway it is dropped, with what is attached.
    pub(super) fn send(&mut self, message: ToGateway) {
        if let Some(running) = &mut self.running {
            running.queue.push_back(message);
        }
    }

    /// Sends what the channel takes now.
    pub(super) fn flush(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        while let Some(message) = running.queue.front() {
            match running.channel.tell_gateway(message) {
                Ok(()) => drop(running.queue.pop_front()),
                Err(error) if is_full(&error) => break,
                // It is gone: its exit says why.
                Err(_) => return running.queue.clear(),
            }
        }
        if running.queue.len() > MAX_QUEUE {
            log::error!(
                "the gateway (process {}) takes no messages: killed",
                running.pid
            );
            running.queue.clear();
            self.kill();
        }
    }

    /// The next message from it; none: there is none now, or it is gone.
    pub(super) fn next(&mut self) -> Option<ToManager> {
        let running = self.running.as_mut()?;
        match running.channel.next_for_manager() {
            Ok(Some(message)) => Some(message),
            Ok(None) => {
                running.closed.get_or_insert_with(Instant::now);
                None
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => {
                log::error!("the gateway (process {}): {error}: killed", running.pid);
                self.kill();
                None
            }
        }
    }

    /// It has said that it serves.
    pub(super) fn serves(&mut self) {
        if let Some(running) = &mut self.running {
            running.served = true;
        }
    }

    /// The process ended: `None` if it is another one.
    pub(super) fn exited(&mut self, now: Instant, pid: u32) -> Option<Lived> {
        let running = self.running.take_if(|running| running.pid == pid)?;
        self.ping = None;
        Some(Lived {
            time: now - running.since,
            served: running.served,
        })
    }

    /// It serves from now on, and is asked for signs of life.
    pub(super) fn watch(&mut self, now: Instant) {
        self.alive = Some(now);
        self.ping = Some(now);
    }

    /// A sign of life: none of its threads has stood still for longer than `silent`.
    pub(super) fn is_alive(&mut self, now: Instant, silent: Duration) {
        let moved = now.checked_sub(silent);
        self.alive = self.alive.max(moved);
    }

    /// How long ago the last sign of life was; none: none is expected.
    pub(super) fn silent(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.alive?))
    }

    /// Plans the next start after a death; says when.
    pub(super) fn restart(&mut self, now: Instant, lived: Lived, exit: Exit) {
        let pause = lived.pause(&mut self.failures, &mut self.was_short, MAX_PAUSE);
        self.due = Some(now + pause);
        log::error!(
            "the gateway died: {exit}, after {:.1} s; connections wait in the kernel's queue, it starts again {}",
            lived.time.as_secs_f64(),
            describe_pause(pause)
        );
    }

    /// Tries again later, a start having failed.
    pub(super) fn restart_later(&mut self, now: Instant) {
        self.due = Some(now + back_off(self.failures, MAX_PAUSE));
        self.failures += 1;
    }

    /// Kills the process, if there is one.
    pub(super) fn kill(&mut self) {
        if let Some(running) = &self.running
            && let Err(error) = process::kill(running.pid)
        {
            log::error!("cannot kill the gateway (process {}): {error}", running.pid);
        }
    }

    /// Kills a process that neither listens to us any more nor ends, or that has given no sign of life for `limit` (zero:
    /// however long), and asks for one. Says whether it was killed for that.
    pub(super) fn tick(&mut self, now: Instant, limit: Duration) -> bool {
        self.end_astray(now);
        let Some(ping) = self.ping else {
            return false;
        };
        let every = ping_every(limit, self.often);
        let pause = self
            .looked
            .replace(now)
            .map_or(Duration::ZERO, |looked| now - looked);
        if pause > every * 2 {
            // We stood still ourselves, and cannot tell what it did meanwhile.
            self.alive = self.alive.map(|alive| (alive + pause).min(now));
        }
        let silent = self.silent(now).unwrap_or_default();
        if !limit.is_zero() && silent > limit {
            if let Some(pid) = self.pid() {
                log::error!(
                    "the gateway (process {pid}) has given no sign of life for {:.1} s ([server] gateway_timeout): it hangs, or was \
                     stopped; it is killed and replaced",
                    silent.as_secs_f64()
                );
            }
            self.kill();
            self.ping = None;
            return true;
        }
        if ping <= now {
            self.ping = Some(now + every);
            // One that takes nothing is not given more.
            if self.running.as_ref().is_some_and(|r| r.queue.is_empty()) {
                self.send(ToGateway::Ping);
                self.flush();
            }
        }
        false
    }

    fn end_astray(&mut self, now: Instant) {
        if let Some(running) = &mut self.running
            && let Some(closed) = &mut running.closed
            && *closed + LAST_WORDS <= now
        {
            log::error!(
                "the gateway (process {}) has left us and does not end: killed",
                running.pid
            );
            *closed = now;
            self.kill();
        }
    }

    /// No start is planned any more.
    pub(super) fn give_up(&mut self) {
        self.due = None;
    }

    pub(super) fn is_process(&self, pid: u32) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| running.pid == pid)
    }

    /// Its process; none while there is none.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.pid)
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether it is to be started now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// When something has to be done: a start, or another try to send.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let ping = self.ping.filter(|_| self.running.is_some());
        self.deadline_of_process(now).into_iter().chain(ping).min()
    }

    fn deadline_of_process(&self, now: Instant) -> Option<Instant> {
        match &self.running {
            Some(Running {
                closed: Some(closed),
                ..
            }) => Some(*closed + LAST_WORDS),
            Some(running) if !running.queue.is_empty() => Some(now + RESEND),
            _ => self.due,
        }
    }

    /// What to wait for. A closed channel can be read from for ever, and says nothing more.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let running = self.running.as_ref()?;
        running.closed.is_none().then_some(running.channel.as_fd())
    }
}

/// The life of a process that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lived {
    pub(super) time: Duration,
    /// It had done what it is for. Then its end was no failed start, however soon it came: something that it was given may
    /// have ended it, and others wait for its successor.
    pub(super) served: bool,
}

impl Lived {
    /// The pause before the next start; counts `failures` (starts in a row that failed), and notes whether this life was a
    /// short one.
    pub(super) fn pause(
        self,
        failures: &mut u32,
        was_short: &mut bool,
        most: Duration,
    ) -> Duration {
        let is_long = self.time >= LONG_LIFE;
        let again = std::mem::replace(was_short, !is_long);
        match (is_long, self.served) {
            (true, _) => {
                *failures = 1;
                Duration::ZERO
            }
            (false, true) => {
                *failures = 0;
                if again { SHORT_PAUSE } else { Duration::ZERO }
            }
            (false, false) => {
                *failures += 1;
                back_off(*failures - 1, most)
            }
        }
    }
}

/// How often a gateway is asked for a sign of life that may be silent for `limit`.
fn ping_every(limit: Duration, often: Option<Duration>) -> Duration {
    let limit = Some(limit / 8).filter(|limit| !limit.is_zero());
    let every = limit.into_iter().chain(often).min();
    every.map_or(PING_MOST, |every| every.clamp(PING_LEAST, PING_MOST))
}

/// See [`ping_every`].
const PING_LEAST: Duration = Duration::from_millis(100);

/// See [`ping_every`].
const PING_MOST: Duration = Duration::from_secs(2);

/// The pause before a start after so many failures in a row: 0.1 s, doubled each time, up to `most`.
pub(super) fn back_off(failures: u32, most: Duration) -> Duration {
    let pause = Duration::from_millis(100).saturating_mul(1 << failures.min(20));
    pause.min(most)
}

/// "at once", "in 0.4 s".
pub(super) fn describe_pause(pause: Duration) -> String {
    match pause.is_zero() {
        true => "at once".into(),
        false => format!("in {:.1} s", pause.as_secs_f64()),
    }
}

/// What of our environment the gateway gets: how text looks and how panics are told, nothing that libraries act on.
fn environment() -> Vec<(OsString, OsString)> {
    ["TZ", "LANG", "LC_ALL", "TERM", "NO_COLOR", "RUST_BACKTRACE"]
        .into_iter()
        .filter_map(|name| Some((name.into(), std::env::var_os(name)?)))
        .collect()
}

/// No more fits the channel now: its queue is full, or too many descriptors are under way (`ETOOMANYREFS`).
pub(super) fn is_full(error: &io::Error) -> bool {
    /// ETOOMANYREFS of Linux.
    const TOO_MANY: i32 = 109;
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(TOO_MANY)
}

/// One that has served and ends soon, again and again, starts after this each time.
const SHORT_PAUSE: Duration = Duration::from_millis(100);

/// What lived for so long starts again at once.
const LONG_LIFE: Duration = Duration::from_secs(5);

/// The longest pause between two starts.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// What a gateway that has closed its channel gets to write its logs and end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How soon a message is tried again that the channel had no room for.
const RESEND: Duration = Duration::from_millis(5);

/// Messages that a gateway may leave waiting; beyond, it is taken for stuck.
const MAX_QUEUE: usize = 16_384;

/// Has the kernel prefer the gateway to the workers that it feeds. It has one thread yet; those that it starts are
/// preferred as well.
fn put_first(pid: u32, wanted: Option<i32>) {
    let usual = || process::priority().map(|own| (own - weir_config::GATEWAY_FIRST).max(FIRST));
    let set = match wanted {
        Some(nice) => process::set_priority(pid, nice),
        // Without the right to do that it is as good as others.
        None => usual().and_then(|nice| process::set_priority(pid, nice).or(Ok(()))),
    };
    if let Err(error) = set {
        log::warn!("[server] process_priority: the gateway's priority cannot be set: {error}");
    }
}

/// The first of all nice values.
const FIRST: i32 = -20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_served_is_started_again_without_a_growing_pause() {
        let (mut failures, mut was_short) = (0, false);
        let mut pause = |seconds, served| {
            let time = Duration::from_secs(seconds);
            let lived = Lived { time, served };
            let pause = lived.pause(&mut failures, &mut was_short, Duration::from_secs(10));
            pause.as_millis()
        };
        let failed: Vec<u128> = (0..4).map(|_| pause(0, false)).collect();
        assert_eq!(failed, [100, 200, 400, 800]);
        let served: Vec<u128> = (0..4).map(|_| pause(1, true)).collect();
        assert_eq!(served, [100; 4]);
        assert_eq!(
            (pause(60, true), pause(1, true)),
            (0, 0),
            "the first is no series"
        );
        assert_eq!((pause(1, true), pause(0, false)), (100, 100));
    }

    #[test]
    fn a_gateway_is_given_up_when_its_silence_is_longer_than_the_limit_and_not_while_we_stood_still()
     {
        let (limit, step) = (Duration::from_secs(8), Duration::from_secs(1));
        let mut now = Instant::now();
        let mut gateway = Gateway::default();
        assert!(!gateway.tick(now, limit), "not watched yet");
        gateway.watch(now);
        let pass = |gateway: &mut Gateway, now: &mut Instant, steps: u32| {
            (0..steps).any(|_| {
                *now += step;
                gateway.tick(*now, limit)
            })
        };
        assert!(!pass(&mut gateway, &mut now, 8));
        gateway.is_alive(now, Duration::from_secs(3));
        assert_eq!(gateway.silent(now), Some(Duration::from_secs(3)));
        // A thread that has stood still for long is no sign of life, nor is an earlier sign worth less.
        gateway.is_alive(now, Duration::from_secs(9));
        assert_eq!(gateway.silent(now), Some(Duration::from_secs(3)));
        assert!(!pass(&mut gateway, &mut now, 5));
        // The whole machine was asleep.
        now += Duration::from_secs(600);
        assert!(!gateway.tick(now, limit));
        assert!(gateway.silent(now) <= Some(Duration::from_secs(8)));
        assert!(pass(&mut gateway, &mut now, 9));
        gateway.watch(now);
        now += Duration::from_secs(1);
        assert!((0..100).all(|_| {
            now += step;
            !gateway.tick(now, Duration::ZERO)
        }));
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let most = Duration::from_secs(10);
        assert_eq!(back_off(0, most), Duration::from_millis(100));
        assert_eq!(back_off(3, most), Duration::from_millis(800));
        assert_eq!(back_off(7, most), most);
        assert_eq!(back_off(u32::MAX, most), most);
    }
}
