//! `weir doctor`: finds settings that will cause problems.
//!
//! Every check makes a [`Finding`] of one of the [`SUBJECTS`]: the severity, the fact, why it matters, and how to fix
//! it. Things that cannot be checked are listed, with how to make them visible. The doctor changes nothing, and
//! connects only to weir's admin socket, its listeners' sockets and the servers of pools. Findings are not guesses:
//! calculated values show what they were calculated from.
//!
//! What to read next: [`case`], the input of a check; [`rights`], file permissions; then a subject, such as
//! [`sites`].

mod case;
mod certificates;
mod egress;
mod examine;
mod files;
mod kernel;
mod live;
mod loads;
mod memory;
mod people;
mod php;
mod queue;
mod rights;
mod security;
mod servers;
mod sites;
mod sockets;
mod start;
mod text;
mod timeouts;
mod workers;

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

use weir_config::{Address, Config, SocketPath, parse_address};

use crate::command::{self, Source};
use case::Case;
use weir_machine::findings::{Finding, Severity};

/// Flags of `weir doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration file [default: ./weir.toml, else /etc/weir/weir.toml]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Check a PHP-FPM configuration instead, as `weir fpm` would run it
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub fpm: Option<PathBuf>,

    /// Admin address of the running weir: unix:PATH, or off [default: from the configuration]
    #[arg(long, value_name = "ADDR", value_parser = admin_address)]
    pub admin: Option<SocketPath>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A section of the report.
struct Subject {
    /// For programs.
    name: &'static str,
    /// For people.
    title: &'static str,
    /// The check.
    look: fn(&Case<'_>, &mut Notes),
}

/// All of them, in reading order: what prevents a start comes first.
const SUBJECTS: &[Subject] = &[
    subject("start", "Start: users, programs, addresses", start::look),
    subject("sockets", "Sockets: who may connect", sockets::look),
    subject("servers", "Servers of pools", servers::look),
    subject("egress", "Outgoing calls (egress)", egress::look),
    subject("sites", "Sites: roots and scripts", sites::look),
    subject("workers", "Workers: folders, chroot, PHP", workers::look),
    subject("files", "Logs, temporary files, disks", files::look),
    subject(
        "timeouts",
        "Timeouts that depend on each other",
        timeouts::look,
    ),
    subject("queue", "Queues", queue::look),
    subject("memory", "Memory and processors", memory::look),
    subject(
        "kernel",
        "Kernel: accept queues, descriptors, ports",
        kernel::look,
    ),
    subject("certificates", "Certificates", certificates::look),
    subject("security", "Security", security::look),
];

const fn subject(
    name: &'static str,
    title: &'static str,
    look: fn(&Case<'_>, &mut Notes),
) -> Subject {
    Subject { name, title, look }
}

/// What `weir check` says of PHP.
#[derive(Debug)]
pub struct OfPhp {
    /// It cannot be loaded, or does not know a setting of a pool.
    pub troubles: Vec<weir_config::Diagnostic>,
    /// Which pools share a load, one line for each.
    pub loads: Vec<String>,
}

/// Runs each pool's PHP as the pool's user, and asks it.
pub fn of_php(checked: &weir_config::Checked) -> OfPhp {
    let config = &checked.config;
    let people = people::People::of(config, None);
    let asked = php::ask(config, &people);
    OfPhp {
        troubles: php::troubles(checked, &asked),
        loads: loads::lines(config, &asked),
    }
}

/// What is wrong with sites that anybody can see: folders that a .htaccess denies, scripts without a pool, no index. With the site's name. Reads
/// folders, at most those of the first [`MOST_SITES`] sites.
fn of_sites(config: &Config) -> impl Iterator<Item = (&str, Finding)> {
    config.sites.iter().take(MOST_SITES).flat_map(|site| {
        let mut notes = Notes::default();
        sites::look_briefly(site, &mut notes);
        let findings = notes.findings.into_iter();
        let findings = findings.filter(|found| found.severity >= Severity::Warn);
        findings.map(|found| (site.name.as_str(), found))
    })
}

/// The same as warnings of `weir check`.
pub fn warnings_of_sites(checked: &weir_config::Checked) -> Vec<weir_config::Diagnostic> {
    let warnings = of_sites(&checked.config).map(|(site, found)| weir_config::Diagnostic {
        severity: weir_config::Severity::Warning,
        span: checked.places.of(&format!("site.{site}.root")),
        message: format!("{}: {}", found.what, found.why),
        hint: found.mend,
    });
    warnings.collect()
}

/// The same as lines for the error log.
pub fn lines_of_sites(config: &Config) -> Vec<String> {
    let lines = of_sites(config).map(|(_, found)| {
        let mend = found.mend.unwrap_or_default();
        format!("{}: {}; {mend}", found.what, found.why)
    });
    lines.collect()
}

/// How many sites `weir check` and a start look at; `weir doctor` looks at all.
const MOST_SITES: usize = 100;

/// The findings of one subject.
#[derive(Debug, Default)]
struct Notes {
    findings: Vec<Finding>,
    unseen: Vec<Unseen>,
}

/// Something that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unseen {
    /// What.
    what: String,
    /// How to make it visible.
    how: String,
}

/// All findings.
struct Report {
    /// The name of the configuration.
    name: String,
    /// The user of the checks, and whether weir is running.
    stance: Vec<String>,
    /// In the order of [`SUBJECTS`].
    subjects: Vec<(&'static Subject, Notes)>,
}

impl Notes {
    fn ok(&mut self, what: impl Into<String>) {
        self.findings.push(Finding::ok(what));
    }

