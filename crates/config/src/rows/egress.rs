//! The keys of `[egress]`, and those that `[egress.host.NAME]` may override.

use super::{
    Default::{Absent, Required, Value},
    Kind, Row, SIZE_MAX,
    Section::{self, Egress, EgressHost},
    key,
};

#[rustfmt::skip]
pub(super) const EGRESS: &[Row] = &[
    key(&[Egress], "listen", Kind::Addresses, Value("[\"127.0.0.1:8083\"]"),
        "Where calls are taken: `host:port` and `unix:PATH`. Any address but the loopback's asks for `token_file`."),
    key(&[Egress], "allow", Kind::AllowRules, Absent("nothing may be called"),
        "Who may be called, and how: `[METHOD[,METHOD] ][http://]HOST[:PORT][/PATH]`, or a table with `host`, `methods`, `path`, \
         `addresses` and `pools`. See [Who may be called](#who-may-be-called).")
        .called(&["allowed_hosts", "http_access"]),
    key(&[Egress], "upgrade", Kind::HttpOrigins, Absent("none"),
        "Hosts that are called by https where a caller that uses weir as its proxy says `http://`: `\"api.example.com\"`."),
    key(&[Egress], "connect", Kind::Bool, Value("true"),
        "CONNECT is tunnelled to where `allow` lets it; tunnels cannot be pooled. `false`: refused."),
    key(&[Egress], "token_file", Kind::Path, Absent("none: who reaches the address may call"),
        "File whose text is the token that callers over TCP have to know: `Proxy-Authorization: Bearer TOKEN`, or Basic with any name \
         and the token as password. At least 16 characters without spaces; nobody but its owner should be able to read it. Read at the \
         start and at a reload."),
    key(&[Egress], "socket", Kind::Window, Absent("`weir/egress.sock` in `$XDG_RUNTIME_DIR`, for root in /run; none if `listen` has a unix socket"),
        "Unix socket for the workers of weir's pools: their environment has its path as `WEIR_EGRESS_SOCKET`. `unix:PATH`, or `\"off\"`. Only \
         the users of these pools, root and who started weir may call there. If the first TCP address of `listen` is another than 127.0.0.1:8083, \
         the usual name has it in it: `egress-127.0.0.1-8084.sock`."),
    key(&[Egress], "owner", Kind::Text, Absent("who started weir"),
        "Owner of the unix sockets."),
    key(&[Egress], "group", Kind::Text, Absent("who started weir"),
        "Group of the unix sockets."),
    key(&[Egress], "mode", Kind::Mode, Value("\"0666\""),
        "Permissions of the unix sockets: anybody of this machine may call over TCP, too."),
    key(&[Egress], "threads", Kind::Count { min: 0, max: 1024 }, Value("0"),
        "Threads that carry calls; 0: one for every four cores."),
    key(&[Egress], "max_connections", Kind::Count { min: 1, max: 10_000_000 }, Value("4096"),
        "Callers' connections in all; more wait in the kernel's queue."),
    key(&[Egress], "max_hosts", Kind::Count { min: 1, max: 1_000_000 }, Value("1000"),
        "Origins of which connections, figures and failures are remembered at once; those that were not called for the longest time \
         go first.").called(&["max_hosts_count"]),
    key(&[Egress], "cache_size", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"32M\""),
        "Memory for kept answers of all hosts together.").called(&["cache_mem"]),
    key(&[Egress], "cache_max_object", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"1M\""),
        "A longer answer is not kept.").called(&["maximum_object_size", "maximum_object_size_in_memory"]),

    key(&[EgressHost], "hosts", Kind::Origins, Required,
        "Whom the table is about: `api.example.com` (https, port 443), `*.partner.example:8443`, `http://legacy.internal:8080`, \
         `api.example.com:*` (any port). Where several tables name a host, the first in the file is used."),

    key(BOTH, "keepalive", Kind::Count { min: 0, max: 65_536 }, Value("32"),
        "Idle connections that stay open per host. Those in use are kept between calls up to `maxconn`; what is above `keepalive` is closed after \
         10 seconds without a call.")
        .called(&["pool_max_conn", "pool_high_count", "keepalive_idle_conns_per_host", "max_idle_conns_per_host"])
        .begins("Connections to a host"),
    key(BOTH, "keepalive_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "An idle connection is closed after that.")
        .called(&["pool_purge_delay", "pconn_timeout", "server_idle_pconn_timeout", "idle_conn_timeout"]),
    key(BOTH, "keepalive_time", Kind::Duration { zero: false }, Value("\"1h\""),
        "A connection takes no new call after that.")
        .called(&["max_connection_duration", "max_connection_age", "pconn_lifetime"]),
    key(BOTH, "preconnect", Kind::Count { min: 0, max: 1_000 }, Value("0"),
        "Connections that are open at least, in use or not, so that the first call after the start or an idle hour makes none; only for hosts that `allow` or a \
         table names without `*`.").called(&["preconnect_policy", "per_upstream_preconnect_ratio"]),
    key(BOTH, "http2", Kind::Bool, Value("true"),
        "HTTP/2 is offered to https hosts, which choose.").called(&["http2_protocol_options", "proxy_http_version"]),
    key(BOTH, "maxconn", Kind::Count { min: 1, max: 1_000_000 }, Value("100"),
        "Calls to a host at work at once.").called(&["max_conns", "max_conns_per_host"])
        .begins("Limits of a host"),
    key(BOTH, "max_queue", Kind::Count { min: 0, max: 10_000_000 }, Value("1000"),
        "Calls waiting for that at most; more are answered with 503 at once. 0: none waits.")
        .called(&["maxqueue", "max_pending_requests"]),
    key(BOTH, "queue_timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "Waiting at most; then 503 with Retry-After.").called(&["timeout_queue"]),
    key(BOTH, "connect_timeout", Kind::Duration { zero: false }, Value("\"5s\""),
        "Until a connection is there: DNS, TCP and TLS.")
        .called(&["proxy_connect_timeout", "timeout_connect", "dial_timeout", "forward_timeout"]),
    key(BOTH, "first_byte_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "From the request to the first byte of its answer; then 504.")
        .called(&["timeout_server", "response_header_timeout", "timeout_http_response"]),
    key(BOTH, "read_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "From one piece of a body to the next, both ways.")
        .called(&["proxy_read_timeout", "proxy_send_timeout", "stream_idle_timeout", "timeout_tunnel"]),
    key(BOTH, "timeout", Kind::Duration { zero: true }, Value("\"1h\""),
        "For all of a call, waiting included, so that no answer drips for ever; then 504, or an answer that has begun is cut. 0: no limit.")
        .called(&["request_lifetime"]),
    key(BOTH, "max_response_head", Kind::Size { min: 4 << 10, max: 16 << 20 }, Value("\"64K\""),
        "Largest head of an answer; more: 502.")
        .called(&["proxy_buffer_size", "reply_header_max_size", "max_response_headers_kb"]),
    key(BOTH, "retries", Kind::Count { min: 0, max: 100 }, Value("2"),
        "How often a call is tried again at most: only if the host cannot have seen it, or its method is idempotent. A host that refuses connections gets 0.1 s, then 0.4 s, to come back.")
        .called(&["proxy_next_upstream_tries", "num_retries", "forward_max_tries", "option_redispatch"])
        .begins("When a host fails"),
    key(BOTH, "retry_budget", Kind::Count { min: 0, max: 1_000 }, Value("20"),
        "Tries again may be so many percent of the calls; 0: none.").called(&["budget_percent"]),
    key(BOTH, "max_fails", Kind::Count { min: 0, max: 1_000_000 }, Value("10"),
        "So many calls in a row that fail, or nine in ten of the last ones (20 at least), open the breaker: further calls are answered with 503 at once. An answer is no failure, whatever its status. 0: never.")
        .called(&["error_limit", "consecutive_5xx"]),
    key(BOTH, "fail_timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "How long it stays open at most before one call tries: a tenth of this at first, twice as long after each try that fails.").called(&["base_ejection_time", "fail_duration"]),
    key(BOTH, "resolve_min", Kind::Duration { zero: false }, Value("\"1s\""),
        "A name is looked up again after this at the earliest, whatever its TTL says.")
        .called(&["negative_dns_ttl", "dns_min_refresh_rate"]).begins("Names and certificates"),
    key(BOTH, "resolve_max", Kind::Duration { zero: false }, Value("\"5m\""),
        "A name is looked up again after this at the latest.").called(&["positive_dns_ttl", "dns_refresh_rate"]),
    key(BOTH, "verify", Kind::Bool, Value("true"),
        "Certificates are checked. `false` only in `[egress.host.NAME]`: whoever is on the way can then read and change everything.")
        .called(&["proxy_ssl_verify", "insecure_skip_verify", "tls_insecure_skip_verify", "verify_peer", "trust_chain_verification"]),
    key(BOTH, "ca_file", Kind::Path, Absent("the system's authorities"),
        "Certificates (PEM) of authorities that are trusted beside the system's.")
        .called(&["proxy_ssl_trusted_certificate", "cafile", "ca_certificate"]),
    key(BOTH, "client_cert", Kind::Path, Absent("none"),
        "The certificate (PEM, with its chain) that weir shows; with `client_key`.")
        .called(&["proxy_ssl_certificate", "sslcert"]),
    key(BOTH, "client_key", Kind::Path, Absent("none"),
        "Its private key (PEM).").called(&["proxy_ssl_certificate_key", "sslkey"]),
    key(BOTH, "set_headers", Kind::SecretHeaders, Absent("none"),
        "Headers that are set in each call, whatever the caller says. `${file:PATH}` is what the file holds, `${env:NAME}` a variable of \
         weir's environment, read at the start and at a reload; a literal `${` is written `$${`. A host's are added to those of `[egress]`.")
        .called(&["proxy_set_header", "request_headers_to_add", "request_header_add", "header_up"]).begins("What is said and kept"),
    key(BOTH, "forwarded", Kind::Word(&["off", "x-forwarded-for", "forwarded"], &[]), Value("\"off\""),
        "Which header tells a host who called: none, `X-Forwarded-For` or `Forwarded` (RFC 7239).")
        .called(&["forwarded_for", "option_forwardfor", "x_forwarded_for"]),
    key(BOTH, "traceparent", Kind::Word(&["pass", "create"], &[]), Value("\"pass\""),
        "`\"create\"`: a call without `traceparent` (W3C Trace Context) is given one."),
    key(BOTH, "compress", Kind::Bool, Value("false"),
        "Answers are compressed for callers that ask for it."),
    key(BOTH, "cache", Kind::Bool, Value("false"),
        "Answers are kept as RFC 9111 allows a shared cache."),
    key(BOTH, "stale_if_error", Kind::Duration { zero: true }, Value("\"0\""),
        "A kept answer that is stale by at most that is used when the host fails, also where the answer itself does not say so.")
        .called(&["proxy_cache_use_stale"]),
];

const BOTH: &[Section] = &[Egress, EgressHost];
