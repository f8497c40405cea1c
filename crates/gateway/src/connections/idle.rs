//! Idle connections: for each, the reactor keeps the socket and a small record, but no task.
//!
//! ```text
//! task of a connection ─► Detached ─► this list ─► something came: a task again
//!                             └─────► mailbox of another reactor
//! ```
//! A connection that has been idle for a second gives up its task. The kernel watches its socket in a set of its own
//! ([`weir_sys::epoll`]). When something comes, or the client closes it, the connection gets a task again
//! ([`super::accept`]) and reads. The sweeper ([`super::sweep`]) closes those whose `idle_timeout` has passed.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use weir_config::Protocol;
use weir_http::{REST_AFTER, spare_from};
use weir_observe::{
    clock::{self, NEVER},
    seldom::Seldom,
};
use weir_sys::epoll::Epoll;
use weir_tls::Session;

use super::{limits::ConnectionPermit, proxy_protocol::Ends, silent::Silent};
use crate::{Gateway, scripts::policy::client_of};

/// A connection without a task.
#[derive(Debug)]
pub(crate) struct Detached {
    /// Index into the configuration's listeners.
    pub(crate) listener: u16,
    /// No reactor of tokio watches it.
    pub(crate) socket: OwnedFd,
    /// Its TLS.
    pub(crate) tls: Option<Box<Session>>,
    pub(crate) ends: Ends,
    pub(crate) place: ConnectionPermit,
    /// If it is not new: the number of its requests, and since when it is idle ([`weir_observe::clock::now`]).
    pub(crate) before: Option<(u64, u64)>,
}

impl Detached {
    /// Whether it has been idle for so long that it needs no task.
    pub(crate) fn rests(&self, now: u64) -> bool {
        let rests = |since: u64| now.saturating_sub(since) >= REST_AFTER;
        self.before.is_some_and(|(_, since)| rests(since))
    }
}

thread_local! {
    static LIST: RefCell<List> = RefCell::default();
}

