//! One measurement of the listeners: the kernel's data, grouped by address, with earlier values.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::{Instant, SystemTime},
};

use serde_json::{Value, json};
use weir_observe::log_text;
use weir_sys::{
    limits,
    net_stat::{Counters, Overflows},
    sock_diag::{Diag, Family, Listener, Name},
    socket_owners::{self, Owners, Process},
};

use super::target::{self, Target};

/// The targets, and their earlier values.
#[derive(Debug)]
pub struct Watch {
    diag: Diag,
    counters: Option<Counters>,
    somaxconn: Option<u32>,
    /// `None`: all listening sockets.
    targets: Option<Vec<Target>>,
    most: BTreeMap<Name, u32>,
    drops: BTreeMap<u32, u32>,
    owners: Owners,
    known: BTreeSet<u32>,
    asked_owners: Option<Instant>,
    before: Option<(Instant, Option<Overflows>)>,
}

/// The result of one measurement.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When.
    pub time: SystemTime,
    /// Seconds since the last measurement; `None`: it is the first one.
    pub since: Option<f64>,
    /// net.core.somaxconn; `None`: not known.
    pub somaxconn: Option<u32>,
    /// Connections that TCP rejected in this network namespace; `None`: not known.
    pub overflows: Option<Overflows>,
    /// The same since the last measurement.
    pub new_overflows: Option<Overflows>,
    /// The listeners, in the order of the targets.
    pub rows: Vec<Row>,
    /// Targets without a listener, and why.
    pub absent: Vec<(String, String)>,
    /// Processes that we were not allowed to inspect.
    pub barred: usize,
}

/// All sockets that listen at one address.
#[derive(Debug, Clone)]
pub struct Row {
    /// The address, as it would be typed.
    pub address: String,
    /// `tcp` or `unix`.
    pub kind: &'static str,
    /// Each socket: number, length, limit. Several share an address with SO_REUSEPORT.
    pub sockets: Vec<(u32, u32, u32)>,
    /// The highest sum of all sockets' lengths so far.
    pub max: u32,
    /// Rejected connections since the sockets listen; `None`: the kernel does not count them (unix).
    pub drops: Option<u64>,
    /// The same since the last measurement.
    pub new_drops: Option<u64>,
    /// The user who created it.
    pub uid: Option<u32>,
    /// The visible processes that have the socket open.
    pub processes: Vec<Process>,
}

impl Watch {
    /// Prepares the measurements.
    ///
    /// # Errors
    /// As [`Diag::open`].
    pub fn new(targets: Option<Vec<Target>>) -> io::Result<Self> {
        Ok(Self {
            diag: Diag::open()?,
            counters: Counters::open().ok(),
            somaxconn: limits::somaxconn(),
            targets,
            most: BTreeMap::new(),
            drops: BTreeMap::new(),
            owners: Owners::default(),
            known: BTreeSet::new(),
            asked_owners: None,
            before: None,
        })
    }

    /// Takes a measurement.
    ///
    /// # Errors
    /// As [`Diag::listeners`].
    pub fn look(&mut self) -> io::Result<Sample> {
        let listeners = self.listeners()?;
        let overflows = self
            .counters
            .as_ref()
            .and_then(|counters| counters.read().ok());
        let now = Instant::now();
        let before = self.before.replace((now, overflows));
        let (groups, absent) = self.groups(&listeners);
        let inodes = groups
            .iter()
            .flat_map(|(_, group)| group.iter().map(|l| l.inode));
        self.look_for_owners(now, inodes.collect());
        let rows: Vec<Row> = groups
            .iter()
            .map(|(name, group)| self.row(name, group))
            .collect();
        Ok(Sample {
            time: SystemTime::now(),
            since: before.map(|(then, _)| now.duration_since(then).as_secs_f64()),
            somaxconn: self.somaxconn,
            overflows,
            new_overflows: match (before.and_then(|(_, then)| then), overflows) {
                (Some(then), Some(now)) => Some(Overflows {
                    overflows: now.overflows.saturating_sub(then.overflows),
                    drops: now.drops.saturating_sub(then.drops),
                }),
                _ => None,
            },
            rows,
            absent,
            barred: self.owners.barred,
        })
    }

