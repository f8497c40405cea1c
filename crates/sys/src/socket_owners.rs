//! Finds the processes that have a socket open: the links in /proc/PID/fd (proc_pid_fd(5)).
//!
//! A user can read only the links of its own processes, and root can read all, so a result may be incomplete.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::SocketAddr,
    path::Path,
    sync::{Mutex, PoisonError},
};

use crate::sock_diag::{Connected, Diag};

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its id, in our own pid namespace.
    pub pid: u32,
    /// Its name in the kernel, at most 15 bytes.
    pub name: String,
}

/// The owners of sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// Processes by the socket's inode number, ordered by process id, at most [`MOST_EACH`] per socket.
    pub of: BTreeMap<u32, Vec<Process>>,
    /// Number of processes that we had no permission to inspect.
    pub barred: usize,
}

/// Finds the owners of the sockets with these inode numbers.
///
/// # Errors
/// As opendir(3) of /proc. Processes that exit meanwhile are skipped.
pub fn find(inodes: &BTreeSet<u32>) -> io::Result<Owners> {
    let mut owners = Owners::default();
    let processes = fs::read_dir("/proc")?.filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    for pid in pids {
        let folder = format!("/proc/{pid}");
        match sockets(Path::new(&folder), inodes) {
            Ok(found) if found.is_empty() => {}
            Ok(found) => {
                let name = fs::read_to_string(format!("{folder}/comm")).unwrap_or_default();
                let name = name.trim_end().to_owned();
                for inode in found {
                    let of = owners.of.entry(inode).or_default();
                    if of.len() < MOST_EACH {
                        of.push(Process {
                            pid,
                            name: name.clone(),
                        });
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => owners.barred += 1,
            Err(_) => {}
        }
    }
    Ok(owners)
}

/// Finds sockets among a few processes repeatedly. Similar programs open their sockets under the same descriptor
/// numbers. So it first checks the numbers of the last results, in all processes, and only then lists all
/// descriptors.
#[derive(Debug, Clone, Default)]
pub struct Finder {
    /// Descriptor numbers of the last results, most recent first.
    lately: Vec<u32>,
}

/// Finds which process is at the other end of a TCP connection of this machine. Keeps its socket and what it has learned.
#[derive(Debug, Default)]
pub struct Callers(Mutex<(Option<Diag>, Finder)>);

impl Callers {
    /// The socket at the other end. `None`: it is closed, or the kernel does not tell.
    pub fn socket(&self, own: SocketAddr, peer: SocketAddr) -> Option<Connected> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.0.is_none() {
            kept.0 = Diag::open().ok();
        }
        kept.0.as_mut()?.connection(peer, own).ok()?
    }

    /// Which of these processes has the socket. May take some milliseconds.
    pub fn owner(&self, inode: u32, pids: &[u32]) -> Owner {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.1.owner(inode, pids, MOST_LINKS)
    }
}

/// Whether a client is on this machine: `own` is our address, `peer` the client's.
pub fn is_local(own: SocketAddr, peer: SocketAddr) -> bool {
    let peer = peer.ip().to_canonical();
    peer.is_loopback() || peer == own.ip().to_canonical()
}

/// The result of a [`Finder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This process has the socket.
    Process(u32),
    /// No process has it.
    Nobody,
    /// Unknown: we had no permission to inspect some processes, and one of them may have it.
    Barred,
    /// Unknown: there was no time for a search. A [`Finder`] always searches.
    Later,
}

/// Whether a process may have created a socket of this user (`sock_diag::Connected::uid`). This costs less than to look
/// for the socket, and any user may ask. True if /proc does not show the process (`hidepid=`).
pub fn may_be_of(pid: u32, uid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return true;
    };
    // The real, effective, saved and file system user: proc_pid_status(5).
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    users.is_none_or(|users| users.split_whitespace().any(|user| user.parse() == Ok(uid)))
}

