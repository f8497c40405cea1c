//! The kernel's limits that a configuration may reach: the accept queue, open files, and what TCP does at these
//! limits. Each check is a function of the configuration and the kernel's values; nothing is changed.
//!
//! `weir serve` logs findings that are worse than a note; `weir check` and `weir doctor` print them.

use std::{fs, str::FromStr};

use weir_config::{Address, Config};
use weir_sys::{
    limits::{self, OpenFiles},
    listener::{UDP_BUFFER, udp_buffer},
};

use crate::findings::{Finding, Severity};

/// The kernel's values; `None`: not known, as in a chroot without /proc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    /// Maximum length of an accept queue (net.core.somaxconn).
    pub somaxconn: Option<u32>,
    /// How many half-open connections it keeps without SYN cookies (net.ipv4.tcp_max_syn_backlog).
    pub tcp_max_syn_backlog: Option<u32>,
    /// Whether it sends SYN cookies if there are too many half-open connections (net.ipv4.tcp_syncookies).
    pub tcp_syncookies: Option<u32>,
    /// Whether it resets a connection if the accept queue is full (net.ipv4.tcp_abort_on_overflow).
    pub tcp_abort_on_overflow: Option<u32>,
    /// Limit of open files of the whole machine (fs.file-max).
    pub file_max: Option<u64>,
    /// Maximum for `LimitNOFILE` and `ulimit -n` (fs.nr_open).
    pub nr_open: Option<u64>,
    /// Limit of open files of this process.
    pub open_files: OpenFiles,
    /// Bytes that it keeps for a UDP socket of ours until they are read.
    pub udp_buffer: Option<usize>,
}

impl Kernel {
    /// Reads the values. Network settings are those of our own network namespace.
    pub fn look() -> Self {
        Self {
            somaxconn: limits::somaxconn(),
            tcp_max_syn_backlog: sysctl("net/ipv4/tcp_max_syn_backlog"),
            tcp_syncookies: sysctl("net/ipv4/tcp_syncookies"),
            tcp_abort_on_overflow: sysctl("net/ipv4/tcp_abort_on_overflow"),
            file_max: sysctl("fs/file-max"),
            nr_open: sysctl("fs/nr_open"),
            open_files: limits::open_files(),
            udp_buffer: udp_buffer().ok(),
        }
    }
}

/// All checks.
pub fn findings(config: &Config, kernel: &Kernel) -> Vec<Finding> {
    let mut found = backlogs(config, kernel);
    found.extend(open_files(config, kernel));
    found.extend(overflow(config, kernel));
    found.extend(udp_buffers(config, kernel));
    found
}

/// How many sockets of one TCP address are needed for queues of `backlog` in total, if each may have at most
/// `somaxconn`: the kernel distributes connections over them (`SO_REUSEPORT`). At most [`MOST_SOCKETS`].
pub fn sockets(backlog: u32, somaxconn: Option<u32>) -> usize {
    let most = somaxconn.unwrap_or(u32::MAX).max(1);
    (backlog.div_ceil(most) as usize).clamp(1, MOST_SOCKETS)
}

/// Whether the kernel grants the configured accept queues: listen(2) shortens them silently.
pub(crate) fn backlogs(config: &Config, kernel: &Kernel) -> Vec<Finding> {
    let Some(most) = kernel.somaxconn else {
        return Vec::new();
    };
    let cut = |listener: &weir_config::Listener| {
        let (name, wanted) = (&listener.name, listener.backlog);
        if wanted <= most {
            return Finding::ok(format!(
                "[listen.{name}] backlog = {wanted} is granted (net.core.somaxconn is {most})"
            ));
        }
        let sockets = match listener.address {
            Address::Tcp(_) => sockets(wanted, Some(most)),
            Address::Unix(_) => 1,
        };
        let instead = match sockets {
            1 => String::new(),
            many => format!(
                "; {many} sockets take {} together",
                u64::from(most) * many as u64
            ),
        };
        let severity = match u64::from(most) * sockets as u64 >= u64::from(wanted) {
            true => Severity::Note,
            false => Severity::Warn,
        };
        Finding::new(
            severity,
            format!(
                "[listen.{name}] backlog = {wanted}: the kernel cuts it to {most} (net.core.somaxconn){instead}"
            ),
            "if more clients connect at once, they wait for seconds",
            format!(
                "{}, then restart weir; or write backlog = {most}",
                set_sysctl("net.core.somaxconn", wanted)
            ),
        )
    };
    config.listeners.iter().map(cut).collect()
}

