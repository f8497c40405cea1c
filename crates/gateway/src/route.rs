//! Turns host and path into a file, script, redirect, reply or refusal.
//!
//! [`Router::new`] compiles a configuration. For each request, [`Router::find`] finds its site and route (no I/O),
//! and [`Router::resolve`] finds what the path refers to there; [`files`](crate::files) then answers with a file.
//! `route/resolve.rs` has the order of the steps, `route/cache.rs` what is cached and for how long.
//!
//! Nothing here blocks the reactor: lookups use the kernel's caches, or run on tokio's blocking threads.

use std::{
    borrow::Cow,
    io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

use http::{HeaderValue, Method, StatusCode};
use weir_config::{Action, Config, EncodedSlash};
use weir_semantics::{authority, path};

mod cache;
mod hashing;
mod host;
mod lookup;
mod method;
mod refusal;
mod resolve;
mod root;
mod rules;
mod unchecked;

pub use cache::CacheLimits;
pub use refusal::Refusal;
pub use resolve::Script;
pub(crate) use resolve::is_out_of_descriptors;
pub use root::Reach;
pub use rules::Rules;
pub(crate) use rules::pattern::{Glob, Matcher};

use self::{
    host::HostTable,
    lookup::{OnReactor, OnThread},
    resolve::{Kept, Stop, Walk, Wanted},
    root::{OpenRoot, Roots, trim_slash},
    rules::pattern,
    rules::{
        Compiler, Space,
        rewrite::{Query, Rewrite},
    },
};
use crate::{
    access::guard::Guard,
    files::{FileEntry, LoadedFile},
};

/// All sites and routes of a configuration, compiled.
#[derive(Debug)]
pub struct Router {
    /// Number of this router in the process: each reactor has a cache per router.
    number: u64,
    limits: CacheLimits,
    /// By the listener's index in the configuration.
    listeners: Vec<HostTable>,
    sites: Vec<Site>,
}

/// `[site.NAME]`, compiled.
#[derive(Debug)]
pub struct Site {
    /// Index in the configuration.
    pub index: usize,
    /// The rules if no route has its own.
    pub rules: &'static Rules,
    /// Where requests without TLS are redirected to; `None`: they are answered.
    pub https_redirect: Option<Action>,
    routes: Vec<Route>,
}

/// `[[site.NAME.route]]`, compiled.
#[derive(Debug)]
pub struct Route {
    /// The action of a route that answers by itself.
    pub action: Option<Action>,
    /// The rules for its paths.
    pub rules: &'static Rules,
    path: Matcher,
    /// Empty: all methods.
    methods: Vec<Method>,
    rewrite: Option<Rewrite>,
    /// Requests to routes with the same number are counted together for `rate`.
    zone: u32,
    /// For a route with an alias: its prefix without the slash at the end.
    alias: Option<Box<[u8]>>,
}

/// The site and route of a request.
#[derive(Debug, Clone)]
pub struct RouteMatch<'r, 'h> {
    /// Its site.
    pub site: &'r Site,
    /// The first route of the site that matches path and method.
    pub route: Option<&'r Route>,
    /// The rules of the route, otherwise of the site.
    pub rules: &'static Rules,
    /// The host: lower case, without port; empty if the client sent none.
    pub host: Cow<'h, [u8]>,
    /// The decoded and normalised path (see `route/path.rs`), after a `rewrite`.
    pub path: Cow<'h, [u8]>,
    /// The query that a `rewrite` has made; `None`: the request's own.
    pub query: Option<Query>,
    /// How many bytes of the path may be a file's path: the part after an encoded slash may not.
    plain: usize,
    /// Other rules whose guards apply too: of routes that rewrote the path, and of the path with its dot segments.
    guards: Vec<&'static Rules>,
}

impl Site {
    /// The first route for a method and a path.
    fn first(&self, method: &Method, path: &[u8]) -> Option<usize> {
        self.routes.iter().position(|route| {
            (route.methods.is_empty() || route.methods.contains(method))
                && (route.path.matches(path) || route.alias.as_deref() == Some(path))
        })
    }

    /// The same, if that route denies.
    fn denied(&self, method: &Method, path: &[u8]) -> Option<usize> {
        self.first(method, path)
            .filter(|index| matches!(self.routes[*index].action, Some(Action::Deny)))
    }

    /// The rules for a path, if they demand something of clients.
    fn guarded(&self, method: &Method, path: &[u8]) -> Option<&'static Rules> {
        let route = self.first(method, path);
        let rules = route.map_or(self.rules, |index| self.routes[index].rules);
        rules.guard.is_some().then_some(rules)
    }

    /// The route for a path: the first route that matches the path, or that matches a script's name in the path, before
    /// the path-info. So rules for `/x.php` apply to `/x.php/anything` too. If a route denies one of these names, that
    /// route wins.
    fn route_for(&self, method: &Method, path: &[u8]) -> Result<Option<usize>, Refusal> {
        let mut route = self.first(method, path);
        if self.routes.is_empty() {
            return Ok(None);
        }
        loop {
            let rules = route.map_or(&self.rules, |index| &self.routes[index].rules);
            let before = route.unwrap_or(usize::MAX);
            let (mut first, mut denied) = (before, None);
            let complete = rules.script.with_path_info(path, |name| {
                let found = self.first(method, name);
                first = first.min(found.unwrap_or(usize::MAX));
                denied = self.denied(method, name);
                denied.is_some()
            });
            if !complete {
                return Err(Refusal::BadPath);
            }
            if denied.is_some() {
                return Ok(denied);
            }
            // Another route may have a different script pattern.
            match first < before {
                true if matches!(
                    route.map(|index| &self.routes[index].action),
                    Some(Some(Action::Deny))
                ) =>
                {
                    return Ok(route);
                }
                true => route = Some(first),
                false => return Ok(route),
            }
        }
    }
}

