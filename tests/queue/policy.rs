//! What a site, a route or a FastCGI listener sets for a request: deadlines, priorities, and who may set them.

use std::fs;
use std::time::Duration;

use weir_test::fcgi::{STDIN, record};
use weir_test::front::{Behind, Params, WebServer, head};
use weir_test::php::{self, Fpm, cgi_pool};
use weir_test::{Client, Gate, Responder, Setup, Weir, wait_until};

/// Begins to answer if asked to, and waits at the gate.
const WAIT: &str = "<?php
    if ($_GET['answers'] ?? 0) { echo str_repeat('begun ', 2000), \"\\r\\n\"; flush(); }
    file_put_contents($_GET['came'], getmypid());
    while (!file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); }
    echo 'done';
";

/// The remaining time that weir tells the script, in seconds.
const LEFT: &str = "<?php
    $deadline = $_SERVER['REQUEST_DEADLINE'] ?? null;
    echo $deadline === null ? 'none' : sprintf('%.3f', $deadline - microtime(true));
";

fn scripts() -> Setup {
    Setup::new()
        .file("wait.php", WAIT)
        .file("left.php", LEFT)
        .file("pid.php", "<?php echo getmypid();")
}

fn target(weir: &Weir, name: &str, query: &str) -> String {
    format!(
        "/wait.php?came={}&gate={}{query}",
        weir.scratch(&format!("came-{name}")).display(),
        weir.scratch(&format!("gate-{name}")).display(),
    )
}

#[track_caller]
fn wait_until_it_runs(weir: &Weir, name: &str) {
    wait_until("the script runs", || {
        weir.scratch(&format!("came-{name}")).exists()
    });
}

fn pid(weir: &Weir) -> String {
    weir.get("/pid.php").expect(200).text()
}

/// The remaining seconds that weir told the script, or none without a deadline.
#[track_caller]
fn left(text: &str) -> Option<f64> {
    (text != "none").then(|| text.parse().expect("seconds"))
}

#[test]
fn a_script_that_is_late_is_stopped_and_its_worker_replaced() {
    for pool in [php::own(1, ""), cgi_pool(1)] {
        let weir = scripts()
            .pool(&pool)
            .more("[[site.main.route]]\npath = \"/wait.php\"\ntimeout = \"700ms\"\n")
            .start();
        let worker = pid(&weir);
        let target = target(&weir, "a", "");
        weir.get(&target).expect(504).expect_reason("terminated");
        let line = weir.logged(&target);
        assert_eq!(line["status"], 504);
        assert_eq!(line["time_limit"], 0.7);
        let total = line["time_total"].as_f64().expect("seconds");
        assert!((0.7..30.0).contains(&total), "{total}");
        weir.wait_for_error(&["504 terminated", "timeout"]);
        assert_ne!(pid(&weir), worker);
        assert!(weir.logged("/pid.php")["time_limit"].is_null());
        assert!(!weir.stderr().contains("worker died"), "{}", weir.stderr());
    }
}

#[test]
fn a_late_server_is_left_alone() {
    let setup = scripts();
    let fpm = Fpm::unix(setup.folder(), 2);
    let weir = setup.pool(&fpm.pool(2)).site("timeout = \"700ms\"").start();
    let target = target(&weir, "a", "");
    weir.get(&target).expect(504).expect_reason("terminated");
    // PHP-FPM continues to run the script: weir has not told it to stop.
    fs::write(weir.scratch("gate-a"), "").expect("the gate");
    weir.get("/pid.php").expect(200);
}

#[test]
fn an_answer_that_has_begun_is_not_cut() {
    let weir = scripts()
        .pool(&php::own(1, ""))
        .site("timeout = \"1s\"")
        .start();
    let worker = pid(&weir);
    let mut client = weir.client();
    let target = target(&weir, "a", "&answers=1");
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    wait_until_it_runs(&weir, "a");
    // Longer than the limit.
    std::thread::sleep(Duration::from_millis(1_500));
    fs::write(weir.scratch("gate-a"), "").expect("the gate");
    let answer = client.response().expect(200);
    assert!(answer.whole && answer.text().ends_with("done"));
    assert_eq!(pid(&weir), worker);
}

