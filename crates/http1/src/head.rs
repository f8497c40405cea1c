//! Heads: the first line, the fields, and what they mean for the connection.

use core::ops::Range;

use crate::{Error, Name, ParsedFields, decoder::ReadHead, swar};

/// The limits for the heads of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head, its first line included; also of the trailers. At most 16 MiB are used.
    pub head: u32,
    /// Fields of a head.
    pub fields: u32,
    /// Bytes of chunk extensions, white space and superfluous zeros in one body.
    pub chunk_extensions: u32,
}

impl Default for Limits {
    /// 64 KiB, 100 fields, 16 KiB.
    fn default() -> Limits {
        Limits {
            head: 64 * 1024,
            fields: 100,
            chunk_extensions: 16 * 1024,
        }
    }
}

impl Limits {
    pub(crate) fn head(&self) -> usize {
        self.head.min(16 << 20) as usize
    }
}

/// The version of a message. A higher minor version is taken as 1.1 (RFC 9110 §2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the version of that number")]
pub enum Version {
    Http10,
    #[default]
    Http11,
}

/// A method (RFC 9110 §9). Methods are case-sensitive: `get` is not GET.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the method of that name")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Connect,
    Options,
    Trace,
    Patch,
    /// Another one: [`RequestHead::method_bytes`].
    Other,
}

impl Method {
    fn of(bytes: &[u8]) -> Method {
        match bytes {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }
}

/// The form of a target (RFC 9112 §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// `/path?query`
    #[default]
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, of CONNECT only.
    Authority,
    /// `*`, of OPTIONS only.
    Asterisk,
}

/// How the end of a body is found (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// After so many bytes.
    Known(u64),
    /// By the last chunk.
    Chunked,
    /// By the end of the connection; of responses only.
    UntilClose,
}

impl BodyLength {
    /// No body.
    pub const NONE: BodyLength = BodyLength::Known(0);
}

/// What a request expects before it sends its body (RFC 9110 §10.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    #[default]
    Nothing,
    /// An interim answer of 100.
    Continue,
    /// Something else. A server may answer 417.
    Other,
}

/// The head of a request. Use one again for the next request: it keeps its room.
#[derive(Clone, Debug)]
pub struct RequestHead {
    fields: ParsedFields,
    method: Method,
    method_len: u16,
    version: Version,
    target: Target,
    expect: Expect,
    is_persistent: bool,
    is_upgrade: bool,
    target_start: u32,
    target_len: u32,
    body: BodyLength,
}

impl Default for RequestHead {
    fn default() -> RequestHead {
        RequestHead {
            fields: ParsedFields::default(),
            method: Method::Get,
            method_len: 0,
            version: Version::Http11,
            target: Target::Origin,
            expect: Expect::Nothing,
            is_persistent: false,
            is_upgrade: false,
            target_start: 0,
            target_len: 0,
            body: BodyLength::NONE,
        }
    }
}

impl RequestHead {
    /// Its fields.
    #[must_use]
    pub fn fields(&self) -> &ParsedFields {
        &self.fields
    }

    /// Takes the fields, and the bytes of the head with them: method and target have to be read before. `spare` gives its
    /// room to the next head.
    #[must_use]
    pub fn take_fields(&mut self, mut spare: ParsedFields) -> ParsedFields {
        spare.clear();
        self.method_len = 0;
        self.target_start = 0;
        self.target_len = 0;
        core::mem::replace(&mut self.fields, spare)
    }

    /// Its method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// Its method as received: a token.
    #[must_use]
    pub fn method_bytes(&self) -> &[u8] {
        &self.fields.as_bytes()[..usize::from(self.method_len)]
    }

    /// Its target as received: no control characters, no spaces; other bytes as they came, a fragment too.
    #[must_use]
    pub fn target_bytes(&self) -> &[u8] {
        &self.fields.as_bytes()[self.target_start as usize..][..self.target_len as usize]
    }

