//! PHP applications from Debian's packages, and a TLS proxy in front.

use super::*;

#[test]
fn a_tls_proxy_in_front_tells_the_clients_address_and_https() {
    let heading = "A TLS proxy in front";
    let recipe = Recipe::of(heading);
    let script = "<?php foreach (['REMOTE_ADDR', 'HTTPS', 'SERVER_PORT', 'REQUEST_SCHEME', 'HTTP_HOST'] as $name) {\n\
                  echo $_SERVER[$name], ' '; }";
    let folder = recipe.setup.folder().to_owned();
    let root = recipe.setup.root();
    write(&root.join("index.php"), script.as_bytes());
    let weir = recipe.folder("/srv/shop/public", &root).start();

    run(Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=shop.example",
            "-addext",
            "subjectAltName=DNS:shop.example",
        ])
        .arg("-keyout")
        .arg(folder.join("shop.key"))
        .arg("-out")
        .arg(folder.join("shop.pem")));
    let both = folder.join("both.pem");
    let pem = fs::read_to_string(folder.join("shop.pem")).expect("pem");
    fs::write(
        &both,
        pem + &fs::read_to_string(folder.join("shop.key")).expect("key"),
    )
    .expect("pem");

    let ask = |address: std::net::SocketAddr| {
        run(Command::new("curl")
            .args(["-sS", "--max-time", "30", "--cacert"])
            .arg(folder.join("shop.pem"))
            .arg("--connect-to")
            .arg(format!(
                "shop.example:443:{}:{}",
                address.ip(),
                address.port()
            ))
            .args([
                "--interface",
                "127.0.0.77",
                "-H",
                "X-Forwarded-For: 6.6.6.6",
            ])
            .arg("https://shop.example/some/page"))
    };
    let expected = "127.0.0.77 on 443 https shop.example ";

    // nginx: the page's server block, inside a configuration of the test.
    let server = block(heading, "nginx", 0);
    let server = server
        .trim()
        .strip_prefix("server {")
        .and_then(|text| text.strip_suffix('}'));
    let server = server
        .expect("a server block")
        .replace("listen 443 ssl;", "listen ADDRESS ssl;")
        .replace(
            "/etc/ssl/shop.pem",
            folder.join("shop.pem").to_str().expect("a path"),
        )
        .replace(
            "/etc/ssl/private/shop.key",
            folder.join("shop.key").to_str().expect("a path"),
        )
        .replace("127.0.0.1:8080", &weir.address().to_string());
    let nginx = WebServer::nginx(&folder, &server, "");
    assert_eq!(ask(nginx.address()), expected);

    let sections = block(heading, "haproxy", 0)
        .replace("/etc/ssl/shop.pem", both.to_str().expect("a path"))
        .replace("127.0.0.1:8080", &weir.address().to_string());
    let timeouts = "defaults\n    mode http\n    timeout connect 10s\n    timeout client 60s\n    timeout server 60s\n";
    let haproxy = WebServer::haproxy(
        &folder,
        &format!("{timeouts}{}", sections.replace(":443", "ADDRESS")),
    );
    assert_eq!(ask(haproxy.address()), expected);
    weir.wait_for_line(
        "log/access.log",
        &["127.0.0.77 - - [", "\"GET /some/page HTTP/1.1\" 200"],
    );
}

#[test]
fn wordpress_of_debian_s_package() {
    let site = block("WordPress", "toml", 1);
    let recipe = Recipe {
        setup: Setup::new(),
        text: format!(
            "[listen.web]\naddress = \"0.0.0.0:80\"\n{site}\n[pool.php]\nruntime = \"php\"\nuser = \"www-data\"\n"
        ),
    };
    let weir = recipe.start();
    // Links to another package, and to the root from the folder beside it.
    for file in [
        "/wp-includes/js/underscore.min.js",
        "/wp-content/themes/twentytwentythree/style.css",
    ] {
        weir.get(file).expect(200);
    }
    weir.get("/wp-config.php").expect(403);
    // Without a configuration for this host, WordPress itself says so, and for each URL.
    let page = weir.get("/some-page/").expect(404);
    assert!(page.text().contains("could be found"), "{}", page.text());
}

