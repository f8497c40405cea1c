//! What each worker of a pool does and has done: the figures of PHP-FPM's status page and of `fpm_get_status()`.
//!
//! Each worker has a [`WorkerScore`] with its own lock, which only its request and now and then a reader use. A request is
//! noted by copying a few short texts into memory that the score keeps. References to the request's own texts would
//! keep the client's buffer as long as the worker is idle.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use headers::{Header, authorization::Basic};
use http::HeaderValue;
use weir_observe::clock;
use weir_observe::log_text::{put_json_string, put_number};

use super::{conn::Conn, dispatch::subject};

/// The figures of a pool in PHP-FPM's status page.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PoolStatus {
    /// The pool's NAME.
    pub(crate) name: String,
    /// `static`, `dynamic`, `ondemand` or `auto`; `servers` if others run the workers.
    pub(crate) pm: &'static str,
    /// When the gateway started to serve it.
    pub(crate) started: SystemTime,
    /// Requests that were given to workers.
    pub(crate) accepted: u64,
    /// Requests that are waiting now.
    pub(crate) listen_queue: usize,
    /// The highest number of waiting requests so far.
    pub(crate) max_listen_queue: usize,
    /// The limit of waiting requests.
    pub(crate) listen_queue_len: usize,
    /// Workers without a request.
    pub(crate) idle: usize,
    /// Workers with a request.
    pub(crate) active: usize,
    /// The highest number of workers with a request so far.
    pub(crate) max_active: usize,
    /// How often more workers were wanted than `max_children` allows.
    pub(crate) max_children_reached: u64,
    /// Requests that ran for longer than `request_slowlog_timeout`.
    pub(crate) slow_requests: u64,
    /// The largest memory use of a request, bytes; 0 if it is not measured. `None`: the page of this PHP version has
    /// no such field.
    pub(crate) memory_peak: Option<u64>,
    /// The processes that weir runs for it, in the order of their slots.
    pub(crate) workers: Vec<WorkerStatus>,
}

/// A worker's figures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WorkerStatus {
    /// Its process.
    pub(crate) pid: u32,
    /// What it does.
    pub(crate) stage: Stage,
    /// When it was started.
    pub(crate) started: SystemTime,
    /// Requests that it was given.
    pub(crate) requests: u64,
    /// Its running or last request; empty before the first one.
    pub(crate) request: Request,
}

/// A request, as the status page shows it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Request {
    /// How long it has run so far, or ran.
    pub(crate) duration: Duration,
    pub(crate) method: Vec<u8>,
    /// Its path as the client sent it.
    pub(crate) uri: Vec<u8>,
    /// Its query, without the question mark.
    pub(crate) query: Vec<u8>,
    /// Length of its body, bytes.
    pub(crate) content_length: u64,
    /// The user that the client names; empty if it names none.
    pub(crate) user: Vec<u8>,
    /// SCRIPT_FILENAME.
    pub(crate) script: Vec<u8>,
    /// CPU time that it used, in percent of its duration; 0 while it runs, and if it is not measured.
    pub(crate) cpu: f64,
    /// The most memory that it used, bytes; 0 while it runs, and if it is not measured.
    pub(crate) memory: u64,
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stage {
    /// It waits for a request.
    #[default]
    Idle,
    /// It has a request.
    Running,
    /// Its response is complete, and its script runs on.
    Finishing,
}

impl Stage {
    /// The name in PHP-FPM's words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Idle => "Idle",
            Stage::Running => "Running",
            Stage::Finishing => "Finishing",
        }
    }
}

/// What is noted of a request when a worker gets it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts<'r> {
    pub(crate) method: &'r [u8],
    /// Path and query as the client sent them.
    pub(crate) uri: &'r [u8],
    /// SCRIPT_FILENAME.
    pub(crate) script: &'r [u8],
    /// The client's credentials (`Authorization`).
    pub(crate) authorization: &'r [u8],
    /// REMOTE_USER, if another program has authenticated the client.
    pub(crate) user: &'r [u8],
    /// Length of the body, bytes.
    pub(crate) content_length: u64,
}

impl Facts<'_> {
    /// The request as the status page shows it at its begin, without a script.
    pub(crate) fn request(&self) -> Request {
        let mut uri = self.uri.splitn(2, |byte| *byte == b'?');
        Request {
            method: self.method.to_vec(),
            uri: uri.next().unwrap_or_default().to_vec(),
            query: uri.next().unwrap_or_default().to_vec(),
            content_length: self.content_length,
            user: match self.user {
                b"" => user_of(self.authorization).unwrap_or_default(),
                user => user.to_vec(),
            },
            ..Request::default()
        }
    }
}

/// The cost of a finished request, as the worker reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    /// CPU time, µs.
    pub(crate) cpu: u64,
    /// The part of it that was spent in user mode, µs.
    pub(crate) user: u64,
    /// The most memory that PHP used for it, bytes.
    pub(crate) memory: u64,
    /// The highest memory use of the process so far, bytes.
    pub(crate) resident: u64,
}