    /// The form of the target.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// The host and port in the target, which count more than `Host` (RFC 9112 §3.2.2); None: it has the origin or the
    /// asterisk form.
    #[must_use]
    pub fn target_authority(&self) -> Option<&[u8]> {
        let target = self.target_bytes();
        match self.target {
            Target::Absolute => Some(&target[authority(target)?]),
            Target::Authority => Some(target),
            Target::Origin | Target::Asterisk => None,
        }
    }

    /// Path and query of the target, as received. Empty where an absolute target has none (it means `/`), and for
    /// CONNECT.
    #[must_use]
    pub fn path_and_query(&self) -> &[u8] {
        &self.fields.as_bytes()[self.path_and_query_range()]
    }

    /// Where they are in [`ParsedFields::as_bytes`].
    #[must_use]
    pub fn path_and_query_range(&self) -> Range<usize> {
        let start = self.target_start as usize;
        let end = start + self.target_len as usize;
        match self.target {
            Target::Origin | Target::Asterisk => start..end,
            Target::Absolute => {
                let origin = authority(self.target_bytes()).map_or(end - start, |range| range.end);
                start + origin..end
            }
            Target::Authority => end..end,
        }
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// How the end of its body is found.
    #[must_use]
    pub fn body(&self) -> BodyLength {
        self.body
    }

    /// Whether it has a body.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.body != BodyLength::NONE
    }

    /// What the client waits for before it sends the body. With HTTP/1.0, or without a body, it waits for nothing.
    #[must_use]
    pub fn expect(&self) -> Expect {
        self.expect
    }

    /// Whether the client wants to use the connection again (RFC 9112 §9.3).
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Whether the client offers another protocol on this connection (RFC 9110 §7.8).
    #[must_use]
    pub fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }

    /// Forgets the request and keeps the room.
    pub fn clear(&mut self) {
        let mut fields = core::mem::take(&mut self.fields);
        fields.clear();
        *self = RequestHead {
            fields,
            ..RequestHead::default()
        };
    }

    /// Gives back all memory.
    pub fn release(&mut self) {
        *self = RequestHead::default();
    }

    fn begins_with(&mut self, line: &RequestLine) {
        self.method = line.method;
        self.method_len = line.method_len;
        self.version = line.version;
        self.target = line.form;
        self.target_start = line.target.start as u32;
        self.target_len = line.target.len() as u32;
    }
}

impl ReadHead for RequestHead {
    fn first_line(line: &[u8]) -> Result<(), Error> {
        RequestLine::read(line).map(drop)
    }

    fn read_plain(&mut self, bytes: &[u8], limits: &Limits) -> Option<usize> {
        let line = RequestLine::plain(bytes)?;
        let end = self.fields.read_plain(bytes, line.end, limits)?;
        self.begins_with(&line);
        Some(end)
    }

    fn read(&mut self, head: &[u8], limits: &Limits) -> Result<(), Error> {
        let line = RequestLine::read(head)?;
        self.fields.read(head, line.end, limits.fields as usize)?;
        self.begins_with(&line);
        Ok(())
    }

    fn body(&mut self) -> Result<Option<BodyLength>, Error> {
        let fields = &self.fields;
        let mut hosts = fields.all(Name::Host);
        match (hosts.next(), hosts.next(), self.version) {
            (None, _, Version::Http11) => return Err(Error::HostMissing),
            (_, Some(_), _) => return Err(Error::HostRepeated),
            _ => {}
        }
        self.body = framing(fields, self.version)?.unwrap_or(BodyLength::NONE);
        self.is_persistent = is_persistent(fields, self.version);
        self.is_upgrade = self.version == Version::Http11
            && fields.has(Name::Upgrade)
            && fields.has_token(Name::Connection, "upgrade");
        self.expect = match fields.get(Name::Expect) {
            Some(value) if self.version == Version::Http11 && self.has_body() => {
                match value.eq_ignore_ascii_case(b"100-continue") {
                    true => Expect::Continue,
                    false => Expect::Other,
                }
            }
            _ => Expect::Nothing,
        };
        Ok(Some(self.body))
    }
}

