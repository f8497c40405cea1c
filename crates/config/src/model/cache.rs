//! `[cache]`, and the rules of a site or a route for it. The presets are in `cache/presets.rs`.

use alloc::{string::String, vec::Vec};
use core::{fmt, time::Duration};
use std::path::PathBuf;

use super::{Address, PathPattern, Upstream};

/// `[cache]`: the store that all sites share.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cache {
    /// Memory for stored answers, and for the index of all of them, bytes.
    pub memory: u64,
    /// Larger answers are not stored, bytes.
    pub max_object: u64,
    /// Maximum number of stored answers in memory.
    pub max_objects: usize,
    /// Folder for stored answers, which reloads and restarts keep. `None`: in memory only.
    pub disk: Option<PathBuf>,
    /// Maximum size of all files in `disk`, bytes.
    pub max_disk: u64,
    /// Answers from this size on are files of their own in `disk`, bytes.
    pub file_from: u64,
    /// The server through which nodes tell each other their purges. `None`: each purges for itself.
    pub bus: Option<Bus>,
    /// User of that server. `None`: its default user.
    pub bus_user: Option<String>,
    /// File with the password for it. `None`: no password.
    pub bus_password_file: Option<PathBuf>,
    /// Name of the stream that the nodes share.
    pub bus_stream: String,
}

/// A server of Valkey or Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bus {
    /// Its address or name.
    pub server: Upstream,
    /// Number of the database.
    pub database: u16,
}

/// Writes it as in weir.toml.
impl fmt::Display for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.server, self.database) {
            (Upstream::At(Address::Unix(path)), 0) => write!(f, "unix:{}", path.display()),
            (server, 0) => write!(f, "redis://{server}"),
            (server, database) => write!(f, "redis://{server}/{database}"),
        }
    }
}

/// Which answers of a site's scripts are stored, and for whom: `[site.NAME.cache]`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CacheRules {
    /// Where the other values come from, if they are not written.
    pub preset: CachePreset,
    /// Lifetime of answers that name none. Zero: such answers are not stored.
    pub ttl: Duration,
    /// How long after its lifetime an answer may be sent if the pool is full or fails. An answer that says
    /// `stale-if-error`, `must-revalidate` or the like decides for itself.
    pub grace: Duration,
    /// An expired answer within its grace is sent at once if the request would foreseeably wait this long for a worker.
    pub stale_wait: Duration,
    /// Requests with such a cookie neither get stored answers nor have theirs stored. Globs of names, `*` and `?`.
    pub bypass_cookies: Vec<String>,
    /// The same for requests of such paths (decoded and normalised, as those of routes).
    pub bypass_paths: Vec<PathPattern>,
    /// The same for requests with such a query parameter. Globs of names.
    pub bypass_query: Vec<String>,
    /// Query parameters that make no other page. Globs of names.
    pub drop_query: Vec<String>,
    /// The order of query parameters makes no other page.
    pub sort_query: bool,
    /// Cookies whose values make other pages. Globs of names.
    pub vary_cookies: Vec<String>,
    /// Phones get pages of their own.
    pub mobile: bool,
    /// Header fields that are ignored in `Vary`. In lower case.
    pub ignore_vary: Vec<String>,
    /// Fields by which an answer says that it is the same for everybody, whatever its Cache-Control says: names in lower case,
    /// and whole values. A name may be there more than once.
    pub public_if: Vec<(String, String)>,
    /// `Cache-Control` of clients counts (reloading a page asks the application).
    pub client_directives: bool,
    /// Paths at which users change pages. A request there purges the site (softly) if it has a cookie of `bypass_cookies` or a
    /// password, its method is not GET or HEAD (or it has a parameter of `bypass_query`), and its answer's status is below 400.
    pub purge_on: Vec<PathPattern>,
    /// The same for parameters of the query or of a form, at any path. Globs of `NAME=VALUE`.
    pub purge_params: Vec<String>,
    /// Where the application sends users who are not logged in. An answer that redirects there purges nothing.
    pub login_paths: Vec<PathPattern>,
    /// Maximum number of stored answers of one URL that `Vary` may cause.
    pub max_variants: usize,
    /// Answers have `Cache-Status`.
    pub cache_status: bool,
}

/// A set of rules for an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum CachePreset {
    /// Nothing is stored.
    #[default]
    Off,
    /// What the application allows in its headers.
    Headers,
    /// WordPress, with WooCommerce.
    WordPress,
    /// Drupal.
    Drupal,
    /// MediaWiki.
    MediaWiki,
    /// Laravel.
    Laravel,
}
