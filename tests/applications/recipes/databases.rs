//! PHP applications from Debian's packages that keep everything in a database of their own.

use super::*;

use weir_test::wordpress::Database;

#[test]
fn tiny_tiny_rss_as_the_page_sets_it_up() {
    let recipe = Recipe::of("Tiny Tiny RSS");
    let folder = recipe.setup.folder().to_owned();
    let root = recipe.setup.root();
    let database = Database::start_innodb(&folder);
    let schema = "/usr/share/tt-rss/schema/ttrss_schema_mysql.sql";
    database.run(&fs::read_to_string(schema).expect("the schema"));
    let url = format!("http://{}/", recipe.setup.address());
    copy_of_tt_rss(&folder, &root, &url);
    let weir = recipe
        .folder("/usr/share/tt-rss/www", &root)
        .pool_line(&format!("{}{PATIENT}", by_socket(&folder)))
        .start();

    let mut browser = Browser::new(&weir);
    let page = browser.get("/").expect(200).text();
    assert!(page.contains("Tiny Tiny RSS : Login"), "{page}");
    assert!(all_is_there(&mut browser, "/", &page) >= 4);
    let login = |password| [("op", "login"), ("login", "admin"), ("password", password)];
    browser.post("/public.php", &login("wrong")).expect(302);
    let page = browser.get("/").expect(200).text();
    assert!(page.contains("Incorrect username or password"), "{page}");
    browser.post("/public.php", &login("password")).expect(302);
    let page = browser.get("/").expect(200).text();
    assert!(all_is_there(&mut browser, "/", &page) >= 5);
    let token = page.split("__csrf_token = \"").nth(1).expect("a token");
    let token = token.split('"').next().expect("a token");

    // Publish an article, and read it as the page does.
    let article = [
        ("op", "sharepopup"),
        ("action", "share"),
        ("title", "A long river"),
        ("url", "http://shop.example/river"),
        ("content", "It flows."),
        ("labels", ""),
        ("csrf_token", token),
    ];
    browser.post("/public.php", &article).expect(200);
    let published = [
        ("op", "feeds"),
        ("method", "view"),
        ("feed", "-2"),
        ("view_mode", "all_articles"),
        ("csrf_token", token),
    ];
    let told = browser.post("/backend.php", &published).expect(200).text();
    assert!(
        told.contains("A long river") && told.contains("It flows."),
        "{told}"
    );
    let export = browser
        .get("/backend.php?op=opml&method=export")
        .expect(200)
        .text();
    assert!(export.contains("<opml version="), "{export}");
    // Programs use its API.
    let ask = br#"{"op": "login", "user": "admin", "password": "wrong"}"#;
    let told = browser
        .request("POST", "/api/index.php", &[], ask)
        .expect(200)
        .text();
    assert!(told.contains("\"status\":1"), "{told}");

    for path in [
        "/config.php",
        "/update.php",
        "/update_daemon2.php",
        "/classes/db.php",
        "/include/functions.php",
        "/templates/digest_template.txt",
        "/vendor/",
        "/plugins/note/init.php",
        "/lib/phpqrcode/qrlib.php",
        "/index.php/../config.php",
    ] {
        assert_eq!(browser.get(path).status, 403, "{path}");
    }
    drop(weir);
    drop(database);
}

/// The package's files name its own configuration, so the test has a copy of them at `root`. `url`: the site's.
fn copy_of_tt_rss(folder: &Path, root: &Path, url: &str) {
    let state = folder.join("state");
    run(Command::new("cp")
        .arg("-rL")
        .arg("/usr/share/tt-rss/www/.")
        .arg(root));
    for name in ["lock", "cache/images", "cache/upload", "cache/export"] {
        fs::create_dir_all(state.join(name)).expect("mkdir");
    }
    write(
        &folder.join("database.php"),
        b"<?php $dbuser = $dbpass = $dbname = 'wordpress'; $dbserver = 'localhost'; $dbport = ''; $dbtype = 'mysql';",
    );
    let config = fs::read_to_string("/etc/tt-rss/config.php").expect("config.php");
    let set = |config: &str, name: &str, value: &str| {
        let (before, rest) = config
            .split_once(&format!("define('{name}', "))
            .expect(name);
        let (_, after) = rest.split_once(");").expect("its end");
        format!("{before}define('{name}', '{value}');{after}")
    };
    let state_path = |name: &str| state.join(name).display().to_string();
    let config = config.replace(
        "/etc/tt-rss/database.php",
        &folder.join("database.php").display().to_string(),
    );
    let config = set(&config, "SELF_URL_PATH", url);
    let config = set(&config, "LOCK_DIRECTORY", &state_path("lock"));
    let config = set(&config, "CACHE_DIR", &state_path("cache"));
    let config = set(&config, "LOG_DESTINATION", "");
    let place = root.join("config.php");
    fs::remove_file(&place).expect("the copy of the machine's own");
    write(&place, config.as_bytes());
    give(&state, "www-data");
    give(&root.join("feed-icons"), "www-data");
}

