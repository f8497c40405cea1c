//! The folders that workers use: chroot, chdir, session and upload folders, php.ini.

use std::{
    collections::BTreeMap,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use weir_config::{Pool, Workers};
use weir_machine::php::Program;

use super::{
    Notes,
    case::Case,
    files::size,
    people::Who,
    php::{Php, size as size_of_php},
    rights::{Access, Cause, Need, may, quoted, resolve, seen_from_outside},
};

/// Checks every pool whose workers weir starts.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    for (index, pool) in case.config.pools.iter().enumerate() {
        let Some(workers) = pool.workers() else {
            continue;
        };
        let Some(who) = case.people.pools.get(index).and_then(Option::as_ref) else {
            continue;
        };
        chdir(pool, workers, who, notes);
        if let Some(chroot) = &workers.chroot {
            chroot_contents(pool, chroot, notes);
            let php = case.php.get(index).and_then(Option::as_ref);
            time_zones(pool, chroot, php.and_then(|php| php.as_deref().ok()), notes);
        }
        is_down(case, pool, notes);
        if let Some(settings) = pool.php() {
            if let Some(worker) = &settings.worker {
                booted(pool, workers, who, worker, notes);
            }
            php(case, index, pool, who, notes);
            zygote(case, pool, notes);
            load(case, pool, notes);
            let processes = Processes { pool, workers, who };
            folders(case, index, &processes, notes);
        }
    }
    bodies(case, notes);
    shared_sessions(case, notes);
}

/// A running pool that has no worker and gets none.
fn is_down(case: &Case<'_>, pool: &Pool, notes: &mut Notes) {
    let live = case.live().and_then(|live| live.pool(&pool.name));
    let Some(live) = live.filter(|live| live["state"] == "down") else {
        return;
    };
    let why = live["down_because"].as_str().unwrap_or("unknown");
    notes.breaks(
        format!("[pool.{}] no worker can be started: {why}", pool.name),
        "requests are answered with 503 no_worker",
        "remove the cause; weir tries again by itself, and the error log has what was written before".to_owned(),
    );
}

/// Whether the script of an application that stays booted can be read.
fn booted(pool: &Pool, workers: &Workers, who: &Who, worker: &Path, notes: &mut Notes) {
    let label = format!("[pool.{}] worker = \"{}\"", pool.name, worker.display());
    let inside = match &workers.chroot {
        Some(chroot) => worker
            .strip_prefix(chroot)
            .map(|path| Path::new("/").join(path)),
        None => Ok(worker.to_owned()),
    };
    // `weir check` reports missing folders, and folders outside of the chroot.
    let Ok(inside) = inside else { return };
    match may(who, workers.chroot.as_deref(), &inside, Need::Read) {
        Access::Yes => notes.ok(format!("{label} can be read by {}", who.name)),
        Access::No(barrier) if matches!(barrier.cause, Cause::Missing | Cause::NotFolder) => {}
        Access::No(barrier) => notes.breaks(
            format!("{label} cannot be read by {}: {barrier}", who.name),
            "the application does not boot: requests are answered with 503 no_worker",
            barrier.mend(who),
        ),
        Access::Unseen(at) => notes.barred(&label, &at),
    }
}

/// Whether a running pool's processes are forked from one that has booted the application.
fn zygote(case: &Case<'_>, pool: &Pool, notes: &mut Notes) {
    let live = case.live().and_then(|live| live.pool(&pool.name));
    let Some(zygote) = live.map(|pool| &pool["zygote"]) else {
        return;
    };
    if let Some(why) = zygote["declined"].as_str() {
        notes.note(
            format!("[pool.{}] each process boots the application for itself: {why}", pool.name),
            "a process that ends is replaced by a boot and not by a fork, and processes share no memory of the application",
            "connect and start threads in the first request instead of the boot; or worker_zygote = false".to_owned(),
        );
    } else if let Some(pid) = zygote["pid"].as_u64() {
        notes.ok(format!(
            "[pool.{}] processes are forked from process {pid}, which has booted the application",
            pool.name
        ));
    }
}

