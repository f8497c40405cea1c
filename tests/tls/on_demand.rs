//! Certificates on demand: for names that the configuration does not have, after an application said yes; with Pebble.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;
use weir_test::http3::Http3Client;
use weir_test::pebble::{Habits, Pebble};
use weir_test::{Setup, Weir, free_address, php, wait_until, wait_within};

use crate::acme::{self, AcmeSite, file, got};

/// An application that is asked about names.
#[derive(Clone)]
struct Application {
    address: SocketAddr,
    /// The names that it was asked about, in order.
    asked: Arc<Mutex<Vec<String>>>,
    /// It says yes to names that end so.
    allows: Arc<Mutex<&'static str>>,
    /// It does not answer.
    is_silent: Arc<AtomicBool>,
    /// The status of its other answers.
    refusal: Arc<AtomicUsize>,
}

impl Application {
    fn start() -> Application {
        let listener = TcpListener::bind(free_address()).expect("a listener");
        let application = Application {
            address: listener.local_addr().expect("an address"),
            asked: Arc::default(),
            allows: Arc::new(Mutex::new(".customer.example")),
            is_silent: Arc::default(),
            refusal: Arc::new(AtomicUsize::new(403)),
        };
        let other = application.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let other = other.clone();
                thread::spawn(move || other.answer(client));
            }
        });
        application
    }

    fn answer(&self, mut client: TcpStream) {
        let mut line = String::new();
        let read = BufReader::new(&client).read_line(&mut line);
        let target = line.split(' ').nth(1).unwrap_or_default();
        let Some(name) = target.strip_prefix("/may?domain=").filter(|_| read.is_ok()) else {
            return;
        };
        self.asked.lock().expect("a lock").push(name.to_owned());
        while self.is_silent.load(Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        let is_allowed = name.ends_with(*self.allows.lock().expect("a lock"));
        let status = match is_allowed {
            true => 200,
            false => self.refusal.load(Relaxed),
        };
        let answer = match name.split('.').next() {
            Some("nothing") => String::new(),
            Some("garbage") => "\0\u{1}garbage\r\n\r\n".repeat(100),
            Some("endless") => {
                // A head without an end, until the other side closes the connection.
                let _ = client.write_all(b"HTTP/1.1 200 x\r\n");
                while client.write_all(&[b'x'; 4096]).is_ok() {}
                return;
            }
            _ => {
                format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            }
        };
        let _ = client.write_all(answer.as_bytes());
    }

    fn asked(&self, name: &str) -> usize {
        let asked = self.asked.lock().expect("a lock");
        asked.iter().filter(|one| *one == name).count()
    }

    /// The lines of `[tls.acme]`.
    fn lines(&self) -> String {
        format!("ask = \"http://{}/may?domain=\"", self.address)
    }
}

/// A site that gets certificates on demand, and what it asks. `lines` are more of `[tls.acme]`.
fn site(lines: &str, habits: Habits) -> (AcmeSite, Application) {
    let application = Application::start();
    let more = format!("{}\n{lines}", application.lines());
    let site = AcmeSite::with_site("tls = \"auto\"", habits);
    (site.with(|setup| setup.more(&more).admin()), application)
}

/// What openssl says of a handshake with this name, and how long it took.
fn handshake(weir: &Weir, name: &str) -> (String, Duration) {
    let begin = Instant::now();
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &weir.address().to_string()])
        .args(["-servername", name])
        .stdin(Stdio::null())
        .output()
        .expect("openssl");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (said, begin.elapsed())
}

fn is_unrecognized(weir: &Weir, name: &str) -> bool {
    let (said, _) = handshake(weir, name);
    let is_alert = said.contains("unrecognized name");
    assert!(is_alert || said.contains("BEGIN CERTIFICATE"), "{said}");
    is_alert
}

