//! What a site or a route says, compiled once for every request that follows.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use weir_config::{Address, Config, Pool, Runtime, Settings, Upstream, UpstreamServer};

use super::{
    pattern::{Hidden, ScriptPattern, is_php_source},
    resolve::Wanted,
    rewrite::Rewrite,
    root::{OpenRoot, Root, Roots, trim_slash},
};
use crate::{
    control::path_inside,
    gateway::{files::Presentation, policy::Policy},
};

/// The settings in force for a request, ready to be used.
#[derive(Debug)]
pub struct Rules {
    /// As the configuration has them.
    pub settings: Settings,
    /// What a request for a script is worth.
    pub(crate) policy: Policy,
    pub(super) script: ScriptPattern,
    pub(super) hidden: Hidden,
    pub(super) fallback: Option<Fallback>,
    pub(super) check: Check,
    /// Extensions that the pool runs; empty: any.
    pub(super) limit_extensions: Vec<String>,
    /// Where files come from; none without a root.
    pub(super) space: Option<Space>,
    pub(super) accel: Vec<(Box<[u8]>, Space)>,
    pub(super) sendfile: Vec<Space>,
    pub(super) error_pages: BTreeMap<u16, (Space, Box<[u8]>)>,
    worker_root: WorkerRoot,
}

/// A script's name and its path-info.
pub(super) type Split<'p> = (&'p [u8], &'p [u8]);

/// Where a URL goes that is no file.
#[derive(Debug)]
pub(super) enum Fallback {
    Path(Box<[u8]>),
    /// With groups or a query.
    Made(Rewrite),
}

/// Whether scripts are looked for on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// A script is a file.
    Always,
    /// A script with an extension of PHP is a file. Others may be names that the program behind the pool knows; what
    /// there is under such a name is subject to the rules for files all the same.
    ByName,
    /// Whoever runs the scripts knows them.
    Never,
}

/// A folder and how its files are presented.
#[derive(Debug, Clone)]
pub(super) struct Space {
    pub(super) root: Arc<Root>,
    pub(super) presentation: Arc<Presentation>,
    /// Of an alias: the URL prefix that stands for the folder, with its slash.
    prefix: Arc<[u8]>,
    /// Number of the pair: files are kept in memory by it.
    pub(super) id: usize,
}

/// What a worker calls the document root.
#[derive(Debug)]
enum WorkerRoot {
    /// `script_root`, or the root as written for workers on other hosts.
    Given(Arc<[u8]>),
    /// The folder that the root leads to: a switched link means other file names, so that caches of compiled
    /// scripts and of resolved paths cannot mix two releases.
    Real,
    /// The same, as workers call it that are locked into this folder.
    Inside(PathBuf),
}

impl Space {
    /// The part of a URL path that is looked for in the folder; begins with a slash.
    pub(super) fn inner<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        match path.starts_with(&self.prefix) {
            true => &path[self.prefix.len().saturating_sub(1)..],
            false => path,
        }
    }

    /// Whether a URL path leads into the folder.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        path.starts_with(&self.prefix)
    }
}

impl Rules {
    /// Whether an expression of `hide_files` that the operator has written matches the path, or the name of a script
    /// that has path-info behind it there. A path with too many such names is hidden as well.
    pub(super) fn hides(&self, path: &[u8]) -> bool {
        if !self.hidden.has_own() {
            return false;
        }
        let mut hidden = self.hidden.matches(path);
        let complete = self.script.with_path_info(path, |name| {
            hidden |= self.hidden.matches(name);
            hidden
        });
        hidden || !complete
    }

