//! Paths of php-fpm.conf, which may be relative to a prefix.

use super::Options;

/// The absolute path. A relative path is below the pool's prefix, else below the prefix of the command line, else
/// below `default`.
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
        // A pool's prefix may be relative too.
        false => full_path(&full, None, options, default),
    }
}
