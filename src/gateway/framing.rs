//! Finds where a client's messages begin and end, before hyper reads them (RFC 9112 §2 to §7).
//!
//! hyper gets one message at a time and nothing after it. The next one waits until the kernel has the answer, so that
//! nothing of it can get between two parts of that answer. Input that could block a reactor (endless chunk lengths),
//! or that other programs may read differently (bare line feeds in chunks, two lengths), is refused here.
//!
//! [`Framing`] is not a full parser: hyper parses what passes, and refuses other errors. It gets bytes and says how
//! many of them belong to the message. It does no I/O and keeps no bytes.

use std::ops::Range;

use http::{StatusCode, uri::PathAndQuery};

/// The position within the messages of one connection.
#[derive(Debug)]
pub(crate) struct Framing {
    state: State,
    /// A message was passed, and the kernel does not have its answer yet.
    answer_is_due: bool,
    /// Maximum size of a head, bytes.
    max_head: usize,
}

/// What to do with bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This many bytes, from the first one on, belong to the message: give them to hyper.
    Pass(usize),
    /// They are the beginning of a head. Call again with more bytes after them.
    More,
    /// The head's target is complete, in a spelling that hyper would not accept. Replace it with [`encoded`], and
    /// call again with all bytes.
    Encode(Range<usize>),
    /// The head is refused; the connection cannot continue.
    Refuse(Refused),
    /// They are not valid within the current body, and why.
    Bad(&'static str),
}

/// Why bytes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    /// One word for the logs.
    pub(crate) reason: &'static str,
    pub(crate) why: &'static str,
}

#[derive(Debug)]
enum State {
    /// Before or within a head, which is checked line by line.
    Head(Head),
    /// Within a body: this many bytes are missing.
    Length(u64),
    /// Within a chunked body.
    Chunks(Chunks),
    /// After a message whose answer is due.
    Done,
    /// hyper will refuse the message, whatever follows.
    Opaque,
    /// The body is invalid.
    Bad(&'static str),
}

/// The state of a head that has not arrived completely.
#[derive(Debug, Default)]
struct Head {
    /// Where the current line begins.
    line: usize,
    /// Up to where its end was searched.
    searched: usize,
    /// The request line has been seen.
    is_begun: bool,
    /// Its target was replaced by another spelling.
    is_encoded: bool,
    length: Option<u64>,
    coding: Option<Coding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    Other,
}

/// The position within a chunked body (RFC 9112 §7.1).
#[derive(Debug)]
struct Chunks {
    at: At,
    /// Bytes of the current chunk that are missing.
    left: u64,
    /// Digits of its length so far.
    digits: usize,
    /// Bytes on the length lines, besides the digits that the lengths need.
    extra: usize,
    /// Bytes of trailers so far.
    trailers: usize,
    /// Maximum number of bytes of trailers.
    max_trailers: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Length,
    /// After the digits: white space, extensions.
    Extension,
    LengthLf,
    Data,
    DataCr,
    DataLf,
    /// At the first byte of a trailer, or of the empty line at the end.
    TrailerStart,
    Trailer,
    TrailerLf,
    LastLf,
}

/// The result of reading the lines of a head.
enum Lines {
    /// The head is complete and has this many bytes.
    Whole(usize),
    More,
    Encode(Range<usize>),
    /// hyper will refuse it.
    Odd,
}

impl Framing {
    /// `max_head`: maximum size of the connection's heads, bytes.
    pub(crate) fn new(max_head: usize) -> Framing {
        Framing {
            state: State::Head(Head::default()),
            answer_is_due: false,
            max_head,
        }
    }

    /// Checks the bytes that follow the passed ones. Within a head they start at the beginning of the head.
    pub(crate) fn look(&mut self, bytes: &[u8]) -> Verdict {
        let mut passed = 0;
        loop {
            let rest = &bytes[passed..];
            match &mut self.state {
                State::Opaque => return Verdict::Pass(bytes.len()),
                State::Bad(why) if passed == 0 => return Verdict::Bad(why),
                State::Head(head) if passed == 0 => match head.look(rest, self.max_head) {
                    Lines::Whole(length) => {
                        self.state = match head.body(self.max_head) {
                            Ok(state) => state,
                            Err(refused) => return Verdict::Refuse(refused),
                        };
                        self.answer_is_due = true;
                        passed = length;
                    }
                    Lines::Encode(target) => {
                        *head = Head {
                            is_encoded: true,
                            ..Head::default()
                        };
                        return Verdict::Encode(target);
                    }
                    Lines::More => return Verdict::More,
                    Lines::Odd => self.state = State::Opaque,
                },
                State::Length(0) => self.end(),
                State::Length(left) => {
                    if rest.is_empty() {
                        return Verdict::Pass(passed);
                    }
                    let count = (rest.len() as u64).min(*left);
                    *left -= count;
                    passed += count as usize;
                }
                State::Chunks(chunks) => {
                    if rest.is_empty() {
                        return Verdict::Pass(passed);
                    }
                    let (count, end) = chunks.look(rest);
                    passed += count;
                    match end {
                        Some(Ok(())) => self.end(),
                        Some(Err(why)) => self.state = State::Bad(why),
                        None => {}
                    }
                }
                // What follows belongs to the next message, or is invalid.
                State::Head(_) | State::Done | State::Bad(_) => return Verdict::Pass(passed),
            }
        }
    }

