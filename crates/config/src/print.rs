//! [`Config`] → weir.toml: the configuration in force, with defaults. Reading the result gives the same configuration.

mod egress;

use core::fmt::Display;

use crate::{
    build::default_server_software,
    field::{Field, bare, path, quoted, quoted_list, shown, table},
    fields::Fields,
    model::{
        Action, Address, AgentCheck, Balance, CacheRules, Check, Config, FastCgi, Listener, Log,
        PathPattern, Php, Pm, Pool, PoolId, Program, Protocol, Queue, Route, Runtime, Server,
        Servers, Settings, Site, Tls, UpstreamServer, Workers,
    },
    rows::{self, Default, Row, Section, log::FACILITIES},
    settings::default_hide_files,
    texts::quote,
};

/// Writes everything that is in force, defaults included. A key that is not set becomes a comment that explains what
/// that means. A route contains only what differs from its site. Relative paths become absolute.
pub fn to_toml(config: &Config) -> String {
    let mut out = Printer::default();
    out.header("[server]");
    out.section(Section::Server, |row| server(&config.server, row));
    for listener in &config.listeners {
        out.header(&format!("[listen.{}]", listener.name));
        out.section(Section::Listen, |row| self::listener(config, listener, row));
    }
    if has_tls(config) || config.tls != Tls::default() {
        out.header("[tls]");
        out.section(Section::Tls, |row| field(&config.tls, row));
    }
    if config.tls_is_ordered() {
        out.header("[tls.acme]");
        let acme = &config.tls.acme;
        out.section(Section::Acme, |row| match row.name {
            "dns_command" if acme.dns_command.is_empty() => Absent,
            _ => field(acme, row),
        });
    }
    let written = config.certificates.iter();
    for certificate in written.filter(|certificate| certificate.auto.is_none()) {
        out.header(&format!("[certificate.{}]", certificate.name));
        out.section(Section::Certificate, |row| field(certificate, row));
    }
    for site in &config.sites {
        out.header(&format!("[site.{}]", site.name));
        out.section(Section::Site, |row| self::site(config, site, row));
        if let Some(rules) = &site.settings.cache {
            out.header(&format!("[site.{}.cache]", site.name));
            out.section(Section::SiteCache, |row| cache_rules(rules, row));
        }
        for route in &site.routes {
            out.header(&format!("[[site.{}.route]]", site.name));
            out.differing(|row| self::route(config, site, route, row));
            if let Some(rules) = &route.settings.cache
                && route.settings.cache != site.settings.cache
            {
                out.header(&format!("[site.{}.route.cache]", site.name));
                out.section(Section::SiteCache, |row| cache_rules(rules, row));
            }
        }
    }
    for pool in &config.pools {
        out.header(&format!("[pool.{}]", bare(&pool.name)));
        out.section(Section::Pool, |row| self::pool(pool, row));
        out.header(&format!("[pool.{}.queue]", bare(&pool.name)));
        let found_out = match &pool.runtime {
            Runtime::Servers(servers) => servers.adaptive.is_some(),
            Runtime::Php(_) | Runtime::Command(_) => false,
        };
        out.section(Section::Queue, |row| match row.name {
            "maxconn" if found_out => Absent,
            _ => queue(&pool.queue, row),
        });
    }
    for program in &config.programs {
        out.header(&format!("[program.{}]", program.name));
        out.section(Section::Program, |row| self::program(config, program, row));
    }
    if let Some(cache) = &config.cache {
        out.header("[cache]");
        out.section(Section::Cache, |row| field(cache, row));
    }
    if let Some(egress) = &config.egress {
        out.header("[egress]");
        out.section(Section::Egress, |row| egress::egress(egress, row));
        for host in &egress.hosts {
            out.header(&format!("[egress.host.{}]", host.name));
            out.section(Section::EgressHost, |row| egress::host(host, row));
        }
    }
    out.header("[log]");
    out.section(Section::Log, |row| log(&config.log, row));
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
    fn section(&mut self, section: Section, value: impl Fn(&Row) -> Printed) {
        for row in rows::of(section) {
            match value(row) {
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
    fn differing(&mut self, value: impl Fn(&Row) -> Printed) {
        for row in rows::of(Section::Route) {
            if let Value(value) = value(row) {
                self.text.push_str(&format!("{} = {value}\n", row.name));
            }
        }
    }
}

/// The field of a key; nothing if the struct has none.
fn field(fields: &impl Fields, row: &Row) -> Printed {
    fields
        .field(row.name)
        .map_or(Foreign, |field| option(field.show(row)))
}

fn server(server: &Server, row: &Row) -> Printed {
    match row.name {
        "server_software" if server.server_software == default_server_software() => Absent,
        _ => field(server, row),
    }
}

fn listener(config: &Config, listener: &Listener, row: &Row) -> Printed {
    match &listener.protocol {
        Protocol::Http => http(config, listener, row),
        Protocol::FastCgi(fastcgi) => self::fastcgi(config, listener, fastcgi, row),
        Protocol::AgentCheck(agent) => agent_check(config, listener, agent, row),
    }
}

fn http(config: &Config, listener: &Listener, row: &Row) -> Printed {
    match row.name {
        "protocol" => text("http"),
        "tls" => plain(listener.tls.is_some()),
        "default_certificate" => listener.tls.as_ref().map_or(Foreign, |tls| {
            certificate_name(config, tls.default_certificate)
        }),
        "max_head" | "max_headers" | "header_timeout" | "idle_timeout" | "send_timeout" => {
            field(listener, row)
        }
        "body_timeout" | "max_requests_per_connection" | "proxy_protocol" | "http2" | "http3" => {
            field(listener, row)
        }
        _ => match socket(listener, row) {
            Foreign => field(&listener.http2_limits, row),
            printed => printed,
        },
    }
}

fn fastcgi(config: &Config, listener: &Listener, fastcgi: &FastCgi, row: &Row) -> Printed {
    match row.name {
        "protocol" => text("fastcgi"),
        "pool" => pool_name(config, fastcgi.pool),
        "allowed_clients" if fastcgi.allowed_clients.is_empty() => for_tcp(listener),
        "status_only" | "on_worker_failure" | "proxy_status" | "allowed_clients" => {
            field(fastcgi, row)
        }
        "body_timeout" => field(listener, row),
        _ => match socket(listener, row) {
            Foreign => field(&fastcgi.policy, row),
            printed => printed,
        },
    }
}

fn agent_check(config: &Config, listener: &Listener, agent: &AgentCheck, row: &Row) -> Printed {
    match row.name {
        "protocol" => text("agent-check"),
        "pool" => pool_name(config, agent.pool),
        "allowed_clients" if agent.allowed_clients.is_empty() => for_tcp(listener),
        "allowed_clients" => Value(quoted(&agent.allowed_clients)),
        _ => socket(listener, row),
    }
}

fn has_tls(config: &Config) -> bool {
    config
        .listeners
        .iter()
        .any(|listener| listener.tls.is_some())
        || !config.certificates.is_empty()
}

fn certificate_name(config: &Config, index: Option<usize>) -> Printed {
    let certificate = index.and_then(|index| config.certificates.get(index));
    option(certificate.map(|certificate| quote(&certificate.name)))
}

fn pool_name(config: &Config, pool: PoolId) -> Printed {
    config
        .pools
        .get(pool.0)
        .map_or(Foreign, |pool| text(&pool.name))
}

/// A key without a value that only TCP listeners have.
fn for_tcp(listener: &Listener) -> Printed {
    match listener.address {
        Address::Tcp(_) => Absent,
        Address::Unix(_) => Foreign,
    }
}

/// A key without a value that only unix sockets have.
fn for_unix(listener: &Listener) -> Printed {
    match listener.address {
        Address::Tcp(_) => Foreign,
        Address::Unix(_) => Absent,
    }
}

/// Keys of a listener's socket.
fn socket(listener: &Listener, row: &Row) -> Printed {
    let unix = matches!(listener.address, Address::Unix(_));
    match row.name {
        "address" => text(&listener.address.to_string()),
        "acl_users" if listener.acl_users.is_empty() => for_unix(listener),
        "acl_groups" if listener.acl_groups.is_empty() => for_unix(listener),
        "owner" if listener.owner.is_none() => for_unix(listener),
        "group" if listener.group.is_none() => for_unix(listener),
        "ipv6only" if !matches!(&listener.address, Address::Tcp(at) if at.is_ipv6()) => Foreign,
        // A TCP listener does not use its mode, but the mode is kept.
        "mode" if !unix && listener.mode == 0o660 => Foreign,
        "acl_users" | "acl_groups" | "owner" | "group" | "ipv6only" | "mode" | "backlog" => {
            field(listener, row)
        }
        _ => Foreign,
    }
}

fn site(config: &Config, site: &Site, row: &Row) -> Printed {
    match row.name {
        "hosts" if site.hosts.is_empty() => Absent,
        "hosts" => Value(quoted(&site.hosts)),
        "listen" => Value(shown(&site.listen, |index| {
            quote(&config.listeners[*index].name)
        })),
        "tls" if site.is_auto => text("auto"),
        "https_redirect" if has_tls(config) => plain(site.https_redirect.is_some()),
        "hsts" if !has_tls(config) => Foreign,
        "tls" | "client_ca" if !has_tls(config) && site.client_auth.is_none() => Foreign,
        "tls" => certificate_name(config, site.certificate),
        "client_ca" => option(site.client_auth.as_ref().map(|auth| path(&auth.ca))),
        "client_certificate" => site.client_auth.as_ref().map_or(Foreign, |auth| {
            text(if auth.optional {
                "optional"
            } else {
                "required"
            })
        }),
        // The default is a long expression. A comment is easier to read.
        "hide_files" if site.settings.hide_files == default_hide_files() => Absent,
        _ => settings(config, &site.settings, row),
    }
}

fn route(config: &Config, site: &Site, route: &Route, row: &Row) -> Printed {
    match (row.name, &route.action) {
        ("path", _) => match &route.path {
            PathPattern::Glob(glob) => text(glob),
            PathPattern::Regex(regex) => text(&format!("~{regex}")),
        },
        ("methods", _) if route.methods.is_empty() => Absent,
        ("methods", _) => Value(quoted_list(&route.methods)),
        ("redirect", Some(Action::Redirect { to, .. })) => text(&to.to_string()),
        ("status", Some(Action::Redirect { status, .. })) => plain(status),
        ("deny", Some(Action::Deny)) => plain(true),
        ("rewrite", _) => route.rewrite.as_deref().map_or(Foreign, text),
        ("alias", _) => match &route.settings.alias {
            Some(alias) => Value(path(&alias.folder)),
            None => Foreign,
        },
        ("strip_prefix", _) => match &route.settings.strip_prefix {
            Some(_) => plain(true),
            None => Foreign,
        },
        // A route with an alias does not inherit these from its site.
        ("fallback" | "script_root", _) if route.settings.alias.is_some() => {
            match settings(config, &route.settings, row) {
                Absent => Foreign,
                printed => printed,
            }
        }
        (
            "reply",
            Some(Action::Reply {
                status,
                body,
                content_type,
            }),
        ) => {
            let (body, content_type) = (quote(&body.to_string()), quote(content_type));
            Value(format!(
                "{{ status = {status}, body = {body}, content_type = {content_type} }}"
            ))
        }
        _ => overlay(config, &site.settings, &route.settings, row),
    }
}

/// What a route must set so that its settings differ from its site's.
fn overlay(config: &Config, site: &Settings, route: &Settings, row: &Row) -> Printed {
    match (settings(config, site, row), settings(config, route, row)) {
        (Value(here), Value(there)) if here == there => Foreign,
        (_, Value(there)) => Value(there),
        (Value(_), Absent) if matches!(row.name, "priority_by" | "allow" | "deny") => {
            Value("[]".into())
        }
        (Value(_), Absent) if row.name == "basic_auth" => plain(false),
        (Value(_), Absent) => text(""),
        _ => Foreign,
    }
}

fn settings(config: &Config, settings: &Settings, row: &Row) -> Printed {
    match (row.name, settings.field(row.name)) {
        ("cache", _) if settings.cache.is_none() => text("off"),
        // A table of its own.
        ("cache", _) => Foreign,
        ("pool", _) => option(settings.pool.map(|pool| quote(&config.pools[pool.0].name))),
        (_, Some(filled)) => option(filled.show(row)),
        (_, None) => field(&settings.policy, row),
    }
}

/// Empty lists are printed, too: they may replace those of a preset.
fn cache_rules(rules: &CacheRules, row: &Row) -> Printed {
    match row.name {
        "public_if" if rules.public_if.is_empty() => Value("{}".into()),
        _ => field(rules, row),
    }
}

fn pool(pool: &Pool, row: &Row) -> Printed {
    let php = pool.php().is_some();
    match row.name {
        "runtime" => text(match pool.runtime {
            Runtime::Php(_) => "php",
            Runtime::Command(_) => "command",
            Runtime::Servers(_) => "servers",
        }),
        "keep_conn" | "max_reqs" if php => Foreign,
        "request_terminate_timeout_track_finished" if !php => Foreign,
        "limit_extensions" if !php && pool.limit_extensions.is_empty() => Absent,
        "access_suppress_path" if pool.access_suppress_path.is_empty() => Absent,
        _ => match (field(pool, row), &pool.runtime) {
            (Foreign, Runtime::Php(php)) => self::php(php, row),
            (Foreign, Runtime::Command(command)) if row.name == "command" => {
                Value(quoted_list(&command.argv))
            }
            (Foreign, Runtime::Command(command)) => workers(&command.workers, row),
            (Foreign, Runtime::Servers(servers)) => self::servers(servers, row),
            (printed, _) => printed,
        },
    }
}

fn servers(servers: &Servers, row: &Row) -> Printed {
    let server = |server: &UpstreamServer| {
        let address = quote(&server.address.to_string());
        if (server.weight, server.backup) == (100, false) {
            return address;
        }
        let backup = if server.backup { ", backup = true" } else { "" };
        format!(
            "{{ address = {address}, weight = {}{backup} }}",
            server.weight
        )
    };
    match (row.name, &servers.balance, &servers.check) {
        ("servers", ..) => Value(shown(&servers.list, server)),
        ("balance", balance, _) => text(match balance {
            Balance::RoundRobin => "roundrobin",
            Balance::LeastConn => "leastconn",
            Balance::First => "first",
            Balance::Random => "random",
            Balance::Hash { .. } => "hash",
        }),
        ("hash_by", Balance::Hash { by, .. }, _) => text(&by.to_string()),
        ("hash_balance_factor", Balance::Hash { factor, .. }, _) => plain(factor),
        ("limit_start", ..) => servers.adaptive.map_or(Foreign, |limit| plain(limit.start)),
        ("limit_max", ..) => servers.adaptive.map_or(Foreign, |limit| plain(limit.max)),
        ("check", _, check) => text(match check {
            Check::Off => "off",
            Check::Tcp => "tcp",
            Check::FastCgi(_) => "fastcgi",
            Check::Http { .. } => "http",
        }),
        ("check_path", _, Check::FastCgi(path) | Check::Http { path, .. }) => text(path),
        ("check_status", _, Check::Http { statuses, .. }) => text(&statuses.to_string()),
        ("protocol", ..) => text(match servers.http {
            None => "fastcgi",
            Some(_) => "http",
        }),
        ("host" | "forwarded", ..) => match &servers.http {
            None => Foreign,
            Some(http) if row.name == "host" => option(http.host.as_deref().map(quote)),
            Some(http) => option(http.forwarded.show(row)),
        },
        ("check_interval" | "check_timeout" | "rise" | "fall", _, Check::Off) => Foreign,
        ("resolve_min" | "resolve_max", ..) if !servers.has_names() => Foreign,
        _ => field(servers, row),
    }
}

fn php(php: &Php, row: &Row) -> Printed {
    let settings = |admin: bool, flag: bool| {
        let chosen = php
            .settings
            .iter()
            .filter(|setting| (setting.admin, setting.flag) == (admin, flag));
        let pairs: Vec<_> = chosen
            .map(|setting| (setting.name.clone(), &setting.value))
            .collect();
        option(table(&pairs, |value| quote(value)))
    };
    match row.name {
        "php_value" => settings(false, false),
        "php_flag" => settings(false, true),
        "php_admin_value" => settings(true, false),
        "php_admin_flag" => settings(true, true),
        "master_idle_timeout" if !php.workers.pm.may_be_cold() => Foreign,
        "opcache_memory" if php.opcache_memory == 0 => Absent,
        "worker_requests" | "worker_boot_timeout" | "worker_zygote" if php.worker.is_none() => {
            Foreign
        }
        "max_memory" if php.workers.max_memory == 0 => Absent,
        "max_memory" => field(&php.workers, row),
        _ => match field(php, row) {
            Foreign => workers(&php.workers, row),
            printed => printed,
        },
    }
}

fn workers(workers: &Workers, row: &Row) -> Printed {
    match (row.name, workers.pm) {
        ("pm", Pm::Static) => text("static"),
        ("pm", Pm::Dynamic { .. }) => text("dynamic"),
        ("pm", Pm::OnDemand) => text("ondemand"),
        ("pm", Pm::Auto { .. }) => text("auto"),
        ("start_servers", Pm::Dynamic { start, .. } | Pm::Auto { start, .. }) => plain(start),
        ("min_spare_servers", Pm::Dynamic { min_spare, .. }) => plain(min_spare),
        ("max_spare_servers", Pm::Dynamic { max_spare, .. }) => plain(max_spare),
        ("worker_memory", Pm::Static | Pm::Dynamic { .. } | Pm::OnDemand) => Foreign,
        ("process_idle_timeout", Pm::Static | Pm::Dynamic { .. }) => Foreign,
        ("crash_window" | "crash_pause", _) if workers.crash_limit == 0 => Foreign,
        // Only PHP's workers have it.
        ("max_memory", _) => Foreign,
        _ => field(workers, row),
    }
}

fn program(config: &Config, program: &Program, row: &Row) -> Printed {
    let has_schedule = program.schedule.is_some();
    match (row.name, program.field(row.name)) {
        ("command", _) => Value(quoted_list(&program.argv)),
        ("pool", _) => option(program.pool.map(|pool| quote(&config.pools[pool.0].name))),
        ("instances" | "restart", _) if has_schedule => Foreign,
        ("timezone" | "overlap", _) if !has_schedule => Foreign,
        (_, Some(filled)) => option(filled.show(row)),
        (_, None) => field(&program.process, row),
    }
}

fn queue(queue: &Queue, row: &Row) -> Printed {
    match row.name {
        "minconn" => option((queue.fullconn > 0).then(|| queue.minconn.to_string())),
        "fullconn" => option((queue.fullconn > 0).then(|| queue.fullconn.to_string())),
        _ => field(queue, row),
    }
}

fn log(log: &Log, row: &Row) -> Printed {
    match row.name {
        "egress" if log.egress == log.access => Absent,
        "syslog_facility" => {
            let known = FACILITIES
                .iter()
                .find(|(_, number)| *number == log.syslog_facility);
            option(known.map(|(name, _)| quote(name)))
        }
        _ => field(log, row),
    }
}

fn option(value: Option<String>) -> Printed {
    value.map_or(Absent, Value)
}

fn text(text: &str) -> Printed {
    Value(quote(text))
}

fn plain(value: impl Display) -> Printed {
    Value(value.to_string())
}
