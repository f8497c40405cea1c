//! Finds the target of a path under its rules: a file, a script, a redirect, or nothing.
//!
//! The order is what users of nginx's `try_files $uri $uri/ /index.php` and of Apache's `!-f !-d` rules expect:
//!
//! 1. A path that an expression of `hide_files` matches does not exist (404). This overrides all other rules. This
//!    applies to the path, and to the name of a script with path-info after it. The default of `hide_files` is about
//!    files: it hides existing files with such names. Path-info and names without a file are left to the application.
//! 2. A path that matches the script pattern runs that script, if it exists. If it does not, the fallback gets the
//!    path (so a front controller also serves `/old-page.php` and `/wiki/Index.php`), otherwise 404. With
//!    `/index.php/Page.php`, the second name may be path-info of the first. If files are not checked (`check_files`),
//!    the script runs in any case.
//! 3. A path that ends in a slash is a folder: its index files in order, scripts among them.
//! 4. Any other path is a file; if it is a folder, its URL is the one with a slash (301, 308).
//! 5. A path without a file, or a folder without index, goes to the fallback, with no path-info and the request's own
//!    URI; without a fallback 404.
//!
//! With a pool whose servers speak HTTP there are no scripts, indexes and fallbacks: the pool gets each path without a file, each
//! folder, and each method but GET and HEAD.
//!
//! A path with an encoded slash is neither file nor folder; it may be the path-info of a script or of the fallback.
//!
//! Below `deny_scripts` nothing runs, not even an index file: scripts there are text. Elsewhere a PHP source that the
//! pattern does not match is refused (403) and never sent. It is recognized by its name, or because it begins with
//! `<?php`. A link out of the root, a file that may not be read and anything that is neither file nor folder is
//! refused too, without asking the fallback.
//!
//! The same steps run at most twice: first on the reactor, with cached results and lookups that use only the kernel's
//! caches. If these would have to wait for the disk, the steps run again on a blocking thread.

use std::{ffi::OsStr, io, os::fd::AsFd, os::unix::ffi::OsStrExt, path::PathBuf};

use http::{HeaderValue, Method, StatusCode};
use regex::bytes::Regex;
use weir_fcgi::nv;
use weir_semantics::path::encode;
use weir_sys::file::{self, FileKind};

use super::{
    Target,
    lookup::Lookup,
    root::OpenRoot,
    rules::{
        Check, Fallback, Rules, Space, Split,
        pattern::{HiddenFile, is_php_source},
    },
};
use crate::files::{LoadedFile, Source};

/// What is requested.
#[derive(Debug, Clone)]
pub(super) struct Wanted<'w> {
    /// Decoded and normalised.
    pub(super) path: &'w [u8],
    /// How many bytes of it may be a file's path; see [`weir_semantics::path::Normal`].
    pub(super) plain: usize,
    /// `None`: a file that a script or the configuration specifies. Then there are no scripts, no folders, no
    /// fallback.
    pub(super) request: Option<(&'w Method, Option<&'w str>)>,
    /// The query was changed by a rewrite.
    pub(super) rewritten: bool,
    /// The route's expression, whose groups a fallback may use.
    pub(super) regex: Option<&'w Regex>,
}

/// An owned [`Wanted`], for another thread.
#[derive(Debug)]
pub(super) struct Kept {
    path: Vec<u8>,
    plain: usize,
    request: Option<(Method, Option<String>)>,
    rewritten: bool,
    regex: Option<Regex>,
}

impl<'w> Wanted<'w> {
    /// For a file that a script or the configuration specifies.
    pub(super) fn file(path: &'w [u8]) -> Self {
        Self {
            path,
            plain: path.len(),
            request: None,
            rewritten: false,
            regex: None,
        }
    }

    pub(super) fn kept(&self) -> Kept {
        let request = self.request;
        Kept {
            path: self.path.to_vec(),
            plain: self.plain,
            request: request.map(|(method, query)| (method.clone(), query.map(str::to_owned))),
            rewritten: self.rewritten,
            regex: self.regex.cloned(),
        }
    }

    /// Whether the whole path may name a file.
    pub(super) fn is_plain(&self) -> bool {
        self.plain == self.path.len()
    }

