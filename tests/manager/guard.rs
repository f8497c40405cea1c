//! What an attacker with the rights of a pool's user cannot make root do, and cannot do to the gateway.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use weir_test::free_address;

use crate::support::*;

/// A folder that the pool's user owns, and a file of root that nobody else may write. Both are next to the site.
fn folder_of_the_pool(site: &Setup) -> (PathBuf, PathBuf) {
    let (folder, secret) = (site.path("logs"), site.path("secret"));
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(id("www-data")), None).unwrap();
    fs::write(&secret, "as it was\n").unwrap();
    mode(&secret, 0o600);
    (folder, secret)
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn root_writes_to_no_link_pipe_or_second_name_in_a_folder_of_the_pools_user_at_the_start() {
    if !goes_on_as_root() {
        return;
    }
    let site = cgi_site();
    let (folder, secret) = folder_of_the_pool(&site);
    let log = folder.join("a.log");
    let shown = log.display();
    let line = |key: &str| format!("{key} = \"{shown}\"");
    let access_log = site
        .clone()
        .log(&format!("error = \"stderr\"\n{}", line("access")));
    let setups = [
        access_log.clone(),
        site.clone()
            .log(&format!("access = \"off\"\n{}", line("error"))),
        site.clone().pool(&line("output_log")),
        site.clone().pool(&line("access_log")),
        site.clone().server(&line("pid_file")),
    ];
    let refused = |what: &str| {
        for setup in &setups {
            let text = setup.toml();
            let (status, said) = setup.start_in_vain();
            assert_eq!(status.code(), Some(78), "{text}: {said}");
            assert!(said.contains(what), "{text}: {said}");
            assert!(said.contains(&folder.display().to_string()), "{said}");
        }
        fs::remove_file(&log).unwrap();
    };
    symlink(&secret, &log).unwrap();
    refused("is a symbolic link");
    fs::hard_link(&secret, &log).unwrap();
    refused("has other names too");
    make_fifo(&log);
    refused("is no regular file");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "as it was\n");
    // weir writes to an ordinary file there, and to a link elsewhere that root created.
    let weir = access_log.start();
    weir.get("/a.txt");
    wait_until("there is a line", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("/a.txt"))
    });
    drop(weir);
    let (target, link) = (site.path("elsewhere.log"), site.path("link.log"));
    symlink(&target, &link).unwrap();
    let weir = site
        .log(&format!("access = \"{}\"", link.display()))
        .start();
    weir.get("/a.txt");
    wait_until("there is a line", || {
        fs::read_to_string(&target).is_ok_and(|text| text.contains("/a.txt"))
    });
}

#[test]
fn root_follows_no_link_at_sigusr1_and_turns_the_other_logs_over_all_the_same() {
    if !goes_on_as_root() {
        return;
    }
    let site = cgi_site();
    let (folder, secret) = folder_of_the_pool(&site);
    let (spoiled, output, own) = (
        folder.join("access.log"),
        folder.join("output.log"),
        site.path("own.log"),
    );
    let logs = format!(
        "access_log = \"{}\"\noutput_log = \"{}\"",
        spoiled.display(),
        output.display()
    );
    let mut weir = site
        .clone()
        .pool(&logs)
        .log(&format!("access = \"{}\"", own.display()))
        .start();
    pid(&weir);
    for log in [&spoiled, &output] {
        fs::remove_file(log).unwrap();
        symlink(&secret, log).unwrap();
    }
    let moved = site.path("own.log.1");
    fs::rename(&own, &moved).unwrap();
    weir.signal(Signal::USR1);
    weir.log_line("these logs cannot be reopened");
    let line = weir.log_line("access_log");
    assert!(line.contains("is a symbolic link"), "{line}");
    weir.log_line("logs reopened");
    // The gateway reopens its own log a moment after the manager's line.
    wait_until("the log that is root's own goes on", || {
        weir.get("/pid.php?after");
        fs::read_to_string(&own).is_ok_and(|text| text.contains("/pid.php?after"))
    });
    assert_eq!(fs::read_to_string(&secret).unwrap(), "as it was\n");
    weir.stop();
    assert_eq!(fs::read_to_string(&secret).unwrap(), "as it was\n");
}

/// Sends a signal and prints whether that is allowed. Also prints whether it may change the gateway's priority.
const KILL: &str = "<?php error_reporting(0); $p = (int)$_GET['pid']; \
    echo json_encode([posix_kill($p, 0), posix_kill($p, (int)$_GET['signal']), \
    (bool)fopen(\"/proc/$p/mem\", 'r'), posix_getuid()]);";