#[test]
fn a_body_that_is_late_takes_no_worker() {
    let setup = Setup::new().file("run.php", "").file("text.txt", "a text");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("ran"));
    let weir = setup
        .pool(&responder.pool(1))
        .site("timeout = \"600ms\"")
        .start();
    let mut client = weir.client();
    client.send("POST /run.php HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    // Some of it comes again and again, but never all of it.
    for _ in 0..90 {
        if !client.quiet_for(Duration::from_millis(100)) {
            break;
        }
        client.try_send("some of it");
    }
    client.response().expect(408);
    assert_eq!(weir.logged("/run.php")["reason"], "request_timeout");
    assert_eq!(responder.uris().len(), 0, "no script ran");
    weir.get("/text.txt").expect(200);
    weir.get("/run.php").expect(200);
}

#[test]
fn a_late_body_of_a_web_server_in_front_takes_no_worker() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("ran"));
    let behind = Behind::start(setup, &responder.pool(1), "timeout = \"600ms\"");
    let mut front = behind.front();
    let params = Params::post(&behind.weir.root(), "/run.php", 1000);
    front.send(head(1, true, &params));
    front.send(record(STDIN, 1, b"some of it"));
    let (head, _) = front.answer(1).text();
    assert!(head.contains("Status: 408"), "{head}");
    assert_eq!(behind.weir.logged("/run.php")["reason"], "request_timeout");
    assert_eq!(responder.uris().len(), 0, "no script ran");
}

#[test]
fn a_late_script_behind_a_web_server_is_stopped() {
    let lines = "timeout = \"700ms\"\ntimeout_header = \"X-Request-Timeout\"\n\
                 on_worker_failure = \"answer\"\nproxy_status = true";
    let behind = Behind::start(scripts(), &php::own(1, ""), lines);
    let worker = pid(&behind.weir);
    let target = target(&behind.weir, "a", "");
    let (head, _) = behind.front().ask(&behind.params(&target), b"").text();
    assert!(head.contains("Status: 504"), "{head}");
    assert!(head.contains("details=\"terminated\""), "{head}");
    assert_ne!(pid(&behind.weir), worker);
    // weir tells the script the deadline. A deadline from the web server has no effect.
    let params = behind.params("/left.php").with("REQUEST_DEADLINE", "1");
    let (_, text) = behind.front().ask(&params, b"").text();
    let left = left(&text).expect("a deadline");
    assert!((-30.0..0.75).contains(&left), "{left}");
    let params = behind
        .params("/left.php")
        .with("HTTP_X_REQUEST_TIMEOUT", "0.3");
    let (head, text) = behind.front().ask(&params, b"").text();
    assert!(
        head.contains("Status: 50") || self::left(&text) < Some(0.35),
        "{text}"
    );
}

