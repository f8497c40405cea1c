//! What a client may do on a connection of HTTP/2 or HTTP/3. Frames that cost weir work and the client nearly nothing are counted.

use std::time::Duration;

/// The limits of a listener's connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a head, as [`weir_http1::Limits`] counts them.
    pub head: u32,
    /// Fields of a head.
    pub fields: u32,
    /// Requests at the same time.
    pub streams: u32,
    /// Streams that are reset within [`WINDOW`], by either side.
    pub resets: u32,
    /// PING frames within that time.
    pub pings: u32,
    /// SETTINGS frames within that time.
    pub settings: u32,
    /// Frames within that time that carry little or nothing, see [`Kind::Small`].
    pub small_frames: u32,
    /// Bytes of a request's body that the client may send before they are read.
    pub stream_window: u32,
    /// The same for all bodies of a connection.
    pub window: u32,
    /// A client that has requests and sends nothing for so long gets a PING, and after the same time again the connection is
    /// closed. Zero: never.
    pub ping: Duration,
}

#[cfg(any(test, feature = "checks"))]
impl Limits {
    /// Those of tests: no more than a client that behaves needs.
    pub(crate) const fn of_checks() -> Limits {
        Limits {
            head: 8192,
            fields: 10,
            streams: 100,
            resets: 100,
            pings: 100,
            settings: 100,
            small_frames: 1000,
            stream_window: 1 << 20,
            window: 4 << 20,
            ping: Duration::ZERO,
        }
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Reset,
    Ping,
    Settings,
    /// DATA with fewer than [`SMALL_DATA`] bytes, heads in more than one frame, PRIORITY, PRIORITY_UPDATE, unknown frames,
    /// and WINDOW_UPDATE beyond what the bytes sent explain.
    Small,
}

impl Kind {
    /// The option that limits it.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Kind::Reset => "http2_max_resets",
            Kind::Ping => "http2_max_pings",
            Kind::Settings => "http2_max_settings",
            Kind::Small => "http2_max_small_frames",
        }
    }
}

/// Counts events of each kind: so many at once, and so many again in each [`WINDOW`].
#[derive(Debug)]
pub(crate) struct Counter {
    most: [u32; 4],
    /// How many are left, in units of 1 / [`WINDOW`] of an event.
    left: [u64; 4],
    /// When `left` was right ([`weir_observe::clock::now`]).
    at: u64,
}

impl Counter {
    pub(crate) fn new(limits: &Limits, now: u64) -> Counter {
        let most = [
            limits.resets,
            limits.pings,
            limits.settings,
            limits.small_frames,
        ];
        Counter {
            most,
            left: most.map(|most| u64::from(most) * WINDOW),
            at: now,
        }
    }

    /// Counts one event. False: there were too many.
    pub(crate) fn count(&mut self, kind: Kind, now: u64) -> bool {
        let since = now.saturating_sub(self.at).min(WINDOW);
        if since > 0 {
            self.at = now;
            for (left, most) in self.left.iter_mut().zip(self.most) {
                *left = (*left + since * u64::from(most)).min(u64::from(most) * WINDOW);
            }
        }
        let left = &mut self.left[kind as usize];
        let is_allowed = *left >= WINDOW;
        *left = left.saturating_sub(WINDOW);
        is_allowed
    }
}

/// The time for which frames are counted, µs.
pub const WINDOW: u64 = 10_000_000;

/// DATA frames with fewer bytes are small.
pub(crate) const SMALL_DATA: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_so_many_in_each_window() {
        let limits = Limits {
            resets: 10,
            pings: 2,
            settings: 1,
            small_frames: 0,
            ..Limits::of_checks()
        };
        let mut counter = Counter::new(&limits, 5);
        let mut allowed = |kind, now, most: usize| {
            let count = (0..=most).take_while(|_| counter.count(kind, now)).count();
            assert_eq!(count, most, "{kind:?} at {now}");
        };
        allowed(Kind::Reset, 5, 10);
        allowed(Kind::Ping, 5, 2);
        allowed(Kind::Settings, 5, 1);
        allowed(Kind::Small, 5, 0);
        allowed(Kind::Reset, 5 + WINDOW / 10, 1);
        allowed(Kind::Reset, 5 + WINDOW / 2, 4);
        allowed(Kind::Reset, 5 + 9 * WINDOW, 10);
        allowed(Kind::Ping, 5 + 9 * WINDOW, 2);
    }
}
