//! The connections of a reactor: a list, and the sweep that watches their deadlines.
//!
//! Every [`SWEEP`] a reactor looks at its connections whose deadline may have passed ([`weir_http::watch`]), so no
//! request needs its own timer. Connections without a task are in [`super::idle`].
//!
//! So timeouts of clients are exact to 200 ms. At the deadline of a write, weir asks the kernel once more whether bytes have left
//! meanwhile (`SIOCOUTQ`), and then continues to wait.

use std::{cell::RefCell, rc::Rc, sync::atomic::Ordering::Relaxed, time::Duration};

use slab::Slab;
use tokio::task::AbortHandle;
use weir_config::Protocol;
use weir_http::watch;
use weir_observe::{
    clock::{self, NEVER},
    log_sink::blocks,
    pulse::Pulse,
};

use super::{
    client::Conn,
    handover, idle,
    reactors::{Control, Meter},
    silent::{self, Age, Counts},
};
use crate::{Gateway, route};

/// A connection of this reactor.
#[derive(Debug)]
struct Watched {
    conn: Rc<Conn>,
    /// Its task; `None` while the connection is being set up.
    task: Option<AbortHandle>,
}

thread_local! {
    /// This reactor's connections.
    static CONNECTIONS: RefCell<Slab<Watched>> = const { RefCell::new(Slab::new()) };
}

