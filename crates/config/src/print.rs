//! [`Config`] → weir.toml: the configuration in force, with defaults. Reading the result gives the same configuration.

mod egress;
mod policy;

use self::policy::{policy, serialize_by};
use core::fmt::Display;
use std::{net::IpAddr, path::Path, time::Duration};

use crate::{
    build::default_server_software,
    model::{
        Action, Address, AgentCheck, Balance, Check, Config, EncodedSlash, ErrorFormat,
        HostPattern, Level, Listener, Log, LogFormat, LogTarget, PathPattern, Php, Pm, Pool,
        Protocol, Queue, QueueOrder, Reserve, Route, Runtime, Server, Servers, Settings, Site,
        UpstreamServer, Window, Workers,
    },
    rows::{self, Default, Section, log::FACILITIES},
    settings::default_hide_files,
    texts::{quote, show_size},
};

/// Writes everything that is in force, defaults included. A key that is not set becomes a comment that explains what
/// that means. A route contains only what differs from its site. Relative paths become absolute.
pub fn to_toml(config: &Config) -> String {
    let mut out = Printer::default();
    out.header("[server]");
    out.section(Section::Server, |key| server(&config.server, key));
    for listener in &config.listeners {
        out.header(&format!("[listen.{}]", listener.name));
        out.section(Section::Listen, |key| self::listener(config, listener, key));
    }
    for site in &config.sites {
        out.header(&format!("[site.{}]", site.name));
        out.section(Section::Site, |key| self::site(config, site, key));
        for route in &site.routes {
            out.header(&format!("[[site.{}.route]]", site.name));
            out.differing(|key| self::route(config, site, route, key));
        }
    }
    for pool in &config.pools {
        out.header(&format!("[pool.{}]", name(&pool.name)));
        out.section(Section::Pool, |key| self::pool(pool, key));
        out.header(&format!("[pool.{}.queue]", name(&pool.name)));
        let found_out = match &pool.runtime {
            Runtime::Servers(servers) => servers.adaptive.is_some(),
            Runtime::Php(_) | Runtime::Command(_) => false,
        };
        out.section(Section::Queue, |key| match key {
            "maxconn" if found_out => Absent,
            key => queue(&pool.queue, key),
        });
    }
    if let Some(egress) = &config.egress {
        out.header("[egress]");
        out.section(Section::Egress, |key| egress::egress(egress, key));
        for host in &egress.hosts {
            out.header(&format!("[egress.host.{}]", host.name));
            out.section(Section::EgressHost, |key| egress::host(host, key));
        }
    }
    out.header("[log]");
    out.section(Section::Log, |key| log(&config.log, key));
    out.text
}

/// What to print for a key.
enum Printed {
    /// This value.
    Value(String),
    /// No value. The row explains what that means.
    Absent,
    /// Nothing: the key does not apply here.
    Foreign,
}

use Printed::{Absent, Foreign, Value};

#[derive(Default)]
struct Printer {
    text: String,
}

impl Printer {
    fn header(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(title);
        self.text.push('\n');
    }

    /// Prints all keys of a section.
    fn section(&mut self, section: Section, value: impl Fn(&str) -> Printed) {
        for row in rows::of(section) {
            match value(row.name) {
                Value(value) => self.text.push_str(&format!("{} = {value}\n", row.name)),
                Absent => {
                    let meaning = match row.default {
                        Default::Absent(meaning) => meaning,
                        Default::Value(_) | Default::Required => "none",
                    };
                    self.text.push_str(&format!("# {}: {meaning}\n", row.name));
                }
                Foreign => {}
            }
        }
    }

    /// Prints the keys of a route that have a value.
    fn differing(&mut self, value: impl Fn(&str) -> Printed) {
        for row in rows::of(Section::Route) {
            if let Value(value) = value(row.name) {
                self.text.push_str(&format!("{} = {value}\n", row.name));
            }
        }
    }
}

