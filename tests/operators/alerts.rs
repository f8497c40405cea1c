//! `weir alerts`: the rules and the dashboard, with promtool and a real Prometheus.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use weir_test::sidecar::Outward;
use weir_test::weir::program;
use weir_test::{Client, Setup, free_address, php, wait_for, wait_until};

fn printed(option: &str) -> String {
    let output = Command::new(program())
        .args(["alerts", option])
        .output()
        .expect("weir");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The values of all lines of the rules that begin with this key.
fn values<'r>(rules: &'r str, key: &str) -> Vec<&'r str> {
    let lines = rules
        .lines()
        .map(|line| line.trim_start_matches([' ', '-']));
    lines.filter_map(|line| line.strip_prefix(key)).collect()
}

/// Runs promtool in a folder.
#[track_caller]
fn promtool(folder: &Path, words: &[&str]) {
    let output = Command::new("promtool")
        .args(words)
        .current_dir(folder)
        .output()
        .expect("promtool");
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
}

#[test]
fn each_rule_fires_when_it_should_and_not_when_it_should_not() {
    let setup = Setup::new();
    let rules = printed("--prometheus");
    let tests = include_str!("alerts/weir.rules.test.yml");
    fs::write(setup.path("weir.rules.yml"), &rules).expect("a file");
    fs::write(setup.path("weir.rules.test.yml"), tests).expect("a file");
    promtool(setup.folder(), &["check", "rules", "weir.rules.yml"]);
    promtool(setup.folder(), &["test", "rules", "weir.rules.test.yml"]);
    let alerts = values(&rules, "alert: ");
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert}");
    }
}

#[test]
fn each_rule_says_what_to_do_and_has_a_section_of_the_page() {
    let rules = printed("--prometheus");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/alerts.md");
    let page = fs::read_to_string(page).expect("docs/alerts.md");
    for rule in rules.split("- alert: ").skip(1) {
        let alert = rule.lines().next().expect("a name");
        assert_eq!(values(rule, "summary: ").len(), 1, "{alert}");
        for part in ["Where: ", "Cause: ", "Fix: "] {
            assert_eq!(values(rule, part).len(), 1, "{alert}: {part}");
        }
        let link = format!("docs/alerts.md#{}", alert.to_lowercase());
        assert_eq!(values(rule, "runbook: "), [link], "{alert}");
        assert!(page.contains(&format!("\n### {alert}\n")), "{alert}");
    }
    let sections = page.lines().filter(|line| line.starts_with("### Weir"));
    assert_eq!(sections.count(), values(&rules, "alert: ").len());
}

/// Words that begin with `weir_`.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("weir_")).collect()
}

/// A weir with everything that alerts are about: pools of its own PHP and of servers, calls to a host, certificates, a rate, a cache.
#[test]
fn rules_and_dashboard_use_only_metrics_that_weir_exports() {
    let nobody = free_address();
    let setup = Setup::new().file("pid.php", "<?php echo getmypid();");
    let lines = format!(
        "[program.broken]\ncommand = [\"false\"]\n\
         [cache]\nbus = \"redis://{nobody}\"\n\
         [pool.farm]\nruntime = \"servers\"\nservers = [\"{nobody}\"]\nqueue.maxconn = 2\n\
         [listen.tls]\naddress = \"{}\"\ntls = true\n\
         [site.local]\nhosts = [\"localhost\"]\nroot = \"{root}\"\nlisten = [\"tls\"]\ntls = \"auto\"\n\
         [site.public]\nhosts = [\"shop.example\"]\nroot = \"{root}\"\nlisten = [\"tls\"]\ntls = \"auto\"\n\
         [tls]\ncertificates = \"{}\"\n\
         [tls.acme]\nemail = \"ops@shop.example\"\ndirectory = \"https://{nobody}/dir\"\n",
        free_address(),
        setup.path("certificates").display(),
        root = setup.root().display(),
    );
    let pool = format!("runtime = \"php\"\npm = \"auto\"\n{}", php::identity());
    let setup = setup
        .admin()
        .site("cache = \"headers\"\n")
        .pool(&pool)
        .more(&lines);
    let sidecar = Outward::new().name("api.test", nobody).start_in(setup);
    let weir = &sidecar.weir;
    weir.get("/pid.php").expect(200);
    sidecar.get(&format!("/api.test:{}/", nobody.port()));
    let known = [printed("--prometheus"), printed("--grafana")].concat();
    let used = metrics_in(&known);
    wait_until("all of them are there", || {
        let (_, text) = weir.admin_get("/metrics");
        let exported = metrics_in(&text);
        let missing: Vec<_> = used.difference(&exported).collect();
        if !missing.is_empty() {
            println!("not there: {missing:?}");
        }
        missing.is_empty()
    });
}