/// The head of a response. Use one again for the next response: it keeps its room.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    fields: ParsedFields,
    status: u16,
    version: Version,
    is_persistent: bool,
    body: BodyLength,
}

impl Default for ResponseHead {
    fn default() -> ResponseHead {
        ResponseHead {
            fields: ParsedFields::default(),
            status: 0,
            version: Version::Http11,
            is_persistent: false,
            body: BodyLength::NONE,
        }
    }
}

impl ResponseHead {
    /// Its fields.
    #[must_use]
    pub fn fields(&self) -> &ParsedFields {
        &self.fields
    }

    /// Its status, 100 to 999.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether another response to the same request follows (RFC 9110 §15.2). 101 ends HTTP on the connection.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// How the end of its body is found.
    #[must_use]
    pub fn body(&self) -> BodyLength {
        self.body
    }

    /// Whether the connection can be used again after it (RFC 9112 §9.3).
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Gives back all memory.
    pub fn release(&mut self) {
        *self = ResponseHead::default();
    }
}

/// The head of the response to a request of this method.
pub(crate) struct ResponseTo<'h> {
    pub(crate) head: &'h mut ResponseHead,
    pub(crate) method: Method,
}

impl ReadHead for ResponseTo<'_> {
    fn first_line(line: &[u8]) -> Result<(), Error> {
        StatusLine::read(line).map(drop)
    }

    fn read_plain(&mut self, bytes: &[u8], limits: &Limits) -> Option<usize> {
        let line = StatusLine::read(bytes).ok()?;
        let end = self.head.fields.read_plain(bytes, line.end, limits)?;
        (self.head.status, self.head.version) = (line.status, line.version);
        Some(end)
    }

    fn read(&mut self, head: &[u8], limits: &Limits) -> Result<(), Error> {
        let line = StatusLine::read(head)?;
        let fields = &mut self.head.fields;
        fields.read(head, line.end, limits.fields as usize)?;
        (self.head.status, self.head.version) = (line.status, line.version);
        Ok(())
    }

    fn body(&mut self) -> Result<Option<BodyLength>, Error> {
        let head = &mut *self.head;
        // Checked also where there can be no body: a peer that contradicts itself is not trusted.
        let (framing, is_clear) = response_framing(&head.fields, head.version)?;
        head.body = match (head.status, self.method) {
            (100..=199 | 204 | 304, _) | (_, Method::Head) => BodyLength::NONE,
            (200..=299, Method::Connect) => BodyLength::NONE,
            _ => framing.unwrap_or(BodyLength::UntilClose),
        };
        head.is_persistent = is_clear
            && is_persistent(&head.fields, head.version)
            && head.body != BodyLength::UntilClose;
        Ok((!head.is_interim()).then_some(head.body))
    }
}

/// The first line of a request (RFC 9112 §3).
pub(crate) struct RequestLine {
    method: Method,
    method_len: u16,
    target: Range<usize>,
    form: Target,
    version: Version,
    /// Where the next line begins.
    end: usize,
}

impl RequestLine {
    /// Reads the line that the bytes begin with, which must be whole.
    pub(crate) fn read(bytes: &[u8]) -> Result<RequestLine, Error> {
        if let Some(line) = RequestLine::plain(bytes) {
            return Ok(line);
        }
        let (line, end) = line(bytes)?;
        let space = memchr::memchr(b' ', line).ok_or(Error::StartLine)?;
        let (method, rest) = (&line[..space], &line[space + 1..]);
        if method.is_empty() || !method.iter().copied().all(is_token) {
            return Err(Error::StartLine);
        }
        let last = memchr::memrchr(b' ', rest).ok_or(Error::StartLine)?;
        let target = &rest[..last];
        let version = version(&rest[last + 1..])?;
        if target.is_empty() {
            return Err(Error::StartLine);
        }
        if !target.iter().all(|byte| *byte > b' ' && *byte != 0x7f) {
            return Err(Error::Target);
        }
        let kind = Method::of(method);
        Ok(RequestLine {
            method: kind,
            method_len: u16::try_from(method.len()).map_err(|_| Error::StartLine)?,
            form: form(kind, target)?,
            target: space + 1..space + 1 + target.len(),
            version,
            end,
        })
    }
}

