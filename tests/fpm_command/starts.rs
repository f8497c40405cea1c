//! Starts in the foreground and in the background, and what remains afterwards.

use std::{
    fs,
    os::unix::{fs::FileTypeExt, net::UnixListener},
    process::{Command, Stdio},
};

use crate::support::{
    PHP_FPM, Place, Running, children, command_line, get, goes_on_as_root, is_alive, say,
    wait_until, web_user,
};

pub fn configuration(global: &str, pool: &str) -> String {
    format!(
        "[global]\nerror_log = @/error.log\npid = @/fpm.pid\n{global}\n[www]\nuser = {}\nlisten = @/fpm.sock\n\
         listen.mode = 0666\npm = static\npm.max_children = 2\n{pool}\n",
        web_user()
    )
}

#[test]
fn a_start_in_the_foreground_is_told_and_seen_as_php_fpm_s() {
    for weir in [false, true] {
        let place = Place::new();
        place.write("php-fpm.conf", configuration("", ""));
        let program = if weir { place.weir() } else { PHP_FPM.clone() };
        let mut running = Running::start(&program, &place, &[]);
        let pid = running.pid;
        let log = running.log();
        assert!(
            log.contains(&format!("NOTICE: fpm is running, pid {pid}\n")),
            "{log}"
        );
        assert_eq!(place.read("fpm.pid"), pid.to_string());
        let socket = fs::metadata(place.path("fpm.sock")).unwrap();
        assert!(socket.file_type().is_socket());
        let title = format!(
            "php-fpm: master process ({})",
            place.path("php-fpm.conf").display()
        );
        assert_eq!(command_line(pid), title);
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        let expected = program.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(name.trim(), expected);
        wait_until("the workers are there", || {
            let mut all = children(pid);
            let below: Vec<_> = all.iter().flat_map(|(child, _)| children(*child)).collect();
            all.extend(below);
            let workers = all.iter().filter(|(_, line)| line == "php-fpm: pool www");
            // weir has one process more: the one that forks the workers.
            workers.count() >= 2 + usize::from(weir)
        });
        running.signal(rustix::process::Signal::TERM);
        let status = running.end().unwrap();
        assert_eq!(status.code(), Some(0), "{}", running.log());
        for left in ["fpm.pid", "fpm.sock"] {
            assert!(!place.path(left).exists(), "{left}");
        }
    }
}

#[test]
fn a_daemon_is_ready_when_its_starter_ends() {
    for weir in [false, true] {
        let place = Place::new();
        let file = place.write("php-fpm.conf", configuration("", ""));
        place.write("a.php", "<?php echo 'served';");
        let program = if weir { place.weir() } else { PHP_FPM.clone() };
        // daemonize = yes is the default; -D says so, too.
        let mut arguments = vec!["-y", file.to_str().unwrap()];
        if weir {
            arguments.push("-D");
        }
        let started = say(&program, &arguments);
        assert_eq!(started.code, Some(0), "{}", started.text);
        let pid: u32 = place.read("fpm.pid").trim().parse().unwrap();
        let mut running = Running::daemon(&place, pid);
        assert!(is_alive(pid));
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        assert_ne!(fields[1], std::process::id().to_string(), "its parent");
        assert_eq!(fields[3], pid.to_string(), "its session");
        assert_eq!(fields[4], "0", "its terminal");
        for descriptor in [0, 1] {
            let link = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).unwrap();
            assert_eq!(link.to_str(), Some("/dev/null"));
        }
        let link = fs::read_link(format!("/proc/{pid}/fd/2")).unwrap();
        assert_eq!(link, place.path("error.log"));
        let answer = get(&place.path("fpm.sock"), &place.path("a.php"), "/a.php");
        assert!(answer.out.ends_with("served"), "{answer:?}");
        running.signal(rustix::process::Signal::QUIT);
        running.end();
        running.wait_for_log("exiting, bye-bye!");
        assert!(!place.path("fpm.pid").exists());
    }
}

