//! Many connections, and slow ones: which connections weir closes for others, and which it waits for.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use weir_test::front::WebServer;
use weir_test::weir::request;
use weir_test::{Client, Responder, Setup, Weir, wait_until};

const GET: &str = "GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n";

fn limited(server: &str) -> Setup {
    let setup = Setup::new().file("text.txt", "a text").file("run.php", "");
    setup.admin().server(server)
}

fn kept(weir: &Weir) -> Client {
    let mut client = weir.client();
    client.send(GET).response().expect(200);
    client
}

#[test]
fn at_the_limit_the_connection_that_is_idle_for_longest_is_closed_for_a_newcomer() {
    let weir = limited("max_connections = 3\nthreads = 1\n").start();
    // The check that waited for weir's start was a client too.
    wait_until("there is no connection", || {
        weir.status()["connections"]["now"] == 0
    });
    let mut idle: Vec<Client> = (0..3).map(|_| kept(&weir)).collect();
    // The first connection is used again, so the second has been idle for the longest time.
    idle[0].send(GET).response().expect(200);
    let began = Instant::now();
    let mut new = weir.client();
    new.send(GET).response().expect(200);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    idle[1].expect_closed();
    for client in [0, 2] {
        idle[client].send(GET).response().expect(200);
    }
    // This includes connections that have been idle for a second: weir has freed as much of their memory as possible.
    std::thread::sleep(Duration::from_millis(1500));
    weir.client().send(GET).response().expect(200);
    weir.wait_for_error(&["max_connections (3)", "idle longest"]);
    let status = weir.status();
    for figure in ["limit_reached", "closed_for_others"] {
        assert!(
            status["connections"][figure].as_u64() >= Some(2),
            "{status:#}"
        );
    }
    let (_, metrics) = weir.admin_get("/metrics");
    for metric in [
        "weir_connections_limit_reached_total",
        "weir_connections_closed_for_others_total",
    ] {
        let line = metrics.lines().find(|line| line.starts_with(metric));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        assert!(value >= Some(2.0), "{metric}: {line:?}");
    }
}

#[test]
fn idle_connections_of_any_reactor_make_room_for_many_newcomers() {
    let weir = limited("max_connections = 40\nthreads = 2\n").start();
    let idle: Vec<Client> = (0..40).map(|_| kept(&weir)).collect();
    let began = Instant::now();
    let new: Vec<Client> = (0..100).map(|_| kept(&weir)).collect();
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
    drop((idle, new));
}

#[test]
fn connections_that_never_ask_anything_make_room_too() {
    let weir = limited("max_connections = 4\nthreads = 1\n")
        .listen("header_timeout = \"300s\"")
        .start();
    let silent: Vec<Client> = (0..4).map(|_| weir.client()).collect();
    let mut new = weir.client();
    new.send(GET).response().expect(200);
    drop(silent);
}

/// Whoever opens many and says nothing, or parts of heads, closes his own: not a slow client of another network, nor visitors.
#[test]
fn nine_hundred_silent_connections_keep_nobody_out() {
    let weir = limited("max_connections = 600\nmax_connections_per_address = 0\nthreads = 2\n")
        .listen("header_timeout = \"300s\"")
        .start();
    let from = |last: u8| {
        let source = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        Client::connect_from(source, weir.address())
    };
    let (head, rest) = GET.split_at(10);
    let mut slow = from(9);
    slow.send(head);
    let mut silent: Vec<Client> = Vec::new();
    for number in 0..900 {
        let mut client = from(2);
        if number % 2 == 0 {
            client.try_send(head);
        }
        silent.push(client);
    }
    // First all of them are young, then none.
    for _ in 0..2 {
        let mut visitors: Vec<Client> = (0..40).map(|number| from(2 + number % 4)).collect();
        let began = Instant::now();
        for visitor in &mut visitors {
            visitor.send(GET).response().expect(200);
        }
        let time = began.elapsed();
        assert!(time < Duration::from_secs(10), "{time:?}");
        drop(visitors);
        // This pause is longer than a connection counts as young.
        std::thread::sleep(Duration::from_millis(1300));
        silent.extend((0..60).map(|_| from(2)));
    }
    slow.send(rest).response().expect(200);
    weir.wait_for_error(&["max_connections (600)", "asked nothing"]);
    assert!(weir.status()["connections"]["now"].as_u64() <= Some(600));
}

/// A request that is answered before its body has come. The connection cannot be kept.
const BODY_LEFT: &str = "POST /text.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";

#[test]
fn a_client_that_still_sends_is_not_cut_off_before_it_reads_its_answer() {
    let weir = limited("").start();
    let mut client = weir.client();
    client.send(BODY_LEFT);
    // For longer than weir waits for a silent client.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        assert!(client.try_send(b"x"), "after {:?}", began.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    client.response().expect(405);
    client.expect_closed();
}

