//! The cache for operators: what it holds, why a URL is or is not stored, and purges.

use std::collections::VecDeque;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use weir_bus::What;
use weir_cache::{
    key::KeyHash,
    purges::{Manner, Standing},
};
use weir_config::Protocol;
use weir_http::Head;
use weir_observe::{
    cache_use::CacheUse,
    metrics::{Metric, Page},
};

use super::{
    Cached, Pages, now,
    question::{Asked, Question, path_of, target},
};
use crate::{Gateway, route::RouteMatch};

/// What the cache holds and has done, in all and for each site with a cache.
pub(crate) fn stats(gateway: &Gateway) -> Value {
    let Some(pages) = &gateway.pages else {
        return Value::Null;
    };
    let (figures, config) = (pages.store.figures(), gateway.config);
    let settings = config.cache.as_ref();
    let sites = config.sites.iter().enumerate();
    let sites = sites.filter(|(_, site)| {
        let mut routes = site.routes.iter().map(|route| &route.settings);
        site.settings.cache.is_some() || routes.any(|settings| settings.cache.is_some())
    });
    let sites = sites.map(|(index, site)| {
        let counts = gateway.tally.site(Some(index)).cache;
        let uses = CacheUse::ALL.into_iter().zip(counts);
        let uses = uses.map(|(cache, count)| (cache.word().to_owned(), count.into()));
        (site.name.clone(), Value::Object(uses.collect()))
    });
    json!({
        "objects": figures.objects,
        "bytes": figures.bytes,
        "max_bytes": settings.map(|settings| settings.memory),
        "max_objects": settings.map(|settings| settings.max_objects),
        "stored": figures.stored,
        "evictions": figures.evictions,
        "purges": figures.purges,
        "disk": settings.filter(|settings| settings.disk.is_some()).map(|settings| json!({
            "objects": figures.disk.objects,
            "bytes": figures.disk.bytes,
            "max_bytes": settings.max_disk,
            "written": figures.disk.written,
            "not_written": figures.disk.not_written,
            "evictions": figures.disk.evictions,
            "damaged": figures.disk.damaged,
        })),
        "fetching": pages.flights.count(),
        "bus": pages.bus_stats(),
        "sites": Value::Object(sites.collect()),
    })
}

/// What would become of a request for a URL now, and what is stored. `query`: `url=`, and as the client's fields
/// `cookie=` and `header=NAME: VALUE`.
///
/// # Errors
///
/// What is wrong with the query.
pub(crate) fn why(gateway: &'static Gateway, query: &str) -> Result<Value, String> {
    let mut url = None;
    let mut head = Head::default();
    for (name, value) in pairs(query) {
        match name {
            "url" => url = Some(value),
            "cookie" => head.fields.push(b"cookie", value.as_bytes()),
            "header" => {
                let (name, value) = value.split_once(':').unwrap_or((&value, ""));
                head.fields
                    .push(name.trim().as_bytes(), value.trim().as_bytes());
            }
            _ => return Err(format!("unknown parameter {name}: url=, cookie=, header=")),
        }
    }
    let url = Url::parse(&url.ok_or("url= is missing")?)?;
    let pages = gateway
        .pages
        .as_ref()
        .ok_or("no site of this weir has a cache")?;
    head.fields.push(b"host", url.host.as_bytes());
    head.target = url.uri.clone().into();
    let found = url.find(gateway)?;
    let site = &gateway.config.sites[found.site.index];
    let Some(cached) = &found.rules.cache else {
        return Ok(json!({ "url": url.text, "site": site.name, "cache": "off",
            "why": "the site, or the route of this path, has no cache" }));
    };
    let asked = Asked {
        head: &head,
        path: &found.path,
        is_https: url.is_https,
    };
    let page = match Question::of_get(asked, cached) {
        Question::Page(page) => page,
        Question::Apart(apart) => {
            return Ok(
                json!({ "url": url.text, "site": site.name, "cache": "bypass",
                "rule": apart.token(), "why": apart.text() }),
            );
        }
        Question::Write(_) => return Err("only GET is asked here".into()),
    };
    super::question::hide_cookies(&mut head.fields, cached);
    let key = page.key(pages.store.seed(), site.name.as_bytes());
    let now = now();
    let stored = pages.stored(&key, &head.fields).map(|(stored, standing)| {
        let life = &stored.head.life;
        let is_valid = standing == Standing::Valid;
        json!({
            "status": stored.head.status.as_u16(),
            "bytes": stored.body().len(),
            "age": life.age(now) / 1000,
            "ttl": life.ttl(now),
            "purged": !is_valid,
            "fresh": is_valid && life.ttl(now) > 0,
        })
    });
    let refused = pages.refused().find(key.hash());
    let (word, why) = match (&stored, refused) {
        (Some(stored), _) if stored["fresh"] == true => ("hit", "a fresh page is stored"),
        (Some(stored), _) if stored["purged"] == true => (
            "expired",
            "a page is stored that was purged: the next request renews it",
        ),
        (Some(_), _) => (
            "expired",
            "a page is stored that has expired: the next request renews it",
        ),
        (None, Some((_, text))) => ("miss", text),
        (None, None) => ("miss", "nothing is stored for such a request"),
    };
    Ok(json!({
        "url": url.text,
        "site": site.name,
        "cache": word,
        "why": why,
        "last_answer": refused.filter(|_| stored.is_none()).map(|(token, _)| token),
        "host": url.host,
        "target": String::from_utf8_lossy(&page.target),
        "stored": stored,
    }))
}

