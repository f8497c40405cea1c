//! The target of a load: parses the URL, resolves the addresses, and checks whether they belong to this machine.
//!
//! A host is resolved once. The checked addresses are the ones that are connected to, even if DNS changes.

use std::{
    fmt,
    net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket},
    path::{Path, PathBuf},
};

use http::{Uri, uri::PathAndQuery};

/// What a URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// The name or the address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The value of the `Host` header.
    pub authority: String,
    /// The socket, if it is not TCP.
    pub unix: Option<PathBuf>,
    /// The path and query.
    pub path: PathAndQuery,
}

/// Something to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP.
    Tcp(SocketAddr),
    /// A unix stream socket.
    Unix(PathBuf),
}

impl Url {
    /// Reads `http://HOST[:PORT][/PATH]` (the scheme may be left out), `unix:SOCKET[:/PATH]` or
    /// `http://unix:SOCKET[:/PATH]`; `unix`: the socket of `--unix`.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    pub fn read(text: &str, unix: Option<&Path>) -> Result<Url, String> {
        let bare = text.strip_prefix("http://").unwrap_or(text);
        if let Some(socket) = bare.strip_prefix("unix:") {
            return of_socket(socket, unix);
        }
        if text.starts_with("https://") {
            return Err(format!(
                "{text}: https is not built yet; use the http listener, or the port behind the TLS proxy"
            ));
        }
        let whole = match text.contains("://") {
            true => text.to_owned(),
            false => format!("http://{text}"),
        };
        // A fragment is never sent.
        let whole = whole.split('#').next().unwrap_or_default();
        let uri: Uri = whole
            .parse()
            .map_err(|error| format!("{text}: not a URL: {error}; write http://HOST:PORT/PATH"))?;
        if uri.scheme_str() != Some("http") {
            let scheme = uri.scheme_str().unwrap_or_default();
            return Err(format!("{text}: {scheme} is not http"));
        }
        let Some(authority) = uri.authority().filter(|name| !name.host().is_empty()) else {
            return Err(format!("{text}: the host is missing"));
        };
        if authority.as_str().contains('@') {
            return Err(format!(
                "{text}: write user and password as a header: -H 'Authorization: Basic …'"
            ));
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if authority.as_str().ends_with(authority.host()) => 80,
            None => return Err(format!("{text}: the port is not a number up to 65535")),
        };
        if port == 0 {
            return Err(format!("{text}: port 0 cannot be used"));
        }
        let host = authority.host();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Url {
            host: host.to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            unix: unix.map(Path::to_owned),
            path: uri.path_and_query().cloned().unwrap_or_else(root),
        })
    }

    /// The different addresses that it means.
    ///
    /// # Errors
    /// If the name is not known.
    pub fn places(&self) -> Result<Vec<Endpoint>, String> {
        if let Some(path) = &self.unix {
            return Ok(vec![Endpoint::Unix(path.clone())]);
        }
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found =
            found.map_err(|error| format!("the host {} does not resolve: {error}", self.host))?;
        let mut places = Vec::new();
        for address in found {
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            let place = Endpoint::Tcp(address);
            if !places.contains(&place) {
                places.push(place);
            }
        }
        match places.is_empty() {
            true => Err(format!("{} has no address", self.host)),
            false => Ok(places),
        }
    }
}

impl Endpoint {
    /// Whether it is on this machine.
    pub fn is_own(&self) -> bool {
        match self {
            Endpoint::Unix(_) => true,
            Endpoint::Tcp(address) => is_own(address.ip()),
        }
    }
}

/// Loopback, or an address of this machine. The kernel is asked by connecting a datagram socket, which sends nothing:
/// for an address of this machine it chooses that address as the source (RFC 6724 §5, rule 1).
fn is_own(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    let any: IpAddr = match ip {
        IpAddr::V4(_) => [0_u8; 4].into(),
        IpAddr::V6(_) => [0_u16; 8].into(),
    };
    let chosen = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, DISCARD))?;
        socket.local_addr()
    });
    chosen.is_ok_and(|chosen| chosen.ip() == ip)
}

