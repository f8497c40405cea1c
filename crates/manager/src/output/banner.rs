//! The output of `weir serve` on a terminal: where it serves, with what, and how to end it.

use std::{fmt::Write, net::SocketAddr, path::Path};

use weir_config::{Address, Config, HostPattern, LogTarget, Pm, Pool, Protocol, Runtime};

/// The banner. `addresses` are the actual addresses of the sockets, `admin` is what [`AdminListeners::shown`] says.
///
/// [`AdminListeners::shown`]: crate::sockets::admin::AdminListeners::shown
pub(crate) fn text(folder: &Path, config: &Config, addresses: &[Address], admin: &str) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\n  weir serves {}", folder.display());
    for (index, (listener, address)) in config.listeners.iter().zip(addresses).enumerate() {
        let _ = match address {
            Address::Tcp(address) if listener.tls.is_some() => {
                let sites = config.sites.iter();
                let sites = sites.filter(|site| site.listen.contains(&index));
                let hosts = sites.flat_map(|site| &site.hosts);
                hosts
                    .map(|host| https_url(host, *address))
                    .try_for_each(|url| {
                        writeln!(
                            out,
                            "  on         {url}  (weir trust: how to make browsers trust it)"
                        )
                    })
            }
            Address::Tcp(address) => writeln!(out, "  on         {}", url(*address)),
            Address::Unix(path) => writeln!(out, "  on         unix:{}", path.display()),
        };
    }
    let php = match config.pools.first() {
        Some(pool) => php(pool),
        None => "none: files only".into(),
    };
    let _ = writeln!(out, "  PHP        {php}");
    let _ = writeln!(out, "  status     {admin}");
    let _ = writeln!(out, "  stop with  Ctrl-C\n");
    out
}

/// The banner of a configuration: what it serves where, and where its logs are.
pub(crate) fn of_file(name: &str, config: &Config, addresses: &[Address], admin: &str) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\n  weir serves {name}");
    for (index, (listener, address)) in config.listeners.iter().zip(addresses).enumerate() {
        let sites = config
            .sites
            .iter()
            .filter(|site| site.listen.contains(&index));
        let sites: Vec<&str> = sites.map(|site| site.name.as_str()).collect();
        let (place, whom) = match (&listener.protocol, address) {
            (Protocol::Http, Address::Tcp(address)) if listener.tls.is_some() => {
                let place = url(*address).replacen("http", "https", 1);
                (place, sites.join(", "))
            }
            (Protocol::Http, Address::Tcp(address)) => (url(*address), sites.join(", ")),
            (Protocol::Http, address) => (address.to_string(), sites.join(", ")),
            (Protocol::FastCgi(_), address) => (address.to_string(), "FastCGI".to_owned()),
            (Protocol::AgentCheck(_), address) => (address.to_string(), "agent-check".to_owned()),
        };
        let _ = writeln!(out, "  on         {place}  {whom}");
    }
    let _ = writeln!(out, "  requests   {}", log_place(&config.log.access));
    let _ = writeln!(out, "  errors     {}", log_place(&config.log.error));
    let _ = writeln!(out, "  status     {admin}");
    let _ = writeln!(out, "  stop with  Ctrl-C\n");
    out
}

fn log_place(target: &LogTarget) -> String {
    match target {
        LogTarget::Off => "are not logged".into(),
        LogTarget::Stdout => "go to standard output".into(),
        LogTarget::Stderr => "go to standard error".into(),
        LogTarget::Syslog => "go to syslog".into(),
        LogTarget::File(path) => format!("go to {}", path.display()),
    }
}

/// What runs scripts, and how many workers.
fn php(pool: &Pool) -> String {
    let program = match &pool.runtime {
        Runtime::Php(php) => match weir_machine::php::find(php.version.as_deref()) {
            Ok(found) => found.version,
            Err(_) => "weir's own".into(),
        },
        Runtime::Command(command) => command.argv.first().cloned().unwrap_or_default(),
        Runtime::Servers(servers) => return format!("{} servers", servers.list.len()),
    };
    match pool
        .workers()
        .map(|workers| (workers.pm, workers.max_children))
    {
        Some((Pm::Static, 1)) => format!("{program}, 1 worker"),
        Some((Pm::Static, count)) => format!("{program}, {count} workers"),
        Some((_, most)) => format!("{program}, at most {most} workers"),
        None => program,
    }
}

/// The URL of a host over TLS.
fn https_url(host: &HostPattern, address: SocketAddr) -> String {
    match address.port() {
        443 => format!("https://{host}/"),
        port => format!("https://{host}:{port}/"),
    }
}

/// A URL for a browser: a wildcard address becomes this machine.
pub(crate) fn url(address: SocketAddr) -> String {
    let port = address.port();
    match (address.ip().is_unspecified(), address.is_ipv6()) {
        (true, true) => format!("http://[::1]:{port}/"),
        (true, false) => format!("http://127.0.0.1:{port}/"),
        (false, _) => format!("http://{address}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_that_a_browser_can_open() {
        let of = |text: &str| url(text.parse().unwrap());
        assert_eq!(of("127.0.0.1:8080"), "http://127.0.0.1:8080/");
        assert_eq!(of("0.0.0.0:80"), "http://127.0.0.1:80/");
        assert_eq!(of("[::]:8080"), "http://[::1]:8080/");
    }
}
