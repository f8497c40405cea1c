//! `weir bench --advise`: finds the configuration, and what the load generator may see of the running weir.

use std::{path::Path, process::ExitCode};

use http::Method;
use serde_json::Value;
use weir_admin::client::Endpoint;
use weir_config::{SocketPath, check_environment, read};
use weir_machine::{ThisMachine, default_admin_socket};
use weir_manager::memory;
use weir_observe::console;
use weir_sys::limits;
use weir_tools::bench::{self, BenchArgs, Known};

use super::{EX_USAGE, Source, default_config};

/// Runs it. With `--advise`, `-c` is the configuration, as in other commands.
pub(super) fn main(args: &BenchArgs) -> ExitCode {
    let file = match args.users.as_deref().map(Path::new) {
        Some(file) if !file.exists() && args.users_is_number() => {
            let message = format!(
                "--advise chooses the numbers of users itself, so -c takes the configuration file; {} is not a file",
                file.display()
            );
            console::say_error(&message, "write -c weir.toml");
            return ExitCode::from(EX_USAGE);
        }
        Some(file) => Ok(file.to_owned()),
        None => default_config(),
    };
    let source = match file.and_then(|file| Source::of_file(&file)) {
        Ok(source) => source,
        Err(code) => return code,
    };
    let config = match source.check() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let accepts = |text: &str| {
        let checked = read(&source.name, text, &source.environment);
        let checked = checked.map_err(|wrong| wrong.render(false))?;
        let mut said = checked.warnings.clone();
        said.extend(check_environment(&checked, &ThisMachine));
        match said.has_errors() {
            true => Err(said.render(false)),
            false => Ok(()),
        }
    };
    let status = || -> Result<Value, String> {
        let socket = match &config.server.admin {
            SocketPath::At(path) => path.clone(),
            SocketPath::Off => return Err("admin is off".into()),
            SocketPath::Default => default_admin_socket().ok_or("XDG_RUNTIME_DIR is not set")?,
        };
        let said = weir_admin::client::ask(&Endpoint::Unix(socket), Method::GET, "/status");
        let said = said.map_err(|error| error.to_string())?;
        serde_json::from_str(&said)
            .map_err(|error| format!("the status is not valid JSON: {error}"))
    };
    let known = Known {
        config: &config,
        text: &source.text,
        accepts: &accepts,
        status: &status,
        cost: |pids| memory::cost(pids.iter().copied()),
        memory_left: || memory::headroom().available,
        cores: source.environment.cores,
        somaxconn: limits::somaxconn(),
    };
    bench::advise(args, &known)
}
