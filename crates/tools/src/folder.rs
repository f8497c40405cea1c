//! What is in a folder, and the weir.toml for it: `weir init` and `weir serve FOLDER`.
//!
//! [`look`] finds the application, its document root, its `.htaccess` files and what it needs of PHP. [`text`] writes
//! the configuration. [`applications`] is the table of what weir knows. Nothing here starts or changes anything.

pub mod applications;
mod extensions;
mod php_version;
mod text;

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

use weir_machine::links;

pub use extensions::{missing, packages};
pub use php_version::Needs;
pub use text::{Php, Runtime, Service, Wanted, left_lines, text};

use crate::htaccess;
use applications::{APPLICATIONS, Application, DOCUMENT_ROOTS, UPLOADS};

/// What is in a folder.
#[derive(Debug)]
pub struct Looked {
    /// The folder, absolute; links in its path are kept.
    pub folder: PathBuf,
    /// The document root.
    pub root: PathBuf,
    /// The applications in the document root and in its folders; the one of the document root is the first.
    pub applications: Vec<Found>,
    /// Names of further applications whose files are in the same folder. They are not configured.
    pub others: Vec<&'static str>,
    /// Folders with an application whose document root is inside, so that it needs a site of its own.
    pub own_sites: Vec<(PathBuf, &'static str)>,
    /// There are scripts.
    pub has_php: bool,
    /// `/index.php` exists.
    pub has_index: bool,
    /// Prefixes of folders for uploads, if the application is unknown.
    pub uploads: Vec<String>,
    /// Its `.htaccess` files.
    pub htaccess: htaccess::Found,
    /// A link in the path of the document root: deploys may switch it.
    pub is_linked: bool,
    /// Links that lead out of the document root; they are followed if root owns all of them.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// See `links`.
    pub follows_links: bool,
    /// What the application says of PHP's version.
    pub needs: Option<Needs>,
    /// Extensions of PHP that the applications need, in lower case.
    pub extensions: Vec<String>,
    /// The application is one that weir does not run: its kind.
    pub foreign: Option<Foreign>,
    /// Nothing is in the folder.
    pub is_empty: bool,
}

/// An application in a folder.
#[derive(Debug)]
pub struct Found {
    /// The application.
    pub application: &'static Application,
    /// The URL path of its folder, without a slash at its end: empty for the document root.
    pub base: String,
    /// Its folder.
    pub folder: PathBuf,
}

/// A kind of application that weir does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// The file by which it is recognised.
    pub file: &'static str,
    /// What it is.
    pub what: &'static str,
    /// What its user can do.
    pub hint: &'static str,
}

/// Looks at a folder.
///
/// # Errors
/// If it cannot be read.
pub fn look(typed: &Path) -> io::Result<Looked> {
    let folder = plain(&std::path::absolute(typed)?);
    let is_empty = fs::read_dir(&folder)?.next().is_none();
    let mut here = APPLICATIONS
        .iter()
        .filter_map(|application| Some((application, place(application, &folder)?)));
    let main = here.next();
    let others = here.map(|(other, _)| other.name).collect();
    let inner = match &main {
        Some((_, place)) => Some(*place),
        None => document_root(&folder),
    };
    let root = plain(&folder.join(inner.unwrap_or_default()));
    let mut applications: Vec<Found> = (main.iter())
        .map(|(application, _)| Found {
            application,
            base: String::new(),
            folder: folder.clone(),
        })
        .collect();
    let own_sites = inner_applications(&root, &mut applications);
    let has_php = !applications.is_empty() || has_php(&root);
    let links = links::out_of(&root);
    let is_of_root = |link: &Path| fs::symlink_metadata(link).is_ok_and(|link| link.uid() == 0);
    let follows_links = !links.is_empty() && links.iter().all(|(link, _)| is_of_root(link));
    let uploads = match main {
        None if has_php => uploads(&root),
        _ => Vec::new(),
    };
    Ok(Looked {
        has_index: root.join("index.php").is_file(),
        htaccess: htaccess_of(&root, follows_links, &applications),
        is_linked: fs::canonicalize(&root).is_ok_and(|real| real != root),
        extensions: extensions::needed(&folder, &applications),
        needs: Needs::of(&folder).or_else(|| Needs::of(&root)),
        foreign: (!has_php).then(|| foreign(&folder)).flatten(),
        folder,
        root,
        applications,
        others,
        own_sites,
        has_php,
        uploads,
        links,
        follows_links,
        is_empty,
    })
}

impl Looked {
    /// The application of the document root.
    pub fn main(&self) -> Option<&'static Application> {
        let main = self
            .applications
            .first()
            .filter(|found| found.base.is_empty());
        main.map(|found| found.application)
    }

    /// The first link that leads out of the document root and is not followed, and its target.
    pub fn broken_link(&self) -> Option<&(PathBuf, PathBuf)> {
        let routes = self
            .applications
            .iter()
            .flat_map(|found| found.application.routes);
        let follows = |key: &applications::Key| key.0 == "follow_symlinks";
        let followed: Vec<PathBuf> = routes
            .filter(|route| route.keys.iter().any(follows))
            .map(|route| self.root.join(route.path.trim_matches(['/', '*'])))
            .collect();
        let mut links = self.links.iter().filter(|_| !self.follows_links);
        links.find(|(link, _)| !followed.contains(link))
    }

    /// What it is, in a few words.
    pub fn what(&self) -> &'static str {
        match self.main() {
            Some(application) => application.name,
            None if self.has_php => "PHP scripts",
            None => "files without scripts",
        }
    }
}

