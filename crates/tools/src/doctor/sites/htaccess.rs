//! `.htaccess` files, which weir does not read: what they would deny, and which part of it is not refused otherwise.

use std::{collections::BTreeSet, path::Path};

use weir_config::{Action, PathPattern, Site};

use super::hides;
use crate::doctor::{
    Notes,
    case::{Case, pattern},
    rights::quoted,
};
use crate::htaccess::{self, Effect, Htaccess, Rule};

/// Every `.htaccess` file in a site's root, and its replacement.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    let mut seen = BTreeSet::new();
    for site in &case.config.sites {
        let Some(root) = &site.settings.root else {
            continue;
        };
        if !seen.insert(root.clone()) {
            continue;
        }
        of_site(site, root, notes);
    }
}

/// Checks the `.htaccess` files of one site.
pub(super) fn of_site(site: &Site, root: &Path, notes: &mut Notes) {
    let found = htaccess::find(root, site.settings.follow_symlinks);
    for file in &found.files {
        one(site, file, &found.files, notes);
    }
    if found.incomplete {
        notes.note(
            format!(
                "[site.{}] {} has too many files to check all of them for .htaccess",
                site.name,
                root.display()
            ),
            "files that a .htaccess denies may be public",
            format!("find {} -name .htaccess", quoted(root)),
        );
    }
}

fn one(site: &Site, file: &Htaccess, all: &[Htaccess], notes: &mut Notes) {
    let label = format!("[site.{}] {}", site.name, file.path.display());
    let Some(denies) = file.denies() else {
        return notes.ok(format!("{label} is not applied, and it denies nothing"));
    };
    let refusals = htaccess::refusals_of(std::slice::from_ref(file));
    let denies_all = (file.effects.iter()).any(|effect| matches!(effect, Effect::DeniesAll(_)));
    let is_folder_refused = denies_all && refuses(site, &format!("{}x", file.folder));
    let is_done = refusals.routes.iter().all(|rule| has_route(site, rule))
        && (refusals.deny_scripts.iter()).all(|prefix| site.settings.deny_scripts.contains(prefix));
    if is_folder_refused || is_done && !file.is_beyond() {
        return notes.ok(format!("{label} {denies}; weir.toml does the same"));
    }
    if is_done && !refusals.routes.is_empty() {
        return notes.ok(format!(
            "{label} {denies}; weir.toml refuses what can be refused by path"
        ));
    }
    // Together with the permissions in this file and in files of inner folders. Rules that allow must come before rules
    // that deny.
    let inner: Vec<Htaccess> = all
        .iter()
        .filter(|other| other.folder.starts_with(&file.folder))
        .cloned()
        .collect();
    let routes = htaccess::refusals_of(&inner).routes;
    let is_of_file = |rule: &Rule| refusals.routes.iter().any(|own| own.path == rule.path);
    let routes = routes
        .iter()
        .filter(|rule| !rule.denied || is_of_file(rule));
    let mut mend: Vec<String> = routes
        .map(|Rule { path, denied, .. }| {
            format!(
                "[[site.{}.route]] path = {}, deny = {denied}",
                site.name,
                toml(path)
            )
        })
        .collect();
    if refusals.routes.is_empty() {
        mend.clear();
    }
    if !refusals.deny_scripts.is_empty() {
        mend.push(format!("deny_scripts = {:?}", refusals.deny_scripts));
    }
    if file.is_beyond() || mend.is_empty() {
        mend.push("do this in the application or in a web server in front, or move the files out of the root".into());
    }
    notes.warn(
        format!("{label} {denies}; weir does not apply it"),
        "files that Apache would protect are public here",
        mend.join("; "),
    );
}

/// Whether a site has this rule as a route. A rule for a folder may be in a rule for a larger one.
fn has_route(site: &Site, rule: &Rule) -> bool {
    if let Some(folder) = rule.path.strip_suffix('*').filter(|_| rule.denied)
        && refuses(site, &format!("{folder}x"))
    {
        return true;
    }
    site.routes.iter().any(|route| {
        let path = match &route.path {
            PathPattern::Regex(text) => format!("~{text}"),
            PathPattern::Glob(glob) => glob.clone(),
        };
        path == rule.path && matches!(route.action, Some(Action::Deny)) == rule.denied
    })
}

/// Whether a path is refused by a route or by hide_files.
fn refuses(site: &Site, path: &str) -> bool {
    let matches = |route: &&weir_config::Route| match &route.path {
        PathPattern::Regex(text) => {
            pattern(text).is_some_and(|pattern| pattern.is_match(path.as_bytes()))
        }
        PathPattern::Glob(glob) => {
            let parts: Vec<String> = glob.split('*').map(regex::escape).collect();
            let text = format!("^{}$", parts.join(".*").replace("\\?", "."));
            pattern(&text).is_some_and(|pattern| pattern.is_match(path.as_bytes()))
        }
    };
    let route = site.routes.iter().find(matches);
    let denied = route.is_some_and(|route| matches!(route.action, Some(Action::Deny)));
    let settings = route.map_or(&site.settings, |route| &route.settings);
    denied || hides(settings, path).is_some()
}

fn toml(text: &str) -> String {
    match text.contains(['\'', '\n']) {
        true => format!("{text:?}"),
        false => format!("'{text}'"),
    }
}
