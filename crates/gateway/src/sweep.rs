//! The connections of a reactor: a list, and the sweep that watches their deadlines.
//!
//! Every [`SWEEP`] a reactor compares the deadline of each of its connections with the clock. Ten thousand comparisons
//! cost less than one request, and no request needs its own timer.

use std::{
    cell::RefCell,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::task::AbortHandle;
use weir_config::Protocol;
use weir_observe::{
    clock::{self, NEVER},
    pulse::Pulse,
};

use super::{
    Gateway,
    conn::Conn,
    reactors::{Control, Meter},
    route,
};

/// A connection of this reactor.
#[derive(Debug)]
struct Watched {
    conn: Arc<Conn>,
    /// Its task; `None` while the connection is being set up.
    task: Option<AbortHandle>,
}

thread_local! {
    /// This reactor's connections. The slot of a closed connection is reused.
    static CONNECTIONS: RefCell<Vec<Option<Watched>>> = const { RefCell::new(Vec::new()) };
    static FREE_PLACES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Wakes the connections whose deadline has passed, counts idle ones, and measures how busy the
/// reactor is. Runs on each reactor (`home`) and never ends. `start` starts another reactor.
pub(super) async fn sweep(
    gateway: Arc<Gateway>,
    home: u16,
    pulse: Pulse,
    start: impl Fn(&Arc<Gateway>, u16) -> Result<(), String>,
) {
    let mut meter = Meter::new();
    let control = (home == 0).then(|| Control::new(&gateway.reactors));
    let mut control = control.flatten();
    let (mut draining, mut cut) = (false, false);
    let (mut sweep_files_at, mut give_back_at) = (0, 0);
    let mut rested = 0;
    loop {
        meter.rest(&gateway.reactors, home, &pulse).await;
        pulse.beat();
        tokio::select! {
            () = tokio::time::sleep(SWEEP) => {}
            () = gateway.census.asked(home) => {
                close_idle(&gateway, home);
                continue;
            }
            () = gateway.drain.started(), if !draining => {
                draining = true;
            }
            () = gateway.cut.started(), if !cut => {
                cut = true;
                cut_all();
            }
        }
        let now = clock::now();
        if now >= sweep_files_at {
            route::sweep(now);
            sweep_files_at = now + SWEEP_FILES;
        }
        let (mut resting, mut idle, mut longest) = (0, 0, NEVER);
        let (mut open, mut active) = (0, 0);
        let mut leaving = match gateway.reactors.has_let_go(home) {
            true => MOST_LEAVING,
            false => 0,
        };
        CONNECTIONS.with_borrow(|connections| {
            for Watched { conn, .. } in connections.iter().flatten() {
                let rests = conn.rests_since();
                open += 1;
                let recent = |since| now.saturating_sub(since) <= SWEEP.as_micros() as u64;
                active += usize::from(rests.map_or_else(|| !conn.is_idle(), recent));
                let leaves = leaving > 0 && rests.is_some();
                leaving -= usize::from(leaves);
                let comes_to_rest = conn
                    .idle_since()
                    .is_some_and(|since| now.saturating_sub(since) > REST_AFTER);
                if comes_to_rest {
                    conn.park();
                }
                resting += usize::from(comes_to_rest);
                idle += usize::from(conn.is_idle());
                longest = longest.min(conn.spare_since(now).unwrap_or(NEVER));
                if draining || leaves || conn.overdue(now) {
                    conn.wake();
                }
            }
        });
        meter.measure(&gateway.reactors, home, active, open);
        if let Some(control) = &mut control {
            control.look(&gateway, &start);
        }
        if let Some(reactor) = gateway.census.reactors.get(usize::from(home)) {
            reactor.count.store(idle, Relaxed);
            reactor.longest.store(longest, Relaxed);
        }
        // More connections may have become idle since the new connection looked for some.
        if longest < NEVER && gateway.census.waiting.load(Relaxed) > 0 {
            close_idle(&gateway, home);
        }
        rested += resting;
        if rested >= GIVE_BACK && resting < GIVE_BACK && now >= give_back_at {
            // The load is over and the buffers are free. Give memory back now: this reactor may have nothing to do
            // for hours.
            weir_sys::memory::give_back();
            rested = 0;
            give_back_at = now + GIVE_BACK_PAUSE;
        }
    }
}

/// Closes all connections of this reactor at once. Answers that were not sent yet are cut.
fn cut_all() {
    let tasks: Vec<AbortHandle> = CONNECTIONS.with_borrow(|connections| {
        let tasks = connections.iter().flatten();
        tasks.filter_map(|entry| entry.task.clone()).collect()
    });
    tasks.iter().for_each(AbortHandle::abort);
}

/// When the longest idle client connection of this reactor became idle. Connections of web servers in front are left
/// out: they are few, and each serves many clients.
pub(super) fn longest_idle(gateway: &Gateway) -> Option<u64> {
    let now = clock::now();
    CONNECTIONS.with_borrow(|connections| {
        let all = connections.iter().flatten();
        all.map(|entry| &entry.conn)
            .filter(|conn| is_of_client(gateway, conn))
            .filter_map(|conn| conn.spare_since(now))
            .min()
    })
}

/// Closes the longest idle connections of this reactor: an eighth of them, so that not every new connection has to
/// search the whole list, and 32 at most.
pub(super) fn close_idle(gateway: &Gateway, home: u16) {
    let (census, now) = (&gateway.census, clock::now());
    let mut idle: Vec<(u64, Arc<Conn>)> = CONNECTIONS.with_borrow(|connections| {
        let all = connections.iter().flatten();
        all.map(|entry| &entry.conn)
            .filter(|conn| is_of_client(gateway, conn))
            .filter_map(|conn| Some((conn.spare_since(now)?, conn.clone())))
            .collect()
    });
    if let Some(reactor) = census.reactors.get(usize::from(home)) {
        // Until the next sweep, other reactors must not ask for connections that are being closed now.
        reactor.longest.store(NEVER, Relaxed);
    }
    if idle.is_empty() {
        return;
    }
    let count = (idle.len() / 8).clamp(1, MOST_CLOSED);
    idle.select_nth_unstable_by_key(count - 1, |(since, _)| *since);
    idle.truncate(count);
    for (_, conn) in idle {
        conn.give_up_if_idle();
    }
    census.closed_for_others.fetch_add(count as u64, Relaxed);
    if let Some(times) = census.said_limit.due() {
        log::warn!(
            "max_connections ({}) of [server] is reached: connections that have been idle longest are closed \
             for new ones, {count} of them now; {times} times since the last message",
            census.max
        );
    }
}

fn is_of_client(gateway: &Gateway, conn: &Conn) -> bool {
    let listener = gateway.config.listeners.get(usize::from(conn.listener));
    listener.is_some_and(|listener| listener.protocol == Protocol::Http)
}

/// A slot in this reactor's list of connections. Dropping it, on the same reactor, frees the slot.
pub(super) struct Registered(usize);

/// The slot itself, for its task.
pub(super) struct Slot(usize);

impl Registered {
    pub(super) fn new(conn: Arc<Conn>) -> Registered {
        let entry = Watched { conn, task: None };
        CONNECTIONS.with_borrow_mut(|connections| match FREE_PLACES.with_borrow_mut(Vec::pop) {
            Some(place) => {
                connections[place] = Some(entry);
                Registered(place)
            }
            None => {
                connections.push(Some(entry));
                Registered(connections.len() - 1)
            }
        })
    }
}

impl Registered {
    pub(super) fn slot(&self) -> Slot {
        Slot(self.0)
    }
}

impl Slot {
    /// Notes the task of the connection that was just registered.
    pub(super) fn has_task(self, task: AbortHandle) {
        CONNECTIONS.with_borrow_mut(|connections| {
            if let Some(Some(entry)) = connections.get_mut(self.0) {
                entry.task = Some(task);
            }
        });
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let entry = CONNECTIONS.with_borrow_mut(|connections| connections[self.0].take());
        FREE_PLACES.with_borrow_mut(|free| free.push(self.0));
        drop(entry);
    }
}

/// How many idle connections are closed at once, at most.
const MOST_CLOSED: usize = 32;

/// How exact the deadlines of clients are, and how often a reactor measures how busy it is.
pub(super) const SWEEP: Duration = Duration::from_millis(200);

/// How often the open-file cache is checked, µs.
const SWEEP_FILES: u64 = 1_000_000;

/// How many idle connections of a reactor that was let go are moved at once.
const MOST_LEAVING: usize = 256;

/// A connection that is idle for this long (µs) rests: nothing of its last request is in use any more.
const REST_AFTER: u64 = 1_000_000;

/// After this many connections have come to rest, it is worth checking whether memory can be given back.
const GIVE_BACK: usize = 256;

/// Minimum time between two such checks, µs: a check costs milliseconds with much memory, and while a queue stays
/// long, requests start to wait all the time.
const GIVE_BACK_PAUSE: u64 = 2_000_000;
