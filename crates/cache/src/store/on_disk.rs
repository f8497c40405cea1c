//! What the store has on a disk.

use std::{io, sync::Arc, thread};

use bytes::Bytes;

use super::{Body, Found, Head, Object, Settings, Slot, Store, Variants, shard::Removed};
use crate::{
    disk::{Disk, DiskSettings, FileBody, Read, ReadBody, Spot, Writer},
    key::{Key, KeyHash},
    purges::{Asked, Purges, Standing},
};

/// An answer that must be read before it is known whether it is the right one.
#[derive(Debug)]
pub struct OnDisk<H: Head> {
    store: Arc<Store<H>>,
    disk: Arc<Disk<H>>,
    key: Key,
    spot: Spot,
}

/// What was read.
#[derive(Debug)]
pub enum ReadBack<H: Head> {
    /// An answer, which is in memory now.
    Hit(Arc<Object<H>>, Standing),
    /// Something else has come in its place: [`Store::look`] again.
    Again,
    /// There is none.
    Miss,
}

impl<H: Head> OnDisk<H> {
    /// Reads it, if the kernel has it in memory and it need not be checked as a whole. `None`: [`read`](OnDisk::read) must be called, on a
    /// thread that may wait.
    pub fn read_cached(&self) -> Option<ReadBack<H>> {
        self.take(self.disk.read(self.spot, true))
    }

    /// Reads it; may wait for the disk.
    pub fn read(&self) -> ReadBack<H> {
        let read = self.take(self.disk.read(self.spot, false));
        read.unwrap_or(ReadBack::Miss)
    }

    fn take(&self, read: Read) -> Option<ReadBack<H>> {
        match read {
            Read::WouldWait => None,
            Read::Nothing => Some(ReadBack::Miss),
            Read::Variants(names) => {
                let names: Box<[u8]> = names[..].into();
                let weight = self.store.weight_of_variants(&names);
                let slot = Slot::Variants(Arc::new(Variants::new(names)));
                self.store.add(self.key.hash(), slot, weight);
                Some(ReadBack::Again)
            }
            Read::Object {
                asked,
                names,
                head,
                body,
            } => {
                let Some(head) = H::read(&head) else {
                    self.disk.forget(self.key.hash());
                    return Some(ReadBack::Miss);
                };
                let body = match body {
                    // Without the rest of the record, which would stay in memory with it.
                    ReadBody::Memory(bytes) => Body::Memory(Bytes::copy_from_slice(&bytes)),
                    ReadBody::File(body) => Body::File(Arc::new(body)),
                };
                let object = Object::named(head, body, names[..].into(), Asked(asked));
                Some(self.place(Arc::new(object)))
            }
        }
    }

    fn place(&self, object: Arc<Object<H>>) -> ReadBack<H> {
        if object.key() != self.key.text() {
            return ReadBack::Miss;
        }
        let standing = self.store.standing(&object);
        if standing == Standing::Gone {
            self.disk.forget(self.key.hash());
            return ReadBack::Miss;
        }
        let is_open = matches!(object.body(), Body::File(_));
        if is_open && !self.disk.may_stay_open() {
            return ReadBack::Hit(object, standing);
        }
        let weight = u32::try_from(object.weight()).unwrap_or(u32::MAX);
        match self
            .store
            .add(self.key.hash(), Slot::Object(object.clone()), weight)
        {
            true => ReadBack::Hit(object, standing),
            false => ReadBack::Again,
        }
    }
}

impl<H: Head> Store<H> {
    /// A store in memory and in a folder, with what this has of an earlier one.
    ///
    /// A part of [`Settings::memory`] is for answers that are waiting to be written.
    ///
    /// # Errors
    /// If the folder can be neither read nor made.
    pub fn open(settings: Settings, disk: DiskSettings) -> io::Result<Arc<Store<H>>> {
        let purges: Arc<Purges> = Arc::default();
        let queued = settings.memory / 8;
        let (disk, seed) = Disk::open(disk, queued, purges.clone())?;
        let disk = Arc::new(disk);
        let memory = settings.memory - queued;
        let settings = Settings { memory, ..settings };
        let store = Arc::new(Store::with(settings, seed, purges, Some(disk.clone())));
        let writer = Writer::new(disk, Arc::downgrade(&store));
        let thread = thread::Builder::new().name("cache".to_owned());
        *super::lock(&store.writer) = Some(thread.spawn(|| writer.run())?);
        Ok(store)
    }

    /// Whether what the folder had at the start is known. Until then it is a miss.
    pub fn is_loaded(&self) -> bool {
        self.disk.as_ref().is_none_or(|disk| disk.is_loaded())
    }

    /// Waits until everything that is to be written is written. Not for a thread that must not wait for the disk.
    pub fn flush(&self) {
        if let Some(disk) = &self.disk {
            disk.flush();
        }
    }

    pub(super) fn find_on_disk(self: &Arc<Self>, key: Key) -> Found<H> {
        let disk = self.disk.as_ref();
        let found = disk.and_then(|disk| Some((disk.clone(), disk.find(key.hash())?)));
        found.map_or(Found::Miss, |(disk, spot)| {
            Found::OnDisk(OnDisk {
                store: self.clone(),
                disk,
                key,
                spot,
            })
        })
    }

    /// Whether it is in memory and was used there.
    pub(crate) fn is_used(&self, hash: KeyHash) -> bool {
        self.shard(hash).is_used(hash)
    }

    /// An answer in memory is in a file now, which may be sent without a copy: its memory is given back.
    pub(crate) fn moved_to_file(
        &self,
        hash: KeyHash,
        object: &Arc<Object<H>>,
        head: H,
        body: FileBody,
    ) {
        let names = object.all_names().into();
        let may_stay = self.disk.as_ref().is_some_and(|disk| disk.may_stay_open());
        let moved = Object::named(head, Body::File(Arc::new(body)), names, object.asked());
        let weight = u32::try_from(moved.weight()).unwrap_or(u32::MAX);
        let mut removed = Removed::new();
        let mut shard = self.shard(hash);
        let is_it = |slot: &Slot<H>| matches!(slot, Slot::Object(own) if Arc::ptr_eq(own, object));
        if shard.peek(hash).is_some_and(is_it) {
            if may_stay {
                shard.insert(hash, Slot::Object(Arc::new(moved)), weight, &mut removed);
            } else {
                removed.extend(shard.remove(hash));
            }
        }
        drop(shard);
    }

    /// Puts something into memory that was read. False: something newer is there.
    fn add(&self, hash: KeyHash, slot: Slot<H>, weight: u32) -> bool {
        let mut removed = Removed::new();
        let mut shard = self.shard(hash);
        let is_free = shard.peek(hash).is_none();
        if is_free {
            shard.insert(hash, slot, weight, &mut removed);
        }
        drop(shard);
        self.dispose(removed);
        is_free
    }
}
