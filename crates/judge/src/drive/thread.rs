//! Threads of a run, each with a runtime of its own.

use std::thread::JoinHandle;

use tokio::runtime::{Builder, Runtime};

use crate::error::Error;

/// A thread's own runtime.
pub fn runtime() -> Result<Runtime, Error> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Starts a thread with a name.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, std::io::Error> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
}
