//! Compresses answers for clients that accept it (`compress`): what scripts answer, and files without a precompressed file
//! beside them.
//!
//! [`begin`] looks at an answer whose head is complete, right before it goes to the carrier, and decides. What happens then
//! depends on the body:
//!
//! | body | compressed | length |
//! |---|---|---|
//! | a file | once, by a thread; [`kept`] has the result for all clients | exact |
//! | up to [`IN_PLACE`] in memory | at once | exact |
//! | more in memory | by a thread, before the head is sent | exact |
//! | anything else | while it is sent ([`stream`]) | not known: chunks |
//!
//! If there is no memory or thread for the compression, if it fails, or if the answer does not become smaller, the
//! answer is sent as it is.

mod counts;
mod kept;
mod stream;
mod threads;

use std::{
    iter,
    os::fd::BorrowedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use tokio::sync::oneshot;
use weir_config::Settings;
use weir_http::{
    Body, BodyParts, Fields, Reply,
    compress::{self, ANSWER_MEMORY, Effort, Encoder, STREAM_MEMORY},
};
use weir_http1::Name;
use weir_observe::error_log::About;
use weir_semantics::{
    coding::{Accepted, Coding},
    compression,
};
use weir_sys::file;

pub(crate) use self::{
    counts::{CodingCounts, Compressed, Counts},
    kept::{KeptFiles, KnownForms},
    threads::Compressors,
};
use self::{
    kept::{Found, Kept},
    stream::{CompressedStream, Source},
    threads::Reserved,
};
use crate::{files::FileEntry, record::Record};

/// An answer, and the length of its body if only the head has it.
type Answered = (Reply, Option<u64>);

/// Work that must be finished before an answer can be sent.
#[derive(Debug)]
pub(crate) struct Waiting {
    coding: Coding,
    kind: Awaited,
}

#[derive(Debug)]
enum Awaited {
    /// The compressed body.
    Body(oneshot::Receiver<Option<Vec<u8>>>),
    /// The compressed form of the record's file.
    File(oneshot::Receiver<Option<Arc<Kept>>>),
}

/// Whose answer it is, for log lines.
#[derive(Debug, Clone, Copy)]
struct Whose {
    site: Option<&'static str>,
    request: u64,
}

/// Prepares the head for the worker: tags of compressed answers become those that the script has set, and what the client
/// accepts is noted before `set_request_headers` changes it.
pub(crate) fn set_request_headers(record: &mut Record, settings: &Settings) {
    for name in [Name::IfMatch, Name::IfNoneMatch, Name::IfRange] {
        let values: Vec<_> = record.head.fields.all(name).collect();
        if values.is_empty() {
            continue;
        }
        let Some((original, coding)) = compression::original_tags(&values.join(&b", "[..])) else {
            continue;
        };
        record.head.fields.set(name.as_str().as_bytes(), &original);
        match name {
            Name::IfNoneMatch => record.rare_mut().has_compressed = Some(coding),
            // The client has a part of the compressed bytes, which the script cannot continue.
            Name::IfRange => record.head.fields.remove(Name::Range.as_str().as_bytes()),
            _ => {}
        }
    }
    if !settings.set_request_headers.is_empty() && record.accepted().is_none() {
        record.rare_mut().accepted = Some(accepted(record));
    }
}

/// Compresses an answer if it may be and if the client accepts it; `Some`: after waiting for that.
pub(crate) fn begin(
    record: &mut Record,
    answered: &mut Answered,
    settings: &Settings,
) -> Option<Waiting> {
    let is_head = *record.method() == Method::HEAD;
    let (reply, length) = answered;
    if matches!(
        reply.status,
        StatusCode::NOT_MODIFIED | StatusCode::PARTIAL_CONTENT
    ) {
        as_whole(record, reply, settings);
        return None;
    }
    let size = match &reply.body {
        // The length of what GET would get.
        Body::Empty if is_head => length.or(reply.headers.length()),
        body => body.len().or(*length),
    };
    if !has_body(reply.status)
        || !is_worth_it(size, settings)
        || !is_changeable(&reply.headers, settings)
    {
        return None;
    }
    // `Vary` is sent also if this client gets the original: the answer depends on what the client accepts.
    vary(&mut reply.headers);
    let coding = wanted(record, settings)?;
    let file = record.file.clone().filter(|file| is_of(file, reply));
    let file = file.as_deref();
    if let Some(file) = file.filter(|file| file.is_settled())
        && record.gateway.kept_files.takes(file.identity().stat.size)
    {
        return begin_file(record, file, answered, coding);
    }
    let tag = Tag::of(file, coding);
    if is_head {
        encoded(&mut reply.headers, &tag, coding, None);
        *length = None;
        return None;
    }
    if let Some(form) = record
        .page()
        .and_then(|page| page.coded(coding as usize).cloned())
    {
        put(record, answered, (form, &tag), coding);
        return None;
    }
    match &reply.body {
        Body::Bytes(body) if body.len() <= IN_PLACE => {
            let compressed = compress::whole(coding, Effort::Answer, body).ok();
            finish(record, answered, (compressed, &tag), coding);
            None
        }
        Body::Bytes(body) => begin_body(record, body.clone(), coding),
        Body::Empty | Body::Tunnel(_) => None,
        Body::Parts(_) | Body::Stream(_) => {
            begin_stream(record, answered, (size, &tag), coding);
            None
        }
    }
}

impl Waiting {
    /// Ready when the answer can be sent, even if the compression has failed.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        record: &mut Record,
        answered: &mut Answered,
    ) -> Poll<()> {
        match &mut self.kind {
            Awaited::Body(told) => {
                let compressed = ready!(Pin::new(told).poll(cx)).ok().flatten();
                let file = record.file.as_deref();
                let tag = Tag::of(file.filter(|file| is_of(file, &answered.0)), self.coding);
                finish(record, answered, (compressed, &tag), self.coding);
            }
            Awaited::File(told) => {
                let kept = ready!(Pin::new(told).poll(cx)).ok().flatten();
                if let Some((file, kept)) = record.file.clone().zip(kept) {
                    file.forms.set(self.coding, &kept);
                    finish_file((record, &file), answered, &kept, self.coding);
                }
            }
        }
        Poll::Ready(())
    }
}

