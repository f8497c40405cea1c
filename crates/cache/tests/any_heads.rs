//! The checks of the fuzz target `cache_rules`, on heads that are put together from lines of which some matter, and on any bytes.

#[allow(unreachable_pub, reason = "shared with the fuzz targets")]
mod checks;

use proptest::{collection::vec, prelude::*, sample::select};

const LINES: &[&str] = &[
    "Authorization: Basic x",
    "Cookie: s=1",
    "Range: bytes=1-5",
    "If-Range: \"1\"",
    "If-None-Match: W/\"1\"",
    "Cache-Control: max-stale, min-fresh=3",
    "Set-Cookie: s=1",
    "Cache-Control: private",
    "Cache-Control: PRIVATE , max-age=60",
    "Cache-Control: private=\"x\", no-cache=\"y\", max-age=60",
    "Cache-Control: no-store",
    "Cache-Control: public, max-age=60",
    "Cache-Control: s-maxage=60, stale-if-error=60",
    "Cache-Control: max-age=60, must-revalidate",
    "Cache-Control: x=\"",
    "CDN-Cache-Control: max-age=60",
    "CDN-Cache-Control: private",
    "CDN-Cache-Control: &",
    "Expires: Thu, 19 Nov 2099 08:52:00 GMT",
    "Date: Sun, 22 Nov 2026 10:00:00 GMT",
    "Age: 7",
    "ETag: \"1\"",
    "Last-Modified: Sun, 22 Nov 2026 10:00:00 GMT",
    "Vary: Accept-Encoding, Cookie",
    "Vary: *",
    "Connection: x-a, etag",
    "X-A: 1",
    "Content-Type: text/html",
];

fn head() -> impl Strategy<Value = String> {
    let lines = vec(select(LINES), 0..8);
    lines.prop_map(|lines| lines.iter().map(|line| format!("{line}\r\n")).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_of_anybody_is_kept_for_others(choice: [u8; 2], request in head(), answer in head()) {
        checks::rules(choice, request.as_bytes(), answer.as_bytes());
    }

    #[test]
    fn any_bytes_are_heads(choice: [u8; 2], request in vec(any::<u8>(), 0..80), answer in vec(any::<u8>(), 0..80)) {
        checks::rules(choice, &request, &answer);
    }
}