#[test]
fn icinga_web_as_the_page_sets_it_up() {
    let recipe = Recipe::of("Icinga Web");
    let folder = recipe.setup.folder().to_owned();
    let (conf, sessions) = (folder.join("conf"), folder.join("sessions"));
    let database = Database::start_innodb(&folder);
    let schema = "/usr/share/icingaweb2/schema/mysql.schema.sql";
    database.run(&fs::read_to_string(schema).expect("the schema"));
    let hash =
        run(Command::new("php").args(["-r", "echo password_hash('secret', PASSWORD_DEFAULT);"]));
    database.run(&format!(
        "INSERT INTO icingaweb_user (name, active, password_hash) VALUES ('anna', 1, '{hash}')"
    ));
    fs::create_dir(&sessions).expect("mkdir");
    for (name, text) in [
        (
            "config.ini",
            "[global]\nconfig_backend = \"db\"\nconfig_resource = \"db\"\nmodule_path = \"/usr/share/icingaweb2/modules\"\n",
        ),
        (
            "resources.ini",
            "[db]\ntype = \"db\"\ndb = \"mysql\"\nhost = \"localhost\"\ndbname = \"wordpress\"\nusername = \"wordpress\"\n\
             password = \"wordpress\"\ncharset = \"utf8mb4\"\n",
        ),
        (
            "authentication.ini",
            "[users]\nbackend = \"db\"\nresource = \"db\"\n",
        ),
        (
            "roles.ini",
            "[admins]\nusers = \"anna\"\npermissions = \"*\"\n",
        ),
    ] {
        write(&conf.join(name), text.as_bytes());
    }
    give(&conf, "www-data");
    give(&sessions, "www-data");
    let weir = recipe
        .pool_line(&format!(
            "env = {{ ICINGAWEB_CONFIGDIR = \"{}\" }}\nphp_admin_value = {{ \"session.save_path\" = \"{}\" }}\n{}read_timeout = \"120s\"",
            conf.display(),
            sessions.display(),
            by_socket(&folder)
        ))
        .with("serialize_by", "timeout = \"120s\"\nserialize_by")
        .start();

    let mut browser = Browser::new(&weir);
    let moved = browser.get("/").expect(302);
    assert_eq!(moved.header("location"), Some("/authentication/login"));
    let page = login_page(&mut browser);
    assert!(all_is_there(&mut browser, "/", &page) >= 2);
    // Made by a script from many files.
    browser.get("/img/icinga-logo.svg").expect(200);
    let login = |browser: &mut Browser, page: &str, user: &str, password: &str| {
        let token = field(page, "CSRFToken");
        let fields = [
            ("username", user),
            ("password", password),
            ("rememberme", "0"),
            ("redirect", ""),
            ("formUID", "form_login"),
            ("CSRFToken", token.as_str()),
            ("btn_submit", "Login"),
        ];
        browser.post("/authentication/login", &fields)
    };
    let refused = login(&mut browser, &page, "anna", "wrong")
        .expect(200)
        .text();
    assert!(
        refused.contains("Incorrect username or password"),
        "{refused}"
    );
    let moved = login(&mut browser, &page, "anna", "secret").expect(302);
    assert_eq!(moved.header("location"), Some("/dashboard"));
    let page = browser.get("/about").expect(200).text();
    assert!(page.contains("Icinga Web 2"), "{page}");

    // A user who is added logs in.
    let add = "/user/add?backend=users";
    let page = browser.get(add).expect(200).text();
    let form = page.split("action=\"/user/add").nth(1).expect("a form");
    let (id, token) = (field(form, "formUID"), field(form, "CSRFToken"));
    let fields = [
        ("is_active", "1"),
        ("user_name", "berta"),
        ("password", "river"),
        ("formUID", id.as_str()),
        ("CSRFToken", token.as_str()),
        ("btn_submit", "Add"),
    ];
    let added = browser.post(add, &fields);
    assert_eq!(added.status, 302, "{}", added.text());
    let list = browser.get("/user/list?backend=users").expect(200).text();
    assert!(list.contains("berta"), "{list}");
    let mut other = Browser::new(&weir);
    let page = login_page(&mut other);
    login(&mut other, &page, "berta", "river").expect(302);

    // Files beside `public` do not exist for clients. Without permission, pages do not exist either.
    for path in ["/../schema/mysql.schema.sql", "/..%2fapplication/views"] {
        assert!(other.get(path).status >= 400, "{path}");
    }
    other.get("/user/list").expect(403);
    drop(weir);
    drop(database);
}

/// Icinga Web first finds out whether the browser keeps cookies.
fn login_page(browser: &mut Browser) -> String {
    browser.get("/authentication/login").expect(302);
    browser
        .get("/authentication/login?_checkCookie=1")
        .expect(302);
    browser.get("/authentication/login").expect(200).text()
}

/// Lines of a pool whose PHP finds this test's MariaDB as `localhost`.
fn by_socket(folder: &Path) -> String {
    let socket = socket(folder).display().to_string();
    format!(
        "php_value = {{ \"mysqli.default_socket\" = \"{socket}\", \"pdo_mysql.default_socket\" = \"{socket}\" }}\n"
    )
}

const PATIENT: &str = "read_timeout = \"120s\"\nqueue.timeout = \"120s\"";
