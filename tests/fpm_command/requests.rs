//! Requests: what scripts see, and what the logs say about the requests.

use std::{fs, io::Write, os::unix::net::UnixStream, path::Path};

use crate::{
    starts::configuration,
    support::{
        self, Answer, PHP_FPM, Place, Running, answer, encode, get, is_alive, wait_until, web_user,
    },
};

/// Runs the same function with both programs; the results must be equal.
#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>(
    global: &str,
    pool: &str,
    scripts: &[(&str, &str)],
    act: impl Fn(&Place, &Running) -> T,
) -> T {
    let mut outcomes = [false, true].into_iter().map(|weir| {
        let place = Place::new();
        place.write("php-fpm.conf", configuration(global, pool));
        for (name, text) in scripts {
            place.write(name, text);
        }
        let program = if weir { place.weir() } else { PHP_FPM.clone() };
        let running = Running::start(&program, &place, &[]);
        act(&place, &running)
    });
    let (fpm, weir) = (outcomes.next().unwrap(), outcomes.next().unwrap());
    assert_eq!(weir, fpm);
    weir
}

fn ask(place: &Place, uri: &str) -> Answer {
    let path = uri.split('?').next().unwrap();
    get(&place.path("fpm.sock"), &place.path(&path[1..]), uri)
}

/// The lines of a log that hold `what`, without times, with `N` for numbers and `@` for the folder.
fn told(place: &Place, log: &str, what: &str) -> Vec<String> {
    let folder = place
        .path("")
        .to_str()
        .unwrap()
        .trim_end_matches('/')
        .to_owned();
    let lines = log.lines().filter(|line| line.contains(what));
    lines
        .map(|line| {
            let line = line.replace(&folder, "@");
            let mut out = String::new();
            let mut digits = false;
            for character in line.chars() {
                if !character.is_ascii_digit() {
                    out.push(character);
                } else if !digits {
                    out.push('N');
                }
                digits = character.is_ascii_digit();
            }
            out
        })
        .collect()
}

#[test]
fn a_script_finds_what_its_pool_says() {
    let pool = "env[WHO] = ${FPM_TEST}\nenv[PLACE] = $PATH\nphp_value[memory_limit] = 99M\n\
                php_flag[display_errors] = on\nphp_admin_value[error_reporting] = E_ALL & ~E_NOTICE\n\
                php_admin_flag[short_open_tag] = yes\nchdir = @/";
    let script = "<?php
        ini_set('memory_limit', '98M'); ini_set('error_reporting', 1);
        $env = getenv(); ksort($env);
        echo json_encode([PHP_SAPI, $env, ini_get('memory_limit'), ini_get('display_errors'),
            ini_get('error_reporting'), ini_get('short_open_tag'), get_current_user() != '',
            posix_getpwuid(posix_geteuid())['name'], $argv ?? null, php_ini_loaded_file(),
            ini_get('opcache.enable'), function_exists('fastcgi_finish_request'), function_exists('headers_send')]);";
    let found = same("", pool, &[("a.php", script)], |place, _| {
        let folder = place.path("").to_str().unwrap().to_owned();
        ask(place, "/a.php?x=1")
            .out
            .replace(&folder.replace('/', "\\/"), "@")
    });
    assert!(found.contains("fpm-fcgi"), "{found}");
    assert!(
        found.contains(&format!("\"USER\":\"{}\"", web_user())),
        "{found}"
    );
}

/// Without AppArmor, or without the profile, the children of a pool end, and the other pools serve on.
#[test]
fn a_pool_without_its_apparmor_profile_ends_nothing_else() {
    let pool = format!(
        "apparmor_hat = nosuchhat\n[other]\nuser = {}\nlisten = @/other.sock\nlisten.mode = 0666\npm = static\npm.max_children = 1",
        web_user()
    );
    let alive = same(
        "",
        &pool,
        &[("a.php", "<?php echo 'run';")],
        |place, running| {
            let other = get(&place.path("other.sock"), &place.path("a.php"), "/a.php").out;
            wait_until("a child of the first pool ends", || {
                running.log().contains("[pool www] child ")
                    && running.log().contains("exited with code 70")
            });
            (other.ends_with("run"), is_alive(running.pid))
        },
    );
    assert_eq!(alive, (true, true));
}