fn metric(weir: &Weir, name: &str) -> Option<f64> {
    let (_, text) = weir.admin_get("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map(|value| value.trim().parse().expect("a number"))
}

fn orders(pebble: &Pebble) -> usize {
    pebble.log().matches("Added order").count()
}

/// The certificate of a name in the folder, as `weir certificates` shows it.
fn listed(weir: &Weir, name: &str) -> Value {
    let mut all = acme::listed(weir).into_iter();
    all.find(|one| one["name"] == name).unwrap_or_default()
}

#[test]
fn http3_refuses_a_name_without_a_certificate_and_asks_for_none() {
    let (site, application) = site("", Habits::default());
    let site = site.with(|setup| setup.listen("http3 = true"));
    let (weir, pebble, _store) = site.start();
    let root = pebble.root();
    let client = Http3Client::trusting(&root);
    let name = "a.customer.example";
    let refused = client.connect(weir.address(), name).err();
    let refused = refused.expect("no certificate");
    assert!(refused.contains("error 112"), "{refused}");
    assert_eq!(application.asked(name), 0);
    // The handshake over TCP waits for the certificate, which then is there for both.
    assert_eq!(got(&weir, &root, name, "/"), "public\n");
    let mut http3 = client.connect(weir.address(), name).expect("a connection");
    assert_eq!(http3.get(name, "/").text(), "public\n");
}

#[test]
fn a_name_gets_its_certificate_at_the_first_handshake_if_the_application_says_yes() {
    let (site, application) = site("", Habits::default());
    let (weir, pebble, store) = site.start();
    let root = pebble.root();
    // The first client waits for it.
    assert_eq!(got(&weir, &root, "a.customer.example", "/"), "public\n");
    assert_eq!(got(&weir, &root, "a.customer.example", "/"), "public\n");
    assert_eq!(application.asked("a.customer.example"), 1);
    // A no is kept.
    for _ in 0..3 {
        assert!(is_unrecognized(&weir, "evil.example"));
    }
    assert_eq!(application.asked("evil.example"), 1);
    weir.wait_for_error(&["no certificate on demand for evil.example", "status 403"]);
    // Names that no public authority signs are not asked about.
    for name in [
        "shop.test",
        "localhost",
        "intranet",
        "x_y.customer.example",
        "1.2.3.4",
    ] {
        assert!(is_unrecognized(&weir, name), "{name}");
        assert_eq!(application.asked(name), 0, "{name}");
    }
    assert_eq!(orders(&pebble), 1);
    // The folder has no files of a refused name.
    let kept = fs::read_dir(file(&store, "on-demand")).expect("a folder");
    let kept: Vec<_> = kept.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(kept, ["a.customer.example"]);
    let listed = listed(&weir, "a.customer.example");
    assert_eq!(
        (&listed["on_demand"], &listed["last_error"]),
        (&true.into(), &Value::Null)
    );
    let status = &weir.status()["on_demand"];
    let counts = [
        "certificates",
        "allowed",
        "refused",
        "pending",
        "orders_done",
    ];
    assert_eq!(
        counts.map(|key| status[key].as_u64()),
        [1, 1, 1, 0, 1].map(Some),
        "{status}"
    );
    assert_eq!(metric(&weir, "weir_on_demand_certificates "), Some(1.0));
    assert_eq!(
        metric(&weir, "weir_on_demand_names_total{result=\"refused\"}"),
        Some(1.0)
    );
    weir.expect_sound_metrics(&weir.admin_get("/metrics").1);
    let said = weir.command(&["status"]).output().expect("weir status");
    let said = String::from_utf8(said.stdout).expect("UTF-8");
    assert!(said.contains("on demand"), "{said}");
}

#[test]
fn certificates_on_demand_outlive_reloads_and_restarts_without_another_question() {
    let (site, application) = site("", Habits::default());
    let setup = site.setup.clone();
    let (mut weir, pebble, _store) = site.start();
    let (root, name) = (pebble.root(), "a.customer.example");
    assert_eq!(got(&weir, &root, name, "/"), "public\n");
    let output = weir.command(&["reload"]).output().expect("weir reload");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(got(&weir, &root, name, "/"), "public\n");
    assert_eq!(got(&weir, &root, "b.customer.example", "/"), "public\n");
    weir.stop();
    drop(weir);
    let weir = setup.start();
    for name in [name, "b.customer.example"] {
        assert_eq!(got(&weir, &root, name, "/"), "public\n");
        assert_eq!(application.asked(name), 1);
    }
    assert_eq!(orders(&pebble), 2);
}

#[test]
fn an_application_that_is_away_or_slow_means_no_and_is_asked_again_later() {
    let (site, application) = site("ask_timeout = \"1s\"", Habits::default());
    let (weir, pebble, _store) = site.start();
    let (root, name) = (pebble.root(), "a.customer.example");
    application.is_silent.store(true, Relaxed);
    let (said, took) = handshake(&weir, name);
    assert!(said.contains("unrecognized name"), "{said}");
    assert!(took >= Duration::from_secs(1), "{took:?}");
    weir.wait_for_error(&["the application does not answer", "within 1s (ask_timeout)"]);
    // The same refusal comes at once, without another question.
    assert!(is_unrecognized(&weir, name));
    assert_eq!(application.asked(name), 1);
    application.is_silent.store(false, Relaxed);
    application.refusal.store(500, Relaxed);
    *application.allows.lock().expect("a lock") = "nobody";
    wait_until("the next question", || {
        is_unrecognized(&weir, name) && application.asked(name) == 2
    });
    *application.allows.lock().expect("a lock") = name;
    wait_until("the certificate", || {
        got(&weir, &root, name, "/") == "public\n"
    });
    assert_eq!(
        metric(&weir, "weir_on_demand_names_total{result=\"unanswered\"}"),
        Some(2.0)
    );
    assert_eq!(orders(&pebble), 1);
}

#[test]
fn new_names_are_asked_about_and_ordered_at_a_limited_rate() {
    let (site, application) = site(
        "ask_rate = \"1/h burst 3\"\nask_order_rate = \"1/h burst 0\"",
        Habits::default(),
    );
    let (weir, pebble, _store) = site.start();
    let root = pebble.root();
    assert_eq!(got(&weir, &root, "a.customer.example", "/"), "public\n");
    // Allowed, but not ordered.
    assert!(is_unrecognized(&weir, "b.customer.example"));
    weir.wait_for_error(&[
        "b.customer.example",
        "more new names than `ask_order_rate` allows",
    ]);
    for name in ["c.example", "d.example", "e.example", "f.example"] {
        assert!(is_unrecognized(&weir, name));
    }
    assert_eq!(application.asked.lock().expect("a lock").len(), 4);
    assert_eq!(orders(&pebble), 1);
    assert_eq!(got(&weir, &root, "a.customer.example", "/"), "public\n");
}

/// Opens a handshake with this name, and leaves it.
fn hello(address: SocketAddr, name: &str) -> TcpStream {
    let hello = client_hello(name);
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(&hello).expect("a ClientHello");
    stream
}

/// A ClientHello (RFC 8446 §4.1.2) with little more than the name.
fn client_hello(name: &str) -> Vec<u8> {
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
    let extension =
        |number: u16, bytes: &[u8]| [&number.to_be_bytes(), &with_length(bytes)[..]].concat();
    let host = [&[0][..], &with_length(name.as_bytes())].concat();
    let extensions = [
        extension(0, &with_length(&host)),
        extension(10, &with_length(&[0, 0x17])),
        extension(13, &with_length(&[4, 3, 8, 4])),
        extension(43, &[2, 3, 4]),
        extension(51, &with_length(&[])),
    ];
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &with_length(&[0x13, 1]),
        &[1, 0],
        &with_length(&extensions.concat()),
    ]
    .concat();
    let length = (body.len() as u32).to_be_bytes();
    let message = [&[1][..], &length[1..], &body].concat();
    [&[22, 3, 1][..], &with_length(&message)].concat()
}

