//! Properties that hold for any bytes of a client, in pieces of any size. The property tests here run them on generated
//! bytes, `fuzz/` on its own input.

use bytes::Bytes;

use super::{
    frames::{FrameHead, HEAD, HEADERS, MAX_FRAME, PREFACE, put},
    hpack::{self, Decoder},
    protocol::{Came, Protocol, Wrong},
};
use crate::multiplex::{Limits, literals::Malformed};

/// A field: name and value.
type Field = (Vec<u8>, Vec<u8>);

fn fields(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Field>, Malformed> {
    let mut fields = Vec::new();
    decoder.decode(block, |name, value| {
        fields.push((name.into(), value.into()));
    })?;
    Ok(fields)
}

/// Heads of HPACK that follow each other mean the same when weir writes them, and their table keeps its limit.
pub fn hpack(blocks: &[&[u8]]) {
    let mut decoder = Decoder::new();
    for block in blocks {
        let Ok(read) = fields(&mut decoder, block) else {
            return;
        };
        assert!(decoder.has_room(), "{decoder:?}");
        let mut written = Vec::new();
        for (name, value) in &read {
            hpack::put(&mut written, weir_http1::Name::of(name), name, value);
        }
        let again = fields(&mut Decoder::new(), &written).expect("a head of weir");
        for ((name, value), (again, same)) in read.iter().zip(&again) {
            assert!(name.eq_ignore_ascii_case(again) && value == same);
        }
        assert_eq!(read.len(), again.len());
    }
}

/// The target of a request and the length of its body, or the status with which it is refused.
type Asked = Result<(Vec<u8>, Option<u64>), u16>;

/// The events of a connection.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    requests: Vec<(u32, Asked)>,
    bodies: Vec<(u32, Vec<u8>, bool)>,
    wrong: Option<Wrong>,
    /// Frames for the client without its windows.
    said: Vec<u8>,
}

/// A connection says and does the same however its bytes are cut into pieces of these sizes, again and again. It never holds more than its
/// windows allow, and sends frames only.
pub fn connection(bytes: &[u8], cuts: &[usize]) {
    let whole = heard(bytes, &[bytes.len().max(1)]);
    assert_eq!(heard(bytes, cuts), whole);
    let begun = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0][..], bytes].concat();
    let whole = heard(&begun, &[begun.len()]);
    assert_eq!(heard(&begun, cuts), whole);
}

fn heard(bytes: &[u8], cuts: &[usize]) -> Heard {
    let mut protocol = Protocol::new(limits(), Vec::new(), 1);
    let (mut heard, mut out) = (Heard::default(), Vec::new());
    let (mut rest, mut sizes) = (bytes, cuts.iter().cycle());
    while !rest.is_empty() && heard.wrong.is_none() && protocol.exceeded.is_none() {
        let size = sizes.next().copied().unwrap_or(1).clamp(1, rest.len());
        let (piece, behind) = rest.split_at(size);
        rest = behind;
        heard.wrong = protocol.receive(piece, 1).err();
        while heard.wrong.is_none() && protocol.is_stopped() && protocol.exceeded.is_none() {
            protocol.begin_turn(false);
            heard.wrong = protocol.go_on().err();
        }
        assert!(protocol.kept() <= HEAD + MAX_FRAME + size.max(PREFACE.len()));
        assert!(protocol.held <= limits().window as usize);
        assert_eq!(protocol.held, protocol.bodies());
        assert!(protocol.open <= limits().streams);
        out.append(protocol.out.bytes());
        out.append(protocol.out.behind());
    }
    while let Some(arrived) = protocol.next_request() {
        let head = arrived.head.map_err(|refused| refused.status.as_u16());
        let head = head.map(|(head, length)| (head.path_and_query().to_vec(), length));
        heard.requests.push((arrived.id, head));
    }
    let streams: Vec<u32> = protocol.channels.iter().map(|one| one.id).collect();
    for id in streams {
        let mut body = Vec::new();
        let mut has_ended = false;
        loop {
            match protocol.take_body(id) {
                Came::Data(data) => body.extend(data),
                Came::End => has_ended = true,
                Came::Nothing => {}
            }
            if body.is_empty() || has_ended || protocol.bodies() == 0 {
                break;
            }
        }
        heard.bodies.push((id, body, has_ended));
        // An answer whose body fills the window.
        let room = protocol.room(id).min(MAX_FRAME);
        protocol.send_data(id, Bytes::from(vec![0; room]), true);
        protocol.remove(id);
    }
    assert_eq!((protocol.held, protocol.open), (0, 0));
    out.append(protocol.out.bytes());
    out.append(protocol.out.behind());
    heard.said = without_windows(&out);
    heard
}

