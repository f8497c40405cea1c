//! Files of a cache's folder. The first byte says which one, and whether its checks are made to fit.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let [which, bytes @ ..] = data {
        let is_right = which & 1 == 1;
        match which >> 1 & 3 {
            0 => weir_cache::disk::checks::index(bytes, is_right),
            1 => weir_cache::disk::checks::purges(bytes, is_right),
            _ => weir_cache::disk::checks::record(bytes, is_right),
        }
    }
});