#[test]
fn a_thousand_invented_names_grow_nothing_and_do_not_hold_up_others() {
    let (site, application) = site("ask_rate = \"10/s burst 50\"", Habits::default());
    let (weir, pebble, store) = site.start();
    let (root, name) = (pebble.root(), "a.customer.example");
    assert_eq!(got(&weir, &root, name, "/"), "public\n");
    application.is_silent.store(true, Relaxed);
    let begin = Instant::now();
    let handshakes: Vec<TcpStream> = (0..1000)
        .map(|number| hello(weir.address(), &format!("{number}.invented.example")))
        .collect();
    // Names that have a certificate are served meanwhile.
    assert_eq!(got(&weir, &root, name, "/"), "public\n");
    let limit = 50 + 10 * begin.elapsed().as_secs() as usize + 12;
    let asked = application.asked.lock().expect("a lock").len();
    assert!(asked <= limit, "{asked} questions, {limit} at most");
    let status = weir.status()["on_demand"].clone();
    assert!(status["pending"].as_u64() <= Some(100), "{status}");
    drop(handshakes);
    wait_until("nothing is pending", || {
        weir.status()["on_demand"]["pending"] == 0
    });
    assert_eq!(orders(&pebble), 1);
    let kept = fs::read_dir(file(&store, "on-demand")).expect("a folder");
    assert_eq!(kept.count(), 1);
}

