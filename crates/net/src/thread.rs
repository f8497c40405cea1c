//! Threads with a runtime of their own.

use std::{io, sync::mpsc, thread};

use tokio::runtime::{Builder, LocalOptions};

/// Starts a thread with a runtime, and runs `main` on it. The tasks that `main` starts may be of values that belong to one
/// thread ([`tokio::task::spawn_local`]): they never leave it. `blocking_threads`: how many threads may wait for the disk
/// for it. `before_wait` runs each time before the thread waits for events.
///
/// # Errors
///
/// There is no memory or descriptor for the thread or its runtime.
pub fn start_thread<F: Future<Output = ()>>(
    name: String,
    blocking_threads: usize,
    before_wait: fn(),
    main: impl FnOnce() -> F + Send + 'static,
) -> io::Result<()> {
    let (tell, told) = mpsc::channel();
    // The runtime belongs to its thread.
    let run = move || {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(blocking_threads)
            .on_thread_park(before_wait)
            .build_local(LocalOptions::default());
        match runtime {
            Ok(runtime) => {
                let _ = tell.send(Ok(()));
                runtime.block_on(async { main().await });
            }
            Err(error) => drop(tell.send(Err(error))),
        }
    };
    thread::Builder::new().name(name).spawn(run)?;
    let ended = |_| Err(io::Error::other("the thread ended at its start"));
    told.recv().unwrap_or_else(ended)
}
