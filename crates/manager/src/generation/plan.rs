//! Turns a configuration into a plan for this machine, or lists everything that prevents it.
//!
//! Everything that can be known to fail is found here, before anything is bound or started: users are resolved,
//! programs and folders are searched. Each problem has its place in the configuration, the cause, and the fix.

pub(crate) mod egress;
pub(crate) mod loads;
mod pools;
mod programs;

pub(crate) use self::{pools::find_program, programs::PlannedProgram};

use std::{
    collections::HashMap,
    ffi::OsString,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    rc::Rc,
};

use weir_config::{Address, Config, Egress, Listener, Machine as _, PoolId, Settings};
use weir_control::{Jail, Reactors};
use weir_machine::{
    ThisMachine, USUAL_USERS,
    accounts::Accounts,
    findings::{Finding, Severity},
};
use weir_observe::error_log::{self, Format};
use weir_sys::{
    file,
    identity::{self, Identity},
    limits::OpenFiles,
    listener::Rights,
    process::Spawn,
};

use self::{egress::OwnSocket, pools::Pools};
use crate::{children::environment, output::log_files::LogFiles, php::Spec};

/// A problem that prevents serving a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The key in question: `server.user`, `listen.web.address`.
    pub(crate) key: String,
    /// What is wrong.
    pub(crate) cause: String,
    /// How to fix it.
    pub(crate) mend: String,
}

/// The plan.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The user and folder of the gateway.
    pub(crate) jail: Jail,
    /// The user of the keeper of private keys; `None`: ours.
    pub(crate) keeper: Option<Identity>,
    /// The user of the process that talks to authorities; `None`: ours.
    pub(crate) acme: Option<Identity>,
    /// The gateway's reactors.
    pub(crate) reactors: Reactors,
    /// For each listener; used for unix sockets only.
    pub(crate) rights: Vec<Rights>,
    /// For the listeners of `[egress]`, if there are any.
    pub(crate) egress_rights: Option<Rights>,
    /// The workers' own socket of `[egress]`, if there is one.
    pub(crate) egress_socket: Option<OwnSocket>,
    /// What each pool runs; `None`: weir does not run its workers.
    pub(crate) runs: Vec<Option<Runs>>,
    /// What each program runs.
    pub(crate) programs: Vec<PlannedProgram>,
    /// The groups of the gateway's user and of the workers' users. In a folder that one of these groups may write,
    /// root follows no link.
    pub(crate) groups: Rc<[u32]>,
    /// Opens logs.
    pub(crate) log_files: Rc<LogFiles>,
    /// Warnings.
    pub(crate) warnings: Vec<String>,
}

/// How a pool's workers are started.
#[derive(Debug, Clone)]
pub(crate) enum Runs {
    /// Each worker is a program of its own.
    Command(Rc<Program>),
    /// A master forks them.
    Php(Rc<Spec>),
}

/// A program that can be started many times.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// As seen from inside of `chroot`.
    pub(crate) path: PathBuf,
    pub(crate) name: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) identity: Option<Identity>,
    pub(crate) chroot: Option<PathBuf>,
    pub(crate) folder: Option<PathBuf>,
    pub(crate) open_files: OpenFiles,
    pub(crate) core_size: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) priority: Option<i32>,
}

impl Program {
    /// The process to start, with these descriptors.
    pub(crate) fn spawn(&self, stdin: OwnedFd, [stdout, stderr]: [OwnedFd; 2]) -> Spawn {
        Spawn {
            name: Some(self.name.clone()),
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
            identity: self.identity.clone(),
            chroot: self.chroot.clone(),
            folder: self.folder.clone(),
            open_files: Some(self.open_files),
            core_size: self.core_size,
            processes: self.processes,
            priority: self.priority,
            huge_pages: true,
            ..Spawn::new(&self.path, stdin, stdout, stderr)
        }
    }
}

