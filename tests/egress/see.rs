//! What operators see of calls: log, metrics and status, and which pool made a call.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use weir_test::browser::render;
use weir_test::oddity::Oddity;
use weir_test::php::{cgi_pool, own};
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::weir::program;
use weir_test::{Setup, free_address, is_root, wait_for, wait_until};

/// `?how=unix|tcp&target=HOST:PORT/PATH` calls and prints the result. `?env` prints the worker's environment variables
/// for the egress.
const CALL: &str = "<?php
if (isset($_GET['env'])) { echo getenv('WEIR_EGRESS'), ' ', getenv('WEIR_EGRESS_SOCKET'); exit; }
if (isset($_GET['begin'])) { echo 'begun '; while (ob_get_level()) ob_end_flush(); flush(); }
$call = $_GET['how'] === 'unix'
    ? curl_init('http://weir/' . $_GET['target'])
    : curl_init(getenv('WEIR_EGRESS') . '/' . $_GET['target']);
if ($_GET['how'] === 'unix') curl_setopt($call, CURLOPT_UNIX_SOCKET_PATH, getenv('WEIR_EGRESS_SOCKET'));
curl_setopt($call, CURLOPT_RETURNTRANSFER, true);
$text = curl_exec($call);
echo getmypid(), ' ', curl_getinfo($call, CURLINFO_RESPONSE_CODE), ' ', $text;
";

/// An origin that responds to `/` at once, to `/down` with 503, to `/late/MS` after MS milliseconds, and never to `/never`.
fn origin() -> Oddity {
    Oddity::plain(|talk| {
        while let Some(request) = talk.request() {
            let path = request.split(' ').nth(1).unwrap_or_default();
            match path {
                "/never" => return talk.hold(),
                "/down" => {
                    talk.send("HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n");
                    continue;
                }
                _ => {}
            }
            if let Some(late) = path.strip_prefix("/late/") {
                std::thread::sleep(Duration::from_millis(late.parse().expect("a number")));
            }
            talk.answer("text");
        }
    })
}

/// The log line of the call for this path.
#[track_caller]
fn line(weir: &weir_test::Weir, path: &str) -> Value {
    wait_for(&format!("the line of {path}"), || {
        let text = weir.read("log/access.log");
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let mut lines = whole.map(|line| -> Value { serde_json::from_str(line).expect("JSON") });
        lines.find(|line| line["log"] == "egress" && line["path"] == path)
    })
}

#[test]
fn a_call_has_a_line_beside_those_of_requests() {
    let origin = origin();
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .start_in(Setup::new().file("text.txt", "a text"));
    let host = format!("api.test:{}", origin.address().port());
    let api = format!("http://{host}");
    let secrets = [("Authorization", "Bearer sesame"), ("X-Key", "sesame")];
    let target = format!("/{host}/first?key=sesame");
    let answer = sidecar.call("POST", &target, &secrets, b"sesame");
    assert_eq!(answer.expect(200).text(), "text");
    let first = line(&sidecar.weir, "/first");
    let named = [("Host", host.as_str())];
    let answer = sidecar.call("GET", &format!("{api}/second"), &named, b"");
    answer.expect(200);
    let second = line(&sidecar.weir, "/second");
    sidecar.get("/nobody.test/third").expect(403);
    let third = line(&sidecar.weir, "/third");
    sidecar.weir.get("/text.txt").expect(200);

    for (key, value) in [
        ("method", "POST".into()),
        ("origin", api.clone().into()),
        ("form", "path".into()),
        ("status", 200.into()),
        ("reason", Value::Null),
        ("address", origin.address().to_string().into()),
        ("connection", "new".into()),
        ("protocol", "h1".into()),
        ("time_tls", Value::Null),
        ("resumed", Value::Null),
        ("retries", 0.into()),
        ("bytes_in", 6.into()),
        ("bytes_out", 4.into()),
        ("cache", Value::Null),
        ("caller_left", false.into()),
        ("pool", Value::Null),
        ("request_id", Value::Null),
    ] {
        assert_eq!(first[key], value, "{key} of {first:#}");
    }
    let caller = first["caller"].as_str().expect("an address");
    assert!(caller.starts_with("127.0.0.1:"), "{first:#}");
    let seconds = |line: &Value, key: &str| line[key].as_f64().expect("seconds");
    assert!(seconds(&first, "time_connect") > 0.0, "{first:#}");
    assert!(seconds(&first, "time_dns") > 0.0, "{first:#}");
    assert!(seconds(&first, "time_first_byte") <= seconds(&first, "time_total"));
    assert_eq!(
        (&second["form"], &second["connection"]),
        (&"proxy".into(), &"kept".into())
    );
    assert_eq!(second["time_connect"], Value::Null);
    assert_eq!(
        (&third["status"], &third["reason"]),
        (&403.into(), &"not_allowed".into())
    );
    let keys = |line: &Value| -> Vec<String> {
        line.as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    };
    assert_eq!(keys(&first), keys(&third));

    let request = sidecar.weir.logged("/text.txt");
    assert_eq!(request["log"], Value::Null);
    let all = sidecar.weir.read("log/access.log") + &sidecar.weir.stderr();
    assert!(!all.contains("sesame"), "{all}");
}

