//! The settings of a site or a route, compiled once for all requests.

pub(crate) mod pattern;
pub(crate) mod rewrite;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::StatusCode;
use weir_config::{Address, Config, Pool, PoolId, Runtime, Settings, Upstream, UpstreamServer};
use weir_control::path_inside;

use super::{
    resolve::Wanted,
    root::{OpenRoot, Root, Roots, trim_slash},
    rules::{
        pattern::{Hidden, ScriptPattern, is_php_source},
        rewrite::Rewrite,
    },
};
use crate::{
    access::{basic_auth::Auths, guard::Guard},
    answers::cache::Cached,
    files::Presentation,
    scripts::policy::Policy,
};

/// The compiled settings for a request.
#[derive(Debug)]
pub struct Rules {
    /// As the configuration has them.
    pub settings: Settings,
    /// The policy for requests of scripts.
    pub(crate) policy: Policy,
    /// The rules for the cache; `None`: there is none.
    pub(crate) cache: Option<Cached>,
    /// Its conditions for clients; `None`: none.
    pub(crate) guard: Option<Guard>,
    /// The value of `Strict-Transport-Security`.
    pub(crate) hsts: Option<String>,
    pub(super) script: ScriptPattern,
    pub(super) hidden: Hidden,
    pub(super) fallback: Option<Fallback>,
    pub(super) check: Check,
    /// Extensions that the pool runs; empty: all.
    pub(super) limit_extensions: Vec<String>,
    /// Where files come from; `None` without a root.
    pub(super) space: Option<Space>,
    pub(super) accel: Vec<(Box<[u8]>, Space)>,
    pub(super) sendfile: Vec<Space>,
    pub(super) error_pages: BTreeMap<u16, (Space, Box<[u8]>)>,
    worker_root: WorkerRoot,
}

/// A script's name and its path-info.
pub(super) type Split<'p> = (&'p [u8], &'p [u8]);

/// Where a URL without a file goes.
#[derive(Debug)]
pub(super) enum Fallback {
    Path(Box<[u8]>),
    /// With groups or a query.
    Made(Rewrite),
}

/// Whether the files of scripts are checked on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// Every script must be a file.
    Always,
    /// A script with a PHP extension must be a file. Other names may be known to the program behind the pool. If
    /// there is a file with such a name, the rules for files still apply.
    ByName,
    /// Not checked: the workers know their scripts.
    Never,
}

/// A folder and the settings for its files.
#[derive(Debug, Clone)]
pub(super) struct Space {
    pub(super) root: Arc<Root>,
    pub(super) presentation: Arc<Presentation>,
    /// For an alias: the URL prefix of the folder, with its slash.
    prefix: Arc<[u8]>,
    /// Number of this pair of folder and settings; the file cache uses it as a key.
    pub(super) id: usize,
}

/// The document root as the workers see it.
#[derive(Debug)]
enum WorkerRoot {
    /// `script_root`, or the configured root for workers on other hosts.
    Given(Box<[u8]>),
    /// The folder that the root leads to: after a link was switched, files have other names, so that caches of
    /// compiled scripts and of resolved paths cannot mix two releases.
    Real,
    /// The same, as seen by workers in a chroot at this folder.
    Inside(PathBuf),
}

impl Space {
    /// The part of a URL path that is looked up in the folder; begins with a slash.
    pub(super) fn inner<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        match path.starts_with(&self.prefix) {
            true => &path[self.prefix.len().saturating_sub(1)..],
            false => path,
        }
    }

    /// Whether a URL path is in the folder.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        path.starts_with(&self.prefix)
    }
}

impl Rules {
    /// Whether there is an error page for this status.
    pub fn has_error_page(&self, status: StatusCode) -> bool {
        self.error_pages.contains_key(&status.as_u16())
    }

    /// Whether an expression of `hide_files` that the operator has written matches the path, or the name of a script
    /// in it with path-info after it. A path with too many such names is hidden, too.
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

