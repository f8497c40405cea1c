//! Error answers of the gateway itself: what is refused, who caused it, and what clients may learn about it.
//!
//! A [`Refusal`] has two messages. The reason is one word for the client (`Proxy-Status`, RFC 9209) and the access
//! log. The details (what was tried, what went wrong) go to the error log only.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use weir_http::{Body, Fields, Reply};
use weir_http1::Name;
use weir_pool::ShedReason;

/// Why a request is not answered with a file or by a script.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// One of the documented words, for the client and the access log.
    pub(crate) reason: &'static str,
    /// The error type of RFC 9209 §2.3; `None` if the client caused the error.
    error: Option<&'static str>,
    /// The message for the error log; empty if there is nothing to log, or the same was just logged for other
    /// requests.
    pub(crate) message: String,
    /// Seconds.
    retry_after: Option<u32>,
    /// Allowed methods.
    allow: Option<HeaderValue>,
    /// `WWW-Authenticate`
    challenge: Option<&'static HeaderValue>,
    /// The connection must be closed, because the client is still sending data that is not read.
    pub(crate) close: bool,
}

impl Refusal {
    /// An error of the client. After a 400 the connection is closed: it is not certain where the client's next
    /// request begins.
    pub(crate) fn client(
        status: StatusCode,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Refusal {
        Refusal {
            status,
            reason,
            error: None,
            message: message.into(),
            retry_after: None,
            allow: None,
            challenge: None,
            close: status == StatusCode::BAD_REQUEST,
        }
    }

    /// An error of the gateway, the application or the machine; `error` is a type of RFC 9209 §2.3.
    pub(crate) fn upstream(
        status: StatusCode,
        reason: &'static str,
        error: &'static str,
        message: impl Into<String>,
    ) -> Refusal {
        Refusal {
            error: Some(error),
            ..Refusal::client(status, reason, message)
        }
    }

    /// The pool refused the request.
    pub(crate) fn shed(
        reason: ShedReason,
        retry_after: u64,
        message: impl Into<String>,
    ) -> Refusal {
        let (word, error) = match reason {
            ShedReason::QueueFull | ShedReason::PushedOut | ShedReason::Overload => {
                ("queue_full", "connection_limit_reached")
            }
            ShedReason::QueueTimeout | ShedReason::Hopeless | ShedReason::Deadline => {
                ("queue_timeout", "connection_timeout")
            }
            ShedReason::NoWorker => ("no_worker", "destination_unavailable"),
        };
        Refusal::upstream(StatusCode::SERVICE_UNAVAILABLE, word, error, message)
            .retry_after(retry_after)
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Refusal {
        self.retry_after = Some(u32::try_from(seconds).unwrap_or(u32::MAX));
        self
    }

    pub(crate) fn allow(mut self, methods: HeaderValue) -> Refusal {
        self.allow = Some(methods);
        self
    }

    /// The client should send a user and a password.
    pub(crate) fn challenge(mut self, challenge: &'static HeaderValue) -> Refusal {
        self.challenge = Some(challenge);
        self
    }

    /// Closes the connection after the answer.
    pub(crate) fn closing(mut self) -> Refusal {
        self.close = true;
        self
    }

    /// Whether a worker caused the error. PHP-FPM leaves the answer to the web server then.
    pub(crate) fn is_worker_failure(&self) -> bool {
        [StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT].contains(&self.status)
    }

    /// The answer: a small page, unless the site has its own error page.
    pub(crate) fn reply(&self) -> Reply {
        let mut headers = Fields::with_capacity(128);
        // These are valid header values: constants, and words from weir itself.
        let mut put = |name: Name, value: &[u8]| {
            let _ = headers.append(name, value);
        };
        put(Name::ContentType, b"text/html; charset=utf-8");
        if let Some(error) = self.error {
            let value = format!("weir; error={error}; details=\"{}\"", self.reason);
            put(Name::ProxyStatus, value.as_bytes());
        }
        if let Some(seconds) = self.retry_after {
            put(
                Name::RetryAfter,
                itoa::Buffer::new().format(seconds).as_bytes(),
            );
        }
        if let Some(methods) = &self.allow {
            put(Name::Allow, methods.as_bytes());
        }
        if let Some(challenge) = self.challenge {
            put(Name::WwwAuthenticate, challenge.as_bytes());
        }
        if self.close {
            put(Name::Connection, b"close");
        }
        Reply {
            status: self.status,
            headers,
            body: Body::Bytes(page(self.status)),
        }
    }

    /// The answer for a web server in front, in the form of a script's answer (RFC 3875 §6): the web server passes
    /// that on, whereas a refusal by FastCGI (`FCGI_OVERLOADED`) would become a 502. `proxy_status`: whether the answer
    /// has the reason, which the web server passes on to its clients.
    pub(crate) fn script_reply(&self, proxy_status: bool) -> Reply {
        let mut headers = Fields::with_capacity(128);
        let mut put = |name: Name, value: &str| {
            // These are valid header values: constants, and words from weir itself.
            let _ = headers.append(name, value.as_bytes());
        };
        put(Name::ContentType, "text/plain; charset=utf-8");
        if let Some(error) = self.error
            && proxy_status
        {
            let reason = self.reason;
            put(
                Name::ProxyStatus,
                &format!("weir; error={error}; details=\"{reason}\""),
            );
        }
        if let Some(seconds) = self.retry_after {
            put(Name::RetryAfter, itoa::Buffer::new().format(seconds));
        }
        Reply {
            status: self.status,
            headers,
            body: Body::Bytes(format!("{}\n", Status(self.status)).into()),
        }
    }
}

/// `503 Service Unavailable`
struct Status(StatusCode);

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phrase = self.0.canonical_reason().unwrap_or("Error");
        write!(f, "{} {phrase}", self.0.as_u16())
    }
}

/// A page that shows a status and nothing else.
fn page(status: StatusCode) -> Bytes {
    let title = Status(status);
    Bytes::from(format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>body{{font:1.2em system-ui,sans-serif;display:grid;place-content:center;min-height:90vh;margin:0;\
         color:#444;background:#fff}}</style>\n<h1>{title}</h1></html>\n"
    ))
}
