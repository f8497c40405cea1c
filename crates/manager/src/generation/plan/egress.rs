//! The environment variables by which workers find the egress.

use std::{
    ffi::OsString,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use weir_config::{Address, Egress, SocketPath};
use weir_control::path_inside;
use weir_sys::{
    access, file,
    identity::Identity,
    listener::{self, Rights},
};

use super::{Problem, Us, check_folder};
use crate::sockets::listen::LONGEST_PATH;

/// The address of the egress: `http://ADDR` of its first TCP listener, which is both the beginning of a URL and a
/// value for `http_proxy`; without one, `unix:PATH`.
pub(super) const ADDRESS: &str = "WEIR_EGRESS";

/// The path of the workers' own socket, or of its first unix socket.
pub(super) const SOCKET: &str = "WEIR_EGRESS_SOCKET";

/// The workers' own socket of the egress.
#[derive(Debug, Clone)]
pub(crate) struct OwnSocket {
    pub(crate) path: PathBuf,
    pub(crate) rights: Rights,
    /// The users of the workers, and the user who started weir. Only they and root may call there.
    pub(crate) users: Vec<u32>,
}

impl OwnSocket {
    /// `users`: of the pools whose workers weir runs. `None`: the user who started weir.
    pub(super) fn new(path: PathBuf, users: impl Iterator<Item = Option<u32>>, us: &Us) -> Self {
        let mut users: Vec<u32> = users.map(|uid| uid.unwrap_or(us.uid)).collect();
        users.sort_unstable();
        users.dedup();
        // Permissions can name only one user. For several, everybody can connect, and the gateway checks the user.
        let (uid, mode) = match users.as_slice() {
            [] => (None, 0o600),
            [one] => (Some(*one), 0o600),
            _ => (None, 0o666),
        };
        let rights = Rights {
            uid: uid.filter(|_| us.root),
            gid: None,
            mode,
            acl_users: Vec::new(),
            acl_groups: Vec::new(),
        };
        if !users.contains(&us.uid) {
            users.push(us.uid);
        }
        Self {
            path,
            rights,
            users,
        }
    }
}

/// The path of the workers' own socket; `None`: there is none. If weir cannot create the default
/// one, there is none.
pub(super) fn own_path(egress: &Egress, problems: &mut Vec<Problem>) -> Option<PathBuf> {
    let has_unix = || {
        let mut listen = egress.listen.iter();
        listen.any(|address| matches!(address, Address::Unix(_)))
    };
    match &egress.socket {
        SocketPath::Off => None,
        SocketPath::At(path) => {
            let folder = path.parent().unwrap_or(Path::new("/"));
            check_folder("egress.socket", folder, problems);
            Some(path.clone())
        }
        // The configuration already says who may use the socket in `listen`.
        SocketPath::Default if has_unix() => None,
        SocketPath::Default => {
            let path = weir_machine::usual_egress(egress)?;
            match obstacle(&path) {
                None => Some(path),
                Some(cause) => {
                    log::info!(
                        "[egress]: its workers have no unix socket: {}: {cause}; set socket = \"unix:PATH\", or socket = \"off\" if they need none",
                        path.display()
                    );
                    None
                }
            }
        }
    }
}

/// Why weir cannot make the socket at its default path.
fn obstacle(path: &Path) -> Option<String> {
    let (folder, length) = (path.parent()?, path.as_os_str().len());
    if length > LONGEST_PATH {
        return Some(format!(
            "the path is {length} bytes long, but a socket's path can have at most {LONGEST_PATH} bytes"
        ));
    }
    // The folder is made together with the socket.
    let to_write = if folder.exists() {
        folder
    } else {
        folder.parent()?
    };
    if !file::may_write(to_write) {
        return Some(format!("weir may not write in {}", to_write.display()));
    }
    // Before a reload this weir may have made it.
    let owner = listener::owner(path).filter(|pid| *pid != std::process::id());
    owner.map(|pid| format!("process {pid} listens there"))
}

/// Why workers cannot reach a unix socket of the egress. `who`: their user, if they are another than weir's.
pub(super) fn out_of_reach(
    path: &Path,
    chroot: Option<&Path>,
    who: Option<&Identity>,
) -> Option<String> {
    if let Some(chroot) = chroot.filter(|chroot| path_inside(chroot, path).is_none()) {
        return Some(format!(
            "it is outside of their chroot {}",
            chroot.display()
        ));
    }
    let folder = path.parent()?;
    let who = who.filter(|_| fs::metadata(folder).is_ok())?;
    // If the kernel cannot be asked, the folder counts as reachable.
    let denied = access::may_as(who, folder, ENTER).is_err_and(|error| {
        error.kind() == std::io::ErrorKind::PermissionDenied && error.raw_os_error() != Some(EPERM)
    });
    denied.then(|| format!("their user may not enter {}", folder.display()))
}

/// For [`access::may_as`].
const ENTER: u16 = 1;

/// Linux's.
const EPERM: i32 = 1;

/// The variables for workers, perhaps in a `chroot`. A socket's path is the one by which they can reach it; a socket
/// that they cannot reach is left out. `own`: the workers' own socket, if they can reach it.
pub(super) fn variables(
    egress: &Egress,
    own: Option<&Path>,
    chroot: Option<&Path>,
) -> Vec<(&'static str, OsString)> {
    let mut addresses = egress.listen.iter();
    let tcp = addresses.find_map(|address| match address {
        // The port is not known yet.
        Address::Tcp(address) if address.port() != 0 => Some(reachable(*address)),
        Address::Tcp(_) | Address::Unix(_) => None,
    });
    let listen = egress.listen.iter().filter_map(|address| match address {
        Address::Unix(path) => Some(path.as_path()),
        Address::Tcp(_) => None,
    });
    let mut sockets = own.into_iter().chain(listen);
    let socket = sockets.find_map(|path| match chroot {
        None => Some(path.to_owned()),
        Some(chroot) => path_inside(chroot, path),
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
            socket: SocketPath::Off,
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
            defaults: HostSettings::usual(),
            hosts: Vec::new(),
        }
    }

    fn told(listen: &[&str], chroot: Option<&str>) -> Vec<(&'static str, String)> {
        let variables = variables(&egress(listen), None, chroot.map(Path::new));
        let text = |value: OsString| value.into_string().expect("text");
        variables
            .into_iter()
            .map(|(name, value)| (name, text(value)))
            .collect()
    }

    #[test]
    fn a_usual_socket_whose_path_is_too_long_is_done_without() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(obstacle(&folder.path().join("weir/egress.sock")), None);
        let long = folder.path().join("x".repeat(100)).join("egress.sock");
        let cause = obstacle(&long).expect("an obstacle");
        assert!(cause.contains("at most 107"), "{cause}");
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
    fn the_workers_own_socket_comes_first_where_they_can_reach_it() {
        let egress = egress(&["unix:/srv/shop/run/b.sock", "127.0.0.1:8083"]);
        let told = |chroot: Option<&str>| {
            let own = Path::new("/run/weir/egress.sock");
            let all = variables(&egress, Some(own), chroot.map(Path::new));
            let socket = all.into_iter().find(|(name, _)| *name == SOCKET);
            socket.and_then(|(_, value)| value.into_string().ok())
        };
        assert_eq!(told(None).as_deref(), Some("/run/weir/egress.sock"));
        assert_eq!(told(Some("/srv/shop")).as_deref(), Some("/run/b.sock"));
        assert_eq!(told(Some("/srv/blog")), None);
    }

    #[test]
    fn the_socket_of_one_user_is_that_users_and_of_several_is_guarded_by_weir() {
        let us = |root| Us {
            root,
            uid: 7,
            name: "we".to_owned(),
            accounts: Default::default(),
        };
        let made = |users: &[Option<u32>], root| {
            let own = OwnSocket::new("/run/s".into(), users.iter().copied(), &us(root));
            (own.rights.uid, own.rights.mode, own.users)
        };
        assert_eq!(made(&[], true), (None, 0o600, vec![7]));
        assert_eq!(
            made(&[Some(33), Some(33)], true),
            (Some(33), 0o600, vec![33, 7])
        );
        assert_eq!(made(&[None], false), (None, 0o600, vec![7]));
        assert_eq!(
            made(&[Some(34), Some(33)], true),
            (None, 0o666, vec![33, 34, 7])
        );
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
