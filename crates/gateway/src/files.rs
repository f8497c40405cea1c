//! Static files: from an open file to the answer of RFC 9110.
//!
//! A [`LoadedFile`] is a file as it was when it was opened, with the precompressed files beside it, and its bytes if it
//! is small; threads that may wait for the disk can make one. The reactor that uses it makes a [`FileEntry`] of it,
//! with all parts of its answer that do not depend on the request: headers and validators. [`serve`] chooses from these
//! for a request: representation (`Accept-Encoding`), conditions, ranges. `compression` compresses answers on their way
//! to the client.
//!
//! The open descriptor keeps the same file even if its name is changed to another file. If the file shrinks while it
//! is sent, the sender cuts the connection.
//!
//! A body is made of parts ([`weir_http::Part`]): bytes in memory, or a range of an open file, which sendfile(2) sends. Before that,
//! `weir_sys::file::is_cached` asks whether the kernel has the piece in memory; if not, a blocking thread reads it in, and the reactor
//! serves other connections meanwhile. Files of up to 64 KB may be kept in memory, for each reactor; one stat(2) for each request tells whether
//! the file is still the same. If a root is on a network file system or FUSE (`weir_sys::file::is_remote`), nothing is kept, and each lookup
//! runs on a blocking thread.

mod encoding;
mod entry;
mod types;

pub use entry::{FileEntry, LoadedFile, Representation, Source};
pub use types::Presentation;

use std::{
    collections::VecDeque,
    time::{SystemTime, UNIX_EPOCH},
};

use http::{Method, StatusCode};
use weir_http::{Body, Fields, Part, Reply};
use weir_http1::Name;
use weir_interfaces::secret;
use weir_net::FilePart;

use weir_semantics::{
    coding::Accepted,
    compression,
    conditions::{self, Condition, Outcome, Validators},
    ranges::{self, Ranges, Span},
};

/// Answers with a file: for GET, HEAD, or, if a script names the file, for any method. Conditions and ranges apply to
/// GET and HEAD only: a 304 or 412 cannot undo what a script has done (RFC 9110 §13.2.1).
///
/// The headers are complete, including `Content-Length`, even if the body is empty because of HEAD. A 304 has the
/// headers of RFC 9110 §15.4.5. 412 and 416 have no body, so that an error page can be added.
pub fn serve(entry: &FileEntry, method: &Method, headers: &weir_http1::ParsedFields) -> Reply {
    serve_as(entry, method, headers, Forms::BESIDE)
}

/// Which forms of a file may be its answer, beside the file itself.
#[derive(Debug, Clone, Copy)]
pub struct Forms<'t> {
    /// Precompressed files.
    pub beside: bool,
    /// Forms that weir makes, if the client accepts them. weir makes them later, from the answer. Here only their tags
    /// matter.
    pub made: Option<Accepted>,
    /// Its media type, if not that of its name: each part of several ranges says it.
    pub content_type: Option<&'t [u8]>,
}

impl Forms<'_> {
    /// Precompressed files alone.
    pub const BESIDE: Forms<'static> = Forms {
        beside: true,
        made: None,
        content_type: None,
    };
}

/// As [`serve`], in one of these forms.
pub fn serve_as(
    entry: &FileEntry,
    method: &Method,
    headers: &weir_http1::ParsedFields,
    forms: Forms<'_>,
) -> Reply {
    let chosen = match forms.beside {
        true => entry.choose(headers),
        false => entry.identity(),
    };
    if matches!(*method, Method::GET | Method::HEAD) && headers.has_any(&CONDITIONS) {
        let made = forms.made.filter(|_| chosen.coding.is_none());
        match conditions_of(chosen, headers, made) {
            (Outcome::Proceed, _) => {}
            (Outcome::NotModified, tag) => return not_modified(chosen, tag),
            (Outcome::Failed, _) => return bare(StatusCode::PRECONDITION_FAILED),
        }
    }
    let fields = || {
        let mut fields = chosen.headers.copy(ROOM);
        if let Some(content_type) = forms.content_type {
            // An invalid header is left out.
            let _ = fields.insert(Name::ContentType, content_type);
        }
        fields
    };
    // RFC 9110 §14.2: Range is for GET only.
    if *method == Method::GET
        && let Some(ranges) = requested(chosen, headers)
    {
        match ranges {
            Ranges::All => {}
            Ranges::None => return unsatisfiable(chosen),
            Ranges::One(span) => return partial(chosen, fields(), span),
            Ranges::Many(spans) => return multipart(chosen, fields(), &spans, &boundary()),
        }
    }
    let body = match *method {
        Method::HEAD => Body::Empty,
        _ => whole(chosen),
    };
    Reply {
        status: StatusCode::OK,
        headers: fields(),
        body,
    }
}

