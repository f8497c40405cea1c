//! The Date of answers, written once a second.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime},
};

use crate::clock;

struct Now {
    /// Until when ([`clock::now`]) the text is right.
    until: u64,
    text: [u8; LENGTH],
}

thread_local! {
    static NOW: RefCell<Now> = const { RefCell::new(Now { until: 0, text: [0; LENGTH] }) };
}

/// Appends the time of day in the form of RFC 9110 §5.6.7.
pub(super) fn put(out: &mut Vec<u8>) {
    NOW.with_borrow_mut(|now| {
        let turn = clock::now();
        if turn >= now.until {
            let time = SystemTime::now();
            let since = time.duration_since(SystemTime::UNIX_EPOCH);
            let fraction = since.map_or(0, |since| since.subsec_micros());
            let left = Duration::from_secs(1) - Duration::from_micros(fraction.into());
            now.until = turn + left.as_micros() as u64;
            let text = httpdate::fmt_http_date(time);
            if let Ok(text) = text.as_bytes().try_into() {
                now.text = text;
            }
        }
        out.extend_from_slice(&now.text);
    });
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
const LENGTH: usize = 29;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_now() {
        let mut out = Vec::new();
        put(&mut out);
        put(&mut out);
        assert_eq!(out[..LENGTH], out[LENGTH..][..LENGTH]);
        let said = httpdate::parse_http_date(std::str::from_utf8(&out[..LENGTH]).unwrap()).unwrap();
        let ago = SystemTime::now().duration_since(said).unwrap();
        assert!(ago < Duration::from_secs(60), "{ago:?}");
    }
}
