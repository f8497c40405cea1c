//! The house rules, as far as a program can check them. What they are for stands in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A file is read from top to bottom in one sitting.
const MOST_LINES: usize = 800;

const MOST_MODULES: usize = 12;

/// Licences that ask for no more than to be named.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

#[test]
fn only_sys_is_unsafe() {
    for file in sources() {
        if file.path.starts_with("crates/sys/") {
            continue;
        }
        for (number, line) in file.code() {
            for form in ["{", "fn", "impl", "extern", "trait"] {
                let form = ["unsafe", form].join(" ");
                assert!(!line.contains(&form), "{}:{number}: {line}", file.path);
            }
        }
    }
}

#[test]
fn every_crate_but_sys_forbids_unsafe() {
    let mut roots = vec!["src/main.rs".to_owned()];
    let others = crates().into_iter().filter(|name| name != "sys");
    roots.extend(others.map(|name| format!("crates/{name}/src/lib.rs")));
    for root in roots {
        assert!(read(&root).contains("#![forbid(unsafe_code)]"), "{root}");
    }
}

#[test]
fn decisions_and_protocol_know_no_machine() {
    let may_use: [(&str, &[&str]); 3] = [
        ("fcgi", &[]),
        ("http1", &["httparse", "memchr"]),
        ("pool", &[]),
    ];
    for (name, may_use) in may_use {
        assert!(
            read(&format!("crates/{name}/src/lib.rs")).contains("#![no_std]"),
            "{name}"
        );
        assert_eq!(dependencies(name), may_use, "of {name}");
    }
}

/// Each crate uses only crates of the layers below its own, so that those of one layer do not know each other.
#[test]
fn dependencies_go_one_way() {
    let layers: &[&[&str]] = &[
        &[
            "config",
            "fcgi",
            "htpasswd",
            "http1",
            "pool",
            "semantics",
            "sys",
        ],
        &["cache", "tls"],
        &["acme", "keeper", "machine", "net"],
        &["observe"],
        &["control", "http"],
        &["bus", "upstream"],
        &["interfaces"],
        &["admin", "egress", "gateway", "manager"],
        &["fpm"],
        &["tools"],
    ];
    let layer_of = |name: &str| layers.iter().position(|layer| layer.contains(&name));
    for name in crates() {
        let layer = layer_of(&name);
        let layer = layer.unwrap_or_else(|| panic!("crates/{name} is in no layer: say which"));
        for used in dependencies(&name) {
            if let Some(used) = used.strip_prefix("weir-") {
                let below = layer_of(used).is_some_and(|below| below < layer);
                assert!(below, "crates/{name} depends on {used}");
            }
        }
    }
}

#[test]
fn files_are_short() {
    for file in sources() {
        let lines = file.text.lines().count();
        assert!(lines <= MOST_LINES, "{}: {lines} lines", file.path);
    }
}

/// A stranger reads the names of a folder at a glance.
#[test]
fn folders_of_gateway_and_manager_have_a_dozen_modules_at_most() {
    let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in sources() {
        let is_one = |name: &&str| file.path.starts_with(&format!("crates/{name}/src/"));
        if ["gateway", "manager"].iter().any(is_one) {
            let (folder, name) = file.path.rsplit_once('/').expect("a path");
            folders
                .entry(folder.to_owned())
                .or_default()
                .insert(name.to_owned());
        }
    }
    assert!(folders.len() > 10, "{folders:?}");
    for (folder, modules) in folders {
        assert!(modules.len() <= MOST_MODULES, "{folder}: {modules:?}");
    }
}

/// The standard library's macros panic where nobody reads: `weir_observe::console` is for that.
#[test]
fn nothing_ends_because_nobody_reads() {
    let macros = ["eprint!(", "eprintln!(", " print!(", " println!("];
    for file in sources() {
        let is_program = file.path.starts_with("src/")
            || file.path.starts_with("crates/") && file.path.contains("/src/");
        if !is_program || file.path.ends_with("tests.rs") {
            continue;
        }
        let is_one = |line: &str| macros.iter().any(|word| line.contains(word));
        let line = file.code().find(|(_, line)| is_one(line));
        assert!(line.is_none(), "{}: {line:?}", file.path);
    }
}

#[test]
fn nothing_is_left_for_later() {
    // Written in halves, so that this file does not find itself.
    let words = [
        ("TO", "DO"),
        ("FIX", "ME"),
        ("XX", "X:"),
        ("HA", "CK"),
        ("to", "do!("),
        ("unimple", "mented!("),
        ("#[ig", "nore"),
        ("db", "g!("),
    ];
    for file in sources() {
        for (number, line) in file.text.lines().enumerate() {
            for (first, second) in words {
                let word = format!("{first}{second}");
                assert!(
                    !line.contains(&word),
                    "{}:{}: {line}",
                    file.path,
                    number + 1
                );
            }
        }
    }
}

