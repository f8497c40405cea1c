//! A new program takes over from a running weir, or does not come up and changes nothing.

use std::process::Output;

use weir_test::{
    LIMIT,
    process::{descendants, wait},
    versions::{NEXT, OWN, break_weir, installed, replace, replace_php},
    wait_for,
};

use super::{service_manager::Service, *};

/// A site in whose folder `bin` weir runs and can be replaced.
fn site() -> Setup {
    let php = format!(
        "runtime = \"php\"\nmax_children = 2\n{}",
        weir_test::php::identity()
    );
    installed(site_without_pool().pool(&php).admin())
}

fn upgrade(weir: &Weir) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = weir.command(&["upgrade"]).output().unwrap();
    (
        status.code(),
        String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned(),
    )
}

/// The manager that is in charge, according to the status.
fn manager(weir: &Weir) -> u32 {
    u32::try_from(weir.status()["manager_pid"].as_u64().unwrap()).unwrap()
}

fn version(weir: &Weir) -> String {
    weir.status()["version"].as_str().unwrap().to_owned()
}

#[test]
fn a_reload_after_the_files_were_replaced_is_an_upgrade() {
    let weir = site().start();
    let (first, worker) = (manager(&weir), pid(&weir));
    assert_eq!((first, version(&weir)), (weir.pid(), OWN.to_owned()));
    replace(&weir.path("bin"), NEXT);
    let output = weir.command(&["reload"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    let second = manager(&weir);
    assert_eq!(
        said.trim(),
        format!("weir {NEXT} serves (process {second})")
    );
    assert_eq!(version(&weir), NEXT);
    assert_ne!((pid(&weir), second), (worker, first));
    let written = fs::read_to_string(weir.path("weir.pid")).unwrap();
    assert_eq!(written, format!("{second}\n"));
    weir.log_line("was replaced since this weir started: the reload is an upgrade");
    // Without another file it is a reload.
    let output = weir.command(&["reload"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(manager(&weir), second);
    // As a signal, to the process that was started first.
    replace(&weir.path("bin"), OWN);
    weir.signal(Signal::HUP);
    wait_until("another version", || version(&weir) == OWN);
    assert_ne!(manager(&weir), second);
    pid(&weir);
}

#[test]
fn the_process_that_was_started_stays_passes_signals_on_and_ends_with_the_new_one() {
    let site = with_unix_listener(site());
    let mut weir = site.start();
    let processes = weir.processes();
    for _ in 0..2 {
        let (code, said) = upgrade(&weir);
        assert_eq!(code, Some(0), "{said}");
    }
    let main = manager(&weir);
    assert_ne!(main, weir.pid());
    wait_until("the first weirs have finished", || {
        processes.iter().all(|process| !process.runs()) && weir.children() == [main]
    });
    let (socket, pid_file) = (site.path("weir.sock"), site.path("weir.pid"));
    UnixStream::connect(&socket).unwrap();
    // A rotation of the logs reaches the one in charge.
    weir.signal(Signal::USR1);
    weir.log_line("logs reopened");
    stop_while_a_script_runs(&site, &weir);
    assert_eq!(weir.wait_for_end().code(), Some(0));
    assert!(!is_alive(main));
    assert!(!socket.exists() && !pid_file.exists() && !site.path("admin.sock").exists());
}

#[test]
fn a_signal_to_all_processes_of_the_service_still_lets_requests_finish() {
    let site = site();
    let mut weir = site.start();
    let (code, said) = upgrade(&weir);
    assert_eq!(code, Some(0), "{said}");
    let main = manager(&weir);
    let mut slow = weir.client();
    slow.send("GET /slow.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    wait_until("the slow script runs", || {
        site.path("root/started").exists()
    });
    // The weir in charge gets the signal twice: from the test, and from the process that was started.
    signal(main, Signal::TERM);
    weir.signal(Signal::TERM);
    assert_eq!(slow.response().expect(200).text(), "slow done");
    assert_eq!(weir.wait_for_end().code(), Some(0));
    assert!(!is_alive(main));
}

#[test]
fn when_one_of_both_is_killed_nothing_is_left() {
    let mut weir = site().start();
    assert_eq!(upgrade(&weir).0, Some(0));
    weir.kill();
    let mut weir = site().start();
    assert_eq!(upgrade(&weir).0, Some(0));
    let processes = weir.processes();
    signal(manager(&weir), Signal::KILL);
    assert_eq!(weir.wait_for_end().code(), Some(70));
    weir_test::weir::expect_gone(&processes);
}

#[test]
fn the_old_one_finishes_its_requests_and_the_status_and_the_stop_know_of_them() {
    let weir = site().start();
    let old = weir.gateway();
    let mut slow = weir.client();
    slow.send("GET /endless.php HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_until("the script runs", || weir.path("root/started").exists());
    assert_eq!(upgrade(&weir).0, Some(0));
    let status = wait_for("a report of the old weir", || {
        let status = weir.status();
        let old = status["old_generations"]
            .as_array()
            .is_some_and(|old| !old.is_empty());
        old.then_some(status)
    });
    let finishing = &status["old_generations"][0];
    assert_eq!(finishing["gateway_pid"], old.pid, "{finishing}");
    assert!(old.runs());
    pid(&weir);
    // The process that was started first is asked to end, and with it all of them at once.
    weir.signal(Signal::INT);
    assert!(slow.response_if_any("GET").is_none());
}

/// Fails unless an upgrade fails with these words and the weir before serves as if nothing had been.
#[track_caller]
fn expect_refused(weir: &Weir, what: &str, words: &[&str]) {
    let gateway = weir.gateway().pid;
    let (code, said) = upgrade(weir);
    assert_eq!(code, Some(70), "{what}: {said}");
    for word in words {
        assert!(said.contains(word), "{what}: no {word:?} in {said}");
    }
    expect_unchanged(weir, gateway, what);
}

#[track_caller]
fn expect_unchanged(weir: &Weir, gateway: u32, what: &str) {
    weir.log_line("upgrade failed, nothing was changed");
    let serves = (manager(weir), weir.gateway().pid);
    assert_eq!(serves, (weir.pid(), gateway), "{what}");
    pid(weir);
    let written = fs::read_to_string(weir.path("weir.pid")).unwrap();
    assert_eq!(written.trim(), weir.pid().to_string());
}

#[test]
fn a_new_weir_that_does_not_come_up_changes_nothing_and_the_reason_is_told() {
    let weir = site().start();
    let bin = weir.path("bin");
    let refused = |what: &str, words: &[&str]| expect_refused(&weir, what, words);
    break_weir(
        &bin,
        "#!/bin/sh\necho 'a library is missing' >&2\nexit 127\n",
    );
    refused("ends", &["exit code 127", "a library is missing"]);
    break_weir(&bin, "#!/bin/sh\nkill -SEGV $$\n");
    refused("crashes", &["SIGSEGV"]);
    break_weir(&bin, "no program");
    refused("is no program", &["ended before it served"]);
    fs::remove_file(bin.join("weir")).unwrap();
    refused("is gone", &["cannot be started"]);
    // weir-php of the old version.
    replace(&bin, NEXT);
    replace_php(&bin, OWN);
    refused(
        "has an old weir-php",
        &[
            &format!("weir-php is version {OWN}"),
            &format!("weir is version {NEXT}"),
        ],
    );
    replace_php(&bin, NEXT);
    let file = weir.path("weir.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}\n[sever]\n")).unwrap();
    refused("has a wrong configuration", &["sever"]);
    fs::write(&file, text).unwrap();
    let (code, said) = upgrade(&weir);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(version(&weir), NEXT);
}

#[test]
fn a_new_weir_that_does_not_come_up_in_time_is_ended_and_what_it_said_is_told() {
    let weir = site().server("upgrade_timeout = \"2s\"").start();
    let bin = weir.path("bin");
    break_weir(&bin, "#!/bin/sh\necho wait >&2\nexec sleep 100\n");
    expect_refused(&weir, "hangs", &["within 2s", "upgrade_timeout", "wait"]);
    // The new weir's output does not keep the old weir from its other work, or from giving the new one up.
    break_weir(&bin, "#!/bin/sh\nexec yes 'a line without end' >&2\n");
    let words = ["within 2s", "a line without end"];
    expect_refused(&weir, "prints without end", &words);
}

/// It has a PHP master already, which loads a script that does not end.
#[test]
fn a_new_weir_that_does_not_come_up_in_time_is_ended_with_all_that_it_has_started() {
    let weir = site().server("upgrade_timeout = \"8s\"").start();
    let gateway = weir.gateway().pid;
    fs::write(weir.root().join("hangs.php"), "<?php sleep(600);").unwrap();
    let hangs = weir.root().join("hangs.php");
    let preload = format!(
        "[pool.app]\nphp_define = {{ \"opcache.preload\" = \"{}\", \"opcache.preload_user\" = \"{}\" }}\n",
        hangs.display(),
        web_user()
    );
    let file = weir.path("weir.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("[pool.app]\n", &preload)).unwrap();
    let known = weir.children();
    let upgrade = weir
        .command(&["upgrade"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let new = wait_for("the new weir", || {
        let new = weir.processes().into_iter();
        let mut new = new.filter(|one| one.name == "weir" && !known.contains(&one.pid));
        new.find(|one| weir.children().contains(&one.pid))
    });
    let mut started = wait_for("its PHP master", || {
        let started = descendants(new.pid);
        (!started.is_empty()).then_some(started)
    });
    started.push(new);
    let output = upgrade.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("within 8s"), "{said}");
    expect_unchanged(&weir, gateway, "loads PHP without end");
    weir_test::weir::expect_gone(&started);
    fs::write(&file, text).unwrap();
}

#[test]
fn only_one_upgrade_at_a_time_and_a_stop_ends_it() {
    let site = site().server("upgrade_timeout = \"300s\"");
    let mut weir = site.start();
    let fails = weir.path("bin");
    break_weir(&fails, "#!/bin/sh\nexec sleep 300\n");
    let first = weir
        .command(&["upgrade"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let line = weir.log_line("upgrade: ");
    assert!(line.contains("bin/weir starts"), "{line}");
    let (code, said) = upgrade(&weir);
    assert!(
        code == Some(70) && said.contains("already under way"),
        "{said}"
    );
    // The old weir serves meanwhile, and a stop does not wait for the new one.
    pid(&weir);
    weir.stop();
    let output = first.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(70));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("weir is stopping"), "{said}");
}

#[test]
fn the_service_manager_is_told_the_new_process_and_the_old_one_ends() {
    let site = site();
    let mut service = Service::start(&site);
    let first = service.child.id();
    service.hear(|line| line == format!("MAINPID={first}"));
    replace(&site.path("bin"), NEXT);
    assert!(service.command("upgrade"));
    service.hear(|line| line == "RELOADING=1");
    let message = service.hear(|line| line.starts_with("MAINPID="));
    assert!(message.contains("READY=1"), "{message}");
    let (_, main) = message.split_once("MAINPID=").unwrap();
    let main: u32 = main.lines().next().unwrap().parse().unwrap();
    assert_ne!(main, first);
    let status = wait(&mut service.child, LIMIT).expect("the old weir ends");
    assert_eq!(status.code(), Some(0));
    let own = service.hear(|line| line == format!("MAINPID={main}"));
    assert!(own.contains("READY=1"), "{own}");
    assert_eq!(get(site.address(), "/a.txt").expect(200).text(), "hello\n");
    let written = fs::read_to_string(site.path("weir.pid")).unwrap();
    assert_eq!(written, format!("{main}\n"));
    signal(main, Signal::TERM);
    service.hear(|line| line == "STOPPING=1");
    wait_until("it ends", || !is_alive(main));
    assert!(!site.path("weir.pid").exists());
}