#[test]
fn calls_do_not_stand_among_the_lines_of_a_combined_log_and_theirs_is_opened_again() {
    let origin = origin();
    let setup = Setup::new();
    let log = setup.folder().join("log/egress.log");
    let setup = setup.log("format = \"combined\"");
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .start_in(setup);
    let host = format!("api.test:{}", origin.address().port());
    let text = |words: &str| sidecar.weir.wait_for_line("log/egress.log", &[words]);
    sidecar.get(&format!("/{host}/a?b=c")).expect(200);
    let line = text("path=/a ");
    assert!(line.starts_with("egress time_iso=20"), "{line}");
    for pair in [
        &format!("origin=http://{host} "),
        "method=GET ",
        "form=path status=200 reason=- ",
        "connection=new protocol=h1 ",
        "resumed=- time_wait=0.000",
        "cache=- caller_left=no",
    ] {
        assert!(line.contains(pair), "{pair}: {line}");
    }
    let moved = log.with_extension("1");
    fs::rename(&log, &moved).expect("a log");
    sidecar.weir.signal(Signal::USR1);
    wait_until("the log is there again", || log.exists());
    // The lines go to the old file until the gateway has opened the new one.
    wait_until("a line in the new log", || {
        sidecar.get(&format!("/{host}/later")).expect(200);
        fs::read_to_string(&log)
            .expect("a log")
            .contains("path=/later ")
    });
    assert!(
        fs::read_to_string(&moved)
            .expect("a log")
            .contains("path=/a ")
    );
    assert!(!sidecar.weir.read("log/access.log").contains("egress"));
}

#[test]
fn workers_are_told_where_calls_are_taken() {
    let setup = Setup::new().file("call.php", CALL);
    let socket = setup.folder().join("egress.sock");
    let outward = Outward::new().listen(&format!("unix:{}", socket.display()));
    let told = format!("http://{} {}", outward.address(), socket.display());
    let pools = format!(
        "[pool.cgi]\n{}[pool.own]\n{}[[site.main.route]]\npath = \"/cgi/*\"\npool = \"cgi\"\n\
         [[site.main.route]]\npath = \"/own/*\"\npool = \"own\"\n",
        cgi_pool(1),
        own(
            1,
            "env = { WEIR_EGRESS = \"http://127.0.0.1:1\", WEIR_EGRESS_SOCKET = \"mine\" }\n"
        ),
    );
    let setup = setup
        .file("cgi/call.php", CALL)
        .file("own/call.php", CALL)
        .pool(&own(1, ""))
        .more(&pools);
    let sidecar = outward.start_in(setup);
    let env = |folder: &str| {
        let path = format!("{folder}/call.php?env");
        sidecar.weir.get(&path).expect(200).text()
    };
    assert_eq!(env(""), told);
    assert_eq!(env("/cgi"), told);
    assert_eq!(env("/own"), "http://127.0.0.1:1 mine");

    // A reload that moves the socket starts new workers.
    let file = sidecar.weir.folder().join("weir.toml");
    let text = fs::read_to_string(&file).expect("weir.toml");
    let other = free_address().to_string();
    fs::write(&file, text.replace(&sidecar.address.to_string(), &other)).expect("weir.toml");
    sidecar.weir.signal(Signal::HUP);
    let told = format!("http://{other} {}", socket.display());
    wait_until("workers are told of the new address", || env("") == told);
    assert_eq!(env("/cgi"), told);
}

