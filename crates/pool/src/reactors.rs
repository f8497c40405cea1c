//! How many reactors (threads that serve connections) are running, and which of them new connections and some of the
//! others go to.
//!
//! One reactor is cheapest: two need about a fifth more CPU time for the same requests, and a processor that workers
//! could use. So there is one as long as it has time, and more only when there is too much work for those that run and
//! processors are idle. Two things count: the share of its time in which a reactor does not wait for events, and how long
//! the processors had nothing to do. When PHP, a load generator or a neighbour uses all processors, a second reactor would only
//! take one away.
//!
//! # Rules
//!
//! The caller looks at regular intervals ([`ReactorScaler::look`]) with the load of each reactor since the last look, and with the
//! time in which processors were idle.
//!
//! ```text
//!                  mean ≥ 80 % in two looks in a row: one more, or as many as would be 65 % busy;
//!                  mean ≥ 95 %: the demand is not known, so twice as many;
//!                  but none without half an idle processor, and no more than there are idle ones
//!        fewer  ──────────────────────────────────────────────────────────────────────────────►  more
//!               ◄──────────────────────────────────────────────────────────────────────────────
//!                  fewer would be at most 60 % busy, in all looks of the last 3 s;
//!                  no processor is idle: fewer would be at most 95 % busy, in all looks of the last 0.6 s
//! ```
//!
//! If reactors are needed again within a minute after some were stopped, both times become 6 s, then twice as long each time, up to a
//! minute: so a load that comes and goes does not make the number go up and down with it. They are as before after five minutes
//! in which the number did not change, and would not have changed with 3 s either.
//!
//! **New connections** are shared out by weight. Each look moves the weights a little from the reactors that are busier
//! than the mean to the others. **Existing connections** move when one reactor is clearly busier than another: as many
//! of its active ones as would make both equal. The mean of two looks counts, because other programs disturb each look a
//! little. The look after a move is not judged, because it covers both states. A reactor with one active connection
//! gives none away, because that would only move the problem. All connections of a leaving reactor should move
//! to the others; that is the caller's part.

use alloc::vec::Vec;

use crate::Micros;

/// Decides how many reactors run.
#[derive(Debug)]
pub struct ReactorScaler {
    most: u16,
    running: u16,
    /// Looks in a row with too much work.
    full_looks: u32,
    /// Since when fewer would be enough, and the highest number that was needed since then.
    fewer_since: Option<(Micros, u16)>,
    patience: Micros,
    /// When the number changed, or when only the longer patience prevented a change.
    changed_at: Micros,
    let_go_at: Option<Micros>,
    /// One for each running reactor.
    weights: Vec<u32>,
    /// The next look covers a move of connections.
    is_settling: bool,
    /// How busy each reactor was at the last look; empty after a move.
    busy_before: Vec<u32>,
}

/// What a reactor did since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReactorLoad {
    /// The share of the time in which it did not wait, in thousandths.
    pub busy: u32,
    /// Connections that had a request in this time.
    pub active: u32,
}

/// What to do after a look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReactorOrders {
    /// The number of running reactors has changed.
    pub change: Option<ReactorChange>,
    /// Connections that should move, from the busiest reactors. They replace earlier orders. `None`: earlier orders stay,
    /// because their effect is not known yet.
    pub moves: Option<Vec<ReactorMove>>,
}

/// A change of the number of running reactors, for the log and the admin interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReactorChange {
    /// The number before.
    pub before: u16,
    /// The number now. Reactors from this index on are stopped.
    pub reactors: u16,
    /// How busy those before were on average, in thousandths.
    pub busy: u32,
}

/// Connections that should move to another reactor, each as soon as it has no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReactorMove {
    /// Index of the reactor that gives them away.
    pub from: u16,
    /// Index of the reactor that gets them.
    pub to: u16,
    /// How many.
    pub connections: u32,
}

impl ReactorScaler {
    /// One reactor of at most `most` (at least one).
    pub fn new(most: u16) -> Self {
        Self {
            most: most.max(1),
            running: 1,
            full_looks: 0,
            fewer_since: None,
            patience: PATIENCE,
            changed_at: Micros::ZERO,
            let_go_at: None,
            weights: alloc::vec![USUAL_WEIGHT],
            is_settling: false,
            busy_before: Vec::new(),
        }
    }

