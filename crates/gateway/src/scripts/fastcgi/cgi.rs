//! The header block at the start of a script's response (RFC 3875 §6).
//!
//! Nothing from a script is trusted. A field that HTTP does not allow is left out, and the rest of the page stays, as
//! in nginx. Headers about the connection are removed. Headers for the gateway are removed and acted on.

use std::num::NonZeroU64;

use http::StatusCode;
use weir_http::Fields;
use weir_http1::{Name, ResponseHead, check_field, check_value};
use weir_upstream::hop;

/// A script's response head.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    /// Whether the script set a status, or its `Location` implies one.
    pub(crate) status_said: bool,
    pub(crate) headers: Fields,
    /// The length of the body, if the script set it.
    pub(crate) content_length: Option<u64>,
    /// What to answer with instead of the script's output. In a box like other rare parts, because each head is moved.
    pub(crate) elsewhere: Option<Box<Elsewhere>>,
    /// `X-Accel-Buffering`: whether the response may be read ahead.
    pub(crate) buffering: Option<bool>,
    /// `X-Accel-Limit-Rate`: the speed of the response in bytes a second; `Some(None)`: no limit (nginx's header).
    pub(crate) bandwidth: Option<Option<NonZeroU64>>,
    /// Why it cannot be the head of an answer over HTTP.
    pub(crate) bad: Option<Box<BadHead>>,
    /// Lines that are left out because HTTP does not allow them.
    pub(crate) lost: Option<Box<Lost>>,
    /// The response is an event stream, whose parts must be passed on at once.
    pub(crate) is_event_stream: bool,
}

/// Where the answer is.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    /// `X-Accel-Redirect`: a URL (nginx's header).
    pub(crate) accel_redirect: Option<Vec<u8>>,
    /// `X-Sendfile`: a file (header of Apache and lighttpd).
    pub(crate) sendfile: Option<Vec<u8>>,
}

/// Lines of a head that cannot be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The first of them, for the log.
    pub(crate) line: String,
    pub(crate) count: usize,
    /// A Content-Length was no number, or differed from an earlier one. Then none counts.
    has_length: bool,
}

/// What happens to a line of the head.
enum Line<'l> {
    /// The line is passed on as the script wrote it.
    Kept,
    /// The line is passed on in the usual spelling: name and value.
    Spelled(&'l [u8], &'l [u8]),
    /// The line is not passed on.
    Dropped,
    /// The line is not passed on, because HTTP does not allow it.
    Lost,
}

/// Why a header block is invalid. It goes to the error log; the client gets 502.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadHead {
    /// `Status` is no number from 200 to 999, or it is 1xx where that is not allowed.
    Status(String),
    /// More than [`MAX_LINES`] lines.
    TooMany,
}

/// Where the header block ends: the offset of the body's first byte. Lines end in LF or CR LF.
///
/// `scanned` is how many bytes were searched before, so that a block that arrives in pieces is searched only once.
pub(crate) fn end_of_head(bytes: &[u8], scanned: &mut usize) -> Option<usize> {
    while let Some(found) = memchr::memchr(b'\n', &bytes[*scanned..]) {
        let newline = *scanned + found;
        if matches!(&bytes[..newline], b"" | b"\r") {
            return Some(newline + 1);
        }
        match bytes.get(newline + 1..) {
            Some([b'\n', ..]) => return Some(newline + 2),
            Some([b'\r', b'\n', ..]) => return Some(newline + 3),
            Some([] | [b'\r']) | None => {
                *scanned = newline;
                return None;
            }
            Some(_) => *scanned = newline + 1,
        }
    }
    *scanned = bytes.len();
    None
}

/// Parses the header block at the beginning of `bytes`. Returns it with the offset of the body's first byte; `None` if its
/// blank line has not arrived.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Head, usize)> {
    let mut head = Head::of_capacity(bytes.len().min(USUAL) + ROOM);
    // Most lines are sent as the script wrote them: those that follow one another are copied in one piece.
    let (mut lines, mut at, mut kept) = (0, 0, 0);
    let blank = loop {
        let end = at + memchr::memchr(b'\n', &bytes[at..])? + 1;
        let line = &bytes[at..end];
        if matches!(line, b"\r\n" | b"\n") {
            break end;
        }
        lines += 1;
        let mut becomes = match lines > MAX_LINES {
            true => Line::Dropped,
            false => head.take_line(line),
        };
        if !matches!(becomes, Line::Kept) {
            head.headers.append_checked(&bytes[kept..at]);
            kept = end;
        }
        if let Line::Spelled(name, value) = becomes
            && head.headers.append((None, name), value).is_err()
        {
            becomes = Line::Lost;
        }
        if let Line::Lost = becomes {
            head.lose(line);
        }
        at = end;
    };
    head.headers.append_checked(&bytes[kept..at]);
    if lines > MAX_LINES {
        head.bad = Some(Box::new(BadHead::TooMany));
    }
    let mut head = head.without_lost_length();
    if !head.status_said && head.headers.has(Name::Location) {
        head.status = StatusCode::FOUND;
    }
    Some((head, blank))
}

