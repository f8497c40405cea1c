//! What a terminal is like.

use std::os::fd::AsFd;

/// Columns and rows; none: it is no terminal, or does not say.
pub fn size(terminal: impl AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then(|| (size.ws_col.into(), size.ws_row.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_terminal_has_no_size() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(size(&file), None);
    }
}
