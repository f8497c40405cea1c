//! The messages of PHP at its start, and a PHP that does not start, in both programs.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::{
    starts::configuration,
    support::{PHP_FPM, Place, Running, get, is_root, say},
};

/// The messages of PHP's start come before all others. If PHP cannot start, php-fpm does not start either.
#[test]
fn what_php_says_at_its_start_is_told_and_a_fatal_error_ends_it() {
    let user = if is_root() { "user = www-data" } else { "" };
    let place = Place::new();
    let preload = place.write("preload.php", "<?php function broken( {");
    fs::set_permissions(&preload, PermissionsExt::from_mode(0o644)).unwrap();
    let broken = format!("opcache.preload={}", preload.display());
    let none = format!("opcache.preload={}", place.path("none.php").display());
    let preload_user = if is_root() { "www-data" } else { "" };
    let preload_user = format!("opcache.preload_user={preload_user}");
    let wrong = "[www]\nquux = 1\n".to_owned();
    let right = format!(
        "[global]\npid = @/fpm.pid\nerror_log = @/error.log\n[www]\n{user}\nlisten = @/fpm.sock\npm = static\npm.max_children = 1\n"
    );
    for (settings, code) in [
        (&["extension=none-such"][..], Some(0)),
        (&["date.timezone=Nowhere"], Some(0)),
        (&["extension=none-such", "date.timezone=Nowhere"], Some(0)),
        (&[&none, &preload_user], Some(70)),
        (&[&broken, &preload_user], Some(70)),
    ] {
        for (configuration, ends) in [
            (&right, code),
            (&wrong, code.filter(|&c| c != 0).or(Some(78))),
        ] {
            let file = place.write("php-fpm.conf", configuration);
            let mut arguments: Vec<&str> = settings.iter().flat_map(|s| ["-d", *s]).collect();
            arguments.extend(["-t", "-y", file.to_str().unwrap()]);
            let (theirs, ours) = place.both(&arguments);
            assert_eq!(theirs.code, ends, "{theirs:?}");
            assert_eq!(theirs, ours, "{settings:?}");
            assert!(ours.text.contains("PHP message: PHP "), "{ours:?}");
            if code != Some(0) {
                let _ = fs::remove_file(place.path("error.log"));
                for how in ["-F", "-D"] {
                    let last = arguments.len() - 3;
                    arguments[last] = how;
                    let (theirs, ours) = place.both(&arguments);
                    assert_eq!(theirs, ours, "{settings:?} {how}");
                    assert!(!place.read("error.log").contains("ready"), "{how}");
                }
            }
        }
        if code == Some(0) {
            for program in [PHP_FPM.clone(), place.weir()] {
                let file = place.write("php-fpm.conf", &right);
                let mut arguments: Vec<&str> = settings.iter().flat_map(|s| ["-d", *s]).collect();
                arguments.extend(["-D", "-y", file.to_str().unwrap()]);
                let started = say(&program, &arguments);
                assert_eq!(started.code, Some(0), "{started:?}");
                assert!(
                    started.text.contains("NOTICE: PHP message: PHP Warning"),
                    "{started:?}"
                );
                let pid: u32 = place.read("fpm.pid").trim().parse().unwrap();
                drop(Running::daemon(&place, pid));
            }
        }
    }
}

/// php.ini is valid, but the pool's own settings prevent the start of its PHP.
#[test]
fn each_extension_of_the_command_line_and_the_pool_is_loaded() {
    let pool = "php_admin_value[extension] = ctype\nphp_admin_value[extension] = tokenizer\n\
                php_value[extension] = exif\nphp_value[extension] = calendar";
    let found = [false, true].map(|weir| {
        let place = Place::new();
        place.write("php-fpm.conf", configuration("", pool));
        let names = "posix shmop sysvsem ctype tokenizer exif calendar sockets";
        let script = format!(
            "<?php echo json_encode(array_filter(explode(' ', '{names}'), 'extension_loaded'));"
        );
        let script = place.write("a.php", script);
        let program = if weir { place.weir() } else { PHP_FPM.clone() };
        let arguments = ["posix", "shmop", "sysvsem"].map(|name| format!("extension={name}"));
        let mut arguments: Vec<&str> = arguments.iter().flat_map(|s| ["-d", s]).collect();
        arguments.push("-n");
        let _running = Running::start(&program, &place, &arguments);
        let answer = get(&place.path("fpm.sock"), &script, "/a.php").out;
        answer.rsplit("\r\n").next().unwrap_or_default().to_owned()
    });
    assert_eq!(found[1], found[0]);
    assert!(found[1].ends_with("\"calendar\"]"), "{found:?}");
}

#[test]
fn a_pool_whose_php_cannot_start_is_never_ready() {
    let user = if is_root() { "user = www-data" } else { "" };
    let place = Place::new();
    let file = place.write(
        "php-fpm.conf",
        format!(
            "[global]\npid = @/fpm.pid\nerror_log = @/error.log\n[www]\n{user}\nlisten = @/fpm.sock\npm = static\n\
             pm.max_children = 1\nphp_admin_value[opcache.memory_consumption] = 999999999\n"
        ),
    );
    for (how, code) in [("-F", 70), ("-D", 70)] {
        let start = say(&place.weir(), &[how, "-y", file.to_str().unwrap()]);
        assert_eq!(start.code, Some(code), "{start:?}");
        let log = place.read("error.log");
        let told = format!("{}{log}", start.text);
        assert!(told.contains("PHP cannot be started"), "{told}");
        assert!(!told.contains("ready to handle"), "{told}");
        assert!(!place.path("fpm.pid").exists());
        assert!(!place.path("fpm.sock").exists());
    }
}
