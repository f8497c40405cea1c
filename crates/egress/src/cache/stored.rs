//! A stored answer: whether it may be stored, for how long it is fresh, and what a caller gets.
//!
//! The rules of RFC 9111 §3 and §4 are those of `http-cache-semantics`. It gets only the headers that its rules need,
//! because it would merge repeated headers and change `Date`. These rules are stricter here:
//!
//! - No lifetime is guessed: an answer without `max-age`, `s-maxage` or `Expires` is stored only for revalidation.
//! - An answer with `Set-Cookie` is not stored.
//! - An answer to a request with credentials (`Authorization`, cookies and the like) is stored and used for others
//!   only if it has `public` or `s-maxage`. The same holds for the answer to a request without credentials, before it
//!   is used for one with credentials.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use weir_semantics::{
    conditions::{self, Condition, Outcome, Validators},
    fields,
};

use super::{
    super::body::ResponseBody,
    directives::Directives,
    question::{Question, joined},
};

/// An answer that is stored or may be stored.
#[derive(Debug)]
pub(super) struct Stored {
    status: StatusCode,
    /// As they are sent to callers, without `Age`.
    headers: HeaderMap,
    body: Bytes,
    /// The headers it varies by (RFC 9111 §4.1), with the values in the request.
    vary: Vec<(HeaderName, Option<Vec<u8>>)>,
    policy: CachePolicy,
    /// Its total lifetime when it arrived.
    lifetime: Duration,
    /// Whether it may be used for requests with credentials.
    is_for_all: bool,
    staleness: Staleness,
    /// For how many seconds after it became stale the origin allows its use if the origin fails (RFC 5861 §4).
    stale_if_error: Option<u64>,
}

/// How a stale answer may be used (RFC 9111 §4.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Staleness {
    /// The answer may be used if the configuration, the caller or the origin allows it.
    Allowed,
    /// Only if the origin's own `stale-if-error` allows it (`s-maxage`).
    OriginsWord,
    /// Never (`no-cache`, `must-revalidate`, `proxy-revalidate`).
    Forbidden,
}

/// Whether a stored answer can be used for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// The answer can be used.
    Fresh,
    /// The answer must be revalidated at the origin.
    Stale,
    /// The answer must not be used for this request.
    None,
}

/// Status and headers of an answer as the origin sent them, without hop-by-hop headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    /// When the request was sent, and when the answer arrived.
    pub(super) asked: SystemTime,
    pub(super) now: SystemTime,
}

impl Stored {
    /// What would be stored of the answer to `question`; the body follows later ([`Stored::with_body`]). `None` if it
    /// must not be stored, or storing it is useless.
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

    /// Adds the body.
    pub(super) fn with_body(mut self, body: Bytes) -> Stored {
        if self.status != StatusCode::NO_CONTENT {
            let length = HeaderValue::from(body.len());
            self.headers.insert(header::CONTENT_LENGTH, length);
        }
        self.body = body;
        self
    }

    /// Updates it with the origin's 304 (RFC 9111 §3.2, §4.3.4). Also returns whether the result may be stored.
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

    /// Whether a 304 is about this answer: its validator, if it has one, is equal (RFC 9111 §4.3.4).
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

    /// Whether it matches that request in the headers of `Vary`.
    pub(super) fn answers(&self, question: &Question) -> bool {
        self.vary
            .iter()
            .all(|(name, value)| joined(&question.headers, name) == *value)
    }

    pub(super) fn vary(&self) -> impl Iterator<Item = &HeaderName> {
        self.vary.iter().map(|(name, _)| name)
    }

    /// How it can be used for that request, which it matches.
    pub(super) fn worth(&self, question: &Question, now: SystemTime) -> Freshness {
        if question.is_personal && !self.is_for_all {
            return Freshness::None;
        }
        if self.staleness != Staleness::Allowed && !self.is_fresh(now) {
            return Freshness::Stale;
        }
        let request = Request::builder().method(Method::GET).uri("/");
        let mut request = request.body(()).unwrap_or_default();
        if let Some(said) = question.directives.header(|_| true) {
            request.headers_mut().insert(header::CACHE_CONTROL, said);
        } else if let Some(pragma) = question.headers.get(header::PRAGMA) {
            // This counts only without Cache-Control (RFC 9111 §5.4).
            request.headers_mut().insert(header::PRAGMA, pragma.clone());
        }
        match self.policy.before_request(&request, now) {
            BeforeRequest::Fresh(_) => Freshness::Fresh,
            BeforeRequest::Stale { .. } => Freshness::Stale,
        }
    }

    /// Whether it ever had a lifetime. Without one, it cannot be shared without revalidation.
    pub(super) fn lives(&self) -> bool {
        !self.lifetime.is_zero()
    }

    /// Whether it may be used although it is stale, because the origin fails (RFC 5861 §4).
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

