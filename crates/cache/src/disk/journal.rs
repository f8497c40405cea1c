//! The file with the purges: what a restart must not forget, and what other processes that use the same folder must hear.
//!
//! ```text
//! purges   records, which processes only append:
//!          length 2 | kind 1 | manner 1 | process 4 | number 8 | what is purged | check 8
//! ```
//!
//! A process hears of the others' purges by looking whether the file has grown. If it is too long, a shorter one is put in its place. What cannot
//! be read may have been a purge of anything: then all that is stored counts as purged.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        PoisonError, RwLock, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::record::{Reader, check_of};
use crate::{
    key::Subject,
    purges::{Manner, Purge, Purges},
};

#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// By this a process knows its own records.
    process: u32,
    /// How much of the file is known.
    known: AtomicU64,
    /// Whether it has a start. Otherwise it is a part of a file that somebody has cut or removed.
    has_start: AtomicBool,
    file: RwLock<File>,
}

/// A purge with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) purge: Purge,
    pub(crate) manner: Manner,
    pub(crate) number: u64,
}

/// A record.
#[derive(Debug)]
pub(super) enum Record {
    Note(Note),
    /// Numbers up to this one may have been given.
    Start(u64),
}

/// A longer file is written anew, bytes.
const LONGEST: u64 = 8 << 20;

/// After a start numbers go on so much higher: those of purges that a crash has lost are not given again.
const STRIDE: u64 = 1 << 32;

/// What is purged takes no more bytes. A longer text counts as everything.
const LONGEST_TEXT: usize = 32_768;

const ALL: u8 = 1;
const SUBJECT: u8 = 2;
const PREFIX: u8 = 3;
const PREFIX_OF_HOST: u8 = 4;
const START: u8 = 5;

/// Bytes of length, kind, manner, process and number.
const FRONT: usize = 16;

impl Journal {
    /// Reads the file, and notes its purges. False: there is none, or it is damaged, so that nothing is known of what is stored. This must be
    /// removed then, before [`begin`](Journal::begin).
    ///
    /// # Errors
    /// If the file can be neither read nor made.
    pub(super) fn open(path: PathBuf, purges: &Purges) -> io::Result<(Journal, bool)> {
        let mut process = [0; 4];
        weir_sys::random::fill(&mut process)?;
        let journal = Journal {
            file: RwLock::new(open(&path)?),
            process: u32::from_le_bytes(process),
            known: AtomicU64::new(0),
            has_start: AtomicBool::new(false),
            path,
        };
        let is_whole = journal.hear(purges) && journal.has_start.load(Ordering::Relaxed);
        Ok((journal, is_whole))
    }

