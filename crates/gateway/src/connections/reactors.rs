//! The reactors: how many run, and which one serves a connection.
//!
//! With `threads = 0` the number follows the load ([`weir_pool::ReactorScaler`] decides). The first reactors accept
//! ([`Reactors::acceptors`](weir_control::Reactors::acceptors)): they keep a connection or send it to another reactor,
//! which gets it through its mailbox. Only these have listening sockets, so a reactor that is stopped has no queue with
//! waiting connections.
//!
//! An existing connection moves between two requests, when its reactor is much busier than another one or is stopped.
//! Only its socket moves. A connection with a request stays until the request ends, and its reactor continues to
//! serve it. A reactor without connections sleeps: its thread waits without a timer.
//!
//! With another value of `threads`, all reactors accept, and connections stay where they were accepted.

use std::{
    cell::RefCell,
    sync::{
        OnceLock,
        atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    thread::available_parallelism,
    time::Duration,
};

use tokio::sync::{Notify, mpsc};
use weir_observe::{clock, log_sink::blocks, pulse::Pulse};
use weir_pool::{Micros, ReactorLoad, ReactorScaler, spread};
use weir_sys::cpu::{self, MachineTime};

use super::idle::Detached;
use crate::Gateway;

/// All reactors of the gateway, by their numbers.
#[derive(Debug)]
pub(crate) struct Reactors {
    elastic: bool,
    acceptors: u16,
    /// Reactors with a lower number accept connections.
    running: AtomicU16,
    /// Connections that have moved to another reactor between two requests.
    moved: AtomicU64,
    slots: Box<[Slot]>,
}

/// The part of a reactor that others use.
#[derive(Debug)]
struct Slot {
    /// Set once its thread has started.
    mailbox: OnceLock<mpsc::UnboundedSender<Detached>>,
    /// Wakes it when it sleeps.
    call: Notify,
    /// Its share of new connections.
    weight: AtomicU32,
    /// How many of its connections should move, and to which reactor.
    gives: AtomicU32,
    gives_to: AtomicU16,
    figures: Figures,
}

/// The measurements of a reactor about itself, made at each sweep.
#[derive(Debug, Default)]
struct Figures {
    /// Time in which it did not wait for events, µs.
    busy: AtomicU64,
    /// When that was measured ([`clock::precise`]).
    at: AtomicU64,
    /// Its share of busy time between the last two measurements, in thousandths.
    share: AtomicU32,
    /// Connections that had a request between them.
    active: AtomicU32,
}

/// A reactor's own part. It stays on the reactor's thread.
#[derive(Debug)]
pub(crate) struct Meter {
    /// At the last measurement: the thread's CPU time, and the clock.
    cpu: Duration,
    at: u64,
    /// Since when it has no connection and is not needed.
    unused_since: Option<u64>,
}

/// Decides how many reactors run. The first reactor has it.
#[derive(Debug)]
pub(crate) struct Control {
    scaler: ReactorScaler,
    /// The figures of each reactor at the last look.
    seen: Vec<(u64, u64, ReactorLoad)>,
    at: u64,
    /// No further thread is tried before this time.
    no_more_until: u64,
    /// The time of all processors at the last look.
    machine: Option<MachineTime>,
    /// Processors that weir may use.
    cores: usize,
}

thread_local! {
    /// Distribution of the connections that this thread has accepted so far ([`spread`](weir_pool::spread)).
    static CREDITS: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

impl Reactors {
    pub(crate) fn new(given: weir_control::Reactors) -> Reactors {
        let running = if given.elastic { 1 } else { given.most };
        Reactors {
            elastic: given.elastic,
            acceptors: given.acceptors(),
            running: AtomicU16::new(running),
            moved: AtomicU64::new(0),
            slots: (0..given.most.max(1)).map(|_| Slot::new()).collect(),
        }
    }

    /// Whether their number follows the load.
    pub(crate) fn is_elastic(&self) -> bool {
        self.elastic
    }

    /// How many take connections.
    pub(crate) fn running(&self) -> u16 {
        self.running.load(Relaxed)
    }

    /// The highest number of them.
    pub(crate) fn most(&self) -> u16 {
        self.slots.len() as u16
    }

    /// Connections that have moved between two requests so far.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }

    /// For each reactor that was started: its number, the share of its time in which it did not wait (0 to 1, in the
    /// last [`super::sweep::SWEEP`]), and that time in all, seconds.
    pub(crate) fn busy(&self) -> impl Iterator<Item = (u16, f64, f64)> {
        let started = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.has_started());
        started.map(|(number, Slot { figures, .. })| {
            let share = f64::from(figures.share.load(Relaxed)) / f64::from(WHOLE);
            (number, share, figures.busy.load(Relaxed) as f64 / 1e6)
        })
    }

    /// The thread of the reactor `home` was started, and takes connections from `mailbox`. That has no limit of its
    /// own: each connection in it counts as one of `max_connections`.
    pub(crate) fn has_started(&self, home: u16, mailbox: mpsc::UnboundedSender<Detached>) {
        if let Some(slot) = self.slots.get(usize::from(home)) {
            let _ = slot.mailbox.set(mailbox);
        }
    }

    /// The reactor for a connection that `home` has accepted; `None`: itself.
    pub(crate) fn for_new(&self, home: u16) -> Option<u16> {
        if !self.elastic || (home == 0 && self.running() == 1) {
            return None;
        }
        Some(self.choose()).filter(|chosen| *chosen != home)
    }

    /// Whether a connection of the reactor `home` that has no request should move.
    pub(crate) fn gives_away(&self, home: u16) -> bool {
        let Some(slot) = self.slots.get(usize::from(home)) else {
            return false;
        };
        slot.gives.load(Relaxed) > 0 || self.has_let_go(home)
    }

    /// Whether the reactor `home` should move all of its connections to others.
    pub(crate) fn has_let_go(&self, home: u16) -> bool {
        home >= self.running()
    }

    /// The reactor that a connection without a request should move to; `None`: it stays. Counts as one of those that
    /// should move.
    pub(crate) fn for_idle(&self, home: u16) -> Option<u16> {
        if self.has_let_go(home) {
            return Some(self.choose());
        }
        let slot = self.slots.get(usize::from(home))?;
        let to = slot.gives_to.load(Relaxed);
        let less = |count: u32| count.checked_sub(1);
        let taken = slot.gives.fetch_update(Relaxed, Relaxed, less).is_ok();
        (taken && to != home && to < self.running()).then_some(to)
    }

    /// Sends a connection of the reactor `home` that has no request to the reactor that it should move to.
    ///
    /// # Errors
    ///
    /// The connection, if it stays.
    pub(crate) fn pass_on(&self, home: u16, connection: Detached) -> Result<(), Detached> {
        match self.for_idle(home) {
            Some(to) => self.send(to, connection),
            None => Err(connection),
        }
    }

    /// Sends a connection to the reactor `to`.
    ///
    /// # Errors
    ///
    /// The connection, if that reactor does not take any.
    pub(crate) fn send(&self, to: u16, connection: Detached) -> Result<(), Detached> {
        let slot = self.slots.get(usize::from(to));
        let Some((slot, mailbox)) = slot.and_then(|slot| Some((slot, slot.mailbox.get()?))) else {
            return Err(connection);
        };
        let is_moved = connection.before.is_some();
        // The lines of its next requests come after those of its last ones.
        blocks::give();
        mailbox.send(connection).map_err(|refused| refused.0)?;
        slot.call.notify_one();
        if is_moved {
            self.moved.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Chooses one of the running reactors, in proportion to their weights.
    fn choose(&self) -> u16 {
        let running = usize::from(self.running());
        let weights = self.slots.iter().take(running);
        let weights = weights.map(|slot| slot.weight.load(Relaxed));
        let chosen = CREDITS.with_borrow_mut(|credits| spread(credits, weights));
        chosen.map_or(0, |chosen| chosen as u16)
    }

    /// Whether the reactor `home` may sleep while it has no connections.
    fn may_sleep(&self, home: u16) -> bool {
        self.elastic && home >= self.acceptors && self.has_let_go(home)
    }
}

impl Slot {
    fn new() -> Slot {
        Slot {
            mailbox: OnceLock::new(),
            call: Notify::new(),
            weight: AtomicU32::new(1),
            gives: AtomicU32::new(0),
            gives_to: AtomicU16::new(0),
            figures: Figures::default(),
        }
    }

    fn has_started(&self) -> bool {
        self.mailbox.get().is_some()
    }
}

impl Meter {
    /// A meter of the calling reactor.
    pub(crate) fn new() -> Meter {
        Meter {
            cpu: weir_sys::cpu::of_thread(),
            at: clock::precise(),
            unused_since: None,
        }
    }

    /// Measures the time since the last call. `active`: connections that had a request in it; `open`: all of them.
    ///
    /// The CPU time of its thread counts. Time in which other programs had the processor does not: another reactor would
    /// only take more of it from them, and they are often the workers of PHP.
    pub(crate) fn measure(&mut self, reactors: &Reactors, home: u16, active: usize, open: usize) {
        let now = clock::precise();
        let span = now.saturating_sub(self.at);
        if span < SHORTEST {
            return;
        }
        let cpu = weir_sys::cpu::of_thread();
        let used = (cpu.saturating_sub(self.cpu).as_micros() as u64).min(span);
        (self.cpu, self.at) = (cpu, now);
        let is_unused = open == 0 && reactors.may_sleep(home);
        self.unused_since = is_unused.then(|| self.unused_since.unwrap_or(now));
        if let Some(Slot { figures, .. }) = reactors.slots.get(usize::from(home)) {
            figures.busy.fetch_add(used, Relaxed);
            let share = used * u64::from(WHOLE) / span;
            figures.share.store(share as u32, Relaxed);
            figures.active.store(active as u32, Relaxed);
            figures.at.store(now, Relaxed);
        }
    }

    /// If the reactor has had nothing to do for a while, waits without a timer until it gets a connection.
    pub(crate) async fn rest(&mut self, reactors: &Reactors, home: u16, pulse: &Pulse) {
        let unused = |since: u64| clock::precise().saturating_sub(since) >= SLEEPS_AFTER;
        let Some(slot) = reactors.slots.get(usize::from(home)) else {
            return;
        };
        if !self.unused_since.is_some_and(unused) || !reactors.may_sleep(home) {
            return;
        }
        weir_sys::memory::give_back();
        slot.figures.share.store(0, Relaxed);
        pulse.rest();
        slot.call.notified().await;
        pulse.beat();
        // A connection that was sent long ago may have woken it. Then it sleeps again after the next sweep.
        *self = Meter {
            unused_since: self.unused_since,
            ..Meter::new()
        };
    }
}

impl Control {
    /// `None`: the number of reactors is fixed.
    pub(crate) fn new(reactors: &Reactors) -> Option<Control> {
        (reactors.elastic && reactors.most() > 1).then(|| Control {
            scaler: ReactorScaler::new(reactors.most()),
            seen: vec![(0, 0, ReactorLoad::default()); reactors.slots.len()],
            at: 0,
            no_more_until: 0,
            machine: None,
            cores: available_parallelism().map_or(usize::MAX, usize::from),
        })
    }

    /// Checks the reactors' figures, and applies the decisions. `start` starts the thread of a reactor.
    pub(crate) fn look(
        &mut self,
        gateway: &'static Gateway,
        start: impl Fn(&'static Gateway, u16) -> Result<(), String>,
    ) {
        let reactors = &gateway.reactors;
        let now = clock::precise();
        // Connections are neither accepted nor moved any more: each closes after its next answer.
        let span = now.saturating_sub(self.at);
        if span < SHORTEST || gateway.drain.has_started() {
            return;
        }
        self.at = now;
        let loads = self.loads(reactors);
        let idle = self.idle(span);
        let at = Micros(now);
        let orders = self.scaler.look(at, &loads, idle);
        if let Some(change) = orders.change {
            let mut failed = None;
            for number in change.before..change.reactors {
                let has_started = reactors.slots[usize::from(number)].has_started();
                let started = match has_started {
                    true => Ok(()),
                    false if now < self.no_more_until => Err(None),
                    false => start(gateway, number).map_err(Some),
                };
                if let Err(error) = started {
                    failed = Some((number, error));
                    break;
                }
            }
            if let Some((number, error)) = failed {
                self.scaler.could_not_start(at, number);
                if let Some(error) = error {
                    log::warn!("{error}: weir continues with {number} reactors");
                    self.no_more_until = now + TRY_AGAIN;
                }
            }
            let running = self.scaler.running();
            reactors.running.store(running, Relaxed);
            for slot in &reactors.slots[usize::from(change.before.min(running))..] {
                slot.call.notify_one();
            }
            if running != change.before {
                let busy = f64::from(change.busy) / 10.0;
                let (before, most) = (change.before, reactors.most());
                match running > before {
                    true => log::info!(
                        "{running} of at most {most} reactors accept connections now: {before} were busy {busy:.0} % of the time"
                    ),
                    false => log::info!(
                        "{running} of at most {most} reactors accept connections now: {before} were busy only {busy:.0} % of the time"
                    ),
                }
            }
        }
        for (slot, weight) in reactors.slots.iter().zip(self.scaler.weights()) {
            slot.weight.store(*weight, Relaxed);
        }
        if let Some(moves) = orders.moves {
            let slots = reactors.slots.iter();
            slots.for_each(|slot| slot.gives.store(0, Relaxed));
            for order in moves {
                if let Some(slot) = reactors.slots.get(usize::from(order.from)) {
                    slot.gives_to.store(order.to, Relaxed);
                    slot.gives.store(order.connections, Relaxed);
                }
            }
        }
    }

    /// How much of a processor was idle since the last look, `span` (µs) ago: all processors together, in thousandths of one. `None`: that
    /// is not known, or weir may not use all processors of the machine.
    fn idle(&mut self, span: u64) -> Option<u32> {
        let now = cpu::of_machine()?;
        let before = self.machine.replace(now)?;
        let thousandths = |ticks: u64| ticks.saturating_mul(TICK * u64::from(WHOLE)).div_ceil(span);
        let all = thousandths(now.all.saturating_sub(before.all));
        let others = all > (self.cores as u64).saturating_mul(u64::from(WHOLE) * 3 / 2);
        (!others).then(|| {
            let idle = thousandths(now.idle.saturating_sub(before.idle));
            u32::try_from(idle).unwrap_or(u32::MAX)
        })
    }

    /// What each reactor did since the last look. A reactor that has not measured itself since then keeps its last
    /// load.
    fn loads(&mut self, reactors: &Reactors) -> Vec<ReactorLoad> {
        let started = reactors.slots.iter().take_while(|slot| slot.has_started());
        let loads = started.zip(&mut self.seen).map(|(slot, seen)| {
            let figures = &slot.figures;
            let (busy, at) = (figures.busy.load(Relaxed), figures.at.load(Relaxed));
            let span = at.saturating_sub(seen.1);
            let used = busy.saturating_sub(seen.0) * u64::from(WHOLE);
            if let Some(share) = used.checked_div(span) {
                let load = ReactorLoad {
                    busy: (share as u32).min(WHOLE),
                    active: figures.active.load(Relaxed),
                };
                *seen = (busy, at, load);
            }
            match figures.share.load(Relaxed) {
                // It sleeps.
                0 => ReactorLoad::default(),
                _ => seen.2,
            }
        });
        loads.collect()
    }
}

/// All of the time, in thousandths.
const WHOLE: u32 = 1_000;

/// The unit of the kernel's times of processors, µs (USER_HZ).
const TICK: u64 = 10_000;

/// A measurement covers at least this time, µs.
const SHORTEST: u64 = 100_000;

/// A reactor that was stopped sleeps when it has had no connection for this long, µs. Its cached files are closed by
/// then.
const SLEEPS_AFTER: u64 = 30_000_000;

/// After a thread could not be started, it is tried again after this time, µs.
const TRY_AGAIN: u64 = 60_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::{limits::ConnectionLimits, proxy_protocol::Ends};

    fn elastic(most: u16) -> Reactors {
        Reactors::new(weir_control::Reactors {
            most,
            elastic: true,
        })
    }

    #[test]
    fn one_reactor_keeps_what_it_accepts() {
        assert_eq!(elastic(4).for_new(0), None);
        let fixed = Reactors::new(weir_control::Reactors {
            most: 4,
            elastic: false,
        });
        assert_eq!((fixed.running(), fixed.most()), (4, 4));
        for home in 0..4 {
            assert_eq!(fixed.for_new(home), None);
            assert!(!fixed.gives_away(home));
        }
    }

    #[test]
    fn connections_go_to_the_reactors_that_run() {
        let reactors = elastic(16);
        reactors.running.store(3, Relaxed);
        let mut got = [0; 16];
        for _ in 0..300 {
            got[usize::from(reactors.for_new(0).unwrap_or(0))] += 1;
        }
        assert_eq!(got[..4], [100, 100, 100, 0]);
        // When the second reactor that accepts is stopped, it moves all of its connections to others.
        reactors.running.store(1, Relaxed);
        assert_eq!(reactors.for_new(1), Some(0));
        assert!(reactors.gives_away(1) && !reactors.gives_away(0));
        assert_eq!(reactors.for_idle(1), Some(0));
        assert!(!reactors.may_sleep(1) && reactors.may_sleep(2));
    }

    #[test]
    fn a_connection_that_cannot_leave_or_may_stay_after_all_is_kept() {
        let limits: &'static ConnectionLimits =
            Box::leak(Box::new(ConnectionLimits::new((9, 0), 2, 1)));
        let (client, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        let connection = Detached {
            listener: 0,
            socket: socket.into(),
            tls: None,
            ends: Ends::new(None, None),
            place: limits.enter(None).unwrap(),
            before: Some((1, 0)),
        };
        let reactors = elastic(2);
        // The other one has not started.
        let connection = reactors.pass_on(1, connection).unwrap_err();
        let (sender, mut mailbox) = mpsc::unbounded_channel();
        reactors.has_started(0, sender);
        // This reactor had been stopped. It runs again before its idle connections have left.
        reactors.running.store(2, Relaxed);
        let connection = reactors.pass_on(1, connection).unwrap_err();
        reactors.running.store(1, Relaxed);
        reactors.pass_on(1, connection).unwrap();
        let arrived = mailbox.try_recv().unwrap();
        assert!(!weir_sys::socket::peer_closed(std::os::fd::AsFd::as_fd(
            &client
        )));
        drop(arrived);
    }

    #[test]
    fn as_many_connections_move_as_were_asked_for() {
        let reactors = elastic(2);
        reactors.running.store(2, Relaxed);
        reactors.slots[0].gives_to.store(1, Relaxed);
        reactors.slots[0].gives.store(2, Relaxed);
        let moved: Vec<_> = (0..4).map(|_| reactors.for_idle(0)).collect();
        assert_eq!(moved, [Some(1), Some(1), None, None]);
        assert!(!reactors.gives_away(0));
    }
}
