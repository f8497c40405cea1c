//! What becomes of an answer of the application: it is stored while it is sent, or a stored page is sent in its place.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use weir_cache::{
    Asker, CacheStatus, Fields, FieldsMut as _, Forward, Lines, Policy, Reason, State, Terms,
    Verdict, Wishes,
    flights::Leader,
    judge,
    rules::{self, Answer, Request},
    store::{Filling, New, Varied},
    tags::Tags,
    update,
};
use weir_observe::cache_use::CacheUse;

use super::{
    Asking, Cached, Fetch, Kept, Pages, StoredPage, asker, hit, millis, now, purge, show::Why,
};
use crate::{
    record::Record,
    scripts::{
        Response,
        fastcgi::cgi::Head,
        run::{OnDrop, Progress},
        spool::Spooled,
    },
};

/// What becomes of an answer.
pub(crate) enum Becomes {
    /// The client gets it.
    Sent,
    /// The client gets a stored page. The rest of the script's output is not needed.
    Replaced(weir_http::Reply),
    /// The application has said that a page is still valid which is not the stored one. It is asked again.
    Again,
}

/// Copies an answer to the store while its client gets it. If it is dropped before [`PageCopy::finish`], nothing is stored, and
/// the next of the equal requests asks.
#[derive(Debug)]
pub(crate) struct PageCopy {
    filling: Filling<Kept>,
    leader: Option<Leader<()>>,
    /// The length that the script has announced. What it prints beyond that reaches nobody.
    length: Option<u64>,
    so_far: u64,
}

impl PageCopy {
    /// The next bytes of the body. `None`: the answer is too large.
    pub(crate) fn with(mut self: Box<Self>, bytes: &[u8]) -> Option<Box<Self>> {
        let bytes = up_to(
            self.length.map(|length| length.saturating_sub(self.so_far)),
            bytes,
        );
        self.so_far += bytes.len() as u64;
        if self.filling.push(bytes) {
            return Some(self);
        }
        if let Some(leader) = self.leader {
            leader.uncacheable(now() + REMEMBERED);
        }
        None
    }

    /// The body is complete.
    pub(crate) fn finish(self: Box<Self>) {
        if self.length.is_none_or(|length| length == self.so_far) {
            let is_stored = self.filling.finish();
            if let Some(leader) = self.leader.filter(|_| is_stored) {
                leader.stored();
            }
        }
    }
}

/// The application has answered. `read`: what was read ahead of its answer; `body`: of the request.
pub(crate) fn answered(
    record: &mut Record,
    cached: &Cached,
    (response, read): (&mut Response, Option<&Progress>),
    body: Option<&Spooled>,
) -> Becomes {
    let gateway = record.gateway;
    let Some(pages) = &gateway.pages else {
        return Becomes::Sent;
    };
    let becomes = becomes((pages, record, cached), (&mut *response, read), body);
    // It is for weir alone.
    response.head.headers.remove(TARGETED[0]);
    becomes
}

fn becomes(
    (pages, record, cached): (&Pages, &mut Record, &Cached),
    (response, read): (&mut Response, Option<&Progress>),
    body: Option<&Spooled>,
) -> Becomes {
    purge::said(pages, record, cached, &mut response.head);
    let asking = (record.rare.as_mut()).and_then(|rare| rare.asking.take());
    let status = match asking.map(|asking| *asking) {
        None => return Becomes::Sent,
        Some(Asking::Page(fetch)) => {
            return fetch.answered((pages, record, cached), (response, read));
        }
        Some(Asking::Apart(apart)) => {
            purge::edited((pages, record, cached), body, &response.head);
            CacheStatus {
                detail: Some(apart.token()),
                ..CacheStatus::forward(apart.forward())
            }
        }
        Some(Asking::Write(page)) => {
            purge::written((pages, record, cached), &page, &response.head);
            purge::edited((pages, record, cached), body, &response.head);
            CacheStatus::forward(Forward::Method)
        }
    };
    hit::say(&mut response.head.headers, cached, &status);
    Becomes::Sent
}

/// The application has failed, and its client would get an error. `Some`: an expired page instead.
pub(crate) fn failed(record: &mut Record, cached: &Cached) -> Option<weir_http::Reply> {
    let Some(Asking::Page(mut fetch)) = record.rare.as_mut()?.asking.take().map(|asking| *asking)
    else {
        return None;
    };
    let reply = fetch.stale_instead(record, cached);
    if let Some(leader) = fetch.leader.take() {
        leader.failed(());
    }
    reply
}

