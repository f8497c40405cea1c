//! PHP-FPM's configuration: how it is translated into weir's settings, and that no text causes a panic. tests/fpm_command of
//! the main crate compares it with the real php-fpm.

#[allow(
    unreachable_pub,
    reason = "the fuzz target takes the same file as part of a library"
)]
mod paper;

use std::time::Duration;

use paper::{Paper, look_at, options, translate_as};
use proptest::{collection::vec, prelude::*, sample::select};
use weir_config::{
    Address, Checked, ErrorFormat, Level, LogTarget, Pm, Protocol, Runtime,
    fpm::{Message, Options, Start},
};

#[track_caller]
fn translated(paper: &Paper) -> (String, Checked, Vec<Message>) {
    match translate_as(paper, &options(), &listening()) {
        Ok(translated) => translated,
        Err(said) => panic!("{said:?}"),
    }
}

/// A start as usual, not with `-t`.
fn listening() -> Start {
    Start {
        listens: true,
        ..Start::default()
    }
}

#[track_caller]
fn refused(text: &str) -> String {
    match translate_as(&Paper::with(text), &options(), &listening()) {
        Ok((text, ..)) => panic!("{text}"),
        Err(said) => {
            let texts: Vec<String> = said.into_iter().map(|message| message.text).collect();
            texts.join("\n")
        }
    }
}

/// Debian's own file without its comments.
const DEBIAN: &str = "
[global]
pid = /run/php/php8.2-fpm.pid
error_log = /var/log/php8.2-fpm.log
[www]
user = shop
group = shop
listen = /run/php/php8.2-fpm.sock
listen.owner = shop
listen.group = shop
pm = dynamic
pm.max_children = 5
pm.start_servers = 2
pm.min_spare_servers = 1
pm.max_spare_servers = 3
";

#[test]
fn debian_s_own_configuration() {
    let (text, checked, said) = translated(&Paper::with(DEBIAN));
    assert!(said.is_empty(), "{said:?}");
    assert!(checked.warnings.is_empty(), "{}", checked.warnings);
    let expected = r#"[server]
pid_file = "/run/php/php8.2-fpm.pid"

[log]
access = "off"
error_format = "fpm"
error = "/var/log/php8.2-fpm.log"

[listen.www]
protocol = "fastcgi"
pool = "www"
address = "unix:/run/php/php8.2-fpm.sock"
owner = "shop"
group = "shop"

[pool."www"]
runtime = "php"
php = "8.2"
user = "shop"
group = "shop"
pm = "dynamic"
max_children = 5
start_servers = 2
min_spare_servers = 1
max_spare_servers = 3
max_spawn_rate = 32
output_log = "off"
request_slowlog_timeout = 0
read_timeout = "366d"
retries = 0
crash_limit = 0
self_call_workers = 0
limit_extensions = [".php", ".phar"]
env = { USER = "shop", HOME = "/srv/shop" }

[pool."www".queue]
timeout = "1d"
max_queue = 4096
when_full = "wait"
order = "fifo"
"#;
    assert_eq!(text, expected);
}

