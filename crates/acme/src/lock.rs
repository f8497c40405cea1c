//! Locks in the folder of certificates, also across machines that share it.
//!
//! A lock is a file with a text that nobody else has, and its life in seconds. It appears complete, by link(2), which fails if it is
//! there. Its owner renews it as long as it works, by writing to it. A lock that was not renewed for its life was left by a node that
//! was killed or lost its network. Only one node may take its place: the one that makes the file `NAME.TEXT.taking` and then still
//! finds the lock unchanged.
//!
//! The age of a lock is the difference between two times of the folder's own file system, so the clocks of nodes may differ.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use weir_sys::random;

use crate::{Store, store::told};

/// A lock that this process has. It ends when this is dropped, or when it is not renewed for its life.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    /// What nobody else has.
    token: String,
}

impl Lock {
    /// Takes the lock `name` for `life`. `None`: another process has it.
    ///
    /// # Errors
    /// If the folder cannot be written to, with the path.
    pub fn take(store: &Store, name: &str, life: Duration) -> Result<Option<Lock>, String> {
        let path = store.locks().join(name);
        Lock::take_at(&path, life).map_err(|error| told(&path, &error))
    }

    fn take_at(path: &Path, life: Duration) -> io::Result<Option<Lock>> {
        let token = random::name()?;
        let text = format!("{token} {} {}\n", life.as_secs(), std::process::id());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let draft = path.with_file_name(format!(".{name}.{token}.new"));
        fs::write(&draft, &text)?;
        let taken = Lock::place(path, &draft);
        let _ = fs::remove_file(&draft);
        let lock = Lock {
            path: path.to_owned(),
            token,
        };
        Ok(taken?.then_some(lock))
    }

    /// Puts a draft in the place of the lock if there is none, or one whose time is over.
    fn place(path: &Path, draft: &Path) -> io::Result<bool> {
        match fs::hard_link(draft, path) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
        }
        let Some(before) = read(path)? else {
            // The other lock has just ended. The next attempt gets a lock.
            return Ok(false);
        };
        let (token, life) = parse(&before.0);
        let now = fs::metadata(draft)?.modified()?;
        if difference(before.1, now) < life {
            return Ok(false);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let taking = path.with_file_name(format!(".{name}.{token}.taking"));
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&taking);
        match made {
            Ok(mut file) => file.write_all(b"\n")?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove_if_old(&taking, now);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        let is_same = read(path)?.is_some_and(|now| now == before);
        let taken = match is_same {
            true => fs::rename(draft, path).map(|()| true),
            false => Ok(false),
        };
        let _ = fs::remove_file(&taking);
        taken
    }

