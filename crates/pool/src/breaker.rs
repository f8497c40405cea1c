//! Whether an origin is called at all, as the calls before tell: a circuit breaker.

use crate::Micros;

/// When a [`Breaker`] opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerRules {
    /// So many failures in a row open it; 0: nothing does.
    pub max_fails: u32,
    /// The longest pause before a call tries whether the origin is back. The first one is a tenth of it, and each try that
    /// fails doubles it, as with the servers of a pool ([`crate::Balancing`]). A try that takes longer than this is taken
    /// for one that failed.
    pub fail_timeout: Micros,
}

/// Whether an origin is called.
///
/// ```text
///          max_fails failures in a row, or nine in ten of all
/// Closed ──────────────────────────────────────────────────────► Open ◄─────────────┐
///   ▲                                                             │ ask, when the   │ it fails, or takes longer
///   │                                                             ▼ pause is over   │ than fail_timeout: a pause
///   └──────────────────────── success of a try ◄────────────── HalfOpen ────────────┘ twice as long
/// ```
///
/// # States and events
///
/// **Closed**: all calls go. **Open**: none does before the pause is over. **HalfOpen**: one call, the **probe**, tries; no
/// other goes. Who makes a call asks before ([`ask`](Self::ask)) and says how it ended ([`ended`](Self::ended)), whatever
/// became of it, and be it only that its caller left.
///
/// | event | Closed | Open, pausing | Open, pause over | HalfOpen |
/// |---|---|---|---|---|
/// | `ask` | `Go` | `Open` | `Probe`; → HalfOpen | `Open` |
/// | `refuses` | no | yes | no | yes |
/// | a call begun since it closed succeeds | no failure in a row any more | – | – | – |
/// | … fails | counted; → Open if that is too many | – | – | – |
/// | … says nothing | nothing | – | – | – |
/// | a call begun before succeeds, fails, says nothing | nothing | nothing | nothing | nothing |
/// | the probe succeeds | – | – | – | → Closed |
/// | … fails | – | – | – | → Open, the pause doubled |
/// | … says nothing | – | – | – | → Open, pause over |
/// | `fail_timeout` passes | nothing | → pause over | nothing | → Open, the pause doubled |
/// | a probe that took too long succeeds | nothing | → Closed | → Closed | → Closed |
/// | … fails, says nothing | nothing | nothing | nothing | nothing |
///
/// “–” cannot be: of calls, those that go are begun while it is closed, and probes while it is half open; what began
/// before the last change is in the row of “a call begun before”.
///
/// # What counts
///
/// - A failure is one of a row if its call began after the last success had ended. So slow failures of calls that are
///   older than the proof that the origin answers are no row.
/// - Many calls that fail in one outage open it once: those that began before it opened change nothing any more, and
///   only a probe makes the pause longer.
/// - A row is one however long it takes: of an origin that is called once an hour it takes `max_fails` hours, and costs a
///   pause that nobody notices.
/// - Beside the row, the share counts: nine failures in ten of the last calls, of at least 20 and of at least twice
///   `max_fails`. That is for an origin of which a rare success breaks every row, as where some calls are answered at
///   once and all others run into their timeout. A smaller share would do harm: half of the calls that fail are half that
///   succeed, and most of these would be refused. `tests/behaviour/breaker.rs` compares.
///
/// Times may come a little out of order; one that is earlier than the last is taken for the last. Every call is O(1), and
/// nothing is allocated.
#[derive(Debug)]
pub struct Breaker {
    rules: BreakerRules,
    clock: Micros,
    /// Counts up with each success, each probe and each change, so that of two calls it can be told which began later.
    number: u64,
    /// The number when it opened or closed last.
    changed_at: u64,
    state: State,
    /// Failures in a row.
    row: u32,
    /// Calls that ended since it closed, and of them those that failed; both are halved now and then.
    ended: u32,
    failed: u32,
    opened: u64,
    refused: u64,
}

/// A call that may be made. It goes back into [`Breaker::ended`] in any case.
#[must_use = "a breaker is told of the end of each call"]
#[derive(Debug, PartialEq, Eq)]
pub struct Attempt {
    number: u64,
}

/// The answer to [`Breaker::ask`].
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Make the call.
    Go(Attempt),
    /// Make the call: it tries whether the origin is back, and no other is made meanwhile.
    Probe(Attempt),
    /// Do not make it.
    Open {
        /// It is of use to ask again after that.
        retry_after: Micros,
    },
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The origin answered, whatever it said. It may be told with the head of the answer: a probe whose body takes long
    /// keeps others out until then.
    Success,
    /// The origin failed: no connection, no answer in time, or none that is whole.
    Failure,
    /// It says nothing of the origin: its caller left, or it was not made after all.
    Unknown,
}

/// What a breaker does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// All calls go.
    Closed {
        /// Failures in a row.
        fails: u32,
    },
    /// No call goes.
    Open {
        /// Since when it is not closed.
        since: Micros,
        /// When one may try; it may be past.
        until: Micros,
    },
    /// One call tries.
    HalfOpen {
        /// Since when it is not closed.
        since: Micros,
    },
}

/// A breaker opened or closed; a try that fails is none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerChange {
    /// It is open.
    Opened {
        /// Failures in a row; 0: it was the share.
        fails: u32,
        /// The origin is tried after that.
        pause: Micros,
    },
    /// It is closed.
    Closed {
        /// It was not for so long.
        after: Micros,
    },
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed,
    Open(Outage),
    /// With the number of the probe, and when it has taken too long.
    HalfOpen(Outage, u64, Micros),
}

#[derive(Debug, Clone, Copy)]
struct Outage {
    since: Micros,
    pause: Micros,
    until: Micros,
}

