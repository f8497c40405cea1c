//! `Cache-Control` (RFC 9111 §5.2) and the targeted fields (RFC 9213).
//!
//! They are read strictly where leniency would store what must not be stored: a line that cannot be read may have said
//! `private`, and a number that cannot be read is no lifetime.

use std::convert::Infallible;

use sfv::{
    BareItemFromInput, KeyRef, Parser,
    visitor::{
        DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ParameterVisitor,
    },
};
use weir_semantics::fields::elements;

use super::fields::Fields;

/// What a request or an answer says. Unknown directives are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directives {
    /// `no-store`
    pub no_store: bool,
    /// `no-cache` that is about the whole answer.
    pub no_cache: bool,
    /// `private` that is about the whole answer.
    pub private: bool,
    /// `public`
    pub public: bool,
    /// `must-revalidate`
    pub must_revalidate: bool,
    /// `proxy-revalidate`
    pub proxy_revalidate: bool,
    /// `must-understand`
    pub must_understand: bool,
    /// `only-if-cached`
    pub only_if_cached: bool,
    /// `max-age`
    pub max_age: Seconds,
    /// `s-maxage`
    pub s_maxage: Seconds,
    /// `stale-while-revalidate` (RFC 5861 §3)
    pub stale_while_revalidate: Seconds,
    /// `stale-if-error` (RFC 5861 §4)
    pub stale_if_error: Seconds,
    /// `min-fresh`
    pub min_fresh: Seconds,
    /// `max-stale`; without an argument: [`MOST_SECONDS`].
    pub max_stale: Seconds,
    /// Names of fields, in lower case, that `no-cache` or `private` limits to one client. They are not stored.
    pub limited: Vec<Box<[u8]>>,
    /// A part of it cannot be read and may have said anything.
    pub is_garbled: bool,
}

/// The argument of a directive in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Seconds {
    /// The directive does not occur.
    #[default]
    Absent,
    /// The directive occurs without a number, or twice with different ones.
    Unclear,
    /// At most [`MOST_SECONDS`].
    Of(u64),
}

/// Larger numbers count as this one (RFC 9111 §1.2.2).
pub const MOST_SECONDS: u64 = 1 << 31;

impl Seconds {
    /// The seconds, if they are clear.
    #[must_use]
    pub fn clear(self) -> Option<u64> {
        match self {
            Seconds::Of(seconds) => Some(seconds),
            Seconds::Absent | Seconds::Unclear => None,
        }
    }

    /// A lifetime in milliseconds: none that is unclear (RFC 9111 §4.2.1). `None`: the directive does not occur.
    #[must_use]
    pub fn lifetime(self) -> Option<u64> {
        match self {
            Seconds::Absent => None,
            Seconds::Unclear => Some(0),
            Seconds::Of(seconds) => Some(seconds * 1000),
        }
    }

    fn add(&mut self, argument: Option<&[u8]>) {
        let new = argument.and_then(delta_seconds);
        *self = match (*self, new) {
            (Seconds::Absent, Some(new)) => Seconds::Of(new),
            (Seconds::Of(old), Some(new)) if old == new => *self,
            _ => Seconds::Unclear,
        };
    }
}

impl Directives {
    /// Reads all `Cache-Control` of a request or an answer.
    #[must_use]
    pub fn of(fields: &impl Fields) -> Directives {
        let mut directives = Directives::default();
        for value in fields.values("cache-control") {
            directives.is_garbled |= !value.is_ascii();
            for element in elements(value) {
                directives.read(element);
            }
        }
        directives
    }

    /// What counts for this cache in an answer (RFC 9213 §2.2): the first of the targeted fields that occurs, has content and is valid.
    /// `None`: there is none, so that `Cache-Control` and `Expires` count.
    #[must_use]
    pub fn targeted(fields: &impl Fields, names: &[&str]) -> Option<Directives> {
        names
            .iter()
            .find_map(|name| Directives::structured(fields, name))
    }

