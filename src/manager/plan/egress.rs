//! The environment variables by which workers find the egress.

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use weir_config::{Address, Egress};

use crate::control::path_inside;

/// The address of the egress: `http://ADDR` of its first TCP listener, which is both the beginning of a URL and a
/// value for `http_proxy`; without one, `unix:PATH`.
pub(super) const ADDRESS: &str = "WEIR_EGRESS";

/// The path of its first unix socket.
pub(super) const SOCKET: &str = "WEIR_EGRESS_SOCKET";

/// The variables for workers, perhaps in a `chroot`. A socket's path is the one by which they can reach it; a socket
/// that they cannot reach is left out.
pub(super) fn variables(egress: &Egress, chroot: Option<&Path>) -> Vec<(&'static str, OsString)> {
    let mut addresses = egress.listen.iter();
    let tcp = addresses.find_map(|address| match address {
        // The port is not known yet.
        Address::Tcp(address) if address.port() != 0 => Some(reachable(*address)),
        Address::Tcp(_) | Address::Unix(_) => None,
    });
    let mut addresses = egress.listen.iter();
    let socket = addresses.find_map(|address| match (address, chroot) {
        (Address::Unix(path), None) => Some(path.clone()),
        (Address::Unix(path), Some(chroot)) => path_inside(chroot, path),
        (Address::Tcp(_), _) => None,
    });
    let mut variables = Vec::new();
    match (&tcp, &socket) {
        (Some(tcp), _) => variables.push((ADDRESS, format!("http://{tcp}").into())),
        (None, Some(socket)) => {
            let mut address = OsString::from("unix:");
            address.push(socket);
            variables.push((ADDRESS, address));
        }
        (None, None) => {}
    }
    variables.extend(socket.map(|socket| (SOCKET, socket.into())));
    variables
}

/// The address of a listener for this machine: a wildcard address becomes the loopback address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::HostSettings;

    fn egress(listen: &[&str]) -> Egress {
        let address = |text: &&str| match text.strip_prefix("unix:") {
            Some(path) => Address::Unix(path.into()),
            None => Address::Tcp(text.parse().expect("an address")),
        };
        Egress {
            listen: listen.iter().map(address).collect(),
            owner: None,
            group: None,
            mode: 0o660,
            token_file: None,
            threads: 0,
            max_connections: 1,
            max_hosts: 1,
            allow: Vec::new(),
            upgrade: Vec::new(),
            connect: false,
            cache_size: 0,
            cache_max_object: 0,
            defaults: HostSettings::USUAL,
            hosts: Vec::new(),
        }
    }

    fn told(listen: &[&str], chroot: Option<&str>) -> Vec<(&'static str, String)> {
        let variables = variables(&egress(listen), chroot.map(Path::new));
        let text = |value: OsString| value.into_string().expect("text");
        variables
            .into_iter()
            .map(|(name, value)| (name, text(value)))
            .collect()
    }

    #[test]
    fn the_first_tcp_address_is_a_url_and_the_first_socket_a_path() {
        let all = ["unix:/run/a.sock", "127.0.0.1:8083", "127.0.0.1:8084"];
        assert_eq!(
            told(&all, None),
            [
                (ADDRESS, "http://127.0.0.1:8083".to_owned()),
                (SOCKET, "/run/a.sock".to_owned())
            ]
        );
        assert_eq!(
            told(&["unix:/run/a.sock"], None),
            [
                (ADDRESS, "unix:/run/a.sock".to_owned()),
                (SOCKET, "/run/a.sock".to_owned())
            ]
        );
        assert_eq!(
            told(&["[::]:8083"], None),
            [(ADDRESS, "http://[::1]:8083".to_owned())]
        );
        assert_eq!(
            told(&["0.0.0.0:80"], None),
            [(ADDRESS, "http://127.0.0.1:80".to_owned())]
        );
        assert_eq!(told(&["127.0.0.1:0"], None), []);
    }

    #[test]
    fn who_is_locked_in_is_told_of_the_socket_that_it_can_reach() {
        let both = ["unix:/run/a.sock", "unix:/srv/shop/run/b.sock"];
        assert_eq!(
            told(&both, Some("/srv/shop")),
            [
                (ADDRESS, "unix:/run/b.sock".to_owned()),
                (SOCKET, "/run/b.sock".to_owned())
            ]
        );
        assert_eq!(told(&both[..1], Some("/srv/shop")), []);
    }
}
