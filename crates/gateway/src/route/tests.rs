//! What URLs mean, on folders made for it. Every expectation is checked on both ways that a lookup can take: on the
//! reactor with its memory, and on a thread that may wait.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    time::Duration,
};

use proptest::prelude::*;
use weir_config::{HostPattern, PathPattern, Runtime, Settings, Template};

use self::fixture::{Fixture, config, cpu_time, describe, pools_in, wait_for};
use super::*;
use weir_observe::clock;

/// µs
const SECOND: u64 = 1_000_000;

mod applications;
mod around;
mod fixture;

#[test]
fn the_order_of_resolution() {
    let site = Fixture::new(|settings, _| {
        settings.deny_scripts = vec!["/uploads/".into()];
    });
    for (url, expected) in [
        ("/", "script /index.php"),
        ("/index.php", "script /index.php"),
        ("/index.php/a/b", "script /index.php info /a/b"),
        ("/index.php/", "script /index.php info /"),
        ("/index.php/%2e%2e/index.php", "script /index.php"),
        ("/style.css", "file style.css text/css; charset=utf-8"),
        (
            "//a/..//style.css",
            "file style.css text/css; charset=utf-8",
        ),
        ("/style.css/", "404 no such folder, or no index file in it"),
        ("/style.css/x", "404 no such file"),
        ("/%ff", "404 no such file"),
        ("/docs", "301 /docs/"),
        ("/docs?a=1", "301 /docs/?a=1"),
        ("POST /docs?a=1", "308 /docs/?a=1"),
        ("/docs/", "file docs/index.html text/html; charset=utf-8"),
        ("/sp%20a%5cce", "301 /sp%20a%5Cce/"),
        ("/empty/", "404 no such folder, or no index file in it"),
        ("/empty", "301 /empty/"),
        ("/missing", "404 no such file"),
        ("/missing/", "404 no such folder, or no index file in it"),
        ("/missing.php", "404 no such script"),
        ("/missing.php/info", "404 no such script"),
        ("/lib.php", "301 /lib.php/"),
        ("/lib.php/", "404 no such folder, or no index file in it"),
        (
            "/lib.php/readme.txt",
            "file lib.php/readme.txt text/plain; charset=utf-8",
        ),
        ("/admin/", "script /admin/index.php"),
        ("/.env", "404 hidden by hide_files"),
        ("/.git/config", "404 hidden by hide_files"),
        ("/%2eenv", "404 hidden by hide_files"),
        ("/.hidden.php", "404 hidden by hide_files"),
        ("/index.php/.env", "script /index.php info /.env"),
        ("/.missing", "404 no such file"),
        ("/uploads/evil.php", "file uploads/evil.php text/plain"),
        ("/uploads/evil.php/x", "404 no such file"),
        ("/a/../uploads/evil.php", "file uploads/evil.php text/plain"),
        ("/uploads/evil.PHP", "file uploads/evil.PHP text/plain"),
        ("/uploads/", "404 no such folder, or no index file in it"),
        ("/uploads/photo.jpg", "file uploads/photo.jpg image/jpeg"),
        ("/source.phtml", "403 the source of a script"),
        ("/source.PHP", "403 the source of a script"),
        ("POST /style.css", "405 GET, HEAD, OPTIONS"),
        ("DELETE /style.css", "405 GET, HEAD, OPTIONS"),
        ("POST /missing", "404 no such file"),
        ("OPTIONS /style.css", "options GET, HEAD, OPTIONS"),
        ("OPTIONS /index.php", "script /index.php"),
        ("HEAD /style.css", "file style.css text/css; charset=utf-8"),
        ("POST /index.php", "script /index.php"),
        ("POST /", "script /index.php"),
    ] {
        site.expect(url, expected);
    }
}

