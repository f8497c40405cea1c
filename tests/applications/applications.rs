//! What applications need from a web server besides files and scripts: rewritten URLs, folders in other places, scripts
//! that are not files here, and the server's name.

use weir_test::{Responder, Setup};

/// A responder that prints what it was to run.
fn teller(setup: &Setup) -> Responder {
    Responder::unix(setup.folder(), |request, answer| {
        answer.page(format!(
            "{}|{}|{}|{}|{}",
            request.param("SCRIPT_FILENAME"),
            request.param("SCRIPT_NAME"),
            request.param("PATH_INFO"),
            request.param("QUERY_STRING"),
            request.param("REQUEST_URI"),
        ))
    })
}

#[test]
fn server_software_is_one_that_applications_know_and_can_be_said() {
    let software = |server: &str| {
        let setup = Setup::new().file("index.php", "").server(server);
        let responder = Responder::unix(setup.folder(), |request, answer| {
            answer.page(request.param("SERVER_SOFTWARE"))
        });
        let pool = responder.pool(1);
        let weir = setup.pool(&pool).start();
        weir.get("/").expect(200).text()
    };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(software(""), format!("weir/{version} (nginx compatible)"));
    assert_eq!(software("server_software = \"Apache\""), "Apache");
}

#[test]
fn a_route_rewrites_with_the_groups_of_its_expression() {
    let setup = Setup::new()
        .file("doku.php", "")
        .file("lib/exe/fetch.php", "")
        .file("lib/style.css", "css")
        .file("files/there.txt", "must not be sent as it is")
        .file("download.php", "")
        .more(
            r#"
            [[site.main.route]]
            path = "~^/_media/(.*)$"
            rewrite = "/lib/exe/fetch.php?media=$1"
            [[site.main.route]]
            path = "~^/files/(?P<name>.*)$"
            rewrite = "/download.php?f=${name}"
            [[site.main.route]]
            path = "~^/static-[0-9]+/(.*)$"
            rewrite = "/lib/$1"
            [[site.main.route]]
            path = "~^/(.*)$"
            fallback = "/doku.php?id=$1"
            "#,
        );
    let responder = teller(&setup);
    let (pool, root) = (responder.pool(1), setup.root().display().to_string());
    let weir = setup.pool(&pool).start();
    for (url, script, query) in [
        (
            "/_media/wiki:logo.png?w=200",
            "/lib/exe/fetch.php",
            "media=wiki:logo.png&w=200",
        ),
        ("/files/there.txt", "/download.php", "f=there.txt"),
        ("/files/a%26b%3Dc%2Fd", "/download.php", "f=a%26b%3Dc/d"),
        ("/wiki:start?do=edit", "/doku.php", "id=wiki:start&do=edit"),
        ("/doku.php?id=x", "/doku.php", "id=x"),
    ] {
        let told = weir.get(url).expect(200).text();
        assert_eq!(told, format!("{root}{script}|{script}||{query}|{url}"));
    }
    assert_eq!(weir.get("/static-17/style.css").expect(200).text(), "css");
    assert_eq!(weir.get("/lib/style.css").expect(200).text(), "css");
}

#[test]
fn a_prefix_may_stand_for_a_folder_elsewhere() {
    let setup = Setup::new()
        .file("index.php", "")
        .file("../shared/jquery/jquery.js", "js")
        .file("../shared/app/index.php", "")
        .file("../shared/app/.env", "SECRET")
        .file("../shared-secret/file", "SECRET")
        .site("fallback = \"/index.php\"");
    let shared = setup.folder().join("shared").display().to_string();
    let responder = teller(&setup);
    let pool = responder.pool(1);
    let weir = setup
        .pool(&pool)
        .more(&format!(
            "[[site.main.route]]\npath = \"/javascript/*\"\nalias = \"{shared}\"\n"
        ))
        .start();
    assert_eq!(
        weir.get("/javascript/jquery/jquery.js").expect(200).text(),
        "js"
    );
    let response = weir.get("/javascript?x=1").expect(301);
    assert!(
        response
            .header("location")
            .expect("Location")
            .ends_with("/javascript/?x=1")
    );
    assert_eq!(
        weir.get("/javascript/app/index.php/info?q")
            .expect(200)
            .text(),
        format!(
            "{shared}/app/index.php|/javascript/app/index.php|/info|q|/javascript/app/index.php/info?q"
        )
    );
    assert_eq!(
        weir.get("/javascript/app/").expect(200).text(),
        format!("{shared}/app/index.php|/javascript/app/index.php|||/javascript/app/")
    );
    weir.get("/javascript/missing.js").expect(404);
    weir.get("/javascript/app/.env").expect(404);
    // With nginx's `location /javascript { alias …/shared/; }` the first of these leaves the folder.
    for path in [
        "/javascript../shared-secret/file",
        "/javascript-secret/file",
        "/javascript/../shared-secret/file",
        "/javascript/..%2fshared-secret/file",
        "/javascript/%2e%2e/shared-secret/file",
        "/javascript/%2e%2e%2fshared-secret%2ffile",
    ] {
        let response = weir.get(path);
        assert!(!response.text().contains("SECRET"), "{path}: {response:?}");
    }
}

#[test]
fn scripts_that_are_no_files_here_run_where_files_are_not_checked() {
    let setup = Setup::new()
        .file("style.css", "css")
        .site("script = '^(/app)(/.*)?$'\nfallback = \"/app\"\nindex = []");
    let responder = teller(&setup);
    let (pool, root) = (responder.pool(1), setup.root().display().to_string());
    let weir = setup
        .pool(&pool)
        .more(
            "[site.far]\nhosts = [\"far.example\"]\nroot = \"/nowhere/here\"\npool = \"app\"\ncheck_files = false\n\
             [site.php]\nhosts = [\"php.example\"]\nroot = \"/tmp\"\npool = \"app\"\n",
        )
        .start();
    for url in ["/", "/some/page?x=1"] {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        let told = weir.get(url).expect(200).text();
        assert_eq!(told, format!("{root}/app|/app||{query}|{url}"));
    }
    let told = weir.get("/app/info").expect(200).text();
    assert_eq!(told, format!("{root}/app|/app|/info||/app/info"));
    assert_eq!(weir.get("/style.css").expect(200).text(), "css");
    let far = weir.request("GET", "/deep/x.php/y", &[("Host", "far.example")], b"");
    assert_eq!(
        far.expect(200).text(),
        "/nowhere/here/deep/x.php|/deep/x.php|/y||/deep/x.php/y"
    );
    // A PHP script is a file, unless the configuration says that it is not.
    let php = weir.request(
        "GET",
        "/no-such-script.php",
        &[("Host", "php.example")],
        b"",
    );
    php.expect(404);
}
