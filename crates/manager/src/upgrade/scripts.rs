//! The lists of scripts in OPcache, from the PHP of the old weir to the PHP of the new one, which compiles these
//! scripts before it serves, as after a reload.
//!
//! The old weir has its masters write their lists while the new one starts, and hands each over when it is complete. If
//! a list does not come in time, the new weir starts without it.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use weir_sys::{memory, process::Exit};

use crate::{
    php::{MasterEvent, MasterEventKind, MasterId, Masters, Report, Spec, Task},
    workers::next_number,
};

/// Whose list it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScriptList {
    /// The pool's NAME.
    pub(crate) pool: String,
    /// Its user and group; `None`: those of the manager.
    identity: Option<(u32, u32)>,
    /// Its sites with their roots.
    pub(crate) roots: Vec<(String, PathBuf)>,
}

impl ScriptList {
    fn of(spec: &Spec) -> ScriptList {
        ScriptList {
            pool: spec.pool.clone(),
            identity: identity(spec),
            roots: spec.roots.clone(),
        }
    }
}

fn identity(spec: &Spec) -> Option<(u32, u32)> {
    let identity = spec.identity.as_ref();
    identity.map(|identity| (identity.uid, identity.gid))
}

/// A list that a process of a master of the old weir writes.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) list: ScriptList,
    by: MasterId,
    number: u32,
    file: OwnedFd,
}

impl Listing {
    /// Orders these masters to write their lists.
    pub(crate) fn begin(by: Vec<MasterId>, masters: &mut Masters) -> Vec<Listing> {
        let mut listings = Vec::new();
        for by in by {
            let list = masters.spec(by).map(|spec| ScriptList::of(spec));
            let file = memory::empty(c"weir-scripts");
            let (Some(list), Ok(file)) = (list, file) else {
                continue;
            };
            let Ok(end) = file.as_fd().try_clone_to_owned() else {
                continue;
            };
            let number = next_number();
            masters.fork(by, number, Task::List, vec![end]);
            listings.push(Listing {
                list,
                by,
                number,
                file,
            });
        }
        listings
    }

    /// Takes those that are complete, or that will not be: these have no file.
    pub(crate) fn take_ended(
        listings: &mut Vec<Listing>,
        news: &MasterEvent,
    ) -> Vec<(ScriptList, Option<OwnedFd>)> {
        let mut is_written = false;
        let is_it = |one: &mut Listing| {
            let number = match &news.kind {
                MasterEventKind::Report(Report::Exited { number, exit }) => {
                    is_written = matches!(exit, Exit::Code(0));
                    Some(*number)
                }
                MasterEventKind::Report(Report::ForkFailed { number, .. }) => Some(*number),
                MasterEventKind::Report(_) => return false,
                // The whole master.
                MasterEventKind::Exited { .. } => None,
            };
            one.by == news.master && number.is_none_or(|number| one.number == number)
        };
        let ended: Vec<Listing> = listings.extract_if(.., is_it).collect();
        let ended = ended.into_iter();
        ended
            .map(|one| (one.list, is_written.then_some(one.file)))
            .collect()
    }

    /// Ends those that still write.
    pub(crate) fn end_all(listings: &mut Vec<Listing>, masters: &mut Masters) {
        for one in listings.drain(..) {
            masters.kill(one.by, one.number);
        }
    }
}

/// The lists that the new weir was promised, and those that have come.
#[derive(Debug, Default)]
pub(crate) struct InheritedLists {
    promised: Vec<String>,
    here: Vec<(ScriptList, OwnedFd)>,
}

/// What there is for a pool.
#[derive(Debug)]
pub(crate) enum Inherited {
    /// Nothing, and nothing will come.
    Nothing,
    /// The list will come.
    Later,
    /// The roots at that time, and the list.
    Here(Vec<(String, PathBuf)>, OwnedFd),
}

impl InheritedLists {
    /// Lists of these pools come later.
    pub(crate) fn promise(&mut self, pools: Vec<String>) {
        self.promised = pools;
    }

    /// A list has arrived. Without a file, the master has no list.
    pub(crate) fn put(&mut self, list: ScriptList, file: Option<OwnedFd>) {
        // Only what was promised.
        let before = self.promised.len();
        self.promised.retain(|pool| *pool != list.pool);
        if self.promised.len() != before {
            self.here.extend(file.map(|file| (list, file)));
        }
    }

    /// Whether the list of a pool is still to come.
    pub(crate) fn is_late(&self, pool: &str) -> bool {
        self.promised.iter().any(|promised| promised == pool)
    }

    /// Takes the list for a pool with these settings.
    pub(crate) fn take(&mut self, spec: &Spec) -> Inherited {
        if self.is_late(&spec.pool) {
            return Inherited::Later;
        }
        let is_it = |(list, _): &(ScriptList, OwnedFd)| list.pool == spec.pool;
        let Some(index) = self.here.iter().position(is_it) else {
            return Inherited::Nothing;
        };
        let (list, file) = self.here.swap_remove(index);
        match list.identity == identity(spec) {
            true => Inherited::Here(list.roots, file),
            // Another user's files.
            false => Inherited::Nothing,
        }
    }

    /// This weir serves: none is needed any more.
    pub(crate) fn clear(&mut self) {
        *self = InheritedLists::default();
    }
}
