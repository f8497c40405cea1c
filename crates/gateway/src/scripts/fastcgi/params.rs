//! Turns a request into CGI parameters (RFC 3875 §4.1), written directly into the FastCGI records for the worker.

use std::{collections::HashSet, sync::LazyLock};

use http::{Method, Version};
use weir_config::Settings;
use weir_fcgi::{client::Params, nv};
use weir_http1::{Name, ParsedFields};
use weir_observe::error_log::tell;

use super::super::about;
use crate::{
    connections::tls_settings,
    record::{Record, protocol},
    route::Script,
    template,
};

/// Appends the PARAMS records of the request `id`. `body` is the length of its body; `None` if it has none.
pub(crate) fn put(
    record: &Record,
    settings: &Settings,
    id: u16,
    body: Option<u64>,
    out: &mut Vec<u8>,
) {
    let mut params = Params::new(out, id);
    let head = &record.head;
    let Some(script) = &record.script else {
        return params.finish();
    };
    let mut digits = itoa::Buffer::new();

    params.encoded(record.endpoints.params());
    params.encoded(&record.gateway.params[usize::from(record.endpoints.is_https)]);
    let software = &record.gateway.config.server.server_software;
    if software.len() > LONG {
        params.pair(b"SERVER_SOFTWARE", software.as_bytes());
    }
    let rewritten = script.query.as_deref().map(str::as_bytes);
    let query = rewritten.or(record.query()).unwrap_or_default();
    if head.method == Method::GET && head.version == Version::HTTP_11 && query.is_empty() {
        params.encoded(USUAL);
    } else {
        params.pair(b"REQUEST_METHOD", head.method.as_str().as_bytes());
        params.pair(b"QUERY_STRING", query);
        params.pair(b"SERVER_PROTOCOL", protocol(head.version).as_bytes());
    }
    params.pair(b"REQUEST_URI", record.uri());
    match &script.params[..] {
        b"" => put_script(script, record.path_translated(), &mut params),
        encoded => params.encoded(encoded),
    }
    if let Some(length) = body {
        params.pair(b"CONTENT_LENGTH", digits.format(length).as_bytes());
    }
    if let Some(value) = head.fields.get(Name::ContentType) {
        params.pair(b"CONTENT_TYPE", value);
    }
    let name = match &record.host[..] {
        b"" => record.endpoints.server_addr().as_bytes(),
        host => host,
    };
    params.pair(b"SERVER_NAME", name);

    if let Some(user) = record.user() {
        params.pair(b"AUTH_TYPE", b"Basic");
        params.pair(b"REMOTE_USER", user);
    }

    let deadline = deadline(record);
    if !deadline.is_empty() {
        params.pair(DEADLINE, &deadline);
    }

    tls_settings::put_params(&record.endpoints, &mut params);
    put_headers(record, settings, &mut params);
    let mut value = Vec::new();
    for (name, template) in &settings.params {
        value.clear();
        template::render(template, record, &mut value);
        params.pair(name.as_bytes(), &value);
    }
    params.finish();
}

/// The parameters that are made of the script's names.
fn put_script(script: &Script, translated: Option<&[u8]>, params: &mut Params<'_>) {
    params.pair(b"DOCUMENT_ROOT", &script.document_root);
    params.pair(b"SCRIPT_FILENAME", &script.filename);
    params.pair(b"SCRIPT_NAME", &script.script_name);
    if script.path_info.is_empty() {
        return params.pair(b"DOCUMENT_URI", &script.script_name);
    }
    params.pair(
        b"DOCUMENT_URI",
        &[&script.script_name[..], &script.path_info].concat(),
    );
    params.pair(b"PATH_INFO", &script.path_info);
    if let Some(translated) = translated {
        params.pair(b"PATH_TRANSLATED", translated);
    }
}

/// Until when the answer of `record` is needed, in the format of [`DEADLINE`]; empty if that is not known.
pub(crate) fn deadline(record: &Record) -> Vec<u8> {
    let mut text = Vec::new();
    record.policy.put_deadline(&mut text);
    text
}

/// The parameters that are the same for all requests with this scheme, encoded ([`Params::encoded`]).
pub(crate) fn of_all(scheme: &str, server_software: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut pair =
        |name: &str, value: &str| nv::encode(&mut out, name.as_bytes(), value.as_bytes());
    pair("GATEWAY_INTERFACE", "CGI/1.1");
    pair("REDIRECT_STATUS", "200");
    if scheme == "https" {
        pair("HTTPS", "on");
    }
    pair("REQUEST_SCHEME", scheme);
    if server_software.len() <= LONG {
        pair("SERVER_SOFTWARE", server_software);
    }
    out
}

