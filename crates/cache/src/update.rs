//! Which fields of an answer are stored, what later answers change in them, and which stored answers a write outdates.

use std::time::{Duration, UNIX_EPOCH};

use http::Uri;
use weir_semantics::fields::elements;

use super::{
    directives::Directives,
    fields::{FieldList, Fields, FieldsMut, joined},
    rules::{Answer, Asker, Method, Policy, Verdict, judge_answer},
    status::Reason,
};

/// Which fields of an answer are stored (RFC 9111 §3.1): those that are about the answer, not about the connection, this transfer or one client.
#[derive(Debug)]
pub struct Storable {
    /// Names that the answer itself excepts, in lower case.
    excepted: Vec<Box<[u8]>>,
}

impl Storable {
    /// The fields of that answer.
    #[must_use]
    pub fn of(answer: &impl Fields) -> Storable {
        let mut excepted = Directives::of(answer).limited;
        let listed = answer.values("connection").flat_map(elements);
        excepted.extend(listed.map(|name| name.to_ascii_lowercase().into()));
        Storable { excepted }
    }

    /// Whether a field of that name is stored.
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        !NOT_STORED.iter().any(|other| is(other.as_bytes()))
            && !self.excepted.iter().any(|other| is(other))
    }

    /// Removes the fields that are not stored.
    pub fn strip(&self, fields: &mut impl FieldsMut) {
        fields.retain(|name| self.has(name));
    }
}

/// The fields of an answer as they are stored.
#[must_use]
pub fn stored_fields(answer: &impl Fields) -> FieldList {
    let storable = Storable::of(answer);
    FieldList::of(answer, |name| storable.has(name))
}

/// Whether a 304 is about the stored answer: its entity tag, if it has one, is the same (RFC 9111 §4.3.4).
#[must_use]
pub fn is_meant(stored: &impl Fields, not_modified: &impl Fields) -> bool {
    let tag = |tag: &[u8]| {
        let tag = tag.trim_ascii();
        tag.strip_prefix(b"W/").unwrap_or(tag).to_vec()
    };
    match (not_modified.first("etag"), stored.first("etag")) {
        (Some(new), Some(own)) => tag(new) == tag(own),
        (Some(_), None) => false,
        (None, _) => true,
    }
}

/// Updates the fields of a stored answer with those of a 304, or of the answer to a HEAD (RFC 9111 §3.2), and judges it again.
///
/// # Errors
/// Why it may not be stored any longer. The client of this request may still get it, with the updated fields.
pub fn freshen<S: FieldsMut, A: Fields>(
    stored: &mut S,
    status: u16,
    with: Answer<'_, A>,
    asker: Asker,
    policy: &Policy<'_>,
) -> Result<Verdict, Reason> {
    merge(stored, with.fields);
    if !with.fields.has("date") {
        stored.set("date", http_date(with.answered).as_bytes());
    }
    // Its age counts for the judgement, and is not stored.
    stored.remove("age");
    for age in with.fields.values("age") {
        stored.append(b"age", age);
    }
    let answer = Answer {
        status,
        fields: &*stored,
        asked: with.asked,
        answered: with.answered,
    };
    let verdict = judge_answer(asker, answer, policy);
    stored.remove("age");
    verdict
}

/// A date as in `Date` (RFC 9110 §5.6.7), for an answer that has none. `at` is in milliseconds since 1970.
#[must_use]
pub fn http_date(at: u64) -> String {
    // Later ones have five digits in the year.
    const LAST: u64 = 253_402_300_799;
    let seconds = Duration::from_secs((at / 1000).min(LAST));
    httpdate::fmt_http_date(UNIX_EPOCH + seconds)
}

/// What the answer to a HEAD says about a stored answer to GET (RFC 9111 §4.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadSays {
    /// The stored answer is still the present one: [`freshen`].
    Same,
    /// The stored answer is outdated.
    Other,
    /// Nothing.
    Nothing,
}

/// Compares the answer to a HEAD with a stored answer of 200, whose body has so many bytes.
#[must_use]
pub fn head_says(stored: &impl Fields, length: u64, status: u16, head: &impl Fields) -> HeadSays {
    if status != 200 {
        return HeadSays::Nothing;
    }
    let length = length.to_string();
    let is_same = |name: &str, own: Option<&[u8]>| match (joined(head, name), own) {
        (Some(new), Some(own)) => new == own,
        (Some(_), None) => false,
        (None, _) => true,
    };
    let own = |name| joined(stored, name);
    let same = is_same("content-length", Some(length.as_bytes()))
        && ["etag", "last-modified", "content-encoding"]
            .iter()
            .all(|name| is_same(name, own(name).as_deref()));
    match same {
        true => HeadSays::Same,
        false => HeadSays::Other,
    }
}