/// Purges pages: `tag=`, `url=`, `prefix=` (a URL or a path), `site=` or `all=yes`; `hard=yes`. With `site=`, `tag` and
/// `prefix` are only about this site.
///
/// # Errors
///
/// What is wrong with the query.
pub(crate) fn purge(gateway: &'static Gateway, query: &str) -> Result<Value, String> {
    let pages = gateway
        .pages
        .as_ref()
        .ok_or("no site of this weir has a cache")?;
    let (mut what, mut only, mut manner) = (None, None, Manner::Soft);
    for (name, value) in pairs(query) {
        match name {
            "tag" | "url" | "prefix" | "all" if what.is_some() => {
                return Err("one of tag=, url=, prefix=, all=yes".into());
            }
            "tag" | "url" | "prefix" => what = Some((name, value)),
            "all" if value == "yes" => what = Some((name, value)),
            "site" => only = Some(value),
            "hard" => {
                manner = if value == "yes" {
                    Manner::Hard
                } else {
                    Manner::Soft
                }
            }
            _ => return Err(format!("unknown parameter {name}={value}")),
        }
    }
    let mut sites: Vec<&str> = gateway
        .config
        .sites
        .iter()
        .map(|site| &*site.name)
        .collect();
    if let Some(only) = &only {
        sites.retain(|name| name == only);
        if sites.is_empty() {
            return Err(format!("there is no site {only:?}"));
        }
    }
    let mut said = String::new();
    match (&what, &only) {
        (None, None) => return Err("tag=, url=, prefix=, site= or all=yes is missing".into()),
        (None, Some(site)) => {
            let site = site.as_bytes().to_vec();
            pages.purge(What::Site { site }, manner);
            said.push_str("site");
        }
        (Some((kind, text)), _) => {
            said = format!("{kind} {text}");
            match *kind {
                "all" => pages.purge(What::All, manner),
                "tag" => {
                    for site in &sites {
                        let (site, tag) = (site.as_bytes().to_vec(), text.as_bytes().to_vec());
                        pages.purge(What::Tag { site, tag }, manner);
                    }
                }
                "prefix" if text.starts_with('/') => {
                    for site in &sites {
                        pages.purge(prefix(site, None, text.as_bytes()), manner);
                    }
                }
                kind => {
                    let url = Url::parse(text)?;
                    let found = url.find(gateway)?;
                    let site = &*gateway.config.sites[found.site.index].name;
                    sites = vec![site];
                    let purge = match kind {
                        "prefix" => prefix(site, Some(&url.host), url.received()),
                        _ => What::Url {
                            site: site.into(),
                            host: url.host.clone().into(),
                            target: url.target(found.rules.cache.as_ref()),
                        },
                    };
                    pages.purge(purge, manner);
                }
            }
        }
    }
    Ok(json!({ "purged": said, "hard": manner == Manner::Hard, "sites": sites }))
}

