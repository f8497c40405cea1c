//! More requests than workers: the queue, its limits, its order, and clients that leave it.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use weir_test::{Client, Gate, LIMIT, Responder, Setup, Weir, wait_until};

/// A pool of `maxconn` whose worker waits at the gate, with these lines for its queue.
fn gated(maxconn: usize, queue: &str) -> (Weir, Responder, Gate) {
    let setup = Setup::new().file("run.php", "").file("text.txt", "a text");
    let (responder, gate) = Responder::gated(setup.folder(), |request, answer| {
        answer.page(request.param("REQUEST_URI"));
    });
    let pool = format!("{}{queue}", responder.pool(maxconn));
    (
        setup.server("threads = 1").admin().pool(&pool).start(),
        responder,
        gate,
    )
}

/// Sends a request for `run.php` without waiting for its answer.
fn ask(weir: &Weir, query: &str) -> Client {
    let mut client = weir.client();
    client.send(format!("GET /run.php?{query} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

/// Sends requests one after another, each after weir has taken in the one before.
fn ask_in_order(weir: &Weir, count: usize) -> Vec<Client> {
    let numbers = 0..count;
    let asked = numbers.map(|number| weir.after(1, || ask(weir, &number.to_string())));
    asked.collect()
}

#[test]
fn never_more_at_work_than_maxconn() {
    let (weir, responder, gate) = gated(3, "");
    let mut clients: Vec<Client> = (0..40)
        .map(|number| ask(&weir, &number.to_string()))
        .collect();
    wait_until("three are at work", || responder.running() == 3);
    gate.open();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(
            client.response().expect(200).text(),
            format!("/run.php?{number}")
        );
    }
    assert_eq!(responder.most_running(), 3);
    assert!(
        responder.most_connections() <= 3,
        "{} connections",
        responder.most_connections()
    );
}

#[test]
fn a_full_queue_sheds_at_once() {
    let (weir, responder, gate) = gated(1, "queue.max_queue = 2\nqueue.timeout = \"60s\"\n");
    let _running = ask(&weir, "running");
    wait_until("one is at work", || responder.running() == 1);
    // There is room for two more requests. The test does not depend on which two of the next requests get it.
    let mut clients: Vec<Client> = (0..6)
        .map(|number| ask(&weir, &number.to_string()))
        .collect();
    let shed = |clients: &mut Vec<Client>| {
        let mut shed = Vec::new();
        clients.retain_mut(|client| {
            let quiet = client.quiet_for(Duration::from_millis(20));
            if !quiet {
                shed.push(client.response());
            }
            quiet
        });
        shed
    };
    let mut answers = Vec::new();
    let began = Instant::now();
    wait_until("four are shed", || {
        answers.extend(shed(&mut clients));
        answers.len() == 4
    });
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    for answer in answers {
        let answer = answer.expect(503).expect_reason("queue_full");
        let wait: u32 = answer
            .header("retry-after")
            .expect("Retry-After")
            .parse()
            .expect("seconds");
        assert!(wait >= 1);
    }
    assert_eq!(
        weir.wait_for_line("log/access.log", &["queue_full"])
            .matches("503")
            .count(),
        1
    );
    weir.wait_for_error(&[
        "queue_full",
        "1 of 1 workers are busy",
        "2 of at most 2 are waiting now",
    ]);
    // Files do not wait for workers.
    weir.get("/text.txt").expect(200);
    gate.open();
    for client in &mut clients {
        client.response().expect(200);
    }
    assert_eq!(responder.uris().len(), 3, "what was shed never started");
}

#[test]
fn waiting_ends_at_its_deadline() {
    let (weir, responder, gate) = gated(1, "queue.timeout = \"700ms\"\n");
    let mut running = ask(&weir, "running");
    wait_until("one is at work", || responder.running() == 1);
    let began = Instant::now();
    let mut waiting = ask(&weir, "waiting");
    let answer = waiting
        .response()
        .expect(503)
        .expect_reason("queue_timeout");
    let waited = began.elapsed();
    assert!(answer.header("retry-after").is_some());
    assert!(
        waited >= Duration::from_millis(650) && waited < LIMIT,
        "{waited:?}"
    );
    let line = weir.logged("/run.php?waiting");
    assert_eq!(line["reason"], "queue_timeout");
    let queued = line["time_queue"].as_f64().expect("seconds");
    assert!((0.65..30.0).contains(&queued), "{queued}");
    weir.wait_for_error(&[
        "queue_timeout",
        "waited ",
        " s; 0 were waiting when it arrived",
    ]);
    gate.open();
    running.response().expect(200);
    assert_eq!(
        responder.uris(),
        ["/run.php?running"],
        "what was shed never started"
    );
    weir.get("/run.php?next").expect(200);
}

#[test]
fn who_came_first_is_served_first() {
    let (weir, responder, gate) = gated(1, "");
    let mut clients = ask_in_order(&weir, 30);
    gate.open();
    for client in &mut clients {
        client.response().expect(200);
    }
    let expected: Vec<String> = (0..30).map(|number| format!("/run.php?{number}")).collect();
    assert_eq!(responder.uris(), expected);
}

#[test]
fn a_kept_connection_gains_no_advantage() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        std::thread::sleep(Duration::from_millis(5));
        answer.page(request.param("REQUEST_URI"));
    });
    let pool = responder.pool(2);
    let weir = setup.pool(&pool).start();
    // Forty clients that ask again as soon as they are answered. Each gets its share.
    let until = Instant::now() + Duration::from_secs(2);
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..40)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = weir.client();
                    let mut count = 0;
                    while Instant::now() < until {
                        client.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
                        client.response().expect(200);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        clients
            .into_iter()
            .map(|client| client.join().expect("a client"))
            .collect()
    });
    let (least, most) = (
        counts.iter().min().expect("40"),
        counts.iter().max().expect("40"),
    );
    assert!(*least > 0 && *most <= least * 3 + 3, "{counts:?}");
}

