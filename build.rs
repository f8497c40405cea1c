//! Which commit the program is built from, for `weir --version`: WEIR_COMMIT where it is set, else what git says of this
//! folder in a release build, else nothing, as from a tarball.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=WEIR_COMMIT");
    let commit = match env::var("WEIR_COMMIT") {
        Ok(commit) => commit,
        // Other builds would be made anew after each commit.
        Err(_) if env::var("PROFILE").as_deref() == Ok("release") => of_git().unwrap_or_default(),
        Err(_) => String::new(),
    };
    let commit: String = (commit.chars())
        .filter(|c| c.is_ascii_alphanumeric() || "+-._".contains(*c))
        .take(64)
        .collect();
    println!("cargo:rustc-env=WEIR_BUILT_FROM={commit}");
}

/// The commit of this folder, with `+` where files were changed since; none: it is no repository of its own, or there is no
/// git.
fn of_git() -> Option<String> {
    let folder = env::var("CARGO_MANIFEST_DIR").ok()?;
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git")
            .arg("-C")
            .arg(&folder)
            .args(arguments)
            .output()
            .ok()?;
        let said = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| said.trim().to_owned())
    };
    // A tarball may lie in somebody else's repository.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != Path::new(&folder).canonicalize().ok()? {
        return None;
    }
    for changes in ["HEAD", "logs/HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", changes])
            && Path::new(&path).exists()
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(commit + if changed { "+" } else { "" })
}
