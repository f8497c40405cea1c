//! HTTP/1: bytes from a client, and from a server.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::http1::any(data));
