//! Values about clients: networks and other peers, rates, speeds.

use core::{num::NonZeroU64, time::Duration};

use crate::{
    model::{Peer, Rate},
    origin,
    scalar::{self, Checked, wrong},
};

/// An element of `trusted`, `allow` and `deny`.
pub(crate) fn peer(text: &str) -> Checked<Peer> {
    match text {
        "all" => Ok(Peer::All),
        "unix" | "unix:" => Ok(Peer::Unix),
        _ if text.starts_with("unix:") => wrong(
            format!("{text:?} has a path, but a client of a unix socket has no address"),
            "write \"unix:\" for all of them",
        ),
        text => origin::network(text).map(Peer::Network),
    }
}

/// `10/s burst 20`; empty: none.
pub(crate) fn rate(text: &str) -> Checked<Option<Rate>> {
    let mut words = text.split_ascii_whitespace();
    let Some(rate) = words.next() else {
        return Ok(None);
    };
    let bad = |what: String| {
        wrong(
            what,
            "for example \"10/s burst 20\", \"30/m\" or \"1000/h\"",
        )
    };
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number <= MOST);
    let Some((count, unit)) = rate.split_once('/') else {
        return bad(format!("{rate:?} is not a rate"));
    };
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return bad(format!("{unit:?} is not a unit of a rate: use s, m or h")),
    };
    let Some(count) = number(count).filter(|count| *count > 0) else {
        return bad(format!("{count:?} is not a number from 1 to {MOST}"));
    };
    let burst = match (words.next(), words.next(), words.next()) {
        (None, ..) => Some(count - 1),
        (Some("burst"), Some(burst), None) => number(burst),
        _ => None,
    };
    match burst {
        Some(burst) => Ok(Some(Rate {
            count,
            period: Duration::from_secs(seconds),
            burst,
        })),
        None => bad(format!(
            "after {rate:?} only `burst` and a number from 0 to {MOST} may follow"
        )),
    }
}

/// `5M/s`, in bytes a second; empty: no limit.
pub(crate) fn bandwidth(text: &str) -> Checked<Option<NonZeroU64>> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let bad = |what: String| wrong(what, "for example \"5M/s\" or \"200K/s\": bytes a second");
    let Some(size) = text.strip_suffix("/s") else {
        return bad(format!("{text:?} is not a speed"));
    };
    match scalar::size(size.trim_end()) {
        Ok(speed @ SLOWEST..) => Ok(NonZeroU64::new(speed)),
        Ok(_) => bad(format!(
            "{text:?} is too slow: at least {SLOWEST} bytes a second"
        )),
        Err(_) => bad(format!("{size:?} is not a size")),
    }
}

/// The slowest speed, bytes a second.
const SLOWEST: u64 = 64;

/// The greatest count and burst.
const MOST: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_sizes_in_a_second() {
        for (text, speed) in [
            ("5M/s", 5 << 20),
            (" 200K /s", 200 << 10),
            ("64/s", 64),
            ("", 0),
        ] {
            let read = bandwidth(text)
                .ok()
                .map(|speed| speed.map_or(0, NonZeroU64::get));
            assert_eq!(read, Some(speed), "{text}");
        }
        for text in ["5M", "5M/m", "/s", "0/s", "63/s", "-1/s", "fast/s"] {
            assert!(bandwidth(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_written_as_they_are_read() {
        for (text, shown) in [
            ("10/s burst 20", "10/s burst 20"),
            ("10/s", "10/s burst 9"),
            (" 1/h  burst  0 ", "1/h burst 0"),
            ("90/m", "90/m burst 89"),
        ] {
            let rate = rate(text).ok().flatten().unwrap();
            assert_eq!(rate.to_string(), shown);
        }
        assert!(matches!(rate(""), Ok(None)));
        for text in [
            "10",
            "10/d",
            "0/s",
            "-1/s",
            "10/s 20",
            "10/s burst",
            "10/s burst 2 3",
            "10/s burst -1",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
    }
}
