//! Messages about a generation, for the log and for operators.

use std::time::{Duration, Instant};

use weir_config::Protocol;
use weir_control::{DrainStatus, OldGeneration};
use weir_observe::error_log::{self, Format};

use super::{Generation, Phase};

/// Logs where weir can be reached, and for which sites or pool.
pub(crate) fn say_listeners(generation: &Generation) {
    if error_log::format() == Format::Fpm {
        return;
    }
    let config = &generation.loaded.config;
    for (index, address) in generation.sockets.addresses().iter().enumerate() {
        let sites = config.sites.iter().filter(|s| s.listen.contains(&index));
        let sites: Vec<&str> = sites.map(|site| site.name.as_str()).collect();
        let listener = config.listeners[index].name.as_str();
        let whom = match &config.listeners[index].protocol {
            Protocol::FastCgi(front) => match config.pools.get(front.pool.0) {
                Some(pool) => format!("FastCGI for pool {}", pool.name),
                None => "FastCGI".to_owned(),
            },
            Protocol::AgentCheck(agent) => match config.pools.get(agent.pool.0) {
                Some(pool) => format!("reports pool {} to HAProxy", pool.name),
                None => "reports a pool to HAProxy".to_owned(),
            },
            Protocol::Http if sites.is_empty() => "no site".to_owned(),
            Protocol::Http if sites.len() > MOST_SITES => format!(
                "{} and {} more sites",
                sites[..MOST_SITES].join(", "),
                sites.len() - MOST_SITES
            ),
            Protocol::Http => sites.join(", "),
        };
        log::info!(listen = listener; "listens on {address}: {whom}");
    }
    for address in generation.sockets.egress_addresses() {
        log::info!("listens on {address}: outgoing calls");
    }
}

impl Generation {
    /// The report for operators about a generation that is finishing.
    pub(crate) fn as_old(&self, now: Instant) -> OldGeneration {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let left = match self.phase {
            Phase::Draining { until } => until.saturating_duration_since(now),
            _ => Duration::ZERO,
        };
        let since = |since: Instant| now.saturating_duration_since(since);
        OldGeneration {
            number: self.id,
            gateway: self.gateway.pid().unwrap_or(0),
            since: millis(self.finishing.map_or(Duration::ZERO, since)),
            left: millis(left),
            holding: self.holding.clone(),
        }
    }
}

/// What a gateway waits for, as text: "2 connections, 1 request; POST /up (pool shop) has run for 12.1 s".
pub(crate) fn said(holding: &DrainStatus) -> String {
    let count = |count: u32, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let mut text = format!(
        "{}, {} at workers",
        count(holding.connections, "connection"),
        count(holding.requests, "request")
    );
    if holding.calls {
        text += ", calls of the application";
    }
    if !holding.request.is_empty() {
        let seconds = holding.longest as f64 / 1e3;
        text += &format!("; {} has run for {seconds:.1} s", holding.request);
    }
    text
}

/// How many sites of a listener are named in the log.
const MOST_SITES: usize = 20;
