//! The stored answers.
//!
//! ```text
//! look ─► Miss                        fill ─► push … push ─► finish: stored
//!      ├► Hit(object, standing)                    └ dropped, or too large: not stored
//!      └► OnDisk ─► read: into memory, and look again
//! ```
//!
//! Several shards with a lock each share the memory. A lock is held only while a table is changed, never while something is waited for, so that
//! all reactors may use the store. Whether a stored answer is fresh, and for whom it is, is not known here: [`Head`] belongs to the user.
//!
//! **Variants.** If answers of a URL vary with fields of the request, its key leads to the names of these fields, and each variant has a key of
//! its own, made of these names and the request's values.

mod fill;
mod object;
mod on_disk;
mod shard;

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use bytes::Bytes;

pub use self::{
    fill::{Filling, New, Varied},
    object::{Body, CODINGS, Head, Object},
    on_disk::{OnDisk, ReadBack},
};
use self::{
    object::PLACE,
    shard::{Limits, Removed, Shard},
};
use super::{
    disk::{Disk, Note},
    key::{Key, KeyHash, Seed, parts_of},
    purges::{Asked, Manner, Purge, Purges, Standing},
};

/// Limits of a store.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// All memory that it takes, bytes.
    pub memory: u64,
    /// Longer bodies are not stored, bytes.
    pub max_object: u64,
    /// Number of objects in memory.
    pub max_objects: usize,
    /// Stored variants of one URL.
    pub max_variants: usize,
}

/// A store whose answers have heads of type `H`.
#[derive(Debug)]
pub struct Store<H: Head> {
    settings: Settings,
    seed: Seed,
    shards: Box<[Mutex<Shard<Slot<H>>>]>,
    purges: Arc<Purges>,
    counts: Counts,
    disk: Option<Arc<Disk<H>>>,
    /// The thread that writes to the disk.
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What the store has for a request.
#[derive(Debug)]
pub enum Found<H: Head> {
    /// Nothing, or what was purged.
    Miss,
    /// An answer for it.
    Hit(Arc<Object<H>>, Standing),
    /// Perhaps an answer, which must be read first.
    OnDisk(OnDisk<H>),
}

/// What the store holds, and what has happened since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Bytes in memory, with answers that are not complete yet.
    pub bytes: u64,
    /// Answers in memory, and notes about variants.
    pub objects: u64,
    /// Answers that were stored.
    pub stored: u64,
    /// Answers that were removed from memory to make room.
    pub evictions: u64,
    /// Purges that were asked for.
    pub purges: u64,
    /// The same on the disk.
    pub disk: DiskFigures,
}

/// What the disk holds, and what has happened since the store was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskFigures {
    /// Bytes of its files.
    pub bytes: u64,
    /// Answers, and notes about variants.
    pub objects: u64,
    /// Answers that were written.
    pub written: u64,
    /// Answers that were not written, because the disk was full or slow.
    pub not_written: u64,
    /// Answers that were removed to make room.
    pub evictions: u64,
    /// Answers that were found damaged, or missing.
    pub damaged: u64,
}

#[derive(Debug, Default)]
struct Counts {
    stored: AtomicU64,
    purges: AtomicU64,
}

/// What a key leads to.
#[derive(Debug)]
enum Slot<H: Head> {
    Object(Arc<Object<H>>),
    Variants(Arc<Variants>),
}

/// The answers of a URL vary.
#[derive(Debug)]
struct Variants {
    /// Fields of the request that they vary with.
    names: Box<[u8]>,
    /// Their keys, the oldest first.
    keys: Mutex<VecDeque<KeyHash>>,
}

/// With more there are fewer threads that wait for each other, and less memory that one large answer can have.
const MOST_SHARDS: u64 = 16;

impl<H: Head> Store<H> {
    /// An empty store, in memory.
    ///
    /// # Errors
    /// If the kernel gives no random numbers.
    pub fn new(settings: Settings) -> io::Result<Arc<Store<H>>> {
        Ok(Arc::new(Store::with(
            settings,
            Seed::random()?,
            Arc::default(),
            None,
        )))
    }

