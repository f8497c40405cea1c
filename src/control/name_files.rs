//! What this machine knows of names, read before the gateway cannot any more.

use std::{fs::File, io::Read};

/// How a machine looks names up, as it was when the gateway started: its `chroot` has no such files.
#[derive(Debug, Clone, Default)]
pub struct NameFiles {
    /// /etc/resolv.conf; empty where there is none.
    pub resolv_conf: Vec<u8>,
    /// /etc/hosts; empty where there is none.
    pub hosts: Vec<u8>,
}

impl NameFiles {
    /// Reads them. What cannot be read is taken for empty, as resolvers do.
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

/// What of such a file is read, bytes: lists of hosts that are to be blocked are long.
const MAX_NAME_FILE: u64 = 16 << 20;