    /// The number of running reactors: those with an index below it.
    pub fn running(&self) -> u16 {
        self.running
    }

    /// The weights of the running reactors for new connections ([`spread`]).
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// A reactor could not be started: `running` remain, and no more are tried until they have too much work again.
    pub fn could_not_start(&mut self, now: Micros, running: u16) {
        self.set_running(now, running.clamp(1, self.running));
        self.full_looks = 0;
    }

    /// Judges the time since the last look. `loads`: of all reactors by index, including those that were stopped and
    /// still have connections; missing ones have done nothing. `idle`: how much of a processor had nothing to do, all processors
    /// together, in thousandths of one; `None`: not known, so there are idle ones.
    pub fn look(&mut self, now: Micros, loads: &[ReactorLoad], idle: Option<u32>) -> ReactorOrders {
        let total: u32 = loads.iter().map(|load| load.busy.min(WHOLE)).sum();
        let before = self.running;
        let mean = total / u32::from(before);
        self.relax(now);
        let wanted = self.wanted(now, (total, mean), idle.unwrap_or(u32::MAX));
        self.weigh(loads);
        let mut orders = ReactorOrders::default();
        if wanted != before {
            if wanted > before && self.regrets(now) {
                self.patience = Micros(self.patience.0.saturating_mul(2)).min(MOST_PATIENCE);
            }
            if wanted < before {
                self.let_go_at = Some(now);
            }
            self.set_running(now, wanted);
            orders.change = Some(ReactorChange {
                before,
                reactors: wanted,
                busy: mean,
            });
        }
        orders.moves = self.judged(loads).map(|loads| self.moves(&loads));
        let has_moves = orders.moves.as_ref().is_some_and(|moves| !moves.is_empty());
        if has_moves {
            self.is_settling = true;
            self.busy_before.clear();
        }
        orders
    }

    /// The mean of this look and the last one. `None`: there is none since connections have moved.
    fn judged(&mut self, loads: &[ReactorLoad]) -> Option<Vec<ReactorLoad>> {
        if core::mem::take(&mut self.is_settling) {
            return None;
        }
        let is_first = self.busy_before.is_empty();
        let mean = |(index, load): (usize, &ReactorLoad)| ReactorLoad {
            busy: (load.busy.min(WHOLE) + self.busy_before.get(index).unwrap_or(&0)) / 2,
            active: load.active,
        };
        let judged = loads.iter().enumerate().map(mean).collect();
        self.busy_before.clear();
        self.busy_before
            .extend(loads.iter().map(|load| load.busy.min(WHOLE)));
        (!is_first).then_some(judged)
    }

    fn wanted(&mut self, now: Micros, (total, mean): (u32, u32), idle: u32) -> u16 {
        let most = self.most;
        let needed = |total: u32, share: u32| {
            let needed = u16::try_from(total.div_ceil(share)).unwrap_or(u16::MAX);
            needed.clamp(1, most)
        };
        if mean >= FULL && idle >= WORTH_USING {
            self.keep_all(now);
            self.full_looks += 1;
            if self.full_looks < LOOKS {
                return self.running;
            }
            self.full_looks = 0;
            let more = match mean >= SATURATED {
                true => self.running.saturating_mul(2),
                false => needed(total, AIM).max(self.running.saturating_add(1)),
            };
            let idle = u16::try_from(idle.div_ceil(WHOLE)).unwrap_or(u16::MAX);
            return more.min(self.running.saturating_add(idle)).min(self.most);
        }
        self.full_looks = 0;
        // Fewer reactors need less processor time for the same work.
        let (needed, hurry) = match idle < SCARCE {
            true => (needed(total - total / 6, SATURATED), HURRY),
            false => (needed(total, ENOUGH), PATIENCE),
        };
        let patience = match self.patience {
            PATIENCE => hurry,
            longer => longer,
        };
        if needed >= self.running {
            self.keep_all(now);
            return self.running;
        }
        let (since, highest) = self.fewer_since.unwrap_or((now, 1));
        let highest = highest.max(needed);
        if now.since(since) < patience {
            self.fewer_since = Some((since, highest));
            return self.running;
        }
        self.fewer_since = None;
        highest
    }

