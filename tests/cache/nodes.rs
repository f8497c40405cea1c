//! Nodes that share purges through a server of Redis.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use weir_test::{Setup, Weir, wait_until};

use crate::{runs, setup, with};

const HEADERS: &str = "cache = { preset = \"headers\", cache_status = true }\n";
const PASSWORD: &str = "a secret";

/// A server with a password, on a unix socket. It ends with the test.
struct Server {
    socket: PathBuf,
    child: Child,
}

impl Server {
    fn start(socket: PathBuf) -> Server {
        let child = serve(&socket);
        Server { socket, child }
    }

    fn stop(&mut self) {
        self.child.kill().expect("a server");
        self.child.wait().expect("a server");
        fs::remove_file(&self.socket).expect("a socket");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder that the gateway's user can reach.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    folder
}

fn serve(socket: &Path) -> Child {
    let child = Command::new("redis-server")
        .args([
            "--port",
            "0",
            "--save",
            "",
            "--requirepass",
            PASSWORD,
            "--unixsocketperm",
            "777",
        ])
        .arg("--unixsocket")
        .arg(socket)
        .current_dir(socket.parent().expect("a folder"))
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is in setup/test.packages");
    wait_until("redis-server listens", || socket.exists());
    child
}

/// A node whose bus is this server.
fn node(server: &Server) -> Weir {
    let setup: Setup = setup(2, HEADERS).admin();
    let password = setup.path("password");
    fs::write(&password, format!("{PASSWORD}\n")).expect("a file");
    let cache = format!(
        "[cache]\nbus = \"unix:{}\"\nbus_password_file = \"{}\"\n",
        server.socket.display(),
        password.display()
    );
    let weir = setup.more(&cache).start();
    wait_until("the bus is connected", || bus(&weir, "connected") == true);
    weir
}

fn bus(weir: &Weir, key: &str) -> serde_json::Value {
    weir.status()["cache"]["bus"][key].clone()
}

fn purge(weir: &Weir, words: &[&str]) {
    let words = [&["cache", "purge"], words].concat();
    let done = weir.command(&words).status().expect("weir cache purge");
    assert!(done.success(), "{words:?}");
}

#[test]
fn a_purge_on_one_node_is_in_force_on_the_others() {
    let folder = folder();
    let server = Server::start(folder.path().join("bus.sock"));
    let (here, there) = (node(&server), node(&server));
    let lamp = with(
        "lamp",
        &["Cache-Control: max-age=60", "Surrogate-Key: lamps"],
    );
    let sofa = with(
        "sofa",
        &["Cache-Control: max-age=60", "Surrogate-Key: sofas"],
    );
    let url = format!("http://localhost{lamp}");
    let mut made = 0;
    let purges: [&[&str]; 4] = [
        &["--tag", "lamps"],
        &["--url", &url],
        &["--prefix", "/page.php?p=l", "--site", "main"],
        &["--tag", "lamps", "--hard"],
    ];
    for words in purges {
        made += 1;
        for url in [&lamp, &sofa, &lamp] {
            there.get(url).expect(200);
        }
        assert_eq!(runs(&there, "lamp"), made, "before {words:?}");
        purge(&here, words);
        wait_until("the purge is heard", || bus(&there, "heard") == made);
    }
    there.get(&lamp).expect(200);
    assert_eq!(runs(&there, "lamp"), made + 1);
    assert_eq!(runs(&there, "sofa"), 1);
    // Its own purges do not come back, and what an application purges is shared, too.
    assert_eq!(bus(&here, "heard"), 0);
    there
        .get(&with("purge", &["Weir-Purge: lamps"]))
        .expect(200);
    wait_until("the purge is heard", || bus(&here, "heard") == 1);
}

#[test]
fn what_may_have_been_purged_meanwhile_is_outdated_after_a_broken_connection() {
    let folder = folder();
    let mut server = Server::start(folder.path().join("bus.sock"));
    let weir = node(&server);
    let page = with("a", &["Cache-Control: max-age=60"]);
    for _ in 0..2 {
        weir.get(&page).expect(200);
    }
    assert_eq!(runs(&weir, "a"), 1);
    server.stop();
    wait_until("the bus is broken", || bus(&weir, "connected") == false);
    weir.get(&page).expect(200);
    assert_eq!(runs(&weir, "a"), 1, "stored pages are sent meanwhile");
    // It is empty, so nobody knows what others have purged.
    server.child = serve(&server.socket);
    wait_until("the bus is connected again", || bus(&weir, "missed") == 2);
    weir.get(&page).expect(200);
    assert_eq!(runs(&weir, "a"), 2);
    let text = weir.command(&["status"]).output().expect("weir status");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("bus"), "{text}");
}

/// A password that is wrong is a problem in the status, not the end of weir.
#[test]
fn a_bus_that_refuses_is_said_in_the_status() {
    let folder = folder();
    let server = Server::start(folder.path().join("bus.sock"));
    let cache = format!("[cache]\nbus = \"unix:{}\"\n", server.socket.display());
    let weir = setup(1, HEADERS).admin().more(&cache).start();
    wait_until("an error", || bus(&weir, "error").is_string());
    let text = weir.command(&["status"]).output().expect("weir status");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("bus_password_file"), "{text}");
    weir.get(&with("a", &[])).expect(200);
}
