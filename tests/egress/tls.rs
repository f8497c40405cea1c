//! Which certificates weir trusts, which it presents, and what it reports about wrong ones.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;

use rustix::process::Signal;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use weir_test::authority::{Authority, Identity};
use weir_test::oddity::{Oddity, Talk};
use weir_test::origin::Origin;
use weir_test::sidecar::{Outward, Sidecar};
use weir_test::{Setup, free_address, goes_on_as_root, weir};

fn hello(talk: &mut Talk) {
    talk.answer_all("hello");
}

fn path(name: &str, origin: &Oddity) -> String {
    format!("/{name}:{}/", origin.address().port())
}

/// A table for one origin, with the `hosts` line that [`Outward::name`] would add.
fn table(name: &str, origin: &Oddity, lines: &str) -> String {
    let host = format!("{name}.test:{}", origin.address().port());
    format!("[egress.host.{name}]\nhosts = [\"{host}\"]\n{lines}\n")
}

#[test]
fn certificates_that_are_wrong_are_refused_and_others_are_called() {
    let outward = Outward::new();
    let mine = &outward.authority;
    let good = Oddity::tls(&mine.server(&["DNS:good.test"]), &["http/1.1"], hello);
    let expired = Oddity::tls(&mine.expired(&["DNS:expired.test"]), &[], hello);
    let other = Oddity::tls(&mine.server(&["DNS:good.test"]), &[], hello);
    let others = Authority::new();
    let stranger = Oddity::tls(&others.server(&["DNS:stranger.test"]), &[], hello);
    let client = Oddity::tls(&mine.client("client.test"), &[], hello);
    // What openssl req -x509 makes.
    let issuer = Oddity::tls(&mine.itself(), &[], hello);
    let sidecar = outward
        .name("good.test", good.address())
        .name("expired.test", expired.address())
        .name("other.test", other.address())
        .name("stranger.test", stranger.address())
        .name("client.test", client.address())
        .name("issuer.test", issuer.address())
        .start();
    for (name, origin, cause, mend) in [
        (
            "expired.test",
            &expired,
            "has expired on 2020-02-01",
            "renew",
        ),
        ("other.test", &other, "is for good.test", "call it by"),
        (
            "stranger.test",
            &stranger,
            "that this machine trusts",
            "ca_file",
        ),
        (
            "client.test",
            &client,
            "not valid for servers",
            "another one",
        ),
        (
            "issuer.test",
            &issuer,
            "is that of an authority (CA:TRUE)",
            "basicConstraints=critical,CA:FALSE",
        ),
    ] {
        let answer = sidecar.get(&path(name, origin)).expect(502);
        answer.expect_reason("tls_certificate_error");
        let line = sidecar.weir.wait_for_error(&[name, cause]);
        assert!(line.contains(mend), "{line}");
        assert_eq!(origin.asked(), [""; 0], "{name} was asked");
        sidecar.get(&path("good.test", &good)).expect(200);
    }
    assert_eq!(good.handshakes(), 1);
    assert_eq!(good.names(), ["good.test"]);
}

#[test]
fn a_table_may_do_without_verification_and_the_log_says_so() {
    let outward = Outward::new();
    let others = Authority::new();
    let stranger = others.expired(&["DNS:elsewhere.test"]);
    let lax = Oddity::tls(&stranger, &["http/1.1"], hello);
    let strict = Oddity::tls(&stranger, &["http/1.1"], hello);
    let sidecar = outward
        .tables(&table("lax", &lax, "verify = false"))
        .name("lax.test", lax.address())
        .name("strict.test", strict.address())
        .start();
    sidecar
        .weir
        .wait_for_error(&["[egress.host.lax] verify = false", "ca_file"]);
    sidecar.get(&path("lax.test", &lax)).expect(200);
    sidecar.get(&path("strict.test", &strict)).expect(502);
}

/// A server with TLS 1.3 or 1.2 that requires a client certificate of this authority.
fn demanding(authority: &Authority, identity: &Identity) -> Arc<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(authority.file()).expect("a certificate");
    roots.add(root).expect("an authority");
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let (chain, key) = identity.load();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.expect("a verifier"))
        .with_single_cert(chain, key);
    Arc::new(config.expect("a certificate and its key"))
}

