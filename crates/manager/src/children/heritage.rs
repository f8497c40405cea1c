//! The messages that a new gateway gets: its jail, the configuration, the logs, and everything that it could not open
//! itself.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use weir_config::{Address, Config, LogTarget, Runtime, Upstream};
use weir_control::{Source, ToGateway, path_inside};
use weir_observe::error_log::{self, Format};
use weir_sys::{
    file,
    log_file::Refused,
    memory,
    net_stat::{self, Counters},
};

use crate::{
    Loaded,
    generation::plan::{Plan, Problem},
    output::log_files::LogFiles,
};

/// The open logs of one configuration; `None`: not written.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    pub(crate) access: Option<OwnedFd>,
    /// The log of calls; `None` also if calls go to the access log.
    pub(crate) egress: Option<OwnedFd>,
    pub(crate) error: Option<OwnedFd>,
    /// Logs of the pools that have their own.
    pub(crate) pools: Vec<(u16, OwnedFd)>,
}

impl Logs {
    /// Opens the logs of `[log]` and of the pools; files for appending.
    pub(crate) fn open(config: &Config, files: &LogFiles) -> Result<Self, Vec<Problem>> {
        let mut logs = Self::default();
        let problems = logs.reopen(config, files);
        match problems.is_empty() {
            true => Ok(logs),
            false => Err(problems),
        }
    }

    /// Reopens each log. If a log cannot be opened, this is reported, and the log keeps its old file. So a user who can
    /// break the folder of one log does not prevent the rotation of other logs.
    pub(crate) fn reopen(&mut self, config: &Config, files: &LogFiles) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut open = |key: &str, target: &LogTarget, log: &mut Option<OwnedFd>| match open_log(
            key, target, files,
        ) {
            Ok(opened) => *log = opened,
            Err(problem) => problems.push(problem),
        };
        open("log.error", &config.log.error, &mut self.error);
        open("log.access", &config.log.access, &mut self.access);
        if config.egress.is_some() && config.log.egress != config.log.access {
            open("log.egress", &config.log.egress, &mut self.egress);
        }
        for (index, pool) in (0..).zip(&config.pools) {
            let Some(path) = &pool.access_log else {
                continue;
            };
            let mut log = None;
            let key = format!("pool.{}.access_log", pool.name);
            open(&key, &LogTarget::File(path.clone()), &mut log);
            if let Some(log) = log {
                self.pools.retain(|(other, _)| *other != index);
                self.pools.push((index, log));
            }
        }
        problems
    }
}

/// The first messages: its jail and the configuration.
pub(crate) fn first_messages(loaded: &Loaded, plan: &Plan) -> io::Result<Vec<ToGateway>> {
    let environment = &loaded.environment;
    Ok(vec![
        ToGateway::Jail(plan.jail.clone()),
        ToGateway::Config {
            source: Source {
                name: loaded.name.clone(),
                folder: environment.folder.clone(),
                cores: environment.cores as u64,
                memory: environment.memory,
                open_files: environment.open_files,
            },
            trace: loaded.trace,
            reactors: plan.reactors,
            text: memory::file(c"weir.toml", loaded.text.as_bytes())?,
        },
    ])
}

/// The messages between [these](first_messages) and the listeners.
pub(crate) fn messages(loaded: &Loaded, plan: &Plan, logs: &Logs) -> io::Result<Vec<ToGateway>> {
    let mut messages = log_messages(logs)?;
    let spool = file::open_dir(&loaded.config.server.spool_dir)?;
    messages.push(ToGateway::SpoolDir(spool));
    if let Some(chroot) = &plan.jail.chroot {
        messages.extend(outside(&loaded.config, chroot));
        // The gateway reads TCP's counters regularly; if this fails, it works without them.
        messages.extend(Counters::open().ok().map(|counters| ToGateway::Opened {
            path: net_stat::PATH.into(),
            file: counters.into(),
        }));
    }
    Ok(messages)
}

/// The messages for the logs, at the start and after they were reopened.
pub(crate) fn log_messages(logs: &Logs) -> io::Result<Vec<ToGateway>> {
    let mut messages = Vec::new();
    if let Some(error) = &logs.error {
        messages.push(ToGateway::ErrorLog(error.try_clone()?));
    }
    if let Some(access) = &logs.access {
        messages.push(ToGateway::AccessLog(access.try_clone()?));
    }
    if let Some(egress) = &logs.egress {
        messages.push(ToGateway::EgressLog(egress.try_clone()?));
    }
    for (pool, file) in &logs.pools {
        messages.push(ToGateway::PoolLog {
            pool: *pool,
            file: file.try_clone()?,
        });
    }
    Ok(messages)
}