    /// Replaces the caller's conditions in a request by those for revalidation.
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

    /// For how many seconds it is still fresh; negative: since when it is stale.
    pub(super) fn ttl(&self, now: SystemTime) -> i64 {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        seconds(self.lifetime).saturating_sub(seconds(self.policy.age(now)))
    }

    /// The answer for the caller: complete, or 304 if the caller has it already.
    pub(super) fn answer(&self, question: &Question, now: SystemTime) -> Response<ResponseBody> {
        if let Some(not_modified) = self.not_modified(question, now) {
            return not_modified;
        }
        let body = match question.is_head {
            true => ResponseBody::empty(),
            false => ResponseBody::bytes(self.body.clone()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        let age = self.policy.age(now).as_secs();
        response.headers_mut().insert(header::AGE, age.into());
        response
    }

    /// 304, if the request says that the caller has it already (RFC 9111 §4.3.2).
    pub(super) fn not_modified(
        &self,
        question: &Question,
        now: SystemTime,
    ) -> Option<Response<ResponseBody>> {
        if self.status != StatusCode::OK || !self.is_had(&question.headers) {
            return None;
        }
        let mut response = Response::new(ResponseBody::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        let headers = response.headers_mut();
        *headers = self.headers.clone();
        for name in &OF_THE_BODY {
            headers.remove(name);
        }
        headers.insert(header::AGE, self.policy.age(now).as_secs().into());
        Some(response)
    }

    /// Approximate memory use, bytes.
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

    /// Whether the request says that the caller has it (RFC 9110 §13.2.2).
    fn is_had(&self, request: &HeaderMap) -> bool {
        let own = Validators {
            etag: self
                .headers
                .get(header::ETAG)
                .map(opaque)
                .unwrap_or_default(),
            modified: conditions::date(values(&self.headers, Some(header::LAST_MODIFIED))),
        };
        // The other conditions do not refer to the caller's copy.
        let outcome = conditions::evaluate(own, |condition| {
            let name = match condition {
                Condition::IfNoneMatch => Some(header::IF_NONE_MATCH),
                Condition::IfModifiedSince => Some(header::IF_MODIFIED_SINCE),
                Condition::IfMatch | Condition::IfUnmodifiedSince => None,
            };
            values(request, name)
        });
        outcome == Outcome::NotModified
    }
}

/// The values of all fields of a name, if there is one.
fn values(headers: &HeaderMap, name: Option<HeaderName>) -> impl Iterator<Item = &[u8]> {
    let all = name.map(|name| headers.get_all(name));
    all.into_iter().flatten().map(HeaderValue::as_bytes)
}

/// The answer as the library gets it: only what its rules need.
fn policy(head: Head<'_>, said: &Directives) -> CachePolicy {
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    let headers = response.headers_mut();
    // Limits on the use of stale answers are checked here, not by the library.
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
    // RFC 9111 §4.2.3: the answer may have been made when the request was sent, so it may be some seconds old.
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

/// The headers an answer varies by, with their values in the request; `None` if it varies by everything (`*`), or by
/// something that cannot be parsed.
fn vary(question: &Question, headers: &HeaderMap) -> Option<Vec<(HeaderName, Option<Vec<u8>>)>> {
    let mut vary = Vec::new();
    for value in headers.get_all(header::VARY) {
        for name in fields::elements(value.as_bytes()) {
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

/// The headers as they are stored: with a date (RFC 9110 §6.6.1), without the age on arrival and without headers of
/// that one transfer.
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
    // Times before 1970 or after 9999 cannot be formatted.
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let time = time.clamp(SystemTime::UNIX_EPOCH, last);
    HeaderValue::try_from(httpdate::fmt_http_date(time))
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// An entity tag without its weak mark, for weak comparison (RFC 9110 §8.8.3.2).
fn opaque(tag: &HeaderValue) -> &[u8] {
    strip_weak(tag.as_bytes().trim_ascii())
}

fn strip_weak(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// RFC 9211
pub(super) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// An answer with one of these headers is not stored.
const NEVER: [HeaderName; 2] = [header::SET_COOKIE, header::CONTENT_RANGE];

const FORBID_STALE: [&str; 3] = ["no-cache", "must-revalidate", "proxy-revalidate"];

/// These headers describe the body that came with them. A 304 has no body, so it does not change them (RFC 9111
/// §3.2).
const OF_THE_BODY: [HeaderName; 5] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_TYPE,
    header::CONTENT_RANGE,
    header::TRANSFER_ENCODING,
];

/// An answer that varies by more headers is not stored.
const MOST_VARY: usize = 16;

/// Maximum of an age (RFC 9111 §1.2.2).
const MOST_SECONDS: u64 = 1 << 31;

/// Approximate memory of a stored answer besides its bytes, and of a header line besides its text.
const BASE: usize = 1024;
const LINE: usize = 64;
