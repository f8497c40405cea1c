use std::{
    collections::VecDeque,
    io::Write,
    rc::Rc,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    runtime::LocalOptions,
};
use weir_fcgi::{
    ProtocolStatus, Role,
    client::{self, Event, ResponseDecoder},
};
use weir_net::{FilePart, OpenFile};

use super::*;
use crate::{Answer, Body, ConnState, Fields, Part, Stream, Timeouts, Truncated};

/// The test's gateway: what it answers, and what the carrier told it.
#[derive(Default)]
struct Shared {
    /// The bodies of the next answers; without one there is no answer.
    bodies: Mutex<VecDeque<Body>>,
    moves: Mutex<Option<u16>>,
    moved: Mutex<Option<Socket>>,
    sent: AtomicU32,
    cut: AtomicU32,
}

struct Gateway {
    shared: Rc<Shared>,
    state: ConnState,
}

/// Counts as cut if it is dropped before the answer is sent.
struct Seen(Option<Rc<Shared>>);

impl Receipt for Seen {
    fn count(&mut self, _: u64) {}
    fn truncated(&mut self) {}
    fn sent(mut self) {
        self.0.take().unwrap().sent.fetch_add(1, Relaxed);
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.cut.fetch_add(1, Relaxed);
        }
    }
}

impl crate::Front for Gateway {
    type Receipt = Seen;

    fn begin(&self, request: Request) -> Begun<Seen> {
        assert!(request.params.is_some());
        let receipt = Seen(Some(self.shared.clone()));
        match self.shared.bodies.lock().unwrap().pop_front() {
            Some(body) => Begun::Answered(Answer {
                status: StatusCode::OK,
                headers: Fields::of_script(b"A: b\r\n\r\n"),
                body,
                length: None,
                keep: true,
                receipt,
            }),
            None => Begun::Steps(Box::pin(async move {
                let _receipt = receipt;
                std::future::pending().await
            })),
        }
    }

    fn state(&self) -> &ConnState {
        &self.state
    }

    fn is_draining(&self) -> bool {
        false
    }

    fn should_move(&self) -> Option<u16> {
        *self.shared.moves.lock().unwrap()
    }

    fn move_away(&mut self, _: u16, socket: Socket) {
        *self.shared.moved.lock().unwrap() = Some(socket);
    }

    fn refused(&self, _: StatusCode, _: &'static str, _: &str) {}
}

impl Front for Gateway {
    fn capacity(&self) -> Capacity {
        Capacity {
            connections: 1,
            requests: 1,
        }
    }
}

/// A body that is cut after the first `whole` of its parts.
#[derive(Debug)]
struct Broken {
    whole: usize,
}

impl Stream for Broken {
    fn poll_part(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Part, Truncated>>> {
        Poll::Ready(Some(match self.whole {
            0 => Err(Truncated),
            _ => {
                self.whole -= 1;
                Ok(Part::Bytes("part".into()))
            }
        }))
    }
}

/// Lets a web server talk to a connection that answers with `bodies`.
fn talk<F: Future<Output = ()>>(
    bodies: impl IntoIterator<Item = Body>,
    web_server: impl FnOnce(UnixStream, Rc<Shared>) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let shared = Rc::new(Shared {
            bodies: Mutex::new(bodies.into_iter().collect()),
            ..Shared::default()
        });
        let long = Duration::from_secs(60);
        let gateway = Gateway {
            shared: shared.clone(),
            state: ConnState::new(Box::leak(Box::new(Timeouts {
                header: long,
                body: long,
                idle: long,
                send: long,
            }))),
        };
        tokio::task::spawn_local(Connection::new(gateway, Socket::Unix(ours)));
        web_server(theirs, shared).await;
    });
}

fn request() -> Vec<u8> {
    let mut bytes = Vec::new();
    client::begin_request(&mut bytes, 1, Role::Responder, true);
    let mut params = client::Params::new(&mut bytes, 1);
    params.pair(b"REQUEST_METHOD", b"GET");
    params.finish();
    client::stdin_end(&mut bytes, 1);
    bytes
}

