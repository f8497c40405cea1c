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
    /// Extensions that the pool runs; empty: any.
    pub(super) limit_extensions: Vec<String>,
    /// Where files come from; none without a root.
    pub(super) space: Option<Space>,
    pub(super) accel: Vec<(Box<[u8]>, Space)>,
    pub(super) sendfile: Vec<Space>,
    pub(super) error_pages: BTreeMap<u16, (Space, Box<[u8]>)>,
    worker_root: WorkerRoot,
}

/// A folder and how its files are presented.
#[derive(Debug, Clone)]
pub(super) struct Space {
    pub(super) root: Arc<Root>,
    pub(super) presentation: Arc<Presentation>,
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

impl Rules {
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
        let mut space = |folder: &Path| self.space(folder, settings.follow_symlinks, &presentation);
        let named = |what: &'static str| move |error: String| format!("{what}: {error}");

        let root = settings.root.as_deref().map(&mut space);
        let root = root.transpose().map_err(named("root"))?;
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
    ) -> Result<Space, String> {
        let root = self.roots.root(folder, follow_symlinks)?;
        let same = |space: &&Space| space.root.id == root.id && space.presentation == *presentation;
        if let Some(space) = self.spaces.iter().find(same) {
            return Ok(space.clone());
        }
        let space = Space {
            root,
            presentation: presentation.clone(),
            id: self.spaces.len(),
        };
        self.spaces.push(space.clone());
        Ok(space)
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
    match given.or(settings.root.as_ref().filter(|_| elsewhere)) {
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
