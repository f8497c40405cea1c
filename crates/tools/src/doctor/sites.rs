//! Roots and scripts of sites: whether the gateway and the workers can reach them, and the path that a worker would
//! really open ([`script`]).

mod htaccess;
mod script;

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use regex::bytes::Regex;
use weir_config::{Settings, Site};

use script::Script;
use weir_machine::links;

use super::{
    AS_ROOT, Notes,
    case::{Case, Scope, pattern},
    people::Who,
    rights::{Access, Cause, Need, may, quoted},
};
use crate::folder::has_php;

/// Checks every site, and the differences of its routes.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    let mut told = BTreeSet::new();
    for scope in case.scopes() {
        let Some(root) = scope.settings.root.as_deref().filter(|_| scope.is_own) else {
            continue;
        };
        // `weir check` checks the folder of an alias.
        if scope.settings.alias.is_some() {
            continue;
        }
        // Routes repeat the settings of their site: these are reported once.
        let mut is_new = |what: String| told.insert(format!("{} {what}", root.display()));
        let settings = scope.settings;
        if is_new("root".into()) {
            if is_out_of_sight(&scope, root, case, notes) {
                continue;
            }
            gateway(case, &scope, root, notes);
        }
        // `weir check` reports a missing root. Servers that speak HTTP get what is no file.
        if !root.is_dir() || settings.is_proxied {
            continue;
        }
        let entries = entries(settings, root);
        for script in &entries.scripts {
            let (pool, known) = (settings.pool, &settings.script_root);
            if is_new(format!(
                "{} {pool:?} {known:?} {:?}",
                script.name, settings.deny_scripts
            )) {
                script::runs(case, &scope, script, notes);
            }
        }
        if is_new(format!("fallback {:?}", settings.fallback)) {
            fallback(case, &scope, root, notes);
        }
        if !is_slash_answered(case, &scope) {
            index(&scope.label, settings, root, &entries, notes);
        }
        for (status, page) in &settings.error_pages {
            if is_new(format!("{status} {}", page.display())) {
                error_page(case, &scope, *status, &root.join(page), notes);
            }
        }
        if !settings.follow_symlinks && is_new("links".into()) {
            links_out(&scope, root, notes);
        }
    }
    for site in &case.config.sites {
        scripts_without_pool(site, notes);
    }
    htaccess::look(case, notes);
}

/// What `weir check` and a start say of a site, too: no rights of other users are looked at.
pub(super) fn look_briefly(site: &Site, notes: &mut Notes) {
    let settings = &site.settings;
    let Some(root) = settings.root.as_deref().filter(|root| root.is_dir()) else {
        return;
    };
    if !has_route_for_slash(site) && !settings.is_proxied {
        let label = format!("[site.{}]", site.name);
        index(&label, settings, root, &entries(settings, root), notes);
    }
    scripts_without_pool(site, notes);
    htaccess::of_site(site, root, notes);
}

/// Whether `/` leads to something.
fn index(label: &str, settings: &Settings, root: &Path, entries: &Entries, notes: &mut Notes) {
    if entries.is_empty() && settings.fallback.is_none() {
        notes.warn(
            format!(
                "{label} no index file ({}) is in {}, and there is no fallback",
                settings.index.join(", "),
                root.display()
            ),
            "\"/\" is answered with 404",
            "set index = [\"…\"] to an existing file, or fallback = \"/index.php\"",
        );
    }
}

/// PHP scripts in a site that has no pool anywhere.
fn scripts_without_pool(site: &Site, notes: &mut Notes) {
    let settings = site.routes.iter().map(|route| &route.settings);
    let mut settings = settings.chain([&site.settings]);
    let Some(root) = &site.settings.root else {
        return;
    };
    if settings.all(|settings| settings.pool.is_none()) && has_php(root) {
        notes.warn(
            format!(
                "[site.{}] {} has PHP scripts, but the site has no pool",
                site.name,
                root.display()
            ),
            "their URLs are answered with 403",
            "add pool = \"app\" to the site, and a table [pool.app] with runtime = \"php\"",
        );
    }
}

/// Whether we may not even see the root.
fn is_out_of_sight(scope: &Scope<'_>, root: &Path, case: &Case<'_>, notes: &mut Notes) -> bool {
    let barred = fs::metadata(root).is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied);
    if barred && !case.people.us.is_root() {
        let what = format!("{} root = \"{}\"", scope.label, root.display());
        notes.unseen(format!("{what}: no permission to look at it"), AS_ROOT);
        return true;
    }
    false
}

