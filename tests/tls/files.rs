//! Files of certificates that change while weir serves.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use weir_test::authority::Identity;
use weir_test::{LIMIT, Weir, wait_until};

use crate::{Tls, curl, replace, said};

/// Whether new connections get the certificate with this name.
fn has(weir: &Weir, name: &str) -> bool {
    said(weir.address(), "main.test", &[]).contains(&format!("subject=CN = {name}"))
}

/// A certificate for main.test whose first name is another one, by which it is known.
fn another(tls: &Tls, name: &str) -> Identity {
    tls.authority
        .server(&[&format!("DNS:{name}"), "DNS:main.test"])
}

fn put(folder: &Path, identity: &Identity) {
    replace(&folder.join("main.pem"), &identity.cert);
    replace(&folder.join("main.key"), &identity.key);
}

#[test]
fn changed_files_are_used_within_a_second_and_no_request_fails() {
    for isolation in [true, false] {
        let tls =
            Tls::new().with(|setup| setup.more(&format!("[tls]\nkey_isolation = {isolation}")));
        let (one, two) = (another(&tls, "one.test"), another(&tls, "two.test"));
        let (weir, authority) = tls.start();
        let (ends, served) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU32::new(0)),
        );
        let failures: Vec<String> = thread::scope(|scope| {
            let loads: Vec<_> = (0..2)
                .map(|_| {
                    let (ends, served, weir) = (ends.clone(), served.clone(), &weir);
                    let file = authority.file();
                    scope.spawn(move || {
                        let mut failures = Vec::new();
                        while !ends.load(Relaxed) {
                            let got = by_file(weir, &file);
                            served.fetch_add(1, Relaxed);
                            if !got.is_empty() {
                                failures.push(got);
                            }
                        }
                        failures
                    })
                })
                .collect();
            let folder = weir.folder();
            for (identity, name) in [(&one, "one.test"), (&two, "two.test"), (&one, "one.test")] {
                put(folder, identity);
                let since = Instant::now();
                wait_until(name, || has(&weir, name));
                // On a busy machine the test's own check takes long. The limit is for weir's work.
                assert!(since.elapsed() < LIMIT / 2, "{name}: {:?}", since.elapsed());
            }
            ends.store(true, Relaxed);
            loads
                .into_iter()
                .flat_map(|load| load.join().expect("a client"))
                .collect()
        });
        assert!(
            served.load(Relaxed) > 0 && failures.is_empty(),
            "{failures:?}"
        );
    }
}

/// Empty: a request succeeds.
fn by_file(weir: &Weir, ca: &Path) -> String {
    let address = weir.address();
    let resolve = format!("main.test:{}:{}", address.port(), address.ip());
    let output = std::process::Command::new("curl")
        .args([
            "-sS",
            "--fail",
            "--max-time",
            "60",
            "--resolve",
            &resolve,
            "--cacert",
        ])
        .arg(ca)
        .arg(format!("https://main.test:{}/", address.port()))
        .output()
        .expect("curl");
    match output.status.success() {
        true => String::new(),
        false => String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_half_written_pair_changes_nothing_and_is_told_once() {
    for isolation in [true, false] {
        let tls =
            Tls::new().with(|setup| setup.more(&format!("[tls]\nkey_isolation = {isolation}")));
        let one = another(&tls, "one.test");
        let (weir, authority) = tls.start();
        replace(&weir.folder().join("main.pem"), &one.cert);
        weir.wait_for_error(&[
            "certificate.main",
            "not the key of the certificate",
            "stays in use",
        ]);
        assert!(has(&weir, "main.test"));
        assert_eq!(curl(&weir, &authority, "main.test", "/", &[]).status, 200);
        replace(&weir.folder().join("main.key"), &one.key);
        wait_until("the whole pair", || has(&weir, "one.test"));
        let told = weir.stderr().matches("stays in use").count();
        assert_eq!(told, 1, "{}", weir.stderr());
    }
}

#[test]
fn links_that_are_turned_to_other_files_count_as_changed() {
    let tls = Tls::new();
    let one = another(&tls, "one.test");
    let folder = tls.setup.folder().to_owned();
    // The folders are as certbot makes them: live/ has links to the files of the last renewal.
    for kind in ["pem", "key"] {
        let (link, first) = (
            folder.join(format!("main.{kind}")),
            folder.join(format!("archive1.{kind}")),
        );
        fs::rename(&link, &first).expect("rename");
        symlink(&first, &link).expect("symlink");
    }
    let (weir, _authority) = tls.start();
    assert!(has(&weir, "main.test"));
    for (kind, file) in [("pem", &one.cert), ("key", &one.key)] {
        let (link, second) = (
            folder.join(format!("main.{kind}")),
            folder.join(format!("archive2.{kind}")),
        );
        fs::copy(file, &second).expect("cp");
        let new = folder.join("new");
        symlink(&second, &new).expect("symlink");
        fs::rename(&new, &link).expect("rename");
    }
    wait_until("the files behind the links", || has(&weir, "one.test"));
}
