//! The keys of `[site.NAME]` and its routes, and those of them that a FastCGI listener takes too.

use super::{
    Default::{Absent, Value},
    Kind, PRIORITIES, Row, SIZE_MAX,
    Section::{self, Listen, Route, Site},
    key,
};
use crate::cache::PRESETS;

#[rustfmt::skip]
pub(super) const SITE: &[Row] = &[
    key(&[Site], "hosts", Kind::Hosts, Absent("the default site of its listeners"),
        "Host names of the site: `shop.example`, `*.shop.example` (all names with this ending), `shop.*` (all names with this beginning).")
        .called(&["server_name", "host", "ServerName", "ServerAlias"]),
    key(&[Site], "listen", Kind::References, Absent("all HTTP listeners"),
        "NAMEs of the site's listeners.").called(&["listeners"]),
    key(&[Site], "tls", Kind::Reference, Absent("any certificate that has the name the client asks for"),
        "NAME of the certificate for the site's hosts. `\"auto\"`: weir gets one by itself (`[tls.acme]`); for names that no public authority signs (`localhost`, \
         `*.test`, private addresses) it makes one with its local authority: `weir trust`.").called(&["ssl_certificate", "SSLCertificateFile", "certificate"]),
    key(&[Site], "https_redirect", Kind::Bool, Absent("`true` with `tls = \"auto\"`, else `false`"),
        "Requests that come without TLS are redirected to https (308), to the site's listener with port 443, else to its first with TLS. A request over \
         TLS at a proxy in front (`trusted`) is not redirected.").called(&["redir_https", "force_https", "auto_https", "ssl_redirect"]),
    key(&[Site], "hsts", Kind::Hsts, Absent("none"),
        "Browsers use only https for this site, for this time: `\"1y\"`, `\"2y include_subdomains preload\"` (Strict-Transport-Security). Sent over TLS only. \
         You cannot revoke it before the time is over: begin with `\"5m\"`.").called(&["strict_transport_security"]),
    key(&[Site], "client_ca", Kind::Path, Absent("clients are not asked for a certificate"),
        "File with the certificates of the authorities whose client certificates the site accepts (PEM). It is read at the start and at a reload.")
        .called(&["ssl_client_certificate", "SSLCACertificateFile", "ca_file"]).like("\"/etc/weir/clients.pem\""),
    key(&[Site], "client_certificate", Kind::Word(&["required", "optional"], &[]), Value("\"required\""),
        "Whether clients must have a certificate of `client_ca`. `\"optional\"`: a client without one is served too, and `SSL_CLIENT_VERIFY` \
         is `NONE`.").called(&["ssl_verify_client", "SSLVerifyClient", "client_auth"]),
    key(&[Site], "deny", Kind::Peers, Absent("nobody"),
        "Clients that get 403, even if `allow` has them: networks, `\"unix:\"` (clients on unix sockets) or `\"all\"`."),
];

