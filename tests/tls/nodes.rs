//! Several nodes that share one folder of certificates: one order for all of them, also if nodes are killed.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, atomic::Ordering::Relaxed};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_test::pebble::{Habits, Pebble};
use weir_test::{Setup, Weir, free_address, scaled, wait_for, wait_until, wait_within};

use crate::acme::{Gate, certificates, got};

/// Nodes that run, by process id, and where the authority tries names.
type Running = Arc<Mutex<Vec<(u32, SocketAddr)>>>;

/// Three nodes with one folder and one authority.
struct Fleet {
    pebble: Pebble,
    store: TempDir,
    nodes: Vec<Node>,
    /// Leads the authority to nodes.
    gate: Gate,
    running: Running,
}

struct Node {
    setup: Setup,
    /// Where the authority tries names.
    tried: SocketAddr,
    weir: Option<Weir>,
}

impl Fleet {
    /// `route` says to which of the running nodes the authority's connections go, by the process id of the node that orders.
    fn start(
        (habits, challenge): (Habits, &str),
        route: impl Fn(Vec<(u32, SocketAddr)>, Option<u32>) -> Vec<SocketAddr> + Send + 'static,
    ) -> Fleet {
        let store = TempDir::with_prefix("weir-test-").expect("a temporary folder");
        let folder = store.path().join("certificates");
        let running = Running::default();
        let (nodes, lock) = (running.clone(), folder.join("locks/shop.example"));
        let gate = Gate::new(free_address().ip(), move || {
            let nodes = wait_for("three nodes", || {
                let nodes = nodes.lock().expect("a lock").clone();
                (nodes.len() >= 3).then_some(nodes)
            });
            route(nodes, owner(&lock))
        });
        let by_tls = challenge == "tls-alpn-01";
        let ports = match by_tls {
            true => (1, gate.address.port()),
            false => (gate.address.port(), 1),
        };
        let mut pebble = Pebble::new(gate.address.ip(), ports, habits);
        pebble.come();
        let node = |_| {
            let plain = free_address();
            let setup = Setup::new()
                .file("index.html", "public\n")
                .listen("tls = true")
                .site("hosts = [\"shop.example\"]\ntls = \"auto\"")
                .more(&format!("[listen.plain]\naddress = \"{plain}\""))
                .more(&format!("[tls]\ncertificates = \"{}\"", folder.display()))
                .more(&pebble.toml())
                .more(&format!("challenge = \"{challenge}\""));
            Node {
                tried: if by_tls { setup.address() } else { plain },
                setup,
                weir: None,
            }
        };
        let nodes: Vec<Node> = (0..3).map(node).collect();
        let mut fleet = Fleet {
            pebble,
            store,
            nodes,
            gate,
            running,
        };
        (0..3).for_each(|index| fleet.run(index));
        fleet
    }

    /// Starts a node.
    fn run(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let weir = node.setup.start();
        let mut running = self.running.lock().expect("a lock");
        running.push((weir.pid(), node.tried));
        node.weir = Some(weir);
    }

    /// Kills a node.
    fn kill(&mut self, index: usize) {
        if let Some(mut weir) = self.nodes[index].weir.take() {
            let mut running = self.running.lock().expect("a lock");
            running.retain(|(pid, _)| *pid != weir.pid());
            weir.kill();
        }
    }

    fn weirs(&self) -> impl Iterator<Item = &Weir> {
        self.nodes.iter().filter_map(|node| node.weir.as_ref())
    }

    fn path(&self, below: &str) -> PathBuf {
        self.store.path().join("certificates").join(below)
    }

    /// How often the authority has written this.
    fn count(&self, words: &str) -> usize {
        self.pebble.log().matches(words).count()
    }

    fn all_serve(&self) {
        let root = self.pebble.root();
        for weir in self.weirs() {
            wait_until("the certificate on each node", || {
                got(weir, &root, "shop.example", "/") == "public\n"
            });
            assert_eq!(certificates(weir)["last_error"], serde_json::Value::Null);
        }
    }
}

/// The process id in a lock.
fn owner(lock: &Path) -> Option<u32> {
    let text = fs::read_to_string(lock).ok()?;
    text.split_whitespace().nth(2)?.parse().ok()
}

