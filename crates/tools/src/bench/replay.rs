//! Reads the requests of an access log, with their times.
//!
//! Lines are combined or common, as nginx, Apache and weir write them, or JSON objects with the keys of weir and most
//! nginx configurations. Servers write a line when the request has ended: if the log has the duration, it is
//! subtracted. If times are whole seconds, the requests of a second are distributed evenly over it, in the order of
//! the log. Invalid lines, and requests that change something on the server, are skipped and counted.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
    time::Duration,
};

use http::{Method, Uri};
use jiff::{Timestamp, Zoned};
use serde_json::Value;

use super::work::Shot;

/// The content of a log.
#[derive(Debug, Default)]
pub struct Replay {
    /// Different requests.
    pub shots: Vec<Shot>,
    /// The time since the first request, and which request; in order.
    pub log: Vec<(Duration, u32)>,
    /// Invalid lines, or lines without a request.
    unreadable: u64,
    /// Requests that change something.
    unsafe_methods: u64,
}

/// A parsed line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    method: String,
    uri: String,
    /// When it arrived, µs since 1970.
    time: i64,
    /// The time has only whole seconds.
    coarse: bool,
}

/// Reads a log; `all`: including requests that change something.
///
/// # Errors
/// If it cannot be read, or has nothing to send.
pub fn read(file: &Path, all: bool) -> Result<Replay, String> {
    let wrong = |why: &str| format!("--replay {}: {why}", file.display());
    let opened = File::open(file).map_err(|error| wrong(&error.to_string()))?;
    let replay = of(BufReader::new(opened), all).map_err(|why| wrong(&why))?;
    if replay.log.is_empty() {
        return Err(wrong(&format!(
            "there is nothing to send: {} lines are not in combined, common or JSON format, {} requests would change data",
            replay.unreadable, replay.unsafe_methods
        )));
    }
    Ok(replay)
}

impl Replay {
    /// Notes for the reader of a report.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.unreadable > 0 {
            notes.push(format!(
                "{} lines of the log were skipped: they have no request",
                self.unreadable
            ));
        }
        if self.unsafe_methods > 0 {
            notes.push(format!(
                "{} requests of the log were skipped: they change data (send them with --unsafe-methods)",
                self.unsafe_methods
            ));
        }
        notes
    }
}

fn of(reader: impl BufRead, all: bool) -> Result<Replay, String> {
    let mut replay = Replay::default();
    let mut known: HashMap<(Method, String), u32> = HashMap::new();
    let mut times: Vec<(i64, bool, u32)> = Vec::new();
    let mut reader = reader;
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut bytes);
        if read.map_err(|error| error.to_string())? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        if text.trim().is_empty() {
            continue;
        }
        let Some((line, method, uri)) = line(text.trim_end()).and_then(|line| {
            let method: Method = line.method.parse().ok()?;
            let uri = path(&line.uri)?;
            (method != Method::CONNECT).then_some((line, method, uri))
        }) else {
            replay.unreadable += 1;
            continue;
        };
        if !all && !method.is_safe() {
            replay.unsafe_methods += 1;
            continue;
        }
        if times.len() >= MOST {
            return Err(format!("it has more than {MOST} requests; split it"));
        }
        let next = u32::try_from(replay.shots.len()).unwrap_or(u32::MAX);
        let which = *known
            .entry((method.clone(), line.uri.clone()))
            .or_insert(next);
        if which == next {
            replay.shots.push(Shot { method, uri });
        }
        times.push((line.time, line.coarse, which));
    }
    replay.log = spread(times);
    Ok(replay)
}

/// In order, relative to the first one; requests with only a second are distributed over that second.
fn spread(mut times: Vec<(i64, bool, u32)>) -> Vec<(Duration, u32)> {
    // A stable sort: equal times keep the order of the log.
    times.sort_by_key(|(time, _, _)| *time);
    let Some((first, _, _)) = times.first().copied() else {
        return Vec::new();
    };
    let mut log = Vec::with_capacity(times.len());
    for same in times.chunk_by(|(a, _, _), (b, _, _)| a == b) {
        for (index, (time, coarse, which)) in same.iter().enumerate() {
            let since = u64::try_from(time - first).unwrap_or(0);
            let within = match coarse {
                true => SECOND * index as u64 / same.len() as u64,
                false => 0,
            };
            log.push((Duration::from_micros(since + within), *which));
        }
    }
    log.sort_by_key(|(at, _)| *at);
    log
}

fn line(text: &str) -> Option<Line> {
    match text.starts_with('{') {
        true => json(text),
        false => combined(text),
    }
}

