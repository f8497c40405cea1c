//! HTTP/3: the same site over QUIC, and connections that live through reloads and changed ports.

use std::sync::atomic::Ordering::Relaxed;

use http::Request;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use weir_test::http3::Http3Client;
use weir_test::versions::{NEXT, installed};
use weir_test::{Responder, Weir, scaled, wait_until};

use crate::http2_reloads::Seen;
use crate::upgrade::{End, upgrade};
use crate::{Tls, curl};

fn with_http3() -> Tls {
    Tls::new().with(|setup| setup.listen("http3 = true"))
}

/// With a file of so many bytes.
fn with_large(length: usize) -> Tls {
    with_http3().with(|setup| setup.file("large.bin", vec![b'x'; length]))
}

#[test]
fn files_scripts_and_logs_are_as_over_other_wires() {
    let (weir, authority) = with_http3().with_php().start();
    let client = Http3Client::new(&authority);
    let mut http3 = client.connect(weir.address(), "main.test").unwrap();
    let port = weir.address().port();
    let host = format!("main.test:{port}");
    let page = http3.get(&host, "/");
    assert_eq!((page.status, page.text()), (200, "main\n"));
    assert!(page.headers.get("alt-svc").is_none());
    let params: Value = serde_json::from_slice(&http3.get(&host, "/params.php").body).unwrap();
    for (name, value) in [
        ("SERVER_PROTOCOL", "HTTP/3.0"),
        ("HTTPS", "on"),
        ("SSL_PROTOCOL", "TLSv1.3"),
        ("SSL_TLS_SNI", "main.test"),
        ("REMOTE_ADDR", &weir.address().ip().to_string()),
        ("HTTP_HOST", &host),
    ] {
        assert_eq!(params[name], value, "{name}");
    }
    assert!(
        params["SSL_CIPHER"]
            .as_str()
            .unwrap()
            .starts_with("TLS_AES")
    );
    assert_eq!(params["SERVER_PORT"], port.to_string());
    assert_eq!(weir.logged("/params.php")["protocol"], "HTTP/3.0");
    let told = curl(&weir, &authority, "main.test", "/", &["-i"]);
    let expected = format!("alt-svc: h3=\":{port}\"; ma=86400");
    assert!(
        told.text().to_ascii_lowercase().contains(&expected),
        "{}",
        told.text()
    );
    // Many requests at once, and one that is too large.
    assert_eq!(http3.get(&host, "/nowhere").status, 404);
    let other = http3.get(&format!("other.test:{port}"), "/");
    assert_eq!(other.status, 421);
    let mut many = Request::get(format!("https://{host}/"));
    for _ in 0..150 {
        many = many.header("x", "y");
    }
    let refused = http3.request(many.body(()).unwrap(), &[]).unwrap();
    assert_eq!(refused.status, 431);
    assert_eq!(http3.get(&host, "/").status, 200);
    let unknown = client
        .connect(weir.address(), "unknown.test")
        .err()
        .unwrap();
    assert!(unknown.contains("112"), "{unknown}");
}

#[test]
fn bodies_come_whole_with_and_without_a_length() {
    let body = "<?php header('Content-Type: text/plain'); $in = file_get_contents('php://input'); echo $_SERVER['CONTENT_LENGTH'], ' ', strlen($in), ' ', md5($in);";
    let (weir, authority) = with_http3()
        .with_php()
        .with(|setup| setup.file("body.php", body))
        .start();
    let mut http3 = Http3Client::new(&authority)
        .connect(weir.address(), "main.test")
        .unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let parts: Vec<&[u8]> = bytes.chunks(50_000).collect();
    for length in [None, Some(bytes.len())] {
        let mut request = Request::post("https://main.test/body.php");
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let answer = http3.request(request.body(()).unwrap(), &parts).unwrap();
        let said: Vec<&str> = answer.text().split(' ').collect();
        assert_eq!(said[..2], ["3000000", "3000000"]);
    }
    let request = Request::post("https://main.test/body.php").header("content-length", 10);
    let error = http3.request(request.body(()).unwrap(), &[b"too short"]);
    assert!(error.is_err(), "{error:?}");
}

#[test]
fn a_client_that_pauses_gets_the_whole_answer() {
    let (weir, authority) = with_large(20_000_000).start();
    let client = Http3Client::new(&authority);
    let mut http3 = client.connect(weir.address(), "main.test").unwrap();
    let mut download = http3.begin_get("main.test", "/large.bin").unwrap();
    let mut got = http3.part(&mut download).unwrap().unwrap().len();
    // A pause: the windows are full.
    std::thread::sleep(std::time::Duration::from_millis(500));
    while let Some(part) = http3.part(&mut download).unwrap() {
        got += part.len();
    }
    assert_eq!(got, 20_000_000);
}

