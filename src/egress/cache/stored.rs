//! An answer that is kept: whether it may be, for how long it is right, and what a caller gets of it.
//!
//! The rules of RFC 9111 §3 and §4 are `http-cache-semantics`'. It is given what those rules look at and nothing else:
//! headers that come several times would come out of it once, and `Date` anew. What is stricter here than there:
//!
//! - No lifetime is guessed: without `max-age`, `s-maxage` or `Expires` an answer is kept for revalidation only.
//! - An answer with `Set-Cookie` is not kept.
//! - An answer to somebody (`Authorization`, cookies and the like) is kept and used for others only if it says `public`
//!   or `s-maxage`; and so is one to nobody in particular, for somebody.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};

use super::{
    super::body::Answer,
    directives::Directives,
    question::{Question, joined},
};

/// An answer that is kept, or may be.
#[derive(Debug)]
pub(super) struct Stored {
    status: StatusCode,
    /// As they go to callers, without `Age`.
    headers: HeaderMap,
    body: Bytes,
    /// What it varies by (RFC 9111 §4.1), and what the request said there.
    vary: Vec<(HeaderName, Option<Vec<u8>>)>,
    policy: CachePolicy,
    /// How long it was right when it came, in all.
    lifetime: Duration,
    /// It may be used for somebody.
    is_for_all: bool,
    staleness: Staleness,
    /// Seconds after it became stale for which the origin itself lets it be used when it fails (RFC 5861 §4).
    stale_if_error: Option<u64>,
}

/// What may be done with it once it is stale (RFC 9111 §4.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Staleness {
    /// It may be used where somebody allows it.
    Allowed,
    /// Only where the origin's own `stale-if-error` allows it (`s-maxage`).
    OriginsWord,
    /// Never (`no-cache`, `must-revalidate`, `proxy-revalidate`).
    Forbidden,
}

/// What a kept answer is worth to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worth {
    /// It is the answer.
    Fresh,
    /// The origin has to be asked whether it still is.
    Stale,
    /// It may not be used for that request at all.
    None,
}

/// An answer's status and headers, as the origin sent them, without those of the hop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    /// When the question was asked, and when it was answered.
    pub(super) asked: SystemTime,
    pub(super) now: SystemTime,
}

impl Stored {
    /// What would be kept of an answer to `question`, its body to come ([`Stored::with_body`]); none: it may not be, or
    /// would be of no use.
    pub(super) fn judge(question: &Question, head: Head<'_>) -> Option<Stored> {
        let (stored, may_be_kept) = Stored::of(question, head);
        may_be_kept.then_some(stored)
    }

    fn of(question: &Question, head: Head<'_>) -> (Stored, bool) {
        let said = Directives::of(head.headers);
        let vary = vary(question, head.headers);
        let may_be_shared = vary.is_some()
            && said.are_clear()
            && !question.is_head
            && !NEVER.iter().any(|name| head.headers.contains_key(name));
        let policy = policy(head, &said);
        let staleness = if FORBID_STALE.iter().any(|name| said.has(name)) {
            Staleness::Forbidden
        } else if said.has("s-maxage") {
            Staleness::OriginsWord
        } else {
            Staleness::Allowed
        };
        let stored = Stored {
            status: head.status,
            headers: kept_headers(head),
            body: Bytes::new(),
            vary: vary.unwrap_or_default(),
            lifetime: policy.time_to_live(SystemTime::UNIX_EPOCH),
            policy,
            is_for_all: said.has("public") || said.has("s-maxage"),
            staleness,
            stale_if_error: said.seconds("stale-if-error"),
        };
        let may_be_kept = may_be_shared
            && (stored.is_for_all || !question.is_personal)
            && stored.policy.is_storable();
        let is_of_use = stored.is_fresh(head.now)
            || stored.can_be_validated()
            || stored.may_be_stale(question, head.now);
        (stored, may_be_kept && is_of_use)
    }

    /// The same, whole.
    pub(super) fn with_body(mut self, body: Bytes) -> Stored {
        if self.status != StatusCode::NO_CONTENT {
            let length = HeaderValue::from(body.len());
            self.headers.insert(header::CONTENT_LENGTH, length);
        }
        self.body = body;
        self
    }

    /// What the origin's 304 makes of it (RFC 9111 §3.2, §4.3.4), and whether that may be kept.
    pub(super) fn freshened(&self, question: &Question, head: Head<'_>) -> (Stored, bool) {
        let mut headers = self.headers.clone();
        for name in head.headers.keys() {
            if OF_THE_BODY.contains(name) {
                continue;
            }
            headers.remove(name);
            for value in head.headers.get_all(name) {
                headers.append(name.clone(), value.clone());
            }
        }
        let head = Head {
            status: self.status,
            headers: &headers,
            ..head
        };
        let (stored, may_be_kept) = Stored::of(question, head);
        (stored.with_body(self.body.clone()), may_be_kept)
    }

