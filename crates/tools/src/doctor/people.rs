//! The users involved: who runs the doctor, who starts weir, and the users of gateway and workers. Uses the manager's
//! rules.

use weir_config::{Config, Machine as _};
use weir_machine::ThisMachine;
use weir_sys::identity::{self, Identity};

use super::live::Live;

/// A user, with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) name: String,
    pub(super) identity: Identity,
}

/// All users of a configuration.
#[derive(Debug)]
pub(super) struct People {
    /// The user who runs the doctor.
    pub(super) us: Who,
    /// The user who starts weir, and why that is assumed.
    pub(super) starter: Who,
    /// In one sentence.
    pub(super) stance: String,
    /// The gateway's user; `None`: it does not exist.
    pub(super) gateway: Option<Who>,
    /// The user of each pool's workers; `None`: others run them, or the user does not exist.
    pub(super) pools: Vec<Option<Who>>,
}

impl Who {
    pub(super) fn is_root(&self) -> bool {
        self.identity.uid == 0
    }

    /// A user of this machine, with another group if one is given. `None`: it does not exist.
    pub(super) fn named(name: &str, group: Option<&str>) -> Option<Self> {
        let group = match group {
            Some(group) => Some(identity::group(group).ok()??),
            None => None,
        };
        let identity = identity::identity_of(name, group).ok()??;
        let known = identity::user_by_id(identity.uid).ok().flatten();
        Some(Self {
            name: known.map_or_else(|| format!("user {name}"), |user| user.name),
            identity,
        })
    }

    /// A user by number, whether it has a name or not.
    pub(super) fn numbered(uid: u32, gid: u32) -> Self {
        let known = identity::user_by_id(uid).ok().flatten();
        let named = known.and_then(|user| {
            let identity = identity::identity(&user, Some(gid)).ok()?;
            Some(Self {
                name: user.name,
                identity,
            })
        });
        named.unwrap_or_else(|| Self {
            name: format!("user {uid}"),
            identity: Identity {
                uid,
                gid,
                groups: vec![gid],
            },
        })
    }

    /// A member of a group without other rights.
    pub(super) fn member(group: &str) -> Option<Self> {
        let gid = identity::group(group).ok()??;
        Some(Self {
            name: format!("a member of group {group}"),
            identity: Identity {
                uid: NOBODY_IN_PARTICULAR,
                gid,
                groups: vec![gid],
            },
        })
    }
}

impl People {
    pub(super) fn of(config: &Config, live: Option<&Live>) -> Self {
        let (uid, gid) = identity::current();
        let us = Who::numbered(uid, gid);
        let (starter, stance) = starter(config, live, &us);
        let become_user = |user: Option<&str>, group: Option<&str>| match starter.is_root() {
            // Without root, the user does not change; a configured other user is reported with the start.
            false => Some(starter.clone()),
            true => user.and_then(|user| Who::named(user, group)),
        };
        let server = &config.server;
        let usual = ThisMachine.usual_user();
        let gateway = become_user(
            server.user.as_deref().or(usual.as_deref()),
            server.group.as_deref(),
        );
        let pool = |pool: &weir_config::Pool| {
            let workers = pool.workers()?;
            match &workers.user {
                None => gateway.clone(),
                Some(user) => become_user(Some(user), workers.group.as_deref()),
            }
        };
        Self {
            pools: config.pools.iter().map(pool).collect(),
            us,
            starter,
            stance,
            gateway,
        }
    }
}

/// The user who starts weir: who did, if it is running; otherwise root, if the user must change; otherwise the user
/// who runs the doctor.
fn starter(config: &Config, live: Option<&Live>, us: &Who) -> (Who, String) {
    let root = || Who::numbered(0, 0);
    if let Some((uid, gid)) = live.and_then(|live| live.manager_ids) {
        let who = Who::numbered(uid, gid);
        let stance = format!(
            "checked for a start by {}, who started the running weir",
            who.name
        );
        return (who, stance);
    }
    if us.is_root() {
        return (us.clone(), "checked for a start by root".into());
    }
    let is_other = |name: &String| {
        identity::user(name).is_ok_and(|user| user.is_none_or(|u| u.uid != us.identity.uid))
    };
    let workers = config.pools.iter().filter_map(|pool| pool.workers());
    let mut users = workers
        .filter_map(|workers| workers.user.as_ref())
        .chain(&config.server.user);
    match users.find(|user| is_other(user)) {
        Some(user) => (
            root(),
            format!(
                "checked for a start by root, because the configuration has user = {user}; this check runs as {}",
                us.name
            ),
        ),
        None => (us.clone(), format!("checked for a start by {}", us.name)),
    }
}

/// A number that no user has (-2 in 32 bits is "nobody" on some systems, -1 means "unchanged").
const NOBODY_IN_PARTICULAR: u32 = u32::MAX - 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use weir_config::Environment;

    fn config(text: &str) -> Config {
        let environment = Environment::of_this_machine(Path::new("/"));
        weir_config::parse("weir.toml", text, &environment).unwrap()
    }

    #[test]
    fn workers_are_the_gateway_s_user_unless_they_have_their_own() {
        let people = People::of(
            &config(
                "[server]\nuser = \"nobody\"\n[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"a\"\n\
                 [pool.a]\nruntime = \"command\"\ncommand = [\"sh\"]\n\
                 [pool.b]\nruntime = \"command\"\ncommand = [\"sh\"]\nuser = \"daemon\"\n\
                 [pool.c]\nruntime = \"command\"\ncommand = [\"sh\"]\nuser = \"no-such-user\"\n",
            ),
            None,
        );
        // nobody and daemon cannot both be the user who runs the test: so root starts it.
        assert!(people.starter.is_root(), "{}", people.stance);
        let name = |who: &Option<Who>| who.as_ref().map(|who| who.name.clone());
        assert_eq!(name(&people.gateway).as_deref(), Some("nobody"));
        assert_eq!(name(&people.pools[0]).as_deref(), Some("nobody"));
        assert_eq!(name(&people.pools[1]).as_deref(), Some("daemon"));
        assert_eq!(people.pools[2], None);
    }

    #[test]
    fn a_member_of_a_group_is_nobody_else() {
        let member = Who::member("root").unwrap();
        assert_eq!(member.identity.gid, 0);
        assert!(!member.is_root());
        assert_eq!(Who::member("no-such-group"), None);
        assert_eq!(Who::numbered(4_000_000_000, 1).name, "user 4000000000");
    }
}