/// Makes the plan. `inherited` is the limit of open files with which weir was started: workers get the same.
pub(crate) fn make(config: &Config, inherited: OpenFiles) -> Result<Plan, Vec<Problem>> {
    if let Some((cause, mend)) = weir_machine::php::without_proc() {
        return Err(vec![Problem::new("server", cause, &mend)]);
    }
    let mut problems = Vec::new();
    let us = Us::look(config);
    let gateway = gateway_identity(config, &us, &mut problems);
    let rights = config
        .listeners
        .iter()
        .map(|listener| listener_rights(listener, &us, &mut problems))
        .collect();
    let egress_rights = config
        .egress
        .as_ref()
        .map(|egress| egress_rights(egress, &us, &mut problems));
    let own_path = config
        .egress
        .as_ref()
        .and_then(|egress| egress::own_path(egress, &mut problems));
    let mut pools = Pools {
        config,
        us: &us,
        egress_socket: own_path.as_deref(),
        gateway: gateway.as_ref(),
        inherited,
        programs: HashMap::new(),
        fpm_name: pools::fpm_name(),
        environment: environment::for_others(config).into(),
        sites: pools::sites(config),
        warnings: Vec::new(),
        problems: &mut problems,
    };
    let ids = (0..config.pools.len()).map(PoolId);
    let mut runs: Vec<Option<Runs>> = ids.map(|id| pools.runs(id)).collect();
    let programs = pools.programs();
    let of_pools = std::mem::take(&mut pools.warnings);
    check_folders(config, &mut problems);
    let gateways = gateway.as_ref();
    check_writable(
        "server.spool_dir",
        &config.server.spool_dir,
        gateways,
        &mut problems,
    );
    if let Some(disk) = config
        .cache
        .as_ref()
        .and_then(|cache| cache.disk.as_deref())
    {
        check_folder("cache.disk", disk, &mut problems);
        check_writable("cache.disk", disk, gateways, &mut problems);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let identities = runs.iter().flatten().filter_map(Runs::identity);
    let of_programs = programs.iter();
    let of_programs = of_programs.filter_map(|planned| planned.program.identity.as_ref());
    let identities: Vec<&Identity> = identities.chain(of_programs).chain(&gateway).collect();
    let groups = identities
        .iter()
        .flat_map(|who| who.groups.iter().chain([&who.gid]));
    let mut groups: Vec<u32> = groups.copied().filter(|group| *group != 0).collect();
    groups.sort_unstable();
    groups.dedup();
    let egress_socket = own_path.map(|path| {
        let of_pools = runs.iter().flatten().map(Runs::identity);
        let of_programs = programs.iter();
        let of_programs = of_programs.map(|planned| planned.program.identity.as_ref());
        let users = of_pools.chain(of_programs);
        OwnSocket::new(path, users.map(|who| who.map(|who| who.uid)), &us)
    });
    // Programs run code of applications, too.
    let of_programs = programs.iter();
    let of_programs = of_programs.filter_map(|planned| planned.program.identity.as_ref());
    let of_workers = runs.iter().flatten().filter_map(Runs::identity);
    let of_workers: Vec<u32> = of_workers.chain(of_programs).map(|who| who.uid).collect();
    let shares = |gateway: &&Identity| of_workers.contains(&gateway.uid);
    let shares = gateway.as_ref().filter(shares).is_some();
    let own_user = shares.then(|| user_of_nobody(&of_workers)).flatten();
    let mut warnings = [of_pools, warnings(config, &us)].concat();
    let mut taken = of_workers;
    taken.extend(own_user);
    let keeper = own_identity(
        gateway.as_ref(),
        &taken,
        "keeper of private keys",
        &mut warnings,
    );
    taken.extend(keeper.as_ref().map(|who| who.uid));
    let acme = match config.tls_is_ordered() {
        true => own_identity(
            gateway.as_ref(),
            &taken,
            "process for certificates",
            &mut warnings,
        ),
        false => None,
    };
    taken.extend(acme.as_ref().map(|who| who.uid));
    let loads_php = (user_of_nobody(&taken)).map(|number| Identity {
        uid: number,
        gid: number,
        groups: Vec::new(),
    });
    loads::share(&mut runs, us.root, loads_php.as_ref());
    if shares && own_user.is_none() {
        warnings.push(
            "the gateway runs as the same user as a pool, whose scripts can stop it, and no free user number was \
             found for it; give the pool its own user"
                .into(),
        );
    }
    let groups: Rc<[u32]> = groups.into();
    Ok(Plan {
        log_files: LogFiles::new(groups.clone()),
        groups,
        jail: Jail {
            own_user,
            identity: gateway,
            chroot: config.server.chroot.clone(),
        },
        keeper,
        acme,
        reactors: reactors(config),
        rights,
        egress_rights,
        egress_socket,
        runs,
        programs,
        warnings,
    })
}

impl Runs {
    /// The workers' user; `None`: ours.
    fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Command(program) => program.identity.as_ref(),
            Self::Php(spec) => spec.identity.as_ref(),
        }
    }
}

