//! The admin interface over TCP and in a browser, changes by operators while weir runs, and misbehaving scrapers.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use weir_test::browser::render;
use weir_test::weir::program;
use weir_test::{Client, Gate, LIMIT, Responder, Setup, Weir, free_address, process, wait_until};

const TOKEN: &str = "a-token-of-some-length";

/// A weir with its admin interface in its folder and on TCP, with a token if the test wants one. The worker of its pool waits at
/// the gate.
struct Running {
    weir: Weir,
    responder: Responder,
    gate: Gate,
    tcp: SocketAddr,
}

fn start(maxconn: usize, queue: &str, server: &str, token: bool) -> Running {
    let setup = Setup::new().file("run.php", "").file("text.txt", "a text");
    let (responder, gate) = Responder::gated(setup.folder(), |request, answer| {
        answer.page(request.param("REQUEST_URI"));
    });
    let tcp = free_address();
    let folder = setup.folder().display().to_string();
    let mut lines = format!("admin_tcp = \"{tcp}\"\nthreads = 1\n{server}");
    if token {
        fs::write(setup.folder().join("token"), format!("{TOKEN}\n")).expect("a token");
        lines += &format!("\nadmin_token_file = \"{folder}/token\"");
    }
    let pool = format!("{}{queue}", responder.pool(maxconn));
    let weir = setup.admin().server(&lines).pool(&pool).start();
    // weir binds its sockets one after another, but all of them before it answers the first request.
    weir.get("/text.txt").expect(200);
    Running {
        weir,
        responder,
        gate,
        tcp,
    }
}

