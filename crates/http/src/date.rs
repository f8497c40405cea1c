//! The Date of answers, written once a second.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime},
};

use weir_observe::clock;

struct Now {
    /// Until when ([`clock::now`]) the line is right.
    until: u64,
    line: [u8; LENGTH],
}

thread_local! {
    static NOW: RefCell<Now> = const { RefCell::new(Now { until: 0, line: [0; LENGTH] }) };
}

/// Appends the line of the Date field (RFC 9110 §6.6.1).
pub(super) fn put(out: &mut Vec<u8>) {
    with_line(|line| out.extend_from_slice(line));
}

/// Gives the value of that field.
pub(super) fn with_value<T>(act: impl FnOnce(&[u8]) -> T) -> T {
    with_line(|line| act(line[NAME.len()..].trim_ascii_end()))
}

fn with_line<T>(act: impl FnOnce(&[u8; LENGTH]) -> T) -> T {
    NOW.with_borrow_mut(|now| {
        let turn = clock::now();
        if turn >= now.until {
            let time = SystemTime::now();
            let since = time.duration_since(SystemTime::UNIX_EPOCH);
            let fraction = since.map_or(0, |since| since.subsec_micros());
            let left = Duration::from_secs(1) - Duration::from_micros(fraction.into());
            now.until = turn + left.as_micros() as u64;
            let text = httpdate::fmt_http_date(time);
            let line = format!("Date: {text}\r\n");
            if let Ok(line) = line.as_bytes().try_into() {
                now.line = line;
            }
        }
        act(&now.line)
    })
}

const NAME: &str = "Date: ";

const LENGTH: usize = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n".len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_now() {
        let mut out = Vec::new();
        put(&mut out);
        put(&mut out);
        assert_eq!(out[..LENGTH], out[LENGTH..][..LENGTH]);
        let line = std::str::from_utf8(&out[..LENGTH]).unwrap();
        let text = line.strip_prefix(NAME).unwrap().trim_end();
        with_value(|value| assert_eq!(value, text.as_bytes()));
        let said = httpdate::parse_http_date(text).unwrap();
        let ago = SystemTime::now().duration_since(said).unwrap();
        assert!(ago < Duration::from_secs(60), "{ago:?}");
    }
}
