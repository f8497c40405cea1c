//! Why a call was not answered by its origin: what the caller is told, what is logged, and whether a retry is
//! allowed.
//!
//! A [`Fault`] has two messages, like the gateway's refusals: its kind is for the caller (`Proxy-Status`, RFC 9209)
//! and the call's log line; the details (what was tried, what went wrong) go to the error log.

use http::StatusCode;
use weir_pool::Sent;

/// A call that failed.
#[derive(Debug, Clone)]
pub struct Fault {
    pub kind: Kind,
    /// For the error log: place, cause, fix. It contains no headers or bodies.
    pub message: String,
    /// What the origin may have seen of the request.
    pub sent: Sent,
    /// Seconds after which the caller may try again.
    pub retry_after: Option<u64>,
}

impl Fault {
    /// An error before anything was sent.
    pub fn unsent(kind: Kind, message: impl Into<String>) -> Fault {
        Fault {
            kind,
            message: message.into(),
            sent: Sent::Nothing,
            retry_after: None,
        }
    }

    /// An error when the origin may have seen the request.
    pub fn sent(kind: Kind, message: impl Into<String>) -> Fault {
        Fault {
            sent: Sent::Maybe,
            ..Fault::unsent(kind, message)
        }
    }
}

/// The kind of error: each is a row of the table in docs/egress.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The request is invalid and cannot be passed on.
    BadRequest,
    /// The caller sent no token, or a wrong one.
    NoToken,
    /// No rule allows the call.
    NotAllowed,
    /// The name resolves to addresses that no rule allows.
    ForbiddenAddress,
    /// The name was not found.
    DnsError,
    /// The name servers did not answer in time.
    DnsTimeout,
    /// There is no route to the address, or nothing answers there.
    Unreachable,
    /// The origin refuses the connection.
    Refused,
    /// No connection within `connect_timeout`.
    ConnectTimeout,
    /// The certificate is not trusted.
    CertificateError,
    /// TLS could not be negotiated.
    TlsError,
    /// The connection ended before the answer was complete.
    Terminated,
    /// No first byte within `first_byte_timeout`.
    FirstByteTimeout,
    /// Nothing arrived for `read_timeout`, or the whole took longer than `timeout`.
    ResponseTimeout,
    /// The answer is not valid HTTP.
    BadResponse,
    /// The head of the answer is longer than `max_response_head`.
    HeadTooLarge,
    /// The breaker is open.
    BreakerOpen,
    /// `max_queue` calls are waiting.
    QueueFull,
    /// It waited for `queue_timeout`, or would have to.
    QueueTimeout,
    /// The time limit of the request that the call belongs to was reached.
    Deadline,
    /// The caller sends its body too slowly.
    SlowCaller,
    /// The body is shorter than announced, or broken.
    BadBody,
    /// weir has received its own call.
    Loop,
    /// An error of weir itself.
    Internal,
}

impl Kind {
    /// All of them, in the order of their declaration.
    pub const ALL: [Kind; 24] = [
        Kind::BadRequest,
        Kind::NoToken,
        Kind::NotAllowed,
        Kind::ForbiddenAddress,
        Kind::DnsError,
        Kind::DnsTimeout,
        Kind::Unreachable,
        Kind::Refused,
        Kind::ConnectTimeout,
        Kind::CertificateError,
        Kind::TlsError,
        Kind::Terminated,
        Kind::FirstByteTimeout,
        Kind::ResponseTimeout,
        Kind::BadResponse,
        Kind::HeadTooLarge,
        Kind::BreakerOpen,
        Kind::QueueFull,
        Kind::QueueTimeout,
        Kind::Deadline,
        Kind::SlowCaller,
        Kind::BadBody,
        Kind::Loop,
        Kind::Internal,
    ];

