//! What each frame does, for good and for bad.

use super::super::{checks, frames::*, protocol::*};
use crate::multiplex::{Limits, limits::Kind};

const LIMITS: Limits = Limits {
    resets: 3,
    pings: 2,
    settings: 1,
    small_frames: 5,
    stream_window: 1000,
    window: 100_000,
    ..Limits::of_checks()
};

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    put(&mut frame, kind, flags, stream, payload);
    frame
}

fn head(stream: u32, flags: u8, more: &[(&[u8], &[u8])]) -> Vec<u8> {
    let usual: [(&[u8], &[u8]); 4] = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":authority", b"a"),
        (b":path", b"/"),
    ];
    checks::head(stream, flags, &[&usual[..], more].concat())
}

/// A connection whose client has sent its first SETTINGS, which count.
fn begun() -> Protocol {
    let mut protocol = Protocol::new(LIMITS, Vec::new(), 1);
    let settings = frame(SETTINGS, 0, 0, &[]);
    protocol
        .receive(&[PREFACE, &settings[..]].concat(), 1)
        .unwrap();
    said(&mut protocol);
    protocol
}

/// What the client is told: kind, flags, stream and payload of each frame.
fn said(protocol: &mut Protocol) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut out = std::mem::take(protocol.out.bytes());
    out.append(protocol.out.behind());
    let (mut rest, mut said) = (&out[..], Vec::new());
    while let Some(head) = FrameHead::of(rest) {
        let (frame, behind) = rest.split_at(HEAD + head.length);
        said.push((head.kind, head.flags, head.stream, frame[HEAD..].to_vec()));
        rest = behind;
    }
    said
}

fn reset(stream: u32, code: u32) -> (u8, u8, u32, Vec<u8>) {
    (RST_STREAM, 0, stream, code.to_be_bytes().to_vec())
}

#[test]
fn what_costs_a_client_nothing_is_counted() {
    let open = head(1, END_HEADERS, &[]);
    let one = 1_u32.to_be_bytes();
    for (bytes, most, exceeded) in [
        (frame(RST_STREAM, 0, 1, &one), 3, Kind::Reset),
        (frame(PING, 0, 0, b"12345678"), 2, Kind::Ping),
        (frame(SETTINGS, 0, 0, b""), 0, Kind::Settings),
        (frame(DATA, 0, 1, b""), 5, Kind::Small),
        (frame(DATA, 0, 1, b"a"), 5, Kind::Small),
        (frame(PRIORITY, 0, 1, b"12345"), 5, Kind::Small),
        (frame(PRIORITY_UPDATE, 0, 0, b"1234"), 5, Kind::Small),
        (frame(200, 0, 0, b""), 5, Kind::Small),
        (frame(GOAWAY, 0, 0, b"12345678"), 5, Kind::Small),
    ] {
        let mut protocol = begun();
        protocol.receive(&open, 1).unwrap();
        protocol.attach(1, 0);
        for _ in 0..most {
            protocol.receive(&bytes, 1).unwrap();
            assert_eq!(protocol.exceeded, None, "{exceeded:?}");
        }
        protocol.receive(&bytes, 1).unwrap();
        assert_eq!(protocol.exceeded, Some(exceeded));
        // Nothing more is read.
        protocol.receive(&frame(PING, 0, 1, b""), 1).unwrap();
        assert!(protocol.is_stopped());
    }
    // A head in many frames, and updates of windows without a reason.
    let mut protocol = begun();
    protocol.receive(&head(1, 0, &[]), 1).unwrap();
    let part = frame(CONTINUATION, 0, 1, b"");
    (0..5).for_each(|_| protocol.receive(&part, 1).unwrap());
    assert_eq!(protocol.exceeded, Some(Kind::Small));
    let mut protocol = begun();
    let update = frame(WINDOW_UPDATE, 0, 0, &one);
    for _ in 0..EXPLAINED_AT_FIRST + 5 {
        protocol.receive(&update, 1).unwrap();
    }
    assert_eq!(protocol.exceeded, None);
    protocol.receive(&open, 1).unwrap();
    for _ in 0..EXPLAINED_BY_REQUEST {
        protocol.receive(&update, 1).unwrap();
    }
    protocol.send_data(1, vec![0; 64].into(), false);
    for _ in 0..EXPLAINED_BY_DATA {
        protocol.receive(&update, 1).unwrap();
    }
    assert_eq!(protocol.exceeded, None);
    protocol.receive(&update, 1).unwrap();
    assert_eq!(protocol.exceeded, Some(Kind::Small));
    let mut protocol = begun();
    for stream in (1..20).step_by(2) {
        for usual in [
            head(stream, END_HEADERS, &[]),
            frame(DATA, 0, stream, &[0; 64]),
            frame(DATA, END_STREAM, stream, b""),
            frame(PING, ACK, 0, b"12345678"),
            frame(SETTINGS, ACK, 0, b""),
            frame(WINDOW_UPDATE, 0, stream, &one),
        ] {
            protocol.receive(&usual, 1).unwrap();
            protocol.begin_turn(false);
            protocol.go_on().unwrap();
        }
    }
    assert_eq!(protocol.exceeded, None);
}