#[test]
fn a_client_that_leaves_the_queue_never_starts_its_script() {
    let (weir, responder, gate) = gated(1, "");
    let mut running = ask(&weir, "running");
    wait_until("one is at work", || responder.running() == 1);
    let left: Vec<Client> = weir.after(5, || {
        let asked = (0..5).map(|number| ask(&weir, &format!("left{number}")));
        asked.collect()
    });
    let mut stays = weir.after(1, || ask(&weir, "stays"));
    drop(left);
    for number in 0..5 {
        let line = weir.logged(&format!("/run.php?left{number}"));
        assert_eq!(line["status"], 499);
        assert_eq!(line["reason"], "client_left");
    }
    gate.open();
    running.response().expect(200);
    stays.response().expect(200);
    assert_eq!(responder.uris(), ["/run.php?running", "/run.php?stays"]);
}

#[test]
fn a_client_that_is_reset_in_the_queue_never_starts_its_script() {
    let (weir, responder, gate) = gated(1, "");
    let mut running = ask(&weir, "running");
    wait_until("one is at work", || responder.running() == 1);
    let left = ask(&weir, "left");
    // A connection that is closed with SO_LINGER 0 is reset instead of ended normally.
    rustix::net::sockopt::set_socket_linger(left.stream(), Some(Duration::ZERO)).expect("linger");
    drop(left);
    assert_eq!(weir.logged("/run.php?left")["reason"], "client_left");
    gate.open();
    running.response().expect(200);
    assert_eq!(responder.uris(), ["/run.php?running"]);
}

