//! Equal requests in flight: one of them leads and asks the origin, the others follow and wait for what it learns.
//!
//! ```text
//! join ─┬─ Lead ──┬─ stored ───────► all followers look again
//!       │         ├─ uncacheable ──► all pass at once, and so does who comes later, for some time
//!       │         ├─ failed ───────► all are told how
//!       │         └─ dropped ──────► the eldest follower leads
//!       ├─ Follow    waits, as a future; dropped, it leaves
//!       └─ Pass      asks the origin for itself
//! ```
//!
//! Leaders and followers may be on any threads. How long a follower waits is its own affair: it drops [`Following`] when its time is over.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use super::key::KeyHash;

/// All requests in flight. `O` is what followers are told of a failure.
#[derive(Debug)]
pub struct Flights<O> {
    shards: [Mutex<Shard<O>>; SHARDS],
    /// How many followers a leader may have.
    most_followers: usize,
}

/// What a request does.
#[derive(Debug)]
pub enum Joined<O> {
    /// It asks the origin, and others may wait for it.
    Lead(Leader<O>),
    /// It waits for another one.
    Follow(Following<O>),
    /// It asks the origin, and nobody waits for it: answers of this key were found to be not cacheable, or too many wait already.
    Pass,
}

/// The request that asks the origin. Dropped, it hands this over to a follower.
pub struct Leader<O> {
    flights: Arc<Flights<O>>,
    flight: Arc<Flight<O>>,
    has_ended: bool,
}

/// A request that waits for another one.
#[must_use]
pub struct Following<O> {
    flights: Arc<Flights<O>>,
    flight: Arc<Flight<O>>,
    ticket: u32,
    has_ended: bool,
}

/// What a follower does next.
#[derive(Debug)]
pub enum Landing<O> {
    /// The leader has left: it asks the origin now.
    Lead(Leader<O>),
    /// The answer was stored: it looks again.
    Look,
    /// The answer is not for others: it asks for itself.
    Pass,
    /// The leader has met a failure.
    Failed(O),
}

#[derive(Debug)]
struct Shard<O> {
    flights: HashMap<KeyHash, Arc<Flight<O>>>,
    uncacheable: Uncacheable,
}

/// Keys whose answers are not cacheable, with the time until which this is believed.
#[derive(Debug, Default)]
struct Uncacheable {
    until: HashMap<KeyHash, u64>,
    /// The oldest first. Some are outdated.
    order: VecDeque<(KeyHash, u64)>,
}

#[derive(Debug)]
struct Flight<O> {
    hash: KeyHash,
    state: Mutex<State<O>>,
}

#[derive(Debug)]
struct State<O> {
    /// In the order of their tickets.
    waiting: VecDeque<(u32, Seat)>,
    /// How many of them have not left.
    followers: usize,
    next_ticket: u32,
    /// The follower that leads when it is polled next.
    heir: Option<u32>,
    end: Option<End<O>>,
}

/// The place of a follower.
#[derive(Debug)]
enum Seat {
    /// It was not polled yet.
    New,
    Waits(Waker),
    Left,
}

#[derive(Debug)]
enum End<O> {
    Stored,
    Uncacheable,
    Failed(O),
}

const SHARDS: usize = 16;

/// How many keys of a shard are remembered as not cacheable.
const MOST_UNCACHEABLE: usize = 2_048;

impl<O> Flights<O> {
    /// None. A leader has at most so many followers.
    pub fn new(most_followers: usize) -> Arc<Flights<O>> {
        Arc::new(Flights {
            shards: Default::default(),
            most_followers,
        })
    }

    /// A request for which nothing is stored. `now` is on the clock of [`Leader::uncacheable`].
    pub fn join(self: &Arc<Self>, hash: KeyHash, now: u64) -> Joined<O> {
        let mut shard = self.shard(hash);
        if shard.uncacheable.knows(hash, now) {
            return Joined::Pass;
        }
        if let Some(flight) = shard.flights.get(&hash) {
            let flight = flight.clone();
            let ticket = flight.state().enter(self.most_followers);
            return ticket.map_or(Joined::Pass, |ticket| {
                Joined::Follow(Following {
                    flights: self.clone(),
                    flight,
                    ticket,
                    has_ended: false,
                })
            });
        }
        let flight = Arc::new(Flight {
            hash,
            state: Mutex::default(),
        });
        shard.flights.insert(hash, flight.clone());
        Joined::Lead(Leader {
            flights: self.clone(),
            flight,
            has_ended: false,
        })
    }

    /// Answers of this key are cacheable after all.
    pub fn forget_uncacheable(&self, hash: KeyHash) {
        self.shard(hash).uncacheable.until.remove(&hash);
    }

    /// How many requests lead.
    pub fn count(&self) -> usize {
        let counts = self.shards.iter().map(|shard| lock(shard).flights.len());
        counts.sum()
    }

    /// Makes the eldest follower the leader. Without one the flight is over.
    fn hand_over(&self, flight: &Arc<Flight<O>>) {
        // With this lock nobody joins meanwhile.
        let mut shard = self.shard(flight.hash);
        let heir = flight.state().choose_heir();
        if heir.is_none() {
            shard.close(flight);
        }
        drop(shard);
        if let Some(Seat::Waits(waker)) = heir {
            waker.wake();
        }
    }

    fn shard(&self, hash: KeyHash) -> MutexGuard<'_, Shard<O>> {
        lock(&self.shards[hash.top() as usize % SHARDS])
    }
}

impl<O> Leader<O> {
    /// The answer was stored.
    pub fn stored(self) {
        self.end(End::Stored);
    }