fn fetched(url: &str) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "30", "--noproxy", "*", url])
        .output()
        .expect("curl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a command of weir prints.
#[track_caller]
fn told(admin: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program())
        .args(arguments)
        .arg(format!("--admin=unix:{}", admin.display()))
        .output()
        .expect("weir");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn metrics_status_and_page_show_hosts() {
    let origin = origin();
    let refuses = free_address();
    let setup = Setup::new();
    let admin = setup.folder().join("admin.sock");
    let tcp = free_address();
    let lines = format!(
        "admin = \"unix:{}\"\nadmin_tcp = \"{tcp}\"",
        admin.display()
    );
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .plain_name("gone.test", refuses)
        .plain_name("down.test", origin.address())
        .usual("max_fails = 1\nretries = 0\nfail_timeout = \"60s\"")
        .start_in(setup.server(&lines));
    let [called, absent, broken] = [
        format!("api.test:{}", origin.address().port()),
        format!("gone.test:{}", refuses.port()),
        format!("down.test:{}", origin.address().port()),
    ];
    let [api, gone, down] = [&called, &absent, &broken].map(|host| format!("http://{host}"));
    for _ in 0..3 {
        sidecar.get(&format!("/{called}/")).expect(200);
    }
    for _ in 0..12 {
        sidecar.get(&format!("/{broken}/down")).expect(503);
    }
    sidecar.get(&format!("/{absent}/")).expect(502);
    sidecar.get(&format!("/{absent}/")).expect(503);
    sidecar.get("/nobody.test/").expect(403);

    let ask = |arguments: &[&str]| told(&admin, arguments);
    let status = || -> Value { serde_json::from_str(&ask(&["status", "--json"])).expect("JSON") };
    let host = |name: &str| -> Value {
        let status = status();
        let hosts = status["egress"]["hosts"].as_array().expect("hosts");
        let found = hosts.iter().find(|host| host["name"] == name);
        found
            .unwrap_or_else(|| panic!("{name} in {status:#}"))
            .clone()
    };
    wait_until("all calls are counted", || {
        host(&api)["calls"] == 3 && host(&gone)["calls"] == 2 && host(&down)["calls"] == 12
    });
    let (called, failed) = (host(&api), host(&gone));
    assert_eq!((&called["opened"], &called["kept"]), (&1.into(), &2.into()));
    assert_eq!(called["connections"]["idle"], 1, "{called:#}");
    assert_eq!(called["breaker"], "closed");
    assert_eq!(called["times"]["total"]["count"], 3);
    assert_eq!(failed["breaker"], "open", "{failed:#}");
    assert_eq!(failed["failed_by"]["refused"], 1, "{failed:#}");
    assert_eq!(failed["failed_by"]["breaker_open"], 1, "{failed:#}");
    assert_eq!(failed["last_error"]["reason"], "refused", "{failed:#}");
    let broken = host(&down);
    assert_eq!(broken["breaker"], "closed", "{broken:#}");
    assert_eq!(broken["server_errors"], 12, "{broken:#}");
    assert_eq!(broken["last_minute"]["server_errors"], 12, "{broken:#}");
    assert_eq!(broken["last_server_error"]["status"], 503, "{broken:#}");
    let egress = &status()["egress"];
    assert_eq!(egress["refused_by"]["not_allowed"], 1, "{egress:#}");
    assert!(egress["names"]["lookups"].as_u64() >= Some(2), "{egress:#}");

    let text = ask(&["status"]);
    for words in [
        &format!("calls {}", sidecar.address),
        &gone,
        "breaker open",
        "because too many failed",
        &format!("{down} answered 12 of 12 calls in the last minute with errors"),
    ] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(words), "{words}: {text}");
    }

    let metrics = fetched(&format!("http://{tcp}/metrics"));
    for line in [
        format!("weir_egress_calls_total{{host=\"{api}\",code=\"2xx\"}} 3"),
        format!("weir_egress_failures_total{{host=\"{gone}\",reason=\"refused\"}} 1"),
        format!("weir_egress_breaker{{host=\"{gone}\",state=\"open\"}} 1"),
        format!("weir_egress_connections{{host=\"{api}\",state=\"idle\"}} 1"),
        format!("weir_egress_kept_calls_total{{host=\"{api}\"}} 2"),
        format!("weir_egress_call_duration_seconds_count{{host=\"{api}\"}} 3"),
        "weir_egress_refused_total{reason=\"not_allowed\"} 1".to_owned(),
        format!("weir_egress_server_errors_total{{host=\"{down}\"}} 12"),
    ] {
        assert!(metrics.contains(&format!("{line}\n")), "{line}: {metrics}");
    }
    // A name that a caller makes up does not become a label.
    assert!(!metrics.contains("nobody.test"), "{metrics}");
    sidecar.weir.expect_sound_metrics(&metrics);

    let page = browse(&sidecar, &format!("http://{tcp}/"));
    assert!(page.contains("data-drawn=\"yes\""), "{page}");
    for words in [
        api.as_str(),
        "67 %",
        "refused: ",
        "answered 503",
        "12 of 12 calls",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn without_egress_nothing_is_shown_of_it() {
    let setup = Setup::new().file("call.php", CALL).pool(&own(1, ""));
    let weir = setup.admin().start();
    assert_eq!(weir.get("/call.php?env").expect(200).text(), " ");
    let output = weir.command(&["status"]).output().expect("weir");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !text.contains("calls"), "{text}");
}

