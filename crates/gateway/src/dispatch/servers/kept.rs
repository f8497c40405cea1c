//! Closes idle connections to servers that speak HTTP: those that nobody has needed for long, and those that the server has closed.
//! FastCGI servers have no such task: their connections are few, and each is looked at before its next request.

use std::time::Duration;

use weir_pool::ServerId;

use crate::dispatch::PoolHandle;

/// Looks at the idle connections of a pool again and again.
pub(super) async fn watch(pool: &'static PoolHandle) {
    loop {
        tokio::time::sleep(LOOK).await;
        pool.change(|state, _, effects| {
            let Some(group) = &mut state.group else {
                return;
            };
            let servers: Vec<ServerId> = group.staying().map(|(id, _)| id).collect();
            for server in servers {
                let Some(member) = group.member_mut(server) else {
                    continue;
                };
                let worn = member.kept.extract_if(.., |conn| conn.is_worn(KEPT_FOR));
                worn.for_each(|conn| effects.close(Some(conn)));
            }
        });
    }
}

/// How often it looks.
const LOOK: Duration = Duration::from_secs(1);

/// A connection that was idle for so long is closed.
const KEPT_FOR: Duration = Duration::from_secs(60);
