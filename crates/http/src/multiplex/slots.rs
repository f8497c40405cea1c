//! The streams of a connection: their slots, which of them were woken, and whose turn it is to send.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Waker},
};

use weir_observe::clock::NEVER;

use super::ready::{ReadyList, SlotWaker};
use crate::Priority;

/// A stream: a request and its answer.
pub(crate) trait Multiplexed {
    /// Its number, which grows from one request to the next, and its priority.
    fn order(&self) -> (u64, Priority);

    /// When it is to be polled again, if nothing happens before.
    fn wakes_at(&self) -> u64;

    /// Whether the carrier has all of the answer.
    fn is_over(&self) -> bool;
}

/// What a stream did in its turn to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The stream has sent something, and may have more.
    Sent,
    /// The stream has nothing to send, or may not send.
    Waits,
    /// The stream is closed: it was reset by a side.
    Closed,
}

/// The streams of a connection.
pub(crate) struct Slots<S> {
    slots: Vec<Slot<S>>,
    free: Vec<u32>,
    list: Arc<ReadyList>,
    connection: (Arc<SlotWaker>, Waker),
    /// Streams that are polled in this round.
    ready: Vec<u32>,
    /// Streams that have something to send.
    sending: Vec<u32>,
    /// Counts frames that were sent.
    frames: u64,
    /// Priorities that came before their streams.
    priorities: VecDeque<(u64, Priority)>,
}

struct Slot<S> {
    stream: Option<Box<S>>,
    wake: Arc<SlotWaker>,
    waker: Waker,
    /// When the stream is polled at the latest.
    wakes_at: u64,
    /// The number of its last frame.
    last_frame: u64,
}