    /// Whether it has a directive that makes the answer usable for everybody, whoever has asked first (RFC 9111 §3.5).
    #[must_use]
    pub fn are_for_all(&self) -> bool {
        self.public || self.s_maxage != Seconds::Absent
    }

    /// Reads `name`, `name=token` or `name="quoted"`.
    fn read(&mut self, element: &[u8]) {
        let (name, argument) = match memchr::memchr(b'=', element) {
            Some(at) => (&element[..at], Some(element[at + 1..].trim_ascii())),
            None => (element, None),
        };
        let unquoted = argument.and_then(unquote);
        let is_quoted = unquoted.is_some();
        // A quotation mark that belongs to no pair: where the string should have ended is unknown.
        if !is_quoted && element.contains(&b'"') {
            self.is_garbled = true;
        }
        let argument = unquoted.as_deref().or(argument);
        let name = name.trim_ascii().to_ascii_lowercase();
        self.add(&name, argument, is_quoted);
    }

    fn add(&mut self, name: &[u8], argument: Option<&[u8]>, is_quoted: bool) {
        match name {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache |= !self.limits(argument, is_quoted),
            b"private" => self.private |= !self.limits(argument, is_quoted),
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-stale" if argument.is_none() => self.max_stale.add(Some(MANY)),
            _ => {
                if let Some(seconds) = self.seconds(name) {
                    seconds.add(argument);
                }
            }
        }
    }

    /// The directive whose argument is a number.
    fn seconds(&mut self, name: &[u8]) -> Option<&mut Seconds> {
        match name {
            b"max-age" => Some(&mut self.max_age),
            b"s-maxage" => Some(&mut self.s_maxage),
            b"stale-while-revalidate" => Some(&mut self.stale_while_revalidate),
            b"stale-if-error" => Some(&mut self.stale_if_error),
            b"min-fresh" => Some(&mut self.min_fresh),
            b"max-stale" => Some(&mut self.max_stale),
            _ => None,
        }
    }

    /// Takes the names of fields in the argument of `no-cache` or `private`. False: it names none, or something else, so that the directive is about
    /// the whole answer.
    fn limits(&mut self, argument: Option<&[u8]>, is_quoted: bool) -> bool {
        let names = argument.filter(|_| is_quoted).unwrap_or_default();
        let names: Vec<Box<[u8]>> = elements(names)
            .map(|name| name.to_ascii_lowercase().into())
            .collect();
        let is_list = !names.is_empty() && names.iter().all(|name| is_token(name));
        if is_list {
            self.limited.extend(names);
        }
        is_list
    }

    /// Reads a targeted field: a dictionary of RFC 9651. One that is no dictionary, or has no member, does not count. Neither does one whose known
    /// directives have another type than they should: what it means is not clear.
    fn structured(fields: &impl Fields, name: &str) -> Option<Directives> {
        let text = super::fields::joined(fields, name)?;
        let mut reading = Structured::default();
        Parser::new(&text)
            .parse_dictionary_with_visitor(&mut reading)
            .ok()?;
        (reading.members > 0 && !reading.is_wrong).then_some(reading.directives)
    }
}

/// A targeted field while it is read.
#[derive(Default)]
struct Structured {
    directives: Directives,
    members: usize,
    is_wrong: bool,
}

/// A member of it.
struct Member<'s, 't> {
    reading: &'s mut Structured,
    name: &'t str,
}

impl<'t> DictionaryVisitor<'t> for Structured {
    type Error = Infallible;

    fn entry(&mut self, key: &'t KeyRef) -> Result<impl EntryVisitor<'t>, Infallible> {
        self.members += 1;
        Ok(Member {
            reading: self,
            name: key.as_str(),
        })
    }
}

impl<'t> ItemVisitor<'t> for Member<'_, 't> {
    type Error = Infallible;

