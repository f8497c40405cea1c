//! `weir man`: manual pages, made from the definitions that the help and the reference of weir.toml are made from.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Command, CommandFactory};
use clap_mangen::{
    Man,
    roff::{Inline, Roff, bold, roman},
};
use weir_config::TableHelp;
use weir_observe::console;

use super::Typed;

/// Flags of `weir man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The page: a command, or weir.toml [default: the page of weir itself]
    #[arg(value_name = "PAGE")]
    page: Vec<String>,

    /// Write all pages below this folder: man1/weir.1, man5/weir.toml.5 and so on
    #[arg(long, value_name = "FOLDER", conflicts_with = "page")]
    write: Option<PathBuf>,
}

/// A manual page: what man(1) calls it (`weir-serve.1`), and its text in roff.
struct Page {
    file: String,
    text: String,
}

impl Page {
    /// The text gets short lines, as people who write pages by hand make them, and tools that check pages want them.
    fn new(file: String, text: &str) -> Page {
        let mut is_as_typed = false;
        let mut lines = Vec::new();
        for line in text.lines() {
            match line {
                ".nf" => is_as_typed = true,
                ".fi" => is_as_typed = false,
                _ => {}
            }
            match is_as_typed || line.starts_with('.') {
                true => lines.push(line.trim_end().to_owned()),
                false => wrap(line, &mut lines),
            }
        }
        Page {
            file,
            text: lines.join("\n") + "\n",
        }
    }
}

/// Breaks a line of text at spaces.
fn wrap(line: &str, lines: &mut Vec<String>) {
    let mut current = String::new();
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        if !current.is_empty() && width(&current) + 1 + width(word) > LINE {
            lines.push(std::mem::take(&mut current));
        }
        match current.is_empty() {
            // At the start of a line these would begin a request of roff.
            true if word.starts_with(['.', '\'']) => current.push_str("\\&"),
            true => {}
            false => current.push(' '),
        }
        current.push_str(word);
    }
    lines.push(current);
}

/// Prints the page that was asked for, or writes all.
pub fn main(args: &ManArgs) -> ExitCode {
    let pages = pages();
    if let Some(folder) = &args.write {
        return write(&pages, folder);
    }
    let name = match args.page[..] {
        [] => "weir.1".to_owned(),
        [ref page] if page == CONFIGURATION => format!("{CONFIGURATION}.5"),
        _ => format!("weir-{}.1", args.page.join("-")),
    };
    match pages.iter().find(|page| page.file == name) {
        Some(page) => super::print(&page.text),
        None => {
            let names: Vec<&str> = pages.iter().map(|page| page.file.as_str()).collect();
            let message = format!("there is no manual page {name}");
            console::say_error(&message, &format!("there are {}", names.join(", ")));
            ExitCode::from(weir_manager::EX_USAGE)
        }
    }
}

