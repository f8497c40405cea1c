//! What the workers of each pool are started with.

use std::{
    collections::HashMap,
    ffi::OsString,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    rc::Rc,
};

use weir_config::{
    Address, Command, Config, FormatCode, FormatPiece, Level, Log, Php, Pool, PoolId, Runtime,
    Workers,
};
use weir_sys::{
    identity::{self, Identity},
    limits::{self, OpenFiles},
};

use super::{Problem, Program, Runs, Us, check_folder, egress};
use crate::{
    children::environment::Variables,
    php::{Loading, Spec},
    workers::resolve,
};

/// Makes the plans of pools, and collects problems.
pub(super) struct Pools<'a> {
    pub(super) config: &'a Config,
    pub(super) us: &'a Us,
    /// The user of the gateway: workers without a user of their own run as this one, and never as root.
    pub(super) gateway: Option<&'a Identity>,
    /// The workers' own socket of `[egress]`.
    pub(super) egress_socket: Option<&'a Path>,
    /// The limit of open files with which weir was started: workers get the same.
    pub(super) inherited: OpenFiles,
    /// The PHP programs that were already searched: a thousand pools may use the same one.
    pub(super) programs: HashMap<Option<String>, FoundPhp>,
    /// The name of this process in process lists, if it is PHP-FPM's: then PHP's processes have it, too.
    pub(super) fpm_name: Option<String>,
    /// weir's own environment for PHP and programs: a thousand pools share it.
    pub(super) environment: Environment,
    /// For each pool that has no plan yet: see [`sites`].
    pub(super) sites: Vec<Vec<(String, PathBuf)>>,
    /// Warnings.
    pub(super) warnings: Vec<String>,
    pub(super) problems: &'a mut Vec<Problem>,
}

/// The variables of a process, which many pools may share.
pub(super) type Environment = Rc<[(OsString, OsString)]>;

/// A PHP program, or the problem with it: cause and fix.
#[derive(Debug, Clone)]
pub(super) struct FoundPhp {
    program: Result<weir_machine::php::Program, (String, String)>,
    /// What is wrong with the build of its weir-php.
    other_build: Option<(String, String)>,
}

impl FoundPhp {
    fn search(version: Option<&str>) -> Self {
        let program = weir_machine::php::find(version);
        let build = |program: &weir_machine::php::Program| {
            weir_machine::php::check_build(&program.object).err()
        };
        Self {
            other_build: program.as_ref().ok().and_then(build),
            program,
        }
    }
}

impl<'a> Pools<'a> {
    /// `None`: others run its workers, or there was a problem.
    pub(super) fn runs(&mut self, id: PoolId) -> Option<Runs> {
        let pool = &self.config.pools[id.0];
        match &pool.runtime {
            Runtime::Command(command) => {
                let program = self.command(&pool.name, command);
                program.map(|program| Runs::Command(Rc::new(program)))
            }
            Runtime::Php(php) => self.php(id, pool, php).map(|spec| Runs::Php(Rc::new(spec))),
            Runtime::Servers(_) => None,
        }
    }

    fn command(&mut self, pool: &str, command: &Command) -> Option<Program> {
        let table = format!("pool.{pool}");
        let (workers, argv) = (&command.workers, &command.argv);
        let mut program = self.program(&table, argv, workers)?;
        let environment = &mut program.environment;
        if is_php(argv.first()?) && workers.env.iter().all(|(name, _)| name != PHP_REQUESTS) {
            // php-cgi would end after 500 requests, and requests on their way to it would fail. The variable of
            // weir's own environment is removed, because the gateway counts requests only for the configured value.
            environment.retain(|(name, _)| name != PHP_REQUESTS);
            environment.push((PHP_REQUESTS.into(), "0".into()));
        }
        Some(program)
    }

