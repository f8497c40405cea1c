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
        let Some((_, variable, log_only, _)) = VARIABLES.iter().find(|(known, ..)| *known == name)
        else {
            let usable = VARIABLES
                .iter()
                .filter(|(_, _, log_only, _)| log || !log_only);
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

    /// All variables except the request headers, `http_NAME`: name, whether only a log format may use it,
    /// and what it is.
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, bool, &'static str)> {
        VARIABLES
            .iter()
            .map(|(name, _, log_only, help)| (*name, *log_only, *help))
    }
}

/// Writes the name between the braces.
impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Header(name) = self {
            return write!(f, "http_{}", name.replace('-', "_"));
        }
        let row = VARIABLES.iter().find(|(_, variable, ..)| variable == self);
        f.write_str(row.map_or("", |(name, ..)| name))
    }
}

/// Name, variable, whether only a log format may use it, and what it is. A test checks that the list is complete.
const VARIABLES: &[(&str, Variable, bool, &str)] = &[
    ("method", Variable::Method, false, "the method"),
    ("scheme", Variable::Scheme, false, "`http` or `https`"),
    (
        "host",
        Variable::Host,
        false,
        "the host of the request, in lower case, without port",
    ),
    (
        "uri",
        Variable::Uri,
        false,
        "path and query as the client sent them",
    ),
    (
        "path",
        Variable::Path,
        false,
        "the path, decoded and normalised",
    ),
    (
        "query",
        Variable::Query,
        false,
        "the query without the question mark",
    ),
    (
        "args",
        Variable::Args,
        false,
        "the query with its question mark, or nothing",
    ),
    (
        "protocol",
        Variable::Protocol,
        false,
        "`HTTP/1.1`, `HTTP/2.0`, `HTTP/3.0`",
    ),
    (
        "remote_addr",
        Variable::RemoteAddr,
        false,
        "the client's address",
    ),
    (
        "peer_addr",
        Variable::PeerAddr,
        false,
        "the address of the connection: the proxy's if a `trusted` proxy names the client",
    ),
    (
        "remote_port",
        Variable::RemotePort,
        false,
        "the client's port",
    ),
    (
        "server_addr",
        Variable::ServerAddr,
        false,
        "the address that the client connected to",
    ),
    (
        "server_port",
        Variable::ServerPort,
        false,
        "the port that the client connected to",
    ),
    ("site", Variable::Site, false, "NAME of the site"),
    ("pool", Variable::Pool, false, "NAME of the pool"),
    (
        "document_root",
        Variable::DocumentRoot,
        false,
        "the site's root, as scripts get it (DOCUMENT_ROOT)",
    ),
    (
        "script_name",
        Variable::ScriptName,
        false,
        "SCRIPT_NAME of the script",
    ),
    (
        "path_info",
        Variable::PathInfo,
        false,
        "the path behind the script",
    ),
    (
        "ssl_protocol",
        Variable::Tls(TlsVariable::Protocol),
        false,
        "`TLSv1.3`; empty without TLS, like the next ones",
    ),
    (
        "ssl_cipher",
        Variable::Tls(TlsVariable::Cipher),
        false,
        "`TLS_AES_128_GCM_SHA256`",
    ),
    (
        "ssl_session_reused",
        Variable::Tls(TlsVariable::SessionReused),
        false,
        "`r` if the client resumed an earlier session, otherwise `.`",
    ),
    (
        "ssl_server_name",
        Variable::Tls(TlsVariable::ServerName),
        false,
        "the host in the TLS handshake",
    ),
    (
        "ssl_client_verify",
        Variable::Tls(TlsVariable::ClientVerify),
        false,
        "`SUCCESS` or `NONE`; empty if the site asks for no certificate",
    ),
    (
        "ssl_client_s_dn",
        Variable::Tls(TlsVariable::ClientSubject),
        false,
        "the subject of the client's certificate (RFC 4514)",
    ),
    (
        "ssl_client_i_dn",
        Variable::Tls(TlsVariable::ClientIssuer),
        false,
        "the issuer of the client's certificate",
    ),
    (
        "ssl_client_serial",
        Variable::Tls(TlsVariable::ClientSerial),
        false,
        "the serial number of the client's certificate, hexadecimal",
    ),
    (
        "ssl_client_fingerprint",
        Variable::Tls(TlsVariable::ClientFingerprint),
        false,
        "SHA-1 of the client's certificate, hexadecimal",
    ),
    (
        "time",
        Variable::Time,
        true,
        "local time, as in the combined format",
    ),
    (
        "time_iso",
        Variable::TimeIso,
        true,
        "RFC 3339 with milliseconds",
    ),
    (
        "remote_user",
        Variable::RemoteUser,
        true,
        "the user name that the client sent",
    ),
    ("status", Variable::Status, true, "the status"),
    (
        "bytes_in",
        Variable::BytesIn,
        true,
        "bytes of the request's body",
    ),
    (
        "bytes_out",
        Variable::BytesOut,
        true,
        "bytes of the answer's body",
    ),
    (
        "compression",
        Variable::Compression,
        true,
        "how weir compressed the answer: `zstd`, `br` or `gzip`",
    ),
    (
        "bytes_uncompressed",
        Variable::BytesUncompressed,
        true,
        "bytes of the answer's body before compression",
    ),
    (
        "time_head",
        Variable::TimeHead,
        true,
        "seconds from the first byte of the request to the end of its head",
    ),
    (
        "time_body",
        Variable::TimeBody,
        true,
        "seconds from there to the end of the body",
    ),
    (
        "time_queue",
        Variable::TimeQueue,
        true,
        "seconds in the queue",
    ),
    (
        "time_first_byte",
        Variable::TimeFirstByte,
        true,
        "seconds from the end of the queue to the worker's first byte",
    ),
    (
        "time_total",
        Variable::TimeTotal,
        true,
        "seconds from the first byte of the request to the last byte of the answer",
    ),
    (
        "worker",
        Variable::Worker,
        true,
        "the worker's process id, or its server's address",
    ),
    (
        "queue",
        Variable::QueueLength,
        true,
        "how many requests were waiting when this one arrived",
    ),
    (
        "reason",
        Variable::Reason,
        true,
        "[why the request failed](statuses.md)",
    ),
    (
        "request_id",
        Variable::RequestId,
        true,
        "number of the request, as in the error log",
    ),
    (
        "retries",
        Variable::Retries,
        true,
        "how often another worker got the request",
    ),
    (
        "priority",
        Variable::Priority,
        true,
        "priority in the queue",
    ),
    (
        "time_limit",
        Variable::TimeLimit,
        true,
        "seconds from the request's first byte to its deadline",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_read_and_written_by_its_name() {
        for (name, log_only, help) in Variable::all() {
            assert!(!help.is_empty(), "{name}");
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
