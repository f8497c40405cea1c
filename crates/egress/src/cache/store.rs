//! The stored answers, their memory limit, and the requests that are running.
//!
//! The least recently used answer is removed first. The limit covers everything that the cache holds: stored answers,
//! answers that are being read into it ([`Reservation`]), and the notes about keys whose answers are not stored.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::watch;

use super::{
    flight::Stage,
    question::{Key, Question},
    stored::Stored,
};

/// All of this, guarded by the cache's lock.
#[derive(Debug)]
pub(super) struct Store {
    /// Maximum and present size, bytes.
    size: u64,
    used: u64,
    /// Number of stored answers.
    answers: u64,
    places: HashMap<Key, KnownKey>,
    /// Ordered by last use.
    order: BTreeMap<u64, Key>,
    tick: u64,
    flights: HashMap<Key, Vec<Flight>>,
    flight_ids: u64,
    /// Keys with running requests. If a key is forgotten meanwhile, the answer to an earlier request must not be
    /// stored.
    underway: HashMap<Key, Underway>,
    /// The machine's clock when it was last looked at, and when that was.
    clock: Option<(SystemTime, Instant)>,
}

/// Unfinished requests for one key.
#[derive(Debug, Default)]
struct Underway {
    questions: usize,
    /// How often the key was forgotten meanwhile.
    forgets: u64,
}

/// What is known about one key.
#[derive(Debug, Default)]
struct KnownKey {
    tick: u64,
    cost: u64,
    /// The newest last.
    variants: Vec<Arc<Stored>>,
    /// Until then requests do not wait for each other, because the answers were not stored.
    apart_until: Option<SystemTime>,
}

/// A request that is on its way to the origin.
#[derive(Debug)]
struct Flight {
    id: u64,
    question: Arc<Question>,
    stage: watch::Receiver<Stage>,
}

/// What one request can use of a key.
#[derive(Debug)]
pub(super) struct StoredMatch {
    /// The newest matching answer.
    pub(super) stored: Option<Arc<Stored>>,
    /// Whether there are other answers, which differ in the headers they vary by.
    pub(super) has_variants: bool,
    pub(super) is_apart: bool,
}

impl Store {
    pub(super) fn new(size: u64) -> Store {
        Store {
            size,
            used: 0,
            answers: 0,
            places: HashMap::new(),
            order: BTreeMap::new(),
            tick: 0,
            flights: HashMap::new(),
            flight_ids: 0,
            underway: HashMap::new(),
            clock: None,
        }
    }

    /// The used bytes, and the number of stored answers.
    pub(super) fn holds(&self) -> (u64, u64) {
        (self.used, self.answers)
    }

    /// Looks for an answer to a request.
    pub(super) fn find(&mut self, question: &Question, now: SystemTime) -> StoredMatch {
        let Some(place) = self.places.get_mut(&question.key) else {
            return StoredMatch {
                stored: None,
                has_variants: false,
                is_apart: false,
            };
        };
        self.tick += 1;
        if let Some(key) = self.order.remove(&place.tick) {
            place.tick = self.tick;
            self.order.insert(self.tick, key);
        }
        let mut variants = place.variants.iter().rev();
        StoredMatch {
            stored: variants.find(|stored| stored.answers(question)).cloned(),
            has_variants: !place.variants.is_empty(),
            is_apart: place.apart_until.is_some_and(|until| now < until),
        }
    }

    /// Stores the answer to a request that was sent at `since` ([`Store::sets_out`]), in place of the stored answer
    /// that matched the request before.
    pub(super) fn keep(&mut self, question: &Question, stored: Arc<Stored>, since: u64) -> bool {
        let underway = self.underway.get(&question.key);
        if underway.is_none_or(|underway| underway.forgets != since) {
            return false;
        }
        self.drop_variants(question);
        let cost = stored.cost() + PLACE + question.key.0.len() as u64;
        if !self.make_room(cost) {
            return false;
        }
        let place = self.place(&question.key);
        if place.variants.len() == MOST_VARIANTS {
            let oldest = place.variants.remove(0);
            let cost = oldest.cost();
            place.cost -= cost;
            self.used -= cost;
            self.answers -= 1;
        }
        let cost = stored.cost();
        let place = self.place(&question.key);
        place.variants.push(stored);
        place.apart_until = None;
        place.cost += cost;
        self.used += cost;
        self.answers += 1;
        true
    }

    /// Notes that answers for that key are not stored, so that requests do not wait for each other until then.
    pub(super) fn set_apart(&mut self, question: &Question, until: SystemTime) {
        self.drop_variants(question);
        if self.make_room(PLACE + question.key.0.len() as u64) {
            self.place(&question.key).apart_until = Some(until);
        }
    }

    /// The stored answer is outdated, and so is an answer that is being received.
    pub(super) fn forget(&mut self, key: &Key) {
        self.remove(key);
        if let Some(underway) = self.underway.get_mut(key) {
            underway.forgets += 1;
        }
    }

    /// Looks at the machine's clock. If it has jumped, the times of all answers mean nothing any more: one that was stored a
    /// moment ago would be fresh for years, or outdated. So all are forgotten.
    pub(super) fn see_clock(&mut self, now: SystemTime, at: Instant) {
        let Some((before, then)) = self.clock.replace((now, at)) else {
            return;
        };
        let expected = before + at.saturating_duration_since(then);
        let jump = now.duration_since(expected);
        if jump.unwrap_or_else(|error| error.duration()) < JUMP {
            return;
        }
        let keys: Vec<Key> = self.places.keys().cloned().collect();
        keys.iter().for_each(|key| self.remove(key));
        for underway in self.underway.values_mut() {
            underway.forgets += 1;
        }
    }

