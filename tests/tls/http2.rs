//! HTTP/2 over TLS: the handshake chooses it (ALPN), and everything else is as over HTTP/1.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use weir_test::http2::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2, INITIAL_WINDOW, TlsClient, block, frame,
    h2spec,
};
use weir_test::process::{anonymous, expect_growth};
use weir_test::{Responder, Setup, Weir, wait_until};

use crate::browser::{self, ANY_CERTIFICATE, PROTOCOL, page};
use crate::{Tls, curl, s_client};

fn params(weir: &Weir, authority: &crate::Authority, words: &[&str]) -> Value {
    let got = curl(weir, authority, "main.test", "/params.php", words);
    assert_eq!(got.status, 200, "{}", got.error);
    serde_json::from_slice(&got.body).expect("JSON")
}

/// What openssl says of a handshake with this offer.
fn offered(weir: &Weir, protocols: &str) -> String {
    let words = ["-servername", "main.test", "-alpn", protocols];
    let output = s_client(weir.address(), &words, "\r\n\r\n");
    [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat()
}

#[test]
fn clients_choose_http2_in_the_handshake_and_scripts_see_it() {
    let (weir, authority) = Tls::new().with_php().start();
    for (words, protocol, tls, cipher) in [
        (&["--http2"][..], "HTTP/2.0", "TLSv1.3", "TLS_AES"),
        (
            &["--http2", "--tls-max", "1.2"],
            "HTTP/2.0",
            "TLSv1.2",
            "ECDHE-ECDSA-",
        ),
        (&["--http1.1"], "HTTP/1.1", "TLSv1.3", "TLS_AES"),
        (&["--http1.0"], "HTTP/1.0", "TLSv1.3", "TLS_AES"),
    ] {
        let params = params(&weir, &authority, words);
        assert_eq!(params["SERVER_PROTOCOL"], protocol);
        assert_eq!(params["HTTPS"], "on");
        assert_eq!(params["SSL_PROTOCOL"], tls);
        let used = params["SSL_CIPHER"].as_str().expect("a cipher");
        assert!(used.starts_with(cipher), "{used}");
        assert_eq!(params["SSL_TLS_SNI"], "main.test");
        assert_eq!(params["REMOTE_ADDR"], "127.0.0.1");
        let port = weir.address().port();
        assert_eq!(params["HTTP_HOST"], format!("main.test:{port}"));
        let logged = weir.logged("/params.php");
        assert!(logged["protocol"].is_string(), "{logged}");
    }
    assert!(offered(&weir, "http/1.1,h2").contains("ALPN protocol: h2"));
    assert!(offered(&weir, "http/1.1").contains("ALPN protocol: http/1.1"));
    assert!(offered(&weir, "h3").contains("no application protocol"));
}

#[test]
fn http2_can_be_switched_off() {
    let (weir, authority) = Tls::new()
        .with_php()
        .with(|setup| setup.listen("http2 = false"))
        .start();
    let params = params(&weir, &authority, &["--http2"]);
    assert_eq!(params["SERVER_PROTOCOL"], "HTTP/1.1");
    assert!(offered(&weir, "h2").contains("no application protocol"));
}

#[test]
fn a_ticket_shortens_the_next_handshake() {
    let (weir, authority) = Tls::new().start();
    for only_tls12 in [false, true] {
        let client = TlsClient::new(&authority, only_tls12);
        let connect = || {
            let socket = TcpStream::connect(weir.address()).expect("a connection");
            let mut http2 = client.http2(socket, "main.test", &[]);
            assert_eq!(get(&mut http2, 1, "main.test", "/"), (200, "main\n".into()));
            http2.is_resumed()
        };
        assert!(!connect());
        assert!(connect());
        let gateway = weir.gateway();
        weir.signal(Signal::HUP);
        wait_until("another gateway", || !gateway.runs());
        assert!(connect(), "after a reload");
    }
}

/// The pseudo-header fields of a GET.
pub(crate) fn fields<'t>(host: &'t str, path: &'t str) -> [(&'t str, &'t str); 4] {
    [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", host),
        (":path", path),
    ]
}

/// The answer on a stream: its status, if HPACK's table has it, and its body.
fn get(http2: &mut Http2, stream: u32, host: &str, path: &str) -> (u16, String) {
    let fields = fields(host, path);
    let answer = http2.head(stream, &fields, true).answer(stream);
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    (answer.statuses[0], body)
}

#[test]
fn a_request_for_another_site_is_misdirected_and_others_of_the_connection_are_served() {
    let (weir, authority) = Tls::new().start();
    let socket = TcpStream::connect(weir.address()).expect("a connection");
    let mut http2 = TlsClient::new(&authority, false).http2(socket, "main.test", &[]);
    for (stream, host, body) in [
        (1, "main.test", "main\n"),
        (3, "www.main.test", "main\n"),
        (5, "other.test", ""),
        (7, "main.test", "main\n"),
    ] {
        let (_, got) = get(&mut http2, stream, host, "/?of=a-site");
        assert!(
            match body {
                "" => got.contains("421"),
                body => got == body,
            },
            "{host}: {got}"
        );
    }
    let words = ["--http2", "-H", "Host: other.test"];
    assert_eq!(
        curl(&weir, &authority, "main.test", "/", &words).status,
        421
    );
}

