//! Tries several addresses for one connection: each a quarter of a second after the last, or at once if one fails.
//! The first connection that succeeds is used (RFC 8305 §5, "happy eyeballs"), the others are dropped.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    net::{TcpSocket, TcpStream},
    time::Instant,
};

/// The addresses that are tried. Their results are available also if it was stopped halfway.
pub(super) struct Race {
    waiting: VecDeque<SocketAddr>,
    running: Vec<Attempt>,
    /// Addresses that failed, with the error.
    pub(super) failed: Vec<(SocketAddr, io::Error)>,
    won: bool,
}

struct Attempt {
    address: SocketAddr,
    since: Instant,
    connect: Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>,
}

impl Race {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Race {
        Race {
            waiting: addresses.into(),
            running: Vec::new(),
            failed: Vec::new(),
            won: false,
        }
    }

    /// Adds addresses, after all others have failed.
    pub(super) fn add(&mut self, addresses: Vec<SocketAddr>) {
        self.waiting.extend(addresses);
    }

    /// The first connection; `None` if all failed. There is no time limit besides the kernel's.
    pub(super) async fn run(&mut self) -> Option<(SocketAddr, TcpStream)> {
        loop {
            match self.waiting.pop_front() {
                Some(address) => self.running.push(Attempt::start(address)),
                None if self.running.is_empty() => return None,
                None => {}
            }
            let more = !self.waiting.is_empty();
            let ended = tokio::select! {
                biased;
                ended = poll_fn(|context| self.poll(context)) => Some(ended),
                () = tokio::time::sleep(ATTEMPT_DELAY), if more => None,
            };
            match ended {
                Some((address, Ok(stream))) => {
                    self.won = true;
                    return Some((address, stream));
                }
                Some((address, Err(error))) => self.failed.push((address, error)),
                None => {}
            }
        }
    }

    /// Addresses that should be tried last next time: those that failed, and those that were slower although they
    /// started earlier.
    pub(super) fn losers(&self) -> Vec<SocketAddr> {
        let slow = self
            .running
            .iter()
            .filter(|attempt| !self.won || attempt.since.elapsed() >= ATTEMPT_DELAY);
        let failed = self.failed.iter().map(|(address, _)| *address);
        failed.chain(slow.map(|attempt| attempt.address)).collect()
    }

    /// The addresses that are being tried, for a message.
    pub(super) fn tried(&self) -> String {
        let running = self.running.iter().map(|attempt| attempt.address);
        let tried = self
            .failed
            .iter()
            .map(|(address, _)| *address)
            .chain(running);
        let shown: Vec<String> = tried
            .take(super::MOST_TOLD)
            .map(|a| a.to_string())
            .collect();
        shown.join(", ")
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(SocketAddr, io::Result<TcpStream>)> {
        for index in 0..self.running.len() {
            if let Poll::Ready(result) = self.running[index].connect.as_mut().poll(context) {
                let attempt = self.running.remove(index);
                return Poll::Ready((attempt.address, result));
            }
        }
        Poll::Pending
    }
}

impl Attempt {
    fn start(address: SocketAddr) -> Attempt {
        let connect = async move {
            let socket = match address {
                SocketAddr::V4(_) => TcpSocket::new_v4()?,
                SocketAddr::V6(_) => TcpSocket::new_v6()?,
            };
            socket.connect(address).await
        };
        Attempt {
            address,
            since: Instant::now(),
            connect: Box::pin(connect),
        }
    }
}

/// Delay before the next address is tried (RFC 8305 §5: Connection Attempt Delay).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
