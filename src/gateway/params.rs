//! Request → CGI parameters (RFC 3875 §4.1), written straight into the records that the worker reads.

use http::{HeaderMap, HeaderName, header};
use weir_config::Settings;
use weir_fcgi::{client::Params, nv};

use super::{
    record::{Ends, Record, protocol, uri},
    template,
};

/// Appends the PARAMS records of the request `id`. `body` is the length of its body; none where it has none.
pub(crate) fn put(
    record: &Record,
    settings: &Settings,
    id: u16,
    body: Option<u64>,
    out: &mut Vec<u8>,
) {
    let mut params = Params::new(out, id);
    let parts = &record.parts;
    let Some(script) = &record.script else {
        return params.finish();
    };
    let mut digits = itoa::Buffer::new();

    params.encoded(&record.ends.params);
    params.pair(b"REQUEST_METHOD", parts.method.as_str().as_bytes());
    params.pair(b"REQUEST_URI", uri(&parts.uri));
    params.pair(b"QUERY_STRING", parts.uri.query().unwrap_or("").as_bytes());
    params.pair(b"SERVER_PROTOCOL", protocol(parts).as_bytes());
    params.pair(b"DOCUMENT_ROOT", &script.document_root);
    params.pair(b"SCRIPT_FILENAME", &script.filename);
    params.pair(b"SCRIPT_NAME", &script.script_name);
    if script.path_info.is_empty() {
        params.pair(b"DOCUMENT_URI", &script.script_name);
    } else {
        params.pair(
            b"DOCUMENT_URI",
            &[&script.script_name[..], &script.path_info].concat(),
        );
        params.pair(b"PATH_INFO", &script.path_info);
        if let Some(translated) = &record.path_translated {
            params.pair(b"PATH_TRANSLATED", translated);
        }
    }
    if let Some(length) = body {
        params.pair(b"CONTENT_LENGTH", digits.format(length).as_bytes());
    }
    if let Some(value) = parts.headers.get(header::CONTENT_TYPE) {
        params.pair(b"CONTENT_TYPE", value.as_bytes());
    }
    let name = match &record.host[..] {
        b"" => record.ends.server_addr.as_bytes(),
        host => host,
    };
    params.pair(b"SERVER_NAME", name);

    let deadline = deadline(record);
    if !deadline.is_empty() {
        params.pair(DEADLINE, &deadline);
    }

    put_headers(
        &parts.headers,
        settings.pass_headers.as_deref(),
        &mut params,
    );
    let mut value = Vec::new();
    for (name, template) in &settings.params {
        value.clear();
        template::render(template, record, &mut value);
        params.pair(name.as_bytes(), &value);
    }
    params.finish();
}

/// Until when somebody waits for the answer of `record`, as [`DEADLINE`] says it; empty where that is not known.
pub(crate) fn deadline(record: &Record) -> Vec<u8> {
    let mut text = Vec::new();
    record.worth.put_deadline(&mut text);
    text
}

/// The parameters that are the same for all requests of a connection, encoded ([`Params::encoded`]).
pub(crate) fn of_connection(ends: &Ends) -> Vec<u8> {
    let mut out = Vec::new();
    let mut pair =
        |name: &str, value: &str| nv::encode(&mut out, name.as_bytes(), value.as_bytes());
    pair("GATEWAY_INTERFACE", "CGI/1.1");
    pair("SERVER_SOFTWARE", SOFTWARE);
    pair("REDIRECT_STATUS", "200");
    pair("REQUEST_SCHEME", "http");
    pair("REMOTE_ADDR", &ends.remote_addr);
    pair("REMOTE_PORT", &ends.remote_port.to_string());
    pair("SERVER_ADDR", &ends.server_addr);
    pair("SERVER_PORT", &ends.server_port.to_string());
    out
}

fn put_headers(headers: &HeaderMap, only: Option<&[String]>, params: &mut Params<'_>) {
    let of_the_hop = hop_headers(headers);
    let passes = |name: &HeaderName| {
        may_pass(name)
            && !of_the_hop
                .iter()
                .any(|one| name.as_str().eq_ignore_ascii_case(one))
            && only.is_none_or(|only| {
                only.iter()
                    .any(|one| one.eq_ignore_ascii_case(name.as_str()))
            })
    };
    if headers.len() == headers.keys_len() {
        for (name, value) in headers {
            if passes(name) {
                params.header(name.as_str().as_bytes(), value.as_bytes());
            }
        }
        return;
    }
    // Of a header that came several times, the worker would see the last one only.
    for name in headers.keys().filter(|name| passes(name)) {
        let separator: &[u8] = if name == header::COOKIE { b"; " } else { b", " };
        let values: Vec<&[u8]> = headers
            .get_all(name)
            .iter()
            .map(|value| value.as_bytes())
            .collect();
        params.header(name.as_str().as_bytes(), &values.join(separator));
    }
}

/// What `Connection` names beside its own words is for the gateway only (RFC 9110 §7.6.1).
fn hop_headers(headers: &HeaderMap) -> Vec<&str> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| {
            !name.is_empty()
                && !name.eq_ignore_ascii_case("keep-alive")
                && !name.eq_ignore_ascii_case("close")
        })
        .collect()
}

/// Whether a header may become an `HTTP_` parameter at all: `Proxy` would be taken for the proxy to use
/// (CVE-2016-5385), an underscore would let one header pass for another, and headers of the connection end here.
fn may_pass(name: &HeaderName) -> bool {
    let name = name.as_str();
    let passes = match name.len() {
        2 => name != "te",
        5 => name != "proxy",
        6 => name != "expect",
        7 => name != "upgrade" && name != "trailer",
        10 => name != "connection" && name != "keep-alive",
        12 if name == "content-type" => false,
        14 if name == "content-length" => false,
        16 if name == "proxy-connection" => false,
        17 if name == "transfer-encoding" => false,
        19 if name == "proxy-authorization" => false,
        _ => true,
    };
    passes && memchr::memchr(b'_', name.as_bytes()).is_none()
}

/// Until when an answer has to have begun: seconds since 1970 with decimals, beside PHP's `REQUEST_TIME_FLOAT`.
pub(crate) const DEADLINE: &[u8] = b"REQUEST_DEADLINE";

/// What weir calls itself.
pub(crate) const SOFTWARE: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));

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
            "x_forwarded_for",
            "content-length",
            "content-type",
            "transfer-encoding",
            "upgrade",
            "trailer",
            "expect",
            "proxy-connection",
        ];
        for name in kept {
            assert!(may_pass(&HeaderName::from_static(name)), "{name}");
        }
        for name in refused {
            assert!(!may_pass(&HeaderName::from_static(name)), "{name}");
        }
    }
}