    /// Begins with numbers that nobody has given.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn begin(&self, purges: &Purges) -> io::Result<()> {
        purges.skip(STRIDE);
        self.shorten(purges)
    }

    /// Notes what other processes have purged. Without anything new it costs one system call. False: the file is damaged.
    pub(super) fn hear(&self, purges: &Purges) -> bool {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        let stat = file.metadata();
        drop(file);
        let is_known = stat
            .is_ok_and(|stat| stat.nlink() > 0 && stat.len() == self.known.load(Ordering::Acquire));
        is_known || self.hear_in(&mut self.file(), purges)
    }

    /// Appends purges of this process.
    ///
    /// # Errors
    /// As write(2).
    pub(super) fn append(&self, notes: &[Note], purges: &Purges) -> io::Result<()> {
        let mut bytes = Vec::new();
        for note in notes {
            note.write(self.process, &mut bytes);
        }
        let mut file = self.file();
        file.write_all(&bytes)?;
        if file.metadata()?.nlink() == 0 {
            // Another process has just put a shorter one in its place, or somebody has removed it.
            self.hear_in(&mut file, purges);
            file.write_all(&bytes)?;
        }
        let stat = file.metadata()?;
        drop(file);
        if stat.nlink() == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let length = stat.len();
        if length > LONGEST {
            self.shorten(purges)?;
        }
        Ok(())
    }

    /// Waits until the disk has the numbers that were left out at the start. Otherwise they could be given twice after a power failure.
    ///
    /// # Errors
    /// As fsync(2).
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file().sync_all()
    }

    /// Writes a file with all that is still needed, and puts it in the place of the present one.
    fn shorten(&self, purges: &Purges) -> io::Result<()> {
        let mut file = self.file();
        self.hear_in(&mut file, purges);
        let bytes = self.all(purges);
        let path = self.path.with_extension("new");
        let _ = fs::remove_file(&path);
        let mut new = open(&path)?;
        new.write_all(&bytes)?;
        fs::rename(&path, &self.path)?;
        self.known.store(bytes.len() as u64, Ordering::Release);
        *file = new;
        Ok(())
    }

    /// All that is still needed, and a start.
    fn all(&self, purges: &Purges) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (purge, manner, number) in purges.all() {
            let note = Note {
                purge,
                manner,
                number,
            };
            note.write(self.process, &mut bytes);
        }
        write_start(purges.asked().0, self.process, &mut bytes);
        bytes
    }

    fn hear_in(&self, file: &mut File, purges: &Purges) -> bool {
        let mut is_whole = true;
        let Ok(mut stat) = file.metadata() else {
            return false;
        };
        if stat.nlink() == 0 {
            // Another process has written a shorter one. What this says of purges that are known is noted once more.
            let new = open(&self.path).and_then(|new| Ok((new.metadata()?, new)));
            let Ok((new_stat, mut new)) = new else {
                return false;
            };
            if new_stat.len() == 0 && new.write_all(&self.all(purges)).is_err() {
                // Nobody trusts a file without a start.
                return false;
            }
            (*file, stat) = (new, new_stat);
            self.known.store(0, Ordering::Relaxed);
        }
        let mut known = self.known.load(Ordering::Relaxed);
        if stat.len() < known {
            // Somebody has cut it.
            purges.note(&Purge::All, Manner::Soft);
            (known, is_whole) = (stat.len(), false);
            self.known.store(known, Ordering::Release);
        }
        if stat.len() > known {
            let mut bytes = vec![0; (stat.len() - known) as usize];
            if file.read_exact_at(&mut bytes, known).is_err() {
                return false;
            }
            if self.note_all(&bytes, purges) < bytes.len() {
                purges.note(&Purge::All, Manner::Soft);
                is_whole = false;
            }
            self.known
                .store(known + bytes.len() as u64, Ordering::Release);
        }
        is_whole
    }

    /// Notes what others have written. The result is where the first damaged record begins.
    fn note_all(&self, bytes: &[u8], purges: &Purges) -> usize {
        let mut at = 0;
        while let Some((record, process, length)) = read(&bytes[at..]) {
            at += length;
            match record {
                Record::Start(number) => {
                    purges.reach(number);
                    self.has_start.store(true, Ordering::Relaxed);
                }
                Record::Note(note) if process != self.process => {
                    purges.note_at(&note.purge, note.manner, note.number);
                }
                Record::Note(_) => {}
            }
        }
        at
    }

    fn file(&self) -> RwLockWriteGuard<'_, File> {
        self.file.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Note {
    pub(super) fn write(&self, process: u32, out: &mut Vec<u8>) {
        let mut what = Vec::new();
        let mut kind = match &self.purge {
            Purge::All => ALL,
            Purge::Subject(subject) => {
                what.extend_from_slice(&subject.to_bytes());
                SUBJECT
            }
            Purge::Prefix { site, host, target } => {
                for part in [site, target] {
                    what.extend_from_slice(&(part.len() as u32).to_le_bytes());
                    what.extend_from_slice(part);
                }
                what.extend_from_slice(host.as_deref().unwrap_or_default());
                match host {
                    Some(_) => PREFIX_OF_HOST,
                    None => PREFIX,
                }
            }
        };
        if what.len() > LONGEST_TEXT {
            (kind, what) = (ALL, Vec::new());
        }
        let manner = u8::from(self.manner == Manner::Hard);
        write((kind, manner), process, self.number, &what, out);
    }

    fn read(kind: u8, manner: u8, number: u64, what: &[u8]) -> Option<Note> {
        let mut reader = Reader(what);
        let purge = match kind {
            ALL => Purge::All,
            SUBJECT => Purge::Subject(Subject(reader.u64()?)),
            PREFIX | PREFIX_OF_HOST => {
                let mut part = || -> Option<Box<[u8]>> {
                    let length = reader.u32()?;
                    Some(reader.bytes(length as usize)?.into())
                };
                let (site, target) = (part()?, part()?);
                let rest = std::mem::take(&mut reader.0);
                let host = match kind {
                    PREFIX if rest.is_empty() => None,
                    PREFIX => return None,
                    _ => Some(rest.into()),
                };
                Purge::Prefix { site, host, target }
            }
            _ => return None,
        };
        let manner = match manner {
            0 => Manner::Soft,
            1 => Manner::Hard,
            _ => return None,
        };
        reader.0.is_empty().then_some(Note {
            purge,
            manner,
            number,
        })
    }
}

pub(super) fn write_start(number: u64, process: u32, out: &mut Vec<u8>) {
    write((START, 0), process, number, &[], out);
}

fn write(kind: (u8, u8), process: u32, number: u64, what: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    let length = (FRONT + what.len() + 8) as u16;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[kind.0, kind.1]);
    out.extend_from_slice(&process.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(what);
    let check = check_of(&out[begin..]);
    out.extend_from_slice(&check.to_le_bytes());
}

/// The first record, its process, and its length. `None`: it is damaged, or there is none.
pub(super) fn read(bytes: &[u8]) -> Option<(Record, u32, usize)> {
    let length = usize::from(Reader(bytes).u16()?);
    let (own, check) = bytes
        .get(..length)?
        .split_at_checked(length.checked_sub(8)?)?;
    if Reader(check).u64()? != check_of(own) {
        return None;
    }
    let mut reader = Reader(own);
    reader.u16()?;
    let [kind, manner] = reader.u16()?.to_le_bytes();
    let (process, number) = (reader.u32()?, reader.u64()?);
    let record = match kind {
        START if manner == 0 && reader.0.is_empty() => Record::Start(number),
        kind => Record::Note(Note::read(kind, manner, number, reader.0)?),
    };
    Some((record, process, length))
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    options.open(path)
}

/// Makes the checks fit.
#[cfg(any(test, feature = "checks"))]
pub(super) fn repair(mut bytes: &mut [u8]) {
    while let Some(length) = Reader(bytes).u16().map(usize::from) {
        if !(FRONT + 8..=bytes.len()).contains(&length) {
            return;
        }
        let (record, rest) = bytes.split_at_mut(length);
        let check = check_of(&record[..length - 8]);
        record[length - 8..].copy_from_slice(&check.to_le_bytes());
        bytes = rest;
    }
}
