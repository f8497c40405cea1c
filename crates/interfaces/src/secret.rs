//! Numbers that nobody outside can foresee, without a system call for each: hashes with a secret key of this process.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A hash whose key clients do not know, so that they cannot choose values that collide.
pub fn hash(value: impl Hash) -> u64 {
    KEY.hash_one(value)
}

/// A number that was never given before.
pub fn random() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    hash(("random", COUNT.fetch_add(1, Relaxed)))
}
