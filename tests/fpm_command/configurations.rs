//! Configurations that people write, right and wrong: weir and php-fpm give the same messages and the same settings.

use std::path::PathBuf;

use crate::support::{Place, Said, is_root, web_user};

/// A valid pool without further settings.
const POOL: &str = "[global]
error_log = @/error.log
[www]
listen = @/fpm.sock
pm = static
pm.max_children = 1
";

#[track_caller]
fn same(text: &str) -> Said {
    let place = Place::new();
    let (fpm, weir) = place.test_both(text);
    assert_eq!(weir.text, fpm.text, "\n{text}");
    assert_eq!(weir.code, fpm.code, "\n{text}");
    weir
}

/// The pool, with its user and these lines.
fn pool(lines: &str) -> String {
    format!("{POOL}user = {}\n{lines}\n", web_user())
}

/// Both accept it, and show the same settings.
#[track_caller]
fn both_take(lines: &str) {
    let said = same(&pool(lines));
    assert_eq!(said.code, Some(0), "{}", said.text);
    assert!(said.text.contains("test is successful"), "{}", said.text);
}

/// Both refuse it, with the same messages.
#[track_caller]
fn both_refuse(lines: &str, why: &str) {
    let said = same(&pool(lines));
    assert_eq!(said.code, Some(78), "{lines}: {}", said.text);
    assert!(said.text.contains(why), "{lines}: {}", said.text);
}

#[test]
fn debian_s_own_configuration_is_shown_as_php_fpm_shows_it() {
    let place = Place::new();
    for arguments in [&["-t"][..], &["-tt"]] {
        let (fpm, weir) = place.both(arguments);
        assert_eq!(weir, fpm);
    }
}

#[test]
fn a_file_that_is_not_there_is_refused() {
    let place = Place::new();
    for arguments in [
        &["-t", "-y", "/no/such/file"][..],
        &["-t", "-p", "/no/such/folder"],
        &["-t", "-p", "/tmp"],
    ] {
        let (fpm, weir) = place.both(arguments);
        assert_eq!(weir, fpm);
        assert_eq!(weir.code, Some(78));
    }
}

#[test]
fn values_are_read_as_php_reads_them() {
    for line in [
        "env[A] = a b  c   ",
        "env[A] = a\"b\"c",
        "env[A] = \"a\"  b",
        "env[A] = a  \"b\"",
        "env[A] = 'a b'",
        "env[A] = ${FPM_TEST}",
        "env[A] = a${FPM_TEST}b",
        "env[A] = \"a ${FPM_TEST} b\"",
        "env[A] = ${FPM_NONE}y",
        "env[A] = $FPM_TEST",
        "env[$pool] = $pool.$pool",
        "env[A] = x;y",
        "env[A] = x # y",
        "env[A] = x$;y",
        "env[A] = a$\\\"b",
        "env[A] = a{b}c",
        "env[A] = TRUE",
        "env[A] = On",
        "env[A] = yesno",
        "env[A] = \"yes\"",
        "env[yes] = 1",
        "env[\"A\"] = -3",
        "env[E_ALL] = 3.5",
        "env[A] = 1|2",
        "env[A] = 1 2 | 4",
        "env[A] = !a",
        "env[A] = ~1",
        "env[A] = (a)",
        "env[A] = \"x \\\" y\"",
        "env[A] = \"x \\\\\"",
        "env[A] = \"C:\\dir\\\"",
        "env[A] = b\0c",
        "\0c",
        "\u{feff}env[A] = b",
        "env[A] = b\r",
        "php_value[error_reporting] = E_ALL & ~E_DEPRECATED & ~E_STRICT",
        "php_value[error_reporting] = E_ALL ^ E_NOTICE",
        "php_value[a] = \nphp_value[b] = no\nphp_flag[c] = on\nphp_admin_flag[d] = no\nphp_value[a] = 2",
        "; a comment\n   ; another\n\n\t\nclear_env = no ; a third",
        "request_terminate_timeout = 1m\nrequest_slowlog_timeout = 0",
        "listen.backlog = 511\nlisten.mode = 0600\nprocess.priority = -19",
        "rlimit_files = 1024\nrlimit_core = unlimited",
        "pm.max_requests = 99999999999",
        "pm.process_idle_timeout = 2d",
        "security.limit_extensions = FALSE",
        "access.suppress_path[] = /a\naccess.suppress_path[] = /b",
    ] {
        both_take(line);
    }
}

