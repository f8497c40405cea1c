//! The streams of a connection: their slots, which of them were woken, and whose turn it is to send.

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::Arc,
    task::{Context, Waker},
};

use quinn_proto::{Connection, StreamId};
use weir_observe::clock::NEVER;

use super::{
    send::Turn,
    stream::{Polled, Stage, Stream},
};
use crate::{
    ConnState, Priority, Receipt, RequestState,
    h2::ready::{ReadyList, SlotWaker},
};

/// The streams of a connection.
pub(super) struct Streams<R> {
    slots: Vec<Slot<R>>,
    free: Vec<u32>,
    by_id: HashMap<StreamId, u32>,
    list: Arc<ReadyList>,
    wire: (Arc<SlotWaker>, Waker),
    /// Those to be polled in this round.
    ready: Vec<u32>,
    /// Those that have something to send.
    sending: Vec<u32>,
    /// Counts frames that were sent.
    frames: u64,
    /// Priorities that came before their streams.
    priorities: VecDeque<(u64, Priority)>,
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
            by_id: HashMap::new(),
            wire: (wire.clone(), Waker::from(wire)),
            list,
            ready: Vec::new(),
            sending: Vec::new(),
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
            self.by_id = HashMap::new();
            self.ready = Vec::new();
            self.sending = Vec::new();
            self.priorities = VecDeque::new();
            self.list.rest();
        }
    }

    /// Wakes the connection when it can read or write.
    pub(super) fn wire_waker(&self) -> Waker {
        self.wire.0.is_polled();
        self.wire.1.clone()
    }

    /// The connection has another turn soon.
    pub(super) fn wake_wire(&self) {
        self.wire.1.wake_by_ref();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Adds a stream, which is polled in this turn.
    pub(super) fn add(&mut self, mut stream: Stream<R>) {
        if let Some(priority) = self.take_priority(stream.id.into()) {
            stream.priority = priority;
        }
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
        self.by_id.insert(stream.id, slot);
        let entry = &mut self.slots[slot as usize];
        entry.stream = Some(Box::new(stream));
        (entry.wakes_at, entry.last_frame) = (NEVER, 0);
        entry.waker.wake_by_ref();
    }

    pub(super) fn get(&mut self, slot: u32) -> Option<&mut Stream<R>> {
        self.slots.get_mut(slot as usize)?.stream.as_deref_mut()
    }

    pub(super) fn slot_of(&self, id: StreamId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// Takes a stream out.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Stream<R>>> {
        let stream = self.slots.get_mut(slot as usize)?.stream.take()?;
        self.free.push(slot);
        self.by_id.remove(&stream.id);
        self.sending.retain(|other| *other != slot);
        Some(stream)
    }

    /// Takes all streams out, because the connection has ended. `is_sent`: the client has what QUIC has completely. Returns the
    /// states of their requests.
    pub(super) fn clear(
        &mut self,
        is_sent: bool,
    ) -> impl Iterator<Item = Rc<RequestState>> + use<R> {
        (self.free, self.sending, self.by_id) = Default::default();
        let slots = std::mem::take(&mut self.slots);
        let streams = slots.into_iter().filter_map(|slot| slot.stream);
        streams.map(move |stream| stream.close(is_sent))
    }

    /// The stream is polled in this turn.
    pub(super) fn wake(&self, slot: u32) {
        if let Some(entry) = self.slots.get(slot as usize) {
            entry.waker.wake_by_ref();
        }
    }

    /// Something has happened on the stream.
    pub(super) fn wake_id(&self, id: StreamId) {
        if let Some(slot) = self.slot_of(id) {
            self.wake(slot);
        }
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

    /// Gives the space of [`Self::take_ready`] back.
    pub(super) fn give_back(&mut self, ready: Vec<u32>) {
        self.ready = ready;
    }

    /// When the first of them is to be polled, if nothing happens before.
    pub(super) fn wakes_at(&self) -> u64 {
        let times = self.slots.iter().map(|entry| entry.wakes_at);
        times.min().unwrap_or(NEVER)
    }

    /// When the oldest head began that has not come whole.
    pub(super) fn oldest_head(&self) -> u64 {
        let streams = self.slots.iter().filter_map(|slot| slot.stream.as_ref());
        let heads = streams.filter(|stream| matches!(stream.stage, Stage::New));
        heads.map(|stream| stream.since).min().unwrap_or(NEVER)
    }

    /// Bytes of the heads that have not come whole.
    pub(super) fn partial_heads(&self) -> u64 {
        let streams = self.slots.iter().filter_map(|slot| slot.stream.as_ref());
        let heads = streams.map(|stream| stream.receiving.partial_head() as u64);
        heads.sum()
    }

    /// Whether there are requests whose bodies have not come whole.
    pub(super) fn has_bodies(&self) -> bool {
        let mut streams = self.slots.iter().filter_map(|slot| slot.stream.as_ref());
        streams.any(|stream| matches!(stream.stage, Stage::Steps(_)) && !stream.receiving.is_over())
    }

    /// The streams whose heads began before this time and have not come whole.
    pub(super) fn late_heads(&self, before: u64) -> Vec<u32> {
        let slots = (0..).zip(&self.slots);
        let is_late =
            |stream: &Stream<R>| matches!(stream.stage, Stage::New) && stream.since <= before;
        let late = slots.filter(|(_, slot)| slot.stream.as_deref().is_some_and(is_late));
        late.map(|(slot, _)| slot).collect()
    }

    /// Polls a stream. `is_last` is set if its answer is the connection's last.
    pub(super) fn poll(
        &mut self,
        slot: u32,
        (now, most): (u64, u64),
        quic: &mut Connection,
        is_last: &mut bool,
    ) -> Polled {
        let Some(entry) = self.slots.get_mut(slot as usize) else {
            return Polled::Waits;
        };
        entry.wake.is_polled();
        let Some(stream) = &mut entry.stream else {
            return Polled::Waits;
        };
        if stream.is_stuck(now) {
            return Polled::Closed(super::frames::REQUEST_CANCELLED);
        }
        let cx = &mut Context::from_waker(&entry.waker);
        let polled = stream.poll(cx, quic, most, is_last);
        entry.wakes_at = stream.wakes_at();
        polled
    }

    /// The stream has something to send.
    pub(super) fn sends(&mut self, slot: u32) {
        if !self.sending.contains(&slot) {
            self.sending.push(slot);
        }
    }

    /// Lets the stream send a frame whose turn it is. Returns it, and what it did; `None`: none can send now.
    pub(super) fn send_next(
        &mut self,
        quic: &mut Connection,
        state: &ConnState,
    ) -> Option<(u32, Turn)> {
        loop {
            let next = self.sending.iter().copied();
            let slot = next.min_by_key(|slot| self.turn_of(*slot))?;
            let entry = self.slots.get_mut(slot as usize)?;
            let cx = &mut Context::from_waker(&entry.waker);
            let turn = match &mut entry.stream {
                Some(stream) => stream.send(cx, quic, state),
                None => Turn::Waits,
            };
            if let Some(stream) = &entry.stream {
                entry.wakes_at = stream.wakes_at();
                if stream.is_over() {
                    self.sending.retain(|other| *other != slot);
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
    pub(super) fn set_priority(&mut self, id: u64, priority: Priority, quic: &mut Connection) {
        let mut streams = self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.stream.as_mut());
        match streams.find(|stream| u64::from(stream.id) == id) {
            Some(stream) => {
                stream.priority = priority;
                stream.set_priority(quic);
            }
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
    fn take_priority(&mut self, id: u64) -> Option<Priority> {
        let at = self.priorities.iter().position(|(other, _)| *other == id)?;
        self.priorities.remove(at).map(|(_, priority)| priority)
    }
}

/// How many priorities may come before their streams.
const MOST_EARLY: usize = 16;
