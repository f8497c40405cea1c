//! FastCGI: bytes from an application.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::fcgi::response(data));
