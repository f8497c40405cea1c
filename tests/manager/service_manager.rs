//! weir under a service manager, whose part the test plays: what systemd is told (sd_notify(3)), in order; and whether systemd
//! accepts the unit that weir comes with.

use std::{os::unix::net::UnixDatagram, path::Path, process::Child, thread};

use weir_test::{
    LIMIT,
    process::{wait, with_argument},
    versions::{NEXT, break_weir, installed, replace},
};

use super::*;

/// A weir that was started with NOTIFY_SOCKET, and the socket. At the end of the test it is killed with the weirs that came
/// after it: only a service manager knows those.
pub struct Service {
    pub child: Child,
    socket: UnixDatagram,
    admin: String,
    file: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let weirs = with_argument(&self.file);
        weirs.iter().for_each(|one| signal(one.pid, Signal::KILL));
        if !thread::panicking() {
            weir_test::weir::expect_gone(&weirs);
        }
    }
}

impl Service {
    pub fn start(site: &Setup) -> Service {
        let file = site.write_toml().display().to_string();
        let path = site.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let stderr = fs::File::create(site.path("log/stderr")).unwrap();
        let child = Command::new(site.path("bin/weir"))
            .args(["serve", "-c"])
            .arg(&file)
            .env("NOTIFY_SOCKET", path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let admin = format!("--admin=unix:{}/admin.sock", site.folder().display());
        Service {
            child,
            socket,
            admin,
            file,
        }
    }

    /// The next message, after these others.
    #[track_caller]
    fn message(&self, others: &str) -> String {
        let mut buffer = [0; 1024];
        let received = loop {
            match self.socket.recv(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received,
            }
        };
        let length = received.unwrap_or_else(|error| panic!("{error} after: {others}"));
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// The next message with such a line.
    #[track_caller]
    pub fn hear(&self, wanted: impl Fn(&str) -> bool) -> String {
        let mut others = String::new();
        loop {
            let message = self.message(&others);
            if message.lines().any(&wanted) {
                return message;
            }
            others += &message;
        }
    }

    /// The next message, without the lines of STATUS.
    fn next(&self) -> Vec<String> {
        let message = self.message("");
        let lines = message.lines().filter(|line| !line.starts_with("STATUS="));
        lines.map(str::to_owned).collect()
    }

    /// The next messages are these; `MONOTONIC_USEC` is checked and left out.
    #[track_caller]
    fn expect(&self, what: &str, messages: &[&[&str]]) {
        for message in messages {
            let mut lines = self.next();
            lines.retain(|line| match line.strip_prefix("MONOTONIC_USEC=") {
                None => true,
                Some(micros) => {
                    // systemd compares it with its own CLOCK_MONOTONIC, which is the machine's.
                    let uptime = fs::read_to_string("/proc/uptime").unwrap();
                    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
                    let told = micros.parse::<f64>().expect("a number") / 1e6;
                    assert!(
                        (uptime - 60.0..=uptime + 1.0).contains(&told),
                        "{what}: {told}, {uptime}"
                    );
                    false
                }
            });
            assert_eq!(lines, *message, "{what}");
        }
    }

    pub fn command(&self, word: &str) -> bool {
        let mut command = Command::new(program());
        let output = command.args([word, &self.admin]).output().unwrap();
        output.status.success()
    }
}

#[test]
fn a_service_manager_is_told_of_start_reload_upgrade_and_stop_in_order() {
    let site = installed(site_without_pool().admin());
    let mut service = Service::start(&site);
    let first = format!("MAINPID={}", service.child.id());
    service.expect("start", &[&["READY=1", &first]]);
    assert!(service.command("reload"));
    service.expect("reload", &[&["RELOADING=1"], &["READY=1", &first]]);
    let file = site.path("weir.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}\n[sever]\n")).unwrap();
    assert!(!service.command("reload"));
    service.expect("a wrong reload", &[&["RELOADING=1"], &["READY=1", &first]]);
    fs::write(&file, &text).unwrap();
    break_weir(&site.path("bin"), "#!/bin/sh\nexit 1\n");
    assert!(!service.command("upgrade"));
    service.expect(
        "a failed upgrade",
        &[&["RELOADING=1"], &["READY=1", &first]],
    );
    replace(&site.path("bin"), NEXT);
    assert!(service.command("upgrade"));
    service.expect("upgrade", &[&["RELOADING=1"]]);
    // The old one names the new one, which then speaks for itself.
    let told = service.next();
    let [pid, ready] = &told[..] else {
        panic!("{told:?}");
    };
    let main: u32 = pid
        .strip_prefix("MAINPID=")
        .expect("a process")
        .parse()
        .unwrap();
    assert_eq!(ready, "READY=1");
    let second = format!("MAINPID={main}");
    assert_ne!(second, first);
    service.expect("the new one", &[&["READY=1", &second]]);
    let status = wait(&mut service.child, LIMIT).expect("the old one ends");
    assert_eq!(status.code(), Some(0));
    assert!(service.command("reload"));
    service.expect("reload", &[&["RELOADING=1"], &["READY=1", &second]]);
    signal(main, Signal::TERM);
    service.expect("stop", &[&["STOPPING=1"]]);
    wait_until("it ends", || !is_alive(main));
}

#[test]
fn systemd_accepts_the_units_that_weir_comes_with() {
    let setup = Setup::new();
    for (unit, installed) in [
        ("weir.service", "weir.service"),
        ("weir@.service", "weir@root.service"),
    ] {
        let text = fs::read_to_string(project().join("packaging/systemd").join(unit)).unwrap();
        assert!(text.contains("=/usr/bin/weir "));
        // It must name a program that is here.
        let text = text.replace("/usr/bin/weir ", &format!("{} ", program()));
        // systemd reads the template's instance from its name.
        let own = setup.path(installed);
        fs::write(&own, text).unwrap();
        let (verified, said) = systemd_analyze(&["verify", "--man=no"], &own);
        let about: Vec<&str> = (said.lines())
            .filter(|line| line.contains(installed))
            .collect();
        assert!(verified && about.is_empty(), "{said}");
    }
}

#[test]
fn the_units_allow_little() {
    for unit in ["weir.service", "weir@.service"] {
        let unit = project().join("packaging/systemd").join(unit);
        // The threshold is ten times the number that is shown.
        let arguments = ["security", "--offline=true", "--threshold=30"];
        let (few, said) = systemd_analyze(&arguments, &unit);
        assert!(few, "{said}");
    }
}

/// Whether it succeeds, and its output.
fn systemd_analyze(arguments: &[&str], unit: &Path) -> (bool, String) {
    let output = Command::new("systemd-analyze")
        .args(arguments)
        .arg(unit)
        .output()
        .expect("systemd-analyze; setup/install.sh test installs it");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
