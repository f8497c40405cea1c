//! The header block at the start of a script's response (RFC 3875 §6).
//!
//! Nothing from a script is trusted. Names and values that HTTP does not allow make the response invalid. Headers
//! about the connection are removed. Headers for the gateway are removed and acted on.

use std::num::NonZeroU64;

use http::StatusCode;
use weir_http::Fields;
use weir_http1::{Name, check_field, check_value};

/// A script's response head.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    /// Whether the script set a status, or its `Location` implies one.
    pub(crate) status_said: bool,
    pub(crate) headers: Fields,
    /// The length of the body, if the script set it.
    pub(crate) content_length: Option<u64>,
    /// `X-Accel-Redirect`: a URL to answer with instead (nginx's header).
    pub(crate) accel_redirect: Option<Vec<u8>>,
    /// `X-Sendfile`: a file to answer with instead (header of Apache and lighttpd).
    pub(crate) sendfile: Option<Vec<u8>>,
    /// `X-Accel-Buffering`: whether the response may be read ahead.
    pub(crate) buffering: Option<bool>,
    /// `X-Accel-Limit-Rate`: the speed of the response in bytes a second; `Some(None)`: no limit (nginx's header).
    pub(crate) bandwidth: Option<Option<NonZeroU64>>,
    /// The response is an event stream, whose parts must be passed on at once.
    is_event_stream: bool,
}

/// What happens to a line of the head.
enum Line<'l> {
    /// It is passed on as the script wrote it.
    Kept,
    /// It is passed on in the usual spelling: name and value.
    Spelled(&'l [u8], &'l [u8]),
    /// It is not passed on.
    Dropped,
}

/// Why a header block is invalid. It goes to the error log; the client gets 502.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadHead {
    /// No header at all before the blank line.
    Empty,
    /// A line without a colon, or with a name or value that HTTP does not allow.
    Line(String),
    /// `Status` is not a status from 200 to 599, or it is 1xx where that is not allowed.
    Status(String),
    /// `Content-Length` is not a number, or there are two different ones.
    ContentLength,
    /// More than [`MAX_LINES`] lines.
    TooMany,
}

/// Where the header block ends: the offset of the body's first byte. Lines end in LF or CR LF.
///
/// `scanned` is how many bytes were searched before, so that a block that arrives in pieces is searched only once.
pub(crate) fn end_of_head(bytes: &[u8], scanned: &mut usize) -> Option<usize> {
    while let Some(found) = memchr::memchr(b'\n', &bytes[*scanned..]) {
        let newline = *scanned + found;
        match bytes.get(newline + 1..) {
            Some([b'\n', ..]) => return Some(newline + 2),
            Some([b'\r', b'\n', ..]) => return Some(newline + 3),
            Some([] | [b'\r']) | None => {
                *scanned = newline;
                return None;
            }
            Some(_) if bytes[..newline] == *b"" || bytes[..newline] == *b"\r" => {
                return Some(newline + 1);
            }
            Some(_) => *scanned = newline + 1,
        }
    }
    *scanned = bytes.len();
    None
}

/// Parses a header block that ends with its blank line.
///
/// # Errors
///
/// The first problem in the block.
pub(crate) fn parse_block(block: &[u8]) -> Result<Head, BadHead> {
    let parsed = parse(block)?;
    parsed.map(|(head, _)| head).ok_or(BadHead::Empty)
}

/// Parses the header block at the beginning of `bytes`. Returns it with the offset of the body's first byte; `None` if its
/// blank line has not arrived.
///
/// # Errors
///
/// The first problem in the block.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, BadHead> {
    let mut head = Head {
        status: StatusCode::OK,
        status_said: false,
        headers: Fields::with_capacity(bytes.len().min(USUAL) + ROOM),
        content_length: None,
        accel_redirect: None,
        sendfile: None,
        buffering: None,
        bandwidth: None,
        is_event_stream: false,
    };
    // Most lines are sent as the script wrote them: those that follow one another are copied in one piece.
    let (mut lines, mut at, mut kept) = (0, 0, 0);
    let blank = loop {
        let Some(newline) = memchr::memchr(b'\n', &bytes[at..]) else {
            return Ok(None);
        };
        let end = at + newline + 1;
        let line = &bytes[at..end];
        if matches!(line, b"\r\n" | b"\n") {
            break end;
        }
        if lines == MAX_LINES {
            return Err(BadHead::TooMany);
        }
        lines += 1;
        let becomes = head.take_line(line)?;
        if !matches!(becomes, Line::Kept) {
            head.headers.append_checked(&bytes[kept..at]);
            kept = end;
        }
        if let Line::Spelled(name, value) = becomes {
            let added = head.headers.append((None, name), value);
            added.map_err(|_| BadHead::Line(excerpt(line)))?;
        }
        at = end;
    };
    head.headers.append_checked(&bytes[kept..at]);
    if lines == 0 {
        return Err(BadHead::Empty);
    }
    if !head.status_said && head.headers.has(Name::Location) {
        head.status = StatusCode::FOUND;
    }
    Ok(Some((head, blank)))
}

