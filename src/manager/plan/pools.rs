//! What each pool's workers are started with.

use std::{
    ffi::OsString,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    rc::Rc,
};

use weir_config::{
    Command, Config, ErrorFormat, Level, Log, Php, Pool, PoolId, Protocol, Runtime, Workers,
};
use weir_sys::{
    identity::{self, Identity},
    limits::{self, OpenFiles},
};

use super::{Problem, Program, Runs, Us, check_folder, egress};
use crate::manager::{php::Spec, workers::resolve};

/// Makes the plans of pools, and notes what stands against them.
pub(super) struct Pools<'a> {
    pub(super) config: &'a Config,
    pub(super) us: &'a Us,
    /// Who the gateway becomes: so do workers of nobody in particular, and never root.
    pub(super) gateway: Option<&'a Identity>,
    /// The limit of open files that weir was started with: workers get it again.
    pub(super) inherited: OpenFiles,
    /// What will bite.
    pub(super) warnings: Vec<String>,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl Pools<'_> {
    /// None: others run its workers, or there was a problem.
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
        let workers = &command.workers;
        let identity = self.identity(pool, workers);
        self.check_folders(pool, workers);
        let (name, arguments) = command.argv.split_first()?;
        let path = match find_program(name, workers.chroot.as_deref()) {
            Ok(path) => path,
            Err(cause) => {
                let mend = "install it, or write the whole path of the program";
                self.problem(pool, "command", cause, mend);
                return None;
            }
        };
        let mut environment = self.environment(workers);
        if is_php(name) && workers.env.iter().all(|(name, _)| name != PHP_REQUESTS) {
            // php-cgi would leave after 500 requests, and take what is on its way to it along. Whatever weir's own
            // environment says: the gateway counts along only where the configuration does.
            environment.retain(|(name, _)| name != PHP_REQUESTS);
            environment.push((PHP_REQUESTS.into(), "0".into()));
        }
        let open_files = self.open_files(pool, workers);
        Some(Program {
            path,
            name: name.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment,
            identity,
            chroot: workers.chroot.clone(),
            folder: workers.chdir.clone(),
            open_files,
            core_size: workers.rlimit_core,
            priority: self.priority(workers),
        })
    }

    fn php(&mut self, id: PoolId, pool: &Pool, php: &Php) -> Option<Spec> {
        let (name, workers) = (&pool.name, &php.workers);
        let identity = self.identity(name, workers);
        self.check_folders(name, workers);
        if let Some(ini) = &php.ini
            && let Err(error) = ini.metadata()
        {
            let cause = format!("{}: {error}", ini.display());
            self.problem(
                name,
                "php_ini",
                cause,
                "write the path of a php.ini, or of its folder",
            );
        }
        let program = match crate::machine::php::find(php.version.as_deref()) {
            Ok((_, path)) => {
                if let Err((cause, mend)) = crate::machine::php::check_build(&path) {
                    self.problem(name, "runtime", cause, &mend);
                }
                path
            }
            Err((cause, mend)) => {
                let key = if php.version.is_some() {
                    "php"
                } else {
                    "runtime"
                };
                self.problem(name, key, cause, &mend);
                return None;
            }
        };
        let environment = self.start_environment(workers);
        let mut config = config(pool, php, self.log_as_fpm(id));
        if workers.clear_env {
            config.push(("clear_env", b"1".to_vec()));
        }
        for (name, value) in self.php_environment(workers, identity.as_ref()) {
            config.push(("env", [name.as_bytes(), b"=", value.as_bytes()].concat()));
        }
        let sites = sites(self.config, id);
        let open_files = self.open_files(name, workers);
        Some(Spec {
            pool: name.clone(),
            program,
            environment,
            chroot: workers.chroot.clone(),
            identity,
            open_files,
            core_size: workers.rlimit_core,
            priority: self.priority(workers),
            config,
            roots: resolve(&sites),
            sites,
            watch: php.watch_root,
        })
    }

    /// Who the workers are; none: who we are.
    fn identity(&mut self, pool: &str, workers: &Workers) -> Option<Identity> {
        let user = workers.user.as_deref();
        let key = format!("pool.{pool}.user");
        let group = workers.group.as_deref();
        match self.us.identity(&key, user, group, self.problems) {
            None if user.is_none() => self.gateway.cloned(),
            identity => identity,
        }
    }

    fn check_folders(&mut self, pool: &str, workers: &Workers) {
        let key = |name: &str| format!("pool.{pool}.{name}");
        if let Some(chroot) = &workers.chroot {
            if !self.us.root {
                let who = &self.us.name;
                self.problem(
                    pool,
                    "chroot",
                    format!("weir runs as {who}, and only root can lock workers in"),
                    "start weir as root, or take chroot out",
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

    /// The whole environment of a program.
    fn environment(&self, workers: &Workers) -> Vec<(OsString, OsString)> {
        let mut environment: Vec<(OsString, OsString)> = match workers.clear_env {
            true => Vec::new(),
            false => std::env::vars_os().collect(),
        };
        for (name, value) in self.additions(workers) {
            environment.retain(|(other, _)| *other != name);
            environment.push((name, value));
        }
        environment
    }

    /// The error log, where PHP's messages are to look as PHP-FPM's: a web server speaks FastCGI to the pool, and the log
    /// has PHP-FPM's format.
    fn log_as_fpm(&self, id: PoolId) -> Option<&Log> {
        let listeners = &self.config.listeners;
        let spoken = listeners.iter().any(|listener| {
            matches!(&listener.protocol, Protocol::FastCgi(fastcgi) if fastcgi.pool == id && !fastcgi.status_only)
        });
        let log = &self.config.log;
        (spoken && log.error_format == ErrorFormat::Fpm).then_some(log)
    }

    /// What PHP is started with: our own environment, which php.ini may name, whatever scripts find afterwards. What is
    /// only for `[egress]` is not passed on where scripts are not to have it.
    fn start_environment(&self, workers: &Workers) -> Vec<(OsString, OsString)> {
        let secret: Vec<&str> = match &self.config.egress {
            Some(egress) if workers.clear_env => egress.variables(),
            _ => Vec::new(),
        };
        std::env::vars_os()
            .filter(|(name, _)| secret.iter().all(|secret| name != secret))
            .collect()
    }

    /// What PHP's workers find beside that, or alone: who they are and where their home is, as PHP-FPM has it, and what is
    /// configured.
    fn php_environment(
        &self,
        workers: &Workers,
        identity: Option<&Identity>,
    ) -> Vec<(OsString, OsString)> {
        let mut environment: Vec<(OsString, OsString)> = Vec::new();
        let uid = identity.map_or_else(|| identity::current().0, |identity| identity.uid);
        let by_number = workers.user.as_deref().and_then(identity::number);
        // As in PHP-FPM, a user that is configured by its number has neither name nor home.
        if let Ok(Some(user)) = identity::user_by_id(uid)
            && by_number.is_none()
        {
            environment.push(("USER".into(), user.name.into()));
            environment.push(("HOME".into(), user.home.into()));
        }
        environment.extend(self.additions(workers));
        environment
    }

    /// Where the egress is, and what is configured; the last of a name counts.
    fn additions(&self, workers: &Workers) -> Vec<(OsString, OsString)> {
        let mut additions: Vec<(OsString, OsString)> = Vec::new();
        if let Some(egress) = &self.config.egress {
            let variables = egress::variables(egress, workers.chroot.as_deref());
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

    /// As PHP-FPM sets it: both limits; where we may not, those that weir was started with.
    fn open_files(&mut self, pool: &str, workers: &Workers) -> OpenFiles {
        let inherited = self.inherited;
        match workers.rlimit_files {
            Some(limit) if limits::may_set_open_files(limit) => OpenFiles {
                soft: limit,
                hard: limit,
            },
            Some(limit) => {
                self.warnings.push(format!(
                    "[pool.{pool}] rlimit_files: {limit} is more than weir may give, so the pool keeps the limit that \
                     weir was started with, {}: raise that (systemd: LimitNOFILE=), or lower rlimit_files",
                    inherited.soft
                ));
                inherited
            }
            None => inherited,
        }
    }

    /// Only root may be served before others (setpriority(2)); who cannot goes on as it is, as PHP-FPM does.
    fn priority(&self, workers: &Workers) -> Option<i32> {
        workers.priority.filter(|nice| self.us.root || *nice >= 0)
    }

    fn problem(&mut self, pool: &str, key: &str, cause: String, mend: &str) {
        let key = format!("pool.{pool}.{key}");
        self.problems.push(Problem::new(key, cause, mend));
    }
}

/// The roots of what the pool runs scripts of, by the name of the site, with the route's number.
fn sites(config: &Config, pool: PoolId) -> Vec<(String, PathBuf)> {
    let mut sites = Vec::new();
    for site in &config.sites {
        let routes = site.routes.iter().enumerate();
        let routes = routes.map(|(index, r)| (format!("{} {index}", site.name), &r.settings));
        for (name, settings) in std::iter::once((site.name.clone(), &site.settings)).chain(routes) {
            if let Some(root) = &settings.root
                && settings.pool == Some(pool)
                && sites.iter().all(|(_, other)| other != root)
            {
                sites.push((name, root.clone()));
            }
        }
    }
    sites
}

/// What a master is told of its pool.
fn config(pool: &Pool, php: &Php, as_fpm: Option<&Log>) -> Vec<(&'static str, Vec<u8>)> {
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
    // Whoever looks for PHP-FPM's processes by their name finds these.
    let process_name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    if process_name.starts_with("php-fpm") {
        fields.push(("process_name", process_name.trim_end().into()));
    }
    if let Some(log) = as_fpm {
        fields.push(("log_limit", log.error_limit.to_string().into()));
    }
    // PHP-FPM's workers write messages to their standard error, too; here, where that is written to its log.
    if let Some(log) = as_fpm.filter(|_| workers.output_log.is_none()) {
        // As PHP-FPM numbers them.
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
    if php.dumpable {
        fields.push(("dumpable", yes()));
    }
    fields
}

/// A switch as PHP-FPM reads one: on, yes, true and 1 in any case; anything else is off.
fn flag(value: &str) -> &'static str {
    let on = ["on", "yes", "true", "1"];
    match on.iter().any(|word| value.eq_ignore_ascii_case(word)) {
        true => "1",
        false => "0",
    }
}

/// Whether somebody looks at what a request cost: a page, a log, a limit.
fn measures(pool: &Pool, workers: &Workers) -> bool {
    pool.status_path.is_some() || pool.access_log.is_some() || workers.max_memory > 0
}

/// A path as seen from inside of a folder, seen from outside.
fn beneath(folder: &Path, path: &Path) -> PathBuf {
    folder.join(path.strip_prefix("/").unwrap_or(path))
}

/// Whether a command is PHP's own FastCGI program.
fn is_php(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    name.starts_with("php")
}

/// The program's path: as it is if it has a slash, else looked for in PATH; in either case as seen from inside of
/// `chroot`.
fn find_program(name: &str, chroot: Option<&Path>) -> Result<PathBuf, String> {
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
            Ok(_) => Err(format!("{name} is no program: not an executable file")),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
        .ok_or_else(|| format!("there is no program \"{name}\" in PATH"))
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