#[test]
fn everything_has_its_place() {
    let mut paper = Paper::with(
        "
[global]
error_log = syslog
syslog.ident = fpm-$HOST
syslog.facility = LOCAL3
log_level = warning
emergency_restart_threshold = 10
emergency_restart_interval = 1m
process_control_timeout = 10s
process.max = 128
process.priority = -5
rlimit_files = 1024
rlimit_core = unlimited
include = /srv/pool.d/*.conf
",
    );
    paper.add(
        "/srv/pool.d/one.conf",
        r#"
[shop.example]
prefix = /srv/$pool
user = shop
listen = 127.0.0.1:9000
listen.backlog = 511
listen.allowed_clients = 127.0.0.1, ::1
process.priority = 3
process.dumpable = yes
apparmor_hat = shop
pm = ondemand
pm.max_children = 50
pm.process_idle_timeout = 30s
pm.max_requests = 500
pm.status_path = /status
pm.status_listen = 127.0.0.1:9001
ping.path = /ping
ping.response = here
access.log = log/$pool.access.log
access.format = "%R %m %r"
access.suppress_path[] = /ping
slowlog = log/slow.log
request_slowlog_timeout = 5s
request_slowlog_trace_depth = 10
request_terminate_timeout = 1h
request_terminate_timeout_track_finished = yes
rlimit_files = 4096
rlimit_core = 0
chroot = $prefix/root
chdir = /
catch_workers_output = yes
decorate_workers_output = no
clear_env = no
security.limit_extensions = .php php5
env[PATH] = /bin
env[HOST] = $HOST
env[NONE] = $NONE
php_value[error_reporting] = E_ALL & ~E_DEPRECATED
php_flag[display_errors] = off
php_admin_value[memory_limit] = 32M
php_admin_value[memory_limit] = 64M
php_admin_flag[log_errors] = on
"#,
    );
    let (_, checked, said) = translated(&paper);
    assert_eq!(said, []);
    let config = checked.config;
    assert_eq!(config.log.error, LogTarget::Syslog);
    assert_eq!(config.log.syslog_ident, "fpm-$HOST");
    assert_eq!(config.log.syslog_facility, 19);
    assert_eq!(config.log.level, Level::Warning);
    assert_eq!(config.log.error_format, ErrorFormat::Fpm);
    assert_eq!(config.server.shutdown_timeout, Duration::from_secs(10));
    assert_eq!(config.server.process_max, 128);
    assert_eq!(config.server.emergency_restart_threshold, 10);
    assert_eq!(
        config.server.emergency_restart_interval,
        Duration::from_secs(60)
    );
    let [listener, status] = &config.listeners[..] else {
        panic!("{:?}", config.listeners);
    };
    assert_eq!(listener.address.to_string(), "127.0.0.1:9000");
    assert_eq!(listener.backlog, 511);
    let Protocol::FastCgi(fcgi) = &listener.protocol else {
        panic!("{listener:?}");
    };
    assert_eq!(fcgi.allowed_clients.len(), 2);
    assert!(!fcgi.status_only);
    assert_eq!(status.address.to_string(), "127.0.0.1:9001");
    assert!(matches!(&status.protocol, Protocol::FastCgi(fcgi) if fcgi.status_only));

    let [pool] = &config.pools[..] else {
        panic!("{:?}", config.pools);
    };
    assert_eq!(pool.name, "shop.example");
    assert_eq!(pool.queue.max_queue, 511);
    assert_eq!(pool.status_path.as_deref(), Some("/status"));
    assert_eq!(pool.ping_path.as_deref(), Some("/ping"));
    assert_eq!(pool.ping_response, "here");
    let log = "/srv/shop.example/log/shop.example.access.log";
    assert_eq!(pool.access_log.as_deref(), Some(log.as_ref()));
    assert_eq!(pool.access_format.to_string(), "%R %m %r");
    assert_eq!(pool.access_suppress_path, ["/ping"]);
    assert_eq!(pool.request_terminate_timeout, Duration::from_secs(3600));
    assert!(pool.request_terminate_timeout_track_finished);
    assert_eq!(pool.limit_extensions, [".php", ".php5"]);
    let Runtime::Php(php) = &pool.runtime else {
        panic!("{pool:?}");
    };
    assert_eq!(php.slowlog_timeout, Duration::from_secs(5));
    assert_eq!(php.slowlog_depth, 10);
    assert!(php.dumpable);
    assert_eq!(php.idle_timeout, Duration::ZERO, "OPcache and APCu stay");
    assert_eq!(php.apparmor_hat.as_deref(), Some("shop"));
    let setting = |name: &str| {
        let settings: Vec<_> = php.settings.iter().filter(|s| s.name == name).collect();
        assert_eq!(settings.len(), 1, "{name}");
        (settings[0].value.as_str(), settings[0].admin)
    };
    assert_eq!(setting("error_reporting"), ("24575", false));
    assert_eq!(setting("display_errors"), ("0", false));
    assert_eq!(setting("memory_limit"), ("32M", true));
    assert_eq!(setting("log_errors"), ("1", true));
    let workers = &php.workers;
    assert_eq!(workers.pm, Pm::OnDemand);
    assert_eq!(workers.max_children, 50);
    assert_eq!(workers.idle_timeout, Duration::from_secs(30));
    assert_eq!(workers.max_requests, 500);
    assert_eq!(workers.priority, Some(3));
    assert_eq!(workers.rlimit_files, Some(4096));
    assert_eq!(workers.rlimit_core, Some(i64::MAX as u64));
    let chroot = "/srv/shop.example//root";
    assert_eq!(workers.chroot.as_deref(), Some(chroot.as_ref()));
    assert!(!workers.clear_env);
    assert!(!workers.decorate_output);
    assert_eq!(workers.output_log, None);
    let env = |name: &str| {
        let pair = workers.env.iter().find(|(known, _)| known == name);
        pair.map(|(_, value)| value.as_str())
    };
    assert_eq!(env("HOST"), Some("shop.example"));
    assert_eq!(env("NONE"), Some(""));
    assert_eq!(env("HOME"), Some("/srv/shop"));
}

#[test]
fn listen_takes_every_form() {
    let addresses = |listen: &str| -> Vec<String> {
        let text = DEBIAN.replace("/run/php/php8.2-fpm.sock", listen);
        let (_, checked, _) = translated(&Paper::with(text));
        let listeners = checked.config.listeners.into_iter();
        listeners.map(|l| l.address.to_string()).collect()
    };
    assert_eq!(addresses("9000"), ["[::]:9000"]);
    assert_eq!(addresses("[::]:9000"), ["[::]:9000"]);
    assert_eq!(addresses(":::9000"), ["[::]:9000"]);
    assert_eq!(addresses("9797"), ["0.0.0.0:9797"]);
    assert_eq!(addresses("*:9000"), ["[::1]:9000"]);
    assert_eq!(addresses("127.0.0.1: +09000"), ["127.0.0.1:9000"]);
    assert_eq!(addresses("127.0.0.1:9000"), ["127.0.0.1:9000"]);
    assert_eq!(addresses("0.0.0.0:9000"), ["0.0.0.0:9000"]);
    assert_eq!(addresses("[::1]:9000"), ["[::1]:9000"]);
    assert_eq!(addresses("localhost:9000"), ["127.0.0.1:9000"]);
    assert_eq!(addresses("run/a.sock"), ["unix:/usr/run/a.sock"]);
    for (listen, cause) in [
        ("nowhere:9000", "getaddrinfo: Name or service not known\n"),
        (
            "127.0.0.1:90x",
            "getaddrinfo: Servname not supported for ai_socktype\n",
        ),
        (
            "[::1]:9797",
            "failed to create new listening socket: socket(): Address family not supported by protocol (97)",
        ),
        (
            "192.0.2.1:9000",
            "unable to bind listening socket for address '192.0.2.1:9000': Cannot assign requested address (99)",
        ),
        ("127.0.0.1:0", "invalid port value '0'"),
        ("127.0.0.1:x", "invalid port value 'x'"),
    ] {
        let text = DEBIAN.replace("/run/php/php8.2-fpm.sock", listen);
        let said = refused(&text);
        assert!(said.contains(cause), "{said}");
    }
}

#[test]
fn a_host_of_several_addresses_is_listened_for_on_the_first_that_is_here() {
    let of = |listen: &str| {
        let text = DEBIAN.replace("/run/php/php8.2-fpm.sock", listen);
        let (_, checked, said) = translated(&Paper::with(text));
        let listeners: Vec<String> = checked
            .config
            .listeners
            .iter()
            .map(|l| l.address.to_string())
            .collect();
        (
            listeners,
            said.into_iter()
                .map(|message| message.text)
                .collect::<Vec<_>>(),
        )
    };
    let (addresses, said) = of("both:9000");
    assert_eq!(addresses, ["[::1]:9000"]);
    assert_eq!(
        said,
        ["Found multiple addresses for both, 127.0.0.1 ignored"]
    );
    let (addresses, said) = of("moved:9000");
    assert_eq!(addresses, ["127.0.0.1:9000"]);
    let unable = "unable to bind listening socket for address 'moved:9000': Cannot assign requested address (99)";
    assert_eq!(
        said,
        [
            unable,
            unable,
            "Found multiple addresses for moved, ::1 ignored"
        ]
    );
}

#[test]
fn sockets_have_the_rights_that_php_fpm_gives_them() {
    let listener = |lines: &str| {
        let text = DEBIAN
            .replace("listen.owner = shop\n", "")
            .replace("listen.group = shop\n", lines);
        let (_, checked, said) = translated(&Paper::with(text));
        (checked.config.listeners[0].clone(), said)
    };
    let (plain, _) = listener("");
    assert_eq!((plain.owner, plain.group, plain.mode), (None, None, 0o660));
    let (owned, _) = listener("listen.owner = shop\nlisten.mode = 0600\n");
    assert_eq!(owned.owner.as_deref(), Some("shop"));
    assert_eq!(owned.group.as_deref(), Some("1000"), "the owner's group");
    assert_eq!(owned.mode, 0o600);
    let (open, _) = listener("listen.mode = 666\n");
    assert_eq!(open.mode, 0o666);
    let (listed, said) = listener("listen.owner = shop\nlisten.acl_users = shop,root\n");
    assert_eq!(listed.acl_users, ["shop", "root"]);
    assert_eq!(listed.owner, None);
    assert_eq!(
        said[0].text,
        "[pool www] ACL set, listen.owner = 'shop' is ignored"
    );
    assert!(matches!(listed.address, Address::Unix(_)));
}

#[test]
fn what_an_ordinary_user_cannot_do_is_left_out() {
    let mut paper = Paper::with(format!("{DEBIAN}chroot = /srv\nprocess.priority = 1\n"));
    paper.ordinary = true;
    let (_, checked, said) = translated(&paper);
    let workers = checked.config.pools[0].workers().unwrap().clone();
    assert_eq!(
        (workers.user, workers.chroot, workers.priority),
        (None, None, None)
    );
    let ignored = said.iter().filter(|m| m.text.contains("is ignored when"));
    assert_eq!(ignored.count(), 4);
}

#[test]
fn no_script_runs_as_root() {
    for text in [
        DEBIAN.replace("user = shop\n", ""),
        DEBIAN.replace("user = shop\n", "user = root\n"),
    ] {
        let said = refused(&text);
        assert!(
            said.contains("user has not been defined") || said.contains("other than root"),
            "{said}"
        );
        let allowed = Options {
            run_as_root: true,
            ..options()
        };
        let outcome = translate_as(&Paper::with(&text), &allowed, &Start::default());
        match text.contains("user = root") {
            true => assert!(outcome.unwrap_err()[0].text.contains("no script as root")),
            false => {
                let (_, checked, _) = outcome.unwrap_or_else(|said| panic!("{said:?}"));
                assert_eq!(checked.config.pools[0].workers().unwrap().user, None);
            }
        }
    }
}

#[test]
fn the_command_line_has_its_say() {
    let start = Start {
        log_to_stderr: true,
        php_ini: Some("/srv/php.ini".into()),
        no_php_ini: true,
        defines: vec![
            ("a.b".into(), "1".into()),
            ("a.b".into(), "2".into()),
            ("zend_extension".into(), "x".into()),
            ("extension".into(), "ffi".into()),
            ("extension".into(), "posix".into()),
        ],
        listens: false,
    };
    let options = Options {
        pid: Some("run/weir.pid".into()),
        prefix: Some("/srv/p".into()),
        file: Some("/etc/php/8.2/fpm/php-fpm.conf".into()),
        ..options()
    };
    let text = DEBIAN.replace("pid = /run/php/php8.2-fpm.pid\n", "");
    let (_, checked, _) = translate_as(&Paper::with(text), &options, &start).unwrap();
    let config = checked.config;
    assert_eq!(
        config.server.pid_file.as_deref(),
        Some("/srv/p/run/weir.pid".as_ref())
    );
    assert_eq!(config.log.error, LogTarget::Stderr);
    let php = config.pools[0].php().unwrap();
    assert_eq!(php.ini.as_deref(), Some("/srv/php.ini".as_ref()));
    assert!(php.no_ini);
    assert_eq!(
        php.define,
        [
            ("a.b".to_owned(), "2".to_owned()),
            ("zend_extension".to_owned(), "x".to_owned()),
            ("extension".to_owned(), "ffi".to_owned()),
            ("extension".to_owned(), "posix".to_owned()),
        ]
    );
}

#[test]
fn what_has_no_meaning_here_is_named_once() {
    let text = DEBIAN.replace("[www]", "log_limit = 8192\nevents.mechanism = poll\n[www]");
    let (_, checked, said) = translated(&Paper::with(text));
    assert_eq!(checked.config.log.error_limit, 8192);
    assert!(checked.config.log.error_buffering);
    assert_eq!(said.len(), 1);
    assert_eq!(
        said[0].text,
        "weir ignores directives that have no effect here: events.mechanism"
    );
}

#[test]
fn pools_keep_their_names_and_listeners_get_one() {
    let pool = |name: &str, listen: u16| {
        format!("[{name}]\nuser=shop\nlisten={listen}\npm=static\npm.max_children=1\n")
    };
    let text = pool("a.b", 1) + &pool("a_b", 2) + &pool(" c d ", 3) + &pool("ü", 4);
    let (_, checked, _) = translated(&Paper::with(text));
    let names: Vec<&str> = checked.config.pools.iter().map(|p| &*p.name).collect();
    assert_eq!(names, ["a.b", "a_b", "c d", "ü"]);
    assert_eq!(checked.config.listeners.len(), 4);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        look_at(&bytes);
    }

    #[test]
    fn any_pieces(pieces in vec(select(PIECES), 0..40)) {
        look_at(pieces.concat().as_bytes());
    }

    /// Lines that could stand in a php-fpm.conf, in any order, behind a good pool.
    #[test]
    fn any_lines(lines in vec(line(), 0..5)) {
        look_at(format!("{DEBIAN}{}\n", lines.join("\n")).as_bytes());
    }
}

fn line() -> impl Strategy<Value = String> {
    (select(NAMES), select(VALUES)).prop_map(|(name, value)| format!("{name} = {value}"))
}

const PIECES: &[&str] = &[
    "[", "]", "\"", "'", "${", "}", "$", "\\", "\n", "\r", ";", "#", "=", " ", "\t", "(", ")", "|",
    "&", "~", "!", "^", ":-", "yes", "no", "null", "a", "E_ALL", "1", "-", ".5", "global", "www",
    "pm", "env", "include", "\0", "\u{feff}", "ü",
];

const NAMES: &[&str] = &[
    "prefix",
    "user",
    "group",
    "listen",
    "listen.backlog",
    "listen.acl_users",
    "listen.acl_groups",
    "listen.owner",
    "listen.group",
    "listen.mode",
    "listen.allowed_clients",
    "process.priority",
    "process.dumpable",
    "pm",
    "pm.max_children",
    "pm.start_servers",
    "pm.min_spare_servers",
    "pm.max_spare_servers",
    "pm.max_spawn_rate",
    "pm.process_idle_timeout",
    "pm.max_requests",
    "pm.status_path",
    "pm.status_listen",
    "ping.path",
    "ping.response",
    "access.log",
    "access.format",
    "access.suppress_path[]",
    "slowlog",
    "request_slowlog_timeout",
    "request_slowlog_trace_depth",
    "request_terminate_timeout",
    "request_terminate_timeout_track_finished",
    "rlimit_files",
    "rlimit_core",
    "chroot",
    "chdir",
    "catch_workers_output",
    "decorate_workers_output",
    "clear_env",
    "security.limit_extensions",
    "apparmor_hat",
    "env[A]",
    "env[a b]",
    "php_value[opcache.enable]",
    "php_flag[a]",
    "php_admin_value[a]",
    "php_admin_flag[a]",
    "[other]\nlisten",
    "[global]\npid",
    "[global]\nlog_level",
    "[global]\nerror_log",
    "[global]\nprocess.max",
    "[global]\nrlimit_core",
    "[global]\nemergency_restart_interval",
    "[global]\nprocess_control_timeout",
];

const VALUES: &[&str] = &[
    "",
    "1",
    "yes",
    "no",
    "-3",
    "5",
    "2147483647",
    "99999999999",
    "10s",
    "9999d",
    "-1m",
    "/srv",
    "/srv/a b",
    "/a",
    "shop",
    "shop,root",
    "0",
    "0777",
    "9000",
    "127.0.0.1:9001",
    "[::]:9002",
    "static",
    "dynamic",
    "ondemand",
    "unlimited",
    "syslog",
    "debug",
    "$pool",
    "${HOST}",
    "\"a\\\"b\"",
    "\"%R %{mili}d\"",
    "\"%{a}{B}e%\"",
    "\"%{%s}t %{MEGA}M\"",
    ".php .x/y php *",
    "ü",
];
