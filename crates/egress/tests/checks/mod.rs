//! Properties of every call, with any bytes from its caller. Unit tests check them with composed calls, `fuzz/` with
//! found bytes.
//!
//! The second parser is the `url` crate, which reads like browsers (WHATWG URL): it resolves dot segments, treats `\`
//! as `/`, and reads numbers as addresses. A URL that weir accepts must mean the same to that parser.

use std::{net::IpAddr, path::Path, sync::OnceLock};

use http::{HeaderValue, Method, Uri};
use url::{Host, Url};
use weir_config::{Environment, Scheme};

use super::{
    rules::{Rules, Who},
    target::{Form, Target, target},
};

/// Rules of each kind; [`may_be_called`] has the same rules as code.
const EGRESS: &str = r#"
    allow = [
        "api.example.com",
        "GET only.example.com/v1/",
        "*.partner.example:8443",
        "http://legacy.internal:8080",
        "http://127.0.0.1:8081",
    ]
    upgrade = ["api.example.com"]
    connect = true
"#;

/// The rules of an `[egress]` section, without its heading.
///
/// # Panics
/// If a rule is invalid.
pub(crate) fn rules(egress: &str) -> Rules {
    let environment = Environment {
        folder: Path::new("/").into(),
        cores: 4,
        memory: 1 << 32,
        open_files: 1 << 16,
    };
    let text = format!(
        "[listen.web]\naddress = \"127.0.0.1:8080\"\n[site.main]\nroot = \"/srv\"\n\
         [pool.a]\nruntime = \"servers\"\nservers = [\"127.0.0.1:9000\"]\n\
         [pool.b]\nruntime = \"servers\"\nservers = [\"127.0.0.1:9001\"]\n[egress]\n{egress}"
    );
    let config = weir_config::parse("weir.toml", &text, &environment);
    let config = config.unwrap_or_else(|wrong| panic!("{wrong:?}"));
    Rules::new(&config.egress.expect("[egress] is there"))
}

/// Parses a call, applies the rules, and compares the result with that of the other parser.
///
/// # Panics
/// If both differ in something that weir has accepted.
pub fn call(method: &str, written: &str, host: Option<&str>) {
    let (Ok(method), Ok(uri)) = (
        Method::from_bytes(method.as_bytes()),
        Uri::try_from(written),
    ) else {
        return;
    };
    let mut headers = weir_http1::ParsedFields::default();
    if let Some(host) = host {
        if HeaderValue::from_str(host).is_err() {
            return;
        }
        headers.push(b"Host", host.as_bytes());
    }
    static RULES: OnceLock<Rules> = OnceLock::new();
    let rules = RULES.get_or_init(|| rules(EGRESS));
    let Ok(target) = target(&method, &uri, &headers, rules) else {
        return;
    };
    is_one_host_to_all(&target, &uri);
    if target.form != Form::Tunnel {
        let asked = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = target.path.as_str();
        let is_added = |path: &str| path == "/" || path.starts_with("/?");
        assert!(
            asked.ends_with(path) || is_added(path),
            "{asked} became {path}"
        );
    }
    if rules.judge(&target, &method, &Who::default()).is_ok() {
        assert!(may_be_called(&target, &method), "{method} {target:?}");
    }
}

/// Both parsers see the same host and port, in the received URL and in the one that weir makes.
fn is_one_host_to_all(target: &Target, uri: &Uri) {
    let origin = &target.origin;
    let made = Url::parse(&origin.to_string());
    // The other parser validates names in punycode; weir leaves that to DNS.
    if !origin.host.contains("xn--") {
        let made = made.unwrap_or_else(|error| panic!("{origin}: {error}"));
        assert_eq!(host(&made), origin.host, "{origin}");
        assert_eq!(made.port_or_known_default(), Some(origin.port), "{origin}");
        assert!(made.username().is_empty() && made.path() == "/", "{origin}");
    }
    let written = match target.form {
        Form::Path => format!("{}:/{uri}", origin.scheme.as_str()),
        Form::Proxy => uri.to_string(),
        Form::Tunnel => format!("https://{uri}/"),
    };
    if let Ok(read) = Url::parse(&written) {
        assert_eq!(host(&read), origin.host, "{written}");
        let is_upgraded =
            target.form == Form::Proxy && uri.scheme_str() != Some(origin.scheme.as_str());
        let port = match read.port_or_known_default() {
            Some(80) if is_upgraded => Some(443),
            port => port,
        };
        assert_eq!(port, Some(origin.port), "{written}");
    }
}

/// The host in the form of [`super::origin::Origin`].
fn host(url: &Url) -> String {
    match url.host() {
        Some(Host::Domain(name)) => name.strip_suffix('.').unwrap_or(name).to_owned(),
        Some(Host::Ipv4(ip)) => ip.to_string(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).to_canonical().to_string(),
        None => String::new(),
    }
}

/// The meaning of [`EGRESS`].
fn may_be_called(target: &Target, method: &Method) -> bool {
    let origin = &target.origin;
    let is_tunnel = target.form == Form::Tunnel;
    let scheme = |scheme| is_tunnel || origin.scheme == scheme;
    match (origin.host.as_str(), origin.port) {
        _ if *method == Method::TRACE => false,
        ("api.example.com", 443) => scheme(Scheme::Https),
        ("only.example.com", 443) => {
            !is_tunnel && scheme(Scheme::Https) && *method == Method::GET && stays_beneath(target)
        }
        ("legacy.internal", 8080) | ("127.0.0.1", 8081) => scheme(Scheme::Http),
        (host, 8443) => {
            scheme(Scheme::Https) && host.len() > 16 && host.ends_with(".partner.example")
        }
        _ => false,
    }
}

/// Whether the path stays below `/v1/`, however often it is decoded before its dot segments are resolved.
fn stays_beneath(target: &Target) -> bool {
    let mut path = target.path.path().to_owned();
    (0..4).all(|_| {
        let read = Url::parse(&format!("https://only.example.com{path}"));
        let stays = read.is_ok_and(|url| url.path().starts_with("/v1/"));
        path = percent_encoding::percent_decode_str(&path)
            .decode_utf8_lossy()
            .into_owned();
        stays
    })
}
