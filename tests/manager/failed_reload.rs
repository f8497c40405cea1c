//! Reloads and upgrades that fail change nothing that can be seen from outside.

use std::{
    collections::BTreeMap,
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    process::Command,
};

use super::php_processes::{php_site, who};
use crate::support::*;

/// What is in a folder: kind, rights and access control list of each, and what small files contain.
fn files(folder: &Path, seen: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, about) = (entry.path(), entry.metadata().unwrap());
        let mut list = [0; 256];
        let list = rustix::fs::lgetxattr(&path, "system.posix_acl_access", &mut list[..])
            .map_or(String::new(), |length| format!("{:?}", &list[..length]));
        let content = match about.file_type() {
            kind if kind.is_dir() => {
                files(&path, seen);
                "a folder".to_owned()
            }
            kind if kind.is_socket() => format!("a socket, {}", about.ino()),
            // Logs may get lines.
            _ if path.ends_with("weir.pid") => fs::read_to_string(&path).unwrap(),
            _ => "a file".to_owned(),
        };
        let (uid, gid, mode) = (about.uid(), about.gid(), about.mode() & 0o7777);
        let text = format!("{content}; {uid}:{gid} {mode:o} {list}");
        seen.insert(path.display().to_string(), text);
    }
}

/// The files of a weir, and what listens on loopback or in its folder with its backlog.
fn visible(weir: &Weir) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    files(weir.folder(), &mut seen);
    let listening = Command::new("ss").arg("-Hlntux").output().unwrap();
    let listening = String::from_utf8(listening.stdout).unwrap();
    let folder = weir.folder().display().to_string();
    for line in listening.lines() {
        // Netid State Recv-Q Send-Q Local-Address:Port …; the queue's limit is Send-Q.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields[4].starts_with(&folder)
            || weir.address().to_string() == fields[4]
            || fields[4].starts_with("127.0.0.77:");
        if is_ours {
            let key = format!("{} {}", fields[0], fields[4]);
            *seen.entry(key).or_default() += &format!("{} ", fields[3]);
        }
    }
    seen
}

/// The kinds of processes that weir has started.
fn kinds(weir: &Weir) -> Vec<String> {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut kinds: Vec<String> = weir.children().iter().map(name).collect();
    kinds.sort();
    kinds
}

/// A site with sockets, whose next configuration changes what is visible of all of them and makes new things.
fn site() -> (Setup, Setup) {
    let plain = php_site("max_children = 1");
    let admin = plain.path("admin.sock");
    let before = plain.clone().server(&format!(
        "admin = \"unix:{}\"\nupgrade_timeout = \"30s\"",
        admin.display()
    ));
    let path = |name: &str| plain.path(name).display().to_string();
    let sockets = |rights: [&str; 2], backlog: u32| {
        format!(
            "[listen.one]\naddress = \"unix:{}\"\nbacklog = {backlog}\n{}\n\
             [listen.two]\naddress = \"unix:{}\"\nbacklog = {backlog}\n{}\n",
            path("one.sock"),
            rights[0],
            path("two.sock"),
            rights[1]
        )
    };
    let was = sockets(["mode = \"0600\"", "acl_users = [\"nobody\"]"], 55);
    let becomes = sockets(["acl_users = [\"nobody\"]", "mode = \"0666\""], 77);
    let made = format!(
        "[listen.new]\naddress = \"unix:{}\"\n[listen.port]\naddress = \"127.0.0.77:0\"\n\
         [listen.local]\naddress = \"127.0.0.77:0\"\ntls = true\n\
         [site.local]\nhosts = [\"localhost\"]\nroot = \"{}\"\nlisten = [\"local\"]\ntls = \"auto\"\n\
         [tls]\ncertificates = \"{}\"\n\
         [egress]\nlisten = [\"127.0.0.77:0\", \"unix:{}\"]\nsocket = \"off\"\n",
        path("new.sock"),
        path("root"),
        path("certificates"),
        path("egress.sock")
    );
    let after = plain
        .clone()
        .server(&format!("admin = \"unix:{}\"", path("other.sock")))
        .listen("backlog = 77")
        .log(&format!("error = \"{}\"", path("new-error.log")))
        .pool(&format!(
            "output_log = \"{}\"\nslowlog = \"{}\"\naccess_log = \"{}\"\nrequest_slowlog_timeout = \"9s\"",
            path("pool.log"),
            path("slow.log"),
            path("pool-access.log")
        ))
        .more(&becomes)
        .more(&made);
    (before.listen("backlog = 55").more(&was), after)
}

const PRELOAD: &str = "php_define = { \"opcache.preload\" = \"/no/such/preload.php\", \
                       \"opcache.preload_user\" = \"www-data\" }";

