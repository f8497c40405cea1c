//! Searches a folder for `.htaccess` files.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{Effect, Found, Htaccess, parse};

/// Searches a folder and everything below for `.htaccess` files. Links are followed, as a web server does; those that
/// lead out of the folder only with `follows_out`.
pub fn find(root: &Path, follows_out: bool) -> Found {
    find_at(root, "/", follows_out)
}

/// The same for a folder at another URL path, which begins and ends with a slash.
pub fn find_at(root: &Path, url: &str, follows_out: bool) -> Found {
    let mut search = Search {
        real: fs::canonicalize(root).unwrap_or_else(|_| root.to_owned()),
        follows_out,
        budget: MOST_ENTRIES,
        parents: Vec::new(),
        found: Found::default(),
    };
    search.walk(root, url);
    let mut found = search.found;
    found.incomplete |= search.budget == 0;
    found.files.sort_by(|a, b| a.folder.cmp(&b.folder));
    found.indexes.sort();
    found
}

struct Search {
    real: PathBuf,
    follows_out: bool,
    budget: usize,
    /// The folders that the current one is in, without links: a link to one of them is a loop.
    parents: Vec<PathBuf>,
    found: Found,
}

impl Search {
    fn walk(&mut self, folder: &Path, url: &str) {
        let Ok(real) = fs::canonicalize(folder) else {
            return;
        };
        let is_out = !self.follows_out && !real.starts_with(&self.real);
        if is_out || self.parents.contains(&real) {
            return;
        }
        let Ok(entries) = fs::read_dir(folder) else {
            self.found.incomplete = true;
            return;
        };
        let (mut inner, mut indexes) = (Vec::new(), [false; INDEXES.len()]);
        for entry in entries.flatten() {
            if self.budget == 0 {
                return;
            }
            self.budget -= 1;
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            let leads_to = || match kind.is_symlink() {
                true => fs::metadata(entry.path()).map(|target| target.file_type()),
                false => Ok(kind),
            };
            if name == ".htaccess" {
                self.file(&entry.path(), url);
            } else if let Some(at) = INDEXES.iter().position(|index| name == *index) {
                indexes[at] = true;
            // A hidden folder hides its content.
            } else if !name.as_encoded_bytes().starts_with(b".")
                && (kind.is_dir() || kind.is_symlink())
                && leads_to().is_ok_and(|kind| kind.is_dir())
            {
                inner.push(name);
            }
        }
        if let Some(at) = indexes.iter().position(|is_there| *is_there) {
            self.found.indexes.push(format!("{url}{}", INDEXES[at]));
        }
        if self.parents.len() == MOST_DEPTH {
            self.found.incomplete |= !inner.is_empty();
            return;
        }
        self.parents.push(real);
        for name in inner {
            let url = format!("{url}{}/", shown(&name));
            self.walk(&folder.join(&name), &url);
        }
        self.parents.pop();
    }

    fn file(&mut self, path: &Path, url: &str) {
        let (effects, left) = match read(path) {
            Ok(text) => parse(&text, url),
            // A link without target is no file for Apache, either.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => (vec![Effect::Unreadable(error.to_string())], Vec::new()),
        };
        self.found.files.push(Htaccess {
            path: path.to_owned(),
            folder: url.to_owned(),
            effects,
            left,
        });
    }
}

/// A name as part of a URL path.
fn shown(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

fn read(path: &Path) -> io::Result<String> {
    // Opening something other than a file could block forever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(MOST_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Index files, in the order in which they are tried.
const INDEXES: [&str; 2] = ["index.php", "index.html"];
/// Maximum number of files and folders that are searched.
const MOST_ENTRIES: usize = 50_000;
/// Maximum depth.
const MOST_DEPTH: usize = 12;
/// Maximum size of a file.
const MOST_BYTES: u64 = 256 << 10;
