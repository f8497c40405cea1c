//! Tables → [`Config`]: names become indices, defaults are filled in, and what does not fit together is said.

use std::collections::HashMap;

use crate::{
    document::{Document, Named, PoolTables, SiteTables},
    entries::Entries,
    environment::Environment,
    model::{
        Action, Address, Command, Config, HostPattern, Level, Listener, Log, PathPattern, Pool,
        Queue, Route, Runtime, Server, Site,
    },
    scalar,
    settings::{self, Overlay},
    sink::Sink,
    texts::show_size,
    value::Value,
};

/// Puts a document together. What it returns may be used only if `sink` has no errors.
pub(crate) fn config(document: &Document, env: &Environment, sink: &mut Sink) -> Config {
    let pool_names: Vec<String> = document
        .pools
        .iter()
        .map(|tables| tables.pool.name.clone())
        .collect();
    let listeners = listeners(&document.listeners, sink);
    let sites = sites(&document.sites, &document.listeners, &pool_names, sink);
    let pools = document
        .pools
        .iter()
        .map(|tables| pool(tables, env, sink))
        .collect();
    let config = Config {
        server: server(&document.server, env, sink),
        listeners,
        sites,
        pools,
        log: log(&document.log),
    };
    check_use(document, &config, sink);
    config
}

fn server(entries: &Entries, env: &Environment, sink: &mut Sink) -> Server {
    let max_connections = match entries.is_written("max_connections") {
        true => entries.count("max_connections"),
        false => env.default_max_connections(),
    };
    let server = Server {
        user: entries.text("user"),
        group: entries.text("group"),
        chroot: entries.path("chroot"),
        threads: entries.count("threads"),
        pid_file: entries.path("pid_file"),
        shutdown_timeout: entries.duration("shutdown_timeout"),
        max_connections,
        max_connections_per_address: entries.count("max_connections_per_address"),
        spool_dir: entries.path("spool_dir").unwrap_or_default(),
        max_spool: entries.number("max_spool"),
    };
    // A connection may have a file or a temporary file beside its socket.
    let needed = (max_connections as u64).saturating_mul(2);
    if entries.entry("max_connections").is_some() && needed > env.open_files {
        let message = format!(
            "{max_connections} connections may need {needed} open files, and {} are allowed",
            env.open_files
        );
        let hint =
            "raise the limit (LimitNOFILE in a systemd unit, ulimit -Hn elsewhere), or write fewer";
        sink.warning(entries.span("max_connections"), message, hint);
    }
    if server.max_connections_per_address > max_connections {
        let message = format!(
            "this is more than `max_connections` ({max_connections}), so it limits nothing"
        );
        sink.warning(entries.span("max_connections_per_address"), message, "");
    }
    server
}

fn listeners(tables: &[Named], sink: &mut Sink) -> Vec<Listener> {
    let mut seen: HashMap<Address, &str> = HashMap::new();
    let mut listeners = Vec::with_capacity(tables.len());
    for Named { name, entries } in tables {
        let address = match entries.value("address") {
            Some(Value::Address(address)) => address,
            _ => Address::Unix("/".into()),
        };
        // Port 0 is a free port of the kernel's choice: never the same twice.
        let fixed = !matches!(&address, Address::Tcp(socket) if socket.port() == 0);
        if entries.entry("address").is_some() && fixed {
            if let Some(first) = seen.get(&address) {
                let message = format!("[listen.{first}] has this address already");
                let hint = "one listener can serve many sites: name it in their `listen`";
                sink.error(entries.span("address"), message, hint);
            }
            seen.entry(address.clone()).or_insert(name);
        }
        if matches!(address, Address::Tcp(_)) {
            for key in ["owner", "group", "mode"] {
                if let Some(entry) = entries.entry(key) {
                    let message =
                        format!("`{key}` has no effect: only unix sockets have permissions");
                    sink.warning(entry.key.clone(), message, "");
                }
            }
        }
        listeners.push(Listener {
            name: name.clone(),
            address,
            backlog: entries.number("backlog") as u32,
            owner: entries.text("owner"),
            group: entries.text("group"),
            mode: entries.number("mode") as u32,
            max_head: entries.count("max_head"),
            max_headers: entries.count("max_headers"),
            header_timeout: entries.duration("header_timeout"),
            body_timeout: entries.duration("body_timeout"),
            idle_timeout: entries.duration("idle_timeout"),
            send_timeout: entries.duration("send_timeout"),
            max_requests_per_connection: entries.number("max_requests_per_connection"),
        });
    }
    listeners
}

