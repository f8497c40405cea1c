//! `weir init`: what it writes, what it refuses, and what it tells.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use weir_test::weir::{mode, program};
use weir_test::{Setup, is_root};

/// Runs `weir init` with these arguments in a folder.
fn init(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("init").args(arguments).current_dir(folder);
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command.output().expect("weir")
}

/// Stdout and stderr of a run that must succeed.
#[track_caller]
fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}{}", said.0, said.1);
    said
}

/// Fails unless the run was refused with these words.
#[track_caller]
fn refused(output: &Output, code: i32, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
}

fn wordpress() -> Setup {
    Setup::new()
        .file("wp-login.php", "<?php")
        .file("index.php", "<?php")
        .file(
            "wp-includes/version.php",
            "<?php $required_php_version = '7.0.0';",
        )
}

#[test]
fn a_configuration_is_written_that_check_accepts() {
    let setup = wordpress().file("wp-content/cache/.htaccess", "Deny from all");
    let root = setup.root();
    let file = root.join("weir.toml");
    let arguments = [
        "-o",
        "weir.toml",
        "--domain",
        "shop.test",
        "--domain",
        "www.shop.test",
    ];
    let (out, err) = said(&init(&root, &arguments));
    assert_eq!(err, "");
    for words in [
        "weir.toml is written: WordPress in ",
        "https://shop.test/: a certificate of weir's local CA",
        "as wp-content/cache/.htaccess: denies /wp-content/cache/ to all",
        "next: weir check -c weir.toml\n      weir serve -c weir.toml\n",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let text = fs::read_to_string(&file).expect("weir.toml");
    for line in [
        "[site.shop]",
        "hosts = [\"shop.test\", \"www.shop.test\"]",
        "tls = \"auto\"",
        "path = \"/weir.toml*\"",
        "deny_scripts = [\"/wp-content/uploads/\"]",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(
        file.metadata().expect("weir.toml").permissions().mode() & 0o777,
        0o644
    );
    let check = Command::new(program())
        .args(["check", "-c"])
        .arg(&file)
        .output();
    let check = check.expect("weir check");
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(check.status.success() && said.contains("ok"), "{check:?}");
    assert_eq!(String::from_utf8_lossy(&check.stderr), "", "no warnings");
    // No draft is left.
    let names = fs::read_dir(&root).expect("a folder").flatten();
    let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "index.php",
            "weir.toml",
            "wp-content",
            "wp-includes",
            "wp-login.php"
        ]
    );
}

#[test]
fn an_existing_file_is_not_replaced_unless_that_is_asked_for() {
    let setup = wordpress();
    let root = setup.root();
    let file = root.join("own.toml");
    fs::write(&file, "mine").expect("a file");
    let dangling = root.join("dangling.toml");
    symlink("nowhere", &dangling).expect("a link");
    for name in ["own.toml", "dangling.toml"] {
        refused(
            &init(&root, &["-o", name]),
            78,
            &["exists already", "--force", "-o FILE", "--print"],
        );
    }
    assert_eq!(fs::read_to_string(&file).expect("a file"), "mine");
    assert!(dangling.is_symlink());
    let (out, _) = said(&init(&root, &["--print"]));
    assert!(out.starts_with("# WordPress in "), "{out}");
    said(&init(&root, &["-o", "own.toml", "--force"]));
    assert!(
        fs::read_to_string(&file)
            .expect("a file")
            .contains("[site.")
    );
    refused(
        &init(&root, &["-o", "none/weir.toml"]),
        78,
        &["cannot be written"],
    );
}

/// The default of a package is a file to replace as long as nobody has changed it.
#[test]
fn the_unchanged_default_of_a_package_is_replaced() {
    let setup = wordpress();
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/weir.toml");
    let packaged = fs::read_to_string(packaged).expect("the default");
    let file = setup.path("default.toml");
    let run = || init(&setup.root(), &["-o", file.to_str().expect("a path")]);
    fs::write(&file, format!("{packaged}\n# and a line\n")).expect("a file");
    refused(&run(), 78, &["exists already"]);
    fs::write(&file, packaged).expect("a file");
    said(&run());
    assert!(
        fs::read_to_string(&file)
            .expect("a file")
            .contains("WordPress")
    );
    refused(&run(), 78, &["exists already"]);
}

