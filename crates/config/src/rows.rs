//! The table of all keys: one row per key.
//!
//! The parser, defaults, hints, `weir check --print` and the reference page all use these rows. A value that is not
//! supported yet is known too: the message says that it is not supported, not that it is wrong.

mod egress;

use crate::rows::Section::{Egress, EgressHost, Listen, Log, Pool, Queue, Route, Server, Site};

/// A kind of table in weir.toml.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Server,
    Listen,
    Site,
    Route,
    Pool,
    Queue,
    Egress,
    EgressHost,
    Log,
}

impl Section {
    /// All sections, in the order of the reference page.
    pub(crate) const ALL: [Self; 9] = [
        Server, Listen, Site, Route, Pool, Queue, Egress, EgressHost, Log,
    ];

    /// The title as in weir.toml.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Server => "[server]",
            Listen => "[listen.NAME]",
            Site => "[site.NAME]",
            Route => "[[site.NAME.route]]",
            Pool => "[pool.NAME]",
            Queue => "[pool.NAME.queue]",
            Egress => "[egress]",
            EgressHost => "[egress.host.NAME]",
            Log => "[log]",
        }
    }
}

/// One key.
pub(crate) struct Row {
    /// The sections that may contain the key.
    pub(crate) sections: &'static [Section],
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: Default,
    /// One line for the reference page. It may contain Markdown.
    pub(crate) help: &'static str,
    /// Names of the key in other programs.
    pub(crate) elsewhere: &'static [&'static str],
    /// Title of the group that begins with this row on the reference page. Empty: the row continues the previous
    /// group.
    pub(crate) group: &'static str,
}

/// What applies if the key is not written.
pub(crate) enum Default {
    /// This TOML value.
    Value(&'static str),
    /// No value, or a value that depends on other keys; explained in words.
    Absent(&'static str),
    /// The key is required.
    Required,
}

/// Format of a value.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Bool,
    /// `false`; `true` is not supported yet.
    OnlyFalse,
    Count {
        min: u64,
        max: u64,
    },
    Duration {
        zero: bool,
    },
    Size {
        min: u64,
        max: u64,
    },
    Mode,
    /// A nice value, stored as 64-bit two's complement.
    Priority,
    /// A whole number that may be negative.
    Signed {
        min: i64,
        max: i64,
    },
    /// One of these words. The words in the second list are known, but not supported yet.
    Word(&'static [&'static str], &'static [&'static str]),
    RedirectStatus,
    Text,
    /// The NAME of another table; empty: none.
    Reference,
    References,
    Path,
    Paths,
    Address,
    Addresses,
    Servers,
    HashBy,
    /// IP addresses with a port. Default port: 53.
    Nameservers,
    Window,
    TcpAddress,
    Program,
    Hosts,
    Methods,
    HeaderNames,
    /// One header name; empty: none.
    HeaderName,
    /// Names of headers that can be passed to a worker.
    RequestHeaderNames,
    FileNames,
    UrlPrefixes,
    Extensions,
    Script,
    Regexes,
    PathPattern,
    /// A path of the site; empty: none.
    UrlPath,
    /// The same, with a query and groups.
    Fallback,
    /// A site's path with a query and groups.
    Rewrite,
    /// A location or other single line with `${...}`.
    Template,
    /// Empty: none.
    HeaderValue,
    Charset,
    Params,
    HeaderTemplates,
    /// Headers that can be passed to a worker, with templates.
    RequestHeaderTemplates,
    Environment,
    PhpIni,
    IpAddresses,
    ErrorPages,
    Types,
    Folders,
    Reply,
    Reserves,
    PriorityRules,
    FairBy,
    /// The key by which requests are serialized.
    SerializeBy,
    LogTarget,
    LogFormat,
    /// A line with PHP-FPM's `%` codes.
    AccessFormat,
    /// Rules for allowed calls.
    AllowRules,
    /// A host with scheme and port.
    Origin,
    /// Hosts with scheme and port.
    Origins,
    /// Hosts with a port; the scheme is http.
    HttpOrigins,
    /// Addresses, and networks with a prefix length.
    Networks,
    /// Headers of a call. Their values may come from elsewhere.
    SecretHeaders,
}

