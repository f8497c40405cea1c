//! Text with `${variable}` in it.
//!
//! `$${` is a literal `${`. The table [`Variable`] lists all variables. The check of the configuration reports any
//! other name, so it never becomes an empty string at run time.

use alloc::{string::String, vec::Vec};
use core::fmt;

use crate::scalar::{Checked, suggestion, wrong};

/// A checked template: literal pieces and variables, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    /// The pieces.
    pub pieces: Vec<Piece>,
}

impl Template {
    /// Parses a template. With `log`, it may use the variables that exist only after the request.
    pub(crate) fn parse(text: &str, log: bool) -> Checked<Self> {
        let variable = |name: &str| Variable::parse(name, log).map(Piece::Variable);
        Ok(Self {
            pieces: pieces(text, Piece::Text, variable)?,
        })
    }

    /// A template without variables. An empty text has no pieces.
    pub fn literal(text: &str) -> Self {
        let pieces = match text {
            "" => Vec::new(),
            text => alloc::vec![Piece::Text(text.into())],
        };
        Self { pieces }
    }
}

/// The pieces of a text with `${...}` in it: literal ones, and what stands between braces. `$${` is a literal `${`.
pub(crate) fn pieces<P>(
    text: &str,
    literal: impl Fn(String) -> P,
    between: impl Fn(&str) -> Checked<P>,
) -> Checked<Vec<P>> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        plain.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        if let Some(after) = rest.strip_prefix("$${") {
            plain.push_str("${");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("${") {
            let Some((inner, after)) = after.split_once('}') else {
                return wrong("`${` without `}`", "a literal `${` is written `$${`");
            };
            if !plain.is_empty() {
                pieces.push(literal(core::mem::take(&mut plain)));
            }
            pieces.push(between(inner)?);
            rest = after;
        } else {
            plain.push('$');
            rest = &rest[1..];
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(literal(plain));
    }
    Ok(pieces)
}

/// Writes the template as in weir.toml.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => f.write_str(&text.replace("${", "$${"))?,
                Piece::Variable(variable) => write!(f, "${{{variable}}}")?,
            }
        }
        Ok(())
    }
}

/// A piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal text.
    Text(String),
    /// The value of a variable.
    Variable(Variable),
}

/// The variables that TLS has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVariable {
    /// `ssl_protocol`: `TLSv1.3`
    Protocol,
    /// `ssl_cipher`: `TLS_AES_128_GCM_SHA256`
    Cipher,
    /// `ssl_session_reused`: `r` if the client continued an earlier session, else `.`
    SessionReused,
    /// `ssl_server_name`: the name that the client asked for
    ServerName,
    /// `ssl_client_verify`: `SUCCESS` or `NONE`; empty if the site asks for no certificate
    ClientVerify,
    /// `ssl_client_s_dn`: the subject of the client's certificate (RFC 4514)
    ClientSubject,
    /// `ssl_client_i_dn`: its issuer
    ClientIssuer,
    /// `ssl_client_serial`: its serial number, hexadecimal
    ClientSerial,
    /// `ssl_client_fingerprint`: its SHA-1, hexadecimal
    ClientFingerprint,
}

