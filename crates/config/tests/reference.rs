//! Checks that `docs/configuration.md` agrees with the rows, and the tables of docs/caching.md with the presets. To write
//! them again:
//!
//! ```text
//! WEIR_REFRESH=1 cargo test -p weir-config --test reference
//! ```

use std::{fs, path::Path};

#[test]
fn the_reference_page_is_what_the_rows_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let wanted = weir_config::reference();
    if std::env::var_os("WEIR_REFRESH").is_some() {
        fs::create_dir_all(page.parent().unwrap()).unwrap();
        fs::write(&page, &wanted).unwrap();
    }
    let kept = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        kept == wanted,
        "docs/configuration.md is stale: WEIR_REFRESH=1 cargo test -p weir-config --test reference"
    );
}

#[test]
fn the_tables_of_the_presets_are_those_of_the_code() {
    const BEGIN: &str =
        "<!-- The next tables are written from crates/config/src/cache/presets.rs. -->\n\n";
    const END: &str = "<!-- Here they end. -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/caching.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let wanted = format!(
        "{before}{BEGIN}{}\n{END}{after}",
        weir_config::preset_tables()
    );
    if std::env::var_os("WEIR_REFRESH").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap();
    assert!(
        kept == wanted,
        "docs/caching.md is stale: WEIR_REFRESH=1 cargo test -p weir-config --test reference"
    );
}

#[test]
fn the_examples_of_all_pages_are_configurations() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = fs::read_dir(project.join("docs")).unwrap();
    let pages = pages.map(|page| page.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    let mut failed = String::new();
    let mut count = 0;
    for page in pages.chain([project.join("README.md")]) {
        for (line, example) in examples(&fs::read_to_string(&page).unwrap()) {
            count += 1;
            let whole = completed(&example);
            let name = format!("{}:{line}", page.file_name().unwrap().display());
            if let Err(wrong) = weir_config::read(&name, &whole, &environment()) {
                failed.push_str(&format!("{whole}\n{wrong}\n"));
            }
        }
    }
    assert!(count > 40, "only {count} examples were found");
    assert!(failed.is_empty(), "{failed}");
}

/// The blocks of TOML, with their line.
fn examples(page: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (index, line) in page.lines().enumerate() {
        match line.trim() {
            "```toml" => {
                inside = true;
                found.push((index + 1, String::new()));
            }
            "```" => inside = false,
            _ if inside => found.last_mut().unwrap().1.push_str(&format!("{line}\n")),
            _ => {}
        }
    }
    found
}

/// The example with the tables that it mentions and leaves out.
fn completed(example: &str) -> String {
    let mut whole = example.to_owned();
    let mut add = |head: &str, lines: &str| {
        if !whole.contains(head) {
            whole.push_str(&format!("{head}\n{lines}\n"));
        }
    };
    // The names in `pool = "NAME"`, `[pool.NAME.queue]` and `listen = ["NAME"]`.
    for line in example.lines() {
        let names: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        if line.starts_with("pool = ") {
            add(&format!("[pool.{}]", names[0]), "runtime = \"php\"");
        } else if let Some(of_pool) = line.strip_prefix("[pool.")
            && let Some((name, _)) = of_pool.split_once('.')
        {
            add(&format!("[pool.{name}]"), "runtime = \"php\"");
        } else if line.starts_with("listen = ") && !line.contains(':') {
            for (port, name) in (81..).zip(names) {
                let tls = if name == "https" { "tls = true" } else { "" };
                let lines = format!("address = \"0.0.0.0:{port}\"\n{tls}");
                add(&format!("[listen.{name}]"), &lines);
            }
        }
    }
    if !whole.contains("[site.") {
        whole.push_str("[site.main]\nroot = \"/srv/main\"\n");
    }
    let is_http = |table: &str| !table.contains("protocol = ");
    if !whole.split("[listen.").skip(1).any(is_http) {
        whole.push_str("[listen.front]\naddress = \"0.0.0.0:80\"\n");
    }
    if whole.contains("tls = true")
        && !whole.contains("tls = \"auto\"")
        && !whole.contains("[certificate.")
    {
        whole.push_str("[certificate.main]\nchain = \"/etc/weir/main.pem\"\n");
    }
    whole
}

fn environment() -> weir_config::Environment {
    weir_config::Environment {
        folder: "/etc/weir".into(),
        cores: 2,
        memory: 1 << 30,
        open_files: 1 << 20,
    }
}
