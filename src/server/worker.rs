//! One thread with a runtime of its own: what runs on it never moves to another.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;

use tokio::runtime;

/// Runs what `main` gives on a thread named `worker-{index}`, until it ends; what it spawned and left running is dropped
/// then. Errors: the thread or its event queue could not be made.
pub fn spawn<M, F>(index: usize, main: M) -> io::Result<JoinHandle<F::Output>>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future,
    F::Output: Send + 'static,
{
    let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || runtime.block_on(async { main().await }))
}