/// The bytes until END_REQUEST, or until the connection ends, and whether END_REQUEST has come.
async fn answer(web_server: &mut UnixStream) -> (Vec<u8>, bool) {
    let (mut decoder, mut stdout) = (ResponseDecoder::new(1), Vec::new());
    let mut buffer = vec![0; 10_000];
    loop {
        let count = web_server.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return (stdout, false);
        }
        let mut input = &buffer[..count];
        while let Some(event) = decoder.next(&mut input).unwrap() {
            match event {
                Event::Stdout(bytes) => stdout.extend_from_slice(bytes),
                Event::End {
                    protocol_status, ..
                } => {
                    assert_eq!(protocol_status, ProtocolStatus::RequestComplete);
                    return (stdout, true);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn an_answer_is_cut_without_an_end_and_without_a_head_if_nothing_was_sent() {
    for (whole, expected) in [(0, &b""[..]), (1, &b"A: b\r\n\r\npart"[..])] {
        let body = Body::Stream(Box::new(Broken { whole }));
        talk([body], |mut web_server, _| async move {
            web_server.write_all(&request()).await.unwrap();
            assert_eq!(answer(&mut web_server).await, (expected.to_vec(), false));
        });
    }
}

#[test]
fn parts_of_files_are_sent_in_records() {
    let mut file = tempfile::tempfile().unwrap();
    let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    file.write_all(&content).unwrap();
    let file = Rc::new(OpenFile::new(file.into(), content.len() as u64));
    let part = |offset, len| Part::File(FilePart::new(file.clone(), offset, len));
    let len = content.len() as u64;
    let parts = [
        part(10, len - 10),
        Part::Bytes("between".into()),
        part(0, 1),
    ];
    let head = &b"A: b\r\n\r\n"[..];
    let expected = [head, &content[10..], b"between", &content[..1]].concat();
    let bodies = [Body::Parts(parts.into()), Body::Bytes("next".into())];
    talk(bodies, |mut web_server, shared| async move {
        for expected in [&expected[..], b"A: b\r\n\r\nnext"] {
            web_server.write_all(&request()).await.unwrap();
            let (stdout, is_whole) = answer(&mut web_server).await;
            assert!(stdout == expected && is_whole);
        }
        // It becomes idle after that.
        while shared.sent.load(Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_request_that_is_aborted_is_dropped_and_ended() {
    talk([], |mut web_server, shared| async move {
        let mut bytes = request();
        client::abort_request(&mut bytes, 1);
        web_server.write_all(&bytes).await.unwrap();
        assert_eq!(answer(&mut web_server).await, (Vec::new(), true));
        assert_eq!(shared.cut.load(Relaxed), 1);
        let body = Body::Bytes("kept".into());
        shared.bodies.lock().unwrap().push_back(body);
        web_server.write_all(&request()).await.unwrap();
        let expected = b"A: b\r\n\r\nkept".to_vec();
        assert_eq!(answer(&mut web_server).await, (expected, true));
    });
}

#[test]
fn a_connection_moves_between_two_requests() {
    let body = Body::Bytes("body".into());
    talk([body], |mut web_server, shared| async move {
        // A connection with a part of a request is not handed over.
        let (begin, rest) = (request()[..10].to_vec(), request()[10..].to_vec());
        web_server.write_all(&begin).await.unwrap();
        tokio::task::yield_now().await;
        *shared.moves.lock().unwrap() = Some(3);
        web_server.write_all(&rest).await.unwrap();
        assert!(answer(&mut web_server).await.1);
        let socket = loop {
            if let Some(socket) = shared.moved.lock().unwrap().take() {
                break socket;
            }
            tokio::task::yield_now().await;
        };
        // Nothing of the next request is lost.
        web_server.write_all(b"next").await.unwrap();
        let mut bytes = [0; 4];
        let mut socket = socket;
        socket.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"next");
    });
}

/// Apache answers 503 if it cannot send the record that ends a body of no bytes, though it has the whole answer by then.
#[test]
fn an_answer_before_the_end_of_the_body_can_be_read() {
    talk(
        [Body::Bytes("early".into())],
        |mut web_server, _| async move {
            let mut bytes = Vec::new();
            client::begin_request(&mut bytes, 1, Role::Responder, false);
            let mut params = client::Params::new(&mut bytes, 1);
            params.pair(b"REQUEST_METHOD", b"GET");
            params.finish();
            web_server.write_all(&bytes).await.unwrap();
            let expected = b"A: b\r\n\r\nearly".to_vec();
            assert_eq!(answer(&mut web_server).await, (expected, true));
            assert_eq!(web_server.read(&mut [0]).await.unwrap(), 0);
            let mut end = Vec::new();
            client::stdin_end(&mut end, 1);
            web_server.write_all(&end).await.unwrap();
        },
    );
}