    /// Whether the message is complete and its answer is due: what arrives now is read ahead.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// The kernel has the answer to the message that was passed.
    pub(crate) fn answered(&mut self) {
        self.answer_is_due = false;
        if self.is_done() {
            self.end();
        }
    }

    fn end(&mut self) {
        self.state = match self.answer_is_due {
            true => State::Done,
            false => State::Head(Head::default()),
        };
    }
}

impl Head {
    /// Checks the lines that are new; `bytes` is all of the head so far.
    fn look(&mut self, bytes: &[u8], max: usize) -> Lines {
        loop {
            let from = self.searched.max(self.line);
            let Some(end) = memchr::memchr(b'\n', &bytes[from..]).map(|end| from + end) else {
                self.searched = bytes.len();
                // If a head is too large or cannot start with a method, hyper need not see more of it.
                let hopeless = bytes.len() >= max
                    || (!self.is_begun
                        && bytes.get(self.line).is_some_and(|byte| {
                            !byte.is_ascii_alphabetic() && !matches!(byte, b'\r' | b'_' | b'-')
                        }));
                return if hopeless { Lines::Odd } else { Lines::More };
            };
            let begin = std::mem::replace(&mut self.line, end + 1);
            let line = &bytes[begin..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match line.first() {
                None if self.is_begun => return Lines::Whole(end + 1),
                // Empty lines before a request are ignored (RFC 9112 §2.2).
                None => {}
                Some(_) if !self.is_begun => {
                    let Some(target) = target(line) else {
                        return Lines::Odd;
                    };
                    if !self.is_encoded && needs_encoding(&line[target.clone()]) {
                        return Lines::Encode(begin + target.start..begin + target.end);
                    }
                    self.is_begun = true;
                }
                Some(b't' | b'T' | b'c' | b'C') if !self.field(line) => return Lines::Odd,
                // Folded line: it continues the line before (RFC 9112 §5.2).
                Some(b' ' | b'\t') => return Lines::Odd,
                Some(_) => {}
            }
        }
    }

    /// Notes a field that determines the length of the body; false: hyper will refuse it.
    fn field(&mut self, line: &[u8]) -> bool {
        if let Some(value) = value(line, b"transfer-encoding") {
            self.coding = match self.coding {
                None if value.eq_ignore_ascii_case(b"chunked") => Some(Coding::Chunked),
                _ => Some(Coding::Other),
            };
        } else if let Some(value) = value(line, b"content-length") {
            let length = number(value);
            if length.is_none() || (self.length.is_some() && self.length != length) {
                return false;
            }
            self.length = length;
        }
        true
    }

    /// What follows the head (RFC 9112 §6.3).
    fn body(&self, max_trailers: usize) -> Result<State, Refused> {
        match (self.coding, self.length) {
            // A proxy in front of weir may use either of them (§6.1).
            (Some(_), Some(_)) => Err(Refused {
                status: StatusCode::BAD_REQUEST,
                reason: "bad_head",
                why: "Content-Length and Transfer-Encoding in one request",
            }),
            (Some(Coding::Other), None) => Err(Refused {
                status: StatusCode::NOT_IMPLEMENTED,
                reason: "transfer_encoding",
                why: "a Transfer-Encoding other than chunked",
            }),
            (Some(Coding::Chunked), None) => Ok(State::Chunks(Chunks::new(max_trailers))),
            (None, length) => Ok(State::Length(length.unwrap_or(0))),
        }
    }
}

impl Chunks {
    fn new(max_trailers: usize) -> Chunks {
        Chunks {
            at: At::Length,
            left: 0,
            digits: 0,
            extra: 0,
            trailers: 0,
            max_trailers,
        }
    }

