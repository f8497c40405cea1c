//! How this process was started: its program, which an upgrade starts again, and the sockets that it was given.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
};

use weir_sys::{process, socket};

/// The program and its command line.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its path, as it was started: a link is followed anew at each start.
    pub path: PathBuf,
    /// The words of the command line, the first included.
    pub arguments: Vec<OsString>,
    /// Nobody outside watches this process: it has gone into the background.
    pub is_daemon: bool,
}

/// What this process was started with.
#[derive(Debug)]
pub struct Origin {
    /// The program.
    pub program: Program,
    /// The channel to the weir that this one takes over from ([`crate::upgrade`]).
    pub predecessor: Option<OwnedFd>,
    /// Listening sockets of the service manager, with their names (sd_listen_fds(3)).
    pub sockets: Vec<(String, OwnedFd)>,
}

impl Origin {
    /// Takes what this process was started with. Call it first: later, descriptors with the same numbers are others.
    pub fn take() -> Self {
        let sockets = take_sockets();
        let predecessor = match socket::carries_packets(0) {
            true => process::take_inherited(0).ok(),
            false => None,
        };
        Self {
            program: Program::of_this_process(),
            predecessor,
            sockets,
        }
    }
}

impl Program {
    fn of_this_process() -> Self {
        let arguments: Vec<OsString> = env::args_os().collect();
        let name = arguments.first().map(OsString::as_os_str);
        Self {
            path: name.and_then(found).unwrap_or_else(running),
            arguments,
            is_daemon: false,
        }
    }

    /// Whether another file is at its path now.
    pub(crate) fn is_replaced(&self) -> bool {
        let identity = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        // The kernel leads this to the file that runs, also if it was removed.
        match (identity(Path::new(RUNNING)), identity(&self.path)) {
            (Some(running), Some(there)) => running != there,
            _ => false,
        }
    }
}

/// The path of the program with this name, if it is the one that runs.
fn found(name: &OsStr) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| match (fs::metadata(path), fs::metadata(RUNNING)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    };
    if name.as_bytes().contains(&b'/') {
        return std::path::absolute(name).ok().filter(is_it);
    }
    let folders = env::var_os("PATH")?;
    let mut paths = env::split_paths(&folders).map(|folder| folder.join(name));
    paths
        .find(is_it)
        .and_then(|path| std::path::absolute(path).ok())
}

/// The path of the file that runs.
fn running() -> PathBuf {
    weir_machine::php::own_program()
}

/// The sockets of the service manager, if they are for this process.
fn take_sockets() -> Vec<(String, OwnedFd)> {
    let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Vec::new();
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let sockets = process::take_listen_fds(number("LISTEN_FDS").unwrap_or(0).min(MOST_SOCKETS));
    let named = |socket: OwnedFd| (names.next().unwrap_or_default().to_owned(), socket);
    sockets.into_iter().map(named).collect()
}

/// The program that runs.
const RUNNING: &str = "/proc/self/exe";

/// How many sockets the service manager may give.
const MOST_SOCKETS: u32 = 1024;
