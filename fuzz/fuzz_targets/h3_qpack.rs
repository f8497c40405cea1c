//! QPACK: a limit in two bytes, and then a head.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let [low, high, block @ ..] = data {
        let most = u64::from(u16::from_be_bytes([*high, *low]));
        weir_http::h3::checks::qpack(block, most);
    }
});