/// Whether a running pool shares a load of PHP, if it could: only what would surprise is told.
fn load(case: &Case<'_>, pool: &Pool, notes: &mut Notes) {
    let live = case.live().and_then(|live| live.pool(&pool.name));
    let Some(load) = live.map(|pool| &pool["php_load"]) else {
        return;
    };
    if let Some(why) = load["own"].as_str() {
        notes.ok(format!(
            "[pool.{}] loads PHP for itself, which costs some 10 MB and 60 ms: {why}",
            pool.name
        ));
    } else if let Some(pid) = load["template"].as_u64() {
        notes.ok(format!(
            "[pool.{}] shares a load of PHP with other pools (process {pid})",
            pool.name
        ));
    }
}

/// Compares the body size that PHP accepts with weir's.
fn bodies(case: &Case<'_>, notes: &mut Notes) {
    let mut told = Vec::new();
    for scope in case.scopes() {
        let (body, pool) = (scope.settings.max_body, scope.settings.pool);
        let Some(id) = pool.filter(|_| !told.contains(&(body, pool))) else {
            continue;
        };
        told.push((body, pool));
        let setting = |name| {
            case.php_setting(id.0, name)
                .as_deref()
                .and_then(size_of_php)
        };
        let Some(post) = setting("post_max_size") else {
            continue;
        };
        let label = format!("{} max_body = {}", scope.label, size(body));
        match post < body {
            true => notes.note(
                format!("{label}, but PHP's post_max_size is {}", size(post)),
                "weir accepts a form between the two sizes, but the script sees an empty form",
                format!(
                    "max_body = \"{}M\", or php_admin_value = {{ post_max_size = \"{}M\" }}",
                    post >> 20,
                    body >> 20
                ),
            ),
            false => notes.ok(format!(
                "{label} is within PHP's post_max_size = {}",
                size(post)
            )),
        }
        if let Some(upload) = setting("upload_max_filesize").filter(|upload| *upload > post) {
            notes.warn(
                format!(
                    "{} PHP's upload_max_filesize = {} is above its post_max_size = {}",
                    scope.label,
                    size(upload),
                    size(post)
                ),
                "PHP discards an upload between the two sizes, and the form with it",
                format!(
                    "php_admin_value = {{ post_max_size = \"{}M\" }}",
                    (upload >> 20) + 1
                ),
            );
        }
    }
}

fn chdir(pool: &Pool, workers: &Workers, who: &Who, notes: &mut Notes) {
    let Some(folder) = &workers.chdir else { return };
    let label = format!("[pool.{}] chdir = \"{}\"", pool.name, folder.display());
    match may(who, workers.chroot.as_deref(), folder, Need::Enter) {
        Access::Yes => notes.ok(format!("{label} can be entered by {}", who.name)),
        // `weir check` reports this.
        Access::No(barrier) if matches!(barrier.cause, Cause::Missing | Cause::NotFolder) => {}
        Access::No(barrier) => notes.breaks(
            format!("{label} cannot be entered by {}: {barrier}", who.name),
            "no worker starts: requests are answered with 503 no_worker",
            barrier.mend(who),
        ),
        Access::Unseen(at) => notes.barred(&label, &at),
    }
}