    fn with(
        settings: Settings,
        seed: Seed,
        purges: Arc<Purges>,
        disk: Option<Arc<Disk<H>>>,
    ) -> Store<H> {
        // The largest answer takes half a shard at most while it is filled.
        let largest = settings.max_object.saturating_mul(2).max(1 << 20);
        let shards = (settings.memory / largest).clamp(1, MOST_SHARDS);
        let shards = 1 << shards.ilog2();
        let limits = Limits {
            bytes: settings.memory / shards,
            values: settings.max_objects.div_ceil(shards as usize),
        };
        Store {
            settings,
            seed,
            shards: (0..shards)
                .map(|_| Mutex::new(Shard::new(limits)))
                .collect(),
            purges,
            counts: Counts::default(),
            disk,
            writer: Mutex::default(),
        }
    }

    /// The secret for keys and subjects.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// To be kept from when a request is sent until its answer is stored: of a purge that comes in between, the answer may know nothing.
    pub fn asked(&self) -> Asked {
        self.purges.asked()
    }

    /// Looks for an answer. If answers of this key vary, `values` is called with [`Varied::names`], and says what [`Varied::values`] are
    /// for this request.
    pub fn look(self: &Arc<Self>, key: &Key, values: impl FnOnce(&[u8]) -> Vec<u8>) -> Found<H> {
        if let Some(disk) = &self.disk {
            disk.hear();
        }
        match self.get(key.hash()) {
            Some(Slot::Object(object)) => self.found(key, object),
            Some(Slot::Variants(variants)) => {
                let key = key.variant(&self.seed, &variants.names, &values(&variants.names));
                match self.get(key.hash()) {
                    Some(Slot::Object(object)) => self.found(&key, object),
                    Some(Slot::Variants(_)) => Found::Miss,
                    None => self.find_on_disk(key),
                }
            }
            None => self.find_on_disk(key.clone()),
        }
    }

    fn found(&self, key: &Key, object: Arc<Object<H>>) -> Found<H> {
        if object.key() != key.text() {
            return Found::Miss;
        }
        if let (Body::File(body), Some(disk)) = (object.body(), &self.disk)
            && !body.is_unchanged()
        {
            self.remove_object(&object);
            disk.file_was_changed(key.hash());
            return Found::Miss;
        }
        match self.standing(&object) {
            Standing::Gone => {
                self.remove_object(&object);
                self.forget(key.hash());
                Found::Miss
            }
            standing => Found::Hit(object, standing),
        }
    }

    /// By what [`Flights`](crate::flights::Flights) should know a request: requests with the same one can share an answer, as far as is known.
    pub fn flight(&self, key: &Key, values: impl FnOnce(&[u8]) -> Vec<u8>) -> KeyHash {
        let slot = self.shard(key.hash()).peek(key.hash()).cloned();
        match slot {
            Some(Slot::Variants(variants)) => {
                let values = values(&variants.names);
                key.variant(&self.seed, &variants.names, &values).hash()
            }
            _ => key.hash(),
        }
    }

    /// Begins to store an answer.
    pub fn fill(self: &Arc<Self>, new: New<H>) -> Filling<H> {
        Filling::new(self, new)
    }

    /// Stores an answer whose body is there. False: it is too large, or was purged meanwhile.
    pub fn insert(&self, new: New<H>, body: Bytes) -> bool {
        if body.len() as u64 > self.settings.max_object {
            return false;
        }
        let key = match &new.vary {
            Some(vary) => new.key.variant(&self.seed, &vary.names, &vary.values),
            None => new.key.clone(),
        };
        let body = Body::Memory(body);
        let object = Object::new(new.head, body, &new.tags, key.text(), new.asked);
        if !self.place(key.hash(), Arc::new(object)) {
            return false;
        }
        if let Some(vary) = new.vary {
            self.note_variant(&new.key, vary.names, key.hash());
        }
        true
    }

