//! One boot for all workers: they are forked from a process that has booted the application.

use std::{collections::BTreeSet, fs};

use weir_test::{Weir, wait_until};

use super::{booted, text};

/// Counts boots in a file. What the script has of its boot is the zygote's, such as its process id.
const COUNT: &str = "file_put_contents(__DIR__ . '/../spool/boots', '.', FILE_APPEND);";

const ABOUT: &str = "'boot' => function () use ($boot) { echo $boot; },
    'parent' => function () { preg_match('/^PPid:\\s+(\\d+)/m', file_get_contents('/proc/self/status'), $m); echo $m[1]; },
    'crash' => function () { posix_kill(getmypid(), SIGKILL_NUMBER); },
    'work' => function () { usleep(30000); echo getmypid(); },";

fn boots(weir: &Weir) -> usize {
    weir.written("boots").len()
}

/// The zygote's process id, which is the one that the script has noted in its boot.
fn zygote(weir: &Weir) -> String {
    let (boot, own) = (text(weir, "/boot"), text(weir, "/pid"));
    assert_ne!(boot, own, "the worker has booted for itself");
    boot
}

#[test]
fn workers_are_forked_from_one_boot_and_are_the_masters_children() {
    let about = ABOUT.replace("SIGKILL_NUMBER", "9");
    let weir = booted("max_children = 4\nworker_requests = 2\n", COUNT, &about).start();
    let mut pids = BTreeSet::new();
    for _ in 0..40 {
        pids.insert(text(&weir, "/pid"));
    }
    assert!(pids.len() >= 15, "{pids:?}");
    assert_eq!(boots(&weir), 1);
    let zygote = zygote(&weir);
    let parent = fs::read_to_string(format!("/proc/{zygote}/status")).unwrap();
    assert!(
        parent.contains(&format!("PPid:\t{}\n", text(&weir, "/parent"))),
        "{parent}"
    );
    for pid in pids {
        wait_until("it has ended or serves", || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_err() || !stat.unwrap().contains(") Z ")
        });
    }
}

#[test]
fn worker_zygote_false_boots_each_worker() {
    let weir = booted(
        "max_children = 1\nworker_requests = 2\nworker_zygote = false\n",
        COUNT,
        ABOUT,
    )
    .start();
    for _ in 0..10 {
        assert_eq!(text(&weir, "/boot"), text(&weir, "/pid"));
    }
    wait_until("each worker has booted", || boots(&weir) >= 10);
}
