//! Ends a request that panics, and that request only.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// The guarded future panicked, which is a bug. The panic is in the log.
#[derive(Debug)]
pub struct Panicked;

/// Drives `guarded`. Panics are caught around each poll and not by a wrapping future, which would move the large one inside.
///
/// # Errors
/// When it panicked; it is not polled again.
#[inline]
pub async fn guard<T>(guarded: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut guarded = pin!(guarded);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| guarded.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_the_guarded_future_and_nothing_else() {
        assert!(guard(async { 7 }).await.is_ok_and(|seven| seven == 7));
        assert!(guard(async { panic!("a bug") }).await.is_err());
    }
}