fn sites(
    tables: &[SiteTables],
    listeners: &[Named],
    pools: &[String],
    sink: &mut Sink,
) -> Vec<Site> {
    let mut owners: HashMap<(usize, Option<HostPattern>), &str> = HashMap::new();
    let mut sites = Vec::with_capacity(tables.len());
    for SiteTables { site, routes } in tables {
        let Named { name, entries } = site;
        let listen = site_listeners(entries, listeners, sink);
        let hosts = entries.hosts("hosts");
        if entries.entry("hosts").is_some() && hosts.is_empty() {
            let message = "an empty list: this is the default site";
            sink.warning(
                entries.span("hosts"),
                message,
                "leave `hosts` out to say so",
            );
        }
        check_hosts(name, entries, &hosts, &listen, listeners, &mut owners, sink);
        let overlay = settings::read(entries, None, pools, sink);
        if overlay.settings.root.is_none() && routes.is_empty() {
            let message = format!("[site.{name}] has neither `root` nor routes: 404 to everything");
            sink.warning_of_whole(entries.header.clone(), message, "");
        }
        sites.push(Site {
            name: name.clone(),
            hosts,
            listen,
            routes: self::routes(routes, &overlay, pools, sink),
            settings: overlay.settings,
        });
    }
    sites
}

fn site_listeners(entries: &Entries, listeners: &[Named], sink: &mut Sink) -> Vec<usize> {
    let Some(entry) = entries.entry("listen") else {
        return (0..listeners.len()).collect();
    };
    let names = entries.texts("listen").unwrap_or_default();
    if names.is_empty() {
        let message = "an empty list: nobody could reach this site";
        sink.error(
            entry.span.clone(),
            message,
            "leave `listen` out for all listeners",
        );
    }
    let mut indices = Vec::with_capacity(names.len());
    for (name, span) in names.iter().zip(&entry.parts) {
        match listeners.iter().position(|listener| listener.name == *name) {
            Some(index) if indices.contains(&index) => {
                sink.error(span.clone(), format!("{name:?} is listed twice"), "");
            }
            Some(index) => indices.push(index),
            None => {
                let known = listeners.iter().map(|listener| listener.name.as_str());
                let hint = match name.contains(':') {
                    true => Some("`listen` takes the NAMEs of [listen.NAME] tables, which have the addresses".into()),
                    false => scalar::suggestion(name, known),
                };
                sink.error_of_whole(span.clone(), format!("there is no listener {name:?}"), hint);
            }
        }
    }
    indices
}

/// On one listener a host belongs to one site, and so does the place of the default site.
fn check_hosts<'t>(
    name: &'t str,
    entries: &Entries,
    hosts: &[HostPattern],
    listen: &[usize],
    listeners: &[Named],
    owners: &mut HashMap<(usize, Option<HostPattern>), &'t str>,
    sink: &mut Sink,
) {
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
            let Some(first) = owners.get(&place) else {
                owners.insert(place, name);
                continue;
            };
            let listener = &listeners[*index].name;
            let (message, hint) = match host {
                Some(_) if *first == name => ("this host is listed twice".to_owned(), ""),
                Some(_) => (
                    format!("[site.{first}] has this host already on [listen.{listener}]"),
                    "",
                ),
                None => (
                    format!("[site.{first}] is the default site of [listen.{listener}] already"),
                    "give one of them `hosts`, or another `listen`",
                ),
            };
            sink.error_of_whole(span.clone(), message, hint);
            break;
        }
    }
}

