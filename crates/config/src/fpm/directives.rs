//! The directives of php-fpm.conf: their names, their types, and the fields that store their values.
//!
//! Values are stored as PHP-FPM stores them, defaults included. [`super::translate`] converts them for weir.

use super::line::integer;
use crate::rows::log::FACILITIES;

/// Severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `DEBUG`
    Debug,
    /// `NOTICE`
    Notice,
    /// `WARNING`
    Warning,
    /// `ERROR`
    Error,
    /// `ALERT`
    Alert,
}

impl Level {
    /// The name in a line of the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Alert => "ALERT",
        }
    }
}

/// The kinds of process management.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pm {
    /// Always `pm.max_children`.
    Static,
    /// With a range of spare workers.
    Dynamic,
    /// Workers start when requests arrive.
    OnDemand,
}

impl Pm {
    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
            Self::OnDemand => "ondemand",
        }
    }
}

/// `[global]`. Times are seconds; `None`: not written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "PHP-FPM's names, which its manual explains")]
pub struct Global {
    pub pid: Option<String>,
    pub error_log: Option<String>,
    pub syslog_ident: Option<String>,
    /// syslog(3)'s number; -1: not written.
    pub syslog_facility: i32,
    pub log_buffering: bool,
    pub log_level: Option<Level>,
    pub log_limit: i32,
    pub emergency_restart_threshold: i32,
    pub emergency_restart_interval: i32,
    pub process_control_timeout: i32,
    pub process_max: i32,
    /// [`UNSET_PRIORITY`]: not written.
    pub process_priority: i32,
    pub daemonize: bool,
    pub rlimit_files: i32,
    /// -1: unlimited.
    pub rlimit_core: i32,
    pub events_mechanism: Option<String>,
    /// -1: not written.
    pub systemd_interval: i32,
    /// How often systemd's watchdog is fed, ms; none: it is not on.
    pub systemd_watchdog: Option<i32>,
}

impl Default for Global {
    fn default() -> Self {
        Self {
            pid: None,
            error_log: None,
            syslog_ident: None,
            syslog_facility: -1,
            log_buffering: true,
            log_level: None,
            log_limit: 1024,
            emergency_restart_threshold: 0,
            emergency_restart_interval: 0,
            process_control_timeout: 0,
            process_max: 0,
            process_priority: UNSET_PRIORITY,
            daemonize: true,
            rlimit_files: 0,
            rlimit_core: 0,
            events_mechanism: None,
            systemd_interval: -1,
            systemd_watchdog: None,
        }
    }
}

/// A pool. Times are seconds; `None`: not written. Lists have the last entry first, as PHP-FPM stores them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "PHP-FPM's names, which its manual explains")]
pub struct Pool {
    pub name: String,
    pub prefix: Option<String>,
    pub user: Option<String>,
    pub group: Option<String>,
    pub listen: Option<String>,
    pub listen_backlog: i32,
    pub listen_acl_users: Option<String>,
    pub listen_acl_groups: Option<String>,
    pub listen_owner: Option<String>,
    pub listen_group: Option<String>,
    pub listen_mode: Option<String>,
    pub listen_allowed_clients: Option<String>,
    /// [`UNSET_PRIORITY`]: not written.
    pub process_priority: i32,
    pub process_dumpable: bool,
    pub pm: Option<Pm>,
    pub pm_max_children: i32,
    pub pm_start_servers: i32,
    pub pm_min_spare_servers: i32,
    pub pm_max_spare_servers: i32,
    pub pm_max_spawn_rate: i32,
    pub pm_process_idle_timeout: i32,
    pub pm_max_requests: i32,
    pub pm_status_path: Option<String>,
    pub pm_status_listen: Option<String>,
    pub ping_path: Option<String>,
    pub ping_response: Option<String>,
    pub access_log: Option<String>,
    pub access_format: Option<String>,
    pub access_suppress_path: Vec<String>,
    pub slowlog: Option<String>,
    pub request_slowlog_timeout: i32,
    pub request_slowlog_trace_depth: i32,
    pub request_terminate_timeout: i32,
    pub request_terminate_timeout_track_finished: bool,
    pub rlimit_files: i32,
    /// -1: unlimited.
    pub rlimit_core: i32,
    pub chroot: Option<String>,
    pub chdir: Option<String>,
    pub catch_workers_output: bool,
    pub decorate_workers_output: bool,
    pub clear_env: bool,
    pub security_limit_extensions: Option<String>,
    pub apparmor_hat: Option<String>,
    pub env: Vec<(String, String)>,
    /// `php_value` and `php_flag`.
    pub php_values: Vec<(String, String)>,
    /// `php_admin_value` and `php_admin_flag`.
    pub php_admin_values: Vec<(String, String)>,
    /// Set if PHP-FPM creates this pool for `pm.status_listen` of another pool: the number of that pool.
    pub status_of: Option<usize>,
}

