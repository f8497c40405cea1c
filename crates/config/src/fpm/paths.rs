//! Paths of php-fpm.conf, which may be relative to a prefix.

use super::Options;

/// The whole path: a relative one lies below the pool's prefix, else the one of the command line, else `default`.
pub(super) fn full_path(
    path: &str,
    pool_prefix: Option<&str>,
    options: &Options,
    default: &str,
) -> String {
    if path.is_empty() || path.starts_with('/') {
        return path.to_owned();
    }
    let global = options.prefix.as_deref().unwrap_or(default);
    let full = format!("{}/{path}", pool_prefix.unwrap_or(global));
    match full.starts_with('/') || pool_prefix.is_none() {
        true => full,
        // A pool's prefix may be relative itself.
        false => full_path(&full, None, options, default),
    }
}
