//! Names the request in lines of the error log, also after its end.

use std::rc::Rc;

use http::Method;
use weir_observe::error_log::{self, About};

use crate::{dispatch::PoolHandle, record::Endpoints};

/// The owner of a response: its pool, the request's number, and who asked; `None` if it had ended before.
#[derive(Debug, Default)]
pub(crate) struct Owner(pub(super) Option<(&'static PoolHandle, u64, RequestSummary)>);

/// The client and what it requested, for log lines.
#[derive(Debug, Clone)]
pub(crate) struct RequestSummary {
    pub(crate) endpoints: Rc<Endpoints>,
    pub(crate) method: Method,
    /// Path and query, in the spelling of a URI.
    pub(crate) target: Vec<u8>,
}

impl RequestSummary {
    /// As log lines name it.
    pub(crate) fn named(&self) -> error_log::RequestLine<'_> {
        error_log::RequestLine {
            client: self.endpoints.remote_addr(),
            method: self.method.as_str(),
            // That spelling is UTF-8.
            url: std::str::from_utf8(&self.target).unwrap_or_default(),
        }
    }
}

impl Owner {
    /// For the error log.
    pub(crate) fn about(&self) -> About<'_> {
        About {
            pool: (self.0.as_ref()).map(|(pool, ..)| pool.settings.name.as_str()),
            request: self.0.as_ref().map(|(_, id, _)| *id),
            asked: self.0.as_ref().map(|(.., asked)| asked.named()),
            ..About::default()
        }
    }
}
