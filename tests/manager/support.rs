//! A site to serve, a weir that serves it, and requests to it.

use std::{
    cell::RefCell,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    rc::Rc,
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

pub use rustix::process::Signal;
use weir_test::process::wait;
pub use weir_test::{
    DONE_BY_ROOT, LIMIT, goes_on_as_root, is_root,
    process::{is_alive, signal},
    wait_for, wait_until,
    weir::{PROGRAM, program},
};

/// A folder with a site and a configuration.
#[derive(Clone)]
pub struct Site {
    pub folder: Rc<tempfile::TempDir>,
    workers: usize,
    command: Vec<String>,
    unix: bool,
    log_files: bool,
}

impl Site {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The gateway and the workers run as other users.
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let site = Self {
            folder: folder.into(),
            workers: 2,
            command: vec!["php-cgi".into()],
            unix: false,
            log_files: false,
        };
        fs::create_dir(site.path("site")).unwrap();
        fs::create_dir(site.path("other")).unwrap();
        fs::set_permissions(site.path("site"), PermissionsExt::from_mode(0o777)).unwrap();
        let write = |name: &str, text: &str| fs::write(site.path(name), text).unwrap();
        write("site/a.txt", "hello\n");
        write(
            "site/pid.php",
            "<?php echo 'pid=', getmypid(), ' uid=', posix_getuid(), ' ';",
        );
        write(
            "site/slow.php",
            "<?php touch(__DIR__ . '/started'); sleep(2); echo 'slow done';",
        );
        write(
            "site/endless.php",
            "<?php touch(__DIR__ . '/started'); while (true) sleep(1);",
        );
        site
    }

    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    pub fn command(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(|part| (*part).to_owned()).collect();
        self
    }

    pub fn unix_listener(mut self) -> Self {
        self.unix = true;
        self
    }

    pub fn no_unix_listener(mut self) -> Self {
        self.unix = false;
        self
    }

    pub fn log_files(mut self) -> Self {
        self.log_files = true;
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text(&self) -> String {
        let folder = self.folder.path().display();
        let unix = match self.unix {
            true => {
                format!("[listen.unix]\naddress = \"unix:{folder}/weir.sock\"\nmode = \"0600\"\n")
            }
            false => String::new(),
        };
        let access = match self.log_files {
            true => format!("{folder}/access.log"),
            false => "off".into(),
        };
        let (user, command, workers) = (user(), &self.command, self.workers);
        format!(
            r#"[server]
user = "{user}"
pid_file = "{folder}/weir.pid"
admin = "off"
[listen.web]
address = "127.0.0.1:0"
{unix}[site.test]
root = "{folder}/site"
pool = "php"
[pool.php]
runtime = "command"
command = {command:?}
max_children = {workers}
[log]
access = "{access}"
error = "stderr"
"#
        )
    }

    pub fn text_with_port(&self, port: u16) -> String {
        self.text()
            .replace("127.0.0.1:0", &format!("127.0.0.1:{port}"))
    }

    pub fn write_config(&self, text: &str) {
        fs::write(self.path("weir.toml"), text).unwrap();
    }
}

/// A running weir. It is killed with all its children when the test fails.
pub struct Weir {
    pub process: Child,
    pub port: u16,
    lines: Receiver<String>,
    /// Lines that were received and that no test has waited for yet.
    log: RefCell<Vec<String>>,
    /// Kept as long as weir serves it.
    _site: Site,
}

impl Weir {
    pub fn start(site: &Site) -> Self {
        Self::start_with(site, &site.text())
    }

    pub fn start_with(site: &Site, text: &str) -> Self {
        Self::of(command(site, text), site)
    }

    /// Starts a weir whose error log is `error.log` in the site's folder.
    pub fn start_quietly(site: &Site, text: &str) -> Self {
        let mut weir = Self::launch(command(site, text), site);
        let log = site.path("error.log");
        wait_until("weir serves", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("serves (process"))
        });
        weir.port = listening_port(weir.process.id());
        weir
    }

    pub fn of(command: Command, site: &Site) -> Self {
        let mut weir = Self::launch(command, site);
        weir.log_line("serves (process");
        weir.port = listening_port(weir.process.id());
        weir
    }

    /// Starts a weir that serves a folder and writes nothing about it to its log.
    pub fn of_folder(command: Command, site: &Site) -> Self {
        let mut weir = Self::launch(command, site);
        let pid = weir.process.id();
        wait_until("weir listens", || {
            weir.port = find_port(pid).unwrap_or(0);
            weir.port > 0
        });
        weir.get_until("/a.txt", |answer| answer.contains("hello"));
        weir
    }

    /// Starts a weir whose standard error is not read.
    pub fn unheard(command: &mut Command, site: &Site) -> (Self, std::process::ChildStderr) {
        let mut process = command.spawn().unwrap();
        let stderr = process.stderr.take().unwrap();
        let mut weir = Self {
            process,
            port: 0,
            lines: channel().1,
            log: RefCell::default(),
            _site: site.clone(),
        };
        let pid = weir.process.id();
        wait_until("weir listens", || {
            weir.port = find_port(pid).unwrap_or(0);
            weir.port > 0
        });
        (weir, stderr)
    }

    fn launch(mut command: Command, site: &Site) -> Self {
        let mut process = command.spawn().unwrap();
        let stderr = process.stderr.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self {
            process,
            port: 0,
            lines,
            log: RefCell::default(),
            _site: site.clone(),
        }
    }

    /// Waits for a line of the error log, and removes it from there.
    pub fn log_line(&self, part: &str) -> String {
        let until = Instant::now() + LIMIT;
        let mut log = self.log.borrow_mut();
        loop {
            if let Some(index) = log.iter().position(|line| line.contains(part)) {
                return log.remove(index);
            }
            match self
                .lines
                .recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                Ok(line) => log.push(line),
                Err(_) => panic!("no line with {part:?} in the error log: {log:#?}"),
            }
        }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    pub fn get(&self, path: &str) -> String {
        get(self.port, path)
    }

    pub fn get_until(&self, path: &str, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + LIMIT;
        loop {
            let answer = self.get(path);
            if wanted(&answer) {
                return answer;
            }
            let log: Vec<String> = self.lines.try_iter().collect();
            assert!(Instant::now() < until, "{path}: {answer}\n{log:#?}");
            std::thread::sleep(Duration::from_millis(20));
            self.log.borrow_mut().extend(log);
        }
    }

    pub fn children(&self) -> Vec<u32> {
        let pid = self.process.id();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }

    /// The gateway's process id.
    pub fn gateway(&self) -> u32 {
        let is_it = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name == "weir-gateway\n")
        };
        wait_for("there is a gateway", || {
            self.children().into_iter().find(is_it)
        })
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.process, LIMIT).expect("weir ends")
    }

    /// Stops it gracefully. Nothing may still run.
    pub fn stop(mut self) {
        let children = self.children();
        signal(self.process.id(), Signal::TERM);
        assert!(self.wait().success());
        assert!(children.iter().all(|pid| !is_alive(*pid)));
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        // Its children end with it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The programs of weir's own PHP, from the build or beside the tested weir.
pub fn php_programs() -> Vec<PathBuf> {
    let own = Path::new(program()).parent().unwrap().to_owned();
    let built = own.parent().unwrap().join("php");
    let files = [own, built]
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let files = files.flatten().flatten().map(|file| file.path());
    let is_php = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("weir-php")
    };
    let programs: Vec<PathBuf> = files.filter(is_php).collect();
    assert!(!programs.is_empty(), "`make php` builds them");
    programs
}