impl Pool {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            prefix: None,
            user: None,
            group: None,
            listen: None,
            listen_backlog: DEFAULT_BACKLOG,
            listen_acl_users: None,
            listen_acl_groups: None,
            listen_owner: None,
            listen_group: None,
            listen_mode: None,
            listen_allowed_clients: None,
            process_priority: UNSET_PRIORITY,
            process_dumpable: false,
            pm: None,
            pm_max_children: 0,
            pm_start_servers: 0,
            pm_min_spare_servers: 0,
            pm_max_spare_servers: 0,
            pm_max_spawn_rate: 32,
            pm_process_idle_timeout: 10,
            pm_max_requests: 0,
            pm_status_path: None,
            pm_status_listen: None,
            ping_path: None,
            ping_response: None,
            access_log: None,
            access_format: None,
            access_suppress_path: Vec::new(),
            slowlog: None,
            request_slowlog_timeout: 0,
            request_slowlog_trace_depth: 0,
            request_terminate_timeout: 0,
            request_terminate_timeout_track_finished: false,
            rlimit_files: 0,
            rlimit_core: 0,
            chroot: None,
            chdir: None,
            catch_workers_output: false,
            decorate_workers_output: true,
            clear_env: true,
            security_limit_extensions: None,
            apparmor_hat: None,
            env: Vec::new(),
            php_values: Vec::new(),
            php_admin_values: Vec::new(),
            status_of: None,
        }
    }
}

/// Why a value is not accepted, in PHP-FPM's words.
pub(super) type Refusal = &'static str;

/// The field for a directive's value, and how to parse the value.
pub(super) enum Slot<C: 'static> {
    Text(fn(&mut C) -> &mut Option<String>),
    Integer(fn(&mut C) -> &mut i32),
    Time(fn(&mut C) -> &mut i32),
    Boolean(fn(&mut C) -> &mut bool),
    CoreLimit(fn(&mut C) -> &mut i32),
    LogLevel(fn(&mut C) -> &mut Option<Level>),
    Facility(fn(&mut C) -> &mut i32),
    Manager(fn(&mut C) -> &mut Option<Pm>),
}

impl<C> Slot<C> {
    /// Parses `value` into its field. `pool`: the name that replaces `$pool`; `None` outside of a pool.
    pub(super) fn set(
        &self,
        config: &mut C,
        value: &[u8],
        pool: Option<&str>,
    ) -> Result<(), Refusal> {
        match self {
            Self::Text(place) => *place(config) = Some(text(value, pool)?),
            Self::Integer(place) => *place(config) = whole_number(value)?,
            Self::Time(place) => *place(config) = seconds(value)?,
            Self::Boolean(place) => *place(config) = boolean(value)?,
            Self::CoreLimit(place) => {
                *place(config) = match value.eq_ignore_ascii_case(b"unlimited") {
                    true => -1,
                    false => match whole_number(value)? {
                        0.. => integer(value),
                        _ => return Err("must be greater than zero or 'unlimited'"),
                    },
                };
            }
            Self::LogLevel(place) => *place(config) = Some(log_level(value)?),
            Self::Facility(place) => *place(config) = facility(value)?,
            Self::Manager(place) => {
                *place(config) = Some(
                    [Pm::Static, Pm::Dynamic, Pm::OnDemand]
                        .into_iter()
                        .find(|pm| value.eq_ignore_ascii_case(pm.name().as_bytes()))
                        .ok_or("invalid process manager (static, dynamic or ondemand)")?,
                );
            }
        }
        Ok(())
    }
}