/// A weir whose workers may call, with these lines for the site and the pool.
fn with_workers(origin: &Oddity, site: &str, pool: &str) -> (Sidecar, String) {
    let setup = Setup::new().file("call.php", CALL);
    let socket: PathBuf = setup.folder().join("egress.sock");
    let setup = setup.site(site).pool(&own(2, pool));
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .listen(&format!("unix:{}", socket.display()))
        .start_in(setup);
    let api = format!("api.test:{}", origin.address().port());
    (sidecar, api)
}

/// `/call.php?…`
fn script(how: &str, target: &str) -> String {
    let target = weir_test::http::encode(target);
    format!("/call.php?how={how}&target={target}")
}

#[test]
fn a_call_over_the_unix_socket_belongs_to_its_worker() {
    let origin = origin();
    let (sidecar, api) = with_workers(&origin, "", "");
    let path = script("unix", &format!("{api}/here"));
    let said = sidecar.weir.get(&path).expect(200).text();
    let (pid, said) = said.split_once(' ').expect("a process id");
    assert_eq!(said, "200 text");
    let call = line(&sidecar.weir, "/here");
    let request = sidecar.weir.logged(&path);
    assert_eq!(
        (&call["pool"], &call["caller"]),
        (&"app".into(), &"unix".into())
    );
    assert_eq!(call["pid"].to_string(), pid);
    assert_eq!(call["request_id"], request["request_id"], "{call:#}");
}