#[test]
fn a_turn_takes_so_many_frames_and_requests_and_the_next_goes_on() {
    let mut protocol = begun();
    protocol.begin_turn(false);
    let ping = frame(PING, ACK, 0, b"12345678");
    let last = frame(PING, 0, 0, b"the last");
    let bytes = [ping.repeat(TURN_FRAMES as usize), last].concat();
    // Cut in the middle of a frame.
    protocol.receive(&bytes[..50], 1).unwrap();
    protocol.receive(&bytes[50..], 2).unwrap();
    assert!(protocol.is_stopped() && said(&mut protocol).is_empty());
    protocol.begin_turn(false);
    protocol.go_on().unwrap();
    assert!(!protocol.is_stopped());
    assert_eq!(said(&mut protocol), [(PING, ACK, 0, b"the last".to_vec())]);
    // Frames after the last request belong to its turn, because they may reset it.
    let mut bytes = Vec::new();
    for stream in (1..60).step_by(2) {
        bytes.extend(head(stream, END_HEADERS | END_STREAM, &[]));
    }
    let mut protocol = begun();
    protocol.receive(&bytes, 1).unwrap();
    let count = |protocol: &mut Protocol| std::iter::from_fn(|| protocol.next_request()).count();
    let first = count(&mut protocol);
    assert!(protocol.is_stopped() && (1..30).contains(&first));
    let mut all = first;
    while protocol.is_stopped() {
        protocol.begin_turn(false);
        protocol.go_on().unwrap();
        all += count(&mut protocol);
    }
    assert_eq!(all, 30);
}

