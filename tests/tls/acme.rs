//! Certificates of a public authority, got by weir itself: with Pebble, from the order to the client.

use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};
use std::{fs, io, thread};

use serde_json::Value;
use tempfile::TempDir;
use weir_test::pebble::{Habits, Pebble};
use weir_test::weir::program;
use weir_test::{Setup, Weir, goes_on_as_root, php, wait_until};

/// A site with `tls = "auto"`, its authority, and its folder of certificates.
pub struct AcmeSite {
    pub setup: Setup,
    pub pebble: Pebble,
    pub store: TempDir,
    /// Where weir listens without TLS.
    plain: SocketAddr,
}

impl AcmeSite {
    /// With these `hosts`; `ADDRESS` stands for weir's own. The authority does not run yet.
    pub fn new(hosts: &str, habits: Habits) -> AcmeSite {
        AcmeSite::with_site(&format!("hosts = {hosts}\ntls = \"auto\""), habits)
    }

    /// With these lines for the site.
    pub fn with_site(lines: &str, habits: Habits) -> AcmeSite {
        let setup = Setup::new();
        let tls = setup.address();
        let port = 20_000 + tls.port() % 10_000;
        let plain = SocketAddr::new(tls.ip(), port);
        let ports = (plain.port(), tls.port());
        let pebble = Pebble::new(tls.ip(), ports, habits);
        let store = TempDir::with_prefix("weir-test-").expect("a temporary folder");
        let lines = lines.replace("ADDRESS", &tls.ip().to_string());
        let setup = setup
            .file("index.html", "public\n")
            .listen("tls = true")
            .site(&lines)
            .more(&format!("[listen.plain]\naddress = \"{plain}\""))
            .more(&format!(
                "[tls]\ncertificates = \"{}/certificates\"",
                store.path().display()
            ))
            .more(&pebble.toml());
        AcmeSite {
            setup,
            pebble,
            store,
            plain,
        }
    }

    pub fn with(mut self, change: impl FnOnce(Setup) -> Setup) -> AcmeSite {
        self.setup = change(self.setup);
        self
    }

    /// With its authority.
    pub fn start(mut self) -> (Weir, Pebble, TempDir) {
        self.pebble.come();
        self.start_alone()
    }

    pub fn start_alone(self) -> (Weir, Pebble, TempDir) {
        (self.setup.start(), self.pebble, self.store)
    }
}