    /// The status for the caller.
    pub fn status(self) -> StatusCode {
        match self {
            Kind::BadRequest | Kind::BadBody => StatusCode::BAD_REQUEST,
            Kind::NoToken => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Kind::NotAllowed | Kind::ForbiddenAddress => StatusCode::FORBIDDEN,
            Kind::SlowCaller => StatusCode::REQUEST_TIMEOUT,
            Kind::DnsError
            | Kind::Unreachable
            | Kind::Refused
            | Kind::CertificateError
            | Kind::TlsError
            | Kind::Terminated
            | Kind::BadResponse
            | Kind::HeadTooLarge => StatusCode::BAD_GATEWAY,
            Kind::DnsTimeout
            | Kind::ConnectTimeout
            | Kind::FirstByteTimeout
            | Kind::ResponseTimeout
            | Kind::Deadline => StatusCode::GATEWAY_TIMEOUT,
            Kind::BreakerOpen | Kind::QueueFull | Kind::QueueTimeout => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Kind::Loop => StatusCode::LOOP_DETECTED,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The error type of RFC 9209 §2.3.
    pub fn error_type(self) -> &'static str {
        match self {
            Kind::BadRequest | Kind::SlowCaller | Kind::BadBody => "http_request_error",
            Kind::NoToken | Kind::NotAllowed => "http_request_denied",
            Kind::ForbiddenAddress => "destination_ip_prohibited",
            Kind::DnsError => "dns_error",
            Kind::DnsTimeout => "dns_timeout",
            Kind::Unreachable => "destination_ip_unroutable",
            Kind::Refused => "connection_refused",
            Kind::ConnectTimeout => "connection_timeout",
            Kind::CertificateError => "tls_certificate_error",
            Kind::TlsError => "tls_protocol_error",
            Kind::Terminated => "connection_terminated",
            Kind::FirstByteTimeout | Kind::ResponseTimeout | Kind::Deadline => {
                "http_response_timeout"
            }
            Kind::BadResponse => "http_protocol_error",
            Kind::HeadTooLarge => "http_response_header_section_size",
            Kind::BreakerOpen => "destination_unavailable",
            Kind::QueueFull | Kind::QueueTimeout => "connection_limit_reached",
            Kind::Loop => "proxy_loop_detected",
            Kind::Internal => "proxy_internal_error",
        }
    }

    /// One word for the log, the metrics and `details`.
    pub fn reason(self) -> &'static str {
        match self {
            Kind::BadRequest => "bad_request",
            Kind::NoToken => "no_token",
            Kind::NotAllowed => "not_allowed",
            Kind::ForbiddenAddress => "forbidden_address",
            Kind::DnsError => "dns_error",
            Kind::DnsTimeout => "dns_timeout",
            Kind::Unreachable => "unreachable",
            Kind::Refused => "refused",
            Kind::ConnectTimeout => "connect_timeout",
            Kind::CertificateError => "certificate_error",
            Kind::TlsError => "tls_error",
            Kind::Terminated => "terminated",
            Kind::FirstByteTimeout => "first_byte_timeout",
            Kind::ResponseTimeout => "response_timeout",
            Kind::BadResponse => "bad_response",
            Kind::HeadTooLarge => "head_too_large",
            Kind::BreakerOpen => "breaker_open",
            Kind::QueueFull => "queue_full",
            Kind::QueueTimeout => "queue_timeout",
            Kind::Deadline => "deadline",
            Kind::SlowCaller => "slow_caller",
            Kind::BadBody => "bad_body",
            Kind::Loop => "loop",
            Kind::Internal => "internal",
        }
    }

    /// Whether the origin caused it, so that its breaker counts it.
    pub fn blames_origin(self) -> bool {
        matches!(
            self,
            Kind::DnsError
                | Kind::DnsTimeout
                | Kind::Unreachable
                | Kind::Refused
                | Kind::ConnectTimeout
                | Kind::CertificateError
                | Kind::TlsError
                | Kind::Terminated
                | Kind::FirstByteTimeout
                | Kind::ResponseTimeout
                | Kind::BadResponse
                | Kind::HeadTooLarge
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_fault() {
        let page = include_str!("../../../docs/egress.md");
        for kind in Kind::ALL {
            let (status, error, reason) =
                (kind.status().as_u16(), kind.error_type(), kind.reason());
            let row = format!("\n| {status} | `{error}` | `{reason}` | ");
            assert!(page.contains(&row), "{kind:?}: {row}");
        }
        let rows = page.lines().filter(|line| {
            let status = line.strip_prefix("| ").and_then(|rest| rest.get(..3));
            status.is_some_and(|status| status.parse::<u16>().is_ok_and(|code| code >= 400))
        });
        assert_eq!(rows.count(), Kind::ALL.len());
    }
}
