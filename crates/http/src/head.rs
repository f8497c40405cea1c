//! The head of a request of any protocol.

use std::{fmt, ops::Range};

use http::{
    Method, Uri, Version,
    uri::{self, Authority, PathAndQuery, Scheme},
};
use weir_http1::{Name, ParsedFields};
use weir_net::Spare;

/// The head of a request.
#[derive(Debug, Default)]
pub struct Head {
    pub method: Method,
    pub version: Version,
    pub target: Target,
    pub fields: ParsedFields,
}

/// What a request asks for. It is read through its [`Head`], which has the bytes.
#[derive(Debug, Default)]
pub struct Target {
    /// Path and query as received: where they are in the bytes of the fields. Empty: `text` has them.
    received: Range<u32>,
    /// Path and query in the spelling of a URI (RFC 3986), if they were received in another one, or not at all.
    text: Option<Box<str>>,
    /// How much of them, in that spelling, is the path.
    path: u32,
    /// The host and port that the target names, and its scheme.
    authority: Option<Box<Authority>>,
    scheme: Option<Scheme>,
}

impl Target {
    /// A target in a head. `text` is its path and query if these bytes are not in the spelling of a URI; `path` says how
    /// much of that is the path.
    pub fn received(range: Range<usize>, text: Option<Box<str>>, path: usize) -> Target {
        Target {
            received: range.start as u32..range.end as u32,
            text,
            path: path as u32,
            authority: None,
            scheme: None,
        }
    }

    /// The target of a scheme, at a host.
    pub fn at(self, scheme: Option<Scheme>, authority: Option<Box<Authority>>) -> Target {
        Target {
            authority,
            scheme,
            ..self
        }
    }
}

/// A target that did not come in a head: a script has named it.
impl From<Uri> for Target {
    fn from(uri: Uri) -> Target {
        let text = uri.path_and_query().map_or("*", |path| path.as_str());
        let path = text.find('?').unwrap_or(text.len());
        Target {
            received: 0..0,
            text: Some(text.into()),
            path: path as u32,
            authority: uri.authority().cloned().map(Box::new),
            scheme: uri.scheme().cloned(),
        }
    }
}

thread_local! {
    /// Heads that are not in use, with their buffers.
    static SPARE: Spare<Box<Head>> = const { Spare::new(64) };
}

impl Head {
    /// A head to be filled. Its present content has no meaning.
    pub fn spare() -> Box<Head> {
        SPARE.with(Spare::take).unwrap_or_default()
    }

    /// Gives a head that is not needed any more to a later request of this reactor.
    pub fn give_back(self: Box<Head>) {
        if self.fields.capacity() <= SPARE_CAPACITY {
            SPARE.with(|spare| spare.keep(self));
        }
    }

    /// The value of the first field of this name, in any case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        match Name::of(name.as_bytes()) {
            Some(known) => self.fields.get(known),
            None => {
                let is = |found: &[u8]| found.eq_ignore_ascii_case(name.as_bytes());
                let found = self.fields.iter().find(|(_, found, _)| is(found));
                found.map(|(_, _, value)| value)
            }
        }
    }

    /// The path, in the spelling of a URI; `*` if the target has none.
    pub fn path(&self) -> &[u8] {
        &self.path_and_query()[..self.target.path as usize]
    }

    /// The query, in the spelling of a URI, without its question mark.
    pub fn query(&self) -> Option<&[u8]> {
        self.path_and_query().get(self.target.path as usize + 1..)
    }

    /// Both, with the question mark between them.
    pub fn path_and_query(&self) -> &[u8] {
        self.spelled(&self.target)
    }

    /// Path and query as received; for an absolute target without its origin. `*` if there is none.
    pub fn received(&self) -> &[u8] {
        self.received_of(&self.target)
    }

    /// The query as received, without its question mark.
    pub fn received_query(&self) -> Option<&[u8]> {
        if self.target.text.is_none() {
            return self.query();
        }
        let received = self.received();
        let end = memchr::memchr(b'#', received).unwrap_or(received.len());
        let begin = memchr::memchr(b'?', &received[..end])? + 1;
        Some(&received[begin..end])
    }

    /// The host and port that the target names.
    pub fn authority(&self) -> Option<&str> {
        self.target.authority.as_deref().map(Authority::as_str)
    }

    /// The target as a URI, as received but for a fragment. `None`: its path or query has bytes that no URI has.
    pub fn uri(&self) -> Option<Uri> {
        let mut parts = uri::Parts::default();
        parts.scheme = self.target.scheme.clone();
        parts.authority = self.target.authority.as_deref().cloned();
        if parts.authority.is_none() || parts.scheme.is_some() {
            parts.path_and_query = Some(PathAndQuery::try_from(self.received()).ok()?);
        }
        Uri::from_parts(parts).ok()
    }

    /// As [`Self::path_and_query`], of a target that this head has or had.
    pub fn spelled<'t>(&'t self, target: &'t Target) -> &'t [u8] {
        match &target.text {
            Some(text) => text.as_bytes(),
            None => self.bytes(&target.received),
        }
    }

    /// As [`Self::received`], of a target that this head has or had.
    pub fn received_of<'t>(&'t self, target: &'t Target) -> &'t [u8] {
        match &target.text {
            Some(text) if target.received.is_empty() => text.as_bytes(),
            _ => self.bytes(&target.received),
        }
    }

    fn bytes(&self, range: &Range<u32>) -> &[u8] {
        let range = range.start as usize..range.end as usize;
        self.fields.as_bytes().get(range).unwrap_or_default()
    }
}

/// How large heads may be that a reactor keeps for later requests, bytes.
const SPARE_CAPACITY: usize = 8 * 1024;

/// The target, for the trace.
impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(authority) = self.authority() {
            f.write_str(authority)?;
        }
        f.write_str(&String::from_utf8_lossy(self.path_and_query()))
    }
}