impl RequestLine {
    /// Reads a line as nearly all clients write it. `None`: [`Self::read`] must read the line, or tell the mistake.
    fn plain(bytes: &[u8]) -> Option<RequestLine> {
        let space = bytes.iter().position(|byte| !is_token(*byte))?;
        let (method, rest) = bytes.split_at(space);
        let rest = rest.strip_prefix(b" ")?;
        let (target, rest) = rest.split_at(swar::visible(rest));
        if method.is_empty() || target.first() != Some(&b'/') {
            return None;
        }
        let method_len = u16::try_from(method.len()).ok()?;
        let method = Method::of(method);
        let start = space + 1;
        let end = start + target.len();
        let version = match rest.split_at_checked(b" HTTP/1.1\r\n".len())?.0 {
            b" HTTP/1.1\r\n" => Version::Http11,
            b" HTTP/1.0\r\n" => Version::Http10,
            _ => return None,
        };
        (method != Method::Connect).then_some(RequestLine {
            method,
            method_len,
            form: Target::Origin,
            target: start..end,
            version,
            end: end + b" HTTP/1.1\r\n".len(),
        })
    }
}

/// The first line of a response (RFC 9112 §4).
pub(crate) struct StatusLine {
    status: u16,
    version: Version,
    end: usize,
}

impl StatusLine {
    /// Reads the line that the bytes begin with, which must be whole.
    pub(crate) fn read(bytes: &[u8]) -> Result<StatusLine, Error> {
        let (line, end) = line(bytes)?;
        let (first, rest) = line
            .split_at_checked(b"HTTP/1.1".len())
            .ok_or(Error::StartLine)?;
        let version = version(first)?;
        // The reason and, as some send it, the space before it may be left out.
        let (digits, reason) = match rest {
            [b' ', a, b, c] => ([*a, *b, *c], &[][..]),
            [b' ', a, b, c, b' ', reason @ ..] => ([*a, *b, *c], reason),
            _ => return Err(Error::StartLine),
        };
        if !digits.iter().all(u8::is_ascii_digit) || digits[0] == b'0' {
            return Err(Error::StartLine);
        }
        if swar::text(reason) < reason.len() {
            return Err(Error::StartLine);
        }
        let [a, b, c] = digits.map(|digit| u16::from(digit - b'0'));
        Ok(StatusLine {
            status: a * 100 + b * 10 + c,
            version,
            end,
        })
    }
}

/// The first line without its end, and where the next one begins.
fn line(bytes: &[u8]) -> Result<(&[u8], usize), Error> {
    let lf = memchr::memchr(b'\n', bytes).ok_or(Error::StartLine)?;
    let line = bytes[..lf].strip_suffix(b"\r").ok_or(Error::BareLf)?;
    Ok((line, lf + 1))
}

/// `HTTP/1.x`.
fn version(bytes: &[u8]) -> Result<Version, Error> {
    match bytes {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Ok(Version::Http11),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(Error::Version)
        }
        _ => Err(Error::StartLine),
    }
}

/// The form of a target, which must fit the method (RFC 9112 §3.2).
fn form(method: Method, target: &[u8]) -> Result<Target, Error> {
    match (method, target) {
        (Method::Connect, [b'/' | b'*', ..]) => Err(Error::Target),
        (Method::Connect, _) => Ok(Target::Authority),
        (_, [b'/', ..]) => Ok(Target::Origin),
        (Method::Options, b"*") => Ok(Target::Asterisk),
        (_, target) => match authority(target) {
            Some(range) if !range.is_empty() => Ok(Target::Absolute),
            _ => Err(Error::Target),
        },
    }
}

