//! The process that has the private keys, and that no other has them.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weir_test::authority::{Authority, many, self_signed_rsa};
use weir_test::http3::Http3Client;
use weir_test::process::{Process, signal};
use weir_test::{Setup, Weir, goes_on_as_root, wait_until};

use crate::tickets::resumes;
use crate::{Tls, curl, install, said};

/// A service manager would find a process that weir has left behind.
#[test]
fn the_keeper_has_ended_when_weir_has_stopped() {
    for _ in 0..4 {
        let (mut weir, _) = Tls::new().start();
        let keeper = weir.keeper();
        weir.stop();
        assert!(!keeper.runs());
    }
}

#[test]
fn a_keeper_that_dies_is_started_again_and_open_connections_go_on() {
    let (weir, authority) = Tls::new().start();
    assert_eq!(curl(&weir, &authority, "main.test", "/", &[]).status, 200);
    for _ in 0..2 {
        let keeper = weir.keeper();
        signal(keeper.pid, Signal::KILL);
        wait_until("another keeper", || weir.keeper().pid != keeper.pid);
        weir.wait_for_error(&["the keeper of private keys died: SIGKILL"]);
        wait_until("keys in the new keeper", || {
            curl(&weir, &authority, "main.test", "/", &[]).status == 200
        });
    }
}

#[test]
fn a_keeper_that_does_not_answer_is_replaced() {
    let (weir, authority) = Tls::new().start();
    assert_eq!(curl(&weir, &authority, "main.test", "/", &[]).status, 200);
    let keeper = weir.keeper();
    let mut failed = false;
    wait_until("a keeper that is not young", || {
        if failed && !keeper.runs() {
            return true;
        }
        curl(&weir, &authority, "main.test", "/", &[]);
        // The keeper is stopped only now and then, so that handshakes go on until it is old enough to be replaced.
        signal(keeper.pid, Signal::STOP);
        failed |= curl(&weir, &authority, "main.test", "/", &[]).status != 200;
        signal(keeper.pid, Signal::CONT);
        false
    });
    wait_until("keys in the new keeper", || {
        curl(&weir, &authority, "main.test", "/", &[]).status == 200
    });
    weir.wait_for_error(&["does not answer: killed"]);
}

/// Starts curl, which asks for a page of `main.test`.
fn start(weir: &Weir, authority: &Authority, words: &[&str]) -> Child {
    let address = weir.address();
    let resolve = format!("main.test:{}:{}", address.port(), address.ip());
    let mut command = Command::new("curl");
    command.args(["-sf", "--max-time", "60", "--resolve", &resolve, "--cacert"]);
    command.arg(authority.file()).args(words);
    command.arg(format!("https://main.test:{}/", address.port()));
    command.stdout(Stdio::null()).spawn().expect("curl")
}

/// All its connections are served by one thread, and the keeper stands still for half a second: handshakes wait for it, those with
/// a second ClientHello, too, and nothing else does.
#[test]
fn other_connections_go_on_and_no_handshake_fails_while_the_keeper_stands_still() {
    let plain = weir_test::free_address();
    let listen = format!("[listen.plain]\naddress = \"{plain}\"");
    let redirect = "[site.plain]\nhosts = [\"plain.test\"]\n";
    let tls = Tls::new().with(|setup| {
        let root = format!("{redirect}root = \"{}\"", setup.root().display());
        setup.server("threads = 1").more(&listen).more(&root)
    });
    let (weir, authority) = tls.start();
    let start = |words: &[&str]| start(&weir, &authority, words);
    let again = ["--curves", "P-521:P-256"];
    for words in [&[][..], &again] {
        assert!(start(words).wait().expect("curl").success());
    }
    let mut client = weir_test::Client::connect(plain);
    let keeper = weir.keeper();
    signal(keeper.pid, Signal::STOP);
    let waiting = [&[][..], &again, &["--tls-max", "1.2"]].map(start);
    let (begin, mut longest) = (Instant::now(), Duration::ZERO);
    while begin.elapsed() < Duration::from_millis(500) {
        let asked = Instant::now();
        client.send("GET /index.html HTTP/1.1\r\nHost: plain.test\r\n\r\n");
        assert_eq!(client.response().expect(200).text(), "main\n");
        longest = longest.max(asked.elapsed());
    }
    signal(keeper.pid, Signal::CONT);
    for mut one in waiting {
        assert!(one.wait().expect("curl").success());
    }
    assert!(longest < Duration::from_millis(400), "{longest:?}");
    assert!(keeper.runs());
}