/// Files that PHP and the C library open by name while scripts run, which must exist inside.
fn chroot_contents(pool: &Pool, chroot: &Path, notes: &mut Notes) {
    let missing = |paths: &[&str]| {
        let there = |path: &&str| resolve(Some(chroot), Path::new(path)).is_some();
        !paths.iter().any(there)
    };
    let inside = |path: &str| quoted(&seen_from_outside(Some(chroot), Path::new(path)));
    let label = format!("[pool.{}] chroot = \"{}\"", pool.name, chroot.display());
    let mut complete = true;
    let mut told = |paths: &[&str], why: &str, mend: String| {
        if missing(paths) {
            complete = false;
            notes.warn(format!("{label} has no {}", paths[0]), why, mend);
        }
    };
    told(
        &["/etc/resolv.conf"],
        "DNS does not work: connections to databases and services by name fail",
        format!(
            "install -Dm644 /etc/resolv.conf {}",
            inside("/etc/resolv.conf")
        ),
    );
    told(
        &["/dev/null"],
        "libraries and programs that scripts start need it",
        format!(
            "install -d {} && mknod -m666 {} c 1 3",
            inside("/dev"),
            inside("/dev/null")
        ),
    );
    told(
        &[
            "/etc/ssl/certs/ca-certificates.crt",
            "/etc/ssl/certs",
            "/etc/pki/tls/certs/ca-bundle.crt",
        ],
        "no https certificate can be verified, unless openssl.cafile and curl.cainfo are files inside",
        format!(
            "install -Dm644 /etc/ssl/certs/ca-certificates.crt {}",
            inside("/etc/ssl/certs/ca-certificates.crt")
        ),
    );
    told(
        &["/etc/hosts"],
        "names in it, such as localhost, cannot be resolved",
        format!("install -Dm644 /etc/hosts {}", inside("/etc/hosts")),
    );
    let null = seen_from_outside(Some(chroot), Path::new("/dev/null"));
    if let Ok(metadata) = null.symlink_metadata()
        && (!metadata.file_type().is_char_device() || metadata.mode() & 0o006 != 0o006)
    {
        complete = false;
        let at = quoted(&null);
        notes.warn(
            format!("{} is not the null device", null.display()),
            "data written there stays on the disk, or writing fails",
            format!("rm {at} && mknod -m666 {at} c 1 3"),
        );
    }
    if complete {
        notes.ok(format!(
            "{label} has the files that PHP and the C library need"
        ));
    }
}

/// A PHP that uses the system's time zones, as Debian's does, crashes with SIGSEGV at the first date() if they are
/// missing (seen with 8.2, also in PHP-FPM's workers).
fn time_zones(pool: &Pool, chroot: &Path, php: Option<&Php>, notes: &mut Notes) {
    if pool.php().is_none() || resolve(Some(chroot), Path::new("/usr/share/zoneinfo")).is_some() {
        return;
    }
    let version = php.and_then(|php| php.setting("\"Olson\" Timezone Database Version"));
    let label = format!(
        "[pool.{}] chroot = \"{}\" has no /usr/share/zoneinfo",
        pool.name,
        chroot.display()
    );
    let within = quoted(&seen_from_outside(Some(chroot), Path::new("/usr/share")));
    let mend = format!("install -d {within} && cp -a /usr/share/zoneinfo {within}");
    match version {
        Some(version) if version.ends_with("system") => notes.breaks(
            format!("{label}, where this PHP looks for time zones"),
            "a worker crashes with SIGSEGV when a script uses the date: 502 worker_died",
            mend,
        ),
        // It has its own time zones.
        Some(_) => {}
        None => notes.warn(
            label,
            "PHP that uses the system's time zones, as Debian's does, crashes when a script uses the date",
            mend,
        ),
    }
}

/// PHP itself: whether its user may run it, and its messages.
fn php(case: &Case<'_>, index: usize, pool: &Pool, who: &Who, notes: &mut Notes) {
    let Some(php) = pool.php() else { return };
    if let Ok(program) = weir_machine::php::find(php.version.as_deref())
        && !may_start(pool, &program, who, notes)
    {
        return;
    }
    let fixed = case.php_setting(index, "opcache.validate_timestamps");
    if fixed.is_some_and(|on| matches!(on.as_str(), "" | "0" | "Off")) {
        notes.note(
            format!("[pool.{}] opcache.validate_timestamps is off", pool.name),
            "changes in a script have no effect until the pool is restarted",
            format!(
                "after a deployment run weir pool {} restart; or use a symbolic link as the root and switch it (watch_root)",
                pool.name
            ),
        );
    }
    match case.php.get(index).and_then(Option::as_ref) {
        Some(Ok(php)) if php.complaints.is_empty() => {
            notes.ok(format!(
                "[pool.{}] PHP {} starts without messages",
                pool.name, php.version
            ));
        }
        Some(Ok(php)) => {
            for complaint in php.complaints.iter().take(MOST_COMPLAINTS) {
                notes.warn(
                    format!("[pool.{}] PHP says: {complaint}", pool.name),
                    "PHP starts without the parts that it could not load",
                    "correct the file in the message; weir fpm -i shows the settings in force",
                );
            }
        }
        Some(Err(error)) => notes.unseen(
            format!(
                "[pool.{}] PHP's settings could not be read: {error}",
                pool.name
            ),
            "check that PHP and weir-php are installed and run: weir fpm -v",
        ),
        None => {}
    }
}

