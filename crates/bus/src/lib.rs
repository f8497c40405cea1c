//! THE BUS: purges of the cache reach other nodes through a stream of Valkey or Redis.
//!
//! ```text
//! tell ─► queue ─► XADD ─► stream weir:purges ─► XREAD ─► heard, on each other node
//! ```
//! Each node keeps its own pages; only what was purged is shared. A stream, unlike a channel (PUBLISH), keeps what was purged
//! while a node could not be reached: the node reads on from its [`place`]. If the stream no longer has that place, the
//! node may have missed purges, and hears [`Heard::Missed`].
//!
//! A purge is told without waiting. While the server cannot be reached, purges wait in a queue; if the queue is full, the others
//! hear that everything is outdated. The bus knows no cache, no configuration, and does not connect by itself.
#![forbid(unsafe_code)]

mod message;
mod place;

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, RedisConnectionInfo, RedisError, RedisResult,
    aio::MultiplexedConnection,
    streams::{StreamRangeReply, StreamReadReply},
};
use tokio::{
    net::{TcpStream, UnixStream},
    sync::mpsc,
    task::JoinHandle,
};

pub use message::{Purge, What};
use place::{Id, Place};

/// The server, and what nodes share there.
#[derive(Clone)]
pub struct Settings {
    /// Number of the database.
    pub database: u32,
    /// User of the server; `None`: its default user.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// Name of the stream.
    pub stream: String,
    /// Name of this node, different from all others.
    pub node: String,
}

/// A connection to the server.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a unix socket.
    Unix(UnixStream),
}

/// Connects with the server.
pub type Connect =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>> + Send + Sync>;

/// What a node hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A purge of another node.
    Purge(Purge),
    /// Purges may have been missed: everything that was stored until now may be outdated.
    Missed,
}

/// The connection of this node with the others. Its tasks end with it.
#[derive(Debug)]
pub struct Bus {
    queue: mpsc::Sender<Purge>,
    state: Arc<State>,
    tasks: [JoinHandle<()>; 2],
}

/// What the bus has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// The server can be reached.
    pub is_connected: bool,
    /// Purges that other nodes can hear.
    pub told: u64,
    /// Purges of other nodes.
    pub heard: u64,
    /// How often purges may have been missed.
    pub missed: u64,
    /// Why the server cannot be reached.
    pub error: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    is_connected: AtomicBool,
    told: AtomicU64,
    heard: AtomicU64,
    missed: AtomicU64,
    /// The queue was full: the others must hear that everything is outdated.
    is_overrun: AtomicBool,
    error: Mutex<Option<String>>,
}

