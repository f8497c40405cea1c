//! Why host, path and method name nothing that may be answered.

use http::StatusCode;
use weir_semantics::{authority::BadHost, path::PathError};

/// Why a request is refused before any rule is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The host is invalid: 400.
    BadHost,
    /// No site of the listener has this host, and there is no default site: 421 (RFC 9110 §15.5.20).
    UnknownHost,
    /// An unregistered method, at a site that has method rules without this method: 501 (RFC 9110 §15.6.2). None of
    /// these rules would apply to it.
    UnknownMethod,
    /// The path is invalid: wrong escapes, NUL, too many script names: 400.
    BadPath,
    /// `..` above the root: 400.
    AboveRoot,
    /// `%2F`, if the rules say `encoded_slash = "refuse"`: 404.
    EncodedSlash,
}

impl From<BadHost> for Refusal {
    fn from(_: BadHost) -> Refusal {
        Refusal::BadHost
    }
}

impl From<PathError> for Refusal {
    fn from(error: PathError) -> Refusal {
        match error {
            PathError::Invalid => Refusal::BadPath,
            PathError::AboveRoot => Refusal::AboveRoot,
        }
    }
}

impl Refusal {
    /// The answer's status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadHost | Self::BadPath | Self::AboveRoot => StatusCode::BAD_REQUEST,
            Self::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
            Self::UnknownMethod => StatusCode::NOT_IMPLEMENTED,
            Self::EncodedSlash => StatusCode::NOT_FOUND,
        }
    }

    /// The log's reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::BadHost => "bad_host",
            Self::UnknownHost => "unknown_host",
            Self::UnknownMethod => "unknown_method",
            Self::BadPath => "bad_path",
            Self::AboveRoot => "path_above_root",
            Self::EncodedSlash => "encoded_slash",
        }
    }

    /// The message for the error log.
    pub fn message(self, path: &str) -> String {
        let path = path.get(..path.len().min(SHOWN_PATH)).unwrap_or_default();
        match self {
            // The access log has enough information.
            Self::BadHost | Self::UnknownHost => String::new(),
            Self::UnknownMethod => {
                format!(
                    "{path}: a method that is not registered, on a site with `methods` in routes; add it to `methods` to allow it"
                )
            }
            Self::BadPath => {
                format!("{path}: not a valid path (wrong escapes, a NUL, or too many script names)")
            }
            Self::AboveRoot => format!("{path}: its `..` segments lead above the root"),
            Self::EncodedSlash => {
                format!("{path}: an encoded slash, which encoded_slash = \"refuse\" forbids here")
            }
        }
    }
}

/// How many bytes of a path the error log shows.
const SHOWN_PATH: usize = 512;
