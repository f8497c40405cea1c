//! The program that runs a pool's scripts, and how it is started.
//!
//! The manager executes php-fpm (or php-cgi, php) with `LD_PRELOAD=weir-php-API….so`, the former LD_PRELOAD in
//! `WEIR_PHP_PRELOAD`, and the argument `--weir-php`. The object defines `__libc_start_main` and calls its own main
//! function, which restores LD_PRELOAD, removes variable and argument, and checks that PHP has the version for which
//! the object was compiled. PHP's symbols are undefined in the object: the loader binds all of them to the program's at
//! the start (`-z now`). Without the object, PHP's own main function refuses the argument and serves nothing.

use std::{
    ffi::{OsStr, OsString},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

/// A PHP program with weir-php's object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Major and minor version of PHP: `8.2`.
    pub version: String,
    /// The file that is executed.
    pub path: PathBuf,
    /// The object that is loaded into it.
    pub object: PathBuf,
}

impl Program {
    /// The arguments that come before all others.
    pub fn arguments(&self) -> Vec<OsString> {
        vec![ARGUMENT.into()]
    }

    /// The environment to start it with. `environment`: what it would be for any other program. weir-php restores
    /// LD_PRELOAD before anything else runs.
    pub fn environment(
        &self,
        mut environment: Vec<(OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let before = environment
            .iter()
            .position(|(name, _)| name == PRELOAD)
            .map(|at| environment.swap_remove(at).1)
            .unwrap_or_default();
        // With one of these variables, a php-cgi without the object would run a script and ignore its arguments.
        environment.retain(|(name, _)| name != VARIABLE && !OF_CGI.iter().any(|own| name == own));
        let mut preload = self.object.clone().into_os_string();
        if !before.is_empty() {
            preload.push(":");
            preload.push(&before);
        }
        environment.push((PRELOAD.into(), preload));
        environment.push((VARIABLE.into(), before));
        environment
    }

    /// Runs it on the command line, with this environment and no other.
    pub fn command(&self, environment: Vec<(OsString, OsString)>) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg0("weir-php")
            .args(self.arguments())
            .env_clear()
            .envs(self.environment(environment));
        command
    }

    /// For messages: the program, and the object in it.
    pub fn shown(&self) -> String {
        format!("{} with {}", self.path.display(), self.object.display())
    }
}

/// Whether the loader can find an object at this path: LD_PRELOAD has no quotes (ld.so(8)).
pub(super) fn can_be_preloaded(object: &Path) -> bool {
    let path: &OsStr = object.as_os_str();
    object.is_absolute() && !path.as_bytes().iter().any(|byte| b" :$".contains(byte))
}

/// The loader loads the objects in this variable before the program's own libraries (ld.so(8)).
const PRELOAD: &str = "LD_PRELOAD";

/// The variable with the LD_PRELOAD with which weir was started; php/preload.c has the same name.
const VARIABLE: &str = "WEIR_PHP_PRELOAD";

/// weir-php's object acts only with this argument, and PHP's own programs refuse it; php/preload.c has the same text.
const ARGUMENT: &str = "--weir-php";

/// The variables by which php-cgi knows that a web server has started it.
const OF_CGI: [&str; 4] = [
    "SERVER_SOFTWARE",
    "SERVER_NAME",
    "GATEWAY_INTERFACE",
    "REQUEST_METHOD",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_the_same_names() {
        let source = include_str!("../../../../php/preload.c");
        assert!(source.contains(&format!("#define VARIABLE \"{VARIABLE}\"")));
        assert!(source.contains(&format!("#define ARGUMENT \"{ARGUMENT}\"")));
    }

    #[test]
    fn the_operator_s_own_preload_stays_behind_ours() {
        let program = Program {
            version: "8.2".into(),
            path: "/usr/sbin/php-fpm8.2".into(),
            object: "/o".into(),
        };
        let of = |own: &[(&str, &str)]| {
            let own = own.iter().map(|(name, value)| (name.into(), value.into()));
            let mut all = program.environment(own.collect());
            all.sort();
            let text = |(name, value): &(OsString, OsString)| {
                format!("{}={}", name.display(), value.display())
            };
            all.iter().map(text).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(&[("A", "1")]), "A=1 LD_PRELOAD=/o WEIR_PHP_PRELOAD=");
        assert_eq!(
            of(&[("LD_PRELOAD", "j"), ("REQUEST_METHOD", "GET")]),
            "LD_PRELOAD=/o:j WEIR_PHP_PRELOAD=j"
        );
        assert!(can_be_preloaded(Path::new("/usr/lib/weir/a.so")));
        for no in ["/a b/a.so", "/a:b/a.so", "/$LIB/a.so", "a.so"] {
            assert!(!can_be_preloaded(Path::new(no)), "{no}");
        }
    }
}
