//! Scripts that crash their workers again and again: they are refused for some time, and shown in the log and the
//! admin interface. [`weir_pool::Crashes`] decides. This module reports crashes to it and stores the names for its
//! numbers.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use weir_config::Workers;
use weir_interfaces::secret;
use weir_observe::{
    clock,
    scoreboard::{self, WorkerScore},
};
use weir_pool::{CrashRules, Crashes, Micros, Suspect};

use super::{PoolHandle, Slot, State, scaling::Effects, servers::Note};

/// What has crashed workers of a pool lately.
#[derive(Debug)]
pub(super) struct Suspects {
    crashes: Crashes,
    /// Path and script of those that are refused.
    names: HashMap<u64, (String, String)>,
    /// How many requests were refused.
    pub(super) refused: u64,
}

/// Whether there are any suspects. Normal requests check only this.
#[derive(Debug, Default)]
pub(super) struct Any(AtomicBool);

/// A script that is refused now.
#[derive(Debug)]
pub(crate) struct Crashing {
    pub(crate) path: String,
    pub(crate) script: String,
    /// How many workers it has crashed.
    pub(crate) crashes: u32,
    /// How many of its requests were refused.
    pub(crate) refused: u64,
    /// Whole seconds until one request is tried.
    pub(crate) seconds: u64,
}

impl Suspects {
    pub(super) fn new(workers: Option<&Workers>) -> Suspects {
        let micros = |time: std::time::Duration| Micros(time.as_micros() as u64);
        let rules = match workers {
            Some(workers) => CrashRules {
                limit: workers.crash_limit,
                window: micros(workers.crash_window),
                pause: micros(workers.crash_pause),
            },
            None => CrashRules {
                limit: 0,
                window: Micros::ZERO,
                pause: Micros::ZERO,
            },
        };
        Suspects {
            crashes: Crashes::new(rules),
            names: HashMap::new(),
            refused: 0,
        }
    }

    fn crashing(&self, suspect: &Suspect, now: Micros) -> Option<Crashing> {
        let until = suspect.until?;
        let (path, script) = self.names.get(&suspect.key)?;
        Some(Crashing {
            path: path.clone(),
            script: script.clone(),
            crashes: suspect.crashes,
            refused: suspect.refused,
            seconds: until.since(now).0.div_ceil(1_000_000),
        })
    }
}

impl State {
    /// A worker has ended during the request in its slot's score.
    pub(super) fn crashed_at_work(
        &mut self,
        pool: &PoolHandle,
        slot: &Slot,
        now: Micros,
        effects: &mut Effects,
    ) {
        let (Some(score), Some(exit)) = (&slot.score, slot.exit) else {
            return;
        };
        let (key, begun) = score.request(subject);
        let suspects = &mut self.suspects;
        let refused = suspects.crashes.crashed(now, key, Micros(begun));
        pool.any_suspects.0.store(true, Relaxed);
        let Some(refused) = refused else { return };
        let done = score.status().request;
        // A client may have chosen both texts, so they are escaped.
        let text = |bytes: &[u8]| format!("{:?}", String::from_utf8_lossy(bytes));
        let (path, script) = (text(&done.uri), text(&done.script));
        let seconds = refused
            .until
            .map_or(0, |until| until.since(now).0 / 1_000_000);
        effects.note(Note::Crashing(format!(
            "{path} (script {script}) has crashed {} workers, the last by {exit}: requests for it are refused with 503 for \
             {seconds} s, then one is tried (crash_limit, crash_pause)",
            refused.crashes
        )));
        let known: Vec<u64> = suspects.crashes.suspects().iter().map(|s| s.key).collect();
        suspects.names.retain(|key, _| known.contains(key));
        suspects.names.insert(key, (path, script));
    }

    /// The request in this score was answered.
    pub(super) fn answered(
        &mut self,
        pool: &PoolHandle,
        score: &WorkerScore,
        now: Micros,
        effects: &mut Effects,
    ) {
        if !pool.any_suspects.0.load(Relaxed) {
            return;
        }
        let suspects = &mut self.suspects;
        let (key, _) = score.request(subject);
        if let Some(over) = suspects.crashes.answered(now, key)
            && let Some((path, _)) = suspects.names.remove(&key)
        {
            effects.note(Note::CrashesOver(format!(
                "{path} answers again and is no longer refused; {} requests for it were refused",
                over.refused
            )));
        }
        let any = !suspects.crashes.suspects().is_empty();
        pool.any_suspects.0.store(any, Relaxed);
    }
}

impl PoolHandle {
    /// Whether a request for this script and URI (as the client sent it) may be given to a worker.
    ///
    /// # Errors
    ///
    /// The crashes of the script, if it is refused.
    pub(crate) fn may_run(&'static self, script: &[u8], uri: &[u8]) -> Result<(), Crashing> {
        if !self.any_suspects.0.load(Relaxed) {
            return Ok(());
        }
        let (key, now) = (subject(script, uri), Micros(clock::now()));
        let mut state = self.state();
        let suspects = &mut state.suspects;
        if suspects.crashes.may_run(now, key).is_ok() {
            return Ok(());
        }
        suspects.refused += 1;
        let all = suspects.crashes.suspects();
        let suspect = all.iter().find(|suspect| suspect.key == key);
        let crashing = suspect.and_then(|suspect| suspects.crashing(suspect, now));
        crashing.map_or(Ok(()), Err)
    }

    /// The scripts that are refused now because they crash workers.
    pub(crate) fn crashing(&self) -> Vec<Crashing> {
        let (state, now) = (self.state(), Micros(clock::now()));
        let suspects = &state.suspects;
        let all = suspects.crashes.suspects().iter();
        all.filter_map(|suspect| suspects.crashing(suspect, now))
            .collect()
    }

    /// How many requests were refused because their script crashes workers.
    pub(crate) fn refused_crashing(&self) -> u64 {
        self.state().suspects.refused
    }
}

/// Identifies requests that crash workers: by the script's file, and by the path without query, because a front
/// controller serves all paths. Both are cut as a scoreboard cuts them. The hash has a secret key, so that nobody can
/// choose paths that collide with others.
fn subject(script: &[u8], uri: &[u8]) -> u64 {
    let script = &script[..script.len().min(scoreboard::LONGEST)];
    let uri = &uri[..uri.len().min(scoreboard::LONGEST)];
    let path = uri.split(|byte| *byte == b'?').next().unwrap_or_default();
    secret::hash((script, path))
}