/// The answer is a file, whose compressed form is kept.
fn begin_file(
    record: &mut Record,
    file: &FileEntry,
    answered: &mut Answered,
    coding: Coding,
) -> Option<Waiting> {
    let gateway = record.gateway;
    let kept = match file.forms.get(coding) {
        Some(kept) => kept,
        None => {
            let identity = file.identity();
            let of = (&*identity.file, &identity.stat);
            match (gateway.kept_files).find(of, coding, &gateway.compressors) {
                Found::Kept(kept) => {
                    file.forms.set(coding, &kept);
                    kept
                }
                Found::Soon(told) => {
                    let kind = Awaited::File(told);
                    return Some(Waiting { coding, kind });
                }
                Found::Nothing => return None,
            }
        }
    };
    finish_file((record, file), answered, &kept, coding);
    None
}

fn finish_file(
    (record, file): (&mut Record, &FileEntry),
    (reply, length): &mut Answered,
    kept: &Arc<Kept>,
    coding: Coding,
) {
    let Some(bytes) = kept.bytes() else {
        return;
    };
    let tag = Tag::of(Some(file), coding);
    encoded(&mut reply.headers, &tag, coding, Some(bytes.len()));
    if !matches!(reply.body, Body::Empty) {
        record.rare_mut().compressed = Some(Compressed::whole(coding, file.identity().stat.size));
        reply.body = Body::Bytes(bytes);
    }
    *length = None;
}

/// The answer is in memory and too long to be compressed here.
fn begin_body(record: &Record, body: Bytes, coding: Coding) -> Option<Waiting> {
    let compressors = &record.gateway.compressors;
    let reserved = compressors.room(ANSWER_MEMORY + 2 * body.len(), false)?;
    let (tell, told) = oneshot::channel();
    let job = move || {
        // If the client has left, nobody needs the result.
        if !tell.is_closed() {
            let _ = tell.send(compress::whole(coding, Effort::Answer, &body).ok());
        }
        drop(reserved);
    };
    compressors.run(Box::new(job)).ok()?;
    let kind = Awaited::Body(told);
    Some(Waiting { coding, kind })
}

/// The answer is compressed while it is sent. `size`: the length of the original, if it is known.
fn begin_stream(
    record: &mut Record,
    (reply, length): &mut Answered,
    (size, tag): (Option<u64>, &Tag),
    coding: Coding,
) {
    let compressors = &record.gateway.compressors;
    let Some(reserved) = compressors.room(STREAM_MEMORY, true) else {
        return;
    };
    let Ok(encoder) = Encoder::new(coding, Effort::Stream, None) else {
        return;
    };
    let session: (Encoder, Reserved) = (encoder, reserved);
    let source = std::mem::replace(&mut reply.body, Body::Empty);
    let (compressed, counted) = Compressed::stream(coding);
    let source = Source {
        parts: BodyParts::new(source, size),
        counted,
    };
    let stream = CompressedStream::new(source, session, compressors, Whose::of(record));
    record.rare_mut().compressed = Some(compressed);
    reply.body = Body::Stream(Box::new(stream));
    encoded(&mut reply.headers, tag, coding, None);
    *length = None;
}