#[test]
fn a_script_of_a_pool_without_user_cannot_stop_or_kill_the_gateway() {
    if !goes_on_as_root() {
        return;
    }
    let length = "<?php echo 'length=', strlen(file_get_contents('php://input')), ' ';";
    let site = cgi_site().file("kill.php", KILL).file("length.php", length);
    let (private, large) = (site.path("root/private.txt"), "x".repeat(300_000));
    fs::write(&private, "for www-data alone\n").unwrap();
    mode(&private, 0o600);
    chown(&private, Some(id("www-data")), None).unwrap();
    let weir = site.start();
    let gateway = weir.gateway().pid;
    let user = id("www-data");
    for signal in [19, 15, 9] {
        let answer = weir
            .get(&format!("/kill.php?pid={gateway}&signal={signal}"))
            .text();
        assert!(
            answer.ends_with(&format!("[false,false,false,{user}]")),
            "{answer}"
        );
    }
    assert_eq!(weir.gateway().pid, gateway);
    // No other process has the gateway's user id. Its supplementary groups still give it access to its user's files.
    let status = fs::read_to_string(format!("/proc/{gateway}/status")).unwrap();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uids: Vec<u32> = uids
        .unwrap()
        .split_whitespace()
        .map(|uid| uid.parse().unwrap())
        .collect();
    assert!(
        uids[..3]
            .iter()
            .all(|uid| *uid == uids[0] && ![0, user].contains(uid)),
        "{uids:?}"
    );
    assert_eq!(uids[3], user);
    for name in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
        let set = status.lines().find_map(|line| line.strip_prefix(name));
        assert!(
            set.unwrap().trim().chars().all(|c| c == '0'),
            "{name} {set:?}"
        );
    }
    assert!(
        weir.get("/private.txt")
            .text()
            .ends_with("for www-data alone\n")
    );
    let answer = weir.request("POST", "/length.php", &[], large.as_bytes());
    assert_eq!(answer.text(), "length=300000 ");
}

#[test]
fn a_gateway_whose_user_no_pool_has_keeps_its_number() {
    if !goes_on_as_root() {
        return;
    }
    let weir = cgi_site().pool("user = \"nobody\"").start();
    let owner = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(owner(weir.gateway().pid), id("www-data").to_string());
}

#[test]
fn a_folder_that_root_serves_has_a_gateway_that_its_scripts_cannot_end() {
    if !goes_on_as_root() {
        return;
    }
    let site = cgi_site().file("kill.php", KILL);
    let weir = site.start_folder(&["--admin", "off"]);
    weir.get_until("/a.txt", |answer| answer.text() == "hello\n");
    let gateway = weir.gateway().pid;
    let answer = weir
        .get(&format!("/kill.php?pid={gateway}&signal=9"))
        .text();
    assert!(answer.contains("[false,false,false,"), "{answer}");
    assert_eq!(weir.gateway().pid, gateway);
}

#[test]
fn a_second_weir_with_the_same_pid_file_refuses_and_leaves_it_alone() {
    let site = cgi_site();
    let weir = site.start();
    let pid_file = site.path("weir.pid");
    let written = fs::read_to_string(&pid_file).unwrap();
    let inode = fs::metadata(&pid_file).unwrap().ino();
    // weir stops before it tries the first one's address.
    let (own, other) = (site.address().to_string(), free_address().to_string());
    let (status, said) = site.start_toml_in_vain(&site.toml().replace(&own, &other));
    assert_eq!(status.code(), Some(78), "{said}");
    let who = format!("of another running weir (process {})", weir.pid());
    assert!(said.contains(&who), "{said}");
    assert_eq!(fs::read_to_string(&pid_file).unwrap(), written);
    assert_eq!(fs::metadata(&pid_file).unwrap().ino(), inode);
    // weir takes over a file that a crash has left behind.
    drop(weir);
    assert!(!pid_file.exists());
    fs::write(&pid_file, "1\n").unwrap();
    let weir = site.start();
    let written = fs::read_to_string(&pid_file).unwrap();
    assert_eq!(written.trim(), weir.pid().to_string());
    // weir leaves another user's file of that name where it is.
    fs::remove_file(&pid_file).unwrap();
    fs::write(&pid_file, "somebody's\n").unwrap();
    drop(weir);
    assert_eq!(fs::read_to_string(&pid_file).unwrap(), "somebody's\n");
}

#[test]
fn a_unix_listener_and_an_admin_socket_that_were_removed_are_made_again_at_a_reload() {
    let site = with_unix_listener(cgi_site()).admin();
    let admin = site.path("admin.sock");
    let weir = site.start();
    let socket = site.path("weir.sock");
    let reload = |expected: &str| {
        weir.signal(Signal::HUP);
        weir.log_line(expected)
    };
    for _ in 0..2 {
        fs::remove_file(&socket).unwrap();
        fs::remove_file(&admin).unwrap();
        reload("reloaded: the new configuration serves");
        assert!(over_unix(&socket).contains("hello"));
        let status = weir.command(&["status"]).output().unwrap();
        let status = String::from_utf8_lossy(&status.stdout);
        assert!(status.contains("serving"), "{status}");
    }
    // weir does not remove what another user has put there, and says what it is.
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "mine").unwrap();
    reload("a file that is not a socket exists there");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "mine");
    fs::remove_file(&socket).unwrap();
    reload("reloaded: the new configuration serves");
    assert!(over_unix(&socket).contains("hello"));
    drop(weir);
    assert!(!socket.exists() && !admin.exists());
}

fn over_unix(socket: &Path) -> String {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /a.txt HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
