//! FastCGI: bytes from a client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::fcgi::request(data));
