//! A thread with a runtime of its own, such as a worker. Guarantees that its tasks never move to
//! another thread.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;

use tokio::runtime;

/// Runs the future of `main` to its end, on a thread called `name`. Tasks that it spawned and left
/// running are dropped then.
///
/// # Errors
/// The thread or its event queue cannot be created.
pub fn spawn<M, F>(name: String, main: M) -> io::Result<JoinHandle<F::Output>>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future,
    F::Output: Send + 'static,
{
    let runtime = runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    std::thread::Builder::new()
        .name(name)
        .spawn(move || runtime.block_on(async { main().await }))
}