impl Head {
    /// A redirect within the site: only `Location`, a path, and no status (RFC 3875 §6.2.2).
    pub(crate) fn local_redirect(&self) -> Option<&[u8]> {
        let location = self.headers.get(Name::Location)?;
        let is_local = location.first() == Some(&b'/') && location.get(1) != Some(&b'/');
        (is_local && !self.status_said).then_some(location)
    }

    /// Whether the answer is not the script's output: a redirect within the site, or a file.
    pub(crate) fn answers_otherwise(&self) -> bool {
        self.accel_redirect.is_some() || self.sendfile.is_some() || self.local_redirect().is_some()
    }

    /// Whether the parts of the response are to be passed on at once.
    pub(crate) fn streams(&self) -> bool {
        self.buffering
            .map_or(self.is_event_stream, |buffering| !buffering)
    }

    fn take_line<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, BadHead> {
        let bad = || BadHead::Line(excerpt(line));
        let colon = memchr::memchr(b':', line).ok_or_else(bad)?;
        let name = line[..colon].trim_ascii_end();
        let value = line[colon + 1..].trim_ascii();
        let known = Name::of(name);
        match known {
            Some(Name::Status) => {
                self.take_status(value)?;
                return Ok(Line::Dropped);
            }
            Some(Name::ContentLength) if !self.take_length(value)? => return Ok(Line::Dropped),
            Some(Name::ContentType) if !self.headers.has(Name::ContentType) => {
                let media = value.get(..EVENT_STREAM.len());
                self.is_event_stream =
                    media.is_some_and(|media| media.eq_ignore_ascii_case(EVENT_STREAM));
            }
            Some(Name::XAccelBuffering) => {
                self.buffering = Some(!value.eq_ignore_ascii_case(b"no"));
                return Ok(Line::Dropped);
            }
            Some(name) if is_of_the_connection(name) => return Ok(Line::Dropped),
            _ => {}
        }
        let checked = match known {
            Some(_) => check_value(value),
            None => check_field(name, value),
        };
        checked.map_err(|_| bad())?;
        if known == Some(Name::XAccelRedirect) {
            self.accel_redirect = Some(value.to_vec());
            return Ok(Line::Dropped);
        }
        if known.is_none() && SENDFILE.iter().any(|is| name.eq_ignore_ascii_case(is)) {
            self.sendfile = Some(value.to_vec());
            return Ok(Line::Dropped);
        }
        if known.is_none() && name.eq_ignore_ascii_case(LIMIT_RATE) {
            // As nginx, which ignores what is no number.
            self.bandwidth = limit_rate(value).or(self.bandwidth);
            return Ok(Line::Dropped);
        }
        self.headers.note(known);
        // "Name: value" and the end of the line, without other white space.
        let is_usual = name.len() == colon
            && line[colon..].starts_with(b": ")
            && line.ends_with(b"\r\n")
            && colon + 2 + value.len() + 2 == line.len();
        Ok(match is_usual {
            true => Line::Kept,
            false => Line::Spelled(name, value),
        })
    }

    fn take_status(&mut self, value: &[u8]) -> Result<(), BadHead> {
        let bad = || BadHead::Status(excerpt(value));
        let digits = value.get(..3).ok_or_else(bad)?;
        if value.get(3).is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return Err(bad());
        }
        let status = StatusCode::from_bytes(digits).map_err(|_| bad())?;
        let is_interim = status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS;
        if !is_interim && !(200..600).contains(&status.as_u16()) {
            return Err(bad());
        }
        self.status = status;
        self.status_said = true;
        Ok(())
    }

    /// False: the length was said before.
    fn take_length(&mut self, value: &[u8]) -> Result<bool, BadHead> {
        let text = std::str::from_utf8(value).map_err(|_| BadHead::ContentLength)?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(BadHead::ContentLength);
        }
        let length: u64 = text.parse().map_err(|_| BadHead::ContentLength)?;
        if self.content_length.is_some_and(|before| before != length) {
            return Err(BadHead::ContentLength);
        }
        Ok(self.content_length.replace(length).is_none())
    }
}

