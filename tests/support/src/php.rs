//! PHP from Debian's packages: a private PHP-FPM, and php-cgi as a pool's command.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::process::{descendants, newest, signal, wait};
use crate::{GROUP, LIMIT, USER, free_address, is_root, wait_until};

/// A PHP-FPM for one test.
pub struct Fpm {
    child: Child,
    folder: PathBuf,
    server: String,
}

impl Fpm {
    /// A PHP-FPM with this many children on a unix socket in this folder.
    pub fn unix(folder: &Path, children: usize) -> Fpm {
        Fpm::unix_with(folder, children, "")
    }

    /// The same, with these lines for the pool, which is called `app`.
    pub fn unix_with(folder: &Path, children: usize, lines: &str) -> Fpm {
        let path = folder.join("fpm.sock");
        let fpm = Fpm::start(
            folder,
            &path.display().to_string(),
            &format!("unix:{}", path.display()),
            children,
            lines,
        );
        fpm.wait(|| UnixStream::connect(&path).is_ok());
        fpm
    }

    /// A PHP-FPM with this many children on TCP.
    pub fn tcp(folder: &Path, children: usize) -> Fpm {
        let address: SocketAddr = free_address();
        let text = address.to_string();
        let fpm = Fpm::start(folder, &text, &text, children, "");
        fpm.wait(|| TcpStream::connect(address).is_ok());
        fpm
    }

    fn start(folder: &Path, listen: &str, server: &str, children: usize, lines: &str) -> Fpm {
        let identity = if is_root() {
            format!("user = {USER}\ngroup = {GROUP}\n")
        } else {
            String::new()
        };
        let text = format!(
            "[global]\n\
             error_log = {folder}/fpm.log\n\
             daemonize = no\n\
             [app]\n\
             {identity}\
             listen = {listen}\n\
             listen.mode = 0666\n\
             pm = static\n\
             pm.max_children = {children}\n\
             catch_workers_output = yes\n\
             clear_env = yes\n\
             php_admin_value[upload_max_filesize] = 64M\n\
             php_admin_value[post_max_size] = 64M\n\
             php_admin_value[sendmail_path] = {MAILER}\n\
             {lines}",
            folder = folder.display(),
        );
        let conf = folder.join("fpm.conf");
        fs::write(&conf, text).expect("fpm.conf");
        let child = Command::new(fpm())
            .arg("-F")
            .arg("-y")
            .arg(&conf)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("fpm.out")).expect("fpm.out"))
            .spawn()
            .expect("php-fpm");
        Fpm {
            child,
            folder: folder.to_owned(),
            server: server.to_owned(),
        }
    }

    fn wait(&self, ready: impl FnMut() -> bool) {
        wait_until("PHP-FPM accepts", ready);
    }

    /// The configuration of a pool with this server and this `maxconn`.
    pub fn pool(&self, maxconn: usize) -> String {
        format!(
            "runtime = \"servers\"\nservers = [\"{}\"]\nqueue.maxconn = {maxconn}\n",
            self.server
        )
    }

    /// The address, in the format of `servers`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends a signal to it and its children.
    pub fn signal(&self, which: Signal) {
        let children = descendants(self.child.id());
        signal(self.child.id(), which);
        children.iter().for_each(|child| signal(child.pid, which));
    }

    /// The path of its unix socket.
    pub fn socket(&self) -> &str {
        self.server.trim_start_matches("unix:")
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("fpm.log")).unwrap_or_default()
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        let workers = descendants(self.child.id());
        signal(self.child.id(), Signal::TERM);
        if wait(&mut self.child, LIMIT).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        for worker in workers.iter().filter(|worker| worker.runs()) {
            signal(worker.pid, Signal::KILL);
        }
        if std::thread::panicking() {
            eprintln!("--- PHP-FPM's log\n{}", self.log());
        }
    }
}

/// The configuration of a pool with this many php-cgi processes.
pub fn cgi_pool(children: usize) -> String {
    format!(
        "runtime = \"command\"\n\
         command = [\"{}\", \"-d\", \"upload_max_filesize=64M\", \"-d\", \"post_max_size=64M\", \"-d\", \"sendmail_path={MAILER}\"]\n\
         max_children = {children}\n{}",
        newest("/usr/bin", "php-cgi").display(),
        identity(),
    )
}

/// The configuration of a pool with weir's own PHP, with as many workers as needed up to this maximum.
pub fn own_pool(children: usize) -> String {
    format!(
        "runtime = \"php\"\nmax_children = {children}\n\
         php_admin_value = {{ upload_max_filesize = \"64M\", post_max_size = \"64M\", sendmail_path = \"{MAILER}\" }}\n{}",
        identity(),
    )
}

/// The PHP-FPM of the newest PHP.
pub fn fpm() -> PathBuf {
    newest("/usr/sbin", "php-fpm")
}

/// A pool with a fixed number of workers of weir's own PHP.
pub fn own(workers: usize, lines: &str) -> String {
    let identity = identity();
    format!("runtime = \"php\"\npm = \"static\"\nmax_children = {workers}\n{identity}{lines}")
}

/// The lines of a pool that set the user of its command if the tests run as root.
pub fn identity() -> String {
    if is_root() {
        format!("user = \"{USER}\"\ngroup = \"{GROUP}\"\n")
    } else {
        String::new()
    }
}

/// Accepts the mail that an application sends. The machine's own mailer might look up names, or deliver the mail.
const MAILER: &str = "/bin/true";