#[test]
fn mistakes_are_told_in_php_fpm_s_words() {
    for (line, why) in [
        ("env[A] = a=b", "unexpected '='"),
        ("env[A] = yes no", "unexpected BOOL_FALSE"),
        ("env[A] = \"abc", "unexpected end of file, expecting"),
        ("env[A] = ${}", "expecting TC_VARNAME"),
        ("env[A] = ${EV", "expecting '}'"),
        ("env[A]", "expecting '='"),
        ("env[A = x", "expecting ']'"),
        ("[abc", "expecting ']'"),
        ("env[A] = (1|2", "expecting '^' or '|' or '&' or ')'"),
        ("env[A] = ~", "unexpected END_OF_LINE"),
        ("env[A] = )", "unexpected ')'"),
        ("on = x", "unexpected BOOL_TRUE"),
        ("&", "unexpected '&'"),
        ("# no comment", "value is NULL"),
        ("quux = 1", "unknown entry 'quux'"),
        ("a]b = c", "unknown entry 'a]b'"),
        ("Include = x", "unknown entry 'Include'"),
        ("foo[a] = b", "unknown directive 'foo'"),
        ("env[] = x", "You must provide a key"),
        ("env[A] = ", "empty value"),
        ("env[A] = None", "empty value"),
        ("env[A] = ${FPM_NONE:-x}", "empty value"),
        ("env[A] = b\rquux = c", "unknown entry 'quux'"),
        ("pm.max_children = abc", "is not a valid number"),
        ("pm.process_idle_timeout = 5x", "unknown suffix"),
        ("pm.process_idle_timeout =", "invalid time value"),
        ("pm = foo", "invalid process manager"),
        ("clear_env = 2", "invalid boolean value"),
        ("php_flag[a] = maybe", "invalid boolean value"),
        (
            "rlimit_core = -1",
            "must be greater than zero or 'unlimited'",
        ),
        ("access.suppress_path[] = x", "must begin with '/'"),
        ("access.suppress_path[a] = x", "Keys provided"),
        (
            "[global]\nlog_level = loud",
            "invalid value for 'log_level'",
        ),
        ("[global]\nsyslog.facility = x", "invalid value"),
        ("[global]\npid = $pool.pid", "Can't use '$pool'"),
        ("[global]\nenv[A] = b", "Array are not allowed"),
        (
            "[global]\nprocess.max = -1",
            "process_max can't be negative",
        ),
        ("[global]\nprocess.priority = 30", "must be included into"),
        (
            "[global]\nlog_limit = 10",
            "log_limit must be greater than 512",
        ),
        ("[global]\nevents.mechanism = kqueue", "is not available"),
        (
            "[global]\nerror_log = /no/such/folder/log",
            "failed to open error_log",
        ),
    ] {
        both_refuse(line, why);
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn pools_are_checked_as_php_fpm_checks_them() {
    for (line, why) in [
        (
            "pm.max_children = 0",
            "pm.max_children must be a positive value",
        ),
        ("[other]\nuser = {user}", "no listen address"),
        (
            "[other]\nuser = {user}\nlisten = 1",
            "the process manager is missing",
        ),
        (
            "pm = dynamic",
            "pm.min_spare_servers(0) must be a positive value",
        ),
        (
            "pm = dynamic\npm.min_spare_servers = 1",
            "pm.max_spare_servers(0)",
        ),
        (
            "pm = dynamic\npm.min_spare_servers = 2\npm.max_spare_servers = 2",
            "cannot be greater than pm.max_children(1)",
        ),
        (
            "pm = dynamic\npm.max_children = 5\npm.min_spare_servers = 3\npm.max_spare_servers = 2",
            "must not be less than pm.min_spare_servers(3)",
        ),
        (
            "pm = dynamic\npm.max_children = 5\npm.min_spare_servers = 1\npm.max_spare_servers = 2\n\
             pm.start_servers = 3",
            "pm.start_servers(3) must not be less",
        ),
        (
            "pm = dynamic\npm.max_children = 5\npm.min_spare_servers = 1\npm.max_spare_servers = 2\n\
             pm.max_spawn_rate = 0",
            "pm.max_spawn_rate must be a positive value",
        ),
        (
            "pm = ondemand\npm.process_idle_timeout = 0",
            "must be greater than 0s",
        ),
        (
            "pm = ondemand\n[global]\nevents.mechanism = poll",
            "ondemand process manager can ONLY be used",
        ),
        ("process.priority = 21", "process.priority must be included"),
        ("pm.status_path = status", "must start with a '/'"),
        ("pm.status_path = /", "is not long enough"),
        ("pm.status_path = /a?b", "must contain only"),
        ("ping.path = ping", "must start with a '/'"),
        ("ping.path = /p\nping.response = ", "is not long enough"),
        (
            "prefix = /no/such/folder",
            "the prefix '/no/such/folder' does not exist",
        ),
        (
            "chroot = /no/such/folder",
            "the chroot path '/no/such/folder' does not exist",
        ),
        (
            "chroot = x/$prefix",
            "'$prefix' must be use at the beginning",
        ),
        (
            "chroot = $prefix/nowhere",
            "the chroot path '/usr//nowhere'",
        ),
        (
            "chdir = nowhere",
            "the chdir path '/usr/nowhere' does not exist",
        ),
        (
            "chroot = /usr\nchdir = /nowhere",
            "within the chroot path '/usr'",
        ),
        ("request_slowlog_timeout = 5", "'slowlog' must be specified"),
        (
            "request_slowlog_trace_depth = 5",
            "'slowlog' must be specified",
        ),
        (
            "slowlog = /no/such/folder/log\nrequest_slowlog_timeout = 5",
            "Unable to create or open slowlog",
        ),
        (
            "slowlog = @/slow\nrequest_slowlog_timeout = 5\nrequest_terminate_timeout = 2",
            "can't be greater than",
        ),
        (
            "slowlog = @/slow\nrequest_slowlog_trace_depth = -1",
            "must be a positive value",
        ),
        (
            "access.log = /no/such/folder/log",
            "failed to open access log",
        ),
        ("access.log = @/a\naccess.format = %z", "Invalid token"),
        (
            "access.log = @/a\naccess.format = \"%{x}C\"",
            "only 'total', 'user' or 'system'",
        ),
        (
            "access.log = @/a\naccess.format = \"%{x}m\"",
            "embrace is not allowed",
        ),
        (
            "access.log = @/a\naccess.format = %e",
            "must be set between embraces",
        ),
        (
            "listen.owner = nosuchuser",
            "cannot get uid for user 'nosuchuser'",
        ),
        (
            "listen.group = nosuchgroup",
            "cannot get gid for group 'nosuchgroup'",
        ),
        (
            "group = nosuchgroup",
            "cannot get gid for group 'nosuchgroup'",
        ),
        (
            "[other]\nuser = {user}\nlisten = @/fpm.sock\npm = static\npm.max_children = 1",
            "already used in another pool",
        ),
        (
            "pm.status_listen = @/fpm.sock",
            "already used in another pool",
        ),
    ] {
        both_refuse(&line.replace("{user}", &web_user()), why);
    }
}

#[test]
fn what_php_fpm_fills_in_is_shown() {
    for line in [
        "pm = dynamic\npm.max_children = 9\npm.min_spare_servers = 2\npm.max_spare_servers = 7",
        "pm = ondemand\npm.start_servers = 3",
        "pm = ondemand\nlisten.backlog = -5",
        "pm.status_listen = @/status.sock",
        "pm.status_path = /s\npm.status_listen = 9999",
        "ping.path = /ping",
        "ping.response = unused",
        "prefix = @/\nlisten = run/$pool.sock\naccess.log = $pool.log",
        "php_admin_value[error_log] = log/php.log\nphp_admin_value[extension_dir] = ext",
        "php_admin_value[error_log] = syslog\nphp_value[sendmail_path] = x",
        "chroot = /usr\nchdir = /bin\nphp_admin_value[error_log] = log",
        "[WWW]\npm.max_children = 7\n[Global]\nprocess.max = 4",
        "[global]\npid = run/fpm.pid\nsyslog.facility = local7\nsystemd_interval = 0",
        "[global]\nlog_level = warning",
        "[global]\nerror_log = syslog",
        "[global]\nevents.mechanism = SELECT",
    ] {
        let said = same(&pool(line));
        assert_eq!(said.code, Some(0), "{line}\n{}", said.text);
    }
}

#[test]
fn a_configuration_without_pools_or_without_a_user_is_refused() {
    let said = same("[global]\nerror_log = @/error.log\n");
    assert!(said.text.contains("No pool defined"), "{}", said.text);
    let said = same(POOL);
    match is_root() {
        true => assert!(
            said.text.contains("user has not been defined"),
            "{}",
            said.text
        ),
        false => assert_eq!(said.code, Some(0), "{}", said.text),
    }
}

#[test]
fn includes_are_found_as_php_fpm_finds_them() {
    let place = Place::new();
    std::fs::create_dir(place.path("pool.d")).unwrap();
    let user = web_user();
    for (name, listen) in [("b", 1), ("a", 2), ("c.disabled", 3)] {
        place.write(
            &format!("pool.d/{name}.conf"),
            format!("[{name}]\nuser={user}\nlisten={listen}\npm=static\npm.max_children=1\n"),
        );
    }
    std::fs::rename(
        place.path("pool.d/c.disabled.conf"),
        place.path("pool.d/c.disabled"),
    )
    .unwrap();
    std::fs::create_dir(place.path("pool.d/d.conf")).unwrap();
    let (fpm, weir) = place.test_both("[global]\nerror_log=@/error.log\ninclude=@/pool.d/*.conf\n");
    assert_eq!(weir, fpm);
    assert_eq!(weir.code, Some(0), "{}", weir.text);
    let at = |text: &str| weir.text.find(text).unwrap();
    assert!(at("[a]") < at("[b]"));

    place.write("itself.conf", "include=@/itself.conf\n");
    place.write("wrong.conf", "quux=1\n");
    for (include, why) in [
        (
            "@/itself.conf",
            "failed to include more than 5 files recursively",
        ),
        ("@/wrong.conf", "Unable to include"),
        ("/no/such/folder/*.conf", "Unable to globalize"),
    ] {
        let text = format!("include={include}\n[global]\nerror_log=@/error.log\n");
        let (fpm, weir) = place.test_both(&text);
        assert_eq!(weir, fpm);
        assert!(weir.text.contains(why), "{}", weir.text);
    }
    let (fpm, weir) = place.test_both(pool("include=/no/such/file"));
    assert_eq!(weir, fpm);
    assert!(
        weir.text
            .contains("WARNING: Nothing matches the include pattern")
    );
    // Relative patterns are relative to the prefix.
    let prefix = PathBuf::from(place.path("pool.d").parent().unwrap());
    let file = place.write(
        "relative.conf",
        "[global]\nerror_log=@/error.log\ninclude=pool.d/a*\n",
    );
    let arguments = [
        "-tt",
        "-p",
        prefix.to_str().unwrap(),
        "-y",
        file.to_str().unwrap(),
    ];
    let (fpm, weir) = place.both(&arguments);
    assert_eq!(weir, fpm);
    assert_eq!(weir.code, Some(0), "{}", weir.text);
}

/// PHP-FPM continues its count of lines after an include; weir counts the lines of each file correctly.
#[test]
fn lines_behind_an_include_are_counted_rightly() {
    let place = Place::new();
    place.write("included.conf", ";\n;\n;\n");
    let (fpm, weir) =
        place.test_both("[global]\nerror_log=@/error.log\ninclude=@/included.conf\nquux=1\n");
    assert_eq!(weir.code, fpm.code);
    assert!(
        weir.text.contains("php-fpm.conf:4] unknown entry 'quux'"),
        "{}",
        weir.text
    );
}

/// PHP-FPM accepts any bytes as values.
#[test]
fn values_that_are_no_utf_8_are_refused() {
    let place = Place::new();
    let text = [pool("env[A] = ").trim_end().as_bytes(), b"\xff\n"].concat();
    let root = place.path("");
    let text = String::from_utf8_lossy(&text).replace("@/", root.to_str().unwrap());
    let bytes: Vec<u8> = text.replace('\u{fffd}', "\u{1}").bytes().collect();
    let bytes: Vec<u8> = bytes
        .into_iter()
        .map(|b| if b == 1 { 0xff } else { b })
        .collect();
    let (fpm, weir) = place.test_both(bytes);
    assert_eq!((fpm.code, weir.code), (Some(0), Some(78)));
    assert!(weir.text.contains("is not UTF-8"), "{}", weir.text);
}
