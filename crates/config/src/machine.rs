//! What only the machine can tell about a configuration: users, programs, folders, the kernel's limits.

use std::path::{Path, PathBuf};

use crate::{
    Checked,
    diagnostic::{Diagnostic, Severity},
    model::{Address, Command, LogTarget, Pool, Runtime, Settings},
};

/// What [`check_environment`] asks of a machine.
pub trait Machine {
    /// weir runs as root, so it can take other identities.
    fn is_root(&self) -> bool;
    /// Name of the user that weir runs as, if it has one.
    fn current_user(&self) -> Option<String>;
    /// There is such a user.
    fn has_user(&self, name: &str) -> bool;
    /// There is such a group.
    fn has_group(&self, name: &str) -> bool;
    /// It is a folder.
    ///
    /// # Errors
    /// Why not, as `path: reason`.
    fn folder(&self, path: &Path) -> Result<(), Obstacle>;
    /// There is something at this path.
    fn exists(&self, path: &Path) -> bool;
    /// Where a program is: a path as it stands, a name as PATH says.
    fn program(&self, name: &str) -> Option<PathBuf>;
    /// The first folder on the way to `path` that `user` (none: who we are) may not enter, or `path` itself, if it
    /// may not be listed. Judged by permission bits alone; access control lists may say otherwise.
    fn barred(&self, path: &Path, user: Option<&str>) -> Option<PathBuf>;
    /// net.core.somaxconn.
    fn somaxconn(&self) -> Option<u32>;
}

/// Why something is no folder that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It is not there, or is something else.
    Absent(String),
    /// We may not look.
    Barred(String),
}

/// What a configuration is checked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It is used now, by this process.
    Start,
    /// Somebody wants to know; another user may start weir, and folders in /run may be made then.
    Check,
}

/// Checks a configuration against the machine that it is to run on, and returns what is wrong, with its place.
pub fn check_environment(
    checked: &Checked,
    machine: &dyn Machine,
    purpose: Purpose,
) -> Vec<Diagnostic> {
    let mut pass = Pass {
        checked,
        machine,
        purpose,
        found: Vec::new(),
    };
    pass.server();
    pass.listeners();
    pass.sites();
    for pool in &checked.config.pools {
        pass.pool(pool);
    }
    pass.logs();
    pass.found
}

struct Pass<'a> {
    checked: &'a Checked,
    machine: &'a dyn Machine,
    purpose: Purpose,
    found: Vec<Diagnostic>,
}

