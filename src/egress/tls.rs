use super::target::Origin;
use std::sync::Arc;
pub(crate) struct TlsContext;
pub(crate) struct TlsContexts;
impl TlsContexts {
    pub(crate) fn new(
        _s: &weir_config::Egress,
        _f: &crate::control::EgressFiles,
    ) -> Result<Self, String> {
        Ok(TlsContexts)
    }
    pub(crate) fn of(
        &self,
        _o: &Origin,
        _s: &weir_config::HostSettings,
    ) -> Result<Option<Arc<TlsContext>>, String> {
        Ok(None)
    }
}