impl Kind {
    /// The expected kind of value, as a noun, and an example.
    pub(crate) fn expectation(&self) -> (&'static str, &'static str) {
        match self {
            Kind::Bool => ("true or false", "true"),
            Kind::OnlyFalse => ("true or false", "false"),
            Kind::Count { .. } => ("a whole number", "100"),
            Kind::Duration { .. } => ("a duration", "\"30s\""),
            Kind::Size { min, .. } if *min > 64 << 10 => ("a size", "\"64M\""),
            Kind::Size { .. } => ("a size", "\"64K\""),
            Kind::Mode => ("a mode", "\"0660\""),
            Kind::Priority => ("a nice value", "-5"),
            Kind::Signed { .. } => ("a whole number", "10"),
            Kind::Word(examples, ..) => ("a word", examples.first().copied().unwrap_or_default()),
            Kind::RedirectStatus => ("a status", "308"),
            Kind::Text => ("a text", "\"weir\""),
            Kind::Reference => ("a name", "\"shop\""),
            Kind::References => ("a list of names", "[\"web\"]"),
            Kind::Path => ("a path", "\"/srv/shop\""),
            Kind::Paths => ("a list of paths", "[\"/srv/files\"]"),
            Kind::Address => ("an address", "\"0.0.0.0:80\""),
            Kind::Addresses => ("a list of addresses", "[\"127.0.0.1:8083\"]"),
            Kind::Window => ("unix:PATH or \"off\"", "\"unix:/run/weir/admin.sock\""),
            Kind::Servers => ("a list of servers", "[\"unix:/run/php/php-fpm.sock\"]"),
            Kind::HashBy => (
                "\"source\", \"uri\", \"header:NAME\" or \"cookie:NAME\"",
                "\"uri\"",
            ),
            Kind::Nameservers => ("a list of IP addresses", "[\"10.0.0.2\"]"),
            Kind::TcpAddress => ("host:port", "\"127.0.0.1:9180\""),
            Kind::Program => ("a list of program and arguments", "[\"/usr/bin/php-cgi\"]"),
            Kind::Hosts => ("a list of hosts", "[\"shop.example\", \"*.shop.example\"]"),
            Kind::Methods => ("a list of methods", "[\"GET\", \"POST\"]"),
            Kind::HeaderNames => ("a list of header names", "[\"X-Powered-By\"]"),
            Kind::HeaderName => ("a header's name", "\"X-Request-Timeout\""),
            Kind::RequestHeaderNames => ("a list of header names", "[\"Authorization\"]"),
            Kind::FileNames => ("a list of file names", "[\"index.php\", \"index.html\"]"),
            Kind::UrlPrefixes => ("a list of path prefixes", "[\"/uploads/\"]"),
            Kind::Extensions => ("a list of extensions", "[\".php\"]"),
            Kind::Script => ("a regular expression", "'^(/.+\\.php)(/.*)?$'"),
            Kind::Regexes => ("a list of regular expressions", "['/\\.']"),
            Kind::PathPattern => ("a path pattern", "\"/api/*\""),
            Kind::UrlPath | Kind::Fallback => ("a path", "\"/index.php\""),
            Kind::Rewrite => ("a path", "\"/doku.php?id=$1\""),
            Kind::Template => ("a text", "\"https://${host}${uri}\""),
            Kind::HeaderValue => ("a text", "\"public, max-age=3600\""),
            Kind::Charset => ("a charset", "\"utf-8\""),
            Kind::Params => ("a table of parameters", "{ APP_ENV = \"production\" }"),
            Kind::HeaderTemplates => ("a table of headers", "{ \"X-Frame-Options\" = \"DENY\" }"),
            Kind::RequestHeaderTemplates => (
                "a table of headers",
                "{ \"X-Real-IP\" = \"${remote_addr}\" }",
            ),
            Kind::Environment => ("a table of variables", "{ LANG = \"C.UTF-8\" }"),
            Kind::PhpIni => ("a table of PHP settings", "{ memory_limit = \"256M\" }"),
            Kind::IpAddresses => ("a list of IP addresses", "[\"127.0.0.1\"]"),
            Kind::ErrorPages => (
                "a table of statuses and files",
                "{ 503 = \"errors/503.html\" }",
            ),
            Kind::Types => (
                "a table of extensions and types",
                "{ wasm = \"application/wasm\" }",
            ),
            Kind::Folders => (
                "a table of prefixes and folders",
                "{ \"/protected/\" = \"/srv/private\" }",
            ),
            Kind::Reply => (
                "a table with status and body",
                "{ status = 200, body = \"ok\" }",
            ),
            Kind::Reserves => (
                "a list of tables with priority and workers",
                "[{ priority = -10, workers = 1 }]",
            ),
            Kind::PriorityRules => (
                "a list of rules",
                "[{ header = \"User-Agent\", match = \"~(?i)bot\", priority = 50 }]",
            ),
            Kind::FairBy => (
                "\"address\", \"header:NAME\", \"cookie:NAME\" or \"off\"",
                "\"header:X-Real-IP\"",
            ),
            Kind::SerializeBy => (
                "\"cookie:NAME\", \"header:NAME\" or \"off\"",
                "\"cookie:PHPSESSID\"",
            ),
            Kind::LogTarget => (
                "a path, \"stdout\", \"stderr\" or \"off\"",
                "\"/var/log/weir/access.log\"",
            ),
            Kind::AccessFormat => ("a text with `%` codes", r#""%R %t \"%m %r\" %s""#),
            Kind::LogFormat => (
                "\"combined\", \"json\" or a template",
                "\"${remote_addr} ${status} ${uri}\"",
            ),
            Kind::AllowRules => (
                "a list of hosts",
                "[\"api.example.com\", \"*.partner.example:8443\", \"http://legacy.internal:8080\"]",
            ),
            Kind::Origin => ("a host", "\"http://legacy.internal:8080\""),
            Kind::Origins => (
                "a list of hosts",
                "[\"api.example.com\", \"http://legacy.internal:8080\"]",
            ),
            Kind::HttpOrigins => ("a list of hosts", "[\"api.example.com\"]"),
            Kind::Networks => ("a list of networks", "[\"10.0.0.0/8\"]"),
            Kind::SecretHeaders => (
                "a table of headers",
                "{ Authorization = \"Bearer ${file:/etc/weir/api.token}\" }",
            ),
        }
    }
}

/// The row of a key in a section.
pub(crate) fn find(section: Section, name: &str) -> Option<&'static Row> {
    all().find(|row| row.name == name && row.sections.contains(&section))
}

/// The rows of a section, in the order of the table.
pub(crate) fn of(section: Section) -> impl Iterator<Item = &'static Row> {
    all().filter(move |row| row.sections.contains(&section))
}

/// All rows.
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    [
        SERVER,
        LISTEN,
        SITE,
        ROUTE,
        SETTINGS,
        POLICY,
        POOL,
        QUEUE,
        egress::EGRESS,
        LOG,
    ]
    .into_iter()
    .flatten()
}

const fn key(
    sections: &'static [Section],
    name: &'static str,
    kind: Kind,
    default: Default,
    help: &'static str,
) -> Row {
    Row {
        sections,
        name,
        kind,
        default,
        help,
        elsewhere: &[],
        group: "",
    }
}

impl Row {
    const fn begins(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }

    const fn called(mut self, elsewhere: &'static [&'static str]) -> Self {
        self.elsewhere = elsewhere;
        self
    }
}

use Default::{Absent, Required, Value};

