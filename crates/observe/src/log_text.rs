//! The building blocks of all logs: time stamps, escaping, numbers.
//!
//! Everything is appended to the caller's byte buffer, so that a line is made without allocating. Values from outside
//! go through one of the escapes here, so that no client or worker can end a line, forge another one, or send control
//! sequences to a terminal. [`crate::log_sink`] writes the lines.

use std::cell::RefCell;
use std::fmt;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The worker that answered a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker<'a> {
    /// A process that weir runs.
    Pid(u32),
    /// A worker that weir does not start: its server's address as configured.
    Server(&'a str),
}

impl fmt::Display for Worker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => pid.fmt(f),
            Self::Server(address) => f.write_str(address),
        }
    }
}

/// Reads the local time zone (TZ, /etc/localtime) once for the whole process. It must be called before a chroot,
/// where the zone's file does not exist; otherwise the first local time stamp does it.
pub fn load_time_zone() {
    time_zone();
}

/// `20/Nov/2026:12:14:00 +0100`: local, as Apache and nginx write it in the combined format.
pub fn put_time_combined(time: SystemTime, out: &mut Vec<u8>) {
    with_stamp(time, |stamp, _| {
        out.extend_from_slice(stamp.combined.as_bytes())
    });
}

/// `2026-11-20T12:14:00.123+01:00`: local, RFC 3339 with milliseconds.
pub fn put_time_iso(time: SystemTime, out: &mut Vec<u8>) {
    with_stamp(time, |stamp, micros| {
        out.extend_from_slice(stamp.iso.as_bytes());
        put_fraction::<3>(micros / 1_000, out);
        out.extend_from_slice(stamp.offset.as_bytes());
    });
}

/// `2026-11-20T11:14:00.123Z`: RFC 3339 with milliseconds, UTC.
pub fn put_time_utc(time: SystemTime, out: &mut Vec<u8>) {
    with_stamp(time, |stamp, micros| {
        out.extend_from_slice(stamp.utc.as_bytes());
        put_fraction::<3>(micros / 1_000, out);
        out.push(b'Z');
    });
}

/// `12:14:00.123456`: local time of day with microseconds.
pub(crate) fn put_clock(time: SystemTime, out: &mut Vec<u8>) {
    with_stamp(time, |stamp, micros| {
        out.extend_from_slice(stamp.clock.as_bytes());
        put_fraction::<6>(micros, out);
    });
}

/// Local time in a format of strftime(3), in the C locale; `-` if the format is invalid.
pub fn put_time_formatted(time: SystemTime, format: &str, out: &mut Vec<u8>) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = Timestamp::from_second(since.as_secs() as i64).unwrap_or_default();
    let local = time.to_zoned(time_zone().clone());
    match jiff::fmt::strtime::format(format, &local) {
        Ok(text) => out.extend_from_slice(text.as_bytes()),
        Err(_) => out.push(b'-'),
    }
}

/// `20-Nov-2026 12:14:00`, and `.123456` with `micros`: local, as PHP writes it in its logs.
pub fn put_time_php(time: SystemTime, micros: bool, out: &mut Vec<u8>) {
    with_stamp(time, |stamp, fraction| {
        out.extend_from_slice(stamp.php.as_bytes());
        if micros {
            put_fraction::<6>(fraction, out);
        }
    });
}

/// `Nov 20 12:14:00`: local, as syslog(3) writes it (RFC 3164 §4.1.2).
pub(crate) fn put_time_syslog(time: SystemTime, out: &mut Vec<u8>) {
    with_stamp(time, |stamp, _| {
        out.extend_from_slice(stamp.syslog.as_bytes())
    });
}

