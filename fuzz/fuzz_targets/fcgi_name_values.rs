//! FastCGI: bytes as name-value pairs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::fcgi::name_values(data));