#[test]
fn an_origin_that_wants_a_certificate_is_shown_one() {
    let outward = Outward::new();
    let identity = outward
        .authority
        .server(&["DNS:shown.test", "DNS:bare.test"]);
    let client = outward.authority.client("weir.test");
    let tls = demanding(&outward.authority, &identity);
    let shown = Oddity::start(free_address(), Some(tls.clone()), hello);
    let bare = Oddity::start(free_address(), Some(tls), hello);
    let setup = Setup::new();
    let more = format!(
        "ssl_verify_client on; ssl_client_certificate {};",
        outward.authority.file().display()
    );
    let listen = Origin::listen_tls(&identity, true);
    let nginx = Origin::start(setup.folder(), free_address(), &listen, &more);
    let lines = format!(
        "ca_file = \"{}\"\nclient_cert = \"{}\"\nclient_key = \"{}\"",
        outward.authority.file().display(),
        client.cert.display(),
        client.key.display()
    );
    let hosts =
        [shown.address(), nginx.address()].map(|at| format!("\"shown.test:{}\"", at.port()));
    let table = format!(
        "[egress.host.shown]\nhosts = [{}]\n{lines}\n",
        hosts.join(", ")
    );
    let sidecar = outward
        .tables(&table)
        .name("bare.test", bare.address())
        .name("shown.test", shown.address())
        .allow(&format!(
            "{{ host = \"shown.test:{}\", addresses = [\"127.0.0.0/8\"] }}",
            nginx.address().port()
        ))
        .start_in(setup);
    sidecar.get(&path("shown.test", &shown)).expect(200);
    sidecar.dns.says(
        "shown.test",
        weir_test::dns::Says::Addresses(vec![nginx.address().ip()], 60),
    );

    let answer = sidecar.get(&path("bare.test", &bare)).expect(502);
    answer.expect_reason("tls_protocol_error");
    let line = sidecar
        .weir
        .wait_for_error(&["bare.test", "does not accept weir's client certificate"]);
    assert!(line.contains("client_cert"), "{line}");
}

#[test]
fn a_session_goes_on_when_its_connection_has_ended() {
    for versions in ["TLSv1.3", "TLSv1.2"] {
        let setup = Setup::new();
        let outward = Outward::new();
        let identity = outward.authority.server(&["DNS:api.test"]);
        let origin = Origin::start(
            setup.folder(),
            free_address(),
            &Origin::listen_tls(&identity, false),
            &format!("keepalive_requests 1; ssl_protocols {versions};"),
        );
        let port = origin.address().port();
        let sidecar = outward.name("api.test", origin.address()).start_in(setup);
        for _ in 0..3 {
            sidecar.get(&format!("/api.test:{port}/echo")).expect(200);
        }
        let calls = origin.wait_for_calls(3);
        let resumed: Vec<bool> = calls.iter().map(|call| call.resumed).collect();
        assert_eq!(resumed, [false, true, true], "{versions}");
        assert!(
            calls
                .iter()
                .all(|call| call.tls == versions && call.sni == "api.test")
        );
    }
}

#[test]
fn an_address_is_called_without_a_name_and_has_to_be_in_the_certificate() {
    let outward = Outward::new();
    let at = free_address();
    let ip = at.ip().to_string();
    let identity = outward.authority.server(&[&format!("IP:{ip}")]);
    let tls = weir_test::oddity::tls(&identity, &["http/1.1"]);
    let origin = Oddity::start(at, Some(tls), hello);
    let other = outward.authority.server(&["IP:127.255.0.1"]);
    let other = Oddity::tls(&other, &["http/1.1"], hello);
    let sidecar = outward
        .name(&ip, origin.address())
        .name(&other.address().ip().to_string(), other.address())
        .start();
    sidecar.get(&path(&ip, &origin)).expect(200);
    assert_eq!(origin.names(), [""]);
    assert_eq!(sidecar.dns.asked(), 0);
    let wrong = sidecar.get(&path(&other.address().ip().to_string(), &other));
    wrong.expect(502).expect_reason("tls_certificate_error");
}