fn put_headers(record: &Record, settings: &Settings, params: &mut Params<'_>) {
    let fields = &record.head.fields;
    let set = |name: &[u8]| {
        let mut params = settings.params.iter();
        params.any(|(param, _)| is_param_of(param, name))
    };
    let passes = |known: Option<Name>, name: &[u8]| {
        known.is_none_or(may_pass) && !set(name) && is_passed(record, settings, (known, name))
    };
    if !has_repeats(fields) {
        for (known, name, value) in fields.iter() {
            if passes(known, name) {
                match known {
                    Some(known) => params.pair(http_name(known), value),
                    None => params.header(name, value),
                }
            }
        }
        return;
    }
    // If a header occurs several times, its values are joined: the worker would otherwise see only the last one.
    let mut seen = HashSet::new();
    for (known, name, _) in fields.iter() {
        if !seen.insert(name.to_ascii_lowercase()) || !passes(known, name) {
            continue;
        }
        let separator: &[u8] = match known {
            Some(Name::Cookie) => b"; ",
            _ => b", ",
        };
        let values: Vec<&[u8]> = match known {
            Some(known) => fields.all(known).collect(),
            None => fields.named(name).collect(),
        };
        params.header(name, &values.join(separator));
    }
}

/// Whether a field may reach an application: its name cannot be mistaken for another one, and the site wants it.
pub(crate) fn is_passed(
    record: &Record,
    settings: &Settings,
    (known, name): (Option<Name>, &[u8]),
) -> bool {
    let is_plain = known.is_some()
        || match spelling(name) {
            Spelling::Plain => true,
            // A variable is passed only once. If a client sends both spellings, the one with dashes counts,
            // because it is unambiguous.
            Spelling::Underscores => {
                settings.underscores_in_headers && {
                    let dashes: Vec<u8> = name.iter().map(|byte| dash(*byte)).collect();
                    record.head.fields.named(&dashes).next().is_none()
                }
            }
            Spelling::Other => false,
        };
    if !is_plain {
        tell!(
            debug,
            about(record),
            "the header \"{}\" is not passed on: only names with letters, digits and dashes \
             are safe, because PHP changes other characters",
            name.to_ascii_lowercase().escape_ascii()
        );
    }
    let only = settings.pass_headers.as_deref();
    is_plain
        && only.is_none_or(|only| only.iter().any(|one| is_spelled_like(one, name)))
        && !(record.endpoints.tls.is_some() && tls_settings::is_of_tls(name))
}

/// Whether a header occurs several times.
fn has_repeats(fields: &ParsedFields) -> bool {
    let (mut known, mut others) = (0_u64, Vec::new());
    for (index, (name, text, _)) in fields.iter().enumerate() {
        match name {
            Some(name) if known & name.bit() != 0 => return true,
            Some(name) => known |= name.bit(),
            None => {
                let is_same = |other: &&[u8]| other.eq_ignore_ascii_case(text);
                // With many headers, this search would cost more than joining values.
                if index > MANY || others.iter().any(is_same) {
                    return true;
                }
                others.push(text);
            }
        }
    }
    false
}

/// Whether a header may become an `HTTP_` parameter at all. `Proxy` is refused, because programs would use it as
/// their proxy (CVE-2016-5385), and headers about the connection end here. Other headers that `Connection` names are
/// passed on, as in nginx and Apache: otherwise a client could remove headers that a proxy in front has set.
fn may_pass(name: Name) -> bool {
    !matches!(
        name,
        Name::Te
            | Name::Proxy
            | Name::Expect
            | Name::Upgrade
            | Name::Trailer
            | Name::Connection
            | Name::KeepAlive
            | Name::ContentType
            | Name::ContentLength
            | Name::ProxyConnection
            | Name::TransferEncoding
            | Name::ProxyAuthorization
    )
}

/// The kinds of characters in a header's name. In parameter names a dash becomes an underscore, and PHP also replaces
/// dots, spaces and brackets by underscores. Only names of [`Spelling::Plain`] are certainly different from each
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// Letters, digits and dashes.
    Plain,
    /// These, and underscores.
    Underscores,
    /// Other characters.
    Other,
}

fn spelling(name: &[u8]) -> Spelling {
    let mut spelling = Spelling::Plain;
    for byte in name {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => {}
            b'_' => spelling = Spelling::Underscores,
            _ => return Spelling::Other,
        }
    }
    spelling
}

/// Whether a parameter from a web server is a header that PHP would take for another one: PHP replaces dots, spaces
/// and opening brackets by underscores, and a name ends at a NUL. Other characters keep their meaning, as in PHP-FPM.
pub(crate) fn is_misleading(param: &[u8]) -> bool {
    param.strip_prefix(b"HTTP_").is_some_and(|name| {
        name.iter()
            .any(|byte| matches!(byte, b'.' | b' ' | b'[' | 0))
    })
}

/// Whether the header `name` becomes the parameter `param`.
fn is_param_of(param: &str, name: &[u8]) -> bool {
    param
        .strip_prefix("HTTP_")
        .is_some_and(|param| param.len() == name.len() && is_spelled_like(param, name))
}

/// Whether a script cannot tell the two names apart.
fn is_spelled_like(one: &str, other: &[u8]) -> bool {
    let plain = |byte: &u8| dash(*byte).to_ascii_lowercase();
    one.len() == other.len() && one.as_bytes().iter().map(plain).eq(other.iter().map(plain))
}