/// One worker's entry on the scoreboard.
#[derive(Debug)]
pub(crate) struct WorkerScore {
    entry: Mutex<Activity>,
    /// The number (as in the logs) of the worker's request; 0: none.
    request: AtomicU64,
    /// By when its answer must have begun ([`clock::now`]).
    deadline: AtomicU64,
}

#[derive(Debug)]
struct Activity {
    pid: u32,
    started: SystemTime,
    requests: u64,
    stage: Stage,
    /// When the request began, and how long it took ([`clock::now`]).
    begun: u64,
    duration: u64,
    cost: Cost,
    content_length: u64,
    /// The request's connection, if it may come from a worker.
    asker: Weak<Conn>,
    /// The texts of the request, one after the other, and the end of each.
    texts: Vec<u8>,
    ends: [usize; TEXTS],
}

impl WorkerScore {
    /// Each text is cut to this many bytes.
    pub(crate) const LONGEST: usize = LONGEST;

    /// For a process that was just started.
    pub(crate) fn new(pid: u32) -> WorkerScore {
        let entry = Mutex::new(Activity {
            pid,
            started: SystemTime::now(),
            requests: 0,
            stage: Stage::Idle,
            begun: 0,
            duration: 0,
            cost: Cost::default(),
            content_length: 0,
            asker: Weak::new(),
            texts: Vec::new(),
            ends: [0; TEXTS],
        });
        WorkerScore {
            entry,
            request: AtomicU64::new(0),
            deadline: AtomicU64::new(clock::NEVER),
        }
    }

    /// Sets the number of the worker's request in the logs, and by when it must be answered ([`clock::now`]).
    /// [`clock::NEVER`]: no deadline, or its answer has begun.
    pub(crate) fn works_for(&self, request: u64, deadline: u64) {
        self.deadline.store(deadline, Relaxed);
        self.request.store(request, Relaxed);
    }

    /// The values that were set last; `None` if the worker has no request.
    pub(crate) fn works(&self) -> Option<(u64, u64)> {
        let request = self.request.load(Relaxed);
        (request != 0).then(|| (request, self.deadline.load(Relaxed)))
    }

