//! Content codings, and which one a client prefers (RFC 9110 §12.5.3).

use super::fields;

/// How the bytes of an answer are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878).
    Zstd,
    /// gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// As in `Content-Encoding`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// The usual extension of compressed files, without a dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zst",
            Self::Gzip => "gz",
        }
    }
}

/// The codings that a client accepts. Weights in thousandths; `None`: not named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accepted {
    named: [Option<u16>; 3],
    identity: Option<u16>,
    any: Option<u16>,
}

impl Accepted {
    /// Parses the values of all `Accept-Encoding` of a request.
    #[must_use]
    pub fn of<'v>(values: impl Iterator<Item = &'v [u8]>) -> Accepted {
        let mut accepted = Accepted::default();
        for element in values.flat_map(|value| value.split(|&b| b == b',')) {
            accepted.add(element);
        }
        accepted
    }

    /// The available coding with the highest weight; among equals the first in `order`. `None`: the original, also if
    /// the client accepts nothing that is available.
    ///
    /// The original has the weight that the client gives to `identity`. If that is not named, the original is
    /// accepted, but each coding that the client names is preferred.
    #[must_use]
    pub fn choose(&self, order: [Coding; 3], is_there: impl Fn(Coding) -> bool) -> Option<Coding> {
        let mut best = (None, self.identity.unwrap_or(0));
        for coding in order.into_iter().rev() {
            let weight = self.weight(coding);
            if weight > 0 && weight >= best.1 && is_there(coding) {
                best = (Some(coding), weight);
            }
        }
        best.0
    }

    /// Whether the client accepts this coding.
    #[must_use]
    pub fn accepts(&self, coding: Coding) -> bool {
        self.weight(coding) > 0
    }

    fn add(&mut self, element: &[u8]) {
        let mut parts = element.split(|&b| b == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let mut weight = 1000;
        for parameter in parts {
            if let [b'q' | b'Q', b'=', value @ ..] = parameter {
                // An invalid weight means that the coding is not used.
                weight = fields::weight(value).unwrap_or(0);
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

    fn weight(&self, coding: Coding) -> u16 {
        let named = self.named[coding as usize];
        named.or(self.any).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// In the order for precompressed files.
    const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    fn chosen(accept: &str, there: &[Coding]) -> Option<Coding> {
        let values = (accept != "-").then_some(accept.as_bytes());
        Accepted::of(values.into_iter()).choose(ALL, |coding| there.contains(&coding))
    }

    #[test]
    fn the_heaviest_coding_that_is_there_is_chosen() {
        use Coding::{Brotli, Gzip, Zstd};
        let all = &ALL[..];
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
    fn of_equals_the_first_in_order_is_chosen() {
        let order = [Coding::Zstd, Coding::Gzip, Coding::Brotli];
        let accepted = Accepted::of([&b"gzip"[..], b"br, zstd;q=0.9"].into_iter());
        assert_eq!(accepted.choose(order, |_| true), Some(Coding::Gzip));
    }

    proptest! {
        #[test]
        fn any_header_is_taken(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let accepted = Accepted::of([&bytes[..]].into_iter());
            let chosen = accepted.choose(ALL, |coding| coding == Coding::Gzip);
            prop_assert!(matches!(chosen, None | Some(Coding::Gzip)));
        }
    }
}
