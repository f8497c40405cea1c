//! Scripts see the same values under weir-php as under PHP-FPM: equal requests to both give equal answers.

use super::{fpm::Both, support::*};

/// Prints all values that a script gets, except those that differ in every run.
const DUMP: &str = r#"<?php
foreach (['REQUEST_TIME', 'REQUEST_TIME_FLOAT'] as $time) {
    if (abs($_SERVER[$time] - microtime(true)) > 60) echo "wrong $time\n";
    unset($_SERVER[$time], $_ENV[$time]);
}
echo "server "; var_export($_SERVER);
echo "\nenv "; var_export($_ENV);
echo "\ngetenv "; var_export(getenv());
echo "\none "; var_export([getenv('SCRIPT_NAME'), getenv('SCRIPT_NAME', true), getenv('PROCESS_VALUE'), getenv('NONE'), getenv('FCGI_ROLE')]);
echo "\nfilter "; var_export([filter_input(INPUT_SERVER, 'REQUEST_URI'), filter_input(INPUT_ENV, 'PROCESS_VALUE')]);
echo "\nheaders "; var_export(getallheaders()); var_export(apache_request_headers());
echo "\nargv "; var_export([$argv ?? null, $argc ?? null]);
echo "\nrest "; var_export([$_GET, $_POST, $_COOKIE, $_FILES, $_REQUEST, PHP_SAPI, __FILE__, __DIR__, getcwd(), get_included_files(), php_ini_loaded_file()]);
"#;

#[test]
fn variables_of_server_and_environment() {
    for settings in [
        &[][..],
        &["variables_order=EGPCS", "register_argc_argv=1"],
        &["auto_globals_jit=0", "request_order=GPC"],
        &["variables_order=GP", "cgi.fix_pathinfo=0"],
    ] {
        let mut both = Both::start(settings);
        both.site.script("a/dump.php", DUMP);
        let plain = Request::get(&both.site, "/a/dump.php?one=1&two[]=2&a+b");
        for request in [
            plain.clone(),
            plain.clone().with("QUERY_STRING", "x+y+z"),
            plain.clone().with("HTTP_COOKIE", "a=b; c=%20d; e[f]=g"),
            plain.clone().with("HTTP_X_LONG", &"x".repeat(60_000)),
            plain.clone().with("HTTP_X.DOT", "1").with("A[B]", "2"),
            plain.clone().with("12", "number").with("EMPTY", ""),
            plain.clone().with("PATH_INFO", "/more"),
            plain.clone().with("USER", "of the request"),
            plain.clone().with("CONTENT_TYPE", "text/plain"),
            plain
                .clone()
                .with("HTTP_AUTHORIZATION", "Basic dXNlcjpwYXNz"),
            plain.clone().with("HTTP_AUTHORIZATION", "Digest x=y"),
            plain.clone().with("HTTP_CONTENT_LENGTH", "7"),
            plain.clone().without("QUERY_STRING"),
            plain.clone().without("DOCUMENT_ROOT"),
            plain.clone().without("SCRIPT_NAME"),
            plain.clone().without("SERVER_NAME"),
        ] {
            both.same(&request);
        }
    }
}

/// More names than a worker keeps, some of which it meets again, and some with the same place.
#[test]
fn any_names_of_parameters() {
    let mut both = Both::start(&[]);
    both.site.script(
        "a.php",
        "<?php $copy = $_SERVER; ksort($copy); unset($_SERVER['HTTP_X0']); $_SERVER['HTTP_X1'] = 'changed';
         unset($copy['REQUEST_TIME'], $copy['REQUEST_TIME_FLOAT']); var_export($copy); var_export(array_keys($_SERVER));",
    );
    for round in 0..8 {
        let mut request = Request::get(&both.site, "/a.php");
        for index in 0..200 {
            let number = index * 7 + round % 4;
            let value = format!("{round} {index}");
            let name = match index % 5 {
                0 => format!("HTTP_X{}", index / 5),
                1 => format!("HTTP_NAME_{number}"),
                2 => format!("X{number}_{}", "Y".repeat(number % 80)),
                3 => format!("a{number}b"),
                _ => format!("{number}_N"),
            };
            request = request.with(&name, &value);
        }
        both.same(&request);
    }
}

