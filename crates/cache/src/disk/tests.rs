//! The folder: restarts, damage, limits, two processes, and a process that is killed.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{
    purges::{Manner, Purge, Standing},
    store::{
        Body, Found, New, OnDisk, ReadBack, Store,
        tests::{LIMITS, insert_as, key, new, tag},
    },
};

const FILE_FROM: u64 = 4_096;

fn settings(folder: &Path) -> DiskSettings {
    DiskSettings {
        folder: folder.to_owned(),
        max: 64 << 20,
        file_from: FILE_FROM,
    }
}

fn open(folder: &Path) -> Arc<Store<u64>> {
    open_with(settings(folder))
}

fn open_with(settings: DiskSettings) -> Arc<Store<u64>> {
    let store = Store::open(LIMITS, settings).unwrap();
    wait_until(|| store.is_loaded());
    store
}

/// A body that nobody else has.
fn body(number: u64, length: usize) -> Bytes {
    let bytes = (0..length as u64).map(|at| (number * 31 + at * 7 + at / 251) as u8);
    bytes.collect::<Vec<_>>().into()
}

fn insert(store: &Arc<Store<u64>>, number: u64, length: usize) {
    assert!(store.insert(
        new(store, &format!("/{number}"), number),
        body(number, length)
    ));
}

/// Head, content and standing of what is stored.
fn get(store: &Arc<Store<u64>>, target: &str, language: &str) -> Option<(u64, Vec<u8>, Standing)> {
    for _ in 0..4 {
        let found = match store.look(&key(store, target), |_| language.into()) {
            Found::Miss => return None,
            Found::Hit(object, standing) => ReadBack::Hit(object, standing),
            Found::OnDisk(on_disk) => on_disk
                .read_cached()
                .unwrap_or_else(|| OnDisk::read(&on_disk)),
        };
        match found {
            ReadBack::Hit(object, standing) => {
                let content = match object.body() {
                    Body::Memory(bytes) => bytes.to_vec(),
                    Body::File(body) => {
                        let mut bytes = vec![0; body.len() as usize];
                        body.file().read_exact_at(&mut bytes, 0).unwrap();
                        bytes
                    }
                };
                return Some((object.head, content, standing));
            }
            ReadBack::Again => {}
            ReadBack::Miss => return None,
        }
    }
    panic!("it is read again and again");
}

fn has(store: &Arc<Store<u64>>, number: u64, length: usize) -> bool {
    let found = get(store, &format!("/{number}"), "");
    if let Some((head, content, standing)) = &found {
        assert_eq!((*head, *standing), (number, Standing::Valid));
        assert!(
            *content == body(number, length),
            "wrong content of {number}"
        );
    }
    found.is_some()
}

/// A folder that no disk has: for tests that write much or often.
fn in_memory() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap()
}

fn wait_until(done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(stat) if stat.is_dir() => size(&entry.path()),
        Ok(stat) => stat.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

fn files(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|own| own == kind))
        .collect()
}

#[test]
fn answers_survive_a_restart() {
    let folder = TempDir::new().unwrap();
    let lengths = [
        0,
        1,
        700,
        FILE_FROM as usize - 1,
        FILE_FROM as usize,
        50_000,
    ];
    let store = open(folder.path());
    for (number, length) in lengths.into_iter().enumerate() {
        insert(&store, number as u64, length);
    }
    for language in ["de", "en"] {
        assert!(insert_as(&store, "/v", language, 70));
    }
    insert(&store, 1, 3);
    store.flush();
    assert_eq!(
        fs::read_dir(folder.path().join("bodies")).unwrap().count(),
        2
    );
    let Found::Hit(large, _) = store.look(&key(&store, "/5"), |_| Vec::new()) else {
        panic!("not in memory");
    };
    assert!(
        matches!(large.body(), Body::File(_)),
        "its memory was given back"
    );
    store.renew(&large, 5, store.asked());
    drop((large, store));
    for round in 0..3 {
        let store = open(folder.path());
        for (number, length) in lengths.into_iter().enumerate() {
            let length = if number == 1 { 3 } else { length };
            assert!(
                has(&store, number as u64, length),
                "{number} in round {round}"
            );
            assert!(has(&store, number as u64, length), "from memory");
        }
        assert_eq!(get(&store, "/v", "de").map(|found| found.0), Some(70));
        assert_eq!(get(&store, "/v", "en").map(|found| found.0), Some(70));
        assert_eq!(get(&store, "/v", "fr"), None);
        assert_eq!(get(&store, "/none", ""), None);
        assert_eq!(store.figures().disk.damaged, 0);
        store.check();
    }
}