/// The fields with conditions for a file.
const CONDITIONS: [Name; 4] = [
    Name::IfMatch,
    Name::IfNoneMatch,
    Name::IfModifiedSince,
    Name::IfUnmodifiedSince,
];

/// The result of the request's conditions, and the tag for the answer if that is not the file's own tag. If the client
/// has a form that `made` accepts, it has the present file, even if it would get another form this time.
fn conditions_of(
    chosen: &Representation,
    headers: &weir_http1::ParsedFields,
    made: Option<Accepted>,
) -> (Outcome, Option<Vec<u8>>) {
    let evaluate = |validators: Validators<'_>| {
        conditions::evaluate(validators, |condition| {
            headers.all(match condition {
                Condition::IfMatch => Name::IfMatch,
                Condition::IfNoneMatch => Name::IfNoneMatch,
                Condition::IfModifiedSince => Name::IfModifiedSince,
                Condition::IfUnmodifiedSince => Name::IfUnmodifiedSince,
            })
        })
    };
    let mut outcome = evaluate(chosen.validators());
    let has_tags = headers.has(Name::IfMatch) || headers.has(Name::IfNoneMatch);
    let Some(accepted) = made.filter(|_| has_tags && outcome != Outcome::NotModified) else {
        return (outcome, None);
    };
    for coding in encoding::ALL {
        if !accepted.accepts(coding) {
            continue;
        }
        let etag = compression::suffixed_tag(chosen.etag.as_bytes(), coding);
        let validators = Validators {
            etag: &etag,
            ..chosen.validators()
        };
        match evaluate(validators) {
            Outcome::NotModified => return (Outcome::NotModified, Some(etag)),
            Outcome::Proceed => outcome = Outcome::Proceed,
            Outcome::Failed => {}
        }
    }
    (outcome, None)
}

/// The ranges that a GET requests; `None` without a `Range` header.
fn requested(chosen: &Representation, headers: &weir_http1::ParsedFields) -> Option<Ranges> {
    let mut values = headers.all(Name::Range);
    let (value, repeated) = (values.next()?, values.next());
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let if_range = headers.all(Name::IfRange);
    if repeated.is_some()
        || !conditions::range_applies(chosen.validators(), if_range, now.as_secs())
    {
        return Some(Ranges::All);
    }
    Some(ranges::parse(value, chosen.stat.size))
}

/// A boundary that no file can predict.
pub(crate) fn boundary() -> String {
    format!("weir-{:016x}", secret::random())
}

fn whole(chosen: &Representation) -> Body {
    match &chosen.content {
        _ if chosen.stat.size == 0 => Body::Empty,
        Some(content) => Body::Bytes(content.clone()),
        None => Body::Parts(VecDeque::from([piece(chosen, Span::all(chosen.stat.size))])),
    }
}

fn piece(chosen: &Representation, span: Span) -> Part {
    match &chosen.content {
        Some(content) => Part::Bytes(content.slice(span.start as usize..span.end as usize)),
        None => Part::File(FilePart::new(chosen.file.clone(), span.start, span.len())),
    }
}

/// RFC 9110 §15.3.7.1
fn partial(chosen: &Representation, mut headers: Fields, span: Span) -> Reply {
    say_range(&mut headers, span, chosen.stat.size);
    let body = match piece(chosen, span) {
        Part::Bytes(bytes) => Body::Bytes(bytes),
        part => Body::Parts(VecDeque::from([part])),
    };
    Reply {
        status: StatusCode::PARTIAL_CONTENT,
        headers,
        body,
    }
}

