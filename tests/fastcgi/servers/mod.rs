//! Several servers behind one pool: which server gets a request, which is excluded, which returns, and how much each
//! gets. The servers are real PHP-FPMs where it matters, and programs inside the test where they have to misbehave.

mod balance;
mod checks;
mod health;
mod limit;
mod names;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use weir_test::php::Fpm;
use weir_test::{Client, Setup, Weir};

/// A PHP-FPM for each number of children, called `a`, `b` and so on. `who.php` prints its name.
fn fpms(setup: &Setup, children: &[usize]) -> Vec<Fpm> {
    let names = ('a'..='z').take(children.len());
    names
        .zip(children)
        .map(|(name, children)| fpm(setup, name, *children))
        .collect()
}

fn fpm(setup: &Setup, name: char, children: usize) -> Fpm {
    fpm_in(setup.folder(), name, children)
}

/// Starts a PHP-FPM again that has ended.
fn fpm_again(weir: &Weir, name: char, children: usize) -> Fpm {
    fpm_in(weir.folder(), name, children)
}

fn fpm_in(folder: &Path, name: char, children: usize) -> Fpm {
    let folder = folder.join(name.to_string());
    std::fs::create_dir_all(&folder).expect("mkdir");
    let lines = format!("env[SERVER] = {name}\nping.path = /ping\n");
    Fpm::unix_with(&folder, children, &lines)
}

fn site() -> Setup {
    let setup = Setup::new()
        .file("who.php", "<?php echo getenv('SERVER');")
        .file(
            "sleep.php",
            "<?php usleep(1000 * (int)$_GET['ms']); echo getenv('SERVER');",
        );
    setup.admin()
}

/// A pool's text: these servers, as weir.toml names them, and further lines.
fn pool(servers: &[String], lines: &str) -> String {
    let list = servers.join(", ");
    format!("runtime = \"servers\"\nservers = [{list}]\n{lines}\n")
}

/// Servers as weir.toml names them.
fn plain(fpms: &[Fpm]) -> Vec<String> {
    fpms.iter()
        .map(|fpm| format!("\"{}\"", fpm.server()))
        .collect()
}

/// The first pool in weir's status.
fn pool_status(weir: &Weir) -> Value {
    weir.status()["pools"][0].clone()
}

/// The states of the servers, in the order of weir.toml.
fn states(weir: &Weir) -> Vec<String> {
    let status = pool_status(weir);
    let servers = status["servers"].as_array().expect("servers");
    let state = |server: &Value| server["state"].as_str().expect("a state").to_owned();
    servers.iter().map(state).collect()
}

/// Requests a path this many times, one after the other, and counts the answers by their text.
fn tally(weir: &Weir, path: &str, requests: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        let said = weir.get(path).expect(200).text();
        *counts.entry(said).or_default() += 1;
    }
    counts
}

/// Clients that request a path again and again until the load is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<(u16, String)>>>,
}

impl Load {
    fn start(weir: &Weir, clients: usize, path: &str) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |_| {
            let (stop, address, path) = (stop.clone(), weir.address(), path.to_owned());
            std::thread::spawn(move || {
                let mut seen = Vec::new();
                let mut client = Client::connect(address);
                while !stop.load(Ordering::SeqCst) {
                    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
                    let response = client.response();
                    seen.push((response.status, response.text()));
                }
                seen
            })
        };
        Load {
            clients: (0..clients).map(client).collect(),
            stop,
        }
    }

    /// Stops the load, and returns status and text of all answers.
    fn end(self) -> Vec<(u16, String)> {
        self.stop.store(true, Ordering::SeqCst);
        let all = self.clients.into_iter();
        all.flat_map(|client| client.join().expect("a client"))
            .collect()
    }
}
