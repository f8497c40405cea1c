//! A client and an application talk over one connection. The operations come from bytes: requests follow each other,
//! the application ends some of them before it has read them, and the bytes arrive in pieces of any size.

use super::Source;
use weir_fcgi::client::{self, ResponseDecoder};
use weir_fcgi::nv;
use weir_fcgi::record::FCGI_MPXS_CONNS;
use weir_fcgi::server::{self, RequestDecoder};
use weir_fcgi::{ProtocolStatus, Role};

/// Runs the conversation. Panics where one side reads something else than the other side has written.
pub fn conversation(data: &[u8]) {
    let mut source = Source(data);
    let mut talk = Talk::new();
    while !source.0.is_empty() {
        talk.step(&mut source);
    }
    talk.finish();
}

/// One direction of the connection.
#[derive(Default)]
struct Wire {
    bytes: Vec<u8>,
    delivered: usize,
}

/// What one request says, as written by one side or as read by the other.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    params: Vec<(Vec<u8>, Vec<u8>)>,
    stdin: Vec<u8>,
    stdin_ended: bool,
    aborts: usize,
}

/// What one response says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answered {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    stdout_ended: bool,
    app_status: u32,
}

struct Talk {
    to_application: Wire,
    to_client: Wire,
    requests: RequestDecoder,
    responses: ResponseDecoder,
    /// The client's request, until the client has read the end of its response.
    asking: Option<u16>,
    written: Said,
    read: Said,
    /// Whether the application has begun to read the request. Reset when the application ends the request.
    working: bool,
    params_read: bool,
    answer_written: Answered,
    answer_read: Answered,
    answer_ended: bool,
    questions: usize,
    answers: usize,
}

impl Talk {
    fn new() -> Self {
        Self {
            to_application: Wire::default(),
            to_client: Wire::default(),
            requests: RequestDecoder::new(LIMITS),
            responses: ResponseDecoder::new(0),
            asking: None,
            written: Said::default(),
            read: Said::default(),
            working: false,
            params_read: false,
            answer_written: Answered::default(),
            answer_read: Answered::default(),
            answer_ended: false,
            questions: 0,
            answers: 0,
        }
    }

    fn step(&mut self, source: &mut Source<'_>) {
        match source.byte() % 10 {
            0 => self.ask(source),
            1 => self.send_body(source),
            2 => self.end_body(),
            3 => self.abort(),
            4 => self.question(),
            5 => self.write_stdout(source),
            6 => self.write_stderr(source),
            7 => self.end_answer(source.byte()),
            8 => self.deliver_to_application(source.number() % 2048),
            _ => self.deliver_to_client(source.number() % 2048),
        }
    }

    /// Begins a request, if there is none.
    fn ask(&mut self, source: &mut Source<'_>) {
        let id = u16::from(source.byte()) + 1;
        if self.asking.is_some() {
            return;
        }
        self.asking = Some(id);
        self.responses.reset(id);
        self.written = Said::default();
        self.read = Said::default();
        self.params_read = false;
        self.answer_written = Answered::default();
        self.answer_read = Answered::default();
        self.answer_ended = false;
        let out = &mut self.to_application.bytes;
        client::begin_request(out, id, Role::Responder, true);
        let mut params = client::Params::new(out, id);
        for _ in 0..source.byte() % 8 {
            let (name, mut value) = text(source);
            // Sometimes a value that fills several records.
            if source.byte().is_multiple_of(16) {
                value.resize(source.number() * 2, b'v');
            }
            params.pair(&name, &value);
            self.written.params.push((name, value));
        }
        params.finish();
    }

    fn send_body(&mut self, source: &mut Source<'_>) {
        let body = vec![source.byte(); source.number() * 2];
        if let Some(id) = self.asking
            && !self.written.stdin_ended
        {
            client::stdin(&mut self.to_application.bytes, id, &body);
            self.written.stdin.extend(body);
        }
    }

    fn end_body(&mut self) {
        if let Some(id) = self.asking
            && !self.written.stdin_ended
        {
            client::stdin_end(&mut self.to_application.bytes, id);
            self.written.stdin_ended = true;
        }
    }

    fn abort(&mut self) {
        if let Some(id) = self.asking {
            client::abort_request(&mut self.to_application.bytes, id);
            self.written.aborts += 1;
        }
    }

    /// The answer must come before the end of a request: after that, the client accepts nothing more.
    fn question(&mut self) {
        if self.asking.is_some() && !self.answer_ended && !self.working {
            client::get_values(&mut self.to_application.bytes, &[FCGI_MPXS_CONNS]);
            self.questions += 1;
        }
    }

    fn write_stdout(&mut self, source: &mut Source<'_>) {
        let piece = vec![source.byte(); source.number() * 2];
        if let (true, Some(id)) = (self.working, self.asking)
            && !self.answer_written.stdout_ended
        {
            server::stdout(&mut self.to_client.bytes, id, &piece);
            self.answer_written.stdout.extend(piece);
        }
    }

