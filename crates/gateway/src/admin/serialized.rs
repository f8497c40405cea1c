//! Which requests of a pool wait in the queue for others of the same session: a site, a route or a listener can set
//! `serialize_by`, and takes it from the pool's queue if it does not.

use weir_config::{Config, Pool, PoolId, Protocol, SerializeBy};

/// Whether requests of one session wait in the queue of a pool.
#[derive(Debug)]
pub(super) struct Serialized {
    /// `serialize_by` is set somewhere: for a site, a route, a listener or the pool's queue.
    is_set: bool,
    /// Sections that are not serialized: `[site.shop]`, `[site.shop] route "/api/*"`, `[listen.fcgi]`.
    off: Vec<String>,
}

impl Serialized {
    /// The entries of all pools, in the configuration's order.
    pub(super) fn of(config: &Config) -> Vec<Serialized> {
        let of_queue = |pool: &Pool| Serialized {
            is_set: matches!(
                pool.queue.serialize_by,
                SerializeBy::Part(_) | SerializeBy::Auto
            ),
            off: Vec::new(),
        };
        let mut all: Vec<Serialized> = config.pools.iter().map(of_queue).collect();
        let mut add = |id: PoolId, by: &SerializeBy, label: &dyn Fn() -> String| {
            let (Some(pool), Some(of_pool)) = (config.pools.get(id.0), all.get_mut(id.0)) else {
                return;
            };
            let by = match by {
                SerializeBy::Pool => &pool.queue.serialize_by,
                by => by,
            };
            match by {
                SerializeBy::Part(_) | SerializeBy::Auto => of_pool.is_set = true,
                SerializeBy::Pool | SerializeBy::Off => of_pool.off.push(label()),
            }
        };
        for site in &config.sites {
            let (name, of_site) = (&site.name, &site.settings);
            if let Some(id) = of_site.pool {
                add(id, &of_site.policy.serialize_by, &|| {
                    format!("[site.{name}]")
                });
            }
            for route in &site.routes {
                let settings = &route.settings;
                let by = &settings.policy.serialize_by;
                let is_like_site =
                    settings.pool == of_site.pool && *by == of_site.policy.serialize_by;
                // A route with an action runs no script.
                if let Some(id) = settings
                    .pool
                    .filter(|_| route.action.is_none() && !is_like_site)
                {
                    let label = || format!("[site.{name}] route \"{}\"", route.path);
                    add(id, by, &label);
                }
            }
        }
        for listener in &config.listeners {
            if let Protocol::FastCgi(front) = &listener.protocol
                && !front.status_only
            {
                let label = || format!("[listen.{}]", listener.name);
                add(front.pool, &front.policy.serialize_by, &label);
            }
        }
        all
    }

    /// Whether all that can reach the pool are serialized.
    pub(super) fn everywhere(&self) -> bool {
        self.is_set && self.off.is_empty()
    }

    /// Sections that are not serialized, although `serialize_by` is set somewhere.
    pub(super) fn elsewhere(&self) -> &[String] {
        if self.is_set { &self.off } else { &[] }
    }
}
