//! A site with PHP, and what tests of this program ask of it.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

pub use rustix::process::Signal;
pub use weir_test::{
    Client, DONE_BY_ROOT, Response, Setup, Weir, goes_on_as_root, is_root,
    process::{is_alive, signal},
    scaled, wait_until, web_user,
    weir::{PROGRAM, mode, program, request},
};

/// A site with two php-cgi for its scripts.
pub fn cgi_site() -> Setup {
    site_without_pool().pool("runtime = \"command\"\ncommand = [\"php-cgi\"]\nmax_children = 2")
}

/// A site without an access log, and some scripts.
pub fn site_without_pool() -> Setup {
    let setup = Setup::new()
        .file("a.txt", "hello\n")
        .file(
            "pid.php",
            "<?php echo 'pid=', getmypid(), ' uid=', posix_getuid(), ' ';",
        )
        .file(
            "slow.php",
            "<?php touch(__DIR__ . '/started'); sleep(2); echo 'slow done';",
        )
        .file(
            "endless.php",
            "<?php touch(__DIR__ . '/started'); while (true) sleep(1);",
        )
        .log("access = \"off\"\nerror = \"stderr\"");
    // Scripts write there, as another user.
    mode(&setup.root(), 0o777);
    fs::create_dir(setup.path("other")).unwrap();
    let pid_file = setup.path("weir.pid");
    setup.server(&format!(
        "user = \"{}\"\npid_file = \"{}\"\nshutdown_timeout = \"30s\"",
        web_user(),
        pid_file.display()
    ))
}

/// The line that makes this the pool's command.
pub fn pool_command(words: &[&str]) -> String {
    format!("command = {words:?}")
}

/// The site, served on a unix socket too: `weir.sock` in its folder.
pub fn with_unix_listener(site: Setup) -> Setup {
    let socket = site.path("weir.sock");
    site.more(&format!(
        "[listen.unix]\naddress = \"unix:{}\"\nmode = \"0600\"",
        socket.display()
    ))
}

/// The process that runs the next script.
pub fn pid(weir: &Weir) -> u32 {
    pid_in(&answer_of_pid(weir))
}

/// The answer of `pid.php`, once a worker gives it.
pub fn answer_of_pid(weir: &Weir) -> Response {
    weir.get_until("/pid.php", |answer| answer.text().contains("pid="))
}

/// The process that `pid.php` names in its answer.
pub fn pid_in(answer: &Response) -> u32 {
    number(answer, "pid")
}

/// A number that a script prints about itself.
pub fn number(answer: &Response, name: &str) -> u32 {
    let text = answer.text();
    let (_, rest) = text
        .split_once(&format!("{name}="))
        .unwrap_or_else(|| panic!("no {name} in {answer:?}"));
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// GET over a new connection.
pub fn get(address: SocketAddr, path: &str) -> Response {
    let mut client = Client::connect(address);
    client.send(request("GET", path, &[], b""));
    client.response()
}

/// Stops a process with all of its threads.
pub fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    wait_until("all of its threads are stopped", || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let mut states = threads
            .flatten()
            .map(|thread| fs::read_to_string(thread.path().join("stat")));
        states.all(|state| state.is_ok_and(|state| state.contains(") T ")))
    });
}

/// The number of a user.
pub fn id(user: &str) -> u32 {
    let output = Command::new("id").args(["-u", user]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().parse().unwrap()
}

/// The object of weir's own PHP, which is loaded into PHP programs.
pub fn php_object() -> PathBuf {
    let mut files = php_files().into_iter();
    let is_object = |path: &PathBuf| path.extension().is_some_and(|end| end == "so");
    files.find(is_object).expect("`make php` builds it")
}

/// The files of weir's own PHP, from the build or beside the tested weir.
pub fn php_files() -> Vec<PathBuf> {
    let own = Path::new(program()).parent().unwrap().to_owned();
    let built = own.parent().unwrap().join("php");
    let files = [own, built]
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let files = files.flatten().flatten().map(|file| file.path());
    let is_php = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("weir-php") && !name.ends_with(".new")
    };
    let programs: Vec<PathBuf> = files.filter(is_php).collect();
    assert!(!programs.is_empty(), "`make php` builds them");
    programs
}

/// Containers often let every user listen on any port.
pub fn low_ports_are_free() -> bool {
    let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    first.trim().parse::<u16>().unwrap() <= 80
}

/// The sockets of this machine that listen on this TCP address.
pub fn inodes_of_listeners(address: SocketAddr) -> Vec<String> {
    let SocketAddr::V4(v4) = address else {
        panic!("{address} is no IPv4 address");
    };
    // proc_pid_net(5): the address as the machine keeps it in memory.
    let local = format!(
        "{:08X}:{:04X}",
        u32::from_ne_bytes(v4.ip().octets()),
        v4.port()
    );
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table.lines().map(|line| line.split_whitespace().collect());
    let listens = |fields: &Vec<&str>| fields.get(1) == Some(&local.as_str()) && fields[3] == "0A";
    fields
        .filter(listens)
        .map(|fields: Vec<&str>| fields[9].to_owned())
        .collect()
}
