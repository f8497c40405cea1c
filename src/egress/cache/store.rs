//! What is kept, in how much memory, and which questions are on their way.
//!
//! Least recently used goes first. The bound is of everything that the cache holds: answers that are kept, answers
//! that are being read to be kept ([`Reservation`]), and the notes that some are not worth it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::SystemTime,
};

use http::HeaderName;
use tokio::sync::watch;

use super::{
    flight::Stage,
    question::{Key, Question},
    stored::Stored,
};

/// All of it, behind the cache's lock.
#[derive(Debug)]
pub(super) struct Store {
    /// Bytes that it may take, and that it takes.
    size: u64,
    used: u64,
    /// Answers that are kept.
    answers: u64,
    places: HashMap<Key, Place>,
    /// By when they were used last.
    order: BTreeMap<u64, Key>,
    tick: u64,
    flights: HashMap<Key, Vec<Flight>>,
    flight_ids: u64,
    /// Keys that somebody is asking the origin for: an answer that was asked for before something was forgotten must not be
    /// kept after it.
    underway: HashMap<Key, Underway>,
}

/// Questions of one key that are not answered to their end.
#[derive(Debug, Default)]
struct Underway {
    questions: usize,
    /// How often what is kept there was forgotten meanwhile.
    forgets: u64,
}

/// What is known of one key.
#[derive(Debug, Default)]
struct Place {
    tick: u64,
    cost: u64,
    /// The latest last.
    variants: Vec<Arc<Stored>>,
    /// Until then nobody waits for another's answer: they were not to be kept.
    apart_until: Option<SystemTime>,
}

/// A question that is on its way to the origin.
#[derive(Debug)]
struct Flight {
    id: u64,
    question: Arc<Question>,
    stage: watch::Receiver<Stage>,
}

/// What is known under a key, of use to one question.
#[derive(Debug)]
pub(super) struct Found {
    /// The latest answer that fits.
    pub(super) stored: Option<Arc<Stored>>,
    /// There are others, which differ by what they vary by.
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
        }
    }

    /// Bytes that are taken, and answers that are kept.
    pub(super) fn holds(&self) -> (u64, u64) {
        (self.used, self.answers)
    }

    /// What there is for a question.
    pub(super) fn find(&mut self, question: &Question, now: SystemTime) -> Found {
        let Some(place) = self.places.get_mut(&question.key) else {
            return Found {
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
        Found {
            stored: variants.find(|stored| stored.answers(question)).cloned(),
            has_variants: !place.variants.is_empty(),
            is_apart: place.apart_until.is_some_and(|until| now < until),
        }
    }

    /// Keeps an answer to a question that was asked at `since` ([`Store::sets_out`]), in the place of the one that would
    /// have been taken for it.
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

    /// Notes that answers under that key are not to be kept, so that nobody waits for one until then.
    pub(super) fn set_apart(&mut self, question: &Question, until: SystemTime) {
        self.drop_variants(question);
        if self.make_room(PLACE + question.key.0.len() as u64) {
            self.place(&question.key).apart_until = Some(until);
        }
    }

    /// What is kept is no longer true, nor what is on its way.
    pub(super) fn forget(&mut self, key: &Key) {
        self.remove(key);
        if let Some(underway) = self.underway.get_mut(key) {
            underway.forgets += 1;
        }
    }

    /// A question goes to the origin; the number is for [`Store::keep`]: what is forgotten from now on is not kept when it is
    /// answered. [`Store::arrives`] has to follow.
    pub(super) fn sets_out(&mut self, key: &Key) -> u64 {
        let underway = self.underway.entry(key.clone()).or_default();
        underway.questions += 1;
        underway.forgets
    }

    /// A question is answered to its end, or given up.
    pub(super) fn arrives(&mut self, key: &Key) {
        if let Some(underway) = self.underway.get_mut(key) {
            underway.questions -= 1;
            if underway.questions == 0 {
                self.underway.remove(key);
            }
        }
    }

    /// Takes so many bytes more, and puts out what was not used for the longest time; false: there are not so many.
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

    /// The flight whose answer this question can wait for.
    pub(super) fn flight(&self, question: &Question) -> Option<watch::Receiver<Stage>> {
        let vary: Vec<HeaderName> = match self.places.get(&question.key) {
            Some(place) => {
                let variants = place.variants.iter();
                variants.flat_map(|stored| stored.vary()).cloned().collect()
            }
            None => Vec::new(),
        };
        let mut flights = self.flights.get(&question.key)?.iter();
        let like = flights.find(|flight| flight.question.is_like(question, &vary))?;
        Some(like.stage.clone())
    }

    /// A question goes to the origin, and others may wait for its answer; the number is for [`Store::landed`].
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

    /// Nobody new waits for it.
    pub(super) fn landed(&mut self, key: &Key, id: u64) {
        if let Some(flights) = self.flights.get_mut(key) {
            flights.retain(|flight| flight.id != id);
            if flights.is_empty() {
                self.flights.remove(key);
            }
        }
    }

    /// Removes what fits the question, and with the last of it the place.
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

    fn place(&mut self, key: &Key) -> &mut Place {
        if !self.places.contains_key(key) {
            self.tick += 1;
            self.order.insert(self.tick, key.clone());
            let cost = PLACE + key.0.len() as u64;
            self.used += cost;
            let place = Place {
                tick: self.tick,
                cost,
                ..Place::default()
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
                // The rest is being read.
                return false;
            };
            let key = key.clone();
            self.remove(&key);
        }
        true
    }

    /// Keys that somebody is asking the origin for.
    #[cfg(test)]
    pub(super) fn underway(&self) -> usize {
        self.underway.len()
    }

    /// Whether its own books are right.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let kept = |place: &Place| {
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

/// About what a key takes beside its answers: in three maps, with their free places.
const PLACE: u64 = 400;

/// Answers under one key that differ by what they vary by; the oldest goes first.
const MOST_VARIANTS: usize = 16;
