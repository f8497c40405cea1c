//! The streams of a connection, by QUIC's numbers, too.

use std::collections::HashMap;

use quinn_proto::{Connection, StreamId};
use weir_observe::clock::NEVER;

use super::{
    frames::REQUEST_CANCELLED,
    stream::{Polled, Stage, Stream},
};
use crate::{
    ConnState, Priority, Receipt,
    multiplex::slots::{Slots, Turn},
};

/// The streams of a connection.
pub(super) struct Streams<R> {
    pub(super) slots: Slots<Stream<R>>,
    by_id: HashMap<StreamId, u32>,
}

impl<R: Receipt> Streams<R> {
    pub(super) fn new() -> Streams<R> {
        Streams {
            slots: Slots::new(),
            by_id: HashMap::new(),
        }
    }

    /// Gives up the space of slots: the client sends nothing for a while.
    pub(super) fn shrink(&mut self) {
        if self.slots.shrink() {
            self.by_id = HashMap::new();
        }
    }

    /// Adds a stream, which is polled in this turn.
    pub(super) fn add(&mut self, mut stream: Stream<R>) {
        let id = stream.id;
        if let Some(priority) = self.slots.take_priority(id.into()) {
            stream.priority = priority;
        }
        let slot = self.slots.add(stream);
        self.by_id.insert(id, slot);
        self.slots.wake(slot);
    }

    pub(super) fn slot_of(&self, id: StreamId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// Takes a stream out.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Stream<R>>> {
        let stream = self.slots.remove(slot)?;
        self.by_id.remove(&stream.id);
        Some(stream)
    }

    /// Takes all streams out: the connection has ended.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Box<Stream<R>>> + use<R> {
        self.by_id.clear();
        self.slots.clear()
    }

    /// Something has happened on the stream.
    pub(super) fn wake_id(&self, id: StreamId) {
        if let Some(slot) = self.slot_of(id) {
            self.slots.wake(slot);
        }
    }

    /// When the oldest incomplete head began.
    pub(super) fn oldest_head(&self) -> u64 {
        let heads = self.heads().map(|(_, since)| since);
        heads.min().unwrap_or(NEVER)
    }

    /// The streams whose heads began before this time and have not come whole.
    pub(super) fn late_heads(&self, before: u64) -> Vec<u32> {
        let late = self.heads().filter(|(_, since)| *since <= before);
        late.map(|(slot, _)| slot).collect()
    }

    /// The streams whose heads have not come whole, and when these began.
    fn heads(&self) -> impl Iterator<Item = (u32, u64)> {
        let streams = self.slots.iter();
        let heads = streams.filter(|(_, stream)| matches!(stream.stage, Stage::New));
        heads.map(|(slot, stream)| (slot, stream.since))
    }

    /// Bytes of the heads that have not come whole.
    pub(super) fn partial_heads(&self) -> u64 {
        let streams = self.slots.iter();
        let heads = streams.map(|(_, stream)| stream.receiving.partial_head() as u64);
        heads.sum()
    }

    /// Whether there are requests whose bodies have not come whole.
    pub(super) fn has_bodies(&self) -> bool {
        let mut streams = self.slots.iter();
        streams.any(|(_, stream)| {
            matches!(stream.stage, Stage::Steps(_)) && !stream.receiving.is_over()
        })
    }

    /// Polls a stream. `is_last` is set if its answer is the connection's last.
    pub(super) fn poll(
        &mut self,
        slot: u32,
        (now, most): (u64, u64),
        quic: &mut Connection,
        is_last: &mut bool,
    ) -> Polled {
        let polled = self
            .slots
            .poll(slot, |stream, cx| match stream.is_stuck(now) {
                true => Polled::Closed(REQUEST_CANCELLED),
                false => stream.poll(cx, quic, most, is_last),
            });
        polled.unwrap_or(Polled::Waits)
    }

    /// Lets the stream send a frame whose turn it is. Returns it, and what it did; `None`: none can send now.
    pub(super) fn send_next(
        &mut self,
        quic: &mut Connection,
        state: &ConnState,
    ) -> Option<(u32, Turn)> {
        loop {
            let slot = self.slots.next_to_send()?;
            let turn = (self.slots).send(slot, |stream, cx| stream.send(cx, quic, state));
            if turn != Turn::Waits {
                return Some((slot, turn));
            }
        }
    }

    /// Sets the priority of a stream, which may not have begun.
    pub(super) fn set_priority(&mut self, id: u64, priority: Priority, quic: &mut Connection) {
        match self.slots.find(id) {
            Some(stream) => {
                stream.priority = priority;
                stream.set_priority(quic);
            }
            None => self.slots.keep_priority(id, priority),
        }
    }
}
