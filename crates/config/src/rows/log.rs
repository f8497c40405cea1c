//! The keys of `[log]`.

use super::{
    Default::{Absent, Value},
    Kind, Row,
    Section::Log,
    key,
};

#[rustfmt::skip]
pub(super) const LOG: &[Row] = &[
    key(&[Log], "access", Kind::LogTarget, Value("\"stdout\""),
        "Access log: a file, `\"stdout\"`, `\"stderr\"` or `\"off\"`. Files are reopened at SIGUSR1.")
        .called(&["access_log", "CustomLog"]),
    key(&[Log], "format", Kind::LogFormat, Value("\"combined\""),
        "Format of the access log: `\"combined\"`, `\"json\"` or a template.").called(&["access_format", "log_format", "LogFormat"]),
    key(&[Log], "egress", Kind::LogTarget, Absent("with `format = \"json\"` the same as `access`; otherwise `egress.log` in its folder, or `\"stderr\"` if it is no file"),
        "Log of outgoing calls. By default the calls are not in an access log of another format, because few programs can read two kinds of lines in one file.").like("\"/var/log/weir/egress.log\""),
    key(&[Log], "error", Kind::LogTarget, Value("\"stderr\""),
        "Error log: a file, `\"stderr\"`, `\"stdout\"`, `\"syslog\"` or `\"off\"`.").called(&["error_log", "ErrorLog"]).like("\"/var/log/weir/error.log\""),
    key(&[Log], "level", Kind::Word(&["error", "warning", "notice", "debug"], &[]), Value("\"notice\""),
        "Lowest severity that is logged: `\"error\"`, `\"warning\"`, `\"notice\"` or `\"debug\"`.")
        .called(&["log_level", "LogLevel"]),
    key(&[Log], "error_format", Kind::Word(&["weir", "json", "fpm"], &[]), Value("\"weir\""),
        "Format of the error log: `\"weir\"`; `\"json\"` for one object a line; or `\"fpm\"` for PHP-FPM's messages, which existing scripts may search for. With `\"fpm\"`, spare workers are also started and stopped once a second, as in PHP-FPM, and the status page counts them in the same way."),
    key(&[Log], "error_limit", Kind::Size { min: 512, max: 16 << 20 }, Value("\"1K\""),
        "Maximum length of a line in PHP-FPM's format. Longer worker output continues on the next line, longer PHP messages are cut.")
        .called(&["log_limit"]),
    key(&[Log], "error_buffering", Kind::Bool, Value("true"),
        "In PHP-FPM's format, write worker output line by line, not as it arrives.")
        .called(&["log_buffering"]),
    key(&[Log], "syslog_ident", Kind::Text, Value("\"weir\""),
        "Program name of messages in syslog.").called(&["syslog.ident"]),
    key(&[Log], "syslog_facility", Kind::Word(FACILITY_NAMES, &[]), Value("\"daemon\""),
        "Facility of messages in syslog.").called(&["syslog.facility"]),
];

/// syslog(3)'s facilities, in its order, with its numbers.
pub(crate) const FACILITIES: &[(&str, u8)] = &[
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("cron", 9),
    ("authpriv", 10),
    ("ftp", 11),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

const FACILITY_NAMES: &[&str] = &[
    "daemon", "user", "mail", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
    "kern", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];