fn of_socket(text: &str, unix: Option<&Path>) -> Result<Url, String> {
    if unix.is_some() {
        return Err("the socket is given twice: in the URL and with --unix".into());
    }
    let (socket, path) = match text.split_once(":/") {
        Some((socket, path)) => (socket, format!("/{path}")),
        None => (text.trim_end_matches(':'), "/".to_owned()),
    };
    if socket.is_empty() {
        return Err(
            "unix: must be followed by the path of a socket: unix:/run/web.sock:/index.php".into(),
        );
    }
    let path = path
        .parse()
        .map_err(|error| format!("unix:{text}: the path {path} is not valid: {error}"))?;
    Ok(Url {
        host: "localhost".to_owned(),
        port: 80,
        authority: "localhost".to_owned(),
        unix: Some(PathBuf::from(socket)),
        path,
    })
}

fn root() -> PathAndQuery {
    PathAndQuery::from_static("/")
}

/// The port of the discard protocol (RFC 863). Nothing is sent.
const DISCARD: u16 = 9;

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => address.fmt(f),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn anything_may_be_typed(text in "(http://|unix:|https://)?\\PC{0,40}") {
            if let Ok(url) = Url::read(&text, None) {
                prop_assert!(url.path.as_str().starts_with('/') || url.path.as_str().starts_with('?'));
                prop_assert!(url.unix.is_some() || url.port != 0 && !url.host.is_empty());
            }
        }
    }

    fn read(text: &str) -> Url {
        Url::read(text, None).unwrap_or_else(|wrong| panic!("{text}: {wrong}"))
    }

    #[test]
    fn urls_say_where_and_what() {
        for (text, host, port, authority, path) in [
            (
                "http://127.0.0.1:8080/a?b=c",
                "127.0.0.1",
                8080,
                "127.0.0.1:8080",
                "/a?b=c",
            ),
            (
                "http://shop.example",
                "shop.example",
                80,
                "shop.example",
                "/",
            ),
            ("localhost:81/x", "localhost", 81, "localhost:81", "/x"),
            ("http://[::1]:82/", "::1", 82, "[::1]:82", "/"),
            ("http://a/b#c", "a", 80, "a", "/b"),
        ] {
            let url = read(text);
            let found = (&*url.host, url.port, &*url.authority, url.path.as_str());
            assert_eq!(found, (host, port, authority, path), "{text}");
            assert_eq!(url.unix, None);
        }
    }

    #[test]
    fn sockets_are_named_in_three_ways() {
        for (text, path) in [
            ("unix:/run/a.sock", "/"),
            ("unix:/run/a.sock:/x?y", "/x?y"),
            ("http://unix:/run/a.sock:/x?y", "/x?y"),
        ] {
            let url = read(text);
            assert_eq!(url.unix, Some("/run/a.sock".into()), "{text}");
            assert_eq!(url.path.as_str(), path, "{text}");
        }
        let url = Url::read("http://shop.example/x", Some(Path::new("/a"))).unwrap();
        assert_eq!(
            (url.unix, &*url.authority),
            (Some("/a".into()), "shop.example")
        );
    }

    #[test]
    fn what_is_no_url_is_told() {
        for (text, word) in [
            ("https://127.0.0.1/", "https"),
            ("ftp://127.0.0.1/", "ftp"),
            ("http://", "not a URL"),
            ("http://a:b@127.0.0.1/", "Authorization"),
            ("http://127.0.0.1:0/", "port 0"),
            ("http://127.0.0.1:99999/", ""),
            ("http://a b/", "not a URL"),
            ("unix:", "socket"),
            ("unix:/a:/b c", "/b c"),
            ("", ""),
        ] {
            let wrong = Url::read(text, None).expect_err(text);
            assert!(wrong.contains(word), "{text}: {wrong}");
        }
        assert!(Url::read("unix:/a", Some(Path::new("/b"))).is_err());
    }

    #[test]
    fn this_machine_knows_its_own_addresses() {
        let own = |text: &str| Endpoint::Tcp(text.parse().unwrap()).is_own();
        assert!(own("127.0.0.1:80") && own("127.9.8.7:80") && own("[::1]:80") && own("0.0.0.0:80"));
        assert!(own("[::ffff:127.0.0.1]:80"));
        assert!(!own("192.0.2.1:80") && !own("203.0.113.9:1"));
        assert!(Endpoint::Unix("/a".into()).is_own());
    }

    #[test]
    fn a_name_that_nobody_has_is_told() {
        let url = read("http://no-such-host.invalid/");
        assert!(url.places().unwrap_err().contains("no-such-host.invalid"));
        let places = read("http://127.0.0.1:81/").places().unwrap();
        assert_eq!(places, [Endpoint::Tcp("127.0.0.1:81".parse().unwrap())]);
    }
}
