//! The folders of a pool's scripts: whether they now lead elsewhere, for example because a symbolic link was switched
//! to a new release.

use std::path::{Path, PathBuf};

use crate::php::Spec;

impl Spec {
    /// The same specification with the present state of the machine.
    pub(super) fn renewed(&self) -> Self {
        Self {
            roots: resolve(&self.sites),
            ..self.clone()
        }
    }

    /// What is watched, for a message.
    pub(super) fn watched(&self) -> &'static str {
        match self.boot_limit {
            Some(_) => "a site's root, or the folder of `worker`,",
            None => "a site's root",
        }
    }

    /// Whether a site's root is another folder than when its master was started.
    pub(super) fn roots_have_moved(&self) -> bool {
        let there = self.sites.iter().all(|(_, path)| path.is_dir());
        // While a link is being replaced, it may be missing.
        there && resolve(&self.sites) != self.roots
    }

    /// Pairs of path prefixes of scripts, before and now, as seen inside of a chroot.
    pub(super) fn moves(&self, before: &[(String, PathBuf)]) -> Vec<(PathBuf, PathBuf)> {
        let inside = |path: &Path| match &self.chroot {
            None => Some(path.to_owned()),
            Some(chroot) => weir_control::path_inside(chroot, path),
        };
        let moved = self.roots.iter().filter_map(|(site, now)| {
            let (_, before) = before.iter().find(|(other, _)| other == site)?;
            Some((inside(before)?, inside(now)?)).filter(|(from, to)| from != to)
        });
        moved.collect()
    }
}

/// The roots of sites with symbolic links resolved.
pub(crate) fn resolve(sites: &[(String, PathBuf)]) -> Vec<(String, PathBuf)> {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let sites = sites.iter();
    sites
        .map(|(site, path)| (site.clone(), real(path)))
        .collect()
}