/// Wakes the connections whose deadline has passed, counts idle ones, and measures how busy the
/// reactor is. Runs on each reactor (`home`) and never ends. `start` starts another reactor.
pub(crate) async fn sweep(
    gateway: &'static Gateway,
    home: u16,
    pulse: Pulse,
    start: impl Fn(&'static Gateway, u16) -> Result<(), String>,
) {
    let mut meter = Meter::new();
    let control = (home == 0).then(|| Control::new(&gateway.reactors));
    let mut control = control.flatten();
    let (mut draining, mut cut) = (false, false);
    let (mut sweep_files_at, mut give_back_at) = (0, 0);
    let mut rested = 0;
    let mut due = Vec::new();
    loop {
        meter.rest(&gateway.reactors, home, &pulse).await;
        pulse.beat();
        tokio::select! {
            () = tokio::time::sleep(SWEEP) => {}
            () = gateway.connections.asked(home) => {
                close_idle(gateway, home);
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
        // A reactor that never has to wait gives its log lines to the writer here.
        blocks::give();
        let now = clock::now();
        if now >= sweep_files_at {
            route::sweep(now);
            sweep_files_at = now + SWEEP_FILES;
        }
        watch::due(now, &mut due);
        let resting = look_at(due.drain(..), now);
        idle::close_overdue(now);
        if draining {
            let waits = handover::give_idle(gateway);
            wake_all(|_| true);
            if !waits {
                idle::close_all(false);
            }
        } else if gateway.reactors.has_let_go(home) {
            give_away(gateway, home);
        }
        let counts = watch::look();
        let (open, idle) = (counts.open + idle::count(), counts.idle + idle::count());
        meter.measure(&gateway.reactors, home, counts.active, open);
        if let Some(control) = &mut control {
            control.look(gateway, &start);
        }
        let longest = match idle {
            0 => NEVER,
            _ if gateway.connections.is_nearly_full() => longest_idle(gateway).unwrap_or(NEVER),
            // Nobody needs the exact time, and finding it may take long.
            _ => idle::longest(now).min(now),
        };
        let silent = match gateway.connections.is_nearly_full() {
            true => silent::count(gateway, now),
            false => Counts::default(),
        };
        if let Some(reactor) = gateway.connections.reactors.get(usize::from(home)) {
            reactor.count.store(idle, Relaxed);
            reactor.spare(longest, silent);
        }
        // More connections may have become idle since the new connection looked for some.
        let has_spare = longest < NEVER || silent != Counts::default();
        if has_spare && gateway.connections.waiting.load(Relaxed) > 0 {
            close_idle(gateway, home);
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

/// Wakes the connections in these slots if a deadline has passed or they should rest. Returns how many should rest.
fn look_at(slots: impl Iterator<Item = u32>, now: u64) -> usize {
    let mut resting = 0;
    CONNECTIONS.with_borrow(|connections| {
        for slot in slots {
            let Some(Watched { conn, .. }) = connections.get(slot as usize) else {
                continue;
            };
            let rests = conn.should_rest(now);
            if rests {
                conn.park();
                resting += 1;
            }
            if rests || conn.overdue(now) {
                conn.wake();
            }
            conn.looked_at();
        }
    });
    resting
}

/// Wakes the connections for which this is true.
fn wake_all(is_meant: impl FnMut(&&Rc<Conn>) -> bool) {
    CONNECTIONS.with_borrow(|connections| {
        let all = connections.iter().map(|(_, entry)| &entry.conn);
        all.filter(is_meant).for_each(|conn| conn.wake());
    });
}

/// Moves idle connections of this reactor, which is leaving, to others: at most [`MOST_LEAVING`] at once.
fn give_away(gateway: &Gateway, home: u16) {
    for connection in idle::take_some(MOST_LEAVING) {
        // The reactor may have been told to go on meanwhile.
        if let Err(connection) = gateway.reactors.pass_on(home, connection) {
            idle::keep(gateway, connection);
        }
    }
    let mut left = MOST_LEAVING;
    wake_all(|conn| {
        let leaves = left > 0 && conn.rests_since().is_some();
        left -= usize::from(leaves);
        leaves
    });
}

/// Closes all connections of this reactor at once. Answers that were not sent yet are cut.
fn cut_all() {
    idle::close_all(true);
    let tasks: Vec<AbortHandle> = CONNECTIONS.with_borrow(|connections| {
        let tasks = connections.iter();
        tasks.filter_map(|(_, entry)| entry.task.clone()).collect()
    });
    tasks.iter().for_each(AbortHandle::abort);
}

/// When the longest idle client connection of this reactor became idle. Connections of web servers in front are left
/// out: they are few, and each serves many clients.
pub(crate) fn longest_idle(gateway: &Gateway) -> Option<u64> {
    let now = clock::now();
    // Those with a task have been idle for a shorter time.
    let longest = idle::longest(now);
    if longest < NEVER {
        return Some(longest);
    }
    let mut longest = None;
    each_of_client(gateway, |conn| {
        let since = conn.spare_since(now);
        longest = longest.into_iter().chain(since).min();
    });
    longest
}

/// Shows each connection of this reactor that has a task and is of a client.
pub(crate) fn each_of_client(gateway: &Gateway, mut show: impl FnMut(&Rc<Conn>)) {
    CONNECTIONS.with_borrow(|connections| {
        let all = connections.iter().map(|(_, entry)| &entry.conn);
        all.filter(|conn| is_of_client(gateway, conn))
            .for_each(&mut show);
    });
}

/// Closes connections of this reactor that have no request, as [`silent`] says: an eighth of those that may go, so that not every new
/// connection has to search the whole list, and 32 at most.
pub(crate) fn close_idle(gateway: &Gateway, home: u16) {
    let (limits, now) = (&gateway.connections, clock::now());
    if let Some(reactor) = limits.reactors.get(usize::from(home)) {
        // Until the next sweep, other reactors must not ask for connections that are being closed now.
        reactor.spare(NEVER, Counts::default());
    }
    let eighth = |all: usize| (all / 8).clamp(1, MOST_CLOSED);
    let mut count = silent::close(gateway, Age::Grown, eighth, now);
    if count == 0 {
        count = idle::close_longest(eighth, now);
    }
    if count == 0 {
        count = give_up_longest(gateway, eighth, now);
    }
    if count == 0 {
        count = silent::close(gateway, Age::Young, eighth, now);
    }
    if count == 0 {
        return;
    }
    limits.closed_for_others.fetch_add(count as u64, Relaxed);
    if let Some(times) = limits.said_limit.due() {
        log::warn!(
            "max_connections ({}) of [server] is reached: connections that have asked nothing or have been idle longest are \
             closed for new ones, {count} of them now; {times} times since the last message",
            limits.max
        );
    }
}

/// Closes those that have been idle for longest of the connections with a task, `share` of them. Returns how many.
fn give_up_longest(gateway: &Gateway, share: impl Fn(usize) -> usize, now: u64) -> usize {
    let mut idle: Vec<(u64, Rc<Conn>)> = Vec::new();
    each_of_client(gateway, |conn| {
        idle.extend(conn.spare_since(now).map(|since| (since, conn.clone())));
    });
    if idle.is_empty() {
        return 0;
    }
    let count = share(idle.len());
    idle.select_nth_unstable_by_key(count - 1, |(since, _)| *since);
    idle.truncate(count);
    for (_, conn) in idle {
        conn.give_up_if_idle();
    }
    count
}

fn is_of_client(gateway: &Gateway, conn: &Conn) -> bool {
    let listener = gateway.config.listeners.get(usize::from(conn.listener));
    listener.is_some_and(|listener| listener.protocol == Protocol::Http)
}

/// A slot in this reactor's list of connections. Dropping it, on the same reactor, frees the slot.
pub(crate) struct Registered(usize);

/// The slot itself, for its task.
pub(crate) struct Slot(usize);

impl Registered {
    pub(crate) fn new(conn: Rc<Conn>) -> Registered {
        let place = CONNECTIONS.with_borrow_mut(|connections| {
            connections.insert(Watched {
                conn: conn.clone(),
                task: None,
            })
        });
        conn.watch(place as u32);
        Registered(place)
    }

    pub(crate) fn slot(&self) -> Slot {
        Slot(self.0)
    }
}

impl Slot {
    /// Notes the task of the connection that was just registered.
    pub(crate) fn has_task(self, task: AbortHandle) {
        CONNECTIONS.with_borrow_mut(|connections| {
            if let Some(entry) = connections.get_mut(self.0) {
                entry.task = Some(task);
            }
        });
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let entry = CONNECTIONS.with_borrow_mut(|connections| connections.try_remove(self.0));
        if let Some(entry) = entry {
            entry.conn.unwatch();
        }
    }
}

/// How many idle connections are closed at once, at most.
const MOST_CLOSED: usize = 32;

/// How exact the deadlines of clients are, and how often a reactor measures how busy it is.
pub(crate) const SWEEP: Duration = Duration::from_millis(200);

/// How often the open-file cache is checked, µs.
const SWEEP_FILES: u64 = 1_000_000;

/// How many idle connections of a leaving reactor are moved at once.
const MOST_LEAVING: usize = 256;

/// After this many connections have become idle, it is worth checking whether memory can be given back.
const GIVE_BACK: usize = 256;

/// Minimum time between two such checks, µs: a check costs milliseconds with much memory, and while a queue stays
/// long, requests start to wait all the time.
const GIVE_BACK_PAUSE: u64 = 2_000_000;
