//! The QUIC of a listener on a reactor: reads its UDP sockets, and gives datagrams to its connections.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    io::{self, IoSliceMut},
    net::{IpAddr, SocketAddr, UdpSocket as StdSocket},
    os::fd::OwnedFd,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::Instant,
};

use bytes::BytesMut;
use quinn_proto::{
    ConnectionEvent, ConnectionHandle, DatagramEvent, EcnCodepoint, EndpointConfig, EndpointEvent,
    Incoming, ServerConfig, Transmit, TransportConfig,
};
use quinn_udp::{RecvMeta, UdpSocketState};
use tokio::{io::Interest, net::UdpSocket, sync::Notify};
use weir_tls::quic::Handshakes;

use super::{Connection, Routes, routes::Datagram};
use crate::ACCEPT_PAUSE;

/// The QUIC of a listener on a reactor.
#[derive(Debug, Clone)]
pub struct Endpoint(pub(super) Rc<Inner>);

/// What an endpoint is made with.
#[derive(Debug)]
pub struct Settings {
    /// Its handshakes.
    pub handshakes: Handshakes,
    /// The settings of its connections.
    pub transport: TransportConfig,
    /// New connections that wait until they are accepted; more are dropped.
    pub max_incoming: usize,
    /// Counts datagrams that were read and dropped, because whom they were for had too many.
    pub dropped: &'static AtomicU64,
}

/// What the connections of an endpoint share.
pub(super) struct Inner {
    proto: RefCell<quinn_proto::Endpoint>,
    server: ServerConfig,
    handshakes: Handshakes,
    /// Datagrams are sent through this one.
    socket: Socket,
    routes: Rc<Routes>,
    mailboxes: RefCell<Vec<Option<Rc<Mailbox>>>>,
    /// Connections that wait until the socket takes more.
    blocked: RefCell<Vec<Waker>>,
    unblock: Notify,
    incoming: RefCell<VecDeque<Incoming>>,
    arrived: Notify,
    max_incoming: usize,
    dropped: &'static AtomicU64,
}

struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
}

/// The datagrams and events that have arrived for a connection.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    events: RefCell<VecDeque<ConnectionEvent>>,
    waker: RefCell<Option<Waker>>,
    has_ended: Cell<bool>,
}

/// A client that wants a connection.
pub struct Arrival {
    endpoint: Rc<Inner>,
    /// `None` once it was decided what becomes of it.
    incoming: Option<Incoming>,
}

impl Endpoint {
    /// The endpoint of the listener with this index, with its UDP sockets for this reactor, one at least.
    ///
    /// # Errors
    /// If the reactor cannot watch a socket, or an option of it cannot be set.
    pub fn new(
        listener: u16,
        sockets: Vec<OwnedFd>,
        routes: &Rc<Routes>,
        settings: Settings,
    ) -> io::Result<Endpoint> {
        let mut sockets = sockets.into_iter().map(Socket::new);
        let socket = sockets.next().ok_or(io::ErrorKind::NotFound)??;
        let others = sockets.collect::<io::Result<Vec<_>>>()?;
        let ids = routes.ids();
        let mut config = EndpointConfig::new(ids.reset.clone());
        let (of, place) = (ids.clone(), routes.place(listener));
        config.cid_generator(move || of.generator(place));
        let mut server =
            ServerConfig::new(Arc::new(settings.handshakes.clone()), ids.tokens.clone());
        server
            .transport_config(Arc::new(settings.transport))
            .max_incoming(settings.max_incoming)
            .incoming_buffer_size(INCOMING_BYTES)
            .incoming_buffer_size_total(INCOMING_BYTES * settings.max_incoming as u64);
        let config = (Arc::new(config), Some(Arc::new(server.clone())));
        let has_mtu = !socket.state.may_fragment();
        let endpoint = Endpoint(Rc::new(Inner {
            proto: RefCell::new(quinn_proto::Endpoint::new(
                config.0, config.1, has_mtu, None,
            )),
            server,
            handshakes: settings.handshakes,
            socket,
            routes: routes.clone(),
            mailboxes: RefCell::default(),
            blocked: RefCell::default(),
            unblock: Notify::new(),
            incoming: RefCell::default(),
            arrived: Notify::new(),
            max_incoming: settings.max_incoming,
            dropped: settings.dropped,
        }));
        routes.add(listener, &endpoint);
        for other in others {
            let inner = endpoint.0.clone();
            tokio::task::spawn_local(async move { inner.read(&other).await });
        }
        Ok(endpoint)
    }

    /// Reads the socket, for ever.
    pub async fn read(&self) {
        self.0.read(&self.0.socket).await;
    }