    /// How many of these bytes belong to the body, and whether the body ends there or the next byte is invalid.
    fn look(&mut self, bytes: &[u8]) -> (usize, Option<Result<(), &'static str>>) {
        let mut index = 0;
        while let Some(&byte) = bytes.get(index) {
            let next = match (self.at, byte) {
                (At::Data, _) => {
                    let count = ((bytes.len() - index) as u64).min(self.left);
                    self.left -= count;
                    index += count as usize;
                    if self.left == 0 {
                        self.at = At::DataCr;
                    }
                    continue;
                }
                (At::LastLf, b'\n') => return (index + 1, Some(Ok(()))),
                (at, byte) => self.step(at, byte),
            };
            match next {
                Ok(at) => self.at = at,
                Err(why) => return (index, Some(Err(why))),
            }
            index += 1;
        }
        (index, None)
    }

    fn step(&mut self, at: At, byte: u8) -> Result<At, &'static str> {
        const BARE_LF: &str = "a bare line feed between chunks or in trailers";
        const NO_LENGTH: &str = "a chunk without a length";
        Ok(match (at, byte) {
            (_, b'\n') if !at.ends_with_lf() => return Err(BARE_LF),
            (At::Length, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.left = self
                    .left
                    .checked_mul(16)
                    .ok_or("a chunk's length that does not fit in 64 bits")?
                    + u64::from(digit);
                self.digits += 1;
                if self.digits > DIGITS {
                    self.more(1)?;
                }
                At::Length
            }
            (At::Length, _) if self.digits == 0 => return Err(NO_LENGTH),
            (At::Length | At::Extension, b'\r') => At::LengthLf,
            (At::Length, b' ' | b'\t' | b';') | (At::Extension, _) => {
                self.more(1)?;
                At::Extension
            }
            (At::Length, _) => return Err("a chunk's length that is not a number"),
            (At::LengthLf, b'\n') => {
                self.digits = 0;
                match self.left {
                    0 => At::TrailerStart,
                    _ => At::Data,
                }
            }
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Length,
            (At::TrailerStart, b'\r') => At::LastLf,
            (At::TrailerStart | At::Trailer, byte) => {
                self.trailers += 1;
                if self.trailers > self.max_trailers {
                    return Err("trailers larger than max_head");
                }
                match byte {
                    b'\r' => At::TrailerLf,
                    _ => At::Trailer,
                }
            }
            (At::TrailerLf, b'\n') => At::TrailerStart,
            (At::LengthLf | At::TrailerLf | At::LastLf, _) => {
                return Err("a carriage return without a line feed");
            }
            (At::Data | At::DataCr | At::DataLf, _) => {
                return Err("a chunk that is longer than its length");
            }
        })
    }

    fn more(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.extra += bytes;
        match self.extra > MAX_EXTRA {
            true => Err("chunks with more than 16 KB of extensions, white space and zeros"),
            false => Ok(()),
        }
    }
}

impl At {
    /// Whether the next byte must be a line feed.
    fn ends_with_lf(self) -> bool {
        matches!(self, At::LengthLf | At::DataLf | At::TrailerLf | At::LastLf)
    }
}

/// A target in a spelling that hyper accepts: characters that a URI may not have are percent-encoded, and a fragment
/// is removed.
pub(crate) fn encoded(target: &[u8]) -> Vec<u8> {
    let path = path(target);
    let mut text = target[..path.start].to_vec();
    for &byte in &target[path] {
        match byte {
            b'#' => break,
            b'!' | b'$'..=b';' | b'=' | b'?'..=b']' | b'_' | b'a'..=b'z' | b'|' | b'~' => {
                text.push(byte);
            }
            byte => text.extend_from_slice(&[
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]),
        }
    }
    text
}

/// Where path and query are in a target: all of it, or what follows the authority (RFC 9112 §3.2.2).
pub(crate) fn path(target: &[u8]) -> Range<usize> {
    let begin = match memchr::memmem::find(target, b"://") {
        Some(scheme) if target.first() != Some(&b'/') => {
            let authority = scheme + 3;
            let ends = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
            let rest = target[authority..].iter().position(ends);
            rest.map_or(target.len(), |rest| authority + rest)
        }
        _ => 0,
    };
    begin..target.len()
}

/// Where the target is in a request line of HTTP/1; `None` if it is not a request line.
fn target(line: &[u8]) -> Option<Range<usize>> {
    let method = memchr::memchr(b' ', line)?;
    let end = line.len().checked_sub(b" HTTP/1.1".len())?;
    let begin = method + 1;
    (begin < end && line[end..].starts_with(b" HTTP/1.")).then_some(begin..end)
}

/// Whether nginx accepts a target that hyper refuses. Both refuse control characters and spaces.
fn needs_encoding(target: &[u8]) -> bool {
    if target.iter().all(|byte| PLAIN[usize::from(*byte)]) {
        return false;
    }
    let printable = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    let path = &target[path(target)];
    target.iter().all(printable)
        && (path.contains(&b'#') || PathAndQuery::try_from(path).is_err())
        && matches!(path.first(), Some(b'/' | b'?'))
}

/// The value of the field with this name.
fn value<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (is, value) = line.split_at_checked(name.len())?;
    let value = value.strip_prefix(b":")?;
    is.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// A length (RFC 9112 §6.2). hyper reserves the highest numbers for itself.
fn number(value: &[u8]) -> Option<u64> {
    if !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    (number < u64::MAX - 2).then_some(number)
}

/// Bytes that need no further check in a target.
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let is = byte as u8;
        plain[byte] = is.is_ascii_alphanumeric()
            || matches!(
                is,
                b'!' | b'$'..=b'/' | b':' | b';' | b'=' | b'?' | b'@' | b'[' | b']' | b'_' | b'~'
            );
        byte += 1;
    }
    plain
};

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Digits of the largest length; leading zeros count for [`MAX_EXTRA`].
const DIGITS: usize = 16;

