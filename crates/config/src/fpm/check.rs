//! The checks of PHP-FPM before it starts (fpm_conf.c, fpm_unix.c), with its order and messages, and the defaults
//! that it fills in.

use super::{
    Diagnostics, Fpm, Level, Message, OpenedLog, Options, System, access_format,
    directives::{Global, Pm, Pool, UNSET_PRIORITY},
    load::Loaded,
    paths::full_path,
};

/// PHP-FPM would not start. The reason was reported.
pub(super) struct Failed;

/// Checks the content of the files, and makes paths absolute.
pub(super) fn check(
    loaded: &mut Loaded,
    options: &Options,
    system: &dyn System,
    diagnostics: &mut Diagnostics,
) -> Result<(), Failed> {
    let mut checker = Checker {
        options,
        system,
        diagnostics,
    };
    checker.global(&mut loaded.global)?;
    checker.pools(&mut loaded.pools, &loaded.global)?;
    checker.access_logs(&loaded.pools)
}

/// The check of users and groups for `-t`.
pub(super) fn test(
    fpm: &Fpm,
    system: &dyn System,
    diagnostics: &mut Diagnostics,
) -> Result<(), Failed> {
    for pool in &fpm.pools {
        let name = &pool.name;
        let users = [(&pool.user, ""), (&pool.listen_owner, NO_ERROR)];
        let groups = [(&pool.group, ""), (&pool.listen_group, NO_ERROR)];
        for ((user, user_tail), (group, group_tail)) in users.into_iter().zip(groups) {
            if let Some(user) = user
                && !is_number(user)
                && system.user(user).is_none()
            {
                let text = format!("[pool {name}] cannot get uid for user '{user}'{user_tail}");
                diagnostics.push(Message::new(Level::Error, text));
                return Err(Failed);
            }
            if let Some(group) = group
                && !is_number(group)
                && system.group(group).is_none()
            {
                let text = format!("[pool {name}] cannot get gid for group '{group}'{group_tail}");
                diagnostics.push(Message::new(Level::Error, text));
                return Err(Failed);
            }
        }
    }
    Ok(())
}

/// The checks of users at a start: root must become another user; other users keep their identity.
pub(super) fn start(
    fpm: &Fpm,
    options: &Options,
    system: &dyn System,
    diagnostics: &mut Diagnostics,
) -> Result<(), Failed> {
    for pool in &fpm.pools {
        let name = &pool.name;
        if !system.is_root() {
            let ignored = [
                ("user", pool.user.is_some()),
                ("group", pool.group.is_some()),
                ("chroot", pool.chroot.is_some()),
                ("process.priority", pool.process_priority != UNSET_PRIORITY),
            ];
            for (directive, _) in ignored.into_iter().filter(|(_, written)| *written) {
                diagnostics.push(Message::new(
                    Level::Notice,
                    format!(
                        "[pool {name}] '{directive}' directive is ignored when FPM is not running as root"
                    ),
                ));
            }
            continue;
        }
        let mut ids = (0, 0);
        if let Some(user) = written(&pool.user) {
            ids = match (system.user(user), user.parse()) {
                (Some(user), _) => (user.uid, user.gid),
                (None, Ok(uid)) if is_number(user) => (uid, 0),
                (None, _) => {
                    let text = format!("[pool {name}] cannot get uid for user '{user}'");
                    diagnostics.push(Message::new(Level::Error, text));
                    return Err(Failed);
                }
            };
        }
        if let Some(group) = written(&pool.group) {
            ids.1 = match (is_number(group), system.group(group)) {
                (true, _) => group.parse().unwrap_or(u32::MAX),
                (false, Some(gid)) => gid,
                (false, None) => {
                    let text = format!("[pool {name}] cannot get gid for group '{group}'");
                    diagnostics.push(Message::new(Level::Error, text));
                    return Err(Failed);
                }
            };
        }
        if !options.run_as_root && (ids.0 == 0 || ids.1 == 0) {
            let text = format!("[pool {name}] please specify user and group other than root");
            diagnostics.push(Message::new(Level::Error, text));
            return Err(Failed);
        }
    }
    Ok(())
}

