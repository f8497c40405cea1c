//! Applications that stay booted: whether their script can be run, and whether URLs lead to it.

use std::path::Path;

use super::Pass;
use crate::model::{Pool, Settings, Workers};

impl Pass<'_> {
    /// Checks the script of an application.
    pub(super) fn booted_script(&mut self, key: &str, file: &Path, workers: &Workers) {
        let shown = file.display();
        let hint = "write the path of the script that calls frankenphp_handle_request()";
        if !self.machine.exists(file) {
            return self.error(key, format!("{shown} does not exist"), hint);
        }
        if self.machine.folder(file).is_ok() {
            return self.error(key, format!("{shown} is a folder"), hint);
        }
        let own = workers.user.clone().filter(|_| self.machine.is_root());
        let Some(user) = own.or_else(|| self.gateway_user()) else {
            return;
        };
        if let Some(barrier) = self.machine.barred(file, &user) {
            let barrier = barrier.display();
            let message = format!(
                "the pool's user, {user}, cannot read {shown}: no permission for {barrier}"
            );
            let hint = format!("chmod o+rX {barrier}, or setfacl -m u:{user}:rX {barrier}");
            self.warning(key, message, &hint);
        }
    }

    /// Checks that a site of such a pool has a fallback: else only the script's own URL leads to the application.
    pub(super) fn way_to_application(&mut self, path: &str, settings: &Settings) {
        let pool = settings
            .pool
            .and_then(|id| self.checked.config.pools.get(id.0));
        let Some((pool, root)) = pool.zip(settings.root.as_ref()) else {
            return;
        };
        let has_application = pool.php().is_some_and(|php| php.worker.is_some());
        if !has_application || settings.fallback.is_some() {
            return;
        }
        let message = format!(
            "[pool.{}] has a `worker`, but this site has no fallback: only URLs of its script lead to the application",
            pool.name
        );
        let url = fallback_to(pool, root).unwrap_or("/index.php".to_owned());
        let hint = format!("write fallback = \"{url}\"; URLs of files are not affected");
        self.warning(&format!("{path}.pool"), message, &hint);
    }
}

/// The fallback that leads to the pool's application, if its script is below the root.
pub(super) fn fallback_to(pool: &Pool, root: &Path) -> Option<String> {
    let worker = pool.php()?.worker.as_ref()?;
    let below = worker.strip_prefix(root).ok()?;
    Some(format!("/{}", below.to_str()?))
}