impl Finder {
    /// Finds the process of `pids` that has the socket with this inode number. `patience`: maximum number of links to
    /// read, about 2 µs each.
    pub fn owner(&mut self, inode: u32, pids: &[u32], patience: usize) -> Owner {
        let wanted = format!("socket:[{inode}]");
        let is_it = |pid: u32, descriptor: u32| {
            let link = fs::read_link(format!("/proc/{pid}/fd/{descriptor}"));
            link.map(|link| link.as_os_str() == wanted.as_str())
        };
        let (mut patience, mut barred) = (patience, BTreeSet::new());
        for descriptor in self.lately.clone() {
            for &pid in pids {
                if patience == 0 {
                    return Owner::Nobody;
                }
                patience -= 1;
                match is_it(pid, descriptor) {
                    Ok(true) => return self.found(pid, descriptor),
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        barred.insert(pid);
                    }
                    Ok(false) | Err(_) => {}
                }
            }
        }
        for &pid in pids {
            let Some(descriptors) = descriptors(pid).unwrap_or_else(|error| {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    barred.insert(pid);
                }
                None
            }) else {
                continue;
            };
            for descriptor in descriptors {
                if patience == 0 {
                    return Owner::Nobody;
                }
                patience -= 1;
                if is_it(pid, descriptor).is_ok_and(|is_it| is_it) {
                    return self.found(pid, descriptor);
                }
            }
        }
        match barred.is_empty() {
            true => Owner::Nobody,
            false => Owner::Barred,
        }
    }

    fn found(&mut self, pid: u32, descriptor: u32) -> Owner {
        self.lately.retain(|other| *other != descriptor);
        self.lately.insert(0, descriptor);
        self.lately.truncate(REMEMBERED);
        Owner::Process(pid)
    }
}

/// The descriptor numbers of a process, highest first, which are probably the newest. `None`: it has exited.
fn descriptors(pid: u32) -> io::Result<Option<Vec<u32>>> {
    let entries = match fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let names = entries.filter_map(Result::ok);
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    Ok(Some(numbers))
}

/// The sockets in `inodes` that a process has open.
fn sockets(process: &Path, inodes: &BTreeSet<u32>) -> io::Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(process.join("fd"))? {
        let Ok(link) = entry.and_then(|entry| fs::read_link(entry.path())) else {
            continue;
        };
        let number = link.to_str().and_then(|link| {
            let number = link.strip_prefix("socket:[")?.strip_suffix(']')?;
            number.parse().ok()
        });
        found.extend(number.filter(|number| inodes.contains(number)));
    }
    Ok(found)
}

/// How many links are usually read for one socket: some milliseconds.
pub const MOST_LINKS: usize = 2_000;

/// How many descriptor numbers a [`Finder`] remembers.
const REMEMBERED: usize = 4;

/// Maximum number of reported processes for one socket, which hundreds of workers may share.
pub const MOST_EACH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_process_may_have_sockets_of_its_own_user_only() {
        let (us, uid) = (std::process::id(), rustix::process::getuid().as_raw());
        assert!(may_be_of(us, uid));
        assert!(!may_be_of(us, uid + 1));
        assert!(may_be_of(u32::MAX, uid), "there is no such process");
    }

    #[test]
    fn we_are_found_by_our_own_socket() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = crate::sock_diag::inode(&socket).unwrap();
        let owners = find(&BTreeSet::from([inode])).unwrap();
        let pids: Vec<u32> = owners.of[&inode]
            .iter()
            .map(|process| process.pid)
            .collect();
        assert!(pids.contains(&std::process::id()), "{owners:?}");
        assert!(
            owners.of[&inode]
                .iter()
                .all(|process| !process.name.is_empty())
        );
    }

    #[test]
    fn a_socket_is_found_among_a_few_processes_and_sooner_the_second_time() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = crate::sock_diag::inode(&socket).unwrap();
        let us = std::process::id();
        let (mut finder, pids) = (Finder::default(), [u32::MAX, us]);
        assert_eq!(finder.owner(inode, &pids, 10_000), Owner::Process(us));
        assert_eq!(finder.owner(inode, &pids, 2), Owner::Process(us));
        assert_eq!(finder.owner(inode, &pids, 1), Owner::Nobody, "no patience");
        assert_eq!(finder.owner(inode, &[], 10_000), Owner::Nobody);
        drop(socket);
        assert_eq!(finder.owner(inode, &pids, 10_000), Owner::Nobody);
    }
}
