//! Locks in the folder of certificates, also across machines that share it.
//!
//! A lock is a file with a text that nobody else has and the time when it ends. It appears complete, by link(2), which fails if it
//! is there. A lock whose time is over was left by a node that was killed or lost its network. Only one node may take its
//! place: the one that makes the file `NAME.TEXT.taking` and then still finds the same text in the lock.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    Store,
    store::{random_name, told},
};

/// A lock that this process has. It ends when this is dropped, or when its time is over.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    /// Its text.
    text: String,
}

impl Lock {
    /// Takes the lock `name` for `life`. `None`: another process has it.
    ///
    /// # Errors
    /// If the folder cannot be written to, with the path.
    pub fn take(store: &Store, name: &str, life: Duration) -> Result<Option<Lock>, String> {
        let path = store.locks().join(name);
        Lock::take_at(&path, life, now()).map_err(|error| told(&path, &error))
    }

    fn take_at(path: &Path, life: Duration, now: i64) -> io::Result<Option<Lock>> {
        let own = random_name().map_err(io::Error::other)?;
        let text = format!(
            "{own} {} {}\n",
            now + life.as_secs() as i64,
            std::process::id()
        );
        let draft = path.with_extension(format!("{own}.new"));
        fs::write(&draft, &text)?;
        let taken = Lock::place(path, &draft, now);
        let _ = fs::remove_file(&draft);
        let lock = Lock {
            path: path.to_owned(),
            text,
        };
        Ok(taken?.then_some(lock))
    }

    /// Puts a draft in the place of the lock if there is none, or one whose time is over.
    fn place(path: &Path, draft: &Path, now: i64) -> io::Result<bool> {
        match fs::hard_link(draft, path) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
        }
        let Some(before) = read(path)? else {
            // It has just ended: the next attempt takes it.
            return Ok(false);
        };
        let (token, ends) = parse(&before);
        if now < ends {
            return Ok(false);
        }
        let taking = path.with_extension(format!("{token}.taking"));
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&taking);
        match made {
            Ok(mut file) => file.write_all(b"\n")?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove_if_old(&taking);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        let is_same = read(path)?.is_some_and(|text| text == before);
        let taken = match is_same {
            true => fs::rename(draft, path).map(|()| true),
            false => Ok(false),
        };
        let _ = fs::remove_file(&taking);
        taken
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if read(&self.path).is_ok_and(|text| text.as_ref() == Some(&self.text)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text that nobody else has, as a part of a name, and when the lock ends (seconds since 1970). A file that is no lock ends at
/// once.
fn parse(text: &str) -> (String, i64) {
    let mut words = text.split_ascii_whitespace();
    let token = words.next().unwrap_or("none");
    let token = token.chars().filter(char::is_ascii_alphanumeric).take(32);
    let ends = words.next().and_then(|ends| ends.parse().ok()).unwrap_or(0);
    (token.collect(), ends)
}

/// A node was killed while it took the place of a lock.
fn remove_if_old(taking: &Path) {
    let changed = fs::metadata(taking).and_then(|metadata| metadata.modified());
    let age = changed.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
    if age.is_ok_and(|age| age > TAKING) {
        let _ = fs::remove_file(taking);
    }
}

/// Seconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// How long the place of a lock is taken, at most: a few system calls.
const TAKING: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering::Relaxed},
        thread,
    };

    use super::*;

    const LIFE: Duration = Duration::from_secs(60);

    fn files(folder: &Path) -> usize {
        fs::read_dir(folder).expect("a folder").count()
    }

    #[test]
    fn a_lock_is_for_one_and_ends_with_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shop");
        let take = |now| Lock::take_at(&path, LIFE, now).expect("no error");
        let first = take(1000).expect("the lock");
        assert!(take(1000).is_none());
        drop(first);
        let second = take(1000).expect("the lock");
        assert_eq!(files(folder.path()), 1);
        drop(second);
        assert_eq!(files(folder.path()), 0);
    }

    #[test]
    fn the_lock_of_a_killed_node_is_taken_when_its_time_is_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shop");
        let take = |now| Lock::take_at(&path, LIFE, now).expect("no error");
        let killed = take(1000).expect("the lock");
        assert!(take(1059).is_none());
        let next = take(1060).expect("the lock");
        // The first owner still runs: it must not end the lock of the second.
        drop(killed);
        assert!(take(1061).is_none());
        drop(next);
        assert_eq!(files(folder.path()), 0);
    }

    #[test]
    fn of_many_that_take_an_old_lock_one_gets_it() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("shop");
            std::mem::forget(Lock::take_at(&path, LIFE, 1000).expect("no error"));
            let (taken, path) = (AtomicU32::new(0), &path);
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        if let Some(lock) = Lock::take_at(path, LIFE, 2000).expect("no error") {
                            taken.fetch_add(1, Relaxed);
                            std::mem::forget(lock);
                        }
                    });
                }
            });
            assert_eq!(taken.load(Relaxed), 1);
        }
    }

    #[test]
    fn a_file_that_is_no_lock_does_not_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shop");
        for text in ["", "../../x", "a b c"] {
            fs::write(&path, text).expect("a file");
            let lock = Lock::take_at(&path, LIFE, 1000).expect("no error");
            assert!(lock.is_some(), "{text:?}");
        }
    }
}
