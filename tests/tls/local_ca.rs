//! `tls = "auto"` for names that no public authority signs: weir's local authority, from the client to PHP.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use weir_test::process::Process;
use weir_test::weir::program;
use weir_test::{Setup, Weir, free_address, goes_on_as_root, php, wait_until};

/// A folder of certificates that outlives a weir.
struct Store(TempDir);

impl Store {
    fn new() -> Store {
        Store(TempDir::with_prefix("weir-test-").expect("a temporary folder"))
    }

    /// `[tls]` of a weir.toml.
    fn toml(&self) -> String {
        format!("[tls]\ncertificates = \"{}\"", self.path("").display())
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join("certificates").join(below)
    }

    fn root(&self) -> PathBuf {
        self.path("local-ca/root.pem")
    }

    /// Runs openssl in the folder, for a test of what it says.
    fn openssl(&self, words: &[&str]) -> String {
        let output = Command::new("openssl")
            .args(words)
            .current_dir(self.path(""))
            .output()
            .expect("openssl");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(output.status.success(), "openssl {words:?}: {text}");
        text
    }
}

/// A site with TLS for `hosts`.
fn setup(store: &Store, hosts: &str) -> Setup {
    Setup::new()
        .file("index.html", "local\n")
        .listen("tls = true")
        .site(&format!("hosts = {hosts}\ntls = \"auto\""))
        .more(&store.toml())
}