/// A user for a process of weir's own that no other process has.
fn own_identity(
    gateway: Option<&Identity>,
    taken: &[u32],
    whose: &str,
    warnings: &mut Vec<String>,
) -> Option<Identity> {
    // Without root's rights all processes have the same user.
    let gateway = gateway?;
    let number = user_of_nobody(taken);
    if number.is_none() {
        warnings.push(format!(
            "no free user number was found for the {whose}, so it runs as the gateway's user"
        ));
    }
    Some(Identity {
        uid: number.unwrap_or(gateway.uid),
        gid: number.unwrap_or(gateway.gid),
        groups: Vec::new(),
    })
}

/// A user number that neither this machine nor these workers use. `None`: all numbers are used, or weir may not change
/// to any user.
fn user_of_nobody(of_workers: &[u32]) -> Option<u32> {
    OWN_USERS.rev().find(|user| {
        let known = identity::user_by_id(*user).ok().flatten().is_some();
        !known && !of_workers.contains(user) && identity::may_become(*user)
    })
}

/// The range of user numbers for the gateway's own user, searched from above: Debian reserves these and assigns them
/// to nobody, and systemd assigns them to no service.
const OWN_USERS: std::ops::RangeInclusive<u32> = 65_520..=65_533;

impl Problem {
    pub(crate) fn new(
        key: impl Into<String>,
        cause: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            key: key.into(),
            cause: cause.into(),
            mend: mend.into(),
        }
    }
}

/// The user who started weir.
struct Us {
    root: bool,
    uid: u32,
    name: String,
    accounts: Accounts,
}

impl Us {
    fn look(config: &Config) -> Self {
        let (uid, _) = identity::current();
        let user = identity::user_by_id(uid).ok().flatten();
        Self {
            root: identity::is_root(),
            uid,
            name: user.map_or_else(|| uid.to_string(), |user| user.name),
            accounts: match config.pools.len() > FEW_POOLS {
                true => Accounts::read(),
                false => Accounts::default(),
            },
        }
    }

    /// The user and group of the configuration; `None` if nothing has to change.
    fn identity(
        &self,
        key: &str,
        user: Option<&str>,
        group: Option<&str>,
        problems: &mut Vec<Problem>,
    ) -> Option<Identity> {
        let uid = user.and_then(|name| self.known_user(key, name, problems));
        let group = match group {
            Some(name) => Some(self.known_group(key, name, problems)?),
            None => None,
        };
        if !self.root {
            let other_user = uid.is_some_and(|uid| uid != self.uid);
            let other_group = group.is_some_and(|gid| gid != identity::current().1);
            if other_user || other_group {
                problems.push(Problem::new(
                    key,
                    format!(
                        "weir runs as {}, but only root can change to another user",
                        self.name
                    ),
                    "start weir as root, or remove user and group",
                ));
            }
            return None;
        }
        if uid? == 0 {
            problems.push(Problem::new(
                key,
                "processes that serve the internet must not run as root",
                "use an ordinary user",
            ));
            return None;
        }
        let name = user?;
        let (cause, mend) = match self.accounts.identity_of(name, group) {
            Ok(Some(identity)) => return Some(identity),
            Ok(None) => (
                format!("no user on this machine has the number {name}, so its group is not known"),
                "also write group = \"NAME or number\"",
            ),
            Err(error) => (
                format!("the groups of {name} cannot be read: {error}"),
                "check /etc/group and /etc/nsswitch.conf",
            ),
        };
        problems.push(Problem::new(key, cause, mend));
        None
    }

