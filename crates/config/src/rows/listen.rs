//! The keys of `[listen.NAME]`.

use super::{
    Default::{Absent, Required, Value},
    Kind, Row,
    Section::Listen,
    key,
};

#[rustfmt::skip]
pub(super) const LISTEN: &[Row] = &[
    key(&[Listen], "address", Kind::Address, Required,
        "`host:port`, `[::]:port`, `*:80` or `unix:PATH`.").called(&["bind", "listen", "addr"]),
    key(&[Listen], "protocol", Kind::Word(&["http", "fastcgi", "agent-check"], &[]), Value("\"http\""),
        "Protocol of the listener: `\"http\"`; `\"fastcgi\"` for a web server in front; or `\"agent-check\"`, which reports the free capacity \
         of `pool` to a HAProxy in front."),
    key(&[Listen], "tls", Kind::Bool, Value("false"),
        "Clients use TLS (https). weir chooses the certificate by the name that the client asks for: see `[certificate.NAME]`.")
        .called(&["ssl", "https", "sslengine", "SSLEngine"]).only(&["http"]),
    key(&[Listen], "default_certificate", Kind::Reference, Absent("none: such clients are refused with the alert `unrecognized_name`"),
        "NAME of the certificate for clients that ask for no name, or for a name that no certificate has. Needs `tls`.")
        .called(&["default_crt", "ssl_default_server"]).only(&["http"]),
    key(&[Listen], "backlog", Kind::Count { min: 1, max: 1 << 30 }, Value("4096"),
        "Length of the kernel's accept queue. The kernel cuts it to net.core.somaxconn."),
    key(&[Listen], "ipv6only", Kind::Bool, Value("true"),
        "A socket with an IPv6 address accepts only IPv6. `false`: a socket on `[::]` accepts IPv4 too."),
    key(&[Listen], "owner", Kind::Text, Absent("the user who started weir"),
        "Owner of a unix socket."),
    key(&[Listen], "group", Kind::Text, Absent("the user who started weir"),
        "Group of a unix socket."),
    key(&[Listen], "mode", Kind::Mode, Value("\"0660\""),
        "Permissions of a unix socket."),
    key(&[Listen], "max_head", Kind::Size { min: 8 << 10, max: 16 << 20 }, Value("\"32K\""),
        "Maximum size of a request head (request line and headers); larger: 431, or 414 if the target alone is. The default leaves room for large cookies.")
        .called(&["large_client_header_buffers", "client_header_buffer_size", "LimitRequestFieldSize", "bufsize"]).only(&["http"]),
    key(&[Listen], "max_headers", Kind::Count { min: 1, max: 10_000 }, Value("100"),
        "Maximum number of request headers; more: 431.").called(&["LimitRequestFields", "maxhdr"]).only(&["http"]),
    key(&[Listen], "header_timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "Maximum time from the first to the last byte of a request head; longer: 408.")
        .called(&["client_header_timeout", "timeout_http_request", "RequestReadTimeout"]).only(&["http", "fastcgi"]),
    key(&[Listen], "body_timeout", Kind::Duration { zero: false }, Value("\"30s\""),
        "Maximum time without data while a request body arrives; longer: 408.").called(&["client_body_timeout"]).only(&["http", "fastcgi"]),
    key(&[Listen], "idle_timeout", Kind::Duration { zero: false }, Value("\"75s\""),
        "Maximum time between two requests on a connection. Should be longer than the 60 s for which load balancers keep idle connections.")
        .called(&["keepalive_timeout", "KeepAliveTimeout", "timeout_http_keep_alive"]).only(&["http", "fastcgi"]),
    key(&[Listen], "send_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "A connection is cut when its client accepts no data for this time although the answer is not complete. A client that \
         reads slowly but steadily is not cut.").called(&["timeout_client"]).only(&["http", "fastcgi"]),
    key(&[Listen], "max_requests_per_connection", Kind::Count { min: 0, max: u64::MAX }, Value("0"),
        "Maximum number of requests on one connection. 0: no limit.").called(&["keepalive_requests", "MaxKeepAliveRequests"]).only(&["http", "fastcgi"]),
    key(&[Listen], "http2", Kind::Http2, Absent("`true` with `tls`, otherwise `false`"),
        "HTTP/2. `true`: clients choose it in the handshake of TLS (ALPN). `\"clear\"`: without TLS, for clients that begin with its preface \
         (prior knowledge). In both cases all other clients get HTTP/1.")
        .called(&["http2_on", "h2", "h2c", "Protocols"]).only(&["http"]),
    key(&[Listen], "http3", Kind::Bool, Value("false"),
        "HTTP/3 (QUIC) on the same port over UDP. Needs `tls`. Answers over TCP announce it (`Alt-Svc`). The limits `http2_max_streams`, \
         `http2_max_resets`, `http2_max_small_frames`, `http2_stream_window`, `http2_window` and `http2_ping` apply to HTTP/3 too.")
        .called(&["h3", "http3_on", "quic"]).only(&["http"]),
    key(&[Listen], "http2_max_streams", Kind::Count { min: 1, max: 10_000 }, Value("128"),
        "Maximum number of requests at the same time on one HTTP/2 connection; more are reset with REFUSED_STREAM.")
        .called(&["http2_max_concurrent_streams", "H2MaxSessionStreams", "tune_h2_fe_max_concurrent_streams"]).only(&["http"]),
    key(&[Listen], "http2_max_resets", Kind::Count { min: 1, max: 1_000_000 }, Value("200"),
        "Maximum number of streams of one HTTP/2 connection that are reset in 10 s, by the client or by weir. A connection that exceeds this limit gets GOAWAY (ENHANCE_YOUR_CALM): it may begin no more requests, and weir answers the running ones. If a `trusted` proxy names the clients, the limit is for each client instead: a client that exceeds it gets 429 for 10 s, and the connection stays. A connection that exceeds one of the next three limits is closed.").only(&["http"]),
    key(&[Listen], "http2_max_pings", Kind::Count { min: 1, max: 1_000_000 }, Value("100"),
        "Maximum number of PING frames on one HTTP/2 connection in 10 s.").only(&["http"]),
    key(&[Listen], "http2_max_settings", Kind::Count { min: 1, max: 1_000_000 }, Value("20"),
        "Maximum number of SETTINGS frames on one HTTP/2 connection in 10 s.").only(&["http"]),
    key(&[Listen], "http2_max_small_frames", Kind::Count { min: 1, max: 10_000_000 }, Value("2000"),
        "Maximum number of frames on one HTTP/2 connection in 10 s that carry little: DATA with less than 64 bytes, parts of heads that come \
         in several frames, PRIORITY, PRIORITY_UPDATE, unknown types, and more WINDOW_UPDATE than the answers explain.").only(&["http"]),
    key(&[Listen], "http2_stream_window", Kind::Size { min: 64 << 10, max: 1 << 30 }, Value("\"256K\""),
        "How much of a request body an HTTP/2 client may send before weir has read it.")
        .called(&["http2_body_preread_size", "H2WindowSize", "tune_h2_fe_initial_window_size"]).only(&["http"]),
    key(&[Listen], "http2_window", Kind::Size { min: 64 << 10, max: 1 << 30 }, Value("\"1M\""),
        "The same for all request bodies of one HTTP/2 connection together. At least `http2_stream_window` applies.")
        .called(&["http2_recv_buffer_size"]).only(&["http"]),
    key(&[Listen], "http2_ping", Kind::Duration { zero: true }, Value("\"30s\""),
        "An HTTP/2 client that waits for answers and sends nothing for this time gets a PING. If it then sends nothing for the same time, its \
         connection is closed. 0: no PING.").only(&["http"]),
    key(&[Listen], "proxy_protocol", Kind::Bool, Value("false"),
        "Each connection begins with a header of the PROXY protocol, version 1 or 2, which names the client. Only addresses in `trusted` of `[server]` may connect; weir closes all other connections.").called(&["accept_proxy", "accept-proxy"]).only(&["http"]),
    key(&[Listen], "pool", Kind::Reference, Absent("required with `protocol = \"fastcgi\"` and `\"agent-check\"`"),
        "NAME of the pool that answers (fastcgi), or whose free capacity is reported (agent-check).").only(&["fastcgi", "agent-check"]),
    key(&[Listen], "status_only", Kind::Bool, Value("false"),
        "Answer only the pool's status and ping pages (fastcgi).").called(&["status_listen"]).only(&["fastcgi"]),
    key(&[Listen], "on_worker_failure", Kind::Word(&["close", "answer"], &[]), Value("\"close\""),
        "What the web server in front gets when a worker died, exceeded a time limit or sent a wrong answer (fastcgi). `close`: weir closes the connection before the end of the answer, as PHP-FPM does. The web server then uses its own 502, error page and log line. `answer`: a response with 502 or 504.").only(&["fastcgi"]),
    key(&[Listen], "proxy_status", Kind::Bool, Value("false"),
        "Send the reason of refusals in a `Proxy-Status` header (fastcgi). The web server in front passes it on to its clients.").only(&["fastcgi"]),
    key(&[Listen], "allowed_clients", Kind::IpAddresses, Absent("any"),
        "Addresses that may connect to a TCP listener (fastcgi, agent-check).").called(&["listen_allowed_clients"]).only(&["fastcgi", "agent-check"]),
    key(&[Listen], "acl_users", Kind::References, Absent("none"),
        "Users who may connect to a unix socket, in addition to `owner`. With `acl_users` or `acl_groups`, weir does not change the socket's owner and group.")
        .called(&["listen_acl_users"]),
    key(&[Listen], "acl_groups", Kind::References, Absent("none"),
        "Groups that may connect to a unix socket, in addition to `group`.").called(&["listen_acl_groups"]),
];
