//! What both programs send to syslog: the bytes of each message, with its priority, name and process.
//!
//! Private mounts make /dev/log a socket of the test. That requires root.

use std::{
    io::Read,
    os::unix::net::{UnixDatagram, UnixStream},
    process::{Child, Command, Stdio},
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    support::{LIMIT, Place, get, goes_on_as_root, wait_until},
    transcript::{Subject, assert_same, replace, without_numbers},
};

/// `$0`: the folder; `$@`: the program. /dev of a container may be without a log, and cannot be written by others.
const MOUNTS: &str = "set -e
mount --make-rprivate / 2>/dev/null || true
mkdir -p \"$0/dev\"
mount -t tmpfs -o mode=755 tmpfs \"$0/dev\"
for name in null zero full random urandom tty; do
    : >\"$0/dev/$name\"
    mount --bind \"/dev/$name\" \"$0/dev/$name\"
done
ln -s /proc/self/fd \"$0/dev/fd\"
ln -s \"$0/syslog\" \"$0/dev/log\"
mount --rbind \"$0/dev\" /dev
exec \"$@\"";

/// One of the two programs, with a socket in the place of syslog.
struct Machine {
    place: Place,
    child: Child,
    socket: UnixDatagram,
    told: Vec<Vec<u8>>,
    asked: usize,
}

const DONE: &str = "<?php error_log('done-' . $_GET['n'] . '-');";

