//! What a reactor caches between requests: open roots, existing names, small files.
//!
//! Each reactor has its own cache, so there are no locks. Each kind of entry has its own time limit:
//!
//! | what | used without a check for |
//! |---|---|
//! | the folder that a root leads to | 1 s ([`ROOT_AGE`]) |
//! | "this script exists" and what it is, "this folder exists" | 1 s ([`KNOWN_AGE`]); that something does *not* exist is never cached |
//! | a file: contents, length, type, validators | 0 s: one stat for each request, or for those that came with one read, which finds what it needs in memory, since the descriptor stays open; that also means that its inode cannot become another file |
//! | that there is no new `.br`, `.zst`, `.gz` beside it | 1 s; existing ones are checked like the file |
//!
//! Of roots on file systems behind a network or another process (NFS, SMB, FUSE), nothing is cached: there even a stat may
//! wait for long, so each lookup runs on a thread for files.
//!
//! A file that changed less than two seconds before it was opened is not cached, because its next change might have
//! the same time (file systems have a resolution of up to two seconds). Files that were not used for [`UNUSED_AGE`]
//! are dropped, so that deleted ones do not keep their disk space for long.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use super::{
    hashing::Seeded,
    resolve::{Script, Wanted},
    root::{OpenRoot, ROOT_AGE},
    rules::Rules,
};
use crate::files::FileEntry;

/// What may be kept in memory, per reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Open files.
    pub descriptors: usize,
    /// Bytes of small files' contents.
    pub bytes: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self {
            descriptors: 1024,
            bytes: 16 << 20,
        }
    }
}

/// Runs `act` with this reactor's cache for the router with that number. The cache is empty if another router was in
/// use.
pub(super) fn with<T>(router: u64, limits: CacheLimits, act: impl FnOnce(&mut Cache) -> T) -> T {
    CACHE.with_borrow_mut(|cache| {
        if cache.router != router {
            *cache = Cache {
                router,
                ..Cache::default()
            };
        }
        cache.files.limits = limits;
        act(cache)
    })
}

/// Drops what was not used for a while.
pub(super) fn sweep(now: u64) {
    CACHE.with_borrow_mut(|cache| {
        let all = cache.files.slots.len();
        cache.files.sweep(now, all);
    });
}

/// The cache of one reactor for one router.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// Number of the router; 0: none.
    router: u64,
    /// Indexed by the root's number.
    roots: Vec<Option<KnownRoot>>,
    pub(super) files: FileCache,
}

#[derive(Debug)]
struct KnownRoot {
    open: Rc<OpenRoot>,
    opened_at: u64,
    /// Scripts, and folders with a slash at the end.
    known: HashMap<Box<[u8]>, KnownName, Seeded>,
}

/// A script or folder that exists.
#[derive(Debug)]
struct KnownName {
    /// When it was last seen.
    seen: u64,
    script: Option<KnownScript>,
}

/// What workers get of a script without path-info.
#[derive(Debug)]
struct KnownScript {
    /// The address of the rules under which it was found. They live as long as the router.
    rules: usize,
    /// The rules let clients request it by its own name. A fallback need not be reachable by its name.
    is_public: bool,
    script: Rc<Script>,
}

impl Cache {
    /// The open root with that number, if it is not too old.
    pub(super) fn root(&self, id: usize, now: u64) -> Option<Rc<OpenRoot>> {
        let root = self.roots.get(id)?.as_ref()?;
        is_young(root.opened_at, now, ROOT_AGE).then(|| root.open.clone())
    }

    /// Stores a root that was just opened; returns the one to use. If it is a different folder, everything about the
    /// old one is dropped.
    pub(super) fn keep_root(&mut self, id: usize, open: OpenRoot, now: u64) -> Rc<OpenRoot> {
        if self.roots.len() <= id {
            self.roots.resize_with(id + 1, || None);
        }
        match &mut self.roots[id] {
            Some(root) if root.open.is(&open) => {
                root.opened_at = now;
                root.open.clone()
            }
            other => {
                let open = Rc::new(open);
                *other = Some(KnownRoot {
                    open: open.clone(),
                    opened_at: now,
                    known: HashMap::default(),
                });
                open
            }
        }
    }

