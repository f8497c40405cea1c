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
}