impl Head {
    /// Without a line, and with room for so many bytes of them.
    pub(crate) fn of_capacity(bytes: usize) -> Head {
        Head {
            status: StatusCode::OK,
            status_said: false,
            headers: Fields::with_capacity(bytes),
            content_length: None,
            elsewhere: None,
            buffering: None,
            bandwidth: None,
            bad: None,
            lost: None,
            is_event_stream: false,
        }
    }

    /// A redirect within the site: only `Location`, a path, and no status (RFC 3875 §6.2.2).
    pub(crate) fn local_redirect(&self) -> Option<&[u8]> {
        let location = self.headers.get(Name::Location)?;
        let is_local = location.first() == Some(&b'/') && location.get(1) != Some(&b'/');
        (is_local && !self.status_said).then_some(location)
    }

    /// Whether the answer is not the script's output: a redirect within the site, or a file.
    pub(crate) fn answers_otherwise(&self) -> bool {
        self.elsewhere.is_some() || self.local_redirect().is_some()
    }

    /// Whether the parts of the response are to be passed on at once.
    pub(crate) fn streams(&self) -> bool {
        self.buffering
            .map_or(self.is_event_stream, |buffering| !buffering)
    }

    /// The head of an answer over HTTP. Its parser has checked the fields. Those about the connection are left out, and
    /// `Server`, as in nginx: clients need not know what runs behind weir.
    pub(crate) fn of_http(answer: &ResponseHead) -> Head {
        let fields = answer.fields();
        let mut head = Head::of_capacity(fields.as_bytes().len() + ROOM);
        // A parsed head has 100 to 999.
        head.status = StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::BAD_GATEWAY);
        head.status_said = true;
        // RFC 9112 §6.3: the coding overrides the length.
        let is_chunked = fields.has(Name::TransferEncoding);
        let mut named = Vec::new();
        for value in fields.all(Name::Connection) {
            hop::add_named(Some(Name::Connection), value, &mut named);
        }
        for (known, name, value) in fields.iter() {
            let is_left_out = match known {
                Some(Name::ContentLength) => is_chunked,
                // It names another address of the server, which clients would take for one of weir.
                Some(Name::AltSvc | Name::Server | Name::Trailer) => true,
                known => hop::is_of_hop(known, name, &named),
            };
            let becomes = match known {
                _ if is_left_out => Line::Dropped,
                Some(Name::Status) => Line::Kept,
                known => head.take_field(known, name, value),
            };
            match becomes {
                Line::Kept | Line::Spelled(..) => head.headers.push_read((known, name), value),
                Line::Dropped => {}
                Line::Lost => head.lose(&[name, b": ", value].concat()),
            }
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS
            && let Some(protocol) = fields.get(Name::Upgrade)
        {
            head.headers.push_read(Name::Connection, b"upgrade");
            head.headers.push_read(Name::Upgrade, protocol);
        }
        head.without_lost_length()
    }

    /// No Content-Length counts if one of them was left out.
    fn without_lost_length(mut self) -> Head {
        if self.lost.as_ref().is_some_and(|lost| lost.has_length) {
            self.headers.remove(Name::ContentLength);
            self.content_length = None;
        }
        self
    }

