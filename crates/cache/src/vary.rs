//! Which requests an answer is for (`Vary`, RFC 9111 §4.1).

use weir_semantics::{
    coding::{Accepted, Coding},
    fields::elements,
};

use super::{fields::Fields, status::Reason};

/// The fields of a request by which an answer was chosen.
///
/// It is a function of the answer's fields, so a store need not keep it. What it must keep are the bytes of
/// [`Vary::selects`] for the request that got the answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vary {
    /// In lower case, in order, each once.
    names: Vec<Box<str>>,
    /// The answer has no content coding, or only such as weir knows. So the other codings that a request accepts do not matter.
    has_known_coding: bool,
}

impl Vary {
    /// Reads it.
    ///
    /// # Errors
    /// If no other request can be known to get the same answer: it depends on everything, on more than [`MOST_FIELDS`] fields, or on
    /// something that cannot be read.
    pub fn of(answer: &impl Fields) -> Result<Vary, Reason> {
        let mut names: Vec<Box<str>> = Vec::new();
        for name in answer.values("vary").flat_map(elements) {
            if name == b"*" {
                return Err(Reason::VaryAll);
            }
            let name = name.to_ascii_lowercase();
            let text = std::str::from_utf8(&name).map_err(|_| Reason::VaryUnreadable)?;
            weir_http1::check_field(&name, b"").map_err(|_| Reason::VaryUnreadable)?;
            names.push(text.into());
        }
        names.sort_unstable();
        names.dedup();
        if names.len() > MOST_FIELDS {
            return Err(Reason::VaryMuch);
        }
        let mut codings = answer.values("content-encoding").flat_map(elements);
        let is_known = |coding: &[u8]| {
            KNOWN
                .iter()
                .any(|known| coding.eq_ignore_ascii_case(known.name().as_bytes()))
        };
        Ok(Vary {
            names,
            has_known_coding: codings.all(is_known),
        })
    }

    /// Whether the answer is for all requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names of the fields, in lower case.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// As bytes, for a store: [`Vary::from_bytes`] reads them.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.has_known_coding)];
        for name in self.names() {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b',');
        }
        bytes
    }

    /// Reads what [`Vary::to_bytes`] wrote; `None`: something else has written these bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Vary> {
        let (has_known_coding, names) = bytes.split_first()?;
        let names = std::str::from_utf8(names).ok()?;
        Some(Vary {
            names: names.split_terminator(',').map(Into::into).collect(),
            has_known_coding: *has_known_coding == 1,
        })
    }

    /// What a request says in these fields, normalised: requests with equal bytes get the same answer. Empty, if the answer is for
    /// all requests.
    #[must_use]
    pub fn selects(&self, request: &impl Fields) -> Vec<u8> {
        let mut all = Vec::new();
        for name in self.names() {
            let value = match name {
                "accept-encoding" if self.has_known_coding => codings(request),
                "accept-language" => list(request, name).map(|mut languages| {
                    // They have no case. Their order stays: applications take the first of equals.
                    languages.make_ascii_lowercase();
                    languages
                }),
                _ => list(request, name),
            };
            // A field that is absent is not one that is empty. The length keeps values apart.
            let length = value.as_ref().map_or(u32::MAX, |value| value.len() as u32);
            all.extend_from_slice(&length.to_be_bytes());
            all.extend(value.unwrap_or_default());
        }
        all
    }
}

/// An answer that varies by more fields is not stored.
pub const MOST_FIELDS: usize = 16;

/// The codings that weir knows, in the order of preference.
const KNOWN: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// Of `Accept-Encoding` only the known codings that the client accepts, whatever it says of them and of others. `None`: it accepts none of them.
fn codings(request: &impl Fields) -> Option<Vec<u8>> {
    let accepted = Accepted::of(request.values("accept-encoding"));
    let mut names = KNOWN
        .iter()
        .filter(|coding| accepted.accepts(**coding))
        .map(|coding| coding.name());
    let mut all = names.next()?.to_owned();
    for name in names {
        all.push_str(", ");
        all.push_str(name);
    }
    Some(all.into_bytes())
}