/// Configurations that cannot serve: what is wrong with each, and what is said about that. `taken`: the address of a socket of
/// another program.
fn cases(after: &Setup, taken: SocketAddr) -> Vec<(&'static str, String, &'static str)> {
    let path = |name: &str| after.path(name).display().to_string();
    let moved = after.toml().replace("weir.pid", "moved.pid");
    let with = |setup: Setup| setup.toml().replace("weir.pid", "moved.pid");
    let bad = path("bad.pem");
    let tls = format!("[certificate.bad]\nchain = \"{bad}\"\nkey = \"{bad}\"");
    vec![
        (
            "preload",
            // A log that has PHP's messages stays.
            with(after.clone().pool(PRELOAD)).replace(&path("pool.log"), "stderr"),
            "preload",
        ),
        (
            "port",
            with(
                after
                    .clone()
                    .more(&format!("[listen.taken]\naddress = \"{}\"", taken)),
            ),
            "already used",
        ),
        (
            "token",
            with(after.clone().server(&format!(
                "admin_tcp = \"127.0.0.77:0\"\nadmin_token_file = \"{bad}\""
            ))),
            "admin_token_file",
        ),
        ("certificate", with(after.clone().more(&tls)), "bad.pem"),
        (
            "user",
            with(after.clone()).replace("user = \"", "user = \"no-such-"),
            "no-such-",
        ),
        (
            "pid file",
            moved.replace("moved.pid", "no/such/folder/weir.pid"),
            "no/such/folder/weir.pid",
        ),
        (
            "log",
            moved.replace("new-error.log", "in-the-way"),
            "in-the-way",
        ),
        (
            "slow log",
            moved.replace("slow.log", "in-the-way"),
            "in-the-way",
        ),
        (
            "calls",
            moved.replace("[egress]", &format!("[egress]\nca_file = \"{bad}\"")),
            "bad.pem",
        ),
    ]
}

#[test]
fn whatever_makes_a_reload_or_an_upgrade_fail_nothing_changes_that_others_see() {
    let (before, after) = site();
    let taken = TcpListener::bind("127.0.0.78:0").unwrap();
    let weir = before.start();
    // Once a worker answers, its pool has all its processes.
    who(&weir);
    fs::create_dir(weir.path("in-the-way")).unwrap();
    fs::write(weir.path("bad.pem"), "nothing\n").unwrap();
    let (seen, running) = (visible(&weir), kinds(&weir));
    for (what, text, word) in cases(&after, taken.local_addr().unwrap()) {
        before.write_config(&text);
        for way in ["reload", "upgrade"] {
            let output = weir.command(&[way]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success(), "{what}, {way}: {said}");
            assert!(said.contains(word), "{what}, {way}: {said}");
            let log = weir.path("new-error.log");
            if way == "upgrade" && fs::metadata(&log).is_ok_and(|about| about.len() > 0) {
                // The messages of the new weir are still there.
                fs::remove_file(&log).unwrap();
            }
            assert_eq!(visible(&weir), seen, "{what}, {way}");
            wait_until("what was tried is gone", || kinds(&weir) == running);
            weir.log_line(&format!("{way} failed, nothing was changed"));
        }
    }
    time_out_and_succeed(&weir, &before, &after);
}

/// A new weir that does not get ready in time has time to remove what it has made, and nothing of all that is in the way of a
/// reload that changes everything.
fn time_out_and_succeed(weir: &Weir, before: &Setup, after: &Setup) {
    let path = |name: &str| weir.path(name).display().to_string();
    let moved = after.toml().replace("weir.pid", "moved.pid");
    let hangs = weir.root().join("hangs.php");
    fs::write(&hangs, "<?php sleep(600);").unwrap();
    before
        .clone()
        .server("upgrade_timeout = \"2s\"")
        .write_toml();
    assert!(weir.command(&["reload"]).status().unwrap().success());
    who(weir);
    let seen = visible(weir);
    let preload = PRELOAD.replace("/no/such/preload.php", &hangs.display().to_string());
    before.write_config(
        &(after.clone().pool(&preload).toml()).replace(&path("new-error.log"), "stderr"),
    );
    let output = weir.command(&["upgrade"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("within 2s"), "{said}");
    assert_eq!(visible(weir), seen);
    before.write_config(&moved);
    let output = weir.command(&["reload"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let now = visible(weir);
    for name in [
        "new.sock",
        "egress.sock",
        "other.sock",
        "moved.pid",
        "slow.log",
        "certificates",
    ] {
        assert!(now.contains_key(&path(name)), "{name}: {now:?}");
    }
    for name in ["one.sock", "two.sock"] {
        assert_ne!(now[&path(name)], seen[&path(name)], "{name}");
        assert!(now[&format!("u_str {}", path(name))].starts_with("77 "));
    }
    assert!(!now.contains_key(&path("weir.pid")));
}
