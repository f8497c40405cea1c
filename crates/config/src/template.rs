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

/// Makes the enums of variables, and [`VARIABLES`]. Each row: variable, name between the braces, and what it is.
macro_rules! variables {
    (
        anywhere { $($any:ident $any_name:literal: $any_help:literal,)* }
        of_tls { $($tls:ident $tls_name:literal: $tls_help:literal,)* }
        in_logs { $($log:ident $log_name:literal: $log_help:literal,)* }
    ) => {
        /// The variables of templates.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Variable {
            $(#[doc = $any_help] $any,)*
            /// Something of the connection's TLS; empty without TLS.
            Tls(TlsVariable),
            /// `http_NAME`: a request header, underscores for dashes, lower case (kept as the header's name)
            Header(String),
            $(#[doc = $log_help] $log,)*
        }

        /// The variables that TLS has.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum TlsVariable {
            $(#[doc = $tls_help] $tls,)*
        }

        /// Name, variable, whether only a log format may use it, and what it is.
        const VARIABLES: &[(&str, Variable, bool, &str)] = &[
            $(($any_name, Variable::$any, false, $any_help),)*
            $(($tls_name, Variable::Tls(TlsVariable::$tls), false, $tls_help),)*
            $(($log_name, Variable::$log, true, $log_help),)*
        ];
    };
}

variables! {
    anywhere {
        Method "method": "the method",
        Scheme "scheme": "`http` or `https`",
        Host "host": "the host of the request, in lower case, without port",
        Uri "uri": "path and query as the client sent them",
        Path "path": "the path, decoded and normalised",
        Query "query": "the query without the question mark",
        Args "args": "the query with its question mark, or nothing",
        Protocol "protocol": "`HTTP/1.1`, `HTTP/2.0`, `HTTP/3.0`",
        RemoteAddr "remote_addr": "the client's address",
        PeerAddr "peer_addr": "the address of the connection: the proxy's if a `trusted` proxy names the client",
        RemotePort "remote_port": "the client's port",
        ServerAddr "server_addr": "the address that the client connected to",
        ServerPort "server_port": "the port that the client connected to",
        Site "site": "NAME of the site",
        Pool "pool": "NAME of the pool",
        DocumentRoot "document_root": "the site's root, as scripts get it (DOCUMENT_ROOT)",
        ScriptName "script_name": "SCRIPT_NAME of the script",
        PathInfo "path_info": "the path behind the script",
    }
    of_tls {
        Protocol "ssl_protocol": "`TLSv1.3`; empty without TLS, like the next ones",
        Cipher "ssl_cipher": "`TLS_AES_128_GCM_SHA256`",
        SessionReused "ssl_session_reused": "`r` if the client resumed an earlier session, otherwise `.`",
        ServerName "ssl_server_name": "the host in the TLS handshake",
        ClientVerify "ssl_client_verify": "`SUCCESS` or `NONE`; empty if the site asks for no certificate",
        ClientSubject "ssl_client_s_dn": "the subject of the client's certificate (RFC 4514)",
        ClientIssuer "ssl_client_i_dn": "the issuer of the client's certificate",
        ClientSerial "ssl_client_serial": "the serial number of the client's certificate, hexadecimal",
        ClientFingerprint "ssl_client_fingerprint": "SHA-1 of the client's certificate, hexadecimal",
    }
    in_logs {
        Time "time": "local time, as in the combined format",
        TimeIso "time_iso": "RFC 3339 with milliseconds",
        RemoteUser "remote_user": "the user name that the client sent",
        Status "status": "the status",
        BytesIn "bytes_in": "bytes of the request's body",
        BytesOut "bytes_out": "bytes of the answer's body",
        Compression "compression": "how weir compressed the answer: `zstd`, `br` or `gzip`",
        BytesUncompressed "bytes_uncompressed": "bytes of the answer's body before compression",
        Cache "cache": "what the cache had: `hit`, `joined`, `stale`, `validated`, `expired`, `miss`, or `bypass`",
        TimeHead "time_head": "seconds from the first byte of the request to the end of its head",
        TimeBody "time_body": "seconds from there to the end of the body",
        TimeQueue "time_queue": "seconds in the queue",
        TimeFirstByte "time_first_byte": "seconds from the end of the queue to the worker's first byte",
        TimeTotal "time_total": "seconds from the first byte of the request to the last byte of the answer",
        Worker "worker": "the worker's process id, or its server's address",
        QueueLength "queue": "how many requests were waiting when this one arrived",
        Reason "reason": "[why the request failed](statuses.md)",
        RequestId "request_id": "number of the request, as in the error log",
        Retries "retries": "how often another worker got the request",
        Priority "priority": "priority in the queue",
        TimeLimit "time_limit": "seconds from the request's first byte to its deadline",
    }
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