/// What curl gets of a host over TLS; empty: nothing.
pub fn got(weir: &Weir, ca: &Path, host: &str, path: &str) -> String {
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

/// The same, whatever certificate weir has.
fn insecurely_got(weir: &Weir, host: &str) -> String {
    let at = weir.address();
    let output = Command::new("curl")
        .args(["-sS", "--fail", "--max-time", "60", "--insecure"])
        .args(["--resolve", &format!("{host}:{}:{}", at.port(), at.ip())])
        .arg(format!("https://{host}:{}/", at.port()))
        .output()
        .expect("curl");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// All certificates, as `weir certificates` shows them.
pub fn listed(weir: &Weir) -> Vec<Value> {
    let output = Command::new(program())
        .args(["certificates", "--json", "-c"])
        .arg(weir.folder().join("weir.toml"))
        .output()
        .expect("weir");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    said["certificates"].as_array().expect("a list").clone()
}

/// The first of them.
pub fn certificates(weir: &Weir) -> Value {
    listed(weir)[0].clone()
}

pub fn file(store: &TempDir, below: &str) -> PathBuf {
    store.path().join("certificates").join(below)
}

#[test]
fn a_site_gets_its_certificate_by_http_01_although_half_of_the_nonces_are_refused() {
    let habits = Habits {
        nonces: 50,
        ..Habits::default()
    };
    let site = AcmeSite::new("[\"shop.example\", \"www.shop.example\"]", habits).with(|setup| {
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
    let site = AcmeSite::new("[\"shop.example\"]", habits).with(|setup| {
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
    let site = AcmeSite::new("[\"shop.example\"]", Habits::default()).with(|setup| {
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
fn an_authority_that_is_away_is_seen_in_status_metrics_and_doctor() {
    let site = AcmeSite::new("[\"shop.example\"]", Habits::default()).with(Setup::admin);
    let (weir, mut pebble, _store) = site.start_alone();
    weir.wait_for_error(&["no certificate from the authority"]);
    let metric = |name: &str| {
        let (_, text) = weir.admin_get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().parse::<f64>().expect("a number"))
    };
    let failures = "weir_certificate_failures{certificate=\"shop.example\"}";
    let failed = "weir_certificate_orders_total{certificate=\"shop.example\",result=\"failed\"}";
    let done = "weir_certificate_orders_total{certificate=\"shop.example\",result=\"done\"}";
    let expiry = "weir_certificate_expiry_timestamp_seconds{certificate=\"shop.example\"}";
    let renewal = "weir_certificate_renewal_timestamp_seconds{certificate=\"shop.example\"}";
    wait_until("the failure in /metrics", || {
        metric(failures).is_some_and(|count| count >= 1.0)
    });
    assert!(metric(failed) >= metric(failures));
    assert_eq!((metric(done), metric(expiry)), (Some(0.0), None));
    let status = &weir.status()["certificates"][0];
    assert!(status["last_error"].is_string(), "{status}");
    assert!(status["next_order_in"].is_i64(), "{status}");
    let said = weir.command(&["status"]).output().expect("weir status");
    let said = String::from_utf8(said.stdout).expect("UTF-8");
    assert!(
        said.contains("! certificate shop.example: there is no certificate"),
        "{said}"
    );
    let doctor = Command::new(program())
        .args(["doctor", "-c"])
        .arg(weir.folder().join("weir.toml"))
        .output()
        .expect("weir doctor");
    let doctor = String::from_utf8(doctor.stdout).expect("UTF-8");
    assert!(doctor.contains("the last order failed"), "{doctor}");
    pebble.come();
    wait_until("the certificate in /metrics", || metric(expiry).is_some());
    assert!(metric(renewal) < metric(expiry));
    wait_until("no failures", || metric(failures) == Some(0.0));
    assert_eq!(metric(done), Some(1.0));
    weir.expect_sound_metrics(&weir.admin_get("/metrics").1);
}

/// Passes connections on to weir, or takes them and says nothing.
pub struct Gate {
    pub address: SocketAddr,
    pub is_shut: Arc<AtomicBool>,
    /// Connections that it has taken.
    pub taken: Arc<AtomicUsize>,
}

impl Gate {
    fn before(to: SocketAddr) -> Gate {
        Gate::new(to.ip(), move || vec![to])
    }

    /// Shuts it, and has the certificate renewed. Returns the chain when the authority is in the middle of the order: it waits for a
    /// text.
    pub fn stop_an_order<'w>(
        &self,
        pebble: &Pebble,
        chain: &Path,
        weirs: impl IntoIterator<Item = &'w Weir> + Clone,
    ) -> Vec<u8> {
        self.is_shut.store(true, Relaxed);
        let before = self.taken.load(Relaxed);
        loop {
            let first = fs::read(chain).expect("a chain");
            pebble.advise(chain, ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"));
            for weir in weirs.clone() {
                weir.signal(rustix::process::Signal::HUP);
            }
            // Pebble signs one of a hundred orders without a new proof, even if it is configured differently.
            let is_tried = || self.taken.load(Relaxed) > before;
            wait_until("the next order", || {
                is_tried() || fs::read(chain).expect("a chain") != first
            });
            if is_tried() {
                return first;
            }
        }
    }

    /// One that leads to the first of these addresses that can be reached.
    pub fn new(ip: IpAddr, route: impl Fn() -> Vec<SocketAddr> + Send + 'static) -> Gate {
        let listener = TcpListener::bind((ip, 0)).expect("a listener");
        let gate = Gate {
            address: listener.local_addr().expect("an address"),
            is_shut: Arc::default(),
            taken: Arc::default(),
        };
        let (is_shut, taken) = (gate.is_shut.clone(), gate.taken.clone());
        thread::spawn(move || {
            let mut held = Vec::new();
            for client in listener.incoming().flatten() {
                taken.fetch_add(1, Relaxed);
                if is_shut.load(Relaxed) {
                    held.push(client);
                    continue;
                }
                let mut servers = route().into_iter().map(TcpStream::connect);
                let Some(server) = servers.find_map(Result::ok) else {
                    continue;
                };
                for (mut from, mut to) in [(&client, &server), (&server, &client)]
                    .map(|(from, to)| [from, to].map(|end| end.try_clone().expect("a socket")))
                    .map(|[from, to]| (from, to))
                {
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        gate
    }
}

#[test]
fn an_authority_that_dies_in_the_middle_of_an_order_changes_nothing_for_visitors() {
    let site = AcmeSite::new("[\"shop.example\"]", Habits::default())
        .with(|setup| setup.more("challenge = \"http-01\""));
    let gate = Gate::before(site.plain);
    site.pebble.try_texts_at(gate.address.port());
    let (weir, mut pebble, store) = site.start();
    let chain = file(&store, "shop.example/chain.pem");
    wait_until("the certificate", || chain.exists());
    let first = gate.stop_an_order(&pebble, &chain, [&weir]);
    pebble.go();
    weir.wait_for_error(&["no certificate from the authority", "tried again"]);
    assert_eq!(fs::read(&chain).expect("a chain"), first);
    assert_eq!(insecurely_got(&weir, "shop.example"), "public\n");
    gate.is_shut.store(false, Relaxed);
    pebble.come();
    let root = pebble.root();
    wait_until("another certificate in use", || {
        got(&weir, &root, "shop.example", "/") == "public\n"
    });
    assert_ne!(fs::read(&chain).expect("a chain"), first);
}

#[test]
fn a_renewal_names_the_certificate_that_it_replaces() {
    let (weir, pebble, store) = AcmeSite::new("[\"shop.example\"]", Habits::default()).start();
    let chain = file(&store, "shop.example/chain.pem");
    wait_until("the certificate", || chain.exists());
    pebble.advise(&chain, ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"));
    weir.signal(rustix::process::Signal::HUP);
    wait_until("the order that replaces it", || {
        pebble.log().contains("is a replacement of")
    });
}

#[test]
fn an_account_and_a_certificate_outlive_a_restart() {
    let site = AcmeSite::new("[\"shop.example\"]", Habits::default());
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
    let (weir, mut pebble, store) = AcmeSite::new("[\"shop.example\"]", habits).start();
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
    let (weir, pebble, store) = AcmeSite::new("[\"shop.example\"]", Habits::default()).start();
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
    let (weir, pebble, store) = AcmeSite::new("[\"shop.example\"]", Habits::default()).start();
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
    let (weir, pebble, _store) = AcmeSite::new("[\"shop.example\"]", habits).start();
    let root = pebble.root();
    weir.wait_for_error(&["no certificate from the authority", "tried again in 5 s"]);
    wait_until("the certificate", || {
        got(&weir, &root, "shop.example", "/") == "public\n"
    });
}

#[test]
fn an_address_and_a_name_without_a_dot_get_certificates_of_an_own_authority() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let site = AcmeSite::new("[\"ADDRESS\", \"intranet\"]", Habits::default());
        let (weir, pebble, _store) = site
            .with(|setup| setup.more(&format!("challenge = \"{challenge}\"\nlocal_names = true")))
            .start();
        let root = pebble.root();
        for host in [&*weir.address().ip().to_string(), "intranet"] {
            wait_until("the certificate", || {
                got(&weir, &root, host, "/") == "public\n"
            });
        }
    }
}

#[test]
fn the_account_gets_a_new_key_and_orders_go_on_with_it() {
    let (weir, pebble, store) = AcmeSite::new("[\"shop.example\"]", Habits::default()).start();
    let chain = file(&store, "shop.example/chain.pem");
    wait_until("the certificate", || chain.exists());
    let folder = fs::read_dir(file(&store, "accounts")).expect("accounts");
    let account = folder.flatten().next().expect("an account").path();
    let kept = || -> Value {
        let text = fs::read_to_string(&account).expect("an account");
        serde_json::from_str(&text).expect("JSON")
    };
    let before = kept();
    let output = Command::new(program())
        .args(["certificates", "--new-account-key", "-c"])
        .arg(weir.folder().join("weir.toml"))
        .output()
        .expect("weir");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"the account has a new key\n");
    assert_eq!(kept()["id"], before["id"]);
    assert_ne!(kept()["key_pkcs8"], before["key_pkcs8"]);
    // The new key is the right one for the next order.
    let first = fs::read(&chain).expect("a chain");
    pebble.advise(&chain, ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"));
    weir.signal(rustix::process::Signal::HUP);
    wait_until("another certificate", || {
        fs::read(&chain).expect("a chain") != first
    });
    assert_eq!(kept()["id"], before["id"]);
    assert!(!pebble.log().contains("There are now 2 accounts"));
}
