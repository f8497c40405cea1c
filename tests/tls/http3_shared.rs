//! A connection of HTTP/3 on which a proxy in front sends the requests of many clients: what one of them gives up, the others do not notice.

use http::Request;
use weir_test::authority::Authority;
use weir_test::http3::{Exchange, Http3, Http3Client};
use weir_test::{Gate, Responder, Weir, wait_until};

use crate::Tls;

/// How many requests a client may reset.
const MOST: usize = 20;

/// A site whose scripts wait for a gate, except those that are asked for with `?now`, and print who the client is; and a connection.
fn site(server: &str) -> (Responder, Weir, Http3, Gate) {
    let gate = Gate::default();
    let shut = gate.clone();
    let mut responder = None;
    let (weir, authority) = Tls::new()
        .with(|setup| {
            let one = Responder::unix(setup.folder(), move |request, answer| {
                if request.param("QUERY_STRING") != "now" {
                    shut.pass();
                }
                answer.page(format!(
                    "{} {}",
                    request.param("REMOTE_ADDR"),
                    request.stdin.len()
                ));
            });
            let pool = one.pool(3 * MOST);
            responder = Some(one);
            setup
                .file("run.php", "")
                .file("text.txt", "a text\n")
                .server(server)
                .pool(&pool)
                .listen(&format!("http3 = true\nhttp2_max_resets = {MOST}"))
                .admin()
        })
        .start();
    let http3 = connect(&weir, &authority);
    (responder.expect("a responder"), weir, http3, gate)
}

fn connect(weir: &Weir, authority: &Authority) -> Http3 {
    let client = Http3Client::new(authority);
    client.connect(weir.address(), "main.test").unwrap()
}

/// Sends the head of a request for a visitor of the proxy.
fn begin(http3: &mut Http3, visitor: &str, path: &str) -> Result<Exchange, String> {
    let request = Request::get(format!("https://main.test{path}"));
    let request = request.header("x-forwarded-for", visitor).body(());
    http3.begin(request.unwrap())
}

/// The status and the body of the answer for a visitor.
fn get(http3: &mut Http3, visitor: &str, path: &str) -> Result<(u16, String), String> {
    let exchange = begin(http3, visitor, path)?;
    let answer = http3.end_request(exchange)?;
    Ok((answer.status, answer.text().to_owned()))
}

/// Begins a request for a script whose answer waits for the gate.
fn run(weir: &Weir, http3: &mut Http3, visitor: &str, number: u64) -> Exchange {
    let mut exchange = begin(http3, visitor, "/run.php").unwrap();
    http3.end_of(&mut exchange).unwrap();
    wait_until("it runs", || weir.busy_and_waiting().0 == number);
    exchange
}

#[test]
fn a_visitor_of_a_proxy_who_gives_up_too_much_is_refused_alone() {
    let (_responder, weir, mut http3, gate) = site("trusted = [\"127.0.0.0/8\"]");
    let first = run(&weir, &mut http3, "192.0.2.1", 1);
    let second = run(&weir, &mut http3, "192.0.2.2", 2);
    // Most requests are given up before weir has read which client has sent them. On a client's own connection, this
    // many would be too many.
    for _ in 0..4 * MOST {
        let exchange = begin(&mut http3, "192.0.2.9", "/text.txt?aborted").unwrap();
        http3.abort(exchange);
    }
    // These requests run, and are given up at once. As time passes, more of them are allowed again.
    let mut running = Vec::new();
    for _ in 0..2 * MOST {
        let mut exchange = begin(&mut http3, "192.0.2.9", "/run.php?aborted").unwrap();
        http3.end_of(&mut exchange).unwrap();
        running.push(exchange);
    }
    let all = 2 + running.len() as u64;
    wait_until("all run", || weir.busy_and_waiting().0 == all);
    for exchange in running {
        http3.abort(exchange);
    }
    wait_until("more is refused", || {
        let refused = get(&mut http3, "192.0.2.9", "/text.txt?refused").unwrap();
        refused.0 == 429
    });
    weir.wait_for_line("log/access.log", &["too_many_resets", "429"]);
    // Other clients may begin requests, and running requests go on.
    let other = get(&mut http3, "192.0.2.1", "/text.txt").unwrap();
    assert_eq!(other, (200, "a text\n".to_owned()));
    let other = get(&mut http3, "192.0.2.3", "/run.php?now").unwrap();
    assert_eq!(other, (200, "192.0.2.3 0".to_owned()));
    gate.open();
    for (exchange, visitor) in [(first, "192.0.2.1"), (second, "192.0.2.2")] {
        let answer = http3.finish(exchange).unwrap();
        assert_eq!(answer.text(), format!("{visitor} 0"));
    }
}

#[test]
fn what_runs_is_answered_when_a_connection_has_given_up_too_much() {
    // A proxy that is not trusted, or a client itself: nobody tells which client sent a request.
    let (_responder, weir, mut http3, gate) = site("");
    let first = run(&weir, &mut http3, "192.0.2.1", 1);
    let second = run(&weir, &mut http3, "192.0.2.2", 2);
    // Until it is told to stop.
    let mut begun = 0;
    while begun < 200
        && let Ok(exchange) = begin(&mut http3, "192.0.2.9", "/run.php?aborted")
    {
        http3.abort(exchange);
        begun += 1;
    }
    assert!((MOST..200).contains(&begun), "{begun}");
    weir.wait_for_error(&["http2_max_resets"]);
    let late = get(&mut http3, "192.0.2.1", "/text.txt?late");
    assert!(late.is_err(), "{late:?}");
    assert!(!http3.has_ended());
    gate.open();
    for exchange in [first, second] {
        let answer = http3.finish(exchange).unwrap();
        assert!(answer.text().ends_with(" 0"), "{answer:?}");
    }
    // Then it ends.
    http3.end();
    assert!(!weir.read("log/access.log").contains("late"));
}
