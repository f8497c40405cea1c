//! Which pools share a template: those that load PHP in the same way, if there are at least two.

use std::rc::Rc;

use weir_config::Config;
use weir_sys::{identity::Identity, limits};

use super::Runs;
use crate::php::{Fields, Load, Loading, Spec};

/// Decides for all pools. `own`: the user of the process that loads PHP for several pools, if weir has root's rights; `None`: there is
/// no free user number.
pub(super) fn share(runs: &mut [Option<Runs>], is_root: bool, own: Option<&Identity>) {
    let specs = runs.iter_mut().filter_map(|runs| match runs {
        // Nobody else has it yet.
        Some(Runs::Php(spec)) => Rc::get_mut(spec),
        _ => None,
    });
    let mut shared: Vec<(Load, Vec<&mut Spec>)> = Vec::new();
    for spec in specs {
        match load_of(spec, is_root, own) {
            Err(why) => spec.loading = Loading::Own(why),
            Ok(load) => match shared.iter_mut().find(|(other, _)| *other == load) {
                Some((_, specs)) => specs.push(spec),
                None => shared.push((load, vec![spec])),
            },
        }
    }
    for (mut load, specs) in shared {
        let is_alone = specs.len() == 1;
        if !specs
            .iter()
            .any(|spec| spec.config.iter().any(is_of_opcache))
        {
            load.config.push(("opcache_is_alike", b"1".to_vec()));
        }
        let load = Rc::new(load);
        for spec in specs {
            spec.loading = match is_alone {
                // A second process would cost memory and help nobody.
                true => Loading::Own("no other pool loads the same PHP"),
                false => Loading::Shared(load.clone()),
            };
        }
    }
}

/// How each pool's PHP is loaded if this user starts weir: the number of its load, which others may share, or why it loads for itself.
/// `None` for other pools; `None` for all: this user cannot start weir.
pub fn of_pools(config: &Config) -> Option<Vec<Option<Result<usize, &'static str>>>> {
    let plan = super::make(config, limits::open_files()).ok()?;
    let mut loads: Vec<Rc<Load>> = Vec::new();
    let mut number = |load: &Rc<Load>| {
        let known = loads.iter().position(|other| Rc::ptr_eq(other, load));
        known.unwrap_or_else(|| {
            loads.push(load.clone());
            loads.len() - 1
        })
    };
    let of_one = |runs: &Option<Runs>| match runs {
        Some(Runs::Php(spec)) => Some(match &spec.loading {
            Loading::Shared(load) => Ok(number(load)),
            Loading::Own(why) => Err(*why),
        }),
        _ => None,
    };
    Some(plan.runs.iter().map(of_one).collect())
}

/// What a pool loads; or why it has to do so for itself.
fn load_of(spec: &Spec, is_root: bool, own: Option<&Identity>) -> Result<Load, &'static str> {
    if spec.own_load {
        return Err("php_load = \"own\"");
    }
    match (&spec.identity, own) {
        (Some(who), Some(_)) if who.uid == 0 => return Err("its user is root"),
        (None, _) if is_root => return Err("its user is root"),
        (Some(_), None) => {
            return Err(
                "no free user number was found for a process that loads PHP for several pools",
            );
        }
        _ => {}
    }
    if let Some(why) = spec.config.iter().find_map(needs_own_load) {
        return Err(why);
    }
    let is_read = |(key, value): &&(&str, Vec<u8>)| match *key {
        "php_ini" | "no_ini" | "fpm" => true,
        "define" => !is_late(name_of(value)),
        _ => false,
    };
    Ok(Load {
        program: spec.program.clone(),
        environment: spec.environment.clone(),
        config: spec
            .config
            .iter()
            .filter(is_read)
            .cloned()
            .collect::<Fields>(),
        identity: spec.identity.as_ref().and(own).cloned(),
    })
}

/// php_value and the like: those that PHP reads only while it is loaded.
fn needs_own_load((key, value): &(&str, Vec<u8>)) -> Option<&'static str> {
    if *key != "ini" {
        return None;
    }
    let behind = value.iter().position(|byte| *byte == b' ')?;
    match name_of(&value[behind + 1..]) {
        b"extension" | b"zend_extension" => Some("it loads extensions of its own"),
        name if name.starts_with(b"apc.") => Some("it has settings of APCu of its own"),
        name if name.starts_with(b"opcache.") && !is_late(name) => {
            Some("it has settings of OPcache that are read while PHP is loaded")
        }
        _ => None,
    }
}

/// Whether this is a setting of OPcache: php_define, php_value or the like.
fn is_of_opcache((key, value): &(&str, Vec<u8>)) -> bool {
    let setting = match *key {
        "define" => Some(&value[..]),
        // "admin NAME=VALUE"
        "ini" => (value.iter().position(|byte| *byte == b' ')).map(|at| &value[at + 1..]),
        _ => None,
    };
    setting.is_some_and(|setting| setting.starts_with(b"opcache."))
}

/// The name in "NAME=VALUE".
fn name_of(setting: &[u8]) -> &[u8] {
    let end = setting.iter().position(|byte| *byte == b'=');
    &setting[..end.unwrap_or(setting.len())]
}

/// Whether OPcache reads this setting when it makes its memory, which each master does for itself.
fn is_late(name: &[u8]) -> bool {
    LATE.iter().any(|late| late.as_bytes() == name)
}

const LATE: [&str; 20] = [
    "opcache.memory_consumption",
    "opcache.interned_strings_buffer",
    "opcache.max_accelerated_files",
    "opcache.max_wasted_percentage",
    "opcache.validate_timestamps",
    "opcache.validate_permission",
    "opcache.revalidate_freq",
    "opcache.revalidate_path",
    "opcache.use_cwd",
    "opcache.save_comments",
    "opcache.record_warnings",
    "opcache.enable_file_override",
    "opcache.file_update_protection",
    "opcache.max_file_size",
    "opcache.blacklist_filename",
    "opcache.force_restart_timeout",
    "opcache.optimization_level",
    "opcache.log_verbosity_level",
    "opcache.restrict_api",
    "opcache.preload",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_that_are_read_after_the_fork_are_late() {
        let needs = |setting: &str| needs_own_load(&("ini", format!("admin {setting}").into()));
        for setting in [
            "opcache.memory_consumption=64",
            "memory_limit=1G",
            "opcache.preload=/a",
        ] {
            assert_eq!(needs(setting), None, "{setting}");
        }
        for setting in [
            "extension=redis",
            "zend_extension=xdebug",
            "apc.shm_size=1M",
            "opcache.enable=0",
            "opcache.jit_buffer_size=64M",
            "opcache.file_cache=/tmp",
            "opcache.preload_user=www-data",
        ] {
            assert!(needs(setting).is_some(), "{setting}");
        }
        assert_eq!(needs_own_load(&("env", b"opcache.enable=0".to_vec())), None);
    }

    #[test]
    fn settings_of_opcache_are_known_wherever_they_are() {
        let is = |key, value: &str| is_of_opcache(&(key, value.into()));
        assert!(is("ini", "admin opcache.memory_consumption=64"));
        assert!(is("ini", "user opcache.revalidate_freq=0"));
        assert!(is("define", "opcache.preload=/a"));
        assert!(!is("ini", "admin memory_limit=1G"));
        assert!(!is("define", "memory_limit=1G"));
        assert!(!is("env", "opcache.enable=0"));
    }
}
