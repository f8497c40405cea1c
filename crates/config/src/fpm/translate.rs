//! PHP-FPM's configuration → the equivalent weir.toml.
//!
//! Every pool becomes `[pool.NAME]` with `runtime = "php"` and `[listen.NAME]` with `protocol = "fastcgi"`. A
//! `pm.status_listen` becomes an additional listener. A directive that is not written is left out, unless weir's
//! default differs from PHP-FPM's.

use std::{
    collections::BTreeSet,
    fmt::Display,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use super::{
    Fpm, Level, Message, Options, System, User, access_format,
    check::{is_number, is_unix, written},
    directives::{Global, Pm, Pool, UNSET_PRIORITY},
};
use crate::{
    field::table,
    rows::log::FACILITIES,
    texts::{SOCKET_PATH_MAX, quote},
};

/// What the translation depends on besides the configuration.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Errors go to standard error, even if `error_log` says otherwise.
    pub log_to_stderr: bool,
    /// `-c`
    pub php_ini: Option<String>,
    /// `-n`
    pub no_php_ini: bool,
    /// `-d name=value`, in their order.
    pub defines: Vec<(String, String)>,
    /// It is about to listen: addresses are tried, as PHP-FPM does when it starts.
    pub listens: bool,
}

/// A weir.toml, and the messages about it.
#[derive(Debug, Clone)]
pub struct Translated {
    /// The text.
    pub text: String,
    /// Messages about directives that have no effect, or another effect than expected.
    pub said: Vec<Message>,
}

/// Refuses what PHP-FPM supports and weir does not. `-t` reports this too.
///
/// # Errors
/// A pool would run scripts as root, or the path of its socket is longer than the kernel allows.
pub fn refuse(fpm: &Fpm, system: &dyn System) -> Result<(), Message> {
    for pool in &fpm.pools {
        let wrong = |text: &str| {
            let text = format!("[pool {}] {text}", pool.name);
            Err(Message::new(Level::Error, text))
        };
        let is_root = |name: &str| {
            let uid_of = |name| system.user(name).map(|user| user.uid);
            name.parse().ok().or_else(|| uid_of(name)) == Some(0)
        };
        if system.is_root() && written(&pool.user).is_some_and(is_root) {
            return wrong(
                "weir runs no script as root, whatever --allow-to-run-as-root says: name an ordinary user",
            );
        }
        let listen = pool.listen.as_deref().unwrap_or_default();
        if is_unix(listen) && listen.len() > SOCKET_PATH_MAX {
            return wrong(&format!(
                "cannot bind to UNIX socket '{listen}' as path is too long (found length: {}, \
                 maximal length: {SOCKET_PATH_MAX})",
                listen.len()
            ));
        }
    }
    Ok(())
}

/// Translates the configuration.
///
/// # Errors
/// In PHP-FPM's words: problems that PHP-FPM would find only at its start, such as hosts without an address, after all earlier
/// messages.
pub fn translate(
    fpm: &Fpm,
    options: &Options,
    start: &Start,
    system: &dyn System,
) -> Result<Translated, Vec<Message>> {
    refuse(fpm, system).map_err(|message| vec![message])?;
    let mut writer = Writer {
        listens: start.listens,
        out: String::new(),
        said: Vec::new(),
        unused: BTreeSet::new(),
        system,
        names: Vec::new(),
    };
    writer.global(&fpm.global, start);
    for pool in &fpm.pools {
        writer.name(pool);
    }
    if let Err(message) = writer.pools(fpm, options, start) {
        writer.said.push(message);
        return Err(writer.said);
    }
    if !writer.unused.is_empty() {
        let names: Vec<&str> = writer.unused.iter().copied().collect();
        let text = format!(
            "weir ignores directives that have no effect here: {}",
            names.join(", ")
        );
        writer.said.push(Message::new(Level::Warning, text));
    }
    Ok(Translated {
        text: writer.out,
        said: writer.said,
    })
}

struct Writer<'a> {
    listens: bool,
    out: String,
    said: Vec<Message>,
    /// Directives that have no meaning in weir.
    unused: BTreeSet<&'static str>,
    system: &'a dyn System,
    /// weir's names of the pools.
    names: Vec<String>,
}

