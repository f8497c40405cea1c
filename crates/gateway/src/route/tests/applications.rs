//! What applications ask of URLs: encoded slashes, rewrites, aliases, scripts that are no files here.

use super::*;

#[test]
fn an_encoded_slash_is_for_scripts_and_fallbacks() {
    let text = r#"
        [site.first]
        root = "ROOT"
        pool = "php"
        fallback = "/index.php"
        [[site.first.route]]
        path = "/strict/*"
        encoded_slash = "refuse"
        [[site.first.route]]
        path = "/files/*"
        fallback = ""
        [pool.php]
        runtime = "servers"
        servers = ["unix:/run/php.sock"]
        "#;
    let site = Fixture::with(text);
    fs::create_dir_all(site.root.join("files/a")).unwrap();
    fs::write(site.root.join("files/a/b.txt"), "x").unwrap();
    for (url, expected) in [
        (
            "/index.php/v1/page/A%2FB",
            "script /index.php info /v1/page/A/B",
        ),
        (
            "/index.php/A%2FB.php/c",
            "script /index.php info /A/B.php/c",
        ),
        (
            "/index.php/Page.php/history",
            "script /index.php info /Page.php/history",
        ),
        ("/page/A%2FB", "script /index.php"),
        ("/docs%2Findex.html", "script /index.php"),
        ("/docs%2F", "script /index.php"),
        ("/admin%2Findex.php", "script /index.php"),
        ("/admin%2Findex.php/x", "script /index.php"),
        ("/index.php%2Fx", "script /index.php"),
        ("/x%2F../style.css", "script /index.php"),
        ("/repo%2F.env", "script /index.php"),
        ("/files/a%2Fb.txt", "404 no file name has an encoded slash"),
        (
            "/files/a/b.txt",
            "file files/a/b.txt text/plain; charset=utf-8",
        ),
        ("/strict/a%2Fb", "404 encoded_slash"),
        ("/strict/a", "script /index.php"),
        ("/..%2Fx", "400 path_above_root"),
        ("/a%2F..%2F..%2Fx", "400 path_above_root"),
    ] {
        site.expect(url, expected);
    }
}

#[test]
fn scripts_of_other_programs_need_no_file() {
    let site = |more: &str, pool: &str| {
        Fixture::with(&format!(
            "[site.first]\nroot = \"ROOT\"\npool = \"app\"\n{more}\n[pool.app]\n{pool}\n"
        ))
    };
    let servers = "runtime = \"servers\"\nservers = [\"10.0.0.5:9000\"]";
    let program = "runtime = \"command\"\ncommand = [\"/usr/lib/app/app.fcgi\"]";
    let cgi = "runtime = \"command\"\ncommand = [\"/usr/bin/php-cgi8.2\"]";
    let app = "script = '^(/app)(/.*)?$'\nfallback = \"/app\"\nindex = []";
    for pool in [servers, program] {
        let app = site(app, pool);
        for (url, expected) in [
            ("/app", "script /app"),
            ("/app/a/b", "script /app info /a/b"),
            ("/anything", "script /app"),
            ("/", "script /app"),
            ("/style.css", "file style.css text/css; charset=utf-8"),
        ] {
            app.expect(url, expected);
        }
        // PHP's scripts are files, unless `check_files` is false.
        let plain = site("", pool);
        plain.expect("/missing.php", "404 no such script");
        plain.expect("/index.php", "script /index.php");
        let unchecked = site("check_files = false", pool);
        unchecked.expect("/missing.php/x", "script /missing.php info /x");
        unchecked.expect("/.hidden.php", "404 hidden by hide_files");
        let checked = site("check_files = true\nscript = '^(/app)(/.*)?$'", pool);
        checked.expect("/app", "404 no such script");
    }
    site("script = '^(/app)(/.*)?$'", cgi).expect("/app", "404 no such script");
    for named in [
        "runtime = \"command\"\ncommand = [\"/usr/sbin/fcgiwrap\"]",
        "runtime = \"servers\"\nservers = [\"unix:/run/php/php8.2-fpm.sock\"]",
        "runtime = \"servers\"\nservers = [\"unix:/run/fcgiwrap.socket\"]",
    ] {
        site("script = '^(/app)(/.*)?$'", named).expect("/app", "404 no such script");
    }
    // If the file exists, the rules for files apply.
    let linked = site("script = '^(/outside/secret)(/.*)?$'", program);
    linked.expect("/outside/secret", "403 a link out of the root");
}