    /// The script that a path names, unless none may run there.
    pub(super) fn script_of<'p>(&self, path: &'p [u8]) -> Option<Split<'p>> {
        let split = self.script.split(path)?;
        (!self.denies_script(split.0)).then_some(split)
    }

    /// The same for a request: the slash behind the script's name is not an encoded one.
    pub(super) fn script_in<'p>(&self, wanted: &Wanted<'p>) -> Option<Split<'p>> {
        let longest = self.script_of(wanted.path)?;
        match wanted.is_plain() || longest.0.len() < wanted.plain {
            true => Some(longest),
            false => self.shorter_script(wanted, |name| name.len() < wanted.plain),
        }
    }

    /// The longest script that the path names in front of the one that [`Self::script_of`] finds, and that is `fit`:
    /// what follows a script may look like another one (`/index.php/Page.php`).
    pub(super) fn shorter_script<'p>(
        &self,
        wanted: &Wanted<'p>,
        mut is_fit: impl FnMut(&[u8]) -> bool,
    ) -> Option<Split<'p>> {
        let path = wanted.path;
        let mut found = None;
        self.script.with_path_info(path, |name| {
            let fits = path.get(name.len()) == Some(&b'/')
                && name.len() < wanted.plain
                && !self.denies_script(name)
                && is_fit(name);
            found = fits.then_some(name.len());
            fits
        });
        found.map(|end| path.split_at(end))
    }

    /// Whether a script of this name runs only if it is a file here.
    pub(super) fn must_be_file(&self, name: &[u8]) -> bool {
        match self.check {
            Check::Always => true,
            Check::ByName => is_php_source(name),
            Check::Never => false,
        }
    }

    /// Why the script may not run.
    pub(super) fn forbids(&self, name: &[u8]) -> Option<&'static str> {
        if self.settings.pool.is_none() {
            return Some("a script, and no pool to run it");
        }
        (!self.may_run(name)).then_some("not among the pool's limit_extensions")
    }

    /// What workers call `root`, which is not there.
    pub(super) fn absent_root(&self, root: &[u8]) -> Arc<[u8]> {
        match &self.worker_root {
            WorkerRoot::Given(path) => path.clone(),
            WorkerRoot::Real | WorkerRoot::Inside(_) => root.into(),
        }
    }

    /// Scripts whose path begins so are files to be read, never run.
    pub(super) fn denies_script(&self, path: &[u8]) -> bool {
        let prefixes = &self.settings.deny_scripts;
        prefixes
            .iter()
            .any(|prefix| path.starts_with(prefix.as_bytes()))
    }

    pub(super) fn may_run(&self, script: &[u8]) -> bool {
        let limit = &self.limit_extensions;
        limit.is_empty() || limit.iter().any(|end| script.ends_with(end.as_bytes()))
    }

    pub(super) fn document_root(&self, root: &OpenRoot) -> Arc<[u8]> {
        match &self.worker_root {
            WorkerRoot::Given(path) => path.clone(),
            WorkerRoot::Real => root.real.clone(),
            WorkerRoot::Inside(chroot) => {
                let real = Path::new(OsStr::from_bytes(&root.real));
                match path_inside(chroot, real) {
                    Some(inside) => trim_slash(inside.as_os_str().as_bytes()).into(),
                    None => root.real.clone(),
                }
            }
        }
    }
}

/// Compiles settings; equal ones share their rules, equal folders their files in memory.
pub(super) struct Compiler<'c> {
    config: &'c Config,
    roots: Roots,
    rules: Vec<Arc<Rules>>,
    spaces: Vec<Space>,
}

impl<'c> Compiler<'c> {
    pub(super) fn new(config: &'c Config, roots: Roots) -> Self {
        Self {
            config,
            roots,
            rules: Vec::new(),
            spaces: Vec::new(),
        }
    }

    /// The rules that `settings` mean.
    ///
    /// # Errors
    /// What cannot be compiled or reached, and where.
    pub(super) fn rules(&mut self, settings: &Settings) -> Result<Arc<Rules>, String> {
        if let Some(rules) = self.rules.iter().find(|rules| rules.settings == *settings) {
            return Ok(rules.clone());
        }
        let rules = Arc::new(self.compile(settings)?);
        self.rules.push(rules.clone());
        Ok(rules)
    }

    fn compile(&mut self, settings: &Settings) -> Result<Rules, String> {
        let presentation = Arc::new(Presentation::new(settings)?);
        let named = |what: &'static str| move |error: String| format!("{what}: {error}");
        let root = match &settings.alias {
            Some(alias) => {
                let space = self.space(
                    &alias.folder,
                    settings.follow_symlinks,
                    &presentation,
                    alias.prefix.as_bytes(),
                );
                Some(space.map_err(named("alias"))?)
            }
            None => None,
        };
        let mut space =
            |folder: &Path| self.space(folder, settings.follow_symlinks, &presentation, b"");
        let root = match (root, settings.root.as_deref()) {
            (Some(alias), _) => Some(alias),
            (None, Some(root)) => Some(space(root).map_err(named("root"))?),
            (None, None) => None,
        };
        let mut accel = Vec::new();
        for (prefix, folder) in &settings.accel_redirect {
            let space = space(folder).map_err(named("accel_redirect"))?;
            accel.push((prefix.as_bytes().into(), space));
        }
        let mut sendfile = Vec::new();
        for folder in &settings.sendfile_dirs {
            sendfile.push(space(folder).map_err(named("sendfile_dirs"))?);
        }
        let mut error_pages = BTreeMap::new();
        for (status, page) in &settings.error_pages {
            let (folder, name) = match (&settings.root, page.parent(), page.file_name()) {
                (_, Some(folder), Some(name)) if page.is_absolute() => (folder, name),
                (Some(root), _, _) => (root.as_path(), page.as_os_str()),
                _ => return Err(format!("error_pages: {} needs a root", page.display())),
            };
            if is_php_source(name.as_bytes()) {
                return Err(format!(
                    "error_pages: {} is a script, not a page",
                    page.display()
                ));
            }
            let space = space(folder).map_err(named("error_pages"))?;
            error_pages.insert(*status, (space, name.as_bytes().into()));
        }

        let pool = settings.pool.and_then(|id| self.config.pools.get(id.0));
        Ok(Rules {
            script: ScriptPattern::new(&settings.script).map_err(named("script"))?,
            policy: Policy::new(&settings.policy)?,
            fallback: settings.fallback.as_deref().map(|text| {
                let rewrite = Rewrite::new(text);
                match rewrite.is_plain() {
                    true => Fallback::Path(text.replace("$$", "$").into_bytes().into()),
                    false => Fallback::Made(rewrite),
                }
            }),
            check: check(settings, pool),
            hidden: Hidden::new(&settings.hide_files).map_err(named("hide_files"))?,
            limit_extensions: pool.map_or_else(Vec::new, |pool| pool.limit_extensions.clone()),
            worker_root: worker_root(settings, pool),
            settings: settings.clone(),
            space: root,
            accel,
            sendfile,
            error_pages,
        })
    }

