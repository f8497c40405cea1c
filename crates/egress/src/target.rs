//! Parses the target of a call.
//!
//! Callers are programs that get URLs from people. A host may be written so that one parser takes it for a public
//! name and another for an address of this machine. Ambiguous forms are refused here and never corrected: [`authority`]
//! decides about hosts, [`asked`] about paths. Everything else is passed on byte for byte.
//!
//! No I/O and no lookups here: `rules` decides whether a target may be called, `address` which addresses its name may
//! lead to.

use std::{cell::RefCell, fmt};

use http::{
    Method, Uri,
    uri::{Authority, PathAndQuery},
};
use weir_config::Scheme;
use weir_http1::{Name, ParsedFields};
use weir_semantics::authority::{self, Ambiguous};

use super::{
    fault::{Fault, Kind},
    origin::Origin,
    rules::Rules,
};

/// Parses the target of a call.
///
/// - Path form: `/HOST[:PORT]/path?query`. The scheme is that of the first rule that names the host, with the given
///   port or otherwise the scheme's default port; https if no rule does. `Host` names weir itself and is ignored.
/// - Absolute form (RFC 9112 §3.2.2): `http://HOST[:PORT]/path?query`, or https; `upgrade` may change http to https.
///   RFC 9112 makes a proxy ignore `Host` here. weir refuses a `Host` with another value: its sender wants another
///   origin, or tries to mislead a later program.
/// - Authority form (RFC 9112 §3.2.3): `CONNECT HOST:PORT`.
///
/// The URI parser has removed a fragment before, because it must not be sent (RFC 9110 §7.1).
///
/// # Errors
/// [`Kind::BadRequest`], with the cause and what to write instead.
pub(crate) fn target(
    method: &Method,
    uri: &Uri,
    headers: &ParsedFields,
    rules: &Rules,
) -> Result<Target, Fault> {
    one_host(headers)?;
    let written = match (uri.scheme_str(), uri.authority()) {
        (None, Some(authority)) if *method == Method::CONNECT => tunnel(authority, headers, rules),
        _ if *method == Method::CONNECT => Err(CONNECT_FORM.to_owned()),
        (Some(scheme), Some(authority)) => absolute(scheme, authority, uri, headers, rules),
        (None, None) => path_form(uri.path_and_query().map_or("/", PathAndQuery::as_str), rules),
        _ => Err("its target is a host without a scheme, which only CONNECT takes; write http://HOST/path".to_owned()),
    };
    written.map_err(refused)
}

/// As [`target`], of a target in path form, without its fragment: the URL need not be parsed twice.
///
/// # Errors
/// As those of [`target`].
pub(crate) fn by_path(
    method: &Method,
    whole: &str,
    headers: &ParsedFields,
    rules: &Rules,
) -> Result<Target, Fault> {
    one_host(headers)?;
    match *method == Method::CONNECT {
        true => Err(refused(CONNECT_FORM)),
        false => path_form(whole, rules).map_err(refused),
    }
}

fn one_host(headers: &ParsedFields) -> Result<(), Fault> {
    match headers.all(Name::Host).nth(1) {
        Some(_) => Err(refused("it has more than one Host header; send one")),
        None => Ok(()),
    }
}

/// `/HOST[:PORT]/path?query`
fn path_form(whole: &str, rules: &Rules) -> Result<Target, String> {
    let Some(rest) = whole.strip_prefix('/') else {
        return Err("its target is *, which has no host; write /HOST/path".to_owned());
    };
    let end = memchr::memchr2(b'/', b'?', rest.as_bytes()).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.ends_with(':')
        && ["http:", "https:"]
            .iter()
            .any(|scheme| authority.eq_ignore_ascii_case(scheme))
    {
        return Err(
            "its path begins with a scheme; write /HOST/path. The scheme is set in [egress] allow"
                .to_owned(),
        );
    }
    let (host, port) = host_and_port(authority)?;
    let scheme = rules.scheme(&host, port);
    let origin = Origin {
        scheme,
        host,
        port: port.unwrap_or(scheme.default_port()),
    };
    Ok(Target {
        origin,
        path: asked(path)?,
        form: Form::Path,
    })
}

/// `http://HOST[:PORT]/path?query`
fn absolute(
    scheme: &str,
    authority: &Authority,
    uri: &Uri,
    headers: &ParsedFields,
    rules: &Rules,
) -> Result<Target, String> {
    let schemes = [Scheme::Http, Scheme::Https];
    let known = schemes
        .into_iter()
        .find(|known| scheme.eq_ignore_ascii_case(known.as_str()));
    let Some(scheme) = known else {
        return Err("its scheme is neither http nor https".to_owned());
    };
    let (host, port) = host_and_port(authority.as_str())?;
    let port = port.unwrap_or(scheme.default_port());
    if let Some(said) = host_header(headers)? {
        let said = (said.0, said.1.unwrap_or(scheme.default_port()));
        if said != (host.clone(), port) {
            return Err(
                "its Host header differs from its target; send the same, or none".to_owned(),
            );
        }
    }
    let path = asked(uri.path_and_query().map_or("/", PathAndQuery::as_str))?;
    let (scheme, port) = rules.upgraded(scheme, &host, port);
    Ok(Target {
        origin: Origin { scheme, host, port },
        path,
        form: Form::Proxy,
    })
}

