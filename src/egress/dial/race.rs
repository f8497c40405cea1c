//! Several addresses, one connection: they are tried a quarter of a second after each other, or at once when one fails,
//! and the first that connects is taken (RFC 8305 §5, "happy eyeballs"). The others are dropped.

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

/// Who is tried. What became of them can be asked when it was dropped half way, too.
pub(super) struct Race {
    waiting: VecDeque<SocketAddr>,
    running: Vec<Attempt>,
    /// Who failed, and how.
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

    /// More to be tried, after all others have failed.
    pub(super) fn add(&mut self, addresses: Vec<SocketAddr>) {
        self.waiting.extend(addresses);
    }

    /// The first connection; none where all failed. It has no limit of its own but the kernel's.
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

    /// Those who are better tried last the next time: who failed, and who had a head start and did not make use of it.
    pub(super) fn losers(&self) -> Vec<SocketAddr> {
        let slow = self
            .running
            .iter()
            .filter(|attempt| !self.won || attempt.since.elapsed() >= ATTEMPT_DELAY);
        let failed = self.failed.iter().map(|(address, _)| *address);
        failed.chain(slow.map(|attempt| attempt.address)).collect()
    }

    /// Those who are being tried, for a message.
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

/// Before the next address is tried (RFC 8305 §5: Connection Attempt Delay).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
