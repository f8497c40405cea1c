//! Limits of a pool that operators set.

use weir_control::ToGateway;

use super::Generation;

impl Generation {
    /// Sets limits of a pool until the next reload; returns the effective limits, or why they cannot be set.
    pub(super) fn set_pool(
        &mut self,
        name: &str,
        max_children: Option<u32>,
        maxconn: Option<u32>,
    ) -> Result<String, String> {
        let pools = self.loaded.config.pools.iter();
        let Some((id, pool)) = (0..).zip(pools).find(|(_, pool)| pool.name == name) else {
            return Err(format!("unknown pool \"{name}\""));
        };
        let of_servers = pool.workers().is_none();
        let configured = pool.queue.maxconn as u64;
        let highest = if of_servers { configured } else { MAX_CONN };
        if let Some(maxconn) = maxconn.map(u64::from)
            && (maxconn == 0 || maxconn > highest)
        {
            let why = match of_servers {
                true => format!(
                    "maxconn can be set from 1 to {highest}, the value in weir.toml; for more, change weir.toml and run weir reload"
                ),
                false => format!("maxconn can be set from 1 to {highest}"),
            };
            return Err(why);
        }
        if let Some(most) = max_children {
            self.pools.set_max_children(id, most as usize)?;
        }
        let limits = self.limits.entry(id).or_default();
        limits.0 = max_children.or(limits.0);
        limits.1 = maxconn.or(limits.1);
        self.gateway.send(ToGateway::Limits {
            pool: id,
            max_children,
            maxconn,
        });
        let what = [("max_children", max_children), ("maxconn", maxconn)];
        let what = what.into_iter();
        let what = what.filter_map(|(key, value)| Some(format!("{key} is {}", value?)));
        let what = what.collect::<Vec<_>>().join(", ");
        log::info!(pool = name; "set by an operator: {what}, until the next reload");
        Ok(format!("pool {name}: {what}, until the next reload"))
    }
}

/// Maximum of requests at work at once for a pool of weir's own workers.
const MAX_CONN: u64 = 100_000;
