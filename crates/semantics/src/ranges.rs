//! Range requests (RFC 9110 §14).

/// Bytes `start..end` of a representation; never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// The byte after the last one.
    pub end: u64,
}

impl Span {
    /// All of a representation that is not empty.
    #[must_use]
    pub fn all(size: u64) -> Self {
        Self {
            start: 0,
            end: size,
        }
    }

    /// How many bytes they are: never 0.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(self) -> u64 {
        self.end - self.start
    }
}

/// The result of a `Range` field.
#[derive(Debug, PartialEq, Eq)]
pub enum Ranges {
    /// It is ignored: another unit, not understood, or too many ranges.
    All,
    /// No range is within the file: 416.
    None,
    /// 206
    One(Span),
    /// 206 with several parts.
    Many(Vec<Span>),
}

/// Reads the value of `Range` (RFC 9110 §14.1.2 and §14.2) for a representation of `size` bytes. An empty file has no ranges: it is sent whole, as clients expect that always ask for a
/// range.
#[must_use]
pub fn parse(header: &[u8], size: u64) -> Ranges {
    let Some((unit, set)) = split_once(header.trim_ascii(), b'=') else {
        return Ranges::All;
    };
    if !unit.eq_ignore_ascii_case(b"bytes") || size == 0 {
        return Ranges::All;
    }
    let mut spans = Vec::new();
    let mut count = 0;
    for spec in set.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
        if spec.is_empty() {
            continue;
        }
        count += 1;
        if count > MAX_RANGES {
            return Ranges::All;
        }
        match span(spec, size) {
            Err(NoRange) => return Ranges::All,
            Ok(span) => spans.extend(span),
        }
    }
    if count == 0 {
        return Ranges::All;
    }
    coalesce(&mut spans);
    match spans[..] {
        [] => Ranges::None,
        [span] => Ranges::One(span),
        _ => Ranges::Many(spans),
    }
}

struct NoRange;

/// Parses one range-spec; `Ok(None)` if it is outside of the file.
fn span(spec: &[u8], size: u64) -> Result<Option<Span>, NoRange> {
    let (first, last) = split_once(spec, b'-').ok_or(NoRange)?;
    let (start, end) = match (first, last) {
        ([], []) => return Err(NoRange),
        ([], suffix) => (size - number(suffix)?.min(size), size),
        (first, []) => (number(first)?, size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(NoRange);
            }
            (first, last.saturating_add(1).min(size))
        }
    };
    Ok((start < end).then_some(Span { start, end }))
}

/// Parses digits; a number that is too large counts as larger than any file.
fn number(digits: &[u8]) -> Result<u64, NoRange> {
    let mut value: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(NoRange);
        }
        value = value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'));
    }
    Ok(value)
}

/// Joins spans that overlap, or whose distance is less than the head of a part (RFC 9110 §15.3.7.2). The others stay
/// in the requested order.
fn coalesce(spans: &mut Vec<Span>) {
    let mut ordered: Vec<(usize, Span)> = spans.drain(..).enumerate().collect();
    ordered.sort_by_key(|(_, span)| span.start);
    let mut joined: Vec<(usize, Span)> = Vec::with_capacity(ordered.len());
    for (place, span) in ordered {
        match joined.last_mut() {
            Some((first, last)) if span.start <= last.end.saturating_add(PART_HEAD) => {
                last.end = last.end.max(span.end);
                *first = place.min(*first);
            }
            _ => joined.push((place, span)),
        }
    }
    joined.sort_by_key(|(place, _)| *place);
    spans.extend(joined.into_iter().map(|(_, span)| span));
}

fn split_once(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = memchr::memchr(at, bytes)?;
    Some((&bytes[..place], &bytes[place + 1..]))
}

