//! Schedules with a real weir whose clock the test sets (libfaketime). What happens in a whole week is simulated:
//! `crates/pool/tests/behaviour/programs.rs`.

use std::time::{SystemTime, UNIX_EPOCH};

use weir_test::{
    Disk, goes_on_as_root,
    process::newest,
    versions::{NEXT, installed, replace},
};

use super::*;

/// The clock of a weir. It begins three seconds before 10:05 in Berlin, on a Friday in winter.
struct Clock {
    file: PathBuf,
}

/// 27 November 2026, 10:04:57 in Berlin: seconds since 1970.
const BEGIN: i64 = 1_795_770_297;

const HOUR: i64 = 3_600;

impl Clock {
    /// A site that has this clock, from `begin` on.
    fn of(site: Setup, begin: i64) -> (Self, Setup) {
        Self::under(&[], site, begin)
    }

    /// The same, under a command.
    fn under(command: &[String], site: Setup, begin: i64) -> (Self, Setup) {
        let clock = Self {
            file: site.path("clock"),
        };
        clock.set(begin);
        let folder = format!("/usr/lib/{}-linux-gnu/faketime/", std::env::consts::ARCH);
        let library = newest(&folder, "libfaketime.so");
        let library = format!("LD_PRELOAD={}", library.display());
        let file = format!("FAKETIME_TIMESTAMP_FILE={}", clock.file.display());
        let words = [
            "env",
            &library,
            &file,
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "TZ=Europe/Berlin",
        ];
        let command = command.iter().map(String::as_str);
        let site = site.under(&command.chain(words).collect::<Vec<_>>());
        (clock, site)
    }

    fn real() -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.as_secs() as i64
    }

    /// Sets the clock to this time.
    fn set(&self, time: i64) {
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{:+}\n", time - Self::real())).unwrap();
        fs::rename(next, &self.file).unwrap();
    }

    /// Sets the clock of a running weir, which notices it.
    fn set_for(&self, weir: &Weir, time: i64) {
        self.set(time);
        look(weir);
    }
}

/// Notes its run, and waits while there is a file `job`.
const RUN: &str = "file_put_contents('notes', 'run ' . getmypid() . \"\\n\", FILE_APPEND | LOCK_EX); \
                   while (file_exists('job')) usleep(10000);";

fn scheduled(keys: &str) -> Setup {
    site(&["php", "-r", RUN], keys)
}

/// Wakes the manager, and waits until it has looked at its clock.
fn look(weir: &Weir) {
    // When it wakes up again, it is done with what it did before.
    for _ in 0..2 {
        weir.signal(Signal::USR1);
        weir.log_line("logs reopened");
    }
}

fn program(weir: &Weir) -> serde_json::Value {
    weir.status()["programs"][0].clone()
}

/// Waits until the status says so: it may be half a second old.
fn shows(weir: &Weir, key: &str, value: impl Into<serde_json::Value>) {
    let value = value.into();
    wait_until(&format!("{key}: {value}"), || program(weir)[key] == value);
}

#[test]
fn a_program_is_started_when_its_minute_begins_and_skipped_while_it_runs() {
    let (clock, site) = Clock::of(scheduled("schedule = \"*/5 * * * *\""), BEGIN);
    let weir = site.start();
    let before = program(&weir);
    assert_eq!(
        (&before["state"], before["next"].as_i64()),
        (&"waiting".into(), Some(BEGIN + 3))
    );
    fs::write(weir.root().join("job"), "").unwrap();
    // Three seconds later.
    let first = noted(&weir, "run", 1);
    shows(&weir, "state", "running");
    clock.set_for(&weir, BEGIN + 303);
    weir.log_line("its time has come, but it still runs: skipped (1 times so far)");
    fs::remove_file(weir.root().join("job")).unwrap();
    shows(&weir, "state", "waiting");
    assert!(!is_alive(first[0]));
    clock.set_for(&weir, BEGIN + 604);
    noted(&weir, "run", 2);
    shows(&weir, "started", 2);
    shows(&weir, "skipped", 1);
}

#[test]
fn a_time_that_the_clock_jumps_over_is_made_up_once_and_none_is_repeated() {
    let (clock, site) = Clock::of(scheduled("schedule = \"30 10,11 * * *\""), BEGIN);
    let weir = site.start();
    clock.set_for(&weir, BEGIN + 2 * HOUR);
    noted(&weir, "run", 1);
    weir.log_line("1 missed times: the clock has jumped");
    shows(&weir, "state", "waiting");
    clock.set_for(&weir, BEGIN);
    clock.set_for(&weir, BEGIN + HOUR);
    clock.set_for(&weir, BEGIN + 2 * HOUR);
    // Tomorrow.
    clock.set_for(&weir, BEGIN + 23 * HOUR);
    clock.set_for(&weir, BEGIN + 24 * HOUR + HOUR / 2);
    noted(&weir, "run", 2);
    shows(&weir, "started", 2);
    shows(&weir, "made_up", 1);
}

