//! Certificates of a public authority, got by weir itself: with Pebble, from the order to the client.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use weir_test::pebble::{Habits, Pebble};
use weir_test::weir::program;
use weir_test::{Setup, Weir, goes_on_as_root, php, wait_until};

/// A site with `tls = "auto"`, its authority, and its folder of certificates.
struct Site {
    setup: Setup,
    pebble: Pebble,
    store: TempDir,
}

impl Site {
    /// The authority does not run yet.
    fn new(hosts: &str, habits: Habits) -> Site {
        let setup = Setup::new();
        let tls = setup.address();
        let port = 20_000 + tls.port() % 10_000;
        let plain = SocketAddr::new(tls.ip(), port);
        let ports = (plain.port(), tls.port());
        let pebble = Pebble::new(tls.ip(), ports, habits);
        let store = TempDir::with_prefix("weir-test-").expect("a temporary folder");
        let setup = setup
            .file("index.html", "public\n")
            .listen("tls = true")
            .site(&format!("hosts = {hosts}\ntls = \"auto\""))
            .more(&format!("[listen.plain]\naddress = \"{plain}\""))
            .more(&format!(
                "[tls]\ncertificates = \"{}/certificates\"",
                store.path().display()
            ))
            .more(&pebble.toml());
        Site {
            setup,
            pebble,
            store,
        }
    }

    fn with(mut self, change: impl FnOnce(Setup) -> Setup) -> Site {
        self.setup = change(self.setup);
        self
    }

    /// With its authority.
    fn start(mut self) -> (Weir, Pebble, TempDir) {
        self.pebble.come();
        self.start_alone()
    }

    fn start_alone(self) -> (Weir, Pebble, TempDir) {
        (self.setup.start(), self.pebble, self.store)
    }
}