    fn note(&mut self, what: impl Into<String>, why: impl Into<String>, mend: impl Into<String>) {
        self.push(Severity::Note, what, why, mend);
    }

    fn warn(&mut self, what: impl Into<String>, why: impl Into<String>, mend: impl Into<String>) {
        self.push(Severity::Warn, what, why, mend);
    }

    fn breaks(&mut self, what: impl Into<String>, why: impl Into<String>, mend: impl Into<String>) {
        self.push(Severity::Break, what, why, mend);
    }

    fn push(
        &mut self,
        severity: Severity,
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) {
        let mut finding = Finding::new(severity, what, why, mend);
        finding.mend = finding.mend.filter(|mend| !mend.is_empty());
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    fn unseen(&mut self, what: impl Into<String>, how: impl Into<String>) {
        let unseen = Unseen {
            what: what.into(),
            how: how.into(),
        };
        if !self.unseen.contains(&unseen) {
            self.unseen.push(unseen);
        }
    }

    /// A path that we may not look at.
    fn barred(&mut self, label: &str, at: &Path) {
        let at = at.display();
        self.unseen(format!("{label}: no permission to look at {at}"), AS_ROOT);
    }

    /// The worst first; equal ones keep their order.
    fn sort(&mut self) {
        self.findings
            .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    }
}

impl Report {
    fn count(&self, severity: Severity) -> usize {
        let findings = self.subjects.iter().flat_map(|(_, notes)| &notes.findings);
        findings
            .filter(|finding| finding.severity == severity)
            .count()
    }

    fn unseen(&self) -> usize {
        self.subjects
            .iter()
            .map(|(_, notes)| notes.unseen.len())
            .sum()
    }
}

/// Runs `weir doctor`: exit code 0 if everything is fine or there are only warnings, 1 if something would fail, 78 if
/// the configuration cannot be read.
pub fn main(args: &Args) -> ExitCode {
    let source = match (&args.config, &args.fpm) {
        (_, Some(file)) => examine::of_fpm(file),
        (Some(file), None) => Source::of_file(file),
        (None, None) => command::default_config().and_then(|file| Source::of_file(&file)),
    };
    let report = source.and_then(|source| examine::examine(&source, args));
    let report = match report {
        Ok(report) => report,
        Err(code) => return code,
    };
    let shown = match args.json {
        true => text::json(&report),
        false => text::page(&report, colour(), text::width()),
    };
    let printed = command::print(&shown);
    match report.count(Severity::Break) {
        0 => printed,
        _ => ExitCode::from(SOMETHING_BREAKS),
    }
}

/// Reads `unix:PATH` or `off`.
fn admin_address(text: &str) -> Result<SocketPath, String> {
    match text {
        "off" => Ok(SocketPath::Off),
        text => match parse_address(text)? {
            Address::Unix(path) => Ok(SocketPath::At(std::path::absolute(&path).unwrap_or(path))),
            Address::Tcp(_) => Err("weir doctor needs the unix socket: unix:PATH".into()),
        },
    }
}

/// Whether standard output is a terminal, and colours are not disabled (no-color.org).
fn colour() -> bool {
    let asked = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    asked && std::io::stdout().is_terminal()
}

/// How to make visible what only root may see.
const AS_ROOT: &str = "run `weir doctor` as root";

/// The exit code if something would fail.
const SOMETHING_BREAKS: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use case::Case;
    use people::People;

    /// Runs `look` with a configuration on this machine, without a running weir.
    pub(super) fn with_config<T>(text: &str, look: impl FnOnce(&Case<'_>) -> T) -> T {
        with_case(text, |case| look(case))
    }

    /// As [`with_config`], for tests that change the case.
    pub(super) fn with_case<T>(text: &str, look: impl FnOnce(&mut Case<'_>) -> T) -> T {
        let environment = weir_config::Environment::of_this_machine(std::path::Path::new("/"));
        let config = weir_config::parse("weir.toml", text, &environment);
        let config = config.unwrap_or_else(|wrong| panic!("{wrong}"));
        look(&mut Case {
            said: Vec::new(),
            people: People::of(&config, None),
            found: live::Found::Nobody,
            php: Vec::new(),
            fpms: Vec::new(),
            config: &config,
        })
    }

    /// The findings: `warn: WHAT: WHY; MEND`.
    pub(super) fn said(notes: &Notes) -> Vec<String> {
        let line = |finding: &Finding| format!("{}: {finding}", finding.severity.name());
        notes.findings.iter().map(line).collect()
    }

    #[test]
    fn the_worst_comes_first_and_nothing_comes_twice() {
        let mut notes = Notes::default();
        notes.ok("a");
        notes.breaks("b", "c", "");
        notes.breaks("b", "c", "");
        notes.unseen("d", "e");
        notes.unseen("d", "e");
        notes.sort();
        assert_eq!(said(&notes), ["break: b: c", "ok: a"]);
        assert_eq!(notes.unseen.len(), 1);
    }
}
