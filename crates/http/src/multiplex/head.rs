//! Heads: of requests as the exchange gets them, and the fields of answers as they are sent.

use std::{ops::Range, sync::LazyLock};

use http::{Method, StatusCode, Version, uri::PathAndQuery};
use weir_http1::Name;

use super::Limits;
use crate::{Fields, Head, Target, buffers, date, h1::target::spelled};

/// Why a head does not become a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    /// One word for the logs.
    pub(crate) reason: &'static str,
    pub(crate) why: &'static str,
}

/// What is wrong with a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The stream is reset (RFC 9113 §8.1.1, RFC 9114 §4.1.2).
    Malformed,
    /// The request is answered.
    Refused(Refused),
}

/// The head of a request, with the length of its body if it says that.
pub(crate) type Whole = (Box<Head>, Option<u64>);

/// The head of a request that is being decompressed, field by field (RFC 9113 §8.2, §8.3; RFC 9114 §4.2, §4.3). What is beyond the
/// limits is not kept.
pub(crate) struct Building<'l> {
    limits: &'l Limits,
    head: Box<Head>,
    /// The values of the pseudo-header fields, and behind them the cookies.
    text: Vec<u8>,
    method: Option<Method>,
    authority: Option<Range<usize>>,
    path: Option<Range<usize>>,
    has_scheme: bool,
    /// Where the cookies begin, once the first field that is no pseudo-header field has come.
    cookies: Option<usize>,
    length: Option<u64>,
    size: usize,
    count: u32,
    unfit: Option<Unfit>,
}

impl<'l> Building<'l> {
    pub(crate) fn new(version: Version, limits: &'l Limits) -> Building<'l> {
        let mut head = Head::spare();
        head.version = version;
        Building {
            limits,
            head,
            text: buffers::output(),
            method: None,
            authority: None,
            path: None,
            has_scheme: false,
            cookies: None,
            length: None,
            size: 0,
            count: 0,
            unfit: None,
        }
    }

    /// Takes the next field.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.unfit.is_none()
            && let Err(unfit) = self.take(name, value)
        {
            self.unfit = Some(unfit);
        }
    }

    /// All fields have come.
    pub(crate) fn finish(mut self) -> Result<Whole, Unfit> {
        let whole = match self.unfit {
            Some(unfit) => Err(unfit),
            None => self.close(),
        };
        buffers::give_back(std::mem::take(&mut self.text));
        match whole {
            Ok(()) => Ok((self.head, self.length)),
            Err(unfit) => {
                self.head.give_back();
                Err(unfit)
            }
        }
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), Unfit> {
        let is_pseudo = name.first() == Some(&b':');
        self.size += match is_pseudo {
            true => value.len(),
            false => name.len() + value.len() + LINE,
        };
        self.count += u32::from(!is_pseudo);
        // Its target alone is too much.
        if name == b":path" && value.len() > self.limits.head as usize {
            return Err(Unfit::Refused(TARGET_TOO_LONG));
        }
        if self.size > self.limits.head as usize || self.count > self.limits.fields {
            return Err(Unfit::Refused(TOO_LARGE));
        }
        if is_pseudo {
            return self.take_pseudo(name, value);
        }
        let known = check(name, value)?;
        if self.cookies.is_none() {
            self.begin()?;
        }
        match known {
            Some(Name::Cookie) => {
                // Clients may divide them (RFC 9113 §8.2.3).
                if self.cookies != Some(self.text.len()) {
                    self.text.extend_from_slice(b"; ");
                }
                self.text.extend_from_slice(value);
                return Ok(());
            }
            Some(Name::ContentLength) => {
                let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
                let length = std::str::from_utf8(value).ok().filter(|_| is_number);
                let length = length.and_then(|text| text.parse().ok());
                if length.is_none() || self.length.is_some() {
                    return Err(Unfit::Malformed);
                }
                self.length = length;
            }
            // The exchange refuses a request with two different hosts.
            Some(Name::Host)
                if self.authority.is_some() && self.authority().eq_ignore_ascii_case(value) =>
            {
                return Ok(());
            }
            _ => {}
        }
        self.head.fields.push(name, value);
        Ok(())
    }