/// Where the authority is in an absolute target; None: it is no absolute target of HTTP.
fn authority(target: &[u8]) -> Option<Range<usize>> {
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        })?
        .len();
    let rest = &target[scheme..];
    // If a fragment follows, it becomes part of the authority, where it is a mistake (RFC 9112 §3.2.2).
    let ends = |byte: &u8| matches!(byte, b'/' | b'?');
    Some(scheme..scheme + rest.iter().position(ends).unwrap_or(rest.len()))
}

/// What the fields say of the body (RFC 9112 §6.3); None: nothing.
fn framing(fields: &ParsedFields, version: Version) -> Result<Option<BodyLength>, Error> {
    let has_length = fields.has(Name::ContentLength);
    if fields.has(Name::TransferEncoding) {
        if version == Version::Http10 {
            return Err(Error::CodingInHttp10);
        }
        if has_length {
            return Err(Error::LengthAndCoding);
        }
        let mut values = fields.all(Name::TransferEncoding);
        let value = values.next().unwrap_or_default();
        if values.next().is_some() {
            return Err(Error::CodingRepeated);
        }
        return match value.eq_ignore_ascii_case(b"chunked") {
            true => Ok(Some(BodyLength::Chunked)),
            false => Err(Error::CodingUnknown),
        };
    }
    if !has_length {
        return Ok(None);
    }
    let mut values = fields.all(Name::ContentLength);
    let value = values.next().unwrap_or_default();
    if values.next().is_some() {
        return Err(Error::LengthRepeated);
    }
    decimal(value).map(|length| Some(BodyLength::Known(length)))
}

/// As [`framing`], of a response, which nobody else reads: its length may be repeated if it is the same, and chunks
/// count more than a length (RFC 9112 §6.3). Then the second value is false: nothing behind it can be trusted.
fn response_framing(
    fields: &ParsedFields,
    version: Version,
) -> Result<(Option<BodyLength>, bool), Error> {
    let strict = framing(fields, version);
    match strict {
        Err(Error::LengthAndCoding) => {
            let mut codings = fields.all(Name::TransferEncoding);
            let is_chunked = codings
                .next()
                .is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
            match (is_chunked, codings.next()) {
                (true, None) => Ok((Some(BodyLength::Chunked), false)),
                (false, None) => Err(Error::CodingUnknown),
                (_, Some(_)) => Err(Error::CodingRepeated),
            }
        }
        Err(error @ (Error::LengthRepeated | Error::Length)) => {
            let values = fields.all(Name::ContentLength);
            let mut lengths = values
                .flat_map(|value| value.split(|byte| *byte == b','))
                .map(|length| decimal(length.trim_ascii()));
            let first = lengths.next().unwrap_or(Err(error))?;
            match lengths.all(|length| length == Ok(first)) {
                true => Ok((Some(BodyLength::Known(first)), true)),
                false => Err(error),
            }
        }
        strict => Ok((strict?, true)),
    }
}

/// A Content-Length: digits only.
fn decimal(value: &[u8]) -> Result<u64, Error> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Error::Length);
    }
    value.iter().try_fold(0_u64, |number, digit| {
        number
            .checked_mul(10)
            .and_then(|number| number.checked_add(u64::from(digit - b'0')))
            .ok_or(Error::LengthTooLarge)
    })
}

/// Whether the sender keeps the connection (RFC 9112 §9.3).
fn is_persistent(fields: &ParsedFields, version: Version) -> bool {
    let mut said = fields.all(Name::Connection);
    match (said.next(), said.next()) {
        (None, _) => return version == Version::Http11,
        (Some(only), None) if only.eq_ignore_ascii_case(b"keep-alive") => return true,
        _ => {}
    }
    !fields.has_token(Name::Connection, "close")
        && (version == Version::Http11 || fields.has_token(Name::Connection, "keep-alive"))
}

/// Whether a byte may stand in a token (RFC 9110 §5.6.2).
pub(crate) const fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

static TOKEN: [bool; 256] = {
    let mut token = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let is = byte as u8;
        token[byte] = is.is_ascii_alphanumeric()
            || matches!(
                is,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    token
};
