//! Ways around a rule: what follows a script's name, encoded slashes, dots, folders, copies.

use std::time::Instant;

use super::*;

/// Every rule for a script also applies if a client appends something to the script's name.
#[test]
fn path_info_is_no_way_around_a_rule() {
    let site = Fixture::with(
        r#"
        [site.first]
        root = "ROOT"
        pool = "php"
        hide_files = ['^/docs/', '^/source\.phtml$', '^/admin/hidden\.php$']
        deny_scripts = ["/uploads/"]
        [[site.first.route]]
        path = "/admin/index.php"
        deny = true
        [[site.first.route]]
        path = "~^/[a-z]+/exact\\.php$"
        deny = true
        [[site.first.route]]
        path = "/post.php"
        methods = ["POST"]
        deny = true
        [[site.first.route]]
        path = "/old.php"
        redirect = "/"
        [[site.first.route]]
        path = "*.css"
        cache_control = "public"
        [[site.first.route]]
        path = "/late.php"
        deny = true
        [[site.first.route]]
        path = "/run.php"
        fallback = "/index.php"
        [pool.php]
        runtime = "servers"
        servers = ["unix:/run/php.sock"]
        "#,
    );
    for name in [
        "admin/exact.php",
        "admin/hidden.php",
        "post.php",
        "old.php",
        "late.php",
        "run.php",
    ] {
        fs::write(site.root.join(name), "<?php").unwrap();
    }
    for (script, expected) in [
        ("/admin/index.php", "action Deny"),
        ("/admin/exact.php", "action Deny"),
        ("POST /post.php", "action Deny"),
        ("/old.php", "action Redirect"),
        ("/late.php", "action Deny"),
        ("/admin/hidden.php", "404 hidden by hide_files"),
    ] {
        for behind in [
            "", "/", "/x", "//", "/x.css", "/.", "/x/../y", "%2Fx", "/a%2fb", "/y.php", "/y.php/z",
            "/%41", "/./x",
        ] {
            site.expect(&format!("{script}{behind}"), expected);
        }
    }
    // Written another way, it is the same name.
    for url in [
        "//admin///index.php/x",
        "/x/../admin/index.php/x",
        "/%61dmin/index%2ephp/x",
        "/admin%2Findex.php/x",
        "/admin/index.php/../index.php",
        // The folder's URL leads to what is denied.
        "/admin/",
        "/admin/?x",
    ] {
        site.expect(url, "action Deny");
    }
    site.expect("GET /post.php/x", "script /post.php info /x");
    // Another case is another file.
    site.expect("/admin/Index.php/x", "404 no such script");
    // Below deny_scripts the file is text, and has no path-info.
    site.expect("/uploads/evil.php", "file uploads/evil.php text/plain");
    site.expect("/uploads/evil.php/x", "404 no such file");
    site.expect(
        "/uploads/index.php/../evil.php",
        "file uploads/evil.php text/plain",
    );
    // A route for a script also applies to the part after the script's name: here, its fallback.
    site.expect("/run.php/a/b", "script /run.php info /a/b");
    site.expect("/run.php/a.php/b", "script /run.php info /a.php/b");
    site.expect("/run.phpx/b", "404 no such file");
}

#[test]
fn a_deny_for_path_info_counts_behind_a_route_for_the_script() {
    let site = Fixture::with(
        r#"
        [site.first]
        root = "ROOT"
        pool = "php"
        [[site.first.route]]
        path = "/index.php"
        timeout = "5s"
        [[site.first.route]]
        path = "/index.php/private/*"
        deny = true
        [pool.php]
        runtime = "servers"
        servers = ["unix:/run/php.sock"]
        "#,
    );
    site.expect("/index.php/public", "script /index.php info /public");
    site.expect("/index.php/private/x", "action Deny");
    site.expect("/index.php/private%2Fx", "action Deny");
}

/// nginx and Apache look at the path without its dots, applications at `REQUEST_URI`.
#[test]
fn dot_segments_are_no_way_around_a_deny() {
    let site = Fixture::with(
        r#"
        [site.first]
        root = "ROOT"
        pool = "php"
        fallback = "/index.php"
        [[site.first.route]]
        path = "/private/*"
        deny = true
        [[site.first.route]]
        path = "/public/*"
        [[site.first.route]]
        path = "/closed/*"
        deny = true
        [pool.php]
        runtime = "servers"
        servers = ["unix:/run/php.sock"]
        "#,
    );
    for url in [
        "/private/x",
        "/private/../x",
        "/private/%2e%2e/x",
        "/private/..%2Fx",
        "/public/../private/x",
        "/public/..%2fprivate/x",
        "/x%2F../private/x",
        "/public/../closed/x",
        "/private%2Fx",
    ] {
        site.expect(url, "action Deny");
    }
    site.expect("/public/../x", "script /index.php");
    site.expect("/..%2fprivate/x", "400 path_above_root");
}

#[test]
fn too_many_names_of_scripts_are_no_path() {
    let site = Fixture::with(
        r#"
        [site.first]
        root = "ROOT"
        pool = "php"
        [[site.first.route]]
        path = "/index.php"
        deny = true
        [pool.php]
        runtime = "servers"
        servers = ["unix:/run/php.sock"]
        "#,
    );
    site.expect(&format!("/index.php{}", "/a.php".repeat(10)), "action Deny");
    site.expect(
        &format!("/index.php{}", "/a.php".repeat(5000)),
        "400 bad_path",
    );
}

