//! The store beside a plain one, its limits, and how much memory it takes.

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{
    shard::tests::{Zipf, size_of_page},
    *,
};
use crate::key::{KeyParts, Subject};

impl Head for u64 {
    const FORMAT: u32 = 1;

    fn weight(&self) -> usize {
        0
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

impl<H: Head> Store<H> {
    /// Checks all sums and limits.
    pub(crate) fn check(&self) {
        for shard in &self.shards {
            lock(shard).check();
        }
        assert!(self.figures().bytes <= self.settings.memory);
    }
}

pub(crate) const LIMITS: Settings = Settings {
    memory: 4 << 20,
    max_object: 64 << 10,
    max_objects: 100_000,
    max_variants: 4,
};

pub(crate) fn store(settings: Settings) -> Arc<Store<u64>> {
    Store::new(settings).unwrap()
}

pub(crate) fn key(store: &Arc<Store<u64>>, target: &str) -> Key {
    store.seed().key(&KeyParts {
        site: b"shop",
        target: target.as_bytes(),
        ..KeyParts::default()
    })
}

pub(crate) fn tag(store: &Arc<Store<u64>>, tag: &str) -> Subject {
    store.seed().tag(b"shop", tag.as_bytes())
}

pub(crate) fn new(store: &Arc<Store<u64>>, target: &str, head: u64) -> New<u64> {
    New {
        key: key(store, target),
        vary: None,
        head,
        tags: vec![tag(store, "front")],
        asked: store.asked(),
    }
}

pub(crate) fn look(store: &Arc<Store<u64>>, target: &str) -> Option<(u64, Standing)> {
    look_as(store, target, "")
}

pub(crate) fn look_as(
    store: &Arc<Store<u64>>,
    target: &str,
    language: &str,
) -> Option<(u64, Standing)> {
    match store.look(&key(store, target), |_| language.into()) {
        Found::Hit(object, standing) => Some((object.head, standing)),
        _ => None,
    }
}

pub(crate) fn insert_as(store: &Arc<Store<u64>>, target: &str, language: &str, head: u64) -> bool {
    let vary = Some(Varied {
        names: Box::from(*b"accept-language"),
        values: language.into(),
    });
    store.insert(
        New {
            vary,
            ..new(store, target, head)
        },
        Bytes::from_static(b"page"),
    )
}

#[test]
fn a_body_comes_in_parts_and_is_stored_whole_or_not_at_all() {
    let store = store(LIMITS);
    let mut filling = store.fill(new(&store, "/a", 1));
    assert!(filling.push(b"Hello, ") && filling.push(b"world"));
    assert_eq!(look(&store, "/a"), None);
    assert!(store.figures().bytes > 0);
    assert!(filling.finish());
    let Found::Hit(object, Standing::Valid) = store.look(&key(&store, "/a"), |_| Vec::new()) else {
        panic!("not stored");
    };
    assert!(matches!(object.body(), Body::Memory(body) if body == "Hello, world"));
    // Left, too long, said to be too long, and more than there is room for.
    let before = store.figures();
    let mut left = store.fill(new(&store, "/b", 1));
    assert!(left.push(b"Hello"));
    drop(left);
    let mut long = store.fill(new(&store, "/b", 1));
    assert!(long.push(&[0; 64 << 10]) && !long.push(b"x") && !long.push(b""));
    assert!(!long.finish());
    assert!(!store.fill(new(&store, "/b", 1)).expect((64 << 10) + 1));
    assert!(!store.insert(new(&store, "/b", 1), Bytes::from(vec![0; (64 << 10) + 1])));
    assert_eq!(look(&store, "/b"), None);
    assert_eq!(store.figures(), before);
    let mut many = Vec::new();
    for _ in 0..1_000 {
        let mut filling = store.fill(new(&store, "/c", 1));
        let may = filling.expect(32 << 10);
        many.push((may, filling));
    }
    // A shard has 1 MB, of which half may be reserved.
    assert_eq!(many.iter().filter(|(may, _)| *may).count(), 16);
    store.check();
    drop(many);
    store.check();
}

#[test]
fn a_purge_outdates_what_was_asked_before_it() {
    let store = store(LIMITS);
    let early = new(&store, "/early", 1);
    let early_hard = new(&store, "/hard", 1);
    assert!(store.insert(new(&store, "/a", 1), Bytes::new()));
    store.purge(&Purge::Subject(tag(&store, "front")), Manner::Soft);
    assert_eq!(look(&store, "/a"), Some((1, Standing::Soft)));
    // It is stored, so that there is something while the next one is made.
    assert!(store.insert(early, Bytes::new()));
    assert_eq!(look(&store, "/early"), Some((1, Standing::Soft)));
    let old = New {
        asked: early_hard.asked,
        ..new(&store, "/a", 3)
    };
    assert!(store.insert(new(&store, "/a", 2), Bytes::new()));
    assert!(
        !store.insert(old, Bytes::new()),
        "the older one must not replace the newer one"
    );
    assert_eq!(look(&store, "/a"), Some((2, Standing::Valid)));
    store.purge(&Purge::Subject(store.seed().site(b"shop")), Manner::Hard);
    assert!(!store.insert(early_hard, Bytes::new()));
    for target in ["/a", "/early", "/hard"] {
        assert_eq!(look(&store, target), None);
    }
    assert_eq!((store.figures().objects, store.figures().purges), (0, 2));
}

#[test]
fn a_renewed_answer_has_the_old_content_and_is_as_new_as_its_request() {
    let store = store(LIMITS);
    assert!(store.insert(new(&store, "/a", 1), Bytes::from_static(b"content")));
    store.purge(&Purge::All, Manner::Soft);
    let Found::Hit(object, Standing::Soft) = store.look(&key(&store, "/a"), |_| Vec::new()) else {
        panic!("not there");
    };
    let renewed = store.renew(&object, 2, store.asked());
    assert_eq!(renewed.body().len(), 7);
    assert_eq!(look(&store, "/a"), Some((2, Standing::Valid)));
    store.check();
}

#[test]
fn variants_are_limited_and_removed_with_their_url() {
    let store = store(LIMITS);
    for (number, language) in ["de", "en", "fr", "it", "nl"].into_iter().enumerate() {
        assert!(insert_as(&store, "/a", language, number as u64));
    }
    assert_eq!(
        look_as(&store, "/a", "de"),
        None,
        "the oldest is one too many"
    );
    assert_eq!(look_as(&store, "/a", "nl"), Some((4, Standing::Valid)));
    assert_eq!(look_as(&store, "/a", "es"), None);
    let flight = |language: &str| store.flight(&key(&store, "/a"), |_| language.into());
    assert_ne!(flight("de"), flight("en"));
    assert_eq!(store.figures().objects, 5);
    store.purge(
        &Purge::Subject(store.seed().url(b"shop", b"", b"/a")),
        Manner::Soft,
    );
    assert_eq!(look_as(&store, "/a", "nl"), Some((4, Standing::Soft)));
    // One that does not vary replaces all of them.
    assert!(store.insert(new(&store, "/a", 9), Bytes::new()));
    assert_eq!(look_as(&store, "/a", "nl"), Some((9, Standing::Valid)));
    assert_eq!(store.figures().objects, 1);
    assert!(insert_as(&store, "/a", "de", 1));
    assert_eq!(look_as(&store, "/a", "nl"), None);
    store.remove(&key(&store, "/a"));
    assert_eq!(look_as(&store, "/a", "de"), None);
    assert_eq!(store.figures().objects, 0);
    store.check();
}

#[test]
fn coded_forms_count_as_memory() {
    let store = store(LIMITS);
    assert!(store.insert(new(&store, "/a", 1), Bytes::from_static(b"content")));
    let Found::Hit(object, _) = store.look(&key(&store, "/a"), |_| Vec::new()) else {
        panic!("not there");
    };
    let before = store.figures().bytes;
    store.add_coded(&object, 1, Bytes::from_static(b"coded"));
    store.add_coded(&object, 1, Bytes::from_static(b"again"));
    store.add_coded(&object, CODINGS, Bytes::from_static(b"no such number"));
    assert_eq!(object.coded(1).map(|bytes| &bytes[..]), Some(&b"coded"[..]));
    assert_eq!((object.coded(0), object.coded(CODINGS)), (None, None));
    assert_eq!(store.figures().bytes, before + 5);
    store.remove(&key(&store, "/a"));
    assert_eq!(store.figures().bytes, 0);
}

#[derive(Debug, Clone)]
enum Step {
    /// An answer to a request that was sent so many steps ago.
    Insert {
        target: u8,
        language: Option<u8>,
        length: usize,
        ago: usize,
    },
    Look {
        target: u8,
        language: u8,
    },
    Remove(u8),
    Purge(u8, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let language = prop::option::weighted(0.4, 0..6_u8);
    prop_oneof![
        5 => (0..8_u8, language, 0..300_usize, 0..4_usize)
            .prop_map(|(target, language, length, ago)| Step::Insert { target, language, length, ago }),
        6 => (0..8_u8, 0..6_u8).prop_map(|(target, language)| Step::Look { target, language }),
        1 => (0..8_u8).prop_map(Step::Remove),
        2 => (0..10_u8, any::<bool>()).prop_map(|(what, is_hard)| Step::Purge(what, is_hard)),
    ]
}

/// What the plain store remembers of an answer: everything, for ever.
struct Stored {
    target: u8,
    language: Option<u8>,
    sent: usize,
    head: u64,
}

proptest! {
    /// A hit is an answer to this very question, and says what a walk through all purges says of it.
    #[test]
    fn hits_are_right_answers(steps in prop::collection::vec(step(), 0..200)) {
        let store = store(Settings { memory: 8 << 10, max_object: 1 << 10, max_objects: 30, max_variants: 3 });
        let mut asked = vec![store.asked()];
        let mut all: HashMap<u64, Stored> = HashMap::new();
        // When, about which target (`None`: all), and how.
        let mut purges: Vec<(usize, Option<u8>, Manner)> = Vec::new();
        for step in steps {
            let now = asked.len();
            match step {
                Step::Insert { target, language, length, ago } => {
                    let sent = now.saturating_sub(1 + ago);
                    let head = all.len() as u64;
                    let vary = language.map(|language| Varied { names: Box::from(*b"l"), values: vec![language] });
                    let new = New { vary, asked: asked[sent], ..new(&store, &target.to_string(), head) };
                    store.insert(new, Bytes::from(vec![0; length]));
                    all.insert(head, Stored { target, language, sent, head });
                }
                Step::Look { target, language } => {
                    let found = store.look(&key(&store, &target.to_string()), |_| vec![language]);
                    if let Found::Hit(object, standing) = found {
                        let stored = &all[&object.head];
                        prop_assert_eq!(stored.target, target);
                        prop_assert!(stored.language.is_none_or(|own| own == language));
                        let about = purges.iter().filter(|(when, what, _)| *when >= stored.sent && what.is_none_or(|what| what == target));
                        let expected = about.map(|(_, _, manner)| Standing::from(*manner)).max();
                        prop_assert_eq!(standing, expected.unwrap_or(Standing::Valid), "of {}", stored.head);
                    }
                }
                Step::Remove(target) => {
                    store.remove(&key(&store, &target.to_string()));
                    prop_assert!(matches!(store.look(&key(&store, &target.to_string()), |_| vec![0]), Found::Miss));
                }
                Step::Purge(what, is_hard) => {
                    let manner = if is_hard { Manner::Hard } else { Manner::Soft };
                    let target = what.to_string().into_bytes();
                    let (purge, what) = match what {
                        8 => (Purge::Subject(tag(&store, "front")), None),
                        9 => (Purge::All, None),
                        what if what % 2 == 0 => (Purge::Subject(store.seed().url(b"shop", b"", &target)), Some(what)),
                        what => (Purge::Prefix { site: Box::from(*b"shop"), host: None, target: target.into() }, Some(what)),
                    };
                    store.purge(&purge, manner);
                    purges.push((now - 1, what, manner));
                }
            }
            asked.push(store.asked());
            store.check();
        }
    }
}

/// A million URLs in 64 MB: the bound holds, and hits are as many as one shard without limits of its own has, which `shard/tests.rs` compares
/// with the policy.
#[test]
fn shards_hit_as_often_as_the_policy() {
    let (urls, asked, memory) = match std::env::var_os("WEIR_CONFORMANCE") {
        Some(_) => (1_000_000, 5_000_000, 64 << 20),
        None => (40_000, 100_000, 3 << 20),
    };
    let settings = Settings {
        memory,
        max_object: 16 << 10,
        max_objects: usize::MAX,
        max_variants: 4,
    };
    let store = store(settings);
    let mut whole = Shard::new(Limits {
        bytes: memory,
        values: usize::MAX,
    });
    let mut zipf = Zipf::new(urls, 0.9, 1);
    let (mut of_store, mut of_policy) = (0, 0);
    let mut removed = Removed::new();
    for _ in 0..asked {
        let number = zipf.next();
        let target = format!("/shop/product/{number}");
        let key = key(&store, &target);
        let object = match store.look(&key, |_| Vec::new()) {
            Found::Hit(object, _) => {
                of_store += 1;
                object
            }
            _ => {
                let body = Bytes::from(vec![0; size_of_page(number) as usize]);
                let tags = &[Subject(1)];
                let asked = store.asked();
                let body = Body::Memory(body);
                let object = Arc::new(Object::new(
                    u64::from(number),
                    body,
                    tags,
                    key.text(),
                    asked,
                ));
                assert!(store.place(key.hash(), object.clone()));
                object
            }
        };
        match whole.get(key.hash()) {
            Some(()) => of_policy += 1,
            None => assert!(whole.insert(key.hash(), (), object.weight() as u32, &mut removed)),
        }
        removed.clear();
    }
    store.check();
    let percent = |hits: i32| f64::from(hits) * 100.0 / f64::from(asked);
    println!(
        "store {:.2} %, policy {:.2} %, {:?}",
        percent(of_store),
        percent(of_policy),
        store.figures()
    );
    assert!(
        percent((of_store - of_policy).abs()) < 1.0,
        "{of_store} and {of_policy} of {asked}"
    );
}

/// It would take longer if it walked through the objects.
#[test]
fn a_purge_of_a_tag_with_many_objects_takes_no_time() {
    let count = 100_000;
    let store = store(Settings {
        memory: 256 << 20,
        max_objects: 2 * count,
        ..LIMITS
    });
    for number in 0..count {
        assert!(store.insert(
            new(&store, &number.to_string(), 1),
            Bytes::from_static(b"page")
        ));
    }
    let purge = Purge::Subject(tag(&store, "front"));
    // The best of some: other tests run beside it.
    let times = (0..20).map(|_| {
        let begin = Instant::now();
        store.purge(&purge, Manner::Hard);
        begin.elapsed()
    });
    let best = times.min().unwrap();
    assert!(best < Duration::from_millis(1), "{best:?}");
    assert!(
        (0..count)
            .step_by(997)
            .all(|number| look(&store, &number.to_string()).is_none())
    );
}

#[test]
fn threads_use_it_at_once() {
    let store = store(Settings {
        memory: 1 << 20,
        ..LIMITS
    });
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                let mut zipf = Zipf::new(2_000, 0.8, number);
                for round in 0..20_000 {
                    let asked = zipf.next();
                    let target = asked.to_string();
                    match look(store, &target) {
                        Some((head, _)) => assert_eq!(head, u64::from(asked)),
                        None if round % 2 == 0 => {
                            insert_as(store, &target, "", asked.into());
                        }
                        None => {
                            let mut filling = store.fill(new(store, &target, asked.into()));
                            filling.push(&[0; 700]);
                            filling.finish();
                        }
                    }
                    match round % 1_000 {
                        0 => store.purge(&Purge::All, Manner::Hard),
                        1 => store.purge(&Purge::Subject(tag(store, "front")), Manner::Soft),
                        2 => store.remove(&key(store, &target)),
                        _ => {}
                    }
                }
            });
        }
    });
    store.check();
}
