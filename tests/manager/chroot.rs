//! A gateway in a chroot: it finds what lies inside by the path from outside, and it opened what lies outside before.
//! Only root can use a chroot.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::support::*;

#[test]
fn files_scripts_pages_spool_and_logs_work_inside_and_outside_of_a_chroot() {
    if !goes_on_as_root() {
        return;
    }
    for jail in ["", "/jail"] {
        let site = Site::new().log_files();
        for folder in ["jail", "pages", "spool"] {
            fs::create_dir(site.path(folder)).unwrap();
        }
        fs::set_permissions(site.path("spool"), PermissionsExt::from_mode(0o777)).unwrap();
        fs::write(site.path("site/missing.html"), "no such page here").unwrap();
        fs::write(site.path("pages/denied.html"), "not for you").unwrap();
        let length = "<?php echo 'length=', strlen(file_get_contents('php://input'));";
        fs::write(site.path("site/length.php"), length).unwrap();
        let folder = site.folder.path().display();
        let text = site
            .text()
            .replace(
                "[server]",
                &format!("[server]\nchroot = \"{folder}{jail}\"\nspool_dir = \"{folder}/spool\""),
            )
            .replace(
                "[pool.php]",
                &format!(
                    "error_pages = {{ 404 = \"missing.html\", 403 = \"{folder}/pages/denied.html\" }}\n\
                     [[site.test.route]]\npath = \"/denied\"\ndeny = true\n[pool.php]"
                ),
            )
            .replace("error = \"stderr\"", &format!("error = \"{folder}/error.log\""))
            .replace("php-cgi\"]", "php-cgi\", \"-d\", \"log_errors=1\"]");
        let weir = Weir::start_quietly(&site, &text);
        let root = fs::read_link(format!("/proc/{}/root", weir.gateway())).unwrap();
        assert_eq!(root, Path::new(&format!("{folder}{jail}")));
        assert!(weir.get("/a.txt").contains("hello"), "chroot {jail:?}");
        let missing = weir.get("/none.txt");
        assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
        assert!(missing.contains("no such page here"), "{missing}");
        let denied = weir.get("/denied");
        assert!(denied.starts_with("HTTP/1.1 403 "), "{denied}");
        assert!(denied.contains("not for you"), "{denied}");
        weir.get_until("/pid.php", |answer| answer.contains("pid="));
        let body = vec![b'x'; 1 << 20];
        let answer = request(weir.port, "POST", "/length.php", &body);
        assert!(answer.contains("length=1048576"), "{answer}");
        let logged = |name: &str, what: &str| {
            wait_until("the log has the line", || {
                fs::read_to_string(site.path(name)).is_ok_and(|text| text.contains(what))
            });
        };
        logged("access.log", "POST /length.php");
        logged("error.log", "serves (process");
        fs::rename(site.path("access.log"), site.path("access.log.1")).unwrap();
        signal(weir.process.id(), Signal::USR1);
        wait_until("the log is there again", || {
            site.path("access.log").exists()
        });
        wait_until("a request is in the new log", || {
            weir.get("/b.txt");
            fs::read_to_string(site.path("access.log"))
                .unwrap()
                .contains("/b.txt")
        });
        weir.stop();
    }
}

#[test]
fn a_servers_socket_is_reached_inside_of_a_chroot_and_one_outside_is_told_at_the_start() {
    if !goes_on_as_root() {
        return;
    }
    let site = Site::new();
    fs::create_dir(site.path("jail")).unwrap();
    let socket = site.path("php.sock");
    let _php = Php::listen(&socket);
    let folder = site.folder.path().display();
    let text = |chroot: &str| {
        let text = site.text();
        let (before, _) = text.split_once("[pool.php]").unwrap();
        let before = before.replace("[server]", &format!("[server]\nchroot = \"{chroot}\""));
        format!(
            "{before}[pool.php]\nruntime = \"servers\"\nservers = [\"unix:{}\"]\n\
             [pool.php.queue]\nmaxconn = 1\n[log]\naccess = \"off\"\nerror = \"stderr\"\n",
            socket.display()
        )
    };
    let weir = Weir::start_with(&site, &text(&folder.to_string()));
    let answer = weir.get("/pid.php");
    assert!(answer.contains("pid="), "{answer}");
    weir.stop();

    let weir = Weir::start_with(&site, &text(&format!("{folder}/jail")));
    let line = weir.log_line("cannot reach unix:");
    assert!(line.contains("[pool.php] servers: "), "{line}");
    assert!(
        line.contains("/jail") && line.contains("php.sock"),
        "{line}"
    );
    assert!(weir.get("/a.txt").contains("hello"));
    let answer = weir.get("/pid.php");
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    weir.stop();
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
        fs::set_permissions(socket, PermissionsExt::from_mode(0o777)).unwrap();
        php
    }
}

impl Drop for Php {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
