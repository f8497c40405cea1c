//! The listening sockets: bound once, kept over reloads and over the deaths of gateways.
//!
//! TCP listeners have one socket for each reactor, which the kernel spreads connections over, or several where
//! net.core.somaxconn is below `backlog`; unix listeners have one that all reactors share. A socket that stays configured stays open, so no connection in its queue is lost.

use std::{
    fs, io,
    net::SocketAddr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    rc::Rc,
};

use weir_config::{Address, Config, Listener};
use weir_sys::listener::{self, Rights, UnixError};

use super::plan::{Plan, Problem};
use crate::{
    control::ToGateway,
    error_log::{self, Format},
    events,
    machine::limits,
};

/// The sockets of one configuration, in the order of its listeners.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    address: Address,
    sockets: Vec<Rc<OwnedFd>>,
}

impl Sockets {
    /// The sockets that `config` wants: those of `before` where they fit, new ones otherwise.
    pub(super) fn bind(config: &Config, plan: &Plan, before: &Self) -> Result<Self, Vec<Problem>> {
        let mut bound = Self::default();
        let mut problems = Vec::new();
        for (listener, rights) in config.listeners.iter().zip(&plan.rights) {
            let kept = before.find(&listener.address);
            match Entry::bind(listener, rights, plan.reactors, kept, before) {
                Ok(entry) => bound.entries.push(entry),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            return Ok(bound);
        }
        bound.remove_names(before);
        Err(problems)
    }

    /// What the gateway is told: each reactor's sockets.
    pub(super) fn messages(&self, reactors: u16) -> io::Result<Vec<ToGateway>> {
        let mut messages = Vec::new();
        for (listener, entry) in (0..).zip(&self.entries) {
            // A unix socket is shared; of TCP sockets there is one for each reactor, or more: those are not closed after a
            // reload that lowered their number, which would reset the connections in their queues.
            let count = entry.sockets.len().max(reactors.into());
            for index in 0..count {
                let socket = &entry.sockets[index % entry.sockets.len()];
                messages.push(ToGateway::Listener {
                    listener,
                    reactor: (index % usize::from(reactors)) as u16,
                    socket: socket.try_clone()?,
                });
            }
        }
        Ok(messages)
    }

    /// Where TCP listeners can be reached, with the port that the kernel chose where none was said.
    pub(super) fn addresses(&self) -> Vec<Address> {
        let actual = |entry: &Entry| match &entry.address {
            Address::Tcp(address) => {
                Address::Tcp(listener::tcp_address(&entry.sockets[0]).unwrap_or(*address))
            }
            unix => unix.clone(),
        };
        self.entries.iter().map(actual).collect()
    }

    /// Removes the names of unix sockets that `others` do not use.
    pub(super) fn remove_names(&self, others: &Self) {
        for entry in &self.entries {
            if let Address::Unix(path) = &entry.address
                && others.find(&entry.address).is_none()
                && let Err(error) = weir_sys::file::remove(path)
            {
                log::warn!("cannot remove the socket {}: {error}", path.display());
            }
        }
    }

    /// Closes the sockets and keeps their names.
    pub(super) fn close(&mut self) {
        for entry in &mut self.entries {
            entry.sockets.clear();
        }
    }

    fn find(&self, address: &Address) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.address == *address)
    }
}

impl Clone for Sockets {
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
        }
    }
}

impl Entry {
    fn bind(
        listener: &Listener,
        rights: &Rights,
        reactors: u16,
        kept: Option<&Self>,
        before: &Sockets,
    ) -> Result<Self, Problem> {
        let mut sockets = kept.map_or_else(Vec::new, |kept| kept.sockets.clone());
        for socket in &sockets {
            listener::set_backlog(socket, listener.backlog)
                .map_err(|error| other_problem(listener, &error))?;
        }
        match &listener.address {
            Address::Tcp(address) => {
                // Each reactor has as many; more than one where the kernel's queues are shorter than asked for.
                let reactors = usize::from(reactors);
                let wanted = limits::sockets(listener.backlog, weir_sys::limits::somaxconn());
                let missing = wanted
                    .next_multiple_of(reactors)
                    .saturating_sub(sockets.len());
                let at = match sockets.first() {
                    Some(socket) => listener::tcp_address(socket).unwrap_or(*address),
                    None => *address,
                };
                let ours = before.has_port(address.port());
                let new = listener::tcp(at, listener.backlog, missing, sockets.is_empty())
                    // A wider or narrower address of the same port is ours to join.
                    .or_else(
                        |error| match ours && error.kind() == io::ErrorKind::AddrInUse {
                            true => listener::tcp(at, listener.backlog, missing, false),
                            false => Err(error),
                        },
                    )
                    .map_err(|error| tcp_problem(listener, *address, &error))?;
                sockets.extend(new.into_iter().map(Rc::new));
            }
            Address::Unix(path) if sockets.is_empty() => {
                let socket = listener::unix(path, listener.backlog, rights)
                    .map_err(|error| unix_problem(listener, path, error))?;
                sockets.push(Rc::new(socket));
            }
            Address::Unix(path) => listener::change_rights(path, rights)
                .map_err(|error| unix_problem(listener, path, error))?,
        }
        Ok(Self {
            address: listener.address.clone(),
            sockets,
        })
    }
}

