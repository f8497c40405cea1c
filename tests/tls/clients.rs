//! Certificates of clients.

use serde_json::Value;
use weir_test::authority::{Authority, Identity};
use weir_test::wait_until;

use crate::{Tls, curl, install, said};

/// A weir whose main site asks for certificates of the second authority.
fn asking(how: &str) -> (Tls, Authority) {
    let clients = Authority::new();
    let lines = format!(
        "client_ca = \"{}\"\nclient_certificate = \"{how}\"",
        clients.file().display()
    );
    (
        Tls::new().with_php().with(|setup| setup.site(&lines)),
        clients,
    )
}

fn words(client: &Identity) -> [String; 4] {
    let [cert, key] = [&client.cert, &client.key].map(|path| path.display().to_string());
    ["--cert".into(), cert, "--key".into(), key]
}

#[test]
fn a_required_certificate_is_checked_and_told_to_scripts() {
    let (tls, clients) = asking("required");
    let (weir, authority) = tls.start();
    let get = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        curl(&weir, &authority, "main.test", "/params.php", &words)
    };
    // curl can only tell the alert if it comes before curl notices that the connection is closed.
    wait_until("an alert that curl has seen", || {
        let got = get(&[]);
        assert_eq!(got.status, 0, "{}", got.error);
        got.error.contains("certificate required")
    });
    // One of somebody else.
    let stranger = Authority::new().client("anna.test");
    assert_eq!(get(&words(&stranger)).status, 0);
    let anna = clients.client("anna.test");
    let mut sent = words(&anna).to_vec();
    for forged in [
        "SSL-Client-Verify: FORGED",
        "X-SSL-Client-S-DN: CN=FORGED",
        "SSL-Client-S-DN: CN=FORGED",
    ] {
        sent.extend(["-H".into(), forged.into()]);
    }
    let got = get(&sent);
    assert_eq!(got.status, 200, "{}", got.error);
    assert!(!got.text().contains("FORGED"), "{}", got.text());
    let params: Value = serde_json::from_slice(&got.body).expect("JSON");
    assert_eq!(params["SSL_CLIENT_VERIFY"], "SUCCESS");
    assert_eq!(params["SSL_CLIENT_S_DN"], "CN=anna.test");
    let issuer = params["SSL_CLIENT_I_DN"].as_str().expect("an issuer");
    assert!(issuer.starts_with("CN=Authority "), "{issuer}");
    let shown = std::process::Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha1", "-serial", "-in"])
        .arg(&anna.cert)
        .output()
        .expect("openssl");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let value = |name: &str| {
        let line = shown.lines().find(|line| line.contains(name)).expect(name);
        line.split_once('=').expect("=").1.replace(':', "")
    };
    let fingerprint = params["SSL_CLIENT_FINGERPRINT"]
        .as_str()
        .expect("a fingerprint");
    assert_eq!(fingerprint, value("Fingerprint").to_lowercase());
    assert_eq!(params["SSL_CLIENT_M_SERIAL"], value("serial"));
}

/// Browsers show certificates by themselves, as they send cookies.
#[test]
fn what_another_site_asks_for_with_a_certificate_is_not_compressed() {
    let (tls, clients) = asking("optional");
    let page = "<p>A text.</p>".repeat(500);
    let tls = tls.with(|setup| setup.site("compress = true").file("page.html", page));
    let (weir, authority) = tls.start();
    let shown = words(&clients.client("anna.test"));
    for (site, certificate, is_compressed) in [
        ("cross-site", &shown[..], false),
        ("cross-site", &[], true),
        ("same-origin", &shown[..], true),
    ] {
        let site = format!("Sec-Fetch-Site: {site}");
        let mut words = vec!["-i", "-H", "Accept-Encoding: gzip", "-H", &site];
        words.extend(certificate.iter().map(String::as_str));
        let got = curl(&weir, &authority, "main.test", "/page.html", &words);
        let head = String::from_utf8_lossy(&got.body).to_ascii_lowercase();
        assert!(head.contains(" 200"), "{head}");
        assert_eq!(
            head.contains("content-encoding: gzip"),
            is_compressed,
            "{site} {certificate:?}"
        );
    }
}

#[test]
fn an_optional_certificate_may_be_missing_but_not_wrong() {
    let (tls, clients) = asking("optional");
    let (weir, authority) = tls.start();
    let get = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        curl(&weir, &authority, "main.test", "/params.php", &words)
    };
    let verified = |words: &[String]| {
        let got = get(words);
        let params: Value = serde_json::from_slice(&got.body).unwrap_or_default();
        (
            got.status,
            params["SSL_CLIENT_VERIFY"].as_str().map(str::to_owned),
        )
    };
    assert_eq!(verified(&[]), (200, Some("NONE".into())));
    let anna = clients.client("anna.test");
    assert_eq!(verified(&words(&anna)), (200, Some("SUCCESS".into())));
    let stranger = Authority::new().client("anna.test");
    assert_eq!(get(&words(&stranger)).status, 0);
    // Sites that request no certificate learn of none.
    let other = curl(&weir, &authority, "other.test", "/", &[]);
    assert_eq!(other.status, 200);
}

