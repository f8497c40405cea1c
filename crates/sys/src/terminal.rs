//! Properties of a terminal.

use std::os::fd::AsFd;

/// Columns and rows. `None`: it is not a terminal, or its size is unknown.
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
