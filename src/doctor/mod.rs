//! `weir doctor`: what will bite, before it does.
//!
//! Every check is a [`Finding`] of one of the [`SUBJECTS`]: how bad it is, what is so, why it matters, and what mends
//! it. What cannot be looked at is said, with how to let it. Nothing is changed, nothing but weir's own window, its
//! listeners' sockets and the servers of pools is connected to, and no finding is a guess: what is computed says from
//! what.
//!
//! What to read next: [`case`], what a check is given; [`rights`], who may do what; then a subject, such as [`sites`].

mod case;
mod egress;
mod examine;
mod files;
mod kernel;
mod live;
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

use std::{io::IsTerminal, path::PathBuf, process::ExitCode};

use weir_config::Window;

use crate::{
    cli::{self, Source},
    findings::{Finding, Severity},
};
use case::Case;

/// Flags of `weir doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration [default: weir.toml here, else /etc/weir/weir.toml]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// A PHP-FPM configuration in its place, as `weir fpm` would run it
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub fpm: Option<PathBuf>,

    /// The window of the running weir: unix:PATH, or off [default: as configured]
    #[arg(long, value_name = "ADDR", value_parser = cli::window_address)]
    pub admin: Option<Window>,

    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// A part of the report.
struct Subject {
    /// For programs.
    name: &'static str,
    /// For people.
    title: &'static str,
    /// What is looked at.
    look: fn(&Case<'_>, &mut Notes),
}

/// All of them, in reading order: what keeps weir from starting comes first.
const SUBJECTS: &[Subject] = &[
    Subject {
        name: "start",
        title: "Start: users, programs, addresses",
        look: start::look,
    },
    Subject {
        name: "sockets",
        title: "Sockets: who may connect",
        look: sockets::look,
    },
    Subject {
        name: "servers",
        title: "Servers of pools",
        look: servers::look,
    },
    Subject {
        name: "egress",
        title: "Calls of the application",
        look: egress::look,
    },
    Subject {
        name: "sites",
        title: "Sites: roots and scripts",
        look: sites::look,
    },
    Subject {
        name: "workers",
        title: "Workers: folders, chroot, PHP",
        look: workers::look,
    },
    Subject {
        name: "files",
        title: "Logs, temporary files, disks",
        look: files::look,
    },
    Subject {
        name: "timeouts",
        title: "Timeouts that meet",
        look: timeouts::look,
    },
    Subject {
        name: "queue",
        title: "Queues",
        look: queue::look,
    },
    Subject {
        name: "memory",
        title: "Memory and processors",
        look: memory::look,
    },
    Subject {
        name: "kernel",
        title: "Kernel: accept queues, descriptors, ports",
        look: kernel::look,
    },
    Subject {
        name: "security",
        title: "Security",
        look: security::look,
    },
];

/// What PHP says to the configuration of a pool: it cannot be loaded, or has no setting of a name. Each pool's PHP is
/// run for that, as the pool's user.
pub fn of_php(checked: &weir_config::Checked) -> Vec<weir_config::Diagnostic> {
    let people = people::People::of(&checked.config, None);
    php::troubles(checked, &php::ask(&checked.config, &people))
}

/// What one subject found.
#[derive(Debug, Default)]
struct Notes {
    findings: Vec<Finding>,
    unseen: Vec<Unseen>,
}

/// Something that was not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unseen {
    /// What.
    what: String,
    /// How it can be.
    how: String,
}

/// Everything that was found.
struct Report {
    /// What the configuration is called.
    name: String,
    /// As whom things were judged, and whether weir runs.
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

    /// The worst first; what is equally bad stays in its order.
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

/// Performs `weir doctor`: 0 fine or warnings only, 1 something would break, 78 a configuration that cannot be read.
pub fn main(args: &Args) -> ExitCode {
    let source = match (&args.config, &args.fpm) {
        (_, Some(file)) => examine::of_fpm(file),
        (Some(file), None) => Source::of_file(file),
        (None, None) => cli::default_config().and_then(|file| Source::of_file(&file)),
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
    let printed = cli::print(&shown);
    match report.count(Severity::Break) {
        0 => printed,
        _ => ExitCode::from(SOMETHING_BREAKS),
    }
}

/// Standard output is a terminal, and nobody has asked for no colour (no-color.org).
fn colour() -> bool {
    let asked = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    asked && std::io::stdout().is_terminal()
}

/// The exit code where something would break.
const SOMETHING_BREAKS: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use case::Case;
    use people::People;

    /// Asks `look` with a configuration of this machine, with no weir that runs.
    pub(super) fn with_config<T>(text: &str, look: impl FnOnce(&Case<'_>) -> T) -> T {
        with_case(text, |case| look(case))
    }

    /// As [`with_config`], for who knows more.
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

    /// What was found: `warn: WHAT: WHY; MEND`.
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