    /// All running reactors are needed.
    fn keep_all(&mut self, now: Micros) {
        let since = self.fewer_since.take().map(|(since, _)| since);
        if since.is_some_and(|since| now.since(since) >= PATIENCE) {
            self.changed_at = now;
        }
    }

    fn set_running(&mut self, now: Micros, running: u16) {
        if running != self.running {
            self.running = running;
            self.changed_at = now;
            self.fewer_since = None;
            self.weights.resize(usize::from(running), USUAL_WEIGHT);
        }
    }

    /// Whether reactors were stopped so recently that this was a mistake.
    fn regrets(&self, now: Micros) -> bool {
        self.let_go_at.is_some_and(|at| now.since(at) < REGRET)
    }

    fn relax(&mut self, now: Micros) {
        if now.since(self.changed_at) >= FORGET {
            self.patience = PATIENCE;
        }
    }

    /// Moves the weights towards the less busy reactors.
    fn weigh(&mut self, loads: &[ReactorLoad]) {
        let running = usize::from(self.running);
        let busy = |index: usize| loads.get(index).map_or(0, |load| load.busy.min(WHOLE));
        let mean = (0..running).map(busy).sum::<u32>() / running as u32;
        if running == 1 || mean < WORTH_SHARING {
            return;
        }
        for (index, weight) in self.weights.iter_mut().enumerate() {
            // At most by half in one look.
            let factor = WHOLE + mean / 2 - busy(index) / 2;
            *weight = (*weight * factor / WHOLE).clamp(LEAST_WEIGHT, MOST_WEIGHT);
        }
        // The sum of the weights stays the same. Otherwise all weights would slowly reach a limit.
        let sum: u32 = self.weights.iter().sum();
        for weight in &mut self.weights {
            let scaled = u64::from(*weight) * u64::from(USUAL_WEIGHT) * running as u64;
            let scaled = scaled.div_ceil(u64::from(sum.max(1)));
            *weight = u32::try_from(scaled).unwrap_or(MOST_WEIGHT);
        }
    }

    /// Pairs the busiest reactor with the least busy one, the second busiest with the second, and so on.
    fn moves(&self, loads: &[ReactorLoad]) -> Vec<ReactorMove> {
        let load = |index: u16| loads.get(usize::from(index)).copied().unwrap_or_default();
        let mut order: Vec<u16> = (0..self.running).collect();
        order.sort_by_key(|index| core::cmp::Reverse(load(*index).busy.min(WHOLE)));
        let pairs = order.iter().zip(order.iter().rev()).take(order.len() / 2);
        let moves = pairs.filter_map(|(&from, &to)| {
            let (busy, idle) = (load(from).busy.min(WHOLE), load(to).busy.min(WHOLE));
            let difference = busy.saturating_sub(idle);
            if busy < WORTH_MOVING || difference < UNEQUAL {
                return None;
            }
            let share = u64::from(load(from).active) * u64::from(difference);
            let connections = u32::try_from(share / (2 * u64::from(busy))).unwrap_or(u32::MAX);
            (connections > 0).then_some(ReactorMove {
                from,
                to,
                connections,
            })
        });
        moves.collect()
    }
}

/// The index that the next connection goes to: each gets connections in proportion to its weight, evenly mixed.
/// `credits` belongs to the caller and starts empty. `None`: there are no weights.
///
/// This is the smooth weighted round robin of nginx.
pub fn spread(credits: &mut Vec<i64>, weights: impl Iterator<Item = u32>) -> Option<usize> {
    let (mut sum, mut count, mut best) = (0, 0, None);
    for (index, weight) in weights.enumerate() {
        if credits.len() <= index {
            credits.push(0);
        }
        let weight = i64::from(weight);
        credits[index] += weight;
        sum += weight;
        count = index + 1;
        if best.is_none_or(|best: usize| credits[index] > credits[best]) {
            best = Some(index);
        }
    }
    credits.truncate(count);
    credits[best?] -= sum;
    best
}

/// All of its time, in thousandths.
const WHOLE: u32 = 1_000;

/// From this mean on there is too much work for the running reactors.
const FULL: u32 = 800;

/// From this mean on it is unknown how much work there is.
const SATURATED: u32 = 950;

