//! Purges: which stored answers are outdated because their application, or the operator, has said so.
//!
//! A purge walks through no objects. Each purge gets the next number, and is noted with what it is about. Each object has the number of the last
//! purge that was known when its request was *sent* ([`Asked`]), and a hit compares. So a purge takes the same time for one object and for a
//! million, and it also outdates an answer that is just being made from old data.
//!
//! ```text
//! number      5          6                   7
//! request     |  sent (Asked(5)) ─────────────────► answer stored
//! purge                  tag "shop" ► 6
//!                                            a later hit: 6 > 5, so that the answer is outdated, if it has the tag
//! ```
//!
//! The notes are limited. If there are too many, the oldest one is replaced by "all that is older than this purge", which outdates more than
//! was asked for and never less.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::key::{Seed, Subject, parts_of};

/// What to purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purge {
    /// A tag, a URL, or a site.
    Subject(Subject),
    /// The pages of a site below a path.
    Prefix {
        /// The site's name.
        site: Box<[u8]>,
        /// Only this host; `None`: all of them. As in [`KeyParts`](crate::key::KeyParts).
        host: Option<Box<[u8]>>,
        /// How their targets (path and query) begin.
        target: Box<[u8]>,
    },
    /// Everything.
    All,
}

/// What becomes of the purged objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Manner {
    /// They must be renewed, and may be sent until then where nothing better can be had.
    Soft,
    /// They are gone.
    Hard,
}

/// What the purges say of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// None is about it.
    Valid,
    /// It was purged softly.
    Soft,
    /// It was purged, and must not be used.
    Gone,
}

/// The last purge that was known when a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Asked(pub(crate) u64);

/// The names by which purges find an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'o> {
    pub(crate) tags: &'o [u8],
    /// The text of its key, which has site and URL.
    pub(crate) key: &'o [u8],
}

/// All purges.
#[derive(Debug, Default)]
pub(crate) struct Purges {
    /// The number of the last one. It is changed only with the lock.
    now: AtomicU64,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    subjects: HashMap<Subject, Numbers>,
    /// The notes about subjects, the oldest first. Some are outdated: a later purge of the same subject says more.
    order: VecDeque<(u64, Subject)>,
    /// The oldest first.
    prefixes: VecDeque<Prefix>,
    all: Numbers,
}

/// The last purges of a subject; 0: there was none.
#[derive(Debug, Clone, Copy, Default)]
struct Numbers {
    soft: u64,
    hard: u64,
}

#[derive(Debug)]
struct Prefix {
    number: u64,
    manner: Manner,
    site: Box<[u8]>,
    host: Option<Box<[u8]>>,
    target: Box<[u8]>,
}

/// How many subjects have a note. They take 6 MB at most.
const MOST_SUBJECTS: usize = 65_536;

/// How many prefixes have a note: each is compared with an object when this is first used after a purge.
const MOST_PREFIXES: usize = 256;

impl Purges {
    /// For a request that is sent now.
    pub(crate) fn asked(&self) -> Asked {
        Asked(self.now.load(Ordering::Acquire))
    }

    /// Notes a purge, which is in force when this returns. The result is its number.
    pub(crate) fn note(&self, purge: &Purge, manner: Manner) -> u64 {
        self.note_at(purge, manner, 0)
    }

    /// Notes a purge that has a number already, from another process or from a file. It gets a higher one if this has been used.
    pub(crate) fn note_at(&self, purge: &Purge, manner: Manner, number: u64) -> u64 {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let number = number.max(table.last + 1);
        table.last = number;
        table.note(purge, manner, number);
        self.now.store(number, Ordering::Release);
        number
    }

