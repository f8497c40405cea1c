//! The message if weir cannot listen on an address, and which process uses the address.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use weir_config::Address;
use weir_observe::{
    error_log::{self, Format},
    events,
};
use weir_sys::listener::UnixError;

use crate::generation::plan::Problem;

pub(super) fn tcp_problem(
    (key, configured): (&str, &Address),
    address: SocketAddr,
    error: &io::Error,
) -> Problem {
    if error_log::format() == Format::Fpm {
        let text = events::cannot_listen(configured, error);
        return Problem::new(key, text, "");
    }
    let (cause, mend) = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let port = address.port();
            let cause = match tcp_owner(port) {
                Some(owner) => format!("the port is already used by {owner}"),
                None => "the port is already used by another program".into(),
            };
            let look = format!("`ss -ltnp 'sport = :{port}'` shows the program");
            (
                cause,
                format!("stop that program, or use another port; {look}"),
            )
        }
        io::ErrorKind::PermissionDenied => (
            "only root can listen on a port below 1024".to_owned(),
            "start weir as root, give it CAP_NET_BIND_SERVICE, or use a port of 1024 or higher"
                .into(),
        ),
        io::ErrorKind::AddrNotAvailable => (
            "this machine does not have this address".to_owned(),
            "use an address from `ip address`, or 0.0.0.0 for all".into(),
        ),
        _ => (error.to_string(), "use another address".into()),
    };
    Problem::new(key, format!("{address}: {cause}"), mend)
}

pub(super) fn unix_problem(key: &str, address: &Address, path: &Path, error: UnixError) -> Problem {
    if error_log::format() == Format::Fpm {
        let text = match &error {
            UnixError::InUse => events::listened_on_by_others(path),
            UnixError::Owner(error) => events::cannot_give_away(path, error),
            UnixError::Acl(error) => events::cannot_list(path, error),
            UnixError::Io(error) => events::cannot_listen(address, error),
            UnixError::Unsafe(text) => text.clone(),
            UnixError::NotASocket => {
                events::cannot_listen(address, &io::Error::from_raw_os_error(EADDRINUSE))
            }
            UnixError::TooLong => {
                events::cannot_listen(address, &io::Error::from_raw_os_error(ENAMETOOLONG))
            }
        };
        return Problem::new(key, text, "");
    }
    let (cause, mend) = match error {
        UnixError::InUse => {
            let cause = match unix_owner(path) {
                Some(owner) => format!("{owner} is already listening there"),
                None => "another program is already listening there".into(),
            };
            (
                cause,
                format!(
                    "stop it, or use another path; `ss -lxp | grep {}` shows the program",
                    path.display()
                ),
            )
        }
        UnixError::NotASocket => (
            "a file that is not a socket exists there".to_owned(),
            "remove it if it is not needed, or use another path".into(),
        ),
        UnixError::TooLong => (
            format!("a socket's path can have at most {LONGEST_PATH} bytes"),
            "use a shorter path".into(),
        ),
        UnixError::Owner(error) => (
            format!("owner and group cannot be set: {error}"),
            "start weir as root, or use a group of its user".into(),
        ),
        UnixError::Acl(error) => (
            format!("its access control list cannot be set: {error}"),
            "use a file system with access control lists, or use owner, group and mode".into(),
        ),
        UnixError::Unsafe(text) => (
            text,
            "use a path without such links, or a folder that only root can write, such as /run/weir".into(),
        ),
        UnixError::Io(error) => (
            error.to_string(),
            format!(
                "check the permissions of {}",
                path.parent().unwrap_or(path).display()
            ),
        ),
    };
    Problem::new(key, format!("unix:{}: {cause}", path.display()), mend)
}

/// The program that listens on a TCP port, if we may see it: `nginx (process 42)`.
fn tcp_owner(port: u16) -> Option<String> {
    let wanted = format!(":{port:04X}");
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .find_map(|table| {
            let table = fs::read_to_string(table).ok()?;
            table.lines().find_map(|line| {
                // sl local_address rem_address st … inode (proc_net(5)); state 0A is listening.
                let fields: Vec<&str> = line.split_whitespace().collect();
                let listens = fields.get(1)?.ends_with(&wanted) && *fields.get(3)? == "0A";
                listens.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
            })
        })?;
    owner_of_socket(&inode)
}

/// The program that listens on a unix socket.
pub fn unix_owner(path: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/net/unix").ok()?;
    let path = path.to_str()?;
    let inode = table.lines().find_map(|line| {
        // Num RefCount Protocol Flags Type St Inode Path
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(7) == Some(&path)).then(|| fields[6].to_owned())
    })?;
    owner_of_socket(&inode)
}

/// The process that has the socket with this inode open, if we may see it: `nginx (process 42)`.
pub fn owner_of_socket(inode: &str) -> Option<String> {
    let wanted = PathBuf::from(format!("socket:[{inode}]"));
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let has_it = || {
            let files = fs::read_dir(process.path().join("fd")).ok()?;
            let is_it = |file: fs::DirEntry| fs::read_link(file.path()).is_ok_and(|l| l == wanted);
            files.flatten().any(is_it).then_some(())
        };
        let pid = process.file_name();
        if pid.to_str().is_some_and(|pid| pid.parse::<u32>().is_ok()) && has_it().is_some() {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (process {})", name.trim_end(), pid.display()));
        }
    }
    None
}

/// The longest path of a unix socket, bytes: `sun_path` without its end (unix(7)).
pub const LONGEST_PATH: usize = 107;

/// Error number of Linux.
const EADDRINUSE: i32 = 98;

/// Error number of Linux.
const ENAMETOOLONG: i32 = 36;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_on_a_port_or_path_is_found() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let us = format!("(process {})", std::process::id());
        let owner = tcp_owner(tcp.local_addr().unwrap().port()).unwrap();
        assert!(owner.ends_with(&us), "{owner}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let owner = unix_owner(&path).unwrap();
        assert!(owner.ends_with(&us), "{owner}");
    }
}