    /// The number of a user; a number without a user stands for itself.
    fn known_user(&self, key: &str, name: &str, problems: &mut Vec<Problem>) -> Option<u32> {
        let cause = match self.accounts.uid(name) {
            Ok(Some(uid)) => return Some(uid),
            Ok(None) => format!("user \"{name}\" does not exist on this machine"),
            Err(error) => format!("user \"{name}\" cannot be looked up: {error}"),
        };
        problems.push(Problem::new(
            key,
            cause,
            format!("create it (useradd --system {name}), or use another"),
        ));
        None
    }

    fn known_group(&self, key: &str, name: &str, problems: &mut Vec<Problem>) -> Option<u32> {
        let cause = match self.accounts.group(name) {
            Ok(Some(gid)) => return Some(gid),
            Ok(None) => format!("group \"{name}\" does not exist on this machine"),
            Err(error) => format!("group \"{name}\" cannot be looked up: {error}"),
        };
        problems.push(Problem::new(
            key,
            cause,
            format!("create it (groupadd --system {name}), or use another"),
        ));
        None
    }
}

/// The user of the gateway. Root without a `user` uses the first of the usual users that exists.
fn gateway_identity(config: &Config, us: &Us, problems: &mut Vec<Problem>) -> Option<Identity> {
    let server = &config.server;
    if let Some(chroot) = &server.chroot {
        if !us.root {
            problems.push(Problem::new(
                "server.chroot",
                format!("weir runs as {}, but only root can use chroot", us.name),
                "start weir as root, or remove chroot",
            ));
        }
        check_folder("server.chroot", chroot, problems);
    }
    let key = "server.user";
    let user = match &server.user {
        None if us.root => ThisMachine.usual_user(),
        user => user.clone(),
    };
    if us.root && user.is_none() {
        problems.push(Problem::new(
            key,
            format!("weir was started by root, but none of the users {USUAL_USERS:?} exists here"),
            "set the gateway's user: user = \"NAME\"",
        ));
    }
    us.identity(key, user.as_deref(), server.group.as_deref(), problems)
}

fn listener_rights(listener: &Listener, us: &Us, problems: &mut Vec<Problem>) -> Rights {
    let table = format!("listen.{}", listener.name);
    let mut acl_users = Vec::new();
    for name in &listener.acl_users {
        let key = format!("{table}.acl_users");
        acl_users.extend(us.known_user(&key, name, problems));
    }
    let mut acl_groups = Vec::new();
    for name in &listener.acl_groups {
        let key = format!("{table}.acl_groups");
        acl_groups.extend(us.known_group(&key, name, problems));
    }
    if !listener.acl_users.is_empty() || !listener.acl_groups.is_empty() {
        // As in PHP-FPM: the access control list says who may connect; owner and group stay ours.
        return Rights {
            uid: None,
            gid: None,
            mode: listener.mode,
            acl_users,
            acl_groups,
        };
    }
    let names = (listener.owner.as_deref(), listener.group.as_deref());
    socket_rights(&table, names, listener.mode, us, problems)
}

fn egress_rights(egress: &Egress, us: &Us, problems: &mut Vec<Problem>) -> Rights {
    let names = (egress.owner.as_deref(), egress.group.as_deref());
    socket_rights("egress", names, egress.mode, us, problems)
}

/// The owner, group and mode of a unix socket from `table`.
fn socket_rights(
    table: &str,
    (owner, group): (Option<&str>, Option<&str>),
    mode: u32,
    us: &Us,
    problems: &mut Vec<Problem>,
) -> Rights {
    let key = format!("{table}.owner");
    let uid = owner.and_then(|name| us.known_user(&key, name, problems));
    let gid = group.and_then(|name| us.known_group(&format!("{table}.group"), name, problems));
    if !us.root && uid.is_some_and(|uid| uid != us.uid) {
        problems.push(Problem::new(
            key,
            format!(
                "weir runs as {}, but only root can change the owner of a socket",
                us.name
            ),
            "start weir as root, or remove owner",
        ));
    }
    Rights {
        // Only values that differ are changed.
        uid: uid.filter(|_| us.root),
        gid,
        mode,
        acl_users: Vec::new(),
        acl_groups: Vec::new(),
    }
}

