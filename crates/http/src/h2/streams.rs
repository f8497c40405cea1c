//! The streams of a connection: their slots, which of them were woken, and whose turn it is to send.

use std::{
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    task::{Context, Waker},
};

use weir_observe::clock::NEVER;

use super::{
    ready::{ReadyList, SlotWaker},
    send::Turn,
    stream::{Polled, Stream},
};
use crate::{ConnState, Priority, Receipt, RequestState};

/// The streams of a connection.
pub(super) struct Streams<R> {
    slots: Vec<Slot<R>>,
    free: Vec<u32>,
    list: Arc<ReadyList>,
    wire: (Arc<SlotWaker>, Waker),
    /// Those to be polled in this round.
    ready: Vec<u32>,
    /// Those that have something to send.
    sending: Vec<u32>,
    /// Those whose answers `h2` has completely.
    over: Vec<u32>,
    /// Those of which `h2` has written everything.
    written: Vec<u32>,
    /// Counts frames that were sent.
    frames: u64,
    /// Priorities that came before their streams.
    priorities: VecDeque<(u32, Priority)>,
}

struct Slot<R> {
    stream: Option<Box<Stream<R>>>,
    wake: Arc<SlotWaker>,
    waker: Waker,
    /// When the stream is polled at the latest.
    wakes_at: u64,
    /// The number of its last frame.
    last_frame: u64,
}

impl<R: Receipt> Streams<R> {
    pub(super) fn new() -> Streams<R> {
        let list = Arc::new(ReadyList::default());
        let wire = SlotWaker::of_wire(&list);
        Streams {
            slots: Vec::new(),
            free: Vec::new(),
            wire: (wire.clone(), Waker::from(wire)),
            list,
            ready: Vec::new(),
            sending: Vec::new(),
            over: Vec::new(),
            written: Vec::new(),
            frames: 0,
            priorities: VecDeque::new(),
        }
    }

    pub(super) fn begin_turn(&mut self, task: &Waker) {
        self.list.begin(task);
    }

    /// The turn ends: from now on, wakers wake the task. True: it needs another turn.
    pub(super) fn end_turn(&mut self) -> bool {
        self.list.end(&self.wire.0)
    }

    /// Gives up the space of slots: the client sends nothing for a while.
    pub(super) fn rest(&mut self) {
        if self.is_empty() {
            self.slots = Vec::new();
            self.free = Vec::new();
            self.ready = Vec::new();
            self.sending = Vec::new();
            self.over = Vec::new();
            self.written = Vec::new();
            self.priorities = VecDeque::new();
            self.list.rest();
        }
    }

    /// Wakes the connection when it can read or write.
    pub(super) fn wire_waker(&self) -> Waker {
        self.wire.0.is_polled();
        self.wire.1.clone()
    }

    /// The same for what is sent when the turn ends: whether it was woken before is still to be looked at.
    pub(super) fn sending_waker(&self) -> Waker {
        self.wire.1.clone()
    }