    /// Stores the answer once more with another head: the origin has said that its content is still right. `asked` is of the request
    /// that asked for this. The result is the new object, whether it could be stored or not.
    pub fn renew(&self, object: &Object<H>, head: H, asked: Asked) -> Arc<Object<H>> {
        let renewed = Arc::new(object.renewed(head, asked));
        let key = self.seed.hash(object.key());
        self.place(key, renewed.clone());
        renewed
    }

    /// Adds a coded form of the content, if the object has none yet.
    pub fn add_coded(&self, object: &Arc<Object<H>>, coding: usize, bytes: Bytes) {
        let weight = bytes.len() as u32;
        if !object.set_coded(coding, bytes) {
            return;
        }
        let hash = self.seed.hash(object.key());
        let mut removed = Removed::new();
        let mut shard = self.shard(hash);
        let is_it = |slot: &Slot<H>| matches!(slot, Slot::Object(own) if Arc::ptr_eq(own, object));
        if shard.peek(hash).is_some_and(is_it) {
            shard.add_weight(hash, weight, &mut removed);
        }
        drop(shard);
        self.dispose(removed);
    }

    /// Removes what is stored for a URL, in all variants, and what is being made for it.
    pub fn remove(&self, key: &Key) {
        let parts = parts_of(key.text());
        let url = self.seed.url(parts.site, parts.host, parts.target);
        self.note(&Purge::Subject(url), Manner::Hard);
        let removed = self.shard(key.hash()).remove(key.hash());
        self.dispose(removed);
    }

    /// Notes a purge: for each look that begins after this call the purged answers are outdated.
    pub fn purge(&self, purge: &Purge, manner: Manner) {
        self.note(purge, manner);
        self.counts.purges.fetch_add(1, Ordering::Relaxed);
    }

