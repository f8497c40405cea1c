//! The streams of a connection, and what `h2` has of their answers.

use super::stream::{Polled, Stream};
use crate::{
    ConnState, Priority, Receipt,
    multiplex::slots::{Multiplexed, Slots, Turn},
};

/// The streams of a connection.
pub(super) struct Streams<R> {
    pub(super) slots: Slots<Stream<R>>,
    /// Those whose answers `h2` has completely.
    over: Vec<u32>,
    /// Those of which `h2` has written everything.
    written: Vec<u32>,
}

impl<R: Receipt> Streams<R> {
    pub(super) fn new() -> Streams<R> {
        Streams {
            slots: Slots::new(),
            over: Vec::new(),
            written: Vec::new(),
        }
    }

    /// Gives up the space of slots: the client sends nothing for a while.
    pub(super) fn rest(&mut self) {
        if self.slots.rest() {
            (self.over, self.written) = Default::default();
        }
    }

    /// Takes a stream out.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Stream<R>>> {
        let stream = self.slots.remove(slot)?;
        self.over.retain(|other| *other != slot);
        self.written.retain(|other| *other != slot);
        Some(stream)
    }

    /// Takes all streams out: the connection has ended.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Box<Stream<R>>> + use<R> {
        (self.over, self.written) = Default::default();
        self.slots.clear()
    }

    /// Whether a side has reset the stream.
    pub(super) fn is_reset(&mut self, slot: u32) -> bool {
        let is_reset = self.slots.poll(slot, |stream, cx| stream.is_reset(cx));
        is_reset.unwrap_or(true)
    }

    /// How much of the requests' bodies has come and was not read, bytes.
    pub(super) fn unread(&mut self) -> u64 {
        let streams = self.slots.iter_mut();
        streams.map(|stream| stream.unread() as u64).sum()
    }

    /// Polls a stream. `is_last` is set if its answer is the connection's last.
    pub(super) fn poll(&mut self, slot: u32, now: u64, is_last: &mut bool) -> Polled {
        let polled = self
            .slots
            .poll(slot, |stream, cx| match stream.gives_up(now) {
                true => Polled::Closed,
                false => stream.poll(cx, is_last),
            });
        polled.unwrap_or(Polled::Waits)
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
        if !self.slots.is_empty() {
            list.clear();
            self.written = list;
        }
    }

    /// Lets the stream send a frame whose turn it is. Returns it, and what it did; `None`: none can send now. `run`: the
    /// stream that has sent last, and how many frames `h2` still has of it: while these are several, others wait, because
    /// `h2` sends its streams in turns.
    pub(super) fn send_next(&mut self, state: &ConnState, run: (u32, u32)) -> Option<(u32, Turn)> {
        loop {
            let slot = self.slots.next_to_send()?;
            if run.1 > 1 && run.0 != slot {
                return None;
            }
            let mut is_over = false;
            let turn = self.slots.send(slot, |stream, cx| {
                let turn = stream.send(cx, state);
                is_over = stream.is_over();
                turn
            });
            if is_over {
                self.over.push(slot);
            }
            if turn != Turn::Waits {
                return Some((slot, turn));
            }
        }
    }

    /// Sets the priority of a stream, which may not have begun.
    pub(super) fn set_priority(&mut self, id: u32, priority: Priority) {
        match self.slots.find(id.into()) {
            Some(stream) => stream.priority = priority,
            None => self.slots.keep_priority(id.into(), priority),
        }
    }
}
