//! What weir prints for others to read: manual pages, and completions for shells.

use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use weir_test::{Setup, wait_until, weir::program};

fn printed(arguments: &[&str]) -> String {
    let output = Command::new(program())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn manual_pages_have_all_commands_and_keys_and_no_mistakes() {
    let setup = Setup::new();
    let folder = setup.folder().join("man");
    printed(&["man", "--write", folder.to_str().unwrap()]);
    let mut names = Vec::new();
    let sections = ["man1", "man5"].map(|section| fs::read_dir(folder.join(section)).unwrap());
    for entry in sections.into_iter().flatten() {
        let path = entry.unwrap().path();
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        let lint = Command::new("mandoc")
            .args(["-Tlint", "-Wall"])
            .arg(&path)
            .output()
            .unwrap();
        let complaints = [lint.stdout, lint.stderr].concat();
        assert!(
            complaints.is_empty(),
            "{}",
            String::from_utf8_lossy(&complaints)
        );
    }
    for name in [
        "weir.1",
        "weir-serve.1",
        "weir-pool-set.1",
        "weir-fpm.1",
        "weir.toml.5",
    ] {
        assert!(names.iter().any(|one| one == name), "{name} of {names:?}");
    }
    assert_eq!(
        printed(&["man", "serve"]),
        fs::read_to_string(folder.join("man1/weir-serve.1")).unwrap()
    );
    let keys = fs::read_to_string(folder.join("man5/weir.toml.5")).unwrap();
    for key in [
        "max_children",
        "shutdown_timeout",
        "serialize_by",
        "preconnect",
    ] {
        assert!(keys.contains(&format!("\\fB{key}\\fR")), "{key}");
    }
}

#[test]
fn a_page_that_does_not_exist_is_refused_and_the_others_are_named() {
    let output = Command::new(program())
        .args(["man", "cook"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64));
    assert!(
        told.contains("weir-cook.1") && told.contains("weir-serve.1"),
        "{told}"
    );
}

/// A shell on a terminal. Each line is typed when the shell has shown a prompt after the text that the line before waits for.
fn typed(shell: &str, folder: &Path, lines: &[(&str, &str)]) {
    const PROMPT: &str = "ready> ";
    let path = format!(
        "{}:{}",
        Path::new(program()).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut child = Command::new("script")
        .args(["-qec", &format!("env PS1='{PROMPT}' {shell}"), "/dev/null"])
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder)
        .env("TERM", "dumb")
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let shown = Arc::new(Mutex::new(String::new()));
    let reader = {
        let shown = shown.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                shown.lock().unwrap().push_str(&text);
            }
        })
    };
    let mut from = 0;
    for (line, answer) in [&[("", "")], lines].concat() {
        keys.write_all(line.as_bytes()).unwrap();
        wait_until(&format!("{answer:?} of {shell}, then a prompt"), || {
            let shown = shown.lock().unwrap();
            let Some(at) = shown[from..].find(answer) else {
                return false;
            };
            let prompt = shown[from + at..].find(PROMPT);
            prompt.inspect(|after| from += at + after).is_some()
        });
    }
    keys.write_all(b"exit\n").unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
}

#[test]
fn completions_complete_commands_in_real_shells() {
    let setup = Setup::new();
    let folder = setup.folder();
    fs::write(folder.join("weir.bash"), printed(&["completions", "bash"])).unwrap();
    fs::write(folder.join("_weir"), printed(&["completions", "zsh"])).unwrap();
    fs::write(folder.join("weir.fish"), printed(&["completions", "fish"])).unwrap();
    // The command that is completed says that there is no such file. What the lines say themselves is not what is waited for.
    let completed = ("weir che\t -c absent.toml\n", "absent.toml: error");
    typed(
        "bash --norc --noprofile -i",
        folder,
        &[
            ("source ./weir.bash; echo loaded-$((1 + 1))\n", "loaded-2"),
            completed,
        ],
    );
    let load =
        "fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; echo loaded-$((1 + 1))\n";
    typed("zsh -f -i", folder, &[(load, "loaded-2"), completed]);
    let output = Command::new("fish")
        .args(["-N", "-c", "source weir.fish; complete -C 'weir che'"])
        .current_dir(folder)
        .env("HOME", folder)
        .output()
        .unwrap();
    assert!(output.stdout.starts_with(b"check\t"), "{output:?}");
}
