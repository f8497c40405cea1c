//! Disks that are small, so that a test can fill them.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::is_root;

/// The words of a command that runs another command with one megabyte of disk at `folder`: a file system that
/// disappears with the process. Where mounting is forbidden, as in many containers, the command limits the size of
/// files instead.
pub fn small_disk(folder: &str) -> Vec<String> {
    let user = rustix::process::geteuid().as_raw();
    let (sudo, back): (&[&str], _) = match is_root() {
        true => (&[], String::new()),
        false => (
            &["sudo", "-n"],
            format!("setpriv --reuid={user} --clear-groups "),
        ),
    };
    let script = format!(
        "mount --make-rprivate / 2>/dev/null; \
         mount -t tmpfs -o size=1m,mode=1777 tmpfs \"$0\" && exec {back}\"$@\""
    );
    let unshare = [
        "unshare",
        "--mount",
        "--propagation",
        "unchanged",
        "sh",
        "-c",
    ];
    let words = |last: &[&str]| -> Vec<String> {
        let all = sudo.iter().chain(&unshare).chain(last);
        all.map(|word| word.to_string()).collect()
    };
    let trial = words(&[&script, folder, "true"]);
    let allowed = Command::new(&trial[0]).args(&trial[1..]).output();
    if allowed.is_ok_and(|output| output.status.success()) {
        return words(&[&script, folder]);
    }
    // In blocks of 512 bytes, and without the signal that would end the process.
    let limit = "trap '' XFSZ; ulimit -f 2048; exec \"$@\"";
    ["sh", "-c", limit, "sh"].map(str::to_owned).to_vec()
}

/// A disk of 64 KB in a mount namespace of its own, for programs that run one after the other. Needs root.
pub struct Disk {
    /// The namespace ends with it.
    holder: Child,
    folder: PathBuf,
}

impl Disk {
    /// At a folder that exists.
    #[track_caller]
    pub fn at(folder: &Path) -> Disk {
        let script = "mount -t tmpfs -o size=64k tmpfs \"$0\" && echo && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut line = [0];
        let output = holder.stdout.as_mut().expect("a pipe");
        output.read_exact(&mut line).expect("a mounted disk");
        Disk {
            holder,
            folder: folder.to_owned(),
        }
    }

    /// The words of a command that runs another command with this disk.
    pub fn under(&self) -> Vec<String> {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.holder.id());
        vec!["nsenter".to_owned(), namespace]
    }

    /// Fills it to the last byte.
    #[track_caller]
    pub fn fill(&self) {
        let mut file = fs::File::create(self.filler()).expect("a file");
        loop {
            match file.write(&[b'x'; 4096]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Removes what filled it.
    #[track_caller]
    pub fn make_room(&self) {
        fs::remove_file(self.filler()).expect("the disk was filled");
    }

    fn filler(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.holder.id());
        let folder = self.folder.strip_prefix("/").expect("a whole path");
        Path::new(&root).join(folder).join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
