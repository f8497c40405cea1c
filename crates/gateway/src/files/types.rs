//! Media types by extension, and other settings for the headers of files.

use std::collections::HashMap;

use http::HeaderValue;
use weir_config::Settings;

/// The settings for the answers of files.
#[derive(Debug, PartialEq, Eq)]
pub struct Presentation {
    /// By extension in lower case; checked before the built-in list.
    types: HashMap<String, HeaderValue>,
    /// Added to text types; empty: no charset.
    charset: String,
    pub(super) cache_control: Option<HeaderValue>,
    pub(super) precompressed: bool,
    /// Prefixes below which the source of scripts is shown as text. This changes the entries, so it belongs to the
    /// settings.
    deny_scripts: Vec<String>,
    /// Which files are scripts, for the same reason.
    script: String,
    /// The URL prefix of an alias. With the two above it decides which files are shown as text.
    alias: String,
}

impl Presentation {
    /// Compiles the settings.
    ///
    /// # Errors
    /// If a type or Cache-Control is not a valid header value.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        let checked = |what: &str, text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| format!("{what}: `{text}` is not a valid header value"))
        };
        let mut types = HashMap::new();
        for (extension, media_type) in &settings.types {
            let extension = extension.trim_start_matches('.').to_ascii_lowercase();
            let media_type = with_charset(media_type, &settings.charset);
            types.insert(extension, checked("types", &media_type)?);
        }
        checked("charset", &settings.charset)?;
        let cache_control = settings.cache_control.as_deref();
        Ok(Self {
            types,
            charset: settings.charset.clone(),
            cache_control: cache_control
                .map(|text| checked("cache_control", text))
                .transpose()?,
            precompressed: settings.precompressed,
            deny_scripts: settings.deny_scripts.clone(),
            script: settings.script.clone(),
            alias: settings
                .alias
                .as_ref()
                .map_or_else(String::new, |alias| alias.prefix.clone()),
        })
    }

    /// Whether the first bytes of a file must be read even if it is too large to be kept in memory, because its name
    /// does not show its type.
    pub(super) fn needs_head(&self, path: &[u8]) -> bool {
        let extension = extension(path).unwrap_or_default();
        !self.types.contains_key(&extension)
            && (extension == "ts" || mime_guess::from_ext(&extension).first_raw().is_none())
    }

    /// The `Content-Type` of a file. `first` is its first byte; `None` if it is empty.
    pub(super) fn content_type(&self, path: &[u8], first: Option<u8>) -> HeaderValue {
        let extension = extension(path).unwrap_or_default();
        if let Some(media_type) = self.types.get(&extension) {
            return media_type.clone();
        }
        let media_type = match (extension.as_str(), first) {
            // Every packet of an MPEG transport stream begins with this byte (ISO/IEC 13818-1 §2.4.3.2).
            ("ts", Some(0x47)) => Some("video/mp2t"),
            ("ts", _) => Some("text/typescript"),
            _ => mime_guess::from_ext(&extension).first_raw(),
        };
        let media_type = media_type.unwrap_or("application/octet-stream");
        value(&with_charset(media_type, &self.charset))
    }
}

/// A header value from text that was checked before.
pub(super) fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Whether the name marks the file as text for people. If such a file begins with `<?php`, showing it is intended.
pub(super) fn is_to_be_read(path: &[u8]) -> bool {
    extension(path).is_some_and(|extension| matches!(&*extension, "txt" | "text" | "md"))
}

/// The extension of the last segment in lower case, without the dot.
fn extension(path: &[u8]) -> Option<String> {
    let name = path.rsplit(|&b| b == b'/').next()?;
    let dot = memchr::memrchr(b'.', name)?;
    let extension = core::str::from_utf8(&name[dot + 1..]).ok()?;
    Some(extension.to_ascii_lowercase())
}

/// Only for text types whose content does not declare its encoding: XML documents do, and JSON is always UTF-8.
fn with_charset(media_type: &str, charset: &str) -> String {
    let is_text = media_type.starts_with("text/") && media_type != "text/xml"
        || matches!(
            media_type,
            "application/javascript" | "application/x-javascript"
        );
    match is_text && !charset.is_empty() && !media_type.contains(';') {
        true => format!("{media_type}; charset={charset}"),
        false => media_type.to_owned(),
    }
}

#[cfg(test)]
impl Presentation {
    /// UTF-8, `max-age=60`, precompressed files.
    pub(super) fn for_tests() -> Self {
        Self {
            types: HashMap::new(),
            charset: "utf-8".into(),
            cache_control: Some(HeaderValue::from_static("max-age=60")),
            precompressed: true,
            deny_scripts: Vec::new(),
            script: String::new(),
            alias: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presentation(charset: &str) -> Presentation {
        let own = [
            ("foo", "application/x-foo"),
            ("md", "text/markdown"),
            ("txt", "text/plain; charset=latin1"),
        ];
        Presentation {
            types: own
                .iter()
                .map(|(extension, media)| {
                    (extension.to_string(), value(&with_charset(media, charset)))
                })
                .collect(),
            charset: charset.into(),
            cache_control: None,
            precompressed: false,
            deny_scripts: Vec::new(),
            script: String::new(),
            alias: String::new(),
        }
    }

    #[test]
    fn types_come_from_the_rules_then_from_the_list() {
        for (path, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a/b.CSS", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "application/javascript; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.xml", "text/xml"),
            ("a.png", "image/png"),
            ("a.webp", "image/webp"),
            ("a.avif", "image/avif"),
            ("a.woff2", "font/woff2"),
            ("a.wasm", "application/wasm"),
            ("a.pdf", "application/pdf"),
            ("a.mp4", "video/mp4"),
            ("a.foo", "application/x-foo"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.txt", "text/plain; charset=latin1"),
            ("a.tar.gz", "application/gzip"),
            ("a.unheard-of", "application/octet-stream"),
            ("README", "application/octet-stream"),
            ("a.b/README", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(
                presentation("utf-8").content_type(path.as_bytes(), None),
                expected,
                "{path}"
            );
        }
        for (first, expected) in [
            (Some(0x47), "video/mp2t"),
            (Some(b'i'), "text/typescript; charset=utf-8"),
            (None, "text/typescript; charset=utf-8"),
        ] {
            let got = presentation("utf-8").content_type(b"a.ts", first);
            assert_eq!(got, expected, "{first:?}");
        }
        assert_eq!(presentation("").content_type(b"a.html", None), "text/html");
        assert_eq!(
            presentation("utf-8").content_type(b"a.\xff", None),
            "application/octet-stream"
        );
    }
}
