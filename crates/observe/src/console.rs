//! Output for the person who runs a command.
//!
//! `eprint!` and similar macros panic if nobody reads any more, as in `weir serve 2>&1 | head`. A manager with
//! workers must not end because of that, so output that cannot be written is dropped. `tests/tidy.rs` checks that
//! nothing else is used.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Writes to standard error.
pub fn say(text: impl Display) {
    // In a single write, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// Prints an error and how to fix it; an empty `hint` is left out.
pub fn say_error(message: impl Display, hint: &str) {
    say(complaint("error", message, hint));
}

/// Prints a warning; an empty `hint` is left out.
pub fn say_warning(message: impl Display, hint: &str) {
    say(complaint("warning", message, hint));
}

/// Writes to standard output.
///
/// # Errors
///
/// If standard output cannot be written to. It is no error if its reader has closed it.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

fn complaint(severity: &str, message: impl Display, hint: &str) -> String {
    match hint {
        "" => format!("weir: {severity}: {message}\n"),
        hint => format!("weir: {severity}: {message}\nhint: {hint}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_has_a_line_of_its_own() {
        assert_eq!(complaint("error", "no", ""), "weir: error: no\n");
        assert_eq!(
            complaint("warning", "no", "say yes"),
            "weir: warning: no\nhint: say yes\n"
        );
    }
}