struct Checker<'a> {
    options: &'a Options,
    system: &'a dyn System,
    diagnostics: &'a mut Diagnostics,
}

impl Checker<'_> {
    /// A watchdog that asks says how often, too.
    fn systemd(&mut self, global: &mut Global) {
        let micros = self.system.variable("WATCHDOG_USEC");
        let micros = micros.and_then(|micros| micros.trim().parse::<i64>().ok());
        let millis = micros.map_or(0, |micros| i32::try_from(micros / 2000).unwrap_or(i32::MAX));
        if millis > 1000 {
            if global.systemd_interval > 0 {
                let text = "systemd_interval option ignored";
                self.diagnostics.push(Message::new(Level::Warning, text));
            }
            let seconds = three_digits(f64::from(millis) / 1000.0);
            let text = format!("systemd watchdog configured to {seconds}sec");
            self.diagnostics.push(Message::new(Level::Notice, text));
            global.systemd_watchdog = Some(millis);
            global.systemd_interval = millis / 1000;
        } else if global.systemd_interval < 0 {
            global.systemd_interval = SYSTEMD_INTERVAL;
        }
    }

    fn global(&mut self, global: &mut Global) -> Result<(), Failed> {
        if let Some(pid) = &mut global.pid {
            *pid = full_path(pid, None, self.options, STATE);
        }
        if let Some(daemonize) = self.options.daemonize {
            global.daemonize = daemonize;
        }
        if global.log_limit < SHORTEST_LOG_LIMIT {
            let text = format!("log_limit must be greater than {SHORTEST_LOG_LIMIT}");
            return Err(self.error(text));
        }
        if global.process_max < 0 {
            return Err(self.error("process_max can't be negative".into()));
        }
        if !is_priority(global.process_priority) {
            return Err(self.error("process.priority must be included into [-19,20]".into()));
        }
        self.systemd(global);
        let log = global
            .error_log
            .get_or_insert_with(|| "log/php-fpm.log".into());
        global.syslog_ident.get_or_insert_with(|| "php-fpm".into());
        if global.syslog_facility < 0 {
            global.syslog_facility = DAEMON;
        }
        let syslog = log.eq_ignore_ascii_case("syslog");
        if !syslog {
            *log = full_path(log, None, self.options, STATE);
            if let Err(error) = self.system.try_log(log) {
                let text = format!("failed to open error_log ({log})");
                self.diagnostics.push(Message::system(text, &error));
                return Err(Failed);
            }
        }
        self.diagnostics.log = Some(OpenedLog {
            before: self.diagnostics.messages.len(),
            path: (!syslog).then(|| log.clone()),
            syslog_ident: global.syslog_ident.clone().unwrap_or_default(),
            syslog_facility: (global.syslog_facility / 8) as u8,
            level: global.log_level,
            daemonize: global.daemonize,
        });
        let mechanism = global.events_mechanism.take();
        global.events_mechanism = ["epoll", "poll", "select"]
            .into_iter()
            .find(|name| {
                mechanism
                    .as_deref()
                    .is_none_or(|wanted| wanted.eq_ignore_ascii_case(name))
            })
            .map(str::to_owned);
        if global.events_mechanism.is_none() {
            let wanted = mechanism.unwrap_or_default();
            let text = format!("event mechanism '{wanted}' is not available on this system");
            return Err(self.error(text));
        }
        Ok(())
    }

    fn pools(&mut self, pools: &mut Vec<Pool>, global: &Global) -> Result<(), Failed> {
        if pools.is_empty() {
            let text =
                "No pool defined. at least one pool section must be specified in config file";
            return Err(self.error(text.into()));
        }
        // The loop adds pools for pm.status_listen at the end, and then checks these too.
        let mut at = 0;
        while at < pools.len() {
            self.pool(pools, at, global)?;
            at += 1;
        }
        for pool in pools.iter() {
            for other in pools.iter().filter(|other| other.name != pool.name) {
                if written(&pool.listen).is_some() && pool.listen == other.listen {
                    return Err(self.error(format!(
                        "[pool {}] unable to set listen address as it's already used in another pool '{}'",
                        other.name, pool.name
                    )));
                }
            }
        }
        Ok(())
    }

    fn pool(&mut self, pools: &mut Vec<Pool>, at: usize, global: &Global) -> Result<(), Failed> {
        let pool = &mut pools[at];
        self.identity_and_listen(pool)?;
        self.process_manager(pool, global)?;
        if let Some(listen) = pool.pm_status_listen.clone() {
            pool.pm_status_path.get_or_insert_with(|| "/".into());
            let status = status_pool(pool, at, listen);
            pools.push(status);
        }
        let pool = &mut pools[at];
        self.status_and_ping(pool)?;
        self.logs(pool)?;
        self.folders(pool)?;
        pool.security_limit_extensions
            .get_or_insert_with(|| ".php .phar".into());
        if pool.chroot.is_none() {
            self.expand_values(pool);
        }
        Ok(())
    }

    fn identity_and_listen(&mut self, pool: &mut Pool) -> Result<(), Failed> {
        if let Some(prefix) = written(&pool.prefix) {
            let prefix = full_path(prefix, None, self.options, PREFIX);
            let is_folder = self.system.is_folder(&prefix);
            pool.prefix = Some(prefix.clone());
            if !is_folder {
                return Err(self.of(
                    pool,
                    Level::Error,
                    format!("the prefix '{prefix}' does not exist or is not a directory"),
                ));
            }
        }
        if pool.user.is_none() && self.system.is_root() && !self.options.run_as_root {
            return Err(self.of(pool, Level::Alert, "user has not been defined".into()));
        }
        match written(&pool.listen) {
            None => {
                let text = "no listen address have been defined!";
                return Err(self.of(pool, Level::Alert, text.into()));
            }
            Some(listen) if is_unix(listen) => {
                pool.listen = Some(self.path(listen, pool));
            }
            Some(_) => {}
        }
        if !is_priority(pool.process_priority) {
            let text = "process.priority must be included into [-19,20]";
            return Err(self.of(pool, Level::Error, text.into()));
        }
        Ok(())
    }

    fn process_manager(&mut self, pool: &mut Pool, global: &Global) -> Result<(), Failed> {
        let Some(pm) = pool.pm else {
            let text = "the process manager is missing (static, dynamic or ondemand)";
            return Err(self.of(pool, Level::Alert, text.into()));
        };
        if pool.pm_max_children < 1 {
            let text = "pm.max_children must be a positive value";
            return Err(self.of(pool, Level::Alert, text.into()));
        }
        match pm {
            Pm::Static => Ok(()),
            Pm::Dynamic => self.dynamic(pool),
            Pm::OnDemand => self.on_demand(pool, global),
        }
    }

    fn dynamic(&mut self, pool: &mut Pool) -> Result<(), Failed> {
        let (min, max) = (pool.pm_min_spare_servers, pool.pm_max_spare_servers);
        let (start, children) = (pool.pm_start_servers, pool.pm_max_children);
        let wrong = if min <= 0 {
            format!("pm.min_spare_servers({min}) must be a positive value")
        } else if max <= 0 {
            format!("pm.max_spare_servers({max}) must be a positive value")
        } else if min > children || max > children {
            format!(
                "pm.min_spare_servers({min}) and pm.max_spare_servers({max}) cannot be greater than \
                 pm.max_children({children})"
            )
        } else if max < min {
            format!("pm.max_spare_servers({max}) must not be less than pm.min_spare_servers({min})")
        } else if start <= 0 {
            pool.pm_start_servers = min + (max - min) / 2;
            let text = format!(
                "pm.start_servers is not set. It's been set to {}.",
                pool.pm_start_servers
            );
            self.of(pool, Level::Notice, text);
            String::new()
        } else if start < min || start > max {
            format!(
                "pm.start_servers({start}) must not be less than pm.min_spare_servers({min}) and not \
                 greater than pm.max_spare_servers({max})"
            )
        } else {
            String::new()
        };
        if !wrong.is_empty() {
            return Err(self.of(pool, Level::Alert, wrong));
        }
        if pool.pm_max_spawn_rate < 1 {
            let text = "pm.max_spawn_rate must be a positive value";
            return Err(self.of(pool, Level::Alert, text.into()));
        }
        Ok(())
    }

    fn on_demand(&mut self, pool: &mut Pool, global: &Global) -> Result<(), Failed> {
        if global.events_mechanism.as_deref() != Some("epoll") {
            let text = "ondemand process manager can ONLY be used when events.mechanism is either \
                        epoll (Linux) or kqueue (*BSD).";
            return Err(self.of(pool, Level::Alert, text.into()));
        }
        let timeout = pool.pm_process_idle_timeout;
        if timeout < 1 {
            let text = format!("pm.process_idle_timeout({timeout}s) must be greater than 0s");
            return Err(self.of(pool, Level::Alert, text));
        }
        if pool.listen_backlog < super::DEFAULT_BACKLOG {
            let text = format!(
                "listen.backlog({}) was too low for the ondemand process manager. I updated it for you \
                 to {}.",
                pool.listen_backlog,
                super::DEFAULT_BACKLOG
            );
            self.of(pool, Level::Warning, text);
            pool.listen_backlog = super::DEFAULT_BACKLOG;
        }
        pool.pm_start_servers = 0;
        pool.pm_min_spare_servers = 0;
        pool.pm_max_spare_servers = 0;
        Ok(())
    }

    fn status_and_ping(&mut self, pool: &mut Pool) -> Result<(), Failed> {
        if let Some(path) = written(&pool.pm_status_path) {
            // A pool with a status socket of its own, or a pool that serves only the status, may have a short path.
            let short = pool.pm_status_listen.is_none() && pool.status_of.is_none();
            self.url_path(pool, "status", path, short)?;
        }
        let Some(path) = written(&pool.ping_path) else {
            pool.ping_response = None;
            return Ok(());
        };
        self.url_path(pool, "ping", path, true)?;
        if let Some(response) = &pool.ping_response
            && response.is_empty()
        {
            let text = "the ping response page '' is not long enough";
            return Err(self.of(pool, Level::Error, text.into()));
        }
        pool.ping_response.get_or_insert_with(|| "pong".into());
        Ok(())
    }

    fn url_path(&mut self, pool: &Pool, what: &str, path: &str, short: bool) -> Result<(), Failed> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
        let wrong = if !path.starts_with('/') {
            "must start with a '/'"
        } else if short && path.len() < 2 {
            "is not long enough"
        } else if !path.bytes().all(allowed) {
            "must contain only the following characters '[alphanum]/_-.~'"
        } else {
            return Ok(());
        };
        Err(self.of(
            pool,
            Level::Error,
            format!("the {what} path '{path}' {wrong}"),
        ))
    }

    fn logs(&mut self, pool: &mut Pool) -> Result<(), Failed> {
        if let Some(log) = written(&pool.access_log) {
            pool.access_log = Some(self.path(log, pool));
            pool.access_format
                .get_or_insert_with(|| "%R - %u %t \"%m %r\" %s".into());
        }
        if let Some(log) = written(&pool.slowlog) {
            pool.slowlog = Some(self.path(log, pool));
        }
        let slow = pool.request_slowlog_timeout;
        let terminate = pool.request_terminate_timeout;
        if slow != 0 {
            let Some(log) = written(&pool.slowlog) else {
                let text = "'slowlog' must be specified for use with 'request_slowlog_timeout'";
                return Err(self.of(pool, Level::Error, text.into()));
            };
            if let Err(error) = self.system.try_log(log) {
                let text = format!("Unable to create or open slowlog({log})");
                self.diagnostics.push(Message::system(text, &error));
                return Err(Failed);
            }
            if terminate != 0 && slow > terminate {
                let text = format!(
                    "'request_slowlog_timeout' ({slow}) can't be greater than \
                     'request_terminate_timeout' ({terminate})"
                );
                return Err(self.of(pool, Level::Error, text));
            }
        }
        let depth = pool.request_slowlog_trace_depth;
        if depth == 0 {
            pool.request_slowlog_trace_depth = TRACE_DEPTH;
        } else if written(&pool.slowlog).is_none() {
            let text = "'slowlog' must be specified for use with 'request_slowlog_trace_depth'";
            return Err(self.of(pool, Level::Error, text.into()));
        } else if depth < 0 {
            let text = format!("'request_slowlog_trace_depth' ({depth}) must be a positive value");
            return Err(self.of(pool, Level::Error, text));
        }
        Ok(())
    }

    fn folders(&mut self, pool: &mut Pool) -> Result<(), Failed> {
        if let Some(chroot) = written(&pool.chroot) {
            let chroot = self.chroot(chroot, pool);
            pool.chroot = Some(chroot.clone());
            let wrong = if !chroot.starts_with('/') {
                "must start with a '/'"
            } else if !self.system.is_folder(&chroot) {
                "does not exist or is not a directory"
            } else {
                ""
            };
            if !wrong.is_empty() {
                let text = format!("the chroot path '{chroot}' {wrong}");
                return Err(self.of(pool, Level::Error, text));
            }
        }
        let Some(chdir) = written(&pool.chdir) else {
            return Ok(());
        };
        let chdir = self.path(chdir, pool);
        pool.chdir = Some(chdir.clone());
        let wrong = if !chdir.starts_with('/') {
            "must start with a '/'".to_owned()
        } else if let Some(chroot) = &pool.chroot {
            let inside = format!("{chroot}/{chdir}");
            match self.system.is_folder(&inside) {
                true => return Ok(()),
                false => format!(
                    "within the chroot path '{chroot}' ('{inside}') does not exist or is not a directory"
                ),
            }
        } else if !self.system.is_folder(&chdir) {
            "does not exist or is not a directory".to_owned()
        } else {
            return Ok(());
        };
        Err(self.of(
            pool,
            Level::Error,
            format!("the chdir path '{chdir}' {wrong}"),
        ))
    }

    /// Expands a `$prefix` at the beginning of a chroot.
    fn chroot(&mut self, chroot: &str, pool: &Pool) -> String {
        if chroot.starts_with('/') {
            return chroot.to_owned();
        }
        match chroot.find("$prefix") {
            Some(0) => match &chroot["$prefix".len()..] {
                "" => self.path(".", pool).trim_end_matches("/.").to_owned(),
                // PHP-FPM puts one slash between prefix and rest, so two slashes are one.
                rest => match self.path("x", pool).strip_suffix('x') {
                    Some(prefix) => format!("{prefix}{rest}"),
                    None => rest.to_owned(),
                },
            },
            Some(_) => {
                let text = "'$prefix' must be use at the beginning of the value";
                self.error(text.into());
                chroot.to_owned()
            }
            None => self.path(chroot, pool),
        }
    }

    /// Makes the relative paths in PHP settings absolute.
    fn expand_values(&self, pool: &mut Pool) {
        let mut values = std::mem::take(&mut pool.php_values);
        let mut admin = std::mem::take(&mut pool.php_admin_values);
        let is_path = |key: &str| {
            PATH_SETTINGS
                .iter()
                .any(|setting| setting.eq_ignore_ascii_case(key))
        };
        for (key, value) in values.iter_mut().filter(|(key, _)| is_path(key)) {
            let _ = key;
            *value = self.path(value, pool);
        }
        for (key, value) in admin.iter_mut().filter(|(key, _)| is_path(key)) {
            let syslog =
                key.eq_ignore_ascii_case("error_log") && value.eq_ignore_ascii_case("syslog");
            if !syslog {
                *value = self.path(value, pool);
            }
        }
        pool.php_values = values;
        pool.php_admin_values = admin;
    }

    fn access_logs(&mut self, pools: &[Pool]) -> Result<(), Failed> {
        let logs = || {
            pools
                .iter()
                .filter_map(|pool| Some((pool, written(&pool.access_log)?)))
        };
        for (_, log) in logs() {
            if let Err(error) = self.system.try_log(log) {
                let text = format!("failed to open access log ({log})");
                self.diagnostics.push(Message::system(text, &error));
                return Err(Failed);
            }
        }
        for (pool, _) in logs() {
            let format = pool.access_format.as_deref().unwrap_or_default();
            if let Err(why) = access_format::check(format) {
                self.diagnostics.push(Message::new(Level::Warning, why));
                let text = format!("wrong format for access.format '{format}'");
                return Err(self.of(pool, Level::Error, text));
            }
        }
        Ok(())
    }

    fn path(&self, path: &str, pool: &Pool) -> String {
        full_path(path, pool.prefix.as_deref(), self.options, PREFIX)
    }

    fn of(&mut self, pool: &Pool, level: Level, text: String) -> Failed {
        let text = format!("[pool {}] {text}", pool.name);
        self.diagnostics.push(Message::new(level, text));
        Failed
    }

    fn error(&mut self, text: String) -> Failed {
        self.diagnostics.push(Message::new(Level::Error, text));
        Failed
    }
}