#[test]
fn what_is_wrong_with_a_request_ends_its_stream_alone() {
    let whole = END_HEADERS | END_STREAM;
    let long = [b'x'; 9000];
    let upload =
        |more: &[(&[u8], &[u8])], behind: Vec<u8>| [head(3, END_HEADERS, more), behind].concat();
    let trailers = |fields: &[(&[u8], &[u8])]| upload(&[], checks::head(3, whole, fields));
    let five: &[(&[u8], &[u8])] = &[(b"content-length", b"5")];
    let most = MOST_WINDOW.to_be_bytes();
    for (bytes, code) in [
        (head(3, whole, &[(b"x", b"a\x01b")]), PROTOCOL_ERROR),
        (head(3, whole, &[(b"x", b"a\0")]), PROTOCOL_ERROR),
        (head(3, whole, &[(b"x", b"a\nb")]), PROTOCOL_ERROR),
        (head(3, whole, &[(b"x", b" a")]), PROTOCOL_ERROR),
        (head(3, whole, &[(b"Upper", b"a")]), PROTOCOL_ERROR),
        (head(3, whole, &[(b":path", b"/b")]), PROTOCOL_ERROR),
        (head(3, whole, &[(b"", b"a")]), PROTOCOL_ERROR),
        (head(3, whole, five), PROTOCOL_ERROR),
        (
            upload(five, frame(DATA, END_STREAM, 3, b"abc")),
            PROTOCOL_ERROR,
        ),
        (upload(five, frame(DATA, 0, 3, &[0; 100])), PROTOCOL_ERROR),
        (upload(five, checks::head(3, whole, &[])), PROTOCOL_ERROR),
        (trailers(&[(b":method", b"GET")]), PROTOCOL_ERROR),
        (trailers(&[(b"x", b"a ")]), PROTOCOL_ERROR),
        (trailers(&[(b"Upper", b"a")]), PROTOCOL_ERROR),
        (
            upload(&[], checks::head(3, END_HEADERS, &[])),
            PROTOCOL_ERROR,
        ),
        (
            upload(&[], frame(WINDOW_UPDATE, 0, 3, &[0; 4])),
            PROTOCOL_ERROR,
        ),
        (
            upload(&[], frame(WINDOW_UPDATE, 0, 3, &most)),
            FLOW_CONTROL_ERROR,
        ),
        (
            [
                frame(SETTINGS, ACK, 0, b""),
                upload(&[], frame(DATA, 0, 3, &[0; 1001])),
            ]
            .concat(),
            FLOW_CONTROL_ERROR,
        ),
        (
            upload(&[], frame(PRIORITY, 0, 3, &[0, 0, 0, 3, 0])),
            PROTOCOL_ERROR,
        ),
        (
            upload(&[], frame(PRIORITY, 0, 3, &[0; 4])),
            FRAME_SIZE_ERROR,
        ),
        (
            [head(3, whole, &[]), frame(DATA, 0, 3, &[0; 100])].concat(),
            STREAM_CLOSED,
        ),
        (
            [head(3, whole, &[]), head(3, whole, &[])].concat(),
            STREAM_CLOSED,
        ),
    ] {
        let mut protocol = begun();
        let field: (&[u8], &[u8]) = (b"x-long", &long);
        protocol.receive(&head(1, END_HEADERS, &[]), 1).unwrap();
        protocol.receive(&bytes, 1).unwrap();
        protocol.receive(&head(5, whole, &[field]), 1).unwrap();
        let said = said(&mut protocol);
        assert_eq!(said.first(), Some(&reset(3, code)), "{bytes:?}");
        let mut served = Vec::new();
        while let Some(arrived) = protocol.next_request() {
            let is_refused = arrived.head.is_err();
            if !protocol.is_reset(arrived.id) {
                served.push((arrived.id, is_refused));
            }
        }
        assert_eq!(served, [(1, false), (5, true)]);
        // Further frames on this stream have no meaning.
        let more = frame(DATA, 0, 3, &[0; 100]);
        protocol.receive(&more, 1).unwrap();
    }
}