#[test]
fn fifty_clients_at_once_make_one_question_and_one_order() {
    let (site, application) = site("", Habits::default());
    let (weir, pebble, _store) = site.start();
    let (root, name) = (pebble.root(), "a.customer.example");
    thread::scope(|scope| {
        let clients: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| got(&weir, &root, name, "/")))
            .collect();
        for client in clients {
            assert_eq!(client.join().expect("a client"), "public\n");
        }
    });
    assert_eq!((application.asked(name), orders(&pebble)), (1, 1));
}

#[test]
fn an_application_that_sends_something_else_means_no() {
    let (site, application) = site("ask_timeout = \"3s\"", Habits::default());
    let (weir, pebble, _store) = site.start();
    for kind in ["nothing", "garbage", "endless"] {
        let name = format!("{kind}.customer.example");
        assert!(is_unrecognized(&weir, &name), "{kind}");
        assert_eq!(application.asked(&name), 1, "{kind}");
    }
    assert_eq!(
        metric(&weir, "weir_on_demand_names_total{result=\"unanswered\"}"),
        Some(3.0)
    );
    assert_eq!(orders(&pebble), 0);
    let root = pebble.root();
    assert_eq!(got(&weir, &root, "a.customer.example", "/"), "public\n");
}

#[test]
fn a_handshake_that_waits_outlives_a_reload_and_the_process_that_asks() {
    let (site, application) = site(
        "ask_timeout = \"50s\"\nask_wait = \"55s\"",
        Habits::default(),
    );
    let (weir, pebble, _store) = site.start();
    let (root, name) = (pebble.root(), "a.customer.example");
    application.is_silent.store(true, Relaxed);
    thread::scope(|scope| {
        let client = scope.spawn(|| got(&weir, &root, name, "/"));
        wait_until("the question", || application.asked(name) == 1);
        let output = weir.command(&["reload"]).output().expect("weir reload");
        assert!(output.status.success(), "{output:?}");
        let processes = weir.processes();
        let acme = processes
            .iter()
            .find(|process| process.name.contains("acme"));
        let acme = acme.expect("the process for certificates").pid;
        weir_test::process::signal(acme, rustix::process::Signal::KILL);
        wait_until("the question, again", || application.asked(name) == 2);
        application.is_silent.store(false, Relaxed);
        assert_eq!(client.join().expect("a client"), "public\n");
    });
    assert_eq!(orders(&pebble), 1);
    assert_eq!(got(&weir, &root, name, "/"), "public\n");
}