impl<S: Multiplexed> Slots<S> {
    pub(crate) fn new() -> Slots<S> {
        let list = Arc::new(ReadyList::default());
        let connection = SlotWaker::of_connection(&list);
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
            connection: (connection.clone(), Waker::from(connection)),
            list,
            ready: Vec::new(),
            sending: Vec::new(),
            frames: 0,
            priorities: VecDeque::new(),
        }
    }

    /// A turn of the connection's task begins.
    pub(crate) fn begin_turn(&mut self, task: &Waker) {
        self.list.begin(task);
    }

    /// The turn ends: from now on, wakers wake the task. True: it needs another turn.
    pub(crate) fn end_turn(&mut self) -> bool {
        self.list.end(&self.connection.0)
    }

    /// Gives up the space of slots: the client sends nothing for a while. Returns whether there are no streams.
    pub(crate) fn shrink(&mut self) -> bool {
        if self.is_empty() {
            self.slots = Vec::new();
            self.free = Vec::new();
            self.ready = Vec::new();
            self.sending = Vec::new();
            self.priorities = VecDeque::new();
            self.list.shrink();
        }
        self.slots.is_empty()
    }

    /// Wakes the connection when it can read or write.
    pub(crate) fn connection_waker(&self) -> Waker {
        self.connection.0.is_polled();
        self.connection.1.clone()
    }

    /// The same for streams that send when the turn ends. Whether they were woken before must still be checked.
    pub(crate) fn sending_waker(&self) -> Waker {
        self.connection.1.clone()
    }

    /// The connection has another turn soon.
    pub(crate) fn wake_connection(&self) {
        self.connection.1.wake_by_ref();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Adds a stream. Returns its slot.
    pub(crate) fn add(&mut self, stream: S) -> u32 {
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

    pub(crate) fn get(&mut self, slot: u32) -> Option<&mut S> {
        self.slots.get_mut(slot as usize)?.stream.as_deref_mut()
    }

    /// The stream with this number.
    pub(crate) fn find(&mut self, number: u64) -> Option<&mut S> {
        self.iter_mut().find(|stream| stream.order().0 == number)
    }

    /// All streams, with their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &S)> {
        let slots = (0..).zip(&self.slots);
        slots.filter_map(|(slot, entry)| Some((slot, entry.stream.as_deref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        let slots = self.slots.iter_mut();
        slots.filter_map(|entry| entry.stream.as_deref_mut())
    }

    /// Takes a stream out.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Box<S>> {
        let entry = self.slots.get_mut(slot as usize)?;
        let stream = entry.stream.take()?;
        entry.wakes_at = NEVER;
        self.free.push(slot);
        self.sending.retain(|other| *other != slot);
        Some(stream)
    }

    /// Takes all streams out: the connection has ended.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = Box<S>> + use<S> {
        (self.free, self.sending) = Default::default();
        let slots = std::mem::take(&mut self.slots);
        slots.into_iter().filter_map(|entry| entry.stream)
    }

    /// The stream is polled in this turn.
    pub(crate) fn wake(&self, slot: u32) {
        if let Some(entry) = self.slots.get(slot as usize) {
            entry.waker.wake_by_ref();
        }
    }

    /// The streams that were woken, or whose time has come.
    pub(crate) fn take_ready(&mut self, now: u64) -> Vec<u32> {
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
    pub(crate) fn give_back(&mut self, ready: Vec<u32>) {
        self.ready = ready;
    }

    /// When the first of them is to be polled, if nothing happens before.
    pub(crate) fn wakes_at(&self) -> u64 {
        let times = self.slots.iter().map(|entry| entry.wakes_at);
        times.min().unwrap_or(NEVER)
    }

    /// Polls a stream with its own waker. `None`: there is none.
    pub(crate) fn poll<T>(
        &mut self,
        slot: u32,
        poll: impl FnOnce(&mut S, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let entry = self.slots.get_mut(slot as usize)?;
        entry.wake.is_polled();
        let stream = entry.stream.as_deref_mut()?;
        let polled = poll(stream, &mut Context::from_waker(&entry.waker));
        entry.wakes_at = stream.wakes_at();
        Some(polled)
    }

    /// The stream has something to send.
    pub(crate) fn sends(&mut self, slot: u32) {
        if !self.sending.contains(&slot) {
            self.sending.push(slot);
        }
    }

    /// The stream whose turn it is to send.
    pub(crate) fn next_to_send(&self) -> Option<u32> {
        let sending = self.sending.iter().copied();
        sending.min_by_key(|slot| self.turn_of(*slot))
    }

    /// Lets a stream send a frame. It is not asked again until it is woken if it waits, or if it is over.
    pub(crate) fn send(
        &mut self,
        slot: u32,
        send: impl FnOnce(&mut S, &mut Context<'_>) -> Turn,
    ) -> Turn {
        let entry = &mut self.slots[slot as usize];
        let (mut turn, mut is_over) = (Turn::Waits, false);
        if let Some(stream) = entry.stream.as_deref_mut() {
            turn = send(stream, &mut Context::from_waker(&entry.waker));
            entry.wakes_at = stream.wakes_at();
            is_over = stream.is_over();
        }
        if turn == Turn::Sent {
            self.frames += 1;
            entry.last_frame = self.frames;
        }
        if is_over || turn == Turn::Waits {
            self.sending.retain(|other| *other != slot);
        }
        turn
    }

    /// The order in which streams send (RFC 9218 §10): by urgency; then one whole answer after the other, in the order of the
    /// requests; then those whose parts are useful by themselves (incremental), in turns.
    fn turn_of(&self, slot: u32) -> (u8, bool, u64) {
        let entry = &self.slots[slot as usize];
        let Some(stream) = &entry.stream else {
            return (0, false, 0);
        };
        let (number, priority) = stream.order();
        let order = match priority.incremental {
            true => entry.last_frame,
            false => number,
        };
        (priority.urgency, priority.incremental, order)
    }

    /// Keeps the priority of a stream that has not begun. There are [`MOST_EARLY`] at most: then the oldest is forgotten.
    pub(crate) fn keep_priority(&mut self, number: u64, priority: Priority) {
        self.priorities.retain(|(other, _)| *other != number);
        self.priorities.push_back((number, priority));
        if self.priorities.len() > MOST_EARLY {
            self.priorities.pop_front();
        }
    }

    /// Takes the priority that came before its stream.
    pub(crate) fn take_priority(&mut self, number: u64) -> Option<Priority> {
        let mut kept = self.priorities.iter();
        let at = kept.position(|(other, _)| *other == number)?;
        self.priorities.remove(at).map(|(_, priority)| priority)
    }
}

/// How many priorities may come before their streams.
const MOST_EARLY: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends so many frames.
    struct Frames {
        number: u64,
        priority: Priority,
        left: u32,
        wakes_at: u64,
    }

    impl Multiplexed for Frames {
        fn order(&self) -> (u64, Priority) {
            (self.number, self.priority)
        }

        fn wakes_at(&self) -> u64 {
            self.wakes_at
        }

        fn is_over(&self) -> bool {
            self.left == 0
        }
    }

    fn frames(number: u64, priority: &str, left: u32) -> Frames {
        Frames {
            number,
            priority: Priority::of(priority.as_bytes()),
            left,
            wakes_at: NEVER,
        }
    }

    #[test]
    fn urgent_answers_are_sent_first_whole_ones_in_order_and_incremental_ones_in_turns() {
        let mut slots = Slots::new();
        for stream in [
            frames(9, "u=1", 2),
            frames(5, "", 1),
            frames(4, "i", 2),
            frames(8, "i", 3),
            frames(1, "u=1", 2),
            frames(0, "u=7", 1),
        ] {
            let slot = slots.add(stream);
            slots.sends(slot);
        }
        let mut order = Vec::new();
        while let Some(slot) = slots.next_to_send() {
            let turn = slots.send(slot, |stream, _| {
                stream.left -= 1;
                order.push(stream.number);
                Turn::Sent
            });
            assert_eq!(turn, Turn::Sent);
        }
        assert_eq!(order, [1, 1, 9, 9, 5, 4, 8, 4, 8, 8, 0]);
    }

    #[test]
    fn a_stream_that_may_not_send_waits_until_it_sends_again() {
        let mut slots = Slots::new();
        let first = slots.add(frames(1, "u=0", 1));
        let second = slots.add(frames(2, "", 1));
        slots.sends(first);
        slots.sends(second);
        assert_eq!(slots.send(first, |_, _| Turn::Waits), Turn::Waits);
        assert_eq!(slots.next_to_send(), Some(second));
        slots.sends(first);
        assert_eq!(slots.next_to_send(), Some(first));
        // A removed stream sends nothing more.
        slots.remove(first);
        assert_eq!(slots.next_to_send(), Some(second));
    }

    #[test]
    fn streams_are_ready_when_they_were_woken_or_their_time_has_come() {
        let mut slots = Slots::new();
        for number in 0..3 {
            slots.add(frames(number, "", 1));
        }
        slots.wake(2);
        slots.poll(1, |stream, _| stream.wakes_at = 50);
        assert_eq!(slots.wakes_at(), 50);
        assert_eq!(slots.take_ready(49), [2]);
        assert_eq!(slots.take_ready(50), [1]);
        // The stream was not polled since it was woken.
        slots.wake(2);
        assert!(slots.take_ready(50).is_empty());
        slots.poll(2, |_, _| ());
        slots.wake(2);
        assert_eq!(slots.take_ready(50), [2]);
    }

    #[test]
    fn slots_are_used_again_and_given_up_when_all_are_free() {
        let mut slots = Slots::new();
        let first = slots.add(frames(1, "", 1));
        let second = slots.add(frames(2, "", 1));
        assert_eq!(slots.remove(first).unwrap().number, 1);
        assert!(slots.remove(first).is_none());
        assert_eq!(slots.add(frames(3, "", 1)), first);
        assert!(!slots.shrink());
        slots.remove(first);
        slots.remove(second);
        assert!(slots.is_empty());
        assert!(slots.shrink());
    }

    #[test]
    fn priorities_before_their_streams_are_kept_but_not_many() {
        let mut slots = Slots::<Frames>::new();
        slots.keep_priority(1, Priority::of(b"u=1"));
        slots.keep_priority(1, Priority::of(b"u=2"));
        assert_eq!(slots.take_priority(1), Some(Priority::of(b"u=2")));
        assert_eq!(slots.take_priority(1), None);
        for number in 0..=MOST_EARLY as u64 {
            slots.keep_priority(number, Priority::default());
        }
        assert_eq!(slots.take_priority(0), None);
        assert!(slots.take_priority(1).is_some());
    }
}