/// The variables of templates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// `method`
    Method,
    /// `scheme`: `http` or `https`
    Scheme,
    /// Something of the connection's TLS; empty without TLS.
    Tls(TlsVariable),
    /// `host`: of the request, lower case, without port
    Host,
    /// `uri`: path and query as received
    Uri,
    /// `path`: decoded and normalised
    Path,
    /// `query`: without the question mark
    Query,
    /// `args`: the query with its question mark, or nothing
    Args,
    /// `protocol`: `HTTP/1.1`
    Protocol,
    /// `remote_addr`
    RemoteAddr,
    /// `peer_addr`: the address that the connection comes from, the proxy's if it says who the client is
    PeerAddr,
    /// `remote_port`
    RemotePort,
    /// `server_addr`
    ServerAddr,
    /// `server_port`
    ServerPort,
    /// `site`
    Site,
    /// `pool`
    Pool,
    /// `document_root`
    DocumentRoot,
    /// `script_name`
    ScriptName,
    /// `path_info`
    PathInfo,
    /// `http_NAME`: a request header, underscores for dashes, lower case (kept as the header's name)
    Header(String),
    /// `time`: local time, as in the combined format. Only for the log, like all variables below.
    Time,
    /// `time_iso`: RFC 3339 with milliseconds
    TimeIso,
    /// `remote_user`: the name that the client has sent with HTTP authentication
    RemoteUser,
    /// `status`
    Status,
    /// `bytes_in`: body bytes from the client
    BytesIn,
    /// `bytes_out`: body bytes to the client
    BytesOut,
    /// `compression`: how weir has compressed the answer: `zstd`, `br` or `gzip`
    Compression,
    /// `bytes_uncompressed`: body bytes before that
    BytesUncompressed,
    /// `time_head`: seconds (3 decimals) from the first byte of the request to its complete head
    TimeHead,
    /// `time_body`: seconds from there to the end of the body
    TimeBody,
    /// `time_queue`: seconds waiting in the queue
    TimeQueue,
    /// `time_first_byte`: seconds from dispatch to the worker's first byte
    TimeFirstByte,
    /// `time_total`: seconds from the first byte of the request to the last byte of the response
    TimeTotal,
    /// `worker`: pid of the worker, or its server's address
    Worker,
    /// `queue`: length of the queue when the request arrived
    QueueLength,
    /// `reason`: why a response is an error (`queue_full`, `client_left`, …)
    Reason,
    /// `request_id`: number of the request in this process, as in the error log
    RequestId,
    /// `retries`: number of retries with other workers
    Retries,
    /// `priority`: priority of the request in the queue
    Priority,
    /// `time_limit`: seconds from the request's first byte to its deadline
    TimeLimit,
}

impl Variable {
    fn parse(name: &str, log: bool) -> Checked<Self> {
        if let Some(header) = name.strip_prefix("http_") {
            let valid = !header.is_empty()
                && header
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            return match valid {
                true => Ok(Self::Header(header.replace('_', "-"))),
                false => wrong(
                    alloc::format!("`${{{name}}}` has no header name"),
                    "write the header in lower case, with underscores for dashes: `${http_user_agent}`",
                ),
            };
        }
        let Some((_, variable, log_only)) = VARIABLES.iter().find(|(known, ..)| *known == name)
        else {
            let usable = VARIABLES.iter().filter(|(_, _, log_only)| log || !log_only);
            let hint = suggestion(name, usable.map(|(known, ..)| *known)).unwrap_or_default();
            return wrong(alloc::format!("unknown variable `${{{name}}}`"), hint);
        };
        if *log_only && !log {
            return wrong(
                alloc::format!("`${{{name}}}` is only known at the end of a request"),
                "use it only in `format` of [log]",
            );
        }
        Ok(variable.clone())
    }

    /// All variables except the request headers, `http_NAME`: name, and whether only a log format may use it.
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, bool)> {
        VARIABLES
            .iter()
            .map(|(name, _, log_only)| (*name, *log_only))
    }
}

/// Writes the name between the braces.
impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Header(name) = self {
            return write!(f, "http_{}", name.replace('-', "_"));
        }
        let row = VARIABLES.iter().find(|(_, variable, _)| variable == self);
        f.write_str(row.map_or("", |(name, ..)| name))
    }
}