#[test]
fn a_gateway_that_has_the_keys_itself_gets_certificates_on_demand_too() {
    let application = Application::start();
    let store = tempfile::TempDir::with_prefix("weir-test-").expect("a temporary folder");
    let folder = store.path().join("certificates");
    let plain = free_address();
    let mut pebble = Pebble::new(plain.ip(), (plain.port(), 1), Habits::default());
    pebble.come();
    let lines = format!("challenge = \"http-01\"\n{}", application.lines());
    let setup = node(&folder, &pebble, plain, &lines);
    let text = setup.toml();
    let text = text.replace("[tls]\n", "[tls]\nkey_isolation = false\n");
    let mut weir = setup.start_toml(&text);
    let (root, name) = (pebble.root(), "a.customer.example");
    assert_eq!(got(&weir, &root, name, "/"), "public\n");
    // Also after a restart.
    weir.stop();
    drop(weir);
    let weir = setup.start_toml(&text);
    assert_eq!(got(&weir, &root, name, "/"), "public\n");
    assert_eq!((application.asked(name), orders(&pebble)), (1, 1));
}

#[test]
fn handshakes_wait_a_limited_time_and_the_order_goes_on() {
    let (site, application) = site("ask_wait = \"2s\"\nask_timeout = \"8s\"", Habits::default());
    let (weir, _pebble, _store) = site.start();
    application.is_silent.store(true, Relaxed);
    let (said, took) = handshake(&weir, "a.customer.example");
    assert!(said.contains("unrecognized name"), "{said}");
    assert!((2..8).contains(&took.as_secs()), "{took:?}");
    // A client that leaves gives its place back.
    assert_eq!(weir.status()["on_demand"]["pending"], 1);
    wait_until("the end of the question", || {
        weir.status()["on_demand"]["pending"] == 0
    });
}

#[test]
fn an_order_that_the_authority_refuses_ends_the_handshake_and_is_not_repeated_soon() {
    let (site, application) = site(
        "challenge = \"http-01\"",
        Habits {
            misses_texts: true,
            ..Habits::default()
        },
    );
    let (weir, pebble, _store) = site.start();
    let name = "a.customer.example";
    assert!(is_unrecognized(&weir, name));
    weir.wait_for_error(&[
        "certificate.a.customer.example",
        "no certificate from the authority",
    ]);
    assert!(is_unrecognized(&weir, name));
    assert_eq!((application.asked(name), orders(&pebble)), (1, 1));
    assert_eq!(
        metric(&weir, "weir_on_demand_orders_total{result=\"failed\"}"),
        Some(1.0)
    );
}

#[test]
fn the_script_of_the_documentation_says_which_names_are_customers_domains() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/https.md");
    let docs = fs::read_to_string(docs).expect("docs/https.md");
    let (_, rest) = docs.split_once("```php\n").expect("an example");
    let (script, _) = rest.split_once("```").expect("its end");
    let own = free_address();
    let site = AcmeSite::with_site(
        "tls = \"auto\"\nlisten = [\"web\", \"plain\"]",
        Habits::default(),
    );
    let site = site.with(|setup| {
        let folder = setup.path("own");
        fs::create_dir(&folder).expect("a folder");
        fs::write(folder.join("may.php"), script).expect("a script");
        fs::write(
            setup.path("domains.txt"),
            "one.example\na.customer.example\n",
        )
        .expect("a file");
        let root = folder.display();
        setup
            .pool(&format!(
                "runtime = \"php\"\nmax_children = 2\n{}",
                php::identity()
            ))
            .more(&format!("ask = \"http://{own}/may.php?domain=\""))
            .more(&format!("[listen.own]\naddress = \"{own}\""))
            .more(&format!(
                "[site.own]\nroot = \"{root}\"\npool = \"app\"\nlisten = [\"own\"]"
            ))
    });
    let (weir, pebble, _store) = site.start();
    let root = pebble.root();
    assert_eq!(got(&weir, &root, "a.customer.example", "/"), "public\n");
    assert!(is_unrecognized(&weir, "b.customer.example"));
    weir.wait_for_error(&["b.customer.example", "status 403"]);
}

