//! One client: a connection, one request at a time, and the result of each request.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::epoll::EventFlags,
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt},
};

use crate::response::{Progress, Response};

/// What to request, and what a right answer is.
pub(crate) struct Plan {
    pub(crate) server: SocketAddr,
    pub(crate) path: String,
    /// A connection per request, as ab and siege do.
    pub(crate) close: bool,
    /// POST with a unique number in each body, which the script must return.
    pub(crate) post: bool,
    pub(crate) expected: Expected,
    /// A request that takes longer has failed.
    pub(crate) timeout: Duration,
}

/// The expected body.
pub(crate) enum Expected {
    /// Any body.
    Any,
    /// These bytes.
    Exactly(Vec<u8>),
    /// These bytes anywhere in the body.
    Containing(Vec<u8>),
}

/// The end of a request.
pub(crate) struct Outcome {
    /// The time since the request was first meant to be sent.
    pub(crate) waited: Duration,
    /// What went wrong.
    pub(crate) failure: Option<String>,
    pub(crate) bytes: usize,
}

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    Room,
    Answer,
    /// The client has no request under way.
    Nothing,
}

pub(crate) struct Client {
    number: usize,
    socket: Option<OwnedFd>,
    /// Whether the socket is new and must be registered for observation.
    pub(crate) is_new: bool,
    /// The events that are observed on the socket.
    pub(crate) observed: EventFlags,
    request: Vec<u8>,
    sent: usize,
    response: Response,
    begun: Instant,
    /// Whether an answer already came on this connection. Only then the server may have closed it because it was idle.
    used: bool,
    under_way: bool,
    /// Requests so far, including the current one.
    pub(crate) asked: u64,
    pub(crate) longest: Duration,
    /// Requests that were sent again because the server had closed the kept connection (RFC 9112 §9.3.1).
    pub(crate) sent_again: u64,
}

