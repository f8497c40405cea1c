//! What is said to the person who typed the command.
//!
//! `eprint!` and its like panic where nobody reads any more, as behind `weir serve 2>&1 | head`. A manager that has workers to
//! look after must not end for that, so what cannot be said is left unsaid. `tests/tidy.rs` sees to it that nothing else
//! is used.

use std::{
    fmt::Display,
    io::{self, Write},
};

/// Writes to standard error, as it is.
pub fn say(text: impl Display) {
    // At once, so that lines of several processes do not mix.
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}

/// Says what went wrong, and what to do about it; an empty `hint` is none.
pub fn say_error(message: impl Display, hint: &str) {
    say(complaint("error", message, hint));
}

/// Says what may go wrong; an empty `hint` is none.
pub fn say_warning(message: impl Display, hint: &str) {
    say(complaint("warning", message, hint));
}

/// Writes to standard output.
///
/// # Errors
///
/// It cannot be written to. A reader that has gone is no error of weir's.
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