/// A node that shares the folder of certificates with others.
fn node(folder: &Path, pebble: &Pebble, plain: SocketAddr, lines: &str) -> Setup {
    Setup::new()
        .file("index.html", "public\n")
        .listen("tls = true")
        .site("tls = \"auto\"")
        .admin()
        .more(&format!("[listen.plain]\naddress = \"{plain}\""))
        .more(&format!("[tls]\ncertificates = \"{}\"", folder.display()))
        .more(&pebble.toml())
        .more(lines)
}

#[test]
fn two_nodes_make_one_order_for_a_name() {
    let application = Application::start();
    let store = tempfile::TempDir::with_prefix("weir-test-").expect("a temporary folder");
    let folder = store.path().join("certificates");
    let plain = [free_address(), free_address()];
    let mut pebble = Pebble::new(plain[0].ip(), (plain[0].port(), 1), Habits::default());
    pebble.come();
    let lines = format!("challenge = \"http-01\"\n{}", application.lines());
    let weirs = plain.map(|plain| node(&folder, &pebble, plain, &lines).start());
    let (root, name) = (pebble.root(), "a.customer.example");
    thread::scope(|scope| {
        let clients = weirs
            .each_ref()
            .map(|weir| scope.spawn(|| got(weir, &root, name, "/")));
        for client in clients {
            assert_eq!(client.join().expect("a client"), "public\n");
        }
    });
    assert_eq!(orders(&pebble), 1);
    // A certificate that the other node has got is used without a new order.
    let before = application.asked("b.customer.example");
    assert_eq!(got(&weirs[0], &root, "b.customer.example", "/"), "public\n");
    assert_eq!(got(&weirs[1], &root, "b.customer.example", "/"), "public\n");
    assert_eq!(application.asked("b.customer.example"), before + 1);
    assert_eq!(orders(&pebble), 2);
}

#[test]
fn a_renewal_asks_again_and_a_no_lets_the_certificate_end() {
    let habits = Habits {
        life: 45,
        ..Habits::default()
    };
    let (site, application) = site("ask_keep = \"1s\"", habits);
    let (weir, pebble, store) = site.start();
    let (root, name) = (pebble.root(), "a.customer.example");
    assert_eq!(got(&weir, &root, name, "/"), "public\n");
    let chain = file(&store, &format!("on-demand/{name}/chain.pem"));
    let first = fs::read(&chain).expect("a chain");
    // Renewed, with a yes.
    wait_within(Duration::from_secs(120), "another certificate", || {
        fs::read(&chain).expect("a chain") != first
    });
    assert!(application.asked(name) >= 2);
    wait_until("the new certificate in use", || {
        got(&weir, &root, name, "/") == "public\n"
    });
    *application.allows.lock().expect("a lock") = "nobody";
    weir.wait_for_error(&[
        "[certificate.a.customer.example] is not renewed",
        "status 403",
    ]);
    let status = weir.status();
    let told = status["certificates"].as_array().expect("a list");
    let told = told
        .iter()
        .find(|one| one["name"] == name)
        .expect("its entry");
    assert!(
        told["last_error"]
            .as_str()
            .is_some_and(|error| error.contains("refuses")),
        "{told}"
    );
    wait_within(Duration::from_secs(120), "its end", || {
        !chain.exists() && is_unrecognized(&weir, name)
    });
    assert_eq!(weir.status()["on_demand"]["lapsed"], 1);
    let names: HashSet<String> = application
        .asked
        .lock()
        .expect("a lock")
        .iter()
        .cloned()
        .collect();
    assert_eq!(names.len(), 1);
}
