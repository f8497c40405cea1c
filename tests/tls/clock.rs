//! This machine's clock is wrong, or is set while weir runs: certificates are valid by the authority's.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use weir_test::pebble::Habits;
use weir_test::{Setup, wait_until};

use super::acme::{AcmeSite, file, got};

/// A clock that is ahead by what is in the file: seconds.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("WEIR_TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *map = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
	if (map != MAP_FAILED)
		ahead = map;
	close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(clock, time);
	if (result == 0 && clock == CLOCK_REALTIME && ahead)
		time->tv_sec += *ahead;
	return result;
}
"#;

const DAY: i64 = 86_400;

/// Sets the clock of the manager by this many days.
fn set(clock: &Path, days: i64) {
    let file = fs::OpenOptions::new().write(true).open(clock);
    let bytes = (days * DAY).to_ne_bytes();
    file.expect("the clock")
        .write_all_at(&bytes, 0)
        .expect("set");
}

fn with_clock(setup: Setup) -> Setup {
    let (source, object) = (setup.path("clock.c"), setup.path("clock.so"));
    fs::write(&source, CLOCK).expect("the source");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-o"])
        .args([&object, &source])
        .arg("-ldl")
        .status();
    assert!(compiled.expect("cc").success());
    let clock = setup.path("clock");
    fs::write(&clock, [0; 8]).expect("the clock");
    let preload = format!("LD_PRELOAD={}", object.display());
    let path = format!("WEIR_TEST_CLOCK={}", clock.display());
    setup.under(&["env", &preload, &path])
}

#[test]
fn a_clock_that_is_wrong_or_jumps_has_no_certificate_ordered_again() {
    let mut site = AcmeSite::new("[\"shop.example\"]", Habits::default()).with(with_clock);
    let clock = site.setup.path("clock");
    set(&clock, 100);
    site.pebble.come();
    let mut weir = site.setup.start();
    let chain = file(&site.store, "shop.example/chain.pem");
    wait_until("the certificate", || chain.exists());
    let first = fs::read(&chain).expect("a chain");
    weir.wait_for_error(&["the clock of this machine must be wrong", "ahead of"]);
    let same = |what: &str| assert!(fs::read(&chain).expect("a chain") == first, "{what}");
    // The certificate is checked again after five seconds.
    sleep(Duration::from_secs(7));
    same("100 days ahead");
    for (round, days) in (1..).zip([-100, 0, 1_000]) {
        set(&clock, days);
        // A reload looks at once.
        weir.signal(rustix::process::Signal::HUP);
        wait_until("reloaded", || {
            weir.stderr().matches("reloaded").count() >= round
        });
        sleep(Duration::from_secs(1));
        same(&format!("{days} days ahead"));
    }
    weir.stop();
    // After a start the time is not known, so the authority is asked first.
    let weir = site.setup.start();
    weir.wait_for_error(&["the clock of this machine must be wrong", "ahead of"]);
    sleep(Duration::from_secs(1));
    same("after a start");
    let root = site.pebble.root();
    wait_until("it is in use", || {
        got(&weir, &root, "shop.example", "/") == "public\n"
    });
}
