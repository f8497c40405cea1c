//! HTTP/2: a connection. The first byte says how it is cut, the second whether the rest is bytes, or frames of so many bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let [cut, length, bytes @ ..] = data {
        let bytes = match *length {
            0 => bytes.to_vec(),
            length => bytes
                .chunks(usize::from(length))
                .flat_map(weir_http::h2::checks::framed)
                .collect(),
        };
        weir_http::h2::checks::connection(&bytes, &[usize::from(*cut).max(1)]);
    }
});
