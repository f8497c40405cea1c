//! Hints for command lines that weir does not accept: what people type who know other servers.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The message and the hint for a command that weir does not have, in place of clap's guess of a similar one.
pub(super) fn unknown_command(error: &clap::Error) -> Option<(String, &'static str)> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let hint = match name.to_ascii_lowercase().as_str() {
        "start" | "run" | "up" | "server" | "daemon" | "listen" | "http" | "php-server"
        | "file-server" => {
            "weir serve -c FILE starts weir in the foreground, weir serve FOLDER without a configuration; as a service: systemctl start weir (docs/systemd.md)"
        }
        "restart" | "force-reload" => {
            "weir reload reads the configuration again, weir upgrade starts the installed program; neither loses a request. weir pool NAME restart starts the workers of one pool again"
        }
        "quit" | "shutdown" | "kill" | "down" | "halt" | "exit" => {
            "weir stop lets running requests finish, weir stop --now does not"
        }
        "reopen" | "logrotate" => "send SIGUSR1 to weir: kill -USR1 $(cat PID_FILE)",
        "configtest" | "validate" | "test" | "lint" | "verify" | "syntax" => {
            "weir check -c FILE says everything that is wrong with a configuration"
        }
        "config" | "show" | "dump" => {
            "weir check -c FILE --print prints the configuration in force, defaults included"
        }
        "info" | "stats" | "ps" | "list" | "top" | "pools" | "workers" | "queue" => {
            "weir status shows pools, workers, queues and listeners; weir status --watch repeats it"
        }
        "log" | "logs" => "weir status says which logs the running weir writes",
        "metrics" => {
            "metrics for Prometheus are at /metrics of the admin interface (docs/metrics.md)"
        }
        "cert" | "certs" | "acme" | "tls" => {
            "weir certificates lists certificates, weir trust is about the local CA"
        }
        "php-fpm" | "php" => {
            "weir fpm runs PHP-FPM's configuration in PHP-FPM's place: weir fpm -h"
        }
        "purge" | "flush" | "ban" | "invalidate" | "clear-cache" => {
            "weir cache purge makes stored pages outdated: --tag, --url, --prefix, --site or --all"
        }
        "diagnose" | "debug" | "audit" => "weir doctor looks for settings that cause trouble",
        "ab" | "load" | "benchmark" => "weir bench URL sends load and reports the results",
        _ => return None,
    };
    Some((format!("there is no command `weir {name}`"), hint))
}

/// What to write in place of an argument that this command does not take. `command` is the one typed, if it is known.
pub(super) fn unknown_argument(error: &clap::Error, command: Option<&str>) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = argument.split('=').next().unwrap_or_default();
    let hint = match (flag, command) {
        (file, Some(command)) if !file.starts_with('-') => {
            let takes_config = [
                "check",
                "doctor",
                "reload",
                "upgrade",
                "stop",
                "drain",
                "watch",
                "certificates",
            ];
            if !takes_config.contains(&command) {
                return None;
            }
            return Some(format!(
                "A configuration is given with -c: weir {command} -c {argument}."
            ));
        }
        ("-c" | "--config", None) => {
            "The command comes first: weir serve -c FILE, or weir check -c FILE."
        }
        ("-t" | "-T" | "-tt", None) => "To test a configuration: weir check -c FILE.",
        ("-s", None) => "There are commands for signals: weir reload, weir stop.",
        ("-v", None) => "weir --version prints the version.",
        ("--port" | "-p" | "--host" | "--bind" | "-b" | "--address" | "-a" | "-S" | "-P", _) => {
            "Write address and port together: weir serve --listen 127.0.0.1:8000 (0.0.0.0:8000 if other machines should reach it)."
        }
        ("--root" | "--docroot" | "--dir" | "--directory" | "-d" | "-t" | "-r", _) => {
            "Write the folder without a flag: weir serve FOLDER."
        }
        ("--daemon" | "--daemonize" | "-D", _) => {
            "weir stays in the foreground. Let systemd or a container keep it running (docs/systemd.md)."
        }
        ("--tls" | "--https" | "--ssl" | "--host-name", _) => {
            "Write the name of the site: weir serve FOLDER --domain localhost."
        }
        ("--cert" | "--key" | "--certificate", _) => {
            "Name the files in a weir.toml: [certificate.NAME] with chain and key (docs/https.md)."
        }
        _ => return None,
    };
    Some(hint.to_owned())
}