impl Sockets {
    fn has_port(&self, port: u16) -> bool {
        let has = |entry: &Entry| matches!(entry.address, Address::Tcp(a) if a.port() == port);
        self.entries.iter().any(has)
    }
}

fn key(listener: &Listener) -> String {
    format!("listen.{}.address", listener.name)
}

fn other_problem(listener: &Listener, error: &io::Error) -> Problem {
    let key = format!("listen.{}.backlog", listener.name);
    Problem::new(key, error.to_string(), "choose another length")
}

fn tcp_problem(listener: &Listener, address: SocketAddr, error: &io::Error) -> Problem {
    if error_log::format() == Format::Fpm {
        let text = events::cannot_listen(&listener.address, error);
        return Problem::new(key(listener), text, "");
    }
    let (cause, mend) = match error.kind() {
        io::ErrorKind::AddrInUse => {
            let port = address.port();
            let cause = match tcp_owner(port) {
                Some(owner) => format!("the port is taken by {owner}"),
                None => "the port is taken by another program".into(),
            };
            let look = format!("`ss -ltnp 'sport = :{port}'` shows who listens there");
            (
                cause,
                format!("stop that program, or choose another port; {look}"),
            )
        }
        io::ErrorKind::PermissionDenied => (
            "only root may listen on a port so low".to_owned(),
            "start weir as root, give it CAP_NET_BIND_SERVICE, or choose a port from 1024 on"
                .into(),
        ),
        io::ErrorKind::AddrNotAvailable => (
            "this machine has no such address".to_owned(),
            "choose one that `ip address` shows, or 0.0.0.0 for all".into(),
        ),
        _ => (error.to_string(), "choose another address".into()),
    };
    Problem::new(key(listener), format!("{address}: {cause}"), mend)
}

fn unix_problem(listener: &Listener, path: &Path, error: UnixError) -> Problem {
    if error_log::format() == Format::Fpm {
        let text = match &error {
            UnixError::InUse => events::listened_on_by_others(path),
            UnixError::Owner(error) => events::cannot_give_away(path, error),
            UnixError::Acl(error) => events::cannot_list(path, error),
            UnixError::Io(error) => events::cannot_listen(&listener.address, error),
            UnixError::NotASocket => {
                events::cannot_listen(&listener.address, &io::Error::from_raw_os_error(EADDRINUSE))
            }
            UnixError::TooLong => events::cannot_listen(
                &listener.address,
                &io::Error::from_raw_os_error(ENAMETOOLONG),
            ),
        };
        return Problem::new(key(listener), text, "");
    }
    let (cause, mend) = match error {
        UnixError::InUse => {
            let cause = match unix_owner(path) {
                Some(owner) => format!("{owner} listens there"),
                None => "another program listens there".into(),
            };
            (
                cause,
                format!(
                    "stop it, or choose another path; `ss -lxp | grep {}` shows who it is",
                    path.display()
                ),
            )
        }
        UnixError::NotASocket => (
            "something that is no socket has that name".to_owned(),
            "remove it if nobody needs it, or choose another path".into(),
        ),
        UnixError::TooLong => (
            "a socket's path can be 107 bytes long at most".to_owned(),
            "choose a shorter path".into(),
        ),
        UnixError::Owner(error) => (
            format!("owner and group cannot be set: {error}"),
            "start weir as root, or name a group that its user is in".into(),
        ),
        UnixError::Acl(error) => (
            format!("its access control list cannot be set: {error}"),
            "choose a folder on a file system with access control lists, or use owner, group and mode".into(),
        ),
        UnixError::Io(error) => (
            error.to_string(),
            format!(
                "look at the rights of {}",
                path.parent().unwrap_or(path).display()
            ),
        ),
    };
    Problem::new(
        key(listener),
        format!("unix:{}: {cause}", path.display()),
        mend,
    )
}

/// Linux's.
const EADDRINUSE: i32 = 98;

/// Linux's.
const ENAMETOOLONG: i32 = 36;

/// The program that listens on a TCP port, as far as we may see it: `nginx (process 42)`.
pub fn tcp_owner(port: u16) -> Option<String> {
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

/// Who has the socket with this inode open, as far as we may see it: `nginx (process 42)`.
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
