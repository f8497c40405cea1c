//! FastCGI: a sequence of operations of a client and an application.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::fcgi::conversation(data));
