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
        "Addresses for outgoing calls: `host:port` and `unix:PATH`. Addresses other than loopback need `token_file`."),
    key(&[Egress], "allow", Kind::AllowRules, Absent("no call is allowed"),
        "Allowed calls: `[METHOD[,METHOD] ][http://]HOST[:PORT][/PATH]`, or a table with `host`, `methods`, \
         `path`, `addresses` and `pools`. See [Allowed calls](#allowed-calls).")
        .called(&["allowed_hosts", "http_access"]),
    key(&[Egress], "upgrade", Kind::HttpOrigins, Absent("none"),
        "Hosts to call with https when a caller that uses weir as its proxy asks for `http://`: `\"api.example.com\"`."),
    key(&[Egress], "connect", Kind::Bool, Value("true"),
        "Allow CONNECT tunnels to the hosts in `allow`. Connections of tunnels cannot be shared. `false`: refuse them."),
    key(&[Egress], "token_file", Kind::Path, Absent("none: everybody who can connect may make calls"),
        "File with the token that callers over TCP must send: `Proxy-Authorization: Bearer TOKEN`, or Basic with any \
         name and the token as password. At least 16 characters without spaces. Only its owner should be able to read it. It is read \
         at the start and at a reload.").like("\"/etc/weir/egress.token\""),
    key(&[Egress], "socket", Kind::SocketPath, Absent("`weir/egress.sock` in `$XDG_RUNTIME_DIR`, for root in /run; none if `listen` has a unix socket"),
        "Unix socket for the workers of weir's pools: their environment has its path as `WEIR_EGRESS_SOCKET`. `unix:PATH`, or `\"off\"`. Only \
         the users of these pools, root and the user who started weir may call there. If the first TCP address of `listen` is not 127.0.0.1:8083, \
         the default name contains that address: `egress-127.0.0.1-8084.sock`."),
    key(&[Egress], "owner", Kind::Text, Absent("the user who started weir"),
        "Owner of the unix sockets."),
    key(&[Egress], "group", Kind::Text, Absent("the user who started weir"),
        "Group of the unix sockets."),
    key(&[Egress], "mode", Kind::Mode, Value("\"0666\""),
        "Permissions of the unix sockets. The default lets every user of this machine make calls, as over TCP."),
    key(&[Egress], "threads", Kind::Count { min: 0, max: 1024 }, Value("0"),
        "Number of threads for calls. 0: one for every four cores."),
    key(&[Egress], "max_connections", Kind::Count { min: 1, max: 10_000_000 }, Value("4096"),
        "Maximum number of connections from callers. More wait in the kernel's queue."),
    key(&[Egress], "max_hosts", Kind::Count { min: 1, max: 1_000_000 }, Value("1000"),
        "Maximum number of hosts whose connections, figures and failures are kept in memory. weir removes the hosts that were not called for the longest time first.").called(&["max_hosts_count"]),
    key(&[Egress], "cache_size", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"32M\""),
        "Memory for the cached answers of all hosts.").called(&["cache_mem"]),
    key(&[Egress], "cache_max_object", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"1M\""),
        "Larger answers are not cached.").called(&["maximum_object_size", "maximum_object_size_in_memory"]),

    key(&[EgressHost], "hosts", Kind::Origins, Required,
        "Hosts that the table applies to: `api.example.com` (https, port 443), `*.partner.example:8443`, `http://legacy.internal:8080`, \
         `api.example.com:*` (any port). If several tables match a host, the first one in the file is used."),

    key(BOTH, "keepalive", Kind::Count { min: 0, max: 65_536 }, Value("32"),
        "Number of idle connections per host that stay open. Up to `maxconn` connections are kept between calls; those above `keepalive` are \
         closed after 10 seconds without a call.")
        .called(&["pool_max_conn", "pool_high_count", "keepalive_idle_conns_per_host", "max_idle_conns_per_host"])
        .begins("Connections to a host"),
    key(BOTH, "keepalive_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "An idle connection is closed after this time.")
        .called(&["pool_purge_delay", "pconn_timeout", "server_idle_pconn_timeout", "idle_conn_timeout"]),
    key(BOTH, "keepalive_time", Kind::Duration { zero: false }, Value("\"1h\""),
        "A connection gets no new calls after this time.")
        .called(&["max_connection_duration", "max_connection_age", "pconn_lifetime"]),
    key(BOTH, "preconnect", Kind::Count { min: 0, max: 1_000 }, Value("0"),
        "Minimum number of open connections, used or idle, so that the first call after the start or a quiet time finds one. Only for hosts that are listed \
         without `*` in `allow` or a table.").called(&["preconnect_policy", "per_upstream_preconnect_ratio"]),
    key(BOTH, "http2", Kind::Bool, Value("true"),
        "Offer HTTP/2 to https hosts.").called(&["http2_protocol_options", "proxy_http_version"]),
    key(BOTH, "maxconn", Kind::Count { min: 1, max: 1_000_000 }, Value("100"),
        "Maximum number of calls to a host at once.").called(&["max_conns", "max_conns_per_host"])
        .begins("Limits of a host"),
    key(BOTH, "max_queue", Kind::Count { min: 0, max: 10_000_000 }, Value("1000"),
        "Maximum number of waiting calls per host. More are answered with 503 at once. 0: no call waits.")
        .called(&["maxqueue", "max_pending_requests"]),
    key(BOTH, "queue_timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "Maximum waiting time; then 503 with Retry-After.").called(&["timeout_queue"]),
    key(BOTH, "connect_timeout", Kind::Duration { zero: false }, Value("\"5s\""),
        "Maximum time to open a connection: DNS, TCP and TLS.")
        .called(&["proxy_connect_timeout", "timeout_connect", "dial_timeout", "forward_timeout"]),
    key(BOTH, "first_byte_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "Maximum time from the request to the first byte of the answer; then 504.")
        .called(&["timeout_server", "response_header_timeout", "timeout_http_response"]),
    key(BOTH, "read_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "Maximum time without data while a body is sent or received.")
        .called(&["proxy_read_timeout", "proxy_send_timeout", "stream_idle_timeout", "timeout_tunnel"]),
    key(BOTH, "timeout", Kind::Duration { zero: true }, Value("\"1h\""),
        "Maximum time of a whole call, including waiting; then 504, or an answer that has begun is cut. 0: no limit.")
        .called(&["request_lifetime"]),
    key(BOTH, "max_response_head", Kind::Size { min: 4 << 10, max: 16 << 20 }, Value("\"64K\""),
        "Maximum size of an answer's head; larger: 502.")
        .called(&["proxy_buffer_size", "reply_header_max_size", "max_response_headers_kb"]),
    key(BOTH, "retries", Kind::Count { min: 0, max: 100 }, Value("2"),
        "Maximum number of further attempts of a call. A call is only repeated if the host cannot have seen it, or its method is idempotent. If a host refuses connections, weir waits 0.1 s, then 0.4 s.")
        .called(&["proxy_next_upstream_tries", "num_retries", "forward_max_tries", "option_redispatch"])
        .begins("When a host fails"),
    key(BOTH, "retry_budget", Kind::Count { min: 0, max: 1_000 }, Value("20"),
        "Maximum share of repeated attempts, in percent of all calls. 0: none.").called(&["budget_percent"]),
    key(BOTH, "max_fails", Kind::Count { min: 0, max: 1_000_000 }, Value("10"),
        "After this number of failed calls in a row, or if nine in ten of the last calls failed (at least 20), the circuit breaker opens: further calls are answered with 503 at once. An answer with any status is not a failure. 0: never.")
        .called(&["error_limit", "consecutive_5xx"]),
    key(BOTH, "fail_timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "Maximum time that the circuit breaker stays open before one call is tried: first a tenth of this, then twice as long after each failure.").called(&["base_ejection_time", "fail_duration"]),
    key(BOTH, "resolve_min", Kind::Duration { zero: false }, Value("\"1s\""),
        "Minimum time between two DNS lookups of a name, even if its TTL is shorter.")
        .called(&["negative_dns_ttl", "dns_min_refresh_rate"]).begins("Names and certificates"),
    key(BOTH, "resolve_max", Kind::Duration { zero: false }, Value("\"5m\""),
        "Maximum time between two DNS lookups of a name.").called(&["positive_dns_ttl", "dns_refresh_rate"]),
    key(BOTH, "verify", Kind::Bool, Value("true"),
        "Check certificates. `false` is only possible in `[egress.host.NAME]`: anybody on the network path can then read and change the calls.")
        .called(&["proxy_ssl_verify", "insecure_skip_verify", "tls_insecure_skip_verify", "verify_peer", "trust_chain_verification"]),
    key(BOTH, "ca_file", Kind::Path, Absent("the system's authorities"),
        "Certificates (PEM) of authorities to trust, in addition to the system's.")
        .called(&["proxy_ssl_trusted_certificate", "cafile", "ca_certificate"]).like("\"/etc/weir/ca.pem\""),
    key(BOTH, "client_cert", Kind::Path, Absent("none"),
        "Client certificate of weir (PEM, with its chain). Needs `client_key`.")
        .called(&["proxy_ssl_certificate", "sslcert"]).like("\"/etc/weir/client.pem\""),
    key(BOTH, "client_key", Kind::Path, Absent("none"),
        "Private key of the client certificate (PEM).").called(&["proxy_ssl_certificate_key", "sslkey"]).like("\"/etc/weir/client.key\""),
    key(BOTH, "set_headers", Kind::SecretHeaders, Absent("none"),
        "Headers to set in each call; they replace the caller's. `${file:PATH}` is the content of a file, `${env:NAME}` a variable \
         of weir's environment; both are read at the start and at a reload. Write `$${` for a literal `${`. A host's table adds to `[egress]`.")
        .called(&["proxy_set_header", "request_headers_to_add", "request_header_add", "header_up"]).begins("Headers, compression and cache"),
    key(BOTH, "forwarded", Kind::Word(&["off", "x-forwarded-for", "forwarded"], &[]), Value("\"off\""),
        "Header that tells the host who made the call: none, `X-Forwarded-For` or `Forwarded` (RFC 7239).")
        .called(&["forwarded_for", "option_forwardfor", "x_forwarded_for"]),
    key(BOTH, "traceparent", Kind::Word(&["pass", "create"], &[]), Value("\"pass\""),
        "`\"create\"`: add a `traceparent` header (W3C Trace Context) to calls without one."),
    key(BOTH, "compress", Kind::Bool, Value("false"),
        "Compress answers for callers that accept it."),
    key(BOTH, "cache", Kind::Bool, Value("false"),
        "Cache answers, as RFC 9111 allows for a shared cache."),
    key(BOTH, "stale_if_error", Kind::Duration { zero: true }, Value("\"0\""),
        "When the host fails, use a cached answer that is stale by at most this time, even if the answer itself does not allow it.")
        .called(&["proxy_cache_use_stale"]),
];

const BOTH: &[Section] = &[Egress, EgressHost];
