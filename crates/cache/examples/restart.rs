//! Kills a process in the middle of its writes, and measures what the next one finds.
//!
//! ```sh
//! cargo run --release -p weir-cache --example restart -- FOLDER 10     # with 10 GB of small answers, of 10 KB each
//! ```
//!
//! It fails if less than 95 % are hits one second after the start, or if one is wrong. The folder is removed before and afterwards.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use weir_cache::{
    disk::DiskSettings,
    key::{Key, KeyParts},
    store::{Body, Found, Head, New, ReadBack, Settings, Store},
};

/// The number of a page.
struct Page(u64);

impl Head for Page {
    const FORMAT: u32 = 1;

    fn weight(&self) -> usize {
        0
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Page> {
        Some(Page(u64::from_le_bytes(bytes.try_into().ok()?)))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match &arguments[..] {
        [folder, gigabytes] => gigabytes
            .parse()
            .map_err(io::Error::other)
            .and_then(|gigabytes: f64| measure(Path::new(folder), (gigabytes * 1e9) as u64)),
        [fill, folder, count] if fill == "fill" => count
            .parse()
            .map_err(io::Error::other)
            .and_then(|count| write(Path::new(folder), count)),
        _ => Err(io::Error::other("usage: restart FOLDER GIGABYTES")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "restart: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(folder: &Path, bytes: u64) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let count = bytes / LENGTH as u64;
    let begin = Instant::now();
    let mut child = Command::new(env::current_exe()?)
        .args([Path::new("fill"), folder, &PathBuf::from(count.to_string())])
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?).lines();
    let mut written = 0;
    for line in lines.map_while(Result::ok) {
        written = line.parse().unwrap_or(written);
        if written >= count {
            break;
        }
    }
    // It goes on writing until it is killed.
    child.kill()?;
    child.wait()?;
    let seconds = begin.elapsed().as_secs_f64();
    say(&format!("written: {written} answers in {seconds:.1} s"));

    let before = memory()?;
    let begin = Instant::now();
    let store = open(folder, bytes)?;
    let opened = begin.elapsed();
    let loading = thread::spawn({
        let store = store.clone();
        move || {
            while !store.is_loaded() {
                thread::sleep(Duration::from_millis(1));
            }
            begin.elapsed()
        }
    });
    thread::sleep(Duration::from_secs(1).saturating_sub(begin.elapsed()));
    let early = ask(&store, written, 2_000)?;
    let loaded = loading.join().map_err(|_| io::ErrorKind::Other)?;
    let objects = store.figures().disk.objects.max(1);
    let index = memory()?.saturating_sub(before) as f64 / objects as f64;
    say(&format!(
        "opened after {opened:?}, loaded after {loaded:?}: {objects} answers"
    ));
    say(&format!(
        "memory: {index:.0} bytes for each, with what was read by now"
    ));
    let begin = Instant::now();
    let late = ask(&store, written, ASKED)?;
    let each = begin.elapsed().as_secs_f64() * 1e6 / ASKED as f64;
    let damaged = store.figures().disk.damaged;
    say(&format!(
        "hits: {early:.2} % a second after the start, {late:.2} % later ({each:.0} µs each); {damaged} damaged"
    ));
    drop(store);
    fs::remove_dir_all(folder)?;
    let is_right = early >= 95.0 && damaged == 0;
    is_right
        .then_some(())
        .ok_or_else(|| io::Error::other("that is not what was promised"))
}

/// Asks for answers all over the folder, in no order. The share of hits, percent.
fn ask(store: &Arc<Store<Page>>, written: u64, count: u64) -> io::Result<f64> {
    let mut hits = 0;
    for n in 0..count {
        let number = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % written;
        hits += u32::from(is_hit(store, number)?);
    }
    Ok(f64::from(hits) * 100.0 / count as f64)
}

/// Writes so many answers, tells how far it is, and goes on.
fn write(folder: &Path, count: u64) -> io::Result<()> {
    let store = open(folder, count * LENGTH as u64)?;
    for number in 0..count.saturating_mul(2) {
        let key = key(&store, number);
        let tags =
            ["front", "shop", "product"].map(|tag| store.seed().tag(b"shop", tag.as_bytes()));
        let new = New {
            key,
            vary: None,
            head: Page(number),
            tags: tags.to_vec(),
            asked: store.asked(),
        };
        store.insert(new, body(number));
        if number % 512 == 511 {
            store.flush();
            writeln!(io::stdout(), "{}", number + 1)?;
        }
    }
    Ok(())
}

fn open(folder: &Path, bytes: u64) -> io::Result<Arc<Store<Page>>> {
    let settings = Settings {
        memory: 128 << 20,
        max_object: 1 << 20,
        max_objects: 1_000_000,
        max_variants: 8,
    };
    let disk = DiskSettings {
        folder: folder.to_owned(),
        // There is room for what is written until the process is killed.
        max: bytes + bytes / 4 + (256 << 20),
        file_from: 64 << 10,
    };
    Store::open(settings, disk)
}

fn key(store: &Store<Page>, number: u64) -> Key {
    let target = format!("/shop/product/{number}?colour=blue");
    store.seed().key(&KeyParts {
        site: b"shop",
        target: target.as_bytes(),
        ..KeyParts::default()
    })
}

/// A page that no other number has.
fn body(number: u64) -> Bytes {
    let words =
        (0..LENGTH as u64 / 8).map(|at| (number << 16 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect::<Vec<_>>().into()
}

/// An error: it is wrong.
fn is_hit(store: &Arc<Store<Page>>, number: u64) -> io::Result<bool> {
    let object = match store.look(&key(store, number), |_| Vec::new()) {
        Found::Hit(object, _) => object,
        Found::Miss => return Ok(false),
        Found::OnDisk(on_disk) => match on_disk.read() {
            ReadBack::Hit(object, _) => object,
            ReadBack::Again | ReadBack::Miss => return Ok(false),
        },
    };
    let is_right = matches!(object.body(), Body::Memory(bytes) if *bytes == body(number));
    match is_right && object.head.0 == number {
        true => Ok(true),
        false => Err(io::Error::other(format!("answer {number} is wrong"))),
    }
}

/// Of this process, bytes.
fn memory() -> io::Result<u64> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let pages = pages
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.unwrap_or_default() * 4_096)
}

fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

const ASKED: u64 = 100_000;

/// Of each answer, bytes.
const LENGTH: usize = 10_000;