    /// The query for the script, if it differs from the request's own.
    pub(super) fn new_query(&self) -> Option<Box<str>> {
        let query = self.request.filter(|_| self.rewritten)?.1;
        Some(query.unwrap_or_default().into())
    }
}

impl Kept {
    pub(super) fn borrow(&self) -> Wanted<'_> {
        let request = self.request.as_ref();
        Wanted {
            path: &self.path,
            plain: self.plain,
            request: request.map(|(method, query)| (method, query.as_deref())),
            rewritten: self.rewritten,
            regex: self.regex.as_ref(),
        }
    }
}

/// Why the steps ended without an answer.
#[derive(Debug)]
pub(super) enum Stop {
    /// The kernel would have to read from the disk.
    WouldBlock,
    /// An error outside of the rules: descriptors are used up, or the disk fails.
    Failed(io::Error, PathBuf),
}

/// One run through the steps.
pub(super) struct Walk<'l, L> {
    pub(super) rules: &'l Rules,
    pub(super) space: &'l Space,
    pub(super) root: &'l OpenRoot,
    /// Where it runs.
    pub(super) lookup: L,
    pub(super) now: u64,
}

/// What a walk finds.
type TargetOf<L> = Target<'static, <L as Lookup>::File, <L as Lookup>::Script>;

enum Opened<F> {
    File(F),
    Dir,
    Missing,
    Refused(&'static str),
}

enum NameKind {
    File,
    Dir,
    Missing,
    Refused(&'static str),
}

impl<L: Lookup> Walk<'_, L> {
    /// Finds what `wanted` means.
    ///
    /// # Errors
    /// [`Stop`]; `WouldBlock` only where it must not wait.
    pub(super) fn target(&mut self, wanted: &Wanted<'_>) -> Result<TargetOf<L>, Stop> {
        let path = wanted.path;
        let rules = self.rules;
        let Some((method, query)) = wanted.request else {
            return Ok(match self.open_any(path, true)? {
                Opened::File(entry) => Target::File(entry),
                Opened::Dir => self.forbidden("is a folder", path),
                Opened::Missing => self.not_found("no such file", path),
                Opened::Refused(why) => self.forbidden(why, path),
            });
        };
        if rules.hides(path) {
            return Ok(self.not_found(HIDDEN, path));
        }
        let script = match rules.settings.is_proxied {
            true => None,
            false => rules.script_in(wanted),
        };
        if wanted.is_plain() || script.is_some() {
            let name = script.map_or(path, |(name, _)| name);
            match rules.hidden.file(name) {
                None => {}
                Some(HiddenFile::Dot(end)) => match self.see(&name[..end])? {
                    NameKind::Missing => {
                        return self.fallback(wanted, "no such file", name);
                    }
                    _ => return Ok(self.not_found(HIDDEN, name)),
                },
                Some(HiddenFile::Copy) => match self.see(name)? {
                    NameKind::Missing => return self.fallback(wanted, "no such file", name),
                    NameKind::Dir => {}
                    _ => return Ok(self.not_found(HIDDEN, name)),
                },
            }
        }
        if let Some((name, info)) = script {
            if rules.check == Check::Never {
                return Ok(self.run_unseen(wanted, name, info));
            }
            match self.see(name)? {
                NameKind::File => return Ok(self.run(wanted, name, info, true)),
                NameKind::Dir => {}
                NameKind::Missing if rules.must_be_file(name) => {
                    return match self.shorter(wanted, name)? {
                        Some((name, info)) => Ok(self.run(wanted, name, info, true)),
                        None => self.fallback(wanted, "no such script", name),
                    };
                }
                NameKind::Missing => return Ok(self.run_unseen(wanted, name, info)),
                NameKind::Refused(why) => return Ok(self.forbidden(why, name)),
            }
        }
        if !wanted.is_plain() {
            return self.fallback(wanted, "no file name has an encoded slash", path);
        }
        if rules.settings.is_proxied
            && (path.ends_with(b"/") || !matches!(*method, Method::GET | Method::HEAD))
        {
            return Ok(rules.passed_on(wanted));
        }
        if path.ends_with(b"/") {
            return self.folder(wanted, method);
        }
        match self.open(path)? {
            Opened::Dir if rules.settings.is_proxied => Ok(rules.passed_on(wanted)),
            Opened::File(entry) => Ok(self.send(entry, method)),
            Opened::Dir => Ok(redirect_to_folder(path, method, query)),
            Opened::Missing => self.fallback(wanted, "no such file", path),
            Opened::Refused(why) => Ok(self.forbidden(why, path)),
        }
    }