/// Whether the limit of open files is enough for the configuration.
pub fn open_files(config: &Config, kernel: &Kernel) -> Vec<Finding> {
    let need = OpenFilesNeeded::of(config);
    let allowed = kernel.open_files.hard;
    let mut found = Vec::new();
    let mend = |needed: u64| {
        let mut mend = format!(
            "LimitNOFILE={needed} in the [Service] part of the systemd unit, `ulimit -Hn {needed}` elsewhere; or lower \
             max_connections"
        );
        if let Some(most) = kernel.nr_open.filter(|most| *most < needed) {
            mend = format!(
                "{} (it is {most}, and no limit can be higher), then {mend}",
                set_sysctl("fs.nr_open", needed)
            );
        }
        mend
    };
    found.push(if allowed < need.least {
        Finding::new(
            Severity::Warn,
            format!("weir may need {} open files, but only {allowed} are allowed", need.least),
            format!("{}; without them, weir cannot accept connections or open files", need.sum),
            mend(need.least),
        )
    } else if allowed < need.most {
        Finding::new(
            Severity::Note,
            format!("weir needs up to {} open files, but only {allowed} are allowed", need.most),
            "that many are needed if every client gets a file, or has a body in a temporary file, at the same time",
            mend(need.most),
        )
    } else {
        Finding::ok(format!("{allowed} open files are allowed; {} may be needed", need.most))
    });
    if let Some(all) = kernel.file_max.filter(|all| *all < need.least) {
        found.push(Finding::new(
            Severity::Warn,
            format!("the whole machine can have {all} open files (fs.file-max)"),
            format!("weir alone may need {}", need.least),
            set_sysctl("fs.file-max", need.least.saturating_mul(2)),
        ));
    }
    found
}

/// What TCP does with clients that find a queue full.
pub fn overflow(config: &Config, kernel: &Kernel) -> Vec<Finding> {
    let tcp = |listener: &&weir_config::Listener| matches!(listener.address, Address::Tcp(_));
    let backlog = config.listeners.iter().filter(tcp).map(|l| l.backlog).max();
    let Some(backlog) = backlog else {
        return Vec::new();
    };
    let mut found = Vec::new();
    match kernel.tcp_abort_on_overflow {
        Some(0) => found.push(Finding::ok(
            "a client that meets a full accept queue tries again (net.ipv4.tcp_abort_on_overflow is 0)",
        )),
        Some(_) => found.push(Finding::new(
            Severity::Warn,
            "net.ipv4.tcp_abort_on_overflow is set",
            "a client that meets a full accept queue is refused at once, instead of being accepted a second later",
            set_sysctl("net.ipv4.tcp_abort_on_overflow", 0),
        )),
        None => {}
    }
    if let (Some(0), Some(half_open)) = (kernel.tcp_syncookies, kernel.tcp_max_syn_backlog)
        && half_open < backlog
    {
        found.push(Finding::new(
            Severity::Warn,
            format!(
                "net.ipv4.tcp_max_syn_backlog is {half_open}, below a backlog of {backlog}, and tcp_syncookies is off"
            ),
            "the kernel drops new connections when three quarters of that are half-open, so with many \
             clients, or one flood, others wait for seconds",
            format!(
                "{}; or {}",
                set_sysctl("net.ipv4.tcp_syncookies", 1),
                set_sysctl("net.ipv4.tcp_max_syn_backlog", backlog)
            ),
        ));
    }
    found
}

