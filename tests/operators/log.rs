//! The access log and the error log: their formats, their fields, and what happens to their files.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use weir_test::php::cgi_pool;
use weir_test::{Responder, Setup, wait_until};

#[test]
fn the_combined_format_is_what_everybody_reads() {
    let setup = Setup::new().file("text.txt", "a text");
    let weir = setup.log("format = \"combined\"").start();
    let headers = [
        ("Referer", "http://elsewhere.example/"),
        ("User-Agent", "test \"quoted\" \\ agent"),
    ];
    weir.request("GET", "/text.txt?a=b", &headers, b"")
        .expect(200);
    weir.get("/nothing").expect(404);
    let line = weir.wait_for_line("log/access.log", &["/text.txt"]);
    let (address, rest) = line.split_once(" - - [").expect("an address");
    assert_eq!(address, "127.0.0.1");
    let (time, rest) = rest.split_once("] ").expect("a time");
    // 20/Nov/2024:12:30:00 +0000
    let shape: String = time
        .chars()
        .map(|c| {
            if c.is_ascii_digit() {
                '0'
            } else if c.is_alphabetic() {
                'a'
            } else {
                c
            }
        })
        .collect();
    assert!(
        shape == "00/aaa/0000:00:00:00 +0000" || shape == "00/aaa/0000:00:00:00 -0000",
        "{time}"
    );
    assert!(
        rest.starts_with(
            "\"GET /text.txt?a=b HTTP/1.1\" 200 6 \"http://elsewhere.example/\" \"test "
        ),
        "{rest}"
    );
    assert!(!rest.contains("\"quoted\" "), "quotes are escaped: {rest}");
    let line = weir.wait_for_line("log/access.log", &["/nothing"]);
    assert!(
        line.contains("\"GET /nothing HTTP/1.1\" 404 ") && line.ends_with("\"-\" \"-\""),
        "{line}"
    );
}

#[test]
fn the_json_format_has_every_field_of_the_contract() {
    let setup = Setup::new().file("run.php", "").file("text.txt", "a text");
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("0123456789");
    });
    let pool = responder.pool(1);
    let weir = setup.server("threads = 1").pool(&pool).start();
    let mut first = weir.client();
    first.send(
        "POST /run.php?first HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\n\r\nhello",
    );
    wait_until("the first is at work", || responder.running() == 1);
    let mut second = weir.client();
    second.send("GET /run.php?second HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: me\r\n\r\n");
    // There is one reactor. It has read everything that came earlier before it answers this.
    weir.get("/text.txt?between").expect(200);
    assert!(second.quiet_for(Duration::from_millis(300)));
    gate.open();
    first.response().expect(200);
    second.response().expect(200);

    let line = weir.logged("/run.php?first");
    let texts = [
        ("method", "POST"),
        ("host", "shop.example"),
        ("site", "main"),
        ("pool", "app"),
        ("protocol", "HTTP/1.1"),
        ("remote_addr", "127.0.0.1"),
    ];
    for (name, value) in texts {
        assert_eq!(line[name], value, "{name} of {line:#}");
    }
    assert_eq!(
        (&line["status"], &line["bytes_in"], &line["bytes_out"]),
        (&200.into(), &5.into(), &10.into()),
        "{line:#}"
    );
    let seconds = |line: &serde_json::Value, name: &str| {
        line[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name} of {line:#}"))
    };
    assert!(seconds(&line, "time_first_byte") >= 0.25, "{line:#}");
    assert!(
        seconds(&line, "time_total") >= seconds(&line, "time_first_byte") - 0.002,
        "{line:#}"
    );
    assert!(seconds(&line, "time_queue") < 0.2, "{line:#}");
    assert_eq!(line["queue"], 0, "{line:#}");

    let line = weir.logged("/run.php?second");
    assert!(seconds(&line, "time_queue") >= 0.25, "{line:#}");
    assert!(seconds(&line, "time_total") >= 0.25, "{line:#}");
    assert!(seconds(&line, "time_head") < 5.0, "{line:#}");
    assert!(
        line["worker"]
            .as_str()
            .is_some_and(|worker| worker.contains("responder-")),
        "{line:#}"
    );
    assert!(
        line["time"].is_string() || line["time_iso"].is_string(),
        "{line:#}"
    );

    weir.get("/text.txt").expect(200);
    let line = weir.logged("/text.txt");
    assert_eq!(
        (&line["status"], &line["bytes_out"]),
        (&200.into(), &6.into()),
        "{line:#}"
    );
}

