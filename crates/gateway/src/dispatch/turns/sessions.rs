//! Which scripts hold the lock of their session (`serialize_by = "auto"`): weir's own PHP reports it with the end of each
//! request. Requests of one session for such scripts would wait for each other in their workers, so they take turns
//! before they get one ([`crate::dispatch::turns`]).
//!
//! A request counts as holding if it had the lock for at least half of its time, without the time that it waited for
//! it. A script counts as holding as long as at least half of its last [`REMEMBERED`] requests did. Two kinds of
//! requests do not count as not holding: those without the session's cookie, and those that take less than [`SHORT`].

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use weir_interfaces::secret;
use weir_observe::clock;

use crate::dispatch::PoolHandle;

/// The scripts of a pool that hold the lock of their session.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Whether anything is known.
    any: AtomicBool,
    scripts: Mutex<HashMap<u64, Known>>,
}

/// A script that holds the lock of its session.
#[derive(Debug)]
struct Known {
    /// The name of the session's cookie.
    cookie: Arc<str>,
    /// Which of the last requests held the lock: a bit for each, the lowest is the last one.
    held: u32,
    /// How many of these bits are of requests.
    seen: u32,
    /// When a request of it ended last ([`clock::now`]).
    last: u64,
}

/// A request whose end shows whether its script holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Learner {
    /// The script ([`script`]).
    pub(crate) script: u64,
    /// Whether the request has a session, as the cookies suggest.
    pub(crate) has_session: bool,
}

/// What a worker reports of a request that held the lock of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionUse {
    /// For how long it held the lock, µs.
    held: u64,
    /// How long it waited for the lock, µs.
    waited: u64,
    /// The name of the session's cookie.
    cookie: Box<str>,
}

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Learned {
    /// Requests of this script take turns from now on, by the cookie with this name.
    Holds(Arc<str>),
    /// Requests of this script do not take turns any more.
    HoldsNoMore,
}

impl SessionUse {
    /// The part of a READY record that follows the cost. `None` if a cookie cannot have this name: the script has
    /// chosen it.
    pub(crate) fn parse(content: &[u8]) -> Option<SessionUse> {
        let (held, rest) = content.split_first_chunk::<8>()?;
        let (waited, name) = rest.split_first_chunk::<8>()?;
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"=;,\"\\".contains(byte);
        let fits = (1..=LONGEST_NAME).contains(&name.len()) && name.iter().all(is_plain);
        fits.then(|| SessionUse {
            held: u64::from_be_bytes(*held),
            waited: u64::from_be_bytes(*waited),
            cookie: String::from_utf8_lossy(name).into(),
        })
    }

    /// Whether the request held the lock for most of its time. `served`: how long it had its worker, µs.
    fn is_long(&self, served: u64) -> bool {
        let own = served.saturating_sub(self.waited);
        self.held.saturating_mul(2) >= own
    }
}

impl Sessions {
    /// The name of the cookie by which requests of this script take turns; `None`: they do not.
    pub(crate) fn cookie(&self, script: u64) -> Option<Arc<str>> {
        if !self.any.load(Relaxed) {
            return None;
        }
        Some(self.scripts().get(&script)?.cookie.clone())
    }

    /// A request has ended: it had its worker for `served` µs, and used its session like this.
    pub(crate) fn learn(
        &self,
        learner: Learner,
        session: Option<&SessionUse>,
        served: u64,
        now: u64,
    ) -> Option<Learned> {
        let holds = session.filter(|session| session.is_long(served));
        if holds.is_none() && !self.any.load(Relaxed) {
            return None;
        }
        let mut scripts = self.scripts();
        let learned = match (scripts.get_mut(&learner.script), holds) {
            (Some(known), Some(session)) if *known.cookie == *session.cookie => {
                known.note(true, now);
                None
            }
            (_, Some(session)) => {
                if scripts.len() >= MOST_SCRIPTS {
                    let oldest = scripts.iter().min_by_key(|(_, known)| known.last);
                    let oldest = oldest.map(|(script, _)| *script);
                    oldest.and_then(|oldest| scripts.remove(&oldest));
                }
                let cookie: Arc<str> = session.cookie.as_ref().into();
                let known = Known {
                    cookie: cookie.clone(),
                    held: 1,
                    seen: 1,
                    last: now,
                };
                scripts.insert(learner.script, known);
                Some(Learned::Holds(cookie))
            }
            (Some(known), None) if learner.has_session && served >= SHORT => {
                let still = known.note(false, now);
                if !still {
                    scripts.remove(&learner.script);
                }
                (!still).then_some(Learned::HoldsNoMore)
            }
            (_, None) => None,
        };
        self.any.store(!scripts.is_empty(), Relaxed);
        learned
    }

    /// How many scripts hold the lock of their session.
    pub(crate) fn count(&self) -> usize {
        self.scripts().len()
    }

