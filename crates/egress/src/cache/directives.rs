//! `Cache-Control` (RFC 9111 §5.2): parsed strictly where leniency would store answers that must not be stored.

use http::{HeaderMap, HeaderValue, header};

/// The directives of a request or an answer, names in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Directives {
    list: Vec<(String, Option<String>)>,
    /// A part of it could not be parsed and may mean anything.
    garbled: bool,
}

impl Directives {
    /// Parses the headers.
    pub(super) fn of(headers: &HeaderMap) -> Directives {
        let mut directives = Directives::default();
        for value in headers.get_all(header::CACHE_CONTROL) {
            match value.to_str() {
                Ok(text) => directives.read(text),
                Err(_) => directives.garbled = true,
            }
        }
        directives
    }

    /// Whether all of it could be parsed.
    pub(super) fn are_clear(&self) -> bool {
        !self.garbled
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.list.iter().any(|(own, _)| own == name)
    }

    /// The argument of a directive; `None` also if it is not a number, or occurs twice with different values.
    pub(super) fn seconds(&self, name: &str) -> Option<u64> {
        let mut values = self.list.iter().filter(|(own, _)| own == name);
        let (_, value) = values.next()?;
        if values.any(|(_, other)| other != value) {
            return None;
        }
        value.as_ref()?.parse().ok()
    }

    /// As one header, with the directives that `keep` accepts. An argument that is not a token is dropped; in
    /// `private` and `no-cache` it would only weaken their meaning.
    pub(super) fn header(&self, keep: impl Fn(&str) -> bool) -> Option<HeaderValue> {
        let mut text = String::new();
        for (name, value) in self.list.iter().filter(|(name, _)| keep(name)) {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(name);
            if let Some(value) = value.as_ref().filter(|value| is_plain(value)) {
                text.push('=');
                text.push_str(value);
            }
        }
        (!text.is_empty()).then(|| HeaderValue::try_from(text).ok())?
    }

    /// Parses one line: `name`, `name=token`, `name="quoted, perhaps with commas"`.
    fn read(&mut self, line: &str) {
        let mut rest = line;
        while !rest.is_empty() {
            let end = rest.find([',', '=']).unwrap_or(rest.len());
            let name = rest[..end].trim().to_ascii_lowercase();
            let has_value = rest[end..].starts_with('=');
            rest = rest.get(end + 1..).unwrap_or_default();
            let mut value = None;
            if has_value {
                let (text, after) = match rest.trim_start().strip_prefix('"') {
                    Some(quoted) => match quoted.split_once('"') {
                        Some((text, after)) => (text, after.split_once(',').unwrap_or(("", "")).1),
                        None => {
                            self.garbled = true;
                            (quoted, "")
                        }
                    },
                    None => rest.split_once(',').unwrap_or((rest, "")),
                };
                value = Some(text.trim().to_owned());
                rest = after;
            }
            if !name.is_empty() {
                self.list.push((name, value));
            }
        }
    }
}

fn is_plain(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(lines: &[&str]) -> Directives {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::CACHE_CONTROL, line.parse().unwrap());
        }
        Directives::of(&headers)
    }

    #[test]
    fn directives_are_read_as_they_are_written() {
        for (lines, expected) in [
            (&["max-age=60"][..], "max-age=60"),
            (&["Max-Age=60, NO-STORE"], "max-age=60, no-store"),
            (&["public", "s-maxage=5"], "public, s-maxage=5"),
            (&["max-age=\"60\" , public"], "max-age=60, public"),
            (&["private=\"a, no-store\", public"], "private, public"),
            (&[" ,, =, =5, max-age = 7"], "max-age=7"),
            (&["no-cache=\"set cookie, x\""], "no-cache"),
        ] {
            let header = of(lines).header(|_| true);
            assert_eq!(header.unwrap(), expected, "{lines:?}");
        }
        assert_eq!(of(&[""]).header(|_| true), None);
        let both = of(&["public, proxy-revalidate"]);
        assert_eq!(
            both.header(|name| name != "proxy-revalidate").unwrap(),
            "public"
        );
    }

    #[test]
    fn numbers_have_to_be_some() {
        assert_eq!(
            of(&["stale-if-error=600"]).seconds("stale-if-error"),
            Some(600)
        );
        for line in [
            "stale-if-error",
            "stale-if-error=",
            "stale-if-error=-1",
            "stale-if-error=1.5",
            "stale-if-error=5, stale-if-error=6",
        ] {
            assert_eq!(of(&[line]).seconds("stale-if-error"), None, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        assert!(of(&["public"]).are_clear());
        assert!(!of(&["private=\"x"]).are_clear());
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_bytes(b"public\xff").unwrap();
        headers.insert(header::CACHE_CONTROL, value);
        assert!(!Directives::of(&headers).are_clear());
    }

    proptest! {
        #[test]
        fn any_line_is_taken(line in "[ -~]{0,40}") {
            let directives = of(&[&line]);
            let _ = directives.header(|_| true);
            prop_assert!(directives.list.len() <= line.len());
        }
    }
}
