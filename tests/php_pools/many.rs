//! Many pools: what a reload costs and what it leaves alone, and what happens when many are asked at once.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::Signal;
use weir_test::process::{Process, anonymous, cpu_time};
use weir_test::versions::{NEXT, OWN, installed, replace};
use weir_test::weir::program;
use weir_test::{Setup, Weir, php, wait_until};

use super::on_demand::{ask, pools, pools_named};
use super::{masters, pid, setup, workers};

const COLD: &str = "pm = \"ondemand\"\n";

/// Cold pools, with the admin interface.
fn cold(count: usize) -> Setup {
    pools(setup(COLD).admin(), count, COLD)
}

#[track_caller]
fn reload(weir: &Weir) {
    let output = weir.command(&["reload"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn gateways(weir: &Weir) -> Vec<Process> {
    let all = weir.processes().into_iter();
    all.filter(|process| process.name == "weir-gateway")
        .collect()
}

/// The CPU time of a reload: of the manager, and of the gateway that it starts.
fn cpu_of_reload(weir: &Weir) -> Duration {
    wait_until("the gateway before has ended", || gateways(weir).len() == 1);
    let (before, gateway) = (cpu_time(weir.pid()), gateways(weir));
    reload(weir);
    let manager = cpu_time(weir.pid()) - before;
    let new = gateways(weir)
        .into_iter()
        .find(|new| !gateway.contains(new));
    manager + cpu_time(new.expect("another gateway").pid)
}

/// Other work on the machine changes CPU time little, so this is a limit for the work, whatever the machine does.
#[test]
fn the_cpu_time_of_a_reload_grows_with_the_pools_and_not_faster() {
    let of = |count: usize| {
        let weir = cold(count).start();
        (0..3).map(|_| cpu_of_reload(&weir)).min().unwrap()
    };
    let (few, many) = (of(150), of(900));
    // There are six times as many pools. If each pool looked at all others, this would take 36 times as long.
    assert!(many < few * 15, "{few:?} for 150 pools, {many:?} for 900");
}

#[test]
fn reloads_leave_no_memory_behind() {
    let weir = cold(300).start();
    let reloads = |count: usize| (0..count).for_each(|_| reload(&weir));
    reloads(10);
    let before = anonymous(weir.pid());
    reloads(20);
    wait_until("the earlier gateways have ended", || {
        gateways(&weir).len() == 1
    });
    // A configuration with 300 pools has some megabytes. If 20 of them stayed in memory, that would be 50 MB or more.
    wait_until("the manager has given its memory back", || {
        anonymous(weir.pid()) < before + (6 << 20)
    });
}

/// Pools with a worker each, all of which have answered once.
fn used(count: usize) -> Weir {
    let lines = "pm = \"static\"\nmax_children = 1\n";
    let weir = pools(setup(lines).admin(), count, lines).start();
    wait_until("all pools answer", || {
        (0..count).all(|number| ask(&weir, &format!("p{number}")) == 200)
    });
    weir
}

/// The masters' processes by the pool's name.
fn by_pool(weir: &Weir) -> Vec<(String, u32)> {
    let masters = masters(weir).into_iter();
    let named = |master: Process| (title(&master), master.pid);
    let mut all: Vec<_> = masters.map(named).collect();
    all.sort();
    all
}

/// Its name in process lists: `weir-php: pool shop`.
fn title(process: &Process) -> String {
    let words = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let end = words.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&words[..end.unwrap_or(words.len())]).into_owned()
}

fn change(weir: &Weir, from: &str, to: &str) {
    let path = weir.path("weir.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    reload(weir);
}

#[test]
fn a_pool_that_is_changed_added_or_removed_leaves_the_masters_of_others() {
    let weir = used(8);
    let before = by_pool(&weir);
    let of = |all: &[(String, u32)], name: &str| {
        let named = format!("weir-php: pool {name}");
        all.iter().find(|(n, _)| *n == named).map(|(_, pid)| *pid)
    };
    // This pool has changed, so only this pool gets another master.
    change(
        &weir,
        "[pool.p3]\nruntime = \"php\"\n",
        "[pool.p3]\nruntime = \"php\"\nphp_value = { precision = \"10\" }\n",
    );
    wait_until("the changed pool has another master alone", || {
        let now = by_pool(&weir);
        now.len() == before.len() && of(&now, "p3") != of(&before, "p3")
    });
    let after = by_pool(&weir);
    for number in [0, 1, 2, 4, 5, 6, 7] {
        let name = format!("p{number}");
        assert_eq!(of(&after, &name), of(&before, &name), "{name}");
    }
    // Added.
    let root = weir.root();
    change(
        &weir,
        "[pool.p3]",
        &format!(
            "[pool.new]\nruntime = \"php\"\n{}{COLD}[site.new]\nhosts = [\"new\"]\nroot = \"{}\"\npool = \"new\"\n[pool.p3]",
            php::identity(),
            root.display()
        ),
    );
    assert_eq!(by_pool(&weir), after);
    assert_eq!(ask(&weir, "new"), 200);
    // Removed.
    let text = fs::read_to_string(weir.path("weir.toml")).unwrap();
    let from = text.find("[pool.p5]").unwrap();
    let to = text.find("[pool.p6]").unwrap();
    let removed = text[from..to].to_owned();
    change(&weir, &removed, "");
    wait_until("the removed pool has no process", || {
        of(&by_pool(&weir), "p5").is_none()
    });
    for number in [0, 1, 2, 3, 4, 6, 7] {
        let name = format!("p{number}");
        assert_eq!(of(&by_pool(&weir), &name), of(&after, &name), "{name}");
    }
}

#[test]
fn a_changed_php_ini_is_applied_to_all_pools_by_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    weir_test::weir::mode(folder.path(), 0o755);
    let ini = folder.path().join("php.ini");
    let write = |precision: &str| {
        fs::write(&ini, format!("precision = {precision}\n")).unwrap();
        weir_test::weir::mode(&ini, 0o644);
    };
    write("5");
    let lines = format!(
        "pm = \"static\"\nmax_children = 1\nphp_ini = \"{}\"\n",
        ini.display()
    );
    let first = setup(&lines)
        .file("precision.php", "<?php echo ini_get('precision');")
        .admin();
    let weir = pools(first, 24, &lines).start();
    let all_have = |precision: &str| {
        (0..24).all(|number| {
            let host = format!("p{number}");
            let answer = weir.request("GET", "/precision.php", &[("Host", &host)], b"");
            answer.status == 200 && answer.text() == precision
        })
    };
    wait_until("all pools answer", || all_have("5"));
    write("7");
    reload(&weir);
    wait_until("all pools have the new value", || all_have("7"));
    wait_until("the masters before have ended", || {
        masters(&weir).len() == 25
    });
}

#[test]
fn cold_pools_that_are_asked_at_once_go_before_those_that_only_start() {
    const ASKED: usize = 50;
    const STARTING: usize = 150;
    let starts = "pm = \"static\"\nmax_children = 1\n";
    let first = setup(starts).server("php_starts = 2");
    let setup = pools(first, ASKED, COLD);
    let setup = pools_named(setup, "s", STARTING, starts);
    let weir = setup.start();
    let loaded = || weir.stderr().matches(" is loaded").count();
    // The processes are read first. So those that become ready meanwhile are not counted as loading.
    let loading = || {
        let children = weir.children();
        let all = weir.processes().into_iter();
        let masters =
            all.filter(|one| one.name.starts_with("weir-php") && children.contains(&one.pid));
        masters.count().saturating_sub(loaded())
    };
    let most = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..ASKED)
            .map(|number| (&weir, format!("p{number}")))
            .map(|(weir, host)| scope.spawn(move || ask(weir, &host)))
            .collect();
        let mut most = 0;
        while !asking.iter().all(|asked| asked.is_finished()) {
            most = most.max(loading());
        }
        for asked in asking {
            assert_eq!(asked.join().unwrap(), 200);
        }
        most
    });
    let before = loaded();
    assert!(
        before < ASKED + STARTING,
        "all were loaded before the last answer"
    );
    // The log is a little late.
    assert!(most <= 20, "{most} at the same time");
    wait_until("the others are loaded", || loaded() > ASKED + STARTING);
}

