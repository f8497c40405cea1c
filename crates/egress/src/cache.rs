//! Caches answers for equal requests (RFC 9111), in limited memory.
//!
//! [`weir_cache`] decides what may be stored, for how long and for whom, and [`stored`] on which terms; [`question`]
//! decides which requests the cache handles. The steps of a call:
//!
//! ```text
//! look ─┬─ Hit      the answer
//!       ├─ Ask      the origin: prepare ─► answered, or failed ─► the answer
//!       └─ Follow   an equal question is on its way: wait ─► Hit, Ask or Failed
//! ```
//!
//! One lock guards everything. It is held only while an answer is looked up, and never while waiting.

mod fill;
mod flight;
mod question;
mod store;
mod stored;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Body;
use tokio::sync::watch;
use weir_cache::{
    CacheStatus, Forward, Method,
    update::{self, HeadSays},
};

pub(super) use self::fill::Filling;
use self::{
    fill::{Keeping, Reservation},
    flight::{Failure, Journey, Leader, Stage},
    question::{Apart, Key, Question},
    store::Store,
    stored::{Freshness, Head, Stored},
};
pub(crate) use self::{flight::Following, question::CacheRequest};
use super::{
    body::{ResponseBody, Source},
    fault::{Fault, Kind},
    figures::{CacheNow, CacheState},
    record::CacheUse,
};

/// The cache of all origins.
#[derive(Debug)]
pub(crate) struct Cache {
    store: Mutex<Store>,
    /// Longer bodies are not stored, bytes.
    max_object: u64,
}

/// What the cache has for a call.
pub(crate) enum Lookup {
    /// The answer.
    Hit(Box<Response<ResponseBody>>, CacheUse),
    /// The call must go to the origin: nothing is stored, or a stored answer must be revalidated.
    Ask(Asking),
    /// An equal call is running: its answer may be used.
    Follow(Following),
    /// The failure of an equal call.
    Failed(Fault),
}

/// What to do with the origin's answer.
pub(crate) enum Answered {
    /// The answer for the caller.
    Done(Response<ResponseBody>, CacheUse),
    /// The answer refers to another stored answer: the call must be repeated without conditions.
    Again(Asking),
}

/// A call that is sent to the origin.
pub(crate) struct Asking {
    cache: Arc<Cache>,
    asked: SystemTime,
    purpose: Purpose,
}

enum Purpose {
    /// The cache does not handle this call.
    Pass(Apart),
    /// If the call succeeds, the stored answer with that key is outdated.
    Write { origin: String, key: Key },
    /// Its answer may be stored.
    Fetch(Box<Fetch>),
}

struct Fetch {
    question: Arc<Question>,
    /// The answer that is already stored.
    stored: Option<Arc<Stored>>,
    /// The origin is asked whether the stored answer is still valid.
    is_validating: bool,
    /// The caller's own conditions are sent to the origin.
    is_apart: bool,
    leader: Option<Leader>,
    journey: Journey,
    /// Why no stored answer was used.
    forward: Forward,
}

/// How to look for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Other calls may be waited for; `left`: how many of them have left without an answer.
    Usual { left: u32 },
    /// The answer that this call waited for was just stored.
    Joined,
    /// Other calls are not waited for any more.
    Alone,
    /// As usual, but a stale answer is accepted: another call with the same question has met a failing origin.
    AfterFailure { left: u32 },
}

impl Cache {
    /// A cache of at most `size` bytes, for bodies of at most `max_object` bytes.
    pub(crate) fn new(size: u64, max_object: u64) -> Arc<Cache> {
        Arc::new(Cache {
            store: Mutex::new(Store::new(size)),
            max_object,
        })
    }

    /// To be called before [`look`](Self::look), with the times of now: forgets all answers if the clock was set.
    pub(crate) fn see_clock(&self, now: SystemTime, at: Instant) {
        self.store().see_clock(now, at);
    }

