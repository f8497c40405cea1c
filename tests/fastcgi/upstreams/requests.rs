//! What a server gets of a client's request: the same as from nginx.

use weir_test::{Client, Setup, front::WebServer, weir::request};

use super::{Received, Server, pool, start};

/// nginx, as its users set it up before an application.
const NGINX: &str = "proxy_http_version 1.1;
    proxy_set_header Connection \"\";
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Forwarded-Host $http_host;";

/// Requests in all the forms that matter to an application.
fn requests() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let targets = [
        "/",
        "/a%20b/%C3%A9?x=1&y=%2F",
        "/a%2Fb//c;v=1,2/(d)!$&'*+=:@~",
        "/%7euser/%41?",
        "/q??a=b?&&=",
        "/lone%25",
        "/utf8?q=%F0%9F%90%98&r=[]{}|^`",
        "/.well-known/x",
        "/index.php/info",
        "/a.php?x",
    ];
    for target in targets {
        all.push(request("GET", target, &[], b""));
    }
    // Not PATCH: weir announces that such a request has no body (RFC 9110 §8.6), nginx does not.
    for method in ["HEAD", "DELETE", "OPTIONS", "PUT", "REPORT", "PROPFIND"] {
        all.push(request(method, "/method", &[], b""));
    }
    for size in [0, 1, 17, 65_535, 65_536, 65_537, 300_000] {
        let body: Vec<u8> = (0..size).map(|index| index as u8).collect();
        let kind = [("Content-Type", "application/octet-stream")];
        all.push(request("POST", "/size", &kind, &body));
    }
    let repeated = [
        ("X-One", "1"),
        ("Accept", "text/html, */*;q=0.1"),
        ("x-one", "2"),
        ("Accept-Language", "de"),
        ("Cookie", "a=1; b=2"),
        ("Authorization", "Basic dTpw"),
        ("If-None-Match", "\"x\", W/\"y\""),
        ("Range", "bytes=0-4"),
        ("Referer", "http://localhost/?a=%20"),
        ("Empty", ""),
        ("Spaced", "a  b\tc"),
        ("X-Long", &"v".repeat(3000)),
    ];
    all.push(request("GET", "/headers", &repeated, b""));
    all.push(request(
        "GET",
        "/hop",
        &[("Connection", "keep-alive"), ("Keep-Alive", "timeout=5")],
        b"",
    ));
    let chunked = "POST /chunked HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    all.push(
        [
            chunked,
            "5\r\nhello\r\n1;x=y\r\n \r\n5\r\nworld\r\n0\r\n\r\n",
        ]
        .concat()
        .into_bytes(),
    );
    all.push(b"GET /old HTTP/1.0\r\nHost: localhost\r\n\r\n".to_vec());
    all.push(b"GET http://localhost/absolute?x=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec());
    all
}

/// What is compared: everything but the connection, and the order of fields with different names.
fn sorted(mut request: Received) -> Received {
    request.fields.sort_by(|one, other| one.0.cmp(&other.0));
    request.connection = 0;
    request
}

#[test]
fn a_server_gets_what_nginx_would_send() {
    let server = Server::of("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let weir = start(&[&server], "");
    let place = format!(
        "location / {{ {NGINX} proxy_pass http://{}; }}",
        server.address
    );
    let nginx = WebServer::nginx(weir.folder(), &place, "");
    let requests = requests();
    for request in &requests {
        for address in [nginx.address(), weir.address()] {
            let mut client = Client::connect(address);
            let method = String::from_utf8_lossy(
                request
                    .split(|byte| *byte == b' ')
                    .next()
                    .unwrap_or_default(),
            )
            .into_owned();
            client.send(request).response_to(&method).expect(200);
        }
    }
    let received = server.received();
    assert_eq!(received.len(), 2 * requests.len());
    for pair in received.chunks(2) {
        let (nginx, weir) = (sorted(pair[0].clone()), sorted(pair[1].clone()));
        assert_eq!(weir, nginx);
    }
}

/// Fields about the connection end at weir, and no client can remove what weir or the site says.
#[test]
fn what_is_about_the_connection_is_not_passed_on() {
    let server = Server::echo();
    let setup = Setup::new().site("set_request_headers = { \"X-Site\" = \"main\" }");
    let weir = setup.pool(&pool(&[&server], "")).start();
    let fields = [
        ("Connection", "close, X-Hop, X-Site, X-Forwarded-For, Host"),
        ("X-Hop", "1"),
        ("X-Site", "forged"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=10.0.0.1"),
        ("Proxy", "evil:80"),
        ("Proxy-Connection", "close"),
        ("TE", "trailers"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAAA"),
        ("X_Under", "1"),
        ("Expect", "100-continue"),
    ];
    let mut client = weir.client();
    client.send(request("POST", "/", &fields, b"body"));
    client.response().expect(200);
    let got = server.last();
    assert_eq!(got.body, b"body");
    let address = "127.0.0.1";
    let expected = [
        ("content-length", "4"),
        ("host", "localhost"),
        ("x-forwarded-for", address),
        ("x-forwarded-host", "localhost"),
        ("x-forwarded-proto", "http"),
        ("x-site", "main"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(sorted(got).fields, expected);
}

#[test]
fn a_trusted_proxy_in_front_stays_in_the_list() {
    let server = Server::echo();
    let setup = Setup::new().server("trusted = [\"127.0.0.1\"]");
    let weir = setup.pool(&pool(&[&server], "")).start();
    let said = [
        ("X-Forwarded-For", "203.0.113.7"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "shop.example"),
    ];
    weir.request("GET", "/", &said, b"").expect(200);
    let got = server.last();
    assert_eq!(got.all("x-forwarded-for"), ["203.0.113.7, 127.0.0.1"]);
    assert_eq!(got.all("x-forwarded-proto"), ["https"]);
    assert_eq!(got.all("x-forwarded-host"), ["shop.example"]);
    assert_eq!(got.all("host"), ["shop.example"]);
}

#[test]
fn the_pool_says_which_host_and_which_fields() {
    let server = Server::echo();
    let lines = "host = \"app.internal\"\nforwarded = \"forwarded\"";
    let weir = start(&[&server], lines);
    weir.get("/").expect(200);
    let got = server.last();
    assert_eq!(got.all("host"), ["app.internal"]);
    assert_eq!(
        got.all("forwarded"),
        ["for=127.0.0.1;proto=http;host=\"localhost\""]
    );
    assert!(got.all("x-forwarded-for").is_empty());
    drop(weir);
    let weir = start(&[&server], "forwarded = \"off\"");
    weir.get("/").expect(200);
    assert_eq!(
        server.last().fields,
        [("host".to_owned(), "localhost".to_owned())]
    );
}

/// What the front takes for one request can never be two at the server.
#[test]
fn no_request_can_hide_another_one() {
    let server = Server::echo();
    let weir = start(&[&server], "");
    let smuggled = [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 33\r\n\r\nGET /evil HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\nGET /evil HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET /\x0bevil HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    for request in smuggled {
        let mut client = weir.client();
        client.send(request);
        let _ = client.response_if_any("GET");
    }
    for got in server.received() {
        assert!(
            got.line.starts_with("POST / ") || got.line.starts_with("GET / "),
            "{got:?}"
        );
        assert!(got.all("transfer-encoding").is_empty(), "{got:?}");
        assert!(got.all("content-length").len() <= 1, "{got:?}");
    }
}
