//! Users and groups by number, with and without an entry in the machine's lists, and limits of open files, in both
//! programs.

use std::{fs, os::unix::fs::MetadataExt};

use crate::support::{PHP_FPM, Place, Running, get, goes_on_as_root, is_root, say};

/// Numbers that no user and no group has.
const UID: &str = "54321";
const GID: &str = "56789";

const LOOK: &str = r#"<?php
echo posix_getuid(), ' ', posix_getgid(), ' ', implode(',', posix_getgroups()), ' ';
var_export([getenv('USER'), getenv('HOME')]);
preg_match('~Max open files\s+(\d+)\s+(\d+)~', file_get_contents('/proc/self/limits'), $files);
echo ' ', $files[1], ' ', $files[2];"#;

/// The results of a start with this configuration: whether it worked, the socket's rights, and what a script sees.
fn told(program: &std::path::Path, place: &Place) -> String {
    let file = place.path("php-fpm.conf");
    let _ = fs::remove_file(place.path("error.log"));
    let test = say(program, &["-t", "-y", file.to_str().unwrap()]);
    let mut told = format!("-t {:?} {}\n", test.code, test.text);
    if place.read("php-fpm.conf").contains("; fails") {
        let start = say(program, &["-F", "-y", file.to_str().unwrap()]);
        return told + &format!("{:?} {}", start.code, start.text);
    }
    let running = Running::start(program, place, &[]);
    let socket = fs::metadata(place.path("fpm.sock")).unwrap();
    told += &format!("{} {} {:o}\n", socket.uid(), socket.gid(), socket.mode());
    told += &get(
        &place.path("fpm.sock"),
        &place.path("look.php"),
        "/look.php",
    )
    .out;
    drop(running);
    told
}

fn same(global: &str, pool: &str) {
    let place = Place::new();
    place.write("look.php", LOOK);
    place.write(
        "php-fpm.conf",
        format!(
            "[global]\nerror_log = @/error.log\n{global}\n[www]\nlisten = @/fpm.sock\npm = static\n\
             pm.max_children = 1\n{pool}\n"
        ),
    );
    let theirs = told(&PHP_FPM, &place);
    let ours = told(&place.weir(), &place);
    // weir writes the message once more, without a file name, if the log is standard error.
    assert_eq!(theirs, ours, "{global} {pool}");
}

#[test]
fn users_and_groups_may_be_numbers_that_are_nobodys() {
    if !goes_on_as_root() {
        return;
    }
    for pool in [
        format!("user = {UID}\ngroup = {GID}"),
        format!("user = {UID}\ngroup = www-data"),
        format!("user = 00{UID}\ngroup = {GID}"),
        format!("user = www-data\ngroup = {GID}"),
        "user = 33".to_owned(),
        format!("user = {UID} ; fails: no group"),
        format!("user = {UID}\ngroup = 0 ; fails"),
        format!("user = 1{UID}x ; fails"),
        format!("user = www-data\nlisten.owner = {UID}\nlisten.group = {GID}\nlisten.mode = 0640"),
        format!("user = www-data\nlisten.owner = www-data\nlisten.group = {GID}"),
        format!("user = www-data\nlisten.group = {GID}"),
    ] {
        same("", &pool);
    }
}

/// PHP-FPM accepts no numbers here.
#[test]
fn access_control_lists_may_name_numbers_that_are_nobodys() {
    if !goes_on_as_root() {
        return;
    }
    let place = Place::new();
    place.write("look.php", LOOK);
    place.write(
        "php-fpm.conf",
        format!(
            "[global]\nerror_log = @/error.log\n[www]\nuser = {UID}\ngroup = {GID}\nlisten = @/fpm.sock\n\
             listen.acl_users = {UID},www-data\nlisten.acl_groups = {GID}\npm = static\npm.max_children = 1\n"
        ),
    );
    let _running = Running::start(&place.weir(), &place, &[]);
    let mut list = [0; 256];
    let length = rustix::fs::getxattr(
        place.path("fpm.sock"),
        c"system.posix_acl_access",
        &mut list[..],
    )
    .unwrap();
    // A version, and then entries: tag, permissions, who (linux/posix_acl_xattr.h).
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    let entries: Vec<(u8, u32)> = list[4..length]
        .chunks(8)
        .map(|entry| (entry[0], number(&entry[4..])))
        .collect();
    let (user, group) = (2, 8);
    assert!(
        entries.contains(&(user, UID.parse().unwrap())),
        "{entries:?}"
    );
    assert!(entries.contains(&(user, 33)), "{entries:?}");
    assert!(
        entries.contains(&(group, GID.parse().unwrap())),
        "{entries:?}"
    );
}

/// More than the hard limit: a global setting is an error, a setting of a pool is ignored.
#[test]
fn rlimit_files_beyond_the_hard_limit_is_as_in_php_fpm() {
    let pool = if is_root() { "user = www-data" } else { "" };
    for (global, files) in [
        ("", "rlimit_files = 300"),
        ("rlimit_files = 300", ""),
        ("rlimit_files = 300", "rlimit_files = 200"),
        ("rlimit_files = 300", "rlimit_files = 350"),
        ("", "rlimit_files = 2000000000"),
        ("rlimit_files = 2000000000 ; fails", ""),
    ] {
        same(global, &format!("{pool}\nlisten.mode = 0666\n{files}"));
    }
}
