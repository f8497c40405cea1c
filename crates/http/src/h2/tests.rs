//! The carrier with a client of the `h2` crate.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    runtime::LocalOptions,
    task::spawn_local,
};

use super::*;
use crate::{ConnState, Timeouts, multiplex::memory::ALWAYS};

/// Keeps its requests, and reads no body until it is told.
struct Keeping {
    state: ConnState,
    bodies: Rc<RefCell<Vec<RequestBody>>>,
}

impl Front for Keeping {
    type Receipt = ();

    fn begin(&self, request: Request) -> Begun<()> {
        self.bodies.borrow_mut().push(request.body);
        Begun::Steps(Box::pin(std::future::pending()))
    }

    fn state(&self) -> &ConnState {
        &self.state
    }
}

const LIMITS: Limits = Limits::of_checks();

const LONG: Duration = Duration::from_secs(600);

static TIMEOUTS: Timeouts = Timeouts {
    header: LONG,
    body: LONG,
    idle: LONG,
    send: LONG,
};

/// Sends a body without an end, as much as the server takes.
async fn upload(socket: UnixStream) {
    let (mut client, connection) = h2::client::handshake(socket).await.unwrap();
    spawn_local(async move { _ = connection.await });
    let request = http::Request::post("http://a/").body(()).unwrap();
    let (_answer, mut body) = client.send_request(request, false).unwrap();
    loop {
        body.reserve_capacity(16 << 10);
        match std::future::poll_fn(|cx| body.poll_capacity(cx)).await {
            Some(Ok(room)) => body.send_data(Bytes::from(vec![0; room]), false).unwrap(),
            _ => return,
        }
    }
}

#[test]
fn bodies_that_nobody_reads_have_one_limit_for_all_connections() {
    static MEMORY: Memory = Memory::new(1 << 20);
    const CLIENTS: u64 = 6;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let bodies = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for _ in 0..CLIENTS {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let front = Keeping {
                state: ConnState::new(&TIMEOUTS),
                bodies: bodies.clone(),
            };
            let connection = Connection::new(front, Socket::Unix(ours), vec![], LIMITS, &MEMORY);
            tasks.push(spawn_local(connection));
            spawn_local(upload(theirs));
        }
        // This runs until all connections wait. Without the limit, the windows would allow 6 MB.
        let (mut held, mut same) = (0, 0);
        while same < 1000 || bodies.borrow().len() < CLIENTS as usize {
            tokio::task::yield_now().await;
            let now = MEMORY.held();
            same = if now == held { same + 1 } else { 0 };
            held = now;
        }
        let most = (1 << 20) + CLIENTS * (ALWAYS + io::TURN_BYTES as u64);
        assert!((1 << 20..=most).contains(&held), "{held}");
        for task in &tasks {
            task.abort();
        }
        for task in tasks {
            _ = task.await;
        }
        assert_eq!(MEMORY.held(), 0);
    });
}

/// Sends a byte to itself again and again, and counts how often that came: each time the reactor must look at its sockets.
async fn echo(count: Rc<Cell<u32>>) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    loop {
        here.write_all(b"a").await.unwrap();
        // A read that fills its space would be taken as a sign that there is more.
        assert_eq!(there.read(&mut [0; 16]).await.unwrap(), 1);
        count.set(count.get() + 1);
    }
}

#[test]
fn a_flood_of_small_frames_leaves_the_reactor_to_others() {
    static MEMORY: Memory = Memory::new(1 << 20);
    const FRAMES: usize = 100_000;
    let frame = |kind: u8, payload: &[u8]| {
        let head = [0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 0];
        [&head[..], payload].concat()
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let front = Keeping {
            state: ConnState::new(&TIMEOUTS),
            bodies: Rc::default(),
        };
        let limits = Limits {
            small_frames: 1_000_000,
            ..LIMITS
        };
        // Frames of an unknown type, and a PING at their end.
        let flood = frame(77, b"").repeat(FRAMES);
        let ahead = [PREFACE, &frame(4, b"")[..], &flood, &frame(6, b"the end.")].concat();
        let connection = Connection::new(front, Socket::Unix(ours), ahead, limits, &MEMORY);
        let connection = spawn_local(connection);
        let count = Rc::new(Cell::new(0));
        let echo = spawn_local(echo(count.clone()));
        let mut answers = Vec::new();
        while !answers.ends_with(b"the end.") {
            assert!(theirs.read_buf(&mut answers).await.unwrap() > 0);
        }
        assert!(
            count.get() > FRAMES as u32 / protocol::TURN_FRAMES / 2,
            "others had {} turns",
            count.get()
        );
        connection.abort();
        echo.abort();
    });
}