#[test]
fn a_pool_without_a_worker_sheds_at_once() {
    let setup = Setup::new().file("run.php", "").file("text.txt", "a text");
    let missing = setup.folder().join("nobody.sock");
    let pool = format!(
        "runtime = \"servers\"\nservers = [\"unix:{}\"]\nqueue.maxconn = 2\n",
        missing.display()
    );
    let weir = setup.pool(&pool).start();
    let began = Instant::now();
    let response = weir.get("/run.php").expect(503).expect_reason("no_worker");
    assert!(response.header("retry-after").is_some());
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
    weir.wait_for_error(&["nobody.sock"]);
    weir.get("/text.txt").expect(200);
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("first"));
    let server = responder.server();
    let path = server
        .strip_prefix("unix:")
        .expect("a unix socket")
        .to_owned();
    let pool = responder.pool(2);
    let weir = setup.pool(&pool).start();
    weir.get("/run.php").expect(200);
    drop(responder);
    wait_until("it is gone", || weir.get("/run.php").status >= 502);
    std::fs::remove_file(&path).expect("remove");
    let second = Responder::at(path.as_ref(), |_, answer| answer.page("second"));
    wait_until("the new one is used", || weir.get("/run.php").status == 200);
    assert_eq!(weir.get("/run.php").expect(200).text(), "second");
    assert_eq!(second.uris().len(), 2);
}

#[test]
fn a_server_that_does_not_answer_costs_no_request() {
    // Its accept queue is full: the kernel drops further connections, and connect(2) waits.
    let deaf = TcpListener::bind("127.0.0.1:0").expect("bind");
    rustix::net::listen(&deaf, 0).expect("listen");
    let deaf = deaf
        .local_addr()
        .map(|address| (deaf, address))
        .expect("an address");
    let limit = Duration::from_millis(300);
    let filling: Vec<TcpStream> =
        std::iter::from_fn(|| TcpStream::connect_timeout(&deaf.1, limit).ok()).collect();
    assert!(filling.len() < 10, "{}", filling.len());

    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("ok"));
    let pool = format!(
        "runtime = \"servers\"\nservers = [\"{}\", \"{}\"]\nqueue.maxconn = 4\nconnect_timeout = \"2s\"\n",
        deaf.1,
        responder.server()
    );
    let weir = setup.admin().pool(&pool).start();
    let failures = || weir.status()["pools"][0]["servers"][0]["failures"].as_u64();
    // All requests that try the server at the start fail at the same time. Then one request at a time tests whether the
    // server is back.
    wait_until("it was tried again", || {
        let mut clients: Vec<Client> = (0..4)
            .map(|number| ask(&weir, &number.to_string()))
            .collect();
        for client in &mut clients {
            client.response().expect(200);
        }
        failures() >= Some(4)
    });
    assert!(failures() <= Some(6), "{}", weir.status());
}

#[test]
fn several_servers_are_one_pool() {
    let setup = Setup::new().file("run.php", "");
    let (servers, gate) = Responder::gated_servers(3);
    let names: Vec<String> = servers.iter().map(Responder::server).collect();
    let pool = format!("runtime = \"servers\"\nservers = {names:?}\nqueue.maxconn = 6\n");
    let weir = setup.pool(&pool).start();
    let mut clients: Vec<Client> = (0..12)
        .map(|number| ask(&weir, &number.to_string()))
        .collect();
    let running = || servers.iter().map(Responder::running).collect::<Vec<_>>();
    wait_until("six are at work", || running().iter().sum::<usize>() == 6);
    // The least busy server gets the next.
    assert_eq!(running(), [2, 2, 2]);
    gate.open();
    for client in &mut clients {
        client.response().expect(200);
    }
}

#[test]
fn the_queue_survives_a_burst() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        answer.page(request.param("QUERY_STRING"))
    });
    let pool = format!(
        "{}queue.max_queue = 10000\nqueue.timeout = \"60s\"\n",
        responder.pool(4)
    );
    let weir = setup.pool(&pool).start();
    let mut clients: Vec<Client> = (0..400)
        .map(|number| ask(&weir, &number.to_string()))
        .collect();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.response().expect(200).text(), number.to_string());
    }
    assert!(responder.most_running() <= 4);
}