/// A decimal number.
pub fn put_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A decimal number that may be negative.
pub(crate) fn put_signed(number: i16, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Microseconds as seconds with three decimals, truncated: `0.012`.
pub fn put_seconds_millis(micros: u64, out: &mut Vec<u8>) {
    put_number(micros / 1_000_000, out);
    put_fraction::<3>((micros % 1_000_000 / 1_000) as u32, out);
}

/// Microseconds as seconds with six decimals: `0.012345`.
pub fn put_seconds_micros(micros: u64, out: &mut Vec<u8>) {
    put_number(micros / 1_000_000, out);
    put_fraction::<6>((micros % 1_000_000) as u32, out);
}

/// A value in a line of the combined format or of a template, escaped as nginx does by default: quotes, backslashes
/// and all bytes outside of printable ASCII as `\xHH`.
pub fn put_escaped(value: &[u8], out: &mut Vec<u8>) {
    if !needs_escape(value) {
        out.extend_from_slice(value);
        return;
    }
    for &byte in value {
        if escaped_in_field(byte) {
            put_hex(byte, out);
        } else {
            out.push(byte);
        }
    }
}

/// Whether [`put_escaped`] would change `value`.
pub(crate) fn needs_escape(value: &[u8]) -> bool {
    let Some(last) = value.last_chunk::<8>() else {
        // The rest is shorter than a piece, so spaces fill the piece.
        let put = |bytes: u64, byte: &u8| bytes << 8 | u64::from(*byte);
        return has_escaped(value.iter().fold(u64::MAX / 255 * 0x20, put));
    };
    // The last piece and the one before it may have bytes in common.
    let (pieces, _) = value.as_chunks::<8>();
    let in_piece = |found, piece: &[u8; 8]| found | has_escaped(u64::from_le_bytes(*piece));
    pieces.iter().fold(in_piece(false, last), in_piece)
}

/// A JSON string with its quotes (RFC 8259 §7). Bytes that are not UTF-8 are written as the text `\xHH`, so that the
/// line is valid JSON whatever a client sends, and still shows the bytes. Control characters beyond ASCII are escaped
/// too, because logs are read on terminals.
pub fn put_json_string(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    if !needs_escape(value) {
        out.extend_from_slice(value);
    } else {
        for chunk in value.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '"' => out.extend_from_slice(b"\\\""),
                    '\\' => out.extend_from_slice(b"\\\\"),
                    '\n' => out.extend_from_slice(b"\\n"),
                    '\r' => out.extend_from_slice(b"\\r"),
                    '\t' => out.extend_from_slice(b"\\t"),
                    hidden if is_hidden(hidden) => {
                        let mut units = [0; 2];
                        for unit in hidden.encode_utf16(&mut units) {
                            out.extend_from_slice(b"\\u");
                            for shift in [12, 8, 4, 0] {
                                out.push(HEX[usize::from(*unit >> shift) & 0xf]);
                            }
                        }
                    }
                    other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            for &byte in chunk.invalid() {
                out.push(b'\\');
                put_hex(byte, out);
            }
        }
    }
    out.push(b'"');
}

/// Members of a JSON object after its first. Missing values are null, so that all lines of a log have the same keys.
pub struct JsonMembers<'a>(pub &'a mut Vec<u8>);

impl JsonMembers<'_> {
    /// Text, as [`put_json_string`].
    pub fn string(&mut self, key: &str, value: Option<&[u8]>) {
        self.put(key, value, put_json_string);
    }

    /// A number.
    pub fn number(&mut self, key: &str, value: Option<u64>) {
        self.put(key, value, put_number);
    }

    /// A number that may be negative.
    pub fn signed(&mut self, key: &str, value: Option<i16>) {
        self.put(key, value, put_signed);
    }

    /// A duration, as [`put_seconds_micros`].
    pub fn seconds(&mut self, key: &str, micros: Option<u64>) {
        self.put(key, micros, put_seconds_micros);
    }

    /// A boolean.
    pub fn flag(&mut self, key: &str, value: Option<bool>) {
        self.put(key, value, |value, out| {
            out.extend_from_slice(if value { b"true" } else { b"false" });
        });
    }

    fn put<T>(&mut self, key: &str, value: Option<T>, put: impl FnOnce(T, &mut Vec<u8>)) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
        match value {
            Some(value) => put(value, self.0),
            None => self.0.extend_from_slice(b"null"),
        }
    }
}