    fn space(
        &mut self,
        folder: &Path,
        follow_symlinks: bool,
        presentation: &Arc<Presentation>,
        prefix: &[u8],
    ) -> Result<Space, String> {
        let root = self.roots.root(folder, follow_symlinks)?;
        let same = |space: &&Space| {
            space.root.id == root.id
                && space.presentation == *presentation
                && *space.prefix == *prefix
        };
        if let Some(space) = self.spaces.iter().find(same) {
            return Ok(space.clone());
        }
        let space = Space {
            root,
            presentation: presentation.clone(),
            prefix: prefix.into(),
            id: self.spaces.len(),
        };
        self.spaces.push(space.clone());
        Ok(space)
    }
}

/// Of PHP and of fcgiwrap it is known that their scripts are files.
fn check(settings: &Settings, pool: Option<&Pool>) -> Check {
    let runs_files = |program: &str| {
        let name = program.rsplit('/').next().unwrap_or_default();
        ["php", "fcgiwrap"]
            .iter()
            .any(|known| name.to_ascii_lowercase().contains(known))
    };
    let is_named_so = |server: &UpstreamServer| match &server.address {
        Upstream::At(Address::Unix(path)) => runs_files(&path.to_string_lossy()),
        Upstream::At(Address::Tcp(_)) => false,
        Upstream::Named { host, .. } => runs_files(host),
    };
    match (settings.check_files, pool.map(|pool| &pool.runtime)) {
        (Some(false), Some(_)) => Check::Never,
        (Some(true), _) | (_, None | Some(Runtime::Php(_))) => Check::Always,
        (None, Some(Runtime::Command(command)))
            if command.argv.iter().any(|word| runs_files(word)) =>
        {
            Check::Always
        }
        (None, Some(Runtime::Servers(servers))) if servers.list.iter().any(is_named_so) => {
            Check::Always
        }
        (None, Some(Runtime::Command(_) | Runtime::Servers(_))) => Check::ByName,
    }
}

/// Workers on this host see the same folder, whatever links lead to it; what other hosts see is only known by the
/// name that the configuration uses.
fn worker_root(settings: &Settings, pool: Option<&Pool>) -> WorkerRoot {
    let runtime = pool.map(|pool| &pool.runtime);
    let chroot = pool.and_then(|pool| pool.workers()?.chroot.as_ref());
    let is_here = |server: &UpstreamServer| match &server.address {
        Upstream::At(Address::Unix(_)) => true,
        Upstream::At(Address::Tcp(address)) => address.ip().is_loopback(),
        Upstream::Named { .. } => false,
    };
    let elsewhere =
        matches!(runtime, Some(Runtime::Servers(servers)) if !servers.list.iter().all(is_here));
    let given = settings.script_root.as_ref();
    let folder = settings.alias.as_ref().map(|alias| &alias.folder);
    let folder = folder.or(settings.root.as_ref());
    match given.or(folder.filter(|_| elsewhere)) {
        Some(path) => WorkerRoot::Given(trim_slash(path.as_os_str().as_bytes()).into()),
        None => match chroot {
            Some(chroot) => {
                let real = chroot.canonicalize();
                WorkerRoot::Inside(real.unwrap_or_else(|_| chroot.clone()))
            }
            None => WorkerRoot::Real,
        },
    }
}