/// `address - user [20/Nov/2026:18:14:00 +0000] "GET /path HTTP/1.1" 200 …`
fn combined(text: &str) -> Option<Line> {
    let (_, rest) = text.split_once(" [")?;
    let (stamp, rest) = rest.split_once("] \"")?;
    let time = Zoned::strptime("%d/%b/%Y:%H:%M:%S %z", stamp).ok()?;
    let (method, uri) = request(&quoted(rest))?;
    Some(Line {
        method,
        uri,
        time: time.timestamp().as_microsecond(),
        coarse: true,
    })
}

/// The text before the closing quote, with the escapes of nginx, Apache and weir decoded.
fn quoted(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => break,
            b'\\' => match rest.next() {
                Some(b'x') => {
                    let digits = [rest.next(), rest.next()]
                        .map(|digit| digit.and_then(|digit| char::from(digit).to_digit(16)));
                    if let [Some(high), Some(low)] = digits {
                        bytes.extend(u8::try_from(high * 16 + low));
                    }
                }
                Some(other) => bytes.push(other),
                None => break,
            },
            byte => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `GET /path HTTP/1.1`
fn request(text: &str) -> Option<(String, String)> {
    let mut words = text.split(' ');
    let (method, uri, protocol) = (words.next()?, words.next()?, words.next());
    let known = protocol.is_none_or(|protocol| protocol.starts_with("HTTP/"));
    (known && words.next().is_none()).then(|| (method.to_owned(), uri.to_owned()))
}

fn json(text: &str) -> Option<Line> {
    let object: Value = serde_json::from_str(text).ok()?;
    let word = |names: &[&str]| names.iter().find_map(|name| object[name].as_str());
    // Some logs write numbers as strings.
    let number = |names: &[&str]| {
        names.iter().find_map(|name| {
            let value = &object[name];
            value.as_f64().or_else(|| value.as_str()?.parse().ok())
        })
    };
    let (method, uri) = match (
        word(&["method", "request_method"]),
        word(&["uri", "request_uri", "url"]),
    ) {
        (Some(method), Some(uri)) => (method.to_owned(), uri.to_owned()),
        _ => request(word(&["request"])?)?,
    };
    let (end, coarse) = match word(&[
        "time_iso",
        "time_iso8601",
        "timestamp",
        "time",
        "@timestamp",
    ]) {
        Some(stamp) => {
            let time: Timestamp = stamp.parse().ok()?;
            (time.as_microsecond(), !stamp.contains('.'))
        }
        None => match word(&["time_local"]) {
            Some(stamp) => {
                let time = Zoned::strptime("%d/%b/%Y:%H:%M:%S %z", stamp).ok()?;
                (time.timestamp().as_microsecond(), true)
            }
            None => ((number(&["msec"])? * 1e6) as i64, false),
        },
    };
    let took = match coarse {
        true => None,
        false => number(&["time_total", "request_time"]),
    };
    let took = took.filter(|seconds| (0.0..=LONGEST_REQUEST).contains(seconds));
    Some(Line {
        method,
        uri,
        time: end - took.map_or(0, |seconds| (seconds * 1e6) as i64),
        coarse,
    })
}

/// The path, without the host of a proxy request; `None`: it cannot be sent.
fn path(text: &str) -> Option<Uri> {
    let uri: Uri = text.parse().ok()?;
    let path = uri.path_and_query()?;
    path.as_str()
        .starts_with('/')
        .then(|| Uri::from(path.clone()))
}

/// Maximum number of requests: 24 bytes each, and each text once.
const MOST: usize = 20_000_000;

/// Maximum length of a line, bytes; a longer one is cut, and the rest is an invalid line.
const LONGEST_LINE: u64 = 256 << 10;

/// Maximum duration of a request, seconds.
const LONGEST_REQUEST: f64 = 86_400.0;

/// In µs.
const SECOND: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, all: bool) -> Replay {
        of(text.as_bytes(), all).unwrap()
    }

    fn sent(replay: &Replay) -> Vec<(u64, String)> {
        let one = |(at, which): &(Duration, u32)| {
            let shot = &replay.shots[*which as usize];
            (
                at.as_micros() as u64,
                format!("{} {}", shot.method, shot.uri),
            )
        };
        replay.log.iter().map(one).collect()
    }

    #[test]
    fn combined_and_common_lines_are_spread_over_their_second() {
        let replay = read(
            "127.0.0.1 - - [20/Nov/2026:18:14:00 +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"x\"\n\
             127.0.0.1 - u [20/Nov/2026:19:14:00 +0100] \"GET /b?c HTTP/1.0\" 200 5\n\
             127.0.0.1 - - [20/Nov/2026:18:14:02 +0000] \"HEAD /a HTTP/2.0\" 200 5 \"-\" \"x\"\n",
            false,
        );
        let expected = [(0, "GET /a"), (500_000, "GET /b?c"), (2_000_000, "HEAD /a")];
        assert_eq!(
            sent(&replay),
            expected.map(|(at, what)| (at, what.to_owned()))
        );
        assert!(replay.notes().is_empty());
    }

    #[test]
    fn json_lines_say_when_a_request_came() {
        let replay = read(
            "{\"time_iso\":\"2026-11-20T18:14:01.500+00:00\",\"method\":\"GET\",\"uri\":\"/slow\",\"time_total\":1.25}\n\
             {\"time_iso8601\":\"2026-11-20T18:14:00.500Z\",\"request\":\"GET /quick HTTP/1.1\",\"request_time\":\"0.250\"}\n\
             {\"msec\":1795198440.750,\"request_method\":\"GET\",\"request_uri\":\"/m\"}\n",
            false,
        );
        let expected = [(0, "GET /slow"), (0, "GET /quick"), (500_000, "GET /m")];
        assert_eq!(
            sent(&replay),
            expected.map(|(at, what)| (at, what.to_owned()))
        );
    }

    #[test]
    fn what_changes_something_needs_a_word() {
        let text = "a - - [20/Nov/2026:18:14:00 +0000] \"POST /a HTTP/1.1\" 200 5\n\
                    a - - [20/Nov/2026:18:14:00 +0000] \"GET /b HTTP/1.1\" 200 5\n";
        let some = read(text, false);
        assert_eq!(some.log.len(), 1);
        assert!(some.notes()[0].contains("1 requests"), "{:?}", some.notes());
        assert_eq!(read(text, true).log.len(), 2);
    }

    #[test]
    fn what_is_no_request_is_passed_over() {
        for text in [
            "nonsense",
            "a - - [20/Nov/2026:18:14:00 +0000] \"-\" 400 0",
            "a - - [20/Nov/2026:18:14:00 +0000] \"\\x16\\x03\\x01\" 400 0",
            "a - - [yesterday] \"GET / HTTP/1.1\" 200 0",
            "a - - [20/Nov/2026:18:14:00 +0000] \"CONNECT a:1 HTTP/1.1\" 400 0",
            "{\"uri\":\"/a\"}",
            "{broken",
        ] {
            let replay = read(text, true);
            assert_eq!((replay.unreadable, replay.log.len()), (1, 0), "{text}");
        }
    }

    #[test]
    fn escapes_are_turned_back_and_hosts_left_out() {
        let replay = read(
            "a - - [20/Nov/2026:18:14:00 +0000] \"GET /a\\x22b\\\\ HTTP/1.1\" 200 5\n\
             a - - [20/Nov/2026:18:14:00 +0000] \"GET http://h/x?y HTTP/1.1\" 200 5\n",
            false,
        );
        assert!(sent(&replay).iter().any(|(_, what)| what == "GET /x?y"));
    }

    #[test]
    fn an_unreadable_file_is_told() {
        assert!(
            super::read(Path::new("/no/such.log"), false)
                .unwrap_err()
                .contains("/no/such.log")
        );
    }

    proptest! {
        #[test]
        fn anything_may_stand_in_a_log(text in "\\PC*\n?.*") {
            let replay = read(&text, true);
            prop_assert!(replay.log.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        }

        #[test]
        fn nearly_lines_do_not_panic(
            user in "[ -~]{0,10}", stamp in "[0-9A-Za-z/: +]{0,30}", request in "[ -~]{0,40}", key in "[a-z_]{0,12}"
        ) {
            read(&format!("{user} - - [{stamp}] \"{request}\" 200 5"), true);
            read(&format!("{{\"{key}\":\"{stamp}\",\"time_iso\":\"{stamp}\",\"request\":\"{}\"}}", request.replace(['"', '\\'], "")), true);
        }

        #[test]
        fn every_request_of_a_log_comes_once_and_in_order(times in proptest::collection::vec(0_u32..5, 1..50)) {
            let text: String = times
                .iter()
                .enumerate()
                .map(|(number, second)| format!("a - - [20/Nov/2026:18:14:0{second} +0000] \"GET /{number} HTTP/1.1\" 200 5\n"))
                .collect();
            let replay = read(&text, false);
            prop_assert_eq!(replay.log.len(), times.len());
            let first = *times.iter().min().unwrap();
            for (at, which) in &replay.log {
                let number: usize = replay.shots[*which as usize].uri.path()[1..].parse().unwrap();
                prop_assert_eq!(at.as_secs(), u64::from(times[number] - first));
            }
        }
    }
}
