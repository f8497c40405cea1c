//! The workers: which ones are free, and which of these was used last.
//!
//! A worker is `Down` (it does not exist), `Free`, `Busy` with one request, or `Leaving` (withdrawn, not ended yet).
//! Free workers are on two stacks at once: one of all, and one of their home (the reactor that has their connection).
//! So the one used last, of a home or of all, is found in one step, as is the one used longest ago, and any of them
//! is removed in one step. Links are indices into the table, so nothing is allocated once a worker's slot exists.

use alloc::vec::Vec;

use crate::{Micros, RequestId, Ticket, WorkerId};

/// Worker ids are slot numbers that are reused when a worker is replaced. Ids from here on are not accepted, so that
/// the size of the table is limited.
pub const MAX_WORKERS: u32 = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Down,
    Free,
    Busy {
        job: Job,
        since: Micros,
    },
    /// Withdrawn: it gets no requests any more, and its slot is not used again until it is down.
    Leaving,
}

/// The request of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) request: RequestId,
    /// The reactor that serves it.
    pub(crate) home: u16,
    pub(crate) priority: i16,
    pub(crate) client: u64,
    pub(crate) session: u64,
    /// When it was first admitted.
    pub(crate) admitted_at: Micros,
}

impl Job {
    pub(crate) fn new(ticket: &Ticket, admitted_at: Micros) -> Self {
        Self {
            request: ticket.request,
            home: ticket.home,
            priority: ticket.priority,
            client: ticket.client,
            session: ticket.session,
            admitted_at,
        }
    }
}

/// Result of withdrawing a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// The worker was free, and leaves.
    Leaves,
    /// The worker is busy, and leaves when it is released.
    LeavesLater,
    /// The worker did not exist, or is leaving already.
    Not,
}

/// A worker that has finished its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Release {
    /// Its request.
    pub(crate) job: Job,
    /// Since when it was busy.
    pub(crate) since: Micros,
    /// It is its first finished request.
    pub(crate) first: bool,
    /// The worker was to be withdrawn, and leaves now.
    pub(crate) leaves: bool,
}

#[derive(Debug)]
pub(crate) struct Workers {
    slots: Vec<Slot>,
    /// Top of the stack of all free workers.
    top: u32,
    /// The other end of the stack: the free worker that was used longest ago.
    bottom: u32,
    /// Tops of the stacks of free workers per home.
    home_tops: Vec<u32>,
    free: usize,
    busy: usize,
    leaving: usize,
    /// How many busy ones leave when they are released.
    retiring: usize,
    /// How many free ones are to be replaced.
    outdated_free: usize,
    /// How many busy ones that do not leave when released are to be replaced.
    outdated_busy: usize,
}

