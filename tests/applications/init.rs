//! Configurations that `weir init` writes, with the real applications from Debian's packages, and beside Apache with
//! their `.htaccess` files.

use std::fs;
use std::path::Path;
use std::process::Command;

use weir_test::front::WebServer;
use weir_test::weir::{mode, program, request};
use weir_test::{Client, GROUP, Setup, USER, Weir, is_root, wait_for, wordpress};

/// The configuration for a folder, on the address of this test.
fn init(setup: &Setup, folder: &Path, more: &[&str]) -> String {
    let file = setup.path("init.toml");
    let output = Command::new(program())
        .arg("init")
        .arg(folder)
        .args(["--force", "--listen", &setup.address().to_string(), "-o"])
        .arg(&file)
        .args(more)
        .output()
        .expect("weir init");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    fs::read_to_string(&file).expect("init.toml")
}

/// Starts it as it is. Only what a test needs is added: places for what weir writes.
#[track_caller]
fn start(setup: &Setup, text: &str) -> Weir {
    let folder = setup.folder().display();
    let server = match is_root() {
        true => format!("user = \"{USER}\"\ngroup = \"{GROUP}\"\n"),
        false => String::new(),
    };
    assert!(
        !text.contains("[server]") && !text.contains("[log]"),
        "{text}"
    );
    setup.start_toml(&format!(
        "[server]\nadmin = \"off\"\nspool_dir = \"{folder}/spool\"\n{server}\n{text}\n[log]\naccess = \"{folder}/log/access.log\"\n"
    ))
}

/// Apache with the folder as its document root, and `.htaccess` files in force.
fn apache(setup: &Setup, root: &Path) -> WebServer {
    let modules = [
        "access_compat",
        "alias",
        "authn_core",
        "authz_host",
        "authz_user",
        "dir",
        "env",
        "filter",
        "headers",
        "mime",
        "rewrite",
        "setenvif",
    ];
    let mut text = String::new();
    for name in modules {
        text += &format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    }
    let root = root.display();
    text += &format!(
        "TypesConfig /etc/mime.types\nDocumentRoot {root}\nDirectoryIndex index.php index.html\nMaxKeepAliveRequests 0\n\
         <Directory />\nAllowOverride None\n</Directory>\n<Directory {root}>\nAllowOverride All\nOptions FollowSymLinks\nRequire all granted\n</Directory>\n"
    );
    WebServer::apache(setup.folder(), &text)
}

/// The URL paths of files below a folder, at most so many, from all parts of it.
fn files(root: &Path, most: usize) -> Vec<String> {
    let output = Command::new("find")
        .args(["-L", ".", "-type", "f", "-not", "-path", "*/.*"])
        .current_dir(root)
        .output()
        .expect("find");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_plain = |path: &&str| {
        path.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b))
    };
    let mut all: Vec<String> = (text.lines())
        .filter_map(|line| line.strip_prefix('.'))
        .filter(is_plain)
        .map(str::to_owned)
        .collect();
    all.sort();
    let step = all.len().div_ceil(most).max(1);
    all.into_iter().step_by(step).collect()
}

/// What Apache refuses for the `.htaccess` files of an application, weir refuses. Returns how much that was.
#[track_caller]
fn refuses_as_apache(setup: &Setup, root: &Path, weir: &Weir, paths: &[String]) -> usize {
    let apache = apache(setup, root);
    let status_of = |address, path: &str| {
        let mut client = Client::connect(address);
        client.send(request("GET", path, &[], b""));
        client.response().status
    };
    let mut count = 0;
    for path in paths {
        let status = status_of(apache.address(), path);
        if [401, 403, 404, 410].contains(&status) {
            let ours = status_of(weir.address(), path);
            assert!(ours >= 400, "{path}: {status} of Apache, {ours} of weir");
            count += 1;
        } else if status == 200
            && [".css", ".js", ".png"]
                .iter()
                .any(|end| path.ends_with(end))
        {
            // What pages need is there.
            let ours = status_of(weir.address(), path);
            assert_eq!(ours, 200, "{path}");
        }
        assert_ne!(status, 500, "{path}: {}", apache.log());
    }
    count
}