impl Writer<'_> {
    fn pools(&mut self, fpm: &Fpm, options: &Options, start: &Start) -> Result<(), Message> {
        for (at, pool) in fpm.pools.iter().enumerate() {
            let of = pool.status_of.unwrap_or(at);
            self.listener(pool, at, of)?;
            if pool.status_of.is_none() {
                self.pool(fpm, at, options, start)?;
            }
        }
        Ok(())
    }

    fn global(&mut self, global: &Global, start: &Start) {
        self.table("server");
        self.text("pid_file", written(&global.pid));
        // Without a time PHP-FPM kills running requests. "Graceful" promises to finish them, so weir's own time
        // applies.
        if global.process_control_timeout > 0 {
            self.seconds("shutdown_timeout", global.process_control_timeout);
        }
        self.count("process_max", global.process_max);
        let threshold = global.emergency_restart_threshold;
        let interval = global.emergency_restart_interval;
        if threshold > 0 && interval > 0 {
            self.count("emergency_restart_threshold", threshold);
            self.seconds("emergency_restart_interval", interval);
        }
        self.table("log");
        self.text("access", Some("off"));
        self.text("error_format", Some("fpm"));
        let log = global.error_log.as_deref().unwrap_or_default();
        if start.log_to_stderr {
            self.text("error", Some("stderr"));
        } else if log.eq_ignore_ascii_case("syslog") {
            self.text("error", Some("syslog"));
            self.text("syslog_ident", written(&global.syslog_ident));
            let number = global.syslog_facility / 8;
            let facility = FACILITIES
                .iter()
                .find(|(_, known)| i32::from(*known) == number);
            self.text("syslog_facility", facility.map(|(name, _)| *name));
        } else {
            self.text("error", Some(log));
        }
        let level = match global.log_level {
            None | Some(Level::Notice) => None,
            Some(Level::Debug) => Some("debug"),
            Some(Level::Warning) => Some("warning"),
            Some(Level::Error | Level::Alert) => Some("error"),
        };
        self.text("level", level);
        if global.log_limit != DEFAULT_LOG_LIMIT {
            self.count("error_limit", global.log_limit);
        }
        if !global.log_buffering {
            self.line("error_buffering", "false");
        }
        if global.events_mechanism.as_deref() != Some("epoll") {
            self.unused.insert("events.mechanism");
        }
    }

    /// Chooses weir's name of a pool: PHP-FPM's name, if it is valid in weir.
    fn name(&mut self, pool: &Pool) {
        let plain: String = pool
            .name
            .trim()
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        let plain: String = plain.chars().take(LONGEST_NAME).collect();
        let mut name = if plain.is_empty() {
            "pool".to_owned()
        } else {
            plain
        };
        while self.names.contains(&name) {
            name.push('_');
        }
        self.names.push(name);
    }

    fn listener(&mut self, pool: &Pool, at: usize, of: usize) -> Result<(), Message> {
        let name = listener_name(&self.names[at], at);
        let listen = pool.listen.as_deref().unwrap_or_default();
        let address = self.address(listen)?;
        self.table(&format!("listen.{name}"));
        self.text("protocol", Some("fastcgi"));
        let pool_name = self.names[of].clone();
        self.text("pool", Some(&pool_name));
        if pool.status_of.is_some() {
            self.line("status_only", "true");
        }
        match address {
            None => self.text("address", Some(&format!("unix:{listen}"))),
            Some(address) => {
                self.text("address", Some(&address.to_string()));
                if address.is_ipv6() {
                    self.line("ipv6only", "false");
                }
            }
        }
        let failure = self.on_worker_failure()?;
        self.text("on_worker_failure", failure.as_deref());
        self.count("backlog", pool.listen_backlog);
        match address {
            None => self.socket_rights(pool)?,
            Some(_) => self.allowed_clients(pool),
        }
        Ok(())
    }

    /// What PHP-FPM's file has no place for comes from the environment.
    fn on_worker_failure(&self) -> Result<Option<String>, Message> {
        match self.system.variable(ON_WORKER_FAILURE) {
            None => Ok(None),
            Some(known) if matches!(known.as_str(), "" | "close") => Ok(None),
            Some(known) if known == "answer" => Ok(Some(known)),
            Some(other) => {
                let text = format!("{ON_WORKER_FAILURE} is '{other}': it may be close or answer");
                Err(Message::new(Level::Error, text))
            }
        }
    }

    /// `9000`, `127.0.0.1:9000`, `[::1]:9000`, `localhost:9000`; none: it is a path.
    fn address(&mut self, listen: &str) -> Result<Option<SocketAddr>, Message> {
        if is_unix(listen) {
            return Ok(None);
        }
        let Some((host, port)) = listen.rsplit_once(':') else {
            return self.any_address(listen, port(listen)?).map(Some);
        };
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let bare = bare.unwrap_or(host);
        let number = self::port(port)?;
        let found = match bare.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.system.resolve(bare).map_err(|why| unresolved(&why))?,
        };
        let mut chosen = None;
        for ip in found {
            let address = SocketAddr::new(ip, number);
            if chosen.is_some() {
                let text = format!("Found multiple addresses for {bare}, {ip} ignored");
                self.said.push(Message::new(Level::Warning, text));
                continue;
            }
            match self.try_listen(address) {
                Ok(()) => chosen = Some(address),
                Err(error) => self.said.push(cannot_listen(listen, &error)),
            }
        }
        match chosen {
            Some(address) => Ok(Some(address)),
            // The caller reports the last message.
            None => Err(self.said.pop().unwrap_or_else(|| unresolved(NO_NAME))),
        }
    }

    /// A port alone: of all addresses of both kinds; where that cannot be, of all of IPv4.
    fn any_address(&mut self, listen: &str, port: u16) -> Result<SocketAddr, Message> {
        let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        if self.try_listen(v6).is_ok() {
            return Ok(v6);
        }
        let text = "Failed implicitly binding to ::, retrying with 0.0.0.0";
        self.said.push(Message::new(Level::Notice, text));
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        match self.try_listen(v4) {
            Ok(()) => Ok(v4),
            Err(error) => Err(cannot_listen(listen, &error)),
        }
    }

    fn try_listen(&self, address: SocketAddr) -> io::Result<()> {
        match self.listens {
            true => self.system.try_listen(address),
            false => Ok(()),
        }
    }

    fn socket_rights(&mut self, pool: &Pool) -> Result<(), Message> {
        if let Some(mode) = written(&pool.listen_mode) {
            self.text("mode", Some(&octal(mode)));
        }
        let users = list(&pool.listen_acl_users, ',');
        let groups = list(&pool.listen_acl_groups, ',');
        if !users.is_empty() || !groups.is_empty() {
            for (what, ignored) in [("owner", &pool.listen_owner), ("group", &pool.listen_group)] {
                if let Some(value) = written(ignored) {
                    let text = format!(
                        "[pool {}] ACL set, listen.{what} = '{value}' is ignored",
                        pool.name
                    );
                    self.said.push(Message::new(Level::Warning, text));
                }
            }
            self.texts("acl_users", &users);
            self.texts("acl_groups", &groups);
            return Ok(());
        }
        let unknown = |what: &str, name: &str| {
            let kind = if what == "uid" { "user" } else { "group" };
            let text = format!("[pool {}] cannot get {what} for {kind} '{name}'", pool.name);
            Message::new(Level::Error, text)
        };
        let owner = written(&pool.listen_owner);
        self.text("owner", owner);
        if let Some(group) = written(&pool.listen_group) {
            self.text("group", Some(group));
        } else if let Some(owner) = owner.filter(|owner| !is_number(owner)) {
            // If an owner is named, its group is used.
            let user = self.system.user(owner);
            let gid = user.ok_or_else(|| unknown("uid", owner))?.gid;
            self.text("group", Some(&gid.to_string()));
        }
        Ok(())
    }

    fn allowed_clients(&mut self, pool: &Pool) {
        let clients = list(&pool.listen_allowed_clients, ',');
        if clients.is_empty() {
            return;
        }
        let mut good = Vec::new();
        for client in clients {
            match client.parse::<IpAddr>() {
                Ok(address) => good.push(address.to_string()),
                Err(_) => {
                    let text = format!("Wrong IP address '{client}' in listen.allowed_clients");
                    self.said.push(Message::new(Level::Error, text));
                }
            }
        }
        if good.is_empty() {
            let text = "There are no allowed addresses";
            self.said.push(Message::new(Level::Error, text));
            // No client has this address.
            good.push("0.0.0.0".to_owned());
        }
        let good: Vec<&str> = good.iter().map(String::as_str).collect();
        self.texts("allowed_clients", &good);
    }

    fn pool(
        &mut self,
        fpm: &Fpm,
        at: usize,
        options: &Options,
        start: &Start,
    ) -> Result<(), Message> {
        let (pool, global) = (&fpm.pools[at], &fpm.global);
        let key = format!("pool.{}", quote(&self.names[at]));
        self.table(&key);
        self.text("runtime", Some("php"));
        let (major, minor) = options.php;
        self.text("php", Some(&format!("{major}.{minor}")));
        self.text("php_ini", start.php_ini.as_deref());
        if start.no_php_ini {
            self.line("no_php_ini", "true");
        }
        self.identity(pool);
        self.workers(pool, global);
        self.requests(pool);
        self.environment(pool);
        self.settings(pool, start);
        self.table(&format!("{key}.queue"));
        // No time limit, as in the backlog of a listening socket: the client in front gives up by itself.
        self.line("timeout", "\"1d\"");
        if pool.listen_backlog > 0 {
            self.count("max_queue", pool.listen_backlog);
        } else {
            self.line("max_queue", LONGEST_QUEUE);
        }
        // In PHP-FPM requests wait in the kernel's queue, and only the kernel refuses any.
        self.text("when_full", Some("wait"));
        self.text("order", Some("fifo"));
        Ok(())
    }

    fn identity(&mut self, pool: &Pool) {
        self.text("chdir", written(&pool.chdir));
        if !self.system.is_root() {
            return;
        }
        let user = written(&pool.user);
        self.text("user", user);
        self.text("group", written(&pool.group).filter(|_| user.is_some()));
        self.text("chroot", written(&pool.chroot));
    }

    fn workers(&mut self, pool: &Pool, global: &Global) {
        let pm = pool.pm.unwrap_or(Pm::Static);
        self.text("pm", Some(pm.name()));
        self.count("max_children", pool.pm_max_children);
        match pm {
            Pm::Static => {}
            Pm::Dynamic => {
                self.count("start_servers", pool.pm_start_servers);
                self.count("min_spare_servers", pool.pm_min_spare_servers);
                self.count("max_spare_servers", pool.pm_max_spare_servers);
                self.count("max_spawn_rate", pool.pm_max_spawn_rate);
            }
            Pm::OnDemand => {
                self.seconds("process_idle_timeout", pool.pm_process_idle_timeout);
                // PHP-FPM keeps what OPcache and APCu have in memory while no worker runs.
                self.line("master_idle_timeout", "\"0\"");
            }
        }
        self.count("max_requests", pool.pm_max_requests);
        let files = match (pool.rlimit_files, global.rlimit_files) {
            (pool, global @ 1..) if pool > global && !self.system.raises_limits() => global,
            (pool, global) => first_set(pool, global),
        };
        if files > 0 {
            self.count("rlimit_files", files.max(16));
        }
        match first_set(pool.rlimit_core, global.rlimit_core) {
            0 => {}
            core @ 1.. => self.count("rlimit_core", core),
            _ => self.line("rlimit_core", UNLIMITED),
        }
        let priority = match pool.process_priority {
            UNSET_PRIORITY => global.process_priority,
            priority => priority,
        };
        if priority != UNSET_PRIORITY && self.system.is_root() {
            self.line("process_priority", priority);
        }
        if pool.process_dumpable {
            self.line("process_dumpable", "true");
        }
        self.text("apparmor_hat", written(&pool.apparmor_hat));
        match pool.catch_workers_output {
            false => self.text("output_log", Some("off")),
            true if !pool.decorate_workers_output => self.line("decorate_output", "false"),
            true => {}
        }
    }

    fn requests(&mut self, pool: &Pool) {
        self.text("status_path", written(&pool.pm_status_path));
        self.text("ping_path", written(&pool.ping_path));
        self.text("ping_response", pool.ping_response.as_deref());
        // With an empty format PHP-FPM writes no access log.
        let format = pool.access_format.as_deref().map(access_format::check);
        if let (Some(log), Some(Ok(format))) = (written(&pool.access_log), format)
            && !format.is_empty()
        {
            self.text("access_log", Some(log));
            self.text("access_format", Some(&format));
            let paths: Vec<&str> = pool
                .access_suppress_path
                .iter()
                .map(String::as_str)
                .collect();
            self.texts("access_suppress_path", &paths);
        }
        // Off unless it is set: not weir's own default.
        if pool.request_slowlog_timeout <= 0 {
            self.line("request_slowlog_timeout", 0);
        } else {
            self.seconds("request_slowlog_timeout", pool.request_slowlog_timeout);
            self.text("slowlog", written(&pool.slowlog));
            let depth = pool.request_slowlog_trace_depth.clamp(1, 1000);
            self.count("request_slowlog_trace_depth", depth);
        }
        self.seconds("request_terminate_timeout", pool.request_terminate_timeout);
        if pool.request_terminate_timeout_track_finished {
            self.line("request_terminate_timeout_track_finished", "true");
        }
        // PHP-FPM waits for a silent script, never retries a request, and never refuses a request because of earlier
        // crashes.
        self.line("read_timeout", "\"366d\"");
        self.line("retries", 0);
        self.line("crash_limit", 0);
        self.line("self_call_workers", 0);
        let mut extensions = Vec::new();
        for extension in list(&pool.security_limit_extensions, ' ') {
            let extension = match extension.starts_with('.') {
                true => extension.to_owned(),
                false => format!(".{extension}"),
            };
            match extension.len() > 1 && !extension.contains(['/', '*']) {
                true => extensions.push(extension),
                false => {
                    let text = format!(
                        "[pool {}] security.limit_extensions: '{extension}' is no extension, and is \
                         passed over",
                        pool.name
                    );
                    self.said.push(Message::new(Level::Warning, text));
                }
            }
        }
        let extensions: Vec<&str> = extensions.iter().map(String::as_str).collect();
        self.line("limit_extensions", array(&extensions));
    }

    /// The environment of a worker: the variables of the file, the named variables of weir's own environment, and the
    /// user's identity.
    fn environment(&mut self, pool: &Pool) {
        if !pool.clear_env {
            self.line("clear_env", "false");
        }
        let who: Option<User> = match written(&pool.user) {
            Some(user) if self.system.is_root() && !is_number(user) => self.system.user(user),
            _ if self.system.is_root() => None,
            _ => self.system.current_user(),
        };
        let mut pairs: Vec<(String, String)> = Vec::new();
        let who = who.map(|user| [("USER", user.name), ("HOME", user.home)]);
        for (name, value) in who.into_iter().flatten() {
            if pool.env.iter().all(|(written, _)| written != name) {
                pairs.push((name.to_owned(), value));
            }
        }
        let env: Vec<(String, String)> = pool
            .env
            .iter()
            .map(|(name, value)| {
                let value = match value.strip_prefix('$') {
                    Some(variable) => self.system.variable(variable).unwrap_or_default(),
                    None => value.clone(),
                };
                (name.clone(), value)
            })
            .collect();
        pairs.extend(first_written(&env, |_| false));
        self.pairs("env", &pairs);
    }

    fn settings(&mut self, pool: &Pool, start: &Start) {
        for (key, values) in [
            ("php_value", &pool.php_values),
            ("php_admin_value", &pool.php_admin_values),
        ] {
            self.pairs(key, &first_written(values, is_extension));
        }
        let mut defines: Vec<(String, String)> = Vec::new();
        for (name, value) in &start.defines {
            defines.retain(|(known, _)| known != name || is_extension(name));
            defines.push((name.clone(), value.clone()));
        }
        self.pairs("php_define", &defines);
    }

    fn table(&mut self, name: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out.push_str(&format!("[{name}]\n"));
    }

    fn line(&mut self, key: &str, value: impl Display) {
        self.out.push_str(&format!("{key} = {value}\n"));
    }

    fn text(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.line(key, quote(value));
        }
    }

    fn texts(&mut self, key: &str, values: &[&str]) {
        if !values.is_empty() {
            self.line(key, array(values));
        }
    }

    fn pairs(&mut self, key: &str, values: &[(String, String)]) {
        if let Some(table) = table(values, |value| quote(value)) {
            self.line(key, table);
        }
    }

    /// Zero means the default in both programs. A number above weir's maximum has the effect of no limit.
    fn count(&mut self, key: &str, value: i32) {
        let most = MOST.iter().find(|(known, _)| *known == key);
        let most = most.map_or(i32::MAX, |(_, most)| *most);
        if value > 0 {
            self.line(key, value.min(most));
        }
    }

    fn seconds(&mut self, key: &str, value: i32) {
        if value > 0 {
            self.line(key, quote(&format!("{}s", value.min(LONGEST_SECONDS))));
        }
    }
}

