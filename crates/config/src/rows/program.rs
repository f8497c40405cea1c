//! The keys of `[program.NAME]`.

use super::{
    Default::{Absent, Required, Value},
    Kind, Row, SIZE_MAX,
    Section::Program,
    key,
};

#[rustfmt::skip]
pub(super) const PROGRAM: &[Row] = &[
    key(&[Program], "command", Kind::Program, Required,
        "Program and its arguments. A name without a slash is searched in PATH. There is no shell: for pipes and `&&` write \
         `[\"sh\", \"-c\", \"…\"]`.").called(&["exec", "cmd", "run", "ExecStart"]).like("[\"php\", \"artisan\", \"queue:work\"]").begins("What runs, and when"),
    key(&[Program], "instances", Kind::Count { min: 1, max: 1_000 }, Value("1"),
        "Number of processes that always run.").called(&["numprocs", "processes", "replicas", "count"]),
    key(&[Program], "restart", Kind::Word(&["always", "on-failure", "never"], &[]), Value("\"always\""),
        "What happens when the program ends by itself: `\"always\"`: it is started again. `\"on-failure\"`: only if its exit code was not 0. `\"never\"`: \
         it stays ended until the next reload. A program that ends within 10 s several times in a row is started with growing pauses, up to 30 s.")
        .called(&["autorestart", "restart_policy"]),
    key(&[Program], "schedule", Kind::Schedule, Absent("none: the program always runs"),
        "When the program is started: cron's five fields (minute, hour, day, month, weekday), or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. Instead of \
         `instances` and `restart`.").called(&["cron", "OnCalendar", "every"]),
    key(&[Program], "timezone", Kind::Text, Absent("the machine's"),
        "Time zone of `schedule`.").called(&["tz", "CRON_TZ"]).like("\"Europe/Berlin\""),
    key(&[Program], "overlap", Kind::Word(&["skip", "wait"], &[]), Value("\"skip\""),
        "What happens if the time of `schedule` comes while the program still runs: `\"skip\"`: nothing. `\"wait\"`: it is started again, once, when it has ended.")
        .called(&["concurrency_policy", "concurrencyPolicy"]),
    key(&[Program], "max_runtime", Kind::Duration { zero: true }, Value("\"0\""),
        "A process that has run for this time is stopped. 0: no limit.").called(&["timeout", "RuntimeMaxSec", "activeDeadlineSeconds"]),
    key(&[Program], "stop_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "How long a process may take to end after SIGTERM. Then weir kills it, and all that it has started.")
        .called(&["stopwaitsecs", "TimeoutStopSec", "stop_grace_period"]),
    key(&[Program], "pool", Kind::Reference, Absent("none"),
        "Pool of the same application. Keys below that the program does not set are taken from the pool, and the program is also restarted when the pool is.")
        .like("\"shop\"").begins("User, environment and limits"),
    key(&[Program], "user", Kind::Text, Absent("the pool's; without `pool` the gateway's user"),
        "User of the program, when root starts weir.").called(&["uid", "run_as"]),
    key(&[Program], "group", Kind::Text, Absent("the pool's; otherwise the user's primary group"),
        "Group of the program.").called(&["gid"]),
    key(&[Program], "chroot", Kind::Path, Absent("none, even if the pool has one"),
        "Folder for the program's chroot, when root starts weir. The program must be inside."),
    key(&[Program], "chdir", Kind::Path, Absent("the pool's; otherwise weir's working folder"),
        "Working folder, as seen inside `chroot`.").called(&["directory", "working_directory", "workdir", "cwd", "WorkingDirectory"]).like("\"/srv/shop\""),
    key(&[Program], "clear_env", Kind::Bool, Absent("the pool's; otherwise `true`"),
        "The environment has PATH, USER, LOGNAME, HOME and the variables of `env`. `false`: also weir's environment, without what systemd tells weir and what `[egress]` uses."),
    key(&[Program], "env", Kind::Environment, Absent("the pool's"),
        "Environment variables. They are added to those of the pool.").called(&["environment", "Environment"]),
    key(&[Program], "rlimit_files", Kind::Count { min: 16, max: 1 << 30 }, Absent("the pool's; otherwise weir's"),
        "Maximum number of open files of a process."),
    key(&[Program], "rlimit_core", Kind::Size { min: 0, max: SIZE_MAX }, Absent("the pool's; otherwise weir's"),
        "Maximum size of a core file."),
    key(&[Program], "rlimit_processes", Kind::Count { min: 1, max: 1 << 22 }, Absent("the pool's; otherwise weir's"),
        "Maximum number of processes and threads of the program's user."),
    key(&[Program], "process_priority", Kind::Priority, Absent("the pool's; otherwise weir's"),
        "Nice value of the program, -19 (first) to 20 (last). Values below weir's own need root.").called(&["priority", "nice"]),
    key(&[Program], "output_log", Kind::LogTarget, Absent("the error log"),
        "Log for everything that the program prints to standard output and error.").called(&["stdout_logfile", "log"]).like("\"/var/log/weir/queue.log\"").begins("Log"),
    key(&[Program], "decorate_output", Kind::Bool, Value("true"),
        "Add time, program and process to these lines. `false`: write them unchanged."),
];
