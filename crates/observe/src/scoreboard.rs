//! The current and past requests of each worker of a pool: the figures of PHP-FPM's status page and of
//! `fpm_get_status()`.
//!
//! Each worker has a [`WorkerScore`]. Only the holder of the worker's lease writes it, by plain stores, without a lock.
//! A counter that is odd during a write tells readers to read again. A request is stored by copying a few short texts
//! into memory of the score. References to the request's own texts would keep the client's buffer as long as the worker
//! is idle.

use std::{
    ops::Deref,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicU8, AtomicU16, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
            fence,
        },
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
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

/// One worker's entry on the scoreboard. Its writers follow one another, as the pool's lock orders them.
#[derive(Debug, Default)]
pub struct WorkerScore {
    /// Odd while the entry changes.
    version: AtomicU64,
    pid: AtomicU32,
    /// µs since 1970.
    started: AtomicU64,
    requests: AtomicU64,
    /// A number of [`Stage`].
    stage: AtomicU8,
    /// When the request began, and how long it took ([`clock::now`]).
    begun: AtomicU64,
    duration: AtomicU64,
    /// CPU time, that of it which was not the kernel's, memory, resident set: as [`Cost`] has them.
    cost: [AtomicU64; 4],
    /// The memory of the last of its first [`EARLY`] requests, bytes.
    early_memory: AtomicU64,
    content_length: AtomicU64,
    /// Who has sent the request, if that may be a worker; 0: nobody.
    asker: AtomicU64,
    /// The number (as in the logs) of the worker's request; 0: none.
    request: AtomicU64,
    /// The time by which its answer must have begun ([`clock::now`]).
    deadline: AtomicU64,
    /// The lengths of the request's texts. Each begins with a word of its own, in `near` if all fit there.
    lengths: [AtomicU16; TEXTS],
    near: [AtomicU64; NEAR],
    /// Made for the first request with longer texts.
    far: OnceLock<Box<[AtomicU64; FAR]>>,
}

/// The score of a worker that is there. Its memory is used again for another worker, so that those who read it need not
/// count themselves.
#[derive(Debug)]
pub struct Score(&'static WorkerScore);

/// A copy of an entry.
#[derive(Default)]
struct Activity {
    pid: u32,
    started: u64,
    requests: u64,
    stage: Stage,
    begun: u64,
    duration: u64,
    cost: Cost,
    early_memory: u64,
    content_length: u64,
    texts: [Vec<u8>; TEXTS],
}

impl Score {
    /// For a process that was just started.
    pub fn new(pid: u32) -> Score {
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let score = spare.unwrap_or_else(|| Box::leak(Box::default()));
        score.reset(pid);
        Score(score)
    }

    /// For who uses the worker, and readers. It may be used after the worker has ended: then it tells of another one.
    pub fn get(&self) -> &'static WorkerScore {
        self.0
    }
}

impl Deref for Score {
    type Target = WorkerScore;

    fn deref(&self) -> &WorkerScore {
        self.0
    }
}

impl Drop for Score {
    fn drop(&mut self) {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        spare.push(self.0);
    }
}

impl WorkerScore {
    fn reset(&self, pid: u32) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.change(|| {
            self.pid.store(pid, Relaxed);
            let started = since.unwrap_or_default().as_micros();
            self.started.store(started as u64, Relaxed);
            self.requests.store(0, Relaxed);
            self.stage.store(IDLE, Relaxed);
            self.put(&Facts::default());
            for value in [&self.begun, &self.duration, &self.asker, &self.request] {
                value.store(0, Relaxed);
            }
            self.deadline.store(clock::NEVER, Relaxed);
            self.put_cost(Cost::default());
            self.early_memory.store(0, Relaxed);
        });
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

    /// The worker gets a request. `asker`: a number for who has sent it, if that may be a worker; otherwise 0.
    pub fn begin(&self, facts: &Facts<'_>, asker: u64) {
        self.change(|| {
            let requests = self.requests.load(Relaxed);
            self.requests.store(requests + 1, Relaxed);
            self.stage.store(RUNNING, Relaxed);
            self.asker.store(asker, Relaxed);
            self.begun.store(clock::now(), Relaxed);
            self.put(facts);
        });
    }

    /// Its response is complete, but its script still runs.
    pub fn finishing(&self) {
        self.change(|| self.stage.store(FINISHING, Relaxed));
    }