/// The target of a request's path under its rules. `tried` and `why` are for the error log, never for the client. `F` and
/// `S`: files and scripts as the reactor has them, or as they leave a thread.
#[derive(Debug)]
pub enum Target<'r, F = Rc<FileEntry>, S = Rc<Script>> {
    /// The route answers by itself.
    Action(&'r Action),
    /// A file for GET or HEAD: [`files::serve`](crate::files::serve) answers it.
    File(F),
    /// A script that exists, and a pool that runs it.
    Script(S),
    /// No file: servers that speak HTTP get the request.
    Pool {
        /// The target for them, if it is not the client's.
        target: Option<Vec<u8>>,
    },
    /// A folder without the slash at its end: 301, or 308 for methods other than GET and HEAD.
    DirectoryRedirect {
        /// Path and query.
        location: HeaderValue,
        /// 301 or 308.
        status: StatusCode,
    },
    /// OPTIONS of a file: 204.
    Options {
        /// The `Allow` header.
        allow: HeaderValue,
    },
    /// A file, but the method is neither GET nor HEAD: 405.
    MethodNotAllowed {
        /// The `Allow` header.
        allow: HeaderValue,
    },
    /// 404
    NotFound {
        /// What is missing.
        why: &'static str,
        /// The path that was tried.
        tried: PathBuf,
    },
    /// 403
    Forbidden {
        /// The rule that forbids it.
        why: &'static str,
        /// What it forbids.
        tried: PathBuf,
    },
    /// The lookup failed: 503 if descriptors or memory are used up, otherwise 500.
    Failed {
        /// Why.
        error: io::Error,
        /// What was looked up.
        tried: PathBuf,
    },
}

impl Site {
    /// Whether the site's routes with methods, if it has any, may apply to this method.
    fn takes(&self, method: &Method) -> bool {
        let mut by_method = self.routes.iter().filter(|route| !route.methods.is_empty());
        method::is_registered(method)
            || by_method.clone().next().is_none()
            || by_method.any(|route| route.methods.contains(method))
    }
}

impl Router {
    /// Compiles `config`. Its paths are used as this process sees them.
    ///
    /// # Errors
    /// An invalid pattern, with the name of the site.
    #[cfg(test)]
    pub fn new(config: &Config) -> Result<Self, String> {
        Self::with_reach(config, Reach::default())
    }

