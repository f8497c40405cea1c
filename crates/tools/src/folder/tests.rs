//! Folders with the characteristic files of applications, and the configurations for them.

use std::os::unix::fs::symlink;

use weir_config::{Action, Checked, Environment, Pm, Route, Site, read};

use super::*;

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

/// A folder with the files that prove this application, at its number `place`.
fn application(application: &Application, place: usize) -> tempfile::TempDir {
    let files: Vec<_> = application.places[place]
        .1
        .iter()
        .map(|file| (*file, ""))
        .collect();
    folder(&files)
}

fn wanted(looked: &Looked) -> Wanted<'_> {
    Wanted {
        looked,
        head: vec!["a file".into()],
        is_service: false,
        listen: Vec::new(),
        listen_https: Vec::new(),
        domains: Vec::new(),
        certificates: None,
        php: looked.has_php.then_some(Php {
            runtime: Runtime::Own,
            version: None,
            workers: None,
        }),
        gateway_user: None,
        user: None,
        is_inside: false,
        service: None,
    }
}

fn checked(wanted: &Wanted<'_>) -> Checked {
    checked_text(&text(wanted))
}

fn checked_text(text: &str) -> Checked {
    let environment = Environment {
        folder: "/".into(),
        cores: 2,
        memory: 8 << 30,
        open_files: 1 << 16,
    };
    let checked =
        read("folder", text, &environment).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
    assert!(checked.warnings.is_empty(), "{}\n{text}", checked.warnings);
    checked
}

/// The site for a folder.
fn site(looked: &Looked) -> Site {
    checked(&wanted(looked)).config.sites.remove(0)
}

fn matches(route: &Route, path: &str) -> bool {
    let shown = route.path.to_string();
    match shown.strip_prefix('~') {
        Some(expression) => regex::Regex::new(expression).unwrap().is_match(path),
        None if shown.ends_with('*') => path.starts_with(shown.trim_end_matches('*')),
        None => path == shown,
    }
}

fn denies(site: &Site, path: &str) -> bool {
    let route = site.routes.iter().find(|route| matches(route, path));
    route.is_some_and(|route| matches!(route.action, Some(Action::Deny)))
}

/// Each row is recognised at each of its places, and its configuration is right, at the root and below.
#[test]
fn each_application_is_recognised_and_configured() {
    for row in applications::APPLICATIONS {
        for (place, (root, _)) in row.places.iter().enumerate() {
            let folder = application(row, place);
            let looked = look(folder.path()).unwrap();
            assert_eq!(
                looked.main().map(|main| main.name),
                Some(row.name),
                "{root}"
            );
            assert_eq!(
                looked.root,
                plain(&folder.path().join(root)),
                "{}",
                row.name
            );
            assert!(
                looked.others.is_empty(),
                "{} and {:?}",
                row.name,
                looked.others
            );
            let kept = wanted(&looked);
            checked(&kept);
            if let Some(cache) = row.cache {
                let line = format!("cache = {cache:?}");
                let text = text(&kept);
                assert!(text.contains(&format!("\n# {line}")), "{text}");
                checked_text(&text.replacen(&format!("# {line}"), &line, 1));
            }
            checked(&Wanted {
                head: Vec::new(),
                ..kept
            });
        }
        assert!(row.source.starts_with("https://"), "{}", row.name);
        let parent = folder(&[("index.php", "")]);
        let inner = parent.path().join("inner");
        for file in row.places[0].1 {
            fs::create_dir_all(inner.join(file).parent().unwrap()).unwrap();
            fs::write(inner.join(file), "").unwrap();
        }
        let looked = look(parent.path()).unwrap();
        match row.places[0].0 {
            "" => {
                assert_eq!(looked.applications[0].base, "/inner");
                let site = site(&looked);
                for (path, _) in row.denied.iter().filter(|(path, _)| path.starts_with('/')) {
                    assert!(denies(&site, &format!("/inner{}", path.replace('*', "x"))));
                }
                for prefix in row.no_scripts {
                    assert!(denies(&site, &format!("/inner{prefix}a/x.php")), "{prefix}");
                }
            }
            _ => assert_eq!(looked.own_sites, [(inner, row.name)]),
        }
    }
}