#[test]
fn clients_may_lower_the_limit_where_they_are_asked() {
    let weir = scripts()
        .pool(&php::own(1, ""))
        .site("timeout = \"100s\"\ntimeout_header = \"X-Request-Timeout\"")
        .more(
            "[[site.main.route]]\npath = \"/left.php/only\"\ntimeout = 0\n\
             [[site.main.route]]\npath = \"/left.php/unasked\"\ntimeout_header = \"\"\n\
             [[site.main.route]]\npath = \"/left.php/free\"\ntimeout = 0\ntimeout_header = \"\"\n",
        )
        .start();
    let told = |path: &str, says: &str| {
        let headers = [("X-Request-Timeout", says)];
        let headers = if says.is_empty() { &[][..] } else { &headers };
        left(&weir.request("GET", path, headers, b"").expect(200).text())
    };
    for (path, says, least, most) in [
        ("/left.php", "", 50.0, 100.0),
        ("/left.php", "60", 20.0, 60.0),
        ("/left.php", "45.5", 10.0, 45.5),
        ("/left.php", "40000ms", 5.0, 40.0),
        ("/left.php", "1m", 20.0, 60.0),
        ("/left.php", "1h", 60.0, 100.0),
        ("/left.php", "0", 60.0, 100.0),
        ("/left.php", "-5", 60.0, 100.0),
        ("/left.php", "soon", 60.0, 100.0),
        ("/left.php", "99999999999999999999999", 60.0, 100.0),
        ("/left.php/only", "60", 20.0, 60.0),
        ("/left.php/unasked", "60", 60.0, 100.0),
    ] {
        let left = told(path, says).expect("a deadline");
        assert!(
            (least..most + 0.01).contains(&left),
            "{path} {says:?}: {left}"
        );
    }
    assert_eq!(told("/left.php/only", "soon"), None);
    assert_eq!(told("/left.php/free", "1"), None);
    let slow = target(&weir, "a", "");
    let headers = [("x-request-timeout", "0.7")];
    weir.request("GET", &slow, &headers, b"")
        .expect(504)
        .expect_reason("terminated");
}

#[test]
fn a_deadline_holds_over_local_redirects_and_not_for_files() {
    let weir = scripts()
        .file(
            "sends.php",
            "<?php usleep(1000 * (int)($_GET['ms'] ?? 0)); header('X-Accel-Redirect: ' . $_GET['to']);",
        )
        .file(
            "goes.php",
            "<?php header('Location: /left.php'); http_response_code(200);",
        )
        .file("files/large.txt", "x".repeat(300_000))
        .pool(&php::own(1, ""))
        .site("accel_redirect = { \"/files/\" = \"root/files\" }")
        .more(
            "[[site.main.route]]\npath = \"/left.php\"\ntimeout = \"90s\"\n\
             [[site.main.route]]\npath = \"/goes.php\"\ntimeout = \"60s\"\n\
             [[site.main.route]]\npath = \"/sends.php\"\ntimeout = \"2s\"\n",
        )
        .start();
    // The earlier of the two deadlines.
    let told = left(&weir.get("/goes.php").expect(200).text()).expect("a deadline");
    assert!((10.0..60.01).contains(&told), "{told}");
    let sent = weir.get("/sends.php?to=/left.php").expect(200).text();
    let told = left(&sent).expect("a deadline");
    assert!(told < 2.01, "{told}");
    weir.get("/sends.php?ms=60000&to=/files/large.txt")
        .expect(504);
    // The time that the client takes to read a file does not count for its script.
    let mut client = weir.client();
    client.send("GET /sends.php?to=/files/large.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(!client.quiet_for(Duration::from_secs(20)));
    // Longer than the limit.
    std::thread::sleep(Duration::from_millis(2_200));
    assert_eq!(client.response().expect(200).body.len(), 300_000);
}

#[test]
fn a_request_that_is_refused_says_when_to_come_again() {
    let setup = Setup::new()
        .file("run.php", "")
        .file("errors/503.html", "<h1>Soon</h1>");
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("ran");
    });
    let pool = format!("{}queue.max_queue = 0\n", responder.pool(1));
    let setup = setup.site("error_pages = { 503 = \"errors/503.html\" }");
    let behind = Behind::start(setup, &pool, "");
    let weir = &behind.weir;
    let location = format!(
        "location / {{ include /etc/nginx/fastcgi_params; \
         fastcgi_param SCRIPT_FILENAME {}/run.php; fastcgi_pass {}; }}",
        weir.root().display(),
        behind.address
    );
    let nginx = WebServer::nginx(weir.folder(), &location, "");
    let mut running = weir.client();
    running.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is at work", || responder.running() == 1);
    for method in ["GET", "HEAD", "POST"] {
        let answer = weir.request(method, "/run.php", &[], b"");
        let answer = answer.expect(503).expect_reason("queue_full");
        let seconds = answer.header("retry-after").expect("Retry-After");
        assert!(seconds.parse::<u32>().expect("seconds") >= 1);
        if method != "HEAD" {
            assert_eq!(answer.text(), "<h1>Soon</h1>");
        }
        // The web server in front passes the header on.
        let mut client = Client::connect(nginx.address());
        client.send(weir_test::weir::request(method, "/run.php", &[], b""));
        let answer = client.response_to(method).expect(503);
        let seconds = answer.header("retry-after").expect("Retry-After");
        assert!(seconds.parse::<u32>().expect("seconds") >= 1);
    }
    gate.open();
    running.response().expect(200);
}

