//! Tables → [`Config`]: resolves names to indices, fills in defaults, and reports settings that do not fit together.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use crate::{
    cache,
    document::{Document, Named, PoolTables, SiteTables},
    egress,
    entries::Entries,
    environment::Environment,
    listeners::{Spoken, listeners, spoken},
    model::{
        Action, Command, Config, HostPattern, Listener, Log, LogFormat, LogTarget, PathPattern,
        Php, PhpSetting, Pm, Pool, PoolId, Protocol, Route, Runtime, SerializeBy, Server, Settings,
        Site, Tls, Workers,
    },
    programs::programs,
    queue::{NO_REPORT, queue},
    rows::{Row, log::FACILITIES},
    scalar, servers,
    settings::{self, Overlay, PoolNames},
    sink::Sink,
    texts::show_size,
    tls,
    value::Value,
};

/// Builds the configuration from a document. The caller may use the result only if `sink` has no errors.
pub(crate) fn config(document: &Document, env: &Environment, sink: &mut Sink) -> Config {
    let pool_names = PoolNames::of(&document.pools);
    let mut listeners = listeners(&document.listeners, &pool_names, sink);
    let mut sites = sites(&document.sites, &document.listeners, &pool_names, sink);
    let certificates = tls::certificates(document, &mut listeners, &mut sites, sink);
    let pools = document.pools.iter();
    let pools: Vec<Pool> = pools.map(|tables| pool(tables, env, sink)).collect();
    let server = server(&document.server, env, sink);
    for name in server.ready_pools.iter().flatten() {
        let key = ("ready_pools", &document.server);
        settings::find(name, key, &pool_names, sink);
    }
    let mut config = Config {
        server,
        tls: Tls {
            acme: document.acme.fields(None),
            ..document.tls.fields(None)
        },
        certificates,
        listeners,
        sites,
        programs: programs(&document.programs, &pools, &pool_names, sink),
        pools,
        cache: None,
        egress: egress::egress(document, sink),
        log: log(&document.log, sink),
    };
    let store = cache::cache(&document.cache, sink);
    config.cache = cache::is_used(&config).then_some(store);
    if !document.log.is_written("egress") {
        let log = &mut config.log;
        log.egress = match config.egress {
            Some(_) => calls_beside(&log.access, &log.format),
            None => log.access.clone(),
        };
    }
    check_use(document, &config, sink);
    config
}

pub(crate) fn server(entries: &Entries, env: &Environment, sink: &mut Sink) -> Server {
    const PER_ADDRESS: &str = "max_connections_per_address";
    let mut server: Server = entries.fields(None);
    if !entries.is_written("max_connections") {
        server.max_connections = env.default_max_connections();
    }
    let max_connections = server.max_connections;
    if !entries.is_written(PER_ADDRESS) {
        server.max_connections_per_address = Environment::default_max_per_address(max_connections);
    }
    if server.server_software.is_empty() {
        server.server_software = default_server_software();
    }
    // A connection may use a file or a temporary file in addition to its socket.
    let needed = (max_connections as u64).saturating_mul(2);
    if entries.entry("max_connections").is_some() && needed > env.open_files {
        let message = format!(
            "{max_connections} connections may need {needed} open files, but only {} are allowed",
            env.open_files
        );
        let hint = "raise the limit (LimitNOFILE in a systemd unit, ulimit -Hn elsewhere), or lower this number";
        sink.warning(entries.span("max_connections"), message, hint);
    }
    if entries.is_written(PER_ADDRESS) && server.max_connections_per_address > max_connections {
        let message =
            format!("more than `max_connections` ({max_connections}), so it has no effect");
        sink.warning(entries.span(PER_ADDRESS), message, "");
    }
    server
}

/// Default of `SERVER_SOFTWARE`. It names nginx because applications look for servers that they know.
pub(crate) fn default_server_software() -> String {
    concat!("weir/", env!("CARGO_PKG_VERSION"), " (nginx compatible)").to_owned()
}