fn server(server: &Server, key: &str) -> Printed {
    match key {
        "user" => option(server.user.as_deref().map(quote)),
        "group" => option(server.group.as_deref().map(quote)),
        "chroot" => option(server.chroot.as_deref().map(path)),
        "threads" => plain(server.threads),
        "pid_file" => option(server.pid_file.as_deref().map(path)),
        "shutdown_timeout" => Value(duration(server.shutdown_timeout)),
        "max_old_generations" => plain(server.max_old_generations),
        "gateway_timeout" => Value(duration(server.gateway_timeout)),
        "max_connections" => plain(server.max_connections),
        "max_connections_per_address" => plain(server.max_connections_per_address),
        "spool_dir" => Value(path(&server.spool_dir)),
        "max_spool" => Value(size(server.max_spool)),
        "server_software" if server.server_software == default_server_software() => Absent,
        "server_software" => Value(quote(&server.server_software)),
        "admin" => match &server.admin {
            Window::Usual => Absent,
            Window::Off => Value("\"off\"".into()),
            Window::At(path) => Value(quote(&format!("unix:{}", path.display()))),
        },
        "admin_tcp" => option(server.admin_tcp.map(|address| quote(&address.to_string()))),
        "admin_token_file" => option(server.admin_token_file.as_deref().map(path)),
        "ready_saturation" => plain(server.ready_saturation),
        "ready_stalled" => Value(duration(server.ready_stalled)),
        "site_histograms" => plain(server.site_histograms),
        "process_priority" => option(server.priority.map(|priority| priority.to_string())),
        "resolver" => match server.resolver.is_empty() {
            true => Absent,
            false => Value(list(
                server.resolver.iter().map(|at| quote(&at.to_string())),
            )),
        },
        "process_max" => plain(server.process_max),
        "emergency_restart_threshold" => plain(server.emergency_restart_threshold),
        "emergency_restart_interval" => Value(duration(server.emergency_restart_interval)),
        _ => Foreign,
    }
}

fn listener(config: &Config, listener: &Listener, key: &str) -> Printed {
    let unix = matches!(listener.address, Address::Unix(_));
    let fastcgi = match &listener.protocol {
        Protocol::FastCgi(fastcgi) => Some(fastcgi),
        Protocol::Http => None,
        Protocol::AgentCheck(agent) => return agent_check(config, listener, agent, key),
    };
    let http_only = [
        "max_head",
        "max_headers",
        "header_timeout",
        "idle_timeout",
        "send_timeout",
    ];
    if fastcgi.is_some()
        && (http_only.contains(&key)
            || key == "max_requests_per_connection"
            || key == "proxy_protocol")
    {
        return Foreign;
    }
    match key {
        "address" => Value(address(&listener.address)),
        "protocol" => Value(
            match fastcgi {
                None => "\"http\"",
                Some(_) => "\"fastcgi\"",
            }
            .into(),
        ),
        "pool" => match fastcgi.and_then(|fastcgi| config.pools.get(fastcgi.pool.0)) {
            Some(pool) => Value(quote(&pool.name)),
            None => Foreign,
        },
        "status_only" => fastcgi.map_or(Foreign, |fastcgi| plain(fastcgi.status_only)),
        "on_worker_failure" => fastcgi.map_or(Foreign, |fastcgi| {
            Value(
                match fastcgi.answers_failures {
                    true => "\"answer\"",
                    false => "\"close\"",
                }
                .into(),
            )
        }),
        "proxy_status" => fastcgi.map_or(Foreign, |fastcgi| plain(fastcgi.proxy_status)),
        "allowed_clients" => fastcgi.map_or(Foreign, |fastcgi| {
            allowed_clients(unix, &fastcgi.allowed_clients)
        }),
        "backlog" | "ipv6only" | "owner" | "group" | "mode" | "acl_users" | "acl_groups" => {
            socket(listener, key)
        }
        "max_head" => Value(size(listener.max_head as u64)),
        "max_headers" => plain(listener.max_headers),
        "header_timeout" => Value(duration(listener.header_timeout)),
        "body_timeout" => Value(duration(listener.body_timeout)),
        "idle_timeout" => Value(duration(listener.idle_timeout)),
        "send_timeout" => Value(duration(listener.send_timeout)),
        "max_requests_per_connection" => plain(listener.max_requests_per_connection),
        "proxy_protocol" => plain(false),
        _ => fastcgi.map_or(Foreign, |fastcgi| policy(&fastcgi.policy, key)),
    }
}

