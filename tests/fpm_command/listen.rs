//! Where both programs listen, and their messages if they cannot.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::mpsc,
    thread,
};

use crate::{
    starts::configuration,
    support::{LIMIT, PHP_FPM, Place, Running, ask, encode, get, wait_until, web_user},
    transcript::Subject,
};

/// A port that is free for both kinds of addresses.
fn port() -> u16 {
    let listener = TcpListener::bind("[::]:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The addresses with this port on which somebody listens, as the kernel lists them, each once.
fn listened_on(port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (address, at) = fields[1].split_once(':').unwrap();
            if fields[3] == LISTEN && at == format!("{port:04X}") {
                found.push(format!("{table} {address}"));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn of_tcp(listen: &str) -> String {
    let user = web_user();
    format!(
        "[global]\nerror_log = @/error.log\n[www]\nuser = {user}\nlisten = {listen}\npm = static\n\
         pm.max_children = 1\n"
    )
}

/// Starts one of the two programs with this address. Returns what the kernel lists, who can connect, and the log.
fn started(weir: bool, listen: &str, port: u16, ips: &[&str]) -> (Vec<String>, Vec<bool>, String) {
    let place = Place::new();
    place.write("php-fpm.conf", of_tcp(listen));
    let script = place.write("a.php", "<?php echo 'served';");
    let mut running = Running::start(&Subject::program(weir, &place), &place, &[]);
    let listened = listened_on(port);
    let answers = ips.iter().map(|ip| {
        let address = SocketAddr::new(ip.parse().unwrap(), port);
        let Ok(stream) = TcpStream::connect(address) else {
            return false;
        };
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let params = [
            ("SCRIPT_FILENAME", script.to_str().unwrap()),
            ("SCRIPT_NAME", "/a.php"),
            ("REQUEST_METHOD", "GET"),
            ("REQUEST_URI", "/a.php"),
        ];
        ask(stream, &params, "").out.ends_with("served")
    });
    let answers: Vec<bool> = answers.collect();
    running.signal(rustix::process::Signal::TERM);
    running.end();
    let log = running.log();
    let pid = running.pid.to_string();
    (listened, answers, log.replace(&pid, "PID"))
}

#[test]
fn every_form_of_listen_is_the_same_sockets() {
    for form in [
        "P",
        "[::]:P",
        ":::P",
        "*:P",
        "0.0.0.0:P",
        "localhost:P",
        "[::1]:P",
        "::1:P",
        "127.1:P",
        "[::ffff:127.0.0.1]:P",
        "127.0.0.1: +0P",
    ] {
        let port = port();
        let listen = form.replace('P', &port.to_string());
        let [fpm, weir] =
            [false, true].map(|weir| started(weir, &listen, port, &["127.0.0.1", "::1"]));
        assert_eq!(weir, fpm, "{form}");
        assert!(!weir.0.is_empty(), "{form}");
    }
}

/// PHP-FPM falls back from both kinds of addresses to IPv4, and from one address of a name to the next.
#[test]
fn what_is_taken_is_passed_over_as_by_php_fpm() {
    for (taken, free, form) in [
        ("[::1]:0", "127.0.0.1", "P"),
        ("[::1]:0", "127.0.0.1", "*:P"),
        ("127.0.0.1:0", "::1", "*:P"),
    ] {
        let other = TcpListener::bind(taken).unwrap();
        let port = other.local_addr().unwrap().port();
        let listen = form.replace('P', &port.to_string());
        let [fpm, weir] = [false, true].map(|weir| started(weir, &listen, port, &[free]));
        assert_eq!(weir, fpm, "{taken} is taken, {form}");
    }
}

#[test]
fn a_reload_keeps_what_was_passed_over() {
    let other = TcpListener::bind("[::1]:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let place = Place::new();
    place.write("php-fpm.conf", of_tcp(&port.to_string()));
    let running = Running::start(&place.weir(), &place, &[]);
    running.signal(rustix::process::Signal::USR2);
    running.wait_for_logs("ready to handle connections", 2);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
}

#[test]
fn what_cannot_be_listened_on_is_told_as_php_fpm_tells_it() {
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let free = self::port();
    for form in [
        "P",
        "[::]:P",
        "localhost:P",
        "*:P",
        "127.0.0.1:P",
        "nosuchhost.invalid:F",
        ":F",
        "[]:F",
        "[::1:F",
        "127.0.0.1:Fx",
        "127.0.0.1:x",
        "127.0.0.1:0",
        "0",
        "[192.0.2.1]:F",
        "[::1%lo]:F",
    ] {
        let listen = form.replace('P', &port.to_string());
        let listen = listen.replace('F', &free.to_string());
        let place = Place::new();
        let file = place.write("php-fpm.conf", of_tcp(&listen));
        let (fpm, weir) = place.both(&["-F", "-y", file.to_str().unwrap()]);
        assert_eq!(weir, fpm, "{form}");
        assert_eq!(weir.code, Some(78), "{form}");
    }
}

/// The queue is full: new clients wait in the kernel's queue, and none gets 503.
#[test]
fn nobody_is_refused_while_workers_are_busy() {
    for weir in [false, true] {
        let place = Place::new();
        let pool = "pm.max_children = 1\nlisten.backlog = 2";
        place.write("php-fpm.conf", configuration("", pool));
        place.write(
            "waits.php",
            "<?php while (!file_exists(__DIR__ . '/go')) { usleep(5000); clearstatcache(); } echo 'served';",
        );
        let program = if weir { place.weir() } else { PHP_FPM.clone() };
        let running = Running::start(&program, &place, &[]);
        let (connected, connects) = mpsc::channel();
        let asked: Vec<_> = (0..12)
            .map(|_| {
                let (socket, script) = (place.path("fpm.sock"), place.path("waits.php"));
                let connected = connected.clone();
                thread::spawn(move || {
                    // If the kernel's queue is full, this waits, too.
                    let stream = UnixStream::connect(socket).unwrap();
                    stream.set_read_timeout(Some(LIMIT)).unwrap();
                    connected.send(()).unwrap();
                    let params = [
                        ("SCRIPT_FILENAME", script.to_str().unwrap()),
                        ("SCRIPT_NAME", "/waits.php"),
                        ("REQUEST_METHOD", "GET"),
                        ("REQUEST_URI", "/waits.php"),
                    ];
                    ask(stream, &params, "").out
                })
            })
            .collect();
        // One is running and three wait: more than weir's queue may hold.
        for _ in 0..4 {
            connects.recv_timeout(LIMIT).unwrap();
        }
        place.write("go", "");
        for answer in asked {
            let answer = answer.join().unwrap();
            assert!(
                answer.ends_with("served"),
                "weir: {weir}: {answer}\n{}",
                running.log()
            );
        }
        assert!(!running.log().contains("503"), "{}", running.log());
    }
}

/// Programs that watch the log, such as fail2ban, find the words of PHP-FPM's workers, in the same places.
#[test]
fn clients_that_may_not_connect_are_told_of_as_php_fpm_tells() {
    for lines in [
        "catch_workers_output = yes",
        "catch_workers_output = no",
        "catch_workers_output = yes\ndecorate_workers_output = no",
    ] {
        let port = port();
        let logs = [false, true].map(|weir| {
            let place = Place::new();
            let pool = format!("{lines}\nlisten.allowed_clients = 127.0.0.9");
            let listen = format!("127.0.0.1:{port}\n{pool}");
            place.write("php-fpm.conf", of_tcp(&listen));
            let mut running = Running::start(&Subject::program(weir, &place), &place, &[]);
            for _ in 0..2 {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                // The end of the connection.
                let _ = stream.read(&mut [0; 8]);
            }
            running.signal(rustix::process::Signal::TERM);
            running.end();
            let subject = Subject::of(place, running);
            let log = subject.plain(&subject.running.raw_log());
            let log = String::from_utf8(log).unwrap();
            let lines = log.lines().filter(|line| line.contains("disallowed"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        });
        assert_eq!(logs[1], logs[0], "{lines}");
        let expected = if lines.ends_with("output = no") && !lines.contains("decorate") {
            0
        } else {
            2
        };
        assert_eq!(logs[1].len(), expected, "{lines}");
    }
}

/// One process runs a script that waits for `go`, and further requests wait for the process. Returns the lines about the queue
/// in each format while they wait, and when all are answered.
fn queue_shown(weir: bool, listen: &str, waiting: u64) -> [Vec<String>; 2] {
    let place = Place::new();
    let pool = format!(
        "pm.max_children = 1\nlisten = {listen}\nlisten.backlog = 7\npm.status_path = /status\n\
         pm.status_listen = @/status.sock"
    );
    place.write("php-fpm.conf", configuration("", &pool));
    let script = place.write(
        "waits.php",
        "<?php while (!file_exists(__DIR__ . '/go')) { usleep(5000); clearstatcache(); }",
    );
    let _running = Running::start(&Subject::program(weir, &place), &place, &[]);
    let page = |query: &str| {
        let uri = format!("/status?{query}");
        get(&place.path("status.sock"), "/status".as_ref(), &uri).out
    };
    let number = |name: &str| {
        let page = page("json");
        let (_, body) = page.split_once("\r\n\r\n").expect("a page");
        let page: serde_json::Value = serde_json::from_str(body).expect("JSON");
        page[name].as_u64().expect(name)
    };
    let lines = || {
        let formats = ["", "json", "xml", "html", "openmetrics"];
        let pages = formats.map(page);
        let lines = pages.iter().flat_map(|page| page.split(['\n', ',']));
        let about = |line: &&str| {
            let line = line.to_lowercase().replace(['-', '_'], " ");
            line.contains("listen queue") && !line.contains("status page")
        };
        lines.filter(about).map(str::to_owned).collect::<Vec<_>>()
    };
    let script = script.to_str().unwrap();
    let request = encode(
        &[
            ("SCRIPT_FILENAME", script),
            ("SCRIPT_NAME", "/waits.php"),
            ("REQUEST_METHOD", "GET"),
        ],
        "",
    );
    let ask = || -> Box<dyn Read> {
        if let Ok(address) = listen.parse::<SocketAddr>() {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&request).unwrap();
            return Box::new(stream);
        }
        let mut stream = UnixStream::connect(place.path("fpm.sock")).unwrap();
        stream.write_all(&request).unwrap();
        Box::new(stream)
    };
    let first = ask();
    wait_until("it runs", || number("active processes") == 1);
    let others: Vec<_> = (0..waiting).map(|_| ask()).collect();
    // Both programs check the queue once a second.
    let begun = number("start since");
    wait_until("both have looked", || number("start since") >= begun + 3);
    let while_they_wait = lines();
    place.write("go", "");
    for stream in [first].into_iter().chain(others) {
        crate::support::answer(stream);
    }
    let ended = number("start since");
    wait_until("both have looked again", || {
        number("start since") >= ended + 3
    });
    [while_they_wait, lines()]
}

#[test]
fn the_queue_of_a_listener_is_shown_as_php_fpm_shows_it() {
    thread::scope(|scope| {
        let tests = ["@/fpm.sock", "127.0.0.1", "[::1]"].map(|listen| {
            scope.spawn(move || {
                let [fpm, weir] = [false, true]
                    .map(|weir| {
                        scope.spawn(move || {
                            let port = port();
                            let listen = match listen {
                                "@/fpm.sock" => listen.to_owned(),
                                ip => format!("{ip}:{port}"),
                            };
                            queue_shown(weir, &listen, 3)
                        })
                    })
                    .map(|shown| shown.join().unwrap());
                assert_eq!(weir, fpm, "{listen}");
                assert!(fpm[0].len() >= 15, "{fpm:?}");
            })
        });
        for test in tests {
            test.join().unwrap();
        }
    });
}