#[test]
fn what_is_wrong_with_the_frames_ends_the_connection() {
    let whole = END_HEADERS | END_STREAM;
    let some = head(1, whole, &[]);
    for (bytes, code) in [
        (frame(DATA, 0, 0, b""), PROTOCOL_ERROR),
        (frame(DATA, 0, 1, b"a"), PROTOCOL_ERROR),
        (frame(HEADERS, whole, 2, &some[HEAD..]), PROTOCOL_ERROR),
        (frame(HEADERS, whole, 1, b"\xff"), COMPRESSION_ERROR),
        (
            frame(HEADERS, whole | PADDED, 1, b"\x05abc"),
            PROTOCOL_ERROR,
        ),
        (
            frame(HEADERS, whole | HAS_PRIORITY, 1, b"abc"),
            FRAME_SIZE_ERROR,
        ),
        (frame(HEADERS, whole | PADDED, 1, b""), FRAME_SIZE_ERROR),
        (
            [frame(HEADERS, 0, 1, b""), frame(PING, 0, 0, b"12345678")].concat(),
            PROTOCOL_ERROR,
        ),
        (frame(CONTINUATION, 0, 1, b""), PROTOCOL_ERROR),
        (frame(PRIORITY, 0, 0, b"12345"), PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 1, b"1234"), PROTOCOL_ERROR),
        (frame(RST_STREAM, 0, 1, b"123"), FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 1, b""), PROTOCOL_ERROR),
        (frame(SETTINGS, 0, 0, b"12345"), FRAME_SIZE_ERROR),
        (frame(SETTINGS, ACK, 0, b"123456"), FRAME_SIZE_ERROR),
        (frame(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2]), PROTOCOL_ERROR),
        (
            frame(SETTINGS, 0, 0, &[0, 4, 255, 0, 0, 0]),
            FLOW_CONTROL_ERROR,
        ),
        (frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]), PROTOCOL_ERROR),
        (frame(PUSH_PROMISE, 0, 1, b"1234"), PROTOCOL_ERROR),
        (frame(PING, 0, 0, b"1234"), FRAME_SIZE_ERROR),
        (frame(PING, 0, 1, b"12345678"), PROTOCOL_ERROR),
        (frame(GOAWAY, 0, 0, b"1234"), FRAME_SIZE_ERROR),
        (frame(WINDOW_UPDATE, 0, 0, &[0; 4]), PROTOCOL_ERROR),
        (
            frame(WINDOW_UPDATE, 0, 0, &MOST_WINDOW.to_be_bytes()),
            FLOW_CONTROL_ERROR,
        ),
        (frame(WINDOW_UPDATE, 0, 0, b"123"), FRAME_SIZE_ERROR),
        (frame(WINDOW_UPDATE, 0, 7, b"1234"), PROTOCOL_ERROR),
        (frame(PRIORITY_UPDATE, 0, 1, b"1234"), PROTOCOL_ERROR),
        (frame(77, 0, 0, &[0; MAX_FRAME + 1]), FRAME_SIZE_ERROR),
        (
            [head(3, whole, &[]), head(1, whole, &[])].concat(),
            STREAM_CLOSED,
        ),
    ] {
        let mut protocol = begun();
        let found = protocol.receive(&bytes, 1).unwrap_err();
        assert_eq!((found.code, found.limit), (code, None), "{bytes:?}");
    }
    // Until a client has reset a stream too, it may not know that weir has.
    let mut protocol = begun();
    protocol.receive(&head(1, END_HEADERS, &[]), 1).unwrap();
    protocol.send_data(1, Default::default(), true);
    said(&mut protocol);
    let data = frame(DATA, 0, 1, &[0; 100]);
    protocol.receive(&data, 1).unwrap();
    protocol.remove(1);
    protocol.receive(&data, 1).unwrap();
    assert!(said(&mut protocol).is_empty());
    protocol
        .receive(&frame(RST_STREAM, 0, 1, &[0; 4]), 1)
        .unwrap();
    protocol.receive(&data, 1).unwrap();
    assert_eq!(said(&mut protocol), [reset(1, STREAM_CLOSED)]);
    // Whether the carrier has already noticed the client's reset makes no difference.
    for is_removed in [false, true] {
        let mut protocol = begun();
        let cancel = frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes());
        let begin = [head(1, END_HEADERS, &[]), cancel].concat();
        protocol.receive(&begin, 1).unwrap();
        if is_removed {
            protocol.remove(1);
        }
        protocol.receive(&data, 1).unwrap();
        assert_eq!(said(&mut protocol), [reset(1, STREAM_CLOSED)]);
        let mut protocol = begun();
        protocol.receive(&begin, 1).unwrap();
        if is_removed {
            protocol.remove(1);
        }
        let fields = checks::head(1, whole, &[]);
        assert_eq!(protocol.receive(&fields, 1), Err(wrong(STREAM_CLOSED)));
    }
    for first in [&b"PRI * HTTP/2.1"[..], b"x"] {
        let mut protocol = Protocol::new(LIMITS, Vec::new(), 1);
        assert_eq!(protocol.receive(first, 1), Err(wrong(PROTOCOL_ERROR)));
    }
    let mut protocol = Protocol::new(LIMITS, Vec::new(), 1);
    let begin = [PREFACE, &frame(PING, 0, 0, b"12345678")[..]].concat();
    assert_eq!(protocol.receive(&begin, 1), Err(wrong(PROTOCOL_ERROR)));
    // A head that never ends.
    let mut protocol = Protocol::new(
        Limits {
            small_frames: 1000,
            ..LIMITS
        },
        Vec::new(),
        1,
    );
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..], &head(1, 0, &[])].concat();
    protocol.receive(&begin, 1).unwrap();
    let part = frame(CONTINUATION, 0, 1, &[0x82; 16_000]);
    let end = (0..10)
        .find_map(|_| protocol.receive(&part, 1).err())
        .unwrap();
    assert_eq!(end.code, ENHANCE_YOUR_CALM);
    assert!(end.limit.unwrap().starts_with("max_head"));
}