fn sites(
    tables: &[SiteTables],
    listeners: &[Named],
    pools: &PoolNames<'_>,
    sink: &mut Sink,
) -> Vec<Site> {
    let mut owners = HostOwners {
        listeners,
        first: HashMap::new(),
    };
    let mut sites = Vec::with_capacity(tables.len());
    for SiteTables { site, routes } in tables {
        let Named { name, entries } = site;
        let listen = site_listeners(entries, listeners, sink);
        let hosts: Vec<HostPattern> = entries.get("hosts");
        if entries.entry("hosts").is_some() && hosts.is_empty() {
            let message = "this list is empty, so this is the default site";
            sink.warning(
                entries.span("hosts"),
                message,
                "remove `hosts`: a site without it is the default site",
            );
        }
        owners.check(site, &hosts, &listen, sink);
        let overlay = settings::read(entries, None, pools, sink);
        if overlay.settings.root.is_none() && routes.is_empty() {
            let message = format!(
                "[site.{name}] has neither `root` nor routes, so it answers everything with 404"
            );
            sink.warning_of_whole(entries.header.clone(), message, "");
        }
        sites.push(Site {
            name: name.clone(),
            hosts,
            // The certificates are resolved when all sites are known.
            certificate: None,
            is_auto: false,
            https_redirect: None,
            client_auth: None,
            listen,
            routes: self::routes(routes, &overlay, pools, sink),
            settings: overlay.settings,
        });
    }
    sites
}

fn site_listeners(entries: &Entries, listeners: &[Named], sink: &mut Sink) -> Vec<usize> {
    let Some(entry) = entries.entry("listen") else {
        return (0..listeners.len())
            .filter(|index| spoken(&listeners[*index].entries) == Spoken::Http)
            .collect();
    };
    let names = entries.texts("listen").unwrap_or_default();
    if names.is_empty() {
        let message = "this list is empty, so no client could reach this site";
        sink.error(
            entry.span.clone(),
            message,
            "remove `listen` to use all listeners",
        );
    }
    let mut indices = Vec::with_capacity(names.len());
    for (name, span) in names.iter().zip(&entry.parts) {
        match listeners.iter().position(|listener| listener.name == *name) {
            Some(index) if indices.contains(&index) => {
                sink.error(span.clone(), format!("{name:?} is in the list twice"), "");
            }
            Some(index) if spoken(&listeners[index].entries) != Spoken::Http => {
                let message = match spoken(&listeners[index].entries) {
                    Spoken::AgentCheck => {
                        format!(
                            "[listen.{name}] reports the state of a pool and cannot serve a site"
                        )
                    }
                    _ => format!(
                        "[listen.{name}] is a FastCGI listener: its `pool` answers there, not a site"
                    ),
                };
                sink.error(span.clone(), message, "name an HTTP listener");
            }
            Some(index) => indices.push(index),
            None => {
                let known = listeners.iter().map(|listener| listener.name.as_str());
                let hint = match name.contains(':') {
                    true => Some("`listen` takes the NAMEs of [listen.NAME] tables; the addresses belong in those tables".into()),
                    false => scalar::suggestion(name, known),
                };
                sink.error_of_whole(span.clone(), format!("unknown listener {name:?}"), hint);
            }
        }
    }
    indices
}

/// The first site of each host on each listener; without a host: the default site.
struct HostOwners<'t> {
    listeners: &'t [Named],
    first: HashMap<(usize, Option<HostPattern>), &'t str>,
}

impl<'t> HostOwners<'t> {
    /// Checks that each host belongs to only one site per listener, and that each listener has only one default site.
    fn check(&mut self, site: &'t Named, hosts: &[HostPattern], listen: &[usize], sink: &mut Sink) {
        let Named { name, entries } = site;
        let wanted: Vec<(Option<&HostPattern>, _)> = match entries.entry("hosts") {
            Some(entry) if !hosts.is_empty() => hosts
                .iter()
                .map(Some)
                .zip(entry.parts.iter().cloned())
                .collect(),
            Some(entry) => vec![(None, entry.span.clone())],
            None if entries.is_written("hosts") => Vec::new(),
            None => vec![(None, entries.header.clone())],
        };
        for (host, span) in wanted {
            for index in listen {
                let place = (*index, host.cloned());
                let Some(first) = self.first.get(&place) else {
                    self.first.insert(place, name);
                    continue;
                };
                let listener = &self.listeners[*index].name;
                let (message, hint) = match host {
                    Some(_) if first == name => ("this host is in the list twice".to_owned(), ""),
                    Some(_) => (
                        format!("[site.{first}] has this host already on [listen.{listener}]"),
                        "",
                    ),
                    None => (
                        format!(
                            "[site.{first}] is the default site of [listen.{listener}] already"
                        ),
                        "give one of them `hosts`, or another `listen`",
                    ),
                };
                sink.error_of_whole(span.clone(), message, hint);
                break;
            }
        }
    }
}

