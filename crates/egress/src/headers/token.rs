//! The token of callers that come over TCP: `token_file` of `[egress]`.

use headers::{
    HeaderMapExt, ProxyAuthorization,
    authorization::{Basic, Bearer},
};
use http::header::PROXY_AUTHORIZATION;
use subtle::ConstantTimeEq;
use weir_http1::Name;

use super::super::{
    fault::{Fault, Kind},
    message::map,
};

/// `Proxy-Authenticate` of a 407 (RFC 9110 §11.7.1).
pub(crate) const CHALLENGE: &str = "Bearer realm=\"weir egress\", Basic realm=\"weir egress\"";

/// Checks the caller's token: `Proxy-Authorization: Bearer TOKEN`, or Basic with any user and the token as password,
/// which `http://any:TOKEN@127.0.0.1:8083` in `http_proxy` sends.
///
/// The time for this depends only on the token's length, not on how much of it is right.
///
/// # Errors
/// [`Kind::NoToken`].
pub(crate) fn authorized(fields: &weir_http1::ParsedFields, token: &str) -> Result<(), Fault> {
    let given = fields.all(Name::ProxyAuthorization);
    let headers = map(given.map(|value| (PROXY_AUTHORIZATION.as_str().as_bytes(), value)));
    let refused = |cause: &str| Err(Fault::unsent(Kind::NoToken, cause));
    match headers.get_all(PROXY_AUTHORIZATION).iter().count() {
        0 => {
            return refused(
                "call refused: the token of [egress] token_file is missing; send Proxy-Authorization: Bearer TOKEN",
            );
        }
        1 => {}
        _ => return refused("call refused: more than one Proxy-Authorization header; send one"),
    }
    let bearer: Option<ProxyAuthorization<Bearer>> = headers.typed_get();
    let basic: Option<ProxyAuthorization<Basic>> = headers.typed_get();
    let given = match (&bearer, &basic) {
        (Some(ProxyAuthorization(bearer)), _) => bearer.token().trim_end(),
        (None, Some(ProxyAuthorization(basic))) => basic.password(),
        (None, None) => {
            return refused(
                "call refused: Proxy-Authorization must be Bearer TOKEN, or Basic with the token as password",
            );
        }
    };
    // With an empty token nobody is allowed.
    match !token.is_empty() && bool::from(token.as_bytes().ct_eq(given.as_bytes())) {
        true => Ok(()),
        false => refused("call refused: the token is not the one in [egress] token_file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[&str]) -> weir_http1::ParsedFields {
        let mut fields = weir_http1::ParsedFields::default();
        for value in values {
            fields.push(b"proxy-authorization", value.as_bytes());
        }
        fields
    }

    #[test]
    fn who_knows_the_token_may_call() {
        for value in [
            "Bearer s3cret",
            "bearer  s3cret",
            "Basic YW55OnMzY3JldA==",
            "basic OnMzY3JldA==",
        ] {
            assert!(authorized(&with(&[value]), "s3cret").is_ok(), "{value}");
        }
    }

    #[test]
    fn who_does_not_may_not() {
        for values in [
            &[][..],
            &["Bearer s3cre"],
            &["Bearer s3cret0"],
            &["Bearer "],
            &["Bearer"],
            &["s3cret"],
            &["Basic s3cret"],
            // The password is not the token: s3cret:any
            &["Basic czNjcmV0OmFueQ=="],
            &["Digest s3cret"],
            &["Bearer s3cret", "Bearer s3cret"],
        ] {
            let refused = authorized(&with(values), "s3cret").expect_err("no token");
            assert_eq!(refused.kind, Kind::NoToken, "{values:?}");
            assert!(!refused.message.contains("s3cre"), "{}", refused.message);
        }
        assert!(authorized(&with(&["Bearer "]), "").is_err());
        assert!(authorized(&with(&["Basic Og=="]), "").is_err());
    }
}
