//! The whole file as tables: which sections there are, and the keys of each. This module checks each value alone;
//! `build` checks how the values fit together.

use core::ops::Range;
use std::path::Path;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    entries::{Entries, Key, expected_table, in_order},
    foreign,
    rows::{self, Section},
    scalar,
    sink::Sink,
};

/// All tables of a file.
pub(crate) struct Document {
    pub(crate) server: Entries,
    pub(crate) listeners: Vec<Named>,
    pub(crate) sites: Vec<SiteTables>,
    pub(crate) pools: Vec<PoolTables>,
    pub(crate) programs: Vec<Named>,
    pub(crate) cache: Entries,
    pub(crate) egress: Option<EgressTables>,
    pub(crate) tls: Entries,
    pub(crate) acme: Entries,
    pub(crate) certificates: Vec<Named>,
    pub(crate) log: Entries,
    /// The file has a `listen` section, valid or not.
    pub(crate) has_listeners: bool,
    /// The file has a `site` section, valid or not.
    pub(crate) has_sites: bool,
}

/// A table with a NAME.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) entries: Entries,
}

/// `[site.NAME]` and its routes.
pub(crate) struct SiteTables {
    pub(crate) site: Named,
    pub(crate) routes: Vec<Entries>,
}

/// `[pool.NAME]` and its queue.
pub(crate) struct PoolTables {
    pub(crate) pool: Named,
    pub(crate) queue: Entries,
}

/// `[egress]` and its hosts.
pub(crate) struct EgressTables {
    pub(crate) egress: Entries,
    pub(crate) hosts: Vec<Named>,
}

impl Document {
    /// Reads `[server]` alone.
    pub(crate) fn read_server(root: &DeTable<'_>, folder: &Path, sink: &mut Sink) -> Entries {
        let mut walk = Walk { folder, sink };
        match root.get("server") {
            Some(node) => walk.single(Section::Server, "server", node),
            None => Entries::none(Section::Server, "server", 0..0),
        }
    }

    /// Reads the tables of a file. Relative paths are relative to `folder`.
    pub(crate) fn read(root: &DeTable<'_>, folder: &Path, sink: &mut Sink) -> Self {
        let mut document = Self {
            server: Entries::none(Section::Server, "server", 0..0),
            listeners: Vec::new(),
            sites: Vec::new(),
            pools: Vec::new(),
            programs: Vec::new(),
            cache: Entries::none(Section::Cache, "cache", 0..0),
            egress: None,
            tls: Entries::none(Section::Tls, "tls", 0..0),
            acme: Entries::none(Section::Acme, "tls.acme", 0..0),
            certificates: Vec::new(),
            log: Entries::none(Section::Log, "log", 0..0),
            has_listeners: says(root, "listen"),
            has_sites: says(root, "site"),
        };
        let mut walk = Walk { folder, sink };
        for (key, node) in in_order(root) {
            match key.get_ref().as_ref() {
                "server" => document.server = walk.single(Section::Server, "server", node),
                "cache" => document.cache = walk.single(Section::Cache, "cache", node),
                "log" => document.log = walk.single(Section::Log, "log", node),
                "egress" => document.egress = Some(walk.egress(node)),
                "tls" => {
                    document.tls = walk.single(Section::Tls, "tls", node);
                    let table = node.get_ref().as_table();
                    if let Some(acme) = table.and_then(|table| table.get("acme")) {
                        document.acme = walk.single(Section::Acme, "tls.acme", acme);
                    }
                }
                "listen" => document.listeners = walk.flat(Section::Listen, "listen", node),
                "certificate" => {
                    document.certificates = walk.flat(Section::Certificate, "certificate", node);
                }
                "site" => document.sites = walk.sites(node),
                "pool" => document.pools = walk.pools(node),
                "program" => document.programs = walk.flat(Section::Program, "program", node),
                name => walk.unknown_section(name, key, node),
            }
        }
        document
    }
}

struct Walk<'a> {
    folder: &'a Path,
    sink: &'a mut Sink,
}

type Node<'i> = Spanned<DeValue<'i>>;

