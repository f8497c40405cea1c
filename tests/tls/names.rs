//! Which certificate a client gets, and which requests may come over its connection.

use weir_test::Setup;
use weir_test::authority::{Authority, self_signed_rsa};

use crate::{Tls, curl, install, s_client, said};

#[test]
fn each_name_gets_its_certificate() {
    let (weir, authority) = Tls::new().start();
    for (host, body) in [
        ("main.test", "main\n"),
        ("www.main.test", "main\n"),
        ("other.test", "other\n"),
        // A client that connects to an address sends no name.
        (&weir.address().ip().to_string(), "other\n"),
    ] {
        let got = curl(&weir, &authority, host, "/", &[]);
        assert_eq!(
            (got.status, got.text()),
            (200, body),
            "{host}: {}",
            got.error
        );
    }
    // A star stands for one label.
    let got = curl(&weir, &authority, "a.b.main.test", "/", &[]);
    assert!(got.error.contains("unrecognized name"), "{}", got.error);
}

#[test]
fn a_name_without_a_certificate_is_refused_with_its_alert_and_served_with_a_default() {
    let (weir, _) = Tls::new().start();
    let text = said(weir.address(), "unknown.test", &[]);
    assert!(
        text.contains("unrecognized name") && text.contains("alert number 112"),
        "{text}"
    );
    let output = s_client(weir.address(), &["-noservername"], "");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("CN = other.test"), "by the address: {text}");
    drop(weir);

    let (weir, _) = Tls::new()
        .with(|setup| setup.listen("default_certificate = \"main\""))
        .start();
    let text = said(weir.address(), "unknown.test", &[]);
    assert!(text.contains("CN = main.test"), "{text}");
}

#[test]
fn a_site_may_name_its_certificate() {
    let tls = Tls::new();
    let named = tls.authority.server(&["DNS:named.test"]);
    let (weir, _) = tls
        .with(|setup| {
            let table = install(&setup, "named", &named);
            setup.more(&table).site("tls = \"named\"")
        })
        .start();
    let text = said(weir.address(), "main.test", &[]);
    assert!(text.contains("CN = named.test"), "{text}");
}

#[test]
fn of_two_certificates_for_a_name_the_client_gets_one_that_it_can_check() {
    let tls = Tls::new();
    let rsa = tls.setup.folder().join("rsa");
    self_signed_rsa(&rsa, "main.test");
    let path = rsa.display().to_string();
    let table = format!("[certificate.rsa]\nchain = \"{path}.pem\"\nkey = \"{path}.key\"");
    let (weir, _) = tls.with(|setup| setup.more(&table)).start();
    let usual = said(weir.address(), "main.test", &[]);
    assert!(usual.contains("CN = main.test"), "{usual}");
    for version in ["-tls1_2", "-tls1_3"] {
        let only_rsa = said(
            weir.address(),
            "main.test",
            &[version, "-sigalgs", "RSA-PSS+SHA256"],
        );
        assert!(only_rsa.contains("CN = rsa"), "{only_rsa}");
    }
}

#[test]
fn a_request_for_another_site_than_the_connection_is_misdirected() {
    let (weir, authority) = Tls::new().start();
    let got = curl(
        &weir,
        &authority,
        "main.test",
        "/",
        &["-H", "Host: other.test"],
    );
    assert_eq!(got.status, 421);
    // Another name of the same site is not another site.
    let got = curl(
        &weir,
        &authority,
        "main.test",
        "/",
        &["-H", "Host: www.main.test"],
    );
    assert_eq!(got.status, 200);
}

#[test]
fn plain_http_on_a_port_for_https_is_told_so() {
    let (weir, _) = Tls::new().start();
    let answer = weir.get("/");
    assert_eq!(answer.status, 400);
    let text = String::from_utf8(answer.body).expect("UTF-8");
    assert!(
        text.contains("use https://") && text.lines().count() == 1,
        "{text}"
    );
    let line = weir.wait_for_line("log/access.log", &["plain_http"]);
    assert!(line.contains("400"), "{line}");
}