/// Runs curl for a URL whose host is at `at`. It trusts `ca` and nothing else.
fn curl(ca: &Path, at: SocketAddr, url: &str, words: &[&str]) -> Output {
    let host = url.split("://").nth(1).expect("a URL");
    let host = host.split(['/', ':']).next().expect("a host");
    Command::new("curl")
        .args(["-sS", "--http1.1", "--max-time", "60", "--cacert"])
        .arg(ca)
        .args(["--resolve", &format!("{host}:{}:{}", at.port(), at.ip())])
        .args(words)
        .arg(url)
        .output()
        .expect("curl; setup/install.sh test installs it")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// What curl gets of a path of `localhost` or another host.
fn got(store: &Store, weir: &Weir, host: &str, path: &str) -> String {
    let at = weir.address();
    let url = format!("https://{host}:{}{path}", at.port());
    text(&curl(&store.root(), at, &url, &["--fail"]))
}

#[test]
fn a_local_name_is_served_over_https_from_curl_to_php() {
    let store = Store::new();
    let weir = setup(&store, "[\"localhost\", \"*.shop.test\"]")
        .file(
            "tls.php",
            "<?php echo $_SERVER['HTTPS'], ' ', $_SERVER['SSL_TLS_SNI'];",
        )
        .pool(&format!(
            "runtime = \"php\"\nmax_children = 2\n{}",
            php::identity()
        ))
        .start();
    assert_eq!(got(&store, &weir, "localhost", "/tls.php"), "on localhost");
    assert_eq!(
        got(&store, &weir, "a.shop.test", "/tls.php"),
        "on a.shop.test"
    );
    // The keys are for their owner alone; what people need to trust the authority is for everybody.
    for (file, mode) in [
        ("local-ca/key.pem", 0o600),
        ("local-ca/root.pem", 0o644),
        ("localhost/key.pem", 0o600),
    ] {
        let found = fs::metadata(store.path(file)).expect(file).permissions();
        assert_eq!(found.mode() & 0o777, mode, "{file}");
    }
    let said = store.openssl(&["x509", "-noout", "-text", "-in", "local-ca/root.pem"]);
    for part in [
        "CA:TRUE, pathlen:0",
        "X509v3 Name Constraints: critical",
        "DNS:test",
        "IP:127.0.0.0/255.0.0.0",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    store.openssl(&[
        "verify",
        "-x509_strict",
        "-CAfile",
        "local-ca/root.pem",
        "localhost/chain.pem",
    ]);
}

#[test]
fn an_address_gets_a_certificate_too() {
    let store = Store::new();
    let setup = Setup::new();
    let host = setup.address().ip();
    let weir = setup
        .file("index.html", "local\n")
        .listen("tls = true")
        .site(&format!("hosts = [\"{host}\"]\ntls = \"auto\""))
        .more(&store.toml())
        .start();
    let url = format!("https://{}/", weir.address());
    let output = curl(&store.root(), weir.address(), &url, &["--fail"]);
    assert_eq!(text(&output), "local\n");
}

#[test]
fn requests_without_tls_are_redirected_and_hsts_is_sent_over_tls() {
    let store = Store::new();
    let plain = free_address();
    let weir = setup(&store, "[\"shop.test\"]")
        .site("hsts = \"1y include_subdomains\"")
        .more(&format!("[listen.plain]\naddress = \"{plain}\""))
        .start();
    let port = weir.address().port();
    let url = format!("http://shop.test:{}/a%20b?c=d", plain.port());
    let said = text(&curl(&store.root(), plain, &url, &["-i"]));
    assert!(said.starts_with("HTTP/1.1 308 "), "{said}");
    let location = format!("Location: https://shop.test:{port}/a%20b?c=d\r\n");
    assert!(said.contains(&location), "{said}");
    assert!(!said.contains("Strict-Transport-Security"), "{said}");
    let url = format!("https://shop.test:{port}/");
    let said = text(&curl(&store.root(), weir.address(), &url, &["-i"]));
    let hsts = "Strict-Transport-Security: max-age=31536000; includeSubDomains\r\n";
    assert!(
        said.starts_with("HTTP/1.1 200 ") && said.contains(hsts),
        "{said}"
    );
}

#[test]
fn https_redirect_can_be_turned_off() {
    let store = Store::new();
    let plain = free_address();
    let weir = setup(&store, "[\"shop.test\"]")
        .site("https_redirect = false")
        .more(&format!("[listen.plain]\naddress = \"{plain}\""))
        .start();
    let url = format!("http://shop.test:{}/", plain.port());
    assert_eq!(
        text(&curl(&store.root(), plain, &url, &["--fail"])),
        "local\n"
    );
    assert_eq!(got(&store, &weir, "shop.test", "/"), "local\n");
}

#[test]
fn a_folder_with_a_domain_is_served_over_https() {
    let store = Store::new();
    let (https, state) = (
        free_address(),
        format!("STATE_DIRECTORY={}", store.0.path().display()),
    );
    let setup = Setup::new()
        .file("index.html", "folder\n")
        .under(&["env", &state]);
    let listen = https.to_string();
    let weir = setup.start_folder(&[
        "--domain",
        "localhost",
        "--listen-https",
        &listen,
        "--admin",
        "off",
    ]);
    wait_until("weir says where", || {
        weir.stderr()
            .contains(&format!("https://localhost:{}/", https.port()))
    });
    let url = format!("https://localhost:{}/", https.port());
    assert_eq!(
        text(&curl(&store.root(), https, &url, &["--fail"])),
        "folder\n"
    );
    // Requests with the domain's name are redirected. Requests with another name are served as without a domain.
    let plain = weir.address();
    let url = format!("http://localhost:{}/", plain.port());
    let said = text(&curl(&store.root(), plain, &url, &["-i"]));
    assert!(
        said.contains(&format!(
            "Location: https://localhost:{}/\r\n",
            https.port()
        )),
        "{said}"
    );
    let url = format!("http://{plain}/");
    let output = curl(&store.root(), plain, &url, &["--fail"]);
    assert_eq!(text(&output), "folder\n");

    // What weir trust says is what openssl says.
    let told = Command::new(program())
        .arg("trust")
        .env("STATE_DIRECTORY", store.0.path())
        .current_dir(store.0.path())
        .output()
        .expect("weir");
    let told = text(&told);
    let said = store.openssl(&[
        "x509",
        "-noout",
        "-fingerprint",
        "-sha256",
        "-in",
        "local-ca/root.pem",
    ]);
    let digest = said.trim().split('=').nth(1).expect("a fingerprint");
    assert!(told.contains(digest), "{told}");
    for part in [
        "update-ca-certificates",
        "update-ca-trust",
        "security add-trusted-cert",
        "certutil",
        "Firefox",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(told.contains(&store.root().display().to_string()), "{told}");
}

#[test]
fn weir_trust_without_a_local_ca_says_how_to_get_one() {
    let folder = TempDir::with_prefix("weir-test-").expect("a temporary folder");
    let config = folder.path().join("weir.toml");
    fs::write(&config, "[tls]\ncertificates = \"none-here\"\n[listen.a]\naddress = \":80\"\n[site.a]\nroot = \"/\"\n").expect("a file");
    let output = Command::new(program())
        .args(["trust", "-c"])
        .arg(&config)
        .output()
        .expect("weir");
    assert_eq!(output.status.code(), Some(69));
    let said = text(&output);
    assert!(
        said.contains("none-here/local-ca/root.pem") && said.contains("--domain localhost"),
        "{said}"
    );
}

#[test]
fn weir_certificates_lists_what_there_is_and_what_is_missing() {
    let store = Store::new();
    let weir = setup(&store, "[\"shop.test\", \"www.shop.test\"]").start();
    let config = weir.folder().join("weir.toml");
    let listed = |words: &[&str]| {
        let output = Command::new(program())
            .args(["certificates", "-c"])
            .arg(&config)
            .args(words)
            .output()
            .expect("weir");
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let said = listed(&[]);
    for part in ["shop.test, www.shop.test", "by weir's local CA, at 20"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let json = |said: &str| -> serde_json::Value { serde_json::from_str(said).expect("JSON") };
    let one = json(&listed(&["--json"]))["certificates"][0].clone();
    let ends = store.openssl(&[
        "x509",
        "-noout",
        "-enddate",
        "-dateopt",
        "iso_8601",
        "-in",
        "shop.test/chain.pem",
    ]);
    let ends = ends
        .trim()
        .trim_start_matches("notAfter=")
        .replace(' ', "T");
    assert_eq!(one["not_after"], ends.as_str());
    assert_eq!(
        one["names"],
        serde_json::json!(["shop.test", "www.shop.test"])
    );
    fs::remove_file(store.path("shop.test/chain.pem")).expect("removed");
    let one = json(&listed(&["--json"]))["certificates"][0].clone();
    assert!(
        one["error"]
            .as_str()
            .is_some_and(|error| error.contains("chain.pem")),
        "{one}"
    );
}

/// The digest of a certificate's file.
fn serial(store: &Store, name: &str) -> String {
    store.openssl(&[
        "x509",
        "-noout",
        "-serial",
        "-in",
        &format!("{name}/chain.pem"),
    ])
}

#[test]
fn a_start_keeps_a_good_certificate_and_the_authority() {
    let store = Store::new();
    let first = {
        let weir = setup(&store, "[\"shop.test\"]").start();
        assert_eq!(got(&store, &weir, "shop.test", "/"), "local\n");
        (
            serial(&store, "shop.test"),
            fs::read(store.root()).expect("root"),
        )
    };
    let weir = setup(&store, "[\"shop.test\"]").start();
    assert_eq!(got(&store, &weir, "shop.test", "/"), "local\n");
    assert_eq!(
        (
            serial(&store, "shop.test"),
            fs::read(store.root()).expect("root")
        ),
        first
    );
}

#[test]
fn other_names_or_a_key_that_does_not_fit_or_too_little_time_make_a_new_certificate() {
    let store = Store::new();
    drop(setup(&store, "[\"shop.test\"]").start());
    // Starts a weir, and says whether that has made another certificate.
    let is_renewed = |hosts: &str| {
        let before = serial(&store, "shop.test");
        let weir = setup(&store, hosts).start();
        assert_eq!(got(&store, &weir, "shop.test", "/"), "local\n");
        serial(&store, "shop.test") != before
    };
    let both = "[\"shop.test\", \"www.shop.test\"]";
    assert!(is_renewed(both));
    assert!(!is_renewed(both));
    // As if a node was killed after it had written the first of two files.
    store.openssl(&[
        "genpkey",
        "-algorithm",
        "EC",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-out",
        "shop.test/key.pem",
    ]);
    assert!(is_renewed(both));
    // Most of its life is over.
    let names = "subjectAltName=DNS:shop.test,DNS:www.shop.test\n";
    fs::write(store.path("names"), names).expect("a file");
    let key = "shop.test/key.pem";
    store.openssl(&["req", "-new", "-key", key, "-subj", "/", "-out", "request"]);
    for (days, renewed) in [("40", false), ("0", true)] {
        let words = "x509 -req -in request -CA local-ca/root.pem -CAkey local-ca/key.pem -extfile names -out shop.test/chain.pem";
        let words: Vec<&str> = words.split(' ').chain(["-days", days]).collect();
        store.openssl(&words);
        assert_eq!(is_renewed(both), renewed, "{days}");
    }
}

#[test]
fn a_reload_with_a_new_local_name_gets_its_certificate() {
    let store = Store::new();
    let more = "[site.more]\nhosts = [\"more.test\"]\ntls = \"auto\"";
    let setup = setup(&store, "[\"shop.test\"]");
    let next = format!(
        "{}\n{more}\nroot = \"{}\"\n",
        setup.toml(),
        setup.root().display()
    );
    let mut weir = setup.start();
    assert!(!store.path("more.test").exists());
    fs::write(weir.folder().join("weir.toml"), next).expect("weir.toml");
    weir.signal(rustix::process::Signal::HUP);
    wait_until("the new site", || {
        got(&store, &weir, "more.test", "/") == "local\n"
    });
    weir.stop();
}

/// The other process may be a node that was killed.
#[test]
fn a_lock_of_another_process_delays_its_certificates_and_nothing_else() {
    let store = Store::new();
    let lock = store.path("locks/local-ca");
    let folder = lock.parent().expect("a folder");
    fs::create_dir_all(folder).expect("a folder");
    let for_us = fs::Permissions::from_mode(0o700);
    fs::set_permissions(store.path(""), for_us).expect("permissions");
    fs::write(&lock, "another 600 1\n").expect("a lock");
    let weir = setup(&store, "[\"shop.test\"]").start();
    let late = "another process makes certificates of the local CA";
    weir.log_line(late);
    assert!(!store.root().exists());
    weir.signal(rustix::process::Signal::HUP);
    weir.log_line("reloaded: the new configuration serves");
    weir.log_line(late);
    fs::remove_file(&lock).expect("the lock");
    wait_until("the certificate", || {
        store.root().exists() && got(&store, &weir, "shop.test", "/") == "local\n"
    });
}

#[test]
fn the_gateway_cannot_read_the_keys_that_the_keeper_makes() {
    if !goes_on_as_root() {
        return;
    }
    let store = Store::new();
    let weir = setup(&store, "[\"shop.test\"]").start();
    assert_eq!(got(&store, &weir, "shop.test", "/"), "local\n");
    let gateway: Process = weir.gateway();
    let open = fs::read_dir(format!("/proc/{}/fd", gateway.pid)).expect("descriptors");
    for descriptor in open.flatten() {
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        assert!(!target.starts_with(store.path("")), "{target:?}");
    }
    let owner = fs::metadata(store.path("shop.test/key.pem")).expect("a key");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), 0);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_told_at_the_start() {
    let folder = TempDir::with_prefix("weir-test-").expect("a temporary folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let (status, said) = Setup::new()
        .listen("tls = true")
        .site("hosts = [\"shop.test\"]\ntls = \"auto\"")
        .more(&format!(
            "[tls]\ncertificates = \"{}/below\"",
            file.display()
        ))
        .start_in_vain();
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(
        said.contains("tls.certificates") && said.contains("file/below"),
        "{said}"
    );
}

/// A browser that is asked for a password sends it.
#[test]
fn nobody_is_asked_for_a_password_before_the_redirect_to_https() {
    let store = Store::new();
    let plain = free_address();
    let made = Command::new("openssl")
        .args(["passwd", "-6", "open sesame"])
        .output()
        .expect("openssl");
    let hash = text(&made);
    let setup = setup(&store, "[\"shop.test\"]");
    fs::write(
        setup.folder().join("users"),
        format!("ada:{}\n", hash.trim()),
    )
    .expect("a file");
    let weir = setup
        .site("basic_auth = { realm = \"ring\", file = \"users\" }")
        .more(&format!("[listen.plain]\naddress = \"{plain}\""))
        .start();
    let port = weir.address().port();
    let ask = |url: &str, words: &[&str]| {
        let address = if url.starts_with("https") {
            weir.address()
        } else {
            plain
        };
        text(&curl(
            &store.root(),
            address,
            url,
            &[&["-i"], words].concat(),
        ))
    };
    let url = format!("http://shop.test:{}/", plain.port());
    for words in [&[][..], &["-u", "ada:wrong"], &["-u", "ada:open sesame"]] {
        let said = ask(&url, words);
        assert!(said.starts_with("HTTP/1.1 308 "), "{words:?} {said}");
        assert!(!said.to_lowercase().contains("www-authenticate"), "{said}");
    }
    let url = format!("https://shop.test:{port}/");
    let said = ask(&url, &[]);
    assert!(said.starts_with("HTTP/1.1 401 "), "{said}");
    let said = ask(&url, &["-u", "ada:open sesame"]);
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
}
