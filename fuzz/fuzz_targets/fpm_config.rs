//! php-fpm.conf: any bytes are refused with a reason, or have a meaning in weir's terms that survives being printed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Most bytes name no pool; behind a good one they meet the checks and the translation, too.
    weir_fuzz::paper::look_at(bytes);
    let pool: &[u8] = b"[www]\nuser=shop\nlisten=9000\npm=static\npm.max_children=1\n";
    weir_fuzz::paper::look_at(&[pool, bytes].concat());
});
