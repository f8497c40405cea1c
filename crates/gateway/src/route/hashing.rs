//! A fast hash for tables of names.
//!
//! Clients choose the names that are looked up, but not those that are in the tables: hosts of the configuration, files
//! that exist. Each hash still contains a secret number of the process, so that users who may create files cannot
//! choose names that collide.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::OnceLock,
};

/// Makes the hashers of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seeded(u64);

/// Folds eight bytes in each step into a product of 128 bits, as wyhash does.
#[derive(Debug)]
pub(super) struct FoldHasher(u64);

impl Default for Seeded {
    fn default() -> Seeded {
        static SECRET: OnceLock<u64> = OnceLock::new();
        Seeded(*SECRET.get_or_init(|| RandomState::new().hash_one(MIX)))
    }
}

impl BuildHasher for Seeded {
    type Hasher = FoldHasher;

    fn build_hasher(&self) -> FoldHasher {
        FoldHasher(self.0)
    }
}

impl FoldHasher {
    #[inline]
    fn fold(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * u128::from(MIX);
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for FoldHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.chunks_exact(8);
        for piece in &mut pieces {
            // Pieces have eight bytes.
            self.fold(u64::from_le_bytes(piece.try_into().unwrap_or_default()));
        }
        let rest = pieces.remainder().iter();
        self.fold(rest.fold(0, |rest, byte| rest << 8 | u64::from(*byte)));
    }

    fn write_usize(&mut self, value: usize) {
        self.fold(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// An odd number with as many ones as zeros, without a pattern.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_that_differ_have_different_hashes() {
        let hash = |name: &[u8]| Seeded::default().hash_one(name);
        let mut names: Vec<Vec<u8>> = (0..10_000_u32)
            .map(|number| format!("/folder/{number}.css").into_bytes())
            .collect();
        names.extend((0..40).map(|length| vec![0; length]));
        names.extend((0..=255).map(|byte| vec![byte]));
        let different: HashSet<&Vec<u8>> = names.iter().collect();
        let hashes: HashSet<u64> = different.iter().map(|name| hash(name)).collect();
        assert_eq!(hashes.len(), different.len());
        // Tables use the lowest and the highest bits.
        for shift in [0, 57] {
            let bits: HashSet<u64> = hashes.iter().map(|hash| hash >> shift & 127).collect();
            assert_eq!(bits.len(), 128);
        }
        assert_eq!(hash(b"/a.css"), hash(b"/a.css"));
    }
}