#[test]
fn clients_below_the_lowest_version_are_refused() {
    let (weir, authority) = Tls::new().start();
    let got = curl(&weir, &authority, "main.test", "/", &["--tls-max", "1.2"]);
    assert_eq!(got.status, 200, "{}", got.error);
    let old = said(
        weir.address(),
        "main.test",
        &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
    );
    assert!(old.contains("alert number"), "{old}");
    drop(weir);
    let (weir, authority) = Tls::new()
        .with(|setup| setup.more("[tls]\nmin_version = \"1.3\""))
        .start();
    let got = curl(&weir, &authority, "main.test", "/", &["--tls-max", "1.2"]);
    assert_eq!(got.status, 0);
    assert!(got.error.contains("protocol version"), "{}", got.error);
    assert_eq!(curl(&weir, &authority, "main.test", "/", &[]).status, 200);
}

/// Its name, what is done to the files, and words of the message.
type Case = (&'static str, fn(&Setup), &'static [&'static str]);

#[test]
fn a_start_with_certificates_that_cannot_be_used_says_what_to_do() {
    let cases: [Case; 4] = [
        (
            "missing",
            |setup| std::fs::remove_file(setup.folder().join("main.pem")).expect("rm"),
            &["certificate.main.chain", "main.pem"],
        ),
        (
            "swapped",
            |setup| {
                let folder = setup.folder();
                std::fs::copy(folder.join("other.key"), folder.join("main.key")).expect("cp");
            },
            &[
                "certificate.main.key",
                "this is not the key of the certificate",
            ],
        ),
        (
            "no pem",
            |setup| std::fs::write(setup.folder().join("main.key"), "key").expect("write"),
            &["certificate.main.key", "it has no private key"],
        ),
        (
            "encrypted",
            |setup| {
                let key = setup.folder().join("main.key");
                let made = std::process::Command::new("openssl")
                    .args(["pkey", "-aes256", "-passout", "pass:secret", "-in"])
                    .arg(&key)
                    .output()
                    .expect("openssl");
                std::fs::write(&key, made.stdout).expect("write");
            },
            &["certificate.main.key", "password"],
        ),
    ];
    for (name, spoil, words) in cases {
        for isolation in ["true", "false"] {
            let tls =
                Tls::new().with(|setup| setup.more(&format!("[tls]\nkey_isolation = {isolation}")));
            spoil(&tls.setup);
            let checked = std::process::Command::new(weir_test::weir::program())
                .args(["check", "-c"])
                .arg(tls.setup.write_toml())
                .output()
                .expect("weir check");
            let said = String::from_utf8_lossy(&checked.stderr).into_owned();
            assert!(!checked.status.success(), "{name}: {said}");
            let cause = words.last().expect("a cause");
            assert!(said.contains(cause), "{name}: {said}");
            let (status, said) = tls.setup.start_in_vain();
            assert!(!status.success());
            let plain = said.replace("[certificate.main] ", "certificate.main.");
            assert!(
                words.iter().all(|word| plain.contains(word)),
                "{name}: {said}"
            );
        }
    }
}

/// The name in the handshake is for the proxy's own connection, not for its client's.
#[test]
fn a_trusted_proxy_may_pass_on_requests_for_any_site() {
    let forwarded = [
        &["-H", "X-Forwarded-Host: other.test"][..],
        &["-H", "Forwarded: for=192.0.2.1;host=other.test;proto=https"],
    ];
    for (trusted, expected) in [("trusted = [\"127.0.0.0/8\"]", "other\n"), ("", "main\n")] {
        let (weir, authority) = Tls::new().with(|setup| setup.server(trusted)).start();
        for version in ["--http1.1", "--http2"] {
            for fields in forwarded {
                let words = [&[version], fields].concat();
                let got = curl(&weir, &authority, "main.test", "/", &words);
                let got = (got.status, got.text());
                assert_eq!(got, (200, expected), "{trusted} {words:?}");
            }
            // Requests of the proxy itself count as before.
            let words = [version, "-H", "Host: other.test"];
            let got = curl(&weir, &authority, "main.test", "/", &words);
            assert_eq!(got.status, 421, "{trusted} {version}");
        }
    }
}

/// The proxy has shown no certificate in its handshake, so it has none to pass on.
#[test]
fn a_trusted_proxy_gets_no_further_than_its_own_certificate() {
    let clients = Authority::new();
    let (weir, authority) = Tls::new()
        .with(|setup| {
            setup.server("trusted = [\"127.0.0.0/8\"]").site(&format!(
                "client_ca = \"{}\"\nclient_certificate = \"required\"",
                clients.file().display()
            ))
        })
        .start();
    for version in ["--http1.1", "--http2"] {
        let words = [version, "-H", "X-Forwarded-Host: main.test"];
        let got = curl(&weir, &authority, "other.test", "/", &words);
        assert_eq!(got.status, 421, "{version}");
    }
}

#[test]
fn the_log_and_templates_say_which_tls_a_connection_has() {
    let (weir, _) = Tls::new()
        .with(|setup| {
            setup.site(
                "set_headers = { X-Tls = \"${ssl_protocol} ${ssl_cipher} ${ssl_session_reused}\" }",
            )
        })
        .start();
    let file = weir.folder().join("ticket");
    let file = file.to_str().expect("UTF-8");
    for (version, protocol, cipher) in [
        ("-tls1_3", "TLSv1.3", "TLS_AES_128_GCM_SHA256"),
        ("-tls1_2", "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ] {
        for (which, is_reused, word) in [("-sess_out", false, "."), ("-sess_in", true, "r")] {
            let uri = format!("/?{version}{which}");
            let words = ["-servername", "main.test", version, which, file];
            let request =
                format!("GET {uri} HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n\r\n");
            let output = s_client(weir.address(), &words, &request);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let header = format!("\r\nX-Tls: {protocol} {cipher} {word}\r\n");
            assert!(text.contains(&header), "{header}: {text}");
            let line = weir.logged(&uri);
            assert_eq!(line["ssl_protocol"], protocol, "{line}");
            assert_eq!(line["ssl_cipher"], cipher, "{line}");
            assert_eq!(line["ssl_session_reused"], is_reused, "{line}");
            assert_eq!(line["ssl_server_name"], "main.test", "{line}");
        }
    }
}

/// Clients that prefer ChaCha20 have no instructions for AES. All others get AES-128, whatever order they name.
#[test]
fn the_cipher_is_chosen_in_one_order_unless_the_client_prefers_chacha20() {
    let (weir, _) = Tls::new().start();
    let [aes128, aes256, chacha20] = [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    ];
    let [old128, old256, old_chacha20] = [
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ];
    for (version, option, offered, chosen) in [
        (
            "-tls1_3",
            "-ciphersuites",
            vec![aes256, chacha20, aes128],
            aes128,
        ),
        ("-tls1_3", "-ciphersuites", vec![aes256, chacha20], aes256),
        (
            "-tls1_3",
            "-ciphersuites",
            vec![chacha20, aes256, aes128],
            chacha20,
        ),
        (
            "-tls1_2",
            "-cipher",
            vec![old256, old_chacha20, old128],
            old128,
        ),
        ("-tls1_2", "-cipher", vec![old256, old_chacha20], old256),
        (
            "-tls1_2",
            "-cipher",
            vec![old_chacha20, old128],
            old_chacha20,
        ),
    ] {
        let offered = offered.join(":");
        let text = said(weir.address(), "main.test", &[version, option, &offered]);
        let line = format!("Cipher is {chosen}");
        assert!(text.contains(&line), "{offered}: {text}");
    }
}

/// As nginx, which ignores the dot, too.
#[test]
fn a_name_in_the_handshake_may_end_with_a_dot() {
    let (weir, _) = Tls::new().start();
    for host in ["main.test.", "www.main.test."] {
        let text = said(weir.address(), host, &[]);
        assert!(text.contains("CN = main.test"), "{host}: {text}");
        assert!(text.contains("HTTP/1.1 200 "), "{host}: {text}");
    }
}