    /// An existing script before one that does not exist in the path.
    fn shorter<'p>(
        &mut self,
        wanted: &Wanted<'p>,
        longest: &[u8],
    ) -> Result<Option<Split<'p>>, Stop> {
        let rules = self.rules;
        let mut stopped = None;
        let found = rules.shorter_script(wanted, |name| {
            if name.len() >= longest.len() || rules.hidden.file(name).is_some() {
                return false;
            }
            match self.see(name) {
                Ok(seen) => matches!(seen, NameKind::File),
                Err(stop) => {
                    stopped = Some(stop);
                    true
                }
            }
        });
        stopped.map_or(Ok(found), Err)
    }

    fn folder(&mut self, wanted: &Wanted<'_>, method: &Method) -> Result<TargetOf<L>, Stop> {
        let (rules, path) = (self.rules, wanted.path);
        let mut candidate = Vec::with_capacity(path.len() + 16);
        let mut is_there = self.space.inner(path) == b"/";
        for index in &rules.settings.index {
            candidate.clear();
            candidate.extend_from_slice(path);
            candidate.extend_from_slice(index.as_bytes());
            let is_script = rules
                .script
                .split(&candidate)
                .is_some_and(|(_, info)| info.is_empty());
            if is_script && rules.denies_script(&candidate)
                || rules.hides(&candidate)
                || rules.hidden.file(&candidate).is_some()
            {
                continue;
            }
            // For a folder that does not exist, this needs one lookup instead of one per index file.
            let is_known = is_there || is_script && self.knows(&candidate);
            if !is_known {
                match self.see(path)? {
                    NameKind::Dir => is_there = true,
                    NameKind::File | NameKind::Missing => break,
                    NameKind::Refused(why) => return Ok(self.forbidden(why, path)),
                }
            }
            if is_script {
                match self.see(&candidate)? {
                    NameKind::File => return Ok(self.run(wanted, &candidate, b"", false)),
                    NameKind::Missing
                        if rules.check == Check::Never && rules.fallback.is_none() =>
                    {
                        return Ok(self.run_unseen(wanted, &candidate, b""));
                    }
                    NameKind::Refused(why) => return Ok(self.forbidden(why, &candidate)),
                    NameKind::Dir | NameKind::Missing => {}
                }
            } else {
                match self.open(&candidate)? {
                    Opened::File(entry) => return Ok(self.send(entry, method)),
                    Opened::Refused(why) => return Ok(self.forbidden(why, &candidate)),
                    Opened::Dir | Opened::Missing => {}
                }
            }
        }
        self.fallback(wanted, "no such folder, or no index file in it", path)
    }

    fn fallback(
        &mut self,
        wanted: &Wanted<'_>,
        why: &'static str,
        tried: &[u8],
    ) -> Result<TargetOf<L>, Stop> {
        let (rules, Some((_, query))) = (self.rules, wanted.request) else {
            return Ok(self.not_found(why, tried));
        };
        if rules.settings.is_proxied {
            return Ok(rules.passed_on(wanted));
        }
        let rewrite = match &rules.fallback {
            None => return Ok(self.not_found(why, tried)),
            Some(Fallback::Path(path)) => return self.stand_in(wanted, path),
            Some(Fallback::Made(rewrite)) => rewrite,
        };
        let made = match rewrite.apply(wanted.regex, wanted.path, wanted.plain) {
            Ok(made) if made.plain == made.path.len() && self.space.has(&made.path) => made,
            _ => return Ok(self.not_found("the fallback is not a file", tried)),
        };
        let query = made.query.with(query);
        let wanted = Wanted {
            path: &made.path,
            plain: made.plain,
            request: wanted.request.map(|(method, _)| (method, Some(&*query))),
            rewritten: true,
            regex: None,
        };
        if rules.hides(&made.path) || rules.hidden.file(&made.path).is_some() {
            return Ok(self.not_found(HIDDEN, &made.path));
        }
        self.stand_in(&wanted, &made.path)
    }

    /// Answers with the fallback.
    fn stand_in(&mut self, wanted: &Wanted<'_>, path: &[u8]) -> Result<TargetOf<L>, Stop> {
        let rules = self.rules;
        if let Some((name, _)) = rules.script_of(path) {
            if rules.check == Check::Never {
                return Ok(self.run_unseen(wanted, name, b""));
            }
            return Ok(match self.see(name)? {
                NameKind::File => self.run(wanted, name, b"", false),
                NameKind::Refused(why) => self.forbidden(why, name),
                NameKind::Missing if !rules.must_be_file(name) => {
                    self.run_unseen(wanted, name, b"")
                }
                NameKind::Dir | NameKind::Missing => {
                    self.not_found("the fallback does not exist", name)
                }
            });
        }
        let method = wanted.request.map_or(&Method::GET, |(method, _)| method);
        Ok(match self.open(path)? {
            Opened::File(entry) => self.send(entry, method),
            Opened::Refused(why) => self.forbidden(why, path),
            Opened::Dir | Opened::Missing => self.not_found("the fallback does not exist", path),
        })
    }

    /// Runs a script that was found. `is_public`: the request contains its name, and all rules about names were
    /// applied.
    fn run(
        &mut self,
        wanted: &Wanted<'_>,
        name: &[u8],
        info: &[u8],
        is_public: bool,
    ) -> TargetOf<L> {
        let (rules, root, inner) = (self.rules, self.space.root.id, self.space.inner(name));
        let is_usual = info.is_empty() && !wanted.rewritten;
        if is_usual
            && !is_public
            && let Some(script) = (self.lookup).known_script((root, rules), (inner, name), self.now)
        {
            return Target::Script(script);
        }
        if let Some(why) = rules.forbids(name) {
            return self.forbidden(why, name);
        }
        let script = self.script(wanted, name, info);
        Target::Script(match is_usual {
            true => (self.lookup).keep_script((root, rules), inner, script, is_public),
            false => script.into(),
        })
    }

    fn script(&self, wanted: &Wanted<'_>, name: &[u8], info: &[u8]) -> Script {
        let document_root = self.rules.document_root(self.root);
        Script::new(wanted, name, info, self.space.inner(name), &document_root)
    }

    /// Runs a script that has no file on this machine.
    fn run_unseen(&self, wanted: &Wanted<'_>, name: &[u8], info: &[u8]) -> TargetOf<L> {
        match self.rules.forbids(name) {
            Some(why) => self.forbidden(why, name),
            None => Target::Script(self.script(wanted, name, info).unseen().into()),
        }
    }

    fn send(&self, entry: L::File, method: &Method) -> TargetOf<L> {
        match *method {
            Method::GET | Method::HEAD => Target::File(entry),
            Method::OPTIONS => Target::Options { allow: ALLOW },
            _ => Target::MethodNotAllowed { allow: ALLOW },
        }
    }

    fn knows(&self, name: &[u8]) -> bool {
        let inner = self.space.inner(name);
        (self.lookup).knows(self.space.root.id, inner, self.now)
    }

    /// Whether a script or folder exists. It is not opened for reading, because perhaps only its worker may read it.
    fn see(&mut self, name: &[u8]) -> Result<NameKind, Stop> {
        if self.knows(name) {
            return Ok(if name.ends_with(b"/") {
                NameKind::Dir
            } else {
                NameKind::File
            });
        }
        let walk = self.space.root.walk(!L::MAY_WAIT);
        let inner = self.space.inner(name);
        let seen = self.retry(|root| file::stat_beneath(root.fd(), &inner[1..], walk));
        let kind = match seen.map(|stat| stat.kind) {
            Ok(kind) => kind,
            Err(error) => {
                return Ok(match self.meaning(error, name)? {
                    None => NameKind::Missing,
                    Some(why) => NameKind::Refused(why),
                });
            }
        };
        let as_expected = match kind {
            FileKind::File => !name.ends_with(b"/"),
            FileKind::Dir => name.ends_with(b"/"),
            _ => return Ok(NameKind::Refused("neither file nor folder")),
        };
        if as_expected {
            (self.lookup).keep_known(self.space.root.id, self.root, inner, self.now);
        }
        Ok(if kind == FileKind::Dir {
            NameKind::Dir
        } else {
            NameKind::File
        })
    }

    fn open(&mut self, path: &[u8]) -> Result<Opened<L::File>, Stop> {
        self.open_any(path, false)
    }

    /// Opens a file or takes it from the cache; the source of a script only if it is `wanted`.
    fn open_any(&mut self, path: &[u8], wanted: bool) -> Result<Opened<L::File>, Stop> {
        let relative = &self.space.inner(path)[1..];
        // The entry may be cached because a script sent the file (X-Sendfile).
        let may_send =
            |rules: &Rules, is_source: bool| wanted || !is_source || rules.denies_script(path);
        let known = (self.lookup).known_file(self.space, self.root, relative, self.now);
        if let Some((entry, is_source)) = known {
            return Ok(match may_send(self.rules, is_source) {
                true => Opened::File(entry),
                false => Opened::Refused(SOURCE),
            });
        }
        let walk = self.space.root.walk(!L::MAY_WAIT);
        let opened = self.retry(|root| {
            let file = file::open_beneath(root.fd(), relative, walk)?;
            let stat = file::fstat(file.as_fd())?;
            Ok((file, stat))
        });
        let (file, stat) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
                return match self.meaning(error, path)? {
                    None => Ok(Opened::Missing),
                    // The gateway may have the right to enter a folder without the right to list it.
                    Some(_) if is_denied && matches!(self.see(path)?, NameKind::Dir) => {
                        Ok(Opened::Dir)
                    }
                    Some(why) => Ok(Opened::Refused(why)),
                };
            }
        };
        match stat.kind {
            FileKind::File => {}
            FileKind::Dir => return Ok(Opened::Dir),
            _ => return Ok(Opened::Refused("neither file nor folder")),
        }
        let is_script = |(_, info): (&[u8], &[u8])| info.is_empty();
        let is_source = is_php_source(path) || self.rules.script.split(path).is_some_and(is_script);
        let is_text = self.rules.denies_script(path);
        if is_source && !is_text && !wanted {
            return Ok(Opened::Refused(SOURCE));
        }
        let source = Source {
            root: self.root.fd(),
            path: relative,
            walk,
            as_text: is_source,
        };
        match LoadedFile::load(&source, file, stat, &self.space.presentation) {
            Ok(file) if !may_send(self.rules, file.is_source()) => Ok(Opened::Refused(SOURCE)),
            Ok(file) => {
                let kept = (self.lookup).keep_file(self.space, file, self.now);
                Ok(Opened::File(kept))
            }
            Err(error) => match self.meaning(error, path)? {
                None => Ok(Opened::Missing),
                Some(why) => Ok(Opened::Refused(why)),
            },
        }
    }

    /// Tries again with the cached files closed, if descriptors are used up.
    fn retry<T>(&mut self, act: impl Fn(&OpenRoot) -> io::Result<T>) -> io::Result<T> {
        match act(self.root) {
            Err(error) if is_out_of_descriptors(&error) && self.lookup.close_files() => {
                act(self.root)
            }
            result => result,
        }
    }

    /// `None`: it does not exist. `Some`: it exists, but clients must not get it.
    fn meaning(&self, error: io::Error, path: &[u8]) -> Result<Option<&'static str>, Stop> {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::WouldBlock if !L::MAY_WAIT => Err(Stop::WouldBlock),
            Kind::NotFound | Kind::NotADirectory | Kind::InvalidFilename | Kind::InvalidInput => {
                Ok(None)
            }
            Kind::PermissionDenied => Ok(Some("no permission to read it")),
            Kind::CrossesDevices => Ok(Some("a link out of the root")),
            _ if error.raw_os_error() == Some(ELOOP) => Ok(Some("a loop of links")),
            // A socket in the file system.
            _ if error.raw_os_error() == Some(ENXIO) => Ok(Some("neither file nor folder")),
            _ => Err(Stop::Failed(error, self.shown(path))),
        }
    }

    fn not_found(&self, why: &'static str, path: &[u8]) -> TargetOf<L> {
        let tried = self.shown(path);
        Target::NotFound { why, tried }
    }

    fn forbidden(&self, why: &'static str, path: &[u8]) -> TargetOf<L> {
        let tried = self.shown(path);
        Target::Forbidden { why, tried }
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        self.space.root.shown(self.space.inner(path))
    }
}