/// Configured paths that are not reachable in `chroot` and that cannot be opened in advance.
pub(crate) fn unreachable(config: &Config, chroot: &Path) -> Vec<String> {
    let mut list = Vec::new();
    for pool in &config.pools {
        let Runtime::Servers(servers) = &pool.runtime else {
            continue;
        };
        for server in &servers.list {
            if let Upstream::At(Address::Unix(path)) = &server.address
                && path_inside(chroot, path).is_none()
            {
                list.push(format!(
                    "[pool.{}] servers: the gateway is in the chroot {} and cannot reach unix:{}; \
                     put the socket inside, or make that server listen on TCP",
                    pool.name,
                    chroot.display(),
                    path.display()
                ));
            }
        }
    }
    list
}

/// Opens the configured folders that are outside of the gateway's `chroot`. A missing folder is left out: the gateway
/// finds it missing, as without a chroot.
fn outside(config: &Config, chroot: &Path) -> Vec<ToGateway> {
    let mut folders = BTreeSet::new();
    for site in &config.sites {
        let routes = site.routes.iter().map(|route| &route.settings);
        for settings in std::iter::once(&site.settings).chain(routes) {
            folders.extend(settings.root.clone());
            folders.extend(settings.alias.as_ref().map(|alias| alias.folder.clone()));
            folders.extend(
                settings
                    .accel_redirect
                    .iter()
                    .map(|(_, folder)| folder.clone()),
            );
            folders.extend(settings.sendfile_dirs.iter().cloned());
            // Pages with a relative path are below the root. All pages are opened when they are needed, so that they
            // can be replaced.
            let pages = settings.error_pages.values();
            let pages = pages.filter(|page| page.is_absolute());
            folders.extend(pages.filter_map(|page| page.parent().map(Path::to_owned)));
        }
    }
    let outside = |path: &PathBuf| path_inside(chroot, path).is_none();
    let open = |path: PathBuf| match file::open_dir(&path) {
        Ok(file) => Some(ToGateway::Opened { path, file }),
        Err(error) => {
            log::warn!(
                "{} cannot be opened for the gateway: {error}",
                path.display()
            );
            None
        }
    };
    folders
        .into_iter()
        .filter(outside)
        .filter_map(open)
        .collect()
}

/// Opens a log, for appending if it is a file; `None`: it is off. Root does not open a file that
/// other users have put there.
pub(crate) fn open_log(
    key: &str,
    target: &LogTarget,
    files: &LogFiles,
) -> Result<Option<OwnedFd>, Problem> {
    let opened = match target {
        LogTarget::Off => return Ok(None),
        LogTarget::Stdout => io::stdout().as_fd().try_clone_to_owned(),
        LogTarget::Stderr => io::stderr().as_fd().try_clone_to_owned(),
        LogTarget::File(path) => match files.open(path, log_mode(key)) {
            Ok(opened) => {
                if opened.unread {
                    log::warn!(
                        "{key}: no program reads the pipe {} yet: it holds about 64 KiB of lines, further lines are lost",
                        path.display()
                    );
                }
                Ok(opened.file)
            }
            Err(Refused::Io(error)) => Err(error),
            Err(refused) => {
                let mend = "remove it, or write the log to a folder that only root can write, such as /var/log/weir";
                return Err(Problem::new(key, refused.to_string(), mend));
            }
        },
        LogTarget::Syslog => error_log::syslog::connect(),
    };
    opened.map(Some).map_err(|error| {
        let path = match target {
            LogTarget::File(path) => path.display().to_string(),
            LogTarget::Syslog => "the system's log (/dev/log)".to_owned(),
            _ => "the standard stream".to_owned(),
        };
        Problem::new(
            key,
            format!("{path} cannot be written: {error}"),
            "create its folder, and give the user who starts weir write access there",
        )
    })
}

/// Mode of a newly created log file, before the umask.
fn log_mode(key: &str) -> u32 {
    match error_log::format() {
        Format::Weir => 0o640,
        // After a rotation, PHP-FPM creates this log with mode 0666 (minus the umask).
        Format::Fpm if key.ends_with(".slowlog") => 0o666,
        Format::Fpm => 0o600,
    }
}
