//! Document roots: the folders whose files are served.
//!
//! A root is a path of the configuration. The folder that the path leads to now is opened. Deployments switch a
//! symbolic link (`current` → `releases/42`) and expect that the switch is seen soon and completely. So a root is
//! opened again every [`ROOT_AGE`], and one request uses the same open root from its first lookup to
//! `SCRIPT_FILENAME`.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use weir_sys::file::{self, FileStat, Open};

/// After this time the path of an open root is looked up again, µs.
pub(super) const ROOT_AGE: u64 = 1_000_000;

/// How the gateway reaches the folders of the configuration. The default: by their paths.
#[derive(Debug, Default)]
pub struct Reach {
    /// The folder of the gateway's chroot. Paths below it are opened relative to it.
    pub chroot: Option<PathBuf>,
    /// Folders that were opened before, because they are outside of `chroot`; by their path in the configuration.
    /// Such a folder stays the same for the life of the process: its path cannot be looked up again.
    pub opened: HashMap<PathBuf, OwnedFd>,
}

/// A folder below which files are opened.
#[derive(Debug)]
pub(super) struct Root {
    /// Index into the table of open roots of each reactor.
    pub(super) id: usize,
    /// As written in the configuration, absolute.
    pub(super) path: PathBuf,
    /// Whether symbolic links may lead out of it.
    pub(super) follow_symlinks: bool,
    by: By,
    /// A lookup in its file system may take long ([`file::is_remote`]), or its file system is not known yet.
    is_remote: AtomicBool,
}

#[derive(Debug)]
enum By {
    /// Looked up from `/`, as this process sees it.
    Path {
        slash: Arc<OwnedFd>,
        path: PathBuf,
        chroot: Option<PathBuf>,
    },
    /// Was opened before and stays open.
    Opened(OpenRoot),
}

/// A root as it was when it was opened.
#[derive(Debug, Clone)]
pub(super) struct OpenRoot {
    /// Shared with threads that wait for the disk, and by reactors if it was opened before.
    fd: Arc<OwnedFd>,
    dev: u64,
    ino: u64,
    /// Its path without symbolic links, as seen from outside of a chroot, without a slash at the end.
    pub(super) real: Box<[u8]>,
}

/// All roots of a configuration; equal paths share one root.
#[derive(Debug)]
pub(super) struct Roots {
    slash: Arc<OwnedFd>,
    reach: Reach,
    /// By path, and whether links may lead out.
    all: HashMap<(PathBuf, bool), Arc<Root>>,
}

impl Roots {
    pub(super) fn new(reach: Reach) -> io::Result<Self> {
        Ok(Self {
            slash: Arc::new(file::open_dir(Path::new("/"))?),
            reach,
            all: HashMap::new(),
        })
    }

    /// The root for `path`.
    ///
    /// # Errors
    /// If the path is outside of the chroot and was not opened before.
    pub(super) fn root(&mut self, path: &Path, follow_symlinks: bool) -> Result<Arc<Root>, String> {
        let path =
            std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let key = (path, follow_symlinks);
        if let Some(root) = self.all.get(&key) {
            return Ok(root.clone());
        }
        let by = self.way_to(&key.0)?;
        let root = Arc::new(Root {
            id: self.all.len(),
            path: key.0.clone(),
            follow_symlinks,
            by,
            is_remote: AtomicBool::new(true),
        });
        // Finds out the kind of its file system. For a root that is missing now, this happens at its first use.
        root.open(false).ok();
        self.all.insert(key, root.clone());
        Ok(root)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.all.len()
    }

    fn way_to(&mut self, path: &Path) -> Result<By, String> {
        let told = |error: io::Error| format!("{}: {error}", path.display());
        if let Some(fd) = self.reach.opened.get(path) {
            let fd = fd.try_clone().map_err(told)?;
            return OpenRoot::new(fd, path.as_os_str().as_bytes())
                .map(By::Opened)
                .map_err(told);
        }
        let chroot = self
            .reach
            .chroot
            .clone()
            .filter(|chroot| chroot != Path::new("/"));
        let inner = match &chroot {
            None => path.to_owned(),
            Some(chroot) => {
                let inner = path.strip_prefix(chroot).map_err(|_| {
                    format!(
                        "{} is outside of the chroot {}",
                        path.display(),
                        chroot.display()
                    )
                })?;
                Path::new("/").join(inner)
            }
        };
        Ok(By::Path {
            slash: self.slash.clone(),
            path: inner,
            chroot,
        })
    }
}

impl Root {
    /// Opens the folder that the path leads to now; with `cached_only` without waiting for the disk.
    ///
    /// # Errors
    /// As open(2); `WouldBlock` with `cached_only`.
    pub(super) fn open(&self, cached_only: bool) -> io::Result<OpenRoot> {
        let root = self.open_now(cached_only)?;
        if !cached_only {
            self.is_remote
                .store(file::is_remote(root.fd())?, Ordering::Relaxed);
        }
        Ok(root)
    }

    /// Whether its lookups must not run on a reactor, because its file system may keep them waiting for long.
    pub(super) fn is_remote(&self) -> bool {
        self.is_remote.load(Ordering::Relaxed)
    }