#[test]
fn nginx_hands_a_left_client_on() {
    let behind = Behind::start(scripts(), &php::own(1, ""), "on_client_left = \"cancel\"");
    let weir = &behind.weir;
    let location = format!(
        "location / {{ include /etc/nginx/fastcgi_params; \
         fastcgi_param SCRIPT_FILENAME {}$uri; fastcgi_pass {}; }}",
        weir.root().display(),
        behind.address
    );
    let nginx = WebServer::nginx(weir.folder(), &location, "");
    let worker = pid(weir);
    let target = target(weir, "a", "");
    let mut client = Client::connect(nginx.address());
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    wait_until_it_runs(weir, "a");
    drop(client);
    assert_eq!(weir.logged(&target)["reason"], "client_left");
    assert_ne!(pid(weir), worker);
}

#[test]
fn what_a_request_is_worth_is_logged_and_traced() {
    let weir = scripts()
        .traced()
        .pool(&php::own(1, ""))
        .site(
            "timeout = \"90s\"\npriority = 7\n\
             priority_by = [{ header = \"User-Agent\", match = \"~(?i)bot\", priority = 50 }, \
             { cookie = \"cart\", match = \"v1.*\", priority = -10 }, { header = \"X-None\", match = \"\", priority = 1 }]",
        )
        .start();
    for (number, headers, priority) in [
        (0, vec![], 7),
        (1, vec![("User-Agent", "SomeBot/1.0")], 50),
        (2, vec![("Cookie", "a=b; cart=v1.22")], -10),
        (3, vec![("Cookie", "a=b"), ("Cookie", "cart=v1.")], -10),
        (4, vec![("Cookie", "a=b; cart=v2")], 7),
        (5, vec![("Cookie", "xcart=v1.2; carts=v1.2; cart")], 7),
        (
            6,
            vec![("User-Agent", "robot"), ("Cookie", "cart=v1.2")],
            50,
        ),
        (7, vec![("X-None", "")], 1),
    ] {
        let path = format!("/pid.php?{number}");
        weir.request("GET", &path, &headers, b"").expect(200);
        let line = weir.logged(&path);
        assert_eq!(line["priority"], priority, "{headers:?}");
        assert_eq!(line["time_limit"], 90.0);
    }
    weir.wait_for_error(&["queue", "pool=app", "priority=50", "remaining="]);
    weir.get("/none.txt").expect(404);
    assert!(weir.logged("/none.txt")["priority"].is_null());
    let mut leaves = weir.client();
    let slow = target(&weir, "a", "");
    leaves.send(format!("GET {slow} HTTP/1.1\r\nHost: a\r\n\r\n"));
    wait_until_it_runs(&weir, "a");
    drop(leaves);
    weir.wait_for_error(&["left", "0 bytes; its script continues"]);
    fs::write(weir.scratch("gate-a"), "").expect("the gate");
}

/// One worker behind a gate that prints the request it got.
fn gated(site: &str) -> (Weir, Responder, Gate) {
    let setup = Setup::new().file("run.php", "");
    let (responder, gate) = Responder::gated(setup.folder(), |request, answer| {
        answer.page(request.param("QUERY_STRING"));
    });
    let setup = setup.server("threads = 1").admin().site(site);
    let weir = setup.pool(&responder.pool(1)).start();
    (weir, responder, gate)
}

