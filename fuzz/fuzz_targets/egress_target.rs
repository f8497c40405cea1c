//! Calls: if a call is allowed, another reader of URLs finds the same host, port and path in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    // As in a request: METHOD TARGET, and on the next line the value of Host.
    let (line, host) = match text.split_once('\n') {
        Some((line, host)) => (line, Some(host)),
        None => (text, None),
    };
    if let Some((method, target)) = line.split_once(' ') {
        weir_egress::checks::call(method, target, host);
    }
});
