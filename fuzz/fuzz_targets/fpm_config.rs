//! php-fpm.conf: any bytes are refused with a reason, or they translate to settings of weir that stay the same when
//! they are printed and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Most bytes name no pool. After a valid pool they reach the checks and the translation, too.
    weir_fuzz::paper::look_at(bytes);
    let pool: &[u8] = b"[www]\nuser=shop\nlisten=9000\npm=static\npm.max_children=1\n";
    weir_fuzz::paper::look_at(&[pool, bytes].concat());
});