    /// Numbers up to this one may have been given by others.
    pub(crate) fn reach(&self, number: u64) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.last = table.last.max(number);
        self.now.store(table.last, Ordering::Release);
    }

    /// Leaves out so many numbers.
    pub(crate) fn skip(&self, count: u64) {
        self.reach(self.asked().0.saturating_add(count));
    }

    /// All that is noted, with the lowest number first.
    pub(crate) fn all(&self) -> Vec<(Purge, Manner, u64)> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let subjects = table.subjects.iter();
        let subjects = subjects.map(|(subject, numbers)| (Purge::Subject(*subject), *numbers));
        let numbers = subjects.chain([(Purge::All, table.all)]);
        let mut all: Vec<(Purge, Manner, u64)> = numbers
            .flat_map(|(purge, numbers)| {
                let soft = (purge.clone(), Manner::Soft, numbers.soft);
                [soft, (purge, Manner::Hard, numbers.hard)]
            })
            .filter(|(_, _, number)| *number > 0)
            .collect();
        all.extend(table.prefixes.iter().map(|prefix| {
            let purge = Purge::Prefix {
                site: prefix.site.clone(),
                host: prefix.host.clone(),
                target: prefix.target.clone(),
            };
            (purge, prefix.manner, prefix.number)
        }));
        all.sort_unstable_by_key(|(_, _, number)| *number);
        all
    }

    /// What the purges say of an object. `asked` is its [`Asked`]. If no purge is about it, that moves on, so that these are
    /// not compared with it again.
    pub(crate) fn standing(&self, seed: &Seed, names: Names<'_>, asked: &AtomicU64) -> Standing {
        let known = asked.load(Ordering::Relaxed);
        if known == self.now.load(Ordering::Acquire) {
            return Standing::Valid;
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let standing = table.standing(seed, names, Asked(known));
        if standing == Standing::Valid {
            asked.store(table.last, Ordering::Relaxed);
        }
        standing
    }
}

impl Table {
    fn note(&mut self, purge: &Purge, manner: Manner, number: u64) {
        match purge {
            Purge::All => {
                self.all.add(manner, number);
                if manner == Manner::Hard {
                    // Nothing that they could say is left.
                    self.subjects.clear();
                    self.order.clear();
                    self.prefixes.clear();
                }
            }
            Purge::Subject(subject) => {
                self.subjects
                    .entry(*subject)
                    .or_default()
                    .add(manner, number);
                self.order.push_back((number, *subject));
                self.melt();
            }
            Purge::Prefix { site, host, target } => {
                let is_same = |prefix: &Prefix| {
                    (&prefix.site, &prefix.host, &prefix.target) == (site, host, target)
                };
                self.prefixes
                    .retain(|prefix| !(is_same(prefix) && manner.covers(prefix.manner)));
                self.prefixes.push_back(Prefix {
                    number,
                    manner,
                    site: site.clone(),
                    host: host.clone(),
                    target: target.clone(),
                });
                if self.prefixes.len() > MOST_PREFIXES
                    && let Some(oldest) = self.prefixes.pop_front()
                {
                    self.all.add(oldest.manner, oldest.number);
                }
            }
        }
    }

    /// Replaces the oldest notes about subjects, while there are too many.
    fn melt(&mut self) {
        while self.subjects.len() > MOST_SUBJECTS
            && let Some((number, subject)) = self.order.pop_front()
        {
            let Some(numbers) = self.subjects.get_mut(&subject) else {
                continue;
            };
            if numbers.hard == number {
                self.all.add(Manner::Hard, number);
            } else if numbers.soft == number {
                self.all.add(Manner::Soft, number);
                numbers.soft = 0;
            }
            if numbers.soft.max(numbers.hard) <= number {
                self.subjects.remove(&subject);
            }
        }
        if self.order.len() > 2 * MOST_SUBJECTS {
            let subjects = &self.subjects;
            self.order.retain(|(number, subject)| {
                let numbers = subjects.get(subject);
                numbers.is_some_and(|numbers| [numbers.soft, numbers.hard].contains(number))
            });
        }
    }

    fn standing(&self, seed: &Seed, names: Names<'_>, asked: Asked) -> Standing {
        // Numbers that this process has not given yet: its notes know nothing of such an object.
        if asked.0 > self.last {
            return Standing::Gone;
        }
        let key = parts_of(names.key);
        let mut worst = self.all.standing(asked);
        if !self.subjects.is_empty() {
            let own = [
                seed.site(key.site),
                seed.url(key.site, key.host, key.target),
            ];
            for subject in own.into_iter().chain(Subject::read_all(names.tags)) {
                if let Some(numbers) = self.subjects.get(&subject) {
                    worst = worst.max(numbers.standing(asked));
                }
            }
        }
        let newer = |prefix: &&Prefix| prefix.number > asked.0;
        for prefix in self.prefixes.iter().rev().take_while(newer) {
            let is_meant = *prefix.site == *key.site
                && prefix.host.as_ref().is_none_or(|host| **host == *key.host)
                && key.target.starts_with(&prefix.target);
            if is_meant {
                worst = worst.max(prefix.manner.into());
            }
        }
        worst
    }
}

