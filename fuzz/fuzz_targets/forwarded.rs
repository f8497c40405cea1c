//! `X-Forwarded-For` and `Forwarded`: four bytes of the address that a proxy appends, and what comes before it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((address, before)) = data.split_first_chunk::<4>() {
        weir_fuzz::clients::forwarded(before, (*address).into());
    }
});