#[test]
fn a_front_controller_gets_what_is_no_file() {
    let site = Fixture::new(|settings, _| {
        settings.fallback = Some("/index.php".into());
        settings.deny_scripts = vec!["/uploads/".into()];
    });
    for (url, expected) in [
        ("/2024/05/hello-world/", "script /index.php"),
        ("/hello-world", "script /index.php"),
        ("POST /api/posts", "script /index.php"),
        ("/empty/", "script /index.php"),
        ("/missing.php", "script /index.php"),
        ("/wiki/Page.php/x", "script /index.php"),
        ("/missing.css", "script /index.php"),
        ("/style.css", "file style.css text/css; charset=utf-8"),
        ("/docs", "301 /docs/"),
        ("/docs/", "file docs/index.html text/html; charset=utf-8"),
        ("/index.php/x", "script /index.php info /x"),
        ("/uploads/", "script /index.php"),
        ("/uploads/missing.php", "script /index.php"),
        ("/.env", "404 hidden by hide_files"),
        ("/.git/config/x", "404 hidden by hide_files"),
        ("/tree/.gitignore", "script /index.php"),
        ("/wiki/Copy.old", "script /index.php"),
        ("/source.phtml", "403 the source of a script"),
        ("/out.txt", "403 a link out of the root"),
    ] {
        site.expect(url, expected);
    }
}

#[test]
fn a_fallback_may_be_a_page_and_may_be_missing() {
    let page = Fixture::new(|settings, _| settings.fallback = Some("/docs/index.html".into()));
    page.expect(
        "/any/where",
        "file docs/index.html text/html; charset=utf-8",
    );
    page.expect("POST /any/where", "405 GET, HEAD, OPTIONS");
    for fallback in ["/none.php", "/none.html", "/docs"] {
        let none = Fixture::new(|settings, _| settings.fallback = Some(fallback.into()));
        none.expect("/any/where", "404 the fallback does not exist");
    }
}

#[test]
fn one_script_may_be_the_only_one() {
    let site = Fixture::new(|settings, _| {
        settings.script = r"^(/index\.php)(/.*)?$".into();
        settings.fallback = Some("/index.php".into());
    });
    site.expect("/index.php/a", "script /index.php info /a");
    site.expect("/admin/index.php", "403 the source of a script");
    site.expect("/admin/", "403 the source of a script");
    site.expect("/other", "script /index.php");
}

#[test]
fn without_a_pool_scripts_are_never_sent() {
    let site = Fixture::new(|settings, _| settings.pool = None);
    site.expect("/index.php", "403 a script, but no pool runs it");
    site.expect("/index.php/a", "403 a script, but no pool runs it");
    site.expect("/", "403 a script, but no pool runs it");
    site.expect("/source.phtml", "403 the source of a script");
    site.expect("/missing.php", "404 no such script");
    site.expect("/style.css", "file style.css text/css; charset=utf-8");
}

#[test]
fn only_extensions_of_the_pool_run() {
    let site = Fixture::new(|settings, config| {
        settings.script = r"^(/.+\.(?:php|cgi))(/.*)?$".into();
        config.pools[0].limit_extensions = vec![".php".into()];
    });
    site.expect("/index.php", "script /index.php");
    site.expect("/run.cgi", "403 not allowed by the pool's limit_extensions");
}

#[test]
fn links_lead_out_only_where_allowed() {
    let strict = Fixture::new(|_, _| {});
    strict.expect("/out.txt", "403 a link out of the root");
    strict.expect("/out.php", "403 a link out of the root");
    strict.expect("/outside/secret.txt", "403 a link out of the root");
    strict.expect("/outside/", "403 a link out of the root");
    strict.expect("/in.css", "file in.css text/css; charset=utf-8");
    strict.expect("/loop", "403 a loop of links");
    let loose = Fixture::new(|settings, _| settings.follow_symlinks = true);
    loose.expect("/out.txt", "file out.txt text/plain; charset=utf-8");
    loose.expect("/out.php", "script /out.php");
    loose.expect(
        "/outside/secret.txt",
        "file outside/secret.txt text/plain; charset=utf-8",
    );
}