#[test]
fn unchecked_scripts_need_no_root_here() {
    let names = |more: &str, url: &str| {
        let site = Fixture::with(&format!(
            "[site.first]\npool = \"app\"\ncheck_files = false\n{more}\n\
             [pool.app]\nruntime = \"servers\"\nservers = [\"10.0.0.5:9000\"]\n"
        ));
        let found = site
            .router
            .find(0, None, &Method::GET, url.as_bytes())
            .unwrap();
        match wait_for(
            site.router
                .resolve(&found, &Method::GET, None, clock::now()),
        ) {
            Target::Script(script) => format!(
                "{} {} {}",
                script.filename().display(),
                String::from_utf8_lossy(&script.document_root),
                String::from_utf8_lossy(&script.path_info)
            ),
            target => describe(&target),
        }
    };
    let far = "root = \"/nowhere/at/all\"";
    let front = "root = \"/nowhere/at/all\"\nfallback = \"/index.php\"";
    assert_eq!(
        names(far, "/x.php/y"),
        "/nowhere/at/all/x.php /nowhere/at/all /y"
    );
    assert_eq!(
        names(far, "/"),
        "/nowhere/at/all/index.php /nowhere/at/all "
    );
    assert_eq!(names(far, "/style.css"), "404 the root does not exist");
    assert_eq!(
        names(front, "/a/b/"),
        "/nowhere/at/all/index.php /nowhere/at/all "
    );
    assert_eq!(names("", "/x.php"), "/x.php  ");
    assert_eq!(
        names("script_root = \"/srv/www\"", "/x.php"),
        "/srv/www/x.php /srv/www "
    );
    let hidden = "root = \"/nowhere/at/all\"\nhide_files = ['^/x\\.php$']";
    assert_eq!(names(hidden, "/x.php/y"), "404 hidden by hide_files");
}

#[test]
fn a_rewrite_stands_for_what_was_asked() {
    let site = Fixture::with(
        r#"
        [site.first]
        root = "ROOT"
        pool = "php"
        [[site.first.route]]
        path = "/closed.php"
        deny = true
        [[site.first.route]]
        path = "~^/wiki/(.*)$"
        rewrite = "/index.php?id=$1"
        [[site.first.route]]
        path = "~^/v[0-9]+/(.*)$"
        rewrite = "/$1"
        [[site.first.route]]
        path = "~^/to-closed/"
        rewrite = "/closed.php"
        [[site.first.route]]
        path = "~^/again/(.*)$"
        rewrite = "/again/x$1"
        [[site.first.route]]
        path = "~^/(?P<page>[a-z]+)\\.page$"
        fallback = "/index.php?page=${page}"
        [pool.php]
        runtime = "servers"
        servers = ["unix:/run/php.sock"]
        "#,
    );
    fs::write(site.root.join("there.page"), "x").unwrap();
    for (url, expected) in [
        ("/wiki/start", "script /index.php?id=start"),
        (
            "/wiki/a%26b%2Fc?do=edit",
            "script /index.php?id=a%26b/c&do=edit",
        ),
        ("/v17/style.css", "file style.css text/css; charset=utf-8"),
        ("/v17/docs", "301 /docs/"),
        ("/v17/.env", "404 hidden by hide_files"),
        ("/v17/out.txt", "403 a link out of the root"),
        ("/v17/a%2Fb", "404 no file name has an encoded slash"),
        ("/v17/v18/style.css", "404 no such file"),
        ("/v17/wiki/x?y=1", "script /index.php?id=x&y=1"),
        ("/v17/closed.php/x", "action Deny"),
        ("/to-closed/x", "action Deny"),
        ("/again/", "404 no such file"),
        ("/there.page", "file there.page application/octet-stream"),
        ("/missing.page?x=1", "script /index.php?page=missing&x=1"),
    ] {
        site.expect(url, expected);
    }
}

