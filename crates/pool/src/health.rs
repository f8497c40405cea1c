//! Whether a server is up, by the results of its requests and checks.
//!
//! ```text
//!        max_fails failures in a row, a refused connection, or `fall` bad checks
//!   Up ──────────────────────────────────────────────────────────────────────────► Down
//!   ▲                                                                               │
//!   └─ not checked: one request after the pause is answered; checked: `rise` good ──┘
//!      checks. Slowly, if `slowstart` says so.
//! ```

use crate::Micros;
use crate::balance::ServerState;

/// When servers go down and come back up; see [`crate::Balancing`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) max_fails: u32,
    pub(crate) fail_timeout: Micros,
    pub(crate) checked: bool,
    pub(crate) rise: u32,
    pub(crate) fall: u32,
    pub(crate) slowstart: Micros,
}

/// A server went up or down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The server is up again.
    Up {
        /// How long it was down.
        after: Micros,
    },
    /// The server is down.
    Down {
        /// The reason.
        why: Why,
        /// The server is tried again after this pause; `None`: when its checks are good.
        pause: Option<Micros>,
    },
}

/// Why a server went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The server refuses connections.
    Refused,
    /// Requests that failed.
    Failures,
    /// Its checks.
    Checks,
}

/// A server's state, and the data for it.
#[derive(Debug)]
pub(crate) struct Health {
    /// `None`: it is up.
    down: Option<Down>,
    /// When it came up or was added; `None`: long ago.
    back_since: Option<Micros>,
    /// Failures in a row, and when the first of them was.
    fails: u32,
    first_fail: Micros,
    good_checks: u32,
    bad_checks: u32,
    was_checked: bool,
    downs: u64,
}

#[derive(Debug)]
struct Down {
    since: Micros,
    /// Not tried before this time.
    until: Micros,
    pause: Micros,
    /// A request tests it, and counts as lost after this time.
    probed_until: Option<Micros>,
}

impl Health {
    /// A server that is up. `cold`: it starts slowly.
    pub(crate) fn new(now: Micros, cold: bool) -> Self {
        Self {
            down: None,
            back_since: cold.then_some(now),
            fails: 0,
            first_fail: Micros::ZERO,
            good_checks: 0,
            bad_checks: 0,
            was_checked: false,
            downs: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.down.is_none()
    }

    /// How often it went down.
    pub(crate) fn downs(&self) -> u64 {
        self.downs
    }

    pub(crate) fn state(&self, now: Micros, rules: &Rules) -> ServerState {
        match &self.down {
            Some(down) if down.probed_until.is_some() => ServerState::Probing,
            Some(_) => ServerState::Down,
            None if self.started(now, rules.slowstart) < 1_024 => ServerState::SlowStart,
            None => ServerState::Up,
        }
    }

    /// Its present part of its share, in 1/1,024; a tenth at first.
    pub(crate) fn started(&self, now: Micros, slowstart: Micros) -> u64 {
        let Some(since) = self.back_since.filter(|_| slowstart > Micros::ZERO) else {
            return 1_024;
        };
        let part = u128::from(now.since(since).0) * 1_024 / u128::from(slowstart.0);
        part.clamp(102, 1_024) as u64
    }

    /// Since when it may be tried again; `None`: it is up, it is too early, or it is being tried.
    pub(crate) fn due_since(&self, now: Micros) -> Option<Micros> {
        let down = self.down.as_ref()?;
        let free = down.probed_until.is_none_or(|until| until <= now);
        (free && down.until <= now).then_some(down.until)
    }

    /// The server gets a request. True: it is down, and this request tests it.
    pub(crate) fn begin_request(&mut self, until: Micros) -> bool {
        match &mut self.down {
            None => false,
            Some(down) => {
                down.probed_until = Some(until);
                true
            }
        }
    }

    pub(crate) fn answered(&mut self, now: Micros, probe: bool, rules: &Rules) -> Option<Change> {
        self.fails = 0;
        self.unknown(probe);
        match self.down.is_some() && probe && !rules.checked {
            true => self.rise(now),
            false => None,
        }
    }

    /// The result of a request says nothing about the server.
    pub(crate) fn unknown(&mut self, probe: bool) {
        if let Some(down) = self.down.as_mut().filter(|_| probe) {
            down.probed_until = None;
        }
    }

    pub(crate) fn failed(
        &mut self,
        now: Micros,
        probe: bool,
        why: Why,
        rules: &Rules,
    ) -> Option<Change> {
        if rules.max_fails == 0 {
            self.unknown(probe);
            return None;
        }
        if let Some(down) = &mut self.down {
            if probe {
                down.probed_until = None;
                down.pause = Micros(down.pause.0.saturating_mul(2)).min(rules.fail_timeout);
                down.until = match rules.checked {
                    true => Micros::MAX,
                    false => now.after(down.pause),
                };
            }
            return None;
        }
        if self.fails == 0 || now.since(self.first_fail) > rules.fail_timeout {
            (self.fails, self.first_fail) = (0, now);
        }
        self.fails = self.fails.saturating_add(1);
        // A server that refuses one connection refuses all.
        match why == Why::Refused || self.fails >= rules.max_fails {
            true => self.fall(now, why, rules),
            false => None,
        }
    }

    pub(crate) fn checked(&mut self, now: Micros, good: bool, rules: &Rules) -> Option<Change> {
        let known = core::mem::replace(&mut self.was_checked, true);
        if good {
            self.bad_checks = 0;
            self.good_checks = self.good_checks.saturating_add(1);
            return match self.down.is_some() && self.good_checks >= rules.rise {
                true => self.rise(now),
                false => None,
            };
        }
        self.good_checks = 0;
        self.bad_checks = self.bad_checks.saturating_add(1);
        match self.down.is_none() && (!known || self.bad_checks >= rules.fall) {
            true => self.fall(now, Why::Checks, rules),
            false => None,
        }
    }

    fn rise(&mut self, now: Micros) -> Option<Change> {
        let down = self.down.take()?;
        self.back_since = Some(now);
        (self.fails, self.bad_checks) = (0, 0);
        Some(Change::Up {
            after: now.since(down.since),
        })
    }

    fn fall(&mut self, now: Micros, why: Why, rules: &Rules) -> Option<Change> {
        let pause = Micros(rules.fail_timeout.0 / 10);
        self.downs += 1;
        self.good_checks = 0;
        self.down = Some(Down {
            since: now,
            until: match rules.checked {
                true => Micros::MAX,
                false => now.after(pause),
            },
            pause,
            probed_until: None,
        });
        Some(Change::Down {
            why,
            pause: (!rules.checked).then_some(pause),
        })
    }
}
