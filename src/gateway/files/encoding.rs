//! Content codings of precompressed files: which there are, and which one a client prefers (RFC 9110 §12.5.3).

use http::{HeaderMap, HeaderValue, header};

/// How a file beside the original is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Brotli, `file.br` (RFC 7932).
    Brotli,
    /// Zstandard, `file.zst` (RFC 8878).
    Zstd,
    /// gzip, `file.gz` (RFC 1952).
    Gzip,
}

impl Coding {
    /// All, the one first that is taken of those that a client likes equally.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// As in `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Of the file, without a dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zst",
            Self::Gzip => "gz",
        }
    }

    /// The name of the compressed file beside `path`.
    pub(super) fn name_beside(self, path: &[u8]) -> Vec<u8> {
        let extension = self.extension().as_bytes();
        let mut name = Vec::with_capacity(path.len() + 1 + extension.len());
        name.extend_from_slice(path);
        name.push(b'.');
        name.extend_from_slice(extension);
        name
    }
}

/// The coding with the highest weight among those that are there; of equals the first in [`Coding::ALL`]. None: the
/// original, which also goes to a client that accepts nothing that is there.
///
/// The original counts with the weight that the client gives to `identity`; unnamed it is accepted, but any coding
/// that the client names is preferred to it.
pub(super) fn choose(headers: &HeaderMap, is_there: impl Fn(Coding) -> bool) -> Option<Coding> {
    let mut accepted = Accepted::default();
    for value in headers.get_all(header::ACCEPT_ENCODING) {
        for element in value.as_bytes().split(|&b| b == b',') {
            accepted.add(element);
        }
    }
    let mut best = (None, accepted.identity.unwrap_or(0));
    for coding in Coding::ALL.into_iter().rev() {
        let weight = accepted.of(coding);
        if weight > 0 && weight >= best.1 && is_there(coding) {
            best = (Some(coding), weight);
        }
    }
    best.0
}

/// Whether a file of that type can be much smaller compressed: for pictures, films, archives and web fonts nobody
/// puts a compressed file beside, and looking for one costs.
pub(super) fn is_compressible(content_type: &HeaderValue) -> bool {
    let media_type = content_type.as_bytes();
    let is = |prefix: &str| media_type.starts_with(prefix.as_bytes());
    if is("image/") {
        return is("image/svg")
            || is("image/x-icon")
            || is("image/vnd.microsoft.icon")
            || is("image/bmp");
    }
    let compressed = [
        "video/",
        "audio/",
        "font/woff",
        "application/font-woff",
        "application/zip",
        "application/gzip",
        "application/x-7z",
        "application/x-bzip",
        "application/x-xz",
        "application/x-rar",
        "application/vnd.rar",
        "application/zstd",
        "application/java-archive",
    ];
    !compressed.iter().any(|prefix| is(prefix))
}

/// Weights in thousandths; none: not named.
#[derive(Debug, Default)]
struct Accepted {
    named: [Option<u16>; 3],
    identity: Option<u16>,
    any: Option<u16>,
}

impl Accepted {
    fn add(&mut self, element: &[u8]) {
        let mut parts = element.split(|&b| b == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let mut weight = 1000;
        for parameter in parts {
            if let [b'q' | b'Q', b'=', value @ ..] = parameter {
                // A weight that is none says that the client is not to be trusted with it.
                weight = thousandths(value).unwrap_or(0);
            }
        }
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let slot = if is("br") {
            &mut self.named[0]
        } else if is("zstd") {
            &mut self.named[1]
        } else if is("gzip") || is("x-gzip") {
            &mut self.named[2]
        } else if is("identity") {
            &mut self.identity
        } else if is("*") {
            &mut self.any
        } else {
            return;
        };
        *slot = Some(weight);
    }

    fn of(&self, coding: Coding) -> u16 {
        let named = self.named[coding as usize];
        named.or(self.any).unwrap_or(0)
    }
}

/// RFC 9110 §12.4.2: 0 to 1 with at most three decimals.
fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, decimals) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = u16::from(whole.checked_sub(b'0')?);
    for place in 0..3 {
        let digit = decimals.get(place).unwrap_or(&b'0');
        if !digit.is_ascii_digit() {
            return None;
        }
        weight = weight.checked_mul(10)? + u16::from(digit - b'0');
    }
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chosen(accept: &str, there: &[Coding]) -> Option<Coding> {
        let mut headers = HeaderMap::new();
        if accept != "-" {
            headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
        }
        choose(&headers, |coding| there.contains(&coding))
    }

    #[test]
    fn the_heaviest_coding_that_is_there_is_chosen() {
        use Coding::{Brotli, Gzip, Zstd};
        let all = &Coding::ALL[..];
        for (accept, there, expected) in [
            ("-", all, None),
            ("", all, None),
            ("gzip", all, Some(Gzip)),
            ("x-gzip", all, Some(Gzip)),
            ("GZIP", all, Some(Gzip)),
            ("gzip, deflate, br, zstd", all, Some(Brotli)),
            ("gzip, deflate, br, zstd", &[Zstd, Gzip], Some(Zstd)),
            ("gzip, deflate, br", &[Zstd], None),
            ("gzip;q=1.0, br;q=0.5", all, Some(Gzip)),
            ("gzip; q=0.5 , br ; Q=0.501", all, Some(Brotli)),
            ("br;q=0, gzip;q=0.001", all, Some(Gzip)),
            ("gzip;q=0", all, None),
            ("*", all, Some(Brotli)),
            ("*;q=0", all, None),
            ("br;q=0, *", all, Some(Zstd)),
            ("gzip;q=0.5, *;q=0.1", all, Some(Gzip)),
            ("identity", all, None),
            ("identity, gzip;q=0.5", all, None),
            ("identity;q=0.5, gzip;q=0.5", all, Some(Gzip)),
            ("identity;q=0, br", &[Gzip], None),
            ("identity;q=0, *;q=0.1", all, Some(Brotli)),
            ("gzip;q=2", all, None),
            ("gzip;q=0.0000", all, None),
            ("gzip;q=x, br", all, Some(Brotli)),
            ("gzip;level=9", all, Some(Gzip)),
            (", ,gzip,,", all, Some(Gzip)),
            ("deflate", all, None),
        ] {
            assert_eq!(chosen(accept, there), expected, "{accept} of {there:?}");
        }
    }

    #[test]
    fn weights_are_thousandths() {
        for (text, weight) in [
            ("1", Some(1000)),
            ("0", Some(0)),
            ("0.", Some(0)),
            ("0.5", Some(500)),
            ("0.123", Some(123)),
            ("1.000", Some(1000)),
            ("1.001", None),
            ("0.1234", None),
            ("", None),
            (".5", None),
            ("-1", None),
            ("9", None),
            ("0.a", None),
        ] {
            assert_eq!(thousandths(text.as_bytes()), weight, "{text}");
        }
    }

    #[test]
    fn pictures_are_not_compressed_again() {
        let is = |media: &'static str| is_compressible(&HeaderValue::from_static(media));
        assert!(is("text/css; charset=utf-8") && is("image/svg+xml") && is("application/json"));
        assert!(!is("image/png") && !is("video/mp4") && !is("font/woff2"));
    }

    proptest! {
        #[test]
        fn any_header_is_taken(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                headers.insert(header::ACCEPT_ENCODING, value);
            }
            let chosen = choose(&headers, |coding| coding == Coding::Gzip);
            prop_assert!(matches!(chosen, None | Some(Coding::Gzip)));
        }
    }
}
