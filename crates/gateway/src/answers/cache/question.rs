//! What a request asks of the cache: for which page, or why the cache is not asked.
//!
//! **The key has everything that an application sees of a request and that other clients may send otherwise**, as far as weir
//! knows it: the URL as it was received, the host, the scheme, and the fields of proxies that applications believe
//! ([`BELIEVED`]). If weir imposes lifetimes (a preset, or `ttl`), the application is also kept from seeing what is not in the key:
//! cookies that do not count ([`hide_cookies`]). Nor does it see parameters that are dropped ([`hide_query`]). So an answer that is stored is of nobody in
//! particular, whatever the application forgets to say.

use std::borrow::Cow;

use http::{Method, Uri};
use weir_cache::{
    Forward,
    key::{Key, KeyParts, Seed},
};
use weir_config::is_credential;
use weir_http::Head;
use weir_http1::{Name, ParsedFields};

use super::rules::{Cached, any, name_of};
use crate::{
    record::Record,
    scripts::{is_websocket, spool::Spooled},
};

/// What a request asks.
#[derive(Debug)]
pub(super) enum Question {
    /// For this page.
    Page(Page),
    /// The cache is not asked.
    Apart(Apart),
    /// The request may change pages. If it succeeds, this one is outdated.
    Write(Page),
}

/// Why the cache is not asked for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Apart {
    /// Another method than GET and HEAD.
    Method,
    /// It has a body.
    Body,
    /// A script has redirected it here.
    Redirected,
    /// It begins a WebSocket.
    Upgrade,
    /// `bypass_paths`
    Path,
    /// `bypass_query`, with the parameter's name.
    Query(Vec<u8>),
    /// `bypass_cookies`, with the cookie's name.
    Cookie(Vec<u8>),
    /// Its client has said who it is: by Authorization or a similar field, or with a certificate.
    Authorized,
}

impl Apart {
    /// One word, for `Cache-Status`.
    pub(super) fn token(&self) -> &'static str {
        match self {
            Apart::Method => "method",
            Apart::Body => "body",
            Apart::Redirected => "redirected",
            Apart::Upgrade => "upgrade",
            Apart::Path => "bypass_paths",
            Apart::Query(_) => "bypass_query",
            Apart::Cookie(_) => "bypass_cookies",
            Apart::Authorized => "credentials",
        }
    }

    /// The same as one of the words of RFC 9211 §2.2.
    pub(super) fn forward(&self) -> Forward {
        match self {
            Apart::Method => Forward::Method,
            _ => Forward::Bypass,
        }
    }

    /// A sentence for the operator.
    pub(super) fn text(&self) -> String {
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match self {
            Apart::Method => "the method is neither GET nor HEAD".into(),
            Apart::Body => "the request has a body".into(),
            Apart::Redirected => "a script has redirected the request".into(),
            Apart::Upgrade => "the request begins a WebSocket".into(),
            Apart::Path => "the path is one of bypass_paths".into(),
            Apart::Query(of) => format!("the parameter {:?} is one of bypass_query", name(of)),
            Apart::Cookie(of) => format!("the cookie {:?} is one of bypass_cookies", name(of)),
            Apart::Authorized => {
                "the client says who it is (Authorization or a similar header, or a certificate)"
                    .into()
            }
        }
    }
}

impl Question {
    /// Of this request, whose target is a script. `body`: its body.
    pub(super) fn of(record: &Record, cached: &Cached, body: Option<&Spooled>) -> Question {
        let asked = Asked {
            head: &record.head,
            path: &record.path,
            is_https: record.endpoints.is_https,
        };
        match record.head.method {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS | Method::TRACE => return Question::Apart(Apart::Method),
            _ => return Question::Write(Page::of(asked, cached)),
        }
        let is_redirected =
            (record.rare.as_ref()).is_some_and(|rare| rare.asked.is_some() || rare.kept.is_some());
        if is_redirected {
            return Question::Apart(Apart::Redirected);
        }
        if body.is_some_and(|body| body.len() > 0) {
            return Question::Apart(Apart::Body);
        }
        if is_websocket(record) {
            return Question::Apart(Apart::Upgrade);
        }
        let tls = record.endpoints.tls.as_ref();
        if tls.is_some_and(|tls| tls.client.is_some()) {
            return Question::Apart(Apart::Authorized);
        }
        Question::of_get(asked, cached)
    }

    /// Of a request of GET without a body.
    pub(super) fn of_get(asked: Asked<'_>, cached: &Cached) -> Question {
        match asked.bypassed(cached) {
            Some(apart) => Question::Apart(apart),
            None => Question::Page(Page::of(asked, cached)),
        }
    }
}