fn routes(
    tables: &[Entries],
    site: &Overlay,
    pools: &PoolNames<'_>,
    sink: &mut Sink,
) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::with_capacity(tables.len());
    let mut takes_all = false;
    for entries in tables {
        if takes_all {
            let message = "this route is never used: the route before it matches every request";
            sink.warning_of_whole(
                entries.header.clone(),
                message,
                "the first matching route is used: move this route up",
            );
        }
        let path = match entries.value("path") {
            Some(Value::PathPattern(path)) => path,
            _ => PathPattern::Glob("*".into()),
        };
        let methods = entries.texts("methods").unwrap_or_default();
        let any_path = matches!(&path, PathPattern::Glob(glob) if glob == "*" || glob == "/*");
        takes_all = any_path && methods.is_empty() && !entries.is_written("methods");
        behind_a_script(entries, &path, &routes, sink);
        routes.push(Route {
            path,
            methods,
            action: action(entries, sink),
            rewrite: entries.text("rewrite"),
            settings: settings::read(entries, Some(site), pools, sink).settings,
        });
    }
    routes
}

/// Reports a route for path-info of a script that a route for the script itself makes unreachable.
fn behind_a_script(entries: &Entries, path: &PathPattern, before: &[Route], sink: &mut Sink) {
    let PathPattern::Glob(path) = path else {
        return;
    };
    let takes = |route: &&Route| {
        let PathPattern::Glob(script) = &route.path else {
            return false;
        };
        route.methods.is_empty()
            && !script.contains(['*', '?'])
            && path
                .strip_prefix(script.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
            && scalar::regex(&route.settings.script).is_ok_and(|regex| regex.is_match(script))
    };
    if let Some(PathPattern::Glob(script)) = before.iter().find(takes).map(|route| &route.path)
        && !entries.bool("deny")
    {
        let message = format!(
            "this route is never used: the route for {script} before it also matches paths that continue after the script's name"
        );
        sink.warning_of_whole(
            entries.header.clone(),
            message,
            "the first matching route is used: move this route up",
        );
    }
}

fn action(entries: &Entries, sink: &mut Sink) -> Option<Action> {
    let redirect = match entries.value("redirect") {
        Some(Value::Template(to)) => Some(Action::Redirect {
            to,
            status: entries.number("status") as u16,
        }),
        _ => None,
    };
    if let Some(status) = entries.entry("status")
        && !entries.is_written("redirect")
    {
        let message = "`status` needs `redirect`, which is missing";
        let hint = "for an answer with another status: reply = { status = 404, body = \"…\" }";
        sink.error(status.key.clone(), message, hint);
    }
    let reply = match entries.value("reply") {
        Some(Value::Reply(reply)) => Some(reply),
        _ => None,
    };
    let deny = entries.bool("deny").then_some(Action::Deny);
    let actions: Vec<Action> = [redirect, deny, reply].into_iter().flatten().collect();
    settings::check_groups(entries, "rewrite", sink);
    let others = ["rewrite", "alias"]
        .into_iter()
        .filter(|key| entries.entry(key).is_some())
        .count();
    if actions.len() + others > 1 {
        let message =
            "a route can have only one of `redirect`, `deny`, `reply`, `rewrite` and `alias`";
        sink.error(entries.header.clone(), message, "write separate routes");
    }
    actions.into_iter().next()
}

fn pool(tables: &PoolTables, env: &Environment, sink: &mut Sink) -> Pool {
    let Named { name, entries } = &tables.pool;
    let runtime = runtime(name, entries, &tables.queue, env, sink);
    let own = !matches!(runtime, Runtime::Servers(_));
    let is_http = matches!(&runtime, Runtime::Servers(servers) if servers.http.is_some());
    let php = matches!(runtime, Runtime::Php(_));
    let keep_conn = match entries.is_written("keep_conn") {
        true => entries.bool("keep_conn"),
        false => own || is_http,
    };
    let found_out = match &runtime {
        Runtime::Servers(servers) => servers.adaptive.is_some(),
        Runtime::Php(_) | Runtime::Command(_) => false,
    };
    // A kept connection holds a worker of a FastCGI server, but nothing of an HTTP server.
    let keep_conn = keep_conn && (!found_out || is_http);
    if let Some(entry) = entries.entry("max_reqs")
        && !keep_conn
    {
        let message =
            "`max_reqs` has no effect: without `keep_conn`, each connection serves one request";
        sink.warning(entry.key.clone(), message, "");
    }
    let mut pool = Pool {
        name: name.clone(),
        keep_conn,
        queue: queue(&tables.queue, &runtime, sink),
        runtime,
        ..entries.fields(None)
    };
    if php && entries.texts("limit_extensions").is_none() {
        pool.limit_extensions = vec![".php".to_owned()];
    }
    pool
}

fn runtime(
    name: &str,
    entries: &Entries,
    queue: &Entries,
    env: &Environment,
    sink: &mut Sink,
) -> Runtime {
    let chosen = entries.text("runtime");
    let other = |row: &&Row| {
        chosen
            .as_deref()
            .is_some_and(|chosen| !row.applies_to(chosen))
    };
    for row in entries.rows().filter(other) {
        if let Some(entry) = entries.entry(row.name) {
            let chosen = chosen.as_deref().unwrap_or_default();
            let message = format!("`{}` has no effect with `runtime = \"{chosen}\"`", row.name);
            let hint = match (row.name, row.only) {
                ("servers", _) => "write runtime = \"servers\", or remove this key",
                ("command", _) => "write runtime = \"command\", or remove this key",
                ("keep_conn" | "max_reqs", _) => "leave it out",
                (_, ["servers"]) => "remove it: it is only for servers",
                (_, ["php"]) if chosen == "command" => {
                    "write runtime = \"php\", or set this with the program's arguments or `env`"
                }
                _ => "remove it: this is configured where these workers run",
            };
            sink.error(entry.key.clone(), message, hint);
        }
    }
    if chosen.as_deref() == Some("servers") {
        return Runtime::Servers(servers::servers(name, entries, queue, sink));
    }
    if chosen.as_deref() == Some("php") {
        return Runtime::Php(Box::new(php(entries, env, sink)));
    }
    let argv = entries.texts("command").unwrap_or_default();
    if chosen.is_some() && !entries.is_written("command") {
        let message = format!("`command` is missing in [pool.{name}]");
        let hint = "add command = [\"/usr/bin/php-cgi\"], or any other FastCGI program";
        sink.error_of_whole(entries.header.clone(), message, hint);
    }
    Runtime::Command(Command {
        argv,
        workers: workers(entries, "static", env, sink),
    })
}

fn php(entries: &Entries, env: &Environment, sink: &mut Sink) -> Php {
    let mut php: Php = entries.fields(None);
    let terminate: Duration = entries.get("request_terminate_timeout");
    if !entries.is_written("request_slowlog_timeout") && !terminate.is_zero() {
        // Later there would be no stack.
        php.slowlog_timeout = php.slowlog_timeout.min(terminate / 2);
    }
    if let (Some(version), Some(entry)) = (&php.version, entries.entry("php")) {
        let mut parts = version.split('.');
        let is_number = |part: Option<&str>| {
            part.is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
        };
        let is_version =
            is_number(parts.next()) && is_number(parts.next()) && parts.next().is_none();
        if !is_version && !version.starts_with('/') {
            let message = format!("{version:?} is not a PHP version");
            sink.error(
                entry.span.clone(),
                message,
                "write the major and minor version, php = \"8.2\", or the path of a PHP program: \
                 php = \"/opt/php/sbin/php-fpm\"",
            );
        }
    }
    let setting = |key: &'static str| {
        let pairs = entries.pairs(key).into_iter();
        pairs.map(move |(name, value)| PhpSetting {
            name,
            value,
            admin: key.starts_with("php_admin"),
            flag: key.ends_with("flag"),
        })
    };
    let settings = ["php_value", "php_flag", "php_admin_value", "php_admin_flag"];
    for key in ["php_flag", "php_admin_flag"] {
        for (name, value) in entries.pairs(key) {
            if !SWITCHES.contains(&value.to_ascii_lowercase().as_str()) {
                let message = format!("`{name}` must be on or off, not {value:?}");
                sink.error(entries.span(key), message, "write \"on\" or \"off\"");
            }
        }
    }
    let mut workers = workers(entries, "auto", env, sink);
    match &php.worker {
        Some(_) => {
            // The gateway counts for both, and a process ends at whichever comes first.
            let limits = [workers.max_requests, php.worker_requests].into_iter();
            workers.max_requests = limits.filter(|limit| *limit > 0).min().unwrap_or(0);
        }
        None => {
            for key in ["worker_requests", "worker_boot_timeout", "worker_zygote"] {
                if let Some(entry) = entries.entry(key) {
                    let message = format!("`{key}` has no effect without `worker`");
                    sink.warning(entry.key.clone(), message, "");
                }
            }
        }
    }
    Php {
        settings: settings.into_iter().flat_map(setting).collect(),
        workers,
        ..php
    }
}