/// One thread is for signatures, and it waits for a keeper that stands still. Whoever comes again needs none.
#[test]
fn clients_that_come_again_do_not_wait_for_the_keeper() {
    let tls = Tls::new().with(|setup| setup.server("threads = 1").admin());
    let (weir, authority) = tls.start();
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(!resumes(&weir, true, version));
    }
    let keeper = weir.keeper();
    signal(keeper.pid, Signal::STOP);
    let mut waiting = [&[][..], &["--tls-max", "1.2"]].map(|words| start(&weir, &authority, words));
    wait_until("both wait", || {
        weir.status()["connections"]["now"].as_u64() >= Some(2)
    });
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(resumes(&weir, false, version), "{version}");
    }
    let are_waiting = waiting
        .each_mut()
        .map(|one| one.try_wait().expect("curl").is_none());
    signal(keeper.pid, Signal::CONT);
    assert_eq!(are_waiting, [true, true]);
    for mut one in waiting {
        assert!(one.wait().expect("curl").success());
    }
}

/// All connections are served by one thread, where handshakes over QUIC have to wait for the keeper.
#[test]
fn a_keeper_that_stands_still_costs_a_reactor_one_short_wait_for_all_handshakes_over_quic() {
    let plain = weir_test::free_address();
    let tls = Tls::new().with(|setup| {
        let root = setup.root();
        setup
            .server("threads = 1")
            .listen("http3 = true")
            .more(&format!("[listen.plain]\naddress = \"{plain}\""))
            .more(&format!(
                "[site.plain]\nhosts = [\"plain.test\"]\nroot = \"{}\"",
                root.display()
            ))
    });
    let (weir, authority) = tls.start();
    let (address, quic) = (weir.address(), Http3Client::new(&authority));
    drop(quic.connect(address, "main.test").expect("HTTP/3"));
    let mut client = weir_test::Client::connect(plain);
    let stopped = Stopped::new(weir.keeper().pid);
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| {
        // A handshake over TCP uses the same channel, and may wait.
        let tcp = scope.spawn(|| said(address, "main.test", &[]).contains("HTTP/1.1"));
        let quic: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| quic.connect(address, "main.test").is_ok()))
            .collect();
        // The TCP handshake's time limit is longer.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(500) {
            let asked = Instant::now();
            client.send("GET /index.html HTTP/1.1\r\nHost: plain.test\r\n\r\n");
            assert_eq!(client.response().expect(200).text(), "main\n");
            longest = longest.max(asked.elapsed());
        }
        drop(stopped);
        let ended: Vec<bool> = quic.into_iter().map(|one| one.join().unwrap()).collect();
        println!("over QUIC: {ended:?}");
        assert!(
            tcp.join().unwrap(),
            "a handshake over TCP waits for the keeper"
        );
    });
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    wait_until("HTTP/3 again", || {
        quic.connect(address, "main.test").is_ok()
    });
}

/// The manager gives it the certificates at each reload.
#[test]
fn a_reload_does_not_wait_for_a_keeper_that_somebody_has_stopped() {
    let tls = Tls::new();
    let another = install(
        &tls.setup,
        "another",
        &tls.authority.server(&["DNS:another.test"]),
    );
    let (weir, _) = tls.start();
    let text = weir.read("weir.toml");
    weir_test::weir::write(
        &weir.path("weir.toml"),
        format!("{text}\n{another}\n").as_bytes(),
    );
    signal(weir.keeper().pid, Signal::STOP);
    let begin = Instant::now();
    weir.signal(Signal::HUP);
    weir.log_line("reloaded: the new configuration serves");
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
}

