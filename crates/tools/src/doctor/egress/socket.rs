//! The workers' own socket of `[egress]` (`socket`): whether weir can create it, and the workers may connect.

use std::{
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use weir_config::{Address, Egress, SocketPath};
use weir_manager::listen::LONGEST_PATH;
use weir_sys::listener;

use super::super::{
    Notes,
    case::Case,
    live::Found,
    people::Who,
    rights::{Access, Cause, Need, may, quoted},
};

/// All checks. Returns the path of the socket; `None`: there is none, or it is not known.
pub(super) fn look(case: &Case<'_>, egress: &Egress, notes: &mut Notes) -> Option<PathBuf> {
    let own = OwnSocket::of(case, egress, notes)?;
    if !own.can_be_made(case, notes) {
        return None;
    }
    for (pool, who) in case.config.pools.iter().zip(&case.people.pools) {
        let (Some(who), Some(workers)) = (who, pool.workers()) else {
            continue;
        };
        let of_pool = format!(
            "{}: the workers of [pool.{}] ({})",
            own.label, pool.name, who.name
        );
        match &workers.chroot {
            Some(chroot) if !own.path.starts_with(chroot) => notes.note(
                format!(
                    "{of_pool} cannot reach it from their chroot {}",
                    chroot.display()
                ),
                "WEIR_EGRESS_SOCKET is not set for them",
                format!(
                    "socket = \"unix:{}\" in [egress], if no other pool needs it",
                    chroot.join("run/egress.sock").display()
                ),
            ),
            _ => own.can_be_reached(who, &of_pool, notes),
        }
    }
    Some(own.path)
}

/// Where the socket is to be.
struct OwnSocket {
    path: PathBuf,
    label: String,
    /// weir.toml sets it: weir does not start without it.
    is_named: bool,
}

impl OwnSocket {
    fn of(case: &Case<'_>, egress: &Egress, notes: &mut Notes) -> Option<OwnSocket> {
        let starter = &case.people.starter;
        let path = match &egress.socket {
            SocketPath::Off => return None,
            SocketPath::At(path) => path.clone(),
            SocketPath::Default => {
                let is_unix = |address: &Address| matches!(address, Address::Unix(_));
                if egress.listen.iter().any(is_unix) {
                    return None;
                }
                let is_us = starter.identity.uid == case.people.us.identity.uid;
                if !starter.is_root() && !is_us {
                    notes.unseen(
                        format!(
                            "[egress] socket: the default one, in XDG_RUNTIME_DIR of {}",
                            starter.name
                        ),
                        format!("run `weir doctor` as {}", starter.name),
                    );
                    return None;
                }
                let Some(path) = weir_machine::usual_egress_of(egress, starter.is_root()) else {
                    notes.note(
                        "[egress] socket: XDG_RUNTIME_DIR is not set, so the workers have no unix socket",
                        WITHOUT,
                        "socket = \"unix:PATH\" in [egress]; \"off\" if the workers do not need it",
                    );
                    return None;
                };
                path
            }
        };
        let is_named = matches!(egress.socket, SocketPath::At(_));
        let label = match is_named {
            true => format!("[egress] socket = \"unix:{}\"", path.display()),
            false => format!("[egress] socket (unix:{})", path.display()),
        };
        Some(OwnSocket {
            path,
            label,
            is_named,
        })
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Reports why the socket cannot be created. For the default one, weir starts without it.
    fn fails(&self, notes: &mut Notes, what: &str, mend: String) {
        let what = format!("{}: {what}", self.label);
        match self.is_named {
            true => notes.breaks(what, "weir does not start", mend),
            false => notes.warn(
                what,
                WITHOUT,
                "socket = \"unix:PATH\" in [egress], in a folder where weir may create it; \"off\" if the workers do \
                 not need it",
            ),
        }
    }

    /// Whether weir can create it.
    fn can_be_made(&self, case: &Case<'_>, notes: &mut Notes) -> bool {
        let length = self.path.as_os_str().len();
        if length > LONGEST_PATH {
            let what = format!(
                "the path is {length} bytes long, but a socket's path can have at most {LONGEST_PATH} bytes"
            );
            self.fails(notes, &what, "use a shorter path".into());
            return false;
        }
        let starter = &case.people.starter;
        match may(starter, None, self.folder_to_write(), Need::MakeFiles) {
            Access::Yes => {}
            Access::No(barrier) => {
                let mend = match barrier.cause {
                    Cause::Missing => format!(
                        "install -d {}; in /run, RuntimeDirectory= of the systemd unit",
                        quoted(self.folder())
                    ),
                    _ => barrier.mend(starter),
                };
                self.fails(
                    notes,
                    &format!("{} cannot create it: {barrier}", starter.name),
                    mend,
                );
                return false;
            }
            Access::Unseen(at) => {
                notes.barred(&self.label, &at);
                return false;
            }
        }
        let is_taken = self.is_taken(case, notes);
        if !is_taken {
            notes.ok(format!("{}: {} can create it", self.label, starter.name));
        }
        !is_taken
    }

    /// Whether something else is there.
    fn is_taken(&self, case: &Case<'_>, notes: &mut Notes) -> bool {
        let there = fs::symlink_metadata(&self.path);
        if there.is_ok_and(|there| !there.file_type().is_socket()) {
            let mend = format!("rm {}, if it is not needed", quoted(&self.path));
            self.fails(notes, "a file that is not a socket exists there", mend);
            return true;
        }
        let runs = match &case.found {
            Found::Runs(live) => live.manager,
            _ => None,
        };
        let by = listener::owner(&self.path).filter(|pid| Some(*pid) != runs);
        let Some(by) = by else {
            return false;
        };
        if matches!(case.found, Found::Unseen(_)) {
            notes.note(
                format!("{}: process {by} is listening there", self.label),
                "this may be the weir with this configuration",
                "run `weir doctor` as the user who started weir",
            );
            return true;
        }
        self.fails(
            notes,
            &format!("process {by} is listening there"),
            "stop that program, or use another path".into(),
        );
        true
    }

    /// The folder in which something has to be created: weir makes the folder of the usual socket.
    fn folder_to_write(&self) -> &Path {
        let folder = self.folder();
        match self.is_named || folder.exists() {
            true => folder,
            false => folder.parent().unwrap_or(folder),
        }
    }

    /// Whether workers of this user come to the socket. Its rights always allow them to connect.
    fn can_be_reached(&self, who: &Who, of_pool: &str, notes: &mut Notes) {
        match may(who, None, self.folder_to_write(), Need::Enter) {
            Access::Yes => notes.ok(format!("{of_pool} can connect")),
            Access::No(barrier) => notes.warn(
                format!("{of_pool} cannot reach it: {barrier}"),
                "WEIR_EGRESS_SOCKET is not set for them",
                barrier.mend(who),
            ),
            Access::Unseen(at) => notes.barred(of_pool, &at),
        }
    }
}

const WITHOUT: &str = "WEIR_EGRESS_SOCKET is not set: the workers call over TCP, and weir learns later which worker calls";