/// A text, with `$pool` replaced by the pool's name.
pub(super) fn text(value: &[u8], pool: Option<&str>) -> Result<String, Refusal> {
    let text = str::from_utf8(value).map_err(|_| "is not UTF-8, and weir takes no other text")?;
    match pool {
        Some(pool) => Ok(text.replace("$pool", pool)),
        None if text.contains("$pool") => Err("Can't use '$pool' when the pool is not defined"),
        None => Ok(text.to_owned()),
    }
}

/// Parses a boolean: PHP's scanner turns `yes` into `1` and `no` into an empty value; `1` and `0` may also be
/// written.
pub(super) fn boolean(value: &[u8]) -> Result<bool, Refusal> {
    match value {
        b"1" => Ok(true),
        b"" | b"0" => Ok(false),
        _ => Err("invalid boolean value"),
    }
}

fn whole_number(value: &[u8]) -> Result<i32, Refusal> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    match digits.iter().all(u8::is_ascii_digit) {
        true => Ok(integer(value)),
        false => Err("is not a valid number (greater or equal than zero)"),
    }
}

fn seconds(value: &[u8]) -> Result<i32, Refusal> {
    let Some((&suffix, number)) = value.split_last() else {
        return Err("invalid time value");
    };
    let (number, unit) = match suffix {
        b's' => (number, 1),
        b'm' => (number, 60),
        b'h' => (number, 60 * 60),
        b'd' => (number, 24 * 60 * 60),
        b'0'..=b'9' => (value, 1),
        _ => return Err("unknown suffix used in time value"),
    };
    Ok(integer(number).wrapping_mul(unit))
}

fn log_level(value: &[u8]) -> Result<Level, Refusal> {
    let levels: [(&str, Level); 6] = [
        ("debug", Level::Debug),
        ("notice", Level::Notice),
        ("warning", Level::Warning),
        ("warn", Level::Warning),
        ("error", Level::Error),
        ("alert", Level::Alert),
    ];
    let known = |(name, _): &&(&str, Level)| value.eq_ignore_ascii_case(name.as_bytes());
    let level = levels.iter().find(known).map(|(_, level)| *level);
    level.ok_or("invalid value for 'log_level'")
}

fn facility(value: &[u8]) -> Result<i32, Refusal> {
    let known = |(name, _): &&(&str, u8)| value.eq_ignore_ascii_case(name.as_bytes());
    let facility = FACILITIES
        .iter()
        .find(known)
        .map(|(_, number)| i32::from(*number) * 8);
    facility.ok_or("invalid value")
}

/// `process.priority` if it is not written.
pub const UNSET_PRIORITY: i32 = 64;

/// `listen.backlog` if it is not written: the kernel's maximum.
pub const DEFAULT_BACKLOG: i32 = -1;

/// The directives of `[global]`.
pub(super) const GLOBAL: &[(&str, Slot<Global>)] = &[
    ("pid", Slot::Text(|g| &mut g.pid)),
    ("error_log", Slot::Text(|g| &mut g.error_log)),
    ("syslog.ident", Slot::Text(|g| &mut g.syslog_ident)),
    (
        "syslog.facility",
        Slot::Facility(|g| &mut g.syslog_facility),
    ),
    ("log_buffering", Slot::Boolean(|g| &mut g.log_buffering)),
    ("log_level", Slot::LogLevel(|g| &mut g.log_level)),
    ("log_limit", Slot::Integer(|g| &mut g.log_limit)),
    (
        "emergency_restart_threshold",
        Slot::Integer(|g| &mut g.emergency_restart_threshold),
    ),
    (
        "emergency_restart_interval",
        Slot::Time(|g| &mut g.emergency_restart_interval),
    ),
    (
        "process_control_timeout",
        Slot::Time(|g| &mut g.process_control_timeout),
    ),
    ("process.max", Slot::Integer(|g| &mut g.process_max)),
    (
        "process.priority",
        Slot::Integer(|g| &mut g.process_priority),
    ),
    ("daemonize", Slot::Boolean(|g| &mut g.daemonize)),
    ("rlimit_files", Slot::Integer(|g| &mut g.rlimit_files)),
    ("rlimit_core", Slot::CoreLimit(|g| &mut g.rlimit_core)),
    ("events.mechanism", Slot::Text(|g| &mut g.events_mechanism)),
    ("systemd_interval", Slot::Time(|g| &mut g.systemd_interval)),
];

