//! The kernel's limits: accept queues, descriptors, ports for outgoing connections.

use std::fs;

use weir_config::{Address, Runtime, Upstream, UpstreamServer};
use weir_machine::limits::{self as kernel, Kernel};
use weir_sys::{
    limits,
    net_stat::{Counters, Overflows},
};

use super::{Notes, case::Case};

/// The limits that a start warns of, for the running weir if there is one; and those of connections to servers.
pub(super) fn look(case: &Case<'_>, notes: &mut Notes) {
    let mut limits = Kernel::look();
    limits.open_files = case.open_files();
    notes
        .findings
        .extend(kernel::findings(case.config, &limits));
    descriptors(case, notes);
    if let Ok(counted) = Counters::open().and_then(|counters| counters.read()) {
        overflows(counted, notes);
    }
    ports(case, &Ports::look(), notes);
}

/// The kernel's counters of all listeners in this network namespace.
fn overflows(counted: Overflows, notes: &mut Notes) {
    match counted.overflows {
        0 => notes.ok("no TCP accept queue was full since boot"),
        count => notes.note(
            format!("{count} connections met a full TCP accept queue since boot"),
            "this counts all programs on this machine. Those clients waited for seconds or gave up",
            "run weir watch to see which queue fills up",
        ),
    }
}

/// Whose limit of open files is shown.
fn descriptors(case: &Case<'_>, notes: &mut Notes) {
    match case.live() {
        Some(live) if live.gateway_files.is_none() => notes.unseen(
            "the open-files limit of the running weir; the limit of this shell was used instead",
            "run `weir doctor` as root, or as the user who started weir",
        ),
        Some(_) => {}
        None => {
            let own = limits::open_files();
            notes.note(
                format!(
                    "this shell's limit of open files is {} (hard {})",
                    number(own.soft),
                    number(own.hard)
                ),
                "a service manager may set another limit",
                "LimitNOFILE=… in the systemd unit, or run `weir doctor` while weir is running",
            );
        }
    }
}

fn number(limit: u64) -> String {
    match limit {
        u64::MAX => "unlimited".into(),
        limit => limit.to_string(),
    }
}

/// The ports for outgoing connections.
struct Ports {
    /// First and last (net.ipv4.ip_local_port_range).
    range: Option<(u64, u64)>,
}

impl Ports {
    fn look() -> Self {
        let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let mut words = text.split_whitespace().map(|word| word.parse().ok());
        let range = words.next().flatten().zip(words.next().flatten());
        Self { range }
    }
}

/// Each request to a TCP server needs a connection, whose port stays in use for a minute after its end (TIME_WAIT).
fn ports(case: &Case<'_>, ports: &Ports, notes: &mut Notes) {
    let Some((first, last)) = ports.range else {
        return;
    };
    let count = last.saturating_sub(first) + 1;
    for pool in &case.config.pools {
        let Runtime::Servers(servers) = &pool.runtime else {
            continue;
        };
        let is_unix =
            |server: &&UpstreamServer| matches!(server.address, Upstream::At(Address::Unix(_)));
        let tcp = servers
            .list
            .iter()
            .filter(|server| !is_unix(server))
            .count() as u64;
        if tcp == 0 {
            continue;
        }
        let label = format!("[pool.{}]", pool.name);
        if (pool.queue.maxconn as u64) > count * tcp {
            notes.breaks(
                format!(
                    "{label} maxconn = {} is more than the {count} local ports for each of {tcp} servers",
                    pool.queue.maxconn
                ),
                "further connections fail: 503 no_worker",
                "sysctl -w net.ipv4.ip_local_port_range='1024 65535', or unix sockets",
            );
        } else if !pool.keep_conn {
            let rate = count / TIME_WAIT * tcp;
            let what = format!(
                "{label} opens a connection for each request: at most {rate} a second to {tcp} TCP servers ({count} \
                 ports, each blocked for {TIME_WAIT} s)"
            );
            match count < ENOUGH {
                true => notes.warn(
                    what,
                    "above this rate, connections fail: 503 no_worker",
                    "sysctl -w net.ipv4.ip_local_port_range='1024 65535'; or unix sockets",
                ),
                false => notes.ok(what),
            }
        }
    }
}

/// For how many seconds the port of a closed connection stays in use (TCP_TIMEWAIT_LEN of Linux).
const TIME_WAIT: u64 = 60;

/// The kernel's default range has 28,232 ports.
const ENOUGH: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::super::tests::{said, with_config};
    use super::*;

    #[test]
    fn connections_to_servers_need_ports() {
        let looked = |range, more: &str| {
            let text = format!(
                "[listen.a]\naddress = \":1\"\n[site.a]\nroot = \"/\"\npool = \"a\"\n[pool.a]\nruntime = \"servers\"\n\
                 servers = [\"127.0.0.1:9000\"]\nqueue.maxconn = 500\n{more}"
            );
            with_config(&text, |case| {
                let mut notes = Notes::default();
                ports(case, &Ports { range: Some(range) }, &mut notes);
                said(&notes)
            })
        };
        assert!(looked((32_768, 60_999), "")[0].contains("470 a second"));
        assert!(looked((32_768, 60_999), "")[0].starts_with("ok: "));
        assert!(looked((60_000, 60_999), "")[0].starts_with("warn: "));
        assert!(looked((60_000, 60_099), "")[0].starts_with("break: "));
        assert_eq!(looked((60_000, 60_999), "keep_conn = true"), [""; 0]);
    }

    #[test]
    fn queues_that_were_full_are_told() {
        let looked = |overflows| {
            let mut notes = Notes::default();
            let drops = overflows;
            super::overflows(Overflows { overflows, drops }, &mut notes);
            said(&notes).remove(0)
        };
        assert!(looked(0).starts_with("ok: "));
        assert!(looked(7).starts_with("note: 7 connections"));
    }

    #[test]
    fn this_kernel_says_its_ports() {
        assert!(
            Ports::look()
                .range
                .is_some_and(|(first, last)| first < last)
        );
    }
}