    /// The script that a path names, unless no script may run there.
    pub(super) fn script_of<'p>(&self, path: &'p [u8]) -> Option<Split<'p>> {
        let split = self.script.split(path)?;
        (!self.denies_script(split.0)).then_some(split)
    }

    /// The same for a request: the slash after the script's name must not be an encoded one.
    pub(super) fn script_in<'p>(&self, wanted: &Wanted<'p>) -> Option<Split<'p>> {
        let longest = self.script_of(wanted.path)?;
        match wanted.is_plain() || longest.0.len() < wanted.plain {
            true => Some(longest),
            false => self.shorter_script(wanted, |name| name.len() < wanted.plain),
        }
    }

    /// The longest script in the path before the one that [`Self::script_of`] finds, for which `fit` holds: path-info
    /// may look like a script (`/index.php/Page.php`).
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

    /// Whether a script with this name runs only if it is a file here.
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
            return Some("a script, but no pool runs it");
        }
        (!self.may_run(name)).then_some("not allowed by the pool's limit_extensions")
    }

    /// `root` as the workers see it; it does not exist here.
    pub(super) fn absent_root<'r>(&'r self, root: &'r [u8]) -> &'r [u8] {
        match &self.worker_root {
            WorkerRoot::Given(path) => path,
            WorkerRoot::Real | WorkerRoot::Inside(_) => root,
        }
    }

    /// Whether the script is below a prefix of `deny_scripts`: it is shown as text and never run.
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

    pub(super) fn document_root<'r>(&'r self, root: &'r OpenRoot) -> Cow<'r, [u8]> {
        match &self.worker_root {
            WorkerRoot::Given(path) => Cow::Borrowed(path),
            WorkerRoot::Real => Cow::Borrowed(&root.real),
            WorkerRoot::Inside(chroot) => {
                let real = Path::new(OsStr::from_bytes(&root.real));
                match path_inside(chroot, real) {
                    Some(inside) => trim_slash(inside.as_os_str().as_bytes()).to_vec().into(),
                    None => Cow::Borrowed(&root.real),
                }
            }
        }
    }
}

/// Compiles settings. Equal settings share their rules; equal folders share their cached files. Rules live as long as the
/// process, which serves one configuration: so requests refer to them without counting.
pub(super) struct Compiler<'c> {
    config: &'c Config,
    roots: Roots,
    /// By root and pool: only these can be equal.
    rules: HashMap<(Option<PathBuf>, Option<PoolId>), Vec<&'static Rules>>,
    /// By the number of their root.
    spaces: HashMap<usize, Vec<Space>>,
    next_space: usize,
    auths: Auths,
}

impl<'c> Compiler<'c> {
    pub(super) fn new(config: &'c Config, roots: Roots) -> Self {
        Self {
            config,
            roots,
            rules: HashMap::new(),
            spaces: HashMap::new(),
            next_space: 0,
            auths: Auths::default(),
        }
    }

    /// Compiles `settings`.
    ///
    /// # Errors
    /// What cannot be compiled or reached, and where.
    pub(super) fn rules(&mut self, settings: &Settings) -> Result<&'static Rules, String> {
        let key = (settings.root.clone(), settings.pool);
        let mut alike = self.rules.get(&key).into_iter().flatten();
        if let Some(rules) = alike.find(|rules| rules.settings == *settings) {
            return Ok(rules);
        }
        let rules = Box::leak(Box::new(self.compile(settings)?));
        self.rules.entry(key).or_default().push(rules);
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

        let auth = settings.basic_auth.as_ref();
        let auth = auth
            .map(|auth| self.auths.get(auth, self.config))
            .transpose()?;
        let pool = settings.pool.and_then(|id| self.config.pools.get(id.0));
        Ok(Rules {
            script: ScriptPattern::new(&settings.script).map_err(named("script"))?,
            policy: Policy::new(&settings.policy)?,
            cache: (settings.cache.as_ref().map(Cached::new).transpose())
                .map_err(named("cache"))?,
            guard: Guard::new(settings, auth),
            hsts: settings.hsts.map(|hsts| hsts.header()),
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
        let same = |space: &&Space| space.presentation == *presentation && *space.prefix == *prefix;
        let below = self.spaces.entry(root.id).or_default();
        if let Some(space) = below.iter().find(same) {
            return Ok(space.clone());
        }
        let space = Space {
            root,
            presentation: presentation.clone(),
            prefix: prefix.into(),
            id: self.next_space,
        };
        self.next_space += 1;
        below.push(space.clone());
        Ok(space)
    }
}

/// The scripts of PHP and of fcgiwrap are always files.
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

/// Workers on this host see the same folder, also behind links. For other hosts only the configured path is known.
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
