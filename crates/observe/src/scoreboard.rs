//! The current and past requests of each worker of a pool: the figures of PHP-FPM's status page and of
//! `fpm_get_status()`.
//!
//! Each worker has a [`WorkerScore`] with its own lock, which only its request and sometimes a reader use. A request is
//! stored by copying a few short texts into memory of the score. References to the request's own texts would keep the
//! client's buffer as long as the worker is idle.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use crate::{
    clock,
    pool_log::{Cost, user_of},
    pool_status::{RequestStatus, Stage, WorkerStatus},
};

/// The data of a request that is stored when a worker gets it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts<'r> {
    pub method: &'r [u8],
    /// Path and query as the client sent them.
    pub uri: &'r [u8],
    /// SCRIPT_FILENAME.
    pub script: &'r [u8],
    /// The client's credentials (`Authorization`).
    pub authorization: &'r [u8],
    /// REMOTE_USER, if another program has authenticated the client.
    pub user: &'r [u8],
    /// Length of the body, bytes.
    pub content_length: u64,
}

impl Facts<'_> {
    /// The request as the status page shows it at its begin, without a script.
    pub fn request(&self) -> RequestStatus {
        let mut uri = self.uri.splitn(2, |byte| *byte == b'?');
        RequestStatus {
            method: self.method.to_vec(),
            uri: uri.next().unwrap_or_default().to_vec(),
            query: uri.next().unwrap_or_default().to_vec(),
            content_length: self.content_length,
            user: match self.user {
                b"" => user_of(self.authorization).unwrap_or_default(),
                user => user.to_vec(),
            },
            ..RequestStatus::default()
        }
    }
}

/// One worker's entry on the scoreboard. `C`: a client's connection.
#[derive(Debug)]
pub struct WorkerScore<C> {
    entry: Mutex<Activity<C>>,
    /// The number (as in the logs) of the worker's request; 0: none.
    request: AtomicU64,
    /// The time by which its answer must have begun ([`clock::now`]).
    deadline: AtomicU64,
}

#[derive(Debug)]
struct Activity<C> {
    pid: u32,
    started: SystemTime,
    requests: u64,
    stage: Stage,
    /// When the request began, and how long it took ([`clock::now`]).
    begun: u64,
    duration: u64,
    cost: Cost,
    content_length: u64,
    /// Who has sent the request, if that may be a worker.
    asker: Option<C>,
    /// The texts of the request, one after the other, and the end of each.
    texts: Vec<u8>,
    ends: [usize; TEXTS],
}

impl<C> WorkerScore<C> {
    /// For a process that was just started.
    pub fn new(pid: u32) -> WorkerScore<C> {
        let entry = Mutex::new(Activity {
            pid,
            started: SystemTime::now(),
            requests: 0,
            stage: Stage::Idle,
            begun: 0,
            duration: 0,
            cost: Cost::default(),
            content_length: 0,
            asker: None,
            texts: Vec::new(),
            ends: [0; TEXTS],
        });
        WorkerScore {
            entry,
            request: AtomicU64::new(0),
            deadline: AtomicU64::new(clock::NEVER),
        }
    }

    /// Sets the number of the worker's request in the logs, and the time by which it must be answered ([`clock::now`]).
    /// [`clock::NEVER`]: no deadline, or its answer has begun.
    pub fn works_for(&self, request: u64, deadline: u64) {
        self.deadline.store(deadline, Relaxed);
        self.request.store(request, Relaxed);
    }

    /// The values that were set last; `None` if the worker has no request.
    pub fn works(&self) -> Option<(u64, u64)> {
        let request = self.request.load(Relaxed);
        (request != 0).then(|| (request, self.deadline.load(Relaxed)))
    }

    /// The worker gets a request. `asker`: who has sent it, if that may be a worker.
    pub fn begin(&self, facts: &Facts<'_>, asker: Option<C>) {
        let mut entry = self.entry();
        let entry = &mut *entry;
        entry.requests += 1;
        entry.stage = Stage::Running;
        entry.asker = asker;
        entry.begun = clock::now();
        entry.content_length = facts.content_length;
        entry.texts.clear();
        let texts = [
            facts.method,
            facts.uri,
            facts.script,
            facts.user,
            facts.authorization,
        ];
        for (text, end) in texts.into_iter().zip(&mut entry.ends) {
            entry
                .texts
                .extend_from_slice(&text[..text.len().min(LONGEST)]);
            *end = entry.texts.len();
        }
    }

    /// Its response is complete, but its script still runs.
    pub fn finishing(&self) {
        self.entry().stage = Stage::Finishing;
    }

    /// The worker is free again.
    pub fn end(&self, cost: Cost) {
        self.request.store(0, Relaxed);
        let mut entry = self.entry();
        if entry.stage == Stage::Idle {
            return;
        }
        entry.stage = Stage::Idle;
        entry.duration = clock::now().saturating_sub(entry.begun);
        entry.cost = cost;
    }

