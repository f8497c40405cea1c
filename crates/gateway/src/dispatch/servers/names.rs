//! Servers that are configured by name: each address of the name is a server. They are added and removed as DNS
//! changes.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use weir_config::{Address, Runtime};
use weir_control::ToManager;
use weir_pool::ServerId;

use super::{NewMember, Note, ServerGroup, UnknownName, key, shown};
use crate::{
    dispatch::PoolHandle,
    resolver::{MOST_ADDRESSES, Resolved, Resolver},
};

/// Looks a name up each time its TTL is over. Never returns. `known`: the addresses that an earlier gateway found;
/// they are used until there is an answer.
pub(super) async fn follow(
    pool: &'static PoolHandle,
    resolver: Arc<Resolver>,
    (entry, host, port): (usize, String, u16),
    known: Vec<IpAddr>,
) {
    let Runtime::Servers(settings) = &pool.settings.runtime else {
        return;
    };
    let (least, most) = (settings.resolve_min, settings.resolve_max);
    let mut name = Name {
        entry,
        host,
        port,
        first: true,
        failing: false,
        overfull: false,
    };
    if !known.is_empty() {
        let addresses = known.iter().copied().take(MOST_ADDRESSES).collect();
        pool.found(
            &mut name,
            &Resolved {
                addresses,
                ..Resolved::default()
            },
        );
    }
    let mut told: BTreeSet<IpAddr> = known.into_iter().collect();
    // After a failure the name is looked up again soon, and then less and less often.
    let mut patience = least;
    loop {
        let answer = resolver.look_up(&name.host).await;
        let pause = match answer.failure.is_some() {
            true => {
                let pause = patience;
                patience = (patience * 2).min(most);
                pause
            }
            false => {
                patience = least;
                answer.ttl
            }
        };
        pool.found(&mut name, &answer);
        let complete = !answer.unknown_v4 && !answer.unknown_v6;
        if complete && !answer.addresses.is_empty() && answer.addresses != told {
            told.clone_from(&answer.addresses);
            let addresses = answer.addresses.iter().copied().collect();
            let name = name.host.clone();
            pool.manager.tell(ToManager::Addresses { name, addresses });
        }
        tokio::time::sleep(pause.clamp(least, most).max(Duration::from_millis(1))).await;
    }
}

struct Name {
    entry: usize,
    host: String,
    port: u16,
    /// It was not looked up before.
    first: bool,
    /// Whether the log says already that the lookup fails.
    failing: bool,
    /// Whether the log says already that the name has too many addresses.
    overfull: bool,
}

impl PoolHandle {
    /// Updates the servers from a name's addresses.
    fn found(&'static self, name: &mut Name, answer: &Resolved) {
        let mut added = Vec::new();
        self.change(|state, now, effects| {
            if let Some(group) = &mut state.group {
                added = group.follow(self, name, answer, effects);
                let notes = [name.say(group, answer), name.say_left_out(answer)];
                notes
                    .into_iter()
                    .flatten()
                    .for_each(|text| effects.note(text));
                name.first = false;
            }
            state.fit(self, now, effects);
        });
        for (server, serial) in added {
            self.watch(server, serial);
        }
    }
}

impl ServerGroup {
    /// Adds and removes servers; returns those that were added.
    fn follow(
        &mut self,
        pool: &PoolHandle,
        name: &Name,
        answer: &Resolved,
        effects: &mut super::Effects,
    ) -> Vec<(ServerId, u64)> {
        self.pending_names -= usize::from(name.first);
        let Runtime::Servers(settings) = &pool.settings.runtime else {
            return Vec::new();
        };
        let mut known = BTreeSet::new();
        let mut gone = Vec::new();
        for (id, member) in self.staying() {
            let Address::Tcp(address) = &member.address else {
                continue;
            };
            if member.entry != name.entry {
                continue;
            }
            match answer.keeps(address.ip()) {
                true => drop(known.insert(address.ip())),
                false => gone.push((id, member.name)),
            }
        }
        for (id, shown) in gone {
            self.remove(id, effects);
            let text = format!("server {shown} is no longer in DNS: it gets no more requests");
            effects.note(Note::Notice(text));
        }
        let mut added = Vec::new();
        for ip in answer.addresses.difference(&known) {
            let address = SocketAddr::new(*ip, name.port);
            let named = format!("{}:{}", name.host, name.port);
            let shown = shown(&format!("{named} ({ip})")).or_else(|| shown(&named));
            let shown = shown.unwrap_or("a server");
            if !name.first {
                let text = format!("server {shown} is new in DNS");
                effects.note(Note::Notice(text));
            }
            let server = &settings.list[name.entry];
            let new = NewMember {
                entry: name.entry,
                name: shown,
                key: key::hash(address.to_string().as_bytes()),
                address: Address::Tcp(address),
                cold: !name.first,
            };
            added.push(self.add(server, new));
        }
        added
    }
}

impl Name {
    /// The log message for an answer: once when the lookup fails, and once when it works again.
    fn say(&mut self, group: &mut ServerGroup, answer: &Resolved) -> Option<Note> {
        let host = &self.host;
        match &answer.failure {
            Some(failure) if !self.failing => {
                self.failing = true;
                let unknown = UnknownName {
                    host: host.clone(),
                    failure: failure.to_string(),
                    since: SystemTime::now(),
                };
                group.unknown_names.insert(self.entry, unknown);
                let mine = group
                    .staying()
                    .filter(|(_, member)| member.entry == self.entry);
                let kept = match mine.count() {
                    0 => "the pool has no server until then".to_owned(),
                    1 => "its server is kept".to_owned(),
                    count => format!("its {count} servers are kept"),
                };
                Some(Note::Warning(format!(
                    "DNS lookup of {host} failed: {failure}; it is tried again, {kept}"
                )))
            }
            None if std::mem::take(&mut self.failing) => {
                group.unknown_names.remove(&self.entry);
                Some(Note::Notice(format!("DNS lookup of {host} works again")))
            }
            _ => None,
        }
    }

    /// Logs once that some of the addresses are not used.
    fn say_left_out(&mut self, answer: &Resolved) -> Option<Note> {
        let was = std::mem::replace(&mut self.overfull, answer.left_out > 0);
        (self.overfull && !was).then(|| {
            Note::Warning(format!(
                "{} has {} addresses: the first {MOST_ADDRESSES} are used, {} are ignored",
                self.host,
                MOST_ADDRESSES + answer.left_out,
                answer.left_out
            ))
        })
    }
}