impl Walk<'_> {
    fn single(&mut self, section: Section, path: &str, node: &Node<'_>) -> Entries {
        match node.get_ref().as_table() {
            Some(table) => self.entries(section, path, node.span(), table),
            None => {
                expected_table(section.title(), node, self.sink);
                Entries::none(section, path, node.span())
            }
        }
    }

    /// The tables `[kind.NAME]` that contain only keys.
    fn flat(&mut self, section: Section, kind: &str, node: &Node<'_>) -> Vec<Named> {
        let tables = self.named(section, kind, node);
        tables
            .into_iter()
            .map(|(name, span, table)| Named {
                entries: self.entries(section, &format!("{kind}.{name}"), span, table),
                name,
            })
            .collect()
    }

    fn sites(&mut self, node: &Node<'_>) -> Vec<SiteTables> {
        let tables = self.named(Section::Site, "site", node);
        let mut sites = Vec::with_capacity(tables.len());
        for (name, span, table) in tables {
            let path = format!("site.{name}");
            let entries = self.entries(Section::Site, &path, span, table);
            let routes = match table.get("route") {
                Some(node) => self.routes(&name, &path, node),
                None => Vec::new(),
            };
            let site = Named { name, entries };
            sites.push(SiteTables { site, routes });
        }
        sites
    }

    fn routes(&mut self, site: &str, path: &str, node: &Node<'_>) -> Vec<Entries> {
        let Some(array) = node.get_ref().as_array() else {
            let message = "`route` must be a list of tables";
            let hint = format!("write [[site.{site}.route]], with two brackets on each side");
            self.sink.error(node.span(), message, hint);
            return Vec::new();
        };
        let mut routes = Vec::with_capacity(array.len());
        for (index, node) in array.iter().enumerate() {
            match node.get_ref().as_table() {
                Some(table) => {
                    let path = format!("{path}.route[{index}]");
                    routes.push(self.entries(Section::Route, &path, node.span(), table));
                }
                None => expected_table(Section::Route.title(), node, self.sink),
            }
        }
        routes
    }

    fn pools(&mut self, node: &Node<'_>) -> Vec<PoolTables> {
        let tables = self.named(Section::Pool, "pool", node);
        let mut pools = Vec::with_capacity(tables.len());
        for (name, span, table) in tables {
            let path = format!("pool.{name}");
            let entries = self.entries(Section::Pool, &path, span.clone(), table);
            let queue_path = format!("{path}.queue");
            let queue = match table.get("queue") {
                Some(node) => self.single(Section::Queue, &queue_path, node),
                None => Entries::none(Section::Queue, &queue_path, span),
            };
            let pool = Named { name, entries };
            pools.push(PoolTables { pool, queue });
        }
        pools
    }

    fn egress(&mut self, node: &Node<'_>) -> EgressTables {
        let Some(table) = node.get_ref().as_table() else {
            expected_table(Section::Egress.title(), node, self.sink);
            return EgressTables {
                egress: Entries::none(Section::Egress, "egress", node.span()),
                hosts: Vec::new(),
            };
        };
        let egress = self.entries(Section::Egress, "egress", node.span(), table);
        let hosts = match table.get("host") {
            Some(node) => self.named(Section::EgressHost, "egress.host", node),
            None => Vec::new(),
        };
        let mut tables = Vec::with_capacity(hosts.len());
        for (name, span, table) in hosts {
            let path = format!("egress.host.{name}");
            let entries = self.entries(Section::EgressHost, &path, span, table);
            tables.push(Named { name, entries });
        }
        EgressTables {
            egress,
            hosts: tables,
        }
    }

    fn entries(
        &mut self,
        section: Section,
        path: &str,
        header: Range<usize>,
        table: &DeTable<'_>,
    ) -> Entries {
        let mut entries = Entries::none(section, path, header);
        entries.read(table, self.folder, self.sink);
        entries.check_required(self.sink);
        if matches!(section, Section::Site | Section::Route) {
            entries.cache = self.cache(path, table).map(Box::new);
        }
        entries
    }

    /// `cache` of a site or a route: a table, or the word that would be its only key.
    fn cache(&mut self, path: &str, table: &DeTable<'_>) -> Option<Entries> {
        let (key, node) = table.get_key_value("cache")?;
        let path = format!("{path}.cache");
        let header = node.span();
        Some(match node.get_ref() {
            DeValue::Table(table) => self.entries(Section::SiteCache, &path, header, table),
            _ => {
                let mut entries = Entries::none(Section::SiteCache, &path, header);
                entries.read_short("preset", (key, node), self.folder, self.sink);
                entries
            }
        })
    }

    /// The tables `[kind.NAME]`.
    fn named<'t, 'i>(
        &mut self,
        section: Section,
        kind: &str,
        node: &'t Node<'i>,
    ) -> Vec<(String, Range<usize>, &'t DeTable<'i>)> {
        let example = match section {
            Section::Listen => "web",
            Section::Site | Section::Certificate => "shop",
            Section::EgressHost => "payments",
            Section::Program => "queue",
            _ => "php",
        };
        let Some(table) = node.get_ref().as_table() else {
            let message = format!("`{kind}` contains named tables");
            self.sink
                .error(node.span(), message, format!("write [{kind}.{example}]"));
            return Vec::new();
        };
        let mut tables = Vec::with_capacity(table.len());
        let mut nameless = None;
        for (key, node) in in_order(table) {
            let name: &str = key.get_ref();
            let Some(table) = node.get_ref().as_table() else {
                if rows::find(section, name).is_some() || section.tables().contains(&name) {
                    nameless.get_or_insert(key.span());
                } else {
                    expected_table(&format!("[{kind}.{name}]"), node, self.sink);
                }
                continue;
            };
            let (fits, hint) = match section {
                // PHP-FPM allows any name for a pool, and its pools become ours.
                Section::Pool => (
                    is_pool_name(name),
                    "a pool's name must have 1 to 64 characters, without control characters and without spaces at its ends",
                ),
                _ => (
                    is_name(name),
                    "a name must have 1 to 64 letters, digits, `-` or `_`",
                ),
            };
            if !fits {
                let message = format!("{name:?} is not a valid name");
                self.sink.error(key.span(), message, hint);
                continue;
            }
            tables.push((name.to_owned(), node.span(), table));
        }
        if let Some(key) = nameless {
            let header = match node.span().len() > kind.len() {
                true => node.span(),
                false => key,
            };
            let message = format!("[{kind}] needs a name");
            self.sink
                .error(header, message, format!("write [{kind}.{example}]"));
        }
        tables
    }

    fn unknown_section(&mut self, name: &str, key: &Key<'_>, node: &Node<'_>) {
        if !node.get_ref().is_table() && !node.get_ref().is_array() {
            let message = format!("`{name}` is not in a table");
            let titles: Vec<&str> = Section::ALL
                .into_iter()
                .filter(|section| rows::find(*section, name).is_some())
                .map(Section::title)
                .collect();
            let hint = match titles.is_empty() {
                true => format!("known tables: {}", TABLES.join(", ")),
                false => format!("`{name}` belongs in {}", titles.join(" or ")),
            };
            self.sink.error(key.span(), message, hint);
            return;
        }
        let theirs = THEIRS
            .iter()
            .find(|(other, _)| *other == name.to_lowercase());
        let foreign = foreign::hint(&name.to_lowercase().replace(['-', '.', ' '], "_"));
        let hint = match (theirs, foreign, scalar::nearest(name, NAMES)) {
            (Some((_, ours)), ..) => format!("it is called {ours} here"),
            (None, Some(foreign), _) => foreign.to_owned(),
            (None, None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None, None) => format!("known tables: {}", TABLES.join(", ")),
        };
        self.sink
            .error(key.span(), format!("unknown table [{name}]"), hint);
    }
}