#[test]
fn an_alias_stands_for_its_prefix() {
    let site = Fixture::with(
        r#"
        [site.first]
        root = "ROOT/docs"
        pool = "php"
        fallback = "/index.php"
        deny_scripts = ["/lib/uploads/"]
        [[site.first.route]]
        path = "/lib/*"
        alias = "ROOT"
        hide_files = ['^/lib/run\.cgi$', '(^|/)\.']
        [[site.first.route]]
        path = "/apps/one/*"
        alias = "ROOT/admin"
        fallback = "/apps/one/index.php"
        [pool.php]
        runtime = "servers"
        servers = ["unix:/run/php.sock"]
        "#,
    );
    fs::write(site.root.join("docs/secret"), "x").unwrap();
    for (url, expected) in [
        ("/lib/style.css", "file style.css text/css; charset=utf-8"),
        ("/lib", "301 /lib/"),
        ("/lib?a=1", "301 /lib/?a=1"),
        ("/lib/docs", "301 /lib/docs/"),
        (
            "/lib/docs/",
            "file docs/index.html text/html; charset=utf-8",
        ),
        ("/lib/", "script /lib/index.php"),
        ("/lib/index.php/x", "script /lib/index.php info /x"),
        ("/lib/admin/", "script /lib/admin/index.php"),
        ("/lib/missing", "404 no such file"),
        ("/lib/run.cgi", "404 hidden by hide_files"),
        ("/lib/.env", "404 hidden by hide_files"),
        ("/lib/out.txt", "403 a link out of the root"),
        ("/lib/outside/secret.txt", "403 a link out of the root"),
        ("/lib/source.phtml", "403 the source of a script"),
        ("/lib/uploads/evil.php", "file uploads/evil.php text/plain"),
        ("/lib/a%2Fb", "404 no file name has an encoded slash"),
        // The slash that nginx's `alias` may lack.
        (
            "/lib../outside/secret.txt",
            "404 the fallback does not exist",
        ),
        ("/lib/../secret", "file secret application/octet-stream"),
        (
            "/lib/%2e%2e/lib/style.css",
            "file style.css text/css; charset=utf-8",
        ),
        ("/lib/..%2f..%2foutside/secret.txt", "400 path_above_root"),
        ("/libx", "404 the fallback does not exist"),
        ("/apps/one/", "script /apps/one/index.php"),
        ("/apps/one/some/page", "script /apps/one/index.php"),
    ] {
        site.expect(url, expected);
    }
    match site.resolve("/apps/one/some/page") {
        Target::Script(script) => {
            let folder = site.root.join("admin");
            assert_eq!(script.filename(), folder.join("index.php"));
            assert_eq!(&*script.document_root, folder.as_os_str().as_bytes());
        }
        target => panic!("{target:?}"),
    }
}

/// The same folder as a root and behind an alias, where one of them shows scripts as text.
#[test]
fn an_alias_and_a_root_share_no_memory_of_files() {
    let site = Fixture::with(
        r#"
        [site.first]
        root = "ROOT"
        pool = "php"
        deny_scripts = ["/text/"]
        [[site.first.route]]
        path = "/text/*"
        alias = "ROOT"
        [pool.php]
        runtime = "servers"
        servers = ["unix:/run/php.sock"]
        "#,
    );
    site.keep("/text/source.phtml");
    site.expect("/source.phtml", "403 the source of a script");
}