/// Whether an answer means that what is stored for its URL is outdated (RFC 9111 §4.4).
#[must_use]
pub fn outdates(method: Method, status: u16) -> bool {
    method == Method::Unsafe && (200..400).contains(&status)
}

/// Paths and queries of the same origin that the answer to a write names, so that what is stored for them is outdated, too (RFC 9111 §4.4).
/// `origin` is a scheme, host and, if it is not the usual one, port: `https://shop.example`.
pub fn outdated<'f>(answer: &'f impl Fields, origin: &'f str) -> impl Iterator<Item = String> + 'f {
    let names = ["location", "content-location"];
    names.into_iter().filter_map(move |name| {
        let uri = Uri::try_from(answer.first(name)?).ok()?;
        let path = uri.path_and_query()?.as_str();
        let is_here = match (uri.scheme_str(), uri.authority()) {
            (None, None) => path.starts_with('/') && !path.starts_with("//"),
            (Some(scheme), Some(authority)) => {
                format!("{scheme}://{authority}").eq_ignore_ascii_case(origin)
            }
            _ => false,
        };
        is_here.then(|| path.to_owned())
    })
}

fn merge(stored: &mut impl FieldsMut, with: &impl Fields) {
    let storable = Storable::of(with);
    let mut done: Vec<&[u8]> = Vec::new();
    for (name, value) in with.all() {
        let is_done = done.iter().any(|other| name.eq_ignore_ascii_case(other));
        if is_done || !storable.has(name) || !is_updated(stored, name, value) {
            continue;
        }
        done.push(name);
        stored.retain(|own| !own.eq_ignore_ascii_case(name));
        let same = with
            .all()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name));
        for (_, value) in same {
            stored.append(name, value);
        }
    }
}

/// Whether a field of a 304 replaces those of the stored answer.
fn is_updated(stored: &impl Fields, name: &[u8], value: &[u8]) -> bool {
    if name.eq_ignore_ascii_case(b"content-type") {
        // PHP adds its default type to answers without a body. The bytes that are stored have not become another thing by that.
        return media_type(value) == media_type(stored.first("content-type").unwrap_or(value));
    }
    let is = |other: &&str| name.eq_ignore_ascii_case(other.as_bytes());
    !OF_THE_BODY.iter().any(is)
}

/// Without its parameters.
fn media_type(value: &[u8]) -> Vec<u8> {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    value[..end].trim_ascii().to_ascii_lowercase()
}

/// Fields that describe the body that came with them. A 304 has none, so it does not change them.
pub const OF_THE_BODY: [&str; 5] = [
    "content-length",
    "content-encoding",
    "content-md5",
    "content-range",
    "transfer-encoding",
];

