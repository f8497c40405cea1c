//! The name of a target in the trace.

use std::fmt;

use crate::route::Target;

/// The kind of a target, for the trace.
pub(super) struct Named<'t>(pub(super) &'t Target<'t>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Target::Action(_) => f.write_str("reply of the route"),
            Target::File(_) => f.write_str("file"),
            Target::Script(script) => write!(f, "script {}", script.filename().display()),
            Target::Pool { .. } => f.write_str("pool"),
            Target::DirectoryRedirect { .. } => f.write_str("redirect to the folder"),
            Target::Options { .. } => f.write_str("options"),
            Target::MethodNotAllowed { .. } => f.write_str("method not allowed"),
            Target::NotFound { why, tried } => write!(f, "not found: {} ({why})", tried.display()),
            Target::Forbidden { why, tried } => write!(f, "forbidden: {} ({why})", tried.display()),
            Target::Failed { error, tried } => write!(f, "failed: {} ({error})", tried.display()),
        }
    }
}
