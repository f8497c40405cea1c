//! Finds a proxy that is missing in `trusted`: most of its requests name the client, but weir does not believe them. So
//! all of its visitors count as one client for logs, limits and the queue, and operators must know this.
//!
//! Anybody can send such fields. So weir reports a peer only if most of its requests have such fields, and if it sends
//! a good part of all requests. Only a few peers are counted, and nothing is counted before the first such field. A
//! reactor skips a count while another reactor is counting, because this does not change the shares.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct Untrusted {
    /// Whether anybody sends such fields.
    any: AtomicBool,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// When the present window has begun.
    begun: Option<Instant>,
    /// Requests in it, of all peers.
    all: u64,
    peers: Vec<Peer>,
    /// The last peer that seemed to be a proxy, and when.
    found: Option<(Peer, Instant)>,
}

#[derive(Debug, Clone)]
struct Peer {
    /// The hash of its address ([`crate::scripts::policy::client_of`]).
    client: u64,
    address: String,
    /// Its requests in this window, and how many of these have such a field.
    requests: u64,
    told: u64,
}

impl Untrusted {
    /// A request of a peer without such fields.
    #[inline]
    pub(crate) fn plain(&self, client: u64) {
        if self.any.load(Relaxed) {
            self.count(client, None, Instant::now());
        }
    }

    /// A request of a peer that is not trusted, with such a field.
    pub(crate) fn told(&self, client: u64, address: &str) {
        self.any.store(true, Relaxed);
        self.count(client, Some(address), Instant::now());
    }

    #[cold]
    fn count(&self, client: u64, told: Option<&str>, now: Instant) {
        let Ok(mut counts) = self.counts.try_lock() else {
            return;
        };
        self.turn(&mut counts, now);
        counts.begun.get_or_insert(now);
        counts.all += 1;
        let known = counts.peers.iter().position(|peer| peer.client == client);
        match (known, told) {
            (Some(index), told) => {
                let peer = &mut counts.peers[index];
                peer.requests += 1;
                peer.told += u64::from(told.is_some());
            }
            (None, Some(address)) if counts.peers.len() < MOST => counts.peers.push(Peer {
                client,
                address: address.to_owned(),
                requests: 1,
                told: 1,
            }),
            (None, _) => {}
        }
    }

    /// Ends a window whose time is over.
    fn turn(&self, counts: &mut Counts, now: Instant) {
        let is_over = |begun: Instant| now.saturating_duration_since(begun) >= WINDOW;
        if !counts.begun.is_some_and(is_over) {
            return;
        }
        let all = std::mem::take(&mut counts.all);
        let peers = std::mem::take(&mut counts.peers);
        counts.begun = None;
        if peers.is_empty() {
            self.any.store(false, Relaxed);
        }
        let is_proxy = |peer: &Peer| {
            peer.told >= LEAST && peer.told * 2 > peer.requests && peer.requests * 5 >= all
        };
        let first = peers.into_iter().filter(is_proxy);
        if let Some(peer) = first.max_by_key(|peer| peer.requests) {
            counts.found = Some((peer, now));
        }
    }

    /// The peer that seems to be a proxy, for the status; null if there is none.
    pub(crate) fn status(&self) -> Value {
        self.found(Instant::now())
    }

    fn found(&self, now: Instant) -> Value {
        let mut counts = self.lock();
        self.turn(&mut counts, now);
        let found = counts.found.as_ref();
        let found = found.filter(|(_, at)| now.saturating_duration_since(*at) < KEPT);
        found.map_or(Value::Null, |(peer, at)| {
            json!({
                "address": peer.address,
                "requests": peer.requests,
                "with_client": peer.told,
                "ago": now.saturating_duration_since(*at).as_secs(),
            })
        })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long requests are counted before the result is evaluated.
const WINDOW: Duration = Duration::from_secs(5);

/// How many of a peer's requests in a window must have such a field, at least.
const LEAST: u64 = 10;

/// How long operators are told.
const KEPT: Duration = Duration::from_secs(600);

/// Peers that are counted in a window, at most.
const MOST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts of these peers in one window: requests with such a field, and without.
    fn found(peers: &[(u64, u64)]) -> Option<String> {
        let (untrusted, now) = (Untrusted::default(), Instant::now());
        untrusted.any.store(true, Relaxed);
        for (client, (told, plain)) in (1..).zip(peers) {
            let address = format!("192.0.2.{client}");
            for _ in 0..*told {
                untrusted.count(client, Some(&address), now);
            }
            for _ in 0..*plain {
                untrusted.count(client, None, now);
            }
        }
        assert_eq!(untrusted.found(now), Value::Null, "not before its end");
        let found = untrusted.found(now + WINDOW);
        assert_eq!(untrusted.found(now + WINDOW + KEPT), Value::Null);
        Some(found["address"].as_str()?.to_owned())
    }

    #[test]
    fn a_proxy_is_one_that_names_clients_with_most_of_a_good_part_of_all_requests() {
        let first = Some("192.0.2.1".to_owned());
        assert_eq!(found(&[(10, 0)]), first);
        assert_eq!(found(&[(9, 0)]), None, "too few");
        assert_eq!(found(&[(10, 9)]), first);
        assert_eq!(found(&[(10, 10)]), None, "not most of its requests");
        assert_eq!(found(&[(10, 0), (0, 40)]), first);
        assert_eq!(
            found(&[(10, 0), (0, 41)]),
            None,
            "a stranger among visitors"
        );
        assert_eq!(found(&[(20, 0), (50, 0)]), Some("192.0.2.2".to_owned()));
    }

    #[test]
    fn strangers_take_no_memory_and_who_stops_is_counted_no_more() {
        let (untrusted, now) = (Untrusted::default(), Instant::now());
        for client in 1..=1_000 {
            untrusted.any.store(true, Relaxed);
            untrusted.count(client, Some("192.0.2.1"), now);
        }
        assert_eq!(untrusted.lock().peers.len(), MOST);
        untrusted.count(1, None, now + WINDOW);
        assert!(untrusted.any.load(Relaxed));
        untrusted.count(1, None, now + WINDOW * 2);
        assert!(!untrusted.any.load(Relaxed));
    }
}
