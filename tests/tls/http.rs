//! HTTP over TLS is what it is without: long bodies, streams, connections that stay open or end.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use weir_test::LIMIT;

use crate::{Tls, curl, s_client, said};

/// Bytes that do not repeat.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let bytes = (0..length / 8 + 1).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    bytes.take(length).collect()
}

/// A handshake that is half done is as silent as a connection on which nothing comes.
#[test]
fn handshakes_that_are_half_done_keep_nobody_out() {
    let lines = "max_connections = 40\nmax_connections_per_address = 0\nthreads = 1";
    let tls = Tls::new().with(|setup| setup.server(lines).listen("header_timeout = \"300s\""));
    let (weir, authority) = tls.start();
    let begun = |number: usize| {
        let mut client = TcpStream::connect(weir.address()).expect("a connection");
        let begin: &[u8] = if number.is_multiple_of(2) {
            b"\x16\x03\x01\x02\x00\x01"
        } else {
            b""
        };
        client.write_all(begin).expect("a part of a handshake");
        client
    };
    let _silent: Vec<TcpStream> = (0..120).map(begun).collect();
    let began = Instant::now();
    for _ in 0..5 {
        let got = curl(&weir, &authority, "main.test", "/", &[]);
        assert_eq!(got.status, 200, "{}", got.error);
    }
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn files_and_uploads_of_any_length_arrive_whole() {
    let sizes = [
        0, 1, 4096, 16_383, 16_384, 16_385, 65_536, 100_000, 20_000_000,
    ];
    let mut tls = Tls::new().with_php();
    for size in sizes {
        tls = tls.with(|setup| setup.file(&format!("{size}.bin"), noise(size)));
    }
    let (weir, authority) = tls
        .with(|setup| setup.file("echo.php", "<?php fpassthru(fopen('php://input', 'r'));"))
        .start();
    let get = |path: &str, words: &[&str], expected: &[u8]| {
        for version in ["--http1.1", "--http2"] {
            let words = [&[version], words].concat();
            let got = curl(&weir, &authority, "main.test", path, &words);
            assert!(
                got.status == 200 && got.body == expected,
                "{path} {words:?}: {} {}",
                got.status,
                got.error
            );
        }
    };
    for size in sizes {
        let expected = noise(size);
        get(&format!("/{size}.bin"), &[], &expected);
        let file = format!("@{}", weir.root().join(format!("{size}.bin")).display());
        get("/echo.php", &["--data-binary", &file], &expected);
    }
}

#[test]
fn a_slow_reader_gets_all_of_a_long_file() {
    let (weir, authority) = Tls::new()
        .with(|setup| setup.file("long.bin", noise(3_000_000)))
        .start();
    let got = curl(
        &weir,
        &authority,
        "main.test",
        "/long.bin",
        &["--limit-rate", "1500k"],
    );
    assert!(
        got.status == 200 && got.body == noise(3_000_000),
        "{} {}",
        got.status,
        got.error
    );
}

#[test]
fn events_of_a_script_arrive_one_by_one() {
    let gate = "<?php header('Content-Type: text/event-stream'); header('X-Accel-Buffering: no');\n\
        for ($i = 1; $i <= 2; $i++) { echo \"data: $i\\n\\n\"; ob_flush(); flush();\n\
        while ($i == 1 && !file_exists($_GET['gate'])) { usleep(5000); clearstatcache(); } }";
    let (weir, authority) = Tls::new()
        .with_php()
        .with(|setup| setup.file("events.php", gate))
        .start();
    let gate = weir.folder().join("root/gate");
    let address = weir.address();
    let mut child = Command::new("curl")
        .args(["-sN", "--cacert"])
        .arg(authority.file())
        .args([
            "--resolve",
            &format!("main.test:{}:{}", address.port(), address.ip()),
        ])
        .arg(format!(
            "https://main.test:{}/events.php?gate={}",
            address.port(),
            gate.display()
        ))
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl");
    let mut stdout = child.stdout.take().expect("stdout");
    let (send, came) = mpsc::channel();
    thread::spawn(move || {
        let mut byte = [0; 64];
        while let Ok(count @ 1..) = stdout.read(&mut byte) {
            let _ = send.send(String::from_utf8_lossy(&byte[..count]).into_owned());
        }
    });
    assert!(
        came.recv_timeout(LIMIT)
            .expect("the first event")
            .contains("data: 1")
    );
    fs::write(&gate, "").expect("the gate");
    let rest: String = came.iter().collect();
    assert!(rest.contains("data: 2"), "{rest}");
    assert!(child.wait().expect("curl").success());
}

#[test]
fn requests_in_one_piece_and_old_clients_are_answered_and_the_end_is_said() {
    let (weir, authority) = Tls::new().start();
    let one = "GET / HTTP/1.1\r\nHost: main.test\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nHost: main.test\r\nConnection: close\r\n\r\n";
    let words = [
        "-servername",
        "main.test",
        "-quiet",
        "-no_ign_eof",
        "-ign_eof",
    ];
    let output = s_client(weir.address(), &words, &format!("{one}{one}{last}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.matches("HTTP/1.1 200").count(), 3, "{text}");
    let old = s_client(
        weir.address(),
        &words,
        "GET / HTTP/1.0\r\nHost: main.test\r\n\r\n",
    );
    let text = String::from_utf8_lossy(&old.stdout).into_owned();
    assert!(
        text.starts_with("HTTP/1.1 200") && text.ends_with("main\n"),
        "{text}"
    );
    // A client can tell the end of an answer from a connection that somebody cut.
    let traced = said(weir.address(), "main.test", &["-msg"]);
    assert!(
        traced.contains("<<< TLS 1.3, Alert [length 0002], warning close_notify"),
        "{traced}"
    );
    let words = ["-H", "Expect: 100-continue", "-d", "x=1", "-v"];
    assert_eq!(
        curl(&weir, &authority, "main.test", "/", &words).status,
        405
    );
}

#[test]
fn a_connection_that_was_idle_for_long_goes_on() {
    let (weir, authority) = Tls::new().start();
    let address = weir.address();
    // This pause is longer than an idle connection keeps its task.
    let output = Command::new("curl")
        .args([
            "-s",
            "--http1.1",
            "--rate",
            "40/m",
            "-w",
            "%{num_connects} ",
            "-o",
            "/dev/null",
            "-o",
            "/dev/null",
            "--cacert",
        ])
        .arg(authority.file())
        .args([
            "--resolve",
            &format!("main.test:{}:{}", address.port(), address.ip()),
        ])
        .arg(format!("https://main.test:{}/", address.port()))
        .arg(format!("https://main.test:{}/", address.port()))
        .output()
        .expect("curl");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1 0 ");
}

#[test]
fn bytes_that_are_not_tls_end_the_connection() {
    let (weir, authority) = Tls::new().start();
    for bytes in [
        &[0; 100][..],
        &[22, 3, 3, 255, 255, 1, 2, 3],
        &[0x80, 0x2e, 1, 0, 2],
        &[23, 3, 3, 0, 1, 0],
    ] {
        let mut stream = TcpStream::connect(weir.address()).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        stream.write_all(bytes).expect("a write");
        // Some heads are recognized as wrong only when more bytes arrive.
        let _ = stream.write_all(&[0; 20_000]);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 64, "{answer:?}");
    }
    assert_eq!(curl(&weir, &authority, "main.test", "/", &[]).status, 200);
}

#[test]
fn bandwidth_limits_answers_over_tls() {
    let (weir, authority) = Tls::new()
        .with(|setup| {
            let setup = setup.file("a.bin", noise(60_000));
            setup.site("bandwidth = \"100K/s\"")
        })
        .start();
    let begun = Instant::now();
    let got = curl(&weir, &authority, "main.test", "/a.bin", &[]);
    assert!(
        got.status == 200 && got.body == noise(60_000),
        "{}",
        got.error
    );
    // At least the whole bandwidth, without the bytes of a tenth of a second.
    let least = Duration::from_millis((60_000 - 10_240) * 1000 / 102_400);
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
}