/// litmus is what authors of WebDAV servers test them with.
#[test]
fn sabre_dav_as_the_page_sets_it_up() {
    let recipe = Recipe::of("WebDAV with sabre/dav");
    let folder = recipe.setup.folder().to_owned();
    let dav = folder.join("dav");
    for inner in ["public", "files"] {
        fs::create_dir_all(dav.join(inner)).expect("mkdir");
    }
    let script = block("WebDAV with sabre/dav", "php", 0);
    let script = script.replace("/srv/dav", &dav.display().to_string());
    write(&dav.join("public/server.php"), script.as_bytes());
    run(Command::new("htpasswd")
        .args(["-cbB", "-C", "4", "htpasswd", "anna", "secret"])
        .current_dir(&folder));
    mode(&folder.join("htpasswd"), 0o644);
    give(&dav, USER);
    let weir = recipe
        .folder("/srv/dav", &dav)
        .folder("/etc/weir/htpasswd", &folder.join("htpasswd"))
        .start();
    weir.get("/").expect(401);
    let said = run(Command::new("litmus")
        .args([&format!("http://{}/", weir.address()), "anna", "secret"])
        .env("TESTS", "basic copymove locks http")
        .current_dir(&folder));
    for suite in ["basic", "copymove", "locks", "http"] {
        assert!(said.contains(&format!("summary for `{suite}'")), "{said}");
    }
    assert!(!said.contains("FAIL"), "{said}");
}

#[test]
fn mediawiki_as_the_page_sets_it_up() {
    let recipe = Recipe::of("MediaWiki");
    let folder = recipe.setup.folder().to_owned();
    let data = folder.join("data");
    fs::create_dir(&data).expect("mkdir");
    run(Command::new("php")
        .arg("/usr/share/mediawiki/maintenance/install.php")
        .args([
            "--dbtype",
            "sqlite",
            "--dbname",
            "wiki",
            "--scriptpath",
            "",
            "--lang",
            "en",
        ])
        .args(["--pass", "correct horse battery staple", "--server"])
        .arg(format!("http://{}", recipe.setup.address()))
        .arg("--dbpath")
        .arg(&data)
        .arg("--confpath")
        .arg(&folder)
        .args(["A weir's wiki", "Author"]));
    let settings = folder.join("LocalSettings.php");
    let text = fs::read_to_string(&settings).expect("LocalSettings.php");
    let lines = block("MediaWiki", "php", 0);
    fs::write(
        &settings,
        format!("{text}\n{lines}$wgMainCacheType = CACHE_NONE;\n$wgCacheDirectory = false;\n"),
    )
    .expect("LocalSettings.php");
    mode(&settings, 0o644);
    give(&data, "www-data");
    let weir = recipe
        .pool_line(&format!("env = {{ MW_CONFIG_FILE = \"{}\" }}\nread_timeout = \"120s\"\nqueue.timeout = \"120s\"", settings.display()))
        .start();
    let mut browser = Browser::new(&weir);
    let moved = browser.get("/").expect(302);
    assert!(
        moved
            .header("location")
            .expect("Location")
            .ends_with("/wiki/Main_Page")
    );
    let page = browser.get("/wiki/Main_Page").expect(200).text();
    assert!(page.contains("MediaWiki has been installed"), "{page}");
    assert!(all_is_there(&mut browser, "/", &page) >= 2);

    // A page whose name has a slash, by its short URL and over REST.
    let edit = browser
        .get("/index.php?title=Talk:Main_Page/Archive&action=edit")
        .expect(200)
        .text();
    let fields = [
        ("wpTextbox1", "Old words."),
        (
            "wpUnicodeCheck",
            "\u{2133}\u{1d4b2}\u{2665}\u{1d4ca}\u{1d4c3}\u{1d4be}\u{1d4b8}\u{2134}\u{1d4b9}\u{212f}",
        ),
        ("wpEditToken", "+\\"),
        ("wpUltimateParam", "1"),
        ("wpSave", "Save page"),
    ];
    assert!(edit.contains("wpTextbox1"), "{edit}");
    let saved = browser.post(
        "/index.php?title=Talk:Main_Page/Archive&action=submit",
        &fields,
    );
    assert_eq!(saved.status, 302, "{}", saved.text());
    let page = browser
        .get("/wiki/Talk:Main_Page/Archive")
        .expect(200)
        .text();
    assert!(page.contains("Old words."), "{page}");
    let rest = browser
        .get("/rest.php/v1/page/Talk%3AMain_Page%2FArchive")
        .expect(200)
        .text();
    assert!(rest.contains("Old words."), "{rest}");

    for path in [
        "/includes/Setup.php",
        "/maintenance/install.php",
        "/vendor/autoload.php",
        "/includes/Setup.php/x",
        "/LocalSettings.php/../includes/Setup.php",
    ] {
        browser.get(path).expect(403);
    }
}