    /// A program of this table that can be started here.
    pub(super) fn program(
        &mut self,
        table: &str,
        argv: &[String],
        workers: &Workers,
    ) -> Option<Program> {
        let identity = self.identity(table, workers);
        self.check_folders(table, workers);
        let (name, arguments) = argv.split_first()?;
        let path = match find_program(name, workers.chroot.as_deref()) {
            Ok(path) => path,
            Err(cause) => {
                let mend = "install it, or write the full path of the program";
                self.problem(table, "command", cause, mend);
                return None;
            }
        };
        // As `weir check`. What a chroot contains is not looked at.
        if workers.chroot.is_none()
            && let Some(who) = &identity
            && let Some(barrier) = weir_machine::may_not_run(&path, who)
        {
            let user = workers.user.as_deref().unwrap_or("the gateway's user");
            let (program, barrier) = (path.display(), barrier.display());
            let cause = format!("{user} cannot run {program}: no permission for {barrier}");
            let mend = format!("chmod o+rx {barrier}, or another user in {table}");
            self.problem(table, "command", cause, &mend);
            return None;
        }
        let reached = self.reached(table, workers, identity.as_ref());
        let open_files = self.open_files(table, workers);
        Some(Program {
            path,
            name: name.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: self.of_program(workers, reached),
            identity,
            chroot: workers.chroot.clone(),
            folder: workers.chdir.clone(),
            open_files,
            core_size: workers.rlimit_core,
            processes: workers.rlimit_processes,
            priority: self.priority(workers),
        })
    }

    fn php(&mut self, id: PoolId, pool: &Pool, php: &Php) -> Option<Spec> {
        let (name, workers) = (&pool.name, &php.workers);
        let table = &format!("pool.{name}");
        let identity = self.identity(table, workers);
        self.check_folders(table, workers);
        if let Some(ini) = &php.ini
            && let Err(error) = ini.metadata()
        {
            let cause = format!("{}: {error}", ini.display());
            self.problem(
                table,
                "php_ini",
                cause,
                "write the path of a php.ini, or of its folder",
            );
        }
        let found = (self.programs.entry(php.version.clone()))
            .or_insert_with(|| FoundPhp::search(php.version.as_deref()))
            .clone();
        if let Some((cause, mend)) = found.other_build {
            self.problem(table, "runtime", cause, &mend);
        }
        let program = match found.program {
            Ok(program) => program,
            Err((cause, mend)) => {
                let key = if php.version.is_some() {
                    "php"
                } else {
                    "runtime"
                };
                self.problem(table, key, cause, &mend);
                return None;
            }
        };
        let mut config = config(pool, php, self.log_as_fpm(id), self.fpm_name.as_deref());
        if workers.clear_env {
            config.push(("clear_env", b"1".to_vec()));
        }
        let reached = self.reached(table, workers, identity.as_ref());
        for (name, value) in self.php_environment(workers, identity.as_ref(), reached) {
            config.push(("env", [name.as_bytes(), b"=", value.as_bytes()].concat()));
        }
        let sites = std::mem::take(&mut self.sites[id.0]);
        if let Some(worker) = &php.worker {
            match booted_script(worker, workers.chroot.as_deref()) {
                Ok(inside) => config.extend(booted(self.config, id, php, &inside)),
                Err((cause, mend)) => self.problem(table, "worker", cause, mend),
            }
        }
        let open_files = self.open_files(table, workers);
        Some(Spec {
            pool: name.clone(),
            program,
            environment: self.environment.clone(),
            chroot: workers.chroot.clone(),
            identity,
            open_files,
            core_size: workers.rlimit_core,
            processes: workers.rlimit_processes,
            priority: self.priority(workers),
            config,
            roots: resolve(&sites),
            sites,
            watch: php.watch_root,
            boot_limit: php.worker.is_some().then_some(php.worker_boot_timeout),
            zygote: php.worker.is_some() && php.worker_zygote,
            own_load: php.own_load,
            loading: Loading::Own("it is not decided yet"),
        })
    }

