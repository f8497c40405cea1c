//! The input of all checks.

use std::path::{Path, PathBuf};

use regex::bytes::{Regex, RegexBuilder};
use weir_config::{Address, Config, Pool, PoolId, Runtime, Servers, Settings, Upstream, fpm};
use weir_sys::limits::OpenFiles;

use super::{
    live::{Found, Live},
    people::{People, Who},
    php::Answer,
    servers,
};

/// A configuration, and facts about its environment.
pub(super) struct Case<'a> {
    pub(super) config: &'a Config,
    /// The output of `weir check` for it on this machine.
    pub(super) said: Vec<CheckMessage>,
    pub(super) people: People,
    pub(super) found: Found,
    /// For each pool, PHP's information about itself; `None` if weir does not run it.
    pub(super) php: Vec<Option<Answer>>,
    /// The PHP-FPM configurations of this machine, if a pool has servers.
    pub(super) fpms: Vec<fpm::Fpm>,
}

/// A message of `weir check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CheckMessage {
    /// weir does not start with it.
    pub(super) error: bool,
    /// With its scope.
    pub(super) what: String,
    pub(super) mend: String,
}

/// Settings of a site or of one of its routes.
pub(super) struct Scope<'a> {
    /// `[site.shop]`, `[site.shop] route "/api/*"`
    pub(super) label: String,
    pub(super) settings: &'a Settings,
    /// Whether it is the site itself, or a route with another root or pool.
    pub(super) is_own: bool,
}

impl<'a> Case<'a> {
    pub(super) fn live(&self) -> Option<&Live> {
        match &self.found {
            Found::Runs(live) => Some(live),
            _ => None,
        }
    }

    /// All sites and routes, sites before their routes.
    pub(super) fn scopes(&self) -> Vec<Scope<'a>> {
        let mut scopes = Vec::new();
        for site in &self.config.sites {
            scopes.push(Scope {
                label: format!("[site.{}]", site.name),
                settings: &site.settings,
                is_own: true,
            });
            for route in &site.routes {
                let (of_route, of_site) = (&route.settings, &site.settings);
                scopes.push(Scope {
                    label: format!("[site.{}] route \"{}\"", site.name, route.path),
                    settings: of_route,
                    is_own: route.action.is_none()
                        && (of_route.root != of_site.root
                            || of_route.pool != of_site.pool
                            || of_route.script_root != of_site.script_root
                            || of_route.fallback != of_site.fallback
                            || of_route.index != of_site.index
                            || of_route.hide_files != of_site.hide_files),
                });
            }
        }
        scopes
    }

    pub(super) fn pool(&self, id: PoolId) -> Option<&'a Pool> {
        self.config.pools.get(id.0)
    }

    /// The user of a pool's workers, if weir starts them and the user exists.
    pub(super) fn worker(&self, id: PoolId) -> Option<&Who> {
        self.people.pools.get(id.0)?.as_ref()
    }

    /// The user and chroot of the workers behind servers on this machine, if PHP-FPM configurations of this machine
    /// name the same ones for all of them.
    pub(super) fn fpm_behind(&self, servers: &Servers) -> Option<(Who, Option<PathBuf>)> {
        let mut found = None;
        for server in &servers.list {
            let (_, pool) = servers::behind(&self.fpms, &server.address)?;
            let who = Who::named(pool.user.as_deref()?, pool.group.as_deref())?;
            let this = (who, pool.chroot.as_ref().map(PathBuf::from));
            match &found {
                Some(other) if *other != this => return None,
                _ => found = Some(this),
            }
        }
        found
    }

    /// The effective value of a PHP setting for a pool's scripts; `None`: not known.
    pub(super) fn php_setting(&self, index: usize, name: &str) -> Option<String> {
        let pool = self.config.pools.get(index)?;
        let settings = &pool.php()?.settings;
        if let Some(own) = settings.iter().rev().find(|setting| setting.name == name) {
            return Some(own.value.clone());
        }
        self.php_itself(index, name).map(str::to_owned)
    }

    /// The value that PHP's own configuration has for a pool; `None`: not known, or PHP has no such setting.
    pub(super) fn php_itself(&self, index: usize, name: &str) -> Option<&str> {
        let php = self.php.get(index)?.as_ref()?.as_ref().ok()?;
        php.setting(name)
    }

    /// The limit of open files with which weir starts: that of the running weir, otherwise ours.
    pub(super) fn open_files(&self) -> OpenFiles {
        let running = self.live().and_then(|live| live.gateway_files);
        running.unwrap_or_else(weir_sys::limits::open_files)
    }

    /// The pools with weir's own PHP, with their index.
    pub(super) fn php_pools(
        &self,
    ) -> impl Iterator<Item = (usize, &'a Pool, &'a weir_config::Php)> {
        let pools = self.config.pools.iter().enumerate();
        pools.filter_map(|(index, pool)| Some((index, pool, pool.php()?)))
    }
}

/// The document root that the gateway sends to a worker, perhaps in a chroot. By the gateway's rules: `script_root`
/// as written; on other hosts the root as written; otherwise the real path of the root, as seen from inside of the
/// chroot. `None`: the root is outside of the chroot, or does not exist.
pub(super) fn worker_root(settings: &Settings, pool: &Pool) -> Option<String> {
    let trimmed = |path: &Path| {
        let text = path.display().to_string();
        text.trim_end_matches('/').to_owned()
    };
    let root = settings.root.as_deref()?;
    if let Some(given) = &settings.script_root {
        return Some(trimmed(given));
    }
    if !is_here(pool) {
        return Some(trimmed(root));
    }
    let real = root.canonicalize().ok()?;
    match pool.workers().and_then(|workers| workers.chroot.as_deref()) {
        None => Some(trimmed(&real)),
        Some(chroot) => {
            let chroot = chroot.canonicalize().ok()?;
            let inside = real.strip_prefix(chroot).ok()?;
            Some(trimmed(&Path::new("/").join(inside)))
        }
    }
}

/// An expression for paths, compiled as in the gateway.
pub(super) fn pattern(text: &str) -> Option<Regex> {
    let build = |unicode| {
        RegexBuilder::new(text)
            .unicode(unicode)
            .dot_matches_new_line(true)
            .build()
    };
    build(false).or_else(|_| build(true)).ok()
}

/// Whether a pool's workers are on this machine.
pub(super) fn is_here(pool: &Pool) -> bool {
    match &pool.runtime {
        Runtime::Php(_) | Runtime::Command(_) => true,
        Runtime::Servers(servers) => servers.list.iter().all(|server| match &server.address {
            Upstream::At(Address::Unix(_)) => true,
            Upstream::At(Address::Tcp(address)) => address.ip().is_loopback(),
            Upstream::Named { .. } => false,
        }),
    }
}