/// The parts of a request by which pages are told apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'r> {
    pub(super) head: &'r Head,
    /// Decoded and normalised.
    pub(super) path: &'r [u8],
    pub(super) is_https: bool,
}

impl Asked<'_> {
    /// The rule by which the request is none for the cache.
    fn bypassed(self, cached: &Cached) -> Option<Apart> {
        let fields = &self.head.fields;
        if cached.is_imposed() && has_credentials(fields) {
            return Some(Apart::Authorized);
        }
        if let Some(cookie) = bypass_cookie(fields, cached) {
            return Some(Apart::Cookie(cookie.to_vec()));
        }
        if any(&cached.bypass_paths, self.path) {
            return Some(Apart::Path);
        }
        let query = self.head.received_query().unwrap_or_default();
        let parameter = cached.bypass_query.first(parameters(query));
        parameter.map(|name| Apart::Query(name.to_vec()))
    }
}

/// Whether a field other than Cookie says who asks: Authorization, or one whose name says so, as `X-Api-Key` does.
pub(super) fn has_credentials(fields: &ParsedFields) -> bool {
    // Browsers send many fields that begin so, and none of them says who asks.
    let is_of_browser = |name: &[u8]| {
        name.get(..4)
            .is_some_and(|it| it.eq_ignore_ascii_case(b"sec-"))
    };
    fields.has(Name::Authorization)
        || fields.iter().any(|(known, name, _)| {
            let says =
                |name: &str| is_credential(name) || name.to_ascii_lowercase().contains("nonce");
            known.is_none() && !is_of_browser(name) && std::str::from_utf8(name).is_ok_and(says)
        })
}

/// The name of a cookie by which the cache is not asked.
pub(super) fn bypass_cookie<'r>(fields: &'r ParsedFields, cached: &Cached) -> Option<&'r [u8]> {
    cached.bypass_cookies.first(pairs_of_cookies(fields))
}

/// What tells pages apart.
#[derive(Debug)]
pub(crate) struct Page {
    /// The host and port in the request, in lower case.
    pub(super) host: Vec<u8>,
    /// Path and query as received, without the parameters that are dropped.
    pub(super) target: Vec<u8>,
    /// Everything else.
    extra: Vec<u8>,
}

impl Page {
    /// The page that a request is about.
    fn of(asked: Asked<'_>, cached: &Cached) -> Page {
        let (head, fields) = (asked.head, &asked.head.fields);
        let host = fields.get(Name::Host).unwrap_or_default();
        let query = head.received_query().unwrap_or_default();
        let mut extra = Vec::new();
        let mut put = |name: &[u8], value: &[u8]| {
            extra.extend_from_slice(name);
            extra.extend_from_slice(value);
            extra.push(b'\n');
        };
        if asked.is_https {
            put(b"https", b"");
        }
        if cached.said.mobile && is_mobile(head) {
            put(b"mobile", b"");
        }
        if !cached.vary_cookies.is_empty() {
            let mut cookies: Vec<_> = pairs_of_cookies(fields)
                .filter(|pair| cached.vary_cookies.has(name_of(pair)))
                .collect();
            cookies.sort_unstable();
            for cookie in cookies {
                put(b"cookie ", cookie);
            }
        }
        for (known, name, value) in fields.iter() {
            if may_be_believed(known)
                && BELIEVED
                    .iter()
                    .any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
            {
                put(&name.to_ascii_lowercase(), value);
            }
        }
        Page {
            host: host.to_ascii_lowercase(),
            target: target(path_of(head.received()), query, cached),
            extra,
        }
    }

    /// Its key in the store.
    pub(super) fn key(&self, seed: &Seed, site: &[u8]) -> Key {
        seed.key(&KeyParts {
            site,
            host: &self.host,
            target: &self.target,
            extra: &self.extra,
        })
    }
}

/// Whether one of [`BELIEVED`] may have this well-known name. Most fields of a request need no comparison then.
fn may_be_believed(known: Option<Name>) -> bool {
    known.is_none_or(|name| {
        let text = name.as_str().as_bytes();
        matches!(text[0], b'F' | b'X')
    })
}

/// Path and query of a page as its key has them.
pub(super) fn target(path: &[u8], query: &[u8], cached: &Cached) -> Vec<u8> {
    let query = key_query(query, cached);
    let mut target = Vec::with_capacity(path.len() + 1 + query.len());
    target.extend_from_slice(path);
    if !query.is_empty() {
        target.push(b'?');
        target.extend_from_slice(&query);
    }
    target
}

