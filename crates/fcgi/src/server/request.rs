//! Reads the requests that a client sends on one connection, one at a time.

use crate::ProtocolError;
use crate::frame::Frame;
use crate::nv::{self, Pairs};
use crate::record::{Header, MAX_MANAGEMENT, RecordType, Role};

/// How much of a client's request may be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Limits for all parameters of a request together.
    pub params: nv::Limits,
}

/// What a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'i> {
    /// A request has begun (FastCGI 1.0 §5.1).
    Begin {
        /// Its number on this connection.
        id: u16,
        /// The requested role.
        role: Role,
        /// Whether the client wants the connection to stay open afterwards.
        keep_conn: bool,
    },
    /// All parameters of the request.
    Params(Pairs),
    /// A piece of the request's body. Never empty. The ends of pieces have no meaning: one record may give several.
    Stdin(&'i [u8]),
    /// The body is complete.
    StdinEnd,
    /// A piece of a filter's second input. Never empty.
    Data(&'i [u8]),
    /// A filter's second input is complete.
    DataEnd,
    /// The client asks to give the request up; it must still be ended (FastCGI 1.0 §5.4).
    Abort,
    /// A second request during the first one. It is not accepted: answer with
    /// [`ProtocolStatus::CantMultiplex`](crate::ProtocolStatus::CantMultiplex); its further records are skipped.
    Multiplexed {
        /// The number of the request that is not taken.
        id: u16,
    },
    /// A request in a role that does not exist. It is not accepted: answer with
    /// [`ProtocolStatus::UnknownRole`](crate::ProtocolStatus::UnknownRole); its further records are skipped.
    UnknownRole {
        /// The number of the request that is not taken.
        id: u16,
        /// The role asked for.
        role: u16,
        /// Whether the client wants the connection to stay open afterwards.
        keep_conn: bool,
    },
    /// The client asks for variables with these names (FastCGI 1.0 §4.1). Answer with
    /// [`get_values_result`](super::get_values_result).
    GetValues(Pairs),
    /// A management record of a type that does not exist. Answer with [`unknown_type`](super::unknown_type).
    UnknownType(u8),
}

/// Decodes a client's records, from pieces of any size, for an application that works on one request at a time.
///
/// Bodies are slices of the input. The decoder stores a request's parameters, up to [`Limits`], or a management record
/// of at most [`MAX_MANAGEMENT`] bytes, and at most eight bytes of a header or fixed body.
///
/// A request is active from [`Event::Begin`] until the application ends it with [`end_request`](Self::end_request).
/// Records of other requests are skipped, as FastCGI 1.0 §3.3 requires: a client may still be sending a body that the
/// application did not wait for.
#[derive(Clone, Debug)]
pub struct RequestDecoder {
    frame: Frame,
    body: Body,
    active: Option<Active>,
    failed: Option<ProtocolError>,
    params: nv::Decoder,
    names: nv::Decoder,
}

/// The active request.
#[derive(Clone, Copy, Debug)]
struct Active {
    id: u16,
    role: Role,
    params_ended: bool,
    stdin_ended: bool,
    data_ended: bool,
}

/// The kind of the content that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Begin { id: u16 },
    Params,
    Stdin,
    Data,
    GetValues,
    Skipped,
}

