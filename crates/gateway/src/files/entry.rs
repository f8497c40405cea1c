//! A file as it was when it was opened.

use std::{
    cell::Cell,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::HeaderValue;
use weir_http::Fields;
use weir_http1::Name;
use weir_net::OpenFile;
use weir_semantics::{coding::Coding, conditions::Validators};
use weir_sys::file::{self, FileKind, FileStat, Open};

use super::{
    encoding,
    types::{self, Presentation},
};
use crate::answers::compression::KnownForms;

/// A file and its precompressed variants.
#[derive(Debug)]
pub struct FileEntry {
    identity: Representation,
    /// At most one per coding, in the order of [`encoding::ALL`].
    variants: Vec<Representation>,
    /// Its type benefits from compression, and the rules allow it.
    negotiable: bool,
    settled: bool,
    /// It is a script, by its name or by its first bytes.
    source: bool,
    /// The turn and the read after which it was found to be current.
    current_at: Cell<(u64, u64)>,
    /// The compressed forms in memory that this entry knows.
    pub(crate) forms: KnownForms,
}

/// One encoding of a file (RFC 9110 §3.2), and the parts of its answer that are known in advance.
#[derive(Debug)]
pub struct Representation {
    /// The file; its contents stay available while this is held.
    pub file: Rc<OpenFile>,
    /// Its attributes when it was opened.
    pub stat: FileStat,
    /// The contents, if the file is small.
    pub content: Option<Bytes>,
    /// The compression, if any.
    pub coding: Option<Coding>,
    /// The headers of a 200.
    pub headers: Fields,
    /// The strong validator, including the quotes.
    pub etag: HeaderValue,
    /// `Last-Modified`, seconds since 1970.
    pub modified: u64,
    /// Relative to the root.
    path: Box<[u8]>,
}

impl Representation {
    /// What conditional requests are compared with.
    pub(super) fn validators(&self) -> Validators<'_> {
        Validators {
            etag: self.etag.as_bytes(),
            modified: Some(self.modified),
        }
    }
}

/// The source of an entry.
#[derive(Debug)]
pub struct Source<'s> {
    /// The open root.
    pub root: BorrowedFd<'s>,
    /// Relative to the root.
    pub path: &'s [u8],
    /// How to open the files beside it, and whether waiting for the disk is allowed.
    pub walk: Open,
    /// It is a script whose source is shown instead of running it.
    pub as_text: bool,
}

/// A file and its precompressed variants, as any thread may read them. The reactor that gets this makes a [`FileEntry`]
/// of it.
#[derive(Debug)]
pub struct LoadedFile {
    identity: OpenedFile,
    /// At most one per coding, in the order of [`encoding::ALL`].
    variants: Vec<(Coding, OpenedFile)>,
    content_type: HeaderValue,
    cache_control: Option<HeaderValue>,
    as_text: bool,
    negotiable: bool,
    source: bool,
    /// Since 1970.
    loaded_at: Duration,
}

impl LoadedFile {
    /// Takes an open regular file, reads it if it is small, and opens its precompressed variants.
    ///
    /// # Errors
    /// As read(2); also `WouldBlock` with [`Open::cached_only`].
    pub fn load(
        source: &Source<'_>,
        file: OwnedFd,
        stat: FileStat,
        look: &Presentation,
    ) -> io::Result<Self> {
        let loaded_at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let content = small_content(&file, &stat, source.walk.cached_only)?;
        let head = match &content {
            Some(content) => content.clone(),
            None if look.needs_head(source.path) => head(&file, source.walk.cached_only)?,
            None => Bytes::new(),
        };
        let content_type = match source.as_text {
            true => types::value("text/plain"),
            false => look.content_type(source.path, head.first().copied()),
        };
        let negotiable =
            look.precompressed && !source.as_text && encoding::is_compressible(&content_type);
        let mut variants = Vec::new();
        if negotiable {
            for coding in encoding::ALL {
                if let Some(mut opened) = open_variant(source, &stat, coding)? {
                    let cached_only = source.walk.cached_only;
                    opened.content = small_content(&opened.file, &opened.stat, cached_only)?;
                    variants.push((coding, opened));
                }
            }
        }
        Ok(Self {
            source: source.as_text || is_source(&head) && !types::is_to_be_read(source.path),
            identity: OpenedFile {
                path: source.path.into(),
                file,
                stat,
                content,
            },
            variants,
            content_type,
            cache_control: look.cache_control.clone(),
            as_text: source.as_text,
            negotiable,
            loaded_at,
        })
    }

    /// See [`FileEntry::is_source`].
    pub fn is_source(&self) -> bool {
        self.source
    }

