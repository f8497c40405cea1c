//! Text of `weir.toml` → [`Config`], or all diagnostics at once with file, line, column and a hint.
//!
//! The parser is pure: it takes a text and an [`Environment`], and opens nothing. A second pass,
//! [`check_environment`], checks what depends on the machine (users, programs, folders).
//!
//! One table of rows (`rows.rs` and `rows/`) defines every key: its parser, default and hints, and its part in [`to_toml`] and in
//! the reference page, [`reference`].
#![forbid(unsafe_code)]

extern crate alloc;

mod access_format;
mod build;
mod cache;
mod clients;
mod diagnostic;
mod document;
mod egress;
mod entries;
mod environment;
mod field;
mod fields;
mod foreign;
pub mod fpm;
mod listeners;
mod machine;
mod model;
mod origin;
mod print;
mod programs;
mod queue;
mod reference;
mod rows;
mod scalar;
mod schedule;
mod secret;
mod servers;

mod settings;
mod sink;
mod syntax;
mod template;
mod texts;
mod tls;
mod typed;
mod value;

use core::ops::Range;
use std::{collections::BTreeMap, sync::Arc};

pub use access_format::{AccessFormat, CpuTime, FormatCode, FormatPiece, MemoryUnit, TimeUnit};
pub use cache::preset_tables;
pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use egress::is_credential;
pub use environment::Environment;
pub use field::quoted_list;
pub use machine::{Machine, Obstacle, check_environment};
pub use model::*;
pub use print::to_toml;
pub use reference::{KeyHelp, TableHelp, reference, rules_of_values, tables};
pub use schedule::Schedule;
pub use settings::default_hide_files;
pub use template::{Piece, Template, TlsVariable, Variable};
pub use texts::quote;
pub use tls::{LOCAL_DOMAINS, LOCAL_NETWORKS, is_local_name, is_public_name};
pub use typed::{DEFAULT_LISTEN, parse_address, parse_duration, parse_host};

use document::Document;
use sink::Sink;

/// A configuration without errors, with warnings and places.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The configuration in force.
    pub config: Config,
    /// Warnings; there are no errors among them.
    pub warnings: Diagnostics,
    /// Places of the keys in the text.
    pub places: Places,
}

/// Places of keys in the text: `server.user`, `listen.web.address`, `site.shop.route[0].root`,
/// `pool.shop.queue.maxconn`, `egress.host.payments.set_headers.Authorization`. Also of tables: `site.shop`.
#[derive(Debug, Clone, Default)]
pub struct Places {
    places: BTreeMap<String, Range<usize>>,
}

impl Places {
    /// The places of a text that was read without them.
    pub fn of_text(text: &str, env: &Environment) -> Self {
        with_root(text, &mut Sink::default(), |root, sink| {
            places(&Document::read(root, &env.folder, sink))
        })
    }

    /// Byte range of the key's value. If the key is not written: of the nearest table around it, else `0..0`.
    pub fn of(&self, path: &str) -> Range<usize> {
        let mut path = path;
        loop {
            if let Some(span) = self.places.get(path) {
                return span.clone();
            }
            match path.rfind('.') {
                Some(dot) => path = &path[..dot],
                None => return 0..0,
            }
        }
    }
}

/// Reads and checks a configuration. `file_name` is the name of the file in diagnostics.
///
/// # Errors
/// All problems, warnings included, in the order of the text.
pub fn read(file_name: &str, text: &str, env: &Environment) -> Result<Checked, Diagnostics> {
    let places = |document: &Document| places(document);
    let (config, warnings, places) = read_with(file_name, text, env, places)?;
    Ok(Checked {
        config,
        warnings,
        places,
    })
}

/// As [`read`], for callers that need no places, which take time and memory with thousands of tables. Returns the
/// configuration and warnings.
///
/// # Errors
/// As [`read`].
pub fn load(
    file_name: &str,
    text: &str,
    env: &Environment,
) -> Result<(Config, Diagnostics), Diagnostics> {
    let (config, warnings, ()) = read_with(file_name, text, env, |_| ())?;
    Ok((config, warnings))
}