    /// Compiles `config` for a process that runs in a chroot or got opened folders.
    ///
    /// # Errors
    /// As [`Self::new`]; also if a folder is outside of the chroot and was not passed.
    pub fn with_reach(config: &Config, reach: Reach) -> Result<Self, String> {
        let roots = Roots::new(reach).map_err(|error| format!("/: {error}"))?;
        let mut compiler = Compiler::new(config, roots);
        let mut listeners: Vec<HostTable> = Vec::new();
        listeners.resize_with(config.listeners.len(), HostTable::default);
        let mut sites = Vec::with_capacity(config.sites.len());
        for (index, site) in config.sites.iter().enumerate() {
            for &listener in &site.listen {
                if let Some(table) = listeners.get_mut(listener) {
                    table.add(index, &site.hosts);
                }
            }
            sites.push(
                compile_site(&mut compiler, index, site)
                    .map_err(|e| format!("site.{}: {e}", site.name))?,
            );
        }
        pattern::forget_compiled();
        Ok(Self {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            limits: CacheLimits::default(),
            listeners,
            sites,
        })
    }

    /// Limits the cache of each reactor.
    #[cfg(test)]
    #[must_use]
    pub fn with_cache_limits(mut self, limits: CacheLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The sites, in the order of the configuration.
    #[cfg(test)]
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Finds the site and route of a request.
    ///
    /// `host` is the target's authority, otherwise the `Host` header, as received; `target_path` is the target's path
    /// as received, without query.
    ///
    /// # Errors
    /// [`Refusal`]: the host is invalid or unknown, or the path is invalid.
    pub fn find<'r, 'h>(
        &'r self,
        listener: u16,
        host: Option<&'h [u8]>,
        method: &Method,
        target_path: &'h [u8],
    ) -> Result<RouteMatch<'r, 'h>, Refusal> {
        let table = self
            .listeners
            .get(usize::from(listener))
            .ok_or(Refusal::UnknownHost)?;
        let host = host.map_or(Ok(Cow::Borrowed(&[][..])), authority::host_name)?;
        let site = &self.sites[table.find(&host)?];
        if !site.takes(method) {
            return Err(Refusal::UnknownMethod);
        }
        let normal = path::normalise(target_path)?;
        let (mut path, mut plain) = (normal.path, normal.plain);
        let mut route = site.route_for(method, &path)?;
        if normal.dotted
            && let Some(denied) = site.denied(method, &path::with_dots(target_path)?)
        {
            // An application that reads REQUEST_URI sees the dot segments, so a rule that denies that path must
            // apply.
            route = Some(denied);
        }
        let mut guards = Vec::new();
        if normal.dotted {
            guards.extend(site.guarded(method, &path::with_dots(target_path)?));
        }
        let mut query: Option<Query> = None;
        let mut done = Vec::new();
        while let Some(rewrite) = route.and_then(|index| site.routes[index].rewrite.as_ref()) {
            let index = route.unwrap_or_default();
            if done.contains(&index) || done.len() == MAX_REWRITES {
                break;
            }
            done.push(index);
            guards.extend(Some(site.routes[index].rules).filter(|rules| rules.guard.is_some()));
            let matcher = site.routes[index].path.regex();
            let new = rewrite.apply(matcher, &path, plain)?;
            query = Some(match query {
                Some(before) => new.query.before(before),
                None => new.query,
            });
            (path, plain) = (Cow::Owned(new.path), new.plain);
            route = site.route_for(method, &path)?;
        }
        let route = route.map(|index| &site.routes[index]);
        let rules = route.map_or(&site.rules, |route| &route.rules);
        if plain < path.len() && rules.settings.encoded_slash == EncodedSlash::Refuse {
            return Err(Refusal::EncodedSlash);
        }
        Ok(RouteMatch {
            site,
            route,
            rules,
            host,
            path,
            query,
            plain,
            guards,
        })
    }

    /// The site for a host (in lower case, without port) that a client of TLS asks for, an index into the configuration's.
    /// `None`: it asks for none, and gets the default site, if there is one.
    pub fn site_of(&self, listener: u16, host: Option<&str>) -> Option<usize> {
        let table = self.listeners.get(usize::from(listener))?;
        let site = match host {
            Some(host) => table.find(host.as_bytes()).ok()?,
            None => table.default_site()?,
        };
        Some(self.sites[site].index)
    }

    /// Finds the target of the request's path under its rules; `None` if this would have to wait for the disk:
    /// [`Self::resolve_on_thread`] must follow.
    ///
    /// `query` has no question mark; it is used in redirects. `now` is the request's time
    /// ([`weir_observe::clock::now`]).
    pub fn resolve_now<'r>(
        &self,
        found: &RouteMatch<'r, '_>,
        method: &Method,
        query: Option<&str>,
        now: u64,
    ) -> Option<Target<'r>> {
        let query = found.query(query);
        let query = query.as_deref();
        if let Some(route) = found.route {
            if let Some(action) = &route.action {
                return Some(Target::Action(action));
            }
            if route.alias.as_deref() == Some(&*found.path) {
                return Some(resolve::redirect_to_folder(&found.path, method, query));
            }
        }
        let wanted = found.wanted(method, query);
        let target = match &found.rules.space {
            Some(space) => self.try_now(found.rules, space, &wanted, now)?,
            None => found.rules.unseen(&wanted, b"").unwrap_or_else(no_root),
        };
        Some(found.finish(target, method))
    }

    /// As [`Self::resolve_now`], by a thread that may wait. [`RouteMatch::finish`] must follow.
    pub fn resolve_on_thread<'s>(
        &'s self,
        found: &RouteMatch<'_, '_>,
        method: &Method,
        query: Option<&str>,
        now: u64,
    ) -> impl Future<Output = Target<'static>> + use<'s> {
        let rules = found.rules;
        let query = found.query(query);
        let wanted = found.wanted(method, query.as_deref()).kept();
        async move {
            match &rules.space {
                Some(space) => self.wait(rules, space, wanted, now).await,
                None => no_root(),
            }
        }
    }

    /// The file for `X-Accel-Redirect: uri`: the first `accel_redirect` whose prefix `uri` (encoded path; a query is
    /// ignored) begins with. `None`: no prefix matches, so the URI is a URL of the site.
    pub async fn accel_redirect(
        &self,
        rules: &'static Rules,
        uri: &[u8],
        now: u64,
    ) -> Option<Target<'static>> {
        let path = uri.split(|&b| b == b'?').next().unwrap_or_default();
        let path::Normal { path, plain, .. } = path::normalise(path).ok()?;
        if plain < path.len() {
            return None;
        }
        let (prefix, space) = rules
            .accel
            .iter()
            .find(|(prefix, _)| path.starts_with(prefix))?;
        Some(self.file_in(rules, space, &path[prefix.len()..], now).await)
    }

    /// The file for `X-Sendfile: path`, an absolute path below one of `sendfile_dirs`. `None`: it is not below them.
    pub async fn sendfile(
        &self,
        rules: &'static Rules,
        file: &[u8],
        now: u64,
    ) -> Option<Target<'static>> {
        let (space, inner) = rules.sendfile.iter().find_map(|space| {
            let folder = root::trim_slash(space.root.path.as_os_str().as_bytes());
            let inner = file.strip_prefix(folder)?;
            inner.starts_with(b"/").then_some((space, inner))
        })?;
        Some(self.file_in(rules, space, inner, now).await)
    }

    /// The error page for this status, if there is one and it can be read.
    pub async fn error_page(
        &self,
        rules: &'static Rules,
        status: StatusCode,
        now: u64,
    ) -> Option<Rc<FileEntry>> {
        let (space, name) = rules.error_pages.get(&status.as_u16())?;
        match self.file_in(rules, space, name, now).await {
            Target::File(entry) => Some(entry),
            _ => None,
        }
    }

    async fn file_in(
        &self,
        rules: &'static Rules,
        space: &Space,
        inner: &[u8],
        now: u64,
    ) -> Target<'static> {
        let mut path = vec![b'/'];
        path.extend_from_slice(inner.strip_prefix(b"/").unwrap_or(inner));
        let wanted = Wanted::file(&path);
        match self.try_now(rules, space, &wanted, now) {
            Some(target) => target,
            None => self.wait(rules, space, wanted.kept(), now).await,
        }
    }

    fn try_now(
        &self,
        rules: &Rules,
        space: &Space,
        wanted: &Wanted<'_>,
        now: u64,
    ) -> Option<Target<'static>> {
        if space.root.is_remote() {
            return None;
        }
        cache::with(self.number, self.limits, |cache| {
            let id = space.root.id;
            let name = space.inner(wanted.path);
            if let Some(script) = cache.wanted_script((id, rules), (wanted, name), now) {
                return Some(Target::Script(script));
            }
            let root = match cache.root(id, now) {
                Some(root) => root,
                None => match space.root.open(true) {
                    Ok(root) => cache.keep_root(id, root, now),
                    // Descriptors are used up, or the root is gone: the lookup that may wait reports this.
                    Err(_) => return None,
                },
            };
            let mut walk = Walk {
                rules,
                space,
                root: &root,
                lookup: OnReactor(cache),
                now,
            };
            match walk.target(wanted) {
                Ok(target) => Some(target),
                Err(Stop::WouldBlock) => None,
                Err(Stop::Failed(error, tried)) => Some(Target::Failed { error, tried }),
            }
        })
    }

    async fn wait(
        &self,
        rules: &'static Rules,
        space: &Space,
        wanted: Kept,
        now: u64,
    ) -> Target<'static> {
        let id = space.root.id;
        let known = cache::with(self.number, self.limits, |cache| cache.root(id, now));
        let known = known.map(|root| OpenRoot::clone(&root));
        let space = space.clone();
        let keys = CacheKeys {
            root: id,
            space: space.id,
        };
        let shown = space.root.path.clone();
        let task = move || {
            let wanted = wanted.borrow();
            let root = match known.map_or_else(|| space.root.open(false), Ok) {
                Ok(root) => root,
                Err(error) => {
                    let root = trim_slash(space.root.path.as_os_str().as_bytes());
                    let target = rules.unseen(&wanted, root);
                    let tried = || space.root.shown(space.inner(wanted.path));
                    let target = target.unwrap_or_else(|| missing_root(error, tried()));
                    return (None, target);
                }
            };
            let mut walk = Walk {
                rules,
                space: &space,
                root: &root,
                lookup: OnThread,
                now,
            };
            let target = match walk.target(&wanted) {
                Ok(target) => target,
                Err(Stop::Failed(error, tried)) => Target::Failed { error, tried },
                Err(Stop::WouldBlock) => Target::Failed {
                    error: io::ErrorKind::WouldBlock.into(),
                    tried: space.root.shown(space.inner(wanted.path)),
                },
            };
            // Nothing about a remote file system is cached.
            ((!space.root.is_remote()).then_some(root), target)
        };
        let (root, target) = match tokio::task::spawn_blocking(task).await {
            Ok((root, target)) => (root, target.on_reactor()),
            Err(error) => {
                let error = io::Error::other(error);
                return Target::Failed {
                    error,
                    tried: shown,
                };
            }
        };
        if let Some(root) = root {
            self.keep(keys, root, &target, now);
        }
        target
    }

    /// Caches what a blocking thread has found.
    fn keep(&self, keys: CacheKeys, root: OpenRoot, target: &Target<'_>, now: u64) {
        cache::with(self.number, self.limits, |cache| {
            let current = match cache.root(keys.root, now) {
                Some(current) => current,
                None => cache.keep_root(keys.root, root.clone(), now),
            };
            match target {
                Target::File(entry) if entry.is_settled() => {
                    cache.files.insert(keys.space, entry.clone(), now)
                }
                Target::Script(script) if current.is(&root) => {
                    if let Some(name) = script.seen_name() {
                        cache.keep_known(keys.root, &root, name, now);
                    }
                }
                Target::Failed { error, .. } if is_out_of_descriptors(error) => cache.files.clear(),
                _ => {}
            }
        });
    }
}