#[test]
fn purges_survive_a_restart() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    for number in 0..4 {
        insert(&store, number, 10);
    }
    let early = New {
        asked: store.asked(),
        ..new(&store, "/9", 9)
    };
    let prefix = Purge::Prefix {
        site: Box::from(*b"shop"),
        host: None,
        target: Box::from(*b"/1"),
    };
    store.purge(&prefix, Manner::Hard);
    store.purge(
        &Purge::Subject(store.seed().url(b"shop", b"", b"/2")),
        Manner::Soft,
    );
    store.remove(&key(&store, "/3"));
    insert(&store, 1, 20);
    store.flush();
    drop(store);
    let store = open(folder.path());
    let standing = |target: &str| get(&store, target, "").map(|found| found.2);
    assert_eq!(standing("/0"), Some(Standing::Valid));
    assert!(has(&store, 1, 20), "it was asked for after the purge");
    assert_eq!(standing("/2"), Some(Standing::Soft));
    assert_eq!(standing("/3"), None);
    store.purge(&Purge::Subject(tag(&store, "front")), Manner::Hard);
    assert_eq!(standing("/0"), None);
    assert!(
        !store.insert(early, Bytes::new()),
        "it was asked for before the restart"
    );
    store.flush();
    drop(store);
    let store = open(folder.path());
    assert!((0..4).all(|number| !has(&store, number, 10)));
}

#[test]
fn purges_that_cannot_be_written_are_not_forgotten() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    insert(&store, 1, 10);
    insert(&store, 2, 10);
    store.flush();
    // A file that is cut, as by somebody who wants to empty it.
    File::options()
        .write(true)
        .open(folder.path().join("purges"))
        .unwrap()
        .set_len(0)
        .unwrap();
    wait_until(|| get(&store, "/1", "").is_some_and(|found| found.2 == Standing::Soft));
    // A folder in its place.
    fs::remove_file(folder.path().join("purges")).unwrap();
    fs::create_dir(folder.path().join("purges")).unwrap();
    store.purge(
        &Purge::Subject(store.seed().url(b"shop", b"", b"/2")),
        Manner::Hard,
    );
    store.flush();
    assert_eq!(get(&store, "/2", ""), None);
    drop(store);
    fs::remove_dir(folder.path().join("purges")).unwrap();
    let store = open(folder.path());
    assert!((1..3).all(|number| !has(&store, number, 10)));
}

#[test]
fn a_lower_limit_holds_from_the_start() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    for number in 0..3_000 {
        insert(&store, number, 3_000);
        if number % 100 == 99 {
            store.flush();
        }
    }
    drop(store);
    assert!(size(folder.path()) > 9_000_000);
    let max = 4 << 20;
    let store = open_with(DiskSettings {
        max,
        ..settings(folder.path())
    });
    store.flush();
    insert(&store, 0, 1);
    store.flush();
    assert!(size(folder.path()) <= max);
    assert!(has(&store, 2_999, 3_000));
}

#[test]
fn a_folder_of_other_heads_or_without_its_purges_is_emptied() {
    for damage in ["store", "purges", "format"] {
        let folder = TempDir::new().unwrap();
        let store = open(folder.path());
        insert(&store, 1, 10);
        insert(&store, 2, 10_000);
        store.flush();
        drop(store);
        fs::write(folder.path().join("own.index"), "of somebody else").unwrap();
        match damage {
            "format" => {
                let seed = read_seed(&folder.path().join("store"), 1).unwrap();
                fs::write(folder.path().join("store"), seed_file(seed, 2)).unwrap();
            }
            file => fs::remove_file(folder.path().join(file)).unwrap(),
        }
        let store = open(folder.path());
        assert!(!has(&store, 1, 10) && !has(&store, 2, 10_000));
        assert_eq!(files(folder.path(), "objects").len(), 0);
        assert_eq!(files(&folder.path().join("bodies"), "").len(), 0);
        assert!(folder.path().join("own.index").exists());
    }
}

