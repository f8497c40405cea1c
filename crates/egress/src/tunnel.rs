//! CONNECT: passes on bytes that weir does not parse.
//!
//! Such a call cannot share a connection with others, and neither its path nor its headers can be checked: this is
//! logged once per origin.
//!
//! The two directions are independent. If one side no longer takes bytes, the bytes that it has sent before are still
//! passed on. Then both connections are closed in such a way that a side that is still sending can read all of them
//! ([`Ended::close`]).

use std::{cell::Cell, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split},
    net::TcpStream,
};

use weir_net::{Socket, linger};

/// What a tunnel has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Bytes from the caller to the origin.
    pub(crate) up: u64,
    /// Bytes from the origin to the caller.
    pub(crate) down: u64,
    /// It was ended because both sides were silent for too long.
    pub(crate) silent: bool,
}

/// A tunnel that carries nothing more. Its connections are still open.
pub(crate) struct Ended {
    pub(crate) carried: Carried,
    caller: Socket,
    origin: Socket,
}

impl Ended {
    /// Closes both connections.
    pub(crate) async fn close(self) {
        if !self.carried.silent {
            tokio::join!(linger(self.caller), linger(self.origin));
        }
    }
}

/// Carries bytes in both directions until both sides have ended, one of them breaks, or both are silent for `idle`.
/// The silence may last up to twice as long, because the timer is not reset with each byte. `ahead`: the first bytes
/// of the caller.
pub(crate) async fn carry(
    caller: Socket,
    ahead: Vec<u8>,
    origin: TcpStream,
    idle: Duration,
) -> Ended {
    let (up, down) = (Cell::new(0), Cell::new(0));
    let mut caller = split(caller);
    let mut origin = split(Socket::Tcp(origin));
    let silent = {
        let both = both(&mut caller, &ahead, &mut origin, (&up, &down));
        let mut both = std::pin::pin!(both);
        let mut seen = None;
        loop {
            if tokio::time::timeout(idle, both.as_mut()).await.is_ok() {
                break false;
            }
            let now = Some((up.get(), down.get()));
            if now == seen {
                break true;
            }
            seen = now;
        }
    };
    Ended {
        carried: Carried {
            up: up.get(),
            down: down.get(),
            silent,
        },
        caller: caller.0.unsplit(caller.1),
        origin: origin.0.unsplit(origin.1),
    }
}

/// The halves of a connection.
type Halves = (ReadHalf<Socket>, WriteHalf<Socket>);

/// Both directions, until nothing can come or go any more. `counts`: the bytes up and down.
async fn both(
    (from_caller, to_caller): &mut Halves,
    ahead: &[u8],
    (from_origin, to_origin): &mut Halves,
    counts: (&Cell<u64>, &Cell<u64>),
) {
    let upwards = async {
        if to_origin.write_all(ahead).await.is_err() {
            return End::NotTaken;
        }
        counts.0.set(ahead.len() as u64);
        pass(from_caller, to_origin, counts.0).await
    };
    let downwards = pass(from_origin, to_caller, counts.1);
    let (mut upwards, mut downwards) = (std::pin::pin!(upwards), std::pin::pin!(downwards));
    let first = tokio::select! {
        end = &mut upwards => (end, Direction::Down),
        end = &mut downwards => (end, Direction::Up),
    };
    // A side whose connection broke takes nothing, either.
    match first {
        (End::Broken, _) => {}
        (End::Over | End::NotTaken, Direction::Down) => {
            downwards.await;
        }
        (End::Over | End::NotTaken, Direction::Up) => {
            upwards.await;
        }
    }
}

/// The direction that is still open.
enum Direction {
    Up,
    Down,
}

/// How a direction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The one who sends has ended, and the other one has been told.
    Over,
    /// The connection of the one who sends broke.
    Broken,
    /// The other one takes nothing more.
    NotTaken,
}

/// Passes on what one side sends. `count`: the bytes that were read.
async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    count: &Cell<u64>,
) -> End {
    let mut buffer = vec![0; BUFFER];
    loop {
        let bytes = match from.read(&mut buffer).await {
            Ok(0) => {
                // This fails if the other side has already closed. Then it need not learn of the end.
                let _ = to.shutdown().await;
                return End::Over;
            }
            Ok(length) => buffer.get(..length).unwrap_or_default(),
            Err(_) => return End::Broken,
        };
        count.set(count.get() + bytes.len() as u64);
        if to.write_all(bytes).await.is_err() || to.flush().await.is_err() {
            return End::NotTaken;
        }
    }
}

/// Bytes that are read at once.
const BUFFER: usize = 16 << 10;