    fn write_stderr(&mut self, source: &mut Source<'_>) {
        let piece = vec![source.byte(); source.number() % 1000];
        if let (true, Some(id)) = (self.working, self.asking) {
            server::stderr(&mut self.to_client.bytes, id, &piece);
            self.answer_written.stderr.extend(piece);
        }
    }

    /// Ends the request once every question is answered, even if the application has not read all of it.
    fn end_answer(&mut self, status: u8) {
        let Some(id) = self.asking.filter(|_| self.working) else {
            return;
        };
        if self.questions > 0 {
            return;
        }
        let out = &mut self.to_client.bytes;
        if status.is_multiple_of(2) {
            server::stdout_end(out, id);
            self.answer_written.stdout_ended = true;
        }
        self.answer_written.app_status = u32::from(status);
        server::end_request(out, id, u32::from(status), ProtocolStatus::RequestComplete);
        self.requests.end_request();
        self.working = false;
        self.answer_ended = true;
    }

    fn deliver_to_application(&mut self, most: usize) {
        let wire = &mut self.to_application;
        let end = wire.bytes.len().min(wire.delivered + most);
        let mut input = &wire.bytes[wire.delivered..end];
        wire.delivered = end;
        while let Some(event) = self.requests.next(&mut input).expect("well-formed") {
            match event {
                server::Event::Begin {
                    id,
                    role: Role::Responder,
                    keep_conn: true,
                } => {
                    assert_eq!(self.asking, Some(id));
                    self.working = true;
                }
                server::Event::Params(pairs) => {
                    let owned = pairs.iter().map(|(n, v)| (n.to_vec(), v.to_vec()));
                    self.read.params = owned.collect();
                    self.params_read = true;
                }
                server::Event::Stdin(piece) => self.read.stdin.extend_from_slice(piece),
                server::Event::StdinEnd => self.read.stdin_ended = true,
                server::Event::Abort => self.read.aborts += 1,
                server::Event::GetValues(names) => {
                    assert!(names.iter().eq([(FCGI_MPXS_CONNS, &b""[..])]));
                    let values = [(FCGI_MPXS_CONNS, &b"0"[..])];
                    server::get_values_result(&mut self.to_client.bytes, &values);
                    self.questions -= 1;
                    self.answers += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(input.is_empty());
    }

    fn deliver_to_client(&mut self, most: usize) {
        let wire = &mut self.to_client;
        let end = wire.bytes.len().min(wire.delivered + most);
        let mut input = &wire.bytes[wire.delivered..end];
        wire.delivered = end;
        while let Some(event) = self.responses.next(&mut input).expect("well-formed") {
            match event {
                client::Event::Stdout(piece) => self.answer_read.stdout.extend_from_slice(piece),
                client::Event::Stderr(piece) => self.answer_read.stderr.extend_from_slice(piece),
                client::Event::StdoutEnd => self.answer_read.stdout_ended = true,
                client::Event::GetValuesResult(values) => {
                    assert_eq!(values, [(FCGI_MPXS_CONNS.to_vec(), b"0".to_vec())]);
                    self.answers -= 1;
                }
                client::Event::End { app_status, .. } => {
                    self.answer_read.app_status = app_status;
                    assert!(self.asking.take().is_some() && self.responses.is_ended());
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(input.is_empty());
        if self.asking.is_none() && self.responses.is_ended() {
            assert_eq!(self.answer_read, self.answer_written);
            self.compare_request();
        }
    }

    /// The application must have read what the client wrote, or the beginning of it if it ended the request early.
    fn compare_request(&self) {
        assert!(self.read.aborts <= self.written.aborts);
        assert!(self.written.stdin.starts_with(&self.read.stdin));
        if self.params_read {
            assert_eq!(self.read.params, self.written.params);
        }
        if self.read.stdin_ended {
            assert_eq!(self.read.stdin, self.written.stdin);
        }
    }

    /// Delivers all bytes and ends all open requests.
    fn finish(mut self) {
        self.end_body();
        self.deliver_to_application(usize::MAX / 2);
        if self.working {
            assert_eq!(self.read, self.written);
        }
        self.end_answer(0);
        self.deliver_to_client(usize::MAX / 2);
        assert!(self.asking.is_none() && self.questions == 0 && self.answers == 0);
        assert!(self.requests.at_record_boundary() && self.responses.at_record_boundary());
    }
}

/// A name and a value of up to 255 bytes each.
fn text(source: &mut Source<'_>) -> (Vec<u8>, Vec<u8>) {
    let (name, value) = (source.byte(), source.byte());
    (
        source.take(usize::from(name)).to_vec(),
        source.take(usize::from(value)).to_vec(),
    )
}

/// Above what `ask` can write: seven pairs, each value of at most 131,070 bytes.
const LIMITS: server::Limits = server::Limits {
    params: nv::Limits {
        bytes: 1 << 20,
        pairs: 7,
    },
};
