//! Requests that wait in the queue for so long that weir keeps nothing but the request of their connection: what this
//! costs, and that clients do not notice it.

use std::net::Shutdown;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use weir_test::process::resident;
use weir_test::{Client, Gate, Responder, Response, Setup, Weir, wait_until};

/// Some workers behind a gate that print the request they got, and one thread in front of them. A request with `early`
/// gets an interim answer, one with `long` a long answer.
fn gated(site: &str, queue: &str) -> (Weir, Responder, Gate) {
    let setup = Setup::new()
        .file("run.php", "")
        .file("text.txt", "a text")
        .file("errors/503.html", "come later");
    let (responder, gate) = Responder::gated(setup.folder(), |request, answer| {
        let query = request.param("QUERY_STRING");
        if query.starts_with("early") {
            answer.stdout("Status: 103 Early Hints\r\nLink: </style.css>\r\n\r\n");
        }
        let tail = match query.starts_with("long") {
            true => "0123456789".repeat(LONG / 10),
            false => String::new(),
        };
        let said = (
            request.param("REQUEST_METHOD"),
            request.param("HTTP_X_LONG"),
        );
        let (method, header) = (said.0, said.1.len());
        let body = String::from_utf8_lossy(&request.stdin);
        answer.page(format!("{method} {query} {header} {body}{tail}"));
    });
    let pool = format!("{}{queue}", responder.pool(WORKERS));
    let setup = setup
        .server("threads = 1\nmax_connections = 2000")
        .site(site);
    (setup.pool(&pool).start(), responder, gate)
}

/// Makes all workers busy, so that the next request has to wait.
fn busy(weir: &Weir, responder: &Responder) -> Vec<Client> {
    let clients = (0..WORKERS).map(|_| ask(weir, "busy")).collect();
    wait_until("all are at work", || responder.running() == WORKERS);
    clients
}

fn ask(weir: &Weir, query: &str) -> Client {
    let mut client = weir.client();
    client.send(get(query, "1.1", ""));
    client
}

fn get(query: &str, version: &str, headers: &str) -> String {
    format!("GET /run.php?{query} HTTP/{version}\r\nHost: a\r\n{headers}\r\n")
}

/// Waits until the gateway holds at most this many bytes more than before for each of the `clients` requests.
fn wait_until_small(weir: &Weir, before: u64, clients: u64) {
    wait_until(
        "the requests that wait have put down what they do not need",
        || {
            let now = resident(weir.gateway().pid);
            now.saturating_sub(before) < clients * MOST_EACH
        },
    );
}

/// A client, and the function that checks the answer to its request.
type Asked = (Client, fn(&mut Client, &str));

/// Requests of clients, each a little different.
fn various(weir: &Weir, number: usize) -> Asked {
    let mut client = weir.client();
    let query = number.to_string();
    let post = |headers: &str, body: &str| {
        format!("POST /run.php?{query} HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}")
    };
    let look: fn(&mut Client, &str) = match number % 10 {
        0 => {
            client.send(get(&query, "1.1", ""));
            |client, query| {
                said(client.response(), "GET", query, 0, "");
                // This client keeps the connection.
                client.send(get("again", "1.1", ""));
                said(client.response(), "GET", "again", 0, "");
            }
        }
        1 => {
            client.send(get(&query, "1.1", "").replacen("GET", "HEAD", 1));
            |client, _| {
                client.response_to("HEAD").expect(200);
                client.send(get("again", "1.1", ""));
                said(client.response(), "GET", "again", 0, "");
            }
        }
        2 => {
            client.send(post("Content-Length: 4\r\n", "body"));
            |client, query| said(client.response(), "POST", query, 0, "body")
        }
        3 => {
            client.send(post(
                "Transfer-Encoding: chunked\r\n",
                "4\r\nbody\r\n0\r\n\r\n",
            ));
            |client, query| {
                said(client.response(), "POST", query, 0, "body");
                client.send(get("again", "1.1", ""));
                said(client.response(), "GET", "again", 0, "");
            }
        }
        4 => {
            client.send(get(&query, "1.0", ""));
            |client, query| {
                said(client.response(), "GET", query, 0, "");
                client.expect_closed();
            }
        }
        5 => {
            client.send(get(&query, "1.0", "Connection: keep-alive\r\n"));
            |client, query| {
                let answer = client.response();
                // If the length was not known in time, the end of the connection marks the end of the answer.
                let is_kept = answer.header("content-length").is_some();
                said(answer, "GET", query, 0, "");
                if is_kept {
                    client.send(get("again", "1.0", ""));
                    said(client.response(), "GET", "again", 0, "");
                }
            }
        }
        6 => {
            client.send(get(&query, "1.1", "Connection: close\r\n"));
            |client, query| {
                said(client.response(), "GET", query, 0, "");
                client.expect_closed();
            }
        }
        7 => {
            let next = get("behind", "1.1", "");
            client.send(format!("{}{next}{next}", get(&query, "1.1", "")));
            |client, query| {
                said(client.response(), "GET", query, 0, "");
                said(client.response(), "GET", "behind", 0, "");
                said(client.response(), "GET", "behind", 0, "");
            }
        }
        8 => {
            client.send(post("Expect: 100-continue\r\nContent-Length: 4\r\n", ""));
            assert_eq!(client.head().expect("consent").status, 100);
            client.send("body");
            |client, query| said(client.response(), "POST", query, 0, "body")
        }
        _ => {
            let long = format!("X-Long: {}\r\nx-other: {query}\r\n", "v".repeat(1000));
            client.send(get(&query, "1.1", &long));
            |client, query| said(client.response(), "GET", query, 1000, "")
        }
    };
    (client, look)
}

