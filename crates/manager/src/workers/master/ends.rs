//! How masters end that have not loaded PHP.

use std::path::Path;

use weir_sys::process::Exit;

/// Why a PHP program has ended without weir-php in it.
pub(super) fn not_loaded(program: &Path, object: &Path, words: &str) -> String {
    let loader = words.split(" / ").find(|line| {
        ["ld.so: ", "symbol lookup error", "error while loading"]
            .iter()
            .any(|text| line.contains(text))
    });
    let said = loader.map_or(String::new(), |line| {
        format!("; the loader's message: {line}")
    });
    let profile = match weir_machine::php::apparmor_profile(program) {
        Some(name) => {
            format!("; the AppArmor profile {name} is enforced for it and may forbid that")
        }
        None => String::new(),
    };
    format!(
        "{} has run without weir-php, and has ended: {} was not loaded (LD_PRELOAD, ld.so(8)){said}{profile}",
        program.display(),
        object.display()
    )
}

/// How a PHP program ends if weir-php was not loaded into it: php-fpm, php-cgi and php refuse weir's argument, and the loader
/// ends a program if a symbol is missing. weir-php itself never ends like this before PHP is loaded.
pub(super) const NOT_LOADED: [Exit; 3] = [Exit::Code(64), Exit::Code(1), Exit::Code(127)];

/// So many masters of a pool that are killed in a row while they load PHP are replaced at once.
pub(super) const MOST_KILLED: u32 = 10;
