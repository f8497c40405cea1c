//! PHP in weir's own processes: workers that answer early, run for too long, die or write invalid bytes, and changes of
//! the number of workers.

mod deaths;
mod ends;
mod hostile;
mod hosts;
mod limits;
mod many;
mod on_demand;
mod poison;
mod scaling;
mod self_calls;
mod sessions;
mod shared_kills;
mod shared_load;
mod shared_state;
mod status;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use weir_test::process::{Process, descendants};
use weir_test::{LIMIT, Setup, Weir, php, wait_until, written};

/// A pool of weir's own PHP with these lines, and scripts that tests share.
fn setup(lines: &str) -> Setup {
    Setup::new()
        .file("pid.php", "<?php echo getmypid();")
        .file(
            "sleep.php",
            "<?php usleep(1000 * (int)$_GET['ms']); echo getmypid();",
        )
        .file(
            "gate.php",
            "<?php echo getmypid(); touch($_GET['came'] . '.' . getmypid());\n\
             while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }",
        )
        .pool(&format!("runtime = \"php\"\n{}{lines}", php::identity()))
}

/// A pool with a fixed number of workers.
fn fixed(workers: usize, lines: &str) -> Setup {
    setup(&format!(
        "pm = \"static\"\nmax_children = {workers}\n{lines}"
    ))
}

/// The workers of all pools.
fn workers(weir: &Weir) -> Vec<Process> {
    let is_php = |process: &Process| process.name.starts_with("weir-php");
    let all = weir.processes();
    let masters = all.iter().filter(|process| is_php(process));
    let forked: Vec<Process> = masters
        .flat_map(|master| descendants(master.pid))
        .filter(is_php)
        .filter(Process::runs)
        .collect();
    forked
}

/// The masters: processes that have forked workers or will. The manager is their parent.
fn masters(weir: &Weir) -> Vec<Process> {
    let all = weir.processes().into_iter();
    let children = weir.children();
    all.filter(|process| process.name.starts_with("weir-php") && children.contains(&process.pid))
        .collect()
}

#[track_caller]
fn wait_for_workers(weir: &Weir, count: usize) {
    wait_until(&format!("{count} workers"), || workers(weir).len() == count);
}

/// The first pool in weir's status.
fn pool_status(weir: &Weir) -> Value {
    weir.status()["pools"][0].clone()
}

/// How many files have a name that begins with this.
fn count(weir: &Weir, prefix: &str) -> usize {
    let entries = fs::read_dir(weir.folder().join("spool")).expect("the spool");
    let names = entries.flatten().map(|entry| entry.file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with(prefix))
        .count()
}

/// The process that answers.
#[track_caller]
fn pid(weir: &Weir) -> u32 {
    let text = weir.get("/pid.php").expect(200).text();
    text.parse().expect("a process id")
}

/// Requests to scripts that wait at a gate, each in its own thread.
struct Gated {
    gate: PathBuf,
    threads: Vec<std::thread::JoinHandle<u16>>,
}

impl Gated {
    fn start(weir: &Weir, name: &str, requests: usize) -> Gated {
        let gate = weir.scratch(&format!("gate-{name}"));
        let path = format!(
            "/gate.php?gate={}&came={}",
            gate.display(),
            weir.scratch(&format!("came-{name}")).display()
        );
        let thread = |_| {
            let (path, client) = (path.clone(), weir.client().patient(LIMIT * 4));
            std::thread::spawn(move || {
                let mut client = client;
                let request = weir_test::weir::request("GET", &path, &[], b"");
                client.send(request);
                client.response_to("GET").status
            })
        };
        Gated {
            gate,
            threads: (0..requests).map(thread).collect(),
        }
    }

    /// Opens the gate and returns the status of each answer.
    fn open(self) -> Vec<u16> {
        fs::write(&self.gate, "").expect("the gate");
        let answers = self.threads.into_iter();
        answers
            .map(|thread| thread.join().expect("a thread of ours"))
            .collect()
    }
}