/// Whether there is a script in `root`: `index.php`, or any `*.php` within a limited depth.
pub fn has_php(root: &Path) -> bool {
    let mut budget = SEARCH_ENTRIES;
    root.join("index.php").is_file() || finds_php(root, SEARCH_DEPTH, &mut budget)
}

/// The part of an application that a package of Debian has in another folder: the path of its route, and that folder.
fn part_elsewhere(
    root: &Path,
    follows_links: bool,
    found: &Found,
) -> Option<(&'static str, &'static str)> {
    let (of, path, folder) = found.application.package?;
    let is_there = follows_links && root == Path::new(of) && Path::new(folder).is_dir();
    is_there.then_some((path, folder))
}

/// The `.htaccess` files of a document root, and of parts that are elsewhere.
fn htaccess_of(root: &Path, follows_links: bool, applications: &[Found]) -> htaccess::Found {
    let mut all = htaccess::find(root, follows_links);
    for found in applications {
        if let Some((path, folder)) = part_elsewhere(root, follows_links, found) {
            let url = path.trim_end_matches('*');
            let more = htaccess::find_at(Path::new(folder), url, true);
            all.files.extend(more.files);
            all.indexes.extend(more.indexes);
            all.incomplete |= more.incomplete;
        }
    }
    all
}

/// The document root of an application below a folder, if its files are there.
fn place(application: &Application, folder: &Path) -> Option<&'static str> {
    let mut places = application.places.iter();
    let is_there = |files: &[&str]| files.iter().all(|file| folder.join(file).exists());
    places
        .find(|(_, files)| is_there(files))
        .map(|(place, _)| *place)
}

/// Frameworks have their document root in a subfolder, and their secrets beside it.
fn document_root(folder: &Path) -> Option<&'static str> {
    let is_bare = ["index.php", "index.html"]
        .iter()
        .all(|index| !folder.join(index).exists());
    let mut inner = DOCUMENT_ROOTS.into_iter();
    inner.find(|inner| is_bare && folder.join(inner).join("index.php").is_file())
}

/// Adds the applications in the folders of the document root. Returns those that need a site of their own.
fn inner_applications(root: &Path, applications: &mut Vec<Found>) -> Vec<(PathBuf, &'static str)> {
    let mut own_sites = Vec::new();
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .take(MOST_FOLDERS)
        .map(|entry| entry.file_name())
        .collect();
    names.sort();
    for name in names {
        let folder = root.join(&name);
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
            continue;
        };
        let mut found = APPLICATIONS
            .iter()
            .filter_map(|one| Some((one, place(one, &folder)?)));
        match found.next() {
            Some((application, "")) => applications.push(Found {
                application,
                base: format!("/{name}"),
                folder,
            }),
            Some((application, _)) => own_sites.push((folder, application.name)),
            None => {}
        }
    }
    own_sites
}

fn uploads(root: &Path) -> Vec<String> {
    let there = UPLOADS.into_iter().filter(|name| root.join(name).is_dir());
    there.map(|name| format!("/{name}/")).collect()
}

fn foreign(folder: &Path) -> Option<Foreign> {
    let has_page = folder.join("index.html").is_file();
    let mut kinds = FOREIGN.iter().filter(|_| !has_page);
    kinds.find(|kind| folder.join(kind.file).is_file()).copied()
}

/// A path without `.` and `..`, as far as these can be removed without looking at links.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            // The parent of a link's target is another folder than the link's own.
            Component::ParentDir if !out.is_symlink() => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

fn finds_php(folder: &Path, depth: usize, budget: &mut usize) -> bool {
    let Ok(entries) = fs::read_dir(folder) else {
        return false;
    };
    let mut folders = Vec::new();
    for entry in entries.flatten() {
        if *budget == 0 {
            return false;
        }
        *budget -= 1;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => folders.push(entry.path()),
            Ok(kind) if !kind.is_dir() && name.as_encoded_bytes().ends_with(b".php") => {
                return true;
            }
            _ => {}
        }
    }
    folders
        .iter()
        .any(|folder| finds_php(folder, depth - 1, budget))
}

const SEARCH_DEPTH: usize = 4;
const SEARCH_ENTRIES: usize = 10_000;
/// Maximum number of folders in the document root that are looked at.
const MOST_FOLDERS: usize = 1_000;

/// Applications that weir does not run, by a file of theirs.
const FOREIGN: [Foreign; 7] = [
    Foreign {
        file: "manage.py",
        what: "a Django application",
        hint: WSGI,
    },
    Foreign {
        file: "asgi.py",
        what: "an ASGI application",
        hint: HTTP,
    },
    Foreign {
        file: "wsgi.py",
        what: "a WSGI application",
        hint: WSGI,
    },
    Foreign {
        file: "pyproject.toml",
        what: "a Python application",
        hint: WSGI,
    },
    Foreign {
        file: "config.ru",
        what: "a Ruby application",
        hint: HTTP,
    },
    Foreign {
        file: "go.mod",
        what: "a Go program",
        hint: "weir runs programs that use net/http/fcgi: docs/recipes.md, Go",
    },
    Foreign {
        file: "package.json",
        what: "a Node.js application",
        hint: HTTP,
    },
];
const WSGI: &str = "weir runs WSGI applications with uWSGI: docs/recipes.md, Python. It does not pass requests to HTTP servers yet";
const HTTP: &str = "weir does not pass requests to HTTP servers yet. If a build makes files only, give their folder: weir init FOLDER/dist";

#[cfg(test)]
mod tests;