/// Whether a character changes the text around it instead of being visible: control characters, those that change the
/// direction of writing (Unicode Standard Annex 9), line separators, characters without width, and tags.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// JSON for a terminal: characters of its strings that are [`is_hidden`] are written as `\uHEX`. ASCII control
/// characters are already escaped in strings (RFC 8259 §7); between strings they are line ends.
pub fn json_shown(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c > '~' && is_hidden(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Text for a terminal: characters that are [`is_hidden`] are written as `\u{HEX}`.
pub fn shown(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut out, c| {
            match is_hidden(c) {
                true => out.extend(c.escape_default()),
                false => out.push(c),
            }
            out
        })
}

/// Free text for people: UTF-8 is kept; characters that are [`is_hidden`] and bytes that are not UTF-8 become `\xHH`.
pub fn put_message(text: &[u8], out: &mut Vec<u8>) {
    if text
        .iter()
        .fold(true, |plain, &byte| plain & (0x20..0x7f).contains(&byte))
    {
        out.extend_from_slice(text);
        return;
    }
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            if character.is_control() {
                // U+0080 to U+009F are control characters as well; their code points fit into a byte.
                put_hex(character as u32 as u8, out);
            } else if is_hidden(character) {
                bytes.iter().for_each(|&byte| put_hex(byte, out));
            } else {
                out.extend_from_slice(bytes);
            }
        }
        for &byte in chunk.invalid() {
            put_hex(byte, out);
        }
    }
}

/// The value of `key=value`: unchanged if its end is clear to every reader, otherwise quoted.
pub fn put_value(value: &[u8], out: &mut Vec<u8>) {
    let plain = |&byte: &u8| byte > b' ' && byte < 0x7f && !matches!(byte, b'"' | b'\\' | b'=');
    if !value.is_empty() && value.iter().all(plain) {
        out.extend_from_slice(value);
        return;
    }
    out.push(b'"');
    for piece in value.split_inclusive(|&byte| matches!(byte, b'"' | b'\\')) {
        let (text, special) = match piece.last() {
            Some(&last @ (b'"' | b'\\')) => (&piece[..piece.len() - 1], Some(last)),
            _ => (piece, None),
        };
        put_message(text, out);
        if let Some(special) = special {
            out.extend_from_slice(&[b'\\', special]);
        }
    }
    out.push(b'"');
}

/// Something formatted, appended as [`put_message`] does.
pub fn put_formatted(text: fmt::Arguments<'_>, out: &mut Vec<u8>) {
    struct Messages<'a>(&'a mut Vec<u8>);
    impl fmt::Write for Messages<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            put_message(text.as_bytes(), self.0);
            Ok(())
        }
    }
    // This can fail only in a broken Display; what was written until then is kept.
    let _ = fmt::write(&mut Messages(out), text);
}

/// Whether one of eight bytes is [`escaped_in_field`].
fn has_escaped(bytes: u64) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // The highest bit of each byte tells whether it is zero, or below 0x20; exact up to the first one that is.
    let zero = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes;
    let control = bytes.wrapping_sub(ONES * 0x20) & !bytes;
    let of = |byte: u8| zero(bytes ^ (ONES * u64::from(byte)));
    (bytes | control | of(0x7f) | of(b'"') | of(b'\\')) & HIGH != 0
}

fn escaped_in_field(byte: u8) -> bool {
    !(0x20..=0x7e).contains(&byte) | (byte == b'"') | (byte == b'\\')
}

fn put_hex(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[
        b'\\',
        b'x',
        HEX[usize::from(byte >> 4)],
        HEX[usize::from(byte & 0xf)],
    ]);
}

/// A decimal point and `value` with leading zeros: so many digits, 6 at most.
fn put_fraction<const DIGITS: usize>(mut value: u32, out: &mut Vec<u8>) {
    let mut text = *b".000000";
    for digit in text[1..=DIGITS].iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&text[..=DIGITS]);
}

