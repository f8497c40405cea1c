//! The manager's report of programs.

use std::os::fd::{AsFd, OwnedFd};

use weir_control::ProgramReports;
use weir_sys::memory;

use crate::Gateway;

/// The manager reports its programs.
pub(crate) fn set(gateway: &Gateway, file: &OwnedFd) {
    let programs = memory::read(file.as_fd(), ProgramReports::MAX_ENCODED)
        .map_err(|error| error.to_string())
        .and_then(|bytes| ProgramReports::decode(&bytes).map_err(|error| error.to_string()));
    match programs {
        Ok(programs) => gateway.reports.set_programs(programs),
        Err(error) => log::error!("the manager's report of programs cannot be read: {error}"),
    }
}