/// Every file is cut at every byte, and every byte of it is changed (in `make test`: each seventeenth): an answer is right or it is not there.
#[test]
fn whatever_is_damaged_no_answer_is_wrong() {
    let folder = in_memory();
    let store = open(folder.path());
    insert(&store, 1, 40);
    insert(&store, 2, FILE_FROM as usize);
    insert_as(&store, "/v", "de", 7);
    store.purge(
        &Purge::Subject(store.seed().url(b"shop", b"", b"/3")),
        Manner::Hard,
    );
    insert(&store, 3, 0);
    store.flush();
    drop(store);
    let mut all: Vec<PathBuf> = ["objects", "index"]
        .iter()
        .flat_map(|kind| files(folder.path(), kind))
        .collect();
    all.extend(["store", "purges", "owner"].map(|name| folder.path().join(name)));
    all.extend(
        fs::read_dir(folder.path().join("bodies"))
            .unwrap()
            .flatten()
            .map(|entry| entry.path()),
    );
    let whole: HashMap<&PathBuf, Vec<u8>> = all
        .iter()
        .map(|path| (path, fs::read(path).unwrap()))
        .collect();
    let (mut opened, mut hits) = (0, 0);
    for damaged in &all {
        let bytes = &whole[damaged];
        let step = if bytes.len() as u64 == FILE_FROM {
            511
        } else {
            1
        };
        for at in (0..bytes.len()).step_by(step) {
            for is_cut in [true, false] {
                // Whatever the last round has written is gone.
                for entry in fs::read_dir(folder.path()).unwrap().flatten() {
                    if entry.path() != folder.path().join("bodies") {
                        fs::remove_file(entry.path()).unwrap();
                    }
                }
                for (path, bytes) in &whole {
                    fs::write(path, bytes).unwrap();
                }
                let mut bytes = bytes.clone();
                match is_cut {
                    true => bytes.truncate(at),
                    false => bytes[at] ^= 1 << (at % 8),
                }
                fs::write(damaged, &bytes).unwrap();
                let store = open(folder.path());
                for (number, length) in [(1, 40), (2, FILE_FROM as usize), (3, 0)] {
                    hits += usize::from(has(&store, number, length));
                }
                if let Some((head, content, _)) = get(&store, "/v", "de") {
                    assert_eq!((head, &content[..]), (7, &b"page"[..]));
                    hits += 1;
                }
                opened += 1;
            }
        }
    }
    assert!(hits > opened, "{hits} of {opened}");
}

#[test]
fn files_that_change_while_they_are_used_are_misses() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    for number in 0..4 {
        insert(&store, number, 10);
    }
    for number in 4..8 {
        insert(&store, number, 10_000);
    }
    store.flush();
    drop(store);
    let store = open(folder.path());
    assert!(has(&store, 0, 10) && has(&store, 4, 10_000));
    for path in files(folder.path(), "objects") {
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(0)
            .unwrap();
    }
    // One that was read is in memory; the file of a large one is looked at whenever it is used.
    assert!(has(&store, 0, 10) && has(&store, 4, 10_000));
    assert!(!has(&store, 1, 10) && !has(&store, 1, 10));
    assert_eq!(store.figures().disk.damaged, 1);
    for entry in fs::read_dir(folder.path().join("bodies"))
        .unwrap()
        .flatten()
    {
        let file = File::options().write(true).open(entry.path()).unwrap();
        file.write_all_at(b"x", 5_000).unwrap();
        let later = std::time::SystemTime::now() + Duration::from_secs(2);
        file.set_modified(later).unwrap();
    }
    assert!(!has(&store, 4, 10_000) && !has(&store, 5, 10_000));
    assert_eq!(store.figures().disk.damaged, 3);
    // What is stored anew is right.
    insert(&store, 1, 10);
    insert(&store, 4, 10_000);
    store.flush();
    drop(store);
    let store = open(folder.path());
    assert!(has(&store, 1, 10) && has(&store, 4, 10_000));
}

