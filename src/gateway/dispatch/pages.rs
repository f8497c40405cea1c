//! What a pool's status and ping pages say beside figures: which PHP answers, and that the pages themselves were asked for.

use std::sync::{PoisonError, atomic::Ordering::Relaxed};

use super::PoolHandle;

impl PoolHandle {
    /// The workers run this PHP; `exposed`: answers name it.
    pub(crate) fn has_php(&self, version: String, exposed: bool) {
        *self.php.lock().unwrap_or_else(PoisonError::into_inner) = (version, exposed);
    }

    /// Which PHP the workers run, and whether answers name that; empty where it is none of weir's.
    pub(crate) fn php(&self) -> (String, bool) {
        let php = self.php.lock().unwrap_or_else(PoisonError::into_inner);
        php.clone()
    }

    /// PHP-FPM's page has it since 8.4; where workers are no PHP, nobody expects it to be missing.
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

    /// The gateway answers with a page of its own, which counts as PHP-FPM counts it.
    pub(crate) fn count_page(&self) {
        self.pages.fetch_add(1, Relaxed);
    }
}
