//! The processes that run weir's own program in another role, and what every child has: environment, memory, how it ended.

pub(crate) mod environment;
pub(crate) mod gateway;
pub(crate) mod heritage;
pub mod jail;
pub(crate) mod measure;
pub(crate) mod oom;
pub(crate) mod role;
pub(crate) mod unsent;
pub(crate) mod watch;
