//! WordPress from Debian's package with a MariaDB of its own. The test installs it, logs in, writes a post and reads
//! it, all over HTTP through weir.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::http::form;
use crate::support::php::{Fpm, cgi_pool, own_pool};
use crate::support::process::{newest, signal, table, wait};
use crate::support::weir::{mode, request};
use crate::support::{LIMIT, Response, Setup, USER, Weir, is_root, wait_until};

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
    let weir = serve(setup, &own_pool(4));
    walk_through(&weir, &database);
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

/// Goes through the site, from the installer to a page with a picture.
pub fn walk_through(weir: &Weir, database: &Database) {
    let _witness = Witness(database);
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

/// Makes a copy of WordPress the document root. (Debian's package is a tree of links into other packages.)
pub fn prepare(setup: Setup) -> Setup {
    let root = setup.root();
    let copied = Command::new("cp")
        .args([
            "-rL",
            "/usr/share/wordpress/.",
            root.to_str().expect("a path"),
        ])
        .output()
        .expect("cp");
    assert!(
        root.join("wp-login.php").exists(),
        "{}",
        String::from_utf8_lossy(&copied.stderr)
    );
    let config = format!(
        "<?php\n\
         define('DB_NAME', 'wordpress');\n\
         define('DB_USER', 'wordpress');\n\
         define('DB_PASSWORD', 'wordpress');\n\
         define('DB_HOST', 'localhost:{socket}');\n\
         define('DB_CHARSET', 'utf8mb4');\n\
         define('DB_COLLATE', '');\n\
         define('AUTH_KEY', 'a'); define('SECURE_AUTH_KEY', 'b'); define('LOGGED_IN_KEY', 'c'); define('NONCE_KEY', 'd');\n\
         define('AUTH_SALT', 'e'); define('SECURE_AUTH_SALT', 'f'); define('LOGGED_IN_SALT', 'g'); define('NONCE_SALT', 'h');\n\
         // No calls to other servers; calls to the site itself are allowed.\n\
         define('WP_HTTP_BLOCK_EXTERNAL', true);\n\
         define('WP_AUTO_UPDATE_CORE', false);\n\
         $table_prefix = 'wp_';\n\
         if (!defined('ABSPATH')) {{ define('ABSPATH', __DIR__ . '/'); }}\n\
         require_once ABSPATH . 'wp-settings.php';\n",
        socket = socket(setup.folder()).display(),
    );
    fs::write(root.join("wp-config.php"), config).expect("wp-config.php");
    let uploads = root.join("wp-content/uploads");
    fs::create_dir_all(&uploads).expect("mkdir");
    mode(&uploads, 0o777);
    setup
}

/// A MariaDB for this test, on a unix socket in its folder.
pub struct Database {
    child: Child,
    folder: PathBuf,
}

impl Database {
    /// Starts MariaDB in this folder, with an empty database for WordPress.
    pub fn start(folder: &Path) -> Database {
        let data = folder.join("database");
        fs::create_dir(&data).expect("mkdir");
        let user = if is_root() { USER.to_owned() } else { whoami() };
        if is_root() {
            let chown = Command::new("chown")
                .arg(USER)
                .arg(&data)
                .status()
                .expect("chown");
            assert!(chown.success());
        }
        // Two at once can disturb each other on a busy machine: one of them then fails without a message.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let turn = ONE_AT_A_TIME.lock();
        let install = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--skip-test-db",
                // Its users are local, so it does not matter whether the machine's own name resolves.
                "--force",
                "--auth-root-authentication-method=normal",
            ])
            .args(IN_HASTE)
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--user={user}"))
            .output()
            .expect("mariadb-install-db");
        drop(turn);
        assert!(
            install.status.success(),
            "{}{}",
            String::from_utf8_lossy(&install.stdout),
            String::from_utf8_lossy(&install.stderr)
        );
        let statements = folder.join("database.sql");
        fs::write(
            &statements,
            "CREATE DATABASE wordpress;\n\
             CREATE USER 'wordpress'@'localhost' IDENTIFIED BY 'wordpress';\n\
             GRANT ALL ON wordpress.* TO 'wordpress'@'localhost';\n",
        )
        .expect("database.sql");
        let log = fs::File::create(folder.join("database.log")).expect("a log");
        let child = Command::new(newest("/usr/sbin", "mariadbd"))
            .args(["--no-defaults", "--skip-networking", "--skip-log-bin"])
            .args(IN_HASTE)
            .arg(format!("--tmpdir={}", data.display()))
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket(folder).display()))
            .arg(format!("--pid-file={}/mariadb.pid", data.display()))
            .arg(format!("--init-file={}", statements.display()))
            .arg(format!("--user={user}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("mariadbd");
        let mut database = Database {
            child,
            folder: folder.to_owned(),
        };
        wait_until("MariaDB accepts", || {
            if let Some(status) = database.child.try_wait().expect("a child of ours") {
                panic!("MariaDB ended with {status}:\n{}", database.log());
            }
            UnixStream::connect(socket(folder)).is_ok()
        });
        database
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("database.log")).unwrap_or_default()
    }

    /// The statements that WordPress runs now. PHP is the only client of the database here.
    fn statements(&self) -> io::Result<String> {
        let (script, answer) = (
            self.folder.join("statements.php"),
            self.folder.join("statements.txt"),
        );
        let text = format!(
            "<?php\n\
             $database = new mysqli('localhost', 'wordpress', 'wordpress', '', 0, '{}');\n\
             foreach ($database->query('SHOW FULL PROCESSLIST') as $row) {{ echo implode(' | ', $row), \"\\n\"; }}\n",
            socket(&self.folder).display()
        );
        fs::write(&script, text)?;
        let mut php = Command::new(newest("/usr/bin", "php-cgi"))
            .arg("-q")
            .arg(&script)
            .stdin(Stdio::null())
            .stdout(fs::File::create(&answer)?)
            .stderr(Stdio::null())
            .spawn()?;
        if wait(&mut php, LIMIT).is_none() {
            php.kill()?;
            php.wait()?;
        }
        fs::read_to_string(&answer)
    }
}