/// The directives of a pool.
pub(super) const POOL: &[(&str, Slot<Pool>)] = &[
    ("prefix", Slot::Text(|p| &mut p.prefix)),
    ("user", Slot::Text(|p| &mut p.user)),
    ("group", Slot::Text(|p| &mut p.group)),
    ("listen", Slot::Text(|p| &mut p.listen)),
    ("listen.backlog", Slot::Integer(|p| &mut p.listen_backlog)),
    ("listen.acl_users", Slot::Text(|p| &mut p.listen_acl_users)),
    (
        "listen.acl_groups",
        Slot::Text(|p| &mut p.listen_acl_groups),
    ),
    ("listen.owner", Slot::Text(|p| &mut p.listen_owner)),
    ("listen.group", Slot::Text(|p| &mut p.listen_group)),
    ("listen.mode", Slot::Text(|p| &mut p.listen_mode)),
    (
        "listen.allowed_clients",
        Slot::Text(|p| &mut p.listen_allowed_clients),
    ),
    (
        "process.priority",
        Slot::Integer(|p| &mut p.process_priority),
    ),
    (
        "process.dumpable",
        Slot::Boolean(|p| &mut p.process_dumpable),
    ),
    ("pm", Slot::Manager(|p| &mut p.pm)),
    ("pm.max_children", Slot::Integer(|p| &mut p.pm_max_children)),
    (
        "pm.start_servers",
        Slot::Integer(|p| &mut p.pm_start_servers),
    ),
    (
        "pm.min_spare_servers",
        Slot::Integer(|p| &mut p.pm_min_spare_servers),
    ),
    (
        "pm.max_spare_servers",
        Slot::Integer(|p| &mut p.pm_max_spare_servers),
    ),
    (
        "pm.max_spawn_rate",
        Slot::Integer(|p| &mut p.pm_max_spawn_rate),
    ),
    (
        "pm.process_idle_timeout",
        Slot::Time(|p| &mut p.pm_process_idle_timeout),
    ),
    ("pm.max_requests", Slot::Integer(|p| &mut p.pm_max_requests)),
    ("pm.status_path", Slot::Text(|p| &mut p.pm_status_path)),
    ("pm.status_listen", Slot::Text(|p| &mut p.pm_status_listen)),
    ("ping.path", Slot::Text(|p| &mut p.ping_path)),
    ("ping.response", Slot::Text(|p| &mut p.ping_response)),
    ("access.log", Slot::Text(|p| &mut p.access_log)),
    ("access.format", Slot::Text(|p| &mut p.access_format)),
    ("slowlog", Slot::Text(|p| &mut p.slowlog)),
    (
        "request_slowlog_timeout",
        Slot::Time(|p| &mut p.request_slowlog_timeout),
    ),
    (
        "request_slowlog_trace_depth",
        Slot::Integer(|p| &mut p.request_slowlog_trace_depth),
    ),
    (
        "request_terminate_timeout",
        Slot::Time(|p| &mut p.request_terminate_timeout),
    ),
    (
        "request_terminate_timeout_track_finished",
        Slot::Boolean(|p| &mut p.request_terminate_timeout_track_finished),
    ),
    ("rlimit_files", Slot::Integer(|p| &mut p.rlimit_files)),
    ("rlimit_core", Slot::CoreLimit(|p| &mut p.rlimit_core)),
    ("chroot", Slot::Text(|p| &mut p.chroot)),
    ("chdir", Slot::Text(|p| &mut p.chdir)),
    (
        "catch_workers_output",
        Slot::Boolean(|p| &mut p.catch_workers_output),
    ),
    (
        "decorate_workers_output",
        Slot::Boolean(|p| &mut p.decorate_workers_output),
    ),
    ("clear_env", Slot::Boolean(|p| &mut p.clear_env)),
    (
        "security.limit_extensions",
        Slot::Text(|p| &mut p.security_limit_extensions),
    ),
    ("apparmor_hat", Slot::Text(|p| &mut p.apparmor_hat)),
];
