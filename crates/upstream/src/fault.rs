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

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $status:ident, $error_type:literal, $reason:literal;)*) => {
        /// The kind of error: each is a row of the table in docs/egress.md.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All of them, in the order of their declaration.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// The status for the caller.
            pub fn status(self) -> StatusCode {
                match self {
                    $(Kind::$kind => StatusCode::$status,)*
                }
            }

            /// The error type of RFC 9209 §2.3.
            pub fn error_type(self) -> &'static str {
                match self {
                    $(Kind::$kind => $error_type,)*
                }
            }

            /// One word for the log, the metrics and `details`.
            pub fn reason(self) -> &'static str {
                match self {
                    $(Kind::$kind => $reason,)*
                }
            }
        }
    };
}

kinds! {
    /// The request is invalid and cannot be passed on.
    BadRequest = BAD_REQUEST, "http_request_error", "bad_request";
    /// The caller sent no token, or a wrong one.
    NoToken = PROXY_AUTHENTICATION_REQUIRED, "http_request_denied", "no_token";
    /// No rule allows the call.
    NotAllowed = FORBIDDEN, "http_request_denied", "not_allowed";
    /// The name resolves to addresses that no rule allows.
    ForbiddenAddress = FORBIDDEN, "destination_ip_prohibited", "forbidden_address";
    /// The name was not found.
    DnsError = BAD_GATEWAY, "dns_error", "dns_error";
    /// The name servers did not answer in time.
    DnsTimeout = GATEWAY_TIMEOUT, "dns_timeout", "dns_timeout";
    /// There is no route to the address, or nothing answers there.
    Unreachable = BAD_GATEWAY, "destination_ip_unroutable", "unreachable";
    /// The origin refuses the connection.
    Refused = BAD_GATEWAY, "connection_refused", "refused";
    /// No connection within `connect_timeout`.
    ConnectTimeout = GATEWAY_TIMEOUT, "connection_timeout", "connect_timeout";
    /// The certificate is not trusted.
    CertificateError = BAD_GATEWAY, "tls_certificate_error", "certificate_error";
    /// TLS could not be negotiated.
    TlsError = BAD_GATEWAY, "tls_protocol_error", "tls_error";
    /// The connection ended before the answer was complete.
    Terminated = BAD_GATEWAY, "connection_terminated", "terminated";
    /// No first byte within `first_byte_timeout`.
    FirstByteTimeout = GATEWAY_TIMEOUT, "http_response_timeout", "first_byte_timeout";
    /// Nothing arrived for `read_timeout`, or the whole took longer than `timeout`.
    ResponseTimeout = GATEWAY_TIMEOUT, "http_response_timeout", "response_timeout";
    /// The answer is not valid HTTP.
    BadResponse = BAD_GATEWAY, "http_protocol_error", "bad_response";
    /// The head of the answer is longer than `max_response_head`.
    HeadTooLarge = BAD_GATEWAY, "http_response_header_section_size", "head_too_large";
    /// The breaker is open.
    BreakerOpen = SERVICE_UNAVAILABLE, "destination_unavailable", "breaker_open";
    /// `max_queue` calls are waiting.
    QueueFull = SERVICE_UNAVAILABLE, "connection_limit_reached", "queue_full";
    /// It waited for `queue_timeout`, or would have to.
    QueueTimeout = SERVICE_UNAVAILABLE, "connection_limit_reached", "queue_timeout";
    /// The time limit of the request that the call belongs to was reached.
    Deadline = GATEWAY_TIMEOUT, "http_response_timeout", "deadline";
    /// The caller sends its body too slowly.
    SlowCaller = REQUEST_TIMEOUT, "http_request_error", "slow_caller";
    /// The body is shorter than announced, or broken.
    BadBody = BAD_REQUEST, "http_request_error", "bad_body";
    /// weir has received its own call.
    Loop = LOOP_DETECTED, "proxy_loop_detected", "loop";
    /// An error of weir itself.
    Internal = INTERNAL_SERVER_ERROR, "proxy_internal_error", "internal";
}

impl Kind {
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