#[test]
fn the_folder_keeps_its_limit_and_what_is_used() {
    let folder = in_memory();
    let max = 4 << 20;
    let store = open_with(DiskSettings {
        max,
        ..settings(folder.path())
    });
    let mut largest = 0;
    for number in 0..12_000 {
        insert(
            &store,
            number,
            if number % 50 == 7 { 20_000 } else { 1_000 },
        );
        if number % 100 == 99 {
            store.flush();
        }
        if number % 500 == 499 {
            // As often as other pages come and go in memory and on the disk.
            assert!(
                (0..20)
                    .filter(|used| *used != 7)
                    .all(|used| has(&store, used, 1_000))
            );
            largest = largest.max(size(folder.path()));
        }
    }
    store.flush();
    largest = largest.max(size(folder.path()));
    assert!(largest <= max, "{largest}");
    assert!(largest > max / 2, "{largest}");
    let figures = store.figures().disk;
    assert!(figures.evictions > 5_000, "{figures:?}");
    assert_eq!((figures.damaged, figures.not_written), (0, 0));
    // Figures agree with the files, and so do they after a restart.
    let fixed = ["store", "owner", "purges"]
        .map(|name| fs::metadata(folder.path().join(name)).unwrap().len());
    assert_eq!(
        figures.bytes,
        size(folder.path()) - fixed.iter().sum::<u64>()
    );
    drop(store);
    let store = open_with(DiskSettings {
        max,
        ..settings(folder.path())
    });
    assert_eq!(store.figures().disk.bytes, figures.bytes);
    assert_eq!(store.figures().disk.objects, figures.objects);
    assert!(
        (0..20)
            .filter(|used| *used != 7)
            .all(|used| has(&store, used, 1_000))
    );
    assert!(has(&store, 11_999, 1_000));
}

#[test]
fn answers_may_be_asked_for_while_the_folder_is_read() {
    let folder = TempDir::new().unwrap();
    let settings = || DiskSettings {
        max: 16 << 20,
        ..settings(folder.path())
    };
    let store = open_with(settings());
    for number in 0..6_000 {
        insert(&store, number, 1_000);
        if number % 100 == 99 {
            store.flush();
        }
    }
    drop(store);
    assert!(files(folder.path(), "objects").len() > 20);
    for round in 0..10 {
        let store: Arc<Store<u64>> = Store::open(LIMITS, settings()).unwrap();
        let mut number = round;
        while !store.is_loaded() {
            number = (number + 389) % 6_000;
            has(&store, number, 1_000);
        }
        assert!(
            (0..6_000)
                .step_by(97)
                .all(|number| has(&store, number, 1_000))
        );
        assert_eq!(store.figures().disk.damaged, 0);
    }
}

#[test]
fn nobody_waits_for_a_slow_disk() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path());
    // As if the thread were in the middle of a write.
    let disk: Disk<u64> = Disk::open(settings(folder.path()), 10_000, Arc::default())
        .unwrap()
        .0;
    let object = match store.insert(new(&store, "/a", 1), body(1, 3_000)) {
        true => match store.look(&key(&store, "/a"), |_| Vec::new()) {
            Found::Hit(object, _) => object,
            _ => panic!("not there"),
        },
        false => panic!("not stored"),
    };
    for _ in 0..10 {
        disk.write(key(&store, "/a").hash(), &object);
    }
    assert_eq!(disk.counts.not_written.load(Ordering::Relaxed), 7);
    for number in 0..100_000 {
        let purge = Purge::Subject(crate::key::Subject(number));
        disk.purge(Note {
            purge,
            manner: Manner::Soft,
            number,
        });
    }
    let Some(Job::Purges(notes)) = disk.queue.next() else {
        panic!("purges go first");
    };
    assert!(notes.len() < 66_000);
    assert_eq!(notes[0].purge, Purge::All);
}

