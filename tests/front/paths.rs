//! Paths that are written in unusual ways: what rules see, and what applications get.

use weir_test::front::WebServer;
use weir_test::weir::request;
use weir_test::{Client, Responder, Setup};

/// A responder that prints which script it was to run, and the target as the client wrote it.
fn teller(setup: &Setup) -> Responder {
    Responder::unix(setup.folder(), |request, answer| {
        answer.page(format!(
            "{}|{}|{}",
            request.param("SCRIPT_NAME"),
            request.param("PATH_INFO"),
            request.param("REQUEST_URI"),
        ))
    })
}

#[test]
fn path_info_does_not_walk_around_hide_files_deny_and_exact_routes() {
    let setup = Setup::new()
        .file("index.php", "")
        .file("wp-config.php", "")
        .file("x.php", "")
        .file("post.php", "")
        .file("old.php", "")
        .file("admin/index.php", "")
        .site(r"hide_files = ['^/wp-config\.php$']")
        .more(
            r#"
            [[site.main.route]]
            path = "/x.php"
            deny = true
            [[site.main.route]]
            path = "~^/admin/index\\.php$"
            deny = true
            [[site.main.route]]
            path = "/post.php"
            methods = ["POST"]
            deny = true
            [[site.main.route]]
            path = "/old.php"
            redirect = "/"
            [[site.main.route]]
            path = "*.css"
            cache_control = "public"
            "#,
        );
    let responder = teller(&setup);
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    for behind in [
        "",
        "/",
        "/extra",
        "/extra.css",
        "//",
        "/./x",
        "/a/../b",
        "%2fx",
        "/a%2Fb",
        "/index.php",
        "/index.php/x",
        "/?q",
        "/%00",
    ] {
        for (method, script, expected) in [
            ("GET", "/wp-config.php", 404),
            ("GET", "/x.php", 403),
            ("GET", "/%78.php", 403),
            ("GET", "//x.php", 403),
            ("GET", "/admin/index.php", 403),
            ("POST", "/post.php", 403),
            ("GET", "/old.php", 308),
        ] {
            let path = format!("{script}{behind}");
            let response = weir.request(method, &path, &[], b"");
            let expected = if behind == "/%00" { 400 } else { expected };
            assert_eq!(response.status, expected, "{method} {path}");
        }
    }
    weir.get("/admin/").expect(403);
    assert!(responder.uris().is_empty(), "{:?}", responder.uris());
    weir.get("/post.php/x").expect(200);
    weir.get("/index.php/x.php").expect(200);
}

#[test]
fn default_hide_files_leaves_path_info_and_the_fallbacks_urls_to_the_application() {
    let setup = Setup::new()
        .file("cgit.cgi", "")
        .file("index.php", "")
        .file(".env", "SECRET")
        .file("sub/.git/config", "SECRET")
        .file("notes.old", "SECRET")
        .site("fallback = \"/index.php\"")
        .site(r"script = '^(/.+\.(?:php|cgi))(/.*)?$'");
    let responder = teller(&setup);
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    for (path, expected) in [
        (
            "/cgit.cgi/r.git/tree/.gitignore",
            "/cgit.cgi|/r.git/tree/.gitignore",
        ),
        ("/cgit.cgi/r.git/tree/a.inc", "/cgit.cgi|/r.git/tree/a.inc"),
        ("/repo/src/.gitignore", "/index.php|"),
        ("/wiki/Page.old", "/index.php|"),
    ] {
        let told = weir.get(path).expect(200).text();
        assert_eq!(told, format!("{expected}|{path}"), "{path}");
    }
    for path in [
        "/.env",
        "/%2eenv",
        "/sub/.git/config",
        "/sub/.git/none",
        "/sub/.git/",
        "/notes.old",
    ] {
        let response = weir.get(path).expect(404);
        assert!(!response.text().contains("SECRET"), "{path}");
    }
}

#[test]
fn copies_of_scripts_and_what_they_include_are_not_sent() {
    let source = "<?php $password = 'SECRET';";
    let names = [
        "wp-config.php.bak",
        "x.php~",
        "x.php.old",
        "a.inc",
        "x.php.orig",
        "x.php.save",
        "x.php.swp",
        "x.php.1",
        "x.php.dist",
        "x.phps",
        "#x.php#",
        "x.php.2024-01-31",
        "settings.local",
        "drupal.module",
        "x.php.gz",
    ];
    for site in ["", r"hide_files = ['^/nothing']"] {
        let mut setup = Setup::new().site(site).file("x.php.txt", "to be read");
        for name in names {
            setup = setup.file(name, source);
        }
        let responder = teller(&setup);
        let pool = responder.pool(1);
        let weir = setup.pool(&pool).start();
        for name in names {
            let path = format!("/{}", name.replace('#', "%23"));
            let response = weir.get(&path);
            assert!(matches!(response.status, 403 | 404), "{path}: {response:?}");
            assert!(!response.text().contains("SECRET"), "{path}");
        }
        assert_eq!(weir.get("/x.php.txt").expect(200).text(), "to be read");
        assert!(responder.uris().is_empty());
    }
}