/// By which numbers the cache knows a space and its root.
#[derive(Clone, Copy)]
struct CacheKeys {
    root: usize,
    space: usize,
}

/// Closes files that this reactor has cached and that were not used lately. Call it about once a second, also without
/// requests: the disk space of a deleted file is free only when it is closed.
pub fn sweep(now: u64) {
    cache::sweep(now);
}

fn compile_site(
    compiler: &mut Compiler<'_>,
    index: usize,
    site: &weir_config::Site,
) -> Result<Site, String> {
    let mut routes = Vec::with_capacity(site.routes.len());
    for (index, route) in site.routes.iter().enumerate() {
        let named = |error: String| format!("route {}: {error}", index + 1);
        let method = |name: &String| {
            Method::from_bytes(name.as_bytes()).map_err(|_| named(format!("method `{name}`")))
        };
        let alias = route.settings.alias.as_ref();
        routes.push(Route {
            zone: match route.settings.rate == site.settings.rate {
                true => 0,
                false => index as u32 + 1,
            },
            action: route.action.clone(),
            rules: compiler.rules(&route.settings).map_err(named)?,
            path: Matcher::of_path(&route.path).map_err(named)?,
            methods: route.methods.iter().map(method).collect::<Result<_, _>>()?,
            rewrite: route.rewrite.as_deref().map(Rewrite::new),
            alias: alias
                .and_then(|alias| alias.prefix.strip_suffix('/'))
                .map(|prefix| prefix.as_bytes().into()),
        });
    }
    Ok(Site {
        index,
        rules: compiler.rules(&site.settings)?,
        https_redirect: site.https_redirect.clone(),
        routes,
    })
}