#[test]
fn two_processes_hear_each_others_purges_and_one_writes() {
    let folder = TempDir::new().unwrap();
    let old = open(folder.path());
    insert(&old, 1, 10);
    insert(&old, 2, 10);
    old.flush();
    let new_one = open(folder.path());
    assert!(has(&new_one, 1, 10) && has(&new_one, 2, 10));
    // The old one only reads from now on.
    let before = size(folder.path());
    insert(&old, 3, 10);
    old.flush();
    assert_eq!(size(folder.path()), before);
    assert!(!has(&new_one, 3, 10));
    let purge = |store: &Arc<Store<u64>>, target: &[u8]| {
        let subject = store.seed().url(b"shop", b"", target);
        store.purge(&Purge::Subject(subject), Manner::Hard);
        store.flush();
    };
    purge(&old, b"/1");
    wait_until(|| !has(&new_one, 1, 10) && !has(&old, 1, 10));
    purge(&new_one, b"/2");
    wait_until(|| !has(&new_one, 2, 10) && !has(&old, 2, 10));
    insert(&new_one, 2, 20);
    purge(&old, b"/3");
    assert!(has(&new_one, 2, 20), "a purge of something else");
    drop(old);
    new_one.flush();
    drop(new_one);
    let third = open(folder.path());
    assert!(has(&third, 2, 20) && !has(&third, 1, 10) && !has(&third, 3, 10));
}

#[test]
fn a_folder_that_is_lost_costs_no_answer_in_memory() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cache");
    let store = open(&path);
    insert(&store, 1, 10);
    store.flush();
    fs::remove_dir_all(&path).unwrap();
    for number in 2..5 {
        insert(&store, number, 10_000);
        store.flush();
    }
    assert!((2..5).all(|number| has(&store, number, 10_000)));
}

/// A full disk: the test runs itself again where it may mount a small one.
#[test]
fn a_full_disk_is_survived() {
    const FOLDER: &str = "WEIR_TEST_FULL_DISK";
    let Some(folder) = std::env::var_os(FOLDER) else {
        let folder = TempDir::new().unwrap();
        let script =
            "mount -t tmpfs -o size=2m weir-test \"$0\" && exec \"$1\" --exact \"$2\" --nocapture";
        let name = thread::current().name().unwrap().to_owned();
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]);
        command
            .arg(folder.path())
            .arg(std::env::current_exe().unwrap())
            .arg(name);
        let output = command.env(FOLDER, folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{output:?}"
        );
        return;
    };
    let folder = PathBuf::from(folder);
    let store = open(&folder);
    for number in 0..3_000 {
        insert(&store, number, if number % 10 == 0 { 6_000 } else { 1_000 });
        if number % 100 == 0 {
            store.flush();
        }
    }
    store.flush();
    let figures = store.figures().disk;
    assert!(
        figures.not_written > 0 && figures.written > 500,
        "{figures:?}"
    );
    assert_eq!(figures.damaged, 0);
    drop(store);
    let store = open(&folder);
    let hits = (0..3_000).filter(|number| {
        has(
            &store,
            *number,
            if number % 10 == 0 { 6_000 } else { 1_000 },
        )
    });
    assert!(hits.count() > 300);
    assert_eq!(store.figures().disk.damaged, 0);
    // Others have made room, and after a pause it is written again.
    for kind in ["objects", "index"] {
        files(&folder, kind)
            .iter()
            .for_each(|path| fs::remove_file(path).unwrap());
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while store.figures().disk.written == 0 {
        assert!(Instant::now() < deadline);
        insert(&store, 9_000, 1_000);
        store.flush();
    }
}