impl Workers {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            top: NONE,
            bottom: NONE,
            home_tops: Vec::new(),
            free: 0,
            busy: 0,
            leaving: 0,
            retiring: 0,
            outdated_free: 0,
            outdated_busy: 0,
        }
    }

    pub(crate) fn free(&self) -> usize {
        self.free
    }

    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// Ids that were ever used are below this.
    #[inline]
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn leaving(&self) -> usize {
        self.leaving
    }

    pub(crate) fn retiring(&self) -> usize {
        self.retiring
    }

    pub(crate) fn outdated_free(&self) -> usize {
        self.outdated_free
    }

    pub(crate) fn outdated_busy(&self) -> usize {
        self.outdated_busy
    }

    pub(crate) fn state(&self, worker: WorkerId) -> State {
        self.slots
            .get(worker.0 as usize)
            .map_or(State::Down, |slot| slot.state)
    }

    /// The requests of the busy ones.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = Job> {
        self.slots.iter().filter_map(|slot| match slot.state {
            State::Busy { job, .. } => Some(job),
            State::Down | State::Free | State::Leaving => None,
        })
    }

    /// `Down` or `Free` → `Free`, on top of the stacks, with this home. False, without a change, if it is busy or
    /// leaving, or its id is beyond [`MAX_WORKERS`].
    pub(crate) fn up(&mut self, worker: WorkerId, home: u16, now: Micros) -> bool {
        if worker.0 >= MAX_WORKERS {
            return false;
        }
        let index = worker.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        self.add_home(home);
        match self.slots[index].state {
            State::Busy { .. } | State::Leaving => return false,
            State::Free => self.unlink(worker.0),
            State::Down => {
                self.free += 1;
                self.slots[index] = Slot::default();
            }
        }
        let slot = &mut self.slots[index];
        slot.state = State::Free;
        slot.free_since = now;
        slot.home = home;
        self.link(worker.0);
        true
    }

    /// Any state → `Down`; returns the previous state.
    pub(crate) fn down(&mut self, worker: WorkerId) -> State {
        let before = self.state(worker);
        match before {
            State::Down => return before,
            State::Free => self.leave_free(worker.0),
            State::Busy { .. } => self.leave_busy(worker.0),
            State::Leaving => self.leaving -= 1,
        }
        self.slots[worker.0 as usize].state = State::Down;
        before
    }

    /// `Free` → `Busy`: the free worker used last, from this home if possible. `None` if none is free. A worker of
    /// another home gets this home: its connection moves to where it is used.
    #[inline]
    pub(crate) fn take(&mut self, job: &Job, now: Micros) -> Option<WorkerId> {
        let home = job.home;
        let of_home = self.home_tops.get(usize::from(home)).copied();
        let index = match of_home {
            Some(index) if index != NONE => index,
            _ if self.top != NONE => self.top,
            _ => return None,
        };
        self.leave_free(index);
        let slot = &mut self.slots[index as usize];
        debug_assert_eq!(slot.state, State::Free, "only free workers are on a stack");
        slot.state = State::Busy {
            job: *job,
            since: now,
        };
        self.busy += 1;
        self.outdated_busy += usize::from(slot.outdated);
        if slot.home != home {
            slot.home = home;
            self.add_home(home);
        }
        Some(WorkerId(index))
    }

    /// A busy worker has finished its request, and is still busy: [`rest`](Self::rest) or [`pass_on`](Self::pass_on)
    /// must follow. `None` if it was not busy.
    #[inline]
    pub(crate) fn finish(&mut self, worker: WorkerId) -> Option<Release> {
        let slot = self.slots.get_mut(worker.0 as usize)?;
        let State::Busy { job, since } = slot.state else {
            return None;
        };
        let first = !core::mem::replace(&mut slot.proven, true);
        Some(Release {
            job,
            since,
            first,
            leaves: slot.retiring,
        })
    }

    /// The same for a worker that has not begun its request.
    pub(crate) fn abandon(&mut self, worker: WorkerId) -> Option<Release> {
        let slot = self.slots.get(worker.0 as usize)?;
        let State::Busy { job, since } = slot.state else {
            return None;
        };
        Some(Release {
            job,
            since,
            first: false,
            leaves: slot.retiring,
        })
    }

    /// `Busy` → `Free`, on top of the stacks, or → `Leaving`.
    #[inline]
    pub(crate) fn rest(&mut self, worker: WorkerId, now: Micros) {
        let slot = &mut self.slots[worker.0 as usize];
        debug_assert!(slot.is_busy(), "it has finished");
        self.busy -= 1;
        if slot.retiring {
            slot.state = State::Leaving;
            self.retiring -= 1;
            self.leaving += 1;
        } else {
            self.outdated_busy -= usize::from(slot.outdated);
            slot.state = State::Free;
            slot.free_since = now;
            self.free += 1;
            self.outdated_free += usize::from(slot.outdated);
            self.link(worker.0);
        }
    }

    /// `Busy` → `Busy` with another request: the result of [`rest`](Self::rest) and [`take`](Self::take) if it does
    /// not leave and no other is free.
    #[inline]
    pub(crate) fn pass_on(&mut self, worker: WorkerId, job: &Job, now: Micros) {
        let slot = &mut self.slots[worker.0 as usize];
        debug_assert!(slot.is_busy() && !slot.retiring && self.free == 0);
        slot.free_since = now;
        slot.state = State::Busy {
            job: *job,
            since: now,
        };
        if slot.home != job.home {
            slot.home = job.home;
            self.add_home(job.home);
        }
    }

    /// `Busy` → `Leaving`; returns its request, and since when. `None`, without a change, if it was not busy.
    pub(crate) fn lose(&mut self, worker: WorkerId) -> Option<(Job, Micros)> {
        let State::Busy { job, since } = self.state(worker) else {
            return None;
        };
        self.leave_busy(worker.0);
        self.slots[worker.0 as usize].state = State::Leaving;
        self.leaving += 1;
        Some((job, since))
    }

    /// `Free` → `Leaving`; a busy one leaves when it is released.
    pub(crate) fn retire(&mut self, worker: WorkerId) -> Withdrawal {
        match self.state(worker) {
            State::Down | State::Leaving => Withdrawal::Not,
            State::Free => {
                self.leave_free(worker.0);
                self.slots[worker.0 as usize].state = State::Leaving;
                self.leaving += 1;
                Withdrawal::Leaves
            }
            State::Busy { .. } => {
                let slot = &mut self.slots[worker.0 as usize];
                if !slot.retiring {
                    slot.retiring = true;
                    self.retiring += 1;
                    self.outdated_busy -= usize::from(slot.outdated);
                }
                Withdrawal::LeavesLater
            }
        }
    }

    /// Marks a worker that is up as to be replaced. False if it is not up, or leaves when it is released.
    pub(crate) fn outdate(&mut self, worker: WorkerId) -> bool {
        let Some(slot) = self.slots.get_mut(worker.0 as usize) else {
            return false;
        };
        let count = match slot.state {
            State::Free => &mut self.outdated_free,
            State::Busy { .. } if !slot.retiring => &mut self.outdated_busy,
            State::Busy { .. } | State::Down | State::Leaving => return false,
        };
        *count += usize::from(!slot.outdated);
        slot.outdated = true;
        true
    }

    /// The free worker that was used longest ago, and since when it is free.
    pub(crate) fn coldest(&self) -> Option<(WorkerId, Micros)> {
        let slot = self.slots.get(self.bottom as usize)?;
        Some((WorkerId(self.bottom), slot.free_since))
    }

    /// How many free workers are free for `limit` or longer, counted from the one used longest ago up to `at_most`;
    /// and since when the next one is free.
    pub(crate) fn idle_since(&self, limit: Micros, at_most: usize) -> (usize, Option<Micros>) {
        let (mut at, mut count) = (self.bottom, 0);
        while let Some(slot) = self.slots.get(at as usize) {
            if count == at_most || slot.free_since > limit {
                return (count, Some(slot.free_since));
            }
            count += 1;
            at = slot.all.above;
        }
        (count, None)
    }

    /// A worker that is to be replaced: a free one, otherwise a busy one that does not yet leave when it is released.
    pub(crate) fn any_outdated(&self) -> Option<WorkerId> {
        if self.outdated_free + self.outdated_busy == 0 {
            return None;
        }
        let free = self.outdated_free > 0;
        self.find(|slot| slot.outdated && (slot.state == State::Free) == free && slot.stays())
    }

    /// A busy worker that does not yet leave when it is released.
    pub(crate) fn any_busy(&self) -> Option<WorkerId> {
        if self.busy == self.retiring {
            return None;
        }
        self.find(|slot| slot.is_busy() && slot.stays())
    }

    fn find(&self, wanted: impl Fn(&Slot) -> bool) -> Option<WorkerId> {
        let found = self.slots.iter().position(wanted)?;
        Some(WorkerId(found as u32))
    }

    /// Removes it from the stacks and counts of free ones; the caller sets the state.
    #[inline]
    fn leave_free(&mut self, index: u32) {
        self.unlink(index);
        self.free -= 1;
        self.outdated_free -= usize::from(self.slots[index as usize].outdated);
    }

    /// Removes it from the counts of busy ones; the caller sets the state.
    fn leave_busy(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        self.busy -= 1;
        self.retiring -= usize::from(slot.retiring);
        self.outdated_busy -= usize::from(slot.outdated && !slot.retiring);
    }

    #[cold]
    fn add_home(&mut self, home: u16) {
        if usize::from(home) >= self.home_tops.len() {
            self.home_tops.resize(usize::from(home) + 1, NONE);
        }
    }

    /// Checks everything and returns what is inconsistent. For tests.
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
        if count(|state| *state == State::Leaving) != self.leaving {
            return Err("the number of leaving workers is not the one counted");
        }
        let marked = |wanted: fn(&Slot) -> bool| {
            let slots = self.slots.iter();
            slots.filter(|slot| wanted(slot)).count()
        };
        if marked(|slot| slot.is_busy() && slot.retiring) != self.retiring {
            return Err("the number of retiring workers is not the one counted");
        }
        if marked(|slot| slot.outdated && slot.state == State::Free) != self.outdated_free {
            return Err("the number of free outdated workers is not the one counted");
        }
        if marked(|slot| slot.outdated && slot.is_busy() && slot.stays()) != self.outdated_busy {
            return Err("the number of busy outdated workers is not the one counted");
        }
        let lowest = self.slots.get(self.bottom as usize);
        if lowest.is_some_and(|slot| slot.state != State::Free || slot.all.below != NONE)
            || lowest.is_none() != (self.free == 0)
        {
            return Err("the bottom of the stack is not its last worker");
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

    #[inline]
    fn link(&mut self, index: u32) {
        let home = usize::from(self.slots[index as usize].home);
        if self.top == NONE {
            self.bottom = index;
        }
        push(&mut self.slots, &mut self.top, index, |slot| &mut slot.all);
        let home_top = &mut self.home_tops[home];
        push(&mut self.slots, home_top, index, |slot| &mut slot.at_home);
    }

    #[inline]
    fn unlink(&mut self, index: u32) {
        let home = usize::from(self.slots[index as usize].home);
        if self.bottom == index {
            self.bottom = self.slots[index as usize].all.above;
        }
        remove(&mut self.slots, &mut self.top, index, |slot| &mut slot.all);
        let home_top = &mut self.home_tops[home];
        remove(&mut self.slots, home_top, index, |slot| &mut slot.at_home);
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    state: State,
    home: u16,
    /// The worker leaves when it is released; only for a busy one.
    retiring: bool,
    /// The worker is to be replaced.
    outdated: bool,
    /// Has finished a request.
    proven: bool,
    free_since: Micros,
    all: Links,
    at_home: Links,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            state: State::Down,
            home: 0,
            retiring: false,
            outdated: false,
            proven: false,
            free_since: Micros::ZERO,
            all: UNLINKED,
            at_home: UNLINKED,
        }
    }
}

impl Slot {
    fn is_busy(&self) -> bool {
        matches!(self.state, State::Busy { .. })
    }

    /// Whether it is up and does not leave when it is released.
    fn stays(&self) -> bool {
        match self.state {
            State::Free => true,
            State::Busy { .. } => !self.retiring,
            State::Down | State::Leaving => false,
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
