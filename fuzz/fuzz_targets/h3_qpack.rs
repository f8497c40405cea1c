//! QPACK: a head.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_http::h3::checks::qpack(data));