#[test]
fn wordpress_is_as_its_operators_configure_it() {
    let files = [
        ("wp-login.php", ""),
        ("index.php", ""),
        (
            "wp-includes/version.php",
            "<?php $required_php_version = '7.2.24';",
        ),
        ("wp-content/plugins/a/.htaccess", "Deny from all"),
        ("wp-config.php", ""),
        (
            ".htaccess",
            "RewriteEngine On\nRewriteRule . /index.php [L]\nHeader set X-A b\n",
        ),
    ];
    let folder = folder(&files);
    let looked = look(folder.path()).unwrap();
    assert_eq!(looked.needs.as_ref().unwrap().constraint, ">=7.2.24");
    let site = site(&looked);
    for path in [
        "/wp-config.php",
        "/wp-content/uploads/2024/01/evil.php",
        "/wp-content/uploads/x.php/y.jpg",
        "/wp-content/plugins/a/readme.txt",
        "/wp-includes/class-wp.php",
        "/wp-admin/includes/file.php",
        "/wp-content/debug.log",
    ] {
        assert!(denies(&site, path), "{path}");
    }
    for path in [
        "/",
        "/wp-login.php",
        "/wp-admin/admin-ajax.php",
        "/wp-content/uploads/2024/01/a.jpg",
        "/wp-includes/js/jquery/jquery.min.js",
        "/wp-includes/js/tinymce/wp-tinymce.php",
    ] {
        assert!(!denies(&site, path), "{path}");
    }
    assert_eq!(site.settings.deny_scripts, ["/wp-content/uploads/"]);
    assert_eq!(site.settings.fallback.as_deref(), Some("/index.php"));
    let text = text(&wanted(&looked));
    assert!(
        text.contains("#   .htaccess:3: Header set X-A b\n"),
        "{text}"
    );
    assert!(
        !text.contains(":2: RewriteRule"),
        "the fallback does this: {text}"
    );
}

/// docs/init.md has each row.
#[test]
fn the_page_has_what_weir_knows() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/init.md");
    let kept = fs::read_to_string(&page).unwrap();
    let code = |text: &str| format!("`{}`", text.replace('|', "\\|"));
    let list =
        |texts: &mut dyn Iterator<Item = &str>| texts.map(code).collect::<Vec<_>>().join(", ");
    let mut rows = String::new();
    for row in applications::APPLICATIONS {
        let files = list(&mut row.places[0].1.iter().copied());
        let mut roots: Vec<&str> = row.places.iter().map(|(root, _)| *root).collect();
        roots.dedup();
        let inner = list(&mut roots.iter().copied().filter(|root| !root.is_empty()));
        let roots = match (roots.contains(&""), inner.as_str()) {
            (true, "") => "the folder".to_owned(),
            (true, inner) => format!("the folder, or {inner}"),
            (false, inner) => inner.to_owned(),
        };
        let denied = list(&mut row.denied.iter().map(|(path, _)| *path));
        let no_scripts = list(&mut row.no_scripts.iter().copied());
        let fallback = list(&mut row.fallback.into_iter());
        rows += &format!(
            "| [{}]({}) | {files} | {roots} | {fallback} | {denied} | {no_scripts} |\n",
            row.name, row.source
        );
    }
    let (before, after) = kept.split_once("|---|---|---|---|---|---|\n").unwrap();
    let (_, after) = after.split_once("\n\n").unwrap();
    let wanted = format!("{before}|---|---|---|---|---|---|\n{rows}\n{after}");
    if std::env::var_os("WEIR_REFRESH").is_some() {
        fs::write(&page, &wanted).unwrap();
    }
    let kept = fs::read_to_string(&page).unwrap();
    assert!(
        kept == wanted,
        "docs/init.md is stale: WEIR_REFRESH=1 cargo test -p weir-tools --lib folder::"
    );
}