fn check_folders(config: &Config, problems: &mut Vec<Problem>) {
    check_folder("server.spool_dir", &config.server.spool_dir, problems);
    for site in &config.sites {
        let site_root = site.settings.root.as_deref();
        // Scripts that are not checked may have their root on another machine.
        let is_here = |settings: &Settings| settings.check_files != Some(false);
        if let Some(root) = site_root.filter(|_| is_here(&site.settings)) {
            check_folder(&format!("site.{}.root", site.name), root, problems);
        }
        for (index, route) in site.routes.iter().enumerate() {
            if let Some(alias) = &route.settings.alias {
                let key = format!("site.{}.route[{index}].alias", site.name);
                check_folder(&key, &alias.folder, problems);
            }
            match route.settings.root.as_deref() {
                root if root == site_root || !is_here(&route.settings) => {}
                Some(root) => {
                    check_folder(
                        &format!("site.{}.route[{index}].root", site.name),
                        root,
                        problems,
                    );
                }
                None => {}
            }
        }
    }
    for listener in &config.listeners {
        // With PHP-FPM's format, the error is reported when the socket is bound.
        if let Address::Unix(path) = &listener.address
            && error_log::format() == Format::Weir
        {
            let key = format!("listen.{}.address", listener.name);
            let folder = path.parent().unwrap_or(Path::new("/"));
            check_folder(&key, folder, problems);
        }
    }
    for address in config.egress.iter().flat_map(|egress| &egress.listen) {
        if let Address::Unix(path) = address {
            let folder = path.parent().unwrap_or(Path::new("/"));
            check_folder("egress.listen", folder, problems);
        }
    }
}

/// The gateway creates files in a folder that the manager opens for it, and tests that before it is ready. Problems
/// that the permission bits show are reported here already, with their place in the file.
fn check_writable(
    key: &str,
    folder: &Path,
    gateway: Option<&Identity>,
    problems: &mut Vec<Problem>,
) {
    let may = match gateway {
        Some(who) => weir_machine::may_write(folder, who),
        None => file::may_write(folder),
    };
    if folder.is_dir() && !may {
        problems.push(Problem::new(
            key,
            format!(
                "the gateway's user cannot create files in {}",
                folder.display()
            ),
            "give that user write access, or use another folder",
        ));
    }
}

fn check_folder(key: &str, folder: &Path, problems: &mut Vec<Problem>) {
    let cause = match folder.metadata() {
        Ok(metadata) if metadata.is_dir() => return,
        Ok(_) => format!("{} is not a folder", folder.display()),
        Err(error) => format!("{}: {error}", folder.display()),
    };
    let hint = match is_hidden_by_unit(folder) {
        true => HIDDEN,
        false => "create the folder, or write the path of an existing one",
    };
    problems.push(Problem::new(key, cause, hint));
}

/// Whether a unit of systemd with `ProtectHome=yes` (systemd.exec(5)) may be the reason that a folder is not there.
fn is_hidden_by_unit(folder: &Path) -> bool {
    let homes = ["/home", "/root", "/run/user"];
    std::env::var_os("INVOCATION_ID").is_some() && homes.iter().any(|home| folder.starts_with(home))
}

const HIDDEN: &str = "if the folder exists, weir's unit hides it (ProtectHome=yes): systemctl edit weir, write `[Service]` and \
                      `ProtectHome=no` there, then systemctl restart weir";

/// The gateway's reactors: as many as configured, otherwise as many as the load needs, up to the usable cores.
fn reactors(config: &Config) -> Reactors {
    let elastic = config.server.threads == 0;
    let threads = match elastic {
        true => std::thread::available_parallelism().map_or(1, usize::from),
        false => config.server.threads,
    };
    let most = u16::try_from(threads).unwrap_or(u16::MAX);
    Reactors {
        most: most.clamp(1, MAX_REACTORS),
        elastic,
    }
}