    /// Wakes the connections that the socket can send for again, for ever.
    pub async fn unblock(&self) {
        loop {
            self.0.unblock.notified().await;
            let _ = self.0.socket.io.writable().await;
            let blocked = self.0.blocked.take();
            blocked.into_iter().for_each(Waker::wake);
        }
    }

    /// The next client that wants a connection.
    pub async fn arrival(&self) -> Arrival {
        loop {
            let next = self.0.incoming.borrow_mut().pop_front();
            if let Some(incoming) = next {
                return Arrival {
                    endpoint: self.0.clone(),
                    incoming: Some(incoming),
                };
            }
            self.0.arrived.notified().await;
        }
    }

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        let local = self.0.socket.io.local_addr();
        local.map_or(0, |local| local.port())
    }
}

impl Arrival {
    /// The client's address.
    pub fn remote(&self) -> Option<SocketAddr> {
        Some(self.incoming.as_ref()?.remote_address())
    }

    /// The address that the client connects to, without its port.
    pub fn local(&self) -> Option<IpAddr> {
        self.incoming.as_ref()?.local_ip()
    }

    /// Whether the client has proved that it receives packets at its address.
    pub fn is_validated(&self) -> bool {
        let incoming = self.incoming.as_ref();
        incoming.is_some_and(Incoming::remote_address_validated)
    }

    /// Accepts it. `None`: what it sent was wrong.
    pub fn accept(mut self) -> Option<Connection> {
        let incoming = self.incoming.take()?;
        let is_validated = incoming.remote_address_validated();
        let endpoint = &self.endpoint;
        let mut server = endpoint.server.clone();
        server.crypto = Arc::new(endpoint.handshakes.at(incoming.local_ip()));
        let (now, mut out) = (Instant::now(), Vec::new());
        let accepted =
            endpoint
                .proto
                .borrow_mut()
                .accept(incoming, now, &mut out, Some(Arc::new(server)));
        match accepted {
            Ok((handle, connection)) => {
                let mailbox = Rc::new(Mailbox::default());
                endpoint.add(handle, &mailbox);
                Some(Connection::new(
                    endpoint.clone(),
                    (handle, mailbox),
                    connection,
                    is_validated,
                ))
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    endpoint.send(&transmit, &out);
                }
                None
            }
        }
    }

    /// Tells the client that it gets no connection (CONNECTION_REFUSED).
    pub fn refuse(mut self) {
        if let Some(incoming) = self.incoming.take() {
            let mut out = Vec::new();
            let transmit = self.endpoint.proto.borrow_mut().refuse(incoming, &mut out);
            self.endpoint.send(&transmit, &out);
        }
    }

    /// Makes the client prove first that it receives packets at its address (RFC 9000 §8.1.2).
    pub fn retry(mut self) {
        if let Some(incoming) = self.incoming.take() {
            let mut out = Vec::new();
            let retried = self.endpoint.proto.borrow_mut().retry(incoming, &mut out);
            match retried {
                Ok(transmit) => self.endpoint.send(&transmit, &out),
                Err(error) => self.incoming = Some(error.into_incoming()),
            }
        }
    }
}

/// The client is not answered.
impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            self.endpoint.proto.borrow_mut().ignore(incoming);
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

