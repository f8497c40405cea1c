//! The running weir, if there is one: data from its admin interface, and from the kernel about its
//! processes.

use std::{fs, io::ErrorKind, os::unix::fs::MetadataExt};

use http::Method;
use serde_json::Value;
use weir_admin::client::Endpoint;
use weir_config::{Config, SocketPath};
use weir_sys::limits::OpenFiles;

/// A running weir.
#[derive(Debug)]
pub(super) struct Live {
    /// The status from its admin interface.
    pub(super) status: Value,
    /// Process id of the manager.
    pub(super) manager: Option<u32>,
    /// The user and group of the manager.
    pub(super) manager_ids: Option<(u32, u32)>,
    /// The gateway's limit of open files; `None`: we may not look.
    pub(super) gateway_files: Option<OpenFiles>,
}

/// Whether a weir is running.
#[derive(Debug)]
pub(super) enum Found {
    /// It is running.
    Runs(Box<Live>),
    /// Nobody answers.
    Nobody,
    /// We may not ask, or got no answer; with the reason.
    Unseen(String),
    /// There is no admin interface.
    NoAdmin,
}

/// Asks the given admin interface, or the configured one.
pub(super) fn ask(config: &Config, named: Option<&SocketPath>) -> Found {
    let socket = match named.unwrap_or(&config.server.admin) {
        SocketPath::At(path) => Some(path.clone()),
        SocketPath::Default => weir_machine::default_admin_socket(),
        SocketPath::Off => None,
    };
    let tcp = config.server.admin_tcp.filter(|_| named.is_none());
    match (socket, tcp) {
        (Some(socket), _) => at(&Endpoint::Unix(socket)),
        // From this machine, the status is shown without a token.
        (None, Some(address)) => at(&Endpoint::Tcp {
            address,
            token: None,
        }),
        (None, None) => Found::NoAdmin,
    }
}

fn at(place: &Endpoint) -> Found {
    let answer = match weir_admin::client::ask(place, Method::GET, "/status") {
        Ok(answer) => answer,
        Err(weir_admin::client::Error::Unreachable { error, .. })
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused
            ) =>
        {
            return Found::Nobody;
        }
        Err(error) => return Found::Unseen(error.to_string()),
    };
    match serde_json::from_str(&answer) {
        Ok(status) => Found::Runs(Box::new(Live::of(status))),
        Err(error) => Found::Unseen(format!("the status is not valid JSON: {error}")),
    }
}

impl Live {
    pub(super) fn of(status: Value) -> Self {
        let pid = |name: &str| {
            let pid = status[name].as_u64()?;
            u32::try_from(pid).ok()
        };
        let manager = pid("manager_pid");
        let gateway = pid("gateway_pid");
        let ids = manager.and_then(|pid| {
            let metadata = fs::metadata(format!("/proc/{pid}")).ok()?;
            Some((metadata.uid(), metadata.gid()))
        });
        Self {
            manager,
            manager_ids: ids,
            gateway_files: gateway.and_then(open_files),
            status,
        }
    }

    /// The status of a pool.
    pub(super) fn pool(&self, name: &str) -> Option<&Value> {
        let pools = self.status["pools"].as_array()?;
        pools.iter().find(|pool| pool["name"] == name)
    }

    /// Process ids of a pool's workers.
    pub(super) fn workers(&self, pool: &str) -> Vec<u32> {
        let processes = self
            .pool(pool)
            .and_then(|pool| pool["processes"].as_array());
        let pid = |process: &Value| u32::try_from(process["pid"].as_u64()?).ok();
        processes.into_iter().flatten().filter_map(pid).collect()
    }
}

/// The limit of open files of a process.
fn open_files(pid: u32) -> Option<OpenFiles> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    open_files_of(&limits)
}

fn open_files_of(limits: &str) -> Option<OpenFiles> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        word => word.parse().ok(),
    });
    Some(OpenFiles {
        soft: words.next()??,
        hard: words.next()??,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_status_leads_to_processes_and_their_limits() {
        let us = std::process::id();
        let live = Live::of(json!({
            "manager_pid": us, "gateway_pid": us,
            "pools": [{ "name": "shop", "processes": [{ "pid": 7 }, { "pid": null }] }],
        }));
        assert_eq!(live.manager, Some(us));
        assert!(live.manager_ids.is_some() && live.gateway_files.is_some());
        assert_eq!(live.workers("shop"), [7]);
        assert_eq!(live.workers("other"), [0; 0]);
    }

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 unlimited            files\n";
        let expected = OpenFiles {
            soft: 1024,
            hard: u64::MAX,
        };
        assert_eq!(open_files_of(text), Some(expected));
        assert_eq!(open_files_of("Max open files"), None);
    }

    #[test]
    fn nobody_answers_where_there_is_no_socket() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(
            at(&Endpoint::Unix(folder.path().join("no.sock"))),
            Found::Nobody
        ));
    }
}
