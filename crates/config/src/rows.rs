//! The table of all keys: one row per key.
//!
//! The parser, defaults, hints, `weir check --print` and the reference page all use these rows. A value that is not
//! supported yet is known too: the message says that it is not supported, not that it is wrong.

mod cache;
mod egress;
mod listen;
pub(crate) mod log;
mod pool;
mod program;
mod queue;
mod server;
mod site;
mod tls;

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher},
    sync::LazyLock,
};

use crate::rows::Section::{
    Acme, Cache, Certificate, Egress, EgressHost, Listen, Log, Pool, Program, Queue, Route, Server,
    Site, SiteCache, Tls,
};

/// A kind of table in weir.toml.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Section {
    Server,
    Listen,
    Tls,
    Acme,
    Certificate,
    Site,
    Route,
    SiteCache,
    Pool,
    Queue,
    Program,
    Cache,
    Egress,
    EgressHost,
    Log,
}

impl Section {
    /// All sections, in the order of the reference page.
    pub(crate) const ALL: [Self; COUNT] = [
        Server,
        Listen,
        Tls,
        Acme,
        Certificate,
        Site,
        Route,
        SiteCache,
        Pool,
        Queue,
        Program,
        Cache,
        Egress,
        EgressHost,
        Log,
    ];

    /// Keys of the section that are tables of their own.
    pub(crate) fn tables(self) -> &'static [&'static str] {
        match self {
            Site => &["route", "cache"],
            Route => &["cache"],
            Tls => &["acme"],
            Pool => &["queue"],
            Egress => &["host"],
            _ => &[],
        }
    }

    /// The title as in weir.toml.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Server => "[server]",
            Listen => "[listen.NAME]",
            Tls => "[tls]",
            Acme => "[tls.acme]",
            Certificate => "[certificate.NAME]",
            Site => "[site.NAME]",
            Route => "[[site.NAME.route]]",
            SiteCache => "[site.NAME.cache]",
            Pool => "[pool.NAME]",
            Queue => "[pool.NAME.queue]",
            Program => "[program.NAME]",
            Cache => "[cache]",
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
    /// The values of `runtime` (in a pool) or `protocol` (in a listener) with which the key has a meaning. Empty: all.
    pub(crate) only: &'static [&'static str],
    /// A value for this key, where that of its kind would be wrong or misleading. Empty: that of the kind.
    example: &'static str,
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