/// Sends a request that then waits in the queue or runs.
fn ask_for(weir: &Weir, query: &str, headers: &str) -> Client {
    let mut client = weir.client();
    weir.after(1, || {
        client.send(format!(
            "GET /run.php?{query} HTTP/1.1\r\nHost: a\r\n{headers}\r\n"
        ));
    });
    client
}

/// The order in which the worker got the requests.
fn order(responder: &Responder) -> Vec<String> {
    let uris = responder.uris().into_iter();
    uris.map(|uri| uri.replace("/run.php?", "")).collect()
}

#[test]
fn who_waits_past_the_deadline_is_told_so() {
    let (weir, responder, gate) =
        gated("timeout = \"60s\"\ntimeout_header = \"X-Request-Timeout\"");
    let mut running = ask_for(&weir, "running", "");
    wait_until("one is at work", || responder.running() == 1);
    let mut late = ask_for(&weir, "late", "X-Request-Timeout: 0.8\r\n");
    let mut stays = ask_for(&weir, "stays", "");
    let answer = late.response().expect(503).expect_reason("queue_timeout");
    assert!(answer.header("retry-after").is_some());
    let line = weir.logged("/run.php?late");
    assert_eq!(
        (&line["time_limit"], line["worker"].is_null()),
        (&0.8.into(), true)
    );
    gate.open();
    running.response().expect(200);
    stays.response().expect(200);
    assert_eq!(order(&responder), ["running", "stays"]);
}

#[test]
fn lower_priorities_are_served_first() {
    let (weir, responder, gate) = gated(
        "priority_by = [{ header = \"User-Agent\", match = \"*bot*\", priority = 50 }, \
         { cookie = \"cart\", priority = -10 }]",
    );
    let mut clients = vec![ask_for(&weir, "running", "")];
    wait_until("one is at work", || responder.running() == 1);
    for (query, headers) in [
        ("crawls", "User-Agent: somebot/1\r\n"),
        ("looks", ""),
        ("crawls2", "User-Agent: somebot/1\r\nCookie: cart=1\r\n"),
        ("buys", "Cookie: a=b; cart=1\r\n"),
    ] {
        clients.push(ask_for(&weir, query, headers));
    }
    gate.open();
    for client in &mut clients {
        client.response().expect(200);
    }
    assert_eq!(
        order(&responder),
        ["running", "buys", "looks", "crawls", "crawls2"]
    );
}

#[test]
fn clients_are_told_apart_as_the_site_says() {
    for (fair_by, header) in [
        ("header:X-Real-IP", "X-Real-IP: "),
        ("cookie:session", "Cookie: a=1; session="),
    ] {
        let (weir, responder, gate) = gated(&format!("fair_by = \"{fair_by}\""));
        let mut clients = vec![ask_for(&weir, "running", "")];
        wait_until("one is at work", || responder.running() == 1);
        for number in 0..10 {
            let query = format!("greedy{number}");
            clients.push(ask_for(&weir, &query, &format!("{header}192.0.2.1\r\n")));
        }
        clients.push(ask_for(&weir, "modest", &format!("{header}192.0.2.2\r\n")));
        gate.open();
        for client in &mut clients {
            client.response().expect(200);
        }
        let order = order(&responder);
        let place = order.iter().position(|query| query == "modest");
        assert!(
            place.is_some_and(|place| place <= 3),
            "{fair_by}: {order:?}"
        );
    }
}