    /// Whether `name` existed less than [`KNOWN_AGE`] ago.
    pub(super) fn knows(&self, root: usize, name: &[u8], now: u64) -> bool {
        self.known(root, name, now).is_some()
    }

    fn known(&self, root: usize, name: &[u8], now: u64) -> Option<&KnownName> {
        let known = self.roots.get(root)?.as_ref()?.known.get(name)?;
        is_young(known.seen, now, KNOWN_AGE).then_some(known)
    }

    /// The script at `name`, a name below the root, under these rules; its URL path is `script_name`.
    pub(super) fn script(
        &self,
        (root, rules): (usize, &Rules),
        (name, script_name): (&[u8], &[u8]),
        now: u64,
    ) -> Option<Rc<Script>> {
        let kept = self.known(root, name, now)?.script.as_ref()?;
        kept.is_of(rules, script_name).then(|| kept.script.clone())
    }

    /// The script that `wanted` names directly, if it was found with the present root.
    #[inline]
    pub(super) fn wanted_script(
        &self,
        (root, rules): (usize, &Rules),
        (wanted, name): (&Wanted<'_>, &[u8]),
        now: u64,
    ) -> Option<Rc<Script>> {
        let known = self.roots.get(root)?.as_ref()?;
        if wanted.rewritten || !wanted.is_plain() || !is_young(known.opened_at, now, ROOT_AGE) {
            return None;
        }
        let kept = self.known(root, name, now)?.script.as_ref()?;
        let fits = kept.is_public && kept.is_of(rules, wanted.path);
        fits.then(|| kept.script.clone())
    }

    /// Keeps the script at `name`, which was seen before.
    pub(super) fn keep_script(
        &mut self,
        (root, rules): (usize, &Rules),
        name: &[u8],
        script: &Rc<Script>,
        is_public: bool,
    ) {
        let root = self.roots.get_mut(root).and_then(Option::as_mut);
        if let Some(known) = root.and_then(|root| root.known.get_mut(name)) {
            known.script = Some(KnownScript {
                rules: std::ptr::from_ref(rules).addr(),
                is_public,
                script: script.clone(),
            });
        }
    }

    /// Notes that `name` exists, if `open` is still the root.
    pub(super) fn keep_known(&mut self, root: usize, open: &OpenRoot, name: &[u8], now: u64) {
        let Some(Some(root)) = self.roots.get_mut(root) else {
            return;
        };
        if !root.open.is(open) {
            return;
        }
        if let Some(seen) = root.known.get_mut(name) {
            *seen = KnownName {
                seen: now,
                script: None,
            };
            return;
        }
        if root.known.len() >= MAX_KNOWN {
            root.known
                .retain(|_, known| is_young(known.seen, now, KNOWN_AGE));
            if root.known.len() >= MAX_KNOWN {
                root.known.clear();
            }
        }
        let known = KnownName {
            seen: now,
            script: None,
        };
        root.known.insert(name.into(), known);
    }
}

impl KnownScript {
    fn is_of(&self, rules: &Rules, script_name: &[u8]) -> bool {
        self.rules == std::ptr::from_ref(rules).addr() && self.script.script_name == script_name
    }
}

/// Files by space and path. Files that were used since the hand last passed are kept for another round (clock
/// algorithm, after Corbató), so that reading many files once does not displace the few popular ones.
#[derive(Debug, Default)]
pub(super) struct FileCache {
    limits: CacheLimits,
    /// Space → path → slot.
    index: Vec<HashMap<Box<[u8]>, usize, Seeded>>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    hand: usize,
    swept_at: Option<u64>,
    bytes: usize,
    descriptors: usize,
}

#[derive(Debug)]
struct Slot {
    space: usize,
    entry: Rc<FileEntry>,
    spared: bool,
    used_at: u64,
    variants_seen_at: u64,
}

/// A cached file.
#[derive(Debug)]
pub(super) struct Kept<'c> {
    /// This entry was opened some time ago and must be compared with the present file.
    pub(super) entry: &'c Rc<FileEntry>,
    /// New variants may have appeared since the last check.
    pub(super) look_for_variants: bool,
    /// Its slot.
    pub(super) slot: usize,
}