/// Whether PHP may be started as the pool's user, by the permissions of its files.
fn may_start(pool: &Pool, program: &Program, who: &Who, notes: &mut Notes) -> bool {
    let files = [
        (program.path.as_path(), Need::Execute),
        (&program.object, Need::Read),
    ];
    for (file, need) in files {
        if let Access::No(barrier) = may(who, None, file, need) {
            let what = if need == Need::Read { "read" } else { "run" };
            notes.breaks(
                format!(
                    "[pool.{}] {} cannot {what} {}: {barrier}",
                    pool.name,
                    who.name,
                    file.display()
                ),
                "PHP runs as the pool's user from its start: no worker starts",
                barrier.mend(who),
            );
            return false;
        }
    }
    if let Err((cause, mend)) = weir_machine::php::check_build(&program.object) {
        notes.breaks(
            format!("[pool.{}] {cause}", pool.name),
            "weir does not start with such a file: requests would fail and end their workers",
            mend,
        );
        return false;
    }
    if let Some(profile) = weir_machine::php::apparmor_profile(&program.path) {
        notes.warn(
            format!(
                "[pool.{}] the AppArmor profile {profile} is enforced for {}",
                pool.name,
                program.path.display()
            ),
            "if the profile forbids PHP to read weir-php, PHP does not start",
            format!(
                "allow it in the profile: {} mr, (then apparmor_parser -r)",
                program.object.display()
            ),
        );
    }
    true
}

/// The processes of a pool, and their user.
struct Processes<'a> {
    pool: &'a Pool,
    workers: &'a Workers,
    who: &'a Who,
}

/// Folders that PHP writes to.
fn folders(case: &Case<'_>, index: usize, processes: &Processes<'_>, notes: &mut Notes) {
    let Processes { pool, workers, who } = *processes;
    let setting = |name: &str| case.php_setting(index, name);
    let temporary = setting("sys_temp_dir").filter(|path| !path.is_empty());
    let temporary = temporary.unwrap_or_else(|| "/tmp".into());
    if let Some(handler) = setting("session.save_handler")
        && handler == "files"
    {
        let path = setting("session.save_path").unwrap_or_default();
        // `N;MODE;PATH`: with subfolders, or a mode for the files.
        let path = path.rsplit(';').next().unwrap_or_default().to_owned();
        let path = if path.is_empty() {
            temporary.clone()
        } else {
            path
        };
        let what = "session.save_path";
        let why = "session_start() fails: users cannot log in";
        writable(processes, what, &path, why, notes);
    }
    if setting("file_uploads").is_none_or(|on| on != "Off" && on != "0") {
        let path = setting("upload_tmp_dir").filter(|path| !path.is_empty());
        let (what, path) = match path {
            Some(path) => ("upload_tmp_dir", path),
            None => ("the folder for temporary files", temporary),
        };
        let why = "uploads and temporary files fail";
        writable(processes, what, &path, why, notes);
    }
    for name in ["auto_prepend_file", "auto_append_file"] {
        if let Some(file) = setting(name).filter(|file| file.starts_with('/'))
            && let Access::No(barrier) =
                may(who, workers.chroot.as_deref(), Path::new(&file), Need::Read)
        {
            notes.breaks(
                format!(
                    "[pool.{}] {name} = {file}: {} cannot read it: {barrier}",
                    pool.name, who.name
                ),
                "every script ends with a fatal error",
                format!("make it readable, or remove {name} from php.ini"),
            );
        }
    }
}