    /// The worker is free again.
    pub fn end(&self, cost: Cost) {
        self.request.store(0, Relaxed);
        if self.stage.load(Relaxed) == IDLE {
            return;
        }
        self.change(|| {
            self.stage.store(IDLE, Relaxed);
            let took = clock::now().saturating_sub(self.begun.load(Relaxed));
            self.duration.store(took, Relaxed);
            self.put_cost(cost);
            if self.requests.load(Relaxed) <= EARLY {
                self.early_memory.store(cost.memory, Relaxed);
            }
        });
    }

    /// Who has sent its request, if that may be a worker; `None` while the worker has no request.
    pub fn asker(&self) -> Option<u64> {
        let asker = self.asker.load(Relaxed);
        (asker != 0 && self.stage.load(Relaxed) != IDLE).then_some(asker)
    }

    /// Calls `read` with the script and the URI of its running or last request. Returns the result, and when the
    /// request began ([`clock::now`]). Both texts are empty if the entry changes all the time; it does not for who has the
    /// right to use the worker.
    pub fn request<T>(&self, read: impl FnOnce(&[u8], &[u8]) -> T) -> (T, u64) {
        let Activity { begun, texts, .. } = self.read();
        let [_, uri, script, ..] = &texts;
        (read(script, uri), begun)
    }

    /// The figures of this worker. Without its request if the entry changes all the time.
    pub fn status(&self) -> WorkerStatus {
        let activity = self.read();
        let duration = activity.elapsed();
        let cost = match activity.stage {
            Stage::Idle => activity.cost,
            Stage::Running | Stage::Finishing => Cost::default(),
        };
        let [method, uri, script, user, authorization] = activity.texts;
        let mut uri = uri.splitn(2, |byte| *byte == b'?');
        WorkerStatus {
            pid: activity.pid,
            stage: activity.stage,
            started: UNIX_EPOCH + Duration::from_micros(activity.started),
            requests: activity.requests,
            early_memory: activity.early_memory,
            request: RequestStatus {
                duration,
                method,
                uri: uri.next().unwrap_or_default().to_vec(),
                query: uri.next().unwrap_or_default().to_vec(),
                content_length: activity.content_length,
                user: match &user[..] {
                    b"" => user_of(&authorization).unwrap_or_default(),
                    user => user.to_vec(),
                },
                script,
                cpu: match duration.as_micros() {
                    0 => 0.0,
                    micros => cost.cpu as f64 * 100.0 / micros as f64,
                },
                memory: cost.memory,
            },
        }
    }

    /// Changes the entry. Readers meanwhile see an odd version, and afterwards another one.
    #[inline]
    fn change(&self, change: impl FnOnce()) {
        let version = self.version.load(Relaxed);
        self.version.store(version | 1, Relaxed);
        fence(Release);
        change();
        self.version.store((version | 1) + 1, Release);
    }

    fn put(&self, facts: &Facts<'_>) {
        self.content_length.store(facts.content_length, Relaxed);
        let texts = [
            facts.method,
            facts.uri,
            facts.script,
            facts.user,
            facts.authorization,
        ];
        let texts = texts.map(|text| &text[..text.len().min(LONGEST)]);
        let mut space = self.space(texts.iter().map(|text| text.len()).sum());
        for (text, length) in texts.into_iter().zip(&self.lengths) {
            length.store(text.len() as u16, Relaxed);
            space = put_words(text, space);
        }
    }

    /// The words for texts of so many bytes.
    #[inline]
    fn space(&self, bytes: usize) -> &[AtomicU64] {
        // Each text may leave some of its last word empty.
        match bytes > (NEAR - TEXTS) * WORD {
            true => self.far(),
            false => &self.near[..],
        }
    }

    fn put_cost(&self, cost: Cost) {
        let values = [cost.cpu, cost.user, cost.memory, cost.resident];
        for (value, into) in values.into_iter().zip(&self.cost) {
            into.store(value, Relaxed);
        }
    }

    #[cold]
    fn far(&self) -> &[AtomicU64] {
        let far = || Box::new([const { AtomicU64::new(0) }; FAR]);
        &self.far.get_or_init(far)[..]
    }

    /// A copy of the entry at one moment. If there is none because the entry changes all the time, or its writer has
    /// stopped in the middle, the copy is without a request.
    fn read(&self) -> Activity {
        for attempt in 0..ATTEMPTS {
            if let Some(activity) = self.try_read() {
                return activity;
            }
            if attempt > ATTEMPTS / 2 {
                // The writer may be waiting for a processor.
                thread::yield_now();
            }
        }
        // These are right one by one.
        Activity {
            pid: self.pid.load(Relaxed),
            started: self.started.load(Relaxed),
            requests: self.requests.load(Relaxed),
            stage: self.stage(),
            begun: clock::now(),
            ..Activity::default()
        }
    }

