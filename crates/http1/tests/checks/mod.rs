//! Reads whole conversations that are cut anywhere. The tests here and the fuzz targets use this.

use weir_http1::{Error, Event, Limits, Method, RequestHead, ResponseHead, client, server};

/// A message that was read, and whether its end was reached.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Message {
    /// The first line's parts, and then each field's name and value.
    pub head: Vec<Vec<u8>>,
    /// Without framing.
    pub body: Vec<u8>,
    /// Names and values.
    pub trailers: Vec<Vec<u8>>,
    pub is_whole: bool,
    pub is_persistent: bool,
}

/// Reads the requests in `wire`, which arrives in pieces of these sizes. Answers each request when it is complete, and
/// stops at one that ends the connection.
pub fn requests(wire: &[u8], cuts: &[usize], limits: Limits) -> (Vec<Message>, Option<Error>) {
    let mut decoder = server::Decoder::new(limits);
    let mut head = RequestHead::default();
    let mut messages: Vec<Message> = Vec::new();
    let mut is_over = false;
    let error = feed(wire, cuts, |input| {
        while !is_over && let Some(event) = decoder.next(input, &mut head)? {
            match event {
                Event::Head => {
                    let first_line = vec![
                        head.method_bytes().to_vec(),
                        head.target_bytes().to_vec(),
                        format!("{:?}", head.version()).into_bytes(),
                    ];
                    messages.push(begun(first_line, head.fields(), head.is_persistent()));
                }
                event => take(messages.last_mut(), event),
            }
            if decoder.is_done() {
                if let (Some(message), Some(trailers)) = (messages.last_mut(), decoder.trailers()) {
                    push_fields(&mut message.trailers, trailers);
                }
                assert!(decoder.restart());
                is_over = !head.is_persistent();
            }
        }
        Ok(())
    });
    (messages, error)
}

/// Reads the responses in `wire` to requests of these methods, which are sent one after another.
pub fn responses(
    wire: &[u8],
    cuts: &[usize],
    methods: &[Method],
    limits: Limits,
) -> (Vec<Message>, Option<Error>) {
    let mut decoder = client::Decoder::new(limits);
    let mut head = ResponseHead::default();
    let mut messages: Vec<Message> = Vec::new();
    let mut methods = methods.iter().copied();
    let Some(first) = methods.next() else {
        return (messages, None);
    };
    decoder.sent(first);
    let mut is_over = false;
    let error = feed(wire, cuts, |input| {
        while !is_over && let Some(event) = decoder.next(input, &mut head)? {
            match event {
                Event::Head => {
                    let first_line = vec![head.status().to_string().into_bytes()];
                    messages.push(begun(first_line, head.fields(), head.is_persistent()));
                }
                event => take(messages.last_mut(), event),
            }
            if event == Event::End {
                if let (Some(message), Some(trailers)) = (messages.last_mut(), decoder.trailers()) {
                    push_fields(&mut message.trailers, trailers);
                }
                match methods.next().filter(|_| decoder.is_reusable(&head)) {
                    Some(method) => decoder.sent(method),
                    None => is_over = true,
                }
            }
        }
        Ok(())
    });
    let error = error.or_else(|| match is_over {
        true => None,
        false => decoder
            .end()
            .map(|end| {
                if let (Some(message), Some(event)) = (messages.last_mut(), end) {
                    take(Some(message), event);
                }
            })
            .err(),
    });
    (messages, error)
}

/// Gives the bytes to a reader as a connection does: bytes that it does not use come again, followed by more.
fn feed(
    wire: &[u8],
    cuts: &[usize],
    mut read: impl FnMut(&mut &[u8]) -> Result<(), Error>,
) -> Option<Error> {
    let (mut held, mut rest) = (Vec::new(), wire);
    let mut cuts = cuts.iter().copied().cycle();
    while !rest.is_empty() {
        let cut = cuts.next().unwrap_or(usize::MAX).clamp(1, rest.len());
        let (piece, more) = rest.split_at(cut);
        held.extend_from_slice(piece);
        rest = more;
        let mut input = &held[..];
        if let Err(error) = read(&mut input) {
            return Some(error);
        }
        held = input.to_vec();
    }
    None
}

fn take(message: Option<&mut Message>, event: Event<'_>) {
    let Some(message) = message else {
        panic!("a body without a head");
    };
    match event {
        Event::Data(data) => {
            assert!(!data.is_empty());
            message.body.extend_from_slice(data);
        }
        Event::End => message.is_whole = true,
        Event::Head => {}
    }
}

/// A message of which the head has been read.
fn begun(
    first_line: Vec<Vec<u8>>,
    fields: &weir_http1::ParsedFields,
    is_persistent: bool,
) -> Message {
    check_fields(fields);
    let mut head = first_line;
    push_fields(&mut head, fields);
    Message {
        head,
        is_persistent,
        ..Message::default()
    }
}

fn push_fields(to: &mut Vec<Vec<u8>>, fields: &weir_http1::ParsedFields) {
    for (_, name, value) in fields.iter() {
        to.push(name.to_vec());
        to.push(value.to_vec());
    }
}

/// Checks what must hold for all fields.
fn check_fields(fields: &weir_http1::ParsedFields) {
    let bad = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
    for (known, name, value) in fields.iter() {
        assert!(!name.is_empty() && !name.iter().any(|byte| bad(byte) || b": \t".contains(byte)));
        assert!(!value.iter().any(bad));
        assert_eq!(value, value.trim_ascii());
        assert_eq!(known, weir_http1::Name::of(name));
        if let Some(known) = known {
            assert!(fields.has(known));
            assert!(fields.all(known).any(|found| found == value));
        }
    }
}

/// Reads any bytes as requests and as responses: nothing panics, and the result does not depend on how the bytes are
/// cut. The first two bytes say where they are cut.
pub fn any(data: &[u8]) {
    const LIMITS: Limits = Limits {
        head: 300,
        fields: 6,
        chunk_extensions: 12,
    };
    let Some(([one, other], wire)) = data.split_first_chunk() else {
        return;
    };
    let cuts = [usize::from(*one), usize::from(*other)];
    let (whole, error) = requests(wire, &[], LIMITS);
    let (cut, cut_error) = requests(wire, &cuts, LIMITS);
    assert_eq!((whole, error.is_some()), (cut, cut_error.is_some()));
    for methods in [
        &[Method::Get; 3],
        &[Method::Head, Method::Get, Method::Connect],
    ] {
        let (whole, error) = responses(wire, &[], methods, LIMITS);
        let (cut, cut_error) = responses(wire, &cuts, methods, LIMITS);
        assert_eq!((whole, error.is_some()), (cut, cut_error.is_some()));
    }
}