#[test]
fn a_proxy_s_header_comes_before_the_handshake() {
    let (weir, authority) = Tls::new()
        .with_php()
        .with(|setup| {
            setup
                .listen("proxy_protocol = true")
                .server("trusted = [\"127.0.0.1\"]")
        })
        .start();
    let mut socket = TcpStream::connect(weir.address()).expect("a connection");
    socket
        .write_all(b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 443\r\n")
        .expect("a header");
    let mut http2 = TlsClient::new(&authority, false).http2(socket, "main.test", &[]);
    let (status, body) = get(&mut http2, 1, "main.test", "/params.php");
    assert_eq!(status, 200);
    let params: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(params["REMOTE_ADDR"], "192.0.2.7");
    assert_eq!(params["SERVER_PROTOCOL"], "HTTP/2.0");
    assert_eq!(params["HTTPS"], "on");
}

#[test]
fn hints_compression_and_the_limits_of_clients_are_as_over_http1() {
    let text = "a text that is compressed\n".repeat(200);
    let setup = |setup: Setup| {
        let responder = Responder::unix(setup.folder(), |_, answer| {
            answer.stdout("Status: 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n");
            answer.page("a page");
        });
        let pool = responder.pool(2);
        let setup = setup
            .file("text.html", &text)
            .file("hint.php", "")
            .pool(&pool)
            .site("compress = true")
            .more("[[site.main.route]]\npath = \"/rated/\"\nrate = \"1/m\"\nreply = { body = \"once\" }")
            .more("[[site.main.route]]\npath = \"/closed/\"\ndeny = [\"127.0.0.0/8\"]\nreply = { body = \"never\" }");
        (responder, setup)
    };
    let mut responder = None;
    let (weir, authority) = Tls::new()
        .with(|before| {
            let (one, after) = setup(before);
            responder = Some(one);
            after
        })
        .start();
    let get = |path: &str, words: &[&str]| {
        let words = [&["--http2", "-i"][..], words].concat();
        let got = curl(&weir, &authority, "main.test", path, &words);
        (got.status, got.text().to_ascii_lowercase())
    };
    let (status, said) = get("/hint.php", &[]);
    assert_eq!(status, 200);
    let hint = said.find("http/2 103 \r\nlink: </style.css>; rel=preload");
    assert!(hint < said.find("http/2 200") && hint.is_some(), "{said}");
    let (_, said) = get("/text.html", &["--compressed"]);
    assert!(
        said.contains("content-encoding: ") && said.ends_with(&text),
        "{said}"
    );
    assert_eq!(get("/rated/", &[]).0, 200);
    let (status, said) = get("/rated/", &[]);
    assert!(status == 429 && said.contains("retry-after: "), "{said}");
    assert_eq!(get("/closed/", &[]).0, 403);
}

#[test]
fn h2spec_finds_nothing() {
    let (weir, _) = Tls::new().start();
    let (passed, failed) = h2spec(weir.address(), &["--tls", "--insecure"]);
    assert_eq!(failed, [""; 0]);
    assert!(passed >= 146, "{passed}");
}

#[test]
fn nghttp_and_h2load_are_content() {
    let (weir, _) = Tls::new().start();
    let url = format!("https://{}/", weir.address());
    let run = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).arg(&url).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = run("h2load", &["-n", "2000", "-c", "4", "-m", "32"]);
    assert!(said.contains("2000 succeeded, 0 failed"), "{said}");
    let said = run("nghttp", &["-nv", "-t", "60", "--no-verify-peer"]);
    assert!(
        said.contains("The negotiated protocol: h2") && said.contains(":status: 200"),
        "{said}"
    );
}

#[test]
fn a_browser_uses_it_and_uploads() {
    let echo = "<?php header('Content-Type: text/plain'); echo $_SERVER['SERVER_PROTOCOL'], ' ',\n\
                strlen(file_get_contents('php://input'));";
    let upload = "fetch('/echo.php', { method: 'POST', body: new Blob([new Uint8Array(3000000)]) })\n\
        .then(answer => answer.text()).then(text => { window.answer = text; });";
    let (weir, _) = Tls::new()
        .with_php()
        .with(|setup| setup.file("echo.php", echo).file("page.html", page(upload)))
        .start();
    let mut browser = browser::open(&weir, "/page.html", &[ANY_CERTIFICATE]);
    assert_eq!(browser.run("window.answer"), "HTTP/2.0 3000000");
    assert_eq!(browser.run(PROTOCOL), "h2");
}