/// Puts the compressed body in place of the original if it is smaller. A stored page keeps it.
fn finish(
    record: &mut Record,
    answered: &mut Answered,
    (compressed, tag): (Option<Vec<u8>>, &Tag),
    coding: Coding,
) {
    if let Some(compressed) = compressed
        && (answered.0.body.len()).is_some_and(|original| (compressed.len() as u64) < original)
    {
        let compressed = Bytes::from(compressed.into_boxed_slice());
        if let Some((pages, page)) = record.gateway.pages.as_ref().zip(record.page()) {
            pages.keep_form(page, coding, compressed.clone());
        }
        put(record, answered, (compressed, tag), coding);
    }
}

/// Puts the compressed body in place of the original.
fn put(
    record: &mut Record,
    (reply, length): &mut Answered,
    (compressed, tag): (Bytes, &Tag),
    coding: Coding,
) {
    let original = reply.body.len().unwrap_or(0);
    record.rare_mut().compressed = Some(Compressed::whole(coding, original));
    encoded(&mut reply.headers, tag, coding, Some(compressed.len()));
    reply.body = Body::Bytes(compressed);
    *length = None;
}

/// How the tag of an answer changes.
enum Tag {
    /// The tag of a file names the coding.
    Suffixed(Vec<u8>),
    /// Others are marked.
    Marked,
}

impl Tag {
    fn of(file: Option<&FileEntry>, coding: Coding) -> Tag {
        match file {
            Some(file) => {
                let tag = file.identity().etag.as_bytes();
                Tag::Suffixed(compression::suffixed_tag(tag, coding))
            }
            None => Tag::Marked,
        }
    }
}

/// Changes the head as compression needs it. `length`: of the compressed body, if it is known.
fn encoded(headers: &mut Fields, tag: &Tag, coding: Coding, length: Option<usize>) {
    headers.remove(Name::ContentLength);
    // Ranges would refer to the original.
    headers.remove(Name::AcceptRanges);
    headers.push_read(Name::ContentEncoding, coding.name().as_bytes());
    if let Some(length) = length {
        headers.push_read(Name::ContentLength, length.to_string().as_bytes());
    }
    match tag {
        Tag::Suffixed(tag) => {
            headers.remove(Name::Etag);
            headers.push_read(Name::Etag, tag);
        }
        Tag::Marked => mark(headers, coding),
    }
}

/// Marks the tag of a script's answer, if it is strong.
fn mark(headers: &mut Fields, coding: Coding) {
    let tag = headers.get(Name::Etag);
    if let Some(tag) = tag.and_then(|tag| compression::marked_tag(tag, coding)) {
        headers.remove(Name::Etag);
        headers.push_read(Name::Etag, &tag);
    }
}

/// A 304, and a part of a file, have the fields that the 200 would have (RFC 9110 §15.3.7, §15.4.5).
fn as_whole(record: &Record, reply: &mut Reply, settings: &Settings) {
    if let Some(file) = &record.file {
        let identity = file.identity();
        if is_worth_it(Some(identity.stat.size), settings)
            && is_changeable(&identity.headers, settings)
        {
            vary(&mut reply.headers);
        }
    } else if record.script.is_some() && reply.status == StatusCode::NOT_MODIFIED {
        // Its type is not known here.
        vary(&mut reply.headers);
        // The client has the compressed answer: the tag that it has sent says so.
        if let Some(coding) = record.rare.as_ref().and_then(|rare| rare.has_compressed) {
            mark(&mut reply.headers, coding);
        }
    }
}

/// Whether answers with this status have a body that is all there is.
fn has_body(status: StatusCode) -> bool {
    !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT
                | StatusCode::RESET_CONTENT
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::IM_USED
                | StatusCode::NOT_MODIFIED
        )
}

fn is_worth_it(size: Option<u64>, settings: &Settings) -> bool {
    size.is_none_or(|size| size > 0 && size >= settings.compress_min_size)
}

/// Whether the type is one of those that are compressed, and nothing in the head forbids a change of the bytes.
fn is_changeable(headers: &Fields, settings: &Settings) -> bool {
    let types = settings.compress_types.iter().map(String::as_str);
    let is_fixed = |name: &[u8]| {
        let mut fixed = compression::UNCHANGEABLE.iter();
        fixed.any(|fixed| name.eq_ignore_ascii_case(fixed.as_bytes()))
    };
    (headers.get(Name::ContentType)).is_some_and(|kind| compression::is_listed(kind, types))
        && !headers.iter().any(|(name, _)| is_fixed(name))
        && !compression::is_no_transform(headers.all(&Name::CacheControl))
}

