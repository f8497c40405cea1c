//! What `.htaccess` files in a folder ask of Apache, as far as they keep clients out.
//!
//! weir does not read these files for each request. [`find`] looks for them, so that `weir serve FOLDER` can refuse what
//! they deny to all, and `weir doctor` can name what they would have protected. [`parse`] is pure; it takes any bytes.
//! Apache's own reading is followed where access is concerned: `Require`, `Order`/`Allow`/`Deny`, sections by file
//! name, and forbidding rules of mod_rewrite and mod_alias. A module that is named in `<IfModule>` counts as loaded.

mod access;
mod pattern;

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

/// One `.htaccess`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Htaccess {
    /// The file.
    pub path: PathBuf,
    /// The URL path of its folder; begins and ends with a slash.
    pub folder: String,
    /// What it does that matters to who asks, in the order of the file.
    pub effects: Vec<Effect>,
}

/// What a `.htaccess` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Its folder, with all below, is denied to all.
    DeniesAll,
    /// A folder that one above denies is open again.
    Opens,
    /// Files are denied to all. An expression over their URL path, and how the file says it.
    DeniesFiles(String, String),
    /// Files of a folder that is denied are open.
    OpensFiles(String, String),
    /// Not everybody is let in: by address, password or condition. How.
    Restricts(String),
    /// Scripts there do not run.
    NoScripts,
    /// URLs are rewritten or redirected.
    Rewrites,
    /// Something of this kind that could not be read. What.
    Unclear(String),
}

/// What a search has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// In the order of their folders.
    pub files: Vec<Htaccess>,
    /// There were more folders than are looked at.
    pub incomplete: bool,
}

/// What refuses the same in weir.toml: routes in the order that they have to have, and prefixes of `deny_scripts`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refusals {
    /// A route's `path`, and whether it is denied; else it is open.
    pub routes: Vec<(String, bool)>,
    /// URL prefixes.
    pub deny_scripts: Vec<String>,
}

/// Looks for `.htaccess` files in a folder and below. Links are not followed.
pub fn find(root: &Path) -> Found {
    let mut found = Found::default();
    let mut budget = MOST_ENTRIES;
    walk(root, "/", 0, &mut budget, &mut found);
    found.incomplete = budget == 0;
    found.files.sort_by(|a, b| a.folder.cmp(&b.folder));
    found
}

/// What the text of a `.htaccess` in `folder` does.
pub fn parse(text: &str, folder: &str) -> Vec<Effect> {
    access::effects(text, folder)
}

impl Htaccess {
    /// What it would have kept from clients, for people; none where it keeps nothing from them.
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
                Effect::Unclear(what) => said.push(format!("has {what}, which weir cannot read")),
                Effect::Opens | Effect::OpensFiles(..) | Effect::Rewrites => {}
            }
        }
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// It denies something in a way that [`refusals`] cannot say.
    pub fn is_beyond(&self) -> bool {
        let beyond = |effect: &Effect| matches!(effect, Effect::Restricts(_) | Effect::Unclear(_));
        self.effects.iter().any(beyond)
    }
}

/// What refuses what these files deny to all. The innermost folder comes first, since the first route that matches wins.
pub fn refusals(files: &[Htaccess]) -> Refusals {
    let mut refusals = Refusals::default();
    let mut inner_first: Vec<&Htaccess> = files.iter().collect();
    inner_first.sort_by_key(|file| std::cmp::Reverse(file.folder.matches('/').count()));
    for file in inner_first {
        let (mut files, mut folder) = (Vec::new(), None);
        for effect in &file.effects {
            match effect {
                // Sections by file name count after what is said of the folder, and the last of them wins.
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
    // What is open needs a route only in front of one that denies.
    while refusals.routes.last().is_some_and(|(_, denied)| !denied) {
        refusals.routes.pop();
    }
    refusals
}

/// A folder with all below, as a route's `path`: a name with a star or a question mark is written as an expression.
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
            // What is in a hidden folder is hidden with it.
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

/// Files and folders that are looked at.
const MOST_ENTRIES: usize = 50_000;
/// Folders within folders.
const MOST_DEPTH: usize = 12;
/// Of one file.
const MOST_BYTES: u64 = 256 << 10;

#[cfg(test)]
mod tests;
