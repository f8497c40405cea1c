//! Pools of weir's own PHP.

use alloc::{string::String, vec::Vec};
use core::time::Duration;
use std::path::PathBuf;

use super::Workers;

/// `runtime = "php"`
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Php {
    /// Major and minor version, `8.2`, or the path of a PHP program. `None`: the newest installed.
    pub version: Option<String>,
    /// php.ini, or its folder. `None`: PHP's default.
    pub ini: Option<PathBuf>,
    /// No php.ini is read.
    pub no_ini: bool,
    /// PHP settings that override php.ini, including those that PHP reads only at its start.
    pub define: Vec<(String, String)>,
    /// OPcache's shared memory, bytes; only whole megabytes count. 0: what php.ini says.
    pub opcache_memory: u64,
    /// The script that keeps the application booted. `None`: each request runs its script.
    pub worker: Option<PathBuf>,
    /// With `worker`: a process is replaced after this many requests. 0: never.
    pub worker_requests: u64,
    /// With `worker`: how long a process may take until it waits for its first request. Not zero.
    pub worker_boot_timeout: Duration,
    /// With `worker`: processes are forked from one that has booted the application.
    pub worker_zygote: bool,
    /// PHP is loaded for this pool alone.
    pub own_load: bool,
    /// `php_value`, `php_flag`, `php_admin_value` and `php_admin_flag`, in this order.
    pub settings: Vec<PhpSetting>,
    /// Restart the pool when a symlink on the way to a site's root changes.
    pub watch_root: bool,
    /// If a script runs longer, its stack trace is written to the slow log. Zero: never.
    pub slowlog_timeout: Duration,
    /// Maximum number of stack frames in the slow log.
    pub slowlog_depth: u32,
    /// The slow log. `None`: the error log.
    pub slowlog: Option<PathBuf>,
    /// Debuggers of the same user may attach to the workers.
    pub dumpable: bool,
    /// AppArmor hat of the pool's processes.
    pub apparmor_hat: Option<String>,
    /// A pool without workers for this time ends its PHP (on demand). Zero: never.
    pub idle_timeout: Duration,
    /// Number, user and environment of the workers.
    pub workers: Workers,
}

/// One setting of PHP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhpSetting {
    /// Name as in php.ini.
    pub name: String,
    /// Value as in php.ini.
    pub value: String,
    /// Neither scripts nor .user.ini can change it.
    pub admin: bool,
    /// It is a boolean (`php_flag`, `php_admin_flag`).
    pub flag: bool,
}
