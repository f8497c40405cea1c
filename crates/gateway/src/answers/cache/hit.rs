//! What a client gets of a stored page: all of it, parts, or 304; compressed as it accepts it.

use std::{collections::VecDeque, rc::Rc, sync::Arc};

use bytes::Bytes;
use http::{Method, StatusCode};
use weir_cache::{
    Asker, CacheStatus, Forward, conditions,
    conditions::{Serving, Stored},
    rules,
    store::Body as StoredBody,
};
use weir_http::{Body, Fields, Part, Reply};
use weir_http1::{Name, ParsedFields};
use weir_net::{FilePart, OpenFile};
use weir_observe::cache_use::CacheUse;
use weir_semantics::ranges::Span;

use super::{Cached, Fetch, PARTIAL, StoredPage, now};
use crate::{files, record::Record};

/// The answer for a request that gets a fresh page.
pub(super) fn fresh(
    record: &mut Record,
    cached: &Cached,
    stored: &Arc<StoredPage>,
    (fetch, now): (&Fetch, u64),
) -> Reply {
    let is_joined = fetch.waited > 0;
    record.cache = Some(match is_joined {
        true => CacheUse::Joined,
        false => CacheUse::Hit,
    });
    let status = CacheStatus {
        collapsed: is_joined,
        ..CacheStatus::hit(stored.head.life.ttl(now))
    };
    reply(record, cached, stored, (None, &status, now))
}

/// The answer for a request that gets an expired page, and why.
pub(super) fn stale(
    record: &mut Record,
    cached: &Cached,
    stored: &Arc<StoredPage>,
    why: &'static str,
) -> Reply {
    let now = now();
    record.cache = Some(CacheUse::Stale);
    let status = CacheStatus {
        detail: Some(why),
        ..CacheStatus::hit(stored.head.life.ttl(now))
    };
    reply(record, cached, stored, (None, &status, now))
}

/// The answer for a client that wants nothing but what is stored (RFC 9111 §5.2.1.7).
pub(super) fn nothing(record: &mut Record, cached: &Cached) -> Reply {
    record.cache = Some(CacheUse::Miss);
    let mut headers = Fields::default();
    say(
        &mut headers,
        cached,
        &CacheStatus::forward(Forward::UriMiss),
    );
    bare(StatusCode::GATEWAY_TIMEOUT, headers)
}

fn bare(status: StatusCode, headers: Fields) -> Reply {
    Reply {
        status,
        headers,
        body: Body::Empty,
    }
}

/// The answer with a stored page. `said`: the fields of the request, if those in the record were changed.
pub(super) fn reply(
    record: &mut Record,
    cached: &Cached,
    stored: &Arc<StoredPage>,
    (said, status, now): (Option<&ParsedFields>, &CacheStatus, u64),
) -> Reply {
    let Some(source) = Source::of(stored) else {
        return bare(StatusCode::SERVICE_UNAVAILABLE, Fields::default());
    };
    let head = &stored.head;
    let length = stored.body().len();
    let serving = {
        let fields = said.unwrap_or(&record.head.fields);
        match fields.has_any(&PARTIAL) {
            false => Serving::Whole,
            true => conditions::serve(
                rules::Request {
                    method: rules::Method::of(record.head.method.as_str().as_bytes()),
                    fields,
                    asker: Asker::Anybody,
                    has_body: false,
                },
                Stored {
                    status: head.status.as_u16(),
                    fields: &head.lines(),
                    length,
                    made: head.life.made,
                },
                now,
            ),
        }
    };
    let mut headers = match serving {
        Serving::NotModified => only(&head.fields, conditions::is_in_304),
        Serving::OutOfRange => Fields::default(),
        _ => head.fields.copy(ROOM),
    };
    let age = head.life.age(now) / 1000;
    headers.push_read(Name::Age, itoa::Buffer::new().format(age).as_bytes());
    say(&mut headers, cached, status);
    let (code, body) = match serving {
        Serving::Whole if record.head.method == Method::HEAD => {
            let mut digits = itoa::Buffer::new();
            headers.remove(Name::ContentLength);
            headers.push_read(Name::ContentLength, digits.format(length).as_bytes());
            (head.status, Body::Empty)
        }
        Serving::Whole => {
            if record.head.fields.has(Name::AcceptEncoding) {
                // It has, or keeps, the compressed form.
                record.rare_mut().page = Some(stored.clone());
            }
            (head.status, source.whole())
        }
        Serving::NotModified => (StatusCode::NOT_MODIFIED, Body::Empty),
        Serving::Part(span) => {
            files::say_range(&mut headers, span, length);
            let part = source.part(span);
            (
                StatusCode::PARTIAL_CONTENT,
                Body::Parts(VecDeque::from([part])),
            )
        }
        Serving::Parts(spans) => {
            let pieces = spans.iter().map(|span| (*span, source.part(*span)));
            let body = files::parts(&mut headers, pieces, (length, &files::boundary()));
            (StatusCode::PARTIAL_CONTENT, body)
        }
        Serving::OutOfRange => {
            files::say_no_range(&mut headers, length);
            (StatusCode::RANGE_NOT_SATISFIABLE, Body::Empty)
        }
    };
    Reply {
        status: code,
        headers,
        body,
    }
}

/// Adds the field that says what the cache did (RFC 9211).
pub(super) fn say(headers: &mut Fields, cached: &Cached, status: &CacheStatus) {
    if cached.said.cache_status {
        headers.push_read(CACHE_STATUS, format!("weir; {status}").as_bytes());
    }
}

/// Where the bytes of a stored page are.
enum Source<'p> {
    Memory(&'p Bytes),
    File(Rc<OpenFile>),
}

impl Source<'_> {
    /// `None`: descriptors are used up.
    fn of(stored: &StoredPage) -> Option<Source<'_>> {
        match stored.body() {
            StoredBody::Memory(bytes) => Some(Source::Memory(bytes)),
            StoredBody::File(body) => {
                let file = body.file().try_clone().ok()?;
                Some(Source::File(Rc::new(OpenFile::new(
                    file.into(),
                    body.len(),
                ))))
            }
        }
    }

    fn whole(&self) -> Body {
        match self {
            Source::Memory(bytes) if bytes.is_empty() => Body::Empty,
            Source::Memory(bytes) => Body::Bytes(Bytes::clone(bytes)),
            Source::File(file) => Body::Parts(VecDeque::from([self.part(Span::all(file.len()))])),
        }
    }

    fn part(&self, span: Span) -> Part {
        match self {
            Source::Memory(bytes) => {
                Part::Bytes(bytes.slice(span.start as usize..span.end as usize))
            }
            Source::File(file) => Part::File(FilePart::new(file.clone(), span.start, span.len())),
        }
    }
}

/// The fields whose names fulfil a condition.
fn only(fields: &Fields, keep: impl Fn(&[u8]) -> bool) -> Fields {
    let mut kept = Fields::with_capacity(fields.lines().len() + ROOM);
    for (name, value) in fields.iter().filter(|(name, _)| keep(name)) {
        kept.push_read((Name::of(name), name), value);
    }
    kept
}

/// RFC 9211
const CACHE_STATUS: &str = "Cache-Status";

/// Bytes for what is added to the fields of a stored page.
const ROOM: usize = 192;
