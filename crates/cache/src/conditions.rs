//! What a client gets of a whole stored answer: all of it, parts, or 304 (RFC 9111 §4.3.2, RFC 9110 §13 and §14).

use weir_semantics::{
    conditions::{Condition, Outcome, Validators, date, evaluate, range_applies},
    ranges::{self, Ranges, Span},
};

use super::{
    fields::Fields,
    rules::{Method, Request},
    update::OF_THE_BODY,
};

/// What a client gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Serving {
    /// All of it; for HEAD without the body.
    Whole,
    /// 304: the client has it.
    NotModified,
    /// 206: one part.
    Part(Span),
    /// 206: several parts, as `multipart/byteranges`.
    Parts(Vec<Span>),
    /// 416: no part that it wants is there.
    OutOfRange,
}

/// A stored answer.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'s, F> {
    /// Its status.
    pub status: u16,
    /// Its fields.
    pub fields: &'s F,
    /// Bytes of its body.
    pub length: u64,
    /// When it was made ([`super::Life::made`]): what stands for a missing `Last-Modified`.
    pub made: u64,
}

/// What a request gets of a stored answer that may be used for it.
#[must_use]
pub fn serve<R: Fields, F: Fields>(
    request: Request<'_, R>,
    stored: Stored<'_, F>,
    now: u64,
) -> Serving {
    if stored.status != 200 {
        return Serving::Whole;
    }
    if is_had(request.fields, &stored) {
        return Serving::NotModified;
    }
    let Some(range) = request.fields.first("range") else {
        return Serving::Whole;
    };
    let strong = Validators {
        etag: etag(stored.fields, false),
        modified: date(stored.fields.values("last-modified")),
    };
    let applies = range_applies(strong, request.fields.values("if-range"), now / 1000);
    if request.method != Method::Get || !applies || request.fields.values("range").count() > 1 {
        return Serving::Whole;
    }
    match ranges::parse(range, stored.length) {
        Ranges::All => Serving::Whole,
        Ranges::None => Serving::OutOfRange,
        Ranges::One(span) => Serving::Part(span),
        Ranges::Many(spans) => Serving::Parts(spans),
    }
}

/// Whether a field of a stored answer is sent with a 304 (RFC 9110 §15.4.5): all but those that describe the body.
#[must_use]
pub fn is_in_304(name: &[u8]) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    !is("content-type") && !OF_THE_BODY.iter().any(|other| is(other))
}

/// The conditions by which the origin is asked if a stored answer is still valid (RFC 9111 §4.3.1), in place of those of the client
/// ([`CLIENTS`]).
pub fn validation<F: Fields>(stored: &F) -> impl Iterator<Item = (&'static str, &[u8])> {
    let conditions = [
        ("if-none-match", "etag"),
        ("if-modified-since", "last-modified"),
    ];
    conditions
        .into_iter()
        .filter_map(|(condition, validator)| Some((condition, stored.first(validator)?)))
}

/// The conditions of a client that a cache evaluates itself. They are not sent with a request whose answer is to be stored: it must be a whole one.
pub const CLIENTS: [&str; 2] = ["if-none-match", "if-modified-since"];

/// Whether the client says that it has it.
fn is_had<R: Fields, F: Fields>(request: &R, stored: &Stored<'_, F>) -> bool {
    if !CLIENTS.iter().any(|name| request.has(name)) {
        return false;
    }
    let modified = ["last-modified", "date"]
        .into_iter()
        .find(|name| stored.fields.has(name))
        .map_or(Some(stored.made.div_ceil(1000)), |name| {
            date(stored.fields.values(name))
        });
    let own = Validators {
        etag: etag(stored.fields, true),
        modified,
    };
    // The other conditions do not refer to the client's copy.
    let outcome = evaluate(own, |condition| {
        let name = match condition {
            Condition::IfNoneMatch => Some(CLIENTS[0]),
            Condition::IfModifiedSince => Some(CLIENTS[1]),
            Condition::IfMatch | Condition::IfUnmodifiedSince => None,
        };
        let values = name.map(|name| request.values(name));
        values.into_iter().flatten()
    });
    outcome == Outcome::NotModified
}