/// A port as getaddrinfo(3) reads it.
fn port(text: &str) -> Result<u16, Message> {
    let trimmed = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let unsigned = trimmed.strip_prefix('+').unwrap_or(trimmed);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let number = unsigned[..digits].trim_start_matches('0');
    match number.parse::<u16>() {
        Ok(_) if digits < unsigned.len() => {
            Err(unresolved("Servname not supported for ai_socktype"))
        }
        Ok(number) => Ok(number),
        Err(_) => {
            let text = format!("invalid port value '{text}'");
            Err(Message::new(Level::Error, text))
        }
    }
}

/// PHP-FPM's own end of line comes with it.
fn unresolved(why: &str) -> Message {
    Message::new(Level::Error, format!("getaddrinfo: {why}\n"))
}

fn cannot_listen(listen: &str, error: &io::Error) -> Message {
    let text = match error.raw_os_error() {
        Some(EAFNOSUPPORT) => "failed to create new listening socket: socket()".to_owned(),
        _ => format!("unable to bind listening socket for address '{listen}'"),
    };
    Message::system(text, error)
}

/// Name of a pool's listener: the pool's name, with only the characters that a listener's name may have.
fn listener_name(pool: &str, at: usize) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match pool.chars().all(plain) {
        true => pool.to_owned(),
        false => {
            let name: String = pool
                .chars()
                .map(|c| if plain(c) { c } else { '_' })
                .collect();
            let name: String = name.chars().take(LONGEST_NAME - 8).collect();
            // Two pools may differ only in the replaced characters.
            format!("{name}-{at}")
        }
    }
}

