//! Random configurations that nobody would write. Both programs must still treat them alike.

use weir_test::Chance;

use crate::support::{Place, web_user};

#[test]
fn directives_with_any_value() {
    compare(40, |chance| {
        let mut lines = String::new();
        for _ in 0..chance.below(6) + 1 {
            let (name, value) = (chance.of(NAMES), chance.of(VALUES));
            lines.push_str(&format!("{name} = {value}\n"));
        }
        lines
    });
}

#[test]
fn values_of_any_characters() {
    compare(60, |chance| {
        let begins = ["env[A] = ", "env[", "php_value[a] = ", "", "["];
        let mut line = chance.of(&begins).to_owned();
        for _ in 0..chance.below(12) + 1 {
            line.push_str(chance.of(PIECES));
        }
        // After a dollar, the value includes the end of the line, and php-fpm then shows it unchanged.
        line.push('x');
        line
    });
}

fn compare(times: u64, lines: impl Fn(&mut Chance) -> String) {
    let place = Place::new();
    for seed in 0..times {
        let mut chance = Chance(seed * 7919 + 17);
        let text = format!(
            "[global]\nerror_log = @/error.log\n[www]\nuser = {}\nlisten = @/fpm.sock\npm = static\n\
             pm.max_children = 9\n{}\n",
            web_user(),
            lines(&mut chance)
        );
        let (fpm, weir) = place.test_both(&text);
        assert_eq!(weir, fpm, "seed {seed}:\n{text}");
    }
}

const NAMES: &[&str] = &[
    "prefix",
    "group",
    "listen",
    "listen.backlog",
    "listen.acl_users",
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
    "access.format",
    "access.suppress_path[]",
    "request_slowlog_timeout",
    "request_terminate_timeout",
    "request_terminate_timeout_track_finished",
    "rlimit_files",
    "rlimit_core",
    "chdir",
    "catch_workers_output",
    "decorate_workers_output",
    "clear_env",
    "security.limit_extensions",
    "env[A]",
    "env[a b]",
    "php_value[x.y]",
    "php_flag[a]",
    "php_admin_value[error_log]",
    "php_admin_flag[a]",
    "[other]\nlisten",
    "[global]\npid",
    "[global]\nlog_level",
    "[global]\nprocess.max",
    "[global]\ndaemonize",
];

const VALUES: &[&str] = &[
    "",
    "1",
    "yes",
    "no",
    "-3",
    "5",
    "2147483648",
    "10s",
    "9999d",
    "-1m",
    "/tmp",
    "/tmp/a b",
    "/a",
    "root",
    "0",
    "0777",
    "9000",
    "127.0.0.1:9001",
    "static",
    "dynamic",
    "ondemand",
    "unlimited",
    "notice",
    "$pool",
    "${FPM_TEST}",
    "\"a b\"",
    ".php .x",
    "E_ALL",
    "1 | 6",
    "~5",
    "x = y",
];

const PIECES: &[&str] = &[
    "[", "]", "\"", "${", "}", "$", "\\", "\r", ";", "#", "=", " ", "\t", "(", ")", "|", "&", "~",
    "!", "^", ":-", "yes", "no", "null", "a", "E_ALL", "1", "-", ".5", "FPM_TEST", "global", "'b'",
];