#[test]
fn phpmyadmin_as_the_page_sets_it_up() {
    let recipe = Recipe::of("phpMyAdmin");
    let database = wordpress::Database::start(recipe.setup.folder());
    let (root, place) = (recipe.setup.root(), socket(recipe.setup.folder()));
    write(&root.join("index.html"), b"the site");
    let weir = recipe
        .folder("/var/www/html", &root)
        .pool_line(&format!("php_value = {{ \"mysqli.default_socket\" = \"{}\" }}\nread_timeout = \"120s\"\nqueue.timeout = \"120s\"", place.display()))
        .start();
    let mut browser = Browser::new(&weir);
    assert_eq!(browser.get("/").expect(200).text(), "the site");
    let moved = browser.get("/phpmyadmin").expect(301);
    assert!(
        moved
            .header("location")
            .expect("Location")
            .ends_with("/phpmyadmin/")
    );
    let page = browser.get("/phpmyadmin/").expect(200).text();
    assert!(page.contains("pma_username"), "{page}");
    // Some of them are links into other packages.
    assert!(all_is_there(&mut browser, "/phpmyadmin/", &page) >= 5);
    assert!(page.contains("jquery.min.js"), "{page}");

    let (token, session) = (field(&page, "token"), field(&page, "set_session"));
    let fields = [
        ("pma_username", "wordpress"),
        ("pma_password", "wordpress"),
        ("server", "1"),
        ("route", "/"),
        ("token", &token),
        ("set_session", &session),
    ];
    let answer = browser.post("/phpmyadmin/index.php?route=/", &fields);
    assert_eq!(answer.status, 302, "{}", answer.text());
    let page = browser
        .get("/phpmyadmin/index.php?route=/&lang=en")
        .expect(200)
        .text();
    assert!(
        page.contains("wordpress@localhost") || page.contains("MariaDB"),
        "{page}"
    );

    for path in [
        "/phpmyadmin/libraries/",
        "/phpmyadmin/libraries/classes/Core.php",
        "/phpmyadmin/templates/login/form.twig",
    ] {
        browser.get(path).expect(403);
    }
    drop(weir);
    drop(database);
}

#[test]
fn dokuwiki_as_the_page_sets_it_up() {
    let recipe = Recipe::of("DokuWiki");
    let folder = recipe.setup.folder().to_owned();
    // The package's configuration and pages, in folders of the test.
    let (conf, data) = (folder.join("conf"), folder.join("data"));
    run(Command::new("cp")
        .arg("-rL")
        .args(["/etc/dokuwiki/."])
        .arg(&conf));
    run(Command::new("cp")
        .arg("-rL")
        .args(["/var/lib/dokuwiki/data/."])
        .arg(&data));
    let switch = page_inline("DokuWiki", "$conf['userewrite']");
    fs::write(
        conf.join("local.php"),
        format!("<?php\n{switch}\n$conf['title'] = 'A weir';\n$conf['useacl'] = 0;\n$conf['savedir'] = '{}';\n", data.display()),
    ).expect("local.php");
    write(
        &folder.join("conf.php"),
        format!("<?php define('DOKU_CONF', '{}/');\n", conf.display()).as_bytes(),
    );
    give(&conf, "www-data");
    give(&data, "www-data");
    let weir = recipe
        .pool_line(&format!("php_admin_value = {{ auto_prepend_file = \"{}\" }}\nread_timeout = \"120s\"\nqueue.timeout = \"120s\"", folder.join("conf.php").display()))
        .start();
    let mut browser = Browser::new(&weir);
    let page = browser.get("/").expect(200).text();
    assert!(
        page.contains("[A weir]") || page.contains("A weir"),
        "{page}"
    );
    assert!(all_is_there(&mut browser, "/", &page) >= 2);

    let edit = browser.get("/rivers:rhine?do=edit").expect(200).text();
    let token = field(&edit, "sectok");
    let fields = [
        ("sectok", token.as_str()),
        ("id", "rivers:rhine"),
        ("rev", "0"),
        ("date", ""),
        ("prefix", "."),
        ("suffix", ""),
        ("changecheck", ""),
        ("target", "section"),
        ("wikitext", "Long and wet."),
        ("do[save]", "Save"),
    ];
    let saved = browser.post("/rivers:rhine?do=edit", &fields);
    assert_eq!(saved.status, 302, "{}", saved.text());
    let page = browser.get("/rivers:rhine").expect(200).text();
    assert!(page.contains("Long and wet."), "{page}");
    assert!(
        page.contains("href=\"/rivers:rhine"),
        "readable URLs: {page}"
    );
    let export = browser.get("/_export/raw/rivers:rhine").expect(200).text();
    assert!(export.contains("Long and wet."), "{export}");
    let media = browser.get("/_media/wiki:dokuwiki-128.png").expect(200);
    assert_eq!(media.header("content-type"), Some("image/png"));

    for path in [
        "/inc/init.php",
        "/bin/wantedpages.php",
        "/data/pages/rivers/rhine.txt",
        "/conf/local.php",
        "/vendor/README",
        "/inc/init.php/x",
    ] {
        browser.get(path).expect(403);
    }
}