/// Keys of an agent-check listener.
fn agent_check(config: &Config, listener: &Listener, agent: &AgentCheck, key: &str) -> Printed {
    let unix = matches!(listener.address, Address::Unix(_));
    match key {
        "address" => Value(address(&listener.address)),
        "protocol" => Value("\"agent-check\"".into()),
        "pool" => match config.pools.get(agent.pool.0) {
            Some(pool) => Value(quote(&pool.name)),
            None => Foreign,
        },
        "allowed_clients" => allowed_clients(unix, &agent.allowed_clients),
        _ => socket(listener, key),
    }
}

fn allowed_clients(unix: bool, allowed: &[IpAddr]) -> Printed {
    match unix {
        _ if !allowed.is_empty() => Value(list(allowed.iter().map(|ip| quote(&ip.to_string())))),
        false => Absent,
        true => Foreign,
    }
}

/// Settings of a listener's socket.
fn socket(listener: &Listener, key: &str) -> Printed {
    let unix = matches!(listener.address, Address::Unix(_));
    match key {
        "acl_users" | "acl_groups" => {
            let names = match key {
                "acl_users" => &listener.acl_users,
                _ => &listener.acl_groups,
            };
            permission(unix, (!names.is_empty()).then(|| texts(names)))
        }
        "backlog" => plain(listener.backlog),
        "ipv6only" => match &listener.address {
            Address::Tcp(address) if address.is_ipv6() => plain(listener.ipv6only),
            _ => Foreign,
        },
        "owner" => permission(unix, listener.owner.as_deref().map(quote)),
        "group" => permission(unix, listener.group.as_deref().map(quote)),
        // A TCP listener does not use its mode, but the mode is kept.
        "mode" if unix || listener.mode != 0o660 => Value(format!("\"{:04o}\"", listener.mode)),
        _ => Foreign,
    }
}

fn permission(unix: bool, value: Option<String>) -> Printed {
    match (unix, value) {
        (_, Some(value)) => Value(value),
        (true, None) => Absent,
        (false, None) => Foreign,
    }
}

fn site(config: &Config, site: &Site, key: &str) -> Printed {
    match key {
        "hosts" if site.hosts.is_empty() => Absent,
        "hosts" => Value(list(site.hosts.iter().map(host))),
        "listen" => Value(list(
            site.listen
                .iter()
                .map(|index| quote(&config.listeners[*index].name)),
        )),
        // The default is a long expression. A comment is easier to read.
        "hide_files" if site.settings.hide_files == default_hide_files() => Absent,
        _ => settings(config, &site.settings, key),
    }
}

fn route(config: &Config, site: &Site, route: &Route, key: &str) -> Printed {
    match (key, &route.action) {
        ("path", _) => Value(match &route.path {
            PathPattern::Glob(glob) => quote(glob),
            PathPattern::Regex(regex) => quote(&format!("~{regex}")),
        }),
        ("methods", _) if route.methods.is_empty() => Absent,
        ("methods", _) => Value(texts(&route.methods)),
        ("redirect", Some(Action::Redirect { to, .. })) => Value(quote(&to.to_string())),
        ("status", Some(Action::Redirect { status, .. })) => plain(status),
        ("deny", Some(Action::Deny)) => plain(true),
        ("rewrite", _) => match &route.rewrite {
            Some(rewrite) => Value(quote(rewrite)),
            None => Foreign,
        },
        ("alias", _) => match &route.settings.alias {
            Some(alias) => Value(path(&alias.folder)),
            None => Foreign,
        },
        // A route with an alias does not inherit its site's fallback.
        ("fallback", _) if route.settings.alias.is_some() => match &route.settings.fallback {
            Some(fallback) => Value(quote(fallback)),
            None => Foreign,
        },
        ("script_root", _) if route.settings.alias.is_some() => match &route.settings.script_root {
            Some(root) => Value(path(root)),
            None => Foreign,
        },
        (
            "reply",
            Some(Action::Reply {
                status,
                body,
                content_type,
            }),
        ) => Value(format!(
            "{{ status = {status}, body = {}, content_type = {} }}",
            quote(&body.to_string()),
            quote(content_type)
        )),
        _ => overlay(config, &site.settings, &route.settings, key),
    }
}