/// All frames except WINDOW_UPDATE, because the pieces decide when a window is opened.
fn without_windows(mut out: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    while !out.is_empty() {
        let head = FrameHead::of(out).expect("a frame");
        assert!(head.length <= MAX_FRAME);
        let (frame, rest) = out.split_at(HEAD + head.length);
        out = rest;
        if head.kind != super::frames::WINDOW_UPDATE {
            said.extend_from_slice(frame);
        }
    }
    said
}

fn limits() -> Limits {
    Limits {
        head: 500,
        streams: 5,
        resets: 10,
        stream_window: 1000,
        window: 70_000,
        ..Limits::of_checks()
    }
}

/// A frame, for fuzz targets: what a byte string says of its kind, flags and stream.
pub fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if let [kind, flags, stream, payload @ ..] = bytes {
        let payload = &payload[..payload.len().min(MAX_FRAME)];
        put(&mut out, kind % 18, *flags, (*stream % 16).into(), payload);
    }
    out
}

/// A head without compression, in a frame.
pub fn head(stream: u32, flags: u8, fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        hpack::put(&mut block, None, name, value);
    }
    let mut out = Vec::new();
    put(&mut out, HEADERS, flags, stream, &block);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A field: what requests have, or anything.
    fn field() -> impl Strategy<Value = Field> {
        let usual = prop::sample::select(vec![
            (":path", "/b"),
            ("content-length", "5"),
            ("te", "trailers"),
            ("cookie", "a=b"),
        ]);
        let usual = usual.prop_map(|(name, value)| (name.into(), value.into()));
        let any = (
            "[a-zA-Z:-]{0,12}",
            prop::collection::vec(any::<u8>(), 0..40),
        );
        prop_oneof![usual, any.prop_map(|(name, value)| (name.into(), value))]
    }

    fn request() -> impl Strategy<Value = Vec<u8>> {
        let flags = prop::sample::select(vec![4, 5, 0, 1, 12, 37]);
        let more = prop::collection::vec(field(), 0..3);
        (0..16_u32, flags, more).prop_map(|(stream, flags, more)| {
            let usual: [(&[u8], &[u8]); 4] = [
                (b":method", b"POST"),
                (b":scheme", b"https"),
                (b":path", b"/a"),
                (b":authority", b"a.test"),
            ];
            let more = more.iter().map(|(name, value)| (&name[..], &value[..]));
            head(
                stream,
                flags,
                &usual.into_iter().chain(more).collect::<Vec<_>>(),
            )
        })
    }

    fn any_frame() -> impl Strategy<Value = Vec<u8>> {
        let payload = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            (0..2000_usize).prop_map(|length| vec![0; length]),
            Just(vec![0, 0, 0, 1]),
            Just(vec![0, 4, 0, 0, 1, 0]),
        ];
        (
            any::<u8>(),
            prop::sample::select(vec![0_u8, 1, 4, 5, 8]),
            0..16_u8,
            payload,
        )
            .prop_map(|(kind, flags, stream, payload)| {
                framed(&[&[kind, flags, stream], &payload[..]].concat())
            })
    }

    proptest! {
        #[test]
        fn any_heads_of_hpack_keep_the_rules(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..5)) {
            hpack(&blocks.iter().map(|block| &block[..]).collect::<Vec<_>>());
        }

        #[test]
        fn a_connection_is_the_same_however_it_is_cut(
            frames in prop::collection::vec(prop_oneof![3 => request(), 2 => any_frame()], 0..20), cuts in prop::collection::vec(1..60_usize, 1..6),
        ) {
            connection(&frames.concat(), &cuts);
        }

        #[test]
        fn any_bytes_are_the_same_however_they_are_cut(bytes in prop::collection::vec(any::<u8>(), 0..100), cuts in prop::collection::vec(1..9_usize, 1..6)) {
            connection(&bytes, &cuts);
        }
    }
}
