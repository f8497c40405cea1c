//! Files that weir writes: logs, temporary files, the pid file, the admin socket; and their disks.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use weir_config::{LogTarget, SocketPath};
use weir_sys::{
    file::{self, Space},
    log_file,
};

use super::{
    Notes,
    case::Case,
    people::Who,
    rights::{Access, Cause, Need, may, quoted},
};

/// Checks every file that is written, and every disk once.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    let config = case.config;
    let starter = &case.people.starter;
    for (label, file) in logs(case).into_iter().chain(slow_logs(case)) {
        let why = "weir does not start: it cannot open its log";
        appended(starter, &label, &file, why, notes);
    }
    if starter.is_root() {
        of_others(case, notes);
    }
    if let Some(file) = &config.server.pid_file {
        let why = "programs that use the pid file do not find weir";
        appended(starter, "[server] pid_file", file, why, notes);
    }
    if let SocketPath::At(socket) = &config.server.admin {
        let folder = socket.parent().unwrap_or(Path::new("/"));
        let why = "weir does not start: it cannot create its admin socket";
        made_in(starter, "[server] admin", folder, why, notes);
    }
    if let Some(file) = &config.server.admin_token_file {
        let make = format!(
            "(umask 077; head -c 24 /dev/urandom | base64 > {})",
            quoted(file)
        );
        secret(starter, ("[server] admin_token_file", file), make, notes);
    }
    let cache = config.cache.as_ref();
    if let Some(file) = cache.and_then(|cache| cache.bus_password_file.as_ref()) {
        let make = "write the password of the server into it, in one line".to_owned();
        secret(starter, ("[cache] bus_password_file", file), make, notes);
    }
    spool(case, notes);
    disks(case, notes);
}

/// Files that root writes in folders that other users may write to.
fn of_others(case: &Case<'_>, notes: &mut Notes) {
    let people = case
        .people
        .pools
        .iter()
        .flatten()
        .chain(&case.people.gateway);
    let groups = people.flat_map(|who| who.identity.groups.iter().chain([&who.identity.gid]));
    let groups: Vec<u32> = groups.copied().filter(|group| *group != 0).collect();
    let pid_file = case.config.server.pid_file.clone();
    let pid_file = pid_file.map(|file| ("[server] pid_file".to_owned(), file));
    let files = logs(case)
        .into_iter()
        .chain(slow_logs(case))
        .chain(pid_file);
    for (label, file) in files {
        let Some(folder) = log_file::folder_of_others(&file, &groups) else {
            continue;
        };
        notes.warn(
            format!(
                "{label} = \"{}\" is in {}, which users other than root can write",
                file.display(),
                folder.display()
            ),
            "weir as root opens no symbolic links, pipes or hard links there; a user who creates one can \
             stop weir from starting or reopening its logs",
            "use a folder that only root can write: /var/log/weir for logs, /run/weir for the pid file",
        );
    }
}

/// All logs except the slow ones.
fn logs(case: &Case<'_>) -> Vec<(String, PathBuf)> {
    let log = &case.config.log;
    let mut files = Vec::new();
    let mut add = |label: String, target: &LogTarget| {
        if let LogTarget::File(file) = target {
            files.push((label, file.clone()));
        }
    };
    add("[log] access".into(), &log.access);
    add("[log] error".into(), &log.error);
    if case.config.egress.is_some() && log.egress != log.access {
        add("[log] egress".into(), &log.egress);
    }
    for pool in &case.config.pools {
        if let Some(target) = pool
            .workers()
            .and_then(|workers| workers.output_log.as_ref())
        {
            add(format!("[pool.{}] output_log", pool.name), target);
        }
        if let Some(file) = &pool.access_log {
            add(
                format!("[pool.{}] access_log", pool.name),
                &LogTarget::File(file.clone()),
            );
        }
    }
    files
}

fn slow_logs(case: &Case<'_>) -> Vec<(String, PathBuf)> {
    let logs = case.php_pools().filter_map(|(_, pool, php)| {
        let file = php.slowlog.clone()?;
        Some((format!("[pool.{}] slowlog", pool.name), file))
    });
    logs.collect()
}

