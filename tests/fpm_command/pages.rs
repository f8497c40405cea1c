//! Status and ping pages, access logs, and the names in process lists.

use std::fs;
use weir_test::weir::program;

use crate::{
    support::{Answer, Place, Running, ask, children, wait_until},
    transcript::{Subject, assert_same},
};

/// A request with more parameters than the usual ones.
pub fn request(
    place: &Place,
    uri: &str,
    method: &str,
    more: &[(&str, &str)],
    body: &str,
) -> Answer {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let script = place.path(&path[1..]);
    let mut params = vec![
        ("SCRIPT_FILENAME", script.to_str().unwrap()),
        ("SCRIPT_NAME", path),
        ("REQUEST_METHOD", method),
        ("REQUEST_URI", uri),
        ("QUERY_STRING", query),
    ];
    params.extend(more);
    let stream = std::os::unix::net::UnixStream::connect(place.path("fpm.sock")).unwrap();
    stream
        .set_read_timeout(Some(crate::support::LIMIT))
        .unwrap();
    ask(stream, &params, body)
}

const PAGES: &str = "pm.status_path = /status\nping.path = /ping\n";

/// Leaves out times.
fn without_moments(page: &str) -> String {
    let own = ["start time", "start since"];
    let own: Vec<String> = own
        .iter()
        .flat_map(|name| [(*name).to_owned(), name.replace(' ', "-")])
        .collect();
    page.lines()
        .filter(|line| !own.iter().any(|name| line.contains(name.as_str())))
        .filter(|line| !line.contains("start_since "))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn pages_are_php_fpm_s_with_the_fields_and_headers_of_this_php() {
    for pool in [
        "",
        "php_admin_flag[expose_php] = on",
        "php_admin_flag[expose_php] = off",
    ] {
        let pool = format!("{PAGES}{pool}");
        let mut both = [false, true].map(|weir| Subject::start(weir, "", &pool, &[]));
        for subject in &mut both {
            // By then, there is a worker.
            subject.news();
        }
        for uri in [
            "/ping",
            "/status",
            "/status?xml",
            "/status?openmetrics",
            "/status?html",
            "/ping?x",
        ] {
            for method in ["GET", "HEAD"] {
                let [fpm, weir] = both
                    .each_ref()
                    .map(|subject| request(&subject.place, uri, method, &[], "").out)
                    .map(|page| without_moments(&page));
                assert_same(
                    weir.as_bytes(),
                    fpm.as_bytes(),
                    &format!("{pool:?} {method} {uri}"),
                );
            }
        }
    }
}

/// No worker has run, and weir has not loaded PHP for the pool.
#[test]
fn the_first_page_of_a_pool_on_demand_has_the_headers_of_php_fpm() {
    for (pool, arguments) in [
        ("", &["-d", "expose_php=1"][..]),
        ("", &["-d", "expose_php=0"]),
        ("php_admin_flag[expose_php] = on", &[]),
        ("php_admin_flag[expose_php] = off", &["-d", "expose_php=1"]),
    ] {
        for uri in ["/ping", "/status"] {
            let pool = format!("{PAGES}pm = ondemand\n{pool}");
            let pages = [false, true].map(|weir| {
                let place = Subject::place(weir, "", &pool, &[]);
                let running = Running::start(&Subject::program(weir, &place), &place, arguments);
                let subject = Subject::of(place, running);
                without_moments(&request(&subject.place, uri, "GET", &[], "").out)
            });
            assert_same(
                pages[1].as_bytes(),
                pages[0].as_bytes(),
                &format!("{pool} {arguments:?} {uri}"),
            );
        }
    }
}

/// In PHP-FPM another pool answers there, which has no access log.
#[test]
fn requests_of_status_listen_are_not_in_the_access_log() {
    let pool = format!(
        "{PAGES}pm.status_listen = @/status.sock\naccess.log = @/access.log\naccess.format = \"%r\""
    );
    let logs = [false, true].map(|weir| {
        let subject = Subject::start(weir, "", &pool, &[("a.php", "<?php echo 1;")]);
        for uri in ["/status", "/ping"] {
            let stream = std::os::unix::net::UnixStream::connect(subject.place.path("status.sock"));
            let params = [
                ("SCRIPT_NAME", uri),
                ("REQUEST_URI", uri),
                ("REQUEST_METHOD", "GET"),
            ];
            assert!(!ask(stream.unwrap(), &params, "").out.is_empty());
            request(&subject.place, uri, "GET", &[], "");
        }
        request(&subject.place, "/a.php", "GET", &[], "");
        wait_until("the last line", || {
            subject.place.read("access.log").contains("/a.php")
        });
        subject.place.read("access.log")
    });
    assert_eq!(logs[1], logs[0]);
    assert_eq!(logs[0], "/status\n/ping\n/a.php\n");
}

/// The counters of requests include these, too.
#[test]
fn status_and_ping_are_counted_as_php_fpm_counts_them() {
    let mut both = [false, true].map(|weir| Subject::start(weir, "", PAGES, &[]));
    for subject in &mut both {
        subject.news();
    }
    let counts = both.each_ref().map(|subject| {
        let counted = || {
            let page = request(&subject.place, "/status?json", "GET", &[], "").out;
            let count = page.split("\"accepted conn\":").nth(1).unwrap();
            count.split(',').next().unwrap().parse::<u32>().unwrap()
        };
        let first = counted();
        for _ in 0..3 {
            request(&subject.place, "/ping", "GET", &[], "");
        }
        (first, counted())
    });
    assert_eq!(counts[1], counts[0]);
}

#[test]
fn the_access_log_takes_what_is_declared_and_has_numbers_for_what_is_measured() {
    let pool = format!(
        "{PAGES}access.log = @/access.log\naccess.suppress_path[] = /quiet.php\n\
         access.format = \"%R|%u|%m|%r%Q%q|%s|%l|%n|%{{A}}e|%{{B}}e|%{{QUERY_STRING}}e|%{{X-E}}o|%{{X-F}}o|\
         %C|%{{user}}C|%{{system}}C|%{{total}}C|%M|%{{kilo}}M|%{{mega}}M|%d|%%\""
    );
    let scripts = [
        (
            "a.php",
            "<?php header('X-E: '); header('X-F: f'); $n = 0; while (microtime(true) < $_SERVER['REQUEST_TIME_FLOAT'] + 0.1) $n++;",
        ),
        ("quiet.php", "<?php echo file_get_contents('php://input');"),
    ];
    let logs = [false, true].map(|weir| {
        let subject = Subject::start(weir, "", &pool, &scripts);
        let ask = |uri: &str, method: &str, more: &[(&str, &str)], body: &str| {
            request(&subject.place, uri, method, more, body)
        };
        ask("/a.php?x=1&y=<2>", "GET", &[("A", "")], "");
        ask(
            "/a.php",
            "POST",
            &[("CONTENT_LENGTH", "5"), ("A", "a")],
            "12345",
        );
        for (length, body) in [
            ("0", ""),
            ("5", "12345"),
            ("5", ""),
            ("abc", ""),
            ("-5", ""),
            (" 7x", ""),
            ("", ""),
        ] {
            ask("/quiet.php", "GET", &[("CONTENT_LENGTH", length)], body);
        }
        ask("/quiet.php?q", "GET", &[], "");
        ask("/quiet.php", "POST", &[("CONTENT_LENGTH", "0")], "");
        ask("/ping", "GET", &[], "");
        ask("/status", "GET", &[], "");
        ask("/quiet.php?end", "GET", &[], "");
        wait_until("all is logged", || {
            subject.place.read("access.log").contains("?end")
        });
        let log = subject.place.read("access.log");
        let lines: Vec<(String, Vec<f64>)> = log
            .lines()
            .map(|line| {
                let fields: Vec<&str> = line.split('|').collect();
                let measured = fields[12..20].iter().map(|field| {
                    field
                        .parse()
                        .unwrap_or_else(|_| panic!("{field} is no number: {line}"))
                });
                (fields[..12].join("|"), measured.collect())
            })
            .collect();
        lines
    });
    let [fpm, weir] = logs.each_ref().map(|log| {
        log.iter()
            .map(|(line, _)| format!("{line}\n"))
            .collect::<String>()
    });
    assert_same(weir.as_bytes(), fpm.as_bytes(), "the access log");
    for log in &logs {
        // Both have measured the same work. The load of the machine decides how much time it took.
        let [total, user, _, again, memory, kilo, mega, _] = log[0].1[..] else {
            unreachable!()
        };
        assert!(user > 0.0 && total >= user, "{:?}", log[0]);
        assert_eq!(total, again);
        assert_eq!((kilo, mega), (memory / 1024.0, memory / 1024.0 / 1024.0));
    }
}

/// `ps -C php-fpm8.2`, `pgrep -x`, `killall`: they look at the process name in the kernel.
#[test]
fn lists_of_processes_show_php_fpm_s_names() {
    let names = [false, true].map(|weir| {
        let mut subject = Subject::start(weir, "", "", &[]);
        subject.news();
        let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let shown = || {
            let mut all = vec![subject.running.pid];
            let mut found = Vec::new();
            while let Some(pid) = all.pop() {
                all.extend(children(pid).iter().map(|(child, _)| *child));
                let line = crate::support::command_line(pid);
                let line = line.split(" (").next().unwrap().to_owned();
                if line.starts_with("php-fpm:") {
                    found.push(format!("{} {line}", name(pid).trim()));
                }
            }
            found.sort();
            found.dedup();
            found
        };
        // A worker has its name a moment after it was forked.
        wait_until("a master and its workers", || shown().len() == 2);
        shown()
    });
    assert_eq!(names[1], names[0]);
}

/// A unit's process that is started as `weir fpm` has the same name.
#[test]
fn weir_fpm_is_called_as_php_fpm_is() {
    let place = Subject::place(true, "", "", &[]);
    let file = place.path("php-fpm.conf");
    let mut child = std::process::Command::new(program())
        .args(["fpm", "-F", "-y", file.to_str().unwrap()])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_until("it is ready", || {
        place.read("error.log").contains("ready to handle")
    });
    let name = fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
    // The newest PHP for which a weir-php exists.
    assert!(name.starts_with("php-fpm8."), "{name}");
}
