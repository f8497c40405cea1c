//! Which silent connections make room for new ones when `max_connections` is reached. A connection is silent while no whole head of a
//! request has come: nothing at all, a part of a handshake of TLS or QUIC, a part of a head.
//!
//! # The rule
//!
//! 1. Those that have been silent for more than [`GRACE`] go first: of the network that has the most silent connections, the newest.
//! 2. Then connections that rest between two requests, the longest first ([`super::sweep`]).
//! 3. Then younger silent ones: of the network that has the most, the oldest.
//!
//! A network is what `max_connections_per_address` counts: an IPv4 address, or the /64 of an IPv6 address.
//!
//! # Why
//!
//! A silent connection costs its client nearly nothing, so an attacker who wants to keep others out opens many. If the
//! order did not depend on networks, the attacker's new connections would close those of other clients. With this order
//! they close connections of the attacker's own network, as long as other networks have fewer, and a single slow client
//! loses nothing. Even an attacker with a thousand addresses and two connections from each closes his own connections
//! before the only connection of a visitor. QUIC datagrams with a forged address do not count for that address: near
//! the limit the sender must prove its address (Retry).
//!
//! weir cannot distinguish clients of one network. Within a network it closes the newest connections, so that those
//! from before a flood stay. But the newest may be a visitor's, whose head is on its way. So connections younger than
//! [`GRACE`] are spared. If all are that young, the oldest of them is closed: each then had as much time as the flood
//! took to fill the table.
//!
//! Connections with requests come after silent ones that are not young, since their clients are known to be served. An
//! attacker can send one request and then stay idle, but other limits count such requests, and idle connections are
//! closed too, those that were idle longest first.

use std::{
    collections::{BinaryHeap, HashMap},
    rc::Rc,
};

use super::{client::Conn, idle, sweep};
use crate::Gateway;

/// A silent connection of this reactor.
#[derive(Debug)]
pub(crate) struct Silent<P> {
    /// [`crate::scripts::policy::client_of`]
    pub(crate) network: u64,
    /// When it was opened, or when the first byte of its head came ([`weir_observe::clock::now`]).
    pub(crate) since: u64,
    pub(crate) place: P,
}

/// Where it is.
enum Place {
    /// In the list of those without a task.
    Listed(usize),
    /// It has a task.
    Conn(Rc<Conn>),
}

/// The two groups of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    Grown,
    Young,
}

/// What a reactor has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The number of silent connections in the fullest network. Networks in which all of them are young do not count;
    /// 0: there is no other network.
    pub(crate) fullest: usize,
    /// How many are young.
    pub(crate) young: usize,
}

/// Counts the silent connections of this reactor.
pub(crate) fn count(gateway: &Gateway, now: u64) -> Counts {
    counts(&all(gateway), now)
}

/// Closes silent connections of this reactor, `share` of those of this age. Returns how many.
pub(crate) fn close(
    gateway: &Gateway,
    age: Age,
    share: impl Fn(usize) -> usize,
    now: u64,
) -> usize {
    let (mut listed, mut count) = (Vec::new(), 0);
    for place in choose(all(gateway), age, share, now) {
        match place {
            Place::Listed(slot) => listed.push(slot),
            Place::Conn(conn) => {
                conn.give_up_if_idle();
                count += 1;
            }
        }
    }
    count + idle::close_these(listed)
}

fn all(gateway: &Gateway) -> Vec<Silent<Place>> {
    let mut all = Vec::new();
    idle::each_silent(gateway, |silent| {
        all.push(Silent {
            network: silent.network,
            since: silent.since,
            place: Place::Listed(silent.place),
        });
    });
    sweep::each_of_client(gateway, |conn| {
        all.extend(conn.silent_since().map(|since| Silent {
            network: conn.endpoints.client,
            since,
            place: Place::Conn(conn.clone()),
        }));
    });
    all
}