/// All formats of one second, made once per second and thread. The rules of the time zone are applied then, so that a
/// change to or from summer time is seen at once.
struct Stamp {
    second: i64,
    combined: String,
    iso: String,
    offset: String,
    utc: String,
    clock: String,
    php: String,
    syslog: String,
}

impl Stamp {
    fn of(second: i64) -> Self {
        let time = Timestamp::from_second(second).unwrap_or_default();
        let utc = time.to_zoned(TimeZone::UTC).datetime();
        let local = time.to_zoned(time_zone().clone());
        let east = local.offset().seconds() / 60;
        let (sign, hours, minutes) = (
            if east < 0 { '-' } else { '+' },
            east.abs() / 60,
            east.abs() % 60,
        );
        let local = local.datetime();
        let month = MONTHS[usize::from(local.month().unsigned_abs()) - 1];
        let clock = format!(
            "{:02}:{:02}:{:02}",
            local.hour(),
            local.minute(),
            local.second()
        );
        Self {
            second,
            combined: format!(
                "{:02}/{month}/{:04}:{clock} {sign}{hours:02}{minutes:02}",
                local.day(),
                local.year()
            ),
            php: format!("{:02}-{month}-{:04} {clock}", local.day(), local.year()),
            syslog: format!("{month} {:2} {clock}", local.day()),
            iso: format!(
                "{:04}-{:02}-{:02}T{clock}",
                local.year(),
                local.month(),
                local.day()
            ),
            offset: format!("{sign}{hours:02}:{minutes:02}"),
            utc: format!(
                "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
                utc.year(),
                utc.month(),
                utc.day(),
                utc.hour(),
                utc.minute(),
                utc.second()
            ),
            clock,
        }
    }
}

/// Calls `then` with the stamp of `time`'s second and the microseconds within that second.
fn with_stamp(time: SystemTime, then: impl FnOnce(&Stamp, u32)) {
    thread_local! {
        static LAST: RefCell<Option<Stamp>> = const { RefCell::new(None) };
    }
    // A clock before 1970 is wrong; 1970 shows that clearly enough.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let second = since.as_secs() as i64;
    LAST.with_borrow_mut(|last| {
        let stamp = match last {
            Some(stamp) if stamp.second == second => stamp,
            _ => last.insert(Stamp::of(second)),
        };
        then(stamp, since.subsec_micros());
    });
}

