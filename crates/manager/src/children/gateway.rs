//! The gateway as the manager sees it: a process, a channel, and the messages that the channel has not
//! accepted yet.
//!
//! A gateway that dies is restarted: at once if it lived for some time, after a short pause if it had served, and
//! otherwise after a pause that doubles each time. A gateway that accepts no messages any more is killed, and so is
//! one that does not respond: the manager sends `ToGateway::Ping` regularly, and the gateway reports how long its
//! slowest thread has made no progress.

use std::{
    ffi::OsString,
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use weir_control::{Channel, ToGateway, ToManager};
use weir_sys::{
    limits,
    process::{Exit, Spawn},
};

use super::{jail::ROLE, role, unsent::Unsent};

/// A gateway that runs or will be restarted.
#[derive(Debug, Default)]
pub(crate) struct Gateway {
    running: Option<Running>,
    /// When to restart it.
    due: Option<Instant>,
    /// Number of deaths in a row before it served.
    failures: u32,
    /// Whether the last one lived only for a short time.
    was_short: bool,
    /// When this gateway or its predecessor last showed progress.
    alive: Option<Instant>,
    /// When the next ping is due; `None`: no pings.
    ping: Option<Instant>,
    /// When [`tick`](Self::tick) last ran.
    looked: Option<Instant>,
    /// Maximum time between pings; `None`: no such maximum.
    often: Option<Duration>,
}

#[derive(Debug)]
struct Running {
    pid: u32,
    channel: Channel,
    unsent: Unsent<ToGateway>,
    since: Instant,
    /// Whether it got all that it needs. What is told to it before is dropped, as without a gateway.
    begun: bool,
    /// Whether it has reported that it is ready.
    served: bool,
    /// When it closed its end of the channel: it is about to end, or in a wrong state.
    closed: Option<Instant>,
}

impl Gateway {
    /// A gateway that is not started yet. `watchdog`: how often the service manager wants a notification.
    pub(crate) fn new(watchdog: Option<Duration>) -> Self {
        Self {
            often: watchdog.map(|period| period / 4),
            ..Self::default()
        }
    }

    /// Asks the gateway for its reports at least once per `period`.
    pub(crate) fn ask_every(&mut self, period: Duration) {
        let often = self.often.into_iter().chain([period / 4]).min();
        self.often = often;
    }

    /// Starts the process and sends it its first `messages`. It reads the configuration, and waits for [`begin`](Self::begin).
    pub(crate) fn start(
        &mut self,
        now: Instant,
        messages: Vec<ToGateway>,
        priority: Option<i32>,
    ) -> Result<(), String> {
        let (pid, channel) = role::start("weir: gateway", ROLE, |spawn| Spawn {
            environment: environment(),
            priority: first(priority),
            ..spawn
        })?;
        self.due = None;
        self.running = Some(Running {
            pid,
            channel: Channel::new(channel),
            unsent: messages.into(),
            since: now,
            begun: false,
            served: false,
            closed: None,
        });
        self.flush();
        Ok(())
    }

    /// Sends the process the other messages for its start.
    pub(crate) fn begin(&mut self, messages: Vec<ToGateway>) {
        if let Some(running) = &mut self.running {
            running.unsent.extend(messages);
            running.begun = true;
        }
        self.flush();
    }

    /// Queues a message; without a gateway that has begun it is dropped, with its descriptor.
    pub(crate) fn send(&mut self, message: ToGateway) {
        if let Some(running) = self.running.as_mut().filter(|running| running.begun) {
            running.unsent.push(message);
        }
    }

    /// Asks the process to end. One that has not begun has nothing to finish.
    pub(crate) fn stop(&mut self) {
        self.due = None;
        match self.has_begun() {
            true => self.send(ToGateway::Stop),
            false => self.kill(),
        }
        self.flush();
    }

    /// Sends as many messages as the channel accepts now.
    pub(crate) fn flush(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        let channel = &running.channel;
        let sent = running
            .unsent
            .flush(|message| channel.tell_gateway(message));
        if sent.is_err() {
            // The gateway has ended. Its exit status says why.
            return running.unsent.clear();
        }
        // Until the gateway serves, the queue may be longer.
        if running.served && running.unsent.len() > MAX_QUEUE {
            log::error!(
                "the gateway (process {}) does not read messages: killed",
                running.pid
            );
            running.unsent.clear();
            self.kill();
        }
    }

    /// The next message from it; `None`: there is none now, or it is gone.
    pub(crate) fn next(&mut self) -> Option<ToManager> {
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

    /// The gateway has reported that it serves.
    pub(crate) fn serves(&mut self) {
        if let Some(running) = &mut self.running {
            running.served = true;
        }
    }

    /// The process has ended; `None` if it is not this gateway's.
    pub(crate) fn exited(&mut self, now: Instant, pid: u32) -> Option<Lifetime> {
        let running = self.running.take_if(|running| running.pid == pid)?;
        self.ping = None;
        Some(Lifetime {
            time: now - running.since,
            served: running.served,
        })
    }

    /// The gateway serves from now on, and gets pings.
    pub(crate) fn watch(&mut self, now: Instant) {
        self.alive = Some(now);
        self.ping = Some(now);
    }

    /// The gateway has responded: none of its threads was without progress for longer than `silent`.
    pub(crate) fn is_alive(&mut self, now: Instant, silent: Duration) {
        let moved = now.checked_sub(silent);
        self.alive = self.alive.max(moved);
    }

    /// How long ago it last showed progress; `None`: nothing is expected yet.
    pub(crate) fn silent(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.alive?))
    }

    /// Plans the restart after its death; returns when.
    pub(crate) fn restart(&mut self, now: Instant, lived: Lifetime, exit: Exit) {
        let pause = lived.pause(&mut self.failures, &mut self.was_short, MAX_PAUSE);
        self.due = Some(now + pause);
        log::error!(
            "the gateway died: {exit}, after {:.1} s; connections wait in the kernel's queue, a new gateway starts {}",
            lived.time.as_secs_f64(),
            describe_pause(pause)
        );
    }

    /// Plans another try after a failed start.
    pub(crate) fn restart_later(&mut self, now: Instant) {
        self.due = Some(now + back_off(self.failures, MAX_PAUSE));
        self.failures += 1;
    }

    /// Kills the process, if there is one.
    pub(crate) fn kill(&mut self) {
        if let Some(running) = &self.running {
            role::kill("the gateway", running.pid);
        }
    }

    /// Kills a process that neither reads our messages nor ends, or that has not responded for `limit` (zero: no
    /// limit), and sends pings. Returns whether it was killed because it did not respond.
    pub(crate) fn tick(&mut self, now: Instant, limit: Duration) -> bool {
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
            // The manager itself was stopped, so it does not know what the gateway did meanwhile.
            self.alive = self.alive.map(|alive| (alive + pause).min(now));
        }
        let silent = self.silent(now).unwrap_or_default();
        if !limit.is_zero() && silent > limit {
            if let Some(pid) = self.pid() {
                log::error!(
                    "the gateway (process {pid}) has given no sign of life for {:.1} s ([server] gateway_timeout): it \
                     hangs or was stopped, so it is killed and replaced",
                    silent.as_secs_f64()
                );
            }
            self.kill();
            self.ping = None;
            return true;
        }
        if ping <= now {
            self.ping = Some(now + every);
            // If its queue is not empty, it gets no further pings.
            if self.running.as_ref().is_some_and(|r| r.unsent.is_empty()) {
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
                "the gateway (process {}) closed its channel but does not end: killed",
                running.pid
            );
            *closed = now;
            self.kill();
        }
    }

    pub(crate) fn is_process(&self, pid: u32) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| running.pid == pid)
    }

    /// Its process; `None` if there is none.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.pid)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether there is a process that got all that it needs.
    pub(crate) fn has_begun(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.begun)
    }

    /// Whether it must be started now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// When something must be done: a start, or another try to send.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let ping = self.ping.filter(|_| self.running.is_some());
        self.deadline_of_process(now).into_iter().chain(ping).min()
    }

    fn deadline_of_process(&self, now: Instant) -> Option<Instant> {
        match &self.running {
            Some(Running {
                closed: Some(closed),
                ..
            }) => Some(*closed + LAST_WORDS),
            Some(running) if !running.unsent.is_empty() => running.unsent.next_flush(now),
            _ => self.due,
        }
    }

    /// The descriptor to wait for. A closed channel would be readable forever, so it is left out.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let running = self.running.as_ref()?;
        running.closed.is_none().then_some(running.channel.as_fd())
    }
}