#[test]
fn no_path_of_somebodys_machine() {
    let paths = [
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("/ho", "me/"),
        ("/Use", "rs/"),
    ];
    for file in texts() {
        for (number, line) in file.text.lines().enumerate() {
            for (first, second) in paths {
                let path = format!("{first}{second}");
                let begins = |at: usize| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "}.*_-".contains(c))
                };
                let found = line.match_indices(&path).any(|(at, _)| begins(at));
                assert!(!found, "{}:{}: {line}", file.path, number + 1);
            }
        }
    }
}

/// Otherwise half the crates would be compiled a second time: `make test` compiles all packages, a developer often one.
#[test]
fn tests_of_weir_alone_use_what_was_compiled_for_all_packages() {
    let all = features("--workspace");
    for package in features("--package=weir") {
        assert!(
            all.contains(&package),
            "for all packages it has other features: {package}"
        );
    }
}

#[test]
fn every_test_file_is_run() {
    let runs = read("setup/test.sh");
    let runs = runs
        .lines()
        .find(|line| line.starts_with("for program in "));
    let runs = runs.expect("the list of test programs").replace(';', " ");
    let sources = sources();
    let programs = sources.iter().filter_map(|file| {
        let name = file.path.strip_prefix("tests/")?;
        name.strip_suffix("/main.rs")
            .or(name.strip_suffix(".rs").filter(|name| !name.contains('/')))
    });
    for program in programs {
        let is_run = runs.split_whitespace().any(|word| word == program);
        assert!(is_run, "setup/test.sh does not run tests/{program}");
    }
    for file in &sources {
        let Some((program, rest)) = file
            .path
            .strip_prefix("tests/")
            .and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        if rest.ends_with("main.rs") || rest == "src/lib.rs" {
            continue;
        }
        // `a.rs` and `a/mod.rs` are declared in the folder's main.rs, `b/a.rs` in b.rs or b/mod.rs.
        let path = rest
            .strip_suffix(".rs")
            .map_or(rest, |path| path.strip_suffix("/mod").unwrap_or(path));
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parents = match folder {
            "" => [format!("tests/{program}/main.rs"), String::new()],
            "src" => [format!("tests/{program}/src/lib.rs"), String::new()],
            folder => [
                format!("tests/{program}/{folder}.rs"),
                format!("tests/{program}/{folder}/mod.rs"),
            ],
        };
        let mut parents = sources.iter().filter(|file| parents.contains(&file.path));
        let declared = |text: &str| {
            text.contains(&format!("\nmod {name};")) || text.contains(&format!("\npub mod {name};"))
        };
        assert!(
            parents.any(|parent| declared(&parent.text)),
            "{} is not compiled",
            file.path
        );
    }
}

#[test]
fn licences_of_dependencies_are_allowed() {
    let allowed: BTreeSet<&str> = LICENCES.iter().copied().collect();
    for package in metadata()["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let licence = package["license"].as_str().unwrap_or_default();
        // SPDX expressions, and the slash that older crates use for OR. One of the alternatives must be allowed whole.
        let normal = licence.replace(['(', ')'], "").replace('/', " OR ");
        let fine = normal.split(" OR ").any(|choice| {
            choice
                .split(" AND ")
                .all(|licence| allowed.contains(licence.trim()))
        });
        assert!(fine, "{name}: {licence:?}");
    }
}

#[test]
fn dependencies_come_from_the_registry() {
    for package in metadata()["packages"].as_array().expect("packages") {
        let own = package["source"].is_null();
        let registry = package["source"]
            .as_str()
            .is_some_and(|source| source.starts_with("registry+"));
        assert!(
            own || registry,
            "{} from {}",
            package["name"],
            package["source"]
        );
    }
}

/// The pages that a newcomer reads first are short, and the index of docs has every page.
#[test]
fn first_pages_are_short_and_the_index_is_complete() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 120, "README.md has {lines} lines");
    let words = read("ARCHITECTURE.md").split_whitespace().count();
    assert!(words <= 2_500, "ARCHITECTURE.md has {words} words");
    let index = read("docs/README.md");
    for page in pages() {
        if let Some(name) = page.path.strip_prefix("docs/") {
            let is_listed = name == "README.md" || index.contains(&format!("]({name})"));
            assert!(is_listed, "docs/README.md does not list {name}");
        }
    }
}

/// Every file that ARCHITECTURE.md names in backticks exists.
#[test]
fn architecture_names_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = read("ARCHITECTURE.md");
    let endings = [".rs", ".c", ".h", ".md"];
    let mut count = 0;
    for name in page.split('`').skip(1).step_by(2) {
        let is_file = name.contains('/') && !name.contains(' ')
            || endings.iter().any(|ending| name.ends_with(ending));
        if !is_file || name.starts_with('.') {
            continue;
        }
        // The abbreviations that the page defines; a bare name is one of the gateway's.
        let whole = match name.split_once('/') {
            Some(("G", rest)) => format!("crates/gateway/src/{rest}"),
            Some(("M", rest)) => format!("crates/manager/src/{rest}"),
            _ if root.join(name).exists() => name.to_owned(),
            _ => format!("crates/gateway/src/{name}"),
        };
        count += 1;
        assert!(root.join(&whole).exists(), "ARCHITECTURE.md names {name}");
    }
    assert!(count > 80, "only {count} files were found");
}

