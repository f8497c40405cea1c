//! A timer with a precision of some microseconds. tokio's own timers have a precision of one millisecond.

use std::{
    io,
    os::fd::OwnedFd,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use tokio::io::{Interest, unix::AsyncFd};

/// The kernel's monotonic clock, µs.
///
/// Through the C library: callgrind cannot follow rustix's own search for the kernel's function.
#[must_use]
#[inline]
pub fn monotonic() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec that the call may write to. The clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// A timer (timerfd_create(2)). The reactor in which it was created watches it.
#[derive(Debug)]
pub struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// As timerfd_create(2) and epoll_ctl(2). Panics outside of a tokio runtime with I/O.
    pub fn new() -> io::Result<Self> {
        let fd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        // SAFETY: an `OwnedFd` names the same open descriptor for its whole life, and nobody can put another one in
        // its place: `AsyncFd` is private here and never given out.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Self(watched.map_err(io::Error::from)?))
    }

    /// Waits until `time`. Returns at once if that time has passed.
    ///
    /// # Errors
    /// As timerfd_settime(2) and read(2).
    pub async fn until(&mut self, time: Instant) -> io::Result<()> {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(left),
        };
        // Setting the timer also resets an earlier expiration.
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        std::future::poll_fn(|cx| self.poll_over(cx)).await
    }

    fn poll_over(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let mut times = [0_u8; 8];
            match rustix::io::read(self.0.get_ref(), &mut times) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_again_and_again_and_never_too_short() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut timer = Timer::new().unwrap();
            let began = Instant::now();
            for turn in 1..=20 {
                let time = began + Duration::from_micros(700) * turn;
                timer.until(time).await.unwrap();
                assert!(Instant::now() >= time);
            }
            timer.until(began).await.unwrap();
        });
    }

    #[test]
    fn a_waiting_that_was_given_up_does_not_shorten_the_next() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut timer = Timer::new().unwrap();
            let soon = Instant::now() + Duration::from_millis(1);
            {
                let mut given_up = std::pin::pin!(timer.until(soon));
                let mut cx = Context::from_waker(std::task::Waker::noop());
                assert!(given_up.as_mut().poll(&mut cx).is_pending());
            }
            while Instant::now() < soon + Duration::from_millis(1) {
                std::hint::spin_loop();
            }
            let later = Instant::now() + Duration::from_millis(5);
            timer.until(later).await.unwrap();
            assert!(Instant::now() >= later);
        });
    }
}
