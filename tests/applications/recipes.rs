//! docs/recipes.md: the tests run each configuration as it is on the page, with its application. Only addresses, users
//! and folders are replaced.

use std::fs;
use std::path::Path;
use std::process::Command;

use weir_test::front::WebServer;
use weir_test::http::form;
use weir_test::weir::{mode, write};
use weir_test::wordpress::{self, Browser, field, linked, socket};
use weir_test::{GROUP, Setup, USER, Weir, is_root};

mod databases;
mod frameworks;
mod php;
mod programs;

/// A configuration of the page, and the folder of its test.
struct Recipe {
    setup: Setup,
    text: String,
}

impl Recipe {
    /// The configuration below this heading.
    fn of(heading: &str) -> Recipe {
        Recipe {
            setup: Setup::new(),
            text: block(heading, "toml", 0),
        }
    }

    /// Replaces a text of the page with another one.
    #[track_caller]
    fn with(mut self, from: &str, to: &str) -> Recipe {
        assert!(self.text.contains(from), "{from} in {}", self.text);
        self.text = self.text.replace(from, to);
        self
    }

    /// Replaces a folder of the page with this one of the test.
    #[track_caller]
    fn folder(self, from: &str, to: &Path) -> Recipe {
        let to = to.to_str().expect("a path in UTF-8").to_owned();
        self.with(from, &to)
    }

    /// Adds a line to the PHP pool.
    #[track_caller]
    fn pool_line(self, line: &str) -> Recipe {
        self.with(
            "runtime = \"php\"\n",
            &format!("runtime = \"php\"\n{line}\n"),
        )
    }

    #[track_caller]
    fn start(self) -> Weir {
        let folder = self.setup.folder().display().to_string();
        let address = self.setup.address().to_string();
        let mut text = String::new();
        for line in self.text.lines() {
            if line.starts_with("user = ") {
                // The page's users do not exist here. www-data does, and only www-data can read its files.
                let user = if line.contains("www-data") {
                    "www-data"
                } else {
                    USER
                };
                if is_root() {
                    text.push_str(&format!("user = \"{user}\"\n"));
                }
            } else {
                text.push_str(line);
                text.push('\n');
            }
        }
        let text = text
            .replace("\"0.0.0.0:80\"", &format!("\"{address}\""))
            .replace("\"127.0.0.1:8080\"", &format!("\"{address}\""));
        assert!(text.contains(&address), "{text}");
        let mut server = format!(
            "[server]\nadmin = \"off\"\nspool_dir = \"{folder}/spool\"\nstate_dir = \"{folder}\"\n"
        );
        if is_root() {
            server.push_str(&format!("user = \"{USER}\"\ngroup = \"{GROUP}\"\n"));
        }
        let log = format!("access = \"{folder}/log/access.log\"\n");
        let text = if text.contains("[log]\n") {
            text.replace("[log]\n", &format!("[log]\n{log}"))
        } else {
            format!("{text}\n[log]\nformat = \"json\"\n{log}")
        };
        let text = if text.contains("[server]\n") {
            text.replace("[server]\n", &server)
        } else {
            format!("{server}\n{text}")
        };
        self.setup.start_toml(&text)
    }
}

/// The block number `index` in this language below this heading of the page.
#[track_caller]
fn block(heading: &str, language: &str, index: usize) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recipes.md");
    let page = fs::read_to_string(page).expect("docs/recipes.md");
    let section = page
        .split("\n## ")
        .find(|section| section.lines().next() == Some(heading))
        .unwrap_or_else(|| panic!("no heading {heading}"));
    let fence = format!("\n```{language}\n");
    let block = section
        .split(&fence)
        .nth(index + 1)
        .unwrap_or_else(|| panic!("no {language} below {heading}"));
    let end = block.find("\n```").expect("the end of a block");
    format!("{}\n", &block[..end])
}

/// Runs a command to its end. Fails with its output if it does not succeed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("a command");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{command:?}\n{said}");
    said
}

/// Gives the folder and everything in it to this user if the tests run as root.
fn give(folder: &Path, user: &str) {
    if is_root() {
        run(Command::new("chown").arg("-R").arg(user).arg(folder));
    }
}

/// Fails unless all styles and scripts that a page loads exist.
#[track_caller]
fn all_is_there(browser: &mut Browser, base: &str, page: &str) -> usize {
    let urls = linked(page);
    for url in &urls {
        let path = if url.starts_with('/') {
            url.clone()
        } else {
            format!("{base}{url}")
        };
        let response = browser.get(&path).expect(200);
        assert!(!response.body.is_empty(), "{path}");
    }
    urls.len()
}
