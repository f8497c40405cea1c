//! What masters, programs and scripts have of weir's environment, and who can read it.

use std::{
    os::unix::{net::UnixDatagram, process::CommandExt},
    process::Command,
};

use super::*;

/// An object for LD_AUDIT and LD_PRELOAD. The loader calls la_version() before anything else of a program runs, and waits there
/// in masters as long as the file HOLD exists. Its constructor changes the environment, as agents do.
const AGENT: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

unsigned la_version(unsigned version)
{
    char line[256] = "";
    int file = open("/proc/self/cmdline", O_RDONLY);
    long length = read(file, line, sizeof line);
    close(file);
    while (memmem(line, length, "--weir-php", 10) && access(HOLD, F_OK) == 0)
        usleep(10000);
    return version;
}

__attribute__((constructor)) static void start(void)
{
    setenv("AGENT", "is here", 1);
    setenv("PASSED", getenv("PASSED") ? "twice" : "by the agent", 1);
    static char variable[] = "AGENT_MODE=on";
    putenv(variable);
    setenv("LD_LIBRARY_PATH", "/nowhere", 1);
    unsetenv("LANG");
}
"#;

/// Prints the variables that it is asked for; for `?memory`, how often the process's memory has a text, which is not in
/// the script itself.
const LOOK: &str = r#"<?php
if ($_SERVER['QUERY_STRING'] === 'memory') {
    $found = 0;
    $memory = fopen('/proc/self/mem', 'r');
    foreach (file('/proc/self/maps') as $line) {
        if (!preg_match('~^(\w+)-(\w+) rw~', $line, $m)) continue;
        for ($at = hexdec($m[1]); $at < hexdec($m[2]); $at += 65536) {
            if (fseek($memory, $at) === 0) $found += preg_match('~n=a-t[o]ken-for-d[n]s~', (string)@fread($memory, 65536));
        }
    }
    exit(json_encode($found));
}
$names = ['PASSED', 'AGENT', 'AGENT_MODE', 'token', 'KEY', 'NOTIFY_SOCKET', 'WATCHDOG_USEC', 'LISTEN_FDS', 'OWN'];
$all = array_map('getenv', $names);
$all[] = ini_get('user_agent');
$all[] = @file_get_contents('PRELOADED') ?: '';
echo json_encode(array_map(fn($one) => $one === false ? 0 : $one, $all));
"#;

/// What a process of this user reads there; empty: nothing.
fn read_as(user: &str, path: &str) -> String {
    let mut command = Command::new("cat");
    let output = command.arg(path).uid(id(user)).gid(id(user)).output();
    String::from_utf8_lossy(&output.unwrap().stdout).replace('\0', "\n")
}

fn compiled(site: &Setup, hold: &Path) -> PathBuf {
    let bin = folder(site, "agent");
    let (source, object) = (bin.join("agent.c"), bin.join("agent.so"));
    fs::write(&source, AGENT).unwrap();
    let hold = format!("-DHOLD=\"{}\"", hold.display());
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", &hold, "-o"]);
    let status = command.arg(&object).arg(&source).status();
    assert!(status.unwrap().success());
    object
}

/// Three pools: of PHP, with and without weir's environment, and of a program with it. PHP preloads a script of the pool's user.
fn three_pools(site: Setup) -> Setup {
    let root = site.root();
    let (preload, preloaded) = (root.join("preload.php"), root.join("preloaded.txt"));
    let ini = folder(&site, "ini").join("php.ini");
    let text = format!(
        "user_agent = ${{PASSED}}\nopcache.enable = 1\nopcache.preload = {}\n",
        preload.display()
    );
    fs::write(ini, text).unwrap();
    let shown = preloaded.display().to_string();
    old_script(
        &preload,
        &format!(
            "<?php file_put_contents('{shown}', json_encode([getenv('token'), getenv('OWN')]));"
        ),
    );
    let site = site.file("look.php", LOOK.replace("PRELOADED", &shown));
    let pool = |name: &str, lines: &str| {
        format!(
            "[site.{name}]\nhosts = [\"{name}\"]\nroot = \"{}\"\npool = \"{name}\"\n\
             [pool.{name}]\nmax_children = 1\nenv = {{ OWN = \"own\" }}\n{lines}\n",
            root.display()
        )
    };
    let ini = format!("php_ini = \"{}\"", site.path("ini").display());
    let more = [
        pool("passes", "runtime = \"php\"\nclear_env = false\n"),
        pool(
            "program",
            "runtime = \"command\"\ncommand = [\"php-cgi\"]\nclear_env = false",
        ),
        format!(
            "[egress]\nlisten = [\"unix:{}\"]\nsocket = \"off\"\nallow = [\"https://api.test\"]\n\
             set_headers = {{ X-Key = \"${{env:KEY}}\" }}\n",
            site.path("egress.sock").display()
        ),
    ];
    site.pool(&format!(
        "{ini}\nprocess_dumpable = true\nenv = {{ OWN = \"own\" }}"
    ))
    .site("hosts = [\"clears\"]")
    .more(&more.concat())
}

