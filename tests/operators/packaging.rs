//! What packages are made of, as far as that can be tried without installing one: `setup/packages.sh` installs them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use weir_test::Setup;

#[test]
fn shellcheck_finds_nothing_in_the_scripts_that_are_shipped() {
    let scripts = [
        "debian/weir.postinst",
        "debian/weir.postrm",
        "debian/weir.prerm",
        "packaging/install.sh",
        "packaging/service",
        "packaging/systemd/notify-reload",
    ];
    let output = Command::new("shellcheck")
        .current_dir(project())
        .args(scripts)
        .output()
        .expect("shellcheck; setup/install.sh test installs it");
    assert!(output.status.success(), "{}", text(&output.stdout));
}

#[test]
fn the_package_has_the_version_of_the_program() {
    let changelog = read("debian/changelog");
    let version = concat!("weir (", env!("CARGO_PKG_VERSION"), "-");
    assert!(changelog.starts_with(version), "{changelog}");
}

#[test]
fn a_later_systemd_reloads_by_a_signal_and_checks_the_file() {
    let setup = Setup::new();
    let unit = setup.path("weir.service");
    fs::write(&unit, read("packaging/systemd/weir.service")).expect("a unit");
    let output = Command::new(project().join("packaging/systemd/notify-reload"))
        .arg(&unit)
        .output()
        .expect("a script");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let unit = fs::read_to_string(&unit).expect("a unit");
    let has = |line: &str| unit.lines().any(|one| one == line);
    assert!(has("Type=notify-reload"), "{unit}");
    assert!(
        has("ExecReload=/usr/bin/weir check -c /etc/weir/weir.toml"),
        "{unit}"
    );
}

fn read(file: &str) -> String {
    fs::read_to_string(project().join(file)).expect(file)
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}