/// Makes [`Kind`]. Each row: a format, the expected kind of value as a noun, and an example.
macro_rules! kinds {
    ({ $($with_limits:tt)* } $($(#[$doc:meta])* $kind:ident $noun:literal, $example:literal;)*) => {
        /// Format of a value.
        #[derive(Clone, Copy)]
        pub(crate) enum Kind {
            $($with_limits)*
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// The expected kind of value, as a noun, and an example.
            pub(crate) fn expectation(&self) -> (&'static str, &'static str) {
                match self {
                    $(Kind::$kind => ($noun, $example),)*
                    Kind::Count { .. } => ("a whole number", "100"),
                    Kind::Duration { .. } => ("a duration", "\"30s\""),
                    Kind::Size { min, .. } if *min > 64 << 10 => ("a size", "\"64M\""),
                    Kind::Size { .. } => ("a size", "\"64K\""),
                    Kind::Signed { .. } => ("a whole number", "10"),
                    Kind::Word(examples, ..) => ("a word", examples.first().copied().unwrap_or_default()),
                }
            }
        }
    };
}

kinds! {
    {
        Count { min: u64, max: u64, },
        Duration { zero: bool, },
        Size { min: u64, max: u64, },
        /// A whole number that may be negative.
        Signed { min: i64, max: i64, },
        /// One of these words. The words in the second list are known, but not supported yet.
        Word(&'static [&'static str], &'static [&'static str]),
    }
    Bool "true or false", "true";
    /// `true`, `false` or `"clear"`.
    Http2 "true, false or \"clear\"", "true";
    Mode "a mode", "\"0660\"";
    /// A nice value, stored as 64-bit two's complement.
    Priority "a nice value", "-5";
    RedirectStatus "a status", "308";
    Text "a text", "\"weir\"";
    /// The NAME of another table; empty: none.
    Reference "a name", "\"shop\"";
    References "a list of names", "[\"web\"]";
    Path "a path", "\"/srv/shop\"";
    Paths "a list of paths", "[\"/srv/files\"]";
    Address "an address", "\"0.0.0.0:80\"";
    Addresses "a list of addresses", "[\"127.0.0.1:8083\"]";
    Servers "a list of servers", "[\"unix:/run/php/php-fpm.sock\"]";
    HashBy "\"source\", \"uri\", \"header:NAME\" or \"cookie:NAME\"", "\"uri\"";
    /// IP addresses with a port. Default port: 53.
    Nameservers "a list of IP addresses", "[\"10.0.0.2\"]";
    SocketPath "unix:PATH or \"off\"", "\"unix:/run/weir/admin.sock\"";
    TcpAddress "host:port", "\"127.0.0.1:9180\"";
    Program "a list of program and arguments", "[\"/usr/bin/php-cgi\"]";
    /// A server of Valkey or Redis.
    Bus "the URL of a server", "\"redis://127.0.0.1:6379\"";
    /// Cron's five fields, or one of its words.
    Schedule "cron's five fields", "\"*/5 * * * *\"";
    Hosts "a list of hosts", "[\"shop.example\", \"*.shop.example\"]";
    Methods "a list of methods", "[\"GET\", \"POST\"]";
    HeaderNames "a list of header names", "[\"X-Powered-By\"]";
    /// One header name; empty: none.
    HeaderName "a header's name", "\"X-Request-Timeout\"";
    /// Names of headers that can be passed to a worker.
    RequestHeaderNames "a list of header names", "[\"Authorization\"]";
    FileNames "a list of file names", "[\"index.php\", \"index.html\"]";
    UrlPrefixes "a list of path prefixes", "[\"/uploads/\"]";
    Extensions "a list of extensions", "[\".php\"]";
    Script "a regular expression", "'^(/.+\\.php)(/.*)?$'";
    Regexes "a list of regular expressions", "['/\\.']";
    PathPattern "a path pattern", "\"/api/*\"";
    /// Path patterns; `...` stands for those of a preset.
    PathPatterns "a list of path patterns", "[\"...\", \"/members/*\"]";
    /// Names of cookies or parameters, with `*` and `?`; `...` stands for those of a preset.
    Names "a list of names", "[\"...\", \"member_*\"]";
    /// `NAME=VALUE`, with `*` and `?`; `...` stands for those of a preset.
    Assignments "a list of names and values", "[\"...\", \"action=publish\"]";
    /// Header fields, and values of theirs.
    FieldValues "a table of headers and values", "{ X-Page = \"public\" }";
    /// A path of the site; empty: none.
    UrlPath "a path", "\"/index.php\"";
    /// The same, with a query and groups.
    Fallback "a path", "\"/index.php\"";
    /// A site's path with a query and groups.
    Rewrite "a path", "\"/doku.php?id=$1\"";
    /// A location or other single line with `${...}`.
    Template "a text", "\"https://${host}${uri}\"";
    /// Empty: none.
    HeaderValue "a text", "\"public, max-age=3600\"";
    Charset "a charset", "\"utf-8\"";
    Params "a table of parameters", "{ APP_ENV = \"production\" }";
    HeaderTemplates "a table of headers", "{ \"X-Frame-Options\" = \"DENY\" }";
    /// Headers that can be passed to a worker, with templates.
    RequestHeaderTemplates "a table of headers", "{ \"X-Real-IP\" = \"${remote_addr}\" }";
    Environment "a table of variables", "{ LANG = \"C.UTF-8\" }";
    PhpIni "a table of PHP settings", "{ memory_limit = \"256M\" }";
    /// The same, with on and off.
    PhpFlags "a table of on/off settings of PHP", "{ display_errors = false }";
    IpAddresses "a list of IP addresses", "[\"127.0.0.1\"]";
    /// Networks, `unix:` and `all`.
    Peers "a list of networks, `unix:` or `all`", "[\"10.0.0.0/8\"]";
    /// The same, or true or false.
    Deny "true, false or a list of networks, `unix:` or `all`", "true";
    /// `10/s burst 20`; empty: none.
    Rate "a rate", "\"10/s burst 20\"";
    /// A time with words after it.
    Hsts "a time", "\"1y include_subdomains\"";
    /// A table with realm and file, or false.
    BasicAuth "a table with realm and file, or false", "{ realm = \"staging\", file = \"/etc/weir/htpasswd\" }";
    /// `5M/s`; empty: no limit.
    Bandwidth "a speed", "\"5M/s\"";
    ErrorPages "a table of statuses and files", "{ 503 = \"errors/503.html\" }";
    Types "a table of extensions and types", "{ wasm = \"application/wasm\" }";
    /// Media types, some of them with a star.
    MediaTypes "a list of media types", "[\"text/*\", \"application/json\"]";
    Folders "a table of prefixes and folders", "{ \"/protected/\" = \"/srv/private\" }";
    Reply "a table with status and body", "{ status = 200, body = \"ok\" }";
    Reserves "a list of tables with priority and workers", "[{ priority = -10, workers = 1 }]";
    PriorityRules "a list of rules", "[{ header = \"User-Agent\", match = \"~(?i)bot\", priority = 50 }]";
    FairBy "\"address\", \"header:NAME\", \"cookie:NAME\" or \"off\"", "\"header:X-Real-IP\"";
    /// The key by which requests are serialized.
    SerializeBy "\"auto\", \"cookie:NAME\", \"header:NAME\" or \"off\"", "\"cookie:PHPSESSID\"";
    LogTarget "a path, \"stdout\", \"stderr\" or \"off\"", "\"/var/log/weir/access.log\"";
    LogFormat "\"combined\", \"json\" or a template", "\"${remote_addr} ${status} ${uri}\"";
    /// A line with PHP-FPM's `%` codes.
    AccessFormat "a text with `%` codes", r#""%R %t \"%m %r\" %s""#;
    /// Rules for allowed calls.
    AllowRules "a list of hosts", "[\"api.example.com\", \"*.partner.example:8443\", \"http://legacy.internal:8080\"]";
    /// A host with scheme and port.
    Origin "a host", "\"http://legacy.internal:8080\"";
    /// Hosts with scheme and port.
    Origins "a list of hosts", "[\"api.example.com\", \"http://legacy.internal:8080\"]";
    /// Hosts with a port; the scheme is http.
    HttpOrigins "a list of hosts", "[\"api.example.com\"]";
    /// Addresses, and networks with a prefix length.
    Networks "a list of networks", "[\"10.0.0.0/8\"]";
    /// Headers of a call. Their values may come from elsewhere.
    SecretHeaders "a table of headers", "{ Authorization = \"Bearer ${file:/etc/weir/api.token}\" }";
}

