//! `[server] pid_file`: written at the start, locked while weir runs, removed at the end.
//!
//! The lock shows a second weir that the file belongs to another one. The file is opened like logs, because other
//! users may write to its folder, too.

use std::{
    fs::{File, Permissions},
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{FileExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use weir_observe::{
    error_log::{self, Format},
    events,
};
use weir_sys::{
    file::{self, FileId},
    identity,
    log_file::{self, Refused},
};

use crate::{Failure, Loaded, generation::plan::Problem};

/// The file; `None`: there is none.
#[derive(Debug)]
pub(crate) struct PidFile(Option<Written>);

#[derive(Debug)]
struct Written {
    path: PathBuf,
    file: File,
    /// The file is removed at the end.
    is_ours: bool,
}

/// A file that is opened and locked, and not written yet. If it was created, it is removed again.
#[derive(Debug)]
pub(crate) struct Claim {
    written: Option<Written>,
    created: Option<FileId>,
}

impl Claim {
    /// The file of a configuration, unless it is `ours` already. `groups`: see [`crate::generation::plan::Plan::groups`].
    ///
    /// # Errors
    /// If it cannot be opened, or belongs to another running weir; then it is not changed.
    pub(crate) fn take(
        loaded: &Loaded,
        groups: &[u32],
        ours: Option<&Path>,
    ) -> Result<Option<Self>, Failure> {
        match loaded.config.server.pid_file.as_deref() {
            Some(path) if Some(path) != ours => open(path, groups)
                .map(Some)
                .map_err(|what| failure(loaded, what)),
            _ => Ok(None),
        }
    }

    fn write(mut self, loaded: &Loaded) -> Result<PidFile, Failure> {
        let Some(mut written) = self.written.take() else {
            return Ok(PidFile(None));
        };
        let done = take_over(&written.file).and_then(|()| write_pid(&written.file));
        done.map_err(|error| failure(loaded, cannot(&written.path, &error)))?;
        self.created = None;
        written.is_ours = true;
        Ok(PidFile(Some(written)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let (Some(created), Some(written)) = (self.created, &self.written) {
            let _ = file::remove_same(&written.path, created, false);
        }
    }
}

impl PidFile {
    /// No file.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// The path and the locked file, for another weir.
    pub(crate) fn parts(&self) -> Option<(&Path, &File)> {
        let written = self.0.as_ref()?;
        Some((&written.path, &written.file))
    }

    /// Another weir has it now: it is not removed.
    pub(crate) fn give_up(&mut self) {
        if let Some(written) = &mut self.0 {
            written.is_ours = false;
        }
        self.0 = None;
    }

    /// The file of the weir before this one.
    pub(crate) fn given(file: Option<(PathBuf, OwnedFd)>) -> Self {
        Self(file.map(|(path, file)| Written {
            path,
            file: file.into(),
            is_ours: true,
        }))
    }

    /// Writes the file of a configuration; if it is the same and still there, only if another process id is in it.
    ///
    /// # Errors
    /// If it cannot be written; then the old file stays.
    pub(crate) fn move_to(
        &mut self,
        claim: Option<Claim>,
        loaded: &Loaded,
        groups: &[u32],
    ) -> Result<(), Failure> {
        let wanted = loaded.config.server.pid_file.as_deref();
        if let Some(written) = &self.0
            && Some(written.path.as_path()) == wanted
            && written.is_still_there()
        {
            let done = write_pid(&written.file);
            return done.map_err(|error| failure(loaded, cannot(&written.path, &error)));
        }
        let claim = match claim {
            Some(claim) => Some(claim),
            // It was removed meanwhile.
            None => Claim::take(loaded, groups, None)?,
        };
        *self = claim.map_or(Ok(Self(None)), |claim| claim.write(loaded))?;
        Ok(())
    }
}

fn failure(loaded: &Loaded, (cause, mend): (String, &str)) -> Failure {
    loaded.failure(vec![Problem::new("server.pid_file", cause, mend)])
}

/// The error that the pid file cannot be written, and the fix.
fn cannot(path: &Path, error: &io::Error) -> (String, &'static str) {
    let cause = match error_log::format() {
        Format::Weir => format!("{} cannot be written: {error}", path.display()),
        Format::Fpm => events::cannot_write_pid_file(path, error),
    };
    (cause, mend(error))
}

impl Written {
    fn is_still_there(&self) -> bool {
        log_file::is_still(&self.path, self.file.as_fd())
    }

    fn remove(&self) -> io::Result<()> {
        let about = self.file.metadata()?;
        file::remove_same(&self.path, (about.dev(), about.ino()), false)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // If somebody else has replaced it, it must not be removed.
        if self.is_ours
            && let Err(error) = self.remove()
        {
            log::warn!(
                "cannot remove the pid file {}: {error}",
                self.path.display()
            );
        }
    }
}

/// Opens and locks the file; the error has a fix.
fn open(path: &Path, groups: &[u32]) -> Result<Claim, (String, &'static str)> {
    let opened = match log_file::open_whole(path, MODE, groups) {
        Ok(opened) => opened,
        Err(Refused::Io(error)) => return Err(cannot(path, &error)),
        Err(refused) => {
            let mend =
                "remove it, or use a file in a folder that only root can write, such as /run/weir";
            return Err((refused.to_string(), mend));
        }
    };
    let file = File::from(opened.file);
    // A file system without locks shows nothing about other processes.
    if let Ok(false) = log_file::lock(file.as_fd()) {
        let mut text = String::new();
        let _ = (&file).take(MAX_TEXT).read_to_string(&mut text);
        let who = match text.trim().parse::<u32>() {
            Ok(pid) => format!("process {pid}"),
            Err(_) => "its content is not a process id".into(),
        };
        return Err((
            format!(
                "{} is the pid file of another running weir ({who})",
                path.display()
            ),
            "stop that weir first, or use another file for this one",
        ));
    }
    Ok(Claim {
        written: Some(Written {
            path: path.to_owned(),
            file,
            is_ours: false,
        }),
        created: opened.created,
    })
}

/// Writes our process id. A reader never finds an empty file, or a part of the number: it is one write, and what is left of a
/// longer one is overwritten by newlines before it is cut off.
fn write_pid(file: &File) -> io::Result<()> {
    // PHP-FPM's file has no newline.
    let end = match error_log::format() {
        Format::Weir => "\n",
        Format::Fpm => "",
    };
    let text = format!("{}{end}", std::process::id());
    let before = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let whole = format!("{text:\n<width$}", width = before.min(LONGEST_PID));
    file.write_all_at(whole.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

/// Maximum length of a process id in the file, bytes.
const LONGEST_PID: usize = 64;

/// Makes us the owner of a file that another user left behind, as if it were new: nobody else may
/// change the process id in it.
fn take_over(file: &File) -> io::Result<()> {
    let about = file.metadata()?;
    let (uid, gid) = identity::current();
    if (about.uid(), about.gid()) != (uid, gid) && identity::is_root() {
        file::give(file.as_fd(), uid, gid)?;
    }
    let mode = about.mode() & 0o777;
    if about.uid() == uid || identity::is_root() {
        file.set_permissions(Permissions::from_mode(mode & MODE))?;
    }
    Ok(())
}

/// The fix for an error of the file system.
fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space on the disk of its folder, or use a file on another disk, such as /run/weir/weir.pid"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "use a file on a disk that can be written, such as /run/weir/weir.pid"
        }
        _ => "create its folder, and give the user who starts weir write access there",
    }
}

/// Mode: everybody may read it.
const MODE: u32 = 0o644;

/// How much of another process's file is read, bytes.
const MAX_TEXT: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_folder_that_is_missing() {
        assert!(mend(&io::Error::from_raw_os_error(28)).starts_with("free some space"));
        assert!(mend(&io::Error::from_raw_os_error(30)).contains("can be written"));
        assert!(mend(&io::Error::from_raw_os_error(2)).starts_with("create its folder"));
    }
}