    /// Whether the last change of the file is old enough, and that of its variants.
    fn is_settled(&self) -> bool {
        let settled = |stat: &FileStat| {
            let changed = stat.ctime_ns.max(stat.mtime_ns);
            i128::from(changed) + (SETTLING.as_nanos() as i128) < self.loaded_at.as_nanos() as i128
        };
        settled(&self.identity.stat) && self.variants.iter().all(|(_, file)| settled(&file.stat))
    }
}

impl From<LoadedFile> for FileEntry {
    fn from(loaded: LoadedFile) -> FileEntry {
        let settled = loaded.is_settled();
        let LoadedFile {
            identity,
            variants,
            negotiable,
            source,
            ..
        } = loaded;
        let base = Base {
            content_type: loaded.content_type,
            cache_control: loaded.cache_control,
            as_text: loaded.as_text,
            vary: !variants.is_empty(),
            now: loaded.loaded_at,
        };
        FileEntry {
            identity: base.representation(None, identity),
            variants: (variants.into_iter())
                .map(|(coding, opened)| base.representation(Some(coding), opened))
                .collect(),
            negotiable,
            settled,
            source,
            current_at: Cell::default(),
            forms: KnownForms::default(),
        }
    }
}

impl From<LoadedFile> for Rc<FileEntry> {
    fn from(loaded: LoadedFile) -> Rc<FileEntry> {
        Rc::new(loaded.into())
    }
}

impl FileEntry {
    /// Relative to the root.
    pub fn path(&self) -> &[u8] {
        &self.identity.path
    }

    /// The file itself, without negotiation.
    pub fn identity(&self) -> &Representation {
        &self.identity
    }

    /// The representation that the client prefers.
    pub fn choose(&self, headers: &weir_http1::ParsedFields) -> &Representation {
        if self.variants.is_empty() {
            return &self.identity;
        }
        let is_there = |coding| {
            self.variants
                .iter()
                .any(|variant| variant.coding == Some(coding))
        };
        let coding = encoding::choose(headers, is_there);
        let chosen = self
            .variants
            .iter()
            .find(|variant| variant.coding == coding);
        chosen.unwrap_or(&self.identity)
    }

    /// Whether the names still lead to the opened files, unchanged. One system call per file, for all requests that came with
    /// the same read in this turn, which began at `now`.
    pub fn is_current(&self, root: BorrowedFd<'_>, now: u64) -> bool {
        let read = (now, weir_http::reads());
        if self.current_at.get() == read {
            return true;
        }
        let is_same = |one: &Representation| {
            file::stat_at(root, &one.path).is_ok_and(|stat| stat == one.stat)
        };
        let is_current = is_same(&self.identity) && self.variants.iter().all(is_same);
        if is_current {
            self.current_at.set(read);
        }
        is_current
    }

    /// Whether no new variant has appeared; false if that cannot be checked without waiting.
    pub fn has_all_variants(&self, root: BorrowedFd<'_>, walk: Open) -> bool {
        !self.negotiable
            || encoding::ALL.iter().all(|&coding| {
                self.variants
                    .iter()
                    .any(|variant| variant.coding == Some(coding))
                    || match file::stat_beneath(
                        root,
                        &encoding::name_beside(self.path(), coding),
                        walk,
                    ) {
                        Ok(stat) => !is_usable(&self.identity.stat, &stat),
                        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
                    }
            })
    }

    /// Whether it is a script, or starts like a PHP script without a name that shows it as text.
    pub fn is_source(&self) -> bool {
        self.source
    }

    /// Whether the last change is old enough that the next change will have different times.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// Memory that it uses, about, in bytes.
    pub fn bytes_in_memory(&self) -> usize {
        let of = |one: &Representation| one.content.as_ref().map_or(0, Bytes::len) + OVERHEAD;
        of(&self.identity) + self.variants.iter().map(of).sum::<usize>()
    }

    /// How many descriptors it keeps open.
    pub fn descriptors(&self) -> usize {
        1 + self.variants.len()
    }
}

/// A file that was opened for a representation.
#[derive(Debug)]
struct OpenedFile {
    /// Relative to the root.
    path: Box<[u8]>,
    file: OwnedFd,
    stat: FileStat,
    /// If it is small.
    content: Option<Bytes>,
}

/// What all representations of a file share.
struct Base {
    content_type: HeaderValue,
    cache_control: Option<HeaderValue>,
    as_text: bool,
    vary: bool,
    now: Duration,
}