/// URLs that must be refused, and URLs that must not, by the rows of applications.
#[test]
fn urls_of_applications_are_refused_or_not() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "Drupal",
            &[
                "/core/core.services.yml",
                "/modules/a/a.module",
                "/sites/default/settings.php",
                "/sites/a/private/x",
                "/composer.lock",
                "/vendor/autoload.php",
            ],
            &[
                "/",
                "/core/install.php",
                "/core/misc/drupal.js",
                "/sites/default/files/a.jpg",
                "/user/login",
                "/robots.txt",
            ],
        ),
        (
            "Joomla",
            &[
                "/configuration.php",
                "/administrator/logs/x.php",
                "/tmp/x",
                "/images/x.php",
                "/cache/x.php",
            ],
            &[
                "/",
                "/administrator/index.php",
                "/images/a.jpg",
                "/media/a.js",
                "/installation/index.php",
            ],
        ),
        (
            "Nextcloud",
            &[
                "/data/admin/files/x",
                "/config/config.php",
                "/lib/base.php",
                "/3rdparty/x",
                "/occ",
                "/console.php",
                "/data",
            ],
            &[
                "/",
                "/remote.php/dav/files",
                "/apps/files/",
                "/login",
                "/database",
                "/core/img/logo.svg",
            ],
        ),
        (
            "Kanboard",
            &[
                "/data/db.sqlite",
                "/app/common.php",
                "/cli",
                "/vendor/x",
                "/x.log",
            ],
            &[
                "/",
                "/jsonrpc.php",
                "/assets/css/a.css",
                "/plugins/a/Assets/a.js",
                "/client",
            ],
        ),
        (
            "Matomo",
            &[
                "/config/config.ini.php",
                "/tmp/x",
                "/core/Version.php",
                "/vendor/a/README.md",
            ],
            &[
                "/",
                "/matomo.php",
                "/matomo.js",
                "/js/index.php",
                "/plugins/a/javascripts/a.js",
            ],
        ),
        (
            "Roundcube",
            &[
                "/config/config.inc.php",
                "/logs/errors.log",
                "/installer/",
                "/program/lib/x.php",
                "/README.md",
            ],
            &[
                "/",
                "/index.php",
                "/program/js/app.js",
                "/skins/elastic/styles/styles.css",
            ],
        ),
        (
            "phpMyAdmin",
            &[
                "/libraries/classes/x.php",
                "/setup/",
                "/config.inc.php",
                "/sql/create_tables.sql",
            ],
            &[
                "/",
                "/index.php",
                "/themes/a.css",
                "/js/vendor/jquery/jquery.min.js",
            ],
        ),
        (
            "DokuWiki",
            &["/data/pages/x.txt", "/conf/users.auth.php", "/inc/init.php"],
            &["/", "/doku.php", "/lib/exe/css.php", "/start"],
        ),
    ];
    for (name, refused, served) in cases {
        let row = applications::APPLICATIONS
            .iter()
            .find(|row| row.name == *name)
            .unwrap();
        let folder = application(row, row.places.len() - 1);
        let looked = look(folder.path()).unwrap();
        let site = site(&looked);
        for path in *refused {
            assert!(denies(&site, path), "{name}: {path}");
        }
        for path in *served {
            assert!(!denies(&site, path), "{name}: {path}");
        }
        let script = regex::Regex::new(&site.settings.script).unwrap();
        for path in served.iter().filter(|path| path.contains(".php")) {
            assert!(script.is_match(path), "{name}: {path}");
        }
        assert!(
            row.script.is_none() || !script.is_match("/a/shell.php"),
            "{name}"
        );
    }
}

/// Each line has a comment: on itself, above it, or it is one of those that say themselves what they are for.
#[test]
fn each_line_says_what_it_is_for() {
    let folder = application(&applications::APPLICATIONS[0], 0);
    let looked = look(folder.path()).unwrap();
    let mut wanted = wanted(&looked);
    wanted.domains = vec!["shop.test".into()];
    wanted.user = Some("www-data".into());
    let text = text(&wanted);
    let plain = ["root = ", "pool = ", "hosts = "];
    let (mut before, mut of_route) = ("", false);
    for line in text.lines() {
        // The comment of a route's path is about all of the route.
        of_route &= !line.is_empty();
        let is_key = line.contains(" = ") && !line.starts_with('#');
        let has_comment = line.contains(" # ") || before.starts_with('#');
        let is_plain = plain.iter().any(|plain| line.starts_with(plain));
        assert!(
            !is_key || has_comment || is_plain || of_route,
            "{line}\n{text}"
        );
        of_route |= is_key && has_comment && line.starts_with("path");
        before = line;
    }
}

#[test]
fn a_document_root_below_the_folder_is_found() {
    let folder = folder(&[
        ("public/index.php", ""),
        (".env", "SECRET"),
        ("composer.json", "{\"require\": {\"php\": \"^8.3\"}}"),
    ]);
    let looked = look(folder.path()).unwrap();
    assert_eq!(looked.root, folder.path().join("public"));
    assert!(looked.main().is_none() && looked.has_index);
    assert!(!looked.needs.as_ref().unwrap().accepts("8.2"));
    // A folder with an index file of its own is its own document root.
    fs::write(folder.path().join("index.html"), "").unwrap();
    assert_eq!(look(folder.path()).unwrap().root, folder.path());
}

#[test]
fn a_root_with_a_link_in_its_path_keeps_it() {
    let folder = folder(&[
        ("releases/1/public/index.php", ""),
        ("releases/1/artisan", ""),
    ]);
    symlink(
        folder.path().join("releases/1"),
        folder.path().join("current"),
    )
    .unwrap();
    let looked = look(&folder.path().join("./releases/../current")).unwrap();
    assert_eq!(looked.root, folder.path().join("current/public"));
    assert!(looked.is_linked);
    let config = checked(&wanted(&looked)).config;
    assert!(config.pools[0].php().unwrap().watch_root);
    assert!(!config.sites[0].settings.follow_symlinks);
}