fn write(pages: &[Page], folder: &Path) -> ExitCode {
    let written = pages.iter().try_for_each(|page| {
        let (_, section) = page.file.rsplit_once('.').unwrap_or_default();
        let folder = folder.join(format!("man{section}"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(&page.file), &page.text)
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let message = format!(
                "cannot write manual pages into {}: {error}",
                folder.display()
            );
            console::say_error(&message, "give a folder that you may write to");
            ExitCode::from(weir_manager::EX_SOFTWARE)
        }
    }
}

/// The length in the eyes of mandoc, which reads other characters than ASCII's as `\\[u2192]`.
fn width(text: &str) -> usize {
    text.chars()
        .map(|one| if one.is_ascii() { 1 } else { 8 })
        .sum()
}

/// All pages.
fn pages() -> Vec<Page> {
    let mut weir = Typed::command();
    weir.build();
    let mut pages = vec![page_of(&weir, "weir")];
    for command in weir.get_subcommands().filter(is_documented) {
        let name = format!("weir-{}", command.get_name());
        match command.get_name() {
            "fpm" => pages.push(fpm(&name)),
            _ => pages.push(page_of(command, &name)),
        }
        for own in command.get_subcommands().filter(is_documented) {
            pages.push(page_of(own, &format!("{name}-{}", own.get_name())));
        }
    }
    let text = configuration().to_roff();
    pages.push(Page::new(format!("{CONFIGURATION}.5"), &text));
    pages
}

/// `help` explains itself, and a command that is not built has no page.
fn is_documented(command: &&Command) -> bool {
    !["help", "import"].contains(&command.get_name())
}

/// The page of a command.
fn page_of(command: &Command, name: &str) -> Page {
    let shown = command
        .clone()
        .display_name(name.to_owned())
        .disable_help_subcommand(true);
    let page = Man::new(shown)
        .title(name.to_uppercase())
        .date(DATE)
        .source(SOURCE)
        .manual(MANUAL);
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _: io::Result<()> = page.render(&mut text);
    Page::new(format!("{name}.1"), &String::from_utf8_lossy(&text))
}

/// The page of `weir fpm`, whose help is PHP-FPM's.
fn fpm(name: &str) -> Page {
    let mut roff = head(name, "1");
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!(
        "{name} - run like PHP-FPM, with its command line and configuration"
    ))]);
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold("weir fpm"), roman(" [OPTIONS]")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.control("nf", []);
    roff.text([roman(weir_fpm::help("weir fpm").trim_end())]);
    roff.control("fi", []);
    Page::new(format!("{name}.1"), &roff.to_roff())
}

/// The page of weir.toml.
fn configuration() -> Roff {
    let mut roff = head(CONFIGURATION, "5");
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{CONFIGURATION} - configuration of weir"))]);
    roff.control("SH", ["DESCRIPTION"]);
    for paragraph in weir_config::rules_of_values() {
        roff.text(inline(paragraph));
        roff.control("PP", []);
    }
    roff.text([
        bold("weir check"),
        roman(" says what is wrong with a file, and "),
        bold("weir check --print"),
        roman(" prints all values in force."),
    ]);
    for table in weir_config::tables() {
        of_table(&table, &mut roff);
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text([
        bold("weir"),
        roman("(1), "),
        bold("weir-check"),
        roman("(1)"),
    ]);
    roff
}

fn of_table(table: &TableHelp, roff: &mut Roff) {
    roff.control("SH", [table.title]);
    for paragraph in table.about.split("\n\n") {
        roff.text(inline(paragraph));
    }
    for key in &table.keys {
        if !key.group.is_empty() {
            roff.control("SS", [key.group]);
        }
        roff.control("TP", []);
        roff.text([bold(key.name)]);
        let mut text = inline(&key.takes);
        text.push(roman("; default: "));
        text.extend(inline(&key.default));
        text.push(roman(". "));
        text.extend(inline(key.help));
        roff.text(text);
    }
}

fn head(name: &str, section: &str) -> Roff {
    let mut roff = Roff::default();
    let title = name.to_uppercase();
    roff.control("TH", [&title, section, DATE, SOURCE, MANUAL]);
    roff
}

/// Markdown of the reference: code becomes bold, a link its text.
fn inline(markdown: &str) -> Vec<Inline> {
    let line = markdown.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.replace("\\|", "|");
    let mut parts = Vec::new();
    for (index, part) in line.split('`').enumerate() {
        match index % 2 {
            0 => parts.push(roman(without_links(part))),
            _ => parts.push(bold(part)),
        }
    }
    parts
}

fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        let link = after.split_once("](").and_then(|(name, after)| {
            let (_, after) = after.split_once(')')?;
            (!name.contains('[')).then_some((name, after))
        });
        let Some((name, after)) = link else {
            plain.push_str(before);
            plain.push('[');
            rest = after;
            continue;
        };
        plain.push_str(before);
        plain.push_str(name);
        rest = after;
    }
    plain + rest
}

/// When the pages were last read as a whole.
const DATE: &str = "2026-11-28";

const CONFIGURATION: &str = "weir.toml";
/// Length of the longest line of text, bytes.
const LINE: usize = 72;

const SOURCE: &str = concat!("weir ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "weir";
