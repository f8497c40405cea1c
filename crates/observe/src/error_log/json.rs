//! Events as JSON: one object a line.
//!
//! ```text
//! {"time_iso":"2026-11-20T12:14:00.123Z","level":"error","process":"gateway","message":"worker died: 11","site":"shop","request":42}
//! ```

use std::time::SystemTime;

use log::{
    Record,
    kv::{self, Key, Value, VisitSource},
};

use super::level_name;
use crate::log_text::{self as text, JsonMembers};

/// Appends an event, without the end of the line.
pub(super) fn put(role: &str, record: &Record<'_>, time: SystemTime, out: &mut Vec<u8>) {
    let message = record.args().to_string();
    begin(
        role,
        level_name(record.level()),
        message.as_bytes(),
        time,
        out,
    );
    // This can fail only in a broken Display; what was written until then is kept.
    let _ = record.key_values().visit(&mut Members(JsonMembers(out)));
    out.push(b'}');
}

/// Appends a line of a worker, which has no level of its own.
pub(super) fn put_plain(role: &str, line: &[u8], time: SystemTime, out: &mut Vec<u8>) {
    begin(role, "notice", line, time, out);
    out.push(b'}');
}

/// Appends the number of lines that were lost before this one to a line with its end.
pub(super) fn put_lost(lost: u64, line: &mut Vec<u8>) {
    line.truncate(line.len().saturating_sub("}\n".len()));
    JsonMembers(line).number("lines_lost", Some(lost));
    line.extend_from_slice(b"}\n");
}

fn begin(role: &str, level: &str, message: &[u8], time: SystemTime, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time_iso\":\"");
    text::put_time_utc(time, out);
    out.push(b'"');
    let mut members = JsonMembers(out);
    members.string("level", Some(level.as_bytes()));
    members.string("process", Some(role.as_bytes()));
    members.string("message", Some(message));
}

/// Appends `"key":value` members.
struct Members<'a>(JsonMembers<'a>);

impl<'kvs> VisitSource<'kvs> for Members<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        match value.to_u64() {
            Some(number) => self.0.number(key.as_str(), Some(number)),
            None => self
                .0
                .string(key.as_str(), Some(value.to_string().as_bytes())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use log::Level;
    use proptest::prelude::*;

    use super::*;
    use crate::error_log::About;

    fn line(message: &str, site: &str) -> String {
        let about = About {
            site: Some(site),
            request: Some(42),
            ..About::default()
        };
        let mut out = Vec::new();
        let time = UNIX_EPOCH + Duration::from_millis(1_795_176_840_123);
        let args = format_args!("{message}");
        let record = Record::builder()
            .level(Level::Warn)
            .key_values(&about)
            .args(args)
            .build();
        put("gateway", &record, time, &mut out);
        out.push(b'\n');
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn an_event_is_an_object() {
        assert_eq!(
            line("worker \"7\" died", "shop"),
            "{\"time_iso\":\"2026-11-20T12:14:00.123Z\",\"level\":\"warning\",\"process\":\"gateway\",\
             \"message\":\"worker \\\"7\\\" died\",\"site\":\"shop\",\"request\":42}\n"
        );
        let mut lossy = line("x", "shop").into_bytes();
        put_lost(3, &mut lossy);
        let lossy: serde_json::Value = serde_json::from_slice(&lossy).expect("JSON");
        assert_eq!(
            (&lossy["lines_lost"], &lossy["request"]),
            (&3.into(), &42.into())
        );
    }

    proptest! {
        #[test]
        fn every_event_is_one_line_of_json(message: String, site: String) {
            let line = line(&message, &site);
            prop_assert_eq!(line.lines().count(), 1);
            let object: serde_json::Value = serde_json::from_str(&line).expect("JSON");
            prop_assert_eq!(object["message"].as_str(), Some(message.as_str()));
        }
    }
}
