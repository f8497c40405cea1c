//! The machine's files for resolving names, read before the gateway enters its chroot.

use std::{fs::File, io::Read};

/// The files that resolve names, as they were when the gateway started: its `chroot` has no such files.
#[derive(Debug, Clone, Default)]
pub struct NameFiles {
    /// /etc/resolv.conf; empty where there is none.
    pub resolv_conf: Vec<u8>,
    /// /etc/hosts; empty where there is none.
    pub hosts: Vec<u8>,
}

impl NameFiles {
    /// Reads them. A file that cannot be read counts as empty, as in other resolvers.
    pub fn read() -> NameFiles {
        let read = |path: &str| {
            let mut bytes = Vec::new();
            let file = File::open(path);
            let read = file.and_then(|file| file.take(MAX_NAME_FILE).read_to_end(&mut bytes));
            read.map_or_else(|_| Vec::new(), |_| bytes)
        };
        NameFiles {
            resolv_conf: read("/etc/resolv.conf"),
            hosts: read("/etc/hosts"),
        }
    }
}

/// Maximum size of such a file, bytes: lists of blocked hosts are long.
const MAX_NAME_FILE: u64 = 16 << 20;
