//! What the set-up has built and downloaded for tests.

use std::env;
use std::path::PathBuf;

/// Cargo's target folder.
///
/// # Panics
/// If the tests do not run from one.
pub fn target() -> PathBuf {
    let tests = env::current_exe().expect("the path of the tests");
    // target/debug/deps/TEST
    tests
        .ancestors()
        .nth(3)
        .expect("a target folder")
        .to_owned()
}

/// The folder of the packages for Node that setup/node.sh has downloaded.
///
/// # Panics
/// If it is not there.
pub fn node_modules() -> PathBuf {
    let found = target().join("node/node_modules");
    let said = found.display();
    assert!(
        found.is_dir(),
        "{said} is missing; `make setup-test` downloads it"
    );
    found
}

/// A program that setup/tools.sh has built.
///
/// # Panics
/// If it is not there.
pub fn tool(name: &str) -> PathBuf {
    let found = target().join("tools").join(name);
    let said = found.display();
    assert!(
        found.is_file(),
        "{said} is missing; `make setup-test` builds it"
    );
    found
}
