//! Properties that hold for any bytes of a client, in pieces of any size. The property tests here run them on generated
//! bytes, `fuzz/` on its own input.

use bytes::Bytes;

use super::{
    control::{Controls, Event, MOST_PAYLOAD, OneWay},
    head, qpack,
    receive::{Failed, Got, Receiving},
};
use crate::multiplex::{Limits, literals::Malformed};

/// A field: name and value.
type Field = (Vec<u8>, Vec<u8>);

fn fields(block: &[u8]) -> Result<Vec<Field>, Malformed> {
    let mut fields = Vec::new();
    qpack::decode(block, false, |name, value| {
        fields.push((name.into(), value.into()));
    })?;
    Ok(fields)
}

/// A head of QPACK means the same when weir writes it, and is never complete before its end.
pub fn qpack(block: &[u8]) {
    let Ok(read) = fields(block) else {
        return;
    };
    let mut written = Vec::new();
    qpack::begin(&mut written);
    for (name, value) in &read {
        qpack::put(&mut written, name, value);
    }
    assert_eq!(fields(&written).as_ref(), Ok(&read));
    // A part of it is malformed, or has some of the fields.
    if let Ok(some) = fields(&block[..block.len() / 2]) {
        assert!(some.len() <= read.len() && read.starts_with(&some));
    }
}

/// The parts of a request's stream that have arrived.
#[derive(Debug, Default, PartialEq, Eq)]
struct Message {
    head: Option<Vec<u8>>,
    body: Vec<u8>,
    /// Frames that cost weir work and the client nearly nothing.
    small: u32,
    failed: Option<Failed>,
}

/// A stream of requests gives the same however its bytes are cut into pieces of these sizes, again and again. No head is larger than
/// `most`, and no body longer than its head says.
pub fn request(bytes: &[u8], cuts: &[usize], most: u64) {
    let whole = message(bytes, &[bytes.len()], most);
    let cut = message(bytes, cuts, most);
    assert_eq!(cut.head, whole.head);
    assert_eq!(cut.failed, whole.failed);
    match whole.failed {
        None => assert_eq!(cut, whole),
        // The pieces decide how much of the body comes before the error.
        Some(_) => {
            let (longer, shorter) = match cut.body.len() < whole.body.len() {
                true => (whole, cut),
                false => (cut, whole),
            };
            assert!(longer.body.starts_with(&shorter.body));
        }
    }
}

fn message(bytes: &[u8], cuts: &[usize], most: u64) -> Message {
    let (mut receiving, mut message) = (Receiving::new(), Message::default());
    let mut declared = None;
    let limits = Limits {
        head: most as u32,
        ..Limits::of_checks()
    };
    let pieces = pieces(bytes, cuts);
    let read = pieces.into_iter().try_for_each(|piece| {
        let mut piece = Some(piece);
        while let Some(got) = receiving.feed(piece.take().unwrap_or_default(), most)? {
            match got {
                Got::Head(block) => {
                    assert!(message.head.is_none() && message.body.is_empty());
                    assert!(block.len() as u64 <= most);
                    let read = head::read(&block, &limits);
                    message.head = Some(block);
                    // The connection handles a head in the same way.
                    let wrong = |_| Failed::Stream(super::MESSAGE_ERROR);
                    declared = read?.map_err(wrong)?.1;
                    receiving.declare(declared);
                }
                Got::Data(data) => {
                    assert!(message.head.is_some());
                    message.body.extend_from_slice(&data);
                }
                Got::End | Got::Waits => unreachable!("there is no QUIC"),
            }
        }
        assert!(receiving.partial_head() as u64 <= most);
        Ok(())
    });
    message.failed = read.and_then(|()| receiving.feed_end()).err();
    message.small = receiving.take_small();
    let length = message.body.len() as u64;
    match message.failed {
        None => assert!(declared.is_none_or(|declared| declared == length)),
        Some(_) => assert!(declared.is_none_or(|declared| declared >= length)),
    }
    message
}

/// Streams of one direction, one after the other, say the same however their bytes are cut, and keep little.
pub fn one_ways(streams: &[&[u8]], cuts: &[usize]) {
    let whole = events(streams, None);
    assert_eq!(events(streams, Some(cuts)), whole);
}

fn events(streams: &[&[u8]], cuts: Option<&[usize]>) -> Result<Vec<Event>, u64> {
    let (mut controls, mut events) = (Controls::default(), Vec::new());
    for bytes in streams {
        let mut stream = OneWay::new();
        for piece in pieces(bytes, cuts.unwrap_or(&[bytes.len()])) {
            let read = stream.read(piece, &mut controls, &mut events);
            read.map_err(|wrong| wrong.code)?;
            assert!(stream.kept() as u64 <= MOST_PAYLOAD);
        }
    }
    // Each event has at least a byte.
    assert!(events.len() <= streams.iter().map(|bytes| bytes.len()).sum());
    Ok(events)
}