#[test]
fn what_is_no_tls_is_told_as_that() {
    let outward = Outward::new();
    let plain = Oddity::plain(|talk| {
        talk.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        talk.hold();
    });
    let sidecar = outward.name("plain.test", plain.address()).start();
    let answer = sidecar.get(&path("plain.test", &plain)).expect(502);
    answer.expect_reason("tls_protocol_error");
    sidecar
        .weir
        .wait_for_error(&["plain.test", "not TLS", "http://"]);
}

#[test]
fn a_handshake_that_breaks_off_is_tried_again_and_told_as_that() {
    let listener = TcpListener::bind((free_address().ip(), 0)).expect("bind");
    let address = listener.local_addr().expect("an address");
    // The first try and two more: the origin accepts each and then closes it.
    let origin = std::thread::spawn(move || {
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().expect("another try");
            stream.read_exact(&mut [0]).expect("the beginning of TLS");
        }
    });
    let outward = Outward::new().usual("retries = 2");
    let sidecar = outward.name("gone.test", address).start();
    let answer = sidecar.get(&format!("/gone.test:{}/", address.port()));
    answer.expect(502).expect_reason("connection_terminated");
    sidecar
        .weir
        .wait_for_error(&["gone.test", "closed during the TLS handshake"]);
    origin.join().expect("it was tried three times");
}

#[test]
fn a_handshake_that_does_not_end_is_given_up() {
    let outward = Outward::new().usual("connect_timeout = \"300ms\"\nretries = 0");
    let silent = Oddity::plain(Talk::hold);
    let sidecar = outward.name("silent.test", silent.address()).start();
    let answer = sidecar.get(&path("silent.test", &silent)).expect(504);
    answer.expect_reason("connection_timeout");
    sidecar
        .weir
        .wait_for_error(&["silent.test", "TLS handshake", "300 ms"]);
}

#[test]
fn the_machines_authorities_are_those_of_ssl_cert_file_if_it_says_so() {
    let outward = Outward::new();
    let origin = outward.authority.server(&["DNS:api.test"]);
    let origin = Oddity::tls(&origin, &["http/1.1"], hello);
    let variable = format!("SSL_CERT_FILE={}", outward.authority.file().display());
    let sidecar = outward
        .tables(&table("api", &origin, "keepalive = 1"))
        .name("api.test", origin.address())
        .start_in(Setup::new().under(&["env", &variable]));
    sidecar.get(&path("api.test", &origin)).expect(200);
}

#[test]
fn secrets_come_from_files_and_the_environment_and_are_not_in_logs() {
    let setup = Setup::new();
    let origin = Origin::plain(setup.folder());
    let token = setup.folder().join("token");
    weir::write(&token, b"hunter2\n");
    // If the tests run as root, the gateway runs as another user by then.
    weir::mode(&token, 0o600);
    let outward = Outward::new().usual(&format!(
        "set_headers = {{ Authorization = \"Bearer ${{file:{}}}\", X-Test = \"${{env:WEIR_TEST_KEY}}\" }}",
        token.display()
    ));
    let port = origin.address().port();
    let sidecar = outward
        .plain_name("api.test", origin.address())
        .start_in(setup.under(&["env", "WEIR_TEST_KEY=swordfish"]));
    let call = || {
        let forged = [("Authorization", "Basic eDp5"), ("X-Test", "mine")];
        let answer = sidecar.call("GET", &format!("/api.test:{port}/echo"), &forged, b"");
        answer.expect(200).text()
    };
    let text = call();
    assert_eq!(Sidecar::value(&text, "authorization"), "Bearer hunter2");
    assert_eq!(Sidecar::value(&text, "x-test"), "swordfish");

    // A restarted gateway gets them again, whatever happened to the file.
    fs::remove_file(&token).expect("a file");
    let gateway = sidecar.weir.gateway();
    weir_test::process::signal(gateway.pid, Signal::KILL);
    sidecar.weir.wait_for_error(&["accepts connections again"]);
    assert_eq!(Sidecar::value(&call(), "authorization"), "Bearer hunter2");

    // A reload reads them again, and fails if it cannot.
    sidecar.weir.signal(Signal::HUP);
    sidecar.weir.wait_for_error(&["nothing was changed"]);
    sidecar.weir.wait_for_error(&["token", "No such file"]);
    assert_eq!(Sidecar::value(&call(), "authorization"), "Bearer hunter2");
    weir::write(&token, b"correct horse\n");
    sidecar.weir.signal(Signal::HUP);
    weir_test::wait_until("the new token is used", || {
        Sidecar::value(&call(), "authorization") == "Bearer correct horse"
    });
    let logs = sidecar.weir.stderr() + &sidecar.weir.read("access.log");
    for secret in ["hunter2", "swordfish", "correct horse"] {
        assert!(!logs.contains(secret), "{secret} in {logs}");
    }
}