/// What a route must set so that its settings differ from its site's.
fn overlay(config: &Config, site: &Settings, route: &Settings, key: &str) -> Printed {
    match (settings(config, site, key), settings(config, route, key)) {
        (Value(here), Value(there)) if here == there => Foreign,
        (_, Value(there)) => Value(there),
        (Value(_), Absent) if key == "priority_by" => Value("[]".into()),
        (Value(_), Absent) => Value("\"\"".into()),
        _ => Foreign,
    }
}

fn settings(config: &Config, settings: &Settings, key: &str) -> Printed {
    match key {
        "root" => option(settings.root.as_deref().map(path)),
        "script_root" => option(settings.script_root.as_deref().map(path)),
        "index" => Value(texts(&settings.index)),
        "script" => Value(quote(&settings.script)),
        "fallback" => option(settings.fallback.as_deref().map(quote)),
        "check_files" => option(settings.check_files.map(|checked| checked.to_string())),
        "encoded_slash" => Value(
            match settings.encoded_slash {
                EncodedSlash::Pass => "\"pass\"",
                EncodedSlash::Refuse => "\"refuse\"",
            }
            .into(),
        ),
        "pool" => option(settings.pool.map(|pool| quote(&config.pools[pool.0].name))),
        "params" => named(&settings.params),
        "pass_headers" => option(settings.pass_headers.as_deref().map(texts)),
        "underscores_in_headers" => plain(settings.underscores_in_headers),
        "hide_files" => Value(texts(&settings.hide_files)),
        "deny_scripts" => Value(texts(&settings.deny_scripts)),
        "error_pages" => table(
            settings
                .error_pages
                .iter()
                .map(|(status, file)| (status, path(file))),
        ),
        "cache_control" => option(settings.cache_control.as_deref().map(quote)),
        "set_headers" => named(&settings.set_headers),
        "remove_headers" => Value(texts(&settings.remove_headers)),
        "set_request_headers" => named(&settings.set_request_headers),
        "charset" => Value(quote(&settings.charset)),
        "types" => table(
            settings
                .types
                .iter()
                .map(|(name, value)| (bare(name), quote(value))),
        ),
        "precompressed" => plain(settings.precompressed),
        "follow_symlinks" => plain(settings.follow_symlinks),
        "max_body" => Value(size(settings.max_body)),
        "body_memory" => Value(size(settings.body_memory as u64)),
        "response_memory" => Value(size(settings.response_memory as u64)),
        "max_response_file" => Value(size(settings.max_response_file)),
        "buffering" => plain(settings.buffering),
        "accel_redirect" => table(
            settings
                .accel_redirect
                .iter()
                .map(|(prefix, folder)| (bare(prefix), path(folder))),
        ),
        "sendfile_dirs" => Value(list(
            settings.sendfile_dirs.iter().map(|folder| path(folder)),
        )),
        "access_log" => plain(settings.access_log),
        _ => policy(&settings.policy, key),
    }
}

