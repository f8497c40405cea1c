//! docs/commands.md, written from the same definitions as the help of the command line. To write it again:
//!
//! ```text
//! WEIR_REFRESH=1 cargo test --package weir --bin weir reference
//! ```

use std::{fmt::Write, fs, path::Path};

use clap::{Arg, Command, CommandFactory};

use super::Typed;

#[test]
fn the_page_of_commands_is_what_the_help_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands.md");
    let wanted = page_of_commands();
    if std::env::var_os("WEIR_REFRESH").is_some() {
        fs::write(&page, &wanted).unwrap();
    }
    let kept = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        kept == wanted,
        "docs/commands.md is stale: WEIR_REFRESH=1 cargo test --package weir --bin weir reference"
    );
}

fn page_of_commands() -> String {
    let mut all = Typed::command();
    all.build();
    let mut page = String::from(
        "# Commands\n\n\
         All commands and flags of weir, as `weir COMMAND --help` prints them. `weir` is one program: it serves, and it asks a weir \
         that serves.\n\n\
         | command | what it does |\n|---|---|\n",
    );
    let mut parts = String::new();
    for command in listed(&all) {
        let name = format!("weir {}", command.get_name());
        let anchor = name.replace(' ', "-");
        let about = cell(&styled(command.get_about()));
        let _ = writeln!(page, "| [`{name}`](#{anchor}) | {about} |");
        part(command, &name, &mut parts);
    }
    let exit_codes = styled(all.get_after_long_help());
    let exit_codes = exit_codes.lines().last().unwrap_or_default();
    let _ = write!(page, "\n{exit_codes} More: [signals.md](signals.md).\n\n");
    page.push_str(parts.trim_end());
    page.push('\n');
    page
}

/// The commands that do something, in the order of the help.
fn listed(command: &Command) -> impl Iterator<Item = &Command> {
    let commands = command.get_subcommands();
    commands.filter(|command| command.get_name() != "help" && command.get_name() != "import")
}

/// The section of a command, and those of its own commands.
fn part(command: &Command, name: &str, page: &mut String) {
    let _ = write!(page, "## {name}\n\n");
    if command.get_name() == "fpm" {
        let help = weir_fpm::help(name);
        let _ = write!(page, "```text\n{}\n```\n\n", help.trim_end());
        return;
    }
    let about = command.get_long_about().or(command.get_about());
    for paragraph in styled(about).split("\n\n") {
        let _ = write!(page, "{}{}\n\n", cell(paragraph), stop_after(paragraph));
    }
    if command.has_subcommands() {
        let positionals = command.get_positionals().flat_map(Arg::get_value_names);
        let positionals = positionals.flatten().map(|name| format!("{name} "));
        let positionals: String = positionals.collect();
        for own in listed(command) {
            part(
                own,
                &format!("{name} {positionals}{}", own.get_name()),
                page,
            );
        }
        return;
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace(['<', '>'], "");
    let _ = write!(page, "```sh\n{usage}\n```\n\n");
    let args: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && arg.get_id() != "help" && arg.get_id() != "version")
        .collect();
    if !args.is_empty() {
        page.push_str("| | |\n|---|---|\n");
        for arg in args {
            let help = styled(arg.get_long_help().or(arg.get_help()));
            let mut says = match help.split_once("\n\n") {
                Some((first, rest)) => format!("{}. {}", cell(first), cell(rest)),
                None => cell(&help),
            };
            let defaults = arg.get_default_values();
            if let Some(default) = defaults.first()
                && arg.get_action().takes_values()
            {
                let _ = write!(says, " [default: {}]", default.to_string_lossy());
            }
            let _ = writeln!(page, "| {} | {says} |", flag(arg));
        }
        page.push('\n');
    }
}

/// `-c`, `--config FILE`
fn flag(arg: &Arg) -> String {
    let values: Vec<&str> = arg
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(|name| name.as_str())
        .collect();
    let values = if arg.get_action().takes_values() {
        values.join(" ")
    } else {
        String::new()
    };
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let mut names: Vec<String> = short.into_iter().chain(long).collect();
    match names.last_mut() {
        Some(last) if !values.is_empty() => *last = format!("{last} {values}"),
        Some(_) => {}
        None => names.push(values),
    }
    names
        .iter()
        .map(|name| format!("`{}`", name.replace('|', "\\|")))
        .collect::<Vec<_>>()
        .join(", ")
}

fn styled(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// In one line, for a cell of a table. A star or an angle bracket would be markup.
fn cell(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|")
        .replace('*', "\\*")
        .replace('<', "&lt;")
}

/// A summary has no full stop in the help; as a paragraph it has one.
fn stop_after(paragraph: &str) -> &'static str {
    let ends = paragraph.trim_end().ends_with(['.', ':']);
    if ends { "" } else { "." }
}
