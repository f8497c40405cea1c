//! How the processes of workers ended, as the manager reports it.

use std::time::Duration;

use weir_sys::process::Exit;

use crate::dispatch::PoolHandle;

impl PoolHandle {
    /// How a worker's process ended, once the manager has reported it; `None` if no report comes in time, or the
    /// process still runs.
    pub(crate) async fn exit(&self, process: Option<u32>) -> Option<Exit> {
        self.end_of(process).await.map(|(exit, _)| exit)
    }

    /// Whether somebody else killed a worker's process, so that its request is not the cause. `false` if no report
    /// comes in time.
    pub(crate) async fn was_killed(&self, process: Option<u32>) -> bool {
        self.end_of(process).await.is_some_and(|(_, killed)| killed)
    }

    async fn end_of(&self, process: Option<u32>) -> Option<(Exit, bool)> {
        let process = process?;
        let told = async {
            loop {
                let mut exits = std::pin::pin!(self.exits.notified());
                exits.as_mut().enable();
                let known = self
                    .state()
                    .exits
                    .iter()
                    .find(|(worker, ..)| *worker == process)
                    .copied();
                match known {
                    Some((_, exit, killed)) => return (exit, killed),
                    None => exits.await,
                }
            }
        };
        tokio::time::timeout(EXIT_NOTICE, told).await.ok()
    }
}

/// How long the gateway waits for the exit status of a worker's process, before it answers the client without it.
const EXIT_NOTICE: Duration = Duration::from_millis(250);