fn pool(pool: &Pool, key: &str) -> Printed {
    match (key, &pool.runtime) {
        ("runtime", Runtime::Php(_)) => Value("\"php\"".into()),
        ("runtime", Runtime::Command(_)) => Value("\"command\"".into()),
        ("runtime", Runtime::Servers(_)) => Value("\"servers\"".into()),
        ("keep_conn" | "max_reqs", Runtime::Php(_)) => Foreign,
        ("keep_conn", _) => plain(pool.keep_conn),
        ("max_reqs", _) => plain(pool.max_reqs),
        ("connect_timeout", _) => Value(duration(pool.connect_timeout)),
        ("read_timeout", _) => Value(duration(pool.read_timeout)),
        ("request_terminate_timeout", _) => Value(duration(pool.request_terminate_timeout)),
        ("request_terminate_timeout_track_finished", Runtime::Php(_)) => {
            plain(pool.request_terminate_timeout_track_finished)
        }
        ("status_path", _) => option(pool.status_path.as_deref().map(quote)),
        ("ping_path", _) => option(pool.ping_path.as_deref().map(quote)),
        ("ping_response", _) => Value(quote(&pool.ping_response)),
        ("access_log", _) => option(pool.access_log.as_deref().map(path)),
        ("access_format", _) => Value(quote(&pool.access_format.to_string())),
        ("access_suppress_path", _) if pool.access_suppress_path.is_empty() => Absent,
        ("access_suppress_path", _) => Value(texts(&pool.access_suppress_path)),
        ("retries", _) => plain(pool.retries),
        ("max_response_head", _) => Value(size(pool.max_response_head as u64)),
        ("limit_extensions", Runtime::Php(_)) => Value(texts(&pool.limit_extensions)),
        ("limit_extensions", _) if pool.limit_extensions.is_empty() => Absent,
        ("limit_extensions", _) => Value(texts(&pool.limit_extensions)),
        ("command", Runtime::Command(command)) => Value(texts(&command.argv)),
        (_, Runtime::Command(command)) => workers(&command.workers, key),
        (_, Runtime::Php(php)) => self::php(php, key),
        (_, Runtime::Servers(servers)) => self::servers(servers, key),
    }
}

fn servers(servers: &Servers, key: &str) -> Printed {
    let checked = servers.check != Check::Off;
    let server = |server: &UpstreamServer| {
        let address = quote(&server.address.to_string());
        if (server.weight, server.backup) == (100, false) {
            return address;
        }
        let backup = match server.backup {
            true => ", backup = true",
            false => "",
        };
        format!(
            "{{ address = {address}, weight = {}{backup} }}",
            server.weight
        )
    };
    match (key, &servers.balance, &servers.check) {
        ("servers", ..) => Value(list(servers.list.iter().map(server))),
        ("balance", balance, _) => Value(quote(match balance {
            Balance::RoundRobin => "roundrobin",
            Balance::LeastConn => "leastconn",
            Balance::First => "first",
            Balance::Random => "random",
            Balance::Hash { .. } => "hash",
        })),
        ("hash_by", Balance::Hash { by, .. }, _) => Value(quote(&by.to_string())),
        ("hash_balance_factor", Balance::Hash { factor, .. }, _) => plain(factor),
        ("limit_start", ..) => servers.adaptive.map_or(Foreign, |limit| plain(limit.start)),
        ("limit_max", ..) => servers.adaptive.map_or(Foreign, |limit| plain(limit.max)),
        ("check", _, check) => Value(quote(match check {
            Check::Off => "off",
            Check::Tcp => "tcp",
            Check::FastCgi(_) => "fastcgi",
        })),
        ("check_path", _, Check::FastCgi(path)) => Value(quote(path)),
        ("check_interval", ..) if checked => Value(duration(servers.check_interval)),
        ("check_timeout", ..) if checked => Value(duration(servers.check_timeout)),
        ("rise", ..) if checked => plain(servers.rise),
        ("fall", ..) if checked => plain(servers.fall),
        ("slowstart", ..) => Value(duration(servers.slowstart)),
        ("max_fails", ..) => plain(servers.max_fails),
        ("fail_timeout", ..) => Value(duration(servers.fail_timeout)),
        ("resolve_min" | "resolve_max", ..) if !servers.has_names() => Foreign,
        ("resolve_min", ..) => Value(duration(servers.resolve_min)),
        ("resolve_max", ..) => Value(duration(servers.resolve_max)),
        _ => Foreign,
    }
}

fn php(php: &Php, key: &str) -> Printed {
    let settings = |admin: bool, flag: bool| {
        let chosen = php
            .settings
            .iter()
            .filter(|setting| (setting.admin, setting.flag) == (admin, flag));
        table(chosen.map(|setting| (bare_dotted(&setting.name), quote(&setting.value))))
    };
    match key {
        "php" => option(php.version.as_deref().map(quote)),
        "php_ini" => option(php.ini.as_deref().map(path)),
        "no_php_ini" => plain(php.no_ini),
        "php_value" => settings(false, false),
        "php_flag" => settings(false, true),
        "php_admin_value" => settings(true, false),
        "php_admin_flag" => settings(true, true),
        "php_define" => {
            let pairs = php.define.iter();
            table(pairs.map(|(name, value)| (bare_dotted(name), quote(value))))
        }
        "watch_root" => plain(php.watch_root),
        "request_slowlog_timeout" => Value(duration(php.slowlog_timeout)),
        "request_slowlog_trace_depth" => plain(php.slowlog_depth),
        "slowlog" => option(php.slowlog.as_deref().map(path)),
        "process_dumpable" => plain(php.dumpable),
        "apparmor_hat" => option(php.apparmor_hat.as_deref().map(quote)),
        "max_memory" => match php.workers.max_memory {
            0 => Absent,
            bytes => Value(size(bytes)),
        },
        _ => workers(&php.workers, key),
    }
}