fn workers(entries: &Entries, usual: &str, env: &Environment, sink: &mut Sink) -> Workers {
    no_syslog(entries, "output_log", sink);
    let pm = entries.text("pm").unwrap_or_else(|| usual.to_owned());
    let max_children = match entries.is_written("max_children") {
        true if entries.entry("max_children").is_some() => entries.count("max_children"),
        // The value is wrong or misspelt, and that was reported. Do not compare the numbers beside it with a guess.
        true => MOST_WORKERS,
        false if pm == "auto" => env.most_workers(),
        false => env.default_workers(),
    };
    Workers {
        pm: self::pm(&pm, max_children, entries, sink),
        max_children,
        ..entries.fields(None)
    }
}

/// After this time without a worker a pool ends its PHP.
const REST: &str = "master_idle_timeout";

/// The values that PHP accepts for a switch.
const SWITCHES: [&str; 10] = [
    "1", "0", "on", "off", "yes", "no", "true", "false", "none", "",
];

/// Maximum number of workers of a pool.
const MOST_WORKERS: usize = 100_000;

/// Checks PHP-FPM's rules for spare servers (php-fpm.conf, "Process Manager").
fn pm(pm: &str, max_children: usize, entries: &Entries, sink: &mut Sink) -> Pm {
    let used: &[&str] = match pm {
        "dynamic" => &["start_servers", "min_spare_servers", "max_spare_servers"],
        "auto" => &["start_servers", "worker_memory"],
        _ => &[],
    };
    let of_some = [
        "start_servers",
        "min_spare_servers",
        "max_spare_servers",
        "worker_memory",
    ];
    for key in of_some.iter().filter(|key| !used.contains(key)) {
        if let Some(entry) = entries.entry(key) {
            let message = format!("`{key}` has no effect with `pm = \"{pm}\"`");
            sink.warning(entry.key.clone(), message, "");
        }
    }
    let count = |key: &str| entries.entry(key).map(|_| entries.count(key));
    // A value that cannot be read was already reported.
    let max_children = match max_children {
        0 => usize::MAX,
        known => known,
    };
    match pm {
        "dynamic" => {
            let min_spare = entries.count("min_spare_servers");
            let usual = (max_children / 4).max(min_spare);
            let max_spare = count("max_spare_servers").unwrap_or(usual);
            let between = min_spare + max_spare.saturating_sub(min_spare) / 2;
            let start = count("start_servers").unwrap_or(between);
            let mut wrong = |key: &str, message: String| {
                sink.error(entries.span(key), message, "");
            };
            if min_spare > max_children {
                wrong(
                    "min_spare_servers",
                    format!("more than `max_children` ({max_children})"),
                );
            } else if max_spare > max_children {
                wrong(
                    "max_spare_servers",
                    format!("more than `max_children` ({max_children})"),
                );
            } else if max_spare < min_spare {
                wrong(
                    "max_spare_servers",
                    format!("fewer than `min_spare_servers` ({min_spare})"),
                );
            } else if start < min_spare || start > max_spare {
                let message = format!(
                    "not between `min_spare_servers` ({min_spare}) and `max_spare_servers` ({max_spare})"
                );
                wrong("start_servers", message);
            }
            Pm::Dynamic {
                start,
                min_spare,
                max_spare,
            }
        }
        "ondemand" => Pm::OnDemand,
        "auto" => {
            let start = count("start_servers").unwrap_or(1);
            if start > max_children {
                let message = format!("more than `max_children` ({max_children})");
                sink.error(entries.span("start_servers"), message, "");
            }
            let rests = entries.is_written(REST) && !entries.duration(REST).is_zero();
            Pm::Auto { start, rests }
        }
        _ => Pm::Static,
    }
}

