//! HTTP/3: what a client sends on a stream of requests. The first byte says how it is cut, the second how large a head may be.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let [cut, most, bytes @ ..] = data {
        weir_http::h3::checks::request(bytes, &[usize::from(*cut)], u64::from(*most) * 16);
    }
});