/// The entity tag with its quotes and without its weak mark. Empty: there is none, or, if `is_weak_enough` is false, it is weak.
fn etag(fields: &impl Fields, is_weak_enough: bool) -> &[u8] {
    let tag = fields.first("etag").unwrap_or_default().trim_ascii();
    match tag.strip_prefix(b"W/") {
        Some(opaque) if is_weak_enough => opaque,
        Some(_) => b"",
        None => tag,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{fields::Lines, rules::Asker};

    const MODIFIED: &str = "Sun, 22 Nov 2026 10:00:00 GMT";
    const BEFORE: &str = "Sun, 22 Nov 2026 09:59:59 GMT";
    const LATER: u64 = 1_800_000_000_000;

    fn served(method: Method, request: &str, status: u16, stored: &str) -> Serving {
        let fields = Lines(request.as_bytes());
        let request = Request {
            method,
            fields: &fields,
            asker: Asker::Anybody,
            has_body: false,
        };
        let stored = Stored {
            status,
            fields: &Lines(stored.as_bytes()),
            length: 10,
            made: LATER - 5000,
        };
        serve(request, stored, LATER)
    }

    fn get(request: &str, stored: &str) -> Serving {
        served(
            Method::Get,
            &format!("{request}\r\n"),
            200,
            &format!("{stored}\r\n"),
        )
    }

    #[test]
    fn who_has_it_is_told_so() {
        let dated = format!("last-modified: {MODIFIED}");
        for (request, stored) in [
            ("if-none-match: \"1\"", "etag: \"1\""),
            ("if-none-match: W/\"1\"", "etag: \"1\""),
            ("if-none-match: \"0\", \"1\"", "etag: W/\"1\""),
            ("if-none-match: *", "x: y"),
            (&format!("if-modified-since: {MODIFIED}"), &dated),
            (
                &format!("if-modified-since: {MODIFIED}"),
                &format!("date: {MODIFIED}"),
            ),
            ("if-modified-since: Sun, 22 Nov 2099 10:00:00 GMT", "x: y"),
            (
                &format!("if-modified-since: {BEFORE}\r\nif-none-match: \"1\""),
                &format!("{dated}\r\netag: \"1\""),
            ),
        ] {
            assert_eq!(get(request, stored), Serving::NotModified, "{request}");
        }
        for (request, stored) in [
            ("if-none-match: \"2\"", "etag: \"1\""),
            (&format!("if-modified-since: {BEFORE}"), &*dated),
            (&format!("if-modified-since: {BEFORE}"), "x: y"),
            (
                &format!("if-modified-since: {MODIFIED}\r\nif-none-match: \"2\""),
                &format!("{dated}\r\netag: \"1\""),
            ),
        ] {
            assert_eq!(get(request, stored), Serving::Whole, "{request}");
        }
        let gone = served(Method::Get, "if-none-match: *\r\n", 404, "");
        assert_eq!(gone, Serving::Whole);
    }

    #[test]
    fn parts_are_cut_from_the_whole() {
        let part = |start, end| Serving::Part(Span { start, end });
        let tag = "etag: \"1\"";
        for (request, stored, expected) in [
            ("range: bytes=0-1", tag, part(0, 2)),
            ("range: bytes=1-", tag, part(1, 10)),
            ("range: bytes=-1", tag, part(9, 10)),
            ("range: bytes=10-", tag, Serving::OutOfRange),
            ("range: pages=1", tag, Serving::Whole),
            ("range: bytes=0-1\r\nrange: bytes=2-3", tag, Serving::Whole),
            ("range: bytes=0-1\r\nif-range: \"1\"", tag, part(0, 2)),
            ("range: bytes=0-1\r\nif-range: \"2\"", tag, Serving::Whole),
            (
                "range: bytes=0-1\r\nif-range: W/\"1\"",
                "etag: W/\"1\"",
                Serving::Whole,
            ),
            (
                "range: bytes=0-1\r\nif-none-match: \"1\"",
                tag,
                Serving::NotModified,
            ),
        ] {
            assert_eq!(get(request, stored), expected, "{request}");
        }
        let range = "range: bytes=0-1\r\n";
        assert_eq!(served(Method::Head, range, 200, ""), Serving::Whole);
        assert_eq!(served(Method::Get, range, 404, ""), Serving::Whole);
    }

    #[test]
    fn the_origin_is_asked_by_what_the_answer_has() {
        let stored = Lines(b"ETag: W/\"1\"\r\nlast-modified: x\r\n");
        let conditions: Vec<_> = validation(&stored).collect();
        assert_eq!(
            conditions,
            [
                ("if-none-match", &b"W/\"1\""[..]),
                ("if-modified-since", b"x")
            ]
        );
        assert!(is_in_304(b"ETag") && !is_in_304(b"Content-Type") && !is_in_304(b"content-length"));
    }

    proptest! {
        #[test]
        fn any_request_is_taken(request in "[ -~\r\n]{0,60}", stored in "[ -~\r\n]{0,60}") {
            if let Serving::Part(span) = served(Method::Get, &request, 200, &stored) {
                prop_assert!(span.start < span.end && span.end <= 10);
            }
        }
    }
}
