//! Several pools, whose PHP weir loads once as PHP-FPM does: each pool's scripts see what they see in PHP-FPM.

use std::{fs, path::Path};

use crate::support::{PHP_FPM, Place, Running, children, get, goes_on_as_root};

const LOOK: &str = r#"<?php
echo json_encode([posix_getuid(), posix_geteuid(), posix_getgid(), posix_getgroups(), get_current_user(), umask(), getcwd(),
    array_map('getenv', ['USER', 'HOME', 'SHOP', 'PATH', 'TZ', 'LANG']), array_map('ini_get', ['memory_limit', 'precision', 'opcache.memory_consumption', 'disable_functions']),
    array_map('get_cfg_var', ['memory_limit', 'precision', 'opcache.memory_consumption']), function_exists('passthru'), opcache_get_configuration()['directives'],
    setlocale(LC_ALL, 0), date_default_timezone_get(), sys_get_temp_dir(), session_save_path(), php_ini_loaded_file(), php_ini_scanned_files(), php_sapi_name(),
    get_loaded_extensions(), get_loaded_extensions(true), posix_getrlimit(), posix_getsid(0) === posix_getppid(), error_get_last()], JSON_PRETTY_PRINT);"#;

const POOLS: [(&str, &str); 3] = [
    (
        "a",
        "user = www-data\nenv[SHOP] = a\nphp_admin_value[memory_limit] = 99M\nphp_value[precision] = 5",
    ),
    (
        "b",
        "user = games\nrlimit_files = 300\nphp_admin_value[disable_functions] = passthru",
    ),
    ("c", "user = lp\nclear_env = no\nprocess.priority = 3"),
];

/// What a script of each pool sees, and the titles of the program's children.
fn told(program: &Path, place: &Place) -> (Vec<String>, Vec<String>) {
    // The other program's says that it is ready.
    let _ = fs::remove_file(place.path("error.log"));
    let running = Running::start(program, place, &[]);
    let seen = POOLS.map(|(name, _)| {
        let socket = place.path(&format!("{name}.sock"));
        get(&socket, &place.path("look.php"), "/look.php").out
    });
    let titles = children(running.pid).into_iter().map(|(_, title)| title);
    (seen.into(), titles.collect())
}

#[test]
fn each_pool_of_a_shared_load_sees_what_it_sees_in_php_fpm() {
    if !goes_on_as_root() {
        return;
    }
    let place = Place::new();
    place.write("look.php", LOOK);
    let pools = POOLS.map(|(name, lines)| {
        format!("[{name}]\nlisten = @/{name}.sock\npm = static\npm.max_children = 1\n{lines}\n")
    });
    place.write(
        "php-fpm.conf",
        format!("[global]\nerror_log = @/error.log\n{}", pools.concat()),
    );
    let (theirs, _) = told(&PHP_FPM, &place);
    let (ours, titles) = told(&place.weir(), &place);
    for (theirs, ours) in theirs.iter().zip(&ours) {
        let lines = theirs.lines().zip(ours.lines());
        let different: Vec<_> = lines.filter(|(theirs, ours)| theirs != ours).collect();
        assert!(theirs == ours, "{different:#?}");
    }
    let templates = titles.iter().filter(|title| title.contains("template"));
    assert_eq!(templates.count(), 1, "{titles:#?}");
    for (name, _) in POOLS {
        let title = format!("php-fpm: pool {name}");
        assert!(titles.contains(&title), "{titles:#?}");
    }
}