/// RFC 9110 §15.3.7.2
fn multipart(
    chosen: &Representation,
    mut headers: Fields,
    spans: &[Span],
    boundary: &str,
) -> Reply {
    let pieces = spans.iter().map(|span| (*span, piece(chosen, *span)));
    let body = parts(&mut headers, pieces, (chosen.stat.size, boundary));
    Reply {
        status: StatusCode::PARTIAL_CONTENT,
        headers,
        body,
    }
}

/// Says in the head of an answer which part of `size` bytes it has.
pub(crate) fn say_range(headers: &mut Fields, span: Span, size: u64) {
    replace(headers, Name::ContentRange, &content_range(span, size));
    replace(headers, Name::ContentLength, &span.len().to_string());
}

/// Says in the head of an answer how many bytes there are instead of those that were requested.
pub(crate) fn say_no_range(headers: &mut Fields, size: u64) {
    replace(headers, Name::ContentRange, &format!("bytes */{size}"));
}

/// The body of an answer with several parts of `size` bytes, and its type in the head.
pub(crate) fn parts(
    headers: &mut Fields,
    pieces: impl Iterator<Item = (Span, Part)>,
    (size, boundary): (u64, &str),
) -> Body {
    let content_type = headers.get(Name::ContentType).unwrap_or_default();
    let mut parts = VecDeque::new();
    let mut len = 0;
    for (span, piece) in pieces {
        let mut head = Vec::with_capacity(160);
        if !parts.is_empty() {
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(format!("--{boundary}\r\nContent-Type: ").as_bytes());
        head.extend_from_slice(content_type);
        head.extend_from_slice(b"\r\nContent-Range: ");
        head.extend_from_slice(content_range(span, size).as_bytes());
        head.extend_from_slice(b"\r\n\r\n");
        len += head.len() as u64 + span.len();
        parts.push_back(Part::Bytes(head.into()));
        parts.push_back(piece);
    }
    let end = format!("\r\n--{boundary}--\r\n");
    len += end.len() as u64;
    parts.push_back(Part::Bytes(end.into()));
    let content_type = format!("multipart/byteranges; boundary={boundary}");
    replace(headers, Name::ContentType, &content_type);
    replace(headers, Name::ContentLength, &len.to_string());
    Body::Parts(parts)
}

fn content_range(span: Span, size: u64) -> String {
    format!("bytes {}-{}/{size}", span.start, span.end - 1)
}

/// Bytes for the headers that are added to those of a file.
const ROOM: usize = 64;

/// Sets a field to a text of our own.
fn replace(headers: &mut Fields, name: Name, value: &str) {
    let is_set = headers.insert(name, value.as_bytes());
    debug_assert!(is_set.is_ok(), "{value:?}");
}

/// RFC 9110 §15.5.17
fn unsatisfiable(chosen: &Representation) -> Reply {
    let mut reply = bare(StatusCode::RANGE_NOT_SATISFIABLE);
    say_no_range(&mut reply.headers, chosen.stat.size);
    reply
}

/// `tag`: what the client has, if that is not the form which was chosen.
fn not_modified(chosen: &Representation, tag: Option<Vec<u8>>) -> Reply {
    let mut headers = chosen.headers.copy(ROOM);
    if let Some(tag) = tag {
        headers.remove(Name::Etag);
        headers.push_read(Name::Etag, &tag);
    }
    for name in [
        Name::ContentType,
        Name::ContentLength,
        Name::ContentEncoding,
        Name::AcceptRanges,
    ] {
        headers.remove(name);
    }
    Reply {
        status: StatusCode::NOT_MODIFIED,
        headers,
        body: Body::Empty,
    }
}

fn bare(status: StatusCode) -> Reply {
    Reply {
        status,
        headers: Fields::default(),
        body: Body::Empty,
    }
}

#[cfg(test)]
mod tests;
