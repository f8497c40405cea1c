//! Which weirs run on this machine, as far as /proc shows them: for commands that did not find theirs.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path};

use weir_observe::log_text;

/// The hint for a command that found no weir. `command`: how it was typed, such as `stop`.
pub(super) fn hint(command: &str) -> String {
    let found = managers();
    let listed: Vec<String> = (found.iter().take(MOST_NAMED))
        .map(|(pid, line)| format!("process {pid}: {line}"))
        .collect();
    match (&listed[..], found.len()) {
        ([], _) => format!(
            "no weir was found on this machine. If it runs in a container, run weir {command} there"
        ),
        (listed, count) => format!(
            "{} here: {}. Name it with the configuration (weir {command} -c FILE) or its admin address (--admin), and run the command as the user who started it",
            match count {
                1 => "a weir runs".to_owned(),
                count => format!("{count} weirs run"),
            },
            listed.join("; ")
        ),
    }
}

/// Process id and command line of each `weir serve`, in the order of their numbers.
fn managers() -> Vec<(u32, String)> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found: Vec<(u32, String)> = processes
        .flatten()
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let line = fs::read(process.path().join("cmdline")).ok()?;
            Some((pid, serve_line(&line)?))
        })
        .collect();
    found.sort_unstable();
    found
}

/// The command line, if it is a `weir serve`. `line` is as in proc_pid_cmdline(5): each argument ends with a zero byte.
fn serve_line(line: &[u8]) -> Option<String> {
    let mut arguments = line
        .strip_suffix(b"\0")
        .unwrap_or(line)
        .split(|byte| *byte == 0);
    let program = Path::new(OsStr::from_bytes(arguments.next()?)).file_name()?;
    let command = arguments.next()?;
    if program != "weir" || command != b"serve" {
        return None;
    }
    let mut shown = "weir serve".to_owned();
    for argument in arguments {
        shown.push(' ');
        shown.push_str(&log_text::shown(&String::from_utf8_lossy(argument)));
    }
    Some(shown)
}

/// How many weirs are named in a hint.
const MOST_NAMED: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_manager_is_a_weir_that_serves() {
        let line = |line: &str| serve_line(line.as_bytes());
        assert_eq!(
            line("/usr/local/bin/weir\0serve\0-c\0/etc/weir/weir.toml\0").as_deref(),
            Some("weir serve -c /etc/weir/weir.toml")
        );
        for other in [
            "weir: gateway\0",
            "weir\0stop\0",
            "vim\0serve\0",
            "",
            "\0",
            "weir\0",
        ] {
            assert_eq!(line(other), None, "{other:?}");
        }
    }
}