/// A script to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// `SCRIPT_NAME`
    pub script_name: Vec<u8>,
    /// `PATH_INFO`; may be empty.
    pub path_info: Vec<u8>,
    /// `SCRIPT_FILENAME`, as the worker sees it.
    pub filename: Vec<u8>,
    /// `DOCUMENT_ROOT`, as the worker sees it, without a slash at the end.
    pub document_root: Box<[u8]>,
    /// `QUERY_STRING`, if a rewrite has made a different one.
    pub query: Option<Box<str>>,
    /// The parameters with the values above, encoded ([`weir_fcgi::nv`]), if the script has no path-info. Empty: they
    /// were not encoded.
    pub params: Vec<u8>,
    /// A file of this name was found here.
    is_file: bool,
    /// This many bytes of `script_name` are an alias's prefix.
    prefix: usize,
}

impl Script {
    /// `inner` is the name without the prefix of an alias.
    pub(super) fn new(
        wanted: &Wanted<'_>,
        name: &[u8],
        info: &[u8],
        inner: &[u8],
        document_root: &[u8],
    ) -> Self {
        let mut filename = Vec::with_capacity(document_root.len() + inner.len());
        filename.extend_from_slice(document_root);
        filename.extend_from_slice(inner);
        Self {
            script_name: name.into(),
            path_info: info.into(),
            filename,
            document_root: document_root.into(),
            query: wanted.new_query(),
            params: Vec::new(),
            is_file: true,
            prefix: name.len() - inner.len(),
        }
    }