impl Base {
    fn representation(&self, coding: Option<Coding>, opened: OpenedFile) -> Representation {
        let OpenedFile {
            path,
            file,
            stat,
            content,
        } = opened;
        // RFC 9110 §8.8.2.1: never later than the answer. Also, a year has four digits.
        let modified = (stat.mtime_ns.max(0) as u64 / 1_000_000_000).min(self.now.as_secs());
        let etag = etag(&stat, coding);
        let last_modified = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(modified));
        let mut headers = Fields::with_capacity(320);
        let mut put = |name: Name, value: &[u8]| {
            let is_set = headers.append(name, value);
            debug_assert!(is_set.is_ok(), "{value:?}");
        };
        put(Name::ContentType, self.content_type.as_bytes());
        put(Name::ContentLength, stat.size.to_string().as_bytes());
        if let Some(coding) = coding {
            put(Name::ContentEncoding, coding.name().as_bytes());
        }
        put(Name::LastModified, last_modified.as_bytes());
        put(Name::Etag, etag.as_bytes());
        put(Name::AcceptRanges, b"bytes");
        if let Some(cache_control) = &self.cache_control {
            put(Name::CacheControl, cache_control.as_bytes());
        }
        if self.vary {
            put(Name::Vary, b"accept-encoding");
        }
        if self.as_text {
            let is_set = headers.append("X-Content-Type-Options", b"nosniff");
            debug_assert!(is_set.is_ok());
        }
        Representation {
            file: Rc::new(OpenFile::new(file, stat.size)),
            stat,
            content,
            coding,
            headers,
            etag,
            modified,
            path,
        }
    }
}

/// Time of the last change in nanoseconds, and length: the same on every host that has the file with the same time.
fn etag(stat: &FileStat, coding: Option<Coding>) -> HeaderValue {
    let (mtime, size) = (stat.mtime_ns, stat.size);
    types::value(&match coding {
        None => format!("\"{mtime:x}-{size:x}\""),
        Some(coding) => format!("\"{mtime:x}-{size:x}-{}\"", coding.extension()),
    })
}

/// The precompressed file beside the original, if it can be used. One that cannot be read is ignored.
fn open_variant(
    source: &Source<'_>,
    original: &FileStat,
    coding: Coding,
) -> io::Result<Option<OpenedFile>> {
    let path = encoding::name_beside(source.path, coding);
    let opened = file::open_beneath(source.root, &path, source.walk)
        .and_then(|file| file::fstat(file.as_fd()).map(|stat| (file, stat)));
    match opened {
        Ok((file, stat)) => Ok(is_usable(original, &stat).then(|| OpenedFile {
            path: path.into(),
            file,
            stat,
            content: None,
        })),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
        Err(_) => Ok(None),
    }
}

/// A variant that is older than its original was not made from it. Compared in seconds: tools that copy a folder may
/// write the two in any order, a moment apart.
fn is_usable(original: &FileStat, variant: &FileStat) -> bool {
    const SECOND: i64 = 1_000_000_000;
    variant.kind == FileKind::File
        && variant.mtime_ns.div_euclid(SECOND) >= original.mtime_ns.div_euclid(SECOND)
}

/// The contents of a small file. `None` if it is large or changed its length meanwhile; then it is sent from the
/// file.
fn small_content(file: &OwnedFd, stat: &FileStat, cached_only: bool) -> io::Result<Option<Bytes>> {
    if stat.size > SMALL {
        return Ok(None);
    }
    let mut content = vec![0; stat.size as usize];
    let mut filled = 0;
    while filled < content.len() {
        let (rest, at) = (&mut content[filled..], filled as u64);
        let read = match cached_only {
            true => file::read_cached(file.as_fd(), rest, at)?.ok_or(io::ErrorKind::WouldBlock)?,
            false => file::read_at(file.as_fd(), rest, at)?,
        };
        match read {
            0 => return Ok(None),
            read => filled += read,
        }
    }
    Ok(Some(content.into()))
}

/// The first bytes of a large file.
fn head(file: &OwnedFd, cached_only: bool) -> io::Result<Bytes> {
    let mut head = vec![0; HEAD];
    let read = match cached_only {
        true => file::read_cached(file.as_fd(), &mut head, 0)?.ok_or(io::ErrorKind::WouldBlock)?,
        false => file::read_at(file.as_fd(), &mut head, 0)?,
    };
    head.truncate(read);
    Ok(head.into())
}

/// Whether it starts with PHP's opening tag, perhaps after a byte order mark, white space or a `#!` line.
fn is_source(head: &[u8]) -> bool {
    let head = &head[..head.len().min(HEAD)];
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let head = match head.starts_with(b"#!") {
        true => memchr::memchr(b'\n', head).map_or(&b""[..], |end| &head[end..]),
        false => head,
    };
    let head = head.trim_ascii_start();
    head.starts_with(b"<?=")
        || head
            .get(..5)
            .is_some_and(|tag| tag.eq_ignore_ascii_case(b"<?php"))
}

/// How many bytes are read to detect the type of a file.
const HEAD: usize = 256;
/// Files up to this size are kept in memory, bytes.
const SMALL: u64 = 64 * 1024;
/// Memory that an entry needs besides its contents: headers, names, tables. Bytes, about.
const OVERHEAD: usize = 1024;
/// The coarsest timestamps of a file system in use (FAT: two seconds).
const SETTLING: Duration = Duration::from_secs(2);
