//! The parameters of a web server: weir's record of the request is made from them, and a worker gets them.

use std::rc::Rc;

use weir_fcgi::{
    MAX_CONTENT,
    client::Params,
    nv::{self, Pairs},
};
use weir_http::Head;
use weir_observe::error_log::tell;

use crate::{
    Gateway,
    connections::client::Conn,
    record::{Endpoints, Record},
    route::Script,
    scripts::{about, fastcgi::params, policy},
};

/// Makes the record of a request with these parameters.
pub(super) fn record(
    gateway: &'static Gateway,
    conn: &Conn,
    head: (Box<Head>, u64),
    params: Box<Pairs>,
) -> Box<Record> {
    let mut found = Found::default();
    for (name, value) in &*params {
        if let Some(field) = found.field(name) {
            *field = value;
        }
    }
    let endpoints = found.endpoints(&conn.endpoints);
    let host = host(match found.host {
        b"" => found.server_name,
        host => host,
    });
    let script = Script::elsewhere(
        found.script_name,
        found.path_info,
        found.script_filename,
        found.document_root,
    );
    let path = [found.script_name, found.path_info].concat();
    let mut record = Record::new(gateway, conn, head);
    record.endpoints = Rc::new(endpoints);
    record.host = host;
    record.path = path;
    record.script = Some(Rc::new(script));
    record.params = Some(params);
    record
}

/// Whether each pair fits into one record.
pub(super) fn fits_records(params: &Pairs) -> bool {
    params
        .iter()
        .all(|(name, value)| nv::encoded_len(name.len(), value.len()) <= MAX_CONTENT)
}

/// `SCRIPT_FILENAME` without the prefix that Apache's mod_proxy_fcgi adds.
pub(super) fn script_filename(params: &Pairs) -> &[u8] {
    let name = params.get(b"SCRIPT_FILENAME").unwrap_or_default();
    // PHP removes the same prefixes, and everything from the last question mark on.
    let Some(rest) = name
        .strip_prefix(b"proxy:fcgi://")
        .or_else(|| name.strip_prefix(b"proxy:balancer://"))
    else {
        return name;
    };
    let path = memchr::memchr(b'/', rest).map_or(rest, |slash| &rest[slash..]);
    memchr::memchr(b'?', path).map_or(path, |end| &path[..end])
}

/// Writes the parameters of `record` unchanged for a worker. `length` is the length of the body; it is added for PHP,
/// which would not read the body without it.
pub(super) fn put(record: &Record, length: u64, out: &mut Params<'_>) {
    let mut says_length = false;
    let deadline = params::deadline(record);
    for (name, value) in record.params.iter().flat_map(|params| params.iter()) {
        if name == params::DEADLINE && !deadline.is_empty() {
            continue;
        }
        if params::is_misleading(name) {
            tell!(
                debug,
                about(record),
                "the parameter {} is not passed on: PHP would confuse it with another header",
                String::from_utf8_lossy(name).escape_debug()
            );
            continue;
        }
        if name == b"CONTENT_LENGTH" {
            if value.is_empty() && length > 0 {
                continue;
            }
            says_length = true;
        }
        out.pair(name, value);
    }
    if !deadline.is_empty() {
        out.pair(params::DEADLINE, &deadline);
    }
    if !says_length && length > 0 {
        out.pair(
            b"CONTENT_LENGTH",
            itoa::Buffer::new().format(length).as_bytes(),
        );
    }
}

/// The parameters that weir itself uses.
#[derive(Default)]
struct Found<'p> {
    remote_addr: &'p [u8],
    remote_port: &'p [u8],
    server_addr: &'p [u8],
    server_port: &'p [u8],
    server_name: &'p [u8],
    host: &'p [u8],
    script_name: &'p [u8],
    path_info: &'p [u8],
    script_filename: &'p [u8],
    document_root: &'p [u8],
}

impl<'p> Found<'p> {
    fn field(&mut self, name: &[u8]) -> Option<&mut &'p [u8]> {
        Some(match name {
            b"REMOTE_ADDR" => &mut self.remote_addr,
            b"REMOTE_PORT" => &mut self.remote_port,
            b"SERVER_ADDR" => &mut self.server_addr,
            b"SERVER_PORT" => &mut self.server_port,
            b"SERVER_NAME" => &mut self.server_name,
            b"HTTP_HOST" => &mut self.host,
            b"SCRIPT_NAME" => &mut self.script_name,
            b"PATH_INFO" => &mut self.path_info,
            b"SCRIPT_FILENAME" => &mut self.script_filename,
            b"DOCUMENT_ROOT" => &mut self.document_root,
            _ => return None,
        })
    }

    /// The addresses of the client's connection to the web server, not of the web server's connection to weir.
    fn endpoints(&self, ours: &Endpoints) -> Endpoints {
        let text = |value: &[u8], otherwise: &str| match value {
            b"" => otherwise.to_owned(),
            value => String::from_utf8_lossy(value).into_owned(),
        };
        let port = |value: &[u8]| {
            let digits = std::str::from_utf8(value).ok();
            digits.and_then(|digits| digits.parse().ok())
        };
        Endpoints::of(
            (
                &text(self.remote_addr, ours.remote_addr()),
                port(self.remote_port).unwrap_or(0),
            ),
            (
                &text(self.server_addr, ours.server_addr()),
                port(self.server_port).unwrap_or(ours.server_port),
            ),
            policy::client_of_text(self.remote_addr),
        )
        .behind(ours.remote_addr())
    }
}

/// The requested host: lower case, without port.
fn host(host: &[u8]) -> Vec<u8> {
    let name = match memchr::memrchr(b':', host) {
        // A colon within brackets belongs to an IPv6 address.
        Some(colon) if host[colon + 1..].iter().all(u8::is_ascii_digit) => &host[..colon],
        _ => host,
    };
    name.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(list: &[(&[u8], &[u8])]) -> Pairs {
        let mut bytes = Vec::new();
        for (name, value) in list {
            nv::encode(&mut bytes, name, value);
        }
        let mut decoder = nv::Decoder::default();
        decoder.feed(&bytes).unwrap();
        decoder.finish().unwrap()
    }

    #[test]
    fn what_apache_puts_before_a_script_is_no_part_of_it() {
        let script = |value: &str| {
            let pairs = pairs(&[(b"SCRIPT_FILENAME", value.as_bytes())]);
            String::from_utf8(script_filename(&pairs).to_vec()).unwrap()
        };
        assert_eq!(script("/srv/a.php"), "/srv/a.php");
        assert_eq!(script("proxy:fcgi://localhost/srv/a.php"), "/srv/a.php");
        assert_eq!(
            script("proxy:fcgi://10.0.0.1:9000/srv/a.php?x=1"),
            "/srv/a.php"
        );
        assert_eq!(script("proxy:balancer://php/srv/a.php"), "/srv/a.php");
        assert_eq!(script("proxy:fcgi://localhost"), "localhost");
    }

    #[test]
    fn hosts_lose_case_and_port() {
        let host = |text: &str| String::from_utf8(host(text.as_bytes())).unwrap();
        assert_eq!(host("Shop.Example:8080"), "shop.example");
        assert_eq!(host("shop.example"), "shop.example");
        assert_eq!(host("[::1]:80"), "[::1]");
        assert_eq!(host("[::1]"), "[::1]");
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_host(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = host(&bytes);
        }
    }
}
