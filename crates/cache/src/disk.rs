//! Stored answers on a disk, which survive restarts.
//!
//! ```text
//! FOLDER/store            the secret of the store, and the format of the other files
//!        owner            the process that writes: the last one that has opened the folder
//!        purges           purges (disk/journal.rs)
//!        NUMBER.objects   answers with small bodies, and heads of the others; NUMBER.index: where they are (disk/record.rs)
//!        bodies/NUMBER    large bodies, one file each, which can be sent without a copy
//! ```
//!
//! Files are only appended to, and a record counts when its index has its entry. So a process that is killed loses what it was writing, and
//! the next one reads only the indexes. Every record and every large body has a length and a check: what is damaged is a miss.
//!
//! One thread writes (disk/writer.rs). The memory for an answer on the disk is a [`Spot`] in a table, and nothing else: its tags are read with it.

#[cfg(any(test, feature = "checks"))]
pub mod checks;
mod journal;
mod queue;
mod record;
mod writer;

use std::{
    collections::HashMap,
    fs::{self, DirBuilder, File},
    io,
    os::{
        fd::AsFd,
        unix::fs::{DirBuilderExt, FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use hashbrown::HashTable;
use xxhash_rust::xxh3::Xxh3;

use self::{
    journal::Journal,
    queue::{Job, Queue},
    record::{BodyFile, Content, Entry, Reader, Record, check_of},
};
pub(crate) use self::{journal::Note, writer::Writer};
use super::{
    key::{KeyHash, Seed},
    purges::Purges,
    store::{DiskFigures, Head, Object},
};

/// Where and how much.
#[derive(Debug, Clone)]
pub struct DiskSettings {
    /// The folder. It is made if it is missing.
    pub folder: PathBuf,
    /// All files in it, bytes.
    pub max: u64,
    /// Bodies from this length on are files of their own, bytes.
    pub file_from: u64,
}

#[derive(Debug)]
pub(crate) struct Disk<H> {
    settings: DiskSettings,
    spots: [Mutex<HashTable<Spot>>; SHARDS],
    /// Open files with records.
    segments: RwLock<HashMap<u32, Arc<File>>>,
    journal: Journal,
    queue: Queue<H>,
    purges: Arc<Purges>,
    begin: Instant,
    /// When it was last looked whether others have purged something, µs from `begin` on.
    heard_at: AtomicU64,
    /// How many large bodies are open.
    open: Arc<AtomicUsize>,
    counts: Counts,
    /// The number of this process in `owner`.
    process: u64,
}

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    written: AtomicU64,
    not_written: AtomicU64,
    damaged: AtomicU64,
    evictions: AtomicU64,
    is_loaded: AtomicBool,
    is_damage_told: AtomicBool,
    is_failure_told: AtomicBool,
}

/// Where an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    hash: KeyHash,
    /// Of its body; 0: this is in the record.
    file: u64,
    segment: u32,
    offset: u32,
    length: u32,
    /// Whether it was read since it was written.
    is_used: bool,
}

/// A large body, in an open file.
#[derive(Debug)]
pub struct FileBody {
    file: Arc<File>,
    id: BodyFile,
    /// Size, and when it was changed: it is not, as long as it is what was checked.
    stamp: Stamp,
    open: Arc<AtomicUsize>,
}

type Stamp = (u64, i64, i64);

/// What was read.
pub(crate) enum Read {
    Object {
        asked: u64,
        names: Bytes,
        head: Bytes,
        body: ReadBody,
    },
    Variants(Bytes),
    /// The kernel would have to wait for the disk.
    WouldWait,
    /// It is not there any more, or damaged.
    Nothing,
}

pub(crate) enum ReadBody {
    Memory(Bytes),
    File(FileBody),
}

const SHARDS: usize = 16;

/// How often it is looked whether another process has purged something, µs.
const HEARS_EVERY: u64 = 1_000;

/// So many large bodies are kept open in memory: each takes a descriptor.
const MOST_OPEN: usize = 1_024;

/// The files' format, as described here and in disk/record.rs.
const FORMAT: u32 = 1;

impl<H: Head> Disk<H> {
    /// Opens a folder, or makes one, and reads its purges. The answers are read by the thread that [`Disk::run`] becomes.
    ///
    /// # Errors
    /// If the folder can be neither read nor made.
    pub(crate) fn open(
        settings: DiskSettings,
        most_queued: u64,
        purges: Arc<Purges>,
    ) -> io::Result<(Disk<H>, Seed)> {
        let folder = &settings.folder;
        let bodies = folder.join("bodies");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&bodies)?;
        let mut process = [0; 8];
        weir_sys::random::fill(&mut process)?;
        replace(&folder.join("owner"), &process)?;
        let known = read_seed(&folder.join("store"), H::FORMAT);
        let (journal, is_whole) = Journal::open(folder.join("purges"), &purges)?;
        let seed = match known {
            Some(seed) if is_whole => seed,
            // Without the secret nothing can be found, and without the purges nothing may be used.
            _ => {
                remove_all(folder, &bodies)?;
                let seed = Seed::random()?;
                replace(&folder.join("store"), &seed_file(seed, H::FORMAT))?;
                seed
            }
        };
        journal.begin(&purges)?;
        let disk = Disk {
            settings,
            spots: Default::default(),
            segments: RwLock::default(),
            journal,
            queue: Queue::new(most_queued),
            purges,
            begin: Instant::now(),
            heard_at: AtomicU64::new(0),
            open: Arc::default(),
            counts: Counts::default(),
            process: u64::from_le_bytes(process),
        };
        Ok((disk, seed))
    }

    /// Writes an answer, if there is room in the queue.
    pub(crate) fn write(&self, hash: KeyHash, object: &Arc<Object<H>>) {
        self.ask(Job::Write(hash, object.clone()));
    }

    /// Writes by which fields answers vary.
    pub(crate) fn write_variants(&self, hash: KeyHash, names: &[u8]) {
        self.ask(Job::Vary(hash, names.into()));
    }

    fn ask(&self, job: Job<H>) {
        if !self.queue.push(job) {
            self.counts.not_written.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes a purge.
    pub(crate) fn purge(&self, note: Note) {
        self.queue.push_purge(note);
    }

    /// Notes what other processes have purged until [`HEARS_EVERY`] ago.
    pub(crate) fn hear(&self) {
        let now = self.begin.elapsed().as_micros() as u64;
        let last = self.heard_at.load(Ordering::Relaxed);
        // A system call for each hit would be felt.
        if now.saturating_sub(last) >= HEARS_EVERY {
            self.heard_at.store(now, Ordering::Relaxed);
            self.journal.hear(&self.purges);
        }
    }

    /// Whoever opens the folder next empties it.
    fn distrust(&self) {
        let _ = fs::remove_file(self.settings.folder.join("store"));
    }

    /// Waits until all is written.
    pub(crate) fn flush(&self) {
        self.queue.flush();
    }

    /// Ends the thread when all is written.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    pub(crate) fn figures(&self) -> DiskFigures {
        let counts = &self.counts;
        DiskFigures {
            bytes: counts.bytes.load(Ordering::Relaxed),
            objects: self.len() as u64,
            written: counts.written.load(Ordering::Relaxed),
            not_written: counts.not_written.load(Ordering::Relaxed),
            evictions: counts.evictions.load(Ordering::Relaxed),
            damaged: counts.damaged.load(Ordering::Relaxed),
        }
    }

    /// Whether what the folder had at the start is known.
    pub(crate) fn is_loaded(&self) -> bool {
        self.counts.is_loaded.load(Ordering::Acquire)
    }

    /// How many answers it has.
    fn len(&self) -> usize {
        self.spots.iter().map(|spots| lock(spots).len()).sum()
    }

    /// Where an answer is.
    pub(crate) fn find(&self, hash: KeyHash) -> Option<Spot> {
        let mut spots = self.spots(hash);
        let spot = spots.find_mut(hash.low(), |spot| spot.hash == hash)?;
        spot.is_used = true;
        Some(*spot)
    }

    /// An answer is not needed any more.
    pub(crate) fn forget(&self, hash: KeyHash) {
        self.replace(hash, None);
    }

    /// What is known of an answer is outdated, because it will be written again, with this body.
    pub(crate) fn replace(&self, hash: KeyHash, body: Option<&FileBody>) {
        let mut spots = self.spots(hash);
        let found = spots.find_entry(hash.low(), |spot| spot.hash == hash);
        let Ok((spot, _)) = found.map(hashbrown::hash_table::OccupiedEntry::remove) else {
            return;
        };
        drop(spots);
        if body.is_none_or(|body| body.id.number != spot.file) {
            self.unlink(spot.file);
        }
    }

    /// Reads an answer. `cached_only`: without waiting for the disk.
    pub(crate) fn read(&self, spot: Spot, cached_only: bool) -> Read {
        if cached_only && spot.file != 0 {
            // A large body is checked as a whole before it is used.
            return Read::WouldWait;
        }
        let bytes = match self.read_record(spot, cached_only) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Read::WouldWait,
            Err(_) => return self.damaged(spot),
        };
        let Some(record) = Record::read(&bytes) else {
            return self.damaged(spot);
        };
        if record.kind == record::Kind::Variants {
            return Read::Variants(record.names);
        }
        let body = match record.body {
            Content::Here(body) => ReadBody::Memory(body),
            Content::File(id) => match self.open_body(id) {
                Ok(body) => ReadBody::File(body),
                Err(_) => return self.damaged(spot),
            },
        };
        Read::Object {
            asked: record.asked,
            names: record.names,
            head: record.head,
            body,
        }
    }

    /// Whether one more large body may stay open.
    pub(crate) fn may_stay_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) <= MOST_OPEN
    }

    /// An answer in memory has a file that was changed.
    pub(crate) fn file_was_changed(&self, hash: KeyHash) {
        if let Some(spot) = self.find(hash) {
            self.damaged(spot);
        }
    }

    fn read_record(&self, spot: Spot, cached_only: bool) -> io::Result<Option<Bytes>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        let file = segments.get(&spot.segment).cloned();
        drop(segments);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        let length = spot.length as usize;
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let part = (
                u64::from(spot.offset) + bytes.len() as u64,
                length - bytes.len(),
            );
            match weir_sys::file::append_from(file.as_fd(), &mut bytes, part, cached_only)? {
                None => return Ok(None),
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(_) => {}
            }
        }
        Ok(Some(bytes.into()))
    }

    /// Opens a large body and checks all of it.
    fn open_body(&self, id: BodyFile) -> io::Result<FileBody> {
        let file = File::open(self.body_path(id.number))?;
        let stamp = stamp(&file)?;
        let mut hasher = Xxh3::new();
        let mut buffer = vec![0; 128 << 10];
        let mut at = 0;
        loop {
            let count = file.read_at(&mut buffer, at)?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            at += count as u64;
        }
        if at != id.length || stamp.0 != id.length || hasher.digest() != id.check {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(self.body(file, id, stamp))
    }

    fn body(&self, file: File, id: BodyFile, stamp: Stamp) -> FileBody {
        self.open.fetch_add(1, Ordering::Relaxed);
        FileBody {
            file: Arc::new(file),
            id,
            stamp,
            open: self.open.clone(),
        }
    }

    fn body_path(&self, number: u64) -> PathBuf {
        let mut path = self.settings.folder.join("bodies");
        path.push(format!("{number:016x}"));
        path
    }

    /// Forgets it, and says so once.
    fn damaged(&self, spot: Spot) -> Read {
        let is_it = |other: &Spot| other.hash == spot.hash && other.place() == spot.place();
        let mut spots = self.spots(spot.hash);
        let found = spots.find_entry(spot.hash.low(), is_it);
        let was_there = found
            .map(hashbrown::hash_table::OccupiedEntry::remove)
            .is_ok();
        drop(spots);
        // Otherwise it was replaced or removed meanwhile, and there is nothing to tell. Neither is there for a process that others have followed.
        if was_there && self.is_owner() {
            self.unlink(spot.file);
            self.counts.damaged.fetch_add(1, Ordering::Relaxed);
            if !self.counts.is_damage_told.swap(true, Ordering::Relaxed) {
                log::warn!(
                    "cache: files in {} were removed or changed by others, or the disk has errors; what is damaged is asked for anew, and this is not said again",
                    self.settings.folder.display()
                );
            }
        }
        Read::Nothing
    }

    fn unlink(&self, file: u64) {
        if file != 0 {
            self.queue.push(Job::Unlink(file));
        }
    }

    /// Whether no other process has opened the folder since.
    fn is_owner(&self) -> bool {
        let owner = fs::read(self.settings.folder.join("owner"));
        owner.is_ok_and(|owner| owner == self.process.to_le_bytes())
    }

    fn spots(&self, hash: KeyHash) -> MutexGuard<'_, HashTable<Spot>> {
        lock(&self.spots[hash.top() as usize % SHARDS])
    }
}