#[test]
fn the_worker_of_a_command_is_its_process() {
    let weir = Setup::new()
        .file("pid.php", "<?php echo getmypid();")
        .pool(&cgi_pool(1))
        .start();
    let pid = weir.get("/pid.php").expect(200).text();
    let worker = &weir.logged("/pid.php")["worker"];
    assert!(worker.to_string().trim_matches('"') == pid, "{worker}");
}

#[test]
fn the_time_of_a_slow_head_is_its_own() {
    let setup = Setup::new().file("text.txt", "a text");
    let weir = setup.server("threads = 1").start();
    let mut client = weir.client();
    client.send("GET /text.txt HTTP/1.1\r\n");
    // There is one reactor. It has read everything that came earlier before it answers this.
    weir.get("/text.txt?between").expect(200);
    std::thread::sleep(Duration::from_millis(300));
    client.send("Host: a\r\n\r\n");
    client.response().expect(200);
    let line = weir.logged("/text.txt");
    assert!(
        line["time_head"].as_f64().expect("seconds") >= 0.25,
        "{line:#}"
    );
}

#[test]
fn a_slow_upload_is_seen_while_it_lasts_and_has_its_time() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.page("done");
    });
    let weir = setup.pool(&responder.pool(1)).admin().start();
    let mut client = weir.client();
    client.send("POST /run.php?secret=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    let bodies = || weir.status()["bodies"].clone();
    wait_until("its body is being read", || bodies()["reading"] == 1);
    let oldest = bodies()["oldest"][0].clone();
    assert_eq!(
        (&oldest["uri"], &oldest["length"]),
        (&"/run.php".into(), &5.into())
    );
    std::thread::sleep(Duration::from_millis(300));
    client.send("lo");
    client.response().expect(200);
    assert_eq!(bodies()["reading"], 0);
    weir.get("/run.php?none").expect(200);
    let line = weir.logged("/run.php?secret=1");
    assert!(line["time_body"].as_f64() >= Some(0.25), "{line:#}");
    assert!(line["time_head"].as_f64() < Some(0.25), "{line:#}");
    assert_eq!(
        weir.logged("/run.php?none")["time_body"],
        serde_json::Value::Null
    );
    // Who leaves is forgotten.
    let mut leaves = weir.client();
    leaves.send("POST /run.php?left HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    wait_until("its body is being read", || bodies()["reading"] == 1);
    drop(leaves);
    wait_until("it is forgotten", || bodies()["reading"] == 0);
    assert_eq!(
        weir.logged("/run.php?left")["time_body"],
        serde_json::Value::Null
    );
}

#[test]
fn a_format_of_ones_own() {
    let setup = Setup::new().file("text.txt", "a text");
    let weir = setup
        .log("format = \"${method} ${status} ${uri} ${http_x_own} $${x}\"")
        .start();
    weir.request("GET", "/text.txt?q", &[("X-Own", "own\tvalue")], b"")
        .expect(200);
    let line = weir.wait_for_line("log/access.log", &["/text.txt"]);
    assert!(line.starts_with("GET 200 /text.txt?q own"), "{line}");
    assert!(line.ends_with("${x}") && !line.contains('\t'), "{line}");
}

#[test]
fn a_route_may_be_left_out() {
    let setup = Setup::new()
        .file("text.txt", "a text")
        .file("quiet/text.txt", "a text");
    let weir = setup
        .more("[[site.main.route]]\npath = \"/quiet/*\"\naccess_log = false\n")
        .start();
    weir.get("/quiet/text.txt").expect(200);
    weir.get("/text.txt").expect(200);
    weir.logged("/text.txt");
    assert!(!weir.read("log/access.log").contains("/quiet/"));
}

#[test]
fn the_log_may_go_to_stdout() {
    let setup = Setup::new().file("text.txt", "a text");
    let weir = setup
        .log("access = \"stdout\"\nformat = \"combined\"")
        .start();
    weir.get("/text.txt").expect(200);
    weir.wait_for_line("log/stdout", &["GET /text.txt"]);
}

#[test]
fn files_are_opened_again_at_sigusr1() {
    let setup = Setup::new().file("text.txt", "a text");
    let errors = setup.folder().join("log/error.log");
    let lines = format!("format = \"json\"\nerror = \"{}\"", errors.display());
    let weir = setup.log(&lines).start();
    weir.get("/text.txt?before").expect(200);
    weir.logged("/text.txt?before");
    weir.get("/missing?before").expect(404);
    let log = weir.folder().join("log");
    // As logrotate does: move the files away, then ask for new ones.
    fs::rename(log.join("access.log"), log.join("access.log.1")).expect("rename");
    fs::rename(&errors, log.join("error.log.1")).expect("rename");
    weir.signal(Signal::USR1);
    wait_until("the files are there again", || {
        log.join("access.log").exists() && errors.exists()
    });
    wait_until("the new one is written", || {
        weir.get("/text.txt?after").expect(200);
        weir.read("log/access.log").contains("after")
    });
    assert!(weir.read("log/access.log.1").contains("before"));
}

/// The configuration of the page and the file of the package; only folders differ.
#[test]
fn logrotate_rotates_as_the_page_says() {
    let project = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let example = fs::read_to_string(project.join("packaging/weir.logrotate")).expect("a file");
    let page = fs::read_to_string(project.join("docs/log-rotation.md")).expect("a page");
    assert!(page.contains(&format!("```text\n{example}```")));
    let setup = Setup::new().file("text.txt", "a text");
    let folder = setup.folder().display().to_string();
    let here = |text: &str| {
        text.replace("/var/log/weir", &format!("{folder}/log"))
            .replace("/run/weir", &folder)
    };
    let toml = here(page.split("```toml\n").nth(1).expect("an example"));
    let (server, log) = toml.split_once("[log]\n").expect("a log");
    let server = server.trim_start_matches("[server]\n");
    let log = log.split("```").next().expect("lines");
    let weir = setup.server(server).log(log).start();
    weir.get("/text.txt?before").expect(200);
    weir.wait_for_line("log/access.log", &["before"]);
    let rules = weir.path("logrotate");
    fs::write(&rules, here(&example)).expect("a file");
    let output = Command::new("logrotate")
        .args(["--force", "--state"])
        .arg(weir.path("logrotate.state"))
        .arg(&rules)
        .output()
        .expect("logrotate; setup/install.sh test installs it");
    assert!(output.status.success(), "{output:?}");
    wait_until("the new log has the lines", || {
        weir.get("/text.txt?after").expect(200);
        let log = weir.path("log/access.log");
        fs::read_to_string(log).is_ok_and(|text| text.contains("after"))
    });
    assert!(weir.read("log/access.log.1").contains("before"));
    assert!(weir.read("log/error.log.1").contains("serves (process"));
}

#[test]
fn one_line_for_each_request_and_none_is_torn() {
    let weir = Setup::new().file("text.txt", "a text").start();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let weir = &weir;
            scope.spawn(move || {
                let mut connection = weir.client();
                for number in 0..250 {
                    connection.send(format!(
                        "GET /text.txt?{client}-{number} HTTP/1.1\r\nHost: a\r\n\r\n"
                    ));
                    connection.response().expect(200);
                }
            });
        }
    });
    wait_until("all are written", || {
        weir.read("log/access.log").lines().count() >= 2000
    });
    let text = weir.read("log/access.log");
    let mut uris: Vec<String> = text
        .lines()
        .map(|line| {
            let line: serde_json::Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            line["uri"].as_str().expect("a uri").to_owned()
        })
        .collect();
    uris.sort();
    uris.dedup();
    assert_eq!(uris.len(), 2000);
}

