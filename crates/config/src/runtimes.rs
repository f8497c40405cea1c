//! Which keys of `[pool.NAME]` apply to which `runtime`.

pub(crate) const COMMAND_ONLY: [&str; 1] = ["command"];

/// Keys that do not apply to weir's own PHP: there, weir decides how to use a worker's connection.
pub(crate) const NOT_PHP: [&str; 2] = ["keep_conn", "max_reqs"];

pub(crate) const PHP_ONLY: [&str; 16] = [
    "php",
    "php_ini",
    "no_php_ini",
    "php_value",
    "php_flag",
    "php_admin_value",
    "php_admin_flag",
    "php_define",
    "watch_root",
    "max_memory",
    "process_dumpable",
    "apparmor_hat",
    "request_slowlog_timeout",
    "request_slowlog_trace_depth",
    "slowlog",
    "request_terminate_timeout_track_finished",
];

/// Keys that only apply to workers that weir runs itself.
pub(crate) const OWN_ONLY: [&str; 24] = [
    "pm",
    "max_children",
    "start_servers",
    "min_spare_servers",
    "max_spare_servers",
    "self_call_workers",
    "worker_memory",
    "max_spawn_rate",
    "crash_limit",
    "crash_window",
    "crash_pause",
    "process_idle_timeout",
    "max_requests",
    "user",
    "group",
    "chroot",
    "chdir",
    "clear_env",
    "env",
    "rlimit_files",
    "rlimit_core",
    "process_priority",
    "output_log",
    "decorate_output",
];
