//! How much a line of the access log costs the thread that answers requests: to format it and to hand it to the sink.
//!
//! `cargo bench -p weir-observe`
#![allow(missing_docs)]

use std::fs::OpenOptions;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use weir_config::{LogFormat, Piece, Template, Variable};
use weir_observe::access_log::{AccessLog, Entry};
use weir_observe::log_sink::{Options, Sink, Target};
use weir_observe::log_text::Worker;
use weir_observe::template::Variables;

struct Nothing;

impl Variables for Nothing {
    fn put(&self, _: &Variable, _: &mut Vec<u8>) {}
}

fn entry(time: SystemTime) -> Entry<'static> {
    Entry {
        time,
        request_id: 123_456,
        remote_addr: "203.0.113.17",
        peer_addr: "203.0.113.17",
        remote_user: None,
        method: "GET",
        uri: b"/shop/index.php?category=lamps&page=3",
        protocol: "HTTP/1.1",
        host: b"shop.example",
        status: 200,
        bytes_in: 0,
        bytes_out: 23_456,
        compression: None,
        bytes_uncompressed: None,
        cache: None,
        tls: None,
        referer: Some(b"https://shop.example/shop/index.php?category=lamps&page=2"),
        user_agent: Some(
            b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0 (a usual length)",
        ),
        site: Some("shop"),
        pool: Some("shop"),
        worker: Some(Worker::Pid(4242)),
        time_head: 120,
        time_body: None,
        time_queue: Some(0),
        time_first_byte: Some(5_300),
        time_total: 6_100,
        queue: Some(0),
        priority: Some(0),
        time_limit: None,
        retries: 0,
        reason: None,
        request: &Nothing,
    }
}

fn main() {
    let template = Template {
        pieces: vec![
            Piece::Variable(Variable::TimeIso),
            Piece::Text(" ".into()),
            Piece::Variable(Variable::Uri),
            Piece::Text(" ".into()),
            Piece::Variable(Variable::TimeTotal),
        ],
    };
    let formats = [
        ("combined", LogFormat::Combined),
        ("json", LogFormat::Json),
        ("template of three", LogFormat::Template(template)),
    ];
    for (name, format) in formats {
        let file = OpenOptions::new()
            .append(true)
            .open("/dev/null")
            .expect("/dev/null");
        let sink = Arc::new(
            Sink::start("bench", Target::Fd(file.into()), Options::default()).expect("a sink"),
        );
        let log = AccessLog::new(format, sink);
        let mut out = Vec::with_capacity(4096);
        // The clock moves as at 100,000 requests a second.
        let start = SystemTime::now();
        let at = |n: u32| start + Duration::from_micros(u64::from(n) * 10);
        let made = best_of(|n| {
            out.clear();
            log.put_line(black_box(&entry(at(n))), &mut out);
            black_box(&out);
        });
        let written = best_of(|n| log.write(black_box(&entry(at(n)))));
        log.sink().flush(Duration::from_secs(10));
        println!(
            "{name}: made in {made:.0} ns, written in {written:.0} ns, {} lines lost",
            log.sink().lost()
        );
    }
}

/// Nanoseconds per call, in the best of several rounds.
fn best_of(mut call: impl FnMut(u32)) -> f64 {
    const CALLS: u32 = 200_000;
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        for n in 0..CALLS {
            call(n);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    best
}
