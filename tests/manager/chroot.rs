//! A gateway in a chroot: it finds what lies inside by the path from outside, and it opened what lies outside before.
//! Only root can use a chroot.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use weir_test::weir::write;

use crate::support::*;

#[test]
fn files_scripts_pages_spool_and_logs_work_inside_and_outside_of_a_chroot() {
    if !goes_on_as_root() {
        return;
    }
    for jail in ["", "/jail"] {
        let command = ["php-cgi", "-d", "log_errors=1"];
        let site = cgi_site()
            .file("missing.html", "no such page here")
            .file(
                "length.php",
                "<?php echo 'length=', strlen(file_get_contents('php://input'));",
            )
            .pool(&pool_command(&command))
            .more("[[site.main.route]]\npath = \"/denied\"\ndeny = true");
        fs::create_dir(site.path("jail")).unwrap();
        write(&site.path("pages/denied.html"), b"not for you");
        let folder = site.folder().display();
        let pages = format!(
            "error_pages = {{ 404 = \"missing.html\", 403 = \"{folder}/pages/denied.html\" }}"
        );
        let weir = site
            .clone()
            .server(&format!("chroot = \"{folder}{jail}\""))
            .site(&pages)
            .log(&format!("error = \"{folder}/log/error.log\""))
            .start();
        weir.wait_for_line("log/error.log", &["serves (process"]);
        let root = fs::read_link(format!("/proc/{}/root", weir.gateway().pid)).unwrap();
        assert_eq!(root, Path::new(&format!("{folder}{jail}")));
        let file = weir.get("/a.txt").text();
        assert!(file.contains("hello"), "chroot {jail:?}");
        let missing = weir.get("/none.txt").expect(404).text();
        assert!(missing.contains("no such page here"), "{missing}");
        let denied = weir.get("/denied").expect(403).text();
        assert!(denied.contains("not for you"), "{denied}");
        pid(&weir);
        let body = vec![b'x'; 1 << 20];
        let answer = weir.request("POST", "/length.php", &[], &body).text();
        assert_eq!(answer, "length=1048576");
        weir.wait_for_line("log/access.log", &["POST /length.php"]);
        let log = site.path("log/access.log");
        fs::rename(&log, site.path("log/access.log.1")).unwrap();
        weir.signal(Signal::USR1);
        wait_until("the log is there again", || log.exists());
        wait_until("a request is in the new log", || {
            weir.get("/b.txt");
            weir.read("log/access.log").contains("/b.txt")
        });
    }
}

#[test]
fn a_servers_socket_is_reached_inside_of_a_chroot_and_one_outside_is_told_at_the_start() {
    if !goes_on_as_root() {
        return;
    }
    let site = site_without_pool();
    fs::create_dir(site.path("jail")).unwrap();
    let socket = site.path("php.sock");
    let _php = Php::listen(&socket);
    let site = site.pool(&format!(
        "runtime = \"servers\"\nservers = [\"unix:{}\"]\nqueue.maxconn = 1",
        socket.display()
    ));
    let folder = site.folder().display();
    let chroot = format!("chroot = \"{folder}\"");
    let weir = site.clone().server(&chroot).start();
    let answer = weir.get("/pid.php").text();
    assert!(answer.contains("pid="), "{answer}");
    drop(weir);

    let chroot = format!("chroot = \"{folder}/jail\"");
    let weir = site.clone().server(&chroot).start();
    let line = weir.log_line("cannot reach unix:");
    assert!(line.contains("[pool.app] servers: "), "{line}");
    assert!(
        line.contains("/jail") && line.contains("php.sock"),
        "{line}"
    );
    assert!(weir.get("/a.txt").text().contains("hello"));
    let answer = weir.get("/pid.php");
    assert!((500..510).contains(&answer.status), "{answer:?}");
}

/// A FastCGI server that does not belong to weir.
struct Php(Child);

impl Php {
    fn listen(socket: &Path) -> Self {
        let process = Command::new("php-cgi")
            .arg("-b")
            .arg(socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let php = Self(process);
        wait_until("php-cgi listens", || socket.exists());
        mode(socket, 0o777);
        php
    }
}

impl Drop for Php {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