/// The pool that PHP-FPM creates for `pm.status_listen` of another pool.
fn status_pool(of: &Pool, at: usize, listen: String) -> Pool {
    Pool {
        listen: Some(listen),
        listen_acl_users: of.listen_acl_users.clone(),
        listen_acl_groups: of.listen_acl_groups.clone(),
        listen_allowed_clients: of.listen_allowed_clients.clone(),
        listen_owner: of.listen_owner.clone(),
        listen_group: of.listen_group.clone(),
        listen_mode: of.listen_mode.clone(),
        user: of.user.clone(),
        group: of.group.clone(),
        pm_status_path: of.pm_status_path.clone(),
        pm: Some(Pm::OnDemand),
        pm_max_children: 2,
        status_of: Some(at),
        ..Pool::new(format!("{}_status", of.name))
    }
}

/// The value, if it was written and is not empty.
pub(super) fn written(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|value| !value.is_empty())
}

/// Whether the address is a path: neither `host:port` nor a port.
pub(super) fn is_unix(listen: &str) -> bool {
    !listen.contains(':') && !is_number(listen)
}

/// Whether the name is a user or group by number. As in PHP-FPM, an empty name counts as a number.
pub(super) fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_priority(priority: i32) -> bool {
    priority == UNSET_PRIORITY || (-19..=20).contains(&priority)
}