#[test]
fn three_nodes_make_one_order_and_any_of_them_answers_the_authority() {
    one_order_for_three_nodes("http-01");
}

#[test]
fn any_of_three_nodes_has_the_certificate_that_proves_a_name_by_tls_alpn_01() {
    one_order_for_three_nodes("tls-alpn-01");
}

fn one_order_for_three_nodes(challenge: &str) {
    // The authority never asks the node that has ordered.
    let fleet = Fleet::start((Habits::default(), challenge), |nodes, owner| {
        let others = nodes.iter().filter(|(pid, _)| Some(*pid) != owner);
        others.map(|(_, tried)| *tried).collect()
    });
    fleet.all_serve();
    assert!(fleet.gate.taken.load(Relaxed) > 0);
    assert_eq!(fleet.count("Added order"), 1);
    assert_eq!(fleet.count("Issued certificate serial"), 1);
    // One account for all.
    let accounts = fs::read_dir(fleet.path("accounts")).expect("accounts");
    assert_eq!(accounts.count(), 1);
    assert_eq!(fleet.count("There are now 2 accounts"), 0);
    wait_until("no locks and no answers", || {
        ["locks", "challenges"]
            .iter()
            .all(|name| fs::read_dir(fleet.path(name)).is_ok_and(|files| files.count() == 0))
    });
}

#[test]
fn the_order_of_a_node_that_is_killed_is_made_by_another_one() {
    let mut fleet = Fleet::start((Habits::default(), "http-01"), |nodes, _| {
        nodes.iter().map(|(_, tried)| *tried).collect()
    });
    // This begins only when all nodes run, so the first order may already be finished.
    fleet.all_serve();
    let chain = fleet.path("shop.example/chain.pem");
    let weirs: Vec<&Weir> = fleet.weirs().collect();
    let first = fleet.gate.stop_an_order(&fleet.pebble, &chain, weirs);
    let before = ["Added order", "Issued certificate serial"].map(|words| fleet.count(words));
    let pid = owner(&fleet.path("locks/shop.example")).expect("a lock");
    let is_owner = |node: &Node| node.weir.as_ref().is_some_and(|weir| weir.pid() == pid);
    let index = fleet.nodes.iter().position(is_owner).expect("its owner");
    fleet.kill(index);
    fleet.gate.is_shut.store(false, Relaxed);
    fleet.run(index);
    // First the lock of the killed node must end.
    wait_within(Duration::from_secs(180), "another certificate", || {
        fs::read(&chain).expect("a chain") != first
    });
    fleet.all_serve();
    // There is one order besides the killed node's, and one certificate.
    assert_eq!(fleet.count("Added order"), before[0] + 1);
    assert_eq!(fleet.count("Issued certificate serial"), before[1] + 1);
}

#[test]
fn nodes_that_are_killed_at_random_lose_no_certificate_and_make_few_orders() {
    let habits = Habits {
        life: 90,
        ..Habits::default()
    };
    let mut fleet = Fleet::start((habits, "http-01"), |nodes, _| {
        nodes.iter().map(|(_, tried)| *tried).collect()
    });
    fleet.all_serve();
    let (begin, mut kills) = (Instant::now(), 0);
    let mut random = 7_u64;
    let time = Duration::from_secs(scaled(3, 240));
    while begin.elapsed() < time {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let index = (random >> 33) as usize % 3;
        fleet.kill(index);
        kills += 1;
        std::thread::sleep(Duration::from_millis((random >> 40) % 3000));
        fleet.run(index);
        std::thread::sleep(Duration::from_millis((random >> 20) % 8000));
    }
    // The pause after a failure may not be over yet.
    fleet.run_until_served();
    let (orders, seconds) = (fleet.count("Added order"), begin.elapsed().as_secs());
    // A certificate is renewed each minute; the order of a killed node is made anew.
    let most = seconds as usize / 55 + 2 + kills;
    println!("{orders} orders in {seconds} s with {kills} kills");
    assert!(orders <= most, "{orders} orders, {most} at most");
}

impl Fleet {
    /// Waits until each node serves a certificate that is valid.
    fn run_until_served(&self) {
        let root = self.pebble.root();
        for weir in self.weirs() {
            wait_within(Duration::from_secs(900), "the certificate", || {
                got(weir, &root, "shop.example", "/") == "public\n"
            });
        }
    }
}
