//! Sequences of frames that no client should send, by h3i: a client of HTTP/3 on quiche and BoringSSL, which shares no code with weir.
//!
//! ```text
//! weir-h3i ADDRESS NAME
//! ```
//!
//! NAME is the name of a site with `/text.txt` and the script `/echo.php`. Each case prints a line. The exit status is 1 if one has failed.

use std::process::ExitCode;
use std::time::Duration;

use h3i::actions::h3::{
    Action, ExpectedStreamSendResult, StreamEvent, StreamEventType, WaitType, send_headers_frame,
    send_headers_frame_literal,
};
use h3i::client::connection_summary::ConnectionSummary;
use h3i::client::sync_client;
use h3i::config::Config;
use h3i::frame::H3iFrame;
use h3i::quiche::ConnectionError;
use h3i::quiche::h3::Header;
use h3i::quiche::h3::frame::Frame;

use Wanted::{Answer, End, Refusal};

// RFC 9114 §8.1
const NO_ERROR: u64 = 0x100;
const STREAM_CREATION_ERROR: u64 = 0x103;
const CLOSED_CRITICAL_STREAM: u64 = 0x104;
const FRAME_UNEXPECTED: u64 = 0x105;
const FRAME_ERROR: u64 = 0x106;
const EXCESSIVE_LOAD: u64 = 0x107;
const ID_ERROR: u64 = 0x108;
const SETTINGS_ERROR: u64 = 0x109;
const MISSING_SETTINGS: u64 = 0x10a;
const REQUEST_INCOMPLETE: u64 = 0x10d;
const MESSAGE_ERROR: u64 = 0x10e;
const QPACK_DECOMPRESSION_FAILED: u64 = 0x200;

/// The client's streams: the first for a request; control, QPACK's encoder and decoder.
const REQUEST: u64 = 0;
const CONTROL: u64 = 2;
const ENCODER: u64 = 6;
const DECODER: u64 = 10;
/// Another one.
const FOURTH: u64 = 14;