    fn open_now(&self, cached_only: bool) -> io::Result<OpenRoot> {
        let (slash, path, chroot) = match &self.by {
            By::Opened(root) => return Ok(root.clone()),
            By::Path {
                slash,
                path,
                chroot,
            } => (slash, path, chroot),
        };
        let relative = path
            .strip_prefix("/")
            .unwrap_or(path)
            .as_os_str()
            .as_bytes();
        let how = Open {
            // Nothing is outside of `/`; otherwise an absolute link would count as leading out.
            follow_symlinks_out: true,
            cached_only,
        };
        // The parent of a link's target is known only after following the link, which this way of opening does not
        // do.
        let has_parent = path.components().any(|part| part == Component::ParentDir);
        let fd = match (has_parent, cached_only) {
            (true, true) => return Err(io::ErrorKind::WouldBlock.into()),
            (true, false) => file::open_dir(path)?,
            (false, _) => file::open_dir_beneath(slash.as_fd(), relative, how)?,
        };
        let mut root = OpenRoot::new(fd, b"")?;
        root.real = real_path(path, chroot.as_deref(), &root).into();
        Ok(root)
    }

    /// The options for lookups below it.
    pub(super) fn walk(&self, cached_only: bool) -> Open {
        Open {
            follow_symlinks_out: self.follow_symlinks,
            cached_only,
        }
    }

    /// `path` below it, for the error log.
    pub(super) fn shown(&self, path: &[u8]) -> PathBuf {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        self.path.join(OsStr::from_bytes(relative))
    }
}

impl OpenRoot {
    fn new(fd: OwnedFd, real: &[u8]) -> io::Result<Self> {
        let FileStat { dev, ino, .. } = file::fstat(fd.as_fd())?;
        Ok(Self {
            fd: Arc::new(fd),
            dev,
            ino,
            real: trim_slash(real).into(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether it is the same folder under the same name.
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino) && self.real == other.real
    }
}

/// A path without its last slash: `/` becomes empty, so that the name of a script can be appended.
pub(super) fn trim_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// `path` without symbolic links if it still leads to `root`, otherwise as written. The links were followed a moment
/// ago when the root was opened, so reading them again does not wait for the disk.
fn real_path(path: &Path, chroot: Option<&Path>, root: &OpenRoot) -> Vec<u8> {
    let is_root = |stat: FileStat| (stat.dev, stat.ino) == (root.dev, root.ino);
    let real = fs::canonicalize(path)
        .ok()
        .filter(|real| file::stat_path(real).is_ok_and(is_root))
        .unwrap_or_else(|| path.to_owned());
    let seen = match chroot {
        None => real,
        Some(chroot) => chroot.join(real.strip_prefix("/").unwrap_or(&real)),
    };
    trim_slash(&seen.into_os_string().into_vec()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_root_is_where_its_link_leads_now() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("releases/1")).unwrap();
        fs::create_dir_all(base.join("releases/2")).unwrap();
        let current = base.join("current");
        symlink(base.join("releases/1"), &current).unwrap();
        let mut roots = Roots::new(Reach::default()).unwrap();
        let root = roots.root(&current, false).unwrap();
        let first = root.open(false).unwrap();
        assert_eq!(&*first.real, base.join("releases/1").as_os_str().as_bytes());
        fs::remove_file(&current).unwrap();
        symlink("releases/2", &current).unwrap();
        let second = root.open(false).unwrap();
        assert_eq!(
            &*second.real,
            base.join("releases/2").as_os_str().as_bytes()
        );
        assert!(!first.is(&second));
        assert!(second.is(&root.open(true).unwrap_or(second.clone())));
    }

    #[test]
    fn the_same_path_is_one_root() {
        let mut roots = Roots::new(Reach::default()).unwrap();
        let one = roots.root(Path::new("/srv/a"), false).unwrap();
        let two = roots.root(Path::new("/srv/a/"), false).unwrap();
        let three = roots.root(Path::new("/srv/a"), true).unwrap();
        assert_eq!((one.id, two.id, three.id), (0, 0, 1));
        assert_eq!(roots.len(), 2);
    }

    #[test]
    fn a_chroot_is_taken_off_to_open_and_put_back_to_show() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        // As in a chroot whose / is /jail outside: the inner path is the real one.
        let reach = Reach {
            chroot: Some(PathBuf::from("/jail")),
            ..Reach::default()
        };
        let mut roots = Roots::new(reach).unwrap();
        let outside = Path::new("/jail").join(base.strip_prefix("/").unwrap());
        let root = roots.root(&outside, false).unwrap();
        assert_eq!(
            &*root.open(false).unwrap().real,
            outside.as_os_str().as_bytes()
        );
        assert_eq!(root.shown(b"/a/b"), outside.join("a/b"));
        assert!(
            roots
                .root(&base, false)
                .unwrap_err()
                .contains("outside of the chroot")
        );
    }

    #[test]
    fn an_opened_folder_needs_no_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = PathBuf::from("/far/away/");
        let mut reach = Reach {
            chroot: Some(PathBuf::from("/jail")),
            ..Reach::default()
        };
        reach
            .opened
            .insert(path.clone(), file::open_dir(dir.path()).unwrap());
        let mut roots = Roots::new(reach).unwrap();
        let root = roots.root(&path, false).unwrap();
        let open = root.open(true).unwrap();
        assert_eq!(&*open.real, b"/far/away");
        assert_eq!(open.ino, file::stat_path(dir.path()).unwrap().ino);
    }
}