/// A dash for an underscore.
fn dash(byte: u8) -> u8 {
    match byte {
        b'_' => b'-',
        byte => byte,
    }
}

/// The parameter of a well-known header: `HTTP_` and its name, as [`Params::header`] writes it.
fn http_name(name: Name) -> &'static [u8] {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let texts = Name::ALL.iter().map(|name| name.as_str());
        let names =
            texts.map(|name| format!("HTTP_{}", name.to_ascii_uppercase()).replace('-', "_"));
        names.collect()
    });
    NAMES[name as usize].as_bytes()
}

/// The parameters of a usual request's line, encoded: GET without a query.
const USUAL: &[u8] =
    b"\x0e\x03REQUEST_METHODGET\x0c\x00QUERY_STRING\x0f\x08SERVER_PROTOCOLHTTP/1.1";

/// A SERVER_SOFTWARE that is longer than this may not fit into a record with others, bytes.
const LONG: usize = 1024;

/// With more headers than this, each is looked up in a table of those before it.
const MANY: usize = 32;

/// Time by which an answer must have begun: seconds since 1970 with decimals, like PHP's `REQUEST_TIME_FLOAT`.
pub(crate) const DEADLINE: &[u8] = b"REQUEST_DEADLINE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_must_not_reach_a_script_do_not() {
        let kept = [
            "accept",
            "authorization",
            "cookie",
            "host",
            "x-forwarded-for",
            "proxyx",
        ];
        let refused = [
            "proxy",
            "te",
            "connection",
            "keep-alive",
            "content-length",
            "content-type",
            "transfer-encoding",
            "upgrade",
            "trailer",
            "expect",
            "proxy-connection",
        ];
        let may_pass = |name: &str| Name::of(name.as_bytes()).is_none_or(may_pass);
        for name in kept {
            assert!(may_pass(name), "{name}");
        }
        for name in refused {
            assert!(!may_pass(name), "{name}");
        }
    }

    #[test]
    fn parameters_that_are_encoded_in_advance_are_right() {
        let mut encoded = Vec::new();
        for (name, value) in [
            (&b"REQUEST_METHOD"[..], Method::GET.as_str()),
            (b"QUERY_STRING", ""),
            (b"SERVER_PROTOCOL", protocol(Version::HTTP_11)),
        ] {
            nv::encode(&mut encoded, name, value.as_bytes());
        }
        assert_eq!(encoded, USUAL);
    }

    #[test]
    fn parameters_of_well_known_headers_are_those_of_any_header() {
        for name in Name::ALL {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            let mut params = Params::new(&mut one, 1);
            params.pair(http_name(*name), b"value");
            params.finish();
            let mut params = Params::new(&mut other, 1);
            params.header(name.as_str().as_bytes(), b"value");
            params.finish();
            assert_eq!(one, other, "{name:?}");
        }
    }

    #[test]
    fn names_are_told_apart_by_letters_digits_and_dashes() {
        assert_eq!(spelling(b"X-Real-IP2"), Spelling::Plain);
        assert_eq!(spelling(b"X_Real-IP"), Spelling::Underscores);
        for byte in (1..=255u8).filter(|byte| !byte.is_ascii_alphanumeric()) {
            let name = [b"X", &[byte][..], b"Y"].concat();
            let expected = match byte {
                b'-' => Spelling::Plain,
                b'_' => Spelling::Underscores,
                _ => Spelling::Other,
            };
            assert_eq!(spelling(&name), expected, "{name:?}");
        }
    }

    #[test]
    fn repeated_headers_are_noticed() {
        let of = |names: &[&str]| {
            let mut fields = ParsedFields::default();
            names
                .iter()
                .for_each(|name| fields.push(name.as_bytes(), b"v"));
            has_repeats(&fields)
        };
        assert!(!of(&["Host", "Accept", "X-A", "X-B"]));
        assert!(of(&["Cookie", "Host", "cookie"]) && of(&["X-A", "Host", "x-a"]));
    }

    #[test]
    fn a_parameter_is_known_by_its_header() {
        assert!(is_param_of("HTTP_X_REAL_IP", b"x-real-ip"));
        assert!(is_param_of("HTTP_X_REAL_IP", b"x_real-ip"));
        assert!(!is_param_of("HTTP_X_REAL_IP", b"x-real-ip2"));
        assert!(!is_param_of("X_REAL_IP", b"x-real-ip"));
        for misleading in ["HTTP_X.REAL.IP", "HTTP_X REAL", "HTTP_X[", "HTTP_X\0Y"] {
            assert!(is_misleading(misleading.as_bytes()), "{misleading}");
        }
        for plain in [
            "HTTP_X_REAL_IP",
            "HTTP_X2",
            "HTTP_X-Y",
            "X.Y",
            "DOCUMENT_ROOT",
        ] {
            assert!(!is_misleading(plain.as_bytes()), "{plain}");
        }
    }
}
