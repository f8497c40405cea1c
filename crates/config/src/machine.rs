//! Checks of a configuration that depend on the machine: users, programs, folders, limits of the kernel.

mod basic_auth;
mod booted;
mod egress;
mod program;
mod tls;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    Checked,
    diagnostic::{Diagnostic, Severity},
    model::{Address, LogTarget, Pool, Runtime, Settings, Upstream, Workers},
    scalar, texts,
};

/// The questions that [`check_environment`] asks about a machine.
pub trait Machine {
    /// Whether the user exists.
    fn has_user(&self, name: &str) -> bool;
    /// Whether the group exists.
    fn has_group(&self, name: &str) -> bool;
    /// Checks that the path is a folder.
    ///
    /// # Errors
    /// Why it is not, as `path: reason`.
    fn folder(&self, path: &Path) -> Result<(), Obstacle>;
    /// Whether something exists at this path.
    fn exists(&self, path: &Path) -> bool;
    /// The target of a path, with links resolved. If that fails, the path itself.
    fn real(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
    /// The path of a program: a path is used as it is, a name is looked up in PATH.
    fn program(&self, name: &str) -> Option<PathBuf>;
    /// Checks that there is a PHP for weir's own workers, of this version (`8.2`) or in this file if one is given.
    ///
    /// # Errors
    /// The problem, and how to solve it.
    fn php(&self, version: Option<&str>) -> Result<(), (String, String)>;
    /// The first folder on the way to `path` that `user` cannot enter, or `path` itself if `user` cannot list it. It
    /// looks at permission bits only; access control lists may allow more.
    fn barred(&self, path: &Path, user: &str) -> Option<PathBuf>;
    /// Whether `user` may write this file, or create files in this folder, judged as in [`Self::barred`]. `None`: the
    /// current user. True if unknown.
    fn may_write(&self, path: &Path, user: Option<&str>) -> bool;
    /// Checks that the current user may read this file.
    ///
    /// # Errors
    /// Why not, as `path: reason`.
    fn readable(&self, path: &Path) -> Result<(), Obstacle>;
    /// Whether the permission bits of this file let everybody read or write it.
    fn open_to_all(&self, path: &Path) -> bool;
    /// Whether the environment of this process has the variable.
    fn has_variable(&self, name: &str) -> bool;
    /// Whether this process runs as root.
    fn is_root(&self) -> bool;
    /// The default user of the gateway if root starts weir.
    fn usual_user(&self) -> Option<String>;
    /// Where weir notes the times of schedules if `state_dir` does not say it.
    fn usual_state_dir(&self) -> PathBuf;
    /// A symbolic link in the upper folders of a root that leads out of it, and its target.
    fn link_out(&self, root: &Path) -> Option<(PathBuf, PathBuf)> {
        let _ = root;
        None
    }
    /// What prevents `user` from running a program: the program, or a folder on the way to it. Judged as in
    /// [`Self::barred`].
    fn may_not_run(&self, program: &Path, user: &str) -> Option<PathBuf> {
        let _ = (program, user);
        None
    }
    /// Checks the files of a certificate and its key: whether they can be read and fit together. Returns what should be
    /// known of the certificate.
    ///
    /// # Errors
    /// What is wrong with the file of the chain (false) or of the key (true).
    fn certificate(&self, chain: &Path, key: &Path) -> Result<Vec<String>, (bool, String)> {
        let _ = (chain, key);
        Ok(Vec::new())
    }
    /// Checks a file with certificates of authorities.
    ///
    /// # Errors
    /// What is wrong with it.
    fn authorities(&self, file: &Path) -> Result<(), String> {
        let _ = file;
        Ok(())
    }
    /// Checks a file of users and passwords (`basic_auth`).
    ///
    /// # Errors
    /// What is wrong with its lines, each with its number; or with the file.
    fn users(&self, file: &Path) -> Result<(), Vec<String>> {
        let _ = file;
        Ok(())
    }
    /// net.core.somaxconn.
    fn somaxconn(&self) -> Option<u32>;
}

/// Why a path cannot be used as a folder or file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It does not exist, or has another type.
    Absent(String),
    /// No permission to look.
    Barred(String),
}

/// Checks a configuration against the machine that it will run on. Returns the problems with their places.
///
/// The user who checks may be another one than the user who starts weir, and folders in /run may be created only at
/// the start. Problems that depend on this are warnings, or are left to the start.
pub fn check_environment(checked: &Checked, machine: &dyn Machine) -> Vec<Diagnostic> {
    let mut pass = Pass {
        checked,
        machine,
        php: BTreeMap::new(),
        found: Vec::new(),
    };
    pass.server();
    pass.listeners();
    pass.sites();
    for pool in &checked.config.pools {
        pass.pool(pool);
    }
    pass.programs();
    pass.egress();
    pass.tls();
    pass.basic_auth();
    pass.logs();
    scalar::forget_compiled();
    pass.found
}