fn pieces(bytes: &[u8], cuts: &[usize]) -> Vec<Bytes> {
    let (mut rest, mut pieces) = (Bytes::copy_from_slice(bytes), Vec::new());
    let mut sizes = cuts.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(1);
        pieces.push(rest.split_to(size.clamp(1, rest.len())));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h3::frames::{put_head, put_varint};
    use proptest::prelude::*;

    /// A field: what requests have, or anything.
    fn field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let usual = prop::sample::select(vec![
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "a.test"),
            (":path", "/"),
            ("content-length", "5"),
            ("te", "trailers"),
        ]);
        let usual = usual.prop_map(|(name, value)| (name.into(), value.into()));
        let any = (
            "[a-zA-Z:-]{0,12}",
            prop::collection::vec(any::<u8>(), 0..40),
        );
        prop_oneof![usual, any.prop_map(|(name, value)| (name.into(), value))]
    }

    fn block(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut block = Vec::new();
        qpack::begin(&mut block);
        for (name, value) in fields {
            qpack::put(&mut block, name, value);
        }
        block
    }

    fn framed(kind: u64, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        put_head(&mut frame, kind, payload.len());
        frame.extend_from_slice(payload);
        frame
    }

    /// A frame of a request: nearly always one that may be there.
    fn frame() -> impl Strategy<Value = Vec<u8>> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..30);
        let head =
            prop::collection::vec(field(), 0..4).prop_map(|fields| framed(1, &block(&fields)));
        prop_oneof![
            8 => bytes().prop_map(|data| framed(0, &data)),
            2 => head,
            4 => bytes().prop_map(|payload| framed(0x21, &payload)),
            1 => (0..16_u64, bytes()).prop_map(|(kind, payload)| framed(kind, &payload)),
            1 => bytes(),
        ]
    }

    /// A head that is right, perhaps with other fields.
    fn first_head() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(field(), 0..3).prop_map(|more| {
            let usual = [
                (":method", "POST"),
                (":scheme", "https"),
                (":path", "/"),
                (":authority", "a.test"),
            ];
            let usual = usual.map(|(name, value)| (name.into(), value.into()));
            framed(1, &block(&[&usual[..], &more].concat()))
        })
    }

    fn cuts() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(1..20_usize, 1..6)
    }

    /// A frame of a control stream.
    fn control() -> impl Strategy<Value = Vec<u8>> {
        let kinds = vec![
            3, 4, 5, 7, 0x0d, 0x21, 0xf_0700, 0xf_0701, 0xf_0700, 0xf_0700,
        ];
        let payload = (
            0..40_u64,
            prop::sample::select(vec!["", "u=1", "u=2,i", "\0"]),
        );
        let payload = payload.prop_map(|(number, text)| {
            let mut payload = Vec::new();
            put_varint(&mut payload, number);
            payload.extend_from_slice(text.as_bytes());
            payload
        });
        let one = (prop::sample::select(kinds), payload);
        prop_oneof![
            8 => one.prop_map(|(kind, payload)| framed(kind, &payload)),
            1 => (0..2000_usize).prop_map(|length| framed(0x21, &vec![0; length])),
            1 => prop::collection::vec(any::<u8>(), 0..20),
        ]
    }

    proptest! {
        #[test]
        fn any_head_of_qpack_keeps_the_rules(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            qpack(&bytes);
            qpack(&[&[0, 0], &bytes[..]].concat());
        }

        #[test]
        fn written_heads_keep_the_rules(fields in prop::collection::vec(field(), 0..10)) {
            qpack(&block(&fields));
        }

        #[test]
        fn a_request_is_the_same_however_it_is_cut(
            first in first_head(), frames in prop::collection::vec(frame(), 0..10), cuts in cuts(), most in 60..1000_u64,
        ) {
            let bytes = frames.concat();
            request(&bytes, &cuts, most);
            request(&[&first[..], &bytes].concat(), &cuts, most);
        }

        #[test]
        fn the_other_streams_are_the_same_however_they_are_cut(
            frames in prop::collection::vec(control(), 0..10), other in prop::collection::vec(any::<u8>(), 0..30), cuts in cuts(),
        ) {
            let settings = [&[0, 4, 2, 6, 0][..], &frames.concat()].concat();
            one_ways(&[&settings, &other], &cuts);
            one_ways(&[&[&[3][..], &other].concat(), &settings], &cuts);
            one_ways(&[&[&[2][..], &other].concat()], &cuts);
        }
    }
}
