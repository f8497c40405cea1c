//! HPACK: heads that follow each other. The first byte says how long each is.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let [length, bytes @ ..] = data {
        let blocks: Vec<&[u8]> = bytes.chunks(usize::from(*length).max(1)).collect();
        weir_http::h2::checks::hpack(&blocks);
    }
});