/// The existing files to which `/` and the fallback lead.
struct Entries {
    /// Scripts, by name with a leading slash, and the key that sets them.
    scripts: Vec<Script>,
    files: usize,
}

impl Entries {
    fn is_empty(&self) -> bool {
        self.scripts.is_empty() && self.files == 0
    }
}

fn entries(settings: &Settings, root: &Path) -> Entries {
    let mut found = Entries {
        scripts: Vec::new(),
        files: 0,
    };
    let pattern = pattern(&settings.script);
    let candidates = settings
        .index
        .iter()
        .map(|name| (format!("/{name}"), "index"));
    let fallback = settings
        .fallback
        .iter()
        .map(|path| (fallback_path(path).to_owned(), "fallback"));
    for (path, key) in candidates.chain(fallback) {
        match script_name(pattern.as_ref(), &path) {
            Some(name) if root.join(&name[1..]).is_file() => {
                let known = found.scripts.iter_mut().find(|script| script.name == name);
                match known {
                    // The fallback gets more requests than an index file.
                    Some(known) => known.key = key,
                    None => found.scripts.push(Script { name, key }),
                }
            }
            None if key == "index" && root.join(&path[1..]).is_file() => found.files += 1,
            _ => {}
        }
    }
    found
}

/// The script's part of a path.
fn script_name(pattern: Option<&Regex>, path: &str) -> Option<String> {
    let found = pattern?.captures(path.as_bytes())?;
    let name = found.get(1).or(found.get(0))?.as_bytes();
    let name = String::from_utf8(name.to_vec()).ok()?;
    (name.len() > 1 && name.starts_with('/')).then_some(name)
}

/// Whether the gateway can enter the root. In a chroot it sees what is inside; folders outside were opened before.
fn gateway(case: &Case<'_>, scope: &Scope<'_>, root: &Path, notes: &mut Notes) {
    let Some(who) = &case.people.gateway else {
        return;
    };
    let label = format!("{} root = \"{}\"", scope.label, root.display());
    match gateway_may(case, who, root, Need::Enter) {
        Access::Yes => notes.ok(format!(
            "{label}: the gateway's user, {}, can enter it",
            who.name
        )),
        // `weir check` reports this.
        Access::No(barrier) if matches!(barrier.cause, Cause::Missing | Cause::NotFolder) => {}
        Access::No(barrier) => notes.breaks(
            format!(
                "{label}: the gateway's user, {}, cannot enter it: {barrier}",
                who.name
            ),
            "every file of the site is answered with 403 or 404",
            barrier.mend(who),
        ),
        Access::Unseen(at) => notes.barred(&label, &at),
    }
}

fn gateway_may(case: &Case<'_>, who: &Who, path: &Path, need: Need) -> Access {
    let Some(chroot) = &case.config.server.chroot else {
        return may(who, None, path, need);
    };
    let (real, chroot) = (
        path.canonicalize().unwrap_or_else(|_| path.to_owned()),
        chroot.canonicalize().unwrap_or_else(|_| chroot.clone()),
    );
    match real.strip_prefix(&chroot) {
        Ok(inside) => may(who, Some(&chroot), &Path::new("/").join(inside), need),
        Err(_) => may(who, Some(&real), Path::new("/"), need),
    }
}

/// A fallback without its query.
fn fallback_path(fallback: &str) -> &str {
    fallback.split('?').next().unwrap_or_default()
}

fn fallback(case: &Case<'_>, scope: &Scope<'_>, root: &Path, notes: &mut Notes) {
    let settings = scope.settings;
    // A group of the route's expression may stand for any name.
    let Some(fallback) = settings
        .fallback
        .as_deref()
        .map(fallback_path)
        .filter(|path| !path.contains('$') && settings.check_files != Some(false))
    else {
        return;
    };
    let pattern = pattern(&settings.script);
    let script = script_name(pattern.as_ref(), fallback);
    let pool = settings.pool.and_then(|id| case.pool(id));
    // Programs other than PHP may know names without files.
    if let (Some(name), Some(pool)) = (&script, pool)
        && pool.php().is_none()
        && !name.ends_with(".php")
        && settings.check_files.is_none()
    {
        return;
    }
    let name = script.unwrap_or_else(|| fallback.to_owned());
    let file = root.join(name.trim_start_matches('/'));
    match fs::metadata(&file) {
        Ok(metadata) if metadata.is_file() => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            notes.barred(&format!("{} fallback", scope.label), &file);
        }
        _ => notes.breaks(
            format!(
                "{} fallback = \"{fallback}\": {} is not a file",
                scope.label,
                file.display()
            ),
            "every URL without a file is answered with 404",
            "write an existing script, or remove fallback",
        ),
    }
}