#[test]
fn a_reload_keeps_connections_and_running_answers() {
    let (weir, authority) = with_large(20_000_000).start();
    let client = Http3Client::new(&authority);
    let mut http3 = client.connect(weir.address(), "main.test").unwrap();
    let mut download = http3.begin_get("main.test", "/large.bin").unwrap();
    let mut got = 0;
    while got < 1_000_000 {
        got += http3.part(&mut download).unwrap().unwrap().len();
    }
    let gateway = weir.gateway();
    weir.signal(Signal::HUP);
    weir.wait_for_error(&["reloaded: the new configuration serves"]);
    let mut later = client.connect(weir.address(), "main.test").unwrap();
    assert_eq!(later.get("main.test", "/").status, 200);
    while let Some(part) = http3.part(&mut download).unwrap() {
        got += part.len();
    }
    assert_eq!(got, 20_000_000);
    wait_until("the old gateway ends", || !gateway.runs());
    assert!(http3.has_ended());
    assert_eq!(later.get("main.test", "/").status, 200);
}

#[test]
fn an_upgrade_keeps_connections_and_running_answers() {
    let (weir, authority) = with_large(5_000_000)
        .with(|setup| installed(setup.admin()))
        .start();
    let client = Http3Client::new(&authority);
    let mut http3 = client.connect(weir.address(), "main.test").unwrap();
    let mut download = http3.begin_get("main.test", "/large.bin").unwrap();
    let mut got = http3.part(&mut download).unwrap().unwrap().len();
    upgrade(&weir, NEXT);
    let mut later = client.connect(weir.address(), "main.test").unwrap();
    assert_eq!(later.get("main.test", "/").status, 200);
    while let Some(part) = http3.part(&mut download).unwrap() {
        got += part.len();
    }
    assert_eq!(got, 5_000_000);
}

/// Sends requests over one connection after the other, until it is over.
fn load_http3(weir: &Weir, client: &Http3Client, seen: &Seen) {
    while !seen.is_over.load(Relaxed) {
        let mut http3 = client.connect(weir.address(), "main.test").unwrap();
        while !seen.is_over.load(Relaxed) {
            let request = Request::get("https://main.test/").body(()).unwrap();
            // The server takes no more over this connection.
            let Ok(exchange) = http3.begin(request) else {
                break;
            };
            match http3.end_request(exchange) {
                Ok(answer) if answer.body == b"main\n" => seen.answered.fetch_add(1, Relaxed),
                // weir has not begun to process the request, so the client may send it again (RFC 9114 §4.1.1).
                Err(error) if error.contains("H3_REQUEST_REJECTED") => break,
                other => {
                    eprintln!("{other:?}");
                    seen.failed.fetch_add(1, Relaxed)
                }
            };
        }
    }
}

#[test]
fn reloads_under_load_fail_no_request() {
    let reloads = scaled(5, 200);
    let (weir, authority) = with_http3().start();
    let client = Http3Client::new(&authority);
    let seen = Seen::default();
    std::thread::scope(|scope| {
        let _end = End(&seen);
        for _ in 0..2 {
            scope.spawn(|| load_http3(&weir, &client, &seen));
        }
        for _ in 0..reloads {
            let (gateway, answered) = (weir.gateway(), seen.answered.load(Relaxed));
            weir.signal(Signal::HUP);
            wait_until("another gateway", || !gateway.runs());
            wait_until("more answers", || {
                seen.answered.load(Relaxed) > answered + 20
            });
        }
    });
    assert_eq!(seen.failed.load(Relaxed), 0);
}

#[test]
fn a_client_may_change_its_port_whichever_reactor_it_reaches() {
    let (weir, authority) = with_http3()
        .with(|setup| setup.server("threads = 4"))
        .start();
    let client = Http3Client::new(&authority);
    let mut all: Vec<_> = (0..8)
        .map(|_| client.connect(weir.address(), "main.test").unwrap())
        .collect();
    for _ in 0..4 {
        for http3 in &mut all {
            assert_eq!(http3.get("main.test", "/").text(), "main\n");
            http3.change_port();
        }
    }
}

#[test]
fn a_gateway_that_died_tells_its_clients_so() {
    let (weir, authority) = with_http3().start();
    let client = Http3Client::new(&authority);
    let mut http3 = client.connect(weir.address(), "main.test").unwrap();
    assert_eq!(http3.get("main.test", "/").status, 200);
    let gateway = weir.gateway();
    let pid = Pid::from_raw(gateway.pid as i32).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    wait_until("another gateway", || weir.gateway().pid != gateway.pid);
    wait_until("its UDP socket is read", || {
        client.connect(weir.address(), "main.test").is_ok()
    });
    let request = Request::get("https://main.test/").body(()).unwrap();
    http3.request(request, &[]).unwrap_err();
    assert_eq!(http3.end(), "reset by peer");
}

#[test]
fn a_reset_takes_the_request_out_and_hints_come_before_the_answer() {
    let mut responder = None;
    let (weir, authority) = with_http3()
        .with(|setup| {
            let of = Responder::unix(setup.folder(), |_, answer| {
                answer.stdout("Status: 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n");
                answer.page("a page");
            });
            let pool = of.pool(2);
            responder = Some(of);
            setup.file("hint.php", "").pool(&pool)
        })
        .start();
    let mut http3 = Http3Client::new(&authority)
        .connect(weir.address(), "main.test")
        .unwrap();
    let mut exchange = http3.begin_get("main.test", "/hint.php").unwrap();
    let rest = http3.part(&mut exchange);
    assert!(rest.is_ok(), "{rest:?}");
}