#[test]
fn only_regular_files_are_sent() {
    let site = Fixture::new(|_, _| {});
    let _socket = std::os::unix::net::UnixListener::bind(site.root.join("socket")).unwrap();
    site.expect("/socket", "403 neither file nor folder");
    symlink("/dev/null", site.root.join("null")).unwrap();
    site.expect("/null", "403 a link out of the root");
    let loose = Fixture::new(|settings, _| settings.follow_symlinks = true);
    symlink("/dev/null", loose.root.join("null")).unwrap();
    loose.expect("/null", "403 neither file nor folder");
}

#[test]
fn names_too_long_for_the_file_system_are_missing() {
    let site = Fixture::new(|settings, _| settings.fallback = Some("/index.php".into()));
    site.expect(&format!("/{}", "a".repeat(300)), "script /index.php");
    site.expect(&format!("/{}", "a/".repeat(3000)), "script /index.php");
    site.expect(&format!("/{}.php", "a".repeat(300)), "script /index.php");
}

#[test]
fn a_script_that_is_kept_for_the_fallback_stays_hidden_by_its_own_name() {
    let site = Fixture::new(|settings, _| {
        settings.fallback = Some("/index.php".into());
        settings.hide_files = vec![r"^/index\.php$".into()];
    });
    for _ in 0..3 {
        site.expect("/some/page", "script /index.php");
        site.expect("/index.php", "404 hidden by hide_files");
    }
}

#[test]
fn a_kept_script_has_its_parameters_and_is_gone_with_its_file() {
    let site = Fixture::new(|_, _| {});
    let now = clock::now();
    for _ in 0..2 {
        let Target::Script(script) = site.resolve_at("/index.php", now) else {
            panic!("no script");
        };
        let mut params = Vec::new();
        for (name, value) in [
            ("DOCUMENT_ROOT", &script.document_root[..]),
            ("SCRIPT_FILENAME", &script.filename),
            ("SCRIPT_NAME", b"/index.php"),
            ("DOCUMENT_URI", b"/index.php"),
        ] {
            weir_fcgi::nv::encode(&mut params, name.as_bytes(), value);
        }
        assert_eq!(script.params, params);
    }
    std::fs::remove_file(site.root.join("index.php")).unwrap();
    let gone = site.resolve_at("/index.php", now + 2 * SECOND);
    assert!(matches!(gone, Target::NotFound { .. }), "{gone:?}");
}

#[test]
fn the_worker_s_names_follow_script_root_or_the_real_root() {
    let filename = |site: &Fixture| match site.resolve("/index.php") {
        Target::Script(script) => {
            let root = String::from_utf8_lossy(&script.document_root).into_owned();
            (script.filename().to_str().unwrap().to_owned(), root)
        }
        target => panic!("{target:?}"),
    };
    let real = Fixture::new(|settings, _| {
        let root = settings.root.clone().unwrap();
        let link = root.with_file_name("current");
        symlink(&root, &link).unwrap();
        settings.root = Some(link);
    });
    let root = real.root.to_str().unwrap().to_owned();
    assert_eq!(filename(&real), (format!("{root}/index.php"), root));

    let given = Fixture::new(|settings, _| settings.script_root = Some("/public/".into()));
    assert_eq!(
        filename(&given),
        ("/public/index.php".into(), "/public".into())
    );

    let top = Fixture::new(|settings, _| settings.script_root = Some("/".into()));
    assert_eq!(filename(&top), ("/index.php".into(), String::new()));

    let far = Fixture::new(|settings, config| {
        let Runtime::Servers(servers) = &mut config.pools[0].runtime else {
            panic!("the fixture's pool has servers");
        };
        let far = weir_config::Address::Tcp("192.0.2.1:9000".parse().unwrap());
        servers.list[0].address = weir_config::Upstream::At(far);
        let root = settings.root.clone().unwrap();
        let link = root.with_file_name("current");
        symlink(&root, &link).unwrap();
        settings.root = Some(link);
    });
    let link = far.root.with_file_name("current");
    assert_eq!(filename(&far).1, link.to_str().unwrap());

    let jailed = Fixture::new(|settings, config| {
        let root = settings.root.clone().unwrap();
        config.pools = pools_in(root.parent().unwrap());
        let link = root.with_file_name("current");
        symlink(&root, &link).unwrap();
        settings.root = Some(link);
    });
    let name = jailed.root.file_name().unwrap().to_str().unwrap();
    assert_eq!(
        filename(&jailed),
        (format!("/{name}/index.php"), format!("/{name}"))
    );
}