    /// A copy of the entry; `None` if it has changed meanwhile.
    fn try_read(&self) -> Option<Activity> {
        let before = self.version.load(Acquire);
        let activity = self.copy();
        fence(Acquire);
        (before & 1 == 0 && self.version.load(Relaxed) == before).then_some(activity)
    }

    fn stage(&self) -> Stage {
        match self.stage.load(Relaxed) {
            RUNNING => Stage::Running,
            FINISHING => Stage::Finishing,
            _ => Stage::Idle,
        }
    }

    fn copy(&self) -> Activity {
        let lengths: [usize; TEXTS] =
            (self.lengths.each_ref()).map(|length| usize::from(length.load(Relaxed)).min(LONGEST));
        let mut space = self.space(lengths.iter().sum());
        let texts = lengths.map(|length| {
            let (from, left) = space.split_at(length.div_ceil(WORD));
            space = left;
            let bytes = from
                .iter()
                .flat_map(|word| word.load(Relaxed).to_le_bytes());
            bytes.take(length).collect()
        });
        let [cpu, user, memory, resident] = self.cost.each_ref().map(|value| value.load(Relaxed));
        Activity {
            pid: self.pid.load(Relaxed),
            started: self.started.load(Relaxed),
            requests: self.requests.load(Relaxed),
            stage: self.stage(),
            begun: self.begun.load(Relaxed),
            duration: self.duration.load(Relaxed),
            cost: Cost {
                cpu,
                user,
                memory,
                resident,
            },
            early_memory: self.early_memory.load(Relaxed),
            content_length: self.content_length.load(Relaxed),
            texts,
        }
    }
}

impl Activity {
    fn elapsed(&self) -> Duration {
        Duration::from_micros(match self.stage {
            Stage::Idle => self.duration,
            Stage::Running | Stage::Finishing => clock::now().saturating_sub(self.begun),
        })
    }
}

/// Puts a text into the first of these words. The last one may have room left. Returns the other words.
#[inline]
fn put_words<'s>(text: &[u8], space: &'s [AtomicU64]) -> &'s [AtomicU64] {
    let (words, rest) = text.as_chunks::<WORD>();
    let (into, left) = space.split_at(words.len());
    for (word, into) in words.iter().zip(into) {
        into.store(u64::from_le_bytes(*word), Relaxed);
    }
    let (false, Some((into, left))) = (rest.is_empty(), left.split_first()) else {
        return left;
    };
    let word = match text.last_chunk::<WORD>() {
        // The first of these bytes are in the previous word.
        Some(last) => u64::from_le_bytes(*last) >> (8 * (WORD - rest.len())),
        None => (rest.iter().rev()).fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    into.store(word, Relaxed);
    left
}

/// Scores whose workers have ended.
static SPARE: Mutex<Vec<&'static WorkerScore>> = Mutex::new(Vec::new());

/// The stages as numbers.
const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const FINISHING: u8 = 2;

/// Bytes in a word.
const WORD: usize = 8;
/// Words for the texts of most requests, and of all.
const NEAR: usize = 32;
const FAR: usize = TEXTS * LONGEST / WORD;
/// How often a reader looks.
const ATTEMPTS: usize = 1_000;

/// How many texts of a request are noted.
const TEXTS: usize = 5;

/// Each text is cut to this many bytes.
pub const LONGEST: usize = 1024;

