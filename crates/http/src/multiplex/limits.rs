//! What a client may do on a connection of HTTP/2 or HTTP/3. Frames that cost weir work and the client nearly nothing are counted.

use std::{collections::HashMap, time::Duration};

use super::head::Refused;

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
    /// Limits for tests: no more than a well-behaved client needs.
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

/// The streams that clients of a proxy have reset: each may reset as many as on a connection of its own. Who resets more is refused for
/// [`WINDOW`], and the connection stays, with the requests of other clients.
#[derive(Debug, Default)]
pub(crate) struct Clients(HashMap<u64, Resets>);

#[derive(Debug)]
struct Resets {
    /// How many are left, in units of 1 / [`WINDOW`] of one, and when that was right.
    left: u64,
    at: u64,
    refused_until: u64,
}

impl Clients {
    /// Counts a reset of a client that may have `most`. False: there are too many clients to remember this one.
    pub(crate) fn count(&mut self, client: u64, most: u32, now: u64) -> bool {
        if self.0.len() >= MOST_CLIENTS {
            let is_kept = |one: &Resets| now < one.refused_until.max(one.at + WINDOW);
            self.0.retain(|_, one| is_kept(one));
            if self.0.len() >= MOST_CLIENTS && !self.0.contains_key(&client) {
                return false;
            }
        }
        let whole = u64::from(most) * WINDOW;
        let resets = self.0.entry(client).or_insert(Resets {
            left: whole,
            at: now,
            refused_until: 0,
        });
        let since = now.saturating_sub(resets.at).min(WINDOW);
        (resets.left, resets.at) = ((resets.left + since * u64::from(most)).min(whole), now);
        if resets.left < WINDOW {
            resets.refused_until = now + WINDOW;
        }
        resets.left = resets.left.saturating_sub(WINDOW);
        true
    }

    /// Whether the client is refused.
    pub(crate) fn is_refused(&self, client: u64, now: u64) -> bool {
        let resets = self.0.get(&client);
        resets.is_some_and(|resets| now < resets.refused_until)
    }

    /// Whether nobody has reset anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The answer to clients that have reset too much.
pub(crate) const TOO_MANY_RESETS: Refused = Refused {
    status: http::StatusCode::TOO_MANY_REQUESTS,
    reason: "too_many_resets",
    why: "the client has reset more requests than http2_max_resets",
};

/// How many clients of a connection are remembered.
const MOST_CLIENTS: usize = 1024;

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

    #[test]
    fn a_client_of_a_proxy_is_refused_alone_and_for_a_while() {
        let mut clients = Clients::default();
        for _ in 0..10 {
            assert!(clients.count(7, 10, 5) && clients.count(8, 11, 5));
        }
        assert!(!clients.is_refused(7, 5));
        clients.count(7, 10, 5);
        clients.count(8, 11, 5);
        assert!(clients.is_refused(7, 5) && !clients.is_refused(8, 5));
        assert!(clients.is_refused(7, 4 + WINDOW) && !clients.is_refused(7, 5 + WINDOW));
        // It has as many again then.
        let now = 20 + WINDOW;
        (0..10).for_each(|_| _ = clients.count(7, 10, now));
        assert!(!clients.is_refused(7, now));
        // Clients that have done nothing for a while are forgotten to make room for others.
        let mut others = 100..100 + MOST_CLIENTS as u64 - 2;
        assert!(others.all(|client| clients.count(client, 10, now)));
        assert!(clients.count(5000, 10, now + 5));
        assert!(!clients.count(5001, 10, now + 6) || clients.0.len() < MOST_CLIENTS);
        assert!(clients.count(5001, 10, now + WINDOW));
        assert!(clients.0.len() < 4, "{}", clients.0.len());
    }
}