impl Pass<'_> {
    fn server(&mut self) {
        let server = &self.checked.config.server;
        self.identity(
            "server",
            &server.user,
            &server.group,
            "the gateway meets the internet",
        );
        if let Some(chroot) = &server.chroot {
            self.folder("server.chroot", chroot);
            if self.purpose == Purpose::Start && !self.machine.is_root() {
                self.error(
                    "server.chroot",
                    "only root can lock a process into a folder",
                    "start weir as root",
                );
            }
        }
        self.folder("server.spool_dir", &server.spool_dir);
        if let Some(file) = &server.pid_file {
            self.parent("server.pid_file", file);
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
                    "sysctl net.core.somaxconn={}, or write backlog = {somaxconn}",
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
            for (index, route) in site.routes.iter().enumerate() {
                self.settings(
                    &format!("{path}.route[{index}]"),
                    &route.settings,
                    Some(&site.settings),
                );
            }
        }
    }

    /// The folders of a site; of a route only where they are not its site's.
    fn settings(&mut self, path: &str, settings: &Settings, site: Option<&Settings>) {
        let at = |key: &str| format!("{path}.{key}");
        if let Some(root) = &settings.root
            && site.is_none_or(|site| site.root.as_ref() != Some(root))
            && self.folder(&at("root"), root)
        {
            self.readable(&at("root"), root);
        }
        for (status, page) in &settings.error_pages {
            let file = match &settings.root {
                Some(root) => root.join(page),
                None => page.clone(),
            };
            let known = site.is_some_and(|site| {
                site.error_pages.get(status) == Some(page) && site.root == settings.root
            });
            if !known && !self.machine.exists(&file) {
                let message = format!("the page for {status} is not there: {}", file.display());
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

    fn pool(&mut self, pool: &Pool) {
        let path = format!("pool.{}", pool.name);
        match &pool.runtime {
            Runtime::Command(command) => self.command(&path, command),
            Runtime::Servers(servers) => {
                for server in servers {
                    if let Address::Unix(socket) = server
                        && !self.machine.exists(socket)
                    {
                        let message = format!(
                            "nothing listens there yet: {} does not exist",
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

    fn command(&mut self, path: &str, command: &Command) {
        if let Some(program) = command.argv.first()
            && self.machine.program(program).is_none()
        {
            let message = match program.contains('/') {
                true => format!("{program} is not there, or is no program"),
                false => format!("there is no program {program:?} in PATH"),
            };
            let hint = match program.ends_with("php-cgi") {
                true => "it comes with the package php-cgi",
                false => "",
            };
            self.error(&format!("{path}.command"), message, hint);
        }
        if let Some(chdir) = &command.chdir {
            self.folder(&format!("{path}.chdir"), chdir);
        }
        self.identity(
            path,
            &command.user,
            &command.group,
            "what workers run comes from outside",
        );
    }

    fn logs(&mut self) {
        let log = &self.checked.config.log;
        for (key, target) in [("log.access", &log.access), ("log.error", &log.error)] {
            if let LogTarget::File(file) = target {
                self.parent(key, file);
            }
        }
    }

    /// The identity that a process takes: known, not root, and one that we can take.
    fn identity(&mut self, path: &str, user: &Option<String>, group: &Option<String>, why: &str) {
        let at = format!("{path}.user");
        if !self.names(
            &at,
            user.as_deref(),
            &format!("{path}.group"),
            group.as_deref(),
        ) {
            return;
        }
        match user.as_deref() {
            None if self.machine.is_root() => {
                let message = format!("weir is started as root and `user` is missing: {why}");
                let hint = format!("add user = \"www-data\" to [{path}], or a user of its own");
                match self.purpose {
                    Purpose::Start => self.error(&at, message, &hint),
                    Purpose::Check => self.warning(&at, message, &hint),
                }
            }
            Some("root") => {
                let message = format!("`user` cannot be root: {why}");
                self.error(
                    &at,
                    message,
                    "write user = \"www-data\", or a user of its own",
                );
            }
            Some(user) if self.purpose == Purpose::Start && !self.is(user) => {
                let message = "`user` has no effect: only root can take another identity";
                self.warning(
                    &at,
                    message,
                    "start weir as root, or leave `user` and `group` out",
                );
            }
            _ => {}
        }
    }

    /// We are root, who can be everyone, or this user.
    fn is(&self, user: &str) -> bool {
        self.machine.is_root() || self.machine.current_user().as_deref() == Some(user)
    }

    fn names(
        &mut self,
        user_at: &str,
        user: Option<&str>,
        group_at: &str,
        group: Option<&str>,
    ) -> bool {
        let mut known = true;
        if let Some(user) = user.filter(|user| !self.machine.has_user(user)) {
            let hint = format!("useradd --system --no-create-home {user}");
            self.error(user_at, format!("there is no user {user:?}"), &hint);
            known = false;
        }
        if let Some(group) = group.filter(|group| !self.machine.has_group(group)) {
            self.error(
                group_at,
                format!("there is no group {group:?}"),
                &format!("groupadd --system {group}"),
            );
            known = false;
        }
        known
    }

    fn folder(&mut self, at: &str, path: &Path) -> bool {
        match self.machine.folder(path) {
            Ok(()) => return true,
            Err(Obstacle::Barred(reason)) if self.purpose == Purpose::Check => {
                self.warning(at, reason, "")
            }
            Err(Obstacle::Absent(reason) | Obstacle::Barred(reason)) => self.error(at, reason, ""),
        }
        false
    }

    /// The folder of a file that weir makes.
    fn parent(&mut self, at: &str, file: &Path) {
        let Some(folder) = file.parent() else { return };
        match (self.machine.folder(folder), self.purpose) {
            (Ok(()), _) => {}
            (Err(Obstacle::Absent(reason) | Obstacle::Barred(reason)), Purpose::Check) => {
                self.warning(at, reason, "")
            }
            (Err(Obstacle::Absent(reason) | Obstacle::Barred(reason)), Purpose::Start) => {
                self.error(at, reason, "")
            }
        }
    }

    fn readable(&mut self, at: &str, root: &Path) {
        let user = match (
            self.machine.is_root(),
            self.checked.config.server.user.as_deref(),
        ) {
            (true, Some(user)) => Some(user),
            (false, None) => None,
            // Who will run is not known yet, or may not be looked at from here.
            _ => return,
        };
        if let Some(barrier) = self.machine.barred(root, user) {
            let who = user.unwrap_or("the user that weir runs as");
            let message = format!(
                "{who} may not read {}, so 403 to everything",
                barrier.display()
            );
            self.warning(
                at,
                message,
                &format!(
                    "chmod o+rx {}, or another user in [server]",
                    barrier.display()
                ),
            );
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
