//! Times what every request goes through: `cargo bench -p weir-fcgi`. The best of many rounds is printed, because other
//! programs on the machine disturbed it least.

use std::hint::black_box;
use std::time::Instant;

use weir_fcgi::client::{self, Params, ResponseDecoder};
use weir_fcgi::{ProtocolStatus, Role, server};

fn main() {
    let mut out = Vec::with_capacity(64 * 1024);

    let params = &PARAMS[..];
    let each = time(|| {
        out.clear();
        let mut writer = Params::new(&mut out, 1);
        for (name, value) in black_box(params) {
            writer.pair(name, value);
        }
        writer.finish();
        black_box(&out);
    });
    report("Params::pair", each / params.len() as f64);

    let headers = &HEADERS[..];
    let each = time(|| {
        out.clear();
        let mut writer = Params::new(&mut out, 1);
        for (name, value) in black_box(headers) {
            writer.header(name, value);
        }
        writer.finish();
        black_box(&out);
    });
    report("Params::header", each / headers.len() as f64);

    let each = time(|| {
        out.clear();
        whole_request(&mut out);
        black_box(&out);
    });
    report("a whole request, written", each);

    let mut request = Vec::new();
    whole_request(&mut request);
    let mut decoder = server::RequestDecoder::new(server::Limits::default());
    let each = time(|| {
        let mut input = black_box(&request[..]);
        while let Some(event) = decoder.next(&mut input).unwrap() {
            black_box(&event);
        }
        decoder.end_request();
    });
    report("a whole request, read", each);

    let mut response = Vec::new();
    server::stdout(&mut response, 1, &[b'x'; 300]);
    server::end_request(&mut response, 1, 0, ProtocolStatus::RequestComplete);
    let mut decoder = ResponseDecoder::new(1);
    let each = time(|| {
        decoder.reset(1);
        let mut input = black_box(&response[..]);
        while let Some(event) = decoder.next(&mut input).unwrap() {
            black_box(&event);
        }
    });
    report("a small response, read", each);

    let each = time(|| {
        let mut decoder = black_box(ResponseDecoder::new(1));
        let mut input = black_box(&response[..]);
        while let Some(event) = decoder.next(&mut input).unwrap() {
            black_box(&event);
        }
    });
    report("a small response, read by a new decoder", each);
}

fn whole_request(out: &mut Vec<u8>) {
    client::begin_request(out, 1, Role::Responder, true);
    let mut writer = Params::new(out, 1);
    for (name, value) in black_box(&PARAMS) {
        writer.pair(name, value);
    }
    for (name, value) in black_box(&HEADERS) {
        writer.header(name, value);
    }
    writer.finish();
    client::stdin_end(out, 1);
}

/// Nanoseconds that a call takes.
fn time(mut call: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    best
}

fn report(what: &str, nanoseconds: f64) {
    println!("{what:<42}{nanoseconds:>8.1} ns");
}

const ROUNDS: u32 = 100;
const CALLS: u32 = 2000;

const PARAMS: [(&[u8], &[u8]); 18] = [
    (b"CONTENT_LENGTH", b"0"),
    (b"CONTENT_TYPE", b""),
    (b"DOCUMENT_ROOT", b"/srv/shop/public"),
    (b"DOCUMENT_URI", b"/index.php"),
    (b"GATEWAY_INTERFACE", b"CGI/1.1"),
    (b"QUERY_STRING", b"page=2&sort=price"),
    (b"REDIRECT_STATUS", b"200"),
    (b"REMOTE_ADDR", b"203.0.113.7"),
    (b"REMOTE_PORT", b"51234"),
    (b"REQUEST_METHOD", b"GET"),
    (b"REQUEST_SCHEME", b"http"),
    (b"REQUEST_URI", b"/catalogue/shoes?page=2&sort=price"),
    (b"SCRIPT_FILENAME", b"/srv/shop/public/index.php"),
    (b"SCRIPT_NAME", b"/index.php"),
    (b"SERVER_ADDR", b"198.51.100.1"),
    (b"SERVER_NAME", b"shop.example"),
    (b"SERVER_PORT", b"80"),
    (b"SERVER_PROTOCOL", b"HTTP/1.1"),
];

const HEADERS: [(&[u8], &[u8]); 8] = [
    (b"host", b"shop.example"),
    (
        b"user-agent",
        b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    ),
    (
        b"accept",
        b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    ),
    (b"accept-language", b"en-GB,en;q=0.5"),
    (b"accept-encoding", b"gzip, deflate, br, zstd"),
    (b"cookie", b"session=8c1f5f1e5d0c4b1f9a7b2f0a3d4e5f60"),
    (b"upgrade-insecure-requests", b"1"),
    (b"x-forwarded-for", b"192.0.2.33"),
];
