//! The kernel's answers about listening sockets: any packet, and the text with the counters.
#![no_main]

use weir_sys::{net_stat, sock_diag::reply};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut found = Vec::new();
    // The number of the request comes from the packet, so that its messages are read and not skipped.
    let sequence = data.get(8..12).and_then(|four| four.try_into().ok());
    let outcome = reply::read(data, sequence.map_or(0, u32::from_ne_bytes), &mut found);
    assert!(found.len() <= data.len() / 16);
    assert!(outcome.is_err() || data.is_empty() || data.len() >= 16);
    let _ = net_stat::parse(data);
});
