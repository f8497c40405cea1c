//! Pools of weir's own PHP: masters and workers as processes, their rights, what they leave behind, and how they are
//! replaced.

mod builds;
mod environment;
mod hosts;
mod life;
mod reload;
mod rights;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::support::*;

/// A site whose scripts weir's own PHP runs. `pool` has the other lines of its pool.
pub fn php_site(pool: &str) -> Setup {
    let site = site_without_pool()
        .pool("runtime = \"php\"")
        .pool(pool)
        .log("access = \"off\"\nlevel = \"debug\"");
    let script = |name: &str, text: &str| old_script(&site.root().join(name), text);
    script("hello.php", "<?php echo 'hello';");
    script(
        "who.php",
        "<?php $s = file_get_contents('/proc/self/status'); preg_match('/PPid:\\s+(\\d+)/', $s, $m); \
         echo 'pid=', getmypid(), ' master=', $m[1], ' uid=', posix_getuid(), ' ';",
    );
    site
}

/// Waits for an answer of `who.php`.
pub fn who(weir: &Weir) -> Response {
    weir.get_until("/who.php", |answer| answer.text().contains("pid="))
}

/// Writes a script that OPcache caches. OPcache skips scripts that changed just now.
pub fn old_script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    let past = SystemTime::now() - Duration::from_secs(3_600);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(past).unwrap();
}

/// All descendants of a process, without the process itself.
pub fn offspring(pid: u32) -> Vec<u32> {
    let started = weir_test::process::descendants(pid).into_iter();
    started.map(|process| process.pid).collect()
}

/// A folder that everybody may enter.
pub fn folder(site: &Setup, name: &str) -> PathBuf {
    let path = site.path(name);
    fs::create_dir_all(&path).unwrap();
    mode(&path, 0o755);
    path
}