#[test]
fn an_upgrade_takes_over_dozens_of_pools_and_loses_no_request() {
    let lines = "pm = \"static\"\nmax_children = 1\n";
    let first = installed(setup(lines).admin());
    // Half of them are cold and stay so.
    let weir = pools(pools_named(first, "s", 12, lines), 24, COLD).start();
    let hosts: Vec<String> = (0..12).map(|number| format!("s{number}")).collect();
    wait_until("all pools answer", || {
        hosts.iter().all(|host| ask(&weir, host) == 200)
    });
    assert_eq!(ask(&weir, "p3"), 200);
    let over = AtomicBool::new(false);
    let statuses = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut statuses = Vec::new();
            while !over.load(Relaxed) {
                statuses.extend(hosts.iter().map(|host| ask(&weir, host)));
            }
            statuses
        });
        for version in [NEXT, OWN] {
            replace(&weir.path("bin"), version);
            let output = weir.command(&["upgrade"]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        over.store(true, Relaxed);
        asking.join().unwrap()
    });
    let failed = statuses.iter().filter(|status| **status != 200).count();
    assert_eq!(failed, 0, "of {}", statuses.len());
    for number in 0..24 {
        assert_eq!(ask(&weir, &format!("p{number}")), 200);
    }
}

/// CPU time of a command with all its children, from the shell that waits for it.
fn cpu_with_children(words: &[&str]) -> Duration {
    let output = Command::new("sh")
        .args(["-c", "\"$@\" >/dev/null || exit 1; times", "sh"])
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // The second line has the times of children: "0m1.230000s 0m0.450000s".
    let times = text.lines().nth(1).expect("the children's times");
    let seconds = times.split_whitespace().map(|time| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    });
    Duration::from_secs_f64(seconds.sum())
}

#[test]
fn weir_check_asks_the_php_of_pools_that_are_alike_once() {
    let check = |count: usize| {
        let setup = pools(setup(COLD), count, COLD);
        let file = setup.write_toml();
        cpu_with_children(&[program(), "check", "-c", file.to_str().unwrap()])
    };
    let (one, many) = (check(0), check(100));
    assert!(many < one * 15, "{one:?} for one pool, {many:?} for 101");
}

#[test]
fn weir_check_names_a_pool_whose_php_cannot_be_loaded_among_others() {
    let setup = pools(setup(COLD), 5, COLD).more(&format!(
        "[pool.bad]\nruntime = \"php\"\n{}php_value = {{ no_such_setting = \"1\" }}\n\
         [pool.worse]\nruntime = \"php\"\n{0}php = \"9.9\"\n",
        php::identity()
    ));
    let file = setup.write_toml();
    let output = Command::new(program())
        .args(["check", "-c", file.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("9.9"), "{said}");
}

#[test]
fn signals_that_stop_or_reload_reach_a_weir_with_many_pools() {
    let mut weir = used(12);
    pid(&weir);
    weir.signal(Signal::HUP);
    weir.wait_for_error(&["reloaded: the new configuration serves"]);
    wait_until("each pool has one master", || masters(&weir).len() == 13);
    weir.stop();
    wait_until("no process is left", || workers(&weir).is_empty());
}