/// A connection that is closed before everything was read is reset, and the client might not get the alert: it sends its
/// request before it knows.
#[test]
fn a_client_that_is_refused_reads_why_although_it_has_sent_more() {
    let (tls, _clients) = asking("required");
    let (weir, authority) = tls.start();
    for _ in 0..12 {
        let got = curl(&weir, &authority, "main.test", "/params.php", &[]);
        assert!(got.error.contains("certificate required"), "{}", got.error);
    }
}

#[test]
fn a_trusted_proxy_over_tls_changes_the_address_and_nothing_that_scripts_learn_of_tls() {
    let (tls, clients) = asking("required");
    let tls = tls.with(|setup| setup.server("trusted = [\"127.0.0.0/8\"]"));
    let (weir, authority) = tls.start();
    let proxy = clients.client("proxy.test");
    let mut sent = words(&proxy).to_vec();
    for header in [
        "X-Forwarded-For: 192.0.2.1",
        "X-Forwarded-Proto: https",
        "SSL-Client-Verify: FORGED",
        "X-SSL-Client-S-DN: CN=FORGED",
    ] {
        sent.extend(["-H".into(), header.into()]);
    }
    let sent: Vec<&str> = sent.iter().map(String::as_str).collect();
    let got = curl(&weir, &authority, "main.test", "/params.php", &sent);
    assert_eq!(got.status, 200, "{}", got.error);
    assert!(!got.text().contains("FORGED"), "{}", got.text());
    let params: Value = serde_json::from_slice(&got.body).expect("JSON");
    assert_eq!(params["REMOTE_ADDR"], "192.0.2.1");
    assert_eq!(params["HTTPS"], "on");
    assert_eq!(params["SSL_CLIENT_VERIFY"], "SUCCESS");
    assert_eq!(params["SSL_CLIENT_S_DN"], "CN=proxy.test");
}

#[test]
fn a_connection_without_the_sites_certificate_does_not_reach_it_under_its_name() {
    let (tls, _clients) = asking("required");
    let (weir, authority) = tls.start();
    let got = curl(
        &weir,
        &authority,
        "other.test",
        "/params.php",
        &["-H", "Host: main.test"],
    );
    assert_eq!(got.status, 421);
    // A client that named no host in its handshake is refused, too.
    let got = curl(
        &weir,
        &authority,
        &weir.address().ip().to_string(),
        "/params.php",
        &["-H", "Host: main.test"],
    );
    assert_eq!(got.status, 421);
}

/// A ticket is bound to how its client was verified.
#[test]
fn a_ticket_of_one_site_does_not_replace_the_certificate_that_another_site_wants() {
    let (first, second) = (Authority::new(), Authority::new());
    let tls = Tls::new();
    let free = tls.authority.server(&["DNS:free.test"]);
    let (weir, _) = tls
        .with(|setup| {
            let asks =
                |authority: &Authority| format!("client_ca = \"{}\"\n", authority.file().display());
            let table = install(&setup, "free", &free);
            let root = setup.root();
            let site = format!(
                "[site.free]\nhosts = [\"free.test\"]\nroot = \"{}\"",
                root.display()
            );
            // The certificate that was added last is in the table of the other site.
            let of_other = asks(&second);
            let setup = setup.site(&asks(&first));
            setup.more(&of_other).more(&table).more(&site)
        })
        .start();
    let anna = first.client("anna.test");
    let [cert, key] = [&anna.cert, &anna.key].map(|path| path.display().to_string());
    for version in ["-tls1_2", "-tls1_3"] {
        let file = weir
            .folder()
            .join(format!("ticket{version}"))
            .display()
            .to_string();
        let with = |host: &str, more: &[&str]| {
            let words = [&[version, "-cert", &cert, "-key", &key][..], more].concat();
            said(weir.address(), host, &words)
        };
        let shown = with("main.test", &["-sess_out", &file]);
        assert!(shown.contains("HTTP/1.1 200 "), "{shown}");
        let again = with("main.test", &["-sess_in", &file]);
        assert!(
            again.contains("Reused, ") && again.contains("HTTP/1.1 200 "),
            "{again}"
        );
        let other = with("other.test", &["-sess_in", &file]);
        assert!(
            !other.contains("Reused, ") && !other.contains("HTTP/1.1"),
            "{other}"
        );
        // Nor does a ticket of a site that requests no certificate.
        let free = |host: &str, which: &str| said(weir.address(), host, &[version, which, &file]);
        let shown = free("free.test", "-sess_out");
        assert!(shown.contains("HTTP/1.1 200 "), "{shown}");
        let main = free("main.test", "-sess_in");
        assert!(
            !main.contains("Reused, ") && !main.contains("HTTP/1.1"),
            "{main}"
        );
    }
}