#[rustfmt::skip]
pub(super) const ROUTE: &[Row] = &[
    key(&[Route], "path", Kind::PathPattern, Value("\"*\""),
        "Paths that the route matches: a glob for the whole decoded path (`*` matches any characters, slashes too; `?` one \
         character), or `~` and a regular expression.").called(&["location", "match"]),
    key(&[Route], "methods", Kind::Methods, Absent("any"),
        "Methods that the route matches. A site with such a route answers 501 to methods that are neither registered with IANA nor named \
         in a route: such methods would bypass the rules.").called(&["method"]),
    key(&[Route], "redirect", Kind::Template, Absent("none"),
        "Answer with a redirect to this location.").called(&["return"]),
    key(&[Route], "status", Kind::RedirectStatus, Value("308"),
        "Status of `redirect`: 301, 302, 303, 307 or 308."),
    key(&[Route], "deny", Kind::Deny, Absent("the site's"),
        "`true`: answer with 403. A list: as in the site. `false`: nobody is denied."),
    key(&[Route], "rewrite", Kind::Rewrite, Absent("none"),
        "New path and query for the request, even if a file exists at the old path: `\"/doku.php?id=$1\"`. `$1` to `$9`, `${1}` \
         and `${name}` are groups of a regular expression in `path`; `$$` is a dollar sign. The request's own query \
         is appended, unless the text ends with `?`. The routes are then checked again with the result.").called(&["RewriteRule", "uri_rewrite"]),
    key(&[Route], "alias", Kind::Path, Absent("none"),
        "Folder that replaces the route's prefix: with `path = \"/javascript/*\"` and `alias = \"/usr/share/javascript\"`, \
         `/javascript/a.js` is the file `/usr/share/javascript/a.js`. Scripts run there too. `fallback` and `script_root` \
         of the site do not apply there.").called(&["Alias"]).like("\"/usr/share/javascript\""),
    key(&[Route], "strip_prefix", Kind::Bool, Value("false"),
        "Requests to a pool with `protocol = \"http\"` come without the route's prefix: with `path = \"/api/*\"`, `/api/users` is `/users` there.")
        .called(&["handle_path", "proxy_pass with a path"]),
    key(&[Route], "reply", Kind::Reply, Absent("none"),
        "Answer with `{ status = 200, body = \"…\", content_type = \"text/plain; charset=utf-8\" }`. The body is a template.")
        .called(&["respond"]),
];