#[test]
fn a_client_sends_no_more_than_its_windows_until_its_bytes_are_taken() {
    let mut protocol = Protocol::new(LIMITS, Vec::new(), 1);
    // What is beyond the usual window is allowed with the settings.
    let first = said(&mut protocol);
    assert_eq!(first[0].0, SETTINGS);
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..]].concat();
    protocol.receive(&begin, 1).unwrap();
    protocol.receive(&head(1, END_HEADERS, &[]), 1).unwrap();
    // The client has not acknowledged the smaller window of streams.
    protocol.receive(&frame(DATA, 0, 1, &[0; 2000]), 1).unwrap();
    protocol.receive(&frame(SETTINGS, ACK, 0, b""), 1).unwrap();
    protocol.receive(&head(3, END_HEADERS, &[]), 1).unwrap();
    protocol.receive(&frame(DATA, 0, 3, &[0; 600]), 1).unwrap();
    assert_eq!((protocol.held, protocol.open), (2600, 2));
    said(&mut protocol);
    assert_eq!(protocol.take_body(3), Came::Data(vec![0; 600]));
    let more = 600_u32.to_be_bytes().to_vec();
    assert_eq!(said(&mut protocol), [(WINDOW_UPDATE, 0, 3, more)]);
    assert_eq!(protocol.take_body(3), Came::Nothing);
    assert!(said(&mut protocol).is_empty());
    protocol.receive(&frame(DATA, 0, 3, &[0; 1001]), 1).unwrap();
    assert_eq!(said(&mut protocol), [reset(3, FLOW_CONTROL_ERROR)]);
    assert_eq!(protocol.held, 2000);
    // Padding counts, but is not kept. Bytes that nobody reads are not kept either. Only the connection's window is
    // opened again.
    protocol.receive(&head(5, END_HEADERS, &[]), 1).unwrap();
    let padded = [&[200][..], b"abc", &[0; 200]].concat();
    protocol
        .receive(&frame(DATA, PADDED, 5, &padded), 1)
        .unwrap();
    assert_eq!(protocol.take_body(5), Came::Data(b"abc".to_vec()));
    protocol.ignore_body(1);
    assert_eq!(protocol.held, 0);
    let last = frame(DATA, END_STREAM, 5, &[1; 100]);
    protocol.receive(&last, 1).unwrap();
    assert_eq!(protocol.take_body(5), Came::Data(vec![1; 100]));
    assert_eq!(protocol.take_body(5), Came::End);
    assert!(said(&mut protocol).iter().all(|frame| frame.2 != 5));
}

#[test]
fn a_client_that_resets_too_much_is_told_so_and_what_runs_goes_on() {
    let mut protocol = begun();
    protocol.receive(&head(1, END_HEADERS, &[]), 1).unwrap();
    for stream in [3, 5, 7, 9] {
        let head = head(stream, END_HEADERS, &[]);
        protocol.receive(&head, 1).unwrap();
        protocol.attach(stream, stream);
        let reset = frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
        protocol.receive(&reset, 1).unwrap();
    }
    assert_eq!(protocol.exceeded, Some(Kind::Reset));
    said(&mut protocol);
    protocol.calm();
    let goaway = [9_u32.to_be_bytes(), ENHANCE_YOUR_CALM.to_be_bytes()].concat();
    assert_eq!(said(&mut protocol), [(GOAWAY, 0, 0, goaway)]);
    // New requests and their frames have no meaning any more. A part of the body of the running request still has.
    protocol.begin_turn(false);
    let more = [
        head(11, END_HEADERS, &[]),
        frame(DATA, 0, 11, &[0; 100]),
        frame(RST_STREAM, 0, 11, &CANCEL.to_be_bytes()),
        frame(DATA, 0, 1, &[0; 100]),
    ];
    protocol.receive(&more.concat(), 1).unwrap();
    assert_eq!(protocol.take_body(1), Came::Data(vec![0; 100]));
    assert!(said(&mut protocol).is_empty());
    assert!(!protocol.is_reset(1));
    // But not without end.
    for stream in (13..30).step_by(2) {
        protocol
            .receive(&head(stream, END_HEADERS, &[]), 1)
            .unwrap();
    }
    assert_eq!(protocol.exceeded, Some(Kind::Small));
}