    fn take_line<'l>(&mut self, line: &'l [u8]) -> Line<'l> {
        let Some(colon) = memchr::memchr(b':', line) else {
            return Line::Lost;
        };
        let name = line[..colon].trim_ascii_end();
        let value = line[colon + 1..].trim_ascii();
        let known = Name::of(name);
        match self.take_field(known, name, value) {
            Line::Kept => {}
            other => return other,
        }
        self.headers.note(known);
        // "Name: value" and the end of the line, without other white space.
        let is_usual = name.len() == colon
            && line[colon..].starts_with(b": ")
            && line.ends_with(b"\r\n")
            && colon + 2 + value.len() + 2 == line.len();
        match is_usual {
            true => Line::Kept,
            false => Line::Spelled(name, value),
        }
    }

    /// Takes what the gateway needs of a field. `Kept`: it is passed on.
    fn take_field(&mut self, known: Option<Name>, name: &[u8], value: &[u8]) -> Line<'static> {
        match known {
            Some(Name::Status) => {
                self.take_status(value);
                return Line::Dropped;
            }
            Some(Name::ContentLength) => match (number(value), self.content_length) {
                (Some(length), None) => self.content_length = Some(length),
                (Some(length), Some(before)) if length == before => return Line::Dropped,
                _ => return Line::Lost,
            },
            Some(Name::ContentType) if !self.headers.has(Name::ContentType) => {
                let media = value.get(..EVENT_STREAM.len());
                self.is_event_stream =
                    media.is_some_and(|media| media.eq_ignore_ascii_case(EVENT_STREAM));
            }
            // weir has no cache of nginx's kind.
            Some(Name::XAccelExpires) => return Line::Dropped,
            Some(Name::XAccelBuffering) => {
                self.buffering = Some(!value.eq_ignore_ascii_case(b"no"));
                return Line::Dropped;
            }
            Some(name) if is_of_the_connection(name) => return Line::Dropped,
            _ => {}
        }
        let checked = match known {
            Some(_) => check_value(value),
            None => check_field(name, value),
        };
        if checked.is_err() {
            return Line::Lost;
        }
        if known == Some(Name::XAccelRedirect) {
            self.elsewhere.get_or_insert_default().accel_redirect = Some(value.to_vec());
            return Line::Dropped;
        }
        if known.is_none() && matches!(name[0], b'X' | b'x') && self.take_hidden(name, value) {
            return Line::Dropped;
        }
        Line::Kept
    }

    /// A field for the gateway that is rare. False: it is another one.
    fn take_hidden(&mut self, name: &[u8], value: &[u8]) -> bool {
        let is = |other: &&[u8]| name.eq_ignore_ascii_case(other);
        if SENDFILE.iter().any(is) {
            self.elsewhere.get_or_insert_default().sendfile = Some(value.to_vec());
            return true;
        }
        if is(&LIMIT_RATE) {
            // As nginx, which ignores what is no number.
            self.bandwidth = limit_rate(value).or(self.bandwidth);
            return true;
        }
        is(&CHARSET)
    }

    fn take_status(&mut self, value: &[u8]) {
        let (digits, phrase) = value.split_at(value.len().min(3));
        let is_whole = phrase.first().is_none_or(u8::is_ascii_whitespace);
        let status = StatusCode::from_bytes(digits).ok();
        let status = status.filter(|status| is_whole && *status != StatusCode::SWITCHING_PROTOCOLS);
        let Some(status) = status else {
            // The status in the log is the one that web servers in front would send.
            self.status = StatusCode::BAD_GATEWAY;
            self.bad = Some(Box::new(BadHead::Status(excerpt(value))));
            return;
        };
        self.status = status;
        self.status_said = true;
        self.headers.set_phrase(status, phrase.trim_ascii());
    }

    /// Notes a line that is left out.
    #[cold]
    fn lose(&mut self, line: &[u8]) {
        let lost = self.lost.get_or_insert_with(|| {
            Box::new(Lost {
                line: excerpt(line),
                count: 0,
                has_length: false,
            })
        });
        lost.count += 1;
        let name = line.split(|byte| *byte == b':').next();
        lost.has_length |=
            name.is_some_and(|name| Name::of(name.trim_ascii_end()) == Some(Name::ContentLength));
    }
}

impl std::fmt::Display for BadHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadHead::Status(status) => {
                write!(f, "Status {status:?} must be a number from 200 to 999")
            }
            BadHead::TooMany => write!(f, "it has more than {MAX_LINES} lines"),
        }
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "left out of the response's head, because HTTP does not allow it: {:?}",
            self.line
        )?;
        match self.count {
            1 => Ok(()),
            count => write!(f, " and {} more", count - 1),
        }
    }
}

/// The beginning of a line, for an error message.
#[cold]
fn excerpt(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned()
}

/// Maximum number of header lines in a block.
const MAX_LINES: usize = 10_000;

const EVENT_STREAM: &[u8] = b"text/event-stream";

/// The length that a Content-Length says, if it is one (RFC 9110 §8.6).
fn number(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// Headers about the connection (RFC 9110 §7.6.1). The connection belongs to the gateway, not to the script.
fn is_of_the_connection(name: Name) -> bool {
    matches!(
        name,
        Name::Connection
            | Name::KeepAlive
            | Name::ProxyAuthenticate
            | Name::ProxyConnection
            | Name::Te
            | Name::Trailer
            | Name::TransferEncoding
            | Name::Upgrade
    )
}

/// The value of `X-Accel-Limit-Rate`; 0 and `off`: no limit. `None`: it is not a number.
fn limit_rate(value: &[u8]) -> Option<Option<NonZeroU64>> {
    if value.eq_ignore_ascii_case(b"off") {
        return Some(None);
    }
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_number)?;
    // A number that is too large is no limit.
    Some(text.parse().ok().and_then(NonZeroU64::new))
}