#[test]
fn what_the_htaccess_files_of_applications_deny_is_refused() {
    for (root, public, least) in [
        ("/usr/share/mediawiki", "/usr/share/mediawiki", 10),
        ("/usr/share/dokuwiki", "/usr/share/dokuwiki", 10),
        ("/usr/share/wordpress", "/usr/share/wordpress", 1),
        ("/var/lib/roundcube", "/var/lib/roundcube/public_html", 0),
        ("/usr/share/phpmyadmin", "/usr/share/phpmyadmin", 0),
    ] {
        let setup = Setup::new();
        let text = init(&setup, Path::new(root), &[]);
        let weir = start(&setup, &text);
        let public = Path::new(public);
        let mut paths = files(public, 250);
        // The whole plugin whose folder is denied, but for some files.
        if root.ends_with("wordpress") {
            let plugin = "wp-content/plugins/akismet";
            let inner = files(&public.join(plugin), 1000);
            paths = inner
                .into_iter()
                .map(|path| format!("/{plugin}{path}"))
                .collect();
        }
        let count = refuses_as_apache(&setup, public, &weir, &paths);
        assert!(count >= least, "{root}: Apache refuses only {count}");
    }
}

/// Rules of all kinds, in several folders.
#[test]
fn what_apache_refuses_for_a_tree_of_rules_is_refused() {
    let mut setup = Setup::new();
    let rules = [
        (
            "",
            "RewriteEngine On\nRewriteRule ^(app|conf)/ - [F]\nRewriteRule \"(^|/)\\.(?!well-known)\" - [F]\n\
             RewriteCond %{REQUEST_FILENAME} -f\nRewriteRule \\.tpl$ - [F,NC]\n\
             RewriteCond %{REQUEST_URI} !^/lib/public/\nRewriteRule ^lib/ - [F]\nRedirectMatch 404 /secret-\nRedirect gone /old\n\
             <FilesMatch \"\\.(bak|sql)$|^(\\.(?!well-known).*|Root|web\\.config)$|^#.*#$\">\nRequire all denied\n</FilesMatch>\n\
             <If \"%{REQUEST_URI} =~ m#/[Rr]eadme(\\.md)?$#\">\nRequire all denied\n</If>\n<Files \"n?tes.*\">\nRequire all denied\n</Files>\n",
        ),
        ("data/", "Require all denied\n"),
        ("data/public/", "Require all granted\n"),
        (
            "both/",
            "Order allow,deny\nDeny from all\n<FilesMatch \"\\.css$\">\nRequire all granted\n</FilesMatch>\n",
        ),
        (
            "media/",
            "Order deny,allow\nDeny from all\n<Files ~ \"(?i)^.*\\.(png|css)$\">\nAllow from all\n</Files>\n",
        ),
        (
            "inner/",
            "<IfModule mod_authz_core.c>\nRequire ip 10.1.2.3\n</IfModule>\n<IfModule !mod_authz_core.c>\nDeny from all\n</IfModule>\n",
        ),
        (
            "only/",
            "<FilesMatch \"^(?!page|a\\.css).*$\">\nDeny from all\n</FilesMatch>\n",
        ),
    ];
    let names = [
        "a.css",
        "A.CSS",
        "page.html",
        "x.sql",
        "x.tpl",
        "x.TPL",
        "web.config",
        "Readme",
        "readme.md",
        "notes.txt",
        "Root",
        "secret-a",
        "a.png",
    ];
    let mut paths = Vec::new();
    for folder in [
        "",
        "app/",
        "conf/x/",
        "data/",
        "data/deep/",
        "data/public/",
        "both/",
        "media/",
        "inner/",
        "only/",
        "only/deep/",
        "lib/",
        "lib/public/",
        "old/",
        "older/",
        "linked/",
    ] {
        for name in names {
            if folder != "linked/" {
                setup = setup.file(&format!("{folder}{name}"), "text");
            }
            paths.push(format!("/{folder}{name}"));
        }
    }
    for (folder, text) in rules {
        setup = setup.file(&format!("{folder}.htaccess"), text);
    }
    let root = setup.root();
    std::os::unix::fs::symlink("data", root.join("linked")).expect("a link");
    let text = init(&setup, &root, &[]);
    let weir = start(&setup, &text);
    let count = refuses_as_apache(&setup, &root, &weir, &paths);
    assert!(count > 100, "Apache refuses only {count}");
    // What Apache serves is served, but for what is said to be refused more widely.
    for path in [
        "/a.css",
        "/data/public/a.css",
        "/media/A.CSS",
        "/only/page.html",
        "/lib/public/a.css",
        "/older/a.css",
    ] {
        weir.get(path).expect(200);
    }
    for path in [
        "/both/a.css",
        "/inner/a.css",
        "/only/notes.txt",
        "/linked/deep/a.css",
    ] {
        weir.get(path).expect(403);
    }
}

