//! The hosts of a site.

use core::fmt;

/// One pattern of `hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `shop.example` (lower case, no port).
    Exact(String),
    /// `*.shop.example`: any name with this suffix (stored with its leading dot: `.shop.example`).
    Suffix(String),
    /// `shop.*`: any name with this prefix (stored with its last dot: `shop.`).
    Prefix(String),
}

/// Writes the pattern as in weir.toml.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Suffix(name) => write!(f, "*{name}"),
            Self::Prefix(name) => write!(f, "{name}*"),
        }
    }
}
