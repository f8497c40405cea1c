//! The users of workers, their rights, and what they cannot reach.

use std::{fs, os::unix::fs::chown, process::Command};

use super::*;

#[test]
fn a_worker_has_its_limits_priority_environment_and_folder() {
    let mut priority = "";
    if is_root() {
        priority = "process_priority = 5\n";
    }
    let site = php_site(&format!(
        "max_children = 1\nrlimit_files = 123\nrlimit_core = 4096\n{priority}chdir = \"/usr\"\n\
         env = {{ ONLY = \"this\", HOME = \"/somewhere\" }}"
    ));
    let site = site.file("limits.php", "<?php echo json_encode([posix_getrlimit()['soft openfiles'], posix_getrlimit()['soft core'], \
         (int)explode(' ', file_get_contents('/proc/self/stat'))[18], getenv('ONLY'), getenv('HOME'), \
         getenv('PATH'), getenv('USER')], JSON_UNESCAPED_SLASHES);");
    let weir = site.start();
    let answer = weir.get("/limits.php");
    let nice = if is_root() { 5 } else { own_nice_value() };
    let user = web_user();
    let expected = format!(r#"[123,4096,{nice},"this","/somewhere",false,"{user}"]"#);
    assert_eq!(answer.text(), expected);
}

/// The nice value of the test process itself.
fn own_nice_value() -> i64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(16).unwrap().parse().unwrap()
}

#[test]
fn weirs_own_environment_is_passed_on_where_it_is_asked_for() {
    let site = php_site("max_children = 1\nclear_env = false\nenv = { OWN = \"added\" }");
    let site = site.file(
        "env.php",
        "<?php echo getenv('PASSED'), ' ', getenv('OWN');",
    );
    let weir = site.under(&["env", "PASSED=on"]).start();
    assert_eq!(weir.get("/env.php").text(), "on added");
}

#[test]
fn two_pools_of_two_users_cannot_look_into_one_another() {
    if !goes_on_as_root() {
        return;
    }
    let site = php_site("pm = \"static\"\nmax_children = 1\nuser = \"www-data\"");
    let secret = site.path("secret.txt");
    fs::write(&secret, "secret").unwrap();
    mode(&secret, 0o600);
    chown(&secret, Some(id("www-data")), None).unwrap();
    let root = site.root();
    let more = format!(
        "[site.other]\nhosts = [\"other\"]\nroot = \"{}\"\npool = \"other\"\n\
         [pool.other]\nruntime = \"php\"\nmax_children = 1\nuser = \"nobody\"",
        root.display()
    );
    fs::write(
        root.join("look.php"),
        "<?php error_reporting(0); $p = (int)$_GET['pid']; \
         echo json_encode([file_get_contents($_GET['file']), fopen(\"/proc/$p/mem\", 'r'), scandir(\"/proc/$p/fd\"), \
         file_get_contents(\"/proc/$p/environ\"), posix_kill($p, 0), posix_getuid()]);",
    )
    .unwrap();
    let weir = site.site("hosts = [\"one\"]").more(&more).start();
    let ask = |host: &str, path: &str| weir.request("GET", path, &[("Host", host)], b"");
    let who = ask("one", "/who.php");
    for pid in [
        number(&who, "pid"),
        number(&who, "master"),
        weir.gateway().pid,
        weir.pid(),
    ] {
        let look = format!("/look.php?pid={pid}&file={}", secret.display());
        let seen = ask("other", &look).text();
        assert_eq!(
            seen,
            format!("[false,false,false,false,false,{}]", id("nobody")),
            "{pid}"
        );
    }
}

#[test]
fn a_worker_of_the_same_user_cannot_look_into_another_one_or_its_master() {
    let site = php_site("pm = \"static\"\nmax_children = 2");
    let site = site.file("look.php", "<?php error_reporting(0); $s = file_get_contents('/proc/self/status'); \
         preg_match('/PPid:\\s+(\\d+)/', $s, $m); $seen = 0; \
         foreach (explode(' ', trim(file_get_contents(\"/proc/$m[1]/task/$m[1]/children\")) . \" $m[1]\") as $p) \
         if ($p != getmypid() && (fopen(\"/proc/$p/mem\", 'r+') || scandir(\"/proc/$p/fd\"))) $seen++; \
         echo 'seen=', $seen, ' ';");
    let weir = site.start();
    let answer = weir.get("/look.php");
    assert_eq!(number(&answer, "seen"), 0, "{answer:?}");
}

