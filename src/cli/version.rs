//! `weir --version`: the version of weir, and the PHP versions that it finds.

use std::{
    fmt::Write,
    io::Read,
    process::Stdio,
    time::{Duration, Instant},
};

use weir_machine::php;

/// The output, with a newline at the end of each line.
pub(super) fn text() -> String {
    let mut text = format!("{}\n", first_line());
    let found = php::all();
    for program in &found {
        let whole = whole_version(program).unwrap_or_else(|| program.version.clone());
        let other = match php::check_build(&program.object) {
            Ok(()) => "",
            Err(_) => ", from another build: this weir cannot use it",
        };
        let _ = writeln!(text, "PHP {whole} ({}{other})", program.shown());
    }
    if found.is_empty() {
        let cause = php::find(None)
            .err()
            .map_or(String::new(), |(cause, _)| cause);
        let cause = cause
            .strip_prefix("PHP is configured, but ")
            .unwrap_or(&cause);
        let mend = match php::all_objects().first() {
            None => "build weir-php with: make php".to_owned(),
            Some(object) => format!(
                "there is {}: install the PHP that it is for, or build weir-php for another one with: make php",
                object.display()
            ),
        };
        let _ = writeln!(text, "no PHP: {cause} ({mend})");
    }
    text
}

/// `weir 0.1.0 (0123456789ab)`
fn first_line() -> String {
    let version = weir_sys::version::version();
    match env!("WEIR_BUILT_FROM") {
        "" => format!("weir {version}"),
        commit => format!("weir {version} ({commit})"),
    }
}

/// The version that `weir-php -v` prints: `8.2.29`. `None` if it does not, or takes too long.
fn whole_version(program: &php::Program) -> Option<String> {
    let mut child = program
        .command(std::env::vars_os().collect())
        .arg("-v")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let began = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if began.elapsed() < PATIENCE => std::thread::sleep(LOOK),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                break false;
            }
        }
    };
    let mut said = String::new();
    // The output is smaller than a pipe's buffer, so it was written completely.
    child.stdout?.take(1024).read_to_string(&mut said).ok()?;
    let version = said.strip_prefix("PHP ")?.split_whitespace().next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-+~".contains(c);
    (ended && version.chars().all(plain)).then(|| version.to_owned())
}

/// PHP first reads its configuration and its extensions.
const PATIENCE: Duration = Duration::from_secs(5);

/// Pause between two checks whether it has ended.
const LOOK: Duration = Duration::from_millis(5);
