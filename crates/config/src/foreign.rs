//! Keys of other programs that weir does not have: what to use instead, or that the feature does not exist.

/// Hint for a key or table of another program. `name` is in lower case, with underscores.
pub(crate) fn hint(name: &str) -> Option<&'static str> {
    FOREIGN
        .iter()
        .find(|(names, _)| names.split(' ').any(|known| known == name))
        .map(|(_, hint)| *hint)
}

/// Names in lower case, with underscores for dashes, dots and spaces; and the hint for them.
const FOREIGN: &[(&str, &str)] = &[
    (
        "authtype authname require authgroupfile",
        "write basic_auth = { realm = \"staging\", file = \"/etc/weir/htpasswd\" } in [site.NAME] or in a route",
    ),
    (
        "satisfy",
        "remove it: a client must pass `allow` and `deny`, and `basic_auth` too (satisfy all)",
    ),
    (
        "auth_request forward_auth",
        "weir does not ask another server who may come in: do it in the application, or use `basic_auth`",
    ),
    (
        "gzip_comp_level gzip_vary gzip_proxied gzip_http_version gzip_disable gzip_buffers brotli_comp_level zstd_comp_level deflate \
         deflatecompressionlevel brotlicompressionquality",
        "`compress` of a site or a route compresses answers; the levels are fixed, and `Vary` is always sent",
    ),
    (
        "acme acme_certificate acme_issuer letsencrypt email",
        "write tls = \"auto\" in [site.NAME], and what the authority needs in [tls.acme]",
    ),
    (
        "https_redirect hsts auto_https",
        "it is a key of a site: write https_redirect = true or hsts = \"1y\" in [site.NAME]",
    ),
    (
        "ssl_ciphers ssl_ecdh_curve ssl_conf_command sslciphersuite ssl_prefer_server_ciphers ciphers ciphersuites curves",
        "remove it: weir has only ciphers and groups that are secure, the same as Mozilla's intermediate profile",
    ),
    (
        "ssl_session_cache ssl_session_tickets ssl_session_timeout ssl_session_ticket_key sslsessioncache",
        "remove it: weir resumes sessions with tickets, whose keys it changes every 12 hours",
    ),
    (
        "ssl_stapling ssl_stapling_verify ssl_trusted_certificate sslusestapling",
        "remove it: authorities no longer offer OCSP",
    ),
    (
        "tls ssl https ssl_certificate ssl_certificate_key sslengine sslcertificatefile sslcertificatekeyfile certificate \
         certificates certificate_key cert crt default_certificate client_ca",
        "write tls = true in [listen.NAME], and the files in [certificate.NAME]: chain = \"/etc/ssl/shop.pem\", key = \"/etc/ssl/private/shop.key\"",
    ),
    (
        "http3 quic",
        "write http3 = true in a [listen.NAME] with tls = true",
    ),
    (
        "proxy_pass proxypass proxypassreverse proxypassmatch reverse_proxy proxy grpc_pass uwsgi_pass scgi_pass \
         http_proxy",
        "weir sends requests to FastCGI applications, not to HTTP servers: list them in a pool with runtime = \"servers\". \
         Outgoing calls of the application go through [egress]",
    ),
    (
        "autoindex directory_listing browse file_server options indexes",
        "weir has no directory listings; `index` sets the files that are served for a folder",
    ),
    (
        "htaccess allowoverride accessfilename allow_override",
        ".htaccess files have no effect: write a route with `deny`, `redirect` or `rewrite`. `weir doctor` lists \
         the files and what they deny",
    ),
    (
        "rewriteengine rewritecond rewritebase rewriterules if",
        "write a [[site.NAME.route]] with `path`, `methods` and `rewrite` or `redirect`; for URLs that are not files, write `fallback`",
    ),
    (
        "location locationmatch directory files filesmatch handle handle_path route_match",
        "write a [[site.NAME.route]] with path = \"/prefix/*\", or \"~^/regular/expression\"",
    ),
    (
        "limit_rate_after",
        "remove it: `bandwidth` applies from the first byte on",
    ),
    (
        "limit_req_zone limit_conn_zone ratelimit stick_table",
        "`rate` of a site or route limits the requests of each client, `max_connections_per_address` of [server] their connections",
    ),
    (
        "fastcgi_cache fastcgi_cache_path fastcgi_cache_valid proxy_cache cache cacheenable",
        "a page cache is not built yet: `cache_control` tells browsers how long to keep files; scripts send their own headers for pages",
    ),
    (
        "autostart program cron schedule",
        "running other programs is not built yet: use systemd or cron",
    ),
    (
        "fastcgi_index",
        "`index` lists the files that are served for a folder; scripts can be in it",
    ),
    (
        "internal",
        "put files that only scripts may send outside of `root`, in a folder of `accel_redirect` or `sendfile_dirs`",
    ),
    (
        "sendfile tcp_nopush tcp_nodelay aio open_file_cache directio keepalive",
        "remove it: weir always does this",
    ),
    (
        "server_tokens serversignature servertokens",
        "remove it: weir never sends its version to clients",
    ),
    (
        "include import",
        "the configuration must be one file: write everything here",
    ),
    (
        "port listen_port",
        "write the port in `address`: address = \"0.0.0.0:8080\"",
    ),
    (
        "daemonize daemon background",
        "remove it: weir stays in the foreground, as systemd and containers need it",
    ),
];
