//! Pages on a disk: reloads and restarts keep them, and large ones are files.

use std::fs;

use weir_test::{Setup, Weir, wait_until, weir::mode};

use crate::{fresh, runs, said, setup, with};

/// With a folder for pages.
fn on_disk(more: &str) -> Setup {
    let setup = setup(2, "cache = { preset = \"headers\", cache_status = true }\n").admin();
    let folder = setup.path("pages");
    fs::create_dir(&folder).expect("mkdir");
    mode(&folder, 0o777);
    let cache = format!("[cache]\ndisk = \"{}\"\n{more}", folder.display());
    setup.more(&cache)
}

fn wait_for_written(weir: &Weir, count: u64) {
    wait_until("all is written", || {
        weir.status()["cache"]["disk"]["written"].as_u64() >= Some(count)
    });
}

/// Small and large ones, with variants and tags.
fn pages() -> Vec<String> {
    let language = "Vary: Accept-Language";
    let mut all: Vec<_> = (0..20)
        .map(|number| fresh(&format!("small{number}")))
        .collect();
    all.push(fresh("large") + "&bytes=300000&etag=v1");
    all.push(with(
        "varies",
        &["Cache-Control: max-age=60", language, "xkey: lamps"],
    ));
    all
}

fn expect_hits(weir: &Weir, before: &[Vec<u8>]) {
    for (url, body) in pages().iter().zip(before) {
        let hit = weir.get(url).expect(200);
        assert!(said(&hit).starts_with("weir; hit"), "{url}: {}", said(&hit));
        assert!(hit.body == *body, "{url}");
    }
}

#[test]
fn reloads_restarts_and_kills_keep_the_pages() {
    let setup = on_disk("");
    let mut weir = setup.start();
    let bodies: Vec<_> = (pages().iter())
        .map(|url| weir.get(url).expect(200).body)
        .collect();
    expect_hits(&weir, &bodies);
    let reloaded = weir.command(&["reload"]).output().expect("weir reload");
    assert!(reloaded.status.success(), "{reloaded:?}");
    expect_hits(&weir, &bodies);
    weir.stop();
    let mut weir = setup.start();
    expect_hits(&weir, &bodies);
    // A part of a page that is a file.
    let large = fresh("large") + "&bytes=300000&etag=v1";
    let part = weir
        .request("GET", &large, &[("Range", "bytes=299990-")], b"")
        .expect(206);
    assert_eq!(part.text(), "0123456789");
    weir.get(&fresh("last")).expect(200);
    wait_for_written(&weir, 1);
    weir.kill();
    let weir = setup.start();
    expect_hits(&weir, &bodies);
    assert_eq!(runs(&weir, "small0"), 1);
    // Purges are kept, too.
    weir.get(&with("purge", &["Weir-Purge: lamps; hard"]))
        .expect(200);
    drop(weir);
    let weir = setup.start();
    let gone = weir.get(&pages()[21]).expect(200);
    assert_eq!(gone.text(), "run 2");
}

/// More pages than memory: the rest comes from the disk.
#[test]
fn what_memory_has_no_room_for_comes_from_the_disk() {
    let setup = on_disk("memory = \"1M\"\nmax_object = \"100K\"\nfile_from = \"20K\"\n");
    let weir = setup.start();
    let url =
        |number: usize| fresh(&format!("p{number}")) + &format!("&bytes={}", 1000 + number * 500);
    for number in 0..100 {
        weir.get(&url(number)).expect(200);
    }
    wait_for_written(&weir, 90);
    for number in 0..100 {
        let answer = weir.get(&url(number)).expect(200);
        assert_eq!(answer.body.len(), 1000 + number * 500);
    }
    let cache = &weir.status()["cache"];
    assert!(cache["bytes"].as_u64() <= Some(1 << 20), "{cache}");
    let made = (0..100)
        .map(|number| runs(&weir, &format!("p{number}")))
        .sum::<usize>();
    assert!(made <= 110, "{made} scripts: {cache}");
}

#[test]
fn a_folder_that_is_missing_is_a_mistake() {
    let setup = setup(1, "cache = \"headers\"\n").more("[cache]\ndisk = \"/nowhere/at/all\"\n");
    let (status, said) = setup.start_in_vain();
    assert!(!status.success() && said.contains("cache.disk"), "{said}");
}