impl Numbers {
    fn add(&mut self, manner: Manner, number: u64) {
        match manner {
            Manner::Soft => self.soft = self.soft.max(number),
            Manner::Hard => self.hard = self.hard.max(number),
        }
    }

    fn standing(self, asked: Asked) -> Standing {
        match asked {
            Asked(asked) if self.hard > asked => Standing::Gone,
            Asked(asked) if self.soft > asked => Standing::Soft,
            _ => Standing::Valid,
        }
    }
}

impl Manner {
    /// Whether a later purge of this manner makes an earlier one of the other superfluous.
    fn covers(self, earlier: Manner) -> bool {
        self == Manner::Hard || earlier == Manner::Soft
    }
}

impl From<Manner> for Standing {
    fn from(manner: Manner) -> Standing {
        match manner {
            Manner::Soft => Standing::Soft,
            Manner::Hard => Standing::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::{KeyParts, Seed};

    fn seed() -> Seed {
        Seed::from_bytes([1; 8])
    }

    struct Page {
        asked: AtomicU64,
        site: u8,
        tags: Vec<u8>,
        target: Vec<u8>,
    }

    impl Page {
        fn standing(&self, purges: &Purges) -> Standing {
            let site = [self.site];
            let tags = self
                .tags
                .iter()
                .flat_map(|tag| seed().tag(&site, &[*tag]).to_bytes());
            let tags: Vec<u8> = tags.collect();
            let key = seed().key(&KeyParts {
                site: &site,
                target: &self.target,
                ..KeyParts::default()
            });
            let names = Names {
                tags: &tags,
                key: key.text(),
            };
            purges.standing(&seed(), names, &self.asked)
        }
    }

    #[test]
    fn an_answer_that_was_being_made_when_the_purge_came_is_outdated() {
        let purges = Purges::default();
        let page = |asked: Asked| Page {
            asked: AtomicU64::new(asked.0),
            site: b'a',
            tags: vec![b'x'],
            target: b"/".to_vec(),
        };
        let before = page(purges.asked());
        purges.note(&Purge::Subject(seed().tag(b"a", b"x")), Manner::Soft);
        let after = page(purges.asked());
        assert_eq!(before.standing(&purges), Standing::Soft);
        assert_eq!(after.standing(&purges), Standing::Valid);
        purges.note(&Purge::Subject(seed().tag(b"b", b"x")), Manner::Hard);
        assert_eq!(after.standing(&purges), Standing::Valid);
        purges.note(&Purge::All, Manner::Hard);
        assert_eq!(after.standing(&purges), Standing::Gone);
    }

    #[test]
    fn too_many_notes_melt_into_one_about_everything_older() {
        let purges = Purges::default();
        let old = purges.asked();
        let subject = |number: u64| Purge::Subject(Subject(number));
        // A subject that is purged again and again takes the room of one.
        for _ in 0..5 * MOST_SUBJECTS {
            purges.note(&subject(7), Manner::Soft);
        }
        for number in 0..MOST_SUBJECTS as u64 {
            purges.note(&subject(1_000 + number), Manner::Soft);
        }
        let standing = |asked: Asked| {
            let names = Names {
                tags: b"",
                key: b"",
            };
            purges.standing(&seed(), names, &AtomicU64::new(asked.0))
        };
        assert_eq!(standing(old), Standing::Soft);
        let melted = Asked(5 * MOST_SUBJECTS as u64);
        assert_eq!(standing(melted), Standing::Valid);
        let table = purges.table.read().unwrap();
        assert_eq!(table.subjects.len(), MOST_SUBJECTS);
        assert!(table.order.len() <= 2 * MOST_SUBJECTS);
        drop(table);
        for number in 0..MOST_PREFIXES as u64 + 1 {
            let target = number.to_string().into_bytes().into();
            let (site, host) = (Box::from(*b"a"), None);
            purges.note(&Purge::Prefix { site, host, target }, Manner::Hard);
        }
        assert_eq!(purges.table.read().unwrap().prefixes.len(), MOST_PREFIXES);
        assert_eq!(standing(melted), Standing::Gone);
    }

    #[test]
    fn a_purge_from_elsewhere_gets_a_number_that_nobody_has() {
        let purges = Purges::default();
        assert_eq!(purges.note_at(&Purge::All, Manner::Soft, 10), 10);
        assert_eq!(purges.note_at(&Purge::All, Manner::Soft, 4), 11);
        assert_eq!(purges.note(&Purge::All, Manner::Soft), 12);
        assert_eq!(purges.asked(), Asked(12));
        let names = Names {
            tags: b"",
            key: b"",
        };
        let unknown = AtomicU64::new(13);
        assert_eq!(purges.standing(&seed(), names, &unknown), Standing::Gone);
    }

    type Condition = Box<dyn Fn(&Page) -> bool>;

    #[derive(Debug, Clone)]
    enum Step {
        Page {
            site: u8,
            tags: Vec<u8>,
            target: Vec<u8>,
        },
        Site(u8),
        Tag(u8, u8),
        Url(u8, Vec<u8>),
        Prefix(u8, Vec<u8>),
        All,
    }

    fn step() -> impl Strategy<Value = Step> {
        let site = b'a'..b'd';
        let tag = b'x'..=b'z';
        let target = prop::sample::select(vec!["/", "/a", "/a/b", "/b?c"]);
        let target = target.prop_map(|target| target.as_bytes().to_vec());
        prop_oneof![
            6 => (site.clone(), prop::collection::vec(tag.clone(), 0..3), target.clone())
                .prop_map(|(site, tags, target)| Step::Page { site, tags, target }),
            1 => site.clone().prop_map(Step::Site),
            2 => (site.clone(), tag).prop_map(|(site, tag)| Step::Tag(site, tag)),
            2 => (site.clone(), target.clone()).prop_map(|(site, target)| Step::Url(site, target)),
            1 => (site, target).prop_map(|(site, target)| Step::Prefix(site, target)),
            1 => Just(Step::All),
        ]
    }

    proptest! {
        /// A plain list of all purges says the same of each page at each moment, however often it was asked for before.
        #[test]
        fn notes_say_what_a_walk_would(steps in prop::collection::vec((step(), any::<bool>()), 0..60)) {
            let purges = Purges::default();
            let mut pages: Vec<(Page, Standing)> = Vec::new();
            for (step, is_hard) in steps {
                let manner = if is_hard { Manner::Hard } else { Manner::Soft };
                let (purge, is_meant): (Purge, Condition) = match step {
                    Step::Page { site, tags, target } => {
                        let page = Page { asked: AtomicU64::new(purges.asked().0), site, tags, target };
                        pages.push((page, Standing::Valid));
                        continue;
                    }
                    Step::Site(site) => (Purge::Subject(seed().site(&[site])), Box::new(move |page| page.site == site)),
                    Step::Tag(site, tag) => (
                        Purge::Subject(seed().tag(&[site], &[tag])),
                        Box::new(move |page| page.site == site && page.tags.contains(&tag)),
                    ),
                    Step::Url(site, target) => (
                        Purge::Subject(seed().url(&[site], b"", &target)),
                        Box::new(move |page| page.site == site && page.target == target),
                    ),
                    Step::Prefix(site, target) => (
                        Purge::Prefix { site: Box::new([site]), host: None, target: target.clone().into() },
                        Box::new(move |page| page.site == site && page.target.starts_with(&target)),
                    ),
                    Step::All => (Purge::All, Box::new(|_| true)),
                };
                purges.note(&purge, manner);
                for (page, standing) in &mut pages {
                    if is_meant(page) {
                        *standing = (*standing).max(manner.into());
                    }
                    prop_assert_eq!(page.standing(&purges), *standing);
                }
            }
        }
    }
}
