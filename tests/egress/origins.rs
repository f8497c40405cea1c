//! curl calls the origins of these tests without weir, to check that they behave as the other tests assume.

use std::process::Command;
use std::time::Duration;

use h2::Reason;

use weir_test::authority::Authority;
use weir_test::h2::{H2, Turn};
use weir_test::oddity::Oddity;
use weir_test::origin::{LARGE, Origin};
use weir_test::sidecar::Sidecar;
use weir_test::{Setup, wait_until};

/// curl with this authority. The status is 0 if it failed. Also returns its output.
fn curl(authority: &Authority, words: &[&str]) -> (i32, String) {
    let output = Command::new("curl")
        .args(["-sS", "--noproxy", "*", "--max-time", "20", "--cacert"])
        .arg(authority.file())
        .args(words)
        .output()
        .expect("curl; setup/install.sh test installs it");
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().expect("an exit code");
    (code, String::from_utf8_lossy(&text).into_owned())
}

fn to(address: std::net::SocketAddr) -> (String, String) {
    let port = address.port();
    (
        format!("api.test:{port}:{}", address.ip()),
        format!("https://api.test:{port}"),
    )
}

#[test]
fn nginx_says_what_it_was_asked() {
    let setup = Setup::new();
    let authority = Authority::new();
    let identity = authority.server(&["DNS:api.test", "IP:127.0.0.1"]);
    let mut origin = Origin::tls(setup.folder(), &identity);
    let (resolve, url) = to(origin.address());
    let [echo, gzip, large] = ["/echo?a=b", "/gzip", "/large"].map(|path| format!("{url}{path}"));
    assert_eq!(origin.connections(), 0);

    let (code, text) = curl(
        &authority,
        &["--resolve", &resolve, "-H", "X-Test: one", &echo, &echo],
    );
    assert_eq!(code, 0, "{text}");
    assert_eq!(Sidecar::value(&text, "uri"), "/echo?a=b");
    assert_eq!(Sidecar::value(&text, "x-test"), "one");
    assert_eq!(Sidecar::value(&text, "protocol"), "HTTP/2.0");
    let calls = origin.wait_for_calls(2);
    assert_eq!(calls[0].connection, calls[1].connection);
    assert_eq!((calls[0].on_connection, calls[1].on_connection), (1, 2));
    assert_eq!((calls[0].sni.as_str(), calls[0].http2), ("api.test", true));
    assert_eq!(origin.connections(), 1);

    let words = ["--http1.1", "--resolve", &resolve];
    let (_, text) = curl(&authority, &[&words[..], &[&gzip]].concat());
    assert_eq!(text.len(), 7000);
    let (_, text) = curl(
        &authority,
        &[&words[..], &["-d", "some text", &format!("{url}/body")]].concat(),
    );
    assert_eq!(
        (
            Sidecar::value(&text, "body").as_str(),
            Sidecar::value(&text, "length").as_str()
        ),
        ("some text", "9")
    );
    let (_, text) = curl(&authority, &[&words[..], &[&large]].concat());
    assert_eq!(text.len(), LARGE);

    origin.stop();
    let (code, text) = curl(&authority, &[&words[..], &[&echo]].concat());
    assert_eq!(code, 7, "refused: {text}");
    origin.go();
    let (code, text) = curl(&authority, &[&words[..], &[&echo]].concat());
    assert_eq!(code, 0, "{text}");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn certificates_are_right_or_wrong() {
    let setup = Setup::new();
    let (authority, stranger) = (Authority::new(), Authority::new());
    let names = ["DNS:api.test"];
    for (identity, complaint) in [
        (authority.server(&names), None),
        (
            authority.server(&["DNS:other.test"]),
            Some("no alternative certificate subject name"),
        ),
        (authority.expired(&names), Some("certificate has expired")),
        (
            stranger.server(&names),
            Some("unable to get local issuer certificate"),
        ),
    ] {
        let origin = Origin::tls_http1(setup.folder(), &identity);
        let (resolve, url) = to(origin.address());
        let (code, text) = curl(&authority, &["--resolve", &resolve, &url]);
        match complaint {
            None => assert_eq!(code, 0, "{text}"),
            Some(complaint) => assert!(code == 60 && text.contains(complaint), "{code} {text}"),
        }
    }
    // An origin that asks for the client's certificate.
    let (identity, client) = (authority.server(&names), authority.client("shop.test"));
    let more = format!(
        "ssl_verify_client on; ssl_client_certificate {};",
        authority.file().display()
    );
    let listen = Origin::listen_tls(&identity, true);
    let origin = Origin::start(setup.folder(), weir_test::free_address(), &listen, &more);
    let (resolve, url) = to(origin.address());
    let (cert, key) = (
        client.cert.display().to_string(),
        client.key.display().to_string(),
    );
    let (code, text) = curl(
        &authority,
        &["--resolve", &resolve, "--cert", &cert, "--key", &key, &url],
    );
    assert_eq!(code, 0, "{text}");
    assert_eq!(Sidecar::value(&text, "client"), "CN=shop.test");
    let (_, text) = curl(&authority, &["--resolve", &resolve, &url]);
    assert!(text.contains("No required SSL certificate"), "{text}");
}

#[test]
fn an_oddity_does_as_it_was_told() {
    let authority = Authority::new();
    let identity = authority.server(&["DNS:api.test"]);
    let origin = Oddity::tls(&identity, &["http/1.1"], |talk| match talk.number {
        1 => talk.answer_all("fine"),
        2 => {
            talk.request();
            talk.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf ");
        }
        3 => {
            talk.request();
            talk.reset();
        }
        4 => {
            talk.request();
            talk.send("HTTP/1.1 200 OK\r\n");
            talk.endless("X-More: and more\r\n");
        }
        _ => talk.hold(),
    });
    let (resolve, url) = to(origin.address());
    let words = ["--resolve", resolve.as_str(), url.as_str()];
    let (code, text) = curl(&authority, &[&words[..], &[&url, "-d", "a=b"]].concat());
    assert_eq!((code, text.as_str()), (0, "finefine"));
    let asked = origin.asked();
    assert_eq!(asked.len(), 2);
    assert!(
        asked[0].starts_with("POST / HTTP/1.1\r\n") && asked[0].ends_with("\r\n\r\na=b"),
        "{asked:?}"
    );
    assert_eq!((origin.connections(), origin.handshakes()), (1, 1));
    assert_eq!(origin.names(), ["api.test"]);
    let (code, text) = curl(&authority, &words);
    assert!(code == 18 && text.starts_with("half "), "{code} {text}");
    let (code, text) = curl(&authority, &words);
    assert_eq!(code, 56, "reset: {text}");
    let (code, text) = curl(&authority, &words);
    assert_ne!(code, 0, "endless: {text}");
    let (code, text) = curl(&authority, &[&words[..], &["--max-time", "0.3"]].concat());
    assert_eq!(code, 28, "silence: {text}");
    wait_until("all have ended", || origin.open() == 0);

    let origin = Oddity::tls(&identity, &["http/1.1"], |talk| {
        talk.request();
        talk.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    });
    let (resolve, url) = to(origin.address());
    let (code, text) = curl(&authority, &["--resolve", &resolve, &url, &url]);
    assert_eq!(code, 0, "{text}");
    assert_eq!((origin.handshakes(), origin.resumed()), (2, 1));
}

#[test]
fn http_2_goes_wrong_where_it_is_told_to() {
    let authority = Authority::new();
    let identity = authority.server(&["DNS:api.test"]);
    let origin = H2::start(&identity, 10, |asked| match asked.request.uri().path() {
        "/refused" => Turn::Reset(Reason::REFUSED_STREAM),
        "/half" => Turn::Half,
        "/last" => Turn::Last("last".to_owned()),
        "/cut" => Turn::Cut,
        "/late" => Turn::Later(
            Duration::from_millis(20),
            Box::new(Turn::Answer(200, "late".to_owned())),
        ),
        "/never" => Turn::Silence,
        _ => Turn::Answer(201, format!("{} {}", asked.connection, asked.number)),
    });
    let (resolve, url) = to(origin.address());
    let ask = |path: &str, words: &[&str]| {
        let url = format!("{url}{path}");
        curl(
            &authority,
            &[&["--resolve", &resolve, &url], words].concat(),
        )
    };
    let (code, text) = ask(
        "/",
        &[
            "-d",
            "body",
            &format!("{url}/again"),
            "-w",
            " %{http_code}\n",
        ],
    );
    assert_eq!((code, text.as_str()), (0, "1 1 201\n1 2 201\n"));
    assert_eq!(origin.bodies(), [b"body", b"body"]);
    assert_eq!(origin.connections(), 1);
    assert_eq!(ask("/last", &[]), (0, "last".to_owned()));
    assert_eq!(ask("/late", &[]), (0, "late".to_owned()));
    assert!(ask("/half", &[]).1.starts_with("half "));
    assert_eq!(ask("/never", &["--max-time", "0.3"]).0, 28);
    for path in ["/refused", "/cut"] {
        let (code, text) = ask(path, &[]);
        assert_ne!(code, 0, "{path}: {text}");
    }
    assert_eq!(origin.most_at_once(), 1);
    assert_eq!(
        origin.asked()[0]
            .request
            .uri()
            .authority()
            .map(|a| a.host()),
        Some("api.test")
    );
}