/// PHP-FPM's text if there is no system error.
const NO_ERROR: &str = ": Success (0)";

/// Default prefix of relative paths in pools.
const PREFIX: &str = "/usr";

/// Default prefix of the pid file and the error log.
const STATE: &str = "/var";

const SHORTEST_LOG_LIMIT: i32 = 512;

/// A number of at least one, as PHP prints it by `%.3g`.
fn three_digits(number: f64) -> String {
    let scientific = format!("{number:.2e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: usize = exponent.parse().unwrap_or(0);
    let plain = match exponent {
        0..3 => format!("{number:.*}", 2 - exponent),
        _ => digits.to_owned(),
    };
    let plain = match plain.contains('.') {
        true => plain.trim_end_matches('0').trim_end_matches('.'),
        false => &plain,
    };
    match exponent {
        0..3 => plain.to_owned(),
        _ => format!("{plain}e+{exponent}"),
    }
}

/// Seconds between two reports to systemd.
const SYSTEMD_INTERVAL: i32 = 10;

const TRACE_DEPTH: i32 = 20;

/// syslog(3)'s LOG_DAEMON.
const DAEMON: i32 = 24;

/// PHP settings whose relative paths PHP-FPM makes absolute.
const PATH_SETTINGS: &[&str] = &[
    "error_log",
    "extension_dir",
    "mime_magic.magicfile",
    "sendmail_path",
    "session.cookie_path",
    "session_pgsql.sem_file_name",
    "soap.wsdl_cache_dir",
    "uploadprogress.file.filename_template",
    "xdebug.output_dir",
    "xdebug.profiler_output_dir",
    "xdebug.trace_output_dir",
    "xmms.path",
    "axis2.client_home",
    "blenc.key_file",
    "coin_acceptor.device",
];
