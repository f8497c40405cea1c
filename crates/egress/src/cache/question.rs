//! A request as the cache sees it.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use weir_cache::{Asker, Request, Wishes, fields::joined, rules};
use weir_config::is_credential;

use super::super::target::Target;

/// A call before it is sent anywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheRequest<'a> {
    pub(crate) target: &'a Target,
    pub(crate) method: &'a Method,
    /// As the caller sent them.
    pub(crate) headers: &'a HeaderMap,
    /// Whether it has a body, which may change the answer.
    pub(crate) has_body: bool,
    /// Headers that weir sets in each call to that origin. The caller's values for these do not count.
    pub(crate) set: &'a [(HeaderName, HeaderValue)],
    /// For how long a stale answer may be used when the origin fails (`stale_if_error`).
    pub(crate) stale_if_error: Duration,
}

/// The key of a stored answer: origin, path and query.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key(pub(super) Arc<str>);

impl Key {
    pub(super) fn of(target: &Target) -> Key {
        Key::new(&target.origin, target.path.as_str())
    }

    pub(super) fn new(origin: impl fmt::Display, path: &str) -> Key {
        Key(format!("{origin}{path}").into())
    }
}

/// Without the query, which may contain secrets.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.split('?').next().unwrap_or_default())
    }
}

/// A GET or HEAD whose answer may come from the cache.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) key: Key,
    pub(super) is_head: bool,
    /// The caller's headers, without those that weir sets.
    pub(super) headers: HeaderMap,
    pub(super) wishes: Wishes,
    /// The request has credentials ([`is_credential`]), so the answer may be for this caller alone. RFC 9111 §3.5
    /// mentions only `Authorization`; cookies and similar headers of services mean the same.
    pub(super) is_personal: bool,
    pub(super) stale_if_error: Duration,
}

/// Why the cache does not handle a call (the `fwd` of RFC 9211).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    /// A method whose answers are not stored.
    Method,
    /// A request that the cache does not support, or whose caller does not want the cache.
    Bypass,
}

impl Question {
    /// # Errors
    /// If the answer may neither be stored nor be taken from the cache.
    pub(super) fn of(asked: &CacheRequest<'_>) -> Result<Question, Apart> {
        let is_head = *asked.method == Method::HEAD;
        if *asked.method != Method::GET && !is_head {
            return Err(Apart::Method);
        }
        let request = Request {
            method: rules::Method::Get,
            fields: asked.headers,
            asker: Asker::Anybody,
            has_body: asked.has_body,
        };
        let wishes = Wishes::of(asked.headers);
        // The calls of scripts for parts are left to the origin.
        let is_for_a_part = asked.headers.contains_key(header::RANGE)
            || asked.headers.contains_key(header::IF_RANGE);
        if wishes.no_store || is_for_a_part || request.passes().is_some() {
            return Err(Apart::Bypass);
        }
        let mut headers = asked.headers.clone();
        // This header is only for weir (`token_file`) and is not sent on.
        headers.remove(header::PROXY_AUTHORIZATION);
        for (name, _) in asked.set {
            super::super::headers::remove_all_of(&mut headers, name);
        }
        Ok(Question {
            key: Key::of(asked.target),
            is_head,
            is_personal: headers.keys().any(|name| is_credential(name.as_str())),
            headers,
            wishes,
            stale_if_error: asked.stale_if_error,
        })
    }

    /// As the rules see it.
    pub(super) fn request(&self) -> Request<'_, HeaderMap> {
        Request {
            method: match self.is_head {
                true => rules::Method::Head,
                false => rules::Method::Get,
            },
            fields: &self.headers,
            asker: self.asker(),
            has_body: false,
        }
    }

    pub(super) fn asker(&self) -> Asker {
        match self.is_personal {
            true => Asker::WithCredentials,
            false => Asker::Anybody,
        }
    }

    /// Whether both requests probably get the same answer: they agree in the headers by which answers usually vary,
    /// and in those of `vary`, by which this one has varied before.
    pub(super) fn is_like(&self, other: &Question, vary: &[&str]) -> bool {
        NEGOTIATED
            .iter()
            .chain(vary)
            .all(|name| joined(&self.headers, name) == joined(&other.headers, name))
    }
}