/// More than a media player or a document viewer requests at once; a request with more gets the whole file.
const MAX_RANGES: usize = 64;
/// Approximate size of a part's boundary and head, bytes.
const PART_HEAD: u64 = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(start: u64, end: u64) -> Ranges {
        Ranges::One(Span { start, end })
    }

    #[test]
    fn headers_and_what_they_come_to() {
        let many = |spans: &[(u64, u64)]| {
            let span = |&(start, end): &(u64, u64)| Span { start, end };
            Ranges::Many(spans.iter().map(span).collect())
        };
        for (header, expected) in [
            ("bytes=0-0", one(0, 1)),
            ("bytes=0-", one(0, 1000)),
            ("bytes=500-", one(500, 1000)),
            ("bytes=500-2000", one(500, 1000)),
            ("bytes=999-999", one(999, 1000)),
            ("bytes=-1", one(999, 1000)),
            ("bytes=-5000", one(0, 1000)),
            ("Bytes=0-9", one(0, 10)),
            ("bytes= 0-9 ", one(0, 10)),
            ("bytes=0-99999999999999999999999999", one(0, 1000)),
            ("bytes=0-18446744073709551615", one(0, 1000)),
            ("bytes=0-9,,", one(0, 10)),
            ("bytes=0-9,5-20", one(0, 21)),
            ("bytes=0-9,10-20", one(0, 21)),
            ("bytes=0-9,50-60", one(0, 61)),
            ("bytes=0-9,500-509", many(&[(0, 10), (500, 510)])),
            ("bytes=500-509, 0-9", many(&[(500, 510), (0, 10)])),
            ("bytes=500-509,0-9,505-520", many(&[(500, 521), (0, 10)])),
            ("bytes=0-9,2000-", one(0, 10)),
            ("bytes=0-9,-10", many(&[(0, 10), (990, 1000)])),
            ("bytes=1000-", Ranges::None),
            ("bytes=1000-1001,5000-", Ranges::None),
            ("bytes=-0", Ranges::None),
            ("bytes=99999999999999999999999999-", Ranges::None),
            ("bytes=5-4", Ranges::All),
            ("bytes=0-9,5-4", Ranges::All),
            ("bytes=-", Ranges::All),
            ("bytes=a-b", Ranges::All),
            ("bytes=+1-2", Ranges::All),
            ("bytes=1 - 2", Ranges::All),
            ("bytes=1-2-3", Ranges::All),
            ("bytes=", Ranges::All),
            ("bytes=,", Ranges::All),
            ("bytes", Ranges::All),
            ("", Ranges::All),
            ("items=0-1", Ranges::All),
        ] {
            assert_eq!(parse(header.as_bytes(), 1000), expected, "{header}");
        }
        assert_eq!(parse(b"bytes=0-", 0), Ranges::All);
    }

    #[test]
    fn too_many_ranges_are_none() {
        let set = |n: u64| {
            let specs: Vec<String> = (0..n)
                .map(|i| format!("{}-{}", i * 1000, i * 1000))
                .collect();
            format!("bytes={}", specs.join(","))
        };
        let parsed = parse(set(MAX_RANGES as u64).as_bytes(), u64::MAX);
        assert!(matches!(parsed, Ranges::Many(spans) if spans.len() == MAX_RANGES));
        assert_eq!(
            parse(set(MAX_RANGES as u64 + 1).as_bytes(), u64::MAX),
            Ranges::All
        );
    }

    proptest! {
        #[test]
        fn spans_lie_in_the_file_apart_from_each_other(
            specs in proptest::collection::vec("([0-9]{0,4})-([0-9]{0,4})", 1..10),
            size in 0_u64..3000,
        ) {
            let header = format!("bytes={}", specs.join(","));
            let spans = match parse(header.as_bytes(), size) {
                Ranges::One(span) => vec![span],
                Ranges::Many(spans) => spans,
                Ranges::All | Ranges::None => vec![],
            };
            for (n, span) in spans.iter().enumerate() {
                prop_assert!(span.start < span.end && span.end <= size);
                for other in &spans[n + 1..] {
                    prop_assert!(span.end + PART_HEAD < other.start || other.end + PART_HEAD < span.start);
                }
            }
        }

        #[test]
        fn every_byte_asked_for_is_given(a in 0_u64..200, b in 0_u64..200, c in 0_u64..200, d in 0_u64..200) {
            let (a, b, c, d) = (a.min(b), a.max(b), c.min(d), c.max(d));
            let size = 150;
            let spans = match parse(format!("bytes={a}-{b},{c}-{d}").as_bytes(), size) {
                Ranges::One(span) => vec![span],
                Ranges::Many(spans) => spans,
                Ranges::None => vec![],
                Ranges::All => return Err(TestCaseError::fail("understood")),
            };
            for byte in 0..size {
                let asked = (a..=b).contains(&byte) || (c..=d).contains(&byte);
                let given = spans.iter().any(|span| (span.start..span.end).contains(&byte));
                prop_assert!(!asked || given);
            }
        }

        #[test]
        fn any_header_is_taken(header in proptest::collection::vec(any::<u8>(), 0..40), size: u64) {
            let _ = parse(&header, size);
            let _ = parse(&[b"bytes=", &header[..]].concat(), size);
        }
    }
}
