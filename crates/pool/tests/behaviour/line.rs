//! A queue for the model. It is written to be obviously correct, and searches through everything.

use std::collections::{BTreeMap, VecDeque};

use weir_pool::{Micros, RequestId, Ticket};

/// The waiting requests and their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    /// The classes by priority.
    classes: BTreeMap<i16, Class>,
    pub(crate) places: BTreeMap<RequestId, Place>,
}

#[derive(Debug, Clone, Default)]
struct Class {
    /// In the order of admission, then of arrival in this queue.
    retries: Vec<RequestId>,
    /// The oldest first.
    stale: Vec<RequestId>,
    /// The clients that have waiting requests, in the order of their turns.
    turns: VecDeque<u64>,
    fresh: BTreeMap<u64, VecDeque<RequestId>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) ticket: Ticket,
    pub(crate) admitted_at: Micros,
    pub(crate) start_by: Micros,
    pub(crate) is_retry: bool,
    is_stale: bool,
    step: u64,
}

impl Place {
    pub(crate) fn new(ticket: &Ticket, admitted_at: Micros, start_by: Micros) -> Place {
        Place {
            ticket: *ticket,
            admitted_at,
            start_by,
            is_retry: false,
            is_stale: false,
            step: 0,
        }
    }

    pub(crate) fn of_retry(self) -> Place {
        Place {
            is_retry: true,
            ..self
        }
    }
}

impl Class {
    fn ahead(&self, stale_last: bool) -> usize {
        let fresh: usize = self.fresh.values().map(VecDeque::len).sum();
        self.retries.len() + fresh + if stale_last { 0 } else { self.stale.len() }
    }
}

impl Line {
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn stale(&self) -> usize {
        self.places.values().filter(|place| place.is_stale).count()
    }

    pub(crate) fn oldest(&self) -> Option<Micros> {
        self.places.values().map(|place| place.admitted_at).min()
    }

    pub(crate) fn first_deadline(&self) -> Option<Micros> {
        let deadlines = self.places.values().map(|place| place.start_by);
        deadlines.filter(|deadline| *deadline < Micros::MAX).min()
    }

    pub(crate) fn push(&mut self, place: Place, step: u64) {
        let Place {
            ticket, is_retry, ..
        } = place;
        let place = Place { step, ..place };
        assert!(self.places.insert(ticket.request, place).is_none());
        let class = self.classes.entry(ticket.priority).or_default();
        if is_retry {
            class.retries.push(ticket.request);
            let places = &self.places;
            class.retries.sort_by_key(|request| {
                let place = &places[request];
                (place.admitted_at, place.step)
            });
            return;
        }
        let own = class.fresh.entry(ticket.client).or_default();
        if own.is_empty() {
            class.turns.push_back(ticket.client);
        }
        own.push_back(ticket.request);
    }

    pub(crate) fn remove(&mut self, request: RequestId) -> Place {
        let place = self.places.remove(&request).expect("a waiting request");
        self.unlist(&place);
        place
    }

    /// A request that has waited for this long becomes stale.
    pub(crate) fn make_stale(&mut self, limit: Micros) {
        let places = self.places.values();
        let due = places.filter(|p| !p.is_retry && !p.is_stale && p.admitted_at <= limit);
        let mut due: Vec<Place> = due.copied().collect();
        due.sort_by_key(|place| (place.admitted_at, place.step));
        for place in due {
            self.unlist(&place);
            let request = place.ticket.request;
            self.places.get_mut(&request).unwrap().is_stale = true;
            let class = self.classes.get_mut(&place.ticket.priority).unwrap();
            class.stale.push(request);
        }
    }

    /// The next request whose priority `may` run. Clients that have `enough` workers come after the others of their
    /// class.
    pub(crate) fn next(
        &self,
        stale_last: bool,
        may: impl Fn(i16) -> bool,
        enough: impl Fn(u64) -> bool,
    ) -> Option<RequestId> {
        let mut classes = self.classes.iter();
        let first = classes.find(|(_, class)| class.ahead(stale_last) > 0);
        if let Some((priority, class)) = first
            && may(*priority)
        {
            let stale = class.stale.first().filter(|_| !stale_last);
            let mut turns = class.turns.iter();
            let client = turns.find(|client| !enough(**client));
            let fresh = || class.fresh[client.unwrap_or(&class.turns[0])].front();
            let next = class.retries.first().or(stale).or_else(fresh);
            return next.copied();
        }
        let mut classes = self.classes.iter().filter(|_| stale_last);
        let (priority, class) = classes.find(|(_, class)| !class.stale.is_empty())?;
        class.stale.last().copied().filter(|_| may(*priority))
    }