/// WordPress as `weir init` configures it: its installer, uploads, permalinks. docs/recipes.md shows the same file.
#[test]
fn wordpress_as_init_configures_it() {
    let setup = wordpress::prepare(Setup::new());
    let root = setup.root();
    fs::remove_file(root.join("wp-content/plugins/akismet/.htaccess"))
        .expect("the file of a plugin");
    fs::write(
        root.join("wp-content/uploads/evil.php"),
        "<?php echo 'ran';",
    )
    .expect("a file");
    let token = root.join(".well-known/acme-challenge/token");
    fs::create_dir_all(token.parent().expect("a folder")).expect("a folder");
    fs::write(&token, "proof").expect("a file");
    if is_root() {
        let given = Command::new("chown").args(["-R", USER]).arg(&root).status();
        assert!(given.expect("chown").success());
    }
    let text = init(&setup, &root, &[]);
    let shown = recipe(&text, &root, &setup.address().to_string());
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recipes.md"));
    let page = page.expect("docs/recipes.md");
    assert!(
        page.contains(&shown),
        "docs/recipes.md has not what weir init writes:\n{shown}"
    );
    let database = wordpress::Database::start(setup.folder());
    let patient = text.replace(
        "runtime = \"php\"",
        "read_timeout = \"120s\"\nqueue.timeout = \"120s\"\nruntime = \"php\"",
    );
    let weir = start(&setup, &patient);
    for path in [
        "/wp-content/uploads/evil.php",
        "/wp-config.php",
        "/wp-includes/version.php",
        "/wp-content/uploads/evil.php/x.jpg",
    ] {
        weir.get(path).expect(403);
    }
    let proof = weir.get("/.well-known/acme-challenge/token").expect(200);
    assert_eq!(proof.text(), "proof");
    crate::wordpress::walk_through(&weir, &database);
    drop(weir);
    drop(database);
}

/// First pages of Debian's packages, and files that these link to.
#[test]
fn applications_answer_as_init_configures_them() {
    for (root, path, status, word, file) in [
        (
            "/usr/share/phpmyadmin",
            "/",
            200,
            "phpMyAdmin",
            "/themes/pmahomme/css/theme.css",
        ),
        (
            "/usr/share/mediawiki",
            "/mw-config/index.php",
            200,
            "MediaWiki",
            "/resources/assets/licenses/cc-0.png",
        ),
        // Without a configuration for this host, WordPress itself says so, and for each URL.
        (
            "/usr/share/wordpress",
            "/some-page/",
            404,
            "could be found",
            "/wp-content/themes/twentytwentythree/style.css",
        ),
    ] {
        let setup = Setup::new();
        let text = init(&setup, Path::new(root), &[]);
        let weir = start(&setup, &text);
        let page = weir.get(path).expect(status).text();
        assert!(page.contains(word), "{root}: {page}");
        weir.get(file).expect(200);
    }
}

/// The text as the page has it.
fn recipe(text: &str, root: &Path, address: &str) -> String {
    let (_, text) = text.split_once("\n\n").expect("the first lines");
    let mut out = String::new();
    for line in text.lines() {
        // On the page the scripts have a user of their own. Tests run as root, or not.
        if line.starts_with("user = ") {
            continue;
        }
        let line = line
            .replace(&root.display().to_string(), "/srv/wordpress")
            .replace(address, "0.0.0.0:80")
            .replace("site.root", "site.blog");
        out += line
            .split(" # only this machine")
            .next()
            .unwrap_or_default()
            .trim_end();
        out.push('\n');
    }
    out
}

/// A site over HTTPS with a certificate of the local CA: two commands, and no file is edited.
#[test]
fn a_page_over_https_after_two_commands() {
    let setup = Setup::new().file(
        "index.php",
        "<?php echo 'https is ', $_SERVER['HTTPS'] ?? 'off';",
    );
    mode(setup.folder(), 0o755);
    let https = weir_test::free_address();
    let text = init(
        &setup,
        &setup.root(),
        &[
            "--domain",
            "shop.test",
            "--listen-https",
            &https.to_string(),
        ],
    );
    // Root's certificates would be in /var/lib/weir.
    let certificates = setup.path("certificates");
    let text = match text.contains("[tls]") {
        true => {
            let line = text
                .lines()
                .find(|line| line.starts_with("certificates = "));
            text.replace(
                line.expect("a line"),
                &format!("certificates = \"{}\"", certificates.display()),
            )
        }
        false => format!(
            "[tls]\ncertificates = \"{}\"\n\n{text}",
            certificates.display()
        ),
    };
    let _weir = start(&setup, &text);
    let ca = certificates.join("local-ca/root.pem");
    // The certificate is made while weir serves already.
    let said = wait_for("a page over https", || {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "30", "--cacert"])
            .arg(&ca)
            .args(["--connect-to", &format!("shop.test:443:{https}")])
            .arg("https://shop.test/")
            .output()
            .expect("curl");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(said)
    });
    assert_eq!(said, "https is on");
}
