//! What commands have in common: the configuration that they read and check, and what they print.

use std::{
    env, fs,
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

use weir_config::{Config, Diagnostics, Environment, Server, check_environment, read, read_server};
use weir_machine::{ThisMachine, findings::Severity, limits};
use weir_manager::{EX_CONFIG, EX_SOFTWARE};
use weir_observe::console;

/// The text of a configuration, and what is needed to interpret it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name in diagnostics.
    pub name: String,
    /// The text: from a file, or made for a folder.
    pub text: String,
    /// The environment for defaults and relative paths.
    pub environment: Environment,
    /// The file; `None`: the text was made for a folder.
    pub file: Option<PathBuf>,
    /// The folder for which the text was made.
    pub folder: Option<PathBuf>,
}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    /// The exit code; the problem was printed.
    pub fn of_file(file: &Path) -> Result<Self, ExitCode> {
        let name = file.display().to_string();
        let text = match fs::read(file).map(String::from_utf8) {
            Ok(Ok(text)) => text,
            Ok(Err(_)) => {
                return Err(refuse(&Diagnostics::of_file(
                    &name,
                    "this file is not UTF-8 text",
                )));
            }
            Err(error) => return Err(refuse(&Diagnostics::of_file(&name, error.to_string()))),
        };
        let folder = match file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        Ok(Self {
            name,
            text,
            environment: Environment::of_this_machine(&folder),
            file: Some(file.to_owned()),
            folder: None,
        })
    }

    /// The settings of the admin interface, among other things. Other tables are not looked at.
    ///
    /// # Errors
    /// The exit code, if `[server]` has errors or cannot be found.
    pub fn server(&self) -> Result<Server, ExitCode> {
        read_server(&self.name, &self.text, &self.environment).map_err(|wrong| refuse(&wrong))
    }

    /// Checks it, also against this machine; problems go to stderr.
    ///
    /// # Errors
    /// The exit code, if there are errors.
    pub fn check(&self) -> Result<Config, ExitCode> {
        self.check_and_tell().map(|(config, _)| config)
    }

    /// The same; and what `weir check` tells of a configuration without errors, line by line.
    ///
    /// # Errors
    /// The exit code, if there are errors.
    pub fn check_and_tell(&self) -> Result<(Config, Vec<String>), ExitCode> {
        let checked =
            read(&self.name, &self.text, &self.environment).map_err(|wrong| refuse(&wrong))?;
        let mut said = checked.warnings.clone();
        said.extend(check_environment(&checked, &ThisMachine));
        let mut told = Vec::new();
        if !said.has_errors() {
            let of_php = crate::doctor::of_php(&checked);
            said.extend(of_php.troubles);
            told = of_php.loads;
            said.extend(crate::doctor::warnings_of_sites(&checked));
        }
        if said.has_errors() {
            return Err(refuse(&said));
        }
        console::say(said.render(colour()));
        // Findings without a place in the file. Other limits of the kernel depend on the user who starts weir.
        for found in limits::overflow(&checked.config, &limits::Kernel::look()) {
            if found.severity >= Severity::Warn {
                let message = format!("{}: {}", found.what, found.why);
                console::say_warning(&message, found.mend.as_deref().unwrap_or_default());
            }
        }
        Ok((checked.config, told))
    }
}

/// The default file if none is given.
///
/// # Errors
/// The exit code; the error was printed.
pub fn default_config() -> Result<PathBuf, ExitCode> {
    let usual = ["weir.toml", "/etc/weir/weir.toml"].map(PathBuf::from);
    usual.into_iter().find(|file| file.exists()).ok_or_else(|| {
        let message = "no configuration found: neither ./weir.toml nor /etc/weir/weir.toml exists";
        refuse_config(
            message,
            "give the configuration file: weir check -c FILE; or write one for a folder: weir init FOLDER",
        )
    })
}

/// Prints what is wrong with a configuration; returns exit code 78.
pub fn refuse(wrong: &Diagnostics) -> ExitCode {
    console::say(wrong.render(colour()));
    ExitCode::from(EX_CONFIG)
}

/// Prints an error of the configuration and how to fix it; returns exit code 78.
pub fn refuse_config(message: &str, hint: &str) -> ExitCode {
    console::say_error(message, hint);
    ExitCode::from(EX_CONFIG)
}

/// Writes to stdout; the exit code shows whether that succeeded.
pub fn print(text: &str) -> ExitCode {
    match console::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say_error(format_args!("standard output: {error}"), "");
            ExitCode::from(EX_SOFTWARE)
        }
    }
}

/// Whether stderr is a terminal, and colours are not disabled (no-color.org).
fn colour() -> bool {
    std::io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