#[test]
fn more_streams_than_allowed_and_more_memory_than_there_is_are_refused() {
    let limits = Limits {
        streams: 1,
        ..LIMITS
    };
    let mut protocol = Protocol::new(limits, Vec::new(), 1);
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..]].concat();
    protocol.receive(&begin, 1).unwrap();
    said(&mut protocol);
    protocol.receive(&head(1, END_HEADERS, &[]), 1).unwrap();
    protocol.receive(&head(3, END_HEADERS, &[]), 1).unwrap();
    assert_eq!(said(&mut protocol), [reset(3, REFUSED_STREAM)]);
    assert!(protocol.memory() > 0);
    // An answer frees the place. The client learns that nobody reads the rest of the request.
    protocol.send_data(1, Default::default(), true);
    let end = (DATA, END_STREAM, 1, Vec::new());
    assert_eq!(said(&mut protocol), [end, reset(1, NO_ERROR)]);
    protocol.remove(1);
    assert_eq!((protocol.memory(), protocol.open), (0, 0));
    // With a full memory, a connection may have a few heads, and no more.
    let limits = Limits {
        streams: 100,
        ..LIMITS
    };
    let mut protocol = Protocol::new(limits, Vec::new(), 1);
    protocol.receive(&begin, 1).unwrap();
    let large: (&[u8], &[u8]) = (b"x", &[b'x'; 7000]);
    let mut refused = Vec::new();
    for stream in (1..30).step_by(2) {
        protocol.begin_turn(true);
        let head = head(stream, END_HEADERS, &[large]);
        protocol.receive(&head, 1).unwrap();
        let said = said(&mut protocol);
        refused.extend(
            said.contains(&reset(stream, REFUSED_STREAM))
                .then_some(stream),
        );
        assert!(protocol.memory() <= 64 << 10);
    }
    assert!(refused.len() > 3 && refused[0] > 9, "{refused:?}");
    protocol.remove(1);
    assert!(protocol.memory() > 0);
}

#[test]
fn time_counts_from_the_begin_of_what_is_not_whole() {
    use weir_observe::clock::NEVER;
    let mut protocol = Protocol::new(LIMITS, Vec::new(), 1);
    assert_eq!(protocol.incomplete_since(), 1);
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[])[..]].concat();
    protocol.receive(&begin, 2).unwrap();
    assert_eq!(protocol.incomplete_since(), NEVER);
    let request = head(1, 0, &[]);
    protocol.receive(&request[..3], 3).unwrap();
    assert_eq!(protocol.incomplete_since(), 3);
    // Its head is whole, but not its end.
    protocol.receive(&request[3..], 4).unwrap();
    assert_eq!(protocol.incomplete_since(), 3);
    let end = frame(CONTINUATION, END_HEADERS, 1, b"");
    protocol.receive(&end, 5).unwrap();
    assert_eq!(protocol.incomplete_since(), NEVER);
    // A body may be slow: the steps look at that.
    let data = frame(DATA, 0, 1, &[0; 100]);
    protocol.receive(&data[..50], 6).unwrap();
    assert_eq!(protocol.incomplete_since(), NEVER);
    protocol
        .receive(&[&data[50..], &request[..20]].concat(), 7)
        .unwrap();
    assert_eq!(protocol.incomplete_since(), 7);
}

#[test]
fn resets_count_for_the_client_whom_a_proxy_names() {
    let mut protocol = begun();
    for stream in (1..20).step_by(2) {
        protocol.begin_turn(false);
        let head = head(stream, END_HEADERS, &[]);
        protocol.receive(&head, 1).unwrap();
        // If a request was not begun, the reader of its head counts it.
        if stream % 4 == 3 {
            protocol.attach(stream, stream);
            protocol.set_client(stream, 7);
        }
        let cause = match stream % 8 {
            3 => frame(WINDOW_UPDATE, 0, stream, &[0; 4]),
            _ => frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()),
        };
        protocol.receive(&cause, 1).unwrap();
    }
    assert_eq!(protocol.exceeded, None);
    // Five of them: three are allowed.
    assert!(protocol.clients.is_refused(7, 1) && !protocol.clients.is_refused(8, 1));
    (0..3).for_each(|_| protocol.count_reset(0));
    assert_eq!(protocol.exceeded, None);
    protocol.count_reset(0);
    assert_eq!(protocol.exceeded, Some(Kind::Reset));
}