impl std::fmt::Display for BadHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadHead::Empty => f.write_str("it begins with an empty line instead of headers"),
            BadHead::Line(line) => write!(f, "{line:?} is not a header line"),
            BadHead::Status(status) => {
                write!(f, "Status {status:?} must be a number from 200 to 599")
            }
            BadHead::TooMany => write!(f, "it has more than {MAX_LINES} lines"),
            BadHead::ContentLength => {
                f.write_str("its Content-Length is not a number, or there are several")
            }
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

/// Room for the lines of a usual head, bytes.
const USUAL: usize = 256;

/// Bytes for what the gateway adds to a script's headers.
const ROOM: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn end(bytes: &[u8]) -> Option<usize> {
        end_of_head(bytes, &mut 0)
    }

    fn parse(block: &[u8]) -> Result<Head, BadHead> {
        parse_block(block)
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
            let parsed = super::parse(&whole[..len]).expect("no bad line");
            assert_eq!(parsed.map(|(_, body)| body), end(&whole[..len]), "{len}");
        }
    }

    #[test]
    fn the_speed_is_read_as_nginx_reads_it() {
        let speed = |value: &str| {
            let head = parse(format!("x-accel-LIMIT-rate: {value}\r\n\r\n").as_bytes()).unwrap();
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
        let head = parse(b"Content-type: text/html\nSet-Cookie: a=1\nSet-Cookie: b=2\nConnection: close\nX-Accel-Buffering: no\n\n").unwrap();
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
        let head = parse(head.as_bytes()).expect("a head");
        let lines = "A: 1\r\nB: 2\r\nC: 3\r\nD: 4\r\nE: 5\r\nContent-Length: 7\r\nF: 6\r\nG: \r\nH: \r\nI: 9\r\n\
                     Content-Type: text/event-streams\r\n";
        assert_eq!(String::from_utf8_lossy(head.headers.lines()), lines);
        assert!(head.headers.has(Name::ContentLength) && !head.headers.has(Name::Te));
        assert!(head.streams() && head.content_length == Some(7));
        let of = |head: &[u8]| parse(head).expect("a head");
        assert!(!of(b"Content-Type: text/html\n\n").streams());
        assert!(of(b"X-Accel-Buffering: no\n\n").streams());
    }

    #[test]
    fn a_location_without_status_is_a_redirect() {
        let absolute = parse(b"Location: https://example.org/\n\n").unwrap();
        assert_eq!(
            (absolute.status.as_u16(), absolute.local_redirect()),
            (302, None)
        );
        let local = parse(b"Location: /other?x=1\n\n").unwrap();
        assert_eq!(local.local_redirect(), Some(&b"/other?x=1"[..]));
        let said = parse(b"Status: 302 Found\nLocation: /other\n\n").unwrap();
        assert_eq!(said.local_redirect(), None);
        let elsewhere = parse(b"Location: //example.org/\n\n").unwrap();
        assert_eq!(elsewhere.local_redirect(), None);
    }

    #[test]
    fn what_is_no_head_is_refused_with_its_reason() {
        let refused = |text: &[u8]| parse(text).err();
        assert_eq!(refused(b"\n"), Some(BadHead::Empty));
        assert_eq!(refused(b"<html>\n\n"), Some(BadHead::Line("<html>".into())));
        assert_eq!(refused(b"A b: c\n\n"), Some(BadHead::Line("A b: c".into())));
        assert_eq!(
            refused(b"Status: 99 x\n\n"),
            Some(BadHead::Status("99 x".into()))
        );
        assert_eq!(
            refused(b"Status: 600\n\n"),
            Some(BadHead::Status("600".into()))
        );
        assert_eq!(
            refused(b"Status: 101\n\n"),
            Some(BadHead::Status("101".into()))
        );
        assert_eq!(
            refused(b"Status: 2000\n\n"),
            Some(BadHead::Status("2000".into()))
        );
        assert_eq!(
            refused(b"Content-Length: -1\n\n"),
            Some(BadHead::ContentLength)
        );
        assert_eq!(
            refused(b"Content-Length: 1\nContent-Length: 2\n\n"),
            Some(BadHead::ContentLength)
        );
        assert!(refused(b"A: b\x00c\n\n").is_some());
        let many: String = (0..30_000).map(|n| format!("A{n}: b\n")).collect();
        assert_eq!(refused(many.as_bytes()), Some(BadHead::TooMany));
    }
}