/// `HOST:PORT`
fn tunnel(authority: &Authority, headers: &ParsedFields, rules: &Rules) -> Result<Target, String> {
    let (host, port) = host_and_port(authority.as_str())?;
    let Some(port) = port else {
        return Err("CONNECT needs a port; write HOST:PORT".to_owned());
    };
    // Many clients send a Host header without a port here.
    if let Some(said) = host_header(headers)?
        && (said.0 != host || said.1.is_some_and(|said| said != port))
    {
        return Err("its Host header differs from its target; send the same, or none".to_owned());
    }
    let scheme = rules.tunnel_scheme(&host, port);
    Ok(Target {
        origin: Origin { scheme, host, port },
        path: PathAndQuery::from_static("/"),
        form: Form::Tunnel,
    })
}

/// One unambiguous host, and the port if there is one.
///
/// # Errors
/// The cause, and what to write instead.
fn host_and_port(written: &str) -> Result<(String, Option<u16>), String> {
    /// Hosts as written, and the parsed result.
    type Recent = Vec<(Box<str>, (String, Option<u16>))>;
    thread_local! {
        static RECENT: RefCell<Recent> = const { RefCell::new(Vec::new()) };
    }
    let known = RECENT.with_borrow(|recent| {
        let mut recent = recent.iter();
        let found = recent.find(|(known, _)| **known == *written);
        found.map(|(_, meant)| meant.clone())
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let meant = authority::unambiguous(written).map_err(|error| match error {
        Ambiguous::Missing => {
            format!("{error}; write /HOST/path, or http://HOST/path with weir as the proxy")
        }
        Ambiguous::User => format!("{error}; remove it and send Authorization"),
        _ => error.to_string(),
    })?;
    RECENT.with_borrow_mut(|recent| {
        recent.truncate(MOST_RECENT - 1);
        recent.insert(0, (written.into(), meant.clone()));
    });
    Ok(meant)
}

const CONNECT_FORM: &str = "CONNECT takes only HOST:PORT";

/// How many hosts a thread remembers as they were written.
const MOST_RECENT: usize = 8;

/// The value of the `Host` header, if there is one.
fn host_header(headers: &ParsedFields) -> Result<Option<(String, Option<u16>)>, String> {
    let Some(value) = headers.get(Name::Host) else {
        return Ok(None);
    };
    let text = str::from_utf8(value).ok().filter(|text| text.is_ascii());
    let text = text.ok_or_else(|| "its Host header is not ASCII".to_owned())?;
    let said = host_and_port(text).map_err(|cause| format!("of its Host header, {cause}"))?;
    Ok(Some(said))
}

/// Path and query as the origin gets them, unchanged.
///
/// Refused are control bytes. In the path also `\`, which some programs treat as `/`, and the encoded bytes that end
/// a line or a string (`%0D`, `%0A`, `%00`): they have misled origins that decode a path and use it in a header or
/// file name, and no path needs them. In a query they are allowed, because texts have lines.
fn asked(written: &str) -> Result<PathAndQuery, String> {
    let end = memchr::memchr(b'?', written.as_bytes()).unwrap_or(written.len());
    let path = &written[..end];
    if written.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("its path or query has a control character; percent-encode it".to_owned());
    }
    if path.as_bytes().contains(&b'\\') {
        return Err("its path has a backslash, which some servers read as /; write %5C".to_owned());
    }
    let bytes = path.as_bytes();
    let is_break = |at: usize| {
        let code = [bytes[at + 1], bytes[at + 2]];
        matches!(&code, b"00" | b"0a" | b"0A" | b"0d" | b"0D")
    };
    let mut percents = memchr::memchr_iter(b'%', &bytes[..bytes.len().saturating_sub(2)]);
    if percents.any(is_break) {
        return Err(
            "its path has an encoded line break or zero byte (%0D, %0A, %00); remove it".to_owned(),
        );
    }
    let parsed = match written.starts_with('/') {
        true => PathAndQuery::try_from(written),
        false => PathAndQuery::try_from(format!("/{written}")),
    };
    parsed.map_err(|_| {
        "its path or query has bytes that are not allowed in a URL; percent-encode them".to_owned()
    })
}

fn refused(cause: impl fmt::Display) -> Fault {
    Fault::unsent(Kind::BadRequest, format!("call refused: {cause}"))
}

/// The target of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) origin: Origin,
    /// The path at the origin; for a tunnel `/`.
    pub(crate) path: PathAndQuery,
    pub(crate) form: Form,
}

/// The form of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `GET /HOST[:PORT]/path`
    Path,
    /// `GET http://HOST[:PORT]/path`
    Proxy,
    /// `CONNECT HOST:PORT`
    Tunnel,
}

impl Form {
    /// One word for the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Form::Path => "path",
            Form::Proxy => "proxy",
            Form::Tunnel => "tunnel",
        }
    }
}

#[cfg(test)]
#[path = "target/tests.rs"]
mod tests;