/// How a process lived that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) time: Duration,
    /// Whether it had served. Then its end does not count as a failed start, however soon it came: a request may have
    /// crashed it, and other requests wait for its successor.
    pub(crate) served: bool,
}

impl Lifetime {
    /// The pause before the next start. Updates `failures` (failed starts in a row), and notes whether this life was
    /// short.
    pub(crate) fn pause(
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

/// How often a gateway is pinged that may be silent for `limit`.
fn ping_every(limit: Duration, often: Option<Duration>) -> Duration {
    let limit = Some(limit / 8).filter(|limit| !limit.is_zero());
    let every = limit.into_iter().chain(often).min();
    every.map_or(PING_MOST, |every| every.clamp(PING_LEAST, PING_MOST))
}

/// Minimum of [`ping_every`].
const PING_LEAST: Duration = Duration::from_millis(100);

/// Maximum of [`ping_every`].
const PING_MOST: Duration = Duration::from_secs(2);

/// The pause before a start after this many failures in a row: 0.1 s, doubled each time, up to `most`.
pub(crate) fn back_off(failures: u32, most: Duration) -> Duration {
    let pause = Duration::from_millis(100).saturating_mul(1 << failures.min(20));
    pause.min(most)
}

/// "at once", "in 0.4 s".
pub(crate) fn describe_pause(pause: Duration) -> String {
    match pause.is_zero() {
        true => "at once".into(),
        false => format!("in {:.1} s", pause.as_secs_f64()),
    }
}

/// The part of our environment that the gateway gets: settings for text and panics, nothing that changes how
/// libraries work.
fn environment() -> Vec<(OsString, OsString)> {
    ["TZ", "LANG", "LC_ALL", "TERM", "NO_COLOR", "RUST_BACKTRACE"]
        .into_iter()
        .filter_map(|name| Some((name.into(), std::env::var_os(name)?)))
        .collect()
}

/// Pause before each start of a gateway that has served but repeatedly ends soon.
const SHORT_PAUSE: Duration = Duration::from_millis(100);

/// A process that lived this long is restarted at once.
const LONG_LIFE: Duration = Duration::from_secs(5);

/// Maximum pause between two starts.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// How long a gateway that has closed its channel may take to write its logs and end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Maximum number of waiting messages; with more, the gateway counts as stuck.
const MAX_QUEUE: usize = 16_384;

/// The gateway's priority, which is higher than that of the workers unless the operator has `wanted` another one. `None`: ours,
/// because we may not raise it.
fn first(wanted: Option<i32>) -> Option<i32> {
    let nice = match wanted {
        Some(nice) => nice,
        None => (limits::priority().ok()? - weir_config::GATEWAY_FIRST).max(FIRST),
    };
    let may = limits::may_set_priority(nice);
    if !may && wanted.is_some() {
        log::warn!(
            "[server] process_priority: the gateway's priority cannot be set: weir may not raise it to {nice}"
        );
    }
    may.then_some(nice)
}

/// The highest priority.
const FIRST: i32 = -20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_served_is_started_again_without_a_growing_pause() {
        let (mut failures, mut was_short) = (0, false);
        let mut pause = |seconds, served| {
            let time = Duration::from_secs(seconds);
            let lived = Lifetime { time, served };
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
        // A thread without progress for a long time is not a sign of life, but does not reduce an earlier one either.
        gateway.is_alive(now, Duration::from_secs(9));
        assert_eq!(gateway.silent(now), Some(Duration::from_secs(3)));
        assert!(!pass(&mut gateway, &mut now, 5));
        // The whole machine was suspended.
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