/// An authorizer gets no body, and its answer is as any other (FastCGI 1.0, section 6.3).
#[test]
fn an_authorizer_is_called_as_php_fpm_calls_it() {
    let script = "<?php
        header('Variable-USER: x');
        if (isset($_GET['no'])) http_response_code(401);
        echo $_SERVER['FCGI_ROLE'], ' ', file_get_contents('php://input');";
    let scripts = [("a.php", script)];
    let answers = same("", "pm.max_children = 1", &scripts, |place, _| {
        let ask = |role: u8, uri: &str, more: &[(&str, &str)], body: &str| {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let script = place.path(&path[1..]);
            let mut params = vec![
                ("SCRIPT_FILENAME", script.to_str().unwrap()),
                ("SCRIPT_NAME", path),
                ("QUERY_STRING", query),
                ("REQUEST_METHOD", "GET"),
            ];
            params.extend(more);
            let mut bytes = encode(&params, body);
            // The role in BEGIN_REQUEST (FastCGI 1.0, section 5.1).
            bytes[9] = role;
            let mut stream = UnixStream::connect(place.path("fpm.sock")).unwrap();
            stream.write_all(&bytes).unwrap();
            let answer = answer(stream);
            (answer.out, answer.err)
        };
        let post = [("REQUEST_METHOD", "POST"), ("CONTENT_LENGTH", "4")];
        [
            ask(1, "/a.php", &[], ""),
            ask(2, "/a.php", &[], ""),
            ask(2, "/a.php?no", &[], ""),
            ask(2, "/a.php", &[], "body"),
            ask(2, "/a.php", &post, "body"),
        ]
    });
    assert!(answers[1].0.contains("AUTHORIZER"), "{answers:?}");
}

#[test]
fn an_empty_name_of_a_script_is_denied() {
    for pool in ["", "php_admin_value[cgi.fix_pathinfo] = 0"] {
        let pool = format!("{pool}\ncatch_workers_output = yes");
        let answers = same("", &pool, &[("a.php", "<?php echo 'run';")], |place, _| {
            let script = place.path("a.php");
            let script = script.to_str().unwrap();
            let cases: [&[(&str, &str)]; 5] = [
                &[("SCRIPT_FILENAME", "")],
                &[("SCRIPT_FILENAME", ""), ("SCRIPT_NAME", "")],
                &[
                    ("SCRIPT_FILENAME", ""),
                    ("SCRIPT_NAME", "/a.php"),
                    ("DOCUMENT_ROOT", "/srv"),
                ],
                &[("SCRIPT_FILENAME", ""), ("PATH_TRANSLATED", script)],
                &[("SCRIPT_NAME", "/a.php")],
            ];
            cases.map(|case| {
                let params = [&[("REQUEST_METHOD", "GET")], case].concat();
                let stream = UnixStream::connect(place.path("fpm.sock")).unwrap();
                let answer = support::ask(stream, &params, "");
                (answer.out, answer.err)
            })
        });
        assert!(answers[0].0.contains("403"), "{answers:?}");
    }
}

#[test]
fn scripts_of_other_extensions_are_denied() {
    let scripts = [
        ("a.txt", "<?php echo 'run';"),
        ("b.phar", "<?php echo 'run';"),
    ];
    let answers = same("", "", &scripts, |place, _| {
        let answer = |uri| {
            let answer = ask(place, uri);
            let folder = place.path("").to_str().unwrap().to_owned();
            (
                answer.out,
                answer.err.replace(&folder, "@/").trim().to_owned(),
            )
        };
        [answer("/a.txt"), answer("/b.phar"), answer("/none.php")]
    });
    assert!(answers[0].0.contains("403"), "{answers:?}");
    assert!(answers[1].0.ends_with("run"), "{answers:?}");
    assert!(answers[2].0.contains("404"), "{answers:?}");
}

