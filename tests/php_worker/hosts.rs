//! The PHP program that weir-php is loaded into: what weir-php leaves behind in it, and what it refuses.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use super::support::*;

/// Another allocator, as an operator may preload it.
fn jemalloc() -> String {
    let output = Command::new("ldconfig").arg("-p").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("libjemalloc.so"));
    let path = line.and_then(|line| line.split(" => ").nth(1));
    path.expect("libjemalloc is installed").to_owned()
}

/// php-fpm with weir-php's object, whichever host is tested.
fn php_fpm(object: &Path, before: &str) -> Command {
    command(&preloaded(&super::fpm::newest_fpm(), object, before))
}

#[test]
fn programs_that_a_script_starts_get_the_operator_s_preload_and_not_weir_s_object() {
    let site = Scripts::new();
    site.script(
        "a.php",
        "<?php echo json_encode([
            getenv('LD_PRELOAD'), getenv('WEIR_PHP_PRELOAD'),
            trim(shell_exec('env | grep -E \"^LD_PRELOAD|WEIR\"') ?? ''),
            str_contains(shell_exec('cat /proc/self/maps'), 'jemalloc'),
            str_contains(file_get_contents('/proc/self/maps'), 'jemalloc'),
            trim(str_replace(chr(0), ' ', file_get_contents('/proc/self/cmdline'))),
            preg_replace('~[0-9.]+~', 'N', trim(file_get_contents('/proc/self/comm'))),
        ], JSON_UNESCAPED_SLASHES);",
    );
    let config = site.config().with("dumpable", "1");
    let jemalloc = jemalloc();
    for (before, variable, is_there) in [
        ("", "false,false,\"\"".to_owned(), false),
        (
            jemalloc.as_str(),
            format!("\"{jemalloc}\",false,\"LD_PRELOAD={jemalloc}\""),
            true,
        ),
    ] {
        let master = Master::launch_by(php_fpm(&object(), before), &config, &[]);
        assert!(matches!(master.told(), Told::Ready(_)));
        let answer = master.worker().get(&site, "/a.php");
        let program = super::fpm::newest_fpm();
        assert_eq!(
            answer.body(),
            format!(
                "[{variable},{is_there},{is_there},\"{}\",\"weir-phpN\"]",
                program.display()
            )
        );
    }
}

#[test]
fn without_the_manager_s_variable_php_is_what_it_is_without_the_object() {
    let own = |preload: bool| {
        let mut command = Command::new(super::fpm::newest_fpm());
        command.args(["-n", "-i"]).env_remove("LD_PRELOAD");
        if preload {
            command.env("LD_PRELOAD", object());
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter(|line| {
            // What changes with each start.
            !["LD_PRELOAD", "REQUEST_TIME", "$_ENV['_']", "Start time"]
                .iter()
                .any(|word| line.contains(word))
        });
        (output.status.code(), lines.collect::<Vec<_>>().join("\n"))
    };
    assert_eq!(own(true), own(false));
    assert!(own(true).1.contains("php-fpm => active"));
}

#[test]
fn php_programs_refuse_the_manager_s_argument_where_the_object_is_not_loaded() {
    for (kind, code) in [("fpm", 64), ("cgi", 1), ("cli", 1)] {
        let missing = Path::new("/no/such/object.so");
        let site = Scripts::new();
        let mut command = Command::new("env");
        command.args(preloaded(&installed(kind), missing, ""));
        let mut master = Master::launch_by(command, &site.config(), &[]);
        assert_eq!(master.wait(), Some(code), "{kind}: {}", master.output());
        master.said("/no/such/object.so");
    }
}

#[test]
fn a_program_with_the_rights_of_its_owner_does_not_load_the_object_and_serves_nothing() {
    if !weir_test::goes_on_as_root() {
        return;
    }
    let site = Scripts::new();
    let copy = site.beside().join("php-fpm");
    fs::set_permissions(site.beside(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(super::fpm::newest_fpm(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut setpriv = Command::new("setpriv");
    setpriv
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(preloaded(&copy, &object(), ""));
    let mut master = Master::launch_by(setpriv, &site.config(), &[]);
    assert_eq!(master.wait(), Some(64), "{}", master.output());
}

#[test]
fn an_object_for_another_php_is_refused_by_name() {
    let site = Scripts::new();
    let other = site.beside().join("weir-php-other.so");
    let mut bytes = fs::read(object()).unwrap();
    let name = object().file_name().unwrap().to_string_lossy().into_owned();
    let api = name.strip_prefix("weir-php-API").unwrap();
    let api = api.strip_suffix("-NTS.so").unwrap();
    let build = format!("API{api},NTS").into_bytes();
    let places: Vec<usize> = (0..bytes.len() - build.len())
        .filter(|at| bytes[*at..].starts_with(&build))
        .collect();
    assert!(!places.is_empty(), "the object names its build");
    for at in places {
        bytes[at..at + build.len()].copy_from_slice(b"API20990101,NTS");
    }
    fs::write(&other, bytes).unwrap();
    let master = Master::launch_by(php_fpm(&other, ""), &site.config(), &[]);
    let told = master.told();
    let says = |text: &str| matches!(&told, Told::Failed(why) if why.contains(text));
    assert!(
        says("(API20990101,NTS), but the PHP in this process"),
        "{told:?}"
    );
    assert!(says(&other.display().to_string()), "{told:?}");
}

/// `-pthread` defines this, and PHP's structures are larger then than in PHP itself.
#[test]
fn an_object_whose_structures_have_other_sizes_is_refused() {
    let site = Scripts::new();
    let built = Command::new("make")
        .args(["-s", "-C", concat!(env!("CARGO_MANIFEST_DIR"), "/php")])
        .arg(format!("OUT={}", site.beside().display()))
        .arg("CFLAGS=-D_REENTRANT -O0")
        .status()
        .unwrap();
    assert!(built.success());
    let other = site.beside().join(object().file_name().unwrap());
    let master = Master::launch_by(php_fpm(&other, ""), &site.config(), &[]);
    let told = master.told();
    let sizes = "basic_globals has ";
    assert!(
        matches!(&told, Told::Failed(why) if why.contains(sizes)),
        "{told:?}"
    );
}
