//! Whom a call is for, as its caller wrote it.

use std::fmt;

use http::uri::PathAndQuery;
use weir_config::Scheme;

/// Who answers: scheme, host, port. Connections, limits and figures are kept by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) scheme: Scheme,
    /// In lower case, without brackets and without a dot at its end; a name, or an address in its usual form.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Origin {
    /// For `Host`, `:authority` and the log: the port only where it is not the scheme's own, IPv6 in brackets.
    pub(crate) fn authority(&self) -> String {
        let bracketed = self.host.contains(':');
        let host = match bracketed {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port == self.scheme.default_port() {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }
}

/// As a URL, without a path.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

/// What a caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) origin: Origin,
    /// What the origin is asked; of a tunnel `/`.
    pub(crate) path: PathAndQuery,
    pub(crate) form: Form,
}

/// How it was written.
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
