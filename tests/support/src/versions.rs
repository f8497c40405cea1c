//! weir and weir-php of another version than the one that was built: copies whose text of the version is another one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Setup;
use crate::weir::{mode, program};

/// The version of the weir under test.
pub const OWN: &str = env!("CARGO_PKG_VERSION");

/// Another version.
pub const NEXT: &str = "0.1.1-next";

/// Puts weir and weir-php in a folder of the test, from where [`replace`] can replace them while they run, and makes
/// the test start weir there.
pub fn installed(setup: Setup) -> Setup {
    let folder = setup.path("bin");
    fs::create_dir(&folder).expect("mkdir");
    mode(&folder, 0o755);
    replace(&folder, OWN);
    setup.program(&folder.join("weir"))
}

/// Replaces both programs by those of a version, as a package does: other files take their names.
pub fn replace(folder: &Path, version: &str) {
    put(
        Path::new(program()),
        &folder.join("weir"),
        "weir is version ",
        version,
    );
    replace_php(folder, version);
}

/// Replaces only weir-php.
pub fn replace_php(folder: &Path, version: &str) {
    let php = weir_php();
    let name = php.file_name().expect("a program");
    put(
        &php,
        &folder.join(name),
        "weir-php was built as version ",
        version,
    );
}

/// Puts another program in weir's place.
pub fn break_weir(folder: &Path, content: &str) {
    let new = folder.join("weir.new");
    fs::write(&new, content).expect("a program");
    mode(&new, 0o755);
    fs::rename(new, folder.join("weir")).expect("rename");
}

/// The object that is loaded into PHP programs, from the build or beside the tested weir.
fn weir_php() -> PathBuf {
    let own = Path::new(program()).parent().expect("a folder");
    let built = own.parent().expect("a target folder").join("php");
    let files = [own, &built]
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let files = files.flatten().flatten().map(|file| file.path());
    let is_php = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("weir-php-API") && name.ends_with(".so")
    };
    let newest = files.filter(is_php).max();
    newest.expect("`make php` builds it")
}

fn put(from: &Path, to: &Path, words: &str, version: &str) {
    let new = to.with_extension("new");
    // Other programs copy and change the file: it cannot be started while a child of another test has it open for writing.
    let script = r#"
        set -e
        if [ "$4" = "$5" ] && ln -f "$1" "$2.link" 2>/dev/null; then
            mv "$2.link" "$2"
        else
            cp "$1" "$2"
            at=$(LC_ALL=C grep -abFo "$3$4" "$1" | head -n 1 | cut -d: -f1)
            printf '%s%s\n' "$3" "$5" | dd of="$2" bs=1 seek="$at" conv=notrunc status=none
        fi
        mv "$2" "$6""#;
    let status = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([from, &new])
        .args([words, OWN, version])
        .arg(to)
        .status()
        .expect("sh");
    assert!(status.success(), "{} of version {version}", from.display());
}
