//! How much memory the store takes for an answer beside its head, its body and its key: measured, not calculated. It is a program of its own, so
//! that nothing else takes memory meanwhile.

use std::{fs, sync::Arc};

use bytes::Bytes;
use weir_cache::{
    key::KeyParts,
    store::{Head, New, Settings, Store},
};

/// A head without any content.
struct Nothing;

impl Head for Nothing {
    const FORMAT: u32 = 1;

    fn weight(&self) -> usize {
        0
    }

    fn write(&self, _: &mut Vec<u8>) {}

    fn read(_: &[u8]) -> Option<Nothing> {
        Some(Nothing)
    }
}

fn memory() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = pages.split(' ').nth(1).unwrap();
    pages.parse::<usize>().unwrap() * 4_096
}

#[test]
fn an_answer_and_its_tags_take_little_memory() {
    const COUNT: usize = 100_000;
    let settings = Settings {
        memory: 1 << 30,
        max_object: 1 << 20,
        max_objects: COUNT * 2,
        max_variants: 8,
    };
    let store: Arc<Store<Nothing>> = Store::new(settings).unwrap();
    let before = memory();
    let mut texts = 0;
    for number in 0..COUNT {
        let target = format!("/shop/product/{number}");
        let key = store.seed().key(&KeyParts {
            site: b"shop",
            target: target.as_bytes(),
            ..KeyParts::default()
        });
        texts += key.text().len();
        let tags =
            ["front", "product", "shop"].map(|tag| store.seed().tag(b"shop", tag.as_bytes()));
        let new = New {
            key,
            vary: None,
            head: Nothing,
            tags: tags.to_vec(),
            asked: store.asked(),
        };
        assert!(store.insert(new, Bytes::new()));
    }
    let taken = memory() - before;
    let figures = store.figures();
    assert_eq!((figures.objects, figures.evictions), (COUNT as u64, 0));
    let each = (taken - texts) / COUNT;
    println!(
        "{each} bytes for an answer with three tags, counted as {}",
        (figures.bytes as usize - texts) / COUNT
    );
    assert!(
        taken as u64 <= figures.bytes,
        "{taken} bytes are counted as {}",
        figures.bytes
    );
}
