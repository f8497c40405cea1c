//! Cookies of a request (RFC 6265).

/// The values of all cookies with that name in one Cookie header (RFC 6265 §4.2.1).
pub fn values<'h>(header: &'h [u8], name: &'h [u8]) -> impl Iterator<Item = &'h [u8]> {
    header.split(|byte| *byte == b';').filter_map(move |pair| {
        let at = memchr::memchr(b'=', pair)?;
        let (found, value) = (pair[..at].trim_ascii(), pair[at + 1..].trim_ascii());
        (found == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::values;
    use proptest::prelude::*;

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let found =
            |header: &'static str| -> Vec<&[u8]> { values(header.as_bytes(), b"cart").collect() };
        assert_eq!(found("cart=1"), [b"1"]);
        assert_eq!(
            found("a=b; cart=1;cart = 2 ; carts=3; xcart=4"),
            [b"1", b"2"]
        );
        assert_eq!(found("cart=a=b; cart="), [&b"a=b"[..], b""]);
        assert!(found("cart").is_empty() && found("Cart=1").is_empty());
        assert!(found("").is_empty() && found(";;=;= cart").is_empty());
    }

    proptest! {
        #[test]
        fn a_cookie_is_found_among_any_others(
            before in prop::collection::vec(any::<u8>(), 0..30),
            after in prop::collection::vec(any::<u8>(), 0..30),
        ) {
            let header = [&before[..], b"; session=x1; ", &after].concat();
            prop_assert!(values(&header, b"session").any(|value| value == b"x1"));
        }
    }
}
