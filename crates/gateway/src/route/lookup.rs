//! Where the lookups of a path run: on a reactor, which keeps what they find, or on a thread that may wait for the disk.
//!
//! A thread keeps nothing, and returns values that may leave it; the reactor that asked makes its own entries of them.

use std::rc::Rc;

use super::{
    cache::Cache,
    resolve::Script,
    root::OpenRoot,
    rules::{Rules, Space},
};
use crate::files::{FileEntry, LoadedFile};

/// The cache of lookups, and how their results are kept.
pub(super) trait Lookup {
    /// A file that was found.
    type File;
    /// A script that was found.
    type Script: From<Script>;
    /// Whether lookups may wait for the disk.
    const MAY_WAIT: bool;

    /// The script with this name below the root and this name in URLs, if it was found under these rules.
    fn known_script(
        &self,
        of: (usize, &Rules),
        names: (&[u8], &[u8]),
        now: u64,
    ) -> Option<Self::Script>;

    /// Keeps a script, which was seen before.
    fn keep_script(
        &mut self,
        of: (usize, &Rules),
        name: &[u8],
        script: Script,
        is_public: bool,
    ) -> Self::Script;

    /// Whether a script or folder existed a moment ago.
    fn knows(&self, root: usize, name: &[u8], now: u64) -> bool;

    /// Notes that a script or folder exists.
    fn keep_known(&mut self, root: usize, open: &OpenRoot, name: &[u8], now: u64);

    /// The file at this path, if it is known and has not changed, and whether it is the source of a script.
    fn known_file(
        &mut self,
        space: &Space,
        root: &OpenRoot,
        path: &[u8],
        now: u64,
    ) -> Option<(Self::File, bool)>;

    /// Keeps a file.
    fn keep_file(&mut self, space: &Space, file: LoadedFile, now: u64) -> Self::File;

    /// Closes all files that are kept. Returns whether that may have made room for other descriptors.
    fn close_files(&mut self) -> bool;
}

/// Lookups on a reactor, with its cache.
pub(super) struct OnReactor<'c>(pub(super) &'c mut Cache);

/// Lookups on a thread that may wait.
pub(super) struct OnThread;

impl Lookup for OnReactor<'_> {
    type File = Rc<FileEntry>;
    type Script = Rc<Script>;
    const MAY_WAIT: bool = false;

    fn known_script(
        &self,
        of: (usize, &Rules),
        names: (&[u8], &[u8]),
        now: u64,
    ) -> Option<Rc<Script>> {
        self.0.script(of, names, now)
    }

    fn keep_script(
        &mut self,
        of: (usize, &Rules),
        name: &[u8],
        mut script: Script,
        is_public: bool,
    ) -> Rc<Script> {
        script.encode();
        let script = Rc::new(script);
        self.0.keep_script(of, name, &script, is_public);
        script
    }

    fn knows(&self, root: usize, name: &[u8], now: u64) -> bool {
        self.0.knows(root, name, now)
    }

    fn keep_known(&mut self, root: usize, open: &OpenRoot, name: &[u8], now: u64) {
        self.0.keep_known(root, open, name, now);
    }

    fn known_file(
        &mut self,
        space: &Space,
        root: &OpenRoot,
        path: &[u8],
        now: u64,
    ) -> Option<(Rc<FileEntry>, bool)> {
        let files = &mut self.0.files;
        let kept = files.get(space.id, path, now)?;
        let (slot, look) = (kept.slot, kept.look_for_variants);
        let entry = kept.entry.clone();
        if !entry.is_current(root.fd(), now) {
            files.remove(space.id, path);
            return None;
        }
        if look {
            if !entry.has_all_variants(root.fd(), space.root.walk(true)) {
                files.remove(space.id, path);
                return None;
            }
            files.variants_seen(slot, now);
        }
        let is_source = entry.is_source();
        Some((entry, is_source))
    }

    fn keep_file(&mut self, space: &Space, file: LoadedFile, now: u64) -> Rc<FileEntry> {
        let entry: Rc<FileEntry> = file.into();
        if entry.is_settled() {
            self.0.files.insert(space.id, entry.clone(), now);
        }
        entry
    }

    fn close_files(&mut self) -> bool {
        self.0.files.clear();
        true
    }
}

impl Lookup for OnThread {
    type File = Box<LoadedFile>;
    type Script = Script;
    const MAY_WAIT: bool = true;

    fn known_script(&self, _: (usize, &Rules), _: (&[u8], &[u8]), _: u64) -> Option<Script> {
        None
    }

    fn keep_script(&mut self, _: (usize, &Rules), _: &[u8], script: Script, _: bool) -> Script {
        script
    }

    fn knows(&self, _: usize, _: &[u8], _: u64) -> bool {
        false
    }

    fn keep_known(&mut self, _: usize, _: &OpenRoot, _: &[u8], _: u64) {}

    fn known_file(
        &mut self,
        _: &Space,
        _: &OpenRoot,
        _: &[u8],
        _: u64,
    ) -> Option<(Box<LoadedFile>, bool)> {
        None
    }

    fn keep_file(&mut self, _: &Space, file: LoadedFile, _: u64) -> Box<LoadedFile> {
        Box::new(file)
    }

    fn close_files(&mut self) -> bool {
        false
    }
}