/// `weir ARGUMENTS --admin=PLACE …`
fn weir(place: &str, arguments: &[&str]) -> Output {
    Command::new(program())
        .args(arguments)
        .arg(format!("--admin={place}"))
        .output()
        .expect("weir")
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[track_caller]
fn fine(output: &Output) -> String {
    assert!(output.status.success(), "{}", said(output));
    said(output)
}

impl Running {
    fn unix(&self) -> String {
        format!("unix:{}/admin.sock", self.weir.folder().display())
    }

    fn fine(&self, arguments: &[&str]) -> String {
        fine(&weir(&self.unix(), arguments))
    }

    /// Asks the admin interface over TCP.
    fn over_tcp(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut client = Client::connect(self.tcp);
        let host = self.tcp.to_string();
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head += &format!("Host: {host}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        client.send(format!("{head}\r\n"));
        let response = client.response();
        (response.status, response.text())
    }

    fn ask(&self) -> Client {
        let mut client = self.weir.client();
        client.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    }
}

#[test]
fn over_tcp_everybody_may_look_and_nobody_may_do_anything() {
    let running = start(1, "", "", false);
    let ask = |method: &str, path: &str| running.over_tcp(method, path, &[]);
    for path in ["/metrics", "/healthz", "/readyz", "/status", "/"] {
        assert_eq!(ask("GET", path).0, 200, "{path}");
    }
    assert!(ask("GET", "/metrics").1.contains("weir_build_info"));
    for path in ["/reload", "/stop", "/drain", "/pool/app/set?maxconn=2"] {
        let (status, why) = ask("POST", path);
        assert_eq!(status, 403, "{path}");
        assert!(why.contains("admin_token_file"), "{why}");
    }
    // A browser that was tricked into using weir's address for another site's name (DNS rebinding).
    let (status, _) = running.over_tcp("GET", "/status", &[("Host", "evil.example")]);
    assert_eq!(status, 403);
    // A client of the socket needs no token.
    assert!(running.fine(&["status"]).contains("serving, "));
    let place = running.tcp.to_string();
    assert!(fine(&weir(&place, &["status"])).contains("pool app"));
    let refused = weir(&place, &["reload"]);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("token"), "{}", said(&refused));
}

#[test]
fn with_the_token_things_are_done_over_tcp() {
    let running = start(1, "", "", true);
    let bearer = format!("Bearer {TOKEN}");
    let with = [("Authorization", bearer.as_str())];
    assert_eq!(running.over_tcp("POST", "/drain", &[]).0, 401);
    let wrong = [("Authorization", "Bearer a-token-of-some-lengtH")];
    assert_eq!(running.over_tcp("POST", "/drain", &wrong).0, 401);
    assert_eq!(running.over_tcp("GET", "/readyz", &[]).0, 200);
    assert_eq!(running.over_tcp("POST", "/drain", &with).0, 200);
    assert_eq!(running.over_tcp("GET", "/readyz", &[]).0, 503);
    let file = running.weir.folder().join("token");
    let output = Command::new(program())
        .args(["drain", "--off"])
        .arg(format!("--admin={}", running.tcp))
        .arg(format!("--token-file={}", file.display()))
        .output()
        .expect("weir");
    fine(&output);
    assert_eq!(running.over_tcp("GET", "/readyz", &[]).0, 200);
}

#[test]
fn a_health_check_gets_an_exit_code_and_the_reason() {
    let running = start(1, "", "", false);
    let place = running.tcp.to_string();
    let healthy = || weir(&place, &["status", "--healthy"]);
    assert_eq!(healthy().status.code(), Some(0));
    running.fine(&["drain"]);
    let drained = healthy();
    assert_eq!(drained.status.code(), Some(1));
    assert!(said(&drained).contains("drain"), "{}", said(&drained));
    running.fine(&["drain", "--off"]);
    assert_eq!(healthy().status.code(), Some(0));
    let nobody = free_address().to_string();
    assert_eq!(
        weir(&nobody, &["status", "--healthy"]).status.code(),
        Some(1)
    );
}

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics_of_servers_and_strange_names() {
    let strange = "[pool.\"a \\\"b\\\" \\\\ <i>\"]\nruntime = \"servers\"\nservers = [\"127.0.0.1:9\", \"127.0.0.2:9\"]\n\
                   queue.maxconn = 2\n";
    let setup = Setup::new().more(strange);
    let admin = format!("unix:{}/admin.sock", setup.folder().display());
    let tcp = free_address();
    let lines = format!("admin = \"{admin}\"\nadmin_tcp = \"{tcp}\"");
    let there = setup.server(&lines).start();
    there.get("/").status.to_string();
    let mut client = Client::connect(tcp);
    client.send("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    let text = client.response().expect(200).text();
    assert!(text.contains("server=\"127.0.0.2:9\""), "{text}");
    assert!(text.contains("a \\\"b\\\" \\\\ <i>"), "{text}");
    let file = there.folder().join("metrics.txt");
    fs::write(&file, &text).expect("a file");
    let output = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(fs::File::open(&file).expect("a file"))
        .output()
        .expect("promtool");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), "");
}

#[test]
fn a_token_that_is_none_is_refused_at_the_start() {
    let setup = Setup::new();
    let file = setup.folder().join("token");
    fs::write(&file, "short\n").expect("a file");
    let lines = format!(
        "admin = \"off\"\nadmin_tcp = \"{}\"\nadmin_token_file = \"{}\"",
        free_address(),
        file.display()
    );
    let (status, said) = setup.server(&lines).start_in_vain();
    assert_eq!(status.code(), Some(78));
    assert!(said.contains("server.admin_token_file"), "{said}");
    assert!(said.contains("16 to 4096 characters"), "{said}");
    assert!(said.contains("openssl rand"), "{said}");
}

#[test]
fn a_port_that_is_taken_is_told_at_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let lines = format!("admin = \"off\"\nadmin_tcp = \"{address}\"");
    let (status, said) = Setup::new().server(&lines).start_in_vain();
    assert_eq!(status.code(), Some(78));
    assert!(said.contains("server.admin_tcp"), "{said}");
    assert!(said.contains("in use"), "{said}");
}