impl RequestDecoder {
    /// A decoder for a connection from which nothing has been read.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            frame: Frame::default(),
            body: Body::Skipped,
            active: None,
            failed: None,
            params: nv::Decoder::new(limits.params),
            names: nv::Decoder::new(NAMES),
        }
    }

    /// Takes bytes from the front of `input` and gives the next event; `None` once all of the input is taken and
    /// more is needed.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] if the client breaks the protocol or exceeds a limit; every later call returns the same
    /// error.
    #[inline]
    pub fn next<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let event = self.advance(input);
        if let Err(error) = event {
            self.failed = Some(error);
            self.params.clear();
            self.names.clear();
        }
        event
    }

    /// The application has ended the active request, in any state. Further records of this request are skipped, until
    /// the next request begins.
    pub fn end_request(&mut self) {
        self.active = None;
        self.params.clear();
        if matches!(self.body, Body::Params | Body::Stdin | Body::Data) {
            self.body = Body::Skipped;
        }
    }

    /// The request at work, if there is one.
    #[must_use]
    pub fn active(&self) -> Option<u16> {
        self.active.map(|active| active.id)
    }

    /// Whether no record is open: all of its content and padding has been taken.
    #[must_use]
    pub fn at_record_boundary(&self) -> bool {
        self.frame.at_boundary()
    }

    /// Memory held on the heap, in bytes; never more than [`Limits::params`] and [`MAX_MANAGEMENT`] together.
    #[must_use]
    pub fn held(&self) -> usize {
        self.params.held() + self.names.held()
    }

    #[inline]
    fn advance<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, ProtocolError> {
        loop {
            self.frame.skip_padding(input);
            if input.is_empty() {
                return Ok(None);
            }
            let event = if self.frame.content_left() > 0 {
                self.content(input)?
            } else {
                match self.frame.header(input)? {
                    Some(header) => self.open(header)?,
                    None => return Ok(None),
                }
            };
            if event.is_some() {
                self.frame.skip_padding(input);
                return Ok(event);
            }
        }
    }

    /// Checks a header; returns an event if there is no content to wait for.
    fn open(&mut self, header: Header) -> Result<Option<Event<'static>>, ProtocolError> {
        self.body = Body::Skipped;
        let kind = RecordType::try_from(header.kind);
        match (header.id, kind) {
            (_, Ok(RecordType::GetValues)) => self.open_get_values(header),
            (0, Err(kind)) => Ok(Some(Event::UnknownType(kind))),
            (0, Ok(_)) => Err(ProtocolError::UnexpectedType(header.kind)),
            (id, Ok(RecordType::BeginRequest)) => {
                if header.content_len != 8 {
                    return Err(ProtocolError::BadBeginRequest);
                }
                if self.active() == Some(id) {
                    return Err(ProtocolError::UnexpectedType(header.kind));
                }
                self.body = Body::Begin { id };
                Ok(None)
            }
            (id, kind) => match &mut self.active {
                Some(active) if active.id == id => {
                    let kind = kind.map_err(ProtocolError::UnexpectedType)?;
                    let (body, event) = active.open(kind, header.content_len)?;
                    self.body = body;
                    if kind == RecordType::Params && header.content_len == 0 {
                        return Ok(Some(Event::Params(self.params.finish()?)));
                    }
                    Ok(event)
                }
                _ => Ok(None),
            },
        }
    }

    fn open_get_values(&mut self, header: Header) -> Result<Option<Event<'static>>, ProtocolError> {
        header.management()?;
        if usize::from(header.content_len) > MAX_MANAGEMENT {
            return Err(ProtocolError::TooLarge {
                limit: MAX_MANAGEMENT,
            });
        }
        if header.content_len == 0 {
            return Ok(Some(Event::GetValues(Pairs::default())));
        }
        self.body = Body::GetValues;
        Ok(None)
    }

    /// Takes content of the open record; `input` is not empty.
    #[inline]
    fn content<'i>(&mut self, input: &mut &'i [u8]) -> Result<Option<Event<'i>>, ProtocolError> {
        Ok(match self.body {
            Body::Begin { id } => self.frame.fixed(input).map(|body| self.begin(id, body)),
            Body::Params => {
                self.params.feed(self.frame.take(input))?;
                None
            }
            Body::Stdin => Some(Event::Stdin(self.frame.take(input))),
            Body::Data => Some(Event::Data(self.frame.take(input))),
            Body::GetValues => {
                self.names.feed(self.frame.take(input))?;
                if self.frame.content_left() > 0 {
                    return Ok(None);
                }
                Some(Event::GetValues(self.names.finish()?))
            }
            Body::Skipped => {
                self.frame.take(input);
                None
            }
        })
    }

    fn begin(&mut self, id: u16, body: [u8; 8]) -> Event<'static> {
        let keep_conn = body[2] & KEEP_CONN != 0;
        if self.active.is_some() {
            return Event::Multiplexed { id };
        }
        match Role::try_from(u16::from_be_bytes([body[0], body[1]])) {
            Ok(role) => {
                self.active = Some(Active {
                    id,
                    role,
                    params_ended: false,
                    stdin_ended: false,
                    data_ended: false,
                });
                Event::Begin {
                    id,
                    role,
                    keep_conn,
                }
            }
            Err(role) => Event::UnknownRole {
                id,
                role,
                keep_conn,
            },
        }
    }
}

