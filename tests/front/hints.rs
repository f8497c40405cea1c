//! Messages about common mistakes: folders, flags, protocols, `.htaccess` files, and what `weir check` finds on the
//! machine.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use weir_test::front::WebServer;
use weir_test::process::{descendants, signal, wait};
use weir_test::weir::{mode, program};
use weir_test::{LIMIT, Responder, Setup, USER, is_root, wait_for, wait_until};

fn weir(arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.args(arguments).env("NO_COLOR", "1");
    command.stdin(Stdio::null()).output().expect("weir")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn serve_says_what_was_probably_meant() {
    let setup = Setup::new();
    let file = setup.write_toml();
    let file = file.to_str().expect("a path");
    for (arguments, code, words) in [
        (&["serve", file][..], 78, format!("weir serve -c {file}")),
        (
            &["serve", "--port", "8000"],
            64,
            "--listen 127.0.0.1:8000".into(),
        ),
        (
            &["serve", ".", "-p", "8000"],
            64,
            "--listen 127.0.0.1:8000".into(),
        ),
        (&["serve", "--root", "/srv"], 64, "weir serve FOLDER".into()),
        (&["check", file], 64, format!("weir check -c {file}")),
        (&["doctor", file], 64, format!("weir doctor -c {file}")),
        (&["reload", file], 64, format!("weir reload -c {file}")),
        (&["-c", file], 64, "weir serve -c FILE".into()),
        (&["-t"], 64, "weir check -c FILE".into()),
        (&["-s", "reload"], 64, "weir reload".into()),
        (
            &["version"],
            0,
            format!("weir {}", env!("CARGO_PKG_VERSION")),
        ),
        (&["start"], 64, "weir serve -c FILE".into()),
        (&["run"], 64, "weir serve -c FILE".into()),
        (&["restart"], 64, "weir reload".into()),
        (&["configtest"], 64, "weir check -c FILE".into()),
        (&["import", "nginx", file], 64, "weir fpm".into()),
    ] {
        let output = weir(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let said = said(&output);
        assert!(said.contains(&words), "{arguments:?}: {said}");
    }
}

#[test]
fn a_command_that_finds_no_weir_names_those_that_run() {
    let weir = Setup::new()
        .pool(&weir_test::php::cgi_pool(1))
        .admin()
        .start();
    for command in ["stop", "status", "reload"] {
        let output = self::weir(&[command, "--admin", "unix:/nowhere/admin.sock"]);
        assert_eq!(output.status.code(), Some(69));
        let said = said(&output);
        assert!(said.contains("weir serve"), "{said}");
        assert!(said.contains(&format!("weir {command} -c FILE")), "{said}");
    }
    let file = weir.folder().join("weir.toml");
    let output = self::weir(&["status", "weir.toml", "-c", file.to_str().expect("a path")]);
    assert!(
        said(&output).contains("weir status -c weir.toml"),
        "{}",
        said(&output)
    );
}

/// What is beside the document root of a framework is not public.
#[test]
fn the_document_root_of_a_framework_is_served() {
    let weir = Setup::new()
        .file("artisan", "")
        .file("public/style.css", "style")
        .file(
            "public/index.php",
            "<?php echo 'front ', $_SERVER['REQUEST_URI'];",
        )
        .file(".env", "SECRET")
        .file("composer.json", "SECRET")
        .start_folder(&[]);
    let root = weir.root().display().to_string();
    weir.wait_for_error(&["Laravel", &format!("document root is {root}/public")]);
    assert_eq!(weir.get("/style.css").expect(200).text(), "style");
    for path in ["/some/page", "/artisan", "/composer.json", "/.env"] {
        let page = weir.get(path).expect(200).text();
        assert_eq!(page, format!("front {path}"));
    }
    let public = Setup::new()
        .file("index.html", "home")
        .file("public/index.php", "")
        .start_folder(&[]);
    assert_eq!(public.get("/").expect(200).text(), "home");
}

/// How DokuWiki and Nextcloud store their data.
#[test]
fn a_folder_that_htaccess_denies_to_all_is_refused_by_serve() {
    let dokuwiki = "<IfModule mod_authz_core.c>\n    Require all denied\n</IfModule>\n\
                    <IfModule !mod_authz_core.c>\n    Order allow,deny\n    Deny from all\n</IfModule>\n";
    let weir = Setup::new()
        .file("index.html", "home")
        .file("data/.htaccess", dokuwiki)
        .file("data/pages/start.txt", "SECRET")
        .file("conf/.htaccess", "order allow,deny\ndeny from all\n")
        .file("conf/users.auth.txt", "SECRET")
        .file("data/public/.htaccess", "Require all granted\n")
        .file("data/public/a.txt", "open")
        .file(
            ".htaccess",
            "<FilesMatch \"\\.(key|tpl)$\">\nRequire all denied\n</FilesMatch>\n",
        )
        .file("sub/server.key", "SECRET")
        .file("private/.htaccess", "AuthType Basic\nRequire valid-user\n")
        .file("private/x.txt", "limited")
        .start_folder(&[]);
    for path in [
        "/data/pages/start.txt",
        "/data/",
        "/data/%2e/pages/start.txt",
        "/conf/users.auth.txt",
        "/sub/server.key",
    ] {
        let response = weir.get(path).expect(403);
        assert!(!response.text().contains("SECRET"), "{path}");
    }
    assert_eq!(weir.get("/").expect(200).text(), "home");
    assert_eq!(weir.get("/data/public/a.txt").expect(200).text(), "open");
    weir.wait_for_error(&["data/.htaccess denies /data/ to all"]);
    weir.wait_for_error(&["conf/.htaccess denies /conf/ to all"]);
    // What is for some clients is refused to all.
    weir.get("/private/x.txt").expect(403);
    weir.wait_for_error(&[
        "private/.htaccess limits /private/ by password",
        "also to clients whom the file lets in",
    ]);
}

#[test]
fn doctor_names_each_htaccess_and_what_it_would_have_denied() {
    let setup = Setup::new()
        .file("index.html", "")
        .file("data/.htaccess", "Deny from all")
        .file("conf/.htaccess", "Require all denied")
        .file("uploads/.htaccess", "php_flag engine off")
        .more("[[site.main.route]]\npath = \"/conf/*\"\ndeny = true\n");
    let file = setup.write_toml();
    let output = weir(&["doctor", "-c", file.to_str().expect("a path"), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let find = |verdict: &str, words: &[&str]| {
        let checks = report["checks"].as_array().expect("checks");
        let mut all = checks.iter().filter(|check| check["verdict"] == verdict);
        let found = all.any(|check| words.iter().all(|word| check.to_string().contains(word)));
        assert!(found, "{verdict} {words:?}: {report:#}");
    };
    find(
        "warn",
        &[
            "data/.htaccess denies /data/ to all",
            "path = '/data/*', deny = true",
        ],
    );
    find(
        "warn",
        &["uploads/.htaccess runs no scripts", "deny_scripts"],
    );
    find(
        "ok",
        &["conf/.htaccess denies /conf/ to all; weir.toml does the same"],
    );
}

#[test]
fn tls_on_a_plain_listener_is_named_in_the_log() {
    use std::io::{Read, Write};
    let weir = Setup::new().start();
    let mut stream = TcpStream::connect(weir.address()).expect("connect");
    let hello = [22, 3, 1, 0, 5, 1, 0, 0, 1, 0, b'\r', b'\n', b'\r', b'\n'];
    stream.write_all(&hello).expect("send");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    weir.wait_for_error(&["sent TLS (https://) to [listen.web]"]);
}

#[test]
fn an_http_server_where_fastcgi_is_expected_is_named_in_the_log() {
    let setup = Setup::new().file("index.php", "");
    let nginx = WebServer::nginx(setup.folder(), "", "");
    let pool = format!(
        "runtime = \"servers\"\nservers = [\"{}\"]\nqueue.maxconn = 1\n",
        nginx.address()
    );
    let weir = setup.pool(&pool).start();
    weir.get("/index.php").expect(502);
    weir.wait_for_error(&["does not speak FastCGI", "this is an HTTP server"]);
}

#[test]
fn check_finds_what_the_start_and_the_doctor_find() {
    let check = |setup: &Setup| {
        let file = setup.write_toml();
        let output = weir(&["check", "-c", file.to_str().expect("a path")]);
        (output.status.code(), said(&output))
    };
    let missing = Setup::new()
        .file("index.php", "")
        .site("fallback = \"/front.html\"");
    let (code, text) = check(&missing);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("the fallback does not exist") && text.contains("front.html"),
        "{text}"
    );

    let linked = Setup::new();
    symlink("/usr/share", linked.root().join("assets")).expect("a link");
    let (_, text) = check(&linked);
    assert!(
        text.contains("leads out of it, to /usr/share") && text.contains("follow_symlinks = true"),
        "{text}"
    );

    let socket = Setup::new().more("[listen.local]\naddress = \"unix:/no/such/folder/web.sock\"\n");
    let (code, text) = check(&socket);
    assert_eq!(code, Some(78), "{text}");
    assert!(
        text.contains("/no/such/folder") && text.contains("mkdir -p"),
        "{text}"
    );

    let settings = Setup::new().file("index.php", "").pool(&format!(
        "runtime = \"php\"\n{}php_admin_value = {{ memory_limits = \"1G\", memory_limit = \"1G\" }}",
        if is_root() { format!("user = \"{USER}\"\n") } else { String::new() }
    ));
    let (code, text) = check(&settings);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("has no setting `memory_limits`") && text.contains("`memory_limit`"),
        "{text}"
    );

    if is_root() {
        let program = Setup::new().file("index.php", "");
        let folder = program.folder().join("private");
        fs::create_dir(&folder).expect("mkdir");
        fs::write(folder.join("app"), "#!/bin/sh\n").expect("write");
        mode(&folder.join("app"), 0o755);
        mode(&folder, 0o700);
        let command = format!(
            "runtime = \"command\"\ncommand = [\"{}/app\"]\nuser = \"{USER}\"\n",
            folder.display()
        );
        let program = program.pool(&command);
        let file = program.write_toml();
        for command in ["check", "serve"] {
            let output = weir(&[command, "-c", file.to_str().expect("a path")]);
            let text = said(&output);
            assert_eq!(output.status.code(), Some(78), "{command}: {text}");
            assert!(
                text.contains("cannot run") && text.contains("/private"),
                "{command}: {text}"
            );
        }

        let closed = Setup::new().file("index.html", "");
        mode(closed.folder(), 0o700);
        let (_, text) = check(&closed);
        assert!(text.contains("everything is answered with 403"), "{text}");
        let weir = closed.start();
        weir.get("/").expect(403);
        weir.get("/nothing").expect(403);
    }
}

#[test]
fn what_a_site_shows_or_hides_by_mistake_is_told_by_check_and_at_the_start() {
    let setup = Setup::new()
        .file("page.php", "<?php")
        .file("data/app.sqlite", "secret")
        .file("data/.htaccess", "Require all denied\n")
        .file(
            "lib/.htaccess",
            "Require all denied\n<Files style.css>\nRequire all granted\n</Files>\n",
        );
    let file = setup.write_toml();
    let output = weir(&["check", "-c", file.to_str().expect("a path")]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let facts = [
        "data/.htaccess denies /data/ to all",
        "but the site has no pool",
        "no index file",
    ];
    for fact in facts {
        assert_eq!(text.matches(fact).count(), 1, "{fact}: {text}");
    }
    // In the proposal, the file's rules that allow come before its rules that deny.
    let (_, lib) = text.split_once("lib/.htaccess").expect("the other file");
    let granted = lib.find("style").expect("a route for the file");
    assert!(
        granted < lib.find("'/lib/*', deny = true").expect("a route"),
        "{lib}"
    );
    let weir = setup.start();
    for fact in facts {
        weir.wait_for_error(&["[site.main]", fact]);
    }
}

#[test]
fn serve_says_on_a_terminal_where_it_serves_and_logs() {
    let setup = Setup::new().admin().log("format = \"json\"\n");
    let errors = setup.folder().join("log/error.log");
    let setup = setup.log(&format!("error = \"{}\"\n", errors.display()));
    let (file, address) = (setup.write_toml(), setup.address());
    let output = setup.folder().join("typescript");
    let mut script = Command::new("script")
        .args([
            "-q",
            "-f",
            "-e",
            "-c",
            &format!("{} serve -c {}", program(), file.display()),
        ])
        .arg(&output)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("script");
    let serving = wait_for("weir serve", || {
        let all = descendants(script.id());
        all.into_iter().find(|process| process.name == "weir")
    });
    wait_until("it serves", || TcpStream::connect(address).is_ok());
    let shown = || fs::read_to_string(&output).unwrap_or_default();
    let began = Instant::now();
    while !shown().contains("stop with") && began.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Stop it whether the check passed or not.
    signal(serving.pid, Signal::TERM);
    wait(&mut script, LIMIT).expect("it ends");
    let shown = shown();
    assert!(shown.contains("stop with"), "{shown}");
    for words in [
        format!("http://{address}"),
        "access.log".to_owned(),
        errors.display().to_string(),
        format!("weir status -c {}", file.display()),
    ] {
        assert!(shown.contains(&words), "{words}: {shown}");
    }
}

#[test]
fn a_responder_that_is_no_php_needs_no_file_for_check() {
    let setup = Setup::new().site("script = '^(/app)(/.*)?$'\nfallback = \"/app\"");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("app"));
    let pool = responder.pool(1);
    let setup = setup.pool(&pool);
    let file = setup.write_toml();
    let output = weir(&["check", "-c", file.to_str().expect("a path")]);
    assert!(!said(&output).contains("fallback"), "{}", said(&output));
    let _ = TcpListener::bind(setup.address()).expect("nobody is there");
}