/// Name, variable, and whether only a log format may use it. A test checks that it is complete.
const VARIABLES: &[(&str, Variable, bool)] = &[
    ("method", Variable::Method, false),
    ("scheme", Variable::Scheme, false),
    ("host", Variable::Host, false),
    ("uri", Variable::Uri, false),
    ("path", Variable::Path, false),
    ("query", Variable::Query, false),
    ("args", Variable::Args, false),
    ("protocol", Variable::Protocol, false),
    ("remote_addr", Variable::RemoteAddr, false),
    ("peer_addr", Variable::PeerAddr, false),
    ("remote_port", Variable::RemotePort, false),
    ("server_addr", Variable::ServerAddr, false),
    ("server_port", Variable::ServerPort, false),
    ("site", Variable::Site, false),
    ("pool", Variable::Pool, false),
    ("document_root", Variable::DocumentRoot, false),
    ("script_name", Variable::ScriptName, false),
    ("path_info", Variable::PathInfo, false),
    ("ssl_protocol", Variable::Tls(TlsVariable::Protocol), false),
    ("ssl_cipher", Variable::Tls(TlsVariable::Cipher), false),
    (
        "ssl_session_reused",
        Variable::Tls(TlsVariable::SessionReused),
        false,
    ),
    (
        "ssl_server_name",
        Variable::Tls(TlsVariable::ServerName),
        false,
    ),
    (
        "ssl_client_verify",
        Variable::Tls(TlsVariable::ClientVerify),
        false,
    ),
    (
        "ssl_client_s_dn",
        Variable::Tls(TlsVariable::ClientSubject),
        false,
    ),
    (
        "ssl_client_i_dn",
        Variable::Tls(TlsVariable::ClientIssuer),
        false,
    ),
    (
        "ssl_client_serial",
        Variable::Tls(TlsVariable::ClientSerial),
        false,
    ),
    (
        "ssl_client_fingerprint",
        Variable::Tls(TlsVariable::ClientFingerprint),
        false,
    ),
    ("time", Variable::Time, true),
    ("time_iso", Variable::TimeIso, true),
    ("remote_user", Variable::RemoteUser, true),
    ("status", Variable::Status, true),
    ("bytes_in", Variable::BytesIn, true),
    ("bytes_out", Variable::BytesOut, true),
    ("compression", Variable::Compression, true),
    ("bytes_uncompressed", Variable::BytesUncompressed, true),
    ("time_head", Variable::TimeHead, true),
    ("time_body", Variable::TimeBody, true),
    ("time_queue", Variable::TimeQueue, true),
    ("time_first_byte", Variable::TimeFirstByte, true),
    ("time_total", Variable::TimeTotal, true),
    ("worker", Variable::Worker, true),
    ("queue", Variable::QueueLength, true),
    ("reason", Variable::Reason, true),
    ("request_id", Variable::RequestId, true),
    ("retries", Variable::Retries, true),
    ("priority", Variable::Priority, true),
    ("time_limit", Variable::TimeLimit, true),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_read_and_written_by_its_name() {
        for (name, log_only) in Variable::all() {
            let text = alloc::format!("a ${{{name}}} b");
            let template = Template::parse(&text, true).unwrap();
            assert_eq!(alloc::string::ToString::to_string(&template), text);
            assert_eq!(Template::parse(&text, false).is_err(), log_only, "{name}");
        }
    }

    #[test]
    fn dollars_stay_where_they_name_nothing() {
        for text in [
            "$",
            "$5",
            "a$$b",
            "$${x}",
            "$$${method}",
            "${method}${http_x_a}",
            "",
        ] {
            let template = Template::parse(text, false).unwrap();
            let written = alloc::string::ToString::to_string(&template);
            assert_eq!(
                Template::parse(&written, false).unwrap(),
                template,
                "{text} {written}"
            );
        }
        assert_eq!(
            Template::parse("$${x}", false),
            Ok(Template::literal("${x}"))
        );
    }

    #[test]
    fn slips_are_named() {
        let hint = |text| Template::parse(text, false).unwrap_err().hint;
        assert_eq!(hint("${hots}"), Some("did you mean `host`?".into()));
        assert_eq!(
            hint("${host"),
            Some("a literal `${` is written `$${`".into())
        );
        assert!(hint("${status}").unwrap().contains("[log]"));
    }
}
