//! `process_control_timeout`: what SIGTERM, SIGQUIT and SIGUSR2 leave of running scripts, in both programs.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    starts::configuration,
    support::{Place, Running, get, wait_until, without_times},
    transcript::Subject,
};

/// Runs until the file `go` exists.
const WAITS: &str = "<?php touch(__DIR__ . '/tmp/begun');
    while (!file_exists(__DIR__ . '/tmp/go')) { usleep(5000); clearstatcache(); }
    touch(__DIR__ . '/tmp/ended'); echo 'finished';";

/// Such a script that ends by SIGKILL alone.
const STAYS: &str = "<?php $c = FFI::cdef('void *signal(int, void *);', 'libc.so.6');
    $c->signal(15, FFI::cast('void *', 1)); touch(__DIR__ . '/tmp/begun'); for (;;) usleep(10000);";

/// What becomes of a program with a script that runs.
struct Case {
    timeout: u32,
    script: &'static str,
    /// Signals, in their order. After the first one the script may end, if it is so.
    signals: &'static [Signal],
    ends: bool,
    /// The script's answer, whether the program ends, and the shortest time until then, or until it serves again.
    finishes: bool,
    stops: bool,
    after: u64,
}

const CASES: &[Case] = &[
    // A script that is shorter than the time, and one that is longer.
    Case {
        timeout: 55,
        script: WAITS,
        signals: &[Signal::QUIT],
        ends: true,
        finishes: true,
        stops: true,
        after: 0,
    },
    Case {
        timeout: 2,
        script: WAITS,
        signals: &[Signal::QUIT],
        ends: false,
        finishes: false,
        stops: true,
        after: 2,
    },
    Case {
        timeout: 55,
        script: WAITS,
        signals: &[Signal::USR2],
        ends: true,
        finishes: true,
        stops: false,
        after: 0,
    },
    Case {
        timeout: 2,
        script: WAITS,
        signals: &[Signal::USR2],
        ends: false,
        finishes: false,
        stops: false,
        after: 0,
    },
    // This signal ends the workers at once, regardless of the time limit.
    Case {
        timeout: 55,
        script: WAITS,
        signals: &[Signal::TERM],
        ends: false,
        finishes: false,
        stops: true,
        after: 0,
    },
    // A worker that ignores the signal is killed a second after the time is over.
    Case {
        timeout: 2,
        script: STAYS,
        signals: &[Signal::TERM],
        ends: false,
        finishes: false,
        stops: true,
        after: 0,
    },
    Case {
        timeout: 1,
        script: STAYS,
        signals: &[Signal::QUIT],
        ends: false,
        finishes: false,
        stops: true,
        after: 1,
    },
    // The second signal has the last word, if it asks for more.
    Case {
        timeout: 55,
        script: WAITS,
        signals: &[Signal::QUIT, Signal::TERM],
        ends: false,
        finishes: false,
        stops: true,
        after: 0,
    },
    Case {
        timeout: 55,
        script: WAITS,
        signals: &[Signal::QUIT, Signal::QUIT],
        ends: true,
        finishes: true,
        stops: true,
        after: 0,
    },
    Case {
        timeout: 55,
        script: WAITS,
        signals: &[Signal::QUIT, Signal::USR2],
        ends: true,
        finishes: true,
        stops: true,
        after: 0,
    },
    Case {
        timeout: 55,
        script: WAITS,
        signals: &[Signal::USR2, Signal::TERM],
        ends: false,
        finishes: false,
        stops: true,
        after: 0,
    },
    Case {
        timeout: 55,
        script: WAITS,
        signals: &[Signal::USR2, Signal::QUIT],
        ends: true,
        finishes: true,
        stops: true,
        after: 0,
    },
];

/// The log after the first signal.
fn look(weir: bool, case: &Case) -> Vec<String> {
    let place = Place::new();
    let global = format!("process_control_timeout = {}", case.timeout);
    let pool = "pm.max_children = 2\nphp_admin_value[ffi.enable] = 1";
    place.write("php-fpm.conf", configuration(&global, pool));
    let script = place.write("runs.php", case.script);
    let other = place.write("other.php", "<?php echo 'served';");
    fs::create_dir(place.path("tmp")).unwrap();
    fs::set_permissions(place.path("tmp"), fs::Permissions::from_mode(0o777)).unwrap();
    let mut running = Running::start(&Subject::program(weir, &place), &place, &[]);
    let seen = running.raw_log().len();
    let socket = place.path("fpm.sock");
    let answer = {
        let socket = socket.clone();
        thread::spawn(move || get(&socket, &script, "/runs.php").out)
    };
    wait_until("the script runs", || place.path("tmp/begun").exists());
    let what = format!("weir: {weir}, {:?} {}", case.signals, case.timeout);
    let begun = Instant::now();
    let mut sent = Vec::new();
    for signal in case.signals {
        running.signal(*signal);
        let name = match *signal {
            Signal::QUIT => "Finishing ...",
            Signal::TERM => "Terminating ...",
            _ => "Reloading in progress ...",
        };
        sent.push(*signal);
        let times = sent.iter().filter(|sent| *sent == signal).count();
        running.wait_for_logs(name, times);
    }
    if case.ends {
        fs::write(place.path("tmp/go"), "").unwrap();
    }
    if case.stops {
        assert_eq!(running.end().unwrap().code(), Some(0), "{what}");
    }
    let answer = answer.join().unwrap();
    assert_eq!(
        answer.ends_with("finished"),
        case.finishes,
        "{what}: {answer}"
    );
    assert!(case.finishes || answer.is_empty(), "{what}: {answer}");
    if !case.stops {
        running.wait_for_logs("ready to handle", 2);
        assert!(get(&socket, &other, "/other.php").out.ends_with("served"));
    }
    assert!(begun.elapsed() >= Duration::from_secs(case.after), "{what}");
    assert_eq!(place.path("tmp/ended").exists(), case.finishes, "{what}");
    let log = without_times(&String::from_utf8_lossy(&running.raw_log()[seen..]));
    let told = [
        "Finishing",
        "Terminating",
        "Reloading",
        "bye-bye",
        "exited",
        "started",
    ];
    log.lines()
        .filter(|line| told.iter().any(|word| line.contains(word)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn signals_give_scripts_the_time_that_php_fpm_gives_them() {
    thread::scope(|scope| {
        let looks: Vec<_> = CASES
            .iter()
            .map(|case| [false, true].map(|weir| scope.spawn(move || look(weir, case))))
            .collect();
        for (case, looks) in CASES.iter().zip(looks) {
            let [fpm, weir] = looks.map(|look| look.join().unwrap());
            assert_eq!(weir, fpm, "{:?} {}", case.signals, case.timeout);
        }
    });
}