    /// Lets its life begin again. Returns whether it is still ours.
    ///
    /// # Errors
    /// If the file cannot be written to, with the path.
    pub fn renew(&self) -> Result<bool, String> {
        let renewed = OpenOptions::new()
            .read(true)
            .append(true)
            .open(&self.path)
            .and_then(|mut file| {
                let mut text = String::new();
                (&mut file).take(MOST).read_to_string(&mut text)?;
                if parse(&text).0 != self.token {
                    return Ok(false);
                }
                file.write_all(b".")?;
                file.sync_all()?;
                Ok(true)
            });
        match renewed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            renewed => renewed.map_err(|error| told(&self.path, &error)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Ok(Some((text, _))) = read(&self.path)
            && parse(&text).0 == self.token
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The text of a lock, and when it was written. By an open file, because a file system of the network may keep old answers of stat(2).
fn read(path: &Path) -> io::Result<Option<(String, SystemTime)>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    (&mut file).take(MOST).read_to_end(&mut bytes)?;
    let changed = file.metadata()?.modified()?;
    Ok(Some((
        String::from_utf8_lossy(&bytes).into_owned(),
        changed,
    )))
}

/// The text that nobody else has, as a part of a name, and the life of a lock. A file that is no lock ends at once.
fn parse(text: &str) -> (String, Duration) {
    let mut words = text.split_ascii_whitespace();
    let token = words.next().unwrap_or("none");
    let token = token.chars().filter(char::is_ascii_alphanumeric).take(32);
    let life = words.next().and_then(|life| life.parse().ok()).unwrap_or(0);
    (token.collect(), Duration::from_secs(life).min(LONGEST))
}

/// A node was killed while it took the place of a lock.
fn remove_if_old(taking: &Path, now: SystemTime) {
    let changed = fs::metadata(taking).and_then(|metadata| metadata.modified());
    if changed.is_ok_and(|at| difference(at, now) > TAKING) {
        let _ = fs::remove_file(taking);
    }
}

/// The age of a file that was changed `at`. If it is younger than now, the clock was set since then: a file from far in the future is
/// an old one, otherwise it would stay until then.
pub(crate) fn difference(at: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(at)
        .unwrap_or_else(|error| error.duration())
}

/// Seconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// How long the place of a lock is taken, at most: a few system calls.
const TAKING: Duration = Duration::from_secs(60);

/// The longest life of a lock.
const LONGEST: Duration = Duration::from_secs(3600);

/// Bytes of a lock that are read: it grows by one each time that it is renewed.
const MOST: u64 = 4096;

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

    fn take(path: &Path) -> Option<Lock> {
        Lock::take_at(path, LIFE).expect("no error")
    }

    /// Lets a lock be older.
    fn age(path: &Path, seconds: u64) {
        let file = File::options().append(true).open(path).expect("a lock");
        let before = SystemTime::now() - Duration::from_secs(seconds);
        file.set_modified(before).expect("another time");
    }

    #[test]
    fn a_lock_is_for_one_and_ends_with_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shop");
        let first = take(&path).expect("the lock");
        assert!(take(&path).is_none());
        drop(first);
        let second = take(&path).expect("the lock");
        assert_eq!(files(folder.path()), 1);
        drop(second);
        assert_eq!(files(folder.path()), 0);
    }

    #[test]
    fn the_lock_of_a_killed_node_is_taken_when_its_time_is_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shop");
        let killed = take(&path).expect("the lock");
        age(&path, 30);
        assert!(take(&path).is_none());
        age(&path, 61);
        let next = take(&path).expect("the lock");
        // The first owner still runs: it must neither renew nor end the lock of the second.
        assert_eq!(killed.renew(), Ok(false));
        drop(killed);
        assert!(take(&path).is_none());
        drop(next);
        assert_eq!(files(folder.path()), 0);
    }

    /// A clock that was ahead was set right: the lock of a killed node must not last until then.
    #[test]
    fn a_lock_from_the_future_ends_as_an_old_one_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shop");
        std::mem::forget(take(&path));
        let later = |seconds| {
            let file = File::options().append(true).open(&path).expect("a lock");
            let later = SystemTime::now() + Duration::from_secs(seconds);
            file.set_modified(later).expect("another time");
        };
        // Clocks of nodes may differ a little.
        later(30);
        assert!(take(&path).is_none());
        later(100 * 86_400);
        assert!(take(&path).is_some());
    }

    #[test]
    fn a_lock_that_is_renewed_lasts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("shop");
        let lock = take(&path).expect("the lock");
        age(&path, 61);
        assert_eq!(lock.renew(), Ok(true));
        assert!(take(&path).is_none());
        fs::remove_file(&path).expect("removed");
        assert_eq!(lock.renew(), Ok(false));
    }

    #[test]
    fn of_many_that_take_an_old_lock_one_gets_it() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("shop");
            std::mem::forget(take(&path));
            age(&path, 1000);
            let (taken, path) = (AtomicU32::new(0), &path);
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        if let Some(lock) = take(path) {
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
            assert!(take(&path).is_some(), "{text:?}");
        }
        // Earlier versions wrote the time at which the lock ends, instead of its duration.
        fs::write(&path, "abc 1795413600 7\n").expect("a file");
        age(&path, 3601);
        assert!(take(&path).is_some());
    }
}
