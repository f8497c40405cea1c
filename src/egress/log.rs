use super::record::CallRecord;
use std::sync::Arc;
pub(crate) struct CallLog;
impl CallLog {
    pub(crate) fn new(_s: Arc<crate::log_sink::Sink>, _f: &weir_config::LogFormat) -> Self {
        CallLog
    }
    pub(crate) fn write(&self, r: &CallRecord) {
        ::log::info!("{r:?}")
    }
}