#[test]
fn what_is_under_way_is_logged_before_the_end() {
    let setup = Setup::new().file("text.txt", "a text");
    let mut weir = setup.start();
    for number in 0..50 {
        weir.get(&format!("/text.txt?{number}")).expect(200);
    }
    weir.stop();
    assert_eq!(weir.read("log/access.log").lines().count(), 50);
}

#[test]
fn lines_appear_while_their_connection_is_idle_and_none_is_lost_at_a_new_file_or_the_end() {
    let setup = Setup::new()
        .server("threads = 0")
        .file("text.txt", "a text");
    let mut weir = setup.start();
    let get = |client: &mut weir_test::http::Client, uri: &str| {
        client.send(format!("GET {uri} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.response().expect(200);
    };
    let mut client = weir.client();
    for number in 0..3 {
        let uri = format!("/text.txt?one-{number}");
        get(&mut client, &uri);
        // Nothing else happens that could give the line to the log.
        weir.wait_for_line("log/access.log", &[&uri]);
    }
    let log = weir.folder().join("log");
    for number in 0..200 {
        get(&mut client, &format!("/text.txt?two-{number}"));
        if number == 100 {
            fs::rename(log.join("access.log"), log.join("access.log.1")).expect("rename");
            weir.signal(Signal::USR1);
        }
    }
    // The manager has opened the new file, and the last answers were read a moment ago.
    wait_until("the new file", || log.join("access.log").exists());
    for number in 0..20 {
        get(&mut client, &format!("/text.txt?three-{number}"));
    }
    weir.stop();
    let text = weir.read("log/access.log.1") + &weir.read("log/access.log");
    let uris: Vec<String> = (text.lines())
        .filter_map(|line| {
            line.split('?')
                .nth(1)?
                .split(['"', ' '])
                .next()
                .map(str::to_owned)
        })
        .collect();
    let named = |name: &'static str, count| (0..count).map(move |n| format!("{name}-{n}"));
    let all: Vec<String> = named("one", 3)
        .chain(named("two", 200))
        .chain(named("three", 20))
        .collect();
    assert_eq!(uris, all, "in order, each once");
}

#[test]
fn the_error_log_names_request_and_pool() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.stderr("the script complains");
        answer.page("ok");
    });
    let pool = responder.pool(1);
    let weir = setup.pool(&pool).start();
    weir.get("/run.php?what=this").expect(200);
    let id = weir.logged("/run.php?what=this")["request_id"].to_string();
    let line = weir.wait_for_error(&["the script complains"]);
    assert!(
        line.contains("app") && line.contains(id.trim_matches('"')),
        "{line} has no request {id}"
    );
}