#[test]
fn status_and_ping_are_where_the_pool_says() {
    let pool = "pm.status_path = /status\nping.path = /ping\nping.response = here\n\
                pm.status_listen = @/status.sock\nlisten.mode = 0666";
    let lines = same("", pool, &[], |place, _| {
        let ping = ask(place, "/ping").out;
        assert!(ping.ends_with("here"), "{ping}");
        let names = |text: &str| -> Vec<String> {
            let body = text.split("\r\n\r\n").nth(1).unwrap_or_default();
            let names = body.lines().filter_map(|line| line.split_once(':'));
            let names = names.map(|(name, _)| name.to_owned());
            // Newer PHP-FPM versions have this field as the last one.
            names.filter(|name| name != "memory peak").collect()
        };
        let there = get(&place.path("status.sock"), Path::new("/status"), "/status");
        (names(&ask(place, "/status").out), names(&there.out))
    });
    assert!(lines.0.len() > 10, "{lines:?}");
    assert_eq!(lines.0, lines.1);
}

#[test]
fn the_access_log_is_php_fpm_s() {
    let pool = "access.log = @/$pool.access.log\n\
                access.format = \"%R %m %r%Q%q %s %f %l %n %{REQUEST_METHOD}e %{X-Answer}o %%\"\n\
                access.suppress_path[] = /quiet.php";
    let scripts = [
        (
            "a.php",
            "<?php header('X-Answer: yes'); http_response_code(418);",
        ),
        ("quiet.php", "<?php"),
    ];
    let lines = same("", pool, &scripts, |place, _| {
        ask(place, "/quiet.php");
        ask(place, "/a.php?x=1");
        wait_until("the request is in the log", || {
            place.read("www.access.log").contains("a.php")
        });
        let folder = place.path("").to_str().unwrap().to_owned();
        place.read("www.access.log").replace(&folder, "@/")
    });
    assert_eq!(lines.lines().count(), 1, "{lines}");
}

#[test]
fn a_script_that_takes_too_long_is_ended_and_told() {
    let scripts = [("slow.php", "<?php while (true) usleep(1000);")];
    let (out, lines) = same(
        "",
        "request_terminate_timeout = 1s",
        &scripts,
        |place, running| {
            let answer = ask(place, "/slow.php?a=b");
            running.wait_for_log("execution timed out");
            running.wait_for_log("exited on signal");
            running.wait_for_log("started");
            let log = running.log();
            let ended = told(place, &log, "exited on signal");
            assert!(log.contains("exited on signal 15 (SIGTERM)"), "{log}");
            (
                answer.out.is_empty(),
                (
                    told(place, &log, "timed out"),
                    ended,
                    told(place, &log, "started"),
                ),
            )
        },
    );
    assert!(out, "{lines:?}");
}

/// The script gives no answer. Each web server reacts to that in its own way.
#[test]
fn a_script_that_kills_its_child_is_answered_by_nothing() {
    let scripts = [
        (
            "crash.php",
            "<?php echo 'begun'; posix_kill(getmypid(), 11);",
        ),
        ("fine.php", "<?php echo 'fine';"),
    ];
    let (out, fine) = same("", "", &scripts, |place, running| {
        let answer = ask(place, "/crash.php");
        running.wait_for_log("exited on signal 11");
        (answer.out + &answer.err, ask(place, "/fine.php").out)
    });
    assert_eq!(out, "");
    assert!(fine.ends_with("fine"), "{fine}");
}

