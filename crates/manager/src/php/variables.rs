//! The start of a process that loads PHP: its environment, and the first fields of its configuration.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, os::unix::ffi::OsStringExt};

use weir_sys::version;

use crate::children::environment::{self, Variables};

/// Keys and values of CONFIG.
pub(crate) type Fields = Vec<(&'static str, Vec<u8>)>;

/// The variables that the program may be executed with, and those that it gets when nobody can look into it any more.
pub(super) fn open_and_hidden(all: &[(OsString, OsString)]) -> (Variables, Variables) {
    all.iter()
        .cloned()
        .partition(|(name, _)| environment::is_open(name))
}

/// Variables as the kernel has them: each with a zero behind it.
pub(super) fn lines(variables: &[(OsString, OsString)]) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in variables {
        lines.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
    }
    lines
}

/// The fields that come first, so that a weir-php with another protocol reads nothing else.
pub(super) fn build_first() -> Fields {
    let own = weir_machine::php::own_program().into_os_string().into_vec();
    vec![
        (
            "protocol",
            weir_machine::php::PROTOCOL.to_string().into_bytes(),
        ),
        ("weir_version", version::version().into()),
        ("weir", own),
    ]
}