/// The idle connections of a reactor, by slots. The slot of a closed connection is reused.
#[derive(Default)]
struct List {
    /// `None`: the reactor has not started.
    watched: Option<Arc<Epoll>>,
    connections: Vec<Option<Detached>>,
    /// The times of each connection, in an array of their own, because each sweep reads them.
    times: Vec<Times>,
    free: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Times {
    /// When it is closed; [`NEVER`] also if the slot is free.
    until: u64,
    /// From when on it may be closed for others ([`weir_http::spare_from`]); [`NEVER`] if the slot is free.
    spare_from: u64,
}

impl Times {
    const FREE: Times = Times {
        until: NEVER,
        spare_from: NEVER,
    };
}

/// Begins the list of this reactor. Returns the set of its sockets, for [`Epoll::ready`]; its keys are for [`take`].
///
/// # Errors
///
/// If the kernel has no descriptor or memory for it.
pub(crate) fn start() -> io::Result<Arc<Epoll>> {
    let watched = Arc::new(Epoll::new()?);
    LIST.with_borrow_mut(|list| list.watched = Some(watched.clone()));
    Ok(watched)
}

/// Keeps a connection without a task. If the kernel cannot watch it, it is closed.
pub(crate) fn keep(gateway: &Gateway, connection: Detached) {
    let index = usize::from(connection.listener);
    let (requests, since) = connection.before.unwrap_or((0, clock::now()));
    let until = gateway.timeouts[index].idle_until(requests, since);
    let times = Times {
        until,
        spare_from: match gateway.config.listeners[index].protocol {
            Protocol::Http => spare_from(requests, since),
            // Web servers have few connections, and each serves many clients. None of them is closed to make room.
            _ => NEVER - 1,
        },
    };
    let kept = LIST.with_borrow_mut(|list| list.add(connection, times));
    static SAID: Seldom = Seldom::of_connections();
    if let Err(error) = kept
        && let Some(more) = SAID.line()
    {
        log::error!("cannot watch an idle connection, which is closed: {error}{more}");
    }
}

/// Takes a connection out of the list.
pub(crate) fn take(slot: u64) -> Option<Detached> {
    LIST.with_borrow_mut(|list| list.take(slot as usize))
}

/// How many there are.
pub(crate) fn count() -> usize {
    LIST.with_borrow(List::len)
}

/// When the one became idle that has been idle for longest and may be closed for others; [`NEVER`] if there is none.
pub(crate) fn longest(now: u64) -> u64 {
    LIST.with_borrow(|list| {
        let spare = list.times.iter().map(|times| times.spare_from);
        spare.filter(|from| *from <= now).min().unwrap_or(NEVER)
    })
}

/// Calls `tell` with the slot of each connection whose client has sent no request.
pub(crate) fn each_silent(gateway: &Gateway, mut tell: impl FnMut(Silent<usize>)) {
    LIST.with_borrow(|list| {
        for (slot, connection) in list.connections.iter().enumerate() {
            let Some(connection) = connection else {
                continue;
            };
            let (requests, since) = connection.before.unwrap_or_default();
            let listener = &gateway.config.listeners[usize::from(connection.listener)];
            if requests == 0 && listener.protocol == Protocol::Http {
                tell(Silent {
                    network: (connection.ends.client()).map_or(0, |client| client_of(client.ip())),
                    since,
                    place: slot,
                });
            }
        }
    });
}

/// Closes those in these slots, unless something has come. Returns how many.
pub(crate) fn close_these(slots: Vec<usize>) -> usize {
    close(|list| {
        let mut slots = slots;
        slots.retain(|slot| !list.has_input(*slot));
        slots
    })
}

/// Closes those whose time is over.
pub(crate) fn close_overdue(now: u64) {
    close(|list| list.slots(|times| times.until <= now));
}

/// Closes those that have been idle for longest: `share` of those that may be closed for others. Returns how many.
pub(crate) fn close_longest(share: impl Fn(usize) -> usize, now: u64) -> usize {
    close(|list| {
        let mut slots = list.slots(|times| times.spare_from <= now);
        let count = share(slots.len()).min(slots.len());
        if count < slots.len() {
            slots.select_nth_unstable_by_key(count, |slot| list.times[*slot].spare_from);
            slots.truncate(count);
        }
        slots
    })
}

/// Closes all of them. `with_input`: also those that have sent something that was not read yet.
pub(crate) fn close_all(with_input: bool) {
    close(|list| {
        let mut slots = list.slots(|times| times.spare_from < NEVER);
        slots.retain(|slot| with_input || !list.has_input(*slot));
        slots
    });
}

/// Takes at most `most` of them, for other reactors.
pub(crate) fn take_some(most: usize) -> Vec<Detached> {
    LIST.with_borrow_mut(|list| {
        let mut slots = list.slots(|times| times.spare_from < NEVER);
        slots.truncate(most);
        slots
            .into_iter()
            .filter_map(|slot| list.take(slot))
            .collect()
    })
}

fn close(choose: impl FnOnce(&List) -> Vec<usize>) -> usize {
    // Closed when the list is not borrowed any more.
    let mut closed: Vec<Detached> = LIST.with_borrow_mut(|list| {
        let slots = choose(list).into_iter();
        slots.filter_map(|slot| list.take(slot)).collect()
    });
    for Detached { socket, tls, .. } in &mut closed {
        if let Some(session) = tls {
            weir_net::say_end(socket.as_fd(), session);
        }
    }
    closed.len()
}

impl List {
    fn add(&mut self, connection: Detached, times: Times) -> io::Result<()> {
        let watched = self.watched.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let slot = self
            .free
            .pop()
            .map_or(self.times.len(), |slot| slot as usize);
        if let Err(error) = watched.add(connection.socket.as_fd(), slot as u64) {
            if slot < self.times.len() {
                self.free.push(slot as u32);
            }
            return Err(error);
        }
        if slot < self.times.len() {
            self.times[slot] = times;
            self.connections[slot] = Some(connection);
            return Ok(());
        }
        if slot == self.connections.capacity() {
            // Not twice as many: each of ten thousand would cost twice its memory.
            let more = FEWEST.max(slot / 8);
            self.connections.reserve_exact(more);
            self.times.reserve_exact(more);
        }
        self.times.push(times);
        self.connections.push(Some(connection));
        Ok(())
    }

    fn len(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    fn slots(&self, is_chosen: impl Fn(&Times) -> bool) -> Vec<usize> {
        let chosen = self.times.iter().enumerate();
        let chosen = chosen.filter(|(_, times)| is_chosen(times));
        chosen.map(|(slot, _)| slot).collect()
    }

    /// Whether something has come on a connection that was not read.
    fn has_input(&self, slot: usize) -> bool {
        let connection = self.connections.get(slot).and_then(Option::as_ref);
        connection.is_some_and(|one| weir_sys::socket::has_bytes(one.socket.as_fd()))
    }

    fn take(&mut self, slot: usize) -> Option<Detached> {
        let connection = self.connections.get_mut(slot)?.take()?;
        self.times[slot] = Times::FREE;
        self.free.push(slot as u32);
        if let Some(watched) = &self.watched {
            // It is in the set.
            let _ = watched.remove(connection.socket.as_fd());
        }
        if self.len() == 0 && self.times.len() > FEWEST {
            // They have been many.
            (self.connections, self.times, self.free) = Default::default();
        }
        Some(connection)
    }
}

/// For how many connections there is room at first.
const FEWEST: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each idle connection has one of each.
    #[test]
    fn what_is_kept_of_each_idle_connection_is_small() {
        let size = size_of::<Option<Detached>>() + size_of::<Times>();
        assert!(size <= 120, "{size}");
    }
}
