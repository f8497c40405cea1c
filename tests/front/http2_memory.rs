//! What connections of HTTP/2 cost while they wait. docs/operations.md has the figures.

use weir_test::http2::{DATA, END_STREAM, Http2, INITIAL_WINDOW};
use weir_test::process::{anonymous, expect_growth};
use weir_test::{Responder, Setup, wait_until};

#[test]
fn an_idle_connection_costs_little() {
    const COUNT: u64 = 500;
    let weir = Setup::new()
        .file("text.txt", "a text\n")
        .server("threads = 1\nmax_connections_per_address = 0")
        .listen("http2 = \"clear\"")
        .start();
    let connect = || {
        let mut client = Http2::connect(weir.address(), &[(INITIAL_WINDOW, 1_000_000)]);
        client.allow(0, 10_000_000);
        for (stream, path) in [(1, "/text.txt"), (3, "/text.txt")] {
            client.get(stream, path, &[]);
            while client.expect(DATA).flags & END_STREAM == 0 {}
        }
        client
    };
    drop((0..20).map(|_| connect()).collect::<Vec<_>>());
    let pid = weir.gateway().pid;
    let before = anonymous(pid);
    let clients: Vec<Http2> = (0..COUNT).map(|_| connect()).collect();
    expect_growth(pid, before, COUNT, 32 << 10, "an idle connection of HTTP/2");
    drop(clients);
}

#[test]
fn requests_that_wait_cost_little() {
    const COUNT: u64 = 10;
    let setup = Setup::new().file("run.php", "").window();
    let (responder, gate) = Responder::gated(setup.folder(), |_, answer| {
        answer.page("done");
    });
    let pool = responder.pool(1) + "\nqueue.max_queue = 5000\nqueue.timeout = \"300s\"";
    let weir = setup
        .pool(&pool)
        .server("threads = 1")
        .listen("http2 = \"clear\"")
        .start();
    let pid = weir.gateway().pid;
    let before = anonymous(pid);
    let _clients: Vec<Http2> = (0..COUNT)
        .map(|_| {
            let mut client = Http2::connect(weir.address(), &[]);
            for stream in 0..100 {
                client.get(
                    1 + 2 * stream,
                    "/run.php",
                    &[("user-agent", &"a".repeat(100))],
                );
            }
            client
        })
        .collect();
    wait_until("all wait", || {
        weir.status()["pools"][0]["queue"]["waiting"] == 100 * COUNT - 1
    });
    expect_growth(
        pid,
        before,
        COUNT,
        1 << 20,
        "a connection with 100 waiting requests",
    );
    gate.open();
}