#[test]
fn folders_that_cannot_be_configured_are_refused_with_a_reason() {
    let setup = Setup::new()
        .file("empty/x", "")
        .file("node/package.json", "{}")
        .file("django/manage.py", "")
        .file("asgi/asgi.py", "")
        .file("a-file", "");
    let root = setup.root();
    fs::remove_file(root.join("empty/x")).expect("a file");
    for (folder, words) in [
        ("none", &["No such file", "weir init FOLDER"][..]),
        ("a-file", &["is not a folder"]),
        ("empty", &["is empty"]),
        (
            "node",
            &["package.json", "Node.js", "weir init FOLDER/dist"],
        ),
        ("django", &["Django", "uWSGI"]),
        (
            "asgi",
            &["ASGI", "does not pass requests to HTTP servers yet"],
        ),
    ] {
        refused(&init(&root, &[folder]), 78, words);
    }
    let strange = root.join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&strange).expect("a folder");
    fs::write(strange.join("index.php"), "").expect("a file");
    refused(&init(&strange, &[]), 78, &["not UTF-8"]);
    let closed = root.join("closed");
    fs::create_dir(&closed).expect("a folder");
    mode(&closed, 0o000);
    if !is_root() {
        refused(&init(&root, &["closed"]), 78, &["Permission denied"]);
    }
    mode(&closed, 0o755);
    for (arguments, words) in [
        (&["--domain", "https://shop.test/"][..], "--domain"),
        (&["--domain", "shop.test:443"], "--domain"),
        (&["-l", "80"], "--listen"),
        (&["--print", "-o", "x"], "--print"),
        (&["--listen-https", ":1"], "--domain"),
    ] {
        refused(&init(&root, arguments), 64, &[words]);
    }
    let left = fs::read_dir(&root).expect("a folder").flatten();
    assert!(
        left.into_iter()
            .all(|entry| entry.file_name() != "weir.toml")
    );
}

#[test]
fn what_is_not_carried_over_is_told_line_by_line() {
    let setup = wordpress()
        .file(
            ".htaccess",
            "RewriteEngine On\nRewriteCond %{HTTP_USER_AGENT} bot\nRewriteRule .* - [F]\n\
             RewriteRule ^old$ /new [R=301]\n<Files wp-login.php>\nRequire ip 10.0.0.0/8\n</Files>\nHeader set X-A b\n",
        )
        .file("core/lib/Drupal.php", "")
        .file("shop/artisan", "")
        .file("shop/public/index.php", "");
    let root = setup.root();
    let (out, err) = said(&init(&root, &["--print"]));
    for words in [
        ".htaccess:3: RewriteRule .* - [F]: is NOT refused",
        ".htaccess:6: Require ip 10.0.0.0/8: is for some clients: weir refuses it to all",
        "2 other lines of .htaccess files are not in the configuration",
        "has the files of WordPress and of Drupal; this configuration is for WordPress",
        "shop has Laravel, whose document root is inside",
    ] {
        assert!(err.contains(words), "{words}: {err}");
    }
    for line in [
        "#   .htaccess:3: RewriteRule .* - [F]\n",
        "#   .htaccess:4: RewriteRule ^old$ /new [R=301]\n",
        "#   .htaccess:6: Require ip 10.0.0.0/8\n",
        "#   .htaccess:8: Header set X-A b\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
}

/// A folder that has more entries than are looked at, by links that lead to each other: it ends soon, and says what it
/// has not seen.
#[test]
fn a_huge_tree_is_not_searched_to_its_end() {
    let setup = Setup::new().file("index.html", "").file("c/x", "");
    let root = setup.root();
    for (folder, target) in [("a", "../b"), ("b", "../c")] {
        fs::create_dir(root.join(folder)).expect("a folder");
        for number in 0..200 {
            symlink(target, root.join(folder).join(number.to_string())).expect("a link");
        }
    }
    for number in 0..10 {
        fs::write(root.join("c").join(number.to_string()), "").expect("a file");
    }
    symlink(&root, root.join("c/loop")).expect("a link");
    let (_, err) = said(&init(&root, &["--print"]));
    assert!(err.contains("too many files"), "{err}");
    assert!(err.contains("-name .htaccess"), "{err}");
}

/// Without PHP the file is written all the same, and its user learns what to install.
#[test]
fn php_that_is_missing_or_too_old_is_told() {
    let composer = r#"{"require": {"php": "^99.1", "ext-none": "*", "ext-json": "*"}}"#;
    let setup = wordpress().file("composer.json", composer);
    let root = setup.root();
    let (_, err) = said(&init(&root, &["--print"]));
    assert!(err.contains("composer.json asks for PHP ^99.1"), "{err}");
    assert!(err.contains("does not have: none\n"), "{err}");
    assert!(err.contains("apt-get install php-none\n"), "{err}");
    // A copy of weir that has no weir-php beside it, and no PATH.
    let alone = setup.path("alone/bin/weir");
    fs::create_dir_all(alone.parent().expect("a folder")).expect("a folder");
    fs::copy(program(), &alone).expect("a copy of weir");
    let mut command = Command::new(&alone);
    command
        .args(["init", "--print"])
        .current_dir(&root)
        .env("PATH", "/nowhere");
    let (out, err) = said(&command.output().expect("weir"));
    assert!(out.contains("runtime = \"php\""), "{out}");
    assert!(
        err.contains("no PHP was found") && err.contains("php-fpm"),
        "{err}"
    );
}
