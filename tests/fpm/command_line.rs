//! Flags and exit codes.

use crate::support::{PHP_FPM, Place, say, version};

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
    let weir = std::path::Path::new(env!("CARGO_BIN_EXE_weir"));
    let file = format!("/etc/php/{}/fpm/php-fpm.conf", version());
    let fpm = say(&PHP_FPM, &["-tt", "-y", &file]);
    assert_eq!(say(weir, &["fpm", "-tt", "-y", &file]), fpm);
    assert_eq!(say(weir, &["fpm", "-tt"]), fpm);
    assert_eq!(say(weir, &["fpm", "-Z"]).code, Some(64));
}
