//! The configurations in the manifests for Kubernetes. The manifests themselves: setup/kubernetes.sh.

use std::fs;
use std::path::Path;

use weir_test::{Client, Setup, Weir, free_address, is_root, php, wait_until};

fn manifest(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/kubernetes");
    fs::read_to_string(file.join(name)).expect("a manifest")
}

/// Each weir.toml of a manifest.
fn configurations(manifest: &str) -> Vec<String> {
    let blocks = manifest.split("\n  weir.toml: |\n").skip(1);
    let text = |block: &str| {
        let lines = block.lines();
        let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
        lines
            .map(|line| format!("{}\n", line.trim_start()))
            .collect()
    };
    blocks.map(text).collect()
}

/// The seconds in a line of a configuration, or of a manifest.
fn seconds(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
    let value = line.unwrap_or_else(|| panic!("no {key}"));
    let digits = value.trim_start_matches([' ', '=', ':', '"']);
    let end = digits.find(|letter: char| !letter.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())]
        .parse()
        .expect("a number")
}

/// Starts a weir with such a configuration, which gets the test's folder, and addresses that nothing else uses. `listens`: its address
/// for requests.
fn start(text: &str, setup: &Setup, listens: &str) -> Weir {
    let mut text = text
        .replace("/srv/shop/public", &setup.root().display().to_string())
        .replace("/run/weir", &setup.folder().display().to_string())
        .replace("0.0.0.0:9180", &free_address().to_string())
        .replace(listens, &setup.address().to_string());
    if is_root() {
        // The containers have another user.
        text = text
            .replace("[server]\n", &format!("[server]\n{}", php::identity()))
            .replace(
                "runtime = \"php\"\n",
                &format!("runtime = \"php\"\n{}", php::identity()),
            );
    }
    setup.start_toml(&text)
}

fn setup() -> Setup {
    Setup::new().file("index.php", "<?php echo 'page ', $_SERVER['REQUEST_URI'];")
}

#[track_caller]
fn expect_page(weir: &Weir) {
    wait_until("a page of PHP", || {
        let mut client = Client::connect(weir.address());
        client.send("GET /cart HTTP/1.1\r\nHost: shop.example\r\n\r\n");
        client.response().text() == "page /cart"
    });
}

#[test]
fn a_pod_with_its_workers_serves() {
    let text = manifest("one-pod.yaml");
    let weir = start(&configurations(&text)[0], &setup(), "0.0.0.0:8080");
    expect_page(&weir);
    leave(weir);
}

#[test]
fn gateways_find_the_pods_with_php() {
    let text = manifest("gateways-and-pools.yaml");
    let [gateway, pool] = &configurations(&text)[..] else {
        panic!("two configurations");
    };
    let pods = setup();
    let pool = start(pool, &pods, "0.0.0.0:9000");
    // The root is the same in both images.
    let root = pods.root().display().to_string();
    let gateway = gateway.replace("/srv/shop/public", &root).replace(
        "shop-pool.shop.svc.cluster.local:9000",
        &pods.address().to_string(),
    );
    let gateway = start(&gateway, &Setup::new(), "0.0.0.0:8080");
    expect_page(&gateway);
    leave(gateway);
    leave(pool);
}

/// Ends it without its delay.
fn leave(mut weir: Weir) {
    for _ in 0..2 {
        let stop = weir.command(&["stop"]).status().expect("weir stop");
        assert!(stop.success());
    }
    assert!(weir.wait_for_end().success());
}

#[test]
fn pods_have_time_to_leave() {
    for name in ["one-pod.yaml", "gateways-and-pools.yaml"] {
        let text = manifest(name);
        let configurations = configurations(&text);
        let pods: Vec<&str> = text.split("\nkind: Deployment\n").skip(1).collect();
        assert_eq!(configurations.len(), pods.len(), "{name}");
        for (weir, pod) in configurations.iter().zip(pods) {
            let times = seconds(weir, "shutdown_delay") + seconds(weir, "shutdown_timeout");
            let grace = seconds(pod, "terminationGracePeriodSeconds");
            assert!(grace >= times + 5, "{name}: {grace} s for {times} s");
        }
    }
}
