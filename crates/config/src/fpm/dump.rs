//! The output of `php-fpm -tt`: the configuration in force, in PHP-FPM's order.

use std::fmt::Display;

use super::{
    Fpm,
    directives::{Global, Pool, UNSET_PRIORITY},
};

/// The lines, without time and level.
pub fn dump(fpm: &Fpm) -> Vec<String> {
    let mut out = Lines(Vec::new());
    out.0.push("[global]".to_owned());
    global(&fpm.global, &mut out);
    out.0.push(" ".to_owned());
    for pool_ in fpm.pools.iter().filter(|pool| pool.status_of.is_none()) {
        out.0.push(format!("[{}]", pool_.name));
        pool(pool_, &mut out);
        out.0.push(" ".to_owned());
    }
    out.0
}

struct Lines(Vec<String>);

impl Lines {
    fn value(&mut self, name: impl Display, value: impl Display) {
        self.0.push(format!("\t{name} = {value}"));
    }

    fn text(&mut self, name: &str, value: &Option<String>) {
        self.value(name, value.as_deref().unwrap_or("undefined"));
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.value(name, if value { "yes" } else { "no" });
    }

    fn seconds(&mut self, name: &str, value: i32) {
        self.value(name, format_args!("{value}s"));
    }

    fn priority(&mut self, value: i32) {
        match value {
            UNSET_PRIORITY => self.value("process.priority", "undefined"),
            value => self.value("process.priority", value),
        }
    }
}

fn global(global: &Global, out: &mut Lines) {
    out.text("pid", &global.pid);
    out.text("error_log", &global.error_log);
    out.text("syslog.ident", &global.syslog_ident);
    out.value("syslog.facility", global.syslog_facility);
    out.flag("log_buffering", global.log_buffering);
    let level = global
        .log_level
        .map_or("unknown value", |level| level.name());
    out.value("log_level", level);
    out.value("log_limit", global.log_limit);
    out.seconds(
        "emergency_restart_interval",
        global.emergency_restart_interval,
    );
    out.value(
        "emergency_restart_threshold",
        global.emergency_restart_threshold,
    );
    out.seconds("process_control_timeout", global.process_control_timeout);
    out.value("process.max", global.process_max);
    out.priority(global.process_priority);
    out.flag("daemonize", global.daemonize);
    out.value("rlimit_files", global.rlimit_files);
    out.value("rlimit_core", global.rlimit_core);
    out.text("events.mechanism", &global.events_mechanism);
    out.seconds("systemd_interval", global.systemd_interval);
}

fn pool(pool: &Pool, out: &mut Lines) {
    out.text("prefix", &pool.prefix);
    out.text("user", &pool.user);
    out.text("group", &pool.group);
    out.text("listen", &pool.listen);
    out.value("listen.backlog", pool.listen_backlog);
    out.text("listen.acl_users", &pool.listen_acl_users);
    out.text("listen.acl_groups", &pool.listen_acl_groups);
    out.text("listen.owner", &pool.listen_owner);
    out.text("listen.group", &pool.listen_group);
    out.text("listen.mode", &pool.listen_mode);
    out.text("listen.allowed_clients", &pool.listen_allowed_clients);
    out.priority(pool.process_priority);
    out.flag("process.dumpable", pool.process_dumpable);
    out.value("pm", pool.pm.map_or("undefined", |pm| pm.name()));
    out.value("pm.max_children", pool.pm_max_children);
    out.value("pm.start_servers", pool.pm_start_servers);
    out.value("pm.min_spare_servers", pool.pm_min_spare_servers);
    out.value("pm.max_spare_servers", pool.pm_max_spare_servers);
    out.value("pm.max_spawn_rate", pool.pm_max_spawn_rate);
    out.value("pm.process_idle_timeout", pool.pm_process_idle_timeout);
    out.value("pm.max_requests", pool.pm_max_requests);
    out.text("pm.status_path", &pool.pm_status_path);
    out.text("pm.status_listen", &pool.pm_status_listen);
    out.text("ping.path", &pool.ping_path);
    out.text("ping.response", &pool.ping_response);
    out.text("access.log", &pool.access_log);
    out.text("access.format", &pool.access_format);
    for path in &pool.access_suppress_path {
        out.value("access.suppress_path[]", path);
    }
    out.text("slowlog", &pool.slowlog);
    out.seconds("request_slowlog_timeout", pool.request_slowlog_timeout);
    out.value(
        "request_slowlog_trace_depth",
        pool.request_slowlog_trace_depth,
    );
    out.seconds("request_terminate_timeout", pool.request_terminate_timeout);
    out.flag(
        "request_terminate_timeout_track_finished",
        pool.request_terminate_timeout_track_finished,
    );
    out.value("rlimit_files", pool.rlimit_files);
    out.value("rlimit_core", pool.rlimit_core);
    out.text("chroot", &pool.chroot);
    out.text("chdir", &pool.chdir);
    out.flag("catch_workers_output", pool.catch_workers_output);
    out.flag("decorate_workers_output", pool.decorate_workers_output);
    out.flag("clear_env", pool.clear_env);
    out.text("security.limit_extensions", &pool.security_limit_extensions);
    for (key, value) in &pool.env {
        out.value(format_args!("env[{key}]"), value);
    }
    for (key, value) in &pool.php_values {
        out.value(format_args!("php_value[{key}]"), value);
    }
    for (key, value) in &pool.php_admin_values {
        out.value(format_args!("php_admin_value[{key}]"), value);
    }
}