/// Laravel's link to its uploads is followed by a route of its own.
#[test]
fn links_that_are_not_followed_are_known() {
    let folder = folder(&[
        ("public/index.php", ""),
        ("artisan", ""),
        ("storage/app/public/a.jpg", ""),
        ("other/x", ""),
    ]);
    let link = |target: &str, name: &str| {
        symlink(folder.path().join(target), folder.path().join(name)).unwrap()
    };
    link("storage/app/public", "public/storage");
    let mut looked = look(folder.path()).unwrap();
    // Who makes the links is who runs the test.
    looked.follows_links = false;
    assert_eq!(looked.broken_link(), None);
    link("other", "public/other");
    let mut looked = look(folder.path()).unwrap();
    looked.follows_links = false;
    let broken = looked.broken_link().map(|(link, _)| link.clone());
    assert_eq!(broken, Some(folder.path().join("public/other")));
}

#[test]
fn several_applications_are_told_apart() {
    let files = [
        ("wp-login.php", ""),
        ("wp-includes/version.php", ""),
        ("core/lib/Drupal.php", ""),
        ("board/jsonrpc.php", ""),
        ("board/app/common.php", ""),
        ("shop/artisan", ""),
        ("shop/public/index.php", ""),
    ];
    let folder = folder(&files);
    let looked = look(folder.path()).unwrap();
    assert_eq!(looked.what(), "WordPress");
    assert_eq!(looked.others, ["Drupal"]);
    assert_eq!(looked.own_sites, [(folder.path().join("shop"), "Laravel")]);
    let bases: Vec<_> = looked
        .applications
        .iter()
        .map(|found| found.base.as_str())
        .collect();
    assert_eq!(bases, ["", "/board"]);
    let site = site(&looked);
    assert!(denies(&site, "/board/data/db.sqlite"));
    let fallback = |path: &str| {
        let route = site.routes.iter().find(|route| matches(route, path));
        route.map_or(site.settings.fallback.clone(), |route| {
            route.settings.fallback.clone()
        })
    };
    assert_eq!(
        fallback("/board/task/1").as_deref(),
        Some("/board/index.php")
    );
    assert_eq!(fallback("/2024/post/").as_deref(), Some("/index.php"));
}

#[test]
fn other_folders_are_php_files_or_foreign() {
    let php = folder(&[
        ("a/page.php", ""),
        ("uploads/a.jpg", ""),
        ("composer.json", "{}"),
    ]);
    let looked = look(php.path()).unwrap();
    assert_eq!(looked.what(), "PHP scripts");
    let settings = site(&looked);
    assert!(denies(&settings, "/uploads/x.php") && denies(&settings, "/composer.json"));
    assert_eq!(settings.settings.fallback, None);

    let files = folder(&[("index.html", ""), ("package.json", "{}")]);
    let looked = look(files.path()).unwrap();
    assert_eq!(
        (looked.what(), looked.foreign),
        ("files without scripts", None)
    );
    assert!(checked(&wanted(&looked)).config.pools.is_empty());

    let node = folder(&[("package.json", "{}"), ("server.js", "")]);
    assert_eq!(
        look(node.path()).unwrap().foreign.unwrap().what,
        "a Node.js application"
    );
    assert!(look(folder(&[]).path()).unwrap().is_empty);
    assert!(look(&node.path().join("none")).is_err());
}