    fn take_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Unfit> {
        if self.cookies.is_some() {
            return Err(Unfit::Malformed);
        }
        let text = &mut self.text;
        let mut keep = || {
            let at = text.len();
            text.extend_from_slice(value);
            Some(at..text.len())
        };
        let is_second = match name {
            b":method" => {
                let method = Method::from_bytes(value).map_err(|_| Unfit::Malformed)?;
                self.method.replace(method).is_some()
            }
            b":scheme" => {
                http::uri::Scheme::try_from(value).map_err(|_| Unfit::Malformed)?;
                std::mem::replace(&mut self.has_scheme, true)
            }
            b":authority" => std::mem::replace(&mut self.authority, keep()).is_some(),
            b":path" => std::mem::replace(&mut self.path, keep()).is_some(),
            _ => true,
        };
        match is_second {
            true => Err(Unfit::Malformed),
            false => Ok(()),
        }
    }

    fn authority(&self) -> &[u8] {
        self.authority
            .as_ref()
            .map_or(&[], |range| &self.text[range.clone()])
    }

    /// All pseudo-header fields have come.
    fn begin(&mut self) -> Result<(), Unfit> {
        let method = self.method.take().ok_or(Unfit::Malformed)?;
        if self.authority().is_empty() {
            self.authority = None;
        }
        // User names are not allowed here. The exchange checks the host.
        let is_host = |byte: &u8| byte.is_ascii_graphic() && *byte != b'@';
        if !self.authority().iter().all(is_host) {
            return Err(Unfit::Malformed);
        }
        if method == Method::CONNECT {
            if self.has_scheme || self.path.is_some() || self.authority.is_none() {
                return Err(Unfit::Malformed);
            }
            set_star(&mut self.head);
        } else {
            let path = self.path.clone().filter(|_| self.has_scheme);
            let path = &self.text[path.ok_or(Unfit::Malformed)?];
            set_target(&mut self.head, path)?;
        }
        self.head.method = method;
        self.cookies = Some(self.text.len());
        if let Some(authority) = &self.authority {
            let host = &self.text[authority.clone()];
            self.head.fields.push(b"host", host);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Unfit> {
        if self.cookies.is_none() {
            self.begin()?;
        }
        let is_hostless = !self.head.fields.has(Name::Host);
        if self.head.version == Version::HTTP_3 && is_hostless {
            return Err(Unfit::Malformed);
        }
        let cookies = &self.text[self.cookies.unwrap_or_default()..];
        if !cookies.is_empty() {
            self.head.fields.push(b"cookie", cookies);
        }
        Ok(())
    }
}

/// Begins the head with its target.
fn set_target(head: &mut Head, path: &[u8]) -> Result<(), Unfit> {
    if path == b"*" {
        set_star(head);
        return Ok(());
    }
    let mut spelling = spelled(path).ok_or(Unfit::Refused(TARGET_TOO_LONG))?;
    let uri;
    let mut path = path;
    if spelling.text.is_some() {
        // The path has a fragment, which is left out, or characters that no URI has.
        uri = PathAndQuery::try_from(path).map_err(|_| Unfit::Malformed)?;
        if !path.starts_with(b"/") {
            return Err(Unfit::Malformed);
        }
        path = uri.as_str().as_bytes();
        spelling = spelled(path).ok_or(Unfit::Refused(TARGET_TOO_LONG))?;
    }
    head.fields.begin(path);
    head.target = Target::received(0..path.len(), spelling.text, spelling.path);
    Ok(())
}

/// Begins the head of a request without a path.
fn set_star(head: &mut Head) {
    head.fields.begin(b"*");
    head.target = Target::received(0..0, Some("*".into()), 1);
}

/// Whether a field may stand in a head or behind a body. Returns its name if it is a well-known one.
pub(crate) fn check(name: &[u8], value: &[u8]) -> Result<Option<Name>, Unfit> {
    let is_lower = |byte: &u8| NAME_BYTES[usize::from(*byte)];
    let is_padded = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_valid = !name.is_empty()
        && name.len() <= usize::from(u16::MAX)
        && name.iter().all(is_lower)
        && value.iter().all(is_in_value)
        && !is_padded(value.first())
        && !is_padded(value.last());
    let known = Name::of(name);
    let is_wrong = match known {
        // They are about a connection of HTTP/1 (RFC 9113 §8.2.2).
        Some(
            Name::Connection
            | Name::KeepAlive
            | Name::ProxyConnection
            | Name::TransferEncoding
            | Name::Upgrade,
        ) => true,
        Some(Name::Te) => value != b"trailers",
        _ => false,
    };
    match is_valid && !is_wrong {
        true => Ok(known),
        false => Err(Unfit::Malformed),
    }
}

/// Whether a value may have this byte (RFC 9110 §5.5).
fn is_in_value(byte: &u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// The bytes that names have: those of tokens (RFC 9110 §5.6.2), but no capitals.
static NAME_BYTES: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let is = byte as u8;
        bytes[byte] = is.is_ascii_lowercase()
            || is.is_ascii_digit()
            || matches!(
                is,
                b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            );
        byte += 1;
    }
    bytes
};

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct AnswerHead {
    pub(crate) status: StatusCode,
    fields: Fields,
    /// The length of its body, if the head says it.
    length: Option<u64>,
}

impl AnswerHead {
    /// The head of a final answer.
    pub(crate) fn new(status: StatusCode, fields: Fields, length: Option<u64>) -> AnswerHead {
        AnswerHead {
            status,
            fields,
            length,
        }
    }