    /// Looks for an answer. Only for calls that the rules allow, to origins whose answers are cached.
    pub(crate) fn look(self: &Arc<Self>, asked: &CacheRequest<'_>, now: SystemTime) -> Lookup {
        let purpose = match Question::of(asked) {
            Ok(question) => return self.look_at(question.into(), now, Manner::Usual { left: 0 }),
            Err(Apart::Method) if !asked.method.is_safe() => Purpose::Write {
                origin: asked.target.origin.to_string(),
                key: Key::of(asked.target),
            },
            Err(apart) => Purpose::Pass(apart),
        };
        Lookup::Ask(Asking {
            cache: self.clone(),
            asked: now,
            purpose,
        })
    }

    fn look_at(
        self: &Arc<Self>,
        question: Arc<Question>,
        now: SystemTime,
        manner: Manner,
    ) -> Lookup {
        let mut store = self.store();
        let found = store.find(&question, now);
        let mut stored = found.stored;
        let mut forward = match found.has_variants {
            true => Forward::VaryMiss,
            false => Forward::UriMiss,
        };
        if let Some(kept) = &stored {
            match kept.worth(&question, now) {
                Freshness::Fresh => {
                    drop(store);
                    return hit(kept, &question, now, manner);
                }
                Freshness::Stale
                    if matches!(manner, Manner::AfterFailure { .. })
                        && kept.may_be_stale(&question, now) =>
                {
                    drop(store);
                    return Lookup::Hit(
                        Box::new(stale(kept, &question, now, None)),
                        CacheUse::Stale,
                    );
                }
                Freshness::Stale if kept.ttl(now) > 0 => forward = Forward::Request,
                Freshness::Stale => forward = Forward::Stale,
                Freshness::None => {
                    forward = Forward::Miss;
                    stored = None;
                }
            }
        }
        if question.wishes.only_if_cached {
            return Lookup::Hit(Box::new(nothing_kept()), CacheUse::Miss);
        }
        // An answer that is never fresh cannot be shared with other calls.
        let is_joint = !question.is_head
            && !question.is_personal
            && !found.is_apart
            && stored.as_ref().is_none_or(|stored| stored.lives());
        let mut leader = None;
        if let (Manner::Usual { left } | Manner::AfterFailure { left }, true) = (manner, is_joint) {
            let flight = store
                .flight(&question)
                .filter(|_| !question.wishes.are_picky());
            if let Some(stage) = flight {
                return Lookup::Follow(Following::new(self, question.clone(), stage, left));
            }
            let (sender, stage) = watch::channel(Stage::Underway);
            let id = store.take_off(&question, stage);
            leader = Some(Leader::new(self, &question, id, sender));
        }
        let since = store.sets_out(&question.key);
        drop(store);
        let journey = Journey::new(self, &question.key, since);
        Lookup::Ask(Asking {
            cache: self.clone(),
            asked: now,
            purpose: Purpose::Fetch(Box::new(Fetch {
                is_apart: question.is_personal || found.is_apart,
                question,
                stored,
                is_validating: false,
                leader,
                journey,
                forward,
            })),
        })
    }