impl Breaker {
    /// A closed one.
    pub fn new(rules: BreakerRules) -> Self {
        Self {
            rules,
            clock: Micros::ZERO,
            number: 0,
            changed_at: 0,
            state: State::Closed,
            row: 0,
            ended: 0,
            failed: 0,
            opened: 0,
            refused: 0,
        }
    }

    /// May a call be made?
    pub fn ask(&mut self, now: Micros) -> Verdict {
        if let Some(retry_after) = self.refuses(now) {
            return Verdict::Open { retry_after };
        }
        if let State::Open(outage) | State::HalfOpen(outage, ..) = self.state {
            self.number += 1;
            let overdue = self.clock.after(self.rules.fail_timeout);
            self.state = State::HalfOpen(outage, self.number, overdue);
            return Verdict::Probe(Attempt {
                number: self.number,
            });
        }
        Verdict::Go(Attempt {
            number: self.number,
        })
    }

    /// Whether a call that asked now would not be let through, and after which time it is of use to come again; that is
    /// counted as refused. It is for who would have to wait for something else before [`ask`](Self::ask).
    pub fn refuses(&mut self, now: Micros) -> Option<Micros> {
        let now = self.advance(now);
        let retry_after = match self.state {
            State::Closed => return None,
            State::Open(outage) if outage.until <= now => return None,
            State::Open(outage) => outage.until.since(now),
            State::HalfOpen(..) => self.first_pause(),
        };
        self.refused += 1;
        Some(retry_after)
    }

    /// A call has ended. Some: what to tell people of it.
    pub fn ended(
        &mut self,
        now: Micros,
        attempt: Attempt,
        outcome: Outcome,
    ) -> Option<BreakerChange> {
        let now = self.advance(now);
        let is_old = attempt.number < self.changed_at;
        match (self.state, outcome) {
            _ if is_old => None,
            (State::Closed, Outcome::Unknown) => None,
            (State::Closed, Outcome::Success) => {
                self.row = 0;
                self.number += 1;
                self.count(0);
                None
            }
            (State::Closed, Outcome::Failure) => {
                // Else somebody else has succeeded since it began.
                let counts = u32::from(attempt.number == self.number);
                self.row = self.row.saturating_add(counts);
                self.count(1);
                self.is_too_much().then(|| self.open(now))
            }
            // What is not old is a probe.
            (State::Open(outage) | State::HalfOpen(outage, ..), Outcome::Success) => {
                Some(self.close(now, outage))
            }
            (State::HalfOpen(outage, probe, _), _) if probe == attempt.number => {
                self.state = State::Open(match outcome {
                    Outcome::Failure => self.next_pause(now, outage),
                    Outcome::Success | Outcome::Unknown => outage,
                });
                None
            }
            // It took too long, and was counted then.
            (State::Open(_) | State::HalfOpen(..), _) => None,
        }
    }

    /// What it does now.
    pub fn state(&self, now: Micros) -> BreakerState {
        match self.at(now.max(self.clock)) {
            State::Closed => BreakerState::Closed { fails: self.row },
            State::Open(Outage { since, until, .. }) => BreakerState::Open { since, until },
            State::HalfOpen(Outage { since, .. }, ..) => BreakerState::HalfOpen { since },
        }
    }

    /// How often it opened. A try that fails does not count.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Calls that were not let through.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn advance(&mut self, now: Micros) -> Micros {
        self.clock = self.clock.max(now);
        self.state = self.at(self.clock);
        self.clock
    }

    /// The state at a time that is not past: a probe may have taken too long.
    fn at(&self, now: Micros) -> State {
        match self.state {
            State::HalfOpen(outage, _, overdue) if overdue <= now => {
                State::Open(self.next_pause(overdue, outage))
            }
            state => state,
        }
    }

    fn count(&mut self, failed: u32) {
        self.ended += 1;
        self.failed += failed;
        if self.ended >= self.enough().saturating_mul(2) {
            (self.ended, self.failed) = (self.ended / 2, self.failed / 2);
        }
    }

    fn is_too_much(&self) -> bool {
        let most = u64::from(self.ended) * SHARE;
        self.rules.max_fails > 0
            && (self.row >= self.rules.max_fails
                || (self.ended >= self.enough() && u64::from(self.failed) * 100 >= most))
    }

    /// Of so many calls a share says something.
    fn enough(&self) -> u32 {
        self.rules.max_fails.saturating_mul(2).max(20)
    }

    fn open(&mut self, now: Micros) -> BreakerChange {
        let pause = self.first_pause();
        let fails = match self.row >= self.rules.max_fails {
            true => self.row,
            false => 0,
        };
        self.opened += 1;
        self.change_to(State::Open(Outage {
            since: now,
            pause,
            until: now.after(pause),
        }));
        BreakerChange::Opened { fails, pause }
    }

    fn close(&mut self, now: Micros, outage: Outage) -> BreakerChange {
        self.change_to(State::Closed);
        BreakerChange::Closed {
            after: now.since(outage.since),
        }
    }

    fn change_to(&mut self, state: State) {
        self.number += 1;
        self.changed_at = self.number;
        (self.row, self.ended, self.failed) = (0, 0, 0);
        self.state = state;
    }

    fn first_pause(&self) -> Micros {
        Micros(self.rules.fail_timeout.0 / 10)
    }

    fn next_pause(&self, now: Micros, outage: Outage) -> Outage {
        let doubled = Micros(outage.pause.0.saturating_mul(2));
        let pause = doubled.min(self.rules.fail_timeout);
        Outage {
            pause,
            until: now.after(pause),
            ..outage
        }
    }
}

/// So many percent of failures are too many.
const SHARE: u64 = 90;