    /// The workers' user; `None`: ours.
    fn identity(&mut self, table: &str, workers: &Workers) -> Option<Identity> {
        let user = workers.user.as_deref();
        let key = format!("{table}.user");
        let group = workers.group.as_deref();
        match self.us.identity(&key, user, group, self.problems) {
            None if user.is_none() => self.gateway.cloned(),
            identity => identity,
        }
    }

    fn check_folders(&mut self, table: &str, workers: &Workers) {
        let key = |name: &str| format!("{table}.{name}");
        if let Some(chroot) = &workers.chroot {
            if !self.us.root {
                let who = &self.us.name;
                self.problem(
                    table,
                    "chroot",
                    format!("weir runs as {who}, but only root can use chroot"),
                    "start weir as root, or remove chroot",
                );
            }
            check_folder(&key("chroot"), chroot, self.problems);
        }
        if let Some(folder) = &workers.chdir {
            let outside = match &workers.chroot {
                Some(chroot) => beneath(chroot, folder),
                None => folder.clone(),
            };
            check_folder(&key("chdir"), &outside, self.problems);
        }
    }

    /// The complete environment of a program.
    fn of_program(&self, workers: &Workers, egress: Option<&Path>) -> Variables {
        let mut environment = match workers.clear_env {
            true => Vec::new(),
            false => self.environment.to_vec(),
        };
        for (name, value) in self.additions(workers, egress) {
            environment.retain(|(other, _)| *other != name);
            environment.push((name, value));
        }
        environment
    }

    /// The error log, if PHP's messages must look as in PHP-FPM: a web server talks FastCGI to the pool, and the log
    /// has PHP-FPM's format.
    fn log_as_fpm(&self, id: PoolId) -> Option<&Log> {
        self.config
            .is_in_place_of_fpm(id)
            .then_some(&self.config.log)
    }

    /// The additional, or the whole, environment of PHP's workers: their user and home as in PHP-FPM, and the
    /// configured variables.
    fn php_environment(
        &self,
        workers: &Workers,
        identity: Option<&Identity>,
        egress: Option<&Path>,
    ) -> Variables {
        let mut environment = Variables::new();
        let uid = identity.map_or_else(|| identity::current().0, |identity| identity.uid);
        let by_number = workers.user.as_deref().and_then(identity::number);
        // As in PHP-FPM, a user that is configured by number has neither name nor home.
        if let Ok(Some(user)) = self.us.accounts.user_by_id(uid)
            && by_number.is_none()
        {
            environment.push(("USER".into(), user.name.into()));
            environment.push(("HOME".into(), user.home.into()));
        }
        environment.extend(self.additions(workers, egress));
        environment
    }