impl Machine {
    /// Starts it with the settings `global` and `pool`.
    fn start(weir: bool, global: &str, pool: &str, scripts: &[(&str, &str)]) -> Self {
        let pool = format!("catch_workers_output = yes\n{pool}");
        let place = Subject::place(weir, "", "", scripts);
        let text = crate::starts::configuration(global, &format!("pm.max_children = 1\n{pool}"));
        place.write(
            "php-fpm.conf",
            text.replace("error_log = @/error.log", "error_log = syslog"),
        );
        place.write("done.php", DONE);
        let socket = UnixDatagram::bind(place.path("syslog")).unwrap();
        let child = Command::new("unshare")
            .args(["--mount", "sh", "-c", MOUNTS])
            .arg(place.path(""))
            .arg(Subject::program(weir, &place))
            .args(["-F", "-y"])
            .arg(place.path("php-fpm.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            place,
            child,
            socket,
            told: Vec::new(),
            asked: 0,
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it accepts connections.
    fn serves(&mut self) {
        let socket = self.place.path("fpm.sock");
        wait_until("it serves", || {
            assert_eq!(self.child.try_wait().unwrap(), None);
            UnixStream::connect(&socket).is_ok()
        });
    }

    /// Receives messages until the last one contains `what`.
    fn hear(&mut self, what: &str) {
        let until = Instant::now() + LIMIT;
        let mut buffer = vec![0; 1 << 20];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let text = || {
                let told = self.told.iter().map(|one| String::from_utf8_lossy(one));
                told.collect::<Vec<_>>().join("\n")
            };
            assert!(!left.is_zero(), "{what} is not told:\n{}", text());
            self.socket.set_read_timeout(Some(left)).unwrap();
            let Ok(length) = self.socket.recv(&mut buffer) else {
                continue;
            };
            let message = buffer[..length].to_vec();
            let is_it = String::from_utf8_lossy(&message).contains(what);
            self.told.push(message);
            if is_it {
                return;
            }
        }
    }

    /// Runs a script, and receives everything that it causes.
    fn ask(&mut self, uri: &str) {
        self.asked += 1;
        let (socket, done) = (self.place.path("fpm.sock"), self.asked);
        let path = uri.split('?').next().unwrap();
        get(&socket, &self.place.path(&path[1..]), uri);
        let uri = format!("/done.php?n={done}");
        get(&socket, &self.place.path("done.php"), &uri);
        self.hear(&format!("done-{done}-"));
    }

    /// What has been told since the last call, without what differs in each run.
    fn news(&mut self) -> Vec<u8> {
        let folder = self.place.path("").to_str().unwrap().to_owned();
        let program = Subject::program(false, &self.place);
        let own = Subject::program(true, &self.place);
        let mut out = Vec::new();
        for message in std::mem::take(&mut self.told) {
            let text = String::from_utf8_lossy(&message).into_owned();
            // weir's own message about the request.
            if text.contains(" 502 worker_died: ") {
                continue;
            }
            let (priority, rest) = text.split_once('>').expect("a priority");
            // As in `Nov  5 12:14:00`.
            let (time, _) = rest.split_at(15);
            let is_digit = |at: usize| time.as_bytes()[at].is_ascii_digit();
            assert!(
                time.as_bytes()[3] == b' ' && is_digit(5) && is_digit(14),
                "{text}"
            );
            assert_eq!(&time[9..10], ":", "{text}");
            let rest = &message[priority.len() + 1 + 15..];
            let mut rest = replace(rest, format!("[{}]", self.child.id()).as_bytes(), b"[PID]");
            for path in [&own, &program] {
                rest = replace(&rest, path.to_str().unwrap().as_bytes(), b"PROGRAM");
            }
            rest = replace(&rest, folder.as_bytes(), b"@/");
            for before in ["child ", "pid ", "after ", "fd="] {
                rest = without_numbers(&rest, before.as_bytes());
            }
            out.extend(priority.as_bytes());
            out.extend(b">T");
            out.extend(rest);
            out.push(b'\n');
        }
        out
    }

    /// What it has written to standard error when it has ended.
    fn stderr(&mut self) -> Vec<u8> {
        wait_until("it ends", || self.child.try_wait().unwrap().is_some());
        let mut said = Vec::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_end(&mut said).unwrap();
        said
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal(Signal::TERM);
            let until = Instant::now() + LIMIT;
            while self.child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < until
            {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

const SPEAKS: &[(&str, &str)] = &[
    (
        "logs.php",
        "<?php error_log('hello'); error_log(\"a\\nb\\r\\nc d\\x1b[1m\\t\\x7f \u{fc}\\xff\"); error_log(\"x\\0y\");
         error_log(''); error_log(\"end \"); echo $nothing;",
    ),
    ("throws.php", "<?php throw new Exception(\"boo\\nhoo\");"),
    ("long.php", "<?php error_log(str_repeat('0123456789', (int) $_GET['tens']) . $_GET['rest']);"),
    (
        "streams.php",
        "<?php fwrite(fopen('php://stdout', 'w'), \"out  \\n\\nmore\"); fwrite(fopen('php://stderr', 'w'), 'err');",
    ),
    ("child.php", "<?php system('echo whole >&2; printf open >&2');"),
    ("who.php", "<?php echo getmypid();"),
];

/// PHP-FPM reads the output of its workers and, with syslog, drops it. weir sends what PHP-FPM would write to a file.
#[test]
fn syslog_gets_the_output_of_workers_as_php_fpm_writes_it_to_a_file() {
    if !goes_on_as_root() {
        return;
    }
    for pool in ["", "decorate_workers_output = no"] {
        let mut fpm = Subject::start(false, "", pool, SPEAKS);
        let mut weir = Machine::start(true, "syslog.facility = mail", pool, SPEAKS);
        weir.hear("systemd monitor");
        weir.ask("/who.php");
        weir.news();
        fpm.news();
        let mut uris: Vec<String> = ["logs", "throws", "streams", "child", "none"]
            .map(|name| format!("/{name}.php"))
            .into();
        uris.push("/long.php?tens=70&rest=abc".into());
        for uri in uris {
            weir.ask(&uri);
            let weir = String::from_utf8_lossy(&weir.news()).into_owned();
            fpm.ask(&uri);
            let written = fpm.news();
            let mut expected = Vec::new();
            for line in written.split_inclusive(|byte| *byte == b'\n') {
                let line = replace(line, b"[T] WARNING: ", b"[WARNING] ");
                // Nothing after a zero byte is sent, as in PHP's own messages to syslog.
                let end = line.iter().position(|byte| matches!(byte, 0 | b'\n'));
                expected.extend(b"<21>T php-fpm[PID]: ");
                for byte in &line[..end.unwrap()] {
                    match byte {
                        0..0x20 | 0x7f => expected.extend(format!("\\x{byte:02x}").as_bytes()),
                        byte => expected.push(*byte),
                    }
                }
                expected.push(b'\n');
            }
            // Both programs count their own requests.
            let done = |text: &str| text.split("done-").next().unwrap().to_owned();
            let expected = done(&String::from_utf8_lossy(&expected));
            assert_same(
                done(&weir).as_bytes(),
                expected.as_bytes(),
                &format!("{pool:?}, {uri}"),
            );
        }
    }
}

/// Starts, crashes, signals and ends: the priority of each message, its name, its process and its text.
#[test]
fn syslog_gets_the_events_of_pools_as_php_fpm_sends_them() {
    if !goes_on_as_root() {
        return;
    }
    let scripts = [("dies.php", "<?php posix_kill(getmypid(), 9); sleep(9);")];
    for (global, pool) in [
        ("", ""),
        (
            "syslog.ident = \"two words\"\nsyslog.facility = user",
            "access.log = @/access.log",
        ),
        (
            "syslog.facility = local3",
            "pm = dynamic\npm.max_children = 3\npm.start_servers = 1\npm.min_spare_servers = 1\npm.max_spare_servers = 2",
        ),
        // All messages have the severity of this level.
        ("syslog.facility = local0\nlog_level = warning", ""),
    ] {
        let quiet = global.contains("warning");
        let both = [false, true].map(|weir| {
            let mut machine = Machine::start(weir, global, pool, &scripts);
            match quiet {
                true => machine.serves(),
                false => machine.hear("systemd monitor"),
            }
            let start = machine.news();
            get(
                &machine.place.path("fpm.sock"),
                &machine.place.path("dies.php"),
                "/dies.php",
            );
            machine.hear("exited on signal");
            if quiet {
                return vec![start, machine.news()];
            }
            machine.hear("started");
            let death = machine.news();
            machine.signal(Signal::USR1);
            machine.hear(match pool.contains("access.log") {
                true => "access log file re-opened",
                false => "error log file re-opened",
            });
            // php-fpm replaces its workers, so that they open their log again; weir's workers stay.
            if !weir && pool.contains("access.log") {
                machine.hear(" started");
            }
            let reopened = without_children(&machine.news());
            machine.signal(Signal::USR2);
            machine.hear("systemd monitor");
            let reload = machine.news();
            machine.signal(Signal::QUIT);
            machine.hear("bye-bye");
            let end = machine.news();
            vec![start, death, reopened, reload, end]
        });
        for (at, (weir, fpm)) in both[1].iter().zip(&both[0]).enumerate() {
            assert_same(weir, fpm, &format!("{global:?}, {pool:?}, step {at}"));
        }
    }
}

/// Without the lines about the ends and starts of workers.
fn without_children(news: &[u8]) -> Vec<u8> {
    let lines = news.split_inclusive(|byte| *byte == b'\n');
    let others = lines.filter(|line| !String::from_utf8_lossy(line).contains("] child "));
    others.flatten().copied().collect()
}

/// Messages before the start are sent to both, syslog and standard error.
#[test]
fn a_start_that_fails_is_told_to_syslog_as_php_fpm_tells_it() {
    if !goes_on_as_root() {
        return;
    }
    for (global, pool) in [
        ("log_level = notice", "pm.max_children = 0"),
        ("log_level = error", "listen = /no/such/folder/fpm.sock"),
    ] {
        let told = [false, true].map(|weir| {
            let mut machine = Machine::start(weir, global, pool, &[]);
            let said = String::from_utf8(machine.stderr()).unwrap();
            machine.socket.set_nonblocking(true).unwrap();
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length) = machine.socket.recv(&mut buffer) {
                machine.told.push(buffer[..length].to_vec());
            }
            (machine.news(), said)
        });
        assert_same(&told[1].0, &told[0].0, &format!("{pool:?}"));
        let plain = |said: &str| said.replace(char::is_numeric, "");
        assert_eq!(plain(&told[1].1), plain(&told[0].1));
        assert!(!told[0].0.is_empty());
    }
}
