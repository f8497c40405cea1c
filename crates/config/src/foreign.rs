//! Keys of other programs that weir does not have: what to use instead, or that the feature does not exist.

/// Hint for a key or table of another program. `name` is in lower case, with underscores.
pub(crate) fn hint(name: &str) -> Option<&'static str> {
    FOREIGN
        .iter()
        .find(|(names, _)| names.contains(&name))
        .map(|(_, hint)| *hint)
}

/// Names in lower case, with underscores for dashes, dots and spaces.
const FOREIGN: &[(&[&str], &str)] = &[
    (
        &[
            "auth_basic",
            "auth_basic_user_file",
            "basic_auth",
            "basicauth",
            "authtype",
            "authname",
            "authuserfile",
            "auth_request",
            "forward_auth",
            "satisfy",
            "require",
        ],
        "passwords are not built yet: ask for them in the application, or in a web server in front",
    ),
    (
        &[
            "gzip",
            "gzip_types",
            "gzip_comp_level",
            "gzip_min_length",
            "gzip_vary",
            "gzip_proxied",
            "brotli",
            "brotli_types",
            "zstd",
            "compress",
            "compression",
            "encode",
            "deflate",
            "setoutputfilter",
            "addoutputfilterbytype",
        ],
        "answers are not compressed yet: files are sent compressed where a .gz, .br or .zst is beside them (`precompressed`), \
         and PHP compresses its own with zlib.output_compression",
    ),
    (
        &[
            "tls",
            "ssl",
            "https",
            "ssl_certificate",
            "ssl_certificate_key",
            "ssl_protocols",
            "ssl_ciphers",
            "ssl_session_cache",
            "sslengine",
            "sslcertificatefile",
            "sslcertificatekeyfile",
            "certificate",
            "certificates",
            "certificate_key",
            "cert",
            "crt",
            "acme",
            "letsencrypt",
            "hsts",
            "https_redirect",
            "default_certificate",
            "client_ca",
        ],
        "TLS is not built yet: put a TLS proxy (nginx, HAProxy, Caddy) in front, which speaks HTTP to a listener of weir",
    ),
    (
        &["http2", "http3", "h2", "h2c", "quic", "protocols"],
        "HTTP/2 and HTTP/3 are not built yet: clients speak HTTP/1.1, or HTTP/2 to a proxy in front",
    ),
    (
        &[
            "proxy_pass",
            "proxypass",
            "proxypassreverse",
            "proxypassmatch",
            "reverse_proxy",
            "proxy",
            "grpc_pass",
            "uwsgi_pass",
            "scgi_pass",
            "http_proxy",
        ],
        "weir hands requests to FastCGI applications, not to HTTP servers: a pool with runtime = \"servers\" names them; the \
         application's own calls go through [egress]",
    ),
    (
        &[
            "autoindex",
            "directory_listing",
            "browse",
            "file_server",
            "options",
            "indexes",
        ],
        "folders are never listed: `index` names the files that answer for them",
    ),
    (
        &[
            "htaccess",
            "allowoverride",
            "accessfilename",
            "allow_override",
        ],
        ".htaccess files are not read: write a route with `deny`, `redirect` or `rewrite`; `weir doctor` names the files and \
         what they would deny",
    ),
    (
        &[
            "rewriteengine",
            "rewritecond",
            "rewritebase",
            "rewriterules",
            "if",
        ],
        "a [[site.NAME.route]] with `path`, `methods` and `rewrite` or `redirect` says it; `fallback` is for what is no file",
    ),
    (
        &[
            "location",
            "locationmatch",
            "directory",
            "files",
            "filesmatch",
            "handle",
            "handle_path",
            "route_match",
        ],
        "write a [[site.NAME.route]] with path = \"/prefix/*\", or \"~^/regular/expression\"",
    ),
    (
        &[
            "limit_req",
            "limit_req_zone",
            "limit_conn_zone",
            "rate",
            "rate_limit",
            "limit_rate",
            "ratelimit",
            "stick_table",
            "bandwidth",
        ],
        "rates are not limited yet: `fair_by` gives clients equal shares of the workers, `max_connections_per_address` limits \
         connections",
    ),
    (
        &[
            "fastcgi_cache",
            "fastcgi_cache_path",
            "fastcgi_cache_valid",
            "proxy_cache",
            "cache",
            "cacheenable",
        ],
        "pages are not cached yet: `cache_control` tells browsers how long files may be kept, and scripts say it for pages",
    ),
    (
        &["autostart", "program", "cron", "schedule"],
        "programs beside the workers are not run yet: let systemd or cron do that",
    ),
    (
        &["fastcgi_index"],
        "`index` names the files that answer for a folder, scripts among them",
    ),
    (
        &["internal"],
        "a file that only scripts may have sent lies outside of `root`, in a folder of `accel_redirect` or `sendfile_dirs`",
    ),
    (
        &[
            "sendfile",
            "tcp_nopush",
            "tcp_nodelay",
            "aio",
            "open_file_cache",
            "directio",
            "keepalive",
        ],
        "leave it out: this is done in any case",
    ),
    (
        &["server_tokens", "serversignature", "servertokens"],
        "leave it out: weir's version is in no answer",
    ),
    (
        &["include", "import"],
        "a configuration is one file: write it here",
    ),
    (
        &["port", "listen_port"],
        "the port is a part of `address`: address = \"0.0.0.0:8080\"",
    ),
    (
        &["daemonize", "daemon", "background"],
        "leave it out: weir stays in the foreground, as systemd and containers want it",
    ),
];