    fn scripts(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolHandle {
    /// The name of the cookie by which requests of this script ([`script`]) take turns; `None`: they do not.
    pub(crate) fn session_cookie(&self, script: u64) -> Option<Arc<str>> {
        self.sessions.cookie(script)
    }

    /// A request has ended: it had its worker for `served` µs, and used its session like this.
    pub(crate) fn learn(
        &self,
        learner: Learner,
        session: Option<&SessionUse>,
        served: u64,
    ) -> Option<Learned> {
        self.sessions.learn(learner, session, served, clock::now())
    }

    /// How many scripts are known to hold the lock of their session.
    pub(crate) fn session_scripts(&self) -> usize {
        self.sessions.count()
    }
}

impl Known {
    /// One more request has ended. Returns whether at least half of them held the lock.
    fn note(&mut self, held: bool, now: u64) -> bool {
        self.held = self.held << 1 | u32::from(held);
        self.seen = (self.seen + 1).min(REMEMBERED);
        self.last = now;
        self.held.count_ones() * 2 >= self.seen
    }
}

/// Identifies a script of a site.
pub(crate) fn script(site: Option<usize>, filename: &[u8]) -> u64 {
    secret::hash((site, filename))
}

/// For a shorter request, the share of its time with the lock is random, µs. Other requests do not wait long for it
/// either.
const SHORT: u64 = 10_000;

/// How many requests of a script are remembered.
const REMEMBERED: u32 = u32::BITS;

/// How many scripts of a pool are remembered. Beyond that, the one whose last request was the longest ago is forgotten.
const MOST_SCRIPTS: usize = 1024;

/// The longest name of a cookie, bytes, as in php/session.h.
const LONGEST_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn session(held: u64, waited: u64, cookie: &str) -> SessionUse {
        SessionUse {
            held,
            waited,
            cookie: cookie.into(),
        }
    }

    fn of(script: u64, has_session: bool) -> Learner {
        Learner {
            script,
            has_session,
        }
    }

    #[test]
    fn a_script_that_holds_its_lock_is_known_after_one_request_and_forgotten_after_a_few_others() {
        let sessions = Sessions::default();
        let holds = session(900, 0, "SID");
        assert_eq!(sessions.learn(of(1, false), None, 1_000, 1), None);
        assert_eq!(sessions.cookie(1), None);
        let learned = sessions.learn(of(1, false), Some(&holds), 1_000, 2);
        assert_eq!(learned, Some(Learned::Holds("SID".into())));
        assert_eq!(sessions.cookie(1).as_deref(), Some("SID"));
        assert_eq!(sessions.cookie(2), None);
        for _ in 0..20 {
            sessions.learn(of(1, true), Some(&holds), 1_000, 3);
        }
        // Requests without the cookie do not count, nor do very short ones.
        for _ in 0..100 {
            assert_eq!(sessions.learn(of(1, false), None, 50_000, 4), None);
            assert_eq!(sessions.learn(of(1, true), None, 5_000, 4), None);
        }
        let mut others = 0;
        while sessions.learn(of(1, true), None, 50_000, 5).is_none() {
            others += 1;
        }
        assert!((16..32).contains(&others), "{others}");
        assert_eq!(sessions.cookie(1), None);
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn what_waits_for_the_lock_holds_it_and_what_closes_it_early_does_not() {
        // The tenth of ten requests waits for nine others.
        assert!(session(100, 900, "S").is_long(1_000));
        assert!(session(60, 0, "S").is_long(100));
        assert!(!session(40, 0, "S").is_long(100));
        assert!(!session(1, 500, "S").is_long(1_000));
        // The clocks of both processes are read at different moments.
        assert!(session(100, 2_000, "S").is_long(1_000));
    }

    #[test]
    fn another_name_of_the_cookie_counts_at_once() {
        let sessions = Sessions::default();
        sessions.learn(of(1, false), Some(&session(9, 0, "A")), 10, 1);
        let learned = sessions.learn(of(1, true), Some(&session(9, 0, "B")), 10, 2);
        assert_eq!(learned, Some(Learned::Holds("B".into())));
        assert_eq!(sessions.cookie(1).as_deref(), Some("B"));
    }

    #[test]
    fn no_more_scripts_than_the_limit_are_kept() {
        let sessions = Sessions::default();
        for script in 0..MOST_SCRIPTS as u64 + 10 {
            sessions.learn(of(script, false), Some(&session(9, 0, "S")), 10, script);
        }
        assert_eq!(sessions.count(), MOST_SCRIPTS);
        assert_eq!(sessions.cookie(9), None);
        assert!(sessions.cookie(10).is_some());
    }

    #[test]
    fn a_report_with_a_name_that_no_cookie_can_have_is_left_aside() {
        let report = |name: &[u8]| {
            let numbers = [7_u64.to_be_bytes(), 3_u64.to_be_bytes()].concat();
            SessionUse::parse(&[&numbers, name].concat())
        };
        assert_eq!(report(b"PHPSESSID"), Some(session(7, 3, "PHPSESSID")));
        for name in [
            &b""[..],
            b"a b",
            b"a=b",
            b"a;b",
            b"\xff",
            b"\0",
            &[b'a'; 65],
        ] {
            assert_eq!(report(name), None, "{name:?}");
        }
        assert_eq!(SessionUse::parse(&[0; 15]), None);
    }
}
