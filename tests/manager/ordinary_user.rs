//! The users that weir runs as: as root it gives its processes ordinary users. As an ordinary user it works the same
//! except for that. With `WEIR_CONFORMANCE` in the environment (`make conformance`) root runs all tests as an ordinary user too.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

use crate::support::*;

/// The user `nobody` on Debian.
const NOBODY: u32 = 65_534;

/// Tests that are long, or measure short times, and in which it matters least which user weir is.
const LONG: &[&str] = &[
    "busy::",
    "failed_reload::",
    "php_processes::builds::",
    "php_processes::life::",
    "residue::",
    "stuck::",
    "upgrade_races::",
];

#[test]
fn all_that_root_is_promised_an_ordinary_user_is_promised_too() {
    if !is_root() {
        // An ordinary user runs all these tests anyway.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Other users may not enter the folder of the build.
    let copy = |from: &std::path::Path, name: &str| {
        let path = folder.path().join(name);
        fs::copy(from, &path).unwrap();
        path
    };
    let tests = copy(&std::env::current_exe().unwrap(), "tests");
    let weir = copy(program().as_ref(), "weir");
    for php in php_files() {
        copy(&php, php.file_name().unwrap().to_str().unwrap());
    }
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    // Into a file: a process that a failed test leaves would hold a pipe open, and this test would wait for it.
    let printed = folder.path().join("printed");
    let out = fs::File::create(&printed).unwrap();
    let left_out = scaled(LONG, &[]);
    let status = Command::new(tests)
        .args(left_out.iter().flat_map(|name| ["--skip", name]))
        .env(PROGRAM, weir)
        .env(DONE_BY_ROOT, "1")
        .env("TMPDIR", folder.path())
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("RUNTIME_DIRECTORY")
        .current_dir(folder.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .status()
        .unwrap();
    let said = fs::read_to_string(&printed).unwrap();
    assert!(status.success(), "{said}");
    for test in [
        "a_worker_killed_is_replaced",
        "killing_the_manager_leaves_nothing_behind",
    ] {
        assert!(said.contains(&format!("{test} ... ok")), "{said}");
    }
}

#[test]
fn as_root_gateway_and_workers_are_ordinary_users() {
    if !goes_on_as_root() {
        return;
    }
    let weir = cgi_site().start();
    assert_ne!(number(&answer_of_pid(&weir), "uid"), 0);
    // A process that was forked just now has not executed its program yet.
    let is_root = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        users.is_none_or(|users| users.split_whitespace().any(|uid| uid == "0"))
    };
    wait_until("no child is root", || {
        !weir.children().into_iter().any(is_root)
    });
    let status = fs::read_to_string(format!("/proc/{}/status", weir.gateway().pid)).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    let manager = fs::read_to_string(format!("/proc/{}/status", weir.pid())).unwrap();
    // The manager has one thread for its work, and one for the error log.
    assert!(manager.contains("Threads:\t2\n"), "{manager}");
}

#[test]
fn root_without_a_user_in_the_configuration_does_not_serve_as_root() {
    let site = cgi_site();
    let line = format!("user = \"{}\"\n", web_user());
    let weir = site.start_toml(&site.toml().replace(&line, ""));
    assert_ne!(number(&answer_of_pid(&weir), "uid"), 0);
}

#[test]
fn an_ordinary_user_serves_as_itself_and_cannot_become_another() {
    let site = cgi_site();
    let copy = site.path("weir");
    fs::copy(program(), &copy).unwrap();
    mode(site.folder(), 0o777);
    let mut site = site.program(&copy);
    let mut uid = rustix::process::geteuid().as_raw();
    if is_root() {
        let id = format!("--reuid={NOBODY}");
        let words = ["setpriv", &id, "--regid=65534", "--clear-groups"];
        site = site.under(&words).server("user = \"nobody\"");
        uid = NOBODY;
    }
    let weir = site.start();
    assert_eq!(number(&answer_of_pid(&weir), "uid"), uid);
    drop(weir);
    let with = |lines: &str| site.clone().server(lines).toml();
    let low_port = site
        .toml()
        .replace(&site.address().to_string(), "127.0.0.1:80");
    for (text, said) in [
        (
            with("user = \"www-data\""),
            "only root can change to another user",
        ),
        (with("chroot = \"/srv\""), "only root can use chroot"),
        (low_port, "only root can listen"),
    ] {
        if said == "only root can listen" && low_ports_are_free() {
            continue;
        }
        let (status, output) = site.start_toml_in_vain(&text);
        assert_eq!(status.code(), Some(78), "{output}");
        assert!(output.contains(said), "{said} is not in: {output}");
    }
}