/// A field as a list: white space around its commas means nothing, nor do empty elements or several lines (RFC 9110 §5.6.1).
fn list(request: &impl Fields, name: &str) -> Option<Vec<u8>> {
    let mut values = request.values(name).peekable();
    values.peek()?;
    let mut all = Vec::new();
    for element in values.flat_map(elements) {
        if !all.is_empty() {
            all.push(b',');
        }
        all.extend_from_slice(element);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fields::Lines;

    fn vary(answer: &str) -> Result<Vary, Reason> {
        Vary::of(&Lines(answer.as_bytes()))
    }

    fn are_alike(answer: &str, one: &str, other: &str) -> bool {
        let vary = vary(answer).unwrap();
        vary.selects(&Lines(one.as_bytes())) == vary.selects(&Lines(other.as_bytes()))
    }

    #[test]
    fn names_are_read_in_any_form() {
        let both = vary("Vary: B , ,a\r\nvary: A\r\n").unwrap();
        assert_eq!(both.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(Vary::from_bytes(&both.to_bytes()), Some(both));
        let none = Vary::default();
        assert_eq!(Vary::from_bytes(&none.to_bytes()), Some(none));
        assert!(vary("x: y\r\n").unwrap().is_empty());
        for all in ["*", "a, *", ", *", "*, *"] {
            let answer = format!("vary: {all}\r\n");
            assert_eq!(vary(&answer), Err(Reason::VaryAll), "{all}");
        }
        assert_eq!(vary("vary: a b\r\n"), Err(Reason::VaryUnreadable));
        assert_eq!(vary("vary: \u{e9}\r\n"), Err(Reason::VaryUnreadable));
        let names = |count: usize| (0..count).map(|n| format!("x{n},")).collect::<String>();
        assert!(vary(&format!("vary: {}\r\n", names(16))).is_ok());
        let many = format!("vary: {}\r\n", names(17));
        assert_eq!(vary(&many), Err(Reason::VaryMuch));
    }

    #[test]
    fn requests_are_compared_by_what_the_answer_varies_by() {
        let by_two = "vary: foo, bar\r\n";
        assert!(are_alike(
            by_two,
            "foo: 1\r\nx: 1\r\n",
            "x: 2\r\nFoo:  1 \r\n"
        ));
        assert!(are_alike(by_two, "foo: 1, 2\r\n", "foo: 1\r\nfoo: 2\r\n"));
        assert!(!are_alike(by_two, "foo: 1\r\n", "foo: 1\r\nbar: 1\r\n"));
        assert!(!are_alike(by_two, "foo: 1\r\n", "bar: 1\r\n"));
        assert!(!are_alike(by_two, "foo:\r\n", ""));
        assert!(are_alike(by_two, "foo: 1,2\r\n", "foo:  1 , 2\r\n"));
        assert!(!are_alike(by_two, "foo: \"1,2\"\r\n", "foo: \"1, 2\"\r\n"));
        assert!(!are_alike(by_two, "foo: 1 2\r\n", "foo: 12\r\n"));
    }

    #[test]
    fn codings_that_no_answer_uses_do_not_divide() {
        let answer = "vary: Accept-Encoding\r\ncontent-encoding: GZIP\r\n";
        let says = |value: &str| format!("accept-encoding: {value}\r\n");
        let like = |one: &str, other: &str| are_alike(answer, &says(one), &says(other));
        assert!(like("gzip, deflate, br", "br;q=1.0,gzip;q=0.1, dcb"));
        assert!(!like("gzip, br", "gzip") && !like("gzip, br", "gzip, br;q=0"));
        assert!(are_alike(answer, &says("deflate"), ""));
        // Here the answer itself has a coding that the others do not say they accept.
        let strange = "vary: accept-encoding\r\ncontent-encoding: deflate\r\n";
        assert!(!are_alike(strange, &says("deflate"), ""));
    }

    #[test]
    fn languages_keep_their_order() {
        let answer = "vary: accept-language\r\n";
        let says = |value: &str| format!("accept-language: {value}\r\n");
        let like = |one: &str, other: &str| are_alike(answer, &says(one), &says(other));
        assert!(like("en, de;q=0.5", "eN ,De;q=0.5"));
        assert!(!like("en, de", "de, en"));
    }

    proptest! {
        #[test]
        fn any_vary_is_taken(value in "[ -~]{0,40}", request in "[ -~\r\n]{0,60}") {
            if let Ok(vary) = vary(&format!("vary: {value}\r\n")) {
                let _ = vary.selects(&Lines(request.as_bytes()));
            }
        }

        /// Values are never confused, however they are put together.
        #[test]
        fn other_values_are_other_bytes(one in ("[a,]{0,4}", "[a,]{0,4}"), other in ("[a,]{0,4}", "[a,]{0,4}")) {
            let says = |(a, b): &(String, String)| format!("a: {a}\r\nb: {b}\r\n");
            let alike = are_alike("vary: a, b\r\n", &says(&one), &says(&other));
            let lists = |(a, b): &(String, String)| {
                let list = |text: &str| text.split(',').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
                (list(a), list(b))
            };
            prop_assert_eq!(alike, lists(&one) == lists(&other));
        }
    }
}
