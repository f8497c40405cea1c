//! Flags and exit codes.

use crate::{
    starts::configuration,
    support::{PHP_FPM, Place, is_root, say, version},
};
use weir_test::weir::program;

#[test]
fn exit_codes_are_php_fpm_s() {
    let place = Place::new();
    for (arguments, code) in [
        (&["-h"][..], 0),
        (&["-?"], 0),
        (&["--help"], 0),
        (&["-Z"], 64),
        (&["nonsense"], 64),
        (&["-t", "nonsense"], 64),
        (&["-y"], 64),
        (&["-C"], 64),
        (&["--nonsense"], 64),
        (&["-t", "-y", "/no/such/file"], 78),
        (&["-y", "/no/such/file"], 78),
        (&["-F", "-y", "/no/such/file"], 78),
    ] {
        let (fpm, weir) = place.both(arguments);
        assert_eq!(fpm.code, Some(code), "{arguments:?}: {}", fpm.text);
        assert_eq!(weir.code, Some(code), "{arguments:?}: {}", weir.text);
    }
}

#[test]
fn files_are_named_in_every_way_that_php_takes() {
    let place = Place::new();
    let file = place.write(
        "php-fpm.conf",
        "[global]\nerror_log = @/error.log\nquux = 1\n",
    );
    let file = file.to_str().unwrap();
    for arguments in [
        vec!["-t".to_owned(), "-y".to_owned(), file.to_owned()],
        vec!["-t".to_owned(), format!("-y{file}")],
        vec![format!("-ty={file}")],
        vec!["--test".to_owned(), format!("--fpm-config={file}")],
        vec![
            "--test".to_owned(),
            "--fpm-config".to_owned(),
            file.to_owned(),
        ],
        vec![
            "-ntnFOR".to_owned(),
            "-y".to_owned(),
            file.to_owned(),
            "--".to_owned(),
        ],
        vec![
            "-t".to_owned(),
            "-d".to_owned(),
            format!("fpm.config={file}"),
        ],
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (fpm, weir) = place.both(&arguments);
        assert_eq!(weir, fpm, "{arguments:?}");
        assert!(weir.text.contains("unknown entry 'quux'"), "{arguments:?}");
    }
}

#[test]
fn a_test_tells_what_weir_alone_refuses() {
    let place = Place::new();
    let test = |pool: &str, flags: &[&str]| {
        let text = configuration("", "").replace("listen = @/fpm.sock", pool);
        let file = place.write("php-fpm.conf", text);
        let arguments = [flags, &["-t", "-y", file.to_str().unwrap()]].concat();
        place.both(&arguments)
    };
    let (fpm, weir) = test(&format!("listen = @/{}", "s".repeat(120)), &[]);
    assert_eq!(fpm.code, Some(0), "{}", fpm.text);
    assert_eq!(weir.code, Some(78), "{}", weir.text);
    assert!(weir.text.contains("path is too long"), "{}", weir.text);
    if is_root() {
        // PHP-FPM notices this only when it starts, so `-t` reports no error.
        let (fpm, weir) = test("listen = 9000\nuser = root", &[]);
        assert_eq!(weir, fpm);
        let (fpm, weir) = test("listen = 9000\nuser = root", &["-R"]);
        assert_eq!(fpm.code, Some(0), "{}", fpm.text);
        assert_eq!(weir.code, Some(78), "{}", weir.text);
        assert!(weir.text.contains("as root"), "{}", weir.text);
    }
}

#[test]
fn help_names_every_flag_of_php_fpm() {
    let place = Place::new();
    let (fpm, weir) = place.both(&["-h"]);
    let flags = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("  -"));
        let flags = lines.filter_map(|line| line.split_whitespace().next());
        let mut flags: Vec<String> = flags
            .map(|flag| flag.trim_end_matches(',').into())
            .collect();
        flags.sort();
        flags
    };
    assert_eq!(flags(&weir.text), flags(&fpm.text));
}

/// `weir fpm` is the same as weir under PHP-FPM's name.
#[test]
fn weir_fpm_says_what_php_fpm_says() {
    let weir = std::path::Path::new(program());
    let file = format!("/etc/php/{}/fpm/php-fpm.conf", version());
    let fpm = say(&PHP_FPM, &["-tt", "-y", &file]);
    assert_eq!(say(weir, &["fpm", "-tt", "-y", &file]), fpm);
    assert_eq!(say(weir, &["fpm", "-tt"]), fpm);
    assert_eq!(say(weir, &["fpm", "-Z"]).code, Some(64));
}

#[test]
fn php_tells_its_version_modules_and_settings_itself() {
    let place = Place::new();
    let (fpm, weir) = place.both(&["-v"]);
    let unbuilt = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .map(|line| line.split(" (built: ").next().unwrap_or(line));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(unbuilt(&weir.text), unbuilt(&fpm.text));
    assert!(weir.text.contains("(fpm-fcgi) (built: "), "{}", weir.text);

    let (fpm, weir) = place.both(&["-m"]);
    let missing = fpm
        .text
        .lines()
        .find(|name| !weir.text.lines().any(|line| line == *name));
    assert_eq!(missing, None);

    for arguments in [
        &["-n", "-d", "memory_limit=7M", "-i"][..],
        &["-i", "-d", "precision=3", "-d", "html_errors"],
    ] {
        let (fpm, weir) = place.both(arguments);
        let setting = |text: &str, name: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.map(str::to_owned).collect()
        };
        for name in [
            "memory_limit",
            "precision",
            "html_errors",
            "Loaded Configuration File",
        ] {
            let (weir, fpm) = (setting(&weir.text, name), setting(&fpm.text, name));
            assert_eq!(weir, fpm, "{arguments:?}");
            assert_eq!(weir.len(), 1, "{arguments:?}: {name}");
        }
    }
}
