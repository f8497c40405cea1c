//! The workers: which are free, and which of these was used last.
//!
//! A worker is `Down` (not there), `Free` or `Busy` with one request. The free ones hang on two stacks at once, one of
//! all and one of their home (the reactor that holds their connection), so that the one used last, of a home or of all, is
//! found in one step, and any is taken out in one step. Links are indexes into the table, so nothing is allocated once
//! a worker's slot exists.

use alloc::vec::Vec;

use crate::{Micros, RequestId, WorkerId};

/// Worker ids are slot numbers that come again when a worker is replaced; ids from here on are not accepted, so that
/// the table stays bounded whatever a caller says.
pub const MAX_WORKERS: u32 = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Down,
    Free,
    Busy { request: RequestId, since: Micros },
}

#[derive(Debug)]
pub(crate) struct Workers {
    slots: Vec<Slot>,
    /// Top of the stack of all free workers.
    top: u32,
    /// Tops of the stacks of each home's free workers.
    home_tops: Vec<u32>,
    free: usize,
    busy: usize,
}

impl Workers {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            top: NONE,
            home_tops: Vec::new(),
            free: 0,
            busy: 0,
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.free
    }

    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    pub(crate) fn state(&self, worker: WorkerId) -> State {
        self.slots
            .get(worker.0 as usize)
            .map_or(State::Down, |slot| slot.state)
    }

    /// `Down` or `Free` → `Free`, on top of the stacks, with this home. False, and nothing changed, if it is busy or
    /// its id is past [`MAX_WORKERS`].
    pub(crate) fn up(&mut self, worker: WorkerId, home: u16) -> bool {
        if worker.0 >= MAX_WORKERS {
            return false;
        }
        let index = worker.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        self.add_home(home);
        match self.slots[index].state {
            State::Busy { .. } => return false,
            State::Free => self.unlink(worker.0),
            State::Down => self.free += 1,
        }
        self.slots[index].state = State::Free;
        self.slots[index].home = home;
        self.link(worker.0);
        true
    }

    /// Any state → `Down`; tells the state it had.
    pub(crate) fn down(&mut self, worker: WorkerId) -> State {
        let before = self.state(worker);
        match before {
            State::Down => return before,
            State::Free => {
                self.unlink(worker.0);
                self.free -= 1;
            }
            State::Busy { .. } => self.busy -= 1,
        }
        self.slots[worker.0 as usize].state = State::Down;
        before
    }

    /// `Free` → `Busy`: of the free workers the one used last, of this home if there is one. None if none is free.
    /// One that is taken from another home has this one from now on: its connection moves to where it is used.
    pub(crate) fn take(&mut self, request: RequestId, home: u16, now: Micros) -> Option<WorkerId> {
        let of_home = self.home_tops.get(usize::from(home)).copied();
        let index = match of_home {
            Some(index) if index != NONE => index,
            _ if self.top != NONE => self.top,
            _ => return None,
        };
        self.unlink(index);
        self.add_home(home);
        let slot = &mut self.slots[index as usize];
        debug_assert_eq!(slot.state, State::Free, "only free workers are on a stack");
        slot.home = home;
        slot.state = State::Busy {
            request,
            since: now,
        };
        self.free -= 1;
        self.busy += 1;
        Some(WorkerId(index))
    }

    /// `Busy` → `Free`, on top of the stacks; tells since when it was busy. None, and nothing changed, if it was not.
    pub(crate) fn release(&mut self, worker: WorkerId) -> Option<Micros> {
        let slot = self.slots.get_mut(worker.0 as usize)?;
        let State::Busy { since, .. } = slot.state else {
            return None;
        };
        slot.state = State::Free;
        self.link(worker.0);
        self.free += 1;
        self.busy -= 1;
        Some(since)
    }

    fn add_home(&mut self, home: u16) {
        if usize::from(home) >= self.home_tops.len() {
            self.home_tops.resize(usize::from(home) + 1, NONE);
        }
    }

    /// Walks through everything and says what does not fit. For tests.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let count = |wanted: fn(&State) -> bool| {
            let states = self.slots.iter().map(|slot| &slot.state);
            states.filter(|state| wanted(state)).count()
        };
        if count(|state| *state == State::Free) != self.free {
            return Err("the number of free workers is not the one counted");
        }
        if count(|state| matches!(state, State::Busy { .. })) != self.busy {
            return Err("the number of busy workers is not the one counted");
        }
        if self.walk(self.top, |slot| slot.all)? != self.free {
            return Err("the stack of all does not hold all free workers");
        }
        let mut at_home = 0;
        for top in &self.home_tops {
            at_home += self.walk(*top, |slot| slot.at_home)?;
        }
        if at_home != self.free {
            return Err("the stacks of the homes do not hold all free workers");
        }
        Ok(())
    }

    fn walk(&self, top: u32, links: fn(&Slot) -> Links) -> Result<usize, &'static str> {
        let (mut at, mut above, mut count) = (top, NONE, 0);
        while at != NONE {
            let slot = &self.slots[at as usize];
            if slot.state != State::Free {
                return Err("a worker that is not free is on a stack");
            }
            if links(slot).above != above || count > self.slots.len() {
                return Err("a stack's links do not match");
            }
            count += 1;
            (above, at) = (at, links(slot).below);
        }
        Ok(count)
    }

    fn link(&mut self, index: u32) {
        let home = usize::from(self.slots[index as usize].home);
        push(&mut self.slots, &mut self.top, index, |slot| &mut slot.all);
        let home_top = &mut self.home_tops[home];
        push(&mut self.slots, home_top, index, |slot| &mut slot.at_home);
    }

    fn unlink(&mut self, index: u32) {
        let home = usize::from(self.slots[index as usize].home);
        remove(&mut self.slots, &mut self.top, index, |slot| &mut slot.all);
        let home_top = &mut self.home_tops[home];
        remove(&mut self.slots, home_top, index, |slot| &mut slot.at_home);
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    state: State,
    home: u16,
    all: Links,
    at_home: Links,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            state: State::Down,
            home: 0,
            all: UNLINKED,
            at_home: UNLINKED,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Links {
    above: u32,
    below: u32,
}

type LinksOf = fn(&mut Slot) -> &mut Links;

#[inline]
fn push(slots: &mut [Slot], top: &mut u32, index: u32, links: LinksOf) {
    let below = *top;
    *links(&mut slots[index as usize]) = Links { above: NONE, below };
    if below != NONE {
        links(&mut slots[below as usize]).above = index;
    }
    *top = index;
}

#[inline]
fn remove(slots: &mut [Slot], top: &mut u32, index: u32, links: LinksOf) {
    let Links { above, below } = core::mem::replace(links(&mut slots[index as usize]), UNLINKED);
    if above == NONE {
        debug_assert_eq!(*top, index, "without one above it, it is the top");
        *top = below;
    } else {
        links(&mut slots[above as usize]).below = below;
    }
    if below != NONE {
        links(&mut slots[below as usize]).above = above;
    }
}

const NONE: u32 = u32::MAX;
const UNLINKED: Links = Links {
    above: NONE,
    below: NONE,
};
