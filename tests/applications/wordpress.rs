//! WordPress from Debian's package with a MariaDB of its own. The test installs it, logs in, writes a post and reads
//! it, all over HTTP through weir.

mod cached;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use weir_test::php::{Fpm, cgi_pool, own_pool};
use weir_test::wordpress::{Browser, Database, PATIENCE, ShownOnFailure, field, linked, prepare};
use weir_test::{Setup, Weir};

const PASSWORD: &str = "correct horse battery staple";

#[test]
fn wordpress_on_php_fpm() {
    let setup = prepare(Setup::new());
    let database = Database::start(setup.folder());
    let fpm = Fpm::unix(setup.folder(), 4);
    let weir = serve(setup, &fpm.pool(4));
    walk_through(&weir, &database);
    drop(weir);
    drop(database);
}

#[test]
fn wordpress_on_php_cgi() {
    let setup = prepare(Setup::new());
    let database = Database::start(setup.folder());
    let weir = serve(setup, &cgi_pool(4));
    walk_through(&weir, &database);
    drop(weir);
    drop(database);
}

#[test]
fn wordpress_on_weirs_own_php() {
    let setup = prepare(Setup::new());
    let database = Database::start(setup.folder());
    let weir = serve(setup.site("compress = true"), &own_pool(4));
    walk_through(&weir, &database);
    compressed_pages_are_the_same(&weir);
    drop(weir);
    drop(database);
}

/// An unmodified WordPress with `cache = "wordpress"`.
#[test]
fn wordpress_with_a_cache_of_its_pages() {
    let setup = prepare(Setup::new());
    let database = Database::start(setup.folder());
    let weir = serve(
        setup.site("compress = true\ncache = \"wordpress\""),
        &own_pool(4),
    );
    walk_through(&weir, &database);
    cached::pages_are_of_nobody(&weir);
    drop(weir);
    drop(database);
}

fn serve(setup: Setup, pool: &str) -> Weir {
    setup
        .site("fallback = \"/index.php\"\nmax_body = \"16M\"")
        .pool(&format!(
            "{pool}read_timeout = \"{0}s\"\nqueue.timeout = \"{0}s\"\n",
            PATIENCE.as_secs()
        ))
        .traced()
        .start()
}

/// Each page in each coding is, once decoded, what a client without compression gets.
fn compressed_pages_are_the_same(weir: &Weir) {
    let get = |path: &str, accept: &str| {
        let output = Command::new("curl")
            .args(["-sS", "--fail", "--compressed", "--max-time"])
            .arg(PATIENCE.as_secs().to_string())
            .args(["-D", "-", "-H", &format!("Accept-Encoding: {accept}")])
            .arg(format!("http://{}{path}", weir.address()))
            .output()
            .expect("curl");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{path} {accept}: {said}");
        let end = output
            .stdout
            .windows(4)
            .position(|four| four == b"\r\n\r\n");
        let (head, body) = output.stdout.split_at(end.expect("a head") + 4);
        (String::from_utf8_lossy(head).to_lowercase(), body.to_vec())
    };
    for path in [
        "/",
        "/wp-login.php",
        "/?feed=rss2",
        "/wp-includes/css/dist/block-library/style.min.css",
        "/wp-includes/js/jquery/jquery.min.js",
    ] {
        let (head, page) = get(path, "identity");
        assert!(!head.contains("content-encoding"), "{head}");
        assert!(page.len() > 1024, "{path}");
        for coding in ["zstd", "br", "gzip"] {
            let (head, decoded) = get(path, coding);
            let field = format!("\r\ncontent-encoding: {coding}\r\n");
            assert!(head.contains(&field), "{path} {coding}: {head}");
            assert!(decoded == page, "{path} {coding}: {} bytes", decoded.len());
        }
    }
}