const LIMIT_RATE: &[u8] = b"x-accel-limit-rate";

/// `X-Sendfile`, and lighttpd's other name for it.
const SENDFILE: [&[u8]; 2] = [b"x-sendfile", b"x-lighttpd-send-file"];

/// What nginx keeps to itself, too. weir changes no character set.
const CHARSET: &[u8] = b"x-accel-charset";

/// Room for the lines of a usual head, bytes.
const USUAL: usize = 256;

/// Bytes for the headers that the gateway adds to a script's headers.
const ROOM: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn end(bytes: &[u8]) -> Option<usize> {
        end_of_head(bytes, &mut 0)
    }

    fn parse(block: &[u8]) -> Head {
        let (head, end) = super::parse(block).expect("a whole head");
        assert_eq!(end, block.len());
        head
    }

    #[test]
    fn a_head_ends_at_its_blank_line() {
        assert_eq!(end(b"A: b\r\n\r\nbody"), Some(8));
        assert_eq!(end(b"A: b\n\nbody"), Some(6));
        assert_eq!(end(b"A: b\r\n\nbody"), Some(7));
        assert_eq!(end(b"A: b\r\nC: d\r\n"), None);
        assert_eq!(end(b"A: b\r\n\r"), None);
        assert_eq!(end(b""), None);
    }

    #[test]
    fn a_head_in_pieces_ends_where_the_whole_does() {
        let whole = b"Status: 200 OK\r\nContent-Type: text/plain\r\n\r\nbody\n\nmore";
        let mut scanned = 0;
        let first = (0..=whole.len()).find_map(|len| end_of_head(&whole[..len], &mut scanned));
        assert_eq!(first, end(whole));
        for len in 0..whole.len() {
            let parsed = super::parse(&whole[..len]);
            assert_eq!(parsed.map(|(_, body)| body), end(&whole[..len]), "{len}");
        }
    }

    #[test]
    fn the_speed_is_read_as_nginx_reads_it() {
        let speed = |value: &str| {
            let head = parse(format!("x-accel-LIMIT-rate: {value}\r\n\r\n").as_bytes());
            assert_eq!(head.headers.iter().count(), 0, "{value}");
            head.bandwidth.map(|speed| speed.map_or(0, NonZeroU64::get))
        };
        assert_eq!(speed("1000"), Some(1000));
        assert_eq!(speed("0"), Some(0));
        assert_eq!(speed("off"), Some(0));
        assert_eq!(speed("99999999999999999999999"), Some(0));
        for other in ["", "-1", "+5", "1k", "5 0", "\u{663}"] {
            assert_eq!(speed(other), None, "{other}");
        }
    }

    #[test]
    fn headers_are_read_and_those_of_the_connection_left_out() {
        let head = parse(b"Content-type: text/html\nSet-Cookie: a=1\nSet-Cookie: b=2\nConnection: close\nX-Accel-Buffering: no\n\n");
        assert_eq!(head.status, 200);
        assert_eq!(head.headers.iter().count(), 3);
        assert_eq!(head.headers.all(&"set-cookie").count(), 2);
        assert_eq!(
            head.headers.lines(),
            b"Content-type: text/html\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        );
        assert_eq!(head.buffering, Some(false));
    }

    #[test]
    fn lines_are_passed_on_in_order_and_in_the_usual_spelling() {
        let head = "A:1\r\nB: 2\r\nStatus: 200\r\nC: 3\r\nD :4 \r\nE:  5\r\nContent-Length: 7\r\nF: 6\n\
                    Content-Length: 7\r\nTE: x\r\nG: \r\nH:\r\nI: 9 \r\nContent-Type: text/event-streams\r\n\r\n";
        let head = parse(head.as_bytes());
        let lines = "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\nContent-Length: 7\r\nF: 6\r\nG: \r\nH: \r\nI: 9\r\n\
                     Content-Type: text/event-streams\r\n";
        assert_eq!(String::from_utf8_lossy(head.headers.lines()), lines);
        assert!(head.headers.has(Name::ContentLength) && !head.headers.has(Name::Te));
        assert!(head.streams() && head.content_length == Some(7));
        let of = parse;
        assert!(!of(b"Content-Type: text/html\n\n").streams());
        assert!(of(b"X-Accel-Buffering: no\n\n").streams());
    }

    #[test]
    fn a_location_without_status_is_a_redirect() {
        let absolute = parse(b"Location: https://example.org/\n\n");
        assert_eq!(
            (absolute.status.as_u16(), absolute.local_redirect()),
            (302, None)
        );
        let local = parse(b"Location: /other?x=1\n\n");
        assert_eq!(local.local_redirect(), Some(&b"/other?x=1"[..]));
        let said = parse(b"Status: 302 Found\nLocation: /other\n\n");
        assert_eq!(said.local_redirect(), None);
        let elsewhere = parse(b"Location: //example.org/\n\n");
        assert_eq!(elsewhere.local_redirect(), None);
    }

    #[test]
    fn what_is_no_head_is_refused_with_its_reason() {
        let status = |text: &str| Some(Box::new(BadHead::Status(text.into())));
        for (said, text) in [
            ("99 x", "99 x"),
            (" 101", "101"),
            ("2000", "2000"),
            ("404x", "404x"),
            ("abc", "abc"),
            ("20", "20"),
            ("099", "099"),
            ("", ""),
            ("-1", "-1"),
        ] {
            let head = parse(format!("Status:{said}\r\n\r\n").as_bytes());
            assert_eq!(head.bad, status(text), "{said}");
        }
        let many: String = (0..30_000).map(|n| format!("A{n}: b\n")).collect();
        let head = parse(format!("{many}\n").as_bytes());
        assert_eq!(head.bad.as_deref(), Some(&BadHead::TooMany));
        assert_eq!(head.headers.iter().count(), MAX_LINES);
    }

    #[test]
    fn a_field_that_cannot_be_sent_is_lost_and_nothing_else() {
        for line in [
            "no colon",
            "nocolon",
            "HTTP/1.1 200 OK",
            "A b: c",
            "A(b): c",
            "A\u{1}b: c",
            "\u{e9}: c",
            ": c",
            " A: c",
            "\tA: c",
            "A: b\0c",
            "A: b\u{1}",
            "A: \u{7f}",
            "A: b\rc",
            "Set-Cookie: a=\u{1}",
            "X-Accel-Redirect: /a\u{2}",
            "X-Sendfile: /a\0",
            "Content-Length:",
            "Content-Length: -1",
            "Content-Length: +1",
            "Content-Length: 2, 2",
            "Content-Length: 0x2",
            "Content-Length: 2 2",
            "Content-Length: 99999999999999999999",
        ] {
            let head = format!("B: 1\r\n{line}\r\nC: 2\r\n\r\n");
            let head = parse(head.as_bytes());
            assert_eq!(head.headers.lines(), b"B: 1\r\nC: 2\r\n", "{line:?}");
            let lost = head.lost.as_ref().expect(line);
            assert_eq!((&*lost.line, lost.count), (line, 1));
            assert!(head.bad.is_none() && !head.answers_otherwise(), "{line:?}");
            assert_eq!(head.content_length, None);
        }
        let empty = parse(b"\r\n");
        assert!(empty.bad.is_none() && empty.lost.is_none() && empty.headers.lines().is_empty());
        let two = parse(b"x\nA: b\n:\n\n").lost.expect("two");
        assert!(two.to_string().ends_with("\"x\" and 1 more"), "{two}");
    }

    #[test]
    fn a_length_counts_only_if_all_agree() {
        for (lines, length) in [
            ("7|7", Some(7)),
            ("007|7", Some(7)),
            ("7|8", None),
            ("x|7", None),
            ("7|", None),
            ("7|8|7", None),
        ] {
            let fields = lines
                .split('|')
                .map(|value| format!("content-LENGTH: {value}\n"));
            let head = fields.collect::<String>() + "A: b\n\n";
            let head = parse(head.as_bytes());
            assert_eq!(head.content_length, length, "{lines}");
            assert_eq!(head.headers.has(Name::ContentLength), length.is_some());
            assert_eq!(head.lost.is_some(), length.is_none(), "{lines}");
            let count = head.headers.iter().count();
            assert_eq!(count, 1 + usize::from(length.is_some()), "{lines}");
        }
    }

    #[test]
    fn what_nginx_keeps_to_itself_reaches_nobody() {
        let head = parse(
            b"X-Accel-Expires: 5\r\nx-accel-charset: koi8-r\r\nX-ACCEL-Limit-Rate: 1\r\nX-Accel-Buffering: yes\r\n\
              X-Accel-Redirect: /a\r\nX-Accel-Other: 1\r\n\r\n",
        );
        assert_eq!(head.headers.lines(), b"X-Accel-Other: 1\r\n");
        assert!(head.lost.is_none());
    }
}
