//! The queue's predictions, its priorities, and the workers that it reserves, tested with real requests. The tests in
//! crates/pool cover the rules themselves.

use std::time::Duration;

use weir_test::{Client, Gate, Responder, Setup, Weir, wait_until};

/// Workers behind a gate, with these lines for the site and the queue. A request with `?ms=` passes the gate and takes
/// that many milliseconds.
fn gated(maxconn: usize, site: &str, queue: &str) -> (Weir, Responder, Gate) {
    let setup = Setup::new().file("run.php", "");
    let gate = Gate::default();
    let shut = gate.clone();
    let responder = Responder::unix(setup.folder(), move |request, answer| {
        let query = request.param("QUERY_STRING");
        match query.strip_prefix("ms=").and_then(|ms| ms.parse().ok()) {
            Some(ms) => std::thread::sleep(Duration::from_millis(ms)),
            None => shut.pass(),
        }
        answer.page(query);
    });
    let pool = format!("{}{queue}", responder.pool(maxconn));
    let setup = setup.server("threads = 1").admin().site(site);
    (setup.pool(&pool).start(), responder, gate)
}

/// Sends a request that then waits in the queue or runs.
fn ask(weir: &Weir, query: &str, headers: &str) -> Client {
    let mut client = weir.client();
    weir.after(1, || {
        client.send(format!(
            "GET /run.php?{query} HTTP/1.1\r\nHost: a\r\n{headers}\r\n"
        ));
    });
    client
}

#[test]
fn a_local_redirect_of_a_long_script_waits_in_its_turn_and_for_its_own_time() {
    let setup = Setup::new().file("run.php", "");
    let (responder, gate) = Responder::gated(setup.folder(), |request, answer| {
        match request.param("QUERY_STRING") {
            "first" => {
                answer.stdout("Location: /run.php?second\r\n\r\n");
                answer.end();
            }
            query => answer.page(query),
        }
    });
    let pool = format!("{}queue.timeout = \"2s\"\n", responder.pool(1));
    let weir = setup.server("threads = 1").admin().pool(&pool).start();
    let mut redirected = ask(&weir, "first", "");
    wait_until("it is at work", || responder.running() == 1);
    // It runs for longer than a request may wait.
    std::thread::sleep(Duration::from_millis(2_200));
    let mut other = ask(&weir, "other", "");
    gate.admit(1);
    wait_until("the other one is next", || responder.uris().len() == 2);
    gate.open();
    assert_eq!(other.response().expect(200).text(), "other");
    assert_eq!(redirected.response().expect(200).text(), "second");
    let uris = responder.uris();
    let asked: Vec<&str> = uris
        .iter()
        .filter_map(|uri| uri.split('?').nth(1))
        .collect();
    assert_eq!(asked, ["first", "other", "second"]);
    let line = weir.logged("/run.php?first");
    assert_eq!(line["retries"], 0);
    assert!(line["time_queue"].as_f64() < Some(2.0), "{line}");
}

#[test]
fn who_cannot_be_served_in_time_is_refused_before_it_has_waited() {
    let site = "timeout = \"60s\"\ntimeout_header = \"X-Request-Timeout\"";
    let (weir, responder, gate) = gated(1, site, "queue.timeout = \"60s\"\n");
    // The pool learns that a script takes a tenth of a second.
    for _ in 0..40 {
        weir.get("/run.php?ms=100").expect(200);
    }
    let mut clients = vec![ask(&weir, "running", "")];
    wait_until("one is at work", || responder.running() == 1);
    for number in 0..50 {
        clients.push(ask(&weir, &format!("ms=1&{number}"), ""));
    }
    // Behind the other requests the wait would be five seconds.
    let mut hurried = ask(&weir, "hurried", "X-Request-Timeout: 3\r\n");
    let refused = hurried
        .response()
        .expect(503)
        .expect_reason("queue_timeout");
    let after = refused.header("retry-after").expect("Retry-After");
    assert!(
        after
            .parse::<u64>()
            .is_ok_and(|after| (1..=60).contains(&after))
    );
    let said = weir.wait_for_error(&["it would have to wait about", "waited 0.000 s"]);
    assert!(said.contains("behind 50 others"), "{said}");
    let mut patient = ask(&weir, "patient", "X-Request-Timeout: 30\r\n");
    gate.open();
    for client in clients.iter_mut().chain([&mut patient]) {
        client.response().expect(200);
    }
    assert!(!responder.uris().contains(&"/run.php?hurried".to_owned()));
}

