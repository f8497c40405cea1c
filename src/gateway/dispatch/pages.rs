//! What a pool's status and ping pages need beside figures: the PHP version, and a counter of requests for these
//! pages.

use std::sync::{PoisonError, atomic::Ordering::Relaxed};

use super::PoolHandle;

impl PoolHandle {
    /// Notes the PHP version of the workers. `exposed`: answers may name it.
    pub(crate) fn has_php(&self, version: String, exposed: bool) {
        *self.php.lock().unwrap_or_else(PoisonError::into_inner) = (version, exposed);
    }

    /// The PHP version of the workers, and whether answers may name it; empty if they do not run weir's PHP.
    pub(crate) fn php(&self) -> (String, bool) {
        let php = self.php.lock().unwrap_or_else(PoisonError::into_inner);
        php.clone()
    }

    /// PHP-FPM's page has this field since 8.4. If the workers are not PHP, nobody expects it to be missing.
    pub(super) fn shows_memory_peak(&self) -> bool {
        let (loaded, _) = self.php();
        let configured = self.settings.php().and_then(|php| php.version.clone());
        let version = match loaded.is_empty() {
            true => configured.unwrap_or_default(),
            false => loaded,
        };
        let mut numbers = version
            .split('.')
            .map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next(), numbers.next());
        version.0.is_none() || version >= (Some(8), Some(4))
    }

    /// Counts a status or ping page as PHP-FPM does.
    pub(crate) fn count_page(&self) {
        self.pages.fetch_add(1, Relaxed);
    }
}