/// A file with a secret, which is read at the start and at a reload. `make`: how it is made.
fn secret(who: &Who, (key, file): (&str, &Path), make: String, notes: &mut Notes) {
    let label = format!("{key} = \"{}\"", file.display());
    match may(who, None, file, Need::Read) {
        Access::Yes => notes.ok(format!("{label} can be read by {}", who.name)),
        Access::No(barrier) => notes.breaks(
            format!("{label} cannot be read by {}: {barrier}", who.name),
            "weir does not start",
            match barrier.cause {
                Cause::Missing => make,
                _ => barrier.mend(who),
            },
        ),
        Access::Unseen(at) => notes.barred(&label, &at),
    }
}

/// A file that the starting user opens, and creates if it does not exist.
fn appended(who: &Who, label: &str, file: &Path, why: &str, notes: &mut Notes) {
    let label = format!("{label} = \"{}\"", file.display());
    match may(who, None, file, Need::Write) {
        Access::Yes => notes.ok(format!("{label} can be written by {}", who.name)),
        Access::No(barrier) if barrier.cause == Cause::Missing && barrier.at == file => {
            let folder = file.parent().unwrap_or(Path::new("/"));
            made_in(who, &label, folder, why, notes);
        }
        // For logs, `weir check` reports a missing folder.
        Access::No(barrier) if barrier.cause == Cause::Missing && label.starts_with("[server]") => {
            notes.breaks(
                format!("{label}: {barrier}"),
                why,
                format!(
                    "install -d {}",
                    quoted(file.parent().unwrap_or(Path::new("/")))
                ),
            );
        }
        Access::No(barrier) if barrier.cause == Cause::Missing => {}
        Access::No(barrier) => notes.breaks(
            format!("{label} cannot be written by {}: {barrier}", who.name),
            why,
            barrier.mend(who),
        ),
        Access::Unseen(at) => notes.barred(&label, &at),
    }
}

fn made_in(who: &Who, label: &str, folder: &Path, why: &str, notes: &mut Notes) {
    match may(who, None, folder, Need::MakeFiles) {
        Access::Yes => notes.ok(format!(
            "{label}: {} can create files in {}",
            who.name,
            folder.display()
        )),
        Access::No(barrier) => {
            let mend = match barrier.cause {
                Cause::Missing => format!("install -d -o {} {}", who.name, quoted(folder)),
                _ => barrier.mend(who),
            };
            notes.breaks(
                format!(
                    "{label}: {} cannot create files in {}: {barrier}",
                    who.name,
                    folder.display()
                ),
                why,
                mend,
            );
        }
        Access::Unseen(at) => notes.barred(label, &at),
    }
}

/// Temporary files of bodies.
fn spool(case: &Case<'_>, notes: &mut Notes) {
    let server = &case.config.server;
    let folder = &server.spool_dir;
    let label = format!("[server] spool_dir = \"{}\"", folder.display());
    if let Some(gateway) = &case.people.gateway {
        match may(gateway, None, folder, Need::MakeFiles) {
            Access::Yes => notes.ok(format!(
                "{label}: the gateway's user, {}, can create files there",
                gateway.name
            )),
            // `weir check` reports this.
            Access::No(barrier) if barrier.at == *folder => {}
            // The manager opens the file for the gateway, so the gateway's user needs no access.
            Access::No(_) => {}
            Access::Unseen(at) => notes.barred(&label, &at),
        }
    }
    let Ok(space) = file::space(folder) else {
        return;
    };
    if space.memory {
        notes.warn(
            format!("{label} is in memory (tmpfs)"),
            format!(
                "bodies that are too large for memory end up in memory anyway: up to max_spool = {}",
                size(server.max_spool)
            ),
            "spool_dir = \"/var/tmp\", or another folder on a disk",
        );
    }
    if space.read_only {
        notes.breaks(
            format!("{label} is mounted read-only"),
            "large bodies and answers for slow clients cannot be kept: 503 spool_failed",
            "use another folder, or mount -o remount,rw",
        );
    } else if space.free < server.max_spool {
        notes.warn(
            format!(
                "{label} has {} left, and max_spool allows {}",
                size(space.free),
                size(server.max_spool)
            ),
            "the disk can fill up before the limit is reached, which also harms other programs that write there",
            format!("max_spool = \"{}M\", or use another disk", (space.free / 2) >> 20),
        );
    } else {
        notes.ok(format!(
            "{label} has {} left for max_spool = {}",
            size(space.free),
            size(server.max_spool)
        ));
    }
    if space
        .free_files
        .is_some_and(|files| files < case.config.server.max_connections as u64)
    {
        notes.warn(
            format!(
                "{label} can take {} more files (inodes)",
                space.free_files.unwrap_or_default()
            ),
            "each body in a temporary file needs one; without it: 503 spool_failed",
            "remove files there (see df -i), or use another disk",
        );
    }
}

