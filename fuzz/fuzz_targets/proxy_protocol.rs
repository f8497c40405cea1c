//! The PROXY protocol: the first byte says how the others are cut.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let [cut, bytes @ ..] = data {
        weir_fuzz::clients::proxy_header(bytes, &[usize::from(*cut)]);
    }
});