/// As [`read`], for callers that only need the configuration.
///
/// # Errors
/// As [`read`].
pub fn parse(file_name: &str, text: &str, env: &Environment) -> Result<Config, Diagnostics> {
    load(file_name, text, env).map(|(config, _)| config)
}

/// Reads `[server]` alone, for commands that only need the address of the admin interface. Errors in other tables do not
/// matter.
///
/// # Errors
/// The problems of this table; and those of the text as TOML, if they hide it.
pub fn read_server(file_name: &str, text: &str, env: &Environment) -> Result<Server, Diagnostics> {
    // A file may have thousands of other tables. If anything is unusual or wrong, all of it is parsed.
    if let Some(table) = syntax::server_table(text)
        && let Ok(server) = server_of(file_name, table, env)
    {
        return Ok(server);
    }
    server_of(file_name, text, env)
}

fn server_of(file_name: &str, text: &str, env: &Environment) -> Result<Server, Diagnostics> {
    let mut sink = Sink::default();
    let server = with_root(text, &mut sink, |root, sink| {
        let entries = Document::read_server(root, &env.folder, sink);
        build::server(&entries, env, sink)
    });
    let failed = sink.has_errors();
    let diagnostics = Diagnostics::new(file_name, Arc::from(text), sink.into_found());
    if failed { Err(diagnostics) } else { Ok(server) }
}

fn read_with<T>(
    file_name: &str,
    text: &str,
    env: &Environment,
    note: impl FnOnce(&Document) -> T,
) -> Result<(Config, Diagnostics, T), Diagnostics> {
    let mut sink = Sink::default();
    let (config, noted) = with_root(text, &mut sink, |root, sink| {
        let document = Document::read(root, &env.folder, sink);
        let config = build::config(&document, env, sink);
        (config, note(&document))
    });
    let failed = sink.has_errors();
    scalar::forget_compiled();
    let diagnostics = Diagnostics::new(file_name, Arc::from(text), sink.into_found());
    if failed {
        Err(diagnostics)
    } else {
        Ok((config, diagnostics, noted))
    }
}

/// Parses a text, and reports what is not TOML. What can be read nevertheless is given to `read`.
fn with_root<T>(
    text: &str,
    sink: &mut Sink,
    read: impl FnOnce(&toml::de::DeTable<'_>, &mut Sink) -> T,
) -> T {
    let (root, errors) = toml::de::DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return read(root.get_ref(), sink);
    }
    let readable = syntax::readable(text, sink);
    let (root, _) = toml::de::DeTable::parse_recoverable(&readable);
    read(root.get_ref(), sink)
}

/// The name that was most likely meant, if one is similar to `written`.
pub fn nearest_name<'n>(
    written: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    scalar::nearest(written, names)
}

fn places(document: &Document) -> Places {
    let tables = [
        &document.server,
        &document.tls,
        &document.acme,
        &document.cache,
        &document.log,
    ]
    .into_iter()
    .chain(document.listeners.iter().map(|listener| &listener.entries))
    .chain(document.certificates.iter().map(|one| &one.entries))
    .chain(
        document
            .sites
            .iter()
            .flat_map(|tables| core::iter::once(&tables.site.entries).chain(&tables.routes)),
    )
    .chain(
        document
            .pools
            .iter()
            .flat_map(|tables| [&tables.pool.entries, &tables.queue]),
    )
    .chain(document.programs.iter().map(|program| &program.entries))
    .chain(document.egress.iter().flat_map(|tables| {
        let hosts = tables.hosts.iter().map(|host| &host.entries);
        core::iter::once(&tables.egress).chain(hosts)
    }));
    Places {
        places: tables.flat_map(|table| table.places()).collect(),
    }
}