/// What a connection holds that was idle for a while: after so many answers one after the other, so many at once.
fn idle_connections_cost(path: &str, (times, at_once): (u32, u32), most: u64) {
    const COUNT: u64 = 200;
    let (weir, authority) = Tls::new()
        .with(|setup| {
            setup
                .file("large.bin", vec![b'x'; 500_000])
                .server("threads = 1\nmax_connections_per_address = 0")
        })
        .start();
    let client = TlsClient::new(&authority, false);
    let pid = weir.gateway().pid;
    let connect = || {
        let socket = TcpStream::connect(weir.address()).expect("a connection");
        let mut http2 = client.http2(socket, "main.test", &[(INITIAL_WINDOW, 1 << 20)]);
        http2.allow(0, 1 << 20);
        for time in 0..times {
            let numbers = time * at_once..(time + 1) * at_once;
            // The frames are in one record, so that they arrive together.
            let heads = numbers.flat_map(|number| {
                let block = block(&fields("main.test", path));
                frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * number, &block)
            });
            http2.raw(&heads.collect::<Vec<u8>>());
            let mut open = at_once;
            while open > 0 {
                open -= u32::from(http2.expect(DATA).flags & END_STREAM != 0);
            }
        }
        http2
    };
    drop((0..20).map(|_| connect()).collect::<Vec<_>>());
    let before = anonymous(pid);
    let clients: Vec<Http2> = (0..COUNT).map(|_| connect()).collect();
    let what = format!("{times} times {at_once} answers for {path}");
    expect_growth(pid, before, COUNT, most, &what);
    drop(clients);
}

#[test]
fn an_idle_connection_costs_little() {
    idle_connections_cost("/", (32, 1), 32 << 10);
    idle_connections_cost("/large.bin", (1, 1), 32 << 10);
    idle_connections_cost("/", (1, 32), 32 << 10);
}

/// Of HTTP/1, beside those of HTTP/2 above.
#[test]
fn an_idle_connection_of_http1_costs_less() {
    const COUNT: u64 = 500;
    let (weir, authority) = Tls::new()
        .with(|setup| setup.server("threads = 1\nmax_connections_per_address = 0"))
        .start();
    let client = TlsClient::new(&authority, false);
    let pid = weir.gateway().pid;
    let connect = || {
        let socket = TcpStream::connect(weir.address()).expect("a connection");
        let mut stream = client.http1(socket, "main.test");
        for _ in 0..3 {
            let request = b"GET / HTTP/1.1\r\nHost: main.test\r\n\r\n";
            stream.write_all(request).expect("a request");
            let mut answer = Vec::new();
            while !answer.ends_with(b"main\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("an answer");
                answer.extend(byte);
            }
        }
        stream
    };
    drop((0..20).map(|_| connect()).collect::<Vec<_>>());
    let before = anonymous(pid);
    let clients: Vec<_> = (0..COUNT).map(|_| connect()).collect();
    expect_growth(pid, before, COUNT, 10 << 10, "an idle connection of HTTP/1");
    drop(clients);
}

#[test]
fn a_browser_decodes_what_weir_compresses() {
    let script = "<?php header('Content-Type: text/plain; charset=utf-8');\n\
        for ($i = 0; $i < 20000; $i++) { echo \"line $i \u{e4}\\n\"; }";
    let read = "fetch('/long.php').then(async answer => {\n\
        const lines = (await answer.text()).split('\\n');\n\
        window.answer = [answer.headers.get('content-encoding'), lines.length, lines[19999]].join(' '); });";
    let (weir, _) = Tls::new()
        .with_php()
        .with(|setup| {
            let setup = setup.file("long.php", script).file("page.html", page(read));
            setup.site("compress = true")
        })
        .start();
    let mut browser = browser::open(&weir, "/page.html", &[ANY_CERTIFICATE]);
    assert_eq!(browser.run("window.answer"), "zstd 20001 line 19999 \u{e4}");
}

/// A connection that is told to end takes no request that is then lost.
#[test]
fn a_reload_ends_connections_in_two_steps() {
    let (weir, authority) = Tls::new().start();
    let socket = TcpStream::connect(weir.address()).expect("a connection");
    let mut http2 = TlsClient::new(&authority, false).http2(socket, "main.test", &[]);
    assert_eq!(get(&mut http2, 1, "main.test", "/").1, "main\n");
    weir.signal(Signal::HUP);
    let first = http2.expect(GOAWAY);
    assert_eq!(first.payload[..4], (u32::MAX >> 1).to_be_bytes());
    // This one was on its way.
    http2.head(3, &fields("main.test", "/"), true);
    let mut heads = 0;
    let mut last = None;
    while let Some(frame) = http2.receive() {
        heads += u32::from(frame.kind == HEADERS && frame.flags & END_STREAM == 0);
        if frame.kind == GOAWAY {
            last = Some(frame.payload[..8].to_vec());
        }
    }
    assert_eq!(heads, 1);
    assert_eq!(last, Some(vec![0, 0, 0, 3, 0, 0, 0, 0]));
}