/// `strtoul(…, 8)`, as a mode.
fn octal(mode: &str) -> String {
    let digits: String = mode
        .trim_start()
        .chars()
        .take_while(|c| ('0'..='7').contains(c))
        .collect();
    let mode = u32::from_str_radix(&digits, 8).unwrap_or(0) & 0o777;
    format!("{mode:04o}")
}

/// The items of a list, trimmed.
fn list(value: &Option<String>, separator: char) -> Vec<&str> {
    let value = written(value).unwrap_or_default();
    let parts = value.split([separator, '\t']).map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

/// Each name once, in the order in which PHP-FPM applies them. If a name is written twice, the first in this list
/// wins, unless all count.
fn first_written(
    values: &[(String, String)],
    all_count: impl Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let mut kept: Vec<(String, String)> = Vec::new();
    for (at, (name, value)) in values.iter().enumerate() {
        let is_last = values[at + 1..].iter().all(|(later, _)| later != name);
        if is_last || all_count(name) {
            kept.push((name.clone(), value.clone()));
        }
    }
    kept
}

/// PHP loads each of them.
fn is_extension(setting: &str) -> bool {
    matches!(setting, "extension" | "zend_extension")
}

fn first_set(pool: i32, global: i32) -> i32 {
    if pool == 0 { global } else { pool }
}

fn array(values: &[&str]) -> String {
    let values: Vec<String> = values.iter().map(|value| quote(value)).collect();
    format!("[{}]", values.join(", "))
}

/// The variable that says what a web server gets where a worker died or ran for too long.
const ON_WORKER_FAILURE: &str = "WEIR_ON_WORKER_FAILURE";

/// The text of gai_strerror(3) for an unknown name.
const NO_NAME: &str = "Name or service not known";

/// The machine does not speak that kind of addresses.
const EAFNOSUPPORT: i32 = 97;

/// Maximum length of names in weir.toml.
const LONGEST_NAME: usize = 64;

/// The kernel's backlog if `listen.backlog` is not written.
const LONGEST_QUEUE: usize = 4096;

/// `log_limit`, if not written.
const DEFAULT_LOG_LIMIT: i32 = 1024;

/// weir's maximum values that are lower than PHP-FPM's.
const MOST: &[(&str, i32)] = &[
    ("error_limit", 16 << 20),
    ("process_max", 1_000_000),
    ("emergency_restart_threshold", 100_000),
    ("max_children", 100_000),
    ("start_servers", 100_000),
    ("min_spare_servers", 100_000),
    ("max_spare_servers", 100_000),
    ("max_spawn_rate", 100_000),
    ("request_slowlog_trace_depth", 1000),
    ("max_queue", 10_000_000),
    ("backlog", 1 << 30),
    ("rlimit_files", 1 << 30),
];

/// 366 days.
const LONGEST_SECONDS: i32 = 366 * 24 * 60 * 60;

/// The largest size that weir.toml takes.
const UNLIMITED: i64 = i64::MAX;
