//! Calls: what is let through is the same host, port and path to another reader of URLs.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    // As in a request: METHOD TARGET, and on the next line what Host says.
    let (line, host) = match text.split_once('\n') {
        Some((line, host)) => (line, Some(host)),
        None => (text, None),
    };
    if let Some((method, target)) = line.split_once(' ') {
        weir_fuzz::egress::checks::call(method, target, host);
    }
});
