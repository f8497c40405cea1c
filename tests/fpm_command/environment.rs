//! Which variables of php-fpm's environment php.ini and scripts see, in both programs.

use std::fs;

use crate::{
    starts::configuration,
    support::{PHP_FPM, Place, Running, get},
};

const LOOK: &str = r#"<?php
echo ini_get('user_agent'), '|', ini_get('from'), '|', php_ini_loaded_file(), '|', php_ini_scanned_files(), "\n";
echo PHP_CONFIG_FILE_PATH, '|', PHP_CONFIG_FILE_SCAN_DIR, "\n";
$all = getenv();
ksort($all);
foreach ($all as $name => $value) if (!isset($_SERVER['REQUEST_URI'][0]) || !isset($_SERVER[$name]) || $_SERVER[$name] === $value) echo "$name=$value\n";
var_export(array_intersect_key($_ENV, $all) == $_ENV);
foreach ([INFO_GENERAL, INFO_GENERAL | INFO_LICENSE] as $what) {
    ob_start();
    phpinfo($what);
    preg_match_all('~<tr><td class="e">(Configuration File|Loaded Configuration|Scan this|Additional).*?</tr>~s', ob_get_clean(), $rows);
    echo implode("\n", $rows[0]);
}
"#;

const SCAN_DIR: &str = "PHP_INI_SCAN_DIR";

/// Starts both with this environment, and checks that the answers are equal.
fn same(place: &Place, arguments: &[&str], environment: &[(&str, String)]) -> String {
    let environment: Vec<(&str, &str)> = environment
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let [theirs, ours] = [false, true].map(|weir| {
        let program = if weir { place.weir() } else { PHP_FPM.clone() };
        let _ = fs::remove_file(place.path("error.log"));
        let running = Running::start_in(&program, place, arguments, &environment);
        let answer = get(
            &place.path("fpm.sock"),
            &place.path("look.php"),
            "/look.php",
        );
        drop(running);
        answer.out
    });
    // PHP-FPM writes its process title over the variable, before its workers read it.
    let asked = |told: &str| {
        let is_asked = |line: &&str| {
            !line.contains("Scan this dir")
                || !environment.iter().any(|(name, _)| *name == SCAN_DIR)
        };
        told.lines().filter(is_asked).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(asked(&theirs), asked(&ours), "{environment:?}");
    ours
}

fn place(pool: &str) -> Place {
    let place = Place::new();
    place.write("php-fpm.conf", configuration("", pool));
    place.write("look.php", LOOK);
    for folder in ["scan", "more", "rc", "empty"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("scan/a.ini", "from = scanned ${FPM_TEST}\n");
    place.write("more/b.ini", "from = ${from} and more ${NO_SUCH}\n");
    place.write("rc/php.ini", "user_agent = rc ${FPM_TEST}\n");
    place.write("rc/other.ini", "user_agent = other ${FPM_TEST}\n");
    place.write("plain.ini", "user_agent = \"plain ${FPM_TEST} ${WHO}\"\n");
    place
}

#[test]
fn php_ini_may_name_variables_that_scripts_do_not_see() {
    for clear in ["yes", "no"] {
        let place = place(&format!(
            "clear_env = {clear}\nenv[WHO] = pool\nenv[USER] = me"
        ));
        let ini = place.path("plain.ini");
        let told = same(
            &place,
            &["-c", ini.to_str().unwrap()],
            &[("WHO", "outside".to_owned())],
        );
        assert!(told.contains("plain from outside outside"), "{told}");
        assert!(told.contains("\nWHO=pool\n"), "{told}");
        assert_eq!(told.contains("FPM_TEST="), clear == "no", "{told}");
    }
}

#[test]
fn folders_of_settings_are_those_that_the_environment_names() {
    let place = place("");
    let root = place.path("");
    let root = root.to_str().unwrap().trim_end_matches('/');
    for list in [
        format!(":{root}/scan"),
        format!("{root}/scan"),
        format!("{root}/scan::{root}/more"),
        format!("{root}/none:{root}/empty"),
        String::new(),
    ] {
        let told = same(&place, &[], &[(SCAN_DIR, list.clone())]);
        let scanned = told.contains("|scanned from outside");
        assert_eq!(scanned, list.contains("/scan"), "{list}: {told}");
        assert!(
            list.is_empty() || told.contains(&format!("{list} </td>")),
            "{list}: {told}"
        );
    }
    for place_of_ini in ["rc", "rc/other.ini", "none", "empty", ""] {
        let value = match place_of_ini {
            "" => String::new(),
            name => format!("{root}/{name}"),
        };
        let told = same(&place, &[], &[("PHPRC", value)]);
        let found = told.contains("rc from outside") || told.contains("other from outside");
        assert_eq!(
            found,
            place_of_ini.starts_with("rc"),
            "{place_of_ini}: {told}"
        );
    }
}