    /// Encodes [`Self::params`]. This is useful only for a script that is cached.
    pub(super) fn encode(&mut self) {
        let name = &self.script_name;
        if self.filename.len() + self.document_root.len() + 2 * name.len() > LONG {
            return;
        }
        for (param, value) in [
            (&b"DOCUMENT_ROOT"[..], &self.document_root[..]),
            (b"SCRIPT_FILENAME", &self.filename),
            (b"SCRIPT_NAME", name),
            (b"DOCUMENT_URI", name),
        ] {
            nv::encode(&mut self.params, param, value);
        }
    }

    /// The same script, if its file was not found here.
    pub(super) fn unseen(mut self) -> Self {
        self.is_file = false;
        self
    }

    /// A script as a web server in front has found it.
    pub fn elsewhere(name: &[u8], info: &[u8], filename: &[u8], document_root: &[u8]) -> Self {
        Self {
            script_name: name.into(),
            path_info: info.into(),
            filename: filename.into(),
            document_root: document_root.into(),
            query: None,
            params: Vec::new(),
            is_file: false,
            prefix: 0,
        }
    }

    /// [`Self::script_name`] relative to the folder in which it was found; `None` if its file was not checked.
    pub(super) fn seen_name(&self) -> Option<&[u8]> {
        self.is_file.then_some(&self.script_name[self.prefix..])
    }

