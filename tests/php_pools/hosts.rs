//! What the system enforces for the PHP program that weir-php is loaded into.

use std::{fs, process::Command};

use weir_test::{Setup, goes_on_as_root, php};

use super::fixed;

/// A weir that finds this list of AppArmor profiles in place of the kernel's.
fn with_profiles(setup: Setup, profiles: &str) -> Setup {
    let list = setup.folder().join("profiles");
    fs::write(&list, profiles).unwrap();
    let script = format!(
        "mount -t tmpfs none /sys/kernel/security && mkdir /sys/kernel/security/apparmor && \
         cp {} /sys/kernel/security/apparmor/profiles && exec \"$@\"",
        list.display()
    );
    setup.under(&["unshare", "--mount", "sh", "-c", &script, "sh"])
}

#[test]
fn an_apparmor_profile_of_php_is_said_at_the_start_where_it_is_enforced() {
    if !goes_on_as_root() {
        return;
    }
    let enforced = "weir (enforce)\nphp-fpm (enforce)\n";
    let weir = with_profiles(fixed(1, ""), enforced).start();
    weir.log_line("is loaded, and the AppArmor profile php-fpm says what it may do");
    let complaining = "php-fpm (complain)\n";
    let weir = with_profiles(fixed(1, ""), complaining).start();
    weir.log_line("is loaded");
    assert!(!weir.stderr().contains("AppArmor"), "{}", weir.stderr());
}

/// The loader would ignore LD_PRELOAD, and PHP-FPM would run in the place of weir-php.
#[test]
fn a_php_with_capabilities_of_its_file_is_refused_before_the_start() {
    if !goes_on_as_root() {
        return;
    }
    let setup = fixed(1, "");
    let copy = setup.folder().join("php-fpm");
    fs::copy(php::fpm(), &copy).unwrap();
    let setcap = |what: &str| {
        let done = Command::new("setcap").arg(what).arg(&copy).status();
        assert!(done.expect("setcap").success());
    };
    setcap("cap_net_bind_service+ep");
    let line = format!("php = \"{}\"\n", copy.display());
    let setup = fixed(1, &line);
    let (status, said) = setup.start_in_vain();
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains("has file capabilities (getcap)"), "{said}");
    assert!(said.contains(&copy.display().to_string()), "{said}");
    // Without these variables it is the same program.
    setcap("-r");
    super::pid(&setup.start());
}