impl Fetch {
    fn answered(
        mut self: Box<Self>,
        (pages, record, cached): (&Pages, &mut Record, &Cached),
        (response, read): (&mut Response, Option<&Progress>),
    ) -> Becomes {
        let status = response.head.status;
        if status == StatusCode::NOT_MODIFIED
            && self.validates
            && let Some(stored) = self.stored.take()
        {
            response.run.on_drop(OnDrop::Finish);
            let of = (pages, &mut *record, cached);
            let Some(reply) = self.validated(of, &stored, &response.head) else {
                return self.again(record);
            };
            return Becomes::Replaced(reply);
        }
        if FAILURES.contains(&status)
            && let Some(reply) = self.stale_instead(record, cached)
        {
            response.run.on_drop(OnDrop::Finish);
            if let Some(leader) = self.leader {
                leader.failed(());
            }
            return Becomes::Replaced(reply);
        }
        let mut said = CacheStatus {
            fwd_status: Some(status.as_u16()),
            ..CacheStatus::forward(self.why)
        };
        let has_no_body = status == StatusCode::NO_CONTENT;
        let is_whole = has_no_body || read == Some(&Progress::End);
        let said_fields = self.said.take();
        let key = self.key.clone();
        let is_passed_on = !is_whole && read.is_none() && record.head.method == Method::GET;
        let judged = match is_passed_on || response.head.answers_otherwise() {
            true => Err((STREAMED, false)),
            false => (self.judge(record, cached, &response.head))
                .map_err(|reason| ((reason.token(), reason.text()), reason.is_about_request())),
        };
        let stored = match judged {
            Ok(judged) => self.store((pages, record), judged, (response, is_whole)),
            Err((why, is_about_request)) => {
                self.gives_up(pages, is_about_request);
                Err(why)
            }
        };
        match stored {
            Ok(()) => said.stored = true,
            Err(why) => {
                said.detail = Some(why.0);
                pages.refused().note(key.hash(), why);
            }
        }
        // The client has asked for a part of the page, or whether its copy is valid.
        if said.stored && is_whole && said_fields.is_some() {
            let fields = said_fields.as_deref();
            if let Some((stored, _)) = pages.stored(&key, &record.head.fields) {
                let reply = hit::reply(record, cached, &stored, (fields, &said, now()));
                return Becomes::Replaced(reply);
            }
        }
        hit::say(&mut response.head.headers, cached, &said);
        Becomes::Sent
    }

    /// Whether the answer may be stored.
    fn judge(&self, record: &Record, cached: &Cached, head: &Head) -> Result<Judged, Reason> {
        let seen = Seen::of(cached, head.headers.lines());
        self.judge_fields(record, cached, (head.status, &seen))
    }

