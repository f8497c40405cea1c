//! What `weir serve FOLDER` says on a terminal: where, with what, and how to end it.

use std::{fmt::Write, net::SocketAddr, path::Path};

use weir_config::{Address, Config, Runtime};

/// The banner. `addresses` are those that the sockets really have.
pub(super) fn text(folder: &Path, config: &Config, addresses: &[Address]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\n  weir serves {}", folder.display());
    for address in addresses {
        let _ = match address {
            Address::Tcp(address) => writeln!(out, "  on         {}", url(*address)),
            Address::Unix(path) => writeln!(out, "  on         unix:{}", path.display()),
        };
    }
    let mut commands = config.pools.iter().filter_map(|pool| match &pool.runtime {
        Runtime::Command(command) => Some(command),
        Runtime::Php(_) | Runtime::Servers(_) => None,
    });
    let _ = match commands.next() {
        Some(command) => writeln!(
            out,
            "  PHP        {}, {} worker{}",
            command.argv.first().map_or("", String::as_str),
            command.workers.max_children,
            if command.workers.max_children == 1 {
                ""
            } else {
                "s"
            },
        ),
        None => writeln!(out, "  PHP        none: files only"),
    };
    let _ = writeln!(out, "  stop with  Ctrl-C\n");
    out
}

/// An address that a browser understands: a wildcard becomes this machine.
fn url(address: SocketAddr) -> String {
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