#[test]
fn roundcube_as_the_page_sets_it_up() {
    let recipe = Recipe::of("Roundcube");
    let folder = recipe.setup.folder().to_owned();
    let conf = folder.join("conf");
    fs::create_dir(&conf).expect("mkdir");
    for name in ["defaults.inc.php", "mimetypes.php"] {
        fs::copy(format!("/etc/roundcube/{name}"), conf.join(name)).expect("a copy");
    }
    let database = folder.join("data");
    fs::create_dir(&database).expect("mkdir");
    let schema =
        fs::read_to_string("/usr/share/roundcube/SQL/sqlite.initial.sql").expect("a schema");
    write(&folder.join("make.php"), format!(
        "<?php (new SQLite3('{}/mail.db'))->exec(file_get_contents('/usr/share/roundcube/SQL/sqlite.initial.sql'));", database.display()).as_bytes());
    assert!(schema.contains("CREATE TABLE"));
    run(Command::new("php").arg(folder.join("make.php")));
    write(&conf.join("config.inc.php"), format!(
        "<?php $config = ['db_dsnw' => 'sqlite:///{}/mail.db?mode=0646', 'imap_host' => ['localhost:1'],\n\
         'des_key' => 'rcmail-!24ByteDESkey*Str', 'log_driver' => 'stdout', 'temp_dir' => '{0}', 'plugins' => []];\n",
        database.display()).as_bytes());
    give(&database, "www-data");
    let weir = recipe
        .pool_line(&format!("env = {{ ROUNDCUBE_CONFIG_DIR = \"{}\" }}\nread_timeout = \"120s\"\nqueue.timeout = \"120s\"", conf.display()))
        .start();
    let mut browser = Browser::new(&weir);
    let page = browser.get("/").expect(200).text();
    assert!(page.contains("rcmloginuser"), "{page}");
    assert!(all_is_there(&mut browser, "/", &page) >= 4);
    // No mail server listens there. The application reports this in its own page.
    let token = field(&page, "_token");
    let fields = [
        ("_token", token.as_str()),
        ("_task", "login"),
        ("_action", "login"),
        ("_timezone", "UTC"),
        ("_url", ""),
        ("_user", "a@shop.example"),
        ("_pass", "b"),
    ];
    let answer = browser.post("/?_task=login", &fields);
    assert!(answer.text().contains("rcmloginuser"), "{}", answer.text());
    for path in [
        "/config/config.inc.php",
        "/program/lib/Roundcube/bootstrap.php",
        "/SQL/sqlite.initial.sql",
        "/logs/",
        "/.htaccess",
    ] {
        assert!(browser.get(path).status >= 403, "{path}");
    }
}

/// Finds the code span of the page that begins with this, and returns it without its quotes.
#[track_caller]
fn page_inline(heading: &str, start: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recipes.md");
    let page = fs::read_to_string(page).expect("docs/recipes.md");
    let section = page
        .split("\n## ")
        .find(|section| section.lines().next() == Some(heading))
        .expect("a section");
    let span = section.split('`').find(|span| span.starts_with(start));
    span.unwrap_or_else(|| panic!("{start} below {heading}"))
        .to_owned()
}