/// MediaWiki's REST interface, Symfony and Laravel: the same as behind nginx.
#[test]
fn an_encoded_slash_reaches_scripts_as_behind_nginx() {
    let setup = Setup::new()
        .file("index.php", "")
        .file("rest.php", "")
        .file("docs/a.txt", "a file")
        .file("style.css", "css")
        .site("fallback = \"/index.php\"");
    let responder = teller(&setup);
    let (pool, folder, root) = (responder.pool(1), setup.folder().to_owned(), setup.root());
    let weir = setup.pool(&pool).start();
    let nginx = WebServer::nginx(
        &folder,
        &format!(
            "root {root};\n\
             location / {{ try_files $uri /index.php$is_args$args; }}\n\
             location ~ ^(?<script>.+?\\.php)(?<info>/.*)?$ {{\n\
             fastcgi_pass {server};\n\
             fastcgi_param SCRIPT_NAME $script;\n\
             fastcgi_param PATH_INFO $info;\n\
             fastcgi_param REQUEST_URI $request_uri;\n\
             fastcgi_param REQUEST_METHOD $request_method;\n}}\n",
            root = root.display(),
            server = responder.server(),
        ),
        "",
    );
    let ask = |path: &str| {
        let told = |mut client: Client| {
            client.send(request("GET", path, &[], b""));
            let response = client.response();
            (response.status, response.text())
        };
        (told(weir.client()), told(Client::connect(nginx.address())))
    };
    for path in [
        "/rest.php/v1/page/A%2FB",
        "/rest.php/v1/page/A%2fB/history?x=%2F",
        "/rest.php/v1/page/Foo%2FBar%20baz",
        "/rest.php/v1/page/A%2F..%2FB",
        "/rest.php/v1/page/../other",
        "/rest.php/v1/./page/%2e%2e/other",
        "/rest.php/v1/page/Foo.php/history",
        "/page/A%2FB",
        "/page/a/../b",
        "/page/%2e%2e%2Fb",
        "/page/a%2F..%2Fb?x=1",
    ] {
        let (ours, theirs) = ask(path);
        assert_eq!(ours, theirs, "{path}");
        assert_eq!(ours.0, 200, "{path}: {ours:?}");
        assert!(ours.1.ends_with(&format!("|{path}")), "{path}: {ours:?}");
    }
    for path in ["/..", "/..%2fx", "/a/../../x", "/a%2F..%2F..%2Fx"] {
        let (ours, theirs) = ask(path);
        assert_eq!((ours.0, theirs.0), (400, 400), "{path}");
    }
    // Here weir differs from nginx: no file has such a name.
    for path in ["/docs%2Fa.txt", "/docs/%2e%2e%2Fstyle.css"] {
        let (ours, _) = ask(path);
        assert_eq!(ours.1, format!("/index.php||{path}"), "{path}");
    }
}

#[test]
fn an_encoded_slash_that_is_refused_has_its_line_in_the_log() {
    let setup = Setup::new()
        .file("index.php", "")
        .file("a/one.txt", "one")
        .more(
            r#"
            [[site.main.route]]
            path = "/strict/*"
            encoded_slash = "refuse"
            "#,
        );
    let responder = teller(&setup);
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    weir.get("/a%2fone.txt").expect(404);
    weir.wait_for_error(&[
        "404 not_found",
        "a/one.txt",
        "no file name has an encoded slash",
    ]);
    weir.get("/strict/index.php%2fx").expect(404);
    weir.wait_for_error(&[
        "404 encoded_slash",
        "/strict/index.php%2fx",
        "encoded_slash = \"refuse\"",
    ]);
    weir.get("/a/../../b").expect(400);
    weir.wait_for_error(&["400 path_above_root", "/a/../../b"]);
    weir.get("/a%zz").expect(400);
    weir.wait_for_error(&["400 bad_path", "/a%zz"]);
    assert_eq!(
        weir.logged("/strict/index.php%2fx")["reason"],
        "encoded_slash"
    );
    assert!(responder.uris().is_empty());
}
