//! The real binary when there is more work than workers: the queue, its rules, its logs and the kernel's queue before it.

mod crowd;
mod kernel_queue;
mod overload;
mod policy;
mod pool_log;
mod queue;