/// What curl gets of a host over TLS; empty: nothing.
fn got(weir: &Weir, ca: &Path, host: &str, path: &str) -> String {
    let at = weir.address();
    let output = Command::new("curl")
        .args(["-sS", "--fail", "--max-time", "60", "--cacert"])
        .arg(ca)
        .args(["--resolve", &format!("{host}:{}:{}", at.port(), at.ip())])
        .arg(format!("https://{host}:{}{path}", at.port()))
        .output()
        .expect("curl");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn certificates(weir: &Weir) -> Value {
    let output = Command::new(program())
        .args(["certificates", "--json", "-c"])
        .arg(weir.folder().join("weir.toml"))
        .output()
        .expect("weir");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    said["certificates"][0].clone()
}

fn file(store: &TempDir, below: &str) -> PathBuf {
    store.path().join("certificates").join(below)
}

#[test]
fn a_site_gets_its_certificate_by_http_01_although_half_of_the_nonces_are_refused() {
    let habits = Habits {
        nonces: 50,
        ..Habits::default()
    };
    let site = Site::new("[\"shop.example\", \"www.shop.example\"]", habits).with(|setup| {
        setup
            .more("challenge = \"http-01\"")
            .file("tls.php", "<?php echo $_SERVER['SSL_TLS_SNI'];")
            .pool(&format!(
                "runtime = \"php\"\nmax_children = 2\n{}",
                php::identity()
            ))
    });
    let (weir, pebble, store) = site.start();
    let root = pebble.root();
    wait_until("the certificate", || {
        got(&weir, &root, "www.shop.example", "/tls.php") == "www.shop.example"
    });
    assert_eq!(got(&weir, &root, "shop.example", "/"), "public\n");
    let key = fs::metadata(file(&store, "shop.example/key.pem")).expect("a key");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    let listed = certificates(&weir);
    assert_eq!(
        (&listed["renewed_by"], &listed["last_error"]),
        (&"ACME".into(), &Value::Null)
    );
    // What proved the names is gone.
    let line = weir.wait_for_line("log/access.log", &["/.well-known/acme-challenge/"]);
    let line: Value = serde_json::from_str(&line).expect("JSON");
    let uri = line["uri"].as_str().expect("a URI");
    assert_eq!(got(&weir, &root, "shop.example", uri), "");
}

#[test]
fn a_site_gets_a_short_certificate_by_tls_alpn_01_for_an_account_that_the_authority_knows() {
    let habits = Habits {
        only_known: true,
        ..Habits::default()
    };
    let site = Site::new("[\"shop.example\"]", habits).with(|setup| {
        let key = setup.folder().join("eab.key");
        fs::write(&key, Pebble::KEY.1).expect("a key");
        setup.more(&format!(
            "challenge = \"tls-alpn-01\"\nprofile = \"shortlived\"\neab_key_id = \"{}\"\neab_key_file = \"{}\"",
            Pebble::KEY.0,
            key.display()
        ))
    });
    let (weir, pebble, _store) = site.start();
    let root = pebble.root();
    wait_until("the certificate", || {
        got(&weir, &root, "shop.example", "/") == "public\n"
    });
    let listed = certificates(&weir);
    let [from, to] = ["not_before", "not_after"].map(|key| {
        let time = listed[key].as_str().expect("a time");
        time[8..10].parse::<i32>().expect("a day")
    });
    assert!((to - from).rem_euclid(28) < 10, "{listed}");
}

#[test]
fn an_authority_that_is_away_is_asked_again_and_others_are_served_meanwhile() {
    let site = Site::new("[\"shop.example\"]", Habits::default()).with(|setup| {
        let root = setup.root().display().to_string();
        setup.more(&format!(
            "[site.local]\nhosts = [\"shop.test\"]\nroot = \"{root}\"\ntls = \"auto\""
        ))
    });
    let (weir, mut pebble, store) = site.start_alone();
    weir.wait_for_error(&[
        "certificate.shop.example",
        "no certificate from the authority",
        "tried again in",
    ]);
    assert_eq!(
        got(&weir, &file(&store, "local-ca/root.pem"), "shop.test", "/"),
        "public\n"
    );
    let listed = certificates(&weir);
    assert!(
        listed["last_error"]
            .as_str()
            .is_some_and(|error| !error.is_empty()),
        "{listed}"
    );
    pebble.come();
    let root = pebble.root();
    wait_until("the certificate", || {
        got(&weir, &root, "shop.example", "/") == "public\n"
    });
    assert_eq!(certificates(&weir)["last_error"], Value::Null);
}

#[test]
fn an_account_and_a_certificate_outlive_a_restart() {
    let site = Site::new("[\"shop.example\"]", Habits::default());
    let toml = site.setup.toml();
    let (mut weir, pebble, store) = site.start();
    let root = pebble.root();
    wait_until("the certificate", || {
        got(&weir, &root, "shop.example", "/") == "public\n"
    });
    let kept = |below: &str| fs::read(file(&store, below)).expect(below);
    let accounts = || {
        let folder = fs::read_dir(file(&store, "accounts")).expect("accounts");
        let mut all: Vec<(PathBuf, Vec<u8>)> = folder
            .flatten()
            .map(|entry| (entry.path(), fs::read(entry.path()).expect("an account")))
            .collect();
        all.sort();
        all
    };
    let before = (kept("shop.example/chain.pem"), accounts());
    assert_eq!(before.1.len(), 1);
    let config = weir.folder().join("weir.toml");
    assert_eq!(fs::read_to_string(&config).expect("weir.toml"), toml);
    // A reload keeps both; a chain that is gone is ordered again, with the same account.
    weir.signal(rustix::process::Signal::HUP);
    weir.wait_for_error(&["reload"]);
    assert_eq!(got(&weir, &root, "shop.example", "/"), "public\n");
    assert_eq!((kept("shop.example/chain.pem"), accounts()), before);
    weir.stop();
}

#[test]
fn a_certificate_is_renewed_at_two_thirds_of_its_life_also_by_an_authority_that_forgot_the_account()
{
    let habits = Habits {
        // A slow machine needs seconds for an order.
        life: 45,
        ..Habits::default()
    };
    let (weir, mut pebble, store) = Site::new("[\"shop.example\"]", habits).start();
    let chain = file(&store, "shop.example/chain.pem");
    wait_until("the certificate", || chain.exists());
    pebble.go();
    let first = fs::read(&chain).expect("a chain");
    weir.wait_for_error(&["no certificate from the authority"]);
    pebble.come();
    let root = pebble.root();
    wait_until("another certificate", || {
        fs::read(&chain).expect("a chain") != first
    });
    wait_until("the new certificate in use", || {
        got(&weir, &root, "shop.example", "/") == "public\n"
    });
}

#[test]
fn the_process_for_certificates_has_a_user_of_its_own_and_no_key_of_a_server() {
    if !goes_on_as_root() {
        return;
    }
    let (weir, pebble, store) = Site::new("[\"shop.example\"]", Habits::default()).start();
    let root = pebble.root();
    wait_until("the certificate", || {
        got(&weir, &root, "shop.example", "/") == "public\n"
    });
    let processes = weir.processes();
    let acme = processes
        .iter()
        .find(|process| process.name.contains("acme"));
    let acme = acme.expect("the process").pid;
    let status = fs::read_to_string(format!("/proc/{acme}/status")).expect("a process");
    let uids = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .expect("users");
    let uids: Vec<&str> = uids.split_whitespace().skip(1).collect();
    assert!(
        uids.iter().all(|uid| *uid == uids[0] && *uid != "0"),
        "{uids:?}"
    );
    for other in [weir.gateway().pid, weir.keeper().pid, weir.pid()] {
        let status = fs::read_to_string(format!("/proc/{other}/status")).expect("a process");
        let own = status
            .lines()
            .find(|line| line.starts_with("Uid:"))
            .expect("users");
        assert_ne!(own.split_whitespace().nth(1), Some(uids[0]), "{other}");
    }
    let open = fs::read_dir(format!("/proc/{acme}/fd")).expect("descriptors");
    for descriptor in open.flatten() {
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        assert!(!target.starts_with(store.path()), "{target:?}");
    }
}

#[test]
fn a_certificate_is_renewed_when_the_authority_says_so() {
    let (weir, pebble, store) = Site::new("[\"shop.example\"]", Habits::default()).start();
    let chain = file(&store, "shop.example/chain.pem");
    wait_until("the certificate", || chain.exists());
    let first = fs::read(&chain).expect("a chain");
    pebble.advise(&chain, ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"));
    // A reload asks again.
    weir.signal(rustix::process::Signal::HUP);
    wait_until("another certificate", || {
        fs::read(&chain).expect("a chain") != first
    });
    let root = pebble.root();
    wait_until("the new certificate in use", || {
        got(&weir, &root, "shop.example", "/") == "public\n"
    });
}

#[test]
fn the_other_proof_is_tried_at_once_when_the_first_does_not_succeed() {
    let habits = Habits {
        misses_texts: true,
        ..Habits::default()
    };
    let (weir, pebble, _store) = Site::new("[\"shop.example\"]", habits).start();
    let root = pebble.root();
    weir.wait_for_error(&["no certificate from the authority", "tried again in 5 s"]);
    wait_until("the certificate", || {
        got(&weir, &root, "shop.example", "/") == "public\n"
    });
}