    /// The worker gets a request.
    pub(crate) fn begin(&self, facts: &Facts<'_>) {
        let mut entry = self.entry();
        let entry = &mut *entry;
        entry.requests += 1;
        entry.stage = Stage::Running;
        entry.asker = Weak::new();
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
    pub(crate) fn finishing(&self) {
        self.entry().stage = Stage::Finishing;
    }

    /// The worker is free again.
    pub(crate) fn end(&self, cost: Cost) {
        self.request.store(0, Relaxed);
        let mut entry = self.entry();
        if entry.stage == Stage::Idle {
            return;
        }
        entry.stage = Stage::Idle;
        entry.duration = clock::now().saturating_sub(entry.begun);
        entry.cost = cost;
    }

    /// Sets the connection of its request, if that may come from a worker.
    pub(crate) fn asked_by(&self, asker: Weak<Conn>) {
        self.entry().asker = asker;
    }

    /// That connection; `None` while the worker has no request.
    pub(crate) fn asker(&self) -> Option<Arc<Conn>> {
        let entry = self.entry();
        let works = entry.stage != Stage::Idle;
        works.then(|| entry.asker.upgrade()).flatten()
    }

    /// The subject of its running or last request ([`subject`]), and when that began ([`clock::now`]).
    pub(crate) fn subject(&self) -> (u64, u64) {
        let entry = self.entry();
        let [_, uri, script, ..] = entry.texts();
        (subject(script, uri), entry.begun)
    }

    /// The figures of this worker.
    pub(crate) fn status(&self) -> WorkerStatus {
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
            request: Request {
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

    fn entry(&self) -> MutexGuard<'_, Activity> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
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

impl PoolStatus {
    /// The array that `fpm_get_status()` returns, as JSON with exactly its keys.
    pub(crate) fn to_php(&self) -> Vec<u8> {
        let now = SystemTime::now();
        let mut out = Object::new(Vec::with_capacity(512 + self.workers.len() * 512));
        out.text("pool", self.name.as_bytes());
        out.text("process-manager", self.pm.as_bytes());
        out.number("start-time", seconds(self.started));
        out.number("start-since", since(now, self.started));
        out.number("accepted-conn", self.accepted);
        out.number("listen-queue", self.listen_queue as u64);
        out.number("max-listen-queue", self.max_listen_queue as u64);
        out.number("listen-queue-len", self.listen_queue_len as u64);
        out.number("idle-processes", self.idle as u64);
        out.number("active-processes", self.active as u64);
        out.number("total-processes", (self.idle + self.active) as u64);
        out.number("max-active-processes", self.max_active as u64);
        out.number("max-children-reached", self.max_children_reached);
        out.number("slow-requests", self.slow_requests);
        if let Some(memory_peak) = self.memory_peak {
            out.number("memory-peak", memory_peak);
        }
        out.key("procs");
        out.0.push(b'[');
        for (index, worker) in self.workers.iter().enumerate() {
            if index > 0 {
                out.0.push(b',');
            }
            out.0 = worker.to_php(now, out.0);
        }
        out.0.push(b']');
        out.end()
    }
}

impl WorkerStatus {
    fn to_php(&self, now: SystemTime, out: Vec<u8>) -> Vec<u8> {
        let or_dash = |text: &'_ [u8]| {
            if text.is_empty() {
                b"-".to_vec()
            } else {
                text.to_vec()
            }
        };
        let request = &self.request;
        let mut out = Object::new(out);
        out.number("pid", self.pid.into());
        out.text("state", self.stage.name().as_bytes());
        out.number("start-time", seconds(self.started));
        out.number("start-since", since(now, self.started));
        out.number("requests", self.requests);
        out.number("request-duration", request.duration.as_micros() as u64);
        out.text("request-method", &or_dash(&request.method));
        out.text("request-uri", &request.uri);
        out.text("query-string", &request.query);
        out.number("request-length", request.content_length);
        out.text("user", &or_dash(&request.user));
        out.text("script", &or_dash(&request.script));
        out.key("last-request-cpu");
        // With a decimal point, because PHP would otherwise read it as an integer.
        out.0
            .extend_from_slice(format!("{:.2}", request.cpu).as_bytes());
        out.number("last-request-memory", request.memory);
        out.end()
    }
}

/// A JSON object that is being written.
struct Object(Vec<u8>);

impl Object {
    fn new(mut out: Vec<u8>) -> Object {
        out.push(b'{');
        Object(out)
    }

    fn key(&mut self, key: &str) {
        if self.0.last() != Some(&b'{') {
            self.0.push(b',');
        }
        put_json_string(key.as_bytes(), &mut self.0);
        self.0.push(b':');
    }

    fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        put_number(number, &mut self.0);
    }

    fn text(&mut self, key: &str, text: &[u8]) {
        self.key(key);
        put_json_string(text, &mut self.0);
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

/// The user in basic credentials (RFC 7617); `None` for other credentials.
pub(crate) fn user_of(authorization: &[u8]) -> Option<Vec<u8>> {
    let value = HeaderValue::from_bytes(authorization).ok()?;
    let basic = headers::Authorization::<Basic>::decode(&mut [value].iter()).ok()?;
    Some(basic.username().as_bytes().to_vec())
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn since(now: SystemTime, then: SystemTime) -> u64 {
    seconds(now).saturating_sub(seconds(then))
}

/// How many texts of a request are noted.
const TEXTS: usize = 5;

/// Each text is cut to this many bytes.
const LONGEST: usize = 1024;

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
        let score = WorkerScore::new(7);
        let fresh = score.status();
        assert_eq!(
            (fresh.pid, fresh.requests, fresh.stage),
            (7, 0, Stage::Idle)
        );
        assert_eq!(fresh.request, Request::default());

        score.begin(&facts());
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

        score.begin(&Facts::default());
        assert_eq!(score.status().request.memory, 0);
    }

    #[test]
    fn a_card_tells_for_which_request_its_worker_works_and_until_when() {
        let score = WorkerScore::new(7);
        assert_eq!(score.works(), None);
        score.begin(&facts());
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
        let score = WorkerScore::new(1);
        for authorization in [&b"Bearer x"[..], b"Basic !", b"", &long, b"\xff\n"] {
            score.begin(&Facts {
                uri: &long,
                authorization,
                ..Facts::default()
            });
            let request = score.status().request;
            assert_eq!(request.uri.len(), LONGEST);
            assert_eq!(request.user, b"");
        }
    }

    #[test]
    fn the_array_for_php_has_php_fpms_keys() {
        let score = WorkerScore::new(7);
        score.begin(&facts());
        let status = PoolStatus {
            name: "www".into(),
            pm: "static",
            started: UNIX_EPOCH + Duration::from_secs(1_000),
            accepted: 1,
            listen_queue: 2,
            max_listen_queue: 3,
            listen_queue_len: 4,
            idle: 5,
            active: 6,
            max_active: 7,
            max_children_reached: 8,
            slow_requests: 9,
            memory_peak: Some(10),
            workers: vec![score.status(), WorkerScore::new(8).status()],
        };
        let json = status.to_php();
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let keys = |value: &serde_json::Value| {
            let keys = value.as_object().unwrap().keys();
            keys.cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            keys(&value),
            "accepted-conn active-processes idle-processes listen-queue listen-queue-len max-active-processes \
             max-children-reached max-listen-queue memory-peak pool process-manager procs slow-requests start-since \
             start-time total-processes"
        );
        assert_eq!(
            keys(&value["procs"][0]),
            "last-request-cpu last-request-memory pid query-string request-duration request-length request-method \
             request-uri requests script start-since start-time state user"
        );
        assert_eq!(value["total-processes"], 11);
        assert_eq!(value["procs"][0]["query-string"], "x=\"1\"&y=?");
        assert_eq!(value["procs"][1]["request-method"], "-");
        assert_eq!(value["procs"][1]["request-uri"], "");
        assert!(value["procs"][1]["last-request-cpu"].is_f64());
    }
}