#[test]
fn a_folder_that_is_missing_is_told_with_what_mends_it() {
    let lines = "admin = \"unix:/nowhere/at/all/admin.sock\"";
    let (status, said) = Setup::new().server(lines).start_in_vain();
    assert_eq!(status.code(), Some(78));
    assert!(said.contains("its folder does not exist"), "{said}");
    assert!(said.contains("RuntimeDirectory"), "{said}");
}

#[test]
fn whoever_has_the_socket_is_named_and_one_left_behind_is_replaced() {
    let running = start(1, "", "", false);
    let admin = format!("admin = \"{}\"", running.unix());
    let (status, said) = Setup::new().server(&admin).start_in_vain();
    assert_eq!(status.code(), Some(78));
    let pid = format!("process {}", running.weir.pid());
    assert!(said.contains(&pid), "{said}");

    let setup = Setup::new();
    let socket = setup.folder().join("admin.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket"));
    assert!(socket.exists());
    let admin = format!("admin = \"unix:{}\"", socket.display());
    let weir_there = setup.server(&admin).start();
    fine(&weir(&format!("unix:{}", socket.display()), &["status"]));
    drop(weir_there);
}

#[test]
fn a_drained_weir_is_not_ready_and_answers_and_stays_so_over_a_reload() {
    let running = start(1, "", "", false);
    let mut client = running.weir.client();
    client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.response().expect(200).header("connection").is_none());
    running.fine(&["drain"]);
    assert_eq!(running.weir.status()["state"], "draining");
    let (status, why) = running.over_tcp("GET", "/readyz", &[]);
    assert_eq!(status, 503);
    assert!(why.contains("drained"), "{why}");
    // A kept connection gets its answer and is then closed.
    client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        client.response().expect(200).header("connection"),
        Some("close")
    );
    client.expect_closed();
    running.weir.get("/text.txt").expect(200);
    running.fine(&["reload"]);
    wait_until("the next gateway is drained too", || {
        running.weir.status()["state"] == "draining"
    });
    running.fine(&["drain", "--off"]);
    wait_until("it is ready", || {
        running.over_tcp("GET", "/readyz", &[]).0 == 200
    });
}

#[test]
fn a_queue_that_is_full_enough_makes_it_not_ready() {
    let running = start(
        1,
        "queue.max_queue = 4\nqueue.timeout = \"1h\"",
        "ready_saturation = 75",
        false,
    );
    assert_eq!(running.over_tcp("GET", "/readyz", &[]).0, 200);
    let clients: Vec<Client> = (0..4).map(|_| running.ask()).collect();
    wait_until("three wait", || {
        running.weir.status()["pools"][0]["queue"]["waiting"] == 3
    });
    let (status, why) = running.over_tcp("GET", "/readyz", &[]);
    assert_eq!(status, 503);
    assert!(why.contains("75 % full"), "{why}");
    let text = running.fine(&["status"]);
    assert!(text.contains("NOT READY"), "{text}");
    assert!(text.contains("! pool app: 3 wait"), "{text}");
    let metrics = running.over_tcp("GET", "/metrics", &[]).1;
    assert!(metrics.contains("weir_pool_queue_requests{pool=\"app\"} 3"));
    assert!(metrics.contains("weir_ready 0"));
    running.gate.open();
    drop(clients);
    wait_until("it is ready again", || {
        running.over_tcp("GET", "/readyz", &[]).0 == 200
    });
}