/// Links between pages lead to files that exist and to headings that they have.
#[test]
fn links_of_pages_are_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = String::new();
    let mut count = 0;
    for page in pages() {
        let folder = Path::new(&page.path).parent().expect("a folder");
        for link in links(&page.text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => root.join(&page.path),
                file => root.join(folder).join(file),
            };
            let is_right = target.exists()
                && (heading.is_empty()
                    || fs::read_to_string(&target)
                        .is_ok_and(|text| headings(&text).contains(heading)));
            if !is_right {
                wrong.push_str(&format!("{}: {link}\n", page.path));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{wrong}");
    assert!(count > 200, "only {count} links were found");
}

/// Pages of docs that programs, scripts and comments name exist.
#[test]
fn named_pages_exist() {
    for file in texts() {
        for (at, _) in file.text.match_indices("docs/") {
            let rest = &file.text[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "/-_.".contains(c)));
            let name = &rest[..end.unwrap_or(rest.len())];
            let Some(end) = name.find(".md") else {
                continue;
            };
            let is_part = file.text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '/');
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name[..end + 3]);
            let exists = path.exists() || is_part;
            assert!(exists, "{}: {name}", file.path);
        }
    }
}

struct Text {
    /// From the project's root.
    path: String,
    text: String,
}

impl Text {
    /// The lines that are no comments, numbered from 1.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        lines
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(at, line)| (at + 1, line))
    }
}

/// The Rust that people write.
fn sources() -> Vec<Text> {
    texts()
        .into_iter()
        .filter(|file| file.path.ends_with(".rs"))
        .collect()
}

/// All text of the project: what is built, what is downloaded and what is measured is none of it.
fn texts() -> Vec<Text> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path: PathBuf = entry.path();
            let name = entry.file_name();
            let skipped = [
                ".git",
                "target",
                "runs",
                "corpus",
                "artifacts",
                ".cache",
                "Cargo.lock",
            ];
            if skipped.iter().any(|skip| name == *skip) {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path = path.strip_prefix(root).expect("below the root");
                found.push(Text {
                    path: path.to_str().expect("UTF-8").to_owned(),
                    text,
                });
            }
        }
    }
    assert!(found.len() > 20, "{} files", found.len());
    found
}

/// The pages of Markdown.
fn pages() -> Vec<Text> {
    let mut pages = texts();
    pages.retain(|file| file.path.ends_with(".md"));
    pages
}

/// The lines of a page outside of its blocks of code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Where the links and pictures of a page lead.
fn links(page: &str) -> Vec<String> {
    let text: Vec<&str> = prose(page).collect();
    // A text in backticks is no link.
    let text = text.join("\n");
    let text: Vec<&str> = text.split('`').step_by(2).collect();
    let text = text.join("`");
    let mut found = Vec::new();
    for (before, after) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"')] {
        for (at, _) in text.match_indices(before) {
            let rest = &text[at + before.len()..];
            found.extend(rest.split_once(after).map(|(link, _)| link.to_owned()));
        }
    }
    found
}

/// The names by which links find the headings of a page, as GitHub makes them.
fn headings(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(page).filter(|line| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(again);
        let name = names.find(|name| !found.contains(name)).expect("a name");
        found.insert(name);
    }
    found
}

/// The folders of `crates`.
fn crates() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let entries = fs::read_dir(folder).expect("crates").flatten();
    let found: Vec<String> = entries
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(found.len() > 4, "{found:?}");
    found
}

/// What a crate uses, as its manifest lists it: without what only its tests use.
fn dependencies(name: &str) -> Vec<String> {
    let manifest = read(&format!("crates/{name}/Cargo.toml"));
    let after = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let section = after.split("\n[").next().unwrap_or_default();
    let lines = section
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            line[..end].to_owned()
        })
        .collect()
}

fn read(path: &str) -> String {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(full).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Each package that the tests of these packages need, with its features.
fn features(packages: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", packages])
        .args(["--edges=normal,build,dev", "--prefix=none"])
        .arg("--format={p} {f}")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo tree");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let text = String::from_utf8_lossy(&output.stdout);
    // A package that it has named before is marked.
    text.lines()
        .map(|line| line.trim_end_matches(" (*)").to_owned())
        .collect()
}

/// Of what is built here: what other systems would need is never downloaded.
fn metadata() -> Value {
    let target = format!(
        "--filter-platform={}-unknown-linux-gnu",
        std::env::consts::ARCH
    );
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--offline",
            &target,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}
