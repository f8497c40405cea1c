//! The equivalent of `.htaccess` files in weir.toml.

use regex::bytes::Regex;

use super::{Effect, Found, Guard, Htaccess, pattern};

/// The equivalent in weir.toml: routes in the required order, and prefixes of `deny_scripts`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refusals {
    /// Routes.
    pub routes: Vec<Rule>,
    /// URL prefixes.
    pub deny_scripts: Vec<String>,
}

/// A route that denies or allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The `path` of the route.
    pub path: String,
    /// Whether it denies; otherwise it allows.
    pub denied: bool,
    /// The file and the rule in it.
    pub why: String,
}

/// The rules that refuse what these files deny, also where an index file is denied by its name.
pub fn refusals(found: &Found) -> Refusals {
    let mut refusals = refusals_of(&found.files);
    let compiled: Vec<_> = refusals.routes.iter().filter_map(compile).collect();
    let is_denied = |path: &str| {
        let first = compiled
            .iter()
            .find(|(regex, _)| regex.is_match(path.as_bytes()));
        first.is_some_and(|(_, denied)| *denied)
    };
    let mut folders: Vec<&str> = Vec::new();
    for index in &found.indexes {
        let folder = &index[..=index.rfind('/').unwrap_or_default()];
        // What a folder above refuses with all that is below needs no rule of its own.
        if is_denied(index) && !is_denied(folder) {
            folders.push(folder);
        }
    }
    let exact = folders.into_iter().map(|folder| Rule {
        path: format!("~^{}$", pattern::literal(folder)),
        denied: true,
        why: format!("the index file of {folder} is denied by its name"),
    });
    refusals.routes.splice(0..0, exact);
    refusals
}

/// The rules that refuse what these files deny. The first matching route wins, so rules about URLs come first: nothing
/// can allow what they deny. Sections by file name come next, because Apache applies those of all folders after the
/// rules of all folders. In both, the innermost folder comes first.
pub fn refusals_of(files: &[Htaccess]) -> Refusals {
    let mut refusals = Refusals::default();
    let (mut by_name, mut by_folder, mut last) = (Vec::new(), Vec::new(), Vec::new());
    // What one guard allows is allowed only if the other one denies neither its folder nor one in it.
    let is_free = |folder: &str, guard: Guard| {
        let other = guard.other();
        let mut inner = files.iter().filter(|file| file.folder.starts_with(folder));
        !is_denied_by(files, folder, other)
            && !inner.any(|file| file.effects.contains(&Effect::DeniesAll(other)))
    };
    let mut inner_first: Vec<&Htaccess> = files.iter().collect();
    inner_first.sort_by_key(|file| std::cmp::Reverse(file.folder.matches('/').count()));
    for file in inner_first {
        let rule = |path: String, denied: bool, what: &str| Rule {
            path,
            denied,
            why: format!("{}.htaccess: {what}", &file.folder[1..]),
        };
        let expression = |path: &str, denied, what: &str| rule(format!("~{path}"), denied, what);
        let (mut files, mut folder) = (Vec::new(), None);
        for effect in &file.effects {
            match effect {
                // The last section of a file wins.
                Effect::DeniesFiles(path, what) => files.push(expression(path, true, what)),
                Effect::OpensFiles(guard, path, what) if is_free(&file.folder, *guard) => {
                    files.push(expression(path, false, &format!("allows {what}")));
                }
                Effect::DeniesUrls(path, what) => {
                    refusals.routes.push(expression(path, true, what));
                }
                Effect::DeniesUrlsBut(open, path, what) => {
                    last.extend(open.iter().map(|path| expression(path, false, "allowed")));
                    last.push(expression(path, true, what));
                }
                Effect::LetsSomeIn(Some(path), how) => files.push(expression(path, true, how)),
                Effect::LetsSomeIn(None, how) => folder = Some((true, how.as_str())),
                Effect::DeniesAll(_) => folder = Some((true, "denied to all")),
                Effect::Unreadable(_) => folder = Some((true, "cannot be read")),
                // If it denies by one guard and allows by the other one, it denies.
                Effect::Opens(guard) if folder.is_none() && is_free(&file.folder, *guard) => {
                    folder = Some((false, "allowed"));
                }
                Effect::Opens(_) | Effect::OpensFiles(..) => {}
                Effect::NoScripts => {
                    let path = format!("^{}.*\\.php", pattern::literal(&file.folder));
                    let what = "scripts do not run";
                    refusals.routes.push(expression(&path, true, what));
                    refusals.deny_scripts.push(file.folder.clone());
                }
                Effect::Restricts(_) | Effect::Rewrites | Effect::Unclear(_) => {}
            }
        }
        files.reverse();
        by_name.extend(files);
        if let Some((denied, what)) = folder {
            by_folder.push(rule(glob(&file.folder), denied, what));
        }
    }
    refusals.routes.extend(by_name);
    refusals.routes.extend(by_folder);
    refusals.routes.extend(last);
    // A prefix of `deny_scripts` is a text.
    refusals
        .deny_scripts
        .retain(|prefix| !prefix.contains(char::REPLACEMENT_CHARACTER));
    // A route that allows is needed only before one that denies.
    while refusals.routes.last().is_some_and(|rule| !rule.denied) {
        refusals.routes.pop();
    }
    let mut seen = std::collections::BTreeSet::new();
    refusals
        .routes
        .retain(|rule| seen.insert(rule.path.clone()));
    refusals
}

/// Whether a guard denies a folder: what the innermost file around it says.
fn is_denied_by(files: &[Htaccess], folder: &str, guard: Guard) -> bool {
    let around = files.iter().filter(|file| folder.starts_with(&file.folder));
    let says = around.filter_map(|file| {
        let mut effects = file.effects.iter().filter_map(|effect| match effect {
            Effect::DeniesAll(by) if *by == guard => Some(true),
            Effect::Opens(by) if *by == guard => Some(false),
            _ => None,
        });
        Some((file.folder.len(), effects.next()?))
    });
    says.max().is_some_and(|(_, denied)| denied)
}

impl Guard {
    fn other(self) -> Self {
        match self {
            Self::Require => Self::Order,
            Self::Order => Self::Require,
        }
    }
}

/// A folder and everything below as a route's `path`: a name with a star or a question mark becomes an expression.
fn glob(folder: &str) -> String {
    let is_plain = !folder.contains(['*', '?', char::REPLACEMENT_CHARACTER]);
    match is_plain && !folder.starts_with('~') {
        true => format!("{folder}*"),
        false => format!("~^{}", pattern::literal(folder)),
    }
}

fn compile(rule: &Rule) -> Option<(Regex, bool)> {
    let text = match rule.path.strip_prefix('~') {
        Some(expression) => expression.to_owned(),
        None => format!("^{}", pattern::literal(rule.path.trim_end_matches('*'))),
    };
    Some((Regex::new(&text).ok()?, rule.denied))
}