    /// The answer is not for others, and until this time none of this key is thought to be.
    pub fn uncacheable(self, until: u64) {
        let hash = self.flight.hash;
        self.flights.shard(hash).uncacheable.note(hash, until);
        self.end(End::Uncacheable);
    }

    /// There is no answer, or none that could be stored, and this is not the request's fault.
    pub fn failed(self, how: O) {
        self.end(End::Failed(how));
    }

    /// Whether others wait for it.
    pub fn is_followed(&self) -> bool {
        self.flight.state().followers > 0
    }

    /// The key that it leads.
    pub fn hash(&self) -> KeyHash {
        self.flight.hash
    }

    fn end(mut self, end: End<O>) {
        self.has_ended = true;
        self.flights.shard(self.flight.hash).close(&self.flight);
        let wakers = self.flight.state().end(end);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<O: Clone> Future for Following<O> {
    type Output = Landing<O>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Landing<O>> {
        if self.has_ended {
            return Poll::Pending;
        }
        let mut state = self.flight.state();
        let landing = match &state.end {
            Some(End::Stored) => Landing::Look,
            Some(End::Uncacheable) => Landing::Pass,
            Some(End::Failed(how)) => Landing::Failed(how.clone()),
            None if state.heir == Some(self.ticket) => {
                state.heir = None;
                Landing::Lead(Leader {
                    flights: self.flights.clone(),
                    flight: self.flight.clone(),
                    has_ended: false,
                })
            }
            None => {
                state.wait(self.ticket, cx.waker());
                return Poll::Pending;
            }
        };
        drop(state);
        self.has_ended = true;
        Poll::Ready(landing)
    }
}

impl<O> Drop for Leader<O> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.flights.hand_over(&self.flight);
        }
    }
}

impl<O> Drop for Following<O> {
    fn drop(&mut self) {
        if !self.has_ended && self.flight.state().leave(self.ticket) {
            self.flights.hand_over(&self.flight);
        }
    }
}

impl<O> Flight<O> {
    fn state(&self) -> MutexGuard<'_, State<O>> {
        lock(&self.state)
    }
}

impl<O> State<O> {
    /// The ticket of a new follower. `None`: there are enough.
    fn enter(&mut self, most: usize) -> Option<u32> {
        if self.followers >= most {
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.followers += 1;
        self.waiting.push_back((ticket, Seat::New));
        Some(ticket)
    }

    fn wait(&mut self, ticket: u32, waker: &Waker) {
        match self.seat(ticket) {
            Some(Seat::Waits(known)) => known.clone_from(waker),
            Some(seat) => *seat = Seat::Waits(waker.clone()),
            None => {}
        }
    }

    /// True: it was to lead.
    fn leave(&mut self, ticket: u32) -> bool {
        if self.heir == Some(ticket) {
            self.heir = None;
            return true;
        }
        if let Some(seat) = self.seat(ticket) {
            *seat = Seat::Left;
            self.followers -= 1;
        }
        // Who comes and leaves while a leader takes long must not fill the memory.
        if self.waiting.len() > 2 * self.followers + 16 {
            self.waiting.retain(|(_, seat)| !matches!(seat, Seat::Left));
        }
        false
    }

    fn choose_heir(&mut self) -> Option<Seat> {
        while let Some((ticket, seat)) = self.waiting.pop_front() {
            if !matches!(seat, Seat::Left) {
                self.followers -= 1;
                self.heir = Some(ticket);
                return Some(seat);
            }
        }
        None
    }

    /// Whom to wake.
    fn end(&mut self, end: End<O>) -> Vec<Waker> {
        self.end = Some(end);
        let seats = self.waiting.drain(..).map(|(_, seat)| seat);
        let wakers = seats.filter_map(|seat| match seat {
            Seat::Waits(waker) => Some(waker),
            Seat::New | Seat::Left => None,
        });
        wakers.collect()
    }

    fn seat(&mut self, ticket: u32) -> Option<&mut Seat> {
        let found = self.waiting.binary_search_by_key(&ticket, |(own, _)| *own);
        let at = found.ok()?;
        Some(&mut self.waiting.get_mut(at)?.1)
    }
}

impl<O> Shard<O> {
    /// Nobody can join this flight any more.
    fn close(&mut self, flight: &Arc<Flight<O>>) {
        let is_it = |own: &Arc<Flight<O>>| Arc::ptr_eq(own, flight);
        if self.flights.get(&flight.hash).is_some_and(is_it) {
            self.flights.remove(&flight.hash);
        }
    }
}

impl Uncacheable {
    fn knows(&mut self, hash: KeyHash, now: u64) -> bool {
        match self.until.get(&hash) {
            Some(until) if now < *until => true,
            Some(_) => {
                self.until.remove(&hash);
                false
            }
            None => false,
        }
    }

    fn note(&mut self, hash: KeyHash, until: u64) {
        self.until.insert(hash, until);
        self.order.push_back((hash, until));
        while self.order.len() > MOST_UNCACHEABLE
            && let Some((oldest, until)) = self.order.pop_front()
        {
            // Otherwise it was noted again.
            if self.until.get(&oldest) == Some(&until) {
                self.until.remove(&oldest);
            }
        }
    }
}

impl<O> Default for Shard<O> {
    fn default() -> Shard<O> {
        Shard {
            flights: HashMap::new(),
            uncacheable: Uncacheable::default(),
        }
    }
}

impl<O> Default for State<O> {
    fn default() -> State<O> {
        State {
            waiting: VecDeque::new(),
            followers: 0,
            next_ticket: 0,
            heir: None,
            end: None,
        }
    }
}

impl<O> fmt::Debug for Leader<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leader({:?})", self.flight.hash)
    }
}

impl<O> fmt::Debug for Following<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Following({:?}, {})", self.flight.hash, self.ticket)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
