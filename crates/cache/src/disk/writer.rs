//! The thread that reads the folder at the start, and writes what the queue brings.
//!
//! Answers are appended to the newest of some segments. If there is no room, the oldest segment is removed as a whole; what was used since it was
//! written, there or in memory, is written once more before. So nothing is ever changed in its place, and a full disk costs as many writes as an empty one.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, Weak, atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{
    Disk, Note, SHARDS, Spot, body_number,
    queue::Job,
    record::{BodyFile, Content, ENTRY, Entry, HEADER, Kind, Record, check_of},
    segment_number, stamp,
};
use crate::{
    key::KeyHash,
    store::{Body, Head, Object, Store},
};

/// The state of the thread.
pub(crate) struct Writer<H: Head> {
    disk: Arc<Disk<H>>,
    store: Weak<Store<H>>,
    /// By number, which is their age.
    segments: BTreeMap<u32, Segment>,
    active: Option<Active>,
    /// Of which segment a large body is, and its length.
    bodies: HashMap<u64, (u32, u64)>,
    /// The lowest number for the next segment.
    next: u32,
    bytes: u64,
    is_owner: bool,
    /// After a failure nothing is written for a while.
    paused_until: Option<Instant>,
}

#[derive(Debug, Default)]
struct Segment {
    /// With its index and its large bodies.
    bytes: u64,
}

/// The segment that is written.
struct Active {
    number: u32,
    objects: Arc<File>,
    index: File,
    length: u32,
    index_length: u64,
    bodies: u32,
}

/// What to append.
struct Piece<'p> {
    hash: KeyHash,
    record: &'p [u8],
    body: Option<BodyFile>,
}

/// Smaller and larger segments would be too many, or removed with too much at once, bytes.
const SMALLEST_SEGMENT: u64 = 256 << 10;
const LARGEST_SEGMENT: u64 = 64 << 20;

/// Each start begins a segment, and each has an open file.
const MOST_SEGMENTS: usize = 512;

/// Threads that read at the start.
const READERS: usize = 8;

const PAUSE: Duration = Duration::from_secs(1);

impl<H: Head> Writer<H> {
    pub(crate) fn new(disk: Arc<Disk<H>>, store: Weak<Store<H>>) -> Writer<H> {
        Writer {
            disk,
            store,
            segments: BTreeMap::new(),
            active: None,
            bodies: HashMap::new(),
            next: 1,
            bytes: 0,
            is_owner: true,
            paused_until: None,
        }
    }

    /// Returns when the queue is closed and all is written.
    pub(crate) fn run(mut self) {
        self.load();
        self.disk.counts.is_loaded.store(true, Ordering::Release);
        // The limit may be lower than it was.
        let ready = self.disk.journal.sync().and_then(|()| self.make_room(0));
        self.learn(ready);
        let disk = self.disk.clone();
        while let Some(job) = disk.queue.next() {
            self.is_owner = self.is_owner && self.disk.is_owner();
            let is_paused = self
                .paused_until
                .is_some_and(|until| Instant::now() < until);
            let done = match job {
                Job::Purges(notes) => self.write_purges(&notes),
                _ if !self.is_owner => Ok(()),
                Job::Unlink(number) => self.unlink(number),
                Job::Write(..) | Job::Vary(..) if is_paused => {
                    self.disk.counts.not_written.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }
                Job::Write(hash, object) => self.write(hash, &object),
                Job::Vary(hash, names) => self.write_variants(hash, &names),
            };
            self.learn(done);
            disk.counts.bytes.store(self.bytes, Ordering::Relaxed);
        }
    }

    /// Reads the indexes, the newest first: an older entry of the same key is outdated.
    fn load(&mut self) {
        let Ok(names) = fs::read_dir(&self.disk.settings.folder) else {
            return;
        };
        let names = names.filter_map(|entry| Some(entry.ok()?.path()));
        let (mut numbers, mut others) = (Vec::new(), Vec::new());
        for path in names {
            match (
                segment_number(&path, "objects"),
                segment_number(&path, "index"),
            ) {
                (Some(number), _) => numbers.push(number),
                (None, Some(number)) => others.push(number),
                (None, None) => {}
            }
        }
        numbers.sort_unstable();
        self.next = numbers.last().map_or(1, |last| last.saturating_add(1));
        let newest_first = numbers.iter().rev();
        let indexes: Vec<PathBuf> = newest_first
            .map(|number| self.path(*number, "index"))
            .collect();
        let stats = indexes.iter().filter_map(|path| fs::metadata(path).ok());
        let bytes: u64 = stats.map(|stat| stat.len()).sum();
        self.disk.reserve(bytes as usize / ENTRY);
        read_all(&indexes, |index| {
            if let Some(number) = numbers.pop()
                && index
                    .and_then(|index| self.load_segment(number, &index))
                    .is_err()
            {
                let _ = self.remove_files(number);
            }
        });
        for number in others
            .into_iter()
            .filter(|number| !self.segments.contains_key(number))
        {
            let _ = self.remove_files(number);
        }
        let first = u64::from(self.next) << 32;
        let bodies = fs::read_dir(self.disk.settings.folder.join("bodies"));
        for entry in bodies.into_iter().flatten().flatten() {
            let number = body_number(&entry.path());
            if number.is_some_and(|number| number < first && !self.bodies.contains_key(&number)) {
                let _ = fs::remove_file(entry.path());
            }
        }
        self.disk.counts.bytes.store(self.bytes, Ordering::Relaxed);
    }

