//! How many requests each client has sent: a table of fixed size, shared by all reactors.
//!
//! Each client has a token bucket ([`weir_pool::EventRate`]), of which the table keeps one timestamp. nginx's `limit_req` with `nodelay` accepts the same requests.
//!
//! The table has sets of a few places. Each client belongs to one set. If the set is full, the client with the earliest
//! timestamp is dropped: it is furthest from its limit, so it gains least by this.

use std::sync::{Mutex, PoisonError};

use weir_config::Rate;
use weir_http::Fields;
use weir_pool::{EventRate, mixed};

/// A limit of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limit {
    rate: EventRate,
    /// `RateLimit-Policy`
    policy: String,
}

/// Whether a request passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passes {
        /// So many more may come at once.
        remaining: u64,
        /// The client has its whole quota again after this time, seconds.
        full: u64,
    },
    Exceeds {
        /// The next request passes after this time, seconds.
        wait: u64,
    },
}

/// The fields that tell a client of its limit (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug)]
pub(crate) struct RateFields {
    pub(crate) policy: String,
    pub(crate) state: String,
}

impl RateFields {
    /// Adds them to the head of an answer.
    pub(crate) fn add_to(&self, headers: &mut Fields) {
        // These are valid values.
        let _ = headers.insert("RateLimit-Policy", self.policy.as_bytes());
        let _ = headers.insert("RateLimit", self.state.as_bytes());
    }
}

/// When each client has its whole burst again.
#[derive(Debug)]
pub(crate) struct Rates {
    sets: Box<[Mutex<Set>]>,
}

type Set = [Place; WAYS];

#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// The client and the zone of its requests; 0: free.
    key: u64,
    /// Nanoseconds since the process began.
    full_at: u64,
}

impl Limit {
    pub(crate) fn new(rate: &Rate) -> Limit {
        let quota = u64::from(rate.burst) + 1;
        let rate = EventRate::new(rate.interval(), quota);
        let window = seconds(rate.interval().saturating_mul(quota));
        Limit {
            rate,
            policy: format!("\"default\";q={quota};w={window}"),
        }
    }

    /// Whether a request may come `now` from the client whose time this is.
    fn decide(&self, full_at: &mut u64, now: u64) -> Verdict {
        if let Err(wait) = self.rate.take(full_at, now) {
            return Verdict::Exceeds {
                wait: seconds(wait),
            };
        }
        let missing = *full_at - now;
        let used = missing.div_ceil(self.rate.interval());
        Verdict::Passes {
            remaining: self.rate.at_once().saturating_sub(used),
            full: seconds(missing),
        }
    }

    pub(crate) fn fields(&self, verdict: &Verdict) -> RateFields {
        let (remaining, time) = match *verdict {
            Verdict::Passes { remaining, full } => (remaining, full),
            Verdict::Exceeds { wait } => (0, wait),
        };
        RateFields {
            policy: self.policy.clone(),
            state: format!("\"default\";r={remaining};t={time}"),
        }
    }
}

impl Rates {
    /// A table for about `clients` clients.
    pub(crate) fn new(clients: usize) -> Rates {
        let sets = clients.div_ceil(WAYS).max(1);
        Rates {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
        }
    }

    /// Counts a request of a client in a zone. `now`: [`weir_observe::clock::now`].
    pub(crate) fn take(&self, (client, zone): (u64, u64), limit: &Limit, now: u64) -> Verdict {
        let key = mixed(client ^ mixed(zone)).max(1);
        // All bits of the key count. With a remainder, keys that differ by the number of sets would collide.
        let index = (u128::from(key) * self.sets.len() as u128) >> 64;
        let set = &self.sets[index as usize];
        let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
        let found = set.iter().position(|place| place.key == key);
        let at = found.unwrap_or_else(|| earliest(&set));
        let place = &mut set[at];
        if found.is_none() {
            *place = Place { key, full_at: 0 };
        }
        limit.decide(&mut place.full_at, now.saturating_mul(1_000))
    }
}

fn earliest(set: &Set) -> usize {
    let places = set.iter().enumerate();
    places
        .min_by_key(|(_, place)| place.full_at)
        .map_or(0, |(at, _)| at)
}

fn seconds(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000_000).max(1)
}

/// Places of a set.
const WAYS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn limit(count: u32, seconds: u64, burst: u32) -> Limit {
        Limit::new(&Rate {
            count,
            period: Duration::from_secs(seconds),
            burst,
        })
    }

    fn passes(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Passes { .. })
    }

    #[test]
    fn a_burst_passes_and_then_the_even_rate() {
        let (limit, rates) = (limit(10, 1, 20), Rates::new(1024));
        let passed = |now| passes(rates.take((1, 0), &limit, now));
        assert_eq!((0..50).filter(|_| passed(1_000_000)).count(), 21);
        assert!(!passed(1_099_999));
        assert!(passed(1_100_000) && !passed(1_100_000));
        let later = (0..100)
            .filter(|step| passed(1_100_000 + (step + 1) * 100_000))
            .count();
        assert_eq!(later, 100);
        // Another client and another zone have counts of their own.
        assert!(passes(rates.take((2, 0), &limit, 1_100_000)));
        assert!(passes(rates.take((1, 1), &limit, 1_100_000)));
    }

    #[test]
    fn clients_are_told_their_limit() {
        let (limit, rates) = (limit(2, 60, 1), Rates::new(1024));
        let take = |now| {
            let verdict = rates.take((1, 0), &limit, now);
            (limit.fields(&verdict).state, verdict)
        };
        assert_eq!(limit.policy, "\"default\";q=2;w=60");
        assert_eq!(take(0).0, "\"default\";r=1;t=30");
        assert_eq!(take(0).0, "\"default\";r=0;t=60");
        assert_eq!(
            take(1_000_000),
            ("\"default\";r=0;t=29".into(), Verdict::Exceeds { wait: 29 })
        );
    }

    #[test]
    fn the_table_never_grows_and_keeps_those_who_exceed() {
        let (limit, rates) = (limit(1, 3600, 4), Rates::new(1024));
        let heavy = (7, 0);
        while passes(rates.take(heavy, &limit, 0)) {}
        for client in 100..100_000 {
            rates.take((client, 0), &limit, 1);
            if client % 512 == 0 {
                assert!(!passes(rates.take(heavy, &limit, 1)), "{client}");
            }
        }
        assert_eq!(rates.sets.len(), 128);
    }

    proptest! {
        /// In any time, no more pass than the burst and what the rate gives; and a client that keeps to the rate always
        /// passes.
        #[test]
        fn no_more_pass_than_the_limit(
            count in 1_u32..50,
            burst in 0_u32..50,
            steps in prop::collection::vec(0_u64..300_000, 1..200),
        ) {
            let (limit, rates) = (limit(count, 1, burst), Rates::new(1024));
            let (mut now, mut passed) = (1_000_000_u64, Vec::new());
            for step in steps {
                now += step;
                if passes(rates.take((1, 0), &limit, now)) {
                    passed.push(now);
                }
            }
            for (index, first) in passed.iter().enumerate() {
                for (more, last) in passed[index..].iter().enumerate() {
                    let given = (last - first) * u64::from(count) / 1_000_000;
                    prop_assert!(more as u64 <= u64::from(burst) + given + 1);
                }
            }
            let even = limit.rate.interval().div_ceil(1_000);
            let begin = now + 10_000_000_000;
            prop_assert!((0..100).all(|step| passes(rates.take((1, 0), &limit, begin + step * even))));
        }
    }
}
