//! `weir bench`: what it counts, which failures it survives, what it refuses to do, and what it prints.

mod advise;
mod counts;
mod hostile;
mod page;
mod refusals;
mod server;
mod times;

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use weir_test::{process, weir::program};

/// Runs `weir bench` with these arguments to its end.
#[track_caller]
fn bench(words: &[&str]) -> Output {
    finish(start(words))
}

/// Starts `weir bench`.
fn start(words: &[&str]) -> Child {
    // As started from a terminal: the environment of the tests may ignore Ctrl-C.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", program(), "bench"]);
    command.args(words);
    command
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("weir")
}

/// Waits for its end. Its output fits into a pipe.
#[track_caller]
fn finish(mut child: Child) -> Output {
    if process::wait(&mut child, Duration::from_secs(120)).is_none() {
        let _ = child.kill();
        panic!("weir bench has not ended: {:?}", child.wait_with_output());
    }
    child.wait_with_output().expect("output")
}

/// Its JSON report, after it has succeeded.
#[track_caller]
fn report(words: &[&str]) -> Value {
    let mut all = words.to_vec();
    all.push("--json");
    read(&bench(&all))
}

#[track_caller]
fn read(output: &Output) -> Value {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{said}", text(&output.stdout)))
}

/// How many requests failed without an answer for this reason.
fn failures(report: &Value, reason: &str) -> u64 {
    let all = report["failures"].as_array().expect("failures");
    let same = all.iter().filter(|entry| entry["reason"] == reason);
    same.map(|entry| entry["count"].as_u64().expect("a count"))
        .sum()
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