/// What a server must do.
enum Wanted {
    /// End the connection with one of these codes.
    End(&'static [u64]),
    /// Reset the first request's stream with one of these codes, or answer with a status from 400 on.
    Refusal(&'static [u64]),
    /// Answer the first request with this status.
    Answer(&'static str),
}

struct Case {
    name: &'static str,
    actions: Vec<Action>,
    wanted: Wanted,
}

struct Site {
    name: String,
    address: String,
}

impl Site {
    fn head(&self, method: &str, path: &str, more: &[(&str, &str)]) -> Vec<Header> {
        let usual = [
            (":method", method),
            (":scheme", "https"),
            (":authority", &self.name),
            (":path", path),
        ];
        let all = usual.iter().chain(more);
        all.map(|(name, value)| Header::new(name.as_bytes(), value.as_bytes()))
            .collect()
    }

    fn get(&self, stream: u64) -> Action {
        send_headers_frame(stream, true, self.head("GET", "/text.txt", &[]))
    }

    fn post(&self, more: &[(&str, &str)], is_last: bool) -> Action {
        send_headers_frame(REQUEST, is_last, self.head("POST", "/echo.php", more))
    }

    fn literal(&self, more: &[(&str, &str)]) -> Action {
        send_headers_frame_literal(REQUEST, true, self.head("GET", "/echo.php", more))
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(name)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: weir-h3i ADDRESS NAME");
        return ExitCode::from(2);
    };
    let site = Site { name, address };
    let cases: Vec<Case> = (streams(&site).into_iter())
        .chain(control(&site))
        .chain(messages(&site))
        .collect();
    let mut failed = Vec::new();
    let count = cases.len();
    for case in cases {
        match run(&site, &case) {
            Ok(()) => println!("fine: {}", case.name),
            Err(problem) => {
                println!("FAILED: {}: {problem}", case.name);
                failed.push(case.name);
            }
        }
    }
    println!("{} fine, {} failed", count - failed.len(), failed.len());
    ExitCode::from(u8::from(!failed.is_empty()))
}

fn case(name: &'static str, wanted: Wanted, actions: Vec<Action>) -> Case {
    Case {
        name,
        actions,
        wanted,
    }
}

/// Streams that are missing, come twice, or end.
fn streams(site: &Site) -> Vec<Case> {
    let closed = || End(&[CLOSED_CRITICAL_STREAM]);
    let twice = || End(&[STREAM_CREATION_ERROR]);
    vec![
        case("a request", Answer("200"), vec![site.get(REQUEST)]),
        case(
            "a request before the control stream has begun",
            Answer("200"),
            vec![site.get(REQUEST), open(CONTROL, 0), settings(CONTROL)],
        ),
        case(
            "streams of types that nobody knows",
            Answer("200"),
            vec![
                open(FOURTH, 0x21),
                bytes(FOURTH, b"what is this?", true),
                open(FOURTH + 4, 0x1f * 9 + 0x21),
                reset(FOURTH + 4, NO_ERROR),
                site.get(REQUEST),
            ],
        ),
        case("a second control stream", twice(), vec![open(FOURTH, 0)]),
        case("a push stream", twice(), vec![open(FOURTH, 1)]),
        case("a second encoder stream", twice(), vec![open(FOURTH, 2)]),
        case("a second decoder stream", twice(), vec![open(FOURTH, 3)]),
        case(
            "the end of control",
            closed(),
            vec![bytes(CONTROL, b"", true)],
        ),
        case(
            "a reset of control",
            closed(),
            vec![reset(CONTROL, NO_ERROR)],
        ),
        case(
            "a reset of the encoder",
            closed(),
            vec![reset(ENCODER, NO_ERROR)],
        ),
        case(
            "a reset of the decoder",
            closed(),
            vec![reset(DECODER, NO_ERROR)],
        ),
    ]
}

/// Frames of the control stream.
fn control(site: &Site) -> Vec<Case> {
    let frame = |frame| send(CONTROL, frame, false);
    let priority = |id, value: &[u8]| {
        let prioritized_element_id = id;
        let priority_field_value = value.to_vec();
        send(
            CONTROL,
            Frame::PriorityUpdateRequest {
                prioritized_element_id,
                priority_field_value,
            },
            false,
        )
    };
    let push = Frame::PriorityUpdatePush {
        prioritized_element_id: 3,
        priority_field_value: b"u=1".to_vec(),
    };
    let head = vec![0, 0, 0xd1];
    vec![
        case(
            "SETTINGS twice",
            End(&[FRAME_UNEXPECTED]),
            vec![settings(CONTROL)],
        ),
        case(
            "HEADERS on control",
            End(&[FRAME_UNEXPECTED]),
            vec![frame(Frame::Headers {
                header_block: head.clone(),
            })],
        ),
        case(
            "PUSH_PROMISE on control",
            End(&[FRAME_UNEXPECTED]),
            vec![frame(Frame::PushPromise {
                push_id: 1,
                header_block: head,
            })],
        ),
        case(
            "MAX_PUSH_ID that shrinks",
            End(&[ID_ERROR]),
            vec![
                frame(Frame::MaxPushId { push_id: 9 }),
                frame(Frame::MaxPushId { push_id: 8 }),
            ],
        ),
        case(
            "CANCEL_PUSH of nothing",
            End(&[ID_ERROR]),
            vec![frame(Frame::CancelPush { push_id: 7 })],
        ),
        case(
            "GOAWAY that grows",
            End(&[ID_ERROR]),
            vec![
                frame(Frame::GoAway { id: 4 }),
                frame(Frame::GoAway { id: 8 }),
            ],
        ),
        case(
            "a priority before its request",
            Answer("200"),
            vec![priority(REQUEST, b"u=1, i"), site.get(REQUEST)],
        ),
        case(
            "a priority of a server's stream",
            End(&[ID_ERROR]),
            vec![priority(1, b"u=1")],
        ),
        case(
            "a priority of a push that is none",
            End(&[ID_ERROR]),
            vec![frame(push)],
        ),
        case(
            "an unknown frame of a size that is never sent",
            Answer("200"),
            vec![
                bytes(CONTROL, b"\x21\xc0\0\0\0\xff\xff\xff\xffabc", false),
                site.get(REQUEST),
            ],
        ),
        case(
            "SETTINGS of a size that is never sent",
            End(&[
                EXCESSIVE_LOAD,
                FRAME_ERROR,
                SETTINGS_ERROR,
                MISSING_SETTINGS,
                FRAME_UNEXPECTED,
            ]),
            vec![bytes(CONTROL, b"\x04\xc0\0\0\0\xff\xff\xff\xffabc", false)],
        ),
    ]
}

/// Frames of a request's stream.
fn messages(site: &Site) -> Vec<Case> {
    let data = |text: &[u8], is_last| {
        send(
            REQUEST,
            Frame::Data {
                payload: text.to_vec(),
            },
            is_last,
        )
    };
    let refused = || Refusal(&[MESSAGE_ERROR]);
    let many: Vec<(String, String)> = (0..110)
        .map(|n| (format!("x-{n}"), "y".to_owned()))
        .collect();
    let many: Vec<(&str, &str)> = many
        .iter()
        .map(|(name, value)| (&name[..], &value[..]))
        .collect();
    let unknown = Frame::Unknown {
        raw_type: 0x4040,
        payload: b"who knows".to_vec(),
    };
    vec![
        case(
            "DATA first",
            End(&[FRAME_UNEXPECTED]),
            vec![data(b"abc", true)],
        ),
        case(
            "SETTINGS on a request",
            End(&[FRAME_UNEXPECTED]),
            vec![settings(REQUEST)],
        ),
        case(
            "a body that is shorter than it says",
            refused(),
            vec![
                site.post(&[("content-length", "5")], false),
                data(b"test", true),
            ],
        ),
        case(
            "a body that is longer than it says",
            refused(),
            vec![
                site.post(&[("content-length", "3")], false),
                data(b"test", true),
            ],
        ),
        case(
            "unknown frames between others",
            Answer("200"),
            vec![
                send(REQUEST, unknown.clone(), false),
                site.post(&[], false),
                send(REQUEST, unknown.clone(), false),
                data(b"", false),
                data(b"test", false),
                send(REQUEST, unknown, true),
            ],
        ),
        case(
            "a stream of nothing",
            Refusal(&[REQUEST_INCOMPLETE]),
            vec![bytes(REQUEST, b"", true)],
        ),
        case(
            "a name in capital letters",
            refused(),
            vec![site.literal(&[("X-Upper", "a")])],
        ),
        case(
            "a pseudo-header field last",
            refused(),
            vec![site.literal(&[("a", "b"), (":late", "a")])],
        ),
        case(
            "transfer-encoding",
            refused(),
            vec![site.literal(&[("transfer-encoding", "chunked")])],
        ),
        case(
            "a line feed",
            refused(),
            vec![site.literal(&[("a", "b\nc")])],
        ),
        case(
            "too many fields",
            Refusal(&[EXCESSIVE_LOAD, MESSAGE_ERROR, 0x10b]),
            vec![site.literal(&many)],
        ),
        case(
            "a field section that no decoder reads",
            End(&[QPACK_DECOMPRESSION_FAILED]),
            vec![bytes(REQUEST, b"\x01\x04\0\0\xff\xff", true)],
        ),
        case(
            "a reset in the middle of a head",
            Answer("200"),
            vec![
                bytes(4, b"\x01\x40\xff\0\0", false),
                Action::FlushPackets,
                reset(4, 0x10c),
                site.get(REQUEST),
            ],
        ),
    ]
}

/// Runs a case over a connection of its own. Returns what is wrong.
fn run(site: &Site, case: &Case) -> Result<(), String> {
    let config = Config::new()
        .with_host_port(format!("{}:443", site.name))
        .with_connect_to(site.address.clone())
        .verify_peer(false)
        .with_idle_timeout(10_000);
    let mut actions = Vec::new();
    let begins = |action: &Action| {
        matches!(
            action,
            Action::OpenUniStream {
                stream_id: CONTROL,
                ..
            }
        )
    };
    if !case.actions.iter().any(begins) {
        actions.extend([
            open(CONTROL, 0),
            settings(CONTROL),
            open(ENCODER, 2),
            open(DECODER, 3),
        ]);
    }
    // A reset takes back what was not sent yet.
    actions.extend([Action::FlushPackets, wait(100)]);
    actions.extend(case.actions.iter().cloned());
    actions.push(Action::FlushPackets);
    actions.push(match case.wanted {
        // It ends the waiting, too.
        End(_) => wait(5000),
        Refusal(_) | Answer(_) => Action::Wait {
            wait_type: WaitType::StreamEvent(StreamEvent {
                stream_id: REQUEST,
                event_type: StreamEventType::Finished,
            }),
        },
    });
    actions.push(Action::ConnectionClose {
        error: ConnectionError {
            is_app: true,
            error_code: NO_ERROR,
            reason: Vec::new(),
        },
    });
    let summary = sync_client::connect(config, actions, None)
        .map_err(|error| format!("no connection: {error:?}"))?;
    judge(&summary, &case.wanted)
}

fn judge(summary: &ConnectionSummary, wanted: &Wanted) -> Result<(), String> {
    let ended = summary.conn_close_details.peer_error();
    let said = || {
        let frames = summary.stream_map.stream(REQUEST);
        format!("the connection: {ended:?}; the request: {frames:?}")
    };
    let code = ended.filter(|end| end.is_app).map(|end| end.error_code);
    let frames = summary.stream_map.stream(REQUEST);
    let reset = frames.iter().find_map(|frame| match frame {
        H3iFrame::ResetStream(reset) => Some(reset.error_code),
        _ => None,
    });
    let statuses = frames.iter().filter_map(|frame| match frame {
        H3iFrame::Headers(head) => head.status_code(),
        _ => None,
    });
    let status = statuses
        .last()
        .map(|status| String::from_utf8_lossy(status).into_owned());
    let is_right = match wanted {
        End(codes) => code.is_some_and(|code| codes.contains(&code)),
        Refusal(codes) => {
            let is_refused = reset.is_some_and(|reset| codes.contains(&reset))
                || status.is_some_and(|status| status.starts_with('4'));
            is_refused && ended.is_none()
        }
        Answer(wanted) => status.as_deref() == Some(wanted) && ended.is_none(),
    };
    is_right.then_some(()).ok_or_else(said)
}

fn open(stream_id: u64, stream_type: u64) -> Action {
    Action::OpenUniStream {
        stream_id,
        fin_stream: false,
        stream_type,
        expected_result: ExpectedStreamSendResult::Ok,
    }
}

fn settings(stream_id: u64) -> Action {
    let frame = Frame::Settings {
        max_field_section_size: None,
        qpack_max_table_capacity: None,
        qpack_blocked_streams: None,
        connect_protocol_enabled: None,
        h3_datagram: None,
        grease: None,
        additional_settings: None,
        raw: None,
    };
    send(stream_id, frame, false)
}

fn send(stream_id: u64, frame: Frame, fin_stream: bool) -> Action {
    Action::SendFrame {
        stream_id,
        fin_stream,
        frame,
        expected_result: ExpectedStreamSendResult::Ok,
    }
}

fn bytes(stream_id: u64, bytes: &[u8], fin_stream: bool) -> Action {
    Action::StreamBytes {
        stream_id,
        fin_stream,
        bytes: bytes.to_vec(),
        expected_result: ExpectedStreamSendResult::Ok,
    }
}

fn reset(stream_id: u64, error_code: u64) -> Action {
    Action::ResetStream {
        stream_id,
        error_code,
    }
}

fn wait(milliseconds: u64) -> Action {
    Action::Wait {
        wait_type: WaitType::WaitDuration(Duration::from_millis(milliseconds)),
    }
}