#[test]
fn a_switched_root_is_seen_within_a_second_and_files_at_once() {
    let site = Fixture::new(|settings, _| {
        let root = settings.root.clone().unwrap();
        let link = root.with_file_name("current");
        symlink(&root, &link).unwrap();
        settings.root = Some(link);
    });
    site.expect("/index.php", "script /index.php");
    let kept = site.keep("/style.css");
    assert_eq!(kept.identity().content.as_deref(), Some(&b"body{}"[..]));

    // The same name, other contents of the same length: not even one answer is stale.
    fs::write(site.root.join("style.css"), "main{}").unwrap();
    assert_eq!(site.content("/style.css"), "main{}");
    let kept = site.keep("/style.css");
    assert_eq!(kept.identity().content.as_deref(), Some(&b"main{}"[..]));
    fs::remove_file(site.root.join("style.css")).unwrap();
    site.expect("/style.css", "404 no such file");

    let next = site.root.with_file_name("next");
    fs::create_dir(&next).unwrap();
    fs::write(next.join("style.css"), "next").unwrap();
    let link = site.root.with_file_name("current");
    fs::remove_file(&link).unwrap();
    symlink("next", &link).unwrap();
    let later = clock::now() + root::ROOT_AGE;
    assert_eq!(
        describe(&site.resolve_at("/index.php", later)),
        "404 no such script"
    );
    assert_eq!(
        describe(&site.resolve_at("/style.css", later)),
        "file style.css text/css; charset=utf-8"
    );
}

#[test]
fn files_in_memory_are_dropped_when_unused_and_when_there_are_too_many() {
    let limits = CacheLimits {
        descriptors: 2,
        bytes: 1 << 20,
    };
    let mut site = Fixture::new(|_, _| {});
    site.router = Router::new(&site.config).unwrap().with_cache_limits(limits);
    for name in ["1.txt", "2.txt", "3.txt"] {
        fs::write(site.root.join(name), name).unwrap();
    }
    let one = site.keep("/1.txt");
    let two = site.keep("/2.txt");
    let three = site.keep("/3.txt");
    let kept = |entry: &Rc<FileEntry>| Rc::strong_count(entry) == 2;
    assert!(kept(&three));
    assert_eq!(usize::from(kept(&one)) + usize::from(kept(&two)), 1);
    sweep(clock::now() + 10 * SECOND);
    assert!(kept(&three));
    sweep(clock::now() + 60 * SECOND);
    assert!(!kept(&three));
}

#[test]
fn variants_that_appear_and_vanish_are_seen() {
    let site = Fixture::new(|settings, _| settings.precompressed = true);
    let path = site.root.join("style.css");
    let gzip = site.root.join("style.css.gz");
    let coding = |at: u64| match site.resolve_at("/style.css", at) {
        Target::File(entry) => {
            let mut headers = weir_http1::ParsedFields::default();
            headers.push(b"accept-encoding", b"gzip");
            entry.choose(&headers).coding.is_some()
        }
        target => panic!("{target:?}"),
    };
    site.keep("/style.css");
    assert!(!coding(clock::now()));
    fs::write(&gzip, "gz").unwrap();
    assert!(coding(clock::now() + 2 * SECOND));
    site.keep("/style.css");
    assert!(coding(clock::now()));
    fs::remove_file(&gzip).unwrap();
    assert!(!coding(clock::now()));
    // The compressed file is older than the original, so it was made from other contents.
    fs::write(&gzip, "gz").unwrap();
    let original = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&gzip).unwrap();
    file.set_modified(original - Duration::from_secs(2))
        .unwrap();
    assert!(!coding(clock::now() + 4 * SECOND));
    file.set_modified(original).unwrap();
    assert!(coding(clock::now() + 6 * SECOND));
}