/// Goes through the site, from the installer to a page with a picture.
#[allow(clippy::too_many_lines, reason = "one step after another")]
pub fn walk_through(weir: &Weir, database: &Database) {
    let _shown = ShownOnFailure(database);
    let mut visitor = Browser::new(weir);
    let mut author = Browser::new(weir);

    // The installer. It sends a request to its own site to test whether pretty permalinks work.
    let response = author.get("/").expect(302);
    assert!(
        response
            .header("location")
            .expect("Location")
            .contains("/wp-admin/install.php")
    );
    assert!(
        author
            .get("/wp-admin/install.php")
            .expect(200)
            .text()
            .contains("WordPress")
    );
    let fields = [
        ("weblog_title", "A weir's diary"),
        ("user_name", "author"),
        ("admin_password", PASSWORD),
        ("admin_password2", PASSWORD),
        ("pw_weak", "1"),
        ("admin_email", "author@example.org"),
        ("blog_public", "0"),
        ("language", ""),
        ("Submit", "Install WordPress"),
    ];
    let page = author
        .post("/wp-admin/install.php?step=2", &fields)
        .expect(200)
        .text();
    assert!(page.contains("Success!"), "{page}");

    // Log in, first with a wrong password, then with the right one.
    author.get("/wp-login.php").expect(200);
    let login = |password| {
        [
            ("log", "author"),
            ("pwd", password),
            ("testcookie", "1"),
            ("redirect_to", "/wp-admin/"),
        ]
    };
    let page = author
        .post("/wp-login.php", &login("wrong"))
        .expect(200)
        .text();
    assert!(page.contains("password you entered"), "{page}");
    author.post("/wp-login.php", &login(PASSWORD)).expect(302);
    assert!(
        author
            .get("/wp-admin/")
            .expect(200)
            .text()
            .contains("Dashboard")
    );

    // Pretty permalinks, through `fallback`.
    let page = author
        .get("/wp-admin/options-permalink.php")
        .expect(200)
        .text();
    // For an unknown server WordPress puts `/index.php` before every permalink.
    assert!(!page.contains("/index.php/"), "{page}");
    let nonce = field(&page, "_wpnonce");
    let structure = "/%year%/%monthnum%/%postname%/";
    let fields = [
        ("_wpnonce", nonce.as_str()),
        ("_wp_http_referer", "/wp-admin/options-permalink.php"),
        ("selection", structure),
        ("permalink_structure", structure),
        ("submit", "Save Changes"),
    ];
    author
        .post("/wp-admin/options-permalink.php", &fields)
        .expect(302);
    author
        .get("/wp-admin/options-permalink.php?settings-updated=true")
        .expect(200);

    // Upload a picture as the upload form does.
    let (picture, path) = picture();
    let page = author.get("/wp-admin/media-new.php").expect(200).text();
    let fields = [
        ("name", "weir.png"),
        ("action", "upload-attachment"),
        ("_wpnonce", &field(&page, "_wpnonce")),
    ];
    let response = author.upload(
        "/wp-admin/async-upload.php",
        &fields,
        "async-upload",
        "weir.png",
        "image/png",
        &picture,
    );
    let told: serde_json::Value = serde_json::from_slice(&response.expect(200).body).expect("JSON");
    assert_eq!(told["success"], true, "{path:?}: {told:#}");
    let url = local(weir, told["data"]["url"].as_str().expect("a URL"));
    assert!(
        told["data"]["width"]
            .as_u64()
            .is_some_and(|width| width > 100),
        "{told:#}"
    );

    // Read the picture: the whole file, a part, and with a condition that gives 304.
    let whole = visitor.get(&url).expect(200);
    assert!(
        whole.body == picture,
        "{} of {} bytes",
        whole.body.len(),
        picture.len()
    );
    assert_eq!(whole.header("content-type"), Some("image/png"));
    let part = visitor
        .request("GET", &url, &[("Range", "bytes=1000-1999")], b"")
        .expect(206);
    assert!(part.body == picture[1000..2000]);
    assert_eq!(
        part.header("content-range"),
        Some(format!("bytes 1000-1999/{}", picture.len()).as_str())
    );
    let tag = whole.header("etag").expect("ETag").to_owned();
    visitor
        .request("GET", &url, &[("If-None-Match", &tag)], b"")
        .expect(304);
    // The smaller sizes that PHP made of the picture.
    let thumbnail = &told["data"]["sizes"]["thumbnail"]["url"];
    let thumbnail = visitor
        .get(&local(weir, thumbnail.as_str().expect("a thumbnail")))
        .expect(200);
    assert_eq!(thumbnail.header("content-type"), Some("image/png"));

    // A post with the picture, through the REST API, which needs the fallback.
    let nonce = author
        .get("/wp-admin/admin-ajax.php?action=rest-nonce")
        .expect(200)
        .text();
    let post = serde_json::json!({
        "title": "Water über the weir",
        "status": "publish",
        "content": format!("<p>It flows.</p><img src=\"{url}\">"),
    });
    let headers = [
        ("X-WP-Nonce", nonce.as_str()),
        ("Content-Type", "application/json"),
    ];
    let response = author
        .request(
            "POST",
            "/wp-json/wp/v2/posts",
            &headers,
            post.to_string().as_bytes(),
        )
        .expect(201);
    let told: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
    let link = local(weir, told["link"].as_str().expect("a link"));
    assert!(link.starts_with("/20") && link.ends_with("/"), "{link}");
    visitor
        .request("POST", "/wp-json/wp/v2/posts", &headers[1..], b"{}")
        .expect(401);

    // What a visitor sees.
    let page = visitor.get(&link).expect(200).text();
    assert!(page.contains("It flows.") && page.contains(&url), "{page}");
    let front = visitor.get("/").expect(200).text();
    assert!(front.contains("Water über the weir"), "{front}");
    let lost = visitor.get("/2001/01/nothing-here/");
    assert_eq!(lost.status, 404);
    assert!(
        lost.text().contains("wp-"),
        "WordPress's own page: {}",
        lost.text()
    );
    assert!(
        visitor
            .get("/feed/")
            .expect(200)
            .text()
            .contains("Water über the weir")
    );

    // The styles and scripts of the front page and of the administration.
    let mut count = 0;
    for page in [front, author.get("/wp-admin/").expect(200).text()] {
        for url in linked(&page) {
            let url = local(weir, &url);
            if !url.starts_with('/') {
                continue;
            }
            let response = author.get(&url).expect(200);
            let kind = response.header("content-type").expect("a type");
            assert!(
                kind.contains("css") || kind.contains("javascript"),
                "{url}: {kind}"
            );
            assert!(!response.body.is_empty(), "{url}");
            count += 1;
        }
    }
    assert!(count >= 5, "{count} styles and scripts");

    // Internal files are not served.
    for path in ["/wp-config.php.bak", "/.htaccess", "/wp-content/uploads/"] {
        assert!(visitor.get(path).status >= 403, "{path}");
    }
    let config = visitor.get("/wp-config.php");
    assert!(config.body.is_empty() || config.status >= 400);
}

/// A picture from the package, large enough that weir spools it.
fn picture() -> (Vec<u8>, PathBuf) {
    let found = Command::new("find")
        .args(["-L", "/usr/share/wordpress", "-name", "about-texture.png"])
        .output()
        .expect("find");
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    let path = text.lines().min().expect("a picture in the package");
    (fs::read(path).expect("a picture"), path.into())
}

/// A URL of the site as a path.
fn local(weir: &Weir, url: &str) -> String {
    let origin = format!("http://{}", weir.address());
    url.strip_prefix(&origin).unwrap_or(url).to_owned()
}
