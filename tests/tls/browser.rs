//! A browser at `main.test`, whose pages say what they got in `window.answer`.

use weir_test::Weir;
use weir_test::browser::Browser;

/// A page with this script.
pub(crate) fn page(script: &str) -> String {
    format!("<!doctype html><title>page</title><script>\n{script}</script>")
}

/// Opens a page of `main.test` in a browser with these arguments, and waits until its script has answered.
pub(crate) fn open(weir: &Weir, path: &str, arguments: &[&str]) -> Browser {
    let address = weir.address();
    let url = format!("https://main.test:{}{path}", address.port());
    let map = format!("--host-resolver-rules=MAP main.test {}", address.ip());
    let arguments = [&[map.as_str()], arguments].concat();
    let mut browser = Browser::open_with(weir.folder(), &url, &arguments);
    browser.wait_until("window.answer !== undefined");
    browser
}

/// An argument of a browser: no certificate is refused.
pub(crate) const ANY_CERTIFICATE: &str = "--ignore-certificate-errors";

/// What a page knows of the protocol that it came by.
pub(crate) const PROTOCOL: &str = "performance.getEntriesByType('navigation')[0].nextHopProtocol";