#[rustfmt::skip]
const SERVER: &[Row] = &[
    key(&[Server], "user", Kind::Text, Absent("who started weir; for root the first of weir, www-data, nobody that is there"),
        "Identity of the gateway, the process that meets clients, when weir is started by root.").called(&["User"]),
    key(&[Server], "group", Kind::Text, Absent("the user's primary group"),
        "Group of the gateway.").called(&["Group"]),
    key(&[Server], "chroot", Kind::Path, Absent("none"),
        "Folder that the gateway locks itself into. Paths in this file stay those seen from outside."),
    key(&[Server], "threads", Kind::Count { min: 0, max: 1024 }, Value("0"),
        "Reactors of the gateway; 0: one for every two cores.").called(&["worker_processes", "nbthread", "nbproc"]),
    key(&[Server], "pid_file", Kind::Path, Absent("none"),
        "File that the manager's process id is written to.").called(&["pid", "pidfile", "PidFile"]),
    key(&[Server], "shutdown_timeout", Kind::Duration { zero: true }, Value("\"30s\""),
        "How long a graceful stop waits for requests that run.")
        .called(&["process_control_timeout", "worker_shutdown_timeout", "hard_stop_after", "GracefulShutdownTimeout"]),
    key(&[Server], "max_old_generations", Kind::Count { min: 1, max: 1000 }, Value("8"),
        "Configurations that were replaced and still finish requests, at most: a further reload waits until one of them has \
         ended, which is after its `shutdown_timeout` at the latest."),
    key(&[Server], "gateway_timeout", Kind::Duration { zero: true }, Value("\"20s\""),
        "A gateway of which no sign of life has come for so long, because it hangs or was stopped, is killed and replaced. \"0\": never."),
    key(&[Server], "max_connections", Kind::Count { min: 1, max: 10_000_000 },
        Absent("20000, or two fifths of the open files allowed where that is less"),
        "Client connections in all. For more, those are closed that have been idle for longest; where none is idle, they wait.")
        .called(&["worker_connections", "MaxRequestWorkers"]),
    key(&[Server], "max_connections_per_address", Kind::Count { min: 0, max: 10_000_000 },
        Absent("three quarters of `max_connections`, 256 at least"),
        "Client connections of one address (IPv6: of one /64 network) over HTTP; more are closed at once. 0: no limit. Where a \
         proxy in front has one address for all clients, it needs as many as the proxy makes.")
        .called(&["limit_conn"]),
    key(&[Server], "server_software", Kind::Text, Absent("`weir/VERSION (nginx compatible)`"),
        "What `SERVER_SOFTWARE` says to scripts. Applications such as WordPress look for a server's name in it that they know.")
        .called(&["fastcgi_param_server_software"]),
    key(&[Server], "spool_dir", Kind::Path, Value("\"/var/tmp\""),
        "Folder for bodies that do not fit memory (files without a name, gone with the process). Not a tmpfs, which is memory again.")
        .called(&["client_body_temp_path", "fastcgi_temp_path"]),
    key(&[Server], "max_spool", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"4G\""),
        "All spooled bodies together may take so much.")
        .called(&["fastcgi_max_temp_file_size"]),
    key(&[Server], "admin", Kind::Window, Absent("`weir/admin.sock` in `$XDG_RUNTIME_DIR`, for root in /run"),
        "The operator's window, which `weir status`, `weir reload` and the like talk to: `unix:PATH`, or `\"off\"`.")
        .called(&["stats_socket", "admin_socket"]),
    key(&[Server], "resolver", Kind::Nameservers, Absent("those of /etc/resolv.conf"),
        "DNS servers that names of `servers` are looked up at: an IP address, or `\"127.0.0.1:5353\"`. /etc/hosts is asked first in any case."),
    key(&[Server], "admin_tcp", Kind::TcpAddress, Absent("none"),
        "The window on TCP too: `/metrics`, `/healthz`, `/readyz` and the page at `/` for all who reach it; `/status`, which shows \
         what clients ask for, for those of this machine; actions, and `/status` for others, with the token of `admin_token_file`."),
    key(&[Server], "admin_token_file", Kind::Path, Absent("none: no actions over TCP"),
        "File whose text is the token: `Authorization: Bearer TOKEN`. At least 16 characters without spaces; nobody but its \
         owner should be able to read it. Read at the start and at a reload."),
    key(&[Server], "ready_saturation", Kind::Count { min: 0, max: 100 }, Value("0"),
        "Per cent of a pool's queue, of its places or of its `timeout`, whichever is fuller: from there on `/readyz` answers 503, so \
         that a balancer sends requests elsewhere. 0: however full."),
    key(&[Server], "ready_stalled", Kind::Duration { zero: true }, Value("\"10s\""),
        "Once all workers that a pool may have are busy, each with the same request for so long, `/readyz` answers 503. 0: it does not."),
    key(&[Server], "site_histograms", Kind::Bool, Value("true"),
        "`/metrics` has three histograms for each site that has a pool. With hundreds of sites, `false` makes it much smaller; those of \
         pools stay."),
    key(&[Server], "process_priority", Kind::Priority, Absent("five before weir's own, where that is allowed"),
        "Nice value of the gateway, -19 (first) to 20 (last), when weir is started by root: who hands out requests is not to \
         wait behind the workers that it feeds."),
    key(&[Server], "process_max", Kind::Count { min: 0, max: 1_000_000 }, Value("0"),
        "Workers of all pools together; 0: no limit but each pool's own.").called(&["process.max"]),
    key(&[Server], "emergency_restart_threshold", Kind::Count { min: 0, max: 100_000 }, Value("0"),
        "So many workers of a pool that end with SIGSEGV or SIGBUS within `emergency_restart_interval` start the pool anew: \
         its shared memory may be damaged. 0: never."),
    key(&[Server], "emergency_restart_interval", Kind::Duration { zero: true }, Value("\"0\""),
        "See `emergency_restart_threshold`."),
];