impl<'r> RouteMatch<'r, '_> {
    /// Requests with the same number are counted together for `rate`.
    pub fn zone(&self) -> u64 {
        let route = self.route.map_or(0, |route| route.zone);
        (self.site.index as u64) << 32 | u64::from(route)
    }

    /// Whether something is demanded of clients.
    pub(crate) fn has_guards(&self) -> bool {
        self.rules.guard.is_some() || !self.guards.is_empty()
    }

    /// Rules besides [`Self::rules`] whose guards the request must pass: of routes that rewrote the path, and of the path
    /// with its dot segments, because an application may read it.
    pub(crate) fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.guards.iter().filter_map(|rules| rules.guard.as_ref())
    }

    /// The same for the file or script that a folder's URL leads to, which has a name of its own.
    pub(crate) fn guard_of(&self, target: &Target<'_>, method: &Method) -> Option<&'static Guard> {
        let name = self.name_in_folder(target)?;
        self.site.guarded(method, &name)?.guard.as_ref()
    }

    /// The path of the file or script that a folder's URL leads to, if routes may be for it.
    fn name_in_folder(&self, target: &Target<'_>) -> Option<Vec<u8>> {
        let name = match target {
            _ if self.site.routes.is_empty() || !self.path.ends_with(b"/") => return None,
            Target::Script(script) => &script.script_name[..],
            Target::File(entry) => entry.path(),
            _ => return None,
        };
        let start = memchr::memrchr(b'/', name).map_or(0, |slash| slash + 1);
        Some([&self.path, &name[start..]].concat())
    }

    /// The query that applies.
    fn query<'q>(&self, asked: Option<&'q str>) -> Option<Cow<'q, str>> {
        match &self.query {
            Some(query) => Some(query.with(asked))
                .filter(|query| !query.is_empty())
                .map(Cow::Owned),
            None => asked.map(Cow::Borrowed),
        }
    }

    fn wanted<'w>(&'w self, method: &'w Method, query: Option<&'w str>) -> Wanted<'w> {
        Wanted {
            path: &self.path,
            plain: self.plain,
            request: Some((method, query)),
            rewritten: self.query.is_some(),
            regex: self.route.and_then(|route| route.path.regex()),
        }
    }

    /// A folder's URL may lead to a file that a route denies by its own name. Then it is denied here as well.
    pub(crate) fn finish(&self, target: Target<'static>, method: &Method) -> Target<'r> {
        let Some(name) = self.name_in_folder(&target) else {
            return target;
        };
        match self.site.denied(method, &name) {
            Some(index) => match &self.site.routes[index].action {
                Some(action) => Target::Action(action),
                None => target,
            },
            None => target,
        }
    }
}

