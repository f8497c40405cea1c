//! Targets of a site without a root here: what servers that speak HTTP answer, and scripts whose files are on another machine
//! (`check_files = false`).

use std::path::PathBuf;

use super::{
    Target,
    resolve::{Script, Wanted},
    rules::{Check, Fallback, Rules},
};

impl Rules {
    /// The target of `wanted` without a file. `None`: files must be checked.
    pub(super) fn unseen<F, S: From<Script>>(
        &self,
        wanted: &Wanted<'_>,
        root: &[u8],
    ) -> Option<Target<'static, F, S>> {
        match self.settings.is_proxied {
            true if self.hides(wanted.path) => {
                Some(self.absent("hidden by hide_files", wanted.path))
            }
            true => Some(self.passed_on(wanted)),
            false => self.unchecked(wanted, root),
        }
    }

    /// The request goes to servers that speak HTTP: with the client's own target, unless the site changes it.
    pub(super) fn passed_on<F, S>(&self, wanted: &Wanted<'_>) -> Target<'static, F, S> {
        let query = wanted.request.and_then(|(_, query)| query);
        let strips = self.settings.strip_prefix.as_deref();
        let below = strips.and_then(|prefix| wanted.path.strip_prefix(prefix.as_bytes()));
        let path = match below {
            Some(below) => [b"/", below].concat(),
            None if wanted.rewritten => wanted.path.to_vec(),
            None => return Target::Pool { target: None },
        };
        let mut target = Vec::with_capacity(path.len() + query.map_or(0, str::len) + 1);
        weir_semantics::path::encode(&path, &mut target);
        if let Some(query) = query {
            target.push(b'?');
            target.extend_from_slice(query.as_bytes());
        }
        Target::Pool {
            target: Some(target),
        }
    }

    fn unchecked<F, S: From<Script>>(
        &self,
        wanted: &Wanted<'_>,
        root: &[u8],
    ) -> Option<Target<'static, F, S>> {
        if self.check != Check::Never {
            return None;
        }
        let (_, query) = wanted.request?;
        let path = wanted.path;
        if self.hides(path) {
            return Some(self.absent("hidden by hide_files", path));
        }
        if let Some((name, info)) = self.script_in(wanted) {
            return Some(self.run_absent(wanted, name, info, root));
        }
        let fallback = match &self.fallback {
            Some(Fallback::Path(fallback)) => self.script_of(fallback).map(|(name, _)| name),
            Some(Fallback::Made(rewrite)) => {
                let made = rewrite.apply(wanted.regex, path, wanted.plain).ok()?;
                let query = made.query.with(query);
                let (name, _) = self.script_of(&made.path)?;
                let wanted = Wanted {
                    request: wanted.request.map(|(method, _)| (method, Some(&*query))),
                    rewritten: true,
                    ..wanted.clone()
                };
                return Some(self.run_absent(&wanted, name, b"", root));
            }
            None => None,
        };
        if let Some(name) = fallback {
            return Some(self.run_absent(wanted, name, b"", root));
        }
        let mut index = self.settings.index.iter().filter(|_| path.ends_with(b"/"));
        index.find_map(|index| {
            let name = [path, index.as_bytes()].concat();
            let (name, _) = self.script_of(&name).filter(|(_, info)| info.is_empty())?;
            Some(self.run_absent(wanted, name, b"", root))
        })
    }

    fn run_absent<F, S: From<Script>>(
        &self,
        wanted: &Wanted<'_>,
        name: &[u8],
        info: &[u8],
        root: &[u8],
    ) -> Target<'static, F, S> {
        if let Some(why) = self.forbids(name) {
            let tried = self.tried(name);
            return Target::Forbidden { why, tried };
        }
        let inner = self.space.as_ref().map_or(name, |space| space.inner(name));
        let script = Script::new(wanted, name, info, inner, self.absent_root(root));
        Target::Script(script.unseen().into())
    }

    fn absent<F, S>(&self, why: &'static str, path: &[u8]) -> Target<'static, F, S> {
        Target::NotFound {
            why,
            tried: self.tried(path),
        }
    }

    fn tried(&self, path: &[u8]) -> PathBuf {
        match &self.space {
            Some(space) => space.root.shown(space.inner(path)),
            None => PathBuf::from(String::from_utf8_lossy(path).into_owned()),
        }
    }
}
