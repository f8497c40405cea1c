//! The PHP program that a pool names, and programs that cannot be used.

use std::{path::Path, process::Command};

use super::*;

/// A PHP program of Debian's, beside php-fpm.
fn installed(name: &str) -> PathBuf {
    let fpm = weir_test::process::newest("/usr/sbin", "php-fpm");
    let version = fpm.to_string_lossy().replace("/usr/sbin/php-fpm", "");
    PathBuf::from(format!("{name}{version}"))
}

/// Compiles a program that looks like PHP: it has PHP's texts, and nothing else of it.
fn looks_like_php(site: &Setup, name: &str, flags: &[&str]) -> PathBuf {
    let path = folder(site, "hosts").join(name);
    let source = path.with_extension("c");
    fs::write(
        &source,
        "__attribute__((used)) const char build[] = \"API20220829,NTS\";\n\
         __attribute__((used)) const char powered[] = \"X-Powered-By: PHP/8.2.0\";\n\
         int main(void) { return 0; }\n",
    )
    .unwrap();
    let status = Command::new("cc")
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&path)
        .status();
    assert!(status.unwrap().success());
    path
}

#[test]
fn a_pool_runs_in_the_program_that_it_names() {
    for program in [
        installed("/usr/sbin/php-fpm"),
        installed("/usr/bin/php-cgi"),
        installed("/usr/bin/php"),
    ] {
        let site = php_site(&format!(
            "max_children = 1\nphp = \"{}\"",
            program.display()
        ));
        let site = site.file(
            "sapi.php",
            "<?php echo PHP_SAPI, ' ', function_exists('pcntl_fork') ? 'forks' : 'does not fork';",
        );
        let weir = site.start();
        let answer = weir.get_until("/sapi.php", |answer| answer.status == 200);
        assert_eq!(answer.text(), "fpm-fcgi does not fork", "{program:?}");
        assert_eq!(program_of(&weir), program.canonicalize().unwrap());
    }
}

#[test]
fn a_version_gets_php_fpm() {
    let weir = php_site("max_children = 1").start();
    assert_eq!(program_of(&weir), installed("/usr/sbin/php-fpm"));
}

/// The program that the worker runs in, as it says itself: an ordinary user may not look.
fn program_of(weir: &Weir) -> PathBuf {
    let script = weir.root().join("program.php");
    old_script(&script, "<?php echo readlink('/proc/self/exe');");
    let answer = weir.get_until("/program.php", |answer| answer.status == 200);
    answer.text().into()
}

#[test]
fn programs_that_weir_php_cannot_be_loaded_into_are_refused_with_the_reason() {
    let site = php_site("");
    let copy = folder(&site, "hosts").join("php-fpm8.2");
    fs::copy(installed("/usr/sbin/php-fpm"), &copy).unwrap();
    mode(&copy, 0o4755);
    let text = folder(&site, "hosts").join("text");
    fs::write(&text, "#!/bin/sh\n").unwrap();
    mode(&text, 0o755);
    for (program, why) in [
        (
            looks_like_php(&site, "static", &["-static"]),
            "it is linked statically",
        ),
        (looks_like_php(&site, "bare", &[]), "it does not export "),
        (copy, "(mode 4755), so the loader ignores LD_PRELOAD"),
        (text, "is no PHP program"),
        (PathBuf::from("/no/such/php-fpm"), "No such file"),
        (PathBuf::from("/bin/sh"), "is no PHP program"),
    ] {
        let site = php_site(&format!("php = \"{}\"", program.display()));
        let (status, said) = site.start_in_vain();
        let words: Vec<&str> = said.split_whitespace().collect();
        let said = words.join(" ");
        assert_eq!(status.code(), Some(78), "{said}");
        assert!(said.contains(why), "{why}: {said}");
        assert!(said.contains(&program.display().to_string()), "{said}");
    }
}

/// weir, with an object that only root can read.
#[test]
fn a_program_that_runs_without_the_object_is_a_failed_start_with_one_reason() {
    if !goes_on_as_root() {
        return;
    }
    let site = php_site("max_children = 1");
    let bin = folder(&site, "bin");
    let copy = |from: &Path, name: &str| {
        let to = bin.join(name);
        // Not fs::copy: a program cannot be started while a child of another test has it open for writing.
        let status = Command::new("cp").arg(from).arg(&to).status();
        assert!(status.unwrap().success());
        to
    };
    let weir = copy(Path::new(program()), "weir");
    let object = php_object();
    let object = copy(&object, object.file_name().unwrap().to_str().unwrap());
    mode(&object, 0o600);
    let mut running = site.clone().program(&weir).start();
    let said = running.log_line("PHP cannot be started: ");
    running.kill();
    let fpm = installed("/usr/sbin/php-fpm");
    let reason = format!(
        "{} has run without weir-php, and has ended: {} was not loaded",
        fpm.display(),
        object.display()
    );
    assert!(said.contains(&reason), "{said}");
    let doctor = Command::new(&weir)
        .arg("doctor")
        .arg("-c")
        .arg(site.path("weir.toml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    let said = words.join(" ");
    assert!(
        said.contains(&format!("cannot read {}", object.display())),
        "{said}"
    );
}

#[test]
fn without_proc_nobody_is_told_to_install_php() {
    if !goes_on_as_root() {
        return;
    }
    let hide = "mount -t tmpfs none /proc && exec \"$@\"";
    let under = ["unshare", "-m", "sh", "-c", hide, "sh"];
    for site in [php_site("max_children = 1"), cgi_site()] {
        let (status, said) = site.under(&under).start_in_vain();
        assert_eq!(status.code(), Some(78), "{said}");
        let words: Vec<&str> = said.split_whitespace().collect();
        let said = words.join(" ");
        assert!(said.contains("/proc is not there (No such file"), "{said}");
        assert!(said.contains("mount -t proc proc /proc"), "{said}");
        assert!(!said.contains("install PHP"), "{said}");
    }
}
