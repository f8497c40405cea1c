//! Why a request had no answer, or only a part of one.

use std::{error, fmt, io};

use weir_http1::Error as Malformed;

/// Any error of a request's body.
pub type Cause = Box<dyn error::Error + Send + Sync>;

/// What went wrong on a connection. It cannot be used again.
#[derive(Debug)]
pub enum Error {
    /// The method or the target cannot be written.
    Request,
    /// The connection was closed before the kernel accepted any of the request. Over TLS a part may
    /// have been sent.
    Unsent(io::Error),
    /// The request's body ended early, or has not the announced length.
    Body(Cause),
    /// The server accepted no more of the request, and did not answer.
    Write(io::Error),
    /// The connection broke.
    Read(io::Error),
    /// The server closed the connection before anything of an answer came.
    Closed,
    /// The answer is malformed, too large, or ends too early.
    Answer(Malformed),
    /// The server sends one interim answer after the other.
    Endless,
    /// The server answered 101, which was not requested.
    Switched,
}

impl Error {
    /// Whether the connection ended, and the server sent nothing wrong.
    pub(super) fn is_end(&self) -> bool {
        matches!(
            self,
            Error::Closed | Error::Read(_) | Error::Answer(Malformed::Truncated)
        )
    }
}

impl From<Malformed> for Error {
    fn from(error: Malformed) -> Error {
        Error::Answer(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Request => "the method or the target is malformed",
            Error::Unsent(_) => "nothing could be sent",
            Error::Body(_) => "the body could not be read",
            Error::Write(_) => "the request could not be sent",
            Error::Read(_) => "the answer could not be read",
            Error::Closed => "nothing was received",
            Error::Answer(error) => return error.fmt(f),
            Error::Endless => "too many interim answers (1xx)",
            Error::Switched => "it switches protocols (101) without being asked",
        })
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::Unsent(error) | Error::Write(error) | Error::Read(error) => Some(error),
            Error::Body(error) => Some(&**error),
            _ => None,
        }
    }
}
