//! The rights and owners of files that both programs make: logs, pid file, sockets.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    starts::configuration,
    support::{Place, Running, get, goes_on_as_root, wait_until},
    transcript::Subject,
};

const POOL: &str = "access.log = @/access.log\nslowlog = @/slow.log\nrequest_slowlog_timeout = 1\n\
                    pm.max_children = 1\npm.status_path = /status\npm.status_listen = @/status.sock";

/// Mode and owner of each file that was made.
fn found(place: &Place) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir(place.path(""))
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let ours = ["php-fpm", "slow.php", "fast.php", "old."];
            if ours.iter().any(|own| name.starts_with(own)) {
                return None;
            }
            let about = fs::symlink_metadata(entry.path()).ok()?;
            let (uid, gid) = (about.uid(), about.gid());
            Some(format!("{name} {:o} {uid}:{gid}", about.mode()))
        })
        .collect();
    found.sort();
    found
}

/// Starts one of the two programs with this umask, and makes it write all of its files, and again after SIGUSR1.
fn made(weir: bool, umask: &str, pool: &str, daemon: bool, existing: bool) -> [Vec<String>; 2] {
    let place = Place::new();
    place.write(
        "php-fpm.conf",
        configuration("", &format!("{POOL}\n{pool}")),
    );
    place.write("slow.php", "<?php usleep(1500000); echo 'ended';");
    place.write("fast.php", "<?php echo 'ended';");
    if existing {
        for name in ["error.log", "access.log", "slow.log", "fpm.pid"] {
            let file = place.write(name, "");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
            std::os::unix::fs::chown(&file, Some(33), Some(4)).unwrap();
        }
    }
    let child = Command::new("sh")
        .args(["-c", "umask \"$0\"; exec \"$@\"", umask])
        .arg(Subject::program(weir, &place))
        .args([if daemon { "-D" } else { "-F" }, "-y"])
        .arg(place.path("php-fpm.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut starter = child;
    wait_until("it is ready", || {
        place.read("error.log").contains("systemd monitor")
    });
    let pid = place.read("fpm.pid").trim().parse().unwrap();
    if daemon {
        starter.wait().unwrap();
    } else {
        assert_eq!(pid, starter.id());
    }
    let mut running = Running::daemon(&place, pid);
    let socket = place.path("fpm.sock");
    let ask = |name: &str| get(&socket, &place.path(name), &format!("/{name}")).out;
    assert!(ask("slow.php").ends_with("ended"));
    wait_until("it is logged", || {
        place.read("slow.log").contains("usleep") && place.read("access.log").contains("slow.php")
    });
    let first = found(&place);
    for name in ["error.log", "access.log", "slow.log"] {
        fs::rename(place.path(name), place.path(&format!("old.{name}"))).unwrap();
    }
    running.signal(Signal::USR1);
    running.wait_for_log("access log file re-opened");
    // PHP-FPM starts a new child.
    wait_until("it is logged again", || {
        ask("slow.php");
        place.read("slow.log").contains("usleep") && place.read("access.log").contains("slow.php")
    });
    let second = found(&place);
    running.signal(Signal::QUIT);
    let _ = starter.wait();
    running.end();
    [first, second]
}

#[test]
fn files_have_the_rights_and_owners_that_php_fpm_gives_them() {
    if !goes_on_as_root() {
        return;
    }
    let cases = [
        ("022", "", false, false),
        ("077", "", false, false),
        ("077", "", true, false),
        (
            "022",
            "listen.owner = www-data\nlisten.group = adm\nlisten.mode = 0640",
            true,
            false,
        ),
        (
            "000",
            "listen.owner = www-data\nlisten.mode = 0600",
            false,
            false,
        ),
        ("077", "listen.acl_users = nobody", false, false),
        ("022", "", false, true),
    ];
    std::thread::scope(|scope| {
        let made: Vec<_> = cases
            .iter()
            .map(|(umask, pool, daemon, existing)| {
                [false, true]
                    .map(|weir| scope.spawn(move || made(weir, umask, pool, *daemon, *existing)))
            })
            .collect();
        for (case, made) in cases.iter().zip(made) {
            let [fpm, weir] = made.map(|made| made.join().unwrap());
            assert_eq!(weir, fpm, "{case:?}");
            assert!(fpm[0].len() > 5, "{fpm:?}");
        }
    });
}