#[test]
fn what_lies_outside_of_the_gateways_chroot_is_there_for_it() {
    if !goes_on_as_root() {
        return;
    }
    let setup = Setup::new();
    let outward = Outward::new();
    let origin = outward.authority.server(&["DNS:api.test"]);
    let origin = Oddity::tls(&origin, &["http/1.1"], hello);
    let chroot = setup.root();
    let sidecar = outward
        .name("api.test", origin.address())
        .start_in(setup.server(&format!("chroot = \"{}\"", chroot.display())));
    sidecar.get(&path("api.test", &origin)).expect(200);
}

#[test]
fn files_that_are_of_no_use_are_told_at_the_start() {
    let authority = Authority::new();
    let identity = authority.server(&["DNS:api.test"]);
    let other = authority.server(&["DNS:api.test"]);
    let (cert, key) = (identity.cert.display(), identity.key.display());
    let other = other.key.display();
    for (lines, words) in [
        (
            "ca_file = \"/none/ca.pem\"".to_owned(),
            vec!["ca_file", "/none/ca.pem: No such file"],
        ),
        (
            format!("ca_file = \"{key}\""),
            vec!["[egress.host.api] ca_file", "no certificate in PEM"],
        ),
        (
            format!("client_cert = \"{cert}\"\nclient_key = \"{cert}\""),
            vec!["[egress.host.api] client_key", "no private key"],
        ),
        (
            format!("client_cert = \"{cert}\"\nclient_key = \"{other}\""),
            vec!["[egress.host.api] client_cert", "do not match"],
        ),
        (
            "set_headers = { X-A = \"${env:WEIR_TEST_NO_SUCH}\" }".to_owned(),
            vec!["set_headers", "the variable WEIR_TEST_NO_SUCH"],
        ),
    ] {
        let toml = format!(
            "[egress]\nlisten = [\"{}\"]\nallow = [\"api.test\"]\n[egress.host.api]\nhosts = [\"api.test\"]\n{lines}\n",
            free_address()
        );
        let (status, said) = Setup::new().more(&toml).start_in_vain();
        assert!(!status.success());
        for word in words {
            assert!(said.contains(word), "{word} in {said}");
        }
    }
}

#[test]
fn keys_may_be_written_in_three_ways() {
    let setup = Setup::new();
    let openssl = |words: &str| {
        let output = Command::new("openssl")
            .args(words.split(' '))
            .current_dir(setup.folder())
            .output()
            .expect("openssl; setup/install.sh test installs it");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {words}: {said}");
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout 1.key -out 1.pem -subj /CN=one");
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout 2.key -out 2.pem -subj /CN=two",
    );
    openssl("rsa -in 1.key -out pkcs1.key -traditional");
    openssl("ec -in 2.key -out sec1.key");
    let tables = [
        ("1.pem", "1.key"),
        ("1.pem", "pkcs1.key"),
        ("2.pem", "sec1.key"),
    ];
    let mut outward = Outward::new();
    for (number, (cert, key)) in tables.iter().enumerate() {
        let begin = fs::read_to_string(setup.folder().join(key)).expect("a key");
        let kinds = [
            "BEGIN PRIVATE KEY",
            "BEGIN RSA PRIVATE KEY",
            "BEGIN EC PRIVATE KEY",
        ];
        assert!(begin.contains(kinds[number]), "{begin}");
        let [cert, key] = [cert, key].map(|name| setup.folder().join(name));
        outward = outward.tables(&format!(
            "[egress.host.h{number}]\nhosts = [\"{number}.test\"]\nclient_cert = \"{}\"\nclient_key = \"{}\"",
            cert.display(),
            key.display()
        ));
    }
    // weir takes calls, so all of them were read, and fit.
    outward.allow("\"api.test\"").start_in(setup);
}