#[test]
fn an_error_log_of_json_has_one_object_a_line() {
    let setup = Setup::new()
        .file(
            "loud.php",
            "<?php error_log(\"a \\\"quoted\\\"\\nmessage\"); echo 'x';",
        )
        .site("script = '^(/.+\\.php)(/.*)?$'")
        .pool(&cgi_pool(1));
    let log = setup.folder().join("log/error.json");
    let setup = setup.log(&format!(
        "error_format = \"json\"\nerror = \"{}\"",
        log.display()
    ));
    let weir = setup.start();
    weir.get("/loud.php").expect(200);
    weir.get("/nothing\"").expect(404);
    let find = |words: &str| -> serde_json::Value {
        let line = weir.wait_for_line("log/error.json", &[words]);
        serde_json::from_str(&line).expect("an object")
    };
    let loud = find("quoted");
    assert_eq!(loud["process"], "gateway");
    assert!(
        loud["time_iso"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z')),
        "{loud}"
    );
    let missing = find("not_found");
    assert_eq!(
        (&missing["level"], &missing["site"]),
        (&"notice".into(), &"main".into())
    );
    assert_eq!(missing["url"], "/nothing\"");
    assert!(missing["request"].is_u64(), "{missing}");
    for line in fs::read_to_string(&log).expect("a log").lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("an object");
    }
}
