//! The keys of `[pool.NAME]`.

use super::{
    Default::{Absent, Required, Value},
    Kind, Row, SIZE_MAX,
    Section::Pool,
    key,
};

#[rustfmt::skip]
pub(super) const POOL: &[Row] = &[
    key(&[Pool], "runtime", Kind::Word(&["php", "command", "servers"], &[]), Required,
        "`\"php\"`: weir's own PHP workers. `\"command\"`: weir starts the workers, any FastCGI program. `\"servers\"`: \
         workers that run elsewhere, for example PHP-FPM.").begins("Runtime"),
    key(&[Pool], "php", Kind::Text, Absent("the newest installed"),
        "PHP version: `\"8.2\"`, or the path of a PHP program: `\"/opt/php/sbin/php-fpm\"` (php). For a version, weir uses the first \
         one of `php-fpm8.2`, `php-cgi8.2` and `php8.2` that is installed, with weir-php loaded into it.").called(&["php_version"]).only(&["php"]).like("\"8.2\""),
    key(&[Pool], "php_ini", Kind::Path, Absent("PHP's own place: /etc/php/VERSION/fpm on Debian"),
        "Path of php.ini, or of its folder (php).").only(&["php"]).like("\"/etc/php/8.2/shop/php.ini\""),
    key(&[Pool], "no_php_ini", Kind::Bool, Value("false"),
        "Read no php.ini (php).").only(&["php"]),
    key(&[Pool], "php_value", Kind::PhpIni, Absent("none"),
        "PHP settings that scripts may change (php). The same as `php_value[memory_limit] = 256M` in PHP-FPM.").only(&["php"]),
    key(&[Pool], "php_flag", Kind::PhpFlags, Absent("none"),
        "The same for on/off settings (php).").only(&["php"]),
    key(&[Pool], "php_admin_value", Kind::PhpIni, Absent("none"),
        "PHP settings that neither scripts nor .user.ini can change, also `disable_functions` and `disable_classes` (php).").only(&["php"]),
    key(&[Pool], "php_admin_flag", Kind::PhpFlags, Absent("none"),
        "The same for on/off settings (php).").only(&["php"]),
    key(&[Pool], "php_define", Kind::PhpIni, Absent("none"),
        "PHP settings that replace those of php.ini, as with `php -d`; also settings that PHP reads only at its start, such as `opcache.memory_consumption`, or `extension = [\"ffi\", \"sockets\"]` (php).").only(&["php"]),
    key(&[Pool], "opcache_memory", Kind::Size { min: 8 << 20, max: 1 << 40 }, Absent("`opcache.memory_consumption` of php.ini, 128M without it"),
        "Memory for OPcache, which all workers of the pool share: `\"64M\"`, whole megabytes. It is taken when PHP is loaded (php).").only(&["php"]),
    key(&[Pool], "worker", Kind::Path, Absent("none: each request starts the application again"),
        "Script that keeps the application booted: it runs once, up to `frankenphp_handle_request()`, and its function then answers \
         the requests one after another: [booted.md](booted.md) (php).").only(&["php"]).like("\"/srv/shop/public/worker.php\""),
    key(&[Pool], "worker_requests", Kind::Count { min: 0, max: u64::MAX }, Value("500"),
        "With `worker`: a process is replaced after this number of requests, as with `max_requests`. The script finds the number in \
         `MAX_REQUESTS`. 0: never (php).").only(&["php"]),
    key(&[Pool], "worker_boot_timeout", Kind::Duration { zero: false }, Value("\"30s\""),
        "With `worker`: a process that has not called `frankenphp_handle_request()` after this time is ended, and another one is \
         tried later (php).").only(&["php"]),
    key(&[Pool], "worker_zygote", Kind::Bool, Value("true"),
        "With `worker`: one process boots the application, and the others are forked from it. `false`, or if the boot opens a connection or \
         starts a thread: each process boots for itself: [booted.md](booted.md#one-boot-for-all-workers) (php).").only(&["php"]),
    key(&[Pool], "php_load", Kind::Word(&["shared", "own"], &[]), Value("\"shared\""),
        "Which process loads PHP. `\"shared\"`: one process loads it for all pools that load the same, and each pool's master is forked from it; \
         memory of scripts, of OPcache too, is each pool's own. `\"own\"`: this pool loads PHP for itself: \
         [hosting.md](hosting.md#php-is-loaded-once) (php).").only(&["php"]),
    key(&[Pool], "watch_root", Kind::Bool, Value("false"),
        "Restart the pool within a second when a symbolic link in the path of a site's root or of `worker` changes. Old workers finish their requests (php).").only(&["php"]),
    key(&[Pool], "command", Kind::Program, Absent("required with `runtime = \"command\"`"),
        "Program and its arguments. It must listen on file descriptor 0. A name without a slash is searched in PATH.")
        .called(&["bin_path", "exec"]).only(&["command"]),
    key(&[Pool], "servers", Kind::Servers, Absent("required with `runtime = \"servers\"`"),
        "Addresses of the workers: `host:port` or `unix:PATH`. Each is a text, or a table with `weight` (0 to 1000, default 100; 0: no \
         requests) and `backup` (gets requests only while no other server is up): `{ address = \"10.0.0.5:9000\", weight = 50, backup = true }`. A host can be a name: each of \
         its addresses is a server, and the name is looked up again when its TTL is over.")
        .called(&["server", "upstreams", "backends", "listen", "upstream"]).only(&["servers"]),
    key(&[Pool], "protocol", Kind::Word(&["fastcgi", "http"], &["https", "h2"]), Value("\"fastcgi\""),
        "What the servers speak. `\"http\"`: HTTP/1.1, as applications in Node.js, Python, Go or Ruby do, or another web server: \
         [upstreams.md](upstreams.md).").called(&["proxy_pass", "reverse_proxy", "ProxyPass"]).only(&["servers"]),
    key(&[Pool], "host", Kind::HeaderValue, Absent("the client's"),
        "`Host` header of the requests, instead of the one that the client has sent (servers with `protocol = \"http\"`).")
        .called(&["proxy_set_header Host", "ProxyPreserveHost"]).only(&["servers"]).like("\"app.internal\""),
    key(&[Pool], "forwarded", Kind::Word(&["x-forwarded-for", "forwarded", "off"], &[]), Value("\"x-forwarded-for\""),
        "How the servers learn who the client is (servers with `protocol = \"http\"`). `\"x-forwarded-for\"`: `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`. \
         `\"forwarded\"`: `Forwarded` (RFC 7239). `\"off\"`: weir adds no such header.").only(&["servers"]),
    key(&[Pool], "pm", Kind::Word(&["static", "dynamic", "ondemand", "auto"], &[]),
        Absent("`\"auto\"` with php, `\"static\"` with command"),
        "How the number of workers is chosen (php, command). `\"static\"`: always `max_children`. `\"dynamic\"`: \
         some spare workers are kept. `\"ondemand\"`: none without requests. `\"auto\"`: weir adds workers as long as they help \
         to finish more requests and fit in memory.").begins("Number of workers").only(&["php", "command"]),
    key(&[Pool], "max_children", Kind::Count { min: 1, max: 100_000 },
        Absent("four per core, at least 4, but no more than fit in half the memory at 64M each; with `pm = \"auto\"` \
                 as many as fit in three quarters of the memory at 16M each"),
        "Maximum number of workers (php, command). Each runs one request at a time. With `auto`, the number is usually lower: see `weir status`.").called(&["workers", "max_procs", "children"]).only(&["php", "command"]),
    key(&[Pool], "start_servers", Kind::Count { min: 1, max: 100_000 },
        Absent("the middle of the spare servers with dynamic, 1 with auto"),
        "Number of workers at the start (dynamic, auto). With `auto`, also the minimum.").only(&["php", "command"]).like("4"),
    key(&[Pool], "min_spare_servers", Kind::Count { min: 1, max: 100_000 }, Value("1"),
        "With fewer free workers than this, more are started (dynamic).").only(&["php", "command"]),
    key(&[Pool], "max_spare_servers", Kind::Count { min: 1, max: 100_000 },
        Absent("a quarter of `max_children`, at least `min_spare_servers`"),
        "With more free workers than this, workers are stopped one by one (dynamic).").only(&["php", "command"]),
    key(&[Pool], "self_call_workers", Kind::Count { min: 0, max: 1_000 }, Value("2"),
        "Extra workers, in addition to `max_children`, for calls that scripts make to their own site over loopback or a unix socket (php, \
         command). Such calls go first in the queue. If every worker waits for such a call, one more worker is started, up to this number. \
         Beyond that, the calls are refused with 503.").only(&["php", "command"]),
    key(&[Pool], "worker_memory", Kind::Size { min: 1 << 20, max: SIZE_MAX }, Value("\"32M\""),
        "Assumed memory of a worker until it has been measured (auto). No more workers are started than fit in the free \
         memory of the machine or container.").only(&["php", "command"]),
    key(&[Pool], "max_spawn_rate", Kind::Count { min: 1, max: 100_000 }, Value("32"),
        "Maximum number of workers that are started per second (php, command). Replacements \
         after `max_requests`, `max_memory` or a crash do not count.").only(&["php", "command"]),
    key(&[Pool], "process_idle_timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "A worker that is free for this time is stopped (ondemand, auto). `auto` waits longer if stopped workers were soon needed again.").only(&["php", "command"]),
    key(&[Pool], "master_idle_timeout", Kind::Duration { zero: true }, Value("\"1m\""),
        "A pool that has had no worker for this time ends its PHP, with OPcache's memory. The next request loads PHP again. \
         `\"0\"`: never (php with ondemand). With `pm = \"auto\"` this applies only if you write the key: the pool then has no process before its first request, and all its workers end when none of them had a request for `process_idle_timeout`.").only(&["php"]),
    key(&[Pool], "max_requests", Kind::Count { min: 0, max: u64::MAX }, Value("0"),
        "A worker is replaced after this number of requests (php, command). 0: never.").called(&["PHP_FCGI_MAX_REQUESTS"]).only(&["php", "command"]),
    key(&[Pool], "max_memory", Kind::Size { min: 1, max: SIZE_MAX }, Absent("none"),
        "A worker whose memory (RSS) was larger than this is replaced after its request (php). To stop the script itself, use PHP's `memory_limit`.").only(&["php"]),
    key(&[Pool], "user", Kind::Text, Absent("the gateway's user"),
        "User of the workers, when root starts weir (php, command). The PHP master also \
         runs as this user.").called(&["uid"]).begins("User and permissions").only(&["php", "command"]),
    key(&[Pool], "group", Kind::Text, Absent("the user's primary group"),
        "Group of the workers (php, command).").called(&["gid"]).only(&["php", "command"]),
    key(&[Pool], "chroot", Kind::Path, Absent("none"),
        "Folder for the workers' chroot, when root starts weir (php, command).").only(&["php", "command"]),
    key(&[Pool], "chdir", Kind::Path, Absent("weir's working folder; with chroot `/`"),
        "Working folder of the workers, as seen inside `chroot` (php, command).").only(&["php", "command"]).like("\"/public\""),
    key(&[Pool], "clear_env", Kind::Bool, Value("true"),
        "The workers' environment has only the variables of `env`. `false`: weir's environment, without what systemd tells weir and what `[egress]` uses, plus `env` (php, command).").only(&["php", "command"]),
    key(&[Pool], "env", Kind::Environment, Absent("none"),
        "Environment variables of the workers (php, command).").called(&["environment", "bin_environment"]).only(&["php", "command"]),
    key(&[Pool], "rlimit_files", Kind::Count { min: 16, max: 1 << 30 }, Absent("the same as weir's"),
        "Maximum number of open files of a worker (php, command).").only(&["php", "command"]),
    key(&[Pool], "rlimit_core", Kind::Size { min: 0, max: SIZE_MAX }, Absent("the same as weir's"),
        "Maximum size of a worker's core file (php, command).").only(&["php", "command"]),
    key(&[Pool], "rlimit_processes", Kind::Count { min: 1, max: 1 << 22 }, Absent("the same as weir's"),
        "Maximum number of processes and threads of the pool's user, so that a script cannot start them without end. All processes of this user count, also those of other pools: a PHP worker counts as two, its master as one (php, command).").only(&["php", "command"]),
    key(&[Pool], "process_priority", Kind::Priority, Absent("the same as weir's"),
        "Nice value of the workers, -19 (first) to 20 (last), when root starts weir (php, command).")
        .called(&["priority", "process.priority", "nice"]).only(&["php", "command"]),
    key(&[Pool], "process_dumpable", Kind::Bool, Value("false"),
        "Allow debuggers of the same user to attach to the workers (php).").called(&["process.dumpable"]).only(&["php"]),
    key(&[Pool], "apparmor_hat", Kind::Text, Absent("none"),
        "AppArmor profile of the pool's processes, below the profile of weir: `PROFILE//HAT`, like `apparmor_hat` in PHP-FPM. weir's \
         profile must allow `change_profile`. If the kernel refuses the change, the pool does not start (php).").only(&["php"]),
    key(&[Pool], "output_log", Kind::LogTarget, Absent("the error log"),
        "Log for everything that workers print to standard output and error (php, command). There is \
         no `catch_workers_output`: the output is always logged.").begins("Logs and pages").only(&["php", "command"]).like("\"/var/log/weir/shop.log\""),
    key(&[Pool], "decorate_output", Kind::Bool, Value("true"),
        "Add time, pool and process to these lines. `false`: write them unchanged (php, command).")
        .called(&["decorate_workers_output"]).only(&["php", "command"]),
    key(&[Pool], "request_slowlog_timeout", Kind::Duration { zero: true }, Value("\"5s\""),
        "If a script runs longer than this, its PHP stack is written to `slowlog` (php), and `weir status` says where such scripts are. The \
         script continues. 0: never. The default is shorter if `request_terminate_timeout` is.").only(&["php"]),
    key(&[Pool], "request_slowlog_trace_depth", Kind::Count { min: 1, max: 1000 }, Value("20"),
        "Maximum number of stack entries in the slow log (php).").only(&["php"]),
    key(&[Pool], "slowlog", Kind::Path, Absent("the error log"),
        "The slow log (php).").only(&["php"]).like("\"/var/log/weir/shop-slow.log\""),
    key(&[Pool], "status_path", Kind::UrlPath, Absent("none"),
        "Path of the status page in PHP-FPM's format, for example `\"/status\"`. The gateway answers it, even if all workers are busy.").called(&["pm_status_path"]),
    key(&[Pool], "ping_path", Kind::UrlPath, Absent("none"),
        "Path of the ping page, as in PHP-FPM."),
    key(&[Pool], "ping_response", Kind::Text, Value("\"pong\""),
        "Text of the ping page."),
    key(&[Pool], "access_log", Kind::Path, Absent("none"),
        "Access log of the pool in PHP-FPM's format, in addition to weir's own.").like("\"/var/log/weir/shop-access.log\""),
    key(&[Pool], "access_format", Kind::AccessFormat, Value("\"%R - %u %t \\\"%m %r\\\" %s\""),
        "Format of the lines in `access_log`, with PHP-FPM's `%` codes."),
    key(&[Pool], "access_suppress_path", Kind::UrlPrefixes, Absent("none"),
        "Successful GET and HEAD requests without a body for these paths are not written to `access_log`."),
    key(&[Pool], "keep_conn", Kind::Bool, Absent("`true` with command and with `protocol = \"http\"`, else `false`"),
        "Use a connection for many requests (command, servers); with `servers`, only for requests with an idempotent method. With PHP-FPM, an idle connection blocks a worker, and a \
         worker that continues after `fastcgi_finish_request()` looks free although it is busy.")
        .called(&["keep-conn", "fastcgi_keep_conn", "option_keep_conn", "enablereuse"]).begins("Requests").only(&["command", "servers"]),
    key(&[Pool], "max_reqs", Kind::Count { min: 0, max: u64::MAX }, Value("0"),
        "Maximum number of requests per connection (command, servers). 0: no limit.").called(&["max-reqs"]).only(&["command", "servers"]),
    key(&[Pool], "balance", Kind::Word(&["leastconn", "roundrobin", "first", "random", "hash"], &[]),
        Value("\"leastconn\""), "How a server is chosen among those that are up and below their limit (servers). `\"leastconn\"`: the one with the fewest requests for its \
         weight. `\"roundrobin\"`: one after the other. `\"first\"`: the first in the list. `\"random\"`: the less busy one of two random servers. `\"hash\"`: always the same one for the same `hash_by`.")
        .called(&["lb_policy", "lbmethod"]).begins("Several servers").only(&["servers"]),
    key(&[Pool], "hash_by", Kind::HashBy, Value("\"source\""),
        "Key for `balance = \"hash\"`: `\"source\"` (the client's address), `\"uri\"` (the path), `\"header:NAME\"` or `\"cookie:NAME\"`. A \
         request without it goes to the least busy server.").called(&["ip_hash", "hash_type", "stick"]).only(&["servers"]),
    key(&[Pool], "hash_balance_factor", Kind::Count { min: 0, max: 10_000 }, Value("0"),
        "With `balance = \"hash\"`: when a server has more than this percentage of its fair share of requests, further ones go to another server, always the same one. 0: only when it is at its limit.")
        .called(&["hash-balance-factor"]).only(&["servers"]),
    key(&[Pool], "sticky", Kind::Text, Absent("none"),
        "Name of a cookie by which clients stay with the server that has answered first, while it is up and has room (servers). weir sets it.")
        .called(&["sticky_cookie", "cookie insert", "stickysession"]).only(&["servers"]).like("\"SERVER\""),
    key(&[Pool], "limit_start", Kind::Count { min: 1, max: 65_536 }, Value("10"),
        "Without `maxconn`, weir finds the limit of each server by measuring (servers). It begins with this value, grows while requests stay as fast, \
         and shrinks when they wait at the server.").only(&["servers"]),
    key(&[Pool], "limit_max", Kind::Count { min: 1, max: 65_536 }, Value("1000"),
        "Maximum of that limit (servers).").only(&["servers"]),
    key(&[Pool], "check", Kind::Word(&["off", "tcp", "fastcgi", "http"], &[]), Value("\"off\""),
        "Health check of the servers, in addition to their normal requests. `\"tcp\"`: a connection must succeed. `\"fastcgi\"`: a request for `check_path` must be answered with \
         2xx or 3xx. `\"http\"`: a GET request for `check_path` must be answered with a status of `check_status`. A server that is down gets no requests, unless all are down.").called(&["health_check", "option_httpchk", "health_uri"]).only(&["servers"]),
    key(&[Pool], "check_path", Kind::UrlPath, Absent("`\"/ping\"` with `check = \"fastcgi\"`, `\"/\"` with `\"http\"`"),
        "Path of the check request. With fastcgi it is SCRIPT_NAME and SCRIPT_FILENAME: PHP-FPM's `ping.path`, or a script of the server.").called(&["ping.path"]).only(&["servers"]),
    key(&[Pool], "check_status", Kind::Text, Value("\"200-399\""),
        "Statuses of a good answer to the check request, with `check = \"http\"`: numbers and ranges with commas between them.")
        .called(&["http-check expect status", "health_status"]).only(&["servers"]).like("\"200, 204\""),
    key(&[Pool], "check_interval", Kind::Duration { zero: false }, Value("\"2s\""),
        "Time between two checks of a server, varied by up to a fifth.").called(&["inter", "health_interval"]).only(&["servers"]),
    key(&[Pool], "check_timeout", Kind::Duration { zero: false }, Value("\"5s\""),
        "A check that takes longer has failed, unless the server answered a normal request in the meantime.").called(&["timeout_check", "health_timeout"]).only(&["servers"]),
    key(&[Pool], "rise", Kind::Count { min: 1, max: 1_000 }, Value("2"),
        "After this number of successful checks in a row, a server is up again.").only(&["servers"]),
    key(&[Pool], "fall", Kind::Count { min: 1, max: 1_000 }, Value("3"),
        "After this number of failed checks in a row, a server is down. At the start, one failed check is enough.").only(&["servers"]),
    key(&[Pool], "slowstart", Kind::Duration { zero: true }, Value("\"0\""),
        "A server that is up again gets a tenth of its share at first, and its full share after this time (servers).").called(&["slow_start"]).only(&["servers"]),
    key(&[Pool], "max_fails", Kind::Count { min: 0, max: 1_000_000 }, Value("3"),
        "A server is down after this number of failed requests in a row within `fail_timeout`: no connection, a connection that closes before the answer, or no answer in \
         time. One refused connection is enough. 0: failed requests never take a server down.").called(&["error_limit"]).only(&["servers"]),
    key(&[Pool], "fail_timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "See `max_fails`. A server that is down is tried again with one request after a tenth of this time; the pause doubles each time, up to this time. With `check`, only successful checks bring it back.")
        .called(&["fail_duration"]).only(&["servers"]),
    key(&[Pool], "resolve_min", Kind::Duration { zero: false }, Value("\"1s\""),
        "Minimum time between two DNS lookups of a name, even if its TTL is shorter (servers).").only(&["servers"]),
    key(&[Pool], "resolve_max", Kind::Duration { zero: false }, Value("\"5m\""),
        "Maximum time between two DNS lookups of a name (servers).").only(&["servers"]),
    key(&[Pool], "connect_timeout", Kind::Duration { zero: false }, Value("\"5s\""),
        "Maximum time to open a connection; longer: the next server, or 503 (servers).")
        .called(&["timeout_connect", "fastcgi_connect_timeout", "dial_timeout"]),
    key(&[Pool], "read_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "Maximum time without data from or to a worker; then the client gets 504. With `php` and `command`, the script \
         continues, as it does behind nginx: to stop it, use `request_terminate_timeout`, `timeout` of a route or \
         `on_client_left`. With `servers`, the connection is closed.")
        .called(&["timeout_server", "fastcgi_read_timeout", "fastcgi_send_timeout", "ProxyTimeout"]),
    key(&[Pool], "request_terminate_timeout", Kind::Duration { zero: true }, Value("\"0\""),
        "Maximum run time of a script; then 504, and the worker is replaced. 0: no limit, because downloads can take long.")
        .called(&["max_execution_time"]),
    key(&[Pool], "request_terminate_timeout_track_finished", Kind::Bool, Value("false"),
        "Apply `request_terminate_timeout` also to the time after `fastcgi_finish_request()` (php).").only(&["php"]),
    key(&[Pool], "retries", Kind::Count { min: 0, max: 100 }, Value("3"),
        "How many other workers a request is given to if the connection closes before the answer. This is done only if the worker \
         cannot have read the request, or its method is idempotent. A request that has killed one of weir's own workers is never tried \
         on a second one (php, command). If somebody else killed the PHP worker by SIGKILL or SIGTERM, the request is given to one \
         other worker.")
        .called(&["fastcgi_next_upstream_tries", "next_upstream_tries", "lb_retries", "option_redispatch"]),
    key(&[Pool], "crash_limit", Kind::Count { min: 0, max: 100_000 }, Value("10"),
        "A path is refused with 503 when its script has killed this number of workers within `crash_window` and has answered \
         at most one request in ten in that time (php, command). 0: never.").only(&["php", "command"]),
    key(&[Pool], "crash_window", Kind::Duration { zero: false }, Value("\"60s\""),
        "See `crash_limit` (php, command).").only(&["php", "command"]),
    key(&[Pool], "crash_pause", Kind::Duration { zero: false }, Value("\"10s\""),
        "How long such a path is refused. Then one request is tried, and one more after each further pause, until one \
         is answered (php, command).").only(&["php", "command"]),
    key(&[Pool], "max_response_head", Kind::Size { min: 4 << 10, max: 16 << 20 }, Value("\"1M\""),
        "Maximum size of a response head; larger: 502. With `protocol = \"fastcgi\"` and in `weir fpm` there is no limit.").called(&["fastcgi_buffer_size"]),
    key(&[Pool], "limit_extensions", Kind::Extensions, Absent("`[\".php\"]` with php, otherwise any"),
        "Extensions (with the dot) of scripts that may run; others: 403.").called(&["security_limit_extensions"]),
];