    /// Whether a 304 speaks of this one: its validator, if it has one, is the same (RFC 9111 §4.3.4).
    pub(super) fn is_meant_by(&self, not_modified: &HeaderMap) -> bool {
        match (
            not_modified.get(header::ETAG),
            self.headers.get(header::ETAG),
        ) {
            (Some(new), Some(own)) => opaque(new) == opaque(own),
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// Whether it is an answer to that request, as far as `Vary` goes.
    pub(super) fn answers(&self, question: &Question) -> bool {
        self.vary
            .iter()
            .all(|(name, value)| joined(&question.headers, name) == *value)
    }

    pub(super) fn vary(&self) -> impl Iterator<Item = &HeaderName> {
        self.vary.iter().map(|(name, _)| name)
    }

    /// What it is worth to that request, which it answers.
    pub(super) fn worth(&self, question: &Question, now: SystemTime) -> Worth {
        if question.is_personal && !self.is_for_all {
            return Worth::None;
        }
        if self.staleness != Staleness::Allowed && !self.is_fresh(now) {
            return Worth::Stale;
        }
        let request = Request::builder().method(Method::GET).uri("/");
        let mut request = request.body(()).unwrap_or_default();
        if let Some(said) = question.directives.header(|_| true) {
            request.headers_mut().insert(header::CACHE_CONTROL, said);
        } else if let Some(pragma) = question.headers.get(header::PRAGMA) {
            // Only without Cache-Control does it say anything (RFC 9111 §5.4).
            request.headers_mut().insert(header::PRAGMA, pragma.clone());
        }
        match self.policy.before_request(&request, now) {
            BeforeRequest::Fresh(_) => Worth::Fresh,
            BeforeRequest::Stale { .. } => Worth::Stale,
        }
    }

    /// It was never right for any time: nobody can share it without asking.
    pub(super) fn lives(&self) -> bool {
        !self.lifetime.is_zero()
    }

    /// Whether it may be used though it is stale, because the origin fails (RFC 5861 §4).
    pub(super) fn may_be_stale(&self, question: &Question, now: SystemTime) -> bool {
        if question.is_personal && !self.is_for_all {
            return false;
        }
        let by = self.stale_by(now);
        let within = |seconds: Option<u64>| seconds.is_some_and(|seconds| by.as_secs() < seconds);
        let origin = within(self.stale_if_error);
        match self.staleness {
            Staleness::Forbidden => false,
            Staleness::OriginsWord => origin,
            Staleness::Allowed => {
                origin
                    || by < question.stale_if_error
                    || within(question.directives.seconds("stale-if-error"))
            }
        }
    }

    /// Puts in a request what asks whether it is still right; in the place of the caller's own conditions.
    pub(super) fn ask(&self, headers: &mut HeaderMap) {
        for (condition, validator) in [
            (header::IF_NONE_MATCH, header::ETAG),
            (header::IF_MODIFIED_SINCE, header::LAST_MODIFIED),
        ] {
            if let Some(value) = self.headers.get(validator) {
                headers.insert(condition, value.clone());
            }
        }
    }

    /// Seconds for which it is still right; negative: since when it is not.
    pub(super) fn ttl(&self, now: SystemTime) -> i64 {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        seconds(self.lifetime).saturating_sub(seconds(self.policy.age(now)))
    }

    /// What the caller gets: all of it, or 304 if it has that already.
    pub(super) fn answer(&self, question: &Question, now: SystemTime) -> Response<Answer> {
        if let Some(not_modified) = self.not_modified(question, now) {
            return not_modified;
        }
        let body = match question.is_head {
            true => Answer::empty(),
            false => Answer::bytes(self.body.clone()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        let age = self.policy.age(now).as_secs();
        response.headers_mut().insert(header::AGE, age.into());
        response
    }

    /// 304, if the caller says that it has what this is (RFC 9111 §4.3.2).
    pub(super) fn not_modified(
        &self,
        question: &Question,
        now: SystemTime,
    ) -> Option<Response<Answer>> {
        if self.status != StatusCode::OK || !self.is_had(&question.headers) {
            return None;
        }
        let mut response = Response::new(Answer::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        let headers = response.headers_mut();
        *headers = self.headers.clone();
        for name in &OF_THE_BODY {
            headers.remove(name);
        }
        headers.insert(header::AGE, self.policy.age(now).as_secs().into());
        Some(response)
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn cost(&self) -> u64 {
        let lines = |headers: &HeaderMap| -> usize {
            let line = |(name, value): (&HeaderName, &HeaderValue)| {
                name.as_str().len() + value.len() + LINE
            };
            headers.iter().map(line).sum()
        };
        let vary =
            |(_, value): &(HeaderName, Option<Vec<u8>>)| LINE + value.as_ref().map_or(0, Vec::len);
        let vary: usize = self.vary.iter().map(vary).sum();
        (BASE + self.body.len() + lines(&self.headers) + vary) as u64
    }

    fn is_fresh(&self, now: SystemTime) -> bool {
        !self.policy.is_stale(now)
    }

    fn stale_by(&self, now: SystemTime) -> Duration {
        self.policy.age(now).saturating_sub(self.lifetime)
    }

    pub(super) fn can_be_validated(&self) -> bool {
        self.headers.contains_key(header::ETAG) || self.headers.contains_key(header::LAST_MODIFIED)
    }

    /// Whether the caller says that it has it (RFC 9110 §13.2.2).
    fn is_had(&self, request: &HeaderMap) -> bool {
        if request.contains_key(header::IF_NONE_MATCH) {
            let own = self.headers.get(header::ETAG).map(opaque);
            return request.get_all(header::IF_NONE_MATCH).iter().any(|value| {
                let mut tags = value
                    .as_bytes()
                    .split(|&b| b == b',')
                    .map(<[u8]>::trim_ascii);
                // A tag with a comma in it is not found: the caller gets it once more.
                tags.any(|tag| tag == b"*" || own.is_some_and(|own| strip_weak(tag) == own))
            });
        }
        let date =
            |value: Option<&HeaderValue>| httpdate::parse_http_date(value?.to_str().ok()?).ok();
        let since = date(request.get(header::IF_MODIFIED_SINCE));
        let modified = date(self.headers.get(header::LAST_MODIFIED));
        matches!((modified, since), (Some(modified), Some(since)) if modified <= since)
    }
}

/// What the library is told of an answer: no more than its rules look at.
fn policy(head: Head<'_>, said: &Directives) -> CachePolicy {
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    let headers = response.headers_mut();
    // What stale answers may not be used for is looked at here.
    if let Some(said) = said.header(|name| name != "proxy-revalidate") {
        headers.insert(header::CACHE_CONTROL, said);
    }
    for name in [
        header::PRAGMA,
        header::EXPIRES,
        header::DATE,
        header::ETAG,
        header::LAST_MODIFIED,
    ] {
        if let Some(value) = head.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers
        .entry(header::DATE)
        .or_insert_with(|| date(head.now));
    // RFC 9111 §4.2.3: it may have been made when the question was asked, and was some seconds old then.
    let delay = head.now.duration_since(head.asked).unwrap_or_default();
    let age = head.headers.get(header::AGE);
    let age: Option<u64> = age.and_then(|age| age.to_str().ok()?.trim().parse().ok());
    let age = Duration::from_secs(age.unwrap_or(0).min(MOST_SECONDS)) + delay;
    let born = head.now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let options = CacheOptions {
        shared: true,
        cache_heuristic: 0.0,
        immutable_min_time_to_live: Duration::ZERO,
        ignore_cargo_cult: false,
    };
    let request = Request::builder().method(Method::GET).uri("/");
    let request = request.body(()).unwrap_or_default();
    CachePolicy::new_options(&request, &response, born, options)
}

/// What an answer varies by, with what the request says there; none: by anything (`*`), or by what cannot be read.
fn vary(question: &Question, headers: &HeaderMap) -> Option<Vec<(HeaderName, Option<Vec<u8>>)>> {
    let mut vary = Vec::new();
    for value in headers.get_all(header::VARY) {
        for name in value
            .as_bytes()
            .split(|&b| b == b',')
            .map(<[u8]>::trim_ascii)
        {
            if name.is_empty() {
                continue;
            }
            if name == b"*" || vary.len() == MOST_VARY {
                return None;
            }
            let name = HeaderName::from_bytes(name).ok()?;
            let value = joined(&question.headers, &name);
            vary.push((name, value));
        }
    }
    Some(vary)
}

/// As they are kept: with a date (RFC 9110 §6.6.1), without the age that they came with and what belongs to that one
/// transfer.
fn kept_headers(head: Head<'_>) -> HeaderMap {
    let mut headers = head.headers.clone();
    for name in [header::AGE, header::TRAILER, CACHE_STATUS] {
        headers.remove(name);
    }
    headers
        .entry(header::DATE)
        .or_insert_with(|| date(head.now));
    headers
}

fn date(time: SystemTime) -> HeaderValue {
    // A time before 1970 or after 9999 has no form.
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let time = time.clamp(SystemTime::UNIX_EPOCH, last);
    HeaderValue::try_from(httpdate::fmt_http_date(time))
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// An entity tag without what says that it is weak: both are compared so (RFC 9110 §8.8.3.2).
fn opaque(tag: &HeaderValue) -> &[u8] {
    strip_weak(tag.as_bytes().trim_ascii())
}

fn strip_weak(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// RFC 9211
pub(super) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// With one of these, an answer is not kept.
const NEVER: [HeaderName; 2] = [header::SET_COOKIE, header::CONTENT_RANGE];

const FORBID_STALE: [&str; 3] = ["no-cache", "must-revalidate", "proxy-revalidate"];

/// They describe the body that came with them: a 304 has none, and does not change them (RFC 9111 §3.2).
const OF_THE_BODY: [HeaderName; 5] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::CONTENT_RANGE,
    header::TRANSFER_ENCODING,
];

/// An answer that varies by more is not kept.
const MOST_VARY: usize = 16;

/// An age can be no more (RFC 9111 §1.2.2).
const MOST_SECONDS: u64 = 1 << 31;

/// About what a kept answer takes beside its bytes, and a header's line beside its text.
const BASE: usize = 1024;
const LINE: usize = 64;