#[test]
fn a_slow_script_is_told_with_its_stack() {
    let scripts = [(
        "slow.php",
        "<?php\nfunction wait() { usleep(2500000); }\nwait();\n",
    )];
    let pool = "request_slowlog_timeout = 1s\nslowlog = @/slow.log\ncatch_workers_output = yes";
    let (lines, entries) = same("", pool, &scripts, |place, running| {
        ask(place, "/slow.php?a=b");
        running.wait_for_log("finished trace of");
        let log = running.log();
        // The addresses differ between the processes.
        let slow = place.read("slow.log");
        let entry: Vec<String> = slow
            .lines()
            .map(|line| match line.split_once("] ") {
                Some((head, rest)) if head.starts_with('[') => rest.trim().to_owned(),
                _ => line.to_owned(),
            })
            .collect();
        // The messages must have this order, because people read them from top to bottom.
        let about = ["too slow", "trac"];
        let lines = log
            .lines()
            .filter(|line| about.iter().any(|word| line.contains(word)));
        (
            told(place, &lines.collect::<Vec<_>>().join("\n"), ""),
            told(place, &entry.join("\n"), ""),
        )
    });
    assert_eq!(lines.len(), 4, "{entries:?}");
}

#[test]
fn a_worker_that_dies_is_told_and_replaced() {
    let scripts = [
        ("die.php", "<?php posix_kill(getmypid(), 9); sleep(5);"),
        ("a.php", "<?php echo 'here';"),
    ];
    let lines = same("", "", &scripts, |place, running| {
        ask(place, "/die.php");
        running.wait_for_log("exited on signal 9 (SIGKILL)");
        running.wait_for_log("started");
        assert!(ask(place, "/a.php").out.ends_with("here"));
        let log = running.log();
        (told(place, &log, "exited on"), told(place, &log, "started"))
    });
    assert_eq!(lines.0.len(), 1, "{lines:?}");
}

#[test]
fn workers_that_have_served_their_requests_are_told_and_replaced() {
    let scripts = [("a.php", "<?php echo 'here';")];
    let lines = same(
        "",
        "pm.max_requests = 2\npm.max_children = 1",
        &scripts,
        |place, running| {
            for _ in 0..4 {
                assert!(ask(place, "/a.php").out.ends_with("here"));
            }
            running.wait_for_logs("exited with code 0", 2);
            running.wait_for_logs("started", 2);
            told(place, &running.log(), "[pool www] child")
        },
    );
    assert_eq!(lines.len(), 4, "{lines:?}");
}

#[test]
fn too_many_crashes_start_php_anew() {
    let scripts = [
        ("crash.php", "<?php posix_kill(getmypid(), 11); sleep(5);"),
        ("a.php", "<?php echo 'here';"),
    ];
    let global = "emergency_restart_threshold = 2\nemergency_restart_interval = 1m";
    let lines = same(global, "", &scripts, |place, running| {
        ask(place, "/crash.php");
        running.wait_for_log("(SIGSEGV");
        ask(place, "/crash.php");
        running.wait_for_log("failed processes threshold");
        running.wait_for_logs("ready to handle connections", 2);
        wait_until("it serves", || ask(place, "/a.php").out.ends_with("here"));
        // The paths of the programs differ.
        let log = running.log();
        let program = running.program.display().to_string();
        let log = log.replace(&program, "PROGRAM");
        let restart = log.split_once("failed processes").unwrap().1;
        let restart = restart.split_once("ready to handle").unwrap().0;
        // weir's own messages about requests differ from PHP-FPM's.
        let lines = restart.lines().filter(|line| !line.contains("worker_died"));
        // The old workers serve until the new ones are there.
        let lines = lines.filter(|line| !line.contains("started"));
        told(place, &lines.collect::<Vec<_>>().join("\n"), "")
    });
    assert_eq!(lines.len(), 5, "{lines:?}");
}