#[rustfmt::skip]
const LISTEN: &[Row] = &[
    key(&[Listen], "address", Kind::Address, Required,
        "`host:port`, `[::]:port`, `*:80` or `unix:PATH`.").called(&["bind", "listen", "addr"]),
    key(&[Listen], "protocol", Kind::Word(&["http", "fastcgi", "agent-check"], &[]), Value("\"http\""),
        "What is spoken there: `\"http\"`, `\"fastcgi\"` with a web server in front, or `\"agent-check\"`, which tells a HAProxy in front \
         what the `pool` can take."),
    key(&[Listen], "backlog", Kind::Count { min: 1, max: 1 << 30 }, Value("4096"),
        "Length of the kernel's accept queue; the kernel cuts it to net.core.somaxconn."),
    key(&[Listen], "ipv6only", Kind::Bool, Value("true"),
        "Whether a socket of an IPv6 address takes IPv6 only. With `false`, one of `[::]` takes IPv4, too."),
    key(&[Listen], "owner", Kind::Text, Absent("who started weir"),
        "Owner of a unix socket."),
    key(&[Listen], "group", Kind::Text, Absent("who started weir"),
        "Group of a unix socket."),
    key(&[Listen], "mode", Kind::Mode, Value("\"0660\""),
        "Permissions of a unix socket."),
    key(&[Listen], "max_head", Kind::Size { min: 8 << 10, max: 16 << 20 }, Value("\"32K\""),
        "Largest request head (request line and headers); more: 431. Room for large cookies.")
        .called(&["large_client_header_buffers", "client_header_buffer_size", "LimitRequestFieldSize", "bufsize"]),
    key(&[Listen], "max_headers", Kind::Count { min: 1, max: 10_000 }, Value("100"),
        "Most header fields of a request; more: 431.").called(&["LimitRequestFields", "maxhdr"]),
    key(&[Listen], "header_timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "From a head's first byte to its last; longer: 408.")
        .called(&["client_header_timeout", "timeout_http_request", "RequestReadTimeout"]),
    key(&[Listen], "body_timeout", Kind::Duration { zero: false }, Value("\"30s\""),
        "Between two reads of a request body; longer: 408.").called(&["client_body_timeout"]),
    key(&[Listen], "idle_timeout", Kind::Duration { zero: false }, Value("\"75s\""),
        "Between two requests of a kept connection. Longer than the 60 s that load balancers in front keep theirs.")
        .called(&["keepalive_timeout", "KeepAliveTimeout", "timeout_http_keep_alive"]),
    key(&[Listen], "send_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "So long nothing leaves for a client that has not taken all of its answer: then the connection is cut. One that reads \
         slowly but steadily is not.").called(&["timeout_client"]),
    key(&[Listen], "max_requests_per_connection", Kind::Count { min: 0, max: u64::MAX }, Value("0"),
        "Requests served by one connection; 0: no limit.").called(&["keepalive_requests", "MaxKeepAliveRequests"]),
    key(&[Listen], "proxy_protocol", Kind::OnlyFalse, Value("false"),
        "The PROXY protocol is spoken by what is in front.").called(&["accept_proxy"]),
    key(&[Listen], "pool", Kind::Reference, Absent("required with `protocol = \"fastcgi\"` and `\"agent-check\"`"),
        "NAME of the pool whose workers answer there (fastcgi), or that is told of (agent-check)."),
    key(&[Listen], "status_only", Kind::Bool, Value("false"),
        "Only the pool's status page and ping are answered there (fastcgi).").called(&["status_listen"]),
    key(&[Listen], "on_worker_failure", Kind::Word(&["close", "answer"], &[]), Value("\"close\""),
        "What a web server in front gets where a worker died, ran past a time limit or gave no right answer. `close`: its connection is closed without an end of the answer, as by PHP-FPM, so that the web server has its own 502, error page and log line. `answer`: a response with 502 or 504 (fastcgi)."),
    key(&[Listen], "proxy_status", Kind::Bool, Value("false"),
        "Whether refusals tell a web server in front their reason in `Proxy-Status`, which it passes on to its clients (fastcgi)."),
    key(&[Listen], "allowed_clients", Kind::IpAddresses, Absent("any"),
        "Addresses that may connect to a TCP listener (fastcgi, agent-check).").called(&["listen_allowed_clients"]),
    key(&[Listen], "acl_users", Kind::References, Absent("none"),
        "Users that may connect to a unix socket, beside `owner`; with them or `acl_groups`, `owner` and `group` are not changed.")
        .called(&["listen_acl_users"]),
    key(&[Listen], "acl_groups", Kind::References, Absent("none"),
        "Groups that may connect to a unix socket, beside `group`.").called(&["listen_acl_groups"]),
];

#[rustfmt::skip]
const SITE: &[Row] = &[
    key(&[Site], "hosts", Kind::Hosts, Absent("the default site of its listeners"),
        "Names it answers to: `shop.example`, `*.shop.example` (any name that ends so), `shop.*` (any name that begins so).")
        .called(&["server_name", "host", "ServerName", "ServerAlias"]),
    key(&[Site], "listen", Kind::References, Absent("all HTTP listeners"),
        "NAMEs of its listeners.").called(&["listeners"]),
];

#[rustfmt::skip]
const ROUTE: &[Row] = &[
    key(&[Route], "path", Kind::PathPattern, Value("\"*\""),
        "Which paths: a glob over the whole decoded path (`*` any run of characters, slashes too; `?` one character), \
         or `~` and a regular expression.").called(&["location", "match"]),
    key(&[Route], "methods", Kind::Methods, Absent("any"),
        "Which methods. A site with such a route refuses methods (501) that neither IANA has registered nor a route names: they \
         would pass by all of these rules.").called(&["method"]),
    key(&[Route], "redirect", Kind::Template, Absent("none"),
        "Answer with a redirect to this location.").called(&["return"]),
    key(&[Route], "status", Kind::RedirectStatus, Value("308"),
        "Status of `redirect`: 301, 302, 303, 307 or 308."),
    key(&[Route], "deny", Kind::Bool, Value("false"),
        "Answer with 403."),
    key(&[Route], "rewrite", Kind::Rewrite, Absent("none"),
        "The path and query that stand for the request's, whether or not there is a file under its own path: `\"/doku.php?id=$1\"`. `$1` to \
         `$9`, `${1}` and `${name}` are groups of a regular expression in `path`, `$$` is a dollar sign. The request's own \
         query follows, unless the text ends with `?`. Routes are looked at anew with what comes out.").called(&["RewriteRule", "uri_rewrite"]),
    key(&[Route], "alias", Kind::Path, Absent("none"),
        "The folder that stands for the route's prefix: with `path = \"/javascript/*\"` and `alias = \"/usr/share/javascript\"` \
         `/javascript/a.js` is `/usr/share/javascript/a.js`. Scripts run there too. A `fallback` and a `script_root` of the \
         site do not hold there.").called(&["Alias"]),
    key(&[Route], "reply", Kind::Reply, Absent("none"),
        "Answer with `{ status = 200, body = \"…\", content_type = \"text/plain; charset=utf-8\" }`; the body is a template.")
        .called(&["respond"]),
];

/// Settings of a site that a route may override.
#[rustfmt::skip]
const SETTINGS: &[Row] = &[
    key(BOTH, "root", Kind::Path, Absent("none: no files and no scripts, only replies"),
        "The document root.").called(&["document_root", "docroot", "DocumentRoot", "doc_root"]),
    key(BOTH, "script_root", Kind::Text, Absent("the same as `root`"),
        "What the worker calls `root`, where it is chrooted or on another host."),
    key(BOTH, "index", Kind::FileNames, Absent("`[\"index.php\", \"index.html\"]` with a pool, else `[\"index.html\"]`"),
        "Files tried, in order, for a URL that ends in a slash.").called(&["DirectoryIndex"]),
    key(BOTH, "script", Kind::Script, Value(r"'^(/.+\.php)(/.*)?$'"),
        "Which URLs are scripts: 1st group script name, 2nd path-info.")
        .called(&["path_info", "fastcgi_split_path_info"]),
    key(BOTH, "fallback", Kind::Fallback, Absent("none: 404"),
        "Where a URL goes that is no file: the front controller. It may have a query, and in a route with a regular expression \
         its groups, as `rewrite`. `\"\"` in a route: none.")
        .called(&["try_files", "FallbackResource"]),
    key(BOTH, "check_files", Kind::Bool, Absent("`true` for scripts of PHP, `false` for other programs"),
        "A script runs only if it is a file here. `false`: it runs in any case, for workers that have its files elsewhere, or none. \
         Unless it is said, these are PHP's: pools with weir's own PHP, pools whose `command` or `servers` have `php` or `fcgiwrap` \
         in their name, and scripts whose name has an extension of PHP. What is a file here under another program's name is \
         subject to the rules for files all the same."),
    key(BOTH, "encoded_slash", Kind::Word(&["pass", "refuse"], &[]), Value("\"pass\""),
        "What a path with `%2F` is. `\"pass\"`: never a file, but a script's path-info (decoded in `PATH_INFO`, as sent in \
         `REQUEST_URI`), or the fallback's. `\"refuse\"`: 404.").called(&["AllowEncodedSlashes"]),
    key(BOTH, "pool", Kind::Reference, Absent("none: scripts are refused with 403, never sent as text"),
        "NAME of the pool that runs scripts. `\"\"` in a route: none.")
        .called(&["fastcgi_pass", "use_fcgi_app", "upstream", "backend", "php_fastcgi"]),
    key(BOTH, "params", Kind::Params, Absent("none"),
        "Parameters added to what the worker is told; values are templates. A route's are added to its site's.")
        .called(&["set_param", "fastcgi_param", "SetEnv"]),
    key(BOTH, "pass_headers", Kind::RequestHeaderNames, Absent("all but Proxy and those of the connection"),
        "Only these request headers are passed. Names with other characters than letters, digits and dashes never are (see \
         `underscores_in_headers`).").called(&["pass_header"]),
    key(BOTH, "underscores_in_headers", Kind::Bool, Value("false"),
        "Pass request headers with underscores in their names too, where the same name with dashes was not sent. A script cannot \
         tell `X_Real_IP` from `X-Real-IP`: only where nothing in front of weir sets headers that scripts trust."),
    key(BOTH, "hide_files", Kind::Regexes,
        Absent("files whose name begins with a dot, but not `/.well-known/`; ends in `~`, `.bak`, `.old`, `.orig`, `.save`, `.dist`, \
                `.swp`, `.swo`, `.swn` or `.inc`; or stands between two `#`"),
        "Regular expressions: never served, never run. Each is matched with the path, and with the name of a script that has \
         path-info behind it. The default is about files alone: path-info and URLs of the fallback may have such names."),
    key(BOTH, "deny_scripts", Kind::UrlPrefixes, Absent("none"),
        "Path prefixes whose scripts are served as plain text and never run."),
    key(BOTH, "error_pages", Kind::ErrorPages, Absent("none"),
        "Status → file (absolute, or relative to `root`). A route's are added to its site's.")
        .called(&["error_page", "ErrorDocument", "errorfile"]),
    key(BOTH, "cache_control", Kind::HeaderValue, Absent("none"),
        "Cache-Control of static files. `\"\"` in a route: none.").called(&["expires"]),
    key(BOTH, "set_headers", Kind::HeaderTemplates, Absent("none"),
        "Response headers set; values are templates. A route's are added to its site's.")
        .called(&["add_header", "headers", "set_header", "Header"]),
    key(BOTH, "remove_headers", Kind::HeaderNames, Absent("none"),
        "Response headers removed.").called(&["fastcgi_hide_header", "del_header", "hide_headers"]),
    key(BOTH, "set_request_headers", Kind::RequestHeaderTemplates, Absent("none"),
        "Request headers set before the worker sees them; values are templates. A route's are added to its site's.")
        .called(&["RequestHeader", "proxy_set_header"]),
    key(BOTH, "charset", Kind::Charset, Value("\"utf-8\""),
        "Added to text types of static files; `\"\"`: none.").called(&["AddDefaultCharset"]),
    key(BOTH, "types", Kind::Types, Absent("the built-in list"),
        "Types by extension (without the dot), before the built-in list. A route's are added to its site's.")
        .called(&["AddType", "mime_types"]),
    key(BOTH, "precompressed", Kind::Bool, Value("true"),
        "Serve `file.br`, `file.zst` or `file.gz` beside the file to clients that take them.")
        .called(&["gzip_static", "brotli_static"]),
    key(BOTH, "follow_symlinks", Kind::Bool, Value("false"),
        "Follow symlinks that lead out of the root.").called(&["disable_symlinks", "FollowSymLinks"]),
    key(BOTH, "max_body", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"64M\""),
        "Largest request body; more: 413. A body costs disk and not memory here, so uploads may be large; \
         PHP's own post_max_size and upload_max_filesize still hold.")
        .called(&["client_max_body_size", "LimitRequestBody", "max_request_body", "post_max_size"]),
    key(BOTH, "body_memory", Kind::Size { min: 0, max: 1 << 30 }, Value("\"64K\""),
        "Request body kept in memory; more goes to a temporary file.").called(&["client_body_buffer_size"]),
    key(BOTH, "response_memory", Kind::Size { min: 4 << 10, max: 1 << 30 }, Value("\"256K\""),
        "Response kept in memory for a slow client; more goes to a temporary file.").called(&["fastcgi_buffers"]),
    key(BOTH, "max_response_file", Kind::Size { min: 0, max: SIZE_MAX }, Value("\"1G\""),
        "Response kept in a temporary file for a slow client; more waits, and the worker with it."),
    key(BOTH, "buffering", Kind::Bool, Value("true"),
        "Read responses ahead of slow clients. `false`: pass them through as they come, for streams.")
        .called(&["fastcgi_buffering"]),
    key(BOTH, "accel_redirect", Kind::Folders, Absent("none"),
        "X-Accel-Redirect: URL prefix → folder that a script may have sent. A route's are added to its site's."),
    key(BOTH, "sendfile_dirs", Kind::Paths, Absent("none"),
        "X-Sendfile: folders that a script may have files sent from.").called(&["XSendFilePath"]),
    key(BOTH, "access_log", Kind::Bool, Value("true"),
        "Requests are written to the access log."),
];

/// Settings of sites, routes and FastCGI listeners for the timeout, priority and order of requests for scripts.
#[rustfmt::skip]
const POLICY: &[Row] = &[
    key(POLICIES, "timeout", Kind::Duration { zero: true }, Value("\"0\""),
        "From the first byte of a request for a script to the head of its answer: for its body, the queue and the script \
         together. Past it: 408 while the body comes, 503 in the queue, 504 while the script runs, whose worker is replaced \
         then. An answer that has begun is not cut. 0: no limit but those of each part."),
    key(POLICIES, "timeout_header", Kind::HeaderName, Absent("none: clients are not asked"),
        "A request header by which clients say how long they will wait, in seconds (`1.5`) or with a unit (`\"250ms\"`): it \
         can lower `timeout`, never raise it. The script is told by `REQUEST_DEADLINE`. `\"\"` in a route: none."),
    key(POLICIES, "priority", Kind::Signed { min: PRIORITIES.0, max: PRIORITIES.1 }, Value("0"),
        "Place in the queue, where no rule of `priority_by` says otherwise: lower numbers first."),
    key(POLICIES, "priority_by", Kind::PriorityRules, Absent("none"),
        "Rules that look at a `header` or a `cookie` of the request, the first that matches says the `priority`. `match` is a \
         glob over the whole value (`*` any run of characters, `?` one), or `~` and a regular expression; without it, it is \
         enough that there is a value. A route's rules take the place of its site's."),
    key(POLICIES, "fair_by", Kind::FairBy, Value("\"address\""),
        "By what clients are told apart that get equal shares of the workers: the client's address (IPv6: its /64), or a \
         header (of a list its last part) or cookie that something in front sets, else the address. `\"off\"`: requests are not told apart."),
    key(POLICIES, "serialize_by", Kind::SerializeBy, Absent("what `serialize_by` of the pool's queue says"),
        "Requests with the same cookie or header run one after the other in a pool: the others wait in the queue, and not in \
         workers, as those of one PHP session would that wait for its lock. Requests without it are not held up. `\"off\"`: none is."),
    key(POLICIES, "on_client_left", Kind::Word(&["finish", "cancel", "finish_if_answering"], &[]), Value("\"finish\""),
        "What becomes of a running script whose client has left. `\"finish\"`: nobody stops it; weir's own PHP is told, as \
         PHP is (`ignore_user_abort`). `\"cancel\"`: its worker is replaced; where others run it, its connection is closed. \
         `\"finish_if_answering\"`: cancelled unless it has begun to answer. A request that waits is always removed.")
        .called(&["fastcgi_ignore_client_abort", "proxy_ignore_client_abort", "option_abortonclose", "abortonclose"]),
];

#[rustfmt::skip]
const POOL: &[Row] = &[
    key(&[Pool], "runtime", Kind::Word(&["php", "command", "servers"], &[]), Required,
        "`\"php\"`: weir's own PHP workers. `\"command\"`: weir runs the workers, any FastCGI program. `\"servers\"`: \
         somebody else does (PHP-FPM, …).").begins("What runs there"),
    key(&[Pool], "php", Kind::Text, Absent("the newest installed"),
        "Which PHP runs, of those that `weir-php` was built for (php): `\"8.2\"`.").called(&["php_version"]),
    key(&[Pool], "php_ini", Kind::Path, Absent("PHP's own place: /etc/php/VERSION/fpm on Debian"),
        "php.ini, or the folder that it is in (php)."),
    key(&[Pool], "no_php_ini", Kind::Bool, Value("false"),
        "No php.ini is read (php)."),
    key(&[Pool], "php_value", Kind::PhpIni, Absent("none"),
        "Settings as in php.ini; scripts may change them (php). PHP-FPM's `php_value[memory_limit] = 256M`."),
    key(&[Pool], "php_flag", Kind::PhpIni, Absent("none"),
        "The same for switches: `{ display_errors = false }` (php)."),
    key(&[Pool], "php_admin_value", Kind::PhpIni, Absent("none"),
        "Settings as in php.ini that neither scripts nor .user.ini can change; `disable_functions` and `disable_classes` too (php)."),
    key(&[Pool], "php_admin_flag", Kind::PhpIni, Absent("none"),
        "The same for switches (php)."),
    key(&[Pool], "php_define", Kind::PhpIni, Absent("none"),
        "Settings in place of what php.ini says, as with `php -d`: also those that are read at start only, such as `opcache.memory_consumption` (php)."),
    key(&[Pool], "watch_root", Kind::Bool, Value("false"),
        "Where a site's root is, or leads through, a symbolic link: when that is switched, the pool starts anew within a second, beside its old workers (php)."),
    key(&[Pool], "command", Kind::Program, Absent("required with `runtime = \"command\"`"),
        "Program and arguments; it listens on its fd 0. A name without slash is looked for in PATH.")
        .called(&["bin_path", "exec"]),
    key(&[Pool], "servers", Kind::Servers, Absent("required with `runtime = \"servers\"`"),
        "Where the workers are: `host:port` or `unix:PATH`. Each as a text, or with `weight` (0 to 1000, usually 100; 0: it gets no requests) and \
         `backup` (it gets requests only while no other server is up): `{ address = \"10.0.0.5:9000\", weight = 50, backup = true }`. A host may be a name: each of its \
         addresses is a server, and it is looked up again when its TTL is over.")
        .called(&["server", "upstreams", "backends", "listen", "upstream"]),
    key(&[Pool], "pm", Kind::Word(&["static", "dynamic", "ondemand", "auto"], &[]),
        Absent("`\"auto\"` with php, `\"static\"` with command"),
        "How the number of workers is chosen: `\"static\"`: always `max_children`. `\"dynamic\"`: some are kept spare. \
         `\"ondemand\"`: none without requests. `\"auto\"`: as many as finish more requests than fewer would, and as there \
         is memory for (php, command).").begins("How many workers"),
    key(&[Pool], "max_children", Kind::Count { min: 1, max: 100_000 },
        Absent("four per core, at least 4, and no more than fit half the memory at 64M each; with `pm = \"auto\"` as many as \
                 fit three quarters of the memory at 16M each"),
        "Workers at most (php, command). Each runs one request at a time. With `auto` rarely the limit that counts: `weir status` shows that.").called(&["workers", "max_procs", "children"]),
    key(&[Pool], "start_servers", Kind::Count { min: 1, max: 100_000 },
        Absent("between the spare servers with dynamic, one with auto"),
        "Workers at the start (dynamic, auto). With `auto` there are never fewer."),
    key(&[Pool], "min_spare_servers", Kind::Count { min: 1, max: 100_000 }, Value("1"),
        "Fewer free workers, and others are started (dynamic)."),
    key(&[Pool], "max_spare_servers", Kind::Count { min: 1, max: 100_000 },
        Absent("a quarter of `max_children`, at least `min_spare_servers`"),
        "More free workers, and one after the other is stopped (dynamic)."),
    key(&[Pool], "self_call_workers", Kind::Count { min: 0, max: 1_000 }, Value("2"),
        "Workers beside `max_children` for calls that scripts make to their own site, over loopback or a unix socket: they go first \
         in the queue, and where every worker waits for such a call one more is started, up to so many; beyond that they are \
         refused with 503 (php, command)."),
    key(&[Pool], "worker_memory", Kind::Size { min: 1 << 20, max: SIZE_MAX }, Value("\"32M\""),
        "What a worker is taken to need before any has shown it: no more are started than fit the memory that is left, that of \
         a container included (auto)."),
    key(&[Pool], "max_spawn_rate", Kind::Count { min: 1, max: 100_000 }, Value("32"),
        "Workers started in a second at most, beside those that take the place of others after `max_requests` or \
         `max_memory`, or that ended under a request (php, command)."),
    key(&[Pool], "process_idle_timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "A worker that is free for so long is stopped (ondemand, auto; with auto later, where they were missed soon after)."),
    key(&[Pool], "max_requests", Kind::Count { min: 0, max: u64::MAX }, Value("0"),
        "A worker is replaced after so many requests; 0: never (php, command).").called(&["PHP_FCGI_MAX_REQUESTS"]),
    key(&[Pool], "max_memory", Kind::Size { min: 1, max: SIZE_MAX }, Absent("none"),
        "A worker whose resident memory has been larger is replaced after its request (php). PHP's `memory_limit` ends the script."),
    key(&[Pool], "user", Kind::Text, Absent("the gateway's"),
        "Identity of the workers, when weir is started by root (php, command). PHP's master is this user too, from its first \
         instruction.").called(&["uid"]).begins("Who the workers are, and what they may"),
    key(&[Pool], "group", Kind::Text, Absent("the user's primary group"),
        "Group of the workers (php, command).").called(&["gid"]),
    key(&[Pool], "chroot", Kind::Path, Absent("none"),
        "Folder that the workers are locked into, when weir is started by root (php, command)."),
    key(&[Pool], "chdir", Kind::Path, Absent("weir's; with chroot `/`"),
        "Working folder of the workers, as seen from inside of `chroot` (php, command)."),
    key(&[Pool], "clear_env", Kind::Bool, Value("true"),
        "The workers' environment is `env` and nothing else; `false`: weir's, with `env` added (php, command)."),
    key(&[Pool], "env", Kind::Environment, Absent("none"),
        "Environment of the workers (php, command).").called(&["environment", "bin_environment"]),
    key(&[Pool], "rlimit_files", Kind::Count { min: 16, max: 1 << 30 }, Absent("weir's"),
        "Files that a worker may have open (php, command)."),
    key(&[Pool], "rlimit_core", Kind::Size { min: 0, max: SIZE_MAX }, Absent("weir's"),
        "Largest core file of a worker (php, command)."),
    key(&[Pool], "process_priority", Kind::Priority, Absent("weir's"),
        "Nice value of the workers, -19 (first) to 20 (last), when weir is started by root (php, command).")
        .called(&["priority", "process.priority", "nice"]),
    key(&[Pool], "process_dumpable", Kind::Bool, Value("false"),
        "Debuggers of the same user may look into the workers (php).").called(&["process.dumpable"]),
    key(&[Pool], "output_log", Kind::LogTarget, Absent("the error log"),
        "Where the lines go that workers print to their standard output and error (php, command). There is no \
         `catch_workers_output`: they are always written.").begins("Logs and pages"),
    key(&[Pool], "decorate_output", Kind::Bool, Value("true"),
        "These lines are written with time, pool and process before them; `false`: as they are (php, command).")
        .called(&["decorate_workers_output"]),
    key(&[Pool], "request_slowlog_timeout", Kind::Duration { zero: true }, Value("\"0\""),
        "The PHP stack of a script that runs for longer is written to `slowlog`; 0: never (php). The script is not stopped."),
    key(&[Pool], "request_slowlog_trace_depth", Kind::Count { min: 1, max: 1000 }, Value("20"),
        "Calls of that stack at most (php)."),
    key(&[Pool], "slowlog", Kind::Path, Absent("the error log"),
        "The slow log (php)."),
    key(&[Pool], "status_path", Kind::UrlPath, Absent("none"),
        "Where PHP-FPM's status page is, `\"/status\"` for example; the gateway answers it, however busy the workers are.").called(&["pm_status_path"]),
    key(&[Pool], "ping_path", Kind::UrlPath, Absent("none"),
        "Where PHP-FPM's ping page is."),
    key(&[Pool], "ping_response", Kind::Text, Value("\"pong\""),
        "What the ping page says."),
    key(&[Pool], "access_log", Kind::Path, Absent("none"),
        "PHP-FPM's log of the pool's requests, beside weir's own."),
    key(&[Pool], "access_format", Kind::AccessFormat, Value("\"%R - %u %t \\\"%m %r\\\" %s\""),
        "How its lines are written, with PHP-FPM's `%` codes."),
    key(&[Pool], "access_suppress_path", Kind::UrlPrefixes, Absent("none"),
        "GET and HEAD requests without a body for these paths are not written there if all went well."),
    key(&[Pool], "keep_conn", Kind::Bool, Absent("`true` with command, `false` with servers"),
        "A connection serves many requests (command, servers), with servers those only whose method is idempotent. There, an idle kept connection holds a PHP-FPM worker, and a worker \
         that goes on after `fastcgi_finish_request()` looks free when it is not.")
        .called(&["keep-conn", "fastcgi_keep_conn", "option_keep_conn", "enablereuse"]).begins("Requests"),
    key(&[Pool], "max_reqs", Kind::Count { min: 0, max: u64::MAX }, Value("0"),
        "Requests per connection (command, servers); 0: no limit.").called(&["max-reqs"]),
    key(&[Pool], "balance", Kind::Word(&["leastconn", "roundrobin", "first", "random", "hash"], &[]),
        Value("\"leastconn\""), "Which of the servers that are up and have room gets a request (servers): `\"leastconn\"`: the one with the fewest for its weight. \
         `\"roundrobin\"`: one after the other. `\"first\"`: the first in the list. `\"random\"`: the less busy one of two. `\"hash\"`: always the same one for the same `hash_by`.")
        .called(&["lb_policy", "lbmethod"]).begins("Several servers"),
    key(&[Pool], "hash_by", Kind::HashBy, Value("\"source\""),
        "What `balance = \"hash\"` looks at: `\"source\"` (the client's address), `\"uri\"` (the path), `\"header:NAME\"` or `\"cookie:NAME\"`. A request \
         without it goes to the least busy server.").called(&["ip_hash", "hash_type", "stick"]),
    key(&[Pool], "hash_balance_factor", Kind::Count { min: 0, max: 10_000 }, Value("0"),
        "A server with more than so many percent of what its weight makes of all requests passes its hashed ones on to another, always the same; 0: only a server at its limit does.")
        .called(&["hash-balance-factor"]),
    key(&[Pool], "limit_start", Kind::Count { min: 1, max: 65_536 }, Value("10"),
        "Where `maxconn` is not said, the limit of each server is found out: it begins with this, grows while requests take no longer, and shrinks \
         when they wait there (servers)."),
    key(&[Pool], "limit_max", Kind::Count { min: 1, max: 65_536 }, Value("1000"),
        "That limit is never higher (servers)."),
    key(&[Pool], "check", Kind::Word(&["off", "tcp", "fastcgi"], &[]), Value("\"off\""),
        "How servers are checked beside their requests: `\"tcp\"`: a connection is made. `\"fastcgi\"`: a request for `check_path` is answered with 2xx or 3xx. \
         One that is down gets no requests, unless all are.").called(&["health_check", "option_httpchk", "health_uri"]),
    key(&[Pool], "check_path", Kind::UrlPath, Value("\"/ping\""),
        "SCRIPT_NAME and SCRIPT_FILENAME of that request: PHP-FPM's `ping.path`, or a script of the server.").called(&["ping.path"]),
    key(&[Pool], "check_interval", Kind::Duration { zero: false }, Value("\"2s\""),
        "Between two checks of a server, more or less by a fifth.").called(&["inter", "health_interval"]),
    key(&[Pool], "check_timeout", Kind::Duration { zero: false }, Value("\"5s\""),
        "A check that takes longer is a bad one, unless the server has answered a request meanwhile: then it is busy.").called(&["timeout_check", "health_timeout"]),
    key(&[Pool], "rise", Kind::Count { min: 1, max: 1_000 }, Value("2"),
        "So many good checks in a row bring a server back."),
    key(&[Pool], "fall", Kind::Count { min: 1, max: 1_000 }, Value("3"),
        "So many bad checks in a row take a server out; the first check after the start does so alone."),
    key(&[Pool], "slowstart", Kind::Duration { zero: true }, Value("\"0\""),
        "A server that has come back gets a tenth of its share at first, and all of it after so long (servers).").called(&["slow_start"]),
    key(&[Pool], "max_fails", Kind::Count { min: 0, max: 1_000_000 }, Value("3"),
        "So many requests in a row that fail within `fail_timeout` (no connection, none in time, one that ends before its answer, no answer in time) take a server out. \
         A refused connection does so alone. 0: failures take no server out.").called(&["error_limit"]),
    key(&[Pool], "fail_timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "See `max_fails`. A server that was taken out is tried with one request after a tenth of this, and after twice as long each time, up to this; with `check`, its checks bring it back.")
        .called(&["fail_duration"]),
    key(&[Pool], "resolve_min", Kind::Duration { zero: false }, Value("\"1s\""),
        "A name is looked up again after this at the earliest, whatever its TTL says (servers)."),
    key(&[Pool], "resolve_max", Kind::Duration { zero: false }, Value("\"5m\""),
        "A name is looked up again after this at the latest (servers)."),
    key(&[Pool], "connect_timeout", Kind::Duration { zero: false }, Value("\"5s\""),
        "Waiting for a connection to be made; longer: the next server, or 503 (servers).")
        .called(&["timeout_connect", "fastcgi_connect_timeout", "dial_timeout"]),
    key(&[Pool], "read_timeout", Kind::Duration { zero: false }, Value("\"60s\""),
        "A worker may be silent for so long (between two reads or writes); then its client gets 504. The script runs on where weir \
         runs the worker, as it does behind nginx: `request_terminate_timeout` ends it, or a route's `timeout`, or its \
         `on_client_left`. A server's connection is closed.")
        .called(&["timeout_server", "fastcgi_read_timeout", "fastcgi_send_timeout", "ProxyTimeout"]),
    key(&[Pool], "request_terminate_timeout", Kind::Duration { zero: true }, Value("\"0\""),
        "A script may run for so long in all; then 504, and the worker is replaced. 0: no limit, for downloads may last.")
        .called(&["max_execution_time"]),
    key(&[Pool], "request_terminate_timeout_track_finished", Kind::Bool, Value("false"),
        "That limit holds also for what a script does after `fastcgi_finish_request()` (php)."),
    key(&[Pool], "retries", Kind::Count { min: 0, max: 100 }, Value("3"),
        "To how many other workers a request is given if its connection is closed before the answer: only if the worker cannot \
         have seen it, or its method is idempotent. A request that has ended a worker of weir's own is never given to a second \
         one (php, command).")
        .called(&["fastcgi_next_upstream_tries", "next_upstream_tries", "lb_retries", "option_redispatch"]),
    key(&[Pool], "crash_limit", Kind::Count { min: 0, max: 100_000 }, Value("10"),
        "A path whose script has ended so many workers within `crash_window`, and has answered no more than one request in ten \
         meanwhile, is refused with 503 (php, command). 0: never."),
    key(&[Pool], "crash_window", Kind::Duration { zero: false }, Value("\"60s\""),
        "See `crash_limit` (php, command)."),
    key(&[Pool], "crash_pause", Kind::Duration { zero: false }, Value("\"10s\""),
        "It is refused for so long; then one request is tried, and one more after each further pause, until one is answered \
         (php, command)."),
    key(&[Pool], "max_response_head", Kind::Size { min: 4 << 10, max: 16 << 20 }, Value("\"64K\""),
        "Largest response head; more: 502.").called(&["fastcgi_buffer_size"]),
    key(&[Pool], "limit_extensions", Kind::Extensions, Absent("`[\".php\"]` with php, else any"),
        "Extensions (with the dot) of scripts that may run; others: 403.").called(&["security_limit_extensions"]),
];

#[rustfmt::skip]
const QUEUE: &[Row] = &[
    key(&[Queue], "maxconn", Kind::Count { min: 1, max: 1_000_000 },
        Absent("`max_children` with php and command; with servers the limit of each is found out"),
        "Requests at work at once. With servers: the number of workers behind all of them (the sum of PHP-FPM's pm.max_children), which they share by weight; a server \
         that is down takes its share along."),
    key(&[Queue], "max_queue", Kind::Count { min: 0, max: 10_000_000 }, Value("1000"),
        "Requests waiting at most; more are answered with 503 at once. 0: nobody waits.").called(&["maxqueue", "backlog"]),
    key(&[Queue], "when_full", Kind::Word(&["refuse", "wait"], &[]), Value("\"refuse\""),
        "What happens to requests beyond `max_queue`. `refuse`: they are answered with 503. `wait`: FastCGI listeners of the pool accept \
         no connection until there is room, so that further ones wait in the kernel's queue; requests on accepted connections wait, too."),
    key(&[Queue], "timeout", Kind::Duration { zero: false }, Value("\"10s\""),
        "Waiting at most; then 503 with Retry-After.").called(&["timeout_queue", "queue_timeout"]),
    key(&[Queue], "minconn", Kind::Count { min: 1, max: 1_000_000 }, Absent("the limit is maxconn at any load"),
        "With fullconn: the limit of requests at work is never below this, however few there are."),
    key(&[Queue], "fullconn", Kind::Count { min: 1, max: 10_000_000 }, Absent("the limit is maxconn at any load"),
        "The load (requests at work and waiting) at which the limit is maxconn; below it, maxconn × load ÷ fullconn, at least \
         minconn."),
    key(&[Queue], "reserve", Kind::Reserves, Absent("none"),
        "Workers kept for requests of a priority: `[{ priority = -10, workers = 1 }]` leaves one worker to requests of priority \
         -10 or a lower number, whatever the others do. The last worker that is up is never kept."),
    key(&[Queue], "serialize_by", Kind::SerializeBy, Absent("none"),
        "For all requests of the pool, where their site or route says nothing else: those with the same cookie or header run one \
         after the other, `\"cookie:PHPSESSID\"` for example. Each waits for its turn for `timeout` at most, and then for a worker."),
    key(&[Queue], "serialize_queue", Kind::Count { min: 1, max: 1_000_000 }, Value("100"),
        "Requests of one key that wait for their turn at most; more are answered with 503 at once."),
    key(&[Queue], "client_share", Kind::Count { min: 1, max: 100 }, Value("50"),
        "Percent of the workers (rounded down, but at least one worker) that one client may hold while other clients of the same \
         priority wait. Clients are told apart by `fair_by`. While nobody else waits, one client may hold all workers. 100: no such limit."),
    key(&[Queue], "order", Kind::Word(&["adaptive", "fifo"], &[]), Value("\"adaptive\""),
        "`\"adaptive\"`: under lasting overload the queue is kept short, newcomers beyond it are answered with 503 at once, and \
         who has waited for long goes last. `\"fifo\"`: in turn, whatever the load."),
];

#[rustfmt::skip]
const LOG: &[Row] = &[
    key(&[Log], "access", Kind::LogTarget, Value("\"stdout\""),
        "Where requests are written: a file, `\"stdout\"`, `\"stderr\"` or `\"off\"`. Files are reopened at SIGUSR1.")
        .called(&["access_log", "CustomLog"]),
    key(&[Log], "format", Kind::LogFormat, Value("\"combined\""),
        "`\"combined\"`, `\"json\"` or a template.").called(&["access_format", "log_format", "LogFormat"]),
    key(&[Log], "egress", Kind::LogTarget, Absent("the same as `access`"),
        "Where the application's outgoing calls are written."),
    key(&[Log], "error", Kind::LogTarget, Value("\"stderr\""),
        "Where errors are written: a file, `\"stderr\"`, `\"stdout\"`, `\"syslog\"` or `\"off\"`.").called(&["error_log", "ErrorLog"]),
    key(&[Log], "level", Kind::Word(&["error", "warning", "notice", "debug"], &[]), Value("\"notice\""),
        "The least severe that is written: `\"error\"`, `\"warning\"`, `\"notice\"` or `\"debug\"`.")
        .called(&["log_level", "LogLevel"]),
    key(&[Log], "error_format", Kind::Word(&["weir", "fpm"], &[]), Value("\"weir\""),
        "`\"weir\"`, or `\"fpm\"`: errors are written in PHP-FPM's words, for scripts that look for them."),
    key(&[Log], "error_limit", Kind::Size { min: 512, max: 16 << 20 }, Value("\"1K\""),
        "Longest line in PHP-FPM's format: what workers print goes on in another, PHP's messages are cut.")
        .called(&["log_limit"]),
    key(&[Log], "error_buffering", Kind::Bool, Value("true"),
        "In PHP-FPM's format, lines of workers are written when they are whole, not as they come.")
        .called(&["log_buffering"]),
    key(&[Log], "syslog_ident", Kind::Text, Value("\"weir\""),
        "What messages are called that go to syslog.").called(&["syslog.ident"]),
    key(&[Log], "syslog_facility", Kind::Word(FACILITY_NAMES, &[]), Value("\"daemon\""),
        "Which of syslog's facilities they belong to.").called(&["syslog.facility"]),
];

/// The facilities of syslog(3), in its order, with its numbers.
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

const BOTH: &[Section] = &[Site, Route];
const POLICIES: &[Section] = &[Site, Route, Listen];
/// Minimum and maximum of `priority`.
pub(crate) const PRIORITIES: (i64, i64) = (-1000, 1000);
const SIZE_MAX: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_rows_in_a_section() {
        for section in Section::ALL {
            let mut names: Vec<_> = of(section).map(|row| row.name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{}", section.title());
        }
    }

    #[test]
    fn every_row_has_its_line_of_help() {
        for row in all() {
            assert!(
                row.help.ends_with('.') && !row.help.contains('\n'),
                "{}",
                row.name
            );
        }
    }
}
