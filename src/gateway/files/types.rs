//! Media types by extension, and what else the rules say of an answer.

use std::collections::HashMap;

use http::HeaderValue;
use weir_config::Settings;

/// How files are presented under some rules.
#[derive(Debug, PartialEq, Eq)]
pub struct Presentation {
    /// By extension in lower case, before the built-in list.
    types: HashMap<String, HeaderValue>,
    /// Added to text types; empty: none.
    charset: String,
    pub(super) cache_control: Option<HeaderValue>,
    pub(super) precompressed: bool,
    /// Prefixes below which scripts are shown as text: part of what an entry looks like.
    deny_scripts: Vec<String>,
    /// Which files are scripts: likewise.
    script: String,
}

impl Presentation {
    /// What `settings` say.
    ///
    /// # Errors
    /// A type or Cache-Control that cannot be a header's value.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        let checked = |what: &str, text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| format!("{what}: `{text}` cannot be a header's value"))
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
        })
    }

    /// The `Content-Type` of a file.
    pub(super) fn content_type(&self, path: &[u8]) -> HeaderValue {
        let extension = extension(path).unwrap_or_default();
        if let Some(media_type) = self.types.get(&extension) {
            return media_type.clone();
        }
        let media_type = mime_guess::from_ext(&extension).first_raw();
        let media_type = media_type.unwrap_or("application/octet-stream");
        value(&with_charset(media_type, &self.charset))
    }
}

/// A header's value from text that can only be one.
pub(super) fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The extension of the last segment in lower case, without its dot.
fn extension(path: &[u8]) -> Option<String> {
    let name = path.rsplit(|&b| b == b'/').next()?;
    let dot = memchr::memrchr(b'.', name)?;
    let extension = core::str::from_utf8(&name[dot + 1..]).ok()?;
    Some(extension.to_ascii_lowercase())
}

/// Only types that are text and do not say their own encoding inside: an XML document does, JSON is always UTF-8.
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
                presentation("utf-8").content_type(path.as_bytes()),
                expected,
                "{path}"
            );
        }
        assert_eq!(presentation("").content_type(b"a.html"), "text/html");
        assert_eq!(
            presentation("utf-8").content_type(b"a.\xff"),
            "application/octet-stream"
        );
    }
}