#[test]
fn summer_time_neither_drops_a_time_of_the_day_nor_repeats_one() {
    let keys = "schedule = \"30 2 * * *\"\ntimezone = \"Europe/Berlin\"";
    // 29 March 2026, 1:59:57: three o'clock comes next, and there is no half past two.
    let spring = 1_774_745_997;
    let (clock, site) = Clock::of(scheduled(keys), spring);
    let weir = site.start();
    assert_eq!(program(&weir)["next"], spring + 3);
    noted(&weir, "run", 1);
    shows(&weir, "state", "waiting");
    drop(weir);
    // 25 October 2026, 2:29:57 in summer time. An hour later it is half past two again.
    let autumn = 1_792_888_197;
    fs::remove_dir_all(site.path("state")).unwrap();
    fs::create_dir(site.path("state")).unwrap();
    clock.set(autumn);
    let weir = site.start();
    noted(&weir, "run", 2);
    shows(&weir, "state", "waiting");
    clock.set_for(&weir, autumn + HOUR);
    clock.set_for(&weir, autumn + HOUR + 10);
    clock.set_for(&weir, autumn + HOUR + 120);
    shows(&weir, "started", 1);
    // Tomorrow, in winter time.
    assert_eq!(program(&weir)["next"], autumn + 3 + 25 * HOUR);
}

#[test]
fn a_weir_that_was_killed_makes_up_what_it_missed_and_repeats_nothing() {
    let (clock, site) = Clock::of(scheduled("schedule = \"5 10,12 * * *\""), BEGIN);
    let mut weir = site.start();
    noted(&weir, "run", 1);
    shows(&weir, "state", "waiting");
    weir.kill();
    // It comes back within the same minute, and then after the next time.
    clock.set(BEGIN + 30);
    let mut weir = site.start();
    look(&weir);
    assert_eq!(program(&weir)["started"], 0);
    weir.kill();
    clock.set(BEGIN + 2 * HOUR + 60);
    let weir = site.start();
    noted(&weir, "run", 2);
    shows(&weir, "started", 1);
    drop(weir);
    // Without the file nothing is known, and nothing is made up.
    fs::remove_dir_all(site.path("state")).unwrap();
    fs::create_dir(site.path("state")).unwrap();
    let weir = site.start();
    look(&weir);
    assert_eq!(program(&weir)["started"], 0);
}

#[test]
fn a_run_outlives_reload_and_upgrade_and_the_new_weir_knows_of_it() {
    let keys = "schedule = \"*/5 * * * *\"\noverlap = \"wait\"";
    let (clock, site) = Clock::of(installed(scheduled(keys)), BEGIN);
    let weir = site.start();
    fs::write(weir.root().join("job"), "").unwrap();
    let first = noted(&weir, "run", 1)[0];
    reload(&weir);
    assert_eq!(program(&weir)["processes"][0]["pid"], first);
    replace(&weir.path("bin"), NEXT);
    let output = weir.command(&["upgrade"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        (weir.status()["version"].as_str(), is_alive(first)),
        (Some(NEXT), true)
    );
    assert_eq!(
        (&program(&weir)["state"], &program(&weir)["of_earlier_weir"]),
        (&"running".into(), &1.into())
    );
    // The time comes while the old weir's process runs: the new weir waits for its end.
    clock.set_for(&weir, BEGIN + 303);
    assert_eq!(noted(&weir, "run", 1).len(), 1);
    fs::remove_file(weir.root().join("job")).unwrap();
    noted(&weir, "run", 2);
    wait_until("the end of the first one", || !is_alive(first));
    shows(&weir, "state", "waiting");
    shows(&weir, "started", 1);
}

#[test]
fn a_weir_that_cannot_note_its_times_says_so_and_goes_on() {
    let (_, site) = Clock::of(scheduled("schedule = \"*/5 * * * *\""), BEGIN);
    let folder = site.path("none/state");
    let weir = site
        .server(&format!("state_dir = \"{}\"", folder.display()))
        .start();
    weir.log_line(
        "missed times of programs are not made up; write state_dir = \"FOLDER\" in [server]",
    );
    noted(&weir, "run", 1);
    let output = weir.command(&["status"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("the times of program queue cannot be noted"),
        "{text}"
    );
}

#[test]
fn a_full_disk_stops_no_schedule_and_nothing_is_lost_or_repeated_when_it_has_room_again() {
    if !goes_on_as_root() {
        return;
    }
    let site = scheduled("schedule = \"*/5 * * * *\"");
    let disk = Disk::at(&site.path("state"));
    let (clock, site) = Clock::under(&disk.under(), site, BEGIN);
    disk.fill();
    let mut weir = site.start();
    weir.log_line("No space left on device");
    noted(&weir, "run", 1);
    shows(&weir, "state", "waiting");
    clock.set_for(&weir, BEGIN + 303);
    noted(&weir, "run", 2);
    shows(&weir, "forgets_at_restart", true);
    let said = weir.stderr();
    let told: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("No space"))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    for part in [
        "/state/programs-",
        "missed times of programs are not made up",
        "free some space there, or write state_dir =",
    ] {
        assert!(told[0].contains(part), "{told:?}");
    }
    // weir finds out by itself, not only when the next time comes.
    disk.make_room();
    weir.log_line("is written again");
    shows(&weir, "forgets_at_restart", false);
    weir.kill();
    let mut weir = site.start();
    look(&weir);
    assert_eq!(program(&weir)["started"], 0, "what has run is repeated");
    weir.kill();
    clock.set(BEGIN + 660);
    let mut weir = site.start();
    noted(&weir, "run", 3);
    shows(&weir, "started", 1);
    shows(&weir, "state", "waiting");
    // On a disk that fills later, the last note has its place.
    disk.fill();
    clock.set_for(&weir, BEGIN + 903);
    noted(&weir, "run", 4);
    shows(&weir, "state", "waiting");
    weir.kill();
    let weir = site.start();
    look(&weir);
    assert_eq!(program(&weir)["started"], 0, "what has run is repeated");
    assert_eq!(noted(&weir, "run", 4).len(), 4);
}