#[test]
fn who_has_few_waiting_finds_a_place_in_a_queue_that_another_one_has_filled() {
    let site = "fair_by = \"header:X-Real-IP\"";
    let (weir, responder, gate) = gated(1, site, "queue.max_queue = 3\n");
    let one = "X-Real-IP: 192.0.2.1\r\n";
    let mut clients = vec![ask(&weir, "running", one)];
    wait_until("one is at work", || responder.running() == 1);
    for number in 1..=3 {
        clients.push(ask(&weir, &format!("one{number}"), one));
    }
    ask(&weir, "one4", one)
        .response()
        .expect(503)
        .expect_reason("queue_full");
    let mut other = ask(&weir, "other", "X-Real-IP: 192.0.2.2\r\n");
    let mut pushed_out = clients.pop().expect("the newest");
    pushed_out
        .response()
        .expect(503)
        .expect_reason("queue_full");
    weir.wait_for_error(&["it was removed in favour of"]);
    gate.open();
    for client in clients.iter_mut().chain([&mut other]) {
        client.response().expect(200);
    }
    let expected = ["running", "one1", "other", "one2"];
    assert_eq!(
        responder.uris(),
        expected.map(|query| format!("/run.php?{query}"))
    );
}

#[test]
fn with_fullconn_more_run_as_more_wait() {
    let lines = "queue.minconn = 1\nqueue.fullconn = 8\n";
    let (weir, responder, gate) = gated(4, "", lines);
    let mut clients = Vec::new();
    for (asked, at_work) in [(1, 1), (3, 1), (4, 2), (6, 3), (8, 4), (12, 4)] {
        while clients.len() < asked {
            clients.push(ask(&weir, &clients.len().to_string(), ""));
        }
        wait_until("as many are at work as may be", || {
            responder.running() == at_work
        });
    }
    gate.open();
    for client in &mut clients {
        client.response().expect(200);
    }
    assert_eq!(responder.most_running(), 4);
}

#[test]
fn a_reserved_worker_is_there_for_those_it_is_kept_for() {
    let site = "priority_by = [{ header = \"X-Health\", priority = -10 }]";
    let lines = "queue.reserve = [{ priority = -10, workers = 1 }]\n";
    let (weir, responder, gate) = gated(3, site, lines);
    let mut clients: Vec<Client> = (0..6).map(|n| ask(&weir, &n.to_string(), "")).collect();
    wait_until("two are at work", || responder.running() == 2);
    let mut health = ask(&weir, "ms=0", "X-Health: yes\r\n");
    health.response().expect(200);
    assert_eq!(responder.running(), 2, "the worker is kept again");
    gate.open();
    for client in &mut clients {
        client.response().expect(200);
    }
}

#[test]
fn the_trace_says_what_a_request_that_waits_has_to_expect() {
    let setup = Setup::new().file("run.php", "").traced();
    let responder = Responder::unix(setup.folder(), move |_, answer| {
        std::thread::sleep(Duration::from_millis(50));
        answer.page("");
    });
    let weir = setup.pool(&responder.pool(1)).start();
    let mut clients: Vec<Client> = (0..20)
        .map(|number| {
            let mut client = weir.client();
            client.send(format!("GET /run.php?{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        })
        .collect();
    for client in &mut clients {
        client.response().expect(200);
    }
    weir.get("/run.php").expect(200);
    let mut clients: Vec<Client> = (0..3)
        .map(|number| {
            let mut client = weir.client();
            client.send(format!("GET /run.php?{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
            client
        })
        .collect();
    let seconds = |line: &str, key: &str| {
        let (_, rest) = line.split_once(key)?;
        rest.split('s').next()?.parse::<f64>().ok()
    };
    wait_until("a line with what was measured", || {
        weir.stderr().lines().any(|line| {
            line.contains(" queue ")
                && line.contains(" waiting=1 ")
                && seconds(line, " service=") >= Some(0.05)
                && seconds(line, " expected=") > Some(0.0)
        })
    });
    for client in &mut clients {
        client.response().expect(200);
    }
}