/// How busy reactors should be after one was added.
const AIM: u32 = 650;

/// Fewer reactors are enough if they would be at most this busy.
const ENOUGH: u32 = 600;

/// With less idle time of processors there are no more reactors, thousandths of one.
const WORTH_USING: u32 = 500;

/// With less idle time of processors, reactors take what others could use, thousandths of one.
const SCARCE: u32 = 100;

/// The patience then, as long as stopping reactors was no mistake.
const HURRY: Micros = Micros(600_000);

/// How many looks in a row must show too much work.
const LOOKS: u32 = 2;

/// How long fewer reactors must be enough before some are stopped; at first, and at most.
const PATIENCE: Micros = Micros::from_secs(3);
const MOST_PATIENCE: Micros = Micros::from_secs(60);

/// If reactors are needed again within this time, stopping some was a mistake.
const REGRET: Micros = Micros::from_secs(60);

/// After this time the patience is [`PATIENCE`] again.
const FORGET: Micros = Micros::from_secs(300);

/// The mean of all weights, and the limits of each before they are scaled to it.
const USUAL_WEIGHT: u32 = 1_000;
const LEAST_WEIGHT: u32 = 50;
const MOST_WEIGHT: u32 = 20_000;

/// Below this mean the weights stay as they are.
const WORTH_SHARING: u32 = 200;

/// A reactor gives connections away only if it is at least this busy, and by so much busier than the other.
const WORTH_MOVING: u32 = 500;
const UNEQUAL: u32 = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn load(busy: u32, active: u32) -> ReactorLoad {
        ReactorLoad { busy, active }
    }

    #[test]
    fn two_full_looks_in_a_row_are_needed_for_more() {
        let mut scaler = ReactorScaler::new(8);
        let full = [load(1_000, 10)];
        assert_eq!(scaler.look(Micros(1), &full, None).change, None);
        assert_eq!(scaler.look(Micros(2), &[load(700, 10)], None).change, None);
        assert_eq!(scaler.look(Micros(3), &full, None).change, None);
        let orders = scaler.look(Micros(4), &full, None);
        let change = orders.change.unwrap();
        assert_eq!((change.before, change.reactors, change.busy), (1, 2, 1_000));
        let half = ReactorMove {
            from: 0,
            to: 1,
            connections: 5,
        };
        assert_eq!(orders.moves.unwrap(), [half]);
    }

    #[test]
    fn there_are_never_more_than_there_may_be() {
        for most in [0, 1, 3] {
            let mut scaler = ReactorScaler::new(most);
            for at in 0..20 {
                let loads = vec![load(1_000, 9); usize::from(scaler.running())];
                scaler.look(Micros(at), &loads, None);
            }
            assert_eq!(scaler.running(), most.max(1));
        }
    }

    #[test]
    fn one_connection_that_keeps_a_reactor_busy_does_not_move() {
        let mut scaler = ReactorScaler::new(2);
        for at in 0..20 {
            let orders = scaler.look(Micros(at), &[load(1_000, 1), load(0, 0)], None);
            assert_eq!(orders.moves.unwrap_or_default(), []);
        }
        assert_eq!(scaler.running(), 2);
    }

    #[test]
    fn a_reactor_that_cannot_start_is_tried_again_later() {
        let mut scaler = ReactorScaler::new(4);
        let full = [load(1_000, 9)];
        scaler.look(Micros(1), &full, None);
        assert!(scaler.look(Micros(2), &full, None).change.is_some());
        scaler.could_not_start(Micros(2), 1);
        assert_eq!((scaler.running(), scaler.weights().len()), (1, 1));
        assert_eq!(scaler.look(Micros(3), &full, None).change, None);
        assert!(scaler.look(Micros(4), &full, None).change.is_some());
    }

    #[test]
    fn connections_are_spread_by_weight() {
        let mut credits = Vec::new();
        let mut got = [0; 3];
        for _ in 0..700 {
            got[spread(&mut credits, [4, 2, 1].into_iter()).unwrap()] += 1;
        }
        assert_eq!(got, [400, 200, 100]);
        assert_eq!(spread(&mut credits, [1].into_iter()), Some(0));
        assert_eq!(spread(&mut credits, [].into_iter()), None);
    }
}
