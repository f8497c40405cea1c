//! The streams of a connection, and those whose answers the kernel has not got completely.

use super::{
    protocol::Protocol,
    stream::{Polled, Stage, Stream},
};
use crate::{
    ConnState, Priority, Receipt,
    multiplex::slots::{Multiplexed, Slots, Turn},
};

/// The streams of a connection.
pub(super) struct Streams<R> {
    pub(super) slots: Slots<Stream<R>>,
    /// Streams whose answers have nothing more to send.
    over: Vec<u32>,
}

impl<R: Receipt> Streams<R> {
    pub(super) fn new() -> Streams<R> {
        Streams {
            slots: Slots::new(),
            over: Vec::new(),
        }
    }

    /// Gives up the space of slots: the client sends nothing for a while.
    pub(super) fn shrink(&mut self) {
        if self.slots.shrink() {
            self.over = Vec::new();
        }
    }

    /// Takes a stream out.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Box<Stream<R>>> {
        let stream = self.slots.remove(slot)?;
        self.over.retain(|other| *other != slot);
        Some(stream)
    }

    /// Takes all streams out: the connection has ended.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Box<Stream<R>>> + use<R> {
        self.over = Vec::new();
        self.slots.clear()
    }

    /// Polls a stream. `is_last` is set if its answer is the connection's last.
    pub(super) fn poll(
        &mut self,
        slot: u32,
        now: u64,
        protocol: &mut Protocol,
        is_last: &mut bool,
    ) -> Polled {
        let polled = self
            .slots
            .poll(slot, |stream, cx| match stream.gives_up(protocol, now) {
                true => Polled::Closed,
                false => stream.poll(cx, protocol, is_last),
            });
        polled.unwrap_or(Polled::Waits)
    }

    /// Nothing more of the stream's answer is to be sent.
    pub(super) fn is_over(&mut self, slot: u32) {
        if !self.over.contains(&slot) {
            self.over.push(slot);
        }
    }

    /// Takes the streams of whose answers the kernel has everything, if it has everything. The list may be given back, so that it
    /// need not grow again.
    pub(super) fn take_over(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.over)
    }

    pub(super) fn give_back_over(&mut self, mut list: Vec<u32>) {
        if !self.slots.is_empty() {
            list.clear();
            self.over = list;
        }
    }

    /// Lets the stream send a frame whose turn it is. Returns it, and what it did; `None`: none can send now.
    pub(super) fn send_next(
        &mut self,
        protocol: &mut Protocol,
        state: &ConnState,
    ) -> Option<(u32, Turn)> {
        loop {
            let slot = self.slots.next_to_send()?;
            let mut is_over = false;
            let turn = self.slots.send(slot, |stream, cx| {
                let turn = stream.send(cx, protocol, state);
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

    /// The client allows more on the whole connection: all that send go on. More urgent ones may take all of it, so those that only
    /// waited for that have waited for nothing.
    pub(super) fn all_send(&mut self, protocol: &Protocol) {
        let sending = |(slot, stream): (u32, &Stream<R>)| {
            matches!(stream.stage, Stage::Sending(_)).then_some(slot)
        };
        let slots: Vec<u32> = self.slots.iter().filter_map(sending).collect();
        for slot in slots {
            self.slots.wake(slot);
            if let Some(stream) = self.slots.get(slot)
                && let Stage::Sending(sending) = &mut stream.stage
                && protocol.may_send(stream.id)
            {
                sending.is_not_stuck();
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
