//! Idle connections: they cost little, and nothing that a client does is missed.

use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_test::process::anonymous;
use weir_test::{Client, Setup, Weir, wait_until, wait_within};

const GET: &str = "GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n";

/// weir keeps no task for connections that are idle for longer than a second. On a slow machine a connection may still
/// have one after this time; a test then sees less, but does not fail.
const RESTS: Duration = Duration::from_millis(1500);

fn setup() -> Setup {
    Setup::new().file("text.txt", "a text").admin()
}

/// The gateway's own memory, bytes. Its share of the program's pages grows when another weir ends that runs the same program.
fn memory(weir: &Weir) -> u64 {
    anonymous(weir.gateway().pid)
}

/// A client with an address that few others have, after its first answer.
fn kept(weir: &Weir, number: usize) -> Client {
    let [_, _, high, low] = (number as u32 / 50).to_be_bytes();
    let source = IpAddr::V4(Ipv4Addr::new(127, 78, high, low + 1));
    let mut client = Client::connect_from(source, weir.address());
    client.send(GET).response().expect(200);
    client
}

#[test]
fn thousands_of_idle_connections_cost_little_and_each_is_served_again() {
    const COUNT: usize = 5_000;
    /// Bytes of memory for each.
    const MOST: u64 = 600;
    let hard = getrlimit(Resource::Nofile).maximum;
    let all = Rlimit {
        current: hard,
        maximum: hard,
    };
    setrlimit(Resource::Nofile, all).expect("setrlimit");
    let weir = setup()
        .server("max_connections = 12000\nthreads = 1")
        .start();
    drop((0..20).map(|n| kept(&weir, n)).collect::<Vec<_>>());
    let before = memory(&weir);
    let mut clients: Vec<Client> = (0..COUNT).map(|n| kept(&weir, n)).collect();
    let mut each = 0;
    wait_within(
        Duration::from_secs(60),
        &format!("an idle connection takes {MOST} bytes"),
        || {
            each = memory(&weir).saturating_sub(before) / COUNT as u64;
            each <= MOST
        },
    );
    eprintln!("{each} bytes for each of {COUNT} idle connections");
    for client in &mut clients {
        client.send(GET);
    }
    for client in &mut clients {
        client.response().expect(200);
    }
}

#[test]
fn no_byte_is_lost_when_a_connection_comes_to_rest() {
    let weir = setup().start();
    std::thread::scope(|scope| {
        for number in 0..32 {
            let weir = &weir;
            scope.spawn(move || {
                let mut client = kept(weir, number);
                let (begin, end) = GET.split_at(11);
                // Requests around the moment at which the connection gives up its task.
                std::thread::sleep(Duration::from_millis(900 + 15 * number as u64));
                client.send(begin);
                std::thread::sleep(Duration::from_millis(20));
                client.send(end).send(GET);
                client.response().expect(200);
                client.response().expect(200);
            });
        }
    });
}

#[test]
fn the_end_of_a_client_that_rests_is_noticed() {
    let weir = setup().start();
    let mut half: Vec<Client> = (0..3).map(|n| kept(&weir, n)).collect();
    let gone: Vec<Client> = (0..3).map(|n| kept(&weir, n)).collect();
    let silent: Vec<Client> = (0..3).map(|_| weir.client()).collect();
    std::thread::sleep(RESTS);
    assert!(weir.status()["connections"]["now"].as_u64() >= Some(9));
    drop((gone, silent));
    for client in &mut half {
        client.stream().shutdown(Shutdown::Write).expect("shutdown");
        client.expect_closed();
    }
    wait_until("all connections are closed", || {
        weir.status()["connections"]["now"] == 0
    });
}

#[test]
fn connections_that_rest_are_closed_when_their_time_is_over() {
    let weir = setup()
        .listen("idle_timeout = \"2s\"\nheader_timeout = \"3s\"")
        .start();
    let began = Instant::now();
    let mut kept = kept(&weir, 0);
    let mut new = weir.client();
    kept.expect_closed();
    assert!(
        began.elapsed() >= Duration::from_secs(2),
        "closed too early"
    );
    new.expect_closed();
    assert!(
        began.elapsed() >= Duration::from_secs(3),
        "closed too early"
    );
    wait_until("both are closed, and none is idle", || {
        let connections = &weir.status()["connections"];
        connections["now"] == 0 && connections["idle"] == 0
    });
}

#[test]
fn connections_that_rest_make_room_and_do_not_delay_the_end() {
    let mut weir = setup()
        .server("max_connections = 4\nthreads = 1")
        .listen("header_timeout = \"300s\"")
        .start();
    // The check that waited for weir's start was a client too.
    wait_until("there is no connection", || {
        weir.status()["connections"]["now"] == 0
    });
    let mut resting: Vec<Client> = (0..3).map(|n| kept(&weir, n)).collect();
    let mut new = weir.client();
    std::thread::sleep(RESTS);
    // A connection without a request is closed first, then the connection that has been idle for the longest time.
    let mut more: Vec<Client> = (0..2).map(|n| kept(&weir, n)).collect();
    new.expect_closed();
    resting[0].expect_closed();
    for client in &mut resting[1..] {
        client.send(GET).response().expect(200);
    }
    std::thread::sleep(RESTS);
    weir.stop();
    more[0].expect_closed();
}