fn log(entries: &Entries, sink: &mut Sink) -> Log {
    no_syslog(entries, "access", sink);
    no_syslog(entries, "egress", sink);
    let mut log: Log = entries.fields(None);
    log.syslog_facility = entries
        .text("syslog_facility")
        .and_then(|wanted| FACILITIES.iter().find(|(name, _)| *name == wanted))
        .map_or(DAEMON, |(_, number)| *number);
    log
}

/// The log of calls if none is given: programs that read the access log cannot read lines of another form between its own.
fn calls_beside(access: &LogTarget, format: &LogFormat) -> LogTarget {
    match (access, format) {
        (_, LogFormat::Json) | (LogTarget::Off, _) => access.clone(),
        // Below /dev are the process's own streams.
        (LogTarget::File(path), _) if !path.starts_with("/dev") => {
            LogTarget::File(path.with_file_name("egress.log"))
        }
        _ => LogTarget::Stderr,
    }
}

/// Reports `syslog` for a log other than the error log: only errors are few enough for the system's log.
pub(crate) fn no_syslog(entries: &Entries, key: &str, sink: &mut Sink) {
    if entries.is_written(key) && entries.get::<LogTarget>(key) == LogTarget::Syslog {
        let message = format!("`{key}` cannot be written to syslog");
        let hint = "write a file; only `error` of [log] can use syslog";
        sink.error(entries.span(key), message, hint);
    }
}

