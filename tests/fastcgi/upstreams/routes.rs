//! Which requests of a site go to its servers, and with which target.

use weir_test::{Setup, wait_until};

use super::{Server, pool};

/// As with nginx's `try_files $uri @app`: a file is sent, everything else goes to the servers.
#[test]
fn files_come_first_and_the_servers_get_the_rest() {
    let server = Server::echo();
    let setup = Setup::new()
        .file("a.txt", "a file")
        .file("index.html", "an index")
        .file("folder/index.html", "an index")
        .file(".env", "SECRET=1")
        .file("old.php", "<?php echo 1;");
    let weir = setup.pool(&pool(&[&server], "")).start();
    assert_eq!(weir.get("/a.txt").expect(200).text(), "a file");
    assert_eq!(weir.get("/index.html").expect(200).text(), "an index");
    assert!(server.received().is_empty());
    for target in [
        "/",
        "/folder",
        "/folder/",
        "/none",
        "/none.php/x",
        "/a.txt/x",
        "/a%2Ftxt",
        "/.none",
        "/x/?a=%2F",
    ] {
        weir.get(target).expect(200);
        assert_eq!(server.last().line, format!("GET {target} HTTP/1.1"));
    }
    weir.request("POST", "/a.txt", &[], b"").expect(200);
    assert_eq!(server.last().line, "POST /a.txt HTTP/1.1");
    weir.get("/.env").expect(404);
    weir.get("/old.php").expect(403);
    assert_eq!(server.received().len(), 10);
}

/// A route for some paths, without its prefix, beside a site of files.
#[test]
fn a_route_can_strip_its_prefix_or_rewrite_the_path() {
    let server = Server::echo();
    let routes = "[[site.main.route]]\npath = \"/api/*\"\npool = \"app\"\nstrip_prefix = true\n\
        [[site.main.route]]\npath = \"~^/v1/(.*)$\"\nrewrite = \"/api/old/$1?v=1\"\n\
        [[site.main.route]]\npath = \"/up/*\"\npool = \"app\"\n";
    let pool = format!("[pool.app]\n{}", pool(&[&server], ""));
    let weir = Setup::new()
        .file("a.txt", "a file")
        .more(&format!("{routes}{pool}"))
        .start();
    for (asked, got) in [
        ("/api/users?x=1", "/users?x=1"),
        ("/api/", "/"),
        ("/api/a%20b/%C3%A9", "/a%20b/%C3%A9"),
        ("/api//a", "/a"),
        ("/api/x/../y", "/y"),
        ("/v1/a?q", "/old/a?v=1&q"),
        ("/up/a", "/up/a"),
    ] {
        weir.get(asked).expect(200);
        assert_eq!(server.last().line, format!("GET {got} HTTP/1.1"), "{asked}");
    }
    assert_eq!(weir.get("/a.txt").expect(200).text(), "a file");
    weir.get("/none").expect(404);
}

/// A cache in front knows a page by the client's target, and asks the servers with theirs, also when it renews the page.
#[test]
fn a_cached_page_is_asked_for_with_the_target_of_the_route() {
    let server = Server::of(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=1, stale-while-revalidate=60\r\nContent-Length: 2\r\n\r\nok",
    );
    let routes = "[site.main.cache]\npreset = \"headers\"\ndrop_query = [\"utm_*\"]\n\
        [[site.main.route]]\npath = \"/api/*\"\npool = \"app\"\nstrip_prefix = true\n";
    let pool = format!("[pool.app]\n{}", pool(&[&server], ""));
    let weir = Setup::new().more(&format!("{routes}{pool}")).start();
    for _ in 0..3 {
        weir.get("/api/x?utm_source=a&b=2").expect(200);
        weir.get("/api/x?b=2&utm_source=c").expect(200);
    }
    let fresh = server.received().len();
    // It expires after a second; then one request renews it, while others get the old one.
    wait_until("it is renewed", || {
        weir.get("/api/x?b=2").expect(200);
        server.received().len() > fresh
    });
    for got in server.received() {
        assert_eq!(got.line, "GET /x?b=2 HTTP/1.1");
    }
    assert!(fresh < 6, "{fresh} of six requests reached the server");
}

/// A site needs no folder of its own.
#[test]
fn a_site_without_files_passes_everything_on() {
    let server = Server::echo();
    let setup = Setup::new().pool(&pool(&[&server], ""));
    let toml = setup.toml();
    let lines = toml.lines().filter(|line| !line.starts_with("root = "));
    let weir = setup.start_toml(&lines.collect::<Vec<_>>().join("\n"));
    weir.get("/a.txt").expect(200);
    assert_eq!(server.last().line, "GET /a.txt HTTP/1.1");
    weir.request("OPTIONS", "/x", &[], b"").expect(200);
    assert_eq!(server.last().line, "OPTIONS /x HTTP/1.1");
}
