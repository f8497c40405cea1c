//! The password for the server through which nodes tell each other their purges: `bus_password_file` of `[cache]`.

use std::{fs, os::unix::fs::PermissionsExt};

use super::plan::Problem;
use crate::{Failure, Loaded};

/// Reads the password; `None`: the configuration names no file.
pub(super) fn password(loaded: &Loaded) -> Result<Option<String>, Failure> {
    let cache = loaded.config.cache.as_ref();
    let Some(path) = cache.and_then(|cache| cache.bus_password_file.as_ref()) else {
        return Ok(None);
    };
    const KEY: &str = "cache.bus_password_file";
    let shown = path.display();
    let problem = |cause: &str| {
        let mend = "write the password into it, in one line, for the user who starts weir";
        loaded.failure(vec![Problem::new(KEY, format!("{shown}: {cause}"), mend)])
    };
    let text = fs::read_to_string(path).map_err(|error| problem(&error.to_string()))?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() || password.len() > MOST || password.contains(char::is_control) {
        return Err(problem("this is not one line with a password"));
    }
    let mode = fs::metadata(path).map(|metadata| metadata.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o007 != 0) {
        log::warn!("{KEY}: everybody can read {shown}: chmod 600 {shown}");
    }
    Ok(Some(password.to_owned()))
}

/// Maximum length of a password, bytes.
const MOST: usize = 4096;