/// Whether the kernel's UDP buffers are large enough for packets that arrive while weir is busy.
pub(crate) fn udp_buffers(config: &Config, kernel: &Kernel) -> Option<Finding> {
    let listener = config.listeners.iter().find(|listener| listener.http3)?;
    let (name, granted) = (&listener.name, kernel.udp_buffer?);
    if granted >= UDP_BUFFER {
        return Some(Finding::ok(format!(
            "[listen.{name}] http3: the kernel keeps {granted} bytes of each UDP socket until they are read"
        )));
    }
    Some(Finding::new(
        Severity::Note,
        format!(
            "[listen.{name}] http3: the kernel keeps only {granted} bytes of each UDP socket until they are read, not {UDP_BUFFER} \
             (net.core.rmem_max)"
        ),
        "in a burst it drops datagrams, so that clients of HTTP/3 wait until they have sent them again \
         (weir_quic_dropped_datagrams_total)",
        format!(
            "{}, then restart weir; or start weir with the right to exceed it (as root, or with CAP_NET_ADMIN)",
            set_sysctl("net.core.rmem_max", UDP_BUFFER)
        ),
    ))
}

/// How to change a setting of the kernel, now and for later boots.
pub fn set_sysctl(name: &str, value: impl std::fmt::Display) -> String {
    format!(
        "sysctl -w {name}={value} (to keep it: `{name} = {value}` in /etc/sysctl.d/60-weir.conf)"
    )
}

/// How many files the gateway may have open at once.
struct OpenFilesNeeded {
    /// For all clients, and all requests that may be at work.
    least: u64,
    /// With a file for each client in addition.
    most: u64,
    /// How `least` is calculated.
    sum: String,
}

impl OpenFilesNeeded {
    fn of(config: &Config) -> Self {
        let clients = config.server.max_connections as u64;
        let at_work: u64 = config.pools.iter().map(|p| p.queue.maxconn as u64).sum();
        let least = clients
            .saturating_add(at_work.saturating_mul(3))
            .saturating_add(REST);
        Self {
            least,
            most: least.saturating_add(clients.saturating_sub(at_work)),
            sum: format!(
                "one connection for each of max_connections = {clients} clients; for each of {at_work} running requests \
                 one connection to its worker, and temporary files for its body and its answer; {REST} for logs, listeners \
                 and files that are kept open"
            ),
        }
    }
}

/// Maximum number of sockets per listener, however short the kernel's queues are.
pub(crate) const MOST_SOCKETS: usize = 16;

/// Logs, listeners, cached files, the admin interface.
const REST: u64 = 200;

