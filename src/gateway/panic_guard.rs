//! Ends a request that panics, and that request only.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::error::Failure;

/// Drives `guarded`. Panics are caught around each poll and not by a wrapping future, which would move the large one inside.
///
/// # Errors
/// Its own. [`Failure::Panicked`] when it panicked, which is a bug: it is not polled again, and the panic is in the log.
#[inline]
pub async fn guard<T>(guarded: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut guarded = pin!(guarded);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| guarded.as_mut().poll(cx)));
        polled.unwrap_or(Poll::Ready(Err(Failure::Panicked)))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_the_guarded_future_and_nothing_else() {
        assert!(guard(async { Ok(7) }).await.is_ok_and(|seven| seven == 7));
        let panicked: Result<(), _> = guard(async { panic!("a bug") }).await;
        assert!(matches!(panicked, Err(Failure::Panicked)));
    }
}