    fn judge_fields(
        &self,
        record: &Record,
        cached: &Cached,
        (status, seen): (StatusCode, &Seen<'_>),
    ) -> Result<Judged, Reason> {
        let fields = &record.head.fields;
        let asker = match asker(fields, cached) {
            Asker::WithCookies if seen.is_public => Asker::Anybody,
            asker => asker,
        };
        let request = Request {
            method: rules::Method::of(record.head.method.as_str().as_bytes()),
            fields,
            asker,
            has_body: false,
        };
        let answer = Answer {
            status: status.as_u16(),
            fields: seen,
            asked: self.asked_at,
            answered: now(),
        };
        let Verdict { life, vary } = judge(request, answer, &policy(cached))?;
        let mut kept = update::stored_fields(&seen.lines);
        kept.remove(TARGETED[0]);
        if !kept.has("date") {
            kept.append(b"Date", update::http_date(now()).as_bytes());
        }
        let varied = (!vary.is_empty()).then(|| Varied {
            names: vary.to_bytes().into(),
            values: vary.selects(fields),
        });
        Ok(Judged {
            kept: Kept::new(status, &kept, life),
            varied,
            tags: Tags::of(&seen.lines).ok(),
        })
    }

    /// Stores the answer, at once or while it is read.
    ///
    /// # Errors
    ///
    /// Why it is not stored.
    fn store(
        mut self,
        (pages, record): (&Pages, &mut Record),
        judged: Judged,
        (response, is_whole): (&mut Response, bool),
    ) -> Result<(), Why> {
        let seed = pages.store.seed();
        let site = record.site_name().unwrap_or_default().as_bytes();
        // A purge of a tag that is not kept could not find the page.
        let tags = judged.tags.ok_or(MANY_TAGS)?;
        let length = response.head.content_length;
        let new = New {
            key: self.key.clone(),
            vary: judged.varied,
            head: judged.kept,
            tags: tags.subjects(seed, site).collect(),
            asked: self.asked,
        };
        if is_whole {
            let body = match response.head.status {
                StatusCode::NO_CONTENT => &[],
                _ => response.output.get(response.body_at..).unwrap_or_default(),
            };
            let body = up_to(length, body);
            let is_cut = length.is_some_and(|length| length != body.len() as u64);
            if is_cut || body.len() as u64 > pages.max_object {
                self.gives_up(pages, false);
                return Err(if is_cut { WRONG_LENGTH } else { TOO_LARGE });
            }
            if !pages.store.insert(new, Bytes::copy_from_slice(body)) {
                // The next of those that wait asks again: their answer must be younger than the purge.
                return Err(PURGED);
            }
            if let Some(leader) = self.leader.take() {
                leader.stored();
            }
            if let Some((stored, _)) = pages.stored(&self.key, &record.head.fields) {
                // Its compressed form is kept.
                record.rare_mut().page = Some(stored);
            }
            return Ok(());
        }
        let mut filling = pages.store.fill(new);
        if length.is_some_and(|length| !filling.expect(length)) {
            self.gives_up(pages, false);
            return Err(TOO_LARGE);
        }
        response.copy = Some(Box::new(PageCopy {
            filling,
            leader: self.leader.take(),
            length,
            so_far: 0,
        }));
        Ok(())
    }

    /// The answer is not stored. `may_be_later`: the answer to an equal request may be.
    fn gives_up(&mut self, pages: &Pages, may_be_later: bool) {
        match self.leader.take() {
            Some(leader) if may_be_later => leader.failed(()),
            Some(leader) => leader.uncacheable(now() + REMEMBERED),
            None => {}
        }
        if self.stored.take().is_some() && !may_be_later {
            pages.store.remove(&self.key);
        }
    }

    /// The application has said that the stored page is still valid. `None`: it means another one.
    fn validated(
        &mut self,
        (pages, record, cached): (&Pages, &mut Record, &Cached),
        stored: &Arc<StoredPage>,
        head: &Head,
    ) -> Option<weir_http::Reply> {
        let said = Lines(head.headers.lines());
        if !update::is_meant(&stored.head.lines(), &said) {
            pages.store.remove(&self.key);
            return None;
        }
        let mut fields = weir_cache::FieldList::of(&stored.head.lines(), |_| true);
        let with = Answer {
            status: head.status.as_u16(),
            fields: &said,
            asked: self.asked_at,
            answered: now(),
        };
        // What this says of the result does not know `ignore_vary` and `public_if`.
        let _ = update::freshen(
            &mut fields,
            stored.head.status.as_u16(),
            with,
            asker(&record.head.fields, cached),
            &policy(cached),
        );
        let seen = Seen::of(cached, fields.as_bytes());
        let judged = self.judge_fields(record, cached, (stored.head.status, &seen));
        let renewed = match judged {
            Ok(judged) => Some(pages.store.renew(stored, judged.kept, self.asked)),
            Err(_) => {
                pages.store.remove(&self.key);
                None
            }
        };
        match (self.leader.take(), &renewed) {
            (Some(leader), Some(_)) => leader.stored(),
            (Some(leader), None) => leader.uncacheable(now() + REMEMBERED),
            (None, _) => {}
        }
        record.cache = Some(CacheUse::Validated);
        let status = CacheStatus {
            fwd_status: Some(StatusCode::NOT_MODIFIED.as_u16()),
            stored: renewed.is_some(),
            ..CacheStatus::forward(self.why)
        };
        let stored = renewed.as_ref().unwrap_or(stored);
        let said = self.said.as_deref();
        Some(hit::reply(record, cached, stored, (said, &status, now())))
    }

    /// Asks once more, for the whole page.
    fn again(mut self: Box<Self>, record: &mut Record) -> Becomes {
        self.validates = false;
        for name in weir_cache::conditions::CLIENTS {
            record.head.fields.remove(name.as_bytes());
        }
        record.rare_mut().asking = Some(Box::new(Asking::Page(self)));
        Becomes::Again
    }

    /// The expired page, if it may be sent because the application has failed.
    fn stale_instead(&mut self, record: &mut Record, cached: &Cached) -> Option<weir_http::Reply> {
        let stored = self.stored.take()?;
        let terms = Terms {
            asker: asker(&record.head.fields, cached),
            wishes: Wishes::default(),
            stale_while_revalidate: 0,
            stale_if_error: millis(cached.said.grace),
        };
        let state = stored.head.life.state(now(), &terms);
        let may_be_sent = !matches!(state, State::MustValidate | State::Withheld);
        may_be_sent.then(|| {
            if let Some(said) = self.said.take() {
                record.head.fields = *said;
            }
            hit::stale(record, cached, &stored, "failed")
        })
    }
}

/// At most so many of the bytes.
fn up_to(length: Option<u64>, bytes: &[u8]) -> &[u8] {
    let most = length.map_or(bytes.len(), |length| {
        usize::try_from(length).unwrap_or(usize::MAX)
    });
    &bytes[..most.min(bytes.len())]
}

/// What the configuration says of answers.
fn policy(cached: &Cached) -> Policy<'static> {
    Policy {
        ttl: Some(millis(cached.said.ttl)).filter(|ttl| *ttl > 0),
        longest_error: LONGEST_ERROR,
        stale_if_error: 0,
        targeted: &TARGETED,
        must_revalidate_is_for_all: true,
    }
}