fn writable(processes: &Processes<'_>, what: &str, path: &str, why: &str, notes: &mut Notes) {
    let Processes { pool, workers, who } = *processes;
    let chroot = workers.chroot.as_deref();
    let outside = seen_from_outside(chroot, Path::new(path));
    let label = format!("[pool.{}] {what} = {path}", pool.name);
    let seen = match chroot {
        Some(_) => format!(" (inside the chroot: {})", outside.display()),
        None => String::new(),
    };
    match may(who, chroot, Path::new(path), Need::MakeFiles) {
        Access::Yes => notes.ok(format!("{label}{seen} can be written by {}", who.name)),
        Access::No(barrier) if barrier.cause == Cause::Missing => notes.warn(
            format!("{label}{seen}: {barrier}"),
            why,
            format!("install -d -m700 -o {} {}", who.name, quoted(&outside)),
        ),
        Access::No(barrier) => notes.warn(
            format!("{label}{seen} cannot be written by {}: {barrier}", who.name),
            why,
            format!(
                "{}; or php_admin_value = {{ \"{what}\" = \"…\" }} with another folder",
                barrier.mend(who)
            ),
        ),
        Access::Unseen(at) => notes.barred(&label, &at),
    }
}

/// Pools of different users that keep sessions in the same folder.
fn shared_sessions(case: &Case<'_>, notes: &mut Notes) {
    let mut folders: BTreeMap<PathBuf, Vec<(String, u32)>> = BTreeMap::new();
    for (index, pool, php) in case.php_pools() {
        let Some(path) = case
            .php_setting(index, "session.save_path")
            .filter(|path| path.starts_with('/'))
        else {
            continue;
        };
        let Some(who) = case.people.pools.get(index).and_then(Option::as_ref) else {
            continue;
        };
        let outside = seen_from_outside(php.workers.chroot.as_deref(), Path::new(&path));
        let users = folders.entry(outside).or_default();
        users.push((pool.name.clone(), who.identity.uid));
    }
    for (folder, pools) in folders {
        let first = pools[0].1;
        if pools.iter().any(|(_, uid)| *uid != first) {
            let names: Vec<&str> = pools.iter().map(|(name, _)| name.as_str()).collect();
            notes.note(
                format!("pools {} run as different users but keep sessions in the same {}", names.join(", "), folder.display()),
                "the clean-up of old sessions fails for the files of the other users",
                "php_admin_value = { \"session.save_path\" = \"…\" } with a separate folder for each",
            );
        }
    }
}

/// How many of PHP's messages are shown.
const MOST_COMPLAINTS: usize = 10;

#[cfg(test)]
mod tests {
    use super::super::tests::{said, with_config};
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn looked(lines: &str) -> Vec<String> {
        let text = format!(
            "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\nruntime = \"command\"\n\
             command = [\"sh\"]\nuser = \"nobody\"\n{lines}\n"
        );
        with_config(&text, |case| {
            let mut notes = Notes::default();
            look(case, &mut notes);
            said(&notes)
        })
    }