/// The row of a key in a section.
pub(crate) fn find(section: Section, name: &str) -> Option<&'static Row> {
    BY_NAME[section as usize].get(name).copied()
}

/// The rows of a section, in the order of the table.
pub(crate) fn of(section: Section) -> impl Iterator<Item = &'static Row> {
    BY_SECTION[section as usize].iter().copied()
}

/// A configuration may have thousands of tables, so nothing is searched for each key.
static BY_NAME: LazyLock<[HashMap<&'static str, &'static Row, Quick>; COUNT]> =
    LazyLock::new(|| Section::ALL.map(|section| of(section).map(|row| (row.name, row)).collect()));

/// Hashes names of keys. The names in the tables are weir's own, so nobody can choose names that collide.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Quick;

impl BuildHasher for Quick {
    type Hasher = Fnv;

    fn build_hasher(&self) -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

/// FNV-1a, 64 bits.
pub(crate) struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// In the order of [`Section::ALL`].
static BY_SECTION: LazyLock<[Vec<&'static Row>; COUNT]> = LazyLock::new(|| {
    Section::ALL.map(|section| {
        let rows = all();
        rows.filter(|row| row.sections.contains(&section)).collect()
    })
});

/// All rows.
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    [
        server::SERVER,
        listen::LISTEN,
        tls::TLS,
        tls::ACME,
        tls::CERTIFICATE,
        site::SITE,
        site::ROUTE,
        site::SETTINGS,
        site::POLICY,
        cache::RULES,
        pool::POOL,
        queue::QUEUE,
        program::PROGRAM,
        cache::CACHE,
        egress::EGRESS,
        log::LOG,
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
        only: &[],
        example: "",
        group: "",
    }
}

impl Row {
    /// Whether the key has a meaning with this `runtime` or `protocol`.
    pub(crate) fn applies_to(&self, word: &str) -> bool {
        self.only.is_empty() || self.only.contains(&word)
    }

    /// A value as it may be written: the example of the reference page.
    pub(crate) fn example(&self) -> String {
        match (&self.kind, self.example) {
            (Kind::Word(..), "") => format!("\"{}\"", self.kind.expectation().1),
            (kind, "") => kind.expectation().1.to_owned(),
            (_, example) => example.to_owned(),
        }
    }

    /// Whether the row has an example of its own, which says more than the example of its kind.
    pub(crate) fn has_example(&self) -> bool {
        !self.example.is_empty()
    }

    const fn like(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    const fn begins(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }

    const fn only(mut self, words: &'static [&'static str]) -> Self {
        self.only = words;
        self
    }

    const fn called(mut self, elsewhere: &'static [&'static str]) -> Self {
        self.elsewhere = elsewhere;
        self
    }
}

/// How many sections there are.
pub(crate) const COUNT: usize = 15;

/// What a `priority` may be, least and most.
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
