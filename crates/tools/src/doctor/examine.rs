//! Makes a report of a configuration: finds the users and the running weir, and runs all checks.

use std::{path::Path, process::ExitCode};

use weir_config::{Severity, SocketPath, check_environment, read};
use weir_machine::ThisMachine;

use super::{
    Args, Notes, Report, SUBJECTS,
    case::{Case, CheckMessage},
    live::{self, Found},
    people::People,
    php, servers,
};
use crate::command::{self, Source};

/// Runs all checks.
///
/// # Errors
/// The exit code, if the configuration cannot be read; the error was printed.
pub(super) fn examine(source: &Source, args: &Args) -> Result<Report, ExitCode> {
    let checked = read(&source.name, &source.text, &source.environment)
        .map_err(|wrong| command::refuse(&wrong))?;
    let mut diagnostics = checked.warnings.clone();
    // Warnings about the machine are checked in more detail by the subjects.
    let of_machine = check_environment(&checked, &ThisMachine);
    let errors = of_machine
        .into_iter()
        .filter(|d| d.severity == Severity::Error);
    diagnostics.extend(errors);
    let said = diagnostics.iter().map(|diagnostic| CheckMessage {
        error: diagnostic.severity == Severity::Error,
        what: format!("{} {}", diagnostics.place(diagnostic), diagnostic.message),
        mend: diagnostic.hint.clone().unwrap_or_default(),
    });
    let said: Vec<CheckMessage> = said.collect();
    // `weir fpm` has no admin interface.
    let off = args.fpm.as_ref().map(|_| &SocketPath::Off);
    let found = live::ask(&checked.config, args.admin.as_ref().or(off));
    let running = match &found {
        Found::Runs(live) => Some(&**live),
        _ => None,
    };
    let people = People::of(&checked.config, running);
    let stance = stance(&people, &found);
    let case = Case {
        config: &checked.config,
        said,
        php: php::ask(&checked.config, &people),
        fpms: match uses_servers(&checked.config) {
            true => servers::configurations(),
            false => Vec::new(),
        },
        people,
        found,
    };
    let subjects = SUBJECTS.iter().map(|subject| {
        let mut notes = Notes::default();
        (subject.look)(&case, &mut notes);
        notes.sort();
        (subject, notes)
    });
    Ok(Report {
        name: source.name.clone(),
        stance,
        subjects: subjects.collect(),
    })
}

fn uses_servers(config: &weir_config::Config) -> bool {
    let pools = config.pools.iter();
    pools
        .into_iter()
        .any(|pool| matches!(pool.runtime, weir_config::Runtime::Servers(_)))
}

/// The user for whom the checks were made, and the state of a running weir.
fn stance(people: &People, found: &Found) -> Vec<String> {
    let runs = match found {
        Found::Runs(live) => format!(
            "weir is running (process {}); its figures are used",
            live.manager.map_or("unknown".into(), |pid| pid.to_string()),
        ),
        Found::Nobody => {
            "no weir is running at this admin address, so its figures are missing here".into()
        }
        Found::NoAdmin => {
            "it is not known whether weir is running, because it has no admin interface (admin = \"off\")".into()
        }
        Found::Unseen(why) => format!("it is not known whether weir is running: {why}"),
    };
    vec![people.stance.clone(), runs]
}

/// Makes weir.toml of a PHP-FPM configuration.
///
/// # Errors
/// The exit code, if that is not possible; the error was printed.
pub(super) fn of_fpm(file: &Path) -> Result<Source, ExitCode> {
    let (name, text) = weir_fpm::look::weir_toml(file)?;
    Ok(Source {
        name,
        text,
        environment: weir_config::Environment::of_this_machine(Path::new("/")),
        file: None,
        folder: None,
    })
}