    fn bare_item(
        self,
        item: BareItemFromInput<'t>,
    ) -> Result<impl ParameterVisitor<'t>, Infallible> {
        let said = &mut self.reading.directives;
        if let Some(seconds) = said.seconds(self.name.as_bytes()) {
            match item {
                BareItemFromInput::Integer(number) => {
                    let number = u64::try_from(i64::from(number)).ok();
                    *seconds = number.map_or(Seconds::Unclear, |number| {
                        Seconds::Of(number.min(MOST_SECONDS))
                    });
                }
                BareItemFromInput::Boolean(true) if self.name == "max-stale" => {}
                _ => self.reading.is_wrong = true,
            }
        } else if item != BareItemFromInput::Boolean(false) {
            // Whatever else is said with it: what is forbidden stays forbidden.
            said.add(self.name.as_bytes(), None, false);
        }
        Ok(Ignored)
    }
}

impl<'t> EntryVisitor<'t> for Member<'_, 't> {
    fn inner_list(self) -> Result<impl InnerListVisitor<'t>, Infallible> {
        let said = &mut self.reading.directives;
        if said.seconds(self.name.as_bytes()).is_some() {
            self.reading.is_wrong = true;
        } else {
            said.add(self.name.as_bytes(), None, false);
        }
        Ok(Ignored)
    }
}

/// A number of seconds (RFC 9111 §1.2.2): digits and nothing else.
#[must_use]
pub fn delta_seconds(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = || {
        digits.iter().fold(0_u64, |number, digit| {
            number
                .saturating_mul(10)
                .saturating_add(u64::from(digit - b'0'))
        })
    };
    is_number.then(|| number().min(MOST_SECONDS))
}

/// The text of a quoted string (RFC 9110 §5.6.4); `None` if it is none.
fn unquote(argument: &[u8]) -> Option<Vec<u8>> {
    let [b'"', quoted @ .., b'"'] = argument else {
        return None;
    };
    let (mut text, mut bytes) = (Vec::new(), quoted.iter());
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => return None,
            b'\\' => text.push(*bytes.next()?),
            _ => text.push(byte),
        }
    }
    Some(text)
}

fn is_token(name: &[u8]) -> bool {
    weir_http1::check_field(name, b"").is_ok()
}