    /// Who has sent its request, if that may be a worker; `None` while the worker has no request.
    pub fn asker(&self) -> Option<C>
    where
        C: Clone,
    {
        let entry = self.entry();
        let works = entry.stage != Stage::Idle;
        works.then(|| entry.asker.clone()).flatten()
    }

    /// Calls `read` with the script and the URI of its running or last request. Returns the result, and when the
    /// request began ([`clock::now`]).
    pub fn request<T>(&self, read: impl FnOnce(&[u8], &[u8]) -> T) -> (T, u64) {
        let entry = self.entry();
        let [_, uri, script, ..] = entry.texts();
        (read(script, uri), entry.begun)
    }

    /// The figures of this worker.
    pub fn status(&self) -> WorkerStatus {
        let entry = self.entry();
        let [method, uri, script, user, authorization] = entry.texts();
        let duration = entry.elapsed();
        let mut uri = uri.splitn(2, |byte| *byte == b'?');
        let cost = match entry.stage {
            Stage::Idle => entry.cost,
            Stage::Running | Stage::Finishing => Cost::default(),
        };
        WorkerStatus {
            pid: entry.pid,
            stage: entry.stage,
            started: entry.started,
            requests: entry.requests,
            request: RequestStatus {
                duration,
                method: method.to_vec(),
                uri: uri.next().unwrap_or_default().to_vec(),
                query: uri.next().unwrap_or_default().to_vec(),
                content_length: entry.content_length,
                user: match user {
                    b"" => user_of(authorization).unwrap_or_default(),
                    user => user.to_vec(),
                },
                script: script.to_vec(),
                cpu: match duration.as_micros() {
                    0 => 0.0,
                    micros => cost.cpu as f64 * 100.0 / micros as f64,
                },
                memory: cost.memory,
            },
        }
    }

    fn entry(&self) -> MutexGuard<'_, Activity<C>> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Activity<C> {
    fn elapsed(&self) -> Duration {
        Duration::from_micros(match self.stage {
            Stage::Idle => self.duration,
            Stage::Running | Stage::Finishing => clock::now().saturating_sub(self.begun),
        })
    }

    fn texts(&self) -> [&[u8]; TEXTS] {
        let mut start = 0;
        self.ends.map(|end| {
            let text = &self.texts[start..end];
            start = end;
            text
        })
    }
}

/// How many texts of a request are noted.
const TEXTS: usize = 5;

/// Each text is cut to this many bytes.
pub const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts<'static> {
        Facts {
            method: b"POST",
            uri: b"/a%20b.php?x=\"1\"&y=?",
            script: b"/srv/a b.php",
            authorization: b"Basic YWxhZGRpbjpvcGVuc2VzYW1l",
            user: b"",
            content_length: 17,
        }
    }

    #[test]
    fn a_card_tells_of_the_running_request_and_then_of_the_last() {
        let score = WorkerScore::<()>::new(7);
        let fresh = score.status();
        assert_eq!(
            (fresh.pid, fresh.requests, fresh.stage),
            (7, 0, Stage::Idle)
        );
        assert_eq!(fresh.request, RequestStatus::default());

        score.begin(&facts(), None);
        let running = score.status();
        assert_eq!((running.requests, running.stage), (1, Stage::Running));
        assert_eq!(running.request.uri, b"/a%20b.php");
        assert_eq!(running.request.query, b"x=\"1\"&y=?");
        assert_eq!(running.request.user, b"aladdin");
        assert_eq!(running.request.content_length, 17);

        score.finishing();
        assert_eq!(score.status().stage.name(), "Finishing");
        let cost = Cost {
            cpu: 1,
            user: 1,
            memory: 2_097_152,
            resident: 0,
        };
        score.end(cost);
        score.end(Cost::default());
        let last = score.status();
        assert_eq!((last.requests, last.stage), (1, Stage::Idle));
        assert_eq!(last.request.memory, 2_097_152);
        assert_eq!(last.request.script, b"/srv/a b.php");

        score.begin(&Facts::default(), None);
        assert_eq!(score.status().request.memory, 0);
    }

    #[test]
    fn a_card_tells_for_which_request_its_worker_works_and_until_when() {
        let score = WorkerScore::<()>::new(7);
        assert_eq!(score.works(), None);
        score.begin(&facts(), None);
        score.works_for(42, 1_000);
        assert_eq!(score.works(), Some((42, 1_000)));
        score.works_for(42, clock::NEVER);
        assert_eq!(score.works(), Some((42, clock::NEVER)));
        score.end(Cost::default());
        assert_eq!(score.works(), None);
    }

    #[test]
    fn long_texts_are_cut_and_odd_credentials_name_nobody() {
        let long = vec![b'u'; 10_000];
        let score = WorkerScore::<()>::new(1);
        for authorization in [&b"Bearer x"[..], b"Basic !", b"", &long, b"\xff\n"] {
            let facts = Facts {
                uri: &long,
                authorization,
                ..Facts::default()
            };
            score.begin(&facts, None);
            let request = score.status().request;
            assert_eq!(request.uri.len(), LONGEST);
            assert_eq!(request.user, b"");
        }
    }
}
