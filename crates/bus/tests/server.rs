//! The bus with a real server: `redis-server`, on a unix socket in a temporary folder.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{net::UnixStream, sync::mpsc, time::timeout};
use weir_bus::{Bus, Connect, Heard, Purge, Settings, Stream, What};

/// A server, which ends with the test.
struct Server {
    folder: tempfile::TempDir,
    child: Child,
}

impl Server {
    async fn start() -> Server {
        let folder = tempfile::tempdir().unwrap();
        let child = serve(&folder.path().join("server.sock"));
        let server = Server { folder, child };
        server.answers().await;
        server
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("server.sock")
    }

    async fn answers(&self) {
        let begun = std::time::Instant::now();
        while UnixStream::connect(self.socket()).await.is_err() {
            assert!(begun.elapsed() < LIMIT, "redis-server does not listen");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends it and starts an empty one.
    async fn replace(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::fs::remove_file(self.socket()).unwrap();
        self.child = serve(&self.socket());
        self.answers().await;
    }

    /// The answer of a command.
    async fn command(&self, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let stream = UnixStream::connect(self.socket()).await.unwrap();
        let info = redis::RedisConnectionInfo::default();
        let (mut connection, driver) =
            redis::aio::MultiplexedConnection::new_with_config(&info, stream, Default::default())
                .await?;
        tokio::spawn(driver);
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await
    }

    fn node(&self, name: &str) -> Node {
        let (said, heard) = mpsc::unbounded_channel();
        let is_cut = Arc::new(AtomicBool::new(false));
        let (socket, cut) = (self.socket(), is_cut.clone());
        let connect: Connect = Arc::new(move || {
            let (socket, cut) = (socket.clone(), cut.clone());
            Box::pin(async move {
                match cut.load(SeqCst) {
                    true => Err(std::io::ErrorKind::ConnectionRefused.into()),
                    false => UnixStream::connect(socket).await.map(Stream::Unix),
                }
            })
        });
        let settings = Settings {
            database: 0,
            user: None,
            password: None,
            stream: "weir:purges".into(),
            node: name.into(),
        };
        let bus = Bus::start(settings, connect, move |heard| {
            let _ = said.send(heard);
        });
        Node { bus, heard, is_cut }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(socket: &std::path::Path) -> Child {
    Command::new("redis-server")
        .args([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
        ])
        .arg(socket)
        .current_dir(socket.parent().unwrap())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is in setup/test.packages")
}

struct Node {
    bus: Bus,
    heard: mpsc::UnboundedReceiver<Heard>,
    is_cut: Arc<AtomicBool>,
}

impl Node {
    async fn hears(&mut self) -> Heard {
        timeout(LIMIT, self.heard.recv())
            .await
            .expect("nothing is heard")
            .unwrap()
    }

    async fn is_connected(&self) {
        let begun = std::time::Instant::now();
        while !self.bus.figures().is_connected {
            assert!(begun.elapsed() < LIMIT, "{:?}", self.bus.figures());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn tag(name: &str) -> Purge {
    let what = What::Tag {
        site: b"shop".to_vec(),
        tag: name.as_bytes().to_vec(),
    };
    Purge {
        what,
        is_hard: false,
    }
}

#[tokio::test]
async fn a_purge_is_heard_by_the_others_and_not_by_its_node() {
    let server = Server::start().await;
    let (mut a, mut b, mut c) = (server.node("a"), server.node("b"), server.node("c"));
    for node in [&mut a, &mut b, &mut c] {
        assert_eq!(
            node.hears().await,
            Heard::Missed,
            "before the first connection"
        );
        node.is_connected().await;
    }
    a.bus.tell(tag("one"));
    for node in [&mut b, &mut c] {
        assert_eq!(node.hears().await, Heard::Purge(tag("one")));
    }
    b.bus.tell(Purge {
        what: What::All,
        is_hard: true,
    });
    // What it has told itself would have come before.
    let all = Purge {
        what: What::All,
        is_hard: true,
    };
    assert_eq!(a.hears().await, Heard::Purge(all.clone()));
    assert_eq!(c.hears().await, Heard::Purge(all));
    assert_eq!(a.bus.figures().told, 1);
}

#[tokio::test]
async fn what_was_purged_while_a_node_was_away_is_heard_later() {
    let server = Server::start().await;
    let (mut a, mut b) = (server.node("a"), server.node("b"));
    for node in [&mut a, &mut b] {
        assert_eq!(node.hears().await, Heard::Missed);
        node.is_connected().await;
    }
    b.is_cut.store(true, SeqCst);
    server
        .command(&["CLIENT", "KILL", "TYPE", "normal"])
        .await
        .unwrap();
    for name in ["one", "two"] {
        a.bus.tell(tag(name));
    }
    let begun = std::time::Instant::now();
    while a.bus.figures().told < 2 {
        assert!(begun.elapsed() < LIMIT, "{:?}", a.bus.figures());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!b.bus.figures().is_connected);
    b.is_cut.store(false, SeqCst);
    assert_eq!(b.hears().await, Heard::Purge(tag("one")));
    assert_eq!(b.hears().await, Heard::Purge(tag("two")));
    assert_eq!(
        b.bus.figures().missed,
        1,
        "only before the first connection"
    );
}

#[tokio::test]
async fn a_node_knows_that_it_may_have_missed_purges() {
    let mut server = Server::start().await;
    let (mut a, mut b) = (server.node("a"), server.node("b"));
    for node in [&mut a, &mut b] {
        assert_eq!(node.hears().await, Heard::Missed);
        node.is_connected().await;
    }
    server.replace().await;
    // Both have a place that the new server does not have.
    assert_eq!(a.hears().await, Heard::Missed);
    assert_eq!(b.hears().await, Heard::Missed);
    a.bus.tell(tag("after"));
    assert_eq!(b.hears().await, Heard::Purge(tag("after")));

    // Entries of a stranger, or of a newer version, may mean anything.
    server
        .command(&["XADD", "weir:purges", "*", "what", "stars"])
        .await
        .unwrap();
    assert_eq!(b.hears().await, Heard::Missed);
}

const LIMIT: Duration = Duration::from_secs(30);