#[test]
fn nobody_reads_weirs_environment_in_a_master_and_agents_may_change_it() {
    if !goes_on_as_root() {
        return;
    }
    let site = three_pools(php_site("pm = \"static\"\nmax_children = 1"));
    let hold = site.path("hold");
    fs::write(&hold, "").unwrap();
    let agent = compiled(&site, &hold);
    let notify = site.path("notify");
    let _told = UnixDatagram::bind(&notify).unwrap();
    let set = |name: &str, value: &dyn std::fmt::Display| format!("{name}={value}");
    let variables = [
        set("LD_AUDIT", &agent.display()),
        set("LD_PRELOAD", &agent.display()),
        set("PASSED", &"on"),
        set("token", &"a-token-for-dns"),
        set("KEY", &"a-key"),
        set("NOTIFY_SOCKET", &notify.display()),
        set("WATCHDOG_USEC", &"600000000"),
    ];
    let words: Vec<&str> = std::iter::once("env")
        .chain(variables.iter().map(String::as_str))
        .collect();
    let weir = site.under(&words).start();
    let mut master = 0;
    wait_until("a master waits in the loader", || {
        let is_one = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline"));
            line.is_ok_and(|line| line.contains("--weir-php"))
        };
        master = offspring(weir.pid()).into_iter().find(is_one).unwrap_or(0);
        master != 0
    });
    let [environ, memory] = ["environ", "mem"].map(|name| format!("/proc/{master}/{name}"));
    let seen = read_as("root", &environ);
    assert!(seen.contains("LD_PRELOAD="), "{seen}");
    for hidden in ["a-token-for-dns", "a-key", "NOTIFY", "WATCHDOG", "PASSED"] {
        assert!(!seen.contains(hidden), "{hidden}: {seen}");
    }
    let user = &web_user();
    assert_eq!(read_as(user, &environ), "");
    let opens = |path: &str| {
        let mut command = Command::new("head");
        let command = command.args(["-c0", path]).uid(id(user)).gid(id(user));
        command.output().unwrap().status.success()
    };
    assert!(!opens(&memory) && opens("/proc/self/mem"));
    fs::remove_file(&hold).unwrap();

    let ask = |host: &str, path: &str| {
        let mut answer = String::new();
        wait_until("the pool answers", || {
            let got = weir.request("GET", path, &[("Host", host)], b"");
            answer = got.text();
            got.status == 200
        });
        answer
    };
    let preloaded = r#""[false,\"own\"]""#;
    assert_eq!(
        ask("clears", "/look.php"),
        format!(r#"[0,0,0,0,0,0,0,0,"own","by the agent",{preloaded}]"#)
    );
    // Variables that the agent sets in a master count, as in PHP-FPM.
    assert_eq!(
        ask("passes", "/look.php"),
        format!(
            r#"["by the agent","is here","on","a-token-for-dns",0,0,0,0,"own","",{preloaded}]"#
        )
    );
    assert_eq!(ask("clears", "/look.php?memory"), "0");
    assert_eq!(
        ask("program", "/look.php"),
        format!(r#"["twice","is here","on","a-token-for-dns",0,0,0,0,"own","",{preloaded}]"#)
    );
}
