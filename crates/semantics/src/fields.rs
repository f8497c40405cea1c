//! Lists, quoted strings and weights in the values of fields (RFC 9110 §5.6, §12.4.2).

/// The elements of a comma-separated list without white space around them; empty ones are left out (RFC 9110 §5.6.1).
/// A comma in a quoted string does not divide (§5.6.4). A quotation mark without its second one is an ordinary byte, so
/// that it hides nothing that follows.
pub fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        loop {
            let text = rest?;
            let end = element_end(text);
            rest = text.get(end + 1..);
            let element = text[..end].trim_ascii();
            if !element.is_empty() {
                return Some(element);
            }
        }
    })
}

/// Whether one of the lists has this token, in any case.
pub fn has_token<'v>(mut values: impl Iterator<Item = &'v [u8]>, token: &str) -> bool {
    values.any(|value| elements(value).any(|found| found.eq_ignore_ascii_case(token.as_bytes())))
}

/// A weight of 0 to 1 with at most three decimals (RFC 9110 §12.4.2), in thousandths. `None` if it is not valid.
#[must_use]
pub fn weight(value: &[u8]) -> Option<u16> {
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

/// Where the first element ends: at a comma, or at the end.
fn element_end(text: &[u8]) -> usize {
    let mut at = 0;
    let mut may_quote = true;
    while let Some(found) = memchr::memchr2(b',', b'"', &text[at..]) {
        let found = at + found;
        if text[found] == b',' {
            return found;
        }
        at = found + 1;
        if may_quote {
            match quoted_end(&text[at..]) {
                Some(length) => at += length,
                // This quotation mark is never closed. Neither is any later one, so the search happens only once.
                None => may_quote = false,
            }
        }
    }
    text.len()
}

/// The length of a quoted string after its first quotation mark, with its last one.
fn quoted_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = at + memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[found] == b'"' {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(value: &str) -> Vec<&str> {
        let elements = elements(value.as_bytes());
        elements
            .map(|element| std::str::from_utf8(element).unwrap())
            .collect()
    }

    #[test]
    fn commas_divide_but_not_in_quoted_strings() {
        for (value, expected) in [
            ("", &[][..]),
            (" , ,,\t", &[]),
            ("a", &["a"]),
            (" a , b;q=1 ,c", &["a", "b;q=1", "c"]),
            ("private=\"a, b\", c", &["private=\"a, b\"", "c"]),
            ("a=\"b\\\", c\", d", &["a=\"b\\\", c\"", "d"]),
            ("\"\",\"\"", &["\"\"", "\"\""]),
            ("a\"b, c", &["a\"b", "c"]),
            ("\"a\", \"b, c", &["\"a\"", "\"b", "c"]),
            ("\"a\\\", b", &["\"a\\\"", "b"]),
        ] {
            assert_eq!(all(value), expected, "{value}");
        }
    }

    #[test]
    fn a_token_is_found_in_any_case_and_not_in_a_quoted_string() {
        let has = |values: &[&str]| {
            let values = values.iter().map(|value| value.as_bytes());
            has_token(values, "no-transform")
        };
        assert!(has(&["public", "max-age=1, No-Transform"]));
        assert!(!has(&[]) && !has(&["no-transform=1"]) && !has(&["no-transformer"]));
        assert!(!has(&["private=\"a, no-transform, b\""]));
        assert!(has(&["private=\"a, no-transform"]));
    }

    #[test]
    fn weights_are_thousandths() {
        for (text, expected) in [
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
            assert_eq!(weight(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn elements_have_all_bytes_but_commas_and_white_space(value in "[a ,\"\\\\]{0,30}") {
            let joined: Vec<u8> = elements(value.as_bytes()).flatten().copied().collect();
            let count = |bytes: &[u8], byte| bytes.iter().filter(|found| **found == byte).count();
            for byte in *b"a\"\\" {
                prop_assert_eq!(count(&joined, byte), count(value.as_bytes(), byte));
            }
            for element in elements(value.as_bytes()) {
                prop_assert!(!element.is_empty() && element.trim_ascii() == element);
                // An element has a comma only if it also has a quotation mark.
                prop_assert!(!element.contains(&b',') || element.contains(&b'"'));
            }
        }

        #[test]
        fn any_bytes_are_taken(value in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(elements(&value).count() <= value.len());
            let _ = weight(&value);
        }
    }
}