    /// The result for calls that waited for another call, when that one has failed.
    fn after_failure(&self, question: &Question, now: SystemTime, failure: &Failure) -> Lookup {
        let stored = self.store().find(question, now).stored;
        if let Some(kept) = &stored {
            match kept.worth(question, now) {
                Freshness::Fresh => return hit(kept, question, now, Manner::Joined),
                Freshness::Stale if kept.may_be_stale(question, now) => {
                    let status = match failure {
                        Failure::Status(status, _) => Some(*status),
                        _ => None,
                    };
                    let answer = stale(kept, question, now, status);
                    return Lookup::Hit(Box::new(answer), CacheUse::Stale);
                }
                Freshness::Stale | Freshness::None => {}
            }
        }
        match failure {
            Failure::Fault(fault) => Lookup::Failed((**fault).clone()),
            Failure::Cut(kind) => Lookup::Failed(Fault::sent(
                *kind,
                "the answer to an equal call was cut off, and so were further attempts",
            )),
            Failure::Status(status, retry_after) => {
                let text = format!(
                    "weir: the origin answered equal calls with {}\n",
                    status.as_u16()
                );
                let mut answer = Response::new(ResponseBody::bytes(text));
                *answer.status_mut() = *status;
                let plain = HeaderValue::from_static("text/plain; charset=utf-8");
                answer.headers_mut().insert(header::CONTENT_TYPE, plain);
                if let Some(after) = retry_after {
                    let after = after.clone();
                    answer.headers_mut().insert(header::RETRY_AFTER, after);
                }
                let status = CacheStatus {
                    fwd_status: Some(status.as_u16()),
                    collapsed: true,
                    ..CacheStatus::forward(Forward::UriMiss)
                };
                say(&mut answer, status);
                Lookup::Hit(Box::new(answer), CacheUse::Joined)
            }
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState for Cache {
    fn now(&self) -> CacheNow {
        let (bytes, answers) = self.store().holds();
        CacheNow { bytes, answers }
    }
}

impl Asking {
    /// Replaces the caller's conditions by those of the cache: for its stored answer, or none, so
    /// that the origin sends a complete answer, which can be stored.
    pub(crate) fn prepare(&mut self, headers: &mut HeaderMap) {
        let Purpose::Fetch(fetch) = &mut self.purpose else {
            return;
        };
        if fetch.question.is_head {
            return;
        }
        let validates = fetch
            .stored
            .as_ref()
            .is_some_and(|stored| stored.can_be_validated());
        if validates || !fetch.is_apart {
            headers.remove(header::IF_NONE_MATCH);
            headers.remove(header::IF_MODIFIED_SINCE);
        }
        if let (true, Some(stored)) = (validates, &fetch.stored) {
            stored.ask(headers);
            fetch.is_validating = true;
        }
    }

    /// Whether the call revalidates a stored answer, so that a second call to the origin may be needed.
    pub(crate) fn may_come_again(&self) -> bool {
        matches!(&self.purpose, Purpose::Fetch(fetch) if fetch.stored.is_some())
    }

    /// The answer for the caller, made from the origin's answer (without hop-by-hop headers).
    pub(crate) fn outcome(self, answer: Response<ResponseBody>, now: SystemTime) -> Answered {
        let (mut answer, forward) = match self.purpose {
            Purpose::Fetch(fetch) => return fetch.answered(&self.cache, answer, self.asked, now),
            Purpose::Pass(Apart::Bypass) => (answer, Forward::Bypass),
            Purpose::Pass(Apart::Method) => (answer, Forward::Method),
            Purpose::Write { origin, key } => {
                if update::outdates(Method::Unsafe, answer.status().as_u16()) {
                    let mut store = self.cache.store();
                    store.forget(&key);
                    for path in update::outdated(answer.headers(), &origin) {
                        store.forget(&Key::new(&origin, &path));
                    }
                }
                (answer, Forward::Method)
            }
        };
        say(&mut answer, CacheStatus::forward(forward));
        Answered::Done(answer, CacheUse::None)
    }

    /// The answer for the caller if the origin cannot be reached.
    ///
    /// # Errors
    /// The fault, if no stale answer may be used.
    pub(crate) fn failed(
        self,
        fault: Fault,
        now: SystemTime,
    ) -> Result<(Response<ResponseBody>, CacheUse), Fault> {
        let Purpose::Fetch(mut fetch) = self.purpose else {
            return Err(fault);
        };
        if !excuses(fault.kind) {
            return Err(fault);
        }
        fetch.ends(Stage::Failed(Failure::Fault(Arc::new(fault.clone()))));
        match fetch.stored {
            Some(stored) if stored.may_be_stale(&fetch.question, now) => {
                let answer = stale(&stored, &fetch.question, now, None);
                Ok((answer, CacheUse::Stale))
            }
            _ => Err(fault),
        }
    }
}

impl Fetch {
    fn answered(
        mut self: Box<Self>,
        cache: &Arc<Cache>,
        answer: Response<ResponseBody>,
        asked: SystemTime,
        now: SystemTime,
    ) -> Answered {
        let status = answer.status();
        if let Some(stored) = self.stored.take() {
            if status == StatusCode::NOT_MODIFIED && self.is_validating {
                if !stored.is_meant_by(answer.headers()) {
                    // The origin's answer refers to another version than the stored one.
                    cache.store().forget(&self.question.key);
                    let since = cache.store().sets_out(&self.question.key);
                    self.journey = Journey::new(cache, &self.question.key, since);
                    self.is_validating = false;
                    self.forward = Forward::Miss;
                    return Answered::Again(Asking {
                        cache: cache.clone(),
                        asked: now,
                        purpose: Purpose::Fetch(self),
                    });
                }
                let (answer, how) = {
                    let head = Head {
                        status: StatusCode::NOT_MODIFIED,
                        headers: answer.headers(),
                        asked,
                        now,
                    };
                    (*self).validated(cache, &stored, head)
                };
                return Answered::Done(answer, how);
            }
            if FAILURES.contains(&status) && stored.may_be_stale(&self.question, now) {
                self.ends(Stage::Failed(failed(&answer)));
                let answer = stale(&stored, &self.question, now, Some(status));
                return Answered::Done(answer, CacheUse::Stale);
            }
            if self.question.is_head {
                let head = Head {
                    status,
                    headers: answer.headers(),
                    asked,
                    now,
                };
                self.head_answered(cache, &stored, head);
            }
        }
        let (parts, body) = answer.into_parts();
        let head = Head {
            status,
            headers: &parts.headers,
            asked,
            now,
        };
        let said = CacheStatus {
            fwd_status: Some(status.as_u16()),
            ..CacheStatus::forward(self.forward)
        };
        let length = body.size_hint().exact();
        let is_short = length.is_none_or(|length| length <= cache.max_object);
        let stored = Stored::judge(&self.question, head)
            .ok()
            .filter(|_| is_short);
        let Some(stored) = stored else {
            let mut answer = Response::from_parts(parts, body);
            self.passes(cache, &answer, now);
            say(&mut answer, said);
            return Answered::Done(answer, CacheUse::Miss);
        };
        if !stored.lives() {
            // Waiting calls must be sent to the origin in any case.
            self.ends(Stage::Apart);
        }
        let bytes = stored.cost() + length.unwrap_or(0);
        let Some(room) = Reservation::new(cache, bytes) else {
            self.ends(Stage::Apart);
            let mut answer = Response::from_parts(parts, body);
            say(&mut answer, said);
            return Answered::Done(answer, CacheUse::Miss);
        };
        let known = stored.not_modified(&self.question, now);
        let keeping = Keeping {
            cache: cache.clone(),
            question: self.question,
            stored,
            journey: self.journey,
            leader: self.leader,
            room,
        };
        let filling = fill::begin(body.into_source(), keeping, known.is_none());
        let mut answer = match (filling, known) {
            (Some(filling), _) => {
                Response::from_parts(parts, ResponseBody::new(Source::Filling(Box::new(filling))))
            }
            (None, Some(known)) => known,
            (None, None) => Response::from_parts(parts, ResponseBody::empty()),
        };
        let said = CacheStatus {
            stored: true,
            ..said
        };
        say(&mut answer, said);
        Answered::Done(answer, CacheUse::Miss)
    }

    /// What the answer to HEAD says about the stored answer to GET, which is stale.
    fn head_answered(&self, cache: &Cache, stored: &Stored, head: Head<'_>) {
        match stored.compared(head) {
            HeadSays::Same => {
                let (fresh, may_be_kept) = stored.freshened(&self.question, head);
                if may_be_kept {
                    let since = self.journey.since();
                    cache.store().keep(&self.question, fresh.into(), since);
                }
            }
            HeadSays::Other => cache.store().forget(&self.question.key),
            HeadSays::Nothing => {}
        }
    }

    /// The origin says that the stored answer is still valid.
    fn validated(
        mut self,
        cache: &Arc<Cache>,
        stored: &Stored,
        head: Head<'_>,
    ) -> (Response<ResponseBody>, CacheUse) {
        let now = head.now;
        let (fresh, may_be_kept) = stored.freshened(&self.question, head);
        let fresh = Arc::new(fresh);
        let kept = match may_be_kept {
            true => cache
                .store()
                .keep(&self.question, fresh.clone(), self.journey.since()),
            false => {
                cache.store().forget(&self.question.key);
                false
            }
        };
        self.ends(match kept && fresh.lives() {
            true => Stage::Kept,
            false => Stage::Apart,
        });
        let mut answer = fresh.answer(&self.question, now);
        let said = CacheStatus {
            fwd_status: Some(StatusCode::NOT_MODIFIED.as_u16()),
            ttl: Some(fresh.ttl(now)),
            ..CacheStatus::forward(self.forward)
        };
        say(&mut answer, said);
        (answer, CacheUse::Revalidated)
    }

    /// An answer that is not stored. The old stored answer is removed as well, unless the origin only has an error.
    fn passes(&mut self, cache: &Cache, answer: &Response<ResponseBody>, now: SystemTime) {
        let status = answer.status();
        if status.is_server_error() {
            return self.ends(Stage::Failed(failed(answer)));
        }
        let speaks_for_others = !self.question.is_head && !self.question.is_personal;
        if speaks_for_others && status != StatusCode::NOT_MODIFIED {
            cache.store().set_apart(&self.question, now + APART);
        }
        self.ends(Stage::Apart);
    }

    fn ends(&mut self, stage: Stage) {
        if let Some(leader) = self.leader.take() {
            leader.ends(stage);
        }
    }
}

/// The failure that an answer reports.
fn failed(answer: &Response<ResponseBody>) -> Failure {
    let after = answer.headers().get(header::RETRY_AFTER).cloned();
    Failure::Status(answer.status(), after)
}

fn hit(stored: &Stored, question: &Question, now: SystemTime, manner: Manner) -> Lookup {
    let mut answer = stored.answer(question, now);
    let ttl = stored.ttl(now);
    let (said, how) = match manner {
        Manner::Joined => {
            let said = CacheStatus {
                collapsed: true,
                ttl: Some(ttl),
                ..CacheStatus::forward(Forward::UriMiss)
            };
            (said, CacheUse::Joined)
        }
        _ => (CacheStatus::hit(ttl), CacheUse::Hit),
    };
    say(&mut answer, said);
    Lookup::Hit(Box::new(answer), how)
}

/// A stale stored answer instead of the origin's error; `status` is the origin's status.
fn stale(
    stored: &Stored,
    question: &Question,
    now: SystemTime,
    status: Option<StatusCode>,
) -> Response<ResponseBody> {
    let mut answer = stored.answer(question, now);
    let said = CacheStatus {
        fwd_status: status.map(|status| status.as_u16()),
        ttl: Some(stored.ttl(now)),
        detail: Some("stale_if_error"),
        ..CacheStatus::forward(Forward::Stale)
    };
    say(&mut answer, said);
    answer
}

/// The answer to `only-if-cached` if nothing is stored (RFC 9111 §5.2.1.7).
fn nothing_kept() -> Response<ResponseBody> {
    let mut answer = Response::new(ResponseBody::bytes(
        "weir: nothing is kept for this request (504)\n",
    ));
    *answer.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, plain);
    let said = CacheStatus {
        detail: Some("only_if_cached"),
        ..CacheStatus::default()
    };
    say(&mut answer, said);
    answer
}

/// Adds a member to `Cache-Status` (RFC 9211).
fn say(answer: &mut Response<ResponseBody>, said: CacheStatus) {
    if let Ok(value) = HeaderValue::try_from(format!("weir; {said}")) {
        answer.headers_mut().append(CACHE_STATUS, value);
    }
}

/// Whether a stale answer may be used after this error.
fn excuses(kind: Kind) -> bool {
    kind.blames_origin()
        || matches!(
            kind,
            Kind::BreakerOpen | Kind::QueueFull | Kind::QueueTimeout | Kind::Internal
        )
}

/// RFC 9211
const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// RFC 5861 §4: what counts as an error for `stale-if-error`.
const FAILURES: [StatusCode; 4] = [
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

/// For this long the cache remembers that answers for a key are not stored, so that calls do not wait for each other.
const APART: Duration = Duration::from_secs(60);