/// [`MOST_SECONDS`], for a `max-stale` without an argument.
const MANY: &[u8] = b"2147483648";

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};
    use proptest::prelude::*;

    use super::*;

    fn of(lines: &[&str]) -> Directives {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::CACHE_CONTROL, line.parse().unwrap());
        }
        Directives::of(&headers)
    }

    fn targeted(lines: &[&str]) -> Option<Directives> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("cdn-cache-control", line.parse().unwrap());
        }
        Directives::targeted(&headers, &["weir-cache-control", "cdn-cache-control"])
    }

    #[test]
    fn directives_are_read_as_they_are_written() {
        let all = of(&[
            "Public, NO-STORE,must-revalidate",
            "proxy-revalidate , max-age=1",
        ]);
        assert!(all.public && all.no_store && all.must_revalidate && all.proxy_revalidate);
        assert_eq!(all.max_age, Seconds::Of(1));
        assert!(!all.private && !all.no_cache && !all.is_garbled);
        let last = of(&[" ,, =, =5, must-understand, only-if-cached, max-stale"]);
        assert!(last.must_understand && last.only_if_cached && !last.is_garbled);
        assert_eq!(last.max_stale, Seconds::Of(MOST_SECONDS));
        assert_eq!(of(&[""]), Directives::default());
    }

    #[test]
    fn a_lifetime_is_a_number_and_one_number() {
        for (line, expected) in [
            ("max-age=60", Seconds::Of(60)),
            ("max-age=\"60\"", Seconds::Of(60)),
            ("max-age = 60", Seconds::Of(60)),
            ("max-age=0060", Seconds::Of(60)),
            ("max-age=99999999999999999999999", Seconds::Of(MOST_SECONDS)),
            ("max-age=60, max-age=60", Seconds::Of(60)),
            ("x=\"max-age=60\"", Seconds::Absent),
            ("x=\"max-age=60\", max-age=1", Seconds::Of(1)),
            ("max-age", Seconds::Unclear),
            ("max-age=", Seconds::Unclear),
            ("max-age=+60", Seconds::Unclear),
            ("max-age=-60", Seconds::Unclear),
            ("max-age=6.0", Seconds::Unclear),
            ("max-age='60'", Seconds::Unclear),
            ("max-age=60, max-age=61", Seconds::Unclear),
            ("max-age=x, max-age=61", Seconds::Unclear),
        ] {
            assert_eq!(of(&[line]).max_age, expected, "{line}");
        }
        assert_eq!(Seconds::Unclear.lifetime(), Some(0));
        assert_eq!(Seconds::Of(2).lifetime(), Some(2000));
    }

    #[test]
    fn fields_that_are_for_one_client_are_named() {
        let some = of(&["private=\"X-A, x-b\", no-cache=\"c\""]);
        let limited: Vec<&[u8]> = some.limited.iter().map(|name| &**name).collect();
        assert_eq!(limited, [&b"x-a"[..], b"x-b", b"c"]);
        assert!(!some.private && !some.no_cache && !some.is_garbled);
        // What names no field is about the whole answer.
        for whole in [
            "private",
            "private=\"\"",
            "private=x",
            "private=\"a b\"",
            "private=\",\"",
        ] {
            assert!(of(&[whole]).private, "{whole}");
        }
        assert!(of(&["no-cache=\"a\", no-cache"]).no_cache);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for line in ["private=\"x", "a\"b", "x=\"a\"b\""] {
            assert!(of(&[line]).is_garbled, "{line}");
        }
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_bytes(b"public\xff").unwrap();
        headers.insert(header::CACHE_CONTROL, value);
        assert!(Directives::of(&headers).is_garbled);
    }

    #[test]
    fn targeted_fields_are_read_as_structured_fields() {
        let max_age = |line: &str| targeted(&[line]).map(|said| said.max_age);
        assert_eq!(max_age("max-age=60"), Some(Seconds::Of(60)));
        assert_eq!(max_age("foo, max-age=60;x=1"), Some(Seconds::Of(60)));
        assert_eq!(
            max_age("max-age=99999999999"),
            Some(Seconds::Of(MOST_SECONDS))
        );
        assert_eq!(max_age("max-age=-1"), Some(Seconds::Unclear));
        assert_eq!(max_age("max-age=5, max-age=60"), Some(Seconds::Of(60)));
        assert_eq!(max_age("no-store"), Some(Seconds::Absent));
        for none in [
            "",
            "max-age=60, &&&",
            "max-age=\"60\"",
            "max-age=6.0",
            "max-age =60",
            "max-age= 60",
            "MAX-AGE=60",
            "max-age",
            "max-age=(1)",
        ] {
            assert_eq!(max_age(none), None, "{none}");
        }
        assert!(targeted(&["max-age=5", "private"]).unwrap().private);
        assert!(!targeted(&["max-age=5, private=?0"]).unwrap().private);
        for forbidding in ["private=\"x\"", "private=(a b)", "private=1"] {
            assert!(targeted(&[forbidding]).unwrap().private, "{forbidding}");
        }
    }

    #[test]
    fn the_first_targeted_field_that_can_be_read_counts() {
        let mut headers = HeaderMap::new();
        headers.append("cdn-cache-control", HeaderValue::from_static("max-age=5"));
        headers.append("weir-cache-control", HeaderValue::from_static("&"));
        let names = ["weir-cache-control", "cdn-cache-control"];
        let said = |headers: &HeaderMap| Directives::targeted(headers, &names).unwrap().max_age;
        assert_eq!(said(&headers), Seconds::Of(5));
        headers.insert("weir-cache-control", HeaderValue::from_static("max-age=7"));
        assert_eq!(said(&headers), Seconds::Of(7));
    }

    proptest! {
        #[test]
        fn any_line_is_taken(line in "[ -~]{0,40}") {
            let _ = of(&[&line]);
            let _ = targeted(&[&line]);
        }

        /// However it is written around it, a directive that forbids is seen.
        #[test]
        fn no_store_is_never_lost(before in "[ -!#-~]{0,12}", after in "[ -!#-~]{0,12}") {
            let said = of(&[&format!("{before},No-Store,{after}")]);
            prop_assert!(said.no_store);
        }
    }
}
