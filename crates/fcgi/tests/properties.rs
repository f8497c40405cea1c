//! Properties that hold for every request, every response and every sequence of bytes.

#[allow(
    unreachable_pub,
    reason = "the fuzz targets take the same file as part of a library"
)]
mod checks;

use proptest::collection::vec;
use proptest::prelude::*;
use weir_fcgi::record::{HEADER_LEN, Header};
use weir_fcgi::{ProtocolStatus, RecordType, Role, client, nv, server};

/// A record of a response as an application may send it: its content and its padding.
#[derive(Clone, Debug)]
enum Piece {
    Stdout(Vec<u8>, u8),
    Stderr(Vec<u8>, u8),
}

proptest! {
    #[test]
    fn a_request_is_read_as_it_was_written(
        id in 1..=u16::MAX,
        keep_conn: bool,
        mut pairs in vec((bytes(300), bytes(300)), 0..40),
        long in prop::option::of((0..40_usize, 60_000..140_000_usize)),
        body in vec(bytes(500), 0..6),
        cuts in vec(any::<u8>(), 0..8),
    ) {
        if let Some((index, length)) = long
            && let Some(pair) = pairs.get_mut(index)
        {
            pair.1 = vec![b'v'; length];
        }
        let mut wire = Vec::new();
        client::begin_request(&mut wire, id, Role::Responder, keep_conn);
        let mut params = client::Params::new(&mut wire, id);
        for (name, value) in &pairs {
            params.pair(name, value);
        }
        params.finish();
        for piece in &body {
            client::stdin(&mut wire, id, piece);
        }
        client::stdin_end(&mut wire, id);

        let limits = server::Limits { params: nv::Limits { bytes: 1 << 20, pairs: 40 } };
        let request = checks::read_request(limits, &wire, &cuts, 0);
        prop_assert_eq!(request.error, None);
        prop_assert_eq!(request.stdin, body.concat());
        let mut encoded = Vec::new();
        for (name, value) in &pairs {
            nv::encode(&mut encoded, name, value);
        }
        let mut decoder = nv::Decoder::new(limits.params);
        decoder.feed(&encoded).unwrap();
        let begin = server::Event::Begin { id, role: Role::Responder, keep_conn };
        let params = server::Event::Params(decoder.finish().unwrap());
        let events = [begin, params, server::Event::StdinEnd].map(|event| format!("{event:?}"));
        prop_assert_eq!(request.others, events);
    }

    #[test]
    fn only_a_pair_that_no_record_holds_spans_records(
        lengths in vec((0..300_usize, 0..40_000_usize), 0..12),
    ) {
        let mut wire = Vec::new();
        let mut params = client::Params::new(&mut wire, 1);
        for &(name, value) in &lengths {
            params.pair(&vec![b'n'; name], &vec![b'v'; value]);
        }
        params.finish();
        let mut pairs = 0;
        let mut rest = &wire[..];
        while let Some((header, body)) = rest.split_first_chunk::<HEADER_LEN>() {
            let (content, next) = body.split_at(usize::from(Header::from_bytes(*header).content_len));
            prop_assert_eq!(content.is_empty(), next.is_empty());
            let mut decoder = nv::Decoder::new(nv::Limits::default());
            decoder.feed(content).unwrap();
            pairs += decoder.finish().expect("whole pairs").len();
            rest = next;
        }
        prop_assert_eq!(pairs, lengths.len());
    }

    #[test]
    fn a_header_is_the_pair_of_its_cgi_name(name in bytes(200), value in bytes(200)) {
        let write = |header: bool| {
            let mut wire = Vec::new();
            let mut params = client::Params::new(&mut wire, 1);
            if header {
                params.header(&name, &value);
            } else {
                let upper = name.to_ascii_uppercase();
                let mapped: Vec<u8> = upper.iter().map(|&b| if b == b'-' { b'_' } else { b }).collect();
                params.pair(&[b"HTTP_", &mapped[..]].concat(), &value);
            }
            params.finish();
            wire
        };
        prop_assert_eq!(write(true), write(false));
    }

    #[test]
    fn a_response_is_read_as_it_was_written(
        id in 1..=u16::MAX,
        pieces in vec(piece(), 0..20),
        large in prop::option::of(60_000..140_000_usize),
        ended: bool,
        app_status: u32,
        status: u8,
        cuts in vec(any::<u8>(), 0..8),
    ) {
        let mut wire = Vec::new();
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        for piece in &pieces {
            let (kind, content, padding) = match piece {
                Piece::Stdout(content, padding) => (RecordType::Stdout, content, *padding),
                Piece::Stderr(content, padding) => (RecordType::Stderr, content, *padding),
            };
            let length = content.len() as u16;
            let header = Header { padding_len: padding, ..Header::new(kind, id, length) };
            wire.extend(header.to_bytes());
            wire.extend(content);
            wire.resize(wire.len() + usize::from(padding), 0xff);
            if kind == RecordType::Stdout { &mut stdout } else { &mut stderr }.extend(content);
        }
        if let Some(large) = large {
            let body = vec![b'l'; large];
            server::stdout(&mut wire, id, &body);
            stdout.extend(body);
        }
        if ended {
            server::stdout_end(&mut wire, id);
            server::stderr_end(&mut wire, id);
        }
        let protocol_status = ProtocolStatus::from(status);
        server::end_request(&mut wire, id, app_status, protocol_status);

        let response = checks::read_response(id, &wire, &cuts);
        prop_assert_eq!(response.error, None);
        prop_assert!(response.stdout == stdout && response.stderr == stderr);
        let end = format!("{:?}", client::Event::End { app_status, protocol_status });
        let events = if ended {
            vec!["StdoutEnd".to_owned(), "StderrEnd".to_owned(), end]
        } else {
            vec![end]
        };
        prop_assert_eq!(response.others, events);
    }

    #[test]
    fn any_bytes_from_an_application(data in bytes(2000)) {
        checks::response(&data);
    }

    #[test]
    fn any_records_from_an_application(data in records()) {
        checks::response(&data);
    }

    #[test]
    fn any_bytes_from_a_client(data in bytes(2000)) {
        checks::request(&data);
    }

    #[test]
    fn any_records_from_a_client(data in records()) {
        checks::request(&data);
    }

    #[test]
    fn any_bytes_as_pairs(data in bytes(2000)) {
        checks::name_values(&data);
    }

    #[test]
    fn any_short_lengths_as_pairs(data in vec(0..12_u8, 0..200)) {
        checks::name_values(&[&[0, 100, 40, 1, 2, 3, 4, 5, 6, 7, 8][..], &data].concat());
    }

    #[test]
    fn any_conversation(data in vec(prop_oneof![0..12_u8, any::<u8>()], 0..400)) {
        checks::conversation(&data);
    }
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=most)
}