fn prefix(site: &str, host: Option<&str>, target: &[u8]) -> What {
    What::Prefix {
        site: site.into(),
        host: host.map(Into::into),
        target: target.into(),
    }
}

/// `name=value` of a query, decoded.
fn pairs(query: &str) -> impl Iterator<Item = (&str, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (
            name,
            percent_decode_str(value).decode_utf8_lossy().into_owned(),
        )
    })
}

/// A URL of one of the sites.
struct Url {
    text: String,
    uri: Uri,
    is_https: bool,
    /// With its port if the URL has one, as clients send it.
    host: String,
}

impl Url {
    fn parse(text: &str) -> Result<Url, String> {
        let uri: Uri = text
            .parse()
            .map_err(|error| format!("{text:?} is no URL: {error}"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(format!("{text:?} is no whole URL: https://HOST/PATH"));
        };
        Ok(Url {
            is_https: scheme == "https",
            host: authority.as_str().to_ascii_lowercase(),
            text: text.to_owned(),
            uri,
        })
    }

    /// The site and its rules.
    fn find(&self, gateway: &'static Gateway) -> Result<RouteMatch<'static, '_>, String> {
        let port = self.uri.port_u16();
        let listeners = gateway.config.listeners.iter().enumerate();
        let listeners = listeners.filter(|(_, listener)| {
            let is_its = |wanted| match &listener.address {
                weir_config::Address::Tcp(address) => address.port() == wanted,
                weir_config::Address::Unix(_) => true,
            };
            matches!(listener.protocol, Protocol::Http) && port.is_none_or(is_its)
        });
        let router = &gateway.router;
        let host = Some(self.host.as_bytes());
        let path = self.uri.path().as_bytes();
        let mut found = listeners
            .filter_map(|(index, _)| router.find(index as u16, host, &Method::GET, path).ok());
        found
            .next()
            .ok_or_else(|| format!("no site has {}", self.text))
    }

    /// Path and query.
    fn received(&self) -> &[u8] {
        let target = self.uri.path_and_query();
        target.map_or(b"/", |target| target.as_str().as_bytes())
    }

    /// As the key of its page has them.
    fn target(&self, cached: Option<&Cached>) -> Vec<u8> {
        let query = self.uri.query().unwrap_or_default().as_bytes();
        match cached {
            Some(cached) => target(path_of(self.received()), query, cached),
            None => self.received().to_vec(),
        }
    }
}

impl Pages {
    /// Adds the metrics of the store.
    pub(crate) fn put_metrics(&self, page: &mut Page) {
        let figures = self.store.figures();
        page.put(Metric::CacheBytes, &[], figures.bytes as f64);
        page.put(Metric::CacheAnswers, &[], figures.objects as f64);
        page.put(Metric::CacheEvictions, &[], figures.evictions as f64);
        page.put(Metric::CachePurges, &[], figures.purges as f64);
        self.put_bus(page);
    }
}

/// Why the last answers were not stored.
#[derive(Debug, Default)]
pub(super) struct Refusals(VecDeque<(KeyHash, Why)>);

/// One word, and a sentence.
pub(super) type Why = (&'static str, &'static str);

impl Refusals {
    pub(super) fn note(&mut self, key: KeyHash, why: Why) {
        if self.0.front().is_some_and(|newest| *newest == (key, why)) {
            return;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_back();
        }
        self.0.push_front((key, why));
    }

    fn find(&self, key: KeyHash) -> Option<Why> {
        let found = self.0.iter().find(|(noted, _)| *noted == key);
        found.map(|(_, why)| *why)
    }
}

/// How many answers that were not stored are remembered for an operator who asks why.
const REMEMBERED: usize = 1000;