#[test]
fn functions_classes_and_settings() {
    let mut both = Both::start(&[]);
    for script in [
        "<?php var_export(get_extension_funcs('cgi-fcgi')); var_export(extension_loaded('cgi-fcgi'));",
        "<?php foreach (get_extension_funcs('cgi-fcgi') as $f) echo new ReflectionFunction($f);",
        "<?php $a = get_defined_functions()['internal']; sort($a); echo implode(\"\\n\", $a);",
        "<?php $a = get_loaded_extensions(); sort($a); echo implode(\"\\n\", $a);",
        "<?php $a = get_defined_constants(true); unset($a['user']); ksort($a);
         echo implode(' ', array_map(fn($name) => \"$name: \" . implode(' ', array_keys($a[$name])) . \"\\n\", array_keys($a)));",
        // PHP_BINARY is the program that runs.
        "<?php $a = get_defined_constants(true)['Core']; if ($a['PHP_BINARY'] !== '' && !is_executable($a['PHP_BINARY'])) echo 'no program';
         unset($a['PHP_BINARY']); foreach ($a as $name => $value) echo \"$name=\", var_export($value, true), \"\\n\";",
        "<?php $a = get_declared_classes(); sort($a); echo implode(\"\\n\", $a);",
        "<?php var_export(ini_get_all());",
        "<?php echo PHP_SAPI, php_sapi_name(), PHP_OS, php_ini_scanned_files(), php_ini_loaded_file();",
        "<?php ob_start(); phpinfo(INFO_MODULES);
         preg_match('~cgi-fcgi.*?</table>.*?</table>~s', ob_get_clean(), $found); echo $found[0];",
        "<?php ob_start(); phpinfo(INFO_GENERAL);
         preg_match('~Server API.*~', ob_get_clean(), $found); echo $found[0];",
    ] {
        both.same_script(script);
    }
}

/// Prints what a script is told about its path.
const PATHS: &str = r#"<?php
foreach ($_SERVER as $name => $value) if (preg_match('~^(ORIG_|PATH|SCRIPT|PHP_SELF|DOCUMENT_ROOT|REDIRECT|FCGI)~', $name)) echo "$name=$value\n";
echo __FILE__, getcwd(), "\n";
"#;

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn the_script_is_found_as_php_fpm_finds_it() {
    for settings in [
        &[][..],
        &["cgi.fix_pathinfo=0"],
        &["cgi.fix_pathinfo=0", "cgi.discard_path=1"],
        &["doc_root=/tmp"],
    ] {
        let mut both = Both::start(settings);
        let site = &both.site;
        let root = site.root();
        site.script("a.php", PATHS);
        site.script("b/c.php", PATHS);
        site.script("b/c.php5", PATHS);
        site.script("with space.php", PATHS);
        let (a, c) = (format!("{root}/a.php"), format!("{root}/b/c.php"));
        let plain = Request::get(site, "/a.php");
        let file = |path: &str| plain.clone().with("SCRIPT_FILENAME", path);
        let requests = [
            // A path after the script, which the front end has split off or not.
            file(&format!("{a}/more")),
            file(&format!("{a}/more")).with("PATH_INFO", "/more"),
            file(&format!("{a}/more")).with("SCRIPT_NAME", "/a.php/more"),
            file(&format!("{a}/more"))
                .with("SCRIPT_NAME", "/a.php/more")
                .with("PATH_INFO", "/a.php/more"),
            file(&format!("{a}/more"))
                .with("SCRIPT_NAME", "/a.php")
                .with("PATH_INFO", "/a.php/more"),
            file(&format!("{a}/more"))
                .with("SCRIPT_NAME", "/other")
                .with("PATH_INFO", "/a.php/more"),
            file(&format!("{a}/more")).with("PATH_INFO", "/re"),
            file(&format!("{a}/more")).with("PATH_INFO", ""),
            file(&format!("{a}/more/and/more")).with("PATH_INFO", "/x/more/and/more"),
            file(&format!("{a}/")),
            file(&format!("{a}/")).with("PATH_INFO", "/"),
            file(&format!("{a}//")).with("PATH_INFO", "//"),
            file(&format!("{c}/x")).without("DOCUMENT_ROOT"),
            file(&format!("{c}/x"))
                .without("DOCUMENT_ROOT")
                .with("SCRIPT_NAME", "/b/c.php")
                .with("PATH_INFO", "/b/c.php/x"),
            file(&format!("{c}/x"))
                .with("DOCUMENT_ROOT", &format!("{root}/"))
                .with("PATH_INFO", "/b/c.php/x"),
            file(&format!("{a}/more"))
                .with("PATH_INFO", "/a.php/more")
                .with("PATH_TRANSLATED", &format!("{root}/more")),
            plain.clone().with("PATH_INFO", "/info"),
            plain
                .clone()
                .with("PATH_INFO", "/info")
                .with("PATH_TRANSLATED", &format!("{root}/info")),
            // No such file.
            file(&format!("{root}/none.php")),
            file(&format!("{root}/none.php/a")),
            file(&format!("{root}/none/none.php")),
            file(&root),
            file(&format!("{root}/")),
            file(&format!("{root}/b")),
            file("/"),
            file("a.php"),
            file("relative/a.php"),
            plain.clone().without("SCRIPT_FILENAME"),
            // Paths with `..`.
            file(&format!("{root}/b/../a.php")),
            file(&format!("{root}/b/..a.php")),
            file("../a.php"),
            file(&format!("{root}/b/..")),
            // Only PATH_TRANSLATED.
            plain
                .clone()
                .without("SCRIPT_FILENAME")
                .with("PATH_TRANSLATED", &a),
            plain.clone().with("PATH_TRANSLATED", &c),
            // Apache, with an Action.
            file("/usr/lib/cgi-bin/php")
                .with("PATH_TRANSLATED", &c)
                .with("REDIRECT_URL", "/b/c.php")
                .with("PATH_INFO", "/b/c.php"),
            file("/usr/lib/cgi-bin/php")
                .with("PATH_TRANSLATED", &format!("{c}/x"))
                .with("REDIRECT_URL", "/b/c.php/x")
                .with("PATH_INFO", "/b/c.php/x"),
            plain.clone().with("REDIRECT_URL", "/x"),
            plain
                .clone()
                .with("REDIRECT_URL", "/x")
                .with("PATH_INFO", "/y")
                .with("PATH_TRANSLATED", &format!("{root}/y")),
            // Apache, with mod_proxy_fcgi and mod_proxy_balancer.
            file(&format!("proxy:fcgi://127.0.0.1:9000{a}")),
            file(&format!("PROXY:FCGI://127.0.0.1:9000{a}?x=y")),
            file(&format!("proxy:fcgi://127.0.0.1:9000{a}/more"))
                .with("SCRIPT_NAME", "/a.php/more"),
            file(&format!("proxy:fcgi://127.0.0.1:9000{a}/more")).with("SCRIPT_NAME", "/a.php"),
            file(&format!("proxy:fcgi://127.0.0.1:9000{a}/m%20re?x"))
                .with("SCRIPT_NAME", "/a.php/m re"),
            file(&format!("proxy:fcgi://127.0.0.1:9000{a}/more"))
                .with("SCRIPT_NAME", "/a.php")
                .with("PATH_INFO", "/more"),
            file(&format!("proxy:fcgi://127.0.0.1:9000{a}/more"))
                .with("SCRIPT_NAME", "/a.php/more")
                .with("PATH_INFO", "/other"),
            file(&format!(
                "proxy:fcgi://127.0.0.1:9000{root}/with%20space.php"
            )),
            file(&format!("proxy:balancer://cluster{c}/x?y"))
                .with("SCRIPT_NAME", "/b/c.php/x")
                .with("REDIRECT_URL", "/z"),
            file("proxy:fcgi://127.0.0.1:9000"),
            file("proxy:fcgi://"),
            // IIS, which repeats the script's name.
            plain
                .clone()
                .with("SERVER_SOFTWARE", "Microsoft-IIS/7.5")
                .with("PATH_INFO", "/a.php/x"),
            plain
                .clone()
                .with("SERVER_SOFTWARE", "Microsoft-IIS/7.5")
                .with("PATH_INFO", "/a.php"),
            // Not an HTTP request.
            plain.clone().without("REQUEST_METHOD"),
        ];
        // It kills PHP-FPM's child.
        let empty = file("");
        for request in requests {
            both.same(&request);
        }
        let (_, ours) = both.ask(&empty);
        assert_eq!(ours.status(), "404 Not Found");
    }
}

#[test]
fn only_scripts_with_an_allowed_ending_run() {
    let site = Scripts::new();
    site.script("a.php", "<?php echo 'ran';");
    site.script("a.inc", "<?php echo 'ran';");
    site.script(".php", "<?php echo 'ran';");
    let config = site.config();
    let config = config
        .with("limit_extensions", ".php")
        .with("limit_extensions", ".phtml");
    let mut both = Both::start_with(site, &config);
    for (name, status) in [
        ("a.php", ""),
        ("a.inc", "403 Forbidden"),
        ("none.inc", "404 Not Found"),
    ] {
        let request = Request::get(&both.site, &format!("/{name}"));
        assert_eq!(both.same(&request).status(), status, "{name}");
    }
    let request = Request::get(&both.site, "/a.inc/a.php");
    both.same(&request);
}