fn warnings(config: &Config, us: &Us) -> Vec<String> {
    let mut warnings = Vec::new();
    for pool in &config.pools {
        let nice = pool.workers().and_then(|workers| workers.priority);
        if let Some(nice) = nice.filter(|nice| *nice < 0 && !us.root) {
            warnings.push(format!(
                "[pool.{}] process_priority = {nice} is ignored: weir runs as {}, but only root can \
                 raise a priority",
                pool.name, us.name
            ));
        }
    }
    for (site, settings) in all_settings(config) {
        let pool = settings.pool.map(|pool| &config.pools[pool.0]);
        let chroot = pool.and_then(|pool| Some((pool, pool.workers()?.chroot.as_deref()?)));
        let Some(((pool, chroot), root)) = chroot.zip(settings.root.as_deref()) else {
            continue;
        };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if settings.script_root.is_none() && !real(root).starts_with(real(chroot)) {
            warnings.push(format!(
                "[site.{site}] root = {}: the workers of [pool.{}] are in the chroot {} and cannot see it; move \
                 it inside the chroot, or set script_root to its path inside",
                root.display(),
                pool.name,
                chroot.display()
            ));
        }
    }
    let found = weir_machine::limits::findings(config, &weir_machine::limits::Kernel::look());
    let bite = found
        .iter()
        .filter(|found| found.severity >= Severity::Warn);
    warnings.extend(bite.map(Finding::to_string));
    warnings
}

/// The settings of all sites and routes, with the site's name.
fn all_settings(config: &Config) -> impl Iterator<Item = (&str, &Settings)> {
    config.sites.iter().flat_map(|site| {
        let routes = site.routes.iter().map(|route| &route.settings);
        let all = std::iter::once(&site.settings).chain(routes);
        all.map(|settings| (site.name.as_str(), settings))
    })
}

/// With more pools, the files of users and groups are read once and not for each pool.
const FEW_POOLS: usize = 16;

/// Maximum number of reactors; more would have no use.
const MAX_REACTORS: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_are_none_are_problems_with_their_path() {
        let mut problems = Vec::new();
        check_folder("site.a.root", Path::new("/no/such/folder"), &mut problems);
        check_folder("site.b.root", Path::new("/etc/passwd"), &mut problems);
        check_folder("site.c.root", Path::new("/"), &mut problems);
        let causes: Vec<&str> = problems
            .iter()
            .map(|problem| problem.cause.as_str())
            .collect();
        assert_eq!(
            causes,
            [
                "/no/such/folder: No such file or directory (os error 2)",
                "/etc/passwd is not a folder"
            ]
        );
    }

    #[test]
    fn unknown_users_and_groups_are_problems_with_their_name() {
        let mut problems = Vec::new();
        let us = Us {
            root: true,
            uid: 0,
            name: "root".into(),
            accounts: Accounts::default(),
        };
        assert!(
            us.known_user("server.user", "no-such-user", &mut problems)
                .is_none()
        );
        assert!(
            us.known_group("server.group", "no-such-group", &mut problems)
                .is_none()
        );
        assert!(
            problems[0]
                .cause
                .contains("user \"no-such-user\" does not exist")
        );
        assert!(
            problems[1]
                .cause
                .contains("group \"no-such-group\" does not exist")
        );
    }

    #[test]
    fn root_becomes_nobody_like_itself() {
        let us = Us {
            root: true,
            uid: 0,
            name: "root".into(),
            accounts: Accounts::default(),
        };
        let mut problems = Vec::new();
        assert_eq!(
            us.identity("server.user", Some("root"), None, &mut problems),
            None
        );
        assert!(problems[0].cause.contains("must not run as root"));
    }

    #[test]
    fn an_ordinary_user_stays_itself() {
        let (uid, _) = identity::current();
        let us = Us {
            root: false,
            uid,
            name: "somebody".into(),
            accounts: Accounts::default(),
        };
        let mut problems = Vec::new();
        let own = uid.to_string();
        assert_eq!(
            us.identity("server.user", Some(&own), None, &mut problems),
            None
        );
        assert_eq!(problems, []);
        let other = if uid == 0 { "nobody" } else { "root" };
        us.identity("server.user", Some(other), None, &mut problems);
        assert!(problems[0].cause.contains("somebody"));
    }
}
