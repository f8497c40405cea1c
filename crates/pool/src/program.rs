//! A program that weir runs beside the pools: which of its processes are started, told to end and killed, and when.
//!
//! A program has slots, one for each process that it may have at the same time. The state of a slot:
//!
//! ```text
//!         wanted                 started                 told to end
//! Resting ──────► Waiting ──────────────────► Running ──────────────► Ending
//!    ▲               ▲  ▲ cannot be started │    │ ended by itself       │ ended, or killed after stop_timeout
//!    │               │  └───────────────────┘    │                       │
//!    │               └── is to run again ◄───────┴── what it has left ◄──┘
//!    └────────────────── is not ◄──────────────────── has ended, too
//! ```
//!
//! A slot in which a process still runs, or something that it has started, takes no other one: after a deployment the new process starts
//! when the old one has ended, and no job is done by two. Processes that another weir still ends ([`Program::is_elsewhere`]) count
//! as well.
//!
//! A program without schedule wants a process in each slot. One with a schedule has one slot, and wants a process when its time
//! comes.

use alloc::vec::Vec;

use crate::{
    Micros,
    backoff::{Allowance, Backoff, Failed, YOUNG},
};

/// The rules of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramRules {
    /// Number of slots.
    pub instances: usize,
    /// When its processes are started.
    pub starts: Starts,
    /// How long a process may run. [`Micros::MAX`]: no limit.
    pub max_runtime: Micros,
    /// How long a process may take to end.
    pub stop_timeout: Micros,
}

/// When a process is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starts {
    /// Always, and again when it has ended.
    Always,
    /// Once, and again when it has failed.
    OnFailure,
    /// Once.
    Once,
    /// When a time comes.
    OnTime {
        /// If the time comes while a process runs, another one is started when that has ended.
        waits: bool,
    },
}

/// The decisions of one program.
#[derive(Debug)]
pub struct Program {
    rules: ProgramRules,
    slots: Vec<Slot>,
    /// Its time has come while it runs.
    waits: bool,
    /// Nothing is started any more.
    stops: bool,
}

#[derive(Debug)]
struct Slot {
    state: State,
    backoff: Backoff,
    /// It is to run again when its process has ended.
    again: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Resting,
    Waiting,
    Running {
        since: Micros,
    },
    /// It ends, and is killed at this time. `told`: it knows.
    Ending {
        told: bool,
        kill_at: Micros,
    },
    /// Its process has ended, and others that it has started have not.
    Left {
        kill_at: Micros,
    },
    /// Another weir has its process.
    Elsewhere,
}

/// What the caller has to do for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramOrder {
    /// Start a process, and tell with [`Program::started`] or [`Program::not_started`].
    Start(usize),
    /// Tell the process that it should end. `too_long`: because of `max_runtime`.
    End {
        /// The slot.
        slot: usize,
        /// It has run for `max_runtime`.
        too_long: bool,
    },
    /// Kill the process, and all that it has started.
    Kill(usize),
}

/// What becomes of a time of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// A process is started.
    Starts,
    /// A process is started when the present one has ended.
    Waits,
    /// Nothing: the program still runs.
    Skipped,
}

/// What a slot does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing.
    Resting,
    /// It is started again at this time.
    Waiting(Micros),
    /// It has run since this time.
    Running(Micros),
    /// It was told to end.
    Ending,
    /// Only processes that it has started are still there.
    Left,
    /// Another weir has its process.
    Elsewhere,
}

impl Program {
    /// A program that wants its processes from now on. `elsewhere`: the slots whose processes another weir has.
    pub fn new(rules: ProgramRules, elsewhere: &[usize]) -> Self {
        let count = elsewhere.iter().map(|slot| slot + 1).max().unwrap_or(0);
        let mut program = Self {
            rules,
            slots: Vec::new(),
            waits: false,
            stops: false,
        };
        for index in 0..count.max(rules.instances) {
            let mut slot = program.empty(index);
            if elsewhere.contains(&index) {
                (slot.again, slot.state) = (slot.state == State::Waiting, State::Elsewhere);
            }
            program.slots.push(slot);
        }
        program
    }