fn workers(workers: &Workers, key: &str) -> Printed {
    match (key, workers.pm) {
        ("pm", Pm::Static) => Value("\"static\"".into()),
        ("pm", Pm::Dynamic { .. }) => Value("\"dynamic\"".into()),
        ("pm", Pm::OnDemand) => Value("\"ondemand\"".into()),
        ("pm", Pm::Auto { .. }) => Value("\"auto\"".into()),
        ("start_servers", Pm::Dynamic { start, .. } | Pm::Auto { start }) => plain(start),
        ("min_spare_servers", Pm::Dynamic { min_spare, .. }) => plain(min_spare),
        ("max_spare_servers", Pm::Dynamic { max_spare, .. }) => plain(max_spare),
        ("worker_memory", Pm::Auto { .. }) => Value(size(workers.worker_memory)),
        ("process_idle_timeout", Pm::OnDemand | Pm::Auto { .. }) => {
            Value(duration(workers.idle_timeout))
        }
        _ => process(workers, key),
    }
}

/// Keys that do not depend on `pm`.
fn process(workers: &Workers, key: &str) -> Printed {
    match key {
        "max_children" => plain(workers.max_children),
        "max_spawn_rate" => plain(workers.max_spawn_rate),
        "crash_limit" => plain(workers.crash_limit),
        "crash_window" if workers.crash_limit > 0 => Value(duration(workers.crash_window)),
        "crash_pause" if workers.crash_limit > 0 => Value(duration(workers.crash_pause)),
        "self_call_workers" => plain(workers.self_call_workers),
        "max_requests" => plain(workers.max_requests),
        "user" => option(workers.user.as_deref().map(quote)),
        "group" => option(workers.group.as_deref().map(quote)),
        "chroot" => option(workers.chroot.as_deref().map(path)),
        "chdir" => option(workers.chdir.as_deref().map(path)),
        "rlimit_core" => option(workers.rlimit_core.map(size)),
        "process_priority" => option(workers.priority.map(|priority| priority.to_string())),
        "output_log" => option(workers.output_log.as_ref().map(target)),
        "decorate_output" => plain(workers.decorate_output),
        "clear_env" => plain(workers.clear_env),
        "env" => table(
            workers
                .env
                .iter()
                .map(|(name, value)| (bare(name), quote(value))),
        ),
        "rlimit_files" => option(workers.rlimit_files.map(|limit| limit.to_string())),
        _ => Foreign,
    }
}

fn queue(queue: &Queue, key: &str) -> Printed {
    match key {
        "maxconn" => plain(queue.maxconn),
        "minconn" => option((queue.fullconn > 0).then(|| queue.minconn.to_string())),
        "fullconn" => option((queue.fullconn > 0).then(|| queue.fullconn.to_string())),
        "reserve" => {
            let table = |reserve: &Reserve| {
                let Reserve { priority, workers } = reserve;
                format!("{{ priority = {priority}, workers = {workers} }}")
            };
            let tables: Vec<String> = queue.reserve.iter().map(table).collect();
            option((!tables.is_empty()).then(|| format!("[{}]", tables.join(", "))))
        }
        "order" => Value(quote(match queue.order {
            QueueOrder::Adaptive => "adaptive",
            QueueOrder::Fifo => "fifo",
        })),
        "max_queue" => plain(queue.max_queue),
        "when_full" => Value(quote(
            ["refuse", "wait"][usize::from(queue.waits_when_full)],
        )),
        "serialize_by" => serialize_by(&queue.serialize_by),
        "serialize_queue" => plain(queue.serialize_queue),
        "client_share" => plain(queue.client_share),
        "timeout" => Value(duration(queue.timeout)),
        _ => Foreign,
    }
}