const NEGOTIATED: [&str; 3] = ["accept", "accept-encoding", "accept-language"];

#[cfg(test)]
mod tests {
    use weir_config::Scheme;

    use super::{
        super::super::{origin::Origin, target::Form},
        *,
    };

    fn target() -> Target {
        Target {
            origin: Origin {
                scheme: Scheme::Https,
                host: "api.example".into(),
                port: 8443,
            },
            path: "/a?secret=1".parse().unwrap(),
            form: Form::Path,
        }
    }

    fn ask(
        method: Method,
        header: &str,
        set: &[(HeaderName, HeaderValue)],
    ) -> Result<Question, Apart> {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header.split_once(": ") {
            let name: HeaderName = name.parse().unwrap();
            headers.insert(name, value.parse().unwrap());
        }
        Question::of(&CacheRequest {
            target: &target(),
            method: &method,
            headers: &headers,
            has_body: header == "body",
            set,
            stale_if_error: Duration::ZERO,
        })
    }

    #[test]
    fn what_the_cache_is_asked() {
        let question = ask(Method::GET, "", &[]).unwrap();
        assert_eq!(&*question.key.0, "https://api.example:8443/a?secret=1");
        assert_eq!(format!("{:?}", question.key), "https://api.example:8443/a");
        assert!(ask(Method::HEAD, "", &[]).unwrap().is_head);
        for method in [Method::POST, Method::OPTIONS, Method::DELETE] {
            assert_eq!(ask(method, "", &[]).unwrap_err(), Apart::Method);
        }
        for header in [
            "range: bytes=0-1",
            "if-match: \"a\"",
            "if-unmodified-since: x",
            "cache-control: No-Store",
            "body",
        ] {
            assert_eq!(ask(Method::GET, header, &[]).unwrap_err(), Apart::Bypass);
        }
    }

    #[test]
    fn who_asks_is_seen_unless_weir_says_it() {
        for header in [
            "authorization: x",
            "cookie: x",
            "x-api-key: x",
            "private-token: x",
            "x-auth-user: x",
            "ocp-apim-subscription-key: x",
            "x.api.key: x",
            "x_auth: x",
        ] {
            assert!(
                ask(Method::GET, header, &[]).unwrap().is_personal,
                "{header}"
            );
        }
        for header in [
            "accept: x",
            "user-agent: x",
            "x-request-id: x",
            // Contains weir's own token.
            "proxy-authorization: Bearer x",
        ] {
            assert!(
                !ask(Method::GET, header, &[]).unwrap().is_personal,
                "{header}"
            );
        }
        let set = [(header::AUTHORIZATION, HeaderValue::from_static("weir's"))];
        let question = ask(Method::GET, "authorization: x", &set).unwrap();
        assert!(!question.is_personal && question.headers.is_empty());
        let set = [(
            HeaderName::from_static("x-api-key"),
            HeaderValue::from_static("weir's"),
        )];
        let question = ask(Method::GET, "x.api_key: x", &set).unwrap();
        assert!(!question.is_personal && question.headers.is_empty());
    }

    #[test]
    fn likeness_is_of_what_answers_vary_by() {
        let german = ask(Method::GET, "accept-language: de", &[]).unwrap();
        let french = ask(Method::GET, "accept-language: fr", &[]).unwrap();
        assert!(!german.is_like(&french, &[]) && german.is_like(&german, &[]));
        let one = ask(Method::GET, "x-tenant: 1", &[]).unwrap();
        let two = ask(Method::GET, "x-tenant: 2", &[]).unwrap();
        assert!(one.is_like(&two, &[]));
        assert!(!one.is_like(&two, &["x-tenant"]));
    }
}