/// Keeps a process from running until this is dropped. If somebody wakes it, it stands still again soon.
struct Stopped {
    pid: u32,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stopped {
    fn new(pid: u32) -> Stopped {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            while !over.load(Relaxed) {
                signal(pid, Signal::STOP);
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        Stopped {
            pid,
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.thread.take().map(JoinHandle::join);
        signal(self.pid, Signal::CONT);
    }
}

/// So many certificates take the keeper a while, also if it is woken now and then.
fn many_certificates(setup: &Setup) -> String {
    let folder = setup.folder().join("many");
    fs::create_dir(&folder).expect("mkdir");
    many(&folder, 1000)
}

/// A weir whose script `who.php` tells its PHP master to a client without TLS, at this address.
fn with_masters() -> (Tls, SocketAddr) {
    let plain = weir_test::free_address();
    let tls = Tls::new().with_php().with(|setup| {
        let root = setup.root();
        setup
            .admin()
            .log("access = \"off\"\nlevel = \"debug\"")
            .file(
                "who.php",
                "<?php preg_match('/PPid:\\s+(\\d+)/', file_get_contents('/proc/self/status'), $m); echo $m[1];",
            )
            .more(&format!("[listen.plain]\naddress = \"{plain}\""))
            .more(&format!(
                "[site.plain]\nhosts = [\"plain.test\"]\npool = \"app\"\nroot = \"{}\"",
                root.display()
            ))
    });
    (tls, plain)
}

/// The PHP master of the worker that answers, or 0.
fn master(plain: SocketAddr) -> u32 {
    let mut client = weir_test::Client::connect(plain);
    client.send("GET /who.php HTTP/1.1\r\nHost: plain.test\r\nConnection: close\r\n\r\n");
    client.response().text().parse().unwrap_or(0)
}

/// Kills the PHP master and asks for the status; both must go as usual.
#[track_caller]
fn expect_that_the_manager_works(weir: &Weir, plain: SocketAddr) {
    let before = master(plain);
    let begin = Instant::now();
    signal(before, Signal::KILL);
    wait_until("another PHP master", || {
        ![0, before].contains(&master(plain))
    });
    assert_eq!(weir.status()["manager_pid"], weir.pid());
    println!("{:?} until another PHP master answers", begin.elapsed());
}

#[test]
fn a_keeper_that_does_not_answer_keeps_the_manager_from_nothing() {
    let (tls, plain) = with_masters();
    let others = many_certificates(&tls.setup);
    let (weir, authority) = tls.start();
    let text = weir.read("weir.toml");
    let text = format!("{text}\n{others}\n");
    weir_test::weir::write(&weir.path("weir.toml"), text.as_bytes());
    let keeper = weir.keeper();
    let stopped = Stopped::new(keeper.pid);
    let mut reload = weir.command(&["reload"]).spawn().expect("weir");
    weir.log_line("reloading");
    expect_that_the_manager_works(&weir, plain);
    let ended = reload.try_wait().expect("a child of ours");
    assert!(ended.is_none(), "it did not wait for the keeper: {ended:?}");
    drop(stopped);
    assert!(reload.wait().expect("weir").success());
    assert!(keeper.runs());
    let got = curl(&weir, &authority, "main.test", "/", &[]);
    assert_eq!(got.status, 200, "{}", got.error);
}

/// It has died, and the next one does not get ready.
#[test]
fn a_keeper_that_does_not_start_keeps_the_manager_from_nothing() {
    let (tls, plain) = with_masters();
    let others = many_certificates(&tls.setup);
    let (weir, authority) = tls.with(|setup| setup.more(&others)).start();
    let first = weir.keeper();
    signal(first.pid, Signal::KILL);
    // The test does not pause, because the keeper is ready some milliseconds after its start.
    let begin = Instant::now();
    let second = loop {
        assert!(begin.elapsed() < weir_test::LIMIT, "no other keeper");
        let mut children = weir.children().into_iter();
        let is_it = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            *pid != first.pid && words.starts_with(b"weir: keeper")
        };
        if let Some(found) = children.find(is_it) {
            break found;
        }
    };
    let stopped = Stopped::new(second);
    expect_that_the_manager_works(&weir, plain);
    assert!(!weir.stderr().contains("has the private keys again"));
    drop(stopped);
    wait_until("keys in the new keeper", || {
        curl(&weir, &authority, "main.test", "/", &[]).status == 200
    });
}

#[test]
fn the_keeper_can_open_nothing() {
    let (weir, _) = Tls::new().start();
    let keeper = weir.keeper();
    let status = fs::read_to_string(format!("/proc/{}/status", keeper.pid)).expect("a status");
    let value = |name: &str| {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .expect(name);
        line.split_once(':').expect(":").1.trim().to_owned()
    };
    assert_eq!(value("NoNewPrivs"), "1");
    assert_eq!(value("Seccomp"), "2", "a filter");
    assert_eq!(value("CapEff"), "0000000000000000");
    if weir_test::is_root() {
        let user = |process: &Process| {
            let status =
                fs::read_to_string(format!("/proc/{}/status", process.pid)).expect("a status");
            let line = status
                .lines()
                .find(|line| line.starts_with("Uid:"))
                .expect("Uid")
                .to_owned();
            line.split_whitespace().nth(1).expect("a number").to_owned()
        };
        assert_ne!(user(&keeper), user(&weir.gateway()));
        assert_ne!(user(&keeper), "0");
    }
}

/// The memory of a process as far as it is there: pages that were never touched are left out (proc_pid_pagemap(5)).
fn memory(pid: u32) -> Vec<u8> {
    const PAGE: u64 = 4096;
    let open = |name: &str| File::open(format!("/proc/{pid}/{name}")).expect("a file of /proc");
    let (memory, pages) = (open("mem"), open("pagemap"));
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let mut all = Vec::new();
    // No file has the keys: the memory of programs and libraries is left out.
    let of_no_file = |line: &&str| line.split_whitespace().nth(4) == Some("0");
    for line in maps.lines().filter(of_no_file) {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let (from, to) = range.expect("a range");
        let [from, to] =
            [from, to].map(|number| u64::from_str_radix(number, 16).expect("a number"));
        let mut entries = vec![0; ((to - from) / PAGE * 8) as usize];
        if pages.read_exact_at(&mut entries, from / PAGE * 8).is_err() {
            // The kernel's own pages.
            continue;
        }
        for (number, entry) in (0..).zip(entries.chunks_exact(8)) {
            if entry[7] & 0xc0 == 0 {
                continue;
            }
            let mut page = [0; PAGE as usize];
            if memory
                .read_exact_at(&mut page, from + number * PAGE)
                .is_ok()
            {
                all.extend_from_slice(&page);
            }
        }
    }
    assert!(all.len() > 1 << 18, "{} bytes", all.len());
    all
}

/// Whether any of these is in the memory of a process. Their first bytes are enough: nothing else has them.
fn has(pid: u32, secrets: &[Vec<u8>]) -> bool {
    let one = |secret: &Vec<u8>| -> String {
        secret[..8]
            .iter()
            .map(|byte| format!("\\x{byte:02x}"))
            .collect()
    };
    let any: Vec<String> = secrets.iter().map(one).collect();
    let any = regex::bytes::Regex::new(&format!("(?-u:{})", any.join("|"))).expect("an expression");
    any.is_match(&memory(pid))
}

/// The parts of a key that nobody else may know, as numbers of its DER.
fn secrets(setup: &Setup, name: &str) -> Vec<Vec<u8>> {
    let path = setup.folder().join(format!("{name}.key"));
    let text = Command::new("openssl")
        .args(["pkey", "-noout", "-text", "-in"])
        .arg(&path)
        .output();
    let text = String::from_utf8(text.expect("openssl").stdout).expect("UTF-8");
    let mut secrets = Vec::new();
    let mut current: Option<Vec<u8>> = None;
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(digits) => {
                if let Some(bytes) = &mut current {
                    let pairs = digits.trim().split(':').filter(|pair| !pair.is_empty());
                    bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")));
                }
            }
            None => {
                secrets.extend(current.take());
                let is_secret = [
                    "priv:",
                    "privateExponent:",
                    "prime1:",
                    "prime2:",
                    "exponent1:",
                    "exponent2:",
                ];
                current = is_secret.contains(&line.trim()).then(Vec::new);
            }
        }
    }
    secrets.extend(current);
    let trimmed = secrets.into_iter().map(|bytes| {
        bytes
            .into_iter()
            .skip_while(|byte| *byte == 0)
            .collect::<Vec<u8>>()
    });
    // Libraries keep numbers with their lowest digits first.
    let secrets: Vec<Vec<u8>> = trimmed.collect();
    let reversed = secrets
        .iter()
        .map(|bytes| bytes.iter().rev().copied().collect());
    let reversed: Vec<Vec<u8>> = reversed.collect();
    [secrets, reversed].concat()
}