/// Whether the key is there and is not an empty table. Errors inside the table were already reported.
fn says(root: &DeTable<'_>, key: &str) -> bool {
    let empty = |node: &Node<'_>| {
        node.get_ref()
            .as_table()
            .is_some_and(|table| table.is_empty())
    };
    root.get(key).is_some_and(|node| !empty(node))
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

fn is_pool_name(name: &str) -> bool {
    (1..=64).contains(&name.chars().count())
        && name.trim() == name
        && !name.chars().any(char::is_control)
}

const NAMES: [&str; 10] = [
    "server",
    "listen",
    "tls",
    "certificate",
    "site",
    "pool",
    "program",
    "cache",
    "egress",
    "log",
];
const TABLES: [&str; 10] = [
    "[server]",
    "[listen.NAME]",
    "[tls]",
    "[certificate.NAME]",
    "[site.NAME]",
    "[pool.NAME]",
    "[program.NAME]",
    "[cache]",
    "[egress]",
    "[log]",
];
/// Names that other programs use for our tables.
const THEIRS: [(&str, &str); 14] = [
    ("ssl", "[tls]"),
    ("certificates", "[certificate.NAME]"),
    ("global", "[server]"),
    ("frontend", "[listen.NAME]"),
    ("bind", "[listen.NAME]"),
    ("backend", "[pool.NAME]"),
    ("upstream", "[pool.NAME]"),
    ("host", "[site.NAME]"),
    ("vhost", "[site.NAME]"),
    ("virtualhost", "[site.NAME]"),
    ("cron", "[program.NAME]"),
    ("service", "[program.NAME]"),
    ("daemon", "[program.NAME]"),
    ("timer", "[program.NAME]"),
];