#[test]
fn bodies_in_memory_and_on_the_disk_are_told_and_forgotten() {
    let running = start(1, "", "", false);
    let mut waits = running.ask();
    let body = vec![b'x'; 200_000];
    let mut client = running.weir.client();
    let head = format!(
        "POST /run.php HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(head).send(&body);
    wait_until("the body is here", || {
        let spool = &running.weir.status()["spool"];
        spool["memory"] == 65_536 && spool["bytes"] == 200_000 - 65_536
    });
    running.gate.open();
    waits.response().expect(200);
    client.response().expect(200);
    wait_until("it is gone", || {
        let spool = &running.weir.status()["spool"];
        spool["memory"] == 0 && spool["bytes"] == 0
    });
}

#[test]
fn maxconn_is_set_while_it_runs_until_the_next_reload() {
    let running = start(3, "", "", false);
    let place = running.unix();
    fine(&weir(&place, &["pool", "app", "set", "maxconn=1"]));
    assert_eq!(
        running.weir.status()["pools"][0]["workers"]["running_limit"],
        1
    );
    assert_eq!(
        running.weir.status()["pools"][0]["workers"]["set_by_operator"],
        true
    );
    let mut clients: Vec<Client> = (0..3).map(|_| running.ask()).collect();
    wait_until("one runs and two wait", || {
        let status = running.weir.status();
        status["pools"][0]["queue"]["waiting"] == 2 && running.responder.running() == 1
    });
    fine(&weir(&place, &["pool", "app", "set", "maxconn=3"]));
    wait_until("all run", || running.responder.running() == 3);
    for (arguments, why) in [
        (&["pool", "app", "set", "max_children=2"][..], "set maxconn"),
        (&["pool", "app", "set", "maxconn=9"], "1 to 3"),
        (&["pool", "other", "set", "maxconn=2"], "unknown pool"),
    ] {
        let output = weir(&place, arguments);
        assert!(!output.status.success());
        assert!(said(&output).contains(why), "{}", said(&output));
    }
    running.gate.open();
    for client in &mut clients {
        client.response().expect(200);
    }
    fine(&weir(&place, &["pool", "app", "set", "maxconn=1"]));
    running.fine(&["reload"]);
    wait_until("the configuration counts again", || {
        running.weir.status()["pools"][0]["workers"]["set_by_operator"] == false
    });
}

#[test]
fn max_children_is_set_while_it_runs_and_survives_the_gateway() {
    let setup = Setup::new().file("pid.php", "<?php echo getmypid();");
    let admin = format!("unix:{}/admin.sock", setup.folder().display());
    let weir_there = setup
        .server(&format!("admin = \"{admin}\""))
        .pool(&weir_test::php::own(2, ""))
        .start();
    let workers = || {
        let json = weir(&admin, &["status", "--json"]);
        let status: Option<Value> = serde_json::from_slice(&json.stdout).ok();
        status.map_or(0, |status| {
            let workers = &status["pools"][0]["workers"];
            workers["busy"].as_u64().unwrap_or(0) + workers["idle"].as_u64().unwrap_or(0)
        })
    };
    wait_until("two workers", || workers() == 2);
    fine(&weir(&admin, &["pool", "app", "set", "max_children=5"]));
    wait_until("five workers", || workers() == 5);
    weir_there.wait_for_error(&["serves"]);
    let gateway = weir_there.gateway();
    process::signal(gateway.pid, rustix::process::Signal::KILL);
    wait_until("five workers of another gateway", || {
        weir_there
            .processes()
            .iter()
            .all(|one| one.pid != gateway.pid)
            && workers() == 5
    });
    fine(&weir(&admin, &["pool", "app", "set", "max_children=1"]));
    wait_until("one worker", || workers() == 1);
    let output = weir(&admin, &["pool", "app", "set", "max_children=5000"]);
    assert!(said(&output).contains("1 to 16"), "{}", said(&output));
    weir_there.get("/pid.php").expect(200);
}

#[test]
fn what_processes_take_is_told() {
    let setup = Setup::new().file("pid.php", "<?php for ($i = 0; $i < 3000000; $i++); echo 1;");
    let admin = format!("unix:{}/admin.sock", setup.folder().display());
    let weir_there = setup
        .server(&format!("admin = \"{admin}\""))
        .pool(&weir_test::php::own(2, ""))
        .start();
    weir_there.get("/pid.php").expect(200);
    let mut last = Value::Null;
    wait_until("all is measured", || {
        // The kernel counts in hundredths of a second.
        weir_there.get("/pid.php").expect(200);
        let json = weir(&admin, &["status", "--json"]);
        last = serde_json::from_slice(&json.stdout).unwrap_or_default();
        let pool = &last["pools"][0];
        let positive = |value: &Value| value.as_f64().is_some_and(|value| value > 0.0);
        positive(&pool["memory"]["all"])
            && positive(&pool["memory"]["worker"])
            && positive(&pool["cpu"])
            && positive(&last["processes"]["gateway"]["memory"])
            && positive(&last["processes"]["manager"]["memory"])
    });
    assert_eq!(last["reloads"]["done"], 0);
    fine(&weir(&admin, &["reload"]));
    wait_until("the reload is counted", || {
        let json = weir(&admin, &["status", "--json"]);
        last = serde_json::from_slice(&json.stdout).unwrap_or_default();
        last["reloads"]["done"] == 1
    });
}

#[test]
fn scrapers_that_never_read_and_never_ask_keep_nobody_out() {
    let running = start(1, "", "", false);
    let mut stuck: Vec<TcpStream> = Vec::new();
    // More connections than there are places. Some send nothing, some ask and do not read, some send without end.
    for number in 0..300 {
        let mut stream = TcpStream::connect(running.tcp).expect("a connection");
        stream
            .set_write_timeout(Some(Duration::from_millis(200)))
            .expect("a limit");
        match number % 3 {
            0 => {}
            1 => drop(stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")),
            _ => drop(stream.write_all(b"GET / HTTP/1.1\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaa")),
        }
        stuck.push(stream);
    }
    let socket = running.weir.folder().join("admin.sock");
    let on_unix: Vec<UnixStream> = (0..40)
        .map(|_| UnixStream::connect(&socket).expect("a connection"))
        .collect();
    assert_eq!(running.over_tcp("GET", "/metrics", &[]).0, 200);
    running.fine(&["status"]);
    running.weir.get("/text.txt").expect(200);
    drop((stuck, on_unix));
}

#[test]
fn somebody_who_says_nothing_is_sent_away() {
    let running = start(1, "", "", false);
    let mut stream = TcpStream::connect(running.tcp).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    let began = Instant::now();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the end");
    assert!(began.elapsed() < LIMIT);
}

#[test]
fn the_page_works_in_a_browser() {
    // The browser may need some time.
    let running = start(
        1,
        "queue.timeout = \"300s\"\n",
        "ready_stalled = \"0\"",
        false,
    );
    let waiting: Vec<Client> = (0..3).map(|_| running.ask()).collect();
    wait_until("two wait", || {
        running.weir.status()["pools"][0]["queue"]["waiting"] == 2
    });
    let folder = running.weir.folder();
    let browse = |more: &str| {
        let url = format!("http://{}/", running.tcp);
        let options = [
            "--enable-logging=stderr",
            "--window-size=390,1600",
            "--virtual-time-budget=9000",
            more,
        ];
        let page = render(folder, &url, &options);
        assert!(!page.errors.contains("CONSOLE"), "{}", page.errors);
        page.output
    };
    let page = browse("--dump-dom");
    assert!(page.contains("data-drawn=\"yes\""), "{page}");
    // After ten seconds the servers count as stuck. The text says this first.
    assert!(
        page.contains("<a href=\"#pool-app\">pool app</a>: ") && page.contains("2 wait"),
        "{page}"
    );
    assert!(page.contains("aria-label=\"requests: waiting 2"), "{page}");
    assert!(page.contains("serving, ready"), "{page}");
    let picture = folder.join("page.png");
    browse(&format!("--screenshot={}", picture.display()));
    let picture = fs::read(&picture).expect("a picture");
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 10_000);
    running.gate.open();
    drop(waiting);
}