/// The disks of logs: finds nearly full ones.
fn disks(case: &Case<'_>, notes: &mut Notes) {
    let mut disks: BTreeMap<u64, (PathBuf, Space)> = BTreeMap::new();
    for (_, file) in logs(case).into_iter().chain(slow_logs(case)) {
        let Some(folder) = file.parent() else {
            continue;
        };
        if let (Ok(metadata), Ok(space)) = (fs::metadata(folder), file::space(folder)) {
            disks
                .entry(metadata.dev())
                .or_insert_with(|| (folder.to_owned(), space));
        }
    }
    for (folder, space) in disks.values() {
        disk(folder, *space, notes);
    }
}

fn disk(folder: &Path, space: Space, notes: &mut Notes) {
    let label = format!("the disk of {}", folder.display());
    let full = space.total > 0 && space.free < space.total / 20 && space.free < PLENTY;
    let no_files = space.free_files.is_some_and(|files| files < FEW_FILES);
    if space.read_only {
        notes.breaks(
            format!("{label} is mounted read-only"),
            "logs cannot be opened; weir does not start",
            format!(
                "mount -o remount,rw, or use another folder than {}",
                folder.display()
            ),
        );
    } else if full || no_files {
        let files = space
            .free_files
            .map_or(String::new(), |files| format!(" and {files} files"));
        notes.warn(
            format!("{label} has {}{files} left", size(space.free)),
            "when the disk is full, log lines are lost",
            "free some space, and check that logrotate runs (weir reopens its logs at SIGUSR1)",
        );
    } else {
        notes.ok(format!("{label} has {} left for logs", size(space.free)));
    }
}

/// Bytes in readable form.
pub(super) fn size(bytes: u64) -> String {
    let units = [
        (1_u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes / unit < 10 => {
            format!("{:.1} {name}", bytes as f64 / *unit as f64)
        }
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

/// A disk with this much free space is not full, however large it is.
const PLENTY: u64 = 2 << 30;

/// There are few logs; log rotation adds some more.
const FEW_FILES: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::super::tests::said;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_log_that_root_writes_in_a_folder_of_a_pools_user_is_told() {
        if !weir_test::goes_on_as_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[server]\npid_file = \"{0}/weir.pid\"\n[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\n\
             [log]\naccess = \"{0}/a.log\"\n",
            folder.path().display()
        );
        let told = || {
            let found = super::super::tests::with_config(&text, |case| {
                let mut notes = Notes::default();
                look(case, &mut notes);
                said(&notes)
            });
            found
                .into_iter()
                .filter(|text| text.contains("which users other than root can write"))
                .count()
        };
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(told(), 0);
        std::os::unix::fs::chown(folder.path(), Some(33), None).unwrap();
        assert_eq!(told(), 2);
    }

    #[test]
    fn a_log_in_a_folder_that_takes_no_files_breaks() {
        let folder = tempfile::tempdir().unwrap();
        let set =
            |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let who = Who::member("daemon").unwrap();
        let looked = |name: &str| {
            let mut notes = Notes::default();
            appended(
                &who,
                "[log] access",
                &folder.path().join(name),
                "no log",
                &mut notes,
            );
            said(&notes)
        };
        set(0o777);
        assert!(looked("access.log")[0].starts_with("ok: "));
        assert_eq!(looked("no/access.log"), [""; 0]);
        set(0o755);
        let found = looked("access.log");
        assert!(
            found[0].starts_with("break: ") && found[0].contains("chmod o+wx"),
            "{found:?}"
        );
    }

    #[test]
    fn a_disk_is_full_when_little_is_left_of_it() {
        let looked = |free: u64, free_files, read_only| {
            let mut notes = Notes::default();
            let space = Space {
                free,
                total: 100 << 30,
                free_files,
                memory: false,
                read_only,
            };
            disk(Path::new("/var/log"), space, &mut notes);
            said(&notes).remove(0)
        };
        assert!(looked(50 << 30, Some(1 << 20), false).starts_with("ok: "));
        assert!(looked(1 << 30, Some(1 << 20), false).starts_with("warn: "));
        assert!(looked(50 << 30, Some(10), false).contains("10 files left"));
        assert!(looked(50 << 30, None, true).starts_with("break: "));
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(512), "512 bytes");
        assert_eq!(size(1536 << 10), "1.5 MiB");
        assert_eq!(size(20 << 30), "20 GiB");
    }
}
