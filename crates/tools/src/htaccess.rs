//! Reads the `.htaccess` files of a folder, as far as they deny access.
//!
//! weir does not read these files for requests. [`find`] searches for them, so that `weir serve FOLDER` can refuse
//! what they deny to all, and `weir doctor` can list what they would protect. [`parse`] is pure and accepts any
//! bytes. It follows Apache where access is concerned: `Require`, `Order`/`Allow`/`Deny`, sections by file name, and
//! denying rules of mod_rewrite and mod_alias. Modules in `<IfModule>` count as loaded.

mod access;
mod pattern;

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

/// One `.htaccess` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Htaccess {
    /// The file.
    pub path: PathBuf,
    /// The URL path of its folder; begins and ends with a slash.
    pub folder: String,
    /// Its effects on access, in the order of the file.
    pub effects: Vec<Effect>,
}

/// An effect of a `.htaccess` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Its folder and everything below is denied to all.
    DeniesAll,
    /// It allows a folder that a parent folder denies.
    Opens,
    /// It denies files to all: an expression for their URL path, and the text of the rule.
    DeniesFiles(String, String),
    /// It allows files of a denied folder.
    OpensFiles(String, String),
    /// It limits access by address, password or condition. With the text of the rule.
    Restricts(String),
    /// Scripts there do not run.
    NoScripts,
    /// URLs are rewritten or redirected.
    Rewrites,
    /// A rule of this kind that could not be understood. With its text.
    Unclear(String),
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// In the order of their folders.
    pub files: Vec<Htaccess>,
    /// There were more folders than the limit.
    pub incomplete: bool,
}

/// The equivalent in weir.toml: routes in the required order, and prefixes of `deny_scripts`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refusals {
    /// The `path` of a route, and whether it denies; otherwise it allows.
    pub routes: Vec<(String, bool)>,
    /// URL prefixes.
    pub deny_scripts: Vec<String>,
}

/// Searches a folder and everything below for `.htaccess` files. Links are not followed.
pub fn find(root: &Path) -> Found {
    let mut found = Found::default();
    let mut budget = MOST_ENTRIES;
    walk(root, "/", 0, &mut budget, &mut found);
    found.incomplete = budget == 0;
    found.files.sort_by(|a, b| a.folder.cmp(&b.folder));
    found
}

/// The effects of the text of a `.htaccess` file in `folder`.
pub fn parse(text: &str, folder: &str) -> Vec<Effect> {
    access::effects(text, folder)
}

impl Htaccess {
    /// What it would deny to clients, as text; `None` if it denies nothing.
    pub fn denies(&self) -> Option<String> {
        let mut said = Vec::new();
        for effect in &self.effects {
            match effect {
                Effect::DeniesAll => said.push(format!("denies {} to all", self.folder)),
                Effect::DeniesFiles(_, files) => {
                    said.push(format!("denies {files} in {} to all", self.folder));
                }
                Effect::Restricts(how) => said.push(format!("limits {} by {how}", self.folder)),
                Effect::NoScripts => said.push(format!("runs no scripts in {}", self.folder)),
                Effect::Unclear(what) => {
                    said.push(format!("has {what}, which weir does not understand"))
                }
                Effect::Opens | Effect::OpensFiles(..) | Effect::Rewrites => {}
            }
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// It denies something that [`refusals`] cannot express.
    pub fn is_beyond(&self) -> bool {
        let beyond = |effect: &Effect| matches!(effect, Effect::Restricts(_) | Effect::Unclear(_));
        self.effects.iter().any(beyond)
    }
}

/// The rules that refuse what these files deny to all. The innermost folder comes first, because the first matching
/// route wins.
pub fn refusals(files: &[Htaccess]) -> Refusals {
    let mut refusals = Refusals::default();
    let mut inner_first: Vec<&Htaccess> = files.iter().collect();
    inner_first.sort_by_key(|file| std::cmp::Reverse(file.folder.matches('/').count()));
    for file in inner_first {
        let (mut files, mut folder) = (Vec::new(), None);
        for effect in &file.effects {
            match effect {
                // Sections by file name count after the rules of the folder, and the last of them wins.
                Effect::DeniesFiles(path, _) => files.push((format!("~{path}"), true)),
                Effect::OpensFiles(path, _) => files.push((format!("~{path}"), false)),
                Effect::DeniesAll => folder = Some(true),
                Effect::Opens => folder = Some(false),
                Effect::NoScripts => refusals.deny_scripts.push(file.folder.clone()),
                Effect::Restricts(_) | Effect::Rewrites | Effect::Unclear(_) => {}
            }
        }
        files.reverse();
        refusals.routes.extend(files);
        if let Some(denied) = folder {
            refusals.routes.push((glob(&file.folder), denied));
        }
    }
    // A route that allows is needed only before one that denies.
    while refusals.routes.last().is_some_and(|(_, denied)| !denied) {
        refusals.routes.pop();
    }
    refusals
}

/// A folder and everything below as a route's `path`: a name with a star or a question mark becomes an expression.
fn glob(folder: &str) -> String {
    match folder.contains(['*', '?']) || folder.starts_with('~') {
        true => format!("~^{}", pattern::literal(folder)),
        false => format!("{folder}*"),
    }
}

fn walk(folder: &Path, url: &str, depth: usize, budget: &mut usize, found: &mut Found) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut inner = Vec::new();
    for entry in entries.flatten() {
        if *budget == 0 {
            return;
        }
        *budget -= 1;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        match entry.file_type() {
            Ok(kind) if kind.is_file() && name == ".htaccess" => {
                let path = entry.path();
                if let Some(effects) = read(&path).map(|text| parse(&text, url)) {
                    found.files.push(Htaccess {
                        path,
                        folder: url.to_owned(),
                        effects,
                    });
                }
            }
            // A hidden folder hides its content.
            Ok(kind) if kind.is_dir() && depth < MOST_DEPTH && !name.starts_with('.') => {
                inner.push(name);
            }
            _ => {}
        }
    }
    for name in inner {
        let url = format!("{url}{name}/");
        walk(&folder.join(&name), &url, depth + 1, budget, found);
    }
}

fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Maximum number of files and folders that are searched.
const MOST_ENTRIES: usize = 50_000;
/// Maximum depth.
const MOST_DEPTH: usize = 12;
/// Maximum size of a file.
const MOST_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests;