/// Notes in the answer that it depends on what the client accepts (RFC 9110 §12.5.5).
fn vary(headers: &mut Fields) {
    if !compression::varies_by_coding(headers.all(&Name::Vary)) {
        headers.append_line(Name::Vary, b"Vary: Accept-Encoding\r\n");
    }
}

/// The coding for this client; `None`: the original.
fn wanted(record: &Record, settings: &Settings) -> Option<Coding> {
    let head = &record.head;
    let fields = &head.fields;
    // A client of HTTP/1.0 knows no chunks, and often no coding, even if its proxy passes on `Accept-Encoding`.
    if head.version < Version::HTTP_11 {
        return None;
    }
    // Another site can let a browser send requests in the visitor's name, and choose a text that the answer repeats.
    // From the length of the compressed answer it learns whether the text also occurs elsewhere in the answer (BREACH).
    let is_cross_site = || {
        let site = head.field("sec-fetch-site");
        site.is_some_and(|site| site.eq_ignore_ascii_case(b"cross-site"))
    };
    if !settings.compress_cross_site && is_cross_site() && names_visitor(record) {
        return None;
    }
    if compression::is_no_transform(fields.all(Name::CacheControl)) {
        return None;
    }
    accepted(record).choose(ORDER, |_| true)
}

/// Whether a browser has said who its visitor is, without being told to by a script: with cookies, by a scheme of
/// authentication that browsers know, or with a certificate.
fn names_visitor(record: &Record) -> bool {
    let fields = &record.head.fields;
    let is_by_browser = |value: &[u8]| {
        let scheme = value.split(u8::is_ascii_whitespace).next();
        let scheme = scheme.unwrap_or_default();
        let is = |known: &&str| scheme.eq_ignore_ascii_case(known.as_bytes());
        SCHEMES_OF_BROWSERS.iter().any(is)
    };
    let tls = record.endpoints.tls.as_ref();
    fields.has(Name::Cookie)
        || fields.all(Name::Authorization).any(is_by_browser)
        || tls.is_some_and(|tls| tls.client.is_some())
}

/// What the client itself accepts. `set_request_headers` does not change it.
pub(crate) fn accepted(record: &Record) -> Accepted {
    let before = record.accepted();
    before.unwrap_or_else(|| Accepted::of(record.head.fields.all(Name::AcceptEncoding)))
}

/// Whether the answer has the whole file, without a coding.
fn is_of(file: &FileEntry, reply: &Reply) -> bool {
    reply.headers.get(Name::Etag) == Some(file.identity().etag.as_bytes())
}

/// Reads a part of a file; may wait for the disk. `None`: it cannot be read, or is shorter.
fn read_file(file: BorrowedFd<'_>, offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).ok()?;
    bytes.extend(iter::repeat_n(0, length));
    let mut filled = 0;
    while filled < length {
        match file::read_at(file, &mut bytes[filled..], offset + filled as u64) {
            Ok(0) | Err(_) => return None,
            Ok(count) => filled += count,
        }
    }
    Some(bytes)
}

impl Whose {
    fn of(record: &Record) -> Whose {
        let sites = &record.gateway.config.sites;
        let site = record.site.and_then(|site| sites.get(site));
        Whose {
            site: site.map(|site| site.name.as_str()),
            request: record.id,
        }
    }

    fn about(&self) -> About<'static> {
        About {
            site: self.site,
            request: Some(self.request),
            ..About::default()
        }
    }
}

/// If a client accepts several equally, the first is used: zstd needs the least CPU for its effect.
const ORDER: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

/// Schemes for which browsers ask the visitor or the system, and send the answer by themselves from then on. Tokens (`Bearer`) come from
/// scripts, which another site cannot have sent unless the site allows it.
const SCHEMES_OF_BROWSERS: [&str; 9] = [
    "Basic",
    "Digest",
    "HOBA",
    "Kerberos",
    "Mutual",
    "Negotiate",
    "NTLM",
    "SCRAM-SHA-1",
    "SCRAM-SHA-256",
];

/// Bytes that a reactor compresses itself: in a quarter of a millisecond, about, with the slowest coding.
const IN_PLACE: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use weir_config::Environment;

    use super::*;

    #[test]
    fn the_usual_types_are_the_same_for_answers_and_for_calls() {
        let text = "[listen.web]\naddress = \"127.0.0.1:80\"\n[site.a]\nroot = \"/\"\n";
        let environment = Environment {
            folder: "/".into(),
            cores: 1,
            memory: 1 << 30,
            open_files: 1 << 16,
        };
        let read = weir_config::read("a", text, &environment);
        let config = read.unwrap_or_else(|wrong| panic!("{wrong}")).config;
        let types = &config.sites[0].settings.compress_types;
        assert_eq!(*types, compression::TEXT_TYPES);
    }
}