/// Whether a route handles "/".
fn is_slash_answered(case: &Case<'_>, scope: &Scope<'_>) -> bool {
    if scope.label.contains("] route ") {
        return true;
    }
    let site = case
        .config
        .sites
        .iter()
        .find(|site| scope.label == format!("[site.{}]", site.name));
    site.is_some_and(has_route_for_slash)
}

fn has_route_for_slash(site: &Site) -> bool {
    site.routes.iter().any(|route| match &route.path {
        weir_config::PathPattern::Glob(glob) => ["/", "/*", "*"].contains(&glob.as_str()),
        weir_config::PathPattern::Regex(text) => {
            pattern(text).is_some_and(|pattern| pattern.is_match(b"/"))
        }
    })
}

/// The expression that hides a path.
pub(super) fn hides<'s>(settings: &'s Settings, path: &str) -> Option<&'s str> {
    let hidden = settings.hide_files.iter();
    let mut hidden =
        hidden.filter(|text| pattern(text).is_some_and(|p| p.is_match(path.as_bytes())));
    hidden.next().map(String::as_str)
}

fn error_page(case: &Case<'_>, scope: &Scope<'_>, status: u16, file: &Path, notes: &mut Notes) {
    let Some(who) = &case.people.gateway else {
        return;
    };
    let label = format!("{} error_pages: {status}", scope.label);
    match gateway_may(case, who, file, Need::Read) {
        Access::Yes => notes.ok(format!("{label} is {}", file.display())),
        Access::No(barrier) => notes.warn(
            format!(
                "{label}: the gateway's user, {}, cannot read it: {barrier}",
                who.name
            ),
            format!("weir's own page for {status} is sent instead"),
            match barrier.cause {
                Cause::Missing => format!("create {}, or write another file", quoted(file)),
                _ => barrier.mend(who),
            },
        ),
        Access::Unseen(at) => notes.barred(&label, &at),
    }
}

/// Links in the upper levels of a root that lead out of it: they are refused.
fn links_out(scope: &Scope<'_>, root: &Path, notes: &mut Notes) {
    let out = links::out_of(root);
    let Some((link, target)): Option<&(PathBuf, PathBuf)> = out.first() else {
        return;
    };
    let more = match out.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    notes.warn(
        format!(
            "{} {} is a link out of the root, to {}{more}",
            scope.label,
            link.display(),
            target.display()
        ),
        "requests for it are answered with 403",
        "follow_symlinks = true (applications from Debian packages need it) if you trust everyone who can create links \
         there; or move it into the root",
    );
}

