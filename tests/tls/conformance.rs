//! What scanners of TLS find: sslyze with Mozilla's profiles, and testssl.sh; and h3i, which sends what no client of HTTP/3 should.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use weir_test::built::target;
use weir_test::{Weir, is_at_full_length, written};

use crate::Tls;
use crate::http3_checks::site;

/// A weir on 127.0.0.1 for `main.test`, whose site sends the fields that scanners of sites look for.
fn scanned() -> (Weir, weir_test::authority::Authority) {
    let fields = "hsts = \"1y\"\nset_headers = { X-Content-Type-Options = \"nosniff\", X-Frame-Options = \"DENY\" }";
    Tls::new().with(|setup| setup.site(fields)).start()
}

/// A program of setup/python/requirements.txt.
pub(crate) fn python(program: &str) -> PathBuf {
    target().join("python/bin").join(program)
}

#[test]
fn sslyze_finds_mozillas_intermediate_profile_obeyed() {
    let (weir, authority) = scanned();
    let address = weir.address();
    let output = Command::new(python("sslyze"))
        .arg("--mozilla_config=intermediate")
        .arg("--certinfo_ca_file")
        .arg(authority.file())
        .arg(format!("main.test:{}{{{}}}", address.port(), address.ip()))
        .output()
        .expect("sslyze; setup/python.sh target installs it");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = format!("main.test:{}: OK - Compliant.", address.port());
    assert!(text.contains(&verdict), "{text}");
    assert!(!text.contains("VULNERABLE -"), "{text}");
}

/// It takes two minutes, so only `make conformance` runs it.
#[test]
fn testssl_finds_nothing_above_low() {
    if !is_at_full_length() {
        return;
    }
    let (weir, authority) = scanned();
    let address = weir.address();
    let findings = weir.folder().join("findings.json");
    let output = Command::new("testssl")
        .args([
            "--quiet",
            "--color",
            "0",
            "--warnings",
            "off",
            "--nodns",
            "none",
        ])
        .arg("--ip")
        .arg(address.ip().to_string())
        .arg("--add-ca")
        .arg(authority.file())
        .arg("--jsonfile")
        .arg(&findings)
        .arg(format!("main.test:{}", address.port()))
        .output()
        .expect("testssl; setup/install.sh conformance installs it");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: Vec<Value> = serde_json::from_str(&written(&findings)).expect("JSON");
    assert!(found.len() > 100, "{text}");
    let is_bad = |one: &&Value| {
        let severity = one["severity"].as_str().unwrap_or_default();
        // Findings about the certificate itself, which the tests have made: it is valid for 30 days, and has no
        // revocation list.
        let of_certificate = (one["id"].as_str()).is_some_and(|id| id.starts_with("cert_"));
        matches!(severity, "MEDIUM" | "HIGH" | "CRITICAL") && !of_certificate
    };
    let bad: Vec<&Value> = found.iter().filter(is_bad).collect();
    assert!(bad.is_empty(), "{bad:#?}\n{text}");
}

/// Its client is built with BoringSSL, which takes minutes, so only `make conformance` runs it.
#[test]
fn h3i_finds_nothing() {
    if !is_at_full_length() {
        return;
    }
    let (responder, weir, _, _) = site(4, "");
    let output = Command::new(target().join("h3i/debug/weir-h3i"))
        .args([&weir.address().to_string(), "main.test"])
        .output()
        .expect("weir-h3i; setup/conformance.sh builds it");
    let said = String::from_utf8_lossy(&output.stdout);
    eprintln!("{said}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    // Only one of its requests for a script is complete.
    assert_eq!(responder.uris().len(), 1);
}
