//! A stored answer, and what a caller gets of it.
//!
//! What may be stored, for how long and for whom is decided by [`weir_cache`], with these terms:
//!
//! - An answer to a request with credentials (`Authorization`, cookies and the like) is stored and used for others
//!   only if it has `public` or `s-maxage`. The same holds for the answer to a request without credentials, before it
//!   is used for one with credentials.
//! - An answer without a lifetime is stored only to be validated, or to stand in for a failing origin.
//! - Errors (5xx) are not stored.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use weir_cache::{
    Answer, FieldsMut, Life, Policy, Reason, State, Terms, Vary, Verdict,
    conditions::{self, Serving},
    judge,
    rules::can_be_validated,
    update::{self, HeadSays, Storable},
};

use super::{super::body::ResponseBody, question::Question};

/// An answer that is stored or may be stored.
#[derive(Debug)]
pub(super) struct Stored {
    status: StatusCode,
    /// As they are sent to callers, without `Age`.
    headers: HeaderMap,
    body: Bytes,
    life: Life,
    vary: Vary,
    /// What the request said in the headers that the answer varies by.
    selected: Vec<u8>,
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

impl Head<'_> {
    fn answer(&self) -> Answer<'_, HeaderMap> {
        Answer {
            status: self.status.as_u16(),
            fields: self.headers,
            asked: ms(self.asked),
            answered: ms(self.now),
        }
    }
}

impl Stored {
    /// What would be stored of the answer to `question`; the body follows later ([`Stored::with_body`]).
    ///
    /// # Errors
    /// Why it must not be stored, or why storing it is useless.
    pub(super) fn judge(question: &Question, head: Head<'_>) -> Result<Stored, Reason> {
        let Verdict { life, vary } = judge(question.request(), head.answer(), &policy(question))?;
        let mut headers = head.headers.clone();
        Storable::of(head.headers).strip(&mut headers);
        headers
            .entry(header::DATE)
            .or_insert_with(|| date(head.now));
        Ok(Stored {
            status: head.status,
            headers,
            body: Bytes::new(),
            life,
            selected: vary.selects(&question.headers),
            vary,
        })
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
        let status = self.status.as_u16();
        let with = head.answer();
        let policy = policy(question);
        let judged = update::freshen(&mut headers, status, with, question.asker(), &policy);
        let may_be_kept = judged.is_ok();
        let Verdict { life, vary } = judged.unwrap_or_else(|_| Verdict {
            life: Life {
                made: ms(head.now),
                ..self.life
            },
            vary: self.vary.clone(),
        });
        let stored = Stored {
            status: self.status,
            headers,
            body: self.body.clone(),
            life,
            selected: vary.selects(&question.headers),
            vary,
        };
        (stored, may_be_kept)
    }

    /// Whether a 304 is about this answer.
    pub(super) fn is_meant_by(&self, not_modified: &HeaderMap) -> bool {
        update::is_meant(&self.headers, not_modified)
    }

    /// What the answer to a HEAD says about this one (RFC 9111 §4.3.5).
    pub(super) fn compared(&self, head: Head<'_>) -> HeadSays {
        let length = self.body.len() as u64;
        update::head_says(&self.headers, length, head.status.as_u16(), head.headers)
    }

    /// Whether it matches that request in the headers of `Vary`.
    pub(super) fn answers(&self, question: &Question) -> bool {
        self.vary.selects(&question.headers) == self.selected
    }

    pub(super) fn vary(&self) -> impl Iterator<Item = &str> {
        self.vary.names()
    }

    /// How it can be used for that request, which it matches.
    pub(super) fn worth(&self, question: &Question, now: SystemTime) -> Freshness {
        match self.life.state(ms(now), &terms(question)) {
            State::Fresh => Freshness::Fresh,
            // The egress makes no calls that nobody waits for, so it cannot renew an answer in the background.
            State::StaleWhileRevalidate | State::StaleIfError | State::MustValidate => {
                Freshness::Stale
            }
            State::Withheld => Freshness::None,
        }
    }

    /// Whether it ever had a lifetime. Without one, it cannot be shared without revalidation.
    pub(super) fn lives(&self) -> bool {
        self.life.lifetime > 0
    }

    /// Whether it may be used although it is stale, because the origin fails (RFC 5861 §4).
    pub(super) fn may_be_stale(&self, question: &Question, now: SystemTime) -> bool {
        self.life.may_stand_in(ms(now), &terms(question))
    }

    /// Replaces the caller's conditions in a request by those for revalidation.
    pub(super) fn ask(&self, headers: &mut HeaderMap) {
        for (condition, value) in conditions::validation(&self.headers) {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                headers.insert(condition, value);
            }
        }
    }

    /// For how many seconds it is still fresh; negative: since when it is stale.
    pub(super) fn ttl(&self, now: SystemTime) -> i64 {
        self.life.ttl(ms(now))
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
        response.headers_mut().insert(header::AGE, self.age(now));
        response
    }

    /// 304, if the request says that the caller has it already (RFC 9111 §4.3.2).
    pub(super) fn not_modified(
        &self,
        question: &Question,
        now: SystemTime,
    ) -> Option<Response<ResponseBody>> {
        let stored = conditions::Stored {
            status: self.status.as_u16(),
            fields: &self.headers,
            length: self.body.len() as u64,
            made: self.life.made,
        };
        if conditions::serve(question.request(), stored, ms(now)) != Serving::NotModified {
            return None;
        }
        let mut response = Response::new(ResponseBody::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        let headers = response.headers_mut();
        *headers = self.headers.clone();
        FieldsMut::retain(headers, conditions::is_in_304);
        headers.insert(header::AGE, self.age(now));
        Some(response)
    }

    /// Approximate memory use, bytes.
    pub(super) fn cost(&self) -> u64 {
        let line =
            |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + LINE;
        let lines: usize = self.headers.iter().map(line).sum();
        let vary: usize = self.vary.names().map(|name| name.len() + LINE).sum();
        (BASE + self.body.len() + lines + vary + self.selected.len()) as u64
    }

    pub(super) fn can_be_validated(&self) -> bool {
        can_be_validated(self.status.as_u16(), &self.headers)
    }

    fn age(&self, now: SystemTime) -> HeaderValue {
        HeaderValue::from(self.life.age(ms(now)) / 1000)
    }
}

fn policy(question: &Question) -> Policy<'static> {
    Policy {
        stale_if_error: question.stale_if_error.as_millis() as u64,
        ..Policy::default()
    }
}

fn terms(question: &Question) -> Terms {
    Terms {
        asker: question.asker(),
        wishes: question.wishes,
        stale_while_revalidate: 0,
        stale_if_error: question.stale_if_error.as_millis() as u64,
    }
}

fn date(time: SystemTime) -> HeaderValue {
    HeaderValue::try_from(update::http_date(ms(time)))
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Milliseconds since 1970.
fn ms(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_millis() as u64
}

/// Approximate memory of a stored answer besides its bytes, and of a header line besides its text.
const BASE: usize = 1024;
const LINE: usize = 64;
