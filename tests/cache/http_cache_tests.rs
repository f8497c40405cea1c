//! http-cache-tests, the tests of <https://cache-tests.fyi>, judge the cache: their own client and their own origin, here behind FastCGI, with weir
//! between them. `http_cache_tests/targeted.mjs` adds tests of targeted fields (RFC 9213), which the package in the registry does not have.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::{Value, json};
use weir_test::built::node_modules;
use weir_test::{Setup, Weir, wait_until};

/// How many tests weir passes of each kind, and how many there are. `http_cache_tests/meant.mjs` has the others, each with its reason.
const PASSED: [(&str, u64, u64); 3] = [
    ("required", 152, 157),
    ("optimal", 67, 86),
    ("targeted", 28, 28),
];

#[test]
fn http_cache_tests_find_a_good_cache() {
    let (weir, _origin) = started();
    let verdict = judged(&weir);
    assert_eq!(verdict["unexpected"], json!({}));
    for (kind, passed, of) in PASSED {
        let expected = json!({ "passed": passed, "of": of });
        assert_eq!(verdict["kinds"][kind], expected, "{kind}");
    }
}

/// A weir whose cache obeys the client, before the origin of the tests.
fn started() -> (Weir, Origin) {
    let setup = Setup::new().file("index.php", "");
    let socket = setup.path("origin.sock");
    let origin = Origin::start(&socket);
    let pool = format!(
        "runtime = \"servers\"\nservers = [\"unix:{}\"]\nqueue.maxconn = 64\n",
        socket.display()
    );
    let cache = "cache = { preset = \"headers\", client_directives = true }\n";
    let site = format!("fallback = \"/index.php\"\n{cache}");
    (setup.site(&site).pool(&pool).start(), origin)
}

/// What `http_cache_tests/judge.mjs` prints.
fn judged(weir: &Weir) -> Value {
    let output = Command::new("node")
        .arg("--no-warnings")
        .arg(script("judge.mjs"))
        .arg(node_modules())
        .arg(format!("http://{}", weir.address()))
        .output()
        .expect("node");
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// The program that answers.
struct Origin(Child);

impl Origin {
    fn start(socket: &Path) -> Origin {
        let child = Command::new("node")
            .arg(script("origin.mjs"))
            .arg(node_modules().join("http-cache-tests"))
            .arg(socket)
            .spawn()
            .expect("node");
        let origin = Origin(child);
        wait_until("the origin listens", || {
            std::os::unix::net::UnixStream::connect(socket).is_ok()
        });
        origin
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cache/http_cache_tests")
        .join(name)
}