    /// [`Self::filename`] as a path.
    pub fn filename(&self) -> &std::path::Path {
        std::path::Path::new(OsStr::from_bytes(&self.filename))
    }
}

/// In practice a 301 changes a POST to GET (RFC 9110 §15.4.2), a 308 does not.
pub(super) fn redirect_to_folder<F, S>(
    path: &[u8],
    method: &Method,
    query: Option<&str>,
) -> Target<'static, F, S> {
    let mut location = Vec::with_capacity(path.len() + query.map_or(0, str::len) + 2);
    encode(path, &mut location);
    location.push(b'/');
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query.as_bytes());
    }
    let status = match *method {
        Method::GET | Method::HEAD => StatusCode::MOVED_PERMANENTLY,
        _ => StatusCode::PERMANENT_REDIRECT,
    };
    match HeaderValue::from_maybe_shared(bytes::Bytes::from(location)) {
        Ok(location) => Target::DirectoryRedirect { location, status },
        // The path is ASCII now, and the parser of the head refuses a query with control characters.
        Err(_) => Target::DirectoryRedirect {
            location: HeaderValue::from_static("/"),
            status,
        },
    }
}

pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Methods of a static file.
const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");
/// Longer parameters are not encoded together, because they may not fit into one record, bytes.
const LONG: usize = 16 * 1024;
const SOURCE: &str = "the source of a script";
const HIDDEN: &str = "hidden by hide_files";
const ENXIO: i32 = 6;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ELOOP: i32 = 40;