/// After this number of requests an application has loaded the data that it keeps.
const EARLY: u64 = 10;

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
    fn a_score_shows_the_running_request_and_then_the_last() {
        let score = Score::new(7);
        let fresh = score.status();
        assert_eq!(
            (fresh.pid, fresh.requests, fresh.stage),
            (7, 0, Stage::Idle)
        );
        assert_eq!(fresh.request, RequestStatus::default());

        score.begin(&facts(), 0);
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
        assert_eq!(last.early_memory, 2_097_152);
        assert_eq!(last.request.script, b"/srv/a b.php");

        score.begin(&Facts::default(), 0);
        assert_eq!(score.status().request.memory, 0);
    }

    #[test]
    fn a_score_shows_for_which_request_its_worker_works_and_until_when() {
        let score = Score::new(7);
        assert_eq!(score.works(), None);
        score.begin(&facts(), 0);
        score.works_for(42, 1_000);
        assert_eq!(score.works(), Some((42, 1_000)));
        score.works_for(42, clock::NEVER);
        assert_eq!(score.works(), Some((42, clock::NEVER)));
        score.end(Cost::default());
        assert_eq!(score.works(), None);
    }

    #[test]
    fn the_memory_of_a_worker_that_has_ended_is_used_again() {
        let score = Score::new(1);
        score.begin(&facts(), 7);
        assert_eq!(score.asker(), Some(7));
        score.works_for(42, 1_000);
        drop(score);
        for score in (0..1_000).map(Score::new) {
            assert_eq!((score.works(), score.asker()), (None, None));
            assert_eq!(score.status().request, RequestStatus::default());
        }
        // Other tests of this process have rows, too.
        assert!(SPARE.lock().unwrap().len() < 100);
    }

    #[test]
    fn long_texts_are_cut_and_odd_credentials_name_nobody() {
        let long = vec![b'u'; 10_000];
        let score = Score::new(1);
        for authorization in [&b"Bearer x"[..], b"Basic !", b"", &long, b"\xff\n"] {
            let facts = Facts {
                uri: &long,
                authorization,
                ..Facts::default()
            };
            score.begin(&facts, 0);
            let request = score.status().request;
            assert_eq!(request.uri.len(), LONGEST);
            assert_eq!(request.user, b"");
        }
    }
    /// Facts of which each part is made of the same digit.
    fn facts_of(texts: &[[u8; 64]; 10], digit: usize) -> Facts<'_> {
        // Of different lengths, so that a mixture of two requests shows.
        let text = &texts[digit][..40 + digit];
        Facts {
            method: &text[..digit + 1],
            uri: text,
            script: text,
            authorization: b"",
            user: text,
            content_length: digit as u64,
        }
    }

    fn texts() -> [[u8; 64]; 10] {
        std::array::from_fn(|digit| [b'0' + digit as u8; 64])
    }

    /// Whether all parts are those of one of these facts.
    fn is_whole(request: &RequestStatus, texts: &[[u8; 64]; 10]) -> bool {
        let facts = facts_of(texts, request.content_length as usize);
        request.method == facts.method
            && request.uri == facts.uri
            && request.script == facts.script
            && request.user == facts.user
    }

    #[test]
    fn a_reader_shows_no_request_that_its_writer_has_not_finished_to_write() {
        let (score, texts) = (Score::new(7), texts());
        score.begin(&facts_of(&texts, 1), 0);
        assert!(is_whole(&score.status().request, &texts));
        score.change(|| {
            // The writer has stored a part of the next request, and stops.
            score.content_length.store(2, Relaxed);
            score.lengths[0].store(5, Relaxed);
            score.stage.store(FINISHING, Relaxed);
            let torn = score.status();
            assert_eq!(
                (torn.pid, torn.requests, torn.stage),
                (7, 1, Stage::Finishing)
            );
            let request = RequestStatus {
                duration: torn.request.duration,
                ..RequestStatus::default()
            };
            assert_eq!(torn.request, request);
            assert!(
                score
                    .request(|script, uri| script.is_empty() && uri.is_empty())
                    .0
            );
            score.put(&facts_of(&texts, 2));
        });
        let whole = score.status().request;
        assert!(whole.content_length == 2 && is_whole(&whole, &texts));
    }

    #[test]
    fn readers_never_see_parts_of_two_requests() {
        let (score, texts) = (Score::new(1), texts());
        let entry = score.get();
        score.begin(&facts_of(&texts, 9), 0);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    entry.begin(&facts_of(&texts, number % 10), 0);
                    if is_over.load(Relaxed) {
                        return;
                    }
                    // On one processor the reader has its turn only here, or in the middle of a request.
                    thread::yield_now();
                }
            });
            let mut whole = 0;
            while whole < 1_000 {
                let Some(seen) = entry.try_read() else {
                    thread::yield_now();
                    continue;
                };
                whole += 1;
                let [method, uri, script, user, _] = seen.texts;
                let request = RequestStatus {
                    method,
                    uri,
                    script,
                    user,
                    content_length: seen.content_length,
                    ..RequestStatus::default()
                };
                let is_whole = is_whole(&request, &texts);
                is_over.store(!is_whole || whole == 1_000, Relaxed);
                assert!(is_whole, "{request:?}");
            }
        });
    }
}