fn counts<P>(all: &[Silent<P>], now: u64) -> Counts {
    let mut networks: HashMap<u64, (usize, bool)> = HashMap::new();
    let mut young = 0;
    for silent in all {
        let is_grown = age(silent.since, now) == Age::Grown;
        young += usize::from(!is_grown);
        let network = networks.entry(silent.network).or_default();
        network.0 += 1;
        network.1 |= is_grown;
    }
    let grown = networks.values().filter(|(_, is_grown)| *is_grown);
    Counts {
        fullest: grown.map(|(count, _)| *count).max().unwrap_or(0),
        young,
    }
}

/// Chooses the connections to close: `share` of the connections of this age.
fn choose<P>(all: Vec<Silent<P>>, wanted: Age, share: impl Fn(usize) -> usize, now: u64) -> Vec<P> {
    // Who goes first has the largest key.
    let key = |since: u64| match wanted {
        Age::Grown => since,
        Age::Young => u64::MAX - since,
    };
    let mut networks: HashMap<u64, (usize, Vec<Silent<P>>)> = HashMap::new();
    let mut candidates = 0;
    for silent in all {
        let network = networks.entry(silent.network).or_default();
        network.0 += 1;
        if age(silent.since, now) == wanted {
            candidates += 1;
            network.1.push(silent);
        }
    }
    let mut fullest = BinaryHeap::new();
    for (network, (count, those)) in &mut networks {
        those.sort_unstable_by_key(|silent| key(silent.since));
        fullest.extend(those.last().map(|next| (*count, key(next.since), *network)));
    }
    let (most, mut chosen) = (share(candidates).min(candidates), Vec::new());
    while chosen.len() < most
        && let Some((count, _, network)) = fullest.pop()
    {
        let those = networks.get_mut(&network).map(|(_, those)| those);
        let Some(those) = those else { continue };
        chosen.extend(those.pop().map(|silent| silent.place));
        fullest.extend(
            those
                .last()
                .map(|next| (count - 1, key(next.since), network)),
        );
    }
    chosen
}

fn age(since: u64, now: u64) -> Age {
    match now.saturating_sub(since) > GRACE {
        true => Age::Grown,
        false => Age::Young,
    }
}

/// How long a client may take that has just connected, µs: some journeys of its packets, with a handshake.
const GRACE: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 100 * GRACE;

    /// Silent connections: network, age in tenths of the grace, name.
    fn silent(list: &[(u64, u64, &'static str)]) -> Vec<Silent<&'static str>> {
        let one = |(network, tenths, place): &(u64, u64, &'static str)| Silent {
            network: *network,
            since: NOW - tenths * GRACE / 10,
            place: *place,
        };
        list.iter().map(one).collect()
    }

    #[test]
    fn the_newest_of_the_fullest_network_go_and_one_that_is_slow_stays() {
        let all = [
            (1, 90, "slow"),
            (2, 40, "a1"),
            (2, 30, "a2"),
            (2, 20, "a3"),
            (2, 5, "a4"),
            (3, 60, "b1"),
            (3, 50, "b2"),
        ];
        let go = |most| choose(silent(&all), Age::Grown, |_| most, NOW);
        assert_eq!(go(1), ["a3"]);
        // With as many in two networks, the newest of both.
        assert_eq!(go(3), ["a3", "a2", "a1"]);
        assert_eq!(go(5)[3..], ["b2", "b1"]);
        assert_eq!(go(9).len(), 6, "the young one is left alone");
        let counts = counts(&silent(&all), NOW);
        assert_eq!((counts.fullest, counts.young), (4, 1));
    }

    #[test]
    fn of_young_ones_the_oldest_of_the_fullest_network_go() {
        let all = [(1, 9, "visitor"), (2, 8, "a1"), (2, 1, "a2"), (2, 4, "a3")];
        let go = |most| choose(silent(&all), Age::Young, |_| most, NOW);
        assert_eq!(go(2), ["a1", "a3"]);
        assert_eq!(go(4).len(), 4);
        assert!(choose(silent(&all), Age::Grown, |all| all.max(1), NOW).is_empty());
        assert_eq!(
            counts(&silent(&all), NOW),
            Counts {
                fullest: 0,
                young: 4
            }
        );
        assert_eq!(
            counts::<()>(&[], NOW),
            Counts {
                fullest: 0,
                young: 0
            }
        );
    }
}
