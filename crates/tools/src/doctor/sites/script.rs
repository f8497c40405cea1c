//! Whether an existing script would run: by the gateway's rules, and with its worker's permissions, at the path that
//! the worker would open.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use weir_config::{Pool, PoolId, Runtime, Servers, Settings};

use super::hides;
use crate::doctor::{
    Notes,
    case::{Case, Scope, is_here, worker_root},
    rights::{Access, Cause, Need, may, resolve},
    servers::behind,
};

/// An index file or a fallback that is a script.
pub(super) struct Script {
    /// Relative to the root, with a leading slash.
    pub(super) name: String,
    /// The key that sets it.
    pub(super) key: &'static str,
}

/// Whether an existing script would run: by the gateway's rules, and with the worker's permissions.
pub(super) fn runs(case: &Case<'_>, scope: &Scope<'_>, script: &Script, notes: &mut Notes) {
    let (settings, name) = (scope.settings, &script.name);
    let label = format!("{} {} {name}", scope.label, script.key);
    if settings
        .deny_scripts
        .iter()
        .any(|prefix| name.starts_with(prefix))
    {
        // An index file that is not a script is skipped; a fallback would be sent as a file.
        if script.key == "fallback" {
            notes.breaks(
                format!("{label} is below deny_scripts"),
                "every URL without a file is answered with the source code of the script",
                "remove its prefix from deny_scripts, or use another fallback",
            );
        }
        return;
    }
    let Some((id, pool)) = settings.pool.and_then(|id| Some((id, case.pool(id)?))) else {
        notes.breaks(
            format!("{label} is a script, but no pool runs it"),
            "it is answered with 403",
            "pool = \"NAME\"",
        );
        return;
    };
    let limit = &pool.limit_extensions;
    if !limit.is_empty() && !limit.iter().any(|end| name.ends_with(end.as_str())) {
        let extension = name.rfind('.').map_or("", |dot| &name[dot..]);
        notes.breaks(
            format!(
                "{label} is not allowed by limit_extensions = {limit:?} of [pool.{}]",
                pool.name
            ),
            "it is answered with 403",
            format!("[pool.{}] limit_extensions = {:?}", pool.name, {
                let mut more = limit.clone();
                more.push(extension.to_owned());
                more
            }),
        );
        return;
    }
    if let Some(hidden) = hides(settings, name) {
        notes.note(
            format!("{label} is hidden by hide_files ('{hidden}')"),
            "other URLs run it, but its own URL is answered with 404",
            "remove that expression from hide_files if the script should have its own URL",
        );
    }
    worker_reads(case, scope, (id, pool), script, notes);
}

/// The path that a worker opens, and whether it may read it.
fn worker_reads(
    case: &Case<'_>,
    scope: &Scope<'_>,
    (id, pool): (PoolId, &Pool),
    script: &Script,
    notes: &mut Notes,
) {
    let (settings, name) = (scope.settings, &script.name);
    if !is_here(pool) {
        return;
    }
    let (who, chroot) = match &pool.runtime {
        Runtime::Servers(servers) if refused_by_fpm(case, scope, servers, script, notes) => {
            return;
        }
        Runtime::Servers(servers) => match case.fpm_behind(servers) {
            Some((who, chroot)) => (Some(who), chroot),
            None => return,
        },
        _ => (
            case.worker(id).cloned(),
            pool.workers().and_then(|workers| workers.chroot.clone()),
        ),
    };
    let Some(who) = who else { return };
    let label = format!("{} {} {name}", scope.label, script.key);
    let locked = match &chroot {
        Some(chroot) => format!(", in the chroot {}", chroot.display()),
        None => String::new(),
    };
    let workers = format!("the workers of [pool.{}] ({}{locked})", pool.name, who.name);
    let Some(root) = worker_root(settings, pool) else {
        let root = settings.root.as_deref().unwrap_or(Path::new("/"));
        let chroot = chroot.as_deref().unwrap_or(Path::new("/"));
        notes.breaks(
            format!(
                "{label}: {workers} would open {}{name}, but cannot see anything outside of {}",
                root.display(),
                chroot.display()
            ),
            "every script is answered with 404, \"File not found\"",
            format!(
                "move the root into {}, or set script_root to its path inside",
                chroot.display()
            ),
        );
        return;
    };
    let filename = format!("{root}{name}");
    let tried = format!("SCRIPT_FILENAME={filename}");
    match may(&who, chroot.as_deref(), Path::new(&filename), Need::Read) {
        Access::Yes => {
            notes.ok(format!("{label}: {workers} can read it ({tried})"));
            let names = (name.as_str(), filename.as_str());
            same_file(scope, &label, chroot.as_deref(), names, notes);
            open_basedir(case, id, &label, &filename, notes);
        }
        Access::No(barrier) if barrier.cause == Cause::Missing => {
            let mend = right_script_root(settings, chroot.as_deref());
            notes.breaks(
                format!("{label}: {workers} would open {tried}, but {barrier}"),
                "every script is answered with 404, \"File not found\"",
                mend,
            );
        }
        Access::No(barrier) => notes.breaks(
            format!("{label}: {workers} cannot open {tried}: {barrier}"),
            "every script is answered with \"Access denied\" or \"File not found\"",
            barrier.mend(&who),
        ),
        Access::Unseen(at) => notes.barred(&label, &at),
    }
}

