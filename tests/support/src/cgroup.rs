//! Control groups of tests, which take the right to create one: see [`crate::goes_on_as_root`].

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::wait_until;

/// A control group with a limit of memory. It is removed when it is dropped, so end its processes before.
pub struct Group(PathBuf);

impl Group {
    /// A new one with this limit, bytes. Of either version of control groups (cgroups(7)).
    ///
    /// # Panics
    /// If the machine does not allow it.
    pub fn new(limit: u64) -> Group {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("weir-test-{}-{number}", std::process::id());
        for (root, file) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let folder = Path::new(root).join(&name);
            if fs::create_dir(&folder).is_ok() {
                if fs::write(folder.join(file), limit.to_string()).is_ok() {
                    return Group(folder);
                }
                let _ = fs::remove_dir(&folder);
            }
        }
        panic!(
            "this test needs a control group of its own: root must be able to create folders in /sys/fs/cgroup"
        );
    }

    /// Words before a command that run it in this group.
    pub fn enter(&self) -> [String; 3] {
        let join = format!(
            "echo $$ > \"{}/cgroup.procs\" && exec \"$0\" \"$@\"",
            self.0.display()
        );
        ["/bin/sh".to_owned(), "-c".to_owned(), join]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = fs::remove_dir(&self.0);
            return;
        }
        wait_until("the control group is empty", || {
            fs::remove_dir(&self.0).is_ok()
        });
    }
}