/// What is in front of the query.
pub(super) fn path_of(uri: &[u8]) -> &[u8] {
    &uri[..memchr::memchr(b'?', uri).unwrap_or(uri.len())]
}

/// The query as the key has it.
fn key_query<'q>(query: &'q [u8], cached: &Cached) -> Cow<'q, [u8]> {
    let kept = cached.kept_query(query);
    if !cached.said.sort_query {
        return kept.map_or(Cow::Borrowed(query), Cow::Owned);
    }
    let kept = kept.as_deref().unwrap_or(query);
    let mut pairs: Vec<_> = parameters(kept).collect();
    // The order of parameters with the same name counts.
    pairs.sort_by_key(|pair| name_of(pair));
    Cow::Owned(pairs.join(&b'&'))
}

/// Hides from the application the parameters that the key of the page does not have. The log keeps what the client sent.
pub(super) fn hide_query(record: &mut Record, cached: &Cached) {
    let head = &mut record.head;
    let Some(kept) = head.query().and_then(|query| cached.kept_query(query)) else {
        return;
    };
    let mut target = head.path().to_vec();
    if !kept.is_empty() {
        target.push(b'?');
        target.extend_from_slice(&kept);
    }
    // It is made of parts of a URI.
    if let Ok(uri) = Uri::try_from(&target[..]) {
        let asked = std::mem::replace(&mut head.target, uri.into());
        let method = head.method.clone();
        record.rare_mut().asked.get_or_insert((method, asked));
    }
    if let Some(target) = record.rare.as_mut().and_then(|rare| rare.target.as_mut())
        && let Some(query) = memchr::memchr(b'?', target)
        && let Some(kept) = cached.kept_query(&target[query + 1..])
    {
        target.truncate(query + usize::from(!kept.is_empty()));
        target.extend_from_slice(&kept);
    }
    let script = record.script.as_mut();
    if let Some(script) = script
        && let Some(query) = &script.query
        && let Some(kept) = cached.kept_query(query.as_bytes())
    {
        let mut changed = (**script).clone();
        changed.query = Some(String::from_utf8_lossy(&kept).into_owned().into());
        *script = changed.into();
    }
}

/// Hides cookies that do not count.
pub(super) fn hide_cookies(fields: &mut ParsedFields, cached: &Cached) {
    if !cached.is_imposed() || !fields.has(Name::Cookie) {
        return;
    }
    let kept: Vec<_> = pairs_of_cookies(fields)
        .filter(|pair| cached.vary_cookies.has(name_of(pair)))
        .collect();
    let kept = kept.join(&b"; "[..]);
    fields.remove(b"cookie");
    if !kept.is_empty() {
        fields.push(b"cookie", &kept);
    }
}

/// `name=value` of all cookies.
fn pairs_of_cookies(fields: &ParsedFields) -> impl Iterator<Item = &[u8]> {
    let pairs = fields.all(Name::Cookie);
    let pairs = pairs.flat_map(|cookies| cookies.split(|byte| *byte == b';'));
    pairs
        .map(<[u8]>::trim_ascii)
        .filter(|pair| !pair.is_empty())
}

/// `name=value` of all parameters of a query or a form.
pub(super) fn parameters(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    let pairs = query.split(|byte| *byte == b'&');
    pairs.filter(|pair| !pair.is_empty())
}

/// Whether the client is a phone, as WordPress's `wp_is_mobile` sees it.
fn is_mobile(head: &Head) -> bool {
    if let Some(says) = head.field("sec-ch-ua-mobile") {
        return says == b"?1";
    }
    let agent = head.fields.get(Name::UserAgent).unwrap_or_default();
    let has = |word: &&str| memchr::memmem::find(agent, word.as_bytes()).is_some();
    MOBILE.iter().any(has)
}

/// Fields of proxies in front, which applications believe when they write links, or choose a page. A client can send them, too: so
/// its page is not that of other clients.
const BELIEVED: [&str; 15] = [
    "forwarded",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-forwarded-scheme",
    "x-forwarded-ssl",
    "x-forwarded-prefix",
    "x-forwarded-server",
    "x-original-url",
    "x-rewrite-url",
    "x-host",
    "front-end-https",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];

const MOBILE: [&str; 7] = [
    "Mobile",
    "Android",
    "Silk/",
    "Kindle",
    "BlackBerry",
    "Opera Mini",
    "Opera Mobi",
];