fn log(log: &Log, key: &str) -> Printed {
    match key {
        "access" => Value(target(&log.access)),
        "format" => Value(match &log.format {
            LogFormat::Combined => "\"combined\"".into(),
            LogFormat::Json => "\"json\"".into(),
            LogFormat::Template(template) => quote(&template.to_string()),
        }),
        "egress" if log.egress == log.access => Absent,
        "egress" => Value(target(&log.egress)),
        "error" => Value(target(&log.error)),
        "level" => Value(
            match log.level {
                Level::Error => "\"error\"",
                Level::Warning => "\"warning\"",
                Level::Notice => "\"notice\"",
                Level::Debug => "\"debug\"",
            }
            .into(),
        ),
        "error_format" => Value(
            match log.error_format {
                ErrorFormat::Weir => "\"weir\"",
                ErrorFormat::Fpm => "\"fpm\"",
            }
            .into(),
        ),
        "error_limit" => Value(size(log.error_limit.into())),
        "error_buffering" => plain(log.error_buffering),
        "syslog_ident" => Value(quote(&log.syslog_ident)),
        "syslog_facility" => {
            let known = FACILITIES
                .iter()
                .find(|(_, number)| *number == log.syslog_facility);
            option(known.map(|(name, _)| quote(name)))
        }
        _ => Foreign,
    }
}

/// Name of a table. A pool's name may need quotes.
fn name(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match name.chars().all(bare) {
        true => name.to_owned(),
        false => quote(name),
    }
}

fn option(value: Option<String>) -> Printed {
    value.map_or(Absent, Value)
}

fn plain(value: impl Display) -> Printed {
    Value(value.to_string())
}

fn named<T: Display>(pairs: &[(String, T)]) -> Printed {
    table(
        pairs
            .iter()
            .map(|(name, value)| (bare(name), quote(&value.to_string()))),
    )
}

fn table<K: Display>(pairs: impl Iterator<Item = (K, String)>) -> Printed {
    let pairs: Vec<String> = pairs
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    match pairs.is_empty() {
        true => Absent,
        false => Value(format!("{{ {} }}", pairs.join(", "))),
    }
}

/// A key, with quotes only if TOML requires them.
fn bare(key: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match !key.is_empty() && key.bytes().all(plain) {
        true => key.to_owned(),
        false => quote(key),
    }
}

/// Name of a PHP setting. The dots are part of the name.
fn bare_dotted(name: &str) -> String {
    match name.contains('.') {
        true => quote(name),
        false => bare(name),
    }
}

fn texts(texts: &[String]) -> String {
    list(texts.iter().map(|text| quote(text)))
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    format!("[{}]", items.join(", "))
}

fn path(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

fn address(address: &Address) -> String {
    quote(&address.to_string())
}

fn host(host: &HostPattern) -> String {
    quote(&match host {
        HostPattern::Exact(name) => name.clone(),
        HostPattern::Suffix(name) => format!("*{name}"),
        HostPattern::Prefix(name) => format!("{name}*"),
    })
}

fn target(target: &LogTarget) -> String {
    match target {
        LogTarget::Off => "\"off\"".into(),
        LogTarget::Stdout => "\"stdout\"".into(),
        LogTarget::Stderr => "\"stderr\"".into(),
        LogTarget::File(file) => path(file),
        LogTarget::Syslog => "\"syslog\"".into(),
    }
}

/// Writes a duration in the largest unit that is exact.
fn duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let exact = units.into_iter().find(|(unit, _)| ms.is_multiple_of(*unit));
    let text = match exact {
        _ if ms == 0 => "0s".to_owned(),
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None => format!("{ms}ms"),
    };
    format!("\"{text}\"")
}

fn size(bytes: u64) -> String {
    let text = show_size(bytes);
    match text.bytes().all(|b| b.is_ascii_digit()) {
        true => text,
        false => format!("\"{text}\""),
    }
}