    #[test]
    fn a_working_folder_that_may_not_be_entered_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let set =
            |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let lines = format!("chdir = \"{}\"", folder.path().display());
        set(0o755);
        assert!(looked(&lines)[0].starts_with("ok: "));
        if weir_sys::identity::is_root() {
            set(0o700);
            let found = looked(&lines);
            assert!(
                found[0].starts_with("break: ") && found[0].contains("chmod o+x"),
                "{found:?}"
            );
        }
    }

    #[test]
    fn forms_that_php_throws_away_are_told() {
        let looked = |values: &str| {
            let text = format!(
                "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\nmax_body = \"8M\"\n\
                 [[site.a.route]]\npath = \"/x\"\n[pool.app]\nruntime = \"php\"\nphp_admin_value = {{ {values} }}\n"
            );
            with_config(&text, |case| {
                let mut notes = Notes::default();
                bodies(case, &mut notes);
                said(&notes)
            })
        };
        assert!(looked("post_max_size = \"8M\"")[0].starts_with("ok: "));
        let found = looked("post_max_size = \"2M\"");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("max_body = \"2M\", or php_admin_value"),
            "{found:?}"
        );
        let found = looked("post_max_size = \"8M\", upload_max_filesize = \"10M\"");
        assert!(found[1].contains("post_max_size = \"11M\""), "{found:?}");
        assert_eq!(looked("memory_limit = \"1M\""), [""; 0]);
    }

    #[test]
    fn code_that_is_never_looked_at_again_is_told() {
        let looked = |on: &str| {
            let text = format!(
                "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\n\
                 runtime = \"php\"\nphp_admin_value = {{ \"opcache.validate_timestamps\" = \"{on}\" }}\n"
            );
            with_config(&text, |case| {
                let mut notes = Notes::default();
                php(
                    case,
                    0,
                    &case.config.pools[0],
                    &Who::named("nobody", None).unwrap(),
                    &mut notes,
                );
                said(&notes)
                    .iter()
                    .any(|text| text.contains("validate_timestamps"))
            })
        };
        assert!(looked("0") && !looked("1"));
    }

    #[test]
    fn an_empty_chroot_lacks_what_is_looked_for_and_a_full_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let chroot = folder.path();
        let lines = format!("chroot = \"{}\"", chroot.display());
        let found = looked(&lines);
        for name in [
            "/etc/resolv.conf",
            "/etc/hosts",
            "/dev/null",
            "/etc/ssl/certs",
        ] {
            assert!(
                found
                    .iter()
                    .any(|f| f.starts_with("warn: ") && f.contains(name)),
                "{name}: {found:?}"
            );
        }
        for name in ["etc/ssl/certs", "dev"] {
            fs::create_dir_all(chroot.join(name)).unwrap();
        }
        fs::write(chroot.join("etc/resolv.conf"), "").unwrap();
        fs::write(chroot.join("etc/hosts"), "").unwrap();
        fs::write(chroot.join("dev/null"), "").unwrap();
        let found = looked(&lines);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("not the null device"), "{found:?}");
    }

    #[test]
    fn time_zones_are_missed_by_a_php_that_has_none_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\nruntime = \"php\"\n";
        let looked = |php: Option<&str>| {
            let php = php.map(|version| {
                Php::of(
                    &format!("\"Olson\" Timezone Database Version => {version}\n"),
                    "",
                )
            });
            with_config(text, |case| {
                let mut notes = Notes::default();
                time_zones(
                    &case.config.pools[0],
                    folder.path(),
                    php.as_ref(),
                    &mut notes,
                );
                said(&notes)
            })
        };
        assert!(looked(Some("0.system"))[0].starts_with("break: "));
        assert!(looked(None)[0].starts_with("warn: "));
        assert_eq!(looked(Some("2024.2")), [""; 0]);
        fs::create_dir_all(folder.path().join("usr/share/zoneinfo")).unwrap();
        assert_eq!(looked(Some("0.system")), [""; 0]);
    }

    #[test]
    fn a_folder_that_php_writes_to_is_looked_at_as_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let set =
            |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let path = folder.path().display().to_string();
        let looked = || {
            let text = "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"app\"\n[pool.app]\nruntime = \"command\"\n\
                        command = [\"sh\"]\n";
            with_config(text, |case| {
                let mut notes = Notes::default();
                let pool = &case.config.pools[0];
                let processes = Processes {
                    pool,
                    workers: pool.workers().unwrap(),
                    who: &Who::member("daemon").unwrap(),
                };
                let what = "session.save_path";
                writable(&processes, what, &path, "no sessions", &mut notes);
                said(&notes)
            })
        };
        set(0o777);
        assert!(looked()[0].starts_with("ok: "));
        set(0o755);
        assert!(looked()[0].starts_with("warn: ") && looked()[0].contains("chmod o+wx"));
        drop(folder);
        assert!(looked()[0].contains("install -d"));
    }
}