#[test]
fn clients_are_told_apart_by_their_addresses() {
    let (weir, responder, gate) = gated("");
    let mut clients = vec![ask_for(&weir, "running", "")];
    wait_until("one is at work", || responder.running() == 1);
    for number in 0..10 {
        clients.push(ask_for(&weir, &format!("greedy{number}"), ""));
    }
    let mut modest = Client::connect_from([127, 0, 0, 99].into(), weir.address());
    weir.after(1, || {
        modest.send("GET /run.php?modest HTTP/1.1\r\nHost: a\r\n\r\n");
    });
    clients.push(modest);
    gate.open();
    for client in &mut clients {
        client.response().expect(200);
    }
    let order = order(&responder);
    let place = order.iter().position(|query| query == "modest");
    assert!(place.is_some_and(|place| place <= 3), "{order:?}");
}

#[test]
fn clients_of_a_web_server_in_front_are_told_apart() {
    let setup = Setup::new().file("run.php", "");
    let (responder, gate) = Responder::gated(setup.folder(), |request, answer| {
        answer.page(request.param("QUERY_STRING"));
    });
    let behind = Behind::start(setup.server("threads = 1"), &responder.pool(1), "");
    let ask = |query: &str, address: &str| {
        let mut front = behind.front();
        let params = behind.params(&format!("/run.php?{query}"));
        let params = params.with("REMOTE_ADDR", address);
        front.send(weir_test::front::request(1, true, &params, b""));
        behind.weir.get("/none.txt").expect(404);
        front
    };
    let mut fronts = vec![ask("running", "192.0.2.1")];
    wait_until("one is at work", || responder.running() == 1);
    for number in 0..10 {
        fronts.push(ask(&format!("greedy{number}"), "192.0.2.1"));
    }
    fronts.push(ask("modest", "192.0.2.2"));
    gate.open();
    for front in &mut fronts {
        front.answer(1).text();
    }
    let order = order(&responder);
    let place = order.iter().position(|query| query == "modest");
    assert!(place.is_some_and(|place| place <= 3), "{order:?}");
}

#[test]
fn a_server_that_takes_no_connection_keeps_nobody_past_the_deadline() {
    // Its accept queue is full: the kernel drops further connections, and connect(2) waits.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    rustix::net::listen(&deaf, 0).expect("listen");
    let address = deaf.local_addr().expect("an address");
    let limit = Duration::from_millis(300);
    let filling: Vec<_> =
        std::iter::from_fn(|| std::net::TcpStream::connect_timeout(&address, limit).ok()).collect();
    assert!(filling.len() < 10, "{}", filling.len());
    let pool = format!(
        "runtime = \"servers\"\nservers = [\"{address}\"]\nqueue.maxconn = 2\nconnect_timeout = \"60s\"\n"
    );
    let weir = Setup::new()
        .file("run.php", "")
        .pool(&pool)
        .site("timeout = \"500ms\"")
        .start();
    for _ in 0..3 {
        weir.get("/run.php")
            .expect(503)
            .expect_reason("queue_timeout");
    }
    weir.wait_for_error(&["503 queue_timeout", "before a server accepted a connection"]);
}

#[test]
fn clients_in_a_hurry_cost_no_more_workers_than_may_be_started() {
    const RATE: u64 = 4;
    let weir = scripts()
        .file("slow.php", "<?php usleep(700000); echo getmypid();")
        .pool(&php::own(1, &format!("max_spawn_rate = {RATE}\n")))
        .site("timeout_header = \"X-Request-Timeout\"")
        .start();
    pid(&weir);
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..15 {
                    let headers = [("X-Request-Timeout", "0.05")];
                    let status = weir.request("GET", "/slow.php", &headers, b"").status;
                    assert!([503, 504].contains(&status), "{status}");
                }
            });
        }
    });
    // A request with enough time is served.
    weir.get("/slow.php").expect(200);
    let seconds = began.elapsed().as_secs() + 1;
    let replaced = weir.stderr().matches("worker ended: SIGKILL").count() as u64;
    let most = RATE / 2 * (seconds + 1);
    assert!(replaced <= most, "{replaced} of {most} in {seconds} s");
    assert!(replaced > 0, "some were stopped");
}
