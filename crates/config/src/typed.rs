//! Values of the command line that are the same as in weir.toml.

use std::time::Duration;

use crate::{
    model::Address,
    scalar::{self, Wrong},
};

/// Parses a host of `--domain`.
///
/// # Errors
/// As [`parse_address`].
pub fn parse_host(text: &str) -> Result<(), String> {
    scalar::host_pattern(text)
        .map(drop)
        .map_err(in_one_sentence)
}

/// Parses an address of `--listen`.
///
/// # Errors
/// The problem and what to write instead, in one sentence.
pub fn parse_address(text: &str) -> Result<Address, String> {
    scalar::address(text).map_err(in_one_sentence)
}

/// Parses a duration as in weir.toml: `500ms`, `30s`, `2m`. A bare number means seconds.
///
/// # Errors
/// As [`parse_address`].
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    scalar::duration(text).map_err(in_one_sentence)
}

fn in_one_sentence(Wrong { message, hint }: Wrong) -> String {
    match hint {
        Some(hint) => format!("{message}: {hint}"),
        None => message,
    }
}

/// Default address for serving a folder.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_the_command_line_are_those_of_the_file() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert!(parse_duration("soon").unwrap_err().contains("\"500ms\""));
    }
}