fn shake_hands(weir: &Weir) {
    for version in ["-tls1_2", "-tls1_3"] {
        for host in ["main.test", "rsa.test"] {
            let text = said(weir.address(), host, &[version]);
            assert!(
                text.contains("Verification") && text.contains("HTTP/1.1"),
                "{text}"
            );
        }
    }
}

#[test]
fn no_byte_of_a_key_is_in_the_gateway_or_the_manager() {
    if !goes_on_as_root() {
        return;
    }
    for isolation in [true, false] {
        let tls = Tls::new().with(|setup| {
            let path = setup.folder().join("rsa");
            self_signed_rsa(&path, "rsa.test");
            let path = path.display().to_string();
            let table = format!("[certificate.rsa]\nchain = \"{path}.pem\"\nkey = \"{path}.key\"");
            setup
                .more(&table)
                .more(&format!("[tls]\nkey_isolation = {isolation}"))
                .site("\n")
        });
        let keys = [secrets(&tls.setup, "main"), secrets(&tls.setup, "rsa")];
        assert!(
            keys[0].len() == 2 && keys[1].len() == 10,
            "what openssl shows: {keys:?}"
        );
        let (weir, _) = tls.start();
        shake_hands(&weir);
        let found = |pid: u32| keys.each_ref().map(|key| has(pid, key));
        assert_eq!(found(weir.pid()), [false, false], "the manager");
        assert_eq!(
            found(weir.gateway().pid),
            [!isolation, !isolation],
            "the gateway"
        );
        if isolation {
            assert_eq!(found(weir.keeper().pid), [true, true], "the keeper");
        }
    }
}