    fn load_segment(&mut self, number: u32, index: &[u8]) -> io::Result<()> {
        let objects = File::open(self.path(number, "objects"))?;
        let length = objects.metadata()?.len();
        let mut segment = Segment {
            bytes: length + index.len() as u64,
        };
        // Before its answers, which may be asked for at once.
        self.disk.add_segment(number, Arc::new(objects));
        let entries: Vec<Entry> = Entry::read_all(index, number).collect();
        for entry in entries.into_iter().rev() {
            let end = u64::from(entry.offset) + u64::from(entry.length);
            if end > length || (entry.length as usize) < HEADER {
                continue;
            }
            let spot = Spot::new(&entry, number);
            if self.disk.set_spot(spot, false) && entry.file != 0 {
                self.bodies.insert(entry.file, (number, entry.file_length));
                segment.bytes += entry.file_length;
            }
        }
        self.bytes += segment.bytes;
        self.segments.insert(number, segment);
        Ok(())
    }

    /// If purges cannot be written, even with more room, what is stored must not be used after a restart.
    fn write_purges(&mut self, notes: &[Note]) -> io::Result<()> {
        let disk = self.disk.clone();
        let write = || disk.journal.append(notes, &disk.purges);
        let Err(error) = write() else {
            return Ok(());
        };
        if self.is_owner && error.kind() == io::ErrorKind::StorageFull {
            self.evict()?;
            if write().is_ok() {
                return Ok(());
            }
        }
        disk.distrust();
        Err(error)
    }

