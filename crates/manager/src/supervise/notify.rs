//! Notifications for the service manager (sd_notify(3)): ready, reloading, stopping, and the watchdog for manager and
//! gateway.
//!
//! Without `NOTIFY_SOCKET` nothing is sent. An error in sending is ignored.

use std::{
    env,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::{Duration, Instant},
};

use weir_control::WorkerTotals;
use weir_observe::events;
use weir_sys::timer;

use crate::children::gateway::Gateway;

/// The service manager's socket.
#[derive(Debug)]
pub(crate) struct Notifier {
    socket: Option<UnixDatagram>,
    /// How often the watchdog wants a notification, and when the next one is due.
    watchdog: Option<(Duration, Instant)>,
    /// How often the service manager gets the figures of workers, as from PHP-FPM, and when the
    /// next ones are due.
    monitor: Option<(Duration, Instant)>,
    /// Number of requests in the last notification.
    requests: u64,
    /// weir was ready once. Before that, the watchdog expects nothing.
    has_served: bool,
    /// No reload has begun since. The message with the figures says that weir is ready, too.
    is_ready: bool,
}

impl Notifier {
    /// From the environment.
    pub(crate) fn new(now: Instant) -> Self {
        let socket = env::var("NOTIFY_SOCKET")
            .ok()
            .and_then(|name| connect(&name));
        Self {
            watchdog: watchdog_period()
                .filter(|_| socket.is_some())
                .map(|period| (period, now + period)),
            monitor: None,
            requests: 0,
            has_served: false,
            is_ready: false,
            socket,
        }
    }

    /// weir serves requests.
    pub(crate) fn ready(&mut self) {
        (self.has_served, self.is_ready) = (true, true);
        let pid = std::process::id();
        self.tell(&format!(
            "READY=1\nSTATUS=Ready to handle connections\nMAINPID={pid}"
        ));
    }

    /// Another process is the main one of this service now, and this one is silent from now on. Returns whether there is a
    /// service manager.
    pub(crate) fn main_is(&mut self, pid: u32) -> bool {
        self.tell(&format!("MAINPID={pid}\nREADY=1"));
        (self.watchdog, self.monitor) = (None, None);
        self.socket.take().is_some()
    }

    /// Used instead of PHP-FPM: sends the figures of the workers behind `gateway` every `millis`
    /// ms; 0: never. All figures are 0 at this time.
    pub(crate) fn monitor(&mut self, millis: i64, gateway: &mut Gateway) {
        events::monitored(millis);
        let now = Instant::now();
        let period = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        self.monitor = (self.socket.is_some() && !period.is_zero()).then(|| (period, now + period));
        self.requests = 0;
        if let (Some((every, due)), Some((same, at))) = (&mut self.watchdog, self.monitor)
            && *every == same
        {
            // Both in one message.
            *due = at;
        }
        if let Some((period, _)) = self.monitor {
            gateway.ask_every(period);
        }
    }

    /// A reload begins; [`ready`](Self::ready) reports its end.
    pub(crate) fn reloading(&mut self) {
        self.is_ready = false;
        let time = timer::monotonic();
        self.tell(&format!(
            "RELOADING=1\nMONOTONIC_USEC={time}\nSTATUS=Reloading"
        ));
    }

    /// weir ends.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=Stopping");
    }

    /// Notifies the watchdog if that is due and clients are served, and reports `work` if that is due. `silent`: how long
    /// ago the gateway last showed progress; `None`: nothing is expected of it yet.
    pub(crate) fn tick(&mut self, now: Instant, silent: Option<Duration>, work: &WorkerTotals) {
        let mut alive = false;
        if let Some((period, due)) = self.watchdog
            && due <= now
        {
            self.watchdog = Some((period, now + period));
            alive = self.has_served && silent.is_none_or(|silent| silent <= period);
        }
        if let Some((period, due)) = self.monitor
            && due <= now
        {
            self.monitor = Some((period, now + period));
            if self.is_ready {
                let watchdog = if alive { "WATCHDOG=1\n" } else { "" };
                let text = self.says(work, period);
                self.tell(&format!("READY=1\n{watchdog}{text}"));
                self.requests = work.requests;
                return;
            }
        }
        if alive {
            self.tell("WATCHDOG=1");
        }
    }

    /// In PHP-FPM's words.
    fn says(&self, work: &WorkerTotals, period: Duration) -> String {
        let WorkerTotals {
            active,
            idle,
            requests,
            slow,
        } = work;
        let rate = requests.saturating_sub(self.requests) as f64 / period.as_secs_f64();
        format!(
            "STATUS=Processes active: {active}, idle: {idle}, Requests: {requests}, slow: {slow}, \
             Traffic: {rate:.2}req/sec"
        )
    }

    /// When [`tick`](Self::tick) has something to send.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let both = [self.watchdog, self.monitor];
        both.into_iter().flatten().map(|(_, due)| due).min()
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(state.as_bytes())
        {
            log::debug!("cannot notify the service manager: {error}");
        }
    }
}

/// How often the watchdog wants a notification, if there is one.
pub(crate) fn watchdog_period() -> Option<Duration> {
    watchdog(
        env::var("WATCHDOG_USEC").ok().as_deref(),
        env::var("WATCHDOG_PID").ok().as_deref(),
    )
}

fn connect(name: &str) -> Option<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    // A service manager that does not read must not block us.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

/// Half of the watchdog's timeout, if it watches this process.
fn watchdog(micros: Option<&str>, pid: Option<&str>) -> Option<Duration> {
    let micros: u64 = micros?.parse().ok()?;
    let ours = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    (ours && micros > 0).then(|| Duration::from_micros(micros / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_fed_twice_as_often_as_it_asks() {
        let us = std::process::id().to_string();
        assert_eq!(
            watchdog(Some("10000000"), None),
            Some(Duration::from_secs(5))
        );
        assert_eq!(
            watchdog(Some("10000000"), Some(&us)),
            Some(Duration::from_secs(5))
        );
        assert_eq!(watchdog(Some("10000000"), Some("1")), None);
        assert_eq!(watchdog(Some("0"), None), None);
        assert_eq!(watchdog(None, None), None);
    }
}
