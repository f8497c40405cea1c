//! The keys of `[server]`.

use super::{
    Default::{Absent, Value},
    Kind, Row, SIZE_MAX,
    Section::Server,
    key,
};

#[rustfmt::skip]
pub(super) const SERVER: &[Row] = &[
    key(&[Server], "user", Kind::Text, Absent("the user who started weir; for root the first existing of weir, www-data, nobody"),
        "User of the gateway, the process that talks to clients. Only used when root starts weir.").called(&["User"]),
    key(&[Server], "group", Kind::Text, Absent("the user's primary group"),
        "Group of the gateway.").called(&["Group"]),
    key(&[Server], "chroot", Kind::Path, Absent("none"),
        "Folder for the gateway's chroot. Still write all paths in this file as seen from outside.").like("\"/var/lib/weir\""),
    key(&[Server], "threads", Kind::Count { min: 0, max: 1024 }, Value("0"),
        "Number of the gateway's threads (reactors). 0: as many as the load needs, up to the usable cores. \
         While one thread is enough, only one runs, so that PHP can use the other cores.").called(&["worker_processes", "nbthread", "nbproc"]),
    key(&[Server], "pid_file", Kind::Path, Absent("none"),
        "File for the process id of the manager.").called(&["pid", "pidfile", "PidFile"]).like("\"/run/weir.pid\""),
    key(&[Server], "state_dir", Kind::Path, Absent("the one that systemd gives weir (`StateDirectory=`), otherwise `/var/lib/weir`"),
        "Folder in which weir notes the last times of programs with a `schedule`, so that a restart neither loses nor repeats one. weir makes the folder if it can.")
        .like("\"/var/lib/weir\""),
    key(&[Server], "shutdown_timeout", Kind::Duration { zero: true }, Value("\"30s\""),
        "How long a graceful stop or reload waits for running requests.")
        .called(&["process_control_timeout", "worker_shutdown_timeout", "hard_stop_after", "GracefulShutdownTimeout"]),
    key(&[Server], "shutdown_delay", Kind::Duration { zero: true }, Value("\"0s\""),
        "How long weir still answers all requests after it was told to stop gracefully (SIGTERM, `weir stop`), before `shutdown_timeout` begins. \
         Meanwhile `/readyz` answers 503, and each connection closes after its answer, so that load balancers and Kubernetes send \
         their requests elsewhere before anything is refused.").called(&["grace"]),
    key(&[Server], "max_old_generations", Kind::Count { min: 1, max: 1000 }, Value("8"),
        "Maximum number of old configurations that still finish their requests. A further reload waits \
         until one of them has ended, for `shutdown_timeout` at most."),
    key(&[Server], "upgrade_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "How long a new weir may take until it serves, at `weir upgrade`. After that weir gives up the new one, and the old one continues."),
    key(&[Server], "gateway_timeout", Kind::Duration { zero: true }, Value("\"20s\""),
        "weir kills and replaces a gateway that gives no sign of life for this time, because it hangs or was stopped. \"0\": never."),
    key(&[Server], "max_connections", Kind::Count { min: 1, max: 10_000_000 },
        Absent("20000, or two fifths of the allowed open files if that is less"),
        "Maximum number of client connections. New connections then replace connections that have sent no request, and those that have been idle longest. If all connections have requests, new ones wait.")
        .called(&["worker_connections", "MaxRequestWorkers"]),
    key(&[Server], "max_connections_per_address", Kind::Count { min: 0, max: 10_000_000 },
        Absent("three quarters of `max_connections`, at least 256"),
        "Maximum number of HTTP connections from one address (IPv6: one /64 network). More are closed at once. 0: no \
         limit. If a proxy in front connects for all clients, allow as many as the proxy opens.")
        .called(&["limit_conn"]),
    key(&[Server], "trusted", Kind::Peers, Absent("none"),
        "Proxies and load balancers in front: networks, or `\"unix:\"` for all that connect to unix sockets. weir believes the client's address in their `X-Forwarded-For`, `X-Forwarded-Proto`, `X-Forwarded-Host`, `Forwarded` and PROXY headers.")
        .called(&["set_real_ip_from", "RemoteIPTrustedProxy", "RemoteIPInternalProxy", "trusted_proxies", "real_ip_from"]),
    key(&[Server], "forwarded_by", Kind::Word(&["any", "x-forwarded", "forwarded"], &[]), Value("\"any\""),
        "The fields that `trusted` proxies set: `\"x-forwarded\"` for `X-Forwarded-For`, `-Proto` and `-Host`; `\"forwarded\"` for `Forwarded` (RFC 7239). \
         weir removes the other fields. `\"any\"`: the `X-Forwarded-` fields if there is an `X-Forwarded-For`, otherwise `Forwarded`.")
        .called(&["real_ip_header", "RemoteIPHeader", "client_ip_headers"]),
    key(&[Server], "untrusted_forwarded", Kind::Word(&["remove", "pass"], &[]), Value("\"remove\""),
        "What happens to `X-Forwarded-For`, `X-Forwarded-Proto`, `X-Forwarded-Host` and `Forwarded` from clients that are not `trusted`. \
         `\"pass\"`: scripts get them, and must not believe them."),
    key(&[Server], "max_rate_clients", Kind::Count { min: 64, max: 100_000_000 }, Value("65536"),
        "Number of clients whose requests weir counts (`rate`). Each takes 17 bytes. If there are more clients, weir forgets the one that is furthest from its limit."),
    key(&[Server], "max_waiting_passwords", Kind::Count { min: 1, max: 65_536 }, Value("128"),
        "Maximum number of requests that wait until their password is verified (`basic_auth`), which takes long by design. More are refused with \
         503. Half of the cores verify at the same time."),
    key(&[Server], "server_software", Kind::Text, Absent("`weir/VERSION (nginx compatible)`"),
        "Value of `SERVER_SOFTWARE` for scripts. Applications such as WordPress look for a known server name in it.")
        .called(&["fastcgi_param_server_software"]),
    key(&[Server], "spool_dir", Kind::Path, Value("\"/var/tmp\""),
        "Folder for temporary files of request and response bodies (files without a name, which disappear with the process). Do not use a tmpfs, because it is memory.")
        .called(&["client_body_temp_path", "fastcgi_temp_path"]).like("\"/var/spool/weir\""),
    key(&[Server], "max_spool", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"4G\""),
        "Maximum size of all temporary files together.")
        .called(&["fastcgi_max_temp_file_size"]),
    key(&[Server], "compress_threads", Kind::Count { min: 0, max: 256 }, Value("0"),
        "Maximum number of threads that compress long answers (`compress` of a site). 0: one for each core."),
    key(&[Server], "compress_memory", Kind::Size { min: 1 << 20, max: 1 << 40 }, Value("\"64M\""),
        "Memory for all answers that are being compressed. A stream counts as 1 MB, and all streams get three quarters of it. \
         Answers for which there is no memory are sent as they are."),
    key(&[Server], "compress_cache", Kind::Size { min: 0, max: 1 << 40 }, Value("\"32M\""),
        "Memory for compressed files. weir drops the files that were not requested for the longest time first. It compresses a file of more than a quarter of this size, or of more than 8 MB, again for each client."),
    key(&[Server], "http2_memory", Kind::Size { min: 1 << 20, max: 1 << 40 }, Value("\"64M\""),
        "Memory of all HTTP/2 connections for heads of requests, and for parts of bodies that weir has received but not yet read. When this memory is full, weir stops to read from connections that have more than 64 KB of bodies, until they have less. It refuses further requests (REFUSED_STREAM) of connections that have more than 64 KB of heads and bodies."),
    key(&[Server], "admin", Kind::SocketPath, Absent("`weir/admin.sock` in `$XDG_RUNTIME_DIR`, or in /run for root"),
        "Address of the admin interface, which `weir status`, `weir reload` and other commands use: `unix:PATH`, or `\"off\"`.")
        .called(&["stats_socket", "admin_socket"]),
    key(&[Server], "resolver", Kind::Nameservers, Absent("those in /etc/resolv.conf"),
        "DNS servers for the names in `servers` and in `[egress]`: an IP address, or `\"127.0.0.1:5353\"`. /etc/hosts is always used first."),
    key(&[Server], "admin_tcp", Kind::TcpAddress, Absent("none"),
        "TCP address of the admin interface, in addition to the socket. Everybody who can connect gets `/metrics`, `/healthz`, `/readyz` and the page at `/`. \
         `/status` shows clients' requests, so without a token only this machine gets it. Actions, and `/status` for other machines, need the token of `admin_token_file`."),
    key(&[Server], "admin_token_file", Kind::Path, Absent("none: no actions over TCP"),
        "File with the token for `Authorization: Bearer TOKEN`: at least 16 characters without spaces. Only its \
         owner should be able to read it. It is read at the start and at a reload.").like("\"/etc/weir/admin.token\""),
    key(&[Server], "ready_pools", Kind::References, Absent("one pool that serves is enough"),
        "Pools each of which must serve, or `/readyz` answers 503. Without it, weir is ready while one of its pools serves: a pool \
         that has no worker, is stuck (`ready_stalled`) or full (`ready_saturation`) is a problem in the status.").like("[\"shop\"]"),
    key(&[Server], "ready_saturation", Kind::Count { min: 0, max: 100 }, Value("0"),
        "A pool does not serve (see `ready_pools`) when its queue is filled to this percentage: its waiting requests in percent of `max_queue`, or the \
         expected waiting time in percent of `timeout`. A load balancer then sends requests elsewhere. 0: never."),
    key(&[Server], "ready_stalled", Kind::Duration { zero: true }, Value("\"10s\""),
        "A pool does not serve (see `ready_pools`) when it has its maximum of workers and each has been busy with the same request for this time. 0: never."),
    key(&[Server], "pool_histograms", Kind::Bool, Absent("of waiting and of the time at a worker, with five buckets"),
        "Histograms of each pool that is used in `/metrics`. `true`: also of whole requests, and all with fifteen buckets. `false`: none."),
    key(&[Server], "site_histograms", Kind::Bool, Absent("of whole requests, with five buckets"),
        "Histograms of each site with a pool in `/metrics`. `true`: also of waiting and of the time at a worker, and all with fifteen buckets. \
         `false`: none."),
    key(&[Server], "process_priority", Kind::Priority, Absent("weir's own minus 5, if that is allowed"),
        "Nice value of the gateway, -19 (first) to 20 (last), when root starts weir. The gateway should not \
         wait behind its own workers for a processor."),
    key(&[Server], "process_max", Kind::Count { min: 0, max: 1_000_000 }, Value("0"),
        "Maximum number of workers of all pools together. 0: only the limits of the pools.").called(&["process.max"]),
    key(&[Server], "php_starts", Kind::Count { min: 0, max: 100_000 }, Value("0"),
        "How many pools may load PHP at the same time. Pools with waiting requests go first. 0: one for each core, at least 2."),
    key(&[Server], "emergency_restart_threshold", Kind::Count { min: 0, max: 100_000 }, Value("0"),
        "A pool is restarted when this many of its workers end with SIGSEGV or SIGBUS within `emergency_restart_interval`, \
         because its shared memory may be damaged. 0: never."),
    key(&[Server], "emergency_restart_interval", Kind::Duration { zero: true }, Value("\"0\""),
        "See `emergency_restart_threshold`."),
];