    fn write(&mut self, hash: KeyHash, object: &Arc<Object<H>>) -> io::Result<()> {
        let mut head = Vec::new();
        object.head.write(&mut head);
        let length = object.body().len();
        if length + head.len() as u64 > self.most() / 4 {
            self.disk.counts.not_written.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let mut file = None;
        let content = match object.body() {
            Body::Memory(bytes) if length < self.disk.settings.file_from => {
                Content::Here(&bytes[..])
            }
            Body::Memory(bytes) => {
                self.make_room(length)?;
                let (id, own) = self.write_body(bytes)?;
                file = Some(own);
                Content::File(id)
            }
            Body::File(body) => Content::File(body.id),
        };
        let body = match content {
            Content::Here(_) => None,
            Content::File(id) => Some(id),
        };
        let record = Record {
            kind: Kind::Object,
            asked: object.asked().0,
            names: object.all_names(),
            head: &head,
            body: content,
        };
        let Some(record) = record.write() else {
            return Ok(());
        };
        let piece = Piece {
            hash,
            record: &record,
            body,
        };
        let written = self
            .make_room(record.len() as u64)
            .and_then(|()| self.append(&piece));
        if let (Err(_), Some(id), Some(_)) = (&written, body, &file) {
            let _ = fs::remove_file(self.disk.body_path(id.number));
        }
        written?;
        self.disk.counts.written.fetch_add(1, Ordering::Relaxed);
        if let (Some(id), Some(file), Some(store)) = (body, file, self.store.upgrade()) {
            let stamp = stamp(&file)?;
            let head = H::read(&head).ok_or(io::ErrorKind::InvalidData)?;
            store.moved_to_file(hash, object, head, self.disk.body(file, id, stamp));
        }
        Ok(())
    }

    fn write_variants(&mut self, hash: KeyHash, names: &[u8]) -> io::Result<()> {
        let record = Record {
            kind: Kind::Variants,
            asked: 0,
            names,
            head: &[],
            body: Content::Here(&[][..]),
        };
        let Some(record) = record.write() else {
            return Ok(());
        };
        self.make_room(record.len() as u64)?;
        self.append(&Piece {
            hash,
            record: &record,
            body: None,
        })
    }

    /// Writes a large body. Nobody looks for its file before a record names it.
    fn write_body(&mut self, bytes: &[u8]) -> io::Result<(BodyFile, File)> {
        let active = self.active()?;
        active.bodies += 1;
        let id = BodyFile {
            number: u64::from(active.number) << 32 | u64::from(active.bodies),
            length: bytes.len() as u64,
            check: check_of(bytes),
        };
        let path = self.disk.body_path(id.number);
        let file = create(&path)?;
        if let Err(error) = file.write_all_at(bytes, 0) {
            let _ = fs::remove_file(path);
            return Err(error);
        }
        Ok((id, file))
    }

    /// Appends a record, and then its entry, by which it counts.
    fn append(&mut self, piece: &Piece<'_>) -> io::Result<()> {
        let most = self.segment_size();
        let added = (piece.record.len() + ENTRY) as u64;
        let is_full = self.active.as_ref().is_some_and(|active| {
            let bytes = self
                .segments
                .get(&active.number)
                .map_or(0, |segment| segment.bytes);
            bytes > 0 && bytes + added + piece.body.map_or(0, |body| body.length) > most
        });
        if is_full {
            self.active = None;
        }
        let active = self.active()?;
        active
            .objects
            .write_all_at(piece.record, active.length.into())?;
        let entry = Entry {
            hash: piece.hash,
            file: piece.body.map_or(0, |body| body.number),
            file_length: piece.body.map_or(0, |body| body.length),
            offset: active.length,
            length: piece.record.len() as u32,
        };
        active
            .index
            .write_all_at(&entry.write(active.number), active.index_length)?;
        active.length += entry.length;
        active.index_length += ENTRY as u64;
        let number = active.number;
        let spot = Spot::new(&entry, number);
        self.count(number, added as i64);
        if let Some(body) = piece.body {
            // A renewed answer has the file of the one before it.
            if let Some((before, length)) = self.bodies.insert(body.number, (number, body.length)) {
                self.count(before, -(length as i64));
            }
            self.count(number, body.length as i64);
        }
        self.disk.set_spot(spot, true);
        Ok(())
    }

    /// The segment that is written.
    fn active(&mut self) -> io::Result<&mut Active> {
        if self.active.is_none() {
            let (number, objects) = loop {
                let number = self.next;
                self.next = number.checked_add(1).ok_or(io::ErrorKind::StorageFull)?;
                match create(&self.path(number, "objects")) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    objects => break (number, Arc::new(objects?)),
                }
            };
            let index = create(&self.path(number, "index"))?;
            self.segments.insert(number, Segment::default());
            self.disk.add_segment(number, objects.clone());
            self.active = Some(Active {
                number,
                objects,
                index,
                length: 0,
                index_length: 0,
                bodies: 0,
            });
        }
        self.active
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Removes the oldest segments, until so many bytes more are within the limit.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        while self.bytes + bytes + ENTRY as u64 > self.most() || self.segments.len() > MOST_SEGMENTS
        {
            if !self.evict()? {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        Ok(())
    }

    /// Removes the oldest segment. False: there is none but the one that is written.
    fn evict(&mut self) -> io::Result<bool> {
        let Some((&oldest, segment)) = self.segments.first_key_value() else {
            return Ok(false);
        };
        if self
            .active
            .as_ref()
            .is_some_and(|active| active.number == oldest)
        {
            // There are only answers that are nearly as large as a segment.
            self.active = None;
        }
        let mut left = segment.bytes / 2;
        let store = self.store.upgrade();
        for spot in self.disk.spots_of(oldest) {
            let is_used = || store.as_ref().is_some_and(|store| store.is_used(spot.hash));
            let body = self.bodies.get(&spot.file).map_or(0, |(_, length)| *length);
            let bytes = u64::from(spot.length) + body;
            if bytes <= left && (spot.is_used || is_used()) && self.copy(spot).is_ok() {
                left -= bytes;
                continue;
            }
            if self.disk.remove_spot(spot) {
                self.disk.counts.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
        // Those of answers that were replaced are among them.
        let bodies = self.bodies.iter();
        let bodies = bodies.filter(|(_, (segment, _))| *segment == oldest);
        for number in bodies.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.unlink(number)?;
        }
        self.remove_files(oldest)?;
        self.disk.remove_segment(oldest);
        if let Some(segment) = self.segments.remove(&oldest) {
            self.bytes -= segment.bytes;
        }
        Ok(true)
    }

    /// Writes a record once more.
    fn copy(&mut self, spot: Spot) -> io::Result<()> {
        let bytes = self.disk.read_record(spot, false)?.unwrap_or_default();
        let record = Record::read(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        let body = match record.body {
            Content::Here(_) => None,
            Content::File(id) => Some(id),
        };
        self.append(&Piece {
            hash: spot.hash,
            record: &bytes,
            body,
        })
    }

    fn unlink(&mut self, number: u64) -> io::Result<()> {
        if let Some((segment, length)) = self.bodies.remove(&number) {
            self.count(segment, -(length as i64));
        }
        match fs::remove_file(self.disk.body_path(number)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn remove_files(&self, number: u32) -> io::Result<()> {
        for kind in ["index", "objects"] {
            match fs::remove_file(self.path(number, kind)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Tells of a failure once, until something is written again.
    fn learn(&mut self, done: io::Result<()>) {
        let counts = &self.disk.counts;
        let Err(error) = done else {
            if self.paused_until.is_none() {
                counts.is_failure_told.store(false, Ordering::Relaxed);
            }
            self.paused_until = self.paused_until.filter(|until| Instant::now() < *until);
            return;
        };
        counts.not_written.fetch_add(1, Ordering::Relaxed);
        self.active = None;
        self.paused_until = Some(Instant::now() + PAUSE);
        if !counts.is_failure_told.swap(true, Ordering::Relaxed) {
            log::warn!(
                "cache: {} cannot be written: {error}; new answers are in memory only until it can",
                self.disk.settings.folder.display()
            );
        }
        if error.kind() == io::ErrorKind::StorageFull {
            // Others need the room.
            let _ = self.evict();
        }
    }

    fn count(&mut self, segment: u32, bytes: i64) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.bytes = segment.bytes.saturating_add_signed(bytes);
            self.bytes = self.bytes.saturating_add_signed(bytes);
        }
    }

    /// While a segment is removed, half of it may be there twice.
    fn most(&self) -> u64 {
        self.disk.settings.max.saturating_sub(self.segment_size())
    }

    fn segment_size(&self) -> u64 {
        let size = self.disk.settings.max / 64;
        size.clamp(SMALLEST_SEGMENT, LARGEST_SEGMENT)
    }

    fn path(&self, number: u32, kind: &str) -> PathBuf {
        self.disk
            .settings
            .folder
            .join(format!("{number:08x}.{kind}"))
    }
}

impl<H: Head> Disk<H> {
    /// Notes where an answer is. False: it is known to be elsewhere, and `replaces` is false.
    fn set_spot(&self, spot: Spot, replaces: bool) -> bool {
        let mut spots = self.spots(spot.hash);
        let known = spots.find_mut(spot.hash.low(), |other| other.hash == spot.hash);
        match known {
            Some(known) if replaces => {
                let before = std::mem::replace(known, spot);
                drop(spots);
                if before.file != spot.file {
                    self.unlink(before.file);
                }
                true
            }
            Some(_) => false,
            None => {
                spots.insert_unique(spot.hash.low(), spot, |spot| spot.hash.low());
                true
            }
        }
    }

    /// Makes room for so many answers at once, which would otherwise be moved several times.
    fn reserve(&self, count: usize) {
        for spots in &self.spots {
            super::lock(spots).reserve(count / SHARDS, |spot| spot.hash.low());
        }
    }

    /// False: it was replaced meanwhile.
    fn remove_spot(&self, spot: Spot) -> bool {
        let is_it = |other: &Spot| other.hash == spot.hash && other.place() == spot.place();
        let mut spots = self.spots(spot.hash);
        let found = spots.find_entry(spot.hash.low(), is_it);
        found
            .map(hashbrown::hash_table::OccupiedEntry::remove)
            .is_ok()
    }

    fn spots_of(&self, segment: u32) -> Vec<Spot> {
        let mut found: Vec<Spot> = Vec::new();
        for spots in &self.spots {
            let spots = super::lock(spots);
            found.extend(spots.iter().filter(|spot| spot.segment == segment));
        }
        // In the order in which they were written.
        found.sort_unstable_by_key(|spot| spot.offset);
        found
    }

    fn add_segment(&self, number: u32, objects: Arc<File>) {
        let mut segments = self
            .segments
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        segments.insert(number, objects);
    }

    fn remove_segment(&self, number: u32) {
        let mut segments = self
            .segments
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        segments.remove(&number);
    }
}

/// Reads files with several threads, because a disk takes hardly longer for several than for one. `take` gets them in their order.
fn read_all(paths: &[PathBuf], mut take: impl FnMut(io::Result<Vec<u8>>)) {
    thread::scope(|scope| {
        let lanes = (0..READERS).map(|lane| {
            let (sender, receiver) = mpsc::sync_channel(2);
            scope.spawn(move || {
                let own = paths.iter().skip(lane).step_by(READERS);
                own.map(fs::read).try_for_each(|read| sender.send(read))
            });
            receiver
        });
        let lanes: Vec<_> = lanes.collect();
        for lane in lanes.iter().cycle().take(paths.len()) {
            let read = lane.recv();
            take(read.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())));
        }
    });
}

/// A new file, which is read and written.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.open(path)
}
