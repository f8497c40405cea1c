//! Very many certificates, and very many handshakes that are never finished.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};
use weir_test::authority::many;
use weir_test::process::{cpu_time, most_resident, resident};
use weir_test::{LIMIT, Setup, Weir, scaled, wait_until};

use crate::{Tls, curl, said};

/// Manager, keeper and gateway.
fn processes(weir: &Weir) -> [u32; 3] {
    [weir.pid(), weir.keeper().pid, weir.gateway().pid]
}

/// How long it has nothing to do.
const IDLE: Duration = Duration::from_secs(10);

/// A weir with so many certificates, and how many bytes of memory its processes have.
fn with_certificates(count: usize) -> (Weir, u64) {
    let setup = Setup::new().file("index.html", "many\n");
    let folder = setup.folder().join("many");
    fs::create_dir(&folder).expect("mkdir");
    let tables = many(&folder, count);
    let weir = setup.listen("tls = true").more(&tables).start();
    let memory = processes(&weir).map(resident).iter().sum();
    (weir, memory)
}

#[test]
fn many_certificates_take_little_memory_each() {
    let (few, before) = with_certificates(10);
    drop(few);
    let count = scaled(2000, 10_000);
    let (weir, memory) = with_certificates(count);
    let each = memory.saturating_sub(before) / (count as u64 - 10);
    let cpu: Duration = processes(&weir).map(cpu_time).iter().sum();
    println!("{count} certificates: {each} bytes each, {cpu:?} of CPU for the start");
    // With fewer certificates the limit for each is higher, because other growth is divided by their number.
    let most = scaled(12, 8) as u64 * 1024;
    assert!(each <= most, "{each} bytes");
    // The program that users have, not one for tests.
    if std::env::var_os("WEIR_UNDER_TEST").is_some() {
        assert!(cpu <= Duration::from_secs(2), "{cpu:?}");
    }
    // The manager is told which files change, and does not look at each of them all the time. The limit is for this time.
    let before = cpu_time(weir.pid());
    std::thread::sleep(IDLE);
    let idle = cpu_time(weir.pid()) - before;
    println!("{idle:?} of CPU in {IDLE:?} without anything to do");
    assert!(idle <= IDLE / 100, "{idle:?}");
    for number in [0, count / 2, count - 1] {
        for name in [
            format!("host{number}.many.test"),
            format!("www.host{number}.many.test"),
        ] {
            let text = said(weir.address(), &name, &[]);
            let subject = format!("CN = host{number}.many.test");
            assert!(
                text.contains(&subject) && text.contains("HTTP/1.1 200"),
                "{text}"
            );
        }
    }
}

/// The first message of a handshake for `main.test`.
fn hello() -> Vec<u8> {
    let provider = tokio_rustls::rustls::crypto::aws_lc_rs::default_provider();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("main.test").expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("bytes");
    hello
}

/// The same message with an extension of so many bytes that means nothing (RFC 7685).
fn padded(hello: &[u8], bytes: usize) -> Vec<u8> {
    let mut message = hello[5..].to_vec();
    // After version and random: session, ciphers, compression.
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(message[at]);
    at += 2 + usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    at += 1 + usize::from(message[at]);
    let extensions = message.len() - at - 2 + 4 + bytes;
    message[at..at + 2].copy_from_slice(&(extensions as u16).to_be_bytes());
    // This extension comes before all others, because that of a ticket must be the last.
    let mut padding = vec![0, 21];
    padding.extend((bytes as u16).to_be_bytes());
    padding.resize(4 + bytes, 0);
    message.splice(at + 2..at + 2, padding);
    let length = (message.len() - 4) as u32;
    message[1..4].copy_from_slice(&length.to_be_bytes()[1..]);
    let records = message.chunks(16_384).flat_map(|part| {
        let mut record = vec![22, 3, 1];
        record.extend((part.len() as u16).to_be_bytes());
        record.extend(part);
        record
    });
    records.collect()
}

#[test]
fn the_first_message_of_a_handshake_may_be_long_but_not_endless() {
    let (weir, _) = Tls::new()
        .with(|setup| setup.listen("header_timeout = \"10m\""))
        .start();
    let first_byte = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(weir.address()).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        // A refused file is not read to its end.
        let _ = stream.write_all(bytes);
        let mut byte = [0];
        match stream.read_exact(&mut byte) {
            Ok(()) => Some(byte[0]),
            Err(error) => {
                let waits = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(!waits, "weir waits for the rest");
                None
            }
        }
    };
    let hello = hello();
    for length in [0, 1000, 12_000] {
        assert_eq!(first_byte(&padded(&hello, length)), Some(22), "{length}");
    }
    // Only the beginning is sent, so a server that waits for the rest answers nothing. Otherwise an alert comes,
    // perhaps with a reset after it.
    let endless = padded(&hello, 60_000);
    for sent in [30_000, 60_000] {
        let first = first_byte(&endless[..sent]);
        assert!(matches!(first, Some(21) | None), "{first:?}");
    }
}

/// Allows this process as many open files as it may have; other tests run in it, too.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, all).expect("open files");
}

#[test]
fn handshakes_left_half_done_end_at_their_deadline_and_keep_nobody_waiting() {
    let count = scaled(2000, 10_000);
    allow_many_files();
    let (weir, authority) = Tls::new()
        .with(|setup| {
            setup
                .listen("header_timeout = \"4s\"\nbacklog = 4096")
                .server("max_connections = 20000\nmax_connections_per_address = 0")
        })
        .start();
    let gateway = weir.gateway().pid;
    assert_eq!(curl(&weir, &authority, "main.test", "/", &[]).status, 200);
    let files = || {
        let files = fs::read_dir(format!("/proc/{gateway}/fd")).expect("fd");
        files.count()
    };
    let (files_before, before) = (files(), most_resident(gateway));
    let hello = hello();
    let since = Instant::now();
    let mut others = 0;
    let half: Vec<TcpStream> = (0..count)
        .map(|number| {
            let mut stream = TcpStream::connect(weir.address()).expect("a connection");
            // The client sends the whole first message, nothing, a part of a record, or a record with only a part of
            // the message.
            let begun: &[u8] = match number % 8 {
                0 => b"",
                1 => &[22, 3, 1],
                2 => &[22, 3, 1, 0, 8, 1, 0, 1, 0, 3, 3, 0, 0],
                3 => &hello[..hello.len() - 1],
                _ => &hello,
            };
            // The effects of a slow machine's first seconds are over.
            let _ = stream.write_all(begun);
            stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
            if number % 500 == 499 {
                let got = curl(&weir, &authority, "main.test", "/", &[]);
                assert_eq!(got.status, 200, "{}", got.error);
                others += 1;
            }
            stream
        })
        .collect();
    let begun = since.elapsed();
    assert_eq!(others, count / 500);
    for mut stream in half {
        // Until the end, or a reset.
        while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
    }
    let each = most_resident(gateway).saturating_sub(before) / count as u64;
    println!(
        "{count} handshakes, begun in {begun:?}, gone after {:?}, {each} bytes each",
        since.elapsed()
    );
    assert!(since.elapsed() >= Duration::from_secs(3));
    assert!(each <= 40 * 1024, "{each} bytes");
    wait_until("no connection is left", || files() < files_before + 50);
    assert_eq!(curl(&weir, &authority, "main.test", "/", &[]).status, 200);
}