#[test]
fn what_workers_print_is_told_where_that_is_asked_for() {
    let scripts = [(
        "a.php",
        "<?php fwrite(fopen('php://stderr', 'w'), \"to stderr\\n\"); fwrite(fopen('php://stdout', 'w'), \"to stdout\\n\");",
    )];
    let lines = same(
        "",
        "catch_workers_output = yes",
        &scripts,
        |place, running| {
            ask(place, "/a.php");
            running.wait_for_log("to stderr");
            running.wait_for_log("to stdout");
            let mut lines = told(place, &running.log(), "said into");
            lines.sort();
            lines
        },
    );
    assert_eq!(lines.len(), 2, "{lines:?}");
    let plain = "catch_workers_output = yes\ndecorate_workers_output = no";
    let lines = same("", plain, &scripts, |place, running| {
        ask(place, "/a.php");
        running.wait_for_log("to stderr");
        let log = fs::read_to_string(place.path("error.log")).unwrap();
        told(place, &log, "to stderr")
    });
    assert_eq!(lines, ["to stderr"]);
    // Without the setting, nothing is logged. The wait for another line shows that.
    same("", "", &scripts, |place, running| {
        ask(place, "/a.php");
        running.signal(rustix::process::Signal::USR1);
        running.wait_for_log("error log file re-opened");
        assert_eq!(told(place, &running.log(), "to stderr"), [""; 0]);
    });
}

#[test]
fn a_pool_whose_workers_are_all_busy_is_told_once() {
    let scripts = [("slow.php", "<?php usleep(2500000); echo 'done';")];
    let pool =
        "pm = dynamic\npm.max_children = 1\npm.min_spare_servers = 1\npm.max_spare_servers = 1";
    let lines = same("", pool, &scripts, |place, running| {
        let both: Vec<_> = (0..3)
            .map(|_| {
                let (socket, script) = (place.path("fpm.sock"), place.path("slow.php"));
                std::thread::spawn(move || get(&socket, &script, "/slow.php").out)
            })
            .collect();
        running.wait_for_log("consider raising it");
        for one in both {
            assert!(one.join().unwrap().ends_with("done"));
        }
        told(place, &running.log(), "consider raising it")
    });
    assert!(!lines.is_empty());
}

/// PHP-FPM sends SIGTERM repeatedly, but such a script continues to run.
#[test]
fn a_script_that_ignores_sigterm_is_killed() {
    let place = Place::new();
    let pool =
        "pm.max_children = 1\nrequest_terminate_timeout = 1\nphp_admin_value[ffi.enable] = 1";
    place.write("php-fpm.conf", crate::starts::configuration("", pool));
    let script = place.write(
        "ignores.php",
        "<?php $c = FFI::cdef('void *signal(int, void *);', 'libc.so.6'); $c->signal(15, FFI::cast('void *', 1));
         for (;;) usleep(10000);",
    );
    let other = place.write("other.php", "<?php echo 'served';");
    let running = Running::start(&place.weir(), &place, &[]);
    let answer = get(&place.path("fpm.sock"), &script, "/ignores.php");
    assert_eq!(answer.out, "");
    // The pool's only worker has been replaced.
    let answer = get(&place.path("fpm.sock"), &other, "/other.php");
    assert!(answer.out.ends_with("served"), "{answer:?}");
    running.wait_for_log("exited on signal 9 (SIGKILL)");
    let log = running.log();
    let timed_out = log.find("execution timed out").expect("it timed out");
    let killed = log.find("exited on signal 9 (SIGKILL)").unwrap();
    assert!(timed_out < killed, "{log}");
}

/// Values that php-fpm.conf cannot express.
#[test]
fn the_environment_says_what_a_web_server_gets_for_a_dead_worker() {
    for (value, status) in [("answer", "Status: 502"), ("close", "")] {
        let place = Place::new();
        place.write("php-fpm.conf", crate::starts::configuration("", ""));
        let script = place.write("dies.php", "<?php posix_kill(getmypid(), 9); sleep(5);");
        let variables = [("WEIR_ON_WORKER_FAILURE", value)];
        let _running = Running::start_in(&place.weir(), &place, &[], &variables);
        let answer = get(&place.path("fpm.sock"), &script, "/dies.php").out;
        match status {
            "" => assert_eq!(answer, ""),
            status => assert!(answer.starts_with(status), "{answer}"),
        }
    }
}
