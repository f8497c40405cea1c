//! Names of stored answers: keys, by which requests find them, and subjects, by which purges do.
//!
//! Both are hashes with a secret number of the store ([`Seed`]), so that nobody outside can choose texts whose hashes are equal. A key
//! has its text too, which is compared before a stored answer is used: equal hashes may cost a hit, and never give a wrong answer.
//! Subjects have no text; if two of them were equal, a purge would outdate too much.

use std::io;

use xxhash_rust::xxh3::{Xxh3, xxh3_128_with_seed};

/// The secret of a store. A store on a disk keeps it with its files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(u64);

/// The hash of a key's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash([u64; 2]);

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    hash: KeyHash,
    text: Box<[u8]>,
}

/// What a key is made of.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyParts<'k> {
    /// The site's name.
    pub site: &'k [u8],
    /// The host; empty where the site's pages are the same for all its hosts.
    pub host: &'k [u8],
    /// Path and query, as they were normalised.
    pub target: &'k [u8],
    /// What else makes another page: the kind of device, values of cookies.
    pub extra: &'k [u8],
}

/// What a purge is about: a tag, a URL, or a site. Each object has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject(pub(crate) u64);

impl Seed {
    /// A new secret.
    ///
    /// # Errors
    /// If the kernel gives no random numbers.
    pub fn random() -> io::Result<Seed> {
        let mut bytes = [0; 8];
        weir_sys::random::fill(&mut bytes)?;
        Ok(Seed::from_bytes(bytes))
    }

    /// The secret that was kept in a file.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 8]) -> Seed {
        Seed(u64::from_le_bytes(bytes))
    }

    /// For a file.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The key of a request.
    #[must_use]
    pub fn key(&self, parts: &KeyParts<'_>) -> Key {
        let KeyParts {
            site,
            host,
            target,
            extra,
        } = *parts;
        let text: Box<[u8]> = [site, host, target, extra].join(&SEPARATOR).into();
        Key {
            hash: self.hash(&text),
            text,
        }
    }

    /// All pages of a site.
    #[must_use]
    pub fn site(&self, site: &[u8]) -> Subject {
        self.subject(b's', &[site])
    }

    /// One URL, with all its variants. Host and target as in [`KeyParts`].
    #[must_use]
    pub fn url(&self, site: &[u8], host: &[u8], target: &[u8]) -> Subject {
        self.subject(b'u', &[site, host, target])
    }

    /// The pages of a site that have a tag.
    #[must_use]
    pub fn tag(&self, site: &[u8], tag: &[u8]) -> Subject {
        self.subject(b't', &[site, tag])
    }

    pub(crate) fn hash(&self, text: &[u8]) -> KeyHash {
        let hash = xxh3_128_with_seed(text, self.0);
        KeyHash([hash as u64, (hash >> 64) as u64])
    }

    fn subject(&self, kind: u8, parts: &[&[u8]]) -> Subject {
        let mut hasher = Xxh3::with_seed(self.0);
        hasher.update(&[kind]);
        for part in parts {
            hasher.update(part);
            hasher.update(&[SEPARATOR]);
        }
        Subject(hasher.digest())
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seed")
    }
}

impl KeyHash {
    /// The bits by which a shard is chosen; tables use the others.
    pub(crate) fn top(self) -> u64 {
        self.0[1]
    }

    pub(crate) fn low(self) -> u64 {
        self.0[0]
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_le_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> KeyHash {
        let whole = u128::from_le_bytes(bytes);
        KeyHash([whole as u64, (whole >> 64) as u64])
    }
}

impl Subject {
    /// For a file, or an object's list.
    pub(crate) fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 8]) -> Subject {
        Subject(u64::from_le_bytes(bytes))
    }

    /// The subjects that were written one behind the other.
    pub(crate) fn read_all(bytes: &[u8]) -> impl Iterator<Item = Subject> {
        let pieces = bytes.chunks_exact(8);
        pieces.filter_map(|piece| Some(Subject::from_bytes(piece.try_into().ok()?)))
    }
}

impl Key {
    /// Its hash, for [`Flights`](crate::flights::Flights).
    #[must_use]
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// The text that the hash was made of.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The key of one variant: `names` are those of the fields by which answers vary, `values` what the request says in them.
    pub(crate) fn variant(&self, seed: &Seed, names: &[u8], values: &[u8]) -> Key {
        let text: Box<[u8]> = [&self.text, names, values].join(&SEPARATOR).into();
        Key {
            hash: seed.hash(&text),
            text,
        }
    }
}

/// Site, host and target of a key's text.
pub(crate) fn parts_of(text: &[u8]) -> KeyParts<'_> {
    let mut parts = text.splitn(4, |byte| *byte == SEPARATOR);
    let mut next = || parts.next().unwrap_or_default();
    KeyParts {
        site: next(),
        host: next(),
        target: next(),
        extra: next(),
    }
}

/// Neither hosts nor targets nor names of sites contain it.
const SEPARATOR: u8 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_makes_another_key_and_another_subject() {
        let seed = Seed(7);
        let base = KeyParts {
            site: b"shop",
            host: b"a.example",
            target: b"/a?b",
            extra: b"",
        };
        let others = [
            KeyParts {
                site: b"blog",
                ..base
            },
            KeyParts {
                host: b"b.example",
                ..base
            },
            KeyParts {
                target: b"/a",
                ..base
            },
            KeyParts {
                extra: b"mobile",
                ..base
            },
        ];
        let key = seed.key(&base);
        assert_eq!(key, seed.key(&base));
        assert!(
            others
                .iter()
                .all(|other| seed.key(other).hash() != key.hash())
        );
        assert_ne!(Seed(8).key(&base).hash(), key.hash());
        let variant = key.variant(&seed, b"accept-language", b"de");
        assert_ne!(variant.hash(), key.hash());
        for text in [key.text(), variant.text()] {
            let parts = parts_of(text);
            assert_eq!(
                (parts.site, parts.host, parts.target),
                (base.site, base.host, base.target)
            );
        }
        let subjects = [
            seed.site(b"shop"),
            seed.tag(b"shop", b""),
            seed.tag(b"shop", b"a"),
            seed.tag(b"sho", b"pa"),
            seed.url(b"shop", b"", b"a"),
            seed.url(b"shop", b"a", b""),
        ];
        for (at, subject) in subjects.iter().enumerate() {
            assert!(!subjects[..at].contains(subject));
        }
    }

    #[test]
    fn bytes_bring_back_the_secret() {
        let seed = Seed::random().unwrap();
        assert_eq!(Seed::from_bytes(seed.to_bytes()), seed);
    }
}