    fn listeners(&mut self) -> io::Result<Vec<Listener>> {
        let targets = self.targets.as_deref();
        let wants = |is: fn(&Target) -> bool| targets.is_none_or(|targets| targets.iter().any(is));
        let mut found = Vec::new();
        if wants(|target| matches!(target, Target::Port(_) | Target::Tcp(..))) {
            found.extend(self.diag.listeners(Family::Tcp4(0))?);
            found.extend(self.diag.listeners(Family::Tcp6(0))?);
        }
        if wants(|target| matches!(target, Target::Path(_) | Target::Abstract(_))) {
            found.extend(self.diag.listeners(Family::Unix)?);
        }
        Ok(found)
    }

    /// The listeners with the addresses of the targets, and the targets without a listener.
    #[allow(
        clippy::type_complexity,
        reason = "a list of groups, and a list of what is missing"
    )]
    fn groups<'a>(
        &self,
        listeners: &'a [Listener],
    ) -> (Vec<(&'a Name, Vec<&'a Listener>)>, Vec<(String, String)>) {
        let mut absent = Vec::new();
        let mut meant: Vec<&Listener> = Vec::new();
        match &self.targets {
            None => {
                meant.extend(listeners);
                meant.sort_by(|a, b| (&a.name, a.inode).cmp(&(&b.name, b.inode)));
            }
            Some(targets) => {
                for target in targets {
                    match target.find(listeners) {
                        Ok(found) => meant.extend(found.into_iter().map(|place| &listeners[place])),
                        Err(why) => absent.push((target.to_string(), why.to_string())),
                    }
                }
            }
        }
        let mut groups: Vec<(&Name, Vec<&Listener>)> = Vec::new();
        for listener in meant {
            match groups.iter_mut().find(|(name, _)| **name == listener.name) {
                // Two targets may mean the same listener.
                Some((_, group)) if group.iter().any(|other| other.inode == listener.inode) => {}
                Some((_, group)) => group.push(listener),
                None => groups.push((&listener.name, vec![listener])),
            }
        }
        (groups, absent)
    }

    fn row(&mut self, name: &Name, group: &[&Listener]) -> Row {
        let length = group.iter().map(|l| l.length).fold(0, u32::saturating_add);
        let most = self.most.entry(name.clone()).or_default();
        *most = length.max(*most);
        let mut row = Row {
            address: target::name(name),
            kind: match name {
                Name::Tcp(..) => "tcp",
                _ => "unix",
            },
            sockets: group.iter().map(|l| (l.inode, l.length, l.limit)).collect(),
            max: *most,
            drops: None,
            new_drops: None,
            uid: group.first().and_then(|listener| listener.uid),
            processes: Vec::new(),
        };
        for listener in group {
            if let Some(drops) = listener.drops {
                // The kernel's counter has 32 bits.
                let new = self.drops.insert(listener.inode, drops);
                let new = new.map(|before| u64::from(drops.wrapping_sub(before)));
                row.drops = Some(row.drops.unwrap_or(0) + u64::from(drops));
                row.new_drops = new
                    .map(|new| row.new_drops.unwrap_or(0) + new)
                    .or(row.new_drops);
            }
            for process in self.owners.of.get(&listener.inode).into_iter().flatten() {
                if !row.processes.contains(process) {
                    row.processes.push(process.clone());
                }
            }
        }
        row
    }

    /// Searches all processes, which costs more than the kernel's whole list: when a socket is new, and from time to
    /// time.
    fn look_for_owners(&mut self, now: Instant, inodes: BTreeSet<u32>) {
        let due = self
            .asked_owners
            .is_none_or(|asked| now.duration_since(asked).as_secs() >= OWNERS_EVERY);
        if due || !inodes.is_subset(&self.known) {
            self.owners = socket_owners::find(&inodes).unwrap_or_default();
            self.asked_owners = Some(now);
            self.known = inodes;
        }
    }
}