    /// What it holds now.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures {
            stored: self.counts.stored.load(Ordering::Relaxed),
            purges: self.counts.purges.load(Ordering::Relaxed),
            ..Figures::default()
        };
        for shard in &self.shards {
            let shard = lock(shard);
            figures.bytes += shard.bytes();
            figures.objects += shard.len() as u64;
            figures.evictions += shard.evictions();
        }
        if let Some(disk) = &self.disk {
            figures.disk = disk.figures();
        }
        figures
    }

    fn standing(&self, object: &Object<H>) -> Standing {
        self.purges
            .standing(&self.seed, object.names(), &object.asked)
    }

    fn get(&self, hash: KeyHash) -> Option<Slot<H>> {
        self.shard(hash).get(hash).cloned()
    }

    /// False: it was purged meanwhile, or has no room. An answer that was purged softly does not replace one that was not.
    fn place(&self, hash: KeyHash, object: Arc<Object<H>>) -> bool {
        let standing = self.standing(&object);
        if standing == Standing::Gone {
            return false;
        }
        let weight = object.weight();
        let Ok(weight) = u32::try_from(weight) else {
            return false;
        };
        let mut removed = Removed::new();
        let mut shard = self.shard(hash);
        if standing == Standing::Soft
            && let Some(Slot::Object(own)) = shard.peek(hash)
            && self.standing(own) == Standing::Valid
        {
            return false;
        }
        let is_stored = shard.insert(hash, Slot::Object(object.clone()), weight, &mut removed);
        drop(shard);
        self.dispose(removed);
        if is_stored {
            self.counts.stored.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(disk) = &self.disk {
            // What it has is outdated, whether the new one will be written or not.
            disk.replace(hash, object.file());
            if is_stored {
                disk.write(hash, &object);
            }
        }
        is_stored
    }

    /// Notes that the answers of a key vary, and removes the oldest variant if there are too many.
    fn note_variant(&self, key: &Key, names: Box<[u8]>, variant: KeyHash) {
        let mut removed = Removed::new();
        let mut shard = self.shard(key.hash());
        let known = match shard.get(key.hash()) {
            Some(Slot::Variants(variants)) if variants.names == names => Some(variants.clone()),
            _ => None,
        };
        let variants = known.unwrap_or_else(|| {
            let weight =
                size_of::<Variants>() + PLACE + names.len() + 16 * self.settings.max_variants;
            let keys = Mutex::default();
            let variants = Arc::new(Variants { names, keys });
            let slot = Slot::Variants(variants.clone());
            shard.insert(key.hash(), slot, weight as u32, &mut removed);
            if let Some(disk) = &self.disk {
                // What it has is an answer that does not vary, or varies with other fields.
                disk.forget(key.hash());
                disk.write_variants(key.hash(), &variants.names);
            }
            variants
        });
        drop(shard);
        self.dispose(removed);
        if let Some(oldest) = variants.add(variant, self.settings.max_variants) {
            let removed = self.shard(oldest).remove(oldest);
            self.dispose(removed);
            self.forget(oldest);
        }
    }

    fn note(&self, purge: &Purge, manner: Manner) {
        let number = self.purges.note(purge, manner);
        if let Some(disk) = &self.disk {
            disk.purge(Note {
                purge: purge.clone(),
                manner,
                number,
            });
        }
    }

    /// The disk does not need it any more.
    fn forget(&self, hash: KeyHash) {
        if let Some(disk) = &self.disk {
            disk.forget(hash);
        }
    }

    fn weight_of_variants(&self, names: &[u8]) -> u32 {
        let keys = size_of::<KeyHash>() * self.settings.max_variants;
        (size_of::<Variants>() + PLACE + names.len() + keys) as u32
    }

    /// Drops what was removed. Without the names by which answers vary these cannot be found, so that they are removed, too.
    fn dispose(&self, removed: impl IntoIterator<Item = Slot<H>>) {
        for slot in removed {
            if let Slot::Variants(variants) = slot {
                for hash in variants.keys() {
                    let variant = self.shard(hash).remove(hash);
                    drop(variant);
                }
            }
        }
    }

    /// Removes it, if it was not replaced meanwhile.
    fn remove_object(&self, object: &Arc<Object<H>>) {
        let hash = self.seed.hash(object.key());
        let mut shard = self.shard(hash);
        let is_it = |slot: &Slot<H>| matches!(slot, Slot::Object(own) if Arc::ptr_eq(own, object));
        if shard.peek(hash).is_some_and(is_it) {
            shard.remove(hash);
        }
    }

    fn shard(&self, hash: KeyHash) -> MutexGuard<'_, Shard<Slot<H>>> {
        // Their number is a power of two.
        let number = hash.top() as usize & (self.shards.len() - 1);
        lock(&self.shards[number])
    }
}

impl<H: Head> Drop for Store<H> {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.close();
        }
        let writer = lock(&self.writer).take();
        // The thread itself may be the last that has used the store.
        if let Some(writer) = writer.filter(|writer| writer.thread().id() != thread::current().id())
        {
            let _ = writer.join();
        }
    }
}

impl Variants {
    fn new(names: Box<[u8]>) -> Variants {
        let keys = Mutex::default();
        Variants { names, keys }
    }

    /// Notes a variant. The result is one that is too many.
    fn add(&self, variant: KeyHash, most: usize) -> Option<KeyHash> {
        let mut keys = lock(&self.keys);
        if keys.contains(&variant) {
            return None;
        }
        keys.push_back(variant);
        (keys.len() > most.max(1))
            .then(|| keys.pop_front())
            .flatten()
    }

    fn keys(&self) -> VecDeque<KeyHash> {
        lock(&self.keys).clone()
    }
}

impl<H: Head> Clone for Slot<H> {
    fn clone(&self) -> Slot<H> {
        match self {
            Slot::Object(object) => Slot::Object(object.clone()),
            Slot::Variants(variants) => Slot::Variants(variants.clone()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests;
