//! Debian's own php-fpm configuration and scripts, without any change, with weir in the place of php-fpm.
//!
//! Private mounts put a program in the place of /usr/sbin/php-fpm8.2, and empty folders in the places of the folders
//! that it writes to. Debian's scripts end all processes of the program with that path, also those of other tests: so they run in a
//! process namespace of their own. That requires root.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::support::{PHP_FPM, Place, get, goes_on_as_root, version, wait_until, without_times};

/// A shell that keeps the mounts, and is process 1 of the namespace: bash, because it waits for the processes that it inherits.
struct Machine {
    keeper: Child,
    place: Place,
}

/// `$1`: the program; `$2`: where it belongs; `$3`: weir-php's object.
const MOUNTS: &str = "set -e
mount --make-rprivate / 2>/dev/null || true
for folder in /run /var/log /usr/local/lib; do mount -t tmpfs -o mode=755 tmpfs $folder; done
mkdir /usr/local/lib/weir /run/php
cp \"$3\" /usr/local/lib/weir/
mount --bind \"$1\" \"$2\"
echo done
read line || true";

impl Machine {
    /// `None` where mounts are not allowed.
    fn with(program: &Path) -> Self {
        let place = Place::new();
        let weir = Path::new(weir_test::weir::program());
        let files = fs::read_dir(weir.with_file_name("../php")).unwrap();
        let is_object = |path: &PathBuf| path.extension().is_some_and(|end| end == "so");
        let mut files = files.flatten().map(|file| file.path());
        let php = files.find(is_object).expect("`make php` builds it");
        let mut keeper = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--mount-proc"])
            .args(["bash", "-c", MOUNTS, "bash"])
            .args([program, PHP_FPM.as_path(), &php])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(keeper.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        if line != "done\n" {
            let _ = keeper.wait();
            panic!(
                "this test needs mounts of its own: `unshare --mount` must work, as it does for root outside of containers"
            );
        }
        Self { keeper, place }
    }

    /// The path outside of the mounts for a file inside.
    fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.keeper.id()))
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Runs a program inside, and returns its exit code.
    fn run(&self, command: &[&str]) -> Option<i32> {
        let keeper = self.keeper.id().to_string();
        let mut child = Command::new("nsenter")
            .args(["--mount", "--target", &keeper])
            .arg(format!("--pid=/proc/{keeper}/ns/pid_for_children"))
            .arg("--")
            .args(command)
            .env("VERBOSE", "no")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.wait().unwrap().code()
    }

    fn log(&self) -> String {
        without_times(&self.read(&format!("/var/log/php{}-fpm.log", version())))
    }

    /// The number that its process has inside.
    fn pid(&self) -> u32 {
        let pid = self.read(&format!("/run/php/php{}-fpm.pid", version()));
        pid.trim().parse().unwrap_or_default()
    }

    fn runs(&self, pid: u32) -> bool {
        self.path(&format!("/proc/{pid}")).exists()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // All processes of a namespace end with its process 1.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

#[test]
fn debian_s_scripts_start_reload_and_stop_it() {
    if !goes_on_as_root() {
        return;
    }
    let weir = Path::new(weir_test::weir::program());
    for program in [PHP_FPM.as_path(), weir] {
        let machine = Machine::with(program);
        let init = format!("/etc/init.d/php{}-fpm", version());
        let init = |what: &str| machine.run(&[&init, what]);
        assert_eq!(init("start"), Some(0), "{program:?}: {}", machine.log());
        assert_eq!(init("status"), Some(0));
        let pid = machine.pid();
        assert!(machine.runs(pid));
        // Already running.
        assert_eq!(init("start"), Some(0));
        assert_eq!(machine.pid(), pid);

        let socket = machine.path(&format!("/run/php/php{}-fpm.sock", version()));
        let script = machine.place.write(
            "a.php",
            "<?php echo posix_getpwuid(posix_geteuid())['name'], PHP_SAPI;",
        );
        let answer = get(&socket, &script, "/a.php");
        assert!(answer.out.ends_with("www-datafpm-fcgi"), "{answer:?}");

        assert_eq!(init("reload"), Some(0));
        let ready = || machine.log().matches("ready to handle").count();
        wait_until("it is ready again", || ready() == 2);
        assert!(machine.log().contains("NOTICE: Reloading in progress ..."));
        // PHP-FPM starts a second time in the background.
        let pid = machine.pid();
        let answer = get(&socket, &script, "/a.php");
        assert!(answer.out.ends_with("www-datafpm-fcgi"), "{answer:?}");

        // As logrotate does.
        let log = machine.path(&format!("/var/log/php{}-fpm.log", version()));
        fs::rename(&log, log.with_extension("log.1")).unwrap();
        let reopen = format!("/usr/lib/php/php{}-fpm-reopenlogs", version());
        assert_eq!(machine.run(&[&reopen]), Some(0));
        wait_until("the log is new", || {
            machine.log().contains("log file re-opened")
        });

        assert_eq!(init("stop"), Some(0));
        assert!(!machine.runs(pid));
        assert!(machine.log().contains("NOTICE: exiting, bye-bye!"));
        assert!(!socket.exists());
    }
}