#[test]
fn workers_in_a_chroot_find_their_scripts_and_nothing_outside() {
    if !goes_on_as_root() {
        return;
    }
    let site = php_site("");
    let jail = folder(&site, "jail");
    let public = folder(&site, "jail/public");
    folder(&site, "jail/tmp");
    fs::write(
        public.join("where.php"),
        "<?php echo json_encode([__FILE__, getcwd(), is_dir('/etc'), scandir('/'), $_SERVER['SCRIPT_FILENAME'], \
         $_SERVER['DOCUMENT_ROOT']], JSON_UNESCAPED_SLASHES);",
    )
    .unwrap();
    let pool = format!(
        "max_children = 1\nchroot = \"{}\"\nchdir = \"/tmp\"",
        jail.display()
    );
    let root = format!("root = \"{}\"", public.display());
    let weir = site.pool(&pool).site(&root).start();
    let answer = weir.get("/where.php");
    assert_eq!(
        answer.text(),
        r#"["/public/where.php","/public",false,[".","..","public","tmp"],"/public/where.php","/public"]"#,
        "{answer:?}"
    );
    // A process that was started to look at PHP may end meanwhile.
    let status = weir.children().into_iter().filter_map(|pid| {
        let root = fs::read_link(format!("/proc/{pid}/root")).ok()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some((root, status))
    });
    let jailed: Vec<_> = status.filter(|(root, _)| *root == jail).collect();
    assert_eq!(jailed.len(), 1, "the master is inside");
    // The master has dropped its capabilities there.
    assert!(
        jailed[0].1.contains("CapPrm:\t0000000000000000"),
        "{}",
        jailed[0].1
    );
    assert!(
        jailed[0].1.contains("CapAmb:\t0000000000000000"),
        "{}",
        jailed[0].1
    );
}

#[test]
fn a_root_outside_of_its_workers_chroot_is_told_at_the_start() {
    if !goes_on_as_root() {
        return;
    }
    let site = php_site("");
    let jail = folder(&site, "jail");
    let pool = format!("max_children = 1\nchroot = \"{}\"", jail.display());
    let weir = site.pool(&pool).start();
    let line = weir.log_line("cannot see it");
    assert!(
        line.contains("[site.main] root") && line.contains("[pool.app]"),
        "{line}"
    );
}

#[test]
fn a_program_in_a_chroot_is_found_and_run_there() {
    if !goes_on_as_root() {
        return;
    }
    let site = cgi_site().pool("max_children = 1");
    // A program that needs no other files: linked statically.
    let jail = folder(&site, "jail");
    let source = site.path("end.c");
    fs::write(
        &source,
        "#include <unistd.h>\n#include <stdio.h>\nint main(void) { char at[99]; dprintf(2, \"is in %s as %d\\n\", \
         getcwd(at, 99), getuid()); sleep(30); }",
    )
    .unwrap();
    let compiled = Command::new("cc")
        .args(["-static", "-o"])
        .arg(jail.join("end"))
        .arg(&source)
        .status()
        .unwrap();
    assert!(compiled.success());
    let chroot = format!("chroot = \"{}\"", jail.display());
    let weir = site.pool(&pool_command(&["/end"])).pool(&chroot).start();
    let line = weir.log_line("said: is in / as");
    assert!(line.contains(&format!("as {}", id("www-data"))), "{line}");
}

#[test]
fn a_version_of_php_that_is_not_there_is_said_with_those_that_are() {
    let site = php_site("php = \"5.3\"");
    let (status, said) = site.start_in_vain();
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(
        said.contains("PHP 5.3 is configured, but only these are installed: "),
        "{said}"
    );
    assert!(said.contains("php5.3-fpm"), "{said}");
    // A weir that was copied elsewhere has no PHP beside it.
    let copy = site.path("weir");
    fs::copy(program(), &copy).unwrap();
    let site = php_site("");
    let (status, said) = site.program(&copy).start_in_vain();
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(
        said.contains("weir-php (weir-php-API…-NTS.so) was not found in"),
        "{said}"
    );
}