#[test]
fn a_folder_that_may_only_be_entered_and_a_script_that_may_not_be_read_are_there() {
    let site = Fixture::new(|_, _| {});
    fs::set_permissions(site.root.join("docs"), fs::Permissions::from_mode(0o311)).unwrap();
    fs::set_permissions(
        site.root.join("index.php"),
        fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    fs::set_permissions(
        site.root.join("style.css"),
        fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    site.expect("/docs", "301 /docs/");
    site.expect("/docs/", "file docs/index.html text/html; charset=utf-8");
    site.expect("/index.php", "script /index.php");
    // Root may read everything, also in a test.
    if fs::read(site.root.join("style.css")).is_err() {
        site.expect("/style.css", "403 no permission to read it");
    }
}

#[test]
fn a_root_that_is_gone_is_not_found() {
    let site = Fixture::new(|settings, _| settings.root = Some("/nowhere/at/all".into()));
    site.expect("/", "404 the root does not exist");
    let none = Fixture::new(|settings, _| settings.root = None);
    none.expect("/", "404 the site has no root");
}

#[test]
fn routes_match_in_order_by_path_and_method() {
    let site = Fixture::new(|settings, config| {
        let route =
            |path: PathPattern, methods: &[&str], action, settings: &Settings| weir_config::Route {
                path,
                methods: methods.iter().map(|m| m.to_string()).collect(),
                action,
                rewrite: None,
                settings: settings.clone(),
            };
        let glob = |text: &str| PathPattern::Glob(text.into());
        let mut cached = settings.clone();
        cached.cache_control = Some("max-age=60".into());
        let reply = Action::Reply {
            status: 200,
            body: Template::default(),
            content_type: "text/plain".into(),
        };
        config.sites[0].routes = vec![
            route(glob("/api/*"), &["DELETE"], Some(Action::Deny), settings),
            route(glob("/api/*"), &[], Some(reply), settings),
            route(
                PathPattern::Regex(r"\.css$".into()),
                &["GET"],
                None,
                &cached,
            ),
        ];
    });
    site.expect("DELETE /api/x", "action Deny");
    site.expect("DELETE /x/..//api/x", "action Deny");
    site.expect("GET /api/x", "action Reply");
    site.expect("GET /api", "404 no such file");
    let cache_control = |method: Method| {
        let found = site.router.find(0, None, &method, b"/style.css").unwrap();
        found.rules.settings.cache_control.clone()
    };
    assert_eq!(cache_control(Method::GET).as_deref(), Some("max-age=60"));
    assert_eq!(cache_control(Method::HEAD), None);
}

#[test]
fn sites_are_found_by_listener_and_host() {
    let mut config = config(Path::new("/srv"));
    let second = weir_config::Site {
        name: "second".into(),
        hosts: vec![HostPattern::Suffix(".example".into())],
        listen: vec![0, 1],
        ..config.sites[0].clone()
    };
    config.sites.push(second);
    config.listeners.push(config.listeners[0].clone());
    let router = Router::new(&config).unwrap();
    let site = |listener, host: Option<&'static str>| {
        let host = host.map(str::as_bytes);
        let found = router.find(listener, host, &Method::GET, b"/");
        found.map(|found| {
            (
                config.sites[found.site.index].name.as_str(),
                String::from_utf8(found.host.to_vec()).unwrap(),
            )
        })
    };
    assert_eq!(site(0, None), Ok(("first", String::new())));
    assert_eq!(
        site(0, Some("X.Example:80")),
        Ok(("second", "x.example".into()))
    );
    assert_eq!(site(0, Some("other")), Ok(("first", "other".into())));
    assert_eq!(site(1, Some("other")), Err(Refusal::UnknownHost));
    assert_eq!(site(1, None), Ok(("second", String::new())));
    assert_eq!(site(2, None), Err(Refusal::UnknownHost));
    assert_eq!(site(0, Some("a/b")), Err(Refusal::BadHost));
    assert_eq!(Refusal::UnknownHost.status(), 421);
}

#[test]
fn a_script_may_name_files_of_allowed_folders_only() {
    let site = Fixture::new(|settings, _| {
        let private = settings.root.clone().unwrap().with_file_name("outside");
        settings.accel_redirect = vec![("/protected/".into(), private.clone())];
        settings.sendfile_dirs = vec![private];
    });
    let outside = site.root.with_file_name("outside");
    fs::write(outside.join("app.php"), "<?php").unwrap();
    let rules = site.router.sites()[0].rules;
    let now = clock::now();
    let accel = |uri: &str| {
        let target = wait_for(site.router.accel_redirect(rules, uri.as_bytes(), now));
        target.map_or("none".into(), |target| describe(&target))
    };
    assert_eq!(
        accel("/protected/secret.txt?x"),
        "file secret.txt text/plain; charset=utf-8"
    );
    assert_eq!(
        accel("/protected/sec%72et.txt"),
        "file secret.txt text/plain; charset=utf-8"
    );
    assert_eq!(accel("/protected/app.php"), "file app.php text/plain");
    assert_eq!(accel("/protected/none"), "404 no such file");
    assert_eq!(accel("/protected/"), "403 is a folder");
    assert_eq!(accel("/protected/../index.php"), "none");
    assert_eq!(accel("/elsewhere"), "none");
    let sendfile = |path: &Path| {
        let target = wait_for(
            site.router
                .sendfile(rules, path.to_str().unwrap().as_bytes(), now),
        );
        target.map_or("none".into(), |target| describe(&target))
    };
    assert_eq!(
        sendfile(&outside.join("secret.txt")),
        "file secret.txt text/plain; charset=utf-8"
    );
    assert_eq!(
        sendfile(&outside.join("../site/style.css")),
        "403 a link out of the root"
    );
    assert_eq!(sendfile(&site.root.join("style.css")), "none");
    assert_eq!(sendfile(&outside.with_file_name("outside2")), "none");
}

#[test]
fn error_pages_lie_under_the_root_or_anywhere() {
    let site = Fixture::new(|settings, _| {
        let outside = settings.root.clone().unwrap().with_file_name("outside");
        settings.error_pages = BTreeMap::from([
            (404, "docs/index.html".into()),
            (503, outside.join("secret.txt")),
            (500, "missing.html".into()),
        ]);
    });
    let rules = site.router.sites()[0].rules;
    let page = |status: u16| {
        let status = StatusCode::from_u16(status).unwrap();
        wait_for(site.router.error_page(rules, status, clock::now()))
            .map(|entry| entry.path().to_vec())
    };
    assert_eq!(page(404).unwrap(), b"docs/index.html");
    assert_eq!(page(503).unwrap(), b"secret.txt");
    assert_eq!(page(500), None);
    assert_eq!(page(502), None);
}

#[test]
fn what_cannot_be_compiled_says_where() {
    let mut config = config(Path::new("/srv"));
    config.sites[0].settings.hide_files = vec!["(".into()];
    let error = Router::new(&config).unwrap_err();
    assert!(error.starts_with("site.first: hide_files: `(`"), "{error}");
}

#[test]
fn a_resolved_target_can_be_sent_between_threads() {
    fn is_send<T: Send>(_: T) {}
    let site = Fixture::new(|_, _| {});
    let found = site.router.find(0, None, &Method::GET, b"/").unwrap();
    is_send(
        site.router
            .resolve(&found, &Method::GET, None, clock::now()),
    );
}

/// Also the measurement: `cargo test --release --bin weir warm_requests -- --nocapture` prints what one takes.
#[test]
fn warm_requests_never_leave_the_reactor() {
    let site = Fixture::new(|settings, _| {
        settings.fallback = Some("/index.php".into());
        settings.deny_scripts = vec!["/wp-content/uploads/".into()];
    });
    fs::write(site.root.join("1k.html"), [b'x'; 1024]).unwrap();
    fs::write(site.root.join("100k.bin"), vec![b'x'; 100 * 1024]).unwrap();
    site.keep("/1k.html");
    site.keep("/100k.bin");
    let mut headers = weir_http1::ParsedFields::default();
    for (name, value) in [
        ("host", "shop.example"),
        ("user-agent", "test"),
        ("accept", "*/*"),
    ] {
        headers.push(name.as_bytes(), value.as_bytes());
    }
    let rounds = if cfg!(debug_assertions) {
        1_000
    } else {
        500_000
    };
    for url in [
        "/1k.html",
        "/100k.bin",
        "/index.php/a",
        "/",
        "/2024/05/hello-world/",
    ] {
        wait_for(async {
            let found = site
                .router
                .find(0, None, &Method::GET, url.as_bytes())
                .unwrap();
            site.router
                .resolve(&found, &Method::GET, None, clock::now())
                .await;
        });
        let start = cpu_time();
        let mut looked_up = 0;
        let mut now = clock::now();
        for round in 0..rounds {
            // The clock is read now and then, as by a reactor.
            if round % 64 == 0 {
                now = clock::now();
            }
            let found = site
                .router
                .find(0, Some(b"shop.example:8080"), &Method::GET, url.as_bytes())
                .unwrap();
            match site.router.resolve_now(&found, &Method::GET, None, now) {
                Some(Target::File(entry)) => {
                    let reply = crate::files::serve(&entry, &Method::GET, &headers);
                    assert_eq!(std::hint::black_box(reply).status, 200);
                }
                Some(Target::Script(script)) => {
                    assert_eq!(std::hint::black_box(script).script_name, b"/index.php")
                }
                Some(other) => panic!("{url}: {other:?}"),
                // The machine stood still for so long that entries had to be looked up again.
                None => {
                    looked_up += 1;
                    wait_for(site.router.resolve(&found, &Method::GET, None, now));
                }
            }
        }
        assert!(looked_up <= rounds / 50, "{url}: {looked_up} of {rounds}");
        let end = cpu_time();
        let [all, user] = [end.0 - start.0, end.1 - start.1].map(|time| time.as_nanos() / rounds);
        println!("{url}: {all} ns, about {user} of them in user mode");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_url_reaches_a_file_that_is_not_under_the_root(
        pieces in proptest::collection::vec(
            prop_oneof![
                Just("/"), Just(".."), Just("."), Just("%2e%2e"), Just("%2f"), Just("outside"), Just("secret.txt"),
                Just("out.txt"), Just("docs"), Just("index.php"), Just(".env"), Just("\\"), Just("%5c"), Just("site"),
            ],
            0..10,
        ),
    ) {
        thread_local!(static SITE: Fixture = Fixture::new(|_, _| {}));
        SITE.with(|site| {
            let url = format!("/{}", pieces.concat());
            let Ok(found) = site.router.find(0, None, &Method::GET, url.as_bytes()) else { return };
            for target in site.both_ways(&found, &Method::GET, None) {
                if let Target::File(entry) = target {
                    let content = entry.identity().content.clone().unwrap();
                    assert!(!content.starts_with(b"secret"), "{url}");
                    assert!(!content.starts_with(b"<?php"), "{url}");
                }
            }
        });
    }
}