/// Settings of a site that a route may override.
#[rustfmt::skip]
pub(super) const SETTINGS: &[Row] = &[
    key(BOTH, "root", Kind::Path, Absent("none: no files and no scripts, only replies"),
        "The document root.").called(&["document_root", "docroot", "DocumentRoot", "doc_root"]),
    key(BOTH, "script_root", Kind::Text, Absent("the same as `root`"),
        "Path of `root` as the worker sees it, if the worker has a chroot or is on another host.").like("\"/public\""),
    key(BOTH, "index", Kind::FileNames, Absent("`[\"index.php\", \"index.html\"]` with a pool, else `[\"index.html\"]`"),
        "Files tried, in order, for a URL that ends in a slash.").called(&["DirectoryIndex"]),
    key(BOTH, "script", Kind::Script, Value(r"'^(/.+\.php)(/.*)?$'"),
        "Which URLs are scripts. The 1st group is the script name, the 2nd the path-info.")
        .called(&["path_info", "fastcgi_split_path_info"]),
    key(BOTH, "fallback", Kind::Fallback, Absent("none: 404"),
        "Script for URLs that are not files: the front controller. It can have a query and, in a route with a regular \
         expression, groups as in `rewrite`. `\"\"` in a route: none.")
        .called(&["try_files", "FallbackResource"]),
    key(BOTH, "check_files", Kind::Bool, Absent("`true` for PHP scripts, `false` for other programs"),
        "Run a script only if it exists as a file on this machine. `false`: run it in any case, for workers that have \
         their files elsewhere or have no files. The default counts these as PHP: pools with weir's own PHP, pools whose `command` \
         or `servers` have `php` or `fcgiwrap` in their name, and scripts with a PHP extension. If a URL of another program \
         is a file here, the rules for files still apply to it."),
    key(BOTH, "encoded_slash", Kind::Word(&["pass", "refuse"], &[]), Value("\"pass\""),
        "What to do with `%2F` in a path. `\"pass\"`: it is never a file, but can be the path-info of a script or of the fallback \
         (decoded in `PATH_INFO`, as sent in `REQUEST_URI`). `\"refuse\"`: 404.").called(&["AllowEncodedSlashes"]),
    key(BOTH, "pool", Kind::Reference, Absent("none: scripts are refused with 403, never sent as text"),
        "NAME of the pool that runs the scripts. A pool with `protocol = \"http\"` gets every request that is for no file: [upstreams.md](upstreams.md). \
         `\"\"` in a route: none.")
        .called(&["fastcgi_pass", "use_fcgi_app", "upstream", "backend", "php_fastcgi"]),
    key(BOTH, "params", Kind::Params, Absent("none"),
        "Additional FastCGI parameters for the worker. Values are templates. A route adds to those of its site.")
        .called(&["set_param", "fastcgi_param", "SetEnv"]),
    key(BOTH, "pass_headers", Kind::RequestHeaderNames, Absent("all except Proxy and headers of the connection"),
        "Pass only these request headers to the worker. Names with characters other than letters, digits and dashes are never \
         passed (see `underscores_in_headers`).").called(&["pass_header"]),
    key(BOTH, "underscores_in_headers", Kind::Bool, Value("false"),
        "Also pass request headers with underscores in their names, unless the same name with dashes was sent. A script cannot \
         distinguish `X_Real_IP` from `X-Real-IP`, so use this only if no proxy in front sets headers that scripts trust."),
    key(BOTH, "hide_files", Kind::Regexes,
        Absent("files whose name begins with a dot (but not `/.well-known/`), or ends in `~`, `.bak`, `.old`, `.orig`, \
                `.save`, `.dist`, `.swp`, `.swo`, `.swn` or `.inc`, or is between two `#`"),
        "Regular expressions for paths that are never served and never run. They are matched with the path, and with the \
         script name if path-info follows it. The default only hides files: path-info and URLs of the fallback can have such names."),
    key(BOTH, "deny_scripts", Kind::UrlPrefixes, Absent("none"),
        "Path prefixes where scripts never run; they are sent as plain text."),
    key(BOTH, "error_pages", Kind::ErrorPages, Absent("none"),
        "Status → file (absolute, or relative to `root`). A route adds to those of its site.")
        .called(&["error_page", "ErrorDocument", "errorfile"]),
    key(BOTH, "cache_control", Kind::HeaderValue, Absent("none"),
        "`Cache-Control` header of static files. `\"\"` in a route: none.").called(&["expires"]),
    key(BOTH, "set_headers", Kind::HeaderTemplates, Absent("none"),
        "Response headers to set. Values are templates. A route adds to those of its site.")
        .called(&["add_header", "headers", "set_header", "Header"]),
    key(BOTH, "remove_headers", Kind::HeaderNames, Absent("none"),
        "Response headers to remove.").called(&["fastcgi_hide_header", "del_header", "hide_headers"]),
    key(BOTH, "set_request_headers", Kind::RequestHeaderTemplates, Absent("none"),
        "Request headers to set for the worker. Values are templates. A route adds to those of its site.")
        .called(&["RequestHeader", "proxy_set_header"]),
    key(BOTH, "charset", Kind::Charset, Value("\"utf-8\""),
        "Charset added to text types of static files. `\"\"`: none.").called(&["AddDefaultCharset"]),
    key(BOTH, "types", Kind::Types, Absent("the built-in list"),
        "Media types by extension (without the dot), in addition to the built-in list. A route adds to those of its site.")
        .called(&["AddType", "mime_types"]),
    key(BOTH, "precompressed", Kind::Bool, Value("true"),
        "Send `file.br`, `file.zst` or `file.gz` from the same folder to clients that accept them.")
        .called(&["gzip_static", "brotli_static"]),
    key(BOTH, "compress", Kind::Bool, Value("false"),
        "Compress answers of scripts, and files without a precompressed file beside them, for clients that accept zstd, br or gzip.")
        .called(&["gzip", "brotli", "zstd", "encode", "compression", "SetOutputFilter"]),
    key(BOTH, "compress_types", Kind::MediaTypes, Value(COMPRESS_TYPES),
        "Media types that are compressed: exact ones, `text/*` (all of a kind), `*+json` (all with this ending), or `*`.")
        .called(&["gzip_types", "brotli_types", "zstd_types", "AddOutputFilterByType"]),
    key(BOTH, "compress_min_size", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"1K\""),
        "Shorter answers are not compressed.").called(&["gzip_min_length", "brotli_min_length", "minimum_length"]),
    key(BOTH, "compress_cross_site", Kind::Bool, Value("false"),
        "Also compress answers to requests that another site has caused (`Sec-Fetch-Site: cross-site`) and that name the visitor, by cookies for example. From the length of such answers the other site could find out secrets in them (BREACH)."),
    key(BOTH, "follow_symlinks", Kind::Bool, Value("false"),
        "Follow symbolic links that lead out of the root.").called(&["disable_symlinks", "FollowSymLinks"]),
    key(BOTH, "max_body", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"64M\""),
        "Maximum size of a request body; larger: 413. Bodies use disk, not memory, so this can be \
         large. PHP's own post_max_size and upload_max_filesize still apply.")
        .called(&["client_max_body_size", "LimitRequestBody", "max_request_body", "post_max_size"]),
    key(BOTH, "body_memory", Kind::Size { min: 0, max: 1 << 30 }, Value("\"64K\""),
        "Part of a request body that is kept in memory. The rest goes to a temporary file.").called(&["client_body_buffer_size"]),
    key(BOTH, "response_memory", Kind::Size { min: 4 << 10, max: 1 << 30 }, Value("\"256K\""),
        "Part of a response that is kept in memory for a slow client. The rest goes to a temporary file.").called(&["fastcgi_buffers"]),
    key(BOTH, "max_response_file", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"1G\""),
        "Part of a response that is kept in a temporary file for a slow client. Beyond that, the worker waits for the client."),
    key(BOTH, "buffering", Kind::Bool, Value("true"),
        "Read responses faster than a slow client takes them, to free the worker. `false`: pass them on as they arrive, for streams.")
        .called(&["fastcgi_buffering"]),
    key(BOTH, "accel_redirect", Kind::Folders, Absent("none"),
        "For X-Accel-Redirect: URL prefix → folder whose files a script may send. A route adds to those of its site."),
    key(BOTH, "sendfile_dirs", Kind::Paths, Absent("none"),
        "For X-Sendfile: folders whose files a script may send.").called(&["XSendFilePath"]),
    key(BOTH, "allow", Kind::Peers, Absent("everybody"),
        "Only these clients are served, others get 403: networks, `\"unix:\"` (clients on unix sockets) or `\"all\"`. `[]` in a route: everybody. \
         A client behind a proxy of `trusted` counts with its own address.").called(&["Allow"]),
    key(BOTH, "rate", Kind::Rate, Absent("any"),
        "How many requests a client may send: `\"10/s burst 20\"`, also `/m` and `/h`. The 20 may come at once, in addition to the even rate. Without `burst`, the requests of one unit of time may come at once. More: 429. `fair_by` says what a client is; on a unix socket nobody is limited. A route with a rate counts separately; `\"\"` in a route: any.").called(&["limit_req", "rate_limit"]),
    key(BOTH, "basic_auth", Kind::BasicAuth, Absent("nobody is asked for a password"),
        "Clients need a user and a password of a file, which htpasswd writes: `{ realm = \"staging\", file = \"/etc/weir/htpasswd\" }`. Others get \
         401. The gateway's user must be able to read the file. A changed file is used at once. `allow` and `deny` must let the client in as well. \
         `false` in a route: no password.").called(&["auth_basic", "auth_basic_user_file", "basicauth", "AuthUserFile"]),
    key(BOTH, "bandwidth", Kind::Bandwidth, Absent("no limit"),
        "Maximum speed at which the body of each answer is sent, in bytes a second: `\"5M/s\"`. A script's answer is stored meanwhile, as for \
         any slow client. `\"\"` in a route: no limit. A script may set the speed of its answer with `X-Accel-Limit-Rate`.").called(&["limit_rate"]),
    key(BOTH, "cache", Kind::Word(PRESETS, &["litespeed"]), Absent("nothing is stored"),
        "Store answers of scripts for other visitors: by what the application says in its headers (`\"headers\"`), or by the rules for an application. `\"off\"` \
         in a route: nothing. To change the rules, write the table `[site.NAME.cache]` (in a route `[site.NAME.route.cache]`) instead: [Caching](caching.md).")
        .called(&["fastcgi_cache", "proxy_cache", "CacheEnable"]).like("\"wordpress\""),
    key(BOTH, "access_log", Kind::Bool, Value("true"),
        "Write requests to the access log."),
];