fn routes(tables: &[Entries], site: &Overlay, pools: &[String], sink: &mut Sink) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::with_capacity(tables.len());
    let mut takes_all = false;
    for entries in tables {
        if takes_all {
            let message = "never reached: the route before takes every request";
            sink.warning_of_whole(
                entries.header.clone(),
                message,
                "the first match wins: move this route up",
            );
        }
        let path = match entries.value("path") {
            Some(Value::PathPattern(path)) => path,
            _ => PathPattern::Glob("*".into()),
        };
        let methods = entries.texts("methods").unwrap_or_default();
        let any_path = matches!(&path, PathPattern::Glob(glob) if glob == "*" || glob == "/*");
        takes_all = any_path && methods.is_empty() && !entries.is_written("methods");
        routes.push(Route {
            path,
            methods,
            action: action(entries, sink),
            settings: settings::read(entries, Some(site), pools, sink).settings,
        });
    }
    routes
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
        let message = "`status` is the status of `redirect`, and there is none";
        let hint = "an answer of another status: reply = { status = 404, body = \"…\" }";
        sink.error(status.key.clone(), message, hint);
    }
    let reply = match entries.value("reply") {
        Some(Value::Reply(reply)) => Some(reply),
        _ => None,
    };
    let deny = entries.bool("deny").then_some(Action::Deny);
    let actions: Vec<Action> = [redirect, deny, reply].into_iter().flatten().collect();
    if actions.len() > 1 {
        let message = "a route has one answer: `redirect`, `deny` or `reply`";
        sink.error(
            entries.header.clone(),
            message,
            "make them routes of their own",
        );
    }
    actions.into_iter().next()
}

fn pool(tables: &PoolTables, env: &Environment, sink: &mut Sink) -> Pool {
    let Named { name, entries } = &tables.pool;
    let runtime = runtime(name, entries, env, sink);
    let command = matches!(runtime, Runtime::Command(_));
    let keep_conn = match entries.is_written("keep_conn") {
        true => entries.bool("keep_conn"),
        false => command,
    };
    if let Some(entry) = entries.entry("max_reqs")
        && !keep_conn
    {
        let message =
            "`max_reqs` has no effect: without `keep_conn` a connection serves one request";
        sink.warning(entry.key.clone(), message, "");
    }
    Pool {
        name: name.clone(),
        keep_conn,
        max_reqs: entries.number("max_reqs"),
        connect_timeout: entries.duration("connect_timeout"),
        read_timeout: entries.duration("read_timeout"),
        request_terminate_timeout: entries.duration("request_terminate_timeout"),
        retries: entries.number("retries") as u32,
        max_response_head: entries.count("max_response_head"),
        limit_extensions: entries.texts("limit_extensions").unwrap_or_default(),
        queue: queue(name, entries, &tables.queue, &runtime, sink),
        runtime,
    }
}

fn runtime(name: &str, entries: &Entries, env: &Environment, sink: &mut Sink) -> Runtime {
    let chosen = entries.text("runtime");
    let others: &[&str] = match chosen.as_deref() {
        Some("command") => &SERVERS_ONLY,
        Some("servers") => &COMMAND_ONLY,
        _ => &[],
    };
    for key in others {
        if let Some(entry) = entries.entry(key) {
            let chosen = chosen.as_deref().unwrap_or_default();
            let message = format!("`{key}` means nothing with `runtime = \"{chosen}\"`");
            let hint = match *key {
                "servers" => "write runtime = \"servers\", or leave it out",
                "command" => "write runtime = \"command\", or leave it out",
                "balance" => "leave it out",
                _ => "whoever runs these workers decides that; leave it out",
            };
            sink.error(entry.key.clone(), message, hint);
        }
    }
    if chosen.as_deref() == Some("servers") {
        return Runtime::Servers(servers(name, entries, sink));
    }
    let argv = entries.texts("command").unwrap_or_default();
    if chosen.is_some() && !entries.is_written("command") {
        let message = format!("`command` is missing in [pool.{name}]");
        let hint = "add command = [\"/usr/bin/php-cgi\"], or any other FastCGI program";
        sink.error_of_whole(entries.header.clone(), message, hint);
    }
    let max_children = match entries.is_written("max_children") {
        true => entries.count("max_children"),
        false => env.default_workers(),
    };
    Runtime::Command(Command {
        argv,
        max_children,
        user: entries.text("user"),
        group: entries.text("group"),
        chdir: entries.path("chdir"),
        clear_env: entries.bool("clear_env"),
        env: entries.pairs("env"),
        rlimit_files: entries
            .entry("rlimit_files")
            .map(|_| entries.number("rlimit_files")),
    })
}

