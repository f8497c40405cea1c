//! Which variables of weir's environment other processes get.
//!
//! It may contain secrets: tokens for `dns_command`, keys that `[egress]` names. Pools must not get these keys, and no
//! other process needs the variables that the service manager sets for weir.

use std::{env, ffi::OsStr, ffi::OsString, os::unix::ffi::OsStrExt};

use weir_config::Config;

/// Variables with their values.
pub(crate) type Variables = Vec<(OsString, OsString)>;

/// weir's environment for processes that are not weir: pools, PHP's masters, `dns_command`. Without what is for weir alone,
/// and without the secrets of `[egress]`.
pub(crate) fn for_others(config: &Config) -> Variables {
    let secrets = config.egress.as_ref().map(|egress| egress.variables());
    without(&secrets.unwrap_or_default(), env::vars_os())
}

/// The environment for the weir that takes over from this one.
pub(crate) fn for_successor() -> Variables {
    let is_ours = |name: &OsString| OF_THIS_PROCESS.iter().any(|own| name == own);
    env::vars_os().filter(|(name, _)| !is_ours(name)).collect()
}

/// Whether a PHP master may have this variable when it is executed, while other processes of its user can still read it. These
/// are the variables of the loader, of the C library and of allocators, which are used before the first line of a program,
/// and those that agents in LD_PRELOAD usually extend. No secrets are in them.
pub(crate) fn is_open(name: &OsStr) -> bool {
    let name = name.as_bytes();
    OPEN.iter().any(|open| match open.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix.as_bytes()),
        None => name == open.as_bytes(),
    })
}

fn without(secrets: &[&str], all: impl Iterator<Item = (OsString, OsString)>) -> Variables {
    let hidden = OF_THIS_PROCESS.iter().chain(&OF_WEIR).chain(secrets);
    all.filter(|(name, _)| hidden.clone().all(|hidden| name != hidden))
        .collect()
}

/// About this process alone (sd_listen_fds(3), sd_watchdog_enabled(3)).
const OF_THIS_PROCESS: [&str; 5] = [
    "LISTEN_PID",
    "LISTEN_PIDFDID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "WATCHDOG_PID",
];

/// What systemd tells weir, and the weir after an upgrade (systemd.exec(5), sd_notify(3)).
const OF_WEIR: [&str; 9] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "MAINPID",
    "MAINPIDFDID",
    "MANAGERPID",
    "MANAGERPIDFDID",
    "SYSTEMD_EXEC_PID",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
];

/// For [`is_open`].
const OPEN: [&str; 20] = [
    "ASAN_OPTIONS",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LD_*",
    "LOCPATH",
    "LSAN_OPTIONS",
    "MALLOC_*",
    "MIMALLOC_*",
    "PATH",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "TCMALLOC_*",
    "TMPDIR",
    "TZ",
    "TZDIR",
    "UBSAN_OPTIONS",
    "WEIR_PHP_PRELOAD",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_get_nothing_that_is_for_weir_and_no_secret() {
        let names = OF_THIS_PROCESS.iter().chain(&OF_WEIR);
        let names = names.chain(&["KEY", "LD_PRELOAD", "KEYS", "INVOCATION_ID"]);
        let all = names.map(|name| (name.into(), "1".into()));
        let left = without(&["KEY"], all).into_iter();
        let left: Vec<OsString> = left.map(|(name, _)| name).collect();
        assert_eq!(left, ["LD_PRELOAD", "KEYS", "INVOCATION_ID"]);
    }

    #[test]
    fn what_may_be_secret_is_not_open() {
        for name in ["LD_PRELOAD", "LC_ALL", "TZ", "MALLOC_CONF"] {
            assert!(is_open(OsStr::new(name)), "{name}");
        }
        for name in ["TZ_TOKEN", "LANG_KEY", "DNS_TOKEN", "HOME", "", "XLC_"] {
            assert!(!is_open(OsStr::new(name)), "{name}");
        }
    }
}