/// Prints the state of the database if a test fails, before the programs that use it are stopped.
struct Witness<'a>(&'a Database);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- MariaDB's statements\n{}\n--- MariaDB's processes\n{}--- MariaDB's log\n{}",
                self.0
                    .statements()
                    .unwrap_or_else(|error| error.to_string()),
                table(self.0.child.id()),
                self.0.log()
            );
        }
    }
}

/// Use tables that are plain files, and do not wait until writes reach the disk: the test needs no protection against a
/// power failure. With the default (InnoDB) the setup of MariaDB waits for the disk about a thousand times, and the
/// installer's tables cost two hundred more waits, one after another. On a busy disk that takes minutes.
const IN_HASTE: [&str; 3] = [
    "--skip-innodb",
    "--default-storage-engine=MyISAM",
    "--debug-no-sync",
];

/// How long WordPress may take for an answer. Its installer needs half a second of an idle core, and other processes
/// may use that core too.
const PATIENCE: Duration = Duration::from_secs(120);

impl Drop for Database {
    fn drop(&mut self) {
        signal(self.child.id(), Signal::TERM);
        if wait(&mut self.child, LIMIT).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Returns a path that is short enough for a socket's address (108 bytes).
pub fn socket(folder: &Path) -> PathBuf {
    folder.join("database/sock")
}

/// A client that keeps cookies.
pub struct Browser<'a> {
    weir: &'a Weir,
    host: String,
    cookies: BTreeMap<String, String>,
}

impl<'a> Browser<'a> {
    pub fn new(weir: &'a Weir) -> Browser<'a> {
        Browser {
            weir,
            host: weir.address().to_string(),
            cookies: BTreeMap::new(),
        }
    }

    #[track_caller]
    pub fn get(&mut self, path: &str) -> Response {
        self.request("GET", path, &[], b"")
    }

    #[track_caller]
    pub fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Response {
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        self.request("POST", path, &headers, form(fields).as_bytes())
    }

    /// multipart/form-data (RFC 7578)
    #[track_caller]
    fn upload(
        &mut self,
        path: &str,
        fields: &[(&str, &str)],
        name: &str,
        file: &str,
        kind: &str,
        content: &[u8],
    ) -> Response {
        let mut body = Vec::new();
        for (name, value) in fields {
            body.extend(
                format!(
                    "--limit\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
                )
                .bytes(),
            );
        }
        body.extend(
            format!("--limit\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\nContent-Type: {kind}\r\n\r\n").bytes(),
        );
        body.extend(content);
        body.extend(b"\r\n--limit--\r\n");
        self.request(
            "POST",
            path,
            &[("Content-Type", "multipart/form-data; boundary=limit")],
            &body,
        )
    }

    #[track_caller]
    fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let cookies: Vec<String> = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let cookies = cookies.join("; ");
        let mut all = vec![("Host", self.host.as_str())];
        if !cookies.is_empty() {
            all.push(("Cookie", &cookies));
        }
        all.extend(headers);
        let mut client = self.weir.client().patient(PATIENCE);
        client.send(request(method, path, &all, body));
        let response = client.response_to(method);
        for cookie in response.all("set-cookie") {
            let pair = cookie.split(';').next().expect("a cookie");
            let (name, value) = pair.split_once('=').expect("a cookie");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        response
    }
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

/// The value of a form's hidden field.
#[track_caller]
pub fn field(page: &str, name: &str) -> String {
    let at = page
        .find(&format!("name=\"{name}\""))
        .unwrap_or_else(|| panic!("no field {name}: {page}"));
    let rest = &page[at..];
    let value = rest.split("value=\"").nth(1).expect("a value");
    value.split('"').next().expect("a value").to_owned()
}

/// The styles and scripts that a page loads.
pub fn linked(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for tag in page
        .split('<')
        .filter(|tag| tag.starts_with("link ") || tag.starts_with("script "))
    {
        if tag.starts_with("link ") && !tag.contains("stylesheet") {
            continue;
        }
        for attribute in [" href=", " src="] {
            if let Some((_, rest)) = tag.split_once(attribute) {
                let quote = rest.chars().next().expect("a quote");
                let url = rest[1..].split(quote).next().expect("a URL");
                found.push(url.replace("&#038;", "&").replace("&amp;", "&"));
            }
        }
    }
    found
}

/// A URL of the site as a path.
fn local(weir: &Weir, url: &str) -> String {
    let origin = format!("http://{}", weir.address());
    url.strip_prefix(&origin).unwrap_or(url).to_owned()
}

fn whoami() -> String {
    let output = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
