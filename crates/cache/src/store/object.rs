//! A stored answer.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use crate::{
    disk::FileBody,
    key::Subject,
    purges::{Asked, Names},
};

/// The head of a stored answer, as its user needs it: status, fields, how long it is fresh.
pub trait Head: Send + Sync + 'static {
    /// Which format [`write`](Head::write) has. Files with another one are not read.
    const FORMAT: u32;

    /// How much memory it takes besides its own size, bytes.
    fn weight(&self) -> usize;

    /// Appends it to what is written to a file.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads what was written. `None`: it is damaged.
    fn read(bytes: &[u8]) -> Option<Self>
    where
        Self: Sized;
}

/// A stored answer. It does not change; a renewed one takes its place.
pub struct Object<H> {
    /// What its user has stored.
    pub head: H,
    body: Body,
    /// The number of tags (two bytes), the tags, the key's text.
    names: Box<[u8]>,
    /// [`Asked`] of its request, or a later purge that is known not to be about it.
    pub(super) asked: AtomicU64,
    coded: OnceLock<Box<[OnceLock<Bytes>; CODINGS]>>,
}

/// The content of a stored answer, always whole.
#[derive(Debug, Clone)]
pub enum Body {
    /// In memory.
    Memory(Bytes),
    /// In a file.
    File(Arc<FileBody>),
}

/// How many coded forms of a body an object has room for.
pub const CODINGS: usize = 4;

impl<H> Object<H> {
    pub(super) fn new(
        head: H,
        body: Body,
        tags: &[Subject],
        key: &[u8],
        asked: Asked,
    ) -> Object<H> {
        let mut names = Vec::with_capacity(2 + 8 * tags.len() + key.len());
        names.extend_from_slice(&(tags.len() as u16).to_le_bytes());
        for tag in tags {
            names.extend_from_slice(&tag.to_bytes());
        }
        names.extend_from_slice(key);
        Object::named(head, body, names.into(), asked)
    }

    /// The same content with another head.
    pub(super) fn renewed(&self, head: H, asked: Asked) -> Object<H> {
        Object::named(head, self.body.clone(), self.names.clone(), asked)
    }

    /// `names`: as they are in a record.
    pub(super) fn named(head: H, body: Body, names: Box<[u8]>, asked: Asked) -> Object<H> {
        Object {
            head,
            body,
            names,
            asked: AtomicU64::new(asked.0),
            coded: OnceLock::new(),
        }
    }

    /// Its content.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The content in one of the content codings, which its user numbers as it likes, below [`CODINGS`].
    pub fn coded(&self, coding: usize) -> Option<&Bytes> {
        self.coded.get()?.get(coding)?.get()
    }

    /// The text of its key.
    pub fn key(&self) -> &[u8] {
        self.names().key
    }

    pub(super) fn file(&self) -> Option<&FileBody> {
        match &self.body {
            Body::Memory(_) => None,
            Body::File(body) => Some(body),
        }
    }

    /// Number of tags, tags and key, for a record.
    pub(crate) fn all_names(&self) -> &[u8] {
        &self.names
    }

    pub(crate) fn asked(&self) -> Asked {
        Asked(self.asked.load(Ordering::Relaxed))
    }

    pub(super) fn names(&self) -> Names<'_> {
        let count = self
            .names
            .first_chunk()
            .map_or(0, |count| u16::from_le_bytes(*count));
        let names = self.names.get(2..).unwrap_or_default();
        let (tags, key) = names
            .split_at_checked(8 * usize::from(count))
            .unwrap_or_default();
        Names { tags, key }
    }

    /// False: it has one already, or there is no such number.
    pub(super) fn set_coded(&self, coding: usize, bytes: Bytes) -> bool {
        let coded = self.coded.get_or_init(Box::default).get(coding);
        coded.is_some_and(|coded| coded.set(bytes).is_ok())
    }
}

impl<H: Head> Object<H> {
    /// All memory that it takes, with its place in the store, bytes.
    pub(super) fn weight(&self) -> u64 {
        let own = size_of::<Object<H>>() + PLACE + self.head.weight() + self.names.len();
        own as u64 + self.body.in_memory()
    }
}

impl Body {
    /// Bytes.
    pub fn len(&self) -> u64 {
        match self {
            Body::Memory(bytes) => bytes.len() as u64,
            Body::File(body) => body.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn in_memory(&self) -> u64 {
        match self {
            Body::Memory(bytes) => bytes.len() as u64,
            Body::File(_) => size_of::<FileBody>() as u64,
        }
    }
}

impl<H> fmt::Debug for Object<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = String::from_utf8_lossy(self.key());
        write!(f, "Object({key:?}, {} bytes)", self.body.len())
    }
}

/// Memory of a value in the lists of a shard, and what the allocator adds, bytes.
pub(super) const PLACE: usize = 112;