#[cfg(test)]
mod tests {
    use super::super::tests::{said, with_config};
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn root() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    fn file(root: &tempfile::TempDir, name: &str) {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    /// The findings for a site, without those that are fine.
    fn looked(root: &tempfile::TempDir, site: &str, pool: &str) -> Vec<String> {
        let folder = root.path().display().to_string();
        let text = format!(
            "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"{folder}\"\n{}\n\
             [pool.app]\nruntime = \"command\"\ncommand = [\"sh\"]\n{}\n",
            site.replace("ROOT", &folder),
            pool.replace("ROOT", &folder)
        );
        with_config(&text, |case| {
            let mut notes = Notes::default();
            look(case, &mut notes);
            let bad = said(&notes)
                .into_iter()
                .filter(|text| !text.starts_with("ok: "));
            bad.collect()
        })
    }

    #[test]
    fn a_site_whose_script_is_there_is_fine() {
        let root = root();
        file(&root, "index.php");
        let found = looked(&root, "pool = \"app\"\nfallback = \"/index.php\"", "");
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_root_without_index_and_a_fallback_that_is_missing_are_told() {
        let root = root();
        let found = looked(&root, "pool = \"app\"", "");
        assert!(
            found[0].starts_with("warn: ") && found[0].contains("index.php"),
            "{found:?}"
        );
        let found = looked(&root, "pool = \"app\"\nfallback = \"/index.php\"", "");
        assert!(
            found[0].starts_with("break: ") && found[0].contains("is not a file"),
            "{found:?}"
        );
    }

    #[test]
    fn a_fallback_with_a_query_or_of_another_program_is_fine() {
        let root = root();
        file(&root, "index.php");
        for site in [
            "pool = \"app\"\nfallback = \"/index.php?q=1\"",
            "pool = \"app\"\nscript = '^(/app)(/.*)?$'\nfallback = \"/app\"\nindex = []",
            "pool = \"app\"\nfallback = \"/front.php\"\ncheck_files = false",
            "pool = \"app\"\nfallback = \"/index.php\"\n[[site.a.route]]\npath = \"~^/(.*)$\"\nfallback = \"/index.php?q=$1\"",
            "pool = \"app\"\nfallback = \"/index.php\"\n[[site.a.route]]\npath = \"/mail/*\"\nalias = \"ROOT\"\n\
             fallback = \"/mail/index.php\"",
        ] {
            assert_eq!(looked(&root, site, ""), [""; 0], "{site}");
        }
    }

    #[test]
    fn a_script_that_the_pool_may_not_run_is_told() {
        let root = root();
        file(&root, "index.php");
        let site = "pool = \"app\"\nfallback = \"/index.php\"";
        let found = looked(&root, site, "limit_extensions = [\".phtml\"]");
        assert!(
            found[0].contains(r#"limit_extensions = [".phtml", ".php"]"#),
            "{found:?}"
        );
        let found = looked(&root, "fallback = \"/index.php\"", "");
        assert!(found[0].contains("no pool runs it"), "{found:?}");
        let found = looked(&root, &format!("{site}\ndeny_scripts = [\"/index\"]"), "");
        assert!(
            found[0].starts_with("break: ") && found[0].contains("source"),
            "{found:?}"
        );
        let found = looked(&root, &format!("{site}\nhide_files = ['^/index']"), "");
        assert!(
            found[0].starts_with("note: ") && found[0].contains("hide_files"),
            "{found:?}"
        );
    }

    #[test]
    fn the_path_that_a_worker_would_try_is_said() {
        let root = root();
        file(&root, "index.php");
        let found = looked(&root, "pool = \"app\"\nscript_root = \"/elsewhere\"", "");
        assert!(
            found[0].contains("SCRIPT_FILENAME=/elsewhere/index.php"),
            "{found:?}"
        );
        let real = root.path().canonicalize().unwrap();
        let mend = format!("script_root = \"{}\"", real.display());
        assert!(found[0].contains(&mend), "{found:?}");
        // Inside the chroot the same file has another path.
        file(&root, "public/index.php");
        let site = "pool = \"app\"\nroot = \"ROOT/public\"";
        let text = |more: &str| {
            let folder = root.path().display().to_string();
            format!(
                "[listen.a]\naddress = \":1\"\n[site.a]\n{}\n{more}\n[pool.app]\nruntime = \"command\"\n\
                 command = [\"sh\"]\nuser = \"nobody\"\nchroot = \"{folder}\"\n",
                site.replace("ROOT", &folder)
            )
        };
        let looked = |more: &str| {
            with_config(&text(more), |case| {
                let mut notes = Notes::default();
                look(case, &mut notes);
                said(&notes)
            })
        };
        let fine = looked("");
        assert!(
            fine.iter()
                .any(|f| f.contains("SCRIPT_FILENAME=/public/index.php")),
            "{fine:?}"
        );
        let wrong = looked("script_root = \"/srv/public\"");
        assert!(
            wrong
                .iter()
                .any(|f| f.starts_with("break: ") && f.contains("script_root = \"/public\"")),
            "{wrong:?}"
        );
    }

    #[test]
    fn a_root_outside_of_its_worker_s_chroot_is_told() {
        let (root, jail) = (root(), tempfile::tempdir().unwrap());
        file(&root, "index.php");
        let pool = format!("user = \"nobody\"\nchroot = \"{}\"", jail.path().display());
        let found = looked(&root, "pool = \"app\"", &pool);
        assert!(
            found[0].starts_with("break: ") && found[0].contains("cannot see anything outside"),
            "{found:?}"
        );
    }

    #[test]
    fn links_out_and_error_pages_that_are_missing_are_told() {
        let root = root();
        file(&root, "index.html");
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join(".htaccess"), "Deny from all").unwrap();
        symlink(other.path(), root.path().join("out")).unwrap();
        symlink("index.html", root.path().join("in")).unwrap();
        let found = looked(&root, "error_pages = { 503 = \"503.html\" }", "");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("503"), "{found:?}");
        assert!(
            found[1].contains("/out is a link out of the root, to "),
            "{found:?}"
        );
        let followed = looked(&root, "follow_symlinks = true", "");
        assert!(
            followed.len() == 1 && followed[0].contains("denies /out/ to all"),
            "{followed:?}"
        );
    }
}
