//! Processes that run weir's own program in another role: gateway, keeper, acme. Each has a channel as standard input, which ends
//! with the manager.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use weir_sys::{
    message,
    process::{self, Spawn},
    version,
};

/// Starts a process, called `name` in process lists. `with` has its further settings. Returns its process id and our
/// end of its channel.
pub(crate) fn start(
    name: &str,
    role: &str,
    with: impl FnOnce(Spawn) -> Spawn,
) -> Result<(u32, OwnedFd), String> {
    let told = |error: io::Error| error.to_string();
    let (ours, theirs) = message::pair().map_err(told)?;
    let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(told)?;
    let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(told)?;
    version::greet(ours.as_fd()).map_err(told)?;
    let spawn = Spawn {
        name: Some(name.into()),
        arguments: vec![role.into()],
        // Our own program, also if its file was replaced by a newer one.
        ..Spawn::new("/proc/self/exe", theirs, stdout, stderr)
    };
    let pid = with(spawn).start().map_err(|error| error.to_string())?;
    Ok((pid, ours))
}

/// As [`start`], for those that open no file: in the root folder, and without core files.
pub(crate) fn start_bare(name: &str, role: &str) -> Result<(u32, OwnedFd), String> {
    start(name, role, |spawn| Spawn {
        folder: Some("/".into()),
        core_size: Some(0),
        ..spawn
    })
}

/// Kills one.
pub(crate) fn kill(what: &str, pid: u32) {
    if let Err(error) = process::kill(pid) {
        log::error!("{what} (process {pid}) cannot be killed: {error}");
    }
}