    /// The workers' own socket of the egress, if these workers can reach it. Adds a warning if they cannot reach any
    /// socket.
    fn reached(
        &mut self,
        table: &str,
        workers: &Workers,
        who: Option<&Identity>,
    ) -> Option<&'a Path> {
        let egress = self.config.egress.as_ref()?;
        let chroot = workers.chroot.as_deref();
        let own = self.egress_socket;
        let listen = egress.listen.iter().filter_map(|address| match address {
            Address::Unix(path) => Some(path.as_path()),
            Address::Tcp(_) => None,
        });
        // The configuration already sets the permissions of those in `listen`.
        let has_other = listen
            .clone()
            .any(|path| egress::out_of_reach(path, chroot, None).is_none());
        let shown = own.or(listen.clone().next())?;
        let cause = egress::out_of_reach(shown, chroot, who.filter(|_| own.is_some()));
        if let Some(cause) = &cause
            && !has_other
        {
            self.warnings.push(format!(
                "[{table}] its processes cannot call over unix:{}: {cause}; write a path that they can reach as `socket` of [egress], or in its `listen`",
                shown.display()
            ));
        }
        own.filter(|_| cause.is_none())
    }

    /// The variables of the egress and of the configuration; if a name occurs twice, the last one counts. `own`: the
    /// workers' own socket.
    fn additions(&self, workers: &Workers, own: Option<&Path>) -> Variables {
        let mut additions = Variables::new();
        if let Some(egress) = &self.config.egress {
            let variables = egress::variables(egress, own, workers.chroot.as_deref());
            additions.extend(
                variables
                    .into_iter()
                    .map(|(name, value)| (name.into(), value)),
            );
        }
        additions.extend(
            workers
                .env
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        additions
    }

    /// As in PHP-FPM: both limits; if we may not set them, those with which weir was started.
    fn open_files(&mut self, table: &str, workers: &Workers) -> OpenFiles {
        let inherited = self.inherited;
        match workers.rlimit_files {
            Some(limit) if limits::may_set_open_files(limit) => OpenFiles {
                soft: limit,
                hard: limit,
            },
            Some(limit) => {
                self.warnings.push(format!(
                    "[{table}] rlimit_files: {limit} is more than weir is allowed to set, so weir's \
                     own limit applies, {}: raise that (systemd: LimitNOFILE=), or lower rlimit_files",
                    inherited.soft
                ));
                inherited
            }
            None => inherited,
        }
    }

    /// Only root may raise the priority (setpriority(2)); others keep theirs, as in PHP-FPM.
    fn priority(&self, workers: &Workers) -> Option<i32> {
        workers.priority.filter(|nice| self.us.root || *nice >= 0)
    }

    /// `table`: `pool.shop`
    pub(super) fn problem(&mut self, table: &str, key: &str, cause: String, mend: &str) {
        let key = format!("{table}.{key}");
        self.problems.push(Problem::new(key, cause, mend));
    }
}

/// For each pool: the roots of the sites whose scripts it runs, with the name of the site and the number of the route; and the
/// folder of an application that stays booted, if it is in none of them.
pub(super) fn sites(config: &Config) -> Vec<Vec<(String, PathBuf)>> {
    let mut of_pools: Vec<Vec<(String, PathBuf)>> = vec![Vec::new(); config.pools.len()];
    for site in &config.sites {
        let routes = site.routes.iter().enumerate();
        let routes = routes.map(|(index, route)| (Some(index), &route.settings));
        for (route, settings) in std::iter::once((None, &site.settings)).chain(routes) {
            let sites = settings.pool.and_then(|pool| of_pools.get_mut(pool.0));
            if let Some(sites) = sites
                && let Some(root) = &settings.root
                && sites.iter().all(|(_, other)| other != root)
            {
                let name = match route {
                    None => site.name.clone(),
                    Some(index) => format!("{} {index}", site.name),
                };
                sites.push((name, root.clone()));
            }
        }
    }
    for (pool, sites) in config.pools.iter().zip(&mut of_pools) {
        if let Runtime::Php(php) = &pool.runtime
            && let Some(folder) = php.worker.as_deref().and_then(Path::parent)
            && sites.iter().all(|(_, root)| !folder.starts_with(root))
        {
            // No site has this name.
            sites.push(("folder of worker".to_owned(), folder.to_owned()));
        }
    }
    of_pools
}

/// The name of this process in process lists, if it is PHP-FPM's.
pub(super) fn fpm_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/self/comm").ok()?;
    let name = name.trim_end();
    name.starts_with("php-fpm").then(|| name.to_owned())
}