    /// Gives all fields, with names in lower case, the well-known one beside them.
    pub(crate) fn each(&self, mut put: impl FnMut(Option<Name>, &[u8], &[u8])) {
        if self.status.is_informational() {
            return each(&self.fields, true, put);
        }
        each(&self.fields, self.length.is_some(), &mut put);
        if let Some(length) = self.length {
            let (mut digits, mut at, mut rest) = ([0; 20], 20, length);
            loop {
                at -= 1;
                digits[at] = b'0' + (rest % 10) as u8;
                rest /= 10;
                if rest == 0 {
                    break;
                }
            }
            put(Some(Name::ContentLength), b"content-length", &digits[at..]);
        }
        if !self.fields.has(Name::Date) {
            date::with_value(|value| put(Some(Name::Date), b"date", value));
        }
    }

    /// The fields are not needed any more.
    pub(crate) fn give_back(self) {
        self.fields.give_back();
    }
}

/// Gives the fields that are not about the connection (RFC 9113 §8.2.2), with names in lower case.
pub(crate) fn each(
    fields: &Fields,
    without_length: bool,
    mut put: impl FnMut(Option<Name>, &[u8], &[u8]),
) {
    let mut lower = Vec::new();
    for (text, value) in fields.iter() {
        let known = Name::of(text);
        let is_left_out = match known {
            Some(
                Name::Connection
                | Name::KeepAlive
                | Name::ProxyConnection
                | Name::TransferEncoding
                | Name::Upgrade,
            ) => true,
            Some(Name::ContentLength) => without_length,
            _ => false,
        };
        if is_left_out {
            continue;
        }
        let name = match known {
            Some(known) => NAMES[known as usize].as_bytes(),
            None => {
                lower.clear();
                lower.extend(text.iter().map(u8::to_ascii_lowercase));
                &lower
            }
        };
        // Fields of an answer were checked when they were added.
        let is_name = known.is_some()
            || (!name.is_empty() && name.iter().all(|byte| NAME_BYTES[usize::from(*byte)]));
        if is_name && value.iter().all(is_in_value) {
            put(known, name, value);
        }
    }
}

/// The well-known names in lower case, in their order.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let names = Name::ALL.iter();
    names
        .map(|name| name.as_str().to_ascii_lowercase())
        .collect()
});

pub(crate) const TOO_LARGE: Refused = Refused {
    status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    reason: "head_too_large",
    why: "the head is larger than max_head, or has more fields than max_headers",
};

pub(crate) const TARGET_TOO_LONG: Refused = Refused {
    status: StatusCode::URI_TOO_LONG,
    reason: "target_too_long",
    why: "the path is longer than max_head, or than a URI may be",
};