fn time_zone() -> &'static TimeZone {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    ZONE.get_or_init(TimeZone::system)
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(put: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        put(&mut out);
        String::from_utf8(out).expect("log text is UTF-8")
    }

    #[test]
    fn utc_stamps() {
        let time = UNIX_EPOCH + Duration::from_micros(1_795_176_840_123_456);
        assert_eq!(
            text(|out| put_time_utc(time, out)),
            "2026-11-20T12:14:00.123Z"
        );
        let next = UNIX_EPOCH + Duration::from_micros(1_795_176_841_000_001);
        assert_eq!(
            text(|out| put_time_utc(next, out)),
            "2026-11-20T12:14:01.000Z"
        );
        assert_eq!(
            text(|out| put_time_utc(time, out)),
            "2026-11-20T12:14:00.123Z"
        );
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(
            text(|out| put_time_utc(before, out)),
            "1970-01-01T00:00:00.000Z"
        );
    }

    #[test]
    fn every_conversion_of_strftime_that_a_format_may_have_is_known() {
        for letter in "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%".chars() {
            let mut out = Vec::new();
            put_time_formatted(SystemTime::now(), &format!("%{letter}"), &mut out);
            assert!(!out.is_empty() && out != b"-", "%{letter}: {out:?}");
        }
        let mut out = Vec::new();
        let time = UNIX_EPOCH + std::time::Duration::from_secs(1_795_176_840);
        put_time_formatted(time, "%s at %%", &mut out);
        assert_eq!(out, b"1795176840 at %");
    }

    #[test]
    fn local_stamps_are_the_same_instant() {
        let time = UNIX_EPOCH + Duration::from_micros(1_795_176_840_123_456);
        let iso: Timestamp = text(|out| put_time_iso(time, out))
            .parse()
            .expect("RFC 3339");
        assert_eq!(iso.as_millisecond(), 1_795_176_840_123);
        let combined = text(|out| put_time_combined(time, out));
        let read = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", &combined)
            .expect("the combined format's time");
        assert_eq!(
            read.to_timestamp().expect("a time").as_second(),
            1_795_176_840
        );
        let clock = text(|out| put_clock(time, out));
        assert_eq!(clock.len(), "12:14:00.123456".len());
        assert!(clock.ends_with(":00.123456"), "{clock}");
    }

    #[test]
    fn seconds() {
        assert_eq!(text(|out| put_seconds_millis(0, out)), "0.000");
        assert_eq!(text(|out| put_seconds_millis(12_999, out)), "0.012");
        assert_eq!(text(|out| put_seconds_millis(61_000_999, out)), "61.000");
        assert_eq!(text(|out| put_seconds_micros(61_000_009, out)), "61.000009");
    }

    #[test]
    fn escapes() {
        assert_eq!(text(|out| put_escaped(b"/a?b=c d~", out)), "/a?b=c d~");
        assert_eq!(
            text(|out| put_escaped(b"a\"b\\c\nd\x7f\xc3\xa4", out)),
            r"a\x22b\x5Cc\x0Ad\x7F\xC3\xA4"
        );
        assert_eq!(
            text(|out| put_json_string(b"a\"b\\c\nd", out)),
            r#""a\"b\\c\nd""#
        );
        assert_eq!(
            text(|out| put_json_string("ä\u{85}\0\u{7f}".as_bytes(), out)),
            r#""ä\u0085\u0000\u007F""#
        );
        assert_eq!(
            text(|out| put_json_string(b"\xff\xc3", out)),
            r#""\\xFF\\xC3""#
        );
        assert_eq!(
            text(|out| put_message("Grüße\n\x1b[31m\u{9b}".as_bytes(), out)),
            r"Grüße\x0A\x1B[31m\x9B"
        );
        assert_eq!(text(|out| put_message(b"\xff", out)), r"\xFF");
        assert_eq!(
            text(|out| put_formatted(format_args!("{}\r{}", 1, "x"), out)),
            r"1\x0Dx"
        );
    }

    #[test]
    fn values() {
        assert_eq!(text(|out| put_value(b"shop", out)), "shop");
        assert_eq!(text(|out| put_value(b"", out)), "\"\"");
        assert_eq!(text(|out| put_value(b"a b", out)), "\"a b\"");
        assert_eq!(text(|out| put_value(b"a\"b=\\\n", out)), r#""a\"b=\\\x0A""#);
        assert_eq!(text(|out| put_value(br#""""#, out)), r#""\"\"""#);
    }

    #[test]
    fn what_turns_or_hides_text_is_escaped_in_every_log() {
        let text = "a\u{202e}b\u{2066}c\u{200b}d\u{e0041}\u{7f}\u{9b}ä";
        let put = |put: fn(&[u8], &mut Vec<u8>)| {
            let mut out = Vec::new();
            put(text.as_bytes(), &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(
            put(put_message),
            r"a\xE2\x80\xAEb\xE2\x81\xA6c\xE2\x80\x8Bd\xF3\xA0\x81\x81\x7F\x9Bä"
        );
        assert_eq!(
            put(put_json_string).to_lowercase(),
            "\"a\\u202eb\\u2066c\\u200bd\\udb40\\udc41\\u007f\\u009bä\""
        );
        assert_eq!(shown("a\u{202e}\tä"), "a\\u{202e}\\tä");
        assert_eq!(
            json_shown("{\n\"a\": \"\u{202e}\"}"),
            "{\n\"a\": \"\\u202e\"}"
        );
    }
}