impl Active {
    /// Checks a record of this request by its type and length.
    fn open(
        &mut self,
        kind: RecordType,
        length: u16,
    ) -> Result<(Body, Option<Event<'static>>), ProtocolError> {
        let unexpected = ProtocolError::UnexpectedType(kind as u8);
        let (body, ended, end) = match kind {
            RecordType::Params => (Body::Params, &mut self.params_ended, None),
            // An application cannot use a body before it has the parameters.
            _ if kind != RecordType::AbortRequest && !self.params_ended => return Err(unexpected),
            RecordType::Stdin => (Body::Stdin, &mut self.stdin_ended, Some(Event::StdinEnd)),
            RecordType::Data if self.role == Role::Filter => {
                (Body::Data, &mut self.data_ended, Some(Event::DataEnd))
            }
            RecordType::AbortRequest => return Ok((Body::Skipped, Some(Event::Abort))),
            _ => return Err(unexpected),
        };
        if *ended {
            return Err(ProtocolError::AfterStreamEnd(kind as u8));
        }
        if length == 0 {
            *ended = true;
            return Ok((body, end));
        }
        Ok((body, None))
    }
}

/// `FCGI_KEEP_CONN`, a bit of the flags in `FCGI_BEGIN_REQUEST` (FastCGI 1.0 §5.1).
const KEEP_CONN: u8 = 1;