#[track_caller]
fn said(response: Response, method: &str, query: &str, header: usize, body: &str) {
    let text = response.expect(200).text();
    assert_eq!(text, format!("{method} {query} {header} {body}"));
}

#[test]
fn many_wait_for_little_memory_and_are_answered_as_if_they_had_not() {
    let (weir, responder, gate) = gated("", "queue.timeout = \"300s\"\n");
    weir.get("/text.txt").expect(200);
    let mut first = busy(&weir, &responder);
    let before = resident(weir.gateway().pid);
    let mut asked: Vec<Asked> = (0..MANY).map(|number| various(&weir, number)).collect();
    wait_until_small(&weir, before, MANY as u64);
    gate.open();
    for client in &mut first {
        client.response().expect(200);
    }
    for (number, (client, look)) in asked.iter_mut().enumerate() {
        look(client, &number.to_string());
    }
    // Each request has one line in the log, with all its fields.
    let line = weir.logged("/run.php?9");
    assert_eq!(line["status"], 200);
    assert_eq!(line["method"], "GET");
    let log = weir.read("log/access.log");
    for number in 0..MANY {
        let uri = format!("\"uri\":\"/run.php?{number}\"");
        assert_eq!(log.matches(&uri).count(), 1, "{uri}");
    }
    assert!(
        !log.contains("\"uri\":\"/\""),
        "a made-up request is in the log"
    );
}

#[test]
fn who_leaves_while_it_waits_is_not_run() {
    let (weir, responder, gate) = gated("", "queue.timeout = \"300s\"\n");
    let mut first = busy(&weir, &responder);
    let before = resident(weir.gateway().pid);
    let mut clients: Vec<Client> = (0..MANY)
        .map(|number| {
            let mut client = weir.client();
            let agent = format!("User-Agent: browser-{number}\r\n");
            client.send(get(&format!("left={number}"), "1.1", &agent));
            if number % 3 == 0 {
                client.send(get("behind", "1.1", ""));
            }
            client
        })
        .collect();
    wait_until_small(&weir, before, MANY as u64);
    let stays = clients.pop().expect("one");
    for (number, client) in clients.iter_mut().enumerate() {
        if number % 3 == 1 {
            // Some more bytes come, and then the end.
            client.send("GET /run.php?more HTTP/1.1\r\n");
        }
        let how = [Shutdown::Write, Shutdown::Both][number % 2];
        client.stream().shutdown(how).expect("shutdown");
    }
    let log = || -> Vec<Value> {
        let text = weir.read("log/access.log");
        let lines = text.lines().map(serde_json::from_str);
        lines.map_while(Result::ok).collect()
    };
    let mut lines = Vec::new();
    wait_until("all who left are in the log", || {
        lines = log();
        let left = |line: &&Value| line["reason"] == "client_left";
        lines.iter().filter(left).count() == MANY - 1
    });
    for number in 0..MANY - 1 {
        let uri = format!("/run.php?left={number}");
        let line = lines.iter().find(|line| line["uri"] == uri.as_str());
        let line = line.unwrap_or_else(|| panic!("no line of {uri}"));
        assert_eq!(line["reason"], "client_left");
        assert_eq!(line["http_user_agent"], format!("browser-{number}"));
        assert!(line["worker"].is_null(), "{line}");
    }
    gate.open();
    let mut stays = stays;
    stays.response().expect(200);
    for client in &mut first {
        client.response().expect(200);
    }
    let last = format!("/run.php?left={}", MANY - 1);
    let mut ran = responder.uris();
    ran.retain(|uri| !uri.ends_with("busy"));
    assert_eq!(ran, [last]);
}

