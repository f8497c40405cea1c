//! What a site with WordPress needs: the files from Debian's package, a MariaDB of its own, and a client with cookies.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::Signal;

use crate::http::form;
use crate::process::{newest, signal, table, wait};
use crate::weir::{mode, request};
use crate::{LIMIT, Response, Setup, USER, Weir, is_root, wait_until};

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
        Database::start_with(folder, &IN_HASTE)
    }

    /// The same for applications that insist on InnoDB.
    pub fn start_innodb(folder: &Path) -> Database {
        Database::start_with(folder, &INNODB_IN_HASTE)
    }

    fn start_with(folder: &Path, options: &[&str]) -> Database {
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
            .args(options)
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

    /// Runs these SQL statements.
    ///
    /// # Panics
    /// If one fails.
    pub fn run(&self, statements: &str) {
        let (file, script) = (
            self.folder.join("statements.sql"),
            self.folder.join("run.php"),
        );
        fs::write(&file, statements).expect("statements");
        let text = format!(
            "<?php\n\
             $database = new mysqli('localhost', 'wordpress', 'wordpress', 'wordpress', 0, '{}');\n\
             $database->multi_query(file_get_contents('{}'));\n\
             while ($database->more_results()) {{ $database->next_result(); }}\n\
             echo 'done';\n",
            socket(&self.folder).display(),
            file.display(),
        );
        fs::write(&script, text).expect("a script");
        let output = Command::new("php").arg(&script).output().expect("php");
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, "done", "{errors}");
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
pub struct ShownOnFailure<'a>(pub &'a Database);

impl Drop for ShownOnFailure<'_> {
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

/// The same with InnoDB, which some applications insist on.
const INNODB_IN_HASTE: [&str; 6] = [
    "--debug-no-sync",
    "--innodb-flush-method=nosync",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=4M",
];

/// How long WordPress may take for an answer. Its installer needs half a second of an idle core, and other processes
/// may use that core too.
pub const PATIENCE: Duration = Duration::from_secs(120);

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
    /// A client of this weir without cookies.
    pub fn new(weir: &'a Weir) -> Browser<'a> {
        Browser {
            weir,
            host: weir.address().to_string(),
            cookies: BTreeMap::new(),
        }
    }

    /// A client that asks for a site of this name.
    pub fn of_site(weir: &'a Weir, name: &str) -> Browser<'a> {
        Browser {
            host: name.to_owned(),
            ..Browser::new(weir)
        }
    }

    /// Sends GET.
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Response {
        self.request("GET", path, &[], b"")
    }

    /// Sends a form.
    #[track_caller]
    pub fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Response {
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        self.request("POST", path, &headers, form(fields).as_bytes())
    }

    /// Uploads a file as multipart/form-data (RFC 7578).
    #[track_caller]
    #[allow(clippy::too_many_arguments, reason = "fields of a form")]
    pub fn upload(
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

    /// Sends any request with the cookies it has.
    #[track_caller]
    pub fn request(
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

fn whoami() -> String {
    let output = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