struct Pass<'a> {
    checked: &'a Checked,
    machine: &'a dyn Machine,
    /// What [`Machine::php`] has said: it reads large files, and a thousand pools may ask for the same.
    php: BTreeMap<Option<String>, Result<(), (String, String)>>,
    found: Vec<Diagnostic>,
}

impl Pass<'_> {
    fn server(&mut self) {
        let server = &self.checked.config.server;
        self.identity(
            "server",
            &server.user,
            &server.group,
            "the gateway is exposed to the internet",
        );
        if let Some(chroot) = &server.chroot {
            self.folder("server.chroot", chroot);
        }
        if server.user.is_none() && self.machine.is_root() && self.machine.usual_user().is_none() {
            self.error(
                "server.user",
                "no usable user found for the gateway",
                "set one: user = \"NAME\"",
            );
        }
        self.spool_dir(&server.spool_dir);
        if let Some(file) = &server.pid_file {
            self.parent("server.pid_file", file);
        }
    }

    /// The user of the gateway. `None`: the user who starts weir.
    fn gateway_user(&self) -> Option<String> {
        let user = self.checked.config.server.user.clone();
        user.or_else(|| match self.machine.is_root() {
            true => self.machine.usual_user(),
            false => None,
        })
    }

    fn spool_dir(&mut self, folder: &Path) {
        let (at, user) = ("server.spool_dir", self.gateway_user());
        if self.folder(at, folder) && !self.machine.may_write(folder, user.as_deref()) {
            let who = user.as_deref().unwrap_or("who checks");
            let message = format!("{who} cannot create files in {}", folder.display());
            self.error(
                at,
                message,
                "give the gateway's user write access, or use another folder",
            );
        }
    }

    fn listeners(&mut self) {
        let somaxconn = self.machine.somaxconn().unwrap_or(u32::MAX);
        for listener in &self.checked.config.listeners {
            let at = |key: &str| format!("listen.{}.{key}", listener.name);
            if listener.backlog > somaxconn {
                let message = format!(
                    "the kernel cuts the backlog of {} to net.core.somaxconn, {somaxconn}",
                    listener.backlog
                );
                let hint = format!(
                    "sysctl -w net.core.somaxconn={0} (to keep it: `net.core.somaxconn = {0}` in \
                     /etc/sysctl.d/60-weir.conf), or write backlog = {somaxconn}",
                    listener.backlog
                );
                self.warning(&at("backlog"), message, &hint);
            }
            if let Address::Unix(path) = &listener.address {
                self.parent(&at("address"), path);
                self.names(
                    &at("owner"),
                    listener.owner.as_deref(),
                    &at("group"),
                    listener.group.as_deref(),
                );
            }
        }
    }

    fn sites(&mut self) {
        for site in &self.checked.config.sites {
            let path = format!("site.{}", site.name);
            self.settings(&path, &site.settings, None);
            let mut routes = site.routes.iter().map(|route| &route.settings);
            if routes.all(|route| route.fallback.is_none()) {
                self.way_to_application(&path, &site.settings);
            }
            for (index, route) in site.routes.iter().enumerate() {
                self.settings(
                    &format!("{path}.route[{index}]"),
                    &route.settings,
                    Some(&site.settings),
                );
            }
        }
    }

    /// Checks the folders of a site, and those of a route if they differ from its site's.
    fn settings(&mut self, path: &str, settings: &Settings, site: Option<&Settings>) {
        let at = |key: &str| format!("{path}.{key}");
        if let Some(root) = &settings.root
            && site.is_none_or(|site| site.root.as_ref() != Some(root))
        {
            if settings.check_files == Some(false) && !self.machine.exists(root) {
                let message = format!(
                    "{} does not exist here, so none of its files are served",
                    root.display()
                );
                self.warning(&at("root"), message, "");
            } else if self.folder(&at("root"), root) {
                self.readable(&at("root"), root);
            }
        }
        if let Some(alias) = &settings.alias
            && self.folder(&at("alias"), &alias.folder)
        {
            self.readable(&at("alias"), &alias.folder);
        }
        self.inside(path, settings, site);
        self.fallback(path, settings, site);
        self.links(path, settings, site);
        for (status, page) in &settings.error_pages {
            let file = match &settings.root {
                Some(root) => root.join(page),
                None => page.clone(),
            };
            let known = site.is_some_and(|site| {
                site.error_pages.get(status) == Some(page) && site.root == settings.root
            });
            if !known && !self.machine.exists(&file) {
                let message = format!("the page for {status} does not exist: {}", file.display());
                self.warning(&at("error_pages"), message, "");
            }
        }
        for folder in &settings.sendfile_dirs {
            if site.is_none_or(|site| !site.sendfile_dirs.contains(folder)) {
                self.folder(&at("sendfile_dirs"), folder);
            }
        }
        for entry in &settings.accel_redirect {
            if site.is_none_or(|site| !site.accel_redirect.contains(entry)) {
                self.folder(&at("accel_redirect"), &entry.1);
            }
        }
    }

    /// Checks that the fallback exists.
    fn fallback(&mut self, path: &str, settings: &Settings, site: Option<&Settings>) {
        let folder = |settings: &Settings| match &settings.alias {
            Some(alias) => Some((alias.folder.clone(), alias.prefix.len())),
            None => settings.root.clone().map(|root| (root, 1)),
        };
        let (Some(fallback), Some((root, prefix))) = (&settings.fallback, folder(settings)) else {
            return;
        };
        let same = |site: &Settings| {
            site.fallback == settings.fallback && folder(site) == folder(settings)
        };
        let made = texts::groups(fallback.split('?').next().unwrap_or_default())
            .next()
            .is_some();
        if site.is_some_and(same) || made || settings.check_files == Some(false) {
            return;
        }
        let pool = settings
            .pool
            .and_then(|id| self.checked.config.pools.get(id.0));
        let url = fallback.split('?').next().unwrap_or_default();
        let script = scalar::regex(&settings.script).ok().and_then(|regex| {
            let name = regex.captures(url)?.get(1)?.as_str().to_owned();
            Some(name)
        });
        // A program other than PHP may know names that are not files.
        let is_php = |name: &str| name.ends_with(".php") || settings.check_files == Some(true);
        if let (Some(name), Some(pool)) = (&script, pool)
            && pool.php().is_none()
            && !is_php(name)
        {
            return;
        }
        let name = script.as_deref().unwrap_or(url);
        let file = root.join(name.get(prefix..).unwrap_or_default());
        if self.machine.folder(&root).is_ok() && !self.machine.exists(&file) {
            let message = format!("the fallback does not exist: {}", file.display());
            let leads = pool.and_then(|pool| booted::fallback_to(pool, &root));
            let write = match leads {
                Some(url) => {
                    format!("write fallback = \"{url}\", which leads to `worker` of its pool")
                }
                None => "write an existing file, or remove fallback".to_owned(),
            };
            let hint = format!("URLs without a file are answered with 404: {write}");
            self.warning(&format!("{path}.fallback"), message, &hint);
        }
    }

    /// Checks for links that lead out of a root, as in Debian's packages.
    fn links(&mut self, path: &str, settings: &Settings, site: Option<&Settings>) {
        if settings.follow_symlinks {
            return;
        }
        let (key, folder, known) = match (&settings.alias, &settings.root) {
            (Some(alias), _) => ("alias", &alias.folder, false),
            (None, Some(root)) => (
                "root",
                root,
                site.is_some_and(|site| site.root.as_ref() == Some(root)),
            ),
            (None, None) => return,
        };
        if known {
            return;
        }
        if let Some((link, target)) = self.machine.link_out(folder) {
            let message = format!(
                "{} leads out of it, to {}: requests for files there are answered with 403",
                link.display(),
                target.display()
            );
            let hint = "write follow_symlinks = true if you trust everyone who can create links \
                        there; Debian's packages have such links";
            self.warning(&format!("{path}.{key}"), message, hint);
        }
    }

    /// Checks that workers in a chroot can see the root.
    fn inside(&mut self, path: &str, settings: &Settings, site: Option<&Settings>) {
        let pool = settings
            .pool
            .and_then(|id| self.checked.config.pools.get(id.0));
        let workers = pool.and_then(Pool::workers);
        let (Some(root), Some(chroot), Some(pool)) = (
            &settings.root,
            workers.and_then(|workers| workers.chroot.as_ref()),
            pool,
        ) else {
            return;
        };
        let same = |site: &Settings| (&site.root, site.pool) == (&settings.root, settings.pool);
        if settings.script_root.is_some() || site.is_some_and(same) {
            return;
        }
        let (root, chroot) = (self.machine.real(root), self.machine.real(chroot));
        if !root.starts_with(&chroot) {
            let message = format!(
                "the workers of [pool.{}] are in the chroot {} and cannot see {}",
                pool.name,
                chroot.display(),
                root.display()
            );
            let hint = "move it inside the chroot, or set script_root to its path inside";
            self.warning(&format!("{path}.root"), message, hint);
        }
    }

    fn pool(&mut self, pool: &Pool) {
        let path = format!("pool.{}", pool.name);
        if let Some(file) = &pool.access_log {
            self.log_file(&format!("{path}.access_log"), file);
        }
        match &pool.runtime {
            Runtime::Php(php) => {
                let known = self.php.entry(php.version.clone());
                let known = known.or_insert_with(|| self.machine.php(php.version.as_deref()));
                if let Err((message, hint)) = known.clone() {
                    let key = match php.version {
                        Some(_) => "php",
                        None => "runtime",
                    };
                    self.error(&format!("{path}.{key}"), message, &hint);
                }
                if let Some(ini) = &php.ini
                    && !self.machine.exists(ini)
                {
                    self.error(
                        &format!("{path}.php_ini"),
                        format!("{} does not exist", ini.display()),
                        "write the path of a php.ini, or of its folder",
                    );
                }
                if let Some(file) = &php.worker {
                    self.booted_script(&format!("{path}.worker"), file, &php.workers);
                }
                if let Some(file) = &php.slowlog {
                    self.log_file(&format!("{path}.slowlog"), file);
                }
                self.workers(&path, &php.workers, FOR_CLIENTS);
            }
            Runtime::Command(command) => {
                self.program(&path, &command.argv, &command.workers);
                self.workers(&path, &command.workers, FOR_CLIENTS);
            }
            Runtime::Servers(servers) => {
                for server in &servers.list {
                    if let Upstream::At(Address::Unix(socket)) = &server.address
                        && !self.machine.exists(socket)
                    {
                        let message = format!(
                            "nothing is listening there yet: {} does not exist",
                            socket.display()
                        );
                        self.warning(
                            &format!("{path}.servers"),
                            message,
                            "start the server, or correct the path",
                        );
                    }
                }
            }
        }
    }

    fn program(&mut self, path: &str, argv: &[String], workers: &Workers) {
        if let Some(program) = argv.first()
            && self.machine.program(program).is_none()
        {
            let message = match program.contains('/') {
                true => format!("{program} does not exist or is not executable"),
                false => format!("program {program:?} was not found in PATH"),
            };
            let hint = match program.ends_with("php-cgi") {
                true => "install the package php-cgi",
                false => "",
            };
            return self.error(&format!("{path}.command"), message, hint);
        }
        let Some(program) = argv.first().and_then(|name| self.machine.program(name)) else {
            return;
        };
        // Only root can start it as another user.
        let user = workers.user.clone().filter(|_| self.machine.is_root());
        if let Some(user) = user.or_else(|| self.gateway_user())
            && workers.chroot.is_none()
            && let Some(barrier) = self.machine.may_not_run(&program, &user)
        {
            let message = format!(
                "{user} cannot run {}: no permission for {}",
                program.display(),
                barrier.display()
            );
            let hint = format!(
                "chmod o+rx {}, or another user in {path}",
                barrier.display()
            );
            self.error(&format!("{path}.command"), message, &hint);
        }
    }

    fn workers(&mut self, path: &str, workers: &Workers, why: &str) {
        if let Some(chroot) = &workers.chroot {
            self.folder(&format!("{path}.chroot"), chroot);
        }
        if let Some(chdir) = &workers.chdir {
            let seen_from_outside = match &workers.chroot {
                Some(chroot) => chroot.join(chdir.strip_prefix("/").unwrap_or(chdir)),
                None => chdir.clone(),
            };
            self.folder(&format!("{path}.chdir"), &seen_from_outside);
        }
        if let Some(LogTarget::File(file)) = &workers.output_log {
            self.log_file(&format!("{path}.output_log"), file);
        }
        self.identity(path, &workers.user, &workers.group, why);
    }

    fn logs(&mut self) {
        let log = &self.checked.config.log;
        // Calls without a log of their own are in the access log of requests. The default file is in the folder of the
        // access log.
        let egress = match log.egress.folder() == log.access.folder() {
            true => &LogTarget::Off,
            false => &log.egress,
        };
        let targets = [
            ("log.access", &log.access),
            ("log.egress", egress),
            ("log.error", &log.error),
        ];
        for (key, target) in targets {
            if let LogTarget::File(file) = target {
                self.log_file(key, file);
            }
        }
    }

    /// Checks a log file: the user who starts weir opens it for appending.
    fn log_file(&mut self, at: &str, file: &Path) {
        if self.machine.folder(file).is_ok() {
            return self.error(at, format!("{} is a folder", file.display()), "");
        }
        let Some(folder) = file.parent() else { return };
        if !self.folder(at, folder) {
            return;
        }
        let written = match self.machine.exists(file) {
            true => file,
            false => folder,
        };
        if !self.machine.may_write(written, None) {
            let message = format!(
                "the user who runs this check cannot write {}",
                written.display()
            );
            // If the gateway changes its user, root starts weir, and root may write.
            match self.machine.is_root() || self.checked.config.server.user.is_none() {
                true => self.error(
                    at,
                    message,
                    "give the user who starts weir write access there",
                ),
                false => self.warning(at, message, "root can, and root seems to start weir"),
            }
        }
    }

    /// Checks that the identity of a process exists and is not root.
    fn identity(&mut self, path: &str, user: &Option<String>, group: &Option<String>, why: &str) {
        let at = format!("{path}.user");
        self.names(
            &at,
            user.as_deref(),
            &format!("{path}.group"),
            group.as_deref(),
        );
        if let Some(name) = user
            && group.is_none()
            && is_number(name)
            && !self.machine.has_user(name)
        {
            let message = format!("no user has the number {name}, so its group is not known");
            self.error(&at, message, "also write group = \"NAME or number\"");
        }
        if user.as_deref() == Some("root") {
            let message = format!("`user` cannot be root: {why}");
            self.error(
                &at,
                message,
                "write user = \"www-data\", or a user of its own",
            );
        }
    }

    fn names(&mut self, user_at: &str, user: Option<&str>, group_at: &str, group: Option<&str>) {
        if let Some(user) = user.filter(|user| !is_number(user) && !self.machine.has_user(user)) {
            let hint = format!("useradd --system --no-create-home {user}");
            self.error(user_at, format!("user {user:?} does not exist"), &hint);
        }
        if let Some(group) = group.filter(|group| !self.machine.has_group(group)) {
            let hint = format!("groupadd --system {group}");
            self.error(group_at, format!("group {group:?} does not exist"), &hint);
        }
    }

    fn folder(&mut self, at: &str, path: &Path) -> bool {
        match self.machine.folder(path) {
            Ok(()) => return true,
            Err(Obstacle::Absent(reason)) => {
                let hint = match self.machine.exists(path) {
                    true => "write a folder".to_owned(),
                    false => format!("mkdir -p {}, or correct the path", path.display()),
                };
                self.error(at, reason, &hint);
            }
            Err(Obstacle::Barred(reason)) => self.warning(at, reason, ""),
        }
        false
    }

    /// Checks the folder of a file that weir creates.
    fn parent(&mut self, at: &str, file: &Path) {
        let Some(folder) = file.parent() else {
            return;
        };
        let hint = format!("mkdir -p {}, or correct the path", folder.display());
        match self.machine.folder(folder) {
            Ok(()) => {}
            // These folders are empty after every boot; the user who starts weir creates their content.
            Err(Obstacle::Absent(reason))
                if ["/run", "/var/run", "/tmp"]
                    .iter()
                    .any(|made| folder.starts_with(made)) =>
            {
                self.warning(
                    at,
                    reason,
                    &format!("{hint}; systemd makes it with RuntimeDirectory="),
                );
            }
            Err(Obstacle::Absent(reason)) => self.error(at, reason, &hint),
            Err(Obstacle::Barred(reason)) => self.warning(at, reason, ""),
        }
    }

    fn readable(&mut self, at: &str, root: &Path) {
        let Some(user) = self.gateway_user() else {
            return;
        };
        if let Some(barrier) = self.machine.barred(root, &user) {
            let barrier = barrier.display();
            let message =
                format!("{user} cannot read {barrier}, so everything is answered with 403");
            let hint = format!("chmod o+rx {barrier}, or another user in [server]");
            self.warning(at, message, &hint);
        }
    }

    fn error(&mut self, at: &str, message: impl Into<String>, hint: &str) {
        self.push(Severity::Error, at, message.into(), hint);
    }

    fn warning(&mut self, at: &str, message: impl Into<String>, hint: &str) {
        self.push(Severity::Warning, at, message.into(), hint);
    }

    fn push(&mut self, severity: Severity, at: &str, message: String, hint: &str) {
        self.found.push(Diagnostic {
            severity,
            span: self.checked.places.of(at),
            message,
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
        });
    }
}

/// Why no worker may be root.
const FOR_CLIENTS: &str = "the workers run code for clients";

/// Whether a text is a user's number. A number needs no entry in the user database.
fn is_number(text: &str) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    // The largest number means "unchanged" to the kernel.
    digits && text.parse().is_ok_and(|number: u32| number != u32::MAX)
}
