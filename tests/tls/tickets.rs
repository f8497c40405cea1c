//! Shorter handshakes of clients that come again: over a reload, another gateway and another keeper.

use rustix::process::Signal;
use weir_test::process::signal;
use weir_test::{Weir, wait_until};

use crate::{Tls, said};

/// Connects and keeps the ticket in a file. Returns whether the handshake was a short one.
pub(crate) fn resumes(weir: &Weir, first: bool, version: &str) -> bool {
    let file = weir.folder().join(format!("ticket{version}"));
    let file = file.to_str().expect("UTF-8");
    let which = if first { "-sess_out" } else { "-sess_in" };
    let text = said(weir.address(), "main.test", &[version, which, file]);
    assert!(text.contains("HTTP/1.1 200"), "{text}");
    text.contains("Reused, TLSv1")
}

#[test]
fn tickets_outlive_a_reload_and_the_deaths_of_gateway_and_keeper() {
    let (weir, _) = Tls::new().start();
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(!resumes(&weir, true, version));
        assert!(resumes(&weir, false, version), "{version}");
    }
    let check = |when: &str| {
        for version in ["-tls1_2", "-tls1_3"] {
            assert!(resumes(&weir, false, version), "{version} after {when}");
        }
    };
    let gateway = weir.gateway();
    weir.signal(Signal::HUP);
    wait_until("another gateway", || !gateway.runs());
    check("a reload");
    let gateway = weir.gateway();
    signal(gateway.pid, Signal::KILL);
    weir.wait_for_error(&["the gateway accepts connections again"]);
    check("the death of the gateway");
    signal(weir.keeper().pid, Signal::KILL);
    weir.wait_for_error(&["has the private keys again"]);
    check("the death of the keeper");
}

#[test]
fn handshakes_are_counted() {
    let (weir, _) = Tls::new().with(|setup| setup.admin()).start();
    assert!(!resumes(&weir, true, "-tls1_3"));
    assert!(resumes(&weir, false, "-tls1_3"));
    said(weir.address(), "unknown.test", &[]);
    let metrics = || weir.admin_get("/metrics").1;
    for (result, count) in [("full", 1), ("resumed", 1), ("failed", 1)] {
        let line = format!("weir_tls_handshakes_total{{result=\"{result}\"}} {count}");
        wait_until(&line, || metrics().contains(&line));
    }
}
