//! The pass that asks the machine, run with an invented machine.

use std::path::{Path, PathBuf};

use weir_config::{Checked, Diagnostics, Environment, Machine, Obstacle, check_environment, read};

#[test]
fn what_is_there_is_not_mentioned() {
    let text = r#"
[server]
user = "weir"
spool_dir = "/tmp"
[listen.web]
address = "unix:/run/weir.sock"
group = "weir"
backlog = 128
[site.a]
root = "/srv"
pool = "php"
[pool.php]
runtime = "command"
command = ["php-cgi"]
user = "weir"
"#;
    assert_eq!(said(text), "");
}

#[test]
fn what_is_missing_is_said_with_its_place() {
    let text = r#"[server]
user = "wier"
group = "weir"
pid_file = "/nowhere/weir.pid"
spool_dir = "/tmp"
[listen.web]
address = "0.0.0.0:80"
backlog = 100000
[listen.local]
address = "unix:/nowhere/a.sock"
owner = "wier"
[site.a]
root = "/nowhere"
pool = "php"
error_pages = { 503 = "errors/503.html" }
[[site.a.route]]
path = "/x/*"
root = "/secret"
pool = "farm"
[pool.php]
runtime = "command"
command = ["php-cgi8"]
user = "root"
[pool.farm]
runtime = "servers"
servers = ["unix:/nowhere/fpm.sock"]
queue = { maxconn = 4 }
[log]
access = "/nowhere/access.log"
"#;
    let expected = "\
weir.toml:2:8: error: user \"wier\" does not exist
    2 | user = \"wier\"
      |        ^^^^^^
hint: useradd --system --no-create-home wier

weir.toml:4:12: error: /nowhere: not there
    4 | pid_file = \"/nowhere/weir.pid\"
      |            ^^^^^^^^^^^^^^^^^^^
hint: mkdir -p /nowhere, or correct the path

weir.toml:8:11: warning: the kernel cuts the backlog of 100000 to net.core.somaxconn, 4096
    8 | backlog = 100000
      |           ^^^^^^
hint: sysctl -w net.core.somaxconn=100000 (to keep it: `net.core.somaxconn = 100000` in /etc/sysctl.d/60-weir.conf), or write backlog = 4096

weir.toml:10:11: error: /nowhere: not there
   10 | address = \"unix:/nowhere/a.sock\"
      |           ^^^^^^^^^^^^^^^^^^^^^^
hint: mkdir -p /nowhere, or correct the path

weir.toml:11:9: error: user \"wier\" does not exist
   11 | owner = \"wier\"
      |         ^^^^^^
hint: useradd --system --no-create-home wier

weir.toml:13:8: error: /nowhere: not there
   13 | root = \"/nowhere\"
      |        ^^^^^^^^^^
hint: mkdir -p /nowhere, or correct the path

weir.toml:15:15: warning: the page for 503 does not exist: /nowhere/errors/503.html
   15 | error_pages = { 503 = \"errors/503.html\" }
      |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^

weir.toml:16:1: warning: the page for 503 does not exist: /secret/errors/503.html
   16 | [[site.a.route]]
      | ^^^^^^^^^^^^^^^^

weir.toml:18:8: warning: wier cannot read /secret, so everything is answered with 403
   18 | root = \"/secret\"
      |        ^^^^^^^^^
hint: chmod o+rx /secret, or another user in [server]

weir.toml:22:11: error: program \"php-cgi8\" was not found in PATH
   22 | command = [\"php-cgi8\"]
      |           ^^^^^^^^^^^^

weir.toml:23:8: error: `user` cannot be root: the workers run code for clients
   23 | user = \"root\"
      |        ^^^^^^
hint: write user = \"www-data\", or a user of its own

weir.toml:26:11: warning: nothing is listening there yet: /nowhere/fpm.sock does not exist
   26 | servers = [\"unix:/nowhere/fpm.sock\"]
      |           ^^^^^^^^^^^^^^^^^^^^^^^^^^
hint: start the server, or correct the path

weir.toml:29:10: error: /nowhere: not there
   29 | access = \"/nowhere/access.log\"
      |          ^^^^^^^^^^^^^^^^^^^^^
hint: mkdir -p /nowhere, or correct the path
";
    assert_eq!(said(text), expected);
}

#[test]
fn what_a_pool_of_php_names_must_be_there() {
    let text = r#"[server]
spool_dir = "/tmp"
[listen.web]
address = "0.0.0.0:80"
[site.a]
root = "/srv"
pool = "php"
[pool.php]
runtime = "php"
php_ini = "/nowhere/php.ini"
access_log = "/nowhere/access.log"
"#;
    let expected = "\
weir.toml:10:11: error: /nowhere/php.ini does not exist
   10 | php_ini = \"/nowhere/php.ini\"
      |           ^^^^^^^^^^^^^^^^^^
hint: write the path of a php.ini, or of its folder

weir.toml:11:14: error: /nowhere: not there
   11 | access_log = \"/nowhere/access.log\"
      |              ^^^^^^^^^^^^^^^^^^^^^
hint: mkdir -p /nowhere, or correct the path
";
    assert_eq!(said(text), expected);
}

#[test]
fn a_user_may_be_a_number_that_is_nobodys_where_the_group_is_said() {
    let text = |user: &str| {
        format!(
            "[server]\nspool_dir = \"/tmp\"\n[listen.a]\naddress = \"unix:/tmp/a.sock\"\nowner = \"4711\"\n\
             [site.a]\nroot = \"/srv\"\npool = \"php\"\n[pool.php]\nruntime = \"php\"\n{user}\n"
        )
    };
    assert_eq!(said(&text("user = \"4711\"\ngroup = \"me\"")), "");
    let expected = "\
weir.toml:11:8: error: no user has the number 4711, so its group is not known
   11 | user = \"4711\"
      |        ^^^^^^
hint: also write group = \"NAME or number\"
";
    assert_eq!(said(&text("user = \"4711\"")), expected);
    let wrong = said(&text("user = \"4294967296\"\ngroup = \"me\""));
    assert!(wrong.contains("does not exist"), "{wrong}");
}

#[test]
fn a_root_that_workers_in_a_chroot_do_not_see_is_told_once() {
    let text = |site: &str| {
        format!(
            "[server]\nspool_dir = \"/tmp\"\n[listen.web]\naddress = \"0.0.0.0:80\"\n[site.a]\nroot = \"/srv/a/public\"\n\
             pool = \"php\"\n{site}\n[[site.a.route]]\npath = \"/x/*\"\nindex = [\"x.php\"]\n\
             [pool.php]\nruntime = \"php\"\nchroot = \"/srv/b\"\n"
        )
    };
    let told = said(&text(""));
    assert_eq!(
        told.matches("cannot see /srv/a/public").count(),
        1,
        "{told}"
    );
    assert!(
        told.contains("weir.toml:6:8: warning: the workers of [pool.php]"),
        "{told}"
    );
    assert_eq!(said(&text("script_root = \"/public\"")), "");
    assert_eq!(said(&text("").replace("/srv/b", "/srv/a")), "");
}

#[test]
fn the_script_of_an_application_must_be_a_file_that_its_user_reads() {
    let said = |worker: &str| {
        said(&format!(
            "[server]\nspool_dir = \"/tmp\"\n[listen.web]\naddress = \"0.0.0.0:80\"\n[site.a]\nroot = \"/srv\"\n\
             pool = \"php\"\nfallback = \"/index.php\"\n[pool.php]\nruntime = \"php\"\nuser = \"me\"\nworker = \"{worker}\"\n"
        ))
    };
    assert_eq!(said("/srv/worker.php"), "");
    assert!(
        said("/nowhere/worker.php")
            .contains("weir.toml:12:10: error: /nowhere/worker.php does not exist"),
    );
    assert!(said("/srv").contains("weir.toml:12:10: error: /srv is a folder"));
    let expected = "\
weir.toml:12:10: warning: the pool's user, me, cannot read /closed/worker.php: no permission for /closed/worker.php
   12 | worker = \"/closed/worker.php\"
      |          ^^^^^^^^^^^^^^^^^^^^
hint: chmod o+rX /closed/worker.php, or setfacl -m u:me:rX /closed/worker.php
";
    assert_eq!(said("/closed/worker.php"), expected);
}

#[test]
fn a_site_whose_urls_do_not_lead_to_the_application_is_told_what_does() {
    let said = |site: &str| {
        said(&format!(
            "[server]\nspool_dir = \"/tmp\"\n[listen.web]\naddress = \"0.0.0.0:80\"\n[site.a]\nroot = \"/srv\"\n\
             pool = \"php\"\n{site}\n[pool.php]\nruntime = \"php\"\nworker = \"/srv/worker.php\"\n"
        ))
    };
    let expected = "\
weir.toml:7:8: warning: [pool.php] has a `worker`, but this site has no fallback: only URLs of its script lead to the application
    7 | pool = \"php\"
      |        ^^^^^
hint: write fallback = \"/worker.php\"; URLs of files are not affected
";
    assert_eq!(said(""), expected);
    assert_eq!(said("fallback = \"/worker.php\""), "");
    let in_route = "[[site.a.route]]\npath = \"/app/*\"\nfallback = \"/worker.php\"";
    assert_eq!(said(in_route), "");
}

#[test]
fn what_may_not_be_written_is_an_error() {
    let text = r#"[server]
user = "me"
spool_dir = "/spool"
[listen.web]
address = "0.0.0.0:80"
[site.a]
root = "/srv"
[log]
access = "/locked/access.log"
error = "/logs"
"#;
    let expected = "\
weir.toml:3:13: error: me cannot create files in /spool
    3 | spool_dir = \"/spool\"
      |             ^^^^^^^^
hint: give the gateway's user write access, or use another folder

weir.toml:9:10: error: the user who runs this check cannot write /locked/access.log
    9 | access = \"/locked/access.log\"
      |          ^^^^^^^^^^^^^^^^^^^^
hint: give the user who starts weir write access there

weir.toml:10:9: error: /logs is a folder
   10 | error = \"/logs\"
      |         ^^^^^^^
";
    assert_eq!(said(text), expected);
}

#[test]
fn where_the_times_of_schedules_cannot_be_noted_is_said() {
    let text = |server: &str, schedule: &str| {
        format!(
            "[server]\nspool_dir = \"/tmp\"\n{server}[listen.web]\naddress = \"0.0.0.0:80\"\n\
             [site.a]\nroot = \"/srv\"\n[program.cron]\ncommand = [\"php-cgi\"]\nuser = \"weir\"\n{schedule}"
        )
    };
    let daily = "schedule = \"@daily\"\n";
    let usual = "\
weir.toml:10:12: warning: the user who runs this check cannot create files in /locked/weir: after a restart of weir, missed times are not made up
   10 | schedule = \"@daily\"
      |            ^^^^^^^^
hint: write state_dir = \"FOLDER\" in [server], where the user who starts weir may create files
";
    assert_eq!(said(&text("", daily)), usual);
    assert_eq!(said(&text("", "")), "", "there are no times");
    // weir makes the last folder of the path.
    for fine in ["/srv/state", "/nowhere"] {
        let server = format!("state_dir = \"{fine}\"\n");
        assert_eq!(said(&text(&server, daily)), "", "{fine}");
    }
    for (wrong, why) in [
        ("/locked", "cannot create files in /locked: "),
        ("/nowhere/state", "/nowhere/state: not there: "),
        ("/srv/file.txt", "/srv/file.txt: not there: "),
    ] {
        let found = said(&text(&format!("state_dir = \"{wrong}\"\n"), ""));
        assert!(found.contains("weir.toml:3:13: warning: "), "{found}");
        assert!(found.contains(why), "{found}");
    }
}

#[test]
fn secrets_of_calls_are_there_and_for_nobody_else() {
    let text = r#"[listen.web]
address = "127.0.0.1:80"
[site.a]
root = "/srv"
[server]
spool_dir = "/tmp"
[egress]
listen = ["127.0.0.1:8083", "unix:/nowhere/egress.sock"]
socket = "unix:/nowhere/own.sock"
owner = "wier"
token_file = "/tmp/token"
allow = ["a.example"]
ca_file = "/nowhere/ca.pem"
client_cert = "/tmp/cert.pem"
client_key = "/tmp/key.pem"
[egress.host.a]
hosts = ["a.example"]
set_headers = { X-A = "${file:/nowhere/a} ${env:KEY}", X-B = "${file:/tmp/b}${env:NONE}", X-C = "${file:/locked/c}" }
[log]
access = "/locked/access.log"
egress = "/logs"
"#;
    let expected = "\
weir.toml:8:10: error: /nowhere: not there
    8 | listen = [\"127.0.0.1:8083\", \"unix:/nowhere/egress.sock\"]
      |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
hint: mkdir -p /nowhere, or correct the path

weir.toml:9:10: error: /nowhere: not there
    9 | socket = \"unix:/nowhere/own.sock\"
      |          ^^^^^^^^^^^^^^^^^^^^^^^^
hint: mkdir -p /nowhere, or correct the path

weir.toml:10:9: error: user \"wier\" does not exist
   10 | owner = \"wier\"
      |         ^^^^^^
hint: useradd --system --no-create-home wier

weir.toml:11:14: warning: everybody can read /tmp/token
   11 | token_file = \"/tmp/token\"
      |              ^^^^^^^^^^^^
hint: chmod o-rwx /tmp/token

weir.toml:13:11: error: /nowhere/ca.pem: not there
   13 | ca_file = \"/nowhere/ca.pem\"
      |           ^^^^^^^^^^^^^^^^^
hint: correct the path, or create the file

weir.toml:15:14: warning: everybody can read /tmp/key.pem
   15 | client_key = \"/tmp/key.pem\"
      |              ^^^^^^^^^^^^^^
hint: chmod o-rwx /tmp/key.pem

weir.toml:18:17: error: /nowhere/a: not there
   18 | set_headers = { X-A = \"${file:/nowhere/a} ${env:KEY}\", X-B = \"${file:/tmp/b}${env:NONE}\", X-C = \"${file:/locked/c}\" }
      |                 ^^^
hint: correct the path, or create the file

weir.toml:18:56: error: the variable NONE is not set
   18 | set_headers = { X-A = \"${file:/nowhere/a} ${env:KEY}\", X-B = \"${file:/tmp/b}${env:NONE}\", X-C = \"${file:/locked/c}\" }
      |                                                        ^^^
hint: set it in weir's environment (systemd: Environment=, EnvironmentFile=), or use ${file:…}

weir.toml:18:56: warning: everybody can read /tmp/b
   18 | set_headers = { X-A = \"${file:/nowhere/a} ${env:KEY}\", X-B = \"${file:/tmp/b}${env:NONE}\", X-C = \"${file:/locked/c}\" }
      |                                                        ^^^
hint: chmod o-rwx /tmp/b

weir.toml:18:91: error: /locked/c: not for you
   18 | …Y}\", X-B = \"${file:/tmp/b}${env:NONE}\", X-C = \"${file:/locked/c}\" }
      |                                          ^^^
hint: give the user who starts weir read access

weir.toml:20:10: error: the user who runs this check cannot write /locked/access.log
   20 | access = \"/locked/access.log\"
      |          ^^^^^^^^^^^^^^^^^^^^
hint: give the user who starts weir write access there

weir.toml:21:10: error: /logs is a folder
   21 | egress = \"/logs\"
      |          ^^^^^^^
";
    assert_eq!(said(text), expected);
}

/// The diagnostics of both passes.
#[test]
fn a_program_that_cannot_be_started_is_said_with_its_place() {
    let text = r#"[server]
state_dir = "/srv"
spool_dir = "/tmp"
[listen.web]
address = "127.0.0.1:80"
[site.a]
root = "/srv"
[program.good]
command = ["/usr/bin/php-cgi"]
user = "weir"
schedule = "@daily"
timezone = "Europe/Berlin"
[program.bad]
command = ["phpp", "cron.php"]
user = "root"
chdir = "/nowhere"
schedule = "@daily"
timezone = "/nowhere/Berlin"
"#;
    let expected = r#"weir.toml:14:11: error: program "phpp" was not found in PATH
   14 | command = ["phpp", "cron.php"]
      |           ^^^^^^^^^^^^^^^^^^^^

weir.toml:15:8: error: `user` cannot be root: a program runs the application's code
   15 | user = "root"
      |        ^^^^^^
hint: write user = "www-data", or a user of its own

weir.toml:16:9: error: /nowhere: not there
   16 | chdir = "/nowhere"
      |         ^^^^^^^^^^
hint: mkdir -p /nowhere, or correct the path

weir.toml:18:12: error: "/nowhere/Berlin" is not a time zone of this machine
   18 | timezone = "/nowhere/Berlin"
      |            ^^^^^^^^^^^^^^^^^
hint: write a name such as "Europe/Berlin": timedatectl list-timezones; the package tzdata has them
"#;
    assert_eq!(said(text).trim(), expected.trim());
}

fn said(text: &str) -> String {
    let checked = checked(text);
    let mut all: Diagnostics = checked.warnings.clone();
    all.extend(check_environment(&checked, &Made));
    all.to_string()
}

fn checked(text: &str) -> Checked {
    let environment = Environment {
        folder: "/etc/weir".into(),
        cores: 2,
        memory: 8 << 30,
        open_files: 1 << 20,
    };
    read("weir.toml", text, &environment).unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// A machine where only a few things exist.
struct Made;

impl Machine for Made {
    fn has_user(&self, name: &str) -> bool {
        ["root", "weir", "me"].contains(&name)
    }

    fn has_group(&self, name: &str) -> bool {
        self.has_user(name)
    }

    fn php(&self, version: Option<&str>) -> Result<(), (String, String)> {
        match version {
            None | Some("8.2") => Ok(()),
            Some(version) => Err((format!("no PHP {version}"), "write 8.2".into())),
        }
    }

    fn folder(&self, path: &Path) -> Result<(), Obstacle> {
        match path.starts_with("/nowhere") || path.extension().is_some() {
            true => Err(Obstacle::Absent(format!("{}: not there", path.display()))),
            false => Ok(()),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        !path.starts_with("/nowhere") && !path.starts_with("/secret")
    }

    fn usual_state_dir(&self) -> PathBuf {
        "/locked/weir".into()
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        name.ends_with("php-cgi").then(|| name.into())
    }

    fn barred(&self, path: &Path, _user: &str) -> Option<PathBuf> {
        let barred = path.starts_with("/secret") || path.starts_with("/closed");
        barred.then(|| path.to_owned())
    }

    fn may_write(&self, path: &Path, user: Option<&str>) -> bool {
        !path.starts_with("/locked") && user != Some("me")
    }

    fn readable(&self, path: &Path) -> Result<(), Obstacle> {
        match (self.exists(path), path.starts_with("/locked")) {
            (false, _) => Err(Obstacle::Absent(format!("{}: not there", path.display()))),
            (true, true) => Err(Obstacle::Barred(format!("{}: not for you", path.display()))),
            (true, false) => Ok(()),
        }
    }

    fn open_to_all(&self, path: &Path) -> bool {
        path.starts_with("/tmp")
    }

    fn has_variable(&self, name: &str) -> bool {
        name == "KEY"
    }

    fn is_root(&self) -> bool {
        true
    }

    fn usual_user(&self) -> Option<String> {
        Some("weir".into())
    }

    fn somaxconn(&self) -> Option<u32> {
        Some(4096)
    }
}
