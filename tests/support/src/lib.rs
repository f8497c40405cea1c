//! What the tests with real programs share: a weir for each test, clients, FastCGI programs, and waits with a limit.
//!
//! Two tests share nothing: each has its own folder, loopback address and processes, and ends what it started by
//! process id.
//!
//! This package is for tests only. It shares no code with weir, so that a mistake there cannot hide itself here.

#![forbid(unsafe_code)]
// These make folders and take addresses: no value stands for nothing.
#![allow(clippy::new_without_default)]

mod as_root;
pub mod authority;
pub mod browser;
pub mod built;
pub mod cgroup;
mod disk;
pub mod dns;
pub mod fcgi;
pub mod front;
pub mod h2;
pub mod http;
pub mod http2;
pub mod http3;
pub mod oddity;
pub mod origin;
pub mod pebble;
pub mod php;
pub mod process;
pub mod sidecar;
pub mod tcp;
pub mod versions;
pub mod weir;
pub mod wordpress;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

pub use as_root::{DONE_BY_ROOT, goes_on_as_root};
pub use disk::{Disk, small_disk};
pub use fcgi::Responder;
pub use http::{Client, Response};
pub use weir::{Setup, Weir};

/// Whether the tests run at full length, as in `make conformance`.
pub fn is_at_full_length() -> bool {
    std::env::var_os("WEIR_CONFORMANCE").is_some()
}

/// How often a test does something, or for how long: less in `make test` than in `make conformance`.
pub fn scaled<T>(short: T, full: T) -> T {
    match is_at_full_length() {
        true => full,
        false => short,
    }
}

/// The time that 99 of 100 requests needed at most while a machine was attacked.
#[derive(Debug)]
pub struct Waits {
    /// While a program was attacked that does nothing.
    pub alone: Duration,
    /// While weir was attacked.
    pub beside: Duration,
}

impl Waits {
    /// Measures both. A round attacks the program at `sink`, or weir if it gets `None`. Other work on the machine makes some rounds
    /// slow, so that there are more of them if weir seems to be slow. In `make test`, rounds are too short for such a percentile:
    /// there is one, on weir.
    pub fn measure(
        sink: SocketAddr,
        mut round: impl FnMut(Option<SocketAddr>) -> Duration,
    ) -> Waits {
        let mut waits = Waits {
            alone: Duration::ZERO,
            beside: Duration::MAX,
        };
        for _ in 0..scaled(1, 5) {
            if is_at_full_length() {
                waits.alone = waits.alone.max(round(Some(sink)));
            }
            waits.beside = waits.beside.min(round(None));
            if waits.are_harmless() {
                break;
            }
        }
        waits
    }

    /// Whether the attack on weir makes others wait at most twice as long as an attack on the other program. Differences of
    /// [`SLICE`] say nothing.
    pub fn are_harmless(&self) -> bool {
        !is_at_full_length() || self.beside <= self.alone * 2 + SLICE
    }
}

/// Whoever waits for a processor waits about as long as the kernel lets another thread run. A machine with two processors has
/// no free one during an attack, whether weir is attacked or not.
const SLICE: Duration = Duration::from_millis(1);

/// How long a test waits for something that happens at once on an idle machine. It is long enough for a machine that is
/// slow and busy.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Waits until `done` returns true. Fails with `what` after [`LIMIT`].
#[track_caller]
pub fn wait_until(what: &str, done: impl FnMut() -> bool) {
    wait_within(LIMIT, what, done);
}

/// Waits until `done` returns true. Fails with `what` after this time.
#[track_caller]
pub fn wait_within(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    loop {
        let looked = Instant::now();
        if done() {
            return;
        }
        assert!(began.elapsed() < limit, "waited {limit:?} in vain: {what}");
        // A look that starts a program takes the processor from what it waits for.
        std::thread::sleep((looked.elapsed() * 2).clamp(PAUSE, MOST_PAUSE));
    }
}

/// How long it waits before it looks again, at least.
const PAUSE: Duration = Duration::from_millis(5);

/// And at most.
const MOST_PAUSE: Duration = Duration::from_millis(100);

/// Waits until `find` finds something. Fails with `what` after [`LIMIT`].
#[track_caller]
pub fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    wait_until(what, || {
        found = find();
        found.is_some()
    });
    found.expect("wait_until returns only when it is there")
}

/// Waits until a program has written something to this file, and returns it.
#[track_caller]
pub fn written(file: &Path) -> String {
    wait_for(&format!("a text in {}", file.display()), || {
        let text = std::fs::read_to_string(file).ok();
        text.filter(|text| !text.is_empty())
    })
}

/// An address that nothing else uses: every call returns another 127.x.y.z, so that a port that was free a moment ago
/// is still free when the server binds it.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed) + 1;
    let run = std::process::id();
    let ip = Ipv4Addr::new(
        127,
        (1 + run % 250) as u8,
        (run / 250 % 250) as u8,
        (number % 254 + 1) as u8,
    );
    TcpListener::bind((ip, 0))
        .and_then(|listener| listener.local_addr())
        .expect("a free loopback port")
}

/// The identity that weir and its workers take when the tests run as root.
pub const USER: &str = "nobody";
/// The group of [`USER`].
pub const GROUP: &str = "nogroup";

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The name of the user that weir and its workers run as where a test shares files with them: Debian's user of web servers
/// as root, or else the tests' own user.
pub fn web_user() -> String {
    if is_root() {
        return "www-data".to_owned();
    }
    let output = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A gate that is closed until a test opens it. Workers wait at it.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<u64>, Condvar)>);

impl Gate {
    /// Lets `count` more through.
    pub fn admit(&self, count: u64) {
        *self.0.0.lock().expect("no holder panics") += count;
        self.0.1.notify_all();
    }

    /// Lets everything through from now on.
    pub fn open(&self) {
        self.admit(1 << 40);
    }

    /// Waits until the gate lets it through. It gives up after some [`LIMIT`]s and continues, so that a failed test
    /// ends.
    pub fn pass(&self) {
        let (count, changed) = &*self.0;
        let guard = count.lock().expect("no holder panics");
        let (mut guard, _) = changed
            .wait_timeout_while(guard, LIMIT * 4, |count| *count == 0)
            .expect("no holder panics");
        *guard = guard.saturating_sub(1);
    }
}

/// Numbers that look random, the same in each run. The seed is any number.
pub struct Chance(pub u64);

impl Chance {
    /// The next number, from 0 to `limit` - 1.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// One of these.
    pub fn of<'l>(&mut self, list: &[&'l str]) -> &'l str {
        list[self.below(list.len())]
    }
}