    /// The connection has another turn soon.
    pub(super) fn wake_wire(&self) {
        self.wire.1.wake_by_ref();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Adds a stream. Returns its slot.
    pub(super) fn add(&mut self, stream: Stream<R>) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.slots.len() as u32;
            let wake = SlotWaker::new(&self.list, slot);
            self.slots.push(Slot {
                stream: None,
                waker: Waker::from(wake.clone()),
                wake,
                wakes_at: NEVER,
                last_frame: 0,
            });
            slot
        });
        let entry = &mut self.slots[slot as usize];
        entry.stream = Some(Box::new(stream));
        (entry.wakes_at, entry.last_frame) = (NEVER, 0);
        slot
    }

    pub(super) fn get(&mut self, slot: u32) -> Option<&mut Stream<R>> {
        self.slots.get_mut(slot as usize)?.stream.as_deref_mut()
    }

    /// Takes a stream out.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Stream<R>>> {
        let stream = self.slots.get_mut(slot as usize)?.stream.take()?;
        self.free.push(slot);
        self.sending.retain(|other| *other != slot);
        self.over.retain(|other| *other != slot);
        self.written.retain(|other| *other != slot);
        Some(stream)
    }

    /// Takes all streams out. Returns the states of their requests.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Rc<RequestState>> + use<R> {
        (self.free, self.sending, self.over, self.written) = Default::default();
        let slots = std::mem::take(&mut self.slots);
        let streams = slots.into_iter().filter_map(|slot| slot.stream);
        streams.map(|stream| stream.finish(false))
    }

    /// The stream is polled in this turn.
    pub(super) fn wake(&self, slot: u32) {
        if let Some(entry) = self.slots.get(slot as usize) {
            entry.waker.wake_by_ref();
        }
    }

    /// Whether a side has reset the stream.
    pub(super) fn is_reset(&mut self, slot: u32) -> bool {
        let Some(entry) = self.slots.get_mut(slot as usize) else {
            return true;
        };
        let cx = &mut Context::from_waker(&entry.waker);
        (entry.stream.as_mut()).is_none_or(|stream| stream.is_reset(cx))
    }

    /// The streams that were woken, or whose time has come.
    pub(super) fn take_ready(&mut self, now: u64) -> Vec<u32> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        self.list.take(&mut ready);
        for (slot, entry) in (0..).zip(&mut self.slots) {
            if entry.wakes_at <= now {
                entry.wakes_at = NEVER;
                ready.push(slot);
            }
        }
        ready
    }

    /// When the first of them is to be polled, if nothing happens before.
    pub(super) fn wakes_at(&self) -> u64 {
        let times = self.slots.iter().map(|entry| entry.wakes_at);
        times.min().unwrap_or(NEVER)
    }

    /// How much of the requests' bodies has come and was not read, bytes.
    pub(super) fn unread(&mut self) -> u64 {
        let streams = self.slots.iter_mut();
        let streams = streams.filter_map(|slot| slot.stream.as_mut());
        streams.map(|stream| stream.unread() as u64).sum()
    }

    /// Polls a stream. `is_last` is set if its answer is the connection's last.
    pub(super) fn poll(&mut self, slot: u32, now: u64, is_last: &mut bool) -> Polled {
        let Some(entry) = self.slots.get_mut(slot as usize) else {
            return Polled::Waits;
        };
        entry.wake.is_polled();
        let Some(stream) = &mut entry.stream else {
            return Polled::Waits;
        };
        if stream.gives_up(now) {
            return Polled::Closed;
        }
        let polled = stream.poll(&mut Context::from_waker(&entry.waker), is_last);
        entry.wakes_at = stream.wakes_at();
        polled
    }

    /// The stream has something to send.
    pub(super) fn sends(&mut self, slot: u32) {
        if !self.sending.contains(&slot) {
            self.sending.push(slot);
        }
    }

    /// `h2` has all of the stream's answer.
    pub(super) fn is_over(&mut self, slot: u32) {
        if !self.over.contains(&slot) {
            self.over.push(slot);
        }
    }

    /// `h2` has written all that it had.
    pub(super) fn all_is_written(&mut self) {
        self.written.append(&mut self.over);
    }

    /// Takes the streams whose answers `h2` has written. The list may be given back, so that it need not grow again.
    pub(super) fn take_written(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.written)
    }

    pub(super) fn give_back_written(&mut self, mut list: Vec<u32>) {
        if !self.is_empty() {
            list.clear();
            self.written = list;
        }
    }

    /// Lets the stream send a frame whose turn it is. Returns it, and what it did; `None`: none can send now. `run`: the
    /// stream that has sent last, and how many frames `h2` still has of it: while these are several, others wait, because
    /// `h2` sends its streams in turns.
    pub(super) fn send_next(&mut self, state: &ConnState, run: (u32, u32)) -> Option<(u32, Turn)> {
        loop {
            let next = self.sending.iter().copied();
            let slot = next.min_by_key(|slot| self.turn_of(*slot))?;
            if run.1 > 1 && run.0 != slot {
                return None;
            }
            let entry = self.slots.get_mut(slot as usize)?;
            let cx = &mut Context::from_waker(&entry.waker);
            let turn = match &mut entry.stream {
                Some(stream) => stream.send(cx, state),
                None => Turn::Waits,
            };
            if let Some(stream) = &entry.stream {
                entry.wakes_at = stream.wakes_at();
                if stream.is_over() {
                    self.sending.retain(|other| *other != slot);
                    self.over.push(slot);
                }
            }
            match turn {
                Turn::Sent => {
                    self.frames += 1;
                    self.slots[slot as usize].last_frame = self.frames;
                    return Some((slot, turn));
                }
                Turn::Closed => return Some((slot, turn)),
                // It is woken when it may send again.
                Turn::Waits => self.sending.retain(|other| *other != slot),
            }
        }
    }

    /// The order in which streams send (RFC 9218 §10): by urgency; then one whole answer after the other, in the order of the
    /// requests; then those of which each part is useful, in turns.
    fn turn_of(&self, slot: u32) -> (u8, bool, u64) {
        let entry = &self.slots[slot as usize];
        let Some(stream) = &entry.stream else {
            return (0, false, 0);
        };
        let Priority {
            urgency,
            incremental,
        } = stream.priority;
        let order = match incremental {
            true => entry.last_frame,
            false => stream.id.into(),
        };
        (urgency, incremental, order)
    }

    /// Sets the priority of a stream, which may not have begun.
    pub(super) fn set_priority(&mut self, id: u32, priority: Priority) {
        let mut streams = self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.stream.as_mut());
        match streams.find(|stream| stream.id == id) {
            Some(stream) => stream.priority = priority,
            None => {
                self.priorities.retain(|(other, _)| *other != id);
                self.priorities.push_back((id, priority));
                if self.priorities.len() > MOST_EARLY {
                    self.priorities.pop_front();
                }
            }
        }
    }

    /// Takes the priority that came before its stream.
    pub(super) fn take_priority(&mut self, id: u32) -> Option<Priority> {
        let at = self.priorities.iter().position(|(other, _)| *other == id)?;
        self.priorities.remove(at).map(|(_, priority)| priority)
    }
}

/// How many priorities may come before their streams.
const MOST_EARLY: usize = 16;