/// syslog(3)'s LOG_DAEMON.
const DAEMON: u8 = 3;

/// Sites, routes and listeners with `serialize_by = "auto"` whose pool does not report sessions.
fn check_sessions(document: &Document, config: &Config, sink: &mut Sink) {
    let mut check = |entries: &Entries, by: &SerializeBy, pool: Option<PoolId>| {
        let pool = pool.and_then(|pool| config.pools.get(pool.0));
        let is_auto = *by == SerializeBy::Auto && entries.is_written("serialize_by");
        if is_auto && pool.is_some_and(|pool| pool.php().is_none()) {
            let hint = "write \"cookie:NAME\" with the name of the session's cookie";
            sink.warning(entries.span("serialize_by"), NO_REPORT, hint);
        }
    };
    let mut of = |entries: &Entries, settings: &Settings| {
        check(entries, &settings.policy.serialize_by, settings.pool);
    };
    for (tables, site) in document.sites.iter().zip(&config.sites) {
        of(&tables.site.entries, &site.settings);
        for (entries, route) in tables.routes.iter().zip(&site.routes) {
            of(entries, &route.settings);
        }
    }
    for (table, listener) in document.listeners.iter().zip(&config.listeners) {
        if let Protocol::FastCgi(fastcgi) = &listener.protocol {
            let by = &fastcgi.policy.serialize_by;
            check(&table.entries, by, Some(fastcgi.pool));
        }
    }
}

/// The pools of sites and routes.
fn used_pools(config: &Config) -> HashSet<usize> {
    let settings = config.sites.iter().flat_map(|site| {
        let routes = site.routes.iter().map(|route| &route.settings);
        std::iter::once(&site.settings).chain(routes)
    });
    let pools = settings.filter_map(|settings| settings.pool);
    pools.map(|pool| pool.0).collect()
}