impl FileBody {
    /// The file, which has the body and nothing else. It may have no name any more.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.id.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.id.length == 0
    }

    /// Whether the file is what was checked.
    pub(crate) fn is_unchanged(&self) -> bool {
        stamp(&self.file).is_ok_and(|stamp| stamp == self.stamp)
    }
}

impl Drop for FileBody {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Spot {
    /// Of an answer in this segment that nobody has read yet.
    fn new(entry: &Entry, segment: u32) -> Spot {
        Spot {
            hash: entry.hash,
            file: entry.file,
            segment,
            offset: entry.offset,
            length: entry.length,
            is_used: false,
        }
    }

    fn place(&self) -> (u32, u32) {
        (self.segment, self.offset)
    }
}

fn stamp(file: &File) -> io::Result<Stamp> {
    let stat = file.metadata()?;
    Ok((stat.len(), stat.mtime(), stat.mtime_nsec()))
}

/// The file `store`: magic, formats, secret, check.
fn seed_file(seed: Seed, format_of_heads: u32) -> Vec<u8> {
    let mut bytes = b"weir cache\n".to_vec();
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&format_of_heads.to_le_bytes());
    bytes.extend_from_slice(&seed.to_bytes());
    let check = check_of(&bytes);
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes
}

/// `None`: there is none, or of another format.
fn read_seed(path: &Path, format_of_heads: u32) -> Option<Seed> {
    let bytes = fs::read(path).ok()?;
    let at = bytes.len().checked_sub(16)?;
    let seed = Seed::from_bytes(Reader(bytes.get(at..)?).u64()?.to_le_bytes());
    (bytes == seed_file(seed, format_of_heads)).then_some(seed)
}

/// Removes everything that the folder has of a store.
fn remove_all(folder: &Path, bodies: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.chain(fs::read_dir(bodies)?) {
        let path = entry?.path();
        let segment = ["objects", "index"].map(|kind| segment_number(&path, kind));
        let is_body = path.parent() == Some(bodies) && body_number(&path).is_some();
        if is_body || segment != [None, None] {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// The number in the name of a segment's file.
fn segment_number(path: &Path, kind: &str) -> Option<u32> {
    let name = path.file_stem()?.to_str()?;
    let is_one = name.len() == 8 && path.extension()? == kind;
    is_one.then(|| u32::from_str_radix(name, 16).ok())?
}

/// The number in the name of a large body's file.
fn body_number(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    (name.len() == 16).then(|| u64::from_str_radix(name, 16).ok())?
}

/// Writes a file in one step.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes)?;
    fs::rename(new, path)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