impl Inner {
    /// Reads one of the sockets, for ever.
    async fn read(self: &Rc<Self>, socket: &Socket) {
        let mut buffers: [Vec<u8>; BATCH] = std::array::from_fn(|_| vec![0; BUFFER]);
        let mut turns = 0;
        loop {
            if socket.io.readable().await.is_err() {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
            let mut metas = [RecvMeta::default(); BATCH];
            let received = socket.io.try_io(Interest::READABLE, || {
                let mut slices = buffers.each_mut().map(|buffer| IoSliceMut::new(buffer));
                socket
                    .state
                    .recv((&socket.io).into(), &mut slices, &mut metas)
            });
            let count = match received {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => {
                    log::debug!("a UDP socket: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            for (buffer, meta) in buffers.iter().zip(&metas[..count]) {
                for bytes in buffer[..meta.len].chunks(meta.stride.max(1)) {
                    let datagram = Datagram {
                        from: meta.addr,
                        to: meta.dst_ip,
                        ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
                        bytes,
                    };
                    self.routes.dispatch(self, datagram);
                }
            }
            turns += 1;
            if turns % TURNS_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes a datagram that is for this endpoint.
    pub(super) fn handle(&self, datagram: Datagram<'_>) {
        let mut out = Vec::new();
        let event = self.proto.borrow_mut().handle(
            Instant::now(),
            datagram.from,
            datagram.to,
            datagram.ecn,
            BytesMut::from(datagram.bytes),
            &mut out,
        );
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let mailboxes = self.mailboxes.borrow();
                if let Some(Some(mailbox)) = mailboxes.get(handle.0)
                    && !mailbox.put(event)
                {
                    self.has_dropped();
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let mut waiting = self.incoming.borrow_mut();
                if waiting.len() >= self.max_incoming {
                    self.has_dropped();
                    return self.proto.borrow_mut().ignore(incoming);
                }
                waiting.push_back(incoming);
                self.arrived.notify_one();
            }
            Some(DatagramEvent::Response(transmit)) => self.send(&transmit, &out),
        }
    }

    /// Counts a datagram that nobody takes.
    pub(super) fn has_dropped(&self) {
        self.dropped.fetch_add(1, Relaxed);
    }

    /// Sends an answer that no connection makes. If the socket takes nothing now, it is lost, as datagrams may be.
    fn send(&self, transmit: &Transmit, bytes: &[u8]) {
        let _ = self.try_send(transmit, bytes);
    }

    /// Sends for a connection. False: the socket takes nothing now.
    pub(super) fn try_send(&self, transmit: &Transmit, bytes: &[u8]) -> bool {
        let Socket { io, state } = &self.socket;
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit
                .ecn
                .and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &bytes[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let sent = io.try_io(Interest::WRITABLE, || state.try_send(io.into(), &transmit));
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            // After any other error the datagram is lost. QUIC sends its content again.
            _ => true,
        }
    }

    /// Wakes `waker` when the socket takes more.
    pub(super) fn wake_when_writable(&self, waker: &Waker) {
        let mut blocked = self.blocked.borrow_mut();
        if !blocked.iter().any(|other| other.will_wake(waker)) {
            blocked.push(waker.clone());
        }
        self.unblock.notify_one();
    }

    /// How many datagrams one call may send.
    pub(super) fn segments(&self) -> usize {
        self.socket.state.max_gso_segments().clamp(1, MOST_SEGMENTS)
    }

    /// Passes an event of a connection to the endpoint.
    pub(super) fn tell(
        &self,
        handle: ConnectionHandle,
        event: EndpointEvent,
    ) -> Option<ConnectionEvent> {
        if event.is_drained() {
            self.remove(handle);
        }
        self.proto.borrow_mut().handle_event(handle, event)
    }

    fn add(&self, handle: ConnectionHandle, mailbox: &Rc<Mailbox>) {
        let mut mailboxes = self.mailboxes.borrow_mut();
        if mailboxes.len() <= handle.0 {
            mailboxes.resize(handle.0 + 1, None);
        }
        mailboxes[handle.0] = Some(mailbox.clone());
    }

    fn remove(&self, handle: ConnectionHandle) {
        if let Some(mailbox) = self.mailboxes.borrow_mut().get_mut(handle.0) {
            *mailbox = None;
        }
    }
}

impl Socket {
    fn new(socket: OwnedFd) -> io::Result<Socket> {
        let socket = StdSocket::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Socket {
            state: UdpSocketState::new((&socket).into())?,
            io: UdpSocket::from_std(socket)?,
        })
    }
}

impl Mailbox {
    /// False: it has too many, and this one is dropped as if the network had lost it.
    fn put(&self, event: ConnectionEvent) -> bool {
        if self.has_ended.get() {
            return true;
        }
        let mut events = self.events.borrow_mut();
        if events.len() >= MOST_DATAGRAMS {
            return false;
        }
        events.push_back(event);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
        true
    }

    pub(super) fn take(&self) -> Option<ConnectionEvent> {
        self.events.borrow_mut().pop_front()
    }

    /// Sets the waker of the connection's task.
    pub(super) fn wakes(&self, waker: &Waker) {
        let mut stored = self.waker.borrow_mut();
        if !stored
            .as_ref()
            .is_some_and(|stored| stored.will_wake(waker))
        {
            *stored = Some(waker.clone());
        }
    }

    /// Gives up the space of the queue.
    pub(super) fn shrink(&self) {
        let mut events = self.events.borrow_mut();
        if events.is_empty() {
            *events = VecDeque::new();
        }
    }

    pub(super) fn ends(&self) {
        self.has_ended.set(true);
        self.events.take();
    }
}

/// Datagrams that may wait for the task of a connection.
const MOST_DATAGRAMS: usize = 512;

/// Buffers that one call reads into, and the size of each, bytes: the kernel puts datagrams of one client together.
const BATCH: usize = 8;
const BUFFER: usize = 65_535;

/// How often a socket is read before others have their turn.
const TURNS_AT_ONCE: u32 = 8;

/// Datagrams that one call sends at most.
const MOST_SEGMENTS: usize = 10;

/// How many bytes a client may send before it is accepted, in addition to its first datagram.
const INCOMING_BYTES: u64 = 16 * 1024;