/// A record with content; an empty one would end its stream.
fn piece() -> impl Strategy<Value = Piece> {
    let content = || vec(any::<u8>(), 1..400);
    prop_oneof![
        (content(), any::<u8>()).prop_map(|(content, padding)| Piece::Stdout(content, padding)),
        (content(), any::<u8>()).prop_map(|(content, padding)| Piece::Stderr(content, padding)),
    ]
}

/// Records that are almost valid: mostly of version 1, with few request numbers, short contents, and in any order.
fn records() -> impl Strategy<Value = Vec<u8>> {
    let content = prop_oneof![
        Just(Vec::new()),
        Just(vec![0, 1, 1, 0, 0, 0, 0, 0]),
        vec(0..4_u8, 8),
        vec(0..6_u8, 0..40),
    ];
    let record = (
        prop_oneof![40 => Just(1_u8), 1 => any::<u8>()],
        prop_oneof![20 => 1..=11_u8, 1 => any::<u8>()],
        prop_oneof![4 => Just(1_u16), 1 => 0..3_u16],
        content,
        0..9_u8,
    );
    let head = vec(prop_oneof![0..20_u8, any::<u8>()], 12);
    (head, vec(record, 0..30)).prop_map(|(head, records)| {
        // The checks read this first: the request's number, the limits and the cuts.
        let mut out = head;
        for (version, kind, id, content, padding_len) in records {
            let header = Header {
                version,
                kind,
                id,
                content_len: content.len() as u16,
                padding_len,
            };
            out.extend(header.to_bytes());
            out.extend(&content);
            out.resize(out.len() + usize::from(padding_len), 0);
        }
        out
    })
}
