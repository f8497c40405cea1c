//! How weir gets from host and path to a file, a script or an answer.

use weir_test::php::identity;
use weir_test::{Client, Responder, Setup, free_address, wait_for};

/// A responder that prints which script it was to run, and its path-info.
fn teller(setup: &Setup) -> Responder {
    Responder::unix(setup.folder(), |request, answer| {
        let root = request.param("DOCUMENT_ROOT");
        let file = request.param("SCRIPT_FILENAME");
        let file = file.strip_prefix(root).unwrap_or(file);
        answer.page(format!(
            "{file}|{}|{}|{}",
            request.param("SCRIPT_NAME"),
            request.param("PATH_INFO"),
            request.param("QUERY_STRING"),
        ))
    })
}

#[test]
fn sites_are_chosen_by_host() {
    let setup = Setup::new().file("name.txt", "default");
    let folder = setup.folder().display().to_string();
    let mut text = String::new();
    for (name, hosts) in [
        ("exact", r#""shop.example""#),
        ("suffix", r#""*.shop.example""#),
        ("prefix", r#""mail.*""#),
        ("special", r#""special.shop.example""#),
    ] {
        text.push_str(&format!(
            "[site.{name}]\nhosts = [{hosts}]\nroot = \"{folder}/root/{name}\"\n"
        ));
    }
    let weir = setup
        .file("exact/name.txt", "exact")
        .file("suffix/name.txt", "suffix")
        .file("prefix/name.txt", "prefix")
        .file("special/name.txt", "special")
        .more(&text)
        .start();
    let expected = [
        ("shop.example", "exact"),
        ("SHOP.example", "exact"),
        ("shop.example:8080", "exact"),
        ("www.shop.example", "suffix"),
        ("a.b.shop.example", "suffix"),
        ("special.shop.example", "special"),
        ("mail.example", "prefix"),
        ("notshop.example", "default"),
        ("127.0.0.1", "default"),
        ("[::1]:80", "default"),
    ];
    for (host, site) in expected {
        let response = weir.request("GET", "/name.txt", &[("Host", host)], b"");
        assert_eq!(response.expect(200).text(), site, "{host}");
    }
    // RFC 9112 §3.2.2: the target's own host counts.
    let response = weir.request(
        "GET",
        "http://shop.example/name.txt",
        &[("Host", "mail.example")],
        b"",
    );
    assert_eq!(response.expect(200).text(), "exact");
}

#[test]
fn sites_are_chosen_by_listener() {
    let setup = Setup::new().file("name.txt", "main");
    let other = free_address();
    let folder = setup.folder().display().to_string();
    let text = format!(
        "[listen.inner]\naddress = \"{other}\"\n\
         [site.inner]\nlisten = [\"inner\"]\nroot = \"{folder}/root/inner\"\n"
    );
    let weir = setup
        .file("inner/name.txt", "inner")
        .site("listen = [\"web\"]")
        .more(&text)
        .start();
    assert_eq!(weir.get("/name.txt").expect(200).text(), "main");
    let mut client = Client::connect(other);
    client.send("GET /name.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().expect(200).text(), "inner");
}

#[test]
fn a_site_listens_on_a_unix_socket_with_owner_and_mode() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    let setup = Setup::new().file("name.txt", "unix");
    let path = setup.folder().join("web.sock");
    let owner = if weir_test::is_root() {
        "owner = \"nobody\"\ngroup = \"nogroup\"\n"
    } else {
        ""
    };
    let text = format!(
        "[listen.local]\naddress = \"unix:{}\"\nmode = \"0600\"\n{owner}",
        path.display()
    );
    let mut weir = setup.more(&text).start();
    let mut stream = wait_for("it listens there too", || UnixStream::connect(&path).ok());
    stream
        .write_all(b"GET /name.txt HTTP/1.0\r\n\r\n")
        .expect("send");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("an answer");
    assert!(
        said.starts_with("HTTP/1.1 200") || said.starts_with("HTTP/1.0 200"),
        "{said}"
    );
    let metadata = std::fs::metadata(&path).expect("the socket");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    if weir_test::is_root() {
        use std::os::unix::fs::MetadataExt;
        assert_eq!(metadata.uid(), 65534);
    }
    weir.stop();
    assert!(!path.exists(), "the socket is left behind");
}

#[test]
fn a_folder_without_its_slash_is_redirected() {
    let setup = Setup::new().file("docs/index.html", "docs");
    let weir = setup.start();
    let response = weir.get("/docs?a=b&c").expect(301);
    assert!(
        response
            .header("location")
            .expect("Location")
            .ends_with("/docs/?a=b&c"),
        "{response:?}"
    );
    // 308 keeps the method (RFC 9110 §15.4.9).
    let response = weir.request("POST", "/docs", &[], b"x").expect(308);
    assert!(
        response
            .header("location")
            .expect("Location")
            .ends_with("/docs/"),
        "{response:?}"
    );
    assert_eq!(weir.get("/docs/").expect(200).text(), "docs");
}

#[test]
fn a_redirect_to_the_slash_cannot_lead_to_another_host() {
    let setup = Setup::new().file("docs/index.html", "docs");
    let weir = setup.start();
    for path in ["//docs", "//docs/..//docs", "/%2fdocs", "/\\docs"] {
        let response = weir.get(path);
        let location = response.header("location").unwrap_or("/");
        assert!(
            !location.starts_with("//") && !location.starts_with("/\\"),
            "{path}: {location}"
        );
    }
}

#[test]
fn the_index_is_the_first_that_is_there() {
    let setup = Setup::new()
        .file("index.html", "html")
        .file("app/index.php", "")
        .file("app/index.html", "html")
        .site("index = [\"index.php\", \"index.html\"]");
    let responder = teller(&setup);
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    assert_eq!(weir.get("/").expect(200).text(), "html");
    assert_eq!(
        weir.get("/app/?x=1").expect(200).text(),
        "/app/index.php|/app/index.php||x=1"
    );
}

#[test]
fn a_folder_without_an_index_is_not_listed() {
    let weir = Setup::new().file("folder/secret-name.txt", "x").start();
    let response = weir.get("/folder/");
    assert!(matches!(response.status, 403 | 404), "{response:?}");
    assert!(!response.text().contains("secret-name"));
}

#[test]
fn scripts_get_the_rest_of_the_path() {
    let setup = Setup::new().file("script.php", "").file("deep/one.php", "");
    let responder = teller(&setup);
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let expected = [
        ("/script.php", "/script.php|/script.php||"),
        (
            "/script.php?a=b%20c&d",
            "/script.php|/script.php||a=b%20c&d",
        ),
        ("/script.php/anything", "/script.php|/script.php|/anything|"),
        ("/deep/one.php/a%20b", "/deep/one.php|/deep/one.php|/a b|"),
        ("/script.php/", "/script.php|/script.php|/|"),
    ];
    for (path, told) in expected {
        assert_eq!(weir.get(path).expect(200).text(), told, "{path}");
    }
}

#[test]
fn which_urls_are_scripts_can_be_said() {
    let setup = Setup::new()
        .file("run.cgi", "")
        .file("run.php", "<?php secret")
        .site(r"script = '^(/.+\.cgi)(/.*)?$'");
    let responder = teller(&setup);
    let pool = format!("{}limit_extensions = [\".cgi\"]\n", responder.pool(1));
    let weir = setup.pool(&pool).start();
    assert_eq!(
        weir.get("/run.cgi/x").expect(200).text(),
        "/run.cgi|/run.cgi|/x|"
    );
    assert_eq!(responder.uris().len(), 1);
}

#[test]
fn an_extension_that_a_pool_may_not_run_is_refused() {
    let setup = Setup::new()
        .file("page.html", "<?php secret")
        .site(r"script = '^(/.+\.(?:php|html))(/.*)?$'");
    let responder = teller(&setup);
    let pool = format!("{}limit_extensions = [\".php\"]\n", responder.pool(1));
    let weir = setup.pool(&pool).start();
    let response = weir.get("/page.html").expect(403);
    assert!(!response.text().contains("secret"));
    assert!(responder.uris().is_empty());
}

#[test]
fn a_front_controller_gets_what_is_no_file() {
    let setup = Setup::new()
        .file("index.php", "")
        .file("style.css", "css")
        .file("other.php", "")
        .site("fallback = \"/index.php\"");
    let responder = teller(&setup);
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    assert_eq!(
        weir.get("/2024/05/a-post/?page=2").expect(200).text(),
        "/index.php|/index.php||page=2"
    );
    assert_eq!(weir.get("/style.css").expect(200).text(), "css");
    assert_eq!(
        weir.get("/other.php").expect(200).text(),
        "/other.php|/other.php||"
    );
    assert_eq!(responder.uris()[0], "/2024/05/a-post/?page=2");
}

#[test]
fn a_script_without_a_pool_is_never_sent_as_text() {
    let weir = Setup::new()
        .file("index.php", "<?php $password = 'secret';")
        .start();
    for path in ["/index.php", "/index.php/x", "/"] {
        let response = weir.get(path);
        assert!(matches!(response.status, 403 | 404), "{path}: {response:?}");
        assert!(!response.text().contains("secret"), "{path}");
    }
}

#[test]
fn hidden_files_are_neither_served_nor_run() {
    let setup = Setup::new()
        .file(".env", "SECRET=1")
        .file(".git/config", "secret")
        .file("folder/.htaccess", "secret")
        .file(".hidden.php", "")
        .file(".well-known/security.txt", "contact")
        .file("visible.env", "visible");
    let responder = teller(&setup);
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    for path in [
        "/.env",
        "/.git/config",
        "/folder/.htaccess",
        "/.hidden.php",
        "/%2eenv",
        "/folder/../.env",
        "/.git/",
        "/.git",
    ] {
        let response = weir.get(path);
        assert!(matches!(response.status, 403 | 404), "{path}: {response:?}");
        assert!(!response.text().to_lowercase().contains("secret"), "{path}");
    }
    assert!(responder.uris().is_empty());
    assert_eq!(
        weir.get("/.well-known/security.txt").expect(200).text(),
        "contact"
    );
    assert_eq!(weir.get("/visible.env").expect(200).text(), "visible");
}

#[test]
fn which_files_are_hidden_can_be_said() {
    let weir = Setup::new()
        .file("backup.sql", "secret")
        .file("readme.txt", "readme")
        .site(r"hide_files = ['\.sql$']")
        .start();
    assert!(matches!(weir.get("/backup.sql").status, 403 | 404));
    weir.get("/readme.txt").expect(200);
}

#[test]
fn uploaded_scripts_are_served_and_never_run() {
    let setup = Setup::new()
        .file("uploads/evil.php", "<?php evil")
        .file("uploads/a/evil.php", "<?php evil");
    let responder = teller(&setup);
    let pool = responder.pool(1);
    let weir = setup
        .site("deny_scripts = [\"/uploads/\"]")
        .pool(&pool)
        .start();
    for path in [
        "/uploads/evil.php",
        "/uploads/a/evil.php",
        "/uploads/./evil.php",
        "/x/../uploads/evil.php",
        "/uploads%2fevil.php",
    ] {
        let response = weir.get(path);
        if response.status == 200 {
            assert_eq!(response.text(), "<?php evil");
            let kind = response.header("content-type").expect("a type");
            assert!(
                kind.starts_with("text/plain") || kind == "application/octet-stream",
                "{kind}"
            );
        } else {
            assert!(
                (400..500).contains(&response.status),
                "{path}: {response:?}"
            );
        }
    }
    weir.get("/uploads/evil.php").expect(200);
    assert!(responder.uris().is_empty(), "{:?}", responder.uris());
}

#[test]
fn routes_answer_by_themselves() {
    let weir = Setup::new()
        .file("private/file.txt", "secret")
        .more(
            r#"
            [[site.main.route]]
            path = "/old/*"
            redirect = "https://${host}${uri}"
            status = 301
            [[site.main.route]]
            path = "/moved"
            redirect = "/new${args}"
            [[site.main.route]]
            path = "/private/*"
            deny = true
            [[site.main.route]]
            path = "/health"
            reply = { status = 200, body = "ok ${method}" }
            [[site.main.route]]
            path = "/tea"
            reply = { status = 418, body = "{\"tea\":true}", content_type = "application/json" }
            "#,
        )
        .start();
    let response = weir
        .request("GET", "/old/a%20b?c=d", &[("Host", "shop.example")], b"")
        .expect(301);
    assert_eq!(
        response.header("location"),
        Some("https://shop.example/old/a%20b?c=d")
    );
    let response = weir.get("/moved?x=1").expect(308);
    assert_eq!(response.header("location"), Some("/new?x=1"));
    assert!(
        !weir
            .get("/private/file.txt")
            .expect(403)
            .text()
            .contains("secret")
    );
    weir.get("/private/nothing").expect(403);
    let response = weir.get("/health").expect(200);
    assert_eq!(
        response.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(response.text(), "ok GET");
    let response = weir.get("/tea").expect(418);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.text(), "{\"tea\":true}");
}

#[test]
fn the_first_route_that_matches_wins() {
    let weir = Setup::new()
        .more(
            r#"
            [[site.main.route]]
            path = "/api/*"
            methods = ["GET"]
            reply = { status = 200, body = "read" }
            [[site.main.route]]
            path = "~^/api/v[0-9]+/"
            reply = { status = 200, body = "version" }
            [[site.main.route]]
            path = "/api/*"
            reply = { status = 200, body = "rest" }
            "#,
        )
        .start();
    assert_eq!(weir.get("/api/v1/x").expect(200).text(), "read");
    assert_eq!(
        weir.request("POST", "/api/v1/x", &[], b"")
            .expect(200)
            .text(),
        "version"
    );
    assert_eq!(
        weir.request("POST", "/api/x/y", &[], b"")
            .expect(200)
            .text(),
        "rest"
    );
    assert_eq!(weir.get("/other").status, 404);
}

#[test]
fn routes_match_the_decoded_path() {
    let weir = Setup::new()
        .file("private/a b.txt", "secret")
        .more("[[site.main.route]]\npath = \"/private/*\"\ndeny = true\n")
        .start();
    for path in [
        "/private/a%20b.txt",
        "/%70rivate/a%20b.txt",
        "/x/../private/a%20b.txt",
        "/./private/a%20b.txt",
        "//private/a%20b.txt",
    ] {
        let response = weir.get(path);
        assert!(
            (400..500).contains(&response.status),
            "{path}: {response:?}"
        );
    }
}

#[test]
fn routes_change_what_the_site_says() {
    let setup = Setup::new()
        .file("api/run.php", "")
        .file("run.php", "")
        .file("assets/app.js", "js");
    let shop = teller(&setup);
    let api = Responder::unix(setup.folder(), |request, answer| {
        answer.stdout("Content-Type: text/plain\r\nX-Powered-By: it\r\n\r\n");
        answer.stdout(format!(
            "api {} {}",
            request.param("HTTP_X_SET"),
            request.param("APP")
        ));
        answer.end();
    });
    let text = format!(
        r#"
        [pool.api]
        {}
        [[site.main.route]]
        path = "/api/*"
        pool = "api"
        max_body = "10"
        params = {{ APP = "api of ${{host}}" }}
        set_headers = {{ "X-Frame-Options" = "DENY", "X-Path" = "${{path}}" }}
        remove_headers = ["X-Powered-By"]
        set_request_headers = {{ "X-Set" = "by route" }}
        [[site.main.route]]
        path = "/assets/*"
        cache_control = "public, max-age=31536000, immutable"
        "#,
        api.pool(1)
    );
    let pool = shop.pool(1);
    let weir = setup.pool(&pool).more(&text).start();
    let response = weir.get("/api/run.php").expect(200);
    assert_eq!(response.text(), "api by route api of localhost");
    assert_eq!(response.header("x-frame-options"), Some("DENY"));
    assert_eq!(response.header("x-path"), Some("/api/run.php"));
    assert_eq!(response.header("x-powered-by"), None);
    weir.request("POST", "/api/run.php", &[], b"more than ten")
        .expect(413);
    assert_eq!(
        weir.request("POST", "/run.php", &[], b"more than ten")
            .expect(200)
            .text(),
        "/run.php|/run.php||"
    );
    let response = weir.get("/assets/app.js").expect(200);
    assert_eq!(
        response.header("cache-control"),
        Some("public, max-age=31536000, immutable")
    );
}

#[test]
fn error_pages_can_be_replaced() {
    let setup = Setup::new()
        .file("errors/404.html", "<h1>lost</h1>")
        .file("errors/502.html", "<h1>broken</h1>")
        .file("run.php", "")
        .site("error_pages = { 404 = \"errors/404.html\", 502 = \"errors/502.html\" }");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.stdout("no head at all\n")
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    let response = weir.get("/nothing").expect(404);
    assert_eq!(response.text(), "<h1>lost</h1>");
    assert!(
        response
            .header("content-type")
            .expect("a type")
            .starts_with("text/html")
    );
    assert_eq!(weir.get("/run.php").expect(502).text(), "<h1>broken</h1>");
    let head = weir.request("HEAD", "/nothing", &[], b"").expect(404);
    assert!(head.body.is_empty());
}

#[test]
fn own_error_pages_are_plain_and_tell_nothing_of_the_inside() {
    let setup = Setup::new().file("index.html", "x");
    let folder = setup.folder().display().to_string();
    let weir = setup.start();
    let response = weir.get("/nothing%3Cscript%3E?%3Cscript%3E").expect(404);
    assert!(!response.text().contains(&folder), "{}", response.text());
    assert!(!response.text().contains("<script>"), "{}", response.text());
    assert!(response.body.len() < 2048);
}

#[test]
fn paths_are_decoded_exactly_once() {
    let weir = Setup::new()
        .file("a b.txt", "space")
        .file("a%20b.txt", "percent")
        .file("plus+.txt", "plus")
        .file("äöü.txt", "umlauts")
        .start();
    assert_eq!(weir.get("/a%20b.txt").expect(200).text(), "space");
    assert_eq!(weir.get("/a%2520b.txt").expect(200).text(), "percent");
    assert_eq!(weir.get("/plus+.txt").expect(200).text(), "plus");
    assert_eq!(
        weir.get("/%C3%A4%C3%B6%C3%BC.txt").expect(200).text(),
        "umlauts"
    );
}

#[test]
fn dot_segments_are_resolved_within_the_root() {
    let weir = Setup::new()
        .file("a/one.txt", "one")
        .file("two.txt", "two")
        .start();
    assert_eq!(weir.get("/a/./one.txt").expect(200).text(), "one");
    assert_eq!(weir.get("/a/../two.txt").expect(200).text(), "two");
    assert_eq!(weir.get("/a/b/../../two.txt").expect(200).text(), "two");
    // This name only looks like a special one.
    assert_eq!(weir.get("/...").status, 404);
}

#[test]
fn an_encoded_slash_is_no_separator() {
    let weir = Setup::new().file("a/one.txt", "one").start();
    for path in ["/a%2fone.txt", "/a%2Fone.txt", "/a%5cone.txt"] {
        let response = weir.get(path);
        assert!(matches!(response.status, 400 | 404), "{path}: {response:?}");
    }
}

#[test]
fn workers_may_know_the_root_by_another_name() {
    let setup = Setup::new()
        .file("app/run.php", "")
        .site("script_root = \"/srv/inside\"");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(format!(
            "{} {}",
            request.param("SCRIPT_FILENAME"),
            request.param("DOCUMENT_ROOT")
        ))
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    assert_eq!(
        weir.get("/app/run.php").expect(200).text(),
        "/srv/inside/app/run.php /srv/inside"
    );
}

#[test]
fn two_pools_are_two_queues() {
    let setup = Setup::new().file("a.php", "").file("b.php", "");
    let gate = weir_test::Gate::default();
    let shut = gate.clone();
    let slow = Responder::unix(setup.folder(), move |_, answer| {
        shut.pass();
        answer.page("slow");
    });
    let fast = Responder::unix(setup.folder(), |_, answer| answer.page("fast"));
    let text = format!(
        "[pool.fast]\n{}\n[[site.main.route]]\npath = \"/b.php\"\npool = \"fast\"\n",
        fast.pool(1)
    );
    let pool = slow.pool(1);
    let weir = setup.pool(&pool).more(&text).start();
    let mut waiting: Vec<Client> = (0..5).map(|_| weir.client()).collect();
    for client in &mut waiting {
        client.send("GET /a.php HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for _ in 0..20 {
        assert_eq!(weir.get("/b.php").expect(200).text(), "fast");
    }
    gate.open();
    for client in &mut waiting {
        client.response().expect(200);
    }
}

#[test]
fn the_gateway_gives_up_its_rights() {
    // As an ordinary user weir has no rights to give up.
    let weir = Setup::new().file("text.txt", "x").start();
    weir.get("/text.txt").expect(200);
    let status = std::fs::read_to_string(format!("/proc/{}/status", weir.gateway().pid))
        .expect("the gateway");
    let line = |name: &str| {
        status
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default()
            .to_owned()
    };
    assert!(!line("Uid:").contains("\t0"), "{}", line("Uid:"));
    assert!(!line("Gid:").contains("\t0"), "{}", line("Gid:"));
    assert_eq!(line("CapEff:").split('\t').nth(1), Some("0000000000000000"));
    assert!(
        identity().is_empty()
            || line("Groups:")
                .split('\t')
                .nth(1)
                .is_none_or(|groups| !groups.split(' ').any(|group| group == "0"))
    );
}