/// How many bytes besides the lengths all length lines of a body may have. hyper reads them byte by byte.
const MAX_EXTRA: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Splits `bytes`, which arrive in pieces of these sizes, into messages. Each is answered when it is complete.
    /// Also returns why it stopped.
    fn messages(bytes: &[u8], pieces: &[usize]) -> (Vec<Vec<u8>>, Option<Verdict>) {
        let mut framing = Framing::new(1000);
        let (mut all, mut message, mut ahead) = (Vec::new(), Vec::new(), Vec::new());
        let mut rest = bytes;
        let mut pieces = pieces.iter().copied().cycle();
        loop {
            if framing.is_done() {
                all.push(std::mem::take(&mut message));
                framing.answered();
            }
            match framing.look(&ahead) {
                Verdict::Pass(0) | Verdict::More => {
                    if framing.is_done() {
                        continue;
                    }
                    if rest.is_empty() {
                        return (all, None);
                    }
                    let (piece, more) =
                        rest.split_at(pieces.next().unwrap_or(1).clamp(1, rest.len()));
                    ahead.extend_from_slice(piece);
                    rest = more;
                }
                Verdict::Pass(count) => message.extend(ahead.drain(..count)),
                Verdict::Encode(at) => {
                    let better = encoded(&ahead[at.clone()]);
                    ahead.splice(at, better);
                }
                verdict => return (all, Some(verdict)),
            }
        }
    }

    #[track_caller]
    fn expect_one(bytes: &str) {
        let (all, end) = messages(bytes.as_bytes(), &[usize::MAX]);
        assert_eq!(end, None, "{bytes:?}");
        let all: Vec<_> = all.iter().map(|one| String::from_utf8_lossy(one)).collect();
        assert_eq!(all, [bytes], "{bytes:?}");
    }

    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn messages_end_where_they_say() {
        expect_one("GET / HTTP/1.1\r\n\r\n");
        expect_one("GET / HTTP/1.0\n\n");
        expect_one("\r\n\nGET / HTTP/1.1\r\nHost: a\n\r\n");
        expect_one("POST / HTTP/1.1\r\ncontent-LENGTH:\t5 \r\n\r\nhello");
        expect_one("POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello");
        expect_one("POST / HTTP/1.1\r\nContent-Length-X: 5\r\nContent-Lengt: 5\r\n\r\n");
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "00000000000000000000000000000005 \t;a=\"b\"\r\nhello\r\n0;x\r\nX: y\r\nZ: \r\n\r\n",
            "A\r\n0123456789\r\n1\r\n\n\r\n0\r\n\r\n",
        ] {
            expect_one(&format!("{CHUNKED}{body}"));
        }
    }

    #[test]
    fn what_is_ambiguous_or_without_end_is_refused() {
        let end = |bytes: &str| messages(bytes.as_bytes(), &[usize::MAX]);
        for both in [
            "Content-Length: 5\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
        ] {
            let (all, end) = end(&format!("POST / HTTP/1.1\r\n{both}\r\n\r\n"));
            assert!(
                all.is_empty() && matches!(end, Some(Verdict::Refuse(_))),
                "{both:?}"
            );
        }
        let (_, coding) = end("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n");
        let Some(Verdict::Refuse(refused)) = coding else {
            panic!("{coding:?}");
        };
        assert_eq!(refused.status, StatusCode::NOT_IMPLEMENTED);
        let long = "x".repeat(MAX_EXTRA + 1);
        for body in [
            "\r\n".to_owned(),
            ";x\r\n".to_owned(),
            " 5\r\n".to_owned(),
            "g\r\n".to_owned(),
            "5\n".to_owned(),
            "5\r\r\n".to_owned(),
            "5\r\nhello!\r\n".to_owned(),
            "5\r\nhello\n".to_owned(),
            "5\r\nhello\r\r\n".to_owned(),
            "10000000000000000\r\n".to_owned(),
            "0\r\n\n".to_owned(),
            "0\r\nX: y\n".to_owned(),
            "0\r\nX: y\r\r\n".to_owned(),
            "0\r\n\r\r\n".to_owned(),
            format!("5;{long}"),
            "0".repeat(MAX_EXTRA + DIGITS + 1),
            format!("5{}", " ".repeat(MAX_EXTRA + 1)),
            "00000000000000001;\r\nx\r\n".repeat(MAX_EXTRA),
            format!("0\r\n{}", "X: y\r\n".repeat(1000)),
        ] {
            let (all, end) = end(&format!("{CHUNKED}{body}"));
            assert!(
                all.is_empty() && matches!(end, Some(Verdict::Bad(_))),
                "{body:.40?}: {end:?}"
            );
        }
    }

    #[test]
    fn what_hyper_refuses_it_gets() {
        for head in [
            "\x16\x03\x01\x02",
            "GET /\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "GET / HTTP/1.1\r\n folded: 1\r\n",
            "POST / HTTP/1.1\r\nContent-Length: +5\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n",
        ] {
            let mut framing = Framing::new(1000);
            assert_eq!(
                framing.look(head.as_bytes()),
                Verdict::Pass(head.len()),
                "{head:?}"
            );
        }
        let mut framing = Framing::new(1000);
        assert_eq!(framing.look(&[b'X'; 999]), Verdict::More);
        assert_eq!(framing.look(&[b'X'; 1000]), Verdict::Pass(1000));
    }

    #[test]
    fn targets_get_a_spelling_that_hyper_reads() {
        let encoded = |target: &[u8]| String::from_utf8(encoded(target)).unwrap();
        assert_eq!(encoded(b"/a\"b?c=\xff#d"), "/a%22b?c=%FF");
        assert_eq!(encoded(b"http://a?x=<y>"), "http://a?x=%3Cy%3E");
        assert_eq!(encoded(b"/a?b=http://c\"/d"), "/a?b=http://c%22/d");
        assert!(!needs_encoding("/ä?ö".as_bytes()));
        assert!(!needs_encoding(b"/a b") && !needs_encoding(b"/a\x7f") && !needs_encoding(b"x<y"));
        assert!(needs_encoding(b"/a\xff") && needs_encoding(b"/#") && needs_encoding(b"/?\""));
        let mut framing = Framing::new(1000);
        let head = b"\r\nGET /< HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(framing.look(head), Verdict::Encode(6..8));
    }

    fn message() -> impl Strategy<Value = String> {
        let chunks = prop::collection::vec("[a-z\r\n]{1,40}", 0..4);
        prop_oneof![
            "[a-z]{0,30}".prop_map(|path| format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n")),
            "(?s).{0,60}".prop_map(|body| format!(
                "\r\nPOST / HTTP/1.1\nContent-Length: {}\n\n{body}",
                body.len()
            )),
            (chunks, "( ?;[a-z]{1,9})?", "([A-Z]: [a-z]\r\n){0,2}").prop_map(
                |(chunks, extension, trailers)| {
                    let chunks = chunks
                        .iter()
                        .map(|chunk| format!("{:x}{extension}\r\n{chunk}\r\n", chunk.len()));
                    format!(
                        "{CHUNKED}{}0{extension}\r\n{trailers}\r\n",
                        chunks.collect::<String>()
                    )
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn messages_are_the_same_in_any_pieces(
            all in prop::collection::vec(message(), 0..5),
            pieces in prop::collection::vec(1..50usize, 1..9),
        ) {
            let (found, end) = messages(all.concat().as_bytes(), &pieces);
            prop_assert_eq!(end, None);
            let found: Vec<_> = found.into_iter().map(|one| String::from_utf8(one).unwrap()).collect();
            prop_assert_eq!(found, all);
        }

        #[test]
        fn any_bytes_pass_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = messages(&bytes, &[7, 1]);
            let _ = messages(&[CHUNKED.as_bytes(), &bytes].concat(), &[7, 1]);
            let _ = messages(&[b"GET /", &bytes[..], b" HTTP/1.1\r\n\r\n"].concat(), &[7, 1]);
        }
    }
}