#[test]
fn who_waits_too_long_gets_the_error_page_and_keeps_its_connection() {
    let site = "error_pages = { 503 = \"errors/503.html\" }";
    let (weir, responder, gate) = gated(site, "queue.timeout = \"2s\"\n");
    let _first = busy(&weir, &responder);
    let mut clients: Vec<Client> = (0..20).map(|_| ask(&weir, "late")).collect();
    for client in &mut clients {
        let refused = client.response().expect(503).expect_reason("queue_timeout");
        assert_eq!(refused.text(), "come later");
        assert!(refused.header("retry-after").is_some());
        client.send("GET /text.txt HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().expect(200).text(), "a text");
    }
    gate.open();
}

#[test]
fn interim_answers_long_ones_and_many_requests_behind_one_find_their_way() {
    let (weir, responder, gate) = gated("", "queue.timeout = \"300s\"\n");
    let _first = busy(&weir, &responder);
    let before = resident(weir.gateway().pid);
    let _others: Vec<Client> = (0..MANY).map(|_| ask(&weir, "other")).collect();
    let mut early = ask(&weir, "early");
    let mut long = ask(&weir, "long");
    let mut many = ask(&weir, "first");
    // More than weir reads ahead while a request runs, and a part of a request in a separate piece.
    let next = get("next", "1.1", "");
    let behind = 40 * 1024 / next.len();
    let (half, rest) = next.split_at(next.len() / 2);
    many.send(next.repeat(behind)).send(half);
    wait_until_small(&weir, before, MANY as u64);
    many.send(rest);
    gate.open();
    let answer = early.response().expect(200);
    assert_eq!(answer.interim.len(), 1);
    assert_eq!(answer.interim[0].status, 103);
    assert_eq!(
        long.response().expect(200).body.len(),
        LONG + "GET long 0 ".len()
    );
    said(many.response(), "GET", "first", 0, "");
    for _ in 0..=behind {
        said(many.response(), "GET", "next", 0, "");
    }
}

#[test]
fn who_waits_when_weir_stops_is_answered_and_its_connection_closed() {
    let (mut weir, responder, gate) = gated("", "queue.timeout = \"300s\"\n");
    let first = busy(&weir, &responder);
    let before = resident(weir.gateway().pid);
    let clients: Vec<Client> = (0..MANY).map(|_| ask(&weir, "waits")).collect();
    wait_until_small(&weir, before, MANY as u64);
    weir.signal(Signal::TERM);
    wait_until("nobody listens any more", || {
        std::net::TcpStream::connect(weir.address()).is_err()
    });
    gate.open();
    for mut client in first.into_iter().chain(clients) {
        let answer = client.response().expect(200);
        assert_eq!(answer.header("connection"), Some("close"));
        client.expect_closed();
    }
    assert_eq!(weir.wait_for_end().code(), Some(0));
}

/// Enough that the gateway gives freed memory back.
const MANY: usize = 500;

const WORKERS: usize = 2;

/// Bytes. A request that waits within this limit holds no buffers. A debug build and a heap with gaps need more than the
/// limit for a release build with many requests.
const MOST_EACH: u64 = 14 * 1024;

/// The length of a long answer, bytes.
const LONG: usize = 300_000;

/// A client that pipelines and reads late. If an answer fits into buffers, the next request runs before the kernel has
/// taken all of the answer. weir must not take that request for a pause between two requests.
#[test]
fn a_request_begun_before_the_last_answer_was_taken_is_answered() {
    let setup = Setup::new().file("run.php", "");
    let responder = Responder::unix(setup.folder(), |request, answer| {
        match request.param("QUERY_STRING").parse::<usize>() {
            Ok(length) => answer.page("x".repeat(length)),
            // Longer than an idle connection keeps its buffers.
            Err(_) => {
                std::thread::sleep(Duration::from_millis(2500));
                answer.page("late");
            }
        }
    });
    let lengths = (1..=16).map(|step| step * 256 * 1024);
    let pool = responder.pool(16);
    let weir = setup.pool(&pool).start();
    let clients: Vec<(usize, Client)> = lengths
        .map(|length| {
            let mut client = weir.client();
            client.send(get(&length.to_string(), "1.1", "") + &get("late", "1.1", ""));
            (length, client)
        })
        .collect();
    // The clients read slowly.
    std::thread::sleep(Duration::from_millis(500));
    for (length, mut client) in clients {
        assert_eq!(client.response().body.len(), length);
        assert_eq!(client.response().text(), "late", "behind {length} bytes");
    }
}