#[test]
fn a_pool_that_waits_for_a_host_is_told_its_name() {
    let origin = origin();
    let setup = Setup::new().file("call.php", CALL).admin();
    let socket: PathBuf = setup.folder().join("egress.sock");
    let setup = setup
        .server("ready_stalled = \"1s\"\n")
        .pool(&own(2, "request_slowlog_timeout = \"300ms\"\n"));
    let sidecar = Outward::new()
        .plain_name("api.test", origin.address())
        .listen(&format!("unix:{}", socket.display()))
        .start_in(setup);
    let api = format!("api.test:{}", origin.address().port());
    let path = script("unix", &format!("{api}/never"));
    let clients = [(); 3].map(|()| {
        let mut client = sidecar.weir.client();
        client.send(weir_test::weir::request("GET", &path, &[], b""));
        client
    });
    let said = wait_for("the host is named", || {
        let status = sidecar.weir.status();
        let mut said = status["troubles"].as_array()?.iter().map(|trouble| {
            let text = |key: &str| trouble[key].as_str().unwrap_or_default();
            format!("{} | {}", text("what"), text("help"))
        });
        said.find(|said| said.contains("2 in curl_exec() at"))
    });
    for words in [
        format!("2 calls to http://{api} run"),
        format!("http://{api} answers slowly"),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
    assert!(!said.contains("raise max_children"), "{said}");
    drop(clients);
    let idle = || sidecar.weir.status()["pools"][0]["work"]["calls"] == serde_json::json!([]);
    wait_until("no call is left", idle);
}

#[test]
fn a_call_over_tcp_that_lasts_belongs_to_its_worker() {
    let origin = origin();
    // The gateway looks by itself if it may. If not, the manager does if it may.
    let pools = match is_root() {
        true => &["", "process_dumpable = true\n"][..],
        false => &["process_dumpable = true\n"],
    };
    for pool in pools {
        let (sidecar, api) = with_workers(&origin, "", pool);
        let mut late = 20;
        let (pid, call) = wait_for("a call whose worker is found", || {
            late += 30;
            let path = format!("/late/{late}");
            let said = sidecar.weir.get(&script("tcp", &format!("{api}{path}")));
            let said = said.expect(200).text();
            let (pid, said) = said.split_once(' ').expect("a process id");
            assert_eq!(said, "200 text");
            let call = line(&sidecar.weir, &path);
            (call["pool"] != Value::Null).then(|| (pid.to_owned(), call))
        });
        assert_eq!(call["pool"], "app");
        assert_eq!(call["pid"].to_string(), pid, "{call:#}");
        assert!(call["request_id"].is_u64(), "{call:#}");
    }
}

/// A call lasts no longer than its request may last.
#[test]
fn a_call_ends_with_the_time_of_its_request() {
    let origin = origin();
    let dumpable = match is_root() {
        true => "",
        false => "process_dumpable = true\n",
    };
    for how in ["unix", "tcp"] {
        let (sidecar, api) = with_workers(&origin, "timeout = \"2s\"", dumpable);
        // On a busy machine the worker may be stopped a little earlier.
        let call = wait_for("a call whose time is over", || {
            let before = sidecar.weir.read("log/access.log").len();
            let answer = sidecar.weir.get(&script(how, &format!("{api}/never")));
            assert!([200, 504].contains(&answer.status), "{}", answer.status);
            let call = wait_for("its line", || {
                let text = sidecar.weir.read("log/access.log");
                let lines = text[before..].lines().map(str::to_owned);
                let mut calls = lines.filter(|line| line.contains("\"log\":\"egress\""));
                calls.next()
            });
            let call: Value = serde_json::from_str(&call).expect("JSON");
            (call["reason"] == "deadline").then_some(call)
        });
        assert_eq!(call["status"], 504, "{call:#}");
        let lasted = call["time_total"].as_f64().expect("seconds");
        assert!((1.0..10.0).contains(&lasted), "{call:#}");
    }
}

/// `timeout` limits the time until an answer begins.
#[test]
fn a_request_whose_answer_has_begun_may_call_for_longer() {
    let origin = origin();
    let site = "timeout = \"1s\"\n";
    let (sidecar, api) = with_workers(&origin, site, "");
    let path = script("unix", &format!("{api}/late/2500"));
    let said = sidecar
        .weir
        .get(&format!("{path}&begin"))
        .expect(200)
        .text();
    assert!(
        said.starts_with("begun ") && said.ends_with(" 200 text"),
        "{said}"
    );
}

/// The page as the browser has drawn it.
fn browse(sidecar: &Sidecar, url: &str) -> String {
    let options = [
        "--enable-logging=stderr",
        "--virtual-time-budget=9000",
        "--dump-dom",
    ];
    let page = render(sidecar.weir.folder(), url, &options);
    assert!(!page.errors.contains("CONSOLE"), "{}", page.errors);
    page.output
}