impl Bus {
    /// Starts two tasks on the current runtime: one tells, the other hears. `heard` must not wait.
    pub fn start(
        settings: Settings,
        connect: Connect,
        heard: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Bus {
        let (queue, waiting) = mpsc::channel(MOST_WAITING);
        let state = Arc::new(State::default());
        let end = |connect: &Connect| End {
            settings: settings.clone(),
            connect: connect.clone(),
            state: state.clone(),
        };
        let tasks = [
            tokio::spawn(end(&connect).tell_all(waiting)),
            tokio::spawn(end(&connect).hear_all(heard)),
        ];
        Bus {
            queue,
            state,
            tasks,
        }
    }

    /// Tells the other nodes. Returns at once.
    pub fn tell(&self, purge: Purge) {
        if self.queue.try_send(purge).is_err() {
            self.state.is_overrun.store(true, Relaxed);
        }
    }

    /// What it has done so far.
    pub fn figures(&self) -> Figures {
        let state = &self.state;
        Figures {
            is_connected: state.is_connected.load(Relaxed),
            told: state.told.load(Relaxed),
            heard: state.heard.load(Relaxed),
            missed: state.missed.load(Relaxed),
            error: state.error().clone(),
        }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl State {
    fn error(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the two tasks.
struct End {
    settings: Settings,
    connect: Connect,
    state: Arc<State>,
}

impl End {
    /// Writes purges to the stream. What could not be written is written after the next connection.
    async fn tell_all(self, mut waiting: mpsc::Receiver<Purge>) {
        let mut batch = Vec::new();
        loop {
            if batch.is_empty() && waiting.recv_many(&mut batch, MOST_AT_ONCE).await == 0 {
                return;
            }
            let mut connection = match self.connected(ANSWER_LIMIT).await {
                Ok(connection) => connection,
                Err(_) => {
                    // The task that hears reports it.
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            while self.tell(&mut connection, &batch).await.is_ok() {
                batch.clear();
                if waiting.recv_many(&mut batch, MOST_AT_ONCE).await == 0 {
                    return;
                }
            }
        }
    }

    async fn tell(
        &self,
        connection: &mut MultiplexedConnection,
        batch: &[Purge],
    ) -> RedisResult<()> {
        let everything = Purge::everything();
        let is_overrun = self.state.is_overrun.swap(false, Relaxed);
        let purges = batch.iter().chain(is_overrun.then_some(&everything));
        let mut pipe = redis::pipe();
        for purge in purges {
            let add = pipe.cmd("XADD").arg(&self.settings.stream);
            add.arg(&["MAXLEN", "~", MOST_KEPT, "*"]);
            for (name, value) in message::fields(purge, &self.settings.node) {
                add.arg(name).arg(value);
            }
            add.ignore();
        }
        let told = pipe.query_async::<()>(connection).await;
        match &told {
            Ok(()) => {
                self.state.told.fetch_add(batch.len() as u64, Relaxed);
            }
            Err(_) => {
                self.state.is_overrun.fetch_or(is_overrun, Relaxed);
            }
        }
        told
    }

    /// Reads the purges of others from the stream.
    async fn hear_all(self, heard: impl Fn(Heard) + Send + Sync + 'static) {
        let mut place = Place::default();
        loop {
            let Err(error) = self.hear(&mut place, &heard).await;
            self.broken(&error);
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn hear(
        &self,
        place: &mut Place,
        heard: &(impl Fn(Heard) + Send + Sync + 'static),
    ) -> RedisResult<std::convert::Infallible> {
        let mut connection = self.connected(BLOCK + ANSWER_LIMIT).await?;
        let first = self.one(&mut connection, "XRANGE", ["-", "+"]).await?;
        let newest = self.one(&mut connection, "XREVRANGE", ["+", "-"]).await?;
        let (first, newest) = match newest {
            Some(_) => (first, newest),
            None => {
                let begun = self.begin(&mut connection).await?;
                (begun, begun)
            }
        };
        if place.resume(first, newest) {
            self.state.missed.fetch_add(1, Relaxed);
            heard(Heard::Missed);
        }
        self.restored();
        loop {
            let mut read = redis::cmd("XREAD");
            read.arg("COUNT").arg(MOST_AT_ONCE);
            read.arg("BLOCK").arg(BLOCK.as_millis() as u64);
            read.arg("STREAMS").arg(&self.settings.stream);
            read.arg(place.to_string());
            let read: Option<StreamReadReply> = read.query_async(&mut connection).await?;
            let keys = read.into_iter().flat_map(|read| read.keys);
            for entry in keys.flat_map(|key| key.ids) {
                // Others may write to the stream what this version does not know.
                if let Some(id) = Id::parse(&entry.id) {
                    place.passed(id);
                }
                match message::read(&entry.map, &self.settings.node) {
                    message::Read::Nothing => {}
                    message::Read::Purge(purge) => {
                        self.state.heard.fetch_add(1, Relaxed);
                        heard(Heard::Purge(purge));
                    }
                    message::Read::Unknown => heard(Heard::Missed),
                }
            }
        }
    }

    /// Writes a first entry. Without one, a server that has lost its data would look like one where nothing was purged yet.
    async fn begin(&self, connection: &mut MultiplexedConnection) -> RedisResult<Option<Id>> {
        let mut add = redis::cmd("XADD");
        add.arg(&self.settings.stream).arg("*");
        add.arg(&["node", &self.settings.node, "what", message::BEGIN]);
        let id: String = add.query_async(connection).await?;
        Ok(Id::parse(&id))
    }

    /// The id of the first entry in this direction.
    async fn one(
        &self,
        connection: &mut MultiplexedConnection,
        command: &str,
        range: [&str; 2],
    ) -> RedisResult<Option<Id>> {
        let mut read = redis::cmd(command);
        read.arg(&self.settings.stream).arg(&range);
        read.arg("COUNT").arg(1);
        let range: StreamRangeReply = read.query_async(connection).await?;
        Ok(range.ids.first().and_then(|entry| Id::parse(&entry.id)))
    }

    async fn connected(&self, answer_limit: Duration) -> RedisResult<MultiplexedConnection> {
        let stream = tokio::time::timeout(ANSWER_LIMIT, (self.connect)())
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        let settings = &self.settings;
        let mut info = RedisConnectionInfo::default()
            .set_db(settings.database.into())
            .set_skip_set_lib_name();
        if let Some(user) = &settings.user {
            info = info.set_username(user);
        }
        if let Some(password) = &settings.password {
            info = info.set_password(password);
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(answer_limit));
        // The driver ends with the last connection.
        Ok(match stream {
            Stream::Tcp(stream) => {
                let (connection, driver) =
                    MultiplexedConnection::new_with_config(&info, stream, config).await?;
                tokio::spawn(driver);
                connection
            }
            Stream::Unix(stream) => {
                let (connection, driver) =
                    MultiplexedConnection::new_with_config(&info, stream, config).await?;
                tokio::spawn(driver);
                connection
            }
        })
    }

    fn broken(&self, error: &RedisError) {
        let was_known = self.state.error().replace(error.to_string()).is_some();
        self.state.is_connected.store(false, Relaxed);
        if !was_known {
            log::warn!(
                "the bus of the cache cannot be reached, so purges of other nodes are not known until it can: {error}"
            );
        }
    }

    fn restored(&self) {
        self.state.is_connected.store(true, Relaxed);
        if self.state.error().take().is_some() {
            log::info!("the bus of the cache can be reached again");
        }
    }
}

/// How long the server waits for a purge before it answers that there is none.
const BLOCK: Duration = Duration::from_secs(5);
/// How long the server, or a connection with it, may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two tries to connect.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of purges that wait to be told.
const MOST_WAITING: usize = 4096;
/// Maximum number of purges in one command.
const MOST_AT_ONCE: usize = 256;
/// How many purges the stream keeps, about. A node that was away for longer treats everything as outdated.
const MOST_KEPT: &str = "100000";
