//! The head of a request, whatever it came over.

use http::{Method, Uri, Version};
use weir_http1::{Fields, Name};

/// The head of a request.
#[derive(Debug, Default)]
pub struct Head {
    pub method: Method,
    pub version: Version,
    /// In the spelling of a URI.
    pub uri: Uri,
    /// Path and query as received, if `uri` has them in another spelling.
    pub received: Option<Box<[u8]>>,
    pub fields: Fields,
}

impl Head {
    /// The value of the first field of this name, in any case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        match Name::of(name.as_bytes()) {
            Some(known) => self.fields.get(known),
            None => {
                let is = |found: &[u8]| found.eq_ignore_ascii_case(name.as_bytes());
                let found = self.fields.iter().find(|(_, found, _)| is(found));
                found.map(|(_, _, value)| value)
            }
        }
    }
}
