//! Commands and flags (a stand-in).

use std::{path::PathBuf, process::ExitCode};

use crate::{error_log, manager};

/// Runs the command that was typed.
pub fn main() -> ExitCode {
    error_log::init("manager");
    let mut file = PathBuf::from("weir.toml");
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "-c" {
            file = arguments.next().unwrap_or_default().into();
        }
    }
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("weir: {}: {error}", file.display());
            return ExitCode::from(manager::EX_CONFIG);
        }
    };
    let folder = file.parent().unwrap_or(std::path::Path::new("."));
    let start = manager::Start {
        name: file.display().to_string(),
        text,
        environment: weir_config::Environment::of_this_machine(folder),
        file: Some(file),
        trace: false,
        folder: None,
    };
    match manager::run(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("weir: cannot start\n{failure}");
            ExitCode::from(failure.code)
        }
    }
}