/// The user that weir is told to become: another user if it can, its own user if not.
pub fn user() -> String {
    if is_root() {
        return "www-data".into();
    }
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub fn command(site: &Site, text: &str) -> Command {
    command_of(program().as_ref(), site, text)
}

pub fn command_of(program: &Path, site: &Site, text: &str) -> Command {
    site.write_config(text);
    let mut command = Command::new(program);
    command
        .args(["serve", "-c"])
        .arg(site.path("weir.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Runs weir with a configuration that cannot work. Returns how it ended, and its messages.
pub fn run(site: &Site, text: &str) -> (ExitStatus, String) {
    ended(command(site, text))
}

pub fn ended(mut command: Command) -> (ExitStatus, String) {
    let mut process = command.spawn().unwrap();
    let mut stderr = process.stderr.take().unwrap();
    let status = wait(&mut process, LIMIT).expect("weir gives up");
    let mut said = String::new();
    // This ends when no process has it open any more, so nothing still runs.
    stderr.read_to_string(&mut said).unwrap();
    (status, said)
}

/// Containers often let every user listen on any port.
pub fn low_ports_are_free() -> bool {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    first.trim().parse::<u16>().unwrap() <= 80
}

pub fn get(port: u16, path: &str) -> String {
    request(port, "GET", path, b"")
}

pub fn request(port: u16, method: &str, path: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The TCP port that a process listens on.
pub fn listening_port(pid: u32) -> u16 {
    find_port(pid).expect("weir listens")
}

fn find_port(pid: u32) -> Option<u16> {
    let mine: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .filter_map(|link| {
            let link = link.to_string_lossy().into_owned();
            Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = *fields.get(3)? == "0A" && mine.iter().any(|inode| inode == fields[9]);
        listens.then(|| u16::from_str_radix(fields[1].split(':').nth(1)?, 16).ok())?
    })
}

/// The sockets of this machine that listen on a TCP port of 127.0.0.1.
pub fn inodes_of_listeners(port: u16) -> Vec<String> {
    let local = format!("0100007F:{port:04X}");
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table.lines().map(|line| line.split_whitespace().collect());
    let listens = |fields: &Vec<&str>| fields.get(1) == Some(&local.as_str()) && fields[3] == "0A";
    fields
        .filter(listens)
        .map(|fields: Vec<&str>| fields[9].to_owned())
        .collect()
}

pub fn pid_in(answer: &str) -> u32 {
    let (_, rest) = answer.split_once("pid=").expect("a pid in the answer");
    rest.split(' ').next().unwrap().parse().unwrap()
}