/// An answer that may be stored.
struct Judged {
    kept: Kept,
    varied: Option<Varied>,
    /// `None`: too many.
    tags: Option<Tags>,
}

/// The fields of an answer, as the configuration lets the rules see them.
struct Seen<'a> {
    lines: Lines<'a>,
    /// Names that do not count in `Vary`.
    ignored: &'a [String],
    /// The answer says that it is for everybody: its `Cache-Control` does not count.
    is_public: bool,
}

impl<'a> Seen<'a> {
    fn of(cached: &'a Cached, lines: &'a [u8]) -> Seen<'a> {
        let lines = Lines(lines);
        let is_public = cached.said.public_if.iter().any(|(name, wanted)| {
            let mut values = lines.values(name);
            values.any(|value| value.eq_ignore_ascii_case(wanted.as_bytes()))
        });
        Seen {
            lines,
            ignored: &cached.said.ignore_vary,
            is_public,
        }
    }

    fn hides(&self, name: &str) -> bool {
        self.is_public && matches!(name, "cache-control" | "expires" | "pragma")
    }
}

impl Fields for Seen<'_> {
    fn values<'f>(&'f self, name: &str) -> impl Iterator<Item = &'f [u8]> {
        let is_hidden = self.hides(name);
        let is_list = name == "vary" && !self.ignored.is_empty();
        let values = self.lines.values(name).filter(move |_| !is_hidden);
        values.flat_map(move |value| {
            let whole = (!is_list).then_some(value);
            let elements = is_list.then(|| weir_semantics::fields::elements(value));
            let kept = elements.into_iter().flatten().filter(|element| {
                let is = |ignored: &String| element.eq_ignore_ascii_case(ignored.as_bytes());
                !self.ignored.iter().any(is)
            });
            whole.into_iter().chain(kept)
        })
    }

    fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.all()
    }
}

/// The answer is passed on as it comes.
const STREAMED: Why = (
    "streamed",
    "the answer is a file or another URL, or is passed on as it comes (buffering, X-Accel-Buffering, an event stream)",
);
const MANY_TAGS: Why = (
    "many_tags",
    "the answer has too many tags, or too long ones",
);
const TOO_LARGE: Why = ("too_large", "the answer is larger than max_object");
const WRONG_LENGTH: Why = (
    "wrong_length",
    "the answer has another length than its Content-Length says",
);
const PURGED: Why = ("purged", "the page was purged while its answer was made");

/// Statuses of a failed application (RFC 5861 §4).
const FAILURES: [StatusCode; 4] = [
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

/// The fields that are for this cache (RFC 9213); the first one that occurs counts.
const TARGETED: [&str; 2] = ["weir-cache-control", "cdn-cache-control"];

/// How long a page that turned out not to be stored is remembered, so that its requests do not wait for one another,
/// milliseconds.
const REMEMBERED: u64 = 10_000;

/// How long an error that names a lifetime is stored at most, milliseconds.
const LONGEST_ERROR: u64 = 10_000;
