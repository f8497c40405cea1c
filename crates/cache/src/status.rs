//! How a client and the operator are told what the cache did, and why.

use std::fmt;

/// A member of `Cache-Status` (RFC 9211), without this cache's name: `hit; ttl=5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStatus {
    /// Where the answer came from.
    pub outcome: Outcome,
    /// The status of the answer that the cache got, if the request was sent on.
    pub fwd_status: Option<u16>,
    /// The answer is stored.
    pub stored: bool,
    /// The answer was made for an equal request.
    pub collapsed: bool,
    /// For how many seconds the answer is still fresh; negative: since when it is stale.
    pub ttl: Option<i64>,
    /// What decided ([`Reason::token`]).
    pub detail: Option<&'static str>,
}

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// The cache, without a request to the origin.
    Hit,
    /// The origin.
    Forward(Forward),
    /// Neither: the cache itself has made it.
    #[default]
    Own,
}

/// Why a request was sent on (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// The cache does not handle this request.
    Bypass,
    /// The cache does not handle requests with this method.
    Method,
    /// Nothing is stored for this URL.
    UriMiss,
    /// Something is stored for this URL, but not for such a request.
    VaryMiss,
    /// Something is stored that may not be used for this request.
    Miss,
    /// The request itself did not want what is stored.
    Request,
    /// What is stored is stale.
    Stale,
}

impl Forward {
    /// As in `fwd=`.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Miss => "miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
        }
    }
}

impl CacheStatus {
    /// An answer that was stored.
    #[must_use]
    pub fn hit(ttl: i64) -> CacheStatus {
        CacheStatus {
            outcome: Outcome::Hit,
            ttl: Some(ttl),
            ..CacheStatus::default()
        }
    }

    /// An answer to a request that was sent on.
    #[must_use]
    pub fn forward(why: Forward) -> CacheStatus {
        CacheStatus {
            outcome: Outcome::Forward(why),
            ..CacheStatus::default()
        }
    }
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut say = |text: fmt::Arguments<'_>| {
            let before = std::mem::replace(&mut separator, "; ");
            write!(f, "{before}{text}")
        };
        match self.outcome {
            Outcome::Hit => say(format_args!("hit"))?,
            Outcome::Forward(why) => say(format_args!("fwd={}", why.token()))?,
            Outcome::Own => {}
        }
        if let Some(status) = self.fwd_status {
            say(format_args!("fwd-status={status}"))?;
        }
        if self.collapsed {
            say(format_args!("collapsed"))?;
        }
        if let Some(ttl) = self.ttl {
            say(format_args!("ttl={ttl}"))?;
        }
        if self.stored {
            say(format_args!("stored"))?;
        }
        if let Some(detail) = self.detail {
            say(format_args!("detail={detail}"))?;
        }
        Ok(())
    }
}

/// Defines [`Reason`] with what is said of each.
macro_rules! reasons {
    ($($name:ident $token:literal, $about:ident, $text:literal;)*) => {
        /// Why an answer is not stored, or a stored one not used.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $(#[doc = $text] $name,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];

            /// One word, for `detail=` of `Cache-Status` and for logs.
            #[must_use]
            pub fn token(self) -> &'static str {
                match self {
                    $(Reason::$name => $token,)*
                }
            }

            /// A sentence for the operator.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }

            fn about(self) -> About {
                match self {
                    $(Reason::$name => About::$about,)*
                }
            }
        }
    };
}

/// What a reason is found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Request,
    Answer,
}

reasons! {
    Method "method", Request, "the method is neither GET nor HEAD";
    Head "head", Request, "the answer to HEAD has no body that could be stored";
    Body "body", Request, "the request has a body, which may change the answer";
    Range "range", Request, "only a part was requested, and parts are not stored";
    Condition "condition", Request, "the request has If-Match or If-Unmodified-Since, which only the application may evaluate";
    NotWanted "no_store_request", Request, "the client asked for no storing (Cache-Control: no-store)";
    Credentials "credentials", Request, "the request has credentials, and the answer does not say that it is for everybody (public or s-maxage)";
    Cookies "cookies", Request, "the request has cookies that may tell who asks, and the answer does not say that it is for everybody (public, s-maxage or a targeted field)";
    SetCookie "set_cookie", Answer, "the answer sets a cookie (Set-Cookie)";
    Private "private", Answer, "the answer says private";
    NoStore "no_store", Answer, "the answer says no-store";
    Unreadable "unreadable", Answer, "Cache-Control cannot be read, and may say private";
    VaryAll "vary_all", Answer, "the answer depends on more than the request's fields (Vary: *)";
    VaryUnreadable "vary_unreadable", Answer, "Vary cannot be read";
    VaryMuch "vary_much", Answer, "the answer depends on too many fields (Vary)";
    Partial "partial", Answer, "the answer is only a part";
    Status "status", Answer, "answers of this status are not stored";
    Error "error", Answer, "errors of the application are not stored";
    NoLifetime "no_lifetime", Answer, "the answer names no lifetime, and the configuration gives it none";
    Expired "expired", Answer, "the lifetime that the answer names has passed or is 0, and it has no ETag or Last-Modified by which it could be validated";
}

impl Reason {
    /// Whether the next request for the same URL may well be stored: what decided was this request.
    #[must_use]
    pub fn is_about_request(self) -> bool {
        self.about() == About::Request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_said_in_the_order_of_what_happened() {
        assert_eq!(CacheStatus::hit(-3).to_string(), "hit; ttl=-3");
        let all = CacheStatus {
            fwd_status: Some(200),
            stored: true,
            collapsed: true,
            ttl: Some(5),
            detail: Some(Reason::SetCookie.token()),
            ..CacheStatus::forward(Forward::VaryMiss)
        };
        assert_eq!(
            all.to_string(),
            "fwd=vary-miss; fwd-status=200; collapsed; ttl=5; stored; detail=set_cookie"
        );
        assert_eq!(CacheStatus::default().to_string(), "");
    }

    #[test]
    fn tokens_are_different_and_can_be_sent() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            let token = reason.token();
            let is_one = token
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            assert!(is_one && !reason.text().is_empty(), "{token}");
            assert!(
                Reason::ALL[index + 1..]
                    .iter()
                    .all(|other| other.token() != token)
            );
        }
    }
}
