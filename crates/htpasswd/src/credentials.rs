//! A user and a password, as a client sends them (RFC 7617).

use std::fmt;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Not empty.
    pub user: Vec<u8>,
    /// At most 1024 bytes, none of them NUL.
    pub password: Vec<u8>,
}

impl Credentials {
    /// Reads the value of `Authorization`: `Basic dXNlcjpwYXNz`. `None` if it is something else, or not valid.
    pub fn parse(authorization: &[u8]) -> Option<Credentials> {
        let (scheme, rest) = authorization.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let mut user = BASE64.decode(rest.trim_ascii()).ok()?;
        let colon = user.iter().position(|byte| *byte == b':')?;
        let password = user.split_off(colon + 1);
        user.pop();
        let is_valid = !user.is_empty() && password.len() <= LONGEST && !password.contains(&0);
        is_valid.then_some(Credentials { user, password })
    }
}

/// Without the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.user.escape_ascii())
    }
}

/// Some clients leave out the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The longest password, bytes.
const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read() {
        let read = |value: &str| {
            Credentials::parse(value.as_bytes())
                .map(|credentials| (credentials.user, credentials.password))
        };
        let some = |user: &str, password: &str| Some((user.into(), password.into()));
        assert_eq!(
            read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            some("Aladdin", "open sesame")
        );
        assert_eq!(
            read("bAsIc  QWxhZGRpbjpvcGVuIHNlc2FtZQ "),
            some("Aladdin", "open sesame")
        );
        // a:b:c, and z:
        assert_eq!(read("Basic YTpiOmM="), some("a", "b:c"));
        assert_eq!(read("Basic ejo="), some("z", ""));
        // no colon; no user; a NUL; not base64; another scheme
        for wrong in [
            "Basic YWJj",
            "Basic OmI=",
            "Basic YToA",
            "Basic ?",
            "Bearer YTpi",
            "Basic",
            "",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