/// Whether the PHP-FPM behind a server would refuse a script with that name.
fn refused_by_fpm(
    case: &Case<'_>,
    scope: &Scope<'_>,
    servers: &Servers,
    script: &Script,
    notes: &mut Notes,
) -> bool {
    let mut behind = servers
        .list
        .iter()
        .filter_map(|server| behind(&case.fpms, &server.address));
    let refused = behind.find(|(_, pool)| {
        let limit = pool
            .security_limit_extensions
            .as_deref()
            .unwrap_or(".php .phar");
        let mut limit = limit
            .split([' ', ','])
            .filter(|end| !end.is_empty())
            .peekable();
        limit.peek().is_some() && !limit.any(|end| script.name.ends_with(end))
    });
    let Some((fpm, pool)) = refused else {
        return false;
    };
    notes.breaks(
        format!(
            "{} {} {} is not allowed by security.limit_extensions of [{}] in {}",
            scope.label, script.key, script.name, pool.name, fpm.file
        ),
        "PHP-FPM answers \"Access denied.\" with 403",
        "add its extension to security.limit_extensions there",
    );
    true
}

/// If `script_root` is another folder, other files run than the gateway has checked. `name`: below the root;
/// `filename`: as the workers see it.
fn same_file(
    scope: &Scope<'_>,
    label: &str,
    chroot: Option<&Path>,
    (name, filename): (&str, &str),
    notes: &mut Notes,
) {
    let root = scope.settings.root.as_deref().unwrap_or(Path::new("/"));
    let ours = resolve(None, &root.join(&name[1..]));
    let theirs = resolve(chroot, Path::new(filename));
    if let (Some(ours), Some(theirs)) = (ours, theirs)
        && !same(&ours, &theirs)
    {
        notes.warn(
            format!(
                "{label}: the gateway checks {}, but workers run {}",
                ours.display(),
                theirs.display()
            ),
            "a script that exists in only one of the two places is answered with 404; and the code that runs is not the code that is checked",
            right_script_root(scope.settings, chroot),
        );
    }
}

fn same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => one == other,
    }
}

/// The correct value of `script_root`.
fn right_script_root(settings: &Settings, chroot: Option<&Path>) -> String {
    let real = settings
        .root
        .as_deref()
        .and_then(|root| root.canonicalize().ok());
    let chroot = chroot.map(|chroot| chroot.canonicalize().unwrap_or_else(|_| chroot.to_owned()));
    let inside = match (&real, &chroot) {
        (Some(real), Some(chroot)) => real
            .strip_prefix(chroot)
            .ok()
            .map(|path| Path::new("/").join(path)),
        (Some(real), None) => Some(real.clone()),
        (None, _) => None,
    };
    match (inside, &settings.script_root) {
        (Some(inside), Some(_)) => format!("script_root = \"{}\"", inside.display()),
        _ => "set script_root to the path of the root as the workers see it".into(),
    }
}

/// PHP opens nothing outside of `open_basedir`, not even the script itself.
fn open_basedir(case: &Case<'_>, id: PoolId, label: &str, filename: &str, notes: &mut Notes) {
    let Some(allowed) = case
        .php_setting(id.0, "open_basedir")
        .filter(|text| !text.is_empty())
    else {
        return;
    };
    if allowed.split(':').any(|folder| within(folder, filename)) {
        notes.ok(format!("{label}: {filename} is within open_basedir"));
        return;
    }
    let folder = Path::new(filename).parent().unwrap_or(Path::new("/"));
    notes.breaks(
        format!(
            "{label}: {filename} is not within open_basedir = \"{allowed}\" of [pool.{}]",
            case.config.pools[id.0].name
        ),
        "PHP refuses to open the script",
        format!("open_basedir = \"{allowed}:{}\"", folder.display()),
    );
}

/// As PHP compares: an entry is a folder, and everything below it is inside.
fn within(folder: &str, filename: &str) -> bool {
    if folder == "." {
        // The script's own folder, or `chdir`: it is not known here whether they differ.
        return true;
    }
    Path::new(filename).starts_with(folder.trim_end_matches('/')) || folder == "/"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::{said, with_case};
    use weir_fpm::look;

    #[test]
    fn a_script_that_php_fpm_would_refuse_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("php-fpm.conf");
        let listens = "listen = /run/no-such-fpm.sock\npm = static\npm.max_children = 1\n";
        let user = "user = nobody\ngroup = nogroup\n";
        fs::write(
            &conf,
            format!("[global]\nerror_log = /dev/null\n[www]\n{user}{listens}"),
        )
        .unwrap();
        let text = "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"farm\"\n[pool.farm]\n\
                    runtime = \"servers\"\nservers = [\"unix:/run/no-such-fpm.sock\"]\nqueue.maxconn = 1\n";
        with_case(text, |case| {
            case.fpms = vec![look::pools(&conf).expect("a configuration")];
            let Runtime::Servers(servers) = &case.config.pools[0].runtime else {
                panic!("servers");
            };
            let scope = &case.scopes()[0];
            let mut notes = Notes::default();
            let mut refused = |name: &str| {
                let script = Script {
                    name: name.into(),
                    key: "index",
                };
                refused_by_fpm(case, scope, servers, &script, &mut notes)
            };
            assert!(!refused("/index.php"));
            assert!(refused("/index.phtml"));
            assert!(said(&notes)[0].starts_with("break: "), "{:?}", said(&notes));
        });
    }

    #[test]
    fn open_basedir_is_a_list_of_folders() {
        assert!(
            within("/srv/shop", "/srv/shop/index.php") && within("/srv/shop/", "/srv/shop/a/b.php")
        );
        assert!(!within("/srv/sho", "/srv/shop/index.php") && within("/", "/srv/a.php"));
    }
}
