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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

impl Global {
    /// PHP-FPM's defaults.
    pub(super) fn new() -> Self {
        Self {
            syslog_facility: -1,
            log_buffering: true,
            log_limit: 1024,
            process_priority: UNSET_PRIORITY,
            daemonize: true,
            systemd_interval: -1,
            ..Self::default()
        }
    }
}

/// A pool. Times are seconds; `None`: not written. Lists have the last entry first, as PHP-FPM stores them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
    /// PHP-FPM's defaults.
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            listen_backlog: DEFAULT_BACKLOG,
            process_priority: UNSET_PRIORITY,
            pm_max_spawn_rate: 32,
            pm_process_idle_timeout: 10,
            decorate_workers_output: true,
            clear_env: true,
            ..Self::default()
        }
    }
}

/// Why a value is not accepted, in PHP-FPM's words.
pub(super) type Refusal = &'static str;

/// The field for a directive's value, and how to parse the value.
pub(super) enum Slot<C: 'static> {
    Text(fn(&mut C) -> &mut Option<String>),
    Integer(fn(&mut C) -> &mut i32),
    Priority(fn(&mut C) -> &mut i32),
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
            Self::Integer(place) | Self::Priority(place) => *place(config) = whole_number(value)?,
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

    /// The value as `php-fpm -tt` prints it.
    pub(super) fn show(&self, config: &mut C) -> String {
        match self {
            Self::Text(place) => place(config).clone().unwrap_or_else(|| "undefined".into()),
            Self::Priority(place) if *place(config) == UNSET_PRIORITY => "undefined".into(),
            Self::Integer(place)
            | Self::Priority(place)
            | Self::CoreLimit(place)
            | Self::Facility(place) => place(config).to_string(),
            Self::Time(place) => format!("{}s", place(config)),
            Self::Boolean(place) => if *place(config) { "yes" } else { "no" }.into(),
            Self::LogLevel(place) => place(config).map_or("unknown value", Level::name).into(),
            Self::Manager(place) => place(config).map_or("undefined", Pm::name).into(),
        }
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

/// Lists directives: name, type and field.
macro_rules! slots {
    ($($name:literal => $slot:ident($field:ident),)*) => {
        &[$(($name, Slot::$slot(|config| &mut config.$field)),)*]
    };
}

/// The directives of `[global]`, in the order of `php-fpm -tt`.
pub(super) const GLOBAL: &[(&str, Slot<Global>)] = slots! {
    "pid" => Text(pid),
    "error_log" => Text(error_log),
    "syslog.ident" => Text(syslog_ident),
    "syslog.facility" => Facility(syslog_facility),
    "log_buffering" => Boolean(log_buffering),
    "log_level" => LogLevel(log_level),
    "log_limit" => Integer(log_limit),
    "emergency_restart_interval" => Time(emergency_restart_interval),
    "emergency_restart_threshold" => Integer(emergency_restart_threshold),
    "process_control_timeout" => Time(process_control_timeout),
    "process.max" => Integer(process_max),
    "process.priority" => Priority(process_priority),
    "daemonize" => Boolean(daemonize),
    "rlimit_files" => Integer(rlimit_files),
    "rlimit_core" => CoreLimit(rlimit_core),
    "events.mechanism" => Text(events_mechanism),
    "systemd_interval" => Time(systemd_interval),
};

/// The directives of a pool, in the order of `php-fpm -tt`.
pub(super) const POOL: &[(&str, Slot<Pool>)] = slots! {
    "prefix" => Text(prefix),
    "user" => Text(user),
    "group" => Text(group),
    "listen" => Text(listen),
    "listen.backlog" => Integer(listen_backlog),
    "listen.acl_users" => Text(listen_acl_users),
    "listen.acl_groups" => Text(listen_acl_groups),
    "listen.owner" => Text(listen_owner),
    "listen.group" => Text(listen_group),
    "listen.mode" => Text(listen_mode),
    "listen.allowed_clients" => Text(listen_allowed_clients),
    "process.priority" => Priority(process_priority),
    "process.dumpable" => Boolean(process_dumpable),
    "pm" => Manager(pm),
    "pm.max_children" => Integer(pm_max_children),
    "pm.start_servers" => Integer(pm_start_servers),
    "pm.min_spare_servers" => Integer(pm_min_spare_servers),
    "pm.max_spare_servers" => Integer(pm_max_spare_servers),
    "pm.max_spawn_rate" => Integer(pm_max_spawn_rate),
    "pm.process_idle_timeout" => Time(pm_process_idle_timeout),
    "pm.max_requests" => Integer(pm_max_requests),
    "pm.status_path" => Text(pm_status_path),
    "pm.status_listen" => Text(pm_status_listen),
    "ping.path" => Text(ping_path),
    "ping.response" => Text(ping_response),
    "access.log" => Text(access_log),
    "access.format" => Text(access_format),
    "slowlog" => Text(slowlog),
    "request_slowlog_timeout" => Time(request_slowlog_timeout),
    "request_slowlog_trace_depth" => Integer(request_slowlog_trace_depth),
    "request_terminate_timeout" => Time(request_terminate_timeout),
    "request_terminate_timeout_track_finished" => Boolean(request_terminate_timeout_track_finished),
    "rlimit_files" => Integer(rlimit_files),
    "rlimit_core" => CoreLimit(rlimit_core),
    "chroot" => Text(chroot),
    "chdir" => Text(chdir),
    "catch_workers_output" => Boolean(catch_workers_output),
    "decorate_workers_output" => Boolean(decorate_workers_output),
    "clear_env" => Boolean(clear_env),
    "security.limit_extensions" => Text(security_limit_extensions),
    "apparmor_hat" => Text(apparmor_hat),
};