#[test]
fn domains_get_https() {
    let folder = folder(&[("index.html", "")]);
    let looked = look(folder.path()).unwrap();
    let mut wanted = wanted(&looked);
    wanted.domains = vec!["localhost".into(), "[::1]".into(), "shop.test".into()];
    wanted.certificates = Some("/srv/certificates".into());
    wanted.listen = vec![":80".into(), ":81".into()];
    let addresses = |wanted: &Wanted<'_>| -> Vec<String> {
        let listeners = checked(wanted).config.listeners;
        let all = listeners.iter().map(|one| one.address.to_string());
        all.filter(|address| !address.starts_with("[::]")).collect()
    };
    assert_eq!(
        addresses(&wanted),
        ["0.0.0.0:80", "0.0.0.0:81", "127.0.0.1:8443"]
    );
    let config = checked(&wanted).config;
    assert_eq!(config.sites.len(), 1);
    assert!(config.sites[0].is_auto && config.sites[0].https_redirect.is_some());
    let auto = config.certificates[0].auto.as_ref().unwrap();
    assert_eq!(auto.names, ["localhost", "::1", "shop.test"]);
    assert!(
        config.certificates[0]
            .chain
            .starts_with("/srv/certificates")
    );

    // For one run, the folder is served by other names, too.
    wanted.head.clear();
    let config = checked(&wanted).config;
    let [domains, others] = &config.sites[..] else {
        panic!("not two sites");
    };
    assert_eq!((&others.listen[..], others.is_auto), (&[0, 1][..], false));
    assert_eq!(domains.settings.root, others.settings.root);

    wanted.listen.clear();
    assert_eq!(addresses(&wanted), ["127.0.0.1:8080", "127.0.0.1:8443"]);
    wanted.is_service = true;
    assert_eq!(addresses(&wanted), ["0.0.0.0:80", "0.0.0.0:443"]);
    wanted.is_service = false;
    wanted.domains = vec!["192.168.1.7".into()];
    assert_eq!(addresses(&wanted), ["0.0.0.0:8080", "0.0.0.0:8443"]);
    wanted.domains = vec!["shop.example".into()];
    assert_eq!(addresses(&wanted), ["0.0.0.0:80", "0.0.0.0:443"]);
    assert_eq!(checked(&wanted).config.sites.len(), 1);
}

#[test]
fn a_pool_of_php_cgi_and_one_for_a_run() {
    let folder = folder(&[("it's \"mine\"/index.php", "")]);
    let looked = look(&folder.path().join("it's \"mine\"")).unwrap();
    let mut wanted = wanted(&looked);
    wanted.php = Some(Php {
        runtime: Runtime::Cgi("/usr/bin/php-cgi".into()),
        version: None,
        workers: Some(3),
    });
    wanted.user = Some("www-data".into());
    wanted.gateway_user = Some("www-data".into());
    wanted.is_inside = true;
    let config = checked(&wanted).config;
    let weir_config::Runtime::Command(command) = &config.pools[0].runtime else {
        panic!("no command");
    };
    assert_eq!(command.workers.max_children, 3);
    assert_eq!(command.workers.user, config.server.user);
    assert_eq!(command.argv, ["/usr/bin/php-cgi"]);
    let route = config.sites[0]
        .routes
        .iter()
        .find(|route| matches(route, "/weir.toml~"));
    let action = route.and_then(|route| route.action.as_ref());
    assert!(
        matches!(action, Some(Action::Reply { status: 404, .. })),
        "{action:?}"
    );

    wanted.php = Some(Php {
        runtime: Runtime::Own,
        version: Some("8.2".into()),
        workers: None,
    });
    wanted.head.clear();
    let config = checked(&wanted).config;
    let php = config.pools[0].php().unwrap();
    let auto = Pm::Auto {
        start: 1,
        rests: false,
    };
    assert_eq!(php.workers.pm, auto);
    assert_eq!(php.define, [("opcache.revalidate_freq".into(), "0".into())]);
}

/// What is a comment for those who want it is right, too.
#[test]
fn programs_that_are_proposed_are_right() {
    let mut count = 0;
    for row in applications::APPLICATIONS
        .iter()
        .filter(|row| !row.programs.is_empty())
    {
        let folder = application(row, 0);
        fs::write(folder.path().join("cron.php"), "").unwrap();
        let looked = look(folder.path()).unwrap();
        let text = text(&wanted(&looked));
        let (before, proposed) = text.split_once("# [program.").unwrap();
        let lines = proposed.lines().map(|line| line.trim_start_matches("# "));
        let text = format!("{before}[program.{}", lines.collect::<Vec<_>>().join("\n"));
        let environment = Environment::of_this_machine(folder.path());
        read("folder", &text, &environment).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        count += 1;
    }
    assert_eq!(count, 2);
}

/// What of the files cannot be written as a comment, such as control characters, is replaced.
#[test]
fn garbage_in_htaccess_makes_no_wrong_file() {
    let garbage = "Header \u{1}\u{7f}\u{85} \"\"\"\r\nRewriteEngine on\nRewriteRule ' [\n<Files \u{0}\u{202e}>\nDeny from all\n</Files>\nNonsense = true\n[pool.x]\n";
    let folder = folder(&[
        ("index.php", ""),
        (".htaccess", garbage),
        ("b\n\u{1}'/.htaccess", "Deny from all"),
    ]);
    let looked = look(folder.path()).unwrap();
    let config = checked(&wanted(&looked)).config;
    assert_eq!(config.pools.len(), 1);
}