fn servers(name: &str, entries: &Entries, sink: &mut Sink) -> Vec<Address> {
    let servers = match entries.value("servers") {
        Some(Value::Addresses(servers)) => servers,
        _ => Vec::new(),
    };
    let hint = "for example servers = [\"unix:/run/php/php-fpm.sock\"]";
    match entries.entry("servers") {
        Some(entry) if servers.is_empty() => {
            sink.error(entry.span.clone(), "an empty list: no worker", hint)
        }
        None if !entries.is_written("servers") => {
            let message = format!("`servers` is missing in [pool.{name}]");
            sink.error_of_whole(entries.header.clone(), message, hint);
        }
        Some(entry) => {
            for (index, (server, span)) in servers.iter().zip(&entry.parts).enumerate() {
                if servers[..index].contains(server) {
                    sink.error(span.clone(), "this server is listed twice", "");
                }
                if matches!(server, Address::Tcp(socket) if socket.port() == 0 || socket.ip().is_unspecified())
                {
                    let message = "this is an address to listen on, not one to connect to";
                    sink.error(span.clone(), message, "for example \"127.0.0.1:9000\"");
                }
            }
        }
        None => {}
    }
    servers
}

fn queue(
    name: &str,
    pool: &Entries,
    entries: &Entries,
    runtime: &Runtime,
    sink: &mut Sink,
) -> Queue {
    let written = entries
        .is_written("maxconn")
        .then(|| entries.count("maxconn"));
    let maxconn = match (written, runtime) {
        (Some(maxconn), Runtime::Command(command)) => {
            let workers = command.max_children;
            if maxconn > workers && entries.entry("maxconn").is_some() {
                let message = format!(
                    "more than the {workers} workers of `max_children`, so it limits nothing"
                );
                sink.warning(
                    entries.span("maxconn"),
                    message,
                    "raise max_children, or leave maxconn out",
                );
            }
            maxconn
        }
        (Some(maxconn), Runtime::Servers(_)) => maxconn,
        (None, Runtime::Command(command)) => command.max_children,
        (None, Runtime::Servers(_)) => {
            let message =
                format!("`maxconn` is missing: how many workers the servers of [pool.{name}] have");
            let hint = format!(
                "add [pool.{name}.queue] with maxconn = N, the sum of their pm.max_children"
            );
            sink.error_of_whole(pool.header.clone(), message, hint);
            1
        }
    };
    Queue {
        maxconn,
        max_queue: entries.count("max_queue"),
        timeout: entries.duration("timeout"),
    }
}

fn log(entries: &Entries) -> Log {
    let level = match entries.text("level").as_deref() {
        Some("error") => Level::Error,
        Some("warning") => Level::Warning,
        Some("debug") => Level::Debug,
        _ => Level::Notice,
    };
    Log {
        access: entries.log_target("access"),
        format: entries.log_format("format"),
        error: entries.log_target("error"),
        level,
    }
}

/// What nobody uses, and what is not there at all.
fn check_use(document: &Document, config: &Config, sink: &mut Sink) {
    if !document.has_listeners {
        let hint = "add [listen.web] with address = \"0.0.0.0:80\"";
        sink.error_of_whole(
            0..0,
            "there is no listener, so nothing would be served",
            hint,
        );
    }
    if !document.has_sites {
        let hint = "add [site.main] with root = \"/srv/www\"";
        sink.error_of_whole(0..0, "there is no site, so nothing would be served", hint);
    }
    for (index, Named { name, entries }) in document.listeners.iter().enumerate() {
        if !config.sites.iter().any(|site| site.listen.contains(&index)) {
            let message = format!("no site answers on [listen.{name}]");
            sink.warning_of_whole(entries.header.clone(), message, "");
        }
    }
    for (index, tables) in document.pools.iter().enumerate() {
        let uses = |pool: Option<crate::model::PoolId>| pool.is_some_and(|pool| pool.0 == index);
        let used = config.sites.iter().any(|site| {
            uses(site.settings.pool) || site.routes.iter().any(|route| uses(route.settings.pool))
        });
        if !used {
            let message = format!("no site uses [pool.{}]", tables.pool.name);
            sink.warning_of_whole(tables.pool.entries.header.clone(), message, "");
        }
    }
    let spool = config.server.max_spool;
    let largest = config
        .sites
        .iter()
        .map(|site| site.settings.max_body)
        .max()
        .unwrap_or(0);
    if largest > spool {
        let message = format!(
            "one body of `max_body` ({}) is more than all spooled bodies may take (`max_spool`, {})",
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

const COMMAND_ONLY: [&str; 9] = [
    "command",
    "pm",
    "max_children",
    "user",
    "group",
    "chdir",
    "clear_env",
    "env",
    "rlimit_files",
];
const SERVERS_ONLY: [&str; 2] = ["servers", "balance"];
