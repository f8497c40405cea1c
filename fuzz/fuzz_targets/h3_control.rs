//! HTTP/3: the streams of one direction that a client opens. The first byte says how they are cut, and the second where the second begins.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let [cut, at, bytes @ ..] = data {
        let (first, second) = bytes.split_at(usize::from(*at).min(bytes.len()));
        weir_http::h3::checks::one_ways(&[first, second], &[usize::from(*cut)]);
    }
});
