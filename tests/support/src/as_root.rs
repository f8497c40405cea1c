//! Tests of what only root can do. They run for everybody: if an ordinary user runs the tests, the test runs itself
//! again with sudo, as the set-up does. Without sudo it fails. It never passes without having run.

use std::{env, os::unix::fs::MetadataExt, process::Command, thread};

/// Call this at the beginning of a test that needs root. Returns true if the test is to go on. False: it has run as root
/// in a process of its own, without a failure, and has nothing left to do.
///
/// # Panics
/// If the test failed as root, or cannot run as root.
#[track_caller]
#[must_use]
pub fn goes_on_as_root() -> bool {
    if is_root() {
        return true;
    }
    if env::var_os(DONE_BY_ROOT).is_some() {
        return false;
    }
    let name = thread::current().name().unwrap_or("main").to_owned();
    let tests = env::current_exe().expect("the path of the tests");
    let output = Command::new("sudo")
        .args(["-n", "--"])
        .arg(tests)
        .args(["--exact", &name, "--test-threads=2", "--nocapture"])
        .output();
    let output = output.unwrap_or_else(|error| panic!("{name} {NEEDS_ROOT} (sudo: {error})"));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        said.contains("running 1 test"),
        "{name} {NEEDS_ROOT}:\n{said}"
    );
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{name}, as root:\n{said}"
    );
    false
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Set where root runs all tests and then runs them again as another user.
pub const DONE_BY_ROOT: &str = "WEIR_TESTS_DONE_BY_ROOT";

const NEEDS_ROOT: &str =
    "needs root: run the tests as root, or allow sudo without a password (`sudo -n true`)";
