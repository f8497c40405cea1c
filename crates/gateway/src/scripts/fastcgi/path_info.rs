//! The path-info of a script as a file name, `PATH_TRANSLATED`.

use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

use crate::route::Script;

/// The path-info as a file name (RFC 3875 §4.1.6). With `cgi.fix_pathinfo=0` PHP runs that file instead of the
/// script, unless `cgi.discard_path=1`. So it is left out if the command line of the workers has that setting, and if
/// such a file exists.
pub(crate) fn path_translated(script: &Script) -> PathBuf {
    let path = [&script.document_root[..], &script.path_info].concat();
    PathBuf::from(OsString::from_vec(path))
}

/// The path, unless there is a file, which a thread finds out.
pub(crate) async fn unless_there(path: PathBuf) -> Option<Vec<u8>> {
    let looked = tokio::task::spawn_blocking(move || (!path.exists()).then_some(path));
    let free = looked.await.ok().flatten()?;
    Some(free.into_os_string().into_vec())
}
