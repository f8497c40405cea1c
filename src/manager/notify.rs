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

use weir_sys::daemon;

/// The service manager's socket.
#[derive(Debug)]
pub(super) struct Notifier {
    socket: Option<UnixDatagram>,
    /// How often the watchdog wants a notification, and when the next one is due.
    watchdog: Option<(Duration, Instant)>,
}

impl Notifier {
    /// From the environment.
    pub(super) fn new(now: Instant) -> Self {
        let socket = env::var("NOTIFY_SOCKET")
            .ok()
            .and_then(|name| connect(&name));
        Self {
            watchdog: watchdog_period()
                .filter(|_| socket.is_some())
                .map(|period| (period, now + period)),
            socket,
        }
    }

    /// weir serves requests.
    pub(super) fn ready(&self) {
        let pid = std::process::id();
        self.tell(&format!(
            "READY=1\nMAINPID={pid}\nSTATUS=Ready to handle connections"
        ));
    }

    /// A reload begins; [`ready`](Self::ready) reports its end.
    pub(super) fn reloading(&self) {
        let time = daemon::monotonic_micros();
        self.tell(&format!(
            "RELOADING=1\nMONOTONIC_USEC={time}\nSTATUS=Reloading"
        ));
    }

    /// weir ends.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=Stopping");
    }

    /// Notifies the watchdog if that is due and clients are served. `silent`: how long ago the gateway last showed
    /// progress; `None`: nothing is expected of it yet.
    pub(super) fn tick(&mut self, now: Instant, silent: Option<Duration>) {
        if let Some((period, due)) = self.watchdog
            && due <= now
        {
            self.watchdog = Some((period, now + period));
            if silent.is_none_or(|silent| silent <= period) {
                self.tell("WATCHDOG=1");
            }
        }
    }

    /// When [`tick`](Self::tick) has something to send.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.watchdog.map(|(_, due)| due)
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(state.as_bytes())
        {
            log::debug!("the service manager cannot be told: {error}");
        }
    }
}

/// How often the watchdog wants a notification, if there is one.
pub(super) fn watchdog_period() -> Option<Duration> {
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