#[test]
fn the_default_of_hide_files_is_about_files() {
    let site = Fixture::new(|settings, _| {
        settings.script = r"^(/.+\.(?:php|cgi))(/.*)?$".into();
    });
    fs::create_dir(site.root.join("old.bak")).unwrap();
    fs::write(site.root.join("old.bak/x.txt"), "x").unwrap();
    fs::write(site.root.join("x.old"), "x").unwrap();
    for (url, expected) in [
        (
            "/run.cgi/r.git/tree/.gitignore",
            "script /run.cgi info /r.git/tree/.gitignore",
        ),
        (
            "/run.cgi/r.git/tree/x.inc",
            "script /run.cgi info /r.git/tree/x.inc",
        ),
        ("/run.cgi/.git/config", "script /run.cgi info /.git/config"),
        ("/.hidden.php/x", "404 hidden by hide_files"),
        ("/.git/", "404 hidden by hide_files"),
        ("/.git", "404 hidden by hide_files"),
        ("/.git/nothing/there", "404 hidden by hide_files"),
        ("/.gitx", "404 no such file"),
        ("/x.old", "404 hidden by hide_files"),
        ("/old.bak", "301 /old.bak/"),
        (
            "/old.bak/x.txt",
            "file old.bak/x.txt text/plain; charset=utf-8",
        ),
    ] {
        site.expect(url, expected);
    }
}

/// Names that editors, administrators and packages give to copies; and files that scripts include.
#[test]
fn the_source_of_a_script_is_never_sent() {
    let names = [
        "wp-config.php.bak",
        "x.php~",
        "x.php.old",
        "a.inc",
        "x.php.orig",
        "x.php.save",
        "x.php.swp",
        "x.php.swo",
        "x.php.1",
        "x.php.2024-01-31",
        "x.php.dist",
        "x.phps",
        "x.php_old",
        "x.php-bak",
        "x.phtml.new",
        "x.PHP.BAK",
        "x.php.dpkg-old",
        "x.php,v",
        "x.php.gz",
        "%23x.php%23",
        "x.php%20copy",
        "config.php.local",
        "settings.local",
        "wp-config.bak",
        "drupal.module",
        "index.html",
        "script",
    ];
    // This also applies if the operator's own list replaces the default.
    for hide_files in [
        weir_config::default_hide_files(),
        vec!["^/secret".to_owned()],
    ] {
        let site = Fixture::new(|settings, _| settings.hide_files = hide_files.clone());
        for name in names {
            let file = name.replace("%23", "#").replace("%20", " ");
            fs::write(site.root.join(&file), "<?php $password = 'x';").unwrap();
            for target in site.both_ways(
                &site
                    .router
                    .find(0, None, &Method::GET, format!("/{name}").as_bytes())
                    .unwrap(),
                &Method::GET,
                None,
            ) {
                let said = describe(&target);
                assert!(
                    said == "404 hidden by hide_files" || said == "403 the source of a script",
                    "{name}: {said}"
                );
            }
        }
    }
}

#[test]
fn what_is_made_from_a_script_or_about_one_is_sent() {
    let site = Fixture::new(|_, _| {});
    for (name, content, expected) in [
        ("x.php.txt", "<?php", "text/plain; charset=utf-8"),
        ("x.php.html", "<html>", "text/html; charset=utf-8"),
        ("readme.md", "<?php", "text/markdown; charset=utf-8"),
        (
            "x.phar.asc",
            "-----BEGIN PGP SIGNATURE-----",
            "application/pgp-signature",
        ),
        ("feed.xml", "<?xml version='1.0'?>", "text/xml"),
        ("dump.sql", "SELECT 1", "application/x-sql"),
        ("guide.html", "see <?php", "text/html; charset=utf-8"),
    ] {
        fs::write(site.root.join(name), content).unwrap();
        site.expect(&format!("/{name}"), &format!("file {name} {expected}"));
    }
    // Large files too, of which only the beginning is looked at.
    let mut large = b"\xef\xbb\xbf#!/usr/bin/php\n  <?PHP\n".to_vec();
    large.resize(100 << 10, b'x');
    fs::write(site.root.join("large.lib"), &large).unwrap();
    site.expect("/large.lib", "403 the source of a script");
    large[..3].copy_from_slice(b"xxx");
    fs::write(site.root.join("large.bin"), &large).unwrap();
    site.expect("/large.bin", "file large.bin application/octet-stream");
    // Below deny_scripts scripts are shown on purpose.
    let shown = Fixture::new(|settings, _| settings.deny_scripts = vec!["/uploads/".into()]);
    fs::write(shown.root.join("uploads/x.lib"), "<?php").unwrap();
    shown.expect(
        "/uploads/x.lib",
        "file uploads/x.lib application/octet-stream",
    );
}

/// An entry of the file cache that `X-Sendfile` has made answers no client.
#[test]
fn a_source_that_a_script_has_sent_is_not_sent_to_others() {
    let site = Fixture::new(|settings, _| {
        settings.sendfile_dirs = vec![settings.root.clone().unwrap()];
    });
    let path = site.root.join("source.phtml");
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        let found = site.router.find(0, None, &Method::GET, b"/").unwrap();
        let file = path.as_os_str().as_bytes();
        let sent = wait_for(site.router.sendfile(found.rules, file, clock::now()));
        let Some(Target::File(entry)) = sent else {
            panic!("{sent:?}");
        };
        site.expect("/source.phtml", "403 the source of a script");
        if entry.is_settled() {
            break;
        }
        assert!(Instant::now() < limit, "never settled");
        std::thread::sleep(Duration::from_millis(20));
    }
}
