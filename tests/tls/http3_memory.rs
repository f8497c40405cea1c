//! What connections of HTTP/3 cost while they wait. docs/https.md has the figures.

use weir_test::http3::{Http3, Http3Client};
use weir_test::process::{anonymous, expect_growth};
use weir_test::{Gate, Responder, Weir, wait_until};

use crate::Tls;

fn connect(weir: &Weir, client: &Http3Client) -> Http3 {
    let mut http3 = client.connect(weir.address(), "main.test").unwrap();
    for _ in 0..2 {
        assert_eq!(http3.get("main.test", "/").status, 200);
    }
    http3
}

/// The memory of each of `count` connections that rest after `run`, at most.
fn expect_each(count: u64, most: u64, what: &str, run: impl Fn(&mut Http3)) {
    let lines = "threads = 1\nmax_connections_per_address = 0";
    let (weir, authority) = Tls::new()
        .with(|setup| setup.listen("http3 = true").server(lines))
        .start();
    let client = Http3Client::new(&authority);
    let connected = || {
        let mut http3 = connect(&weir, &client);
        run(&mut http3);
        http3
    };
    drop((0..20).map(|_| connected()).collect::<Vec<_>>());
    let pid = weir.gateway().pid;
    let before = anonymous(pid);
    let clients: Vec<Http3> = (0..count).map(|_| connected()).collect();
    expect_growth(pid, before, count, most, what);
    drop(clients);
}

#[test]
fn an_idle_connection_costs_little() {
    let what = "an idle connection of HTTP/3";
    expect_each(200, 36 << 10, what, |_| {});
}

#[test]
fn a_connection_that_had_many_files_at_once_costs_little_afterwards() {
    let what = "an idle connection of HTTP/3 after 32 files at once";
    // QUIC keeps the space of streams that have ended for later ones.
    expect_each(100, 52 << 10, what, |http3| {
        let begin = |_| {
            let request = http::Request::get("https://main.test/");
            http3.begin(request.body(()).unwrap()).unwrap()
        };
        for exchange in (0..32).map(begin).collect::<Vec<_>>() {
            assert_eq!(http3.end_request(exchange).unwrap().status, 200);
        }
    });
}

#[test]
fn requests_that_wait_cost_little() {
    const COUNT: u64 = 10;
    let gate = Gate::default();
    let shut = gate.clone();
    let mut responder = None;
    let (weir, authority) = Tls::new()
        .with(|setup| {
            let of = Responder::unix(setup.folder(), move |_, answer| {
                shut.pass();
                answer.page("done");
            });
            let pool = of.pool(1) + "\nqueue.max_queue = 5000\nqueue.timeout = \"300s\"";
            responder = Some(of);
            let setup = setup.file("run.php", "").pool(&pool).admin();
            setup.listen("http3 = true").server("threads = 1")
        })
        .start();
    let client = Http3Client::new(&authority);
    drop(connect(&weir, &client));
    let pid = weir.gateway().pid;
    let before = anonymous(pid);
    let mut waiting = Vec::new();
    let _clients: Vec<Http3> = (0..COUNT)
        .map(|_| {
            let mut http3 = connect(&weir, &client);
            for _ in 0..100 {
                let request = http::Request::get("https://main.test/run.php");
                let request = request.header("user-agent", "a".repeat(100));
                let mut exchange = http3.begin(request.body(()).unwrap()).unwrap();
                http3.end_of(&mut exchange).unwrap();
                waiting.push(exchange);
            }
            http3
        })
        .collect();
    wait_until("all wait", || {
        weir.status()["pools"][0]["queue"]["waiting"] == 100 * COUNT - 1
    });
    let what = "a connection of HTTP/3 with 100 waiting requests";
    expect_growth(pid, before, COUNT, 1 << 20, what);
    gate.open();
}
