//! PHP-FPM beside weir-php: both must give the same answers.

use std::{
    fmt::Write as _,
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::support::*;

/// The same scripts and settings under both.
pub struct Both {
    pub site: Scripts,
    pub fpm: Fpm,
    pub master: Master,
    pub worker: Worker,
    pub config: Config,
}

impl Both {
    /// Starts both; passes `settings` as -d.
    pub fn start(settings: &[&str]) -> Both {
        let site = Scripts::new();
        let mut config = site.config().with("fpm", "1");
        for setting in settings {
            config = config.with("define", setting);
        }
        Both::start_with(site, &config)
    }

    pub fn start_with(site: Scripts, config: &Config) -> Both {
        let fpm = Fpm::start(&site, config);
        let master = Master::start(config);
        let worker = master.worker();
        Both {
            site,
            fpm,
            master,
            worker,
            config: config.clone(),
        }
    }

    /// Asks both, checks that the answers are equal, and returns the answer.
    pub fn same(&mut self, request: &Request) -> Answer {
        let (theirs, ours) = self.ask(request);
        // Either message may come. This depends on the failure that came before a folder was taken for a script.
        let [theirs, told] = [&theirs, &ours].map(|answer| {
            answer
                .told()
                .replace("No such file or directory", "Success")
        });
        assert!(
            theirs == told,
            "{:?}\n{}",
            request.params,
            difference(&theirs, &told)
        );
        ours
    }

    /// The answers of PHP-FPM and of weir-php.
    pub fn ask(&mut self, request: &Request) -> (Answer, Answer) {
        let theirs = self.fpm.ask(request);
        self.worker.send(request);
        let ours = self.worker.answer_or_none();
        let ours = ours.unwrap_or_else(|| {
            let how = self.master.end_of(&self.worker);
            panic!("the worker ended ({how:?}): {:?}", request.params)
        });
        (theirs, ours)
    }

    /// The same for a script of this text.
    pub fn same_script(&mut self, text: &str) -> Answer {
        self.site.script("script.php", text);
        let request = Request::get(&self.site, "/script.php");
        self.same(&request)
    }
}

/// A PHP-FPM with one child. It ends when it is dropped.
pub struct Fpm {
    process: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Fpm {
    pub fn start(site: &Scripts, config: &Config) -> Fpm {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let folder = site
            .beside()
            .join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir(&folder).unwrap();
        let (socket, log) = (folder.join("fpm.sock"), folder.join("fpm.log"));
        let mut text = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n\
             [test]\nlisten = {}\npm = static\npm.max_children = 1\nclear_env = no\n\
             env[HOME] = /nonexistent\nenv[USER] = somebody\n",
            log.display(),
            socket.display()
        );
        if weir_sys::identity::is_root() {
            text.push_str("user = root\ngroup = root\n");
        }
        let endings: Vec<&str> = config.values("limit_extensions").collect();
        writeln!(text, "security.limit_extensions = {}", endings.join(" ")).unwrap();
        for ini in config.values("ini") {
            let (kind, ini) = ini.split_once(' ').unwrap();
            let (name, value) = ini.split_once('=').unwrap();
            let kind = if kind == "admin" {
                "php_admin_value"
            } else {
                "php_value"
            };
            writeln!(text, "{kind}[{name}] = {value}").unwrap();
        }
        if let Some(folder) = config.values("chdir").next() {
            writeln!(text, "chdir = {folder}").unwrap();
        }
        let conf = folder.join("fpm.conf");
        fs::write(&conf, text).unwrap();
        let mut command = Command::new(newest_fpm());
        command.arg("-F").arg("-R").arg("-y").arg(&conf);
        if config.values("no_ini").next().is_some() {
            command.arg("-n");
        }
        for file in config.values("php_ini") {
            command.arg("-c").arg(file);
        }
        for define in config.values("define") {
            command.arg("-d").arg(define);
        }
        environment(&mut command);
        let process = command
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let fpm = Fpm {
            process,
            socket,
            log,
        };
        wait_until("PHP-FPM accepts", || {
            UnixStream::connect(&fpm.socket).is_ok()
        });
        fpm
    }

    pub fn ask(&self, request: &Request) -> Answer {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut records = request.records();
        // Clears FCGI_KEEP_CONN: the connection is not kept.
        records[10] = 0;
        let mut writer = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            let _ = writer.write_all(&records);
        });
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let mut answer = Answer::default();
        let mut rest = &bytes[..];
        while let Some((record, after)) = Record::split(rest) {
            match record.kind {
                STDOUT => answer.stdout.extend(record.content),
                STDERR => answer
                    .stderr
                    .push_str(&String::from_utf8_lossy(&record.content)),
                _ => {}
            }
            rest = after;
        }
        answer
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        // The child ends after its master only if it gets SIGTERM.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("--- PHP-FPM's log:\n{log}");
        }
    }
}

/// The lines that only one of them has, each with the line before.
fn difference(theirs: &str, ours: &str) -> String {
    let mut text = String::new();
    for (who, one, other) in [("PHP-FPM", theirs, ours), ("weir-php", ours, theirs)] {
        let mut before = "";
        for line in one.lines() {
            if !other.lines().any(|known| known == line) && text.len() < 4000 {
                writeln!(text, "{who}: {before:.3000?} then {line:.3000?}").unwrap();
            }
            before = line;
        }
    }
    if text.is_empty() {
        text = format!("the order differs: {theirs}\n--- {ours}");
    }
    text
}

/// The newest installed php-fpm.
pub fn newest_fpm() -> PathBuf {
    if let Some(prefix) = prefix() {
        return prefix.join("sbin/php-fpm");
    }
    let found = fs::read_dir("/usr/sbin").unwrap().flatten();
    let mut found: Vec<PathBuf> = found
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("/php-fpm"))
        .collect();
    found.sort();
    found.pop().expect("php-fpm is installed")
}
