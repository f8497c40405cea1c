//! A circuit breaker: decides by the results of earlier calls whether an origin is called.

use crate::Micros;

/// When a [`Breaker`] opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerRules {
    /// This many failures in a row open it; 0: never.
    pub max_fails: u32,
    /// Maximum pause before a call tests whether the origin works again. The first pause is a tenth of it, and each
    /// failed test doubles it, as with the servers of a pool ([`crate::Balancing`]). A test that takes longer than
    /// this counts as failed.
    pub fail_timeout: Micros,
}

/// Decides whether an origin is called.
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
/// **Closed**: all calls are made. **Open**: no call is made until the pause is over. **HalfOpen**: one call, the
/// **probe**, tests the origin, and no other is made. The caller asks before each call ([`ask`](Self::ask)) and reports
/// the end of each call ([`ended`](Self::ended)), even if the script that made the call has left.
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
/// “–” is impossible: calls begin while the breaker is closed, and probes while it is half open. Calls that began
/// before the last change are in the row “a call begun before”.
///
/// # What counts
///
/// - A failure counts for the row only if its call began after the last success had ended. So slow failures of calls
///   that are older than a success are not a row.
/// - Many calls that fail in one outage open the breaker only once: those that began before it opened have no further
///   effect, and only probes make the pause longer.
/// - The duration of a row does not matter: for an origin that is called once an hour, it takes `max_fails` hours,
///   and the pause is not noticed.
/// - Besides the row, the share of failures counts: nine in ten of the last calls, of at least 20 calls and at least
///   twice `max_fails`. This is for origins where rare successes break every row, for example if some calls are
///   answered at once and all others time out. A smaller share would do harm: if half of the calls fail, the other
///   half succeeds, and most of those would be refused. `tests/behaviour/breaker.rs` compares.
///
/// Times may come slightly out of order; a time before the last one counts as the last one. Every call is O(1) and
/// allocates nothing.
#[derive(Debug)]
pub struct Breaker {
    rules: BreakerRules,
    clock: Micros,
    /// Increases with each success, probe and change, so that it is known which of two calls began later.
    number: u64,
    /// The number when it last opened or closed.
    changed_at: u64,
    state: State,
    /// Failures in a row.
    row: u32,
    /// Calls that ended since it closed, and how many of them failed; both are halved from time to time.
    ended: u32,
    failed: u32,
    opened: u64,
    refused: u64,
}

/// A call that may be made. It must be passed to [`Breaker::ended`] in any case.
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
    /// Make the call: it tests the origin, and no other call is made meanwhile.
    Probe(Attempt),
    /// Do not make the call.
    Open {
        /// The time after which a retry makes sense.
        retry_after: Micros,
    },
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The origin answered, with any status. It may be reported with the head of the answer: as long as a probe has
    /// not ended, other calls are refused.
    Success,
    /// The origin failed: no connection, no answer in time, or an incomplete one.
    Failure,
    /// The result says nothing about the origin: the caller left, or the call was not made.
    Unknown,
}

/// The present state of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// All calls are made.
    Closed {
        /// Failures in a row.
        fails: u32,
    },
    /// No call is made.
    Open {
        /// Since when it has not been closed.
        since: Micros,
        /// When a test is allowed; may be in the past.
        until: Micros,
    },
    /// One call tests the origin.
    HalfOpen {
        /// Since when it has not been closed.
        since: Micros,
    },
}

/// A breaker opened or closed. A failed probe is neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerChange {
    /// The breaker opened.
    Opened {
        /// Failures in a row; 0: the share of failures was too high.
        fails: u32,
        /// The origin is tested after this pause.
        pause: Micros,
    },
    /// The breaker closed.
    Closed {
        /// How long it was not closed.
        after: Micros,
    },
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed,
    Open(Outage),
    /// With the number of the probe, and when the probe times out.
    HalfOpen(Outage, u64, Micros),
}

#[derive(Debug, Clone, Copy)]
struct Outage {
    since: Micros,
    pause: Micros,
    until: Micros,
}

impl Breaker {
    /// A closed breaker.
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

    /// Whether a call may be made.
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

    /// Whether a call would be refused now, and after which time a retry makes sense; this counts as refused. For
    /// callers that would have to wait for something else before [`ask`](Self::ask).
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

    /// A call has ended. `Some`: a change to report to people.
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
                // If the numbers differ, another call has succeeded since this one began.
                let counts = u32::from(attempt.number == self.number);
                self.row = self.row.saturating_add(counts);
                self.count(1);
                self.is_too_much().then(|| self.open(now))
            }
            // Old attempts were handled above, so this one is a probe.
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
            // The probe timed out and was counted then.
            (State::Open(_) | State::HalfOpen(..), _) => None,
        }
    }

    /// The present state.
    pub fn state(&self, now: Micros) -> BreakerState {
        match self.at(now.max(self.clock)) {
            State::Closed => BreakerState::Closed { fails: self.row },
            State::Open(Outage { since, until, .. }) => BreakerState::Open { since, until },
            State::HalfOpen(Outage { since, .. }, ..) => BreakerState::HalfOpen { since },
        }
    }

    /// How often it opened; failed probes do not count.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Number of refused calls.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn advance(&mut self, now: Micros) -> Micros {
        self.clock = self.clock.max(now);
        self.state = self.at(self.clock);
        self.clock
    }

    /// The state at this time: a probe may have timed out.
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

    /// The number of calls from which on the share counts.
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

/// This percentage of failures is too much.
const SHARE: u64 = 90;