/// The settings that a master gets for its pool.
fn config(
    pool: &Pool,
    php: &Php,
    as_fpm: Option<&Log>,
    fpm_name: Option<&str>,
) -> Vec<(&'static str, Vec<u8>)> {
    let workers = &php.workers;
    let mut fields: Vec<(&'static str, Vec<u8>)> = vec![("pool", pool.name.clone().into())];
    let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let yes = || b"1".to_vec();
    fields.extend(
        workers
            .chroot
            .as_deref()
            .map(|folder| ("chroot", path(folder))),
    );
    fields.extend(
        workers
            .chdir
            .as_deref()
            .map(|folder| ("chdir", path(folder))),
    );
    fields.extend(php.ini.as_deref().map(|ini| ("php_ini", path(ini))));
    fields.extend(php.no_ini.then(|| ("no_ini", yes())));
    for (name, value) in &php.define {
        fields.push(("define", format!("{name}={value}").into()));
    }
    if php.opcache_memory > 0 {
        let megabytes = php.opcache_memory >> 20;
        let setting = format!("opcache.memory_consumption={megabytes}");
        fields.push(("define", setting.into()));
    }
    for setting in &php.settings {
        let who = if setting.admin { "admin" } else { "user" };
        let (name, value) = (&setting.name, &setting.value);
        let value = match setting.flag {
            true => flag(value),
            false => value.as_str(),
        };
        fields.push(("ini", format!("{who} {name}={value}").into()));
    }
    for extension in &pool.limit_extensions {
        fields.push(("limit_extensions", extension.clone().into()));
    }
    fields.push(("trace_depth", php.slowlog_depth.to_string().into()));
    fields.extend(fpm_name.map(|name| ("process_name", name.into())));
    if let Some(log) = as_fpm {
        fields.push(("fpm", yes()));
        fields.push(("log_limit", log.error_limit.to_string().into()));
    }
    // PHP-FPM's workers write messages to their standard error, too; here they do so if that goes to the log.
    if let Some(log) = as_fpm.filter(|_| workers.output_log.is_none()) {
        // With PHP-FPM's numbers.
        let level = match log.level {
            Level::Debug => "1",
            Level::Notice => "2",
            Level::Warning => "3",
            Level::Error => "4",
        };
        fields.push(("log_level", level.into()));
    }
    if measures(pool, workers) {
        fields.push(("figures", yes()));
    }
    // The line then has the values at the end of the script, as in PHP-FPM.
    if as_fpm.is_some() && pool.access_log.is_some() {
        fields.push(("notes", yes()));
        for piece in &pool.access_format.pieces {
            match piece {
                FormatPiece::Code(FormatCode::Parameter(name)) => {
                    fields.push(("noted_param", name.clone().into()));
                }
                FormatPiece::Code(FormatCode::Header(name)) => {
                    fields.push(("noted_header", name.clone().into()));
                }
                FormatPiece::Code(_) | FormatPiece::Text(_) => {}
            }
        }
    }
    if php.dumpable {
        fields.push(("dumpable", yes()));
    }
    if let Some(hat) = &php.apparmor_hat {
        fields.push(("apparmor_hat", hat.clone().into()));
    }
    fields
}

/// The path of the script that keeps the application booted, as its process sees it.
fn booted_script(worker: &Path, chroot: Option<&Path>) -> Result<PathBuf, (String, &'static str)> {
    if let Err(error) = worker.metadata() {
        return Err((
            format!("{}: {error}", worker.display()),
            "write the path of the script that calls frankenphp_handle_request()",
        ));
    }
    match chroot.map(|chroot| worker.strip_prefix(chroot)) {
        None => Ok(worker.to_owned()),
        Some(Ok(inside)) => Ok(Path::new("/").join(inside)),
        Some(Err(_)) => Err((
            format!("{} is not inside of chroot", worker.display()),
            "move it inside the chroot",
        )),
    }
}

/// What a master gets for an application that stays booted: the script, the variables that drivers of frameworks look
/// for, and which scripts of requests mean the application.
fn booted(config: &Config, id: PoolId, php: &Php, inside: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let mut fields = vec![("worker", inside.as_os_str().as_bytes().to_vec())];
    let public = inside.parent().unwrap_or(Path::new("/"));
    let base = public.parent().unwrap_or(Path::new("/"));
    let requests = match php.workers.max_requests {
        0 => i64::MAX.to_string(),
        most => most.to_string(),
    };
    let variables: [(&str, &[u8]); 5] = [
        ("APP_BASE_PATH", base.as_os_str().as_bytes()),
        ("APP_PUBLIC_PATH", public.as_os_str().as_bytes()),
        ("LARAVEL_OCTANE", b"1"),
        ("MAX_REQUESTS", requests.as_bytes()),
        ("FRANKENPHP_LOOP_MAX", requests.as_bytes()),
    ];
    let env = &php.workers.env;
    for (name, value) in variables {
        if env.iter().all(|(other, _)| other != name) {
            fields.push(("env", [name.as_bytes(), b"=", value].concat()));
        }
    }
    // OPcache would end, by SIGKILL, all processes that use its memory when that must be cleared, and these use it for as
    // long as they live. weir restarts the pool instead.
    fields.push(("define", b"opcache.force_restart_timeout=0".to_vec()));
    let mut names = vec![b"/index.php".to_vec()];
    if let Some(name) = inside.file_name() {
        names.push([b"/", name.as_bytes()].concat());
    }
    let settings = config.sites.iter().flat_map(|site| {
        let routes = site.routes.iter().map(|route| &route.settings);
        std::iter::once(&site.settings).chain(routes)
    });
    for settings in settings.filter(|settings| settings.pool == Some(id)) {
        let below = |root: &PathBuf| php.worker.as_ref()?.strip_prefix(root).ok();
        if let Some(below) = settings.root.as_ref().and_then(below) {
            names.push([b"/", below.as_os_str().as_bytes()].concat());
        }
        if let Some(fallback) = &settings.fallback {
            let path = fallback.split('?').next().unwrap_or_default();
            names.push(path.as_bytes().to_vec());
        }
    }
    names.sort();
    names.dedup();
    fields.extend(names.into_iter().map(|name| ("worker_script", name)));
    fields
}

/// A switch as PHP-FPM parses it: on, yes, true and 1 in any case; anything else is off.
fn flag(value: &str) -> &'static str {
    let on = ["on", "yes", "true", "1"];
    match on.iter().any(|word| value.eq_ignore_ascii_case(word)) {
        true => "1",
        false => "0",
    }
}

