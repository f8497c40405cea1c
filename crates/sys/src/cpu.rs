//! Processor time that has been used.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time, of user and kernel, that all threads of this process have used.
pub fn of_process() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Processor time, of user and kernel, that the calling thread has used.
pub fn of_thread() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted() {
        let (process, thread) = (of_process(), of_thread());
        let mut sum = 0_u64;
        while of_thread() - thread < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(of_process() - process >= Duration::from_millis(2));
    }
}