    /// Removes the next request. This ends the turn of its client.
    pub(crate) fn serve(&mut self, request: RequestId) -> Place {
        let place = self.places[&request];
        let client = place.ticket.client;
        if !place.is_retry && !place.is_stale {
            let class = self.classes.get_mut(&place.ticket.priority).unwrap();
            // The clients before it were passed over, and lose their turn.
            let place = class.turns.iter().position(|other| *other == client);
            class.turns.rotate_left(place.expect("its client") + 1);
        }
        self.remove(request)
    }

    /// All requests in the order in which they are served if all may run.
    pub(crate) fn in_order(&self) -> Vec<RequestId> {
        let (mut line, mut order) = (self.clone(), Vec::new());
        while let Some(request) = line.next(false, |_| true, |_| false) {
            line.serve(request);
            order.push(request);
        }
        order
    }

    pub(crate) fn has_before(&self, priority: i16, stale_last: bool) -> bool {
        let mut classes = self.classes.range(..=priority);
        classes.any(|(_, class)| class.ahead(stale_last) > 0)
    }

    /// Minimum and maximum number of requests before a new one.
    pub(crate) fn places_of(&self, ticket: &Ticket, stale_last: bool) -> (usize, usize) {
        let better = self.classes.range(..ticket.priority);
        let before: usize = better.map(|(_, class)| class.ahead(stale_last)).sum();
        let Some(class) = self.classes.get(&ticket.priority) else {
            return (before, before);
        };
        let own = class.fresh.get(&ticket.client).map_or(0, VecDeque::len);
        let others = class
            .fresh
            .iter()
            .filter(|(client, _)| **client != ticket.client);
        let turns = |most: usize| {
            others
                .clone()
                .map(|(_, all)| all.len().min(most))
                .sum::<usize>()
        };
        let all: usize = class.fresh.values().map(VecDeque::len).sum();
        let before = before + class.ahead(stale_last) - all + own;
        let clients = others.clone().count();
        let most = (all - own).min(clients * (own + 1));
        (before + turns(own + usize::from(own == 0)), before + most)
    }

    pub(crate) fn place_of_retry(
        &self,
        priority: i16,
        admitted_at: Micros,
        stale_last: bool,
    ) -> usize {
        let better = self.classes.range(..priority);
        let before: usize = better.map(|(_, class)| class.ahead(stale_last)).sum();
        let class = self.classes.get(&priority);
        let retries = class.into_iter().flat_map(|class| &class.retries);
        let earlier = retries.filter(|retry| self.places[retry].admitted_at <= admitted_at);
        before + earlier.count()
    }

    /// The requests from which one gives way to a new request when the queue is full.
    pub(crate) fn who_may_give_way(&self, ticket: &Ticket) -> Vec<RequestId> {
        let stale = self.places.values().filter(|place| place.is_stale);
        let oldest = stale.min_by_key(|place| (place.admitted_at, place.step));
        if let Some(oldest) = oldest {
            return vec![oldest.ticket.request];
        }
        let mut classes = self.classes.iter().rev();
        let Some((priority, last)) = classes.find(|(_, class)| !class.fresh.is_empty()) else {
            return Vec::new();
        };
        let longest = last.fresh.values().map(VecDeque::len).max().unwrap();
        let own = last.fresh.get(&ticket.client).map_or(0, VecDeque::len);
        let gives =
            *priority > ticket.priority || *priority == ticket.priority && longest > own + 1;
        let flows = last
            .fresh
            .values()
            .filter(|flow| gives && flow.len() == longest);
        flows.map(|flow| *flow.back().unwrap()).collect()
    }

    fn unlist(&mut self, place: &Place) {
        let Ticket {
            request,
            priority,
            client,
            ..
        } = place.ticket;
        let class = self.classes.get_mut(&priority).unwrap();
        class.retries.retain(|other| *other != request);
        class.stale.retain(|other| *other != request);
        if let Some(own) = class.fresh.get_mut(&client) {
            own.retain(|other| *other != request);
            if own.is_empty() {
                class.fresh.remove(&client);
                class.turns.retain(|other| *other != client);
            }
        }
    }
}