/// A process is killed while it writes: what it has said to be written is there, and nothing is wrong.
#[test]
fn a_killed_process_leaves_whole_answers() {
    const FOLDER: &str = "WEIR_TEST_KILLED";
    let length = |number: u64| {
        if number % 16 == 3 {
            9_000
        } else {
            200 + number as usize % 700
        }
    };
    if let Some(folder) = std::env::var_os(FOLDER) {
        let store = open(Path::new(&folder));
        for number in 0.. {
            insert(&store, number, length(number));
            if number % 64 == 63 {
                store.flush();
                println!("written {}", number + 1);
            }
        }
    }
    let name = thread::current().name().unwrap().to_owned();
    for rounds in [1, 5, 20, 60] {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", &name, "--nocapture"])
            .env(FOLDER, folder.path());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let written = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("written ")?.parse().ok());
        let written: u64 = written.take(rounds).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let begin = Instant::now();
        let store = open(folder.path());
        assert!(begin.elapsed() < Duration::from_secs(10));
        assert!((0..written).all(|number| has(&store, number, length(number))));
        // What it was writing when it was killed is right, or not there.
        for number in written..written + 200 {
            has(&store, number, length(number));
        }
        assert_eq!(store.figures().disk.damaged, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Purges that were read again say the same of each subject, also after the file was written anew.
    #[test]
    fn purges_are_read_as_they_were_noted(purges in prop::collection::vec((0..8_u64, any::<bool>()), 0..30)) {
        let folder = in_memory();
        let path = folder.path().join("purges");
        let noted = Purges::default();
        let (journal, _) = Journal::open(path.clone(), &noted).unwrap();
        journal.begin(&noted).unwrap();
        let mut asked = vec![noted.asked()];
        for (what, is_hard) in purges {
            let purge = match what {
                7 => Purge::All,
                6 => Purge::Prefix { site: Box::from(*b"s"), host: Some(Box::from(*b"h")), target: Box::from(*b"/a") },
                5 => Purge::Prefix { site: Box::from(*b"s"), host: None, target: Box::from(*b"/") },
                what => Purge::Subject(crate::key::Subject(what)),
            };
            let manner = if is_hard { Manner::Hard } else { Manner::Soft };
            let number = noted.note(&purge, manner);
            journal.append(&[Note { purge, manner, number }], &noted).unwrap();
            asked.push(noted.asked());
        }
        let seed = Seed::from_bytes([1; 8]);
        let standing = |purges: &Purges, asked: crate::purges::Asked, tag: u64| {
            let tags = crate::key::Subject(tag).to_bytes();
            let names = crate::purges::Names { tags: &tags, key: b"s\0h\0/a" };
            purges.standing(&seed, names, &AtomicU64::new(asked.0))
        };
        for _ in 0..2 {
            let read = Purges::default();
            let (journal, is_whole) = Journal::open(path.clone(), &read).unwrap();
            prop_assert!(is_whole);
            journal.begin(&read).unwrap();
            for asked in &asked {
                for tag in 0..5 {
                    prop_assert_eq!(standing(&read, *asked, tag), standing(&noted, *asked, tag));
                }
            }
            prop_assert!(read.asked() > *asked.last().unwrap());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200), is_right: bool, length in 0..100_u16, kind in 0..7_u8, (file, check) in (0..2_u64, 0..2_u64)) {
        checks::record(&bytes, is_right);
        checks::index(&bytes, is_right);
        // The same behind a front that fits.
        let inline = if file == 0 { bytes.len().saturating_sub(3) } else { 5 } as u64;
        let bytes = if file == 0 { &bytes[..] } else { &bytes[..bytes.len().min(3)] };
        let numbers = [0, inline, file, check].map(u64::to_le_bytes);
        let front = [&b"12345678weir"[..], &[kind, 0, 0, 0], &numbers[0], &[1, 0, 0, 0, 2, 0, 0, 0], &numbers[1..].concat(), bytes];
        checks::record(&front.concat(), true);
        checks::purges(bytes, is_right);
        checks::purges(&[&length.to_le_bytes(), &[kind, 0][..], bytes].concat(), true);
    }

    #[test]
    fn records_come_back(asked: u64, names: Vec<u8>, head: Vec<u8>, inline: Vec<u8>, file: Option<(u64, u64)>) {
        let id = file.map(|(length, check)| BodyFile { number: 7, length, check });
        let record = Record {
            kind: record::Kind::Object,
            asked,
            names: &names[..],
            head: &head[..],
            body: id.map_or(Content::Here(&inline[..]), Content::File),
        };
        let bytes = Bytes::from(record.write().unwrap());
        let read = Record::read(&bytes).unwrap();
        prop_assert_eq!((read.asked, &read.names[..], &read.head[..]), (asked, &names[..], &head[..]));
        match (read.body, id) {
            (Content::Here(body), None) => prop_assert_eq!(&body[..], &inline[..]),
            (Content::File(own), Some(id)) => prop_assert_eq!(own, id),
            _ => prop_assert!(false),
        }
    }
}
