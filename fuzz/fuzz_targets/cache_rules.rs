//! The rules of the cache: two bytes with policy and status, the fields of a request, an empty line, and the fields of the answer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((choice, heads)) = data.split_first_chunk::<2>() {
        let end = heads.windows(2).position(|bytes| bytes == b"\n\n");
        let end = end.unwrap_or(heads.len());
        let answer = heads.get(end + 2..).unwrap_or_default();
        weir_fuzz::cache::rules(*choice, &heads[..end], answer);
    }
});