/// Fields of a connection or of one transfer (RFC 9110 §7.6.1, RFC 9111 §3.1), and those that the cache says itself.
const NOT_STORED: [&str; 12] = [
    "age",
    "cache-status",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fields::Lines;

    fn list(lines: &str) -> FieldList {
        FieldList::of(&Lines(lines.as_bytes()), |_| true)
    }

    fn text(list: &FieldList) -> &str {
        std::str::from_utf8(list.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_of_a_connection_or_a_client_is_not_stored() {
        let answer = "Connection: x-a, X-B\r\nx-a: 1\r\nx-b: 1\r\nX-C: 1\r\nx-d: 1\r\nx-e: 1\r\nAge: 5\r\nKeep-Alive: 1\r\n\
                      cache-control: private=\"x-d\", no-cache=\"X-E\", max-age=5\r\nlink: 1\r\nlink: 2\r\n";
        assert_eq!(
            text(&stored_fields(&Lines(answer.as_bytes()))),
            "X-C: 1\r\ncache-control: private=\"x-d\", no-cache=\"X-E\", max-age=5\r\nlink: 1\r\nlink: 2\r\n"
        );
    }

    #[test]
    fn a_304_replaces_what_it_has() {
        let stored = "etag: \"1\"\r\nlink: <a>\r\nlink: <b>\r\nx: old\r\ncontent-type: text/plain\r\ncontent-encoding: gzip\r\n";
        let with = "X: new\r\nLink: <c>\r\nLink: <d>\r\nset-cookie: a\r\ncontent-length: 0\r\ncontent-encoding: br\r\nage: 1\r\n\
                    content-type: text/plain;charset=utf-8\r\nconnection: y\r\ny: 1\r\n";
        let mut stored = list(stored);
        merge(&mut stored, &Lines(with.as_bytes()));
        assert_eq!(
            text(&stored),
            "etag: \"1\"\r\ncontent-encoding: gzip\r\nX: new\r\nLink: <c>\r\nLink: <d>\r\nset-cookie: a\r\ncontent-type: text/plain;charset=utf-8\r\n"
        );
        // As PHP does.
        let mut stored = list("content-type: application/json\r\n");
        merge(
            &mut stored,
            &Lines(b"content-type: text/html; charset=UTF-8\r\n"),
        );
        assert_eq!(text(&stored), "content-type: application/json\r\n");
    }

    #[test]
    fn what_a_304_makes_of_an_answer_is_judged_again() {
        const NOW: u64 = 1_800_000_000_000;
        let freshened = |with: &str| {
            let mut stored = list(
                "etag: \"1\"\r\ncache-control: max-age=60\r\ndate: Sun, 22 Nov 2026 10:00:00 GMT\r\n",
            );
            let with = Answer {
                status: 304,
                fields: &Lines(with.as_bytes()),
                asked: NOW,
                answered: NOW,
            };
            let policy = Policy::default();
            let verdict = freshen(&mut stored, 200, with, Asker::Anybody, &policy);
            (verdict.map(|verdict| verdict.life.ttl(NOW)), stored)
        };
        let (ttl, stored) = freshened("age: 20\r\n");
        assert_eq!(ttl, Ok(40));
        assert!(!stored.has("age") && stored.first("date") == Some(http_date(NOW).as_bytes()));
        let date = format!("date: {}\r\ncache-control: max-age=5\r\n", http_date(NOW));
        assert_eq!(freshened(&date).0, Ok(5));
        assert_eq!(freshened("set-cookie: a=b\r\n").0, Err(Reason::SetCookie));
        assert_eq!(
            freshened("cache-control: private\r\n").0,
            Err(Reason::Private)
        );
    }

    #[test]
    fn a_304_is_about_what_has_its_tag() {
        let is_meant = |stored: &str, with: &str| {
            super::is_meant(&Lines(stored.as_bytes()), &Lines(with.as_bytes()))
        };
        assert!(is_meant("etag: \"1\"\r\n", "etag: W/\"1\"\r\n"));
        assert!(is_meant("etag: \"1\"\r\n", "x: y\r\n"));
        assert!(!is_meant("etag: \"1\"\r\n", "etag: \"2\"\r\n"));
        assert!(!is_meant("last-modified: x\r\n", "etag: \"2\"\r\n"));
    }

    #[test]
    fn the_answer_to_head_is_compared() {
        let stored = Lines(b"etag: \"1\"\r\n");
        for (status, head, expected) in [
            (200, "x: y\r\n", HeadSays::Same),
            (200, "etag: \"1\"\r\ncontent-length: 3\r\n", HeadSays::Same),
            (200, "etag: \"2\"\r\n", HeadSays::Other),
            (200, "content-length: 4\r\n", HeadSays::Other),
            (200, "last-modified: x\r\n", HeadSays::Other),
            (410, "etag: \"2\"\r\n", HeadSays::Nothing),
        ] {
            let said = head_says(&stored, 3, status, &Lines(head.as_bytes()));
            assert_eq!(said, expected, "{status} {head}");
        }
    }

    #[test]
    fn a_write_outdates_what_it_names_of_its_own_origin() {
        for (status, expected) in [
            (200, true),
            (303, true),
            (199, false),
            (400, false),
            (500, false),
        ] {
            assert_eq!(outdates(Method::Unsafe, status), expected, "{status}");
        }
        assert!(!outdates(Method::Get, 200) && !outdates(Method::Safe, 200));
        let named = |value: &str| -> Vec<String> {
            let answer = format!("Location: {value}\r\n");
            outdated(&Lines(answer.as_bytes()), "https://a.example").collect()
        };
        assert_eq!(named("/b?c"), ["/b?c"]);
        assert_eq!(named("HTTPS://A.example/b"), ["/b"]);
        for elsewhere in [
            "https://b.example/b",
            "http://a.example/b",
            "b",
            "//x/b",
            "https://a.example:8443/b",
        ] {
            assert!(named(elsewhere).is_empty(), "{elsewhere}");
        }
    }

    proptest! {
        #[test]
        fn any_fields_are_taken(stored in "[ -~\r\n]{0,60}", with in "[ -~\r\n]{0,60}") {
            let mut stored = list(&stored);
            merge(&mut stored, &Lines(with.as_bytes()));
            prop_assert!(FieldList::from_bytes(stored.as_bytes().to_vec()).is_ok());
        }

        /// A field of a connection never gets into what is stored, whichever way.
        #[test]
        fn nothing_of_the_connection_is_stored(name in "[a-c]", other in "[a-c]") {
            let lines = format!("Connection: {name}\r\n{name}: 1\r\n{other}: 2\r\nTE: x\r\n");
            let mut stored = list("d: 1\r\n");
            merge(&mut stored, &Lines(lines.as_bytes()));
            prop_assert!(!stored.has(&name) && !stored.has("te") && !stored.has("connection"));
        }
    }
}