fn sysctl<T: FromStr>(path: &str) -> Option<T> {
    let text = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Environment;

    const WELL: Kernel = Kernel {
        somaxconn: Some(4096),
        tcp_max_syn_backlog: Some(512),
        tcp_syncookies: Some(1),
        tcp_abort_on_overflow: Some(0),
        file_max: Some(1 << 40),
        nr_open: Some(1 << 20),
        open_files: OpenFiles {
            soft: 1024,
            hard: 524_288,
        },
        udp_buffer: Some(UDP_BUFFER),
    };

    fn config(text: &str) -> Config {
        let environment = Environment::of_this_machine(std::path::Path::new("/"));
        weir_config::parse("weir.toml", text, &environment).unwrap()
    }

    fn bad(text: &str, kernel: Kernel) -> Vec<String> {
        let found = findings(&config(text), &kernel);
        let bad = found.into_iter().filter(|f| f.severity > Severity::Ok);
        bad.map(|finding| format!("{}: {finding}", finding.severity.name()))
            .collect()
    }

    const TCP: &str = "[server]\nmax_connections = 1000\n[listen.web]\naddress = \"127.0.0.1:80\"\nbacklog = 511\n\
                       [site.a]\nroot = \"/\"\n";

    #[test]
    fn a_kernel_that_grants_everything_is_no_finding() {
        assert_eq!(bad(TCP, WELL), [""; 0]);
    }

    #[test]
    fn a_backlog_that_is_cut_names_the_listener_and_the_command() {
        let kernel = Kernel {
            somaxconn: Some(16),
            ..WELL
        };
        let [found] = &bad(TCP, kernel)[..] else {
            panic!("one finding");
        };
        assert!(found.contains("[listen.web] backlog = 511"), "{found}");
        assert!(
            found.contains("sysctl -w net.core.somaxconn=511"),
            "{found}"
        );
        assert!(found.contains("/etc/sysctl.d/"), "{found}");
        assert!(
            found.starts_with("warn: ") && found.contains("16 sockets take 256"),
            "{found}"
        );
        // Several sockets together have a queue of this length, so no client has to wait.
        let kernel = Kernel {
            somaxconn: Some(128),
            ..WELL
        };
        assert!(bad(TCP, kernel)[0].starts_with("note: "));
        let unix = TCP.replace("127.0.0.1:80", "unix:/run/weir.sock");
        assert!(bad(&unix, kernel)[0].starts_with("warn: "));
        assert_eq!(
            [
                sockets(511, Some(511)),
                sockets(512, Some(511)),
                sockets(9, None)
            ],
            [1, 2, 1]
        );
    }

    #[test]
    fn open_files_are_counted_and_the_limit_named() {
        let with = |hard| Kernel {
            open_files: OpenFiles { soft: hard, hard },
            ..WELL
        };
        assert!(bad(TCP, with(1199))[0].starts_with("warn: "));
        let found = &bad(TCP, with(1199))[0];
        assert!(
            found.contains("LimitNOFILE=1200") && found.contains("ulimit -Hn 1200"),
            "{found}"
        );
        assert!(bad(TCP, with(1200))[0].starts_with("note: "));
        assert_eq!(bad(TCP, with(2200)), [""; 0]);
        let kernel = Kernel {
            nr_open: Some(1100),
            ..with(1100)
        };
        assert!(bad(TCP, kernel)[0].contains("fs.nr_open=1200"));
    }

    #[test]
    fn what_tcp_does_when_a_queue_is_full_matters_to_tcp_listeners() {
        let kernel = Kernel {
            tcp_abort_on_overflow: Some(1),
            tcp_syncookies: Some(0),
            tcp_max_syn_backlog: Some(128),
            ..WELL
        };
        let found = bad(TCP, kernel);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("tcp_abort_on_overflow=0"), "{found:?}");
        assert!(found[1].contains("tcp_max_syn_backlog=511"), "{found:?}");
        let unix = TCP.replace("127.0.0.1:80", "unix:/run/weir.sock");
        assert_eq!(bad(&unix, kernel), [""; 0]);
    }

    #[test]
    fn small_buffers_of_udp_matter_to_http3() {
        let kernel = Kernel {
            udp_buffer: Some(212_992),
            ..WELL
        };
        assert_eq!(bad(TCP, kernel), [""; 0]);
        let http3 = TCP.replace("backlog", "tls = true\nhttp3 = true\nbacklog");
        let http3 = http3 + "[certificate.a]\nchain = \"/a.pem\"\n";
        assert_eq!(bad(&http3, WELL), [""; 0]);
        let [found] = &bad(&http3, kernel)[..] else {
            panic!("one finding");
        };
        assert!(
            found.starts_with("note: [listen.web] http3: ") && found.contains("212992 bytes"),
            "{found}"
        );
        assert!(
            found.contains("sysctl -w net.core.rmem_max=4194304"),
            "{found}"
        );
    }

    #[test]
    fn a_kernel_that_says_nothing_is_no_finding() {
        let kernel = Kernel {
            somaxconn: None,
            tcp_max_syn_backlog: None,
            tcp_syncookies: None,
            tcp_abort_on_overflow: None,
            file_max: None,
            nr_open: None,
            udp_buffer: None,
            ..WELL
        };
        assert_eq!(bad(TCP, kernel), [""; 0]);
    }

    #[test]
    fn this_kernel_says_what_is_asked() {
        let kernel = Kernel::look();
        assert!(kernel.somaxconn.is_some() && kernel.nr_open.is_some());
    }
}