/// Bytes of a line of HTTP/1 besides name and value: `: ` and the end of the line. Limits count heads as if they were
/// of HTTP/1.
const LINE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits::of_checks();

    type Read = Result<Whole, Unfit>;

    fn build(version: Version, fields: &[(&str, &str)]) -> Read {
        let mut building = Building::new(version, &LIMITS);
        for (name, value) in fields {
            building.field(name.as_bytes(), value.as_bytes());
        }
        building.finish()
    }

    fn read(authority: &str, path: &str, fields: &[(&str, &str)]) -> Read {
        let get = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", authority),
            (":path", path),
        ];
        build(Version::HTTP_2, &[&get[..], fields].concat())
    }

    fn values<'h>(head: &'h Head, name: &str) -> Vec<&'h str> {
        let found = head.fields.iter();
        found
            .filter(|(_, found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, _, value)| std::str::from_utf8(value).unwrap())
            .collect()
    }

    #[test]
    fn a_request_has_its_target_its_host_and_one_cookie_field() {
        let fields = [("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")];
        let (head, length) = read("Shop.example:81", "/a%20b?c=d#e", &fields).unwrap();
        assert_eq!(head.path(), b"/a%20b");
        assert_eq!(head.query(), Some(&b"c=d"[..]));
        assert_eq!(head.received(), b"/a%20b?c=d");
        assert_eq!(values(&head, "host"), ["Shop.example:81"]);
        assert_eq!(values(&head, "cookie"), ["a=1; b=2"]);
        assert_eq!(values(&head, "x"), ["y"]);
        assert_eq!(head.fields.get(Name::Cookie), Some(&b"a=1; b=2"[..]));
        assert_eq!((head.version, length), (Version::HTTP_2, None));
        let connect = [(":method", "CONNECT"), (":authority", "a.test:443")];
        let (head, _) = build(Version::HTTP_2, &connect).unwrap();
        assert_eq!(head.path_and_query(), b"*");
        assert_eq!(values(&head, "host"), ["a.test:443"]);
        let (head, _) = read("a", "*", &[]).unwrap();
        assert_eq!(head.path_and_query(), b"*");
    }

    #[test]
    fn a_host_that_differs_from_the_authority_is_a_second_one() {
        let hosts = |fields: &[(&str, &str)], authority: &str| {
            let (head, _) = read(authority, "/", fields).unwrap();
            values(&head, "host").join("|")
        };
        assert_eq!(hosts(&[("host", "A")], "a"), "a");
        assert_eq!(hosts(&[("host", "b")], "a"), "a|b");
        assert_eq!(hosts(&[("host", "b")], ""), "b");
        assert_eq!(hosts(&[], ""), "");
    }

    const GET: [(&str, &str); 4] = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a.test:1"),
        (":path", "/x?y"),
    ];

    #[test]
    fn pseudo_header_fields_come_once_and_first_and_values_are_clean() {
        build(Version::HTTP_3, &GET).unwrap();
        build(Version::HTTP_3, &[GET[0], GET[1], GET[3], ("host", "b")]).unwrap();
        build(Version::HTTP_2, &[GET[0], GET[1], GET[3]]).unwrap();
        let connect = [(":method", "CONNECT"), (":authority", "a.test:443")];
        for wrong in [
            &GET[1..],
            &GET[..3],
            &[GET[0], GET[1], GET[3]],
            &[GET[0], GET[2], GET[3]],
            &[&GET[..], &GET[..1]].concat(),
            &[&[("x", "y")], &GET[..]].concat(),
            &[&GET[..3], &[("x", "y")], &GET[3..]].concat(),
            &[&GET[..], &[(":status", "200")]].concat(),
            &[&GET[..], &[(":x", "y")]].concat(),
            &[&GET[..3], &[(":path", "")]].concat(),
            &[&GET[..3], &[(":path", "x")]].concat(),
            &[&GET[..3], &[(":path", "/ x")]].concat(),
            &[&GET[..3], &[(":path", "/\0")]].concat(),
            &[&GET[..3], &[(":path", "/\n")]].concat(),
            &[GET[0], GET[1], (":authority", "u@a.test"), GET[3]],
            &[GET[0], GET[1], (":authority", "a b"), GET[3]],
            &[(":method", "G T"), GET[1], GET[2], GET[3]],
            &[(":method", ""), GET[1], GET[2], GET[3]],
            &[GET[0], (":scheme", "a b"), GET[2], GET[3]],
            &[connect[0], connect[1], (":path", "/")],
        ] {
            let read = build(Version::HTTP_3, wrong);
            assert!(matches!(read, Err(Unfit::Malformed)), "{wrong:?}");
        }
        let mut building = Building::new(Version::HTTP_2, &LIMITS);
        for (name, value) in &GET[..3] {
            building.field(name.as_bytes(), value.as_bytes());
        }
        building.field(b":path", b"/\xff");
        assert!(matches!(building.finish(), Err(Unfit::Malformed)));
        for field in [
            ("Upper", "x"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "x"),
            ("te", "gzip"),
            ("x y", "z"),
            ("x:", "z"),
            ("", "z"),
            ("\u{e4}", "z"),
            ("x", "a\nb"),
            ("x", "a\rb"),
            ("x", "a\0b"),
            ("x", "a\u{1}b"),
            ("x", "a\u{7f}"),
            ("x", " a"),
            ("x", "a\t"),
            ("x", " "),
            ("content-length", ""),
            ("content-length", "+1"),
            ("content-length", "1, 1"),
            ("content-length", "99999999999999999999"),
        ] {
            let read = read("a", "/", &[field]);
            assert!(matches!(read, Err(Unfit::Malformed)), "{field:?}");
        }
        let twice = [("content-length", "1"); 2];
        assert!(matches!(read("a", "/", &twice), Err(Unfit::Malformed)));
        let length = [("content-length", "17"), ("te", "trailers"), ("x", "")];
        assert_eq!(read("a", "/", &length).unwrap().1, Some(17));
    }

    #[test]
    fn heads_beyond_the_limits_are_refused() {
        let status = |read: Read| match read {
            Err(Unfit::Refused(refused)) => Some(refused.status.as_u16()),
            _ => None,
        };
        let long = "x".repeat(9000);
        for (path, fields, expected) in [
            (&format!("/{long}")[..], vec![], 414),
            ("/", vec![("x", &long[..])], 431),
            (
                &format!("/{}", &long[..5000]),
                vec![("x", &long[..5000])],
                431,
            ),
            ("/", vec![("x", "y"); 11], 431),
            ("/", vec![("x", "y"); 30_000], 431),
        ] {
            assert_eq!(status(read("a", path, &fields)), Some(expected));
        }
        read("a", "/", &[("x", "y"); 10]).unwrap();
    }

    #[test]
    fn an_answer_has_no_fields_about_the_connection() {
        let mut fields = Fields::default();
        for (name, value) in [
            ("Connection", "close"),
            ("Keep-Alive", "timeout=5"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("Content-Length", "5"),
            ("X-Many", "1"),
            ("x-many", "2"),
        ] {
            fields.append(name, value.as_bytes()).unwrap();
        }
        let shown = |length: Option<u64>, fields: &Fields, status| {
            let mut shown = String::new();
            let head = AnswerHead::new(status, fields.clone(), length);
            head.each(|known, name, value| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                assert_eq!(known, Name::of(name));
                shown += &format!("{}={} ", text(name), text(value));
            });
            shown
        };
        let date = String::from_utf8(date::with_value(<[u8]>::to_vec)).unwrap();
        let with = |length| format!("x-many=1 x-many=2 content-length={length} date={date} ");
        assert_eq!(shown(Some(7), &fields, StatusCode::OK), with("7"));
        assert_eq!(
            shown(None, &fields, StatusCode::OK),
            format!("content-length=5 x-many=1 x-many=2 date={date} ")
        );
        let most = u64::MAX;
        let said = shown(Some(most), &Fields::default(), StatusCode::OK);
        assert_eq!(said, format!("content-length={most} date={date} "));
        let hints = shown(None, &fields, StatusCode::EARLY_HINTS);
        assert_eq!(hints, "x-many=1 x-many=2 ");
    }
}
