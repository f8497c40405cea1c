//! Names that are proved by DNS: a command that makes TXT records, and records that the operator sets once.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use weir_test::pebble::Habits;
use weir_test::wait_until;

use crate::acme::{AcmeSite, certificates, got};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/dns")
        .join(name)
}

/// A `dns_command` that writes its arguments to a file, a line for each call, and then does this. Returns the file and the line of
/// `[tls.acme]`.
fn recording(site: &AcmeSite, then: &str) -> (PathBuf, String) {
    let calls = site.store.path().join("calls");
    let script = format!("echo \\\"$@\\\" >> {}; {then}", calls.display());
    let line = format!("dns_command = [\"sh\", \"-c\", \"{script}\", \"txt\"]");
    (calls, line)
}

/// The TXT records of a name.
fn records(server: SocketAddr, name: &str) -> Vec<String> {
    let output = Command::new("dig")
        .arg(format!("@{}", server.ip()))
        .args(["-p", &server.port().to_string()])
        .args(["+short", "+tries=5", "+time=5", "TXT", name])
        .output()
        .expect("dig");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_name_with_a_star_is_proved_by_a_command_that_calls_an_api() {
    let site = AcmeSite::new("[\"shop.example\", \"*.shop.example\"]", Habits::default());
    let command = format!(
        "dns_command = [\"env\", \"DNS_API=http://{}\", \"{}\"]\ndns_wait = \"0\"",
        site.pebble.name_api(),
        example("rest.sh").display()
    );
    let names = site.pebble.names();
    let (weir, pebble, _store) = site.with(|setup| setup.more(&command)).start();
    let root = pebble.root();
    for host in ["any.shop.example", "shop.example"] {
        wait_until("the certificate", || {
            got(&weir, &root, host, "/") == "public\n"
        });
    }
    wait_until("the end of the records", || {
        records(names, "_acme-challenge.shop.example").is_empty()
    });
    // Both names have the same record, with two values.
    let log = fs::read_to_string(weir.path("log/error.log")).unwrap_or_else(|_| weir.stderr());
    assert_eq!(
        log.matches("add _acme-challenge.shop.example: done")
            .count(),
        2,
        "{log}"
    );
}

#[test]
fn a_command_that_fails_is_in_the_log_with_its_output_and_its_record_is_removed() {
    let site = AcmeSite::new("[\"*.shop.example\"]", Habits::default());
    let (calls, command) = recording(&site, "env >> $0.env; echo no such zone; exit 3");
    let calls_env = calls.with_file_name("txt.env");
    let command = format!(
        "challenge = \"dns-01\"\n{}\ndns_wait = \"0\"\n\
         [egress]\nsocket = \"off\"\nlisten = [\"unix:{}\"]\nallow = [\"https://api.test\"]\n\
         set_headers = {{ X-Key = \"${{env:EGRESS_KEY}}\" }}",
        command.replace(
            "\"txt\"",
            &format!("\"{}\"", calls.with_file_name("txt").display())
        ),
        site.store.path().join("egress.sock").display()
    );
    let own = [
        "env",
        "DNS_TOKEN=1",
        "EGRESS_KEY=1",
        "WATCHDOG_USEC=600000000",
        "WATCHDOG_PID=1",
    ];
    let (weir, _pebble, _store) = site.with(|setup| setup.more(&command).under(&own)).start();
    weir.wait_for_error(&[
        "[certificate.*.shop.example]",
        "dns_command sh add _acme-challenge.shop.example",
        "it printed: no such zone",
    ]);
    let mut called = String::new();
    wait_until("the removal", || {
        called = fs::read_to_string(&calls).unwrap_or_default();
        called.lines().count() >= 2
    });
    let environment = fs::read_to_string(calls_env).expect("an environment");
    assert!(environment.contains("\nDNS_TOKEN="), "{environment}");
    for hidden in ["EGRESS_KEY", "WATCHDOG_"] {
        assert!(!environment.contains(hidden), "{hidden}: {environment}");
    }
    let mut lines = called.lines();
    let value = lines
        .next()
        .and_then(|line| line.strip_prefix("add _acme-challenge.shop.example "));
    let value = value.expect("the first call adds the record");
    assert_eq!(value.len(), 43);
    assert_eq!(
        lines.next(),
        Some(&*format!("remove _acme-challenge.shop.example {value}"))
    );
}

#[test]
fn a_command_that_takes_too_long_is_killed_and_its_record_is_removed_before_weir_ends() {
    let site = AcmeSite::new("[\"*.shop.example\"]", Habits::default());
    let (calls, command) = recording(&site, "[ $1 = remove ] || sleep 1000");
    let command = format!("{command}\ndns_timeout = \"3s\"");
    let (mut weir, _pebble, _store) = site.with(|setup| setup.more(&command)).start();
    weir.wait_for_error(&["dns_command sh add", "it was killed after 3s"]);
    weir.stop();
    let called = fs::read_to_string(&calls).expect("calls");
    let count = |action: &str| {
        let of_it = called.lines().filter(|line| line.starts_with(action));
        of_it.count()
    };
    assert!(count("add") > 0, "{called}");
    assert_eq!(count("add"), count("remove"), "{called}");
}

#[test]
fn a_record_that_the_operator_has_set_once_proves_a_name() {
    let site = AcmeSite::new("[\"shop.example\", \"*.shop.example\"]", Habits::default())
        .with(|setup| setup.more("challenge = \"dns-persist-01\""));
    let (weir, pebble, _store) = site.start();
    weir.wait_for_error(&[
        "no certificate from the authority",
        "the DNS must have _validation-persist.shop.example TXT",
    ]);
    let listed = certificates(&weir);
    let record = &listed["records"][0];
    let [name, value] = ["name", "value"].map(|key| record[key].as_str().expect("a text"));
    assert_eq!(name, "_validation-persist.shop.example");
    assert!(
        value.starts_with("pebble.letsencrypt.org; accounturi=https://")
            && value.ends_with("; policy=wildcard"),
        "{value}"
    );
    assert_eq!(listed["records"].as_array().map(Vec::len), Some(1));
    pebble.set_txt(name, value);
    // A reload orders at once.
    weir.signal(rustix::process::Signal::HUP);
    let root = pebble.root();
    wait_until("the certificate", || {
        got(&weir, &root, "any.shop.example", "/") == "public\n"
    });
    assert_eq!(certificates(&weir)["records"], listed["records"]);
}

/// BIND with the zone `shop.example`, which everybody on this machine may change. It ends with the test.
struct Bind {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Bind {
    fn start() -> Bind {
        let folder = TempDir::with_prefix("weir-bind-").expect("a temporary folder");
        // It listens on addresses that an interface has, and these are not all of 127.0.0.0/8.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.expect("a free port");
        let at = folder.path().display();
        let (ip, port) = (address.ip(), address.port());
        let config = format!(
            "options {{ directory \"{at}\"; listen-on port {port} {{ {ip}; }}; listen-on-v6 {{ none; }};\n\
             recursion no; pid-file none; session-keyfile none; dnssec-validation no; }};\n\
             controls {{ }};\n\
             zone \"shop.example\" {{ type primary; file \"{at}/zone\"; allow-update {{ 127.0.0.0/8; }}; }};\n"
        );
        let zone = "$TTL 1\n@ SOA ns hostmaster 1 60 60 60 1\n@ NS ns\nns A 127.0.0.1\n";
        let conf = folder.path().join("named.conf");
        fs::write(&conf, config).expect("a file");
        fs::write(folder.path().join("zone"), zone).expect("a file");
        let child = Command::new("named")
            .args(["-f", "-n", "1", "-c"])
            .arg(&conf)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("named; setup/install.sh test installs it");
        wait_until("the name server", || TcpStream::connect(address).is_ok());
        Bind {
            child,
            address,
            _folder: folder,
        }
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_name_is_proved_by_an_update_of_a_real_name_server() {
    let bind = Bind::start();
    let mut site = AcmeSite::new("[\"*.shop.example\"]", Habits::default());
    site.pebble.ask_names_of(bind.address);
    let command = format!(
        "challenge = \"dns-01\"\ndns_wait = \"0\"\n\
         dns_command = [\"env\", \"NSUPDATE_SERVER={}\", \"NSUPDATE_PORT={}\", \"{}\"]",
        bind.address.ip(),
        bind.address.port(),
        example("nsupdate.sh").display()
    );
    let (weir, pebble, _store) = site.with(|setup| setup.more(&command)).start();
    let root = pebble.root();
    wait_until("the certificate", || {
        got(&weir, &root, "any.shop.example", "/") == "public\n"
    });
    wait_until("the end of the record", || {
        records(bind.address, "_acme-challenge.shop.example").is_empty()
    });
}