/// Settings of sites, routes and FastCGI listeners for the timeout, priority and order of requests for scripts.
#[rustfmt::skip]
pub(super) const POLICY: &[Row] = &[
    key(POLICIES, "timeout", Kind::Duration { zero: true }, Value("\"0\""),
        "Maximum time from the first byte of a request for a script to the head of its answer: body, queue and \
         script together. After that: 408 while the body arrives, 503 in the queue, 504 while the script runs (its worker is \
         then replaced). An answer that has begun is not cut. 0: only the limits of each part.").only(&["fastcgi"]),
    key(POLICIES, "timeout_header", Kind::HeaderName, Absent("none: clients cannot set a time"),
        "Request header in which clients send how long they will wait, in seconds (`1.5`) or with a unit (`\"250ms\"`). \
         It can lower `timeout`, but not raise it. The script gets it as `REQUEST_DEADLINE`. `\"\"` in a route: none.").only(&["fastcgi"]),
    key(POLICIES, "priority", Kind::Signed { min: PRIORITIES.0, max: PRIORITIES.1 }, Value("0"),
        "Priority in the queue, if no rule of `priority_by` matches. Lower numbers go first.").only(&["fastcgi"]),
    key(POLICIES, "priority_by", Kind::PriorityRules, Absent("none"),
        "Rules that set the `priority` by a `header` or `cookie` of the request. The first matching rule is used. \
         `match` is a glob for the whole value (`*` matches any characters, `?` one), or `~` and a regular expression; \
         without `match`, any value matches. A route's rules replace those of its site.").only(&["fastcgi"]),
    key(POLICIES, "fair_by", Kind::FairBy, Value("\"address\""),
        "How clients are identified; each client gets an equal share of the workers. By address (IPv6: /64 network), or by a \
         header (the last value of a list) or a cookie. Requests without that header or cookie are identified by address. A client must not be able to \
         choose the value: a proxy in front should set it. `\"off\"`: clients are not distinguished.").only(&["fastcgi"]),
    key(POLICIES, "serialize_by", Kind::SerializeBy, Absent("`serialize_by` of the pool's queue"),
        "Requests with the same cookie or header run one after the other in a pool. While one runs, the others wait in the queue. Otherwise they would wait in workers, for example for the lock of their PHP session. Requests without the cookie or header do not wait. `\"auto\"`: by the \
         session's cookie, for scripts that hold the session's lock for most of their time, as weir's own PHP reports it. `\"off\"`: all run at once.").only(&["fastcgi"]),
    key(POLICIES, "on_client_left", Kind::Word(&["finish", "cancel", "finish_if_answering"], &[]), Value("\"finish\""),
        "What happens to a running script when its client leaves. `\"finish\"`: it continues; weir's own PHP gets the \
         information as usual in PHP (`ignore_user_abort`). `\"cancel\"`: its worker is replaced; with `servers`, its \
         connection is closed. `\"finish_if_answering\"`: cancel unless the answer has begun. Waiting requests are always removed.")
        .called(&["fastcgi_ignore_client_abort", "proxy_ignore_client_abort", "option_abortonclose", "abortonclose"]).only(&["fastcgi"]),
];

/// Texts that become much smaller.
const COMPRESS_TYPES: &str = r#"["text/*", "*+json", "*+xml", "*+yaml", "*+text", "application/json", "application/xml", "application/javascript", "application/x-javascript", "application/ecmascript", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/yaml", "application/toml", "application/sql", "application/graphql", "application/wasm", "application/x-www-form-urlencoded", "application/rtf", "application/vnd.ms-fontobject", "font/ttf", "font/otf", "image/bmp", "image/x-icon", "image/vnd.microsoft.icon"]"#;

const BOTH: &[Section] = &[Site, Route];
const POLICIES: &[Section] = &[Site, Route, Listen];
