//! Access control of the admin interface.
//!
//! A unix socket has permissions: every process that may connect may do everything. Over TCP anybody may connect:
//!
//! | | allowed for |
//! |---|---|
//! | `/metrics`, `/healthz`, `/readyz`, the page without its figures | everybody who reaches the port |
//! | `/status` | clients with the token; and clients on this machine that use its address as the host |
//! | actions | clients with the token |
//!
//! The status shows what clients request. About "its address": a web page of another origin that uses a name for this
//! machine (DNS rebinding) sends that name in `Host`. An action needs a header that browsers do not send to another
//! origin without permission, and weir never gives that permission.

use std::net::{IpAddr, SocketAddr};

use http::StatusCode;
use subtle::ConstantTimeEq;
use weir_http1::{Name, ParsedFields};

/// How a client is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// Over the unix socket.
    Unix,
    /// Over TCP, from this address.
    Tcp(SocketAddr),
}

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// Allowed for everybody.
    Nothing,
    /// The path shows what clients do.
    Sight,
    /// The path performs an action.
    Action,
}

/// A refusal: its status, and how to get access.
pub(super) type No = (StatusCode, &'static str);

/// Whether a client that is connected by `way`, with these headers, may have what it `needs`.
///
/// # Errors
/// Why not.
pub(super) fn check(
    transport: Transport,
    needs: Needs,
    headers: &ParsedFields,
    token: Option<&str>,
) -> Result<(), No> {
    let Transport::Tcp(peer) = transport else {
        return Ok(());
    };
    if needs == Needs::Nothing {
        return Ok(());
    }
    let given = given(headers);
    if let (Some(token), Some(given)) = (token, given) {
        return match token.as_bytes().ct_eq(given).into() {
            true => Ok(()),
            false => Err((StatusCode::UNAUTHORIZED, "wrong token")),
        };
    }
    let is_near = peer.ip().to_canonical().is_loopback();
    match (needs, token) {
        (Needs::Sight, _) if is_near && names_an_address(headers) => Ok(()),
        (Needs::Sight, None) if is_near => Err((
            StatusCode::FORBIDDEN,
            "over TCP, the status is answered only for an IP address or localhost as the host name",
        )),
        (_, Some(_)) => Err((
            StatusCode::UNAUTHORIZED,
            "this needs the token of admin_token_file: send Authorization: Bearer TOKEN",
        )),
        (Needs::Sight | Needs::Nothing, None) => Err((
            StatusCode::FORBIDDEN,
            "the status shows requests of clients, so over TCP other machines need a \
             token: set admin_token_file in [server]",
        )),
        (Needs::Action, None) => Err((
            StatusCode::FORBIDDEN,
            "actions over TCP need a token: set admin_token_file in [server], or use the unix socket",
        )),
    }
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750 §2.1).
fn given(headers: &ParsedFields) -> Option<&[u8]> {
    let value = headers.get(Name::Authorization)?;
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| rest.trim_ascii())
}

/// Whether the request names this machine by an address or as localhost. A request without `Host` does not come from
/// a browser.
fn names_an_address(headers: &ParsedFields) -> bool {
    let Some(host) = headers.get(Name::Host) else {
        return true;
    };
    let Ok(host) = str::from_utf8(host) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn asked(
        transport: Transport,
        needs: Needs,
        token: Option<&str>,
        given: &[(Name, &str)],
    ) -> u16 {
        let mut headers = ParsedFields::default();
        for (name, value) in given {
            headers.push(name.as_str().as_bytes(), value.as_bytes());
        }
        match check(transport, needs, &headers, token) {
            Ok(()) => 200,
            Err((status, _)) => status.as_u16(),
        }
    }

    #[test]
    fn who_may_do_what() {
        let near = Transport::Tcp("127.0.0.1:5".parse().unwrap());
        let mapped = Transport::Tcp("[::ffff:127.0.0.1]:5".parse().unwrap());
        let far = Transport::Tcp("192.0.2.1:5".parse().unwrap());
        let by_address = &[(Name::Host, "127.0.0.1:9180")][..];
        let by_v6 = &[(Name::Host, "[::1]:9180")][..];
        let by_name = &[(Name::Host, "evil.example")][..];
        let right = &[
            (Name::Host, "weir.example"),
            (Name::Authorization, "bearer 0123456789abcdef"),
        ][..];
        let wrong = &[
            (Name::Host, "127.0.0.1"),
            (Name::Authorization, "Bearer 0123456789abcdeF"),
        ][..];
        let strange = &[(Name::Authorization, "Basic 0123456789abcdef")][..];
        for (transport, needs, token, headers, status) in [
            (Transport::Unix, Needs::Action, Some(TOKEN), &[][..], 200),
            (far, Needs::Nothing, None, by_name, 200),
            (near, Needs::Sight, None, by_address, 200),
            (near, Needs::Sight, None, by_v6, 200),
            (near, Needs::Sight, Some(TOKEN), by_address, 200),
            (mapped, Needs::Sight, None, &[], 200),
            (near, Needs::Sight, None, by_name, 403),
            (near, Needs::Sight, Some(TOKEN), by_name, 401),
            (near, Needs::Sight, Some(TOKEN), right, 200),
            (near, Needs::Sight, Some(TOKEN), wrong, 401),
            (far, Needs::Sight, None, by_address, 403),
            (far, Needs::Sight, Some(TOKEN), by_address, 401),
            (far, Needs::Sight, Some(TOKEN), right, 200),
            (near, Needs::Action, None, by_address, 403),
            (near, Needs::Action, None, right, 403),
            (near, Needs::Action, Some(TOKEN), by_address, 401),
            (near, Needs::Action, Some(TOKEN), strange, 401),
            (near, Needs::Action, Some(TOKEN), wrong, 401),
            (near, Needs::Action, Some(TOKEN), right, 200),
        ] {
            let got = asked(transport, needs, token, headers);
            assert_eq!(got, status, "{transport:?} {needs:?} {token:?} {headers:?}");
        }
    }
}