/// One management record's worth of names; two bytes is the shortest pair.
const NAMES: nv::Limits = nv::Limits {
    bytes: MAX_MANAGEMENT,
    pairs: MAX_MANAGEMENT / 2,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;
    use crate::record::{put_empty, put_fixed};
    use alloc::vec;
    use alloc::vec::Vec;

    fn decoder() -> RequestDecoder {
        RequestDecoder::new(Limits::default())
    }

    fn events<'i>(
        decoder: &mut RequestDecoder,
        mut bytes: &'i [u8],
    ) -> Result<Vec<Event<'i>>, ProtocolError> {
        let mut events = Vec::new();
        while let Some(event) = decoder.next(&mut bytes)? {
            events.push(event);
        }
        Ok(events)
    }

    fn begin(id: u16) -> Vec<u8> {
        let mut out = Vec::new();
        client::begin_request(&mut out, id, Role::Responder, false);
        out
    }

    fn begun(id: u16) -> Event<'static> {
        Event::Begin {
            id,
            role: Role::Responder,
            keep_conn: false,
        }
    }

    fn params(out: &mut Vec<u8>, id: u16, pairs: &[(&[u8], &[u8])]) {
        let mut params = client::Params::new(out, id);
        for (name, value) in pairs {
            params.pair(name, value);
        }
        params.finish();
    }

    /// The result for the whole input, which must be the same for single bytes.
    fn error_of(bytes: &[u8]) -> ProtocolError {
        let whole = events(&mut decoder(), bytes).expect_err("the decoder took it");
        let mut decoder = decoder();
        let single = bytes
            .chunks(1)
            .find_map(|byte| events(&mut decoder, byte).err());
        assert_eq!(single, Some(whole));
        assert_eq!(decoder.held(), 0);
        whole
    }

    #[test]
    fn a_request_gives_its_parts_in_order() {
        let mut bytes = Vec::new();
        client::begin_request(&mut bytes, 7, Role::Responder, true);
        params(&mut bytes, 7, &[(b"A", b"1"), (b"B", b"")]);
        client::stdin(&mut bytes, 7, b"body");
        client::stdin_end(&mut bytes, 7);
        let mut decoder = decoder();
        let events = events(&mut decoder, &bytes).unwrap();
        let Event::Params(pairs) = &events[1] else {
            panic!("{events:?}");
        };
        let all: Vec<_> = pairs.iter().collect();
        assert_eq!(all, [(&b"A"[..], &b"1"[..]), (b"B", b"")]);
        let keep = Event::Begin {
            id: 7,
            role: Role::Responder,
            keep_conn: true,
        };
        assert_eq!(events[0], keep);
        assert_eq!(events[2..], [Event::Stdin(b"body"), Event::StdinEnd]);
        assert_eq!(decoder.active(), Some(7));
        assert_eq!(decoder.held(), 0);
    }

    #[test]
    fn what_a_client_still_sends_of_an_ended_request_is_skipped() {
        let mut bytes = begin(1);
        params(&mut bytes, 1, &[]);
        client::stdin(&mut bytes, 1, &[5; 100]);
        let (read, unread) = bytes.split_at(bytes.len() - 50);
        let mut decoder = decoder();
        assert_eq!(events(&mut decoder, read).unwrap().len(), 3);
        decoder.end_request();
        let mut rest = unread.to_vec();
        client::stdin(&mut rest, 1, b"more");
        client::stdin_end(&mut rest, 1);
        client::abort_request(&mut rest, 1);
        rest.extend(begin(1));
        assert_eq!(events(&mut decoder, &rest), Ok(vec![begun(1)]));
    }

    #[test]
    fn parameters_of_an_ended_request_do_not_reach_the_next() {
        let mut bytes = begin(1);
        params(&mut bytes, 1, &[(b"OLD", b"1")]);
        let (read, unread) = bytes.split_at(bytes.len() - 10); // within the pair
        let mut decoder = decoder();
        assert_eq!(events(&mut decoder, read), Ok(vec![begun(1)]));
        decoder.end_request();
        assert_eq!(decoder.held(), 0);
        let mut rest = unread.to_vec();
        rest.extend(begin(2));
        params(&mut rest, 2, &[]);
        let empty = Event::Params(Pairs::default());
        assert_eq!(events(&mut decoder, &rest), Ok(vec![begun(2), empty]));
    }

    #[test]
    fn a_second_request_is_told_of_and_its_records_are_skipped() {
        let mut bytes = begin(1);
        bytes.extend(begin(2));
        params(&mut bytes, 2, &[(b"X", b"2")]);
        client::stdin_end(&mut bytes, 2);
        params(&mut bytes, 1, &[]);
        let refused = Event::Multiplexed { id: 2 };
        let empty = Event::Params(Pairs::default());
        assert_eq!(
            events(&mut decoder(), &bytes),
            Ok(vec![begun(1), refused, empty])
        );
    }

    #[test]
    fn a_role_that_does_not_exist_is_told_of() {
        let mut bytes = Vec::new();
        let body = [1, 0, 1, 0, 0, 0, 0, 0];
        put_fixed(&mut bytes, RecordType::BeginRequest, 3, body);
        params(&mut bytes, 3, &[]);
        let mut decoder = decoder();
        let unknown = Event::UnknownRole {
            id: 3,
            role: 256,
            keep_conn: true,
        };
        assert_eq!(events(&mut decoder, &bytes), Ok(vec![unknown]));
        assert_eq!(decoder.active(), None);
    }

    #[test]
    fn an_abort_comes_at_any_time() {
        let mut bytes = begin(1);
        client::abort_request(&mut bytes, 1);
        params(&mut bytes, 1, &[]);
        client::abort_request(&mut bytes, 1);
        let got = events(&mut decoder(), &bytes).unwrap();
        let empty = Event::Params(Pairs::default());
        assert_eq!(got, [begun(1), Event::Abort, empty, Event::Abort]);
    }

    #[test]
    fn only_filters_have_a_second_input() {
        let data = |role| {
            let mut bytes = Vec::new();
            client::begin_request(&mut bytes, 1, role, false);
            params(&mut bytes, 1, &[]);
            bytes.extend(Header::new(RecordType::Data, 1, 1).to_bytes());
            bytes.push(b'd');
            put_empty(&mut bytes, RecordType::Data, 1);
            bytes
        };
        let filter = data(Role::Filter);
        let got = events(&mut decoder(), &filter).unwrap();
        assert_eq!(got[2..], [Event::Data(b"d"), Event::DataEnd]);
        let unexpected = ProtocolError::UnexpectedType(RecordType::Data as u8);
        assert_eq!(error_of(&data(Role::Responder)), unexpected);
    }

    #[test]
    fn management_records_come_at_any_time() {
        let mut bytes = Vec::new();
        client::get_values(&mut bytes, &[b"FCGI_MAX_CONNS", b"X"]);
        bytes.extend(begin(1));
        client::get_values(&mut bytes, &[]);
        bytes.extend([1, 200, 0, 0, 0, 3, 1, 0, 9, 9, 9, 0]);
        let got = events(&mut decoder(), &bytes).unwrap();
        let Event::GetValues(names) = &got[0] else {
            panic!("{got:?}");
        };
        let names: Vec<_> = names.iter().map(|pair| pair.0).collect();
        assert_eq!(names, [&b"FCGI_MAX_CONNS"[..], b"X"]);
        let none = Event::GetValues(Pairs::default());
        assert_eq!(got[1..], [begun(1), none, Event::UnknownType(200)]);
    }

    #[test]
    fn records_out_of_order_are_refused() {
        let unexpected = |kind: RecordType| ProtocolError::UnexpectedType(kind as u8);
        let ended = |kind: RecordType| ProtocolError::AfterStreamEnd(kind as u8);
        let then = |kinds: &[RecordType]| {
            let mut bytes = begin(1);
            for &kind in kinds {
                put_empty(&mut bytes, kind, 1);
            }
            error_of(&bytes)
        };
        use RecordType::{EndRequest, Params, Stdin, Stdout};
        assert_eq!(then(&[Stdin]), unexpected(Stdin));
        assert_eq!(then(&[Params, Params]), ended(Params));
        assert_eq!(then(&[Params, Stdin, Stdin]), ended(Stdin));
        assert_eq!(then(&[Params, Stdout]), unexpected(Stdout));
        assert_eq!(then(&[EndRequest]), unexpected(EndRequest));
        let twice = [begin(1), begin(1)].concat();
        assert_eq!(error_of(&twice), unexpected(RecordType::BeginRequest));
    }

    #[test]
    fn malformed_records_are_refused() {
        assert_eq!(error_of(b"GET / HT"), ProtocolError::BadVersion(b'G'));
        let short = [
            &Header::new(RecordType::BeginRequest, 1, 7).to_bytes()[..],
            &[0; 7],
        ]
        .concat();
        assert_eq!(error_of(&short), ProtocolError::BadBeginRequest);
        let nobody = Header::new(RecordType::BeginRequest, 0, 8).to_bytes();
        assert_eq!(error_of(&nobody), ProtocolError::UnexpectedType(1));
        let values = Header::new(RecordType::GetValues, 1, 0).to_bytes();
        let wrong = ProtocolError::WrongRequest {
            expected: 0,
            got: 1,
        };
        assert_eq!(error_of(&values), wrong);
        let mut cut = begin(1);
        cut.extend(Header::new(RecordType::Params, 1, 3).to_bytes());
        cut.extend([2, 0, b'a']);
        put_empty(&mut cut, RecordType::Params, 1);
        assert_eq!(error_of(&cut), ProtocolError::TruncatedPair);
    }

    #[test]
    fn parameters_are_limited_over_all_their_records() {
        let limits = Limits {
            params: nv::Limits {
                bytes: 100_000,
                pairs: 3,
            },
        };
        let mut many = begin(1);
        params(&mut many, 1, &[(&b"n"[..], &b"v"[..]); 4]);
        let mut decoder = RequestDecoder::new(limits);
        let error = ProtocolError::TooManyPairs { limit: 3 };
        assert_eq!(events(&mut decoder, &many), Err(error));

        let mut large = begin(1);
        params(&mut large, 1, &[(&b"n"[..], &[b'v'; 50_000][..]); 2]);
        let mut decoder = RequestDecoder::new(limits);
        let error = ProtocolError::TooLarge { limit: 100_000 };
        assert_eq!(events(&mut decoder, &large), Err(error));
        assert_eq!(decoder.held(), 0);
    }
}