/// Both give the same messages for a start that fails. The exit code is 78 in the foreground, and 70 from the process
/// that started a daemon.
#[test]
fn what_keeps_it_from_starting_is_told_as_php_fpm_tells_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let place = Place::new();
    let _other = UnixListener::bind(place.path("other.sock")).unwrap();
    for (global, pool) in [
        ("", format!("listen = 127.0.0.1:{port}")),
        ("", "listen = @/other.sock".to_owned()),
        ("", "listen = /no/such/folder/fpm.sock".to_owned()),
        ("pid = /no/such/folder/fpm.pid", String::new()),
        ("", "listen = 127.0.0.1:0".to_owned()),
    ] {
        let file = place.write("php-fpm.conf", configuration(global, &pool));
        for (arguments, code) in [(&["-F"][..], 78), (&["-D"], 70)] {
            let arguments = [arguments, &["-y", file.to_str().unwrap()]].concat();
            let (fpm, weir) = place.both(&arguments);
            assert_eq!(weir, fpm, "{global}{pool}");
            assert_eq!(weir.code, Some(code), "{pool}: {}", weir.text);
        }
    }
}

#[test]
fn a_pool_that_would_be_root_s_is_refused() {
    if !goes_on_as_root() {
        return;
    }
    let place = Place::new();
    for pool in ["user = root", "group = root", "user = 0"] {
        let file = place.write("php-fpm.conf", configuration("", pool));
        let (fpm, weir) = place.both(&["-F", "-y", file.to_str().unwrap()]);
        assert_eq!(weir, fpm, "{pool}");
        assert!(weir.text.contains("other than root"), "{}", weir.text);
    }
    // PHP-FPM would start with it.
    let file = place.write("php-fpm.conf", configuration("", "user = root"));
    let weir = say(&place.weir(), &["-F", "-R", "-y", file.to_str().unwrap()]);
    assert_eq!(weir.code, Some(78));
    assert!(
        weir.text.contains("runs no script as root"),
        "{}",
        weir.text
    );
}

#[test]
fn errors_go_to_standard_error_where_that_is_asked_for() {
    for weir in [false, true] {
        let place = Place::new();
        let file = place.write("php-fpm.conf", configuration("", ""));
        let program = if weir { place.weir() } else { PHP_FPM.clone() };
        let errors = fs::File::create(place.path("stderr")).unwrap();
        let mut child = Command::new(&program)
            .args(["-F", "-O", "-y", file.to_str().unwrap()])
            .stdin(Stdio::null())
            .stderr(errors)
            .spawn()
            .unwrap();
        wait_until("it is ready", || {
            place.read("stderr").contains("ready to handle connections")
        });
        assert_eq!(place.read("error.log"), "", "weir: {weir}");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
    }
}

/// systemd's Type=notify, which Debian's unit has.
#[test]
fn the_service_manager_hears_that_it_is_ready() {
    let place = Place::new();
    let file = place.write("php-fpm.conf", configuration("", ""));
    let socket = std::os::unix::net::UnixDatagram::bind(place.path("notify")).unwrap();
    let limit = Some(std::time::Duration::from_secs(60));
    socket.set_read_timeout(limit).unwrap();
    let mut child = Command::new(place.weir())
        .args(["-F", "-y", file.to_str().unwrap()])
        .env("NOTIFY_SOCKET", place.path("notify"))
        .env("WATCHDOG_USEC", "200000")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hear = |what: &str| {
        let mut buffer = [0; 1024];
        loop {
            let length = socket
                .recv(&mut buffer)
                .unwrap_or_else(|_| panic!("{what}"));
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.contains(what) {
                return text;
            }
        }
    };
    let ready = hear("READY=1");
    assert!(
        ready.contains(&format!("MAINPID={}", child.id())),
        "{ready}"
    );
    hear("WATCHDOG=1");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::USR2).unwrap();
    let reloading = hear("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    hear("READY=1");
    rustix::process::kill_process(pid, rustix::process::Signal::QUIT).unwrap();
    hear("STOPPING=1");
    assert!(child.wait().unwrap().success());
}