/// Reports sections that are not used, and sections that are missing.
fn check_use(document: &Document, config: &Config, sink: &mut Sink) {
    let only_egress = config.egress.is_some() && !document.has_listeners && !document.has_sites;
    if !document.has_listeners && !only_egress {
        let hint = "add [listen.web] with address = \"0.0.0.0:80\"";
        sink.error_of_whole(
            0..0,
            "no listener is configured, so nothing would be served",
            hint,
        );
    }
    let has_http = config
        .listeners
        .iter()
        .any(|listener| listener.protocol == Protocol::Http);
    if document.has_sites && !config.listeners.is_empty() && !has_http {
        let hint = "add [listen.web] with address = \"0.0.0.0:80\"";
        sink.error_of_whole(0..0, "there are sites, but no HTTP listener", hint);
    }
    if !document.has_sites && !only_egress && (has_http || !document.has_listeners) {
        let hint = "add [site.main] with root = \"/srv/www\"";
        sink.error_of_whole(
            0..0,
            "no site is configured, so nothing would be served",
            hint,
        );
    }
    for (index, Named { name, entries }) in document.listeners.iter().enumerate() {
        if config.listeners[index].proxy_protocol && config.server.trusted.is_empty() {
            let message =
                "with `proxy_protocol`, only `trusted` of [server] may connect, which is missing";
            let hint = "add the addresses of the proxies: trusted = [\"10.0.0.0/8\"], or \"unix:\" for a unix socket";
            sink.error(entries.span("proxy_protocol"), message, hint);
        }
        let http = config.listeners[index].protocol == Protocol::Http;
        if http && !config.sites.iter().any(|site| site.listen.contains(&index)) {
            let message = format!("no site answers on [listen.{name}]");
            sink.warning_of_whole(entries.header.clone(), message, "");
        }
    }
    for (index, Named { entries, .. }) in document.listeners.iter().enumerate() {
        if let Protocol::FastCgi(front) = &config.listeners[index].protocol
            && front.status_only
            && let Some(pool) = config.pools.get(front.pool.0)
            && pool.status_path.is_none()
            && pool.ping_path.is_none()
        {
            let message = format!(
                "this listener would answer nothing: [pool.{}] has neither `status_path` nor `ping_path`",
                pool.name
            );
            sink.error(
                entries.span("status_only"),
                message,
                "add status_path = \"/status\" to the pool",
            );
        }
    }
    let used = used_pools(config);
    for (index, tables) in document.pools.iter().enumerate() {
        let used = used.contains(&index);
        let listens = |listener: &Listener| match &listener.protocol {
            Protocol::FastCgi(fastcgi) => fastcgi.pool.0 == index,
            Protocol::Http | Protocol::AgentCheck(_) => false,
        };
        if !used && !config.listeners.iter().any(listens) {
            let message = format!("no site uses [pool.{}]", tables.pool.name);
            sink.warning_of_whole(tables.pool.entries.header.clone(), message, "");
        }
        let watches = |pool: &Pool| pool.php().is_some_and(|php| php.watch_root);
        if !used && config.pools.get(index).is_some_and(watches) {
            let message =
                "`watch_root` has no effect: no site uses this pool, so there is no root to watch";
            let hint = "after a deployment, run: weir pool NAME restart";
            sink.warning(tables.pool.entries.span("watch_root"), message, hint);
        }
    }
    check_sessions(document, config, sink);
    let sites = document.sites.iter().map(|tables| &tables.site.entries);
    cache::check_use(&document.cache, sites, config, sink);
    let spool = config.server.max_spool;
    let largest = config
        .sites
        .iter()
        .map(|site| site.settings.max_body)
        .max()
        .unwrap_or(0);
    if largest > spool {
        let message = format!(
            "`max_body` ({}) is more than `max_spool` ({}), the limit for all temporary files together",
            show_size(largest),
            show_size(spool)
        );
        let place = document.server.span("max_spool");
        sink.warning(
            place,
            message,
            "raise max_spool in [server], or lower max_body",
        );
    }
}