/// Whether the cost of requests is needed: by a page, a log, or a limit.
fn measures(pool: &Pool, workers: &Workers) -> bool {
    pool.status_path.is_some() || pool.access_log.is_some() || workers.max_memory > 0
}

/// Turns a path inside of a folder into the path outside.
fn beneath(folder: &Path, path: &Path) -> PathBuf {
    folder.join(path.strip_prefix("/").unwrap_or(path))
}

/// Whether a command is PHP's own FastCGI program.
fn is_php(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    name.starts_with("php")
}

/// The program's path: unchanged if it has a slash, otherwise searched in PATH; in both cases as seen from inside of
/// `chroot`.
pub(crate) fn find_program(name: &str, chroot: Option<&Path>) -> Result<PathBuf, String> {
    let outside = |path: &Path| chroot.map_or(path.to_owned(), |chroot| beneath(chroot, path));
    let is_program = |path: &Path| {
        outside(path)
            .metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match outside(&path).metadata() {
            Err(error) => Err(format!("program {name}: {error}")),
            Ok(_) if is_program(&path) => Ok(path),
            Ok(_) => Err(format!("{name} is not an executable file")),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
        .ok_or_else(|| format!("program \"{name}\" was not found in PATH"))
}

/// After how many requests php-cgi ends; 0: never.
const PHP_REQUESTS: &str = "PHP_FCGI_MAX_REQUESTS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_path_and_in_path_and_missing_ones_are_named() {
        assert_eq!(find_program("/bin/sh", None).unwrap(), Path::new("/bin/sh"));
        assert!(find_program("sh", None).unwrap().ends_with("sh"));
        assert!(
            find_program("/no/such/program", None)
                .unwrap_err()
                .contains("/no/such/program")
        );
        assert!(
            find_program("no-such-program", None)
                .unwrap_err()
                .contains("no-such-program")
        );
        assert!(
            find_program("/etc/passwd", None)
                .unwrap_err()
                .contains("not an executable")
        );
    }
}
