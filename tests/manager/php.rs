//! Pools of weir's own PHP: masters and workers as processes, their rights, what they leave behind, and how they are
//! replaced.

mod builds;
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
pub fn php_site(pool: &str) -> (Site, String) {
    let site = Site::new();
    let script = |name: &str, text: &str| old_script(&site.path("site").join(name), text);
    script("hello.php", "<?php echo 'hello';");
    script(
        "who.php",
        "<?php $s = file_get_contents('/proc/self/status'); preg_match('/PPid:\\s+(\\d+)/', $s, $m); \
         echo 'pid=', getmypid(), ' master=', $m[1], ' uid=', posix_getuid(), ' ';",
    );
    let text = text_of(&site, pool);
    (site, text)
}

/// The configuration of a site, with this pool.
pub fn text_of(site: &Site, pool: &str) -> String {
    let text = site.text();
    let (before, rest) = text.split_once("[pool.php]").unwrap();
    let (_, log) = rest.split_once("[log]").unwrap();
    format!("{before}[pool.php]\nruntime = \"php\"\n{pool}\n[log]{log}level = \"debug\"\n")
}

/// Writes a script that OPcache caches. OPcache skips scripts that changed just now.
pub fn old_script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    let past = SystemTime::now() - Duration::from_secs(3_600);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(past).unwrap();
}

/// The body of an answer.
pub fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// A number that a script prints about itself: `who.php`.
pub fn number(answer: &str, name: &str) -> u32 {
    let (_, rest) = answer
        .split_once(&format!("{name}="))
        .unwrap_or_else(|| panic!("no {name} in {answer}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// All descendants of a process, without the process itself.
pub fn offspring(pid: u32) -> Vec<u32> {
    let started = weir_test::process::descendants(pid).into_iter();
    started.map(|process| process.pid).collect()
}

/// A folder that everybody may enter.
pub fn folder(site: &Site, name: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = site.path(name);
    fs::create_dir_all(&path).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}
