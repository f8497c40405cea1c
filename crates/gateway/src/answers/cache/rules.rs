//! The rules of a site or route for the cache, compiled: which requests it is asked for, and what makes another page.

use std::sync::Arc;

use weir_config::CacheRules;

use crate::route::{Glob, Matcher};

/// [`CacheRules`], compiled.
#[derive(Debug)]
pub(crate) struct Cached {
    /// As the configuration has them.
    pub(crate) said: Arc<CacheRules>,
    pub(super) bypass_cookies: Names,
    pub(super) bypass_query: Names,
    pub(super) drop_query: Names,
    pub(super) vary_cookies: Names,
    pub(super) purge_params: Names,
    pub(super) bypass_paths: Vec<Matcher>,
    pub(super) purge_on: Vec<Matcher>,
    pub(super) login_paths: Vec<Matcher>,
}

/// Globs over names.
#[derive(Debug)]
pub(super) struct Names(Vec<Glob>);

impl Cached {
    /// Compiles the rules.
    ///
    /// # Errors
    ///
    /// If an expression cannot be compiled.
    pub(crate) fn new(said: &Arc<CacheRules>) -> Result<Cached, String> {
        let paths = |patterns: &[weir_config::PathPattern]| {
            let compiled = patterns.iter().map(Matcher::of_path);
            compiled.collect::<Result<Vec<_>, _>>()
        };
        Ok(Cached {
            bypass_cookies: Names::new(&said.bypass_cookies),
            bypass_query: Names::new(&said.bypass_query),
            drop_query: Names::new(&said.drop_query),
            vary_cookies: Names::new(&said.vary_cookies),
            purge_params: Names::new(&said.purge_params),
            bypass_paths: paths(&said.bypass_paths)?,
            purge_on: paths(&said.purge_on)?,
            login_paths: paths(&said.login_paths)?,
            said: said.clone(),
        })
    }

    /// Whether weir, and not the application alone, says what is stored. Then the application must not see what does not
    /// belong to the key: cookies that do not count, and parameters that are dropped.
    pub(super) fn is_imposed(&self) -> bool {
        !self.said.ttl.is_zero()
    }

    /// The query without the parameters that are dropped; `None`: it has none of them.
    pub(super) fn kept_query(&self, query: &[u8]) -> Option<Vec<u8>> {
        let pairs = || query.split(|byte| *byte == b'&');
        let is_dropped = |pair: &&[u8]| self.drop_query.has(name_of(pair));
        pairs().any(|pair| is_dropped(&pair)).then(|| {
            let kept: Vec<_> = pairs().filter(|pair| !is_dropped(pair)).collect();
            kept.join(&b'&')
        })
    }
}

impl Names {
    fn new(globs: &[String]) -> Names {
        Names(globs.iter().map(|glob| Glob::new(glob)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|glob| glob.matches(name))
    }

    /// The first name of these pairs that is meant.
    pub(super) fn first<'p>(&self, mut pairs: impl Iterator<Item = &'p [u8]>) -> Option<&'p [u8]> {
        if self.is_empty() {
            return None;
        }
        pairs.find_map(|pair| Some(name_of(pair)).filter(|name| self.has(name)))
    }
}

/// Whether one of these matches the path.
pub(super) fn any(patterns: &[Matcher], path: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(path))
}

/// The name in `name=value`.
pub(super) fn name_of(pair: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'=', pair).unwrap_or(pair.len());
    &pair[..end]
}