/// A Prometheus that asks weir three times a second.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// `weir`: the admin interface.
    fn start(setup: &Setup, weir: SocketAddr, rules: &str) -> Prometheus {
        let address = free_address();
        let times = "scrape_interval: 300ms, scrape_timeout: 300ms, evaluation_interval: 200ms";
        let config = format!(
            "global: {{{times}}}\nrule_files: [weir.rules.yml]\n\
             scrape_configs: [{{job_name: weir, static_configs: [{{targets: ['{weir}']}}]}}]\n"
        );
        fs::write(setup.path("prometheus.yml"), config).expect("a file");
        fs::write(setup.path("weir.rules.yml"), rules).expect("a file");
        promtool(setup.folder(), &["check", "config", "prometheus.yml"]);
        let process = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={address}"))
            .current_dir(setup.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(setup.path("log/prometheus")).expect("a log"))
            .spawn()
            .expect("prometheus");
        let prometheus = Prometheus { process, address };
        wait_until("Prometheus serves", || {
            std::net::TcpStream::connect(address).is_ok() && {
                let mut client = Client::connect(address);
                client.send("GET /-/ready HTTP/1.1\r\nHost: prometheus\r\n\r\n");
                client.response().status == 200
            }
        });
        prometheus
    }

    #[track_caller]
    fn ask(&self, path: &str, form: &str) -> Value {
        let mut client = Client::connect(self.address);
        client.send(format!(
            "{} /api/v1/{path} HTTP/1.1\r\nHost: prometheus\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{form}",
            if form.is_empty() { "GET" } else { "POST" },
            form.len()
        ));
        let answer = client.response().text();
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["status"], "success", "{form}: {answer}");
        answer["data"].clone()
    }

    /// The alerts that fire.
    fn firing(&self) -> Vec<Value> {
        let all = self.ask("alerts", "")["alerts"].clone();
        let all = all.as_array().expect("alerts").iter();
        all.filter(|alert| alert["state"] == "firing")
            .cloned()
            .collect()
    }

    /// The result of a query.
    fn query(&self, expression: &str) -> Vec<Value> {
        let escaped: String = (expression.bytes())
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let data = self.ask("query", &format!("query={escaped}"));
        data["result"].as_array().expect("a result").clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_real_prometheus_loads_the_rules_and_tells_of_a_pool_without_servers() {
    let (servers, tcp) = (free_address(), free_address());
    let setup = Setup::new()
        .server(&format!("admin_tcp = \"{tcp}\""))
        .admin()
        .file("page.php", "")
        .pool(&format!(
            "runtime = \"servers\"\nservers = [\"{servers}\"]\nqueue.maxconn = 2\n"
        ));
    let weir = setup.start();
    // Nobody waits for minutes here.
    let rules: Vec<String> = printed("--prometheus")
        .lines()
        .map(|line| match line.trim_start().starts_with("for: ") {
            true => line.split("for: ").next().unwrap_or_default().to_owned() + "for: 1s",
            false => line.to_owned(),
        })
        .collect();
    let prometheus = Prometheus::start(&setup, tcp, &rules.join("\n"));
    wait_until("it has weir's metrics, and nothing is wrong", || {
        !prometheus.query("weir_pool_up == 1").is_empty() && prometheus.firing().is_empty()
    });
    let is_told = |wanted: &str| {
        let firing = prometheus.firing().into_iter();
        let mut alerts = firing.filter(|alert| alert["labels"]["alertname"] == wanted);
        alerts.next()
    };
    let alert = wait_for("the pool is down", || {
        weir.get("/page.php");
        is_told("WeirPoolDown")
    });
    assert_eq!(alert["labels"]["pool"], "app");
    assert_eq!(alert["labels"]["severity"], "critical");
    let said = alert["annotations"]["description"]
        .as_str()
        .expect("a text");
    assert!(
        said.starts_with(&format!(
            "Where: pool app on {tcp}; all its requests get 503"
        )) && said.contains("Fix: `weir status app`"),
        "{said}"
    );
    // Those that it leads to, and no others. On a busy machine an answer may come too late.
    wait_until("the other alerts of it fire", || {
        is_told("WeirServerDown").is_some() && is_told("WeirNotReady").is_some()
    });
    let possible = [
        "WeirPoolDown",
        "WeirServerDown",
        "WeirNotReady",
        "WeirSiteFails",
        "WeirRequestsRefused",
        "WeirUnreachable",
    ];
    for alert in prometheus.firing() {
        let name = alert["labels"]["alertname"].as_str();
        assert!(name.is_some_and(|name| possible.contains(&name)), "{alert}");
    }
    wait_until("the panels have data", || {
        panels_with_data(&prometheus) > 10
    });
    for query in scaling_queries() {
        wait_until(&query, || !prometheus.query(&query).is_empty());
    }
    drop(weir);
    wait_until("nobody answers", || is_told("WeirUnreachable").is_some());
}

/// What KEDA asks in the example for Kubernetes, of this pool.
fn scaling_queries() -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/kubernetes/keda.yaml");
    let text = fs::read_to_string(file).expect("a manifest");
    let queries = text.split("query: |\n").skip(1);
    let queries: Vec<String> = queries
        .filter_map(|rest| rest.split("threshold:").next())
        .map(|query| query.replace("namespace=\"shop\",pool=\"shop\"", "pool=\"app\""))
        .collect();
    assert_eq!(queries.len(), 2, "{text}");
    queries
}

/// How many expressions of the dashboard have a result; all must be right. Grafana puts what was chosen into them; so does this.
#[track_caller]
fn panels_with_data(prometheus: &Prometheus) -> usize {
    let dashboard: Value = serde_json::from_str(&printed("--grafana")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let has_data = |target: &&Value| {
        let expression = target["expr"].as_str().expect("an expression");
        let expression = (["instance", "pool", "site"].iter())
            .fold(expression.to_owned(), |text, name| {
                text.replace(&format!("${name}"), ".*")
            })
            .replace("$__rate_interval", "1m");
        assert!(!expression.contains('$'), "{expression}");
        !prometheus.query(&expression).is_empty()
    };
    targets.filter(has_data).count()
}
