//! Which processes have a socket open: the links of /proc/PID/fd (proc_pid_fd(5)).
//!
//! Those of one's own processes may be read, and root's may be by root alone, so that an answer may be incomplete.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its id, in our own pid namespace.
    pub pid: u32,
    /// Its name as the kernel has it, 15 bytes at most.
    pub name: String,
}

/// Who has which socket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// By the socket's number, in the order of process ids, the [first](MOST_EACH) of them.
    pub of: BTreeMap<u32, Vec<Process>>,
    /// Into so many processes we were not allowed to look.
    pub barred: usize,
}

/// Looks for the sockets with these numbers.
///
/// # Errors
/// As opendir(3) of /proc. What ends meanwhile is passed over.
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

/// Looks for sockets among a few processes, again and again. Programs of one kind open their sockets under the same
/// numbers: where one was found last is looked at first, in all processes, before their descriptors are listed.
#[derive(Debug, Clone, Default)]
pub struct Finder {
    /// The last found first.
    lately: Vec<u32>,
}

/// What a [`Finder`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// This process has it.
    Process(u32),
    /// None of them has it.
    Nobody,
    /// Perhaps one of those has it into which we are not allowed to look.
    Barred,
}

impl Finder {
    /// Which of `pids` has the socket with this number; `patience`: so many links are read at most, about 2 µs each.
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

/// The numbers of a process' descriptors, the last made first as far as numbers tell; none: it has ended.
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

/// Those of `inodes` that a process has.
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

/// Numbers of descriptors that a [`Finder`] looks at first.
const REMEMBERED: usize = 4;

/// Of a socket that hundreds of workers share, so many are told.
pub const MOST_EACH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

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