impl<'r> Target<'r, Box<LoadedFile>, Script> {
    /// What a thread has found, for the reactor that asked.
    fn on_reactor(self) -> Target<'r> {
        match self {
            Target::File(file) => Target::File((*file).into()),
            Target::Script(script) => Target::Script(script.into()),
            Target::Action(action) => Target::Action(action),
            Target::Pool { target } => Target::Pool { target },
            Target::DirectoryRedirect { location, status } => {
                Target::DirectoryRedirect { location, status }
            }
            Target::Options { allow } => Target::Options { allow },
            Target::MethodNotAllowed { allow } => Target::MethodNotAllowed { allow },
            Target::NotFound { why, tried } => Target::NotFound { why, tried },
            Target::Forbidden { why, tried } => Target::Forbidden { why, tried },
            Target::Failed { error, tried } => Target::Failed { error, tried },
        }
    }
}

fn no_root() -> Target<'static> {
    Target::NotFound {
        why: "the site has no root",
        tried: PathBuf::new(),
    }
}

fn missing_root<F, S>(error: io::Error, tried: PathBuf) -> Target<'static, F, S> {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Target::NotFound {
            why: "the root does not exist",
            tried,
        },
        _ => Target::Failed { error, tried },
    }
}

/// Maximum number of rewrites for one request; nginx has the same limit.
const MAX_REWRITES: usize = 10;
/// 0 means no router.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

#[cfg(test)]
mod tests;