    /// A request is sent to the origin. The returned number is for [`Store::keep`]: if the key is forgotten from now
    /// on, the answer is not stored. [`Store::arrives`] must follow.
    pub(super) fn sets_out(&mut self, key: &Key) -> u64 {
        let underway = self.underway.entry(key.clone()).or_default();
        underway.questions += 1;
        underway.forgets
    }

    /// A request has ended.
    pub(super) fn arrives(&mut self, key: &Key) {
        if let Some(underway) = self.underway.get_mut(key) {
            underway.questions -= 1;
            if underway.questions == 0 {
                self.underway.remove(key);
            }
        }
    }

    /// Reserves more bytes, and removes the least recently used answers. False: there is not enough room.
    pub(super) fn reserve(&mut self, bytes: u64) -> bool {
        let done = self.make_room(bytes);
        if done {
            self.used += bytes;
        }
        done
    }

    pub(super) fn give_back(&mut self, bytes: u64) {
        self.used -= bytes;
    }

    /// The flight that this request can wait for.
    pub(super) fn flight(&self, question: &Question) -> Option<watch::Receiver<Stage>> {
        let vary: Vec<&str> = match self.places.get(&question.key) {
            Some(place) => {
                let variants = place.variants.iter();
                variants.flat_map(|stored| stored.vary()).collect()
            }
            None => Vec::new(),
        };
        let mut flights = self.flights.get(&question.key)?.iter();
        let like = flights.find(|flight| flight.question.is_like(question, &vary))?;
        Some(like.stage.clone())
    }

    /// A request is sent to the origin, and others may wait for its answer. The returned number is for
    /// [`Store::landed`].
    pub(super) fn take_off(
        &mut self,
        question: &Arc<Question>,
        stage: watch::Receiver<Stage>,
    ) -> u64 {
        self.flight_ids += 1;
        let flights = self.flights.entry(question.key.clone()).or_default();
        flights.push(Flight {
            id: self.flight_ids,
            question: question.clone(),
            stage,
        });
        self.flight_ids
    }

    /// No new requests may wait for it.
    pub(super) fn landed(&mut self, key: &Key, id: u64) {
        if let Some(flights) = self.flights.get_mut(key) {
            flights.retain(|flight| flight.id != id);
            if flights.is_empty() {
                self.flights.remove(key);
            }
        }
    }

    /// Removes the answers that match the request. If none is left, the place is removed too.
    fn drop_variants(&mut self, question: &Question) {
        let Some(place) = self.places.get_mut(&question.key) else {
            return;
        };
        let (mut freed, before) = (0, place.variants.len());
        place.variants.retain(|stored| {
            let fits = stored.answers(question);
            freed += if fits { stored.cost() } else { 0 };
            !fits
        });
        place.cost -= freed;
        self.used -= freed;
        self.answers -= (before - place.variants.len()) as u64;
        if place.variants.is_empty() {
            self.remove(&question.key);
        }
    }

    fn place(&mut self, key: &Key) -> &mut KnownKey {
        if !self.places.contains_key(key) {
            self.tick += 1;
            self.order.insert(self.tick, key.clone());
            let cost = PLACE + key.0.len() as u64;
            self.used += cost;
            let place = KnownKey {
                tick: self.tick,
                cost,
                ..KnownKey::default()
            };
            self.places.insert(key.clone(), place);
        }
        self.places.entry(key.clone()).or_default()
    }

    fn remove(&mut self, key: &Key) {
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place.tick);
            self.used -= place.cost;
            self.answers -= place.variants.len() as u64;
        }
    }

    fn make_room(&mut self, bytes: u64) -> bool {
        if bytes > self.size {
            return false;
        }
        while self.used + bytes > self.size {
            let Some((_, key)) = self.order.first_key_value() else {
                // The remaining bytes belong to answers that are being read.
                return false;
            };
            let key = key.clone();
            self.remove(&key);
        }
        true
    }

    /// The number of keys with running requests.
    #[cfg(test)]
    pub(super) fn underway(&self) -> usize {
        self.underway.len()
    }

    /// Checks that the sums are right.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let kept = |place: &KnownKey| {
            place
                .variants
                .iter()
                .map(|stored| stored.cost())
                .sum::<u64>()
        };
        for (key, place) in &self.places {
            assert_eq!(place.cost, kept(place) + PLACE + key.0.len() as u64);
            assert_eq!(self.order.get(&place.tick), Some(key));
            assert!(place.variants.len() <= MOST_VARIANTS);
        }
        assert_eq!(self.places.len(), self.order.len());
        let answers: usize = self.places.values().map(|place| place.variants.len()).sum();
        assert_eq!(self.answers, answers as u64);
        let total: u64 = self.places.values().map(|place| place.cost).sum();
        assert!(total <= self.used && self.used <= self.size);
    }
}

/// Approximate memory of a key besides its answers: in three maps, with their free slots.
const PLACE: u64 = 400;

/// A clock that was set by this much has jumped.
const JUMP: Duration = Duration::from_secs(5);

/// Maximum number of variants per key; the oldest is removed first.
const MOST_VARIANTS: usize = 16;