impl Client {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            socket: None,
            is_new: false,
            observed: EventFlags::empty(),
            request: Vec::new(),
            sent: 0,
            response: Response::default(),
            begun: Instant::now(),
            used: false,
            under_way: false,
            asked: 0,
            longest: Duration::ZERO,
            sent_again: 0,
        }
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(|socket| socket.as_fd())
    }

    pub(crate) fn wants(&self) -> Wants {
        match (self.under_way, self.sent < self.request.len()) {
            (false, _) => Wants::Nothing,
            (true, true) => Wants::Room,
            (true, false) => Wants::Answer,
        }
    }

    /// The name of the current POST, or of the last one.
    pub(crate) fn post_name(&self) -> String {
        format!("{}-{}", self.number, self.asked)
    }

    /// Begins the next request. An outcome that is returned at once is a failure.
    pub(crate) fn begin(&mut self, plan: &Plan, now: Instant) -> Option<Outcome> {
        self.asked += 1;
        self.begun = now;
        self.under_way = true;
        if self.request.is_empty() || plan.post {
            self.request = request(plan, &self.post_name());
        }
        self.send(plan)
    }

    /// Continues when the socket has room or bytes. An outcome is the end of the request.
    pub(crate) fn go_on(&mut self, plan: &Plan, buffer: &mut [u8]) -> Option<Outcome> {
        match self.wants() {
            Wants::Room => self.write(plan),
            Wants::Answer => self.read(plan, buffer),
            Wants::Nothing => {
                // The server closed a kept connection, or sent bytes without a request.
                self.disconnect();
                None
            }
        }
    }

    /// Ends a request that takes too long.
    pub(crate) fn expire(&mut self, plan: &Plan, now: Instant) -> Option<Outcome> {
        let late = self.under_way && now.duration_since(self.begun) > plan.timeout;
        late.then(|| self.fail("no answer in time".to_owned()))
    }

    /// Ends a request that nobody waits for any more.
    pub(crate) fn give_up(&mut self) -> Option<Outcome> {
        self.under_way
            .then(|| self.fail("unanswered at the end".to_owned()))
    }

    fn send(&mut self, plan: &Plan) -> Option<Outcome> {
        self.sent = 0;
        self.response.reset();
        if self.socket.is_none() {
            match connect(plan.server) {
                Ok(socket) => self.socket = Some(socket),
                Err(error) => return Some(self.fail(format!("connect: {error}"))),
            }
            self.is_new = true;
            self.used = false;
        }
        self.write(plan)
    }

    fn write(&mut self, plan: &Plan) -> Option<Outcome> {
        while self.sent < self.request.len() {
            let socket = self.socket.as_ref()?;
            match net::send(socket, &self.request[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN | Errno::NOTCONN) => return self.refused(),
                Err(Errno::INTR) => {}
                Err(error) => return self.broken(plan, &format!("send: {error}")),
            }
        }
        None
    }

    /// The connection does not exist yet, and may never exist.
    fn refused(&mut self) -> Option<Outcome> {
        let socket = self.socket.as_ref()?;
        match sockopt::socket_error(socket) {
            Ok(Ok(())) => None,
            Ok(Err(error)) | Err(error) => Some(self.fail(format!("connect: {error}"))),
        }
    }

    fn read(&mut self, plan: &Plan, buffer: &mut [u8]) -> Option<Outcome> {
        let socket = self.socket.as_ref()?;
        let count = match net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((_, count)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Err(error) => return self.broken(plan, &format!("receive: {error}")),
        };
        if count == 0 {
            return match self.response.end_of_stream() {
                Progress::Whole => Some(self.done(plan)),
                Progress::Partial if self.response.has_begun() => {
                    Some(self.fail("truncated".to_owned()))
                }
                Progress::Partial => self.broken(plan, "closed without an answer"),
            };
        }
        match self.response.take(&buffer[..count]) {
            Ok(Progress::Whole) => Some(self.done(plan)),
            Ok(Progress::Partial) => None,
            Err(error) => Some(self.fail(error.to_owned())),
        }
    }

    /// The connection ended before an answer began. If it was a kept connection, the server may have closed it while
    /// the request was on its way. Then a GET is sent again, once more for each new connection.
    fn broken(&mut self, plan: &Plan, why: &str) -> Option<Outcome> {
        if self.used && !self.response.has_begun() && !plan.post {
            self.disconnect();
            self.sent_again += 1;
            return self.send(plan);
        }
        Some(self.fail(why.to_owned()))
    }

    fn done(&mut self, plan: &Plan) -> Outcome {
        let failure = self.fault(plan);
        let bytes = self.response.body.len();
        self.used = true;
        if plan.close || !self.response.keep {
            self.disconnect();
        }
        self.end(failure, bytes)
    }

    /// What is wrong with a complete answer.
    fn fault(&self, plan: &Plan) -> Option<String> {
        if self.response.status != 200 {
            return Some(format!("status {}", self.response.status));
        }
        let body = &self.response.body;
        let right = if plan.post {
            *body == self.post_name().into_bytes()
        } else {
            match &plan.expected {
                Expected::Any => true,
                Expected::Exactly(bytes) => body == bytes,
                Expected::Containing(bytes) => memchr::memmem::find(body, bytes).is_some(),
            }
        };
        (!right).then(|| "wrong body".to_owned())
    }

    fn fail(&mut self, why: String) -> Outcome {
        self.disconnect();
        self.end(Some(why), 0)
    }

    fn end(&mut self, failure: Option<String>, bytes: usize) -> Outcome {
        let waited = self.begun.elapsed();
        self.longest = self.longest.max(waited);
        self.under_way = false;
        Outcome {
            waited,
            failure,
            bytes,
        }
    }

    /// Closes the socket. That ends its observation too.
    fn disconnect(&mut self) {
        self.socket = None;
        self.is_new = false;
    }
}

fn connect(server: SocketAddr) -> io::Result<OwnedFd> {
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    net::sockopt::set_tcp_nodelay(&socket, true)?;
    match net::connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

fn request(plan: &Plan, name: &str) -> Vec<u8> {
    let connection = if plan.close {
        "Connection: close\r\n"
    } else {
        ""
    };
    let path = &plan.path;
    let head = format!("Host: {HOST}\r\nUser-Agent: weir-bench\r\nAccept: */*\r\n{connection}");
    if plan.post {
        let length = name.len();
        format!("POST {path} HTTP/1.1\r\n{head}Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{name}")
    } else {
        format!("GET {path} HTTP/1.1\r\n{head}\r\n")
    }
    .into_bytes()
}

/// The site of all servers in the benchmark.
const HOST: &str = "bench.example";