    /// The new configuration of the same kind of program is in force: processes that always run are replaced.
    pub fn renew(&mut self, rules: ProgramRules, now: Micros) {
        self.rules = rules;
        while self.slots.len() < rules.instances {
            self.slots.push(self.empty(self.slots.len()));
        }
        self.replace(now);
    }

    /// Replaces the processes that always run. Runs of a schedule finish.
    pub fn replace(&mut self, now: Micros) {
        let kill_at = now.after(self.rules.stop_timeout);
        if self.is_on_time() || self.stops {
            return;
        }
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let is_wanted = index < self.rules.instances;
            slot.backoff = Backoff::new();
            slot.again = is_wanted;
            match slot.state {
                State::Running { .. } => slot.end(kill_at),
                State::Resting | State::Waiting if is_wanted => slot.state = State::Waiting,
                State::Waiting => slot.state = State::Resting,
                _ => {}
            }
        }
    }

    /// Nothing is started any more. Processes that always run end; the run of a schedule finishes.
    pub fn leave(&mut self, now: Micros) {
        self.halt(now, !self.is_on_time());
    }

    /// Nothing is started any more, and all processes end.
    pub fn stop(&mut self, now: Micros) {
        self.halt(now, true);
    }

    fn halt(&mut self, now: Micros, ends: bool) {
        let kill_at = now.after(self.rules.stop_timeout);
        (self.stops, self.waits) = (true, false);
        for slot in &mut self.slots {
            slot.again = false;
            match slot.state {
                State::Running { .. } if ends => slot.end(kill_at),
                State::Waiting => slot.state = State::Resting,
                _ => {}
            }
        }
    }

    /// As [`stop`](Self::stop), and all that still runs is killed after this time at the latest.
    pub fn hurry(&mut self, now: Micros, grace: Micros) {
        self.stop(now);
        for slot in &mut self.slots {
            if let State::Ending { kill_at, .. } | State::Left { kill_at } = &mut slot.state {
                *kill_at = now.after(grace).min(*kill_at);
            }
        }
    }

    /// A time of the schedule has come.
    pub fn due(&mut self) -> Taken {
        let Starts::OnTime { waits } = self.rules.starts else {
            return Taken::Skipped;
        };
        match self.slots.first_mut() {
            _ if self.stops => Taken::Skipped,
            Some(slot) if slot.state == State::Resting => {
                slot.state = State::Waiting;
                Taken::Starts
            }
            // It could not be started yet: this process stands for both times.
            Some(slot) if slot.state == State::Waiting => Taken::Waits,
            Some(_) if waits => {
                self.waits = true;
                Taken::Waits
            }
            _ => Taken::Skipped,
        }
    }

    /// Whether its time has come, and no process was started for it yet.
    pub fn is_due(&self) -> bool {
        let waits = self.slots.first().map(|slot| slot.state) == Some(State::Waiting);
        self.is_on_time() && (waits || self.waits)
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Micros) -> Vec<ProgramOrder> {
        let mut orders = Vec::new();
        let rules = self.rules;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            match &mut slot.state {
                State::Waiting => match slot.backoff.allowance(now) {
                    Allowance::NothingUntil(_) => {}
                    _ => orders.push(ProgramOrder::Start(index)),
                },
                State::Running { since } if now.since(*since) >= rules.max_runtime => {
                    slot.again = matches!(rules.starts, Starts::Always | Starts::OnFailure);
                    slot.state = State::Ending {
                        told: true,
                        kill_at: now.after(rules.stop_timeout),
                    };
                    orders.push(ProgramOrder::End {
                        slot: index,
                        too_long: true,
                    });
                }
                State::Ending { told, .. } if !*told => {
                    *told = true;
                    orders.push(ProgramOrder::End {
                        slot: index,
                        too_long: false,
                    });
                }
                State::Ending { kill_at, .. } | State::Left { kill_at } if *kill_at <= now => {
                    *kill_at = now.after(KILL_AGAIN);
                    orders.push(ProgramOrder::Kill(index));
                }
                _ => {}
            }
        }
        orders
    }

    /// The process of a slot was started.
    pub fn started(&mut self, slot: usize, now: Micros) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.state = State::Running { since: now };
            slot.backoff.came(now);
        }
    }

    /// The process of a slot could not be started: another one is tried soon.
    pub fn not_started(&mut self, slot: usize, now: Micros) {
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.backoff.failed(now, now, Failed::Start);
        }
    }

    /// The process of a slot has ended. `succeeded`: its exit code was 0. `left`: processes that it has started are still there.
    pub fn exited(&mut self, index: usize, now: Micros, succeeded: bool, left: bool) {
        let rules = self.rules;
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let mut kill_at = now.after(rules.stop_timeout);
        match slot.state {
            State::Running { since } => {
                slot.again = !self.stops
                    && index < rules.instances
                    && match rules.starts {
                        Starts::Always => true,
                        Starts::OnFailure => !succeeded,
                        Starts::Once | Starts::OnTime { .. } => false,
                    };
                match now.since(since) < YOUNG {
                    true if slot.again => {
                        slot.backoff.failed(now, since, Failed::Idle);
                    }
                    _ => slot.backoff = Backoff::new(),
                }
            }
            State::Ending { kill_at: until, .. } => kill_at = until,
            _ => {}
        }
        slot.state = State::Left { kill_at };
        if !left {
            self.gone(index);
        }
    }

    /// What the process of a slot has started has ended, too; or the process of another weir has.
    pub fn gone(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if !matches!(slot.state, State::Left { .. } | State::Elsewhere) {
            return;
        }
        let again =
            core::mem::take(&mut slot.again) || (index == 0 && core::mem::take(&mut self.waits));
        slot.state = match again && !self.stops {
            true => State::Waiting,
            false => State::Resting,
        };
        while self.slots.len() > self.rules.instances
            && (self.slots.last()).is_some_and(|slot| slot.state == State::Resting)
        {
            self.slots.pop();
        }
    }

    /// When [`tick`](Self::tick) is next needed; `None`: not before something happens.
    pub fn next(&self, now: Micros) -> Option<Micros> {
        let times = self.slots.iter().filter_map(|slot| match slot.state {
            State::Waiting => Some(slot.backoff.paused_until(now).unwrap_or(now)),
            State::Running { since } => Some(since.after(self.rules.max_runtime)),
            State::Ending { told: false, .. } => Some(now),
            State::Ending { kill_at, .. } | State::Left { kill_at } => Some(kill_at),
            State::Resting | State::Elsewhere => None,
        });
        times.filter(|time| *time < Micros::MAX).min()
    }

    /// The slots and what they do.
    pub fn slots(&self, now: Micros) -> impl Iterator<Item = SlotState> {
        self.slots.iter().map(move |slot| match slot.state {
            State::Resting => SlotState::Resting,
            State::Waiting => SlotState::Waiting(slot.backoff.paused_until(now).unwrap_or(now)),
            State::Running { since } => SlotState::Running(since),
            State::Ending { .. } => SlotState::Ending,
            State::Left { .. } => SlotState::Left,
            State::Elsewhere => SlotState::Elsewhere,
        })
    }

    /// How often in a row the processes of a slot have ended young.
    pub fn failures(&self, now: Micros) -> u32 {
        let failures = self.slots.iter().map(|slot| match slot.state {
            State::Running { since } if now.since(since) >= YOUNG => 0,
            _ => slot.backoff.failures(),
        });
        failures.max().unwrap_or(0)
    }

    /// Whether a slot's process belongs to another weir.
    pub fn is_elsewhere(&self, slot: usize) -> bool {
        let slot = self.slots.get(slot);
        slot.is_some_and(|slot| slot.state == State::Elsewhere)
    }

    /// Whether nothing of it runs or will run.
    pub fn is_gone(&self) -> bool {
        self.slots.iter().all(|slot| slot.state == State::Resting)
    }

    fn is_on_time(&self) -> bool {
        matches!(self.rules.starts, Starts::OnTime { .. })
    }

    /// A slot without a process.
    fn empty(&self, index: usize) -> Slot {
        let is_wanted = index < self.rules.instances && !self.is_on_time();
        Slot {
            state: match is_wanted {
                true => State::Waiting,
                false => State::Resting,
            },
            backoff: Backoff::new(),
            again: false,
        }
    }
}

impl Slot {
    /// Its process is told to end at the next [`Program::tick`].
    fn end(&mut self, kill_at: Micros) {
        let told = false;
        self.state = State::Ending { told, kill_at };
    }
}

/// A process that is still there is killed again after this time.
const KILL_AGAIN: Micros = Micros::from_secs(5);
