//! Storing an answer while it is sent to the client.

use std::sync::Arc;

use bytes::Bytes;

use super::{Store, object::Head, shard::Removed};
use crate::{
    key::{Key, Subject},
    purges::Asked,
};

/// An answer that is to be stored.
#[derive(Debug)]
pub struct New<H> {
    /// What was asked for.
    pub key: Key,
    /// With what of the request it varies.
    pub vary: Option<Varied>,
    /// Its head.
    pub head: H,
    /// Its tags.
    pub tags: Vec<Subject>,
    /// [`Store::asked`], from before the request was sent.
    pub asked: Asked,
}

/// An answer varies with fields of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Varied {
    /// The fields, as their reader will know them again.
    pub names: Box<[u8]>,
    /// What the request said in them.
    pub values: Vec<u8>,
}

/// The body of an answer on its way into the store. Dropped before [`finish`](Filling::finish), nothing is stored.
#[derive(Debug)]
pub struct Filling<H: Head> {
    store: Arc<Store<H>>,
    /// `None`: it was given up.
    new: Option<New<H>>,
    body: Vec<u8>,
    /// Bytes that the shard holds free for it.
    reserved: u64,
}

impl<H: Head> Filling<H> {
    pub(super) fn new(store: &Arc<Store<H>>, new: New<H>) -> Filling<H> {
        Filling {
            store: store.clone(),
            new: Some(new),
            body: Vec::new(),
            reserved: 0,
        }
    }

    /// Says how long the body will be. False: it is too long, and was given up.
    pub fn expect(&mut self, length: u64) -> bool {
        self.grow(length, true)
    }

    /// Takes the next part of the body. False: it was given up, because it is too long or there is no room.
    pub fn push(&mut self, part: &[u8]) -> bool {
        let length = self.body.len() + part.len();
        let may = self.grow(length as u64, false);
        if may {
            self.body.extend_from_slice(part);
        }
        may
    }

    /// Stores the answer: the body is complete. False: it was given up, or purged meanwhile.
    pub fn finish(mut self) -> bool {
        let Some(new) = self.new.take() else {
            return false;
        };
        let body = std::mem::take(&mut self.body).into_boxed_slice();
        // The bytes are counted as those of the object from now on.
        self.give_back(&new.key);
        self.store.insert(new, Bytes::from(body))
    }

    /// Makes room for a body of this length.
    fn grow(&mut self, length: u64, is_exact: bool) -> bool {
        let Some(new) = &self.new else {
            return false;
        };
        let most = self.store.settings.max_object;
        if length <= self.reserved && length <= most {
            return true;
        }
        let wanted = match is_exact {
            true => length,
            false => length.max(2 * self.reserved).max(LEAST).min(most),
        };
        let mut removed = Removed::new();
        let mut shard = self.store.shard(new.key.hash());
        let may = length <= most && shard.reserve(wanted - self.reserved, &mut removed);
        drop(shard);
        self.store.dispose(removed);
        if may {
            self.reserved = wanted;
            self.body.reserve_exact(wanted as usize - self.body.len());
        } else if let Some(new) = self.new.take() {
            self.body = Vec::new();
            self.give_back(&new.key);
        }
        may
    }

    fn give_back(&mut self, key: &Key) {
        let reserved = std::mem::take(&mut self.reserved);
        if reserved > 0 {
            self.store.shard(key.hash()).give_back(reserved);
        }
    }
}

impl<H: Head> Drop for Filling<H> {
    fn drop(&mut self) {
        if let Some(new) = self.new.take() {
            self.give_back(&new.key);
        }
    }
}

/// Room for the first part of a body whose length is not known, bytes.
const LEAST: u64 = 4_096;
