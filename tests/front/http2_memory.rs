//! What connections of HTTP/2 cost while they wait. docs/http2.md has the figures.

use weir_test::http2::{
    DATA, END_HEADERS, END_STREAM, HEADERS, Http2, INITIAL_WINDOW, PING, REFUSED_STREAM,
    RST_STREAM, block, frame, usual,
};
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
    let setup = Setup::new().file("run.php", "").admin();
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

/// Many uploads that never come, whose heads refer to one large field.
#[test]
fn heads_count_in_the_memory_of_all_connections() {
    const CONNECTIONS: u64 = 40;
    let setup = Setup::new()
        .file("run.php", "")
        .file("text.txt", "a text\n");
    let responder = Responder::unix(setup.folder(), |_, answer| answer.page("done"));
    let pool = responder.pool(1);
    let weir = setup
        .pool(&pool)
        .server("threads = 1\nhttp2_memory = \"1M\"")
        .listen("http2 = \"clear\"\nbody_timeout = \"60s\"")
        .start();
    let pid = weir.gateway().pid;
    let usual = block(&usual("POST", "/run.php"));
    let large = "x".repeat(3900);
    // This field becomes the newest entry of the table.
    let first = [&usual[..], &[0x40], &block(&[("x-large", &large)])[1..]].concat();
    let later = [&usual[..], &[0xbe]].concat();
    let open = || {
        let mut client = Http2::connect(weir.address(), &[]);
        let heads = (0..120).flat_map(|number| {
            let head = if number == 0 { &first } else { &later };
            frame(HEADERS, END_HEADERS, 1 + 2 * number, head)
        });
        client.raw(&heads.collect::<Vec<u8>>());
        client.frame(PING, 0, 0, b"the last");
        let mut refused = 0;
        loop {
            let frame = client.expect_one_of(&[RST_STREAM, PING]);
            if frame.kind == PING {
                return (client, refused);
            }
            assert_eq!(frame.payload, REFUSED_STREAM.to_be_bytes());
            refused += 1;
        }
    };
    let before = anonymous(pid);
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| open()).collect();
    let what = "a connection with 120 large heads";
    expect_growth(pid, before, CONNECTIONS, 256 << 10, what);
    let (last, refused) = clients.last_mut().expect("a connection");
    assert!((90..120).contains(refused), "{refused} refused");
    // Each connection may have a few requests. They are served when their bodies arrive.
    last.frame(DATA, END_STREAM, 1, b"");
    assert_eq!(last.answer(1).body, b"done");
    drop(clients);
    wait_until("there is room again", || open().1 == 0);
}