#[test]
fn clients_that_still_send_after_their_answer_make_room_for_newcomers() {
    let weir = limited("max_connections = 4\nthreads = 1\n").start();
    let (ended, is_over) = std::sync::mpsc::channel::<()>();
    let senders = (0..4).map(|_| {
        let mut client = weir.client();
        client.send(BODY_LEFT);
        client
    });
    let mut senders: Vec<Client> = senders.collect();
    let sending = std::thread::spawn(move || {
        while is_over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            for client in &mut senders {
                client.try_send(b"x");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let began = Instant::now();
    weir.client().send(GET).response().expect(200);
    // Nothing else would end them before half a minute has passed.
    let time = began.elapsed();
    assert!(time < Duration::from_secs(20), "{time:?}");
    drop(ended);
    sending.join().expect("the clients that send");
}

#[test]
fn where_no_connection_is_idle_newcomers_wait() {
    let setup = limited("max_connections = 2\nthreads = 1\n");
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("a page");
    });
    let pool = responder.pool(2);
    let weir = setup.pool(&pool).start();
    let mut busy: Vec<Client> = (0..2).map(|_| weir.client()).collect();
    for client in &mut busy {
        client.send("GET /run.php HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    wait_until("both are at work", || responder.running() == 2);
    let mut new = weir.client();
    new.send(GET);
    assert!(
        new.quiet_for(Duration::from_millis(300)),
        "served beyond the limit, or closed"
    );
    weir.wait_for_error(&["max_connections (2)", "no connection is idle"]);
    gate.open();
    new.response().expect(200);
    for client in &mut busy {
        client.response().expect(200);
    }
}

/// Reads slowly and steadily for this long, then everything that remains. Returns the number of bytes.
fn read_slowly(client: &Client, time: Duration) -> u64 {
    let mut stream = client.stream();
    let mut piece = vec![0; 5_000];
    let mut count = 0;
    let began = Instant::now();
    loop {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return count,
            Ok(more) => count += more as u64,
        }
        if began.elapsed() < time {
            // Much shorter than the limit, so that a busy machine does not make the reader stop for that long.
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_steady_slow_reader_is_not_cut_off() {
    const SIZE: usize = 12 << 20;
    let setup = Setup::new()
        .file("large.bin", vec![b'x'; SIZE])
        .file("run.php", "");
    let responder = Responder::unix(setup.folder(), |_, answer| {
        answer.page(vec![b'y'; SIZE]);
    });
    let pool = responder.pool(2);
    let weir = setup.listen("send_timeout = \"3s\"").pool(&pool).start();
    let haproxy = WebServer::haproxy(
        weir.folder(),
        &format!(
            "global\n  tune.sndbuf.client 65536\n  tune.rcvbuf.server 65536\n\
             defaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
             listen weir\n  bind ADDRESS\n  server weir {}\n",
            weir.address()
        ),
    );
    std::thread::scope(|scope| {
        let readers: Vec<_> = [
            (weir.address(), "/large.bin"),
            (weir.address(), "/run.php"),
            (haproxy.address(), "/large.bin"),
        ]
        .map(|(address, path)| {
            let reader = scope.spawn(move || {
                let mut client = Client::connect(address);
                client.send(request("GET", path, &[], b""));
                read_slowly(&client, Duration::from_secs(5))
            });
            (path, reader)
        })
        .into_iter()
        .collect();
        for (path, reader) in readers {
            let count = reader.join().expect("a reader");
            assert!(count > SIZE as u64, "{count} bytes of {path}");
        }
    });
}

#[test]
fn a_reader_that_stops_is_cut_off_however_steady_it_was() {
    let weir = Setup::new().listen("send_timeout = \"1500ms\"").start();
    let large = std::fs::File::create(weir.root().join("large.bin")).expect("a file");
    large.set_len(512 << 20).expect("a sparse file");
    let mut client = weir.client();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut stream = client.stream();
    let mut piece = vec![0; 20_000];
    // The connection sends steadily for longer than the limit. On a machine that is busy for that long, it may be
    // closed here already.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) && stream.read(&mut piece).is_ok_and(|n| n > 0) {
        std::thread::sleep(Duration::from_millis(100));
    }
    // weir writes the line when the exchange is over.
    let line = weir.logged("/large.bin");
    assert_eq!(line["reason"], "client_left", "{line}");
    assert!(line["bytes_out"].as_u64() < Some(512 << 20));
}

#[test]
fn a_queue_of_four_hundred_addresses_that_is_full_harms_nobody_else() {
    let setup = limited("");
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("a page");
    });
    let pool = format!(
        "{}queue.max_queue = 400\nqueue.timeout = \"120s\"\n",
        responder.pool(1)
    );
    let weir = setup.pool(&pool).start();
    let from = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let source = IpAddr::V4(Ipv4Addr::new(127, 77, high, low));
        let mut client = Client::connect_from(source, weir.address());
        client.send(request("GET", &format!("/run.php?{number}"), &[], b""));
        client
    };
    let first = from(1);
    wait_until("it is at work", || responder.running() == 1);
    let mut waiting: Vec<Client> = (2..=401).map(from).collect();
    wait_until("the queue is full", || {
        let mut another = from(500);
        // A client that gets a place keeps waiting. It has left when the next one comes.
        !another.quiet_for(Duration::from_millis(20))
    });
    let began = Instant::now();
    for number in 600..620 {
        let refused = from(number).response();
        assert_eq!(refused.status, 503);
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        assert_eq!(weir.get("/text.txt").expect(200).text(), "a text");
    }
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(weir.logged("/run.php?600")["reason"], "queue_full");
    gate.open();
    waiting.push(first);
    for client in &mut waiting {
        client.response().expect(200);
    }
    assert_eq!(responder.most_running(), 1);
}