impl Sample {
    /// One JSON object; its keys do not change.
    pub fn to_json(&self) -> Value {
        let mut time = Vec::new();
        log_text::put_time_utc(self.time, &mut time);
        let counters = |counted: Option<Overflows>| match counted {
            Some(Overflows { overflows, drops }) => (json!(overflows), json!(drops)),
            None => (Value::Null, Value::Null),
        };
        let rate = |count: Option<u64>| {
            count
                .zip(self.since)
                .map(|(count, since)| per_second(count, since))
        };
        let (overflows, drops) = counters(self.overflows);
        json!({
            "time": String::from_utf8_lossy(&time),
            "seconds": self.since,
            "somaxconn": self.somaxconn,
            "tcp_overflows": overflows,
            "tcp_drops": drops,
            "tcp_overflows_per_second": rate(self.new_overflows.map(|new| new.overflows)),
            "tcp_drops_per_second": rate(self.new_overflows.map(|new| new.drops)),
            "listeners": self.rows.iter().map(|row| json!({
                "address": row.address,
                "kind": row.kind,
                "length": row.length(),
                "limit": row.limit(),
                "max_length": row.max,
                "full": row.is_full(),
                "limit_is_somaxconn": row.is_cut(self.somaxconn),
                "drops": row.drops,
                "drops_per_second": rate(row.new_drops),
                "uid": row.uid,
                "sockets": row.sockets.iter().map(|(inode, length, limit)| {
                    json!({ "inode": inode, "length": length, "limit": limit })
                }).collect::<Vec<_>>(),
                "processes": row.processes.iter().map(|process| {
                    json!({ "pid": process.pid, "name": process.name })
                }).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "absent": self.absent.iter().map(|(address, why)| {
                json!({ "address": address, "why": why })
            }).collect::<Vec<_>>(),
            "processes_not_seen": self.barred,
        })
    }
}

impl Row {
    /// Waiting connections in all sockets.
    pub fn length(&self) -> u32 {
        self.sockets
            .iter()
            .map(|socket| socket.1)
            .fold(0, u32::saturating_add)
    }

    /// Sum of the limits of all sockets.
    pub fn limit(&self) -> u32 {
        self.sockets
            .iter()
            .map(|socket| socket.2)
            .fold(0, u32::saturating_add)
    }

    /// Whether a connection may find no room: the queue of a socket is longer than its limit.
    pub fn is_full(&self) -> bool {
        self.sockets.iter().any(|(_, length, limit)| length > limit)
    }

    /// Whether the limit is the kernel's maximum: the program may have asked for more.
    pub fn is_cut(&self, somaxconn: Option<u32>) -> bool {
        self.sockets
            .iter()
            .any(|(_, _, limit)| Some(*limit) == somaxconn)
    }
}

/// Rounded to a tenth.
pub fn per_second(count: u64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => (count as f64 / seconds * 10.0).round() / 10.0,
        false => 0.0,
    }
}

/// How often processes are searched again, seconds.
const OWNERS_EVERY: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_listener_is_followed_until_it_is_gone() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let target = Target::parse(&address.to_string()).unwrap();
        let mut watch = Watch::new(Some(vec![target.clone(), target])).unwrap();
        let first = watch.look().unwrap();
        assert_eq!((first.rows.len(), first.since), (1, None));
        let row = &first.rows[0];
        assert_eq!((row.length(), row.max, row.drops), (0, 0, Some(0)));
        assert!(row.processes.iter().any(|p| p.pid == std::process::id()));
        let client = TcpStream::connect(address).unwrap();
        while watch.look().unwrap().rows[0].length() != 1 {
            std::thread::yield_now();
        }
        drop(socket.accept().unwrap());
        let third = watch.look().unwrap();
        assert_eq!((third.rows[0].length(), third.rows[0].max), (0, 1));
        assert_eq!(third.rows[0].new_drops, Some(0));
        drop((socket, client));
        let last = watch.look().unwrap();
        assert!(last.rows.is_empty());
        assert_eq!(last.absent[0].0, address.to_string());
    }

    #[test]
    fn everything_that_listens_is_there_without_a_target() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let sample = Watch::new(None).unwrap().look().unwrap();
        let address = socket.local_addr().unwrap().to_string();
        assert!(sample.rows.iter().any(|row| row.address == address));
        let json = sample.to_json();
        assert!(json["listeners"].as_array().unwrap().len() == sample.rows.len());
        assert!(json["tcp_overflows"].is_u64() && json["tcp_overflows_per_second"].is_null());
    }
}