impl FileCache {
    pub(super) fn get(&mut self, space: usize, path: &[u8], now: u64) -> Option<Kept<'_>> {
        if self
            .swept_at
            .is_none_or(|at| !is_young(at, now, SWEEP_EVERY))
        {
            self.sweep(now, SWEEP_STEPS);
        }
        let slot = *self.index.get(space)?.get(path)?;
        let kept = self.slots[slot].as_mut()?;
        kept.spared = true;
        kept.used_at = now;
        Some(Kept {
            entry: &kept.entry,
            look_for_variants: !is_young(kept.variants_seen_at, now, KNOWN_AGE),
            slot,
        })
    }

    /// Notes that there are no other variants of `slot`, as of now.
    pub(super) fn variants_seen(&mut self, slot: usize, now: u64) {
        if let Some(Some(slot)) = self.slots.get_mut(slot) {
            slot.variants_seen_at = now;
        }
    }

    pub(super) fn insert(&mut self, space: usize, entry: Rc<FileEntry>, now: u64) {
        self.remove(space, entry.path());
        let (bytes, descriptors) = (entry.bytes_in_memory(), entry.descriptors());
        if bytes > self.limits.bytes / 8 || descriptors > self.limits.descriptors {
            return;
        }
        while self.bytes + bytes > self.limits.bytes
            || self.descriptors + descriptors > self.limits.descriptors
        {
            self.evict_one();
        }
        self.bytes += bytes;
        self.descriptors += descriptors;
        if self.index.len() <= space {
            self.index.resize_with(space + 1, HashMap::default);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.index[space].insert(entry.path().into(), slot);
        self.slots[slot] = Some(Slot {
            space,
            entry,
            spared: false,
            used_at: now,
            variants_seen_at: now,
        });
    }

    pub(super) fn remove(&mut self, space: usize, path: &[u8]) {
        let slot = self.index.get(space).and_then(|index| index.get(path));
        if let Some(slot) = slot.copied() {
            self.empty(slot);
        }
    }

    /// Closes everything, because descriptors ran out.
    pub(super) fn clear(&mut self) {
        *self = Self {
            limits: self.limits,
            ..Self::default()
        };
    }

    fn evict_one(&mut self) {
        // At most two rounds: the first one clears the marks.
        for _ in 0..self.slots.len() * 2 {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            match &mut self.slots[slot] {
                None => {}
                Some(kept) if kept.spared => kept.spared = false,
                Some(_) => return self.empty(slot),
            }
        }
    }

    /// Checks the next `steps` slots.
    fn sweep(&mut self, now: u64, steps: usize) {
        self.swept_at = Some(now);
        for _ in 0..steps.min(self.slots.len()) {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let unused = |kept: &Slot| !is_young(kept.used_at, now, UNUSED_AGE);
            if self.slots[slot].as_ref().is_some_and(unused) {
                self.empty(slot);
            }
        }
    }

    fn empty(&mut self, slot: usize) {
        let Some(kept) = self.slots[slot].take() else {
            return;
        };
        self.bytes -= kept.entry.bytes_in_memory();
        self.descriptors -= kept.entry.descriptors();
        self.index[kept.space].remove(kept.entry.path());
        self.free.push(slot);
    }
}

/// Times are [`weir_observe::clock::now`]'s.
fn is_young(at: u64, now: u64, age: u64) -> bool {
    now.saturating_sub(at) < age
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

/// How long an existing script or folder is not checked again, µs.
const KNOWN_AGE: u64 = 1_000_000;
/// Maximum number of cached names per root.
const MAX_KNOWN: usize = 4096;
/// A file that was not requested for this long is closed, µs.
const UNUSED_AGE: u64 = 20_000_000;
const SWEEP_EVERY: u64 = 1_000_000;
const SWEEP_STEPS: usize = 128;
